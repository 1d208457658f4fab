"""Show the command line or URL of a server with `***` in place of literal secrets.

An argument is secret if its option or name implies it (`--token X`, `--api-key=X`, `PASSWORD=X`). In a URL, the
password and the values of secret query parameters are masked. Look-ups (`${...}`) stay as written.
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
    """A masked text, and the (name, value) pairs of its secrets."""

    shown: str
    hidden: tuple[tuple[str, str], ...] = ()


def display_address(server: Server) -> str:
    """Return the command line or the URL of a server, without secrets."""
    if server.url:
        return shown_url(server.url)
    return " ".join(map(_quoted, [server.command, *shown_args(server.args)]))


def shown_args(args: Iterable[str]) -> list[str]:
    """Return the arguments of a command, without secrets."""
    return [text.shown for text in _args(args)]


_PLAIN: Final = re.compile(r"[A-Za-z0-9_+=~%-]+|[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}")
_CODE_FLAG: Final = re.compile(r"-[A-Za-z]*[ce]|--eval|--exec|--command|-command|/c", re.IGNORECASE)


def exact_args(args: Iterable[str]) -> list[str]:
    """Return arguments for a trust decision: nothing is masked that may be code or a file name."""
    given = [*args]
    shown, before = [], ""
    # A malicious project could otherwise hide what it runs: `--token='; curl ... | sh'` would read `--token=***`.
    for arg, text in zip(given, _args(given), strict=True):
        plain = all(_PLAIN.fullmatch(value) for _name, value in text.hidden)
        shown.append(text.shown if plain and not _CODE_FLAG.fullmatch(before) else arg)
        before = arg
    return shown


def exact_command(server: Server) -> str:
    """Return the command line of a server, quoted for a shell, for a trust decision."""
    return " ".join(map(_quoted, [server.command, *exact_args(server.args)]))


def exact_variable(server: Server, name: str) -> str:
    """Return the value of an environment variable of a server for a trust decision; look-ups stay as written."""
    text = server.env[name]
    if text in written_secrets(server) and _PLAIN.fullmatch(text) and not text.startswith("-"):
        return HIDDEN
    if is_secret_name(name):
        return exact_args([f"{name}={text}"])[0].partition("=")[2]
    return exact_args([text])[0]


def shown_url(url: str) -> str:
    """Return a URL without secrets, and any other text unchanged."""
    return _url(url).shown


def written_secrets(server: Server) -> list[str]:
    """Return the literal secrets in the arguments and the URL of a server, for masking other texts.

    Numbers, switches and the values of options that only locate a secret (`--token-file`) are not included, because
    masking them everywhere would hide ordinary text.
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
    """Quote an argument for a shell. The mask alone requires no quotes."""
    rest = arg.replace(HIDDEN, "")
    return arg if rest != arg and (not rest or shlex.quote(rest) == rest) else shlex.quote(arg)
