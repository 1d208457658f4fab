"""Lets: values from before the changes, worked out when they are first needed, and once."""

from __future__ import annotations

import pytest

from library import failed, played, refused


def test_a_let_is_an_expression_a_literal_or_a_form():
    block = """
        rows: {ann: {in: readers, key: ann}}
        let:
          name: "{{ ann.name }}"
          fixed: {limit: 3, who: "{{ name }}"}
          days: {for_each: {loan: "{{ ann.loans }}"}, sum: "{{ loan.days }}"}
        result: ["{{ name }}", "{{ fixed }}", "{{ days }}"]
    """
    assert played(block).value == ["Ann", {"limit": 3, "who": "Ann"}, 16]


def test_a_let_is_a_value_from_before_the_changes():
    block = """
        rows: {ann: {in: readers, key: ann}}
        let: {before: "{{ ann.balance }}", all: "{{ store.readers }}", door: "{{ state.door }}"}
        effects: [{increment: ann.balance, by: 1}, {goto: {door: open}}]
        result: ["{{ before }}", "{{ all.ann.balance }}", "{{ store.readers.ann.balance }}", "{{ door }}", "{{ state.door }}"]
    """
    assert played(block).value == [2.5, 2.5, 3.5, "closed", "open"]


def test_a_let_is_worked_out_when_it_is_first_needed():
    block = """
        rows: {reader: {in: readers, key: "{{ args.who }}"}}
        let: {first: "{{ reader.loans[0].days }}"}
        guard:
        - {if: "{{ not reader }}", error: nobody}
        - {if: "{{ reader.loans == [] }}", error: nothing}
        result: "{{ first }}"
    """
    results = played(block, {"who": "x"}, {"who": "bob"}, {"who": "ann"}).results
    assert [result.message or result.value for result in results] == ["nobody", "nothing", 3]


def test_a_let_is_worked_out_once():
    block = 'let: {n: "{{ seq(\'n\') }}"}\nresult: ["{{ n }}", "{{ n + n }}"]'
    assert [result.value for result in played(block, {}, {}).results] == [[1, 2], [2, 4]]


def test_a_let_that_the_answer_alone_reads_is_worked_out_before_the_first_effect():
    block = """
        let: {before: "{{ store.log | length }}"}
        effects: [{insert: log, value: {}}, {insert: log, value: {}}]
        result: ["{{ before }}", "{{ store.log | length }}"]
    """
    assert [result.value for result in played(block, {}, {}).results] == [[0, 2], [2, 4]]


def test_a_let_that_fails_ends_the_call_where_it_is_written():
    result = failed(
        'let: {a: 1, b: "{{ args.x / a }}"}\neffects: [{insert: log, value: "{{ {} }}"}]\nresult: "{{ b }}"',
        {"x": "1"},
    )
    assert result.error.details["pointer"] == "/mock/let/b"
    assert "tools.yaml:4" in result.message


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ('let: {a: "{{ b }}", b: 1}\nresult: "{{ a }}"', ("unknown_name", "/mock/let/a")),
        ('let: {a: "{{ a }}"}\nresult: "{{ a }}"', ("unknown_name", "/mock/let/a")),
        ('let: {store: 1}\nresult: "{{ store }}"', ("name_taken", "/mock/let/store")),
        ('rows: {a: {in: books, key: b1}}\nlet: {a: 1}\nresult: "{{ a }}"', ("name_taken", "/mock/let/a")),
        ("let: {a: 1}\nresult: 1", ("unused_name", "/mock/let/a")),
        ("let: {in: 1}\nresult: 1", ("invalid_name", "/mock/let/in")),
        ("let: {a: '{{ nope() }}'}\nresult: '{{ a }}'", ("unknown_function", "/mock/let/a")),
    ],
)
def test_what_can_never_work_is_found_when_the_tool_is_loaded(block, fault):
    assert fault in refused(block)


def test_an_unread_let_of_a_template_file_is_not_judged():
    assert refused("let: {a: 1}\ntemplate_file: there_is_none.txt") == [
        ("file_unreadable", "/mock/template_file")
    ]
