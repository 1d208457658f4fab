"""Declare tools to model providers, and restore the arguments of their calls to the tools' own form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, cast

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Descriptor, Schema
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.formats.mcp_tools import description_of
from toolcrib.formats.providers.argument_schema import Loss, argument_schema
from toolcrib.formats.providers.compiler import (
    Declaration,
    DialectSchema,
    SchemaPart,
    aliases_for,
    as_object_schema,
    with_sentences,
)
from toolcrib.formats.providers.gemini import GeminiCompiler
from toolcrib.formats.providers.generic import ANTHROPIC, OPENAI, PLAIN, RootRules, compile_open
from toolcrib.formats.providers.openai_strict import StrictCompiler
from toolcrib.registry.names import aliases_of

__all__ = [
    "DIALECTS",
    "MOST_SCHEMAS",
    "Declaration",
    "Dialect",
    "Envelope",
    "Loss",
    "SchemaCompiler",
    "compile_gemini",
    "compile_strict",
    "declare",
]


def compile_strict(schema: Schema, otherwise: Callable[[Schema], DialectSchema]) -> DialectSchema:
    """A schema for OpenAI's strict mode, or the result of `otherwise`, with the reasons, if strict mode is impossible."""
    read = argument_schema(schema, references=False)
    compiler = StrictCompiler()
    part = compiler.compile(as_object_schema(read.schema))
    if compiler.why_not:
        # `strict` is a flag of the whole tool, so a single unsupported keyword rules it out.
        loose = otherwise(schema)
        return loose._replace(losses=(*compiler.why_not, *loose.losses))
    return _compiled(part, (*read.losses, *compiler.losses), strict=True)


def compile_gemini(schema: Schema) -> DialectSchema:
    """A schema for Gemini's function declarations."""
    read = argument_schema(schema, references=False)
    compiler = GeminiCompiler()
    part = compiler.compile(as_object_schema(read.schema))
    return _compiled(part, (*read.losses, *compiler.losses))


def _compiled(part: SchemaPart, losses: tuple[Loss, ...], *, strict: bool = False) -> DialectSchema:
    # Models see the description of a tool, but not the one at the root of its schema, so it becomes a note on
    # the tool.
    told: dict[str, JSON] = {key: value for key, value in part.schema.items() if key != "description"}
    note = part.schema.get("description")
    return DialectSchema(told, note if isinstance(note, str) else "", strict, losses, part.restore)


MOST_SCHEMAS: Final = 4096
"""Maximum number of compiled schemas that each dialect caches."""

Envelope: TypeAlias = Callable[[str, str, DialectSchema], dict[str, JSON]]
"""Name, description and compiled schema -> the declaration that is sent."""

SchemaCompiler: TypeAlias = Callable[[Schema], DialectSchema]


class Dialect(NamedTuple):
    """A form in which a provider expects tools.

    Attributes:
        name: Name of the dialect.
        summary: Whose dialect it is, on one line.
        compile: Schema of arguments -> the same in the dialect. Cached per schema object.
        envelope: Wraps a compiled schema.
        names: Pattern of valid tool names.
    """

    name: str
    summary: str
    compile: SchemaCompiler
    envelope: Envelope
    names: re.Pattern[str] = re.compile("[a-zA-Z0-9_-]{1,64}")


def _once(compile_schema: SchemaCompiler) -> SchemaCompiler:
    # Descriptors of all profiles and scenarios share their schema objects, so one compilation serves them
    # all.
    return cached_per_schema(lambda schema: compile_schema(cast(Schema, schema)), MOST_SCHEMAS)


def _open(rules: RootRules) -> SchemaCompiler:
    return _once(partial(compile_open, rules=rules))


def _plain(name: str, description: str, compiled: DialectSchema) -> dict[str, JSON]:
    return {"name": name, "description": description, "parameters": compiled.schema}


def _chat(name: str, description: str, compiled: DialectSchema) -> dict[str, JSON]:
    strict: dict[str, JSON] = {"strict": True} if compiled.strict else {}
    return {"type": "function", "function": {**_plain(name, description, compiled), **strict}}


def _responses(name: str, description: str, compiled: DialectSchema) -> dict[str, JSON]:
    # The responses API treats a missing `strict` as true.
    return {"type": "function", **_plain(name, description, compiled), "strict": compiled.strict}


def _anthropic(name: str, description: str, compiled: DialectSchema) -> dict[str, JSON]:
    return {"name": name, "description": description, "input_schema": compiled.schema}


def _gemini(name: str, description: str, compiled: DialectSchema) -> dict[str, JSON]:
    told = _plain(name, description, compiled)
    # Gemini refuses an object without properties.
    return told if compiled.schema["properties"] else {"name": name, "description": description}


_OPENAI = _open(OPENAI)
_STRICT = _once(partial(compile_strict, otherwise=_OPENAI))

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            Dialect("plain", "plain JSON Schema, for your own providers", _open(PLAIN), _plain),
            Dialect("openai", "OpenAI chat completions and compatible APIs", _OPENAI, _chat),
            Dialect("openai_strict", "the same, in strict mode if the schema allows it", _STRICT, _chat),
            Dialect("openai_responses", "OpenAI responses", _OPENAI, _responses),
            Dialect(
                "openai_responses_strict",
                "the same, in strict mode if the schema allows it",
                _STRICT,
                _responses,
            ),
            Dialect("anthropic", "Anthropic messages", _open(ANTHROPIC), _anthropic),
            Dialect(
                "gemini",
                "Gemini function declarations",
                _once(compile_gemini),
                _gemini,
                re.compile("[a-zA-Z_][a-zA-Z0-9_-]{0,63}"),
            ),
        )
    }
)
"""Name -> dialect."""


def declare(
    tools: Iterable[Descriptor], dialect: str, names: Mapping[str, str] = NOTHING
) -> tuple[Declaration, ...]:
    """Declare tools, sorted by name. The same tools give the same bytes, which keeps prompt caches valid.

    Args:
        tools: The tools.
        dialect: One of `DIALECTS`.
        names: Name of a tool -> the name that the model sees, as returned by `Registry.alias_of`. A missing one is
            derived by the same rules.

    Raises:
        ConfigurationError: Unknown dialect, a name that is invalid in the dialect, or two tools with one name.
    """
    form = _named(dialect)
    chosen = sorted(tools, key=lambda tool: tool.name)
    called = _called([tool.name for tool in chosen], form, names)
    return tuple(_declared(tool, form, called[tool.name]) for tool in chosen)


def _named(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        hint = did_you_mean(dialect, DIALECTS) or f"use one of {', '.join(f'`{name}`' for name in DIALECTS)}"
        raise ConfigurationError(f"unknown dialect `{dialect}`", code="no_such_dialect", hint=hint)
    return DIALECTS[dialect]


def _called(tools: list[str], dialect: Dialect, names: Mapping[str, str]) -> dict[str, str]:
    """Name of a tool -> the name that the model sees."""
    aliases = aliases_of(tools)
    called = {tool: names.get(tool, aliases.get(tool, tool)) for tool in tools}
    # Gemini's names must begin with a letter or `_`. An alias that suits all other dialects needs a second
    # one there.
    safe = [name for name in called.values() if DIALECTS["plain"].names.fullmatch(name)]
    again = aliases_for(safe, dialect.names)
    seen: dict[str, str] = {}
    for tool, name in called.items():
        alias = called[tool] = again.get(name, name)
        if dialect.names.fullmatch(alias) is None:
            _refuse(f"`{alias[:200]}` of `{tool}` is not a valid tool name in the dialect `{dialect.name}`")
        if alias in seen:
            _refuse(f"`{seen[alias]}` and `{tool}` have the same alias `{alias}`")
        seen[alias] = tool
    return called


def _refuse(message: str) -> None:
    hint = "use `Registry.alias_of`: it returns a unique name that is valid for every provider"
    raise ConfigurationError(message, code="invalid_alias", hint=hint)


def _declared(tool: Descriptor, dialect: Dialect, name: str) -> Declaration:
    compiled = dialect.compile(tool.input_schema)
    description = with_sentences(description_of(tool), [compiled.note])
    return Declaration(
        name=name,
        tool=tool.name,
        description=description,
        schema=compiled.schema,
        definition=dialect.envelope(name, description, compiled),
        strict=compiled.strict,
        losses=compiled.losses,
        restore=cast("Callable[[dict[str, JSON]], dict[str, JSON]]", compiled.restore),
    )
