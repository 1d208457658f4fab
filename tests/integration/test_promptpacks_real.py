"""Real PromptPacks: they load, their tools are declared, and bound to mocks they are called."""

from __future__ import annotations

import asyncio
import json
import shutil

import jsonschema
import pytest

from promptpack_schema import PROMPTPACK
from toolcrib import Outcome, Runtime
from toolcrib.cli.group import cli
from toolcrib.formats.promptpack.pack_writer import export_promptpack
from toolcrib.formats.providers import DIALECTS, declare
from toolcrib.loading.prompts import find_prompt
from toolcrib.provider import Config, ProviderMiddleware, Stop
from toolcrib.provider.models.scripted import Scripted


@pytest.fixture
def packs(shared_data, tmp_path):
    """The files, each in a folder of its own."""
    files = sorted((shared_data / "promptpacks").glob("*.pack.json"))
    assert len(files) >= 4
    folders = []
    for file in files:
        folder = tmp_path / file.name.partition(".")[0]
        folder.mkdir()
        shutil.copyfile(file, folder / file.name)  # without its mode: it may be read-only
        folders.append(folder)
    return folders


def said(folder):
    (file,) = folder.glob("*.pack.json")
    return file, json.loads(file.read_text(encoding="utf-8"))


def test_they_load_with_all_their_tools_and_prompts(packs):
    for folder in packs:
        _file, written = said(folder)
        with Runtime.open(folder, index=False) as runtime:
            assert [str(problem) for problem in runtime.problems] == []
            assert [pack.name for pack in runtime.packs] == [written["id"]]
            assert sorted(runtime.registry) == sorted(written.get("tools", {}))
            assert [*runtime.packs[0].prompts] == [*written["prompts"]]
            for name, prompt in written["prompts"].items():
                defaults = {each["name"]: each.get("default", "") for each in prompt.get("variables", ())}
                text = prompt["system_template"]
                for variable, value in defaults.items():
                    text = text.replace("{{" + variable + "}}", value)
                assert find_prompt(runtime.packs, name).render() == text


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_their_tools_are_declared(packs, dialect):
    for folder in packs:
        _file, written = said(folder)
        with Runtime.open(folder, index=False) as runtime:
            declared = declare(runtime.registry.values(), dialect, {})
        assert [each.tool for each in declared] == sorted(written.get("tools", {}))
        for each in declared:
            contract = written["tools"][each.tool]
            assert each.description == contract["description"]
            assert each.schema["properties"].keys() == contract["parameters"]["properties"].keys()


def arguments_of(contract):
    """Something for each parameter."""
    made = {"string": "x", "number": 1.5}
    parameters = contract["parameters"]["properties"]
    return {name: part.get("enum", [made[part["type"]]])[0] for name, part in parameters.items()}


def test_bound_to_mocks_they_are_called_by_a_model(packs):
    for folder in packs:
        file, written = said(folder)
        tools = written.get("tools", {})
        bindings = {name: {"mock": {"result": {"got": "{{ args }}"}}} for name in tools}
        file.with_name(file.name.replace(".pack.", ".bindings.")).write_text(json.dumps(bindings))
        calls = [{"call": name, "args": arguments_of(contract)} for name, contract in tools.items()]
        with Runtime.open(folder, index=False) as runtime:
            assert [problem for problem in runtime.problems if problem.severity == "error"] == []
            for prompt in runtime.packs[0].prompts.values():
                script = Scripted.of([{"calls": calls}, {"say": "Done."}] if calls else [{"say": "Done."}])
                config = Config(system=prompt.render())
                loop = ProviderMiddleware(script, runtime, prompt.policy, config)
                conversation = asyncio.run(loop.run("go"))
                assert (conversation.stop, conversation.text) == (Stop.ANSWERED, "Done.")
                assert [(call.tool, call.outcome, call.value) for call in conversation.calls] == [
                    (each["call"], Outcome.OK, {"got": each["args"]}) for each in calls
                ]


def test_exported_again_they_say_the_same(packs):
    for folder in packs:
        _file, written = said(folder)
        with Runtime.open(folder, index=False) as runtime:
            exported = export_promptpack(runtime.registry.values(), runtime.packs)
        jsonschema.Draft202012Validator(PROMPTPACK).validate(exported.document)
        written.pop("compilation", None)
        assert exported.document == written


def test_imported_they_are_packs_of_our_own(packs, tmp_path, capsys):
    for folder in packs:
        _file, written = said(folder)
        out = tmp_path / "out" / folder.name
        with pytest.raises(SystemExit) as ended:
            cli.main(["import", "promptpack", str(folder), "--out", str(out)])
        assert ended.value.code == 0
        with Runtime.open(out, index=False) as runtime:
            exported = export_promptpack(runtime.registry.values(), runtime.packs)
        written.pop("compilation", None)
        assert exported.document == written
    capsys.readouterr()
