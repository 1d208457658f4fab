"""`toolcrib init`: create a starter project, and the JSON Schemas for completion in an editor.

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
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.pass_context
def command(ctx: click.Context, *, folder: str, force: bool) -> None:
    """Create a starter project with a tool, a pack and a scenario.

    The files are written to DIR, or here. Existing files are only overwritten with `--force`.
    """
    contents = {Path(folder, name): text for name, text in _contents()}
    # A second project file under another name would be ambiguous.
    others = (Path(folder, name) for name in PROJECT_FILES)
    existing = [path for path in dict.fromkeys((*contents, *others)) if path.exists()]
    if existing and not force:
        for path in existing:
            click.echo(f"{escape_terminal(str(path))} exists", err=True)
        click.echo("nothing was written; use another folder, or `--force` to overwrite", err=True)
        ctx.exit(exit_codes.PROBLEMS)
    for path, text in contents.items():
        _write(path, text)
    # Before the output, whose reader may close it: `toolcrib init | head -1`.
    _trust(folder)
    for path in contents:
        click.echo(f"wrote {escape_terminal(str(path))}")
    moved = f"\n  cd {escape_terminal(folder)}" if Path(folder).resolve() != Path.cwd() else ""
    click.echo(NEXT.replace("Next:", f"Next:{moved}"))


def _trust(folder: str) -> None:
    """Trust the new project, which needs nothing."""
    request = engine_of(open_offline(ReadOptions(), (folder,))).trust.requests()[0]
    # The folder contained other files, for example a `.mcp.json`. Nobody has reviewed what they start or
    # contact.
    if request.needs:
        click.echo(
            f"not trusted: {escape_terminal(request.workspace.root)} contains files that `toolcrib init` did not write",
            err=True,
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
        # Without `newline`, Windows would write CRLF, and the files would differ between platforms.
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""  # ENOSPC carries no file name
        raise click.ClickException(
            escape_terminal(f"{path} cannot be written: {error.strerror}{place}")
        ) from error


def _contents() -> Iterator[tuple[str, str]]:
    """Yield the relative path and the text of every file to write."""
    yield from _below(files("toolcrib.cli").joinpath("starter"), "")
    for kind in KINDS:
        yield f".toolcrib/{kind}.schema.json", schema_text(kind)


def schema_text(kind: Kind) -> str:
    """The JSON Schema of a kind of document, which editors read from `.toolcrib/KIND.schema.json`."""
    return json_text(editor_schema(kind, Executors.installed().blocks())) + "\n"


def _below(folder: Traversable, lead: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{lead}{entry.name}/")
        else:
            yield lead + entry.name, entry.read_text(encoding="utf-8")


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS), default="descriptor")
def schema(kind: Kind) -> None:
    """Print the JSON Schema of a document kind.

    Editors use it for completion; it includes the blocks of the installed modes. It accepts every document that the
    loader accepts, and rejects as many others as a schema can: `docs/reference/problems.md` lists what only the loader
    finds.
    """
    click.echo(schema_text(kind), nl=False)
