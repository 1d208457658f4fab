"""Calls that wait for an answer which a scenario does not give: what to write, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from toolcrib.core.errors import ConfigurationError
from toolcrib.executors.client.client_call import DEFERRED
from toolcrib.provider import Conversation

_APPROVED, _FULFILLED = "{approve: true}", "{result: ...}"


class PendingCalls:
    """The calls of a conversation that wait.

    Attributes:
        calls: The name of the tool of each, and the YAML of an answer to it.

    Args:
        conversation: As far as it came.
        named: What the document calls a tool.
    """

    def __init__(self, conversation: Conversation, named: Callable[[str], str]) -> None:
        self.calls = {
            each.id: (named(each.tool), _FULFILLED if each.code == DEFERRED else _APPROVED)
            for each in conversation.pending
        }

    def left(self) -> tuple[str, ...]:
        """The lines that tell of the last turn that it waits."""
        return (
            f"the last turn waits for {self._tools()}",
            f"add `- {self._answers()}` below, or `verify: {{stop: pending}}`",
            *self._fulfilling(),
        )

    def unheard(self) -> tuple[str, ...]:
        """The lines that tell of a turn that the user can't speak in it."""
        return (
            f"{self._tools()} waits for an answer, so the user can't speak yet",
            f"add `- {self._answers()}` before this turn",
            *self._fulfilling(),
        )

    def misheard(self, error: ConfigurationError, written: Iterable[str]) -> tuple[str, ...]:
        """The lines that tell of a turn that it answers what does not wait, or not all that does.

        Args:
            error: What the loop says of it.
            written: By which names the turn answers.
        """
        way = f"write `{self._answers(written)}`" if self.calls else "no call waits here: leave this turn out"
        return (*error.message.splitlines(), way)

    def _tools(self) -> str:
        return ", ".join(dict.fromkeys(f"`{tool}`" for tool, _answer in self.calls.values()))

    def _answers(self, written: Iterable[str] = ()) -> str:
        """The answers to all calls: by the ids that somebody uses, else by tool."""
        by_id = not self.calls.keys().isdisjoint(written)
        told = {id_ if by_id else tool: answer for id_, (tool, answer) in self.calls.items()}
        return f"answers: {{{', '.join(f'{name}: {answer}' for name, answer in told.items())}}}"

    def _fulfilling(self) -> Iterator[str]:
        tools = dict.fromkeys(tool for tool, answer in self.calls.values() if answer == _FULFILLED)
        if tools:
            told = ", ".join(f"{tool}: grant" for tool in tools)
            yield f"or have the caller fulfil it: `client: {{{told}}}` in the agent or the turn"
