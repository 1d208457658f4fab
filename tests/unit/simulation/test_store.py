"""The store of a session: versions that share, and what changed since the beginning."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import Collection, Fixture, Machine
from toolcrib.expressions.values import equal
from toolcrib.schema.validation.json_values import SMALL
from toolcrib.simulation.store import (
    FRESH,
    ROW_DEPTH,
    RowChanges,
    RowLayers,
    Store,
    StoreVersion,
    is_small_row,
    rows_by_collection,
    rows_of,
    state_by_machine,
)

ORDERS = Collection(
    "orders", "shop/orders", rows={"A": {"n": 1, "tags": ["x"]}, "B": {"n": 2}, "C": {"n": True}}
)
OUTBOX = Collection("outbox", "shop/outbox", rows={})
CART = Machine("cart", "shop/cart", "open", ("open", "paid"))
SHOP = Fixture({"orders": ORDERS, "outbox": OUTBOX}, {"cart": CART})


def put(store: Store, collection: Collection, key: str, row: object) -> None:
    """Write a row, or delete it with None, as a call does: along the path alone."""
    before = store.version
    layers = before.rows.get(collection.id, RowLayers(rows_of(collection)))
    layers = layers.then(RowChanges({}, {key: None}) if row is None else RowChanges({key: row}, {}))
    changed = StoreVersion({**before.rows, collection.id: layers}, before.states, before.numbers)
    store.commit(changed, [collection])


def test_a_fresh_store_shows_what_the_fixture_begins_with():
    store = Store()
    assert rows_by_collection(SHOP, store.version) == {"orders": ORDERS.rows, "outbox": {}}
    assert rows_by_collection(SHOP, FRESH)["orders"] is ORDERS.rows
    assert state_by_machine(SHOP, store.version) == {"cart": "open"}
    assert (store.rows(OUTBOX), store.state(CART), store.changed()) == ({}, "open", {})


def test_a_row_that_was_written_added_or_deleted_is_a_change():
    store = Store()
    put(store, ORDERS, "A", {"n": 9})
    put(store, ORDERS, "B", None)
    put(store, OUTBOX, "1", {"to": "ann"})
    assert store.changed() == {"orders": {"A": {"n": 9}, "B": None}, "outbox": {"1": {"to": "ann"}}}
    assert (
        store.rows(ORDERS)
        == rows_by_collection(SHOP, store.version)["orders"]
        == {"A": {"n": 9}, "C": {"n": True}}
    )


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        ({"n": 1.0, "tags": ["x"]}, False),
        ({"tags": ["x"], "n": 1}, False),
        ({"n": True, "tags": ["x"]}, True),
    ],
)
def test_only_a_row_that_is_unequal_is_a_change(row, counts):
    store = Store()
    put(store, ORDERS, "A", row)
    assert bool(store.changed()) is counts


def test_collections_of_one_name_stand_under_their_ids_where_several_changed():
    store, other = Store(), ORDERS._replace(id="bank/orders")
    put(store, ORDERS, "B", None)
    assert store.changed() == {"orders": {"B": None}}
    put(store, other, "A", None)
    assert store.changed() == {"shop/orders": {"B": None}, "bank/orders": {"A": None}}
    put(store, ORDERS, "B", {"n": 2})
    assert store.changed() == {"orders": {"A": None}}


def test_the_version_before_the_last_change_is_known():
    store = Store()
    assert store.before(SHOP) is None
    put(store, ORDERS, "A", {"n": 8})
    put(store, ORDERS, "A", {"n": 9})
    assert rows_by_collection(SHOP, store.before(SHOP))["orders"]["A"] == {"n": 8}


def test_a_change_of_what_a_tool_does_not_see_is_none_for_it():
    store, bank = Store(), ORDERS._replace(id="bank/orders")
    store.commit(store.version._replace(numbers={"q": 1}), [])
    put(store, bank, "A", None)
    assert (store.before(SHOP), store.before(Fixture())) == (None, None)
    put(store, ORDERS, "A", {"n": 8})
    store.commit(store.version._replace(states={CART.id: "paid"}), [])
    put(store, bank, "B", None)
    store.commit(store.version._replace(numbers={"q": 2}), [])
    assert state_by_machine(SHOP, store.before(SHOP)) == {"cart": "open"}
    assert rows_by_collection(SHOP, store.before(SHOP))["orders"]["A"] == {"n": 8}
    assert rows_by_collection(SHOP, store.before(Fixture({"orders": ORDERS})))["orders"] == ORDERS.rows


def test_what_is_handed_out_may_be_changed():
    store = Store()
    put(store, ORDERS, "B", {"tags": ["y"]})
    store.rows(ORDERS)["A"]["tags"].append("z")
    store.rows(ORDERS).clear()
    store.changed()["orders"]["B"]["tags"].clear()
    assert store.rows(ORDERS) == store.held(ORDERS) == {**ORDERS.rows, "B": {"tags": ["y"]}}
    assert ORDERS.rows["A"] == {"n": 1, "tags": ["x"]}


def test_a_machine_that_moved_is_where_it_is():
    store = Store()
    store.commit(StoreVersion(states={CART.id: "paid"}), [])
    assert (store.state(CART), state_by_machine(SHOP, store.version)) == ("paid", {"cart": "paid"})


def test_rows_with_a_fault_are_nobodys():
    broken = ORDERS._replace(rows=None, fault="pack.yaml:3: rows_unreadable: there is no file")
    with pytest.raises(
        ExpressionError, match=r"cannot read the rows of `orders`: pack.yaml:3: rows_unreadable"
    ):
        rows_of(broken)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 0.5]) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
ROWS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)
TABLES = st.dictionaries(st.sampled_from("ABCD"), ROWS, max_size=4)
WRITES = st.lists(
    st.tuples(st.sampled_from(["one", "two"]), st.sampled_from("ABCDEFGH"), st.none() | ROWS), max_size=20
)


@given(first=TABLES, second=TABLES, writes=WRITES)
def test_what_changed_is_what_a_copy_of_everything_would_tell_and_no_version_moves(first, second, writes):
    collections = {
        name: Collection(name, f"p/{name}", rows=rows) for name, rows in (("one", first), ("two", second))
    }
    fixture, store = Fixture(collections), Store()
    began = copy.deepcopy({"one": first, "two": second})
    copied = copy.deepcopy(began)
    history = [(store.version, json.dumps(began))]
    for name, key, row in writes:
        put(store, collections[name], key, row)
        if row is None:
            copied[name].pop(key, None)
        else:
            copied[name][key] = copy.deepcopy(row)
        history.append((store.version, json.dumps(copied)))
    told = {name: _differing(began[name], copied[name]) for name in copied}
    assert store.changed() == {name: found for name, found in told.items() if found}
    assert [json.dumps(rows_by_collection(fixture, version)) for version, _text in history] == [
        text for _version, text in history
    ]


@pytest.mark.parametrize("of_rows", ["new", "removed", "one"])
def test_a_session_copies_as_many_rows_for_its_last_change_as_for_its_first(of_rows):
    base = {str(number): {"n": number} for number in range(4_000)}
    layers, kept, copied = RowLayers(base), [], 0
    for number in range(4_000):
        key = {"new": f"new {number}", "removed": str(number), "one": "0"}[of_rows]
        later = RowChanges({}, {key: None}) if of_rows == "removed" else RowChanges({key: {"n": -1}}, {})
        before, layers = layers, layers.then(later)
        copied += sum(each.size for each in layers.changes if each not in before.changes)
        kept.append(layers)
    # Half of all changes for each of them, if the changed rows were copied each time: 2,000.
    assert copied / 4_000 < 30
    assert len(layers.changes) < 8
    assert len(layers.whole()) == {"new": 8_000, "removed": 0, "one": 4_000}[of_rows]
    assert len(kept[99].whole()) == {"new": 4_100, "removed": 3_900, "one": 4_000}[of_rows]


def _differing(before: dict, after: dict) -> dict:
    keys = [*after, *(key for key in before if key not in after)]
    return {
        key: after.get(key)
        for key in keys
        if key not in before or key not in after or not equal(before[key], after[key])
    }


def test_rows_are_found_by_name_or_by_id():
    store = Store()
    store.declared = lambda: [ORDERS, ORDERS, OUTBOX]
    assert store.rows("orders") == store.rows(ORDERS.id) == store.rows(ORDERS) != {}
    with pytest.raises(ExpressionError, match="there is no collection `oders`") as caught:
        store.rows("oders")
    assert caught.value.hint == "did you mean `orders`?"
    with pytest.raises(ExpressionError, match="there is no collection `x`") as caught:
        store.rows("x")
    assert caught.value.hint == "the collections are orders, outbox"
    other = ORDERS._replace(id="other/orders")
    store.declared = lambda: [ORDERS, other]
    with pytest.raises(ExpressionError, match="several packs have a collection `orders`") as caught:
        store.rows("orders")
    assert caught.value.hint == f"write `{ORDERS.id}` or `other/orders`"
    assert store.rows("other/orders") == store.rows(other)


def nested(levels):
    row = {}
    for _ in range(levels - 1):
        row = {"in": row}
    return row


@pytest.mark.parametrize(
    ("row", "small"),
    [
        ({"id": 1, "tags": ["a", None], "shelf": {"no": 2.5}}, True),
        ([], True),
        (nested(ROW_DEPTH), True),
        (nested(ROW_DEPTH + 1), False),
        ({"text": "x" * SMALL}, False),
        ({"text": "\ud800"}, False),
        ({"at": (1, 2)}, False),
        ("text", False),
        (None, False),
    ],
)
def test_only_plain_rows_of_bounded_size_are_small_each_time(row, small):
    assert [is_small_row(row), is_small_row(row)] == [small, small]


def test_a_row_that_is_remembered_says_nothing_about_an_equal_one():
    assert is_small_row({"at": [1, 2]})
    assert not is_small_row({"at": (1, 2)})
    # More rows than are remembered; each is dropped at once, so that ids would come again.
    assert all(is_small_row({"n": [number]}) for number in range(3_000))
    assert not any(is_small_row({"n": {number}}) for number in range(3_000))
