"""The dialects in which tools are declared, and the declarations of tools in one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, cast

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Descriptor, Schema
from toolcrib.core.subschemas import once_for_each
from toolcrib.formats.mcp_tools import description_of
from toolcrib.formats.providers.declarations import Compiled, Declaration
from toolcrib.formats.providers.descriptions import extended
from toolcrib.formats.providers.generic import ANTHROPIC, OPENAI, PLAIN, Rules, compile_open
from toolcrib.formats.providers.names import renamed
from toolcrib.formats.providers.narrow_dialects import compile_gemini, compile_strict
from toolcrib.registry.aliases import aliases_of

MOST_SCHEMAS: Final = 4096
"""Schemas of which each dialect remembers what it made."""

Envelope: TypeAlias = Callable[[str, str, Compiled], dict[str, JSON]]
"""The name, the description and the compiled schema -> the whole that is sent."""

SchemaCompiler: TypeAlias = Callable[[Schema], Compiled]


class Dialect(NamedTuple):
    """A form in which tools are declared.

    Attributes:
        name: Names it.
        summary: Whose it is, on one line.
        compile: A schema of arguments -> the same in the dialect. It is worked out once for each schema object.
        envelope: What is put around a compiled schema.
        names: What a tool may be called.
    """

    name: str
    summary: str
    compile: SchemaCompiler
    envelope: Envelope
    names: re.Pattern[str] = re.compile("[a-zA-Z0-9_-]{1,64}")


def _once(compile_schema: SchemaCompiler) -> SchemaCompiler:
    """The same, once for each schema object: descriptors of all profiles and scenarios share theirs."""
    return once_for_each(lambda schema: compile_schema(cast(Schema, schema)), MOST_SCHEMAS)


def _open(rules: Rules) -> SchemaCompiler:
    return _once(partial(compile_open, rules=rules))


def _plain(name: str, description: str, compiled: Compiled) -> dict[str, JSON]:
    return {"name": name, "description": description, "parameters": compiled.schema}


def _chat(name: str, description: str, compiled: Compiled) -> dict[str, JSON]:
    strict: dict[str, JSON] = {"strict": True} if compiled.strict else {}
    return {"type": "function", "function": {**_plain(name, description, compiled), **strict}}


def _responses(name: str, description: str, compiled: Compiled) -> dict[str, JSON]:
    # `strict` is true there unless it is said.
    return {"type": "function", **_plain(name, description, compiled), "strict": compiled.strict}


def _anthropic(name: str, description: str, compiled: Compiled) -> dict[str, JSON]:
    return {"name": name, "description": description, "input_schema": compiled.schema}


def _gemini(name: str, description: str, compiled: Compiled) -> dict[str, JSON]:
    told = _plain(name, description, compiled)
    # An object without properties is refused.
    return told if compiled.schema["properties"] else {"name": name, "description": description}


_OPENAI = _open(OPENAI)
_STRICT = _once(partial(compile_strict, otherwise=_OPENAI))

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            Dialect("plain", "JSON Schema as it is, for providers of one's own", _open(PLAIN), _plain),
            Dialect("openai", "OpenAI's chat completions, and what is compatible with them", _OPENAI, _chat),
            Dialect("openai_strict", "the same in strict mode, where a schema allows it", _STRICT, _chat),
            Dialect("openai_responses", "OpenAI's responses", _OPENAI, _responses),
            Dialect(
                "openai_responses_strict",
                "the same in strict mode, where a schema allows it",
                _STRICT,
                _responses,
            ),
            Dialect("anthropic", "Anthropic's messages", _open(ANTHROPIC), _anthropic),
            Dialect(
                "gemini",
                "Gemini's function declarations",
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
    """The declarations of tools, in the order of the tools' names: for the same tools byte by byte the same.

    Args:
        tools: The tools.
        dialect: One of `DIALECTS`.
        names: Name of a tool -> what the model is to call it, as `Registry.alias_of` says. One that is not there
            gets an alias by the same rules.

    Raises:
        ConfigurationError: There is no such dialect; a name is none that the dialect takes; two tools have one name.
    """
    form = _named(dialect)
    chosen = sorted(tools, key=lambda tool: tool.name)
    called = _called([tool.name for tool in chosen], form, names)
    return tuple(_declared(tool, form, called[tool.name]) for tool in chosen)


def _named(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        hint = did_you_mean(dialect, DIALECTS) or f"there are: {', '.join(f'`{name}`' for name in DIALECTS)}"
        raise ConfigurationError(f"there is no dialect `{dialect}`", code="no_such_dialect", hint=hint)
    return DIALECTS[dialect]


def _called(tools: list[str], dialect: Dialect, names: Mapping[str, str]) -> dict[str, str]:
    """Name of a tool -> what the model is to call it."""
    aliases = aliases_of(tools)
    called = {tool: names.get(tool, aliases.get(tool, tool)) for tool in tools}
    # Where a dialect takes fewer names than others do, an alias that is good elsewhere needs one more.
    safe = [name for name in called.values() if DIALECTS["plain"].names.fullmatch(name)]
    again = renamed(safe, dialect.names)
    seen: dict[str, str] = {}
    for tool, name in called.items():
        alias = called[tool] = again.get(name, name)
        if dialect.names.fullmatch(alias) is None:
            _refuse(f"`{alias[:200]}` of `{tool}` is no name for a tool in the dialect `{dialect.name}`")
        if alias in seen:
            _refuse(f"`{seen[alias]}` and `{tool}` would both be called `{alias}`")
        seen[alias] = tool
    return called


def _refuse(message: str) -> None:
    hint = "use `Registry.alias_of`, which gives each tool a name of its own that every provider takes"
    raise ConfigurationError(message, code="invalid_alias", hint=hint)


def _declared(tool: Descriptor, dialect: Dialect, name: str) -> Declaration:
    compiled = dialect.compile(tool.input_schema)
    description = extended(description_of(tool), [compiled.note])
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
