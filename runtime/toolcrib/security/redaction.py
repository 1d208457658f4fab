"""Find the secret places of values, and redact values, calls, results and log records.

A place is secret if its schema marks it (`writeOnly: true`, `format: password`, `x-secret: true`) or if its name
implies it (`password`, `api_key`, `Authorization` ...). A name alone does not hide numbers, booleans and null:
`max_token: 4096` is a count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import ref

from toolcrib.core.model import JSON, Content, Descriptor, Result, Schema
from toolcrib.core.subschemas import Path, SchemaIndex, Site, cached_per_schema
from toolcrib.core.text import DuplicateKey, compact, unique_members

if TYPE_CHECKING:
    import logging

    from toolcrib.security.secret_encodings import SecretSpelling

HIDDEN: Final = "***"
"""The mask that replaces a secret."""

_DEPTH: Final = 100

_TELLING: Final = 4
"""Minimum length of a secret that is searched for within texts. Shorter ones occur by chance."""

_WORDS: Final = frozenset(
    [
        "authorization",
        "bearer",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "jwt",
        "passcode",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "pwd",
        "secret",
        "secrets",
        "token",
    ]
)
_ENDINGS: Final = (
    "accesskey",
    "apikey",
    "encryptionkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "secretkey",
    "signingkey",
    "token",
)
_MEMBERS: Final = ("properties", "patternProperties", "additionalProperties", "prefixItems", "items")
_ORIGIN: Final = re.compile(r"[^:/?#]*://[^/?#]*")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a property, header or variable of this name is a secret.

    Case, digits and punctuation separate words: `apiKey`, `X-Api-Key`, `API_KEY` and `apikey` are the same name and
    secret. `key`, `monkey`, `tokens` and `max_tokens` are not secret.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not _WORDS.isdisjoint(words):
        return True
    return "".join(words).endswith(_ENDINGS)


def secret_part(before: str, value: str, *, whole: bool = False) -> str:
    """The part of a looked-up value in a URL that must be masked: the part after the origin. Empty for none.

    Args:
        before: The text of the URL before the value.
        value: The value.
        whole: Whether to mask the path, too, if the value contains the host. The query is always masked.
    """
    url = before + value
    origin = _ORIGIN.match(url)
    begins = origin.end() if origin is not None else len(url)
    if whole or begins <= len(before):
        return url[max(begins, len(before)) :].strip("/")
    return url.partition("?")[2]


def is_secret_schema(schema: Schema) -> bool:
    """Whether a subschema marks its values as secret."""
    return isinstance(schema, dict) and (
        schema.get("writeOnly") is True
        or schema.get("format") == "password"
        or schema.get("x-secret") is True
    )


class SecretPlaces:
    """The secret places in the values of a schema or one of its subschemas."""

    def __init__(self, index: SchemaIndex | None = None, top: Site | None = None) -> None:
        # Without the index, redaction takes a faster path by names alone; most schemas mark nothing.
        marked = index is not None and any(_is_secret(site) for site in index.everything())
        self.index = index if marked else None
        self._top = top

    def hides(self, path: Path, value: object) -> bool:
        """Whether the place `path`, which has the value `value`, is secret.

        If the schema expects a container with secret members, a scalar in its place is secret, too.
        """
        sites = self.roots()
        if _marked(sites):
            return True
        for position, key in enumerate(path, start=1):
            named = isinstance(key, str) and is_secret_name(key)
            if named and (position < len(path) or not _plain(value)):
                return True
            sites = self.under(sites, key)
            if _marked(sites):
                return True
        # A model that sends the credentials as JSON text instead of an object must not reveal them.
        return not isinstance(value, dict | list) and self.holds(sites)

    def roots(self) -> Sequence[Site]:
        """The sites of the whole value; empty if the schema marks nothing as secret."""
        return self.index.together([self._top or self.index.root]) if self.index is not None else ()

    def under(self, sites: Sequence[Site], key: str | int) -> Sequence[Site]:
        """The sites of a member."""
        return self.index.together(self.index.below(sites, key)) if self.index is not None else ()

    def holds(self, sites: Sequence[Site]) -> bool:
        """Whether a container that `sites` apply to may have secret members."""
        if self.index is None:
            return False
        inner = [child for site in sites for child in self.index.at_keywords(site, _MEMBERS)]
        return any(_is_secret(site) for site in self.index.together(inner))


def _is_secret(site: Site) -> bool:
    """Whether a subschema is marked as secret or belongs to a property with a secret name."""
    *_, keyword, name = ("", "", *site.path)
    named = keyword == "properties" and isinstance(name, str) and is_secret_name(name)
    return named or is_secret_schema(site.schema)


def _marked(sites: Sequence[Site]) -> bool:
    return any(is_secret_schema(site.schema) for site in sites)


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float)


def compile_redaction(
    schema: Schema | None = None, remotes: Mapping[str, JSON] | None = None
) -> Callable[[JSON], JSON]:
    """Compile a schema to a function that copies a value with `***` at every secret place.

    Everything below 100 levels of nesting is hidden.
    """
    places = SecretPlaces(SchemaIndex(schema, remotes or {}) if schema is not None else None)
    if places.index is None:
        return _without_secret_names

    def copy(value: JSON, sites: Sequence[Site], depth: int) -> JSON:
        if _marked(sites) or depth > _DEPTH:
            return HIDDEN
        if isinstance(value, dict):
            return {
                key: HIDDEN
                if not _plain(item) and is_secret_name(key)
                else copy(item, places.under(sites, key), depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [copy(item, places.under(sites, index), depth + 1) for index, item in enumerate(value)]
        return HIDDEN if isinstance(value, str) and places.holds(sites) else value

    return lambda value: copy(value, places.roots(), 1)


_NUMBERS: Final = frozenset({int, float, bool, type(None)})


def _without_secret_names(value: JSON, depth: int = 1) -> JSON:
    # The redaction for a schema that marks nothing: names alone decide.
    if depth > _DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        if depth == _DEPTH:
            return dict.fromkeys(value, HIDDEN)
        shown = value.copy()
        for key, item in value.items():
            # Exact types are faster than `isinstance`, and JSON has no subclasses.
            if type(item) not in _NUMBERS:
                if is_secret_name(key):
                    shown[key] = HIDDEN
                elif type(item) is not str:
                    shown[key] = _without_secret_names(item, depth + 1)
        return shown
    if isinstance(value, list):
        return [_without_secret_names(item, depth + 1) for item in value]
    return value


def redact(value: JSON, schema: Schema | None = None) -> JSON:
    """Return a deep copy of a value with `***` at every secret place; see `compile_redaction`."""
    return _redaction(schema)(value)


_redaction = cached_per_schema(compile_redaction)


NAMED: Final = 6
"""Minimum length of a secret that is masked in identifiers, such as tool and property names."""

_PASSING: Final = 128
"""Maximum number of short-lived secrets that are remembered outside of calls."""

_OWN: Final[ContextVar[dict[str, SecretSpelling] | None]] = ContextVar("secrets of this call", default=None)


class Redactor:
    """Masks known secrets in results, messages, violations and logs.

    Secrets are the values at the secret places of added values (`add`), and registered texts (`register`). A text or
    number that equals a secret is always masked. Secrets of 4 characters or more are also masked within other texts.

    Attributes:
        empty: Whether no secret was added or registered.

    Args:
        value: A first value to `add`.
        schema: Its schema.
        encodings: Whether to search texts for all encodings of each secret (see `secret_encodings`), not only for the
            plain and the JSON form. This is slower and meant for secrets that were looked up.
    """

    def __init__(self, value: JSON = None, schema: Schema | None = None, *, encodings: bool = False) -> None:
        self._encodings = encodings
        self._scalars: set[str] = set()
        # An attribute, since every call of a Python function reads it: a property takes 15 times as long.
        self.empty = True
        self._written: list[str] | None = None
        self._passing: dict[str, None] = {}
        self._spellings: dict[str, SecretSpelling] = {}
        self._in_logs = False
        if value is not None:
            self.add(value, schema)

    def add(self, value: JSON, schema: Schema | None = None) -> JSON:
        """Remember the values at the secret places of a value, and return the value as `redact` does."""
        masked = redact(value, schema)
        if masked != value:
            self._scalars.update(_hidden_scalars(value, masked))
            self.empty = not self._scalars
            self._written = None
        return masked

    def register(self, secret: str, *, passing: bool = False) -> None:
        """Mask a text from now on. An empty text is ignored.

        Args:
            secret: The secret. If it has fewer than four characters, only whole values are masked.
            passing: Whether the secret is short-lived, such as a signature or a token. It is remembered until the end
                of the call that registers it (see `one_call`), or, outside of a call, until 128 others follow.
        """
        if secret in {"", HIDDEN} or (secret in self._scalars and secret not in self._passing):
            return
        own = _OWN.get() if passing else None
        if own is not None:
            own[secret] = own.get(secret) or _spelling_of(secret)
        elif passing:
            # Inserting it again moves it to the end: a dict keeps insertion order, and the oldest is forgotten.
            self._passing.pop(secret, None)
            self._passing[secret] = None
            self._scalars.add(secret)
            if len(self._passing) > _PASSING:
                self._forget(next(iter(self._passing)))
        else:
            self._passing.pop(secret, None)
            self._scalars.add(secret)
        self._written = None
        self.empty = not self._scalars
        # On the first secret: without one, `logging` is not imported and records pass no filter.
        if not self._in_logs:
            _mask_logs_of(self)
            self._in_logs = True

    def _forget(self, secret: str) -> None:
        del self._passing[secret]
        self._scalars.discard(secret)
        self.empty = not self._scalars
        self._spellings = {key: each for key, each in self._spellings.items() if key != secret}

    @property
    def known(self) -> frozenset[str]:
        """All added and registered secrets, as text."""
        return frozenset(self._scalars)

    def knows(self, raw: bytes) -> bool:
        r"""Whether UTF-8 text may contain a secret: a fast check with false positives and no false negatives.

        It also returns true for texts with numeric escapes (`%41`, `&#65;`, `\u0041`, `\x41`), full-width letters or
        NUL bytes (UTF-16), because they may encode a part of a secret.
        """
        known = self._known()
        if not known:
            return False
        from toolcrib.security.secret_encodings import is_escaped, near  # noqa: PLC0415 -- a run without secrets needs none of it

        return is_escaped(raw) or bool(near(raw, known))

    def is_in(self, raw: bytes) -> bool:
        """Whether bytes of any kind (a text, an image, an archive) contain a secret."""
        known = self._known()
        if not known:
            return False
        from toolcrib.security.secret_encodings import may_be_escaped, near  # noqa: PLC0415 -- as above

        # Without NUL bytes, ASCII text in UTF-16 and UTF-32 reads as ASCII.
        bare = raw.translate(None, b"\0")
        if not may_be_escaped(bare) and not near(bare, known):
            return False
        # Latin-1 decodes all bytes; UTF-8 is required for secrets that are not ASCII.
        texts = (bare.decode("latin-1"), bare.decode(errors="replace"))
        return any(self._without_encoded(text) != text for text in texts)

    def hide_in_name(self, name: str) -> str:
        """Mask secrets of `NAMED` or more characters in an identifier, such as a tool or property name."""
        # A short secret, such as the user name `root`, occurs in names by chance, and a masked name is unusable.
        return self._without_encoded(name, NAMED) if len(name) >= NAMED else name

    def hide_in_text(self, text: str) -> str:
        """Return the text with `***` in place of every secret."""
        if self._encodings:
            return self._without_encoded(text)
        if text in self._scalars:
            return HIDDEN
        if self._written is None:
            self._written = [*_as_written(self._scalars)]
        for written in self._written:
            text = text.replace(written, HIDDEN)
        return text

    def _without_encoded(self, text: str, least: int = 0) -> str:
        """The text with `***` in place of every secret of at least `least` characters, in any encoding."""
        if text in self._scalars or text in (_OWN.get() or ()):
            return HIDDEN
        known = [each for each in self._known() if each.shortest <= len(text) and each.length >= least]
        if not known:
            return text
        from toolcrib.security.secret_encodings import is_escaped, near, spans_of, without_spans  # noqa: PLC0415 -- as above

        # JSON such as `"\ud800"` decodes to lone surrogates, which the strict encoder refuses.
        raw = text.encode("utf-8", "surrogatepass")
        close = known if is_escaped(raw) else near(raw, known)
        spans = spans_of(text, close) if close else []
        return without_spans(text, spans, HIDDEN) if spans else text

    def hide_in(self, value: JSON) -> JSON:
        """Return a deep copy of a value with `***` in place of every secret, also in keys.

        The part of a value that is nested too deeply for a result is hidden; the copy is still too deep for a result.
        """
        known = self._scalars or (self._encodings and _OWN.get())
        return self._copied(value, 0) if known else value

    def _copied(self, value: JSON, depth: int) -> JSON:
        if isinstance(value, str):
            return self.hide_in_text(value)
        if isinstance(value, dict | list):
            if depth > _DEPTH:
                return HIDDEN
            if isinstance(value, list):
                return [self._copied(item, depth + 1) for item in value]
            return {self.hide_in_text(key): self._copied(item, depth + 1) for key, item in value.items()}
        return HIDDEN if _is_number(value) and self._sees(str(value)) else value

    def _sees(self, text: str) -> bool:
        return text in self._scalars or (self._encodings and text in (_OWN.get() or ()))

    def _known(self) -> Collection[SecretSpelling]:
        if len(self._spellings) != len(self._scalars):
            known = self._spellings
            self._spellings = {
                # A copy: another thread may register a secret during the iteration.
                secret: known.get(secret) or _spelling_of(secret)
                for secret in tuple(self._scalars)
            }
        own = _OWN.get()
        if not own:
            return self._spellings.values()
        more = [each for secret, each in own.items() if secret not in self._scalars]
        return [*self._spellings.values(), *more]


def _spelling_of(secret: str) -> SecretSpelling:
    from toolcrib.security.secret_encodings import SecretSpelling  # noqa: PLC0415 -- a run without secrets needs none of it

    return SecretSpelling(secret)


@contextmanager
def one_call() -> Iterator[None]:
    """Limit short-lived secrets to a call: those registered within are masked until its end, only in this context."""
    token = _OWN.set({**(_OWN.get() or {})})
    try:
        yield
    finally:
        _OWN.reset(token)


def _as_written(secrets: Iterable[str]) -> Iterator[str]:
    # The longest first: a secret that is a part of another one would leave the rest of that one visible.
    for secret in sorted(secrets, key=lambda secret: (-len(secret), secret)):
        if len(secret) >= _TELLING:
            yield from dict.fromkeys([json.dumps(secret)[1:-1], _as_json(secret), secret])


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hidden_scalars(value: JSON, masked: JSON) -> Iterator[str]:
    """The texts and numbers of a value that are hidden in its masked copy."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _hidden_scalars(item, masked[key] if isinstance(masked, dict) else HIDDEN)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hidden_scalars(item, masked[index] if isinstance(masked, list) else HIDDEN)
    elif masked == HIDDEN and value not in ("", HIDDEN) and (isinstance(value, str) or _is_number(value)):
        yield str(value)


# Results, calls and log records.


def redact_result(result: Result, redactor: Redactor) -> Result:
    """Mask secrets in all fields of a result.

    Binary content that contains a secret is replaced by a text that reports this; `meta.warnings` repeats the text.
    """
    meta = redactor.hide_in(dict(result.meta))
    error = result.error
    if error is not None:
        details = redactor.hide_in(dict(error.details))
        error = error._replace(
            message=redactor.hide_in_text(error.message),
            details=details if isinstance(details, dict) else {},
        )
    parts = tuple(_part(part, redactor) for part in result.content)
    changed = result._replace(
        value=redactor.hide_in(result.value),
        content=parts,
        message=redactor.hide_in_text(result.message),
        error=error,
        meta=meta if isinstance(meta, dict) else {},
        raw_value=redactor.hide_in(result.raw_value),
    )
    withheld = [
        after.text
        for before, after in zip(result.content, parts, strict=True)
        if before.data and not after.data
    ]
    if not withheld:
        return changed
    told = changed.meta.get("warnings")
    return changed.with_meta(warnings=[*(told if isinstance(told, list) else []), *withheld])


def _part(part: Content, redactor: Redactor) -> Content:
    part = part._replace(
        text=_without_secrets(part.text, redactor),
        mime_type=_without_secrets(part.mime_type, redactor),
        uri=_without_secrets(part.uri, redactor),
        title=_without_secrets(part.title, redactor),
    )
    if not part.data:
        return part
    from base64 import b64decode  # noqa: PLC0415 -- few results have parts of bytes

    raw = b64decode(part.data)
    # Withheld, not masked: a replacement inside of an image or archive would corrupt it.
    if not redactor.is_in(raw):
        return part
    what = part.mime_type or part.type
    return Content(
        "text", text=f"the content ({what}, {len(raw):,} bytes) was withheld because it contains a secret"
    )


def _without_secrets(text: str | None, redactor: Redactor) -> str | None:
    return None if text is None else redactor.hide_in_text(text)


class KnownCall(Protocol):
    """An earlier call with its arguments and its value."""

    @property
    def tool(self) -> str:
        """Name of the tool."""
        ...

    @property
    def arguments(self) -> dict[str, JSON] | None:
        """Its arguments."""
        ...

    @property
    def value(self) -> JSON:
        """The value of its result."""
        ...


class CallRedactor:
    """Masks the secrets of calls that are shown to people, by the schemas of the tools and by names.

    A value that was masked once is masked in all later calls, also within texts if it has 4 characters or more.

    Args:
        tool_of: Returns the tool of a name; None for an unknown tool.
        before: Earlier calls, whose secrets are masked from the start.
    """

    def __init__(self, tool_of: Callable[[str], Descriptor | None], before: Iterable[KnownCall] = ()) -> None:
        self._tool_of = tool_of
        self._redactor = Redactor()
        for record in before:
            self.arguments(record.tool, record.arguments)
            self._output(self._tool_of(record.tool), record.value)

    def arguments(self, tool: str, arguments: dict[str, JSON] | None) -> dict[str, JSON] | None:
        """Mask the secrets in the arguments of a call."""
        known = self._tool_of(tool)
        masked = self._redactor.add(arguments, None if known is None else known.input_schema)
        shown = self._redactor.hide_in(masked)
        return shown if isinstance(shown, dict) else None

    def result(self, tool: str, result: Result) -> Result:
        """Mask the secrets in the result of a call."""
        known = self._tool_of(tool)
        shown = result._replace(value=self._output(known, result.value))
        # Before the value and the message: the content may reveal secrets that occur there, too.
        parts = tuple(self._content(known, part) for part in result.content)
        message = self._redactor.hide_in_text(result.message)
        return shown._replace(value=self._redactor.hide_in(shown.value), content=parts, message=message)

    def text(self, text: str) -> str:
        """Mask known secrets in a text."""
        return self._redactor.hide_in_text(text)

    def value(self, value: JSON) -> JSON:
        """Mask known secrets in a value."""
        return self._redactor.hide_in(value)

    def _content(self, tool: Descriptor | None, part: Content) -> Content:
        text = part.text
        if text is not None and _is_json_text(text):
            text = str(self._output(tool, text))
        hide = self._redactor.hide_in_text
        return part._replace(
            text=None if text is None else hide(text),
            uri=None if part.uri is None else hide(part.uri),
            title=None if part.title is None else hide(part.title),
        )

    def _output(self, tool: Descriptor | None, value: JSON) -> JSON:
        """Mask the secret places of an output, which may be a value or its JSON text."""
        schema = None if tool is None else tool.output_schema
        try:
            written = _json_in(value) if isinstance(value, str) else None
        except (
            DuplicateKey
        ):  # a parser keeps only the last member: a secret in the first one would stay in the text
            return HIDDEN
        if written is None:
            return self._redactor.add(value, schema)
        masked = self._redactor.add(written, schema)
        return value if masked == written else compact(masked)


def _is_json_text(text: str) -> bool:
    try:
        return _json_in(text) is not None
    except DuplicateKey:
        return True


def _json_in(text: str) -> JSON:
    """Parse a JSON object or list; None for any other text. Raises DuplicateKey for a duplicate key."""
    # A scalar has no secret places, and most texts are prose: the first character decides without an exception.
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value: JSON = json.loads(text, object_pairs_hook=unique_members)  # `NaN` hides no secret
    # DuplicateKey is a ValueError.
    except DuplicateKey:
        raise
    except (ValueError, RecursionError):
        return None
    return value


def restore_hidden(edited: Any, shown: Any, whole: Any) -> Any:
    """Restore the secrets in arguments that a person edited while they were masked.

    A `***` that is still in its place becomes the secret again.

    Args:
        edited: The edited arguments.
        shown: The masked arguments that the person saw.
        whole: The arguments with their secrets.
    """
    if edited == HIDDEN == shown:
        return whole
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(whole, dict):
        return {
            key: restore_hidden(item, shown.get(key), whole.get(key, item)) for key, item in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and isinstance(whole, list):
        # After an insertion or deletion, the positions of the items are unknown.
        same = len(edited) == len(shown) == len(whole)
        return [restore_hidden(*each) for each in zip(edited, shown, whole, strict=True)] if same else edited
    return edited


_LOGGERS: Final = ("toolcrib", "toolcrib.http", "httpcore.http11")
"""Loggers whose records may contain a secret: our own, and the one that logs response headers. A filter of a logger
does not apply to the records of its child loggers."""


class _LogFilter:
    """Masks the message, traceback and stack of log records with the secrets of all live redactors."""

    def __init__(self) -> None:
        # Weak references: the filter lives as long as the process and must not keep the secrets of closed runtimes.
        self.masks: tuple[ref[Redactor], ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record in place. No record is dropped."""
        known = [masks for each in self.masks if (masks := each()) is not None]
        if known:
            _mask_record(record, known)
        return True


def _mask_record(record: logging.LogRecord, known: list[Redactor]) -> None:
    import logging  # noqa: PLC0415 -- as above

    message = _log_message(record)
    masked = _hidden_by_all(message, known)
    if masked != message:
        # Without `args`, since `%` in the masked message is not a placeholder.
        record.msg, record.args = masked, None
    if record.exc_info and not record.exc_text:
        trace = logging.Formatter().formatException(record.exc_info)
        masked = _hidden_by_all(trace, known)
        # The standard formatter uses `exc_text` if it is set; other handlers format `exc_info` again.
        if masked != trace:
            record.exc_text, record.exc_info = masked, None
    elif record.exc_text:
        record.exc_text = _hidden_by_all(record.exc_text, known)
    if record.stack_info:
        record.stack_info = _hidden_by_all(record.stack_info, known)


def _log_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- any `__str__` may fail, and `logging` then prints the arguments unmasked
        return f"{record.msg} {record.args!r}"


def _hidden_by_all(text: str, known: list[Redactor]) -> str:
    for masks in known:
        text = masks.hide_in_text(text)
    return text


_FILTER: Final = _LogFilter()


def _mask_logs_of(redactor: Redactor) -> None:
    import logging  # noqa: PLC0415 -- as above

    _FILTER.masks = (*(each for each in _FILTER.masks if each() not in (None, redactor)), ref(redactor))
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
