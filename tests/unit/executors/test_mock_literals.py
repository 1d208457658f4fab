"""Constants that effects write: what the schema of the rows refuses is told when the tool is loaded."""

from __future__ import annotations

import pytest

from keeping import faults_of, loaded_with
from library import hints, refused, tool

STORE = """
store:
  orders:
    key: id
    schema:
      type: object
      additionalProperties: false
      properties:
        id: {type: string}
        status: {enum: [pending, cancelled]}
        amount: {type: number, minimum: 0}
        never: false
        password: {type: string, maxLength: 3}
        referred: {$ref: "#/$defs/status"}
        inside: {type: object, properties: {referred: {$ref: "#/$defs/status"}, n: {type: integer}}}
        paid: {type: array, items: {type: object, required: [kind], properties: {kind: {enum: [payment, refund]}, note: {}}}}
        cards: {type: object, additionalProperties: {type: object, properties: {balance: {type: number}}}}
        pair: {type: array, prefixItems: [{type: object, properties: {n: {type: integer}}}]}
        mixed: {type: object, patternProperties: {"^x": {type: string}}, additionalProperties: {type: number}}
        either: {anyOf: [{type: string}, {type: "null"}]}
      $defs: {status: {enum: [pending]}}
    rows: {o1: {id: o1, status: pending, amount: 1, paid: [], cards: {c: {balance: 1}}}}
  old: {schema: {$schema: "http://json-schema.org/draft-04/schema#", properties: {n: {minimum: 0, exclusiveMinimum: true}}}, rows: []}
  free: []
"""
ROWS = "rows: {order: {in: orders, key: o1, missing: a}, card: {in: order.cards, key: c, missing: a}}"


def told(effect):
    """What is wrong with a mock that has the effect."""
    return loaded_with(
        tool(f"{ROWS}\neffects: [{effect}]\nresult: ['{{{{ order }}}}', '{{{{ card }}}}']"), STORE
    ).problems


REFUSED = [
    ("{update: order, set: {status: canceled}}", ["set/status"]),
    (
        "{update: order, set: {status: canceled, amount: -1, id: '{{ args.x }}'}}",
        ["set/status", "set/amount"],
    ),
    ("{update: order, set: {status: \"{{ 'cancel' ~ 'ed.' }}\"}}", ["set/status"]),
    ("{update: order, set: {either: 1}}", ["set/either"]),
    ("{update: order, set: {never: 1}}", ["set/never"]),
    (
        "{update: order, set: {paid: [{kind: payment}, {kind: repayment, note: '{{ args.x }}'}]}}",
        ["set/paid/1/kind"],
    ),
    ("{update: order, set: {paid: [{note: 1}]}}", ["set/paid/0/kind"]),
    ("{update: order, set: {inside: {n: x, referred: gone}}}", ["set/inside/n"]),
    ("{update: order, set: {inside: {n: x, referred: '{{ args.x }}'}}}", ["set/inside/n"]),
    ("{update: order.inside, set: {n: 1.5}}", ["set/n"]),
    ("{update: orders, where: {status: pending}, set: {status: gone}}", ["set/status"]),
    ("{update: 'orders[args.x]', set: {status: gone}}", ["set/status"]),
    ("{update: order.paid, first: {kind: refund}, set: {kind: gone}}", ["set/kind"]),
    ("{update: 'order.paid[0]', set: {kind: gone}}", ["set/kind"]),
    ("{update: order.cards.c, set: {balance: much}}", ["set/balance"]),
    ("{update: 'order.cards[args.x]', set: {balance: much}}", ["set/balance"]),
    ("{append: order.paid, value: {kind: gone}}", ["value/kind"]),
    ("{append: order.paid, value: {kind: gone, note: '{{ args.x }}'}}", ["value/kind"]),
    ("{append: order.paid, value: 1}", ["value"]),
    ("{insert: order.cards, key: x, value: {balance: much}}", ["value/balance"]),
    ("{insert: orders, key: x, value: {status: gone}}", ["value/status"]),
    ("{upsert: orders, value: {id: '{{ args.x }}', status: gone}}", ["value/status"]),
    (
        "{for_each: {x: [1]}, do: [{update: order, set: {status: gone, amount: '{{ x }}'}}]}",
        ["do/0/set/status"],
    ),
    ("{insert: old, value: {n: 0}}", ["value/n"]),
]


@pytest.mark.parametrize(("effect", "places"), REFUSED)
def test_a_constant_that_the_schema_refuses_is_told_where_it_stands(effect, places):
    found = [(problem.code, problem.pointer) for problem in told(effect)]
    assert found == [("row_breaks_schema", f"/mock/effects/0/{place}") for place in places]


@pytest.mark.parametrize(
    "effect",
    [
        "{update: order, set: {status: cancelled, amount: 0, either: null, paid: [{kind: refund}]}}",
        "{update: order, set: {status: '{{ args.x }}'}}",
        "{update: order, set: \"{{ {'status': 'gone'} }}\"}",
        "{update: order, set: {referred: gone}}",
        "{update: order.referred, set: {x: 1}}",
        "{update: 'order.pair[0]', set: {n: x}}",
        "{update: order.mixed, set: {x: text}}",
        "{update: card, set: {balance: much}}",
        "{append: order.pair, value: x}",
        "{insert: free, value: {status: gone}}",
        "{insert: orders, key: x, value: {status: pending}}",
        "{insert: orders, key: x, value: '{{ args }}'}",
        "{increment: order.amount}",
    ],
)
def test_what_is_not_certain_is_left_to_the_call(effect):
    assert told(effect) == ()


def test_what_is_meant_is_told():
    (problem,) = told("{update: order, set: {status: canceled}}")
    assert problem.message.startswith("value does not match the schema of `orders`: expected")
    assert "'cancelled'" in problem.message.replace('"', "'")
    assert "did you mean" in problem.hint
    assert "cancelled" in problem.hint
    assert (problem.source, problem.line) == ("tools.yaml", 5)


def test_a_secret_is_not_told():
    (problem,) = told("{update: order, set: {password: hunter2}}")
    assert "hunter2" not in str(problem)


def test_a_key_that_the_schema_does_not_know_is_told_of_inserted_rows_too():
    (problem,) = told("{insert: orders, key: x, value: {statsu: pending}}")
    assert (problem.code, problem.pointer) == ("unknown_row_key", "/mock/effects/0/value/statsu")
    assert "did you mean `status`?" in problem.hint


def test_what_is_no_expression_is_told_once():
    codes = [
        problem.code for problem in told("{update: order, set: {amount: '{{ nope }}', status: '{{ 1 +'}}")
    ]
    assert codes == ["unknown_name", "expression_syntax"]


def test_crud_is_judged_as_what_it_stands_for():
    block = "crud: {update: orders, key: '{{ args.x }}', set: {status: canceled}}"
    assert faults_of(tool(block), STORE) == [("row_breaks_schema", "/mock/crud/set/status")]
    block = "crud: {create: orders, key: '{{ args.x }}', value: {status: canceled}}"
    assert faults_of(tool(block), STORE) == [("row_breaks_schema", "/mock/crud/value/status")]


def test_a_schema_that_is_wrong_itself_judges_nothing():
    store = STORE.replace("enum: [pending, cancelled]", "enum: pending")
    block = "crud: {update: orders, key: '{{ args.x }}', set: {status: canceled}}"
    assert {code for code, _pointer in faults_of(tool(block), store)} == {"invalid_schema"}


BOOK = "rows: {book: {in: books, key: '{{ args.id }}', missing: no}}\n"


@pytest.mark.parametrize(
    ("effect", "code", "place"),
    [
        ("{append: book.tag, value: a}", "unknown_row_key", "append"),
        ("{append: book.shelf.rom, value: a}", "unknown_row_key", "append"),
        ("{append: 'books[args.id].tag', value: a}", "unknown_row_key", "append"),
        ("{increment: 'book.fees[0].dew'}", "unknown_row_key", "increment"),
        ("{delete: book.nope}", "unknown_row_key", "delete"),
        ("{append: book.title, value: a}", "wrong_type", "append"),
        ("{increment: book.title}", "wrong_type", "increment"),
        ("{decrement: book.shelf.room}", "wrong_type", "decrement"),
        ("{update: book.fees, first: {idd: a}, set: {due: 1}}", "unknown_row_key", "first/idd"),
        ("{update: books, where: {titel: a}, set: {copies: 1}}", "unknown_row_key", "where/titel"),
        ("{delete: book.fees, where: {idd: a}}", "unknown_row_key", "where/idd"),
        ("{update: book, set: {isbn: b9}}", "row_breaks_schema", "set/isbn"),
        ("{update: books, where: {copies: 0}, set: {isbn: b9}}", "row_breaks_schema", "set/isbn"),
        ("{update: 'books[args.id]', set: {isbn: b9}}", "row_breaks_schema", "set/isbn"),
    ],
)
def test_places_and_fields_that_no_row_can_have_are_told(effect, code, place):
    assert refused(f"{BOOK}effects: [{effect}]\nresult: 1") == [(code, f"/mock/effects/0/{place}")]


@pytest.mark.parametrize(
    "effect",
    [
        "{append: book.tags, value: a}",
        "{increment: book.copies}",
        "{increment: 'book.fees[0].due'}",
        "{increment: 'book[args.field]'}",
        "{delete: book.shelf.room}",
        "{update: book.fees, first: {id: a}, set: {due: 1}}",
        "{update: books, where: {title: a}, set: {copies: 1}}",
        "{update: book, set: {isbn: '{{ args.id }}'}}",
    ],
)
def test_places_and_fields_that_rows_can_have_are_let_be(effect):
    assert refused(f"{BOOK}effects: [{effect}]\nresult: 1") == []


def test_rows_are_not_looked_for_by_fields_or_at_places_that_no_row_has():
    rows = "{a: {in: books, where: {titel: x}}, b: {in: books, key: b1}, c: {in: b.fee, where: {id: 1}}, d: {in: b.fees, where: {idd: 1}}}"
    assert refused(f"rows: {rows}\nresult: '{{{{ [a, b, c, d] }}}}'") == [
        ("unknown_row_key", "/mock/rows/a/where/titel"),
        ("unknown_row_key", "/mock/rows/c/in"),
        ("unknown_row_key", "/mock/rows/d/where/idd"),
    ]
    assert "did you mean" in hints(f"rows: {rows}\nresult: '{{{{ [a, b, c, d] }}}}'")[0].lower()
