"""Servers whose tools change while they run: the list is read again, judged again, and told of."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mcp_calling import Calling, http_server, over_http
from mcp_sdk_server import sdk_server
from sampling import one_for, sample
from toolcrib import Outcome
from toolcrib.core.server_config import LockVerdict


def pytest_generate_tests(metafunc):
    """Each test has a server of one era, or of both if everything is run."""
    for name in {"server"}.intersection(metafunc.fixturenames):
        metafunc.parametrize(name, one_for(metafunc.function, ["handshake", "modern"]), indirect=True)


@pytest.fixture
def server(request):
    with over_http() as url:
        yield http_server(url, era=request.param)


async def heard(calling, name):
    """The list of a server in which a tool has appeared."""
    async with asyncio.timeout(60):
        while name not in (catalogue := await calling.executor.heard.get()).tools:
            pass
    return catalogue


async def listening(calling):
    """Hear the first list, then change it until that is heard: who subscribes is not heard at once."""
    number = 0
    await calling.call("register", {"name": "try-0"})
    await calling.executor.heard.get()
    async with asyncio.timeout(60):
        while calling.executor.heard.empty():
            number += 1
            await calling.call("register", {"name": f"try-{number}"})


async def changes(server):
    async with Calling(server, "register", "late") as calling:
        assert (await calling.call("late")).error.code == "unknown_remote_tool"
        await listening(calling)
        await calling.call("register", {"name": "late"})
        catalogue = await heard(calling, "late")
        assert list(catalogue.tools)[-1] == "late"
        assert (await calling.executor.catalogue("sdk")).tools == catalogue.tools
        assert (await calling.call("late")).value == "late"


async def test_a_list_that_changed_is_read_again(server):  # D80
    await changes(server)


@pytest.mark.parametrize("era", sample(["handshake", "modern"], one_in=2))
async def test_the_list_of_a_process_that_changed_is_read_again(era):  # D80
    await changes(sdk_server(era=era))


async def test_what_changed_is_judged_before_another_call_is_sent(server):  # D80
    def judge(_server, catalogue):
        late = catalogue is not None and "late" in catalogue.tools
        return LockVerdict({"echo": "`echo` is not what was locked"}) if late else LockVerdict()

    async with Calling(server, "register", "echo", judge=judge) as calling:
        await listening(calling)
        assert (await calling.call("echo")).outcome is Outcome.OK
        await calling.call("register", {"name": "late"})
        await heard(calling, "late")
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.DENIED, "definition_changed")


async def test_a_list_that_is_the_same_after_another_start_is_not_told():
    async with Calling(sdk_server(), "die", "echo") as calling:
        await calling.call("die")
        await calling.executor.heard.get()
        await calling.call("echo")
        assert calling.executor.heard.empty()


async def test_a_list_that_is_another_after_another_start_is_told():
    async with Calling(sdk_server(), "register", "die", "echo") as calling:
        await calling.call("register", {"name": "late"})
        await heard(calling, "late")
        await calling.call("die")
        await calling.call("echo")
        assert "late" not in calling.executor.heard.get_nowait().tools


async def test_a_subscription_that_ended_is_renewed_and_what_was_missed_is_read():
    with over_http() as url:
        async with Calling(http_server(url, era="modern"), "register") as calling:
            await listening(calling)
            await calling.call("register", {"name": "missed", "hang_up": True})
            await heard(calling, "missed")
            await calling.call("register", {"name": "late"})
            await heard(calling, "late")


async def test_a_list_that_can_not_be_read_again_is_told_in_the_log(caplog):
    async with Calling(sdk_server(era="handshake"), "register", "echo") as calling:
        await calling.call("echo")
        with caplog.at_level(logging.WARNING, "toolcrib"):
            await calling.call("register", {"name": "late", "broken": True})
            async with asyncio.timeout(60):
                while not caplog.records:
                    await calling.call("echo")
        told = "cannot refresh the tools of the server `sdk`: the shelf is broken"
        assert caplog.records[0].getMessage() == told
        assert (await calling.call("echo")).outcome is Outcome.OK
