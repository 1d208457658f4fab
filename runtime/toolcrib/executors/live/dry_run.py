"""Show live requests and responses to people: as parts, as a `curl` command, and as log lines.

Secrets are masked: all known ones, and also the values of headers, parameters, form fields and JSON members
whose names are those of secrets (`Authorization`, `api_key` ...).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import parse_qsl, unquote_plus

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.core.text import DuplicateKey, escape_terminal, unique_members
from toolcrib.http import ExchangeBounds, HTTPRequest, HTTPResponse
from toolcrib.loading.settings import format_limits
from toolcrib.security.redaction import HIDDEN, Redactor, is_secret_name, redact
from toolcrib.security.secrets import SecretResolver

if TYPE_CHECKING:
    from toolcrib.executors.live.request import CompiledRequest

MOST = 64 * 1024
"""The largest body, in bytes, that a `curl` command contains. A larger one is read from `BODY_FILE`."""

BODY_FILE = "request-body"

SHORT = 2048
"""The number of characters of a body that the log lines show."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]* (?=\S)")
_OWN_HEADERS = frozenset({"accept", "user-agent", "content-type"})
_COOKIE = re.compile(r"([^=;\s]+)=[^;]*")
_FIELD = re.compile(
    r"""(Content-Disposition:[^\r\n]*?\bname="([^"\r\n]*)"[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n).*?(?=\r\n--)""",
    re.IGNORECASE | re.DOTALL,
)
_DOT_SEGMENT = re.compile(r"/(?:\.|%2e){1,2}(?=/|\?|$)", re.IGNORECASE)

_ASKING = 1024 * 1024
"""The body size, in bytes, above which curl adds `Expect: 100-continue`."""


class SecretHider(Protocol):
    """The part of `SecretResolver` that masks secrets."""

    def knows(self, raw: bytes) -> bool:
        """Whether the bytes may contain a secret."""
        ...

    def hide_in_text(self, text: str) -> str:
        """The text with every secret replaced by `***`."""
        ...


class CallSecrets:
    """Masks the secrets of a `SecretResolver` and those in the arguments of one call."""

    def __init__(self, secrets: SecretHider, arguments: JSON, schema: Schema | None) -> None:
        self._secrets = secrets
        self._seen = SecretResolver({})
        for secret in Redactor(arguments, schema).known:
            self._seen.register(secret)

    def knows(self, raw: bytes) -> bool:
        """Whether the bytes may contain a secret."""
        return self._secrets.knows(raw) or self._seen.knows(raw)

    def hide_in_text(self, text: str) -> str:
        """The text with every secret replaced by `***`."""
        return self._seen.hide_in_text(self._secrets.hide_in_text(text))


def request_as_json(request: HTTPRequest, secrets: SecretHider) -> dict[str, JSON]:
    """The parts of a request, masked.

    Returns:
        `{method, url, headers: [[name, value], ...], body}`. The body is text, `{bytes, type}` if it is
        binary, or None.
    """
    body: JSON = None
    if request.body:
        kind, text = _kind(request.headers), _text(request.body)
        body = {"bytes": len(request.body), "type": kind} if text is None else _body(text, kind, secrets)
    headers: list[JSON] = [[name, value] for name, value in _headers(request.headers, secrets)]
    return {"method": request.method, "url": _address(request.url, secrets), "headers": headers, "body": body}


def curl_command(request: HTTPRequest, secrets: SecretHider) -> str:
    """The `curl` command, for a POSIX shell, that sends the same request. Only masked secrets must be filled in.

    Headers that curl would add are suppressed. A body of more than 64 KiB is read from the file
    `request-body`.
    """
    url = _address(request.url, secrets)
    words = ["curl", *_method_options(request)]
    # curl expands brackets and braces in URLs (globbing), and resolves `/../` before it sends.
    if not {*"[]{}"}.isdisjoint(url):
        words.append("--globoff")
    if _DOT_SEGMENT.search(request.target):
        words.append("--path-as-is")
    words.append(shlex.quote(url))
    # `Name;` is curl's syntax for a header with an empty value; `Name:` removes the header.
    for name, value in _headers(request.headers, secrets):
        words.append(f"--header {shlex.quote(f'{name}: {value}' if value else f'{name};')}")
    words += [f"--header '{name}:'" for name in _added_by_curl(request)]
    before, data = _data(request, secrets)
    return before + " \\\n  ".join([*words, *data])


def _method_options(request: HTTPRequest) -> list[str]:
    if request.method == "HEAD" and not request.body:
        return ["--head"]
    implied = "POST" if request.body else "GET"
    return [] if request.method == implied else [f"--request {shlex.quote(request.method)}"]


def _added_by_curl(request: HTTPRequest) -> Iterator[str]:
    """The headers that curl would add to this request."""
    names = {name.lower() for name, _value in request.headers}
    added = ["User-Agent", "Accept"]
    added += ["Content-Type"] if request.body else []
    added += ["Expect"] if len(request.body) > _ASKING else []
    return (name for name in added if name.lower() not in names)


def _data(request: HTTPRequest, secrets: SecretHider) -> tuple[str, list[str]]:
    """The pipe before the command, if any, and the options for the body."""
    if not request.body:
        return "", []
    if len(request.body) > MOST:
        return "", [f"--data-binary @{BODY_FILE}"]
    masked = _body(request.body.decode(errors="surrogateescape"), _kind(request.headers), secrets)
    # Control characters do not survive copying from a terminal, and a pasted tab triggers completion.
    if _text(request.body) is None or "\t" in masked or escape_terminal(masked) != masked:
        raw = masked.encode(errors="surrogateescape")
        return f"printf {shlex.quote(_octal(raw))} | ", ["--data-binary @-"]
    return "", [f"--data-raw {shlex.quote(masked)}"]


_ESCAPES = {0x09: r"\t", 0x0A: r"\n", 0x0D: r"\r", 0x25: "%%", 0x5C: r"\\"}


def _octal(raw: bytes) -> str:
    """Bytes as a format of `printf` (POSIX.1-2017, "printf")."""
    text = "".join(
        _ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in raw
    )
    # A format that starts with `-` would be read as an option of `printf`.
    return f"\\055{text[1:]}" if text.startswith("-") else text


def plan_of(
    tool: Descriptor,
    compiled: CompiledRequest,
    request: HTTPRequest,
    secrets: SecretHider,
    arguments: JSON = None,
) -> dict[str, JSON]:
    """The plan of a call: the masked request, and the file and line of each of its parts.

    Args:
        tool: The descriptor.
        compiled: Its compiled request.
        request: The request that would be sent.
        secrets: Masks secrets.
        arguments: The arguments of the call, whose secrets are masked, too.

    Returns:
        `{mode, request, curl, from: [{part, name, at, reads}], hosts, timeouts, limits, auth}`.
    """
    masks = CallSecrets(secrets, arguments, tool.input_schema)
    return {
        "mode": "live",
        "request": request_as_json(request, masks),
        "curl": curl_command(request, masks),
        "from": list(_sources(tool, compiled, request)),
        "hosts": list(compiled.hosts),
        "timeouts": _timeouts(tool),
        "limits": _limits(tool),
        "auth": ", ".join(map(_scheme, _schemes(tool))) or "none",
    }


def _block(tool: Descriptor) -> dict[str, Any]:
    return cast("dict[str, Any]", tool.bindings["live"])


def _sources(tool: Descriptor, compiled: CompiledRequest, request: HTTPRequest) -> Iterator[JSON]:
    origin = tool.origin
    if "mode" in origin.settings:
        yield {"part": "mode", "name": "live", "at": origin.settings["mode"]}
    yield {"part": "url", "name": compiled.origin, "at": origin.place("/live/url")}
    if request.origin != compiled.origin:
        yield {"part": "origin", "name": request.origin, "at": "`origins` of the project or profile"}
    for part in compiled.parts:
        reads: dict[str, JSON] = {"reads": list(part.reads)} if part.reads else {}
        yield {"part": part.kind, "name": part.name, "at": origin.place(part.pointer), **reads}
    yield from _sources_of_pages(tool, request)
    described = {part.name.lower() for part in compiled.parts if part.kind == "header"}
    for name, _value in request.headers:
        if name.lower() in _OWN_HEADERS - described:
            yield {"part": "header", "name": name, "at": "built in"}
        elif name == _block(tool).get("idempotency_key"):
            yield {"part": "header", "name": name, "at": origin.place("/live/idempotency_key")}
    for position, scheme in enumerate(_schemes(tool)):
        several = isinstance(_block(tool).get("auth"), list)
        place = origin.place(f"/live/auth/{position}" if several else "/live/auth")
        yield {"part": "auth", "name": _scheme(scheme), "at": place}
    for key in sorted({*origin.settings, *origin.written}):
        if key == "timeout" or key.startswith("limits."):
            place = origin.settings.get(key) or origin.place(f"/{key.replace('.', '/')}")
            yield {"part": key.partition(".")[0], "name": key.removeprefix("limits."), "at": place}


def _sources_of_pages(tool: Descriptor, request: HTTPRequest) -> Iterator[JSON]:
    pages = _block(tool).get("pagination", {})
    sent = {name for name, _value in parse_qsl(request.target.partition("?")[2], keep_blank_values=True)}
    for key in ("size_param", "limit_param", "param"):
        if pages.get(key) in sent:
            reads: dict[str, JSON] = {}
            if key == "param" and "cursor_arg" in pages:
                reads["reads"] = [pages["cursor_arg"]]
            at = tool.origin.place(f"/live/pagination/{key}")
            yield {"part": "query", "name": pages[key], "at": at, **reads}


def _timeouts(tool: Descriptor) -> dict[str, JSON]:
    usual = ExchangeBounds()
    given = _block(tool).get("timeouts", {})
    return {
        "connect": given.get("connect", format_duration(usual.connect)),
        "read": given.get("read", format_duration(usual.read)),
        "total": format_duration(tool.timeout),
    }


def _schemes(tool: Descriptor) -> list[dict[str, Any]]:
    auth = _block(tool).get("auth", [])
    return auth if isinstance(auth, list) else [auth]


def _scheme(scheme: dict[str, Any]) -> str:
    """An authentication scheme in a few words, as written in the document. It contains no resolved value."""
    words = [scheme["type"], *(str(scheme[key]) for key in ("scheme", "flow", "call") if key in scheme)]
    if "in" in scheme:
        words.append(f"in {scheme['in']} {scheme['name']}")
    if "token_url" in scheme:
        words.append(f"from {scheme['token_url']}")
    return " ".join(words)


def _limits(tool: Descriptor) -> dict[str, JSON]:
    """Every limit in the notation of documents."""
    return dict(format_limits(tool.limits))


def request_lines(request: HTTPRequest, secrets: SecretHider) -> Iterator[str]:
    """The lines of a request, each starting with `> `, with the body truncated."""
    yield f"> {request.method} {_address(request.target, secrets)} HTTP/1.1"
    yield f"> Host: {secrets.hide_in_text(request.origin.partition('://')[2])}"
    yield from (f"> {name}: {value}" for name, value in _headers(request.headers, secrets))
    yield from _body_lines(">", request.body, _kind(request.headers), secrets)


def response_lines(
    response: HTTPResponse, secrets: SecretHider, redact: Callable[[str], str] | None = None
) -> Iterator[str]:
    """The lines of a response, each starting with `< `, with the body truncated.

    Args:
        response: The response.
        secrets: Masks secrets.
        redact: Applies `response.redact` of the descriptor to the body.
    """
    yield f"< {response.status}"
    yield from (f"< {name}: {value}" for name, value in _headers(response.headers, secrets))
    yield from _body_lines("<", response.body, _kind(response.headers), secrets, redact)


def _body_lines(
    mark: str, body: bytes, kind: str, secrets: SecretHider, redact: Callable[[str], str] | None = None
) -> Iterator[str]:
    # Line by line, each with its mark: a body cannot forge other lines of the log.
    if not body:
        return
    yield mark
    text = _text(body)
    if text is None:
        yield f"{mark} [{kind or 'no content type'}, {len(body):,} bytes]"
        return
    masked = _body(text if redact is None else redact(text), kind, secrets)
    yield from (f"{mark} {line}".rstrip() for line in masked[:SHORT].splitlines())
    if len(masked) > SHORT:
        yield f"{mark} [{len(masked) - SHORT:,} more characters]"


# Secrets are masked before anything is truncated: half of a secret would not be recognized.


def _kind(headers: tuple[tuple[str, str], ...]) -> str:
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def _text(body: bytes) -> str | None:
    """A body as text; None if it is binary."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def _address(url: str, secrets: SecretHider) -> str:
    path, mark, query = secrets.hide_in_text(url).partition("?")
    return path + mark + _pairs(query)


def _pairs(text: str) -> str:
    """`a=1&token=2` with the values of secret names masked."""
    pieces = (piece.partition("=") for piece in text.split("&"))
    return "&".join(
        name + mark + (HIDDEN if value and is_secret_name(unquote_plus(name)) else value)
        for name, mark, value in pieces
    )


def _headers(headers: tuple[tuple[str, str], ...], secrets: SecretHider) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        yield name, _header(name.lower(), secrets.hide_in_text(value)) if value else value


def _header(name: str, value: str) -> str:
    """The value of a header, masked if its name is that of a secret. The auth scheme (`Bearer`) stays visible."""
    if name in {"cookie", "set-cookie"}:
        return _COOKIE.sub(rf"\1={HIDDEN}", value, count=0 if name == "cookie" else 1)
    if name in {"location", "content-location", "link", "referer"}:
        return re.sub(r"\?([^\s>]*)", lambda match: "?" + _pairs(match[1]), value)
    if not is_secret_name(name):
        return value
    scheme = _SCHEME.match(value)
    return f"{scheme[0] if scheme is not None else ''}{HIDDEN}"


def _body(text: str, kind: str, secrets: SecretHider) -> str:
    """A body with its secrets masked."""
    kind = kind.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        text = _pairs(text)
    elif kind.startswith("multipart/"):
        text = _FIELD.sub(lambda match: match[1] + HIDDEN if is_secret_name(match[2]) else match[0], text)
    elif kind.endswith(("/json", "+json")):
        text = _json(text)
    return secrets.hide_in_text(text)


def _json(text: str) -> str:
    try:
        value = json.loads(text, object_pairs_hook=unique_members)
    # The first of two equal keys would be lost and never masked.
    except (DuplicateKey, RecursionError):
        return HIDDEN
    except ValueError:
        return text
    masked = redact(value)
    return text if masked == value else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
