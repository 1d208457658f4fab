"""Whose state a call reads and changes: one token never meets the rows of another, and a handle is good for its owner alone."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import pytest
from click.testing import CliRunner

import listing_server
from sampling import THOROUGH, sample
from served_sessions import STATEFUL, TOKENS, TOOLS, code_of, notebook, serving
from serving_mcp import (
    as_http,
    client,
    each_era,
    headers_of,
    in_chunks,
    json_of,
    quiet_sdk,
    request,
    said_raw,
    serve,
    status_of,
    stdio,
    write,
)
from toolcrib.cli.group import cli
from toolcrib.serve.mcp import Options

pytestmark = [quiet_sdk]

ADA, BOB = TOKENS
COUNTING = "mock: {sequence: [{result: 1}, {result: 2}]}\n"
HANDLES = Options(watch=False, sessions="handle", session_age=600)


async def note(server, text, token="", session=None, **arguments):
    result = await server.call("add_note", {"text": text, **arguments}, token, session)
    assert not result.get("isError"), result


async def test_tokens_do_not_share_a_session(tmp_path):
    async with serving(notebook(tmp_path), tokens=TOKENS) as server:
        await note(server, "mine", ADA)
        assert await server.notes(token=BOB) == []
        await note(server, "yours", BOB)
        assert await server.notes(token=ADA) == ["mine"]
        assert await server.notes(token=BOB) == ["yours"]
        for token in TOKENS:
            assert "first" in str(await server.call("next_step", token=token))
        assert not [line for line in server.said if "share one session" in line]


async def test_a_trailer_is_not_a_header_and_changes_no_principal(tmp_path):
    async with serving(notebook(tmp_path), tokens=TOKENS) as server:
        call = request("tools/call", {"name": "add_note", "arguments": {"text": "mine"}})
        trailer = f"authorization: Bearer {ADA}\r\n".encode()
        raw = await said_raw(server.port, in_chunks(call, trailer, authorization=f"Bearer {BOB}"))
        assert status_of(raw) == 200
        assert await server.notes(token=BOB) == ["mine"]
        assert await server.notes(token=ADA) == []


@each_era
async def test_clients_of_two_tokens_in_both_eras(era, tmp_path):
    async with (
        serving(notebook(tmp_path), tokens=TOKENS) as server,
        server.client(era, ADA) as ada,
        server.client(era, BOB) as bob,
    ):
        assert [tool.name for tool in (await ada.list_tools()).tools] == [
            "add_note",
            "echo",
            "list_notes",
            "next_step",
        ]
        await ada.call_tool("add_note", {"text": "mine"})
        listed = await bob.call_tool("list_notes", {})
        assert json.loads(listed.content[0].text) == []
        listed = await ada.call_tool("list_notes", {})
        assert [row["text"] for row in json.loads(listed.content[0].text)] == ["mine"]


async def test_clients_without_a_token_share_a_session_and_are_said_to(tmp_path):
    async with serving(notebook(tmp_path)) as server:
        assert server.said[0].endswith(
            "; clients share one session: use tokens or `--sessions handle` to separate them"
        )
        await note(server, "ours")
        assert await server.notes() == ["ours"]
    for options, tokens in ((HANDLES, ()), (Options(watch=False), TOKENS[:1])):
        async with serving(notebook(tmp_path), options, tokens) as server:
            assert "share" not in server.said[0]


async def test_only_tools_that_keep_state_take_a_handle(tmp_path):
    async with serving(notebook(tmp_path), HANDLES) as server:
        tools = await server.listed()
        assert [*tools] == ["add_note", "echo", "list_notes", "next_step", "open_session"]
        for name in STATEFUL:
            schema = tools[name]["inputSchema"]
            assert schema["properties"]["session"]["type"] == "string"
            assert "session" in schema["required"]
        assert "session" not in tools["echo"]["inputSchema"]["properties"]
        assert "10m" in tools["open_session"]["description"]
        opened = (await server.call("open_session"))["structuredContent"]
        assert opened["expires_in"] == 600
        assert re.fullmatch(r"[A-Za-z0-9_-]{24}", opened["session"])
        assert code_of(await server.call("open_session", {"for": "ada"})) == "invalid_arguments"
        assert (await server.call("echo", {"text": "hi"}))["content"][0]["text"] == "hi"
        # The argument is not the tool's, so the tool does not see it.
        assert not (await server.call("next_step", {"session": opened["session"]})).get("isError")
        # Paths with a toolset.
        assert [*await server.listed(path="/mcp/plain")] == ["echo"]
        assert [*await server.listed(path="/mcp/noting")] == ["add_note", "list_notes", "open_session"]
        other = await server.answer("tools/call", {"name": "open_session"}, path="/mcp/plain")
        assert other["error"]["message"] == "Unknown tool: open_session"


async def test_a_client_of_the_sdk_with_handles(tmp_path):
    async with (
        serving(notebook(tmp_path), HANDLES, TOKENS) as server,
        server.client("2026-07-28", ADA) as one,
    ):
        handles = []
        for _ in range(2):
            opened = await one.call_tool("open_session", {})
            handles.append(opened.structured_content["session"])
        await one.call_tool("add_note", {"text": "here", "session": handles[0]})
        for handle, texts in zip(handles, (["here"], []), strict=True):
            listed = await one.call_tool("list_notes", {"session": handle})
            assert [row["text"] for row in json.loads(listed.content[0].text)] == texts


async def test_unknown_expired_and_other_handles_get_the_same_answer(tmp_path):
    async with serving(notebook(tmp_path), HANDLES, TOKENS) as server:
        expired = await server.opened(ADA)
        await server.clock.move(600)
        handle = await server.opened(ADA)
        await note(server, "mine", ADA, session=handle)

        async def answered(given, token):
            by_argument = await server.raw(
                request("tools/call", {"name": "list_notes", "arguments": {"session": given}}), token
            )
            meta = {"_meta": {"dev.toolcrib/session": given}}
            by_meta = await server.raw(request("tools/call", {"name": "list_notes", **meta}), token)
            assert json_of(by_argument) == json_of(by_meta)
            return json_of(by_argument)

        answers = [
            await answered(given, token)
            for given, token in [
                (handle, BOB),
                (expired, ADA),
                (expired, BOB),
                ("x", ADA),
                ("x" * 24, BOB),
                (handle[:-1], ADA),
            ]
        ]
        assert all(answer == answers[0] for answer in answers)
        assert code_of(answers[0]["result"]) == "unknown_session"
        assert handle not in str(answers[0])
        assert answers[0]["result"]["content"][0]["text"] == (
            "`session` is not the handle of an open session; a session ends 10m after it was opened; "
            "call `open_session` for a new one"
        )
        assert await server.notes({"session": handle}, ADA) == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "meta", "code"),
    sample(
        [
            ({}, None, "session_needed"),
            ({"session": 7}, None, "unknown_session"),
            ({"session": None}, None, "unknown_session"),
            ({"session": ["x"]}, None, "unknown_session"),
            ({"session": ""}, None, "unknown_session"),
            ({"session": "x" * 100_000}, None, "unknown_session"),
            ({"session": "a"}, "b", "two_sessions"),
        ],
        one_in=3,
    ),
)
async def test_what_is_no_handle(arguments, meta, code, tmp_path):
    async with serving(notebook(tmp_path), HANDLES) as server:
        result = await server.call("list_notes", arguments, session=meta)
        assert code_of(result) == code
        assert result["_meta"]["dev.toolcrib/outcome"]["outcome"] == "invalid_arguments"


async def test_a_session_ends_at_its_age_however_much_it_is_used(tmp_path):
    async with serving(notebook(tmp_path), HANDLES) as server:
        handle = await server.opened()
        for _ in range(4):
            await note(server, "a", session=handle)
            await server.clock.move(149)
        assert len(await server.notes({"session": handle})) == 4
        await server.clock.move(4)
        assert code_of(await server.call("list_notes", {"session": handle})) == "unknown_session"


async def test_the_number_of_sessions_is_bounded_for_a_token_and_in_all(tmp_path):
    options = HANDLES._replace(open_sessions_each=2, open_sessions=3)
    async with serving(notebook(tmp_path), options, TOKENS) as server:
        first = await server.opened(ADA)
        await server.clock.move(100)
        await server.opened(ADA)
        refused = await server.call("open_session", token=ADA)
        assert code_of(refused) == "too_many_sessions"
        told = refused["_meta"]["dev.toolcrib/outcome"]
        assert (told["outcome"], told["details"], told["retryable"]) == (
            "overloaded",
            {"retry_after": 500},
            True,
        )
        assert refused["content"][0]["text"].startswith("too many sessions are open")
        await server.opened(BOB)
        assert code_of(await server.call("open_session", token=BOB)) == "too_many_sessions"
        assert await server.notes({"session": first}, ADA) == []
        await server.clock.move(500)
        await server.opened(ADA)


async def test_many_handles_at_once_never_see_the_rows_of_another(tmp_path):
    async with serving(notebook(tmp_path), HANDLES, TOKENS) as server:
        handles = [(await server.opened(token), token) for token in TOKENS * (50 if THOROUGH else 10)]

        async def used(handle, token):
            for number in range(3):
                await note(server, f"{handle} {number}", token, session=handle)
                seen = await server.notes({"session": handle}, token)
                assert seen == [f"{handle} {known}" for known in range(number + 1)]

        await asyncio.gather(*[used(*each) for each in handles])


async def test_sessions_survive_a_reload_which_may_change_who_takes_a_handle(tmp_path):
    folder = notebook(tmp_path)
    async with serving(folder, HANDLES._replace(watch=True)) as server:
        handle = await server.opened()
        await note(server, "before", session=handle)
        changed = TOOLS.replace("Lists the notes.", "Lists all notes.").replace(
            "{sequence: [{result: first}, {result: second}, {result: third}]}", "{result: done}"
        )
        notebook(folder, changed)
        await server.until_said("reloaded")
        tools = await server.listed()
        assert tools["list_notes"]["description"] == "Lists all notes."
        assert "session" not in tools["next_step"]["inputSchema"].get("properties", {})
        assert await server.notes({"session": handle}) == ["before"]
        assert not (await server.call("next_step")).get("isError")
        # What comes with a reload cannot keep the server from starting: it is left out, and people are told.
        notebook(
            folder,
            changed.replace(
                "Adds a note.\n    input_schema: {type: object, properties: {",
                "Adds.\n    input_schema: {type: object, properties: {session: {type: string}, ",
            ),
        )
        said = await server.until_said("not served")
        assert "`add_note` has an argument `session`" in said
        assert "rename the argument, or use `--sessions principal`" in said
        assert "add_note" not in await server.listed()
        assert await server.notes({"session": handle}) == ["before"]


async def test_a_server_that_was_down_at_start_is_asked_which_tools_take_a_handle(tmp_path):
    listed = tmp_path / "listed.json"
    late = {"command": sys.executable, "args": ["-S", listing_server.__file__, str(listed), "1"]}
    project = {"sources": ["tools"], "servers": {"late": {**late, "scope": "session", "import": True}}}
    write(tmp_path, json.dumps({"project": "late", **project}), "toolcrib.yaml")
    write(tmp_path / "tools", "name: echo\ndescription: Says it.\nmock: {result: 1}\n")
    async with serving(tmp_path, HANDLES) as server:
        assert [*await server.listed()] == ["echo"]
        assert code_of(await server.call("late__remember")) == "server_down"
        listed.write_text(
            json.dumps([{"name": "remember", "inputSchema": {"type": "object"}}]), encoding="utf-8"
        )
        assert code_of(await server.call("late__remember")) == "session_needed"
        assert [*await server.listed()] == ["echo", "late__remember", "open_session"]
        handle = await server.opened()
        assert (await server.call("late__remember", {"session": handle}))["content"][0]["text"] == "done"
        assert code_of(await server.call("late__remember", {"session": "x"})) == "unknown_session"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (
            "name: open_session\ndescription: x\nmock: {result: 1}\n",
            "the tool `open_session` has the name of the tool that `--sessions handle` adds",
        ),
        (
            "name: open.session\ndescription: x\nmock: {result: 1}\n",
            "the tool `open.session` has the name of the tool that `--sessions handle` adds",
        ),
        (
            "name: count\ndescription: x\ninput_schema: {type: object, properties: {session: {}}}\nmock: {sequence: [{result: 1}, {result: 2}]}\n",
            "the tool `count` has an argument `session`, which `--sessions handle` adds",
        ),
        (
            "name: count\ndescription: x\ninput_schema: {$ref: '#/$defs/a', $defs: {a: {required: [session]}}}\n"
            + COUNTING,
            "the tool `count` has an argument `session`, which `--sessions handle` adds",
        ),
        (
            "name: count\ndescription: x\ninput_schema: {allOf: [{additionalProperties: false}]}\n"
            + COUNTING,
            "the input schema of the tool `count` is closed in a subschema, so `--sessions handle` cannot add",
        ),
    ],
)
def test_a_tool_that_is_in_the_way_of_handles_is_told_at_start(tool, said, tmp_path):
    words = [
        "serve",
        "mcp",
        str(write(tmp_path, tool)),
        "--transport",
        "http",
        "--port",
        "0",
        "--sessions",
        "handle",
    ]
    told = CliRunner().invoke(cli, words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in told.stderr
    assert "or use `--sessions principal`" in told.stderr


async def test_a_client_that_knows_toolcrib_names_sessions_of_its_own(tmp_path):
    async with serving(notebook(tmp_path), Options(watch=False, session_age=60), TOKENS) as server:
        await note(server, "own", ADA)
        await note(server, "one", ADA, session="one")
        await note(server, "of bob", BOB, session="one")
        assert await server.notes(token=ADA) == ["own"]
        assert await server.notes(token=ADA, session="one") == ["one"]
        assert await server.notes(token=ADA, session="two") == []
        assert await server.notes(token=BOB, session="one") == ["of bob"]
        await server.clock.move(60)
        assert await server.notes(token=ADA, session="one") == []
        assert await server.notes(token=ADA) == ["own"]
        for name in ("", "x" * 257, 7, None, ["one"]):
            params = {"name": "echo", "arguments": {"text": "x"}, "_meta": {"dev.toolcrib/session": name}}
            answer = await server.answer("tools/call", params, ADA)
            assert answer["error"]["code"] == -32602
            assert answer["error"]["message"] == "dev.toolcrib/session must be a text of 1 to 256 characters"


async def test_connections_with_a_handshake_keep_their_own_session(tmp_path):
    async with (
        serving(notebook(tmp_path), HANDLES, TOKENS) as server,
        server.client("legacy", ADA) as one,
        server.client("legacy", ADA) as two,
    ):
        assert "open_session" not in [tool.name for tool in (await one.list_tools()).tools]
        await one.call_tool("add_note", {"text": "mine"})
        assert json.loads((await two.call_tool("list_notes", {})).content[0].text) == []
        assert "mine" in (await one.call_tool("list_notes", {})).content[0].text
        with pytest.raises(Exception, match="a connection with a handshake has one session"):
            await one.call_tool("echo", {"text": "x"}, meta={"dev.toolcrib/session": "one"})


async def test_a_session_of_the_handshake_is_good_for_its_token_alone(tmp_path):
    async with serving(notebook(tmp_path), tokens=TOKENS) as server:

        async def sent(message, token, **more):
            told = {
                "host": "localhost",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "authorization": f"Bearer {token}",
            } | {name.replace("_", "-"): text for name, text in more.items()}
            return await said_raw(server.port, as_http("POST", "/mcp", told, json.dumps(message).encode()))

        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        raw = await sent(request("initialize", opening, modern=False), ADA)
        session = re.search(rb"mcp-session-id: (\S+)", raw)[1].decode()
        call = request("tools/call", {"name": "list_notes", "arguments": {}}, modern=False)
        known = {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}
        assert status_of(await sent(call, ADA, **known)) == 200
        taken = await sent(call, BOB, **known)
        unknown = await sent(call, BOB, **(known | {"mcp_session_id": "0" * 32}))
        assert status_of(taken) == status_of(unknown) == 404
        assert json_of(taken) == json_of(unknown)


async def test_a_client_over_stdio_has_one_session(tmp_path):
    async with client(stdio(notebook(tmp_path)), "2026-07-28") as one:
        assert "open_session" not in [tool.name for tool in (await one.list_tools()).tools]
        await one.call_tool("add_note", {"text": "mine"})
        assert "mine" in (await one.call_tool("list_notes", {})).content[0].text


async def test_the_options_of_the_command_line(tmp_path):
    words = ("--sessions", "handle", "--session-age", "90", "--token-env", "ADA", "--token-env", "BOB")
    env = {"ADA": ADA, "BOB": BOB}
    async with serve(notebook(tmp_path), *words, env=env) as served:
        message = request("tools/call", {"name": "open_session", "arguments": {}})
        for token, status in ((ADA, 200), (BOB, 200), (ADA[:-1], 401)):
            told = {
                "host": "localhost",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": "open_session",
                "authorization": f"Bearer {token}",
            }
            raw = await said_raw(served.port, as_http("POST", "/mcp", told, json.dumps(message).encode()))
            assert status_of(raw) == status
            if status == 200:
                assert json_of(raw)["result"]["structuredContent"]["expires_in"] == 90


async def test_the_variable_of_a_token_is_the_user_of_its_calls(tmp_path):
    folder = notebook(tmp_path)
    with (folder / "toolcrib.yaml").open("a") as project:
        project.write("access: {rules: [{deny: {tool: '*_note*', user: BOB}}]}\n")
    words = ("--token-env", "ADA", "--token-env", "BOB")
    async with serve(folder, *words, env={"ADA": ADA, "BOB": BOB}) as served:
        for token, names in (
            (ADA, ["add_note", "echo", "list_notes", "next_step"]),
            (BOB, ["echo", "next_step"]),
        ):
            message = request("tools/list", {})
            told = headers_of(message, host="localhost", authorization=f"Bearer {token}")
            raw = await said_raw(served.port, as_http("POST", "/mcp", told, json.dumps(message).encode()))
            assert [tool["name"] for tool in json_of(raw)["result"]["tools"]] == names


def test_two_tokens_cannot_have_the_same_name(tmp_path):
    words = (
        "serve",
        "mcp",
        str(notebook(tmp_path)),
        "--transport",
        "http",
        "--token-env",
        "A",
        "--token-env",
        "A",
    )
    found = CliRunner(env={"A": ADA}).invoke(cli, words)
    assert found.exit_code == 2
    assert "two tokens have the name `A`, which is the user of their calls" in found.stderr
