"""Hooks of `auth`: functions of somebody's own that say what proves who sends a request."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from textwrap import dedent

import pytest

from authentication import applied, draft, failed, no_exchange, ready, tried
from http_servers import answering_json, raw_answer
from live_tools import API, calling, live_tool
from toolcrib import Outcome, VirtualClock
from toolcrib.core.errors import NotReady
from toolcrib.http.auth import HookRequest
from toolcrib.security.secrets import SecretResolver

_numbers = itertools.count()


@pytest.fixture
def hook(tmp_path, monkeypatch):
    """Writes a module and gives the `auth` that names a function of it."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text, function="sign"):
        name = f"hook_of_a_test_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(dedent(text), encoding="utf-8")
        return {"type": "python", "call": f"{name}:{function}"}

    return write


async def test_a_function_adds_headers_and_parameters(hook):
    auth = ready(
        hook(
            """
            def sign(request):
                signed = f"{request.method} {request.url} {len(request.body)} {dict(request.headers)['A']}"
                return {"headers": {"X-Signature": signed, "a": "c"}, "query": {"t s": "1&2"}}
            """
        )
    )
    made = await applied(auth, VirtualClock(), headers=[("A", "b")], query=["q=1"], body=b"four")
    assert made.headers == [("X-Signature", "GET https://api.example.com/v1?q=1 4 b"), ("a", "c")]
    assert made.query == ["q=1", "t%20s=1%262"]
    assert auth.hosts == ()


async def test_a_function_may_be_asynchronous_or_a_method(hook):
    text = """
        import asyncio

        class Signer:
            async def sign(self, request):
                await asyncio.sleep(0)
                return {"headers": {"X-Signature": "s"}}

        signer = Signer()
        """
    made = await applied(ready(hook(text, "signer.sign")), VirtualClock())
    assert made.headers == [("X-Signature", "s")]


async def test_nothing_may_be_added(hook):
    made = await applied(ready(hook("def sign(request): return {}")), VirtualClock())
    assert (made.headers, made.query) == ([], [])


async def test_a_hook_sees_what_schemes_before_it_have_added(hook):
    key = {"type": "apiKey", "in": "header", "name": "X-Key", "value": "${KEY}"}
    seen = "def sign(request): return {'query': {'seen': str(len(request.headers))}}"
    environment = {"KEY": "k"}
    assert (await applied(ready([key, hook(seen)], environment), VirtualClock())).query == ["seen=1"]
    assert (await applied(ready([hook(seen), key], environment), VirtualClock())).query == ["seen=0"]


async def test_a_hook_is_asked_for_each_request_and_shows_nothing(hook):
    text = """
        import itertools
        numbers = itertools.count(1)
        def sign(request): return {"headers": {"X-Nonce": str(next(numbers))}}
        """
    auth, clock = ready(hook(text)), VirtualClock()
    shown = draft()
    auth.show(shown)
    assert shown == draft()
    assert not await auth.renewed(clock, no_exchange, draft())
    assert [(await applied(auth, clock)).headers[0][1] for _ in range(2)] == ["1", "2"]


def test_what_a_hook_sees_can_not_be_changed():
    view = HookRequest("GET", "https://api.example.com/", (), b"")
    with pytest.raises(AttributeError):
        view.url = "https://evil.example.com/"


async def test_what_it_adds_is_masked(hook):
    secrets = SecretResolver({})
    auth = ready(
        hook("def sign(request): return {'headers': {'X-S': 'signed-with'}, 'query': {'s': 'a-nonce'}}"),
        secrets,
    )
    await applied(auth, VirtualClock())
    assert secrets.hide_in_text("signed-with a-nonce") == "*** ***"


async def test_its_exception_names_the_hook_and_the_place_and_nothing_else(hook):
    scheme = hook(
        """
        def sign(request):
            raise ValueError("here is hunter2")
        """
    )
    error = await failed(ready(scheme), VirtualClock())
    assert f"the hook `{scheme['call']}` failed at " in error.message
    assert error.message.endswith(".py:3: ValueError")
    assert error.details == {"hook": scheme["call"], "exception": "ValueError", "at": error.details["at"]}
    assert "hunter2" not in f"{error!r} {error} {error.details}"
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert not error.retryable


async def test_its_cancellation_passes_through(hook):
    text = """
        import asyncio
        async def sign(request):
            await asyncio.get_running_loop().create_future()
        """
    task = asyncio.create_task(applied(ready(hook(text)), VirtualClock()))
    for _ in range(3):
        await asyncio.wait([asyncio.ensure_future(_nothing())])
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def _nothing():
    """A turn of the loop."""


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("None", "returned None instead of a mapping"),
        ("['x']", "returned a `list` instead of a mapping"),
        ("{'header': {}}", "returned other keys instead of a mapping"),
        ("{'headers': [('a', 'hunter2')]}", "returned `headers` that is not a mapping of strings"),
        ("{'query': {'a': 5}}", "returned `query` that is not a mapping of strings"),
        ("{'query': {5: 'hunter2'}}", "returned `query` that is not a mapping of strings"),
        (
            "{'headers': {'a': 'hunter2\\r\\nX: y'}}",
            "returned `headers` with a string that contains a line break",
        ),
        ("{'headers': {'a': 'hunt\\u00e9r2'}}", "contains a non-ASCII character"),
        ("{'query': {'a': 'hunter2\\n'}}", "returned `query` with a string that contains a line break"),
        ("{'query': {'a\\n': 'hunter2'}}", "returned `query` with a string that contains a line break"),
        ("{'headers': {'a b': 'hunter2'}}", "with an invalid or reserved name"),
        ("{'headers': {'Host': 'hunter2'}}", "with an invalid or reserved name"),
        ("{'headers': {'Content-Length': '0'}}", "with an invalid or reserved name"),
        ("{'headers': {'Cookie': 'a=b'}}", "with an invalid or reserved name"),
    ],
)
async def test_what_is_returned_is_judged(hook, returned, words):
    scheme = hook(f"def sign(request): return {returned}")
    error = await failed(ready(scheme), VirtualClock())
    assert f"the hook `{scheme['call']}`" in error.message
    assert words in error.message
    assert "hunt" not in error.message
    assert error.details == {"hook": scheme["call"]}


@pytest.mark.parametrize(
    ("text", "function", "words"),
    [
        ("sign = 5", "sign", "is not a function"),
        ("raise SystemExit('hunter2')", "sign", "cannot be imported (SystemExit"),
        ("raise RuntimeError('hunter2')", "sign", "cannot be imported (RuntimeError"),
        ("def sign(:", "sign", "cannot be imported (SyntaxError"),
    ],
)
def test_without_a_function_no_tool_is_ready(hook, text, function, words):
    scheme = hook(text, function)
    with pytest.raises(NotReady) as raised:
        ready(scheme)
    assert f"the hook `{scheme['call']}` {words}" in str(raised.value)
    assert raised.value.code == "missing_hook"
    assert "hunter2" not in str(raised.value)
    assert tried(scheme) == (None, [])


def test_what_is_not_there_is_told_with_the_way_out():
    with pytest.raises(NotReady, match=r"cannot be imported \(ModuleNotFoundError(.|\n)*PYTHONPATH"):
        ready({"type": "python", "call": "no_such_module_anywhere:sign"})


async def test_a_call_whose_function_is_not_there_is_unavailable_until_it_is(hook):
    scheme = hook("x = 1")
    text = live_tool(f"url: {API}/x\nauth: {scheme}")
    async with calling(text, answering_json("good")) as (tools, server):
        for _ in range(3):
            result = await tools.call("tool")
            assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_hook")
            assert "tools.yaml:6" in result.message
        sys.modules[scheme["call"].partition(":")[0]].sign = lambda _request: {}
        assert (await tools.call("tool")).value == "good"
    assert len(server.requests) == 1


async def test_what_a_function_returned_is_hidden_in_each_of_many_calls_at_once(hook):
    scheme = hook(
        """
        import itertools
        numbers = itertools.count(100_000)
        def sign(request):
            return {"headers": {"X-Signature": f"sig-{next(numbers)}", "X-Nonce": f"nonce-{next(numbers)}"}}
        """
    )
    all_arrived = asyncio.Barrier(100)

    async def echo(_reader, writer, head):
        await all_arrived.wait()
        seen = {"seen": f"{head.header('x-signature')} {head.header('x-nonce')}"}
        body = json.dumps(seen).encode()
        writer.write(raw_answer(200, {"Content-Type": "application/json"}, body))
        await writer.drain()

    text = live_tool(f"url: {API}/x\nauth: {scheme}", more="limits: {concurrency: 100}")
    async with calling(text, echo) as (tools, _server):
        results = await asyncio.gather(*(tools.call("tool") for _ in range(100)))
        assert [result.value for result in results] == [{"seen": "*** ***"}] * 100
        assert tools._engine.world.secrets.known == frozenset()
