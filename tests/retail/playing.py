"""Plays sessions, by the reading of the English rules and by tools of a runtime, so that they can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retail.reading import COLLECTIONS, Retail, Store
from retail.worlds import ToolCall
from toolcrib import Outcome, Result, Runtime
from toolcrib.simulation.store import store_of

PACK = Path(__file__).resolve().parents[2] / "packs" / "retail"


class Played(NamedTuple):
    """What came of a session, as texts, so that equal means equal to the byte.

    Attributes:
        answers: Of each call: JSON of the value, or of the text of the error.
        changed: `collection/key` and JSON of each row that is unequal to what it was, sorted.
    """

    answers: tuple[str, ...]
    changed: tuple[tuple[str, str], ...]

    def differs_from(self, other: Played, calls: Sequence[ToolCall]) -> str:
        """The first difference, for people; empty where there is none."""
        for call, mine, theirs in zip(calls, self.answers, other.answers, strict=True):
            if mine != theirs:
                return f"{call.tool} {json.dumps(call.arguments)}\n  {mine}\nbut\n  {theirs}"
        if self.changed != other.changed:
            return f"changed rows\n  {self.changed}\nbut\n  {other.changed}"
        return ""


def read(store: Store, calls: Iterable[ToolCall], rules: Callable[[Store], Retail] = Retail) -> Played:
    """What the reading answers and changes."""
    retail = rules(store)
    answers = [json.dumps(retail.answer(*call)) for call in calls]
    return Played(tuple(answers), as_texts(retail.changed_rows()))


async def ask(runtime: Runtime, calls: Iterable[ToolCall]) -> Played:
    """What the tools of a runtime answer and change in a fresh session.

    Raises:
        AssertionError: A call that failed has changed the store.
    """
    session = runtime.session()
    answers = []
    for call in calls:
        before = store_of(session).version
        result = await session.call(*call)
        answers.append(answered(result))
        if result.outcome is not Outcome.OK:
            assert store_of(session).version is before, f"{call} failed and has changed rows"
    return Played(tuple(answers), as_texts(store_of(session).changed()))


def answered(result: Result) -> str:
    """An answer as the reading gives it; what is neither a value nor an error of the tool, with its outcome."""
    if result.outcome is Outcome.OK:
        return json.dumps(result.value)
    if result.outcome is Outcome.TOOL_ERROR:
        (part,) = result.content
        return json.dumps(part.text)
    return f"{result.outcome.value}: {result.message}"


def as_texts(changed: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """`collection/key` and JSON of each changed row."""
    rows = ((f"{name}/{key}", row) for name, keyed in changed.items() for key, row in keyed.items())
    return tuple(sorted((place, json.dumps(row)) for place, row in rows))


def write(folder: Path, store: Store) -> None:
    """Write a store as the pack reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COLLECTIONS:
        (folder / f"{name}.json").write_text(json.dumps(store[name]), encoding="utf-8")


@contextmanager
def opened(folder: Path) -> Iterator[Runtime]:
    """The pack over the store of a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_RETAIL_DATA", str(folder))
        with Runtime.open(PACK, strict=True, index=False) as runtime:
            yield runtime
