"""Fingerprints of files and of the environment: detect whether anything that loading depended on has changed.

The warm start, reload and watching use them. Files are recorded before they are read, so a change during reading
counts as a change. Only metadata is compared, except for files that were modified within `RACY` before they were
recorded: they may be written again with the same time, so their content is compared as well. Changes are those of
content, size, times, inode, link target and existence. On systems without a change time (Windows), an edit that keeps
the size and restores the old modification time is not detected.

The environment is the code of toolcrib and of the modes, and the installed distributions. Distributions are tracked
by the folders on `sys.path`, without reading their metadata. `toolcrib list` imports this module, so it imports
nothing slow.
"""

from __future__ import annotations

import os
import sys
import time

import toolcrib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.metadata import EntryPoint
    from typing import TypeAlias

SUFFIXES = (".yaml", ".yml", ".json")
"""Files with these endings are looked at; their content decides what they are."""

ARCHIVE = ".zip"
"""A file with this ending is looked at for a pack."""

LINKED = "/@"
"""Suffix that marks the name of a symbolic link to a folder; such links are not followed."""

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
"""Folders that are skipped, in addition to those whose name starts with a dot."""

# Git calls this problem "racy": a file that is written twice within one tick keeps its times and, often, its size.
RACY = 2_000_000_000
"""Nanoseconds. The coarsest clock of a file system (FAT) ticks every two seconds."""

CONTENT_BYTES = 64 << 20
"""Maximum number of bytes that are compared; no document or data file may be larger."""

State: TypeAlias = tuple[int, ...]
"""Mode, size, times of modification and of change (in nanoseconds), inode and device; for a link, its own and then those
of its target. Empty for a missing or inaccessible file."""

Names: TypeAlias = tuple[str, ...] | None
"""The relevant names in a folder, sorted; folders end with `/`, links to folders with `LINKED`. None without a folder."""

DataPath: TypeAlias = "tuple[str, str, str]"
"""A path of a row file that names a variable: the document, the path as written, the variable."""

Permits: TypeAlias = "Callable[[str, str, str], bool]"
"""Decides whether a variable may be looked up for such a path."""

# Other names in a folder may come and go without a reload.
_READ = (*SUFFIXES, ARCHIVE)

_NOT_BLOCKING = getattr(os, "O_NONBLOCK", 0)

_NEVER = (0,) * 6
"""A state that no file has."""

# Copies of `stat.S_IFMT`, `S_IFLNK` and `S_IFREG`: `toolcrib list` imports this module, and every import counts.
_KIND, _LINK, _FILE = 0o170000, 0o120000, 0o100000


class FileFingerprints:
    """Fingerprints of files and folders as plain data: `FileFingerprints(*fingerprints)` is equal to `fingerprints`.

    Attributes:
        files: Path -> its state.
        contents: Path -> digest of the content, for files whose times are not reliable yet.
        folders: Path -> its state (empty if its times are not reliable yet), and the names in it. If the path ends
            with a slash, the folders in it are ignored.
        variables: Name of an environment variable that paths of files use -> its value; None if it is not set.
    """

    # Not a NamedTuple: creating such a class is slow, and every start imports this module.
    __slots__ = ("contents", "files", "folders", "variables")

    def __init__(
        self,
        files: dict[str, State],
        contents: dict[str, bytes],
        folders: dict[str, tuple[State, Names]],
        variables: dict[str, str | None] | None = None,
    ) -> None:
        self.files = files
        self.contents = contents
        self.folders = folders
        self.variables = variables or {}

    def __iter__(
        self,
    ) -> Iterator[
        dict[str, State] | dict[str, bytes] | dict[str, tuple[State, Names]] | dict[str, str | None]
    ]:
        return iter((self.files, self.contents, self.folders, self.variables))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileFingerprints) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # its dicts are mutable

    def unchanged(self) -> bool:
        """Whether nothing changed; stops at the first difference."""
        return self.refreshed() is not None

    def refreshed(self, now: Callable[[], int] = time.time_ns) -> FileFingerprints | None:
        """Equivalent fingerprints that are faster to compare next time; None if anything changed.

        Files that were not touched for `RACY` are compared by metadata only from then on. Returns itself if there is
        nothing to gain.

        Args:
            now: Returns nanoseconds since 1970.
        """
        # Taken before the comparison, like every time here: a change during it must count as later.
        moment = now()
        if any(os.environ.get(name) != value for name, value in self.variables.items()):
            return None
        if any(file_state(path) != state for path, state in self.files.items()):
            return None
        contents = {}
        for path, digest in self.contents.items():
            if _digest(path) != digest:
                return None
            if is_racy(self.files[path], moment):
                contents[path] = digest
        folders = {}
        for path, known in self.folders.items():
            found = _folder_now(path, known, moment)
            if found is None:
                return None
            if found is not known:
                folders[path] = found
        if not folders and len(contents) == len(self.contents):
            return self
        return FileFingerprints(self.files, contents, {**self.folders, **folders}, self.variables)

    def changed(self) -> list[str]:
        """The changed paths, sorted; for a folder, the paths of added and deleted entries."""
        paths = {path for path, state in self.files.items() if file_state(path) != state}
        paths.update(path for path, digest in self.contents.items() if _digest(path) != digest)
        for path, (_state_then, names) in self.folders.items():
            paths.update(_differing(path, names, _names(path)))
        return sorted(paths)


class FileTracker:
    """Records files and folders before they are read. The first record of a path counts.

    Attributes:
        data: Paths of row files that name a variable, in load order.
        permitted: Those whose variables are set and may be looked up.
        withheld: Those whose variables may not be looked up.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns, *, permits: Permits | None = None) -> None:
        """Create an empty tracker.

        Args:
            now: Returns nanoseconds since 1970.
            permits: Decides whether a variable may be looked up in a path of a document. Default: all may.
        """
        self._now = now
        self._permits = permits
        self.data: dict[DataPath, None] = {}
        self.permitted: dict[DataPath, None] = {}
        self.withheld: dict[DataPath, None] = {}
        self._files: dict[str, State] = {}
        self._contents: dict[str, bytes] = {}
        self._folders: dict[str, tuple[State, Names]] = {}
        self._variables: dict[str, str | None] = {}

    def variable(self, name: str) -> str | None:
        """Look up an environment variable; None if it is not set."""
        return self._variables.setdefault(name, os.environ.get(name))

    def names(self, source: str, path: str, name: str) -> None:
        """Record that a path names a variable, set or not; the arguments are those of `permits`."""
        self.data[source, path, name] = None

    def permits(self, source: str, path: str, name: str) -> bool:
        """Whether a variable that is set may be looked up in a path.

        Args:
            source: The document that contains the path.
            path: The path, as written.
            name: The variable.
        """
        if self._permits is None or self._permits(source, path, name):
            self.permitted[source, path, name] = None
            return True
        self.withheld[source, path, name] = None
        return False

    def file(self, path: str | os.PathLike[str]) -> None:
        """Record a file that is about to be read or looked for; it may be missing."""
        path = os.fspath(path)
        if path in self._files:
            return
        moment = self._now()
        state = self._files[path] = file_state(path)
        if is_racy(state, moment) and state[-6] & _KIND == _FILE:
            self._contents[path] = _digest(path)

    def anything(self, path: str) -> None:
        """Record a file, or a folder with the names in it, that is about to be read."""
        if os.path.isdir(path):
            self.folder(path, inner=False)
        else:
            self.file(path)

    def folder(self, path: str | os.PathLike[str], *, inner: bool = True) -> Names:
        """Record a folder and return the relevant names in it.

        Args:
            path: The folder.
            inner: Whether the folders in it are relevant, too.
        """
        path = os.fspath(path) if inner else os.path.join(path, "")
        if path not in self._folders:
            moment = self._now()
            state = file_state(path)
            names = _names(path)
            # An unlistable folder may become listable without a change of its metadata (for another user, say).
            self._folders[path] = (() if names is None or is_racy(state, moment) else state, names)
            self._note_links(path, names)
        return self._folders[path][1]

    def _note_links(self, folder: str, names: Names) -> None:
        # The target of a link can change between file and folder without a change in the folder of the link.
        for name in names or ():
            if name.endswith(_READ) and os.path.islink(path := os.path.join(folder, name)):
                self.file(path)

    def torn(self, path: str | os.PathLike[str]) -> None:
        """Mark a path as changed, because its content was inconsistent while it was read."""
        self._files[os.fspath(path)] = _NEVER

    def closed(self) -> FileFingerprints:
        """The fingerprints of everything recorded so far."""
        return FileFingerprints(
            dict(self._files), dict(self._contents), dict(self._folders), dict(self._variables)
        )


def file_state(path: str) -> State:
    """The state of a file or folder."""
    try:
        own = os.lstat(path)
        state = (own.st_mode, own.st_size, own.st_mtime_ns, own.st_ctime_ns, own.st_ino, own.st_dev)
    except (OSError, ValueError):
        return ()
    if own.st_mode & _KIND != _LINK:
        return state
    try:
        end = os.stat(path)
    except OSError:
        return state
    return (*state, end.st_mode, end.st_size, end.st_mtime_ns, end.st_ctime_ns, end.st_ino, end.st_dev)


def is_racy(state: State, moment: int) -> bool:
    """Whether a later change may keep the same times. Times in the future are not reliable either."""
    return any(max(state[at + 2 : at + 4]) > moment - RACY for at in range(0, len(state), 6))


def _digest(path: str) -> bytes:
    """Digest of a file's content; empty if it is unreadable."""
    # Deferred: `hashlib` loads OpenSSL, and most starts need no digest.
    from hashlib import blake2b  # noqa: PLC0415

    try:
        with open(path, "rb", opener=_open_at_once) as file:
            return blake2b(file.read(CONTENT_BYTES + 1) or b"", digest_size=16).digest()
    except OSError:
        return b""


def _open_at_once(path: str, flags: int) -> int:
    # Opening a named pipe that replaced a file would block until it has a writer.
    return os.open(path, flags | _NOT_BLOCKING)


def _names(folder: str) -> Names:
    try:
        with os.scandir(folder) as entries:
            names = sorted(_names_that_matter(entries))
    except (OSError, ValueError):
        return None
    if folder.endswith(("/", os.sep)):
        return tuple(name for name in names if "/" not in name)
    return tuple(names)


def _names_that_matter(entries: Iterator[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        name = entry.name
        # Editors save through hidden temporary files, which would cause reloads.
        if name.startswith("."):
            continue
        if name.endswith(_READ) and not entry.is_dir(follow_symlinks=False):
            yield name
        elif name in SKIPPED_FOLDERS:
            continue
        elif entry.is_dir(follow_symlinks=False):
            yield f"{name}/"
        elif entry.is_symlink() and entry.is_dir():
            yield f"{name}{LINKED}"


def _folder_now(path: str, known: tuple[State, Names], moment: int) -> tuple[State, Names] | None:
    """The current fingerprint of a folder; None if the names in it changed."""
    state, names = known
    found = file_state(path)
    if state and found == state:
        return known
    if _names(path) != names:
        return None
    fresh = () if names is None or is_racy(found, moment) else found
    return known if fresh == state else (fresh, names)


def _differing(folder: str, before: Names, after: Names) -> Iterator[str]:
    if (before is None) != (after is None):
        yield folder
    for name in {*(before or ())} ^ {*(after or ())}:
        yield os.path.join(folder, name.partition("/")[0])


_METADATA = (".dist-info", ".egg-info")
_SITES = ("site-packages", "dist-packages")

Distributions: TypeAlias = tuple[tuple[str, State], ...]
"""Metadata folder of each distribution and the state of its entry points, sorted."""

Entry: TypeAlias = tuple[State, Distributions]
"""A folder on `sys.path`: its state (empty if its times are not reliable yet), and the distributions in it."""


class EnvironmentFingerprint:
    """The code and distributions that, together with the documents, determine the result of loading.

    Attributes:
        version: The version of toolcrib.
        code: The files of toolcrib and of third-party modes.
        path: The entries of `sys.path`.
        newest: Time of the last change of the code, in nanoseconds since 1970; stored because computing it takes
            longer than reading it.
    """

    __slots__ = ("code", "newest", "path", "version")

    def __init__(
        self, version: str, code: FileFingerprints, path: dict[str, Entry], newest: int | None = None
    ) -> None:
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

    __hash__ = None  # type: ignore[assignment]  # its dicts are mutable

    def refreshed(self, imported: int = toolcrib._IMPORTED) -> EnvironmentFingerprint | None:  # noqa: SLF001 -- only fingerprints need it
        """An equivalent fingerprint that is faster to compare next time; None if anything changed.

        Args:
            imported: Earliest time at which the running code was imported, in nanoseconds since 1970.
        """
        # Code that was saved within the resolution of the clock before its import may differ from what was
        # imported.
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
    """The current environment; None if code changed after it was imported, so that the process runs older code.

    Args:
        targets: The modes, as `module:class`.
        imported: Earliest time at which the running code was imported, in nanoseconds since 1970.
    """
    trail, own = FileTracker(), _own_code()
    for file in _files_of_modes(targets):
        trail.file(file)
    path = {folder: _entry(folder, trail) for folder in search_path()}
    others = trail.closed()
    code = FileFingerprints(own.files | others.files, own.contents | others.contents, {})
    around = EnvironmentFingerprint(toolcrib.__version__, code, path)
    return None if around.newest > imported - RACY else around


def _newest(code: FileFingerprints) -> int:
    return max((max(state[2:4]) for state in code.files.values() if state), default=0)


def search_path() -> list[str]:
    """The folders that are searched for modules and distributions, in order."""
    return list(dict.fromkeys(entry or "." for entry in sys.path))


def _entry(folder: str, trail: FileTracker) -> Entry:
    moment = time.time_ns()
    state = file_state(folder)
    distributions = _distributions(folder)
    if not os.path.isdir(folder):
        trail.file(folder)
    elif os.path.basename(folder) not in _SITES:
        # In a development checkout, `pip install -e` rewrites entry points without changing the folder.
        for name, _state in distributions:
            trail.file(os.path.join(folder, name, "entry_points.txt"))
    return (() if is_racy(state, moment) else state, distributions)


def _entry_now(folder: str, known: Entry, moment: int) -> Entry | None:
    """The current fingerprint of a folder; None if the distributions in it changed."""
    state, distributions = known
    found = file_state(folder)
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
    return tuple((name, _entry_points_state(folder, name)) for name in names)


def _entry_points_state(folder: str, distribution: str) -> State:
    return file_state(os.path.join(folder, distribution, "entry_points.txt"))


def installed_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, in all installed distributions.

    The metadata of a hundred distributions takes 40 ms to read, so a process that opens many runtimes, such as a test suite, reads
    it again only after a distribution was installed, removed or rewritten.
    """
    from importlib import metadata  # noqa: PLC0415 -- slow to import, and the index already has the names of the modes

    read, moment = metadata.entry_points, time.time_ns()
    known_read, known, points = _ENTRY_POINTS.get(group, (None, {}, ()))
    # Looked at before anything is read: what is installed meanwhile is found the next time.
    now = {folder: _installed_in(folder, known.get(folder), moment) for folder in search_path()}
    same = [*known] == [*now] and all(entry[1] == known[folder][1] for folder, entry in now.items())
    if known_read != read or not same:
        points = tuple(read(group=group))
    _ENTRY_POINTS[group] = read, now, points
    return points


def _installed_in(folder: str, known: Entry | None, moment: int) -> Entry:
    """The current fingerprint of a folder."""
    state = file_state(folder)
    if known is not None and known[0] and known[0] == state:
        site, distributions = os.path.basename(folder) in _SITES, known[1]
        # As in `_entry`: entry points of a checkout are rewritten without changing the folder.
        if site or all(_entry_points_state(folder, name) == told for name, told in distributions):
            return known
    return (() if is_racy(state, moment) else state, _distributions(folder))


_ENTRY_POINTS: dict[str, tuple[object, dict[str, Entry], tuple[EntryPoint, ...]]] = {}
"""Group -> how and from which distributions of which folders it was read, and its entry points."""

_OWN_CODE: list[FileFingerprints] = []


def _own_code() -> FileFingerprints:
    """The files of toolcrib, examined once: the running code does not change when they do."""
    if not _OWN_CODE:
        _OWN_CODE.append(_look_at_own_code())
    return _OWN_CODE[0]


def _look_at_own_code() -> FileFingerprints:
    trail = FileTracker()
    for top in toolcrib.__path__:
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                trail.file(os.path.join(folder, name))
    return trail.closed()


def _files_of_modes(targets: Iterable[str]) -> Iterator[str]:
    """The files of the packages of third-party modes, and of the modules they use that are not installed."""
    # A mode's behaviour may be in any module of its package, not only in the one of the entry point.
    tops = {target.partition(":")[0].partition(".")[0] for target in targets} - {toolcrib.__name__}
    left = [name for name in sys.modules if name.partition(".")[0] in tops]
    met = set(left)
    others = {toolcrib.__name__, *sys.stdlib_module_names}
    while left:
        module = sys.modules[left.pop()]
        file = getattr(module, "__file__", None)
        if file is not None:
            yield file
        # Installed modules are tracked by their distribution; the version of Python is part of the index key.
        used = {_home_of(value) for value in vars(module).values()}
        fresh = {name for name in used - met if name.partition(".")[0] not in others and _is_loose(name)}
        met |= fresh
        left += fresh


def _home_of(value: object) -> str:
    """The name of the module that a value is or comes from."""
    home = value.__name__ if isinstance(value, type(sys)) else getattr(value, "__module__", None)
    return home if isinstance(home, str) else ""


def _is_loose(name: str) -> bool:
    """Whether a module is outside all folders of installed distributions."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not any(f"{os.sep}{site}{os.sep}" in file for site in _SITES)
