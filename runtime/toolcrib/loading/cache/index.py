"""From paths to what was kept of them, and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from toolcrib.loading.cache.fingerprint import Surroundings, look_around
from toolcrib.loading.cache.header import UNREADABLE, Listings, head_of, index_folder
from toolcrib.loading.cache.snapshot_codec import Profiles, Recalled, encode
from toolcrib.loading.cache.store import Cabinet
from toolcrib.loading.snapshot import Stock


def default_index() -> Index | None:
    """The index in the user's cache folder; None where it is turned off, or there is no such folder."""
    folder = index_folder()
    return Index(folder) if folder is not None else None


class Index:
    """Stocks that were kept. Several processes may read and write at once."""

    def __init__(
        self, folder: str, around: Callable[[Iterable[str]], Surroundings | None] = look_around
    ) -> None:
        """Use a folder; it is made when something is written.

        Args:
            folder: Where the files of indexes lie.
            around: What judges documents now: from where the modes lie to the surroundings.
        """
        self._cabinet = Cabinet(folder)
        self._around = around

    def file(self, key: bytes) -> str:
        """Where that which is kept under a key lies, or would lie."""
        return self._cabinet.path(key)

    def why_unused(self) -> str:
        """Why nothing is kept or recalled, as the end of a sentence about a file; empty if indexes are used."""
        return self._cabinet.why_unused()

    def recall(self, key: bytes) -> Recalled | None:
        """What was kept under a key, if nothing that it came from is different now."""
        try:
            body = self._cabinet.read(key)
            if body is None:
                return None
            head, parts = head_of(body)
            fresh = head.refreshed()
            if fresh is None:
                return None
            recalled = Recalled(fresh, parts)
        except UNREADABLE as error:
            _tell("an index was not read", error)
            return None
        if fresh.doubts < head.doubts:
            self._write(key, *fresh.encoded(parts))
        return recalled

    def keep(
        self,
        key: bytes,
        stock: Stock,
        targets: Mapping[str, str],
        profiles: Profiles,
        *,
        built_in: Collection[str] = (),
        listings: Listings | None = None,
    ) -> None:
        """Keep a stock, if all of it can be told as plain data.

        Args:
            key: What it was read for.
            stock: What reading and linking came to, before any profile is applied.
            targets: Where the modes lie that judged it: mode -> `module:class`.
            profiles: What its project puts in force.
            built_in: The modes that are toolcrib's own.
            listings: What a list shows; None where it has more to tell than tools.
        """
        from toolcrib.loading.cache_codec import Unkept  # noqa: PLC0415 -- a start from an index reads no documents

        around = self._around(targets.values())
        if around is None:
            _tell("no index was written", "code was changed after it was imported")
            return
        try:
            modes = {mode: mode in built_in for mode in targets}
            written = encode(around, stock, modes, profiles, listings=listings)
        except (Unkept, ValueError) as error:
            _tell("no index was written", error)
            return
        self._write(key, *written)

    def _write(self, key: bytes, body: bytes, beginning: int) -> None:
        try:
            self._cabinet.write(key, body, beginning)
        except OSError as error:
            _tell("an index was not written", error)


def profiles_of(stock: Stock) -> Profiles:
    """What the project of a stock puts in force, under each of its profiles."""
    from toolcrib.loading.projects import settings_of  # noqa: PLC0415 -- as above

    project = stock.project
    if project is None:
        return Profiles(settings_of(None), None)
    named = {name: settings_of(project, name) for name in project.profiles}
    return Profiles(settings_of(project), MappingProxyType(named))


def _tell(what: str, why: object) -> None:
    import logging  # noqa: PLC0415 -- a start from an index has nothing to tell

    logging.getLogger("toolcrib").debug("%s: %s", what, why)
