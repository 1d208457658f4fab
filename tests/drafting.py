"""Requests of live tools, compiled from blocks: what tests of them are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib import Descriptor, Problem
from toolcrib.core.model import Origin
from toolcrib.executors.live.request import CompiledRequest, compile_request
from toolcrib.http import HTTPRequest
from toolcrib.http.messages import RequestDraft
from toolcrib.loading.documents.files import MemoryFiles
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.secrets import SecretResolver

URL = "https://api.example.com/v1"
OPEN: dict[str, Any] = {"type": "object"}


def closed(*names: str, **schemas: Any) -> dict[str, Any]:
    """A closed schema whose arguments are all required."""
    properties: dict[str, Any] = {**dict.fromkeys(names, True), **schemas}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": [*properties],
    }


def tried(
    block: dict[str, Any],
    schema: Any = OPEN,
    *,
    files: Mapping[str, str | bytes] | None = None,
    secrets: SecretResolver | None = None,
) -> tuple[CompiledRequest, list[Problem]]:
    """A block and all that is wrong with it; nothing is looked up unless a secrets is given."""
    beside = None if files is None else MemoryFiles(files)
    tool = Descriptor(
        "tool", input_schema=schema, bindings={"live": block}, origin=Origin("tool.yaml", files=beside)
    )
    problems: list[Problem] = []
    return compile_request({"url": URL, **block}, tool, problems, secrets), problems


def faults(block: dict[str, Any], schema: Any = OPEN, **options: Any) -> list[tuple[str, str]]:
    """Code and pointer of all that is wrong with a block."""
    return [(problem.code, problem.pointer) for problem in tried(block, schema, **options)[1]]


def compiled(
    block: dict[str, Any],
    schema: Any = OPEN,
    *,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> CompiledRequest:
    """A block without errors, ready to be filled."""
    request, problems = tried(block, schema, secrets=SecretResolver(environment or {}), files=files)
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    return request


def drafted(block: dict[str, Any], arguments: dict[str, Any] | None = None, **options: Any) -> RequestDraft:
    """The draft of one call."""
    return compiled(block, **options).draft(arguments or {})


def sent(block: dict[str, Any], arguments: dict[str, Any] | None = None, **options: Any) -> HTTPRequest:
    """The request of one call."""
    return drafted(block, arguments, **options).finished()


def misfit(block: dict[str, Any], arguments: dict[str, Any], **options: Any) -> UnusableArguments:
    """Why no request can be made of these arguments."""
    request = compiled(block, **options)
    try:
        request.draft(arguments)
    except UnusableArguments as error:
        return error
    raise AssertionError(f"{request.draft(arguments)} was made of {arguments}")
