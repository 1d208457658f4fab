"""A tool of an MCP server, ready to be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from toolcrib.core.clock import run_in_thread
from toolcrib.core.model import JSON, Call, CallContext, Descriptor, Outcome, Progress, Result
from toolcrib.core.server_config import Server, Verdict
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact
from toolcrib.executors.mcp.argument_overlay import ArgumentOverlay
from toolcrib.schema.validation.json_values import DEPTH, SMALL, is_large
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.redaction import redact
from toolcrib.security.secrets import Vault
from toolcrib.security.secrets.result_redaction import masked
from toolcrib.security.server_display import address_of
from toolcrib.servers.mcp import failures
from toolcrib.servers.mcp.failures import (
    CallTarget,
    ConnectionLoss,
    IdleTimeout,
    InvalidAnswer,
    ProtocolError,
    ServerUnavailable,
)
from toolcrib.servers.mcp.supervisor import ServerPool

if TYPE_CHECKING:
    from toolcrib.servers.mcp.connection import ServerConnection

_NOBODY_LISTENS = CallContext._field_defaults["emit"]


class BoundMcp:
    """A tool of a server.

    Attributes:
        waits: A call waits for the world.
        origin: `mcp:` and the name of the server, whose limits and circuit its tools share.
        repeatable: Whether an attempt may follow another one that may have acted.
    """

    waits = True

    def __init__(
        self, tool: Descriptor, server: Server, remote: str, overlay: ArgumentOverlay, connections: ServerPool
    ) -> None:
        """Hold what every call needs.

        Args:
            tool: The descriptor.
            server: The server.
            remote: Its name for the tool.
            overlay: What the descriptor does to arguments.
            connections: Where the server is found.
        """
        annotations = tool.annotations
        self.origin = f"mcp:{server.name}"
        self.repeatable = annotations.idempotent or annotations.read_only
        self._tool = tool
        self._target = CallTarget(server, remote, tool.name, self.repeatable)
        self._overlay = overlay
        self._fixed = [name for name, _ in overlay.members]
        self._connections = connections
        self._vault: Vault = connections.world.vault
        self._filtered = None if server.offers(remote) else failures.result_of_filtered_tool(self._target)

    async def execute(self, call: Call) -> Result:
        """One attempt: the tool is called at most once."""
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
        hide = partial(masked, result, self._vault)
        if is_large(result.value, DEPTH):
            return await run_in_thread(call.context.session.clock, hide)
        return hide()

    def explain(self, call: Call) -> JSON | Result:
        """The server, the tool and the arguments that it would get, masked. Nothing is started."""
        if self._filtered is not None:
            return self._filtered
        try:
            arguments = self._overlay.over(call.arguments)
        except UnusableArguments as misfit:
            return misfit.refused(call, "mcp")
        server = self._target.server
        verdict = self._connections.world.judge(server, None)
        refused = self._refused_by(verdict)
        if refused is not None:
            return refused
        plan: JSON = {
            "server": server.name,
            "transport": server.transport,
            "endpoint": address_of(server),
            "tool": self._target.tool,
            "arguments": redact(arguments, self._tool.input_schema),
        }
        return self._vault.hide_in(plan)

    async def _called(self, call: Call, arguments: dict[str, JSON]) -> Result:
        """Call once more over a new connection where nothing of the first call can have reached the server."""
        session = call.context.session
        name = self._target.server.name
        for last in (False, True):
            connection = await self._connections.get(name, session.id, session.clock)
            with session.clock.outside():
                try:
                    return await self._answer(connection, call, arguments)
                except ConnectionLoss as error:
                    if last or error.begun or connection.alive:
                        return failures.result_of_lost_connection(self._target, error)
        raise AssertionError("the second turn returns")

    async def _answer(self, connection: ServerConnection, call: Call, arguments: dict[str, JSON]) -> Result:
        """What a connection makes of a call.

        Raises:
            Broken: No answer can come any more.
        """
        target = self._target
        await connection.trusted()
        refused = self._refused_by(connection.verdict) or await self._unable(connection)
        if refused is not None:
            return refused
        try:
            raw = await connection.call(
                target.tool, arguments, progress=self._listener(call.context), trace=call.context.trace
            )
            from toolcrib.executors.mcp.results import result_of  # noqa: PLC0415 -- once a call came so far
            from toolcrib.servers.mcp.tool_list import approximate_size  # noqa: PLC0415 -- as above

            hide = self._vault.hide_in_text
            most = self._tool.limits.output_size
            make = partial(
                result_of, raw, target, self._tool.output_schema, connection.catalogue, hide, most=most
            )
            large = approximate_size(raw, SMALL) > SMALL
            result = await run_in_thread(call.context.session.clock, make) if large else make()
        except ProtocolError as error:
            result = failures.result_of_protocol_error(target, error, connection.catalogue.tools)
        except IdleTimeout:
            result = failures.result_of_silence(target)
        except InvalidAnswer as error:
            result = failures.result_of_invalid_answer(target, error.message, error.raw)
        if result.outcome is Outcome.TOOL_ERROR:
            unanswered = connection.unanswered(result.message)
            return failures.with_more(result, unanswered) if unanswered else result
        return result

    def _listener(self, context: CallContext) -> Callable[[Progress], None] | None:
        """What is told how far a call is; None where nobody listens."""
        emit, hide = context.emit, self._vault.hide_in_text
        if emit is _NOBODY_LISTENS:
            return None
        return lambda event: emit(event._replace(message=hide(event.message)))

    def _refused_by(self, verdict: Verdict) -> Result | None:
        """The result where a lock refuses the tool."""
        refused = verdict.refused
        if not refused:
            return None
        why = refused.get(self._target.tool) or refused.get("*")
        return None if why is None else failures.result_of_changed_tool(self._target, why)

    async def _unable(self, connection: ServerConnection) -> Result | None:
        """The result where what the server has listed says beforehand that it can't be called so."""
        target = self._target
        definition = connection.catalogue.tools.get(target.tool)
        if definition is None:
            return await self._unlisted(connection)
        execution = definition.get("execution")
        if isinstance(execution, dict) and execution.get("taskSupport") == "required":
            return failures.result_of_task_only_tool(target)
        taken = closed_names(definition["inputSchema"]) if self._fixed else None
        unknown = [] if taken is None else [name for name in self._fixed if name not in taken]
        return failures.result_of_bad_fixed_arguments(target, unknown, taken or ()) if unknown else None

    async def _unlisted(self, connection: ServerConnection) -> Result | None:
        """The result where the server has no such tool; it is asked once more, for not all tell that their list changed.

        A tool that it has, with a definition that is refused, may be called by a descriptor with a schema of its own.
        So may any, where the list was cut.
        """
        target = self._target
        await connection.relisted()
        catalogue = connection.catalogue
        known = {*catalogue.tools, *catalogue.refused}
        return (
            None
            if target.tool in known or catalogue.remarks
            else failures.result_of_unknown_tool(target, catalogue.tools)
        )

    def _may_tell(self, result: Result) -> bool:
        """Whether a result may hold a secret: a quick look, which may spare a long one."""
        if not self._vault.known:
            return False
        parts = [part.as_json() for part in result.content]
        details: JSON = {} if result.error is None else dict(result.error.details)
        try:
            text = compact([result.value, result.message, details, result.raw_value, *parts])
        except (TypeError, ValueError):
            return True
        return self._vault.knows(text.encode())
