"""Calls that reach out, for people: what would be sent and why, and what went over the wire."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from toolcrib.cli.value_output import table
from toolcrib.core.text import compact, escape_terminal

LOGGER = "toolcrib.http"
"""What modes tell, at level DEBUG, of the exchanges that they make: a line of an exchange in each record's line."""


def request_of(plan: Any) -> Mapping[str, Any] | None:
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
def telling_exchanges() -> Iterator[None]:
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
