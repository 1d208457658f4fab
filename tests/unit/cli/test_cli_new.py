"""`toolcrib new` writes files that are valid, run, and are read where they are written."""

from __future__ import annotations

import json

import pytest

from toolcrib.cli import exit_codes

PROJECT = {"toolcrib.yaml": "project: p\nsources: [descriptors, packs]\n"}


def check_all(toolcrib, document, passed):
    """Everything in the working directory validates, and this many scenarios pass."""
    assert toolcrib("validate", "--strict").exit_code == 0
    run = document("run", "--json")
    assert (run["passed"], run["failed"]) == (passed, 0)


def test_a_tool_a_scenario_and_a_pack_work_at_once(write, toolcrib, document):
    write(PROJECT)
    said = toolcrib("new", "tool", "look_up")
    assert said.stdout == (
        "wrote .toolcrib/descriptor.schema.json\nwrote descriptors/look_up.tool.yaml\n\n"
        "Next:\n  toolcrib call look_up text=hello\n  toolcrib run look_up\n"
    )
    assert document("call", "look_up", "text=hello", "--json")["result"] == {"answer": "hello"}
    assert toolcrib("new", "scenario", "first").exit_code == 0
    assert toolcrib("new", "pack", "my-shop").exit_code == 0
    check_all(toolcrib, document, passed=4)


def test_without_a_project_the_default_folders_are_used(write, toolcrib, document):
    folder = write({})
    toolcrib("new", "tool", "look_up")
    assert (folder / "descriptors/look_up.tool.yaml").is_file()
    check_all(toolcrib, document, passed=1)


def test_each_file_names_a_schema_that_is_there(write, toolcrib):
    folder = write({**PROJECT, "sub/empty.txt": ""})
    for words in (("tool", "a"), ("scenario", "b"), ("pack", "c"), ("tool", "d", "--dir", "sub/deep")):
        assert toolcrib("new", *words).exit_code == 0
    paths = [path for path in folder.rglob("*.yaml") if path.name != "toolcrib.yaml"]
    assert len(paths) == 6
    for path in paths:
        lead, _, reference = path.read_text().splitlines()[0].partition("=")
        assert lead == "# yaml-language-server: $schema"
        assert json.loads((path.parent / reference).read_text())["title"].startswith("toolcrib")


@pytest.mark.parametrize(
    ("words", "existing"),
    [
        (("tool", "a"), "descriptors/a.tool.yaml"),
        (("scenario", "a", "--tool", "known"), "descriptors/a.scenario.yaml"),
        (("pack", "a"), "packs/a/pack.yaml"),
        (("pack", "a"), "packs/a/tools/a_hello.tool.yaml"),
    ],
)
def test_nothing_is_overwritten(words, existing, write, toolcrib):
    folder = write({"descriptors/k.tool.yaml": "name: known\nmock: {result: 1}\n", existing: "# mine\n"})
    before = sorted(folder.rglob("*"))
    result = toolcrib("new", *words)
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stderr == f"Error: {existing} exists; nothing was written\n"
    assert sorted(folder.rglob("*")) == before
    assert (folder / existing).read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("tool", "t"), "the tool `t` exists (descriptors/x.yaml:1)"),
        (("scenario", "s"), "the scenario `s` exists (descriptors/x.yaml:4)"),
        (("pack", "p"), "the pack `p` exists (packs/other/pack.yaml:1)"),
    ],
)
def test_a_name_that_exists_elsewhere_is_refused(words, place, write, toolcrib):
    write(
        {
            "descriptors/x.yaml": "name: t\nmock: {result: 1}\n---\nscenario: s\nsteps: [{call: t}]\n",
            "packs/other/pack.yaml": "name: p\nversion: 1.0.0\n",
        }
    )
    result = toolcrib("new", *words)
    assert (result.exit_code, result.stderr) == (
        exit_codes.PROBLEMS,
        f"Error: {place}; nothing was written\n",
    )


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("tool", "look up", "a name begins with a letter or `_`"),
        ("tool", "look up", "for example `look_up`"),
        ("tool", "../evil", "for example `evil`"),
        ("tool", "9", "a name begins with a letter or `_`"),
        ("tool", "a\n", "a name begins with a letter or `_`"),
        ("scenario", "a/b", "for example `a_b`"),
        ("scenario", "x" * 129, "at most 128 in all"),
        ("pack", "MyShop", "for example `myshop`"),
        ("pack", "..", "the name of a pack begins with a lower case letter"),
        ("tool", "\x1b[31m", "\\x1b"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule(kind, name, told, write, toolcrib):
    folder = write({})
    result = toolcrib("new", kind, name)
    assert (result.exit_code, told in result.stderr) == (exit_codes.USAGE, True)
    assert "\x1b" not in result.stderr
    assert [*folder.iterdir()] == []


def test_the_kind_is_asked_for(write, toolcrib):
    write({})
    result = toolcrib("new", "look_up")
    assert result.exit_code == exit_codes.USAGE
    assert "`look_up` is not a kind of file; write one of `toolcrib new tool look_up`" in result.stderr
    assert "did you mean `scenario`?" in toolcrib("new", "scenaro", "x").stderr
    assert "Create a tool, a scenario or a pack" in toolcrib("new", "--help").stdout


def test_in_a_pack_the_files_belong_to_it(write, toolcrib, document, monkeypatch):
    folder = write(
        {
            "toolcrib.yaml": "project: p\n",
            "packs/shop/pack.yaml": "name: shop\nversion: 1.0.0\n",
            "packs/shop/tools/.keep": "",
        }
    )
    monkeypatch.chdir(folder / "packs/shop/tools")
    assert "Next:" in toolcrib("new", "tool", "inner").stdout
    assert "Next:" in toolcrib("new", "scenario", "inner_works").stdout
    assert (folder / "packs/shop/tools/inner.tool.yaml").is_file()
    assert (folder / "packs/shop/scenarios/inner_works.scenario.yaml").is_file()
    assert (folder / ".toolcrib/scenario.schema.json").is_file()
    monkeypatch.chdir(folder)
    check_all(toolcrib, document, passed=2)


def test_a_folder_that_the_project_reads_is_chosen(write, toolcrib):
    folder = write({"toolcrib.yaml": "project: p\nsources: [library]\n", "library/a.txt": ""})
    assert toolcrib("new", "tool", "t").exit_code == 0
    assert (folder / "library/t.tool.yaml").is_file()
    write(
        {
            "toolcrib.yaml": "project: p\nsources: [one.tool.yaml]\n",
            "one.tool.yaml": "name: o\nmock: {result: 1}\n",
        }
    )
    result = toolcrib("new", "tool", "u")
    assert (result.exit_code, "name one with `--dir`" in result.stderr) == (exit_codes.USAGE, True)


def test_a_folder_that_is_not_read_is_told(write, toolcrib):
    write({**PROJECT, "descriptors/.keep": "", "packs/.keep": ""})
    result = toolcrib("new", "tool", "t", "--dir", "other")
    assert (result.exit_code, "Next:" in result.stdout) == (0, False)
    assert "other/t.tool.yaml is not read here: the sources are descriptors, packs" in result.stderr
    assert "`--pack other`" in result.stderr


def test_a_folder_that_can_not_be_written_is_named(write, toolcrib):
    write({"descriptors": "a file where a folder should be"})
    result = toolcrib("new", "tool", "t")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "descriptors/t.tool.yaml cannot be written" in result.stderr


SCENARIOS = {
    "name: t\ninput_schema: {type: object, properties: {n: {type: integer, minimum: 5}}, required: [n]}\n"
    "mock: {result: '{{ args.n }}', latency: 20s}\n": ["args: {"],
    "name: t\nmock: {error: {code: broken, message: It broke.}}\n": ["expect: {outcome: tool_error}"],
    "name: t\nmode: live\nlive: {url: 'https://a.example/'}\nmock: {result: 1}\n": ["modes: {t: mock}"],
    "name: t\nlive: {url: 'https://a.example/'}\n": ["call: t"],
    "name: t\ninput_schema: {properties: {a: {type: string}}}\nexamples: [{args: {a: '{{ x }} $'}, result: {$eq: 1}}]\n"
    "mock: {result: {$eq: 1}}\n": ["{{ '{{' }} x }} $"],
}


@pytest.mark.parametrize(("descriptor", "held"), SCENARIOS.items(), ids=range(len(SCENARIOS)))
def test_a_scenario_fits_the_tool_that_it_calls(descriptor, held, write, toolcrib, document):
    folder = write({"descriptors/t.tool.yaml": descriptor})
    assert toolcrib("new", "scenario", "s").exit_code == 0
    text = (folder / "descriptors/s.scenario.yaml").read_text()
    assert all(part in text for part in held), text
    problems = document("validate", "descriptors/s.scenario.yaml", "--json")["problems"]
    assert problems == []
    if "mock" in descriptor:
        assert document("run", "s", "--json")["passed"] == 1


def test_a_scenario_needs_a_tool(write, toolcrib):
    write({})
    result = toolcrib("new", "scenario", "s")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "there is no tool that a scenario could call; `toolcrib new tool NAME` writes one" in result.stderr
    write({"descriptors/t.tool.yaml": "name: take\nmock: {result: 1}\n"})
    result = toolcrib("new", "scenario", "s", "--tool", "tke")
    assert (result.exit_code, "did you mean `take`?" in result.stderr) == (exit_codes.USAGE, True)
