"""The vendors' own types accept what is sent: declarations, messages, whole requests."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from in_memory import loaded
from toolcrib.core.model import Content, Outcome
from toolcrib.formats.providers import declare
from toolcrib.provider import Message, Reasoning, Request, Text, ToolCall, ToolResult, system, user
from toolcrib.provider.models.installed_providers import open_provider

TOOLS = """
    name: pack.get-order
    description: An order.
    input_schema:
      type: object
      properties:
        id: {type: string, pattern: "^ORD-[0-9]+$", minLength: 1}
        lines: {type: array, items: {type: object, properties: {sku: {type: string}}, required: [sku]}}
        note: {type: [string, "null"], default: null}
      required: [id]
    mock: {result: {}}
    ---
    name: ping
    description: Nothing.
    mock: {result: null}
"""
IMAGE = Content("image", data="aGk=", mime_type="image/png")
PDF = Content("resource", data="aGk=", mime_type="application/pdf", title="a.pdf")
THOUGHTS = {
    "openai": Reasoning("Hm."),
    "openai_responses": Reasoning(
        "Hm.", {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
    ),
    "anthropic": Reasoning("Hm.", {"type": "thinking", "signature": "s"}),
}


def request(name: str, dialect: str, **more: Any) -> Request:
    tools = declare(loaded(TOOLS).tools, dialect, {"pack.get-order": "pack_get_order"})
    said = (
        THOUGHTS[name],
        Text("Let me look."),
        ToolCall("a", "pack.get-order", {"id": "ORD-1"}, '{"id":"ORD-1"}', "pack_get_order"),
        ToolCall("b", "ping", {}, ""),
    )
    messages = (
        system("Be brief."),
        user("What is this?", IMAGE, PDF, Content("audio", data="aGk=", mime_type="audio/wav")),
        Message("assistant", said),
        Message("tool", (ToolResult("a", "pack.get-order", Outcome.OK, "{}", (IMAGE, PDF)),)),
        Message("tool", (ToolResult("b", "ping", Outcome.TOOL_ERROR, "It failed."),)),
        Message("assistant", (Text("Done."),)),
        user("Thanks."),
    )
    given = {"tools": tools, "tool_choice": "pack_get_order", "parallel": False, "aware": True}
    return Request(messages, **{**given, **more})


REQUESTS = {
    "openai": ("openai.types.chat.completion_create_params", "CompletionCreateParamsNonStreaming"),
    "openai_responses": ("openai.types.responses.response_create_params", "ResponseCreateParamsNonStreaming"),
    "anthropic": ("anthropic.types.message_create_params", "MessageCreateParamsNonStreaming"),
}


@cache
def adapter(name: str) -> TypeAdapter[Any]:
    """What judges a whole request by the vendor's type, and refuses keys that the type does not name."""
    module, kind = REQUESTS[name]
    request_type = getattr(import_module(module), kind)
    package = module.partition(".")[0] + ".types."
    for loaded_module in [each for key, each in sys.modules.items() if key.startswith(package)]:
        for each in vars(loaded_module).values():
            if isinstance(each, type) and hasattr(each, "__required_keys__"):
                each.__pydantic_config__ = {"extra": "forbid", "arbitrary_types_allowed": True}  # type: ignore[attr-defined]
    return TypeAdapter(request_type)


def judged(name: str, body: dict[str, Any]) -> Any:
    """The request as the vendor's type has it; pydantic judges what is in iterables when one goes through them."""
    return through(adapter(name).validate_python(body))


def through(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: through(each) for key, each in value.items()}
    if isinstance(value, list) or type(value).__name__ == "ValidatorIterator":
        return [through(each) for each in value]
    return value


FORMS = [
    ("openai", "openai", {}),
    ("openai", "openai_strict", {"strict": True}),
    ("openai_responses", "openai_responses", {}),
    ("openai_responses", "openai_responses_strict", {"strict": True}),
    ("anthropic", "anthropic", {}),
]


@pytest.mark.parametrize(("name", "dialect", "options"), FORMS)
def test_requests_are_of_the_vendors_types(name: str, dialect: str, options: dict[str, Any]) -> None:
    provider: Any = open_provider(name, model="m-1", **options)
    settings = {"prompt_caching": True} if name == "anthropic" else {}
    for more in ({}, {"tool_choice": "required"}, {"tool_choice": "none"}, {"tools": ()}):
        body = provider.body(request(name, dialect, settings=settings, **more))
        assert judged(name, body) == body
    streaming = provider.body(request(name, dialect, streaming=True))
    assert streaming.pop("stream") is True  # the only difference between two types of the vendor
    assert judged(name, streaming) == streaming


@pytest.mark.parametrize(("name", "dialect", "options"), FORMS)
def test_declarations_are_what_the_services_take(name: str, dialect: str, options: dict[str, Any]) -> None:
    provider: Any = open_provider(name, model="m-1", **options)
    for tool in provider.body(request(name, dialect))["tools"]:
        function = tool.get("function", tool)
        schema = function.get("parameters", function.get("input_schema"))
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", function["name"])
        assert schema["type"] == "object"


def names_in(value: Any) -> list[str]:
    """Every name in what is sent."""
    if isinstance(value, dict):
        own = [value["name"]] if "name" in value else []
        return own + [name for each in value.values() for name in names_in(each)]
    return [name for each in value for name in names_in(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", list(REQUESTS))
def test_names_that_a_model_made_up_are_sent_as_services_take_them(name: str) -> None:
    odd = ["get", "functions.get", "functions get", "", "\ud800", "ü" * 200, "x" * 65]
    called = Message("assistant", tuple(ToolCall(f"c{i}", each, {}, "") for i, each in enumerate(odd)))
    told = [
        Message("tool", (ToolResult(call.id, call.name, Outcome.NOT_FOUND, "no"),)) for call in called.calls
    ]
    provider: Any = open_provider(name, model="m-1")
    body = provider.body(Request((user("hi"), called, *told), aware=True))
    sent = names_in(body["input" if name == "openai_responses" else "messages"])
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each) for each in sent)
    assert sent[:2] == ["get", "functions_get_457b3dab2c334bb1"]
    assert len(set(sent)) == len(odd)
    assert names_in(body.get("tools", [])) in ([], sent)


@pytest.mark.parametrize("name", list(REQUESTS))
def test_the_vendors_types_refuse_what_is_wrong(name: str) -> None:
    body = open_provider(name, model="m-1").body(request(name, name))  # type: ignore[attr-defined]
    key = "input" if name == "openai_responses" else "messages"
    tool = {**body["tools"][0], "inputSchema": {}}
    for wrong in (
        {key: [{"role": "user"}]},
        {key: [{"role": "assistant", "content": [{"type": "nonsense"}]}]},
        {"nonsense": 1},
        {"tools": [tool]},
    ):
        with pytest.raises(ValidationError):
            judged(name, {**body, **wrong})
