"""What a scenario's own collections and machines take over from those of the packs."""

from __future__ import annotations

import asyncio
import json

import pytest

from toolcrib import Runtime
from toolcrib.core.model import NOTHING
from toolcrib.scenarios import run_scenario

ROW = {"type": "object", "properties": {"id": {"type": "string"}, "status": {"enum": ["open", "paid"]}}}
PACK = """name: {pack}
version: 1.0.0
store: {{orders: {{key: {key}, schema: {schema}, rows: []}}}}
state: {{cart: {states}, mood: any}}
"""
TOOL = """name: {tool}
input_schema: {{type: object}}
mock: {{result: ["{{{{ store.orders }}}}", "{{{{ state.cart }}}}"]}}
"""


def pack(name, tool, key="id", schema=None, states="[open, paid]"):
    said = PACK.format(
        pack=name, key=key, schema=json.dumps(ROW if schema is None else schema), states=states
    )
    return {f"{name}/pack.yaml": said, f"{name}/{tool}.tool.yaml": TOOL.format(tool=tool)}


class Shop:
    """A pack with a scenario, on disk, with whatever packs lie beside it."""

    def __init__(self, root):
        self.root = root

    def opened(self, scenario, files=NOTHING):
        own = {"shop/s.scenario.yaml": f"scenario: s\n{scenario}\n"}
        for name, text in {**pack("shop", "show"), **files, **own}.items():
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return Runtime.open(self.root, index=False)

    def told(self, scenario, files=NOTHING):
        return [(each.code, each.pointer) for each in self.opened(scenario, files).problems]

    def report(self, scenario, files=NOTHING):
        runtime = self.opened(scenario, files)
        assert [str(problem) for problem in runtime.problems] == []
        return str(asyncio.run(run_scenario(runtime, runtime.scenarios[0])))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


CALLS = "steps: [{call: show, expect: {result: [%s, %s]}}]"


def test_a_collection_has_the_key_of_that_in_the_pack(shop):
    store = "store: {orders: {rows: [{id: a, status: open}]}}\n"
    verify = "\nverify: {store: {orders: {a: {status: open}}}}"
    assert shop.report(store + CALLS % ("{a: {id: a, status: open}}", "open") + verify) == "passed s"
    assert shop.report("store: {orders: [{id: b}]}\n" + CALLS % ("{b: {id: b}}", "open")) == "passed s"


@pytest.mark.parametrize(
    ("orders", "problems"),
    [
        ("{rows: [{id: a, status: abogus}]}", [("row_breaks_schema", "/store/orders/rows/0/status")]),
        ("[{id: a}, {id: a}]", [("duplicate_row", "/store/orders/1")]),
        ("[{idd: a}]", [("row_without_key", "/store/orders/0")]),
        ("{rows: {a: {id: b}}}", [("row_key_differs", "/store/orders/rows/a")]),
        ("{rows: [{id: a, status: abogus}], schema: true}", []),
        ("{rows: [{no: 1}], key: no}", []),
        ("{rows: [3]}", [("row_not_object", "/store/orders/rows/0")]),
    ],
)
def test_rows_are_judged_by_what_the_pack_says_where_the_scenario_says_nothing(shop, orders, problems):
    assert shop.told(f"store: {{orders: {orders}}}\nsteps: [{{call: show}}]") == problems


def test_a_machine_has_the_states_of_that_in_the_pack_unless_the_scenario_lists_its_own(shop):
    steps = "\nsteps: [{call: show}]\nverify: {state: {cart: %s}}"
    assert shop.report("state: {cart: paid}" + steps % "paid") == "passed s"
    assert shop.told("state: {cart: paied}" + steps % "open") == [("unknown_state", "/state/cart")]
    assert shop.told("state: {cart: paid}" + steps % "paied") == [("never_matches", "/verify/state/cart")]
    assert shop.report("state: {cart: [paied, paid], mood: fine}" + steps % "paied") == "passed s"


def test_an_unknown_start_is_told_with_the_nearest_state(shop):
    (problem,) = shop.opened("state: {cart: paied}\nsteps: [{call: show}]").problems
    assert (problem.source.endswith("shop/s.scenario.yaml"), problem.line, problem.hint) == (
        True,
        2,
        "did you mean `paid`?",
    )


def test_what_packs_say_differently_a_scenario_says_itself(shop):
    bank = pack("bank", "bank", key="no", schema={}, states="[shut]")
    steps = "\nsteps: [{call: show}, {call: bank}]"
    both = "store: {orders: []}\nstate: {cart: open}" + steps
    unclear = [
        ("unclear_name", "/state/cart"),
        ("unclear_name", "/store/orders"),
        ("unclear_name", "/store/orders"),
    ]
    assert sorted(shop.told(both, bank)) == unclear
    own = "store: {orders: {key: id, schema: true, rows: []}}\nstate: {cart: [open]}" + steps
    assert shop.told(own, bank) == []
    assert shop.told(both, pack("bank", "bank")) == []
    assert shop.told("store: {orders: []}\nstate: {cart: open}\nsteps: [{call: show}]", bank) == []


def test_rows_in_a_file_are_read_by_the_schema_of_the_pack(shop):
    counts = {"type": "object", "properties": {"n": {"type": "integer"}}}
    files = {**pack("shop", "show", schema=counts), "shop/rows.csv": "id,n\na,3\n"}
    said = "store: {orders: rows.csv}\n" + CALLS % ("{a: {id: a, n: 3}}", "open")
    assert shop.report(said, files) == "passed s"
