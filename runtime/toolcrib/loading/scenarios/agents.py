"""Compile the `agent:` block of a scenario: provider, scripts, turns and assertions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from toolcrib.core.errors import DocumentError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.pointers import pointer_step
from toolcrib.core.schemas import envelope, without_loader_checks
from toolcrib.core.text import compact
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.matchers import Matcher, compile_matcher, find_impossible
from toolcrib.loading.document_checks import problem_of
from toolcrib.loading.scenarios.expectations import Names
from toolcrib.loading.scenarios.model import (
    NO_PROVIDER,
    AgentReply,
    AgentTurn,
    Assertion,
    ScenarioAgent,
    ScriptedCall,
)
from toolcrib.schema.validation import Validator
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy

SEEN = ("user", "results", "turn")
"""Names that expressions of a script can read in addition to those of the scenario: the last text of the user, a
mapping from tools to the last value returned to the model, and the number of messages from the user."""


def parse_agent(entry: Mapping[str, Any], names: Names, problems: list[Problem]) -> ScenarioAgent:
    """Compile the `agent:` block of a scenario.

    Args:
        entry: The block; its schema has accepted it.
        names: Names that its expressions can read: those of all steps, and the values that steps saved.
        problems: Receives the problems of the block.
    """
    reader = _Reader({**names, **dict.fromkeys(SEEN)}, problems)
    place = "/agent"
    problems += _idle_variables(entry)
    problems += _keys(entry)
    told = {key: entry[key] for key in _AS_WRITTEN if key in entry}
    return ScenarioAgent(
        **told,
        variables=reader.renderings(entry, "variables", place),
        system=reader.rendering(entry, "system", place),
        policy=_policy(entry, problems),
        policy_keys=frozenset(entry.get("policy", {})),
        client=reader.client(entry, place),
        script=reader.script(entry, place),
        turns=tuple(
            reader.turn(turn, f"{place}/turns/{index}") for index, turn in enumerate(entry.get("turns", ()))
        ),
        guardrails=_guardrails(entry, problems),
        assertions=reader.assertions(entry, place, whole=True),
    )


_AS_WRITTEN = frozenset(
    (
        *("provider", "model", "base_url", "api_key", "settings", "prices", "prompt", "judge"),
        *("unused_turns", "unknown_tools"),
    )
)
"""Keys of an agent whose values are used as written in the document."""


def parse_script(
    entries: Sequence[Mapping[str, Any]], pointer: str, names: Names, problems: list[Problem]
) -> tuple[AgentReply, ...]:
    """Compile the replies of a scripted model.

    Args:
        entries: The replies; their schema has accepted them.
        pointer: JSON Pointer of the list.
        names: Names that their expressions can read, in addition to `user`, `results` and `turn`.
        problems: Receives the problems of the replies.
    """
    reader = _Reader({**names, **dict.fromkeys(SEEN)}, problems)
    return tuple(reader.reply(entry, f"{pointer}/{index}") for index, entry in enumerate(entries))


def _idle_variables(entry: Mapping[str, Any]) -> Iterator[Problem]:
    # Variables fill in the text of a prompt. `system` replaces that text, so they would be ignored silently.
    if "variables" not in entry or ("prompt" in entry and "system" not in entry):
        return
    message = "these variables are not used: " + (
        "`system` replaces the prompt's text" if "system" in entry else "there is no `prompt`"
    )
    hint = "remove them, or let a `prompt` instruct the model"
    yield Problem(code="contradiction", message=message, pointer="/agent/variables", hint=hint)


def _keys(entry: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of API keys."""
    for holder, pointer in ((entry, "/agent/api_key"), (entry.get("judge", {}), "/agent/judge/api_key")):
        if "api_key" not in holder:
            continue
        # Deferred: most agents have no API key.
        from toolcrib.security.secrets import check_variables  # noqa: PLC0415

        yield from check_variables(holder["api_key"], pointer)
        # Scenarios are committed: a literal key ends up in the history of the repository.
        if "${" not in holder["api_key"]:
            message = "the API key is in plain text in the document"
            hint = "put it in the environment and write `api_key: ${MY_KEY}`"
            yield Problem(
                code="literal_secret", message=message, pointer=pointer, hint=hint, severity="warning"
            )


def _policy(entry: Mapping[str, Any], problems: list[Problem]) -> ToolPolicy:
    if "policy" not in entry:
        return NO_POLICY
    # Deferred: most agents have no policy.
    from toolcrib.loading.prompts import parse_policy  # noqa: PLC0415

    return parse_policy(entry["policy"], "/agent/policy", problems)


def _guardrails(entry: Mapping[str, Any], problems: list[Problem]) -> tuple[Mapping[str, Any], ...]:
    if "guardrails" not in entry:
        return ()
    # Deferred: most agents have no guardrails.
    from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415

    check_guardrails(entry["guardrails"], "/agent/guardrails", problems)
    return tuple(entry["guardrails"])


class _Reader:
    """Compiles the parts of an agent.

    Args:
        names: Names that their expressions can read.
        problems: Receives their problems.
    """

    def __init__(self, names: Names, problems: list[Problem]) -> None:
        self._names = names
        self._problems = problems

    def turn(self, entry: Mapping[str, Any], pointer: str) -> AgentTurn:
        """Compile a turn and its script."""
        return AgentTurn(
            user=self.rendering(entry, "user", pointer),
            answers=self.renderings(entry, "answers", pointer),
            script=self.script(entry, pointer),
            client=self.client(entry, pointer),
            assertions=self.assertions(entry, pointer),
            pointer=pointer,
        )

    def script(self, entry: Mapping[str, Any], pointer: str) -> tuple[AgentReply, ...]:
        """Compile the replies under `script`."""
        replies = entry.get("script", ())
        return tuple(self.reply(reply, f"{pointer}/script/{index}") for index, reply in enumerate(replies))

    def reply(self, entry: Mapping[str, Any], pointer: str) -> AgentReply:
        """Compile a reply, and report one without text and calls, or with both `call` and `calls`."""
        self._problems += _contradictions(entry, pointer)
        # Both forms are compiled even if both are given, so that the problems of each are reported.
        alone = [(entry, pointer)] if "call" in entry else []
        several = [(call, f"{pointer}/calls/{index}") for index, call in enumerate(entry.get("calls", ()))]
        return AgentReply(
            when={key: self._when(key, pattern, pointer) for key, pattern in entry.get("when", {}).items()},
            reasoning=self.rendering(entry, "reasoning", pointer),
            say=self.rendering(entry, "say", pointer),
            calls=tuple(self._call(call, place) for call, place in alone + several),
            finish=entry.get("finish", ""),
            times=entry.get("times", 1),
            optional=entry.get("optional", False),
            pointer=pointer,
        )

    def _call(self, entry: Mapping[str, Any], pointer: str) -> ScriptedCall:
        expected = None
        if "expect_result" in entry:
            place = f"{pointer}/expect_result"
            expected = compile_matcher(entry["expect_result"], self._problems, place, names=self._names)
        return ScriptedCall(
            tool=entry["call"],
            args=compile_value(entry.get("args", {}), self._names, self._problems, f"{pointer}/args"),
            id=entry.get("id", ""),
            expect_result=expected,
            pointer=pointer,
        )

    def _when(self, key: str, pattern: JSON, pointer: str) -> Matcher:
        place = f"{pointer}/when/{key}"
        faults: list[Problem] = []
        matcher = compile_matcher(pattern, faults, place, names=self._names)
        schema, words = _SEEN[key]
        # A condition that never matches makes the reply dead: the script would stall at run time without a reason.
        if not faults and find_impossible(pattern, schema):
            message = f"{words}, so it is never {compact(pattern)}"
            faults.append(Problem(code="never_matches", message=message, pointer=place))
        self._problems += faults
        return matcher

    def rendering(self, entry: Mapping[str, Any], key: str, pointer: str) -> Rendering | None:
        """Compile the value of a key; None if the key is absent."""
        if key not in entry:
            return None
        return compile_value(entry[key], self._names, self._problems, f"{pointer}/{key}")

    def renderings(
        self, entry: Mapping[str, Any], key: str, pointer: str, names: Names = NOTHING
    ) -> dict[str, Rendering]:
        """Compile the values of an object, which can read additional `names`."""
        known = {**self._names, **names}
        return {
            name: compile_value(value, known, self._problems, f"{pointer}/{key}/{pointer_step(name)}")
            for name, value in entry.get(key, {}).items()
        }

    def client(self, entry: Mapping[str, Any], pointer: str) -> dict[str, Rendering]:
        """Compile the client's answers to tools, which can read the arguments of the call."""
        return self.renderings(entry, "client", pointer, {"args": None})

    def assertions(
        self, entry: Mapping[str, Any], pointer: str, *, whole: bool = False
    ) -> tuple[Assertion, ...]:
        """Compile the assertions on a turn, or on the whole conversation."""
        if not entry.get("assertions"):
            return ()
        # Deferred: the module compiles many kinds of assertions, which few scenarios use.
        from toolcrib.loading.scenarios.assertions import check_assertions  # noqa: PLC0415

        return check_assertions(entry["assertions"], f"{pointer}/assertions", self._problems, whole=whole)


def check_reserved_names(steps: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """A problem for each step that saves a value under a name that scripts reserve."""
    for index, entry in enumerate(steps):
        # Calls of a parallel step save values under names, too.
        inner = [
            (f"/steps/{index}/parallel/{place}", call) for place, call in enumerate(entry.get("parallel", ()))
        ]
        for pointer, call in [(f"/steps/{index}", entry), *inner]:
            if call.get("as") in SEEN:
                message = f"`{call['as']}` is already a name that the agent's scripts can read"
                place = f"{pointer}/as"
                yield Problem(code="duplicate_name", message=message, pointer=place, hint="use another name")


_SEEN: Mapping[str, tuple[dict[str, JSON], str]] = {
    "user": ({"type": "string"}, "`user` is text"),
    "turn": ({"type": "integer", "minimum": 1}, "`turn` is a whole number of at least 1"),
    "reply": ({"type": "integer", "minimum": 1}, "`reply` is a whole number of at least 1"),
    "replies": ({"type": "integer", "minimum": 0}, "`replies` is a whole number of at least 0"),
    "results": ({"type": "object"}, "`results` is an object of values by tool"),
    "last": ({"type": "object"}, "`last` is an object `{tool, outcome, code, value, text}`"),
}
"""What a reply's `when` can match: its JSON Schema, and a description for messages."""


def _contradictions(entry: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    if not entry.keys() & {"say", "reasoning", "call", "calls"}:
        message = "a reply must have text or a call, and this one has neither"
        hint = "add `say`, `call` or `calls`; use `say: ''` for an empty reply"
        yield Problem(code="missing_key", message=message, pointer=pointer, hint=hint)
    if {"call", "calls"} <= entry.keys():
        message = "`call` and `calls` cannot be combined"
        hint = "move the call into the list"
        yield Problem(code="wrong_combination", message=message, pointer=f"{pointer}/calls", hint=hint)
    for key in ("args", "id", "expect_result"):
        if key in entry and "call" not in entry:
            message = f"`{key}` applies to a `call`, but there is none next to it"
            hint = "move it into its call"
            yield Problem(code="wrong_combination", message=message, pointer=f"{pointer}/{key}", hint=hint)


GROUP: Final = "toolcrib.providers"
"""The entry-point group in which distributions register providers."""

BUILT_IN: Final = ("anthropic", "azure_openai", "openai", "openai_responses")
"""The built-in providers of models."""

_WITHOUT_MODEL: Final = ("scripted", "direct", NO_PROVIDER)


def check_providers(agent: ScenarioAgent) -> Iterator[Problem]:
    """A problem for an unknown provider of the agent or of its judge."""
    yield from _check(agent.provider, f"{agent.pointer}/provider", (*_WITHOUT_MODEL, *BUILT_IN))
    if agent.judge:
        yield from _check(agent.judge["provider"], f"{agent.pointer}/judge/provider", BUILT_IN)


def _check(name: str, pointer: str, known: tuple[str, ...]) -> Iterator[Problem]:
    if name in known:
        return
    # Reads the metadata of every installed distribution, so only for a name that is not built in.
    installed = {entry.name for entry in entry_points(group=GROUP)}
    if name not in installed:
        names = sorted({*known, *installed})
        hint = did_you_mean(name, names) or f"known providers: {', '.join(f'`{each}`' for each in names)}"
        message = f"unknown provider `{name}`"
        yield Problem(code="unknown_provider", message=message, pointer=pointer, hint=hint)


def parse_turns(turns: Sequence[Sequence[Mapping[str, Any]]]) -> list[AgentTurn]:
    """Compile turns that consist of scripts only.

    Args:
        turns: For each message of the user, the replies as written under `script`.

    Raises:
        DocumentError: A reply is invalid.
    """
    problems = [
        problem
        for index, replies in enumerate(turns)
        for problem in _misshapen([dict(reply) for reply in replies], f"/{index}")
    ]
    if problems:
        raise DocumentError(problems)
    read = [
        AgentTurn(user=_SAID, script=parse_script(replies, f"/{index}", {}, problems), pointer=f"/{index}")
        for index, replies in enumerate(turns)
    ]
    if problems:
        raise DocumentError(problems)
    return read


_SAID = Rendering(constant=True, names=frozenset(), run=lambda _scope: "")
"""Placeholder for the user's message, which the caller of the model supplies."""


@cache
def _validator() -> Validator:
    # The same definitions as in scenario files, so that `turns` in Python accept exactly what documents
    # accept.
    definitions = without_loader_checks(envelope("scenario")["$defs"])
    return Validator({"type": "array", "items": {"$ref": "#/$defs/scripted_reply"}, "$defs": definitions})


def _misshapen(replies: list[JSON], pointer: str) -> Iterator[Problem]:
    for fault in _validator().faults(replies):
        yield problem_of(fault)._replace(pointer=pointer + fault.pointer)
