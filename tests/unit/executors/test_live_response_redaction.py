"""`response.redact`: nothing is left at the paths, wherever an answer goes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_answers import JSON_TYPE, answer, reading_of, result_of


def value_with(paths, value, block=None, **response):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return result_of({"response": {"redact": paths}, **(block or {})}, answer(body, **response))


@pytest.mark.parametrize(
    ("path", "value", "left"),
    [
        ("user.email", {"user": {"email": "a@b", "id": 1}, "email": 2}, {"user": {"email": "***", "id": 1}, "email": 2}),
        ("items.*.card", {"items": [{"card": 1}, {"card": [2]}, 3]}, {"items": [{"card": "***"}, {"card": "***"}, 3]}),
        ("items.*.card", {"items": {"a": {"card": 1}}}, {"items": {"a": {"card": "***"}}}),
        ("items.card", {"items": [{"card": 1}, [{"card": 2}]]}, {"items": [{"card": "***"}, [{"card": "***"}]]}),
        ("items.*.card", {"items": [[{"card": 2}]]}, {"items": [[{"card": "***"}]]}),
        ("items.1", {"items": [1, 2, 3]}, {"items": [1, "***", 3]}),
        ("items.1.card", {"items": [{"card": 1}, {"card": 2}]}, {"items": [{"card": 1}, {"card": "***"}]}),
        ("items.9", {"items": [1]}, {"items": [1]}),
        ("items.9999999999999", {"items": [1]}, {"items": [1]}),
        ("card", [{"card": 1}, {"card": 2}], [{"card": "***"}, {"card": "***"}]),
        ("**.ssn", {"ssn": 1, "a": [{"ssn": 2, "b": {"ssn": {"ssn": 3}}}]}, {"ssn": "***", "a": [{"ssn": "***", "b": {"ssn": "***"}}]}),
        ("a.**.ssn", {"ssn": 1, "a": {"ssn": 2, "b": [{"ssn": 3}]}}, {"ssn": 1, "a": {"ssn": "***", "b": [{"ssn": "***"}]}}),
        ("**.a.**.b", {"a": {"a": {"a": {"b": 1}}}}, {"a": {"a": {"a": {"b": "***"}}}}),
        ("a.*", {"a": {"b": 1, "c": [2]}}, {"a": {"b": "***", "c": "***"}}),
        ("a.*", {"a": [1, {"b": 2}]}, {"a": ["***", "***"]}),
        ("*.0", {"a": [1, 2], "0": {"0": 3}}, {"a": ["***", 2], "0": {"0": "***"}}),
        ('"a.b"."c\\"d"', {"a.b": {'c"d': 1}}, {"a.b": {'c"d': "***"}}),
        ("a.b", {"a": None}, {"a": None}),
        ("a.b", {"A": {"b": 1}}, {"A": {"b": 1}}),
        ("a", 7, 7),
    ],
)  # fmt: skip
def test_what_a_path_names(path, value, left):
    assert value_with([path], value).value == left


def test_nothing_sees_it_before():
    body = {"user": {"ssn": "hunter2", "name": "A"}}
    assert value_with(["**.ssn"], body, {"select": "body.user.[name, ssn]"}).value == ["A", "***"]
    assert value_with(["**.ssn"], body, {"select": "body.user.ssn == 'hunter2'"}).value is False
    read = reading_of({"response": {"redact": ["**.ssn"]}}).read(answer(json.dumps(body).encode()))
    assert "hunter2" not in str(read)


@pytest.mark.parametrize(
    "block", [{}, {"errors": {"404": {"message": "{{ body }}", "details": {"all": "{{ body }}"}}}}]
)
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"title": "x", "ssn": "hunter2", "problem": [{"ssn": ["hunter2"]}]}', JSON_TYPE),
        (b'{"message": {"ssn": "hunter2"}}', "text/plain"),
        (b'{"message": {"ssn": "hunter2"}', JSON_TYPE),
        (b'{"a": 1}\n\n{"ssn": "hunter2"}', "application/x-ndjson"),
        (b'[{"ssn": "hunter2"}', "text/plain"),
        (b'{"a": NaN, "ssn": "hunter2"}', JSON_TYPE),
        (b'{"ssn": "hunter2", "a": ' + b"[" * 5000 + b"]" * 5000 + b"}", JSON_TYPE),
        (b'{"ssn": "hunter2", "a": ' + b"[" * 900 + b"]" * 900 + b"}", "text/plain"),
        (b'{"ssn": "hunter2", "a": "\\ud800"}', "text/plain"),
    ],
)  # fmt: skip
def test_failures_tell_nothing_of_it(body, content_type, block):
    result = value_with(["**.ssn", "message.ssn"], body, block, content_type=content_type, status=404)
    assert "hunter2" not in str(result)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"ssn": 1, "a": "ø"}', '{"ssn":"***","a":"\\u00f8"}'),
        (' [{"ssn": 1}] ', '[{"ssn":"***"}]'),
        ('{"ssn": 1}\n{"b": 2}\n', '{"ssn":"***"}\n{"b":2}'),
        ('{"ssn": 1}\n{"b": ', "***"),
        ('{"ssn": 1}\nhello', "***"),
        ("[note] nothing to hide", "[note] nothing to hide"),
        ("ssn,name\n1,A", "ssn,name\n1,A"),
        ('"ssn"', '"ssn"'),
    ],
)
def test_texts_that_are_json_are_hidden_in(text, left):
    assert value_with(["**.ssn"], text.encode(), content_type="text/plain").value == left


KEYS = st.sampled_from(["a", "b", "0", "c.d", "ssn"])
VALUES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=20,
)
STEPS = st.lists(st.sampled_from(["a", "b", "0", '"c.d"', "ssn", "*", "**"]), min_size=1, max_size=4).filter(
    lambda steps: steps[-1] != "**"
)


def found(value, steps):
    """What stands at a path, by the words of its definition, one step at a time."""
    if isinstance(value, list) and steps[0] not in {"*", "**", "0"}:
        return [each for item in value for each in found(item, steps)]
    if not isinstance(value, dict | list):
        return []
    members = list(value.items() if isinstance(value, dict) else enumerate(value))
    if steps[0] == "**":
        below = [each for _key, item in members for each in found(item, steps)]
        return found(value, steps[1:]) + below
    name = steps[0].strip('"')
    here = [item for key, item in members if name == "*" or str(key) == name]
    return here if len(steps) == 1 else [each for item in here for each in found(item, steps[1:])]


@given(VALUES, st.lists(STEPS, min_size=1, max_size=3))
def test_nothing_is_left_at_the_paths(value, paths):
    left = value_with([".".join(steps) for steps in paths], {"top": value, "list": [value]})
    for steps in paths:
        assert all(each == "***" for each in found(left.value, steps))


@given(VALUES, STEPS)
def test_nothing_else_is_hidden(value, steps):
    hidden = str(value_with([".".join(steps)], {"top": value}).value).count("***")
    assert hidden <= len(found({"top": value}, steps))


def test_however_deep_a_text_is_nothing_is_left():
    for depth in (90, 300, 20_000):
        text = '{"ssn": "hunter2", "a": ' + "[" * depth + "]" * depth + "}"
        left = value_with(["**.ssn"], text.encode(), content_type="text/plain").value
        assert left == "***" or left.startswith('{"ssn":"***","a":[[')
