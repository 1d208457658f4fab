"""Run the calls of a tool: a program for each call, or one that stays running."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from toolcrib.core.call_progress import record_progress
from toolcrib.core.child_process import ChildProcess
from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Call, Descriptor, Result
from toolcrib.core.process_limits import ExceededLimit, ProcessMonitor, ProcessUsage, exceeded_limit
from toolcrib.core.process_tree import ORPHAN_REAPER
from toolcrib.core.running_calls import measure_call
from toolcrib.core.sandbox import WRAPPERS
from toolcrib.executors.exec.command import MODE, LaunchPlan
from toolcrib.executors.exec.outcomes import (
    ProgramText,
    ended_result,
    exceeded_result,
    is_repeatable,
    sandbox_result,
    start_result,
    too_large_result,
    with_use,
)
from toolcrib.executors.exec.running_program import RunningPrograms
from toolcrib.executors.exec.wire_formats import default_input, input_bytes, read_output
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.approvals import approval_permission
from toolcrib.security.redaction import redact_result
from toolcrib.servers.environment import NetworkEnvironment

_LAST_OUTPUT = 0.5
"""Seconds to wait for the last output of a program that has exited, which a descendant may keep open."""


class BoundProgram:
    """A tool that a program runs.

    Attributes:
        waits: Always true: the deadline applies to every call.
        origin: Identifies the program to the limits of calls.
        repeatable: Whether a failed call may be repeated.
        asks: Whether the program may report that a call is pending until a person approves it.
    """

    waits = True

    def __init__(
        self,
        tool: Descriptor,
        plan: LaunchPlan,
        world: NetworkEnvironment,
        running: RunningPrograms | None,
        ending: set[asyncio.Task[None]],
        *,
        mark: str,
    ) -> None:
        """Create a bound tool.

        Args:
            tool: The descriptor.
            plan: What is started.
            world: Masks secrets.
            running: The programs that stay running; None to start one for each call.
            ending: Receives the tasks that end processes, which outlive cancelled calls.
            mark: The marks of the programs begin with it; it is registered with the orphan reaper at the first call.
        """
        block: Any = tool.bindings[MODE]
        self.tool = tool
        self.origin = f"{MODE}:{tool.name}"
        self.repeatable = is_repeatable(tool)
        self._plan = plan
        self._wire: str = block.get("wire", "text")
        self.asks = self._wire == "promptkit"
        self._ok = frozenset(block.get("ok_exit_codes", (0,)))
        self._world = world
        self._running = running
        self._ending = ending
        self._mark = mark
        self._text = ProgramText(tool.name, plan.name, world.secrets.hide_in_text)

    async def execute(self, call: Call) -> Result:
        """Run the call. A cancellation kills the program with everything that it started."""
        try:
            given = self._input(call)
            with call.context.session.clock.outside():
                if self._running is not None:
                    result = await self._running.answer(call, given)
                else:
                    arguments = self._plan.arguments(call.arguments)
                    environment = self._plan.environment(call.arguments)
                    result = await self._run(call, arguments, environment, given)
        except UnusableArguments as error:
            return error.refused(call, MODE)
        secrets = self._world.secrets
        return redact_result(result, secrets) if secrets.known else result

    def _input(self, call: Call) -> JSON:
        if self._plan.stdin is not None:
            return self._plan.stdin(call.arguments)
        approved = not approval_permission(self.tool.name).isdisjoint(call.context.grants)
        return default_input(self._wire, call.arguments, approved=approved)

    async def _run(
        self, call: Call, arguments: list[str], environment: dict[str, str], given: JSON
    ) -> Result:
        run = _ProgramRun(self._plan, self.tool.limits.output_size, self._mark)
        if self._plan.sandbox is None:
            ORPHAN_REAPER.add(self._mark)
        try:
            try:
                await run.start(arguments, environment, given)
                measure_call(call, run.so_far)
            except (OSError, ValueError) as error:
                return start_result(self._text, error)
            await run.finish()
        except asyncio.CancelledError:
            record_progress(call.id, attempts=call.attempt, reached=True)
            run.child.kill()
            raise
        finally:
            await self._end(run.child)
        return self._result(call, run)

    async def _end(self, child: ChildProcess) -> None:
        # A task of its own, and shielded: a cancelled caller must not leave processes behind.
        ending = asyncio.ensure_future(child.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    def _result(self, call: Call, run: _ProgramRun) -> Result:
        text, child = self._text, run.child
        if run.exceeded is not None:
            return with_use(exceeded_result(text, self.tool, run.exceeded), run.used)
        if run.too_large:
            return with_use(too_large_result(text, self.tool, run.size), run.used)
        if not run.has_run:
            return sandbox_result(text, child)
        if child.code not in self._ok:
            sandboxed = self._plan.sandbox is not None
            result = ended_result(text, child, sandboxed=sandboxed, output=run.output)
        else:
            result = self._value(call, run)
        return with_use(result, run.used)

    def _value(self, call: Call, run: _ProgramRun) -> Result:
        output = read_output(self._wire, run.output, self.tool.name)
        if output.failure is not None:
            return output.failure
        value = output.value
        if self._plan.result is not None:
            scope: dict[str, JSON] = {"args": call.arguments, "output": value, "exit_code": run.child.code}
            try:
                value = self._plan.result(scope)
            except ExpressionError as error:
                from toolcrib.core.model import Outcome  # noqa: PLC0415

                message = f"`exec.result` of `{self.tool.name}` cannot be computed: {error.message}"
                return Result.failure(Outcome.INVALID_RESULT, message, code=error.code)
        result = Result.success(value)
        return result.with_meta(warnings=[output.warning]) if output.warning else result

    def explain(self, call: Call) -> JSON | Result:
        """The command that would be run. Secrets are masked."""
        try:
            arguments = self._plan.arguments(call.arguments)
            given = self._input(call)
        except UnusableArguments as error:
            return error.refused(call, MODE)
        hide = self._world.secrets.hide_in_text
        sandbox = self._plan.sandbox
        return {
            "command": [hide(text) for text in (self._plan.program, *arguments)],
            "cwd": hide(self._plan.cwd),
            "stdin": None if given is None else hide(input_bytes(given).decode("utf-8", "replace")),
            "sandbox": "none"
            if sandbox is None
            else {
                "read": [hide(path) for path in sandbox.read],
                "write": [hide(path) for path in sandbox.write],
                "network": sandbox.network,
            },
        }


class _ProgramRun:
    """One run of a program.

    Attributes:
        child: Its process.
        output: What it wrote to its stdout.
        size: The size of it.
        too_large: Whether it wrote more than it may.
        has_run: Whether it was started; once it has ended.
        used: What it used; once it has ended.
        exceeded: The limit that it exceeded; None for none.
    """

    def __init__(self, plan: LaunchPlan, most: int, mark: str) -> None:
        self._plan = plan
        self._most = most
        self._chunks: list[bytes] = []
        self._monitor: ProcessMonitor | None = None
        self.child = ChildProcess(self._heard, lambda: None, marked=mark, sandbox=plan.sandbox)
        self.size = 0
        self.too_large = False
        self.has_run = False
        self.used = ProcessUsage()
        self.exceeded: ExceededLimit | None = None

    @property
    def output(self) -> bytes:
        return b"".join(self._chunks)

    async def start(self, arguments: list[str], environment: dict[str, str], given: JSON) -> None:
        """Start the program, and write its input.

        Raises:
            OSError: The system does not start it.
            ValueError: The input cannot be encoded.
        """
        plan = self._plan
        data = b"" if given is None else input_bytes(given)
        await self.child.start(
            plan.program, arguments, env=environment, cwd=plan.cwd, limits=plan.limits, stdin=bool(data)
        )
        wrappers = 0 if plan.sandbox is None else WRAPPERS
        self._monitor = ProcessMonitor(self.child.pid, plan.limits, self.child.kill, wrappers=wrappers)
        self._monitor.start()
        if data:
            # A program may end without reading its input.
            with suppress(BrokenPipeError):
                self.child.write(data)
            self.child.close_stdin()

    def so_far(self) -> dict[str, Any]:
        """What it has used so far, by name."""
        return {} if self._monitor is None else self._monitor.so_far()

    async def finish(self) -> None:
        """Wait until it has ended and its output was read."""
        try:
            await self.child.exited()
            await self.child.gone(_LAST_OUTPUT)
        finally:
            if self._monitor is not None:
                peak = self._monitor.stop(runs=self.child.code is None)
                self.used = peak.joined(self.child.usage)
                self.exceeded = self._monitor.exceeded or exceeded_limit(self.used, self._plan.limits)
        self.has_run = self.child.has_run

    def _heard(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= self._most:
            self._chunks.append(data)
        elif not self.too_large:
            self.too_large = True
            self.child.kill()
