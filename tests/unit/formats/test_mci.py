"""Tools of MCI files."""

from __future__ import annotations

import json
from typing import Any

from http_servers import answering, serving
from in_memory import runtime_of
from live_tools import live_executors
from toolcrib import Executors, RealClock
from toolcrib.formats.mci import tools_of_mci


def tool(execution: dict[str, Any], name: str = "find", **more: Any) -> dict[str, Any]:
    properties = {"q": {"type": "string"}, "n": {"type": "integer"}, "all": {"type": "boolean"}}
    return {
        "name": name,
        "inputSchema": {"type": "object", "properties": properties},
        "execution": execution,
        **more,
    }


def file(*tools: Any, **more: Any) -> dict[str, Any]:
    return {"schemaVersion": "1.0", "tools": [*tools], **more}


def descriptor(execution: dict[str, Any], **more: Any) -> dict[str, Any]:
    imported = tools_of_mci(file(tool(execution, **more)))
    assert imported.refused == []
    return dict(imported.tools[0].descriptor)


def test_an_http_tool_keeps_its_request():
    made = descriptor(
        {
            "type": "http",
            "method": "POST",
            "url": "{{env.BASE_URL}}/items/{{props.q}}?v=1",
            "headers": {"X-Key": "{{env.KEY | 'none'}}", "Content-Type": "application/json", "Host": "x"},
            "params": {"limit": "{!!props.n!!}", "lang": "en"},
            "auth": {"type": "bearer", "token": "{{env.TOKEN}}"},
            "body": {
                "type": "json",
                "content": {"n": "{!!props.n!!}", "text": "{{ props.n }}", "label": "no {{input.q}}"},
            },
            "timeout_ms": 5000,
            "retries": {"attempts": 3},
        },
        description="Find.",
        tags=["a"],
        annotations={"title": "Find it", "readOnlyHint": True, "audience": ["user"]},
    )
    assert {key: value for key, value in made.items() if key != "input_schema"} == {
        "name": "find",
        "title": "Find it",
        "description": "Find.",
        "tags": ["a"],
        "annotations": {"read_only": True},
        "timeout": "5000ms",
        "live": {
            "method": "POST",
            "url": "${BASE_URL}/items/{{ args.q }}",
            "body": {
                "json": {"n": "{{ args.n }}", "text": "{{ args.n | string }}", "label": "no {{ args.q }}"}
            },
            "query": {"v": "1", "limit": "{{ args.n }}", "lang": "en"},
            "headers": {"X-Key": "${KEY:-none}"},
            "auth": {"type": "http", "scheme": "bearer", "token": "${TOKEN}"},
        },
    }


async def test_a_tool_calls_its_service():
    async with serving(answering(200, {"Content-Type": "application/json"}, b'{"found": 1}')) as server:
        made = descriptor(
            {
                "type": "http",
                "method": "PUT",
                "url": f"{server.origin}/{{{{props.q}}}}",
                "body": {"type": "raw", "content": "n is {{props.n}}"},
            }
        )
        options = {"clock": RealClock(), "egress": [f"127.0.0.1:{server.port}"]}
        async with runtime_of(json.dumps(made), executors=live_executors(), **options) as runtime:
            assert (await runtime.call("find", {"q": "a/b", "n": 5})).value == {"found": 1}
        (sent,) = server.requests
    assert (sent.method, sent.target, sent.body) == ("PUT", "/a%2Fb", b"n is 5")


async def test_a_program_gets_its_arguments_and_flags():
    made = descriptor(
        {
            "type": "cli",
            "command": "echo",
            "args": ["start", "{{props.q}}"],
            "flags": {
                "-a": {"from": "props.all", "type": "boolean"},
                "--count": {"from": "props.n", "type": "value"},
            },
        }
    )
    async with runtime_of(json.dumps(made), executors=Executors.installed(), clock=RealClock()) as runtime:
        both = await runtime.call("find", {"q": "x y", "n": 3, "all": True})
        assert both.value == "start x y -a --count 3\n", both.error
        assert (await runtime.call("find", {"q": "x; id"})).value == "start x; id\n"


async def test_a_text_is_a_mock():
    made = descriptor({"type": "text", "text": "Hello {{props.q}}, {{props.n | 'no'}} items {% x %}"})
    async with runtime_of(json.dumps(made)) as runtime:
        assert (await runtime.call("find", {"q": "Ann"})).value == "Hello Ann, no items {% x %}"


def test_files_and_servers():
    made = descriptor({"type": "file", "path": "./docs/{{props.q}}.md"})
    assert made["exec"] == {"command": ["cat", "--", "./docs/{{ args.q }}.md"], "paths": {"read": ["./docs"]}}
    imported = tools_of_mci(
        file(
            tool({"type": "mcp", "serverName": "fs", "toolName": "read_file"}),
            mcp_servers={"fs": {"command": "npx", "args": ["server"], "env": {"TOKEN": "c4n4ry"}}},
        )
    )
    assert imported.tools[0].descriptor["mcp"] == {"server": "fs", "tool": "read_file"}
    assert "c4n4ry" not in json.dumps(imported)


def test_a_tool_without_a_counterpart_is_refused_and_the_others_are_not():
    imported = tools_of_mci(
        file(
            tool({"type": "text", "text": "@if(props.q) x @endif"}, "statement"),
            tool({"type": "http", "url": "https://x.example/{{env.A | env.B}}"}, "fallback"),
            tool(
                {"type": "http", "url": "https://x.example/", "body": {"type": "json", "content": {}}}, "get"
            ),
            tool({"type": "soap"}, "soap"),
            tool({"type": "cli"}, "damaged"),
            5,
            tool({"type": "text", "text": "x"}, "off", disabled=True),
            tool({"type": "text", "text": "x"}, "ok"),
            toolsets=["github"],
        )
    )
    assert [(each.key, each.reason) for each in imported.refused] == [
        ("statement", "template"),
        ("fallback", "template"),
        ("get", "body_of_get"),
        ("soap", "execution_type"),
        ("damaged", "damaged_tool"),
        ("/tools/5", "damaged_tool"),
    ]
    assert [each.key for each in imported.tools] == ["ok"]
    assert imported.skipped == ["off"]
    assert [each.message for each in imported.remarks] == [
        "`toolsets`: import each file of the library by itself",
        "it is disabled",
    ]
