"""A library with books, readers and loans: the store that tests of stateful mocks lend from."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any, NamedTuple

from keeping import calls, changed, faults_of, keeping, loaded_with
from toolcrib import Outcome, Result
from toolcrib.engine.session import Session

LIBRARY = """
store:
  books:
    key: isbn
    schema:
      type: object
      additionalProperties: false
      required: [isbn, title, copies]
      properties:
        isbn: {type: string}
        title: {type: string}
        copies: {type: integer, minimum: 0}
        lent: {type: boolean}
        shelf: {type: object, additionalProperties: false, properties: {room: {type: string}, no: {type: integer}}}
        tags: {type: array, items: {type: string}}
        fees: {type: array, items: {type: object, additionalProperties: false, properties: {id: {}, due: {}}}}
    rows:
    - {isbn: b1, title: Emma, copies: 2, shelf: {room: A, no: 1}, tags: [novel], fees: []}
    - {isbn: b2, title: Ulysses, copies: 0, shelf: {room: B, no: 7}, tags: [], fees: []}
  readers:
    rows:
      ann: {name: Ann, email: ann@x.org, balance: 2.5, loans: [{isbn: b1, days: 3}, {isbn: b2, days: 9}, {isbn: b1, days: 4}], cards: {c1: {kind: gold, points: 5}}}
      bob: {name: Bob, email: bob@x.org, balance: 0, loans: [], cards: {}}
      "7": {name: Cy, email: null, balance: 1, loans: [], cards: {}}
  log: []
state:
  door: [closed, open]
  mood: calm
"""


class Ended(NamedTuple):
    """What became of calls in a row.

    Attributes:
        results: One for each call.
        changed: The rows that differ from those at the beginning.
        session: The session that they were made in.
    """

    results: list[Result]
    changed: dict[str, dict[str, Any]]
    session: Session

    @property
    def value(self) -> Any:
        """The answer of the last call, which ended well."""
        last = self.results[-1]
        assert last.outcome is Outcome.OK, last.message
        return last.value


def tool(block: str, more: str = "input_schema: {}") -> str:
    """The document of a tool whose mock is the block."""
    return f"name: tool\n{more}\nmock:\n{indent(dedent(block).strip(), '  ')}\n"


def played(block: str, *arguments: dict[str, Any], store: str = LIBRARY, **options: Any) -> Ended:
    """Calls in a row of one session, at least one; the first without arguments unless they are given."""
    session = keeping(tool(block), store, **options).session()
    results = calls(session, *(arguments or ({},)))
    return Ended(results, changed(session), session)


def failed(block: str, arguments: dict[str, Any] | None = None) -> Result:
    """A call that a bug of the mock ends, which changes nothing."""
    ended = played(block, arguments or {})
    (result,) = ended.results
    assert result.outcome is Outcome.INTERNAL, result
    assert result.error.code == "mock_failed"
    assert ended.changed == {}
    return result


def refused(block: str, more: str = "input_schema: {}") -> list[tuple[str, str]]:
    """Code and pointer of what is wrong with a mock over the library."""
    return faults_of(tool(block, more), LIBRARY)


def hints(block: str) -> list[str]:
    """The hints of what is wrong with a mock over the library."""
    return [problem.hint for problem in loaded_with(tool(block), LIBRARY).problems]
