"""What is right at a glance: schemas of the plain kind, and values that fit them.

Almost every schema is without fault, and to know that takes little: its meta-schema agrees, nothing in it
refers to anything, and one compiled judge takes its patterns, its defaults and the values beside it.
Where that is not enough `check_schema` takes the longer look, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from toolcrib.model import JSON, Schema
from toolcrib.subschemas import pattern_validator
from toolcrib.validation.checking import DIALECTS, meta_schema
from toolcrib.validation.judging import compile_schema

SMALL: Final = 32 * 1024
"""Bytes of canonical JSON that a document may have for its schemas to be looked at here."""

_LEVELS: Final = 24
_CLAIMS: Final = 64
_LARGE: Final = 1 << 31


class _Claims:
    """What a compiled judge has to confirm: each value fits its schema, and the schemas compile."""

    def __init__(self) -> None:
        self.patterns = 0
        self._schemas: list[Schema] = []
        self._values: list[JSON] = []

    def add(self, schema: Schema, value: JSON) -> bool:
        """Note a claim; False where there are too many."""
        self._schemas.append(schema)
        self._values.append(value)
        return len(self._schemas) < _CLAIMS

    def hold(self) -> bool:
        """Whether all of them are true."""
        if not self._schemas:
            return True
        try:
            judge = compile_schema({"prefixItems": [*self._schemas]})
        except ValueError:
            return False
        return judge.is_valid(self._values)


def is_evident(cases: Iterable[tuple[Schema, Sequence[JSON]]]) -> bool:
    """Whether schemas have no fault and values fit them: `check_schema` and `Validator` would tell nothing.

    False says nothing: a schema may be of a kind that needs the longer look (references, other dialects,
    keywords that are seldom used).

    Args:
        cases: Schemas, each with the values that are to fit it; in a document of at most `SMALL` bytes.
    """
    claims, judge = _Claims(), meta_schema(DIALECTS[0])
    for schema, values in cases:
        patterns = claims.patterns
        if not judge.is_valid(schema) or not _is_plain(schema, claims, _LEVELS):
            return False
        if values or claims.patterns > patterns:
            claims.add({"items": schema}, [*values])
    return claims.hold()


def _is_plain(schema: JSON, claims: _Claims, levels: int) -> bool:
    """Whether a schema that its meta-schema accepts holds none but the commonest keywords."""
    if not isinstance(schema, dict):
        return True
    for keyword, value in schema.items():
        look = _LOOKS.get(keyword, _stranger)
        if look is not None and not look(schema, value, claims, levels - 1):
            return False
    return levels > 0


def _stranger(_schema: dict[str, JSON], _value: JSON, _claims: _Claims, _levels: int) -> bool:
    return False


def _one(_schema: dict[str, JSON], inner: JSON, claims: _Claims, levels: int) -> bool:
    return _is_plain(inner, claims, levels)


def _many(_schema: dict[str, JSON], inner: Any, claims: _Claims, levels: int) -> bool:
    return all(_is_plain(each, claims, levels) for each in inner)


def _named(_schema: dict[str, JSON], inner: Any, claims: _Claims, levels: int) -> bool:
    return all(name[:1] != "$" and _is_plain(each, claims, levels) for name, each in inner.items())


def _number(_schema: dict[str, JSON], value: Any, _claims: _Claims, _levels: int) -> bool:
    return type(value) is float or -_LARGE < value < _LARGE


def _count(_schema: dict[str, JSON], value: Any, _claims: _Claims, _levels: int) -> bool:
    return type(value) is int and value < _LARGE


def _pattern(_schema: dict[str, JSON], value: Any, claims: _Claims, _levels: int) -> bool:
    claims.patterns += 1
    try:
        pattern_validator(value)
    except ValueError:
        return False
    return True


def _default(schema: dict[str, JSON], value: JSON, claims: _Claims, _levels: int) -> bool:
    return _is_flat(value) and claims.add(schema, value)


def _data(_schema: dict[str, JSON], value: JSON, _claims: _Claims, _levels: int) -> bool:
    return _is_flat(value)


def _is_flat(value: JSON) -> bool:
    """Whether a value nests nothing: what is data to us may not look like a schema to others."""
    if isinstance(value, dict):
        value = [*value.values()]
    return not isinstance(value, list) or not any(isinstance(item, dict | list) for item in value)


_Look = Callable[[dict[str, JSON], JSON, _Claims, int], bool]

_LOOKS: Final[Mapping[str, _Look | None]] = {
    **dict.fromkeys(("description", "title", "type", "required", "format", "uniqueItems")),
    **dict.fromkeys(("$comment", "deprecated", "readOnly", "writeOnly")),
    **dict.fromkeys(("enum", "const", "examples", "x-secret"), _data),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _count),
    **dict.fromkeys(("minProperties", "maxProperties"), _count),
    **dict.fromkeys(("items", "additionalProperties", "not", "if", "then", "else"), _one),
    **dict.fromkeys(("contains", "propertyNames"), _one),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _many),
    "properties": _named,
    "pattern": _pattern,
    "default": _default,
}
"""Keyword -> what there is to look at; None where the meta-schema has judged all of it."""
