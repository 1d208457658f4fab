"""The group of all verbs, for the command lines that nothing quicker answers; how signals end a command; and completion."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

from toolcrib import __version__
from toolcrib.cli import exit_codes
from toolcrib.cli.entry import COMPLETION, VERBS
from toolcrib.cli.options import ReadOptions, read_options
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.text import escape_terminal

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class EndingSignal:
    """Which signal ends the command.

    Attributes:
        number: Of the signal; that of Ctrl-C unless another one came.
    """

    number: int = signal.SIGINT

    @property
    def code(self) -> int:
        """The exit code: 128 and the number of the signal, as shells have it."""
        return exit_codes.INTERRUPTED - signal.SIGINT + self.number

    @property
    def words(self) -> str:
        """The message: `interrupted`, `ended by SIGTERM`."""
        return (
            "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        )


@contextmanager
def handle_signals() -> Iterator[EndingSignal]:
    """Within the block a signal raises KeyboardInterrupt in the main thread, or does what Ctrl-C does.

    One that is ignored from the start, as `nohup` has it, stays so; in another thread nothing can be listened to.
    """
    heard = EndingSignal()

    def end(number: int, frame: FrameType | None) -> None:
        heard.number = number
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(as_ctrl_c):  # shells let what they start in the background ignore Ctrl-C
            raise KeyboardInterrupt
        as_ctrl_c(signal.SIGINT, frame)

    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield heard
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


class SetupError(click.ClickException):
    """The runtime can't be set up as the command line asks."""

    exit_code = exit_codes.USAGE


class VerbGroup(click.Group):
    """A group whose commands are imported when they are called for."""

    verbs = VERBS

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The verbs, in the order in which a newcomer needs them."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None where there is no such verb."""
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"toolcrib.cli.{verb.module}"), verb.name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs from the table."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; a misspelt one is answered with the near ones."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.verbs) or f"the verbs are: {', '.join(self.verbs)}"
            ctx.fail(f"there is no verb `{escape_terminal(args[0])}`; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; signals and a runtime that can't be set up end it without a trace."""
        with handle_signals() as heard:
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

    Tools are read from the project that this folder lies in, or else from the folders `descriptors` and
    `packs` here; and from what `--pack` names.
    """
    ctx.obj = reading
    _settle_colours(ctx)


def _settle_colours(ctx: click.Context) -> None:
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def exit_through_click(tell: Callable[[], int]) -> NoReturn:
    """Let a verb that was begun without click end as any other does: with its colours, and its broken pipes.

    Args:
        tell: Prints what is left to say, and returns the exit code.
    """

    @click.command()
    @click.pass_context
    def rest(ctx: click.Context) -> None:
        _settle_colours(ctx)
        ctx.exit(tell())

    rest.main([], prog_name="toolcrib")
    raise AssertionError("click ends the process")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `toolcrib` in a shell.

    For bash: `eval "$(toolcrib completion bash)"` in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    `toolcrib completion fish > ~/.config/fish/completions/toolcrib.fish`.
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise AssertionError(f"click completes {shell}")
    click.echo(maker(ctx.find_root().command, {}, "toolcrib", COMPLETION).source())
