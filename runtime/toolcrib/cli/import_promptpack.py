"""`toolcrib import promptpack`: a pack of our own made of a PromptPack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.file_output import write_new
from toolcrib.cli.options import json_option
from toolcrib.cli.value_output import json_text, problem_text
from toolcrib.core.errors import Problem
from toolcrib.core.text import escape_terminal
from toolcrib.executors import Executors
from toolcrib.formats.promptpack.pack_files import PackFiles, files_of_promptpack
from toolcrib.loading.documents.files import PACK_FILES
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.packs import Pack
from toolcrib.loading.sources import LoadedDocuments, load
from toolcrib.security.trust.check import UNTRUSTED, Trust


class Written(NamedTuple):
    """What became of the files.

    Attributes:
        written: Those that were written.
        existing: Those that were there already, and were left alone.
    """

    written: Sequence[Path]
    existing: Sequence[Path]


@click.command("promptpack")
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
def import_promptpack(ctx: click.Context, *, path: str, folder: Path, force: bool, as_json: bool) -> None:
    """Write a pack of our own that says what a PromptPack says.

    PATH is its file, or a folder with one. `pack.yaml` gets its prompts, and each tool a descriptor, with what binds it
    in `NAME.bindings.yaml` or `bindings.yaml` beside the PromptPack; a tool without that is unbound. What has no
    counterpart is kept under `metadata` and told. The files are read back before they are written, and nothing that
    exists is overwritten unless `--force` is given. Ends with 1 when something is wrong with the PromptPack or got no file.
    """
    kinds = Executors.installed()
    loaded = load([path], kinds, FileTracker(permits=Trust(UNTRUSTED).permits_data))
    pack = _only(path, loaded)
    files = files_of_promptpack(loaded, pack, kinds)
    written = _write(files, folder, force=force)
    if as_json:
        click.echo(json_text(_document(written, files, loaded)))
    else:
        _tell(written, files, loaded)
    wrong = any(problem.severity == "error" for problem in loaded.problems)
    ctx.exit(exit_codes.PROBLEMS if wrong or files.refused or written.existing else exit_codes.OK)


def _only(path: str, loaded: LoadedDocuments) -> Pack:
    """The PromptPack that a path leads to."""
    packs = [pack for pack in loaded.packs if Path(pack.origin.source).name not in PACK_FILES]
    if len(packs) == 1:
        return packs[0]
    for problem in loaded.problems:
        click.echo(problem_text(problem), err=True)
    shown = escape_terminal(path)
    if not packs:
        raise click.UsageError(f"{shown} holds no PromptPack: an object with `prompts` and `template_engine`")
    listed = ", ".join(escape_terminal(pack.origin.source) for pack in packs)
    raise click.UsageError(f"{shown} holds several PromptPacks; name one of them: {listed}")


def _write(files: PackFiles, folder: Path, *, force: bool) -> Written:
    wanted = {folder / name: content for name, content in files.contents.items()}
    done = write_new(wanted, force=force)
    return Written([path for path in wanted if path in done], [path for path in wanted if path not in done])


def _document(done: Written, files: PackFiles, loaded: LoadedDocuments) -> dict[str, Any]:
    return {
        "written": [str(path) for path in done.written],
        "existing": [str(path) for path in done.existing],
        "refused": dict(files.refused),
        "problems": [problem._asdict() for problem in _told(files, loaded)],
    }


def _told(files: PackFiles, loaded: LoadedDocuments) -> list[Problem]:
    """What is wrong with the PromptPack, and what the files add to that."""
    known = {(problem.code, problem.message) for problem in loaded.problems}
    news = [problem for problem in files.problems if (problem.code, problem.message) not in known]
    return [*loaded.problems, *news]


def _tell(done: Written, files: PackFiles, loaded: LoadedDocuments) -> None:
    for problem in _told(files, loaded):
        click.echo(problem_text(problem), err=True)
    for path in done.written:
        click.echo(escape_terminal(f"wrote {path}"))
    for path in done.existing:
        click.echo(
            escape_terminal(f"{path} exists, and was left alone; overwrite it with `--force`"), err=True
        )
    for name, why in files.refused.items():
        click.echo(escape_terminal(f"no file of `{name}`: {why}"), err=True)
