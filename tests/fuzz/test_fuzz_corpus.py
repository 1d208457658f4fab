"""What fuzzing has found worth keeping is tried again: no target fails, and none works without end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS
from sampling import sample

CORPUS = Path(__file__).parent / "corpus"

MOST_WORK = 500_000
"""Calls of Python functions that one input of the corpus may take; none of them is larger than a few hundred bytes."""

INPUTS = [
    pytest.param(target, path, id=f"{target.name}-{path.name}")
    for target in TARGETS
    for path in sorted((CORPUS / target.name).iterdir())
]


@pytest.mark.parametrize(("target", "path"), sample(INPUTS, one_in=3))
def test_an_input_of_the_corpus_is_read_and_soon(target, path):
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert target.check(path.read_bytes())
    finally:
        sys.setprofile(before)
    assert calls <= MOST_WORK


def test_every_folder_of_the_corpus_has_a_target_and_inputs():
    assert {path.name for path in CORPUS.iterdir()} == {target.name for target in TARGETS}
    assert all(any((CORPUS / target.name).iterdir()) for target in TARGETS)
