"""`toolcrib remote`: the tools of A2A agents by the agents' own names, and the tasks of agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.approvals import TerminalApprover
from toolcrib.cli.arguments import read_arguments
from toolcrib.cli.call import event_line, print_result
from toolcrib.cli.options import (
    ReadOptions,
    args_file_option,
    json_option,
    open_runtime,
    read_options,
    words_argument,
)
from toolcrib.cli.output import json_text, outline, table, terminal_width
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.trust import can_ask
from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import NotReady
from toolcrib.core.model import JSON, Failure, Outcome, Result
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.remote_tools import RemoteTool, agents_of
from toolcrib.engine.runtime import Runtime

_AGENT = click.argument("agent", metavar="AGENT")
_TOOL = click.argument("tool", metavar="TOOL")
_TASK = click.argument("task", metavar="TASK")

_T = TypeVar("_T")


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_TIMEOUT = click.option(
    "--timeout",
    metavar="DURATION",
    callback=_seconds,
    help="Deadline of the call, such as `5s`, instead of the tool's own.",
)
_METADATA = click.option(
    "--metadata",
    metavar="KEY=TEXT",
    multiple=True,
    help="Metadata of the call for the agent. Can be repeated.",
)


@click.group("remote")
def command() -> None:
    """Use the tools of A2A agents by the agents' own names.

    The agents are those under `agents` in toolcrib.yaml. Their tools need not be imported.
    """


@command.command("list")
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@json_option
@read_options
@click.pass_context
def list_(ctx: click.Context, *, agents: tuple[str, ...], as_json: bool, reading: ReadOptions) -> None:
    """List the tools of agents; without names, of all agents. The exit code is 14 if an agent cannot be used."""
    runtime = open_runtime(reading)
    found = _run(_listed(runtime, agents))
    failures = {name: each for name, each in found.items() if isinstance(each, NotReady)}
    tools = [tool for each in found.values() if not isinstance(each, NotReady) for tool in each]
    if as_json:
        told = {name: {"code": error.code, "message": error.message} for name, error in failures.items()}
        click.echo(json_text({"tools": [_document(tool) for tool in tools], "failures": told}))
    else:
        _echo(table([(tool.agent, tool.name, tool.description) for tool in tools], terminal_width()))
        for error in failures.values():
            _echo([error.message, *([f"    hint: {error.hint}"] if error.hint else [])], err=True)
        if not found:
            click.echo("no agent is configured; add one under `agents` in toolcrib.yaml", err=True)
    denied = bool(failures) and all(error.denied for error in failures.values())
    outcome = Outcome.DENIED if denied else Outcome.UNAVAILABLE if failures else Outcome.OK
    ctx.exit(exit_codes.OF_OUTCOME[outcome])


async def _listed(runtime: Runtime, names: tuple[str, ...]) -> dict[str, tuple[RemoteTool, ...] | NotReady]:
    async def one(name: str) -> tuple[RemoteTool, ...] | NotReady:
        try:
            return await runtime.list_remote_tools(name)
        # One agent that is down must not hide the tools of the others.
        except NotReady as error:
            return error

    async with aclosing(runtime):
        engine = engine_of(runtime)
        await engine.read_directories()
        wanted = names or tuple(agents_of(runtime.servers))
        found = dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
        down = {} if names else {name: error for name, error in engine.down.items() if name not in found}
        return {**found, **down}


@command.command("describe")
@_AGENT
@_TOOL
@json_option
@read_options
@click.pass_context
def describe(ctx: click.Context, *, agent: str, tool: str, as_json: bool, reading: ReadOptions) -> None:
    """Show the description, the schemas and the hints of a tool."""
    runtime = open_runtime(reading)
    (found,) = _run(_listed(runtime, (agent,))).values()
    if isinstance(found, NotReady):
        raise found
    described = next((each for each in found if each.name == tool), None)
    if described is None:
        known = ", ".join(f"`{escape_terminal(each.name)}`" for each in found) or "none"
        raise click.UsageError(f"the agent `{agent}` has no tool `{tool}`; its tools are: {known}", ctx)
    document = _document(described)
    if as_json:
        click.echo(json_text(document))
    else:
        _echo(outline({key: value for key, value in document.items() if value not in ("", None, {})}))


def _document(tool: RemoteTool) -> dict[str, JSON]:
    return {**tool._asdict(), "annotations": dict(tool.annotations)}


def _calls(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the arguments and options of a call."""
    for option in (
        read_options,
        json_option,
        _METADATA,
        _TIMEOUT,
        args_file_option,
        words_argument,
        _TOOL,
        _AGENT,
    ):
        function = option(function)
    return click.pass_context(function)


@command.command("call")
@_calls
def call(ctx: click.Context, **given: Any) -> None:
    """Call a tool of an agent. The result goes to stdout; the exit code reports the outcome."""
    ctx.exit(_called(streams=False, **given))


@command.command("stream")
@_calls
def stream(ctx: click.Context, **given: Any) -> None:
    """Call a tool of an agent, and print its progress and partial results on stderr as they arrive."""
    ctx.exit(_called(streams=True, **given))


def _called(
    *,
    streams: bool,
    agent: str,
    tool: str,
    words: tuple[str, ...],
    args_file: str | None,
    timeout: float | None,
    metadata: tuple[str, ...],
    as_json: bool,
    reading: ReadOptions,
) -> int:
    """Make a call, and print its result. Returns the exit code."""
    arguments, more = read_arguments(words, args_file), read_arguments(metadata)
    runtime = _opened(reading)
    make = runtime.execute_remote_tool_streaming if streams else runtime.execute_remote_tool
    made: Any = make(agent, tool, arguments, metadata=more, timeout=timeout)
    return _print(
        _run(_alone(runtime, _told(made) if streams else made)), as_json=as_json, worded=bool(words)
    )


async def _told(events: AsyncGenerator[Any]) -> Result:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Result):
                return event
            _echo([event_line(event)], err=True)
    raise AssertionError("a stream ends with a result")


@command.command("answer")
@_AGENT
@_TOOL
@_TASK
@click.argument("text", metavar="TEXT")
@_TIMEOUT
@json_option
@read_options
@click.pass_context
def answer(
    ctx: click.Context,
    *,
    agent: str,
    tool: str,
    task: str,
    text: str,
    timeout: float | None,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Answer the question of a task, which then continues."""
    runtime = _opened(reading)
    details: dict[str, JSON] = {"agent": agent, "tool": tool, "task_id": task}
    waiting = Result(Outcome.NEEDS_APPROVAL, error=Failure("input_required", "", details))
    result = _run(_alone(runtime, runtime.answer_remote_task(waiting, text, timeout=timeout)))
    ctx.exit(_print(result, as_json=as_json))


@command.command("result")
@_AGENT
@_TASK
@json_option
@read_options
@click.pass_context
def result_(ctx: click.Context, *, agent: str, task: str, as_json: bool, reading: ReadOptions) -> None:
    """Print the result of a task, also of another program."""
    runtime = open_runtime(reading)
    result = _run(_alone(runtime, runtime.remote_task_result(agent, task)))
    ctx.exit(_print(result, as_json=as_json))


@command.command("cancel")
@_AGENT
@_TASK
@json_option
@read_options
@click.pass_context
def cancel(ctx: click.Context, *, agent: str, task: str, as_json: bool, reading: ReadOptions) -> None:
    """Cancel a task, also of another program. The exit code is 0 if the agent has cancelled it."""
    runtime = open_runtime(reading)
    result = _run(_alone(runtime, runtime.cancel_remote_task(agent, task)))
    done = result.error is not None and result.error.code == "cancelled_by_agent"
    if as_json or not done:
        status = _print(result, as_json=as_json)
    else:
        click.echo(f"cancelled {escape_terminal(task)}")
    ctx.exit(exit_codes.OK if done else status)


def _opened(reading: ReadOptions) -> Runtime:
    approver = TerminalApprover() if can_ask() else None
    runtime = open_runtime(reading, approver=approver)
    if approver is not None:
        approver.approvals = runtime.approvals
    return runtime


async def _alone(runtime: Runtime, work: Coroutine[Any, Any, Result]) -> Result:
    # `async with runtime` would contact every agent.
    async with aclosing(runtime):
        return await work


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    # Only the result goes to stdout, whatever the code of the project prints.
    with redirected_stdout():
        return asyncio.run(work)


def _print(result: Result, *, as_json: bool, worded: bool = False) -> int:
    status = print_result(result, as_json=as_json, worded=worded)
    details = {} if result.error is None else result.error.details
    if not as_json and result.outcome is Outcome.NEEDS_APPROVAL and "task_id" in details:
        words = " ".join(escape_terminal(str(details.get(key, ""))) for key in ("agent", "tool", "task_id"))
        click.echo(f"    hint: answer with `toolcrib remote answer {words} TEXT`", err=True)
    return status


def _echo(lines: Any, *, err: bool = False) -> None:
    for line in lines:
        click.echo(escape_terminal(line), err=err)
