"""The schema of samples, judged by the validator of jsonschema."""

from __future__ import annotations

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.schema.inference import DEPTH, infer_schema

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "1", "2", "id", "2024-01-01"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(_VALUES, min_size=1, max_size=5))
def test_every_sample_is_valid(samples):
    validator = jsonschema.Draft202012Validator(infer_schema(samples))
    for sample in samples:
        validator.validate(sample)


def test_a_member_is_required_if_all_samples_have_it():
    schema = infer_schema([{"id": 1, "name": "Ann"}, {"id": 2, "name": None, "age": 3.5}])
    assert schema == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": ["string", "null"]},
            "age": {"type": "number"},
        },
        "required": ["id", "name"],
    }


def test_items_of_all_samples_are_one_schema():
    schema = infer_schema([[{"a": 1}], [], [{"a": 2, "b": True}]])
    assert schema["items"]["required"] == ["a"]
    assert schema["items"]["properties"]["b"] == {"type": "boolean"}


def test_keys_that_are_data_become_a_map():
    schema = infer_schema([{"12": {"n": 1}, "13": {"n": 2.5}}])
    assert schema == {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"n": {"type": "number"}},
            "required": ["n"],
        },
    }
    many = infer_schema([{f"user_{number}": number for number in range(1000)}])
    assert many == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_a_format_is_one_that_all_texts_have():
    assert infer_schema(["2024-05-06T07:08:09Z", "2024-05-06T07:08:09.5+02:00"])["format"] == "date-time"
    assert infer_schema(["7f2c1f0e-9a5b-4f43-8a39-0a8b8f3b8a10"])["format"] == "uuid"
    assert infer_schema(["https://example.com/a?b=c"])["format"] == "uri"
    assert infer_schema(["2024-05-06", "soon"]) == {"type": "string"}
    assert infer_schema(["soon", "2024-05-06"]) == {"type": "string"}


def test_a_deep_value_is_cut():
    value = 0
    for _ in range(DEPTH * 3):
        value = [value]
    schema = infer_schema([value])
    depth = 0
    while "items" in schema:
        schema, depth = schema["items"], depth + 1
    assert depth == DEPTH - 1
