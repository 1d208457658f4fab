"""Turn a response into a result: read the body by content type, redact it, select the value, apply the budget.

JSON becomes its value. Text, XML, CSV and HTML become text. Anything else is binary and becomes a content
part. A status of failure becomes the error that `errors` defines, or an error derived from a body in a common
shape, such as problem details (RFC 9457).
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, NOTHING, Content, Descriptor, Outcome, Result
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import JSON_DECODER, DuplicateKey, NotFinite, compact, escape_terminal, truncate
from toolcrib.executors.live.size_budget import SizeBudget, compile_budget
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.jmespath_queries import Select, compile_select
from toolcrib.http import HTTPResponse
from toolcrib.http.headers import seconds_to_wait
from toolcrib.security.redaction import HIDDEN

# The body, by its content type.

Form: TypeAlias = Literal["auto", "json", "text", "binary"]

Body: TypeAlias = tuple[JSON, tuple[Content, ...]]
"""The value of a body, and its content parts."""

BINARY = "application/octet-stream"

# A fixed list: a server must not be able to choose codecs such as `unicode_escape` and `idna`.
_CHARSETS = {
    "ascii": "utf-8",
    "iso-8859-1": "latin-1",
    "iso8859-1": "latin-1",
    "latin-1": "latin-1",
    "latin1": "latin-1",
    "us-ascii": "utf-8",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-8": "utf-8",
    "utf8": "utf-8",
}
_TEXTS = frozenset(
    f"application/{name}"
    for name in (
        "ecmascript", "graphql", "javascript", "json-seq", "jsonl", "jsonlines", "rtf", "sql", "toml",
        "x-javascript", "x-ndjson", "x-www-form-urlencoded", "x-yaml", "xml", "yaml",
    )
)  # fmt: skip
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^";,\s]+)', re.IGNORECASE)
_TYPE = re.compile(r"\s*([a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+)\s*(?:[;,]|$)")
_NO_CONTENT = (204, 205)
_AS_TEXT = "use `response: {as: text}` to read it as text"


class Unreadable(Exception):
    """A body does not match its content type. The message contains nothing of the body, which may hold secrets.

    Attributes:
        code: `not_json`, `duplicate_key`, `bad_text` or `unsupported_charset`.
        message: The reason.
        hint: How to avoid the error.
        place: The position of the error: `line` and `column` from 1, `offset` from 0.
    """

    def __init__(self, code: str, message: str, hint: str, place: dict[str, JSON] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.place = place or {}


class MediaType(NamedTuple):
    """A parsed `Content-Type`.

    Attributes:
        name: `type/subtype` in lower case; empty if missing.
        charset: The charset in lower case; empty if missing.
        form: How the body is read; `auto` if the type is missing.
    """

    name: str
    charset: str
    form: Form


@lru_cache(maxsize=256)
def media_type(header: str) -> MediaType:
    """Parse a `Content-Type` header (RFC 9110 section 8.3). A malformed one is treated as missing."""
    found = _TYPE.match(header.lower())
    if found is None:
        return MediaType("", "", "auto")
    charset = _CHARSET.search(header)
    return MediaType(found[1], charset[1].lower() if charset else "", _form(found[1]))


def _form(name: str) -> Form:
    if name in {"application/json", "text/json"} or name.endswith("+json"):
        return "json"
    if name.startswith("text/") or name in _TEXTS or name.endswith(("+xml", "+yaml")):
        return "text"
    return "binary"


def read_body(response: HTTPResponse, form: Form) -> Body:
    """The body in the configured form, or by its content type. An empty body is null.

    Raises:
        Unreadable: The body does not match the form.
    """
    if not response.body or response.status in _NO_CONTENT:
        return None, ()
    told = media_type(response.header("content-type") or "")
    return _READERS[told.form if form == "auto" else form](response.body, told)


def read_any_body(response: HTTPResponse) -> Body:
    """The body of a failure, read leniently: as JSON if possible, else as text or bytes."""
    # A proxy may send an HTML error page with the content type of the API.
    if not response.body or response.status in _NO_CONTENT:
        return None, ()
    told = media_type(response.header("content-type") or "")
    if told.form == "binary":
        return _bytes(response.body, told)
    try:
        return _READERS[told.form](response.body, told)
    except Unreadable:
        return response.body.decode("utf-8", "replace"), ()


def parse_json_body(text: str) -> JSON:
    """The object or list of a JSON text; None if it is neither. Raises RecursionError if nested too deeply."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        value: JSON = JSON_DECODER.decode(text.strip())
    except ValueError:
        return None
    return value


def _json(raw: bytes, told: MediaType) -> Body:
    try:
        text = _decoded(raw, told.charset)
    except UnicodeDecodeError as error:
        why = f"it is not valid {error.encoding} from byte {error.start} on"
        raise _not_json(told, why, {"offset": error.start}) from None
    try:
        return JSON_DECODER.decode(text), ()
    except json.JSONDecodeError as error:
        place: dict[str, JSON] = {"line": error.lineno, "column": error.colno, "offset": error.pos}
        why = f"syntax error at line {error.lineno}, column {error.colno}"
        raise _not_json(told, why, place) from None
    # RFC 8259 section 4: with duplicate keys, parsers differ in the value that they return. toolcrib could
    # redact one value while a later parser reads the other.
    except DuplicateKey as error:
        message = f"{error} in the response; parsers disagree on which one counts"
        raise Unreadable("duplicate_key", message, _AS_TEXT) from None
    except NotFinite:
        raise _not_json(told, "it contains `NaN` or `Infinity`, which are not JSON") from None
    except RecursionError:
        raise _not_json(told, "it is nested too deeply") from None
    # `int()` limits the number of digits (4,300 by default), because parsing takes quadratic time.
    except ValueError:
        raise _not_json(told, "it contains a number with too many digits") from None


def _not_json(told: MediaType, why: str, place: dict[str, JSON] | None = None) -> Unreadable:
    promised = f" (content type `{told.name}`)" if told.name else ""
    return Unreadable("not_json", f"the response is not valid JSON{promised}: {why}", _AS_TEXT, place)


def _text(raw: bytes, told: MediaType) -> Body:
    try:
        return _decoded(raw, told.charset), ()
    except UnicodeDecodeError as error:
        message = f"the response is text, but not valid {error.encoding} from byte {error.start} on"
        hint = "use `response: {as: binary}` to read it as bytes"
        raise Unreadable("bad_text", message, hint, {"offset": error.start}) from None


def _bytes(raw: bytes, told: MediaType) -> Body:
    mime = told.name or BINARY
    kind: Literal["image", "audio", "resource"] = "resource"
    if mime.startswith("image/"):
        kind = "image"
    elif mime.startswith("audio/"):
        kind = "audio"
    part = Content(kind, data=base64.b64encode(raw).decode("ascii"), mime_type=mime)
    return {"type": kind, "mime_type": mime, "size": len(raw)}, (part,)


def _guessed(raw: bytes, told: MediaType) -> Body:
    """The body of a response without a content type."""
    for read in (_json, _text):
        try:
            return read(raw, told)
        except Unreadable as error:
            # Duplicate keys prove that this is JSON. Returning it as text would hide the ambiguity.
            if error.code == "duplicate_key":
                raise
    return _bytes(raw, told)


def _decoded(raw: bytes, charset: str) -> str:
    """The text of a body, in UTF-8 unless another charset is declared, without its byte order mark."""
    if raw.startswith(codecs.BOM_UTF8):
        return raw[3:].decode("utf-8")
    name = _CHARSETS.get(charset or "utf-8")
    if name is None:
        message = (
            f"unsupported charset `{charset[:40]}`; supported are utf-8, us-ascii, iso-8859-1 and utf-16"
        )
        raise Unreadable("unsupported_charset", message, "use `response: {as: binary}` to read it as bytes")
    return raw.decode(name).removeprefix("\ufeff")


_READERS: dict[Form, Callable[[bytes, MediaType], Body]] = {
    "auto": _guessed,
    "json": _json,
    "text": _text,
    "binary": _bytes,
}


# `response.redact`.

RedactionPath: TypeAlias = tuple[str, ...]

_ANY, _DEEP = "*", "**"
_STEP = re.compile(r'"((?:[^"\\]|\\.)+)"|([^".\\]+)')
_ESCAPED = re.compile(r"\\(.)")
_LIKE_JSON = re.compile(r"\s*(\{|\[\s*[\[{\"])")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def compile_paths(paths: Iterable[str], pointer: str, problems: list[Problem]) -> tuple[RedactionPath, ...]:
    """Compile redaction paths: `user.email`, `items.*.card`, `**.ssn`, `"a.b".c`.

    `*` matches every member of an object or list, `**` any number of levels. A name applied to a list matches
    in each of its items; a number is an index.

    Args:
        paths: The paths as written.
        pointer: JSON Pointer of their list.
        problems: Receives problems with the code `bad_path`.
    """
    compiled = []
    for index, path in enumerate(paths):
        steps = _steps(path)
        if steps and steps[-1] != _DEEP:
            compiled.append(steps)
            continue
        hint = "separate names with `.`: `user.email`, `items.*.card`, `**.ssn`"
        if steps:
            hint = "to redact everything below, end it with `*`"
        message = f"`{path[:80]}` is not a valid path"
        problems.append(Problem(code="bad_path", message=message, pointer=f"{pointer}/{index}", hint=hint))
    return tuple(compiled)


def _steps(path: str) -> RedactionPath:
    """The steps of one path; empty if it is malformed."""
    steps: list[str] = []
    at = 0
    while (found := _STEP.match(path, at)) is not None:
        steps.append(_ESCAPED.sub(r"\1", found[1]) if found[1] is not None else found[2])
        at = found.end()
        if at == len(path):
            return tuple(steps)
        if path[at] != ".":
            break
        at += 1
    return ()


def redact_paths(value: JSON, paths: Iterable[RedactionPath]) -> JSON:
    """The value with `***` at the paths, changed in place.

    Text is redacted if it is JSON, whole or line by line. Text that only starts like JSON is masked
    completely.
    """
    # An API may send JSON as `text/plain`, and a log or stream as JSON lines.
    if isinstance(value, str):
        return _redacted_text(value, paths)
    for steps in paths:
        places: list[JSON] = [value]
        for step in steps[:-1]:
            places = _everything(places) if step == _DEEP else _through(places, step)
        for place in _flat(places, steps[-1]):
            for key in _keys(place, steps[-1]):
                place[key] = HIDDEN
    return value


def redact_body(text: str, paths: Iterable[RedactionPath]) -> str:
    """A raw body with `***` at the paths. JSON is serialized again."""
    text = text.removeprefix("\ufeff")
    try:
        value = parse_json_body(text)
        return _redacted_text(text, paths) if value is None else _ENCODER.encode(redact_paths(value, paths))
    except RecursionError:
        return HIDDEN


def _redacted_text(text: str, paths: Iterable[RedactionPath]) -> str:
    if _LIKE_JSON.match(text) is None:
        return text
    try:
        values = [parse_json_body(text)]
        if values == [None]:
            values = [parse_json_body(line) for line in text.split("\n") if line.strip()]
        # Malformed JSON has no paths to look up, but may well contain the secret.
        if None in values:
            return HIDDEN
        return "\n".join(_ENCODER.encode(redact_paths(each, paths)) for each in values)
    except RecursionError:
        return HIDDEN


def _flat(places: Iterable[JSON], step: str) -> list[Any]:
    """The containers in which a step is looked up. For a name, lists are replaced by their items."""
    found: list[Any] = []
    queue = list(places)
    for place in queue:
        if isinstance(place, list) and step != _ANY and not step.isdecimal():
            queue += place
        elif isinstance(place, dict | list):
            found.append(place)
    return found


def _through(places: Iterable[JSON], step: str) -> list[JSON]:
    return [place[key] for place in _flat(places, step) for key in _keys(place, step)]


def _keys(container: Any, step: str) -> list[Any]:
    if isinstance(container, dict):
        return list(container) if step == _ANY else [step] * (step in container)
    size = len(container)
    if step == _ANY:
        return list(range(size))
    # The length is checked first: `int()` of a very long text is slow.
    return [int(step)] if len(step) < 10 and int(step) < size else []


def _everything(places: Iterable[JSON]) -> list[JSON]:
    """The containers at and below some places, each once."""
    # A queue and not recursion: a body may be nested as deeply as the JSON decoder accepts.
    seen: dict[int, JSON] = {}
    queue = list(places)
    for place in queue:
        if isinstance(place, dict | list) and id(place) not in seen:
            seen[id(place)] = place
            queue += place.values() if isinstance(place, dict) else place
    return list(seen.values())


# Errors in the body of a failure.

MOST = 4096
"""The largest error text, in bytes, that a result takes from a server."""

# The members in which common APIs put their messages, in order of preference.
_TELLING = (
    "message", "detail", "error_description", "error_message", "title", "reason", "description", "msg",
    "error", "errors", "details",
)  # fmt: skip
_PROBLEM = ("type", "title", "status", "detail", "instance")
_CODES = ("code", "error_code", "errorCode", "error", "type")
_CODE = re.compile(r"[A-Za-z0-9][\w.:/-]{0,127}")
# A list of violations, as web frameworks return it, is quoted in part only.
_DEPTH = 4
_LISTED = 5


class ErrorBody(NamedTuple):
    """The error in a body.

    Attributes:
        message: The message on one line, without control characters, in at most `MOST` bytes; empty if there
            is none.
        details: `code`, the error code of the API; `problem`, the members of problem details; `body`, the
            whole body if it contains no known error.
    """

    message: str
    details: dict[str, JSON]


def read_error_body(body: JSON) -> ErrorBody:
    """Find the error message and code in the body of a failure."""
    if body is None or body == "":
        return ErrorBody("", {})
    message = one_line(_message(body, _DEPTH))
    if not isinstance(body, dict):
        return ErrorBody(message, {} if message else _whole(body))
    if _is_problem(body):
        told = {key: body[key] for key in _PROBLEM if isinstance(body.get(key), str | int)}
        problem: JSON = {
            key: one_line(value) if isinstance(value, str) else value for key, value in told.items()
        }
        return ErrorBody(one_line(_title_and_detail(body)), {"problem": problem})
    code = _code(body, _DEPTH)
    details: dict[str, JSON] = {} if code is None else {"code": code}
    return ErrorBody(message, details if message else {**details, **_whole(body)})


def one_line(text: str) -> str:
    """An untrusted text prepared for messages: on one line, without control characters, in at most `MOST` bytes."""
    return truncate(escape_terminal(" ".join(text.split())), MOST)


def _is_problem(body: dict[str, JSON]) -> bool:
    """Whether the body is problem details (RFC 9457): a title and another of their members."""
    return isinstance(body.get("title"), str) and any(
        key in body for key in ("type", "status", "detail", "instance")
    )


def _title_and_detail(body: dict[str, JSON]) -> str:
    texts = [body[key] for key in ("title", "detail") if isinstance(body.get(key), str)]
    return ": ".join(str(text) for text in texts if text)


def _message(value: JSON, depth: int) -> str:
    """The message in a value; empty if there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth:
        return "; ".join(text for item in value[:_LISTED] if (text := _message(item, depth - 1)))
    if isinstance(value, dict) and depth:
        for key in _TELLING:
            text = _message(value.get(key), depth - 1)
            if text:
                return text
    return ""


def _code(value: JSON, depth: int) -> str | int | None:
    """The error code in a value, the innermost `error` first."""
    # Only a short token counts: prose in `error` or `type` is a message and not a code.
    if isinstance(value, list) and value and depth:
        return _code(value[0], depth - 1)
    if not isinstance(value, dict) or not depth:
        return None
    for key in ("error", "errors"):
        code = _code(value.get(key), depth - 1)
        if code is not None:
            return code
    named = [value.get(key) for key in _CODES]
    return next(
        (each for each in named if type(each) is int or (isinstance(each, str) and _CODE.fullmatch(each))),
        None,
    )


def _whole(body: JSON) -> dict[str, JSON]:
    """`body` for the details, if it is small enough; otherwise empty."""
    try:
        return {"body": body} if len(compact(body)) <= MOST else {}
    except ValueError:
        return {}


# Results of failures.

Envelope = dict[str, JSON]
"""`status`, `headers` (names in lower case), `body`."""

RETRYABLE = frozenset({429, 502, 503, 504})
"""The statuses after which the same request may succeed later."""

_ERROR_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


class ErrorField(NamedTuple):
    """A compiled field of an entry in `errors`.

    Attributes:
        key: `code`, `message`, `retryable` or `details`.
        pointer: JSON Pointer of the field in the descriptor.
        value: The compiled value.
    """

    key: str
    pointer: str
    value: Rendering


Entry = tuple[ErrorField, ...]
"""The compiled entry of `errors` for a status."""


class StatusErrors:
    """The compiled `errors` of a block. Fields that are not defined are derived from the response."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def result(
        self, envelope: Envelope, arguments: Mapping[str, JSON], now: Callable[[], datetime] | None
    ) -> Result:
        """The result of a response with a status of failure.

        Args:
            envelope: The response.
            arguments: The arguments of the call.
            now: The current time, to which a `Retry-After` date is compared.
        """
        status: Any = envelope["status"]
        entry = self._entry(status)
        written, warnings = _written(entry, {"args": arguments, **envelope}) if entry else ({}, [])
        code, message, details = _plain_error(envelope)
        code = written.get("code", code)
        message = written.get("message", message)
        details |= written.get("details", {})
        # Also in the message, which is what a model acts on.
        wait = _wait(envelope, now)
        if wait is not None:
            details["retry_after"] = wait
            message += f"; retry after {format_duration(wait)}"
        failed = Result.failure(
            Outcome.TOOL_ERROR,
            message,
            code=code,
            details=details,
            retryable=written.get("retryable", status in RETRYABLE),
        )
        return failed.with_meta(warnings=warnings) if warnings else failed

    def _entry(self, status: int) -> Entry | None:
        for key in (str(status), f"{status // 100}xx", "default"):
            if key in self._entries:
                return self._entries[key]
        return None


def compile_errors(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> StatusErrors:
    """Compile `errors`: status (`404`), class (`4xx`) or `default` -> a message, or an object of fields.

    Args:
        block: The block, which its schema has accepted.
        tool: The descriptor.
        problems: Receives the problems of expressions, which may read `args`, `status`, `headers` and `body`.
    """
    names = {"args": closed_names(tool.input_schema), "status": None, "headers": None, "body": None}
    entries = {}
    for key, written in block.items():
        pointer = f"/live/errors/{pointer_step(key)}"
        if isinstance(written, str):
            said = [("message", pointer, written)]
        else:
            said = [(name, f"{pointer}/{name}", value) for name, value in written.items()]
        entries[key] = tuple(
            ErrorField(name, place, compile_value(value, names, problems, place))
            for name, place, value in said
        )
    return StatusErrors(entries)


def _written(entry: Entry, scope: Mapping[str, Any]) -> tuple[dict[str, Any], list[JSON]]:
    """The fields of an entry for this response, and warnings for those that cannot be computed."""
    # A failing field must not hide the failure itself: the default from the response is used instead.
    written: dict[str, Any] = {}
    warnings: list[JSON] = []
    for key, pointer, part in entry:
        try:
            value, good = _READ[key](part.render(scope))
        except ExpressionError as error:
            warnings.append(f"cannot compute {pointer}: {one_line(error.message)}")
            continue
        if good:
            written[key] = value
        else:
            warnings.append(f"{pointer} did not produce a valid {_NOUNS[key]}")
    return written, warnings


def _read_code(value: JSON) -> tuple[Any, bool]:
    text = value if isinstance(value, str) else compact(value)
    return text, _ERROR_CODE.fullmatch(text) is not None


def _read_message(value: JSON) -> tuple[Any, bool]:
    text = one_line(value if isinstance(value, str) else compact(value))
    return text, bool(text)


_READ: dict[str, Callable[[JSON], tuple[Any, bool]]] = {
    "code": _read_code,
    "message": _read_message,
    "retryable": lambda value: (value, isinstance(value, bool)),
    "details": lambda value: (value, isinstance(value, dict)),
}
_NOUNS = {"code": "code", "message": "text", "retryable": "boolean", "details": "object"}


def _plain_error(envelope: Envelope) -> tuple[str, str, dict[str, JSON]]:
    """The code, message and details derived from the response alone."""
    status: Any = envelope["status"]
    headers: Any = envelope["headers"]
    # A redirect has no error to report, only the place that it leads to.
    if status < 400 and "location" in headers:
        return _redirected(status, headers["location"])
    said: ErrorBody = read_error_body(envelope["body"])
    message = f"HTTP {status}{_phrase(status)}" + (f": {said.message}" if said.message else "")
    return f"http_{status}", message, {"status": status, **said.details}


def _redirected(status: int, location: str) -> tuple[str, str, dict[str, JSON]]:
    place = _bare(location)
    points = f"redirect to {place or 'an invalid URL'} not followed"
    message = (
        f"HTTP {status}{_phrase(status)}: {points}; `redirects` in the descriptor sets how many are followed"
    )
    return "redirected", message, {"status": status, **({"location": place} if place else {})}


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _bare(location: str) -> str:
    """A URL without parts that may be secret: scheme, host, port and path only; empty if it is invalid."""
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    shown = f"[{host}]" if ":" in host else host
    place = f"{parts.scheme}://{shown}" if parts.scheme and host else f"//{shown}" if host else ""
    return one_line(f"{place}{f':{port}' if port is not None and place else ''}{parts.path}")


def _wait(envelope: Envelope, now: Callable[[], datetime] | None) -> int | None:
    headers: Any = envelope["headers"]
    if "retry-after" not in headers:
        return None
    return seconds_to_wait(headers, now() if now is not None else None)


# The whole response.


class ResponseContent(NamedTuple):
    """The content of a response.

    Attributes:
        envelope: `status`, `headers` (names in lower case, values of one name joined by `, `) and `body`; for
            collected pages also `items` and `next_cursor`. `redact` has already been applied.
        content: The content parts of a binary body.
    """

    envelope: Envelope
    content: tuple[Content, ...] = ()


class ResponseReader:
    """A compiled `response`, `select` and `errors`."""

    def __init__(
        self,
        *,
        form: Form,
        paths: tuple[RedactionPath, ...],
        select: Select | None,
        errors: StatusErrors,
        budget: SizeBudget | None,
    ) -> None:
        """Create a reader.

        Args:
            form: How bodies are read; `auto` reads them by content type.
            paths: The paths of `redact`.
            select: Computes the value from the response; None to use the body.
            errors: Turns failures into results.
            budget: The size limit of a value; None for none.
        """
        self._form: Form = form
        self._paths = paths
        self._select = select
        self._errors = errors
        self._budget = budget

    def failed(self, status: int) -> bool:
        """Whether a status is a failure: an error, or a redirect that was not followed."""
        return status >= 300

    def redacted(self, text: str) -> str:
        """A raw body with `redact` applied."""
        return redact_body(text, self._paths) if self._paths else text

    def read(self, response: HTTPResponse) -> ResponseContent | Result:
        """Read a response; `invalid_result` if its body does not match its content type.

        The body of a failure is read leniently, because its status matters more than its format.
        """
        status = response.status
        try:
            body, content = (
                read_any_body(response) if self.failed(status) else read_body(response, self._form)
            )
        except Unreadable as error:
            details = {"status": status, **error.place}
            message = f"{error.message}; {error.hint}"
            return Result.failure(Outcome.INVALID_RESULT, message, code=error.code, details=details)
        # Redacted before anything else sees the body: expressions, logs, errors and the model.
        if self._paths:
            body = redact_paths(body, self._paths)
        return ResponseContent({"status": status, "headers": _headers(response), "body": body}, content)

    def result(
        self, read: ResponseContent, arguments: Mapping[str, JSON], now: Callable[[], datetime] | None = None
    ) -> Result:
        """The result of a response.

        Args:
            read: The content of the response.
            arguments: The arguments of the call.
            now: The current time, to which a `Retry-After` date is compared; None to use the `Date` of the
                response.
        """
        envelope = read.envelope
        status: Any = envelope["status"]
        if self.failed(status):
            return self._errors.result(envelope, arguments, now)
        try:
            value = self._select(envelope) if self._select is not None else _plain_value(envelope)
        except ValueError as error:
            message = f"`select` failed on the response: {error}"
            details = {"status": status, "pointer": "/live/select"}
            return Result.failure(Outcome.INVALID_RESULT, message, code="select_failed", details=details)
        result = Result.success(value, content=read.content)
        return result if self._budget is None else self._budget.fitted(result)


def compile_response(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> ResponseReader:
    """Compile `response`, `select` and `errors` of a `live` block that its schema has accepted.

    Args:
        block: The block.
        tool: The descriptor.
        problems: Receives problems with the codes `bad_path`, `bad_pointer`, `bad_select`, `needless_key` and
            those of expressions.
    """
    response: Mapping[str, Any] = block.get("response", NOTHING)
    _check_form(response, block, problems)
    select, budget = block.get("select"), response.get("budget")
    return ResponseReader(
        form=response.get("as", "auto"),
        paths=compile_paths(response.get("redact", ()), "/live/response/redact", problems),
        select=None if select is None else compile_select(select, "/live/select", problems),
        errors=compile_errors(block.get("errors", NOTHING), tool, problems),
        budget=None if budget is None else compile_budget(budget, tool, problems),
    )


def _check_form(response: Mapping[str, Any], block: Mapping[str, Any], problems: list[Problem]) -> None:
    """Report keys that have no effect on a body without members and lists."""
    form = response.get("as", "auto")
    idle = [key for key in ("budget", "redact") if key in response and form == "binary"]
    if "budget" in response and form == "text" and "select" not in block:
        idle.append("budget")
    for key in idle:
        message = f"`{key}` has no effect on a response read as {form}"
        hint = f"remove it, or change `as: {form}`"
        problems.append(
            Problem(code="needless_key", message=message, pointer=f"/live/response/{key}", hint=hint)
        )


def _headers(response: HTTPResponse) -> dict[str, JSON]:
    """The headers by name. Several values of one name are joined (RFC 9110 section 5.3)."""
    joined: dict[str, JSON] = {}
    for name, value in response.headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _plain_value(envelope: Envelope) -> JSON:
    """The value without `select`."""
    if "items" in envelope:
        return {"items": envelope["items"], "next_cursor": envelope["next_cursor"]}
    return envelope["body"]
