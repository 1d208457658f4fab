"""Assertions about which tools were called, how often, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from toolcrib.core.model import JSON, Outcome
from toolcrib.provider.conversations import CallRecord
from toolcrib.scenarios.assertions.calls import good, listed, made, near, of_tools, times, told
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, failed, held, skipped, verdict
from toolcrib.schema.validation.violations import count

Params = Mapping[str, Any]


def tools_called(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Each of some tools was called well, not too seldom and not too often."""
    least, most = params.get("min_calls", 1), params.get("max_calls")
    calls = good(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    if params.get("require_args"):
        calls = [call for call in calls if call.arguments]
    numbers = Counter(call.tool for call in calls)
    names = list(dict.fromkeys(params["tool_names"]))
    missing = [name for name in names if numbers[name] < least]
    excess = [name for name in names if most is not None and numbers[name] > most]
    good_calls = {name: f"`{name}` has {count(numbers[name], 'good call')}" for name in names}
    faults = [
        f"{good_calls[name]}, wanted at least {least}{near(name, trajectory.calls, names)}"
        for name in missing
    ]
    faults += [f"{good_calls[name]}, wanted at most {most}" for name in excess]
    if faults:
        score = 0.0 if excess else 1 - len(missing) / len(names)
        return failed(f"{'; '.join(faults)}; {listed(trajectory.calls)}", score)
    return held(", ".join(good_calls.values()))


def tools_not_called(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """None of some tools was called, nor was it tried."""
    found = of_tools(trajectory.calls, params["tool_names"])
    if found:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(call.tool for call in found))
        return failed(f"{names} must not be called; {listed(found)}")
    names = ", ".join(f"`{name}`" for name in params["tool_names"])
    return held(f"none of {names} was called")


def tool_call_count(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """So many calls were made."""
    tool = params.get("tool")
    calls = made(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    number = len(of_tools(calls, tool and [tool]))
    least, most = params.get("min", 0), params.get("max")
    words = f"`{tool}` was called {times(number)}" if tool else f"{count(number, 'call')} made"
    if number < least or (most is not None and number > most):
        wanted = f"at least {least}" if number < least else f"at most {most}"
        hint = near(tool, trajectory.calls) if tool else ""
        return failed(f"{words}, wanted {wanted}{hint}; {listed(trajectory.calls)}")
    return held(words)


def tool_call_sequence(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls of some tools were made in an order."""
    sequence: Sequence[str] = params["sequence"]
    calls = made(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    found = len(subsequence(sequence, calls))
    words = " > ".join(sequence)
    if found == len(sequence):
        return held(f"{words} was called in this order")
    tool = sequence[found]
    before = f" after {' > '.join(sequence[:found])}" if found else ""
    hint = near(tool, trajectory.calls, sequence)
    return failed(
        f"wanted {words}, but `{tool}` was not called{before}{hint}; {listed(trajectory.calls)}",
        found / len(sequence),
    )


def subsequence(sequence: Sequence[str], calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The earliest calls of a sequence's tools in their order, as far as they are there."""
    found: list[CallRecord] = []
    for call in calls:
        if len(found) < len(sequence) and call.tool == sequence[len(found)]:
            found.append(call)
    return found


def tool_anti_pattern(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls followed one another in none of some orders."""
    faults = []
    for pattern in params["patterns"]:
        found = subsequence(pattern["sequence"], trajectory.calls)
        if len(found) == len(pattern["sequence"]):
            reason = f"{pattern['message']}: " if pattern.get("message") else ""
            faults.append(f"{reason}{' > '.join(pattern['sequence'])}, as {', '.join(map(told, found))}")
    if faults:
        return failed("; ".join(faults))
    return held(f"none of {count(len(params['patterns']), 'forbidden order')} was found")


def tool_no_repeat(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No tool was called again and again."""
    most = params.get("max_repeats", 1)
    runs = [(tool, len([*run])) for tool, run in groupby(call.tool for call in trajectory.calls)]
    watched = params.get("tools")
    faults = [
        f"`{tool}` was called {times(number)} in a row"
        for tool, number in runs
        if number > most and (not watched or tool in watched)
    ]
    if faults:
        return failed(f"{'; '.join(faults)}, wanted at most {most}; {listed(trajectory.calls)}")
    return held(f"no tool was called more than {times(most)} in a row")


def tool_efficiency(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The calls stayed within bounds."""
    number, errors = len(trajectory.calls), len(_failed(trajectory.calls))
    rate = errors / number if number else 0.0
    faults = [
        f"{words}, wanted at most {params[key]}"
        for key, value, words in (
            ("max_calls", number, count(number, "call")),
            ("max_errors", errors, count(errors, "failed call")),
            ("max_error_rate", rate, f"a share of {rate:.2f} of the calls failed"),
        )
        if key in params and value > params[key]
    ]
    if faults:
        return failed(f"{'; '.join(faults)}; {listed(trajectory.calls)}")
    return held(f"{count(number, 'call')}, {errors} of them failed")


def no_tool_errors(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Every call ended well."""
    calls = of_tools(trajectory.calls, params.get("tools"))
    errors = _failed(calls)
    if errors:
        why = "; ".join(
            f"{told(call)}: {call.message}" if call.message else told(call) for call in errors[:5]
        )
        more = f"; {len(errors) - 5} more" if len(errors) > 5 else ""
        return failed(
            f"{len(errors)} of {count(len(calls), 'call')} failed: {why}{more}", 1 - len(errors) / len(calls)
        )
    return held(f"{count(len(calls), 'call')}, none of them failed")


def _failed(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls that ended otherwise than well; one that waits has not ended."""
    return [call for call in calls if call.outcome not in {None, Outcome.OK}]


def workflow_tool_access(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """In each state only those tools were called that may be."""
    if trajectory.calls and not any(call.states for call in trajectory.calls):
        return skipped("no mock has a named state, so nobody knows in which state the calls were made")
    faults = [
        f"{told(call)} in the state `{rule['state']}`, where {_names(rule['allowed'])} may be called"
        for call in trajectory.calls
        for rule in params["rules"]
        if rule["state"] in states_in(call.states) and call.tool not in rule["allowed"]
    ]
    return verdict(not faults, "; ".join(faults) or f"{count(len(trajectory.calls), 'call')}, all allowed")


def _names(tools: Sequence[str]) -> str:
    return ", ".join(f"`{tool}`" for tool in tools) or "nothing"


def states_in(states: Mapping[str, JSON]) -> set[str]:
    """The states that all named machines are in; a machine may have one for each of its keys."""
    found: set[str] = set()
    for state in states.values():
        if isinstance(state, str):
            found.add(state)
        elif isinstance(state, dict):
            found |= states_in(state)
    return found
