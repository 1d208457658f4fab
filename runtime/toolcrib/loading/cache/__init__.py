"""A warm start: what reading and linking came to, kept in the user's cache folder until anything changes.

An index is only ever a shortcut: what is absent, harmed, out of date or can't be followed is read anew, and nothing
that goes wrong with the index is an error.

A name is loaded when it is first used: a list of tools needs the head of an index, and no stock.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolcrib.loading.cache.header import key_of
    from toolcrib.loading.cache.index import Index, default_index, profiles_of
    from toolcrib.loading.cache.snapshot_codec import Profiles, Recalled

__all__ = ["Index", "Profiles", "Recalled", "default_index", "key_of", "profiles_of"]

_HOME = {
    "Index": "index",
    "Profiles": "snapshot_codec",
    "Recalled": "snapshot_codec",
    "default_index": "index",
    "key_of": "header",
    "profiles_of": "index",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        from importlib import import_module  # noqa: PLC0415 -- a list of tools needs none of it

        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return value
