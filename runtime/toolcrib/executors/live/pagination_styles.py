"""The ways in which an API leads from one page to the next: by cursors, by numbers, by links."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from toolcrib.core.model import JSON
from toolcrib.executors.live.link_header import followed, next_link, parameter_of
from toolcrib.expressions.jmespath_queries import Select
from toolcrib.http.messages import RequestDraft

_LONGEST = 4096
_NUMBER = re.compile(r"[0-9]{1,15}")


class NoPage(Exception):
    """A cursor or number of a page can't be used. Its message holds nothing of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Step(NamedTuple):
    """Where a page begins.

    Attributes:
        position: Tells pages apart: one that comes again is no new page.
        draft: The request for it, without what authentication adds.
        cursor: What a caller is given to go on from there.
    """

    position: str
    draft: RequestDraft
    cursor: str


class Page(NamedTuple):
    """One page that was read.

    Attributes:
        step: Where it begins.
        envelope: The answer.
        items: What is on it.
    """

    step: Step
    envelope: dict[str, JSON]
    items: list[JSON]


class Style(Protocol):
    """How pages follow each other. The ValueError of an expression and LinkRefused pass through."""

    def first(self, draft: RequestDraft, cursor: str | None) -> Step:
        """The first page of a call: the beginning, or at a cursor that an earlier call gave. NoPage where it is none."""
        ...

    def following(self, page: Page) -> Step | None:
        """The page after one; None where it was the last. NoPage where that can't be told."""
        ...

    def within(self, page: Page, kept: int) -> Step | None:
        """The place behind the first items of a page; None where only whole pages can be asked for."""
        ...


class CursorStyle(NamedTuple):
    """Each answer holds the cursor of the next page.

    Attributes:
        next: Finds it; null, false and the empty text are none.
        param: The parameter that takes it.
    """

    next: Select
    param: str

    def first(self, draft: RequestDraft, cursor: str | None) -> Step:
        """From a cursor, or without one."""
        return Step("", draft, "") if cursor is None else self._at(draft, cursor)

    def following(self, page: Page) -> Step | None:
        """At the cursor that the answer holds."""
        found = self.next(page.envelope)
        if found is None or found is False or found == "":
            return None
        if isinstance(found, bool | list | dict):
            raise NoPage("the cursor of the next page is neither a text nor a number")
        return self._at(page.step.draft, str(found))

    def within(self, page: Page, kept: int) -> None:
        """Cursors are of whole pages."""

    def _at(self, draft: RequestDraft, cursor: str) -> Step:
        return Step(cursor, _with(draft, self.param, cursor), cursor)


class CountedStyle(NamedTuple):
    """Pages or items are counted: `page=3`, `offset=200`.

    Attributes:
        param: The parameter that takes the number.
        start: The number of the first page or item.
        by_items: Whether items are counted, not pages.
        size_param: The parameter that takes the size of a page; empty for none.
        size: How many items a whole page has; None where that is not known.
        next: Says whether there is more; None where only the items tell.
    """

    param: str
    start: int
    by_items: bool
    size_param: str
    size: int | None
    next: Select | None

    def first(self, draft: RequestDraft, cursor: str | None) -> Step:
        """From a number, or from the first."""
        if cursor is not None and _NUMBER.fullmatch(cursor) is None:
            raise NoPage("it is no number that an earlier answer gave")
        sized = draft.copied()
        if self.size_param:
            sized.set_query(self.size_param, str(self.size))
        return self._at(sized, self.start if cursor is None else int(cursor))

    def following(self, page: Page) -> Step | None:
        """At the next number, while pages are full and the answer does not say that there is no more."""
        count = len(page.items)
        if not count or (self.next is None and self.size is not None and count < self.size):
            return None
        if self.next is not None and not self.next(page.envelope):
            return None
        return self._at(page.step.draft, int(page.step.position) + (count if self.by_items else 1))

    def within(self, page: Page, kept: int) -> Step | None:
        """Any item can be the first, where items are counted."""
        return self._at(page.step.draft, int(page.step.position) + kept) if self.by_items else None

    def _at(self, draft: RequestDraft, number: int) -> Step:
        return Step(str(number), _with(draft, self.param, str(number)), str(number))


class LinkStyle(NamedTuple):
    """Each answer links to the next page: in its `Link` header, or where an expression says.

    Attributes:
        next: Finds the link in the answer; None for the header.
        param: The parameter of the link that is given to callers as cursor; empty for none.
        foreign: Whether a link may lead to another origin.
        own: Origins that count as one, that of the first request among them.
    """

    next: Select | None
    param: str
    foreign: bool
    own: Collection[str] = ()

    def first(self, draft: RequestDraft, cursor: str | None) -> Step:
        """From what the parameter is given, or as the block says."""
        return Step(draft.finished().url, draft, "") if cursor is None else self._at(draft, cursor)

    def following(self, page: Page) -> Step | None:
        """Where the link leads."""
        link = self._link(page.envelope)
        if not link:
            return None
        if not isinstance(link, str):
            raise NoPage("the link to the next page is no text")
        own = self.own if page.step.draft.origin in self.own else ()
        draft = followed(page.step.draft, link, foreign=self.foreign, own=own)
        request = draft.finished()
        if not self.param:
            return Step(request.url, draft, request.target)
        cursor = parameter_of(draft, self.param)
        if not cursor:
            raise NoPage(f"the link to the next page has no parameter `{self.param}`")
        return Step(request.url, draft, cursor)

    def within(self, page: Page, kept: int) -> None:
        """Links are of whole pages."""

    def _link(self, envelope: dict[str, JSON]) -> JSON:
        if self.next is not None:
            return self.next(envelope)
        headers: Any = envelope["headers"]
        return next_link(headers.get("link", ""))

    def _at(self, draft: RequestDraft, cursor: str) -> Step:
        placed = _with(draft, self.param, cursor)
        return Step(placed.finished().url, placed, cursor)


def _with(draft: RequestDraft, param: str, value: str) -> RequestDraft:
    """The draft with a parameter.

    Raises:
        NoPage: The value is too long, or no text that can be sent.
    """
    if len(value) > _LONGEST:
        raise NoPage(f"the cursor of the page has more than {_LONGEST:,} characters")
    placed = draft.copied()
    try:
        placed.set_query(param, value)
    except UnicodeEncodeError:
        raise NoPage("the cursor of the page is no text that can be sent") from None
    return placed
