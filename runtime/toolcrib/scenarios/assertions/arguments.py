"""Assertions about the arguments of calls, and about calls as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.core.model import JSON, Outcome
from toolcrib.provider.conversations import CallRecord
from toolcrib.scenarios.assertions.calls import answered, as_text, listed, made, near, of_tools, same, told
from toolcrib.scenarios.assertions.patterns import finds, stands_in
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, failed, held
from toolcrib.schema.validation.violations import count, shorten

Params = Mapping[str, Any]


def tool_args(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Some call of a tool had some arguments."""
    calls = _made_of(params, trajectory)
    if not calls:
        return _not_called(params["tool_name"], trajectory)
    misses = [[*_wrong_values(params["expected_args"], call)] for call in calls]
    if not all(misses):
        return held(told(calls[misses.index([])]))
    nearest = min(range(len(calls)), key=lambda index: len(misses[index]))
    message = f"no call of `{params['tool_name']}` had these arguments; nearest is {told(calls[nearest])}: {'; '.join(misses[nearest])}"
    return failed(message)


def tool_args_excluded(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No call of a tool had some arguments."""
    forbidden = [(name, [value]) for name, value in params.get("excluded_args", {}).items()]
    for name, values in params.get("forbidden_args", {}).items():
        forbidden.append((name, values if isinstance(values, list) else [values]))
    calls = of_tools(trajectory.calls, [params["tool_name"]])
    faults = [
        f"{told(call)} has `{name}`: {shorten(as_text(value))}"
        for call in calls
        for name, values in forbidden
        for value in values
        if name in (call.arguments or {}) and _equal(value, (call.arguments or {})[name])
    ]
    if faults:
        return failed("; ".join(faults))
    return held(f"{count(len(calls), 'call')} of `{params['tool_name']}`, none with these arguments")


def tool_calls_with_args(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """All calls of a tool are as described."""
    calls = _made_of(params, trajectory)
    if not calls:
        return _not_called(params.get("tool_name"), trajectory)
    misses = [(call, [*misfits(params, call)]) for call in calls]
    wrong = [f"{told(call)}: {'; '.join(found)}" for call, found in misses if found]
    if wrong:
        return failed("; ".join(wrong), 1 - len(wrong) / len(calls))
    return held(listed(calls))


def tool_call_chain(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls as described were made in an order."""
    steps = params["steps"]
    calls = made(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    found, nearest = 0, ""
    for call in calls:
        if found < len(steps) and call.tool == steps[found]["tool"]:
            wrong = [*misfits(steps[found], call)]
            found, nearest = (found, f"{told(call)}: {'; '.join(wrong)}") if wrong else (found + 1, "")
    names = [step["tool"] for step in steps]
    words = " > ".join(names)
    if found == len(steps):
        return held(f"{words} was called in this order")
    tool = names[found]
    why = (
        f"nearest is {nearest}"
        if nearest
        else f"`{tool}` was not called{near(tool, trajectory.calls, names)}"
    )
    message = f"wanted {words}, but step {found + 1} is missing: {why}; {listed(trajectory.calls)}"
    return failed(message, found / len(steps))


def misfits(wanted: Params, call: CallRecord) -> Iterator[str]:
    """How a call is otherwise than described by `expected_args`, `args_match`, `result_*` and `no_error`."""
    yield from _wrong_values(wanted.get("expected_args", {}), call)
    for name, pattern in wanted.get("args_match", {}).items():
        if name not in (call.arguments or {}):
            yield f"`{name}` is missing"
        elif not finds(pattern)(as_text((call.arguments or {})[name])):
            yield f"`{name}` does not match {pattern}"
    text = answered(call)
    for part in wanted.get("result_includes", ()):
        if not stands_in(part, text):
            yield f'the result has no "{shorten(part)}"'
    if "result_matches" in wanted and not finds(wanted["result_matches"])(text):
        yield f"the result does not match {wanted['result_matches']}"
    if wanted.get("no_error") and call.outcome is not Outcome.OK:
        yield f"it did not end well: {call.message}" if call.message else "it did not end well"


def _wrong_values(wanted: Mapping[str, JSON], call: CallRecord) -> Iterator[str]:
    got = call.arguments or {}
    for name, value in wanted.items():
        if name not in got:
            yield f"`{name}` is missing"
        elif not same(value, got[name]):
            yield f"`{name}` is not {shorten(as_text(value))}"


def _equal(value: JSON, got: JSON) -> bool:
    """As `same`, where null is no other value than itself."""
    return got is None if value is None else same(value, got)


def _made_of(params: Params, trajectory: Trajectory) -> list[CallRecord]:
    calls = made(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    return of_tools(calls, [params["tool_name"]] if "tool_name" in params else None)


def _not_called(tool: str | None, trajectory: Trajectory) -> AssertionVerdict:
    words = f"`{tool}` was not called{near(tool, trajectory.calls)}" if tool else "no tool was called"
    return failed(f"{words}; {listed(trajectory.calls)}")
