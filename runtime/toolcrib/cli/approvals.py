"""`toolcrib approvals`: list, show and answer calls that wait for approval; and the question at a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.arguments import read_arguments
from toolcrib.cli.options import ReadOptions, json_option, open_runtime, read_options
from toolcrib.cli.output import answer_lines, json_text, outline, print_failure, table, terminal_width
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.core.clock import RealClock, format_duration, parse_duration
from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import compact, decode_json, escape_terminal
from toolcrib.engine.approvals import Approvals, InvalidEdit, approval_facts
from toolcrib.engine.runtime import Runtime
from toolcrib.security.approvals import Answer, Approval, ApprovalRule, Pending
from toolcrib.security.encryption import create_key
from toolcrib.security.trust_decisions import current_user


@click.group("approvals")
def command() -> None:
    """List and answer the calls that wait for approval, and revoke standing approvals.

    A call waits if a rule of `access` or a tool asks for approval, or if it would exceed a budget. An approved call is
    made when its caller repeats it, or at once with `approve --run`.
    """


@command.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Also list approvals that were answered or have expired."
)
@json_option
@read_options
@click.pass_context
def list_(ctx: click.Context, *, everything: bool, as_json: bool, reading: ReadOptions) -> None:
    """List the calls that wait for approval, and the standing approvals."""
    approvals = open_runtime(reading).approvals
    found = [each for each in approvals.everything() if everything or approvals.state(each) == "pending"]
    rules = approvals.rules()
    if as_json:
        told = {
            "approvals": [_document(approvals, each) for each in found],
            "rules": [_rule_document(each) for each in rules],
        }
        click.echo(json_text(told))
        ctx.exit(exit_codes.OK)
    if found:
        rows = [("id", "tool", "state", "created", "question"), *(_row(approvals, each) for each in found)]
        _echo(table(rows, terminal_width()))
    if rules:
        click.echo("standing approvals:")
        _echo(table([("id", "tool", "for", "until", "rule"), *map(_rule_row, rules)], terminal_width()))
    if not found:
        click.echo("no call waits for approval")


@command.command("show")
@click.argument("id_", metavar="ID")
@json_option
@read_options
def show(*, id_: str, as_json: bool, reading: ReadOptions) -> None:
    """Show a call that waits for approval, with `***` in place of secrets."""
    approvals = open_runtime(reading).approvals
    approval = approvals.get(id_)
    document = _document(approvals, approval)
    if as_json:
        click.echo(json_text(document))
        return
    click.echo(escape_terminal(approval.message))
    _echo(outline({key: value for key, value in document.items() if value not in ("", None, [])}))


@command.command("approve")
@click.argument("id_", metavar="ID")
@click.argument("words", nargs=-1, metavar="[KEY=TEXT | KEY:=JSON]...")
@click.option(
    "--session", is_flag=True, help="Also approve later calls of the same session that the same rule holds."
)
@click.option(
    "--always", is_flag=True, help="Also approve later calls of the same caller that the same rule holds."
)
@click.option(
    "--for", "lifetime", metavar="DURATION", help="With --always: how long it holds, such as `30d`."
)
@click.option(
    "--same-arguments", is_flag=True, help="With --session or --always: only calls with the same arguments."
)
@click.option("--run", "at_once", is_flag=True, help="Make the call now, and print its result.")
@json_option
@read_options
@click.pass_context
def approve(
    ctx: click.Context,
    *,
    id_: str,
    words: tuple[str, ...],
    session: bool,
    always: bool,
    lifetime: str | None,
    same_arguments: bool,
    at_once: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Approve a call. Words replace some of its arguments.

    The new arguments are validated and evaluated again; if they are invalid, the call stays pending. Secrets that are
    shown as `***` stay as they are.
    """
    if session and always:
        raise click.UsageError("use either --session or --always")
    if lifetime is not None and not always:
        raise click.UsageError("--for needs --always")
    if same_arguments and not (session or always):
        raise click.UsageError("--same-arguments needs --session or --always")
    runtime = open_runtime(reading)
    approval = runtime.approvals.get(id_)
    edited: dict[str, JSON] | None = {**approval.shown, **read_arguments(words)} if words else None
    answer = Answer.approve(
        edited,
        scope="session" if session else "always" if always else "once",
        lifetime=None if lifetime is None else _seconds(lifetime),
        same_arguments=same_arguments,
    )
    runtime.approvals.answer(id_, answer, by=current_user())
    if not at_once:
        _tell_answer(runtime.approvals, id_, as_json=as_json)
        if not as_json:
            click.echo(_next_step(approval), err=True)
        return
    result = asyncio.run(_resume(runtime, id_))
    for line in answer_lines(result, as_json=as_json):
        click.echo(line, color=True)
    if not as_json and result.outcome is not Outcome.OK:
        print_failure(result)
    ctx.exit(exit_codes.OF_OUTCOME[result.outcome])


def _next_step(approval: Approval) -> str:
    """How an approved call is made."""
    if approval.kept == "process":
        return "its arguments contain secrets that only the process of its caller knows; it is made when the caller repeats it there"
    return f"it is made when its caller repeats it, or now with `toolcrib approvals run {escape_terminal(approval.id)}`"


@command.command("run")
@click.argument("id_", metavar="ID")
@json_option
@read_options
@click.pass_context
def run(ctx: click.Context, *, id_: str, as_json: bool, reading: ReadOptions) -> None:
    """Make an approved call, and print its result. It is made at most once."""
    result = asyncio.run(_resume(open_runtime(reading), id_))
    for line in answer_lines(result, as_json=as_json):
        click.echo(line, color=True)
    if not as_json and result.outcome is not Outcome.OK:
        print_failure(result)
    ctx.exit(exit_codes.OF_OUTCOME[result.outcome])


@command.command("reject")
@click.argument("id_", metavar="ID")
@click.argument("reason", default="", metavar="[REASON]")
@json_option
@read_options
def reject(*, id_: str, reason: str, as_json: bool, reading: ReadOptions) -> None:
    """Reject a call. Its caller gets the reason."""
    approvals = open_runtime(reading).approvals
    approvals.answer(id_, Answer.reject(reason), by=current_user())
    _tell_answer(approvals, id_, as_json=as_json)


@command.command("revoke")
@click.argument("id_", metavar="ID")
@read_options
def revoke(*, id_: str, reading: ReadOptions) -> None:
    """Remove a standing approval, so that its calls wait for approval again."""
    open_runtime(reading).approvals.revoke(id_)
    click.echo(f"revoked {escape_terminal(id_)}")


@command.command("key")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write the key to FILE instead."
)
def key(*, output: str | None) -> None:
    """Create the key that encrypts secrets in stored approvals.

    The key is a file in your state folder. For another place, set TOOLCRIB_KEY to `file:/path` or
    `keyring:service/user`.
    """
    try:
        path = create_key(output or "")
    except FileExistsError as error:
        raise click.ClickException(escape_terminal(f"{error.filename} exists already")) from error
    except OSError as error:
        raise click.ClickException(escape_terminal(f"cannot write the key: {error}")) from error
    click.echo(f"wrote {escape_terminal(path)}")


async def _resume(runtime: Runtime, id_: str) -> Result:
    with redirected_stdout():
        async with aclosing(runtime):
            return await runtime.resume(id_)


def _seconds(written: str) -> float:
    try:
        return parse_duration(written)
    except ValueError as error:
        raise click.UsageError(f"--for: {error}") from error


def _tell_answer(approvals: Approvals, id_: str, *, as_json: bool) -> None:
    approval = approvals.get(id_)
    assert approval.resolution is not None  # noqa: S101 -- it was answered before
    kind = {"approve": "approved", "reject": "rejected"}[approval.resolution.answer.kind]
    if as_json:
        click.echo(json_text({"id": approval.id, "tool": approval.tool, "state": kind}))
    else:
        click.echo(
            f"{kind} {escape_terminal(approval.tool)} {escape_terminal(compact(approvals.shown(approval)))}"
        )


def _document(approvals: Approvals, approval: Approval) -> dict[str, Any]:
    resolution = approval.resolution
    told: dict[str, Any] = {
        **approval_facts(approval),
        "state": approvals.state(approval),
        "question": approval.message,
        "caller": approval.caller,
        "user": approval.user,
        "session": approval.session,
    }
    if resolution is not None:
        kind, scope = resolution.answer.kind, resolution.answer.scope
        told["answer"] = {
            "kind": kind,
            "scope": scope,
            "reason": resolution.answer.message,
            "by": resolution.by,
        }
    return told


def _rule_document(rule: ApprovalRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "tool": rule.tool,
        "code": rule.code,
        "rule": rule.rule,
        "caller": rule.caller,
        "user": rule.user,
        "same_arguments": bool(rule.digest),
        "created": _iso(rule.created),
        "expires": None if rule.expires is None else _iso(rule.expires),
        "by": rule.by,
    }


def _row(approvals: Approvals, approval: Approval) -> tuple[str, ...]:
    age = max(0.0, RealClock().now().timestamp() - approval.created)
    ago = f"{format_duration(float(round(age)))} ago"
    return approval.id, approval.tool, approvals.state(approval), ago, approval.message


def _rule_row(rule: ApprovalRule) -> tuple[str, ...]:
    who = " ".join(filter(None, (rule.caller, rule.user))) or "anyone"
    until = "revoked" if rule.expires is None else _iso(rule.expires)
    same = " (same arguments)" if rule.digest else ""
    return rule.id, rule.tool, who, until, f"{rule.rule or rule.code}{same}"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(escape_terminal(line))


def answer_hint(result: Result) -> str:
    """How to answer the approval that a call waits for; empty for any other result."""
    if result.outcome is not Outcome.NEEDS_APPROVAL or result.error is None:
        return ""
    facts: Any = result.error.details.get("approval")
    if not isinstance(facts, dict) or "id" not in facts:
        return ""
    if facts.get("kept") == "memory":
        return "it cannot be answered later, because approvals are kept in memory"
    id_ = escape_terminal(str(facts["id"]))
    if facts.get("kept") == "process":
        return (
            f"the arguments contain secrets, and no encryption key is set; the approval `{id_}` ends with this process; "
            "run `toolcrib approvals key` and repeat the call"
        )
    return f"run `toolcrib approvals approve {id_}`, then repeat the call"


class TerminalApprover:
    """Asks the user at the terminal about a call that needs approval.

    Attributes:
        approvals: The approvals of the runtime, which check edited arguments; set once the runtime is open.
    """

    approvals: Approvals | None = None

    async def __call__(self, pending: Pending) -> Answer | None:
        """Ask, and return the answer; None leaves the call pending."""
        for line in (pending.message, *outline(dict(pending.arguments), "  ")):
            click.echo(escape_terminal(line), err=True)
        while True:
            try:
                said = click.prompt(
                    "Approve it? [y]es, [a]lways, [e]dit, [n]o, [l]ater",
                    # Pressing Enter must not approve anything.
                    default="n",
                    show_default=False,
                    type=click.Choice([*_CHOICES], case_sensitive=False),
                    show_choices=False,
                    err=True,
                )
            except click.Abort:
                click.echo(err=True)
                return None
            if said[0] == "l":
                return None
            if said[0] == "n":
                return Answer.reject(click.prompt("Reason", default="", show_default=False, err=True))
            if said[0] == "e":
                answer = self._edited(pending)
                if answer is not None:
                    return answer
                continue
            return Answer.approve(scope="always" if said[0] == "a" else "once")

    def _edited(self, pending: Pending) -> Answer | None:
        """Read edited arguments; None if they are invalid."""
        written = click.prompt(
            "The arguments, as a JSON object", default=compact(pending.arguments), err=True
        )
        try:
            value = decode_json(written)
            if not isinstance(value, dict):
                raise ValueError("not a JSON object")  # noqa: TRY301, TRY004 -- as for text that is not JSON
            answer = Answer.approve(value)
            if self.approvals is not None:
                self.approvals.check(pending.id, answer)
        except (ValueError, InvalidEdit) as error:
            click.echo(escape_terminal(str(error)), err=True)
            return None
        return answer


_CHOICES = ("y", "a", "e", "n", "l", "yes", "always", "edit", "no", "later")
