"""Small arenas of PromptKit: what tests of their reading are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.live import LiveExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.cache.document_codec import document_of_origin
from toolcrib.loading.sources import LoadedDocuments, load

KINDS = Executors({"client": ClientExecutor, "live": LiveExecutor, "mock": MockExecutor})

LOOK_UP = "name: look_up\ndescription: Looks it up.\ninput_schema: {type: object}\nmock: {result: found}\n"

TURNS = """
turns:
  - {role: user, content: Look it up.}
  - {role: user, content: Thanks.}
"""

ANSWERS = """
scenarios:
  one:
    turns:
      1: {tool_calls: [{name: look_up, arguments: {q: x}}]}
      2: Found it.
      3: You are welcome.
"""


def manifest(kind: str, name: str, spec: str, more: str = "") -> str:
    """A manifest; its `spec` is indented YAML."""
    lines = [f"apiVersion: promptkit.altairalabs.ai/v1alpha1\nkind: {kind}\nmetadata:\n  name: {name}"]
    lines += [indent(dedent(more).strip("\n"), "  ")] if more else []
    return "\n".join([*lines, "spec:", indent(dedent(spec).strip("\n"), "  "), ""])


def arena_files(
    spec: str = "",
    *,
    scenario: str = TURNS,
    answers: str = ANSWERS,
    prompt: str = 'task_type: help\nsystem_template: "Help."\nallowed_tools: [look_up]',
    provider: str = "type: mock\nmodel: m\nadditional_config: {mock_config: mock-responses.yaml}",
    **files: str,
) -> dict[str, str]:
    """The files of an arena with one scenario `one`, one prompt, one provider and one tool.

    Args:
        spec: What the arena says besides, as YAML.
        scenario: The `spec` of its scenario, without `task_type`.
        answers: Its mock responses.
        prompt: The `spec` of its prompt.
        provider: The `spec` of its provider.
        files: Further files, with `__` for `/` and `_DOT_` for `.`; or in their place.
    """
    own = """
prompt_configs: [{id: help, file: prompts/help.yaml}]
providers: [{file: providers/mock.yaml}]
scenarios: [{file: scenarios/one.scenario.yaml}]
"""
    return {
        "config.arena.yaml": manifest("Arena", "small", own + dedent(spec)),
        "scenarios/one.scenario.yaml": manifest("Scenario", "one", "task_type: help\n" + dedent(scenario)),
        "prompts/help.yaml": manifest("PromptConfig", "help", prompt),
        "providers/mock.yaml": manifest("Provider", "mock", "id: mock\n" + dedent(provider)),
        "mock-responses.yaml": dedent(answers),
        "tools/look_up.tool.yaml": LOOK_UP,
        **{name.replace("__", "/").replace("_DOT_", "."): text for name, text in files.items()},
    }


def put(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(path: Path) -> LoadedDocuments:
    """What is read of a file or folder."""
    return load([path], KINDS)


def told(found: LoadedDocuments, *severities: str) -> list[tuple[str, str, int]]:
    """Code, file and line of what was said, errors and warnings unless others are asked for."""
    wanted = severities or ("error", "warning")
    return [
        (problem.code, Path(problem.source).name, problem.line)
        for problem in found.problems
        if problem.severity in wanted
    ]


def own(found: LoadedDocuments) -> dict[str, dict[str, Any]]:
    """Name of a scenario -> what our own document of it says."""
    return {scenario.name: _value(document_of_origin(scenario.origin).value) for scenario in found.scenarios}


def agent_of(found: LoadedDocuments) -> dict[str, Any]:
    """What the one scenario says of its agent."""
    (value,) = own(found).values()
    agent: dict[str, Any] = value["agent"]
    return agent


def _value(value: Any) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value
