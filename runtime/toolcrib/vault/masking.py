"""Everything that is secret in a run, to be masked wherever it turns up and however it is written."""

from __future__ import annotations

import re
from typing import Final

from toolcrib.secrets import HIDDEN, SeenSecrets
from toolcrib.vault.escapes import without_escapes
from toolcrib.vault.spelling import Spelling

_ESCAPES: Final = re.compile(r"[%\\\\&]")

_PASSING: Final = 128
"""How many secrets are remembered of the kind that is made anew."""


class Masks(SeenSecrets):
    """Secrets that are known again in every encoding: plain, in URLs, base64, escaped for JSON, `repr` or HTML."""

    def __init__(self) -> None:
        super().__init__()
        self._passing: dict[str, None] = {}
        self._spellings: dict[str, Spelling] = {}

    def register(self, secret: str, *, passing: bool = False) -> None:
        """Mask this text from now on. The empty text is none.

        Args:
            secret: One of less than four characters is known only where it is a whole value.
            passing: Whether others will follow it, as with signatures and tokens; of these, only those that were
                registered last are remembered.
        """
        if secret in {"", HIDDEN} or (secret in self._scalars and secret not in self._passing):
            return
        if passing:
            self._passing.pop(secret, None)
            self._passing[secret] = None
            if len(self._passing) > _PASSING:
                self._forget(next(iter(self._passing)))
        else:
            self._passing.pop(secret, None)
        self._scalars.add(secret)
        if len(self._scalars) == 1:
            from toolcrib.vault.logs import mask_logs_of  # noqa: PLC0415 -- a run without secrets logs as it is

            mask_logs_of(self)

    def _forget(self, secret: str) -> None:
        del self._passing[secret]
        self._scalars.discard(secret)
        self._spellings = {key: each for key, each in self._spellings.items() if key != secret}

    def knows(self, raw: bytes) -> bool:
        r"""Whether a secret may stand in these bytes, in any encoding: quick, for bodies that most often have none.

        An escape with a number (`\u0041`, `\x41`) may be a part of one; then the answer is yes.
        """
        if not self._scalars:
            return False
        if b"\\u" in raw or b"\\x" in raw:
            return True
        return any(needle in raw for spelling in self._known().values() for needle in spelling.needles)

    def hide_in_text(self, text: str) -> str:
        """The text with `***` in place of every secret."""
        if text in self._scalars:
            return HIDDEN
        known = self._known().values()
        spans = [span for each in known for writing in each.writings for span in writing.spans_in(text)]
        if known and _ESCAPES.search(text) is not None:
            plain = without_escapes(text)
            found = (
                span for each in known for writing in each.plain for span in writing.spans_in(plain.text)
            )
            spans += [plain.before(*span) for span in found]
        return _without(text, spans) if spans else text

    def _known(self) -> dict[str, Spelling]:
        """The spelling of each secret."""
        if len(self._spellings) != len(self._scalars):
            known = self._spellings
            self._spellings = {
                secret: known.get(secret) or Spelling(secret) for secret in tuple(self._scalars)
            }
        return self._spellings


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with `***` in place of each span; of spans that overlap, in place of all of them."""
    pieces = []
    position = 0
    for start, end in sorted(spans):
        if start >= position:
            pieces.append(text[position:start])
        position = max(position, end)
    return HIDDEN.join([*pieces, text[position:]])
