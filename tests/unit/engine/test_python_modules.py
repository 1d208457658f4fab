"""Python sources of a runtime: which objects of a module are tools, and how a program uses them."""

from __future__ import annotations

import asyncio
import itertools
import sys

import pytest

from toolcrib import Outcome, Runtime, ToolAppeared

NUMBERS = itertools.count()

HEAD = "import toolcrib\nfrom toolcrib import simple_tool\n\n"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a module and a project that names it; returns the project and the name of the module."""
    names = []

    def write(code, *, namespace=""):
        name = f"module_of_tools_{next(NUMBERS)}"
        names.append(name)
        (tmp_path / f"{name}.py").write_text(HEAD + code)
        more = f", namespace: {namespace}" if namespace else ""
        (tmp_path / "toolcrib.yaml").write_text(f"project: shop\nsources: [{{python: {name}{more}}}]\n")
        return str(tmp_path), name

    yield write
    for name in names:
        sys.modules.pop(name, None)


def tools_of(written, code, **options):
    folder, _name = written(code)
    with Runtime.open(folder, **options) as runtime:
        return [*runtime.registry], [each.message for each in runtime.problems]


DECLARED = """
@toolcrib.tool
def first() -> int: return 1

@toolcrib.tool(name="renamed")
def second() -> int: return 2

@toolcrib.factory
def made():
    def made() -> int: return 3
    return made

class Counted(toolcrib.Tool[dict[str, int], int]):
    def execute(self, given: dict[str, int]) -> int: return 4

class _Hidden(toolcrib.Tool[dict[str, int], int]):
    def execute(self, given: dict[str, int]) -> int: return 5

@toolcrib.tool
def _private() -> int: return 6

def helper() -> int: return 7

ping = simple_tool("ping", "Answers.")
instance = Counted()
alias = first
"""


def test_the_tools_are_what_a_module_defines(written):
    assert tools_of(written, DECLARED) == (["counted", "first", "made", "ping", "renamed"], [])


def test_all_selects_the_tools(written):
    code = DECLARED + '__all__ = ["_private", "instance", "helper", "ping"]\n'
    assert tools_of(written, code) == (["_private", "counted", "ping"], [])


def test_a_name_in_all_that_does_not_exist_is_an_error(written):
    names, problems = tools_of(written, DECLARED + '__all__ = ["first", "frist"]\n')
    assert names == ["first"]
    assert "lists `frist`, which does not exist" in problems[0]


def test_what_a_module_imports_is_not_its_tool_unless_it_exports_it(written):
    _folder, other = written("@toolcrib.tool\ndef borrowed() -> int: return 1\n")
    code = f"from {other} import borrowed\n\n@toolcrib.tool\ndef own() -> int: return 2\n"
    assert tools_of(written, code)[0] == ["own"]
    assert tools_of(written, code + '__all__ = ["borrowed"]\n')[0] == ["borrowed"]


def test_base_classes_are_abstract_or_private(written):
    code = """
import abc

class Shared(toolcrib.Tool[dict[str, int], int], abc.ABC):
    @abc.abstractmethod
    def count(self) -> int: ...
    def execute(self, given: dict[str, int]) -> int: return self.count()

class One(Shared):
    def count(self) -> int: return 1
"""
    assert tools_of(written, code) == (["one"], [])
    names, problems = tools_of(written, "class Empty(toolcrib.Tool[dict[str, int], int]): ...\n")
    assert names == []
    assert "`Empty` does not define `execute`" in problems[0]


def test_a_module_without_tools_is_a_warning(written):
    names, problems = tools_of(written, "x = 1\n")
    assert names == []
    assert "declares no tool" in problems[0]


def test_dependencies_come_from_the_program(written):
    folder, name = written(
        "@toolcrib.factory\ndef ask(database):\n    def ask() -> str: return f'asked {database}'\n    return ask\n"
        "@toolcrib.tool\ndef plain() -> int: return 1\n"
    )
    with Runtime.open(folder, provide={"database": "main"}) as runtime:
        assert runtime.call_sync("ask").value == "asked main"
    with Runtime.open(folder) as runtime:
        missing = runtime.call_sync("ask")
        assert (missing.outcome, missing.error.code) == (Outcome.UNAVAILABLE, "missing_dependency")
        assert f"{name}.py:" in missing.message
        assert runtime.call_sync("plain").value == 1


def test_a_factory_that_raises_takes_no_other_tool_down(written):
    code = "@toolcrib.factory\ndef broken():\n    raise ValueError('no')\n@toolcrib.tool\ndef plain() -> int: return 1\n"
    names, problems = tools_of(written, code)
    assert names == ["plain"]
    assert problems == ["cannot create the tool `broken`: ValueError: no"]


def test_a_call_without_async_with_imports_the_sources(written):
    folder, name = written("@toolcrib.tool\ndef late() -> int: return 1\n")
    events = []
    runtime = Runtime.open(folder, observer=events.append)
    assert name not in sys.modules
    assert [*runtime.registry] == []
    assert runtime.call_sync("late").value == 1
    assert [type(each) for each in events][:1] == [ToolAppeared]
    runtime.close()


def test_a_namespace_is_a_prefix(written):
    folder, _name = written("@toolcrib.tool\ndef late() -> int: return 1\n", namespace="shop")
    with Runtime.open(folder) as runtime:
        assert [*runtime.registry] == ["shop__late"]
        assert runtime.call_sync("shop__late").value == 1


def test_without_trust_nothing_is_imported(written):
    folder, name = written("@toolcrib.tool\ndef late() -> int: return 1\n")
    with Runtime.open(folder, trust=False) as runtime:
        result = runtime.call_sync("late")
        assert (result.outcome, result.error.code) == (Outcome.DENIED, "untrusted_workspace")
        assert [each.code for each in runtime.problems] == ["untrusted_workspace"]
    assert name not in sys.modules


def test_a_reload_keeps_the_tools_and_finds_new_sources(written, tmp_path):
    folder, name = written("@toolcrib.tool\ndef early() -> int: return 1\n")

    async def run():
        async with Runtime.open(folder) as runtime:
            assert [*runtime.registry] == ["early"]
            (tmp_path / "other_of_tools.py").write_text(
                HEAD + "@toolcrib.tool\ndef late() -> int: return 2\n"
            )
            text = f"project: shop\nsources: [{{python: {name}}}, {{python: other_of_tools}}]\n"
            (tmp_path / "toolcrib.yaml").write_text(text)
            await runtime.reload()
            assert [*runtime.registry] == ["early", "late"]
            return (await runtime.call("early")).value, (await runtime.call("late")).value

    try:
        assert asyncio.run(run()) == (1, 2)
    finally:
        sys.modules.pop("other_of_tools", None)


def test_a_module_of_another_folder_is_not_taken_for_that_of_the_project(written, tmp_path):
    folder, name = written("@toolcrib.tool\ndef early() -> int: return 1\n")
    with Runtime.open(folder) as runtime:
        assert [*runtime.registry] == ["early"]
    other = tmp_path / "copy"
    other.mkdir()
    for file in ("toolcrib.yaml", f"{name}.py"):
        (other / file).write_text((tmp_path / file).read_text())
    with Runtime.open(str(other)) as runtime:
        assert [*runtime.registry] == []
        assert f"the module `{name}` was imported from {tmp_path / name}.py" in runtime.problems[0].message


# Entry points.


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def install(distribution, **points):
        stem = folder / f"{distribution}-1.0.dist-info"
        stem.mkdir()
        (stem / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {module}" for name, module in points.items()]
        (stem / "entry_points.txt").write_text("[toolcrib.tools]\n" + "\n".join(lines) + "\n")
        return folder

    yield install
    sys.modules.pop("acme_tools_of_agents", None)


def test_an_entry_point_is_a_source_only_if_the_project_names_it(site, tmp_path):
    folder = site("acme", acme="acme_tools_of_agents")
    (folder / "acme_tools_of_agents.py").write_text(HEAD + "@toolcrib.tool\ndef hammer() -> int: return 1\n")
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: []\n")
    with Runtime.open(str(tmp_path)) as runtime:
        assert [*runtime.registry] == []
    assert "acme_tools_of_agents" not in sys.modules
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: [{python: acme}]\n")
    with Runtime.open(str(tmp_path)) as runtime:
        assert runtime.call_sync("hammer").value == 1


def test_an_entry_point_of_two_distributions_is_an_error(site, tmp_path):
    site("acme", tools="acme_tools_of_agents")
    site("other", tools="other_tools_of_agents")
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: [{python: tools}]\n")
    with Runtime.open(str(tmp_path)) as runtime:
        assert [each.code for each in runtime.problems] == ["duplicate_source"]
        assert "acme (acme_tools_of_agents), other (other_tools_of_agents)" in runtime.problems[0].message


def test_a_misspelt_entry_point_is_suggested(site, tmp_path):
    site("acme", acme="acme_tools_of_agents")
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: [{python: acmee}]\n")
    with Runtime.open(str(tmp_path)) as runtime:
        assert runtime.problems[0].hint == "did you mean `acme`?"
