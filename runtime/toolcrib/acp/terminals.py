"""The terminals of an agent: commands that it runs below the roots, with their output."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acp.exceptions import RequestError

from toolcrib.acp.files import AgentFiles
from toolcrib.core.child_process import ChildProcess, inherited_environment, signal_name
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND

MOST_TERMINALS: Final = 64
"""Maximum number of terminals that are open at once."""

MOST_OUTPUT: Final = 1 << 20
"""Maximum number of bytes of output that are kept, also if the agent wants more."""

_LAST_OUTPUT: Final = 0.5
"""Seconds to wait for the last output of a command that has exited, which a descendant may keep open."""


class AgentTerminal:
    """A command and its output.

    Args:
        most: Number of bytes of output that are kept; the oldest are dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._output = bytearray()
        self._truncated = False
        self.child = ChildProcess(self._heard, lambda: None)

    def _heard(self, data: bytes) -> None:
        self._output += data
        # Not at every chunk: removing bytes from the front moves all others.
        if len(self._output) > 2 * self._most + 65536:
            self._drop()

    def _drop(self) -> None:
        more = len(self._output) - self._most
        if more > 0:
            self._truncated = True
            del self._output[:more]
            # The protocol truncates at the beginning of a character.
            while self._output and self._output[0] & 0xC0 == 0x80:
                del self._output[0]

    def output(self) -> dict[str, Any]:
        """The result of `terminal/output`."""
        self._drop()
        told: dict[str, Any] = {
            "output": self._output.decode("utf-8", "replace"),
            "truncated": self._truncated,
        }
        if self.child.code is not None:
            told["exitStatus"] = self.exit_status()
        return told

    def exit_status(self) -> dict[str, Any]:
        """How the command ended."""
        code = self.child.code or 0
        return {"exitCode": code} if code >= 0 else {"signal": signal_name(-code)}

    async def wait(self) -> dict[str, Any]:
        """Wait until the command has ended, and return how."""
        await self.child.exited()
        await self.child.gone(_LAST_OUTPUT)
        return self.exit_status()

    async def kill(self) -> None:
        """End the command with everything that it has started; its output stays."""
        self.child.kill()
        await self.wait()


class AgentTerminals:
    """The terminals of one agent.

    Args:
        files: The folders in which commands may run.
    """

    def __init__(self, files: AgentFiles) -> None:
        self._files = files
        self._terminals: dict[str, AgentTerminal] = {}
        self._opened = 0

    async def create(
        self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str, limit: int | None
    ) -> str:
        """Start a command, and return the ID of its terminal.

        Args:
            command: The program; without arguments, it may also be a line for the shell.
            args: Its arguments.
            env: Its variables, in addition to the few that every program gets.
            cwd: Its working directory, absolute.
            limit: Maximum number of bytes of output that are kept.

        Raises:
            RequestError: It cannot be started.
        """
        if len(self._terminals) >= MOST_TERMINALS:
            raise RequestError(
                INVALID_REQUEST, f"there are {MOST_TERMINALS} terminals; release one with `terminal/release`"
            )
        folder = self._files.check_folder(cwd)
        variables = {**inherited_environment(os.environ), **env}
        program, arguments = _program_of(command, args, folder, variables.get("PATH", os.defpath))
        terminal = AgentTerminal(min(MOST_OUTPUT if limit is None else limit, MOST_OUTPUT))
        try:
            await terminal.child.start(
                program, arguments, env=variables, cwd=folder, stdin=False, joins_stderr=True
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise RequestError(INTERNAL_ERROR, f"cannot start `{shorten(command)}`: {why}") from None
        self._opened += 1
        id_ = f"terminal-{self._opened}"
        self._terminals[id_] = terminal
        return id_

    def find(self, id_: str) -> AgentTerminal:
        """The terminal with an ID.

        Raises:
            RequestError: There is none, or it was released.
        """
        terminal = self._terminals.get(id_)
        if terminal is None:
            raise RequestError(NOT_FOUND, f"unknown terminal `{shorten(id_)}`", {"terminalId": id_})
        return terminal

    async def release(self, id_: str) -> None:
        """End a command with everything that it has started, and forget its terminal."""
        terminal = self.find(id_)
        del self._terminals[id_]
        terminal.child.hurry()
        await terminal.child.end()

    async def close(self) -> None:
        """Release all terminals."""
        for id_ in [*self._terminals]:
            await self.release(id_)


def _program_of(command: str, args: Sequence[str], cwd: str, folders: str) -> tuple[str, list[str]]:
    """The program of a command, and its arguments.

    Raises:
        RequestError: It does not exist.
    """
    if "\0" in command or any("\0" in each for each in args):
        raise RequestError(INVALID_PARAMS, "the command contains a null character")
    found = os.path.join(cwd, command) if os.sep in command else shutil.which(command, path=folders)
    if found is not None and os.path.isfile(found) and os.access(found, os.X_OK):
        return found, [*args]
    # Agents also send whole lines for a shell, as in `npm test 2>&1 | tail`.
    shell = shutil.which("sh", path=folders)
    if not args and shell is not None and command.strip() != "" and len(command.split()) > 1:
        return shell, ["-c", command]
    raise RequestError(NOT_FOUND, f"the program `{shorten(command)}` does not exist")
