"""The stores and states that packs, projects and scenarios declare."""

from __future__ import annotations

import json
from textwrap import dedent, indent
from types import MappingProxyType

import pytest

from toolcrib import Executors, Project
from toolcrib.core.errors import DocumentError, ExpressionError
from toolcrib.core.model import NO_FIXTURE, Collection, Fixture, Machine, Origin
from toolcrib.core.schemas import envelope
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.documents.files import MemoryFiles
from toolcrib.loading.packs import Pack
from toolcrib.loading.sources import parse_files
from toolcrib.loading.stores import fixture_with, parse_fixture
from toolcrib.simulation.store import rows_of

KINDS = Executors({"mock": MockExecutor})
PACK = "name: shop\nversion: 1.0.0\n"
TOOL = "name: ping\ninput_schema: {}\nmock: {result: 1}\n"


def shop(text, files=None):
    """A pack with one tool, loaded from memory; the text is what its file says besides its name."""
    contents = {"pack.yaml": PACK + dedent(text), "ping.tool.yaml": TOOL, **(files or {})}
    return parse_files(contents, KINDS)


def store(text, files=None):
    """The collections of a pack, without problems, given what stands under `store`."""
    loaded = shop("store:\n" + indent(dedent(text), "  "), files)
    assert [str(problem) for problem in loaded.problems] == []
    return loaded.tools[0].fixture.collections


def wrong(text, files=None):
    """Code and place of all that is wrong with a store: a pointer into the pack file, or `file:line`."""
    loaded = shop("store:\n" + indent(dedent(text), "  "), files)
    assert [tool.name for tool in loaded.tools] == ["ping"]
    return [
        (each.code, each.pointer if each.source == "pack.yaml" else f"{each.source}:{each.line}")
        for each in loaded.problems
    ]


def rows(text, files=None):
    """The rows of the one collection that stands under `store`."""
    (collection,) = store(text, files).values()
    return rows_of(collection)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("outbox: []", {}),
        ("a: [{n: 1}, {n: 2}]", {"1": {"n": 1}, "2": {"n": 2}}),
        ("a: {rows: [{n: 1}]}", {"1": {"n": 1}}),
        ("a: {rows: {x: {n: 1}, y: {}}}", {"x": {"n": 1}, "y": {}}),
        ("a: {rows: {}}", {}),
        ("a: {key: id, rows: [{id: u1, n: 1}, {id: u2}]}", {"u1": {"id": "u1", "n": 1}, "u2": {"id": "u2"}}),
        ("a: {key: id, rows: [{id: 7}, {id: 7.5}, {id: '07'}]}", {"7": {"id": 7}, "7.5": {"id": 7.5}, "07": {"id": "07"}}),
        ("a: {key: id, rows: {u1: {id: u1}, '2': {id: 2}}}", {"u1": {"id": "u1"}, "2": {"id": 2}}),
        ("a: {schema: {type: object, required: [n]}, rows: [{n: 1}]}", {"1": {"n": 1}}),
        ("a: {schema: true, rows: [{n: 1}]}", {"1": {"n": 1}}),
        ("a: {schema: {$defs: {n: {type: integer}}, properties: {n: {$ref: '#/$defs/n'}}}, rows: [{n: 1}]}", {"1": {"n": 1}}),
    ],
)  # fmt: skip
def test_rows_in_place_come_to_stand_under_their_keys(text, expected):
    assert json.dumps(rows(text)) == json.dumps(expected)


def test_every_key_of_a_collection_arrives():
    collection = store("users: {key: id, schema: {type: object}, file: users.json}", {"users.json": "[]"})[
        "users"
    ]
    assert collection[:4] == ("users", "shop/users", "id", {"type": "object"})
    assert (collection.file, collection.anywhere, collection.fault) == ("users.json", False, "")
    assert collection.pointer == "/store/users"
    assert collection.origin.place(collection.pointer) == "pack.yaml:4"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: {rows: [1, {}, null]}", [("row_not_object", "/store/a/rows/0"), ("row_not_object", "/store/a/rows/2")]),
        ("a: [x]", [("row_not_object", "/store/a/0")]),
        ("a: {rows: {x: 1, 'y/z': []}}", [("row_not_object", "/store/a/rows/x"), ("row_not_object", "/store/a/rows/y~1z")]),
        ("a: {key: id, rows: [{}, {id: null}, {id: [1]}, {id: true}]}", [("row_without_key", "/store/a/rows/0"), *(("row_without_key", f"/store/a/rows/{at}/id") for at in (1, 2, 3))]),
        ("a: {key: id, rows: [{id: 1}, {id: '1'}]}", [("duplicate_row", "/store/a/rows/1")]),
        ("a: {key: id, rows: {x: {id: y}}}", [("row_key_differs", "/store/a/rows/x")]),
        ("a: {key: id, rows: {x: {}}}", [("row_without_key", "/store/a/rows/x")]),
        ("a: {schema: {properties: {n: {type: integer}}}, rows: [{n: x}, {n: 1}, {n: {}}]}", [("row_breaks_schema", "/store/a/rows/0/n"), ("row_breaks_schema", "/store/a/rows/2/n")]),
        ("a: {schema: {required: [n, m]}, rows: [{}]}", [("row_breaks_schema", "/store/a/rows/0/n"), ("row_breaks_schema", "/store/a/rows/0/m")]),
        ("a: {schema: {type: objet}, rows: [{}, 1]}", [("invalid_schema", "/store/a/schema/type"), ("row_not_object", "/store/a/rows/1")]),
        ("a: {schema: {$ref: 'https://example.com/s'}, rows: []}", [("remote_ref", "/store/a/schema/$ref")]),
        ("in: []\n'true': []\n9a: []\na-b: []\na: []", [("wrong_form", f"/store/{name}") for name in ("in", "true", "9a", "a-b")]),
        ("a: missing.json\nb: [1]", [("rows_unreadable", "/store/a"), ("row_not_object", "/store/b/0")]),
        ("a: {file: missing.json}", [("rows_unreadable", "/store/a/file")]),
        ("a: ../outside.json", [("rows_unreadable", "/store/a")]),
        ("a: rows.jsn", [("unknown_row_format", "/store/a")]),
        ("a: rows", [("unknown_row_format", "/store/a")]),
        ("a: '${SHOP_ROWS_THAT_NOBODY_SETS}/a.json'", [("missing_variable", "/store/a")]),
        ("a: '${}/a.json'", [("bad_variable", "/store/a")]),
        ("a: '${file:/etc/a}/a.json'", [("variable_not_allowed", "/store/a")]),
        ("a: '${keyring:a/b:-store}/a.json'", [("variable_not_allowed", "/store/a")]),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_told_and_takes_no_tool_down(text, problems):
    assert wrong(text) == problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("store: {a: {rows: [], file: a.json}}", ("wrong_combination", "/store/a")),
        ("store: {a: {key: id}}", ("wrong_combination", "/store/a")),
        ("store: {a: {rows: [], ky: id}}", ("unknown_key", "/store/a/ky")),
        ("store: {a: {rows: [], key: []}}", ("wrong_type", "/store/a/key")),
        ("store: {a: {rows: 1}}", ("wrong_type", "/store/a/rows")),
        ("store: {a: true}", ("wrong_type", "/store/a")),
        ("store: []", ("wrong_type", "/store")),
        ("state: {cart: true}", ("wrong_type", "/state/cart")),
        ("state: {cart: []}", ("wrong_value", "/state/cart")),
        ("state: {cart: [open, {}]}", ("wrong_type", "/state/cart/1")),
    ],
)
def test_what_has_no_form_of_a_store_refuses_the_pack(text, problem):
    loaded = shop(text)
    assert problem in [(each.code, each.pointer) for each in loaded.problems]
    assert (loaded.tools, loaded.packs) == ((), ())


def test_the_first_rows_that_are_wrong_are_told_and_how_many_more_there_are():
    loaded = shop(f"store: {{a: {json.dumps([1] * 9)}}}")
    assert [each.code for each in loaded.problems] == ["row_not_object"] * 5 + ["more_rows_wrong"]
    assert loaded.problems[-1].message == "4 more rows of the collection are invalid"
    many = shop(f"store: {{a: {{schema: {{required: [n]}}, rows: {json.dumps([{}] * 1200)}}}}}")
    assert many.problems[-1].message == "1,195 more rows of the collection are invalid"


def test_a_collection_with_a_fault_is_known_and_says_what_is_wrong_with_it():
    loaded = shop("store:\n  a: missing.json\n  b: [{}]\n")
    a, b = loaded.tools[0].fixture.collections.values()
    assert (a.name, a.rows, a.digest, rows_of(b)) == ("a", None, "", {"1": {}})
    assert a.fault == "pack.yaml:4: rows_unreadable: no file `missing.json`"
    with pytest.raises(ExpressionError, match=r"cannot read the rows of `a`: pack.yaml:4: rows_unreadable"):
        rows_of(a)


def test_states_are_a_start_or_a_list_of_all_of_them():
    loaded = shop("state: {cart: open, till: [closed, open], release: '1.10'}")
    assert loaded.tools[0].fixture.machines == {
        "cart": Machine("cart", "shop/cart", "open"),
        "till": Machine("till", "shop/till", "closed", ("closed", "open")),
        "release": Machine("release", "shop/release", "1.10"),
    }


def test_a_state_that_is_listed_twice_and_a_name_that_is_none_are_told():
    loaded = shop("state: {till: [closed, open, closed], not: a, a.b: c}")
    assert [(each.code, each.pointer) for each in loaded.problems] == [
        ("duplicate_name", "/state/till/2"),
        ("wrong_form", "/state/not"),
        ("wrong_form", "/state/a.b"),
    ]
    assert loaded.tools[0].fixture.machines["till"].states == ("closed", "open")


def test_a_pack_without_store_keeps_nothing_and_all_tools_of_one_share_what_it_keeps():
    assert shop("").tools[0].fixture is NO_FIXTURE
    loaded = shop("store: {a: []}", {"more.tool.yaml": TOOL.replace("ping", "pong")})
    assert loaded.tools[0].fixture is loaded.tools[1].fixture is loaded.packs[0].fixture


def test_a_pack_or_project_that_is_parsed_alone_tells_all_that_is_wrong():
    pack = Pack.parse("pack.yaml", PACK + "store: {a: [{n: 1}]}", kinds=KINDS)
    assert rows_of(pack.fixture.collections["a"]) == {"1": {"n": 1}}
    project = Project.parse("toolcrib.yaml", "project: p\nstate: {a: b}", kinds=KINDS)
    assert project.fixture.machines["a"].id == "/a"
    for kind, text in ((Pack, PACK), (Project, "project: p\n")):
        with pytest.raises(DocumentError) as raised:
            kind.parse("p.yaml", text + "store: {a: x.json, b: [1]}", kinds=KINDS)
        assert [each.code for each in raised.value.problems] == ["rows_unreadable", "row_not_object"]
        assert "from memory" in raised.value.problems[0].message


def test_what_tells_one_store_from_another_is_what_the_rows_are_and_how_they_are_read():
    texts = [
        "{a: [{n: 1}]}",
        "{a: {rows: [{n: true}]}}",
        "{a: {rows: [{n: 1}], key: n}}",
        "{a: {rows: [{n: 1}], schema: {}}}",
    ]
    digests = {shop(f"store: {text}").tools[0].fixture.collections["a"].digest for text in texts}
    assert len(digests) == 4
    again = shop("store: {b: [], a: {rows: [{n: 1}]}}").tools[0].fixture.collections["a"].digest
    assert again in digests


def test_a_scenario_lays_its_store_over_that_of_a_pack():
    below = Fixture(
        MappingProxyType({name: Collection(name, f"shop/{name}", rows={}) for name in ("orders", "users")}),
        MappingProxyType({"cart": Machine("cart", "shop/cart", "open")}),
    )
    problems: list = []
    said = {
        "store": {"orders": [{"n": 1}], "outbox": []},
        "state": {"cart": "paid", "till": ["shut", "open"]},
    }
    own = parse_fixture(said, Origin("s.yaml"), "", problems)
    above = fixture_with(below, own.collections, own.machines)
    assert problems == []
    assert [*above.collections] == ["orders", "users", "outbox"]
    assert rows_of(above.collections["orders"]) == {"1": {"n": 1}}
    assert above.collections["users"] is below.collections["users"]
    assert [(each.name, each.start) for each in above.machines.values()] == [
        ("cart", "paid"),
        ("till", "shut"),
    ]
    assert fixture_with(below, {}, {}) is below


def test_files_of_a_scenario_are_those_beside_it():
    files = MemoryFiles({"tests/rows.json": '{"x": {}}'}, "tests")
    problems: list = []
    found = parse_fixture({"store": {"a": "rows.json"}}, Origin("tests/s.yaml", files=files), "", problems)
    assert (problems, rows_of(found.collections["a"])) == ([], {"x": {}})


def test_the_three_documents_say_alike_what_stores_are():
    of = {kind: envelope(kind) for kind in ("pack", "project", "scenario")}
    names = ("store", "collection", "rows", "row_list", "row_file", "states", "state_list", "state_name")
    for name in names:
        assert of["pack"]["$defs"][name] == of["project"]["$defs"][name] == of["scenario"]["$defs"][name]


QUOTES = "put it in quotes to make it text"


@pytest.mark.parametrize(("state", "hint"), [("3", QUOTES), ("1.10", QUOTES), ("true", QUOTES), ("{}", "")])
def test_a_state_that_is_no_text_is_refused_with_the_way_out(state, hint):
    for text, place in (
        (f"state: {{c: {state}}}", "/state/c"),
        (f"state: {{c: [a, {state}]}}", "/state/c/1"),
    ):
        (problem,) = [each for each in shop(text).problems if each.code == "wrong_type"]
        assert (problem.pointer, problem.hint) == (place, hint)
    assert shop('state: {c: "3"}').tools[0].fixture.machines["c"].start == "3"
