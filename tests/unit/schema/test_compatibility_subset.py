"""When everything that one schema takes is shown to be taken by another one, it is."""

from __future__ import annotations

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from toolcrib.core.errors import DocumentError, ExpressionError
from toolcrib.schema.compatibility import incompatibilities
from toolcrib.schema.generation import KeyedRandom, arguments_for
from toolcrib.schema.validation import Validator, check_schema

NAMES = st.sampled_from(["a", "b", "ab"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 3, 1.5, "", "a", "b", "ab", "abc"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
SIZES = st.integers(0, 3)


def corpus():
    """Values small enough that a schema of the same small parts decides about many of them."""
    scalars = [None, True, False, 0, 1, 2, 3, 4, 1.5, "", "a", "b", "ab", "abc"]
    few = [None, 1, 3, "a", "abc"]
    lists = [[], *([one] for one in scalars), *([one, other] for one in few for other in few)]
    objects = [
        {name: item} for name in ("a", "b", "ab", "c") for item in [*scalars, [1], {"a": 1}, {"b": "a"}]
    ]
    objects += [{"a": one, "b": other} for one in few for other in few]
    objects += [{"a": one, "ab": other, "b": 1} for one in few for other in few]
    return [*scalars, *lists, *objects, {}, [[1]], [{"a": 1}], [1, 2, 3], ["a", 1, None, 2]]


CORPUS = corpus()
PATTERNS = st.sampled_from(["^a", "b", "^a?b?$"])
TYPES = st.sampled_from(["null", "boolean", "object", "array", "string", "integer", "number"])


@st.composite
def schemas(draw, depth=2, closed=True, refer=True):
    """A schema; `closed`: it says of every object what further properties it has."""
    inner = schemas(depth=depth - 1, closed=closed, refer=refer) if depth else st.just({})
    few = st.lists(inner, min_size=1, max_size=2)
    optional = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=lambda value: (type(value), value)),
        "const": VALUES,
        "minimum": SIZES,
        "maximum": SIZES,
        "exclusiveMinimum": SIZES,
        "exclusiveMaximum": SIZES,
        "multipleOf": st.integers(1, 3),
        "minLength": SIZES,
        "maxLength": SIZES,
        "pattern": PATTERNS,
        "minItems": SIZES,
        "maxItems": SIZES,
        "uniqueItems": st.booleans(),
        "items": inner,
        "prefixItems": few,
        "contains": inner,
        "minContains": SIZES,
        "maxContains": SIZES,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "minProperties": SIZES,
        "maxProperties": SIZES,
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
        "propertyNames": inner,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=1),
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
        "unevaluatedProperties": st.booleans(),
        "unevaluatedItems": st.booleans(),
        "anyOf": few,
        "oneOf": few,
        "allOf": few,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    if refer:
        optional["$ref"] = st.sampled_from(["#/$defs/one", "#/$defs/other"])
    keys = draw(st.lists(st.sampled_from([*optional, "properties"]), max_size=4, unique=True))
    schema = {key: draw(optional[key]) for key in keys if key != "properties"}
    if "properties" in keys:
        schema["properties"] = draw(st.dictionaries(NAMES, inner | st.booleans(), max_size=2))
        if closed:
            schema["additionalProperties"] = draw(inner | st.booleans())
    return schema


@st.composite
def roots(draw, closed=True):
    schema = draw(schemas(closed=closed))
    return {
        **schema,
        "$defs": draw(st.fixed_dictionaries(dict.fromkeys(["one", "other"], schemas(1, closed)))),
    }


@st.composite
def pairs(draw, closed=True):
    """A schema, and one that may be a little different from it, in either order."""
    one = draw(roots(closed=closed))
    other = _changed(one, draw, closed)
    return draw(st.sampled_from([(one, other), (other, one)]))


def _changed(schema, draw, closed):
    """A schema with a keyword more, less, or other than before, perhaps deeper in."""
    if not isinstance(schema, dict) or not schema:
        return draw(schemas(1, closed))
    way = draw(st.integers(0, 5))
    if way == 0:
        return {**schema, **draw(schemas(1, closed))}
    key = draw(st.sampled_from(sorted(schema)))
    if key == "$defs" or way > 2:
        return {**schema, key: _changed_part(key, schema[key], draw, closed)}
    if way == 1:
        return {name: item for name, item in schema.items() if name != key}
    return {
        "anyOf": [{k: v for k, v in schema.items() if k != "$defs"}, {"type": draw(TYPES)}],
        "$defs": schema.get("$defs", {}),
    }


TABLES = {"$defs", "properties", "patternProperties", "dependentSchemas"}
ALTERNATIVES = {"anyOf", "oneOf", "allOf", "prefixItems"}
INNER = {"items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"}


def _changed_part(key, part, draw, closed):
    if key in TABLES and part:
        name = draw(st.sampled_from(sorted(part)))
        return {**part, name: _changed(part[name], draw, closed)}
    if key in ALTERNATIVES and part:
        at = draw(st.integers(0, len(part) - 1))
        changed = _changed(part[at], draw, closed)
        return draw(st.sampled_from([[*part[:at], changed, *part[at + 1 :]], [*part, changed], part[::-1]]))
    if key in INNER:
        return _changed(part, draw, closed)
    if isinstance(part, int) and not isinstance(part, bool):
        return max(part + draw(st.sampled_from([-1, 1])), 1)
    if key == "type":
        return draw(TYPES | st.lists(TYPES, min_size=1, max_size=4, unique=True))
    return part


def sound(schema):
    return not any(problem.severity == "error" for problem in check_schema(schema))


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(pairs())
def test_what_is_shown_to_be_taken_is_taken(pair):
    narrow, wide = pair
    assume(sound(narrow) and sound(wide))
    if incompatibilities(narrow, wide):
        event("not shown")
        return
    event("shown")
    one, other = Validator(narrow), Validator(wide)
    for value in CORPUS:
        assert not one.is_valid(value) or other.is_valid(value)


def made(schema):
    """Some values that a schema takes."""
    try:
        return arguments_for(schema, KeyedRandom(1), 8)
    except (ExpressionError, DocumentError):
        return []


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(pairs(closed=False))
def test_values_made_for_a_schema_are_valid_under_one_that_is_shown_to_take_them(pair):
    narrow, wide = pair
    assume(sound(narrow) and sound(wide))
    values = [] if incompatibilities(narrow, wide) else made(narrow)
    event(f"{min(len(values), 1)} made")
    judge = Validator(wide)
    for value in values:
        assert judge.is_valid(value)


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(roots())
def test_a_schema_takes_what_it_takes(schema):
    assert incompatibilities(schema, schema) == []
    assert incompatibilities(schema, True) == []
    assert incompatibilities(False, schema) == []


KEYWORDS = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "minimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "items",
        "prefixItems",
        "minItems",
        "contains",
        "uniqueItems",
        "required",
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "minProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$dynamicRef",
        "$id",
        "$schema",
        "$defs",
        "format",
    ]
)
ANYTHING = st.recursive(
    SCALARS | st.sampled_from(["#", "#/$defs/a", "urn:x", "string", "[", 1e300, -1, 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | NAMES, inner, max_size=4),
    max_leaves=12,
)
BROKEN = st.booleans() | st.dictionaries(KEYWORDS, ANYTHING, max_size=5)


@given(BROKEN, BROKEN)
def test_schemas_that_are_none_can_be_compared_too(one, other):
    assert isinstance(incompatibilities(one, other), list)
    assert incompatibilities(one, one) == []
