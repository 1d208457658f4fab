"""The examples on the page of assertions hold and fail as they are said to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.scripts import script
from toolcrib.loading.scenarios.assertions import ALIASES, assertion_kinds

DOCS = Path(__file__).parents[2] / "docs"


PAGE = script("assertions_page")


@pytest.mark.parametrize("kind", assertion_kinds())
def test_every_kind_has_an_example_that_holds_and_one_that_fails(kind):
    held, failed = PAGE.judged(kind, "holds"), PAGE.judged(kind, "fails")
    assert (held.applies, held.passed) == (True, True), held
    assert (failed.applies, failed.passed) == (True, False), failed


def test_every_name_is_on_the_page():
    text = (DOCS / "reference" / "assertions.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[`(\w+)`\]", text, re.MULTILINE) == [*assertion_kinds()]
    assert [name for name in ALIASES if f"`{name}`" not in text] == []


def test_nothing_has_an_example_that_is_no_kind():
    assert PAGE.EXAMPLES.keys() == assertion_kinds().keys()
