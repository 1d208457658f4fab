"""Bodies by content type, `select`, and what is wrong with `response` at load."""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_answers import JSON_TYPE, TOOL, answer, reading_of, result_of
from toolcrib import Content, Outcome
from toolcrib.core.errors import DocumentError
from toolcrib.core.text import SIZE_PATTERN, parse_size
from toolcrib.executors.live.response import compile_response
from toolcrib.schema.validation import Validator


def value_of(response, block=None):
    result = result_of(block or {}, response)
    assert result.outcome is Outcome.OK, result.message
    return result.value


def problems_with(block, tool=TOOL):
    problems = []
    compile_response(block, tool, problems)
    return [(problem.code, problem.pointer) for problem in problems]


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=utf-8", "application/geo+json", "text/json", "application/json;x=1", " application/json ;"],
)  # fmt: skip
def test_json_becomes_its_value(content_type):
    assert value_of(answer('{"city": "Tromsø"}'.encode(), content_type)) == {"city": "Tromsø"}


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/csv; charset=UTF-8", "text/html", "application/xml", "application/atom+xml", "image/svg+xml", "application/x-ndjson", "application/yaml"],
)  # fmt: skip
def test_text_becomes_text(content_type):
    assert value_of(answer("a;ø\n1".encode(), content_type)) == "a;ø\n1"


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [("image/png", "image"), ("audio/ogg", "audio"), ("application/pdf", "resource"), ("application/octet-stream", "resource"), ("video/mp4", "resource")],
)  # fmt: skip
def test_bytes_become_a_part_beside_the_value(content_type, kind):
    result = result_of({}, answer(b"\x89\x00\xff", content_type + "; v=1"))
    assert result.value == {"type": kind, "mime_type": content_type, "size": 3}
    assert result.content == (
        Content(kind, data=base64.b64encode(b"\x89\x00\xff").decode(), mime_type=content_type),
    )


@pytest.mark.parametrize("response", [answer(b""), answer(b"", None), answer(b"gone", status=204), answer(b"", "image/png"), answer(b"x", status=205)])  # fmt: skip
def test_no_content_is_null(response):
    assert value_of(response) is None


@pytest.mark.parametrize("content_type", [None, "", "nonsense", ";charset=utf-8"])
@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"[1, 2]", [1, 2]),
        (b"hello", "hello"),
        (b"\xff\x00", {"type": "resource", "mime_type": "application/octet-stream", "size": 2}),
    ],
)
def test_what_does_not_say_what_it_is_is_what_it_looks_like(content_type, body, value):
    assert value_of(answer(body, content_type)) == value


@pytest.mark.parametrize(
    ("form", "content_type", "value"),
    [
        ("json", "text/html", {"a": 1}),
        ("text", JSON_TYPE, '{"a": 1}'),
        ("binary", JSON_TYPE, {"type": "resource", "mime_type": JSON_TYPE, "size": 8}),
        ("binary", None, {"type": "resource", "mime_type": "application/octet-stream", "size": 8}),
    ],
)
def test_as_overrides_the_content_type(form, content_type, value):
    assert value_of(answer(b'{"a": 1}', content_type), {"response": {"as": form}}) == value


@pytest.mark.parametrize(
    ("raw", "charset"),
    [
        ("ø".encode(), "utf-8"),
        (b"\xef\xbb\xbf\xc3\xb8", "utf-8"),
        (b"\xef\xbb\xbf\xc3\xb8", "iso-8859-1"),
        ("ø".encode(), "US-ASCII"),
        (b"\xf8", "ISO-8859-1"),
        (b"\xf8", '"latin1"'),
        ("ø".encode("utf-16"), "utf-16"),
        ("ø".encode("utf-16-be"), "utf-16be"),
        (b"\xfe\xff\x00\xf8", "utf-16be"),
    ],
)
def test_charsets_are_undone(raw, charset):
    assert value_of(answer(raw, f"text/plain; charset={charset}")) == "ø"


def test_json_may_have_a_byte_order_mark_and_a_charset():
    assert value_of(answer(b'\xef\xbb\xbf{"a": 1}')) == {"a": 1}
    assert value_of(answer('["ø"]'.encode("latin-1"), "application/json; charset=iso-8859-1")) == ["ø"]


@pytest.mark.parametrize(
    ("body", "content_type", "code", "place"),
    [
        (b'{"key": "hunter2"', JSON_TYPE, "not_json", {"line": 1, "column": 18, "offset": 17}),
        (b'{\n"key": hunter2}', JSON_TYPE, "not_json", {"line": 2, "column": 8, "offset": 9}),
        (b'{"key": "hunter2\xff"}', JSON_TYPE, "not_json", {"offset": 16}),
        (b'["hunter2", NaN]', JSON_TYPE, "not_json", {}),
        (b'["hunter2", -Infinity]', JSON_TYPE, "not_json", {}),
        (b'["hunter2", ' + b"1" * 5000 + b"]", JSON_TYPE, "not_json", {}),
        (b'["hunter2",' + b"[" * 100_000, JSON_TYPE, "not_json", {}),
        (b"hunter2\xff", "text/plain", "bad_text", {"offset": 7}),
        (b"hunter2", "text/plain; charset=utf-16", "bad_text", {"offset": 6}),
        (b"hunter2", "text/plain; charset=ebcdic", "unsupported_charset", {}),
        (b"hunter2", "application/json; charset=utf-7", "unsupported_charset", {}),
    ],
)
def test_what_is_not_what_was_promised_is_told_without_its_text(body, content_type, code, place):
    result = result_of({}, answer(body, content_type))
    assert result.outcome is Outcome.INVALID_RESULT
    assert result.error.code == code
    assert {"status": 200, **place} == result.error.details
    assert "hunter2" not in str(result)
    assert "`response: {as: " in result.message  # the way out


def test_headers_are_named_in_lower_case_and_joined():
    response = answer(b"1", headers=(("x-a", "1"), ("link", "<a>"), ("x-a", "2")))
    assert reading_of({}).read(response).envelope == {
        "status": 200,
        "headers": {"content-type": JSON_TYPE, "x-a": "1, 2", "link": "<a>"},
        "body": 1,
    }


def test_select_reads_status_headers_and_body():
    block = {"select": '{code: status, left: headers."x-left", names: body.rows[*].name}'}
    response = answer(b'{"rows": [{"name": "a"}, {"name": "b"}]}', headers=(("x-left", "7"),))
    assert value_of(response, block) == {"code": 200, "left": "7", "names": ["a", "b"]}


def test_select_may_stand_beside_bytes():
    result = result_of({"select": "body.size"}, answer(b"\x00\x01", "image/png"))
    assert (result.value, len(result.content)) == (2, 1)


@pytest.mark.parametrize(
    "select", ["length(body)", "sum(body.rows)", "body.text[::0]", "sort_by(body.mixed, &@)"]
)
def test_a_select_that_fails_is_told_without_the_value(select):
    body = b'{"rows": ["hunter2"], "text": ["hunter2"], "mixed": ["hunter2", 1]}'
    if select == "length(body)":
        body = b"12"
    result = result_of({"select": select}, answer(body))
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "select_failed")
    assert result.error.details == {"status": 200, "pointer": "/live/select"}
    assert "hunter2" not in str(result)


def test_sizes():
    assert [parse_size(each) for each in ("32KiB", "8 MiB", "500kB", "500KB", "2MB", "7", "7B", 9)] == [32768, 8388608, 500_000, 500_000, 2_000_000, 7, 7, 9]  # fmt: skip


@given(st.from_regex(SIZE_PATTERN, fullmatch=True))
def test_every_size_that_fits_its_pattern_is_read(written):
    assert parse_size(written) >= 1


def schema_of(name):
    text = files("toolcrib.executors.live").joinpath(f"schema/{name}.json").read_text(encoding="utf-8")
    return {"type": "object", "additionalProperties": False, **json.loads(text)}


def test_the_schema_says_the_same_of_sizes():
    size = schema_of("response")["$defs"]["size"]
    assert size["pattern"] == SIZE_PATTERN
    assert re.fullmatch(SIZE_PATTERN, "8MiB")


@pytest.mark.parametrize(
    ("good", "block"),
    [
        (True, {"response": {"as": "json", "redact": ["a.b"], "budget": {"size": 100, "items": "/a"}}}),
        (True, {"select": "body", "errors": {"404": "no", "4xx": {"code": "x"}, "default": {"retryable": "{{ status == 500 }}"}}}),
        (False, {"response": {}}),
        (False, {"response": {"as": "xml"}}),
        (False, {"response": {"max_size": "8MiB"}}),
        (False, {"response": {"redact": []}}),
        (False, {"response": {"budget": {"items": "/a"}}}),
        (False, {"response": {"budgets": {"size": 1}}}),
        (False, {"select": ""}),
        (False, {"errors": {}}),
        (False, {"errors": {"200": "fine"}}),
        (False, {"errors": {"6xx": "what"}}),
        (False, {"errors": {"404": {}}}),
        (False, {"errors": {"404": ""}}),
        (False, {"errors": {"404": {"reason": "x"}}}),
        (False, {"errors": {"404": {"retryable": "yes"}}}),
        (False, {"errors": {"404": {"details": "x"}}}),
    ],
)  # fmt: skip
def test_what_the_schema_takes(good, block):
    assert Validator(schema_of("response")).is_valid(block) is good


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ({"select": "body["}, [("bad_select", "/live/select")]),
        ({"select": "lenght(body)"}, [("bad_select", "/live/select")]),
        ({"response": {"redact": ["a.b", "a..b", "", "a.**", "*.ssn", ".a", "a.", '"a"b']}}, [("bad_path", f"/live/response/redact/{index}") for index in (1, 2, 3, 5, 6, 7)]),
        ({"response": {"as": "binary", "redact": ["a"], "budget": {"size": 1}}}, [("needless_key", "/live/response/budget"), ("needless_key", "/live/response/redact")]),
        ({"response": {"as": "text", "budget": {"size": 1}}}, [("needless_key", "/live/response/budget")]),
        ({"response": {"as": "text", "budget": {"size": 1}}, "select": "{a: [body]}"}, []),
        ({"response": {"as": "text", "redact": ["a"]}}, []),
        ({"response": {"budget": {"size": 1, "items": "$.results.rows"}}}, [("bad_pointer", "/live/response/budget/items")]),
        ({"errors": {"404": "{{ args.cty }}", "default": {"message": "{{ bodi }}", "details": {"a/b": "{{ 1 + }}"}}}},
         [("unknown_argument", "/live/errors/404"), ("unknown_name", "/live/errors/default/message"), ("expression_syntax", "/live/errors/default/details/a~1b")]),
    ],
)  # fmt: skip
def test_problems_have_pointers_and_are_all_told(block, found):
    tool = TOOL._replace(
        input_schema={"type": "object", "properties": {"city": {}}, "additionalProperties": False}
    )
    assert problems_with(block, tool) == found


@pytest.mark.parametrize("schema", [True, {"type": "object"}, {"additionalProperties": False, "patternProperties": {"^x": {}}}, {"additionalProperties": False, "properties": 7}])  # fmt: skip
def test_arguments_are_not_known_where_the_schema_is_open(schema):
    assert problems_with({"errors": {"404": "{{ args.anything }}"}}, TOOL._replace(input_schema=schema)) == []


def test_a_pointer_is_suggested():
    problems = []
    compile_response({"response": {"budget": {"size": 1, "items": "results.rows"}}}, TOOL, problems)
    assert problems[0].hint == "write `/results/rows`"


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_any_json_is_read_back(value):
    assert value_of(answer(json.dumps(value).encode())) == value


@given(st.binary(), st.sampled_from([None, JSON_TYPE, "text/plain", "text/csv; charset=utf-16", "image/png"]), st.sampled_from([200, 204, 302, 404, 500]))  # fmt: skip
def test_no_body_breaks_the_reading(body, content_type, status):
    result = result_of(
        {"response": {"redact": ["**.a"], "budget": {"size": 20}}}, answer(body, content_type, status)
    )
    assert result.outcome in {Outcome.OK, Outcome.INVALID_RESULT, Outcome.TOOL_ERROR, Outcome.LIMIT_EXCEEDED}
    assert (result.outcome is Outcome.TOOL_ERROR) == (status >= 300)


def test_a_broken_output_schema_is_no_budgets_business():
    with pytest.raises(DocumentError):
        compile_response({"response": {"budget": {"size": 1}}}, TOOL._replace(output_schema={"type": 7}), [])
