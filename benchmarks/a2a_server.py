"""Calls served over A2A by toolcrib and by an executor of the SDK that does nothing, to the same client.

python benchmarks/a2a_server.py [--rounds 40]
"""

from __future__ import annotations

import argparse
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

from rounds import Round, Row, interleaved, line

ROUNDS = 40
GOAL = 1.2
CALLS = 10
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
def noop() -> Iterator[int]:
    """The port of the SDK's agent."""
    program = Path(__file__).parent / "peers" / "a2a_noop.py"
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield int(process.stdout.readline().rpartition(":")[2])
        process.stdin.close()


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


def rows(versions: dict[str, str] | None = None, rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    if versions is not None:
        from importlib.metadata import version  # noqa: PLC0415 -- only for the report

        versions["a2a-sdk"] = version("a2a-sdk")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        contenders = {
            "ours": calls(stack.enter_context(served(folder))),
            "sdk": calls(stack.enter_context(noop())),
        }
        for each in contenders.values():
            each()
        times = interleaved(contenders, rounds)
        measure = f"{CALLS} tool calls served over A2A, JSON-RPC"
        yield Row(measure, "SDK, an executor that does nothing", times["ours"], times["sdk"], GOAL)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    for row in rows(rounds=parser.parse_args().rounds):
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
