"""`toolcrib import mcp`, with a real server."""

from __future__ import annotations

import json
import sys

import pytest

from mcp_listing import listing
from toolcrib.cli import exit_codes

ADD = {
    "name": "add",
    "title": "Adds",
    "description": "Adds two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    "annotations": {"readOnlyHint": True},
}
SAY = {"name": "say-it", "inputSchema": {"type": "object"}}
BAD = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "texts"}}}}


@pytest.fixture
def client(write):
    """A folder with a client's file that names the server `calc`, which offers some tools."""

    def put(*tools, **files):
        folder = write({"tools.json": json.dumps(tools), **files})
        servers = {"mcpServers": {"calc": listing(folder / "tools.json")}}
        return write({".mcp.json": json.dumps(servers)})

    return put


def test_a_file_is_written_for_each_tool_and_works(client, write, toolcrib):
    folder = client(ADD, SAY)
    result = toolcrib("import", "mcp", "calc", "--out", "descriptors", "--mcp", ".mcp.json")
    assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
    assert result.stdout.splitlines() == [
        "wrote descriptors/calc__add.tool.yaml",
        "wrote descriptors/calc__say-it.tool.yaml",
        "",
        "To use the server `calc` in a project, add `servers_from: .mcp.json` to its `toolcrib.yaml`.",
    ]
    assert (
        (folder / "descriptors/calc__add.tool.yaml")
        .read_text()
        .startswith(
            "name: calc__add\ntitle: Adds\ndescription: Adds two numbers.\nannotations: {read_only: true}\n\ninput_schema:\n"
        )
    )
    write({"toolcrib.yaml": "project: calc\nservers_from: .mcp.json\n"})
    assert toolcrib("validate").exit_code == exit_codes.OK
    called = toolcrib("call", "calc__add", "a=1", "b=2.5")
    assert json.loads(called.stdout) == {"tool": "add", "arguments": {"a": 1, "b": 2.5}}
    assert toolcrib("call", "calc__add", "a=x").exit_code == exit_codes.OF_OUTCOME["invalid_arguments"]


def test_a_server_of_the_project_is_imported_with_its_filters(client, write, toolcrib):
    folder = client(ADD, SAY)
    entry = listing(folder / "tools.json")
    server = {**entry, "import": {"except": ["say*"]}}
    write({"toolcrib.yaml": json.dumps({"project": "calc", "servers": {"calc": server}})})
    result = toolcrib("import", "mcp", "calc", "--out", "new/folder")
    assert result.stdout.splitlines() == ["wrote new/folder/calc__add.tool.yaml"]
    assert result.stderr.splitlines() == ["1 tool skipped by `only` and `except` of toolcrib.yaml:1: say-it"]
    assert result.exit_code == exit_codes.OK


def test_what_is_not_as_it_was_locked_gets_no_file(client, write, toolcrib):
    folder = client(ADD, SAY)
    server = listing(folder / "tools.json")
    write({"toolcrib.yaml": json.dumps({"project": "calc", "servers": {"calc": server}, "lock": "block"})})
    assert toolcrib("lock").exit_code == exit_codes.OK
    client({**ADD, "description": "Adds, and tells everybody."}, SAY)
    result = toolcrib("import", "mcp", "calc")
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stdout.splitlines() == ["wrote descriptors/calc__say-it.tool.yaml"]
    assert "no file for `add`: " in result.stderr


def test_what_exists_is_left_alone_unless_it_is_forced(client, toolcrib):
    folder = client(ADD, SAY)
    words = ("import", "mcp", "calc", "--mcp", ".mcp.json")
    file = folder / "descriptors/calc__add.tool.yaml"
    file.parent.mkdir()
    file.write_text("mine")
    result = toolcrib(*words)
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stdout.splitlines()[0] == "wrote descriptors/calc__say-it.tool.yaml"
    assert (
        result.stderr
        == "descriptors/calc__add.tool.yaml already exists and was not changed; use `--force` to overwrite it\n"
    )
    assert file.read_text() == "mine"
    assert toolcrib(*words, "--force").exit_code == exit_codes.OK
    assert file.read_text().startswith("name: calc__add")


def test_globs_choose_tools_by_the_names_of_the_server(client, toolcrib):
    client(ADD, SAY, {**SAY, "name": "say-no"})
    words = ("import", "mcp", "calc", "--mcp", ".mcp.json", "--prefix", "")
    result = toolcrib(*words, "--only", "say*", "--only", "addd", "--except", "*no")
    assert result.stdout.splitlines()[0] == "wrote descriptors/say-it.tool.yaml"
    assert result.stderr.splitlines() == ["no tool is named `addd`; did you mean `add`?"]
    nothing = toolcrib(*words, "--only", "zzz")
    assert (nothing.exit_code, nothing.stdout) == (exit_codes.PROBLEMS, "")
    assert nothing.stderr.splitlines() == [
        "no tool is named `zzz`; its tools are: `add`, `say-it`, `say-no`",
        "nothing was written",
    ]


def test_a_bad_tool_is_told_and_hides_no_other(client, toolcrib):
    client(BAD, ADD)
    result = toolcrib("import", "mcp", "calc", "--mcp", ".mcp.json")
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stdout.splitlines()[0] == "wrote descriptors/calc__add.tool.yaml"
    assert result.stderr.startswith("no file for `bad`: ")


def test_warnings_of_a_tool_are_told_at_their_place_in_the_file(client, toolcrib):
    odd = {
        "name": "odd",
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "default": "x"}}},
    }
    client(odd)
    result = toolcrib("import", "mcp", "calc", "--mcp", ".mcp.json")
    assert result.exit_code == exit_codes.OK
    assert result.stderr.startswith("descriptors/calc__odd.tool.yaml:5:46: ")
    assert "default_mismatch" in result.stderr


def test_what_was_written_and_what_not_as_json(client, document):
    client(BAD, ADD, {**SAY, "description": "hid\u200bden"})
    told = document("import", "mcp", "calc", "--mcp", ".mcp.json", "--json")
    assert [(each["key"], each["name"], each["file"], each["status"]) for each in told["tools"]] == [
        ("add", "calc__add", "descriptors/calc__add.tool.yaml", "written"),
        ("say-it", "calc__say-it", "descriptors/calc__say-it.tool.yaml", "written"),
    ]
    assert [each["key"] for each in told["refused"]] == ["bad"]
    assert told["remarks"][0].startswith("the tool `say-it` contains 1 hidden character")


def test_files_name_the_schema_of_the_project_for_editors(client, toolcrib):
    folder = client(ADD, **{".toolcrib/descriptor.schema.json": "{}"})
    toolcrib("import", "mcp", "calc", "--mcp", ".mcp.json", "--out", "a/b")
    first = (folder / "a/b/calc__add.tool.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../../.toolcrib/descriptor.schema.json"


def test_a_server_that_is_not_there_is_told_with_near_ones(client, toolcrib):
    client(ADD)
    result = toolcrib("import", "mcp", "clac", "--mcp", ".mcp.json")
    assert result.exit_code == exit_codes.USAGE
    assert "unknown server `clac`" in result.stderr
    assert "did you mean `calc`?" in result.stderr


def test_a_server_that_does_not_start_is_unavailable(write, toolcrib):
    entry = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no beans')"]}
    write({".mcp.json": json.dumps({"mcpServers": {"calc": entry}})})
    result = toolcrib("import", "mcp", "calc", "--mcp", ".mcp.json")
    assert result.exit_code == exit_codes.OF_OUTCOME["unavailable"]
    assert "no beans" in result.stderr
    assert result.stdout == ""


def test_a_folder_that_can_not_be_written_is_told(client, toolcrib):
    folder = client(ADD)
    (folder / "file").write_text("")
    result = toolcrib("import", "mcp", "calc", "--mcp", ".mcp.json", "--out", "file/below")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "cannot be written" in result.stderr
