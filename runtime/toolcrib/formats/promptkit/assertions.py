"""From assertions of PromptKit to ours: nearly the same, and what is not is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of
from toolcrib.formats.promptkit.source_nodes import Made, Node, made, made_object
from toolcrib.loading.scenarios.assertions import ALIASES, check_assertions
from toolcrib.loading.scenarios.model import SPEAKING

_THEIRS_ALONE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("agent_invoked", "agent_not_invoked", "agent_response_contains", "a2a_eval", "a2a_eval_session"),
        "agents are not called as tools yet",
    ),
    **dict.fromkeys(
        (
            "composition_branch_taken",
            "composition_output",
            "composition_parallel_complete",
            "composition_step_output",
            "workflow_complete",
            "workflow_state_is",
            "workflow_transition_order",
            "workflow_transitioned_to",
        ),
        "a scenario has one prompt, and no states or steps that it is composed of",
    ),
    **dict.fromkeys(
        ("skill_activated", "skill_activation_order", "skill_not_activated"), "there are no skills"
    ),
    **dict.fromkeys(
        (
            "audio_duration",
            "audio_emotion",
            "audio_format",
            "image_dimensions",
            "image_format",
            "image_moderation",
            "video_duration",
            "video_resolution",
        ),
        "what a model says is text",
    ),
    **dict.fromkeys(
        (
            "answer_relevancy",
            "bias",
            "contextual_precision",
            "contextual_recall",
            "contextual_relevancy",
            "faithfulness",
            "hallucination",
            "pii_leakage",
            "role_violation",
            "text_sentiment",
            "text_toxicity",
            "toxicity",
        ),
        "`llm_judge` asks a model in words of its own",
    ),
    **dict.fromkeys(("rest_eval", "rest_eval_session"), "`tool_exec` calls a tool that judges"),
    "cosine_similarity": "`directional` compares texts",
    "latency_budget": "time is virtual where answers are scripted",
}
"""Types that PromptKit has and we have not -> why, or what is near."""


def assertion(node: Node, problems: list[Problem], *, of_turn: bool) -> Made:
    """Something that must be true; where it has no counterpart, that is told, and it stays as one that is never judged.

    One of a turn that looks at calls sees the whole conversation so far, as in PromptKit.
    """
    kind, params, when = node.part("type"), node.part("params"), node.part("when")
    why = _THEIRS_ALONE.get(kind.text)
    if why is not None:
        message = f"the assertion `{kind.text}` has no counterpart, so it is never judged: {why}"
        problems.append(kind.problem("no_counterpart", message, severity="warning"))
        return made_object(node, {"type": made(kind.text, kind), "unsupported": made(why, kind)})
    message_node, given = _message(node, _known(kind.text, params, problems))
    scope = of_turn and "scope" not in given and _of_calls(kind.text, given)
    threshold = node.part("pass_threshold")
    return made_object(
        node,
        {
            "type": made(kind.text, kind),
            "params": made(given, params) if given else None,
            "message": made(message_node.text, message_node) if message_node.text else None,
            "when": made({key: value for key, value in when.value.items() if value}, when)
            if when.value
            else None,
            "scope": made("conversation", node) if scope else None,
            "pass_threshold": made(threshold.value, threshold) if threshold.value else None,
        },
    )


def _message(node: Node, given: dict[str, Any]) -> tuple[Node, dict[str, Any]]:
    """What is shown of an assertion, which may stand among its parameters, and the others of these."""
    message, within = node.part("message"), node.part("params", "message")
    rest = {key: value for key, value in given.items() if key != "message"}
    return (message if message.text or not within else within), rest


def _known(kind: str, params: Node, problems: list[Problem]) -> dict[str, Any]:
    """The parameters that the type has here; PromptKit passes over any other, and so is it told."""
    given = {key: value for key, value in (params.value or {}).items() if value is not None}
    faults: list[Problem] = []
    check_assertions([{"type": kind, "params": given}], "", faults)
    for fault in faults:
        path = keys_of(fault.pointer)
        if fault.code == "unknown_key" and path[:-1] == ["0", "params"] and path[-1] in given:
            del given[path[-1]]
            told = params.part(path[-1]).problem(
                "unknown_key", f"{fault.message}, and has no effect", fault.hint, "warning"
            )
            problems.append(told)
    return given


def _of_calls(kind: str, params: Mapping[str, JSON]) -> bool:
    """Whether an assertion looks at calls, and not at what was said."""
    alias = ALIASES.get(kind)
    own = alias.kind if alias is not None else kind
    held = params.get("eval_type")
    return _of_calls(held, {}) if isinstance(held, str) else own not in SPEAKING
