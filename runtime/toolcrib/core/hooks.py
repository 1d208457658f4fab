"""Import of the hooks that documents name: `package.module:function`.

Hooks come from installed distributions, from folders that the program adds to `sys.path`, or from a trusted
project. They never come from the working directory just because Python searches it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any, cast

from toolcrib.core.errors import NotReady, did_you_mean


class MissingHook(NotReady):
    """The hook does not exist, cannot be imported or is not callable."""

    code = "missing_hook"


def load_hook(path: str, place: str, folder: str = "", *, packs: Sequence[str] = ()) -> Callable[..., Any]:
    """Import a hook.

    Args:
        path: `package.module:function`. The name after the colon may be dotted: `package.module:Signer.sign`.
        place: `file:line` of the hook in its document, for messages.
        folder: Folder of a trusted project whose modules may also be imported; empty for none.
        packs: Folders and zip archives of trusted packs whose modules may also be imported, before those of `folder`.

    Raises:
        MissingHook: The hook does not exist, cannot be imported or is not callable.
    """
    folders = [os.path.realpath(each) for each in (*packs, folder) if each]
    name, _colon, attributes = path.partition(":")
    try:
        with _search_path(folders):
            module = import_module(name)
    # Importing a module runs its code, which must not end the program either.
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- third-party code can raise any exception
        # Without the text of the exception, which may contain a secret.
        message = f"the hook `{path}` cannot be imported ({_raised(error, folders)}; {place})"
        hint = "fix the module"
        if isinstance(error, ModuleNotFoundError):
            hint = "install it, add it to PYTHONPATH, or put it into the project folder"
        raise MissingHook(message, hint=hint) from None
    _check_origin(path, place, folders[: len(packs)])
    _check_folder(path, place, folders[len(packs) :], module)
    try:
        hook = reduce(getattr, attributes.split("."), module)
    except AttributeError:
        message = f"the module `{name}` of the hook `{path}` does not define `{attributes}` ({place})"
        hint = did_you_mean(attributes, vars(module)) or "name a function as `package.module:function`"
        raise MissingHook(message, hint=hint) from None
    if not callable(hook):
        message = f"the hook `{path}` is not a function ({place})"
        raise MissingHook(message, hint="name a function as `package.module:function`")
    return cast("Callable[..., Any]", hook)


def _raised(error: BaseException, folders: Sequence[str]) -> str:
    """The class of an exception, and the line of the project or pack that raised it."""
    import traceback  # noqa: PLC0415 -- few imports fail

    kind = type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name:
        kind = f"{kind}: `{error.name}`"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{kind} at {error.filename}:{error.lineno or 1}"
    frames = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    own = [each for each in frames if each[0].startswith(tuple(f"{folder}{os.sep}" for folder in folders))]
    return f"{kind} at {own[-1][0]}:{own[-1][1]}" if own else kind


def _check_origin(path: str, place: str, packs: Sequence[str]) -> None:
    """Refuse the module of another pack or distribution that has the name of the pack's own.

    Raises:
        MissingHook: The name was taken already.
    """
    # Python has one module per name: the second of two packs with a `tools.py` would run the code of the first.
    name = path.partition(":")[0].partition(".")[0]
    own = PathFinder.find_spec(name, [*packs]) if packs else None
    known = getattr(sys.modules.get(name), "__spec__", None)
    if own is not None and known is not None and own.origin != known.origin:
        message = f"the pack of the hook `{path}` has a module `{name}`, and {known.origin} has the same name ({place})"
        raise MissingHook(message, hint="rename the module of the pack")


def _check_folder(path: str, place: str, folders: Sequence[str], module: ModuleType) -> None:
    """Refuse a module of elsewhere that has the name of one in the project.

    Raises:
        MissingHook: The name was taken already.
    """
    for folder in folders:
        own = other_file(folder, module)
        if own:
            message = f"the module of the hook `{path}` was imported from {module_origin(module)}, not from {own} ({place})"
            raise MissingHook(message, hint="rename it: another module of this name comes first")


def module_file(folder: str, module: str) -> str:
    """The file of a module below a folder; empty if there is none."""
    path = os.path.join(folder, *module.split("."))
    found = (f"{path}.py", os.path.join(path, "__init__.py"))
    return next((each for each in found if os.path.isfile(each)), "")


def module_origin(module: ModuleType) -> str:
    """The file of an imported module, for messages."""
    return getattr(module, "__file__", None) or "elsewhere"


def other_file(folder: str, module: ModuleType) -> str:
    """The file that a folder has for the name of a module that was imported from elsewhere; empty if there is none."""
    own, found = module_file(folder, module.__name__), getattr(module, "__file__", None)
    same = own and found is not None and os.path.realpath(found) == os.path.realpath(own)
    return "" if same else own


def load_module(name: str, folder: str = "") -> ModuleType:
    """Import a module; whatever its code raises is passed on.

    Args:
        name: `package.module`.
        folder: As for `load_hook`.
    """
    with _search_path([os.path.realpath(folder)] if folder else []):
        return import_module(name)


def import_object(path: str) -> Any:
    """Import `package.module:name` with the search path as it is. Raises whatever the import raises."""
    module, _colon, name = path.partition(":")
    return reduce(getattr, name.split("."), import_module(module))


def import_folders(folders: Sequence[str]) -> list[str]:
    """The folders that hooks are imported from, as absolute paths, for another process that imports them.

    Args:
        folders: Folders of packs and of a trusted project, as for `load_hook`.
    """
    with _search_path([os.path.realpath(each) for each in folders]):
        return [os.path.abspath(entry) for entry in sys.path]


@contextmanager
def _search_path(folders: Sequence[str]) -> Iterator[None]:
    """Make trusted folders importable, and hide a working directory that the user did not choose."""
    # The attack: a downloaded folder contains a module with the name of a hook. `python -m` and an empty entry put
    # the working directory first in `sys.path`, so its module would run as the user's code.
    here = _working_folder()
    accidental = bool(here) and here not in folders and not _is_meant(here)
    before = [*sys.path]
    # Last in the path, so that a project cannot replace an installed module. It stays there, because its modules may
    # import each other during a call.
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    if not accidental:
        yield
        return
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    try:
        yield
    finally:
        # The imported module may have added entries of its own.
        added = [entry for entry in sys.path if entry not in before]
        sys.path[:] = [*before, *added]


def _working_folder() -> str:
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return ""


def _is_meant(here: str) -> bool:
    """Whether the user chose the working directory: PYTHONPATH names it, or it contains the running program."""
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [*named, *([os.path.dirname(os.path.abspath(main))] if main else [])]
    return any(os.path.realpath(entry) == here for entry in folders)
