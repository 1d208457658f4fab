"""Everything that is secret in a run, to be masked wherever it turns up and however it is written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from toolcrib.security.redaction import HIDDEN, SeenSecrets
from toolcrib.security.secrets.secret_encodings import Spelling, squeezed
from toolcrib.security.secrets.unescape import without_escapes

_ESCAPES: Final = re.compile(r"[%\\\\&\0]")

_PERCENT: Final = re.compile(rb"%[0-9a-fA-F]{2}")
_ROW_OF_ESCAPES: Final = re.compile(rb"(?:[%&\\][#ux]?[0-9a-zA-Z]{2,8};?){3}")
"""What bytes that are no text have by chance less often than one escape alone."""

_CONTROL: Final = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")

_NUMBERED: Final = re.compile(rb"\\[ux]")
_FULL_WIDTH: Final = re.compile(rb"\xef(?:\xbc[\x90-\x99\xa1-\xba]|\xbd[\x81-\x9a])")
_MATHEMATICAL: Final = re.compile(rb"\xf0\x9d[\x90-\x9f]")
"""Letters and digits that are folded to those of ASCII, a whole alphabet of them."""

NAMED: Final = 6
"""Characters from which on a secret is looked for in names that programs go by."""

_PASSING: Final = 128
"""How many secrets are remembered of the kind that is made anew."""

_OWN: Final[ContextVar[dict[str, Spelling] | None]] = ContextVar("secrets of this call", default=None)


@contextmanager
def one_call() -> Iterator[None]:
    """What is registered within as passing is masked until its end, and by nobody else."""
    token = _OWN.set({**(_OWN.get() or {})})
    try:
        yield
    finally:
        _OWN.reset(token)


class Masks(SeenSecrets):
    """Secrets that are known again however they are written: plain, in URLs, base64, escaped for JSON, `repr` or HTML.

    What is left of a text without case, separators and unseen characters (`fold`) is looked through, too: for the
    secret in capitals, spaced or wrapped over lines, in wrapped base64, in hexadecimal. What is looked for so has eight
    characters or more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passing: dict[str, None] = {}
        self._spellings: dict[str, Spelling] = {}
        self._in_logs = False

    def register(self, secret: str, *, passing: bool = False) -> None:
        """Mask this text from now on. The empty text is none.

        Args:
            secret: One of less than four characters is known only where it is a whole value.
            passing: Whether others will follow it, as with signatures and tokens: it is remembered until the end of
                the call that registers it (see `one_call`). Outside of a call only the last of these are.
        """
        if secret in {"", HIDDEN} or (secret in self._scalars and secret not in self._passing):
            return
        own = _OWN.get() if passing else None
        if own is not None:
            own[secret] = own.get(secret) or Spelling(secret)
        elif passing:
            self._passing.pop(secret, None)
            self._passing[secret] = None
            self._scalars.add(secret)
            if len(self._passing) > _PASSING:
                self._forget(next(iter(self._passing)))
        else:
            self._passing.pop(secret, None)
            self._scalars.add(secret)
        if not self._in_logs:
            from toolcrib.security.secrets.log_filter import mask_logs_of  # noqa: PLC0415 -- a run without secrets logs as it is

            mask_logs_of(self)
            self._in_logs = True

    def _forget(self, secret: str) -> None:
        del self._passing[secret]
        self._scalars.discard(secret)
        self._spellings = {key: each for key, each in self._spellings.items() if key != secret}

    def knows(self, raw: bytes) -> bool:
        r"""Whether a secret may stand in these bytes of a text in UTF-8: quick, as most often there is none.

        An escape with a number (`%41`, `&#65;`, `\u0041`, `\x41`) may be a part of one, and so may a full-width letter,
        and NUL, which texts in UTF-16 are full of; then the answer is yes.
        """
        known = self._known()
        return bool(known) and (_is_escaped(raw) or bool(_near(raw, known)))

    def is_in(self, raw: bytes) -> bool:
        """Whether a secret stands in these bytes, which may be of any kind: a text, an image, an archive."""
        known = self._known()
        if not known:
            return False
        bare = raw.translate(None, b"\0")
        escaped = _is_escaped(bare) if _CONTROL.search(bare) is None else _ROW_OF_ESCAPES.search(bare)
        if not escaped and not _near(bare, known):
            return False
        texts = (bare.decode("latin-1"), bare.decode(errors="replace"))
        return any(self.hide_in_text(text) != text for text in texts)

    def hide_in_name(self, name: str) -> str:
        """A name that programs go by, such as a tool's or a property's, with `***` in place of long secrets.

        A short one, such as the user name `root`, stands in names by chance, and a masked name can't be used.
        """
        return self._hidden(name, NAMED) if len(name) >= NAMED else name

    def hide_in_text(self, text: str) -> str:
        """The text with `***` in place of every secret."""
        return self._hidden(text, 0)

    def _hidden(self, text: str, least: int) -> str:
        """The text with `***` in place of every secret of at least so many characters."""
        if self._sees(text):
            return HIDDEN
        known = [each for each in self._known() if each.shortest <= len(text) and each.length >= least]
        if not known:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        near = known if _is_escaped(raw) else _near(raw, known)
        spans = _spans(text, near) if near else []
        return _without(text, spans) if spans else text

    def _known(self) -> Collection[Spelling]:
        """The spelling of each secret."""
        if len(self._spellings) != len(self._scalars):
            known = self._spellings
            self._spellings = {
                secret: known.get(secret) or Spelling(secret) for secret in tuple(self._scalars)
            }
        own = _OWN.get()
        if not own:
            return self._spellings.values()
        more = [each for secret, each in own.items() if secret not in self._scalars]
        return [*self._spellings.values(), *more]

    def _sees(self, text: str) -> bool:
        return text in self._scalars or text in (_OWN.get() or ())

    def _sees_any(self) -> bool:
        return bool(self._scalars or _OWN.get())


def _is_escaped(raw: bytes) -> bool:
    """Whether a quick look misses some characters: there are escapes with numbers, or letters of full width.

    One character is found much faster than several.
    """
    if b"\0" in raw:
        return True
    if b"\\" in raw and _NUMBERED.search(raw) is not None:
        return True
    if (b"&" in raw and b"&#" in raw) or (b"%" in raw and _PERCENT.search(raw) is not None):
        return True
    if raw.isascii():
        return False
    wide = b"\xef" in raw and _FULL_WIDTH.search(raw) is not None
    return wide or (b"\xf0" in raw and _MATHEMATICAL.search(raw) is not None)


def _near(raw: bytes, known: Iterable[Spelling]) -> list[Spelling]:
    """The secrets that may stand in a text that is not escaped."""
    contains = squeezed(raw).__contains__
    if b"%" in raw or b"&" in raw or b"\\" in raw or b"~" in raw:
        return [each for each in known if any(map(contains, each.runs))]
    return [each for each in known if any(map(contains, each.needles))]


def _spans(text: str, near: Collection[Spelling]) -> list[tuple[int, int]]:
    """Where secrets stand: as they are written, behind escapes, and where neither case nor spacing counts."""
    from toolcrib.security.secrets.text_folds import Folded  # noqa: PLC0415 -- most texts hold nothing that is near a secret

    folded = Folded(text)
    spans = [span for each in near for writing in each.writings for span in writing.spans_in(text)]
    spans += [span for each in near for writing in each.folded for span in writing.spans_before(folded)]
    if _ESCAPES.search(text) is None:
        return spans
    plain = without_escapes(text)
    folded = Folded(plain.text)
    behind = [span for each in near for writing in each.plain for span in writing.spans_in(plain.text)]
    behind += [span for each in near for writing in each.folded for span in writing.spans_before(folded)]
    return [*spans, *(plain.before(*span) for span in behind)]


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with `***` in place of each span; of spans that overlap, in place of all of them."""
    pieces = []
    position = 0
    for start, end in sorted(spans):
        if start >= position:
            pieces.append(text[position:start])
        position = max(position, end)
    return HIDDEN.join([*pieces, text[position:]])
