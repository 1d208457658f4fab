"""`toolcrib stubs`: write a typed Python module for the tools."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    ReadOptions,
    open_offline,
    paths_argument,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unqueried_servers,
    read_options,
)
from toolcrib.cli.output import plural, write_atomically
from toolcrib.core.model import Descriptor
from toolcrib.core.pointers import file_and_line
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.python_stubs import MARK, DocumentState, generate_stubs


@click.command("stubs")
@paths_argument
@click.option(
    "--out",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file, such as `tools.py`, instead of stdout.",
)
@click.option("--toolset", metavar="NAME", help="Only the tools of this toolset.")
@click.option("--check", is_flag=True, help="Write nothing, and exit with 1 if the file is out of date.")
@click.option("--force", is_flag=True, help="Overwrite a file that `toolcrib stubs` did not write.")
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    file: Path | None,
    toolset: str | None,
    check: bool,
    force: bool,
    reading: ReadOptions,
) -> None:
    """Write a typed Python module for the tools.

    With it, an editor completes and checks `await Tools(runtime).get_forecast(city="Oslo")`. The types are those of the
    schemas in the files; no server is asked and no code is imported. When the module is imported, it logs a warning if
    the files have changed since.
    """
    if check and file is None:
        raise click.UsageError("`--check` needs `--out FILE`")
    runtime = open_offline(reading, paths)
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    print_unimported_tools(runtime)
    names = [card.name for card in runtime.registry.query(toolset=toolset)]
    tools = [runtime.registry[name] for name in names]
    options = [*paths, *_options(reading), *(["--toolset", toolset] if toolset else [])]
    text = generate_stubs(
        tools,
        _title(runtime),
        documents=_documents(tools, file),
        command=shlex.join(
            ["toolcrib", "stubs", *options, "--out", "FILE" if file is None else file.as_posix()]
        ),
    )
    errors = any(problem.severity == "error" for problem in runtime.problems)
    if file is None:
        click.echo(text, nl=False)
    elif check:
        if _text(file) != text:
            raise click.ClickException(
                escape_terminal(f"{file} is out of date; run `toolcrib stubs --out {file}`")
            )
        click.echo(escape_terminal(f"{file} is up to date: {plural(len(names), 'tool')}"))
    else:
        _write(file, text, force=force)
        click.echo(escape_terminal(f"wrote {file}: {plural(len(names), 'tool')}"))
    ctx.exit(exit_codes.PROBLEMS if errors else exit_codes.OK)


def _title(runtime: Runtime) -> str:
    return runtime.project.name if runtime.project is not None and runtime.project.name else "this project"


def _options(reading: ReadOptions) -> Iterator[str]:
    for option, values in (("--pack", reading.packs), ("--mcp", reading.servers)):
        for value in values:
            yield from (option, value)
    if reading.profile is not None:
        yield from ("--profile", reading.profile)


def _documents(tools: Iterable[Descriptor], file: Path | None) -> dict[str, DocumentState]:
    """The documents of tools that are files, by their paths relative to the folder of the module."""
    folder = Path() if file is None else file.parent
    found = {}
    origins = [tool.origin for tool in tools]
    overridden = {file_and_line(place)[0] for origin in origins for place in origin.overrides}
    for source in sorted({origin.source for origin in origins} | overridden):
        # A document of a server or a zip file has no file of its own.
        with suppress(OSError):
            found[_relative(source, folder)] = DocumentState.of(Path(source).read_bytes())
    return found


def _relative(source: str, folder: Path) -> str:
    return Path(os.path.relpath(source, folder)).as_posix()


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _write(file: Path, text: str, *, force: bool) -> None:
    known = _text(file)
    foreign = file.is_symlink() or (file.exists() and MARK not in (known or "").partition("\n")[0])
    if foreign and not force:
        message = f"{file} was not written by `toolcrib stubs`; use `--force` to overwrite it"
        raise click.UsageError(escape_terminal(message))
    try:
        write_atomically(file, text)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{file} cannot be written: {error.strerror}")) from error
