"""What somebody at the terminal says of calls that wait: approvals, and results of tools that the caller fulfils."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import click

from toolcrib.cli.chat_output import Show
from toolcrib.core.model import JSON, Client, Result
from toolcrib.core.text import DuplicateKey, compact, decode_json
from toolcrib.engine.runtime import Runtime
from toolcrib.executors.client.client_call import DEFERRED, ClientCall
from toolcrib.provider import Answer, Pending

NOBODY = "nobody was there to ask"
"""Why a call is refused that somebody would have to approve."""


class Asking:
    """Asks for calls that wait.

    Attributes:
        asks: Whether there is somebody to ask.
    """

    def __init__(
        self,
        runtime: Runtime,
        approved: Sequence[str],
        *,
        asks: bool,
        show: Show,
        before: Client | None = None,
    ) -> None:
        """Take what all questions need.

        Args:
            runtime: Binds the mocks of tools that are granted.
            approved: Globs of the tools whose calls are approved without asking.
            asks: Whether there is somebody to ask.
            show: Says what is asked.
            before: Fulfils some tools before anybody is asked.
        """
        self.asks = asks
        self._runtime = runtime
        self._approved = approved
        self._show = show
        self._before = before
        self._granted: set[str] = set()

    async def client(self, call: ClientCall) -> JSON | Result:
        """Fulfil a call as its mock does, if that was granted; else it waits until somebody says so."""
        if self._before is not None and call.tool not in self._granted:
            answer: JSON | Result = await self._before(call)
            return answer
        if call.tool not in self._granted:
            return call.defer()
        bound = self._runtime.engine.in_mode(call.call.tool, "mock")
        return await bound.execute(call.call._replace(tool=call.call.tool._replace(mode="mock")))

    def answers(self, pending: Iterable[Pending]) -> dict[str, Answer]:
        """What is said of calls that wait."""
        return {each.id: self._answer(each) for each in pending}

    def _answer(self, pending: Pending) -> Answer:
        fulfilled = pending.code == DEFERRED
        mocked = fulfilled and self._has_mock(pending.tool)
        if any(fnmatchcase(pending.tool, glob) for glob in self._approved) and (mocked or not fulfilled):
            return self._approve(pending, fulfilled=fulfilled)
        if not self.asks:
            return Answer.reject(NOBODY)
        told = pending.details.get("message") or pending.message
        self._show.note(f"\n{pending.tool} {compact(pending.arguments)}\n{told}")
        try:
            return self._asked(pending, fulfilled=fulfilled, mocked=mocked)
        except (EOFError, KeyboardInterrupt, click.Abort):
            return Answer.reject("the question was left unanswered")

    def _asked(self, pending: Pending, *, fulfilled: bool, mocked: bool) -> Answer:
        ways = [*(["y"] if mocked or not fulfilled else []), "N", "result" if fulfilled else "edit"]
        what = "give its result" if fulfilled else "make the call"
        said = input(f"{what}? [{'/'.join(ways)}] ").strip().casefold()
        if said in {"y", "yes"} and "y" in ways:
            return self._approve(pending, fulfilled=fulfilled)
        if said and ways[-1].startswith(said):
            question = "the result, as JSON or text: " if fulfilled else "the arguments, as a JSON object: "
            try:
                value = self._value(question)
            except DuplicateKey as error:
                self._show.note(f"{error}; the call is refused")
                return Answer.reject()
            if fulfilled:
                return Answer.result(value)
            if isinstance(value, dict):
                return Answer.approve(value)
            self._show.note("that is no JSON object; the call is refused")
        return Answer.reject()

    def _approve(self, pending: Pending, *, fulfilled: bool) -> Answer:
        if fulfilled:
            self._granted.add(pending.tool)
        return Answer.approve()

    def _value(self, question: str) -> JSON:
        written = input(question)
        try:
            return decode_json(written)
        except DuplicateKey:
            raise
        except ValueError:
            return written

    def _has_mock(self, tool: str) -> bool:
        known = self._runtime.registry.get(tool)
        return known is not None and "mock" in known.bindings

    def settled(self) -> None:
        """The calls that were granted have been made; the next ones are asked for again."""
        self._granted.clear()
