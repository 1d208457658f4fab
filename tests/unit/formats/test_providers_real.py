"""Real tools, declared in every dialect, and judged by the types of the providers' own SDKs."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module

import pytest
from pydantic import TypeAdapter

from declaring_forms import given, is_narrower, is_of_gemini, is_strict, judged
from sampling import sample
from toolcrib import Runtime
from toolcrib.formats.providers import DIALECTS, declare
from toolcrib.schema.validation import Validator

SDK = {
    "openai": ("openai.types.chat", "ChatCompletionFunctionToolParam"),
    "openai_strict": ("openai.types.chat", "ChatCompletionFunctionToolParam"),
    "openai_responses": ("openai.types.responses", "FunctionToolParam"),
    "openai_responses_strict": ("openai.types.responses", "FunctionToolParam"),
    "anthropic": ("anthropic.types", "ToolParam"),
}


# The SDKs take a second to import, which every worker would spend at collection.
@cache
def judge_of(dialect):
    """What judges the declarations of a dialect by the type of its SDK; None if there is no SDK."""
    if dialect not in SDK:
        return None
    module, name = SDK[dialect]
    return TypeAdapter(getattr(import_module(module), name))


@pytest.fixture(scope="module")
def ours(root):
    """The tools of the repository."""
    folders = [root / "descriptors", *sorted((root / "packs").iterdir())]
    return [tool for folder in folders for tool in Runtime.open(folder).registry.values()]


def check(tools):
    """Declare tools in every dialect, and return how many are strict."""
    strict = 0
    for dialect in DIALECTS:
        for tool in tools:
            (declaration,) = declare([tool], dialect)
            accepted = judge_of(dialect)
            if accepted is not None:
                assert accepted.validate_python(declaration.definition) == declaration.definition
            if declaration.strict:
                strict += 1
                assert is_strict(declaration.schema)
            if dialect == "gemini":
                assert is_of_gemini(declaration.schema)
            compare_examples(tool, declaration, dialect)
    return strict


def compare_examples(tool, declaration, dialect):
    """What the author shows can be given, and comes back."""
    judge = Validator(judged(declaration, dialect))
    for example in tool.examples:
        arguments = dict(example.args)
        told = given(arguments, declaration, dialect)
        assert judge.is_valid(told)
        if not is_narrower(declaration):
            assert declaration.restore(told) == arguments


def test_the_tools_of_the_repository_are_declared_in_every_dialect(ours):
    assert len(ours) > 70
    some = sample(ours, one_in=9)
    assert check(some) > 2 * 0.9 * len(some)


@pytest.mark.parametrize(
    "source", ["tau-retail/tools.json", "promptpacks/tools.pack.json", "promptpacks/hitl.pack.json"]
)
def test_published_tools_are_declared_in_every_dialect(source, shared_data):
    tools = [*Runtime.open(shared_data / source).registry.values()]
    assert check(tools) == 2 * len(tools)


def test_the_arguments_of_recorded_calls_come_back_as_they_were(shared_data):
    tools = Runtime.open(shared_data / "tau-retail" / "tools.json").registry
    lines = (shared_data / "tau-retail" / "tasks-train.jsonl").read_text(encoding="utf-8").splitlines()
    calls = [(call["tool"], call["arguments"]) for line in lines for call in json.loads(line)["calls"]]
    for dialect in DIALECTS:
        declared = {one.tool: one for one in declare(tools.values(), dialect)}
        for name, arguments in calls:
            told = given(arguments, declared[name], dialect)
            assert declared[name].restore(told) == arguments
