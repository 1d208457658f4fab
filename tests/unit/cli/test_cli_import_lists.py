"""`toolcrib import` of lists in files: reports, repeated imports, and files of another kind."""

from __future__ import annotations

import json

import pytest

from toolcrib.cli import exit_codes

ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}
SAY = {
    "name": "say",
    "description": "Says it.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
}


@pytest.fixture
def source(write):
    """Writes the list of tools, and returns the folder."""
    return lambda *tools: write({"tools.json": json.dumps(tools)})


def imported(toolcrib, *words):
    return toolcrib("import", "openai", "tools.json", *words)


def statuses(document, *words):
    told = document("import", "openai", "tools.json", "--json", *words)
    return {tool["key"]: tool["status"] for tool in told["tools"]}


def test_a_list_becomes_descriptors_that_run(source, toolcrib):
    folder = source(ADD, SAY)
    result = imported(toolcrib)
    assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
    assert result.stdout.splitlines() == [
        "wrote descriptors/add.tool.yaml",
        "wrote descriptors/say.tool.yaml",
    ]
    assert toolcrib("validate").exit_code == exit_codes.OK
    called = toolcrib("call", "add", "a=1", "b=2")
    assert called.exit_code == exit_codes.OF_OUTCOME["tool_error"]
    assert "not_mocked" in called.stderr
    assert (folder / ".toolcrib/imports/descriptors/openai-tools.json").is_file()


def test_a_second_import_changes_nothing(source, toolcrib):
    folder = source(ADD, SAY)
    imported(toolcrib)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = imported(toolcrib)
    assert (result.exit_code, result.stdout, result.stderr) == (exit_codes.OK, "2 tools unchanged\n", "")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert imported(toolcrib, "--check").exit_code == exit_codes.OK


def test_edits_stay_and_changes_of_the_source_arrive(source, toolcrib):
    folder = source(ADD, SAY)
    imported(toolcrib)
    file = folder / "descriptors/add.tool.yaml"
    text = (
        file.read_text()
        .replace("Adds two numbers.", "Adds.  # ours\ntags: [math]")
        .replace("type: object", "type: object  # arguments")
    )
    text = text[: text.index("mock:")] + "mock: {result: 3}  # enough\n"
    file.write_text(text)
    changed = {
        **ADD,
        "parameters": {
            **ADD["parameters"],
            "properties": {**ADD["parameters"]["properties"], "c": {"type": "number"}},
        },
    }
    source(changed, SAY)
    check = imported(toolcrib, "--check")
    assert (check.exit_code, check.stdout) == (
        exit_codes.PROBLEMS,
        "would update descriptors/add.tool.yaml\n1 tool unchanged\nthe source has changed since the last import\n",
    )
    assert file.read_text() == text
    result = imported(toolcrib)
    assert (result.exit_code, result.stdout) == (
        exit_codes.OK,
        "updated descriptors/add.tool.yaml\n1 tool unchanged\n",
    )
    assert file.read_text() == text.replace(
        "    b: {type: number}\n", "    b: {type: number}\n    c: {type: number}\n"
    )
    assert imported(toolcrib, "--check").exit_code == exit_codes.OK


def test_a_conflict_is_reported_and_nothing_of_it_is_written(source, toolcrib, document):
    folder = source(ADD)
    imported(toolcrib)
    file = folder / "descriptors/add.tool.yaml"
    file.write_text(file.read_text().replace("Adds two numbers.", "Adds what I say."))
    source(
        {**ADD, "description": "Adds any numbers.", "parameters": {**ADD["parameters"], "required": ["a"]}}
    )
    told = document("import", "openai", "tools.json", "--json", "--dry-run")
    (tool,) = told["tools"]
    assert tool["status"] == "conflict"
    assert tool["changed"] == ["/input_schema/required"]
    assert tool["conflicts"] == [
        {
            "pointer": "/description",
            "base": "Adds two numbers.",
            "ours": "Adds what I say.",
            "theirs": "Adds any numbers.",
        }
    ]
    result = imported(toolcrib)
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stderr == (
        'descriptors/add.tool.yaml: conflict at /description: the file has "Adds what I say.", the source has '
        '"Adds any numbers."; the file was not changed there\n'
    )
    assert "Adds what I say." in file.read_text()
    assert "required: [a]\n" in file.read_text()
    assert statuses(document) == {"add": "unchanged"}
    assert imported(toolcrib, "--force").exit_code == exit_codes.OK
    assert "Adds any numbers." in file.read_text()


def test_tools_that_are_gone_are_reported_and_stay(source, toolcrib, document):
    folder = source(ADD, SAY)
    imported(toolcrib)
    source(ADD)
    assert imported(toolcrib, "--check").exit_code == exit_codes.PROBLEMS
    result = imported(toolcrib)
    assert result.exit_code == exit_codes.OK
    assert (
        result.stderr
        == "descriptors/say.tool.yaml: the source no longer has `say`; the file was not deleted\n"
    )
    assert (folder / "descriptors/say.tool.yaml").is_file()
    assert imported(toolcrib, "--check").exit_code == exit_codes.OK
    (folder / "descriptors/say.tool.yaml").unlink()
    assert statuses(document) == {"add": "unchanged"}
    source(ADD, SAY)
    assert statuses(document) == {"add": "unchanged", "say": "written"}


def test_tools_that_are_not_selected_are_not_gone(source, toolcrib, document):
    source(ADD, SAY)
    imported(toolcrib)
    assert statuses(document, "--only", "add") == {"add": "unchanged"}
    assert statuses(document) == {"add": "unchanged", "say": "unchanged"}


def test_a_file_that_was_moved_is_found_and_one_that_was_deleted_stays_away(source, toolcrib, document):
    folder = source(ADD, SAY)
    imported(toolcrib)
    (folder / "descriptors/math").mkdir()
    (folder / "descriptors/add.tool.yaml").rename(folder / "descriptors/math/sum.tool.yaml")
    (folder / "descriptors/say.tool.yaml").unlink()
    source({**ADD, "description": "Adds."}, {**SAY, "description": "Says."})
    result = imported(toolcrib)
    assert result.stdout == "updated descriptors/math/sum.tool.yaml\n"
    assert result.stderr.splitlines() == [
        "descriptors/math/sum.tool.yaml was descriptors/add.tool.yaml at the last import",
        "descriptors/say.tool.yaml was deleted and is not written again; use `--force` to restore it",
    ]
    assert "description: Adds.\n" in (folder / "descriptors/math/sum.tool.yaml").read_text()
    assert statuses(document) == {"add": "unchanged", "say": "deleted"}
    assert imported(toolcrib, "--force").stdout == "wrote descriptors/say.tool.yaml\n1 tool unchanged\n"


def test_two_tools_in_one_file_are_told_apart(source, toolcrib):
    folder = source(ADD, SAY)
    imported(toolcrib)
    one, two = folder / "descriptors/add.tool.yaml", folder / "descriptors/say.tool.yaml"
    one.write_text(one.read_text() + "---\n" + two.read_text())
    two.unlink()
    source(ADD, {**SAY, "description": "Says it aloud."})
    result = imported(toolcrib)
    assert (
        result.stderr
        == "descriptors/say.tool.yaml was deleted and is not written again; use `--force` to restore it\n"
    )
    source({**ADD, "description": "Adds."}, SAY)
    assert imported(toolcrib).stdout == "updated descriptors/add.tool.yaml\n"
    assert "description: Adds.\n" in one.read_text()
    assert "description: Says it.\n" in one.read_text()


def test_an_unedited_file_is_what_a_fresh_import_writes(source, toolcrib):
    folder = source(ADD, SAY)
    imported(toolcrib)
    source({**ADD, "description": "A\nlonger\ntext"}, {**SAY, "parameters": {"type": "object"}})
    imported(toolcrib)
    imported(toolcrib, "--out", "fresh")
    for name in ("add", "say"):
        assert (folder / f"descriptors/{name}.tool.yaml").read_text() == (
            folder / f"fresh/{name}.tool.yaml"
        ).read_text()


def test_a_renamed_tool_follows_its_key(source, toolcrib):
    folder = source(ADD, SAY)
    imported(toolcrib)
    edited = folder / "descriptors/say.tool.yaml"
    edited.write_text(edited.read_text() + "# mine\n")
    result = imported(toolcrib, "--prefix", "my_")
    assert result.stdout.splitlines() == [
        "updated descriptors/my_add.tool.yaml",
        "descriptors/my_add.tool.yaml replaces descriptors/add.tool.yaml: the tool was renamed",
        "updated descriptors/say.tool.yaml",
    ]
    assert not (folder / "descriptors/add.tool.yaml").exists()
    assert edited.read_text().startswith("name: my_say\n")
    assert edited.read_text().endswith("# mine\n")


def test_a_file_of_somebody_else_is_left_alone_unless_it_is_equal(source, toolcrib, document):
    folder = source(ADD, SAY)
    imported(toolcrib)
    (folder / ".toolcrib/imports/descriptors/openai-tools.json").unlink()
    file = folder / "descriptors/say.tool.yaml"
    file.write_text("name: say\nmock: {result: mine}\n")
    assert statuses(document) == {"add": "unchanged", "say": "existing"}
    assert imported(toolcrib).exit_code == exit_codes.PROBLEMS
    assert file.read_text() == "name: say\nmock: {result: mine}\n"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("description: Adds two numbers.", "? description\n: Adds two numbers.", "its layout"),
        ("name: add", "name: [add", "the file has errors"),
        ("name: add", "name: one\n---\nname: two", "the file contains no such tool"),
    ],
)
def test_a_file_that_cannot_be_changed_stays(source, toolcrib, before, after, why):
    folder = source(ADD)
    imported(toolcrib)
    file = folder / "descriptors/add.tool.yaml"
    text = file.read_text().replace(before, after)
    file.write_text(text)
    source({**ADD, "description": "Adds."})
    result = imported(toolcrib)
    assert result.exit_code == exit_codes.PROBLEMS
    assert f"the changes of the source were not written: {why}" in result.stderr
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        ("{", "damaged_import_record", "is not the record of an import"),
        ("[]", "damaged_import_record", "it has no `format`"),
        ('{"format": "toolcrib-import/9"}', "newer_import_record", "update toolcrib"),
        ('{"format": "toolcrib-import/1"}', "damaged_import_record", "`kind` is missing"),
        (
            '{"format": "toolcrib-import/1", "kind": "openai", "source": "tools.json", "refused": {}, "tools": {"add": {"file": "../x", "descriptor": {}}}}',
            "damaged_import_record",
            "is not a path in the project",
        ),
    ],
)
def test_a_damaged_or_newer_record_is_refused_and_stays(source, toolcrib, content, code, says):
    folder = source(ADD)
    imported(toolcrib)
    record = folder / ".toolcrib/imports/descriptors/openai-tools.json"
    record.write_text(content)
    source({**ADD, "description": "Changed."})
    result = imported(toolcrib)
    assert result.exit_code == exit_codes.USAGE
    assert says in result.stderr
    assert record.read_text() == content
    assert "Changed." not in (folder / "descriptors/add.tool.yaml").read_text()


def test_records_of_other_sources_are_not_mixed_up(source, write, toolcrib):
    source(ADD)
    imported(toolcrib)
    write({"other/tools.json": json.dumps([SAY])})
    result = toolcrib("import", "openai", "other/tools.json")
    assert result.exit_code == exit_codes.USAGE
    assert "is the record of `toolcrib import openai tools.json`" in result.stderr
    assert "--record NAME" in result.stderr
    assert toolcrib("import", "openai", "other/tools.json", "--record", "other").exit_code == exit_codes.OK


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a\nb"])
def test_a_record_stays_in_its_folder(source, toolcrib, name):
    folder = source(ADD)
    result = imported(toolcrib, "--record", name)
    assert result.exit_code == exit_codes.USAGE
    assert "is not a file name" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["tools.json"]


def test_the_record_is_the_same_on_every_run(source, toolcrib):
    folder = source(ADD, SAY)
    imported(toolcrib)
    record = folder / ".toolcrib/imports/descriptors/openai-tools.json"
    first = record.read_bytes()
    record.unlink()
    source(SAY, ADD)
    imported(toolcrib)
    assert record.read_bytes() == first


OTHERS = {
    "openapi": ('{"openapi": "3.1.0", "paths": {}}', "an OpenAPI description", "toolcrib import openapi"),
    "swagger": ('{"swagger": "2.0", "paths": {}}', "a Swagger description", "toolcrib import openapi"),
    "har": ('{"log": {"entries": []}}', "a browser recording (HAR)", "toolcrib import har"),
    "postman": ('{"info": {"name": "x"}, "item": []}', "a Postman collection", "toolcrib import postman"),
    "utcp": ('{"utcp_version": "1.0", "tools": []}', "a UTCP manual", "toolcrib import utcp"),
    "higress": (
        "tools:\n- name: a\n  requestTemplate: {url: x}\n",
        "a Higress configuration",
        "toolcrib import higress",
    ),
    "mci": ('{"schemaVersion": "1.0", "tools": []}', "an MCI file", "toolcrib import mci"),
    "mcp": ('[{"name": "a", "inputSchema": {}}]', "a list of MCP tools", "toolcrib import mcp"),
    "anthropic": (
        '[{"name": "a", "input_schema": {}}]',
        "a list of Anthropic tools",
        "toolcrib import anthropic",
    ),
    "gemini": (
        '[{"functionDeclarations": []}]',
        "a list of Gemini function declarations",
        "toolcrib import gemini",
    ),
    "promptpack": ('{"prompts": {}, "template_engine": {}}', "a PromptPack", "toolcrib import promptpack"),
    "arena": ("apiVersion: v1\nkind: Arena\n", "a PromptKit arena", "toolcrib import promptkit"),
    "client": ('{"mcpServers": {}}', "a configuration of an MCP client", "servers_from"),
    "descriptor": (
        '{"name": "a", "input_schema": {}, "mode": "mock"}',
        "a descriptor of toolcrib",
        "reads it as it is",
    ),
    "schema": ('{"$schema": "x", "type": "object"}', "a JSON Schema", "input_schema"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_kind_says_what_it_looks_like(write, toolcrib, kind):
    text, label, way_out = OTHERS[kind]
    write({"file.yaml": text})
    result = toolcrib("import", "openai", "file.yaml")
    assert result.exit_code == exit_codes.USAGE
    assert f"file.yaml is not a list of OpenAI tools; it looks like {label}" in result.stderr
    assert way_out in result.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "it is an empty list"),
        ("{}", "it is an empty object"),
        ('{"a": 1}', "it is an object with `a`"),
        ("[1, 2]", "it is a list of 2 elements that are no tools"),
        ("5", "it is a single value"),
        ("some text", "it is a text"),
        ("", "it is empty"),
        ("[" * 5000, "file.json:1:1: invalid_json: invalid JSON: it is nested too deeply"),
        ("[{]", "file.json:1:3: invalid_json"),
        ('{"a": 1, "a": 2}', "invalid_json"),
    ],
)
def test_a_file_that_is_nothing_known(write, toolcrib, text, says):
    write({"file.json": text})
    result = toolcrib("import", "openai", "file.json")
    assert result.exit_code == exit_codes.USAGE
    assert says in result.stderr


def test_files_that_cannot_be_read(write, toolcrib):
    write({"folder/x": ""})
    for path, says in (("none.json", "No such file"), ("folder", "folder")):
        result = toolcrib("import", "openai", path)
        assert result.exit_code == exit_codes.USAGE
        assert says in result.stderr


def test_a_saved_list_of_mcp_tools(write, toolcrib):
    folder = write(
        {
            "list.json": json.dumps(
                {
                    "result": {
                        "tools": [
                            {
                                "name": "a",
                                "inputSchema": {"type": "object"},
                                "outputSchema": {
                                    "type": "object",
                                    "properties": {"n": {"type": "integer"}},
                                    "required": ["n"],
                                },
                            }
                        ]
                    }
                }
            )
        }
    )
    assert toolcrib("import", "mcp", "list.json").stdout == "wrote descriptors/a.tool.yaml\n"
    assert "mock: {generate: true}" in (folder / "descriptors/a.tool.yaml").read_text()
    assert isinstance(json.loads(toolcrib("call", "a").stdout)["n"], int)


def test_losses_repairs_and_secrets_are_reported(write, toolcrib, document):
    key = "sk-" + "proj-abcDEF123456abcDEF123456"
    tools = [
        {"name": "a", "description": f"Pass {key}.", "parameters": {"type": "dict"}, "cost": 5},
        {"name": "b", "parameters": {"type": "object", "properties": {"x": {"type": "List[Foo]"}}}},
    ]
    write({"tools.json": json.dumps(tools)})
    result = toolcrib("import", "functions", "tools.json")
    assert result.exit_code == exit_codes.OK
    assert result.stderr.splitlines() == [
        "lost: `a`: `cost` has no counterpart in a descriptor (at /0/cost)",
        "repaired: `a`: the type `dict` is read as `object` (at /0/parameters/type)",
        "repaired: `b`: the type `List[Foo]` is read as `array` (at /1/parameters/properties/x/type)",
        "secret: `a`: a secret was replaced by `${OPENAI_API_KEY}` (at /description of the descriptor)",
    ]
    told = document("import", "functions", "tools.json", "--json")
    assert [len(told[part]) for part in ("lost", "repaired", "secrets", "refused")] == [1, 2, 1, 0]


def test_the_tools_of_a_published_benchmark(shared_data, toolcrib, write):
    write({})
    result = toolcrib("import", "functions", str(shared_data / "tau-retail" / "tools.json"))
    assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
    assert len(result.stdout.splitlines()) == 16
    assert toolcrib("validate").stdout.startswith("16 tools")
