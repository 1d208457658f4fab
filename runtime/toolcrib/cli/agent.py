"""`toolcrib agent`: run agents of other makers over ACP, with the tools, the rules and the terminal of toolcrib."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

import click

from toolcrib.acp import Agent, AgentFailure, PermissionOption, PermissionQuestion, Turn, TurnResult
from toolcrib.cli import exit_codes
from toolcrib.cli.approvals import TerminalApprover
from toolcrib.cli.chat import is_piped, read_policy
from toolcrib.cli.chat_output import Terminal, print_error, print_warning
from toolcrib.cli.group import ENDING_SIGNAL, EndingSignal
from toolcrib.cli.options import (
    ReadOptions,
    has_no_sources,
    open_runtime,
    passthrough_option,
    policy_option,
    print_refusals,
    read_options,
)
from toolcrib.cli.output import problem_text
from toolcrib.cli.redirected_stdout import duplicated_stdout, redirected_stdout
from toolcrib.cli.trust import ask_for_consent, can_ask
from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ConfigurationError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Outcome
from toolcrib.core.text import compact, escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.provider import Event
from toolcrib.security.tool_policy import NO_POLICY
from toolcrib.serve.acp.recordings import Recording, replayed
from toolcrib.serve.broadcast import EventBroadcast
from toolcrib.serve.http_common.listen_address import ListenAddress

T = TypeVar("T")

MOST_PORT = 65535

BROADCAST_SESSION = "agent"
"""The session of all events that are broadcast: an agent has one timeline, also if it is started again."""

OF_STOP: Mapping[str, int] = {
    "end_turn": exit_codes.OK,
    "max_tokens": exit_codes.OF_OUTCOME[Outcome.LIMIT_EXCEEDED],
    "max_turn_requests": exit_codes.OF_OUTCOME[Outcome.LIMIT_EXCEEDED],
    "refusal": exit_codes.OF_OUTCOME[Outcome.DENIED],
    "cancelled": exit_codes.OF_OUTCOME[Outcome.CANCELLED],
    "timeout": exit_codes.OF_OUTCOME[Outcome.TIMEOUT],
    "failed": exit_codes.OF_OUTCOME[Outcome.TRANSPORT_ERROR],
    "lost": exit_codes.OF_OUTCOME[Outcome.UNKNOWN_OUTCOME],
}
"""Exit code by the reason why a turn ended."""


@click.group("agent")
def command() -> None:
    """Run agents of other makers over ACP, with the tools and the rules of this project."""


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class AgentRunOptions(NamedTuple):
    """The command-line options of an agent."""

    roots: tuple[Path, ...]
    variables: tuple[str, ...]
    policy_file: str | None
    approved: tuple[str, ...]
    no_tools: bool
    no_write: bool
    no_terminal: bool
    agent_mode: str
    login: str
    resumed: str
    timeout: float | None
    as_json: bool
    record: Path | None
    broadcast: ListenAddress | None
    token_variables: tuple[str, ...]


def _listen_address(_ctx: click.Context, _param: click.Parameter, text: str | None) -> ListenAddress | None:
    if text is None:
        return None
    host, _mark, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= MOST_PORT):
        raise click.BadParameter(f"`{text}` is neither a port nor an address; write 8010 or 127.0.0.1:8010")
    return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))


class _RunCommand(click.Command):
    """A command that says how to write the command of an agent with arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args and not args[0].startswith("-") else ""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            is_extra = isinstance(error, click.NoSuchOption) or "extra argument" in error.message
            if not first or len(first.split()) > 1 or not is_extra:
                raise
            told = f"{error.message.rstrip('.')}. Quote the command of the agent with its arguments: `toolcrib agent run '{first} ...' PROMPT`"
            if isinstance(error, click.NoSuchOption):
                raise click.NoSuchOption(error.option_name, told, error.possibilities, ctx) from None
            raise click.UsageError(told, ctx) from None


@command.command("run", cls=_RunCommand)
@click.argument("agent", metavar="COMMAND")
@click.argument("prompt", required=False, metavar="[PROMPT]")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder whose files and commands the agent may use. Can be repeated; the first is its working directory. "
    "Default: this folder.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Pass this environment variable to the agent, such as the key of its model. Can be repeated. Without it, the agent "
    "gets only PATH, HOME and a few others.",
)
@policy_option
@click.option(
    "--approve",
    "approved",
    multiple=True,
    metavar="GLOB",
    help="Approve matching calls without asking, by the name of the tool or the kind of the call (read, edit, delete, move, "
    "search, execute, think, fetch, other). Can be repeated.",
)
@click.option("--no-tools", is_flag=True, help="Do not offer the tools of this project to the agent.")
@click.option("--no-write", is_flag=True, help="Do not let the agent write files through toolcrib.")
@click.option("--no-terminal", is_flag=True, help="Do not let the agent run commands through toolcrib.")
@click.option(
    "--agent-mode", metavar="ID", default="", help="Mode of the agent, one of those that it offers."
)
@click.option(
    "--login",
    metavar="METHOD",
    default="",
    help="Log in with this method of the agent before the session is opened.",
)
@click.option(
    "--resume", "resumed", metavar="SESSION", default="", help="Continue this session of the agent."
)
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=_seconds,
    help="Cancel a turn after this time, such as `5m`. Default: never.",
)
@click.option(
    "--mode", metavar="MODE", help="Use this mode for every tool of the project that has a block for it."
)
@passthrough_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line: the events, and the result of each turn.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record every message to this file, for `toolcrib agent replay` and `toolcrib doctor --acp`. Secrets are masked.",
)
@click.option(
    "--broadcast",
    metavar="PORT",
    callback=_listen_address,
    help="Send the events to front ends that connect to this port of this machine, or to HOST:PORT; 0 picks a free one.",
)
@click.option(
    "--token-env",
    "token_variables",
    multiple=True,
    metavar="NAME",
    help="Front ends must present the token in this environment variable. Can be repeated.",
)
@read_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    agent: str,
    prompt: str | None,
    mode: str | None,
    passthrough: bool,
    reading: ReadOptions,
    **rest: Any,
) -> None:
    """Run an agent, and print what it says and does.

    COMMAND starts the agent: a program and its arguments in one text, such as `'gemini --experimental-acp'`. With a PROMPT, one
    turn runs; without one, each line of standard input is a turn. The agent runs its own model. It is offered the tools of
    this project as an MCP server, and may use files and run commands below the roots. When it asks for permission, `--policy`,
    the `access` rules of the project and `--approve` decide, else the user is asked; without a terminal, the call is
    rejected. Ctrl-C cancels the turn, and a second Ctrl-C ends the agent.

    The exit code reports the first turn that did not end with an answer: 15 the agent refused, 17 the turn took too long, 18 it was
    cancelled, 20 a limit of the agent was reached, 21 the agent failed, 22 the agent ended.
    """
    options = AgentRunOptions(**rest)
    words, env = _words(agent), dict(map(_variable, options.variables))
    approver = TerminalApprover() if can_ask() else None
    modes: Mapping[str, str] = NOTHING if mode is None else {"*": mode}
    runtime = open_runtime(reading, modes=modes, passthrough=passthrough, approver=approver)
    if approver is not None:
        approver.approvals = runtime.approvals
    sourceless = has_no_sources(runtime)
    if not sourceless:
        print_refusals(runtime)
        ask_for_consent(runtime)
    piped = is_piped()
    with (
        asyncio.Runner() as runner,
        duplicated_stdout() as out,
        _broadcast(options) as front_ends,
    ):
        show = _JsonLines(out) if options.as_json else _Terminal(out, echoes=piped and prompt is None)
        driven = Agent(
            words,
            runtime=runtime,
            tools=not (options.no_tools or sourceless),
            roots=options.roots,
            env=env,
            policy=NO_POLICY if options.policy_file is None else read_policy(options.policy_file),
            approved=options.approved,
            ask=None if piped or options.as_json else _TerminalQuestions(show).ask,
            writes=not options.no_write,
            terminals=not options.no_terminal,
            mode=options.agent_mode,
            login=options.login,
            report=show.problem,
            record=options.record,
        )
        session = AgentSessionRun(runner, driven, show, options, front_ends)
        try:
            stops = session.run(runtime, prompt, _piped_lines() if piped else None)
        except AgentFailure as error:
            print_error(error.message, error.code, error.hint)
            ctx.exit(exit_codes.OF_OUTCOME[Outcome.TRANSPORT_ERROR])
        finally:
            session.close(runtime)
    ctx.exit(next((code for stop in stops if (code := OF_STOP[stop])), exit_codes.OK))


@contextmanager
def _broadcast(options: AgentRunOptions) -> Iterator[Callable[[Event], None]]:
    """Broadcast events within the block, if the user wants it.

    Yields:
        Broadcasts an event.
    """
    if options.broadcast is None:
        if options.token_variables:
            raise click.UsageError("`--token-env` needs `--broadcast`")
        yield lambda _event: None
        return
    from toolcrib.cli.serve import tokens_of  # noqa: PLC0415 -- the servers, which nothing else here needs

    tokens = tokens_of(options.token_variables, ())
    address = options.broadcast._replace(tokens=tuple(tokens.values()), users=tuple(tokens))
    with EventBroadcast(address, print_warning) as server:
        click.echo(f"broadcasting at {server.url}", err=True)
        yield lambda event: server.add(BROADCAST_SESSION, event)


@command.command("replay")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--session", metavar="ID", default="", help="Only this session.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line: the events, with their `session`.",
)
@click.pass_context
def replay(ctx: click.Context, *, file: Path, session: str, as_json: bool) -> None:
    """Show what happened on a recorded connection, as `agent run` has shown it.

    FILE was written by `toolcrib agent run --record` or `toolcrib serve acp --record`. Nothing is started. Exits with 1 if a line of
    it cannot be read. `toolcrib doctor --acp FILE` says what is wrong on the connection.
    """
    recording = Recording(file)
    shown: set[str] = set()
    with duplicated_stdout() as out:
        lines, terminal = _JsonLines(out), _Terminal(out, echoes=True)
        for told in replayed(recording):
            if session and told.session != session:
                continue
            if as_json:
                lines.line(told.as_json())
                shown.add(told.session)
                continue
            if told.session and told.session not in shown:
                terminal.note(f"session {told.session}")
            shown.add(told.session)
            terminal.replay(told.event)
        terminal.ended()
    for problem in recording.problems:
        click.echo(problem_text(problem), err=True)
    if session and session not in shown:
        hint = did_you_mean(session, {told.session for told in replayed(Recording(file)) if told.session})
        raise ConfigurationError(
            f"the recording has no session `{session}`",
            code="unknown_session",
            hint=hint or "leave out `--session`",
        )
    wrong = any(problem.severity == "error" for problem in recording.problems)
    ctx.exit(exit_codes.PROBLEMS if wrong else exit_codes.OK)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"COMMAND cannot be divided into words: {error}") from None
    if not words:
        raise click.UsageError(
            "COMMAND is empty; name the program of the agent, such as `'gemini --experimental-acp'`"
        )
    return words


def _variable(written: str) -> tuple[str, str]:
    name, sign, value = written.partition("=")
    if sign:
        return name, value
    found = os.environ.get(name)
    if found is None:
        raise click.UsageError(
            escape_terminal(f"`--env {name}`: the variable is not set; set it, or write `--env {name}=VALUE`")
        )
    return name, found


def _piped_lines() -> Iterable[str]:
    return (line.strip() for line in sys.stdin)


class AgentSessionRun:
    """Runs the turns of an agent, at a terminal or from a pipe.

    Args:
        runner: Event loop for all turns.
        agent: The agent.
        show: Displays events.
        options: The options of the command line.
        front_ends: Broadcasts an event.
    """

    def __init__(
        self,
        runner: asyncio.Runner,
        agent: Agent,
        show: _Display,
        options: AgentRunOptions,
        front_ends: Callable[[Event], None],
    ) -> None:
        self._runner = runner
        self._agent = agent
        self._show = show
        self._options = options
        self._front_ends = front_ends
        self._signal: EndingSignal = click.get_current_context().meta[ENDING_SIGNAL]

    def run(self, runtime: Runtime, prompt: str | None, lines: Iterable[str] | None) -> list[str]:
        """Start the agent, run the turns, and return why each ended.

        Args:
            runtime: The tools.
            prompt: The only message; None for one message per line.
            lines: The lines of a pipe; None to read lines from the terminal.
        """
        self._work(self._started(runtime))
        if prompt is not None:
            return [self._turn(prompt)]
        stops = []
        for line in self._typed() if lines is None else lines:
            if line:
                self._show.said(line)
                stops.append(self._turn(line))
        return stops

    def close(self, runtime: Runtime) -> None:
        """End the agent, and close the tools."""
        self._show.ended()
        self._work(self._agent.aclose())
        self._work(runtime.aclose())

    def _work(self, work: Coroutine[Any, Any, T]) -> T:
        with redirected_stdout():
            return self._runner.run(work)

    async def _started(self, runtime: Runtime) -> None:
        await runtime.__aenter__()
        # Without the events of the session so far, if it is continued.
        if self._options.resumed:
            for event in await self._agent.resume(self._options.resumed):
                self._event(event)
        else:
            await self._agent.__aenter__()

    def _typed(self) -> Iterator[str]:
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415 -- gives `input` line editing and history
        while True:
            try:
                yield input("> ").strip()
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                if self._signal.ends:
                    raise
                click.echo("\nCtrl-D ends the agent")

    def _turn(self, text: str) -> str:
        result = self._work(self._shown(self._agent.prompt(text, timeout=self._options.timeout)))
        self._show.stopped(result)
        return result.stop

    async def _shown(self, turn: Turn) -> TurnResult:
        """Show a turn. The first Ctrl-C, which cancels this coroutine, cancels the turn, whose last events are still shown."""
        showing = asyncio.ensure_future(self._followed(turn))
        try:
            await asyncio.shield(showing)
        except asyncio.CancelledError:
            if self._signal.ends:
                raise
            await turn.cancel()
            await showing
        assert turn.result is not None  # noqa: S101 -- the iteration has ended
        return turn.result

    async def _followed(self, turn: Turn) -> None:
        async for event in turn:
            self._event(event)

    def _event(self, event: Event) -> None:
        self._show.event(event)
        self._front_ends(event)


class _JsonLines:
    """Prints each event, and the result of each turn, as a JSON object on a line of its own."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def event(self, event: Event) -> None:
        self.line(event.as_json())

    def said(self, line: str) -> None:
        """Print nothing: the event follows."""

    def note(self, text: str) -> None:
        click.echo(escape_terminal(text), err=True)

    def problem(self, problem: Problem) -> None:
        """Print the problem on stderr."""
        print_warning(str(problem))

    def stopped(self, result: TurnResult) -> None:
        told: dict[str, JSON] = {"type": "result", "stop": result.stop, "session": result.session}
        if result.failure:
            told["failure"] = dict(result.failure)
        if result.usage:
            told["usage"] = dict(result.usage)
        self.line(told)

    def ended(self) -> None:
        """Print nothing."""

    def line(self, value: dict[str, JSON]) -> None:
        """Print a value."""
        click.echo(compact(value), file=self._out)


class _Terminal(Terminal):
    """Prints the text of an agent as it streams, and its calls, plans and changes of mode on lines of their own."""

    def event(self, event: Event) -> None:
        details = event.details or {}
        if event.type in {"call", "call_updated"} and not event.tool:
            # Few agents give the name of the tool; all give a title.
            event = event._replace(tool=str(details.get("title") or ""))
        if event.type == "content":
            self.note(event.text)
        elif event.type == "plan":
            entries = details.get("entries")
            for each in entries if isinstance(entries, list) else ():
                if isinstance(each, dict):
                    self.note(f"  [{each.get('status', '')}] {each.get('content', '')}")
        elif event.type == "session" and "mode" in details:
            self.note(f"mode: {details['mode']}")
        else:
            super().event(event)

    def replay(self, event: Event) -> None:
        """Print an event of a recording: also what `run` prints of its prompts, its problems and its results."""
        if event.type == "user":
            self.said(event.text)
        elif event.type == "violation":
            self.warning(event.text)
        elif event.type == "turn_ended":
            self.event(event)
            self.stopped(TurnResult(event.stop))
        else:
            self.event(event)

    def problem(self, problem: Problem) -> None:
        self.warning(str(problem))

    def stopped(self, result: TurnResult) -> None:  # type: ignore[override]
        self._end_line()
        if result.failure:
            print_error(result.failure["message"], result.failure["code"], result.failure["hint"])
        elif not result.ok:
            print_warning(f"the turn ended: {result.stop}")

    def ended(self) -> None:  # type: ignore[override]
        self._end_line()


_Display = _JsonLines | _Terminal


class _TerminalQuestions:
    """Asks the user about calls of an agent, without blocking the event loop."""

    def __init__(self, show: _Display) -> None:
        self._show = show

    async def ask(self, question: PermissionQuestion) -> PermissionOption | None:
        """Show the call and its options, and return the selected one; None if the user rejects the call."""
        call, options = question.call, question.options
        self._show.note(f"\n{call.title or call.name} ({call.kind})")
        if call.arguments:
            self._show.note(f"  {compact(dict(call.arguments))}")
        if question.reason:
            self._show.note(f"  {question.reason}")
        for number, option in enumerate(options, 1):
            self._show.note(f"  {number}) {option.name or option.kind}")
        while True:
            click.echo(f"select 1-{len(options)}, or press Enter to reject: ", err=True, nl=False)
            said = (await _line_of_terminal()).strip()
            if not said:
                return None
            if said.isdecimal() and 1 <= int(said) <= len(options):
                return options[int(said) - 1]
            click.echo(f"`{escape_terminal(said)}` is none of them", err=True)


async def _line_of_terminal() -> str:
    """A line that is typed; empty at the end of the input."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        # A terminal returns whole lines.
        text = os.read(0, 4096).decode("utf-8", "replace")
        if not line.done():
            line.set_result(text)

    loop.add_reader(0, read)
    try:
        return await line
    finally:
        loop.remove_reader(0)
