"""What judged documents besides the documents themselves: the code of toolcrib and of the modes, and what is installed.

An index that was written in another environment is not read. Distributions are noticed by the folders on
`sys.path`, without reading their metadata.
"""

from __future__ import annotations

import os
import sys
import time

import toolcrib
from toolcrib.loading.documents.file_fingerprints import RACY, Seen, State, Trail, is_racy, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

_METADATA = (".dist-info", ".egg-info")
_SITES = ("site-packages", "dist-packages")

Distributions: TypeAlias = tuple[tuple[str, State], ...]
"""Name of the metadata of a distribution -> state of its entry points; sorted."""

Entry: TypeAlias = tuple[State, Distributions]
"""A folder on `sys.path`: its state (empty where its times can't be trusted), and what is installed there."""


class EnvironmentFingerprint:
    """What decides what documents mean, besides the documents.

    Attributes:
        version: That of toolcrib.
        code: The files of toolcrib and of the modes of others.
        path: The entries of `sys.path`.
        newest: When a file of the code was last changed, in nanoseconds since 1970. It is kept because finding it
            takes longer than reading it.
    """

    __slots__ = ("code", "newest", "path", "version")

    def __init__(self, version: str, code: Seen, path: dict[str, Entry], newest: int | None = None) -> None:
        self.version = version
        self.code = code
        self.path = path
        self.newest = _newest(code) if newest is None else newest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvironmentFingerprint) and (self.version, self.code, self.path) == (
            other.version,
            other.code,
            other.path,
        )

    __hash__ = None  # type: ignore[assignment]  # it holds what may change

    def refreshed(self, imported: int = toolcrib._IMPORTED) -> EnvironmentFingerprint | None:  # noqa: SLF001 -- nobody else needs it
        """The same, for a faster look next time, or None where anything is different.

        Args:
            imported: When the code that runs was imported, at the earliest; in nanoseconds since 1970.
        """
        if self.version != toolcrib.__version__ or self.newest > imported - RACY:
            return None
        code = self.code.refreshed()
        if code is None:
            return None
        moment = time.time_ns()
        path = {}
        for folder, known in self.path.items():
            entry = _entry_now(folder, known, moment)
            if entry is None:
                return None
            path[folder] = entry
        return EnvironmentFingerprint(self.version, code, path, self.newest)


def fingerprint_environment(
    targets: Iterable[str],
    imported: int = toolcrib._IMPORTED,  # noqa: SLF001 -- as above
) -> EnvironmentFingerprint | None:
    """The environment as it is now; None where code changed after it was imported, so that older code runs.

    Args:
        targets: Where the modes lie: `module:class`.
        imported: When the code that runs was imported, at the earliest; in nanoseconds since 1970.
    """
    trail, own = Trail(), _own_code()
    for file in _files_of_modes(targets):
        trail.file(file)
    path = {folder: _entry(folder, trail) for folder in search_path()}
    others = trail.closed()
    code = Seen(own.files | others.files, own.contents | others.contents, {})
    around = EnvironmentFingerprint(toolcrib.__version__, code, path)
    return None if around.newest > imported - RACY else around


def _newest(code: Seen) -> int:
    return max((max(state[2:4]) for state in code.files.values() if state), default=0)


def search_path() -> list[str]:
    """Where modules and distributions are looked for, in order."""
    return list(dict.fromkeys(entry or "." for entry in sys.path))


def _entry(folder: str, trail: Trail) -> Entry:
    moment = time.time_ns()
    state = state_of(folder)
    distributions = _distributions(folder)
    if not os.path.isdir(folder):
        trail.file(folder)
    elif os.path.basename(folder) not in _SITES:
        # Where somebody works, entry points are written again without a trace in the folder.
        for name, _state in distributions:
            trail.file(os.path.join(folder, name, "entry_points.txt"))
    return (() if is_racy(state, moment) else state, distributions)


def _entry_now(folder: str, known: Entry, moment: int) -> Entry | None:
    """What is noted of a folder, brought up to date; None where something else is installed there."""
    state, distributions = known
    found = state_of(folder)
    if state and found == state:
        return known
    if _distributions(folder) != distributions:
        return None
    return (() if is_racy(found, moment) else found, distributions)


def _distributions(folder: str) -> Distributions:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_METADATA))
    except OSError:
        return ()
    return tuple((name, state_of(os.path.join(folder, name, "entry_points.txt"))) for name in names)


_OWN_CODE: list[Seen] = []


def _own_code() -> Seen:
    """The files of toolcrib. What runs does not change with them, so they are looked at once."""
    if not _OWN_CODE:
        _OWN_CODE.append(_look_at_own_code())
    return _OWN_CODE[0]


def _look_at_own_code() -> Seen:
    trail = Trail()
    for top in toolcrib.__path__:
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                trail.file(os.path.join(folder, name))
    return trail.closed()


def _files_of_modes(targets: Iterable[str]) -> Iterator[str]:
    """The files of the packages that modes of others lie in, and of what these use that is not installed."""
    tops = {target.partition(":")[0].partition(".")[0] for target in targets} - {toolcrib.__name__}
    left = [name for name in sys.modules if name.partition(".")[0] in tops]
    met = set(left)
    others = {toolcrib.__name__, *sys.stdlib_module_names}
    while left:
        module = sys.modules[left.pop()]
        file = getattr(module, "__file__", None)
        if file is not None:
            yield file
        # What is installed is noticed by its distribution, and what comes with Python by its version.
        used = {_home_of(value) for value in vars(module).values()}
        fresh = {name for name in used - met if name.partition(".")[0] not in others and _is_loose(name)}
        met |= fresh
        left += fresh


def _home_of(value: object) -> str:
    """The module that a value in a module is, or comes from."""
    home = value.__name__ if isinstance(value, type(sys)) else getattr(value, "__module__", None)
    return home if isinstance(home, str) else ""


def _is_loose(name: str) -> bool:
    """Whether a module lies in no folder of installed distributions."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not any(f"{os.sep}{site}{os.sep}" in file for site in _SITES)
