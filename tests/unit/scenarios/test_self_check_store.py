"""Mocks are proved with rows of their store: unknown keys are found, and so is what fails behind a row that is there."""

from __future__ import annotations

import asyncio
from textwrap import dedent

import pytest

from keeping import loaded_with
from toolcrib import Result, Runtime
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.scenarios.self_check import MOST_WATCHED, run_self_check
from toolcrib.scenarios.store_analysis import StoreSamples, find_arguments
from toolcrib.simulation.store import FRESH

STORE = """
store:
  orders:
    key: id
    rows:
    - {id: W1, total: 5, status: open, user: u1, lines: [{sku: a, price: 2}, {sku: b, price: 3}], to: {city: Oslo}}
    - {id: W2, total: 6, status: sent, user: u2, lines: [], to: {city: Bergen}, note: hi}
  users:
    rows:
      u1: {name: Ada, cards: {c1: {balance: 9}}}
      u2: {name: Bob, cards: {}}
  log: []
state:
  till: [closed, open]
"""

HEAD = """
name: tool
input_schema:
  type: object
  properties: {id: {type: string}, sku: {type: string}, card: {type: string}, why: {type: string}}
  required: [id, sku, card, why]
  additionalProperties: false
mock:
  rows: {order: {in: orders, key: "{{ args.id }}", missing: no such order}}
"""


def problems_of(text, store=STORE, files=None):
    executors = Executors.installed()
    runtime = loaded_runtime(loaded_with(text, store, executors, files), executors=executors)
    assert [str(problem) for problem in runtime.problems] == []
    return asyncio.run(run_self_check(runtime))


def codes_of(text, store=STORE, files=None):
    return [(problem.code, problem.pointer) for problem in problems_of(text, store, files)]


def test_keys_that_no_row_has_are_found_with_those_that_there_are():
    text = HEAD + (
        "  guard: [{if: '{{ order.totl > 3 }}', error: much}]\n"
        "  effects:\n"
        "    - {append: order.lnes, value: {sku: c}}\n"
        "  result: '{{ order.to.cty }}'\n"
    )
    told = [
        (problem.code, problem.severity, problem.pointer, problem.line, problem.hint)
        for problem in problems_of(text)
    ]
    assert told == [
        ("unknown_row_key", "error", "/mock/guard/0/if", 10, "did you mean `total` or `to`?"),
        ("unknown_row_key", "error", "/mock/effects/0/append", 12, "did you mean `lines`?"),
        ("unknown_row_key", "error", "/mock/result", 13, "did you mean `city`?"),
    ]
    message = problems_of(text)[0].message
    assert message == (
        "unknown key `totl` in `order`; its keys are `id`, `lines`, `note`, `status`, `to`, `total`, `user`"
    )


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ("let: {x: '{{ order.to }}'}\n  result: '{{ x.cty }}'", "/mock/result"),
        ("let: {x: '{{ store.users[order.user] }}'}\n  result: '{{ x.nme }}'", "/mock/result"),
        ("result: {for_each: {line: '{{ order.lines }}'}, value: '{{ line.skuu }}'}", "/mock/result/value"),
        ("result: '{{ (order.lines | find(sku=args.sku)).prce }}'", "/mock/result"),
        ("result: '{{ order.lines[0].prce }} {{ order.lines[:1][0].price }}'", "/mock/result"),
        ("result: '{{ (store.users | values | first).nme }}'", "/mock/result"),
        ("result: '{{ order[\"totl\"] }}'", "/mock/result"),
        (
            "effects: [{update: order.lines, where: '{{ row.prce == 1 }}', set: {price: 2}}]\n  result: 1",
            "/mock/effects/0/where",
        ),
        ("effects: [{delete: order.lines, first: {skuu: a}}]\n  result: 1", "/mock/effects/0/first/skuu"),
        ("effects: [{increment: 'orders[args.id].totl'}]\n  result: 1", "/mock/effects/0/increment"),
    ],
)
def test_a_key_is_looked_for_where_rows_have_it(part, pointer):
    # Whatever the reply says first, no call gets there.
    never = "guard: [{if: '{{ args.id != 1 }}', error: never}]"
    assert ("unknown_row_key", pointer) in codes_of(f"{HEAD}  {never}\n  {part}\n")


def test_keys_that_effects_write_are_known():
    text = HEAD + (
        "  effects:\n"
        "    - {update: order, set: {sent: true, by: {who: '{{ args.why }}'}}}\n"
        "    - {append: order.lines, value: {sku: '{{ args.sku }}', extra: 1}}\n"
        "    - {insert: log, value: {at: now}}\n"
        "  result: '{{ order.by.who }} {{ order.lines[-1].extra }} {{ store.log | values }}'\n"
        "---\n"
    )
    other = HEAD.replace("name: tool", "name: other") + (
        '  result: {sent: "{{ order[\'sent\'] }}", log: {for_each: {row: "{{ store.log | values }}"}, value: "{{ row.at }}"}}\n'
    )
    assert codes_of(text + other) == []


def test_keys_of_rows_of_a_scenario_are_known():
    scenario = "\n---\nscenario: s\nstore: {orders: [{id: W3, gift: true}]}\nsteps: [{call: tool, args: {id: W3, sku: a, card: b, why: c}}]\n"
    result = "  result: \"{{ order['gift'] }}\"\n"
    assert codes_of(HEAD + result) == [("unknown_row_key", "/mock/result")]
    assert codes_of(HEAD + result + scenario) == []


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("{{ order.note }}", [("reply_fails", "/mock/result")]),
        ("{{ order['note'] }}", []),
        ("{{ order.note if 'note' in order else 'none' }}", []),
        ("{{ order.note if order.status == 'sent' else 'none' }}", []),
        ("{{ order.note if order.status == 'open' else 'none' }}", [("reply_fails", "/mock/result")]),
    ],
)
def test_a_key_that_some_rows_have_is_told_only_where_reading_it_fails(result, told):
    assert codes_of(f'{HEAD}  result: "{result}"\n') == told


@pytest.mark.parametrize(
    "effect",
    [
        "{insert: orders, value: '{{ args.row }}'}",
        "{update: order, set: '{{ args.row }}'}",
        '{upsert: orders, value: \'{{ {"id": "a"} }}\'}',
    ],
)
def test_what_an_effect_computes_may_have_any_key_and_that_is_told(effect):
    tool = """
name: writes
input_schema: {type: object, properties: {row: {type: object}}, required: [row], additionalProperties: false}
mock:
  rows: {order: {in: orders, key: W1}}
  effects: [{if: "{{ args.row == 7 and order }}", do: [EFFECT]}]
  result: 1
---
"""
    (problem,) = problems_of(tool.replace("EFFECT", effect) + HEAD + "  result: \"{{ order['gift'] }}\"\n")
    assert (problem.code, problem.severity, problem.pointer) == ("unknown_row_key", "notice", "/mock/result")
    assert "this is inferred from rows and effects, and rows may have other keys" in problem.message


def test_rows_that_are_only_ever_computed_may_have_any_key_and_that_is_told():
    tool = """
name: tool
input_schema: {type: object, properties: {row: {type: object}}, required: [row], additionalProperties: false}
mock:
  let: {first: "{{ store.log | values | first }}"}
  effects: [{insert: log, value: "{{ args.row }}"}]
  result: "{{ first and first['sum'] }}"
"""
    (problem,) = problems_of(tool)
    assert (problem.code, problem.severity, problem.pointer) == ("unknown_row_key", "notice", "/mock/result")
    assert problem.message.startswith("unknown key `sum` in `first`; it has no keys")


def test_rows_with_an_open_schema_may_have_any_key_and_that_is_told():
    store = "store: {orders: {rows: {W1: {total: 5}}, schema: {type: object, properties: {gift: {type: string}}}}}\n"
    told = [
        (problem.severity, problem.hint)
        for problem in problems_of(HEAD + "  result: \"{{ order['totl'] }} {{ order['gift'] }}\"\n", store)
    ]
    assert told == [("notice", "did you mean `total`?")]


def test_an_open_schema_without_rows_is_told_too():
    store = "store: {orders: {rows: {}, schema: {type: object, properties: {total: {type: number}}}}}\n"
    told = [
        (problem.code, problem.severity, problem.hint)
        for problem in problems_of(HEAD + "  result: \"{{ order['totl'] }}\"\n", store)
    ]
    assert told == [("unknown_row_key", "notice", "did you mean `total`?")]


def test_values_are_found_that_fit_each_other():
    text = (
        HEAD.partition("  rows:")[0]
        + """
  rows:
    order: {in: orders, key: "{{ args.id }}", missing: no such order}
    user: {in: users, key: "{{ order.user }}"}
    card: {in: user.cards, key: "{{ args.card }}"}
  guard:
    - {if: "{{ order.status != 'open' }}", error: closed}
    - {if: "{{ order.lines | count_of(sku=args.sku) == 0 }}", error: no such line}
    - {if: "{{ args.why not in ['lost', 'late'] }}", error: no such reason}
    - {if: "{{ not card }}", error: no such card}
    - {if: "{{ args.why == 'late' and card.balance < 'x' }}", error: poor}
  result: 1
"""
    )
    (problem,) = problems_of(text)
    assert (problem.code, problem.pointer) == ("reply_fails", "/mock/guard/4/if")
    for given in ('"id":"W1"', '"card":"c1"', '"why":"late"'):
        assert given in problem.message


def test_rows_that_another_call_has_made_are_read():
    text = HEAD + "  result: '{{ order.total }}'\n"
    creates = """
---
name: create
input_schema: {type: object, properties: {id: {type: string}}, required: [id], additionalProperties: false}
mock:
  rows: {order: {in: orders, key: "{{ args.id }}"}}
  guard: [{if: "{{ order is not none }}", error: there}]
  effects: [{insert: orders, value: {id: "{{ args.id }}", status: open}}]
  result: 1
"""
    (problem,) = problems_of(text + creates)
    assert (problem.code, problem.pointer) == ("reply_fails", "/mock/result")
    assert problem.message.startswith("after `create` with {")
    assert "`order` has no `total`" in problem.message


def test_states_are_reached_that_another_call_goes_to():
    text = """
name: opens
mock: {effects: [{goto: {till: open}}], result: 1}
---
name: takes
mock:
  rules:
  - {when: {state: {till: open}}, reply: {result: "{{ state.till + 1 }}"}}
  - {reply: {error: closed}}
"""
    (problem,) = problems_of(text)
    assert (problem.code, problem.pointer) == ("reply_fails", "/mock/rules/0/reply/result")
    assert problem.message.startswith("after `opens` with {}")


def test_a_mock_that_is_right_has_no_problems():
    text = HEAD + (
        "  guard: [{if: '{{ order.total > 5 }}', error: '{{ order.status }} {{ order.to.city }}'}]\n"
        "  effects: [{increment: order.total, by: 1}, {append: order.lines, value: {sku: '{{ args.sku }}', price: 1}}]\n"
        "  result: {for_each: {line: '{{ order.lines }}'}, sum: '{{ line.price }}'}\n"
    )
    assert codes_of(text) == []


def test_one_row_that_lacks_a_key_is_found_among_many():
    rows = "".join(f"    - {{id: W{number}, total: {number}}}\n" for number in range(3_000))
    store = f"store:\n  orders:\n    key: id\n    rows:\n{rows}    - {{id: last}}\n"
    assert codes_of(HEAD + "  result: '{{ order.totl }}'\n", store) == [("unknown_row_key", "/mock/result")]
    (problem,) = problems_of(HEAD + "  result: '{{ order.total + 1 }}'\n", store)
    assert (problem.code, problem.pointer) == ("reply_fails", "/mock/result")
    assert '"id":"last"' in problem.message


def test_what_a_scenario_wants_of_rows_that_no_row_can_be_is_found():
    text = (
        HEAD
        + "  effects: [{update: order, set: {sent: true}}]\n  result: 1\n"
        + (
            "---\nscenario: s\nsteps: [{call: tool, args: {id: W1, sku: a, card: b, why: c}}]\n"
            "verify:\n"
            "  store:\n"
            "    orders: {W1: {statuss: {$any: [open, sent]}, sent: true}, W2: {lines: [{skuu: a}], gone: {$exists: false}}}\n"
        )
    )
    told = [(problem.code, problem.pointer, problem.line) for problem in problems_of(text)]
    assert told == [
        ("never_matches", "/verify/store/orders/W1/statuss", 17),
        ("never_matches", "/verify/store/orders/W2/lines/0/skuu", 17),
    ]
    assert problems_of(text)[0].message == "rows of `orders` never have `statuss`"


def found_by(text, tried, call=None, most=MOST_WATCHED):
    """The arguments that are found for a tool, and how often it was called."""
    executors = Executors.installed()
    (tool,) = loaded_with(text, STORE, executors).tools
    fixture, met = StoreSamples().of(tool.fixture, FRESH)
    calls = []

    async def watched(arguments):
        calls.append(arguments)
        if call is not None:
            call(fixture, arguments)
        return Result.success()

    return asyncio.run(find_arguments(tool, tried, met, watched, most)), len(calls)


GIVEN = {"id": "x", "sku": "y", "card": "z", "why": ""}


def test_what_an_argument_is_looked_up_among_or_compared_with_takes_its_place():
    def call(fixture, arguments):
        row = fixture.collections["orders"].rows.get(arguments["id"])
        return row is not None and row["status"] == arguments["sku"]

    found, _calls = found_by(HEAD + "  result: 1\n", [GIVEN], call)
    assert [(given["id"], given["sku"]) for given in found] == [
        ("W1", "y"),
        ("W2", "y"),
        ("W1", "open"),
    ]


def test_no_more_calls_are_watched_than_may_be():
    def call(fixture, arguments):
        for part in arguments.values():
            fixture.collections["users"].rows.get(part)

    tried = [{**GIVEN, "id": f"x{number}"} for number in range(50)]
    assert found_by(HEAD + "  result: 1\n", tried, call, most=20)[1] == 20


def test_a_pattern_matches_texts_of_rows(caplog):
    """The texts of rows that note what is compared with them are matched as any other."""
    text = HEAD + "  result: \"{{ order.status is matching('op.*') and order.totl }}\"\n"
    assert codes_of(text) == [("unknown_row_key", "/mock/result")]
    fine = HEAD + "  guard: [{if: \"{{ order.status is matching('x.*') }}\", error: odd}]\n  result: 1\n"
    assert (codes_of(fine), caplog.records) == ([], [])


def test_a_mock_that_reads_an_optional_argument_after_it_has_found_a_row_is_reported(tmp_path):
    tool = """
        name: book
        input_schema:
          type: object
          required: [room]
          properties: {room: {type: string}, note: {type: string}}
          additionalProperties: false
        mock:
          rows: {found: {in: rooms, key: "{{ args.room }}", missing: No such room.}}
          result: "{{ found.name ~ ': ' ~ args.note }}"
    """
    (tmp_path / "pack.yaml").write_text(
        "name: rooms\nversion: 1.0.0\nstore: {rooms: {rows: {A: {name: Aurora}}}}\n"
    )
    (tmp_path / "book.tool.yaml").write_text(dedent(tool))
    problems = asyncio.run(run_self_check(Runtime.open(tmp_path, index=False)))
    assert [(each.code, each.pointer) for each in problems] == [("reply_fails", "/mock/result")]
    assert "note" in problems[0].message
