"""Replace secrets in imported descriptors by `${NAME}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.security.redaction import HIDDEN, Redactor, is_secret_name
from toolcrib.security.secret_forms import is_random, secrets_in

_SCHEMAS: Final = frozenset(("input_schema", "output_schema"))

_VALUES: Final = frozenset(("default", "example", "examples"))
"""Keywords of JSON Schema that contain values of the place that the schema describes. The values of `enum` and `const` are
no secrets because of its name: a secret has no list of values."""

_PROSE: Final = frozenset(("name", "title", "description", "tags", "category", "author", "help_url"))
"""Keys of a descriptor whose texts people wrote: only what the form gives away is a secret there."""

_SENT: Final = frozenset(("headers", "cookies", "query", "env"))
"""Objects of blocks whose members are sent: a random value there is a key, whatever its name."""

_SCHEME: Final = re.compile(r"(?i)(bearer|basic|token|digest|apikey|bot)[ \t]+")
_REFERENCE: Final = re.compile(r"\$+\{[^}]*\}|\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_PLAIN_WORDS: Final = re.compile(r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)(?:[ _-](?:[a-z]+|[A-Z]+|[A-Z][a-z]+))*")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_NEUTRAL: Final = frozenset(
    [
        "address",
        "age",
        "algorithm",
        "amount",
        "budget",
        "class",
        "cost",
        "count",
        "duration",
        "enabled",
        "endpoint",
        "expires",
        "expiry",
        "expired",
        "field",
        "format",
        "header",
        "hint",
        "id",
        "in",
        "kind",
        "length",
        "lifetime",
        "limit",
        "method",
        "mode",
        "name",
        "policy",
        "prefix",
        "price",
        "required",
        "rule",
        "rules",
        "scope",
        "scopes",
        "source",
        "state",
        "status",
        "strength",
        "style",
        "symbol",
        "timeout",
        "ttl",
        "type",
        "types",
        "uri",
        "url",
        "usage",
        "version",
    ]
)
"""Last words of names whose values are no secrets, also below the name of one: `token: {type: bearer}`."""

_AFTER: Final = frozenset(
    [
        "again",
        "base64",
        "confirm",
        "confirmation",
        "current",
        "data",
        "encoded",
        "encrypted",
        "hash",
        "new",
        "old",
        "plain",
        "raw",
        "repeat",
        "string",
        "text",
        "value",
    ]
)
"""Words that may follow the word that tells a secret: `password_confirmation`. `secret_scanning` and `token_url` name none."""

_OF_PAGES: Final = frozenset(("page", "next", "prev", "previous", "continuation", "cursor", "sync"))
"""Words before `token` in the names of places in a list."""

_IN_TEXT: Final = (
    ("=", re.compile(r"(?:^|[?&\s])(?P<name>[A-Za-z][A-Za-z0-9_.-]{0,63})=(?P<secret>[^&#\s\"'<>]{1,512})")),
    ('"', re.compile(r'"(?P<name>[A-Za-z][A-Za-z0-9_.-]{0,63})"\s{0,8}:\s{0,8}"(?P<secret>[^"\\]{1,512})"')),
    (":", re.compile(r"(?im)^(?P<name>[A-Za-z][A-Za-z0-9-]{0,63}):[ \t]{1,8}(?P<secret>\S{1,512})$")),
)
"""Names and values within a text that contains a mark: of a URL or form, of JSON, of headers."""

_REPEATED: Final = 8
"""Characters of a secret that is searched for in all other texts. Shorter ones occur by chance, and so do words."""

_PLACEHOLDERS: Final = frozenset(
    ("string", "password", "secret", "token", "none", "null", "true", "false", HIDDEN)
)
"""Texts that stand in place of a secret in examples."""


class _Place(NamedTuple):
    """A place of a text in a descriptor.

    Attributes:
        path: Its keys.
        names: The names of the members of values that it is in, of which one may tell that it is secret.
        is_sent: Whether it is sent to a service as a header, cookie or parameter.
        is_prose: Whether it is a text for people.
    """

    path: tuple[str | int, ...]
    names: tuple[str, ...] = ()
    is_sent: bool = False
    is_prose: bool = False


def without_secrets(imported: ImportedTools) -> ImportedTools:
    """The tools with `${NAME}` in place of everything that looks like a secret; each one is listed in the remarks.

    A text is a secret if its form gives it away (a key of a well-known service, a token, a private key, credentials in a
    URL), if the name of its member does (`password`, `Authorization`), or if it is random and is sent as a header, a
    cookie or a parameter. A secret that was found once is replaced wherever it occurs in the source, in any encoding.
    """
    search = _Search()
    for tool in imported.tools:
        search.descriptor(tool)
    if not search.names:
        return imported
    redactor = Redactor(encodings=True)
    for secret in filter(_is_telling, search.names):
        redactor.register(secret)
    tools, found = [], []
    for tool in imported.tools:
        writer = _Writer(search.names, search.whole, redactor, tool.key)
        descriptor: Any = writer.value(dict(tool.descriptor), ())
        tools.append(ImportedTool(str(redactor.hide_in(tool.key)), descriptor))
        found += writer.remarks
    hide = redactor.hide_in_text
    return imported._replace(
        tools=tools,
        refused=[
            ImportRefusal(hide(each.key), each.reason, each.pointer, hide(each.message))
            for each in imported.refused
        ],
        remarks=[
            *(each._replace(key=hide(each.key), message=hide(each.message)) for each in imported.remarks),
            *found,
        ],
    )


class _Search:
    """Finds the secrets of a source.

    Attributes:
        names: Secret -> the name of its variable. The same secret has one name everywhere.
        whole: Tool, path and secret of secrets that are only replaced at their place: they could occur elsewhere by chance.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.whole: set[tuple[str, tuple[str | int, ...], str]] = set()
        self._taken: set[str] = set()
        self._listed: set[str] = set()

    def descriptor(self, tool: ImportedTool) -> None:
        # The schemas first: they tell which members have one of a few values, which examples and mocks contain.
        self._listed = set()
        for key in sorted(_SCHEMAS & tool.descriptor.keys()):
            self._schema(tool.key, tool.descriptor[key], _Place((key,), is_prose=True))
        for key, value in tool.descriptor.items():
            if key not in _SCHEMAS:
                sent = isinstance(value, dict) and key not in ("examples", "metadata", "mock")
                self._value(tool.key, value, _Place((key,), is_prose=key in _PROSE), in_block=sent)

    def _schema(self, tool: str, schema: Any, place: _Place) -> None:
        """Search a schema: its texts are prose, but for the values that it contains."""
        if isinstance(schema, list):
            for index, item in enumerate(schema):
                self._schema(tool, item, place._replace(path=(*place.path, index)))
            return
        if not isinstance(schema, dict):
            self._value(tool, schema, place)
            return
        for key, value in schema.items():
            below = place._replace(path=(*place.path, key))
            if key in _VALUES:
                self._value(tool, value, below._replace(is_prose=False))
            elif key in ("properties", "patternProperties") and isinstance(value, dict):
                for name, part in value.items():
                    if isinstance(part, dict) and isinstance(part.get("enum"), list):
                        self._listed.add(name)
                    self._schema(
                        tool, part, below._replace(path=(*below.path, name), names=(*place.names, name))
                    )
            else:
                self._schema(tool, value, below)

    def _value(self, tool: str, value: Any, place: _Place, *, in_block: bool = False) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                below = place._replace(path=(*place.path, key), names=(*place.names, key))
                if in_block and key in _SENT:
                    below = below._replace(is_sent=True)
                self._value(tool, item, below, in_block=in_block)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                below = place._replace(path=(*place.path, index))
                # The texts of a list `secrets` are secrets; objects in it describe them by names of their own.
                names = () if isinstance(item, dict) else place.names
                self._value(tool, item, below._replace(names=names), in_block=in_block)
        elif isinstance(value, str):
            self._text(tool, value, place)

    def _text(self, tool: str, text: str, place: _Place) -> None:
        if not place.is_prose:
            listed = bool(place.names) and place.names[-1] in self._listed
            secret = "" if listed else _secret_part(text, place)
            if secret:
                self._add(secret, _variable(place.names))
                if not _is_telling(secret):
                    self.whole.add((tool, place.path, secret))
                return
        for start, end, name in secrets_in(text):
            if not _REFERENCE.search(text[start:end]):
                self._add(text[start:end], name)
        for mark, pattern in _IN_TEXT:
            for match in pattern.finditer(text) if mark in text else ():
                secret = match["secret"]
                if _is_telling(secret) and tells_secret(match["name"]) and not _is_open(secret):
                    self._add(secret, _variable((match["name"],)))

    def _add(self, secret: str, name: str) -> None:
        if secret in self.names:
            return
        free, number = name, 1
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        self.names[secret] = free


def tells_secret(name: str) -> bool:
    """Whether a member of this name holds a secret. `token_url` and `page_token` hold none."""
    if not is_secret_name(name):
        return False
    words = [word.lower() for word in _WORD.findall(name) if not word.isdigit()]
    while words and words[-1] in _AFTER:
        words.pop()
    if not any(is_secret_name("".join(words[-count:])) for count in (1, 2)):
        return False
    return words[-1] != "token" or _OF_PAGES.isdisjoint(words)


def _is_secret_place(names: tuple[str, ...]) -> bool:
    """Whether one of the names above a value tells that it is secret, and its own name does not tell that it is not."""
    words = _WORD.findall(names[-1]) if names else []
    return not (words and words[-1].lower() in _NEUTRAL) and any(map(tells_secret, names))


def _is_telling(secret: str) -> bool:
    """Whether a secret can be searched for: it is neither short nor a plain word."""
    return len(secret) >= _REPEATED and not _PLAIN_WORDS.fullmatch(secret)


def _is_open(text: str) -> bool:
    """Whether a text in the place of a secret is none: a reference, or what stands in place of one in examples."""
    return not text or text.casefold() in _PLACEHOLDERS or _REFERENCE.search(text) is not None


def _secret_part(text: str, place: _Place) -> str:
    """The part of a text that is a secret because of its place; empty for none."""
    if not _is_secret_place(place.names) and not (place.is_sent and is_random(text)):
        return ""
    scheme = _SCHEME.match(text)
    secret = text[scheme.end() :] if scheme else text
    return "" if _is_open(secret) else secret


def _variable(names: tuple[str, ...]) -> str:
    """The name of the variable of a secret: from the nearest name that tells that it is one."""
    telling = [name for name in names if tells_secret(name)] or [*names]
    words = [word.upper() for word in _WORD.findall(telling[-1])] if telling else []
    name = "_".join(words) or "SECRET"
    return name if name[0].isalpha() else f"SECRET_{name}"


class _Writer:
    """Replaces the secrets of a descriptor."""

    def __init__(
        self,
        names: Mapping[str, str],
        whole: set[tuple[str, tuple[str | int, ...], str]],
        redactor: Redactor,
        tool: str,
    ) -> None:
        # The longest first: a secret may be a part of another one.
        self._names = sorted(names.items(), key=lambda each: (-len(each[0]), each[0]))
        self._whole = {(path, secret) for key, path, secret in whole if key == tool}
        self._redactor = redactor
        self._tool = tool
        self.remarks: list[ImportRemark] = []

    def value(self, value: JSON, path: tuple[str | int, ...]) -> JSON:
        if isinstance(value, dict):
            return {self._key(key): self.value(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _key(self, key: str) -> str:
        return self._redactor.hide_in_text(key) if len(key) >= _REPEATED else key

    def _text(self, text: str, path: tuple[str | int, ...]) -> str:
        # Mocks are expressions, in which a variable has no value; there it is a literal.
        sign = "$${" if path[0] == "mock" else "${"
        for secret, name in self._names:
            if secret in text and (_is_telling(secret) or (path, secret) in self._whole):
                text = text.replace(secret, f"{sign}{name}}}")
                self._tell(path, f"a secret was replaced by `${{{name}}}`")
        masked = self._redactor.hide_in_text(text)
        if masked != text:
            self._tell(path, f"an encoded secret was replaced by `{HIDDEN}`")
        return masked

    def _tell(self, path: tuple[str | int, ...], message: str) -> None:
        pointer = pointer_of(path)
        self.remarks.append(
            ImportRemark("secret", self._tool, "", f"{message} (at {pointer} of the descriptor)")
        )
