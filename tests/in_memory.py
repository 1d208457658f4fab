"""Tools from texts: what tests of the runtime are made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from textwrap import dedent
from typing import Any

from toolcrib import Call, Executors, Result, Runtime, VirtualClock
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.documents.files import MemoryFiles
from toolcrib.loading.sources import LoadedDocuments, parse
from toolcrib.testing import FunctionExecutor

MOCKS = Executors({"mock": MockExecutor})


def loaded(
    text: str, files: Mapping[str, str | bytes] | None = None, executors: Executors = MOCKS
) -> LoadedDocuments:
    """What is read from YAML documents, with the files that they name beside them."""
    beside = None if files is None else MemoryFiles(files)
    return parse("tools.yaml", dedent(text), executors, files=beside)


def runtime_of(
    text: str,
    files: Mapping[str, str | bytes] | None = None,
    *,
    executors: Executors = MOCKS,
    **options: Any,
) -> Runtime:
    """A runtime over YAML documents that are without error; on virtual time unless told otherwise."""
    found = loaded(text, files, executors)
    assert [str(problem) for problem in found.problems if problem.severity == "error"] == []
    return loaded_runtime(found, executors=executors, **{"clock": VirtualClock(), **options})


def problems_of(text: str, files: Mapping[str, str | bytes] | None = None) -> list[tuple[str, str]]:
    """Code and pointer of everything that is wrong with YAML documents."""
    return [(problem.code, problem.pointer) for problem in loaded(text, files).problems]


def mocked(block: str, *, output: str = "{}", inputs: str = "{}", more: str = "") -> str:
    """A document of the tool `tool` with a mock; the block is indented YAML, the schemas are flow YAML."""
    lines = [
        "name: tool",
        f"input_schema: {inputs}",
        f"output_schema: {output}",
        *dedent(more).strip().splitlines(),
        "mock:",
        *(f"  {line}" for line in dedent(block).strip("\n").splitlines()),
    ]
    return "\n".join(lines) + "\n"


def fake(
    answer: Callable[[Call], Awaitable[Result]], more: str = "", *, waits: bool = True, **options: Any
) -> Runtime:
    """A runtime with one tool `tool` that a Python function answers in mode `fake`."""
    executors = Executors({"fake": lambda: FunctionExecutor(answer, waits=waits)})
    text = f"name: tool\n{dedent(more).strip()}\nfake: {{}}\n"
    if "input_schema" not in more:
        text += "input_schema: {}\n"
    return runtime_of(text, executors=executors, **options)


def always(result: Result) -> Callable[[Call], Awaitable[Result]]:
    """A tool that answers every call the same."""

    async def answer(_call: Call) -> Result:
        return result

    return answer
