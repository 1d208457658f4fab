"""Answers of HTTP tools, without a server: what `live` makes of them."""

from __future__ import annotations

from toolcrib import Descriptor
from toolcrib.executors.live.response import ResponseContent, compile_response
from toolcrib.http import HTTPResponse

TOOL = Descriptor("tool", input_schema={"type": "object"})
JSON_TYPE = "application/json"


def reading_of(block, tool=TOOL):
    problems = []
    reading = compile_response(block, tool, problems)
    assert [str(problem) for problem in problems] == []
    return reading


def answer(body=b"", content_type=JSON_TYPE, status=200, headers=()):
    told = () if content_type is None else (("content-type", content_type),)
    return HTTPResponse(status, (*told, *headers), body)


def result_of(block, response, arguments=None, tool=TOOL, now=None):
    reading = reading_of(block, tool)
    read = reading.read(response)
    return reading.result(read, arguments or {}, now) if isinstance(read, ResponseContent) else read
