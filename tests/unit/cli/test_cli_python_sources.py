"""Python sources on the command line: what lists imports nothing; what runs imports trusted code; each failure has its place."""

from __future__ import annotations

import itertools
import json
import re
import sys

import pytest

from chatting import install
from sampling import sample

NUMBERS = itertools.count()

CODE = '''
import pathlib

import toolcrib

pathlib.Path("imported").touch()


@toolcrib.tool(annotations={"read_only": True}, examples=[{"args": {"order": "o1"}, "result": "o1 is paid"}])
def find_order(order: str) -> str:
    """Return the state of an order."""
    return f"{order} is paid"


class Counter(toolcrib.Tool[dict[str, int], int]):
    """Add numbers."""

    def execute(self, given: dict[str, int]) -> int:
        return sum(given.values())


def helper(anything): ...
'''

GREET = "name: greet\ndescription: Greets.\nmock: {result: hi}\n"

DEFINED = r"source `{name}`: not imported; showing its definition of \d{{4}}-\d\d-\d\dT[\d:]+\+00:00"


@pytest.fixture
def module():
    name = f"tools_of_shop_{next(NUMBERS)}"
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def project(tmp_path, monkeypatch, module):
    (tmp_path / "toolcrib.yaml").write_text(f"project: shop\nsources: [descriptors, {{python: {module}}}]\n")
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "greet.tool.yaml").write_text(GREET)
    (tmp_path / f"{module}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trusted(project, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    return project


def listed(done):
    return [line.split()[0] for line in done.stdout.splitlines()[:-1]]


@pytest.mark.parametrize(
    "words",
    sample(
        [("list",), ("search", "greet"), ("show", "greet"), ("cost",), ("export", "promptpack"), ("stubs",)],
        one_in=2,
    ),
    ids=lambda words: words[0],
)
def test_what_only_lists_imports_nothing(words, trusted, module, toolcrib):
    done = toolcrib(*words)
    assert done.exit_code == 0, done.output
    assert f"source `{module}`: not imported\n    hint: run `toolcrib validate`" in done.stderr
    assert not (trusted / "imported").exists()


def test_what_only_lists_shows_what_an_import_has_defined(trusted, module, toolcrib):
    assert toolcrib("call", "find_order", "order=o7").stdout == "o7 is paid\n"
    (trusted / "imported").unlink()
    done = toolcrib("list")
    assert listed(done) == ["counter", "find_order", "greet"]
    assert re.fullmatch(DEFINED.format(name=module), done.stderr.strip())
    shown = json.loads(toolcrib("show", "find_order", "--json").stdout)
    assert shown["description"] == "Return the state of an order."
    assert shown["input_schema"]["required"] == ["order"]
    assert shown["output_schema"] == {"type": "string"}
    assert shown["origin"]["source"] == str(trusted / f"{module}.py")
    assert shown["origin"]["line"] == 9
    assert toolcrib("search", "state").stdout.startswith("find_order")
    assert "find_order" in toolcrib("export", "promptpack").stdout
    told = json.loads(toolcrib("list", "--json").stdout)["python"]
    assert [(each["name"], each["state"], each["changed"]) for each in told] == [
        (module, "not imported", False)
    ]
    assert not (trusted / "imported").exists()


def test_definitions_of_a_changed_module_say_so(trusted, module, toolcrib):
    assert toolcrib("validate").exit_code == 0
    (trusted / f"{module}.py").write_text(CODE + "\nx = 1\n")
    done = toolcrib("list")
    assert "and its files have changed since" in done.stderr
    assert listed(done) == ["counter", "find_order", "greet"]


def test_definitions_belong_to_one_folder(trusted, module, toolcrib, tmp_path_factory, monkeypatch):
    assert toolcrib("validate").exit_code == 0
    other = tmp_path_factory.mktemp("other")
    (other / "toolcrib.yaml").write_text(f"project: other\nsources: [{{python: {module}}}]\n")
    monkeypatch.chdir(other)
    assert listed(toolcrib("list")) == []


def test_a_list_is_incomplete_without_definitions(trusted, toolcrib):
    assert toolcrib("list", "--strict").exit_code == 1
    assert toolcrib("validate").exit_code == 0
    assert toolcrib("list", "--strict").exit_code == 0


def test_an_untrusted_project_imports_nothing(project, module, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST", raising=False)
    for words in (
        ("call", "find_order", "order=o1"),
        ("validate",),
        ("run",),
        ("doctor",),
        ("call", "greet"),
    ):
        toolcrib(*words)
        assert not (project / "imported").exists(), words
    done = toolcrib("call", "find_order", "order=o1")
    assert done.exit_code == 15
    assert f"the tools of `{module}` are not known: the project {project} is not trusted yet" in done.stderr
    assert f"needs to import `{module}` as source of tools" in done.stderr
    assert toolcrib("call", "greet").stdout == "hi\n"


def test_trust_covers_the_files_of_the_module(project, module, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST", raising=False)
    planned = toolcrib("trust", "--dry-run").stdout
    assert f"import   {module} as source of tools" in planned
    assert f"file {module}.py" in planned
    assert toolcrib("trust", "--yes").exit_code == 0
    assert toolcrib("call", "find_order", "order=o1").stdout == "o1 is paid\n"
    # The definitions that are now cached must not change what is trusted.
    assert toolcrib("trust", "--dry-run").stdout.split("hash")[1] == planned.split("hash")[1]
    (project / f"{module}.py").write_text(CODE + "\nx = 1\n")
    assert toolcrib("call", "find_order", "order=o1").exit_code == 15


def test_run_plays_the_examples(trusted, module, toolcrib):
    done = toolcrib("run", "-v")
    assert done.exit_code == 0, done.output
    assert "find_order" in done.stdout
    assert "1 scenario passed" in done.stdout
    (trusted / f"{module}.py").write_text(CODE.replace('is paid"}', 'is not paid"}'))
    sys.modules.pop(module)
    assert toolcrib("run").exit_code == 1


def test_examples_with_destructive_effects_are_not_played(trusted, module, toolcrib):
    (trusted / f"{module}.py").write_text(CODE.replace('"read_only"', '"idempotent"'))
    done = toolcrib("run")
    assert "the annotations allow destructive effects" in done.output


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("import toolcrib\nx =\n", 2, "SyntaxError: invalid syntax"),
        ("\n\nraise RuntimeError('no database')\n", 3, "RuntimeError: no database"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("import no_such_module_here\n", 1, "ModuleNotFoundError: No module named 'no_such_module_here'"),
    ],
)
def test_a_module_that_fails_is_reported_and_takes_no_other_tool_down(
    code, line, message, trusted, module, toolcrib
):
    (trusted / f"{module}.py").write_text(code)
    done = toolcrib("validate")
    assert done.exit_code == 1
    place = f"{trusted / module}.py:{line}:1: import_failed: cannot import `{module}` (toolcrib.yaml:2)"
    assert f"{place}: {message}" in done.output
    assert toolcrib("call", "greet").stdout == "hi\n"
    failed = toolcrib("call", "find_order")
    assert failed.exit_code == 14
    assert message in failed.stderr


def test_a_tool_that_cannot_be_used_takes_no_other_tool_down(trusted, module, toolcrib):
    (trusted / f"{module}.py").write_text(
        CODE
        + "\n\n@toolcrib.tool\ndef wrong(order): ...\n\n\n@toolcrib.tool(timeut='1s')\ndef other(): ...\n"
    )
    done = toolcrib("validate")
    line = CODE.count("\n") + 3
    assert (
        f"{module}.py:{line}:1: bad_signature: the parameter `order` of `wrong` has no annotation"
        in done.output
    )
    assert "unknown_key: unknown key `timeut`" in done.output
    assert toolcrib("call", "find_order", "order=o1").stdout == "o1 is paid\n"


def test_a_module_reports_a_missing_package_with_the_way_out(trusted, module, toolcrib):
    (trusted / f"{module}.py").write_text("import no_such_module_here\n")
    hint = "hint: install the package that provides `no_such_module_here`, or fix the import"
    assert hint in toolcrib("validate").output


def test_the_missing_extra_is_reported_once_for_a_module(trusted, module, toolcrib, monkeypatch):
    (trusted / f"{module}.py").write_text(CODE + '\n\n@toolcrib.tool\ndef other() -> int:\n    """D."""\n')
    monkeypatch.setitem(sys.modules, "docstring_parser", None)
    done = toolcrib("validate")
    assert done.output.count("typed tools need the extra `typed`") == 1
    assert "toolcrib.yaml:2:1: missing_extra" in done.output


def test_validate_reports_descriptors_whose_functions_cannot_be_used(trusted, module, toolcrib):
    (trusted / "descriptors" / "find.tool.yaml").write_text(
        f'name: find\nmode: python\npython: {{call: "{module}:find_ordr"}}\n---\n'
        f'name: other\nmode: python\npython: {{call: "{module}:find_order", config: {{a: 1}}}}\n'
    )
    done = toolcrib("validate")
    assert done.exit_code == 1
    missing = f"find.tool.yaml:1:1: not_bound: the module `{module}` of the hook `{module}:find_ordr` does not define"
    assert missing in done.output
    assert "did you mean `find_order`?" in done.output
    assert "find.tool.yaml:5:1: not_bound: cannot bind `other`" in done.output
    assert "`config` has no effect" in done.output
    assert "not_bound" not in toolcrib("validate", "--shallow").output


@pytest.mark.parametrize("words", sample([("run",), ("run", "-j", "2")], one_in=2), ids=" ".join)
def test_what_tools_and_their_programs_print_in_a_run_goes_to_stderr(words, trusted, module, toolcrib, capfd):
    printing = "    print('printed in a call')\n    os.system('echo printed by a program')\n    return f"
    code = "import os\n" + CODE.replace("    return f", printing)
    (trusted / f"{module}.py").write_text(code)
    done = toolcrib(*words, "--json")
    assert json.loads(done.stdout)["passed"] == 1
    of_processes = capfd.readouterr()
    assert "printed in a call" in done.stderr + of_processes.err
    assert (of_processes.out, "printed by a program" in of_processes.err) == ("", True)


def test_what_tools_and_their_programs_print_in_a_chat_goes_to_stderr(
    trusted, module, toolcrib, capfd, tmp_path_factory, monkeypatch
):
    monkeypatch.syspath_prepend(str(install(tmp_path_factory.mktemp("provider"))))
    printing = "    print('printed in a call')\n    os.system('echo printed by a program')\n    return f"
    (trusted / f"{module}.py").write_text("import os\n" + CODE.replace("    return f", printing))
    done = toolcrib("chat", "--provider", "echo", "--json", 'call find_order {"order": "o1"}')
    *_events, last = map(json.loads, done.stdout.splitlines())
    assert last["type"] == "conversation"
    of_processes = capfd.readouterr()
    assert "printed in a call" in done.stderr + of_processes.err
    assert (of_processes.out, "printed by a program" in of_processes.err) == ("", True)


def test_the_dots_of_a_run_stay_on_stdout(trusted, module, toolcrib):
    printing = CODE.replace("    return f", "    print('printed in a call')\n    return f")
    (trusted / f"{module}.py").write_text(printing)
    done = toolcrib("run")
    assert f"{module}.py .\n" in done.stdout
    assert "printed" not in done.stdout


def test_what_the_code_prints_goes_to_stderr(trusted, module, toolcrib):
    printing = "    print('printed in a call')\n    return f"
    code = "print('printed in an import')\n" + CODE.replace("    return f", printing)
    (trusted / f"{module}.py").write_text(code)
    called = toolcrib("call", "find_order", "order=o1")
    assert called.stdout == "o1 is paid\n"
    assert "printed in a call" in called.stderr
    sys.modules.pop(module)
    validated = toolcrib("validate", "--json")
    assert json.loads(validated.stdout)["errors"] == 0
    assert "printed in an import" in validated.stderr
    sys.modules.pop(module)
    exported = toolcrib("export", "descriptor", module)
    assert "printed in an import" not in exported.stdout
    assert "printed in an import" in exported.stderr


def test_a_module_that_does_not_exist_is_reported_at_the_source(trusted, toolcrib):
    (trusted / "toolcrib.yaml").write_text("project: shop\nsources:\n  - python: no.such_module\n")
    done = toolcrib("validate")
    assert "toolcrib.yaml:3:1: import_failed: the module `no.such_module` was not found" in done.output


def test_a_name_that_a_file_has_is_a_duplicate(trusted, toolcrib):
    (trusted / "descriptors" / "find.tool.yaml").write_text(
        "name: find_order\ndescription: D.\nmock: {result: 1}\n"
    )
    done = toolcrib("validate")
    assert (
        "duplicate_tool: duplicate tool `find_order`, already loaded from descriptors/find.tool.yaml:1"
        in done.output
    )
    assert toolcrib("call", "find_order").stdout == "1\n"


def test_the_settings_of_the_project_apply(trusted, module, toolcrib):
    (trusted / "toolcrib.yaml").write_text(
        f"project: shop\nsources: [{{python: {module}, namespace: shop}}]\n"
        "disable: [shop__counter]\ndefaults: {timeout: 7s}\nprofiles: {test: {modes: {'shop__*': mock}}}\n"
    )
    assert toolcrib("call", "shop__find_order", "order=o1").stdout == "o1 is paid\n"
    assert "disabled" in toolcrib("call", "shop__counter").stderr
    assert json.loads(toolcrib("show", "shop__find_order", "--json").stdout)["timeout"] == 7.0


def test_scenarios_may_call_the_tools(trusted, toolcrib):
    (trusted / "descriptors" / "paid.scenario.yaml").write_text(
        "scenario: paid\nsteps: [{call: find_order, args: {order: o1}, expect: {result: o1 is paid}}]\n"
    )
    assert toolcrib("list").exit_code == 0
    done = toolcrib("run")
    assert "2 scenarios passed" in done.stdout, done.output


def test_schemas_of_functions_that_files_name_are_known_after_an_import(trusted, module, toolcrib):
    (trusted / "descriptors" / "find.tool.yaml").write_text(
        f'name: find\nmode: python\npython: {{call: "{module}:find_order"}}\n'
    )
    assert (
        "tool `find`: its code is not imported, so its schemas are not known"
        in toolcrib("show", "find").stderr
    )
    assert toolcrib("run").exit_code == 0
    done = toolcrib("show", "find", "--json")
    assert "tool `find`: not imported; showing its definition of 2" in done.stderr
    shown = json.loads(done.stdout)
    assert shown["input_schema"]["required"] == ["order"]
    assert shown["description"] == "Return the state of an order."
    assert any(
        line.startswith("find ") and "state of an order" in line
        for line in toolcrib("list").stdout.splitlines()
    )


def test_doctor_shows_the_source(trusted, module, toolcrib):
    assert re.search(rf"{module} +module +2 tools", toolcrib("doctor").stdout)


def test_a_source_is_a_module_or_an_entry_point(trusted, toolcrib):
    (trusted / "toolcrib.yaml").write_text(
        "project: shop\nsources: [{python: 'a b'}, {python: x, path: y}]\n"
    )
    done = toolcrib("validate")
    assert "a Python source is a module such as `shop.tools`, or the name of an entry point" in done.output
    assert "a source has either a `path`" in done.output
    (trusted / "toolcrib.yaml").write_text("project: shop\nsources: [{python: json}, {python: json}]\n")
    assert "duplicate source `json`, already number 1 of the list" in toolcrib("validate").output
