"""Calls as assertions see them: which of them count, what they answered, and how they are told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import compact, text_for_model
from toolcrib.executors.client.client_call import DECLINED
from toolcrib.provider.conversations import CallRecord
from toolcrib.schema.validation.violations import count, shorten, show
from toolcrib.security.redaction import redact

_TOLD: Final = 12
"""Calls that a message tells; the others are counted."""

_LONGEST: Final = 120
"""Characters that a message spends on the arguments of a call."""

_ENDLESS: Final = 1 << 30


def made(calls: Iterable[CallRecord], *, ignore_validation: bool = False) -> list[CallRecord]:
    """The calls that reached their tool; with `ignore_validation` also those whose arguments were refused."""
    return [
        call
        for call in calls
        if call.reached
        or call.outcome is Outcome.OK
        or (ignore_validation and call.outcome is Outcome.INVALID_ARGUMENTS)
    ]


def good(calls: Iterable[CallRecord], *, ignore_validation: bool = False) -> list[CallRecord]:
    """The calls that ended `ok`, or that a person declined: the model has done its part.

    With `ignore_validation` also those whose arguments were refused.
    """
    return [
        call
        for call in calls
        if call.outcome is Outcome.OK
        or call.code == DECLINED
        or (ignore_validation and call.outcome is Outcome.INVALID_ARGUMENTS)
    ]


def of_tools(calls: Iterable[CallRecord], tools: Collection[str] | None) -> list[CallRecord]:
    """The calls of some tools; all of them where none is named."""
    return [call for call in calls if not tools or call.tool in tools]


def answered(call: CallRecord) -> str:
    """The whole text of what a call answered, or of why it failed; empty while it waits."""
    if call.outcome is None:
        return ""
    if call.outcome is Outcome.OK:
        return text_for_model(Result.ok(call.value, content=call.content), _ENDLESS)
    failure = Result.failed(call.outcome, call.message, code=call.code or None, content=call.content)
    return text_for_model(failure, _ENDLESS)


def ending(call: CallRecord) -> str:
    """How a call ended, in a word or two."""
    if call.outcome is None:
        return "waiting"
    return f"{call.outcome} ({call.code})" if call.code not in {"", call.outcome} else call.outcome.value


def told(call: CallRecord) -> str:
    """A call in a few words: `get_order({"id":"ORD-1"}) ok`."""
    arguments = "?" if call.arguments is None else as_text(redact(call.arguments)) if call.arguments else ""
    return f"{shorten(call.tool)}({shorten(arguments, _LONGEST)}) {ending(call)}"


def listed(calls: Sequence[CallRecord], words: str = "calls") -> str:
    """All calls in order, as a sentence."""
    if not calls:
        return f"no {words}"
    lines = [told(call) for call in calls[:_TOLD]]
    more = [f"{len(calls) - _TOLD} more"] if len(calls) > _TOLD else []
    return f"{words}: " + ", ".join([*lines, *more])


def near(tool: str, calls: Iterable[CallRecord], others: Iterable[str] = ()) -> str:
    """What was called under a name like this one, as the end of a sentence; empty if nothing was.

    Args:
        tool: What was wanted.
        calls: What was called.
        others: Names that are wanted as well, so that none of them is a slip of this one.
    """
    names = {call.tool for call in calls}
    hint = "" if tool in names else did_you_mean(tool, names - {*others})
    return f" ({hint})" if hint else ""


def times(number: int) -> str:
    """`2 times`."""
    return count(number, "time")


def same(wanted: JSON, got: JSON) -> bool:
    """Whether a value is as wanted: of objects the keys that are named, null for any; numbers equal their texts."""
    if wanted is None:
        return True
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(
            key in got and same(value, got[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(same, wanted, got))
    if isinstance(got, list | dict) or got is None:
        return False
    return as_text(wanted) == as_text(got) or (_is_number(wanted) and _is_number(got) and wanted == got)


def as_text(value: JSON) -> str:
    """A value as a regular expression sees it: a text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return compact(value)
    except ValueError:
        return show(value)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
