"""`toolcrib stats` and `toolcrib cancel`: inspect the runtimes that the user serves, and cancel their calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import json_option
from toolcrib.cli.output import json_text, plural, table, terminal_width
from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine.statistics import Statistics, Totals
from toolcrib.serve.inspection import Inspection, RuntimeUnreachable, inspections

runtime_argument = click.argument("name", metavar="[RUNTIME]", required=False)
"""`[RUNTIME]` as parameter `name`: process ID, name or folder of a served runtime; None for the only one."""

_GROUPS: Final = ("tool", "caller", "user", "outcome", "code")


@click.command("stats")
@runtime_argument
@click.option("--list", "listing", is_flag=True, help="List the served runtimes instead.")
@click.option("--all", "everything", is_flag=True, help="Add up all served runtimes.")
@click.option(
    "--by", type=click.Choice(_GROUPS), default="tool", show_default=True, help="One line for each of these."
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a table for spreadsheets.")
@click.option("--prometheus", "as_prometheus", is_flag=True, help="Print the text format of Prometheus.")
@click.option(
    "--reset", is_flag=True, help="Start the statistics anew once they are printed. No call is lost."
)
def command(
    *,
    name: str | None,
    listing: bool,
    everything: bool,
    by: str,
    as_json: bool,
    as_csv: bool,
    as_prometheus: bool,
    reset: bool,
) -> None:
    """Show the calls that a served runtime has made: counts, failures, durations.

    RUNTIME is the process ID, the name or the folder of a server that you started with `toolcrib serve`. It may be left out
    if there is only one, or only one of the project that contains this folder.
    """
    if as_json + as_csv + as_prometheus > 1:
        raise click.UsageError("use only one of `--json`, `--csv` and `--prometheus`")
    if name is not None and (everything or listing):
        raise click.UsageError(
            f"`{'--all' if everything else '--list'}` selects every runtime; remove RUNTIME"
        )
    if listing:
        if everything or as_csv or as_prometheus or reset:
            raise click.UsageError("`--list` takes `--json` alone")
        asyncio.run(_list(as_json=as_json))
        return
    found = asyncio.run(_statistics(name, everything=everything, reset=reset))
    if as_json:
        click.echo(json_text(found.as_json()))
    elif as_csv:
        click.echo(found.as_csv(), nl=False)
    elif as_prometheus:
        click.echo(found.as_prometheus(), nl=False)
    else:
        for line in statistics_lines(found, by):
            click.echo(line)


async def _statistics(name: str | None, *, everything: bool, reset: bool) -> Statistics:
    if not everything:
        async with selected(name) as inspection:
            return await inspection.statistics(reset=reset)
    async with served() as found:
        first, *others = await asyncio.gather(*(each.statistics(reset=reset) for each in found))
        return first.merge(*others)


def statistics_lines(statistics: Statistics, by: str = "tool", width: int | None = None) -> list[str]:
    """The table of statistics, and a line below it."""
    width = width or terminal_width()
    totals = statistics.totals
    rows: list[tuple[str, ...]]
    if by in {"outcome", "code"}:
        counts = totals.outcomes if by == "outcome" else totals.codes
        rows = [(by, "calls"), *((key, f"{count:,}") for key, count in counts.items())]
    else:
        groups: dict[str, Totals] = getattr(statistics, f"{by}s")
        rows = [(by, "calls", "failed", "cached", "p50", "p90", "p99")]
        for key, group in groups.items():
            counted = (f"{group.calls:,}", f"{failed_of(group):,}", f"{group.cached:,}")
            rows.append((key or f"(no {by})", *counted, *durations_of(group, 50, 90, 99)))
    end = [
        f"{plural(totals.calls, 'call')} since {statistics.since.astimezone():%Y-%m-%d %H:%M:%S}",
        *(f"{count:,} {outcome}" for outcome, count in totals.outcomes.items()),
        *([plural(statistics.violations, "violation") + " of access"] if statistics.violations else []),
    ]
    return [*(table(rows, width) if totals.calls else []), escape_terminal("; ".join(end))]


def failed_of(group: Totals) -> int:
    """Number of calls that did not end `ok`."""
    return group.calls - group.outcomes.get(Outcome.OK.value, 0)


def durations_of(group: Totals, *percents: float) -> list[str]:
    """Percentiles of durations, for people."""
    return [short_duration(group.durations.percentile(percent)) for percent in percents]


def short_duration(seconds: float | None) -> str:
    """A duration with three digits: `26.1µs`, `1.23ms`, `12.3s`, `3m 20s`; `-` for none."""
    if seconds is None:
        return "-"
    if seconds < 60:
        seconds = float(f"{seconds:.3g}")
    if 0 < seconds < 1e-3:
        return f"{seconds * 1e6:.3g}µs"
    if seconds >= 60:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"
    return format_duration(seconds)


async def _list(*, as_json: bool) -> None:
    async with served() as found:
        rows = await asyncio.gather(*map(_summary, found))
    if as_json:
        click.echo(json_text({"runtimes": rows}))
        return
    now = RealClock().now()
    cells = [("pid", "name", "transport", "running", "calls", "up", "folder")]
    for row, each in zip(rows, found, strict=True):
        about = each.served
        up = short_duration((now - about.started).total_seconds())
        calls = (f"{row['running']:,}", f"{row['calls']:,}")
        cells.append((str(about.pid), about.name, about.transport, *calls, up, about.folder))
    for line in table(cells, terminal_width()):
        click.echo(line)


async def _summary(inspection: Inspection) -> dict[str, Any]:
    running, statistics = await inspection.running(), await inspection.statistics()
    return {**inspection.served.as_json(), "running": len(running), "calls": statistics.calls}


@click.command("cancel")
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--runtime", "name", metavar="RUNTIME", help="The served runtime, as for `toolcrib stats`.")
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
@click.option("--session", metavar="NAME", help="Only calls of this session.")
@click.option("--caller", metavar="NAME", help="Only calls of this caller.")
@click.option("--correlation", metavar="ID", help="Only the call with this ID in another system.")
@click.option("--all", "everything", is_flag=True, help="Cancel all calls that the other options select.")
@click.pass_context
def cancel(
    ctx: click.Context, /, *, id_: str | None, name: str | None, everything: bool, **selection: str | None
) -> None:
    """Cancel running calls of a served runtime.

    Prints how many there were. ID is that of `toolcrib top`. A call must match everything that is given. It ends with the outcome `cancelled`, and what
    it occupies is released; a call that was sent may have acted.
    """
    given: dict[str, str | bool] = {key: text for key, text in selection.items() if text is not None}
    if id_ is not None:
        given["id"] = id_
    if not given and not everything:
        raise click.UsageError("say which calls: ID, --tool, --session, --caller, --correlation or --all")

    async def cancel_selected() -> int:
        async with selected(name) as inspection:
            return await inspection.cancel(**given, all=everything)

    count = asyncio.run(cancel_selected())
    click.echo(f"{plural(count, 'call')} cancelled" if count else "no running call matches")
    ctx.exit(exit_codes.OK if count else exit_codes.NOTHING_SELECTED)


@asynccontextmanager
async def served() -> AsyncIterator[list[Inspection]]:
    """All served runtimes, of which there is at least one. What cannot be inspected is reported on stderr.

    Raises:
        click.exceptions.Exit: There is none.
        click.ClickException: One of them ends within the block, or stops answering.
    """
    async with inspections() as (found, errors):
        for error in errors:
            click.echo(escape_terminal(str(error)), err=True)
        if not found:
            if not errors:
                click.echo(
                    "no runtime is served; start one with `toolcrib serve mcp`, as the same user and with the same state "
                    "folder",
                    err=True,
                )
            raise click.exceptions.Exit(exit_codes.PROBLEMS if errors else exit_codes.NOTHING_SELECTED)
        try:
            yield found
        except RuntimeUnreachable as error:
            raise click.ClickException(escape_terminal(str(error))) from error


@asynccontextmanager
async def selected(name: str | None) -> AsyncIterator[Inspection]:
    """The served runtime with a process ID, a name or a folder; without one, the only one here.

    Raises:
        click.UsageError: No served runtime matches, or several match.
    """
    async with served() as found:
        matching = [each for each in found if name is None or _is_named(each, name)]
        if name is None and len(matching) > 1:
            matching = [each for each in found if _is_here(each.served.folder)]
        if len(matching) != 1:
            raise click.UsageError(_ambiguity(name, matching or found, several=bool(matching)))
        yield matching[0]


def _is_here(folder: str) -> bool:
    """Whether a folder contains the working directory."""
    folder = os.path.realpath(folder)
    return os.path.commonpath([folder, os.path.realpath(".")]) == folder


def _is_named(inspection: Inspection, name: str) -> bool:
    about = inspection.served
    return name in {str(about.pid), about.name} or os.path.realpath(name) == os.path.realpath(about.folder)


def _ambiguity(name: str | None, found: list[Inspection], *, several: bool) -> str:
    known = ", ".join(str(each.served) for each in found)
    if name is None:
        return escape_terminal(f"several runtimes are served; name one of them: {known}")
    if several:
        return escape_terminal(f"several served runtimes are `{name}`; name one by its process ID: {known}")
    near = did_you_mean(name, [each.served.name for each in found])
    return escape_terminal(f"no served runtime is `{name}`; {near or f'there are: {known}'}")
