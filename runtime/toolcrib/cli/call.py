"""`toolcrib call`: call one tool; print its result, the planned request (`--dry-run`), or the exchanges (`-v`)."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing, contextmanager, nullcontext
from difflib import get_close_matches
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.approvals import TerminalApprover, answer_hint
from toolcrib.cli.arguments import read_arguments
from toolcrib.cli.excluded_files import tell_excluded
from toolcrib.cli.options import (
    ReadOptions,
    args_file_option,
    json_option,
    open_offline,
    open_runtime,
    passthrough_option,
    print_refusals,
    read_options,
    told_while_waiting,
    tool_argument,
    words_argument,
)
from toolcrib.cli.output import answer_lines, outline, part_line, print_failure, table
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.cli.trust import can_ask, warn_idle_variable
from toolcrib.core.model import JSON, Outcome, Partial, Progress, Result
from toolcrib.core.text import compact, escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.security.access import decision_from
from toolcrib.security.trust import Untrusted


class _CallCommand(click.Command):
    """A command that takes an unknown option for an argument of the tool, which is written in another way."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            click.NoSuchOption: With the form to write.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            word = next((each for each in given if each.partition("=")[0] == error.option_name), "")
            name, equals, value = word.lstrip("-").partition("=")
            following = given[given.index(word) + 1 :][:1] if word and not equals else []
            text = value if equals else "".join(each for each in following if not each.startswith("-"))
            # Click suggests `--profile` for `--title`; only a misspelt option is close.
            close = get_close_matches(error.option_name, error.possibilities or (), cutoff=0.8)
            if len(name) < 2 or close:
                raise
            form = escape_terminal(f"{name}={text}")
            message = f"{error.message} Write the argument of a tool as `{form}`."
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None


@click.command("call", cls=_CallCommand)
@tool_argument
@words_argument
@args_file_option
@click.option("--mode", metavar="MODE", help="Call the tool in this mode instead of its own.")
@click.option("--dry-run", is_flag=True, help="Show what the call would do, without making it.")
@click.option(
    "--explain",
    is_flag=True,
    help="Explain on stderr which reply is chosen, or which request is sent, and why.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show requests and responses on stderr.")
@click.option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Seed for the values that mocks generate.",
)
@click.option(
    "--idempotency-key",
    metavar="KEY",
    default="",
    help="A repeated call with the same key gets the result of the first one, which the journal keeps.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Keep the store of the mocks in this file: continue from it, and write what the call changed.",
)
@click.option(
    "--save-example",
    is_flag=True,
    help="Add the call and its result to the `examples` of the descriptor, which `toolcrib run` runs.",
)
@passthrough_option
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    name: str,
    words: tuple[str, ...],
    args_file: str | None,
    mode: str | None,
    dry_run: bool,
    explain: bool,
    verbose: bool,
    seed: int,
    idempotency_key: str,
    state: str | None,
    save_example: bool,
    passthrough: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Call a tool.

    The result goes to stdout and everything else to stderr; the exit code reports the outcome. `key=text` passes a
    string, which is coerced to the type that the tool's schema asks for; `key:=json` passes any JSON value, and a JSON
    object several arguments: `'{"city": "Oslo"}'`.

    Each call starts from the store of the documents, unless `--state` names a file that keeps it between calls.
    `toolcrib shell` keeps the store as long as it runs.
    """
    if save_example and state is not None:
        raise click.UsageError(
            "`--state` and `--save-example` contradict each other, since examples start from the store of the documents"
        )
    if save_example and dry_run:
        raise click.UsageError(
            "`--dry-run` makes no call that `--save-example` could save; use only one of them"
        )
    arguments = read_arguments(words, args_file)
    modes = {name: mode} if mode is not None else {}
    approver = TerminalApprover() if can_ask() else None
    runtime = open_runtime(reading, modes=modes, seed=seed, passthrough=passthrough, approver=approver)
    if approver is not None:
        approver.approvals = runtime.approvals
    print_refusals(runtime)
    # Only the result goes to stdout, whatever the code of a Python tool prints.
    kept = nullcontext() if state is None else _kept_store(runtime, state, writes=not dry_run)
    with redirected_stdout(), log_exchanges() if verbose else nullcontext(), kept as unkept:
        result = asyncio.run(
            _answer(runtime, name, arguments, explain=explain, dry_run=dry_run, key=idempotency_key)
        )
    if dry_run and not as_json:
        _tell_warnings(result)
    # A planned request is printed as it would be sent; other plans have no form of their own and are printed
    # as JSON.
    if dry_run and not as_json and planned_request(_plan(result)) is not None:
        _echo(sent_lines(_plan(result)))
        return
    code = print_result(result, as_json=as_json, worded=bool(words))
    if result.outcome is Outcome.NOT_FOUND:
        tell_excluded(runtime, name)
    if dry_run and not as_json:
        _tell_other_errors(result)
    if unkept:
        click.echo(
            f"the call was made, but its changes to the store are lost: {escape_terminal(unkept[0])}",
            err=True,
        )
        code = exit_codes.OUTPUT_FAILED
    if save_example:
        _save_example(runtime, name, arguments, result, reading)
    ctx.exit(code)


def _save_example(
    runtime: Runtime, name: str, arguments: dict[str, JSON], result: Result, reading: ReadOptions
) -> None:
    from toolcrib.cli.saved_examples import save_example  # noqa: PLC0415 -- few calls are saved

    tool = runtime.registry.get(runtime.registry.named_by_alias(name) or name)
    if tool is None or not result.ok:
        click.echo("the call was not saved: only a successful call can be an example", err=True)
    else:
        done = save_example(tool, arguments, result, lambda: open_offline(reading).registry)
        click.echo(escape_terminal(done), err=True)


STATE_PATIENCE = 10.0
"""Seconds to wait for another process that uses the state file."""


@contextmanager
def _kept_store(runtime: Runtime, path: str, *, writes: bool) -> Iterator[list[str]]:
    """Within the block, calls continue from the store in a file. After it, the file has the store that they left.

    The list gets the message of an error if the file cannot be written, since the call was made.

    Raises:
        UnusableState: The file cannot be used; nothing was called.
    """
    from toolcrib.engine.session_state import (  # noqa: PLC0415 -- few calls keep their store
        UnusableState,
        open_state,
        restore_state,
        saved_state,
        unsaved_effects,
    )

    session = engine_of(runtime).default_session
    unkept: list[str] = []
    with ExitStack() as stack:
        with told_while_waiting(f"waiting for another process that uses {path}"):
            file = stack.enter_context(open_state(path, patience=STATE_PATIENCE, writes=writes))
        restore_state(session, file.state)
        try:
            yield unkept
        finally:
            if writes:
                try:
                    file.write(saved_state(session))
                except UnusableState as error:
                    unkept.append(error.message)
                warning = unsaved_effects(session)
                if warning:
                    click.echo(warning, err=True)


def print_result(result: Result, *, as_json: bool, worded: bool) -> int:
    """Print the result of a call and return the exit code.

    Args:
        result: The result.
        as_json: Print one JSON document on stdout.
        worded: The arguments were given as words, so a hint about their types may help.
    """
    for line in answer_lines(result, as_json=as_json):
        # Without `color=True` click strips ANSI codes from the text, which belongs to the tool.
        click.echo(line, color=True)
    if not as_json and result.outcome is not Outcome.OK:
        print_failure(result)
        hint = answer_hint(result)
        if hint:
            click.echo(f"    hint: {hint}", err=True)
        # The user may believe that TOOLCRIB_TRUST has granted this call.
        if result.error is not None and result.error.code == Untrusted.code:
            warn_idle_variable()
    # Coercion accepts `count=3` for an integer, so this is for values that it refuses, such as text for an
    # array.
    if worded and not as_json and _wants_another_type(result):
        click.echo(
            "hint: `key=text` passes a string; use `key:=json` for numbers, booleans, lists and objects",
            err=True,
        )
    return exit_codes.OF_OUTCOME[result.outcome]


async def _answer(
    runtime: Runtime, name: str, arguments: dict[str, JSON], *, explain: bool, dry_run: bool, key: str
) -> Result:
    # `async with runtime` would start every MCP server; a call needs at most one of them.
    async with aclosing(runtime):
        if dry_run or explain:
            planned = await runtime.dry_run(name, arguments)
            if explain:
                _tell_plan(planned)
            if dry_run:
                return planned
        return await call_tool(runtime, name, arguments, session=engine_of(runtime).default_session, key=key)


async def call_tool(
    runtime: Runtime, name: str, arguments: dict[str, JSON], *, session: Session, key: str = ""
) -> Result:
    """Call a tool in a session, and print progress on stderr if it is a terminal.

    Args:
        runtime: The runtime of the session.
        name: Name of the tool.
        arguments: Its arguments.
        session: The session.
        key: Idempotency key; empty for none.
    """
    result = await _called(session, name, arguments, key)
    if result.outcome is Outcome.NOT_FOUND and engine_of(runtime).undiscovered:
        # The tools of servers that were not queried yet may be near misses for the hint.
        await runtime.discover()
        result = await _called(session, name, arguments, key)
    return result


async def _called(session: Session, name: str, arguments: dict[str, JSON], key: str) -> Result:
    # The loop does not run while a person is asked, so this does not appear in a question.
    waiting = asyncio.get_running_loop().call_later(PATIENCE, _tell_waiting, name)
    try:
        async for event in session.stream(name, arguments, idempotency_key=key):
            if isinstance(event, Result):
                return event
            _tell_event(event)
    finally:
        waiting.cancel()
    raise AssertionError("a stream ends with a result")


PATIENCE = 1.0
"""Seconds until a call at a terminal says what it waits for."""


def _tell_waiting(name: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"waiting for `{escape_terminal(name)}` ...", err=True)


def _tell_warnings(planned: Result) -> None:
    """Print the warnings of a dry run."""
    warnings: Any = planned.meta.get("warnings", [])
    _echo([f"warning: {text}" for text in warnings], err=True)


def _tell_other_errors(planned: Result) -> None:
    """Print the errors of a dry run after the first one, with which the call would end."""
    errors: Any = planned.meta.get("errors", [])
    _echo([f"also {each['outcome']} ({each['code']}): {each['message']}" for each in errors[1:]], err=True)


def _plan(planned: Result) -> Any:
    """The plan of a dry run; None for a result that is an error itself."""
    return planned.value["plan"] if isinstance(planned.value, dict) else None


def _tell_plan(planned: Result) -> None:
    """Print what access decides, which reply is chosen or which request is sent, and why."""
    plan: Any = _plan(planned)
    access: Any = planned.value.get("access") if isinstance(planned.value, dict) else None
    if access is not None:
        _echo([f"access: {decision_from(access)}"], err=True)
    if planned_request(plan) is not None:
        told: Any = planned.value
        _echo(reason_lines(plan, told["arguments"]), err=True)
    elif plan is not None:
        _echo(outline({"plan": plan}), err=True)


def _echo(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(escape_terminal(line), err=err)


def _tell_event(event: Progress | Partial) -> None:
    """Print a progress event or partial result if stderr is a terminal."""
    # Progress is for a person who waits; in a log it would only be noise.
    if sys.stderr.isatty():
        click.echo(escape_terminal(event_line(event)), err=True)


def event_line(event: Progress | Partial) -> str:
    """Format a progress event or a partial result as one line."""
    if isinstance(event, Partial):
        return part_line(event.content)
    total = f"/{event.total:g}" if event.total is not None else ""
    return f"[{event.progress:g}{total}] {event.message}".rstrip()


def _wants_another_type(result: Result) -> bool:
    faults: Any = result.error.details.get("violations", ()) if result.error is not None else ()
    return result.outcome is Outcome.INVALID_ARGUMENTS and any(fault["keyword"] == "type" for fault in faults)


LOGGER = "toolcrib.http"
"""Logger to which modes write their HTTP exchanges at level DEBUG, one log line for each line of an exchange."""


def planned_request(plan: Any) -> Mapping[str, Any] | None:
    """The request in a plan; None for a mode that sends nothing."""
    request = plan.get("request") if isinstance(plan, dict) else None
    return request if isinstance(request, dict) else None


def sent_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The planned request as it appears on the wire, then an equivalent curl command."""
    yield from _request_lines(plan["request"])
    yield ""
    yield from plan["curl"].split("\n")


def _request_lines(request: Mapping[str, Any]) -> Iterator[str]:
    yield f"{request['method']} {request['url']}"
    for name, value in request["headers"]:
        yield f"{name}: {value}"
    body = request["body"]
    if isinstance(body, dict):
        yield f"[{body['type'] or 'unknown type'}, {body['bytes']:,} bytes]"
    elif body is not None:
        yield ""
        yield from body.splitlines()


def reason_lines(plan: Mapping[str, Any], given: Collection[str]) -> Iterator[str]:
    """The planned request, the source of each of its parts, and the limits of the call.

    Args:
        plan: The plan of a dry run.
        given: Names of the arguments of the call.
    """
    yield from _request_lines(plan["request"])
    yield ""
    rows = [(part["part"], part["name"], part["at"], _reads(part, given)) for part in plan["from"]]
    yield from table([("part", "name", "from", "arguments"), *rows])
    yield ""
    facts = [(key, _in_short(plan[key])) for key in ("hosts", "timeouts", "limits", "auth")]
    yield from table(facts)


def _reads(part: Mapping[str, Any], given: Collection[str]) -> str:
    return ", ".join(name if name in given else f"{name} (not given)" for name in part.get("reads", ()))


def _in_short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_in_short(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_in_short, value)) or "none"
    return value if isinstance(value, str) else compact(value)


@contextmanager
def logging_to(handler: logging.Handler, name: str, level: int) -> Iterator[None]:
    """Within the block, pass the records of a logger to a handler, from this level on."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def log_exchanges() -> AbstractContextManager[None]:
    """Print every HTTP exchange within the block on stderr, as it happens."""
    # The level is raised for this block only, since formatting exchanges costs time in every other call.
    return logging_to(_Teller(), LOGGER, logging.DEBUG)


class _Teller(logging.Handler):
    """Prints log records on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        # The response of a server is untrusted: unescaped, it could send control sequences to the terminal.
        click.echo(escape_terminal(record.getMessage()), err=True)
