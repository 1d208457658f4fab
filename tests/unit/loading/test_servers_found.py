"""Files of MCP clients that lie in a folder which is scanned: one notice, and nothing of them is started."""

from __future__ import annotations

import pytest

from toolcrib.executors import Executors
from toolcrib.loading.sources import SourcePath, load

KINDS = Executors({})
TOOL = "name: shout\ninput_schema: {type: object}\n"


def found_in(folder):
    return load([SourcePath(str(folder))], KINDS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mcp.json", '{"mcpServers": {"a": {"command": "touch", "args": ["started"]}}}'),
        ("mcp.json", '{"servers": {"a": {"command": "touch"}}, "inputs": []}'),
        ("mcp.json", '// ours\n{"servers": {"a": {"command": "touch"},},}'),
        ("mcp.yaml", "mcpServers: {a: {command: touch}}"),
        ("settings.json", '{"theme": "x", "mcpServers": {}, /* name: */ }'),
    ],
)
def test_it_is_told_once_and_names_the_way(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "shout.yaml").write_text(TOOL, encoding="utf-8")
    loaded = found_in(tmp_path)
    assert [tool.name for tool in loaded.tools] == ["shout"]
    (problem,) = loaded.problems
    assert (problem.code, problem.severity, problem.line) == ("servers_file", "notice", 1)
    assert f"`servers_from: {name}`" in problem.hint


def test_hidden_files_are_not_looked_at(tmp_path):
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {}}', encoding="utf-8")
    assert found_in(tmp_path).problems == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"name": "shout", "mcp": {"server": "a"}}', ""),
        ('{"openapi": "3.1.0", "servers": [{"url": "https://a.example"}]}', "unrecognised_file"),
        ('{"asyncapi": "2.6.0", "servers": {"a": {"url": "b", "protocol": "kafka"}}}', "unrecognised_file"),
        ('{"name": "shout", "servers": {"a": }', "invalid_json"),
    ],
)
def test_what_is_none_is_dealt_with_as_ever(tmp_path, text, code):
    (tmp_path / "some.json").write_text(text, encoding="utf-8")
    problems = found_in(tmp_path).problems
    assert [problem.code for problem in problems if problem.code != "mode_not_installed"] == (
        [code] if code else []
    )
