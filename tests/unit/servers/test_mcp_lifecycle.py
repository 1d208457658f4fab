"""Servers from their start to their end: shared, started again, left alone, ended; and calls in flight meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from mcp_calling import Calling, http_server, over_http, over_http_from_a_process
from mcp_scripts import scripted
from mcp_sdk_server import listening_on, sdk_server
from sampling import sample
from toolcrib import Outcome, RealClock, VirtualClock
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.lock import Lock, LockedServer

READS = {"annotations": {"read_only": True}}


def child(*behaviours, **fields):
    """The scripted server; it speaks the handshake era, which it is not asked for."""
    return scripted(*behaviours, **{"era": "handshake", "start_timeout": 20.0, **fields})


def is_there(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def number_of(calling, session="main"):
    """The process of the server that a session speaks to."""
    told = await calling.runtime.session(id=session).call("environ")
    return json.loads(told.value)["PID"]


async def test_a_command_that_does_not_exist_is_named():  # D73
    async with Calling(Server("shop", command="no-such-command"), "buy") as calling:
        result = await calling.call("buy")
        assert (result.outcome, result.error.code, result.usage.attempts) == (
            Outcome.UNAVAILABLE,
            "server_down",
            0,
        )
        assert "`no-such-command`, was not found in PATH" in result.message


async def test_a_child_that_ends_at_once_is_told_with_its_last_words():  # D74
    async with Calling(child("exit=4"), "echo") as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "server_down")
        assert result.message == (
            "cannot start the server `scripted`: it exited with code 4; its stderr ends with:\ncan't start"
        )
        assert calling.executor.states() == {"scripted": "down"}


async def test_a_child_that_never_answers_is_given_up():  # D75
    async with Calling(child("silent", start_timeout=0.3), "echo") as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "server_down")
        assert "it did not answer within 300ms" in result.message


async def test_text_before_the_protocol_is_passed_over():  # D76
    async with Calling(child("banner=3"), "echo") as calling:
        assert (await calling.call("echo", {"n": 1})).value == '{"n": 1}'


@pytest.mark.parametrize(
    ("more", "outcome", "code", "acted"),
    [
        ({}, Outcome.UNKNOWN_OUTCOME, "unknown_outcome", True),
        ({**READS, "limits": {"attempts": 1}}, Outcome.TRANSPORT_ERROR, "transport_error", False),
    ],
)
async def test_a_child_that_dies_in_the_middle_of_a_call(more, outcome, code, acted):  # D77
    async with Calling(child("die=3"), {"name": "echo", **more}) as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (outcome, code)
        assert "the server `scripted` exited with code 3" in result.message
        assert bool(result.error.details.get("may_have_acted")) is acted
        assert result.error.retryable is not acted


async def test_all_calls_in_flight_fail_at_once_when_the_child_dies():
    async with Calling(sdk_server(), "slow", "die", "cancelled") as calling:
        slow = [asyncio.ensure_future(calling.call("slow", {"delay": 600})) for _turn in range(3)]
        while json.loads((await calling.call("cancelled")).value)["slow"] < 3:
            pass
        await calling.call("die")
        async with asyncio.timeout(60):
            results = await asyncio.gather(*slow)
        assert {result.outcome for result in results} == {Outcome.UNKNOWN_OUTCOME}


async def test_an_answer_with_another_id_is_waited_past():  # D78
    async with Calling(child("wrong-id"), {"name": "echo", "timeout": "300ms"}) as calling:
        assert (await calling.call("echo")).outcome is Outcome.TIMEOUT


# The server numbers the requests of these tests: 1 is the handshake, 2 the list, 3 the call of `environ`.
LARGE = 17 * 1024 * 1024


async def mark_of(calling):
    """What the environment of the server's process holds, and of no other."""
    return json.loads((await calling.call("environ")).value)["TOOLCRIB_CHILD"]


def line(number, padding=0):
    text = {"type": "text", "text": "@PAD@"}
    return [json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": [text]}}), padding]


async def test_a_reply_that_is_too_large_loses_its_call_and_nothing_else():  # D79
    async with Calling(child("say"), "hold", "say", "environ") as calling:
        process = await mark_of(calling)
        held, said = await asyncio.gather(
            calling.call("hold"), calling.call("say", {"lines": [line(5, LARGE), line(4, 3), line(4, 4)]})
        )
        assert (held.outcome, held.value) == (Outcome.OK, "xxx")
        assert (said.outcome, said.error.code) == (Outcome.LIMIT_EXCEEDED, "too_large")
        assert said.message == (
            "`say` (server `scripted`): the server sent a line longer than 16MiB; request less data, "
            "or raise `limits.output_size`"
        )
        assert said.error.retryable is False
        size = 16 * 1024 * 1024
        assert said.error.details == {
            "limit": "output_size",
            "value": size,
            "measured": size + 1,
            "may_have_acted": True,
        }
        assert await mark_of(calling) == process
        assert (await calling.call("say", {"lines": [line(7, 2)]})).value == "xx"


@pytest.mark.parametrize("annotations", sample([{}, READS], one_in=2))
async def test_a_reply_that_is_too_large_and_unknown_loses_all_calls_and_not_the_server(annotations):
    tools = ({"name": "hold", **annotations}, {"name": "say", **annotations}, "environ")
    async with Calling(child("say"), *tools) as calling:
        process = await mark_of(calling)
        held, said = await asyncio.gather(
            calling.call("hold"), calling.call("say", {"lines": [["@PAD@", LARGE]]})
        )
        for result in (held, said):
            assert (result.outcome, result.error.code) == (Outcome.UNKNOWN_OUTCOME, "unidentified_response")
            assert (result.error.details == {"may_have_acted": True}) is (not annotations)
        ending = "" if annotations else "; the call was sent, so it may have acted"
        assert held.message == (
            "`hold` (server `scripted`): the server sent a line longer than 16MiB without an `id` in its first 64KiB, "
            f"while 2 requests waited; request less data, or raise `limits.output_size`{ending}"
        )
        assert await mark_of(calling) == process
        (only,) = await asyncio.gather(calling.call("say", {"lines": [["@PAD@", LARGE]]}))
        assert (only.outcome, only.error.code) == (Outcome.LIMIT_EXCEEDED, "too_large")
        assert await mark_of(calling) == process


async def test_the_limit_of_a_tool_is_that_of_its_replies():
    large = {"name": "say", "limits": {"output_size": "20MiB"}}
    small = {"name": "hold", "limits": {"output_size": "100KiB"}}
    async with Calling(child("say"), large, small, "environ") as calling:
        process = await mark_of(calling)
        held, said = await asyncio.gather(
            calling.call("hold"), calling.call("say", {"lines": [line(4, 100 * 1024), line(5, LARGE)]})
        )
        assert (held.outcome, held.error.code) == (Outcome.LIMIT_EXCEEDED, "too_large")
        assert "a line longer than 100KiB" in held.message
        assert (said.outcome, len(said.value)) == (Outcome.OK, LARGE)
        assert await mark_of(calling) == process


async def test_a_server_whose_tool_list_is_too_large_is_not_started():
    server = Server(
        "flood",
        command="python",
        args=("-S", "-c", "import sys; sys.stdin.readline(); print('x' * 17_000_000); sys.stdin.read()"),
        era="handshake",
    )
    async with Calling(server, "echo") as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "server_down")
        assert result.message == (
            "cannot start the server `flood`: it did not answer: the server sent a line longer than 16MiB"
        )


async def test_a_message_that_is_none_breaks_the_protocol():
    async with Calling(child('instead={"jsonrpc": "2.0", "id": @ID@, "result": 7}'), "echo") as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "protocol_violation")


async def test_a_child_has_only_the_environment_that_is_named(monkeypatch):  # D81
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    async with Calling(child(env={"LOG": "debug"}), "environ") as calling:
        there = json.loads((await calling.call("environ")).value)
        assert there["LOG"] == "debug"
        assert "AWS_SECRET_ACCESS_KEY" not in there


@pytest.mark.exhaustive  # `test_mcp_stdio_ends.py` has the same child without a runtime
async def test_closing_ends_a_child_that_ignores_sigterm_with_all_that_it_started():  # D82
    async with Calling(child("ignore-term", "stay", "child", "stray"), "kin") as calling:
        numbers = json.loads((await calling.call("kin")).value)
        assert len(numbers) == 2
        assert all(map(is_there, numbers))
    assert not any(map(is_there, numbers))


@pytest.mark.exhaustive
async def test_five_hundred_calls_at_once_pass_a_bounded_queue():  # D83
    async with Calling(child(), "echo") as calling:
        results = await asyncio.gather(*(calling.call("echo", {"n": n}) for n in range(500)))
        outcomes = [result.outcome for result in results]
        assert outcomes.count(Outcome.OK) == 110
        assert outcomes.count(Outcome.OVERLOADED) == 390
        assert calling.executor.states() == {"scripted": "up"}


async def test_a_server_over_http_that_was_down_is_reached_when_it_is_up_again():  # D84
    with listening_on(0) as free:
        port = free.getsockname()[1]
    with over_http(port) as url:
        calling = Calling(http_server(url), "echo")
        assert (await calling.call("echo")).outcome is Outcome.OK
    between = await calling.call("echo")
    assert (between.outcome, between.error.retryable) == (Outcome.UNAVAILABLE, True)
    with over_http(port):
        assert (await calling.call("echo", {"n": 1})).value == '{"n": 1}'
        await calling.runtime.aclose()


@pytest.mark.parametrize("era", sample(["handshake", "modern"], one_in=2))
async def test_a_server_over_http_that_goes_down_in_the_middle_of_a_call_fails_it_at_once(era):
    with over_http_from_a_process() as (url, kill):
        async with Calling(http_server(url, era=era), "slow", "cancelled") as calling:
            going = asyncio.ensure_future(calling.call("slow", {"delay": 600}))
            while json.loads((await calling.call("cancelled")).value)["slow"] < 1:
                pass
            kill()
            async with asyncio.timeout(60):
                result = await going
            assert (result.outcome, result.error.code) == (Outcome.UNKNOWN_OUTCOME, "connection_broken")
            assert result.error.details == {"may_have_acted": True}


async def test_a_child_that_died_is_started_again_at_the_next_call(tmp_path):
    log = tmp_path / "log"
    async with Calling(child("die=3", f"log={log}"), "echo") as calling:
        for _turn in range(2):
            assert (await calling.call("echo")).outcome is Outcome.UNKNOWN_OUTCOME
        assert log.read_text().count('"initialize"') == 2
        assert log.read_text().count('"tools/call"') == 2


async def test_a_child_that_died_while_nobody_called_costs_no_call():
    async with Calling(sdk_server(), "echo", "die") as calling:
        await calling.call("die")
        assert (await calling.call("echo", {"n": 1})).value == '{"n": 1}'


@pytest.mark.exhaustive
async def test_a_child_that_keeps_dying_is_left_alone_and_nobody_waits():
    clock = VirtualClock()
    async with Calling(child("exit=4"), "echo", clock=clock) as calling:
        before = [await calling.call("echo") for _turn in range(5)]
        assert {result.error.code for result in before} == {"server_down"}
        assert clock.monotonic() >= 0.2 + 0.4 + 0.8 + 1.6
        now = clock.monotonic()
        alone = await calling.call("echo")
        assert (alone.outcome, alone.error.code, alone.error.retryable) == (
            Outcome.UNAVAILABLE,
            "server_down",
            True,
        )
        assert alone.message.startswith(
            "the server `scripted` exited repeatedly and is not restarted for now; retry after "
        )
        assert alone.message.endswith("can't start")
        assert 0 < alone.error.details["retry_after"] <= 60
        assert clock.monotonic() == pytest.approx(now, abs=0.5)
        assert calling.executor.states() == {"scripted": "resting"}
        await clock.advance(61)
        assert "cannot start" in (await calling.call("echo")).message


async def test_calls_that_come_together_share_one_start(tmp_path):
    log = tmp_path / "log"
    async with Calling(child(f"log={log}"), "echo") as calling:
        results = await asyncio.gather(*(calling.call("echo", {"n": n}) for n in range(8)))
        assert [result.value for result in results] == [f'{{"n": {n}}}' for n in range(8)]
        assert log.read_text().count('"initialize"') == 1


async def test_a_caller_that_gives_up_does_not_end_the_start_for_the_others():
    async with Calling(child(), "echo") as calling:
        first = asyncio.ensure_future(calling.call("echo", {"n": 1}))
        second = asyncio.ensure_future(calling.call("echo", {"n": 2}))
        await RealClock().sleep(0)
        await RealClock().sleep(0)
        first.cancel()
        assert (await second).value == '{"n": 2}'
        await asyncio.wait([first])


async def test_sessions_share_a_server_unless_it_is_for_each_of_them(tmp_path):
    for scope, starts in (("runtime", 1), ("session", 2)):
        log = tmp_path / scope
        async with Calling(child(f"log={log}", scope=scope), "echo") as calling:
            one, two = calling.runtime.session(), calling.runtime.session()
            for session in (one, two, one):
                assert (await session.call("echo")).outcome is Outcome.OK
            assert log.read_text().count('"initialize"') == starts


async def test_the_server_of_a_session_ends_with_it():
    async with Calling(child("child", scope="session"), "kin") as calling:
        one, two = calling.runtime.session(), calling.runtime.session()
        first, second = [json.loads((await session.call("kin")).value) for session in (one, two)]
        await calling.executor.release(one.id)
        assert (is_there(first[0]), is_there(second[0])) == (False, True)
        assert (await one.call("kin")).outcome is Outcome.OK


async def test_a_list_of_a_server_for_each_session_leaves_no_server_behind(tmp_path):
    log = tmp_path / "log"
    async with Calling(child("child", f"log={log}", scope="session"), "kin") as calling:
        assert "kin" in (await calling.executor.catalogue("scripted")).tools
        async with asyncio.timeout(60):
            while calling.executor.states() == {"scripted": "up"}:
                await RealClock().sleep(0.01)


async def test_states_start_nothing():
    async with Calling(child(), "echo") as calling:
        assert calling.executor.states() == {"scripted": "idle"}
        assert calling.executor.keeps_nothing
        await calling.call("echo")
        assert calling.executor.states() == {"scripted": "up"}
        assert not calling.executor.keeps_nothing


async def test_the_catalogue_says_what_a_server_offers():
    async with Calling(sdk_server(), "echo") as calling:
        found = await calling.executor.catalogue("sdk")
        assert found.tools["echo"] == {
            "name": "echo",
            "description": "Says it again.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
        }
        assert found.info == {
            "name": "sdk",
            "version": "1.2",
            "instructions": "Be kind.",
            "protocol": "2026-07-28",
        }
        assert found.refused == {}


async def test_a_server_of_before_that_ends_at_a_message_that_it_does_not_know_is_spoken_to_all_the_same(
    tmp_path,
):
    script = tmp_path / "strict.py"
    script.write_text(
        "import json, runpy, sys\n"
        "first = json.loads(sys.stdin.buffer.readline())\n"
        "if first['method'] != 'initialize': sys.exit('expected initialize')\n"
        "script = runpy.run_path(sys.argv[1])['Script']([])\n"
        "script.answer(first)\n"
        "script.serve()\n"
    )
    source = scripted().args[1]
    server = scripted(start_timeout=60.0)._replace(args=("-S", str(script), source))
    async with Calling(server, "echo") as calling:
        assert (await calling.call("echo", {"n": 1})).value == '{"n": 1}'


async def test_what_was_put_in_force_again_ends_what_was_before_once_its_calls_are_over():
    async with Calling(child("child"), "kin", "echo") as calling:
        numbers = json.loads((await calling.call("kin")).value)
        calling.executor.world = calling.runtime._engine.world._replace(origins={})
        calling.executor.bind(calling.runtime.registry["kin"])
        async with asyncio.timeout(60):
            while any(map(is_there, numbers)):
                await RealClock().sleep(0.01)


def test_a_runtime_without_an_event_loop_starts_and_ends_servers():
    with Calling(child("child"), "kin").runtime as runtime:
        numbers = json.loads(runtime.call_sync("kin").value)
        assert runtime.call_sync("kin").outcome is Outcome.OK
    assert not any(map(is_there, numbers))


def test_a_loop_that_ends_takes_its_servers_along():
    calling = Calling(child("child"), "kin")
    first = json.loads(asyncio.run(calling.call("kin")).value)
    assert not any(map(is_there, first))
    second = json.loads(asyncio.run(calling.call("kin")).value)
    assert not any(map(is_there, second))
    asyncio.run(calling.runtime.aclose())


async def test_virtual_time_runs_as_real_time_while_a_server_works():
    clock = VirtualClock()
    async with Calling(child("silent-calls"), {"name": "echo", "timeout": "400ms"}, clock=clock) as calling:
        assert (await calling.call("echo")).outcome is Outcome.TIMEOUT
        assert clock.monotonic() >= 0.4


async def test_what_a_lock_refuses_is_not_called(tmp_path):
    log = tmp_path / "log"
    told = []

    def judge(server, catalogue):
        told.append(None if catalogue is None else list(catalogue.tools))
        if catalogue is None:
            return LockVerdict()
        return LockVerdict({"echo": "`echo` is not what was locked"}, ("`kin` has a new description",))

    async with Calling(child(f"log={log}"), "echo", "kin", judge=judge) as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.DENIED, "definition_changed")
        assert result.message == "`echo` is not what was locked"
        assert (await calling.call("kin")).outcome is Outcome.OK
        assert told == [None, ["echo", "environ", "kin"]]
        assert log.read_text().count('"tools/call"') == 1


async def test_what_a_lock_warns_of_is_logged_once(caplog):
    warned = LockVerdict(warnings=("`echo` has a new description",))
    async with Calling(child("die=3"), "echo", judge=lambda _server, _catalogue: warned) as calling:
        with caplog.at_level(logging.WARNING, "toolcrib"):
            for _turn in range(2):
                await calling.call("echo")
        assert [record.message for record in caplog.records] == ["`echo` has a new description"]


async def test_a_changed_command_that_a_lock_only_warns_of_is_logged_at_the_start(caplog):
    server = child(places={"": "toolcrib.yaml:3"})
    locked = LockedServer.of(server._replace(command="python", args=("server.py",)), Catalogue("scripted"))
    lock = Lock("toolcrib.lock", {"scripted": locked}, there=True)
    async with Calling(server, "echo", judge=lock.judge("warn")) as calling:
        with caplog.at_level(logging.WARNING, "toolcrib"):
            assert (await calling.call("echo")).outcome is Outcome.OK
            assert (await calling.call("echo")).outcome is Outcome.OK
    (told,) = [record.message for record in caplog.records]
    assert told == (
        "toolcrib.yaml:3: the server `scripted` does not match toolcrib.lock: `args` and `command` changed; "
        "review the changes with `toolcrib lock scripted`, accept them with `toolcrib lock --update scripted`"
    )


async def test_a_server_that_a_lock_refuses_is_not_started(tmp_path):
    log = tmp_path / "log"
    refused = LockVerdict({"*": "the command of `scripted` is not what was locked"})
    async with Calling(child(f"log={log}"), "echo", judge=lambda _server, _catalogue: refused) as calling:
        for result in (await calling.call("echo"), await calling.runtime.dry_run("echo")):
            assert (result.outcome, result.error.code) == (Outcome.DENIED, "definition_changed")
            assert result.message == "the command of `scripted` is not what was locked"
    assert not log.exists()


async def test_a_tool_that_is_left_out_is_not_called():
    server = child(only=("e*",), skipped=("environ",), places={"": "toolcrib.yaml:3"})
    async with Calling(server, "echo", "environ", "kin") as calling:
        assert (await calling.call("echo")).outcome is Outcome.OK
        for name in ("environ", "kin"):
            result = await calling.call(name)
            assert (result.outcome, result.error.code) == (Outcome.DENIED, "filtered")
            assert result.message == (
                f"the tool `{name}` of the server `scripted` is excluded by `only` or `except` (toolcrib.yaml:3)"
            )


async def test_a_dry_run_shows_what_would_be_sent_and_starts_nothing():
    server = child(env={"TOKEN": "${TOKEN}"})._replace(command="python", args=("x.py", "--key=${TOKEN}"))
    tool = {"name": "tool", "mcp": {"tool": "echo", "args": {"unit": "C"}}}
    async with Calling(server, tool, secrets=SecretResolver({"TOKEN": "s3cret-value"})) as calling:
        result = await calling.runtime.dry_run("tool", {"city": "s3cret-value"})
        assert result.value["plan"] == {
            "server": "scripted",
            "transport": "stdio",
            "endpoint": "python x.py '--key=${TOKEN}'",
            "tool": "echo",
            "arguments": {"city": "s3cret-value", "unit": "C"},
        }
        assert calling.executor.keeps_nothing


async def test_what_is_secret_does_not_come_back():
    secrets = SecretResolver({"TOKEN": "s3cret-value"})
    async with Calling(child(env={"TOKEN": "${TOKEN}"}), "environ", secrets=secrets) as calling:
        result = await calling.call("environ")
        assert '"TOKEN": "***"' in result.value


async def test_everything_that_is_missing_is_told_at_once(monkeypatch):
    server = child(env={"A": "${NOT_SET_A}", "B": "${NOT_SET_B}"}, places={"env": "toolcrib.yaml:7"})
    async with Calling(server, "echo") as calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_secret")
        assert "`NOT_SET_A` is not set in the environment (toolcrib.yaml:7)" in result.message
        assert "`NOT_SET_B` is not set in the environment (toolcrib.yaml:7)" in result.message


async def test_a_server_that_is_not_there_is_told_with_near_misses():
    calling = Calling(child(), {"name": "echo", "mcp": {"server": "scirpted"}})
    async with calling:
        result = await calling.call("echo")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unknown_server")
        assert "did you mean `scripted`?" in result.message
