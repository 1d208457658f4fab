"""Check schemas and report every problem at its place.

Almost every schema is valid, and `is_evident` confirms that quickly: the meta-schema accepts it, references lead directly
to definitions, and one compiled validator checks patterns, defaults and values together. `check_schema` is the complete
check that reports problems.
"""

# The quick check pays off at load: 300 files take 569 ms with it and 767 ms without.

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import Key, Path, SchemaIndex, Site, children, is_schema, pattern_validator
from toolcrib.schema.dereference import WAYS, reference_problems
from toolcrib.schema.validation.defaults import compile_defaults_at
from toolcrib.schema.validation.explanation import Error, Explanation
from toolcrib.schema.validation.json_values import as_json, count_elements
from toolcrib.schema.validation.validator import compile_parts, compile_schema, refusal_text
from toolcrib.schema.validation.violation_search import ErrorBudget, LocatedError, located
from toolcrib.schema.validation.violations import Violation, describe_value, shorten
from toolcrib.security.redaction import SecretPlaces, is_secret_name

DEPTH: Final = 64
"""Maximum nesting of a schema."""

SIZE: Final = 256 * 1024
"""Maximum size of a schema in bytes of compact JSON."""

DIALECTS: Final = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
"""The supported dialects, by the URI of their meta-schema; the first is the default."""

_ANYTHING: Final = SchemaIndex({})
_MOST: Final = 100
_LARGE: Final = 250
_FEW: Final = 50


def check_schema(schema: JSON, pointer: str = "") -> list[Problem]:
    """All problems of a schema; without errors among them, it can be used.

    Unknown keywords are allowed. The codes:

    - `not_json`, `schema_too_deep` (64 levels), `schema_too_large` (256 KiB);
    - `unknown_dialect`: `$schema` names another than the five dialects; `invalid_schema`: the meta-schema refuses it;
    - `bad_pattern`: a pattern does not compile;
    - `remote_ref`: a reference is outside the schema (nothing is fetched); `dangling_ref`: it cannot be resolved;
      `endless_ref`: it refers back to itself without descending into the value; `schema_too_branchy`: more than 100,000
      ways to validate one value;
    - `default_mismatch`, a warning: a default does not match its own subschema, so it is never filled in.

    Args:
        schema: The schema as written.
        pointer: The JSON Pointer of the schema, prefixed to the pointers of the problems.
    """
    schema, found = as_json(schema, depth=DEPTH)
    problems = [*_problems_of_form(schema, found)]
    if is_schema(schema) and not problems:
        problems = [*_problems_of_schema(schema)]
    return [problem._replace(pointer=pointer + problem.pointer) for problem in problems]


def _problems_of_form(schema: JSON, found: Violation | None) -> Iterator[Problem]:
    if found is not None and found.keyword == "depth":
        hint = "move inner schemas to `$defs` and refer to them"
        yield Problem(code="schema_too_deep", message=f"the schema has more than {DEPTH} levels", hint=hint)
    elif found is not None:
        message = f"expected {found.expected}, got {found.got}"
        yield Problem(code="not_json", message=message, pointer=found.pointer, hint=found.hint)
    elif not is_schema(schema):
        message = f"a schema must be an object, true or false, not {describe_value(schema)}"
        yield Problem(code="invalid_schema", message=message, hint="for example `{type: object}`")
    elif (size := len(json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode())) > SIZE:
        message = f"the schema has {size:,} bytes; at most {SIZE:,} are allowed"
        yield Problem(code="schema_too_large", message=message, hint="move shared parts to `$defs`")


def _problems_of_schema(schema: Schema) -> Iterator[Problem]:
    index = SchemaIndex(schema)
    dialect = _dialect(index.root, DIALECTS[0])
    if dialect not in DIALECTS:
        yield _unknown_dialect(index.root)
        return
    sites = _all_sites(index)
    found = [*_meta_problems(index, dialect)]
    for site in sites.values():
        if _dialect(site, dialect) not in DIALECTS:
            found.append(_unknown_dialect(site))
        found += _pattern_problems(site)
    found += reference_problems(index, sites, partial(_is_bundled, dialect))
    yield from sorted(dict.fromkeys(found), key=lambda problem: problem.pointer)
    if not found:
        yield from _problems_of_compiling(index, sites)


def _dialect(site: Site, usual: str) -> str:
    named = site.get("$schema")
    return named.removesuffix("#") if isinstance(named, str) else usual


def _unknown_dialect(site: Site) -> Problem:
    named = str(site.get("$schema"))
    hint = did_you_mean(named[:200], DIALECTS) or f"known: {', '.join(DIALECTS)}"
    place = pointer_to((*site.path, "$schema"))
    return Problem(
        code="unknown_dialect",
        message=f"unknown dialect {describe_value(named)}",
        pointer=place,
        hint=hint,
    )


def _all_sites(index: SchemaIndex) -> dict[Key, Site]:
    """All subschemas, including those under unknown keywords that only a reference reaches."""
    sites: dict[Key, Site] = {}
    pending = deque([index.root])
    while pending:
        for site in index.walk(pending.popleft()):
            if site.key not in sites:
                sites[site.key] = site
                pending.extend(target for _, _, target in index.targets(site) if target is not None)
    return sites


@cache
def meta_schema(dialect: str) -> jsonschema_rs.Validator:
    """The compiled meta-schema of a dialect."""
    return compile_schema({"$schema": dialect, "$ref": dialect})


@lru_cache(maxsize=64)
def _is_bundled(dialect: str, uri: str) -> bool:
    """Whether a URI leads into the dialect's own meta-schema, which jsonschema-rs bundles."""
    if not uri.startswith(dialect.removesuffix("schema")):
        return False
    try:
        compile_schema({"$schema": dialect, "$ref": uri})
    except ValueError:
        return False
    return True


def _meta_problems(index: SchemaIndex, dialect: str) -> Iterator[Problem]:
    """The errors of the meta-schema; for a large schema one subschema at a time, up to `_MOST`."""
    # jsonschema-rs builds all errors before it returns the first, each with a copy of its value, which a
    # hostile schema of 256 KiB could use to exhaust the memory.
    judge, root = meta_schema(dialect), index.root
    if judge.is_valid(root.schema):
        return
    problems: list[Problem] = []
    if count_elements(root.schema, _LARGE) == _LARGE:
        pending = deque([root])
        while pending and len(problems) < _MOST:
            site = pending.popleft()
            if not judge.is_valid(site.schema):
                pending += (index.child(site, path, inner) for path, inner in children(site.schema))
                problems += _told(site, islice(_own_errors(judge, site.schema), 10 * _MOST))
    yield from problems[:_MOST] or _told(root, judge.iter_errors(root.schema))


def _own_errors(judge: jsonschema_rs.Validator, schema: Schema) -> Iterator[LocatedError]:
    """The errors of a schema itself, without those of its subschemas, found in small pieces."""
    if not isinstance(schema, dict):
        return
    inner = {path for path, _schema in children(schema)}
    small = {
        key: value
        for key, value in schema.items()
        if (key,) not in inner and count_elements(value, _FEW) < _FEW
    }
    plain = {key: value for key, value in small.items() if not any(path[0] == key for path in inner)}
    for keyword, value in schema.items():
        if (keyword,) in inner:
            continue
        found = False
        for start, entries in _entries(keyword, value, inner):
            piece = {**plain, keyword: entries}
            own = (error for error in judge.iter_errors(piece) if [*error.instance_path][:1] == [keyword])
            for error in own:
                found = True
                yield located(error, piece, start=start, depth=1)
        if not found and not any(path[0] == keyword for path in inner):
            whole = {**plain, keyword: value}
            yield from (located(error, whole) for error in judge.iter_errors(whole))


def _entries(keyword: str, value: JSON, inner: set[Path]) -> Iterator[tuple[int, JSON]]:
    """The value of a keyword in small pieces without subschemas, each with the index of its first list entry."""
    if isinstance(value, dict):
        names = [name for name in value if (keyword, name) not in inner]
        for start in range(0, len(names), _FEW):
            yield 0, {name: value[name] for name in names[start : start + _FEW]}
    elif isinstance(value, list):
        for start in range(0, len(value), _FEW):
            yield (
                start,
                [
                    {} if (keyword, start + index) in inner else item
                    for index, item in enumerate(value[start : start + _FEW])
                ],
            )
    else:
        yield 0, value


def _told(site: Site, errors: Iterable[Error]) -> Iterator[Problem]:
    for fault in Explanation(site.schema, _ANYTHING, lambda _path, _value: False).of(errors, _MOST):
        keyword = f"`{shorten(str(fault.path[-1]))}`: " if fault.path else ""
        message = f"{keyword}expected {fault.expected}, got {fault.got}"
        place = pointer_to((*site.path, *fault.path))
        yield Problem(code="invalid_schema", message=message, pointer=place, hint=fault.hint)


def _pattern_problems(site: Site) -> Iterator[Problem]:
    pattern, table = site.get("pattern"), site.get("patternProperties")
    if isinstance(pattern, str):
        yield from _bad_pattern(pattern, (*site.path, "pattern"))
    for each in table if isinstance(table, dict) else ():
        yield from _bad_pattern(each, (*site.path, "patternProperties", each))


def _bad_pattern(pattern: str, path: Path) -> Iterator[Problem]:
    try:
        pattern_validator(pattern)
    except ValueError:
        message = f"`{shorten(pattern)}` is not a supported regular expression"
        hint = "use ECMA-262 syntax; the compiled pattern may take at most 1 MiB"
        yield Problem(code="bad_pattern", message=message, pointer=pointer_to(path), hint=hint)


def _problems_of_compiling(index: SchemaIndex, sites: dict[Key, Site]) -> Iterator[Problem]:
    schema = index.root.schema
    # The compiler refuses a few schemas that the meta-schema accepts.
    try:
        compile_schema(schema)
    except ValueError as error:
        place = pointer_to(tuple(getattr(error, "instance_path", ())))
        yield Problem(code="invalid_schema", message=refusal_text(error), pointer=place)
        return
    parts = {
        f"default {number}": site
        for number, site in enumerate(sites.values())
        if isinstance(site.schema, dict) and "default" in site.schema
    }
    try:
        judge = compile_parts(index.root, parts)
    except ValueError:
        return  # references below an `$id` resolve differently, so these defaults cannot be checked separately
    effort = ErrorBudget(index)
    unfit = ((name, site) for name, site in parts.items() if not _fits(judge, name, site, index))
    for name, site in islice(unfit, _MOST):
        default = site.get("default")
        bearable = not effort.too_much(site, default)
        errors = judge.iter_errors({name: default}) if bearable else ()
        yield _mismatch(index, site, {name: default}, errors)


def _fits(judge: jsonschema_rs.Validator, name: str, site: Site, index: SchemaIndex) -> bool:
    """Whether a default matches its subschema, as written or with the defaults within it."""
    default = site.get("default")
    if judge.is_valid({name: default}):
        return True
    fill = compile_defaults_at(site, index) if isinstance(default, dict | list) else None
    return fill is not None and judge.is_valid({name: fill(default)})


def _mismatch(
    index: SchemaIndex, site: Site, named: dict[str, JSON], errors: Iterable[jsonschema_rs.ValidationError]
) -> Problem:
    """The problem of a default, which was validated as the only property of an object."""
    secret = any(isinstance(key, str) and is_secret_name(key) for key in site.path)
    places = SecretPlaces(index, site)

    def hides(path: Path, value: object) -> bool:
        return secret or places.hides(path[1:], value)

    message, path = "the default does not match its own schema", (*site.path, "default")
    for told in Explanation(named, _ANYTHING, hides).of(errors, 1):
        message += f": expected {told.expected}, got {told.got}"
        path += told.path[1:]
    hint = "correct it or remove it; it is not filled in"
    return Problem(
        code="default_mismatch", message=message, pointer=pointer_to(path), hint=hint, severity="warning"
    )


SMALL: Final = 32 * 1024
"""Maximum size of a document, in bytes of canonical JSON, for the quick check of its schemas."""

_LEVELS: Final = 24
_CLAIMS: Final = 64
_DEFINITIONS: Final = 100
_LARGE_BOUND: Final = 1 << 31  # larger bounds are left to the full check
# Names that need no escapes in a JSON Pointer or URI fragment, so that references can be compared as text.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TABLES: Final = ("$defs", "definitions")
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_BESIDE_REFERENCES: Final = frozenset(["$ref", "title", "description", "default"])
"""Keywords next to a `$ref` that mean the same in all dialects."""


class _Claims:
    """Claims to confirm with one compiled validator: each value matches its schema, and the schemas compile."""

    # Compiling once for a whole document costs a fraction of compiling each schema.

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, JSON]] = {}
        self._schemas: list[JSON] = []
        self._values: list[JSON] = []

    def add(self, schema: Schema, value: JSON) -> bool:
        """Add a claim; False if there are too many."""
        self._schemas.append(schema)
        self._values.append(value)
        return len(self._schemas) < _CLAIMS

    def define(self, table: str, name: str, schema: JSON) -> bool:
        """Add a definition; False if another schema has a different one with this name."""
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
    """Whether schemas are certainly valid and values match them, so that the full checks can be skipped.

    False means "unknown": recursive definitions, older dialects and rare keywords always need the full checks.

    Args:
        cases: Schemas with the values that must match them, from a document of at most `SMALL` bytes.
    """
    claims = _Claims()
    return all(_Glance(claims).takes(schema, values) for schema, values in cases) and claims.hold()


class _Glance:
    """The quick check of one schema.

    Attributes:
        claims: Receives what only a compiled validator can confirm.
        older: Whether the schema is of draft 7.
        uncertain: Whether the schema must be compiled to be sure that it compiles.
        sites: Number of subschemas seen.
        uses: Reference -> the references in its target definition; at "" those of the schema itself.
        here: The key of `uses` that is being checked.
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
        """Whether the schema is valid, provided that the claims hold."""
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
            return False  # unknown in draft 7, so the meta-schema has not checked its content
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
        """Whether no definition is recursive, and the number of paths through them is below `WAYS`."""
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
    """Whether a schema that its meta-schema accepts has only common keywords."""
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
    return type(value) is float or -_LARGE_BOUND < value < _LARGE_BOUND


def _count(_schema: dict[str, JSON], value: Any, _glance: _Glance, _levels: int) -> bool:
    return type(value) is int and value < _LARGE_BOUND


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
    """Whether a value has no nested containers."""
    # Nested data such as an `examples` entry could contain `$id` or `$ref`, which the compiler would
    # interpret.
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
"""Keyword -> its check; None if the meta-schema checks it completely."""
