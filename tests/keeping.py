"""Mocked tools with a store, from texts: what tests of stateful mocks are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from in_memory import MOCKS
from toolcrib import Executors, Result, Runtime, VirtualClock
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.engine.session import Session
from toolcrib.loading.sources import LoadedDocuments, parse_files
from toolcrib.simulation.store import store_of

ACCOUNTS = """
store:
  accounts:
    key: id
    rows:
    - {id: ada, balance: 10}
    - {id: bob, balance: 0}
  log: []
state:
  till: [closed, open]
  cart: empty
"""


TAKE = """
    rows:
      it: {in: accounts, key: "{{ args.id }}", missing: no such account}
    guard:
    - {if: "{{ it.balance < args.sum }}", error: {code: poor, message: "only {{ it.balance }}"}}
    effects:
    - {decrement: it.balance, by: "{{ args.sum }}"}
    - {insert: log, key: "{{ seq('log') | string }}", value: {who: "{{ args.id }}"}}
    - {goto: {till: open}}
"""
"""The beginning of a reply that takes a sum of an account, and writes that down."""


def loaded_with(
    text: str,
    store: str = ACCOUNTS,
    executors: Executors = MOCKS,
    files: Mapping[str, str | bytes] | None = None,
) -> LoadedDocuments:
    """What is read from the tools of a pack that keeps something."""
    pack = f"name: tests\nversion: 1.0.0\ndescription: Tools of tests.\n{dedent(store)}"
    return parse_files({"pack.yaml": pack, "tools.yaml": dedent(text), **(files or {})}, executors)


def faults_of(text: str, store: str = ACCOUNTS) -> list[tuple[str, str]]:
    """Code and pointer of everything that is wrong with tools beside a store."""
    return [(problem.code, problem.pointer) for problem in loaded_with(text, store).problems]


def keeping(text: str, store: str = ACCOUNTS, *, executors: Executors = MOCKS, **options: Any) -> Runtime:
    """A runtime over tools beside a store, all without error; on virtual time unless told otherwise."""
    found = loaded_with(text, store, executors)
    assert [str(problem) for problem in found.problems if problem.severity == "error"] == []
    return loaded_runtime(found, executors=executors, **{"clock": VirtualClock(), **options})


def session_of(text: str, store: str = ACCOUNTS, **options: Any) -> Session:
    """A session on virtual time over tools beside a store; `options` are those of the session."""
    return keeping(text, store).session(clock=VirtualClock(), **options)


def calls(session: Session | Runtime, *arguments: dict[str, Any] | None, tool: str = "tool") -> list[Result]:
    """The results of calls in a row."""

    async def in_a_row() -> list[Result]:
        return [await session.call(tool, given or {}) for given in arguments]

    return asyncio.run(in_a_row())


def changed(session: Session) -> dict[str, dict[str, Any]]:
    """The rows of a session that differ from those that it began with."""
    return store_of(session).changed()
