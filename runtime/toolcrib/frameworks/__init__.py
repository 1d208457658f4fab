"""Other agent frameworks use the tools of a runtime: LangChain, Pydantic AI, the OpenAI Agents SDK, Inspect.

A framework's calls run through the same layers as all other calls. toolcrib alone validates arguments and results. Each
framework is an extra, which is imported when its function is called; see `docs/reference/frameworks.md`.

This package imports `provider` and the packages below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.frameworks.tool_adapter import ToolSelection

if TYPE_CHECKING:
    from agents import FunctionTool
    from inspect_ai.tool import ToolSource
    from langchain_core.tools import BaseTool
    from pydantic_ai.toolsets import AbstractToolset

    from toolcrib.engine.runtime import Runtime
    from toolcrib.engine.session import Session

__all__ = ["to_inspect", "to_langchain", "to_openai_agents", "to_pydantic_ai"]


def to_langchain(
    tools: Runtime | Session,
    *names: str,
    toolset: str | None = None,
    ask: Iterable[str] = (),
    dialect: str = "plain",
) -> list[BaseTool]:
    """Return tools for LangChain and LangGraph. Needs the extra `langchain`.

    Progress and partial content reach `stream_mode="custom"` and custom events. A call that needs approval interrupts the
    graph; resume it with `Command(resume={"approve": True})` or another answer of `toolcrib.provider.Answer`.

    Example:
        ```python
        async with Runtime.open("descriptors") as tools:
            agent = create_agent(model, to_langchain(tools))
        ```

    Args:
        tools: A runtime, which means its default session, or a session.
        names: Names or globs of the tools (default: all that are offered).
        toolset: Name of a toolset that limits them further.
        ask: Names or globs of tools whose calls all need approval.
        dialect: Form of the schemas, as `toolcrib cost` lists them, such as `openai_strict`.

    Raises:
        ConfigurationError: The extra is missing (`missing_extra`); the tools of a server are not known yet
            (`not_discovered`); a name, the toolset or the dialect is unknown.
    """
    with _imports_of("LangChain", "langchain"):
        from toolcrib.frameworks.langchain import LangChainTool  # noqa: PLC0415 -- optional
    selection = ToolSelection(tools, names, toolset=toolset, ask=ask, dialect=dialect)
    return [LangChainTool(each) for each in selection.adapters("to_langchain")]


def to_pydantic_ai(
    tools: Runtime | Session,
    *names: str,
    toolset: str | None = None,
    ask: Iterable[str] = (),
    dialect: str = "plain",
    id: str | None = None,  # noqa: A002 -- the name in Pydantic AI
) -> AbstractToolset[Any]:
    """Return a toolset for Pydantic AI. Needs the extra `pydantic-ai`.

    The toolset lists the tools before each request to the model, so that it follows reloads, and lists MCP servers that were
    not listed yet. Progress and partial content are events of the run (`ToolcribProgressEvent` and
    `ToolcribContentEvent` of `toolcrib.frameworks.pydantic_ai`). A call that needs approval is deferred: the run ends with `DeferredToolRequests`.

    Example:
        ```python
        async with Runtime.open("descriptors") as tools:
            agent = Agent(model, toolsets=[to_pydantic_ai(tools)])
        ```

    Args:
        tools: A runtime, which means its default session, or a session.
        names: Names or globs of the tools (default: all that are offered).
        toolset: Name of a toolset that limits them further.
        ask: Names or globs of tools whose calls all need approval.
        dialect: Form of the schemas, as `toolcrib cost` lists them, such as `openai_strict`.
        id: The ID of the toolset, which durable execution needs.

    Raises:
        ConfigurationError: The extra is missing (`missing_extra`), or the toolset or the dialect is unknown. An unknown name is
            reported when the tools are listed.
    """
    with _imports_of("Pydantic AI", "pydantic-ai"):
        from toolcrib.frameworks.pydantic_ai import RuntimeToolset  # noqa: PLC0415 -- optional
    return RuntimeToolset(ToolSelection(tools, names, toolset=toolset, ask=ask, dialect=dialect), id)


def to_openai_agents(
    tools: Runtime | Session,
    *names: str,
    toolset: str | None = None,
    ask: Iterable[str] = (),
    dialect: str = "openai_responses",
) -> list[FunctionTool]:
    """Return function tools for the OpenAI Agents SDK. Needs the extra `openai-agents`.

    The SDK has no events of running tools: progress becomes custom spans of its traces. A call that `access` or `ask` asks
    about interrupts the run; approve or reject it with the `RunState` of the result.

    Example:
        ```python
        async with Runtime.open("descriptors") as tools:
            agent = Agent(name="Shop", tools=to_openai_agents(tools))
        ```

    Args:
        tools: A runtime, which means its default session, or a session.
        names: Names or globs of the tools (default: all that are offered).
        toolset: Name of a toolset that limits them further.
        ask: Names or globs of tools whose calls all need approval.
        dialect: Form of the schemas, as `toolcrib cost` lists them; `openai_responses_strict` for strict mode.

    Raises:
        ConfigurationError: The extra is missing (`missing_extra`); the tools of a server are not known yet
            (`not_discovered`); a name, the toolset or the dialect is unknown.
    """
    with _imports_of("the OpenAI Agents SDK", "openai-agents"):
        from toolcrib.frameworks.openai_agents import function_tool_of  # noqa: PLC0415 -- optional
    selection = ToolSelection(tools, names, toolset=toolset, ask=ask, dialect=dialect)
    return [function_tool_of(each) for each in selection.adapters("to_openai_agents")]


def to_inspect(
    tools: Runtime | Session,
    *names: str,
    toolset: str | None = None,
    ask: Iterable[str] = (),
    dialect: str = "plain",
) -> ToolSource:
    """Return a tool source for Inspect. Needs the extra `inspect`.

    Each sample has its own session of a runtime, so that mocks of concurrent samples share no state; a session is shared by
    all samples. MCP servers that were not listed yet are listed when a sample starts. Progress and partial content are
    written to the transcript. A call that needs approval is made if an approval policy of Inspect has approved it.

    Example:
        ```python
        tools = Runtime.open("descriptors")
        task = Task(dataset, solver=[use_tools(to_inspect(tools)), generate()], scorer=includes())
        ```

    Args:
        tools: A runtime or a session.
        names: Names or globs of the tools (default: all that are offered).
        toolset: Name of a toolset that limits them further.
        ask: Names or globs of tools whose calls all need approval.
        dialect: Form of the schemas, as `toolcrib cost` lists them.

    Raises:
        ConfigurationError: The extra is missing (`missing_extra`), or the toolset or the dialect is unknown. An unknown name is
            reported when the tools are listed.
    """
    with _imports_of("Inspect", "inspect"):
        from toolcrib.frameworks.inspect_ai import RuntimeToolSource  # noqa: PLC0415 -- optional
    return RuntimeToolSource(ToolSelection(tools, names, toolset=toolset, ask=ask, dialect=dialect))


def _imports_of(framework: str, extra: str) -> AbstractContextManager[None]:
    return imports_of_extra(extra, cannot=f"pass tools to {framework}", doing=f"passing tools to {framework}")
