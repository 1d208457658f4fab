"""Schemas of arguments for the dialects that have compilers of their own."""

from __future__ import annotations

from collections.abc import Callable

from toolcrib.core.model import JSON, Schema
from toolcrib.formats.providers.compiler import Part, of_objects
from toolcrib.formats.providers.declarations import Compiled, Loss
from toolcrib.formats.providers.gemini import GeminiCompiler
from toolcrib.formats.providers.normalized_schema import current
from toolcrib.formats.providers.openai_strict import StrictCompiler


def compile_strict(schema: Schema, otherwise: Callable[[Schema], Compiled]) -> Compiled:
    """A schema for OpenAI's strict mode; what `otherwise` makes of it where there is none, and why there is none."""
    read = current(schema, references=False)
    compiler = StrictCompiler()
    part = compiler.compile(of_objects(read.schema))
    if compiler.why_not:
        loose = otherwise(schema)
        return loose._replace(losses=(*compiler.why_not, *loose.losses))
    return _compiled(part, (*read.losses, *compiler.losses), strict=True)


def compile_gemini(schema: Schema) -> Compiled:
    """A schema for Gemini's function declarations."""
    read = current(schema, references=False)
    compiler = GeminiCompiler()
    part = compiler.compile(of_objects(read.schema))
    return _compiled(part, (*read.losses, *compiler.losses))


def _compiled(part: Part, losses: tuple[Loss, ...], *, strict: bool = False) -> Compiled:
    """What was compiled; what its root is described as is said of the tool, since models see that."""
    told: dict[str, JSON] = {key: value for key, value in part.schema.items() if key != "description"}
    note = part.schema.get("description")
    return Compiled(told, note if isinstance(note, str) else "", strict, losses, part.restore)
