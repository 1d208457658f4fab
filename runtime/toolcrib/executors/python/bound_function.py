"""Calls of Python functions: in the event loop, or in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, cast

from toolcrib.core.clock import CrossLoopLock
from toolcrib.core.model import JSON, Call, CallContext, Descriptor, Outcome, Partial, Progress, Result
from toolcrib.executors.python.declarations import MODE, Implementation, Tool, is_asynchronous
from toolcrib.executors.python.signatures import is_generator
from toolcrib.schema.from_types import UnreadableValue, UnwritableValue
from toolcrib.schema.validation import ViolationReport
from toolcrib.schema.validation.validator import MOST
from toolcrib.security.redaction import Redactor


class ToolInstances:
    """The instances of `Tool` classes that a runtime uses: each is initialised once and closed once."""

    def __init__(self) -> None:
        self._ready: dict[object, Tool[Any, Any]] = {}
        self._lock = CrossLoopLock()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._ready

    async def get(self, key: object, implementation: Implementation, config: JSON) -> Tool[Any, Any]:
        """The instance of a class, or the given instance, after `initialise`.

        Args:
            key: Identifies the class and its config.
            implementation: The class or instance.
            config: The config as JSON.
        """
        found = self._ready.get(key)
        if found is not None:
            return found
        async with self._lock:
            if key not in self._ready:
                target = implementation.target
                given = implementation.provided
                made: Tool[Any, Any] = target(**given) if isinstance(target, type) else target
                declared = implementation.config
                await _ended(made.initialise(config if declared is None else declared.read(config)))
                self._ready[key] = made
            return self._ready[key]

    async def aclose(self) -> None:
        """Close all instances.

        Raises:
            ExceptionGroup: The exceptions of instances that failed to close; the others are closed.
        """
        ready, self._ready = self._ready, {}
        errors: list[Exception] = []
        for each in ready.values():
            try:
                await _ended(each.close())
            except Exception as error:  # noqa: BLE001 -- one failure must not keep the others open
                errors.append(error)
        if errors:
            raise ExceptionGroup("cannot close all tools", errors)


async def _ended(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


class BoundFunction:
    """A tool that a Python function or a `Tool` class runs.

    Attributes:
        waits: Always true: the deadline applies to every call.
        own_defaults: Always true: the function has the defaults of its parameters.
        tool: The descriptor, with the schemas of the function where it has none of its own.
        origin: Identifies the function to the limits of calls.
        repeatable: Whether a failed call may be repeated.
    """

    waits = True
    own_defaults = True

    def __init__(
        self,
        tool: Descriptor,
        implementation: Implementation,
        block: Mapping[str, Any],
        instances: ToolInstances,
    ) -> None:
        self.tool = tool
        self.origin = f"{MODE}:{implementation.call}"
        self.repeatable = tool.annotations.read_only or tool.annotations.idempotent
        self._made = implementation
        self._config: JSON = block.get("config", {})
        self._key = (id(implementation.target), repr(self._config))
        self._instances = instances
        self._async = is_asynchronous(implementation.function)
        self._generator = is_generator(implementation.function)
        self._thread = not self._async and block.get("worker") != "inline"

    async def execute(self, call: Call) -> Result:
        """Call the function; its exceptions become `tool_error`."""
        made, context = self._made, call.context
        if self._thread:
            context = context._replace(emit=_from_thread(context.emit))
        named: dict[str, Any] = dict.fromkeys(made.contexts, context)
        given: tuple[Any, ...] = ()
        try:
            if made.signature is not None:
                named |= made.signature.read(call.arguments)
            elif made.input is not None:
                given = (made.input.read(call.arguments),)
        except UnreadableValue as error:
            return _refused(call, error)
        # The code is the user's and can raise anything; cancellation is no Exception.
        try:
            function = made.target if made.signature is not None else (await self._instance()).execute
        except Exception as error:  # noqa: BLE001
            message = f"cannot initialise `{self.tool.name}`: {_logged(call, error)}"
            return Result.failed(Outcome.UNAVAILABLE, message, code="initialise_failed")
        try:
            value = await self._answer(call, partial(function, *given, **named), context)
        except Exception as error:  # noqa: BLE001
            return Result.failed(Outcome.TOOL_ERROR, _logged(call, error), code=type(error).__name__)
        return self._result(value)

    async def _instance(self) -> Tool[Any, Any]:
        return await self._instances.get(self._key, self._made, self._config)

    async def _answer(self, call: Call, run: Callable[[], Any], context: CallContext) -> Any:
        if self._thread:
            work = partial(_exhausted, run, context.emit) if self._generator else run
            with context.session.clock.outside():
                answer = await _in_thread(work, call.tool.name)
        elif self._generator:
            return await _last(run(), context.emit) if self._async else _exhausted(run, context.emit)
        else:
            answer = run()
        # A decorator may hide that a function is asynchronous.
        return await answer if inspect.isawaitable(answer) else answer

    def _result(self, value: Any) -> Result:
        if isinstance(value, Result):
            return value
        try:
            return Result.ok(value if self._made.result is None else self._made.result.write(value))
        except UnwritableValue as error:
            message = f"the result of `{self.tool.name}` cannot be written as JSON: {error}"
            return Result.failed(Outcome.INVALID_RESULT, message)

    def explain(self, call: Call) -> JSON:  # noqa: ARG002 -- the same for all arguments
        """The function, and where it would run."""
        return {"call": self._made.call, "worker": "thread" if self._thread else "inline"}


def _exhausted(
    run: Callable[[], Generator[Any, None, Any]], emit: Callable[[Progress | Partial], None]
) -> Any:
    """Run a generator to its end: what it returns, else the last value that it yields besides events."""
    values, last = run(), None
    while True:
        try:
            each = next(values)
        except StopIteration as ended:
            return last if ended.value is None else ended.value
        if isinstance(each, Progress | Partial):
            emit(each)
        else:
            last = each


async def _last(values: Any, emit: Callable[[Progress | Partial], None]) -> Any:
    """Run an asynchronous generator to its end: the last value that it yields besides events."""
    last = None
    async with aclosing(values) as open_values:
        async for each in cast("AsyncIterator[Any]", open_values):
            if isinstance(each, Progress | Partial):
                emit(each)
            else:
                last = each
    return last


async def _in_thread(work: Callable[[], Any], name: str) -> Any:
    """Run a function in a thread of its own. If the call is cancelled, the thread runs on, and its result is lost."""
    # Not `asyncio.to_thread`: the end of the program would wait for a function that never returns.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, error))

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(work)
        except BaseException as error:  # noqa: BLE001 -- raised in the event loop instead
            raised = error
        with suppress(RuntimeError):  # the loop has ended, and the call with it
            loop.call_soon_threadsafe(settle, value, raised)

    threading.Thread(target=run, name=f"toolcrib {name}", daemon=True).start()
    value, error = await done
    if error is not None:
        raise error
    return value


def _from_thread(emit: Callable[[Progress | Partial], None]) -> Callable[[Progress | Partial], None]:
    """The same function for a thread: it runs in the event loop."""
    loop = asyncio.get_running_loop()

    def emit_later(event: Progress | Partial) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the call with it
            loop.call_soon_threadsafe(emit, event)

    return emit_later


def _refused(call: Call, error: UnreadableValue) -> Result:
    """The result of a call whose arguments match the schema, but not what only Python can check."""
    seen = Redactor(call.arguments, call.tool.input_schema)
    report = ViolationReport([*error.violations])
    shown = report.faults[:MOST]
    lines = [seen.hide_in_text(each.for_model()) for each in shown]
    told: list[JSON] = [
        {
            "pointer": each.pointer,
            "keyword": each.keyword,
            "expected": each.expected,
            "got": seen.hide_in_text(each.got),
            "hint": seen.hide_in_text(each.hint),
        }
        for each in shown
    ]
    message = f"invalid arguments for `{call.tool.name}`:\n" + "\n".join([*lines, *report.unshown()])
    details: dict[str, JSON] = {"violations": told, **report.counts()}
    return Result.failed(Outcome.INVALID_ARGUMENTS, message, details=details)


def _logged(call: Call, error: Exception) -> str:
    """Log an exception of a function with its traceback, and return its text without secrets."""
    import logging  # noqa: PLC0415 -- not needed unless there is something to log

    logging.getLogger("toolcrib").warning("`%s` raised an exception", call.tool.name, exc_info=error)
    return Redactor(call.arguments, call.tool.input_schema).hide_in_text(str(error)) or type(error).__name__
