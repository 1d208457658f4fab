"""Answers of MCP servers as results: values, content, failures, and what is no answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.model import Content, Descriptor, Outcome
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.wrapped_results import unwrapped_schema
from toolcrib.executors.mcp.remote_tool import result_of
from toolcrib.servers.mcp.failures import (
    CallTarget,
    ConnectionLoss,
    InvalidAnswer,
    ProtocolError,
    result_of_lost_connection,
    result_of_protocol_error,
)
from toolcrib.servers.mcp.tool_list import approximate_size
from toolcrib.servers.mcp.transports import LinkTrouble

ASKED = CallTarget(Server("shop"), "buy", "shop__buy", repeatable=False)
TOOL = Descriptor("shop__buy")
READS = ASKED._replace(repeatable=True)
CATALOGUE = Catalogue("shop", {"buy": {"name": "buy"}, "sell": {"name": "sell"}})
OBJECT = {"type": "object"}

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def of(*content, schema=None, asked=ASKED, catalogue=CATALOGUE, **members):
    return result_of(
        {"content": [*content], **members}, asked, TOOL._replace(output_schema=schema), catalogue, str
    )


def text(said):
    return {"type": "text", "text": said}


def test_structured_content_is_the_value_and_texts_that_repeat_it_are_dropped():
    result = of(text('{"sum": 5}'), text("five"), structuredContent={"sum": 5})
    assert (result.value, result.content) == ({"sum": 5}, (Content("text", text="five"),))


@pytest.mark.parametrize("said", ['"x"', "x"])
def test_a_value_that_was_wrapped_up_is_not_told_twice(said):
    result = of(text(said), structuredContent={"result": "x"})
    assert (result.value, result.content) == ({"result": "x"}, ())


@pytest.mark.parametrize("wrap", [lambda items: {"result": items}, lambda items: items])
def test_a_list_whose_items_are_told_one_by_one_is_not_told_twice(wrap):
    items = wrap(["a", {"b": 1}])
    told = of(text("a"), IMAGE, text('{ "b": 1 }'), structuredContent=items)
    assert (told.value, [part.type for part in told.content]) == (items, ["image"])
    others = of(text("a"), text("c"), structuredContent=items)
    assert [part.text for part in others.content] == ["a", "c"]


ITEMS = [{"id": 1, "name": "é"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize(
    ("said", "structured"),
    {
        # filesystem, memory and others
        "the text that the value wraps": (["a\nb\n"], {"content": "a\nb\n"}),
        "the same without its last line break": (["a\nb"], {"content": "a\nb\n"}),
        "its parts": (["a"], {"content": [{"type": "text", "text": "a"}]}),
        "its parts and media": (["a"], {"content": [{"type": "text", "text": "a"}, IMAGE]}),
        "one member": (
            ["Entities deleted successfully"],
            {"success": True, "message": "Entities deleted successfully"},
        ),
        "a list that the value wraps": ([json.dumps(ITEMS, indent=2)], {"entities": ITEMS}),
        "a list beside others": ([json.dumps(ITEMS)], {"entities": ITEMS, "count": 2}),
        "wrapped twice": (["5"], {"data": {"sum": 5}}),
        "a text as JSON": (['"x"'], {"content": "x"}),
        # spelling
        "the order of keys": (['{"b": 2, "a": 1}'], {"a": 1, "b": 2}),
        "white space": ([' {\n\t"a" : [ 1 ]\r\n} '], {"a": [1]}),
        "numbers": (['{"a": 1.0, "b": 1e2, "c": 10000000000000000000000}'], {"a": 1, "b": 100, "c": 1e22}),
        "escapes": ([r'{"a": "\u00e9\/"}'], {"a": "é/"}),
        # lists
        "one text per item": (['{"id":1,"name":"é"}', '{"id":2,"name":"b"}'], {"result": ITEMS}),
        "one text per item beside others": (["1", "2"], {"count": 2, "items": [1, 2]}),
        "a list of lists": (["1", "2", "3"], {"result": [[1, 2], [3]]}),
        "items and null": (["1", "3"], {"result": [1, None, 3]}),
        "lines": (["a\nb"], {"files": ["a", "b"], "count": 2}),
        "a blank text": (["", "x"], {"content": "x"}),
        "twice": (['{"a":1}', '{ "a": 1 }'], {"a": 1}),
    }.values(),
)
def test_a_text_that_repeats_the_value_is_told_once_however_it_is_written(said, structured):
    result = of(*map(text, said), IMAGE, structuredContent=structured)
    assert (result.value, [part.type for part in result.content]) == (structured, ["image"])


@pytest.mark.parametrize(
    ("said", "structured", "kept"),
    [
        (["5"], {"sum": 5, "count": 2}, ["5"]),
        (["true"], {"a": 1}, ["true"]),
        (["[true]"], [1], ["[true]"]),
        (['{"a": 1, "b": 2}'], {"a": 1}, ['{"a": 1, "b": 2}']),
        (["open"], {"options": ["open", "closed"]}, ["open"]),
        (["found 2", '{"id":1,"name":"é"}', '{"id":2,"name":"b"}'], {"items": ITEMS}, ["found 2"]),
        (["1", "2", "that is all"], {"items": [1, 2]}, ["that is all"]),
        (['{"a": 1, "a": 1}'], {"a": 1}, ['{"a": 1, "a": 1}']),
        (["[" * 5000], {"a": 1}, ["[" * 5000]),
        (["x"], {"type": {"text": [{"type": ["text"]}]}}, ["x"]),
    ],
)
def test_a_text_that_tells_more_is_kept(said, structured, kept):
    assert [part.text for part in of(*map(text, said), structuredContent=structured).content] == kept


def test_many_texts_beside_a_large_value_take_no_time():
    items = [f"item {number}" for number in range(20_000)]
    result = of(*(text(f"{item}!") for item in items), structuredContent={"items": items})
    assert len(result.content) == len(items)


WRAPPED = {
    "type": "object",
    "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    "required": ["result"],
    "$defs": {"n": {"type": "integer"}},
    "x-fastmcp-wrap-result": True,
}
FAST = Catalogue("shop", {"buy": {"name": "buy", "outputSchema": WRAPPED}})
META = {"_meta": {"fastmcp": {"wrap_result": True}}}


@pytest.mark.parametrize(
    ("catalogue", "more"), [(FAST, {}), (CATALOGUE, META), (FAST, META)], ids=["schema", "meta", "both"]
)
@pytest.mark.parametrize(
    ("said", "value"), [(["[1,2]"], [1, 2]), (["1", "2"], [1, 2]), ([], None), (["x"], "x"), (["5"], 5)]
)
def test_what_fastmcp_wraps_is_unwrapped(catalogue, more, said, value):
    result = of(*map(text, said), structuredContent={"result": value}, catalogue=catalogue, **more)
    assert (result.value, result.content) == (value, ())


def test_a_schema_of_ones_own_for_the_wrapped_value_still_holds():
    def value(schema):
        told = of(text("[1]"), structuredContent={"result": [1]}, catalogue=FAST, schema=schema)
        assert told.content == ()
        return told.value

    assert value(WRAPPED) == {"result": [1]}
    assert value(unwrapped_schema(WRAPPED)) == value(True) == value(None) == value({"type": "string"}) == [1]


@pytest.mark.parametrize("structured", [{"result": 1, "more": 2}, {"other": 1}, [1], {}])
def test_what_is_not_wrapped_is_left_alone(structured):
    assert of(structuredContent=structured, catalogue=FAST, **META).value == structured


def test_a_value_named_result_is_wrapped_only_where_the_server_says_so():
    assert of(structuredContent={"result": 1}, _meta={"fastmcp": 7}).value == {"result": 1}
    assert of(structuredContent={"result": 1}, _meta=[]).value == {"result": 1}


@pytest.mark.parametrize(
    ("schema", "inner"),
    [
        (WRAPPED, {"$defs": WRAPPED["$defs"], **WRAPPED["properties"]["result"]}),
        ({**WRAPPED, "properties": {"result": True}}, True),
        ({**WRAPPED, "properties": {"result": {"type": ["string", "null"]}}, "$defs": {}}, {"$defs": {}, "type": ["string", "null"]}),
    ],
)  # fmt: skip
def test_the_schema_of_a_wrapped_value_is_unwrapped(schema, inner):
    assert unwrapped_schema(schema) == inner


@pytest.mark.parametrize(
    "schema",
    [
        {key: value for key, value in WRAPPED.items() if key != "x-fastmcp-wrap-result"},
        {**WRAPPED, "x-fastmcp-wrap-result": "yes"},
        {**WRAPPED, "properties": {}},
        {**WRAPPED, "properties": {"result": 5}},
        {**WRAPPED, "properties": {"result": {}, "more": {}}},
        {**WRAPPED, "properties": {"result": {"items": {"$ref": "#"}}}},
        {**WRAPPED, "$id": "https://example.com/schema"},
        {**WRAPPED, "properties": {"result": {"$defs": {}}}},
        {"x-fastmcp-wrap-result": True},
        True,
        None,
    ],
)
def test_any_other_schema_is_left_as_it_is(schema):
    assert unwrapped_schema(schema) == schema


def test_one_text_is_a_text_and_several_are_joined():
    assert of(text('{"a": 1}')).value == '{"a": 1}'
    assert of(text("a"), text("b")).value == "a\nb"
    assert of().value is None


@pytest.mark.parametrize(
    ("said", "schema", "value"),
    [
        ('{"a": 1}', OBJECT, {"a": 1}),
        ("null", {"type": "null"}, None),
        ("3", {"type": "integer"}, 3),
        ('{"a": 1}', {"type": ["string", "object"]}, '{"a": 1}'),
        ("plain", OBJECT, "plain"),
        ('{"a": NaN}', OBJECT, '{"a": NaN}'),
        ("[" * 5000, {"type": "array"}, "[" * 5000),
    ],
)
def test_a_text_is_read_as_json_where_the_schema_takes_no_such_text(said, schema, value):
    assert of(text(said), schema=schema).value == value


@pytest.mark.parametrize(
    ("said", "schema", "value"),
    [
        (['{"a": 1}', '{"a": 2}'], {"type": "array"}, [{"a": 1}, {"a": 2}]),
        (["one", "two"], {"type": "array", "items": {"type": "string"}}, ["one", "two"]),
        (['{"a":', "1}"], OBJECT, {"a": 1}),
        (["one", "two"], {"type": "string"}, "one\ntwo"),
        (["one", "two"], OBJECT, "one\ntwo"),
    ],
)
def test_several_texts_are_a_list_where_the_schema_takes_one(said, schema, value):
    assert of(*map(text, said), schema=schema).value == value


def test_what_is_no_text_is_content_in_order():
    result = of(
        text("look"),
        {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {"priority": 1}},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "a://b", "text": "t", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "a://c", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "a://d", "name": "d", "title": "D"},
    )
    assert result.value == "look"
    assert result.content == (
        Content("image", data="AAAA", mime_type="image/png"),
        Content("audio", data="", mime_type="audio/wav"),
        Content("resource", text="t", mime_type="text/plain", uri="a://b"),
        Content("resource", data="AAAA", uri="a://c"),
        Content("resource", uri="a://d", title="D"),
    )


def test_content_may_be_missing_beside_structured_content():
    assert result_of({"structuredContent": [1]}, ASKED, TOOL, CATALOGUE, str).value == [1]
    assert result_of({"structuredContent": None, "content": []}, ASKED, TOOL, CATALOGUE, str).value is None


def test_a_result_of_the_modern_era_need_not_say_that_it_is_complete():
    assert of(text("x"), resultType="complete").value == of(text("x")).value


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({}, "expected `content` to be a list, got nothing"),
        ({"content": "hi"}, "expected `content` to be a list, got text"),
        ({"content": [], "isError": "false"}, "expected `isError` to be a boolean, got text"),
        ({"content": [], "resultType": "task"}, "unexpected `resultType`, expected `complete`"),
        ({"content": ["hi"]}, "part 1 of `content` is not a content object"),
        (
            {"content": [text("a"), {"type": "video"}]},
            "part 2 of `content` has the unknown type `video`",
        ),
        (
            {"content": [{"type": "text"}]},
            "part 1 of `content` is invalid: expected `text` to be text, got nothing",
        ),
        (
            {"content": [{"type": "image", "data": "A", "mimeType": "image/png"}]},
            "part 1 of `content` is invalid: its data is not valid base64",
        ),
        (
            {"content": [{"type": "image", "data": "AAAA"}]},
            "part 1 of `content` is invalid: expected `mimeType` to be text, got nothing",
        ),
        ({"content": [{"type": "resource"}]}, "part 1 of `content` is invalid: missing `resource`"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "x"}}]},
            "part 1 of `content` is invalid: expected `text` to be text, got nothing",
        ),
    ],
)
def test_what_is_no_answer_of_the_protocol_is_told(raw, why):
    with pytest.raises(InvalidAnswer) as error:
        result_of(raw, ASKED, TOOL, CATALOGUE, str)
    assert (error.value.message, error.value.raw) == (why, raw)


def test_a_failed_tool_keeps_all_that_it_said():
    result = of(text("no"), text("really"), structuredContent={"why": "closed"}, isError=True)
    assert (result.outcome, result.message, result.error.code) == (
        Outcome.TOOL_ERROR,
        "no\nreally",
        "tool_error",
    )
    assert result.content == ()  # the message says it
    assert (result.error.details, result.raw_value) == ({"structured": {"why": "closed"}}, {"why": "closed"})


def test_a_long_failure_is_cut_in_the_message_and_whole_in_the_content():
    result = of(text("x" * 10_000), isError=True)
    assert len(result.message.encode()) <= 4096
    assert result.content[0].text == "x" * 10_000


def test_what_a_failure_says_is_told_once_though_it_was_unwrapped():
    result = of(text("MCP error -32602: bad\x1b "), IMAGE, isError=True)
    assert result.message == "bad\\x1b"
    assert [part.type for part in result.content] == ["image"]


def test_a_failure_without_words_says_so():
    assert of(isError=True).message == "the tool failed without giving a reason"


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        (
            "MCP error -32602: Invalid arguments for tool buy",
            "mcp_invalid_params",
            "Invalid arguments for tool buy",
        ),
        (
            "MCP error -32601: Tool buy requires task augmentation",
            "mcp_method_not_found",
            "Tool buy requires task augmentation",
        ),
        ("McpError: -32603: oops", "mcp_internal_error", "oops"),
        ("MCP error -32042: pay first", "mcp_error", "pay first"),
    ],
)
def test_an_error_of_the_protocol_within_a_result_is_unwrapped(said, code, message):
    result = of(text(said), isError=True)
    assert (result.outcome, result.error.code, result.message) == (Outcome.TOOL_ERROR, code, message)
    assert isinstance(result.error.details["number"], int)


@pytest.mark.parametrize(
    "said",
    ["MCP error -32602: Tool sel not found", "Unknown tool: sel", "Unknown tool: 'sel'", "No such tool: sel"],
)
def test_an_unknown_tool_is_known_however_the_server_says_it(said):
    asked = ASKED._replace(tool="sel")
    ways = [
        of(text(said), isError=True, asked=asked),
        result_of_protocol_error(asked, ProtocolError(-32602, said), CATALOGUE.tools),
    ]
    for result in ways:
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unknown_remote_tool")
        assert result.message == "the server `shop` has no tool `sel`; did you mean `sell`?"


def test_a_tool_that_is_listed_may_fail_with_words_that_are_like_those():
    said = "the shelf was searched for a while: tool buy of the customer could not be used, and the hammer was not found"
    assert of(text(said), isError=True).outcome is Outcome.TOOL_ERROR


def test_other_invalid_params_are_the_tools_own_failure():
    result = result_of_protocol_error(ASKED, ProtocolError(-32602, "`n` must be positive"), CATALOGUE.tools)
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "mcp_invalid_params")


def test_an_answer_that_is_too_large_is_refused():
    result = of(text("x" * (16 * 1024 * 1024 + 1)))
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "too_large")
    size = 16 * 1024 * 1024 + 1
    assert result.message == (
        f"`shop__buy`: the response of the server `shop` is too large: at least {result.error.details['measured']:,} "
        "bytes, and `limits.output_size` is 16MiB; request less data"
    )
    assert result.error.details["measured"] >= size
    assert (result.error.details["limit"], result.error.details["value"]) == ("output_size", size - 1)
    assert result.error.details["may_have_acted"] is True


@pytest.mark.parametrize(
    ("asked", "begun", "trouble", "outcome", "code", "acted"),
    [
        (ASKED, True, None, Outcome.UNKNOWN_OUTCOME, "unknown_outcome", True),
        (READS, True, None, Outcome.TRANSPORT_ERROR, "transport_error", False),
        (ASKED, False, None, Outcome.UNAVAILABLE, "server_down", False),
        (
            ASKED,
            True,
            LinkTrouble("too_large", "the server sent much"),
            Outcome.LIMIT_EXCEEDED,
            "too_large",
            True,
        ),
        (
            ASKED,
            True,
            LinkTrouble("protocol_violation", "it is no message"),
            Outcome.INVALID_RESULT,
            "protocol_violation",
            True,
        ),
        (
            ASKED,
            True,
            LinkTrouble("unauthorized", "the server answered 401"),
            Outcome.TOOL_ERROR,
            "unauthorized",
            False,
        ),
        (ASKED, True, LinkTrouble("read_timeout", "it was silent"), Outcome.TIMEOUT, "read_timeout", True),
        (
            ASKED,
            True,
            LinkTrouble("http_status", "the server answered 502"),
            Outcome.UNKNOWN_OUTCOME,
            "http_status",
            True,
        ),
        (
            READS,
            True,
            LinkTrouble("http_status", "the server answered 502"),
            Outcome.TRANSPORT_ERROR,
            "http_status",
            False,
        ),
        (
            ASKED,
            False,
            LinkTrouble("connect_failed", "nobody there"),
            Outcome.UNAVAILABLE,
            "connect_failed",
            False,
        ),
        (
            ASKED,
            False,
            LinkTrouble("address_refused", "it is private", "write egress"),
            Outcome.DENIED,
            "address_refused",
            False,
        ),
    ],
)
def test_a_call_that_broke_off_ends_as_far_as_it_came(asked, begun, trouble, outcome, code, acted):
    result = result_of_lost_connection(
        asked, ConnectionLoss("exited with code 3", begun=begun, trouble=trouble)
    )
    assert (result.outcome, result.error.code) == (outcome, code)
    assert bool(result.error.details.get("may_have_acted")) is acted
    if trouble is not None and trouble.code != "protocol_violation":
        assert trouble.message in result.message
        assert trouble.hint in result.message
    elif trouble is None:
        assert "the server `shop` exited with code 3" in result.message


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_a_value_weighs_about_what_its_json_does(value):
    written = len(json.dumps(value, ensure_ascii=False))
    assert approximate_size(value, 10**9) <= 4 * written + 8
    assert written <= 40 * approximate_size(value, 10**9)


@given(JSON_VALUES, JSON_VALUES)
def test_whatever_a_server_answers_ends_in_a_result_or_is_told_as_garbled(content, structured):
    raw = {"content": content, "structuredContent": structured}
    try:
        result = result_of(raw, ASKED, TOOL._replace(output_schema={"type": "object"}), CATALOGUE, str)
    except InvalidAnswer:
        pass
    else:
        assert structured is None or result.value == structured
