"""What becomes of a good answer that a fault spoils."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Call, Descriptor, Result
from toolcrib.core.pointers import keys_of
from toolcrib.core.subschemas import SchemaIndex, Site
from toolcrib.expressions import Scope, compile_value
from toolcrib.expressions.values import as_text
from toolcrib.simulation.faults.kinds import ANY

Spoil: TypeAlias = "Callable[[Result, Call, int], tuple[Result | None, Mapping[str, JSON]]]"
"""From a good answer, its call and the call's number to the spoiled one and what is told of it.

None for an answer that was no good already. Raises ExpressionError where the answer can't be spoiled so; the tool has
acted then, and the message says so.
"""

Spoiling: TypeAlias = "Callable[[Scope], Spoil]"
"""What expressions read -> how to spoil. Asked before the tool acts; raises ExpressionError where one fails."""

_ACTED = ", and the tool has acted already"


def emptied(result: Result, _call: Call, _number: int) -> tuple[Result, Mapping[str, JSON]]:
    """Nothing is left of the answer."""
    return result._replace(value=None, content=()), NOTHING


def compile_violation(name: str, pointer: str, tool: Descriptor, key: str, problems: list[Problem]) -> Spoil:
    """An answer that the output schema refuses for one named reason, or for one that is drawn."""
    from toolcrib.schema.mutations import Mutations  # noqa: PLC0415 -- slow to import, and rarely used

    schema = tool.output_schema
    if schema is None:
        message = f"`{tool.name}` has no `output_schema` that its answer could violate"
        hint = "give the tool an `output_schema`, or let another fault happen"
        problems.append(Problem(code="no_output_schema", message=message, pointer=pointer, hint=hint))
        return _unspoiled
    known = Mutations(schema)
    chosen = known.called(name)
    if not chosen:
        problems.append(_no_such_violation(name, pointer, tool, known.names))
        return _unspoiled

    def spoil(result: Result, call: Call, number: int) -> Any:
        if not known.accepts(result.value):
            return None, NOTHING
        from toolcrib.schema.keyed_random import Draw  # noqa: PLC0415 -- as above

        session = call.context.session
        draw = Draw(session.seed, "violate_schema", key, tool.name, session.id, number, call.attempt)
        first = draw.integer(0, len(chosen) - 1) if name == ANY else 0
        # Any violation will do where any is asked for; one that is named must be made.
        tried = (*chosen[first:], *chosen[:first]) if name == ANY else chosen[:1]
        for violation in tried:
            broken = known.broken(violation, result.value)
            if broken is not None:
                return result._replace(value=broken.value), {"violation": violation.name}
        raise _not_possible(name, tool, pointer)

    return spoil


def _unspoiled(result: Result, _call: Call, _number: int) -> tuple[Result, Mapping[str, JSON]]:
    return result, NOTHING


def _no_such_violation(name: str, pointer: str, tool: Descriptor, names: Collection[str]) -> Problem:
    listed = ", ".join(f"`{known}`" for known in names)
    if not names:
        message = f"the `output_schema` of `{tool.name}` refuses nothing that could be made of a good answer"
        hint = "say more in the schema, or let another fault happen"
    else:
        message = f"the `output_schema` of `{tool.name}` can't be violated by `{name}`"
        near = did_you_mean(name, names)
        hint = f"{near} There are {listed}, and `{ANY}`" if near else f"there are {listed}, and `{ANY}`"
    return Problem(code="unknown_violation", message=message, pointer=pointer, hint=hint)


def _not_possible(name: str, tool: Descriptor, pointer: str) -> ExpressionError:
    return ExpressionError(
        f"no answer that violates the schema by `{name}` could be made of what `{tool.name}` answered{_ACTED}",
        code="fault_not_possible",
        hint="choose another violation, or let the tool answer something that has the place",
        pointer=pointer,
    )


def compile_text(
    options: Mapping[str, Any],
    pointer: str,
    tool: Descriptor,
    names: Collection[str],
    problems: list[Problem],
) -> tuple[Spoiling, frozenset[str]]:
    """An answer into which a text is planted, and what the text reads of the scope."""
    at: str = options["at"]
    text = compile_value(options["text"], names, problems, f"{pointer}/text")
    path = keys_of(at)
    if tool.output_schema is not None and not _possible(tool.output_schema, path):
        message = f"no valid answer of `{tool.name}` has a place `{at}` for a text"
        hint = "the pointer leads through the result, such as `/items/0/title`; the empty one is the whole result"
        problems.append(Problem(code="never_matches", message=message, pointer=f"{pointer}/at", hint=hint))

    def spoiling(scope: Scope) -> Spoil:
        words = as_text(text.render(scope))

        def spoil(result: Result, _call: Call, _number: int) -> Any:
            planted = _planted(result.value, path, words)
            if planted is _NOWHERE:
                message = f"the answer of `{tool.name}` has no place `{at}` for a text{_ACTED}"
                hint = "point to a text, to a list, or to a key that an object may get"
                raise ExpressionError(message, code="fault_not_possible", hint=hint, pointer=f"{pointer}/at")
            return result._replace(value=planted), NOTHING

        return spoil

    return spoiling, text.names


_NOWHERE: Any = object()


def _planted(value: JSON, path: list[str], text: str) -> Any:
    """The value with the text at a place: after the text that is there, at a list's end, or as a new member."""
    if not path:
        return _grown(value, text)
    whole: Any = deepcopy(value)
    holder = whole
    for key in path[:-1]:
        holder = _member(holder, key)
    last = path[-1]
    if isinstance(holder, list) and last == "-":
        holder.append(text)
        return whole
    there = None if isinstance(holder, dict) and last not in holder else _member(holder, last)
    grown = _grown(there, text)
    if grown is _NOWHERE:
        return _NOWHERE
    holder[int(last) if isinstance(holder, list) else last] = grown
    return whole


def _member(holder: Any, key: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(key, _NOWHERE)
    if isinstance(holder, list) and key.isdecimal() and int(key) < len(holder):
        return holder[int(key)]
    return _NOWHERE


def _grown(there: Any, text: str) -> Any:
    if there is None:
        return text
    if isinstance(there, str):
        return f"{there} {text}" if there else text
    return [*there, text] if isinstance(there, list) else _NOWHERE


def _possible(schema: JSON, path: list[str]) -> bool:
    """Whether a valid value may have the place; also where that can't be told."""
    index = SchemaIndex(schema if isinstance(schema, dict | bool) else True)
    sites = _surely(index, [index.root])
    for key in path:
        if not _of_type(sites, "object", "array"):
            return False
        step: str | int = key
        if not _of_type(sites, "object"):
            if key != "-" and not key.isdecimal():
                return False
            step = 0 if key == "-" else int(key)
        sites = _surely(index, index.below(sites, step))
        if any(site.schema is False for site in sites):
            return False
    return _of_type(sites, "string", "array", "null")


def _surely(index: SchemaIndex, sites: list[Site]) -> list[Site]:
    """The sites of which each judges the value whatever else is true of it."""
    return index.together(sites, ("allOf",))


def _of_type(sites: list[Site], *types: str) -> bool:
    for site in sites:
        said = site.get("type")
        allowed = [said] if isinstance(said, str) else said
        if isinstance(allowed, list) and not any(kind in allowed for kind in types):
            return False
    return True
