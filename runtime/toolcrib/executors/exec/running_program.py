"""Programs that stay running: one line for each call, and one line for each answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

from toolcrib.core.call_progress import record_progress
from toolcrib.core.child_process import ChildProcess
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.core.process_limits import ExceededLimit, ProcessMonitor, ProcessUsage
from toolcrib.core.running_calls import measure_call
from toolcrib.core.sandbox import WRAPPERS
from toolcrib.executors.exec.command import MODE, LaunchPlan
from toolcrib.executors.exec.outcomes import (
    ProgramText,
    acted,
    exceeded_result,
    sandbox_result,
    start_result,
    too_large_result,
    with_use,
)
from toolcrib.executors.exec.wire_formats import (
    Output,
    output_of_response,
    read_output,
    read_response,
    request_line,
)
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.servers.environment import NetworkEnvironment

_LAST_OUTPUT = 1.0
"""Seconds that a program whose stdout has ended may still run."""


_CLOSED = "closed its stdout"


class ProgramEnded(Exception):
    """A program ended before it answered."""


class RunningProgram:
    """One process of a program.

    Args:
        plan: What is started.
        wire: The wire format of its lines.
        most: Maximum size of a line that it writes, in bytes.

    Attributes:
        child: Its process.
        ended: How it ended; empty while it runs.
        exceeded: The limit that it exceeded; None so far.
        too_large: The size of a line that was too long; 0 so far.
    """

    def __init__(self, plan: LaunchPlan, wire: str, most: int) -> None:
        self._plan = plan
        self._wire = wire
        self._most = most
        self._rest: list[bytes] = []
        self._size = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._monitor: ProcessMonitor | None = None
        self._started = False
        self._was_deaf = False
        self.child = ChildProcess(self._heard, self._silent, sandbox=plan.sandbox)
        self.ended = ""
        self.exceeded: ExceededLimit | None = None
        self.too_large = 0

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: The system does not start it.
            ValueError: An argument contains a null character.
        """
        plan = self._plan
        arguments, environment = plan.arguments({}), plan.environment({})
        await self.child.start(plan.program, arguments, env=environment, cwd=plan.cwd, limits=plan.limits)
        self._started = True
        wrappers = 0 if plan.sandbox is None else WRAPPERS
        self._monitor = ProcessMonitor(self.child.pid, plan.limits, self._over_limit, wrappers=wrappers)

    def so_far(self) -> dict[str, Any]:
        """What the process has used so far for the call that it runs; unknown while it runs several."""
        alone = self._monitor is not None and len(self._waiting) == 1
        return self._monitor.so_far() if alone and self._monitor is not None else {}

    async def ask(self, number: int, line: bytes) -> Any:
        """Send a line, and return what answers it: a line, or a response of JSON-RPC.

        Raises:
            BrokenPipeError: The process ended before the line was sent.
            ProgramEnded: It ended before it answered.
        """
        if self.ended:
            raise BrokenPipeError
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        monitor = self._monitor
        if monitor is not None and len(self._waiting) == 1:
            monitor.start(anew=True)
        try:
            self.child.write(line)
            return await answer
        finally:
            del self._waiting[number]

    def used(self) -> ProcessUsage:
        """What the process used for the call that has just ended; unknown while it runs others."""
        if self._monitor is None or self._waiting:
            return ProcessUsage()
        used = self._monitor.stop(runs=self.child.code is None)
        if self._monitor.exceeded is not None:
            self._over_limit()
        return used

    def kill(self) -> None:
        """Kill the process and everything that it started, without waiting."""
        self.ended = self.ended or "was terminated"
        if self._started:
            self.child.kill()

    async def end(self) -> None:
        """End the process: its stdin is closed first."""
        if self._started:
            await self.child.end()

    def _over_limit(self) -> None:
        assert self._monitor is not None  # noqa: S101 -- it called this
        self.exceeded = self._monitor.exceeded
        self.child.kill()

    def _heard(self, data: bytes) -> None:
        while data:
            line, end, data = data.partition(b"\n")
            self._size += len(line)
            if self._size > self._most:
                self.too_large, self._rest, self._size = self._size, [], 0
                self.kill()
                return
            self._rest.append(line)
            if end:
                whole = b"".join(self._rest)
                self._rest, self._size = [], 0
                self._answer(whole)

    def _answer(self, line: bytes) -> None:
        if self._wire == "promptkit":
            number, response = read_response(line)
            # Anything else is not an answer: a log line, a notification, or the answer to a cancelled call.
            found = self._waiting.get(-1 if number is None else number)
            if found is not None and not found.done():
                found.set_result(response)
            return
        if not self._waiting:
            # It would be taken for the answer of the next call.
            self.kill()
            return
        [answer] = self._waiting.values()
        if answer.done():
            self.kill()
        else:
            answer.set_result(line)

    def _silent(self) -> None:
        """Called when the process exits or its stdout ends."""
        loop = asyncio.get_running_loop()
        if self.child.code is not None:
            # What asyncio has already read is delivered first.
            loop.call_soon(self._gone)
        elif not self.ended:
            # Without its stdout it cannot answer any more.
            self.ended = _CLOSED
            loop.call_later(_LAST_OUTPUT, self._deaf)

    def _deaf(self) -> None:
        if self.child.code is None:
            self._was_deaf = True
            self.child.kill()

    def _gone(self) -> None:
        if self.child.waits_in_pipe():
            asyncio.get_running_loop().call_soon(self._gone)
            return
        if self.ended == _CLOSED and not self._was_deaf:
            # It was ending, and its exit code is the better explanation.
            self.ended = ""
        self.ended = self.ended or self.child.describe_end()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ProgramEnded(self.ended))


class _ProgramKeeper:
    """The program of one tool in one event loop: started when a call needs it, and again after it has ended."""

    def __init__(self, tool: Descriptor, plan: LaunchPlan, world: NetworkEnvironment) -> None:
        block: Any = tool.bindings[MODE]
        self._tool = tool
        self._plan = plan
        self._wire: str = block.get("wire", "text")
        self._most: int = block.get("concurrency", 1)
        self._free = asyncio.Semaphore(self._most)
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._program: RunningProgram | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._text = ProgramText(tool.name, plan.name, world.secrets.hide_in_text)
        self._retired = False
        self._calls = 0

    @property
    def empty(self) -> bool:
        return self._program is None and not self._tasks

    async def answer(self, call: Call, given: JSON) -> Result:
        number = next(self._numbers)
        try:
            line = request_line(self._wire, number, given)
        except ValueError:
            hint = "a call of a program that stays running is one line"
            raise UnusableArguments("the input of the program contains a line break", hint=hint) from None
        self._calls += 1
        try:
            # While a virtual call waits for its turn, the others wait for the outside world.
            async with self._free:
                return await self._asked(call, number, line)
        finally:
            self._calls -= 1
            if self._retired and not self._calls:
                self._drop()

    async def _asked(self, call: Call, number: int, line: bytes) -> Result:
        while True:
            try:
                before = self._program
                program = await self._ready()
            except (OSError, ValueError) as error:
                return start_result(self._text, error)
            measure_call(call, program.so_far)
            try:
                answer = await program.ask(number, line)
            except BrokenPipeError:
                # It ended while it was idle, and the call did not reach it.
                if program is before:
                    self._drop(program)
                    continue
                await program.child.gone(_LAST_OUTPUT)
                result = self._unasked(program)
                self._drop(program)
                return result
            except ProgramEnded:
                used = program.used()
                await program.child.gone(_LAST_OUTPUT)
                result = self._lost(program)
                self._drop(program)
                return with_use(result, used) if result.outcome is not Outcome.UNAVAILABLE else result
            except asyncio.CancelledError:
                record_progress(call.id, attempts=call.attempt, reached=True)
                # The late answer would be taken for that of the next call, and nothing else stops the work. Other calls
                # that it serves continue.
                if self._most == 1:
                    program.kill()
                    self._drop(program)
                raise
            used = program.used()
            if program.exceeded is not None:
                result = exceeded_result(self._text, self._tool, program.exceeded)
                self._drop(program)
                return with_use(result, used)
            return with_use(self._result(answer), used)

    async def _ready(self) -> RunningProgram:
        async with self._starting:
            # The event loop may not have noticed yet that an idle program has ended.
            if self._program is None or self._program.ended or self._program.child.is_dead():
                self._drop(self._program)
                program = RunningProgram(self._plan, self._wire, self._tool.limits.output_size)
                try:
                    await program.start()
                except asyncio.CancelledError:
                    program.kill()
                    raise
                self._program = program
            return self._program

    def _result(self, answer: Any) -> Result:
        name = self._tool.name
        output: Output = (
            output_of_response(answer, name)
            if self._wire == "promptkit"
            else read_output(self._wire, answer, name)
        )
        if output.failure is not None:
            return output.failure
        result = Result.success(output.value)
        return result.with_meta(warnings=[output.warning]) if output.warning else result

    def _unasked(self, program: RunningProgram) -> Result:
        """The result of a call whose program ended before it could be asked."""
        if not program.child.has_run:
            return sandbox_result(self._text, program.child)
        said = self._text.stderr_of(program.child)
        message = f"`{self._text.name}` {program.child.describe_end()} before it read a line"
        return Result.failure(
            Outcome.UNAVAILABLE, f"{message}: {said}" if said else message, code="not_started"
        )

    def _lost(self, program: RunningProgram) -> Result:
        """The result of a call whose program ended before it answered."""
        if program.exceeded is not None:
            return exceeded_result(self._text, self._tool, program.exceeded)
        if program.too_large:
            return too_large_result(self._text, self._tool, program.too_large)
        if not program.child.has_run:
            return sandbox_result(self._text, program.child)
        message = f"`{self._text.name}` {program.ended} before it answered"
        said = self._text.stderr_of(program.child)
        details: dict[str, JSON] = {**acted(self._tool), **({"stderr": said} if said else {})}
        return Result.failure(
            Outcome.UNKNOWN_OUTCOME,
            f"{message}: {said}" if said else message,
            code="program_ended",
            details=details,
        )

    def _drop(self, program: RunningProgram | None = None) -> None:
        """End the current program, or one that is not to be used any more."""
        program = program or self._program
        if program is None:
            return
        if self._program is program:
            self._program = None
        self._task(program.end())

    def retire(self) -> None:
        """End the program once its calls have ended."""
        self._retired = True
        if not self._calls:
            self._drop()

    async def aclose(self) -> None:
        """End the program, also while it runs a call."""
        self._retired = True
        if self._program is not None and self._calls:
            self._program.kill()
        self._drop()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class RunningPrograms:
    """The programs of one tool, one in every event loop that calls it.

    Args:
        tool: The descriptor.
        plan: What is started.
        world: Masks secrets.
    """

    def __init__(self, tool: Descriptor, plan: LaunchPlan, world: NetworkEnvironment) -> None:
        from toolcrib.http.client import PerLoop  # noqa: PLC0415 -- few tools have programs that stay running

        self._keepers = PerLoop(lambda: self._made(tool, plan, world))
        self._opened: list[tuple[asyncio.AbstractEventLoop, _ProgramKeeper]] = []

    def _made(self, tool: Descriptor, plan: LaunchPlan, world: NetworkEnvironment) -> _ProgramKeeper:
        keeper = _ProgramKeeper(tool, plan, world)
        self._opened = [each for each in self._opened if not each[0].is_closed()]
        self._opened.append((asyncio.get_running_loop(), keeper))
        return keeper

    async def answer(self, call: Call, given: JSON) -> Result:
        """Let the program of the running loop answer a call.

        Raises:
            UnusableArguments: The input is no single line.
        """
        keeper = await self._keepers.get()
        return await keeper.answer(call, given)

    @property
    def empty(self) -> bool:
        """Whether no program is left."""
        return all(loop.is_closed() or keeper.empty for loop, keeper in self._opened)

    def retire(self) -> None:
        """End every program once its calls have ended."""
        for loop, keeper in self._opened:
            if not loop.is_closed():
                # A process belongs to the loop that started it.
                loop.call_soon_threadsafe(keeper.retire)

    async def aclose(self) -> None:
        """End all programs, also those that run a call."""
        await self._keepers.aclose()
