"""How a call of an agent's tool ended: the results of task states, of protocol errors and of broken connections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from a2a.types import TaskState

from toolcrib.core.model import JSON, Outcome, Result, Schema
from toolcrib.servers.a2a.artifacts import RESULT, ArtifactParts, result_of_parts, to_json
from toolcrib.servers.a2a.messages import error_of_message, text_of_message
from toolcrib.servers.a2a.tasks import INTERRUPTED, TASK_NOT_FOUND, AgentError, AgentTask
from toolcrib.servers.endpoint import ExchangeFailure
from toolcrib.servers.mcp.failures import (
    CallTarget,
    ConnectionLoss,
    clean_text,
    result_of_invalid_answer,
    result_of_lost_connection,
    result_of_unknown_tool,
)

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NOT_FOUND: Final = frozenset({"tool_not_found", "not_found", "unknown_tool"})
_INVALID: Final = frozenset({"invalid_arguments", "invalid_params"})

_ERRORS: Final[Mapping[int, tuple[Outcome, str]]] = {
    -32700: (Outcome.TOOL_ERROR, "a2a_parse_error"),
    -32600: (Outcome.TOOL_ERROR, "a2a_invalid_request"),
    -32601: (Outcome.TOOL_ERROR, "a2a_method_not_found"),
    -32602: (Outcome.TOOL_ERROR, "a2a_invalid_params"),
    -32603: (Outcome.TOOL_ERROR, "a2a_internal_error"),
    -32002: (Outcome.TOOL_ERROR, "a2a_task_not_cancelable"),
    -32003: (Outcome.TOOL_ERROR, "a2a_push_not_supported"),
    -32004: (Outcome.TOOL_ERROR, "a2a_unsupported_operation"),
    -32005: (Outcome.TOOL_ERROR, "a2a_content_type_not_supported"),
    -32006: (Outcome.INVALID_RESULT, "a2a_invalid_agent_response"),
    -32007: (Outcome.TOOL_ERROR, "a2a_extended_card_not_configured"),
    -32008: (Outcome.UNAVAILABLE, "a2a_extension_required"),
    -32009: (Outcome.UNAVAILABLE, "a2a_version_not_supported"),
}
"""Number of an error (A2A 1.0, section 5.4; JSON-RPC 2.0, section 5.1) -> outcome and code. -32001 depends on the call."""


def result_of_task(task: AgentTask, target: CallTarget, schema: Schema | None) -> Result:
    """The result of a task that is over; of another one, that it is not.

    Args:
        task: The task.
        target: The called tool.
        schema: The active output schema; None for none.

    Raises:
        InvalidAnswer: Its result is not valid.
    """
    if task.message is not None:
        return _result_of_message(task, target, schema)
    if task.state == TaskState.TASK_STATE_COMPLETED:
        marked = [each for each in task.artifacts.values() if each.marked]
        if len(marked) > 1:
            return result_of_invalid_answer(target, "it marked several artifacts as the result")
        if marked:
            return _result_of_artifact(task, marked[0], schema)
        if target.server.lenient:
            return _unmarked(task, target, schema)
        return _no_result(target, "it completed the task without an artifact that is marked as the result")
    if task.state == TaskState.TASK_STATE_CANCELED:
        message = f"the agent `{target.server.name}` cancelled the task"
        return _failed(task, Outcome.CANCELLED, message, "cancelled_by_agent")
    if task.state in INTERRUPTED:
        return _waiting(task, target)
    if not task.over:
        message = f"the agent `{target.server.name}` still works on the task"
        return _failed(task, Outcome.UNAVAILABLE, message, "task_not_ended")
    return _refused(task, target, failed=task.state == TaskState.TASK_STATE_FAILED)


def _result_of_artifact(task: AgentTask, artifact: ArtifactParts, schema: Schema | None) -> Result:
    return result_of_parts(artifact.parts, schema, artifact.metadata, _ids(task))


def _ids(task: AgentTask) -> dict[str, JSON]:
    ids = {"task_id": task.id, "context_id": task.context_id}
    return {key: value for key, value in ids.items() if value}


def _result_of_message(task: AgentTask, target: CallTarget, schema: Schema | None) -> Result:
    message = task.message
    assert message is not None  # noqa: S101 -- the caller has checked it
    metadata = to_json(message.metadata) if message.HasField("metadata") else {}
    if metadata.get(RESULT) is True or target.server.lenient:
        return result_of_parts(message.parts, schema, metadata, _ids(task))
    return _no_result(target, "it answered with a message that is not marked as the result")


def _unmarked(task: AgentTask, target: CallTarget, schema: Schema | None) -> Result:
    """The result of an agent that does not know the extension: its first artifact with data, any artifact, or its last text."""
    artifacts = [*task.artifacts.values()]
    with_data = [
        each for each in artifacts if any(part.WhichOneof("content") == "data" for part in each.parts)
    ]
    for artifact in (*with_data, *artifacts):
        return _result_of_artifact(task, artifact, schema)
    if task.said is not None and task.said.parts:
        return result_of_parts(task.said.parts, schema, {}, _ids(task))
    return _no_result(target, "it completed the task without an artifact and without a message")


def _no_result(target: CallTarget, why: str) -> Result:
    hint = "" if target.server.lenient else "; set `lenient` of the agent if it does not know the extension"
    details: dict[str, JSON] = {} if target.repeatable else {"may_have_acted": True}
    message = f"`{target.name}`: the agent `{target.server.name}` sent no result: {why}{hint}"
    return Result.failure(Outcome.INVALID_RESULT, message, code="missing_result", details=details)


def _waiting(task: AgentTask, target: CallTarget) -> Result:
    asks = task.state == TaskState.TASK_STATE_INPUT_REQUIRED
    code = "input_required" if asks else "auth_required"
    what = "needs an answer" if asks else "needs an authentication"
    said = clean_text(text_of_message(task.said)) if task.said is not None else ""
    message = f"the agent `{target.server.name}` {what}" + (f": {said}" if said else "")
    details: dict[str, JSON] = {"agent": target.server.name, "tool": target.tool, **_ids(task)}
    if said:
        details["question"] = said
    return Result.failure(Outcome.NEEDS_APPROVAL, message, code=code, details=details)


def _refused(task: AgentTask, target: CallTarget, *, failed: bool) -> Result:
    """The result of a task that failed or was rejected."""
    error = {} if task.said is None else error_of_message(task.said)
    code = error.get("code")
    code = code if isinstance(code, str) and _CODE.fullmatch(code) else ""
    text = error.get("message") if isinstance(error.get("message"), str) else None
    said = clean_text(text or ("" if task.said is None else text_of_message(task.said)))
    if code in _NOT_FOUND:
        return result_of_unknown_tool(target, ())
    name = f"the agent `{target.server.name}`"
    if not failed:
        invalid = code in _INVALID
        outcome = Outcome.INVALID_ARGUMENTS if invalid else Outcome.DENIED
        message = f"{name} rejected the call" + (f": {said}" if said else "")
        return _failed(
            task, outcome, message, "invalid_arguments" if invalid else code or "task_rejected", error
        )
    message = said or f"{name} failed without giving a reason"
    return _failed(task, Outcome.TOOL_ERROR, message, code or "task_failed", error)


def _failed(
    task: AgentTask, outcome: Outcome, message: str, code: str, error: Mapping[str, Any] | None = None
) -> Result:
    details: dict[str, JSON] = _ids(task)
    given = (error or {}).get("details")
    if isinstance(given, dict):
        details["details"] = given
    return Result.failure(outcome, message, code=code, details=details)


def result_of_error(error: AgentError, target: CallTarget) -> Result:
    """The result of a call that the agent answered with an error of the protocol."""
    if error.number == TASK_NOT_FOUND:
        acted = not target.repeatable
        message = f"`{target.name}`: the agent `{target.server.name}` no longer knows the task"
        return Result.failure(
            Outcome.UNKNOWN_OUTCOME if acted else Outcome.TRANSPORT_ERROR,
            message,
            code="task_not_found",
            details={"may_have_acted": True} if acted else {},
            retryable=not acted,
        )
    number = error.number
    outcome, code = _ERRORS.get(number or 0, (Outcome.TOOL_ERROR, "a2a_error"))
    details: dict[str, JSON] = {} if number is None else {"number": number}
    return Result.failure(outcome, clean_text(error.message) or code, code=code, details=details)


def result_of_failure(failure: ExchangeFailure, target: CallTarget, *, begun: bool) -> Result:
    """The result of a call whose exchange failed.

    Args:
        failure: The failure.
        target: The called tool.
        begun: Whether any part of the call may have reached the agent.
    """
    return result_of_lost_connection(target, ConnectionLoss("", begun=begun, trouble=failure.trouble))
