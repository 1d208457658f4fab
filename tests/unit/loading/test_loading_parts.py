"""One fault hides no others: what stands beside it is checked as well."""

from __future__ import annotations

from textwrap import dedent

from toolcrib import Runtime

TOOL = """name: t
input_schema: {type: object}
mock:
"""


def told(tmp_path, pack, tool, scenario=""):
    """Code and pointer of all that is wrong with a pack of one tool and one scenario."""
    (tmp_path / "pack.yaml").write_text("name: p\nversion: 1.0.0\n" + pack)
    (tmp_path / "t.tool.yaml").write_text(TOOL + tool)
    if scenario:
        (tmp_path / "s.scenario.yaml").write_text("scenario: s\n" + dedent(scenario))
    return sorted((each.code, each.pointer) for each in Runtime.open(tmp_path, index=False).problems)


STORE = "store: {orders: {rows: {a: {n: 1}}}}\nstate: {cart: [open, paid]}\n"


def test_a_guard_or_an_effect_of_wrong_shape_hides_no_other_part_of_the_mock(tmp_path):
    tool = """
  rows: {o: {in: orders, key: a}, other: {in: ordrs, key: a}}
  guard: [{if: "{{ x }}", error: no}, {if: true, error: no}, {if: "{{ o.n }}", error: no}]
  effects: [{goto: {cart: paied}}, {increment: [1]}, {goto: {crat: paid}}]
  result: "{{ y }}"
"""
    assert told(tmp_path, STORE, tool) == [
        ("unknown_collection", "/mock/rows/other/in"),
        ("unknown_name", "/mock/guard/0/if"),
        ("unknown_name", "/mock/result"),
        ("unknown_state", "/mock/effects/0/goto/cart"),
        ("wrong_type", "/mock/effects/1/increment"),
        ("wrong_type", "/mock/guard/1/if"),
    ]


def test_a_first_guard_of_wrong_shape_is_all_that_is_told_of_a_mock_without_other_faults(tmp_path):
    tool = "  rows: {o: {in: orders, key: a}}\n  guard: [{if: true, error: no}]\n  result: 1\n"
    assert told(tmp_path, STORE, tool) == [("wrong_type", "/mock/guard/0/if")]


def test_a_collection_of_wrong_shape_hides_no_other_and_is_missed_by_nobody(tmp_path):
    pack = "store: {v: {rowz: []}, orders: [3], gone: no.json, fine: []}\nstate: {a: 3, b: [x, x]}\n"
    tool = '  result: "{{ [store.v, store.fine, store.orders, store.oders, state.a] }}"\n'
    assert told(tmp_path, pack, tool) == [
        ("duplicate_name", "/state/b/1"),
        ("row_not_object", "/store/orders/0"),
        ("rows_unreadable", "/store/gone"),
        ("unknown_argument", "/mock/result"),
        ("unknown_key", "/store/v/rowz"),
        ("wrong_combination", "/store/v"),
        ("wrong_type", "/state/a"),
    ]


def test_a_fault_elsewhere_in_a_pack_makes_no_tool_look_wrong(tmp_path):
    tool = '  rows: {o: {in: orders, key: a}}\n  effects: [{goto: {cart: paid}}]\n  result: "{{ o }}"\n'
    assert told(tmp_path, STORE + "descriptoin: x\n", tool) == [("unknown_key", "/descriptoin")]


def test_a_fault_of_wrong_shape_hides_no_other_fault(tmp_path):
    scenario = """
        faults:
          - {name: f, tool: t, inject: {slow: -3s}}
          - {name: g, tool: t, inject: hang}
          - {name: g, tool: t, inject: hang, when: {call: 0}}
        steps: [{call: t}]
        """
    codes = [code for code, _pointer in told(tmp_path, "", "  result: 1\n", scenario)]
    assert codes == ["duplicate_name", "never_matches", "wrong_form"]


def test_a_collection_of_wrong_shape_in_a_scenario_is_missed_by_nobody(tmp_path):
    scenario = """
        store: {log: {rowz: []}, orders: [3]}
        state: {cart: 3, mood: true}
        steps: [{call: t}]
        verify: {store: {log: {$len: 1}}, state: {cart: open, mood: x}}
        """
    assert told(tmp_path, STORE, "  result: 1\n", scenario) == [
        ("row_not_object", "/store/orders/0"),
        ("unknown_key", "/store/log/rowz"),
        ("wrong_combination", "/store/log"),
        ("wrong_type", "/state/cart"),
        ("wrong_type", "/state/mood"),
    ]
