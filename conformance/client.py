"""The client that the official suite drives: a project that names one server and calls all of its tools.

The suite appends the server's URL to the command, and says in the environment which scenario runs, in which revision,
and which calls it wants.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from answers import sample

if TYPE_CHECKING:
    from toolcrib import Runtime

SERVER = "suite"
AT_ONCE = 3
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
WANTED = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def project(url: str) -> dict[str, Any]:
    """The configuration: one server whose tools are all imported, and who answers its questions."""
    server = {
        "url": url,
        "import": True,
        "era": "auto" if not REVISION else "handshake" if REVISION < "2026" else "modern",
        "elicitation": "answers:fill_in",
        "sampling": "answers:complete",
    }
    return {"project": "suite", "egress": {"allow": [urlsplit(url).netloc]}, "servers": {SERVER: server}}


def calls(tools: Runtime) -> list[tuple[str, dict[str, Any]]]:
    """What the scenario wants called: as it says itself, or every tool with sample arguments."""
    if SCENARIO == "json-schema-2020-12-preservation":
        [focal] = [tool for tool in tools.registry.values() if not tool.name.endswith("json_schema_echo")]
        return [(f"{SERVER}__json_schema_echo", {"schema": focal.input_schema})]
    if "toolCalls" in WANTED:
        return [(f"{SERVER}__{call['name']}", call["arguments"]) for call in WANTED["toolCalls"]]
    return [(tool.name, _samples(tool.input_schema)) for tool in tools.registry.values()]


def _samples(schema: Any) -> dict[str, Any]:
    return {name: sample(of) for name, of in schema.get("properties", {}).items()}


async def main(url: str) -> None:
    """Make the calls, and print what came of each for whoever reads the suite's logs."""
    from toolcrib import Runtime  # noqa: PLC0415 -- who waits for a turn needs no memory

    with TemporaryDirectory() as folder:
        # JSON is YAML.
        Path(folder, "toolcrib.yaml").write_text(json.dumps(project(url)), encoding="utf-8")
        async with Runtime.open(folder) as tools:
            for problem in tools.problems:
                print(problem)
            for name, arguments in calls(tools):
                result = await tools.call(name, arguments)
                print(name, result.outcome, result.message or result.value)


@contextmanager
def turn() -> Iterator[None]:
    """Wait until few others work: of a whole requirement set the suite starts all clients at once."""
    with Path(os.environ["HOME"], f"turn-{os.getpid() % AT_ONCE}").open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


with turn():
    asyncio.run(main(sys.argv[-1]))
