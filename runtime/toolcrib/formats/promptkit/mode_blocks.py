"""Convert the call of a foreign descriptor to our blocks `live`, `client`, `exec` and `mock`.

PromptKit describes an HTTP call in `http`, or in the flat form by `endpoint`. Every key is converted or
refused with its line. Some behaviour is stricter than PromptKit's, which loses data silently: every argument
is sent unless it is in `exclude`, `static_...` values are always sent and cannot be overridden, texts are
encoded for their position, variables in `headers_from_env` must be set, and `${VAR}` in the URL and in
headers is expanded.

For tools that the client fulfils, `consent` and `categories` mean the same in both systems. `timeout_ms` is
in milliseconds. Results are always checked here; `validate_output: false` passes an invalid one on
(`on_invalid_result: pass`).

Programs of `mode: exec` and `mode: server` run unchanged. Unlike in PromptKit, they run in the sandbox, inherit
no environment beyond `PATH` and the like, and are ended after `timeout_ms`. The variables in `env` must be set.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

from toolcrib.core.child_process import KEPT
from toolcrib.core.errors import ExpressionError, Severity, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Files
from toolcrib.expressions import escape_expressions
from toolcrib.formats.promptkit.go_templates import literal, translate
from toolcrib.loading.documents.files import has_file
from toolcrib.loading.documents.positions import pointer_of

_KEYS = (
    "url",
    "method",
    "headers",
    "headers_from_env",
    "timeout_ms",
    "redact",
    "request",
    "response",
    "multimodal",
)

_REQUEST_KEYS = (
    "query_params",
    "header_params",
    "body_mapping",
    "exclude",
    "static_query",
    "static_headers",
    "static_body",
)

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})

_LOOK_UP = re.compile(r"(\$\{[^}]*\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STEP = re.compile(r'[^".\\*]+')
_FROM_ENVIRONMENT = re.compile(r"([^=\s]+)=([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


class DescriptorBuilder(Protocol):
    """The descriptor under construction."""

    def put(self, path: tuple[str, ...], item: JSON, place: str) -> None:
        """Set a part, and record its original position."""
        ...

    def problem(
        self, code: str, message: str, place: str, *, hint: str = "", severity: Severity = "error"
    ) -> None:
        """Report a problem at a position of the original document."""
        ...

    def check_rest(self, value: dict[str, Any], known: tuple[str, ...], place: str) -> None:
        """Refuse unknown keys."""
        ...

    def shorten_timeout(self, milliseconds: int, place: str) -> None:
        """Limit the duration of a call."""
        ...


def put_endpoint(form: DescriptorBuilder, url: JSON, place: str) -> None:
    """Convert the flat `endpoint`: all arguments are posted to it as JSON."""
    _Http(form, {"url": url}, {}, place, url_place=place).put()


def put_http(form: DescriptorBuilder, block: JSON, schema: JSON, place: str) -> None:
    """Convert PromptKit's `http`; the arguments are sent in the order of their `schema`."""
    if not isinstance(block, dict):
        form.problem("wrong_type", "`http` must be an object", place)
        form.put(("live",), {}, place)
        return
    properties = schema.get("properties") if isinstance(schema, dict) else None
    form.check_rest(block, _KEYS, place)
    _Http(form, block, properties if isinstance(properties, dict) else {}, place).put()


class _Http:
    """Converts one block."""

    def __init__(
        self,
        form: DescriptorBuilder,
        block: dict[str, Any],
        properties: dict[str, Any],
        place: str,
        *,
        url_place: str = "",
    ) -> None:
        self._form = form
        self._block = block
        self._place = place
        self._url_place = url_place or f"{place}/url"
        self._properties = properties
        self._request = self._object(block, "request", _REQUEST_KEYS, place)
        self._response = self._object(block, "response", ("body_mapping",), place)
        self._used: set[str] = set()
        self._headers: set[str] = set()

    def put(self) -> None:
        """Convert all keys, and report problems."""
        # PromptKit's default.
        method = self._block.get("method", "POST")
        method = method.upper() if isinstance(method, str) else method
        at = f"{self._place}/method" if "method" in self._block else self._place
        self._form.put(("live", "method"), method, at)
        if "url" in self._block:
            url = self._block["url"]
            url = self._template(url, self._url_place) if isinstance(url, str) else url
            self._form.put(("live", "url"), url, self._url_place)
        self._put_headers()
        excluded = set(self._arguments("exclude"))
        listed = self._arguments("query_params")
        # Arguments that no key uses go to the body, or to the query of a request without one.
        left = [name for name in self._properties if name not in self._used | excluded]
        if method in _WITH_BODY:
            self._put_query(listed)
            self._put_body([name for name in left if name not in listed], excluded)
        else:
            self._put_query([*listed, *(name for name in left if name not in listed)], all_of_them=True)
            self._refuse_body(str(method))
        self._put_rest()

    # Headers.

    def _put_headers(self) -> None:
        request, place = self._request, self._place
        for name, value, at in self._texts(request, "header_params", f"{place}/request"):
            self._header(name, self._template(value, at), at)
        for name, value, at in self._texts(request, "static_headers", f"{place}/request"):
            self._header(name, _literally(value), at)
        for name, value, at in self._texts(self._block, "headers", place):
            self._header(name, self._template(value, at), at)
        for item, at in self._list(self._block, "headers_from_env", place):
            match = _FROM_ENVIRONMENT.fullmatch(item)
            if match is None:
                message = f"invalid entry `{item}`"
                self._form.problem(
                    "wrong_form",
                    message,
                    at,
                    hint="use `HEADER=VARIABLE`, for example `Authorization=API_TOKEN`",
                )
            else:
                self._header(match[1], f"${{{match[2]}}}", at)

    def _header(self, name: str, value: str, place: str) -> None:
        # Header names are case-insensitive (RFC 9110, 5.1).
        if name.lower() in self._headers:
            self._form.problem("duplicate_key", f"duplicate header `{name}`", place)
            return
        self._headers.add(name.lower())
        self._form.put(("live", "headers", name), value, place)

    # Query and body.

    def _put_query(self, names: list[str], *, all_of_them: bool = False) -> None:
        static = list(self._texts(self._request, "static_query", f"{self._place}/request"))
        fixed = {name for name, _value, _at in static}
        listed = dict(self._list(self._request, "query_params", f"{self._place}/request"))
        # Without a schema the names are unknown, so the query gets all arguments.
        if all_of_them and not (self._properties or static or names):
            self._form.put(("live", "query"), {"from": "args"}, self._place)
        for name in names:
            # An argument cannot override a static value.
            if name not in fixed:
                place = listed.get(name, self._place)
                self._form.put(("live", "query", name), self._argument(name), place)
        for name, value, at in static:
            self._form.put(("live", "query", name), _literally(value), at)

    def _argument(self, name: str) -> str:
        # As in PromptKit, an object or a list of objects is sent as JSON text.
        schema = self._properties.get(name)
        items = schema.get("items") if isinstance(schema, dict) else None
        if _has_type(schema, "object") or _has_type(items, "object", "array"):
            return (
                f"{{{{ (args[{literal(name)}] | tojson) if args[{literal(name)}] is not none else none }}}}"
            )
        return _whole(name)

    def _put_body(self, names: list[str], excluded: set[str]) -> None:
        place = f"{self._place}/request"
        static = self._request.get("static_body")
        if static is not None and not isinstance(static, dict):
            self._form.problem("wrong_type", "`static_body` must be an object", f"{place}/static_body")
            static = None
        mapping = self._mapping(self._request, place)
        # Every argument is used elsewhere, so the request has no body.
        if self._properties and not (names or static or mapping):
            return
        # With `exclude`, the arguments are listed one by one; otherwise the body also contains those that the
        # schema does not name.
        if excluded:
            body: JSON = {name: _whole(name) for name in names}
            self._form.put(("live", "body", "json"), body, f"{place}/exclude")
        else:
            self._form.put(("live", "body", "from"), "args", self._place)
            self._form.put(("live", "body", "as"), "json", self._place)
        if static:
            # A JMESPath literal is JSON between backticks, so a backtick must be escaped.
            written = json.dumps(static, ensure_ascii=False).replace("`", "\\`")
            select = f"merge({f'({mapping})' if mapping else '@'}, `{written}`)"
            self._form.put(("live", "body", "select"), select, f"{place}/static_body")
        elif mapping:
            self._form.put(("live", "body", "select"), mapping, f"{place}/body_mapping")

    def _refuse_body(self, method: str) -> None:
        for key in ("body_mapping", "static_body"):
            if key in self._request:
                message = f"`{key}` has no effect: a {method} request has no body"
                place = f"{self._place}/request/{key}"
                self._form.problem("needless_key", message, place, hint="remove it, or use another method")

    # Response, media, timeout.

    def _put_rest(self) -> None:
        mapping = self._mapping(self._response, f"{self._place}/response")
        if mapping:
            self._form.put(("live", "select"), f"body | {mapping}", f"{self._place}/response/body_mapping")
        redacted: list[JSON] = [
            _as_path(name) for name, _at in self._list(self._block, "redact", self._place)
        ]
        if redacted:
            self._form.put(("live", "response", "redact"), redacted, f"{self._place}/redact")
        media = self._object(self._block, "multimodal", ("enabled", "accept_types"), self._place)
        types = list(self._list(media, "accept_types", f"{self._place}/multimodal"))
        if types and self._enabled(media):
            accepted = ", ".join(name for name, _at in types)
            self._form.put(("live", "accept"), accepted, f"{self._place}/multimodal/accept_types")
        self._put_timeout()

    def _enabled(self, media: dict[str, Any]) -> bool:
        enabled = media.get("enabled", False)
        if not isinstance(enabled, bool):
            self._form.problem(
                "wrong_type", "`enabled` must be true or false", f"{self._place}/multimodal/enabled"
            )
        return enabled is True

    def _put_timeout(self) -> None:
        milliseconds, place = self._block.get("timeout_ms", 0), f"{self._place}/timeout_ms"
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
            self._form.problem("wrong_type", "a timeout in milliseconds must be a whole number", place)
        elif milliseconds > 0:
            self._form.put(("live", "timeouts", "read"), f"{milliseconds}ms", place)
            self._form.shorten_timeout(milliseconds, place)

    # Reading of keys.

    def _template(self, text: str, place: str) -> str:
        """Convert a text with Go's `{{.x}}`; the arguments in it count as used."""
        try:
            translated = translate(text)
        except ExpressionError as error:
            self._form.problem(error.code, error.message, place, hint=error.hint)
            return ""
        self._used.update(translated.arguments)
        return translated.text

    def _object(self, holder: dict[str, Any], key: str, known: tuple[str, ...], place: str) -> dict[str, Any]:
        value = holder.get(key, {})
        if not isinstance(value, dict):
            self._form.problem("wrong_type", f"`{key}` must be an object", f"{place}/{key}")
            return {}
        self._form.check_rest(value, known, f"{place}/{key}")
        return value

    def _texts(self, holder: dict[str, Any], key: str, place: str) -> Iterator[tuple[str, str, str]]:
        """The members of an object whose values are texts; like Go, it also accepts numbers and booleans."""
        members = holder.get(key, {})
        if not isinstance(members, dict):
            self._form.problem("wrong_type", f"`{key}` must be an object", f"{place}/{key}")
            return
        for name, value in members.items():
            at = f"{place}/{key}/{name.replace('~', '~0').replace('/', '~1')}"
            if isinstance(value, str):
                yield name, value, at
            elif isinstance(value, bool | int | float):
                yield name, json.dumps(value), at
            else:
                self._form.problem("wrong_type", f"`{name}` must be a text", at)

    def _list(self, holder: dict[str, Any], key: str, place: str) -> Iterator[tuple[str, str]]:
        """The texts of a list."""
        items = holder.get(key, [])
        if not isinstance(items, list):
            self._form.problem("wrong_type", f"`{key}` must be a list", f"{place}/{key}")
            return
        for index, item in enumerate(items):
            if isinstance(item, str):
                yield item, f"{place}/{key}/{index}"
            else:
                self._form.problem(
                    "wrong_type", f"the items of `{key}` must be texts", f"{place}/{key}/{index}"
                )

    def _arguments(self, key: str) -> list[str]:
        """The arguments in a list; one that is not in the schema is reported."""
        names = []
        for name, at in self._list(self._request, key, f"{self._place}/request"):
            if self._properties and name not in self._properties:
                hint = did_you_mean(name, self._properties)
                self._form.problem("unknown_argument", f"unknown argument `{name}`", at, hint=hint)
            else:
                names.append(name)
        return names

    def _mapping(self, holder: dict[str, Any], place: str) -> str:
        """A JMESPath expression without surrounding spaces; empty for none."""
        mapping = holder.get("body_mapping", "")
        if not isinstance(mapping, str):
            self._form.problem("wrong_type", "`body_mapping` must be a text", f"{place}/body_mapping")
            return ""
        return mapping.strip()


def _literally(text: str) -> str:
    """A text with literal braces; `${VAR}` is expanded."""
    pieces = _LOOK_UP.split(text)
    return "".join(
        piece if place % 2 else str(escape_expressions(piece)) for place, piece in enumerate(pieces)
    )


def _whole(name: str) -> str:
    path = f"args.{name}" if _NAME.fullmatch(name) else f"args[{literal(name)}]"
    return f"{{{{ {path} }}}}"


def _as_path(name: str) -> str:
    # Our paths have several steps; a name with a dot or the like is one step in quotes.
    return name if _STEP.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _has_type(schema: Any, *names: str) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return (
        kind in names if isinstance(kind, str) else isinstance(kind, list) and not set(names).isdisjoint(kind)
    )


def put_client(form: DescriptorBuilder, block: dict[str, JSON], place: str) -> None:
    """Convert PromptKit's `client`; unknown keys are kept and checked like ours."""
    form.put(("client",), {}, place)
    for key, item in block.items():
        turn = _TURNS.get(key)
        where = place + pointer_of((key,))
        if turn is None:
            form.put(("client", key), item, where)
        else:
            turn(form, item, where)


def _timeout(form: DescriptorBuilder, item: JSON, place: str) -> None:
    # PromptKit uses the tool's timeout for zero and less.
    if isinstance(item, bool) or not isinstance(item, int):
        form.problem("wrong_type", "a timeout in milliseconds must be a whole number", place)
    elif item > 0:
        form.put(("client", "timeout"), f"{item}ms", place)


def _validate_output(form: DescriptorBuilder, item: JSON, place: str) -> None:
    if not isinstance(item, bool):
        form.problem("wrong_type", "`validate_output` must be true or false", place)
    elif not item:
        form.put(("on_invalid_result",), "pass", place)


_Turn: TypeAlias = Callable[[DescriptorBuilder, JSON, str], None]

_TURNS: Mapping[str, _Turn] = {"timeout_ms": _timeout, "validate_output": _validate_output}


_PART_KEYS: Final = ("type", "text", "media")
_MEDIA_KEYS: Final = ("file_path", "url", "data", "mime_type", "width", "height", "caption")
_RESOURCES: Final = ("video", "document")
_NAMES: Final = {
    "file_path": "file",
    "url": "uri",
    "data": "data",
    "mime_type": "mime_type",
    "caption": "title",
}


def put_parts(form: DescriptorBuilder, parts: list[JSON], place: str) -> None:
    """Convert the parts of a result. Sizes have no counterpart, so parts with a size are kept in the metadata, too."""
    content: list[JSON] = [_part(form, part, f"{place}/{index}") for index, part in enumerate(parts)]
    form.put(("mock", "content"), content, place)
    if any(_has_size(part) for part in parts):
        form.put(("metadata", "mock_parts"), parts, place)


def _part(form: DescriptorBuilder, part: Any, place: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        form.problem("wrong_type", "a part must be an object", place)
        return {"type": "text", "text": ""}
    form.check_rest(part, _PART_KEYS, place)
    media = part.get("media", {})
    if not isinstance(media, dict):
        form.problem("wrong_type", "`media` must be an object", f"{place}/media")
        media = {}
    form.check_rest(media, _MEDIA_KEYS, f"{place}/media")
    kind = part.get("type")
    content: dict[str, Any] = {"type": "resource" if kind in _RESOURCES else kind}
    content |= {"text": escape_expressions(part["text"])} if "text" in part else {}
    content |= {new: escape_expressions(media[old]) for old, new in _NAMES.items() if old in media}
    if content["type"] == "resource":
        # MCP requires a URI for resources.
        content.setdefault("uri", f"file:{media.get('file_path', 'data')}")
    return content


def _has_size(part: JSON) -> bool:
    media = part.get("media") if isinstance(part, dict) else None
    return isinstance(media, dict) and ("width" in media or "height" in media)


_PROGRAM_KEYS: Final = ("command", "args", "runtime", "env", "timeout_ms", "sandbox")
_RUNTIMES: Final = ("exec", "server")
_FOLDERS: Final = (".", "..", "../..")
"""Folders in which the files of a program are looked for, relative to the file of the tool."""


def put_program(
    form: DescriptorBuilder,
    block: dict[str, JSON],
    place: str,
    source: str,
    files: Files | None,
    *,
    stays: bool,
) -> None:
    """Convert PromptKit's `exec`, which describes the programs of both `mode: exec` and `mode: server`.

    PromptKit resolves relative paths against the working directory, usually the folder of the arena. Here it is
    the nearest folder, upwards from the file of the tool, that has all files that the command names.

    Args:
        form: The descriptor under construction.
        block: The block; its command is a text.
        place: JSON Pointer of the block in the original document.
        source: The file of the document.
        files: The files of the document; None for a text from memory.
        stays: Whether the program stays running already, because of `mode: server`.
    """
    form.check_rest(block, _PROGRAM_KEYS, place)
    command: list[str] = [str(block["command"])]
    command += [str(escape_expressions(text)) for text, _at in _texts_in(form, block, "args", place)]
    form.put(("exec", "command"), [*command], f"{place}/command")
    form.put(("exec", "wire"), "promptkit", place)
    folder = _folder_of(command, source, files)
    if folder != ".":
        form.put(("exec", "cwd"), folder, f"{place}/command")
    for name, at in _texts_in(form, block, "env", place):
        if not _NAME.fullmatch(name):
            hint = "write the name of an environment variable, such as `API_TOKEN`"
            form.problem("wrong_form", f"invalid entry `{name}`", at, hint=hint)
        # Every program gets these, and as look-ups their values would be masked in its output.
        elif name not in KEPT:
            form.put(("exec", "env", name), f"${{{name}}}", at)
    runtime = block.get("runtime", "exec")
    if runtime not in _RUNTIMES:
        hint = did_you_mean(str(runtime), _RUNTIMES) or "use `exec` or `server`"
        form.problem("wrong_value", f"unknown `runtime` {json.dumps(runtime)}", f"{place}/runtime", hint=hint)
    elif runtime == "server" and not stays:
        form.put(("exec", "lifetime"), "runtime", f"{place}/runtime")
    milliseconds = block.get("timeout_ms", 0)
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        message = "a timeout in milliseconds must be a whole number"
        form.problem("wrong_type", message, f"{place}/timeout_ms")
    elif milliseconds > 0:
        form.shorten_timeout(milliseconds, f"{place}/timeout_ms")
    if "sandbox" in block:
        message = "`sandbox` has no effect on tools in PromptKit; here, every program runs in the sandbox of its project"
        hint = "remove it, and grant files and network with `paths` and `network` of a toolcrib descriptor"
        form.problem("needless_key", message, f"{place}/sandbox", hint=hint, severity="warning")


def _texts_in(
    form: DescriptorBuilder, block: dict[str, JSON], key: str, place: str
) -> Iterator[tuple[str, str]]:
    """The texts of a list, each with its place; a number or a boolean is a text, as in Go."""
    items = block.get(key) or []
    if not isinstance(items, list):
        form.problem("wrong_type", f"`{key}` must be a list", f"{place}/{key}")
        return
    for index, item in enumerate(items):
        if isinstance(item, str | bool | int | float):
            yield item if isinstance(item, str) else json.dumps(item), f"{place}/{key}/{index}"
        else:
            form.problem("wrong_type", f"the items of `{key}` must be texts", f"{place}/{key}/{index}")


def _folder_of(command: list[str], source: str, files: Files | None) -> str:
    """The nearest folder with all files that a command names; the folder of its file if there is none."""
    named = [
        text for text in command if "/" in text and not text.startswith(("/", "-")) and "://" not in text
    ]
    if files is None or not named:
        return "."
    here = os.path.dirname(os.path.abspath(source))
    for folder in _FOLDERS:
        if all(has_file(files, os.path.join(here, folder, text)) for text in named):
            return folder
    return "."
