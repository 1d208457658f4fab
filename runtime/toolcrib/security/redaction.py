"""Which places of a value are secret, and values without them.

A place is secret where its schema says so (`writeOnly: true`, `format: password`,
`x-secret: true`) or where its name does (`password`, `api_key`, `Authorization` ...). By name
alone, numbers, booleans and null stay visible: `max_token: 4096` is a count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import Path, SchemaIndex, Site, once_for_each

HIDDEN: Final = "***"
"""What stands in the place of a secret."""

_DEPTH: Final = 100

_TELLING: Final = 4
"""Characters from which on a secret is looked for within texts; a shorter one would be found everywhere."""

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
    """Whether a property, header or variable of this name holds a secret.

    Words are told apart by case, digits and punctuation, so `apiKey`, `X-Api-Key`, `API_KEY` and
    `apikey` are one; `key`, `monkey`, `tokens` and `max_tokens` are none.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not _WORDS.isdisjoint(words):
        return True
    return "".join(words).endswith(_ENDINGS)


def secret_part(before: str, value: str, *, whole: bool = False) -> str:
    """What must be masked of a value that is looked up for a url: what stands behind the origin; empty for nothing.

    Args:
        before: What the url has before it.
        value: The value.
        whole: Whether the path of a value that holds the host, too, is secret; its query is in any case.
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
    """The secret places of the values of one schema, or of one subschema of it."""

    def __init__(self, index: SchemaIndex | None = None, top: Site | None = None) -> None:
        marked = index is not None and any(_is_secret(site) for site in index.everything())
        self.index = index if marked else None
        self._top = top

    def hides(self, path: Path, value: object) -> bool:
        """Whether the place `path` is secret; `value` is what stands there.

        Where a container with secret members is wanted, what stands in its place is secret too.
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
        return not isinstance(value, dict | list) and self.holds(sites)

    def roots(self) -> Sequence[Site]:
        """The sites of the whole value; none where the schema marks nothing."""
        return self.index.together([self._top or self.index.root]) if self.index is not None else ()

    def under(self, sites: Sequence[Site], key: str | int) -> Sequence[Site]:
        """The sites of a member."""
        return self.index.together(self.index.below(sites, key)) if self.index is not None else ()

    def holds(self, sites: Sequence[Site]) -> bool:
        """Whether a container that `sites` judge may have secret members."""
        if self.index is None:
            return False
        inner = [child for site in sites for child in self.index.at_keywords(site, _MEMBERS)]
        return any(_is_secret(site) for site in self.index.together(inner))


def _is_secret(site: Site) -> bool:
    """Whether a subschema is marked as secret, or is that of a property with such a name."""
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
    """A function that copies a value with `***` at every secret place. Made once for each schema.

    Values nested deeper than 100 levels are hidden from there on.
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
    """The redaction of a schema that marks nothing: names alone decide."""
    if depth > _DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        if depth == _DEPTH:
            return dict.fromkeys(value, HIDDEN)
        shown = value.copy()
        for key, item in value.items():
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
    """A deep copy of a value with `***` at every secret place; see `compile_redaction`."""
    return _redaction(schema)(value)


_redaction = once_for_each(compile_redaction)


class SeenSecrets:
    """What stood at secret places, to be hidden wherever it turns up again: in answers, messages, faults.

    Texts and numbers are known again as a whole; those of 4 characters or more also within other texts.
    """

    def __init__(self, value: JSON = None, schema: Schema | None = None) -> None:
        self._scalars: set[str] = set()
        self._written: list[str] | None = None
        if value is not None:
            self.add(value, schema)

    def add(self, value: JSON, schema: Schema | None = None) -> JSON:
        """Remember what stands at the secret places of a value; gives the value as `redact` does."""
        masked = redact(value, schema)
        if masked != value:
            self._scalars.update(_hidden_scalars(value, masked))
            self._written = None
        return masked

    @property
    def known(self) -> frozenset[str]:
        """What was seen, each as text."""
        return frozenset(self._scalars)

    def hide_in_text(self, text: str) -> str:
        """The text with `***` in place of what was seen."""
        if self._sees(text):
            return HIDDEN
        if self._written is None:
            self._written = [*_as_written(self._scalars)]
        for written in self._written:
            text = text.replace(written, HIDDEN)
        return text

    def hide_in(self, value: JSON) -> JSON:
        """A deep copy of a value with `***` in place of what was seen, also in keys.

        A value nested too deeply for a result is hidden from there on; the copy is too deep as well.
        """
        return self._copied(value, 0) if self._sees_any() else value

    def _copied(self, value: JSON, depth: int) -> JSON:
        """The copy of what stands in `depth` containers."""
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
        """Whether a whole text was seen."""
        return text in self._scalars

    def _sees_any(self) -> bool:
        return bool(self._scalars)


def _as_written(secrets: Iterable[str]) -> Iterator[str]:
    """The secrets that are looked for within texts, the longest first, each also as JSON writes it."""
    for secret in sorted(secrets, key=lambda secret: (-len(secret), secret)):
        if len(secret) >= _TELLING:
            yield from dict.fromkeys([json.dumps(secret)[1:-1], _as_json(secret), secret])


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hidden_scalars(value: JSON, masked: JSON) -> Iterator[str]:
    """The texts and numbers of a value that its masked copy does not show."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _hidden_scalars(item, masked[key] if isinstance(masked, dict) else HIDDEN)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hidden_scalars(item, masked[index] if isinstance(masked, list) else HIDDEN)
    elif masked == HIDDEN and value not in ("", HIDDEN) and (isinstance(value, str) or _is_number(value)):
        yield str(value)
