"""What servers ask back while they work: hooks that answer, and what is said where there is none."""

from __future__ import annotations

import json

import pytest

import mcp_hooks
from mcp_calling import Calling, http_server, over_http
from mcp_sdk_server import FORM, sdk_server
from sampling import one_for, sample
from toolcrib import Outcome
from toolcrib.servers.mcp.server_requests import Elicitation


def pytest_generate_tests(metafunc):
    """Each test has a server of one era, or of both if everything is run."""
    for name in {"server"}.intersection(metafunc.fixturenames):
        metafunc.parametrize(name, one_for(metafunc.function, ["handshake", "modern"]), indirect=True)


@pytest.fixture
def server(request):
    with over_http() as url:
        yield http_server(url, era=request.param)


@pytest.fixture(autouse=True)
def _nothing_asked():
    mcp_hooks.asked.clear()


@pytest.mark.parametrize("hook", ["answer", "answer_later"])
async def test_a_hook_answers_the_user_s_part_and_defaults_fill_the_rest(server, hook):
    async with Calling(server._replace(elicitation=f"mcp_hooks:{hook}"), "ask") as calling:
        result = await calling.call("ask")
        assert json.loads(result.value) == {"action": "accept", "content": {"size": "large", "milk": True}}
        assert mcp_hooks.asked == [Elicitation("sdk", "Which coffee?", FORM)]


async def test_a_hook_answers_a_process_too():
    async with Calling(sdk_server(era="handshake", elicitation="mcp_hooks:answer"), "ask") as calling:
        assert json.loads((await calling.call("ask")).value)["action"] == "accept"


@pytest.mark.parametrize("hook", ["log_and_answer", "log_and_answer_later"])
async def test_what_a_hook_logs_is_kept(server, hook, caplog):
    async with Calling(server._replace(elicitation=f"mcp_hooks:{hook}"), "ask") as calling:
        assert (await calling.call("ask")).outcome is Outcome.OK
    assert [record.message for record in caplog.records if record.name == "client"] == ["of the project"]


async def test_a_hook_may_decline(server):
    async with Calling(server._replace(elicitation="mcp_hooks:decline"), "ask") as calling:
        assert json.loads((await calling.call("ask")).value) == {"action": "decline", "content": None}


async def test_where_nobody_answers_the_call_says_what_to_write(server):
    async with Calling(server, "ask", "echo") as calling:
        result = await calling.call("ask")
        assert result.outcome is Outcome.TOOL_ERROR
        assert result.message.endswith(
            "; the server `sdk` asked the user, but no hook answers: "
            "add `elicitation: package.module:function` under `servers.sdk` in toolcrib.yaml"
        )
        assert (await calling.call("echo")).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("hook", "what"),
    sample(
        [
            ("fail", "failed: LookupError"),
            ("wrong", "returned neither a mapping of answers nor None"),
            ("nested", "returned answers that do not fit the form"),
        ],
        one_in=3,
    ),
)
async def test_a_hook_that_fails_is_named_and_its_words_are_not(server, hook, what, caplog):
    async with Calling(server._replace(elicitation=f"mcp_hooks:{hook}"), "ask") as calling:
        result = await calling.call("ask")
        assert result.outcome is Outcome.TOOL_ERROR
        assert result.message.endswith(f"; the hook `mcp_hooks:{hook}` {what}")
        assert "s3cret" not in result.message


@pytest.mark.parametrize(
    ("hook", "said"), sample([("model", "1 message, 10 tokens"), ("whole_model", "hello")], one_in=2)
)
async def test_a_hook_answers_the_model_s_part(hook, said):
    async with Calling(sdk_server(era="handshake", sampling=f"mcp_hooks:{hook}"), "sample") as calling:
        assert (await calling.call("sample")).value == said


async def test_where_no_model_answers_the_call_says_what_to_write():
    async with Calling(sdk_server(era="handshake"), "sample") as calling:
        result = await calling.call("sample")
        assert result.outcome is Outcome.TOOL_ERROR
        assert "add `sampling: package.module:function` under `servers.sdk`" in result.message


async def test_what_may_be_asked_is_what_is_declared(server):
    for fields, declared in (
        ({}, {"roots": {}}),
        ({"elicitation": "mcp_hooks:answer"}, {"roots": {}, "elicitation": {"form": {}}}),
        ({"sampling": "mcp_hooks:model"}, {"roots": {}, "sampling": {}}),
    ):
        async with Calling(server._replace(**fields), "seen") as calling:
            assert json.loads((await calling.call("seen")).value)["capabilities"] == declared


@pytest.mark.parametrize("path", ["mcp_hooks:nothing", "no_such_module:x", "mcp_hooks:not_a_function"])
async def test_a_hook_that_is_not_there_makes_the_tool_unavailable(path):
    async with Calling(sdk_server(elicitation=path), "ask") as calling:
        result = await calling.call("ask")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_hook")
        assert f"the hook `{path}`" in result.message


async def test_a_server_that_waits_for_an_answer_of_ours_is_not_silent(server):
    slow = server._replace(elicitation="mcp_hooks:answer_slowly", idle_timeout=2.0)
    async with Calling(slow, "ask") as calling:
        assert (await calling.call("ask")).outcome is Outcome.OK
