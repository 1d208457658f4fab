"""Tools of every kind are listed, searched, mocked, limited, served and reported in the same way."""

from __future__ import annotations

import asyncio
import itertools
import sys
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import toolcrib
from http_servers import answered_by, answering_json
from mcp_calling import http_server, over_http
from toolcrib import CallFinished, CallStarted, Outcome, Result, Runtime, ToolAppeared, parse_registry
from toolcrib.engine import engine_of
from toolcrib.serve.http_common.listen_address import ListenAddress
from toolcrib.serve.mcp import Options, serve_http

NUMBERS = itertools.count()

SCHEMA = "{type: object, properties: {text: {type: string, maxLength: 4000}}, required: [text], additionalProperties: false}"

FILES = """
name: of_mock
description: Unusual tool.
input_schema: {schema}
mock: {{result: "{{{{ args.text }}}}"}}
---
name: of_live
description: Unusual tool.
input_schema: {schema}
mode: live
mock: {{result: mocked}}
live: {{method: GET, url: "http://127.0.0.1:{port}/x", query: {{q: "{{{{ args.text }}}}"}}}}
---
name: of_server
description: Unusual tool.
input_schema: {schema}
mode: mcp
mock: {{result: mocked}}
mcp: {{server: sdk, tool: echo}}
---
name: of_python_file
description: Unusual tool.
input_schema: {schema}
mode: python
mock: {{result: mocked}}
python: {{call: "{module}:of_source"}}
"""

MODULE = """
import toolcrib


@toolcrib.tool(description="Unusual tool.", mock={"result": "mocked"})
def of_source(text: str) -> str:
    return text
"""

KINDS = (
    *("of_mock", "of_live", "of_server", "of_python_file", "of_source"),
    *("of_function", "of_callable", "of_class", "of_instance", "of_factory", "of_simple", "of_executor"),
)
KEYS = {"description": "Unusual tool.", "mock": {"result": "mocked"}}


@toolcrib.tool(**KEYS)
async def of_function(text: str) -> str:
    return text


def of_callable(text):
    return text


class OfClass(toolcrib.Tool[dict[str, str], str]):
    def execute(self, given: dict[str, str]) -> str:
        return given["text"]


@toolcrib.factory(**KEYS)
def of_factory(prefix: str):
    def inner(text: str) -> str:
        return prefix + text

    return inner


class Spoken:
    waits = False

    async def execute(self, call) -> Result:
        return Result.success(call.arguments["text"])

    def explain(self, call):
        return None


class SpeakExecutor:
    contained = True

    def __init__(self) -> None:
        self.block_schema = {"type": "object"}

    def check(self, descriptor):
        return ()

    def bind(self, descriptor):
        return Spoken()

    async def aclose(self) -> None: ...


def add_all(runtime: Runtime) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    schema["additionalProperties"] = False
    runtime.add(of_function)
    runtime.add(of_callable, schema=schema, **KEYS)
    runtime.add(OfClass, **KEYS, schema=schema)
    runtime.add(OfClass(), name="of_instance", schema=schema, **KEYS)
    runtime.add(of_factory)
    runtime.add(
        toolcrib.simple_tool("of_simple", "Unusual tool.", schema, mock={"result": "{{ args.text }}"})
    )
    runtime.add(SpeakExecutor(), mode="speak")
    text = f"name: of_executor\ndescription: Unusual tool.\ninput_schema: {SCHEMA}\nmode: speak\nspeak: {{}}\nmock: {{result: mocked}}\n"
    runtime.add(parse_registry("t", text, kinds=engine_of(runtime).executors)["of_executor"])


@pytest.fixture
def opened(tmp_path):
    """Opens a runtime that has a tool of every kind."""
    # A folder of a project stays in `sys.path`, so each test has a module of its own.
    module = f"every_kind_of_tool_{next(NUMBERS)}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    with answered_by(answering_json("hi")) as live, over_http() as remote:
        addresses = [f"127.0.0.1:{live.port}", urlsplit(remote).netloc]
        (tmp_path / "toolcrib.yaml").write_text(
            f"project: all\nsources: [all.tool.yaml, {{python: {module}}}]\nlimits: {{input_size: 400}}\n"
        )
        (tmp_path / "all.tool.yaml").write_text(FILES.format(port=live.port, schema=SCHEMA, module=module))

        def open_(**options):
            sdk = {"sdk": http_server(remote)}
            return Runtime.open(
                str(tmp_path), egress=addresses, servers=sdk, provide={"prefix": ""}, **options
            )

        yield open_
    sys.modules.pop(module, None)


async def test_every_kind_is_treated_in_the_same_way(opened):
    events = []
    async with opened(observer=events.append) as runtime:
        add_all(runtime)
        assert {*KINDS} <= {*runtime.registry}

        cards = {card.name: card for card in runtime.registry.query(name="of_*")}
        assert {*cards} == {*KINDS}
        assert {name: card.arguments for name, card in cards.items()} == dict.fromkeys(KINDS, ("text",))
        assert {hit.card.name for hit in runtime.registry.search("unusual")} == {*KINDS}

        events.clear()
        for name in KINDS:
            said = (await runtime.call(name, {"text": "hi"})).value
            assert said == ('{"text": "hi"}' if name == "of_server" else "hi"), name
            refused = await runtime.call(name, {"txt": "hi"})
            assert refused.outcome is Outcome.INVALID_ARGUMENTS, name
            limited = await runtime.call(name, {"text": "h" * 500})
            assert limited.outcome is Outcome.LIMIT_EXCEEDED, name
            assert "input_size" in limited.message, name
        told = [(type(event), event.call.tool.name) for event in events if isinstance(event, CallStarted)]
        assert told == [(CallStarted, name) for name in KINDS for _ in range(3)]
        ended = [event.result.outcome for event in events if isinstance(event, CallFinished)]
        assert ended == [Outcome.OK, Outcome.INVALID_ARGUMENTS, Outcome.LIMIT_EXCEEDED] * len(KINDS)

        await runtime.reload()
        assert {*KINDS} <= {*runtime.registry}
        events.clear()
        for name in KINDS:
            runtime.remove(name)
            assert (await runtime.call(name, {"text": "hi"})).outcome is Outcome.NOT_FOUND, name
        assert not any(isinstance(event, ToolAppeared) for event in events)


async def test_every_kind_can_be_mocked(opened):
    async with opened(mode="mock") as runtime:
        add_all(runtime)
        for name in KINDS:
            expected = "hi" if name in {"of_mock", "of_simple"} else "mocked"
            assert (await runtime.call(name, {"text": "hi"})).value == expected, name


async def test_every_kind_is_served(opened):
    said: asyncio.Queue[str] = asyncio.Queue()
    runtime = opened()
    add_all(runtime)
    serving = serve_http(runtime, Options(watch=False), ListenAddress(port=0), said.put_nowait)
    task = asyncio.create_task(serving)
    try:
        async with asyncio.timeout(60):
            line = await said.get()
            while " at http://" not in line:
                line = await said.get()
            url = line.partition(" at ")[2].partition(";")[0]
            async with (
                httpx2.AsyncClient(trust_env=False) as http,
                Client(streamable_http_client(url, http_client=http), mode="2026-07-28") as client,
            ):
                listed = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert {*KINDS} - {*listed} == set()
                for name in KINDS:
                    assert listed[name].description == "Unusual tool."
                    answer = await client.call_tool(name, {"text": "hi"})
                    assert not answer.is_error, (name, answer)
    finally:
        task.cancel()
        await asyncio.wait([task])
