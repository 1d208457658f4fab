"""Calls that never wait, without an event loop."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import mocked, runtime_of
from toolcrib import ClosedRuntime, ConfigurationError, Outcome
from toolcrib.core.model import NO_USAGE

PLAIN = mocked('result: "{{ args.x }}"', inputs="{properties: {x: {type: integer}}, required: [x]}")


def test_a_call_at_once_comes_to_what_the_call_comes_to():
    session = runtime_of(PLAIN).session()
    for arguments in ({"x": 1}, {"x": "2"}, {"x": []}, {}):
        awaited = asyncio.run(session.call("tool", arguments))
        assert session.call_at_once("tool", arguments)._replace(usage=NO_USAGE) == awaited._replace(
            usage=NO_USAGE
        )


def test_calls_at_once_count_and_remember_as_others_do():
    session = runtime_of(mocked('result: "{{ call }}"')).session()
    assert [session.call_at_once("tool").value for _ in range(2)] == [1, 2]
    assert session.calls == 2


def test_a_tool_that_is_not_there_is_told_at_once():
    assert runtime_of(PLAIN).session().call_at_once("tol").outcome is Outcome.NOT_FOUND


def test_a_call_that_may_wait_is_not_made():
    session = runtime_of(mocked("result: 1\nlatency: 5s")).session()
    assert session.call_at_once("tool") is None
    assert session.calls == 0


def test_programming_mistakes_raise():
    runtime = runtime_of(PLAIN)
    session = runtime.session()
    with pytest.raises(ConfigurationError):
        session.call_at_once(None)
    runtime.close()
    with pytest.raises(ClosedRuntime):
        session.call_at_once("tool", {"x": 1})
