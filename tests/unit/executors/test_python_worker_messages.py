"""Messages of worker processes: what is sent arrives, with pydantic's JSON and without it."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.executors.python.worker_messages import decode, encode, encode_plain

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner), max_leaves=12
)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def exactly(value):
    """A text that differs for 1, 1.0 and True, and for 0.0 and -0.0."""
    return repr(value)


@given(VALUES)
def test_json_arrives_as_it_was_sent(value):
    for line in (encode("value", value), encode_plain("value", value)):
        assert line.index(b"\n") == len(line) - 1
        assert exactly(decode(line)) == exactly(["value", value])


@pytest.mark.parametrize(
    "value",
    ["\ud800", {"\udfff": 1}, nested(400), 10**4000, 1e16, 5e-324, -0.0, math.inf, -math.inf, math.nan],
)
def test_unusual_values_arrive_too(value):
    assert exactly(decode(encode_plain("value", value))) == exactly(["value", value])


def test_an_object_without_a_json_form_is_refused():
    with pytest.raises(TypeError, match="set"):
        encode("result", {1})


def test_messages_need_no_pydantic():
    code = """
import sys
sys.modules["pydantic_core"] = None
from toolcrib.executors.python.worker_messages import decode, encode_plain
print(ascii(decode(encode_plain("value", {"a": [1, "\\ud800"]}))))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['value', {'a': [1, '\\ud800']}]"
