"""`toolcrib stats`, `top` and `cancel` look at runtimes that are served in this process."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import sys
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from in_memory import runtime_of
from toolcrib import RealClock
from toolcrib.cli.stats import short_duration
from toolcrib.serve.inspection import inspectable

if sys.platform == "win32":
    pytest.skip("there are no Unix sockets", allow_module_level=True)

TOOLS = """
name: greet
mock: {result: hello}
---
name: fail
mock: {error: {code: broken, message: It is broken.}}
---
name: slow
mock: {result: 1, latency: 1h, progress: [{progress: 1, total: 4, message: begun}]}
"""


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def command(toolcrib):
    """Run a command in a thread, since the runtime is served in this one."""
    return lambda *words: asyncio.to_thread(toolcrib, *words)


@asynccontextmanager
async def served(name="shop"):
    async with runtime_of(TOOLS, clock=RealClock()) as runtime, inspectable(runtime, name, "stdio", print):
        yield runtime


@asynccontextmanager
async def busy():
    """A runtime with three finished calls and a running one."""
    async with served() as runtime:
        session = runtime.session(id="s1", caller="agent", user="ada")
        for tool in ("greet", "greet", "fail"):
            await session.call(tool)
        task = asyncio.create_task(session.call("slow"))
        async with asyncio.timeout(60):
            while not (running := runtime.running()) or running[0].progress is None:
                await RealClock().sleep(0.001)
        yield runtime
        runtime.cancel(all=True)
        await task


@pytest.mark.parametrize("words", [("stats",), ("top",), ("cancel", "--all"), ("stats", "--list")])
async def test_without_a_served_runtime_there_is_nothing_to_do(words, command):
    done = await command(*words)
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("no runtime is served; start one with `toolcrib serve mcp`")


async def test_the_table_has_a_line_for_each_tool(command):
    async with busy():
        done = await command("stats")
    head, *rows, end = done.stdout.splitlines()
    assert head.split() == ["tool", "calls", "failed", "cached", "p50", "p90", "p99"]
    assert [row.split()[:4] for row in rows] == [["fail", "1", "1", "0"], ["greet", "2", "0", "0"]]
    assert end.startswith("3 calls since ")
    assert end.endswith("; 2 ok; 1 tool_error")


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("caller", [["agent", "3", "1", "0"]]),
        ("user", [["ada", "3", "1", "0"]]),
        ("outcome", [["ok", "2"], ["tool_error", "1"]]),
        ("code", [["broken", "1"]]),
    ],
)
async def test_other_groups(by, rows, command):
    async with busy():
        done = await command("stats", "--by", by)
    assert [line.split()[:4] for line in done.stdout.splitlines()[1:-1]] == rows


async def test_formats_for_programs(command):
    async with busy():
        document = json.loads((await command("stats", "--json")).stdout)
        table = [*csv.DictReader((await command("stats", "--csv")).stdout.splitlines())]
        families = {
            family.name: family
            for family in text_string_to_metric_families((await command("stats", "--prometheus")).stdout)
        }
    assert (document["calls"], document["tools"]["greet"]["calls"]) == (3, 2)
    assert {(row["tool"], row["calls"]) for row in table} == {("greet", "2"), ("fail", "1")}
    assert sum(sample.value for sample in families["toolcrib_calls"].samples) == 3
    assert (await command("stats", "--json", "--csv")).exit_code == 2


async def test_reset_prints_the_last_time_what_it_forgets(command):
    async with busy() as runtime:
        assert json.loads((await command("stats", "--reset", "--json")).stdout)["calls"] == 3
        assert runtime.statistics.calls == 0
        assert (await command("stats")).stdout.startswith("0 calls since ")


async def test_several_runtimes_are_told_apart(command):
    async with busy(), served("other") as runtime:
        await runtime.call("greet")
        ambiguous = await command("stats")
        assert ambiguous.exit_code == 2
        pid = os.getpid()
        assert (
            f"several runtimes are served; name one of them: shop (pid {pid}), other (pid {pid})"
            in ambiguous.stderr
        )
        assert json.loads((await command("stats", "other", "--json")).stdout)["calls"] == 1
        assert json.loads((await command("stats", "--all", "--json")).stdout)["calls"] == 4
        assert f"several served runtimes are `{pid}`" in (await command("stats", str(pid))).stderr
        assert "several served runtimes are `.`" in (await command("stats", ".")).stderr
        missing = await command("top", "shoop")
        assert missing.exit_code == 2
        assert "no served runtime is `shoop`; did you mean `shop`?" in missing.stderr
        assert "there are: shop" in (await command("top", "xyz")).stderr
        assert (await command("stats", "shop", "--all")).exit_code == 2
        assert (await command("stats", "--list", "--csv")).exit_code == 2

        listed = [line.split()[:5] for line in (await command("stats", "--list")).stdout.splitlines()]
        assert listed == [
            ["pid", "name", "transport", "running", "calls"],
            [str(pid), "shop", "stdio", "1", "3"],
            [str(pid), "other", "stdio", "0", "1"],
        ]
        document = json.loads((await command("stats", "--list", "--json")).stdout)
        assert [each["name"] for each in document["runtimes"]] == ["shop", "other"]


async def test_the_one_of_this_project_is_chosen(command, tmp_path, monkeypatch):
    async with served("elsewhere"):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        async with served("here"):
            assert "here (pid" in (await command("top")).stdout


async def test_a_snapshot_shows_the_running_calls_and_the_tools(command):
    async with busy() as runtime:
        (call,) = runtime.running()
        done = await command("top", "--once")
        document = json.loads((await command("top", "--json")).stdout)
    head, counts, _blank, calls_head, row, _blank, tools_head, *tools = done.stdout.splitlines()
    assert head.startswith(f"shop (pid {os.getpid()}), stdio, up ")
    assert counts.startswith("1 running; 3 calls, 1 failed; ")
    assert calls_head.split()[:4] == ["id", "tool", "stage", "elapsed"]
    assert row.split()[:3] == [call.id, "slow", "running"]
    assert row.split()[-5:] == ["25%", "begun", "s1", "agent", "ada"]
    assert tools_head.split()[:3] == ["tool", "running", "calls/s"]
    assert {(line.split()[0], line.split()[1], line.split()[3]) for line in tools} == {
        ("greet", "0", "2"),
        ("fail", "0", "1"),
        ("slow", "1", "0"),
    }
    assert document["running"][0]["id"] == call.id
    assert document["statistics"]["calls"] == 3


async def test_calls_are_cancelled(command):
    async with busy() as runtime:
        (call,) = runtime.running()
        assert (await command("cancel", "--tool", "greet")).exit_code == 3
        assert (await command("cancel")).exit_code == 2
        done = await command("cancel", call.id, "--session", "s1", "--caller", "agent", "--runtime", "shop")
        assert (done.exit_code, done.stdout) == (0, "1 call cancelled\n")
        assert (await command("cancel", "--all")).stdout == "no running call matches\n"


async def test_a_runtime_that_cannot_be_inspected_is_named(command, tmp_path):
    async def newer(_reader, writer):
        writer.write(b'{"protocol": 99, "name": "newer", "pid": 1, "version": "9.0"}\n')
        writer.close()

    folder = tmp_path / "state" / "run"
    folder.mkdir(parents=True)
    async with await asyncio.start_unix_server(newer, folder / "newer.sock"):
        done = await command("stats")
        assert done.exit_code == 1
        assert "newer (pid 1) has toolcrib 9.0 and is inspected by protocol 99" in done.stderr
        async with served():
            done = await command("stats")
        assert done.exit_code == 0
        assert "newer (pid 1) has toolcrib 9.0" in done.stderr


async def test_a_runtime_that_ends_in_the_middle_is_reported(command, tmp_path):
    async def ends(reader, writer):
        about = {"pid": 1, "name": "brief", "folder": "/", "transport": "stdio", "version": "9.0"}
        writer.write(
            json.dumps({"protocol": 1, "started": "2026-01-01T00:00:00+00:00", **about}).encode() + b"\n"
        )
        await reader.readline()
        writer.close()

    folder = tmp_path / "state" / "run"
    folder.mkdir(parents=True)
    async with await asyncio.start_unix_server(ends, folder / "brief.sock"):
        done = await command("stats")
    assert (done.exit_code, done.stderr) == (1, "Error: brief (pid 1) has ended\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (2.612e-5, "26.1µs"),
        (0.0012345, "1.23ms"),
        (0.00099999, "1ms"),
        (12.345, "12.3s"),
        (200.4, "3m 20s"),
        (7260, "2h 1m"),
    ],
)
def test_durations_have_three_digits(seconds, text):
    assert short_duration(seconds) == text
