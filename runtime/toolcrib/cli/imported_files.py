"""What every `toolcrib import` of tools does with them: options, files, the merge with an earlier import, the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import json_option
from toolcrib.cli.output import json_text, plural, problem_text, write_atomically
from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.text import compact, escape_terminal
from toolcrib.executors import Executors
from toolcrib.formats.descriptor_files import DescriptorFile, descriptor_files
from toolcrib.formats.imported_tools import ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.imports.merge import ABSENT, MergeConflict
from toolcrib.formats.imports.mocks import with_mock, with_valid_examples
from toolcrib.formats.imports.plan import ImportPlan, ImportTarget, PlannedFile, plan_import
from toolcrib.formats.imports.records import (
    FOLDER,
    ImportRecord,
    is_record_name,
    parse_record,
    record_name,
    record_text,
)
from toolcrib.formats.imports.secrets import without_secrets
from toolcrib.loading.project_discovery import candidate_folders, project_file

F = TypeVar("F", bound=Callable[..., Any])

SCHEMA: Final = Path(".toolcrib", "descriptor.schema.json")
"""Where `toolcrib init` writes the JSON Schema for editors."""

MOST_SHOWN: Final = 20
"""Maximum number of remarks of one kind that are printed; `--json` has all of them."""


class ImportOptions(NamedTuple):
    """The options that all imports of tools have.

    Attributes:
        folder: Folder of the files.
        only: Globs of the keys or names of the tools to import; empty for all.
        skipped: Globs of the keys or names of the tools to skip.
        prefix: Prefix of the names; None if it was not given.
        record: Name of the import; None for the usual one.
        force: Whether to overwrite files, whatever a person changed.
        check: Whether only to report if the source has changed.
        dry_run: Whether to write nothing.
        as_json: Whether to print JSON.
    """

    folder: Path
    only: tuple[str, ...]
    skipped: tuple[str, ...]
    prefix: str | None
    record: str | None
    force: bool
    check: bool
    dry_run: bool
    as_json: bool

    def takes(self, *names: str) -> bool:
        """Whether `--only` and `--except` select a tool that has some names."""
        chosen = not self.only or _fits(names, self.only)
        return chosen and not _fits(names, self.skipped)


def _fits(names: Sequence[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs for name in names)


def _record_name(_ctx: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    if name is not None and not is_record_name(name):
        message = f"{escape_terminal(repr(name))} is not a file name: use letters, digits, `_`, `.` and `-`"
        raise click.BadParameter(message)
    return name


_OPTIONS: Final = (
    click.option(
        "--out",
        "folder",
        default="descriptors",
        show_default=True,
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Write the files to this folder; it is created if missing.",
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="GLOB",
        help="Import only tools with a matching name in the source. Can be repeated.",
    ),
    click.option(
        "--except",
        "skipped",
        multiple=True,
        metavar="GLOB",
        help="Skip tools with a matching name in the source. Can be repeated.",
    ),
    click.option("--prefix", metavar="TEXT", help="Prefix of the tool names."),
    click.option(
        "--record",
        metavar="NAME",
        callback=_record_name,
        help="Name of the file under `.toolcrib/imports/`. Default: the kind and the name of the source.",
    ),
    click.option("--force", is_flag=True, help="Overwrite existing files, also those that were edited."),
    click.option(
        "--check",
        is_flag=True,
        help="Write nothing; exit with 1 if the source has changed since the last import.",
    ),
    click.option("--dry-run", is_flag=True, help="Report what would be written, and write nothing."),
    json_option,
)


def import_options(function: F) -> F:
    """Add the options that all imports have; the command gets them as `options`."""

    @wraps(function)
    def with_options(**values: Any) -> Any:
        options = ImportOptions(**{name: values.pop(name) for name in ImportOptions._fields})
        return function(options=options, **values)

    command: Any = with_options
    for option in reversed(_OPTIONS):
        command = option(command)
    decorated: F = command
    return decorated


def write_import(
    ctx: click.Context,
    imported: ImportedTools,
    options: ImportOptions,
    *,
    kind: str,
    source: str,
    remarks: Sequence[str] = (),
    mocks: bool = True,
    after: Callable[[ImportPlan], Iterator[str]] = lambda _plan: iter(()),
) -> NoReturn:
    """Write imported tools as descriptor files, merge them with those of an earlier import, report, and exit.

    Secrets become `${NAME}`, tools without a mock get one, and every file is read back before it is written.

    Args:
        ctx: The context of the command.
        imported: The tools, as the converter returned them.
        options: The options of the command.
        kind: The kind of the source, which is the name of the command.
        source: The source as the user named it: a path, a URL or a name.
        remarks: Further lines for the user.
        mocks: Whether tools without a mock get one.
        after: Returns further lines for stdout, if anything was written.
    """
    chosen, unfit = _chosen(imported, options)
    chosen = with_valid_examples(without_secrets(chosen))
    if mocks:
        chosen = chosen._replace(
            tools=[tool._replace(descriptor=with_mock(tool.descriptor)) for tool in chosen.tools]
        )
    kinds = Executors.installed()
    target = ImportTarget(_root(options.folder), options.folder, _schema_for(options.folder), options.force)
    made = descriptor_files(chosen, kinds, schema=target.schema)
    # Imports of one source into several folders have nothing to do with each other.
    within = os.path.relpath(target.folder.resolve(), target.root.resolve())
    place = target.root / FOLDER / within / f"{options.record or record_name(kind, source)}.json"
    said = _relative_source(source, target.root)
    before = _record(place, kind, said, target.root)
    plan = plan_import(made, before, target, kinds, kind=kind, source=said, skipped=chosen.skipped)
    writes = not (options.check or options.dry_run)
    if writes:
        _write(plan, place)
    report = _Report(
        plan, made.files, made.refused, (*chosen.remarks, *made.remarks), (*unfit, *remarks), writes=writes
    )
    if options.as_json:
        click.echo(json_text(report.document()))
    else:
        report.print(options)
        if writes and report.has_changes():
            for line in after(plan):
                click.echo(line)
    if options.check:
        ctx.exit(exit_codes.PROBLEMS if plan.source_changed else exit_codes.OK)
    ctx.exit(exit_codes.PROBLEMS if report.failed() else exit_codes.OK)


def _chosen(imported: ImportedTools, options: ImportOptions) -> tuple[ImportedTools, list[str]]:
    """The tools that the globs select, with the prefix; and a remark on each glob that matches none."""
    names: dict[str, tuple[str, ...]] = {
        tool.key: (tool.key, str(tool.descriptor.get("name", ""))) for tool in imported.tools
    }
    names |= {each.key: (each.key,) for each in imported.refused}
    taken = {key for key, each in names.items() if options.takes(*each)}
    globs = (*options.only, *options.skipped)
    unfit = [
        _unfit(glob, [*names]) for glob in globs if not any(_fits(each, [glob]) for each in names.values())
    ]
    tools = [tool for tool in imported.tools if tool.key in taken]
    if options.prefix is not None:
        tools = [
            tool._replace(
                descriptor={**tool.descriptor, "name": f"{options.prefix}{tool.descriptor.get('name', '')}"}
            )
            for tool in tools
        ]
    left = [key for key in names if key not in taken]
    return (
        imported._replace(
            tools=tools,
            refused=[each for each in imported.refused if each.key in taken],
            remarks=[each for each in imported.remarks if each.key not in left],
            skipped=(*imported.skipped, *left),
        ),
        unfit,
    )


def _unfit(glob: str, names: Sequence[str]) -> str:
    if not names:
        return f"no tool is named `{glob}`; the source has none"
    shown = ", ".join(f"`{name}`" for name in names[:MOST_SHOWN])
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"no tool is named `{glob}`; {did_you_mean(glob, names) or f'its tools are: {shown}{more}'}"


def _root(folder: Path) -> Path:
    """The root of the project that a folder belongs to: where records of imports are."""
    for place in candidate_folders(folder):
        if project_file(place) is not None or Path(place, FOLDER).is_dir():
            return Path(place)
    here = Path()
    return here if folder.resolve().is_relative_to(here.resolve()) else folder


def _schema_for(folder: Path) -> str:
    """Relative path from a folder to the editor schema in it or above it; empty if there is none."""
    above = folder.resolve()
    for place in (above, *above.parents):
        if (place / SCHEMA).is_file():
            return Path(os.path.relpath(place / SCHEMA, above)).as_posix()
    return ""


def _relative_source(source: str, root: Path) -> str:
    """The source for the record; a path is relative to the root, so that it is the same on every machine."""
    return Path(os.path.relpath(source, root)).as_posix() if os.path.exists(source) else source


def _record(path: Path, kind: str, source: str, root: Path) -> ImportRecord | None:
    """The record of the last import; None for the first.

    Raises:
        ConfigurationError: It is damaged, or the record of another import.
    """
    try:
        record = parse_record(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    # A source that is no longer there was moved or renamed.
    other = record.source != source and (root / record.source).exists()
    if record.kind != kind or other:
        message = f"{path} is the record of `toolcrib import {record.kind} {record.source}`"
        hint = "give this import another name with `--record NAME`"
        raise ConfigurationError(message, code="other_import_record", hint=hint)
    return record


def _write(plan: ImportPlan, place: Path) -> None:
    for file in plan.files:
        if file.text is not None:
            _write_file(file.path, file.text)
            if file.removes is not None:
                file.removes.unlink(missing_ok=True)
    text = record_text(plan.record)
    # The record is the last: after a crash, files that were written are found to be up to date.
    if plan.record.tools and (not place.exists() or place.read_text(encoding="utf-8") != text):
        _write_file(place, text)


def _write_file(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{path} cannot be written: {error.strerror}")) from error


_LINES: Final = {
    "written": "wrote {path}",
    "updated": "updated {path}",
    "existing": "{path} already exists and was not changed; use `--force` to overwrite it",
    "deleted": "{path} was deleted and is not written again; use `--force` to restore it",
    "gone": "{path}: the source no longer has `{key}`; the file was not deleted",
}
_WOULD: Final = {"written": "would write {path}", "updated": "would update {path}"}


class _Report:
    def __init__(
        self,
        plan: ImportPlan,
        files: Sequence[DescriptorFile],
        refused: Sequence[ImportRefusal],
        remarks: Sequence[ImportRemark],
        lines: Sequence[str],
        *,
        writes: bool,
    ) -> None:
        self._plan = plan
        self._problems = {file.key: file.problems for file in files}
        self._refused = refused
        self._remarks = remarks
        self._lines = lines
        self._writes = writes

    def has(self, *statuses: str) -> bool:
        """Whether a tool has one of some statuses."""
        return any(file.status in statuses for file in self._plan.files)

    def has_changes(self) -> bool:
        """Whether a file is written."""
        return any(file.text is not None for file in self._plan.files)

    def failed(self) -> bool:
        nothing = not self.has("written", "updated", "unchanged", "conflict", "deleted")
        return bool(self._refused) or nothing or self.has("existing", "conflict")

    def document(self) -> dict[str, JSON]:
        """The report as JSON."""
        return {
            "tools": [self._entry(file) for file in self._plan.files],
            "refused": [dict(each._asdict()) for each in self._refused],
            **{
                name: [_remark(each) for each in self._remarks if each.kind == kind]
                for kind, name in (("lost", "lost"), ("repaired", "repaired"), ("secret", "secrets"))
            },
            "remarks": list(self._lines),
            "source_changed": self._plan.source_changed,
        }

    def _entry(self, file: PlannedFile) -> dict[str, JSON]:
        return {
            "key": file.key,
            "name": file.name,
            "file": str(file.path),
            "status": file.status,
            "moved_from": None if file.moved_from is None else str(file.moved_from),
            "replaces": None if file.removes is None else str(file.removes),
            "changed": list(file.changed),
            "edited": list(file.edited),
            "conflicts": [_conflict(each) for each in file.conflicts],
            "problem": file.problem or None,
            "problems": [dict(problem._asdict()) for problem in self._problems.get(file.key, ())],
        }

    def print(self, options: ImportOptions) -> None:
        """Print the report for people: what was written on stdout, everything else on stderr."""
        for line in self._lines:
            click.echo(escape_terminal(line), err=True)
        for file in self._plan.files:
            self._print_file(file)
        for each in self._refused:
            at = f" (at {each.pointer})" if each.pointer else ""
            click.echo(escape_terminal(f"no file for `{each.key}`: {each.message}{at}"), err=True)
        for kind in ("lost", "repaired", "secret"):
            self._print_remarks(kind)
        unchanged = sum(file.status == "unchanged" for file in self._plan.files)
        if unchanged:
            click.echo(f"{plural(unchanged, 'tool')} unchanged")
        if options.check:
            changed = "has changed" if self._plan.source_changed else "has not changed"
            click.echo(f"the source {changed} since the last import")
        elif not self.has_changes() and (not unchanged or self.failed()):
            click.echo("nothing was written", err=True)

    def _print_file(self, file: PlannedFile) -> None:
        # What only the source changed is written although other parts are in conflict.
        status = "updated" if file.text is not None and file.status == "conflict" else file.status
        line = _LINES.get(status) if self._writes else {**_LINES, **_WOULD}.get(status)
        if line is not None:
            click.echo(escape_terminal(line.format(path=file.path, key=file.key)), err=file.text is None)
        if file.moved_from is not None:
            click.echo(escape_terminal(f"{file.path} was {file.moved_from} at the last import"), err=True)
        if file.removes is not None:
            verb = "replaces" if self._writes else "would replace"
            click.echo(escape_terminal(f"{file.path} {verb} {file.removes}: the tool was renamed"))
        for conflict in file.conflicts:
            click.echo(escape_terminal(_conflict_text(file, conflict)), err=True)
        if file.problem:
            click.echo(
                escape_terminal(f"{file.path}: the changes of the source were not written: {file.problem}"),
                err=True,
            )
        if file.text is not None:
            for problem in self._problems.get(file.key, ()):
                click.echo(problem_text(problem._replace(source=str(file.path))), err=True)

    def _print_remarks(self, kind: str) -> None:
        told = [each for each in self._remarks if each.kind == kind]
        for each in told[:MOST_SHOWN]:
            place = f"`{each.key}`" if each.key else "the source"
            at = f" (at {each.pointer})" if each.pointer else ""
            click.echo(escape_terminal(f"{kind}: {place}: {each.message}{at}"), err=True)
        if len(told) > MOST_SHOWN:
            click.echo(f"{kind}: {len(told) - MOST_SHOWN} more; `--json` lists all of them", err=True)


def _remark(remark: ImportRemark) -> dict[str, JSON]:
    return {"key": remark.key, "pointer": remark.pointer, "message": remark.message}


def _conflict(conflict: MergeConflict) -> dict[str, JSON]:
    # A key that a side does not have is omitted: null is a value.
    sides = {side: getattr(conflict, side) for side in ("base", "ours", "theirs")}
    return {
        "pointer": conflict.pointer,
        **{side: value for side, value in sides.items() if value is not ABSENT},
    }


def _conflict_text(file: PlannedFile, conflict: MergeConflict) -> str:
    def shown(value: Any) -> str:
        return "removed" if value is ABSENT else _brief(compact(value))

    return (
        f"{file.path}: conflict at {conflict.pointer}: the file has {shown(conflict.ours)}, "
        f"the source has {shown(conflict.theirs)}; the file was not changed there"
    )


def _brief(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
