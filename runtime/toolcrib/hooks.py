"""Functions of somebody's own that a document names: `package.module:function`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any, cast

from toolcrib.errors import NotReady


class MissingHook(NotReady):
    """There is no such function."""

    code = "missing_hook"


def load_hook(path: str, place: str) -> Callable[..., Any]:
    """Import what a document names.

    Args:
        path: `package.module:function`; a dotted name behind the colon is followed: `package.module:Signer.sign`.
        place: Where it is written, for messages: `file:line`.

    Raises:
        MissingHook: There is nothing of this name, it can't be imported, or can't be called.
    """
    module, _colon, name = path.partition(":")
    try:
        hook = reduce(getattr, name.split("."), import_module(module))
    except Exception as error:  # noqa: BLE001 -- the code of a module may raise anything
        message = f"the hook `{path}` can't be imported ({type(error).__name__}; {place})"
        hint = "it is imported as a Python program would: is it installed, or on PYTHONPATH?"
        raise MissingHook(message, hint=hint) from None
    if not callable(hook):
        message = f"the hook `{path}` is no function ({place})"
        raise MissingHook(message, hint="name one as `package.module:function`")
    return cast("Callable[..., Any]", hook)
