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

from toolcrib.core.errors import NotReady


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
    try:
        with _search_path(folders):
            import_module(path.partition(":")[0])
        hook = import_object(path)
    # Importing a module runs its code.
    except Exception as error:  # noqa: BLE001 -- third-party code can raise any exception
        message = f"the hook `{path}` cannot be imported ({type(error).__name__}; {place})"
        hint = "install it, add it to PYTHONPATH, or put it into the project folder"
        raise MissingHook(message, hint=hint) from None
    _check_origin(path, place, folders[: len(packs)])
    if not callable(hook):
        message = f"the hook `{path}` is not a function ({place})"
        raise MissingHook(message, hint="name a function as `package.module:function`")
    return cast("Callable[..., Any]", hook)


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
