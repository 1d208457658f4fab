"""What a client must never be told: places of files, hosts, secrets, traces. Looked for in all that a server says."""

from __future__ import annotations

import json

import pytest
from mcp import MCPError

from http_servers import answering, serving
from serving_mcp import (
    BASICS,
    answers,
    client,
    connected,
    each_era,
    each_way_and_era,
    process,
    quiet_sdk,
    request,
    serve,
    write,
)

pytestmark = [quiet_sdk]

SECRET = "canary-5ecr3t-value"

TOOLS = """
    name: bug
    description: A mock that is wrong.
    input_schema: {{type: object, properties: {{key: {{type: string}}}}, required: [key]}}
    mock: {{result: "{{{{ {{'a': 1}}[args.key].b }}}}"}}
    ---
    name: strict
    description: A mock without an answer.
    input_schema: {{type: object, properties: {{key: {{type: string}}}}}}
    mock: {{rules: [{{when: {{args: {{key: only}}}}, reply: {{result: 1}}}}]}}
    ---
    name: unbound
    description: Nothing is bound.
    ---
    name: lacking
    description: A secret is not there.
    live: {{method: GET, url: "https://canary-host.example.com/", headers: {{X-Key: "${{NO_SUCH_CANARY}}"}}}}
    ---
    name: refused
    description: Nobody may go there.
    live: {{method: GET, url: "http://169.254.169.254/canary-path"}}
    ---
    name: dead
    description: Nobody listens there.
    annotations: {{idempotent: true}}
    limits: {{attempts: 1}}
    live: {{method: GET, url: "{dead}/canary-path", headers: {{X-Key: "${{CANARY}}"}}}}
    ---
    name: failing
    description: The service fails.
    limits: {{attempts: 1}}
    live: {{method: GET, url: "{origin}/canary-path", headers: {{Authorization: "Bearer ${{CANARY}}"}}}}
    ---
    name: wrong
    description: Answers what it must not.
    output_schema: {{type: object, properties: {{n: {{type: integer}}}}, required: [n]}}
    on_invalid_result: error
    live: {{method: GET, url: "{echo}/canary-path", headers: {{X-Key: "${{CANARY}}"}}}}
    ---
    name: off
    description: Is not offered.
    mock: {{result: 1}}
"""

CALLS = [
    ("bug", {"key": "nope"}),
    ("strict", {"key": "other"}),
    ("unbound", {}),
    ("lacking", {}),
    ("refused", {}),
    ("dead", {}),
    ("failing", {}),
    ("wrong", {}),
]

FORBIDDEN = [SECRET, "canary", "Traceback", ".yaml", ".py", "descriptors", "169.254", "127.0.0.1", "NO_SUCH"]


@each_way_and_era
async def test_failures_tell_nothing_of_the_machine(way, era, tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY", SECRET)
    async with (
        serving(answering(503, {}, b"down")) as down,
        serving(answering(200, {"Content-Type": "application/json"}, b'{"n": "x"}')) as echo,
    ):
        async with serving(answering()) as gone:
            dead = gone.origin
        folder = tmp_path / "canary-folder"
        write(folder / "descriptors", TOOLS.format(origin=down.origin, echo=echo.origin, dead=dead))
        hosts = [origin.partition("//")[2] for origin in (down.origin, echo.origin, dead)]
        (folder / "toolcrib.yaml").write_text(
            f"project: shop\ndisable: [off]\negress: {{allow: {json.dumps(hosts)}}}\n"
        )
        async with connected(way, era, folder) as one:
            listed = await one.list_tools()
            assert "off" not in [tool.name for tool in listed.tools]
            told = [listed.model_dump_json()]
            outcomes = {}
            for name, arguments in CALLS:
                result = await one.call_tool(name, arguments)
                assert result.is_error, name
                outcomes[name] = result.meta["dev.toolcrib/outcome"]["outcome"]
                told.append(result.model_dump_json())
            for name in ("off", "../etc/passwd", "x" * 5000):
                with pytest.raises(MCPError) as unknown:
                    await one.call_tool(name, {})
                assert unknown.value.error.code == -32602
                told.append(unknown.value.error.model_dump_json())
    assert outcomes == {
        "bug": "internal",
        "strict": "unmatched_mock",
        "unbound": "unavailable",
        "lacking": "unavailable",
        "refused": "denied",
        "dead": "transport_error",
        "failing": "tool_error",
        "wrong": "invalid_result",
    }
    everything = "\n".join(told)
    found = [word for word in [*FORBIDDEN, str(tmp_path), str(down.port)] if word in everything]
    assert found == [], everything


@each_era
async def test_an_internal_error_can_be_found_in_the_log(era, tmp_path):
    async with serve(
        write(tmp_path, TOOLS.format(origin="http://x", echo="http://x", dead="http://x"))
    ) as served:
        async with client(served.url, era) as one:
            result = await one.call_tool("bug", {"key": "nope"})
        text = result.content[0].text
        assert text.startswith("internal error, call id ")
        logged = await served.until_said(text.rpartition(" ")[2])
        assert "all.tool.yaml" in logged


async def test_a_message_of_odd_texts_is_answered(tmp_path):
    odd = "\\ud800\\u2028\\u0085"
    async with process(write(tmp_path, BASICS)) as served:
        for number, name in enumerate(("echo", odd), 1):
            message = json.dumps(request("tools/call", {"name": "N", "arguments": {"text": "T"}}, number))
            served.process.stdin.write(
                message.replace('"N"', f'"{name}"').replace('"T"', f'"{odd}"').encode() + b"\n"
            )
        served.process.stdin.close()
        told = await answers(served)
    assert len(told) == 2
