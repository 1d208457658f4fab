"""Checks of `toolcrib validate` beyond loading: test mocks by calling them, and check schemas with jsonschema.

A mock is called with generated arguments, with its examples, with arguments that match each rule, and with arguments
that hit rows of its store; the last ones also after a call that changed the store. Every reported problem is the
result of a real call, so there are no false alarms; replies that no call reaches are not tested. Keys of rows are
compared with those that rows have and effects write.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from toolcrib.executors.mock.transaction import effect_failure
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
"""Number of arguments that are generated from an input schema."""

FITTED = 2
"""Number of them that are adapted to each rule, in addition to the first example."""

MOST_CALLS = 8
"""Maximum number of calls with the same arguments in one session, to reach later replies of a list."""

MOST_WATCHED = 200
"""Maximum number of calls of one mock whose look-ups in the store are observed."""

MOST_WATCHED_AFTER = 40
"""The same for a store that another call has changed."""

TRIED_AFTER = 4
"""Number of arguments that are tried there in addition to those that hit rows."""

MOST_ACTS = 6
"""Maximum number of store-changing calls per pack after which other mocks are tested."""

MOST_PAIRS = 500
"""Maximum number of pairs of such a call and a mock that is tested after it."""

SHOWN = 200
"""Maximum bytes of the arguments in a problem."""


class _Act(NamedTuple):
    """A call that changed the store.

    Attributes:
        tool: The tool that was called.
        arguments: Its arguments.
        version: The store after the call.
    """

    tool: Descriptor
    arguments: dict[str, Any]
    version: StoreVersion

    def concerns(self, tool: Descriptor) -> bool:
        """Whether the store of a tool contains something that the call changed."""
        changed = {*self.version.rows, *self.version.states}
        return not changed.isdisjoint(tool.fixture.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mock:
    """A mock to test.

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
    """Find problems that only calls of the mocks, or a second validator, can reveal.

    Returns:
        Placed problems: `reply_breaks_schema` and `reply_fails` for a computed reply of a mock, `unknown_row_key` for
        a key that no row has, `not_proved` for a mock without arguments to try, `second_opinion` for a schema that
        jsonschema rejects.
    """
    problems = await _Proof(runtime).problems()
    for tool in runtime.registry.values():
        problems += check_with_jsonschema(tool)
    return [problem for problem in problems if not _is_known(problem, runtime.problems)]


def _is_known(problem: Problem, known: Sequence[Problem]) -> bool:
    """Whether loading has reported the same problem for a fixed reply."""
    return problem.code == "reply_breaks_schema" and any(
        other.code == "result_breaks_schema"
        and other.source == problem.source
        and other.pointer.startswith(problem.pointer)
        for other in known
    )


def _mocks(runtime: Runtime) -> Iterator[_Mock]:
    for tool in runtime.registry.values():
        if "mock" in tool.bindings:
            # The mock is tested even if another mode is active.
            yield _Mock(tool=tool._replace(mode="mock"), place="/mock")
    for scenario in runtime.scenarios:
        seen = with_inherited_state(scenario, runtime.registry, [])
        for name in scenario.mocks:
            place = f"/mocks/{pointer_step(name)}"
            yield _Mock(tool=with_mock(runtime.registry[name], seen), place=place)


class _Proof:
    """Tests the mocks of a runtime by calling them."""

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
        """Test each mock on its own, and after calls that change the store."""
        found = [*self._misplaced()]
        found += [problem for mock in self._mocks for problem in await self._prove(mock)]
        # A reply that already fails on its own is not reported again for a changed store.
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
        """Problems of scenarios that expect a key which no row has and no effect writes."""
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
            message = f"cannot test the mock of `{mock.tool.name}`, since no arguments could be generated: {error.message}"
            hint = "add `examples` to the tool"
            tried = []
            found[""] = mock.problem("not_proved", message, "/mock", hint=hint, severity="notice")
        runtime = self._only([mock.tool])
        hits = await self._hits(mock, tried, FRESH, MOST_WATCHED)
        for arguments in (*tried, *hits, *_without_optional(mock.tool, hits)):
            for problem in await self._judge(runtime, mock, arguments):
                found.setdefault(problem.pointer, problem)
        for problem in self._unknown_keys(mock, guessed=True):
            found.setdefault(problem.pointer, problem)
        return list(found.values())

    async def _prove_after(self, act: _Act, mock: _Mock, runtime: Runtime) -> list[Problem]:
        try:
            tried = _arguments(mock)[:TRIED_AFTER]
        except ExpressionError:
            return []  # reported by `_prove`
        hits = await self._hits(mock, tried, act.version, MOST_WATCHED_AFTER)
        return [
            problem
            for arguments in (*tried, *hits)
            for problem in await self._judge(runtime, mock, arguments, act)
        ]

    def _unknown_keys(self, mock: _Mock, *, guessed: bool) -> Iterator[Problem]:
        """Problems of keys that a mock reads or writes through although no row has them and no effect writes them.

        A notice if the absence of the key is only inferred.
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
                message += "; this is inferred from rows and effects, and rows may have other keys"
                severity = "notice"
            hint = told.hint or "add it to the rows, or to the `schema` of their collection"
            yield mock.problem(told.code, message, told.pointer, hint=hint, severity=severity)

    async def _hits(
        self, mock: _Mock, tried: Sequence[dict[str, Any]], version: StoreVersion, most: int
    ) -> list[dict[str, Any]]:
        """Find arguments that hit rows of a version of the mock's store."""
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
        """Call the mock in a fresh session, once for each consecutive reply, and check the results."""
        # On virtual time, the latency of the mock does not slow down validation.
        session = runtime.session(id="proof", clock=VirtualClock())
        if before is not None:
            await session.call(before.tool.name, before.arguments)
        results = [await session.call(mock.tool.name, arguments) for _ in range(_calls(mock.block))]
        store = store_of(session)
        store.settle(datetime.max.replace(tzinfo=UTC))  # delayed effects are tested, too
        version = store.version
        # A mock of a scenario exists only there, so its changes concern no other tool.
        if before is None and mock.place == "/mock" and version is not FRESH:
            self._note(_Act(mock.tool, arguments, version))
        results += [
            effect_failure(failed) for failed in store.failed if failed.effect.tool.name == mock.tool.name
        ]
        problems = (_problem(mock, arguments, result, before) for result in results)
        return [problem for problem in problems if problem is not None]

    def _note(self, act: _Act) -> None:
        """Keep a call after which a row has a new shape, or a machine is in a new state."""
        # The limit is per pack, so that one pack does not use up the calls of all.
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
        """A runtime with only these tools, without middleware and settings."""
        engine = engine_of(self._runtime)
        return runtime_on(Engine(Registry(tools), executors=engine.executors, trust=engine.trust))


def _arguments(mock: _Mock) -> list[dict[str, Any]]:
    """The arguments to try: from the examples, generated, and adapted to each rule.

    Raises:
        ExpressionError: No arguments can be generated, and there are no examples.
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
    # Arguments for a rule start from valid ones, so that only the parts in its pattern differ.
    start = [*made[:FITTED], *examples[:1]]
    patterns = [
        rule["when"]["args"] for rule in mock.block.get("rules", ()) if "args" in rule.get("when", {})
    ]
    fitted = [overlay(arguments, example_value(pattern)) for pattern in patterns for arguments in start]
    return [*examples, *made, *(arguments for arguments in fitted if isinstance(arguments, dict))]


def _without_optional(tool: Descriptor, hits: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The arguments that hit rows, without those that a call may omit: a mock often reads them only once it has found its rows."""
    required: Any = tool.input_schema.get("required", ()) if isinstance(tool.input_schema, dict) else ()
    for arguments in hits:
        fewer = {name: value for name, value in arguments.items() if name in required}
        if fewer != arguments and fewer not in hits:
            yield fewer


def _of_objects(schema: Schema) -> Schema:
    """Add `type: object` to a schema of arguments that omits it."""
    return {"type": "object", **schema} if isinstance(schema, dict) else schema


def _calls(block: Mapping[str, Any]) -> int:
    """Number of consecutive calls that may have different replies; the maximum for a rule on the call number."""
    rules = block.get("rules", ())
    # Such a rule may match the n-th call only, and n is not known without evaluating the matcher.
    if any("call" in rule.get("when", {}) for rule in rules):
        return MOST_CALLS
    lists: list[list[dict[str, int]]] = [
        block.get("sequence", []),
        *(_as_list(rule["reply"]) for rule in rules),
        _as_list(block),
    ]
    return min(MOST_CALLS, 1 + max(sum(reply.get("times", 1) for reply in replies) for replies in lists))


def _as_list(reply: Any) -> list[Any]:
    """The replies of a rule as a list; empty for a reply without `times`, which never changes."""
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
        return None  # an injected fault is meant to break the result
    # The first line only states that the result is invalid.
    faults = result.message.splitlines()[1:]
    if result.outcome is not Outcome.INVALID_RESULT:
        faults = [str(warning) for warning in result.meta.get("warnings", ())]
    if not faults:
        return None
    severity = "error" if result.outcome is Outcome.INVALID_RESULT else "warning"
    message = f"{told}, the result does not match `output_schema`: {'; '.join(faults)}"
    hint = "change the reply or the schema"
    return mock.problem(
        "reply_breaks_schema", message, _reply_pointer(mock.block, result), hint=hint, severity=severity
    )


def _shown(tool: Descriptor, arguments: dict[str, Any]) -> str:
    return truncate(compact(redact(arguments, tool.input_schema)), SHOWN)


def _rows_are_lost(tool: Descriptor, result: Result) -> bool:
    """Whether a call failed because of invalid rows, which loading has reported at the rows."""
    faults = [collection.fault for collection in tool.fixture.collections.values() if collection.fault]
    return any(fault in result.message for fault in faults)


def _reply_pointer(block: Mapping[str, Any], result: Result) -> str:
    """Pointer of the reply that produced a result."""
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
    """Return a value that a matcher accepts, or a similar one if none is easy to find.

    Members of an object without an easy value are omitted.
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
    """Whether a matcher consists only of operators that contain no value."""
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
    """Yield problems of schemas that loading accepted but jsonschema rejects."""
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
            message=f"jsonschema rejects this schema: {truncate(fault.message, SHOWN)}",
            pointer=pointer,
            hint="other programs may reject it, too",
            severity="warning",
            source=tool.origin.file_of(pointer),
            line=line or tool.origin.line,
            column=column or 1,
        )


_NO_FORMATS = jsonschema.FormatChecker(formats=())
"""No format checks: loading checks patterns as ECMAScript, while jsonschema would read them as Python's."""


def _jsonschema_fault(schema: Schema) -> jsonschema.SchemaError | None:
    # jsonschema is what most Python programs that receive the schema would validate with.
    judge: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        judge.check_schema(schema, format_checker=_NO_FORMATS)
    except jsonschema.SchemaError as error:
        return error
    return None
