"""What is served is what descriptors say: no face knows a tool by name, least of all one of the conformance suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURES = sorted(
    file.name.removesuffix(".tool.yaml") for file in (ROOT / "packs" / "mcp-conformance" / "tools").iterdir()
)
SOURCES = sorted((ROOT / "runtime" / "toolcrib" / "serve").rglob("*.py"))


def test_there_is_something_to_look_at():
    assert "test_simple_text" in FIXTURES
    assert len(SOURCES) > 5


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_face_holds_the_name_of_a_fixture(path):
    text = path.read_text(encoding="utf-8")
    assert [name for name in FIXTURES if re.search(rf"\b{name}\b", text)] == []
    assert re.findall(r"\btest_\w+|test://", text) == []
