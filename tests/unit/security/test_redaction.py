"""Which names and places are secret, and what a value looks like without them."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.subschemas import SchemaIndex
from toolcrib.security.redaction import (
    HIDDEN,
    Redactor,
    SecretPlaces,
    compile_redaction,
    is_secret_name,
    is_secret_schema,
    redact,
)

SECRET_NAMES = [
    "password",
    "Password",
    "PASSWORD",
    "db_password",
    "password1",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "client_secret",
    "clientSecret",
    "secrets",
    "token",
    "access_token",
    "accessToken",
    "accesstoken",
    "github-token",
    "token2",
    "api_key",
    "apiKey",
    "APIKey",
    "X-Api-Key",
    "apikey",
    "APIKEY",
    "access_key",
    "private_key",
    "privateKey",
    "secret_key",
    "Authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "credentials",
    "credential",
    "bearer",
    "jwt",
]

PLAIN_NAMES = [
    "",
    "key",
    "keys",
    "monkey",
    "keyword",
    "primary_key",
    "tokens",
    "max_tokens",
    "maxTokens",
    "tokenizer",
    "author",
    "authorize",
    "pass",
    "compass",
    "secretary",
    "accessible",
    "city",
    "42",
    "ключ",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_of_a_secret_is_known(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_name_that_only_resembles_one_is_plain(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize("schema", [{"writeOnly": True}, {"format": "password"}, {"x-secret": True}])
def test_a_subschema_can_mark_its_values_as_secret(schema):
    assert is_secret_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [True, False, {}, {"writeOnly": False}, {"writeOnly": "yes"}, {"format": "date"}, {"x-secret": 1}],
)
def test_other_subschemas_mark_nothing(schema):
    assert not is_secret_schema(schema)


def test_texts_and_containers_under_a_secret_name_are_hidden():
    value = {"password": "p", "token": ["t"], "credentials": {"user": "u", "port": 1}, "city": "Oslo"}
    assert redact(value) == {"password": HIDDEN, "token": HIDDEN, "credentials": HIDDEN, "city": "Oslo"}


@pytest.mark.parametrize("plain", [5, 0.5, True, None])
def test_by_name_alone_what_is_no_text_stays_visible(plain):
    assert redact({"token": plain}) == {"token": plain}


def test_secret_names_are_found_at_any_depth():
    assert redact([{"a": [{"api_key": "k", "b": 1}]}]) == [{"a": [{"api_key": HIDDEN, "b": 1}]}]


MARKED = {"writeOnly": True}

PLACES = {
    "property": ({"properties": {"a": MARKED}}, {"a": 1, "b": 2}, {"a": HIDDEN, "b": 2}),
    "pattern": ({"patternProperties": {"^x": MARKED}}, {"xa": 1, "b": 2}, {"xa": HIDDEN, "b": 2}),
    "further property": (
        {"properties": {"b": {}}, "additionalProperties": MARKED},
        {"a": None, "b": 2},
        {"a": HIDDEN, "b": 2},
    ),
    "items": ({"items": MARKED}, [1, [2]], [HIDDEN, HIDDEN]),
    "one item": ({"prefixItems": [{}, MARKED]}, [1, 2, 3], [1, HIDDEN, 3]),
    "container": ({"properties": {"a": MARKED}}, {"a": {"deep": [1]}}, {"a": HIDDEN}),
    "whole value": (MARKED, {"a": 1}, HIDDEN),
    "reference": ({"items": {"$ref": "#/$defs/s"}, "$defs": {"s": MARKED}}, [1], [HIDDEN]),
    "branch": ({"properties": {"a": {"oneOf": [{}, MARKED]}}}, {"a": 1}, {"a": HIDDEN}),
    "recursion": (
        {"properties": {"pin": MARKED, "next": {"$ref": "#"}}},
        {"next": {"next": {"pin": 1, "n": 2}}},
        {"next": {"next": {"pin": HIDDEN, "n": 2}}},
    ),
    "consequence": ({"then": {"properties": {"a": MARKED}}, "if": {}}, {"a": 1}, {"a": HIDDEN}),
    "by name under a marking schema": (
        {"properties": {"a": MARKED}},
        {"b": {"password": "p"}},
        {"b": {"password": HIDDEN}},
    ),
    "broken pattern": ({"patternProperties": {"(": MARKED}}, {"(": 1}, {"(": 1}),
}


@pytest.mark.parametrize(("schema", "value", "expected"), PLACES.values(), ids=PLACES)
def test_places_that_the_schema_marks_are_hidden(schema, value, expected):
    before = copy.deepcopy(value)
    assert redact(value, schema) == expected
    assert value == before


def test_a_marked_subschema_of_another_document_is_found():
    remotes = {"http://x.example/s.json": {"$defs": {"pin": MARKED}}}
    redacted = compile_redaction({"items": {"$ref": "http://x.example/s.json#/$defs/pin"}}, remotes)
    assert redacted([1]) == [HIDDEN]


def test_a_schema_is_compiled_once_for_many_values():
    redacted = compile_redaction({"properties": {"a": MARKED}})
    assert [redacted({"a": number}) for number in range(2)] == [{"a": HIDDEN}] * 2


def test_what_nests_beyond_a_hundred_levels_is_hidden():
    value: object = "CANARY"
    for _ in range(200):
        value = [value]
    assert "CANARY" not in json.dumps(redact(value))
    assert HIDDEN in json.dumps(redact(value))


def test_a_value_that_holds_itself_comes_to_an_end():
    value: dict[str, object] = {}
    value["self"] = value
    assert HIDDEN in json.dumps(redact(value))


@pytest.mark.parametrize(
    ("path", "value", "hidden"),
    [
        ((), {}, False),
        (("city",), "Oslo", False),
        (("password",), "p", True),
        (("password",), 5, False),
        (("credentials", "port"), 5, True),
        (("list", 0, "token"), "t", True),
        ((0,), "x", False),
    ],
)
def test_a_place_is_secret_by_the_names_on_its_path(path, value, hidden):
    assert SecretPlaces().hides(path, value) is hidden


def test_a_place_is_secret_by_a_mark_on_its_path():
    places = SecretPlaces(SchemaIndex({"properties": {"a": MARKED}}))
    assert places.hides(("a",), 1)
    assert places.hides(("a", "b", 0), 1)
    assert not places.hides(("b",), 1)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "password", "apiKey", "b"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_redacting_twice_changes_nothing_more_and_keeps_the_shape(value):
    once = redact(value)
    assert redact(once) == once
    if isinstance(value, dict | list):
        assert len(once) == len(value)


@given(st.text(max_size=20))
def test_the_case_of_a_whole_name_does_not_matter(name):
    plain = name.isascii() and (name.islower() or name.isupper())
    if plain:
        assert is_secret_name(name.lower()) == is_secret_name(name.upper())


NAMES = st.sampled_from(["a", "password", "max_token", "api_key", "b"])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@given(VALUES)
def test_a_schema_that_marks_nothing_here_hides_what_names_alone_hide(value):
    elsewhere = compile_redaction({"type": "object", "properties": {"elsewhere": {"x-secret": True}}})
    assert redact({"value": value}) == elsewhere({"value": value})


@given(VALUES, st.text('xyzé"\\\n', min_size=4, max_size=8))
def test_what_was_seen_is_given_masked_and_hidden_in_every_text_afterwards(value, secret):
    seen = Redactor()
    whole = {"value": value, "token": secret}
    assert seen.add(whole) == redact(whole)
    for text in (
        secret,
        f"it is {secret}!",
        json.dumps(secret),
        json.dumps({"x": secret}, ensure_ascii=False),
    ):
        assert secret not in seen.hide_in_text(text)


def test_of_secrets_within_each_other_the_longest_is_hidden_first():
    seen = Redactor({"token": "hunter2", "password": "hunter2-and-more"})
    assert seen.hide_in_text("say hunter2-and-more or hunter2") == "say *** or ***"
    seen.add({"secret": "and hunter2-and-more"})
    assert seen.hide_in_text("say and hunter2-and-more") == "say ***"
