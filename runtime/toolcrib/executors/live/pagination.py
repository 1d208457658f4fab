"""`pagination`: one call that asks page after page, under caps, or one page that says how to go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from toolcrib.core.clock import run_in_thread
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import described_names
from toolcrib.executors.live.link_header import LinkRefused
from toolcrib.executors.live.pagination_styles import (
    CountedStyle,
    CursorStyle,
    LinkStyle,
    NoPage,
    Page,
    Step,
    Style,
)
from toolcrib.executors.live.response import Read, Reading
from toolcrib.expressions.jmespath_queries import Select, compile_select
from toolcrib.http.messages import RequestDraft
from toolcrib.schema.validation.json_values import DEPTH, is_large

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
"""Style -> the keys that it needs, and those that it may have."""

Fetch = Callable[[RequestDraft], Awaitable[Read | Result]]


class _Broken(Exception):
    """The pages can't be gone through; `result` is what the call is told."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


class _Collected:
    """What was collected so far."""

    def __init__(self) -> None:
        self.items: list[JSON] = []
        self.count = 0
        self.told: dict[str, JSON] = {}
        self.seen: set[str] = set()
        self.last: list[JSON] = []


class Pages:
    """A compiled `pagination`.

    Attributes:
        cursor_arg: The argument that takes the cursor of an earlier answer; None for none.
    """

    def __init__(
        self,
        style: Style,
        items: Select | None,
        *,
        max_pages: int,
        max_items: int | None,
        cursor_arg: str | None,
    ) -> None:
        """Hold what was compiled.

        Args:
            style: How pages follow each other.
            items: Finds what is on a page; None for the body itself.
            max_pages: How many are asked for in one call.
            max_items: How many items are collected; None for those of one page.
            cursor_arg: The argument that takes a cursor; None for none.
        """
        self._style = style
        self._items = items
        self._max_pages = max_pages
        self._max_items = max_items
        self.cursor_arg = cursor_arg

    async def collect(
        self, call: Call, draft: RequestDraft, fetch: Fetch, reading: Reading, *, own: Collection[str] = ()
    ) -> Result:
        """The items of the pages as one result; `meta.pages` and `meta.next_cursor` say what was left.

        Args:
            call: The call; its deadline stands around all pages.
            draft: The request for the first page.
            fetch: One exchange. It gets a draft of its own; one of another origin than the first is to be sent
                without authentication.
            reading: What makes a result of the last answer with `items` and `next_cursor`.
            own: Further origins that count as that of the draft.
        """
        style = self._style
        if isinstance(style, LinkStyle):
            style = style._replace(own=(draft.origin, *own))
        collected = _Collected()
        try:
            step, stopped = self._beginning(style, draft, call), ""
            while not stopped:
                page = await self._page(step, fetch, reading, call)
                following, stopped = self._taken(page, style, collected)
                step = following or step
        except _Broken as broken:
            return _with_pages(broken.result, collected)
        cursor = following.cursor if following is not None else None
        collected.told |= {"count": collected.count, "items": len(collected.items), "stopped": stopped}
        finish = partial(_finished, page, cursor, collected, reading, call)
        if is_large(collected.items, DEPTH):
            return await run_in_thread(call.context.session.clock, finish)
        return finish()

    def first(self, draft: RequestDraft, call: Call) -> RequestDraft | Result:
        """The request for the first page; or the result of a call whose cursor is none."""
        try:
            return self._beginning(self._style, draft, call).draft
        except _Broken as broken:
            return broken.result

    def _beginning(self, style: Style, draft: RequestDraft, call: Call) -> Step:
        value = None if self.cursor_arg is None else call.arguments.get(self.cursor_arg)
        try:
            return style.first(draft, None if value is None or value == "" else str(value))
        except NoPage as error:
            raise _Broken(_bad_argument(call, str(self.cursor_arg), error.message)) from None

    async def _page(self, step: Step, fetch: Fetch, reading: Reading, call: Call) -> Page:
        """One page; the failures of its exchange end the call."""
        read = await fetch(step.draft.copied())
        if isinstance(read, Result):
            raise _Broken(read)
        status: Any = read.envelope["status"]
        if reading.failed(status):
            raise _Broken(reading.result(read, call.arguments, call.context.session.clock.now))
        try:
            items = read.envelope["body"] if self._items is None else self._items(read.envelope)
        except ValueError as error:
            raise _Broken(_unusable("no_items", f"`pagination.items` failed over a page: {error}")) from None
        if read.envelope["body"] is None:
            items = []
        if not isinstance(items, list):
            message = (
                "`pagination.items` finds no list on a page; where there may be none, "
                "write an empty list behind it: ``body.data || `[]` ``"
            )
            raise _Broken(_unusable("no_items", message))
        return Page(step, read.envelope, items)

    def _taken(self, page: Page, style: Style, collected: _Collected) -> tuple[Step | None, str]:
        """Take a page in: where the next one begins, and why it is not asked for; no reason where it is."""
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
        if following.position in collected.seen:
            return None, "repeated_cursor"
        if room == len(page.items):
            return following, "max_items"
        return following, "max_pages" if collected.count >= self._max_pages else ""


def _repeats(page: Page, style: Style, collected: _Collected) -> bool:
    """Whether a counted page is the one before again: the API takes no notice of the number."""
    last, collected.last = collected.last, page.items
    return (
        isinstance(style, CountedStyle)
        and page.items == last
        and any(isinstance(each, dict | list) for each in last)
    )


def _following(page: Page, style: Style) -> Step | None:
    try:
        return style.following(page)
    except (NoPage, ValueError) as error:
        message = f"the next page can't be asked for: {error}"
        raise _Broken(_unusable("bad_cursor", message)) from None
    except LinkRefused as error:
        message = f"{error}; `hosts` names the hosts that may be reached"
        raise _Broken(Result.failed(Outcome.DENIED, message, code="link_refused")) from None


def _cut(page: Page, style: Style, room: int, following: Step | None, collected: _Collected) -> Step | None:
    """Where to go on when a page has more items than may be collected.

    Behind the last of them, where that can be asked for. Else at the page itself, so that nothing is lost; but not
    if it was the first one, or nobody would ever come past it.
    """
    behind = style.within(page, room)
    if behind is not None or collected.count > 1:
        return behind or page.step
    collected.told["dropped"] = len(page.items) - room
    return following


def _finished(page: Page, cursor: str | None, collected: _Collected, reading: Reading, call: Call) -> Result:
    envelope = {**page.envelope, "items": collected.items, "next_cursor": cursor}
    result = reading.result(Read(envelope), call.arguments).with_meta(pages=collected.told)
    return result if cursor is None else result.with_meta(next_cursor=cursor)


def _with_pages(result: Result, collected: _Collected) -> Result:
    """The failure of a page, with what was collected before it."""
    if not collected.count or result.error is None:
        return result
    pages: JSON = {"count": collected.count, "items": len(collected.items)}
    message = f"{result.message} (after {collected.count} good page{'s' if collected.count > 1 else ''})"
    error = result.error._replace(message=message, details={**result.error.details, "pages": pages})
    return result._replace(message=message, error=error)


def _unusable(fault: str, message: str) -> Result:
    return Result.failed(Outcome.INVALID_RESULT, message, code=fault)


def _bad_argument(call: Call, name: str, why: str) -> Result:
    pointer = pointer_to([name])
    expected = "a `next_cursor` of an earlier answer"
    violation: JSON = {"pointer": pointer, "keyword": "live", "expected": expected, "got": None, "hint": why}
    return Result.failed(
        Outcome.INVALID_ARGUMENTS,
        f"invalid arguments for `{call.tool.name}`:\n{pointer}: {why}; give back {expected}, or leave it out",
        details={"violations": [violation]},
    )


def compile_pages(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> Pages | None:
    """Compile `pagination` of a `live` block that is valid under its schema; None where there is none.

    Args:
        block: The block.
        tool: Whose it is.
        problems: Receives what is wrong: codes `bad_select`, `missing_key`, `needless_key`, `unfit_pagination`,
            `unknown_argument`.
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


def _style_of(written: Mapping[str, Any], following: Select | None, *, foreign: bool) -> Style:
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
    """Keys that the style needs and has not, and those that have no effect."""
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
        code="missing_key", message=f"{who} `{key}`, {_USES[key]}", pointer=_AT, hint=f"write `{key}`"
    )


def _needless(key: str, beside: str) -> Problem:
    message = f"`{key}` has no effect beside {beside}"
    return Problem(code="needless_key", message=message, pointer=f"{_AT}/{key}", hint="leave it out")


_USES = {
    "cursor_arg": "the argument with which a caller gives `next_cursor` back",
    "limit": "the number that is sent",
    "next": "the expression that finds the cursor of the next page",
    "param": "the parameter that takes the cursor or number",
    "size": "the number that is sent",
}


def _unfit_block(block: Mapping[str, Any], written: Mapping[str, Any], tool: Descriptor) -> Iterator[Problem]:
    """What stands elsewhere in the descriptor and does not go together with pages."""
    method, form = block.get("method", "GET"), block.get("response", {}).get("as", "auto")
    if method == "HEAD" or (method != "GET" and written["style"] == "link"):
        hint = "use `method: GET`" if method == "HEAD" else "use `method: GET`, or another style"
        message = f"{method} has no pages of style `{written['style']}`"
        yield Problem(code="unfit_pagination", message=message, pointer=f"{_AT}/style", hint=hint)
    if form in ("text", "binary"):
        message = f"an answer that is read as {form} has no items"
        hint = f"leave out `as: {form}`, or `pagination`"
        yield Problem(code="unfit_pagination", message=message, pointer="/live/response/as", hint=hint)
    name = written.get("cursor_arg")
    known = described_names(tool.input_schema)
    if name is not None and name not in known:
        message = f"`cursor_arg` names `{name}`, and the input schema has no such argument"
        hint = did_you_mean(name, known) or "add it to `input_schema`, as text and not required"
        yield Problem(code="unknown_argument", message=message, pointer=f"{_AT}/cursor_arg", hint=hint)
