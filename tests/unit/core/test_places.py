"""`file:line`, and its two parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.pointers import file_and_line


@given(st.text(), st.integers(min_value=0))
def test_a_place_has_its_file_and_its_line(file, line):
    assert file_and_line(f"{file}:{line}") == (file, line)


@pytest.mark.parametrize("place", ["", "toolcrib.yaml", "C:\\tools\\toolcrib.yaml", "pack.yaml:", ":x"])
def test_what_ends_with_no_line_is_all_file(place):
    assert file_and_line(place) == (place, 0)
