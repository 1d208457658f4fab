"""What is true of every module of the package."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import source_trees
import toolcrib

PACKAGE = Path(toolcrib.__file__).parent

MODULES = sorted(PACKAGE.rglob("*.py"))

VAGUE = {
    "util",
    "utils",
    "helper",
    "helpers",
    "manager",
    "managers",
    "base",
    "handler",
    "handlers",
    "common",
    "misc",
}


def tree_of(path: Path) -> ast.Module:
    return source_trees.trees()[path.relative_to(PACKAGE).as_posix()]


def test_no_module_has_a_name_that_says_nothing():
    assert [path for path in MODULES if path.stem.strip("_") in VAGUE] == []


GERUNDS = {
    "testing": "the public name of the contract suites: `toolcrib.testing`",
    "loading": "the room that loads documents; `load` and `loader` name its parts",
}
"""Modules that a gerund names -> why."""


def test_no_module_is_named_by_a_gerund_without_a_reason():
    named = {path.parent.name if path.stem == "__init__" else path.stem for path in MODULES}
    assert {name for name in named if name.endswith("ing")} == set(GERUNDS)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def test_no_room_has_two_files_of_one_name():
    files = Counter((room_of(path), path.name) for path in MODULES if path.stem != "__init__")
    assert [file for file, number in files.items() if number > 1] == []


def test_a_name_stands_for_one_public_class():
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_what_it_imports(room):
    purpose, *rest = (ast.get_docstring(tree_of(PACKAGE / room / "__init__.py")) or "").split("\n\n")
    assert purpose.endswith(".")
    assert "\n" not in purpose
    assert any("import" in paragraph.lower() for paragraph in rest)


SHARED_BY_LAYERS = {"layer", "call_failures"}


def test_layers_do_not_import_each_other():
    layers = [path for path in (PACKAGE / "engine" / "middleware").glob("*.py") if path.stem != "__init__"]
    imported = {
        (path.stem, node.module.rpartition(".")[2])
        for path in layers
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolcrib.engine.middleware.")
    }
    assert len(layers) > len(SHARED_BY_LAYERS)
    assert {(layer, other) for layer, other in imported if other not in SHARED_BY_LAYERS} == set()


def asks_for_a_mode(node: ast.AST) -> bool:
    """Whether a node compares something called `mode` with a fixed name."""
    if isinstance(node, ast.Match):
        return called_mode(node.subject)
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    fixed = [
        part
        for side in sides
        for part in ast.walk(side)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return bool(fixed) and any(called_mode(side) for side in sides)


def called_mode(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "mode") or (
        isinstance(node, ast.Attribute) and node.attr == "mode"
    )


@pytest.mark.parametrize(
    "source", ['if tool.mode == "mock": pass', 'x = mode in {"mock", "live"}', 'if "live" != mode: pass']
)
def test_the_search_for_mode_comparisons_finds_them(source):
    assert any(asks_for_a_mode(node) for node in ast.walk(ast.parse(source)))


def test_nothing_but_the_executor_look_up_asks_which_mode_it_is():
    found = [
        f"{module}:{node.lineno}"
        for module, nodes in source_trees.nodes().items()
        if module != "executors/__init__.py"
        for node in nodes
        if asks_for_a_mode(node)
    ]
    assert found == []


def module_of(path: Path):
    """The imported module of a file."""
    return import_module(
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    )


# Each imports an agent framework, which only `make frameworks` installs.
NOT_IMPORTABLE = {"inspect_ai", "langchain", "openai_agents", "pydantic_ai"}


def test_every_list_of_public_names_names_what_is_there():
    lists = {
        path: getattr(module_of(path), "__all__", [])
        for path in MODULES
        if path.stem not in {"__main__", *NOT_IMPORTABLE}
    }
    wrong = [
        (path, name) for path, names in lists.items() for name in names if not hasattr(module_of(path), name)
    ]
    assert wrong == []


def test_the_public_names_are_those_of_the_table():
    assert len(toolcrib.__all__) == len(set(toolcrib.__all__))
    assert set(toolcrib.__all__) == set(toolcrib._HOME)
    assert dir(toolcrib) == sorted([*toolcrib.__all__, "__version__"])


@pytest.mark.parametrize("name", toolcrib.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(toolcrib, name) is not None


def test_type_checkers_are_told_the_same_public_names():
    block = next(node for node in tree_of(PACKAGE / "__init__.py").body if isinstance(node, ast.If))
    told = {
        alias.name for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert told == set(toolcrib.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute `Runtme`"):
        _ = toolcrib.Runtme


def test_the_version_is_written_once_and_is_in_the_changelog(root):
    written = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert written["project"]["dynamic"] == ["version"]
    assert root / written["tool"]["hatch"]["version"]["path"] == PACKAGE / "__init__.py"
    assert f"## {toolcrib.__version__}\n" in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_mode_is_one_module_and_one_entry_point(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"]["toolcrib.executors"]
    on_disk = {module.name for module in pkgutil.iter_modules([str(PACKAGE / "executors")])}
    assert {mode: f"toolcrib.executors.{mode}" for mode in on_disk} == {
        mode: target.partition(":")[0] for mode, target in declared.items()
    }


def test_every_declared_entry_point_can_be_loaded(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = [*project["scripts"].values(), *project["entry-points"]["toolcrib.executors"].values()]
    for target in targets:
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))
    installed = {entry.name: entry.value for entry in entry_points(group="toolcrib.executors")}
    assert installed == project["entry-points"]["toolcrib.executors"] | installed


CORE_ALONE = """
import asyncio, sys

BLOCKED = {"click", "httpx", "mcp", "a2a", "acp", "opentelemetry", "jsonschema"}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())

import toolcrib

kinds = toolcrib.Executors.installed()
registry = toolcrib.parse_registry("memory", "name: hello\\nmock: {result: '{{ 6 * 7 }}'}", kinds=kinds)
result = asyncio.run(toolcrib.Runtime(registry, executors=kinds).call("hello"))
assert result.value == 42, result
assert not BLOCKED & set(sys.modules), BLOCKED & set(sys.modules)
print("ok")
"""


def test_the_core_imports_and_runs_a_mock_call_without_any_optional_package():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CORE_ALONE], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, toolcrib; print(sorted({'jinja2', 'jsonschema_rs', 'yaml', 'click', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
