"""The effect `error`: it ends a call after effects, which are undone unless they are kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from library import failed, played, refused
from sampling import examples
from toolcrib import Outcome

PAY = """
effects:
- {decrement: "readers.ann.balance", by: "{{ args.n }}"}
- {insert: log, key: "{{ seq('entries') | string }}", value: {n: "{{ args.n }}"}}
- if: "{{ store.readers.ann.balance < 0 }}"
  error: {code: poor, message: "{{ store.readers.ann.balance }} left", status: 402, details: {n: "{{ args.n }}"}}
- {insert: log, value: {paid: true}}
result: "{{ store.readers.ann.balance }}"
"""


def test_the_effects_before_an_error_are_undone():
    refused_, fine = played(PAY, {"n": 4}, {"n": 1}).results
    assert (refused_.outcome, refused_.message) == (Outcome.TOOL_ERROR, "-1.5 left")
    assert refused_.error.as_json() == {
        "code": "poor",
        "message": "-1.5 left",
        "details": {"status": 402, "n": 4},
        "retryable": False,
    }
    assert refused_.meta["mock"] == {"rule": "mock", "reply": 1}
    assert fine.value == 1.5
    ended = played(PAY, {"n": 4})
    assert (ended.changed, ended.session.store.version.numbers) == ({}, {})


def test_kept_effects_remain_and_later_ones_do_not_happen():
    ended = played(PAY.replace("error: {code", "keep: true\n  error: {code"), {"n": 4})
    assert ended.results[0].error.code == "poor"
    assert ended.changed["log"] == {"1": {"n": 4}}
    assert ended.changed["readers"]["ann"]["balance"] == -1.5


def test_an_error_in_a_loop_ends_all_of_it():
    block = """
        effects:
        - for_each: {n: "{{ args.ns }}"}
          do:
          - {insert: log, value: {n: "{{ n }}"}}
          - {if: "{{ n > 2 }}", error: "{{ n }} of {{ store.log | length }}", keep: true}
        result: fine
    """
    ended = played(block, {"ns": [1, 3, 9]}, {"ns": [2]})
    assert [result.message or result.value for result in ended.results] == ["3 of 2", "fine"]
    assert list(ended.changed["log"].values()) == [{"n": 1}, {"n": 3}, {"n": 2}]


def test_a_repeated_call_gets_the_error_again_without_its_effects():
    block = 'idempotent_by: "{{ args.key }}"' + PAY.replace("error: {code", "keep: true\n  error: {code")
    ended = played(block, {"n": 4, "key": "k"}, {"n": 4, "key": "k"})
    assert [result.error.code for result in ended.results] == ["poor", "poor"]
    assert len(ended.changed["log"]) == 1


def test_kept_effects_that_break_a_schema_are_a_mistake_of_the_mock():
    block = """
        effects:
        - {decrement: "books.b2.copies"}
        - {if: "{{ args.n }}", error: no, keep: true}
        result: 1
    """
    result = failed(block, {"n": 1})
    assert result.error.details["cause"] == "row_breaks_schema"
    undone = played(block.replace(", keep: true", ""), {"n": 1})
    assert (undone.results[0].outcome, undone.changed) == (Outcome.TOOL_ERROR, {})


def test_an_error_whose_message_fails_is_a_mistake_of_the_mock():
    result = failed("effects: [{if: '{{ args.n }}', error: '{{ args.m }}'}]\nresult: 1", {"n": 1})
    assert result.error.details["pointer"] == "/mock/effects/0/error/message"


@pytest.mark.parametrize(
    ("effects", "pointers"),
    [
        ("[{error: no}]", ["/mock/effects"]),
        ("[{do: [{goto: {door: open}}, {error: no}]}]", ["/mock/effects"]),
        ("[{error: no}, {goto: {door: open}}]", ["/mock/effects", "/mock/effects/1"]),
        (
            "[{if: '{{ args.x }}', do: [{error: no}, {goto: {door: open}}]}]",
            ["/mock/effects/0/do/1"],
        ),
        ("[{for_each: {x: '{{ args.l }}'}, error: '{{ x }}'}]", []),
        ("[{if: '{{ args.x }}', error: no}, {goto: {door: open}}]", []),
    ],
)
def test_what_no_call_reaches_is_found_when_the_tool_is_loaded(effects, pointers):
    assert refused(f"effects: {effects}\nresult: 1") == [
        ("unreachable_effect", pointer) for pointer in pointers
    ]


@pytest.mark.parametrize(
    "effect",
    [
        "{if: '{{ args.x }}', error: no, by: 1}",
        "{if: '{{ args.x }}', error: no, value: 1}",
        "{if: '{{ args.x }}', error: no, goto: {door: open}}",
        "{if: '{{ args.x }}', goto: {door: open}, keep: true}",
        "{if: '{{ args.x }}', error: no, keep: 1}",
        "{if: '{{ args.x }}', error: 7}",
        "{if: '{{ args.x }}', error: {message: no}}",
    ],
)
def test_an_error_has_only_its_own_keys(effect):
    assert refused(f"effects: [{effect}]\nresult: 1") != []


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=8))
def test_the_store_is_that_of_a_program_which_raises(given_):
    """Each call adds a number, and refuses a negative balance; the program that keeps does not undo."""
    block = """
        effects:
        - {increment: "readers.bob.balance", by: "{{ args.n }}"}
        - {if: "{{ store.readers.bob.balance < 0 and args.keep }}", error: kept, keep: true}
        - {if: "{{ store.readers.bob.balance < 0 }}", error: undone}
        - {increment: "readers.bob.balance", by: 10}
        result: "{{ store.readers.bob.balance }}"
    """
    balance, expected = 0, []
    for n, keep in given_:
        if balance + n >= 0:
            balance += n + 10
            expected.append(balance)
        else:
            balance += n * keep
            expected.append("kept" if keep else "undone")
    ended = played(block, *({"n": n, "keep": keep} for n, keep in given_)) if given_ else None
    if ended is not None:
        assert [result.message or result.value for result in ended.results] == expected
        assert ended.session.store.rows("readers")["bob"]["balance"] == balance
