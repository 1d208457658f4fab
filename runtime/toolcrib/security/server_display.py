"""Where a server is, as people are told: what a file writes out in place of a secret is `***`, wherever it is shown.

An argument is secret where the option or name before it says so (`--token X`, `--api-key=X`, `PASSWORD=X`), a part of a
URL where its query's name does, and the password in it. What is looked up (`${...}`) stays as it is written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote_plus, urlsplit, urlunsplit

from toolcrib.core.server_config import Server
from toolcrib.security.redaction import HIDDEN, is_secret_name

_ASSIGNED: Final = re.compile(r"(-*([A-Za-z][A-Za-z0-9_.-]*)\s*[=:]\s*)(.*)", re.DOTALL)
_QUERY_VALUE: Final = re.compile(r"([^&=#]+)=([^&#]*)")
_NO_SECRET: Final = re.compile(r"[+-]?[0-9.]+|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_TELLS_WHERE: Final = re.compile(r"[-_.]?(file|path|dir|env|name|type|url|uri)$", re.IGNORECASE)


class _Text(NamedTuple):
    """A text without secrets, and the (name, value) of those."""

    shown: str
    hidden: tuple[tuple[str, str], ...] = ()


def display_address(server: Server) -> str:
    """Its command line, or its url, without secrets."""
    if server.url:
        return shown_url(server.url)
    return " ".join(map(_quoted, [server.command, *shown_args(server.args)]))


def shown_args(args: Iterable[str]) -> list[str]:
    """Arguments of a command, without secrets."""
    return [text.shown for text in _args(args)]


_PLAIN: Final = re.compile(r"[A-Za-z0-9_+=~%-]+|[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}")
_CODE_FLAG: Final = re.compile(r"-[A-Za-z]*[ce]|--eval|--exec|--command|-command|/c", re.IGNORECASE)


def exact_args(args: Iterable[str]) -> list[str]:
    """Arguments for whoever decides whether they may be used: nothing is masked that may be code or the name of a file."""
    given = [*args]
    shown, before = [], ""
    for arg, text in zip(given, _args(given), strict=True):
        plain = all(_PLAIN.fullmatch(value) for _name, value in text.hidden)
        shown.append(text.shown if plain and not _CODE_FLAG.fullmatch(before) else arg)
        before = arg
    return shown


def exact_command(server: Server) -> str:
    """The command line of a server, quoted for a shell, for whoever decides whether it may be started."""
    return " ".join(map(_quoted, [server.command, *exact_args(server.args)]))


def exact_variable(server: Server, name: str) -> str:
    """The value of a variable of its environment, likewise; what is looked up stays as it is written."""
    text = server.env[name]
    if text in written_secrets(server) and _PLAIN.fullmatch(text) and not text.startswith("-"):
        return HIDDEN
    if is_secret_name(name):
        return exact_args([f"{name}={text}"])[0].partition("=")[2]
    return exact_args([text])[0]


def shown_url(url: str) -> str:
    """A URL without secrets; any other text as it is."""
    return _url(url).shown


def written_secrets(server: Server) -> list[str]:
    """The secrets that stand in its arguments and its url, as they may turn up elsewhere.

    Numbers and switches are none, and where an option says only where a secret lies (`--token-file`) its value is none:
    to mask these wherever they turn up would hide what is no secret.
    """
    found = [pair for text in (*_args(server.args), _url(server.url)) for pair in text.hidden]
    values = [
        value for name, value in found if not _NO_SECRET.fullmatch(value) and not _TELLS_WHERE.search(name)
    ]
    return [*dict.fromkeys(form for value in values for form in (value, unquote_plus(value)))]


def _args(args: Iterable[str]) -> Iterator[_Text]:
    flag = ""
    for arg in args:
        assigned = _ASSIGNED.fullmatch(arg)
        if flag and not arg.startswith("-"):
            yield _Text(arg) if "${" in arg else _Text(HIDDEN, ((flag, arg),))
        elif assigned is not None and is_secret_name(assigned[2]):
            looked_up = "${" in assigned[3] or not assigned[3]
            yield _Text(arg) if looked_up else _Text(assigned[1] + HIDDEN, ((assigned[2], assigned[3]),))
        else:
            yield _url(arg)
        flag = arg if arg.startswith("-") and assigned is None and is_secret_name(arg) else ""


def _url(url: str) -> _Text:
    if "://" not in url:
        return _Text(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return _Text(url)
    hidden: list[tuple[str, str]] = []

    def without(match: re.Match[str]) -> str:
        name, value = match.groups()
        if "${" in value or not value or not is_secret_name(name):
            return match[0]
        hidden.append((name, value))
        return f"{name}={HIDDEN}"

    user, at, host = parts.netloc.rpartition("@")
    if at and "${" not in user:
        name, colon, password = user.partition(":")
        named = colon and password
        hidden.append(("password", password if named else user))
        user = f"{name}:{HIDDEN}" if named else HIDDEN
    query = _QUERY_VALUE.sub(without, parts.query)
    if not hidden:
        return _Text(url)
    return _Text(urlunsplit(parts._replace(netloc=f"{user}{at}{host}", query=query)), tuple(hidden))


def _quoted(arg: str) -> str:
    """An argument as a shell reads it; the mask alone is no reason for quotes."""
    rest = arg.replace(HIDDEN, "")
    return arg if rest != arg and (not rest or shlex.quote(rest) == rest) else shlex.quote(arg)
