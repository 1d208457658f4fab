"""Python sources of a project: modules whose functions and classes are tools. Nothing here imports them."""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import Descriptor
from toolcrib.loading.fingerprints import installed_entry_points

GROUP = "toolcrib.tools"
"""The entry-point group in which distributions register modules with tools."""


class PythonSource(NamedTuple):
    """A Python source.

    Attributes:
        name: The module, or the name of an entry point, as the project writes it.
        module: The module to import.
        root: Folder of the project, whose modules can be imported once it is trusted.
        file: The project file.
        place: `file:line` of its entry in the project file.
        namespace: Prefix of the names of its tools, without `__`; empty for none.
    """

    name: str
    module: str
    root: str
    file: str
    place: str
    namespace: str = ""


class ModuleTools(NamedTuple):
    """The tools of a Python source.

    Attributes:
        tools: The tools, named within their module.
        problems: Why the module, or some of its tools, cannot be used.
        when: Time of the import, ISO 8601 in UTC, if the tools come from the cache; empty if it was imported now.
        changed: Whether files of the module have changed since.
    """

    tools: tuple[Descriptor, ...] = ()
    problems: tuple[Problem, ...] = ()
    when: str = ""
    changed: bool = False


def module_of(name: str) -> tuple[str, Problem | None]:
    """The module of a Python source: that of an entry point of this name, else the name itself.

    Returns:
        The module, and the problem of a name that several distributions register.
    """
    points = [point for point in installed_entry_points(GROUP) if point.name == name]
    modules = sorted({point.module for point in points})
    if len(modules) > 1:
        owners = sorted(
            f"{point.dist.name if point.dist is not None else '?'} ({point.module})" for point in points
        )
        message = f"several distributions provide the Python source `{name}`: {', '.join(owners)}"
        return "", Problem(code="duplicate_source", message=message, hint="name the module instead")
    return (modules[0] if modules else name), None


def missing_module(source: PythonSource) -> Problem:
    """The problem of a source whose module does not exist."""
    known = sorted({point.name for point in installed_entry_points(GROUP)})
    hint = did_you_mean(source.name, known) or (
        "install it, add it to PYTHONPATH, or put it into the project folder"
    )
    return Problem(code="import_failed", message=f"the module `{source.module}` was not found", hint=hint)
