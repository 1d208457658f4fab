"""Servers that others wrote, called through our client: listed, called with good and bad arguments, judged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import environments
from environments import BUILD, HERE, LOGS, PINS
from processes import ServerFailed, free_port, run, serving
from sections import Section

HEAD = ("server", "version", "transport", "protocol", "tools", "verified calls")

EVERYTHING = "@modelcontextprotocol/server-everything"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"
MEMORY = "@modelcontextprotocol/server-memory"

OVER: dict[str, tuple[str, str]] = {
    "everything": (EVERYTHING, "stdio"),
    "everything_http": (EVERYTHING, "streamable HTTP"),
    "everything_sse": (EVERYTHING, "SSE"),
    "filesystem": (FILESYSTEM, "stdio"),
    "memory": (MEMORY, "stdio"),
    "time": ("mcp-server-time", "stdio"),
    "time_1x": ("mcp-server-time on mcp 1.x", "stdio"),
}
"""Server of the project -> what it is, and how it is reached."""

UNJUDGED = {
    "everything": "get-sum",
    "everything_http": "get-sum",
    "everything_sse": "get-sum",
    "filesystem": "read_text_file",
    "memory": "open_nodes",
    "time": "get_current_time",
    "time_1x": "get_current_time",
}
"""Server -> the tool that is also offered with a schema that lets everything through, so that the server must judge."""


def real_servers() -> Section:
    """Start what must be started, and let a runtime call it."""
    folder = BUILD / "real-servers"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "hello.txt").write_text("hello\n", encoding="utf-8")
    try:
        with ExitStack() as started:
            urls = {name: started.enter_context(_serving_everything(name)) for name in ("http", "sse")}
            return _called(folder, urls)
    except ServerFailed as error:
        return Section("Real servers through our client", HEAD, [], [str(error)])


def _called(folder: Path, urls: dict[str, str]) -> Section:
    project = {
        "project": "real-servers",
        "egress": {"allow": [url.split("/")[2] for url in urls.values()]},
        "servers": _servers(folder, urls),
    }
    (folder / "toolcrib.yaml").write_text(json.dumps(project, indent=2), encoding="utf-8")
    (folder / "descriptors").mkdir()
    (folder / "descriptors" / "overlays.json").write_text(json.dumps(list(_overlays())), encoding="utf-8")
    env = environments.bare_environment(PYTHONPATH=str(HERE))
    ran = run([environments.python("toolcrib"), str(HERE / "calling.py"), str(folder)], env=env, cwd=folder)
    if ran.code:
        return Section(
            "Real servers through our client", HEAD, [], [f"it ended with {ran.code}: {ran.err[-4000:]}"]
        )
    found: dict[str, Any] = json.loads(ran.out)
    rows = [
        (OVER[server][0], _version(OVER[server][0]), OVER[server][1], its["protocol"], str(its["tools"]), ", ".join(its["calls"]))
        for server, its in found.items()
    ]  # fmt: skip
    faults = [f"{server}: {fault}" for server, its in found.items() for fault in its["faults"]]
    faults += [f"{server} was not asked" for server in OVER if server not in found]
    return Section("Real servers through our client", HEAD, rows, faults)


@contextmanager
def _serving_everything(transport: str) -> Iterator[str]:
    port = free_port()
    word = "streamableHttp" if transport == "http" else "sse"
    command = [environments.node(), environments.entry(EVERYTHING), word]
    env = environments.bare_environment(PORT=str(port))
    with serving(command, port, env=env, cwd=BUILD, log=LOGS / f"everything-{transport}.log"):
        yield f"http://127.0.0.1:{port}/{'mcp' if transport == 'http' else 'sse'}"


def _servers(folder: Path, urls: dict[str, str]) -> dict[str, Any]:
    def node(name: str, *args: str) -> dict[str, Any]:
        return {"command": environments.node(), "args": [environments.entry(name), *args], "import": True}

    def time(environment: str) -> dict[str, Any]:
        command = environments.script(environment, "mcp-server-time")
        return {"command": command, "args": ["--local-timezone", "UTC"], "import": True}

    hooks = {"elicitation": "answers:fill_in", "sampling": "answers:complete"}
    return {
        "everything": {**node(EVERYTHING, "stdio"), **hooks},
        "everything_http": {"url": urls["http"], "import": True},
        "everything_sse": {"url": urls["sse"], "transport": "sse", "import": True},
        "filesystem": node(FILESYSTEM, str(folder / "files")),
        "memory": {**node(MEMORY), "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}},
        "time": time("time"),
        "time_1x": time("mcp1"),
    }  # fmt: skip


def _overlays() -> Iterator[dict[str, Any]]:
    """Descriptors that bind to one tool each: without our judgement, without there being such a tool, with little time."""
    for server, tool in UNJUDGED.items():
        anything = {"description": "Takes whatever it is given.", "input_schema": {"type": "object"}}
        yield {**anything, "name": f"{server}_unjudged", "mcp": {"server": server, "tool": tool}}
        yield {**anything, "name": f"{server}_missing", "mcp": {"server": server, "tool": "no_such_tool"}}
        if server.startswith("everything"):
            slow = {"server": server, "tool": "trigger-long-running-operation"}
            yield {"name": f"{server}_hurried", "timeout": "500ms", "mcp": slow}


def _version(name: str) -> str:
    if name.startswith("@"):
        pins: dict[str, str] = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
        return pins[name]
    return PINS["mcp1" if name.endswith("1.x") else "time"][-1].partition("==")[2]
