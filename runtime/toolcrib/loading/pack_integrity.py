"""Check packs against the lock: the files of an installed pack, its signature, and the publisher that the user trusts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.core.errors import Problem
from toolcrib.loading.documents.files import SKIPPED_FOLDERS

if TYPE_CHECKING:
    from toolcrib.loading.fingerprints import FileTracker
    from toolcrib.loading.packs import Pack
    from toolcrib.security.trust_decisions import DecisionStore
    from toolcrib.servers.lock import LockedPack


def names_in(folder: Path) -> Iterator[str]:
    """Yield the paths of all files of a pack in a folder, relative to it and with `/`, without hidden ones."""
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
        for name in names:
            path = Path(here, name)
            if not name.startswith(".") and path.is_file():
                yield path.relative_to(folder).as_posix()


def files_in(folder: Path, trail: FileTracker | None = None) -> dict[str, bytes]:
    """The files of a pack in a folder: path with `/` -> content.

    Args:
        folder: The folder of the pack.
        trail: Records the files before they are read, and the folders.

    Raises:
        OSError: A file cannot be read.
    """
    contents = {}
    if trail is not None:
        # Recorded like files: a folder changes with every file that is added, also with one that is no document.
        for path in {folder, *((folder / name).parent for name in names_in(folder))}:
            trail.file(path)
    for name in sorted(names_in(folder)):
        path = folder / name
        if trail is not None:
            trail.file(path)
        contents[name] = path.read_bytes()
    return contents


class LockedPacks:
    """The packs of a lock file.

    Args:
        source: The lock file, as it is named in problems.
        packs: Name of a pack -> locked pack.
        store: The trust decisions of the user.
    """

    def __init__(self, source: str, packs: Mapping[str, LockedPack], store: DecisionStore) -> None:
        self._source = source
        self._packs = packs
        self._store = store

    @property
    def names(self) -> Collection[str]:
        """Names of the packs."""
        return self._packs.keys()

    def problem(self, pack: Pack, contents: Callable[[], Mapping[str, bytes]]) -> Problem | None:
        """Why a pack is refused; None if it is as it was locked, or if it is not locked.

        Args:
            pack: The pack.
            contents: Returns its files: path with `/` -> content.
        """
        locked = self._packs.get(pack.name)
        if locked is None:
            return None
        found = self._fault(pack, locked, contents)
        return (
            None
            if found is None
            else found._replace(pointer="/name").at(pack.origin.source, *pack.origin.locate("/name"))
        )

    def _fault(
        self, pack: Pack, locked: LockedPack, contents: Callable[[], Mapping[str, bytes]]
    ) -> Problem | None:
        from toolcrib.security.pack_signatures import (  # noqa: PLC0415 -- few projects have installed packs
            SigningError,
            hash_of_files,
            signature_fault,
            signature_of,
        )

        review = (
            "restore its files, or remove its folder and install the pack again with `toolcrib pack install`"
        )
        try:
            files = contents()
        except OSError as error:
            message = f"the files of the pack `{pack.name}` cannot be compared with {self._source}: {error}"
            return Problem(code="file_unreadable", message=message)
        found = hash_of_files(files)
        if found != locked.hash:
            message = (
                f"the files of the pack `{pack.name}` were changed: {self._source} locks version {locked.version} "
                f"with {locked.hash}, and they have {found}"
            )
            return Problem(code="pack_changed", message=message, hint=review)
        if not locked.key:
            return publisher_problem(self._store, pack.name, "")
        signature = signature_of(files)
        key = signature.key if signature is not None else ""
        if key != locked.key:
            by = f"signed with {key}" if key else "not signed"
            message = f"the pack `{pack.name}` is {by}, and {self._source} expects the key {locked.key}"
            return Problem(code="unknown_signer", message=message, hint=review)
        try:
            why = signature_fault(pack.name, pack.version, files)
        except SigningError as error:
            message = f"the signature of the pack `{pack.name}` cannot be checked: {error.message}"
            return Problem(code=error.code, message=message, hint=error.hint)
        if why:
            message = f"the signature of the pack `{pack.name}` is not valid: {why}"
            return Problem(code="invalid_signature", message=message, hint=review)
        return publisher_problem(self._store, pack.name, key)


def publisher_problem(store: DecisionStore, pack: str, key: str) -> Problem | None:
    """The alarm for a pack whose publisher is not the one that the user trusts; None without such a decision.

    Args:
        store: The decisions of the user.
        pack: Name of the pack.
        key: The key of its signature; empty for a pack that is not signed.
    """
    from toolcrib.security.pack_signatures import key_of, trusted_key  # noqa: PLC0415 -- as above

    known = trusted_key(store, pack)
    if known is None or key_of(known) == key:
        return None
    now = f"is signed with {key}" if key else "is not signed"
    message = (
        f"the publisher of the pack `{pack}` has changed: it {now}, and you trust {key_of(known)} for it "
        f"(since {known.when})"
    )
    hint = "ask the publisher over another channel whether this is intended" + (
        f"; then accept it with `toolcrib pack install --trust-key {key}`" if key else ""
    )
    return Problem(code="publisher_changed", message=message, hint=hint)
