"""Recordings of ACP connections in the terminal: what `toolcrib doctor --acp` prints about one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.output import plural, problem_text, table
from toolcrib.core.clock import format_duration
from toolcrib.core.text import escape_terminal
from toolcrib.serve.acp.diagnosis import ConnectionDiagnosis, ConnectionFinding, SessionSummary, diagnose
from toolcrib.serve.acp.recordings import Recording

MOST = 50
"""Maximum number of findings that are printed; the rest is counted."""

_CAPABILITIES = ("client.fs.read_text_file", "client.fs.write_text_file", "client.terminal")


def examine(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Diagnose a recording.

    Returns:
        The document for `--json`, and the lines for people.

    Raises:
        ConfigurationError: The file cannot be read, or is not a recording.
    """
    recording = Recording(path)
    diagnosis = diagnose(recording)
    problems = recording.problems
    sound = not any(problem.severity == "error" for problem in problems)
    wrong = any(finding.severity == "error" for finding in diagnosis.findings)
    document = {
        "recording": {"file": str(path), **recording.header._asdict()},
        **diagnosis.as_json(),
        "problems": [problem._asdict() for problem in problems],
        "healthy": sound and not wrong,
    }
    lines = [click.style(escape_terminal(f"recording {path}"), bold=True)]
    lines += [f"  {line}" for line in table([*_rows(recording, diagnosis)])]
    for session in diagnosis.sessions:
        lines += ["", *_session(session)]
    for problem in problems:
        lines += ["", *problem_text(problem).splitlines()]
    return document, [*lines, "", *_verdict(diagnosis)]


def _rows(recording: Recording, diagnosis: ConnectionDiagnosis) -> Iterator[list[str]]:
    header, count = recording.header, diagnosis.messages
    yield ["recorded", f"by the {header.by or 'unknown side'}{f', {header.at}' if header.at else ''}"]
    yield ["client", diagnosis.client or "unknown"]
    yield ["agent", diagnosis.agent or (header.name if header.by == "client" else "") or "unknown"]
    sent = f"{count.get('client', 0)} of the client, {count.get('agent', 0)} of the agent"
    yield ["messages", f"{sent}, in {format_duration(diagnosis.seconds)}"]
    yield ["ended", diagnosis.ended or "not recorded: whoever recorded was killed, or is still running"]
    if diagnosis.capabilities is None:
        yield ["announced", "nothing: there is no `initialize`"]
        return
    without = [name for name in _CAPABILITIES if name not in diagnosis.capabilities]
    yield ["announced", ", ".join(diagnosis.capabilities) or "no capability of the client"]
    if without:
        yield ["not announced", ", ".join(without)]


def _session(session: SessionSummary) -> Iterator[str]:
    yield click.style(escape_terminal(f"session {session.id}"), bold=True)
    rows = [["folder", session.cwd]] if session.cwd else []
    rows.append(["turns", ", ".join(session.turns) or "none"])
    calls = ", ".join(f"{count} {status}" for status, count in session.calls.items())
    used = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in session.used.items())
    rows.append(["calls", f"{calls}: {used}" if calls else "none"])
    if session.servers:
        rows.append(["MCP servers", f"{', '.join(session.servers)} (offered by the client)"])
    if session.tools is None:
        rows.append(["tools", "the agent does not tell"])
    else:
        rows.append(["tools", ", ".join(session.tools) or "none"])
    rows += [["replaced", f"{name} by {by}"] for name, by in session.replaced.items()]
    rows += [["missing", f"{name}: {why}"] for name, why in session.missing.items()]
    yield from (f"  {line}" for line in table(rows))


def _verdict(diagnosis: ConnectionDiagnosis) -> Iterator[str]:
    errors = [each for each in diagnosis.findings if each.severity == "error"]
    warnings = [each for each in diagnosis.findings if each.severity == "warning"]
    if errors:
        yield click.style(f"{plural(len(errors), 'problem')} found:", fg="red", bold=True)
        yield from _items(errors)
    else:
        yield click.style("No problems found.", fg="green")
    if warnings:
        yield click.style("Warnings:", fg="yellow")
        yield from _items(warnings)
    if diagnosis.omitted:
        yield f"{plural(diagnosis.omitted, 'further finding')} of the same connection: see `--json`"


def _items(findings: list[ConnectionFinding]) -> Iterator[str]:
    for finding in findings[:MOST]:
        place = f" ({finding.sender}, line {finding.line})" if finding.line else ""
        yield escape_terminal(f"  - {finding.message}{place}")
        if finding.hint:
            yield escape_terminal(f"    {finding.hint}")
    if len(findings) > MOST:
        yield f"  ... and {len(findings) - MOST} more; see `--json`"
