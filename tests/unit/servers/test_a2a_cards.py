"""Cards of A2A agents: which skills become tools, and what is wrong with the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_agents import DESCRIPTORS, EXTENSION, INTEGERS, SUM, card_of
from toolcrib.core.server_config import Server
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.a2a.cards import (
    TEXT_ARGUMENT,
    AgentInterface,
    check_schema,
    decode_card,
    descriptor_hash,
    read_card,
    targets_of_card,
)
from toolcrib.servers.a2a.numbers import is_inexact, narrow_numbers, whole_numbers
from toolcrib.servers.mcp.failures import InvalidAnswer

BASE = "https://crm.example"
CARD = f"{BASE}/.well-known/agent-card.json"


def read(raw, **options):
    agent = Server("crm", transport="a2a", url=BASE, **options)
    try:
        # It waits for nothing, and an event loop for each card would take longer than the card.
        read_card(raw, agent, CARD, SecretResolver()).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


def with_descriptors(descriptors, **changes):
    extension = {"uri": EXTENSION, "params": {"tools": descriptors}}
    return card_of(BASE, capabilities={"extensions": [extension]}, **changes)


def test_skills_with_the_tag_and_those_of_the_extension_are_tools():
    raw = with_descriptors({"chat": {"name": "talk", "inputSchema": {"type": "object"}}, **DESCRIPTORS})
    assert [*read(raw).catalogue.tools] == ["add", "note", "ask", "talk"]


def test_schemas_come_from_the_extension():
    tool = read(card_of(BASE)).catalogue.tools["add"]
    assert (tool["inputSchema"], tool["outputSchema"]) == (INTEGERS, SUM)
    assert tool["description"] == "Add two integers"
    assert tool["annotations"] == {"readOnlyHint": True}
    assert "title" not in tool


@pytest.mark.parametrize(
    ("inner", "outer"), [("inputSchema", "outputSchema"), ("input_schema", "output_schema")]
)
def test_schemas_may_stand_in_the_skill_itself(inner, outer):
    skill = {"id": "tool-x", "name": "X", "description": "", "tags": ["tool"], inner: INTEGERS, outer: SUM}
    tool = read(card_of(BASE, skills=[skill], capabilities={})).catalogue.tools["x"]
    assert (tool["inputSchema"], tool["outputSchema"], tool["title"]) == (INTEGERS, SUM, "X")


def test_a_skill_without_a_schema_takes_a_text():
    card = read(card_of(BASE))
    assert card.catalogue.tools["ask"]["inputSchema"] == TEXT_ARGUMENT
    assert card.texts == {"ask"}


def test_a_card_without_tools_is_no_error():
    catalogue = read(card_of(BASE, skills=[], capabilities={})).catalogue
    assert (catalogue.tools, catalogue.refused, catalogue.remarks) == ({}, {}, ())


def test_tags_and_modes_select_skills():
    assert [*read(card_of(BASE), tags=("mat*",)).catalogue.tools] == ["add"]
    skills = [
        {"id": "a", "tags": ["tool"], "outputModes": ["text/plain"]},
        {"id": "b", "tags": ["tool"]},
    ]
    assert [*read(card_of(BASE, skills=skills), output_modes=("application/*",)).catalogue.tools] == ["b"]


@pytest.mark.parametrize(
    ("skills", "refused", "remarks"),
    [
        (
            [{"id": "tool-a", "tags": ["tool"]}, {"id": "tool-a", "tags": ["tool"]}],
            {"skills[1]": "duplicate skill `tool-a`"},
            (),
        ),
        (
            [{"tags": ["tool"]}, {"id": "tool-a", "tags": ["tool"]}],
            {},
            ("`skills[0]` of its card has no `id`",),
        ),
        (
            [
                {"id": "x", "tags": ["tool"], "inputSchema": {"$ref": "https://evil.example/s"}},
                {"id": "a", "tags": ["tool"]},
            ],
            {"x": "its `inputSchema` refers to `https://evil.example/s`, which is not fetched"},
            (),
        ),
        (
            [{"id": "x", "tags": ["tool"], "inputSchema": {"not": {}}}, {"id": "a", "tags": ["tool"]}],
            {"x": "its `inputSchema` refuses every value"},
            (),
        ),
        (
            [{"id": "x", "tags": ["tool"], "inputSchema": 5}, {"id": "a", "tags": ["tool"]}],
            {"x": "its `inputSchema` is not an object"},
            (),
        ),
    ],
)
def test_a_bad_skill_is_reported_and_the_others_work(skills, refused, remarks):
    catalogue = read(card_of(BASE, skills=skills, capabilities={})).catalogue
    assert catalogue.refused == refused
    assert catalogue.remarks == remarks
    assert [*catalogue.tools] == ["a"]


def test_a_required_property_that_nothing_can_have_refuses_every_value():
    assert "refuses every value" in (check_schema({"properties": {"a": False}, "required": ["a"]}) or "")
    assert check_schema({"properties": {"a": True}, "required": ["a"]}) is None


def test_a_reference_deep_in_a_schema_is_found():
    schema = {"properties": {"a": {"items": [{"$ref": "other.json"}]}}}
    assert "other.json" in (check_schema(schema) or "")
    assert check_schema({"$defs": {"a": {}}, "properties": {"b": {"$ref": "#/$defs/a"}}}) is None


def test_a_hash_must_match_the_definition():
    descriptor = {"name": "add", "inputSchema": INTEGERS}
    good = with_descriptors({"tool-add": {**descriptor, "hash": descriptor_hash(descriptor)}})
    assert "add" in read(good).catalogue.tools
    bad = with_descriptors({"tool-add": {**descriptor, "hash": "sha256:0"}})
    catalogue = read(bad).catalogue
    assert catalogue.refused == {"add": "its `hash` in the extension does not match its definition"}
    assert [*catalogue.tools] == ["note", "ask"]


def test_a_hash_does_not_depend_on_whole_floats():
    # A card of the SDK has passed through protobuf, which makes every number a double.
    descriptor = {"name": "add", "inputSchema": {"properties": {"a": {"minimum": 1}}}}
    through = {"name": "add", "inputSchema": {"properties": {"a": {"minimum": 1.0}}}}
    assert descriptor_hash(descriptor) == descriptor_hash(through)
    tool = read(with_descriptors({"tool-add": through})).catalogue.tools["add"]
    assert repr(tool["inputSchema"]["properties"]["a"]["minimum"]) == "1"


def test_a_descriptor_of_no_skill_is_a_remark():
    catalogue = read(with_descriptors({"gone": {"name": "gone"}})).catalogue
    assert catalogue.remarks == ("its extension describes the skill `gone`, which the card does not list",)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000])
def test_what_is_no_card_is_refused(body):
    with pytest.raises(InvalidAnswer, match="its card is not"):
        decode_card(body)


def test_skills_that_are_no_list_are_refused():
    with pytest.raises(InvalidAnswer, match="`skills` of its card is not a list"):
        read(card_of(BASE, skills={}))


def test_interfaces_of_both_revisions_are_read():
    assert read(card_of(BASE)).interfaces == (
        AgentInterface(f"{BASE}/rpc", "JSONRPC", "1.0"),
        AgentInterface(f"{BASE}/rest", "HTTP+JSON", "1.0"),
    )
    old = {
        "name": "old",
        "url": "/a2a",
        "protocolVersion": "0.3.0",
        "additionalInterfaces": [
            {"url": "grpc.example", "transport": "GRPC"},
            {"url": f"{BASE}/r", "transport": "HTTP+JSON"},
        ],
        "skills": [],
    }
    assert read(old).interfaces == (
        AgentInterface(f"{BASE}/a2a", "JSONRPC", "0.3.0"),
        AgentInterface(f"{BASE}/r", "HTTP+JSON", "0.3.0"),
    )


def test_a_url_of_a_card_is_not_looked_up():
    # `${...}` in it would read a secret of the user.
    raw = card_of(
        BASE, supportedInterfaces=[{"url": f"{BASE}/${{AWS_SECRET}}", "protocolBinding": "JSONRPC"}]
    )
    assert read(raw).interfaces == ()


@pytest.mark.parametrize(
    ("target", "targets"),
    [
        ("/", ("/.well-known/agent-card.json", "/.well-known/agent.json")),
        ("/crm/?k=1", ("/crm/.well-known/agent-card.json?k=1", "/crm/.well-known/agent.json?k=1")),
        ("/cards/crm.json?k=1", ("/cards/crm.json?k=1",)),
    ],
)
def test_where_a_card_is_looked_for(target, targets):
    assert targets_of_card(target) == targets


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_whole_numbers_are_equal_and_hold_no_whole_float(value):
    made = whole_numbers(value)
    assert made == value

    def floats(item):
        if isinstance(item, float):
            yield item
        for inner in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
            yield from floats(inner)

    assert not any(each.is_integer() for each in floats(made))


@given(st.dictionaries(st.text(), JSON) | st.lists(JSON) | st.text() | st.booleans())
def test_no_card_breaks_the_reader(junk):
    for key in (
        "skills",
        "capabilities",
        "supportedInterfaces",
        "additionalInterfaces",
        "defaultOutputModes",
        "url",
    ):
        try:
            read(card_of(BASE, **{key: junk}), output_modes=("text/*",))
        except InvalidAnswer as error:
            assert key == "skills", error  # noqa: PT017
    read(with_descriptors(junk))
    read(card_of(BASE, skills=[junk, {"id": "a", "tags": junk, "inputSchema": junk, "outputModes": junk}]))


def test_numbers_stay_where_the_schema_wants_them():
    schema = {
        "properties": {"ratio": {"type": "number"}, "n": {"type": "integer"}},
        "additionalProperties": {"type": "number"},
    }
    value = {"ratio": 5.0, "n": 5.0, "other": 1.0}
    assert repr(narrow_numbers(value, schema)) == "{'ratio': 5.0, 'n': 5, 'other': 1.0}"
    listed = {"prefixItems": [{"type": "integer"}], "items": {"type": "number"}}
    assert repr(narrow_numbers([1.0, 2.0, 3.5], listed)) == "[1, 2.0, 3.5]"
    assert repr(narrow_numbers([1.0, {"a": 2.0}], None)) == "[1, {'a': 2}]"


def test_integers_beyond_a_double_are_told():
    assert is_inexact({"a": [2**53 + 1]})
    assert not is_inexact({"a": [2**53, True, "x", None, -1.5]})
