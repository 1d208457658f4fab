"""The group of all verbs, for the command lines that nothing quicker answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

import click

from toolcrib import __version__
from toolcrib.cli import exit_codes
from toolcrib.cli.entry import VERBS
from toolcrib.cli.options import Reading, reading_options
from toolcrib.cli.signals import ended_by_signals
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.text import escape_terminal


class Refused(click.ClickException):
    """The runtime can't be set up as the command line asks."""

    exit_code = exit_codes.USAGE


class Verbs(click.Group):
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
        command: click.Command = import_module(f"toolcrib.cli.{verb.module}").command
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
        with ended_by_signals() as heard:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                click.echo(heard.words, err=True)
                ctx.exit(heard.code)
            except ToolcribError as error:
                raise Refused(escape_terminal(str(error))) from error


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@reading_options
@click.pass_context
def cli(ctx: click.Context, reading: Reading) -> None:
    """Tools for AI agents, declared in files: validated, mocked, scripted.

    Tools are read from the project that this folder lies in, or else from the folders `descriptors` and
    `packs` here; and from what `--pack` names.
    """
    ctx.obj = reading
    _settle_colours(ctx)


def _settle_colours(ctx: click.Context) -> None:
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def finish(tell: Callable[[], int]) -> NoReturn:
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
