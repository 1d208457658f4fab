"""A scenario's own store and states: what mocks read, what steps read, and what must be there at the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from in_memory import MOCKS, loaded, runtime_of
from toolcrib.core.model import NO_FIXTURE, Collection, Fixture
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.scenarios.model import Verification
from toolcrib.loading.scenarios.scenario_state import check_state_names, visible_state, with_scenario_state
from toolcrib.scenarios import run_scenario
from toolcrib.scenarios.run_setup import registry_for

SHOP = """
name: pay
input_schema: {type: object, required: [id], properties: {id: {type: string}}, additionalProperties: false}
mock: {result: nothing was paid}
---
name: look
input_schema: {type: object}
mock: {result: "{{ args }}"}
---
scenario: s
store:
  orders: {ORD-1: {status: pending, total: 40}, ORD-2: {status: pending, total: 2}}
  outbox: []
state: {cart: [open, paid], till: closed}
mocks:
  pay:
    rows: {order: {in: orders, key: "{{ args.id }}", missing: no such order}}
    effects:
      - {update: order, set: {status: paid}}
      - {insert: outbox, key: "{{ args.id }}", value: {about: "{{ args.id }}", password: hunter2}}
      - {goto: {cart: paid}}
    result: "{{ order }}"
"""
SHOP = SHOP.replace("{ORD-1: {status", "{rows: {ORD-1: {status").replace("total: 2}}", "total: 2}}}")

STEPS = """
steps:
  - {call: look, args: {total: "{{ store.orders['ORD-1'].total }}", cart: "{{ state.cart }}"}, as: before}
  - {call: pay, args: {id: ORD-1}, expect: {result: {status: "{{ store.orders['ORD-1'].status }}"}}}
  - {call: look, args: {cart: "{{ state.cart }}", was: "{{ before.result.cart }}"}, expect: {result: {cart: paid, was: open}}}
"""


def run(text):
    runtime = runtime_of(SHOP + text)
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0]))


def test_steps_read_the_store_as_it_is_before_the_call_in_args_and_after_it_in_expect():
    report = run(STEPS)
    assert str(report) == "passed s"
    assert report.steps[0].args == {"total": 40, "cart": "open"}


def test_each_run_begins_with_the_rows_that_are_written():
    runtime = runtime_of(SHOP + STEPS)
    (scenario,) = runtime.scenarios
    reports = [asyncio.run(run_scenario(runtime, scenario)) for _ in range(2)]
    assert [report.passed for report in reports] == [True, True]
    assert reports[0].digest == reports[1].digest


GOOD = [
    "store: {orders: {ORD-1: {status: paid}, ORD-2: {$exact: {status: pending, total: 2}}}}",
    "store: {orders: {ORD-3: {$exists: false}}, outbox: {ORD-1: {about: ORD-1}}}",
    "store: {outbox: {$len: 1}}",
    "store: {orders: {ORD-1: {total: '{{ before.result.total }}'}}}",
    "changed: {orders: {ORD-1: {status: paid}}, outbox: {ORD-1: {about: ORD-1}}}",
    "changed: {orders: {ORD-1: {$exact: {status: paid, total: 40}}}, outbox: {$len: 1}}",
    "state: {cart: paid, till: closed}",
    "state: {$exact: {cart: paid, till: closed}}",
    "budget: {calls: 3, attempts: {$lte: 3}, elapsed: 0}",
    "never: [{tool: look, args: {total: '{{ store.orders[\"ORD-2\"].total }}'}}]",
]


@pytest.mark.parametrize("rules", GOOD)
def test_what_is_kept_as_it_should_be_says_nothing(rules):
    assert str(run(f"{STEPS}verify: {{{rules}}}\n")) == "passed s"


BAD = [
    (
        "store: {orders: {ORD-1: {status: pending, total: 41}, ORD-2: {status: pending}}}",
        "store",
        (
            'store/orders/ORD-1/status: expected "pending", got "paid"',
            "store/orders/ORD-1/total: expected 41, got 40",
        ),
    ),
    (
        "store: {orders: {ORD-3: {status: paid}}}",
        "store",
        ("store/orders/ORD-3: expected an object, got nothing (did you mean `ORD-2` or `ORD-1`?)",),
    ),
    (
        "changed: {orders: {ORD-1: {status: open}, ORD-2: {status: paid}, ORD-3: null}}",
        "changed",
        (
            'changed/orders/ORD-1/status: expected "open", got "paid"',
            "changed/orders/ORD-2: expected an object, got nothing",
            "changed/orders/ORD-3: expected null, got nothing",
            'changed/outbox/ORD-1: expected no change, got {"about": "ORD-1", "password": "***"}',
        ),
    ),
    (
        "changed: {}",
        "changed",
        (
            'changed/orders/ORD-1: expected no change, got {"status": "paid", "total": 40}',
            'changed/outbox/ORD-1: expected no change, got {"about": "ORD-1", "password": "***"}',
        ),
    ),
    ("state: {till: open}", "state", ('state/till: expected "open", got "closed"',)),
    (
        "budget: {calls: {$lte: 2}}",
        "budget",
        ("budget/calls: expected a number less than or equal to 2, got 3",),
    ),
    ("budget: {attempts: 2}", "budget", ("budget/attempts: expected 2, got 3",)),
    (
        "store: {orders: {$len: '{{ store.nothing | length }}'}}",
        "store",
        ("store: `store` has no `nothing`: it has `orders`, `outbox`",),
    ),
    ("budget: {calls: {$lt: '{{ 1 / (run - 1) }}'}}", "budget", ("budget/calls: `/` divides by zero",)),
    ("budget: {elapsed: {$gt: 0}}", "budget", ("budget/elapsed: expected a number greater than 0, got 0.0",)),
]


@pytest.mark.parametrize(("rules", "what", "lines"), BAD, ids=[rules for rules, _what, _lines in BAD])
def test_what_is_not_as_it_should_be_is_told(rules, what, lines):
    report = run(f"{STEPS}verify: {{{rules}}}\n")
    assert not report.passed
    assert [(failure.what, failure.lines) for failure in report.failures] == [(what, lines)]


def test_a_deleted_row_has_changed():
    shop = SHOP.replace("{update: order, set: {status: paid}}", "{delete: order}").replace(
        '"{{ order }}"', "{}"
    )

    def report(wanted):
        text = f"steps: [{{call: pay, args: {{id: ORD-1}}}}]\nverify: {{changed: {{outbox: {{$len: 1}}, orders: {wanted}}}}}\n"
        runtime = runtime_of(shop + text)
        return str(asyncio.run(run_scenario(runtime, runtime.scenarios[0])))

    assert report("{ORD-1: null}") == "passed s"
    assert "changed/orders/ORD-1: expected no change, got a deleted row" in report("{}")


def test_a_failure_shows_file_and_line_and_no_secret():
    report = run(
        f"{STEPS}verify:\n  store:\n    orders:\n      ORD-1:\n        status: open\n    outbox: {{ORD-1: {{password: hunter3}}}}\n"
    )
    line = (SHOP + STEPS).count("\n") + 5
    assert str(report).splitlines() == [
        f"FAILED s › verify (tools.yaml:{line})",
        '  store/orders/ORD-1/status: expected "open", got "paid"',
        '  store/outbox/ORD-1/password: expected "hunter3", got "***"',
        "  seed 0",
    ]
    assert "hunter2" not in str(report.as_json())


def test_time_that_was_moved_on_is_not_in_the_budget():
    text = """
steps: [{call: slow}, {advance: 1h}, {call: slow}]
verify: {budget: {elapsed: 20}}
"""
    slow = "name: slow\ninput_schema: {}\nmock: {result: 1, latency: 10s}\n---"
    runtime = runtime_of(f"{slow}\nscenario: s\n{text}")
    report = asyncio.run(run_scenario(runtime, runtime.scenarios[0]))
    assert report.passed, str(report)
    assert report.duration == 3620


WRONG = [
    ("verify: {store: {order: {}}}", ("unknown_collection", "/verify/store/order")),
    (
        "verify: {store: {orders: {ORD-1: {$gtt: 1}}}}",
        ("unknown_operator", "/verify/store/orders/ORD-1/$gtt"),
    ),
    ("verify: {changed: {order: {}}}", ("unknown_collection", "/verify/changed/order")),
    ("verify: {changed: 5}", ("never_matches", "/verify/changed")),
    ("verify: {changed: {orders: {ORD-1: 5}}}", ("never_matches", "/verify/changed/orders/ORD-1")),
    ("verify: {state: {carts: open}}", ("unknown_machine", "/verify/state/carts")),
    ("verify: {state: {cart: opened}}", ("never_matches", "/verify/state/cart")),
    ("verify: {budget: {calls: -1}}", ("never_matches", "/verify/budget/calls")),
    ("verify: {budget: {elapsed: 1m}}", ("never_matches", "/verify/budget/elapsed")),
    ("verify: {budget: {}}", ("wrong_value", "/verify/budget")),
    ("verify: {store: 5}", ("never_matches", "/verify/store")),
    ("verify: {store: {outbox: 5}}", ("never_matches", "/verify/store/outbox")),
    ("verify: {store: {orders: {ORD-1: 5}}}", ("never_matches", "/verify/store/orders/ORD-1")),
    ("verify: {calls: [{tool: pay, times: 2}], never: [{tool: pay}]}", ("contradiction", "/verify/never/0")),
    ("verify: {calls: [{tool: pay}], never: [{tool: 'p*'}]}", ("contradiction", "/verify/never/0")),
    (
        "verify: {calls: [{tool: pay, outcome: ok}], never: [{tool: pay, outcome: [ok, timeout]}]}",
        ("contradiction", "/verify/never/0"),
    ),
    ("verify: {unused_rules: maybe}", ("not_allowed", "/verify/unused_rules")),
]


def problems_of(text):
    """Code and pointer of all that is wrong, with each other and by itself."""
    problems = loaded_runtime(loaded(text), executors=MOCKS).problems
    return [(problem.code, problem.pointer) for problem in problems]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=[told[1] for _text, told in WRONG])
def test_what_nobody_keeps_is_found_at_load(text, told):
    assert problems_of(f"{SHOP}{STEPS}{text}\n") == [told]


@pytest.mark.parametrize(
    "text",
    [
        "calls: [{tool: pay, times: {$lte: 1}}], never: [{tool: pay}]",
        "calls: [{tool: pay}], never: [{tool: pay, args: {id: x}}]",
        "calls: [{tool: pay, outcome: ok}], never: [{tool: pay, outcome: timeout}]",
        "calls: [{tool: 'p*'}], never: [{tool: pay}]",
        "store: {outbox: {$len: 2}, orders: {ORD-3: {$exists: false}, ORD-1: {stat: paid}}}",
    ],
)
def test_what_may_be_is_no_contradiction(text):
    assert problems_of(f"{SHOP}{STEPS}verify: {{{text}}}\n") == []


@pytest.mark.parametrize(
    ("row", "place", "words", "hint"),
    [
        ("{statuss: paid}", "/statuss", "rows of `orders` never have `statuss`", "status"),
        ("{status: payd}", "/status", '"payd" cannot occur here: the schema of the rows of `orders`', "paid"),
        ("{statuss: {$exists: false}}", None, "", ""),
    ],
)
def test_rows_are_looked_for_that_the_schema_of_their_collection_allows(row, place, words, hint):
    schema = "{type: object, properties: {status: {enum: [open, paid]}}, additionalProperties: false}"
    text = f"""
name: look
input_schema: {{type: object}}
mock: {{result: 1}}
---
scenario: s
store: {{orders: {{rows: {{o1: {{status: open}}}}, schema: {schema}}}}}
steps: [{{call: look}}]
verify: {{store: {{orders: {{o1: {row}}}}}}}
"""
    problems = loaded_runtime(loaded(text), executors=MOCKS).problems
    found = [(problem.code, problem.pointer) for problem in problems]
    assert found == ([("never_matches", f"/verify/store/orders/o1{place}")] if place else [])
    for problem in problems:
        assert words in problem.message
        assert hint in problem.hint


def test_a_collection_that_a_scenarios_mock_asks_for_in_vain_is_found_at_load():
    (problem,) = problems_of(SHOP.replace("in: orders", "in: order") + STEPS)
    assert problem[1].startswith("/mocks/pay/rows/order")


def test_the_tools_of_all_runs_of_a_scenario_are_derived_once():
    runtime = runtime_of(SHOP + STEPS)
    (scenario,) = runtime.scenarios
    seen = registry_for(runtime.registry, scenario)
    assert registry_for(runtime.registry, replace(scenario, seed=3)) is seen
    assert set(seen["look"].fixture.collections) == {"orders", "outbox"}


def test_a_scenarios_collection_is_one_for_tools_of_all_packs():
    runtime = runtime_of(SHOP + STEPS)
    (scenario,) = runtime.scenarios
    tools = {
        name: tool._replace(fixture=Fixture({"orders": Collection("orders", f"{name}/orders")}))
        for name, tool in runtime.registry.items()
    }
    seen = {name: with_scenario_state(tool, scenario) for name, tool in tools.items()}
    assert visible_state(scenario, seen).unclear == frozenset()
    alone = replace(scenario, fixture=NO_FIXTURE)
    assert visible_state(alone, tools) == (Fixture({}, {}), {"orders"})
    codes = [problem.code for problem in check_state_names(with_rule(alone), tools)]
    assert codes == ["unclear_name"]
    assert [problem.code for problem in check_state_names(with_rule(scenario), tools)] == []


def with_rule(scenario):
    """The scenario, which wants an empty collection of orders."""
    kept = {"store": compile_matcher({"orders": {"$len": 0}}, [])}
    return replace(scenario, verify=Verification(kept=kept))


def test_a_scenario_whose_rows_are_wrong_does_not_run():
    text = """
name: look
input_schema: {type: object}
mock: {result: 1}
---
scenario: s
store: {orders: {rows: [{a: 1}], schema: {required: [b]}}}
steps: [{call: look}]
"""
    found = loaded(text)
    assert [(problem.severity, problem.line) for problem in found.problems] == [("error", 7)]
    assert found.scenarios == ()
