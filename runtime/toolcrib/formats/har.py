"""Tools of a HAR file (HTTP Archive 1.2), as browsers, proxies and test frameworks record it.

Requests of the same operation become one tool: the same method and host, the same path but for its data (numbers, UUIDs,
hashes), and for GraphQL the same operation. What a page loads for its looks (scripts, styles, images, fonts, documents) is
left out and counted.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from toolcrib.core.model import JSON
from toolcrib.core.text import decode_json
from toolcrib.formats.http_samples import (
    HttpAnswer,
    HttpBody,
    HttpField,
    HttpSample,
    Unconvertible,
    damage,
    is_graphql,
    split_url,
)
from toolcrib.formats.imported_tools import ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import (
    argument_of_segment,
    name_of_request,
    name_of_words,
    unique_names,
    words_of,
)
from toolcrib.formats.sampled_tools import SampledTool, imported_of, tool_of_samples
from toolcrib.schema.inference import is_data

_MOST_SAMPLES: Final = 200
"""Recordings of one operation that are used. More of them add nothing to its schema."""

_RESOURCES: Final = re.compile(
    r"stylesheet|image|font|script|media|manifest|document|texttrack|websocket|preflight|ping|beacon|csp-?violation-?report"
    r"|signedexchange|prefetch|eventsource"
)
"""Values of `_resourceType` of Chromium, Firefox and Playwright that are no calls of an API."""

_STATIC: Final = re.compile(
    r"(?i)(image|font|audio|video)/.*|text/(css|html|javascript|event-stream)|application/(x-)?(javascript|ecmascript|wasm|font.*)"
    r"|application/(manifest\+json|xhtml\+xml|pdf|octet-stream)"
)
"""Media types of responses to GET that a page loads."""

_OF_BROWSERS: Final = re.compile(
    r"(?i)sec-.*|user-agent|referer|origin|accept-language|accept-encoding|pragma|cache-control|dnt|priority|connection"
    r"|if-none-match|if-modified-since|upgrade-insecure-requests|x-client-data|save-data|device-memory|rtt|ect|downlink"
    r"|host|content-length|cookie|:.*|traceparent|tracestate|baggage|sentry-trace|newrelic|x-datadog-.*|x-b3-.*"
)
"""Headers that browsers and their monitoring add."""


def tools_of_har(document: Mapping[str, Any]) -> ImportedTools:
    """The tools of the requests of a HAR file.

    Args:
        document: The file. An entry that is damaged is refused, and the others are not.
    """
    log = document.get("log")
    entries = log.get("entries") if isinstance(log, dict) else None
    left_out: Counter[str] = Counter()
    dropped: dict[str, None] = {}
    refused: list[ImportRefusal] = []
    groups: dict[str, list[HttpSample]] = {}
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        pointer = f"/log/entries/{place}"
        try:
            why = _resource(entry)
            if why:
                left_out[why] += 1
                continue
            sample = _sample(entry, pointer, dropped)
            groups.setdefault(_key(sample), []).append(sample)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            message = f"the entry is damaged: {damage(error)}"
            refused.append(ImportRefusal(pointer, "damaged_entry", pointer, message))
        except Unconvertible as why_not:
            refused.append(ImportRefusal(pointer, why_not.reason, pointer, str(why_not)))
    tools: list[SampledTool] = []
    names = unique_names(_name(key, samples[0]) for key, samples in groups.items())
    for (key, samples), name in zip(groups.items(), names, strict=True):
        made = tool_of_samples(samples[:_MOST_SAMPLES], key=key, name=name)
        if isinstance(made, ImportRefusal):
            refused.append(made)
        else:
            tools.append(made._replace(remarks=(*made.remarks, *_unused(key, samples))))
    return imported_of(tools, refused, [*_remarks(left_out, dropped)])


def _remarks(left_out: Counter[str], dropped: Mapping[str, None]) -> Iterator[ImportRemark]:
    if left_out:
        listed = ", ".join(f"{count} {why}" for why, count in left_out.most_common())
        total = left_out.total()
        noun = "entry is no call" if total == 1 else "entries are no calls"
        yield ImportRemark("lost", "", "/log/entries", f"{total} {noun} of an API: {listed}")
    if dropped:
        listed = ", ".join(sorted(dropped))
        yield ImportRemark("lost", "", "/log/entries", f"headers that browsers add: {listed}")


def _unused(key: str, samples: Sequence[HttpSample]) -> Iterator[ImportRemark]:
    more = len(samples) - _MOST_SAMPLES
    if more > 0:
        message = f"{more} further recordings; the first {_MOST_SAMPLES} are used"
        yield ImportRemark("lost", key, samples[_MOST_SAMPLES].pointer, message)


def _resource(entry: Mapping[str, Any]) -> str:
    """What an entry is, if it is not a call of an API; empty otherwise."""
    request = entry["request"]
    scheme = str(request["url"]).partition(":")[0].lower()
    if scheme not in {"http", "https"}:
        return f"{scheme[:20]}:"
    said = str(entry.get("_resourceType") or "").lower()
    response = entry.get("response") or {}
    content = response.get("content") or {}
    media = str(content.get("mimeType") or "").partition(";")[0].strip()
    is_json = media.endswith(("/json", "+json")) and "manifest" not in media
    if _RESOURCES.fullmatch(said) and not (said == "document" and is_json):
        return said
    if request["method"] == "OPTIONS":
        return "preflight"
    if said not in {"xhr", "fetch"} and request["method"] in {"GET", "HEAD"} and _STATIC.fullmatch(media):
        return media.lower()
    return ""


def _sample(entry: Mapping[str, Any], pointer: str, dropped: dict[str, None]) -> HttpSample:
    request = entry["request"]
    headers = []
    cookies = [(str(each["name"]), str(each["value"])) for each in request.get("cookies") or ()]
    for each in request.get("headers") or ():
        name, value = str(each["name"]), str(each["value"])
        if name.lower() == "cookie" and not cookies:
            parts = (part.strip().partition("=") for part in value.split(";"))
            cookies = [(name_of, text) for name_of, _, text in parts if name_of]
        elif not _OF_BROWSERS.fullmatch(name):
            headers.append((name, value))
        elif not name.startswith(":"):
            dropped[name.lower()] = None
    return HttpSample(
        pointer=pointer,
        method=str(request["method"]).upper(),
        url=str(request["url"]),
        headers=headers,
        cookies=cookies,
        body=_body(request.get("postData")),
        answer=_answer(entry.get("response")),
    )


def _body(posted: Mapping[str, Any] | None) -> HttpBody | None:
    if not posted:
        return None
    kind = str(posted.get("mimeType") or "")
    text = posted.get("text")
    params = posted.get("params") or []
    if params and kind.partition(";")[0].strip().lower() in {
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    }:
        return HttpBody(kind, fields=[_field(each, kind) for each in params])
    if text is not None and posted.get("encoding") == "base64":
        text = _decoded(str(text))
    return HttpBody(kind, None if text is None else str(text)) if text != "" else None


def _field(param: Mapping[str, Any], kind: str) -> HttpField:
    is_file = "fileName" in param
    name, value = str(param["name"]), param.get("value")
    text = None if value is None or is_file else str(value)
    if text is not None and "urlencoded" in kind:
        # Browsers record the fields as they are sent.
        name, text = unquote(name.replace("+", " ")), unquote(text.replace("+", " "))
    return HttpField(
        name, text, is_file, str(param.get("fileName") or ""), str(param.get("contentType") or "")
    )


def _answer(response: Mapping[str, Any] | None) -> HttpAnswer | None:
    # Browsers write the status 0 for a request that was blocked or interrupted.
    status = response.get("status") if response else None
    if response is None or not isinstance(status, int) or status < 100:
        return None
    content = response.get("content") or {}
    kind = str(content.get("mimeType") or "")
    text = content.get("text")
    if text is not None and content.get("encoding") == "base64":
        text = _decoded(str(text))
    elif text is None and content.get("size") == 0 and status != 304:
        text = ""
    return HttpAnswer(status, kind, None if text is None else str(text))


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _key(sample: HttpSample) -> str:
    """The operation of a request: `GET https://api.example.com/users/{user_id}`."""
    parts = split_url(sample.url)
    segments = parts.path.split("/")
    shape = [
        f"{{{argument_of_segment(segments, place)}}}" if segment and is_data(segment) else segment
        for place, segment in enumerate(segments)
    ]
    key = f"{sample.method} {parts.origin}{'/'.join(shape)}"
    operation = _operation(sample)
    return f"{key}#{operation}" if operation else key


_OPERATION: Final = re.compile(r"\s*(?:#.*\s*)*(?:query|mutation|subscription)\s+([A-Za-z_]\w*)")


def _operation(sample: HttpSample) -> str:
    """The name of the operation of a GraphQL request; empty for any other request."""
    if sample.body is None or not sample.body.text or "query" not in sample.body.text:
        return ""
    try:
        value: JSON = decode_json(sample.body.text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict) or not is_graphql(value):
        return ""
    said = value.get("operationName")
    match = _OPERATION.match(str(value["query"]))
    return said if isinstance(said, str) and said else match[1] if match is not None else "anonymous"


def _name(key: str, sample: HttpSample) -> str:
    _, found, operation = key.partition("#")
    if found:
        return name_of_words(words_of(operation))
    try:
        return name_of_request(sample.method, sample.url)
    except Unconvertible:
        return "tool"  # the draft refuses it, with the reason
