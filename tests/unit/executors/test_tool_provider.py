"""Providers: objects of a program that list and call tools themselves."""

from __future__ import annotations

import pytest

from toolcrib import ConfigurationError, DocumentError, Outcome, Registry, Result, Runtime

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
ECHO = {"name": "echo", "description": "Repeat a text.", "inputSchema": TEXT}
PING = {"name": "ping", "description": "Answer.", "annotations": {"readOnlyHint": True}}


class Provider:
    def __init__(self, *definitions):
        self.definitions = definitions
        self.called = []

    def list(self):
        return self.definitions

    async def call(self, name, arguments):
        self.called.append((name, arguments))
        if name == "ping":
            return Result.failure(Outcome.TOOL_ERROR, "nobody is there", code="nobody")
        return {"echo": arguments["text"]}


class InThread(Provider):
    def call(self, name, arguments):
        return [name, dict(arguments)]


async def test_tools_are_listed_validated_and_called():
    provider = Provider(ECHO, PING)
    async with Runtime(Registry()) as runtime:
        added = runtime.add(provider, timeout="5s", tags=["own"])
        assert [tool.name for tool in added] == ["echo", "ping"]
        assert added[0].input_schema == TEXT
        assert added[1].annotations.read_only is True
        assert {tool.timeout for tool in added} == {5.0}
        assert [card.name for card in runtime.registry.query(tag="own")] == ["echo", "ping"]
        assert (await runtime.call("echo", {"text": "hi"})).value == {"echo": "hi"}
        invalid = await runtime.call("echo", {"text": [3]})
        assert invalid.outcome is Outcome.INVALID_ARGUMENTS
        failed = await runtime.call("ping")
        assert (failed.outcome, failed.error.code, failed.message) == (
            Outcome.TOOL_ERROR,
            "nobody",
            "nobody is there",
        )
        assert (await runtime.call("ping", {"x": 1})).outcome is Outcome.INVALID_ARGUMENTS
        assert provider.called == [("echo", {"text": "hi"}), ("ping", {})]


async def test_a_method_that_is_not_async():
    async with Runtime(Registry()) as runtime:
        runtime.add(InThread(ECHO))
        assert (await runtime.call("echo", {"text": "hi"})).value == ["echo", {"text": "hi"}]


async def test_arguments_may_have_any_name():
    schema = {"type": "object", "properties": {"name": {}, "self": {}, "a-b": {}}}
    async with Runtime(Registry()) as runtime:
        runtime.add(InThread({"name": "odd", "description": "Odd.", "inputSchema": schema}))
        arguments = {"name": 1, "self": 2, "a-b": 3}
        assert (await runtime.call("odd", arguments)).value == ["odd", arguments]


@pytest.mark.parametrize(
    ("definitions", "text"),
    [
        (None, "`list` of the provider `Provider` returned an object of type `NoneType` ("),
        ([3], "definition 0 of the provider `Provider` has no `name` ("),
        ([ECHO, {"description": "x"}], "definition 1 of the provider `Provider` has no `name` ("),
        ([ECHO, ECHO], "two definitions of the provider `Provider` have the name `echo` ("),
    ],
)
def test_lists_that_are_refused(definitions, text):
    provider = Provider()
    provider.definitions = definitions
    runtime = Runtime(Registry())
    with pytest.raises(ConfigurationError) as refused:
        runtime.add(provider)
    assert text in str(refused.value)
    assert "test_tool_provider.py:" in str(refused.value)
    assert len(runtime.registry) == 0


def test_a_list_that_is_a_coroutine_is_refused():
    class Waiting(Provider):
        async def list(self):
            return [ECHO]

    with pytest.raises(ConfigurationError, match="type `coroutine`") as refused:
        Runtime(Registry()).add(Waiting())
    assert "the method is not `async`" in str(refused.value.hint)


def test_all_problems_are_reported_and_no_tool_is_added():
    runtime = Runtime(Registry())
    with pytest.raises(DocumentError) as refused:
        runtime.add(
            Provider(ECHO, {"name": "a b"}, {"name": "c", "timeuot": "3s", "inputSchema": {"type": 3}})
        )
    assert {problem.pointer for problem in refused.value.problems} >= {
        "/name",
        "/timeuot",
        "/input_schema/type",
    }
    assert len(runtime.registry) == 0


def test_a_tool_that_exists_is_replaced_on_request_only():
    runtime = Runtime(Registry())
    runtime.add(Provider(ECHO, PING))
    with pytest.raises(ConfigurationError) as refused:
        runtime.add(InThread(ECHO, PING, {"name": "third", "description": "New."}))
    assert "`echo` (" in str(refused.value)
    assert "`ping` (" in str(refused.value)
    assert "third" not in runtime.registry
    assert len(runtime.add(InThread(ECHO, PING), replace=True)) == 2
