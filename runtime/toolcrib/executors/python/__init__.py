"""Mode `python`: tools that Python functions and classes run.

A descriptor names them (`python: {call: "shop.tools:refund"}`), or a program adds them (`Runtime.add`). The code of a
project is imported only if the project is trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import ConfigurationError, DocumentError, NotReady, Problem, did_you_mean
from toolcrib.core.hooks import load_hook
from toolcrib.core.model import NOTHING, Descriptor, Schema
from toolcrib.core.pointers import file_and_line
from toolcrib.executors.python.declarations import (
    MODE,
    DeclaredBlock,
    Implementation,
    implementation_of,
    unwritten_schema,
)
from toolcrib.executors.python.factories import created_tool, is_factory
from toolcrib.security.requirements import NO_REQUIREMENTS, Requirements
from toolcrib.security.trust import Workspace
from toolcrib.security.trust_needs import Need, need_of_import
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server
    from toolcrib.executors.python.bound_function import BoundFunction, ToolInstances

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
        self._instances: ToolInstances | None = None

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `python` block."""
        return _block_schema()

    @property
    def keeps_nothing(self) -> bool:
        """Whether there is no instance to close."""
        return self._instances is None or self._instances.empty

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:  # noqa: ARG002 -- nothing may be imported
        """Checks nothing beyond the schema: the code may be imported only after it is trusted."""
        return ()

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

    def requirements(self, _descriptor: Descriptor, _server: Server | None) -> Requirements:
        """No capability: a block only imports code, and what that code uses must be declared."""
        return NO_REQUIREMENTS

    def completes(self, descriptor: Descriptor) -> bool:
        """Whether the function provides the schemas of a tool, so that they are known once it is bound."""
        return unwritten_schema(descriptor) and not isinstance(descriptor.bindings[MODE], DeclaredBlock)

    def plays_examples(self, descriptor: Descriptor) -> bool:
        """Whether examples are played: unless the annotations allow destructive effects."""
        annotated = "annotations" in descriptor.origin.written
        return descriptor.annotations.read_only or not (annotated and descriptor.annotations.destructive)

    def bind(self, descriptor: Descriptor) -> BoundFunction:
        """Import the function, and check that the descriptor fits it.

        Raises:
            NotReady: The function cannot be imported, its types cannot be used, a dependency is not provided, or the
                extra `typed` is missing.
            DocumentError: The descriptor does not fit the function.
        """
        # Deferred: listing tools does not need it.
        from toolcrib.executors.python.bound_function import BoundFunction, ToolInstances  # noqa: PLC0415

        block: Any = descriptor.bindings[MODE]
        if isinstance(block, DeclaredBlock):
            made = block.implementation
        else:
            made = self._imported(descriptor, block["call"])
            problems = [*made.block_problems(block), *_misfits(descriptor, made)]
            if problems:
                raise DocumentError(problems)
            descriptor = _completed(descriptor, made)
        if self._instances is None:
            self._instances = ToolInstances()
        made = made.with_provided(self.provided, descriptor.name)
        return BoundFunction(descriptor, made, block, self._instances)

    def _imported(self, descriptor: Descriptor, call: str) -> Implementation:
        trust = None if self.world is None else self.world.trust
        folder, packs = "", tuple[str, ...]()
        if trust is not None:
            folder = trust.folder_of(descriptor.origin.source)
            packs = _packs_of(descriptor, trust.contents.base) if folder else ()
        target: Any = load_hook(call, descriptor.origin.place(f"/{MODE}/call"), folder, packs=packs)
        try:
            if is_factory(target):
                target = created_tool(target, self.provided)
            return implementation_of(target, untyped=not unwritten_schema(descriptor))
        except ConfigurationError as error:
            raise NotReady(error.message, code=error.code, hint=error.hint) from None

    async def aclose(self) -> None:
        """Close the instances of `Tool` classes."""
        instances, self._instances = self._instances, None
        if instances is not None:
            await instances.aclose()


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
    changes: dict[str, Any] = {"input_schema": made.input_schema}
    if descriptor.output_schema is None and made.result is not None:
        changes["output_schema"] = made.result.output_schema
    if not descriptor.description:
        changes["description"] = made.description
    return descriptor._replace(**changes)


def _misfits(descriptor: Descriptor, made: Implementation) -> Iterator[Problem]:
    """Yield the arguments of a descriptor's own schema that the function does not take, or lacks."""
    schema: Any = descriptor.input_schema
    if unwritten_schema(descriptor) or not isinstance(schema, Mapping):
        return
    taken: Any = made.input_schema
    known = taken.get("properties", {})
    if taken.get("additionalProperties") is False:
        for name in schema.get("properties", {}):
            if name not in known:
                message = f"`{made.call}` has no parameter `{name}`"
                hint = did_you_mean(name, known) or "remove the property, or add the parameter"
                pointer = f"/input_schema/properties/{name}"
                yield Problem(code="schema_mismatch", message=message, pointer=pointer, hint=hint)
    for name in taken.get("required", ()):
        if "properties" in schema and name not in schema.get("required", ()):
            message = f"`{made.call}` requires `{name}`, and `input_schema` does not"
            hint = f"add `{name}` to `required`, or give the parameter a default"
            yield Problem(code="schema_mismatch", message=message, pointer="/input_schema", hint=hint)
