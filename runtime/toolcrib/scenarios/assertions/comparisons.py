"""Assertions that compare: calls with each other, and what came out with what was expected or was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.scenarios.assertions.calls import listed, made, of_tools
from toolcrib.scenarios.assertions.texts import said
from toolcrib.scenarios.assertions.tools import states_in
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, failed, held, skipped, verdict
from toolcrib.schema.validation.violations import count, shorten

Params = Mapping[str, Any]


def invariant_fields_preserved(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """No later call of a tool lacks an argument that an earlier one had."""
    calls = of_tools(made(trajectory.calls), [params["tool"]])
    fields = list(dict.fromkeys(params["fields"]))
    lost = []
    for field in fields:
        there = [field in (call.arguments or {}) for call in calls]
        if True in there and False in there[there.index(True) :]:
            lost.append(f"`{field}` is missing in call {there.index(False, there.index(True)) + 1}")
    if lost:
        return failed(f"{'; '.join(lost)}; {listed(calls)}", 1 - len(lost) / len(fields))
    return held(f"{count(len(calls), 'call')} of `{params['tool']}`, no field was lost")


def outcome_equivalent(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """It came to what was expected."""
    if params["metric"] == "tool_calls":
        return _same_tools(params["expected_tools"], trajectory)
    if params["metric"] == "final_state":
        return _same_state(params["expected_state"], trajectory)
    same = trajectory.reply == params["expected_content"]
    return verdict(
        same,
        said(trajectory.reply) + ("" if same else f', wanted "{shorten(params["expected_content"], 200)}"'),
    )


def directional(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """It is as it was before."""
    if params["check"] == "same_tool_calls":
        return _same_tools(params["baseline_tools"], trajectory)
    if params["check"] == "same_outcome":
        return _same_state(params["baseline_state"], trajectory)
    ours, theirs = ({*text.lower().split()} for text in (trajectory.reply, params["baseline_content"]))
    share = len(ours & theirs) / len(ours | theirs) if ours | theirs else 1.0
    threshold = params.get("threshold", 0.5)
    words = f"{share:.2f} of the words are those of the baseline, wanted {threshold}"
    return verdict(share >= threshold, f"{words}; {said(trajectory.reply)}", share)


def speaks(params: Params) -> bool:
    """Whether a comparison is one of what was said."""
    return params.get("metric") == "content_hash" or params.get("check") == "similar_content"


def _same_tools(wanted: Sequence[str], trajectory: Trajectory) -> AssertionVerdict:
    got = {call.tool for call in made(trajectory.calls)}
    missing, more = sorted({*wanted} - got), sorted(got - {*wanted})
    if not missing and not more:
        return held(f"the tools called are {', '.join(sorted(got)) or 'none'}")
    faults = [f"{', '.join(missing)} not called"] if missing else []
    faults += [f"{', '.join(more)} called as well"] if more else []
    return failed(
        f"wanted {', '.join(wanted) or 'no tools'}: {'; '.join(faults)}; {listed(trajectory.calls)}"
    )


def _same_state(wanted: str, trajectory: Trajectory) -> AssertionVerdict:
    if not trajectory.states:
        return skipped("no mock has a named state, so nobody knows the state at the end")
    states = states_in(trajectory.states)
    return verdict(wanted in states, f"the state is {', '.join(sorted(states))}, wanted {wanted}")
