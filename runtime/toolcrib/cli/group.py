"""The click group of all commands, signal handling, and shell completion."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from toolcrib import __version__
from toolcrib.cli import exit_codes
from toolcrib.cli.entry import COMPLETION, VERBS
from toolcrib.cli.options import ReadOptions, read_options
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.text import escape_terminal

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


ENDING_SIGNAL = "toolcrib.ending_signal"
"""Key of the `EndingSignal` in `Context.meta`."""


class EndingSignal:
    """The signal that ended the command.

    Attributes:
        number: Number of the signal; SIGINT unless another one arrived.
    """

    number: int = signal.SIGINT

    @property
    def ends(self) -> bool:
        """Whether SIGTERM or SIGHUP has arrived: a KeyboardInterrupt then ends the command, whatever Ctrl-C does."""
        return self.number != signal.SIGINT

    @property
    def code(self) -> int:
        """Exit code: 128 plus the number of the signal, by the convention of shells."""
        return exit_codes.INTERRUPTED - signal.SIGINT + self.number

    @property
    def words(self) -> str:
        """The message: `interrupted` or `ended by SIGTERM`."""
        return (
            "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        )


@contextmanager
def handle_signals() -> Iterator[EndingSignal]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does within the block, usually to raise KeyboardInterrupt.

    A signal that is ignored from the start, as under `nohup`, stays ignored. Outside the main thread this has no effect.
    """
    heard = EndingSignal()

    def end(number: int, frame: FrameType | None) -> None:
        heard.number = number
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        # Shells start background jobs with SIGINT ignored, so there may be no handler to call.
        if not callable(as_ctrl_c):
            raise KeyboardInterrupt
        as_ctrl_c(signal.SIGINT, frame)

    # Python allows signal handlers only in the main thread.
    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield heard
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


OTHER_WORDS = {
    "check": "validate",
    "describe": "show",
    "exec": "call",
    "info": "show",
    "invoke": "call",
    "ls": "list",
    "pytest": "run",
    "test": "run",
    "tests": "run",
    "tools": "list",
}
"""Names of commands of other programs -> the command that does the same."""


class SetupError(click.ClickException):
    """The runtime cannot be set up as the command line asks."""

    exit_code = exit_codes.USAGE


class VerbGroup(click.Group):
    """A group that imports a command when it is used."""

    verbs = VERBS

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The command names, in the order in which a newcomer needs them."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if it is unknown."""
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"toolcrib.cli.{verb.module}"), verb.name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is reported with near misses."""
        # Click's own message has no suggestions. During completion (`resilient_parsing`) the word is still
        # being typed.
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            meant = OTHER_WORDS.get(args[0])
            hint = f"use `toolcrib {meant}`" if meant else did_you_mean(args[0], self.verbs)
            hint = hint or f"the commands are: {', '.join(self.verbs)}"
            ctx.fail(f"unknown command `{escape_terminal(args[0])}`; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; signals and setup errors end it without a traceback."""
        with handle_signals() as heard:
            ctx.meta[ENDING_SIGNAL] = heard
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                click.echo(heard.words, err=True)
                ctx.exit(heard.code)
            except ToolcribError as error:
                raise SetupError(escape_terminal(str(error))) from error


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@read_options
@click.pass_context
def cli(ctx: click.Context, reading: ReadOptions) -> None:
    """Tools for AI agents, declared in files: validated, mocked, scripted.

    Tools are read from the project that contains this folder, otherwise from the folders `descriptors` and `packs`
    here, and from every `--pack`.
    """
    ctx.obj = reading
    _settle_colours(ctx)


def _settle_colours(ctx: click.Context) -> None:
    # https://no-color.org: any value that is not empty turns colours off.
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    elif os.environ.get("FORCE_COLOR"):
        ctx.color = True


def exit_through_click(tell: Callable[[], int]) -> NoReturn:
    """Finish a fast path through click, which handles colours and closed pipes.

    Args:
        tell: Prints the remaining output and returns the exit code.
    """

    @click.command()
    @click.pass_context
    def rest(ctx: click.Context) -> None:
        _settle_colours(ctx)
        ctx.exit(tell())

    rest.main([], prog_name="toolcrib")
    raise AssertionError("click ends the process")


class _Bash(BashComplete):
    """Bash, which continues `key=` without a blank, and offers names and files together."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", 'COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace'
    ).replace(
        "COMPREPLY=()\n            compopt -o default",
        'compopt -o default\n            [[ $COMPREPLY ]] && COMPREPLY+=($(compgen -f -- "$value"))',
    )


class _Zsh(ZshComplete):
    """Zsh, which continues `key=` without a blank."""

    source_template = ZshComplete.source_template.replace(
        '    if [ -n "$completions_with_descriptions" ]',
        """\
    local -a described=("${(@M)completions_with_descriptions:#*=:*}")
    local -a bare=("${(@M)completions:#*=}")
    completions_with_descriptions=("${(@)completions_with_descriptions:#*=:*}")
    completions=("${(@)completions:#*=}")
    [[ -n "$described" ]] && _describe -V unsorted described -U -S ''
    [[ -n "$bare" ]] && compadd -U -S '' -V unsorted -a bare

    if [ -n "$completions_with_descriptions" ]""",
        1,
    )


_SHELLS: Mapping[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice([*_SHELLS]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script.

    For bash: `eval "$(toolcrib completion bash)"` in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    `toolcrib completion fish > ~/.config/fish/completions/toolcrib.fish`.
    """
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, "toolcrib", COMPLETION).source())
