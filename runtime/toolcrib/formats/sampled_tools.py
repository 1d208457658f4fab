"""Recorded HTTP requests as a tool: the request with arguments in place of what varies, and a mock of the responses.

A sample is one request, with its response if that was recorded: a curl command, an entry of a HAR file, a request of a
Postman collection. Samples of the same operation (one method and one shape of the path) become one descriptor:

- Query parameters, form fields and the members of a JSON body become arguments. So does a segment of the path that varies,
  is a placeholder (`{id}`, `:id`) or is data (a number, a UUID, a hash). The rest of the request is written as it is.
- With one sample, the recorded values are the defaults, so that a call without arguments repeats the request. With several,
  an argument is required if all samples have it.
- Responses become the output schema, and the replies and errors of the mock.
- Credentials and cookies become `${NAME}`. Their values do not occur in the descriptor.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from toolcrib.core.model import JSON
from toolcrib.core.text import compact, json_equal
from toolcrib.expressions import escape_expressions
from toolcrib.formats.http_samples import (
    ABSENT,
    VARIABLE,
    BodyContent,
    HttpSample,
    Unconvertible,
    UrlParts,
    content_of,
    credentials_of,
    is_graphql,
    split_url,
    value_of,
    variable,
)
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import (
    LONGEST_NAME,
    argument_of_segment,
    host_label,
    placeholder_of,
    variable_name,
)
from toolcrib.formats.secret_names import HIDDEN, has_secret_member, is_secret_name, without_secret_members
from toolcrib.http.headers import FORBIDDEN, header_fault, is_token
from toolcrib.schema.inference import infer_schema, is_data
from toolcrib.security.redaction import Redactor


class SampledTool(NamedTuple):
    """A tool of some samples.

    Attributes:
        tool: The tool. Its responses may still repeat secrets of requests; `imported_of` removes them.
        remarks: What was lost and replaced.
        secrets: The values that were replaced.
    """

    tool: ImportedTool
    remarks: tuple[ImportRemark, ...]
    secrets: frozenset[str] = frozenset()


def tool_of_samples(
    samples: Sequence[HttpSample],
    *,
    key: str,
    name: str,
    texts: Mapping[str, JSON] | None = None,
    defaults: bool = False,
) -> SampledTool | ImportRefusal:
    """The tool of the samples of one operation.

    Args:
        samples: The samples; the first decides what all have in common.
        key: See `ImportedTool`.
        name: The name of the tool.
        texts: Further members of the descriptor, such as `title` and `description`.
        defaults: Whether the first sample is the request, whose values are the defaults, and the others are examples of it.
    """
    try:
        draft = _Draft(samples, key, defaults=defaults or len(samples) == 1)
        tool = ImportedTool(key, draft.descriptor(name, dict(texts or {})))
        return SampledTool(tool, tuple(draft.remarks), frozenset(draft.secrets))
    except Unconvertible as why:
        return ImportRefusal(key, why.reason, samples[0].pointer, str(why))


def imported_of(
    drafted: Iterable[SampledTool],
    refused: Sequence[ImportRefusal] = (),
    remarks: Sequence[ImportRemark] = (),
    secrets: Iterable[str] = (),
) -> ImportedTools:
    """The tools of one source, without the secrets of any of its requests.

    The token of one request is often part of the response to another one.

    Args:
        drafted: The tools.
        refused: Samples without a descriptor.
        remarks: Remarks on the source as a whole, which come first.
        secrets: Further secrets of the source.
    """
    drafts = [*drafted]
    search = _SecretSearch({*secrets, *(each for draft in drafts for each in draft.secrets)})
    hide = search.hide
    tools = []
    for draft in drafts:
        descriptor = search.without(dict(draft.tool.descriptor))
        tools.append(
            ImportedTool(hide(draft.tool.key), {**descriptor, "name": draft.tool.descriptor["name"]})
        )
    told = [*remarks, *(remark for draft in drafts for remark in draft.remarks)]
    return ImportedTools(
        tools,
        [each._replace(key=hide(each.key), message=hide(each.message)) for each in refused],
        [each._replace(key=hide(each.key), message=hide(each.message)) for each in told],
    )


_MOST_ENCODED: Final = 16
"""Secrets that are searched for in every encoding. The time for it is the number of secrets times the size of the source."""

_TOKEN: Final = re.compile(r"[^\s\"'<>,;&?=(){}\[\]|\\]{6,}")


class _SecretSearch:
    """Hides the secrets of requests wherever a source repeats them.

    A recording of a long session may contain thousands of them. The first are searched for in every encoding; the others where
    a text has them as a whole, or between marks such as spaces, quotes and `=`.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # An ordinary word, such as the user `admin`, occurs elsewhere by chance.
        telling = sorted(
            (each for each in secrets if not _WORD.fullmatch(each)), key=lambda each: (-len(each), each)
        )
        self._redactor = Redactor(encodings=True)
        for secret in telling[:_MOST_ENCODED]:
            self._redactor.register(secret)
        self._others = frozenset(
            form for each in telling[_MOST_ENCODED:] for form in (each, quote(each, safe=""))
        )

    def hide(self, text: str) -> str:
        """A text without the secrets."""
        if self._others:
            if text in self._others:
                return HIDDEN
            text = _TOKEN.sub(lambda match: HIDDEN if match[0] in self._others else match[0], text)
        return self._redactor.hide_in_text(text)

    def without(self, value: dict[str, Any]) -> dict[str, Any]:
        """A value without the secrets."""
        text = compact(value)
        # Most descriptors contain none, which one look at the whole shows.
        is_repeated = not self._others.isdisjoint(_TOKEN.findall(text)) or self._redactor.knows(text.encode())
        copy: dict[str, Any] = self._copy(value) if is_repeated else value
        return copy

    def _copy(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(key): self._copy(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copy(item) for item in value]
        return self._redactor.hide_in(value)


# -- The draft of a descriptor --------------------------------------------------------------------------------------

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TRACKING: Final = re.compile(
    r"(?i)_g[ac]l?_?.*|_gid|_fbp|_fbc|_hj.*|_pk_.*|__utm.*|optanon.*|ajs_.*|amplitude.*|intercom-.*|mp_.*_mixpanel|_clck|_clsk|_uet.*"
)


_LONGEST_DEFAULT: Final = 2000
"""Longer values would fill the context of a model: they are no defaults."""
_LARGEST_REPLY: Final = 64 * 1024
_MOST_REPLIES: Final = 20
_LARGEST_EXAMPLE: Final = 4 * 1024
_MOST_EXAMPLES: Final = 3
_CHANGING: Final = re.compile(r"(?i)digest|aws4-hmac-sha256|hawk|ntlm|negotiate|oauth")
"""Schemes of authorization whose value differs for each request."""

_SECRET_KEYS: Final = frozenset(("value", "username", "password", "token", "client_id", "client_secret"))
"""Members of schemes of `live.auth` that are secrets, or identify somebody."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Draft:
    """A descriptor that is drafted from samples.

    Attributes:
        remarks: What was lost and replaced.
        secrets: The values that were replaced.
    """

    def __init__(self, samples: Sequence[HttpSample], key: str, *, defaults: bool) -> None:
        self._has_defaults = defaults
        self.remarks: list[ImportRemark] = []
        self._samples = samples
        self._key = key
        self._host = samples[0].url
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._arguments: list[dict[str, JSON]] = [{} for _ in samples]
        self._incomplete: set[int] = set()
        self.secrets: set[str] = set()
        self._live: dict[str, Any] = {}
        self._auth: list[dict[str, JSON]] = []

    def descriptor(self, name: str, texts: dict[str, JSON]) -> dict[str, Any]:
        """The members of the descriptor."""
        first = self._samples[0]
        if first.method not in _METHODS:
            raise Unconvertible("method", f"the method `{first.method}` is not one that `live` sends")
        contents = [content_of(sample.body) for sample in self._samples]
        if first.method in {"GET", "HEAD"} and any(content.kind for content in contents):
            message = f"it is a {first.method} request with a body, which `live` does not send (RFC 9110 section 9.3.1)"
            raise Unconvertible("body_of_get", message)
        parts = [split_url(sample.url) for sample in self._samples]
        if first.method != "GET":
            self._live["method"] = first.method
        self._live["url"] = ""
        self._url(parts)
        self._query(parts)
        self._headers(has_body=any(content.kind for content in contents))
        self._cookies()
        self._body(contents)
        self._auth = [*_without_repeats(self._auth)]
        if self._auth:
            self._live["auth"] = self._auth[0] if len(self._auth) == 1 else self._auth
        inputs: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            inputs["required"] = self._required
        inputs["additionalProperties"] = False
        if not self._properties:
            del inputs["properties"]
        texts.setdefault("description", self._description())
        document = {"name": name, **texts, "input_schema": inputs, **self._answers()}
        document["live"] = {key: value for key, value in self._live.items() if value not in ({}, [])}
        return document

    def _description(self) -> str:
        """What the tool requests, for want of a better text; a person has to write when to use it."""
        url = re.sub(r"\{\{ args[.\[]\"?(.*?)\"?\]? \}\}", r"{\1}", self._live["url"]).partition("?")[0]
        return f"{self._samples[0].method} {url}"

    # -- arguments

    def _argument(
        self, wire: str, place: str, values: Sequence[Any], *, schema: Mapping[str, JSON] | None = None
    ) -> str:
        """Add an argument with the values of the samples, and return its name."""
        name = self._name(wire, place)
        given = [value for value in values if value is not ABSENT]
        known = [value for value in given if not _is_unknown(value)]
        for number, value in enumerate(values):
            if value is not ABSENT and not _is_unknown(value):
                self._arguments[number][name] = value
            elif value is not ABSENT:
                self._incomplete.add(number)
        # A member of JSON may be any value, everything else is text.
        unknown = {} if place == "body" or schema else {"type": "string"}
        found = {**(infer_schema(known) if known else unknown), **(schema or {})}
        said = self._samples[0].descriptions.get(wire)
        found |= {"description": said} if said and "description" not in found else {}
        if self._has_defaults and values[0] is not ABSENT and not _is_unknown(values[0]):
            found |= self._default(name, wire, values[0])
        else:
            is_required = values[0] is not ABSENT if self._has_defaults else len(given) == len(values)
            found |= self._examples(name, known, is_required=is_required)
        self._properties[name] = found
        return name

    def _default(self, name: str, wire: str, value: JSON) -> dict[str, Any]:
        if len(compact(value)) <= _LONGEST_DEFAULT:
            return {"default": value}
        self._required.append(name)
        self._lost(f"the value of `{wire}` is too long for a default; it is required instead")
        return {}

    def _examples(self, name: str, known: Sequence[JSON], *, is_required: bool) -> dict[str, Any]:
        if is_required:
            self._required.append(name)
        shown: list[JSON] = []
        for value in known:
            if len(shown) == _MOST_EXAMPLES:
                break
            is_new = not any(json_equal(value, other) for other in shown)
            if is_new and not isinstance(value, dict | list) and len(compact(value)) <= _LONGEST_DEFAULT:
                shown.append(value)
        return {"examples": shown} if shown else {}

    def _name(self, wire: str, place: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", wire).strip("_") or "value"
        if not plain[0].isalpha():
            plain = f"_{plain}"
        name = plain[:LONGEST_NAME]
        number = 1
        while name in self._properties:
            number += 1
            name = f"{place}_{plain}"[:LONGEST_NAME] if number == 2 else f"{plain[:58]}_{number}"
        return name

    def _lost(self, message: str, place: int = 0) -> None:
        self.remarks.append(ImportRemark("lost", self._key, self._samples[place].pointer, message))

    def _variable(self, purpose: str, value: str) -> str:
        """The `${NAME}` in place of a secret."""
        marks = VARIABLE.findall(value)
        if len(marks) == 1 and VARIABLE.fullmatch(value):
            return f"${{{variable_name(marks[0])}}}"
        name = variable_name(host_label(self._host), purpose)
        if len(value) > 3 and not marks:
            self.secrets.add(value)
        self.remarks.append(
            ImportRemark(
                "secret",
                self._key,
                self._samples[0].pointer,
                f"{purpose} is `${{{name}}}`; set this variable",
            )
        )
        return f"${{{name}}}"

    # -- the parts of a request

    def _url(self, parts: Sequence[UrlParts]) -> None:
        origin = parts[0].origin
        mark = VARIABLE.fullmatch(origin)
        origin = (
            f"${{{variable_name(mark[1])}}}"
            if mark is not None
            else VARIABLE.sub(lambda match: f"${{{variable_name(match[1])}}}", origin)
        )
        paths = [part.path.split("/") for part in parts]
        written = []
        for place, segment in enumerate(paths[0]):
            values = [path[place] for path in paths if place < len(path)]
            if segment and (placeholder_of(segment) is not None or is_data(segment) or len({*values}) > 1):
                written.append(self._segment(paths[0], place, values))
            else:
                written.append(self._inner(segment))
        self._live["url"] = origin + "/".join(written)

    def _segment(self, segments: Sequence[str], place: int, values: Sequence[str]) -> str:
        name = argument_of_segment(segments, place)
        known: list[Any] = []
        for sample, value in zip(self._samples, values, strict=False):
            said = placeholder_of(value)
            known.append(
                unquote(value)
                if said is None
                else sample.path_values[said]
                if sample.path_values.get(said)
                else variable(said)
            )
        argument = self._argument(name, "path", _typed(known))
        return f"{{{{ {reading(argument)} }}}}"

    def _inner(self, segment: str) -> str:
        """A segment of the path that may contain placeholders among text."""

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            value = self._samples[0].path_values.get(name) or variable(name)
            argument = self._argument(name, "path", _typed([value] * len(self._samples)))
            return f"\ue002{reading(argument)}\ue003"

        text = re.sub(rf"\{{([A-Za-z_]\w*)\}}|{VARIABLE.pattern}", replace, segment)
        pieces = re.split("\ue002([^\ue003]*)\ue003", text)
        return "".join(
            f"{{{{ {piece} }}}}"
            if place % 2
            else _NOT_IN_PATH.sub(lambda match: quote(match[0], safe=""), piece)
            for place, piece in enumerate(pieces)
        )

    def _query(self, parts: Sequence[UrlParts]) -> None:
        columns: dict[str, list[list[str] | None]] = {}
        bare: dict[str, None] = {}
        for place, (sample, part) in enumerate(zip(self._samples, parts, strict=True)):
            for name, value in (*part.query, *sample.query):
                if value is None:
                    bare[name] = None
                    continue
                values = columns.setdefault(name, [None] * len(parts))
                values[place] = [*(values[place] or []), value]
        written = {}
        for name, lists in columns.items():
            said = next(values for values in lists if values)
            if is_secret_name(name) or (name == "key" and len(said[0]) >= 20):
                # A scheme of `auth` keeps it out of what a dry run and a log show.
                self._auth.append(
                    {"type": "apiKey", "in": "query", "name": name, "value": self._variable(name, said[0])}
                )
            else:
                written[name] = self._of_texts(name, "query", lists)
        for name, value in self._samples[0].optional_query:
            if name not in columns:
                texts: list[Any] = [ABSENT] * len(parts)
                (typed,) = _typed([value]) if value else ("",)
                argument = self._argument(name.removesuffix("[]"), "query", texts)
                self._properties[argument] |= infer_schema([typed]) | ({"examples": [typed]} if value else {})
                written[name] = f"{{{{ {reading(argument)} }}}}"
        if bare:
            # `live` writes `name=`, which most servers read alike; in the URL the name stays as it was.
            self._live["url"] += "?" + "&".join(quote(name, safe="") for name in bare if name not in columns)
        self._live["query"] = written

    def _of_texts(self, name: str, place: str, lists: Sequence[list[str] | None]) -> str:
        """An argument for the values of a parameter or a field."""
        is_list = name.endswith("[]") or any(values is not None and len(values) > 1 for values in lists)
        flat = [value for values in lists if values is not None for value in values]
        typed = iter(_typed(flat))
        values: list[Any] = []
        for each in lists:
            items = [next(typed) for _ in each or ()]
            values.append(ABSENT if each is None else items if is_list else items[0])
        return f"{{{{ {reading(self._argument(name.removesuffix('[]'), place, values))} }}}}"

    def _headers(self, *, has_body: bool) -> None:
        columns: dict[str, list[tuple[int, str, str]]] = {}
        dropped: dict[str, None] = {}
        # Examples of a request often leave out its headers.
        for place, sample in enumerate(self._samples[:1] if self._has_defaults else self._samples):
            self._auth += [self._scheme(scheme) for scheme in sample.auth if place == 0]
            userinfo = credentials_of(sample.url) if place == 0 else None
            if userinfo is not None:
                self._basic(*userinfo)
            for name, value in sample.headers:
                lower = name.lower()
                if lower.startswith(":") or lower == "cookie":
                    continue
                if lower in FORBIDDEN or not is_token(name) or (lower == "content-type" and not has_body):
                    dropped[name] = None
                    continue
                columns.setdefault(lower, []).append((place, name, value))
        dropped_silently = {"host", "content-length", "connection", "accept-encoding", "content-type"}
        told = [name for name in dropped if name.lower() not in dropped_silently]
        if told:
            self._lost(f"headers that the client sets itself: {', '.join(told)}")
        if any(name.lower() == "host" for name in dropped) and not self._host_is_the_urls():
            self._lost("the header `Host`, which differs from the host of the URL")
        written: dict[str, Any] = {}
        for lower, found in columns.items():
            self._header(lower, found, written)
        self._live["headers"] = written

    def _host_is_the_urls(self) -> bool:
        for sample in self._samples:
            for name, value in sample.headers:
                if name.lower() == "host" and not split_url(sample.url).origin.endswith(f"//{value.lower()}"):
                    return False
        return True

    def _header(self, lower: str, found: Sequence[tuple[int, str, str]], written: dict[str, Any]) -> None:
        _place, name, value = found[0]
        if lower == "authorization":
            self._authorization(value)
        elif lower == "content-type":
            return  # it belongs to the body
        elif is_secret_name(name):
            value = self._variable(name, value)
            self._auth.append({"type": "apiKey", "in": "header", "name": name, "value": value})
        elif lower == "accept" and not VARIABLE.search(value):
            if value.strip() not in {"*/*", ""}:
                self._live["accept"] = value.strip()
        elif len({each for _, _, each in found}) > 1 or (
            len(found) < len(self._samples) and not self._has_defaults
        ):
            values: list[Any] = [ABSENT] * len(self._samples)
            for place, _, each in found:
                values[place] = each
            argument = self._argument(name, "header", values)
            if argument in self._required:
                self._required.remove(argument)
            written[name] = f"{{{{ {reading(argument)} }}}}"
        elif header_fault(VARIABLE.sub("", value)):
            self._lost(f"the header `{name}`, whose value cannot be sent")
        else:
            written[name] = with_variables(value)

    def _authorization(self, value: str) -> None:
        scheme, _, credentials = value.strip().partition(" ")
        credentials = credentials.strip()
        if _CHANGING.fullmatch(scheme) and credentials:
            self.secrets.add(credentials)
            self._lost(
                f"the authorization `{scheme}`, which changes with each request; write it as `auth: {{type: python, ...}}`"
            )
        elif scheme.lower() == "bearer" and credentials:
            token = self._variable("token", credentials)
            self._auth.append({"type": "http", "scheme": "bearer", "token": token})
        elif scheme.lower() == "basic" and (pair := _decoded(credentials)) is not None:
            self.secrets.add(credentials)
            self._basic(*pair)
        else:
            name = "Authorization"
            said = credentials or value
            inserted = self._variable("authorization", said)
            lead = f"{scheme} " if credentials else ""
            self._auth.append({"type": "apiKey", "in": "header", "name": name, "value": lead + inserted})

    def _scheme(self, scheme: Mapping[str, JSON]) -> dict[str, JSON]:
        """A scheme of the source with variables in place of its secrets."""
        names = {"value": "key", "username": "user"}
        return {
            key: self._variable(names.get(key, key), value)
            if key in _SECRET_KEYS and isinstance(value, str) and value
            else value
            for key, value in scheme.items()
        }

    def _basic(self, user: str, password: str) -> None:
        scheme: dict[str, JSON] = {"type": "http", "scheme": "basic"}
        scheme["username"] = self._variable("user", user)
        scheme["password"] = self._variable("password", password) if password else ""
        self._auth.append(scheme)

    def _cookies(self) -> None:
        found: dict[str, str] = {}
        for sample in self._samples:
            for name, value in sample.cookies:
                found.setdefault(name, value)
        dropped = [name for name in found if _TRACKING.fullmatch(name) or not is_token(name)]
        if dropped:
            self._lost(f"cookies of trackers, or with an invalid name: {', '.join(dropped)}")
        kept = {name: value for name, value in found.items() if name not in dropped}
        self._live["cookies"] = {
            name: self._variable(f"cookie {name}", value) for name, value in kept.items()
        }

    # -- bodies

    def _body(self, contents: Sequence[BodyContent]) -> None:
        kinds = {content.kind for content in contents if content.kind}
        if not kinds:
            return
        if len(kinds) > 1:
            first = next(content.kind for content in contents if content.kind)
            self._lost(f"bodies of other kinds than {first} ({', '.join(sorted(kinds - {first}))})")
            contents = [content if content.kind == first else BodyContent("") for content in contents]
        content = next(content for content in contents if content.kind)
        values = [content.value if content.kind else ABSENT for content in contents]
        write: Callable[[Sequence[Any], BodyContent], dict[str, Any]] = {
            "json": self._json,
            "form": self._form,
            "multipart": self._multipart,
            "text": self._text,
        }[content.kind]
        self._live["body"] = write(values, content)

    def _json(self, values: Sequence[Any], content: BodyContent) -> dict[str, Any]:
        essence = content.content_type.partition(";")[0].strip().lower()
        if essence not in {"", "application/json"}:
            self._live["headers"] = {**self._live["headers"], "Content-Type": content.content_type}
        known = [value for value in values if value is not ABSENT]
        if not all(isinstance(value, dict) for value in known):
            return {"json": f"{{{{ {reading(self._argument('body', 'body', values))} }}}}"}
        if all(is_graphql(value) for value in known):
            return {"json": self._graphql(values)}
        return {"json": self._members(values)}

    def _members(self, values: Sequence[Any]) -> dict[str, Any]:
        names = dict.fromkeys(name for value in values if value is not ABSENT for name in value)
        return {
            name: self._member(
                name, [ABSENT if value is ABSENT else value.get(name, ABSENT) for value in values]
            )
            for name in names
        }

    def _member(self, name: str, values: Sequence[Any]) -> Any:
        given = [value for value in values if value is not ABSENT]
        if is_secret_name(name) and all(isinstance(value, str) for value in given):
            return self._variable(name, given[0])
        if any(has_secret_member(value) for value in given):
            # The default would contain the secret.
            for value in given:
                self._hide(value)
            message = f"the value of `{name}` contains a secret; it is an argument without a default"
            self.remarks.append(ImportRemark("secret", self._key, self._samples[0].pointer, message))
            shape = infer_schema([without_secret_members(value) for value in given])
            hidden = [value if value is ABSENT else variable(name) for value in values]
            return f"{{{{ {reading(self._argument(name, 'body', hidden, schema=shape))} }}}}"
        return f"{{{{ {reading(self._argument(name, 'body', values))} }}}}"

    def _hide(self, value: JSON) -> None:
        """Take note of the secrets in a value."""
        if isinstance(value, dict):
            for key, item in value.items():
                if isinstance(item, str) and is_secret_name(key) and len(item) > 3:
                    self.secrets.add(item)
                else:
                    self._hide(item)
        elif isinstance(value, list):
            for item in value:
                self._hide(item)

    def _graphql(self, values: Sequence[Any]) -> dict[str, Any]:
        """The body of a GraphQL request: its document is fixed, and its variables are the arguments."""
        known = [value for value in values if value is not ABSENT]
        fixed = {
            key: with_variables(value) if isinstance(value, str) else value
            for key, value in known[0].items()
            if key in {"query", "operationName"} and value is not None
        }
        others = [key for key in known[0] if key not in {"query", "operationName", "variables"}]
        if others:
            self._lost(f"members of a GraphQL request besides its variables: {', '.join(others)}")
        if any(not json_equal(value["query"], known[0]["query"]) for value in known):
            self._lost("GraphQL documents that differ from the first of this operation")
        variables = [ABSENT if value is ABSENT else value.get("variables") or {} for value in values]
        inner = self._members(variables)
        return {**fixed, "variables": inner} if inner else fixed

    def _form(self, values: Sequence[Any], _content: BodyContent) -> dict[str, Any]:
        columns: dict[str, list[list[str] | None]] = {}
        for place, fields in enumerate(values):
            for field in fields if fields is not ABSENT else ():
                column = columns.setdefault(field.name, [None] * len(values))
                column[place] = [
                    *(column[place] or []),
                    variable(field.name) if field.value is None else field.value,
                ]
        written: dict[str, Any] = {}
        for name, lists in columns.items():
            said = next(each for each in lists if each)
            secret = is_secret_name(name)
            written[name] = self._variable(name, said[0]) if secret else self._of_texts(name, "body", lists)
        return {"form": written}

    def _multipart(self, values: Sequence[Any], _content: BodyContent) -> dict[str, Any]:
        written: dict[str, Any] = {}
        fields = next(each for each in values if each is not ABSENT)
        for field in fields:
            if field.name in written:
                self._lost(f"a second field `{field.name}` of the form")
            elif field.is_file:
                schema = {
                    "type": "string",
                    "description": f"The file `{field.file_name or field.name}` as a `data:` URI.",
                }
                argument = self._argument(
                    field.name, "body", [variable(field.name)] * len(values), schema=schema
                )
                file = {"file": f"{{{{ {reading(argument)} }}}}"}
                name = field.file_name.rpartition("/")[2]
                file |= {"name": with_variables(name)} if name else {}
                file |= {"content_type": field.content_type} if field.content_type else {}
                written[field.name] = file
            elif is_secret_name(field.name):
                written[field.name] = self._variable(field.name, field.value or "")
            else:
                lists = [
                    ABSENT
                    if each is ABSENT
                    else next((other.value for other in each if other.name == field.name), ABSENT)
                    for each in values
                ]
                typed = [variable(field.name) if value is None else value for value in lists]
                written[field.name] = f"{{{{ {reading(self._argument(field.name, 'body', typed))} }}}}"
        return {"multipart": written}

    def _text(self, values: Sequence[Any], content: BodyContent) -> dict[str, Any]:
        known = [value if value is ABSENT or value is not None else variable("body") for value in values]
        argument = self._argument("body", "body", known, schema={"type": "string"})
        text: dict[str, Any] = {"text": f"{{{{ {reading(argument)} }}}}"}
        return {**text, "content_type": content.content_type} if content.content_type else text

    # -- responses

    def _answers(self) -> dict[str, Any]:
        """The output schema, the examples and the mock of the responses."""
        results: list[tuple[dict[str, JSON] | None, JSON]] = []
        errors: list[tuple[dict[str, JSON] | None, dict[str, Any]]] = []
        for place, sample in enumerate(self._samples):
            answer = sample.answer
            if answer is None or 300 <= answer.status < 400:
                continue
            arguments = None if place in self._incomplete else self._arguments[place]
            value = value_of(answer)
            if 200 <= answer.status < 300:
                if value is not ABSENT:
                    results.append((arguments, without_secret_members(value)))
            elif answer.status >= 400:
                errors.append((arguments, _error_of(answer.status, value)))
        found: dict[str, Any] = {}
        if results:
            # Samples do not prove what is always there.
            found = {
                "output_schema": infer_schema(result for _, result in results),
                "on_invalid_result": "warn",
            }
            shown = [
                {"args": arguments, "result": result}
                for arguments, result in results
                if arguments is not None and len(compact(result)) <= _LARGEST_EXAMPLE
            ]
            firsts: list[dict[str, Any]] = []
            for each in shown:
                if len(firsts) < _MOST_EXAMPLES and not any(
                    json_equal(each["args"], other["args"]) for other in firsts
                ):
                    firsts.append(each)
            if firsts:
                found["examples"] = firsts
        mock = self._mock(results, errors)
        return {**found, "mode": "mock", "mock": mock} if mock else found

    def _mock(
        self,
        results: Sequence[tuple[dict[str, JSON] | None, JSON]],
        errors: Sequence[tuple[dict[str, JSON] | None, dict[str, Any]]],
    ) -> dict[str, Any]:
        rules: list[dict[str, Any]] = []
        seen: list[dict[str, JSON]] = []
        replies = [(arguments, self._reply(result)) for arguments, result in results]
        failures = [(arguments, {"error": escape_expressions(error)}) for arguments, error in errors]
        for arguments, reply in (*replies, *failures):
            if (
                arguments
                and len(rules) < _MOST_REPLIES
                and not any(json_equal(arguments, each) for each in seen)
            ):
                seen.append(arguments)
                rules.append({"when": {"args": _matching(arguments)}, "reply": reply})
        # The rule with more arguments is the more specific one.
        rules.sort(key=lambda rule: -len(rule["when"]["args"]))
        usual = next((reply for _, reply in (*replies, *failures)), None)
        if usual is None:
            return {}
        if len(replies) + len(failures) == 1 or not rules:
            return dict(usual)
        return {"rules": [*rules, {"reply": usual}]}

    def _reply(self, result: JSON) -> dict[str, Any]:
        if len(compact(result)) > _LARGEST_REPLY:
            self._lost(
                f"a response of more than {_LARGEST_REPLY // 1024} KiB; the mock generates one like it"
            )
            return {"generate": True}
        return {"result": escape_expressions(result)}


# -- Values ---------------------------------------------------------------------------------------------------------


def reading(argument: str) -> str:
    """The expression that reads an argument; it may be absent."""
    return f"args.{argument}" if _IDENTIFIER.fullmatch(argument) else f"args[{json.dumps(argument)}]"


def _without_repeats(schemes: Sequence[dict[str, JSON]]) -> Iterator[dict[str, JSON]]:
    """The schemes without those that set the same part of a request again: a recording has both the scheme and its header."""
    taken = set()
    for scheme in schemes:
        place = scheme.get("in", "header"), str(scheme.get("name", "Authorization")).lower()
        if place not in taken:
            taken.add(place)
            yield scheme


def with_variables(text: str) -> str:
    """A literal text, in which the variables of the source are `${NAME}`."""
    pieces = VARIABLE.split(text)
    return "".join(
        f"${{{variable_name(piece)}}}" if place % 2 else str(escape_expressions(piece))
        for place, piece in enumerate(pieces)
    )


def _is_unknown(value: Any) -> bool:
    """Whether a value contains a variable of the source."""
    if isinstance(value, str):
        return variable("")[0] in value
    if isinstance(value, dict):
        return any(_is_unknown(item) for item in value.values())
    return isinstance(value, list) and any(_is_unknown(item) for item in value)


_NOT_IN_PATH: Final = re.compile(r"[^!-~]|[{}\"<>\\^`|]|%(?![0-9A-Fa-f]{2})")
_WORD: Final = re.compile(r"[A-Za-z]{1,12}|\W*|.{1,5}", re.DOTALL)
_WHOLE: Final = re.compile(r"0|-?[1-9]\d{0,14}")
_DECIMAL: Final = re.compile(r"-?(0|[1-9]\d{0,9})\.\d{0,4}[1-9]")


def _typed(texts: Sequence[str]) -> list[Any]:
    """Texts as integers, numbers or booleans if all of them are written as `live` writes these."""
    known = [text for text in texts if not VARIABLE.search(text)]
    if not known:
        return list(texts)
    convert: Callable[[str], Any] | None = None
    if all(map(_WHOLE.fullmatch, known)):
        convert = int
    elif all(_WHOLE.fullmatch(text) or _DECIMAL.fullmatch(text) for text in known):
        convert = float
    elif all(text in {"true", "false"} for text in known):
        convert = "true".__eq__
    if convert is None:
        return list(texts)
    return [text if variable("")[0] in text else convert(text) for text in texts]


def _decoded(credentials: str) -> tuple[str, str] | None:
    try:
        user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if colon else None


def _error_of(status: int, value: Any) -> dict[str, Any]:
    error: dict[str, Any] = {"code": f"http_{status}", "status": status}
    found = value
    for key in ("error", "message", "detail", "error_description", "title"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    if isinstance(found, str) and found.strip():
        error["message"] = " ".join(found.split())[:300]
    return error


def _matching(arguments: Mapping[str, JSON]) -> dict[str, Any]:
    """A matcher for arguments as they are."""
    return {
        key: {"$eq": value} if isinstance(value, dict | list) or value is None else escape_expressions(value)
        for key, value in arguments.items()
    }
