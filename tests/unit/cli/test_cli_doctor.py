"""`toolcrib doctor`: it names what is wrong with each part, and never fails itself."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import toolcrib as package
from sampling import sample

PROJECT = """project: demo
sources: [descriptors, {path: team, namespace: team}]
ignore: [descriptors/old/**]
defaults: {timeout: 2s}
disable: [fail*]
toolsets: {words: [echo]}
profile: dev
profiles:
  dev: {modes: {"*": mock}}
  ci: {extends: dev, toolset: words, enable: [failing]}
"""


@pytest.fixture
def project(tools, write, monkeypatch):
    """Tools as a project that is in order."""
    for name in ("TOOLCRIB_PROFILE", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return write(
        {
            "toolcrib.yaml": PROJECT,
            "team/greet.tool.yaml": "name: greet\nmock: {result: hi}\n",
            "descriptors/old/vintage.yaml": "name: vintage\nmock: {result: 1}\n",
        }
    )


@pytest.fixture
def doctor(toolcrib):
    """(exit code, lines) of a visit."""

    def run(*words):
        result = toolcrib("doctor", *words)
        assert result.stderr == ""
        return result.exit_code, result.stdout.splitlines()

    return run


def test_a_project_in_order_is_told_with_the_place_of_everything(project, doctor):
    code, lines = doctor()
    assert code == 0
    assert lines[0].startswith(f"toolcrib {package.__version__} on Python {sys.version.split()[0]}")
    start = lines.index("project demo (toolcrib.yaml)")
    end = lines.index("4 tools")
    assert lines[start:end] == [
        "project demo (toolcrib.yaml)",
        "  profile   dev, chosen by `profile` in toolcrib.yaml:7",
        "  modes     * -> mock  (toolcrib.yaml:9 (profile dev))",
        "  defaults  timeout: 2s  (toolcrib.yaml:4)",
        "  disabled  fail*  (toolcrib.yaml:5)",
        "  toolset   none active; defined: words",
        "  sources   descriptors  folder  3 tools",
        "            team         folder  1 tool   as team__...",
        "  ignored   1 file: descriptors/old/vintage.yaml",
        lines[end - 2],
        "",
    ]
    assert lines[end - 2].startswith("  index     none yet  (")
    assert lines[end:] == [
        "4 tools",
        "  in mode mock  2",
        "  unavailable   `later` is unbound: add a `a2a:` or `client:` or `exec:` or `live:` or `mcp:` or `mock:` or `python:` block to descriptors/later.tool.yaml:2",
        "  not offered   `failing` is disabled by `fail*` in toolcrib.yaml:5",
        "",
        "No problems found.",
    ]


def test_another_profile_is_told_with_what_chose_it(project, doctor, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_PROFILE", "ci")
    _code, lines = doctor()
    assert "  profile   ci, chosen by TOOLCRIB_PROFILE, extends dev" in lines
    assert "  toolset   words  (toolcrib.yaml:10 (profile ci))" in lines
    assert "  enabled   failing  (toolcrib.yaml:10 (profile ci))" in lines
    assert "  environment   TOOLCRIB_PROFILE=ci selects the profile" in lines


def test_all_of_it_is_one_json_document(project, document):
    told = document("doctor", "--json")
    assert told["healthy"] is True
    assert told["findings"] == told["problems"] == []
    assert told["toolcrib"]["packages"]["click"]
    assert told["modes"]["mock"]["fault"] is None
    assert told["modes"]["mock"]["distribution"] == f"toolcrib {package.__version__}"
    assert told["profile"]["name"] == "dev"
    assert [(source["path"], source["kind"], source["tools"]) for source in told["sources"]] == [
        ("descriptors", "folder", 3),
        ("team", "folder", 1),
    ]
    assert told["tools"]["codes"] == {"disabled": 1}
    assert told["ignored"] == ["descriptors/old/vintage.yaml"]


def test_without_a_project_the_places_that_were_looked_at_are_told(tools, doctor, monkeypatch):
    monkeypatch.setenv("HOME", str(tools))
    code, lines = doctor()
    assert code == 0
    start = lines.index("no project")
    assert lines[start + 1 : start + 3] == ["  looked in  .", "  sources    descriptors  folder  3 tools"]


BROKEN = {
    "no yaml": ({"toolcrib.yaml": "project: x\nprofiles: {a: {modes: [}\n"}, "toolcrib.yaml:2:"),
    "empty": ({"toolcrib.yaml": ""}, "toolcrib.yaml:1:1: empty_document"),
    "unknown key": ({"toolcrib.yaml": "project: x\nsorces: []\n"}, "toolcrib.yaml:2:1: unknown_key"),
    "missing source": (
        {"toolcrib.yaml": "project: x\nsources: [descriptors, ../nowhere]\n"},
        "`../nowhere` does not exist",
    ),
    "no such pack": (
        {"toolcrib.yaml": "project: x\nsources: [{pack: acme-tools}]\n"},
        "no installed distribution provides pack `acme-tools`",
    ),
    "unknown mode": (
        {"toolcrib.yaml": 'project: x\nprofile: a\nprofiles: {a: {modes: {"*": mokc}}}\n'},
        "toolcrib.yaml:3 (profile a) selects the unknown mode `mokc`",
    ),
    "no archive": (
        {"toolcrib.yaml": "project: x\nsources: [a.zip]\n", "a.zip": "no zip"},
        "a.zip: archive_damaged",
    ),
    "refused tool": ({"descriptors/x.tool.yaml": "name: x\nmock: {}\n"}, "descriptors/x.tool.yaml:2:7"),
    "nothing at all": ({}, "no such file or folder"),
}


@pytest.mark.parametrize(
    ("files", "expected"), sample(BROKEN.values(), one_in=2), ids=sample(BROKEN, one_in=2)
)
def test_what_is_broken_is_told_and_ends_with_1(files, expected, write, doctor, document):
    write(files)
    code, lines = doctor()
    assert code == 1
    assert any(expected in line for line in lines), lines
    assert any(line.endswith(("problem found:", "problems found:")) for line in lines)
    assert document("doctor", "--json")["healthy"] is False


@pytest.mark.skipif(os.name != "posix", reason="modes of folders are POSIX's")
def test_a_folder_that_no_index_is_kept_in_is_told_with_the_reason(project, document, monkeypatch, tmp_path):
    def state(folder):
        monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(folder))
        return document("doctor", "--json")["index"]["state"]

    cache = tmp_path / "cache"
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(cache))
    shared = Path(document("doctor", "--json")["index"]["file"]).parent
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    end = ": every start reads all files"
    assert state(cache) == f"not used, others can write to it{end}"
    assert state("/dev/null") == f"not used, one of its parents is not a folder{end}"
    assert state("/dev/null/inner") == f"not used, one of its parents is not a folder{end}"
    assert state(tmp_path / "new" / "deep") == "none yet"
    shared.chmod(0o700)
    assert state(cache) == "none yet"


@pytest.mark.exhaustive
def test_an_index_in_a_work_tree_is_told_with_the_reason(project, document, monkeypatch, tmp_path):
    def state():
        return document("doctor", "--json")["index"]["state"]

    end = ": every start reads all files"
    tree = tmp_path / "tree"
    (tree / ".git").mkdir(parents=True)
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tree / "cache"))
    assert state() == f"not used, it is in the work tree {tree}{end}"
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))
    assert state() == "none yet"
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tree / "state"))
    assert state() == f"not used, the folder of its key, {tree / 'state'}, is in the work tree {tree}{end}"
    assert not (tree / "cache").exists()
    assert not (tree / "state").exists()


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_a_key_that_is_not_used_is_told_with_the_reason(project, document, toolcrib, monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    toolcrib("list")
    key = tmp_path / "state" / "key"
    key.chmod(0o640)
    state = document("doctor", "--json")["index"]["state"]
    assert state == f"not used, others may read or write its key file {key}: every start reads all files"


def test_the_index_is_told_with_its_state(project, document, toolcrib, monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))

    def state(*words):
        return document("doctor", *words, "--json")["index"]["state"].partition(":")[0]

    assert state() == "none yet"
    toolcrib("list")
    assert state() == "current"
    (project / "descriptors" / "later.tool.yaml").unlink()
    assert state() == "out of date"
    assert state("--no-index") == "off, by --no-index"
    monkeypatch.setenv("TOOLCRIB_INDEX", "off")
    assert state() == "off, by TOOLCRIB_INDEX=off"


def test_an_unknown_profile_hides_nothing_else(project, toolcrib):
    result = toolcrib("doctor", "--profile", "cii")
    assert result.exit_code == 1
    assert "  profile   dev, chosen by `profile` in toolcrib.yaml:7" in result.stdout
    assert "unknown profile `cii`" in result.stdout
    assert "did you mean `ci`?" in result.stdout


def test_a_source_that_leads_to_itself_is_not_there(project, doctor):
    (project / "team" / "greet.tool.yaml").unlink()
    (project / "team").rmdir()
    (project / "team").symlink_to("team")
    code, lines = doctor()
    assert code == 1
    assert any("team" in line and "not found" in line for line in lines)


def test_two_projects_are_told_and_read_by_nobody(project, doctor, write):
    write({"other/toolcrib.yaml": "project: other\n"})
    code, lines = doctor("--pack", "other")
    assert code == 1
    assert any("are both projects" in line for line in lines)


def test_a_variable_that_nobody_reads_is_worth_knowing(project, doctor, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_PROFIL", "secret-value")
    code, lines = doctor()
    assert code == 0
    at = lines.index("  - the environment variable TOOLCRIB_PROFIL has no effect")
    assert lines[at - 2 : at] == ["No problems found.", "Warnings:"]
    assert "TOOLCRIB_PROFILE" in lines[at + 1]
    assert not any("secret-value" in line for line in lines)


def test_a_profile_of_the_environment_without_a_project_is_worth_knowing(tools, doctor, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_PROFILE", "ci")
    code, lines = doctor()
    assert code == 0
    assert any("selects profile `ci`, but there is no project here" in line for line in lines)


def test_what_comes_from_files_can_not_steer_the_terminal(write, toolcrib):
    write({"toolcrib.yaml": 'project: "\\e[31mx"\ndescription: "\\e]0;x\\a"\n'})
    assert "\x1b" not in toolcrib("doctor").stdout


# What is installed.


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Install a distribution for the time of a test: entry points (group -> lines), and a module."""
    places = iter(range(100))

    def install(name, module, **groups):
        folder = tmp_path / f"site{next(places)}"
        info = folder / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8"
        )
        lines = [f"[toolcrib.{group}]\n{entries}\n" for group, entries in groups.items()]
        (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
        if module:
            (folder / f"{name}.py").write_text(module, encoding="utf-8")
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(folder))

    return install


MODULE = """
class Raising:
    def __init__(self):
        raise RuntimeError("no \\x1b[31mlicence")

class Shy:
    @property
    def block_schema(self):
        raise ValueError("none")

class Shapeless:
    block_schema = {"type": "objct"}

class Careless:
    block_schema = {"type": "object"}
    def check(self, descriptor):
        raise KeyError("x")
"""


def test_a_broken_mode_is_named_with_its_distribution(project, doctor, distribution, caplog):
    distribution(
        "badmodes",
        MODULE,
        executors="raising = badmodes:Raising\nshy = badmodes:Shy\nshapeless = badmodes:Shapeless\n"
        "absent = badmodes:Absent\ngone = badmodes_gone:Any",
    )
    code, lines = doctor()
    assert code == 1
    told = "\n".join(lines)
    assert r"raising, from badmodes 1.2: cannot be used: RuntimeError: no \x1b[31mlicence" in told
    assert "shy, from badmodes 1.2: cannot be used: `block_schema` failed: ValueError: none" in told
    assert "shapeless, from badmodes 1.2: has an invalid block schema" in told
    assert "absent, from badmodes 1.2: cannot be used: AttributeError" in told
    assert "gone, from badmodes 1.2: cannot be used: No module named 'badmodes_gone'" in told
    assert "5 problems found:" in lines
    assert "  sources   descriptors  folder  3 tools" in lines, "documents are read all the same"
    assert caplog.records == []


def test_a_mode_that_fails_at_a_check_refuses_only_that_document(project, doctor, distribution, write):
    distribution("careless", MODULE, executors="careless = careless:Careless")
    write({"descriptors/x.tool.yaml": "name: x\ncareless: {}\n"})
    code, lines = doctor()
    assert code == 1
    assert any("check_failed: mode `careless` failed" in line for line in lines)
    assert "4 tools" in lines


def test_a_mode_that_two_distributions_offer_is_worth_knowing(project, doctor, distribution):
    distribution("first", "", executors="twice = first:A")
    distribution("second", "", executors="twice = second:A")
    _code, lines = doctor()
    assert any("mode `twice` is provided by" in line and "first 1.2" in line for line in lines)


def test_middleware_is_listed_and_a_broken_one_is_worth_knowing(project, doctor, distribution):
    distribution(
        "layers", "async def audit(call, call_next): ...", middleware="audit = layers:audit\nlost = layers:no"
    )
    code, lines = doctor()
    assert code == 0
    assert any(line.split() == ["middleware", "audit,", "from", "layers", "1.2"] for line in lines)
    assert any("middleware `lost` of layers 1.2 cannot be used: AttributeError" in line for line in lines)


def test_a_dependency_in_a_wrong_version_is_wrong(project, doctor, distribution):
    distribution("jinja2", "")
    code, lines = doctor()
    assert code == 1
    assert any(re.search(r"`jinja2` is version 1\.2, but toolcrib requires \S*>=", line) for line in lines)


# One tool.


def values(told):
    return {value["key"]: value["from"] for value in told["values"]}


def test_each_value_of_a_tool_is_told_with_its_place(project, document):
    told = document("doctor", "echo", "--json")
    assert (told["healthy"], told["state"], told["place"]) == (True, "ready", "descriptors/echo.tool.yaml:2")
    assert values(told) == {
        "name": "descriptors/echo.tool.yaml:2",
        "description": "descriptors/echo.tool.yaml:3",
        "tags": "descriptors/echo.tool.yaml:4",
        "labels": "descriptors/echo.tool.yaml:5",
        "annotations": "built in",
        "input_schema": "descriptors/echo.tool.yaml:7",
        "output_schema": "descriptors/echo.tool.yaml:13",
        "mode": "the only block, descriptors/echo.tool.yaml:15",
        "timeout": "toolcrib.yaml:4",
        "coerce": "built in",
        "on_invalid_result": "built in",
        "examples": "descriptors/echo.tool.yaml:14",
        "mock": "descriptors/echo.tool.yaml:15",
    }


def test_values_of_a_pack_a_profile_and_an_override_are_told_apart(write, document):
    write(
        {
            "toolcrib.yaml": "project: p\nsources: [pack, over]\nprofile: a\n"
            "profiles: {a: {modes: {get: live}, defaults: {on_invalid_result: pass}}}\n",
            "pack/pack.yaml": "name: pack\nversion: 1.0.0\ndefaults: {coerce: off}\n",
            "pack/get.tool.yaml": "name: get\ndescription: D.\nmode: mock\nmock: {result: 1}\n",
            "over/get.tool.yaml": "name: get\noverride: true\ntimeout: 1s\n",
        }
    )
    told = document("doctor", "get", "--json")
    assert told["overrides"] == ["pack/get.tool.yaml:1"]
    found = values(told)
    assert found["timeout"] == "over/get.tool.yaml:3"
    assert found["description"] == "pack/get.tool.yaml:2"
    assert found["coerce"] == "pack/pack.yaml:3 (defaults of pack pack)"
    assert found["on_invalid_result"] == "toolcrib.yaml:4 (profile a)"
    assert found["mode"] == "toolcrib.yaml:4 (profile a)"
    assert told["state"] == "unavailable"
    assert "has no `live:` block" in told["reason"]


def test_limits_are_told_one_by_one(write, document):
    write(
        {
            "toolcrib.yaml": "project: p\nlimits: {concurrency: 4, breaker: {failures: 9}}\nprofile: a\n"
            "profiles: {a: {limits: {origin: {rate: 600/1m}}}}\n",
            "descriptors/get.tool.yaml": "name: get\nmock: {result: 1}\nlimits:\n  concurrency: 2\n  breaker: off\n",
        }
    )
    told = [value for value in document("doctor", "get", "--json")["values"] if "limits" in value["key"]]
    assert [(value["key"], value["value"], value["from"]) for value in told] == [
        ("limits.concurrency", "2", "descriptors/get.tool.yaml:4"),
        ("limits.breaker", "off", "descriptors/get.tool.yaml:5"),
        ("limits.origin.rate", "600/1m", "toolcrib.yaml:4 (profile a)"),
    ]


def test_the_only_block_of_an_overridden_tool_is_told_where_it_stands(write, document):
    lower = "name: get\ndescription: D.\n\n\nmock: {result: 1}\n"
    write({"theirs/get.yaml": lower, "ours/get.yaml": "name: get\noverride: true\ndescription: x\n"})
    found = values(document("doctor", "get", "--json", "--pack", "theirs", "--pack", "ours"))
    assert found["mock"] == "theirs/get.yaml:5"
    assert found["mode"] == "the only block, theirs/get.yaml:5"


WHY_NOT = {
    "failing": ("disabled", "`failing` is disabled by `fail*` in toolcrib.yaml:5"),
    "later": ("unavailable", "`later` is unbound"),
    "vintage": ("ignored", "descriptors/old/vintage.yaml:1 has `name: vintage`, but `ignore`"),
    "broken": (
        "refused",
        "the document of `broken` was refused: descriptors/broken.tool.yaml:2:1: unknown_key",
    ),
    "stray": (
        "outside",
        "elsewhere/stray.yaml:1 has `name: stray`, but the file is in none of the sources",
    ),
    "packed": ("left_out", "no glob of `tools` in descriptors/p/pack.yaml:3 matches `other/packed.yaml`"),
    "greet": ("unknown", "the short name of a tool in a namespace"),
    "nobody": ("unknown", "no loaded document is named `nobody`"),
    "ecko": ("unknown", "no loaded document"),
}


@pytest.mark.parametrize(
    ("name", "expected"), sample(WHY_NOT.items(), one_in=2), ids=sample(WHY_NOT, one_in=2)
)
def test_why_a_tool_can_not_be_called(name, expected, project, write, document, doctor):
    write(
        {
            "descriptors/broken.tool.yaml": "name: broken\ndescripton: x\nmock: {result: 1}\n",
            "elsewhere/stray.yaml": "name: stray\nmock: {result: 1}\n",
            "descriptors/p/pack.yaml": "name: p\nversion: 1.0.0\ntools: [tools/**]\n",
            "descriptors/p/tools/a.yaml": "name: a\nmock: {result: 1}\n",
            "descriptors/p/other/packed.yaml": "name: packed\nmock: {result: 1}\n",
        }
    )
    told = document("doctor", name, "--json")
    assert told["healthy"] is False
    assert told["state"] == expected[0]
    assert expected[1] in told["reason"]
    code, lines = doctor(name)
    assert code == 1
    assert any(expected[1] in line for line in lines)


def test_near_misses_are_told(project, doctor):
    assert "  did you mean `echo`?" in doctor("ecko")[1]
    assert "  did you mean `team__greet`?" in doctor("greet")[1]


def test_a_tool_outside_the_toolset_says_so(project, document):
    told = document("doctor", "team__greet", "--profile", "ci", "--json")
    assert told["state"] == "not_in_toolset"


def test_what_blocks_every_command_blocks_each_tool(project, doctor):
    code, lines = doctor("echo", "--profile", "cii")
    assert code == 1
    assert lines[:2] == ["echo  unavailable", "  unknown profile `cii`"]


def test_a_tool_of_a_broken_project_is_looked_for(write, tools, doctor):
    write({"toolcrib.yaml": "project: [\n"})
    code, lines = doctor("echo")
    assert code == 1
    assert any("is in none of the sources" in line for line in lines)
    assert any("toolcrib.yaml has errors" in line for line in doctor("nobody")[1])


def test_a_second_tool_of_the_name_is_told(project, write, doctor):
    write({"descriptors/zz.tool.yaml": "name: echo\nmock: {result: 1}\n"})
    assert any("duplicate_tool" in line for line in doctor("echo")[1])


def test_a_tool_is_found_by_its_alias(write, document):
    write({"descriptors/a.tool.yaml": "name: a.b\nmock: {result: 1}\n"})
    told = document("doctor", "a.b", "--json")
    assert document("doctor", told["alias"], "--json")["name"] == "a.b"


def test_a_secret_that_is_missing_is_told_with_its_name(project, toolcrib, document, write, monkeypatch):
    monkeypatch.delenv("CRIB_TOKEN", raising=False)
    text = (
        "name: far\nlive:\n  url: https://api.example.com/x\n"
        "  auth: {type: http, scheme: bearer, token: '${CRIB_TOKEN}'}\n"
    )
    write({"descriptors/far.tool.yaml": text})
    told = document("doctor", "far", "--json")
    assert (told["healthy"], told["state"]) == (False, "unavailable")
    assert "CRIB_TOKEN" in told["reason"]
    assert "CRIB_TOKEN" in told["modes"]["live"]
    assert "CRIB_TOKEN" in toolcrib("doctor").output
    monkeypatch.setenv("CRIB_TOKEN", "t0psecret-value")
    told = document("doctor", "far", "--json")
    assert (told["healthy"], told["modes"]) == (True, {"live": None})
    assert "t0psecret" not in toolcrib("doctor", "far").output
