"""Read the file that is imported, and say what it looks like if it is of another kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.text import DuplicateKey, decode_json, format_size
from toolcrib.loading.documents.document import first_bytes, parse_documents

MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a source."""


def source_bytes(path: str | Path) -> bytes:
    """The content of a source.

    Raises:
        ConfigurationError: It cannot be read, or is too large.
    """
    try:
        content = first_bytes(path, MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror or error}", code="unreadable_source"
        ) from error
    if len(content) > MOST_BYTES:
        message = f"{path} is larger than {format_size(MOST_BYTES)}"
        raise ConfigurationError(message, code="unreadable_source", hint="import a part of it")
    return content


def source_value(path: str | Path) -> JSON:
    """The value of a source in JSON or YAML; a file of JSON lines is a list.

    Raises:
        ConfigurationError: It cannot be read, or is too large.
        DocumentError: It is neither JSON nor YAML.
    """
    content = source_bytes(path)
    name = str(path)
    if name.endswith((".yaml", ".yml")):
        return _yaml(name, content)
    try:
        return decode_json(content)
    except (ValueError, RecursionError) as error:
        fault = error
    if content.lstrip()[:1] in (b"{", b"["):
        lines = _json_lines(content)
        if lines is not None:
            return lines
        raise DocumentError([_json_problem(name, content, fault)]) from fault
    return _yaml(name, content)


def _yaml(name: str, content: bytes) -> JSON:
    documents, problems = parse_documents(name, content, json=False)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise DocumentError(errors)
    values = [document.value for document in documents]
    return [*values] if len(values) > 1 else values[0] if values else None


def _json_lines(content: bytes) -> list[JSON] | None:
    try:
        text = content.decode("utf-8-sig")
        lines = [decode_json(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    return lines if len(lines) > 1 else None


def _json_problem(name: str, content: bytes, error: Exception) -> Problem:
    line, column = 1, 1
    if isinstance(error, json.JSONDecodeError):
        line, column, message = error.lineno, error.colno, f"invalid JSON: {error.msg}"
    elif isinstance(error, DuplicateKey):
        message = f"invalid JSON: {error}"
    elif isinstance(error, UnicodeDecodeError):
        line = content.count(b"\n", 0, error.start) + 1
        message = "it is not UTF-8"
    elif isinstance(error, RecursionError):
        message = "invalid JSON: it is nested too deeply"
    else:
        message = f"invalid JSON: {error}"
    return Problem(code="invalid_json", message=message, source=name, line=line, column=column)


class SourceKind(NamedTuple):
    """A kind of source that can be recognised.

    Attributes:
        kind: The command of `toolcrib import`; empty if there is none.
        label: What it is, with an article.
        recognises: Whether a value is of this kind.
        hint: What to do with it, if there is no command.
    """

    kind: str
    label: str
    recognises: Callable[[JSON], bool]
    hint: str = ""


def _has(*keys: str) -> Callable[[JSON], bool]:
    return lambda value: isinstance(value, dict) and all(key in value for key in keys)


def _holds(key: str, inner: str) -> Callable[[JSON], bool]:
    """Whether an object has an object under a key that has another key."""

    def recognises(value: JSON) -> bool:
        part = value.get(key) if isinstance(value, dict) else None
        return isinstance(part, dict) and inner in part

    return recognises


def _lists(recognises: Callable[[Mapping[str, Any]], bool]) -> Callable[[JSON], bool]:
    """Whether a value is a list of tools, alone or under one of the usual keys, whose first is recognised."""

    def is_list(value: JSON) -> bool:
        _pointer, first = next(iter(elements(value)), ("", None))
        return isinstance(first, dict) and recognises(first)

    return is_list


def elements(value: JSON, pointer: str = "") -> list[tuple[str, JSON]]:
    """The elements of a list of tools with their JSON Pointers: of a list, a request, an answer of `tools/list`, or one tool."""
    if isinstance(value, list):
        return [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return []
    for key in ("tools", "functions", "functionDeclarations", "function_declarations"):
        if isinstance(value.get(key), list):
            return elements(value[key], f"{pointer}/{key}")
    if isinstance(value.get("result"), dict):
        return elements(value["result"], f"{pointer}/result")
    return [(pointer, value)] if "name" in value or "function" in value else []


def _is_arena(value: JSON) -> bool:
    return isinstance(value, dict) and value.get("kind") == "Arena" and "apiVersion" in value


KINDS: Final = (
    SourceKind("openapi", "an OpenAPI description", _has("openapi")),
    SourceKind("openapi", "a Swagger description", _has("swagger")),
    SourceKind("har", "a browser recording (HAR)", _holds("log", "entries")),
    SourceKind("postman", "a Postman collection", _has("info", "item")),
    SourceKind("postman", "a Postman collection", _holds("collection", "item")),
    SourceKind("utcp", "a UTCP manual", _has("utcp_version", "tools")),
    SourceKind("utcp", "a UTCP manual", _has("manual_version", "tools")),
    SourceKind(
        "utcp", "a UTCP manual", _lists(lambda tool: "tool_call_template" in tool or "tool_provider" in tool)
    ),
    SourceKind("higress", "a Higress configuration", _lists(lambda tool: "requestTemplate" in tool)),
    SourceKind(
        "higress",
        "a Higress plugin",
        lambda value: isinstance(value, dict) and value.get("kind") == "WasmPlugin" and "spec" in value,
    ),
    SourceKind("mci", "an MCI file", _has("schemaVersion", "tools")),
    SourceKind("promptkit", "a PromptKit arena", _is_arena),
    SourceKind("promptpack", "a PromptPack", _has("prompts", "template_engine")),
    SourceKind("mcp", "a list of MCP tools", _lists(lambda tool: "inputSchema" in tool)),
    SourceKind(
        "anthropic",
        "a list of Anthropic tools",
        _lists(lambda tool: "input_schema" in tool and "mode" not in tool),
    ),
    SourceKind(
        "gemini",
        "a list of Gemini function declarations",
        lambda value: (
            _has("functionDeclarations")(value)
            or _has("function_declarations")(value)
            or _lists(
                lambda tool: (
                    "functionDeclarations" in tool
                    or "function_declarations" in tool
                    or "parametersJsonSchema" in tool
                    or _is_upper(tool.get("parameters"))
                )
            )(value)
        ),
    ),
    SourceKind(
        "openai",
        "a list of OpenAI tools",
        _lists(
            lambda tool: (
                (tool.get("type") == "function" and "name" in tool) or isinstance(tool.get("function"), dict)
            )
        ),
    ),
    SourceKind(
        "functions",
        "a list of functions",
        _lists(lambda tool: "name" in tool and ("parameters" in tool or "arguments" in tool)),
    ),
    SourceKind(
        "functions",
        "a benchmark's list of functions",
        _lists(lambda entry: isinstance(entry.get("function"), list)),
    ),
    SourceKind(
        "",
        "a configuration of an MCP client",
        _has("mcpServers"),
        "write `servers_from: FILE` in `toolcrib.yaml`; `toolcrib import mcp SERVER --mcp FILE` writes descriptors",
    ),
    SourceKind(
        "",
        "a descriptor of toolcrib",
        _has("name", "input_schema"),
        "toolcrib reads it as it is",
    ),
    SourceKind("", "a JSON Schema", _has("$schema"), "put it under `input_schema` of a descriptor"),
)
"""What a source can be, the most specific first."""


def _is_upper(schema: Any) -> bool:
    told = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(told, str) and told.isupper()


def kind_of(value: JSON) -> SourceKind | None:
    """What a value looks like; None if it is nothing that is known."""
    return next((each for each in KINDS if each.recognises(value)), None)


def other_kind(path: str | Path, value: JSON, expected: str) -> ConfigurationError:
    """The error for a source that is not of the kind that was asked for.

    Args:
        path: The source as the user named it.
        value: Its value.
        expected: What it should be, with an article.
    """
    found = kind_of(value)
    message = f"{path} is not {expected}"
    if found is None:
        return ConfigurationError(f"{message}: {_shape(value)}", code="other_source_kind")
    hint = found.hint or f"use `toolcrib import {found.kind} {path}`"
    return ConfigurationError(f"{message}; it looks like {found.label}", code="other_source_kind", hint=hint)


def _shape(value: JSON) -> str:
    if isinstance(value, dict):
        keys = ", ".join(f"`{key}`" for key in [*value][:8])
        return f"it is an object with {keys}" if keys else "it is an empty object"
    if isinstance(value, list):
        return f"it is a list of {len(value)} elements that are no tools" if value else "it is an empty list"
    return f"it is {'empty' if value is None else 'a text' if isinstance(value, str) else 'a single value'}"
