"""Which function judges which kind of assertion, and what stands around all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.loading.prompts import Guardrail
from toolcrib.loading.scenarios.agents import Assertion
from toolcrib.loading.scenarios.assertions import ALIASES, SPEAKING, WRAPPER, check_guardrails
from toolcrib.scenarios.assertions import (
    arguments,
    comparisons,
    cost,
    json_content,
    judges,
    results,
    texts,
    tools,
)
from toolcrib.scenarios.assertions.calls import listed, made
from toolcrib.scenarios.assertions.comparisons import speaks
from toolcrib.scenarios.assertions.judges import AssertionContext
from toolcrib.scenarios.assertions.patterns import finds
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, failed, held, skipped, verdict
from toolcrib.schema.validation.violations import count

Params = Mapping[str, Any]

Judging: TypeAlias = Callable[[Params, Trajectory], AssertionVerdict]

Asking: TypeAlias = Callable[[Params, Trajectory, AssertionContext], Awaitable[AssertionVerdict]]


async def judge(
    assertion: Assertion, trajectory: Trajectory, surroundings: AssertionContext = judges.NOBODY
) -> AssertionVerdict:
    """Judge one assertion.

    Args:
        assertion: As `check_assertions` settled it.
        trajectory: The conversation, or the turn that the assertion belongs to; one with the scope
            `conversation` sees `trajectory.whole`.
        surroundings: Who runs tools and who judges, for kinds that need it.
    """
    seen = trajectory
    if assertion.scope == "conversation" and trajectory.whole is not None:
        seen = trajectory.whole
    missing = _missing(assertion.when, seen)
    if assertion.unsupported:
        found = skipped(assertion.unsupported)
    elif missing:
        found = skipped(missing)._replace(unmet=True)
    else:
        found = await _judged(assertion.type, assertion.params, seen, surroundings)
    return found._replace(message=(trajectory.whole or trajectory).hidden(found.message))


def _missing(when: Params, trajectory: Trajectory) -> str:
    """What of `when` did not happen; empty if all of it did."""
    calls = made(trajectory.calls)
    names = [call.tool for call in calls]
    wanted = when.get("any_tool_called")
    if "tool_called" in when and when["tool_called"] not in names:
        return f"`{when['tool_called']}` was not called; {listed(calls)}"
    if "tool_called_pattern" in when and not any(map(finds(when["tool_called_pattern"]), names)):
        return f"no tool was called whose name matches {when['tool_called_pattern']}; {listed(calls)}"
    if isinstance(wanted, list) and not {*wanted} & {*names}:
        return f"none of {', '.join(f'`{name}`' for name in wanted)} was called; {listed(calls)}"
    if isinstance(wanted, bool) and wanted != bool(names):
        return listed(calls)
    if len(calls) < when.get("min_tool_calls", 0):
        return f"{count(len(calls), 'call')} made, and it is about {when['min_tool_calls']} or more"
    return ""


async def _judged(
    kind: str, params: Params, trajectory: Trajectory, surroundings: AssertionContext
) -> AssertionVerdict:
    if not trajectory.has_text and (kind in SPEAKING or speaks(params)):
        return skipped("the calls were made without a model, so nothing was said")
    if kind == WRAPPER:
        return await _wrapped(params, trajectory, surroundings)
    if kind in ASKING:
        return await ASKING[kind](params, trajectory, surroundings)
    return JUDGING[kind](params, trajectory)


async def _wrapped(
    params: Params, trajectory: Trajectory, surroundings: AssertionContext
) -> AssertionVerdict:
    """The verdict of another assertion, by its score."""
    found = await _judged(params["eval_type"], params["eval_params"], trajectory, surroundings)
    least, most = params.get("min_score", 0), params.get("max_score", 1)
    if not found.applies:
        return found
    bounds = [f"at least {least}"] if "min_score" in params else []
    bounds += [f"at most {most}"] if "max_score" in params else []
    words = f"score {found.score:.2f}, wanted {' and '.join(bounds)}: {found.message}"
    return verdict(least <= found.score <= most, words, found.score)


def guardrail_triggered(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A guardrail found something, or nothing."""
    wanted, name = params.get("should_trigger", True), params["validator_type"]
    guards = [each for each in trajectory.guardrails if _kind(name) in _kinds(each)]
    unsupported = next((each.unsupported for each in guards if each.unsupported), "")
    if unsupported:
        return skipped(unsupported)
    if not guards:
        hint = did_you_mean(name, {each.type for each in trajectory.guardrails})
        return skipped(f"the prompt has no guardrail `{name}`{f' ({hint})' if hint else ''}")
    problems: list[Problem] = []
    entries = [{"type": each.type, "params": {**each.params}} for each in guards]
    settled = check_guardrails(entries, "", problems)
    if problems:
        return failed(f"the guardrail `{name}` can't be used: {problems[0].message}")
    found = [finding for guard in settled if (finding := _finding(guard, trajectory))]
    message = f"`{name}` found {'; '.join(found) or 'nothing'}"
    if bool(found) is wanted:
        return held(message)
    return failed(f"{message}, wanted {'a finding' if wanted else 'nothing'}")


def _kinds(guard: Guardrail) -> set[str]:
    """The kind of a guardrail, and that of what it wraps."""
    return {_kind(name) for name in (guard.type, guard.params.get("eval_type")) if isinstance(name, str)}


def _kind(name: str) -> str:
    alias = ALIASES.get(name)
    return name if alias is None else alias.kind


def _finding(guard: Assertion, trajectory: Trajectory) -> str:
    """What a guardrail finds in one of the texts; empty for nothing."""
    for text in trajectory.texts:
        found = _guarded(guard.type, guard.params, Trajectory(texts=(text,)))
        if not found.passed:
            return found.message
    return ""


def _guarded(kind: str, params: Params, trajectory: Trajectory) -> AssertionVerdict:
    if kind != WRAPPER:
        return JUDGING[kind](params, trajectory)
    found = _guarded(params["eval_type"], params["eval_params"], trajectory)
    least, most = params.get("min_score", 0), params.get("max_score", 1)
    return found._replace(passed=least <= found.score <= most)


JUDGING: Final[Mapping[str, Judging]] = {
    "content_excludes": texts.content_excludes,
    "content_includes": texts.content_includes,
    "content_includes_any": texts.content_includes_any,
    "content_matches": texts.content_matches,
    "cost_budget": cost.cost_budget,
    "directional": comparisons.directional,
    "field_presence": texts.field_presence,
    "guardrail_triggered": guardrail_triggered,
    "invariant_fields_preserved": comparisons.invariant_fields_preserved,
    "is_valid_json": json_content.is_valid_json,
    "json_path": json_content.json_path,
    "json_schema": json_content.json_schema,
    "max_length": texts.max_length,
    "min_length": texts.min_length,
    "no_tool_errors": tools.no_tool_errors,
    "outcome_equivalent": comparisons.outcome_equivalent,
    "sentence_count": texts.sentence_count,
    "tool_anti_pattern": tools.tool_anti_pattern,
    "tool_args": arguments.tool_args,
    "tool_args_excluded": arguments.tool_args_excluded,
    "tool_call_chain": arguments.tool_call_chain,
    "tool_call_count": tools.tool_call_count,
    "tool_call_sequence": tools.tool_call_sequence,
    "tool_calls_with_args": arguments.tool_calls_with_args,
    "tool_efficiency": tools.tool_efficiency,
    "tool_no_repeat": tools.tool_no_repeat,
    "tool_result_has_media": results.tool_result_has_media,
    "tool_result_includes": results.tool_result_includes,
    "tool_result_matches": results.tool_result_matches,
    "tool_result_media_type": results.tool_result_media_type,
    "tools_called": tools.tools_called,
    "tools_not_called": tools.tools_not_called,
    "workflow_tool_access": tools.workflow_tool_access,
}
"""Kind -> what judges it by looking."""

ASKING: Final[Mapping[str, Asking]] = {
    "llm_judge": judges.llm_judge,
    "llm_judge_session": judges.llm_judge_session,
    "llm_judge_tool_calls": judges.llm_judge_tool_calls,
    "tool_exec": judges.tool_exec,
}
"""Kind -> what judges it by asking somebody."""
