"""ARCHITECTURE.md says what the import rules check, and the other way round."""

from __future__ import annotations

import re
import tomllib

import pytest


@pytest.fixture(scope="module")
def page(root):
    return (root / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def contracts(project):
    return {contract["id"]: contract for contract in project["tool"]["importlinter"]["contracts"]}


def rows(page: str, title: str) -> list[list[str]]:
    """The body of the first table under a title."""
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def names(text: str) -> list[str]:
    """The names in backticks."""
    return re.findall(r"`([^`]+)`", text)


def modules(layer: str) -> list[str]:
    return re.findall(r"\w+", layer)


def test_the_rooms_are_those_of_the_linter_in_order(page, contracts):
    on_page = [name for row in rows(page, "The rooms") for name in names(row[0])]
    assert on_page == [name for layer in contracts["rooms"]["layers"] for name in modules(layer)]
    assert contracts["rooms"]["exhaustive"]
    assert all(row[1] for row in rows(page, "The rooms"))


def test_every_module_of_the_package_lies_in_a_room_on_the_page(page, root):
    on_disk = {
        path.stem
        for path in (root / "runtime" / "toolcrib").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    on_page = {name for row in rows(page, "The rooms") for name in names(row[0])}
    assert on_page == on_disk - {"__init__"}


def test_every_file_that_the_page_names_is_there(page, root):
    package = root / "runtime" / "toolcrib"
    paths = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", page)
    missing = [path for path in paths if not (package / path).exists() and not (root / path).exists()]
    assert paths
    assert missing == []


def test_every_core_dependency_has_its_reason(page, project):
    required = [re.split(r"[<>=~! ]", text)[0] for text in project["project"]["dependencies"]]
    on_page = {names(row[0])[0]: row[2] for row in rows(page, "Dependencies")}
    assert sorted(on_page) == sorted(required)
    assert all(on_page.values())


IMPORTED_AS = {
    "a2a_sdk": "a2a",
    "agent_client_protocol": "acp",
    "pyjwt": "jwt",
    "pyyaml": "yaml",
    "jsonschema-rs": "jsonschema_rs",
    "openai_agents": "agents",
    "opentelemetry_api": "opentelemetry",
    "pydantic_ai_slim": "pydantic_ai",
}


def allowed(contract) -> list[str]:
    return sorted(module.removeprefix("toolcrib.") for module in contract["allowed_importers"])


@pytest.fixture(scope="module")
def owners(contracts):
    """Foreign package -> the modules that may import it."""
    protecting = [contract for contract in contracts.values() if contract["type"] == "protected"]
    return {name: allowed(contract) for contract in protecting for name in contract["protected_modules"]}


def test_the_owners_of_foreign_packages_are_those_of_the_linter(page, owners):
    for package, importers, _reason in rows(page, "Dependencies"):
        name = IMPORTED_AS.get(names(package)[0], names(package)[0])
        assert owners[name] == names(importers), name


def test_the_owners_of_extras_are_those_of_the_linter(page, project, owners):
    section = page.partition("## Dependencies\n")[2].partition("\n## ")[0]
    told = re.findall(r"`(\w+)`\s+\(extra\s+`([\w-]+)`\)\s+by\s+(`[\w.]+`(?:\s+and\s+`[\w.]+`)*)", section)
    assert {(extra, package) for package, extra, _owners in told} == {
        (extra, IMPORTED_AS.get(name, name))
        for extra, texts in project["project"]["optional-dependencies"].items()
        for text in texts
        for name in [re.split(r"[<>=~! \[]", text)[0].replace("-", "_")]
        if name != "toolcrib"  # the extra `all`
    }
    assert all(owners[package] == names(those) for package, _extra, those in told)
