"""What `toolcrib validate` proves beyond loading: what mocks answer, and whether a second judge agrees.

A computed reply is proved by calling the mock: with generated arguments, with the examples, with arguments made to
fit each rule, and with arguments that hit rows of its store; the last ones also after a call that has changed the
store. Every problem of these is a call that really ends so; a reply that none of them reaches stays unproved. Keys of
rows are compared with those that rows have and effects write.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import jsonschema
from jsonschema.validators import validator_for

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Descriptor, Outcome, Result, Schema
from toolcrib.core.pointers import pointer_step, pointer_to
from toolcrib.core.text import compact, truncate
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Engine, Runtime, runtime_on
from toolcrib.formats.promptkit.foreign_descriptors import original_pointer
from toolcrib.loading.scenarios.scenario_links import locate_problem
from toolcrib.loading.scenarios.scenario_state import check_state_names, with_inherited_state, with_mock
from toolcrib.registry.registry import Registry
from toolcrib.scenarios.store_analysis import RowSchemas, StoreSamples, find_arguments, row_shapes
from toolcrib.schema.generation import KeyedRandom, arguments_for, generate, overlay
from toolcrib.security.redaction import redact
from toolcrib.simulation.store import FRESH, StoreVersion, store_of

UNKNOWN_ROW_KEY = "unknown_row_key"

GENERATED = 8
"""How many arguments are generated from an input schema."""

FITTED = 2
"""How many of them are fitted to each rule; the first example is as well."""

MOST_CALLS = 8
"""How often a mock is called with the same arguments in one session, for replies that follow each other."""

MOST_WATCHED = 200
"""Calls of one mock that are watched for what they look up in its store."""

MOST_WATCHED_AFTER = 40
"""The same, in a store that another call has changed."""

TRIED_AFTER = 4
"""Arguments that are tried there besides those that hit rows."""

MOST_ACTS = 6
"""Calls of a pack's tools that change its store before others are made."""

MOST_PAIRS = 500
"""Such calls, each with a mock that is proved after it."""

SHOWN = 200
"""Bytes of the arguments that a problem shows."""


class _Act(NamedTuple):
    """A call that changed the store.

    Attributes:
        tool: The tool that was called.
        arguments: Its arguments.
        version: The store as it was afterwards.
    """

    tool: Descriptor
    arguments: dict[str, Any]
    version: StoreVersion

    def concerns(self, tool: Descriptor) -> bool:
        """Whether a tool's store has something that was changed."""
        changed = {*self.version.rows, *self.version.states}
        return not changed.isdisjoint(each.id for part in tool.fixture for each in part.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mock:
    """A mock to prove.

    Attributes:
        tool: The tool, in mode `mock`.
        place: JSON Pointer of the block in its document.
    """

    tool: Descriptor
    place: str

    @property
    def block(self) -> dict[str, Any]:
        """The block, as written."""
        block: dict[str, Any] = self.tool.bindings["mock"]  # type: ignore[assignment]
        return block

    def problem(self, code: str, message: str, pointer: str, **more: Any) -> Problem:
        """A problem at a pointer that begins with `/mock`, placed in its document."""
        origin = self.tool.origin
        line, column = origin.locate(pointer)
        return Problem(
            code=code,
            message=message,
            pointer=original_pointer(origin, pointer)
            if self.place == "/mock"
            else self.place + pointer.removeprefix("/mock"),
            source=origin.file_of(pointer),
            line=line or origin.line,
            column=column or 1,
            **more,
        )


async def run_self_check(runtime: Runtime) -> list[Problem]:
    """What is wrong with what was loaded, as far as only calls or another judge can tell.

    Returns:
        Placed problems: `reply_breaks_schema` and `reply_fails` for a computed reply of a mock, `unknown_row_key` for
        a key that rows never have, `not_proved` for a mock without any arguments to try, `check_with_jsonschema` for a
        schema that jsonschema refuses.
    """
    problems = await _Proof(runtime).problems()
    for tool in runtime.registry.values():
        problems += check_with_jsonschema(tool)
    return [problem for problem in problems if not _is_known(problem, runtime.problems)]


def _is_known(problem: Problem, known: Sequence[Problem]) -> bool:
    """Whether loading reported the same for a fixed answer."""
    return problem.code == "reply_breaks_schema" and any(
        other.code == "result_breaks_schema"
        and other.source == problem.source
        and other.pointer.startswith(problem.pointer)
        for other in known
    )


def _mocks(runtime: Runtime) -> Iterator[_Mock]:
    for tool in runtime.registry.values():
        if "mock" in tool.bindings:
            yield _Mock(tool=tool._replace(mode="mock"), place="/mock")
    for scenario in runtime.scenarios:
        seen = with_inherited_state(scenario, runtime.registry, [])
        for name in scenario.mocks:
            place = f"/mocks/{pointer_step(name)}"
            yield _Mock(tool=with_mock(runtime.registry[name], seen), place=place)


class _Proof:
    """Calls of the mocks of a runtime, and what goes wrong in them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mocks = list(_mocks(runtime))
        self._schemas = RowSchemas(
            [mock.tool for mock in self._mocks], [each.fixture for each in runtime.scenarios]
        )
        self._samples = StoreSamples()
        self._acts: list[_Act] = []
        self._forms: set[Hashable] = set()
        self._collections: set[str] = set()

    async def problems(self) -> list[Problem]:
        """What is wrong with each mock by itself, and after a call that changes the store."""
        found = [*self._misplaced()]
        found += [problem for mock in self._mocks for problem in await self._prove(mock)]
        known = {(problem.source, problem.pointer) for problem in found}
        own = [mock for mock in self._mocks if mock.place == "/mock"]
        together = self._only([mock.tool for mock in own])
        pairs = ((act, mock) for act in self._acts for mock in own if act.concerns(mock.tool))
        for act, mock in islice(pairs, MOST_PAIRS):
            for problem in await self._prove_after(act, mock, together):
                if (place := (problem.source, problem.pointer)) not in known:
                    known.add(place)
                    found.append(problem)
        return found

    def _misplaced(self) -> Iterator[Problem]:
        """What scenarios want of rows that no row can be, because no row has the key and no effect writes it."""
        tools = {
            name: tool._replace(fixture=self._schemas.furnish(tool.fixture, guessed=False))
            for name, tool in self._runtime.registry.items()
        }
        for scenario in self._runtime.scenarios:
            seen = with_inherited_state(scenario, self._runtime.registry, [])
            closed = replace(seen, fixture=self._schemas.furnish(seen.fixture, guessed=False))
            yield from (locate_problem(problem, scenario) for problem in check_state_names(closed, tools))

    async def _prove(self, mock: _Mock) -> list[Problem]:
        found = {problem.pointer: problem for problem in self._unknown_keys(mock, guessed=False)}
        try:
            tried = _arguments(mock)
        except ExpressionError as error:
            message = f"the answers of `{mock.tool.name}` are not proved, since no arguments could be made up: {error.message}"
            hint = "give the tool `examples`"
            tried = []
            found[""] = mock.problem("not_proved", message, "/mock", hint=hint, severity="notice")
        runtime = self._only([mock.tool])
        for arguments in (*tried, *await self._hits(mock, tried, FRESH, MOST_WATCHED)):
            for problem in await self._judge(runtime, mock, arguments):
                found.setdefault(problem.pointer, problem)
        for problem in self._unknown_keys(mock, guessed=True):
            found.setdefault(problem.pointer, problem)
        return list(found.values())

    async def _prove_after(self, act: _Act, mock: _Mock, runtime: Runtime) -> list[Problem]:
        try:
            tried = _arguments(mock)[:TRIED_AFTER]
        except ExpressionError:
            return []  # it was reported before
        hits = await self._hits(mock, tried, act.version, MOST_WATCHED_AFTER)
        return [
            problem
            for arguments in (*tried, *hits)
            for problem in await self._judge(runtime, mock, arguments, act)
        ]

    def _unknown_keys(self, mock: _Mock, *, guessed: bool) -> Iterator[Problem]:
        """Keys that a mock reads of rows, or writes through, although no row has them and no effect writes them.

        A notice where they are only guessed not to be there.
        """
        if not mock.tool.fixture.collections:
            return
        fixture = self._schemas.furnish(mock.tool.fixture, guessed=guessed)
        tool = mock.tool._replace(fixture=fixture)
        for told in engine_of(self._runtime).executors.check_binding("mock", tool):
            if told.code != UNKNOWN_ROW_KEY:
                continue
            message, severity = told.message, told.severity
            if guessed:
                message += (
                    ", as far as rows and effects show; it is not checked, since rows may have other keys"
                )
                severity = "notice"
            hint = told.hint or "add it to rows, or name it in a `schema` of their collection"
            yield mock.problem(told.code, message, told.pointer, hint=hint, severity=severity)

    async def _hits(
        self, mock: _Mock, tried: Sequence[dict[str, Any]], version: StoreVersion, most: int
    ) -> list[dict[str, Any]]:
        """Arguments that hit rows of a version of the mock's store."""
        if not mock.tool.fixture.collections:
            return []
        fixture, met = self._samples.of(mock.tool.fixture, version)
        runtime = self._only([mock.tool._replace(fixture=fixture)])

        async def call(arguments: dict[str, Any]) -> Result:
            return await runtime.session(id="proof", clock=VirtualClock()).call(mock.tool.name, arguments)

        return await find_arguments(mock.tool, tried, met, call, most)

    async def _judge(
        self, runtime: Runtime, mock: _Mock, arguments: dict[str, Any], before: _Act | None = None
    ) -> list[Problem]:
        """Call the mock in a fresh session, as often as it may have answers in a row, and judge each of them."""
        session = runtime.session(id="proof", clock=VirtualClock())
        if before is not None:
            await session.call(before.tool.name, before.arguments)
        results = [await session.call(mock.tool.name, arguments) for _ in range(_calls(mock.block))]
        version = store_of(session).version
        if before is None and mock.place == "/mock" and version is not FRESH:
            self._note(_Act(mock.tool, arguments, version))
        problems = (_problem(mock, arguments, result, before) for result in results)
        return [problem for problem in problems if problem is not None]

    def _note(self, act: _Act) -> None:
        """Keep an act after which a row has a form that no row had before, or a machine is in another state."""
        pack = act.tool.origin.pack
        if sum(other.tool.origin.pack == pack for other in self._acts) == MOST_ACTS:
            return
        collections = act.tool.fixture.collections.values()
        for collection in (each for each in collections if each.id not in self._collections):
            self._collections.add(collection.id)
            self._forms |= row_shapes(collection)
        after: set[Hashable] = {*act.version.states.items()}
        after = after.union(*(row_shapes(collection, act.version) for collection in collections))
        if not after <= self._forms:
            self._forms |= after
            self._acts.append(act)

    def _only(self, tools: Sequence[Descriptor]) -> Runtime:
        """A runtime with some tools, and nothing around them."""
        engine = engine_of(self._runtime)
        return runtime_on(Engine(Registry(tools), executors=engine.executors, trust=engine.trust))


def _arguments(mock: _Mock) -> list[dict[str, Any]]:
    """The arguments to try: generated, of the examples, and fitted to each rule.

    Raises:
        ExpressionError: None can be generated, and there are no examples.
    """
    tool = mock.tool
    examples = [dict(example.args) for example in tool.examples]
    try:
        made: list[Any] = arguments_for(
            _of_objects(tool.input_schema), KeyedRandom(0, tool.name, "prove"), GENERATED
        )
    except ExpressionError:
        if not examples:
            raise
        made = []
    start = [*made[:FITTED], *examples[:1]]
    patterns = [
        rule["when"]["args"] for rule in mock.block.get("rules", ()) if "args" in rule.get("when", {})
    ]
    fitted = [overlay(arguments, example_value(pattern)) for pattern in patterns for arguments in start]
    return [*examples, *made, *(arguments for arguments in fitted if isinstance(arguments, dict))]


def _of_objects(schema: Schema) -> Schema:
    """The schema of arguments where it does not say itself that they are an object."""
    return {"type": "object", **schema} if isinstance(schema, dict) else schema


def _calls(block: Mapping[str, Any]) -> int:
    """How many calls in a row may be answered differently; a rule on the call's number gets the most."""
    rules = block.get("rules", ())
    if any("call" in rule.get("when", {}) for rule in rules):
        return MOST_CALLS
    lists: list[list[dict[str, int]]] = [
        block.get("sequence", []),
        *(_as_list(rule["reply"]) for rule in rules),
        _as_list(block),
    ]
    return min(MOST_CALLS, 1 + max(sum(reply.get("times", 1) for reply in replies) for replies in lists))


def _as_list(reply: Any) -> list[Any]:
    """The replies of a rule: one that says no `times` answers every call alike."""
    if isinstance(reply, list):
        return reply
    return [reply] if "times" in reply else []


def _problem(mock: _Mock, arguments: dict[str, Any], result: Result, before: _Act | None) -> Problem | None:
    tool = mock.tool
    told = f"called with {_shown(tool, arguments)}"
    if before is not None:
        told = f"after `{before.tool.name}` with {_shown(before.tool, before.arguments)}, {told}"
    details = result.error.details if result.error is not None else {}
    if result.outcome is Outcome.INTERNAL:
        if _rows_are_lost(tool, result):
            return None
        pointer = str(details.get("pointer", "/mock"))
        message = f"{told}: {result.message}"
        return mock.problem("reply_fails", message, pointer, hint=str(details.get("hint", "")))
    if "fault" in result.meta:
        return None  # it is meant to be broken
    faults = result.message.splitlines()[1:]
    if result.outcome is not Outcome.INVALID_RESULT:
        faults = [str(warning) for warning in result.meta.get("warnings", ())]  # type: ignore[union-attr]
    if not faults:
        return None
    severity = "error" if result.outcome is Outcome.INVALID_RESULT else "warning"
    message = f"{told}, the answer does not fit `output_schema`: {'; '.join(faults)}"
    hint = "change the answer, or the schema"
    return mock.problem(
        "reply_breaks_schema", message, _reply_pointer(mock.block, result), hint=hint, severity=severity
    )


def _shown(tool: Descriptor, arguments: dict[str, Any]) -> str:
    return truncate(compact(redact(arguments, tool.input_schema)), SHOWN)


def _rows_are_lost(tool: Descriptor, result: Result) -> bool:
    """Whether a call failed for invalid rows of the store, which loading has reported at the rows."""
    faults = [collection.fault for collection in tool.fixture.collections.values() if collection.fault]
    return any(fault in result.message for fault in faults)


def _reply_pointer(block: Mapping[str, Any], result: Result) -> str:
    """The pointer of the reply that the mock reports."""
    told = result.meta.get("mock")
    if not isinstance(told, dict):
        return "/mock"
    index = int(str(told["reply"])) - 1
    if "sequence" in block:
        return f"/mock/sequence/{index}"
    for number, rule in enumerate(block.get("rules", ())):
        if rule.get("name", f"rule {number + 1}") == told["rule"]:
            return f"/mock/rules/{number}/reply" + (f"/{index}" if isinstance(rule["reply"], list) else "")
    return "/mock"


def example_value(pattern: JSON) -> JSON:
    """A value that a matcher accepts, where one is easily found; else what comes near.

    Of an object's members those without an easy value are left out.
    """
    if isinstance(pattern, list):
        return [example_value(item) for item in pattern]
    if not isinstance(pattern, dict):
        return pattern
    members = {key: item for key, item in pattern.items() if not key.startswith("$")}
    if members or not pattern:
        return {key: example_value(item) for key, item in members.items() if not _is_open(item)}
    operator = next((operator for operator in pattern if operator in _FITTING), None)
    return None if operator is None else _FITTING[operator](pattern[operator])


def _is_open(pattern: JSON) -> bool:
    """Whether a matcher consists of operators of which none names a value."""
    return (
        isinstance(pattern, dict)
        and bool(pattern)
        and not any(key in _FITTING or not key.startswith("$") for key in pattern)
    )


def _first(patterns: Any) -> JSON:
    return example_value(patterns[0]) if patterns else None


def _made_up(schema: Schema) -> JSON:
    try:
        return generate(schema, KeyedRandom(0, "fitting"))
    except ExpressionError:
        return None


_FITTING: Mapping[str, Callable[[Any], JSON]] = {
    "$eq": lambda value: value,
    "$exact": lambda value: value,
    "$in": lambda values: values[0] if values else None,
    "$any": _first,
    "$all": _first,
    "$gt": lambda bound: bound + 1 if isinstance(bound, int | float) else bound,
    "$gte": lambda bound: bound,
    "$lt": lambda bound: bound - 1 if isinstance(bound, int | float) else bound,
    "$lte": lambda bound: bound,
    "$close": lambda pair: pair[0],
    "$contains": lambda item: item if isinstance(item, str) else [example_value(item)],
    "$schema": _made_up,
    "$regex": lambda pattern: _made_up({"type": "string", "pattern": pattern}),
}


def check_with_jsonschema(tool: Descriptor) -> Iterator[Problem]:
    """Where jsonschema refuses a schema that loading accepted: other programs may refuse it as well."""
    schemas: Sequence[tuple[str, Schema | None]] = (
        ("/input_schema", tool.input_schema),
        ("/output_schema", tool.output_schema),
    )
    for place, schema in schemas:
        fault = None if schema is None else _jsonschema_fault(schema)
        if fault is None:
            continue
        pointer = place + pointer_to(fault.absolute_path)
        line, column = tool.origin.locate(pointer)
        yield Problem(
            code="second_opinion",
            message=f"jsonschema refuses this schema: {truncate(fault.message, SHOWN)}",
            pointer=pointer,
            hint="other programs that read it may refuse it too",
            severity="warning",
            source=tool.origin.file_of(pointer),
            line=line or tool.origin.line,
            column=column or 1,
        )


_NO_FORMATS = jsonschema.FormatChecker(formats=())
"""Regular expressions are judged by loading: jsonschema would read them as Python's."""


def _jsonschema_fault(schema: Schema) -> jsonschema.SchemaError | None:
    judge: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        judge.check_schema(schema, format_checker=_NO_FORMATS)
    except jsonschema.SchemaError as error:
        return error
    return None
