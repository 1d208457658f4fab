"""What holds of every request, whatever the arguments are."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from hypothesis import given
from hypothesis import strategies as st

from drafting import compiled
from toolcrib.executors.live.value_sources import scalar_text
from toolcrib.schema.validation.violations import UnusableArguments

NASTY = st.sampled_from(
    ["..", "../", "%2e%2e%2f", "..;/", "a&admin=1", "\r\nX: 1", "?x", "#f", "@evil.example", "//evil.example", ";a=b", "{{ args.x }}", "${X}", "\x00", "\ud800", "\u2028", "."]
)  # fmt: skip
TEXTS = st.text() | st.text(st.sampled_from(r"./\%2eE;?#&=@:, ")) | NASTY
SCALARS = TEXTS | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

EVERYWHERE = compiled(
    {
        "method": "POST",
        "url": "https://api.example.com/v1/{{ args.a }}/x-{{ args.b }}/end?u={{ args.c }}&v=x{{ args.d }}",
        "query": {
            "q": "{{ args.a }}",
            "flat": {"value": "{{ args.b }}", "explode": False},
            "space": {"value": "{{ args.b }}", "style": "spaceDelimited"},
            "deep": {"value": "{{ args.c }}", "style": "deepObject"},
            "static": "1",
        },
        "headers": {"X-A": "{{ args.c }}", "X-B": "b {{ args.d }}"},
        "cookies": {"c": "{{ args.a }}", "d": "x{{ args.b }}"},
        "body": {"form": {"f": "{{ args.c }}", "static": "1"}},
    }
)
PATH = compiled({"url": "https://api.example.com/v1/{{ args.a }}/{{ args.b }}.json/end"})
QUERY = compiled({"query": {"q": "{{ args.q }}", "static": "1"}})
HEADER = compiled(
    {"headers": {"X-A": "{{ args.a }}", "X-B": "{{ args.b }}"}, "cookies": {"c": "{{ args.a }}"}}
)
FORM = compiled({"method": "POST", "body": {"from": "args", "as": "form"}})
JSON_BODY = compiled({"method": "POST", "body": {"json": {"a": "{{ args.a }}", "b": ["{{ args.b }}"]}}})
LEFT = compiled({"query": {"from": "args", "static": "1"}})

_HEADER = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@given(st.fixed_dictionaries({"a": SCALARS, "b": SCALARS, "d": SCALARS}, optional={"c": VALUES}))
def test_arguments_fill_their_places_and_nothing_else(arguments):
    with suppress(UnusableArguments):
        draft = EVERYWHERE.draft(arguments)
        assert (draft.method, draft.origin, draft.host, draft.port) == (
            "POST",
            "https://api.example.com",
            "api.example.com",
            443,
        )
        names = {piece.partition("=")[0] for piece in draft.query}
        assert all(re.fullmatch(r"[uvq]|flat|space|static|deep(%5B[^&=]*%5D)*", name) for name in names)
        assert draft.query.count("static=1") == 1
        assert draft.finished().target.isascii()
        assert {name for name, _value in draft.headers} <= {
            "X-A",
            "X-B",
            "Accept",
            "User-Agent",
            "Content-Type",
        }
        assert all(_HEADER.fullmatch(value) for _name, value in draft.finished().headers)
        assert [piece.partition("=")[0] for piece in draft.cookies] in (["d"], ["c", "d"])
        assert set(re.findall(rb"(?:^|&)([^=]*)=", draft.body)) <= {b"f", b"static"}


@given(SCALARS, SCALARS)
def test_a_path_keeps_its_segments(first, second):
    with suppress(UnusableArguments):
        path = PATH.draft({"a": first, "b": second}).path
        assert re.fullmatch(r"/v1/[A-Za-z0-9%._~-]+/[A-Za-z0-9%._~-]*\.json/end", path)
        _empty, prefix, one, two, end = path.split("/")
        assert (prefix, end) == ("v1", "end")
        assert (unquote(one), unquote(two)) == (scalar_text(first), f"{scalar_text(second)}.json")
        assert not {".", ".."} & set(re.split(r"[/\\]", unquote(path)))


@given(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1)
)
def test_a_query_gives_back_exactly_the_values(value):
    values = value if isinstance(value, list) else [value]
    target = QUERY.draft({"q": value}).finished().target
    assert parse_qsl(target.partition("?")[2], keep_blank_values=True) == [
        *(("q", each) for each in values),
        ("static", "1"),
    ]


@given(TEXTS, TEXTS)
def test_a_header_is_one_line_and_as_many_as_are_written(first, second):
    with suppress(UnusableArguments):
        headers = HEADER.draft({"a": first, "b": second}).finished().headers
        assert [name for name, _value in headers] == ["X-A", "X-B", "Accept", "User-Agent", "Cookie"]
        assert headers[0][1] == first.strip(" \t")
        assert not re.search(r"[\r\n\x00]", "".join(value for _name, value in headers))
        assert not re.search(r"[\s\",;\\]", headers[-1][1])
        assert unquote(headers[-1][1].removeprefix("c=")) == first


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), SCALARS, max_size=4))
def test_a_form_gives_back_what_is_left(arguments):
    with suppress(UnusableArguments):
        body = FORM.draft(arguments).body.decode("ascii")
        assert parse_qsl(body, keep_blank_values=True) == [
            (name, scalar_text(value)) for name, value in arguments.items()
        ]


@given(st.dictionaries(TEXTS, SCALARS, max_size=4))
def test_what_is_left_never_sets_what_the_descriptor_does(arguments):
    with suppress(UnusableArguments):
        query = LEFT.draft(arguments).finished().target.partition("?")[2]
        assert [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "static"] == [
            "1"
        ]


@given(VALUES, VALUES)
def test_a_json_body_keeps_every_value(first, second):
    with suppress(UnusableArguments):
        body = JSON_BODY.draft({"a": first, "b": second}).body
        assert json.loads(body) == {"a": first, "b": [second]}
