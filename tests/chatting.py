"""A provider that `toolcrib chat` finds as an installed distribution, and a terminal to talk at."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from commands import toolcrib_command

PROVIDER = '''
"""Answers by the last text of the user, one piece at a time."""

import asyncio
from toolcrib.provider import CallDelta, Finish, ProviderError, ReasoningDelta, TextDelta, Tokens


class Echo:
    dialect = "plain"

    def __init__(self, *, model="", base_url="", api_key=None, world=None, clock=None):
        self.model = model

    async def respond(self, request):
        said = [message for message in request.messages if message.role == "user"][-1].text
        told = request.messages[-1].role == "tool"
        word, _, rest = said.partition(" ")
        if word == "fail":
            raise ProviderError("the model is\\nnot well", code="overloaded", retryable=True)
        if word == "wait":
            yield TextDelta("I am waiting")
            await asyncio.Event().wait()
        if word == "call" and not told:
            name, _, arguments = rest.partition(" ")
            yield ReasoningDelta("Let me see.")
            yield TextDelta("One moment.")
            yield CallDelta(0, "c1", name, arguments or "{}")
            yield Finish("tool_calls", Tokens(10, 5), self.model)
            return
        if word == "twice" and not told:
            yield CallDelta(0, "a", rest, '{"id": "1"}')
            yield CallDelta(1, "b", rest, '{"id": "2"}')
            yield Finish("tool_calls", Tokens(10, 5), self.model)
            return
        if word == "system":
            first = request.messages[0]
            yield TextDelta(first.text if first.role == "system" else "none")
        elif word == "settings":
            yield TextDelta(str(dict(request.settings)))
        elif word == "tools":
            yield TextDelta(",".join(each.tool for each in request.tools))
        elif word == "count":
            yield TextDelta(str(len(request.messages)))
        else:
            for piece in (said[:2], said[2:]):
                yield TextDelta(piece)
        yield Finish("length" if word == "cut" else "refused" if word == "refuse" else "stop", Tokens(10, 5), self.model)

    async def aclose(self):
        print("closed", end="")
'''


def install(folder: Path) -> Path:
    """Install the provider `echo` into a folder; returns the folder, which is to be on the path."""
    there = folder / "installed"
    info = there / "echo_provider-1.0.dist-info"
    info.mkdir(parents=True)
    (there / "echo_provider.py").write_text(PROVIDER.replace('print("closed", end="")', "pass"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-provider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolcrib.providers]\necho = echo_provider:Echo\n")
    return there


class Talk:
    """`toolcrib chat`, or another verb, at a terminal of its own, to be used as a context.

    Attributes:
        screen: All that it has shown.
    """

    def __init__(
        self,
        installed: Path,
        folder: Path,
        *words: str,
        verb: str = "chat",
        variables: Mapping[str, str] = {},
    ) -> None:
        self.screen = ""
        self._master, slave = pty.openpty()
        # Not what tests of this process have put on its path, such as distributions that are broken on purpose.
        environment = {**os.environ, "PYTHONPATH": str(installed), "TERM": "dumb", "NO_COLOR": "1"}
        environment |= variables
        self._process = subprocess.Popen(
            toolcrib_command(verb, *words),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def until(self, text: str, sending: int | None = None) -> str:
        """Read on until a text is on the screen; gives what came with it.

        A signal that is `sending` goes out again when nothing comes for a second: one that arrives just as the prompt
        is shown is not heard before a key is pressed.
        """
        since = len(self.screen)
        ends = time.monotonic() + 60
        if sending is not None:
            self._process.send_signal(sending)
        while text not in self.screen[since:]:
            ready, _, _ = select.select([self._master], [], [], 1)
            assert ready or time.monotonic() < ends, f"waited for {text!r}, and there is {self.screen!r}"
            if not ready:
                if sending is not None:
                    self._process.send_signal(sending)
                continue
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                piece = b""
            assert piece, f"it ended before {text!r}: {self.screen!r}"
            self.screen += piece.decode()
        return self.screen[since:]

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._master, f"{text}\n".encode())

    def end_of_input(self) -> None:
        """Ctrl-D."""
        os.write(self._master, b"\x04")

    def signal(self, number: int = signal.SIGINT) -> None:
        """Ctrl-C, or another signal."""
        self._process.send_signal(number)

    def rest(self) -> str:
        """All that it has shown, with what was not read before."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                self.screen += os.read(self._master, 65536).decode()
            except OSError:  # the other end is closed
                break
        return self.screen

    def ended(self) -> int:
        """Wait for the end, and give the exit code."""
        return self._process.wait(timeout=60)
