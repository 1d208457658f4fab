"""Paged APIs without a server: each page is answered by a function of the request for it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from live_answers import TOOL
from toolcrib import Call, CallContext, Outcome, Result, VirtualClock
from toolcrib.executors.live.pagination import compile_pages
from toolcrib.executors.live.response import compile_response
from toolcrib.http import HTTPResponse
from toolcrib.http.messages import RequestDraft

CONTEXT: Any = CallContext(session=SimpleNamespace(clock=VirtualClock()))


class Done(NamedTuple):
    """What came of a call, and the requests that it made."""

    result: Result
    requests: list[RequestDraft]

    @property
    def queries(self):
        return [parse_qsl("&".join(draft.query), keep_blank_values=True) for draft in self.requests]

    @property
    def value(self):
        assert self.result.outcome is Outcome.OK, self.result.message
        return self.result.value


def draft_of(query=(), **parts):
    return RequestDraft("GET", "https", "api.test", 443, "/things", list(query), **parts)


def collect(pagination, serve, arguments=None, block=None, draft=None, own=()):
    """Go through the pages of an API, of which `serve(query, draft)` gives the body or a whole answer."""
    whole = {"pagination": pagination, **(block or {})}
    problems = []
    pages, reading = (
        compile_pages(whole, tool_of(pagination), problems),
        compile_response(whole, TOOL, problems),
    )
    assert problems == []
    requests = []

    async def fetch(page):
        requests.append(page)
        answer = serve(dict(parse_qsl("&".join(page.query), keep_blank_values=True)), page)
        page.headers.append(("Authorization", "added by authentication"))
        if isinstance(answer, Result):
            return answer
        if not isinstance(answer, HTTPResponse):
            answer = HTTPResponse(200, (("content-type", "application/json"),), json.dumps(answer).encode())
        return reading.read(answer)

    call = Call(TOOL, arguments or {}, CONTEXT)
    return Done(asyncio.run(pages.collect(call, draft or draft_of(), fetch, reading, own=own)), requests)


def tool_of(pagination):
    name = pagination.get("cursor_arg")
    return TOOL._replace(
        input_schema={"type": "object", "properties": {name: {"type": "string"}} if name else {}}
    )
