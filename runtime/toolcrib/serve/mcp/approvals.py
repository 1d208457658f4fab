"""Ask the user of an MCP client to approve a call.

A client of a handshake revision with the capability `elicitation` gets an elicitation while its call is running. Since
2026-07-28 the call ends with `input_required`, and the client repeats it with the answer. All other clients get an
error result that names the approval and says how to answer it (`messages.render_result`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from logging import getLogger
from typing import Any, Final, NamedTuple

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.types import CallToolRequestParams, ElicitResult
from pydantic import ValidationError

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import Result
from toolcrib.core.text import escape_terminal
from toolcrib.engine.approvals import Approvals
from toolcrib.security.approvals import Answer, Pending
from toolcrib.security.encryption import NoKey
from toolcrib.serve.http_common.approval_form import (
    FORM,
    FORM_FOR_ONE_CALL,
    answer_in_form,
    approval_in,
    question,
)

Context = ServerRequestContext[Any, Any]

REQUEST: Final = "approval"
"""Key of the input request and of its response."""

_MOST_OPEN: Final = 10_000
"""Maximum number of input requests that wait for a response; the oldest is then asked again."""

_log = getLogger("toolcrib")


def can_elicit(ctx: Context) -> bool:
    """Whether the user of a client can fill in a form."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # MCP 2025-11-25, elicitation: an empty object means forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def answer_of(result: ElicitResult, schema: dict[str, Any] = FORM) -> Answer | None:
    """The answer in a filled form; None if the user closed it without a decision.

    Args:
        result: The form.
        schema: Its schema.

    Raises:
        ValueError: The form is invalid.
    """
    if result.action == "cancel":
        return None
    said: Mapping[str, Any] = result.content or {}
    return answer_in_form({**said, "decision": "reject"} if result.action == "decline" else said, schema)


class FormApprover:
    """Asks the user of a client of a handshake revision in a form: an `Approver`.

    Args:
        ctx: The request of the call.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def __call__(self, pending: Pending) -> Answer | None:
        """Show the form; None if the user gave no valid answer, so that the call stays pending."""
        try:
            result = await self._ctx.session.elicit_form(
                question(pending), FORM, related_request_id=self._ctx.request_id
            )
            return answer_of(result)
        # The client refused, disconnected, or sent something else than a form.
        except (MCPError, ValidationError, ValueError, RecursionError) as error:
            _log.warning(
                "the approval `%s` stays pending: the client did not answer the form (%s)",
                pending.id,
                escape_terminal(" ".join(str(error).split()))[:200],
            )
            return None


class OpenInputRequest(NamedTuple):
    """An input request that a client has not answered yet.

    Attributes:
        principal: The principal of the client.
        tool: Name of the tool.
        schema: Schema of the form.
    """

    principal: str
    tool: str
    schema: dict[str, Any]


class InputRequests:
    """The input requests to clients of 2026-07-28.

    Args:
        approvals: The approvals of the runtime.
    """

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._open: OrderedDict[str, OpenInputRequest] = OrderedDict()

    def required(
        self, result: Result, principal: str, problem: str = "", *, shared: str = ""
    ) -> dict[str, Any] | None:
        """The `input_required` result for a call that waits for approval; None for any other result.

        Args:
            result: The result of the call.
            principal: The principal of the client.
            problem: What is wrong with the last response, if anything.
            shared: ID of a session that several clients share, if the client has no other one.
        """
        id_ = approval_in(result)
        approval = self._approvals.find(id_) if id_ else None
        if approval is None or result.error is None:
            return None
        schema = FORM_FOR_ONE_CALL if approval.session == shared else FORM
        self._open[approval.id] = OpenInputRequest(principal, approval.tool, schema)
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        asked = Pending(approval.id, approval.tool, approval.shown, approval.code, approval.message)
        request = {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": question(asked, problem), "requestedSchema": schema},
        }
        return {
            "resultType": "input_required",
            "inputRequests": {REQUEST: request},
            "requestState": approval.id,
        }

    def answered(self, params: CallToolRequestParams, principal: str, tool: str) -> tuple[str, str] | None:
        """Store the answer in a repeated request.

        Returns:
            The approval, and what is wrong with the answer (empty if it was stored); None if the request answers
            nothing, so that the call is made as usual and asks again.
        """
        id_ = params.request_state
        # The state is a name that the client was given, not a proof: only its own requests count.
        asked = None if id_ is None else self._open.get(id_)
        if id_ is None or asked is None or (asked.principal, asked.tool) != (principal, tool):
            return None
        response = (params.input_responses or {}).get(REQUEST)
        if not isinstance(response, ElicitResult):
            return None
        try:
            answer = answer_of(response, asked.schema)
            if answer is not None:
                self._approvals.answer(id_, answer, by=f"mcp {principal}".strip(), here=True)
        except (ValueError, RecursionError, NoKey) as error:
            return id_, str(error)
        except ConfigurationError as error:
            # Somebody else has answered, or the edited arguments are invalid: `resume` reports the first.
            return id_, error.message if error.code == "invalid_edit" else ""
        del self._open[id_]
        return id_, ""
