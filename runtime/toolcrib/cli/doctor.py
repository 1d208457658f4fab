"""`toolcrib doctor`: show what is installed and active, where each value comes from, and what is wrong."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.doctor_checks import Checkup, Finding, server_line
from toolcrib.cli.options import ReadOptions, all_tool_names, json_option, read_options, told_while_waiting
from toolcrib.cli.output import columns_of, json_text, plural, problem_text, table
from toolcrib.cli.provenance import explain_tool, explanation_lines
from toolcrib.core.clock import format_duration
from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import Outcome
from toolcrib.core.text import escape_terminal
from toolcrib.engine.access_control import Principal
from toolcrib.security.trust import Untrusted

MOST = 5
"""Maximum number of lines of one kind; the rest is counted."""


@click.command("doctor")
@click.argument("name", required=False, shell_complete=all_tool_names)
@click.option(
    "--as", "caller", metavar="CALLER", help="With NAME: what access decides about calls of this caller."
)
@click.option("--user", metavar="USER", help="With NAME: what access decides about calls for this user.")
@click.option(
    "--acp",
    "recording",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Instead of the project: what happened on an ACP connection, from its recording, and why calls hang.",
)
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    name: str | None,
    caller: str | None,
    user: str | None,
    recording: Path | None,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Show what is installed and active, where each value comes from, and what is wrong.

    With NAME: where each value of this tool comes from, who may call it, or why the tool is unknown. Exits with 1 if
    something is wrong.
    """
    if recording is not None:
        if (name, caller, user) != (None, None, None):
            raise click.UsageError("`--acp` cannot be combined with NAME, `--as` and `--user`")
        from toolcrib.cli.acp_diagnosis import examine  # noqa: PLC0415 -- the tool loop, which nothing else here needs

        told, page = examine(recording)
        for line in [json_text(told)] if as_json else page:
            click.echo(line)
        ctx.exit(exit_codes.OK if told["healthy"] else exit_codes.PROBLEMS)
    if name is None and (caller, user) != (None, None):
        raise click.UsageError("`--as` and `--user` need the name of a tool")
    with _without_log(), told_while_waiting("checking the project, its tools and its servers"):
        checkup = Checkup(reading)
    if name is None:
        document, lines = checkup.as_json(), _page
    else:
        document = explain_tool(name, checkup, Principal(caller or "", user or ""))
        lines = explanation_lines
    if as_json:
        click.echo(json_text(document))
    else:
        for line in lines(document):
            click.echo(line)
    errors = {finding["code"] for finding in document.get("findings", ()) if finding["severity"] == "error"}
    # Only trust is missing. This exits like a denied call, so that scripts can tell it from a broken project.
    if errors == {Untrusted.code}:
        ctx.exit(exit_codes.OF_OUTCOME[Outcome.DENIED])
    ctx.exit(exit_codes.OK if document["healthy"] else exit_codes.PROBLEMS)


@contextmanager
def _without_log() -> Iterator[None]:
    """Silence the log of toolcrib."""
    # Opening a runtime logs broken modes. Here they are findings, and would appear twice.
    log = logging.getLogger("toolcrib")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


Row = tuple[str, str]
"""A label and one line of text; a repeated label is printed once."""


def _page(told: dict[str, Any]) -> Iterator[str]:
    installed = told["toolcrib"]
    yield click.style(f"toolcrib {installed['version']}", bold=True) + _on(installed)
    yield from _rows(_installed(told))
    yield ""
    yield click.style(_headline(told["project"]), bold=True)
    yield from _rows(_in_force(told))
    yield ""
    yield click.style(_count_line(told["tools"], told["scenarios"]), bold=True)
    yield from _rows(_of_tools(told["tools"]))
    yield from _problems([Problem(**problem) for problem in told["problems"]])
    yield ""
    yield from _verdict([Finding(**finding) for finding in told["findings"]])


def _on(installed: dict[str, Any]) -> str:
    return escape_terminal(f" on Python {installed['python']}, {installed['platform']}")


def _rows(rows: Iterable[Row]) -> Iterator[str]:
    """Align rows as `  label    text`; a repeated label is printed once."""
    rows = list(rows)
    width = max((columns_of(lead) for lead, _text in rows), default=0)
    before = None
    for lead, text in rows:
        shown = "" if lead == before else lead
        yield escape_terminal(f"  {shown}{' ' * (width - columns_of(shown))}  {text}").rstrip()
        before = lead


def _installed(told: dict[str, Any]) -> Iterator[Row]:
    installed = told["toolcrib"]
    yield "installed at", installed["folder"]
    packages = installed["packages"].items()
    yield (
        "packages",
        ", ".join(f"{name} {version or '(not installed)'}" for name, version in packages) or "unknown",
    )
    for extra, needed in installed["extras"].items():
        missing = [name for name, version in needed.items() if version is None]
        there = ", ".join(f"{name} {version}" for name, version in needed.items() if version is not None)
        yield (
            "extras",
            f"{extra}: not installed, `pip install 'toolcrib[{extra}]'`" if missing else f"{extra}: {there}",
        )
    for key in ("modes", "middleware"):
        for name, offer in told[key].items():
            fault = f": {offer['fault']}" if offer["fault"] else ""
            yield key, f"{name}, from {offer['distribution']}{fault}"
        if not told[key]:
            yield key, "none"
    for name, variable in told["environment"].items():
        yield "environment", f"{name}={variable['value']} {variable['effect']}"


def _headline(project: dict[str, Any]) -> str:
    if project["file"] is None:
        return "no project"
    return escape_terminal(f"project {project.get('name') or '(unnamed)'} ({project['file']})")


def _in_force(told: dict[str, Any]) -> Iterator[Row]:
    project, profile = told["project"], told["profile"]
    if project["file"] is None:
        yield "looked in", _listed(project["looked_in"]) or "nothing: the working directory was deleted"
    else:
        yield "profile", _profile_line(profile, project)
        yield from _settings(profile)
        if not profile["toolset"] and project["toolsets"]:
            yield "toolset", f"none active; defined: {', '.join(project['toolsets'])}"
    for line in table([_source_row(source) for source in told["sources"]]) or ["none"]:
        yield "sources", line
    if told["ignored"]:
        yield "ignored", f"{plural(len(told['ignored']), 'file')}: {_listed(told['ignored'])}"
    for key in dict.fromkeys(tool["by"] for tool in told["excluded"]):
        tools = [tool for tool in told["excluded"] if tool["by"] == key]
        files = list(dict.fromkeys(tool["file"] for tool in tools))
        counted = f"{plural(len(files), 'file')} with {plural(len(tools), 'tool')}"
        yield "excluded", f"{counted}, by {key}: {_listed(files)}"
    for pack in told["packs"]:
        yield "packs", f"{pack['name']} {pack['version']}  ({pack['source']})"
    for pack in told["installed_packs"]:
        fault = f": {pack['fault']}" if pack["fault"] else ""
        yield "installed", f"pack {pack['name']}, from {pack['distribution']}{fault}"
    for line in table([server_line(row) for row in told["servers"]]):
        yield "servers", line
    needing = [each for each in told["trust"]["workspaces"] if each["needs"] or each["undeclared"]]
    for line in table([_trust_row(workspace) for workspace in needing]):
        yield "trust", line
    index = told["index"]
    yield "index", f"{index['state']}  ({index['file']})" if index["file"] else index["state"]


def _settings(profile: dict[str, Any]) -> Iterator[Row]:
    """The settings of the project and its profile, each with its source."""
    for entry in profile["modes"]:
        yield "modes", f"{entry['key']} -> {entry['value']}  ({entry['place']})"
    for entry in profile["defaults"]:
        value = entry["value"] if isinstance(entry["value"], str) else format_duration(entry["value"])
        yield "defaults", f"{entry['key']}: {value}  ({entry['place']})"
    access = profile["access"]
    if access["rules"] or access["lists"] or access["default"] != "allow":
        parts = [plural(access["rules"], "rule"), *access["lists"], *(["audit"] if access["audit"] else [])]
        yield "access", f"default {access['default']}; {', '.join(parts)}"
    if profile["egress"]:
        yield "egress", f"allows {', '.join(profile['egress'])}"
    for entry in profile["origins"]:
        yield "origins", f"{entry['key']} -> {entry['value']}  ({entry['place']})"
    for switch in profile["switches"]:
        lead = "enabled" if switch["enabled"] else "hidden" if switch["flag"] else "disabled"
        what = f"{switch['flag']} tools" if switch["flag"] else ", ".join(switch["globs"])
        yield lead, f"{what}  ({switch['place']})"
    if profile["toolset"]:
        yield "toolset", f"{profile['toolset']}  ({profile['toolset_place']})"


def _profile_line(profile: dict[str, Any], project: dict[str, Any]) -> str:
    if profile["name"] is not None:
        base = f", extends {', '.join(profile['extends'])}" if profile["extends"] else ""
        return f"{profile['name']}, chosen by {profile['chosen_by']}{base}"
    if project["broken"]:
        return "none, because the project file has errors"
    return (
        f"none active; defined: {', '.join(project['profiles'])}" if project["profiles"] else "none defined"
    )


def _source_row(source: dict[str, Any]) -> list[str]:
    if source["kind"] == "missing":
        return [source["path"], "not found", "", "", source.get("place") or ""]
    problems = plural(source["problems"], "problem") if source["problems"] else ""
    counts = [(source.get(key, 0), key[:-1]) for key in ("tools", "overrides", "scenarios")]
    holds = ", ".join(plural(count, noun) for count, noun in counts if count) or "no tools"
    namespace = f"as {source['namespace']}__..." if source.get("namespace") else ""
    return [source["path"], source["kind"], holds, namespace, problems]


def _trust_row(workspace: dict[str, Any]) -> list[str]:
    needs, decision = workspace["summary"], workspace["decision"]
    if not workspace["trusted"]:
        state = "no longer trusted" if decision is not None else "not trusted"
        return [workspace["workspace"], workspace["kind"], needs, state]
    how = f"trusted {decision['when']} by {decision['who']}, {decision['how']}" if decision else "trusted"
    return [workspace["workspace"], workspace["kind"], needs, how]


def _count_line(tools: dict[str, Any], scenarios: int) -> str:
    counts = [plural(tools["total"], "tool")]
    counts += [plural(scenarios, "scenario")] if scenarios else []
    return ", ".join(counts)


def _of_tools(tools: dict[str, Any]) -> Iterator[Row]:
    for mode, count in tools["modes"].items():
        yield f"in mode {mode}", str(count)
    for lead in ("unavailable", "hidden", "stale"):
        told = [why if lead != "stale" else f"`{name}`: {why}" for name, why in tools[lead].items()]
        # One cause, such as a server that is down, usually affects many tools.
        reasons = list(dict.fromkeys(told))
        for reason in reasons[:MOST]:
            yield _LEADS[lead], reason
        if len(reasons) > MOST:
            yield _LEADS[lead], f"... and {len(reasons) - MOST} more"


_LEADS = {"unavailable": "unavailable", "hidden": "not offered", "stale": "stale"}


def _listed(paths: Sequence[str]) -> str:
    more = f", ... and {len(paths) - MOST} more" if len(paths) > MOST else ""
    return ", ".join(paths[:MOST]) + more


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    if not problems:
        return
    counts = Counter(problem.severity for problem in problems)
    kinds: tuple[Severity, ...] = ("error", "warning", "notice")
    yield ""
    yield click.style(", ".join(plural(counts[kind], kind) for kind in kinds if counts[kind]), bold=True)
    # Errors first, so that notices do not push them out of a short list.
    first = sorted(problems, key=lambda problem: kinds.index(problem.severity))[:MOST]
    for problem in first:
        yield from (f"  {line}" for line in problem_text(problem).splitlines())
    if len(problems) > MOST:
        yield f"  ... and {len(problems) - MOST} more; run `toolcrib validate`"


def _verdict(findings: Sequence[Finding]) -> Iterator[str]:
    """The errors, or that there are none; then the warnings."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        yield click.style(f"{plural(len(errors), 'problem')} found:", fg="red", bold=True)
        yield from _items(errors)
    else:
        yield click.style("No problems found.", fg="green")
    warnings = [finding for finding in findings if finding.severity == "warning"]
    if warnings:
        yield click.style("Warnings:", fg="yellow")
        yield from _items(warnings)


def _items(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield escape_terminal(f"  - {finding.message}")
        if finding.hint:
            yield escape_terminal(f"    {finding.hint}")
