"""`toolcrib call --save-example` adds a call to the descriptor of its tool."""

from __future__ import annotations

import json

import pytest

from toolcrib.cli import exit_codes

COUNT = """# How many there are.
name: count
coerce: safe
input_schema:
  type: object
  properties: {of: {type: string}, most: {type: integer, default: 9}, token: {type: string, format: password}}
  required: [of]
output_schema: {type: integer}
mock: {result: "{{ args.of | length }}"}  # letters
"""
FILE = "descriptors/count.tool.yaml"


@pytest.fixture
def count(write):
    return write({FILE: COUNT}) / FILE


def test_the_call_is_added_and_run_as_an_example(count, toolcrib, document):
    result = toolcrib("call", "count", "of=tea", "most=3", "--save-example")
    assert (result.exit_code, result.stdout) == (0, "3\n")
    assert result.stderr == f"saved as example 1 of `count` ({FILE}:2)\n"
    # Coerced, since examples are not, and without the defaults.
    assert count.read_text() == COUNT + "examples:\n  - {args: {of: tea, most: 3}, result: 3}\n"
    assert toolcrib("call", "count", "of=milk", "--save-example").exit_code == 0
    assert count.read_text().endswith("result: 3}\n  - {args: {of: milk}, result: 4}\n")
    assert document("run", "--json")["passed"] == 1
    assert document("validate", "--json")["problems"] == []


def test_with_json_stdout_holds_the_result_alone(count, document):
    assert document("call", "count", "of=tea", "--json", "--save-example")["result"] == 3


def test_an_example_that_exists_is_not_added_again(count, toolcrib):
    toolcrib("call", "count", "of=tea", "--save-example")
    before = count.read_text()
    result = toolcrib("call", "count", "of=tea", "--save-example")
    assert (result.exit_code, count.read_text()) == (0, before)
    assert result.stderr == f"the call is an example of `count` already ({FILE}:2)\n"


def test_one_that_contradicts_an_example_is_refused(count, toolcrib):
    count.write_text(f"{COUNT}examples: [{{args: {{of: tea}}, result: 4}}]\n")
    before = count.read_text()
    result = toolcrib("call", "count", "of=tea", "--save-example")
    assert (result.exit_code, count.read_text()) == (exit_codes.PROBLEMS, before)
    assert f"{FILE}:2 has an example with these arguments and another result" in result.stderr


def refused(toolcrib, count, *words, code=exit_codes.PROBLEMS):
    before = count.read_bytes()
    result = toolcrib("call", *words, "--save-example")
    assert (result.exit_code, count.read_bytes()) == (code, before)
    return result.stderr


def test_a_call_that_fails_is_no_example(count, write, toolcrib):
    write({"descriptors/f.tool.yaml": "name: f\nmock: {error: {code: broken, message: It broke.}}\n"})
    why = "the call was not saved: only a successful call can be an example\n"
    assert refused(toolcrib, count, "f", code=10).endswith(why)
    assert refused(toolcrib, count, "count", "most=x", code=11).endswith(why)
    assert refused(toolcrib, count, "nosuch", code=13).endswith(why)


def test_a_secret_is_not_written_to_a_file(count, toolcrib):
    told = refused(toolcrib, count, "count", "of=tea", "token=zq-4471-kfw")
    assert "hold a secret, which must not be written to a file" in told
    assert "zq-4471-kfw" not in told


def test_a_read_only_file_is_left_alone(count, toolcrib):
    count.chmod(0o444)
    assert f"the call was not saved: {FILE} is read-only" in refused(toolcrib, count, "count", "of=tea")


def test_the_file_keeps_its_mode_and_a_link_stays_one(count, toolcrib):
    count.chmod(0o600)
    target = count.with_name("target.txt")
    count.rename(target)
    count.symlink_to(target.name)
    assert toolcrib("call", "count", "of=tea", "--save-example").exit_code == 0
    assert (count.is_symlink(), target.stat().st_mode & 0o777) == (True, 0o600)
    assert "examples:" in target.read_text()


def test_a_json_descriptor_stays_json(write, toolcrib):
    tool = {"name": "t", "mock": {"result": {"a": [1]}}}
    path = write({"descriptors/t.json": json.dumps(tool, indent=4)}) / "descriptors/t.json"
    assert toolcrib("call", "t", "--save-example").exit_code == 0
    assert json.loads(path.read_text()) == tool | {"examples": [{"args": {}, "result": {"a": [1]}}]}
    assert path.read_text().startswith('{\n    "name": "t",\n    "mock"')


def test_the_document_of_the_tool_gets_it(write, toolcrib):
    path = write({"descriptors/two.yaml": "name: a\nmock: {result: 1}\n---\nname: b\nmock: {result: 2}\n"})
    assert toolcrib("call", "b", "--save-example").exit_code == 0
    text = (path / "descriptors/two.yaml").read_text()
    assert text == (
        "name: a\nmock: {result: 1}\n---\nname: b\nmock: {result: 2}\nexamples:\n  - {args: {}, result: 2}\n"
    )


FOREIGN = {
    "descriptors/t.yaml": "apiVersion: promptkit.altairalabs.ai/v1alpha1\nkind: Tool\nmetadata: {name: t}\nspec:\n"
    "  description: T.\n  mode: mock\n  input_schema: {type: object}\n  output_schema: {type: object}\n"
    "  mock_result: {a: 1}\n",
    "descriptors/two_in_a_line.json": '[{"name": "t", "mock": {"result": 1}}, {"name": "u", "mock": {"result": 1}}]',
}


@pytest.mark.parametrize(("name", "text"), FOREIGN.items(), ids=FOREIGN)
def test_a_file_that_can_not_take_it_is_left_alone(name, text, write, toolcrib):
    path = write({name: text}) / name
    told = refused(toolcrib, path, "t")
    assert told.startswith(f"Error: the call was not saved: the layout of {name}:")
    assert told.endswith(" does not allow it; add the example by hand\n")


def test_a_tool_in_an_archive_is_not_changed(write, toolcrib):
    write(
        {
            "p/pack.yaml": 'name: p\nversion: "1.0.0"\ntools: ["*.tool.yaml"]\n',
            "p/t.tool.yaml": "name: t\nmock: {result: 1}\n",
        }
    )
    write({"descriptors/t.yaml": "name: other\nmock: {result: 1}\n"})
    built = toolcrib("pack", "build", "p", "-o", "p.zip")
    assert built.exit_code == 0, built.stderr
    result = toolcrib("call", "t", "--pack", "p.zip", "--save-example")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        "has no descriptor file that can be changed; `toolcrib export descriptor` writes one" in result.stderr
    )


def test_a_dry_run_has_nothing_to_save(count, toolcrib):
    assert "makes no call that `--save-example` could save" in refused(
        toolcrib, count, "count", "of=a", "--dry-run", code=exit_codes.USAGE
    )


def test_a_call_that_continues_from_a_file_is_no_example(count, toolcrib):
    assert "since examples start from the store of the documents" in refused(
        toolcrib, count, "count", "of=a", "--state", "kept.json", code=exit_codes.USAGE
    )
