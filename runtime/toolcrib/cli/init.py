"""`toolcrib init`: a first project with a tool, a pack and a scenario, and the schemas that an editor completes from.

`toolcrib schema` prints one of these schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import ReadOptions, open_offline
from toolcrib.cli.output import json_text
from toolcrib.cli.trust import store_decision
from toolcrib.core.schemas import KINDS, Kind
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.executors import Executors
from toolcrib.loading.editor_schemas import editor_schema
from toolcrib.loading.project_discovery import PROJECT_FILES

NEXT = """
Next:
  toolcrib list
  toolcrib call get_forecast city=Oslo
  toolcrib run
  toolcrib validate
  toolcrib doctor"""


@click.command("init")
@click.argument("folder", default=".", metavar="[DIR]", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.pass_context
def command(ctx: click.Context, *, folder: str, force: bool) -> None:
    """Write a first project to start from: a tool, a pack, a scenario.

    They go to DIR, or here. Nothing that exists is overwritten unless `--force` is given.
    """
    contents = {Path(folder, name): text for name, text in _contents()}
    others = (Path(folder, name) for name in PROJECT_FILES)
    existing = [path for path in dict.fromkeys((*contents, *others)) if path.exists()]
    if existing and not force:
        for path in existing:
            click.echo(f"{escape_terminal(str(path))} exists", err=True)
        click.echo("nothing was written; take another folder, or overwrite with `--force`", err=True)
        ctx.exit(exit_codes.PROBLEMS)
    for path, text in contents.items():
        _write(path, text)
        click.echo(f"wrote {escape_terminal(str(path))}")
    _trust(folder)
    moved = f"\n  cd {escape_terminal(folder)}" if Path(folder).resolve() != Path.cwd() else ""
    click.echo(NEXT.replace("Next:", f"Next:{moved}"))


def _trust(folder: str) -> None:
    """Trust the project that was written: it needs nothing. What is there besides is somebody else's to agree to."""
    request = engine_of(open_offline(ReadOptions(), (folder,))).trust.requests()[0]
    if request.needs:
        click.echo(
            f"not trusted: {escape_terminal(request.workspace.root)} holds more than was written", err=True
        )
        click.echo(f"    hint: {escape_terminal(request.hint)}", err=True)
        return
    try:
        store_decision(request, "toolcrib init")
    except click.ClickException as error:
        click.echo(f"not trusted: {error.message}", err=True)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""  # a full disk names no file
        raise click.ClickException(
            escape_terminal(f"{path} can't be written: {error.strerror}{place}")
        ) from error


def _contents() -> Iterator[tuple[str, str]]:
    """Relative path -> text of every file to write."""
    yield from _below(files("toolcrib.cli").joinpath("starter"), "")
    blocks = Executors.installed().blocks()
    for kind in KINDS:
        yield f".toolcrib/{kind}.schema.json", json_text(editor_schema(kind, blocks)) + "\n"


def _below(folder: Traversable, lead: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{lead}{entry.name}/")
        else:
            yield lead + entry.name, entry.read_text(encoding="utf-8")


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS), default="descriptor")
def schema(kind: Kind) -> None:
    """Print the JSON Schema of a kind of document.

    Editors complete from it, with the blocks of the installed modes. It accepts all that the loader accepts, and
    refuses as much of the rest as a schema can: `docs/reference/problems.md` says what only the loader finds.
    """
    click.echo(json_text(editor_schema(kind, Executors.installed().blocks())))
