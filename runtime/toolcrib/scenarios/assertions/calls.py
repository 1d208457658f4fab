"""Assertions about calls: tools, arguments, results, and the cost of the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, Final

from toolcrib.core.model import JSON, Content, Outcome
from toolcrib.provider.conversations import CallRecord
from toolcrib.scenarios.assertions.trajectories import (
    AssertionVerdict,
    Trajectory,
    as_text,
    calls_of_tools,
    contains_text,
    describe_call,
    executed_calls,
    failed,
    list_calls,
    matches_expected,
    name_hint,
    passed,
    pattern_test,
    result_text,
    skipped,
    successful_calls,
    times,
    verdict,
)
from toolcrib.schema.validation.violations import count, shorten

Params = Mapping[str, Any]


def tools_called(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Each tool has a number of good calls within bounds."""
    least, most = params.get("min_calls", 1), params.get("max_calls")
    calls = successful_calls(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    if params.get("require_args"):
        calls = [call for call in calls if call.arguments]
    numbers = Counter(call.tool for call in calls)
    names = list(dict.fromkeys(params["tool_names"]))
    missing = [name for name in names if numbers[name] < least]
    excess = [name for name in names if most is not None and numbers[name] > most]
    good_calls = {name: f"`{name}` has {count(numbers[name], 'good call')}" for name in names}
    faults = [
        f"{good_calls[name]}, expected at least {least}{name_hint(name, trajectory.calls, names)}"
        for name in missing
    ]
    faults += [f"{good_calls[name]}, expected at most {most}" for name in excess]
    if faults:
        score = 0.0 if excess else 1 - len(missing) / len(names)
        return failed(f"{'; '.join(faults)}; {list_calls(trajectory.calls)}", score)
    return passed(", ".join(good_calls.values()))


def tools_not_called(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No call of these tools was made or attempted."""
    # Refused calls count, too: the model tried what it must not do.
    found = calls_of_tools(trajectory.calls, params["tool_names"])
    if found:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(call.tool for call in found))
        return failed(f"{names} must not be called; {list_calls(found)}")
    names = ", ".join(f"`{name}`" for name in params["tool_names"])
    return passed(f"none of {names} was called")


def tool_call_count(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The number of calls is within bounds."""
    tool = params.get("tool")
    calls = executed_calls(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    number = len(calls_of_tools(calls, tool and [tool]))
    least, most = params.get("min", 0), params.get("max")
    words = f"`{tool}` was called {times(number)}" if tool else f"{count(number, 'call')} made"
    if number < least or (most is not None and number > most):
        wanted = f"at least {least}" if number < least else f"at most {most}"
        hint = name_hint(tool, trajectory.calls) if tool else ""
        return failed(f"{words}, expected {wanted}{hint}; {list_calls(trajectory.calls)}")
    return passed(words)


def tool_call_sequence(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls of the tools were made in this order."""
    sequence: Sequence[str] = params["sequence"]
    calls = executed_calls(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    found = len(subsequence(sequence, calls))
    words = " > ".join(sequence)
    if found == len(sequence):
        return passed(f"{words} was called in this order")
    tool = sequence[found]
    before = f" after {' > '.join(sequence[:found])}" if found else ""
    hint = name_hint(tool, trajectory.calls, sequence)
    return failed(
        f"expected {words}, but `{tool}` was not called{before}{hint}; {list_calls(trajectory.calls)}",
        found / len(sequence),
    )


def subsequence(sequence: Sequence[str], calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The earliest calls that follow a sequence of tools, up to the first missing one."""
    found: list[CallRecord] = []
    for call in calls:
        if len(found) < len(sequence) and call.tool == sequence[len(found)]:
            found.append(call)
    return found


def tool_anti_pattern(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """None of the forbidden sequences of calls occurs."""
    faults = []
    for pattern in params["patterns"]:
        found = subsequence(pattern["sequence"], trajectory.calls)
        if len(found) == len(pattern["sequence"]):
            reason = f"{pattern['message']}: " if pattern.get("message") else ""
            faults.append(
                f"{reason}{' > '.join(pattern['sequence'])}, as {', '.join(map(describe_call, found))}"
            )
    if faults:
        return failed("; ".join(faults))
    return passed(f"none of {count(len(params['patterns']), 'forbidden order')} was found")


def tool_no_repeat(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No tool was called too many times in a row."""
    most = params.get("max_repeats", 1)
    runs = [(tool, len([*run])) for tool, run in groupby(call.tool for call in trajectory.calls)]
    watched = params.get("tools")
    faults = [
        f"`{tool}` was called {times(number)} in a row"
        for tool, number in runs
        if number > most and (not watched or tool in watched)
    ]
    if faults:
        return failed(f"{'; '.join(faults)}, expected at most {most}; {list_calls(trajectory.calls)}")
    return passed(f"no tool was called more than {times(most)} in a row")


def tool_efficiency(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The number of calls and errors is within bounds."""
    number, errors = len(trajectory.calls), len(_failed(trajectory.calls))
    # Without calls the rate is 0, so that `max_error_rate` holds.
    rate = errors / number if number else 0.0
    faults = [
        f"{words}, expected at most {params[key]}"
        for key, value, words in (
            ("max_calls", number, count(number, "call")),
            ("max_errors", errors, count(errors, "failed call")),
            ("max_error_rate", rate, f"a share of {rate:.2f} of the calls failed"),
        )
        if key in params and value > params[key]
    ]
    if faults:
        return failed(f"{'; '.join(faults)}; {list_calls(trajectory.calls)}")
    return passed(f"{count(number, 'call')}, {errors} of them failed")


def no_tool_errors(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No call failed."""
    calls = calls_of_tools(trajectory.calls, params.get("tools"))
    errors = _failed(calls)
    if errors:
        why = "; ".join(
            f"{describe_call(call)}: {call.message}" if call.message else describe_call(call)
            for call in errors[:5]
        )
        more = f"; {len(errors) - 5} more" if len(errors) > 5 else ""
        return failed(
            f"{len(errors)} of {count(len(calls), 'call')} failed: {why}{more}", 1 - len(errors) / len(calls)
        )
    return passed(f"{count(len(calls), 'call')}, none of them failed")


def _failed(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The failed calls, without pending ones."""
    return [call for call in calls if call.outcome not in {None, Outcome.OK}]


def workflow_tool_access(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """In each state, only the allowed tools were called."""
    if trajectory.calls and not any(call.states for call in trajectory.calls):
        return skipped("no mock has a named state, so the state at each call is unknown")
    faults = [
        f"{describe_call(call)} in the state `{rule['state']}`, where {_names(rule['allowed'])} may be called"
        for call in trajectory.calls
        for rule in params["rules"]
        if rule["state"] in states_in(call.states) and call.tool not in rule["allowed"]
    ]
    return verdict(not faults, "; ".join(faults) or f"{count(len(trajectory.calls), 'call')}, all allowed")


def _names(tools: Sequence[str]) -> str:
    return ", ".join(f"`{tool}`" for tool in tools) or "nothing"


def states_in(states: Mapping[str, JSON]) -> set[str]:
    """The states of all named machines; a machine may have a state for each key."""
    found: set[str] = set()
    for state in states.values():
        if isinstance(state, str):
            found.add(state)
        elif isinstance(state, dict):
            found |= states_in(state)
    return found


def tool_args(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A call of the tool has the expected arguments."""
    calls = _made_of(params, trajectory)
    if not calls:
        return _not_called(params["tool_name"], trajectory)
    misses = [[*_wrong_values(params["expected_args"], call)] for call in calls]
    if not all(misses):
        return passed(describe_call(calls[misses.index([])]))
    nearest = min(range(len(calls)), key=lambda index: len(misses[index]))
    message = f"no call of `{params['tool_name']}` had these arguments; nearest is {describe_call(calls[nearest])}: {'; '.join(misses[nearest])}"
    return failed(message)


def tool_args_excluded(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No call of the tool has the forbidden arguments."""
    forbidden = [(name, [value]) for name, value in params.get("excluded_args", {}).items()]
    for name, values in params.get("forbidden_args", {}).items():
        forbidden.append((name, values if isinstance(values, list) else [values]))
    calls = calls_of_tools(trajectory.calls, [params["tool_name"]])
    faults = [
        f"{describe_call(call)} has `{name}`: {shorten(as_text(value))}"
        for call in calls
        for name, values in forbidden
        for value in values
        if name in (call.arguments or {}) and _equal(value, (call.arguments or {})[name])
    ]
    if faults:
        return failed("; ".join(faults))
    return passed(f"{count(len(calls), 'call')} of `{params['tool_name']}`, none with these arguments")


def tool_calls_with_args(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """All calls of the tool are as described."""
    calls = _made_of(params, trajectory)
    if not calls:
        return _not_called(params.get("tool_name"), trajectory)
    misses = [(call, [*mismatches(params, call)]) for call in calls]
    wrong = [f"{describe_call(call)}: {'; '.join(found)}" for call, found in misses if found]
    if wrong:
        return failed("; ".join(wrong), 1 - len(wrong) / len(calls))
    return passed(list_calls(calls))


def tool_call_chain(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls as described were made in this order."""
    steps = params["steps"]
    calls = executed_calls(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    found, nearest = 0, ""
    for call in calls:
        if found < len(steps) and call.tool == steps[found]["tool"]:
            wrong = [*mismatches(steps[found], call)]
            found, nearest = (
                (found, f"{describe_call(call)}: {'; '.join(wrong)}") if wrong else (found + 1, "")
            )
    names = [step["tool"] for step in steps]
    words = " > ".join(names)
    if found == len(steps):
        return passed(f"{words} was called in this order")
    tool = names[found]
    why = (
        f"nearest is {nearest}"
        if nearest
        else f"`{tool}` was not called{name_hint(tool, trajectory.calls, names)}"
    )
    message = f"expected {words}, but step {found + 1} is missing: {why}; {list_calls(trajectory.calls)}"
    return failed(message, found / len(steps))


def mismatches(wanted: Params, call: CallRecord) -> Iterator[str]:
    """How a call differs from `expected_args`, `args_match`, `result_*` and `no_error`."""
    yield from _wrong_values(wanted.get("expected_args", {}), call)
    for name, pattern in wanted.get("args_match", {}).items():
        if name not in (call.arguments or {}):
            yield f"`{name}` is missing"
        elif not pattern_test(pattern)(as_text((call.arguments or {})[name])):
            yield f"`{name}` does not match {pattern}"
    text = result_text(call)
    for part in wanted.get("result_includes", ()):
        if not contains_text(part, text):
            yield f'the result does not contain "{shorten(part)}"'
    if "result_matches" in wanted and not pattern_test(wanted["result_matches"])(text):
        yield f"the result does not match {wanted['result_matches']}"
    if wanted.get("no_error") and call.outcome is not Outcome.OK:
        yield f"it failed: {call.message}" if call.message else "it failed"


def _wrong_values(wanted: Mapping[str, JSON], call: CallRecord) -> Iterator[str]:
    got = call.arguments or {}
    for name, value in wanted.items():
        if name not in got:
            yield f"`{name}` is missing"
        elif not matches_expected(value, got[name]):
            yield f"`{name}` is not {shorten(as_text(value))}"


def _equal(value: JSON, got: JSON) -> bool:
    """Like `matches_expected`, except that null only equals null."""
    return got is None if value is None else matches_expected(value, got)


def _made_of(params: Params, trajectory: Trajectory) -> list[CallRecord]:
    calls = executed_calls(trajectory.calls, ignore_validation=params.get("ignore_validation", False))
    return calls_of_tools(calls, [params["tool_name"]] if "tool_name" in params else None)


def _not_called(tool: str | None, trajectory: Trajectory) -> AssertionVerdict:
    words = f"`{tool}` was not called{name_hint(tool, trajectory.calls)}" if tool else "no tool was called"
    return failed(f"{words}; {list_calls(trajectory.calls)}")


_SHOWN: Final = 200
"""Maximum characters of a result in a message."""


def tool_result_includes(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Results contain all texts."""
    parts = params["patterns"]
    words = " and ".join(f'"{shorten(part)}"' for part in parts)
    return _counted(params, trajectory, lambda text: all(contains_text(part, text) for part in parts), words)


def tool_result_matches(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Results match a regular expression."""
    return _counted(params, trajectory, pattern_test(params["pattern"]), f"a match of {params['pattern']}")


def _counted(
    params: Params, trajectory: Trajectory, fits: Callable[[str], bool], words: str
) -> AssertionVerdict:
    tool, wanted = params.get("tool"), params.get("occurrence", 1)
    calls = calls_of_tools(executed_calls(trajectory.calls), tool and [tool])
    texts = [result_text(call) for call in calls]
    number = sum(map(fits, texts))
    whose = f"of `{tool}` " if tool else ""
    if number >= wanted:
        return passed(f"results {whose}had {words} {times(number)}")
    if not calls:
        hint = name_hint(tool, trajectory.calls) if tool else ""
        return failed(f"no call {whose}was made, expected {words}{hint}; {list_calls(trajectory.calls)}")
    others = [text for text in texts if not fits(text)]
    shown = f"; another one was {shorten(others[-1], _SHOWN) or 'empty'}" if others else ""
    return failed(f"results {whose}had {words} {times(number)}, expected {wanted}{shown}")


def tool_result_has_media(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A result contains media of a kind."""
    wanted = params["media_type"]
    return _media(params, trajectory, lambda part: _kind(part) == wanted, wanted)


def tool_result_media_type(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A result contains a part with a media type."""
    wanted = params["mime_type"].lower()
    return _media(params, trajectory, lambda part: fnmatchcase(_media_type(part), wanted), wanted)


def _media(
    params: Params, trajectory: Trajectory, fits: Callable[[Content], bool], wanted: str
) -> AssertionVerdict:
    tool = params.get("tool")
    calls = calls_of_tools(executed_calls(trajectory.calls), tool and [tool])
    parts = [part for call in calls for part in call.content]
    whose = f"of `{tool}`" if tool else "of any tool"
    if any(map(fits, parts)):
        return passed(f"a result {whose} has {wanted}")
    hint = name_hint(tool, trajectory.calls) if tool and not calls else ""
    there = _listed(parts) if parts else "no parts besides the value"
    return failed(f"no result {whose} has {wanted}{hint}; there were {there}; {list_calls(calls)}")


def _media_type(part: Content) -> str:
    return (part.mime_type or "").partition(";")[0].strip().lower()


def _kind(part: Content) -> str:
    """The kind of a part: by its media type, otherwise by its own type; a resource is a document."""
    kind = _media_type(part).partition("/")[0]
    if kind in {"image", "audio", "video"}:
        return kind
    return "document" if part.type == "resource" else part.type


def _listed(parts: Iterable[Content]) -> str:
    return ", ".join(_media_type(part) or part.type for part in parts)


def cost_budget(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Tokens and cost are within bounds."""
    tokens = trajectory.tokens
    spent = [
        ("max_cost_usd", trajectory.cost, f"${trajectory.cost:.4f}"),
        ("max_total_tokens", tokens.input + tokens.output, f"{tokens.input + tokens.output} tokens"),
        ("max_input_tokens", tokens.input, f"{tokens.input} tokens sent"),
        ("max_output_tokens", tokens.output, f"{tokens.output} tokens received"),
    ]
    faults = [
        f"{words}, expected at most {params[key]}"
        for key, value, words in spent
        if key in params and value > params[key]
    ]
    within = ", ".join(words for key, _value, words in spent if key in params)
    return verdict(not faults, "; ".join(faults) or within)
