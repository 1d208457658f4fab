"""Parse and check assertions and guardrails; `assertion_kinds.json` defines their types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.pointers import pointer_to
from toolcrib.core.schemas import part_schema
from toolcrib.expressions.jmespath_queries import compile_select
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.document_checks import problem_of
from toolcrib.loading.scenarios.model import SPEAKING, WRAPPER, Assertion, GuardrailCheck

if TYPE_CHECKING:
    from toolcrib.loading.prompts import Guardrail
from toolcrib.schema.validation import Validator, Violation, check_schema


class KindAlias(NamedTuple):
    """An alias of an assertion type.

    Attributes:
        kind: The canonical name.
        whole: Whether it applies to the whole conversation, even in a turn.
        params: Default parameters.
    """

    kind: str
    whole: bool = False
    params: Mapping[str, Any] = {}


ALIASES: Final[Mapping[str, KindAlias]] = {
    "banned_words": KindAlias("content_excludes", params={"match_mode": "word_boundary"}),
    "chain": KindAlias("tool_call_chain"),
    "contains": KindAlias("content_includes"),
    "contains_any": KindAlias("content_includes_any"),
    "content_not_includes": KindAlias("content_excludes"),
    "guardrail": KindAlias(WRAPPER),
    "json_valid": KindAlias("is_valid_json"),
    "length": KindAlias("max_length"),
    "llm_judge_conversation": KindAlias("llm_judge_session", whole=True),
    "max_sentences": KindAlias("sentence_count"),
    "regex": KindAlias("content_matches"),
    "required_fields": KindAlias("field_presence"),
    "tool_args_excluded_session": KindAlias("tool_args_excluded", whole=True),
    "tool_args_session": KindAlias("tool_args", whole=True),
    "tool_called": KindAlias("tools_called"),
    "tools_called_session": KindAlias("tools_called", whole=True),
    "tools_not_called_session": KindAlias("tools_not_called", whole=True),
    "tools_not_called_with_args": KindAlias("tool_args_excluded", whole=True),
    "valid_json": KindAlias("is_valid_json"),
}
"""Alias of a type -> the type, and what else the alias implies."""

_TOOL: Final = {"tool_name": "tool"}
_TOOL_NAME: Final = {"tool": "tool_name"}
_TOOL_NAMES: Final = {"tools": "tool_names", "tool_name": "tool_names", "tool": "tool_names"}
_TOOLS: Final = {"tool_names": "tools", "tool_name": "tools", "tool": "tools"}

SPELLINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "content_excludes": {"words": "patterns"},
    "field_presence": {"required_fields": "fields"},
    "invariant_fields_preserved": _TOOL,
    "json_path": {"jmespath_expression": "expression"},
    "llm_judge_tool_calls": _TOOLS,
    "max_length": {"max_characters": "max", "max_chars": "max"},
    "min_length": {"min_characters": "min", "min_chars": "min"},
    "no_tool_errors": _TOOLS,
    "sentence_count": {"max_sentences": "max"},
    "tool_args": _TOOL_NAME,
    "tool_args_excluded": _TOOL_NAME,
    "tool_call_count": _TOOL,
    "tool_calls_with_args": _TOOL_NAME,
    "tool_exec": _TOOL,
    "tool_no_repeat": _TOOLS,
    "tool_result_has_media": _TOOL,
    "tool_result_includes": _TOOL,
    "tool_result_matches": _TOOL,
    "tool_result_media_type": {**_TOOL, "media_type": "mime_type"},
    "tools_called": _TOOL_NAMES,
    "tools_not_called": _TOOL_NAMES,
    "guardrail_triggered": {"validator": "validator_type"},
}
"""Type -> alias of a parameter -> its canonical name."""


GUARDING: Final = SPEAKING - {"guardrail_triggered", "llm_judge", "llm_judge_session"}
"""Types that are allowed for guardrails: they check one text without a model and without the conversation."""


@cache
def assertion_kinds() -> Mapping[str, dict[str, Any]]:
    """Canonical name of each type -> self-contained JSON Schema of its parameters. Do not modify the result."""
    text = files(__package__).joinpath("assertion_kinds.json").read_text(encoding="utf-8")
    written = json.loads(text)
    closed = {"type": "object", "additionalProperties": False, "$defs": written["$defs"]}
    # Each schema gets all definitions: a validator for one type must not depend on the others.
    return {name: {**schema, **closed} for name, schema in written["kinds"].items()}


def takes_text_list(schema: Mapping[str, Any], key: str) -> bool:
    """Whether a parameter of a type is a list of texts."""
    entry: dict[str, Any] = schema["properties"].get(key, {})
    described: dict[str, Any] = schema["$defs"].get(entry.get("$ref", "").removeprefix("#/$defs/"), entry)
    items: dict[str, Any] = described.get("items", {})
    return bool(described.get("type") == "array" and items.get("type") == "string")


_GUARDRAIL_KEYS: Final = ("type", "params", "message", "unsupported")
"""Keys of an assertion that a guardrail can have; `rewrite` is its own."""

_ALL_TYPES: Final = "see the types in `docs/reference/assertions.md`"

_BESIDE: Final = ("message", "scope")
"""Keys that may also be written within `params`."""

Check: TypeAlias = Callable[[Mapping[str, Any], str, Mapping[str, str]], Iterator[Problem]]
"""Returns the problems of parameters that match their schema, given their pointer and canonical name -> written name."""


def check_assertions(
    entries: Any, pointer: str, problems: list[Problem], *, whole: bool = False
) -> tuple[Assertion, ...]:
    """Parse a list of assertions; invalid ones are omitted.

    Types and parameters get their canonical names, and a single text becomes a list if a list is required.

    Args:
        entries: The list, as written.
        pointer: JSON Pointer of the list.
        problems: Receives the problems.
        whole: Whether all of them apply to the whole conversation.
    """
    return _checked(
        entries,
        pointer,
        problems,
        AssertionChecker(problems, assertion_entry_schema(), assertion_kinds(), whole=whole),
    )


def check_guardrails(entries: Any, pointer: str, problems: list[Problem]) -> tuple[Assertion, ...]:
    """Like `check_assertions`, for the guardrails of a prompt: `{type, params}` with a type that checks texts."""
    known = {
        name: schema for name, schema in assertion_kinds().items() if name in GUARDING or name == WRAPPER
    }
    return _checked(
        entries, pointer, problems, AssertionChecker(problems, guardrail_entry_schema(), known, whole=False)
    )


def compile_guardrails(guardrails: Iterable[Guardrail]) -> tuple[GuardrailCheck, ...]:
    """Compile the guardrails of a prompt or an agent."""
    return tuple(map(_compile_guardrail, guardrails))


def _compile_guardrail(guard: Guardrail) -> GuardrailCheck:
    names = _names_of(guard.type) | _names_of(guard.params.get("eval_type"))
    if guard.unsupported:
        return GuardrailCheck(guard.type, names, guard.message, guard.unsupported)
    problems: list[Problem] = []
    found = check_guardrails([{"type": guard.type, "params": {**guard.params}}], "", problems)
    if problems:
        return GuardrailCheck(guard.type, names, guard.message, fault=problems[0].message)
    return GuardrailCheck(guard.type, names, guard.message, assertion=found[0], rewrite=guard.rewrite)


def _names_of(kind: JSON) -> frozenset[str]:
    """All names of a type."""
    if not isinstance(kind, str):
        return frozenset()
    own = ALIASES[kind].kind if kind in ALIASES else kind
    return frozenset((own, *(name for name, alias in ALIASES.items() if alias.kind == own)))


@cache
def assertion_entry_schema() -> dict[str, Any]:
    """JSON Schema of an assertion without its `params`. Do not modify the result."""
    form: dict[str, Any] = part_schema("agent")["$defs"]["assertion"]
    return form


@cache
def guardrail_entry_schema() -> dict[str, Any]:
    """JSON Schema of a guardrail without its `params`. Do not modify the result."""
    form = assertion_entry_schema()
    own = {key: form["properties"][key] for key in _GUARDRAIL_KEYS}
    rewrite: dict[str, Any] = part_schema("agent")["$defs"]["agent_guardrail"]["properties"]["rewrite"]
    return {**form, "properties": {**own, "rewrite": rewrite}}


def _checked(
    entries: Any, pointer: str, problems: list[Problem], checker: AssertionChecker
) -> tuple[Assertion, ...]:
    if not isinstance(entries, list):
        message = f"expected a list of assertions, got {type(entries).__name__}"
        problems.append(Problem(code="wrong_type", message=message, pointer=pointer))
        return ()
    found = [checker.assertion(entry, f"{pointer}/{index}") for index, entry in enumerate(entries)]
    return tuple(assertion for assertion in found if assertion is not None)


class AssertionChecker:
    """Checks the entries of one list.

    Args:
        problems: Receives the problems.
        form: JSON Schema of an entry.
        known: The allowed types.
        whole: Whether all entries apply to the whole conversation.
    """

    def __init__(
        self,
        problems: list[Problem],
        form: dict[str, Any],
        known: Mapping[str, dict[str, Any]],
        *,
        whole: bool,
    ) -> None:
        self._problems = problems
        self._form = form
        self._known = known
        self._whole = whole

    def assertion(self, entry: Any, pointer: str) -> Assertion | None:
        """Parse one entry; None if it is invalid."""
        before = len(self._problems)
        self._fits(self._form, entry, pointer)
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            return None
        params = entry.get("params") or {}
        if not isinstance(params, dict):
            return None
        # A type of another system that has no equivalent here: its parameters cannot be checked.
        if isinstance(entry.get("unsupported"), str):
            return Assertion(type=entry["type"], unsupported=entry["unsupported"], pointer=pointer)
        entry = self._with_what_stands_in_params(entry, params, pointer)
        inner = {key: value for key, value in params.items() if key not in _BESIDE}
        alias, settled = self._kind(entry["type"], inner, pointer, "type", "params")
        self._when(entry.get("when") or {}, f"{pointer}/when")
        if len(self._problems) > before:
            return None
        whole = self._whole or alias.whole or entry.get("scope") == "conversation"
        return Assertion(
            type=alias.kind,
            params=settled,
            message=entry.get("message", ""),
            when=entry.get("when") or NOTHING,
            pass_threshold=entry.get("pass_threshold"),
            scope="conversation" if whole else "turn",
            pointer=pointer,
        )

    def _with_what_stands_in_params(
        self, entry: dict[str, Any], params: dict[str, Any], pointer: str
    ) -> dict[str, Any]:
        """The entry with `message` and `scope` moved out of `params`."""
        found: dict[str, Any] = {key: params[key] for key in _BESIDE if key in params}
        for key in found.keys() & entry.keys():
            message = f"`{key}` is set both in `params` and next to it"
            self._add_fault("wrong_combination", message, f"{pointer}/params/{key}", "remove one of them")
        known = self._form["properties"]
        for key in found.keys() - known.keys():
            self._add_fault("unknown_key", f"unknown key `{key}`", f"{pointer}/params/{key}")
        form = {"type": "object", "properties": {key: known[key] for key in found.keys() & known.keys()}}
        self._fits(form, found, f"{pointer}/params")
        return {**found, **entry}

    def _kind(
        self, name: str, params: dict[str, Any], pointer: str, key: str, holder: str
    ) -> tuple[KindAlias, dict[str, Any]]:
        """Resolve a type and its parameters; `key` is the key of the type, `holder` that of the parameters."""
        # Types that end with `_session` examine the whole conversation in the systems that they come from.
        alias = ALIASES.get(name) or KindAlias(name, whole=name.endswith("_session"))
        known = {*self._known, *(other for other, meant in ALIASES.items() if meant.kind in self._known)}
        if alias.kind not in self._known:
            hint = did_you_mean(name, known) or _ALL_TYPES
            self._add_fault("unknown_assertion", f"unknown assertion type `{name}`", f"{pointer}/{key}", hint)
            return alias, {}
        place = f"{pointer}/{holder}"
        schema = assertion_kinds()[alias.kind]
        settled, spelt = self._settled(alias, schema, params, place)
        faults = _validator(alias.kind).faults(settled)
        self._problems += [_as_written(fault, alias.kind, spelt, place) for fault in faults]
        # The further checks rely on the schema, so they see only parameters that match it.
        sound = _without(settled, faults)
        if alias.kind in _CHECKS and sound.keys() >= {*schema.get("required", ())}:
            self._problems += _CHECKS[alias.kind](sound, place, spelt)
        if alias.kind == WRAPPER and "eval_type" in sound:
            return self._wrapped(alias, sound, place)
        return alias, settled

    def _settled(
        self, alias: KindAlias, schema: Mapping[str, Any], params: dict[str, Any], place: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Parameters by canonical names, and canonical name -> written name."""
        spellings = SPELLINGS.get(alias.kind, {})
        settled: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        for written, value in params.items():
            key = written if written in schema["properties"] else spellings.get(written, written)
            if key in settled:
                message = f"`{written}` and `{spelt[key]}` are the same key"
                self._add_fault("wrong_combination", message, f"{place}/{written}", "remove one of them")
                continue
            single = isinstance(value, str) and takes_text_list(schema, key)
            settled[key], spelt[key] = ([value] if single else value), written
        return {**alias.params, **settled}, spelt

    def _wrapped(
        self, alias: KindAlias, settled: dict[str, Any], place: str
    ) -> tuple[KindAlias, dict[str, Any]]:
        """Resolve the assertion within a wrapper, too."""
        held, params = self._kind(
            settled["eval_type"], settled.get("eval_params", {}), place, "eval_type", "eval_params"
        )
        whole = {**settled, "eval_type": held.kind, "eval_params": params}
        return alias._replace(whole=alias.whole or held.whole), whole

    def _when(self, when: Any, place: str) -> None:
        pattern = when.get("tool_called_pattern") if isinstance(when, dict) else None
        if isinstance(pattern, str):
            self._problems += check_pattern(pattern, f"{place}/tool_called_pattern")

    def _fits(self, schema: dict[str, Any], value: Any, pointer: str) -> None:
        for fault in Validator(schema).faults(value):
            problem = problem_of(fault)
            self._problems.append(problem._replace(pointer=pointer + problem.pointer))

    def _add_fault(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        self._problems.append(Problem(code=code, message=message, pointer=pointer, hint=hint))


@cache
def _validator(kind: str) -> Validator:
    return Validator(assertion_kinds()[kind])


def _without(params: Mapping[str, Any], faults: Iterable[Violation]) -> dict[str, Any]:
    """The parameters without violations."""
    faulty = {fault.path[0] for fault in faults if fault.path}
    return {key: value for key, value in params.items() if key not in faulty}


def _as_written(fault: Violation, kind: str, spelt: Mapping[str, str], place: str) -> Problem:
    """Convert a violation of resolved parameters into a problem in terms of the written ones."""
    schema = assertion_kinds()[kind]
    any_of = [each["required"][0] for each in schema.get("anyOf", ())]
    if fault.keyword == "anyOf" or (fault.keyword == "required" and fault.path[-1] in any_of):
        needed = " or ".join(f"`{key}`" for key in any_of)
        return Problem(code="missing_key", message=f"missing {needed}", pointer=place)
    problem = problem_of(fault)
    if fault.keyword == "additionalProperties" and len(fault.path) == 1:
        names = (*schema["properties"], *SPELLINGS.get(kind, ()))
        hint = did_you_mean(str(fault.path[0]), names)
        problem = problem._replace(
            hint=hint or f"`{kind}` accepts {', '.join(f'`{name}`' for name in names)}"
        )
    path = [*fault.path]
    if path:
        path[0] = spelt.get(str(path[0]), path[0])
    return problem._replace(pointer=place + pointer_to(path))


def check_pattern(pattern: str, pointer: str) -> list[Problem]:
    """The problems of a regular expression."""
    faults: list[Problem] = []
    compile_matcher({"$regex": pattern}, faults)
    return [fault._replace(pointer=pointer) for fault in faults]


def _conditions(step: Mapping[str, Any], place: str, spelt: Mapping[str, str]) -> Iterator[Problem]:
    """Check the regular expressions in conditions on a call."""
    for name, pattern in step.get("args_match", {}).items():
        yield from check_pattern(pattern, place + pointer_to(["args_match", name]))
    yield from _patterns("result_matches")(step, place, spelt)


def _patterns(*keys: str) -> Check:
    def check(params: Mapping[str, Any], place: str, spelt: Mapping[str, str]) -> Iterator[Problem]:
        for key in keys:
            if key in params:
                yield from check_pattern(params[key], f"{place}/{spelt.get(key, key)}")

    return check


def _steps(params: Mapping[str, Any], place: str, _spelt: Mapping[str, str]) -> Iterator[Problem]:
    for index, step in enumerate(params["steps"]):
        yield from _conditions(step, f"{place}/steps/{index}", {})


def _schema(params: Mapping[str, Any], place: str, _spelt: Mapping[str, str]) -> Iterator[Problem]:
    yield from check_schema(params["schema"], f"{place}/schema")


def _expression(params: Mapping[str, Any], place: str, spelt: Mapping[str, str]) -> Iterator[Problem]:
    found: list[Problem] = []
    compile_select(params["expression"], f"{place}/{spelt['expression']}", found)
    yield from found
    yield from _bounds("min_results", "max_results")(params, place, spelt)
    yield from _bounds("min", "max")(params, place, spelt)


def _bounds(least: str, most: str) -> Check:
    def check(params: Mapping[str, Any], place: str, spelt: Mapping[str, str]) -> Iterator[Problem]:
        if least in params and most in params and params[least] > params[most]:
            message = f"`{least}` is {params[least]}, greater than `{most}`, which is {params[most]}"
            pointer = f"{place}/{spelt.get(most, most)}"
            yield Problem(code="contradiction", message=message, pointer=pointer, hint="swap them")

    return check


def _needs(chooser: str, needed: Mapping[str, str]) -> Check:
    """A check that the value of one parameter requires another one, and that those of other values are absent."""

    def check(params: Mapping[str, Any], place: str, spelt: Mapping[str, str]) -> Iterator[Problem]:
        chosen = params[chooser]
        if needed[chosen] not in params:
            message = f"missing `{needed[chosen]}`: `{chooser}: {chosen}` requires it"
            yield Problem(code="missing_key", message=message, pointer=f"{place}/{needed[chosen]}")
        idle = {other: value for value, other in needed.items() if value != chosen}
        for key in sorted(idle.keys() & params.keys()):
            message = f"`{key}` has no effect: it applies only with `{chooser}: {idle[key]}`"
            pointer = f"{place}/{spelt.get(key, key)}"
            yield Problem(code="wrong_combination", message=message, pointer=pointer, hint="remove it")

    return check


def _guardrail(params: Mapping[str, Any], place: str, spelt: Mapping[str, str]) -> Iterator[Problem]:
    name = params["validator_type"]
    known = {*GUARDING, *(other for other, meant in ALIASES.items() if meant.kind in GUARDING)}
    if name not in known:
        hint = did_you_mean(name, known) or _ALL_TYPES
        pointer = f"{place}/{spelt['validator_type']}"
        message = f"unknown guardrail type `{name}`"
        yield Problem(code="unknown_assertion", message=message, pointer=pointer, hint=hint)


_CHECKS: Final[Mapping[str, Check]] = {
    "assertion": _bounds("min_score", "max_score"),
    "content_matches": _patterns("pattern"),
    "directional": _needs(
        "check",
        {
            "same_tool_calls": "baseline_tools",
            "same_outcome": "baseline_state",
            "similar_content": "baseline_content",
        },
    ),
    "guardrail_triggered": _guardrail,
    "json_path": _expression,
    "json_schema": _schema,
    "outcome_equivalent": _needs(
        "metric",
        {
            "tool_calls": "expected_tools",
            "final_state": "expected_state",
            "content_hash": "expected_content",
        },
    ),
    "sentence_count": _bounds("min", "max"),
    "tool_call_chain": _steps,
    "tool_call_count": _bounds("min", "max"),
    "tool_calls_with_args": _conditions,
    "tool_exec": _patterns("success_pattern", "failure_pattern"),
    "tool_result_matches": _patterns("pattern"),
    "tools_called": _bounds("min_calls", "max_calls"),
}
"""Checks of parameters that a schema cannot express."""
