"""`toolcrib pack`: build a pack archive, and inspect a pack."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import ReadOptions, json_option
from toolcrib.cli.output import json_text, plural, problem_text, table, terminal_width, write_file
from toolcrib.core.model import Descriptor
from toolcrib.core.text import escape_terminal, first_sentence
from toolcrib.loading.packs import Pack
from toolcrib.scenarios.pack_builder import PackArchive, build_pack

also_option = click.option(
    "--pack",
    "also",
    multiple=True,
    metavar="PATH",
    type=click.Path(exists=True),
    help="Also read this pack, which the other one requires. Can be repeated.",
)


class PackGroup(click.Group):
    """A group whose verbs about signatures are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, sorted."""
        return sorted([*super().list_commands(ctx), *_SIGNING])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A verb; None if it is unknown."""
        if cmd_name in _SIGNING:
            from toolcrib.cli import pack_trust  # noqa: PLC0415 -- see above

            return next(each for each in pack_trust.COMMANDS if each.name == cmd_name)
        return super().get_command(ctx, cmd_name)


_SIGNING = ("diff", "install", "sign", "verify")


@click.group("pack", cls=PackGroup)
def command() -> None:
    """Build, inspect, sign, verify and install packs."""


@command.command("build")
@click.argument("folder", default=".", metavar="[FOLDER]", type=click.Path(exists=True))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write to FILE. Default: NAME-VERSION.zip here, or next to FOLDER if this is FOLDER.",
)
@json_option
@also_option
@click.pass_context
def build(
    ctx: click.Context, *, folder: str, output: str | None, as_json: bool, also: tuple[str, ...]
) -> None:
    """Build a distributable `.zip` of a pack.

    The pack is checked like `toolcrib validate` does, and nothing is written if a check finds an error. The archive
    contains the documents of the pack, the data files that they reference, the Python modules that its tools name and
    import, its licence and its readme. The same contents always give the same bytes.
    """
    parcel = _read(ctx, folder, also)
    target = _target(parcel, Path(folder), output)
    _tell(parcel)
    if not parcel.refused:
        _write(parcel, target)
    if as_json:
        click.echo(json_text({"written": None if parcel.refused else str(target), **_document(parcel)}))
    elif not parcel.refused:
        click.echo(f"wrote {escape_terminal(str(target))}")
        for line in table(list(_measures(parcel))):
            click.echo(f"  {line}")
    if parcel.refused:
        click.echo(f"nothing was written: {plural(_errors(parcel), 'error')}", err=True)
        ctx.exit(exit_codes.PROBLEMS)


def _write(parcel: PackArchive, target: Path) -> None:
    try:
        write_file(parcel.archive, target)
    except OSError as error:
        raise click.ClickException(
            escape_terminal(f"{target} cannot be written: {error.strerror}")
        ) from error


@command.command("inspect")
@click.argument("path", default=".", metavar="[PATH]", type=click.Path(exists=True))
@json_option
@also_option
@click.pass_context
def inspect(ctx: click.Context, *, path: str, as_json: bool, also: tuple[str, ...]) -> None:
    """Show the contents of a pack without unpacking it.

    PATH is a `.zip` or a folder; for a folder it shows what `toolcrib pack build` would write. Exits with 1 if the
    pack has errors.
    """
    parcel = _read(ctx, path, also)
    if as_json:
        click.echo(json_text(_document(parcel)))
    else:
        for line in _page(parcel):
            click.echo(line)
        _tell(parcel)
    ctx.exit(exit_codes.PROBLEMS if parcel.refused else exit_codes.OK)


def _read(ctx: click.Context, path: str, also: tuple[str, ...]) -> PackArchive:
    before = ctx.obj.packs if isinstance(ctx.obj, ReadOptions) else ()
    return asyncio.run(build_pack(path, (*before, *also)))


def _target(parcel: PackArchive, folder: Path, output: str | None) -> Path:
    """The path of the archive, which must not be inside the pack: the next build would include it."""
    if not folder.is_dir() and folder.suffix == ".zip":
        raise click.UsageError(
            f"`{escape_terminal(str(folder))}` is already an archive; pass the folder of the pack"
        )
    folder = (folder if folder.is_dir() else folder.parent).resolve()
    if output is None:
        here = Path.cwd()
        # An archive inside the folder would become a part of the next one.
        beside = folder.parent if here.is_relative_to(folder) else here
        return Path(parcel.file_name) if beside == here else beside / parcel.file_name
    if Path(output).resolve().is_relative_to(folder):
        raise click.UsageError(
            f"`{escape_terminal(output)}` is inside the pack itself; write it to another folder"
        )
    return Path(output)


def _tell(parcel: PackArchive) -> None:
    for problem in parcel.problems:
        click.echo(problem_text(problem), err=True)


def _errors(parcel: PackArchive) -> int:
    return sum(problem.severity == "error" for problem in parcel.problems)


def _measures(parcel: PackArchive) -> Iterator[tuple[str, str]]:
    if parcel.pack is not None:
        yield "pack", f"{parcel.pack.name} {parcel.pack.version}"
    total = sum(map(len, parcel.contents.values()))
    yield "files", f"{len(parcel.contents)}, {total:,} bytes in all"
    if parcel.digest:
        yield "size", f"{parcel.size:,} bytes"
        yield "sha256", parcel.digest


def _page(parcel: PackArchive) -> Iterator[str]:
    facts = [*_measures(parcel), *(_facts(parcel.pack) if parcel.pack is not None else ())]
    yield from table([("source", parcel.source), *facts])
    tools = [(tool.name, _modes(tool), first_sentence(tool.description)) for tool in parcel.tools]
    yield from _section("tools", tools)
    yield from _section("scenarios", [(name,) for name in parcel.scenarios])
    yield from _section("files", [(name, f"{len(data):,} bytes") for name, data in parcel.contents.items()])


def _facts(pack: Pack) -> Iterator[tuple[str, str]]:
    facts = {
        "description": pack.description,
        "author": pack.author,
        "licence": pack.licence,
        "namespace": pack.namespace,
        "requires": ", ".join(f"{name} {versions}" for name, versions in _needs(pack)),
        "defaults": ", ".join(f"{key} {value}" for key, value in pack.defaults.items()),
    }
    yield from ((key, value) for key, value in facts.items() if value)
    for toolset in pack.toolsets:
        yield "toolset", f"{toolset.name}: {', '.join(toolset.tools)}"
    for prompt in pack.prompts.values():
        yield (
            "prompt",
            f"{prompt.name}: {first_sentence(prompt.description) or prompt.title or ', '.join(prompt.tools)}",
        )


def _needs(pack: Pack) -> Iterator[tuple[str, str]]:
    if "toolcrib" in pack.requires:
        yield "toolcrib", pack.requires["toolcrib"]
    yield from pack.requires.get("packs", {}).items()


def _modes(tool: Descriptor) -> str:
    """The active mode, then the others."""
    others = [mode for mode in tool.bindings if mode != tool.mode]
    return ", ".join([tool.mode or "unbound", *others])


def _section(title: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield ""
    if not rows:
        yield f"{title}: none"
        return
    yield title
    width = terminal_width()
    yield from (f"  {line}" for line in table(rows, None if width is None else width - 2))


def _document(parcel: PackArchive) -> dict[str, Any]:
    pack = parcel.pack
    said = {
        key: getattr(pack, key) if pack is not None else None
        for key in ("name", "version", "description", "author", "licence", "namespace")
    }
    return said | {
        "source": parcel.source,
        "requires": dict(pack.requires) if pack is not None else {},
        "toolsets": {
            toolset.name: {"description": toolset.description, "tools": list(toolset.tools)}
            for toolset in (pack.toolsets if pack is not None else ())
        },
        "prompts": {
            prompt.name: {"description": prompt.description, "tools": list(prompt.tools)}
            for prompt in (pack.prompts.values() if pack is not None else ())
        },
        "defaults": dict(pack.defaults) if pack is not None else {},
        "tools": [
            {
                "name": tool.name,
                "mode": tool.mode,
                "modes": list(tool.bindings),
                "description": tool.description,
            }
            for tool in parcel.tools
        ],
        "scenarios": list(parcel.scenarios),
        "files": {name: len(data) for name, data in parcel.contents.items()},
        "size": parcel.size or None,
        "sha256": parcel.digest or None,
        "problems": [problem._asdict() for problem in parcel.problems],
    }
