"""Clients that others wrote, against `toolcrib serve mcp`: over stdio and HTTP, in each era that they speak."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import environments
from environments import BUILD, HERE, LOGS, PACKAGES, PINS, PROJECT
from processes import Ran, ServerFailed, free_port, run, serving
from sections import Section

PACK = PROJECT / "packs" / "mcp-conformance"

HEAD = ("client", "version", "transport", "protocol", "passed checks")

CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "structured output": ("test_header_argument", {"region": "eu-north"}),
    "text": ("greet", {"name": "World"}),
    "content": ("test_multiple_content_types", {}),
    "bad arguments": ("greet", {}),
    "a failing tool": ("test_error_handling", {}),
}
"""What each client calls, under the name that the table has for it."""

CONFIRMED = """\
name: confirmed
description: Asks a person first.
requires_confirmation: "Add {{ args.number }}?"
input_schema: {type: object, properties: {number: {type: integer}}, required: [number]}
mock: {result: "added {{ args.number }}"}
"""
"""A tool that is served besides the pack."""

FORMS = (
    {"decision": "approve"},
    {"decision": "approve", "arguments": '{"number": 7}'},
    {"decision": "reject", "reason": "too many"},
)
"""What the user of a client that shows forms fills in, one form for each call of `confirmed`."""

TOOLS = sorted([*(file.name.removesuffix(".tool.yaml") for file in (PACK / "tools").iterdir()), "confirmed"])

APPEARED = "name: appeared\ndescription: Was not there when the client connected.\nmock: {result: 1}\n"

INSPECTOR = "@modelcontextprotocol/inspector"
TYPESCRIPT = "@modelcontextprotocol/client"

PROTOCOLS = {"handshake": "2025-11-25", "modern": "2026-07-28"}


class Served(NamedTuple):
    """A pack of its own for one client, and the two ways to it.

    Attributes:
        url: Where it is served; empty for stdio.
        command: What a client starts for stdio.
        env: The environment of the server, and of whoever answers its approvals.
        appears: The file that makes a further tool appear, and its text.
    """

    url: str
    command: tuple[str, ...]
    env: dict[str, str]
    appears: tuple[str, str]


def real_clients() -> Section:
    """Let every client list and call, and judge what it got."""
    rows, faults = [], []
    for name, version, eras, ask in _clients():
        for transport in ("http", "stdio"):
            for era in eras:
                where = f"{name} over {transport}, {era}"
                try:
                    with _served(f"{name}-{transport}-{era}".replace(" ", "-"), transport) as served:
                        held, wrong = ask(served, era)
                except ServerFailed as error:
                    held, wrong = (), [str(error)]
                rows.append((name, version, transport, PROTOCOLS[era], ", ".join(held) or "nothing"))
                faults += [f"{where}: {fault}" for fault in wrong]
    return Section("Real clients against `toolcrib serve mcp`", HEAD, rows, faults)


def _clients() -> Iterator[tuple[str, str, Sequence[str], Any]]:
    both = ("handshake", "modern")
    inspector = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"][INSPECTOR]
    yield "MCP Inspector CLI", inspector, both, _ask_inspector
    yield "MCP Inspector mcpdo", inspector, both, _ask_mcpdo
    yield "mcp 1.x ClientSession", _pin("mcp1", "mcp"), ("handshake",), _script("mcp1", "mcp1_client.py")
    yield "mcp 2.x Client", _pin("fastmcp", "mcp"), both, _script("fastmcp", "mcp2_client.py")
    yield "FastMCP Client", _pin("fastmcp", "fastmcp"), both, _script("fastmcp", "fastmcp_client.py")
    lock = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    version = lock[f"node_modules/{TYPESCRIPT}"]["version"]
    yield "TypeScript SDK Client", version, both, _script("", "typescript_client.mjs")
    yield "FastMCP CLI", _pin("fastmcp", "fastmcp"), ("modern",), _ask_fastmcp_cli


def _pin(environment: str, distribution: str) -> str:
    return next(pin.partition("==")[2] for pin in PINS[environment] if pin.startswith(f"{distribution}=="))


@contextmanager
def _served(label: str, transport: str) -> Iterator[Served]:
    folder = BUILD / "served" / label
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PACK, folder)
    (folder / "tools" / "confirmed.tool.yaml").write_text(CONFIRMED, encoding="utf-8")
    command = (environments.script("toolcrib", "toolcrib"), "serve", "mcp", str(folder))
    appears = (str(folder / "tools" / "appeared.tool.yaml"), APPEARED)
    # Approvals are not kept in a work tree, such as ours.
    with TemporaryDirectory() as state:
        env = environments.bare_environment(TOOLCRIB_STATE_DIR=state)
        if transport == "stdio":
            yield Served("", command, env, appears)
            return
        port = free_port()
        options = ("--transport", "http", "--port", str(port))
        log = LOGS / f"served-{label}.log"
        with serving([*command, *options], port, env=env, cwd=folder, log=log, ends_with=0):
            yield Served(f"http://127.0.0.1:{port}/mcp", command, env, appears)


def _script(environment: str, file: str) -> Any:
    """Ask by a script that runs in the client's own environment, or in Node if it has none."""
    program = environments.python(environment) if environment else environments.node()

    def ask(served: Served, era: str) -> tuple[Sequence[str], list[str]]:
        asked = {
            **served._asdict(),
            "era": era,
            "calls": CALLS,
            "progress": "test_tool_with_progress",
            "packages": str(PACKAGES),
            "approval": ["confirmed", {"number": 1}],
            "forms": FORMS,
        }
        words = [program, str(HERE / "clients" / file), json.dumps(asked)]
        ran = run(words, env=served.env, cwd=BUILD)
        if ran.code:
            return (), [f"the client ended with {ran.code}: {ran.err[-2000:]}"]
        return _judge(json.loads(ran.out), era)

    return ask


def _judge(found: Mapping[str, Any], era: str) -> tuple[Sequence[str], list[str]]:
    """Hold what a client got against what the descriptors promise."""
    bad, failing = found["bad arguments"], found["a failing tool"]
    good = {
        "list": found["protocol"] == PROTOCOLS[era] and found["listed"] == TOOLS,
        "structured output": found["structured output"]["structured"] == {"region": "eu-north"}
        and list(map(json.loads, found["structured output"]["texts"])) == [{"region": "eu-north"}],
        "text": found["text"]["texts"] == ["Hello, World!"],
        "content": found["content"]["kinds"] == ["text", "image", "resource"],
        "bad arguments": bad["is_error"] and "/name" in "".join(bad["texts"]),
        "a failing tool": failing["is_error"]
        and "This tool intentionally returns an error" in "".join(failing["texts"]),
        "unknown tool": found["unknown"].get("code") == -32602
        and "no_such_tool" in found["unknown"]["message"],
    }
    if "progress" in found:
        good["progress"] = found["progress"] == [[0, 100], [50, 100], [100, 100]]
    if "approval" in found:
        approved, edited, rejected = found["approval"]
        good["approval"] = (
            (approved["texts"], edited["texts"]) == (["added 1"], ["added 7"])
            and rejected["is_error"]
            and "rejected" in "".join(rejected["texts"])
            and len(found["forms"]) == len(FORMS)
            and found["forms"][0].startswith("`confirmed` requires approval: Add 1?")
        )
    if "after" in found:
        good["list_changed"] = sorted(found["after"]) == sorted([*TOOLS, "appeared"])
    keys = {
        "list": ("protocol", "listed"),
        "unknown tool": ("unknown",),
        "approval": ("approval", "forms"),
        "list_changed": ("after",),
    }
    return _split(
        {name: (held, {key: found[key] for key in keys.get(name, (name,))}) for name, held in good.items()}
    )


def _split(judged: Mapping[str, tuple[bool, Any]]) -> tuple[Sequence[str], list[str]]:
    """What held, and what did not with the evidence."""
    wrong = [f"`{name}` did not hold: {str(got)[:1500]}" for name, (held, got) in judged.items() if not held]
    return [name for name, (held, _got) in judged.items() if held], wrong


def _ask_inspector(served: Served, era: str) -> tuple[Sequence[str], list[str]]:
    """Ask by one command each; it ends with 5 where a tool failed or is not there, with 6 where a schema is poor.

    It shows no forms, so the operator approves the call that its error names.
    """
    inspector = [environments.node(), environments.entry(INSPECTOR), "--cli"]
    spoken = ["--protocol-era", "legacy" if era == "handshake" else "modern", "--format", "json", "-q"]

    def ask(*options: str) -> Ran:
        # It passes nothing of its own environment on.
        state = f"TOOLCRIB_STATE_DIR={served.env['TOOLCRIB_STATE_DIR']}"
        target = [served.url] if served.url else [*served.command, "-e", state]
        return run([*inspector, *target, *spoken, *options], env=served.env, cwd=BUILD)

    def call(tool: str, arguments: Mapping[str, Any]) -> Ran:
        return ask("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))

    listed = ask("--method", "tools/list", "--strict")
    good, bad, unknown = (
        call(*CALLS["structured output"]),
        call(*CALLS["bad arguments"]),
        call("no_such_tool", {}),
    )
    held = call("confirmed", {"number": 1})
    named = re.search(r"`(toolcrib approvals approve \w+)`", json.dumps(_result(held).get("content")))
    if named:
        words = [environments.script("toolcrib", "toolcrib"), *named[1].split()[1:]]
        run(words, env=served.env, cwd=Path(served.appears[0]).parents[1])
    made = call("confirmed", {"number": 1})
    tools = [tool["name"] for tool in _result(listed).get("tools", [])]
    judged = {
        "list --strict": (not listed.code and tools == TOOLS, listed),
        "structured output": (
            not good.code and _result(good).get("structuredContent") == {"region": "eu-north"},
            good,
        ),
        "bad arguments": (bad.code == 5 and "/name" in json.dumps(_result(bad).get("content")), bad),
        "unknown tool": (unknown.code == 5 and "no_such_tool" in unknown.err, unknown),
        "approval by the operator": (
            held.code == 5 and not made.code and "added 1" in json.dumps(_result(made).get("content")),
            (held, made),
        ),
    }
    return _split(judged)


def _result(ran: Ran) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(ran.out)["result"]
    except (ValueError, KeyError):
        return {}
    return found


def _ask_mcpdo(served: Served, era: str) -> tuple[Sequence[str], list[str]]:
    """Ask by one command each, over the connection of a daemon; a call that asks a person waits there for the form."""
    program = [environments.node(), environments.entry(INSPECTOR, command="mcpdo"), "--format", "json"]
    target = (
        ["--transport", "http", served.url] if served.url else ["--transport", "stdio", "--", *served.command]
    )

    # The socket of the daemon has a path, whose length is limited.
    with TemporaryDirectory(prefix="mcpdo") as folder:
        env = {
            **served.env,
            "MCP_INSPECTOR_DAEMON_DIR": folder,
            "MCP_INSPECTOR_DAEMON_TOKEN": secrets.token_urlsafe(),
        }
        env |= {"MCP_INSPECTOR_SECRET_STORE": "memory", "MCP_ALLOW_DEFAULT_CONNECTION": "1"}

        def ask(*words: str) -> Ran:
            return run([*program, *words], env=env, cwd=BUILD)

        def call(tool: str, arguments: Mapping[str, Any]) -> Ran:
            return ask("tools/call", tool, json.dumps(arguments))

        def answered(form: Mapping[str, Any]) -> tuple[Ran, Ran]:
            held = call("confirmed", {"number": 1})
            asked = _json(held).get("elicitationPending", {})
            return held, ask("elicitation/respond", asked.get("elicitationId", "none"), json.dumps(form))

        try:
            state = f"TOOLCRIB_STATE_DIR={served.env['TOOLCRIB_STATE_DIR']}"
            connected = ask(
                "connect", "-e", state, "--era", "legacy" if era == "handshake" else "modern", *target
            )
            listed = ask("tools/list")
            good, bad = call(*CALLS["structured output"]), call(*CALLS["bad arguments"])
            (_, approved), (_, edited), (_, rejected) = forms = [answered(form) for form in FORMS]
        finally:
            ask("daemon", "stop")
    judged = {
        "list": ([tool["name"] for tool in _json(listed).get("tools", [])] == TOOLS, (connected, listed)),
        "structured output": (_json(good).get("structuredContent") == {"region": "eu-north"}, good),
        "bad arguments": (bad.code == 5 and "/name" in json.dumps(_json(bad).get("content")), bad),
        "approval": (
            "added 1" in json.dumps(_json(approved).get("content"))
            and "added 7" in json.dumps(_json(edited).get("content"))
            and rejected.code == 5
            and "rejected" in json.dumps(_json(rejected).get("content")),
            forms,
        ),
    }
    return _split(judged)


def _json(ran: Ran) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(ran.out)
    except ValueError:
        return {}
    return found


def _ask_fastmcp_cli(served: Served, _era: str) -> tuple[Sequence[str], list[str]]:
    """Ask by the verbs `list` and `call`, which speak the newest protocol that the server does."""
    where = [served.url] if served.url else ["--command", " ".join(served.command)]

    def ask(verb: str, *words: str) -> Ran:
        command = [environments.script("fastmcp", "fastmcp"), verb, *where, *words, "--json"]
        return run(command, env=environments.bare_environment(), cwd=BUILD)

    def call(tool: str, arguments: Mapping[str, Any]) -> Ran:
        return ask("call", "--target", tool, "--input-json", json.dumps(arguments))

    listed, good = ask("list"), call(*CALLS["structured output"])
    # It looks for what is missing by itself, so the server is asked about what is there and wrong.
    bad = call("greet", {"name": ""})
    judged = {
        "list": (not listed.code and all(f'"{name}"' in listed.out for name in TOOLS), listed),
        "structured output": (not good.code and '"region": "eu-north"' in good.out, good),
        "bad arguments": (bad.code == 1 and "/name" in bad.out, bad),
    }
    return _split(judged)
