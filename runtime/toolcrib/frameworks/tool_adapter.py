"""The tools of a runtime as agent frameworks see them: declared for models, and called with what models write."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias, TypeVar, cast

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Content, Descriptor, Outcome, Partial, Progress, Result
from toolcrib.core.text import decode_json, text_for_model
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.formats.providers import Declaration, declare
from toolcrib.provider.loop.approvals import answer_refusal, planned_call, unreadable_result
from toolcrib.provider.loop.calls import PlannedCall
from toolcrib.provider.messages import ToolCall
from toolcrib.registry.registry import Registry, how_many
from toolcrib.security.approvals import Answer, Pending
from toolcrib.security.redaction import redact

T = TypeVar("T")

Hear: TypeAlias = Callable[[Progress | Partial], Awaitable[None]]
"""Receives the progress and the partial content of a call."""

RAISED: Final = frozenset({Outcome.INTERNAL, Outcome.UNMATCHED_MOCK})
"""Outcomes that the model cannot do anything about: bugs, and mocks without a reply. The framework gets an exception."""


class ToolAdapter:
    """A tool of a session, for one framework.

    Attributes:
        name: Its name for models.
        description: Its description for models.
        schema: JSON Schema of its arguments, an object.
        strict: Whether the schema is valid in OpenAI's strict mode.
        tool: The tool.
        asks: Whether every call needs approval.
    """

    def __init__(self, session: Session, tool: Descriptor, declaration: Declaration, *, asks: bool) -> None:
        self.name = declaration.name
        self.description = declaration.description
        self.schema: dict[str, Any] = dict(declaration.schema)
        self.strict = declaration.strict
        self.tool = tool
        self.asks = asks
        self._declaration = declaration
        self._restore = declaration.restore
        self._session = session

    def with_session(self, session: Session) -> ToolAdapter:
        """The same tool in another session."""
        return ToolAdapter(session, self.tool, self._declaration, asks=self.asks)

    async def call(
        self,
        arguments: Mapping[str, JSON] | str,
        *,
        id: str = "",  # noqa: A002 -- the ID of the call
        answer: Answer | None = None,
        code: str = Outcome.NEEDS_APPROVAL.value,
        hear: Hear | None = None,
    ) -> Result:
        """Call the tool with the arguments of a model.

        Args:
            arguments: The arguments, or the JSON text that the model wrote.
            id: ID of the call in the framework.
            answer: The decision about a call that is pending.
            code: Why it was pending: `needs_approval` or `client_tool_deferred`.
            hear: Receives progress and partial content; without it, they are dropped.

        Raises:
            CallError: The outcome is one of `RAISED`.
        """
        planned = self._planned(arguments, id, answer, code)
        return _checked(planned if isinstance(planned, Result) else await self._made(planned, hear))

    def call_sync(
        self,
        arguments: Mapping[str, JSON] | str,
        *,
        id: str = "",  # noqa: A002
        answer: Answer | None = None,
        code: str = Outcome.NEEDS_APPROVAL.value,
        hear: Hear | None = None,
    ) -> Result:
        """`call` for code without an event loop.

        Raises:
            CallError: The outcome is one of `RAISED`.
            ConfigurationError: An event loop is running in this thread.
        """
        planned = self._planned(arguments, id, answer, code)
        if isinstance(planned, Result):
            return _checked(planned)
        if not planned.grants and planned.client is None:
            at_once = self._session.call_at_once(self.tool.name, planned.call.arguments, correlation=id)
            if at_once is not None:
                return _checked(at_once)
        return _checked(engine_of(self._session).run(self._made(planned, hear)))

    def pending(self, arguments: Mapping[str, JSON] | str, result: Result, id: str = "") -> Pending:  # noqa: A002
        """The call that waits for a person or a client, with `***` in place of secrets."""
        given = self._given(arguments, id)
        shown = {} if given.arguments is None else redact(given.arguments, self.tool.input_schema)
        failure = result.error
        code, details = (
            (result.outcome.value, NOTHING) if failure is None else (failure.code, failure.details)
        )
        return Pending(id, self.tool.name, cast("dict[str, JSON]", shown), code, result.message, details)

    @property
    def may_need_approval(self) -> bool:
        """Whether `needs_approval` may be true: the tool is one of those to ask about, or access has rules that ask."""
        return self.asks or self._session.may_ask(self.tool.name)

    def needs_approval(self, arguments: Mapping[str, JSON] | str, id: str = "") -> bool:  # noqa: A002
        """Whether a call would wait for a person: the tool is one of those to ask about, or access asks about the call.

        Args:
            arguments: As in `call`. False if they are invalid, because the call fails.
            id: As in `call`.
        """
        given = self._given(arguments, id)
        if given.arguments is None:
            return False
        if self.asks:
            return self._asked(given.arguments).outcome is Outcome.NEEDS_APPROVAL
        return self._session.asks(self.tool.name, given.arguments, correlation=id)

    def _given(self, arguments: Mapping[str, JSON] | str, id: str) -> ToolCall:  # noqa: A002
        if not isinstance(arguments, str):
            return ToolCall(id, self.tool.name, self._restore(dict(arguments)))
        try:
            value = decode_json(arguments or "{}")
        except (ValueError, RecursionError):
            value = None
        return ToolCall(
            id, self.tool.name, self._restore(value) if isinstance(value, dict) else None, written=arguments
        )

    def _planned(
        self,
        arguments: Mapping[str, JSON] | str,
        id: str = "",  # noqa: A002
        answer: Answer | None = None,
        code: str = "",
    ) -> PlannedCall | Result:
        """The call to make, or the result of one that is not made."""
        given = self._given(arguments, id)
        if given.arguments is None:
            return unreadable_result(given)
        if answer is None:
            return self._asked(given.arguments) if self.asks else PlannedCall(given)
        if answer.kind in {"approve", "reject", "expire"}:
            self._session.settle(self.tool.name, given.arguments, answer, correlation=id)
        refused = answer_refusal(given, answer, Pending(id, given.name, given.arguments, code, ""), 0)
        if refused is not None:
            return refused
        edited = given.arguments if answer.arguments is None else answer.arguments
        return planned_call(given._replace(arguments=edited), answer)

    def _asked(self, arguments: dict[str, JSON]) -> Result:
        # Invalid arguments first: people should not be asked about a call that would fail anyway.
        prepared = self._session.check_arguments(self.tool.name, arguments)
        if isinstance(prepared, Result):
            return prepared
        return Result.failure(Outcome.NEEDS_APPROVAL, f"`{self.tool.name}` requires approval")

    async def _made(self, planned: PlannedCall, hear: Hear | None) -> Result:
        call, session = planned.call, self._session
        options: dict[str, Any] = {
            "grants": planned.grants,
            "client": planned.client,
            "correlation": call.id,
        }
        if hear is None:
            return await session.call(call.name, call.arguments, **options)
        async with aclosing(cast("Any", session.stream(call.name, call.arguments, **options))) as events:
            async for event in events:
                if isinstance(event, Result):
                    return event
                await hear(event)
        raise AssertionError("the call ended without a result")


def _checked(result: Result) -> Result:
    return result.raise_for_outcome() if result.outcome in RAISED else result


class ToolSelection:
    """Chooses the tools of a runtime or session that a framework gets.

    Attributes:
        is_runtime: Whether the tools are those of a runtime, which has more sessions.
    """

    def __init__(
        self,
        tools: Runtime | Session,
        names: Sequence[str] = (),
        *,
        toolset: str | None = None,
        ask: Iterable[str] = (),
        dialect: str = "plain",
    ) -> None:
        """Choose tools; the parameters are those of `to_langchain`.

        Raises:
            ConfigurationError: The toolset or the dialect is unknown, or an argument is not of its type.
        """
        if not isinstance(tools, Runtime | Session):
            raise ConfigurationError(
                f"expected a `Runtime` or a `Session`, got a `{type(tools).__name__}`",
                hint="pass the runtime that `Runtime.open(...)` returns",
            )
        self._engine = engine_of(tools)
        self.is_runtime = isinstance(tools, Runtime)
        self._session = self._engine.default_session if isinstance(tools, Runtime) else tools
        self._names = tuple(map(_glob, names))
        self._ask = (_glob(ask),) if isinstance(ask, str) else tuple(map(_glob, ask))
        self._toolset = toolset
        self._dialect = dialect
        declare((), dialect)
        _within(self._session.registry, toolset)
        self._found: tuple[Registry, list[ToolAdapter]] | None = None

    def new_session(self) -> Session:
        """A session of the runtime with the same tools."""
        return self._engine.session()

    def adapters(self, caller: str) -> list[ToolAdapter]:
        """The tools, sorted by name.

        Args:
            caller: The function to name in messages.

        Raises:
            ConfigurationError: A name is unknown, or the tools of a server are not known yet.
        """
        engine = self._engine
        unknown = [*engine.unasked, *(engine.unimported if engine.has_untried_sources else ())]
        if unknown:
            sources = ", ".join(f"`{name}`" for name in unknown)
            raise ConfigurationError(
                f"the tools of {sources} are not known yet",
                code="not_discovered",
                hint=f"call `{caller}` inside `async with Runtime.open(...)`, which lists servers and imports sources",
            )
        engine.complete()
        return self._adapters()

    async def discovered(self) -> list[ToolAdapter]:
        """The tools, sorted by name, after listing servers that were not listed yet.

        Raises:
            ConfigurationError: A name is unknown.
        """
        await self._engine.discover_all()
        return self._adapters()

    def _adapters(self) -> list[ToolAdapter]:
        registry = self._session.registry
        # Frameworks list tools before every request, and compiling schemas takes longer than a call.
        if self._found is None or self._found[0] is not registry:
            chosen = [tool for tool in self._chosen(registry) if self._is_declarable(tool)]
            aliases = {tool.name: registry.alias_of(tool.name) for tool in chosen}
            by_name = {tool.name: tool for tool in chosen}
            self._found = (
                registry,
                [
                    ToolAdapter(
                        self._session, by_name[each.tool], each, asks=_matches_any(each.tool, self._ask)
                    )
                    for each in declare(chosen, self._dialect, aliases)
                ],
            )
        return self._found[1]

    def _chosen(self, registry: Registry) -> list[Descriptor]:
        tools = _within(registry, self._toolset).select()
        offered = [tool.name for tool in tools]
        for glob in (*self._names, *self._ask):
            if glob != "*" and not any(fnmatchcase(name, glob) for name in offered):
                hint = registry.why_hidden(glob) or did_you_mean(glob.strip("*?"), offered)
                raise ConfigurationError(
                    f"`{glob}` matches no tool", code="unknown_tool", hint=hint or how_many(registry)
                )
        return [tool for tool in tools if not self._names or _matches_any(tool.name, self._names)]

    def _is_declarable(self, tool: Descriptor) -> bool:
        """Whether the schema of a tool is known; if not, the log has the reason, or it is an error for a tool that was named."""
        why = self._engine.why_without_schema(tool)
        if not why:
            return True
        message = f"the schema of `{tool.name}` is not known: {why}"
        if tool.name in self._names:
            raise ConfigurationError(message, code="unknown_schema", hint="write its `input_schema`")
        _log().warning("%s; it is not offered", message)
        return False


def _glob(name: object) -> str:
    if isinstance(name, str):
        return name
    raise ConfigurationError(
        f"expected the name of a tool, got a `{type(name).__name__}`",
        hint='pass names one by one: `to_langchain(tools, "get_order", "find_*")`',
    )


def _matches_any(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _within(registry: Registry, toolset: str | None) -> Registry:
    return registry if toolset is None else registry.within(toolset)


def _log() -> logging.Logger:
    return logging.getLogger("toolcrib")


def text_and_media(result: Result, convert: Callable[[Content], T | None]) -> tuple[str, list[T]]:
    """The text of a result for a model, and its other parts in the form of a framework.

    Args:
        result: The result.
        convert: Converts an image or another part; None for a part that the text describes instead.
    """
    media: list[T] = []
    texts: list[Content] = []
    for part in result.content:
        converted = None if part.text is not None else convert(part)
        if converted is None:
            texts.append(part)
        else:
            media.append(converted)
    return text_for_model(result._replace(content=tuple(texts)) if media else result), media


def event_as_json(event: Progress | Partial) -> dict[str, JSON]:
    """Progress or partial content as a JSON object: `{progress, total, message}` or `{content}`."""
    if isinstance(event, Partial):
        return {"content": event.content.as_json()}
    return {"progress": event.progress, "total": event.total, "message": event.message}
