"""Mode `exec`: programs that run the calls, once for each call or for as long as the runtime.

No shell is involved: each element of `command` is one argument of the program. Programs run in a sandbox unless the project
writes `sandbox: none`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import Descriptor, Schema
from toolcrib.core.process_tree import ORPHAN_REAPER
from toolcrib.security.requirements import Requirements

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server
    from toolcrib.executors.exec.bound_program import BoundProgram
    from toolcrib.executors.exec.running_program import RunningPrograms
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need
    from toolcrib.servers.environment import NetworkEnvironment

__all__ = ["ExecExecutor"]

MODE = "exec"


@cache
def _block_schema() -> Schema:
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class ExecExecutor:
    """Executor that runs programs.

    Attributes:
        world: The secrets, the sandbox and the paths of programs; set by the runtime before a tool is bound.
    """

    def __init__(self) -> None:
        self.world: NetworkEnvironment | None = None
        self._running: dict[str, RunningPrograms] = {}
        self._retired: list[RunningPrograms] = []
        self._ending: set[asyncio.Task[None]] = set()
        # Those of the programs of calls begin with it, so that the orphan reaper does not have to know each of them.
        self._mark = os.urandom(12).hex()

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `exec` block."""
        return _block_schema()

    @property
    def keeps_nothing(self) -> bool:
        """Whether no program runs, and none has run for a call."""
        if self._ending or ORPHAN_REAPER.has(self._mark):
            return False
        return all(each.empty for each in (*self._running.values(), *self._retired))

    def needs(self, descriptor: Descriptor, workspace: Workspace) -> Iterable[Need]:
        """The program with its files, and the variables that are resolved for it."""
        # Deferred, like the imports below: a command that only lists tools must start fast.
        from toolcrib.security.trust_needs import USES_NETWORK, needs_of_program  # noqa: PLC0415
        from toolcrib.servers.sandbox_grants import folder_of  # noqa: PLC0415

        block: Any = descriptor.bindings[MODE]
        program = _as_server(descriptor, folder_of(descriptor, MODE, workspace.base))
        paths = block.get("paths", {})
        details = [f"{purpose}s {path}" for purpose in ("read", "write") for path in paths.get(purpose, ())]
        details += [USES_NETWORK] if block.get("network") else []
        return needs_of_program(
            program,
            workspace.folder,
            user=f"tool {descriptor.name}",
            place=f"{descriptor.origin.source}:{descriptor.origin.line}",
            details=details,
        )

    def requirements(self, descriptor: Descriptor, _server: Server | None) -> Requirements:
        """The capability `process`, those of its paths and network, the program, and its variables."""
        from toolcrib.security.trust_needs import look_ups  # noqa: PLC0415 -- as above

        block: Any = descriptor.bindings[MODE]
        paths = block.get("paths", {})
        capabilities = ["process"]
        capabilities += ["network"] if block.get("network") else []
        capabilities += [f"file_{purpose}" for purpose in ("read", "write") if paths.get(purpose)]
        written = [block["command"], block.get("env", {}), block.get("cwd", ""), paths]
        names = [each.name for each in look_ups(written) if each.source == "env"]
        return Requirements(tuple(capabilities), (), (str(block["command"][0]),), tuple(dict.fromkeys(names)))

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Check the expressions, and keys that do not fit together. No variable is resolved."""
        from toolcrib.executors.exec.command import check_block  # noqa: PLC0415 -- as above

        return check_block(descriptor)

    def lacks(self, descriptor: Descriptor, _base: str) -> str:
        """Which variable, program, folder or granted path, or whether the sandbox, is missing; empty if nothing is known to be."""
        from toolcrib.executors.exec.command import missing_part  # noqa: PLC0415 -- as above

        return missing_part(descriptor, self.world or _nothing_special())

    def bind(self, descriptor: Descriptor) -> BoundProgram:
        """Compile the block, resolve its variables, and find the program and the sandbox. Nothing is started.

        Raises:
            DocumentError: The block has an error, which `check` reports.
            NotReady: A variable, the program, a folder or the sandbox is missing, or a limit cannot be measured.
        """
        from toolcrib.executors.exec.bound_program import BoundProgram  # noqa: PLC0415 -- as above
        from toolcrib.executors.exec.command import compile_command  # noqa: PLC0415 -- as above

        world = self.world or _nothing_special()
        problems = [each for each in self.check(descriptor) if each.severity == "error"]
        if problems:
            raise DocumentError(problems)
        launch = compile_command(descriptor, world)
        running = None
        block: Any = descriptor.bindings[MODE]
        if block.get("lifetime") == "runtime":
            running = self._programs(descriptor, launch, world)
        return BoundProgram(descriptor, launch, world, running, self._ending, mark=self._mark)

    def _programs(self, descriptor: Descriptor, launch: Any, world: NetworkEnvironment) -> RunningPrograms:
        from toolcrib.executors.exec.running_program import RunningPrograms  # noqa: PLC0415 -- as above

        # A tool that was changed is bound again; calls of the old version end first.
        self.retire(descriptor.name)
        made = self._running[descriptor.name] = RunningPrograms(descriptor, launch, world)
        return made

    def retire(self, tool: str) -> None:
        """Let the program of a tool end, once its calls have ended."""
        old = self._running.pop(tool, None)
        if old is not None:
            old.retire()
            self._retired = [*(each for each in self._retired if not each.empty), old]

    async def aclose(self) -> None:
        """End all programs."""
        everything = [*self._running.values(), *self._retired]
        self._running, self._retired = {}, []
        await asyncio.gather(*(each.aclose() for each in everything))
        while self._ending:
            await asyncio.wait(self._ending)
        ORPHAN_REAPER.remove(self._mark)


def _as_server(descriptor: Descriptor, folder: str) -> Server:
    """The program in the form in which trust shows servers."""
    from toolcrib.core.server_config import Server  # noqa: PLC0415 -- as above

    block: Any = descriptor.bindings[MODE]
    command, *args = block["command"]
    return Server(
        name=descriptor.name,
        command=command,
        args=tuple(args),
        env=block.get("env", {}),
        cwd=block.get("cwd", ""),
        root=folder,
    )


@cache
def _nothing_special() -> NetworkEnvironment:
    from toolcrib.servers.environment import NetworkEnvironment  # noqa: PLC0415 -- only without an engine

    return NetworkEnvironment.ordinary()
