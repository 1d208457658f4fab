"""A bound MCP tool and the conversion of its responses (MCP 2026-07-28 and 2025-11-25, CallToolResult).

The value of a result is `structuredContent`, or else the text parts: a single text as it is, several joined
by newlines. If the output schema does not accept that text, a single text is parsed as JSON, and several
become a list. All other parts become content, in order, and so do texts next to structured content that
do not repeat it. A value that FastMCP wraps is unwrapped. The audience of a part (`annotations`) is dropped.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.clock import run_in_thread
from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Call,
    CallContext,
    Content,
    Descriptor,
    Outcome,
    Progress,
    Result,
    Schema,
)
from toolcrib.core.running_calls import measure_call, traffic_of
from toolcrib.core.server_config import Catalogue, LockVerdict, Server, place_of_server
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.core.text import DuplicateKey, compact, decode_json, format_size
from toolcrib.core.wrapped_results import unwrapped_result
from toolcrib.executors.mcp.repeated_texts import without_repeated_texts
from toolcrib.schema.validation import Validator
from toolcrib.schema.validation.json_values import DEPTH, SMALL, is_large
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.redaction import redact, redact_result
from toolcrib.security.secrets import SecretResolver
from toolcrib.security.server_display import display_address
from toolcrib.servers.argument_overlay import ArgumentOverlay
from toolcrib.servers.mcp import failures
from toolcrib.servers.mcp.failures import (
    CallTarget,
    ConnectionLoss,
    IdleTimeout,
    InvalidAnswer,
    ProtocolError,
    ServerUnavailable,
    result_of_tool_error,
    result_of_unknown_tool,
    says_unknown_tool,
    split_error_number,
)
from toolcrib.servers.mcp.supervisor import ServerPool
from toolcrib.servers.mcp.tool_list import approximate_size

if TYPE_CHECKING:
    from toolcrib.servers.mcp.connection import ServerConnection

_LONGEST_KIND: Final = 40
"""The longest content type, in characters, that a message quotes.

A longer one is omitted, not cut: half of a secret in it would not be recognized and masked.
"""

# The texts of the Python SDK ("Unknown tool: x") and the TypeScript SDK ("Tool x not found").
_KNOWN_AS: Final = re.compile(r"^unknown tool\b|^tool .{0,200} not found\b", re.IGNORECASE | re.DOTALL)


@cached_per_schema
def _judge(schema: Schema | None) -> Callable[[JSON], bool]:
    return Validator(True if schema is None else schema).judge


def result_of(
    raw: dict[str, Any],
    target: CallTarget,
    tool: Descriptor,
    catalogue: Catalogue,
    hide: Callable[[str], str],
) -> Result:
    """The result of a call. The caller masks secrets in it, except in error texts, which are masked here.

    Args:
        raw: The response as received.
        target: The tool.
        tool: Its descriptor, with the active output schema and the size limit of results.
        catalogue: The catalogue of the server.
        hide: Masks secrets in a text.

    Raises:
        InvalidAnswer: The response violates the protocol.
    """
    schema, most = tool.output_schema, tool.limits.output_size
    # Checked first, so that a huge response is not copied into parts, masked or validated.
    size = approximate_size(raw, most)
    if size > most:
        return _too_large(target, tool, size)
    content = _content_of(raw)
    failed = raw.get("isError")
    structured = raw.get("structuredContent")
    if not failed and structured is None and len(content) == 1:
        # Most responses are a single text: this path skips building content parts.
        text = _plain_text(content[0])
        if text is not None:
            return Result.success(_value_of_text(text, schema))
    parts = [_part(part, place, raw) for place, part in enumerate(content)]
    if failed:
        said = hide("\n".join(part.text for part in parts if part.type == "text" and part.text))
        return _failed(said, parts, structured, target, catalogue)
    if structured is None:
        return _without_structure(parts, schema)
    inner = unwrapped_result(raw, catalogue.tools.get(target.tool, NOTHING))
    value = structured if inner is None else inner[0]
    # A descriptor may have a schema of its own for what the server sends.
    if inner is not None and schema is not None and not _judge(schema)(value) and _judge(schema)(structured):
        value = structured
    return Result.success(value, content=without_repeated_texts(parts, structured))


def _content_of(raw: dict[str, Any]) -> list[Any]:
    """The content parts of a response, after its other members have been checked."""
    failed = raw.get("isError")
    if not isinstance(failed, bool | None):
        raise InvalidAnswer(f"expected `isError` to be a boolean, got {_kind(failed)}", raw)
    if raw.get("resultType", "complete") != "complete":
        # Servers may send other kinds of results only to requests that ask for them.
        raise InvalidAnswer("unexpected `resultType`, expected `complete`", raw)
    # Some servers send `structuredContent` only.
    content = raw.get("content", [] if "structuredContent" in raw else None)
    if not isinstance(content, list):
        raise InvalidAnswer(f"expected `content` to be a list, got {_kind(content)}", raw)
    return content


def _plain_text(part: Any) -> str | None:
    """The text of a text part; None for any other part."""
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _too_large(target: CallTarget, tool: Descriptor, size: int) -> Result:
    most = tool.limits.output_size
    limit = limit_phrase(tool, "output_size", format_size(most))
    return Result.failure(
        Outcome.LIMIT_EXCEEDED,
        f"`{target.name}`: the response of the server `{target.server.name}` is too large: at least {size:,} bytes, "
        f"and {limit}; request less data",
        code="too_large",
        details=limit_details(tool, "output_size", most, size)
        | ({} if target.repeatable else {"may_have_acted": True}),
    )


def _failed(
    text: str, parts: list[Content], structured: JSON, target: CallTarget, catalogue: Catalogue
) -> Result:
    # Servers report an unknown tool as a tool error in free text. A listed tool may fail with a similar text
    # of its own, so for a listed tool the whole text must match.
    if says_unknown_tool(text, target.tool) and (
        target.tool not in catalogue.tools or _says_nothing_else(text)
    ):
        return result_of_unknown_tool(target, catalogue.tools)
    return result_of_tool_error(text, tuple(parts), structured)


def _says_nothing_else(text: str) -> bool:
    return _KNOWN_AS.search(split_error_number(text)[1]) is not None and len(text) < 400


def _without_structure(parts: list[Content], schema: Schema | None) -> Result:
    texts = [part.text for part in parts if part.type == "text" and part.text is not None]
    others = tuple(part for part in parts if part.type != "text")
    if not texts:
        return Result.success(None, content=others)
    if len(texts) == 1:
        return Result.success(_value_of_text(texts[0], schema), content=others)
    joined = "\n".join(texts)
    if schema is None or _judge(schema)(joined):
        return Result.success(joined, content=others)
    # Some servers split one JSON text into several parts, others send one JSON text per item.
    whole = _read(joined)
    if whole is not None and _judge(schema)(whole):
        return Result.success(whole, content=others)
    read = [_read(text) for text in texts]
    items: JSON = [text if each is None else each for text, each in zip(texts, read, strict=True)]
    return Result.success(items if _judge(schema)(items) else joined, content=others)


def _value_of_text(text: str, schema: Schema | None) -> JSON:
    """The text itself, or its JSON value if the schema does not accept the text."""
    if schema is None or _judge(schema)(text):
        return text
    read = _read(text)
    # `_read` returns None for invalid JSON, and for the valid text `null`.
    return text if read is None and text.strip() != "null" else read


def _read(text: str) -> JSON:
    """The value of a JSON text; None if it is not valid JSON."""
    try:
        return decode_json(text)
    except DuplicateKey as error:
        raise InvalidAnswer(f"{error} in JSON text") from None
    except (ValueError, RecursionError):
        return None


def _part(part: Any, place: int, raw: JSON) -> Content:
    kind = part.get("type") if isinstance(part, dict) else None
    make = _PARTS.get(kind) if isinstance(kind, str) else None
    if make is None:
        what = "has an unknown type" if isinstance(kind, str) else "is not a content object"
        if isinstance(kind, str) and len(kind) <= _LONGEST_KIND:
            what = f"has the unknown type `{kind}`"
        raise InvalidAnswer(f"part {place + 1} of `content` {what}", raw)
    try:
        return make(part)
    except (_Malformed, NoBase64) as error:
        what = "its data is not valid base64" if isinstance(error, NoBase64) else str(error)
        raise InvalidAnswer(f"part {place + 1} of `content` is invalid: {what}", raw) from None


class _Malformed(Exception):
    pass


def _text(part: dict[str, Any]) -> Content:
    return Content("text", text=_needed(part, "text"))


def _image(part: dict[str, Any]) -> Content:
    return Content("image", data=_base64(part, "data"), mime_type=_needed(part, "mimeType"))


def _audio(part: dict[str, Any]) -> Content:
    return Content("audio", data=_base64(part, "data"), mime_type=_needed(part, "mimeType"))


def _resource(part: dict[str, Any]) -> Content:
    inner = part.get("resource")
    if not isinstance(inner, dict):
        raise _Malformed("missing `resource`")
    # A resource has either `blob` or `text` (BlobResourceContents, TextResourceContents).
    blob = _base64(inner, "blob") if "blob" in inner else None
    text = None if blob is not None else _needed(inner, "text")
    return Content(
        "resource", text=text, data=blob, mime_type=_optional(inner, "mimeType"), uri=_needed(inner, "uri")
    )


def _link(part: dict[str, Any]) -> Content:
    # The specification names `name` as the fallback for display.
    title = _optional(part, "title") or _optional(part, "name")
    return Content("resource", mime_type=_optional(part, "mimeType"), uri=_needed(part, "uri"), title=title)


_PARTS: Final[dict[str, Callable[[dict[str, Any]], Content]]] = {
    "text": _text,
    "image": _image,
    "audio": _audio,
    "resource": _resource,
    "resource_link": _link,
}


def _needed(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    if not isinstance(value, str):
        raise _Malformed(f"expected `{key}` to be text, got {_kind(value)}")
    return value


def _optional(part: dict[str, Any], key: str) -> str | None:
    return None if part.get(key) is None else _needed(part, key)


def _base64(part: dict[str, Any], key: str) -> str:
    """A base64 member, checked but not decoded."""
    text = _needed(part, key)
    try:
        b64decode(text, validate=True)
    # `binascii.Error` is a ValueError, and a non-ASCII character raises a plain ValueError.
    except ValueError:
        raise NoBase64 from None
    return text


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "an object")


_NOBODY_LISTENS = CallContext._field_defaults["emit"]
"""The default `emit`, which discards events."""


class BoundMcp:
    """A tool of an MCP server.

    Attributes:
        waits: Always true: a call waits for the server.
        origin: `mcp:` and the name of the server. The tools of a server share its limits and its circuit
            breaker.
        repeatable: Whether a call may be attempted again after an attempt that may have acted.
        own_defaults: Whether the input schema is the server's, which applies its own defaults.
    """

    waits = True

    def __init__(
        self, tool: Descriptor, server: Server, remote: str, overlay: ArgumentOverlay, connections: ServerPool
    ) -> None:
        """Create a bound tool.

        Args:
            tool: The descriptor.
            server: The configured server.
            remote: The name of the tool on the server.
            overlay: The compiled `args` of the descriptor.
            connections: The pool that starts and returns servers.
        """
        annotations = tool.annotations
        self.origin = f"mcp:{server.name}"
        self.repeatable = annotations.idempotent or annotations.read_only
        # The server distinguishes an argument that was not given from one with the value of its default.
        self.own_defaults = tool.origin.settings.get("input_schema") == place_of_server(server)
        self._tool = tool
        self._target = CallTarget(server, remote, tool.name, self.repeatable)
        self._overlay = overlay
        self._fixed = [name for name, _ in overlay.members]
        self._connections = connections
        self._secrets: SecretResolver = connections.world.secrets
        # The tool filter of a server also applies to a descriptor that names a filtered tool directly.
        self._filtered = None if server.offers(remote) else failures.result_of_filtered_tool(self._target)

    async def execute(self, call: Call) -> Result:
        """Make one attempt. The tool runs at most once."""
        if self._filtered is not None:
            return self._filtered
        try:
            arguments = self._overlay.over(call.arguments)
        except UnusableArguments as misfit:
            return misfit.refused(call, "mcp")
        try:
            result = await self._called(call, arguments)
        except ServerUnavailable as down:
            result = down.result
        if not self._may_tell(result):
            return result
        hide = partial(redact_result, result, self._secrets)
        # Masking a large value would block the event loop.
        if is_large(result.value, DEPTH):
            return await run_in_thread(call.context.session.clock, hide)
        return hide()

    def explain(self, call: Call) -> JSON | Result:
        """The server, the tool and the masked arguments of a call. Does not start the server."""
        if self._filtered is not None:
            return self._filtered
        try:
            arguments = self._overlay.over(call.arguments)
        except UnusableArguments as misfit:
            return misfit.refused(call, "mcp")
        server = self._target.server
        # Without a running server there is no catalogue: only the lock file itself is checked.
        verdict = self._connections.world.judge(server, None)
        refused = self._refused_by(verdict)
        if refused is not None:
            return refused
        plan: JSON = {
            "server": server.name,
            "transport": server.transport,
            "endpoint": display_address(server),
            "tool": self._target.tool,
            "arguments": redact(arguments, self._tool.input_schema),
        }
        return self._secrets.hide_in(plan)

    async def _called(self, call: Call, arguments: dict[str, JSON]) -> Result:
        """The result of the call. It is sent again on a new connection if it cannot have reached the server."""
        session = call.context.session
        name = self._target.server.name
        for last in (False, True):
            connection = await self._connections.get(name, session.id, session.clock)
            # The server works in real time, also if the session's clock is virtual.
            with session.clock.outside():
                try:
                    return await self._answer(connection, call, arguments)
                except ConnectionLoss as error:
                    # A call that was begun may have acted: only the engine's retry policy may repeat it.
                    if last or error.begun or connection.alive:
                        return self._lost(error)
        raise AssertionError("the second turn returns")

    def _lost(self, error: ConnectionLoss) -> Result:
        result, trouble = failures.result_of_lost_connection(self._target, error), error.trouble
        if trouble is None or not trouble.measured or result.error is None:
            return result
        limit = limit_details(self._tool, "output_size", self._tool.limits.output_size, trouble.measured)
        return result._replace(error=result.error._replace(details={**limit, **result.error.details}))

    async def _answer(self, connection: ServerConnection, call: Call, arguments: dict[str, JSON]) -> Result:
        """The result of a call on one connection.

        Raises:
            ConnectionLoss: The connection is lost, so no response can arrive.
        """
        target = self._target
        # The server may have announced a changed list. The lock must judge the current definitions.
        await connection.trusted()
        refused = self._refused_by(connection.verdict)
        if refused is None:
            refused = await self._unable(connection)
        if refused is not None:
            return refused
        most = self._tool.limits.output_size
        measure_call(call, connection.measured)
        try:
            raw = await connection.call(
                target.tool,
                arguments,
                progress=self._listener(call),
                # Otherwise the request carries no progress token, with which servers answer by an event stream.
                wanted=call.context.emit is not _NOBODY_LISTENS,
                trace=call.context.trace,
                most=most,
                annotate=call.context.annotate,
                traffic=traffic_of(call),
            )
            hide = self._secrets.hide_in_text
            make = partial(result_of, raw, target, self._tool, connection.catalogue, hide)
            # Parsing and validating a large response would block the event loop.
            large = approximate_size(raw, SMALL) > SMALL
            result = await run_in_thread(call.context.session.clock, make) if large else make()
        except ProtocolError as error:
            call.context.annotate({"rpc.response.status_code": str(error.number)})
            result = failures.result_of_protocol_error(target, error, connection.catalogue.tools)
        except IdleTimeout:
            result = failures.result_of_silence(target)
        except InvalidAnswer as error:
            result = failures.result_of_invalid_answer(target, error.message, error.raw)
        # A tool that fails because the server asked the client something (sampling, elicitation) that was not
        # answered reports only the failure; the message adds the cause.
        if result.outcome is Outcome.TOOL_ERROR:
            unanswered = connection.unanswered(result.message)
            return failures.append_message(result, unanswered) if unanswered else result
        return result

    def _listener(self, call: Call) -> Callable[[Progress], None]:
        """The receiver of progress events, which an operator sees, too."""
        hide = self._secrets.hide_in_text
        return lambda event: call.emit(event._replace(message=hide(event.message)))

    def _refused_by(self, verdict: LockVerdict) -> Result | None:
        """The result if the lock refuses the tool; None if it does not."""
        refused = verdict.refused
        if not refused:
            return None
        why = refused.get(self._target.tool) or refused.get("*")
        return None if why is None else failures.result_of_changed_tool(self._target, why)

    async def _unable(self, connection: ServerConnection) -> Result | None:
        """The result if the server's definition rules the call out before it is sent; None otherwise."""
        target = self._target
        definition = connection.catalogue.tools.get(target.tool)
        if definition is None:
            return await self._unlisted(connection)
        # Such a tool runs only as a task, which toolcrib does not support.
        execution = definition.get("execution")
        if isinstance(execution, dict) and execution.get("taskSupport") == "required":
            return failures.result_of_task_only_tool(target)
        return failures.result_of_fixed_arguments(target, self._fixed, definition)

    async def _unlisted(self, connection: ServerConnection) -> Result | None:
        """The result if the server does not have the tool; None if the tool may be called.

        A tool whose listed definition was refused may be called, by a descriptor with its own schema. So may
        any tool if the list was truncated.
        """
        target = self._target
        # Listed again first: not every server sends `notifications/tools/list_changed`.
        await connection.relisted()
        catalogue = connection.catalogue
        known = {*catalogue.tools, *catalogue.refused}
        return (
            None
            if target.tool in known or catalogue.remarks
            else failures.result_of_unknown_tool(target, catalogue.tools)
        )

    def _may_tell(self, result: Result) -> bool:
        """Whether a result may contain a secret."""
        # A search through one encoded text is cheap; masking walks and copies every value.
        if not self._secrets.known:
            return False
        parts = [part.as_json() for part in result.content]
        details: JSON = {} if result.error is None else dict(result.error.details)
        try:
            text = compact([result.value, result.message, details, result.raw_value, *parts])
        except (TypeError, ValueError):
            return True
        return self._secrets.knows(text.encode())
