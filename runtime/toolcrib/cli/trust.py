"""`toolcrib trust`: agree to what a project or a pack starts, contacts and reads; see and take back what was agreed to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import Reading, json_option, reading_options
from toolcrib.cli.runtime_options import open_listed, tell_refusals
from toolcrib.cli.trust_output import can_ask, keep, request_lines, summary_of
from toolcrib.cli.value_output import json_text, plural, table
from toolcrib.core.text import escape_terminal
from toolcrib.core.user_folders import working_folder
from toolcrib.engine.runtime import Runtime
from toolcrib.security.trust import TrustRequest
from toolcrib.security.trust_decisions import DecisionStore, default_store

_USAGE = "[PATH] [--dry-run] [--yes] [--json]"


class TrustGroup(click.Group):
    """A group whose first word may be a path: then it is trusted."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what names no command for the words of `grant`."""
        if not args or (args[0] not in self.commands and args[0] not in {"-h", "--help"}):
            args = ["grant", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The three ways to call it."""
        formatter.write_usage(ctx.command_path, _USAGE)
        formatter.write_usage(ctx.command_path, "list [--json]")
        formatter.write_usage(ctx.command_path, "revoke [PATH | --all]")


@click.group("trust", cls=TrustGroup)
def command() -> None:
    """Trust a project or a pack: let it start programs, contact hosts and read secrets.

    Without PATH: the project that this folder lies in. Everything that would be agreed to is shown first: the exact
    commands, the names of variables and files, the hosts. What changes later is asked for again. Decisions lie in a folder
    of yours (TOOLCRIB_STATE_DIR), never in a repository.
    """


class _Unnamed(click.Context):
    """Of a command that nobody names: errors and help speak of its group."""

    @property
    def command_path(self) -> str:
        """The words before the arguments."""
        return self.parent.command_path if self.parent is not None else super().command_path


class GrantCommand(click.Command):
    """What `toolcrib trust` does where no command is named."""

    context_class = _Unnamed

    def collect_usage_pieces(self, _ctx: click.Context) -> list[str]:
        """How it is called."""
        return [_USAGE]


@command.command("grant", cls=GrantCommand, hidden=True)
@click.argument("path", required=False, type=click.Path(exists=True))
@click.option("--dry-run", is_flag=True, help="Show what would be agreed to, and agree to nothing.")
@click.option("-y", "--yes", is_flag=True, help="Agree without being asked.")
@json_option
@reading_options
@click.pass_context
def grant(
    ctx: click.Context, *, path: str | None, dry_run: bool, yes: bool, as_json: bool, reading: Reading
) -> None:
    """Agree to what a project or a pack starts, contacts and reads."""
    _be_somewhere(path or ".")
    path = _whole(path) if path else None
    runtime = open_listed(reading, (path,) if path else (), remembers=False)
    tell_refusals(runtime)
    requests = _requests(runtime)
    if not as_json:
        for request in requests:
            for line in request_lines(request):
                click.echo(line)
        for problem in runtime.engine.trust.store.problems:
            click.echo(escape_terminal(problem), err=True)
    agreed = [] if dry_run else [each for each in requests if _agrees(ctx, each, runtime, yes=yes)]
    for each in agreed:
        keep(each, "toolcrib trust")
        if not as_json:
            click.echo(f"trusted: {escape_terminal(each.workspace.root)}")
    if as_json:
        click.echo(json_text({"workspaces": [_json_of(runtime, each, each in agreed) for each in requests]}))
    refused = not dry_run and len(agreed) < len(requests)
    ctx.exit(exit_codes.PROBLEMS if refused else exit_codes.OK)


def _be_somewhere(path: str) -> None:
    """Go on only where a path leads somewhere.

    Raises:
        click.ClickException: It begins at the working directory, and that is gone.
    """
    if not Path(path).is_absolute() and not working_folder():
        raise click.ClickException("the working directory is gone; go to a folder that is there")


def _whole(path: str) -> str:
    """The path of what is trusted as a whole: of a file or folder in a project or a pack, that one."""
    from toolcrib.engine.workspaces import workspace_at  # noqa: PLC0415 -- as above
    from toolcrib.loading.project_discovery import PROJECT_FILES  # noqa: PLC0415 -- a list needs none of it

    found = workspace_at(path, working_folder())
    real = Path(path).resolve()
    if not found.partial or (str(real.parent) == found.root and real.name in PROJECT_FILES):
        return path
    told = f"{path} is a part of the {found.kind} {found.root}, which is trusted as a whole"
    click.echo(escape_terminal(told), err=True)
    return found.root


def _requests(runtime: Runtime) -> list[TrustRequest]:
    """What there is to agree to: what was named in any case, of what lies elsewhere only what needs something."""
    requests = runtime.engine.trust.requests()
    return [*requests[:1], *(each for each in requests[1:] if each.needs or each.undeclared)]


def _agrees(ctx: click.Context, request: TrustRequest, runtime: Runtime, *, yes: bool) -> bool:
    if request.undeclared and not any(each.kind != "content" for each in request.needs):
        root = escape_terminal(request.workspace.root)
        told = f"nothing of {root} can be agreed to: what it needs is not declared"
        click.echo(told, err=True)
        return False
    if yes or (not request.needs and not request.undeclared) or runtime.engine.trust.grants(request):
        return True
    if not can_ask():
        click.echo("there is no terminal to ask at; `--yes` agrees to what `--dry-run` shows", err=True)
        ctx.exit(exit_codes.USAGE)
    return click.confirm(f"Trust {escape_terminal(request.workspace.root)}?", err=True)


def _json_of(runtime: Runtime, request: TrustRequest, agreed: bool) -> dict[str, Any]:
    before = request.before
    return {
        **request.as_json(),
        "trusted": agreed or runtime.engine.trust.grants(request),
        "decision": None
        if before is None
        else {"when": before.when, "who": before.who, "how": before.how, "hash": before.hash},
    }


@command.command("list")
@json_option
def list_decisions(*, as_json: bool) -> None:
    """List what was agreed to: where, when, by whom."""
    store = default_store()
    decisions = store.everything()
    if as_json:
        entries = [{**each.as_json(), "exists": os.path.lexists(each.root)} for each in decisions]
        click.echo(json_text({"folder": store.folder, "decisions": entries, "problems": store.problems}))
        return
    rows = [
        (each.root, each.kind, summary_of(each.needs), each.when, each.who, each.how, _gone(each.root))
        for each in decisions
    ]
    for line in table(rows):
        click.echo(line)
    for problem in store.problems:
        click.echo(escape_terminal(problem), err=True)
    click.echo(plural(len(decisions), "decision") if decisions else "nothing is trusted")


def _gone(root: str) -> str:
    return "" if os.path.lexists(root) else "gone"


@command.command("revoke")
@click.argument("path", required=False, type=click.Path())
@click.option("--all", "everything", is_flag=True, help="Take back every decision.")
@click.pass_context
def revoke(ctx: click.Context, *, path: str | None, everything: bool) -> None:
    """Take back what was agreed to for a project or a pack; without PATH for this folder's project."""
    if path and everything:
        raise click.UsageError("`--all` takes back every decision; leave PATH out")
    store = default_store()
    count = sum(_removed(store, root) for root in _roots(store, path, everything=everything))
    for problem in store.problems:
        click.echo(escape_terminal(problem), err=True)
    click.echo(f"{plural(count, 'decision')} taken back" if count else "there was nothing to take back")
    ctx.exit(exit_codes.OK if count else exit_codes.NOTHING_SELECTED)


def _roots(store: DecisionStore, path: str | None, *, everything: bool) -> list[str]:
    from toolcrib.engine.workspaces import workspace_at  # noqa: PLC0415 -- a list needs none of it

    if everything:
        return [*dict.fromkeys(each.root for each in store.everything())]
    named = path or "."
    _be_somewhere(named)
    return [*dict.fromkeys([os.path.realpath(named), workspace_at(named, working_folder()).root])]


def _removed(store: DecisionStore, root: str) -> int:
    try:
        return store.remove(root)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"a decision can't be taken back: {error}")) from error
