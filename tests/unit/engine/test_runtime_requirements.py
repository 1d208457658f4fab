"""Tools that cannot run here are unavailable with the reason; estimates over a limit refuse calls; kinds are hidden."""

from __future__ import annotations

import re

import pytest

from toolcrib import Executors, Outcome, Runtime
from toolcrib.engine import engine_of

LIVE = "live: {url: 'https://api.example.com/v1'}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def opened(folder, **options):
    return Runtime.open(str(folder), index=False, **options)


def without_lines(text):
    return re.sub(r":\d+\)", ")", text)


async def test_a_tool_without_its_program_is_unavailable(folder):
    place = folder(a=f"name: a\n{LIVE}dependencies: {{commands: [no-such-program]}}\n")
    async with opened(place) as runtime:
        result = await runtime.call("a")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unmet_requirement")
        assert "needs the program `no-such-program`" in result.message
        assert "a.yaml:1" in result.message
        assert engine_of(runtime).unavailable(runtime.registry["a"]) == result.message


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("{command: [no-such-program, x]}", "`no-such-program`, was not found in PATH"),
        ("{command: [./missing.sh]}", "missing.sh`, does not exist\n    hint: correct `exec.command`"),
        ("{command: [cat], cwd: gone}", "does not exist\n    hint: create it, or correct `exec.cwd`"),
        ("{command: [cat], cwd: '${UNSET_FOLDER}'}", "`UNSET_FOLDER` is not set in the environment ("),
        ("{command: [cat], cwd: '${SET_FOLDER}'}", ""),
        ("{command: [cat, '${UNSET_KEY:-none}']}", ""),
        ("{command: [cat, '${file:/no/such/key}']}", "the file `/no/such/key` is empty or does not exist"),
        ("{command: [cat], env: {KEY: '${UNSET_KEY}'}}", "a.yaml:3)\n    hint: set it, or write a default"),
        (
            "{command: [cat], paths: {read: [data]}}",
            "/data`, which does not exist\n    hint: create it, or correct `paths.read`",
        ),
        ("{command: [cat], paths: {write: ['${SET_FOLDER}/x']}}", ""),
        ("{command: [cat]}", ""),
    ],
)
async def test_lists_show_what_a_program_lacks(folder, monkeypatch, block, why):
    monkeypatch.setenv("SET_FOLDER", "/zq-private-91")
    place = folder(a=f"name: a\nmode: exec\nexec: {block}\nmock: {{result: 1}}\n")
    async with opened(place) as runtime:
        engine, tool = engine_of(runtime), runtime.registry["a"]
        found = engine.unavailable(tool)
        assert why in found
        assert bool(found) == bool(why)
        assert "zq-private-91" not in found
        assert without_lines(engine.environment_check()(runtime.registry.cards["a"])) == without_lines(found)
    async with opened(place, mode="mock") as runtime:
        assert engine_of(runtime).unavailable(runtime.registry["a"]) == ""


PROJECT = """
project: p
sources: [a.yaml]
servers: {crm: {command: cat, env: {KEY: '${UNSET_KEY}', HOME: '${userHome}'}}}
agents: {shop: {card: 'https://agent.example.com/card', headers: {X-Key: '${UNSET_KEY}'}}}
"""
"""A server and an agent with a variable that is not set."""

UNSET = "`UNSET_KEY` is not set in the environment"


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("live: {url: 'https://a.example.com/v1', headers: {X-Key: '${UNSET_KEY}'}}", UNSET),
        ("live: {url: 'https://${UNSET_KEY}.example.com/v1'}", UNSET),
        ("exec: {command: [cat, '${UNSET_KEY}']}", UNSET),
        ("exec: {command: [cat], paths: {read: [data]}}", "/data`, which does not exist"),
        (
            "python: {call: 'os:getcwd', worker: process, paths: {read: [data]}}",
            "/data`, which does not exist",
        ),
        ("python: {call: 'os:getcwd', worker: process, paths: {read: ['${UNSET_KEY}']}}", UNSET),
        ("mcp: {server: crm}", f"cannot start the server `crm`: {UNSET}"),
        ("a2a: {agent: shop}", f"cannot contact the agent `shop`: {UNSET}"),
    ],
)
async def test_a_call_gives_the_reason_that_lists_show(folder, monkeypatch, block, why):
    place = folder(toolcrib=PROJECT, a=f"name: a\n{block}\n")
    monkeypatch.setenv("OTHER_KEY", "x")
    async with opened(place, trust=True) as runtime:
        engine, tool = engine_of(runtime), runtime.registry["a"]
        found = engine.environment_check()(runtime.registry.cards["a"])
        assert why in found
        # A list names the line of the tool, and not that of the key.
        assert without_lines(engine.unavailable(tool)) == without_lines(found)
        result = await runtime.call("a")
        # The start of a server also names the key.
        message = result.message.replace(" (at /env/KEY)", "")
        assert (result.outcome, without_lines(message)) == (Outcome.UNAVAILABLE, without_lines(found))
        (place / "data").mkdir()
        monkeypatch.setenv("UNSET_KEY", str(place))
        assert engine.unavailable(tool) == ""


async def test_a_list_names_every_variable_that_a_request_lacks(folder):
    live = "live: {url: 'https://${FIRST_KEY}.example.com/v1', query: {key: '${SECOND_KEY}'}}"
    async with opened(folder(a=f"name: a\n{live}\n"), trust=True) as runtime:
        found = engine_of(runtime).unavailable(runtime.registry["a"])
        assert "`FIRST_KEY` is not set" in found
        assert "`SECOND_KEY` is not set" in found
        assert (await runtime.call("a")).message == found


@pytest.mark.parametrize(
    "block", ["exec: {command: [cat]}", "python: {call: 'os:getcwd', worker: process, network: false}"]
)
async def test_a_list_shows_that_there_is_no_sandbox(folder, monkeypatch, block):
    place = folder(
        toolcrib="project: p\nsources: [a.yaml]\nprofiles: {open: {sandbox: none}}\n", a=f"name: a\n{block}\n"
    )
    (place / "bin").mkdir()
    (place / "bin" / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(place / "bin"))
    async with opened(place, trust=True) as runtime:
        found = engine_of(runtime).unavailable(runtime.registry["a"])
        assert "bubblewrap (`bwrap`) is not installed" in found
        assert (await runtime.call("a")).message == found
    async with opened(place, trust=True, profile="open") as runtime:
        assert engine_of(runtime).unavailable(runtime.registry["a"]) == ""
    # Whether the project wants a sandbox counts only once it is trusted.
    async with opened(place, trust=False, profile="open") as runtime:
        assert engine_of(runtime).unavailable(runtime.registry["a"]) == ""


async def test_a_mode_of_a_program_tells_what_it_lacks(folder):
    class Robot:
        @property
        def block_schema(self):
            return {"type": "object"}

        def check(self, _descriptor):
            return ()

        def lacks(self, descriptor, _base):
            return descriptor.bindings["robot"]["lacks"]

        def required_variables(self, _descriptor, _server):
            return 1 / 0

        def bind(self, _descriptor):
            raise AssertionError("a list binds nothing")

        async def aclose(self):
            pass

    place = folder(a="name: a\nrobot: {lacks: no arm}\n", b="name: b\nrobot: {lacks: ''}\n")
    executors = Executors({"robot": Robot})
    runtime = Runtime.open(str(place), index=False, executors=executors)
    assert [engine_of(runtime).unavailable(tool) for tool in runtime.registry.values()] == ["no arm", ""]


async def test_a_mock_needs_nothing(folder):
    place = folder(
        a=f"name: a\nmode: mock\nmock: {{result: 1}}\n{LIVE}dependencies: {{commands: [no-such]}}\n"
    )
    async with opened(place) as runtime:
        assert (await runtime.call("a")).value == 1
    async with opened(place, mode="live") as runtime:
        assert (await runtime.call("a")).outcome is Outcome.UNAVAILABLE


async def test_a_tool_is_available_once_its_variable_is_set(folder, monkeypatch):
    hook = "def run() -> int:\n    return 7\n"
    place = folder(
        a="name: a\npython: {call: 'needed_hook:run'}\ndependencies: {environment: [NEEDED_KEY]}\n"
    )
    (place / "needed_hook.py").write_text(hook)
    monkeypatch.syspath_prepend(str(place))
    async with opened(place) as runtime:
        assert (await runtime.call("a")).outcome is Outcome.UNAVAILABLE
        monkeypatch.setenv("NEEDED_KEY", "x")
        assert (await runtime.call("a")).value == 7


async def test_a_tool_that_is_unavailable_makes_those_that_need_it_unavailable(folder):
    place = folder(
        a=f"name: a\n{LIVE}dependencies: {{tools: [b]}}\n",
        b=f"name: b\n{LIVE}platforms: [windows]\n",
        c=f"name: c\n{LIVE}dependencies: {{tools: [nobody]}}\n",
    )
    async with opened(place) as runtime:
        said = engine_of(runtime).unavailable
        assert "needs the tool `b`: `b` runs on windows only" in said(runtime.registry["a"])
        assert "needs the tool `nobody`: unknown tool `nobody`" in said(runtime.registry["c"])


async def test_an_estimate_over_the_timeout_refuses_calls_at_once(folder):
    place = folder(
        toolcrib="project: p\nsources: [a.yaml]\nprofiles: {tight: {defaults: {timeout: 2s}}}\n",
        a="name: a\nmock: {result: 1}\nestimate: {duration: 20s}\n",
    )
    async with opened(place) as runtime:
        assert (await runtime.call("a")).value == 1
    async with opened(place, profile="tight") as runtime:
        result = await runtime.call("a")
        assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "estimate_exceeds_limit")
        assert result.message == (
            "a call of `a` takes about 20s, longer than its timeout of 2s; "
            "raise `timeout`, or correct `estimate.duration`"
        )
        assert result.usage.attempts == 0
        assert engine_of(runtime).unavailable(runtime.registry["a"]) == result.message


HIDING = """
project: p
sources: [tools.yaml]
experimental: hide
disable: [off]
profiles:
  lab: {experimental: show, deprecated: hide}
  one: {enable: [new]}
"""

TOOLS = """
{name: new, experimental: true, mock: {result: 1}}
---
{name: old, deprecated: Use new., mock: {result: 1}}
---
{name: off, mock: {result: 1}}
"""


@pytest.mark.parametrize(("profile", "offered"), [(None, ["old"]), ("lab", ["new"]), ("one", ["new", "old"])])
def test_a_project_hides_experimental_or_deprecated_tools(folder, profile, offered):
    runtime = opened(folder(toolcrib=HIDING, tools=TOOLS), profile=profile)
    assert [card.name for card in runtime.registry.query()] == offered


async def test_a_hidden_tool_names_the_setting(folder):
    async with opened(folder(toolcrib=HIDING, tools=TOOLS)) as runtime:
        result = await runtime.call("new")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "disabled")
        assert "`new` is experimental, and such tools are hidden in " in result.message
        assert "toolcrib.yaml:4; `enable` of a profile can offer it" in result.message
