"""The `headers` and `cookies` of a block: names are fixed, and values can't bring others with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.executors.live.parameters import Step
from toolcrib.executors.live.scalars import kind_of, scalar_text
from toolcrib.executors.live.templates import Arguments, Part, Source, Sources, below
from toolcrib.executors.live.uri_encoding import cookie_text, header_text
from toolcrib.http.headers import cookie_fault, fault_of_name, header_fault, is_token
from toolcrib.schema.validation.violations import UnusableArguments

HEADERS: Final = "/live/headers"
COOKIES: Final = "/live/cookies"

Pair: TypeAlias = "tuple[str, str]"

AddHeader: TypeAlias = Callable[[Arguments, "list[Pair]"], None]

HeaderStep: TypeAlias = "tuple[Pair, ...] | AddHeader"
"""Headers that are the same for every call, or what adds one; it raises Misfit."""


class Header(NamedTuple):
    """A compiled header: its step, and where it is written."""

    step: HeaderStep
    part: Part


def compile_headers(block: dict[str, JSON], sources: Sources) -> list[Header]:
    """Compile the headers of a block.

    Raises:
        MissingSecret: Something is not there to be looked up.
    """
    found: dict[str, str] = {}
    headers = []
    for name, value in block.items():
        at = below(HEADERS, name)
        check_name(name, at, sources)
        other = found.setdefault(name.lower(), name)
        if other != name:
            message = f"`{name}` and `{other}` are the same header"
            sources.tell("duplicate_header", message, at, "write one of them")
        headers.append(_header(name, sources.structure(value, at), sources))
    return headers


def check_name(name: str, at: str, sources: Sources) -> None:
    """Report the name of a header that is none, or that a block can't write."""
    fault = fault_of_name(name)
    if fault is not None:
        sources.tell(fault.code, fault.message, at, fault.hint)


def _header(name: str, source: Source, sources: Sources) -> Header:
    part = Part("header", name, source.at, source.reads)
    if source.constant:
        return Header(_fixed_header(name, source, sources), part)

    def add(arguments: Arguments, out: list[Pair]) -> None:
        text = header_text(source, arguments)
        if text is not None:
            out.append((name, text))

    return Header(add, part)


def _fixed_header(name: str, source: Source, sources: Sources) -> tuple[Pair, ...]:
    try:
        text = header_text(source, {})
    except UnusableArguments as misfit:
        message = f"the value of the header `{name}`: {misfit.message}"
        sources.tell("wrong_form", message, source.at, misfit.hint)
        return ()
    return () if text is None else ((name, text),)


class Cookie(NamedTuple):
    """A compiled cookie: its step, and where it is written."""

    step: Step
    part: Part


def compile_cookies(block: dict[str, JSON], sources: Sources) -> list[Cookie]:
    """Compile the cookies of a block.

    Raises:
        MissingSecret: Something is not there to be looked up.
    """
    cookies = []
    for name, value in block.items():
        at = below(COOKIES, name)
        if not is_token(name):
            message = f"`{name}` is no name of a cookie"
            sources.tell(
                "wrong_form",
                message,
                at,
                "a name has letters, digits, `-` and `_`, and is never computed",
            )
        source = sources.of(value, at)
        _check_cookie(name, source, sources)
        cookies.append(Cookie(_cookie(name, source), Part("cookie", name, at, source.reads)))
    return cookies


def _check_cookie(name: str, source: Source, sources: Sources) -> None:
    """Report what can't be sent as it is written; it may be encoded already."""
    for part in source.parts or (source,):
        value = part if isinstance(part, str) else part.value
        text = scalar_text(value)
        wrong = f"is {kind_of(value)}" if text is None and value is not None else cookie_fault(text or "")
        if wrong:
            message = f"the value of the cookie `{name}` {wrong}"
            sources.tell("wrong_form", message, source.at, "encode it with `%` and two hex digits")


def _cookie(name: str, source: Source) -> Step:
    if source.constant:
        text = scalar_text(source.value)
        return () if text is None else (f"{name}={text}",)

    def write(arguments: Arguments, out: list[str]) -> None:
        text = cookie_text(source, arguments)
        if text is not None:
            out.append(f"{name}={text}")

    return write


def check_accept(text: str, sources: Sources) -> None:
    """Report an `accept` that can't stand in a header."""
    wrong = header_fault(text)
    if wrong or "{" in text or not text.strip():
        message = f"`accept` {wrong or 'is a list of media types, as it is written'}"
        sources.tell("wrong_form", message, "/live/accept", "write it as `application/json`")
