"""Cache the definitions of Python tools for commands that only list, and import no code.

They are written when a trusted command imports the code. Entries are only displayed; before a call, the code is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcrib.core.text import canonical
from toolcrib.core.user_folders import cache_folder, find_work_tree, why_unused
from toolcrib.security.program_files import files_of_module

_FORMAT = 1
_LARGEST = 32 << 20
_MOST = 1024
"""Maximum number of entries; the oldest are removed."""


class Definitions(NamedTuple):
    """What importing code has shown.

    Attributes:
        when: Time of the import, ISO 8601 in UTC.
        tools: The documents of the tools, each with the `file` and the `line` of its function.
        changed: Whether files of the module have changed since.
    """

    when: str
    tools: tuple[tuple[Mapping[str, Any], str, int], ...]
    changed: bool = False


def save_definitions(what: str, root: str, found: Definitions) -> None:
    """Cache definitions. A failure to write is only logged.

    Args:
        what: The module, or `module:name` of one function.
        root: Folder of the project that imports it; empty for none.
        found: The definitions.
    """
    folder = _folder()
    if not folder:
        return
    key = _key(what, root)
    told = {"format": _FORMAT, "key": key, "when": found.when, "digest": _digest(what, root)}
    path = os.path.join(folder, f"{key}.json")
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # A reader never sees a half-written entry, and two processes never write the same draft.
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({**told, "tools": [list(each) for each in found.tools]}, file)
        os.replace(draft, path)
        _tidy(folder)
    except (OSError, ValueError, TypeError) as error:
        _log_unkept(error)


def load_definitions(what: str, root: str) -> Definitions | None:
    """The cached definitions of a module or a function; None if there are none."""
    folder = _folder()
    if not folder:
        return None
    key = _key(what, root)
    try:
        with open(os.path.join(folder, f"{key}.json"), "rb") as file:
            told = json.loads(file.read(_LARGEST))
        if told["format"] != _FORMAT or told["key"] != key:
            return None
        tools = tuple((dict(document), str(source), int(line)) for document, source, line in told["tools"])
        return Definitions(str(told["when"]), tools, told["digest"] != _digest(what, root))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # a missing or corrupt entry is a cache miss


def _folder() -> str:
    """The cache folder; empty if caching is not possible."""
    top = cache_folder()
    if top is None:
        return ""
    folder = os.path.join(top, "definitions")
    # Inside a work tree, entries could be committed, or a cloned repository could bring forged ones.
    return "" if why_unused(folder) or find_work_tree(folder) else folder


def _key(what: str, root: str) -> str:
    told = canonical([what, os.path.realpath(root) if root else ""])
    return hashlib.sha256(told.encode()).hexdigest()[:40]


def _digest(what: str, root: str) -> str:
    """Digest of the files of the project that the module consists of."""
    files = files_of_module(what.partition(":")[0], os.path.realpath(root)) if root else None
    return hashlib.sha256(canonical(dict(files.digests) if files else {}).encode()).hexdigest()


def _tidy(folder: str) -> None:
    """Remove the oldest entries."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
    for _when, path in files[:-_MOST]:
        os.unlink(path)


def _log_unkept(error: Exception) -> None:
    import logging  # noqa: PLC0415 -- only a failed write needs it

    logging.getLogger("toolcrib").debug("cannot cache the definitions of Python tools: %s", error)
