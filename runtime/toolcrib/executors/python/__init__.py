"""Mode `python`: tools that Python functions and classes run.

A descriptor names them (`python: {call: "shop.tools:refund"}`), or a program adds them (`Runtime.add`). The code of a
project is imported only if the project is trusted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import ConfigurationError, DocumentError, NotReady, Problem
from toolcrib.core.hooks import import_folders, load_hook
from toolcrib.core.model import JSON, NOTHING, Descriptor, Schema
from toolcrib.core.pointers import file_and_line
from toolcrib.core.process_limits import ProcessLimits, check_measurable
from toolcrib.core.protocols import BoundTool
from toolcrib.core.text import compact
from toolcrib.executors.python.declarations import (
    MODE,
    DeclaredBlock,
    Implementation,
    Tool,
    implementation_of,
    unwritten_schema,
)
from toolcrib.executors.python.factories import created_tool, is_factory
from toolcrib.executors.python.instances import ResourceTable
from toolcrib.security.path_access import PURPOSES
from toolcrib.security.requirements import Requirements
from toolcrib.security.trust import Workspace
from toolcrib.security.trust_needs import Need, need_of_import
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from toolcrib.core.sandbox import Sandbox
    from toolcrib.core.server_config import Server
    from toolcrib.executors.python.workers import WorkerSettings

__all__ = ["PythonExecutor"]


@cache
def _block_schema() -> Schema:
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class PythonExecutor:
    """Executor that calls Python functions and instances of `toolcrib.Tool`.

    Attributes:
        world: What the modes may reach, and which code may be imported; set by the runtime.
        provided: The dependencies of factories and classes, by name; set by the runtime.
    """

    reaches_out = True

    def __init__(self) -> None:
        self.world: NetworkEnvironment | None = None
        self.provided: Mapping[str, Any] = NOTHING
        self._resources = ResourceTable()

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `python` block."""
        return _block_schema()

    @property
    def keeps_nothing(self) -> bool:
        """Whether there is no instance, worker or connection to close."""
        return self._resources.empty

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Check what needs no import: the code may be imported only after it is trusted."""
        block: Any = descriptor.bindings[MODE]
        if block.get("worker") == "process":
            return ()
        problems: list[Problem] = []
        for name in ProcessLimits._fields:
            if f"limits.{name}" in descriptor.origin.written:
                message = f"`limits.{name}` has no effect without `worker: process`"
                hint = f"add `worker: process`, or remove `limits.{name}`"
                problems.append(
                    Problem(
                        code="needless_key",
                        message=message,
                        pointer=f"/{MODE}",
                        hint=hint,
                        severity="warning",
                    )
                )
        for key in ("paths", "network"):
            if key in block:
                message = "without `worker: process`, the code has the access of this program"
                hint = f"add `worker: process`, or remove `{key}`"
                pointer = f"/{MODE}/{key}"
                problems.append(
                    Problem(code="wrong_combination", message=message, pointer=pointer, hint=hint)
                )
        return problems

    def needs(self, descriptor: Descriptor, workspace: Workspace) -> Iterator[Need]:
        """The code that a tool imports."""
        block: Any = descriptor.bindings[MODE]
        place = f"{descriptor.origin.source}:{descriptor.origin.line}"
        user = f"tool {descriptor.name}"
        yield need_of_import(
            block["call"],
            "tool",
            workspace.folder,
            user,
            place,
            packs=_packs_of(descriptor, workspace.base),
        )

    def requirements(self, descriptor: Descriptor, _server: Server | None) -> Requirements:
        """The capabilities of its paths and network: a block only imports code, and what that code uses must be declared."""
        block: Any = descriptor.bindings[MODE]
        paths = block.get("paths", {})
        capabilities = ["network"] if block.get("network") else []
        capabilities += [f"file_{purpose}" for purpose in ("read", "write") if paths.get(purpose)]
        return Requirements(tuple(capabilities), opens=True)

    def completes(self, descriptor: Descriptor) -> bool:
        """Whether the function provides the schemas of a tool, so that they are known once it is bound."""
        return unwritten_schema(descriptor) and not isinstance(descriptor.bindings[MODE], DeclaredBlock)

    def plays_examples(self, descriptor: Descriptor) -> bool:
        """Whether examples are played: unless the annotations allow destructive effects."""
        annotated = "annotations" in descriptor.origin.written
        return descriptor.annotations.read_only or not (annotated and descriptor.annotations.destructive)

    def lacks(self, descriptor: Descriptor, _base: str) -> str:
        """Which variable or granted path of a worker, or whether its sandbox, is missing; empty if nothing is known to be."""
        block: Any = descriptor.bindings[MODE]
        world = self.world or _nothing_special()
        if block.get("worker") != "process" or not world.trust.trusts_settings():
            return ""
        # Deferred: few tools have workers.
        from toolcrib.security.secrets import missing_variables, not_ready  # noqa: PLC0415
        from toolcrib.servers.sandbox_grants import literal_paths  # noqa: PLC0415

        paths = block.get("paths", {})
        missing = missing_variables(paths, f"/{MODE}/paths", world.secrets)
        if missing:
            return str(not_ready(descriptor, missing))
        try:
            self._sandbox_of(descriptor, {**block, "paths": literal_paths(paths)} if paths else block, ())
        except NotReady as error:
            return str(error)
        return ""

    def required_variables(self, descriptor: Descriptor, _server: Server | None) -> tuple[str, ...] | None:
        """None for a worker process, whose sandbox and granted paths must exist, too; none for other tools."""
        block: Any = descriptor.bindings[MODE]
        return None if block.get("worker") == "process" else ()

    def bind(self, descriptor: Descriptor) -> BoundTool:
        """Import the function, and check that the descriptor fits it. A worker process imports its function itself.

        Raises:
            NotReady: The function cannot be imported, its types cannot be used, a dependency is not provided, or the
                extra `typed` is missing.
            DocumentError: The descriptor does not fit the function.
        """
        world = self.world or _nothing_special()
        block: Any = descriptor.bindings[MODE]
        if block.get("worker") == "process":
            from toolcrib.executors.python.workers import BoundWorker  # noqa: PLC0415 -- few tools have workers

            return BoundWorker(*self._with_worker(descriptor, block, world), self._resources, world)
        # Deferred: listing tools does not need it.
        from toolcrib.executors.python.bound_function import BoundFunction  # noqa: PLC0415

        made = self._checked(descriptor, block)
        descriptor = _completed(descriptor, made)
        made = made.with_provided(self.provided, descriptor.name)
        return BoundFunction(descriptor, made, block, self._resources, world)

    def _checked(self, descriptor: Descriptor, block: Mapping[str, Any]) -> Implementation:
        """The function of a descriptor, which fits it."""
        if isinstance(block, DeclaredBlock):
            return block.implementation
        made = self._imported(descriptor, block["call"])
        schema = None if unwritten_schema(descriptor) else descriptor.input_schema
        problems = [*made.block_problems(block), *made.schema_problems(schema)]
        if problems:
            raise DocumentError(problems)
        return made

    def _imported(self, descriptor: Descriptor, call: str) -> Implementation:
        place = descriptor.origin.place(f"/{MODE}/call")
        folder, packs = self._folders(descriptor)
        target: Any = load_hook(call, place, folder, packs=packs)
        try:
            if is_factory(target):
                target = created_tool(target, self.provided)
            return implementation_of(target, untyped=not unwritten_schema(descriptor))
        except ConfigurationError as error:
            raise NotReady(error.message, code=error.code, hint=error.hint) from None

    def _folders(self, descriptor: Descriptor) -> tuple[str, tuple[str, ...]]:
        """The folder of the trusted project, and those of the packs, whose code a tool may name."""
        if self.world is None:
            return "", ()
        trust = self.world.trust
        folder = trust.folder_of(descriptor.origin.source)
        return folder, _packs_of(descriptor, trust.contents.base) if folder else ()

    def _with_worker(
        self, descriptor: Descriptor, block: Mapping[str, Any], world: NetworkEnvironment
    ) -> tuple[Descriptor, WorkerSettings]:
        from toolcrib.executors.python.workers import describe  # noqa: PLC0415 -- as above

        check_measurable(descriptor.limits)
        settings = self._worker_settings(descriptor, block)
        if not isinstance(block, DeclaredBlock) and unwritten_schema(descriptor):
            found = describe(settings, world.secrets.hide_in_text, descriptor.timeout)
            if found.problems:
                raise DocumentError(found.problems)
            descriptor = _with_schemas(descriptor, found.input_schema, found.output_schema, found.text)
        return descriptor, settings

    def _worker_settings(self, descriptor: Descriptor, block: Mapping[str, Any]) -> WorkerSettings:
        from toolcrib.executors.python.workers import WorkerSettings  # noqa: PLC0415 -- as above

        own = not unwritten_schema(descriptor)
        folder, packs = self._folders(descriptor)
        return WorkerSettings(
            call=block["call"],
            block=compact(dict(block)),
            schema=compact(descriptor.input_schema) if own else "",
            folders=tuple(each for each in (*packs, folder) if each),
            output_size=descriptor.limits.output_size,
            limits=ProcessLimits.of(descriptor.limits),
            sandbox=self._sandbox_of(descriptor, block, [*packs, folder]),
            most=descriptor.limits.concurrency,
            paths=(self.world or _nothing_special()).paths.fields,
        )

    def _sandbox_of(
        self, descriptor: Descriptor, block: Mapping[str, Any], folders: Sequence[str]
    ) -> Sandbox | None:
        """The sandbox of a worker; None if nothing restricts its access.

        Raises:
            NotReady: See `sandbox_of`.
        """
        world = self.world or _nothing_special()
        declares = not {"capabilities", "permissions"}.isdisjoint(descriptor.origin.written)
        granted = {purpose: world.paths.granted(purpose) for purpose in PURPOSES}
        restricted = (
            declares
            or "paths" in block
            or "network" in block
            or any(each is not None for each in granted.values())
        )
        if not (restricted or world.sandbox == "bubblewrap"):
            return None
        # Deferred: few workers have restricted access.
        from toolcrib.servers.sandbox_grants import declared_paths, sandbox_of  # noqa: PLC0415

        base = world.trust.contents.base
        paths = declared_paths(descriptor, block.get("paths", {}), MODE, base, world.secrets)
        if declares and "paths" not in block:
            # A capability without paths is that of all files, unless the project grants only some.
            for purpose in PURPOSES:
                if f"file_{purpose}" in descriptor.capabilities and granted[purpose] is None:
                    paths[purpose] = ["/"]
        return sandbox_of(
            descriptor.name,
            world,
            read=paths["read"],
            write=paths["write"],
            network=block.get("network", declares and "network" in descriptor.capabilities),
            code=[sys.prefix, sys.base_prefix, *import_folders([each for each in folders if each])],
        )

    def with_config(
        self, descriptor: Descriptor, config: dict[str, JSON], *, check: bool = True
    ) -> Descriptor:
        """A tool with another config.

        Args:
            descriptor: A tool in this mode.
            config: The config.
            check: Whether the config must fit its own type. The code of the tool must be trusted then.

        Raises:
            NotReady: The function cannot be imported.
            ConfigurationError: The program created the instance itself.
            DocumentError: The config does not match its type; all problems are listed.
        """
        block: Any = descriptor.bindings[MODE]
        changed: dict[str, Any] = {**block, "config": config}
        if isinstance(block, DeclaredBlock):
            if isinstance(block.implementation.target, Tool):
                message = f"cannot configure `{descriptor.name}`: the program created its instance"
                raise ConfigurationError(message, hint="add the class instead of an instance")
            changed = DeclaredBlock(changed, block.implementation)
        problems = self._block_problems(descriptor, changed) if check else []
        if problems:
            file, line = file_and_line(descriptor.origin.place(f"/{MODE}"))
            raise DocumentError([each.at(file, line, 1) for each in problems])
        # The digest tells that the tool has changed; it is the same after a reload of the same file.
        written = descriptor.origin.digest.partition("~")[0]
        digest = f"{written}~{sha256(compact(config).encode()).hexdigest()[:16]}"
        origin = descriptor.origin._replace(digest=digest)
        return descriptor._replace(bindings={**descriptor.bindings, MODE: changed}, origin=origin)

    def _block_problems(self, descriptor: Descriptor, block: dict[str, Any]) -> list[Problem]:
        if isinstance(block, DeclaredBlock):
            return block.implementation.block_problems(block)
        if block.get("worker") != "process":
            return self._imported(descriptor, block["call"]).block_problems(block)
        from toolcrib.executors.python.workers import describe  # noqa: PLC0415 -- as above

        hide = (self.world or _nothing_special()).secrets.hide_in_text
        return describe(self._worker_settings(descriptor, block), hide, descriptor.timeout).problems

    def retire(self, tool: str) -> None:
        """Close what only this tool uses, once its running calls have ended. Needs a running event loop."""
        self._resources.retire(tool)

    async def aclose(self) -> None:
        """Close the instances of `Tool` classes, the worker processes and the connections."""
        await self._resources.aclose()


_nothing_special: Callable[[], NetworkEnvironment] = cache(NetworkEnvironment.ordinary)
"""The default environment, for an executor that is used without an engine."""


def _packs_of(descriptor: Descriptor, base: str) -> tuple[str, ...]:
    """The folders of the packs whose code a tool may name: its own, and that of a tool that it overrides.

    Args:
        descriptor: The tool.
        base: The folder that the names of sources are relative to; empty for the working directory.
    """
    # Deferred: listing tools does not need it.
    from toolcrib.loading.documents.files import enclosing_pack  # noqa: PLC0415

    origin = descriptor.origin
    if not (origin.pack or origin.overrides):
        return ()
    sources = [origin.source, *(file_and_line(place)[0] for place in origin.overrides)]
    packs = (enclosing_pack(os.path.realpath(os.path.join(base, source))) for source in sources)
    return tuple(dict.fromkeys(filter(None, packs)))


def _completed(descriptor: Descriptor, made: Implementation) -> Descriptor:
    """A descriptor without an input schema, with the schemas and the description of its function."""
    if not unwritten_schema(descriptor):
        return descriptor
    output_schema = None if made.result is None else made.result.output_schema
    return _with_schemas(descriptor, made.input_schema, output_schema, made.description)


def _with_schemas(
    descriptor: Descriptor, input_schema: Schema, output_schema: Schema | None, description: str
) -> Descriptor:
    changes: dict[str, Any] = {"input_schema": input_schema}
    if descriptor.output_schema is None and output_schema is not None:
        changes["output_schema"] = output_schema
    if not descriptor.description:
        changes["description"] = description
    return descriptor._replace(**changes)
