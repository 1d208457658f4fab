"""The program of a worker process, which runs one tool and one call at a time.

`worker_messages` has the messages. Code of the tool that prints writes to stderr instead, and reads an empty stdin.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, cast

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.core.hooks import import_object
from toolcrib.core.model import CallContext, Partial, Progress, Result
from toolcrib.executors.python.bound_function import exhaust, last_value, text_of
from toolcrib.executors.python.declarations import Implementation, implementation_of, is_asynchronous
from toolcrib.executors.python.factories import is_factory
from toolcrib.executors.python.instances import InitialiseFailed, ToolInstances
from toolcrib.executors.python.signatures import is_generator
from toolcrib.executors.python.worker_messages import (
    ToolDescription,
    WorkerOrder,
    decode,
    encode,
    encode_plain,
    result_as_json,
)
from toolcrib.schema.from_types import UnreadableValue, UnwritableValue
from toolcrib.schema.validation import Violation, as_json
from toolcrib.security.access import report_refusal
from toolcrib.security.path_access import PathAccess, PathRefused

_CHUNK = 1 << 16

_RAISED = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
"""What the code of a tool may raise without ending the worker. Its process group receives no Ctrl-C of the terminal."""


class Wire:
    """The pipes to the runtime.

    Args:
        reading: File descriptor of the messages from the runtime.
        writing: File descriptor of the messages to it.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self._writing = writing
        self._lock = threading.Lock()

    @classmethod
    def taken_over(cls) -> Wire:
        """The pipes at stdin and stdout, which are replaced for the code of the tool."""
        # Duplicates are not inherited, so no program that the tool starts can write to the runtime.
        wire = cls(os.dup(0), os.dup(1))
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        return wire

    def read(self) -> list[Any] | None:
        """The next message; None at the end."""
        # The runtime sends its next message only after the answer to this one, so there is nothing behind the line.
        line = os.read(self.reading, _CHUNK)
        if line[-1:] != b"\n":
            chunks = [line]
            while line[-1:] != b"\n":
                line = os.read(self.reading, _CHUNK)
                if not line:
                    return None
                chunks.append(line)
            line = b"".join(chunks)
        return decode(line)

    def write(self, *message: Any) -> None:
        """Send a message."""
        self.send(encode(*message))

    def send(self, line: bytes) -> None:
        """Send an encoded message."""
        # Threads of the tool may report progress at the same time.
        with self._lock:
            while (sent := os.write(self._writing, line)) < len(line):
                line = line[sent:]


class WorkerSession:
    """The session of a call as far as a worker knows it.

    Attributes:
        id: Name of the session.
        seed: Its seed.
        correlation: Its correlation ID.
        clock: The system clock.
        began: When the worker first heard of it.
        calls: Number of its calls in this worker.
        paths: The folders in which calls may read and write files.
    """

    def __init__(self, name: str, seed: int, correlation: str, paths: PathAccess) -> None:
        self.id = name
        self.seed = seed
        self.correlation = correlation
        self.clock = RealClock()
        self.began = self.clock.monotonic()
        self.calls = 0
        self.paths = paths
        self._slots: dict[str, Any] = {}

    def slot(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of a key in this worker; `make` creates it on first use."""
        if key not in self._slots:
            self._slots[key] = make()
        return self._slots[key]

    def in_progress(self, _call_id: str) -> None:
        """Nothing: the process of the runtime records what runs."""


class _NoSecret(Exception):
    """The runtime has no such secret."""


class _Refused(Exception):
    """The types of the function refuse the arguments."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__()
        self.violations = violations


class WorkerServices:
    """The services of the runtime in a worker: secrets only, because every socket is opened by the runtime.

    Args:
        wire: The pipes to the runtime.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def secret(self, name: str) -> str:
        """Ask the runtime for a secret."""
        self._wire.write("secret", name)
        answer = self._wire.read()
        if answer is None:
            raise SystemExit("the runtime has ended")
        _kind, value, code, message = answer
        if value is None:
            raise _NoSecret(message) if code == "missing_secret" else ConfigurationError(message, code=code)
        return cast("str", value)

    @property
    def http(self) -> Any:
        """Not available."""
        raise _not_in_workers("http")

    @property
    def http_sync(self) -> Any:
        """Not available."""
        raise _not_in_workers("http_sync")

    async def connect(self, host: str, port: int) -> Any:  # noqa: ARG002 -- as in the runtime
        """Not available."""
        raise _not_in_workers("connect")


def _not_in_workers(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"`context.{name}` is not available with `worker: process`",
        code="no_network_services",
        hint="use `worker: thread`, or an asynchronous function without `worker`",
    )


class ToolWorker:
    """Imports a tool and runs its calls.

    Args:
        wire: The pipes to the runtime.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sessions: dict[str, WorkerSession] = {}
        self._services = WorkerServices(wire)
        self._loop = asyncio.new_event_loop()
        self._made: Implementation
        self._paths: PathAccess
        self._most = 0
        self._instances: ToolInstances | None = None
        self._generator = False
        self._next: asyncio.Future[list[Any] | None]
        self._listening = False

    def run(self) -> None:
        """Serve the runtime until it closes its end."""
        message = self._wire.read()
        report_refusal.set(partial(self._wire.write, "refusal"))
        try:
            if message is None or not self._start(WorkerOrder(**message[1])):
                return
            if is_asynchronous(self._made.function):
                self._loop.run_until_complete(self._serve())
            else:
                while (message := self._wire.read()) is not None:
                    self._wire.send(self._answer(message))
            if self._instances is not None:
                self._loop.run_until_complete(self._instances.aclose())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _start(self, order: WorkerOrder) -> bool:
        self._most = 6 * order.output_size + 64
        self._paths = PathAccess(*order.paths)
        try:
            self._made = made = _imported(order)
        except ConfigurationError as error:
            hint = f"; {error.hint}" if error.hint else ""
            self._wire.write("refused", error.code, f"{error.message}{hint}")
            return False
        problems = [*made.block_problems(order.block), *made.schema_problems(order.schema)]
        if problems:
            self._wire.write("ready", [*description_of(made, problems)])
            return False
        self._generator = is_generator(made.function)
        if made.signature is None:
            config, policy = order.block.get("config", {}), str(order.block.get("instances", "shared"))
            self._instances = ToolInstances(made, config, policy)
        self._wire.write("ready", [*description_of(made)])
        return True

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._next = loop.create_future()
            if not self._listening:
                loop.add_reader(self._wire.reading, self._readable)
                self._listening = True
            message = await self._next
            if message is None:
                return
            self._wire.send(await self._answered(message))

    def _readable(self) -> None:
        if not self._next.done():
            self._next.set_result(self._wire.read())
        else:
            # During a call, `WorkerServices.secret` reads its answer. Or the runtime has ended, which the end of
            # the call finds out.
            self._loop.remove_reader(self._wire.reading)
            self._listening = False

    def _answer(self, message: list[Any]) -> bytes:
        """Run a call of a synchronous function, outside of the event loop, which it may not know."""
        taken = None
        try:
            args, named = self._read(message)
            if self._instances is not None:
                taken = self._instances.ready or self._loop.run_until_complete(self._instances.take())
            answer = self._run(args, named, taken)
            if inspect.isawaitable(answer):
                answer = self._loop.run_until_complete(_awaited(answer))
            return self._written(answer)
        except _RAISED as error:
            return encode(*_raised(error))
        finally:
            # A shared instance is never given back: it is in use as long as the worker lives.
            if taken is not None and self._instances is not None and taken is not self._instances.ready:
                self._loop.run_until_complete(_given_back(self._instances, taken))

    async def _answered(self, message: list[Any]) -> bytes:
        """Run a call of an asynchronous function."""
        taken = None
        try:
            args, named = self._read(message)
            if self._instances is not None:
                taken = self._instances.ready or await self._instances.take()
            answer = self._run(args, named, taken)
            return self._written(await answer if inspect.isawaitable(answer) else answer)
        except _RAISED as error:
            return encode(*_raised(error))
        finally:
            if taken is not None and self._instances is not None and taken is not self._instances.ready:
                await _given_back(self._instances, taken)

    def _read(self, message: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the named arguments of a call."""
        _kind, arguments, context = message
        made = self._made
        try:
            args, named = made.read(arguments)
        except UnreadableValue as error:
            raise _Refused(error.violations) from None
        if made.contexts:
            named |= dict.fromkeys(made.contexts, self._context(context))
        return args, named

    def _run(self, args: tuple[Any, ...], named: dict[str, Any], taken: Any) -> Any:
        function = self._made.target if taken is None else taken.execute
        if not self._generator:
            return function(*args, **named)
        if is_asynchronous(self._made.function):
            return last_value(function(*args, **named), self._emit)
        return exhaust(partial(function, *args, **named), self._emit)

    def _written(self, value: Any) -> bytes:
        """The message with what a function returned."""
        declared = self._made.result
        if isinstance(value, Result):
            return encode("result", result_as_json(value))
        if declared is None:
            value, fault = as_json(value)
            if fault is not None:
                return encode("unwritable", f"expected {fault.expected}, got {fault.got}")
        else:
            try:
                value = declared.write(value)
            except UnwritableValue as error:
                return encode("unwritable", str(error))
        line = encode_plain("value", value)
        # The runtime counts the bytes of the value in UTF-8; escapes can make this line six times longer.
        return line if len(line) <= self._most else encode("too_large", len(line) - 1)

    def _context(self, said: list[Any]) -> CallContext:
        name, seed, correlation, user, caller, grants, trace, own = said
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = WorkerSession(name, seed, correlation, self._paths)
        session.calls += 1
        return CallContext(
            session=session,
            correlation=own,
            user=user,
            caller=caller,
            grants=frozenset(grants),
            trace=trace,
            emit=self._emit,
            services=self._services,
        )

    def _emit(self, event: Progress | Partial) -> None:
        if isinstance(event, Progress):
            self._wire.write("progress", *event)
        else:
            self._wire.write("partial", event.content.as_json())


def _imported(order: WorkerOrder) -> Implementation:
    try:
        target = import_object(order.call)
    # An exception of the import ends this process, and the runtime reports the traceback on stderr.
    except Exception as error:  # noqa: BLE001 -- the code is the user's
        traceback.print_exception(error.with_traceback(_own_frames(error)))
        raise SystemExit(1) from None
    if is_factory(target):
        message = f"`{order.call}` is a factory, and a worker has none of the objects of the program"
        raise ConfigurationError(message, code="not_importable", hint="remove `worker`")
    return implementation_of(target, untyped=order.schema is not None)


def _own_frames(error: Exception) -> TracebackType | None:
    """The traceback of an import from the first line of the imported code on."""
    frames = error.__traceback__
    ours = (__file__, import_object.__code__.co_filename, import_module.__code__.co_filename)
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith((*ours, "<frozen importlib")):
        frames = frames.tb_next
    return frames


async def _awaited(answer: Any) -> Any:
    return await answer


async def _given_back(instances: ToolInstances, taken: Any) -> None:
    closing = instances.give_back(taken)
    if closing is not None:
        await closing


def _raised(error: BaseException) -> tuple[Any, ...]:
    if isinstance(error, asyncio.CancelledError):
        return ("cancelled",)
    if isinstance(error, _NoSecret):
        return "missing_secret", str(error)
    if isinstance(error, PathRefused):
        return "path_refused", error.message
    if isinstance(error, _Refused):
        return "invalid", [tuple(each) for each in error.violations]
    kind = "raised"
    if isinstance(error, InitialiseFailed):
        kind, error = "uninitialised", cast("Exception", error.__cause__)
    trace = "".join(traceback.format_exception(error))
    return kind, type(error).__name__, text_of(error), trace


def description_of(made: Implementation, problems: Sequence[Problem] = ()) -> ToolDescription:
    """The description of an implementation."""
    output_schema = None if made.result is None else made.result.output_schema
    return ToolDescription(
        made.description, made.input_schema, output_schema, bool(made.contexts), [*map(tuple, problems)]
    )


def main() -> None:
    """Run the worker of the runtime that started this process."""
    ToolWorker(Wire.taken_over()).run()
