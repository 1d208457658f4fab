"""A conversation, turn by turn: what is typed or piped in, what the model makes of it, and how a turn is broken off."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from types import FrameType
from typing import Any

import click

from toolcrib.cli.chat_approvals import Asking
from toolcrib.cli.chat_commands import Commands
from toolcrib.cli.chat_output import Show
from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import NOTHING
from toolcrib.loading.prompts import Guardrail
from toolcrib.provider import Answer, Conversation, Event, ProviderMiddleware, Stop
from toolcrib.provider.conversations import SinkFailed

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def is_piped() -> bool:
    """Whether what the user says comes out of a pipe or a file."""
    return not sys.stdin.isatty()


async def broken(guardrails: Sequence[Guardrail], conversation: Conversation) -> list[str]:
    """What the last turn said that a guardrail forbids, one line for each of these."""
    if not guardrails:
        return []
    from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415 -- most conversations have none
    from toolcrib.scenarios.assertions import Trajectory, judge  # noqa: PLC0415 -- as above

    lines = []
    texts = Trajectory.of(conversation, conversation.turns).texts
    for each in guardrails:
        for settled in check_guardrails([{"type": each.type, "params": {**each.params}}], "", []):
            verdicts = [await judge(settled, Trajectory(texts=(text,))) for text in texts]
            found = next((verdict for verdict in verdicts if verdict.applies and not verdict.passed), None)
            if found is not None:
                lines.append(f"guardrail `{each.type}`: {each.message or found.message}")
    return lines


class Chat:
    """Holds the turns.

    Attributes:
        conversation: As far as it came.
    """

    def __init__(
        self,
        runner: asyncio.Runner,
        middleware: ProviderMiddleware,
        show: Show,
        asking: Asking,
        *,
        guardrails: Sequence[Guardrail] = (),
    ) -> None:
        """Put together what turns need.

        Args:
            runner: Runs them.
            middleware: The loop.
            show: Tells what happens.
            asking: Answers for calls that wait.
            guardrails: What must be true of what the model says.
        """
        self.conversation = Conversation()
        self._guardrails = guardrails
        self._runner = runner
        self._middleware = middleware
        self._show = show
        self._asking = asking
        self._ended = False

    def one(self, message: str) -> Stop:
        """Hold one turn, and return why it ended."""
        with self._hearing_the_end():
            return self._turn(message)

    def all(self, lines: Iterable[str], commands: Commands) -> list[Stop]:
        """Hold a turn for each line; those that begin with `/` are commands. Returns why they ended."""
        stops = []
        with self._hearing_the_end():
            for line in lines:
                if not line.strip():
                    continue
                self._show.said(line)
                if not line.startswith("/"):
                    stops.append(self._turn(line))
                elif commands.run(line, self.conversation):
                    break
        return stops

    def typed(self, suggested: Sequence[str] = ()) -> Iterator[str]:
        """The lines that somebody types, up to Ctrl-D.

        Args:
            suggested: What the user of a script says, turn by turn; an empty line stands for the next one.
        """
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415 -- editing and history, where there is any
        broken_off = False
        while True:
            try:  # all of it: whoever is impatient presses Ctrl-C more than once
                if broken_off:
                    click.echo("\nCtrl-D or /quit ends the conversation")
                broken_off = False
                line = self._typed_line(suggested)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                if self._ended:
                    raise
                broken_off = True
            else:
                yield line

    def _typed_line(self, suggested: Sequence[str]) -> str:
        turn = self.conversation.turns
        next_line = suggested[turn] if turn < len(suggested) else ""
        if next_line:
            self._show.note(f"(Enter says: {next_line})")
        return input("> ").strip() or next_line

    def _turn(self, text: str) -> Stop:
        stop = self._hold(self.conversation, self.conversation.saying(text), NOTHING)
        while stop is Stop.PENDING:
            answers = self._asking.answers(self.conversation.pending)
            stop = self._hold(self.conversation, self.conversation, answers)
            self._asking.settled()
        for line in self._runner.run(broken(self._guardrails, self.conversation)):
            self._show.warning(line)
        return stop

    def _hold(self, before: Conversation, now: Conversation, answers: Mapping[str, Answer]) -> Stop:
        """Let the model go on; whatever ends that, what was said and called is kept."""
        self.conversation = before._replace(stop=None, detail="", pending=())
        try:
            self.conversation = self._runner.run(self._followed(now, answers))
        except KeyboardInterrupt:
            if self._ended:
                raise
            self._ended_by(Stop.CANCELLED)
            self._show.broken_off()
        except SinkFailed:
            raise
        except ToolcribError as error:
            self._ended_by(Stop.PROVIDER_FAILED)
            self._show.error(error)
        else:
            self._show.stopped(self.conversation)
        assert self.conversation.stop is not None  # noqa: S101 -- each way out has set it
        return self.conversation.stop

    async def _followed(self, now: Conversation, answers: Mapping[str, Answer]) -> Conversation:
        async with aclosing(self._middleware.stream(now, answers, broken_off=self._broken_off)) as items:
            async for item in items:
                if isinstance(item, Conversation):
                    return item
                self._show.event(item)
        raise AssertionError("a turn ends with its conversation")

    def _broken_off(self, events: Sequence[Event], conversation: Conversation) -> None:
        """What the turn came to is kept, and its last calls are shown."""
        self.conversation = conversation
        for event in events:
            self._show.event(event)

    def _ended_by(self, stop: Stop) -> None:
        self.conversation = self.conversation._replace(stop=stop)

    @contextmanager
    def _hearing_the_end(self) -> Iterator[None]:
        """Tell Ctrl-C, which ends a turn, from the signals that end the command as Ctrl-C does elsewhere."""
        main = threading.current_thread() is threading.main_thread()
        before = {number: signal.getsignal(number) for number in _ENDING if main}

        def end(number: int, frame: FrameType | None) -> None:
            self._ended = True
            handler: Any = before[number]
            if callable(handler):
                handler(number, frame)
            raise KeyboardInterrupt

        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
