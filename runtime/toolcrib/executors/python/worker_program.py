"""The program of a worker process, which runs one tool and one call at a time.

The runtime writes messages to its stdin and reads its answers from its stdout: JSON arrays, one per line, whose first item
is the kind. Code of the tool that prints writes to stderr instead, and reads an empty stdin.

| from the runtime | meaning |
|---|---|
| `start, order` | Import the tool; `order` has the fields of `WorkerOrder`. |
| `call, arguments, context` | Run a call. |
| `secret, value, code, message` | The secret that a call asked for; null and why not if there is none. |

| from the worker | meaning |
|---|---|
| `ready, description` | The tool is imported; `description` has the fields of `ToolDescription`. With problems, the worker ends. |
| `refused, code, message` | The tool cannot be a tool. |
| `progress ...`, `partial, content` | The call reports progress. |
| `secret, name` | The call asks for a secret. |
| `value, value`, `result, fields`, `invalid, violations`, `unwritable, message`, `too_large, bytes` | The call ended. |
| `cancelled`, `missing_secret, message` | The call cancelled itself, or there is no such secret. |
| `raised, class, text, traceback`, `uninitialised, class, text, traceback` | An exception ended it. |
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple, cast

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.core.hooks import import_object
from toolcrib.core.model import JSON, CallContext, Partial, Progress, Result, Schema
from toolcrib.executors.python.bound_function import exhaust, last_value, text_of
from toolcrib.executors.python.declarations import Implementation, implementation_of, is_asynchronous
from toolcrib.executors.python.factories import is_factory
from toolcrib.executors.python.instances import InitialiseFailed, ToolInstances
from toolcrib.executors.python.signatures import is_generator
from toolcrib.schema.from_types import UnreadableValue, UnwritableValue
from toolcrib.schema.validation import as_json

_ENCODE: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode
_CHUNK = 1 << 16


class WorkerOrder(NamedTuple):
    """What a worker runs.

    Attributes:
        call: `module:name` of the function or class.
        block: The block `python`.
        schema: The input schema of the descriptor; None if the function provides it.
        output_size: Maximum size of a result in bytes.
    """

    call: str
    block: Mapping[str, JSON]
    schema: Schema | None
    output_size: int


class ToolDescription(NamedTuple):
    """What a worker finds out about its tool.

    Attributes:
        text: The description in the docstring.
        input_schema: JSON Schema of the arguments.
        output_schema: JSON Schema of the result; None if it is not declared.
        context: Whether calls receive the context.
        problem_fields: The fields of each problem.
    """

    text: str
    input_schema: dict[str, JSON]
    output_schema: dict[str, JSON] | None
    context: bool
    problem_fields: list[tuple[Any, ...]]

    @property
    def problems(self) -> list[Problem]:
        """What does not fit the descriptor."""
        return [Problem(*fields) for fields in self.problem_fields]


class Wire:
    """The pipes to the runtime.

    Args:
        reading: File descriptor of the messages from the runtime.
        writing: File descriptor of the messages to it.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self._writing = writing
        self._rest = b""
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

    @property
    def pending(self) -> bool:
        """Whether a message was read ahead."""
        return b"\n" in self._rest

    def read(self) -> list[Any] | None:
        """The next message; None at the end."""
        rest, chunks = self._rest, []
        while b"\n" not in rest:
            chunks.append(rest)
            rest = os.read(self.reading, _CHUNK)
            if not rest:
                return None
        line, _newline, self._rest = rest.partition(b"\n")
        message: list[Any] = json.loads(b"".join([*chunks, line]))
        return message

    def write(self, *message: Any) -> None:
        """Send a message."""
        self.send(_ENCODE(message))

    def send(self, text: str) -> None:
        """Send an encoded message."""
        data = memoryview(f"{text}\n".encode())
        # Threads of the tool may report progress at the same time.
        with self._lock:
            while data:
                data = data[os.write(self._writing, data) :]


class WorkerSession:
    """The session of a call as far as a worker knows it.

    Attributes:
        id: Name of the session.
        seed: Its seed.
        correlation: Its correlation ID.
        clock: The system clock.
        began: When the worker first heard of it.
        calls: Number of its calls in this worker.
    """

    def __init__(self, name: str, seed: int, correlation: str) -> None:
        self.id = name
        self.seed = seed
        self.correlation = correlation
        self.clock = RealClock()
        self.began = self.clock.monotonic()
        self.calls = 0
        self._slots: dict[str, Any] = {}

    def slot(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of a key in this worker; `make` creates it on first use."""
        if key not in self._slots:
            self._slots[key] = make()
        return self._slots[key]


class _NoSecret(Exception):
    """The runtime has no such secret."""


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
        self._order: WorkerOrder
        self._instances: ToolInstances | None = None
        self._generator = False

    def run(self) -> None:
        """Serve the runtime until it closes its end."""
        message = self._wire.read()
        try:
            if message is None or not self._start(WorkerOrder(**message[1])):
                return
            if is_asynchronous(self._made.function):
                self._loop.run_until_complete(self._serve())
            else:
                while (message := self._wire.read()) is not None:
                    self._answer(message)
            if self._instances is not None:
                self._loop.run_until_complete(self._instances.aclose())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _start(self, order: WorkerOrder) -> bool:
        self._order = order
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
        while True:
            if not self._wire.pending:
                await self._readable()
            message = self._wire.read()
            if message is None:
                return
            self._send(await self._answered(message))

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        # Removed during calls, so that `WorkerServices.secret` can read its answer.
        loop.add_reader(self._wire.reading, ready.set_result, None)
        try:
            await ready
        finally:
            loop.remove_reader(self._wire.reading)

    def _answer(self, message: list[Any]) -> None:
        """Run a call of a synchronous function, outside of the event loop, which it may not know."""
        prepared = self._prepared(message)
        if isinstance(prepared, tuple):
            self._send(prepared)
            return
        taken = None
        try:
            if self._instances is not None:
                taken = self._instances.ready or self._loop.run_until_complete(self._instances.take())
            answer = self._run(prepared, taken)
            if inspect.isawaitable(answer):
                answer = self._loop.run_until_complete(_awaited(answer))
            ended = self._written(answer)
        # The code is the user's, and an asynchronous function may cancel itself.
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001
            ended = _raised(error)
        finally:
            # A shared instance is never given back: it is in use as long as the worker lives.
            if taken is not None and self._instances is not None and taken is not self._instances.ready:
                self._loop.run_until_complete(_given_back(self._instances, taken))
        self._send(ended)

    async def _answered(self, message: list[Any]) -> tuple[Any, ...]:
        """Run a call of an asynchronous function."""
        prepared = self._prepared(message)
        if isinstance(prepared, tuple):
            return prepared
        taken = None
        try:
            if self._instances is not None:
                taken = self._instances.ready or await self._instances.take()
            answer = self._run(prepared, taken)
            return self._written(await answer if inspect.isawaitable(answer) else answer)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 -- as above
            return _raised(error)
        finally:
            if taken is not None and self._instances is not None and taken is not self._instances.ready:
                await _given_back(self._instances, taken)

    def _prepared(self, message: list[Any]) -> Callable[..., Any] | tuple[Any, ...]:
        """The function with its arguments; or the answer to a call that its types refuse."""
        _kind, arguments, context = message
        made = self._made
        try:
            args, named = made.read(arguments)
        except UnreadableValue as error:
            return "invalid", error.violations
        if made.contexts:
            named |= dict.fromkeys(made.contexts, self._context(context))
        return partial(_called, args, named)

    def _run(self, prepared: Callable[..., Any], taken: Any) -> Any:
        function = self._made.target if taken is None else taken.execute
        if not self._generator:
            return prepared(function)
        if is_asynchronous(self._made.function):
            return last_value(prepared(function), self._emit)
        return exhaust(partial(prepared, function), self._emit)

    def _written(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Result):
            return "result", value
        declared = self._made.result
        try:
            return "value", value if declared is None else declared.write(value)
        except UnwritableValue as error:
            return "unwritable", str(error)

    def _send(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "value":
            value: Any = message[1]
            if self._made.result is None:
                value, fault = as_json(value)
                if fault is not None:
                    self._wire.write("unwritable", f"expected {fault.expected}, got {fault.got}")
                    return
            text = _ENCODE(("value", value))
            # The runtime counts the bytes of the value in UTF-8; escapes can make this text six times longer.
            if len(text) > 6 * self._order.output_size + 64:
                self._wire.write("too_large", len(text))
                return
            self._wire.send(text)
        elif kind == "result":
            self._wire.write("result", result_as_json(message[1]))
        elif kind == "invalid":
            self._wire.write("invalid", [tuple(each) for each in message[1]])
        else:
            self._wire.write(*message)

    def _context(self, said: list[Any]) -> CallContext:
        name, seed, correlation, user, caller, grants, trace, own = said
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = WorkerSession(name, seed, correlation)
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


def _called(args: tuple[Any, ...], named: Mapping[str, Any], function: Callable[..., Any]) -> Any:
    return function(*args, **named)


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
    kind = "raised"
    if isinstance(error, InitialiseFailed):
        kind, error = "uninitialised", cast("Exception", error.__cause__)
    trace = "".join(traceback.format_exception(error))
    return kind, type(error).__name__, text_of(error), trace


def result_as_json(result: Result) -> list[JSON]:
    """A complete result as JSON, for `result_from_json`."""
    error = None if result.error is None else result.error.as_json()
    content: list[JSON] = [part.as_json() for part in result.content]
    return [
        result.outcome.value,
        result.value,
        content,
        result.message,
        error,
        dict(result.meta),
        result.raw_value,
    ]


def description_of(made: Implementation, problems: Sequence[Problem] = ()) -> ToolDescription:
    """The description of an implementation."""
    output_schema = None if made.result is None else made.result.output_schema
    return ToolDescription(
        made.description, made.input_schema, output_schema, bool(made.contexts), [*map(tuple, problems)]
    )


def main() -> None:
    """Run the worker of the runtime that started this process."""
    ToolWorker(Wire.taken_over()).run()
