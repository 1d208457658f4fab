"""`toolcrib export descriptor`: files that people can edit, read back before they are written."""

from __future__ import annotations

import itertools
import sys

import pytest

NUMBERS = itertools.count()

CODE = '''
import toolcrib


@toolcrib.tool(timeout="2s", examples=[{"args": {"order": "o1"}, "result": "o1"}])
def refund(order: str) -> str:
    """Refund an order."""
    return order


class Total(toolcrib.Tool[dict[str, int], int]):
    """Add numbers."""

    def execute(self, given: dict[str, int]) -> int:
        return sum(given.values())
'''

REFUND = """name: refund
description: Refund an order.
input_schema:
  type: object
  properties: {{order: {{type: string}}}}
  required: [order]
  additionalProperties: false
output_schema: {{type: string}}
mode: python
python: {{call: "{module}:refund"}}
timeout: "2s"
examples:
  - {{args: {{order: o1}}, result: o1}}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"exported_module_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    yield name
    sys.modules.pop(name, None)


def test_the_tools_of_a_module_become_files(module, toolcrib, tmp_path):
    done = toolcrib("export", "descriptor", module, "--out", "descriptors")
    assert done.exit_code == 0, done.output
    told = [
        "created the folder descriptors",
        "wrote descriptors/refund.tool.yaml",
        "wrote descriptors/total.tool.yaml",
    ]
    assert done.stdout.splitlines() == told
    assert (tmp_path / "descriptors" / "refund.tool.yaml").read_text() == REFUND.format(module=module)
    assert toolcrib("call", "total", "a:=1", "b:=2").stdout == "3\n"
    assert toolcrib("validate").exit_code == 0


def test_nothing_is_overwritten_silently(module, toolcrib, tmp_path):
    assert toolcrib("export", "descriptor", module, "--out", "all.yaml").exit_code == 0
    text = (tmp_path / "all.yaml").read_text()
    assert text.startswith(REFUND.format(module=module) + "---\nname: total\n")
    (tmp_path / "all.yaml").write_text("mine")
    done = toolcrib("export", "descriptor", module, "--out", "all.yaml")
    assert done.exit_code == 2
    assert "all.yaml already exists; use `--force`" in done.stderr
    assert (tmp_path / "all.yaml").read_text() == "mine"
    assert toolcrib("export", "descriptor", module, "--out", "all.yaml", "--force").exit_code == 0
    assert (tmp_path / "all.yaml").read_text() == text


def test_an_untrusted_module_is_not_imported(module, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST")
    done = toolcrib("export", "descriptor", module)
    assert (done.exit_code, done.stdout) == (15, "")
    assert f"import   {module} as source of tools" in done.stderr
    assert module not in sys.modules


def test_the_tools_of_a_project_are_exported_without_imports(module, toolcrib, tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(f"project: p\nsources: [ping.tool.yaml, {{python: {module}}}]\n")
    (tmp_path / "ping.tool.yaml").write_text("name: ping\ndescription: Answers.\nmock: {result: pong}\n")
    done = toolcrib("export", "descriptor")
    assert done.stdout == "name: ping\ndescription: Answers.\nmode: mock\nmock: {result: pong}\n"
    assert f"source `{module}`: not imported" in done.stderr
    assert module not in sys.modules
    assert toolcrib("export", "descriptor", "p*").stdout == done.stdout
    assert toolcrib("export", "descriptor", module).stdout.startswith("name: refund\n")


def test_what_cannot_be_exported_is_reported_and_the_rest_is_written(module, toolcrib, tmp_path):
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "a.tool.yaml").write_text(
        "name: a\nmock: {template_file: a.txt}\n---\nname: b\nmock: {result: 1}\n"
    )
    (tmp_path / "descriptors" / "a.txt").write_text("hi")
    done = toolcrib("export", "descriptor")
    assert (done.exit_code, done.stdout) == (1, "name: b\nmode: mock\nmock: {result: 1}\n")
    assert "`a` cannot be exported: " in done.stderr


def test_a_name_that_is_neither_a_tool_nor_a_module_is_an_error(module, toolcrib):
    done = toolcrib("export", "descriptor", "refund*x")
    assert done.exit_code == 2
    assert "`refund*x` is neither the name of a tool nor a module" in done.stderr
    done = toolcrib("export", "descriptor", "no_such_module_of_tools")
    assert done.exit_code == 1
    assert "the module `no_such_module_of_tools` was not found" in done.output
