"""`toolcrib call`: call one tool and print its result, what would be sent, and what went over the wire."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.arguments import read_arguments
from toolcrib.cli.options import (
    ReadOptions,
    json_option,
    open_runtime,
    passthrough_option,
    print_refusals,
    read_options,
    tool_argument,
)
from toolcrib.cli.output import answer_lines, outline, part_line, print_failure, table
from toolcrib.cli.trust import warn_idle_variable
from toolcrib.core.model import JSON, Outcome, Partial, Progress, Result
from toolcrib.core.text import compact, escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.security.trust import Untrusted


@click.command("call")
@tool_argument
@click.argument("words", nargs=-1, metavar="[KEY=TEXT | KEY:=JSON]...")
@click.option(
    "--args-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read arguments from a YAML or JSON file that holds an object; `-` is the standard input.",
)
@click.option("--mode", metavar="MODE", help="Call the tool in this mode instead of its own.")
@click.option("--dry-run", is_flag=True, help="Say what the call would do, and do nothing.")
@click.option(
    "--explain", is_flag=True, help="Say on stderr which answer is chosen, or what is sent, and why."
)
@click.option("-v", "--verbose", is_flag=True, help="Show on stderr what is sent and received.")
@click.option(
    "--seed", metavar="N", type=int, default=0, show_default=True, help="Seeds what mocks generate."
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
    passthrough: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Call a tool.

    The result goes to stdout, everything else to stderr; the exit code says the outcome. `key=text` passes
    a text, which the tool's schema may turn into a number or boolean; `key:=json` passes any JSON value.
    """
    arguments = read_arguments(words, args_file)
    modes = {name: mode} if mode is not None else {}
    runtime = open_runtime(reading, modes=modes, seed=seed, passthrough=passthrough)
    print_refusals(runtime)
    with log_exchanges() if verbose else nullcontext():
        result = asyncio.run(_answer(runtime, name, arguments, explain=explain, dry_run=dry_run))
    if dry_run and not as_json and planned_request(_plan(result)) is not None:
        _echo(sent_lines(_plan(result)))
        return
    ctx.exit(print_result(result, as_json=as_json, worded=bool(words)))


def print_result(result: Result, *, as_json: bool, worded: bool) -> int:
    """Print what came of a call, and return its exit code.

    Args:
        result: What came of it.
        as_json: Whether stdout is one JSON document.
        worded: Whether arguments were given as words, so that a hint on their types may help.
    """
    for line in answer_lines(result, as_json=as_json):
        click.echo(line, color=True)  # else click would take colours out of what is not ours
    if not as_json and result.outcome is not Outcome.OK:
        print_failure(result)
        if result.error is not None and result.error.code == Untrusted.code:
            warn_idle_variable()
    if worded and not as_json and _wants_another_type(result):
        click.echo(
            "hint: `key=text` passes a text; write `key:=json` for numbers, booleans, lists, objects",
            err=True,
        )
    return exit_codes.OF_OUTCOME[result.outcome]


async def _answer(
    runtime: Runtime, name: str, arguments: dict[str, JSON], *, explain: bool, dry_run: bool
) -> Result:
    # Not entered: that would start every MCP server, and one tool is called.
    async with aclosing(runtime):
        if dry_run or explain:
            planned = await runtime.dry_run(name, arguments)
            if explain:
                _tell_plan(planned)
            if dry_run:
                return planned
        result = await _called(runtime, name, arguments)
        if result.outcome is Outcome.NOT_FOUND and engine_of(runtime).undiscovered:
            await runtime.discover()  # so that near misses are told
            result = await _called(runtime, name, arguments)
        return result


async def _called(runtime: Runtime, name: str, arguments: dict[str, JSON]) -> Result:
    async for event in runtime.stream(name, arguments):
        if isinstance(event, Result):
            return event
        _tell_event(event)
    raise AssertionError("a stream ends with a result")


def _plan(planned: Result) -> Any:
    """What a dry run says would happen; None for a call that gets no answer, which says so itself."""
    return planned.value["plan"] if isinstance(planned.value, dict) else None


def _tell_plan(planned: Result) -> None:
    """Say which answer is chosen, or what is sent, and why."""
    plan: Any = _plan(planned)
    if planned_request(plan) is not None:
        told: Any = planned.value
        _echo(reason_lines(plan, told["arguments"]), err=True)
    elif plan is not None:
        _echo(outline({"plan": plan}), err=True)


def _echo(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(escape_terminal(line), err=err)


def _tell_event(event: Progress | Partial) -> None:
    """Show what arrives before the result, to whoever sits at a terminal."""
    if sys.stderr.isatty():
        click.echo(escape_terminal(event_line(event)), err=True)


def event_line(event: Progress | Partial) -> str:
    """What arrives before a result, on one line."""
    if isinstance(event, Partial):
        return part_line(event.content)
    total = f"/{event.total:g}" if event.total is not None else ""
    return f"[{event.progress:g}{total}] {event.message}".rstrip()


def _wants_another_type(result: Result) -> bool:
    faults: Any = result.error.details.get("violations", ()) if result.error is not None else ()
    return result.outcome is Outcome.INVALID_ARGUMENTS and any(fault["keyword"] == "type" for fault in faults)


LOGGER = "toolcrib.http"
"""What modes tell, at level DEBUG, of the exchanges that they make: a line of an exchange in each record's line."""


def planned_request(plan: Any) -> Mapping[str, Any] | None:
    """What a plan would send; None for the plan of a mode that sends nothing."""
    request = plan.get("request") if isinstance(plan, dict) else None
    return request if isinstance(request, dict) else None


def sent_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The request of a plan as it stands on the wire, and the command that sends the same."""
    yield from _request_lines(plan["request"])
    yield ""
    yield from plan["curl"].split("\n")


def _request_lines(request: Mapping[str, Any]) -> Iterator[str]:
    yield f"{request['method']} {request['url']}"
    for name, value in request["headers"]:
        yield f"{name}: {value}"
    body = request["body"]
    if isinstance(body, dict):
        yield f"[{body['type'] or 'of no type'}, {body['bytes']:,} bytes]"
    elif body is not None:
        yield ""
        yield from body.splitlines()


def reason_lines(plan: Mapping[str, Any], given: Collection[str]) -> Iterator[str]:
    """The request of a plan, where each part of it was written, and what bounds the call.

    Args:
        plan: What would happen.
        given: The names of the arguments that there are.
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
def log_exchanges() -> Iterator[None]:
    """Print every exchange of the block on stderr, as it is made."""
    logger, teller = logging.getLogger(LOGGER), _Teller()
    level = logger.level
    logger.addHandler(teller)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(teller)


class _Teller(logging.Handler):
    """Prints records for a terminal; what comes from elsewhere can't steer it."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(escape_terminal(record.getMessage()), err=True)
