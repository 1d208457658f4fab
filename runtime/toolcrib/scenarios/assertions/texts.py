"""Assertions about texts: words, JSON, and comparisons with an expectation or a baseline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.text import JSON_DECODER, decode_json, json_equal
from toolcrib.expressions.jmespath_queries import compile_select
from toolcrib.scenarios.assertions.calls import states_in
from toolcrib.scenarios.assertions.trajectories import (
    AssertionVerdict,
    Trajectory,
    as_text,
    calls_of_tools,
    contains_text,
    contains_words,
    executed_calls,
    failed,
    list_calls,
    passed,
    pattern_test,
    skipped,
    verdict,
)
from toolcrib.schema.validation import Validator, report
from toolcrib.schema.validation.violations import count, shorten

Params = Mapping[str, Any]

_SHOWN: Final = 200
"""Maximum characters of a text in a message."""

_SIGNS: Final = 4
"""Assumed characters per token."""


def describe_reply(text: str) -> str:
    """Describe the reply as the end of a sentence."""
    return f'the reply is "{shorten(text, _SHOWN)}"' if text else "there is no reply"


def content_includes(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply contains all texts, or any of them."""
    if params.get("match_mode") == "any":
        return _any_in(params["patterns"], (trajectory.reply,))
    return _all_in(params["patterns"], trajectory.reply)


def field_presence(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply contains all field names."""
    return _all_in(params["fields"], trajectory.reply)


def _all_in(parts: Sequence[str], reply: str) -> AssertionVerdict:
    missing = [part for part in parts if not contains_text(part, reply)]
    if missing:
        return failed(f"{_quoted(missing)} missing; {describe_reply(reply)}", 1 - len(missing) / len(parts))
    return passed(f"the reply has {_quoted(parts)}")


def content_includes_any(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Any message contains one of the texts."""
    return _any_in(params["patterns"], trajectory.texts)


def _any_in(parts: Sequence[str], texts: Sequence[str]) -> AssertionVerdict:
    found = [part for part in parts if any(contains_text(part, text) for text in texts)]
    if found:
        return passed(f"{_quoted(found)} was said")
    return failed(f"none of {_quoted(parts)} was said; {describe_reply(texts[-1] if texts else '')}")


def content_excludes(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No message contains any of the texts."""
    within = contains_words if params.get("match_mode") == "word_boundary" else contains_text
    found = [
        f'"{shorten(part)}" was said: "{shorten(text, _SHOWN)}"'
        for text in trajectory.texts
        for part in params["patterns"]
        if within(part, text, exact=params.get("case_sensitive", False))
    ]
    return verdict(not found, "; ".join(found) or f"none of {_quoted(params['patterns'])} was said")


def content_matches(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply matches a regular expression."""
    if pattern_test(params["pattern"])(trajectory.reply):
        return passed(f"the reply matches {params['pattern']}")
    return failed(f"no match for {params['pattern']}; {describe_reply(trajectory.reply)}")


def min_length(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply has a minimum length."""
    length, least = len(trajectory.reply), params["min"]
    message = f"the reply has {count(length, 'character')}, expected at least {least}"
    return verdict(length >= least, message, min(1.0, length / least))


def max_length(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply has a maximum length."""
    length = len(trajectory.reply)
    bounds = [(length, params.get("max"), "character"), (length // _SIGNS, params.get("max_tokens"), "token")]
    wanted = [(number, most, noun) for number, most, noun in bounds if most is not None]
    message = "; ".join(
        f"the reply has {count(number, noun)}, expected at most {most}" for number, most, noun in wanted
    )
    score = min(most / max(number, most) for number, most, _noun in wanted)
    return verdict(score == 1, message, score)


def sentence_count(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The number of sentences in the reply is within bounds."""
    number = sum(1 for part in re.split(r"[.!?]+(?:\s|$)", trajectory.reply) if part.strip())
    least, most = params.get("min", 0), params.get("max")
    if number < least or (most is not None and number > most):
        wanted = f"at least {least}" if number < least else f"at most {most}"
        return failed(
            f"the reply has {count(number, 'sentence')}, expected {wanted}; {describe_reply(trajectory.reply)}"
        )
    return passed(f"the reply has {count(number, 'sentence')}")


def _quoted(parts: Sequence[str]) -> str:
    return ", ".join(f'"{shorten(part)}"' for part in parts)


_BLOCK: Final = re.compile(r"```[^\n`]*\n(.*?)\n[ \t]*```", re.DOTALL)
_BEGINS: Final = re.compile(r"[{\[]")

_TRIES: Final = 100
"""Maximum number of brackets at which JSON is searched; each attempt may read the rest of the text."""


class _NoJSON(Exception):
    """A reply contains no JSON."""


def is_valid_json(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply is JSON."""
    try:
        value = _value(params, trajectory.reply)
    except _NoJSON as error:
        return failed(str(error))
    return passed(f"the reply is {shorten(as_text(value), _SHOWN)}")


def json_schema(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply is JSON that matches a schema."""
    try:
        value = _value(params, trajectory.reply)
    except _NoJSON as error:
        return failed(str(error))
    faults = Validator(params["schema"]).faults(value)
    return verdict(not faults, report(faults).replace("\n", "; ") or "the reply fits the schema")


def json_path(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The result of a JMESPath expression on the reply is as described."""
    problems: list[Problem] = []
    select = compile_select(params["expression"], "/expression", problems)
    if select is None:
        return failed(problems[0].message)
    try:
        found = select(_value(params, trajectory.reply))
    except _NoJSON as error:
        return failed(str(error))
    except ValueError as error:
        return failed(f"{params['expression']}: {error}; {describe_reply(trajectory.reply)}")
    faults = [*_misfits(params, found)]
    words = f"{params['expression']} is {shorten(as_text(found), _SHOWN)}"
    return verdict(not faults, f"{words}, expected {' and '.join(faults)}" if faults else words)


def _misfits(params: Params, found: JSON) -> Iterator[str]:
    """The conditions that a value does not meet."""
    if "expected" in params and not json_equal(params["expected"], found):
        yield shorten(as_text(params["expected"]), _SHOWN)
    items = found if isinstance(found, list) else None
    for wanted in params.get("contains", ()):
        if items is None or not any(json_equal(wanted, item) for item in items):
            yield f"a list with {shorten(as_text(wanted))}"
    number = found if isinstance(found, int | float) and not isinstance(found, bool) else None
    if "min" in params and (number is None or number < params["min"]):
        yield f"a number of at least {params['min']}"
    if "max" in params and (number is None or number > params["max"]):
        yield f"a number of at most {params['max']}"
    if "min_results" in params and (items is None or len(items) < params["min_results"]):
        yield f"a list of at least {params['min_results']}"
    if "max_results" in params and (items is None or len(items) > params["max_results"]):
        yield f"a list of at most {params['max_results']}"
    if found is None and not params.keys() & _DESCRIBING:
        yield "something"


_DESCRIBING: Final = frozenset({"expected", "contains", "min", "max", "min_results", "max_results"})


def _value(params: Params, reply: str) -> JSON:
    """Find the JSON in a reply.

    Raises:
        _NoJSON: The reply contains no JSON.
    """
    texts = [reply]
    if params.get("allow_wrapped"):
        texts = [*_BLOCK.findall(reply), reply]
    for text in texts:
        try:
            return decode_json(text.strip())
        except (ValueError, RecursionError):
            continue
    if params.get("extract_json"):
        for begin in [*_BEGINS.finditer(reply)][:_TRIES]:
            try:
                found: JSON = JSON_DECODER.raw_decode(reply, begin.start())[0]
            except (ValueError, RecursionError):
                continue
            return found
    hint = "" if {"allow_wrapped", "extract_json"} & params.keys() else _hint(reply)
    raise _NoJSON(f"no JSON; {describe_reply(reply)}{hint}")


def _hint(reply: str) -> str:
    return " (`allow_wrapped` searches code blocks)" if "```" in reply else ""


def invariant_fields_preserved(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Every later call of a tool has the arguments that an earlier one had."""
    calls = calls_of_tools(executed_calls(trajectory.calls), [params["tool"]])
    fields = list(dict.fromkeys(params["fields"]))
    lost = []
    for field in fields:
        there = [field in (call.arguments or {}) for call in calls]
        if True in there and False in there[there.index(True) :]:
            lost.append(f"`{field}` is missing in call {there.index(False, there.index(True)) + 1}")
    if lost:
        return failed(f"{'; '.join(lost)}; {list_calls(calls)}", 1 - len(lost) / len(fields))
    return passed(f"{count(len(calls), 'call')} of `{params['tool']}`, no field was lost")


def outcome_equivalent(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The tools, the final state or the reply are as expected."""
    if params["metric"] == "tool_calls":
        return _same_tools(params["expected_tools"], trajectory)
    if params["metric"] == "final_state":
        return _same_state(params["expected_state"], trajectory)
    same = trajectory.reply == params["expected_content"]
    return verdict(
        same,
        describe_reply(trajectory.reply)
        + ("" if same else f', expected "{shorten(params["expected_content"], 200)}"'),
    )


def directional(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The tools, the final state or the reply are as in a baseline."""
    if params["check"] == "same_tool_calls":
        return _same_tools(params["baseline_tools"], trajectory)
    if params["check"] == "same_outcome":
        return _same_state(params["baseline_state"], trajectory)
    ours, theirs = ({*text.lower().split()} for text in (trajectory.reply, params["baseline_content"]))
    share = len(ours & theirs) / len(ours | theirs) if ours | theirs else 1.0
    threshold = params.get("threshold", 0.5)
    words = f"{share:.2f} of the words match the baseline, expected {threshold}"
    return verdict(share >= threshold, f"{words}; {describe_reply(trajectory.reply)}", share)


def compares_replies(params: Params) -> bool:
    """Whether a comparison is about texts."""
    return params.get("metric") == "content_hash" or params.get("check") == "similar_content"


def _same_tools(wanted: Sequence[str], trajectory: Trajectory) -> AssertionVerdict:
    got = {call.tool for call in executed_calls(trajectory.calls)}
    missing, more = sorted({*wanted} - got), sorted(got - {*wanted})
    if not missing and not more:
        return passed(f"the tools called are {', '.join(sorted(got)) or 'none'}")
    faults = [f"{', '.join(missing)} not called"] if missing else []
    faults += [f"{', '.join(more)} called as well"] if more else []
    return failed(
        f"expected {', '.join(wanted) or 'no tools'}: {'; '.join(faults)}; {list_calls(trajectory.calls)}"
    )


def _same_state(wanted: str, trajectory: Trajectory) -> AssertionVerdict:
    if not trajectory.states:
        return skipped("no mock has a named state, so the final state is unknown")
    states = states_in(trajectory.states)
    return verdict(wanted in states, f"the state is {', '.join(sorted(states))}, expected {wanted}")
