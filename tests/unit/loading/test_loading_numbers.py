"""Numbers that schemas give for texts are found by a compiled judge first, and by a walk only where there are some."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.subschemas import MANY, NAMED, ONE
from toolcrib.loading.documents.document import (
    _gives_texts,
    _numbers_for_texts,
    parse_documents,
    restore_text,
)

DATA = st.one_of(st.integers(0, 1), st.floats(0, 1), st.booleans(), st.just("a"), st.just([1]), st.just({}))
TYPES = st.sampled_from(["string", "integer", "number", "null", 1])


def schemas(inner):
    inner = st.one_of(inner, DATA)
    several, named = st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "type"]), inner)
    below = st.sampled_from(sorted(ONE | MANY | NAMED)).flatmap(
        lambda key: st.tuples(st.just(key), st.one_of(inner, several, named))
    )
    own = st.sampled_from(["const", "default", "enum", "examples"]).flatmap(
        lambda key: st.tuples(st.just(key), st.one_of(DATA, st.lists(DATA, max_size=2)))
    )
    kind = st.tuples(st.just("type"), st.one_of(TYPES, st.lists(TYPES, max_size=2)))
    return st.lists(st.one_of(below, own, kind), max_size=4).map(dict)


@given(st.recursive(DATA, schemas, max_leaves=6))
@example({"additionalItems": [{"type": "string", "const": 0}]})
@example({"items": [{"type": "string", "const": 0}]})
@example({"items": {"type": "string", "const": 0}})
@settings(max_examples=examples(1_000), deadline=None)
def test_the_judge_knows_what_the_walk_finds(schema):
    assert _gives_texts().judge(schema) is not any(True for _ in _numbers_for_texts(schema, ()))


def test_numbers_come_back_as_they_were_written_wherever_a_schema_stands():
    text = "input_schema: {not: {anyOf: [{items: {type: [string, 'null'], enum: [1.10, b, 2]}}]}}\n"
    (document,), _problems = parse_documents("a.yaml", text)
    found = restore_text(document)["input_schema"]["not"]["anyOf"][0]["items"]["enum"]
    assert found == ["1.10", "b", "2"]


def test_numbers_of_json_stay():
    (document,), _problems = parse_documents("a.json", '{"input_schema": {"type": "string", "const": 1.10}}')
    assert restore_text(document) is document.value
