"""Compile the request of a block with its headers and cookies, and fill it with the arguments of each call.

The block alone decides where a request goes and how it is structured. An argument only fills its placeholder,
encoded for that position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib import __version__
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Descriptor
from toolcrib.executors.live.cross_checks import (
    check_body,
    check_hosts,
    check_insecure,
    check_query_names,
    check_unused_arguments,
    parameters_of_auth,
)
from toolcrib.executors.live.request_body import NONE, RequestBody, compile_body
from toolcrib.executors.live.uri import (
    NOWHERE,
    RemainingArguments,
    Step,
    Url,
    compile_entries,
    compile_url,
    cookie_text,
    fill_steps,
    header_text,
    merge_steps,
    styled_cookie_text,
    styled_header_text,
)
from toolcrib.executors.live.uri import POINTER as URL
from toolcrib.executors.live.value_sources import (
    Arguments,
    RequestPart,
    ValueSource,
    ValueSources,
    child_pointer,
    kind_of,
    scalar_text,
)
from toolcrib.http.headers import cookie_fault, fault_of_name, header_fault, is_token
from toolcrib.http.messages import RequestDraft, origin_of
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.secrets import SecretResolver

HEADERS: Final = "/live/headers"
COOKIES: Final = "/live/cookies"

Pair: TypeAlias = "tuple[str, str]"

AddHeader: TypeAlias = Callable[[Arguments, "list[Pair]"], None]

HeaderStep: TypeAlias = "tuple[Pair, ...] | AddHeader"
"""Constant headers, or the function that adds one, which raises UnusableArguments."""


class Header(NamedTuple):
    """A compiled header: its step, and its place in the descriptor."""

    step: HeaderStep
    part: RequestPart


def compile_headers(block: dict[str, JSON], sources: ValueSources) -> list[Header]:
    """Compile the headers of a block.

    Raises:
        MissingSecret: A variable is not set.
    """
    found: dict[str, str] = {}
    headers = []
    for name, value in block.items():
        at = child_pointer(HEADERS, name)
        check_name(name, at, sources)
        other = found.setdefault(name.lower(), name)
        if other != name:
            message = f"`{name}` and `{other}` are the same header"
            sources.tell("duplicate_header", message, at, "keep one of them")
        headers.append(
            _styled_header(name, value, at, sources)
            if isinstance(value, dict)
            else _header(name, sources.structure(value, at), sources)
        )
    return headers


def check_name(name: str, at: str, sources: ValueSources) -> None:
    """Report the name of a header that is invalid, or that a block must not set."""
    fault = fault_of_name(name)
    if fault is not None:
        sources.tell(fault.code, fault.message, at, fault.hint)


def _header(name: str, source: ValueSource, sources: ValueSources) -> Header:
    part = RequestPart("header", name, source.at, source.reads)
    if source.constant:
        return Header(_fixed_header(name, source, sources), part)

    def add(arguments: Arguments, out: list[Pair]) -> None:
        text = header_text(source, arguments)
        if text is not None:
            out.append((name, text))

    return Header(add, part)


def _styled_header(name: str, block: dict[str, Any], at: str, sources: ValueSources) -> Header:
    source = sources.structure(block["value"], child_pointer(at, "value"))
    style, explode = block["style"], block.get("explode", False)
    if style == "json" and "explode" in block:
        sources.tell(
            "wrong_style",
            "style `json` does not support `explode`",
            child_pointer(at, "explode"),
            "remove it",
        )

    def add(arguments: Arguments, out: list[Pair]) -> None:
        text = styled_header_text(source, style, arguments, explode=explode)
        if text is not None:
            out.append((name, text))

    return Header(add, RequestPart("header", name, source.at, source.reads))


def _fixed_header(name: str, source: ValueSource, sources: ValueSources) -> tuple[Pair, ...]:
    try:
        text = header_text(source, {})
    except UnusableArguments as misfit:
        message = f"header `{name}`: {misfit.message}"
        sources.tell("wrong_form", message, source.at, misfit.hint)
        return ()
    return () if text is None else ((name, text),)


class Cookie(NamedTuple):
    """A compiled cookie: its step, and its place in the descriptor."""

    step: Step
    part: RequestPart


def compile_cookies(block: dict[str, JSON], sources: ValueSources) -> list[Cookie]:
    """Compile the cookies of a block.

    Raises:
        MissingSecret: A variable is not set.
    """
    cookies = []
    for name, value in block.items():
        at = child_pointer(COOKIES, name)
        if not is_token(name):
            message = f"`{name}` is not a valid cookie name"
            sources.tell(
                "wrong_form",
                message,
                at,
                "use letters, digits, `-` and `_`; names cannot be computed",
            )
        if isinstance(value, dict):
            cookies.append(_styled_cookie(name, value, at, sources))
            continue
        source = sources.of(value, at)
        _check_cookie(name, source, sources)
        cookies.append(Cookie(_cookie(name, source), RequestPart("cookie", name, at, source.reads)))
    return cookies


def _styled_cookie(name: str, block: dict[str, Any], at: str, sources: ValueSources) -> Cookie:
    source = sources.structure(block["value"], child_pointer(at, "value"))
    style = block["style"]

    def write(arguments: Arguments, out: list[str]) -> None:
        text = styled_cookie_text(source, style, arguments)
        if text is not None:
            out.append(f"{name}={text}")

    return Cookie(write, RequestPart("cookie", name, source.at, source.reads))


def _check_cookie(name: str, source: ValueSource, sources: ValueSources) -> None:
    """Report literal text that is not allowed in a cookie."""
    # Literal text is not percent-encoded, because the author may have encoded it.
    for part in source.parts or (source,):
        value = part if isinstance(part, str) else part.value
        text = scalar_text(value)
        wrong = f"is {kind_of(value)}" if text is None and value is not None else cookie_fault(text or "")
        if wrong:
            message = f"the value of cookie `{name}` {wrong}"
            sources.tell("wrong_form", message, source.at, "percent-encode it")


def _cookie(name: str, source: ValueSource) -> Step:
    if source.constant:
        text = scalar_text(source.value)
        return () if text is None else (f"{name}={text}",)

    def write(arguments: Arguments, out: list[str]) -> None:
        text = cookie_text(source, arguments)
        if text is not None:
            out.append(f"{name}={text}")

    return write


def check_accept(text: str, sources: ValueSources) -> None:
    """Report an `accept` that is not allowed in a header."""
    wrong = header_fault(text)
    if wrong or "{" in text or not text.strip():
        message = f"`accept` {wrong or 'must be a literal list of media types'}"
        sources.tell("wrong_form", message, "/live/accept", "write it as `application/json`")


# Anything is accepted, with lower priority than JSON: an error page is better than a 406.
ACCEPT: Final = "application/json, */*;q=0.5"
USER_AGENT: Final = f"toolcrib/{__version__}"

_QUERY: Final = "/live/query"
_NO_BODY: Final = RequestBody(lambda _arguments: NONE, ())


class _Query(NamedTuple):
    """A compiled query, including that of the URL."""

    steps: tuple[Step, ...]
    parts: tuple[RequestPart, ...]
    left: RemainingArguments | None


class _Headers(NamedTuple):
    """Compiled headers, including the default ones.

    Attributes:
        steps: The steps that add them.
        parts: Their places in the descriptor.
        typed: Whether they include `Content-Type`.
    """

    steps: tuple[HeaderStep, ...]
    parts: tuple[RequestPart, ...]
    typed: bool


class CompiledRequest:
    """A compiled request with placeholders for the arguments of a call.

    Attributes:
        method: The method in upper case.
        origin: The origin in the descriptor.
        hosts: Globs of the hosts that it may reach; by default only the host of `url`.
        parts: Its parts, with their places in the descriptor.
    """

    def __init__(
        self,
        method: str,
        url: Url,
        *,
        query: _Query,
        headers: _Headers,
        cookies: tuple[Step, ...],
        body: RequestBody,
        hosts: tuple[str, ...],
        parts: tuple[RequestPart, ...],
    ) -> None:
        self.method = method
        self.origin = origin_of(url.scheme, url.host, url.port)
        self.hosts = hosts
        self.parts = parts
        self._url = url
        self._query = query.steps
        self._headers = headers.steps
        self._cookies = cookies
        self._body = body.make
        self._typed = headers.typed

    def draft(self, arguments: Arguments) -> RequestDraft:
        """The request of one call, before authentication and pagination.

        Args:
            arguments: The validated arguments. They are not changed.

        Raises:
            UnusableArguments: No request can be created from the arguments.
        """
        url = self._url
        body, media_type = self._body(arguments)
        headers = fill_steps(self._headers, arguments)
        # A `Content-Type` in `headers` wins, for instance a vendor type such as `application/vnd.api+json`.
        if media_type and not self._typed:
            headers.append(("Content-Type", media_type))
        return RequestDraft(
            self.method,
            url.scheme,
            url.host,
            url.port,
            url.path(arguments),
            fill_steps(self._query, arguments),
            headers,
            fill_steps(self._cookies, arguments),
            body,
        )


def compile_request(
    block: dict[str, Any], tool: Descriptor, problems: list[Problem], secrets: SecretResolver | None
) -> CompiledRequest:
    """Compile the request of a block that its schema has accepted; problems are added to `problems`.

    Args:
        block: The `live` block.
        tool: The descriptor.
        problems: Receives every problem. If one is an error, the request must not be sent.
        secrets: Resolves `${...}`; None to check the block without resolving anything.

    Raises:
        MissingSecret: A variable is not set.
    """
    sources = ValueSources(tool, problems, secrets)
    method = block.get("method", "GET")
    url = compile_url(block["url"], sources, block.get("path", {}))
    body = compile_body(block["body"], sources) if "body" in block else _NO_BODY
    headers = _headers(block, body, sources)
    cookies = compile_cookies(block.get("cookies", {}), sources)
    query = _query(block, url, sources)
    if "body" in block:
        check_body(method, sources)
    hosts = _hosts(block, url, sources)
    check_insecure(url, block, sources)
    # Last, because all other parts must be compiled before the remaining arguments are known.
    _check_left(query.left, body.left, block, sources)
    parts = (
        *(RequestPart("path", segment.written, URL, segment.reads) for segment in url.segments),
        *query.parts,
        *headers.parts,
        *(cookie.part for cookie in cookies),
        *body.parts,
        *_left_parts(query, body),
    )
    return CompiledRequest(
        method,
        url,
        query=query,
        headers=headers,
        cookies=merge_steps(cookie.step for cookie in cookies),
        body=body,
        hosts=hosts,
        parts=parts,
    )


def _hosts(block: dict[str, Any], url: Url, sources: ValueSources) -> tuple[str, ...]:
    """The hosts of the block, or else the host of `url`."""
    named = tuple(host.lower() for host in block.get("hosts", ()))
    if url is not NOWHERE:
        check_hosts(named, url.host, block["url"], sources)
    return named or (url.host,)


def _query(block: dict[str, Any], url: Url, sources: ValueSources) -> _Query:
    entries: dict[str, JSON] = dict(block.get("query", {}))
    takes_rest = entries.get("from") == "args"
    if takes_rest:
        del entries["from"]
    taken = frozenset({*entries, *(parameter.name for parameter in url.query), *parameters_of_auth(block)})
    check_query_names(entries, url, _QUERY, sources)
    compiled = compile_entries(entries, _QUERY, sources, kind="query", taken=taken)
    left = (
        RemainingArguments(child_pointer(_QUERY, "from"), sources, taken, named=True) if takes_rest else None
    )
    steps: list[Step] = [
        *(parameter.write for parameter in url.query),
        *(entry.step for entry in compiled),
        *((left.writer(),) if left is not None else ()),
    ]
    written = [RequestPart("query", parameter.name, URL, parameter.reads) for parameter in url.query]
    return _Query(merge_steps(steps), (*written, *(entry.part for entry in compiled)), left)


def _headers(block: dict[str, Any], body: RequestBody, sources: ValueSources) -> _Headers:
    headers = compile_headers(block.get("headers", {}), sources)
    written = {header.part.name.lower(): header.part for header in headers}
    _check_named_twice(block, body, written, sources)
    usual = [("Accept", block.get("accept", ACCEPT)), ("User-Agent", USER_AGENT)]
    steps: list[HeaderStep] = [header.step for header in headers]
    steps.append(tuple(pair for pair in usual if pair[0].lower() not in written))
    parts = [header.part for header in headers]
    if "accept" in block:
        check_accept(block["accept"], sources)
        parts.append(RequestPart("header", "Accept", "/live/accept"))
    return _Headers(merge_steps(steps), tuple(parts), "content-type" in written)


def _check_named_twice(
    block: dict[str, Any], body: RequestBody, written: dict[str, RequestPart], sources: ValueSources
) -> None:
    """Report headers that other keys of the block set, too."""
    others = {"accept": "accept"} if "accept" in block else {}
    if body.own_type:
        others["content-type"] = "body"
    if "idempotency_key" in block:
        name = block["idempotency_key"]
        check_name(name, "/live/idempotency_key", sources)
        others[name.lower()] = "idempotency_key"
    for name, key in others.items():
        if name in written:
            part = written[name]
            message = f"duplicate header `{part.name}`: also set by `{key}`"
            sources.tell("duplicate_header", message, part.pointer, "keep one of them")


def _check_left(
    query: RemainingArguments | None,
    body: RemainingArguments | None,
    block: dict[str, Any],
    sources: ValueSources,
) -> None:
    """Checks of the remaining arguments, after the whole block is compiled."""
    if query is not None and body is not None:
        message = "`query` and `body` both use `from: args`"
        sources.tell("wrong_combination", message, body.at, "keep it in one of them")
    for left in (query, body):
        if left is not None:
            left.check()
    if query is None and body is None:
        check_unused_arguments(block, sources)


def _left_parts(query: _Query, body: RequestBody) -> Iterator[RequestPart]:
    if query.left is not None:
        yield RequestPart("query", "*", query.left.at, query.left.described)
    if body.left is not None:
        yield RequestPart("body", "*", body.left.at, body.left.described)
