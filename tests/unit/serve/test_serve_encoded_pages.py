"""Bytes that take the place of a text when a message leaves."""

from __future__ import annotations

import json

from toolcrib.serve.mcp.streamable_http import insert_pages
from toolcrib.serve.mcp.tool_list import EncodedPages

PAGE = b'{"name":"a"},{"name":"b"}'


async def sent(pages: EncodedPages, *messages: dict) -> list[dict]:
    out: list[dict] = []

    async def send(message):
        out.append(dict(message))

    inserting = insert_pages(send, pages)
    for message in messages:
        await inserting(message)
    return out


def start(*headers: tuple[bytes, bytes]) -> dict:
    return {"type": "http.response.start", "status": 200, "headers": list(headers)}


def body(data: bytes, more: bool = False) -> dict:
    return {"type": "http.response.body", "body": data, "more_body": more}


def test_a_text_is_exchanged_once_and_only_as_a_whole_string():
    pages = EncodedPages()
    token = pages.put(PAGE)
    data = json.dumps({"tools": [token], "like": f"x{token}"}).encode()
    assert json.loads(pages.into(data)) == {"tools": [{"name": "a"}, {"name": "b"}], "like": f"x{token}"}
    assert not pages
    assert pages.into(data) == data


async def test_the_length_of_a_body_is_told_anew():
    pages = EncodedPages()
    data = json.dumps([pages.put(PAGE)]).encode()
    length = (b"content-length", str(len(data)).encode())
    first, second = await sent(pages, start((b"content-type", b"application/json"), length), body(data))
    assert second["body"] == b"[" + PAGE + b"]"
    assert first["headers"] == [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(second["body"])).encode()),
    ]


async def test_an_event_is_sent_when_it_comes():
    pages = EncodedPages()
    token = pages.put(PAGE)
    out = await sent(
        pages, start(), body(b": ping\n\n", True), body(f'data: ["{token}"]\n\n'.encode(), True), body(b"")
    )
    assert [message.get("body") for message in out] == [
        None,
        b": ping\n\n",
        b"data: [" + PAGE + b"]\n\n",
        b"",
    ]


async def test_without_a_page_everything_passes():
    messages = [start((b"content-length", b"2")), body(b"{}")]
    assert await sent(EncodedPages(), *messages) == messages
