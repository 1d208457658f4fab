"""Which collections of the store a call reads: those that its expressions name, and all where one reads the store."""

from __future__ import annotations

import pytest

from keeping import calls, loaded_with
from library import LIBRARY, tool
from toolcrib import Executors, Outcome, Runtime, VirtualClock
from toolcrib.core.model import Collection, InjectedFault, Origin
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.cache.index import with_row_reader
from toolcrib.registry.registry import Registry

CONTENT = b'{"x": {"n": 1}}'


class Noting:
    """Files that note what is read of them."""

    def __init__(self):
        self.read_names = []

    def read(self, name):
        self.read_names.append(name)
        return CONTENT


def asked(block, faults=()):
    """The result of a call beside a collection `far` whose file has changed, and what was read for it."""
    (known,) = loaded_with(tool(block), LIBRARY.replace("state:", "  far: []\nstate:", 1)).tools
    files = Noting()
    far = with_row_reader(
        Collection("far", "tests/far", file="far.json", digest="of other rows", origin=Origin(files=files))
    )
    fixture = known.fixture._replace(collections={**known.fixture.collections, "far": far})
    registry = Registry([known._replace(fixture=fixture, faults=faults)])
    runtime = Runtime(registry, executors=Executors({"mock": MockExecutor}), clock=VirtualClock())
    (result,) = calls(runtime, None)
    return result, files.read_names


NAMED = [
    'result: "{{ store.books.b1.title }}"',
    "result: \"{{ store['books'].b1.title }}\"",
    'result: "{{ (store.books).b1.title }}"',
    "result: \"{{ store.books | values | pluck('title') | first }}\"",
    "template: \"{% for key in store.books | keys %}{% if key == 'b1' %}{{ store.books[key].title }}{% endif %}{% endfor %}\"",
    'let: {it: "{{ store.books.b1 }}"}\nresult: "{{ it.title }}"',
    'effects: [{update: books.b1, set: {title: "{{ store.books.b1.title }}"}}]\nresult: "{{ store.books.b1.title }}"',
    'guard: [{if: "{{ store.books.b1.copies == 0 }}", error: none}]\nresult: Emma',
    "rules: [{when: {if: \"{{ 'b1' in store.books }}\"}, reply: {result: Emma}}]",
    'idempotent_by: "{{ store.books.b1.title }}"\nresult: Emma',
]


@pytest.mark.parametrize("block", NAMED)
def test_what_names_a_collection_reads_no_other(block):
    result, read = asked(block)
    assert (result.outcome, result.value, read) == (Outcome.OK, "Emma", [])


WHOLE = [
    'result: "{{ store | length }}"',
    "result: \"{{ store['far' if args else 'books'] }}\"",
    'let: {all: "{{ store }}"}\nresult: "{{ all.far }}"',
]


@pytest.mark.parametrize("block", WHOLE)
def test_what_reads_the_store_reads_every_collection(block):
    _result, read = asked(block)
    assert read == ["far.json"]


def test_rows_that_changed_behind_an_index_are_told():
    result, _read = asked('result: "{{ store.far.x }}"')
    assert (result.outcome, result.error.details["cause"]) == (Outcome.INTERNAL, "rows_unreadable")
    assert "`far.json` was changed after it was checked" in result.message


def test_a_fault_reads_what_it_names():
    result, read = asked(
        "result: 1", (InjectedFault("f", "tool", "disconnect", {"if": "{{ 'b1' in store.books }}"}),)
    )
    assert (result.outcome, read) == (Outcome.TRANSPORT_ERROR, [])
    result, read = asked(
        "result: 1", (InjectedFault("f", "tool", "disconnect", {"if": "{{ 'x' in store.far }}"}),)
    )
    assert (result.error.code, read) == ("fault_failed", ["far.json"])


def test_a_loop_may_call_its_element_store():
    block = 'result: {for_each: {store: "{{ [{\'books\': 1}] }}"}, value: "{{ store.books }}"}'
    assert [problem.code for problem in loaded_with(tool(block), LIBRARY).problems] == ["name_taken"]
    result, _read = asked("template: \"{% for store in [{'books': 1}] %}{{ store.books }}{% endfor %}\"")
    assert result.value == 1


def test_a_collection_is_live_under_its_own_name():
    block = """
    let: {before: "{{ store.books.b1.copies }}"}
    effects:
    - {increment: books.b1.copies}
    - {increment: books.b1.copies, by: "{{ store.books.b1.copies }}"}
    result: ["{{ before }}", "{{ store.books.b1.copies }}"]
    """
    assert asked(block)[0].value == [2, 6]
