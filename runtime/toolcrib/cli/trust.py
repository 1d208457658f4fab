"""`toolcrib trust`: show and store what a project or a pack may start, contact and read; and the prompt for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import ReadOptions, json_option, open_offline, print_refusals, read_options
from toolcrib.cli.output import columns_of, json_text, plural, table
from toolcrib.core.text import escape_terminal, in_one_line
from toolcrib.core.user_folders import working_folder
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.security.hidden_characters import spell_out_hidden
from toolcrib.security.pack_signatures import PUBLISHER, key_of, publisher_root
from toolcrib.security.trust import VARIABLE, Consent, TrustPolicy, TrustRequest, Untrusted, hashes_in
from toolcrib.security.trust_decisions import Decision, DecisionStore, default_store

if TYPE_CHECKING:
    from toolcrib.security.trust_needs import Need

_USAGE = "[PATH] [--dry-run] [--yes] [--json]"


class TrustGroup(click.Group):
    """A group with a default command: `toolcrib trust PATH` means `toolcrib trust grant PATH`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass words that do not start with a command name to `grant`."""
        if not args or (args[0] not in self.commands and args[0] not in {"-h", "--help"}):
            args = ["grant", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the usage of all three commands."""
        formatter.write_usage(ctx.command_path, _USAGE)
        formatter.write_usage(ctx.command_path, "list [--json]")
        formatter.write_usage(ctx.command_path, "revoke [PATH | --all]")


@click.group("trust", cls=TrustGroup)
def command() -> None:
    """Trust a project or a pack: let it start programs, contact hosts and read secrets.

    Without PATH: the project that contains this folder. Everything that would be trusted is shown first: the exact
    commands, the names of variables and files, the hosts. Later changes are asked for again. Decisions are stored in a
    folder of yours (TOOLCRIB_STATE_DIR), never in a repository.
    """


class _Unnamed(click.Context):
    """Context of the hidden command `grant`, in whose help and errors the name of the group appears."""

    @property
    def command_path(self) -> str:
        """Name of the group."""
        return self.parent.command_path if self.parent is not None else super().command_path


class GrantCommand(click.Command):
    """The default command of `toolcrib trust`."""

    context_class = _Unnamed

    def collect_usage_pieces(self, _ctx: click.Context) -> list[str]:
        """The usage line."""
        return [_USAGE]


@command.command("grant", cls=GrantCommand, hidden=True)
@click.argument("path", required=False, type=click.Path(exists=True))
@click.option("--dry-run", is_flag=True, help="Show what would be trusted, and trust nothing.")
@click.option("-y", "--yes", is_flag=True, help="Trust without asking.")
@json_option
@read_options
@click.pass_context
def grant(
    ctx: click.Context, *, path: str | None, dry_run: bool, yes: bool, as_json: bool, reading: ReadOptions
) -> None:
    """Trust what a project or a pack starts, contacts and reads."""
    _be_somewhere(path or ".")
    path = _whole(path) if path else None
    runtime = open_offline(reading, (path,) if path else (), remembers=False)
    print_refusals(runtime)
    requests = _requests(runtime)
    if not as_json:
        for request in requests:
            for line in request_lines(request):
                click.echo(line)
        for problem in engine_of(runtime).trust.store.problems:
            click.echo(escape_terminal(problem), err=True)
    agreed = [] if dry_run else [each for each in requests if _agrees(ctx, each, runtime, yes=yes)]
    for each in agreed:
        store_decision(each, "toolcrib trust")
        if not as_json:
            click.echo(f"trusted: {escape_terminal(each.workspace.root)}")
    if as_json:
        click.echo(json_text({"workspaces": [_json_of(runtime, each, each in agreed) for each in requests]}))
    refused = not dry_run and len(agreed) < len(requests)
    ctx.exit(exit_codes.PROBLEMS if refused else exit_codes.OK)


def _be_somewhere(path: str) -> None:
    """Raise a click.ClickException for a relative path in a working directory that was deleted."""
    if not Path(path).is_absolute() and not working_folder():
        raise click.ClickException("the working directory was deleted; change to a folder that exists")


def _whole(path: str) -> str:
    """The path of the whole workspace that contains a path; only whole projects and packs can be trusted."""
    from toolcrib.engine.workspaces import workspace_at  # noqa: PLC0415 -- a list needs none of it
    from toolcrib.loading.project_discovery import PROJECT_FILES  # noqa: PLC0415 -- as above

    found = workspace_at(path, working_folder())
    real = Path(path).resolve()
    if not found.partial or (str(real.parent) == found.root and real.name in PROJECT_FILES):
        return path
    told = f"{path} is part of the {found.kind} {found.root}, which is trusted as a whole"
    click.echo(escape_terminal(told), err=True)
    return found.root


def _requests(runtime: Runtime) -> list[TrustRequest]:
    """The workspaces to trust: the named one, and others that it uses if they need anything."""
    requests = engine_of(runtime).trust.requests()
    return [*requests[:1], *(each for each in requests[1:] if each.needs or each.undeclared)]


def _agrees(ctx: click.Context, request: TrustRequest, runtime: Runtime, *, yes: bool) -> bool:
    if request.undeclared and not any(each.kind != "content" for each in request.needs):
        root = escape_terminal(request.workspace.root)
        told = f"cannot trust {root}: it does not declare what it needs"
        click.echo(told, err=True)
        return False
    if yes or (not request.needs and not request.undeclared) or engine_of(runtime).trust.grants(request):
        return True
    if not can_ask():
        click.echo("no terminal to ask at; check `--dry-run`, then use `--yes`", err=True)
        ctx.exit(exit_codes.USAGE)
    # `err=True` keeps stdout free for the JSON document or a pipe.
    return click.confirm(f"Trust {escape_terminal(request.workspace.root)}?", err=True)


def _json_of(runtime: Runtime, request: TrustRequest, agreed: bool) -> dict[str, Any]:
    before = request.before
    return {
        **request.as_json(),
        "trusted": agreed or engine_of(runtime).trust.grants(request),
        "decision": None
        if before is None
        else {"when": before.when, "who": before.who, "how": before.how, "hash": before.hash},
    }


@command.command("list")
@json_option
def list_decisions(*, as_json: bool) -> None:
    """List trust decisions: where, when, by whom."""
    store = default_store()
    decisions = store.everything()
    if as_json:
        entries = [{**each.as_json(), "exists": not _gone(each)} for each in decisions]
        click.echo(json_text({"folder": store.folder, "decisions": entries, "problems": store.problems}))
        return
    rows = [
        (each.root, each.kind, _agreed(each), each.when, each.who, each.how, _gone(each))
        for each in decisions
    ]
    for line in table(rows):
        click.echo(line)
    for problem in store.problems:
        click.echo(escape_terminal(problem), err=True)
    click.echo(plural(len(decisions), "decision") if decisions else "nothing is trusted")


def _gone(decision: Decision) -> str:
    return "" if decision.kind == PUBLISHER or os.path.lexists(decision.root) else "deleted"


def _agreed(decision: Decision) -> str:
    return key_of(decision) if decision.kind == PUBLISHER else count_needs(decision.needs)


@command.command("revoke")
@click.argument("path", required=False, type=click.Path())
@click.option("--all", "everything", is_flag=True, help="Revoke every decision.")
@click.pass_context
def revoke(ctx: click.Context, *, path: str | None, everything: bool) -> None:
    """Revoke the trust in a project or a pack. Without PATH: in the project of this folder.

    `pack:NAME` revokes the trust in the key of the publisher of a pack.
    """
    if path and everything:
        raise click.UsageError("`--all` revokes every decision; remove PATH")
    store = default_store()
    count = sum(_removed(store, root) for root in _roots(store, path, everything=everything))
    for problem in store.problems:
        click.echo(escape_terminal(problem), err=True)
    click.echo(f"{plural(count, 'decision')} revoked" if count else "nothing to revoke")
    ctx.exit(exit_codes.OK if count else exit_codes.NOTHING_SELECTED)


def _roots(store: DecisionStore, path: str | None, *, everything: bool) -> list[str]:
    from toolcrib.engine.workspaces import workspace_at  # noqa: PLC0415 -- a list needs none of it

    if everything:
        return [*dict.fromkeys(each.root for each in store.everything())]
    named = path or "."
    if named.startswith(publisher_root("")) and store.agreed([named]):
        return [named]
    _be_somewhere(named)
    # The path itself may have been trusted before it became part of a larger project.
    return [*dict.fromkeys([os.path.realpath(named), workspace_at(named, working_folder()).root])]


def _removed(store: DecisionStore, root: str) -> int:
    try:
        return store.remove(root)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"cannot revoke a decision: {error}")) from error


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
"""Maximum number of listed tools and servers that need the same thing; the rest is counted."""


def _shown(text: str) -> str:
    """Format third-party text completely, on one line, and with hidden characters spelled out."""
    # A line break in a command could otherwise imitate a harmless line of this list, and a hidden character
    # could make two different hosts look alike.
    return spell_out_hidden(in_one_line(text))


def request_lines(request: TrustRequest, *, difference: bool = True) -> Iterator[str]:
    """Format everything that would be trusted, with its differences from the earlier decision."""
    workspace = request.workspace
    yield f"{click.style(_shown(workspace.root), bold=True)} ({workspace.kind})"
    if not request.needs and not request.undeclared:
        yield "  starts, contacts and reads nothing: only its mocks run"
    if request.before is None or not difference:
        for each in request.needs:
            yield from _lines(each, " ")
    else:
        yield from _difference(request)
    for each in request.undeclared:
        yield from _lines(each, "!")
    if request.undeclared:
        yield "  ! is not declared under `requires` in its pack.yaml, and stays denied"
    if request.needs:
        yield f"  hash     {request.hash}"


_COLOURS = {"+": "green", "-": "red", "~": "yellow", "!": "yellow"}


def _difference(request: TrustRequest) -> Iterator[str]:
    """The needs with their differences from the earlier decision: `+` new, `-` removed, `~` changed."""
    added = {each.digest for each in request.added}
    removed = {each.subject: each for each in request.removed}
    for each in request.needs:
        # A need with the same subject and another digest has changed; any other new digest is a new need.
        before = removed.pop(each.subject, None) if each.digest in added else None
        if before is None:
            yield from _lines(each, "+" if each.digest in added else " ")
        else:
            yield _line(each, "~")
            kept = {*before.details} & {*each.details}
            yield from _details([text for text in before.details if text not in kept], "-")
            yield from _details([text for text in each.details if text not in kept], "+")
            # The digest of a need covers its secrets, which the details mask.
            if before.details == each.details:
                yield from _details(["a secret in it has changed"], "~")
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
    """Show the needs and ask the user. Requires a terminal (`can_ask`)."""
    changed = request.before is not None
    lead = "What this project needs has changed" if changed else "This project is not trusted yet"
    click.echo(f"{lead}. If you trust it, it may:", err=True)
    for line in request_lines(request):
        click.echo(line, err=True)
    click.echo("Until then, only its mocks run.", err=True)
    said = click.prompt(
        "Trust it? [y]es, [o]nce, [n]o",
        # Pressing Enter must not grant anything.
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
    store_decision(request, "prompt")
    return "always"


def can_ask() -> bool:
    """Whether a user can be asked at a terminal."""
    # The prompt is printed on stderr, so stdout may be a pipe.
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def store_decision(request: TrustRequest, how: str) -> None:
    """Store a trust decision.

    Raises:
        click.ClickException: The decision cannot be stored, or its folder is inside the workspace.
    """
    from toolcrib.core.clock import RealClock  # noqa: PLC0415 -- few commands decide

    workspace, store = request.workspace, default_store()
    if store.folder and workspace.holds(os.path.realpath(store.folder)):
        message = (
            f"cannot store the decision: its folder {store.folder} is inside {workspace.root}, so "
            "anyone who can write there could add one"
        )
        hint = f"set TOOLCRIB_STATE_DIR to a folder outside it, or TOOLCRIB_TRUST={request.hash} for one run"
        raise click.ClickException(escape_terminal(f"{message}; {hint}"))
    decision = Decision.of(workspace.root, workspace.kind, request.needs, when=RealClock().now(), how=how)
    try:
        store.add(decision)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"cannot store the decision: {error}")) from error


def print_untrusted(refused: Sequence[TrustRequest], problems: Sequence[str]) -> None:
    """Print a message on stderr for each workspace that was denied something."""
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
        click.echo(f"{lead} ({Untrusted.code}): {said}, so only its mocks run; it would", err=True)
        for line in request_lines(request):
            click.echo(f"  {line}", err=True)
        click.echo(f"    hint: {trust_hint(request)}", err=True)


def trust_hint(request: TrustRequest) -> str:
    """How to trust a workspace."""
    return request.hint if request.needs else "declare it under `requires` in pack.yaml"


def count_needs(needs: Sequence[Need]) -> str:
    """Count the needs by kind: `2 programs, 1 host`."""
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
    return ", ".join(told) or "only mocks"


class Consents:
    """The answers of the user so far, so that the same question is asked only once."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], Consent] = {}

    def __call__(self, request: TrustRequest) -> Consent:
        """Return the earlier answer to the same request, or ask."""
        key = (request.workspace.root, request.hash)
        if key not in self._said:
            said = ask_at_terminal(request)
            # An answer of "always" has been stored; for the rest of this process it acts like "once".
            self._said[key] = "no" if said == "no" else "once"
            return said
        return self._said[key]

    @property
    def granted(self) -> tuple[str, ...]:
        """The hashes of the trusted requests."""
        return tuple(digest for (_root, digest), said in self._said.items() if said != "no")


def trust_policy(reading: ReadOptions) -> TrustPolicy:
    """The policy of a command: files given with `--mcp` are trusted, since the user named them."""
    return TrustPolicy(paths=reading.servers, hashes=reading.granted).with_environment()


def ask_for_consent(runtime: Runtime) -> None:
    """Ask for the trust that the active tools need, before a client or a model calls them."""
    from toolcrib.engine.workspaces import home_of_module, subject_of_tool  # noqa: PLC0415 -- few commands need it
    from toolcrib.security.trust import subject_of_module  # noqa: PLC0415 -- as above

    trust, executors = engine_of(runtime).trust, engine_of(runtime).executors
    if not trust.policy.everything:
        reaching = [
            card
            for card in runtime.registry.query()
            if card.mode is not None and card.mode in card.modes and not executors.is_contained(card.mode)
        ]
        subjects = [
            subject_of_tool(runtime.registry[card.name], executors, trust, card.mode) for card in reaching
        ]
        for subject in subjects:
            with suppress(Untrusted):
                # A refusal is recorded; `print_denied` prints all of them once.
                trust.check(subject)
        for name in engine_of(runtime).undiscovered:
            with suppress(Untrusted):
                trust.check_server(runtime.servers[name])
        for module in engine_of(runtime).stock.unimported:
            with suppress(Untrusted):
                trust.check(subject_of_module(home_of_module(module)))
    print_denied(runtime)


def idle_variable() -> str:
    """A message if the environment variable for trust is set but grants nothing; otherwise empty."""
    said = os.environ.get(VARIABLE, "").strip()
    granted = said.lower() == "all" or any(_HASH.fullmatch(each) for each in hashes_in(said))
    if not said or granted:
        return ""
    return f"{VARIABLE} grants nothing: it is neither `all` nor a list of hashes of at least 16 hexadecimal digits"


_HASH = re.compile("[0-9a-f]{16,}")


def warn_idle_variable() -> None:
    """Print on stderr that the variable grants nothing."""
    idle = idle_variable()
    if idle:
        click.echo(f"{click.style('warning', fg='yellow')}: {idle}", err=True)


def print_denied(runtime: Runtime) -> bool:
    """Print on stderr, once for each workspace, what was denied; returns whether anything was."""
    refused = engine_of(runtime).trust.refused
    if refused:
        print_untrusted(refused, engine_of(runtime).trust.store.problems)
        warn_idle_variable()
    engine_of(runtime).trust.told = True
    return bool(refused)
