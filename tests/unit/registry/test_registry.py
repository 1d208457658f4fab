"""The registry: an immutable mapping in order of names, with provenance and new revisions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import MOCKS, problems_of
from toolcrib import Descriptor, DocumentError, Executors, Origin, Registry, parse_registry
from toolcrib.registry.registry import without_duplicates


def tool(name, **keys):
    return Descriptor(name=name, **keys)


def test_tools_stand_in_the_order_of_their_names():
    assert list(Registry([tool("b"), tool("a"), tool("C")])) == ["C", "a", "b"]


@settings(deadline=None)
@given(st.lists(st.text("abcXYZ_.-", min_size=1), unique=True), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_of_loading(given_names, chance: random.Random):
    mixed = [tool(name) for name in given_names]
    chance.shuffle(mixed)
    assert list(Registry(mixed)) == sorted(given_names)


def test_a_registry_is_a_mapping():
    registry = Registry([tool("a"), tool("b")])
    assert registry["a"].name == "a"
    assert "b" in registry
    assert "c" not in registry
    assert registry.get("c") is None
    assert len(registry) == 2
    assert registry
    assert not Registry()
    assert repr(registry) == "Registry(2 tools: a, b)"


def test_nothing_in_a_registry_can_be_replaced():
    registry = Registry([tool("a")])
    with pytest.raises(TypeError):
        registry["a"] = tool("a")
    with pytest.raises(TypeError):
        registry._tools["a"] = tool("a")
    with pytest.raises(AttributeError):
        registry.revision = 7
    with pytest.raises(AttributeError):
        registry.note = "mine"
    with pytest.raises(AttributeError):
        registry["a"].name = "b"


def test_changes_give_new_revisions_and_leave_the_old_one():
    first = Registry([tool("a", title="old"), tool("b")])
    second = first.with_tool(tool("a", title="new"))
    third = second.with_tools([tool("c"), tool("d")])
    fourth = third.without("a", "b")
    assert [registry.revision for registry in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert [list(registry) for registry in (first, second, third, fourth)] == [
        ["a", "b"],
        ["a", "b"],
        ["a", "b", "c", "d"],
        ["c", "d"],
    ]
    assert (first["a"].title, second["a"].title) == ("old", "new")


def test_what_is_not_there_cannot_be_taken_out():
    with pytest.raises(KeyError, match="c"):
        Registry([tool("a")]).without("a", "c")


def test_near_misses_come_nearest_first():
    registry = Registry([tool("get_city"), tool("get_cities"), tool("put_map")])
    assert registry.near("GET_CITY") == ["get_city", "get_cities"]
    assert registry.near("zzz") == []


def test_near_misses_are_found_among_very_many_tools():
    registry = Registry(
        [*(tool(f"tool_{number}") for number in range(1000)), tool("get_city"), tool("get_cities")]
    )
    assert registry.near("GET_CITTY") == ["get_city", "get_cities"]
    assert registry.near("zzz") == []


# Two tools of one name.


def test_two_tools_of_one_name_are_refused_with_both_places():
    first = tool("a", origin=Origin(source="one.yaml", line=3))
    second = tool("a", origin=Origin(source="two.yaml", line=8, locate=lambda _pointer: (9, 7)))
    with pytest.raises(DocumentError) as raised:
        Registry([first, second])
    (problem,) = raised.value.problems
    assert str(problem) == (
        "two.yaml:9:7: duplicate_tool: duplicate tool `a`, already loaded from one.yaml:3 (at /name)\n"
        "    hint: rename one of them, or remove one of the files"
    )


def test_the_first_of_each_name_is_kept_and_every_other_one_told():
    kept, problems = without_duplicates(
        [tool("a", title="1"), tool("a", title="2"), tool("b"), tool("a", title="3")]
    )
    assert [found.title for found in kept] == ["1", ""]
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [
        ("duplicate_tool", 1, 1)
    ] * 2


# From texts.


TWO = "name: a\nmock: {result: 1}\n---\nname: b\ndescription: Nothing yet.\n"


@pytest.mark.parametrize("content", [TWO, TWO.encode()])
def test_a_registry_is_read_from_text_or_bytes(content):
    registry = parse_registry("two.yaml", content, kinds=MOCKS)
    assert {name: found.mode for name, found in registry.items()} == {"a": "mock", "b": None}


def test_a_registry_is_read_from_a_mapping_and_from_json():
    document = {"name": "a", "mock": {"result": 1}}
    assert list(parse_registry("a", document, kinds=MOCKS)) == ["a"]
    assert list(parse_registry("a.json", '[{"name": "a", "mock": {"result": 1}}]', kinds=MOCKS)) == ["a"]


def test_every_tool_says_where_it_came_from():
    registry = parse_registry("two.yaml", TWO, kinds=MOCKS)
    assert [(found.origin.source, found.origin.line) for found in registry.values()] == [
        ("two.yaml", 1),
        ("two.yaml", 4),
    ]
    assert registry["b"].origin.place("/description") == "two.yaml:5"


def test_the_digest_is_of_the_content_and_not_of_how_it_is_written():
    one = parse_registry("1.yaml", "name: a\nmock: {result: {x: 1, y: 2}}\n", kinds=MOCKS)["a"].origin
    same = parse_registry("2.json", '{"mock": {"result": {"y": 2, "x": 1}}, "name": "a"}', kinds=MOCKS)[
        "a"
    ].origin
    other = parse_registry("1.yaml", "name: a\nmock: {result: {x: 1, y: 3}}\n", kinds=MOCKS)["a"].origin
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 64


def test_reading_raises_what_is_wrong_unless_somebody_takes_it():
    text = "name: a\nmock: {resutl: 1}\n---\nname: b\nmock: {result: 1}\n"
    with pytest.raises(DocumentError):
        parse_registry("two.yaml", text, kinds=MOCKS)
    problems = []
    assert list(parse_registry("two.yaml", text, kinds=MOCKS, problems=problems)) == ["b"]
    assert problems
    assert {problem.source for problem in problems} == {"two.yaml"}


def test_duplicates_in_one_text_are_told():
    assert problems_of("name: a\nmock: {result: 1}\n---\nname: a\nmock: {result: 2}\n") == []
    problems = []
    text = "name: a\nmock: {result: 1}\n---\nname: a\nmock: {result: 2}\n"
    assert len(parse_registry("two.yaml", text, kinds=MOCKS, problems=problems)) == 1
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [
        ("duplicate_tool", 4, 7)
    ]


def test_warnings_alone_do_not_keep_a_text_out():
    text = "name: a\nmode: mock\nmock: {result: 1}\nlive: {url: x}\n"
    assert list(parse_registry("a.yaml", text, kinds=MOCKS)) == ["a"]
    assert list(parse_registry("a.yaml", "name: a\nmode: live\nlive: {url: x}\n", kinds=Executors({}))) == [
        "a"
    ]


# Parsing.

GOOD = "name: a\nmock: {result: 1}\n"


@pytest.mark.parametrize(
    "content",
    [
        "nme: a\nmock: {result: 1}",
        "",
        "# nothing",
        {},
        {"nme": "a"},
        [],
        [3],
        [{"nme": "a"}],
        "scenario: s\nsteps: [{call: a}]\n",
    ],
)
def test_content_without_any_descriptor_is_an_error_unless_a_list_is_given(content):
    with pytest.raises(DocumentError, match="unrecognised_file"):
        parse_registry("x.yaml", content, kinds=MOCKS)
    assert len(parse_registry("x.yaml", content, kinds=MOCKS, problems=[])) == 0


def test_a_list_of_mappings_is_a_list_of_documents():
    listed = [{"name": name, "mock": {"result": 1}} for name in ("b", "a")]
    assert list(parse_registry("memory", listed, kinds=MOCKS)) == ["a", "b"]
    with pytest.raises(DocumentError, match="duplicate_tool"):
        parse_registry("memory", [listed[0], listed[0]], kinds=MOCKS)


@pytest.mark.parametrize("content", [None, 3, {1, 2}, [{"name": object()}]])
def test_what_is_no_content_is_a_document_error(content):
    with pytest.raises(DocumentError, match="not_json"):
        parse_registry("memory", content, kinds=MOCKS)


def test_notices_and_warnings_beside_good_tools_are_logged(caplog):
    caplog.set_level("INFO", logger="toolcrib")
    text = f"{GOOD}---\nstuff: 1\n---\nname: c\nmode: live\nlive: {{url: 'http://x'}}\n"
    assert list(parse_registry("x.yaml", text, kinds=MOCKS)) == ["a", "c"]
    assert sorted((record.levelname, record.getMessage().split(": ")[2]) for record in caplog.records) == [
        ("INFO", "unrecognised_file"),
        ("WARNING", "mode_not_installed"),
    ]


def test_with_a_list_nothing_is_logged(caplog):
    caplog.set_level("INFO", logger="toolcrib")
    problems = []
    parse_registry("x.yaml", f"{GOOD}---\nstuff: 1\n", kinds=MOCKS, problems=problems)
    assert [problem.code for problem in problems] == ["unrecognised_file"]
    assert caplog.records == []
