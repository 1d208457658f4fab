"""Import of the hooks that documents name: `package.module:function`.

Hooks come from installed distributions, from folders that the program adds to `sys.path`, or from a trusted
project. They never come from the working directory just because Python searches it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from typing import Any, cast

from toolcrib.core.errors import NotReady


class MissingHook(NotReady):
    """The hook does not exist, cannot be imported or is not callable."""

    code = "missing_hook"


def load_hook(path: str, place: str, folder: str = "") -> Callable[..., Any]:
    """Import a hook.

    Args:
        path: `package.module:function`. The name after the colon may be dotted: `package.module:Signer.sign`.
        place: `file:line` of the hook in its document, for messages.
        folder: Folder of a trusted project whose modules may also be imported; empty for none.

    Raises:
        MissingHook: The hook does not exist, cannot be imported or is not callable.
    """
    module, _colon, name = path.partition(":")
    try:
        with _search_path(os.path.realpath(folder) if folder else ""):
            hook = reduce(getattr, name.split("."), import_module(module))
    # Importing a module runs its code.
    except Exception as error:  # noqa: BLE001 -- third-party code can raise any exception
        message = f"the hook `{path}` cannot be imported ({type(error).__name__}; {place})"
        hint = "install it, add it to PYTHONPATH, or put it into the project folder"
        raise MissingHook(message, hint=hint) from None
    if not callable(hook):
        message = f"the hook `{path}` is not a function ({place})"
        raise MissingHook(message, hint="name a function as `package.module:function`")
    return cast("Callable[..., Any]", hook)


@contextmanager
def _search_path(folder: str) -> Iterator[None]:
    """Make a trusted project importable, and hide a working directory that the user did not choose."""
    # The attack: a downloaded folder contains a module with the name of a hook. `python -m` and an empty entry put
    # the working directory first in `sys.path`, so its module would run as the user's code.
    here = _working_folder()
    accidental = bool(here) and here != folder and not _is_meant(here)
    before = [*sys.path]
    # Last in the path, so that a project cannot replace an installed module. It stays there, because its modules may
    # import each other during a call.
    if folder and folder not in sys.path:
        sys.path.append(folder)
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
