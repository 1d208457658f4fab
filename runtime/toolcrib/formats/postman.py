"""Tools of a Postman collection (2.0 and 2.1): one for each request, with its saved responses as the mock.

Variables with a value in the collection are replaced by it. Others, and those that hold secrets, become `${NAME}` where a
request is addressed and authenticated, and arguments elsewhere. Authorization is inherited from folders as in Postman. Scripts
are not converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.formats.http_samples import (
    HttpAnswer,
    HttpBody,
    HttpField,
    HttpSample,
    Unconvertible,
    damage,
    json_with_variables,
    split_url,
    variable,
)
from toolcrib.formats.imported_tools import ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import name_of_request, name_of_words, unique_names, words_of
from toolcrib.formats.sampled_tools import SampledTool, imported_of, tool_of_samples, with_variables
from toolcrib.formats.secret_names import is_secret_name

_DEPTH: Final = 50
"""Nesting of folders; deeper ones are refused."""

_MOST_TITLE: Final = 200
_MOST_TEXT: Final = 4000
_REFERENCE: Final = re.compile(r"\{\{([^{}]{1,200})\}\}")
_MEDIA_TYPES: Final = {
    "json": "application/json",
    "xml": "application/xml",
    "html": "text/html",
    "javascript": "application/javascript",
    "text": "text/plain",
}
_CHANGING: Final = frozenset(("digest", "hawk", "ntlm", "awsv4", "oauth1", "edgegrid", "jwt", "asap"))
"""Types of authorization whose value differs for each request."""


class _Scope(NamedTuple):
    """What a request inherits.

    Attributes:
        folders: Names of the folders that it is in.
        variables: Name -> value.
        auth: The authorization of the nearest folder.
        pointer: JSON Pointer of the folder.
    """

    folders: tuple[str, ...]
    variables: Mapping[str, str]
    auth: Any
    pointer: str


class _Found(NamedTuple):
    """A request of the collection."""

    item: Mapping[str, Any]
    scope: _Scope
    pointer: str


def tools_of_postman(document: Mapping[str, Any]) -> ImportedTools:
    """The tools of the requests of a collection.

    Args:
        document: The collection. A request that is damaged is refused, and the others are not.
    """
    collection = document.get("collection", document)
    reader = _Reader()
    top = _Scope((), reader.variables(collection.get("variable")), collection.get("auth"), "")
    reader.scripts(collection, "the collection", "")
    found = [*_requests(collection.get("item"), top, reader)]
    keys = [*_unique(" / ".join((*each.scope.folders, _text(each.item.get("name")))) for each in found)]
    drafts: list[SampledTool] = []
    for request, key, name in zip(found, keys, _names(found), strict=True):
        try:
            made = reader.tool(request, key, name)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            message = f"the request is damaged: {damage(error)}"
            made = ImportRefusal(key, "damaged_request", request.pointer, message)
        except Unconvertible as why:
            made = ImportRefusal(key, why.reason, request.pointer, str(why))
        if isinstance(made, ImportRefusal):
            reader.refused.append(made)
        else:
            drafts.append(made)
    return imported_of(drafts, reader.refused, reader.remarks, reader.secrets)


def _unique(keys: Iterable[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
        yield key if seen[key] == 1 else f"{key} ({seen[key]})"


def _requests(items: Any, scope: _Scope, reader: _Reader) -> Iterator[_Found]:
    """The requests of folders, in order."""
    for place, item in enumerate(items if isinstance(items, list) else ()):
        pointer = f"{scope.pointer}/item/{place}"
        if not isinstance(item, dict) or not ("item" in item or "request" in item):
            reader.refused.append(
                ImportRefusal(pointer, "damaged_request", pointer, "it is no request and no folder")
            )
        elif "item" not in item:
            yield _Found(item, scope, pointer)
        elif len(scope.folders) >= _DEPTH:
            message = f"folders are nested more than {_DEPTH} times"
            reader.refused.append(ImportRefusal(pointer, "nesting", pointer, message))
        else:
            name = _text(item.get("name"))
            reader.scripts(item, f"the folder `{name}`", pointer)
            inner = _Scope(
                (*scope.folders, name),
                {**scope.variables, **reader.variables(item.get("variable"))},
                scope.auth if item.get("auth") is None else item["auth"],
                pointer,
            )
            yield from _requests(item["item"], inner, reader)


def _names(found: Sequence[_Found]) -> Iterator[str]:
    """Names of the tools: that of the request, with those of its folders if it is not unique."""
    short = [_short_name(each) for each in found]
    long = (
        name_of_words(
            [*(word for folder in each.scope.folders[-2:] for word in words_of(folder)), *words_of(name)]
        )
        if short.count(name) > 1
        else name
        for each, name in zip(found, short, strict=True)
    )
    return unique_names(long)


def _short_name(found: _Found) -> str:
    said = _text(found.item.get("name"))
    words = words_of(said)
    if words and "://" not in said and not said.startswith(("/", "{{")):
        return name_of_words(words)
    # Postman names a new request after its URL.
    request = found.item["request"]
    method = request.get("method", "GET") if isinstance(request, dict) else "GET"
    url = request.get("url") if isinstance(request, dict) else request
    raw = url.get("raw") if isinstance(url, dict) else url
    try:
        return name_of_request(str(method), _REFERENCE.sub(lambda match: variable(match[1]), str(raw)))
    except Unconvertible:
        return name_of_words(words)


class _Reader:
    """Reads the requests of a collection.

    Attributes:
        remarks: Remarks on the collection.
        refused: Requests without a tool.
        secrets: Values of variables that are secret.
    """

    def __init__(self) -> None:
        self.remarks: list[ImportRemark] = []
        self.refused: list[ImportRefusal] = []
        self.secrets: set[str] = set()

    def scripts(self, item: Mapping[str, Any], what: str, pointer: str) -> None:
        """Report the scripts of a collection or folder."""
        if _has_scripts(item):
            self.remarks.append(ImportRemark("lost", "", f"{pointer}/event", f"the scripts of {what}"))

    def variables(self, said: Any) -> dict[str, str]:
        """The variables of a collection or folder that have a value."""
        found: dict[str, str] = {}
        for each in said if isinstance(said, list) else ():
            name, value = each.get("key", each.get("id")), each.get("value")
            if not isinstance(name, str) or value in {None, ""} or each.get("disabled"):
                continue
            text = value if isinstance(value, str) else str(value)
            if each.get("type") == "secret" or (is_secret_name(name) and not _REFERENCE.search(text)):
                self.secrets.add(text)
            else:
                found[name] = text
        return found

    def tool(self, found: _Found, key: str, name: str) -> SampledTool | ImportRefusal:
        """The tool of a request."""
        item, scope = found.item, found.scope
        request = {"url": item["request"]} if isinstance(item["request"], str) else item["request"]
        lost: list[str] = []
        sample = _sample(request, scope, f"{found.pointer}/request", lost)
        texts: dict[str, JSON] = {}
        title = _text(item.get("name"))
        texts |= {"title": title[:_MOST_TITLE]} if title and "://" not in title else {}
        description = _text(request.get("description", item.get("description")))
        texts |= {"description": description[:_MOST_TEXT]} if description else {}
        tags = [folder for folder in scope.folders if folder]
        texts |= {"tags": [*dict.fromkeys(tags)]} if tags else {}
        examples = [*_examples(item.get("response"), sample, scope, found.pointer)]
        made = tool_of_samples([sample, *examples], key=key, name=name, texts=texts, defaults=True)
        if isinstance(made, ImportRefusal):
            return made
        if _has_scripts(item):
            lost.append("its scripts")
        more = (ImportRemark("lost", key, found.pointer, message) for message in lost)
        return made._replace(remarks=(*made.remarks, *more))


def _has_scripts(item: Mapping[str, Any]) -> bool:
    for event in item.get("event") or ():
        script = event.get("script") if isinstance(event, dict) else None
        lines = script.get("exec") if isinstance(script, dict) else script
        if any(
            isinstance(line, str) and line.strip()
            for line in ([lines] if isinstance(lines, str) else lines or ())
        ):
            return True
    return False


def _examples(responses: Any, sample: HttpSample, scope: _Scope, pointer: str) -> Iterator[HttpSample]:
    """The saved responses of a request, each with the request that it answers."""
    for place, response in enumerate(responses if isinstance(responses, list) else ()):
        code = response.get("code")
        if not isinstance(code, int):
            continue
        headers = {name.lower(): value for name, value in _pairs(response.get("header"), scope)}
        language = str(response.get("_postman_previewlanguage", ""))
        kind = headers.get("content-type") or _MEDIA_TYPES.get(language, "")
        body = response.get("body")
        text = body if isinstance(body, str) else "" if code in {204, 205} else None
        if not kind and text is not None and text.lstrip().startswith(("{", "[")):
            kind = "application/json"
        answer = HttpAnswer(code, kind, text)
        original = response.get("originalRequest")
        asked = sample
        if isinstance(original, dict):
            asked = _sample(original, scope, f"{pointer}/response/{place}/originalRequest", [])
            if not _is_alike(asked, sample):
                asked = sample
        yield asked._replace(answer=answer, pointer=f"{pointer}/response/{place}", auth=(), optional_query=())


def _is_alike(one: HttpSample, other: HttpSample) -> bool:
    """Whether two requests are of the same operation."""
    paths = [split_url(each.url).path.count("/") for each in (one, other)]
    return one.method == other.method and paths[0] == paths[1]


# -- Requests -------------------------------------------------------------------------------------------------------


def _sample(request: Mapping[str, Any], scope: _Scope, pointer: str, lost: list[str]) -> HttpSample:
    url, query, optional, path_values, texts = _url(request.get("url"), scope, lost)
    headers = _pairs(request.get("header"), scope)
    method = str(request.get("method") or "GET").upper()
    cookies = [
        (name, text)
        for header, value in headers
        if header.lower() == "cookie"
        for name, _, text in (part.strip().partition("=") for part in value.split(";"))
        if name
    ]
    body, kind = _body(request.get("body"), headers, scope, texts)
    said = request.get("auth")
    auth, headers_of_auth = _auth(scope.auth if said is None else said, scope, lost)
    plain = [(name, value) for name, value in headers if name.lower() != "cookie"]
    if kind and not any(name.lower() == "content-type" for name, _ in plain):
        plain.append(("Content-Type", kind))
    return HttpSample(
        pointer=pointer,
        method=method,
        url=url,
        headers=[*plain, *headers_of_auth],
        query=query,
        cookies=cookies,
        body=body,
        auth=auth,
        path_values=path_values,
        optional_query=optional,
        descriptions=texts,
    )


def _url(
    said: Any, scope: _Scope, lost: list[str]
) -> tuple[str, list[tuple[str, str]], list[tuple[str, str]], dict[str, str], dict[str, str]]:
    """The URL without its query; the parameters; those that are disabled; values of path variables; descriptions."""
    if isinstance(said, str):
        said = {"raw": said}
    if not isinstance(said, dict):
        raise Unconvertible("no_url", "the request has no URL")
    raw = said.get("raw")
    if not isinstance(raw, str) or not raw:
        raw = _joined(said)
    url = _resolved(raw, scope).strip()
    if re.match(r"(https?://)?/", url):
        # A collection that was made of a description without a server has only paths.
        lost.append("its URL has no host; set `${BASE_URL}`")
        url = f"{variable('baseUrl')}/{re.sub(r'^(https?:)?/*', '', url)}"
    elif "://" not in url and not url.startswith(variable("")[0]):
        lost.append("its URL has no scheme; `http` is assumed, as Postman does")
        url = f"http://{url}"
    query: list[tuple[str, str]] = []
    optional: list[tuple[str, str]] = []
    texts: dict[str, str] = {}
    if isinstance(said.get("query"), list):
        url = re.sub(r"\?[^#]*", "", url)
        for each in said["query"]:
            name, value = _resolved(_text(each.get("key")), scope), _resolved(_text(each.get("value")), scope)
            if name:
                (optional if each.get("disabled") else query).append((name, value))
                texts[name] = _text(each.get("description"))
    path_values: dict[str, str] = {}
    for each in said.get("variable") or ():
        name = _text(each.get("key", each.get("id")))
        path_values[name] = _resolved(_text(each.get("value")), scope)
        texts[name] = _text(each.get("description"))
    known = {name: value for name, value in path_values.items() if value and variable("")[0] not in value}
    return url, query, optional, known, {name: text for name, text in texts.items() if text}


def _joined(said: Mapping[str, Any]) -> str:
    """A URL of its parts."""

    def part(key: str, separator: str) -> str:
        value = said.get(key)
        parts = value if isinstance(value, list) else [value] if value else []
        return separator.join(each if isinstance(each, str) else _text(each.get("value")) for each in parts)

    scheme = f"{said['protocol']}://" if said.get("protocol") else ""
    port = f":{said['port']}" if said.get("port") else ""
    path = part("path", "/")
    return f"{scheme}{part('host', '.')}{port}/{path.removeprefix('/')}"


def _pairs(said: Any, scope: _Scope) -> list[tuple[str, str]]:
    """The headers, which older collections write as text."""
    if isinstance(said, str):
        lines = (line.partition(":") for line in said.splitlines())
        return [(name.strip(), _resolved(value.strip(), scope)) for name, _, value in lines if name.strip()]
    return [
        (_resolved(_text(each.get("key")), scope), _resolved(_text(each.get("value")), scope))
        for each in (said if isinstance(said, list) else ())
        if isinstance(each, dict) and not each.get("disabled") and _text(each.get("key"))
    ]


def _body(
    said: Any, headers: Sequence[tuple[str, str]], scope: _Scope, texts: dict[str, str]
) -> tuple[HttpBody | None, str]:
    """The body, and its media type."""
    if not isinstance(said, dict) or said.get("disabled") or not said.get("mode"):
        return None, ""
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    form = said["mode"]
    content = said.get(form)
    if form == "raw":
        text = content if isinstance(content, str) else ""
        language = ((said.get("options") or {}).get("raw") or {}).get("language", "")
        kind = kind or _MEDIA_TYPES.get(language, "")
        if not kind:
            kind = "application/json" if text.lstrip().startswith(("{", "[")) else "text/plain"
        resolved = _resolved(text, scope)
        return (
            HttpBody(kind, json_with_variables(resolved) if "json" in kind else resolved) if text else None
        ), kind
    if form == "graphql":
        return HttpBody("application/json", _graphql(content, scope)), "application/json"
    if form in {"urlencoded", "formdata"}:
        fields = [_field(each, scope, texts) for each in content or () if not each.get("disabled")]
        usual = "application/x-www-form-urlencoded" if form == "urlencoded" else "multipart/form-data"
        return (HttpBody(usual, fields=fields) if fields else None), usual if fields else ""
    kind = kind or "application/octet-stream"
    return HttpBody(kind), kind


def _graphql(content: Any, scope: _Scope) -> str:
    said = content if isinstance(content, dict) else {}
    variables = said.get("variables") or {}
    text = variables if isinstance(variables, str) else dumps(variables)
    name = said.get("operationName")
    head = f'"operationName": {dumps(name)}, ' if isinstance(name, str) and name else ""
    inner = json_with_variables(_resolved(text, scope)).strip() or "{}"
    return f'{{{head}"query": {dumps(_text(said.get("query")))}, "variables": {inner}}}'


def _field(each: Mapping[str, Any], scope: _Scope, texts: dict[str, str]) -> HttpField:
    name = _resolved(_text(each.get("key")), scope)
    description = _text(each.get("description"))
    if description:
        texts[name] = description
    kind = _text(each.get("contentType"))
    if each.get("type") == "file":
        source = each.get("src")
        first = source[0] if isinstance(source, list) and source else source
        return HttpField(name, None, True, first if isinstance(first, str) else "", kind)
    return HttpField(name, _resolved(_text(each.get("value")), scope), content_type=kind)


def _auth(said: Any, scope: _Scope, lost: list[str]) -> tuple[list[dict[str, JSON]], list[tuple[str, str]]]:
    """Schemes of `live.auth`, and headers that stand for others."""
    kind = said.get("type") if isinstance(said, dict) else None
    if not kind or kind == "noauth":
        return [], []
    values = {name: _resolved(text, scope) for name, text in _parameters(said.get(kind))}
    if kind == "bearer":
        return [], [("Authorization", f"Bearer {values.get('token') or variable('token')}")]
    if kind == "basic":
        user, password = values.get("username", ""), values.get("password", "")
        return [_basic(user or variable("username"), password)], []
    if kind == "apikey":
        name, value = values.get("key") or "X-Api-Key", values.get("value") or variable("api_key")
        place = "query" if values.get("in") == "query" else "header"
        return [{"type": "apiKey", "in": place, "name": name, "value": value}], []
    if kind == "oauth2":
        return _oauth2(values)
    known = "changes with each request" if kind in _CHANGING else "is not supported"
    lost.append(f"its authorization `{kind}`, which {known}; write it as `auth: {{type: python, ...}}`")
    return [], []


def _basic(user: str, password: str) -> dict[str, JSON]:
    return {"type": "http", "scheme": "basic", "username": user, "password": password}


def _oauth2(values: Mapping[str, str]) -> tuple[list[dict[str, JSON]], list[tuple[str, str]]]:
    url = values.get("accessTokenUrl", "")
    if values.get("grant_type") == "client_credentials" and url:
        scheme: dict[str, JSON] = {
            "type": "oauth2",
            "flow": "client_credentials",
            "token_url": with_variables(url),
        }
        scheme["client_id"] = values.get("clientId") or variable("client_id")
        scheme["client_secret"] = values.get("clientSecret") or variable("client_secret")
        if values.get("client_authentication") == "body":
            scheme["client_auth"] = "body"
        if values.get("scope"):
            scheme["scopes"] = [*values["scope"].split()]
        return [scheme], []
    token = values.get("accessToken") or variable("access_token")
    if values.get("addTokenTo") == "queryParams":
        return [{"type": "apiKey", "in": "query", "name": "access_token", "value": token}], []
    return [], [("Authorization", f"Bearer {token}")]


def _parameters(said: Any) -> Iterator[tuple[str, str]]:
    """The parameters of an authorization: a list in 2.1, an object in 2.0."""
    if isinstance(said, dict):
        yield from ((name, _text(value)) for name, value in said.items())
    for each in said if isinstance(said, list) else ():
        yield _text(each.get("key")), _text(each.get("value"))


def _resolved(text: str, scope: _Scope) -> str:
    """A text with the values of variables; those without a value are marked."""
    for _ in range(5):  # a value may contain variables
        replaced = _REFERENCE.sub(lambda match: scope.variables.get(match[1].strip(), match[0]), text)
        if replaced == text:
            break
        text = replaced
    # `{{$guid}}` and the like are drawn by Postman for each request.
    return _REFERENCE.sub(lambda match: variable(match[1].strip().removeprefix("$")), text)


def _text(said: Any) -> str:
    """A text, which may be in an object as its content."""
    if isinstance(said, dict):
        said = said.get("content")
    if isinstance(said, bool):
        return "true" if said else "false"
    return "" if said is None or isinstance(said, dict | list) else str(said)
