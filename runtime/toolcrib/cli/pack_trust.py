"""`toolcrib pack sign`, `verify`, `diff` and `install`: who made a pack, whether it was changed, and what it wants."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import json_option
from toolcrib.cli.output import json_text, plural, problem_text, table, write_atomically, write_file
from toolcrib.cli.trust import can_ask
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError, DocumentError, Problem
from toolcrib.core.server_config import LOCK_FILE
from toolcrib.core.text import escape_terminal
from toolcrib.engine.open_project import refuse_undeclared
from toolcrib.executors import Executors
from toolcrib.loading.documents.archives import open_archive
from toolcrib.loading.documents.files import ARCHIVE, PACK_FILES
from toolcrib.loading.pack_integrity import LockedPacks, files_in, publisher_problem
from toolcrib.loading.packs import Pack
from toolcrib.loading.project_discovery import find_project
from toolcrib.scenarios.pack_builder import PackArchive, build_pack, zip_bytes
from toolcrib.scenarios.pack_diff import PackDifference, compare_packs
from toolcrib.security.hidden_characters import spell_out_hidden
from toolcrib.security.pack_signatures import (
    SIGNATURE_FILE,
    create_signing_key,
    default_key_file,
    hash_of_files,
    key_of,
    load_signing_key,
    signature_fault,
    signature_of,
    trust_key,
    trusted_key,
)
from toolcrib.security.trust_decisions import default_store
from toolcrib.servers.lock import Lock, LockedPack, read_lock

FOLDER = "packs"
"""Folder of a project in which packs are installed."""


class PackSource(NamedTuple):
    """A pack, and all of its files.

    Attributes:
        source: Its path, as it was given.
        pack: Its `pack.yaml`.
        contents: Path within the pack -> content.
    """

    source: str
    pack: Pack
    contents: Mapping[str, bytes]

    @property
    def key(self) -> str:
        """The key of its signature, which may be wrong; empty if it is not signed."""
        signature = signature_of(self.contents)
        return signature.key if signature is not None else ""


def _read(path: Path) -> PackSource:
    """Read a pack without running any of it.

    Raises:
        DocumentError: It is not a pack, or its archive or `pack.yaml` has errors.
    """
    if path.is_dir():
        contents: Mapping[str, bytes] = files_in(path)
        name = next((name for name in PACK_FILES if name in contents), "")
    else:
        archive, problems = open_archive(path)
        if archive is None:
            raise DocumentError(problems)
        contents, name = archive.contents, archive.pack_file
    if not name:
        hint = "pass a folder with `pack.yaml`, or its `.zip`"
        missing = Problem(
            code="unrecognised_file", message="missing `pack.yaml`", hint=hint, source=str(path)
        )
        raise DocumentError([missing])
    pack = Pack.parse(str(path / name), contents[name], kinds=Executors.installed())
    return PackSource(str(path), pack, contents)


@click.command("sign")
@click.argument("archive", metavar="ARCHIVE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--key",
    "key_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The private key: Ed25519 in PEM. Default: signing.pem in your state folder.",
)
@click.option("--create-key", is_flag=True, help="Create the key first.")
@json_option
def sign(*, archive: Path, key_file: str | None, create_key: bool, as_json: bool) -> None:
    """Sign a pack archive with your Ed25519 key.

    The signature covers the hash of all files, and is added to the archive as pack.sig. Publish the printed key where the
    users of the pack can find it.
    """
    if archive.is_dir() or archive.suffix.lower() != ARCHIVE:
        folder = archive if archive.is_dir() else "FOLDER"
        raise click.UsageError(f"only archives are signed; build one with `toolcrib pack build {folder}`")
    found = _read(archive)
    path = key_file or default_key_file()
    key = create_signing_key(path) if create_key else load_signing_key(path)
    unsigned = {name: data for name, data in found.contents.items() if name != SIGNATURE_FILE}
    signature = key.sign(found.pack.name, found.pack.version, unsigned)
    _write(archive, zip_bytes({**unsigned, SIGNATURE_FILE: signature.render()}))
    if as_json:
        click.echo(json_text({"signed": str(archive), **signature._asdict(), "key_file": path}))
        return
    if create_key:
        click.echo(f"created the signing key {escape_terminal(path)}: keep it secret, and keep a copy")
    click.echo(f"signed {escape_terminal(str(archive))}")
    rows = [
        ("pack", f"{signature.name} {signature.version}"),
        ("hash", signature.hash),
        ("key", signature.key),
    ]
    for line in table(rows):
        click.echo(f"  {line}")


def _write(path: Path, data: bytes | str) -> None:
    try:
        if isinstance(data, str):
            write_atomically(path, data)
        else:
            write_file(data, path)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{path} cannot be written: {error.strerror}")) from error


@click.command("verify")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True, path_type=Path))
@json_option
@click.pass_context
def verify(ctx: click.Context, *, paths: tuple[Path, ...], as_json: bool) -> None:
    """Check whether packs are unchanged, and who signed them.

    PATH is a `.zip` or a folder. Without PATH: the installed packs of this project. A pack is compared with toolcrib.lock,
    its signature is checked, and its publisher must be the one that you trust. Exits with 1 if a check fails.
    """
    project = _project()
    lock = _locked(ctx, project)
    reports = [_report(path, lock) for path in paths] or [
        _report(project / FOLDER / name, lock, name) for name in sorted(lock.packs)
    ]
    if as_json:
        click.echo(json_text({"packs": [each.as_json() for each in reports]}))
    else:
        for each in reports:
            click.echo(each.heading)
            for problem in each.problems:
                click.echo(f"  {problem_text(problem)}", err=True)
        if not reports:
            click.echo("no installed packs")
    failed = any(each.problems for each in reports)
    ctx.exit(exit_codes.PROBLEMS if failed else exit_codes.OK if reports else exit_codes.NOTHING_SELECTED)


class PackReport(NamedTuple):
    """The result of checking one pack.

    Attributes:
        source: Its path.
        name: Its name; empty if its `pack.yaml` cannot be read.
        version: Its version.
        key: The key of its signature; empty if it is not signed.
        locked: Whether the lock of the project contains it.
        trusted: When the user trusted its key; empty if not.
        problems: What is wrong.
    """

    source: str
    name: str = ""
    version: str = ""
    key: str = ""
    locked: bool = False
    trusted: str = ""
    problems: tuple[Problem, ...] = ()

    @property
    def heading(self) -> str:
        """The first line about the pack."""
        what = f"{self.name} {self.version}" if self.name else escape_terminal(self.source)
        if self.problems:
            return f"{click.style(what, bold=True)}: {click.style('refused', fg='red', bold=True)}"
        trust = f"trusted since {self.trusted}" if self.trusted else "you trust no key for this pack yet"
        signed = f"signed with {self.key}, {trust}" if self.key else "not signed"
        return f"{click.style(what, bold=True)}: {'unchanged' if self.locked else 'not installed here'}, {signed}"

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {**self._asdict(), "problems": [each._asdict() for each in self.problems]}


def _report(path: Path, lock: Lock, name: str = "") -> PackReport:
    store = default_store()
    if not path.exists():
        hint = "install it again, or remove its entry"
        message = f"{lock.source} locks the pack `{name}`, which does not exist"
        gone = Problem(code="path_not_found", message=message, hint=hint, source=str(path))
        return PackReport(str(path), name, lock.packs[name].version, problems=(gone,))
    try:
        found = _read(path)
    except DocumentError as error:
        return PackReport(str(path), name, problems=tuple(error.problems))
    pack, known = found.pack, trusted_key(store, found.pack.name)
    fault = LockedPacks(lock.source, lock.packs, store).problem(pack, lambda: found.contents)
    problems = [fault] if fault is not None else _signature_problems(found)
    trusted = known.when if known is not None and key_of(known) == found.key else ""
    return PackReport(
        str(path), pack.name, pack.version, found.key, pack.name in lock.packs, trusted, tuple(problems)
    )


def _signature_problems(found: PackSource) -> list[Problem]:
    """What is wrong with the signature or the publisher of a pack."""
    why = signature_fault(found.pack.name, found.pack.version, found.contents)
    if why:
        message = f"the signature of the pack `{found.pack.name}` is not valid: {why}"
        hint = "get the pack from its publisher again"
        return [Problem(code="invalid_signature", message=message, hint=hint, source=found.source)]
    alarm = publisher_problem(default_store(), found.pack.name, found.key)
    return [] if alarm is None else [alarm._replace(source=found.source)]


@click.command("diff")
@click.argument("old", metavar="OLD", type=click.Path(exists=True, path_type=Path))
@click.argument("new", metavar="[NEW]", required=False, type=click.Path(exists=True, path_type=Path))
@json_option
@click.pass_context
def diff(ctx: click.Context, *, old: Path, new: Path | None, as_json: bool) -> None:
    """Show what a version of a pack wants, and how it differs from another one.

    With one path: compare it with the installed version. Nothing of either pack runs.
    """
    now = _built(ctx, new or old)
    before = _built(ctx, old) if new is not None else _installed(ctx, now)
    found = compare_packs(before, now)
    if as_json:
        click.echo(json_text(found.as_json()))
    else:
        for line in difference_lines(_name(now), found):
            click.echo(line)


def difference_lines(name: str, found: PackDifference) -> Iterator[str]:
    """Format a difference: what the new version wants first, in words."""
    before, now = found.versions
    yield click.style(f"{name} {before} -> {now}" if before else f"{name} {now}", bold=True)
    before_key, key = found.keys
    if before and before_key != key:
        yield click.style(
            f"! its publisher has changed: {before_key or 'not signed'} -> {key or 'not signed'}", fg="red"
        )
    if before and not found.wants:
        yield "  it wants nothing else than before"
    for sign, colour, wishes in (
        ("+", "green", found.wants),
        ("-", "red", found.gives_up),
        (" ", None, found.keeps),
    ):
        for wish in wishes:
            yield click.style(f"{sign} wants to {spell_out_hidden(wish)}", fg=colour if before else None)
    for tool, change in found.tools.items() if before else ():
        yield f"  tool {spell_out_hidden(tool)}: {change}"
    counts = [
        f"{sum(each == change for each in found.files.values())} {change}"
        for change in ("added", "removed", "changed")
        if change in found.files.values()
    ]
    if before:
        yield f"  files: {', '.join(counts) or 'unchanged'}"


def _built(ctx: click.Context, path: Path) -> PackArchive:
    """Read and check a pack. Errors end the command."""
    parcel = asyncio.run(build_pack(path))
    if parcel.pack is None or parcel.refused:
        for problem in parcel.problems:
            click.echo(problem_text(problem), err=True)
        click.echo(f"{escape_terminal(str(path))} has errors", err=True)
        ctx.exit(exit_codes.PROBLEMS)
    if path.is_dir():
        # All files count, not only those that an archive would contain.
        parcel = _with_contents(parcel, files_in(path))
    return parcel


def _with_contents(parcel: PackArchive, contents: Mapping[str, bytes]) -> PackArchive:
    from dataclasses import replace  # noqa: PLC0415 -- only for folders

    return replace(parcel, contents=contents)


def _name(parcel: PackArchive) -> str:
    return parcel.pack.name if parcel.pack is not None else ""


def _installed(ctx: click.Context, parcel: PackArchive) -> PackArchive | None:
    """The installed version of a pack; None if there is none."""
    path = _project() / FOLDER / _name(parcel)
    return _built(ctx, path) if path.is_dir() else None


@click.command("install")
@click.argument("archive", metavar="ARCHIVE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-y", "--yes", is_flag=True, help="Install without asking. A key that is not trusted yet is refused."
)
@click.option(
    "--trust-key",
    metavar="KEY",
    help="Trust this key for the pack: `ed25519:...`, as its publisher tells you.",
)
@json_option
@click.pass_context
def install(ctx: click.Context, *, archive: Path, yes: bool, trust_key: str | None, as_json: bool) -> None:
    """Install a pack archive in the folder `packs` of this project, and lock it.

    What the pack wants is shown first, or what it wants in addition to the installed version. Its signature must be valid,
    and you are asked about a key that you do not trust yet. If the publisher of an installed pack has changed, nothing is
    installed unless you name the new key with `--trust-key`.
    """
    if archive.suffix.lower() != ARCHIVE:
        raise click.UsageError("only archives are installed; build one with `toolcrib pack build`")
    say = _silent if as_json else click.echo
    project = _project()
    lock = _locked(ctx, project)
    parcel = _built(ctx, archive)
    assert parcel.pack is not None  # noqa: S101 -- `_built` checks it
    found = PackSource(str(archive), parcel.pack, parcel.contents)
    _check_declared(ctx, parcel)
    target = project / FOLDER / found.pack.name
    _check_target(target, lock, found.pack.name)
    before = _built(ctx, target) if target.is_dir() else None
    difference = compare_packs(before, parcel)
    for line in difference_lines(found.pack.name, difference):
        say(line)
    new_key = _accepted_key(ctx, found, trust_key, yes=yes, say=say)
    _ask(ctx, f"Install {found.pack.name} {found.pack.version}?", yes=yes)
    if new_key:
        _remember(found.pack.name, new_key)
    _unpack(target, found.contents)
    entry = LockedPack(found.pack.version, hash_of_files(found.contents), found.key)
    _write(project / LOCK_FILE, lock._replace(packs={**lock.packs, found.pack.name: entry}).text)
    if as_json:
        click.echo(
            json_text({"installed": str(target), **entry._asdict(), "difference": difference.as_json()})
        )
    say(f"installed {escape_terminal(str(target))}, locked in {LOCK_FILE}")
    if difference.wants or difference.keeps:
        say("review what its tools need with `toolcrib trust --dry-run`, then run `toolcrib trust`")
    _tell_unread(ctx, found.pack.name)


def _silent(_line: str) -> None:
    pass


def _project() -> Path:
    """The folder of the project that contains the working directory; the working directory without a project."""
    return Path(find_project() or "toolcrib.yaml").parent


def _locked(ctx: click.Context, project: Path) -> Lock:
    """The lock of a project. Errors end the command."""
    lock, problems = read_lock(project / LOCK_FILE)
    for problem in problems:
        click.echo(problem_text(problem), err=True)
    if problems:
        ctx.exit(exit_codes.PROBLEMS)
    return lock


def _check_declared(ctx: click.Context, parcel: PackArchive) -> None:
    """Refuse a pack with tools that use what it does not declare: loading would refuse them."""
    assert parcel.pack is not None  # noqa: S101 -- `_built` checks it
    _kept, refused = refuse_undeclared(parcel.tools, [parcel.pack], Executors.installed(), {parcel.pack.name})
    for problem in refused.values():
        click.echo(problem_text(problem), err=True)
    if refused:
        count = plural(len(refused), "tool")
        click.echo(f"nothing was installed: {count} would use what the pack does not declare", err=True)
        ctx.exit(exit_codes.PROBLEMS)


def _check_target(target: Path, lock: Lock, name: str) -> None:
    """Refuse to overwrite files that are not those of an installed pack.

    Raises:
        ConfigurationError: The target exists, and is not the locked pack.
    """
    if not os.path.lexists(target):
        return
    shown = escape_terminal(str(target))
    locked = lock.packs.get(name)
    if locked is None or not target.is_dir() or target.is_symlink():
        raise ConfigurationError(
            f"{shown} exists, and was not installed", code="file_exists", hint="remove it, or move it away"
        )
    if hash_of_files(files_in(target)) != locked.hash:
        hint = "move your changes away and remove the folder"
        raise ConfigurationError(
            f"the files in {shown} were changed since they were installed", code="pack_changed", hint=hint
        )


def _accepted_key(
    ctx: click.Context, found: PackSource, named: str | None, *, yes: bool, say: Callable[[str], object]
) -> str:
    """Check the signature, and return the key that is to be trusted from now on; empty for none.

    A wrong signature, a changed publisher or a key that the user does not accept ends the command.
    """
    name, key = found.pack.name, found.key
    if named and named != key:
        now = f"signed with {key}" if key else "not signed"
        raise ConfigurationError(
            f"the pack is {now}, not with {named}",
            code="unknown_signer",
            hint="compare the keys letter by letter",
        )
    problems = [
        each for each in _signature_problems(found) if not (named and each.code == "publisher_changed")
    ]
    for problem in problems:
        click.echo(problem_text(problem), err=True)
    if problems:
        click.echo("nothing was installed", err=True)
        ctx.exit(exit_codes.PROBLEMS)
    if not key:
        say("  it is not signed: nobody vouches for its files")
        return ""
    known = trusted_key(default_store(), name)
    if known is not None and key_of(known) == key:
        say(f"  signed with {key}, trusted since {known.when}")
        return ""
    say(f"  signed with {key}, which you do not trust yet")
    if not named:
        if yes:
            hint = f"compare it with the key that the publisher names, then pass `--trust-key {key}`"
            raise ConfigurationError(
                f"you do not trust the key of the pack `{name}` yet", code="unknown_signer", hint=hint
            )
        _ask(ctx, f"Trust this key for the pack {name}?", yes=False)
    return key


def _ask(ctx: click.Context, question: str, *, yes: bool) -> None:
    """Ask for confirmation; anything else than yes ends the command."""
    if yes:
        return
    if not can_ask():
        click.echo("no terminal to ask at; use `--yes`, and `--trust-key` for a new key", err=True)
        ctx.exit(exit_codes.USAGE)
    # On stderr, which keeps stdout free for the JSON document or a pipe.
    if not click.confirm(question, err=True):
        click.echo("nothing was installed", err=True)
        ctx.exit(exit_codes.PROBLEMS)


def _remember(pack: str, key: str) -> None:
    try:
        trust_key(default_store(), pack, key, when=RealClock().now())
    except OSError as error:
        raise click.ClickException(escape_terminal(f"cannot store the decision: {error}")) from error


def _unpack(target: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files of a pack into a new folder, which then takes the place of the target."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        try:
            for name, data in contents.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if target.exists():
                target.rename(old)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise click.ClickException(
            escape_terminal(f"{target} cannot be written: {error.strerror}")
        ) from error


def _tell_unread(ctx: click.Context, name: str) -> None:
    """Say so if the project does not read the folder of the pack."""
    from toolcrib.cli.options import ReadOptions, open_offline  # noqa: PLC0415 -- only after an installation

    reading = ctx.obj if isinstance(ctx.obj, ReadOptions) else ReadOptions()
    runtime = open_offline(reading, (), remembers=False)
    if not any(pack.name == name for pack in runtime.packs):
        click.echo(
            f"the project does not read it: add `{FOLDER}/{name}` to `sources` in toolcrib.yaml", err=True
        )


COMMANDS: Sequence[click.Command] = (sign, verify, diff, install)
"""The verbs of `toolcrib pack` in this module."""
