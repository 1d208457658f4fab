"""Import a module and find its tools."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem
from toolcrib.core.hooks import load_module, module_origin, other_file
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.pointers import file_and_line
from toolcrib.core.protocols import Kinds
from toolcrib.executors.python.declarations import Tool, declaration_of, is_tool_class
from toolcrib.executors.python.factories import declared_tool, is_factory
from toolcrib.executors.python.signatures import place_of
from toolcrib.loading.python_sources import ModuleTools, PythonSource, missing_module


def import_tools(source: PythonSource, kinds: Kinds, provided: Mapping[str, Any] = NOTHING) -> ModuleTools:
    """Import the module of a source, and return its tools.

    The tools are what the names in `__all__` refer to. Without `__all__`, they are what the module itself defines under
    public names: functions that `toolcrib.tool` or `toolcrib.factory` declares, subclasses of `Tool`, and descriptors.

    Args:
        source: The source; its project must be trusted.
        kinds: The block schemas and checks of the modes.
        provided: The dependencies of factories and classes, by name.
    """
    try:
        module = load_module(source.module, source.root)
    # Importing runs the code of the module, which may raise anything, and must not end the program.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return ModuleTools(problems=(_import_problem(source, error),))
    shadowed = _shadowed(source, module)
    if shadowed is not None:
        return ModuleTools(problems=(shadowed,))
    tools: list[Descriptor] = []
    problems: list[Problem] = []
    for name, target in _declared(module):
        try:
            tools.append(_tool_of(target, kinds, provided))
        except DocumentError as error:
            problems += error.problems
        except ConfigurationError as error:
            file, line = file_and_line(place_of(target))
            problem = Problem(code=error.code, message=error.message, hint=error.hint)
            if error.code == "missing_extra":
                # The same for all tools of the module, so one problem is enough.
                return ModuleTools(problems=(problem.at(*file_and_line(source.place), 1),))
            problems.append(problem.at(file, line, 1))
        # A factory is code of the module.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            file, line = _where(error, source, place_of(target))
            message = f"cannot create the tool `{name}`: {type(error).__name__}: {error}"
            problems.append(Problem(code="import_failed", message=message).at(file, line, 1))
    file = getattr(module, "__file__", None) or source.file
    problems += [each.at(file, 1, 1) for each in _unknown_names(module)]
    if not tools and not problems:
        message = f"the module `{source.module}` declares no tool"
        hint = "declare functions with `@toolcrib.tool`, or subclass `toolcrib.Tool`"
        problem = Problem(code="no_tools", message=message, hint=hint, severity="warning")
        problems.append(problem.at(file, 1, 1))
    return ModuleTools(tuple(tools), tuple(problems))


def _tool_of(target: Any, kinds: Kinds, provided: Mapping[str, Any]) -> Descriptor:
    return target if isinstance(target, Descriptor) else declared_tool(target, kinds, NOTHING, provided)


def _declared(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the tools of a module, each once, with the first of their names."""
    exported = getattr(module, "__all__", None)
    names = vars(module) if exported is None else [name for name in exported if hasattr(module, name)]
    seen: set[int] = set()
    for name in names:
        target = getattr(module, name)
        own = exported is not None or (not name.startswith("_") and _is_own(target, module))
        if own and id(target) not in seen and _is_tool(target, by_name=exported is not None):
            seen.add(id(target))
            yield name, target


def _is_own(target: Any, module: ModuleType) -> bool:
    """Whether a module defines an object, and does not import it."""
    if isinstance(target, Descriptor):
        return target.origin.source == getattr(module, "__file__", None)
    return getattr(target, "__module__", None) == module.__name__


def _is_tool(target: Any, *, by_name: bool) -> bool:
    if is_tool_class(target):
        return target is not Tool and not inspect.isabstract(target)
    if isinstance(target, Tool):
        return by_name
    return isinstance(target, Descriptor) or is_factory(target) or declaration_of(target).of is not None


def _unknown_names(module: ModuleType) -> Iterator[Problem]:
    for name in getattr(module, "__all__", ()):
        if not hasattr(module, name):
            message = f"`__all__` of `{module.__name__}` lists `{name}`, which does not exist"
            yield Problem(code="import_failed", message=message, hint="remove it from `__all__`")


def _shadowed(source: PythonSource, module: ModuleType) -> Problem | None:
    """The problem of a module that came from elsewhere, although the project has a module of this name."""
    own = other_file(source.root, module)
    if not own:
        return None
    message = f"the module `{source.module}` was imported from {module_origin(module)}, not from {own}"
    hint = "rename it: another module of this name comes first"
    return Problem(code="import_failed", message=message, hint=hint).at(*file_and_line(source.place), 1)


def _import_problem(source: PythonSource, error: BaseException) -> Problem:
    """The problem of an import that failed, at the line of the module that raised."""
    if isinstance(error, ModuleNotFoundError) and _is_part(error.name or "", source.module):
        return missing_module(source).at(*file_and_line(source.place), 1)
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno or 1
    else:
        file, line = _where(error, source, source.place)
    message = (
        f"cannot import `{source.module}` ({source.place}): {type(error).__name__}: {_first_line(error)}"
    )
    hint = "fix the module"
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"install the package that provides `{error.name}`, or fix the import"
    return Problem(code="import_failed", message=message, hint=hint).at(file, line, 1)


def _is_part(name: str, module: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def _first_line(error: BaseException) -> str:
    return (str(error.msg if isinstance(error, SyntaxError) else error).splitlines() or [""])[0]


def _where(error: BaseException, source: PythonSource, place: str) -> tuple[str, int]:
    """File and line of the last code of the project that ran, else of the last code of all."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<")]
    root = os.path.realpath(source.root)
    own = [each for each in frames if os.path.realpath(each.filename).startswith(root + os.sep)]
    own = [each for each in own if f"{os.sep}site-packages{os.sep}" not in each.filename]
    found = (own or [each for each in frames if each.name == "<module>"])[-1:]
    return (found[0].filename, found[0].lineno or 1) if found else file_and_line(place)
