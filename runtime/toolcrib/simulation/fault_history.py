"""The history of the faults of a session: when each happened, and why it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON
from toolcrib.core.protocols import CallSession
from toolcrib.core.text import compact
from toolcrib.simulation.fault_triggers import Condition, Trigger


class FaultAttempt(NamedTuple):
    """An attempt on which a fault was due.

    Attributes:
        tool: The tool.
        call: The number of the call, among those of the tool in the session.
        attempt: The number of the attempt.
        instead: Why the fault did not happen: another fault came first, or something failed. Empty if it
            happened.
        due: False if a condition failed with an error, so that it is unknown whether the fault was due.
    """

    tool: str
    call: int
    attempt: int
    instead: str = ""
    due: bool = True

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        return f"call {self.call} of `{self.tool}`{again}"

    @property
    def told(self) -> str:
        """Why the fault did not happen on this attempt, in words."""
        if not self.due:
            return f"it could not be evaluated on {self}: {self.instead}"
        return f"it was due on {self}, but {self.instead}"


class FaultRecord:
    """The history of one fault in one session. Its size is bounded: only the first attempts are kept in full.

    Attributes:
        trigger: When the fault is due.
        calls: The highest number of a call to one of its tools.
        attempts: The number of attempts that arrived.
        held: The number of attempts that met all conditions, to which `first` and `every` apply.
        unmet: Key of a condition -> the number of attempts that did not meet it.
        times: How often the fault happened.
        fired: The first attempts on which it happened.
        missed: The first attempts on which it was due but did not happen, or could not be evaluated.
    """

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.calls = 0
        self.attempts = 0
        self.held = 0
        self.unmet: Counter[str] = Counter()
        self.times = 0
        self.fired: list[FaultAttempt] = []
        self.missed: list[FaultAttempt] = []
        self._most_attempts = 0
        self._when: list[float] = []

    def arrived(self, call: int, attempt: int, unmet: list[Condition], elapsed: float) -> bool:
        """Count an attempt, and return whether the fault is due on it.

        Args:
            call: The number of its call.
            attempt: The number of the attempt.
            unmet: The conditions that it does not meet.
            elapsed: Seconds since the session began.
        """
        self.attempts += 1
        self.calls = max(self.calls, call)
        self._most_attempts = max(self._most_attempts, attempt)
        # The first and the last time suffice to explain why `between` was never met.
        self._when = [*self._when[:1], elapsed]
        self.unmet.update(condition.key for condition in unmet)
        if unmet:
            return False
        self.held += 1
        return self.trigger.takes(self.held)

    def happens(self, seen: FaultAttempt) -> None:
        """Record that the fault happens to an attempt."""
        self.times += 1
        if len(self.fired) < _KEPT:
            self.fired.append(seen)

    def misses(self, seen: FaultAttempt) -> None:
        """Record that the fault was due but does not happen, or that it could not be evaluated."""
        if len(self.missed) < _KEPT:
            self.missed.append(seen)

    def why_never(self) -> str:
        """Why the fault did not happen, in words."""
        if self.missed:
            return "; ".join(seen.told for seen in self.missed[:_SHOWN])
        conditions = self.trigger.conditions
        # A condition that no attempt met is the reason by itself; otherwise it is their combination.
        blocking = [condition for condition in conditions if self.unmet[condition.key] == self.attempts]
        if self.unmet[READY.key] == self.attempts and not blocking:
            return _NOT_READY
        if blocking:
            return " and ".join(self._words(condition) for condition in blocking)
        if not self.held:
            some = [condition.key for condition in conditions if self.unmet[condition.key]]
            return f"{_listed(some)} were never met together in {_many(self.attempts, 'attempt')}"
        return f"it happens on every {_ordinal(self.trigger.every)} matching attempt, and there {_were(self.held)}"

    def _words(self, condition: Condition) -> str:
        written = condition.written
        if condition.key == "call":
            return f"it waits for {_number('call', written)}, but there {_were(self.calls, 'call')}"
        if condition.key == "attempt":
            most = self._most_attempts
            return f"it waits for {_number('attempt', written)}, but no call had more than {_many(most, 'attempt')}"
        if condition.key == "between":
            seen = " and ".join(dict.fromkeys(format_duration(round(when, 3)) for when in self._when))
            span = written if isinstance(written, list) else ["", ""]
            return f"it waits for the time from {span[0]} to {span[1]}, but the attempts came {seen} into the session"
        tries = _many(self.attempts, "attempt")
        if condition.key == "probability":
            return f"its probability of {compact(written)} never triggered in {tries}"
        if condition.key == "args":
            return f"its `args` matched none of {tries}"
        return f"its `if` was never true in {tries}"

    def why_not_now(self, unmet: list[Condition], call: int) -> list[str]:
        """Why the fault would not happen to the first attempt of a call; empty if it would.

        Args:
            unmet: The conditions that are not met.
            call: The number of the call.
        """
        if unmet:
            return [_not_now(condition, call) for condition in unmet]
        place, trigger = self.held + 1, self.trigger
        # `first` is checked before `every`: the fault is over and no longer waiting.
        if trigger.over(place):
            return [f"it applies only to the first {_many(trigger.first or 0, 'matching attempt')}"]
        return (
            []
            if trigger.takes(place)
            else [f"it happens on every {_ordinal(trigger.every)} matching attempt"]
        )


READY = Condition("ready", None, lambda _call, _number, _scope: False)
"""The condition that the kind of a fault implies, such as an earlier result for `stale`."""


def _not_now(condition: Condition, call: int) -> str:
    key, written = condition.key, condition.written
    if key == "call":
        return f"it waits for {_number(key, written)}, but this is call {call}"
    if key == "attempt":
        return f"it waits for {_number(key, written)}, but this is attempt 1"
    if key == "between":
        span = written if isinstance(written, list) else ["", ""]
        return f"it waits for the time from {span[0]} to {span[1]}"
    texts = {"args": "its `args` do not match", "if": "its `if` is false", READY.key: _NOT_READY}
    return texts.get(key, f"its probability of {compact(written)} does not trigger")


_SHOWN = 3
"""The number of missed attempts that a message describes."""

_KEPT = 50
"""The number of attempts that a record keeps."""

_NOT_READY = "it was not possible yet: no earlier result to repeat, or the rate limit was not reached"


def _number(noun: str, written: JSON) -> str:
    return f"{noun} {written}" if isinstance(written, int) else f"{noun}s {compact(written)}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _were(number: int, noun: str = "") -> str:
    counted = _many(number, noun) if noun else str(number)
    return f"{'was' if number == 1 else 'were'} {counted}"


def _ordinal(number: int) -> str:
    # 11th, 12th, 13th, 111th ... are irregular.
    teen = number % 100 in {11, 12, 13}
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _listed(keys: list[str]) -> str:
    return " and ".join(f"`{key}`" for key in keys)


def records_of(session: CallSession) -> dict[str, FaultRecord]:
    """Name of a fault -> its history in the session, for faults whose tools were called."""
    return session.slot("faults", dict[str, FaultRecord])


def record_of(session: CallSession, name: str, trigger: Trigger) -> FaultRecord:
    """The history of a fault in the session, created on first use."""
    records = records_of(session)
    if name not in records:
        records[name] = FaultRecord(trigger)
    return records[name]


def fired(session: CallSession) -> Mapping[str, int]:
    """Name of a fault -> how often it happened in the session, for faults whose tools were called."""
    return {name: record.times for name, record in records_of(session).items()}


def why_not_due(session: CallSession, name: str) -> str:
    """Why a fault never happened in a session, in words; empty if it did.

    For example: "fault `x` was never due: it waits for call 3, but there were 2 calls".
    """
    record = records_of(session).get(name)
    if record is None:
        return f"fault `{name}` was never due: no call reached its tools"
    if record.times:
        return ""
    verdict = "never happened" if record.missed else "was never due"
    return f"fault `{name}` {verdict}: {record.why_never()}"
