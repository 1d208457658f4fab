"""`toolcrib import`: convert tools of an MCP server, a PromptKit arena or a PromptPack to toolcrib files."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes, import_lists, import_requests
from toolcrib.cli.import_lists import import_list
from toolcrib.cli.import_openapi import import_openapi
from toolcrib.cli.imported_files import ImportOptions, import_options, write_import
from toolcrib.cli.options import (
    ReadOptions,
    json_option,
    open_runtime,
    print_refusals,
    read_options,
    server_names,
)
from toolcrib.cli.output import json_text, plural, problem_text, write_new
from toolcrib.core.errors import ConfigurationError, NotReady, Problem
from toolcrib.core.model import Outcome
from toolcrib.core.server_config import AGENT_MODE, Catalogue
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.formats.imported_tools import ImportRefusal
from toolcrib.formats.imports.plan import ImportPlan
from toolcrib.formats.mcp_server_tools import ServerTools, tools_of_server
from toolcrib.formats.promptkit.arena_files import ArenaFile, ArenaFiles, files_of_arena, sorted_by_severity
from toolcrib.formats.promptpack.pack_files import PackFiles, files_of_promptpack
from toolcrib.loading.documents.files import PACK_FILES
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.packs import Pack
from toolcrib.loading.sources import LoadedDocuments, SourcePath, load
from toolcrib.security.trust import UNTRUSTED, Trust

FILE_ENDINGS = (".json", ".yaml", ".yml")
"""How the name of a file ends, other than the name of a server."""


@click.group("import")
def command() -> None:
    """Import tools: of servers, requests, lists for model providers, benchmarks, and files of other tool systems."""


for _command in (*import_lists.COMMANDS, *import_requests.COMMANDS, import_openapi):
    command.add_command(_command)


@command.command("mcp")
@click.argument("server", shell_complete=server_names)
@import_options
@read_options
@click.pass_context
def import_mcp(ctx: click.Context, *, server: str, options: ImportOptions, reading: ReadOptions) -> None:
    """Write one descriptor file for each tool of an MCP server, or of a saved list of tools.

    SERVER is a server of the project or of a file given by `--mcp`; or a file with a saved answer of `tools/list`: its name ends in
    `.json`, `.yaml` or `.yml`, or contains a slash. The files are ordinary descriptors in mode `mcp`, with the current texts and schemas of the server: edit them, or add a mock. Those of a saved list
    have a mock instead of a server. Each file is read back before it is written. The next import merges changes of the server with yours. Exits with 1 if a tool got no file.
    """
    if server.endswith(FILE_ENDINGS) or "/" in server or os.sep in server:
        import_list(ctx, "mcp", server, options)
    runtime = open_runtime(reading)
    print_refusals(runtime)
    if server in runtime.servers and runtime.servers[server].mode == AGENT_MODE:
        hint = f"write `import: true` for it, or descriptors with `a2a: {{agent: {server}, tool: ...}}`"
        raise ConfigurationError(f"`{server}` is an A2A agent, not an MCP server", hint=hint)
    try:
        catalogue = asyncio.run(_offered(runtime, server))
    except NotReady as error:
        click.echo(escape_terminal(str(error)), err=True)
        ctx.exit(exit_codes.OF_OUTCOME[Outcome.DENIED if error.denied else Outcome.UNAVAILABLE])
    imported, remarks = _server_tools(runtime, catalogue, options)

    def use(_plan: ImportPlan) -> Iterator[str]:
        if reading.servers:
            named = escape_terminal(", ".join(reading.servers))
            yield ""
            yield f"To use the server `{escape_terminal(server)}` in a project, add `servers_from: {named}` to its `toolcrib.yaml`."

    write_import(
        ctx,
        imported,
        options._replace(prefix=None),
        kind="mcp",
        source=server,
        remarks=remarks,
        mocks=False,
        after=use,
    )


async def _offered(runtime: Runtime, server: str) -> Catalogue:
    # `async with runtime` would start every MCP server; only one is needed.
    async with aclosing(runtime):
        return await runtime.catalogue(server)


def _server_tools(runtime: Runtime, catalogue: Catalogue, options: ImportOptions) -> ServerTools:
    """The tools that pass the filters of the project and its lock."""
    server = runtime.servers[catalogue.server]
    left_out = [tool for tool in catalogue.tools if not server.offers(tool)]
    verdict = engine_of(runtime).world.judge(server, catalogue)
    imported, remarks = tools_of_server(server, catalogue, prefix=options.prefix)
    locked = {
        tool.key: why
        for tool in imported.tools
        if (why := verdict.refused.get(tool.key) or verdict.refused.get("*"))
    }
    if any(map(options.takes, left_out)):
        place = server.place("import") or "the project"
        told = [*filter(options.takes, left_out)]
        remarks = (
            *remarks,
            f"{plural(len(told), 'tool')} skipped by `only` and `except` of {place}: {', '.join(told)}",
        )
    refusals = [ImportRefusal(key, "locked", "", why) for key, why in locked.items()]
    return ServerTools(
        imported._replace(
            tools=[tool for tool in imported.tools if tool.key not in locked],
            refused=[*imported.refused, *refusals],
            skipped=left_out,
        ),
        remarks,  # warnings of the lock have been logged
    )


class ArenaImport(NamedTuple):
    """The result of importing an arena.

    Attributes:
        written: Path -> file that was written.
        existing: Path of a file that already existed and was not changed -> what would have been written.
        refused: Name of a tool or scenario -> why it has no file.
        problems: Problems of reading the arena.
    """

    written: Mapping[Path, ArenaFile]
    existing: Mapping[Path, ArenaFile]
    refused: Mapping[str, str]
    problems: Sequence[Problem]


@command.command("promptkit")
@click.argument("path", type=click.Path(exists=True))
@click.option(
    "--out",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the pack to this folder; it is created if missing.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
@click.pass_context
def import_promptkit(ctx: click.Context, *, path: str, folder: Path, force: bool, as_json: bool) -> None:
    """Write an arena of PromptKit as a pack: its tools, and its scenarios with their mock responses.

    PATH is an arena file, or a folder that contains one. An arena also runs without an import: `toolcrib run PATH`.
    The programs of tools are copied as far as their commands name files.
    Features without a counterpart are reported. Existing files are only overwritten with `--force`. Exits with 1 if
    a tool or a scenario got no file.
    """
    files, problems = _arena_files(path, folder)
    imported = _write_arena(files, problems, folder, force=force)
    if as_json:
        click.echo(json_text(_arena_document(imported)))
    else:
        _tell_arena(imported, folder)
    refused = imported.refused or any(problem.severity == "error" for problem in problems)
    failed = refused or imported.existing or not imported.written
    ctx.exit(exit_codes.PROBLEMS if failed else exit_codes.OK)


def _arena_files(path: str, folder: Path) -> tuple[ArenaFiles, Sequence[Problem]]:
    """Create the files to write to `folder`."""
    from toolcrib.engine.open_project import link_all  # noqa: PLC0415 -- only this command reads arenas
    from toolcrib.formats.promptkit.arenas import arenas_in  # noqa: PLC0415 -- as above

    arenas = arenas_in(Path(path), but=folder)
    if not arenas:
        hint = "an arena is a YAML file with `apiVersion`, `kind: Arena` and `spec`"
        raise click.ClickException(escape_terminal(f"no PromptKit arena in {path}; {hint}"))
    kinds = Executors.installed()
    # The target may be inside the arena's folder and contain the files of an earlier import, which would be
    # read as sources.
    within = os.path.relpath(folder.resolve(), Path(path).resolve()).replace(os.sep, "/")
    source = SourcePath(path, ignore=(f"{glob.escape(within)}/**",), root=path)
    stock = link_all(load([source], kinds, FileTracker(permits=Trust(UNTRUSTED).permits_data)), kinds)
    servers = {name: entry for arena in arenas for name, entry in arena.servers.items()}
    tools = [stock.registry[name] for name in stock.registry]
    files = files_of_arena(arenas[0].name, tools, (*stock.scenarios, *stock.unprovided), servers)
    return files, sorted_by_severity(stock.problems)


def _write_arena(files: ArenaFiles, problems: Sequence[Problem], folder: Path, *, force: bool) -> ArenaImport:
    wanted = {folder / file.file: file for file in files.files}
    done = write_new({path: file.content for path, file in wanted.items()}, force=force)
    written = {path: file for path, file in wanted.items() if path in done}
    existing = {path: file for path, file in wanted.items() if path not in done}
    for path, file in written.items():
        if file.executable:
            path.chmod(path.stat().st_mode | 0o111)
    return ArenaImport(written, existing, files.refused, problems)


def _arena_document(imported: ArenaImport) -> dict[str, Any]:
    return {
        "written": [*_arena_entries(imported.written)],
        "existing": [*_arena_entries(imported.existing)],
        "refused": dict(imported.refused),
        "problems": [problem._asdict() for problem in imported.problems],
    }


def _arena_entries(files: Mapping[Path, ArenaFile]) -> Iterator[dict[str, str]]:
    for path, file in files.items():
        yield {"kind": file.kind, "name": file.name, "file": str(path)}


def _tell_arena(imported: ArenaImport, folder: Path) -> None:
    for problem in imported.problems:
        click.echo(problem_text(problem), err=True)
    for path in imported.written:
        click.echo(escape_terminal(f"wrote {path}"))
    for path in imported.existing:
        click.echo(
            escape_terminal(f"{path} already exists and was not changed; use `--force` to overwrite it"),
            err=True,
        )
    for name, why in imported.refused.items():
        click.echo(escape_terminal(f"no file for `{name}`: {why}"), err=True)
    if any(file.kind == "program" for file in imported.written.values()):
        click.echo("only the files that commands name were copied; copy what they import or read", err=True)
    if imported.written:
        click.echo(escape_terminal(f"\nRun it: `toolcrib run {folder}`"))
    else:
        click.echo("nothing was written", err=True)


class PackImport(NamedTuple):
    """The result of importing a PromptPack.

    Attributes:
        written: Files that were written.
        existing: Files that already existed and were not changed.
    """

    written: Sequence[Path]
    existing: Sequence[Path]


@command.command("promptpack")
@click.argument("path", type=click.Path(exists=True))
@click.option(
    "--out",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the pack to this folder; it is created if missing.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
@click.pass_context
def import_promptpack(ctx: click.Context, *, path: str, folder: Path, force: bool, as_json: bool) -> None:
    """Convert a PromptPack to a pack.

    PATH is a PromptPack, or a folder that contains one. Its prompts go to `pack.yaml`, and each tool gets a descriptor
    with its bindings from `NAME.bindings.yaml` or `bindings.yaml` next to the PromptPack; a tool without bindings is
    unbound. Features without a counterpart are kept under `metadata` and reported. The files are read back before they
    are written, and existing files are only overwritten with `--force`. Exits with 1 if the PromptPack has errors, or
    a part of it got no file.
    """
    kinds = Executors.installed()
    # Converting a third-party file must not read data outside its folder, so nothing is trusted here.
    loaded = load([path], kinds, FileTracker(permits=Trust(UNTRUSTED).permits_data))
    pack = _only(path, loaded)
    files = files_of_promptpack(loaded, pack, kinds)
    written = _write_pack(files, folder, force=force)
    if as_json:
        click.echo(json_text(_pack_document(written, files, loaded)))
    else:
        _tell_pack(written, files, loaded)
    wrong = any(problem.severity == "error" for problem in loaded.problems)
    ctx.exit(exit_codes.PROBLEMS if wrong or files.refused or written.existing else exit_codes.OK)


def _only(path: str, loaded: LoadedDocuments) -> Pack:
    """Return the one PromptPack at a path."""
    packs = [pack for pack in loaded.packs if Path(pack.origin.source).name not in PACK_FILES]
    if len(packs) == 1:
        return packs[0]
    for problem in loaded.problems:
        click.echo(problem_text(problem), err=True)
    shown = escape_terminal(path)
    if not packs:
        raise click.UsageError(
            f"no PromptPack in {shown}; a PromptPack is an object with `prompts` and `template_engine`"
        )
    listed = ", ".join(escape_terminal(pack.origin.source) for pack in packs)
    raise click.UsageError(f"{shown} contains several PromptPacks; pass one of them: {listed}")


def _write_pack(files: PackFiles, folder: Path, *, force: bool) -> PackImport:
    wanted = {folder / name: content for name, content in files.contents.items()}
    done = write_new(wanted, force=force)
    return PackImport(
        [path for path in wanted if path in done], [path for path in wanted if path not in done]
    )


def _pack_document(done: PackImport, files: PackFiles, loaded: LoadedDocuments) -> dict[str, Any]:
    return {
        "written": [str(path) for path in done.written],
        "existing": [str(path) for path in done.existing],
        "refused": dict(files.refused),
        "problems": [problem._asdict() for problem in _told(files, loaded)],
    }


def _told(files: PackFiles, loaded: LoadedDocuments) -> list[Problem]:
    """The problems of the PromptPack, then the further problems of the files."""
    known = {(problem.code, problem.message) for problem in loaded.problems}
    news = [problem for problem in files.problems if (problem.code, problem.message) not in known]
    return [*loaded.problems, *news]


def _tell_pack(done: PackImport, files: PackFiles, loaded: LoadedDocuments) -> None:
    for problem in _told(files, loaded):
        click.echo(problem_text(problem), err=True)
    for path in done.written:
        click.echo(escape_terminal(f"wrote {path}"))
    for path in done.existing:
        click.echo(
            escape_terminal(f"{path} already exists and was not changed; use `--force` to overwrite it"),
            err=True,
        )
    for name, why in files.refused.items():
        click.echo(escape_terminal(f"no file for `{name}`: {why}"), err=True)
