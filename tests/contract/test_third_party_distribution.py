"""A mode and a middleware of another distribution: found by their entry points, and treated like our own."""

from __future__ import annotations

import asyncio

import pytest

from toolcrib import ConfigurationError, Executors, Outcome
from toolcrib.core.schemas import with_blocks
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.loading.sources import parse
from toolcrib.schema.validation import Validator

DOCUMENT = """
name: say
title: Say it again
description: Answers what it was told.
input_schema: {type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}
output_schema: {type: string, maxLength: 12}
mode: echo
timeout: 5s
annotations: {read_only: true}
examples: [{args: {text: hi}, result: "> hi"}]
mock: {result: mocked}
echo: {prefix: "> "}
"""

pytestmark = pytest.mark.usefixtures("echo_installed")


def opened(text=DOCUMENT, **options):
    executors = Executors.installed()
    return loaded_runtime(parse("say.tool.yaml", text, executors), executors=executors, **options)


def call(runtime, text="hi"):
    with runtime:
        return runtime.call_sync("say", {"text": text})


def test_the_mode_is_found_beside_our_own():
    assert set(Executors.installed().modes) >= {"echo", "mock"}


def test_a_whole_descriptor_in_the_mode_loads_and_answers():
    runtime = opened()
    assert runtime.problems == ()
    assert runtime.registry["say"].mode == "echo"
    assert call(runtime).value == "> hi"


def test_the_layers_stand_around_it_as_around_every_mode():
    assert call(opened(), 7).value == "> 7"
    assert call(opened(), []).outcome is Outcome.INVALID_ARGUMENTS
    assert call(opened(), "much too long").outcome is Outcome.INVALID_RESULT


def test_the_mode_is_changed_without_touching_the_file():
    assert call(opened(modes={"*": "mock"})).value == "mocked"


def test_the_tool_of_the_mode_explains_itself():
    result = asyncio.run(opened().dry_run("say", {"text": "hi"}))
    assert result.value["plan"] == {"mode": "echo", "prefix": "> "}


def test_its_block_is_checked_by_its_own_schema_with_line_and_near_miss():
    runtime = opened(DOCUMENT.replace("prefix:", "prefx:"))
    problem = next(problem for problem in runtime.problems if problem.code == "unknown_key")
    assert (problem.pointer, problem.line, problem.hint) == ("/echo/prefx", 12, "did you mean `prefix`?")
    assert "say" not in runtime.registry


def test_its_block_is_checked_by_its_own_code_also_while_another_mode_is_in_force():
    text = DOCUMENT.replace('"> "', '"  "').replace("mode: echo", "mode: mock")
    (problem,) = opened(text).problems
    assert (problem.code, problem.pointer, problem.line) == ("invisible_prefix", "/echo/prefix", 12)


def test_its_block_stands_in_the_schema_that_editors_are_given():
    schema = with_blocks("descriptor", Executors.installed().blocks())
    assert Validator(schema).is_valid({"name": "say", "echo": {"prefix": "> "}})
    assert not Validator(schema).is_valid({"name": "say", "echo": {"prefix": "too long"}})


def test_it_is_closed_with_the_runtime():
    runtime = opened()
    executor = runtime._engine.executors.get("echo")
    call(runtime)
    assert executor.closed == 1


def test_a_middleware_is_taken_by_its_name():
    assert call(opened(middleware=["shout"])).value == "> HI"


def test_a_middleware_that_is_installed_does_nothing_until_it_is_named():
    assert call(opened()).value == "> hi"


def test_the_near_miss_of_a_middlewares_name_is_told():
    with pytest.raises(
        ConfigurationError, match=r"(?s)no installed distribution offers.*did you mean `shout`\?"
    ):
        opened(middleware=["shuot"])


def test_a_name_and_the_block_of_a_third_party_are_a_descriptor(echo_installed):
    loaded = parse("echo.yaml", "name: shout\necho: {prefix: '> '}\n", Executors.installed())
    assert [tool.mode for tool in loaded.tools] == ["echo"]
