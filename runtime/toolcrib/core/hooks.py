"""Functions of somebody's own that a document names: `package.module:function`.

They come from installed distributions, from what the program itself put on its path, or from a trusted project: never from the
working directory because Python happens to look there.
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
    """There is no such function."""

    code = "missing_hook"


def load_hook(path: str, place: str, folder: str = "") -> Callable[..., Any]:
    """Import what a document names.

    Args:
        path: `package.module:function`; a dotted name behind the colon is followed: `package.module:Signer.sign`.
        place: Where it is written, for messages: `file:line`.
        folder: The trusted project whose modules may be imported as well; empty for none.

    Raises:
        MissingHook: There is nothing of this name, it can't be imported, or can't be called.
    """
    module, _colon, name = path.partition(":")
    try:
        with _search_path(os.path.realpath(folder) if folder else ""):
            hook = reduce(getattr, name.split("."), import_module(module))
    except Exception as error:  # noqa: BLE001 -- the code of a module may raise anything
        message = f"the hook `{path}` cannot be imported ({type(error).__name__}; {place})"
        hint = "install it, add it to PYTHONPATH, or put it into the project folder"
        raise MissingHook(message, hint=hint) from None
    if not callable(hook):
        message = f"the hook `{path}` is not a function ({place})"
        raise MissingHook(message, hint="name a function as `package.module:function`")
    return cast("Callable[..., Any]", hook)


@contextmanager
def _search_path(folder: str) -> Iterator[None]:
    """Let a trusted project's modules be found, after all others, and nothing of a working directory that is another folder.

    The project stays on the path: its modules may import each other later.
    """
    here = _working_folder()
    accidental = bool(here) and here != folder and not _is_meant(here)
    before = [*sys.path]
    if folder and folder not in sys.path:
        sys.path.append(folder)
    if not accidental:
        yield
        return
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in before]
        sys.path[:] = [*before, *added]


def _working_folder() -> str:
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return ""


def _is_meant(here: str) -> bool:
    """Whether somebody wants modules of the working directory: PYTHONPATH names it, or the program that runs lies there."""
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [*named, *([os.path.dirname(os.path.abspath(main))] if main else [])]
    return any(os.path.realpath(entry) == here for entry in folders)
