"""`pagination`: collect several pages in one call, or return one page with a cursor to the next.

Pages are linked by cursors, by page or item numbers, or by links.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl

from toolcrib.core.clock import run_in_thread
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import described_names
from toolcrib.executors.live.redirects import CROSSING, resolve_location
from toolcrib.executors.live.response import ResponseContent, ResponseReader
from toolcrib.expressions.jmespath_queries import Select, compile_select
from toolcrib.http.messages import RequestDraft
from toolcrib.schema.validation.json_values import DEPTH, is_large

# A cursor is sent in the URL, and models repeat it as an argument.
_LONGEST = 4096
_NUMBER = re.compile(r"[0-9]{1,15}")


class NoPage(Exception):
    """The cursor or number of a page is unusable. The message never contains the value, which is untrusted."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PageStep(NamedTuple):
    """The start of a page.

    Attributes:
        position: Identifies the page. A position that repeats is a loop.
        draft: The request for the page, without authentication.
        cursor: The `next_cursor` that continues from here.
    """

    position: str
    draft: RequestDraft
    cursor: str


class ResponsePage(NamedTuple):
    """A page that was read.

    Attributes:
        step: The start of the page.
        envelope: The response.
        items: The items of the page.
    """

    step: PageStep
    envelope: dict[str, JSON]
    items: list[JSON]


class PaginationStyle(Protocol):
    """How pages follow each other. LinkError and the ValueError of an expression are not caught here."""

    def first(self, draft: RequestDraft, cursor: str | None) -> PageStep:
        """The first page of a call: the start, or the page of a cursor. Raises NoPage for an invalid cursor."""
        ...

    def following(self, page: ResponsePage) -> PageStep | None:
        """The next page; None after the last. Raises NoPage if the response has no usable cursor or link."""
        ...

    def within(self, page: ResponsePage, kept: int) -> PageStep | None:
        """The step after the first `kept` items of a page; None if only whole pages can be requested."""
        ...


class CursorStyle(NamedTuple):
    """Each response contains the cursor of the next page.

    Attributes:
        next: Finds the cursor. Null, false and empty text mean that there is no next page.
        param: The query parameter for the cursor.
    """

    next: Select
    param: str

    def first(self, draft: RequestDraft, cursor: str | None) -> PageStep:
        """The page of a cursor, or the page without one."""
        return PageStep("", draft, "") if cursor is None else self._at(draft, cursor)

    def following(self, page: ResponsePage) -> PageStep | None:
        """The page of the cursor in the response."""
        found = self.next(page.envelope)
        if found is None or found is False or found == "":
            return None
        if isinstance(found, bool | list | dict):
            raise NoPage("the cursor of the next page must be text or a number")
        return self._at(page.step.draft, str(found))

    def within(self, page: ResponsePage, kept: int) -> None:
        """None: cursors address whole pages."""

    def _at(self, draft: RequestDraft, cursor: str) -> PageStep:
        return PageStep(cursor, _with(draft, self.param, cursor), cursor)


class CountedStyle(NamedTuple):
    """Pages or items are numbered: `page=3`, `offset=200`.

    Attributes:
        param: The query parameter for the number.
        start: The number of the first page or item.
        by_items: Whether items are numbered instead of pages.
        size_param: The query parameter for the page size; empty for none.
        size: The number of items on a full page; None if unknown.
        next: The expression that is truthy if there are more pages; None to decide by the items.
    """

    param: str
    start: int
    by_items: bool
    size_param: str
    size: int | None
    next: Select | None

    def first(self, draft: RequestDraft, cursor: str | None) -> PageStep:
        """The page of a number, or the first page."""
        if cursor is not None and _NUMBER.fullmatch(cursor) is None:
            raise NoPage("not a valid page number")
        sized = draft.copied()
        if self.size_param:
            sized.set_query(self.size_param, str(self.size))
        return self._at(sized, self.start if cursor is None else int(cursor))

    def following(self, page: ResponsePage) -> PageStep | None:
        """The page of the next number; None after an empty or short page, or if the response reports the end."""
        # A short page ends the list only if the response does not say more: some APIs filter after paging.
        count = len(page.items)
        if not count or (self.next is None and self.size is not None and count < self.size):
            return None
        if self.next is not None and not self.next(page.envelope):
            return None
        return self._at(page.step.draft, int(page.step.position) + (count if self.by_items else 1))

    def within(self, page: ResponsePage, kept: int) -> PageStep | None:
        """The step at any item, if items are numbered."""
        return self._at(page.step.draft, int(page.step.position) + kept) if self.by_items else None

    def _at(self, draft: RequestDraft, number: int) -> PageStep:
        return PageStep(str(number), _with(draft, self.param, str(number)), str(number))


class LinkStyle(NamedTuple):
    """Each response links to the next page, in its `Link` header or in its body.

    Attributes:
        next: Finds the link in the response; None to use the header.
        param: The query parameter of the link that callers receive as cursor; empty for none.
        foreign: Whether a link may lead to another origin.
        own: Origins that count as the same origin, including that of the first request.
    """

    next: Select | None
    param: str
    foreign: bool
    own: Collection[str] = ()

    def first(self, draft: RequestDraft, cursor: str | None) -> PageStep:
        """The page of a cursor in `param`, or the page of the request itself."""
        return PageStep(draft.finished().url, draft, "") if cursor is None else self._at(draft, cursor)

    def following(self, page: ResponsePage) -> PageStep | None:
        """The page that the link leads to."""
        link = self._link(page.envelope)
        if not link:
            return None
        if not isinstance(link, str):
            raise NoPage("the link to the next page is not text")
        # A page on a foreign origin must not lead back with the trust of the tool's own origins.
        own = self.own if page.step.draft.origin in self.own else ()
        draft = follow_link(page.step.draft, link, foreign=self.foreign, own=own)
        request = draft.finished()
        if not self.param:
            return PageStep(request.url, draft, request.target)
        cursor = query_value(draft, self.param)
        if not cursor:
            raise NoPage(f"the link to the next page has no parameter `{self.param}`")
        return PageStep(request.url, draft, cursor)

    def within(self, page: ResponsePage, kept: int) -> None:
        """None: links address whole pages."""

    def _link(self, envelope: dict[str, JSON]) -> JSON:
        if self.next is not None:
            return self.next(envelope)
        headers: Any = envelope["headers"]
        return next_link(headers.get("link", ""))

    def _at(self, draft: RequestDraft, cursor: str) -> PageStep:
        placed = _with(draft, self.param, cursor)
        return PageStep(placed.finished().url, placed, cursor)


def _with(draft: RequestDraft, param: str, value: str) -> RequestDraft:
    """The draft with a query parameter set.

    Raises:
        NoPage: The value is too long, or cannot be encoded.
    """
    if len(value) > _LONGEST:
        raise NoPage(f"the page cursor exceeds {_LONGEST:,} characters")
    placed = draft.copied()
    try:
        placed.set_query(param, value)
    except UnicodeEncodeError:
        raise NoPage("the page cursor cannot be encoded as UTF-8") from None
    return placed


MAX_PAGES = 10
MAX_ITEMS = 1000

_AT = "/live/pagination"
_EVERYWHERE = frozenset({"style", "items", "max_pages", "max_items", "collect", "cursor_arg"})
_KEYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "cursor": (frozenset({"next", "param"}), frozenset()),
    "page": (frozenset({"param"}), frozenset({"start", "size", "size_param", "next"})),
    "offset": (frozenset({"param"}), frozenset({"start", "limit", "limit_param", "next"})),
    "link": (frozenset(), frozenset({"next", "param"})),
}
"""Style -> its required keys and its optional keys."""

Fetch = Callable[[RequestDraft], Awaitable[ResponseContent | Result]]


class _PagingFailure(Exception):
    """The pages cannot be fetched; `result` is the result of the call."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


class _PageItems:
    """The items collected so far."""

    def __init__(self) -> None:
        self.items: list[JSON] = []
        self.count = 0
        self.told: dict[str, JSON] = {}
        self.seen: set[str] = set()
        self.last: list[JSON] = []


class Pages:
    """A compiled `pagination`.

    Attributes:
        cursor_arg: The argument with the cursor of an earlier result; None for none.
    """

    def __init__(
        self,
        style: PaginationStyle,
        items: Select | None,
        *,
        max_pages: int,
        max_items: int | None,
        cursor_arg: str | None,
    ) -> None:
        """Create the pagination of a tool.

        Args:
            style: How pages follow each other.
            items: Finds the items of a page; None if the body is the list.
            max_pages: The number of pages that one call requests.
            max_items: The number of items that are collected; None for all items of the page.
            cursor_arg: The argument with the cursor; None for none.
        """
        self._style = style
        self._items = items
        self._max_pages = max_pages
        self._max_items = max_items
        self.cursor_arg = cursor_arg

    async def collect(
        self,
        call: Call,
        draft: RequestDraft,
        fetch: Fetch,
        reading: ResponseReader,
        *,
        own: Collection[str] = (),
    ) -> Result:
        """Collect the items of the pages into one result; `meta.pages` and `meta.next_cursor` describe the rest.

        Args:
            call: The call. Its deadline covers all pages.
            draft: The request for the first page.
            fetch: Makes one exchange. It receives a draft of its own, and must send one to another origin
                than the first without authentication.
            reading: Turns the last response, with `items` and `next_cursor`, into a result.
            own: Further origins that count as the origin of the draft.
        """
        style = self._style
        if isinstance(style, LinkStyle):
            style = style._replace(own=(draft.origin, *own))
        collected = _PageItems()
        try:
            step, stopped = self._beginning(style, draft, call), ""
            while not stopped:
                page = await self._page(step, fetch, reading, call)
                following, stopped = self._taken(page, style, collected)
                step = following or step
        except _PagingFailure as broken:
            return _with_pages(broken.result, collected)
        cursor = following.cursor if following is not None else None
        collected.told |= {"count": collected.count, "items": len(collected.items), "stopped": stopped}
        finish = partial(_finished, page, cursor, collected, reading, call)
        # `select` and the size budget walk all items, which would block the event loop.
        if is_large(collected.items, DEPTH):
            return await run_in_thread(call.context.session.clock, finish)
        return finish()

    def first(self, draft: RequestDraft, call: Call) -> RequestDraft | Result:
        """The request for the first page, or the result of a call with an invalid cursor."""
        try:
            return self._beginning(self._style, draft, call).draft
        except _PagingFailure as broken:
            return broken.result

    def _beginning(self, style: PaginationStyle, draft: RequestDraft, call: Call) -> PageStep:
        value = None if self.cursor_arg is None else call.arguments.get(self.cursor_arg)
        try:
            return style.first(draft, None if value is None or value == "" else str(value))
        except NoPage as error:
            raise _PagingFailure(_bad_argument(call, str(self.cursor_arg), error.message)) from None

    async def _page(self, step: PageStep, fetch: Fetch, reading: ResponseReader, call: Call) -> ResponsePage:
        """Fetch one page. A failure of its exchange ends the call."""
        read = await fetch(step.draft.copied())
        if isinstance(read, Result):
            raise _PagingFailure(read)
        status: Any = read.envelope["status"]
        if reading.failed(status):
            raise _PagingFailure(reading.result(read, call.arguments, call.context.session.clock.now))
        try:
            items = read.envelope["body"] if self._items is None else self._items(read.envelope)
        except ValueError as error:
            raise _PagingFailure(
                _unusable("no_items", f"`pagination.items` failed on a page: {error}")
            ) from None
        # An empty body, such as that of a 204, is an empty page.
        if read.envelope["body"] is None:
            items = []
        if not isinstance(items, list):
            message = (
                "`pagination.items` found no list on a page; if a page may have none, "
                "provide a default: ``body.data || `[]` ``"
            )
            raise _PagingFailure(_unusable("no_items", message))
        return ResponsePage(step, read.envelope, items)

    def _taken(
        self, page: ResponsePage, style: PaginationStyle, collected: _PageItems
    ) -> tuple[PageStep | None, str]:
        """Add a page. Returns the next step, if any, and the reason to stop; empty to continue."""
        collected.seen.add(page.step.position)
        if _repeats(page, style, collected):
            return None, "repeated_cursor"
        following = _following(page, style)
        room = None if self._max_items is None else self._max_items - len(collected.items)
        collected.items += page.items[:room]
        collected.count += 1
        if room is not None and len(page.items) > room:
            return _cut(page, style, room, following, collected), "max_items"
        if following is None or not page.items:
            return following, "end"
        # A server that repeats a cursor would otherwise be queried until `max_pages`.
        if following.position in collected.seen:
            return None, "repeated_cursor"
        if room == len(page.items):
            return following, "max_items"
        return following, "max_pages" if collected.count >= self._max_pages else ""


def _repeats(page: ResponsePage, style: PaginationStyle, collected: _PageItems) -> bool:
    """Whether a numbered page repeats the one before, because the API ignores the number."""
    # Equal objects are a sign of a loop. Scalars may repeat by chance: `[0]` after `[0]`.
    last, collected.last = collected.last, page.items
    return (
        isinstance(style, CountedStyle)
        and page.items == last
        and any(isinstance(each, dict | list) for each in last)
    )


def _following(page: ResponsePage, style: PaginationStyle) -> PageStep | None:
    try:
        return style.following(page)
    except (NoPage, ValueError) as error:
        message = f"cannot request the next page: {error}"
        raise _PagingFailure(_unusable("bad_cursor", message)) from None
    except LinkError as error:
        # Refused, not ignored: a page that silently ends early would look like the whole list.
        raise _PagingFailure(Result.failure(Outcome.DENIED, str(error), code="link_refused")) from None


def _cut(
    page: ResponsePage, style: PaginationStyle, room: int, following: PageStep | None, collected: _PageItems
) -> PageStep | None:
    """The step to continue from if a page has more items than may be collected.

    This is the first item that was not collected, if it can be addressed, or else the start of the same page.
    """
    behind = style.within(page, room)
    # Continuing at the first page of the call would never get past it, so the rest of that page is dropped.
    if behind is not None or collected.count > 1:
        return behind or page.step
    collected.told["dropped"] = len(page.items) - room
    return following


def _finished(
    page: ResponsePage, cursor: str | None, collected: _PageItems, reading: ResponseReader, call: Call
) -> Result:
    envelope = {**page.envelope, "items": collected.items, "next_cursor": cursor}
    result = reading.result(ResponseContent(envelope), call.arguments).with_meta(pages=collected.told)
    return result if cursor is None else result.with_meta(next_cursor=cursor)


def _with_pages(result: Result, collected: _PageItems) -> Result:
    """The failure of a page, with the number of pages collected before it."""
    if not collected.count or result.error is None:
        return result
    pages: JSON = {"count": collected.count, "items": len(collected.items)}
    message = (
        f"{result.message} (after {collected.count} successful page{'s' if collected.count > 1 else ''})"
    )
    error = result.error._replace(message=message, details={**result.error.details, "pages": pages})
    return result._replace(message=message, error=error)


def _unusable(fault: str, message: str) -> Result:
    return Result.failure(Outcome.INVALID_RESULT, message, code=fault)


def _bad_argument(call: Call, name: str, why: str) -> Result:
    pointer = pointer_to([name])
    expected = "a `next_cursor` returned by an earlier call"
    violation: JSON = {"pointer": pointer, "keyword": "live", "expected": expected, "got": None, "hint": why}
    return Result.failure(
        Outcome.INVALID_ARGUMENTS,
        f"invalid arguments for `{call.tool.name}`:\n{pointer}: {why}; use {expected}, or omit it",
        details={"violations": [violation]},
    )


def compile_pages(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> Pages | None:
    """Compile `pagination` of a `live` block that its schema has accepted; None if there is none.

    Args:
        block: The block.
        tool: The descriptor.
        problems: Receives problems with the codes `bad_select`, `missing_key`, `needless_key`,
            `unfit_pagination` and `unknown_argument`.
    """
    written: Mapping[str, Any] | None = block.get("pagination")
    if written is None:
        return None
    found = len(problems)
    problems += _unfit_keys(written)
    problems += _unfit_block(block, written, tool)
    selects = {
        key: compile_select(written[key], f"{_AT}/{key}", problems)
        for key in ("items", "next")
        if key in written
    }
    if len(problems) > found:
        return None
    collect = written.get("collect", True)
    return Pages(
        _style_of(written, selects.get("next"), foreign="hosts" in block),
        selects.get("items"),
        max_pages=written.get("max_pages", MAX_PAGES) if collect else 1,
        max_items=written.get("max_items", MAX_ITEMS) if collect else None,
        cursor_arg=written.get("cursor_arg"),
    )


def _style_of(written: Mapping[str, Any], following: Select | None, *, foreign: bool) -> PaginationStyle:
    style, param = written["style"], written.get("param", "")
    if style == "cursor" and following is not None:
        return CursorStyle(following, param)
    if style == "link":
        return LinkStyle(following, param, foreign)
    by_items = style == "offset"
    size = "limit" if by_items else "size"
    start = written.get("start", 0 if by_items else 1)
    return CountedStyle(
        param, start, by_items, written.get(f"{size}_param", ""), written.get(size), following
    )


def _unfit_keys(written: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems for missing keys of the style, and for keys that have no effect."""
    style = written["style"]
    needed, allowed = _KEYS[style]
    for key in sorted(needed - written.keys()):
        yield _missing(key, f"style `{style}` needs")
    for size in ("size", "limit"):
        if f"{size}_param" in written and size not in written:
            yield _missing(size, f"`{size}_param` needs")
    if not written.get("collect", True) and "cursor_arg" not in written:
        yield _missing("cursor_arg", "`collect: false` needs")
    if "cursor_arg" in written and "param" not in written and style == "link":
        yield _missing("param", "`cursor_arg` needs")
    for key in written:
        if key not in _EVERYWHERE | needed | allowed:
            yield _needless(key, f"style `{style}`")
        elif key in ("max_pages", "max_items") and not written.get("collect", True):
            yield _needless(key, "`collect: false`")


def _missing(key: str, who: str) -> Problem:
    return Problem(
        code="missing_key", message=f"{who} `{key}`, {_USES[key]}", pointer=_AT, hint=f"add `{key}`"
    )


def _needless(key: str, beside: str) -> Problem:
    message = f"`{key}` has no effect with {beside}"
    return Problem(code="needless_key", message=message, pointer=f"{_AT}/{key}", hint="remove it")


_USES = {
    "cursor_arg": "the argument that carries `next_cursor`",
    "limit": "the number that is sent",
    "next": "the expression that finds the cursor of the next page",
    "param": "the parameter that receives the cursor or number",
    "size": "the number that is sent",
}


def _unfit_block(block: Mapping[str, Any], written: Mapping[str, Any], tool: Descriptor) -> Iterator[Problem]:
    """Problems for other parts of the descriptor that contradict `pagination`."""
    method, form = block.get("method", "GET"), block.get("response", {}).get("as", "auto")
    if method == "HEAD" or (method != "GET" and written["style"] == "link"):
        hint = "use `method: GET`" if method == "HEAD" else "use `method: GET`, or another style"
        message = f"a {method} request cannot use pagination style `{written['style']}`"
        yield Problem(code="unfit_pagination", message=message, pointer=f"{_AT}/style", hint=hint)
    if form in ("text", "binary"):
        message = f"a response read as {form} has no items"
        hint = f"remove `as: {form}` or `pagination`"
        yield Problem(code="unfit_pagination", message=message, pointer="/live/response/as", hint=hint)
    name = written.get("cursor_arg")
    known = described_names(tool.input_schema)
    if name is not None and name not in known:
        message = f"unknown argument `{name}` in `cursor_arg`"
        hint = did_you_mean(name, known) or "add it to `input_schema` as an optional string"
        yield Problem(code="unknown_argument", message=message, pointer=f"{_AT}/cursor_arg", hint=hint)


# Links to the next page: the `Link` header (RFC 8288), and how a link is followed without leaving the API.

_TARGET = re.compile(r"\s*<([^>]*)>")
_PARAMETER = re.compile(r'\s*;\s*([^\s=;,"<>]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?')
_SEPARATOR = re.compile(r"\s*(,|$)")


class LinkError(Exception):
    """A link must not be followed. The message omits its path and query, which may contain secrets."""


def next_link(header: str) -> str | None:
    """The target of the first link with the relation `next` in a `Link` header; None if there is none.

    Parsing stops at a malformed link.
    """
    at = 0
    while (target := _TARGET.match(header, at)) is not None:
        parameters: dict[str, str] = {}
        at = target.end()
        while (found := _PARAMETER.match(header, at)) is not None:
            value = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3] or ""
            # RFC 8288 section 3.3: only the first `rel` of a link counts.
            parameters.setdefault(found[1].lower(), value)
            at = found.end()
        # A link with an `anchor` describes another page (section 3.2).
        if "next" in parameters.get("rel", "").lower().split() and "anchor" not in parameters:
            return target[1]
        separator = _SEPARATOR.match(header, at)
        if separator is None or not separator[1]:
            return None
        at = separator.end()
    return None


def follow_link(
    draft: RequestDraft, target: str, *, foreign: bool, own: Collection[str] = ()
) -> RequestDraft:
    """The request for a link in a response.

    Args:
        draft: The request of the response, without authentication.
        target: The link, absolute or relative to that request.
        foreign: Whether another origin is permitted. The connection guard then checks its host.
        own: Further origins that count as the origin of the draft.

    Raises:
        LinkError: The link is invalid or leads to an origin that is not permitted.
    """
    try:
        origin, scheme, host, port, path, query = resolve_location(draft.finished().url, target.strip())
    except ValueError as error:
        raise LinkError(f"the link to the next page {error}") from None
    following = draft.copied()
    following.path, following.query = path, [piece for piece in query.split("&") if piece]
    if origin == draft.origin or origin in own:
        return following
    if not foreign:
        raise LinkError(
            f"the link to the next page leads to another origin, {origin}; only hosts in `hosts` may be reached"
        )
    if draft.scheme == "https" and scheme != "https":
        raise LinkError(f"the link to the next page leads from https to {origin}")
    # A foreign server must not receive the tool's own headers, cookies or body: they may be credentials.
    following.scheme, following.host, following.port = scheme, host, port
    following.headers = [(name, value) for name, value in draft.headers if name.lower() in CROSSING]
    following.cookies, following.body = [], b""
    return following


def query_value(draft: RequestDraft, name: str) -> str | None:
    """The last value of a parameter in the query of a request; None if it is not set."""
    values = [value for key, value in parse_qsl("&".join(draft.query), keep_blank_values=True) if key == name]
    return values[-1] if values else None
