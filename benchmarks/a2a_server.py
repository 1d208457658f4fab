"""Calls served over A2A by toolcrib and by an executor of the SDK that does nothing, to the same client.

python benchmarks/a2a_server.py [--rounds 1500]
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from peers import program
from rounds import Round, Row, interleaved, print_rows

ROUNDS = 1_500
"""Many short rounds: what else the machine does outweighs a difference of some per cent in longer ones."""

GOAL = 1.2
CALLS = 2
WARM = 50
EXTENSION = "urn:toolcrib:a2a:tool-descriptors:v1"
ARGUMENTS = {"a": 2, "b": 3}

TOOL = """
name: add
input_schema:
  type: object
  properties: {a: {type: integer}, b: {type: integer}}
  required: [a, b]
output_schema:
  type: object
  properties: {sum: {type: integer}}
  required: [sum]
mock: {result: {sum: "{{ args.a + args.b }}"}}
"""


@contextmanager
def served(folder: str) -> Iterator[int]:
    """The port of toolcrib's agent."""
    (Path(folder) / "add.tool.yaml").write_text(TOOL, encoding="utf-8")
    command = [sys.executable, "-m", "toolcrib", "serve", "a2a", folder, "--port", "0", "--no-watch"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield int(process.stderr.readline().partition("/a2a")[0].rpartition(":")[2])
        process.terminate()


def calls(port: int) -> Round:
    """A round of calls over one connection, with the smallest client."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"content-type": "application/json", "a2a-version": "1.0", "a2a-extensions": EXTENSION}

    def round_() -> float:
        bodies = [json.dumps(request()) for _ in range(CALLS)]
        began = time.perf_counter()
        for body in bodies:
            connection.request("POST", "/a2a", body, headers)
            task = json.loads(connection.getresponse().read())["result"]["task"]
            assert task["artifacts"][0]["parts"][0]["data"] == {"sum": 5.0}, task
        return time.perf_counter() - began

    return round_


def request() -> dict[str, Any]:
    """A call, as the extension describes it."""
    call = {"_tool_call": {"name": "add", "params": ARGUMENTS}}
    message = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "parts": [{"data": ARGUMENTS, "mediaType": "application/json"}],
        "metadata": call,
        "extensions": [EXTENSION],
    }
    params = {"message": message, "metadata": call}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}


def sdk_version(versions: dict[str, str] | None) -> None:
    """Add the version of the SDK."""
    if versions is not None:
        from importlib.metadata import version  # noqa: PLC0415 -- only for the report

        versions["a2a-sdk"] = version("a2a-sdk")


def rows(versions: dict[str, str] | None = None, rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    sdk_version(versions)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        contenders = {
            "ours": calls(stack.enter_context(served(folder))),
            "sdk": calls(int(stack.enter_context(program("a2a_noop.py")).rpartition(":")[2])),
        }
        for each in contenders.values():
            for _ in range(WARM):
                each()
        times = interleaved(contenders, rounds, collect_every=50)
        measure = f"{CALLS} tool calls served over A2A, JSON-RPC"
        yield Row(measure, "SDK, an executor that does nothing", times["ours"], times["sdk"], GOAL)


if __name__ == "__main__":
    print_rows(lambda rounds: rows(rounds=rounds), __doc__, ROUNDS)
