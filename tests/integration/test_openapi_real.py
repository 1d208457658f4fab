"""Real OpenAPI descriptions as tools, and our own export read back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from npm_packages import installed
from toolcrib import Runtime
from toolcrib.core.model import Descriptor
from toolcrib.executors import Executors
from toolcrib.formats.descriptor_files import descriptor_files
from toolcrib.formats.imported_tools import ImportedTools
from toolcrib.formats.imports.mocks import with_mock
from toolcrib.formats.openapi_document import openapi_document
from toolcrib.formats.openapi_import import tools_of_openapi
from toolcrib.loading.documents.foreign_text import decode_foreign, read_foreign
from toolcrib.schema.compatibility import incompatibilities

EXAMPLES = ("@readme/oas-examples", "8.2.2")
PACKS = Path(__file__).parents[2] / "packs"
KINDS = Executors.installed()

COUNTED = {
    ".json": {"descriptions": 70, "written": 678, "lost": 51, "repaired": 30},
    ".yaml": {"descriptions": 59, "written": 659, "lost": 51, "repaired": 30},
}
"""What becomes of the descriptions: none of the operations is refused."""


def read(path: Path) -> ImportedTools:
    return tools_of_openapi(read_foreign(decode_foreign(path.read_bytes())).value)


async def test_the_edge_cases_of_readme_become_tools_that_load_and_run_as_mocks(tmp_path):
    counts = {suffix: Counter[str]() for suffix in COUNTED}
    with installed(*EXAMPLES) as folder:
        paths = [path for path in sorted(folder.glob("[23].[01]/*/**/*")) if path.suffix in COUNTED]
        for number, path in enumerate(paths):
            found = read(path)
            counted = counts[path.suffix]
            counted["descriptions"] += 1
            counted["written"] += len(found.tools)
            counted.update(each.reason for each in found.refused)
            counted.update(each.kind for each in found.remarks)
            if path.suffix == ".json":
                await run_mocks(found, made_folder(tmp_path / str(number)))
    assert counts == COUNTED


def made_folder(path: Path) -> Path:
    path.mkdir()
    return path


async def run_mocks(found: ImportedTools, folder: Path) -> None:
    """Write the descriptors, load them, and call each tool that has an example."""
    tools = [tool._replace(descriptor=with_mock(tool.descriptor)) for tool in found.tools]
    made = descriptor_files(found._replace(tools=tools), KINDS)
    assert [*made.refused] == [*found.refused]
    for file in made.files:
        (folder / file.file).write_text(file.text, encoding="utf-8")
    async with Runtime.open(folder, mode="mock", index=False) as runtime:
        assert [problem for problem in runtime.problems if problem.severity == "error"] == []
        assert len(runtime.registry) == len(found.tools)
        for tool in tools:
            for example in tool.descriptor.get("examples", ()):
                result = await runtime.call(str(tool.descriptor["name"]), example["args"])
                assert result.ok or result.error.code == "not_mocked", (tool.key, result)


def tools_of(pack: Path) -> list[Descriptor]:
    with Runtime.open(pack, index=False) as runtime:
        return [*runtime.registry.values()]


@pytest.mark.parametrize(
    "pack", [path.name for path in sorted(PACKS.iterdir()) if (path / "pack.yaml").is_file()]
)
def test_an_export_is_imported_with_equal_schemas(pack):
    tools = tools_of(PACKS / pack)
    names = {tool.name: tool.name.replace(".", "_").replace("-", "_") for tool in tools}
    document = openapi_document(
        tools, names, title="T", version="1", server="https://api.example.com"
    ).document
    found = tools_of_openapi(document)
    made: dict[str, Any] = {tool.key: tool.descriptor for tool in found.tools}
    assert found.refused == []
    for tool in tools:
        imported = made[f"POST /tools/{names[tool.name]}"]
        pairs = [(tool.input_schema, imported["input_schema"])]
        if tool.output_schema not in (None, True):
            pairs.append((tool.output_schema, imported.get("output_schema", True)))
        for ours, theirs in pairs:
            assert incompatibilities(ours, theirs) == [], tool.name
            assert incompatibilities(theirs, ours) == [], tool.name
