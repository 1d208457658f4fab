"""Calls of Python functions: in the event loop, or in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolcrib.core.model import (
    ANSWERS,
    JSON,
    NOTHING,
    Call,
    CallContext,
    Descriptor,
    Outcome,
    Partial,
    Progress,
    Result,
    ToolAnswer,
    TrustedAnswer,
    as_result,
)
from toolcrib.executors.python.declarations import MODE, Implementation, is_asynchronous
from toolcrib.executors.python.instances import AnyTool, InitialiseFailed, ResourceTable, ToolInstances
from toolcrib.executors.python.services import RuntimeServices, failure_of
from toolcrib.executors.python.signatures import is_generator
from toolcrib.schema.from_types import UnreadableValue, UnwritableValue
from toolcrib.schema.validation import Violation, ViolationReport
from toolcrib.schema.validation.json_values import DEPTH, budget_for_bytes, remaining_budget
from toolcrib.schema.validation.validator import MOST
from toolcrib.security.redaction import Redactor, redact_result

if TYPE_CHECKING:
    from toolcrib.servers.environment import NetworkEnvironment


T = TypeVar("T")

# `tuple.__new__` skips the generated `__new__` of a NamedTuple, which is measurable here.
_new: Any = tuple.__new__


class BoundFunction:
    """A tool that a Python function or a `Tool` class runs.

    Attributes:
        waits: Always true: the deadline applies to every call.
        own_defaults: Always true: the function has the defaults of its parameters.
        tool: The descriptor, with the schemas of the function where it has none of its own.
        origin: Identifies the function to the limits of calls.
        repeatable: Whether a failed call may be repeated.
        limited: Whether the limits of calls apply. In the event loop, only those that a document writes do.
    """

    waits = True
    own_defaults = True

    def __init__(
        self,
        tool: Descriptor,
        implementation: Implementation,
        block: Mapping[str, Any],
        resources: ResourceTable,
        world: NetworkEnvironment,
    ) -> None:
        self.tool = tool
        self.origin = f"{MODE}:{implementation.call}"
        self.repeatable = tool.annotations.read_only or tool.annotations.idempotent
        self._made = made = implementation
        # Read in every call, where the fields of a NamedTuple take five times as long.
        self._target, self._result, self._contexts = made.target, made.result, made.contexts
        self._config: JSON = block.get("config", {})
        self._policy = str(block.get("instances", "shared"))
        self._key = (id(implementation.target), repr(self._config), self._policy)
        self._resources = resources
        self._world = world
        self._async = is_asynchronous(implementation.function)
        self._generator = is_generator(implementation.function)
        self._thread = not self._async and block.get("worker") != "inline"
        self.limited = self._thread or writes_limits(tool)
        # Neither an instance nor a generator: the coroutine of the function is all that runs.
        self._alone = made.signature is not None and is_coroutine_function(made.target)
        self._joint = None if made.signature is None else made.signature.joint
        self._room = budget_for_bytes(tool.limits.output_size)

    async def execute(self, call: Call) -> Result:
        """Call the function; its exceptions become `tool_error`."""
        answer = self.begin(call)
        return as_result(answer if isinstance(answer, ANSWERS) else await answer)

    def begin(self, call: Call) -> ToolAnswer | Awaitable[ToolAnswer]:
        """Run the function until it first waits; if it ends before, return the answer itself."""
        args: tuple[Any, ...] = ()
        try:
            if self._joint is None:
                args, named = self._made.read(call.arguments)
            else:
                named = self._joint(call.arguments)
        except ValueError:
            try:
                # Each by itself, to find out which one is wrong.
                args, named = self._made.read(call.arguments)
            except UnreadableValue as error:
                return refused_arguments(call, error.violations)
        if self._contexts:
            named |= dict.fromkeys(self._contexts, self._context(call))
        # The code is the user's and can raise anything; cancellation is no Exception.
        try:
            work = self._target(*args, **named) if self._alone else self._run(call, args, named)
            awaited = work.send(None)
        except StopIteration as ended:
            return self._answer_of(ended.value) if self._alone else ended.value
        # SystemExit must not end the program of its callers.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return self._failure(call, error)
        return self._rest(call, continued(work, awaited))

    async def _rest(self, call: Call, work: Awaitable[Any]) -> ToolAnswer:
        try:
            value = await work
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- as in `begin`
            return self._failure(call, error)
        return self._answer_of(value) if self._alone else value

    async def _run(self, call: Call, args: tuple[Any, ...], named: dict[str, Any]) -> ToolAnswer:
        if self._made.signature is None:
            return await self._of_instance(call, args, named)
        return self._answer_of(await self._value(call, partial(self._target, *args, **named)))

    def _failure(self, call: Call, error: Exception | SystemExit) -> Result:
        """The result of a call whose function raised an exception."""
        if isinstance(error, InitialiseFailed):
            text = self._logged(call, cast("BaseException", error.__cause__))
            message = f"cannot initialise `{self.tool.name}`: {text}"
            result = Result.failure(Outcome.UNAVAILABLE, message, code="initialise_failed")
        elif isinstance(error, _RaisedInterrupt):
            text = self._logged(call, cast("BaseException", error.__cause__))
            result = Result.failure(Outcome.TOOL_ERROR, text, code=KeyboardInterrupt.__name__)
        else:
            known = failure_of(error)
            result = (
                Result.failure(Outcome.TOOL_ERROR, self._logged(call, error), code=type(error).__name__)
                if known is None
                else known
            )
        return self._redacted(result)

    def _redacted(self, result: Result) -> Result:
        secrets = self._world.secrets
        return result if secrets.empty else redact_result(result, secrets)

    def _answer_of(self, value: Any) -> ToolAnswer:
        """The answer of a call whose function returned a value."""
        kind = self._result
        if kind is None or isinstance(value, Result):
            return self._redacted(value if isinstance(value, Result) else Result.success(value))
        try:
            written = kind.write(value)
        except UnwritableValue as error:
            return self._redacted(unwritable_result(self.tool.name, str(error)))
        # pydantic has made new objects and lists. If they are small and JSON, only their schema remains to be checked.
        if remaining_budget(written, DEPTH, self._room) >= 0 and self._world.secrets.empty:
            return _new(TrustedAnswer, (written, NOTHING))  # type: ignore[no-any-return]
        return self._redacted(Result.success(written))

    def _context(self, call: Call) -> CallContext:
        emit = _from_thread(call.emit) if self._thread else call.emit
        services = RuntimeServices(self._world, self._resources, call, in_thread=self._thread)
        return call.context._replace(emit=emit, services=services)

    async def _of_instance(self, call: Call, args: tuple[Any, ...], named: dict[str, Any]) -> ToolAnswer:
        # Looked up in each call: a change of the config replaces the instances.
        instances = self._resources.get(self._key, self.tool.name, self._instances)
        assert isinstance(instances, ToolInstances)  # noqa: S101 -- the key is of instances only
        taken = await instances.take()
        use = _Use(instances, taken)
        try:
            value = await self._value(call, partial(taken.execute, *args, **named), use)
        except asyncio.CancelledError:
            use.end()
            raise
        except BaseException:
            await use.ended()
            raise
        answer = self._answer_of(value)
        await use.ended()
        return answer

    def _instances(self) -> ToolInstances:
        return ToolInstances(self._made, self._config, self._policy)

    async def _value(self, call: Call, run: Callable[[], Any], use: _Use | None = None) -> Any:
        if self._thread:
            work = partial(exhaust, run, _from_thread(call.emit)) if self._generator else run
            with call.context.session.clock.outside():
                answer = await _in_thread(work, call.tool.name, use)
        elif self._generator:
            return await last_value(run(), call.emit) if self._async else exhaust(run, call.emit)
        else:
            answer = run()
        # A decorator may hide that a function is asynchronous.
        return await answer if inspect.isawaitable(answer) else answer

    def _logged(self, call: Call, error: BaseException) -> str:
        """Log an exception of the function with its traceback, and return its text without secrets."""
        import logging  # noqa: PLC0415 -- not needed unless there is something to log

        logging.getLogger("toolcrib").warning("`%s` raised an exception", call.tool.name, exc_info=error)
        text = Redactor(call.arguments, call.tool.input_schema).hide_in_text(text_of(error))
        return text or type(error).__name__

    def explain(self, call: Call) -> JSON:  # noqa: ARG002 -- the same for all arguments
        """The function, and where it would run."""
        return {"call": self._made.call, "worker": "thread" if self._thread else "inline"}


_LIMITS = tuple(f"limits.{key}" for key in ("rate", "concurrency", "queue", "origin", "breaker"))


def writes_limits(tool: Descriptor) -> bool:
    """Whether a document limits the calls of a tool: how many, how often, or after how many failures."""
    return any(name.startswith(_LIMITS) for name in (*tool.origin.written, *tool.origin.settings))


def is_coroutine_function(target: Any) -> bool:
    """Whether calls return a coroutine of Python, which `send` can run."""
    flags: int = getattr(getattr(target, "__code__", None), "co_flags", 0)
    return bool(flags & inspect.CO_COROUTINE)


@coroutine
def continued(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Continue a coroutine that has started already.

    Args:
        work: The coroutine.
        awaited: What it waits for: the value that its first `send` returned.
    """
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 -- such as a cancellation: it belongs to the coroutine
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration as ended:
        value: T = ended.value
        return value


class _Use:
    """The use of an instance by one call, which ends once."""

    def __init__(self, instances: ToolInstances, taken: AnyTool) -> None:
        self._instances = instances
        self._taken: AnyTool | None = taken
        self.in_thread = False  # whether a thread runs on with the instance

    def end(self) -> Awaitable[None] | None:
        """Give the instance back, unless a thread still uses it."""
        taken = self._taken
        if taken is None or self.in_thread:
            return None
        self._taken = None
        return self._instances.give_back(taken)

    async def ended(self) -> None:
        """Give the instance back, and wait if it is closed."""
        closing = self.end()
        if closing is not None:
            # The end of this call must not cancel the end of the instance.
            await asyncio.shield(closing)


def exhaust(run: Callable[[], Generator[Any, None, Any]], emit: Callable[[Progress | Partial], None]) -> Any:
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


async def last_value(values: Any, emit: Callable[[Progress | Partial], None]) -> Any:
    """Run an asynchronous generator to its end: the last value that it yields besides events."""
    last = None
    async with aclosing(values) as open_values:
        async for each in cast("AsyncIterator[Any]", open_values):
            if isinstance(each, Progress | Partial):
                emit(each)
            else:
                last = each
    return last


async def _in_thread(work: Callable[[], Any], name: str, use: _Use | None) -> Any:
    """Run a function in a thread of its own. If the call is cancelled, the thread runs on, and its result is lost."""
    # Not `asyncio.to_thread`: the end of the program would wait for a function that never returns.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if use is not None:
            use.in_thread = False
        if not done.done():
            done.set_result((value, error))
        elif use is not None:
            use.end()  # the call was cancelled before

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(work)
        except BaseException as error:  # noqa: BLE001 -- raised in the event loop instead
            raised = error
        with suppress(RuntimeError):  # the loop has ended, and the call with it
            loop.call_soon_threadsafe(settle, value, raised)

    if use is not None:
        use.in_thread = True
    threading.Thread(target=run, name=f"toolcrib {name}", daemon=True).start()
    value, error = await done
    if isinstance(error, KeyboardInterrupt):
        raise _RaisedInterrupt from error
    if error is not None:
        raise error
    return value


class _RaisedInterrupt(Exception):
    """A function in a thread raised KeyboardInterrupt. It is no Ctrl-C, which only the main thread receives."""


def _from_thread(emit: Callable[[Progress | Partial], None]) -> Callable[[Progress | Partial], None]:
    """The same function for a thread: it runs in the event loop."""
    loop = asyncio.get_running_loop()

    def emit_later(event: Progress | Partial) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the call with it
            loop.call_soon_threadsafe(emit, event)

    return emit_later


def text_of(error: BaseException) -> str:
    """The text of an exception of a function; what ended it, if it is not an `Exception`."""
    return f"the function called `sys.exit({error})`" if isinstance(error, SystemExit) else str(error)


def refused_arguments(call: Call, violations: Sequence[Violation]) -> Result:
    """The result of a call whose arguments match the schema, but not what only Python can check."""
    seen = Redactor(call.arguments, call.tool.input_schema)
    report = ViolationReport([*violations])
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
    return Result.failure(Outcome.INVALID_ARGUMENTS, message, details=details)


def unwritable_result(tool: str, why: str) -> Result:
    """The result of a call whose value has no JSON form."""
    message = f"the result of `{tool}` cannot be written as JSON: {why}"
    return Result.failure(Outcome.INVALID_RESULT, message)
