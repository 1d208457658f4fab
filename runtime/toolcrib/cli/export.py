"""`toolcrib export`: write tools and prompts in the formats of other systems."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    ReadOptions,
    filter_options,
    list_exit_code,
    open_offline,
    open_runtime,
    parse_filters,
    paths_argument,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unknown_filters,
    print_unqueried_servers,
    print_why_closed,
    read_options,
)
from toolcrib.cli.output import json_text, write_atomically
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.trust import print_denied
from toolcrib.core.errors import DocumentError
from toolcrib.core.model import Descriptor, Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.descriptor_document import descriptor_text
from toolcrib.formats.mcp_tools import definition_of, schemas_of
from toolcrib.formats.openapi_document import openapi_document
from toolcrib.formats.promptpack.pack_writer import export_promptpack
from toolcrib.formats.providers import DIALECTS, declare
from toolcrib.formats.tool_page import ToolSection, html_page, markdown_page, sections_of
from toolcrib.formats.utcp_manual import utcp_manual
from toolcrib.security.trust import Untrusted


@click.group("export")
def command() -> None:
    """Export tools to other formats: model providers, MCP, OpenAPI, UTCP, documentation, descriptor files."""


class Exported(NamedTuple):
    """What is written in a format.

    Attributes:
        value: A JSON document, or a text.
        losses: Rows of tool, JSON Pointer and message: what the format cannot express.
    """

    value: Any
    losses: Sequence[tuple[str, str, str]] = ()


def _tools_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add what all formats of tools have: paths, filters, `--out`, `--force`, `--json`."""
    options = (
        paths_argument,
        click.option("--tool", "name", multiple=True, metavar="GLOB", help="Only tools whose name matches."),
        filter_options,
        click.option(
            "--out",
            "file",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write to this file instead of stdout.",
        ),
        click.option("--force", is_flag=True, help="Overwrite an existing file."),
        click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON document with the export and its losses."
        ),
        read_options,
        click.pass_context,
    )
    for option in reversed(options):
        function = option(function)
    return function


def _export(
    ctx: click.Context,
    format_: str,
    make: Callable[[Runtime, Sequence[Descriptor], Mapping[str, str]], Exported],
    *,
    paths: tuple[str, ...],
    hidden: bool,
    file: Path | None,
    force: bool,
    as_json: bool,
    reading: ReadOptions,
    **filters: Any,
) -> None:
    """Write the selected tools in a format, and list the losses on stderr.

    Args:
        ctx: The command.
        format_: Name of the format.
        make: Runtime, tools sorted by name, and their aliases -> what is written.
        paths: What is read.
        hidden: Whether tools that are not offered are exported.
        file: Where to write; None for stdout.
        force: Whether an existing file is overwritten.
        as_json: Whether one document with the losses is printed.
        reading: The read options.
        filters: The filters.
    """
    if file is not None and os.path.lexists(file) and not force:
        raise click.UsageError(escape_terminal(f"{file} already exists; use `--force` to overwrite it"))
    runtime = open_offline(reading, paths)
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    print_unimported_tools(runtime)
    registry = runtime.registry
    tools = registry.select(hidden=hidden, **parse_filters(filters))
    made = make(runtime, tools, {tool.name: registry.alias_of(tool.name) for tool in tools})
    if as_json:
        losses = [dict(zip(("tool", "pointer", "message"), loss, strict=True)) for loss in made.losses]
        text = json_text({"format": format_, "export": made.value, "losses": losses}) + "\n"
    else:
        for tool, pointer, message in made.losses:
            click.echo(escape_terminal(f"lost: {tool} {pointer or '/'}: {message}"), err=True)
        text = made.value if isinstance(made.value, str) else json_text(made.value) + "\n"
    if file is None:
        click.echo(text, nl=False)
    else:
        _write(file, text)
    if not tools:
        print_unknown_filters(registry, parse_filters(filters))
    print_why_closed(runtime)
    # What is left is written in any case; the exit code shows that it is incomplete.
    errors = any(problem.severity == "error" for problem in runtime.problems)
    ctx.exit(exit_codes.PROBLEMS if errors else list_exit_code(runtime, empty=not tools))


def _provider_command(name: str, summary: str, *, has_strict: bool) -> None:
    """Add the export for a model provider; `declare` makes it, as for the requests of `chat`."""

    def run(ctx: click.Context, /, *, strict: bool = False, **options: Any) -> None:
        dialect = f"{name}_strict" if strict else name

        def make(_runtime: Runtime, tools: Sequence[Descriptor], names: Mapping[str, str]) -> Exported:
            declared = declare(tools, dialect, names)
            losses = [(one.tool, loss.pointer, loss.message) for one in declared for loss in one.losses]
            return Exported([dict(one.definition) for one in declared], losses)

        _export(ctx, dialect, make, **options)

    run.__doc__ = f"""Write the tools for {summary}, as they are sent with a request.

    The output is a JSON list. What the format cannot express of a schema is listed on stderr.
    """
    decorated = _tools_options(run)
    if has_strict:
        decorated = click.option(
            "--strict", is_flag=True, help="Use strict mode for the tools whose schema allows it."
        )(decorated)
    command.command(name)(decorated)


for _name_of_provider in ("openai", "openai_responses", "anthropic", "gemini"):
    _provider_command(
        _name_of_provider,
        DIALECTS[_name_of_provider].summary,
        has_strict=f"{_name_of_provider}_strict" in DIALECTS,
    )


@command.command("mcp")
@_tools_options
@click.option("--inline-refs", is_flag=True, help="Inline `$ref`s in schemas.")
def mcp(ctx: click.Context, /, *, inline_refs: bool, **options: Any) -> None:
    """Write the tools as an answer of `tools/list` of MCP 2026-07-28, as `serve mcp` sends it."""

    def make(_runtime: Runtime, tools: Sequence[Descriptor], names: Mapping[str, str]) -> Exported:
        listed = [definition_of(tool, name=names[tool.name], inline_refs=inline_refs) for tool in tools]
        losses = [
            (tool.name, "", remark)
            for tool in tools
            for remark in schemas_of(tool, inline_refs=inline_refs).remarks
        ]
        return Exported({"tools": listed}, losses)

    _export(ctx, "mcp", make, **options)


@command.command("openapi")
@_tools_options
@click.option("--server", metavar="URL", default="", help="Base URL of `/tools/NAME`.")
def openapi(ctx: click.Context, /, *, server: str, **options: Any) -> None:
    """Write the tools as an OpenAPI 3.1 document: one operation for each tool, a POST of its arguments to /tools/NAME."""

    def make(runtime: Runtime, tools: Sequence[Descriptor], names: Mapping[str, str]) -> Exported:
        title, description = _titles(runtime, options["paths"])
        made = openapi_document(
            tools, names, title=title, version="1.0.0", description=description, server=server
        )
        return Exported(made.document, [(tool, "", message) for tool, message in made.losses])

    _export(ctx, "openapi", make, **options)


@command.command("utcp")
@_tools_options
def utcp(ctx: click.Context, /, **options: Any) -> None:
    """Write the tools as a UTCP manual, whose readers call the services of the tools themselves.

    Tools with a `live`, `exec` or `mcp` block, and mocks with a constant result, have a call template. Others, and parts of
    requests that UTCP cannot send, are listed on stderr. Credentials are written as `${NAME}`.
    """

    def make(runtime: Runtime, tools: Sequence[Descriptor], names: Mapping[str, str]) -> Exported:
        made = utcp_manual(tools, names, servers=runtime.servers)
        return Exported(made.document, made.losses)

    _export(ctx, "utcp", make, **options)


def _page_command(name: str, summary: str, page: Callable[[str, str, list[ToolSection]], str]) -> None:
    def run(ctx: click.Context, /, **options: Any) -> None:
        def make(runtime: Runtime, tools: Sequence[Descriptor], names: Mapping[str, str]) -> Exported:
            return Exported(page(*_titles(runtime, options["paths"]), sections_of(tools, names)))

        _export(ctx, name, make, **options)

    run.__doc__ = f"""Write one page of documentation of the tools as {summary}: descriptions, arguments, results, examples."""
    command.command(name)(_tools_options(run))


_page_command("markdown", "Markdown", markdown_page)
_page_command("html", "HTML, which loads nothing", html_page)


def _titles(runtime: Runtime, paths: tuple[str, ...]) -> tuple[str, str]:
    """Title and description of a document: those of the project, or of the path."""
    description = runtime.project.description if runtime.project is not None else ""
    return _name(runtime, paths[0] if paths else None), description


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


@command.command("descriptor")
@click.argument("names", nargs=-1, metavar="[NAME | MODULE]...")
@click.option(
    "--out",
    "target",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Write one file (a name that ends in `.yaml`), or one file for each tool into this folder, instead of stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@read_options
@click.pass_context
def descriptor(
    ctx: click.Context, *, names: tuple[str, ...], target: Path | None, force: bool, reading: ReadOptions
) -> None:
    """Write descriptor files of tools, such as those of a Python module.

    NAME is the name of a tool, or a glob over names. MODULE is a Python module such as `shop.tools`: it is imported, if the
    project is trusted, and its functions and classes become descriptors in mode `python`. Default: all tools of the
    project, without importing code.

    What is written is read back and compared before. A tool that its descriptor would not describe completely is an
    error, and nothing of it is written. Exits with 1 in this case, and if a document has errors.
    """
    runtime, tools, imports = _selected(reading, names)
    print_unqueried_servers(runtime)
    if imports:
        for problem in runtime.problems:
            if problem.severity == "error" and problem.code != Untrusted.code:
                click.echo(escape_terminal(str(problem)), err=True)
    else:
        print_refusals(runtime)
        print_unimported_sources(runtime)
        print_unimported_tools(runtime)
    texts: dict[str, str] = {}
    failed = any(problem.severity == "error" for problem in runtime.problems)
    for tool in tools:
        try:
            texts[tool.name] = descriptor_text(tool, engine_of(runtime).executors)
        except DocumentError as error:
            failed = True
            click.echo(escape_terminal(f"`{tool.name}` cannot be exported: {error}"), err=True)
    if target is None:
        click.echo("---\n".join(texts.values()), nl=False)
    elif texts:
        _write_descriptors(texts, target, force=force)
    denied = print_denied(runtime)
    ctx.exit(
        exit_codes.OF_OUTCOME[Outcome.DENIED] if denied else exit_codes.PROBLEMS if failed else exit_codes.OK
    )


_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def _is_module(name: str) -> bool:
    return _MODULE.fullmatch(name) is not None


def _selected(reading: ReadOptions, names: tuple[str, ...]) -> tuple[Runtime, list[Descriptor], bool]:
    """The runtime, the tools that the names select, and whether a module was imported; a name of no tool is a module."""
    runtime = open_offline(reading)
    if not names:
        return runtime, [*runtime.registry.values()], False
    chosen = {name: fnmatch.filter(runtime.registry, name) for name in names}
    modules = [name for name, found in chosen.items() if not found]
    for name in modules:
        if not _is_module(name):
            raise click.UsageError(escape_terminal(f"`{name}` is neither the name of a tool nor a module"))
    if modules:
        runtime = open_runtime(reading, modules=modules)
        with redirected_stdout():
            asyncio.run(engine_of(runtime).import_sources())
        owners = engine_of(runtime).stock.owners
        for name in modules:
            chosen[name] = [tool for tool, source in owners.items() if source.name == name]
    selected = dict.fromkeys(tool for found in chosen.values() for tool in found)
    return runtime, [runtime.registry[name] for name in selected], bool(modules)


def _write_descriptors(texts: Mapping[str, str], target: Path, *, force: bool) -> None:
    one = target.suffix in {".yaml", ".yml"}
    files = {target: "---\n".join(texts.values())} if one else {}
    if not one:
        files = {target / f"{name}.tool.yaml": text for name, text in texts.items()}
    taken = [str(file) for file in files if os.path.lexists(file)]
    if taken and not force:
        message = f"{', '.join(taken)} already exists; use `--force` to overwrite it"
        raise click.UsageError(escape_terminal(message))
    for file, text in files.items():
        _write(file, text)


def _name(runtime: Runtime, path: str | None) -> str:
    """Name of the PromptPack if no pack defines one: the name of the project, or of the path."""
    if runtime.project is not None:
        return runtime.project.name
    return Path(os.path.realpath(path or ".")).name.partition(".")[0]


def _write(file: Path, text: str) -> None:
    # A folder that is created by a typing error would otherwise go unnoticed.
    is_new = not file.parent.exists()
    try:
        write_atomically(file, text)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{file} cannot be written: {error.strerror}")) from error
    if is_new:
        click.echo(escape_terminal(f"created the folder {file.parent}"))
    click.echo(escape_terminal(f"wrote {file}"))
