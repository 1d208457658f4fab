"""Files of servers in a runtime: opened by themselves, put in force when they change, kept by an index."""

from __future__ import annotations

import json

import pytest

from kept import Shelf, assert_same
from toolcrib import Runtime

TOOL = "name: shout\ninput_schema: {type: object}\nmock: {result: 1}\n"


def client_file(path, **commands):
    """The file of a client with a server for each command."""
    path.write_text(json.dumps({"mcpServers": {name: {"command": text} for name, text in commands.items()}}))


@pytest.fixture
def project(tmp_path):
    """A project that names a file of servers."""
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "shout.yaml").write_text(TOOL)
    (tmp_path / "toolcrib.yaml").write_text(
        "project: p\nservers_from: .mcp.json\nservers: {a: {import: false}, b: {import: false}}\n"
    )
    client_file(tmp_path / ".mcp.json", a="one", b="two")
    return tmp_path


def commands(runtime):
    return {name: server.command for name, server in runtime.servers.items()}


async def test_a_file_that_changes_is_put_in_force(project):
    runtime = Runtime.open(project, index=False)
    assert commands(runtime) == {"a": "one", "b": "two"}
    client_file(project / ".mcp.json", a="one", b="three")
    report = await runtime.reload()
    assert commands(runtime) == {"a": "one", "b": "three"}
    assert report.files == (str(project / ".mcp.json"),)
    await runtime.aclose()


async def test_a_file_that_breaks_leaves_in_force_what_was(project):
    runtime = Runtime.open(project, index=False)
    (project / ".mcp.json").write_text("{")
    await runtime.reload()
    assert commands(runtime) == {"a": "one", "b": "two"}
    assert [problem.code for problem in runtime.problems] == ["invalid_json"]
    client_file(project / ".mcp.json", a="four", b="five")
    await runtime.reload()
    assert commands(runtime) == {"a": "four", "b": "five"}
    assert runtime.problems == ()
    await runtime.aclose()


async def test_a_file_that_goes_leaves_in_force_what_was(project):
    runtime = Runtime.open(project, index=False)
    (project / ".mcp.json").unlink()
    await runtime.reload()
    assert commands(runtime) == {"a": "one", "b": "two"}
    assert [problem.code for problem in runtime.problems] == ["path_not_found"]
    await runtime.aclose()


async def test_a_file_is_opened_by_itself(tmp_path):
    client_file(tmp_path / ".mcp.json", a="one")
    runtime = Runtime.open(tmp_path / ".mcp.json", index=False)
    assert commands(runtime) == {"a": "one"}
    assert runtime.problems == ()
    await runtime.aclose()


def test_an_index_keeps_the_servers_until_their_file_changes(project, tmp_path_factory):
    shelf = Shelf(tmp_path_factory.mktemp("index"), str(project))
    cold = shelf.keep()
    warm = shelf.recall()
    assert_same(warm, cold)
    assert warm.servers == cold.servers
    client_file(project / ".mcp.json", a="one", b="three")
    assert shelf.recall() is None
