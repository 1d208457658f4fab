"""A result of the runtime as a result of MCP."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import serialize_server_result

from toolcrib.core.model import Content, Outcome, Result
from toolcrib.serve.mcp.messages import OUTCOME, render_result

OLD, LAST_OF_HANDSHAKE, MODERN = "2025-03-26", "2025-11-25", "2026-07-28"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def told(result: Result, revision: str = MODERN, *, declared: bool = False) -> dict[str, Any]:
    return render_result("tool", result, revision=revision, declared=declared)


def test_an_answer_of_parts_alone_has_no_text_form():
    result = Result.success(content=(Content("text", text="only this"),))
    assert told(result)["content"] == [{"type": "text", "text": "only this"}]
    assert "structuredContent" not in told(result)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), ("plain", "plain"), ("", ""), (3, "3"), ([1, "é"], '[1,"é"]')]
)
def test_the_text_form_of_a_value(value, text):
    assert told(Result.success(value))["content"] == [{"type": "text", "text": text}]
    assert "structuredContent" not in told(Result.success(value))


def test_what_is_no_object_is_structured_where_it_is_declared_and_the_revision_knows_it():
    assert told(Result.success([1]), declared=True)["structuredContent"] == [1]
    assert "structuredContent" not in told(Result.success([1]), LAST_OF_HANDSHAKE, declared=True)
    assert told(Result.success({"a": 1}), LAST_OF_HANDSHAKE)["structuredContent"] == {"a": 1}


def test_what_older_revisions_know_instead_of_a_link():
    linked = Result.success(
        content=(
            Content("resource", uri="https://example.com/a.pdf", title="A", mime_type="application/pdf"),
        )
    )
    assert told(linked)["content"] == [
        {
            "type": "resource_link",
            "uri": "https://example.com/a.pdf",
            "name": "A",
            "title": "A",
            "mimeType": "application/pdf",
        }
    ]
    assert told(linked, OLD)["content"] == [{"type": "text", "text": "A: https://example.com/a.pdf"}]


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (Content("image", data="aGk="), {"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        (
            Content("image", data="aGk=", uri="x/y.gif"),
            {"type": "image", "data": "aGk=", "mimeType": "image/gif"},
        ),
        (Content("audio", data="aGk="), {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
        (
            Content("image", uri="https://h/i.png"),
            {"type": "resource_link", "uri": "https://h/i.png", "name": "i.png"},
        ),
        (
            Content("resource", text="t", title="T"),
            {
                "type": "resource",
                "resource": {"uri": "urn:toolcrib:part:0", "text": "t"},
                "_meta": {"dev.toolcrib/title": "T"},
            },
        ),
        (Content("text"), {"type": "text", "text": ""}),
    ],
)
def test_parts(part, wire):
    assert told(Result.success(content=(part,)))["content"] == [wire]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
@pytest.mark.parametrize("revision", [OLD, LAST_OF_HANDSHAKE, MODERN])
def test_every_other_outcome_is_an_error_in_words_of_its_own(outcome, revision):
    failed = Result.failure(
        outcome, "canary in /etc/passwd", details={"at": "file.yaml:3", "url": "http://canary"}
    )
    wire = told(failed, revision)
    assert wire["isError"] is True
    own = outcome in {Outcome.TOOL_ERROR, Outcome.INVALID_ARGUMENTS}
    assert ("canary" in str(wire)) is own
    assert "file.yaml" not in str(wire)
    assert wire["content"][0]["text"]
    assert wire["_meta"][OUTCOME]["outcome"] == outcome.value


def test_what_a_model_can_act_on():
    busy = Result.failure(
        Outcome.OVERLOADED, "x", code="circuit_open", details={"retry_after": 12.5}, retryable=True
    )
    assert told(busy)["content"][0]["text"] == "the tool is busy (circuit_open); retry after 12.5s"
    assert told(busy)["_meta"][OUTCOME]["details"] == {"retry_after": 12.5}
    late = Result.failure(Outcome.TIMEOUT, "x", details={"may_have_acted": True})
    assert "it may have acted" in told(late)["content"][0]["text"]
    again = Result.failure(Outcome.TRANSPORT_ERROR, "x", retryable=True)
    assert told(again)["content"][0]["text"].endswith("the same call may succeed later")


def test_a_failure_with_parts_tells_its_message_once():
    failed = Result.failure(
        Outcome.TOOL_ERROR, "no", content=(Content("text", text="no"), Content("text", text="and this"))
    )
    assert [part["text"] for part in told(failed)["content"]] == ["no", "and this"]


def test_an_answer_that_is_too_deep_is_a_failure():
    value: Any = 1
    for _ in range(250):
        value = [value]
    wire = told(Result.success({"deep": value}))
    assert wire["isError"] is True
    assert wire["_meta"][OUTCOME]["code"] == "result_too_deep"
    wide = {"many": [[] for _ in range(500)]}
    assert told(Result.success(wide))["structuredContent"] == wide


@given(JSON, st.booleans(), st.sampled_from([OLD, LAST_OF_HANDSHAKE, MODERN]))
def test_the_sdk_takes_every_result_as_it_is(value, declared, revision):
    wire = told(Result.success(value), revision, declared=declared)
    shaped = serialize_server_result("tools/call", revision, wire)
    assert shaped.get("structuredContent") == wire.get("structuredContent")
    assert [part["text"] for part in shaped["content"]] == [part["text"] for part in wire["content"]]
