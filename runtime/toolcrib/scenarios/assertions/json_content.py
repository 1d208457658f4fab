"""Assertions about JSON in what was said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.text import JSON_DECODER, decode_json, json_equal
from toolcrib.expressions.jmespath_queries import compile_select
from toolcrib.scenarios.assertions.calls import as_text
from toolcrib.scenarios.assertions.texts import said
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import Verdict, failed, held, verdict
from toolcrib.schema.validation import Validator, report
from toolcrib.schema.validation.violations import shorten

Params = Mapping[str, Any]

_BLOCK: Final = re.compile(r"```[^\n`]*\n(.*?)\n[ \t]*```", re.DOTALL)
_BEGINS: Final = re.compile(r"[{\[]")

_TRIES: Final = 100
"""Places of a text at which JSON may begin that are looked at."""

_SHOWN: Final = 200
"""Characters of a value that a message shows."""


class _NoJSON(Exception):
    """A reply holds no JSON."""


def is_valid_json(params: Params, trajectory: Trajectory) -> Verdict:
    """The reply is JSON."""
    try:
        value = _value(params, trajectory.reply)
    except _NoJSON as error:
        return failed(str(error))
    return held(f"the reply is {shorten(as_text(value), _SHOWN)}")


def json_schema(params: Params, trajectory: Trajectory) -> Verdict:
    """The reply is JSON that fits a schema."""
    try:
        value = _value(params, trajectory.reply)
    except _NoJSON as error:
        return failed(str(error))
    faults = Validator(params["schema"]).faults(value)
    return verdict(not faults, report(faults).replace("\n", "; ") or "the reply fits the schema")


def json_path(params: Params, trajectory: Trajectory) -> Verdict:
    """What an expression finds in the reply is as described."""
    problems: list[Problem] = []
    select = compile_select(params["expression"], "/expression", problems)
    if select is None:
        return failed(problems[0].message)
    try:
        found = select(_value(params, trajectory.reply))
    except _NoJSON as error:
        return failed(str(error))
    except ValueError as error:
        return failed(f"{params['expression']}: {error}; {said(trajectory.reply)}")
    faults = [*_misfits(params, found)]
    words = f"{params['expression']} is {shorten(as_text(found), _SHOWN)}"
    return verdict(not faults, f"{words}, wanted {' and '.join(faults)}" if faults else words)


def _misfits(params: Params, found: JSON) -> Iterator[str]:
    """What was wanted of a value and is otherwise."""
    if "expected" in params and not json_equal(params["expected"], found):
        yield shorten(as_text(params["expected"]), _SHOWN)
    items = found if isinstance(found, list) else None
    for wanted in params.get("contains", ()):
        if items is None or not any(json_equal(wanted, item) for item in items):
            yield f"a list with {shorten(as_text(wanted))}"
    number = found if isinstance(found, int | float) and not isinstance(found, bool) else None
    if "min" in params and (number is None or number < params["min"]):
        yield f"a number from {params['min']} up"
    if "max" in params and (number is None or number > params["max"]):
        yield f"a number up to {params['max']}"
    if "min_results" in params and (items is None or len(items) < params["min_results"]):
        yield f"a list of at least {params['min_results']}"
    if "max_results" in params and (items is None or len(items) > params["max_results"]):
        yield f"a list of at most {params['max_results']}"
    if found is None and not params.keys() & _DESCRIBING:
        yield "something"


_DESCRIBING: Final = frozenset({"expected", "contains", "min", "max", "min_results", "max_results"})


def _value(params: Params, reply: str) -> JSON:
    """The JSON of a reply, where it may stand.

    Raises:
        _NoJSON: There is none.
    """
    texts = [reply]
    if params.get("allow_wrapped"):
        texts = [*_BLOCK.findall(reply), reply]
    for text in texts:
        try:
            return decode_json(text.strip())
        except (ValueError, RecursionError):
            continue
    if params.get("extract_json"):
        for begin in [*_BEGINS.finditer(reply)][:_TRIES]:
            try:
                found: JSON = JSON_DECODER.raw_decode(reply, begin.start())[0]
            except (ValueError, RecursionError):
                continue
            return found
    hint = "" if {"allow_wrapped", "extract_json"} & params.keys() else _hint(reply)
    raise _NoJSON(f"no JSON; {said(reply)}{hint}")


def _hint(reply: str) -> str:
    return " (`allow_wrapped` looks into code blocks)" if "```" in reply else ""
