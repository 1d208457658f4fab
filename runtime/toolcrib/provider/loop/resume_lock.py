"""Who may go on with calls that wait, where several may try: each suspended conversation is resumed once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol


class Claim(Protocol):
    """Says who is the first to go on."""

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Whether nobody has asked for these before; then they belong to whoever asks now, for ever.

        It is asked when everything else about a resumption is right, and before any call is made. What it raises
        ends the resumption; nothing has happened then.

        Args:
            ids: `<conversation>/<call>@<event>` of each call that is answered: the same for whoever goes on from the
                same place, and another where the call waits once more.
        """
        ...


class FolderClaims:
    """Claims in a folder that threads, processes and machines may share: one file for each, made exclusively.

    A process that ends between its claim and the calls keeps it: they are then made at most once, not exactly once.
    Whoever knows that they were not made may remove their files, of which each has in it what it is for.

    Attributes:
        path: The folder; it is made with the first claim.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Whether no file of these was there.

        Raises:
            OSError: A file can't be made; none of them is left.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        made: list[Path] = []
        try:
            for id_ in sorted(ids):
                place = self.path / sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()
                _make(place, id_)
                made.append(place)
        except OSError as error:
            for place in made:
                place.unlink()
            if isinstance(error, FileExistsError):
                return False
            raise
        return True


def _make(place: Path, name: str) -> None:
    with place.open("x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{name}\n")
