"""How `toolcrib lock` shows what it found of servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from toolcrib.cli.value_output import plural
from toolcrib.core.errors import ToolcribError
from toolcrib.core.pointers import keys_of, pointer_to
from toolcrib.core.text import escape_terminal
from toolcrib.security.hidden_characters import HiddenCharacter, spelt, visible
from toolcrib.servers.lock import Lock, LockedServer
from toolcrib.servers.lock_diff import (
    ABSENT,
    DiffLine,
    Kind,
    LockDifference,
    ServerReview,
    ToolChange,
    lines_of,
)

_COLOURS: Mapping[Kind, str] = {"breaking": "red", "compatible": "green", "prompt-affecting": "yellow"}
_SIGNS = {"-": "red", "+": "green", "~": "yellow"}
_SHOWN = 5
"""Hidden characters that are told one by one of a tool."""


def heading(found: ServerReview, failure: ToolcribError | None) -> Iterator[str]:
    """The line of a server: `time: 2 tools, unchanged`."""
    name = click.style(visible(found.name), bold=True)
    if found.now is None and failure is None:
        yield f"{name}: not started, because it is reached otherwise than is locked"
    elif found.now is None:
        yield f"{name}: {'nothing is locked' if found.is_new else 'stays as it is locked'}"
    else:
        state = "new" if found.is_new else "changed" if found.differs else "unchanged"
        yield f"{name}: {plural(len(found.now.tools), 'tool')}, {state}{_version(found.before, found.now)}"
        if found.is_new:
            yield f"  {_reached(found.now)}"


def _version(before: LockedServer | None, now: LockedServer) -> str:
    """What the server says of its version, and what it said when it was locked."""
    is_now = visible(now.info.get("version", ""))
    was = visible(before.info.get("version", "")) if before is not None else is_now
    if not is_now:
        return ""
    return f" (version {is_now})" if was == is_now else f" (version {was or 'unknown'} -> {is_now})"


def _reached(server: LockedServer) -> str:
    endpoint = server.endpoint
    args = endpoint.get("args")
    words = [endpoint.get("command") or endpoint.get("url"), *(args if isinstance(args, list) else ())]
    return visible(" ".join(str(word) for word in words))


def lines_of_review(found: ServerReview) -> Iterator[str]:
    """What changed of a server, indented below its line."""
    yield from (f"  {_line(line)}" for line in lines_of(found.endpoint))
    if found.is_new:
        return
    for name in found.added:
        yield f"  {click.style('+', fg='green')} {visible(name)}: new"
    for name in found.removed:
        yield f"  {click.style('-', fg='red')} {visible(name)}: no longer offered"
    for name, change in found.changed.items():
        yield f"  {visible(name)}: {_verdicts(change)}"
        yield from (f"    {_line(line)}" for line in lines_of(change.differences))
        for breach in change.breaches:
            yield f"    {click.style('breaking', fg='red')}: {visible(str(breach))}"


def _verdicts(change: ToolChange) -> str:
    return ", ".join(click.style(kind, fg=_COLOURS[kind], bold=True) for kind in change.verdicts)


def _line(line: DiffLine) -> str:
    colour = _SIGNS.get(line.sign)
    text = f"{line.sign} {line.text}"
    return text if colour is None else click.style(text, fg=colour)


def warnings_of(found: ServerReview) -> Iterator[str]:
    """What somebody should look at before trusting the server."""
    lead = click.style("warning", fg="yellow")
    server = visible(found.name)
    for tool, characters in found.hidden.items():
        whose = f"the tool `{visible(tool)}` of `{server}`" if tool else f"what `{server}` says of itself"
        many = plural(len(characters), "hidden character")
        yield f"{lead}: {whose} has {many}, which a model reads and nobody sees"
        yield from (f"    {_place(each)}: {each}: {each.why}" for each in characters[:_SHOWN])
        if len(characters) > _SHOWN:
            yield f"    ... and {len(characters) - _SHOWN} more"
        secret = spelt("".join(chr(each.code) for each in characters))
        if secret:
            yield f"    the tags spell: {visible(secret[:200])}"
    for tool in found.odd:
        yield f"{lead}: the name of the tool `{visible(tool)}` of `{server}` has characters other than A-Z a-z 0-9 _ . / -"
    for tool, why in found.unlockable.items():
        yield f"{lead}: the tool `{visible(tool)}` of `{server}` can't be locked: {visible(why)}"


def _place(each: HiddenCharacter) -> str:
    part, *rest = keys_of(each.where) or [""]
    place = visible(f"{part} {pointer_to(rest)}" if rest else part)
    return f"the key {place}" if each.in_key else place


def summary(lock: Lock, reviews: Sequence[ServerReview], *, written: bool, check: bool, waits: bool) -> str:
    """The last line: what was written, and what is to be done."""
    place = escape_terminal(lock.source)
    if written:
        return f"wrote {place}"
    if waits:
        names = " ".join(escape_terminal(each.name) for each in reviews if each.differs)
        accepts = f"`toolcrib lock --update{f' {names}' if names else ''}`"
        return f"{place} is not what the servers offer; nothing was written; {accepts} accepts it"
    if check and any(each.is_new and each.now is not None for each in reviews):
        return f"{place} does not hold every server; nothing was written; `toolcrib lock` adds them"
    return f"{place} is as it was" if lock.there else "nothing was written"


def json_of(
    source: str,
    reviews: Sequence[ServerReview],
    failures: Mapping[str, ToolcribError],
    forgotten: Sequence[str],
    *,
    written: bool,
) -> dict[str, Any]:
    """All of it as one JSON document."""
    return {
        "lock": source,
        "written": written,
        "servers": {each.name: _json_of_server(each, failures.get(each.name)) for each in reviews},
        "forgotten": [*forgotten],
    }


def _json_of_server(found: ServerReview, failure: ToolcribError | None) -> dict[str, Any]:
    now = found.now
    state = "new" if found.is_new else "changed" if found.differs else "unchanged"
    return {
        "state": "not_asked" if failure is not None else state,
        "error": None if failure is None else {"code": failure.code, "message": failure.message},
        "version": None if now is None else now.info.get("version"),
        "tools": None if now is None else {name: tool.hash for name, tool in now.tools.items()},
        "endpoint": [_json_of_difference(each) for each in found.endpoint],
        "added": [*found.added] if found.before is not None else [],
        "removed": [*found.removed],
        "changed": {name: _json_of_change(change) for name, change in found.changed.items()},
        "hidden": {name: [each._asdict() for each in hidden] for name, hidden in found.hidden.items()},
        "unlockable": dict(found.unlockable),
    }


def _json_of_change(change: ToolChange) -> dict[str, Any]:
    return {
        "verdicts": [*change.verdicts],
        "differences": [_json_of_difference(each) for each in change.differences],
        "breaches": [each._asdict() for each in change.breaches],
    }


def _json_of_difference(each: LockDifference) -> dict[str, Any]:
    values = {"before": each.before, "after": each.after}
    return {
        "pointer": pointer_to(each.path),
        **{key: item for key, item in values.items() if item is not ABSENT},
    }
