"""`toolcrib import promptkit`: a pack of our own made of an arena of PromptKit."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.file_output import write_new
from toolcrib.cli.options import json_option
from toolcrib.cli.value_output import json_text, problem_text
from toolcrib.core.errors import Problem
from toolcrib.core.text import escape_terminal
from toolcrib.formats.promptkit.arena_files import ArenaFile, ArenaFiles, files_of_arena, sorted_by_severity
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.security.trust.check import UNTRUSTED, Trust


class Imported(NamedTuple):
    """What became of an arena.

    Attributes:
        written: File -> what was written to it.
        existing: File that was there already, and was left alone -> what would have been written.
        refused: Name of a tool or scenario -> why there is no file of it.
        problems: What was said when it was read.
    """

    written: Mapping[Path, ArenaFile]
    existing: Mapping[Path, ArenaFile]
    refused: Mapping[str, str]
    problems: Sequence[Problem]


@click.command("promptkit")
@click.argument("path", type=click.Path(exists=True))
@click.option(
    "--out",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the pack to this folder, which is made where it is not there.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@json_option
@click.pass_context
def import_promptkit(ctx: click.Context, *, path: str, folder: Path, force: bool, as_json: bool) -> None:
    """Write an arena of PromptKit as a pack: its tools, and its scenarios with their mock responses.

    PATH is an arena's file, or a folder with one. It runs as it is, too: `toolcrib run PATH`. What has no counterpart
    here is told. Nothing that exists is overwritten unless `--force` is given. Ends with 1 when something got no file.
    """
    files, problems = _made(path, folder)
    imported = _written(files, problems, folder, force=force)
    if as_json:
        click.echo(json_text(_document(imported)))
    else:
        _tell(imported, folder)
    refused = imported.refused or any(problem.severity == "error" for problem in problems)
    failed = refused or imported.existing or not imported.written
    ctx.exit(exit_codes.PROBLEMS if failed else exit_codes.OK)


def _made(path: str, folder: Path) -> tuple[ArenaFiles, Sequence[Problem]]:
    """What is to be written to `folder`, which may lie in `path` and hold what was written there before."""
    from toolcrib.engine.open_project import link_all  # noqa: PLC0415 -- as above
    from toolcrib.executors import Executors  # noqa: PLC0415 -- slow to import
    from toolcrib.formats.promptkit.arenas import arenas_in  # noqa: PLC0415 -- this verb alone looks for them
    from toolcrib.loading.sources import SourcePath, load  # noqa: PLC0415 -- as above

    arenas = arenas_in(Path(path), but=folder)
    if not arenas:
        hint = "an arena is a YAML file with `apiVersion`, `kind: Arena` and `spec`"
        raise click.ClickException(escape_terminal(f"there is no arena of PromptKit in {path}; {hint}"))
    kinds = Executors.installed()
    within = os.path.relpath(folder.resolve(), Path(path).resolve()).replace(os.sep, "/")
    source = SourcePath(path, ignore=(f"{glob.escape(within)}/**",), root=path)
    stock = link_all(load([source], kinds, FileTracker(permits=Trust(UNTRUSTED).permits_data)), kinds)
    servers = {name: entry for arena in arenas for name, entry in arena.servers.items()}
    tools = [stock.registry[name] for name in stock.registry]
    files = files_of_arena(arenas[0].name, tools, stock.scenarios, servers)
    return files, sorted_by_severity(stock.problems)


def _written(files: ArenaFiles, problems: Sequence[Problem], folder: Path, *, force: bool) -> Imported:
    wanted = {folder / file.file: file for file in files.files}
    done = write_new({path: file.content for path, file in wanted.items()}, force=force)
    written = {path: file for path, file in wanted.items() if path in done}
    existing = {path: file for path, file in wanted.items() if path not in done}
    return Imported(written, existing, files.refused, problems)


def _document(imported: Imported) -> dict[str, Any]:
    return {
        "written": [*_entries(imported.written)],
        "existing": [*_entries(imported.existing)],
        "refused": dict(imported.refused),
        "problems": [problem._asdict() for problem in imported.problems],
    }


def _entries(files: Mapping[Path, ArenaFile]) -> Iterator[dict[str, str]]:
    for path, file in files.items():
        yield {"kind": file.kind, "name": file.name, "file": str(path)}


def _tell(imported: Imported, folder: Path) -> None:
    for problem in imported.problems:
        click.echo(problem_text(problem), err=True)
    for path in imported.written:
        click.echo(escape_terminal(f"wrote {path}"))
    for path in imported.existing:
        click.echo(
            escape_terminal(f"{path} exists, and was left alone; overwrite it with `--force`"), err=True
        )
    for name, why in imported.refused.items():
        click.echo(escape_terminal(f"no file of `{name}`: {why}"), err=True)
    if imported.written:
        click.echo(escape_terminal(f"\nRun it: `toolcrib run {folder}`"))
    else:
        click.echo("nothing was written", err=True)
