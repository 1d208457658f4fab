"""Why a call is not made at once: what it says can't be read, it may not be made, or somebody is asked first."""

from __future__ import annotations

import json

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import Call, CallContext, Descriptor, Outcome, Result
from toolcrib.core.text import DuplicateKey, NotFinite, decode_json, truncate
from toolcrib.engine.middleware.arguments import ArgumentCheck
from toolcrib.engine.session import Session
from toolcrib.provider.conversations import Pending
from toolcrib.provider.loop.policy_enforcer import Ledger, Rulebook
from toolcrib.provider.loop.tool_offer import Offering
from toolcrib.provider.messages import ToolCall
from toolcrib.provider.models.protocol import Finish

REFUSED_ANSWER = "answer_refused"

_SHOWN = 100
"""Bytes of a name that is shown to the model that made it up."""


class Gate:
    """Judges calls of one round.

    Attributes:
        offering: The tools, as the model knows them in this round.
    """

    offering: Offering

    def __init__(self, session: Session, rulebook: Rulebook) -> None:
        self._session = session
        self._rulebook = rulebook
        self._only: str | None = None

    def enter(self, offering: Offering, choice: str) -> None:
        """A round begins.

        Args:
            offering: The tools.
            choice: `auto`, `required`, `none`, or the name of the tool that must be called.
        """
        self.offering = offering
        self._only = {"auto": None, "required": None, "none": ""}.get(choice, choice)

    def now(self) -> float:
        """Seconds since 1970 on the session's clock."""
        return self._session.clock.now().timestamp()

    def tool(self, name: str) -> Descriptor | None:
        """A tool of the session, offered or not; None for one that is not there."""
        return self._session.registry.get(name)

    def refusal(self, call: ToolCall, ledger: Ledger, finish: Finish) -> Result | Pending | None:
        """Why a call is not made, or what it waits for; None where it is made now."""
        if not finish.is_complete:
            return _unfinished(call, finish)
        now, known = self.now(), self.offering.knows(call.name)
        refused = ledger.judge(call, now, known=known, only=self._only)
        if refused is None and not known:
            return self._unknown(call.name)
        refused = refused or self._hidden(call.name)
        if refused is None and call.arguments is None:
            return _unreadable(call)
        if refused is None and self._rulebook.of(call.name).asks:
            return self._asked(call)
        if refused is None:
            ledger.begin(call, now)
        return refused

    def _unknown(self, name: str) -> Result:
        names = [each.name for each in self.offering.declared(reading=False)]
        near = did_you_mean(name, names) or f"there are {len(names)} tools, and none is like it"
        return Result.failed(Outcome.NOT_FOUND, f"there is no tool `{truncate(name, _SHOWN)}`; {near}")

    def _hidden(self, tool: str) -> Result | None:
        hidden = self.offering.hidden(tool)
        return (
            None if hidden is None else Result.failed(Outcome.UNAVAILABLE, hidden.message, code=hidden.code)
        )

    def _asked(self, call: ToolCall) -> Result | Pending:
        """A call that somebody is asked about; bad arguments bother nobody."""
        tool, arguments = self._session.registry[call.name], call.arguments or {}
        repaired = ArgumentCheck(tool).repaired(Call(tool, arguments, CallContext(self._session)))
        if isinstance(repaired, Result):
            return repaired
        prepared = repaired[0].arguments
        what = f"`{call.name}` waits for an approval"
        return Pending(call.id, call.name, prepared, Outcome.NEEDS_APPROVAL.value, what)


def _unfinished(call: ToolCall, finish: Finish) -> Result:
    """The result of a call in an answer that did not come to its end.

    Nobody knows which of its calls are whole: arguments that are cut off may still be a JSON object, above all `{}`.
    """
    why = f"`{truncate(call.name, _SHOWN)}` was not called: the answer that asks for it"
    if finish.reason == "refused":
        return Result.failed(Outcome.DENIED, f"{why} was refused", code=REFUSED_ANSWER)
    why += " was cut off, so none of its calls is made; write less"
    return Result.failed(Outcome.LIMIT_EXCEEDED, why, code="answer_cut_off")


def _unreadable(call: ToolCall) -> Result:
    """The result of a call whose arguments are no JSON object."""
    why = f"invalid arguments for `{call.name}`: {_why_no_object(call.written)}"
    return Result.failed(Outcome.INVALID_ARGUMENTS, why, code="not_json")


def _why_no_object(written: str) -> str:
    """What is wrong with arguments that can't be read; what is in them is not shown."""
    try:
        value = decode_json(written)
    except json.JSONDecodeError as error:
        return f"expected a JSON object, got no JSON: {error.msg} at character {error.pos}"
    except (DuplicateKey, NotFinite) as error:
        return str(error)
    except (ValueError, RecursionError):
        return "expected a JSON object, got a number too long or objects too deep"
    if isinstance(value, dict):
        return "it is nested too deeply, or something in it is no JSON, such as half of a character"
    kind = {list: "a list", str: "a text", bool: "a boolean"}.get(type(value), "a number")
    return f"expected a JSON object, got {kind}"
