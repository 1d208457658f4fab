"""`toolcrib journal`: list, show, export and resolve the calls that left the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from toolcrib.cli.options import F, ReadOptions, json_option, open_runtime, read_options
from toolcrib.cli.output import json_text, outline, plural, table, terminal_width, write_file
from toolcrib.core.clock import RealClock, format_duration, parse_duration
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON
from toolcrib.core.text import compact, decode_json, escape_terminal
from toolcrib.engine.call_journal import Journal
from toolcrib.security.journal import JournalEntry
from toolcrib.security.trust_decisions import current_user

_STATES: Final = ("waiting", "running", "ended", "unknown", "resolved")


@click.group("journal")
def command() -> None:
    """List, show, export and resolve the calls that left the process.

    A call of a tool that may change something is recorded before it acts. If its process dies before the call ends, or
    the call is cut off, nobody knows whether it acted: its state is `unknown`. Such a call is never repeated
    automatically; find out what happened, and `resolve` it.
    """


def _filters(command: F) -> F:
    """The options that select calls."""
    for option in (
        click.option(
            "--since",
            metavar="DURATION",
            help="Only calls that began within this time, such as `2h` or `30d`.",
        ),
        click.option("--tool", metavar="NAME", help="Only calls of this tool."),
        click.option("--state", type=click.Choice(_STATES), help="Only calls in this state."),
    ):
        command = option(command)
    return command


@command.command("list")
@_filters
@click.option(
    "-n",
    "--most",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="NUMBER",
    help="At most so many.",
)
@json_option
@read_options
def list_(
    *, state: str | None, tool: str | None, since: str | None, most: int, as_json: bool, reading: ReadOptions
) -> None:
    """List the newest calls, the newest first."""
    with _opened(reading) as journal:
        found = journal.entries(state=state or "", tool=tool or "", since=_time(since), most=most)
    if as_json:
        click.echo(json_text({"calls": [_document(entry) for entry in found]}))
        return
    if not found:
        click.echo("no calls are recorded")
        return
    rows = [("id", "tool", "state", "outcome", "began", "arguments"), *map(_row, found)]
    for line in table(rows, terminal_width()):
        click.echo(escape_terminal(line))
    unknown = sum(entry.state == "unknown" for entry in found)
    if unknown:
        click.echo(
            f"{plural(unknown, 'call')} may have acted; resolve with `toolcrib journal resolve ID`", err=True
        )


@command.command("show")
@click.argument("id_", metavar="ID", type=int)
@json_option
@read_options
def show(*, id_: int, as_json: bool, reading: ReadOptions) -> None:
    """Show a call, with `***` in place of secrets."""
    with _opened(reading) as journal:
        document = _document(journal.get(id_))
    if as_json:
        click.echo(json_text(document))
        return
    for line in outline({key: value for key, value in document.items() if value not in ("", None)}):
        click.echo(escape_terminal(line))


@command.command("export")
@_filters
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead of the output.",
)
@read_options
def export(
    *, state: str | None, tool: str | None, since: str | None, output: Path | None, reading: ReadOptions
) -> None:
    """Write all calls as JSON Lines, the newest first, with `***` in place of secrets."""
    with _opened(reading) as journal:
        lines = (
            compact(_document(entry))
            for entry in journal.all_entries(state=state or "", tool=tool or "", since=_time(since))
        )
        if output is None:
            for line in lines:
                click.echo(line)
            return
        written = [*lines]
    write_file("".join(f"{line}\n" for line in written).encode(), output)
    click.echo(f"wrote {plural(len(written), 'call')} to {escape_terminal(str(output))}", err=True)


@command.command("resolve")
@click.argument("id_", metavar="ID", type=int)
@click.option("--acted/--not-acted", default=None, help="Whether the call acted.")
@click.option(
    "--result",
    metavar="JSON",
    help="With --acted: the value that a repeated call with its idempotency key gets.",
)
@click.option("--note", default="", metavar="TEXT", help="A remark, kept with the call.")
@json_option
@read_options
def resolve(
    *, id_: int, acted: bool | None, result: str | None, note: str, as_json: bool, reading: ReadOptions
) -> None:
    """Close a call in state `unknown`, once you know whether it acted.

    After --not-acted, its idempotency key is free, and a repeated call is made.
    """
    if acted is None:
        raise click.UsageError("say whether the call acted: --acted or --not-acted")
    if result is not None and not acted:
        raise click.UsageError("--result needs --acted")
    value: JSON = None
    if result is not None:
        try:
            value = decode_json(result)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"--result is not valid JSON: {error}") from error
    with _opened(reading) as journal:
        entry = journal.resolve(id_, acted=acted, result=value, by=current_user(), note=note)
    if as_json:
        click.echo(json_text(_document(entry)))
    else:
        click.echo(
            f"resolved {entry.id} {escape_terminal(entry.tool)}: it {'acted' if acted else 'did not act'}"
        )


@contextmanager
def _opened(reading: ReadOptions) -> Iterator[Journal]:
    runtime = open_runtime(reading)
    try:
        if runtime.journal is None:
            raise ConfigurationError(
                "calls are not recorded here",
                hint="a journal belongs to a project: create `toolcrib.yaml`, and remove `journal: off`",
            )
        yield runtime.journal
    finally:
        runtime.close()


def _time(written: str | None) -> float:
    """The time that lies a duration in the past, in seconds since 1970."""
    if written is None:
        return 0.0
    try:
        return RealClock().now().timestamp() - parse_duration(written)
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from error


def _document(entry: JournalEntry) -> dict[str, Any]:
    return {
        **entry._asdict(),
        "started": _iso(entry.started),
        "ended": None if entry.ended is None else _iso(entry.ended),
        "resolution": None
        if entry.resolution is None
        else {**entry.resolution, "at": _iso(float(str(entry.resolution["at"])))},
    }


def _row(entry: JournalEntry) -> tuple[str, ...]:
    age = max(0.0, RealClock().now().timestamp() - entry.started)
    ago = f"{format_duration(float(round(age)))} ago"
    return str(entry.id), entry.tool, entry.state, entry.outcome or "", ago, compact(entry.arguments)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
