"""What sees every message of an ACP connection: the recording, the watchdog, and whoever shows the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from toolcrib.core.clock import RealClock
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Clock
from toolcrib.serve.acp.connection_timeline import ConnectionTimeline, SessionEvent, Side, masked_message
from toolcrib.serve.acp.diagnosis import PATIENCE, ConnectionFinding, Watchdog
from toolcrib.serve.acp.recordings import Recorder

Listener: TypeAlias = Callable[[SessionEvent], None]
"""Receives an event; must not block."""


class ConnectionObserver:
    """Passes the messages of a connection to its recording, its watchdog and its listeners.

    After its end, another connection with the same agent may follow, such as one to an agent that was started again.

    Args:
        recorder: Writes the recording; None for none.
        warn: Receives what the watchdog finds; None for no watchdog.
        clock: Clock.
        patience: Seconds after which the watchdog reports a request without an answer.

    Attributes:
        timeline: The current connection so far.
        listeners: Receive the events. Secrets in them are masked.
        recorder: Writes the recording; None for none.
    """

    def __init__(
        self,
        *,
        recorder: Recorder | None = None,
        warn: Callable[[ConnectionFinding], None] | None = None,
        clock: Clock | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.timeline = ConnectionTimeline()
        self.listeners: list[Listener] = []
        self.recorder = recorder
        self._clock = RealClock() if clock is None else clock
        self._start = self._clock.monotonic()
        self._lines: Counter[Side] = Counter()
        self._watchdog = (
            None if warn is None else Watchdog(lambda: self.timeline, warn, self._clock, patience)
        )
        self._over = False

    def message(self, sender: Side, message: JSON, line: int = 0) -> None:
        """See a message.

        Args:
            sender: Who has sent it.
            message: The message.
            line: Number of its line among those of its sender; 0 if it is the next one.
        """
        number = self._number(sender, line)
        # A watchdog shows no values, and masking takes longer than the rest.
        if self.recorder is not None or self.listeners:
            message = masked_message(message)
        if self.recorder is not None:
            self.recorder.message(sender, number, message)
        at = self._clock.monotonic() - self._start
        self._tell(self.timeline.message(sender, message, at=at, line=number), sender, number)

    def invalid_line(self, sender: Side, why: str, text: str = "", line: int = 0) -> None:
        """See a line that is not a message.

        Args:
            sender: Who has sent it.
            why: What is wrong with it.
            text: The line, or its beginning.
            line: As in `message`.
        """
        number = self._number(sender, line)
        if self.recorder is not None:
            self.recorder.invalid_line(sender, number, why, text)
        self._tell(self.timeline.invalid_line(sender, number, why), sender, number)

    def ended(self, why: str = "") -> None:
        """See the end of the connection.

        Args:
            why: Why it has ended.
        """
        if self._over:
            return
        if self.recorder is not None:
            self.recorder.ended(why)
        self._tell(self.timeline.ended(), "", 0)
        self._over = True

    def close(self) -> None:
        """End the connection and the recording."""
        self.ended()
        if self.recorder is not None:
            self.recorder.close()

    async def watch(self) -> None:
        """Report requests that wait too long, until cancelled."""
        if self._watchdog is not None:
            await self._watchdog.run()

    def _number(self, sender: Side, line: int) -> int:
        if self._over:
            self._over = False
            self.timeline = ConnectionTimeline()
            self._lines.clear()
        self._lines[sender] = line or self._lines[sender] + 1
        return self._lines[sender]

    def _tell(self, events: list[SessionEvent], sender: Side | str, line: int) -> None:
        for event in events:
            if self._watchdog is not None:
                self._watchdog.event(event, sender, line)
            for listener in self.listeners:
                listener(event)
