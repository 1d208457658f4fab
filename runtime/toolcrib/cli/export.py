"""`toolcrib export`: write tools and prompts in the formats of other systems."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    ReadOptions,
    open_offline,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unqueried_servers,
    read_options,
)
from toolcrib.cli.output import write_atomically
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.promptpack.pack_writer import export_promptpack


@click.group("export")
def command() -> None:
    """Export tools and prompts to other formats: a PromptPack."""


@command.command("promptpack")
@click.argument("path", required=False, type=click.Path(exists=True))
@click.option(
    "--out",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file, such as `shop.pack.json`, instead of stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@read_options
@click.pass_context
def promptpack(
    ctx: click.Context, *, path: str | None, file: Path | None, force: bool, reading: ReadOptions
) -> None:
    """Write one PromptPack (version 1.4) of tools and prompts.

    PATH is a pack, a project, a folder or a file. Default: what the other commands read. A PromptPack contains the
    name, description and input schema of each tool, and the prompts of the packs. Losses (modes, mocks, output schemas,
    most of a policy) are listed on stderr, one per line. Exits with 1 if a document has errors, since it is not
    exported.
    """
    # `exists` would be False for a dangling link, which is overwritten, too.
    if file is not None and os.path.lexists(file) and not force:
        raise click.UsageError(escape_terminal(f"{file} already exists; use `--force` to overwrite it"))
    runtime = open_offline(reading, (path,) if path else ())
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    print_unimported_tools(runtime)
    exported = export_promptpack(runtime.registry.values(), runtime.packs, name=_name(runtime, path))
    text = json.dumps(exported.document, indent=2, ensure_ascii=False) + "\n"
    for loss in exported.losses:
        click.echo(escape_terminal(f"lost: {loss}"), err=True)
    if file is None:
        click.echo(text, nl=False)
    else:
        _write(file, text)
    # The PromptPack is written in any case; the exit code shows that it is incomplete.
    errors = any(problem.severity == "error" for problem in runtime.problems)
    ctx.exit(exit_codes.PROBLEMS if errors else exit_codes.OK)


def _name(runtime: Runtime, path: str | None) -> str:
    """Name of the PromptPack if no pack defines one: the name of the project, or of the path."""
    if runtime.project is not None:
        return runtime.project.name
    return Path(os.path.realpath(path or ".")).name.partition(".")[0]


def _write(file: Path, text: str) -> None:
    try:
        write_atomically(file, text)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{file} cannot be written: {error.strerror}")) from error
    click.echo(escape_terminal(f"wrote {file}"))
