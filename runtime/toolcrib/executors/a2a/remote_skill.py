"""A bound tool of an A2A agent: a call as a task of the agent, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid5

from toolcrib.core.call_progress import record_progress
from toolcrib.core.model import (
    JSON,
    NOTHING,
    OUTPUT_SIZE,
    Call,
    CallContext,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
)
from toolcrib.core.running_calls import traffic_of
from toolcrib.core.server_config import AGENT_MODE, LockVerdict, Server, place_of_server
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.redaction import redact, redact_result
from toolcrib.security.server_display import display_address
from toolcrib.servers.a2a.agents import AgentConnection, AgentPool
from toolcrib.servers.a2a.messages import SkillCall
from toolcrib.servers.a2a.numbers import is_inexact
from toolcrib.servers.a2a.outcomes import result_of_error, result_of_failure, result_of_task
from toolcrib.servers.a2a.tasks import AgentError, AgentTask
from toolcrib.servers.a2a.transport import REQUEST_TRACE, RequestTrace
from toolcrib.servers.argument_overlay import ArgumentOverlay
from toolcrib.servers.endpoint import ExchangeFailure
from toolcrib.servers.mcp.failures import (
    CallTarget,
    InvalidAnswer,
    ServerUnavailable,
    result_of_changed_tool,
    result_of_filtered_tool,
    result_of_fixed_arguments,
    result_of_invalid_answer,
    result_of_unknown_tool,
)

_NOBODY_LISTENS: Final = CallContext._field_defaults["emit"]
"""The default `emit`, which discards events."""


class BoundSkill:
    """A tool of an A2A agent, or of several agents that have it.

    Attributes:
        waits: Always true: a call waits for the agent.
        origin: `a2a:` and the name of the first agent. The tools of an agent share its limits and its circuit breaker.
        repeatable: Whether a call may be attempted again after an attempt that may have acted.
        own_defaults: Whether the input schema is that of an agent, which applies its own defaults.
    """

    waits = True

    def __init__(
        self,
        tool: Descriptor,
        agents: Sequence[Server],
        remote: str,
        overlay: ArgumentOverlay | None,
        pool: AgentPool,
    ) -> None:
        """Create a bound tool.

        Args:
            tool: The descriptor.
            agents: The configured agents, in the order in which they are called.
            remote: The agents' name for the tool.
            overlay: The compiled `args` of the descriptor; None for none.
            pool: The connections to the agents.
        """
        annotations = tool.annotations
        self.origin = f"a2a:{agents[0].name}"
        self.repeatable = annotations.idempotent or annotations.read_only
        inherited = tool.origin.settings.get("input_schema")
        self.own_defaults = any(inherited == place_of_server(agent) for agent in agents)
        block: Any = tool.bindings[AGENT_MODE]
        # An answer to a task is not made of the arguments that the descriptor describes.
        self._overlay = None if "task" in block else overlay
        self._pool = pool
        self._secrets = pool.world.secrets
        fixed = () if overlay is None else tuple(name for name, _ in overlay.members)
        self._skills = [_AgentSkill(tool, agent, remote, fixed, pool) for agent in agents]

    async def execute(self, call: Call) -> Result:
        """Make one attempt. The tool runs at most once, unless it may be repeated and an agent was lost."""
        if self._overlay is not None:
            try:
                call = call.with_arguments(self._overlay.over(call.arguments))
            except UnusableArguments as misfit:
                return misfit.refused(call, AGENT_MODE)
        # The agent works in real time, also if the session's clock is virtual.
        with call.context.session.clock.outside():
            result = await self._executed(call)
        return redact_result(result, self._secrets) if self._secrets.known else result

    async def _executed(self, call: Call) -> Result:
        """The result of the first agent that could be used for the call."""
        failed: list[JSON] = []
        for skill in self._skills:
            result = await skill.execute(call)
            if failed:
                result = result.with_meta(failover=[*failed])
            if skill is self._skills[-1] or not _may_go_elsewhere(result):
                return result
            code = "" if result.error is None else result.error.code
            failed.append({"agent": skill.agent, "code": code, "message": result.message})
        raise AssertionError("the last agent returns")

    def recheck(self) -> None:
        """Read the cards of the agents again: a result does not match the output schema."""
        for skill in self._skills:
            self._pool.recheck(skill.agent)

    def explain(self, call: Call) -> JSON | Result:
        """The agent, the tool and the masked arguments of a call. Does not contact the agent."""
        if self._overlay is not None:
            try:
                call = call.with_arguments(self._overlay.over(call.arguments))
            except UnusableArguments as misfit:
                return misfit.refused(call, AGENT_MODE)
        first, *others = self._skills
        plan = first.explain(call)
        if others and isinstance(plan, dict):
            plan["prefer"] = [skill.agent for skill in self._skills]
        return plan


def _may_go_elsewhere(result: Result) -> bool:
    """Whether another agent may make a call: its attempt was not sent, or was lost and may be repeated."""
    if result.outcome not in (Outcome.UNAVAILABLE, Outcome.TRANSPORT_ERROR):
        return False
    return result.error is not None and not result.error.details.get("may_have_acted")


class _AgentSkill:
    """The tool of one agent."""

    def __init__(
        self, tool: Descriptor, agent: Server, remote: str, fixed: tuple[str, ...], pool: AgentPool
    ) -> None:
        annotations = tool.annotations
        block: Any = tool.bindings[AGENT_MODE]
        self.agent = agent.name
        self._metadata: Mapping[str, JSON] = block.get("metadata", NOTHING)
        self._waiting: Mapping[str, str] = block.get("task", NOTHING)
        self._tool = tool
        self._fixed = fixed
        repeatable = annotations.idempotent or annotations.read_only
        self._target = CallTarget(agent, remote, tool.name, repeatable)
        self._pool = pool
        self._secrets = pool.world.secrets
        # The tool filter of an agent also applies to a descriptor that names a filtered tool directly.
        self._filtered = None if agent.offers(remote) else result_of_filtered_tool(self._target)

    def explain(self, call: Call) -> JSON | Result:
        """As `BoundSkill.explain`, for this agent."""
        if self._filtered is not None:
            return self._filtered
        agent = self._target.server
        # Without a connection there is no catalogue: only the lock file itself is checked.
        refused = self._refused_by(self._pool.world.judge(agent, None))
        if refused is not None:
            return refused
        plan: JSON = {
            "agent": agent.name,
            "endpoint": display_address(agent),
            "tool": self._target.tool,
            "arguments": redact(call.arguments, self._tool.input_schema),
        }
        return self._secrets.hide_in(plan)

    async def execute(self, call: Call) -> Result:
        """Make one attempt."""
        if self._filtered is not None:
            return self._filtered
        try:
            connection = self._pool.get(self._target.server.name)
            await connection.ready()
        except ServerUnavailable as down:
            return down.result
        refused = self._refused_by(connection.verdict)
        if refused is None:
            refused = await self._unable(connection)
        if refused is not None:
            return refused
        return await self._called(call, connection)

    async def _called(self, call: Call, connection: AgentConnection) -> Result:
        """The result of the call as a task of the agent."""
        sent = self._tool_call(call, connection)
        trace = RequestTrace(self._tool.limits.output_size, traffic_of(call))
        token = REQUEST_TRACE.set(trace)
        try:
            task = self._task(call, connection, sent, trace)
            # A task of its own: a caller that leaves must not end the exchange before the agent has named its task.
            running = asyncio.create_task(task.run())
        finally:
            REQUEST_TRACE.reset(token)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            why = await task.cancel(running)
            meta: dict[str, JSON] = {"remote": {"task_id": task.id}} if task.id else {}
            if why:
                meta["warnings"] = [
                    f"the agent `{self._target.server.name}` may still work on the call: {why}"
                ]
            record_progress(call.id, attempts=call.attempt, reached=task.begun, meta=meta)
            raise
        except ExchangeFailure as failure:
            return result_of_failure(failure, self._target, begun=task.begun)
        except AgentError as error:
            return await self._protocol_error(error, connection)
        except InvalidAnswer as invalid:
            return result_of_invalid_answer(self._target, invalid.message)
        except OverflowError:
            message = "an argument is a number that A2A cannot carry: it is larger than any double"
            return Result.failure(Outcome.INVALID_ARGUMENTS, message, code="number_too_large")
        result = self._result(task, sent)
        if result.outcome is Outcome.INVALID_ARGUMENTS:
            # Its tools may have changed since the card was read.
            await connection.refresh()
        return result

    def _result(self, task: AgentTask, sent: SkillCall) -> Result:
        try:
            result = result_of_task(task, self._target, self._tool.output_schema)
        except InvalidAnswer as invalid:
            return result_of_invalid_answer(self._target, invalid.message)
        if not sent.extension and is_inexact(sent.arguments):
            lost = "integers above 2^53 in the arguments may have lost digits: the agent does not declare the extension"
            told: Any = result.meta.get("warnings", [])
            result = result.with_meta(warnings=[*told, lost])
        return result

    async def _protocol_error(self, error: AgentError, connection: AgentConnection) -> Result:
        result = result_of_error(error, self._target)
        # Its tools may have changed since the card was read.
        if result.error is not None and result.error.code == "a2a_invalid_params":
            await connection.refresh()
        return result

    def _task(
        self, call: Call, connection: AgentConnection, sent: SkillCall, trace: RequestTrace
    ) -> AgentTask:
        hide = self._secrets.hide_in_text
        listens = call.context.emit is not _NOBODY_LISTENS

        def report(event: Progress) -> None:
            call.emit(event._replace(message=hide(event.message)))

        def emit(event: Partial) -> None:
            text = event.content.text
            call.emit(event if text is None else Partial(event.content._replace(text=hide(text))))

        return AgentTask(
            connection,
            sent,
            headers=call.context.trace,
            trace=trace,
            most=trace.most,
            report=report,
            emit=emit if listens else None,
        )

    def _tool_call(self, call: Call, connection: AgentConnection) -> SkillCall:
        card, tool = connection.card, self._target.tool
        given = call.arguments.get("text")
        takes_text = tool in card.texts or (self._waiting and call.arguments.keys() == {"text"})
        clock = call.context.session.clock
        return SkillCall(
            tool,
            call.arguments,
            message_id=str(uuid5(self._pool.namespace, call.id)),
            text=given if takes_text and isinstance(given, str) else None,
            timeout=None if call.deadline is None else max(call.deadline - clock.monotonic(), 0.0),
            metadata=self._metadata_of(call),
            extension=card.extension,
            task_id=self._waiting.get("task_id", ""),
            context_id=self._waiting.get("context_id", ""),
        )

    def _metadata_of(self, call: Call) -> Mapping[str, JSON]:
        """What the agent may know of the call besides its arguments."""
        key = call.context.idempotency_key
        return {**self._metadata, "idempotency_key": key} if key else self._metadata

    def _refused_by(self, verdict: LockVerdict) -> Result | None:
        """The result if the lock refuses the tool; None if it does not."""
        refused = verdict.refused
        why = refused.get(self._target.tool) or refused.get("*")
        return None if why is None else result_of_changed_tool(self._target, why)

    async def _unable(self, connection: AgentConnection) -> Result | None:
        """The result if the agent does not have the tool, even in its current card, or refuses its fixed arguments."""
        target = self._target
        for last in (False, True):
            catalogue = connection.catalogue
            if target.tool in catalogue.tools:
                return result_of_fixed_arguments(target, self._fixed, catalogue.tools[target.tool])
            if target.tool in catalogue.refused:
                return None
            if not last:
                await connection.refresh()
        return result_of_unknown_tool(target, connection.catalogue.tools)


async def result_of_known_task(connection: AgentConnection, task_id: str, *, cancel: bool) -> Result:
    """The result of a task that this program need not have begun, after its cancellation if that is wanted."""
    agent = connection.agent
    target = CallTarget(agent, "", task_id, repeatable=True)
    task = AgentTask(
        connection,
        SkillCall("", {}, message_id="", task_id=task_id),
        headers={},
        trace=RequestTrace(),
        most=OUTPUT_SIZE,
        report=lambda _event: None,
        emit=None,
    )
    task.answers = False
    try:
        await (task.end() if cancel else task.look())
        return result_of_task(task, target, None)
    except ExchangeFailure as failure:
        return result_of_failure(failure, target, begun=True)
    except AgentError as error:
        return result_of_error(error, target)
    except InvalidAnswer as invalid:
        return result_of_invalid_answer(target, invalid.message)
