"""What is made of an answer: its body by content type, then a failure or a value, hidden in, selected, and in budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Content, Descriptor, Outcome, Result
from toolcrib.executors.live.errors_by_status import Envelope, Errors, compile_errors
from toolcrib.executors.live.media_types import Form, Unreadable, read_any_body, read_body
from toolcrib.executors.live.response_redaction import Steps, compile_paths, redacted, redacted_body
from toolcrib.executors.live.size_budget import Budget, compile_budget
from toolcrib.expressions.jmespath_queries import Select, compile_select
from toolcrib.http import HTTPResponse


class Read(NamedTuple):
    """An answer that was read.

    Attributes:
        envelope: `status`, `headers` (names in lower case, values of one name joined by `, `), `body`; of collected
            pages also `items` and `next_cursor`. What `redact` names is hidden in it already.
        content: The parts beside the body, where it is bytes.
    """

    envelope: Envelope
    content: tuple[Content, ...] = ()


class Reading:
    """A compiled `response`, `select` and `errors`."""

    def __init__(
        self,
        *,
        form: Form,
        paths: tuple[Steps, ...],
        select: Select | None,
        errors: Errors,
        budget: Budget | None,
    ) -> None:
        """Hold what was compiled.

        Args:
            form: How bodies are read; `auto` by their content type.
            paths: What is hidden in them.
            select: What the value is made with; None for the body itself.
            errors: What statuses of failure become.
            budget: How large a value may be; None for any size.
        """
        self._form: Form = form
        self._paths = paths
        self._select = select
        self._errors = errors
        self._budget = budget

    def failed(self, status: int) -> bool:
        """Whether an answer with this status is a failure: an error, or a redirect that was not followed."""
        return status >= 300

    def redacted(self, text: str) -> str:
        """A body as it was sent, without what `redact` names."""
        return redacted_body(text, self._paths) if self._paths else text

    def read(self, response: HTTPResponse) -> Read | Result:
        """The body by content type; `invalid_result` where it is not what was promised.

        A failure is read with indulgence, whatever its body is: what it says of itself matters more.
        """
        status = response.status
        try:
            body, content = (
                read_any_body(response) if self.failed(status) else read_body(response, self._form)
            )
        except Unreadable as error:
            details = {"status": status, **error.place}
            message = f"{error.message}; {error.hint}"
            return Result.failed(Outcome.INVALID_RESULT, message, code=error.code, details=details)
        if self._paths:
            body = redacted(body, self._paths)
        return Read({"status": status, "headers": _headers(response), "body": body}, content)

    def result(
        self, read: Read, arguments: Mapping[str, JSON], now: Callable[[], datetime] | None = None
    ) -> Result:
        """What a call is told of an answer.

        Args:
            read: The answer.
            arguments: Those of the call.
            now: The clock's time of day, with which a `Retry-After` date is compared; without one, the answer's own
                `Date` is.
        """
        envelope = read.envelope
        status: Any = envelope["status"]
        if self.failed(status):
            return self._errors.result(envelope, arguments, now)
        try:
            value = self._select(envelope) if self._select is not None else _plain(envelope)
        except ValueError as error:
            message = f"`select` failed over the answer: {error}"
            details = {"status": status, "pointer": "/live/select"}
            return Result.failed(Outcome.INVALID_RESULT, message, code="select_failed", details=details)
        result = Result.ok(value, content=read.content)
        return result if self._budget is None else self._budget.fitted(result)


def compile_reading(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> Reading:
    """Compile `response`, `select` and `errors` of a `live` block that is valid under its schema.

    Args:
        block: The block.
        tool: Whose it is.
        problems: Receives what is wrong: codes `bad_path`, `bad_pointer`, `bad_select`, `needless_key` and those of
            expressions.
    """
    response: Mapping[str, Any] = block.get("response", NOTHING)
    _check_form(response, block, problems)
    select, budget = block.get("select"), response.get("budget")
    return Reading(
        form=response.get("as", "auto"),
        paths=compile_paths(response.get("redact", ()), "/live/response/redact", problems),
        select=None if select is None else compile_select(select, "/live/select", problems),
        errors=compile_errors(block.get("errors", NOTHING), tool, problems),
        budget=None if budget is None else compile_budget(budget, tool, problems),
    )


def _check_form(response: Mapping[str, Any], block: Mapping[str, Any], problems: list[Problem]) -> None:
    """Keys that can do nothing, since the body is read in a form that has neither members nor lists."""
    form = response.get("as", "auto")
    idle = [key for key in ("budget", "redact") if key in response and form == "binary"]
    if "budget" in response and form == "text" and "select" not in block:
        idle.append("budget")
    for key in idle:
        message = f"`{key}` does nothing for an answer that is read as {form}"
        hint = f"leave it out, or change `as: {form}`"
        problems.append(
            Problem(code="needless_key", message=message, pointer=f"/live/response/{key}", hint=hint)
        )


def _headers(response: HTTPResponse) -> dict[str, JSON]:
    """The headers by name; several of one name are joined (RFC 9110 section 5.3)."""
    joined: dict[str, JSON] = {}
    for name, value in response.headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _plain(envelope: Envelope) -> JSON:
    """The value where nothing is selected."""
    if "items" in envelope:
        return {"items": envelope["items"], "next_cursor": envelope["next_cursor"]}
    return envelope["body"]
