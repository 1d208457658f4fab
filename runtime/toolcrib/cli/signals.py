"""How a command ends by a signal: SIGTERM and SIGHUP are what Ctrl-C is, so that servers end with whoever started them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from toolcrib.cli import exit_codes

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Heard:
    """Which signal ends the command.

    Attributes:
        number: Of the signal; that of Ctrl-C unless another one came.
    """

    number: int = signal.SIGINT

    @property
    def code(self) -> int:
        """The exit code: 128 and the number of the signal, as shells have it."""
        return exit_codes.INTERRUPTED - signal.SIGINT + self.number

    @property
    def words(self) -> str:
        """What is told."""
        return (
            "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        )


@contextmanager
def ended_by_signals() -> Iterator[Heard]:
    """Within the block a signal raises KeyboardInterrupt in the main thread, or does what Ctrl-C does.

    One that is ignored from the start, as `nohup` has it, stays so; in another thread nothing can be listened to.
    """
    heard = Heard()

    def end(number: int, frame: FrameType | None) -> None:
        heard.number = number
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(as_ctrl_c):  # shells let what they start in the background ignore Ctrl-C
            raise KeyboardInterrupt
        as_ctrl_c(signal.SIGINT, frame)

    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDING if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield heard
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
