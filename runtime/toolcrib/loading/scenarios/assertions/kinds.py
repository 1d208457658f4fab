"""The kinds of assertions: their names, what else they are called, and what each takes (`kinds.json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

WRAPPER: Final = "assertion"
"""The kind that judges the score of another one."""


class KindAlias(NamedTuple):
    """Another name of a kind.

    Attributes:
        kind: The kind's own name.
        whole: Whether it means the whole conversation, wherever it is written.
        params: What is asked for unless something else is written.
    """

    kind: str
    whole: bool = False
    params: Mapping[str, Any] = {}


ALIASES: Final[Mapping[str, KindAlias]] = {
    "banned_words": KindAlias("content_excludes", params={"match_mode": "word_boundary"}),
    "chain": KindAlias("tool_call_chain"),
    "contains": KindAlias("content_includes"),
    "contains_any": KindAlias("content_includes_any"),
    "content_not_includes": KindAlias("content_excludes"),
    "guardrail": KindAlias(WRAPPER),
    "json_valid": KindAlias("is_valid_json"),
    "length": KindAlias("max_length"),
    "llm_judge_conversation": KindAlias("llm_judge_session", whole=True),
    "max_sentences": KindAlias("sentence_count"),
    "regex": KindAlias("content_matches"),
    "required_fields": KindAlias("field_presence"),
    "tool_args_excluded_session": KindAlias("tool_args_excluded", whole=True),
    "tool_args_session": KindAlias("tool_args", whole=True),
    "tool_called": KindAlias("tools_called"),
    "tools_called_session": KindAlias("tools_called", whole=True),
    "tools_not_called_session": KindAlias("tools_not_called", whole=True),
    "tools_not_called_with_args": KindAlias("tool_args_excluded", whole=True),
    "valid_json": KindAlias("is_valid_json"),
}
"""What kinds are called elsewhere."""

_TOOL: Final = {"tool_name": "tool"}
_TOOL_NAME: Final = {"tool": "tool_name"}
_TOOL_NAMES: Final = {"tools": "tool_names", "tool_name": "tool_names", "tool": "tool_names"}
_TOOLS: Final = {"tool_names": "tools", "tool_name": "tools", "tool": "tools"}

SPELLINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "content_excludes": {"words": "patterns"},
    "invariant_fields_preserved": _TOOL,
    "json_path": {"jmespath_expression": "expression"},
    "llm_judge_tool_calls": _TOOLS,
    "max_length": {"max_characters": "max", "max_chars": "max"},
    "min_length": {"min_characters": "min", "min_chars": "min"},
    "no_tool_errors": _TOOLS,
    "sentence_count": {"max_sentences": "max"},
    "tool_args": _TOOL_NAME,
    "tool_args_excluded": _TOOL_NAME,
    "tool_call_count": _TOOL,
    "tool_calls_with_args": _TOOL_NAME,
    "tool_exec": _TOOL,
    "tool_no_repeat": _TOOLS,
    "tool_result_has_media": _TOOL,
    "tool_result_includes": _TOOL,
    "tool_result_matches": _TOOL,
    "tool_result_media_type": {**_TOOL, "media_type": "mime_type"},
    "tools_called": _TOOL_NAMES,
    "tools_not_called": _TOOL_NAMES,
    "guardrail_triggered": {"validator": "validator_type"},
}
"""Kind -> other name of a parameter -> its own name."""

SPEAKING: Final = frozenset(
    {
        "content_excludes",
        "content_includes",
        "content_includes_any",
        "content_matches",
        "field_presence",
        "guardrail_triggered",
        "is_valid_json",
        "json_path",
        "json_schema",
        "llm_judge",
        "llm_judge_session",
        "max_length",
        "min_length",
        "sentence_count",
    }
)
"""Kinds that judge what was said."""

GUARDING: Final = SPEAKING - {"guardrail_triggered", "llm_judge", "llm_judge_session"}
"""Kinds that a guardrail of a prompt may be."""


@cache
def kinds() -> Mapping[str, dict[str, Any]]:
    """Every kind by its own name -> the JSON Schema of what it takes, whole in itself. Not to be changed."""
    text = files(__package__).joinpath("kinds.json").read_text(encoding="utf-8")
    written = json.loads(text)
    closed = {"type": "object", "additionalProperties": False, "$defs": written["$defs"]}
    return {name: {**schema, **closed} for name, schema in written["kinds"].items()}


def is_list(schema: Mapping[str, Any], key: str) -> bool:
    """Whether a parameter of a kind is a list of texts."""
    entry: dict[str, Any] = schema["properties"].get(key, {})
    described: dict[str, Any] = schema["$defs"].get(entry.get("$ref", "").removeprefix("#/$defs/"), entry)
    items: dict[str, Any] = described.get("items", {})
    return bool(described.get("type") == "array" and items.get("type") == "string")
