"""`toolcrib export`: write tools and prompts in the formats of other systems."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    ReadOptions,
    open_offline,
    open_runtime,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unqueried_servers,
    read_options,
)
from toolcrib.cli.output import write_atomically
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.trust import print_denied
from toolcrib.core.errors import DocumentError
from toolcrib.core.model import Descriptor, Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.descriptor_document import descriptor_text
from toolcrib.formats.promptpack.pack_writer import export_promptpack
from toolcrib.security.trust import Untrusted


@click.group("export")
def command() -> None:
    """Export tools and prompts to other formats: descriptor files, a PromptPack."""


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
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, text)


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
