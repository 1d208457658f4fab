"""Tools in mode `python` on the command line: what only lists them imports nothing, and says so."""

from __future__ import annotations

import sys

import pytest

from sampling import sample

CODE = '''
import pathlib

pathlib.Path("imported").touch()


def refund(order: str) -> str:
    """Refund an order."""
    return order
'''

TOOLS = """
name: refund
mode: python
python: {call: "refunds_of_shop:refund"}
---
name: complete
input_schema: {type: object, properties: {order: {type: string}}, required: [order]}
mode: python
python: {call: "refunds_of_shop:refund"}
"""

NOT_IMPORTED = "tool `refund`: its code is not imported, so its schemas are not known\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: [tools.tool.yaml]\n")
    (tmp_path / "tools.tool.yaml").write_text(TOOLS)
    (tmp_path / "refunds_of_shop.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    monkeypatch.delitem(sys.modules, "refunds_of_shop", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    sample(
        [
            (("list",), ""),
            (("show", "complete"), ""),
            (("show", "refund"), NOT_IMPORTED),
            (("cost",), NOT_IMPORTED),
            (("search", "refund"), ""),
        ],
        one_in=5,
    ),
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_what_only_lists_imports_nothing(words, said, project, toolcrib):
    done = toolcrib(*words)
    assert done.exit_code == 0, done.output
    assert done.stderr == said
    assert not (project / "imported").exists()


def test_a_call_imports_the_code_of_a_trusted_project(project, toolcrib):
    done = toolcrib("call", "refund", "order=o1")
    assert (done.exit_code, done.stdout) == (0, "o1\n")
    assert (project / "imported").exists()
