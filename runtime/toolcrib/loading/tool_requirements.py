"""What tools need where they run: capabilities, platforms, dependencies and estimates. Checks at load and at run time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import PLAN_MARK, plan_argument
from toolcrib.core.text import compact, format_size
from toolcrib.loading.documents.positions import excerpt
from toolcrib.security.path_access import MARK, PURPOSES, marked_paths

if TYPE_CHECKING:
    from toolcrib.core.protocols import Kinds
    from toolcrib.core.server_config import Server
    from toolcrib.registry.catalog import Card

CAPABILITIES = (
    "network",
    "file_read",
    "file_write",
    "process",
    "environment",
    "system_info",
    "elevated",
    "destructive",
)
"""The known capabilities; a custom one has a colon: `crm:write`."""

CAPABILITY_KEYS = ("capabilities", "permissions")
"""The two names of the key that declares capabilities."""


def check_capability(name: str, pointer: str) -> Iterator[Problem]:
    """The problem of a capability that is neither known nor a custom one."""
    if name in CAPABILITIES or ":" in name:
        return
    hint = did_you_mean(name, CAPABILITIES) or (
        f"known capabilities: {', '.join(f'`{each}`' for each in CAPABILITIES)}; a custom name has a colon: `crm:write`"
    )
    message = f"unknown capability `{excerpt(name)}`"
    yield Problem(code="unknown_capability", message=message, pointer=pointer, hint=hint)


def check_tool_requirements(written: Mapping[str, Any], tool: Descriptor) -> Iterator[Problem]:
    """The problems of the keys of a descriptor that say what the tool needs.

    Args:
        written: The parts of the document that its schema accepted.
        tool: The tool that was built from them.
    """
    if all(key in written for key in CAPABILITY_KEYS):
        message = "`permissions` is another name of `capabilities`, and both are set"
        yield Problem(
            code="duplicate_key",
            message=message,
            pointer="/permissions",
            hint="move its entries to `capabilities`",
        )
    for key in CAPABILITY_KEYS:
        for index, name in enumerate(written.get(key, ())):
            yield from check_capability(name, f"/{key}/{index}")
    for index, text in enumerate(tool.dependencies.packages):
        yield from _check_package(text, f"/dependencies/packages/{index}")
    if tool.name in tool.dependencies.tools:
        pointer = f"/dependencies/tools/{tool.dependencies.tools.index(tool.name)}"
        message = f"`{tool.name}` depends on itself"
        yield Problem(code="endless_dependency", message=message, pointer=pointer, hint="remove the entry")
    yield from _check_estimate(tool)
    if isinstance(tool.requires_confirmation, str):
        yield from _check_question(tool)


def _check_package(text: str, pointer: str) -> Iterator[Problem]:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 -- few tools depend on packages

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        message = f"`{excerpt(text)}` is not a Python distribution with its versions"
    else:
        if requirement.url is None:
            return
        message = f"`{excerpt(text)}` names a URL, and only a name and versions can be checked"
    hint = "write `pandas`, `pandas>=2.1` or `pandas>=2.1,<3`"
    yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)


def _check_estimate(tool: Descriptor) -> Iterator[Problem]:
    # A setting may still change a limit that the document does not set.
    said = tool.origin.written
    estimate = tool.estimate
    faults = {
        "duration": "timeout" in said and over_timeout(tool, tool.timeout),
        "output": "limits.output_size" in said and over_output_size(tool),
    }
    for key, fault in faults.items():
        if fault and getattr(estimate, key) is not None:
            message, hint = fault
            yield Problem(
                code="estimate_exceeds_limit", message=message, pointer=f"/estimate/{key}", hint=hint
            )


def over_timeout(tool: Descriptor, timeout: float) -> tuple[str, str] | None:
    """Why the estimated duration of a tool exceeds a timeout in seconds, and a hint; None if it does not."""
    duration = tool.estimate.duration
    if duration is None or duration <= timeout:
        return None
    limit, expected = format_duration(timeout), format_duration(duration)
    message = f"a call of `{tool.name}` takes about {expected}, longer than its timeout of {limit}"
    return message, "raise `timeout`, or correct `estimate.duration`"


def over_output_size(tool: Descriptor) -> tuple[str, str] | None:
    """Why the estimated result of a tool exceeds its limit, and a hint; None if it does not."""
    output = tool.estimate.output
    if output is None or output <= tool.limits.output_size:
        return None
    limit, expected = format_size(tool.limits.output_size), format_size(output)
    message = f"a result of `{tool.name}` has about {expected}, more than `limits.output_size` of {limit}"
    return message, "raise `limits.output_size`, or correct `estimate.output`"


def _check_question(tool: Descriptor) -> Iterator[Problem]:
    from toolcrib.core.subschemas import closed_names  # noqa: PLC0415 -- few tools ask for confirmation
    from toolcrib.expressions import compile_value  # noqa: PLC0415 -- as above
    from toolcrib.expressions.compiler import ArgumentReads  # noqa: PLC0415 -- as above

    problems: list[Problem] = []
    watch = ArgumentReads(closed_names(tool.input_schema) if "input_schema" in tool.origin.written else None)
    compile_value(tool.requires_confirmation, watch.names, problems, "/requires_confirmation")
    yield from problems


def check_path_marks(tool: Descriptor) -> Iterator[Problem]:
    """The problems of `x-path` in the input schema of a tool."""
    for steps, purpose in marked_paths(tool.input_schema):
        if purpose not in PURPOSES:
            keys = (key for step in steps for key in (("items",) if step is None else ("properties", step)))
            message = f"`{MARK}` must be `read` or `write`, got {excerpt(compact(purpose))}"
            pointer = f"/input_schema{pointer_to((*keys, MARK))}"
            hint = did_you_mean(str(purpose), PURPOSES) or "write what the tool does with the file"
            yield Problem(code="not_allowed", message=message, pointer=pointer, hint=hint)


_PLAN_VALUES: Final = {
    "status": ("pending", "in_progress", "completed"),
    "priority": ("high", "medium", "low"),
}
"""What the entries of a plan may say in the Agent Client Protocol."""


def check_plan_mark(tool: Descriptor) -> Iterator[Problem]:
    """The problems of `x-plan` in the input schema of a tool: front ends understand only plans of one form."""
    name = plan_argument(tool.input_schema)
    if not name or not isinstance(tool.input_schema, dict):
        return
    part: Any = tool.input_schema["properties"]
    part = part[name]
    pointer = f"/input_schema{pointer_to(('properties', name))}"
    if part[PLAN_MARK] is not True:
        yield Problem(
            code="not_allowed",
            message=f"`{PLAN_MARK}` must be true, got {excerpt(compact(part[PLAN_MARK]))}",
            pointer=f"{pointer}/{PLAN_MARK}",
            hint="write `x-plan: true`, or remove it",
        )
    items = part.get("items")
    items = items if isinstance(items, dict) else {}
    said = items.get("properties")
    said = said if isinstance(said, dict) else {}
    if part.get("type") != "array" or "content" not in said or "content" not in items.get("required", ()):
        yield Problem(
            code="not_allowed",
            message=f"`{name}` is marked `{PLAN_MARK}` and is not a list of objects that require `content`",
            pointer=pointer,
            hint="write `type: array`, and `items` with `required: [content]` and `properties: {content: {type: string}}`",
        )
    for key, values in _PLAN_VALUES.items():
        each = said.get(key)
        listed = each.get("enum") if isinstance(each, dict) else values
        if not isinstance(listed, list | tuple) or not set(map(str, listed)) <= set(values):
            yield Problem(
                code="not_allowed",
                message=f"`{key}` of the entries of a plan has other values than {', '.join(values)}",
                pointer=f"{pointer}/items/properties/{key}",
                hint=f"write `enum: [{', '.join(values)}]`, or a part of it",
            )


# Capabilities that the blocks need.


def with_derived_capabilities(
    tool: Descriptor, kinds: Kinds, servers: Mapping[str, Server] = NOTHING
) -> Descriptor:
    """The tool with the capabilities that its blocks need, unless it declares its own."""
    if not tool.origin.written.isdisjoint(CAPABILITY_KEYS):
        return tool
    needed = {name for mode in tool.bindings for name in _needed(tool, mode, kinds, servers)}
    capabilities = tuple(sorted(needed))
    return tool if capabilities == tool.capabilities else tool._replace(capabilities=capabilities)


def check_declared_capabilities(
    tool: Descriptor, kinds: Kinds, servers: Mapping[str, Server] = NOTHING
) -> Iterator[Problem]:
    """A problem for each block of a tool that needs a capability which the tool does not declare."""
    key = next((key for key in CAPABILITY_KEYS if key in tool.origin.written), None)
    if key is None:
        return
    for mode in tool.bindings:
        lacking = [name for name in _needed(tool, mode, kinds, servers) if name not in tool.capabilities]
        if lacking:
            names = ", ".join(f"`{name}`" for name in lacking)
            message = f"the block `{mode}` needs {names}, which `{key}` does not declare"
            entries = ", ".join([*tool.capabilities, *lacking])
            hint = f"write `{key}: [{entries}]`, or remove the key to derive it from the blocks"
            yield Problem(code="undeclared_capability", message=message, pointer=f"/{key}", hint=hint)


def _needed(tool: Descriptor, mode: str, kinds: Kinds, servers: Mapping[str, Server]) -> Sequence[str]:
    requirements = kinds.requirements_of(mode, tool, servers)
    return () if requirements is None else requirements.capabilities


def settle_capabilities(
    tools: Iterable[Descriptor], kinds: Kinds, servers: Mapping[str, Server]
) -> tuple[list[Descriptor], list[Problem]]:
    """Derive and check the capabilities of tools whose blocks name servers.

    Args:
        tools: All tools. Those without such a block stay unchanged: their own document was enough.
        kinds: The modes.
        servers: The servers by name.

    Returns:
        The tools without those that declare too little, and the problems of these, with positions.
    """
    settled: list[Descriptor] = []
    problems: list[Problem] = []
    for tool in tools:
        if not servers or not any(
            kinds.remote_of(mode, tool.name, block) for mode, block in tool.bindings.items()
        ):
            settled.append(tool)
            continue
        found = list(check_declared_capabilities(tool, kinds, servers))
        if not found:
            settled.append(with_derived_capabilities(tool, kinds, servers))
        problems += [
            each.at(tool.origin.file_of(each.pointer), *_position(tool, each.pointer)) for each in found
        ]
    return settled, problems


def _position(tool: Descriptor, pointer: str) -> tuple[int, int]:
    line, column = tool.origin.locate(pointer)
    return line or tool.origin.line, column or 1


# The environment.


def current_platform(name: str = sys.platform) -> str:
    """The platform of this process as descriptors name it: `linux`, `macos`, `windows`, or the name that Python uses."""
    return {"darwin": "macos", "win32": "windows", "cygwin": "windows"}.get(name, name)


class EnvironmentCheck:
    """Finds what tools need and this environment lacks. It remembers its answers: create one for each look.

    Args:
        platform: Name of the platform (default: the current one).
        environment: The environment variables (default: those of the process).
        why_unable: Returns why another tool cannot be called, by name; empty if it can.
    """

    def __init__(
        self,
        why_unable: Callable[[str], str],
        *,
        platform: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._why_unable = why_unable
        self._platform = current_platform() if platform is None else platform
        self._environment = os.environ if environment is None else environment
        self._known: dict[str, str] = {}

    def unmet(self, card: Card) -> str:
        """Why a tool cannot run here, in one sentence; empty if all of its requirements are met."""
        platforms = [text.partition(" ")[2] for text in card.requires if text.startswith("platform ")]
        if platforms and self._platform not in platforms:
            names = " and ".join(platforms) if len(platforms) < 3 else ", ".join(platforms)
            return f"`{card.name}` runs on {names} only, and this is {self._platform} ({card.place()})"
        for text in card.requires:
            kind, _, what = text.partition(" ")
            if kind == "platform":
                continue
            if text not in self._known:
                # Set before the look, so that tools that depend on each other in a circle end it.
                self._known[text] = ""
                self._known[text] = _LOOKS[kind](self, what)
            if self._known[text]:
                return f"`{card.name}` needs {self._known[text]} ({card.place()})"
        return ""

    def _package(self, text: str) -> str:
        # Slow to import, and few tools depend on packages.
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        from packaging.requirements import Requirement  # noqa: PLC0415

        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            return ""
        fix = f"run `pip install '{text}'`"
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            return f"the Python package `{text}`, which is not installed; {fix}"
        if requirement.specifier.contains(found, prereleases=True):
            return ""
        return f"the Python package `{text}`, but version {found} is installed; {fix}"

    def _command(self, name: str) -> str:
        from shutil import which  # noqa: PLC0415 -- as above

        path = self._environment.get("PATH")
        return (
            ""
            if which(name, path=path)
            else f"the program `{name}`, which is not in the search path; install it"
        )

    def _tool(self, name: str) -> str:
        why = self._why_unable(name)
        return f"the tool `{name}`: {why}" if why else ""

    def _variable(self, name: str) -> str:
        return (
            ""
            if name in self._environment
            else f"the environment variable `{name}`, which is not set; set it"
        )


_LOOKS: Mapping[str, Callable[[EnvironmentCheck, str], str]] = {
    "package": EnvironmentCheck._package,  # noqa: SLF001 -- the methods of this module's own class
    "command": EnvironmentCheck._command,  # noqa: SLF001 -- as above
    "tool": EnvironmentCheck._tool,  # noqa: SLF001 -- as above
    "environment": EnvironmentCheck._variable,  # noqa: SLF001 -- as above
}
