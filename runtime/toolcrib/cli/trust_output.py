"""What somebody is asked to agree to, as text; and the question, at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from toolcrib.cli.tables import columns_of, plural
from toolcrib.core.text import escape_terminal, in_one_line
from toolcrib.security.hidden_characters import visible
from toolcrib.security.trust import Consent, TrustRequest, Untrusted

if TYPE_CHECKING:
    from toolcrib.security.trust_needs import Need

_VERBS = {
    "start": "start",
    "contact": "contact",
    "read": "read",
    "import": "import",
    "mode": "call",
    "content": "use",
}
_LEAD = max(map(len, _VERBS.values()))

USERS = 3
"""Who asks for something: so many are named, the rest is counted."""


def _shown(text: str) -> str:
    """A text that somebody else wrote: all of it, in one line, and nothing in it looks like a line of ours."""
    return visible(in_one_line(text))


def request_lines(request: TrustRequest, *, difference: bool = True) -> Iterator[str]:
    """All that would be agreed to; beside what was agreed to before, what is new and what is gone."""
    workspace = request.workspace
    yield f"{click.style(_shown(workspace.root), bold=True)} ({workspace.kind})"
    if not request.needs and not request.undeclared:
        yield "  starts, contacts and reads nothing: it answers from its mocks"
    if request.before is None or not difference:
        for each in request.needs:
            yield from _lines(each, " ")
    else:
        yield from _difference(request)
    for each in request.undeclared:
        yield from _lines(each, "!")
    if request.undeclared:
        yield "  ! is not declared under `requires` in its pack.yaml, and stays refused"
    if request.needs:
        yield f"  hash     {request.hash}"


_COLOURS = {"+": "green", "-": "red", "~": "yellow", "!": "yellow"}


def _difference(request: TrustRequest) -> Iterator[str]:
    """What is needed now beside what was agreed to: `+` is new, `-` is gone, `~` has changed."""
    added = {each.digest for each in request.added}
    removed = {each.subject: each for each in request.removed}
    for each in request.needs:
        before = removed.pop(each.subject, None) if each.digest in added else None
        if before is None:
            yield from _lines(each, "+" if each.digest in added else " ")
        else:
            yield _line(each, "~")
            kept = {*before.details} & {*each.details}
            yield from _details([text for text in before.details if text not in kept], "-")
            yield from _details([text for text in each.details if text not in kept], "+")
            if before.details == each.details:
                yield from _details(["a secret in it is another one"], "~")
    for each in removed.values():
        yield from _lines(each, "-")


def _lines(each: Need, sign: str) -> Iterator[str]:
    yield _line(each, sign)
    yield from _details(each.details, sign)


def _details(details: Iterable[str], sign: str) -> Iterator[str]:
    for detail in details:
        yield _coloured(f"{sign} {' ' * _LEAD}    {_shown(detail)}", sign)


def _coloured(line: str, sign: str) -> str:
    return click.style(line, fg=_COLOURS[sign]) if sign in _COLOURS else line


def _line(each: Need, sign: str) -> str:
    verb = _VERBS[each.kind]
    to = f" for {each.to}" if each.kind == "read" and each.to else f" {each.to}" if each.to else ""
    what = _shown(f"{each.what}{to}")
    asked = _asked_by(each)
    gap = " " * max(2, 44 - columns_of(what))
    return _coloured(f"{sign} {verb}{' ' * (_LEAD - len(verb))}  {what}{gap}{asked}".rstrip(), sign)


def _asked_by(each: Need) -> str:
    if not each.users:
        return _shown(each.place)
    named = ", ".join(map(_shown, each.users[:USERS]))
    more = f" and {len(each.users) - USERS} more" if len(each.users) > USERS else ""
    place = f" ({_shown(each.place)})" if each.place and len(each.users) == 1 else ""
    return f"{named}{more}{place}" if each.kind != "content" else ""


def ask_at_terminal(request: TrustRequest) -> Consent:
    """Show everything, and ask. Only for a process with a terminal: see `can_ask`."""
    changed = request.before is not None
    lead = "What this project needs has changed" if changed else "This project is not trusted yet"
    click.echo(f"{lead}. If you trust it, it may:", err=True)
    for line in request_lines(request):
        click.echo(line, err=True)
    click.echo("Until then it answers from its mocks, and nothing else happens.", err=True)
    said = click.prompt(
        "Trust it? [y]es, [o]nce, [n]o",
        default="n",
        show_default=False,
        type=click.Choice(["y", "o", "n", "yes", "once", "no"], case_sensitive=False),
        show_choices=False,
        err=True,
    )
    if said[0] == "n":
        return "no"
    if said[0] == "o":
        return "once"
    keep(request, "prompt")
    return "always"


def can_ask() -> bool:
    """Whether there is somebody at a terminal."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def keep(request: TrustRequest, how: str) -> None:
    """Store a decision.

    Raises:
        click.ClickException: It can't be stored, or would not be believed.
    """
    from toolcrib.core.clock import RealClock  # noqa: PLC0415 -- few commands decide
    from toolcrib.security.trust_decisions import Decision, default_store  # noqa: PLC0415 -- as above

    workspace, store = request.workspace, default_store()
    if store.folder and workspace.holds(os.path.realpath(store.folder)):
        message = (
            f"the decision can't be kept: the folder of decisions, {store.folder}, lies in {workspace.root} itself, so "
            "whoever writes that could agree to it"
        )
        hint = (
            f"set TOOLCRIB_STATE_DIR to a folder outside of it, or TOOLCRIB_TRUST={request.hash} for one run"
        )
        raise click.ClickException(escape_terminal(f"{message}; {hint}"))
    decision = Decision.of(workspace.root, workspace.kind, request.needs, when=RealClock().now(), how=how)
    try:
        store.add(decision)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"the decision can't be kept: {error}")) from error


def tell_untrusted(refused: Sequence[TrustRequest], problems: Sequence[str]) -> None:
    """One message on stderr for each workspace of which something would have happened that nobody agreed to."""
    for problem in problems:
        click.echo(f"{click.style('warning', fg='yellow')}: {escape_terminal(problem)}", err=True)
    for request in refused:
        lead, root = click.style("denied", fg="red", bold=True), _shown(request.workspace.root)
        if request.undeclared and not request.needs:
            said = f"{root} needs what its pack.yaml does not declare"
        elif request.before is not None:
            said = f"what {root} needs has changed since it was trusted"
        else:
            said = f"{root} is not trusted"
        click.echo(f"{lead} ({Untrusted.code}): {said}, so only its mocks answer; it would", err=True)
        for line in request_lines(request):
            click.echo(f"  {line}", err=True)
        click.echo(f"    hint: {hint_for(request)}", err=True)


def hint_for(request: TrustRequest) -> str:
    """How a workspace is trusted."""
    return request.hint if request.needs else "declare it under `requires` in pack.yaml"


def summary_of(needs: Sequence[Need]) -> str:
    """How many needs there are of which kind: `2 programs, 1 host`."""
    nouns = {
        "start": "program",
        "contact": "host",
        "read": "secret",
        "import": "import",
        "mode": "mode",
        "content": "pack",
    }
    counts = {kind: sum(each.kind == kind for each in needs) for kind in nouns}
    told = [plural(count, nouns[kind]) for kind, count in counts.items() if count and kind != "content"]
    return ", ".join(told) or "nothing but mocks"
