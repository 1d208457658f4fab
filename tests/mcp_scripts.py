"""An MCP server over stdio that behaves as its arguments say, well or badly. Standard library only.

    python tests/mcp_scripts.py                        # a good server of the handshake era with some tools
    python tests/mcp_scripts.py banner=3 die=3         # three lines of text first; exits with 3 in the middle of a call

Tests name it with `scripted("banner=3", "die=3")`. Its tools answer with one text:

    echo     its arguments, as JSON
    environ  its environment, as JSON
    kin      the numbers of the processes that it started, as JSON

What can be asked for, any number of them (`=n` is a number; a size in bytes):

    At the start, before anything is read:
    banner=n       writes n lines of text to stdout
    stderr=n       writes n bytes to stderr, the last line is `the last words`
    exit=code      says `can't start` on stderr, exits
    child          starts a process in its own group
    stray          starts a process in a session of its own
    deaf           never reads
    log=file       appends every line that it reads to a file

    While it works:
    silent         answers nothing
    silent-calls   answers no tools/call
    instead=text   the answer to tools/call is these characters and a newline; @ID@ becomes the id of the request
    wrong-id       answers tools/call with another id
    bytes          the answer to tools/call holds bytes that are no UTF-8
    crlf           ends lines with CR LF
    long=n         the answer to tools/call has n bytes
    deep=n         the answer to tools/call holds lists in lists, n levels
    flood          answers tools/call with bytes without end and without a newline
    garbage=n      writes n lines that are no messages before it answers tools/call
    die=code       exits in the middle of tools/call
    kill           ends itself with SIGKILL in the middle of tools/call
    half           writes half of the answer to tools/call, and exits
    hold           as die=3, and a process that it started holds its stdout
    hush           closes its stdout in the middle of tools/call, and runs on
    say            answers no subscription and has the tools `hold`, which answers nothing, and `say`, which writes its `lines` and answers nothing;
                   a line is a text and the length of its @PAD@. The notification `notifications/say` does the same

    At the end:
    stay           does not end when its stdin ends
    ignore-term    ignores SIGTERM
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def scripted(*behaviours: str, name: str = "scripted", **fields: Any) -> Any:
    """The `Server` that is this script with these arguments; `fields` are other fields of it."""
    from toolcrib.core.server_config import Server  # noqa: PLC0415 -- the script itself needs none of it

    return Server(name, command=sys.executable, args=("-S", __file__, *behaviours), **fields)


class Script:
    """One run of the script."""

    def __init__(self, arguments: list[str]) -> None:
        pairs = [argument.partition("=") for argument in arguments]
        self.asked = {name: value for name, _, value in pairs}
        self.kin: list[int] = []
        self.end = b"\r\n" if "crlf" in self.asked else b"\n"

    def number(self, name: str) -> int:
        return int(self.asked.get(name) or 0)

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def say(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + self.end)

    def say_lines(self, lines: list[Any]) -> None:
        for text, padding in lines:
            self.write(text.replace("@PAD@", "x" * padding).encode() + self.end)

    def spawn(self, **how: Any) -> None:
        streams = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr") if name not in how}
        self.kin.append(subprocess.Popen(SLEEPER, **{**streams, **how}).pid)

    def begin(self) -> None:
        if "ignore-term" in self.asked:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for index in range(self.number("banner")):
            self.write(b"Welcome, line %d" % index + self.end)
        if "stderr" in self.asked:
            sys.stderr.write("x" * self.number("stderr") + "\nthe last words\n")
            sys.stderr.flush()
        if "exit" in self.asked:
            sys.stderr.write("can't start\n")
            raise SystemExit(self.number("exit"))
        if "child" in self.asked:
            self.spawn()
        if "stray" in self.asked:
            self.spawn(start_new_session=True)
        if "deaf" in self.asked:
            signal.pause()

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            if "log" in self.asked:
                with Path(self.asked["log"]).open("ab") as file:
                    file.write(line)
            message = json.loads(line)
            if message.get("method") == "notifications/say":
                self.say_lines(message["params"]["lines"])
            if "id" in message and "method" in message and "silent" not in self.asked:
                self.answer(message)
        while "stay" in self.asked:
            signal.pause()

    def answer(self, request: dict[str, Any]) -> None:
        method, params = request["method"], request.get("params") or {}
        if method == "initialize":
            told = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            self.say(
                {"id": request["id"], "result": {**told, "serverInfo": {"name": "scripted", "version": "1"}}}
            )
        elif method == "tools/list":
            names = ("echo", "environ", "kin", *(("hold", "say") if "say" in self.asked else ()))
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
            self.say({"id": request["id"], "result": {"tools": tools}})
        elif method == "subscriptions/listen" and "say" in self.asked:
            pass
        elif method == "ping":
            self.say({"id": request["id"], "result": {}})
        elif method == "tools/call":
            self.call(request["id"], params["name"], params.get("arguments"))
        else:
            self.say({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})

    def call(self, number: Any, tool: str, arguments: Any) -> None:
        if "say" in self.asked and tool in ("hold", "say"):
            self.say_lines((arguments or {}).get("lines", []))
            return
        tools = {"echo": arguments or {}, "environ": dict(os.environ), "kin": self.kin}
        if tool not in tools:
            self.say({"id": number, "error": {"code": -32602, "message": f"Unknown tool: {tool}"}})
            return
        if not self.misbehaves(number):
            self.say(
                {"id": number, "result": {"content": [{"type": "text", "text": json.dumps(tools[tool])}]}}
            )

    def misbehaves(self, number: Any) -> bool:
        """Whether something happens in place of the good answer."""
        asked = self.asked
        for index in range(self.number("garbage")):
            self.write(b"line %d of a log" % index + self.end)
        if "die" in asked:
            os._exit(self.number("die"))
        if "kill" in asked:
            os.kill(os.getpid(), signal.SIGKILL)
        if "half" in asked:
            self.write(b'{"jsonrpc": "2.0", "id": %d, "resu' % number)
            os._exit(0)
        if "hold" in asked:
            self.spawn(stdout=None)
            os._exit(3)
        if "hush" in asked:
            os.close(1)
            signal.pause()
        while "flood" in asked:
            self.write(b"x" * 65536)
        self.odd(number)
        return not asked.keys().isdisjoint({"silent-calls", "instead", "wrong-id", "bytes", "long", "deep"})

    def odd(self, number: Any) -> None:
        """Answers that are none."""
        asked, start = self.asked, b'{"jsonrpc": "2.0", "id": %d, "result": ' % number
        text = start + b'{"content": [{"type": "text", "text": "%s"}]}}' + self.end
        if "instead" in asked:
            self.write(asked["instead"].replace("@ID@", str(number)).encode() + self.end)
        if "wrong-id" in asked:
            self.say({"id": number + 1000, "result": {"content": []}})
        if "bytes" in asked:
            self.write(text % b"caf\xe9 \xff\xfe")
        if "long" in asked:
            self.write(text % (b"x" * (self.number("long") - len(text) + 2)))
        if "deep" in asked:
            levels = self.number("deep")
            self.write(start + b'{"content": ' + b"[" * levels + b"]" * levels + b"}}" + self.end)


if __name__ == "__main__":
    script = Script(sys.argv[1:])
    script.begin()
    script.serve()
