"""Store trust decisions: one small file each, in the user's state folder and never in a repository.

The file name consists of the workspace and the hash of the needs. Two processes that decide at the same time
keep both decisions, and a return to earlier needs causes no new prompt. Folders and files are ignored if
other users own them or may write to them, or if they may have come with a repository.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from toolcrib.core.user_folders import (
    STATE_VARIABLE,
    find_work_tree,
    open_regular,
    state_folder,
    why_not_own,
    why_writable_by_others,
)
from toolcrib.security.trust_needs import Need, hash_of

_FORMAT: Final = 1
_LARGEST: Final = 16 << 20
_ENDING: Final = ".json"


class Decision(NamedTuple):
    """A user's agreement to the needs of a workspace.

    Attributes:
        root: The folder or file of the workspace, absolute, with links resolved.
        hash: Hash of the needs.
        needs: The needs that the user agreed to.
        kind: Kind of the workspace: `project`, `folder`, `pack` or `servers`.
        when: Time of the decision in UTC, in ISO 8601 format.
        who: Names of the user and the machine: `ann@laptop`.
        how: The command that stored it (`toolcrib trust` or `toolcrib init`), or `prompt`.
    """

    root: str
    hash: str
    needs: tuple[Need, ...]
    kind: str
    when: str
    who: str
    how: str

    @classmethod
    def of(cls, root: str, kind: str, needs: Sequence[Need], *, when: datetime, how: str) -> Decision:
        """Make a decision on needs, by the current user."""
        return cls(
            root, hash_of(needs), tuple(needs), kind, when.isoformat(timespec="seconds"), current_user(), how
        )

    def as_json(self) -> dict[str, Any]:
        """Return the decision as a JSON object."""
        return {**self._asdict(), "needs": [each.as_json() for each in self.needs]}


def current_user() -> str:
    """The names of the user and the machine: `ann@laptop`."""
    try:
        name = getpass.getuser()
    # A user ID without a name is common in containers: OSError since Python 3.13, before it KeyError, or
    # ImportError on Windows.
    except (KeyError, OSError, ImportError):
        name = f"user {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{name}@{platform.node()}"


def default_store() -> DecisionStore:
    """Return the store in the user's state folder. If the system defines none, it is empty and read-only."""
    folder = state_folder()
    return DecisionStore("" if folder is None else os.path.join(folder, "trust"))


class DecisionStore:
    """Decisions in a folder.

    Attributes:
        folder: The path of the folder; empty for no folder.
        problems: The faults of ignored folders and files, one sentence each.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.problems: list[str] = []

    def agreed(self, roots: Iterable[str]) -> list[Decision]:
        """List the decisions on some workspaces, the newest first."""
        names = {_digest_of(root): root for root in roots}
        found = [
            decision
            for name in self._names()
            if (root := names.get(name.partition("-")[0])) is not None
            and (decision := self._read(name)) is not None
            and decision.root == root
        ]
        return sorted(found, key=lambda each: each.when, reverse=True)

    def with_hash(self, digest: str) -> list[Decision]:
        """List the decisions on needs with this hash, of all workspaces."""
        ending = f"-{digest[:_SHORT]}{_ENDING}"
        read = [self._read(name) for name in self._names() if name.endswith(ending)]
        return [each for each in read if each is not None and each.hash == digest]

    def everything(self) -> list[Decision]:
        """List all decisions, sorted by workspace, the newest first."""
        read = [self._read(name) for name in self._names()]
        newest = sorted((each for each in read if each is not None), key=lambda each: each.when, reverse=True)
        return sorted(newest, key=lambda each: each.root)

    def add(self, decision: Decision) -> None:
        """Store a decision atomically.

        Raises:
            OSError: The folder is not the user's own, or cannot be written.
        """
        if not self.folder:
            raise OSError(f"no folder for trust decisions; set {STATE_VARIABLE} to a folder")
        fault = self._fault()
        if not fault:
            # Two calls, because `makedirs` applies its mode only to the last folder.
            os.makedirs(os.path.dirname(self.folder), mode=0o700, exist_ok=True)
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            # Again: another user may have created the folder in the meantime.
            fault = self._fault()
        if fault:
            raise PermissionError(fault)
        path = self._path(_name_of(decision))
        draft = f"{path}.{os.getpid()}.{os.urandom(6).hex()}.draft"
        text = json.dumps({"format": _FORMAT, **decision.as_json()}, indent=1)
        # O_EXCL follows no symbolic link, and `os.replace` is atomic: a reader never sees half a decision.
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(draft, path)
        except OSError:
            os.unlink(draft)
            raise

    def remove(self, root: str) -> int:
        """Remove all decisions on a workspace and return their number.

        Raises:
            OSError: A decision cannot be removed.
        """
        names = [name for name in self._names() if name.partition("-")[0] == _digest_of(root)]
        for name in names:
            os.unlink(self._path(name))
        return len(names)

    def _names(self) -> Iterator[str]:
        """The names of the decision files; empty if the folder is ignored."""
        if not self.folder:
            return
        try:
            fault = self._fault()
            names = sorted(os.listdir(self.folder)) if not fault else []
        except FileNotFoundError:
            return
        except OSError as error:
            fault, names = f"cannot read {self.folder}: {error.strerror}", []
        if fault:
            self._tell(fault)
        yield from (name for name in names if name.endswith(_ENDING))

    def _fault(self) -> str:
        """Why the folder is ignored; empty if it is usable or does not exist yet.

        Raises:
            OSError: It cannot be inspected.
        """
        # A repository could bring a decision on itself in a folder of its work tree.
        state = os.path.dirname(self.folder)
        top = find_work_tree(self.folder)
        if top:
            why = f": it is inside the work tree {top}; set {STATE_VARIABLE} to a folder outside of it"
        elif why_not := why_not_own(state):
            why = f" because of the folder {state}: {why_not}"
        elif why_not := why_not_own(self.folder, links=False):
            why = f": {why_not}"
        else:
            return ""
        return f"the trust store {self.folder} is ignored{why}"

    def _read(self, name: str) -> Decision | None:
        path = self._path(name)
        try:
            with open(path, "rb", opener=open_regular) as file:
                # The open file, not the path: the path may be replaced between the check and the read.
                about = os.fstat(file.fileno())
                why = why_writable_by_others(about) if stat.S_ISREG(about.st_mode) else "it is not a file"
                raw = b"" if why else file.read(_LARGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            why, raw = f"cannot read it: {error.strerror}", b""
        decision = None if why else _parsed(raw)
        if decision is None or _name_of(decision) != name:
            self._tell(f"the trust decision {path} is ignored: {why or 'it is corrupt'}")
            return None
        return decision

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _parsed(raw: bytes) -> Decision | None:
    """Parse a decision file; None if it is invalid or incomplete."""
    try:
        said = json.loads(raw)
        if said.pop("format") != _FORMAT:
            return None
        needs = tuple(
            Need(**{**each, "details": tuple(each["details"]), "users": tuple(each["users"])})
            for each in said.pop("needs")
        )
        decision = Decision(needs=needs, **said)
    # The file may contain any JSON: a list, an unknown key, a need without details, deeply nested lists.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    texts = (decision.root, decision.hash, decision.kind, decision.when, decision.who, decision.how)
    digests = [each.digest for each in needs]
    if not all(isinstance(text, str) for text in (*texts, *digests)) or hash_of(needs) != decision.hash:
        return None
    return decision


_SHORT: Final = 24


def _digest_of(root: str) -> str:
    return hashlib.sha256(root.encode("utf-8", "surrogateescape")).hexdigest()[:_SHORT]


def _name_of(decision: Decision) -> str:
    return f"{_digest_of(decision.root)}-{decision.hash[:_SHORT]}{_ENDING}"
