"""What is right at a glance: schemas of the plain kind, and values that fit them.

Almost every schema is without fault, and to know that takes little: its meta-schema agrees, its references lead
straight to definitions, and one compiled judge takes its patterns, its defaults and the values beside it.
Where that is not enough `check_schema` takes the longer look, and says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import pattern_validator
from toolcrib.schema.validation.references import WAYS
from toolcrib.schema.validation.schema_check import DIALECTS, meta_schema
from toolcrib.schema.validation.validator import compile_schema

SMALL: Final = 32 * 1024
"""Bytes of canonical JSON that a document may have for its schemas to be looked at here."""

_LEVELS: Final = 24
_CLAIMS: Final = 64
_DEFINITIONS: Final = 100
_LARGE: Final = 1 << 31
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TABLES: Final = ("$defs", "definitions")
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_BESIDE_REFERENCES: Final = frozenset(["$ref", "title", "description", "default"])
"""Keywords that mean the same beside a `$ref` in all dialects."""


class _Claims:
    """What a compiled judge has to confirm: each value fits its schema, and the schemas compile."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, JSON]] = {}
        self._schemas: list[JSON] = []
        self._values: list[JSON] = []

    def add(self, schema: Schema, value: JSON) -> bool:
        """Note a claim; False where there are too many."""
        self._schemas.append(schema)
        self._values.append(value)
        return len(self._schemas) < _CLAIMS

    def define(self, table: str, name: str, schema: JSON) -> bool:
        """Note a definition; False where another schema has one of that name which is different."""
        known = self._tables.setdefault(table, {}).setdefault(name, schema)
        return known is schema or known == schema

    def hold(self) -> bool:
        """Whether all of them are true."""
        if not self._schemas:
            return True
        try:
            judge = compile_schema({**self._tables, "prefixItems": self._schemas})
        except ValueError:
            return False
        return judge.is_valid(self._values)


def is_evident(cases: Iterable[tuple[Schema, Sequence[JSON]]]) -> bool:
    """Whether schemas have no fault and values fit them: `check_schema` and `Validator` would tell nothing.

    False says nothing: a schema may be of a kind that needs the longer look (definitions that refer to
    themselves, the older dialects, keywords that are seldom used).

    Args:
        cases: Schemas, each with the values that are to fit it; in a document of at most `SMALL` bytes.
    """
    claims = _Claims()
    return all(_Glance(claims).takes(schema, values) for schema, values in cases) and claims.hold()


class _Glance:
    """A look at one schema.

    Attributes:
        claims: What the judge has to confirm.
        older: Whether the schema is of draft 7.
        uncertain: Whether only compiling the schema shows that it compiles.
        sites: Subschemas that were seen.
        uses: Reference -> the references in the definition that it means; at "" those of the schema itself.
        here: Within which of them the look has come.
    """

    def __init__(self, claims: _Claims) -> None:
        self.claims = claims
        self.older = False
        self.uncertain = False
        self.sites = 0
        self.uses: dict[str, list[str]] = {"": []}
        self.here = ""
        self._sizes: dict[str, int] = {}

    def takes(self, schema: Schema, values: Sequence[JSON]) -> bool:
        """Whether all is right as far as the claims hold."""
        dialect = schema.get("$schema", DIALECTS[0]) if isinstance(schema, dict) else DIALECTS[0]
        if dialect != DIALECTS[0]:
            dialect = dialect.removesuffix("#") if isinstance(dialect, str) else ""
            self.older = dialect == _DRAFT_7
            if not self.older and dialect != DIALECTS[0]:
                return False
        if not meta_schema(dialect).is_valid(schema):
            return False
        if isinstance(schema, dict) and not schema.keys().isdisjoint(("$schema", *_TABLES)):
            if not self._takes_definitions(schema):
                return False
            schema = {key: item for key, item in schema.items() if key != "$schema" and key not in _TABLES}
        if not self._is_plain_at("", schema) or not self._comes_to_an_end():
            return False
        if values or self.uncertain:
            self.claims.add({"items": schema}, [*values])
        return True

    def _takes_definitions(self, schema: dict[str, Any]) -> bool:
        if self.older and "$defs" in schema:
            return False  # draft 7 does not know it, so nobody has judged what is in it
        tables = [(table, schema[table]) for table in _TABLES if table in schema]
        self.uses |= {f"#/{table}/{name}": [] for table, named in tables for name in named}
        return len(self.uses) <= _DEFINITIONS and all(
            _PLAIN_NAME.fullmatch(name) is not None
            and self._is_plain_at(f"#/{table}/{name}", inner)
            and self.claims.define(table, name, inner)
            for table, named in tables
            for name, inner in named.items()
        )

    def _is_plain_at(self, here: str, schema: JSON) -> bool:
        self.here, before = here, self.sites
        plain = _is_plain(schema, self, _LEVELS)
        self._sizes[here] = self.sites - before
        return plain

    def _comes_to_an_end(self) -> bool:
        """Whether no definition comes back to itself, and the ways through all of them are not too many."""
        if len(self.uses) == 1:
            return self.sites <= WAYS
        ways: dict[str, int] = {}
        left = dict(self.uses)
        while left:
            ready = [name for name, used in left.items() if all(each in ways for each in used)]
            for name in ready:
                ways[name] = self._sizes[name] + sum(ways[each] for each in left.pop(name))
            if not ready:
                return False
        return ways[""] <= WAYS


def _is_plain(schema: JSON, glance: _Glance, levels: int) -> bool:
    """Whether a schema that its meta-schema accepts holds none but the commonest keywords."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    glance.sites += 1
    for keyword, value in schema.items():
        look = _LOOKS.get(keyword, _stranger)
        if look is not None and not look(schema, value, glance, levels - 1):
            return False
    return levels > 0


def _stranger(_schema: dict[str, JSON], _value: JSON, _glance: _Glance, _levels: int) -> bool:
    return False


def _one(_schema: dict[str, JSON], inner: JSON, glance: _Glance, levels: int) -> bool:
    return _is_plain(inner, glance, levels)


def _many(_schema: dict[str, JSON], inner: Any, glance: _Glance, levels: int) -> bool:
    return all(_is_plain(each, glance, levels) for each in inner)


def _prefix(schema: dict[str, JSON], inner: Any, glance: _Glance, levels: int) -> bool:
    return not glance.older and _many(schema, inner, glance, levels)


def _named(_schema: dict[str, JSON], inner: Any, glance: _Glance, levels: int) -> bool:
    return all(name[:1] != "$" and _is_plain(each, glance, levels) for name, each in inner.items())


def _number(_schema: dict[str, JSON], value: Any, _glance: _Glance, _levels: int) -> bool:
    return type(value) is float or -_LARGE < value < _LARGE


def _count(_schema: dict[str, JSON], value: Any, _glance: _Glance, _levels: int) -> bool:
    return type(value) is int and value < _LARGE


def _pattern(_schema: dict[str, JSON], value: Any, glance: _Glance, _levels: int) -> bool:
    glance.uncertain = True
    try:
        pattern_validator(value)
    except ValueError:
        return False
    return True


def _reference(schema: dict[str, JSON], value: Any, glance: _Glance, _levels: int) -> bool:
    glance.uncertain = True
    glance.uses[glance.here].append(value)
    return value in glance.uses and value != "" and (not glance.older or schema.keys() <= _BESIDE_REFERENCES)


def _default(schema: dict[str, JSON], value: JSON, glance: _Glance, _levels: int) -> bool:
    return _is_flat(value) and glance.claims.add(schema, value)


def _data(_schema: dict[str, JSON], value: JSON, _glance: _Glance, _levels: int) -> bool:
    return _is_flat(value)


def _is_flat(value: JSON) -> bool:
    """Whether a value nests nothing: what is data to us may not look like a schema to others."""
    if isinstance(value, dict):
        value = [*value.values()]
    return not isinstance(value, list) or not any(isinstance(item, dict | list) for item in value)


_Look = Callable[[dict[str, JSON], JSON, _Glance, int], bool]

_LOOKS: Final[Mapping[str, _Look | None]] = {
    **dict.fromkeys(("description", "title", "type", "required", "format", "uniqueItems")),
    **dict.fromkeys(("$comment", "deprecated", "readOnly", "writeOnly")),
    **dict.fromkeys(("enum", "const", "examples", "x-secret"), _data),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _count),
    **dict.fromkeys(("minProperties", "maxProperties"), _count),
    **dict.fromkeys(("items", "additionalProperties", "not", "if", "then", "else"), _one),
    **dict.fromkeys(("contains", "propertyNames"), _one),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _many),
    "prefixItems": _prefix,
    "properties": _named,
    "pattern": _pattern,
    "$ref": _reference,
    "default": _default,
}
"""Keyword -> what there is to look at; None where the meta-schema has judged all of it."""
