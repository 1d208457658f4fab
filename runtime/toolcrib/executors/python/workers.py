"""Worker processes: started when a call needs one, kept warm, replaced after they have died, ended with all that they started."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.call_progress import record_progress
from toolcrib.core.child_process import ChildProcess, inherited_environment
from toolcrib.core.clock import format_duration
from toolcrib.core.errors import ConfigurationError, DocumentError, NotReady
from toolcrib.core.hooks import import_folders
from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import (
    JSON,
    Call,
    Content,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
    ToolAnswer,
    TrustedAnswer,
    Usage,
    as_result,
)
from toolcrib.core.process_limits import (
    UNKNOWN_USAGE,
    ExceededLimit,
    ProcessLimits,
    ProcessMonitor,
    ProcessUsage,
    measure_processes,
)
from toolcrib.core.running_calls import measure_call
from toolcrib.core.sandbox import WRAPPERS, Sandbox
from toolcrib.core.text import format_size
from toolcrib.executors.python.bound_function import refused_arguments, unwritable_result
from toolcrib.executors.python.declarations import MODE
from toolcrib.executors.python.instances import ResourceTable
from toolcrib.executors.python.services import read_secret
from toolcrib.executors.python.worker_messages import (
    ToolDescription,
    decode,
    encode,
    encode_plain,
    result_from_json,
)
from toolcrib.schema.validation import Violation
from toolcrib.schema.validation.json_values import DEPTH, SMALL, budget_for_bytes, remaining_budget
from toolcrib.security.access import PATH_NOT_ALLOWED, report_refusal
from toolcrib.security.path_access import EVERYWHERE
from toolcrib.security.redaction import Redactor, redact_result
from toolcrib.security.secrets import MissingSecret

if TYPE_CHECKING:
    from toolcrib.servers.environment import NetworkEnvironment

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from toolcrib.executors.python.worker_program import main; main()"
)

_LAST_OUTPUT = 1.0
"""Seconds to wait for the last output of a worker that has exited."""

_UNUSED = 60.0
"""Seconds after which an idle worker ends, unless it is the only one."""

_SHOWN = 1000
"""Characters of stderr in a message."""


class WorkerSettings(NamedTuple):
    """What a worker runs, and within which limits.

    Attributes:
        call: `module:name` of the function or class.
        block: The block `python` as JSON, so that equal settings are equal.
        schema: The input schema of the descriptor as JSON; empty if the function provides it.
        folders: Folders of the trusted project and of packs whose modules may be imported.
        output_size: Maximum size of a result in bytes.
        limits: The limits of its process.
        sandbox: Its sandbox; None for none.
        most: Maximum number of workers.
        paths: The files that `session.paths` opens; see `PathAccess.fields`.
    """

    call: str
    block: str
    schema: str
    folders: tuple[str, ...]
    output_size: int
    limits: ProcessLimits
    sandbox: Sandbox | None
    most: int
    paths: tuple[str, tuple[str, ...] | None, tuple[str, ...] | None, bool] = EVERYWHERE.fields

    @property
    def order(self) -> bytes:
        """The first message to a worker."""
        order = {
            "call": self.call,
            "block": json.loads(self.block),
            "schema": json.loads(self.schema) if self.schema else None,
            "output_size": self.output_size,
            "paths": self.paths,
        }
        return encode("start", order)


class WorkerFailure(Exception):
    """A worker ended, or never became ready.

    Attributes:
        code: Code of the result.
        message: How it ended, for example `exited with code 1`.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.code = kind
        self.message = message


class WorkerExceeded(WorkerFailure):
    """A worker was ended because it exceeded a limit.

    Attributes:
        limit: The limit.
    """

    def __init__(self, limit: ExceededLimit) -> None:
        super().__init__(limit.code, kind=limit.code)
        self.limit = limit


class WorkerProcess:
    """One worker process. It runs one call at a time.

    Args:
        settings: What it runs.
        hide: Masks secrets in its stderr.

    Attributes:
        description: What the types of its tool say; once it is ready.
        fits: Whether its tool fits the descriptor; once it is ready.
        idle_since: When its last call ended, on the clock of the event loop.
        failure: How it ended; None while it runs.
        used: What it used for its last call; unknown unless it has limits.
    """

    def __init__(self, settings: WorkerSettings, hide: Callable[[str], str]) -> None:
        self._settings = settings
        self._hide = hide
        self._child = ChildProcess(self._heard, self._silent, sandbox=settings.sandbox)
        self._rest: list[bytes] = []
        self._reply: asyncio.Future[list[Any]] | None = None
        self._hear: Callable[[list[Any]], None] = lambda _message: None
        self._monitor: ProcessMonitor | None = None
        self.used = UNKNOWN_USAGE
        self._started = False
        self.description: ToolDescription
        self.fits = False
        self.idle_since = 0.0
        self.failure: WorkerFailure | None = None

    async def start(self) -> None:
        """Start the process and let it import its tool.

        Raises:
            WorkerFailure: It does not start, it ends before it is ready, or the tool cannot be used as configured.
        """
        settings = self._settings
        folders = json.dumps(import_folders(settings.folders))
        # `-I` ignores PYTHON* variables and the working directory; the search path is the one of this process.
        args = ["-I", "-c", _BOOT, folders]
        env = inherited_environment(os.environ)
        here = os.getcwd() if settings.sandbox is None else ""
        # A worker without limits is not measured, which takes longer than a short call.
        limits = settings.limits if settings.limits.written else None
        try:
            await self._child.start(sys.executable, args, env=env, cwd=here, limits=limits)
        except (OSError, ValueError) as error:
            raise WorkerFailure(
                kind="worker_failed", message=f"cannot be started: {type(error).__name__}"
            ) from None
        self._started = True
        if limits is not None:
            wrappers = 0 if settings.sandbox is None else WRAPPERS
            self._monitor = ProcessMonitor(self._child.pid, limits, self._over_limit, wrappers=wrappers)
        try:
            message = await self.ask(settings.order)
        except BrokenPipeError:
            # It exited at once; how is known once asyncio has noticed.
            message = await self._exit()
        if message[0] == "refused":
            raise WorkerFailure(self._hide(message[2]), kind=message[1])
        self.description = ToolDescription(*message[1])
        self.fits = not self.description.problem_fields

    def is_dead(self) -> bool:
        """Whether the process has ended, even if the event loop has not noticed it yet."""
        return self._child.is_dead()

    def so_far(self) -> dict[str, Any]:
        """What it has used so far, by name; without limits, the time before the call is unknown, and so that of the call."""
        if self._monitor is not None:
            return self._monitor.so_far()
        if self._child.code is not None:
            return {}
        wrappers = 0 if self._settings.sandbox is None else WRAPPERS
        used = measure_processes(self._child.pid, wrappers=wrappers)
        return {"memory": used.memory, "processes": used.processes}

    def ask(
        self, request: bytes, hear: Callable[[list[Any]], None] = lambda _message: None
    ) -> asyncio.Future[list[Any]]:
        """Send a message. The future receives the answer that ends it, or a `WorkerFailure`.

        Whoever stops waiting for the answer has to kill the worker.

        Args:
            request: The encoded message.
            hear: Receives the events before the answer.

        Raises:
            BrokenPipeError: The process ended before the message was sent.
        """
        if self.failure is not None:
            raise BrokenPipeError
        self._hear = hear
        self._reply = reply = asyncio.get_running_loop().create_future()
        if self._monitor is not None:
            # Before the request is sent: whatever the worker uses from then on belongs to the call.
            self._monitor.start(anew=True)
        # A worker that already exceeds a limit was killed; the future receives the failure.
        if self.failure is None:
            self._child.write(request)
        return reply

    async def _exit(self) -> list[Any]:
        if self.failure is not None:
            raise self.failure
        self._reply = reply = asyncio.get_running_loop().create_future()
        answer: list[Any] = await reply
        return answer

    def send(self, *message: Any) -> None:
        """Answer a question of the running call."""
        self._child.write(encode(*message))

    def kill(self) -> None:
        """Kill the process and everything that it started, without waiting."""
        if self.failure is None:
            self.failure = WorkerFailure(kind="worker_died", message="was terminated")
        self._measured()
        if self._started:
            self._child.kill()

    async def end(self) -> None:
        """End the process and everything that it started: its instances are closed first, within 2 s."""
        if self._started:
            await self._child.end()

    async def last_words(self) -> str:
        """The last part of its stderr, masked, after it has ended; empty if it wrote nothing."""
        await self._child.gone(_LAST_OUTPUT)
        text = self._child.last_words(self._hide).strip()
        return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"

    def _heard(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if self._rest and lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        if rest:
            self._rest.append(rest)
        for line in lines:
            message = decode(line)
            if message[0] in _EVENTS:
                self._hear(message)
                continue
            reply, self._reply = self._reply, None
            self._measured()
            if self._monitor is not None and self._monitor.exceeded is not None:
                self._over_limit()
            if reply is None or reply.done():
                continue
            if self.failure is None:
                reply.set_result(message)
            else:
                reply.set_exception(self.failure)

    def _silent(self) -> None:
        """Called when the process exits or its output ends."""
        loop = asyncio.get_running_loop()
        if self._child.code is not None:
            # What asyncio has already read is delivered first; a descendant may keep the pipe open.
            loop.call_soon(self._gone)
        elif self.failure is None:
            # Its code closed the pipe to us, so it can no longer be used.
            loop.call_later(_LAST_OUTPUT, self.kill)

    def _gone(self) -> None:
        if self._child.waits_in_pipe():
            asyncio.get_running_loop().call_soon(self._gone)
            return
        if self.failure is None:
            self.failure = WorkerFailure(kind="worker_died", message=self._child.describe_end())
        self._measured()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self.failure)
            self._reply.exception()  # seen, also if the call is cancelled now

    def _over_limit(self) -> None:
        assert self._monitor is not None  # noqa: S101 -- it called this
        assert self._monitor.exceeded is not None  # noqa: S101 -- as above
        self.failure = WorkerExceeded(self._monitor.exceeded)
        self._child.kill()

    def _measured(self) -> None:
        """Record what the call that has ended used."""
        if self._monitor is not None:
            self.used = self._monitor.stop(runs=self._child.code is None)


_EVENTS = frozenset({"progress", "partial", "refusal", "secret"})


class WorkerPool:
    """The workers of one event loop.

    Args:
        settings: What they run.
        hide: Masks secrets in their stderr.
        unused: Seconds after which an idle worker ends, unless it is the only one.
    """

    def __init__(self, settings: WorkerSettings, hide: Callable[[str], str], unused: float = _UNUSED) -> None:
        self._settings = settings
        self._hide = hide
        self._unused = unused
        self._idle: list[WorkerProcess] = []  # in the order in which their last calls ended
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all: set[WorkerProcess] = set()
        self._ending: set[WorkerProcess] = set()
        self._starting: set[asyncio.Task[WorkerProcess]] = set()
        self._free = asyncio.Semaphore(settings.most)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def take(self) -> WorkerProcess:
        """A worker for one call; give it back with `give_back`.

        Raises:
            WorkerFailure: It cannot be started.
            DocumentError: Its tool does not fit the descriptor.
        """
        await self._free.acquire()
        while self._idle:
            worker = self._idle.pop()
            if worker.failure is None and not worker.is_dead():
                return worker
            self._end(worker)
        try:
            return await self._new()
        except BaseException:
            self._free.release()
            raise

    def give_back(self, worker: WorkerProcess) -> None:
        """Return a worker after its call."""
        self._free.release()
        self._settle(worker)

    async def _new(self) -> WorkerProcess:
        worker = await self._new_when_ready()
        if not worker.fits:
            self._settle(worker)
            raise DocumentError(worker.description.problems)
        return worker

    async def _new_when_ready(self) -> WorkerProcess:
        # A task of its own: the next call can use a worker that was not ready at the deadline of this one.
        starting = self._task(self.started())
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep_unused)
            raise

    async def started(self) -> WorkerProcess:
        """A new worker that is ready.

        Raises:
            WorkerFailure: It ended before, or its tool cannot be used.
        """
        worker = WorkerProcess(self._settings, self._hide)
        self._all.add(worker)
        try:
            await worker.start()
        except BaseException as error:
            died = isinstance(error, WorkerFailure) and error.code == "worker_died"
            said = await worker.last_words() if died else ""
            worker.kill()
            self._settle(worker)
            if not died:
                raise
            message = f"{error} before it was ready"
            raise WorkerFailure(
                kind="worker_failed", message=f"{message}:\n{said}" if said else message
            ) from None
        return worker

    def _keep_unused(self, starting: asyncio.Task[WorkerProcess]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._settle(starting.result())

    def _settle(self, worker: WorkerProcess) -> None:
        """Keep a worker for the next call, or end it."""
        if not worker.fits:
            worker.kill()  # it has ended by itself, and the next call asks another one
        if worker.failure is None and not self._closed:
            worker.idle_since = asyncio.get_running_loop().time()
            self._idle.append(worker)
            if self._idle_timer is None:
                self._watch_idle()
        else:
            self._end(worker)

    def _watch_idle(self) -> None:
        """Set a timer if there are several idle workers."""
        if len(self._idle) > 1:
            at = self._idle[0].idle_since + self._unused
            self._idle_timer = asyncio.get_running_loop().call_at(at, self._end_unused)

    def _end_unused(self) -> None:
        """End the workers that no call has needed for some time, except one."""
        self._idle_timer = None
        now = asyncio.get_running_loop().time()
        while len(self._idle) > 1 and self._idle[0].idle_since + self._unused <= now:
            self._end(self._idle.pop(0))
        self._watch_idle()

    def _end(self, worker: WorkerProcess) -> None:
        if worker not in self._ending:
            self._ending.add(worker)
            self._task(self._ended(worker))

    async def _ended(self, worker: WorkerProcess) -> None:
        await worker.end()
        self._all.discard(worker)
        self._ending.discard(worker)

    @property
    def empty(self) -> bool:
        """Whether no worker is left."""
        return not self._all

    def retire(self) -> None:
        """End every worker once its call has ended."""
        self._closed = True
        idle, self._idle = self._idle, []
        for worker in idle:
            self._settle(worker)

    async def aclose(self) -> None:
        """End all workers; those that run a call are killed."""
        self._closed = True
        idle, self._idle = self._idle, []
        starting = [*self._starting]
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        for worker in [*self._all]:
            # The instances of an idle worker are closed, which needs time.
            if worker not in idle:
                worker.kill()
            self._end(worker)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Workers:
    """The workers of one tool, in every event loop that calls it.

    Args:
        settings: What they run.
        hide: Masks secrets in their stderr.

    Attributes:
        pool: Returns the pool of the running loop.
    """

    def __init__(self, settings: WorkerSettings, hide: Callable[[str], str]) -> None:
        from toolcrib.http.client import PerLoop  # noqa: PLC0415 -- few tools have workers

        self._pools = PerLoop(lambda: self._made(settings, hide))
        self.pool = self._pools.get
        self._opened: list[tuple[asyncio.AbstractEventLoop, WorkerPool]] = []

    def _made(self, settings: WorkerSettings, hide: Callable[[str], str]) -> WorkerPool:
        pool = WorkerPool(settings, hide)
        self._opened = [each for each in self._opened if not each[0].is_closed()]
        self._opened.append((asyncio.get_running_loop(), pool))
        return pool

    @property
    def empty(self) -> bool:
        """Whether no worker is left."""
        return all(loop.is_closed() or pool.empty for loop, pool in self._opened)

    def retire(self) -> None:
        """End every worker once its call has ended."""
        for loop, pool in self._opened:
            if not loop.is_closed():
                # A process belongs to the loop that started it.
                loop.call_soon_threadsafe(pool.retire)

    async def aclose(self) -> None:
        """End all workers, also those that run a call."""
        await self._pools.aclose()


class BoundWorker:
    """A tool that runs in worker processes.

    Attributes:
        waits: Always true: the deadline applies to every call.
        own_defaults: Always true: the function has the defaults of its parameters.
        tool: The descriptor.
        origin: Identifies the function to the limits of calls.
        repeatable: Whether a failed call may be repeated.
    """

    waits = True
    own_defaults = True

    def __init__(
        self,
        tool: Descriptor,
        settings: WorkerSettings,
        resources: ResourceTable,
        world: NetworkEnvironment,
    ) -> None:
        self.tool = tool
        self.origin = f"{MODE}:{settings.call}"
        self.repeatable = tool.annotations.read_only or tool.annotations.idempotent
        self._settings = settings
        self._resources = resources
        self._world = world
        self._room = min(SMALL, budget_for_bytes(tool.limits.output_size))

    async def execute(self, call: Call) -> Result:
        """Run the call in a worker. A cancellation kills the worker with everything that it started."""
        return as_result(await self.begin(call))

    async def begin(self, call: Call) -> ToolAnswer:
        """The same, with the answer as the layers take it."""
        # Looked up in each call: a change of the config replaces the workers.
        workers = self._resources.get(self._settings, self.tool.name, self._workers)
        assert isinstance(workers, Workers)  # noqa: S101 -- the key is of workers only
        progress = _Progress()
        try:
            with call.context.session.clock.outside():
                message = await self._answer(call, await workers.pool(), progress)
        except WorkerFailure as error:
            return _with_use(self._failed(error, sent=progress.sent), progress)
        except DocumentError as error:
            why = f"cannot bind `{self.tool.name}` in mode `{MODE}`: {error}"
            return Result.failure(Outcome.UNAVAILABLE, why, code="not_bound")
        except asyncio.CancelledError:
            record_progress(call.id, attempts=call.attempt, reached=progress.sent)
            raise
        kind, *rest = message
        secrets = self._world.secrets
        measured = progress.used is not UNKNOWN_USAGE
        if (
            kind == "value"
            and not measured
            and secrets.empty
            and remaining_budget(rest[0], DEPTH, self._room) >= 0
        ):
            return TrustedAnswer(rest[0])
        result = Result.success(rest[0]) if kind == "value" else self._unusual(call, kind, rest)
        return _with_use(result if secrets.empty else redact_result(result, secrets), progress)

    async def _answer(self, call: Call, pool: WorkerPool, progress: _Progress) -> list[Any]:
        while True:
            worker = await pool.take()
            try:
                request = _request(call, worker.description)
                progress.sent = True
                measure_call(call, worker.so_far)
                return await worker.ask(request, partial(self._happened, call, worker, report_refusal.get()))
            except BrokenPipeError:
                # The worker died while it was idle, and the call did not reach it.
                progress.sent = False
                worker.kill()
            except BaseException:
                # A cancelled call, or one that failed halfway: the answer must not reach the next call.
                worker.kill()
                raise
            finally:
                progress.used = worker.used
                pool.give_back(worker)

    def _workers(self) -> Workers:
        return Workers(self._settings, self._world.secrets.hide_in_text)

    def _happened(
        self,
        call: Call,
        worker: WorkerProcess,
        report: Callable[[str, str], None] | None,
        event: list[Any],
    ) -> None:
        kind, *rest = event
        if kind == "progress":
            call.emit(Progress(*rest))
        elif kind == "partial":
            call.emit(Partial(Content(**rest[0])))
        elif kind == "refusal":
            if report is not None:
                report(*rest)
        else:
            worker.send("secret", *self._secret(rest[0]))

    def _secret(self, name: str) -> tuple[str | None, str, str]:
        """The value of a secret; else the code and the message of the error."""
        try:
            return read_secret(self._world.secrets, name), "", ""
        except (MissingSecret, ConfigurationError) as error:
            return None, error.code, f"{error.message}; {error.hint}"

    def _failed(self, error: WorkerFailure, *, sent: bool) -> Result:
        name = self.tool.name
        acted: dict[str, JSON] = {"may_have_acted": True} if sent and not self.repeatable else {}
        if isinstance(error, WorkerExceeded):
            return Result.failure(
                Outcome.LIMIT_EXCEEDED,
                f"the worker process of `{name}` {error.limit.describe(self.tool)}; it was terminated",
                code=error.code,
                details={**error.limit.details(self.tool), **acted},
            )
        message = f"the worker process of `{name}` {error.message}"
        if sent:
            message += " during the call"
            if acted:
                message += ", so the call may have acted"
            return Result.failure(Outcome.UNKNOWN_OUTCOME, message, code=error.code, details=acted)
        return Result.failure(Outcome.UNAVAILABLE, _not_started(name, error), code=error.code)

    def _unusual(self, call: Call, kind: str, rest: list[Any]) -> Result:
        name = self.tool.name
        if kind == "result":
            return result_from_json(rest[0])
        if kind == "invalid":
            return refused_arguments(call, [_violation(each) for each in rest[0]])
        if kind == "unwritable":
            return unwritable_result(name, rest[0])
        if kind == "path_refused":
            return Result.failure(Outcome.DENIED, rest[0], code=PATH_NOT_ALLOWED)
        if kind == "missing_secret":
            return Result.failure(Outcome.UNAVAILABLE, rest[0], code=kind)
        if kind == "cancelled":
            return Result.failure(Outcome.CANCELLED, f"`{name}` cancelled itself")
        if kind == "too_large":
            most = self.tool.limits.output_size
            limit = limit_phrase(self.tool, "output_size", format_size(most))
            return Result.failure(
                Outcome.LIMIT_EXCEEDED,
                f"the result of `{name}` is too large: {rest[0]:,} bytes, and {limit}; ask for less",
                code="result_too_large",
                details=limit_details(self.tool, "output_size", most, rest[0])
                | ({} if self.repeatable else {"may_have_acted": True}),
            )
        error, text, trace = rest
        _log.warning("`%s` raised an exception in its worker process\n%s", name, trace.rstrip())
        hidden = Redactor(call.arguments, call.tool.input_schema).hide_in_text(text) or error
        if kind == "uninitialised":
            message = f"cannot initialise `{name}`: {hidden}"
            return Result.failure(Outcome.UNAVAILABLE, message, code="initialise_failed")
        return Result.failure(Outcome.TOOL_ERROR, hidden, code=error)

    def explain(self, call: Call) -> JSON:  # noqa: ARG002 -- the same for all arguments
        """The function, and where it would run."""
        return {"call": self._settings.call, "worker": "process"}


_log = logging.getLogger("toolcrib")


class _Progress:
    """Whether a call was sent to a worker, and what the worker used for it."""

    sent = False
    used: ProcessUsage = UNKNOWN_USAGE


def _with_use(result: Result, progress: _Progress) -> Result:
    if progress.used is UNKNOWN_USAGE or not progress.sent:
        return result
    return result._replace(usage=progress.used.of_call(Usage(attempts=1)))


def _request(call: Call, description: ToolDescription) -> bytes:
    if not description.context:
        return encode_plain("call", call.arguments, None)
    context = call.context
    session = context.session
    said = (
        session.id,
        session.seed,
        session.correlation,
        context.user,
        context.caller,
        sorted(context.grants),
        dict(context.trace),
        context.correlation,
    )
    return encode_plain("call", call.arguments, said)


def _violation(fields: list[Any]) -> Violation:
    found = Violation(*fields)
    return found._replace(path=tuple(found.path))


def describe(settings: WorkerSettings, hide: Callable[[str], str], within: float) -> ToolDescription:
    """What a worker of its own finds out about a tool, so that this process does not import the code.

    It blocks until the worker is ready, and may run within an event loop.

    Args:
        settings: What the worker runs.
        hide: Masks secrets in its stderr.
        within: Maximum time in seconds; a longer import is terminated.

    Raises:
        NotReady: The tool cannot be imported, or its types cannot be used.
    """
    found: list[ToolDescription | WorkerFailure] = []

    async def described() -> None:
        pool = WorkerPool(settings, hide)
        try:
            async with asyncio.timeout(within):
                found.append((await pool.started()).description)
        except WorkerFailure as error:
            found.append(error)
        except TimeoutError:
            late = f"was not ready within {format_duration(within)}; it was terminated"
            found.append(WorkerFailure(late, kind="worker_failed"))
        finally:
            await pool.aclose()

    # A thread of its own, because the binding of a tool is synchronous and may have a running loop.
    thread = Thread(target=lambda: asyncio.run(described()), name=f"toolcrib describes {settings.call}")
    thread.start()
    thread.join()
    [answer] = found
    if isinstance(answer, WorkerFailure):
        raise NotReady(_not_started(settings.call, answer), code=answer.code)
    return answer


def _not_started(name: str, error: WorkerFailure) -> str:
    own = error.code == "worker_failed" or isinstance(error, WorkerExceeded)
    return f"the worker process of `{name}` {error.message}" if own else error.message
