"""`Runtime.add` of an executor: a mode that is not installed."""

from __future__ import annotations

import pytest

from toolcrib import ConfigurationError, Outcome, Registry, Result, Runtime, parse_registry
from toolcrib.engine import engine_of


class Shouted:
    waits = False

    def __init__(self, tool) -> None:
        self.tool = tool

    async def execute(self, call) -> Result:
        return Result.success(self.tool.bindings["shout"]["word"].upper())

    def explain(self, call):
        return {"word": self.tool.bindings["shout"]["word"]}


SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


class ShoutExecutor:
    contained = True

    def __init__(self) -> None:
        self.block_schema, self.closed = SCHEMA, 0

    def check(self, descriptor):
        return ()

    def bind(self, descriptor):
        return Shouted(descriptor)

    async def aclose(self):
        self.closed += 1


FILE = "name: greet\ndescription: Greets.\nshout: {word: hi}\n"


def test_an_added_mode_runs_tools_and_is_closed_with_the_runtime():
    executor = ShoutExecutor()
    with Runtime(Registry()) as runtime:
        assert runtime.add(executor, mode="shout") is None
        runtime.add(parse_registry("t", FILE, kinds=engine_of(runtime).executors)["greet"])
        assert runtime.call_sync("greet").value == "HI"
    assert executor.closed == 1


def test_blocks_that_were_not_checked_without_the_mode_are_checked_then(tmp_path):
    (tmp_path / "greet.tool.yaml").write_text(FILE)
    (tmp_path / "bad.tool.yaml").write_text("name: bad\ndescription: Bad.\nshout: {wrod: hi}\n")
    with Runtime.open(str(tmp_path), index=False) as runtime:
        assert runtime.call_sync("greet").outcome is Outcome.UNAVAILABLE
        assert [each.code for each in runtime.problems] == ["mode_not_installed"] * 2
        runtime.add(ShoutExecutor(), mode="shout")
        assert runtime.call_sync("greet").value == "HI"
    assert "is `wrod` a misspelling of it?" in str(runtime.problems[0])


class Whole(ShoutExecutor):
    block_schema = SCHEMA


@pytest.mark.parametrize(
    ("executor", "mode", "code", "message"),
    [
        (
            ShoutExecutor(),
            "mock",
            "duplicate_mode",
            "the mode `mock` exists already (toolcrib.executors.mock:MockExecutor)",
        ),
        (ShoutExecutor(), "no-mode", "bad_mode", "`no-mode` is not a valid name of a mode"),
        (ShoutExecutor(), "timeout", "bad_mode", "`timeout` is not a valid name of a mode"),
        (ShoutExecutor(), "", "bad_mode", "an executor needs the name of its mode"),
        (Whole, "shout", "bad_mode", "`Whole` is not an executor: it is a class"),
    ],
)
def test_a_mode_that_cannot_be_added_is_an_error(executor, mode, code, message):
    runtime = Runtime(Registry())
    with pytest.raises(ConfigurationError) as caught:
        runtime.add(executor, mode=mode)
    assert caught.value.code == code
    assert message in str(caught.value)
    assert caught.value.hint


def test_a_name_that_was_added_is_taken():
    runtime = Runtime(Registry())
    runtime.add(ShoutExecutor(), mode="shout")
    with pytest.raises(ConfigurationError, match="the mode `shout` exists already"):
        runtime.add(ShoutExecutor(), mode="shout")


def test_an_object_that_lacks_members_is_named():
    class Half:
        block_schema = True

        def bind(self, descriptor): ...

    with pytest.raises(ConfigurationError, match="`Half` is not an executor: it lacks `check`, `aclose`"):
        Runtime(Registry()).add(Half(), mode="half")
