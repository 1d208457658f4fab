"""`toolcrib shell`: call tools in one session, line by line, at a terminal or from a pipe."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.approvals import TerminalApprover
from toolcrib.cli.arguments import complete_argument, read_arguments
from toolcrib.cli.call import call_tool, print_result
from toolcrib.cli.excluded_files import tell_excluded
from toolcrib.cli.group import ENDING_SIGNAL, EndingSignal
from toolcrib.cli.options import (
    ReadOptions,
    open_runtime,
    passthrough_option,
    print_refusals,
    read_options,
)
from toolcrib.cli.output import json_text, plural, table, terminal_width
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.trust import can_ask
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.text import compact, escape_terminal, first_sentence
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.registry.registry import Registry

T = TypeVar("T")

SESSION = "main"
"""ID of the session, the same as that of `toolcrib call`, so that generated values are the same."""


@click.command("shell")
@click.option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Seed for the values that mocks generate.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each result as one line of JSON.")
@passthrough_option
@read_options
@click.pass_context
def command(ctx: click.Context, *, seed: int, as_json: bool, passthrough: bool, reading: ReadOptions) -> None:
    """Call tools in one session, line by line.

    Each line is a call as `toolcrib call` takes it: `NAME [KEY=TEXT | KEY:=JSON]...`, or `NAME {JSON OBJECT}`. Words are
    quoted as in a shell. All calls share the store of the mocks, which starts from the documents. `/help` lists the
    commands, Tab completes, Ctrl-C ends a call, and Ctrl-D the shell.

    From a pipe, lines that begin with `#` are ignored, and the exit code is that of the first call that failed.
    """
    approver = TerminalApprover() if can_ask() else None
    runtime = open_runtime(reading, seed=seed, passthrough=passthrough, approver=approver)
    if approver is not None:
        approver.approvals = runtime.approvals
    print_refusals(runtime)
    # One runner for all calls keeps servers and connections open between them.
    with asyncio.Runner() as runner:
        shell = Shell(runner, runtime, seed=seed, as_json=as_json)
        try:
            code = shell.typed() if sys.stdin.isatty() else shell.piped(sys.stdin)
        finally:
            _run(runner, runtime.aclose())
    ctx.exit(code)


def _run(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. What the code of tools prints goes to stderr."""
    with redirected_stdout():
        return runner.run(work)


class Shell:
    """Runs the lines of a shell in one session."""

    def __init__(self, runner: asyncio.Runner, runtime: Runtime, *, seed: int, as_json: bool) -> None:
        self._runner = runner
        self._runtime = runtime
        self._seed = seed
        self._as_json = as_json
        self._session = runtime.session(id=SESSION, seed=seed)
        self._signal: EndingSignal = click.get_current_context().meta[ENDING_SIGNAL]

    @property
    def registry(self) -> Registry:
        """The tools."""
        return self._session.registry

    def piped(self, lines: Iterable[str]) -> int:
        """Run all lines and return the exit code of the first one that failed."""
        codes = []
        for line in lines:
            if line.strip() and not line.lstrip().startswith("#"):
                code = self.run(line.strip())
                if code is None:
                    break
                codes.append(code)
        return next((code for code in codes if code), exit_codes.OK)

    def typed(self) -> int:
        """Run the lines that are typed, up to Ctrl-D."""
        with suppress(ImportError):
            enable_completion(lambda line, begin: complete_line(self.registry, line, begin))
        click.echo(
            f"{plural(len(self.registry), 'tool')}; /help lists the commands, Tab completes, Ctrl-D ends",
            err=True,
        )
        while True:
            # A second Ctrl-C may arrive while the first one is reported, so the whole body is in the `try`.
            try:
                line = input("> ").strip()
                if line and self.run(line) is None:
                    return exit_codes.OK
            except EOFError:
                click.echo()
                return exit_codes.OK
            except KeyboardInterrupt:
                if self._signal.ends:
                    raise
                click.echo("\ninterrupted; Ctrl-D or /quit ends the shell", err=True)

    def run(self, line: str) -> int | None:
        """Run a line and return its exit code; None if it ends the shell."""
        if line.startswith("/"):
            return self._command(line)
        # What one types in other shells, as long as no tool has the name.
        if line in ("exit", "help", "quit") and line not in self.registry:
            return self._command(f"/{line}")
        name, _, rest = line.partition(" ")
        try:
            # JSON as it is would lose its quotes.
            words = [rest.strip()] if rest.lstrip().startswith("{") else shlex.split(rest)
            arguments = read_arguments(words)
        except ValueError as error:
            return _refused(f"cannot split the line into words: {str(error).lower()}")
        except click.UsageError as error:
            return _refused(error.message)
        try:
            result = _run(self._runner, call_tool(self._runtime, name, arguments, session=self._session))
        except ToolcribError as error:
            return _refused(str(error))
        if self._as_json:
            click.echo(compact(result.as_json()))
            return exit_codes.OF_OUTCOME[result.outcome]
        code = print_result(result, as_json=False, worded=bool(words))
        if result.outcome is Outcome.NOT_FOUND:
            tell_excluded(self._runtime, name)
            meant = "tools" if name in ("list", "ls") else name
            if meant in COMMANDS:
                click.echo(f"    hint: commands begin with a slash: `/{meant}`", err=True)
        return code

    def _command(self, line: str) -> int | None:
        name, _, rest = line[1:].partition(" ")
        if name in ("quit", "exit"):
            return None
        if name not in COMMANDS:
            near = did_you_mean(f"/{name}", [f"/{each}" for each in COMMANDS])
            return _refused(f"unknown command `/{name}`; {near or 'run `/help` to list them'}")
        try:
            for told in COMMANDS[name][1](self, rest.strip()):
                click.echo(told)
        except ToolcribError as error:
            return _refused(str(error))
        return exit_codes.OK

    def _help(self, _rest: str) -> Iterator[str]:
        yield from table(
            [
                ("NAME KEY=TEXT KEY:=JSON ...", "call a tool"),
                *((f"/{name}", COMMANDS[name][0]) for name in COMMANDS),
            ]
        )

    def _tools(self, _rest: str) -> Iterator[str]:
        rows = [
            (name, tool.mode or "unbound", escape_terminal(first_sentence(tool.description)))
            for name, tool in sorted(self.registry.items())
        ]
        yield from table(rows, terminal_width()) if rows else ["no tools"]

    def _show(self, name: str) -> Iterator[str]:
        from toolcrib.cli.show import tool_lines  # noqa: PLC0415 -- few sessions show a tool

        tool = self.registry.get(self.registry.named_by_alias(name) or name)
        if tool is None:
            raise ToolcribError(engine_of(self._runtime).not_found(name, self.registry).message)
        yield from tool_lines(self._runtime, tool)

    def _store(self, _rest: str) -> Iterator[str]:
        changed: Any = self._session.store.changed()
        yield escape_terminal(json_text(changed)) if changed else "no row was changed"

    def _reset(self, _rest: str) -> Iterator[str]:
        _run(self._runner, self._session.aclose())
        self._session = self._runtime.session(id=SESSION, seed=self._seed)
        yield "the session starts again from the store of the documents"

    def _quit(self, _rest: str) -> Iterator[str]:
        yield from ()


COMMANDS: Mapping[str, tuple[str, Callable[[Shell, str], Iterator[str]]]] = {
    "tools": ("list the tools", Shell._tools),  # noqa: SLF001 -- the class's own table
    "show": ("show the details of the tool NAME", Shell._show),  # noqa: SLF001
    "store": ("show the rows that this session has changed", Shell._store),  # noqa: SLF001
    "reset": ("start again from the store of the documents", Shell._reset),  # noqa: SLF001
    "help": ("list the commands", Shell._help),  # noqa: SLF001
    "quit": ("end the shell, like Ctrl-D", Shell._quit),  # noqa: SLF001
}


def _refused(message: str) -> int:
    click.echo(f"error: {escape_terminal(message)}", err=True)
    return exit_codes.USAGE


def complete_line(registry: Registry, line: str, begin: int) -> list[str]:
    """Complete a line: commands, names of tools, names of arguments, and values that schemas list.

    Args:
        registry: The tools.
        line: The line up to the cursor.
        begin: Place in the line from which a completion replaces the text.

    Returns:
        The texts that may follow the text before `begin`.
    """
    name, blank, rest = line.partition(" ")
    if not blank:
        words = [f"{tool} " for tool in registry] + [f"/{each}" for each in COMMANDS]
        return sorted(word for word in words if word.startswith(line))
    if name == "/show":
        return sorted(tool for tool in registry if tool.startswith(rest))
    tool = registry.get(registry.named_by_alias(name) or name)
    if tool is None:
        return []
    *given, last = _split_open(rest)
    found = [word for word, _about in complete_argument(tool.input_schema, last, given)]
    start = len(line) - len(_ending(rest))
    # A finished word gets a blank; a name with `=` is still to be followed by its value.
    return [
        (word if word.endswith("=") else f"{shlex.quote(word)} ")[max(0, begin - start) :] for word in found
    ]


def _ending(text: str) -> str:
    """The last word of an unfinished line as it is written, with its quotes; empty after a blank."""
    quote, start = "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter.isspace():
            start = at + 1
    return text[start:]


def _split_open(text: str) -> list[str]:
    """The words of an unfinished line; the last one is empty after a blank."""
    ending = _ending(text)
    return [*shlex.split(text[: len(text) - len(ending)]), ending.replace("'", "").replace('"', "")]


def enable_completion(complete: Callable[[str, int], list[str]]) -> None:
    """Give `input` line editing, a history, and completion with Tab.

    Args:
        complete: Returns the completions of the line up to the cursor; see `complete_line`.

    Raises:
        ImportError: The system has no readline, such as Windows.
    """
    import readline  # noqa: PLC0415 -- only a terminal needs it

    def completion(_text: str, number: int) -> str | None:
        line = readline.get_line_buffer()[: readline.get_endidx()]
        try:
            return complete(line, readline.get_begidx())[number]
        except (IndexError, ValueError):  # there are no more, or the line ends in a backslash
            return None

    readline.set_completer(completion)
    readline.set_completer_delims(" ")
    # macOS comes with libedit in place of GNU readline.
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
