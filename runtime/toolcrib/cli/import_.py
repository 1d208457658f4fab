"""`toolcrib import`: files of our own, made of what other systems offer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.file_output import write_new
from toolcrib.cli.import_promptkit import import_promptkit
from toolcrib.cli.import_promptpack import import_promptpack
from toolcrib.cli.options import Reading, json_option, reading_options, server_names
from toolcrib.cli.runtime_options import open_runtime, tell_refusals
from toolcrib.cli.value_output import json_text, plural, problem_text
from toolcrib.core.errors import NotReady, did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.server_config import Catalogue
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.mcp_files import DescriptorFile, DescriptorFiles, descriptor_files

SCHEMA = Path(".toolcrib", "descriptor.schema.json")
"""Where `toolcrib init` puts the schema that editors complete from."""


class Imported(NamedTuple):
    """What became of the tools of a server.

    Attributes:
        written: File -> what was written to it.
        existing: File that was there already, and was left alone -> what would have been written.
        refused: The server's name for a tool -> why there is no file of it.
        remarks: What else there is to say.
    """

    written: Mapping[Path, DescriptorFile]
    existing: Mapping[Path, DescriptorFile]
    refused: Mapping[str, str]
    remarks: Sequence[str]


@click.group("import")
def command() -> None:
    """Write files of what others have: tools of an MCP server, an arena of PromptKit."""


command.add_command(import_promptkit)
command.add_command(import_promptpack)


@command.command("mcp")
@click.argument("server", shell_complete=server_names)
@click.option(
    "--out",
    "folder",
    default="descriptors",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the files to this folder, which is made where it is not there.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="GLOB",
    help="Write only tools of this name, as the server has it. May be given several times.",
)
@click.option(
    "--except",
    "skipped",
    multiple=True,
    metavar="GLOB",
    help="Leave out tools of this name, as the server has it. May be given several times.",
)
@click.option("--prefix", metavar="TEXT", help="Begin the names of the tools so, instead of with `SERVER__`.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@json_option
@reading_options
@click.pass_context
def import_mcp(
    ctx: click.Context,
    *,
    server: str,
    folder: Path,
    only: tuple[str, ...],
    skipped: tuple[str, ...],
    prefix: str | None,
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Write one descriptor file for each tool of an MCP server.

    SERVER is one that the project names, or a file given by `--mcp`. The files are ordinary descriptors in mode `mcp`,
    with the texts and schemas that the server gives now: change them, add a mock. Each is read back before it is written,
    and nothing that exists is overwritten unless `--force` is given. Ends with 1 when a tool got no file.
    """
    runtime = open_runtime(reading)
    tell_refusals(runtime)
    try:
        catalogue = asyncio.run(_offered(runtime, server))
    except NotReady as error:
        click.echo(escape_terminal(str(error)), err=True)
        ctx.exit(exit_codes.OF_OUTCOME[Outcome.DENIED if error.denied else Outcome.UNAVAILABLE])
    chosen, remarks = _chosen(catalogue, only, skipped)
    imported = _write(_files(runtime, chosen, prefix, folder), remarks, folder, force=force)
    if as_json:
        click.echo(json_text(_document(imported)))
    else:
        _tell(imported, reading, server)
    failed = imported.refused or imported.existing or not imported.written
    ctx.exit(exit_codes.PROBLEMS if failed else exit_codes.OK)


async def _offered(runtime: Runtime, server: str) -> Catalogue:
    # Not entered: that would start every MCP server, and one is asked.
    async with aclosing(runtime):
        return await runtime.catalogue(server)


def _chosen(catalogue: Catalogue, only: Sequence[str], skipped: Sequence[str]) -> tuple[Catalogue, list[str]]:
    """What of a server's tools the command line asks for, and a remark on each glob that fits none."""
    names = [*catalogue.tools, *catalogue.refused]

    def taken(name: str) -> bool:
        return _fits(name, only or ["*"]) and not _fits(name, skipped)

    unfit = [glob for glob in (*only, *skipped) if not any(fnmatchcase(name, glob) for name in names)]
    tools = {name: tool for name, tool in catalogue.tools.items() if taken(name)}
    refused = {name: why for name, why in catalogue.refused.items() if taken(name)}
    return catalogue._replace(tools=tools, refused=refused), [_unfit(glob, names) for glob in unfit]


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _unfit(glob: str, names: Sequence[str]) -> str:
    known = f"its tools are: {', '.join(f'`{name}`' for name in names)}" if names else "it has none"
    return f"no tool is called `{glob}`; {did_you_mean(glob, names) or known}"


def _files(runtime: Runtime, catalogue: Catalogue, prefix: str | None, folder: Path) -> DescriptorFiles:
    """The files of the tools that the project's filters and its lock let through."""
    server = runtime.servers[catalogue.server]
    left_out = [tool for tool in catalogue.tools if not server.offers(tool)]
    verdict = runtime.engine.world.judge(server, catalogue)
    files = descriptor_files(
        server, catalogue, runtime.engine.executors, prefix=prefix, schema=_schema_for(folder)
    )
    locked = {
        file.tool: why
        for file in files.files
        if (why := verdict.refused.get(file.tool) or verdict.refused.get("*"))
    }
    remarks = [*files.remarks]  # what the lock warns of is in the log already
    if left_out:
        place = server.place("import") or "the project"
        remarks.append(
            f"{plural(len(left_out), 'tool')} left out by `only` and `except` of {place}: {', '.join(left_out)}"
        )
    return DescriptorFiles(
        tuple(file for file in files.files if file.tool not in locked),
        {**files.refused, **locked},
        tuple(remarks),
    )


def _schema_for(folder: Path) -> str:
    """The way from a folder to the schema that editors complete from; empty where there is none above it."""
    above = folder.resolve()
    for place in (above, *above.parents):
        if (place / SCHEMA).is_file():
            return Path(os.path.relpath(place / SCHEMA, above)).as_posix()
    return ""


def _write(files: DescriptorFiles, remarks: Sequence[str], folder: Path, *, force: bool) -> Imported:
    wanted = {folder / file.file: file for file in files.files}
    done = write_new({path: file.text for path, file in wanted.items()}, force=force)
    written = {path: file for path, file in wanted.items() if path in done}
    existing = {path: file for path, file in wanted.items() if path not in done}
    return Imported(written, existing, files.refused, (*remarks, *files.remarks))


def _document(imported: Imported) -> dict[str, Any]:
    return {
        "written": [*_entries(imported.written)],
        "existing": [*_entries(imported.existing)],
        "refused": dict(imported.refused),
        "remarks": list(imported.remarks),
    }


def _entries(files: Mapping[Path, DescriptorFile]) -> Iterator[dict[str, Any]]:
    for path, file in files.items():
        problems = [problem._asdict() for problem in file.problems]
        yield {"tool": file.tool, "name": file.name, "file": str(path), "problems": problems}


def _tell(imported: Imported, reading: Reading, server: str) -> None:
    for remark in imported.remarks:
        click.echo(escape_terminal(remark), err=True)
    for path, file in imported.written.items():
        click.echo(escape_terminal(f"wrote {path}"))
        for problem in file.problems:
            click.echo(problem_text(problem._replace(source=str(path))), err=True)
    for path in imported.existing:
        click.echo(
            escape_terminal(f"{path} exists, and was left alone; overwrite it with `--force`"), err=True
        )
    for tool, why in imported.refused.items():
        click.echo(escape_terminal(f"no file of `{tool}`: {why}"), err=True)
    if not imported.written:
        click.echo("nothing was written", err=True)
    elif reading.servers:
        named = escape_terminal(", ".join(reading.servers))
        click.echo(
            f"\nA project finds the server `{escape_terminal(server)}` once its `toolcrib.yaml` says `servers_from: {named}`."
        )
