"""`toolcrib completion`: print the script that a shell completes `toolcrib` with."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from toolcrib.cli.entry import COMPLETION


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `toolcrib` in a shell.

    For bash: `eval "$(toolcrib completion bash)"` in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    `toolcrib completion fish > ~/.config/fish/completions/toolcrib.fish`.
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise AssertionError(f"click completes {shell}")
    click.echo(maker(ctx.find_root().command, {}, "toolcrib", COMPLETION).source())
