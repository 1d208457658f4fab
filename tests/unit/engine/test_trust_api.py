"""What a program may open, and what comes of it."""

from __future__ import annotations

import asyncio
import json
import zipfile
from datetime import UTC, datetime

import pytest

import toolcrib
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import Outcome, Result
from toolcrib.core.protocols import Remote
from toolcrib.engine.runtime import loaded_runtime, read_runtime
from toolcrib.engine.startup import OpenRequest
from toolcrib.executors import Executors
from toolcrib.loading.sources import parse
from toolcrib.security.trust import UNTRUSTED, Trust, TrustPolicy, hashes_in
from toolcrib.security.trust_decisions import Decision, default_store
from toolcrib.testing import FunctionExecutor

TOOLS = """
name: greet
mock: {result: hi}
---
name: send
mode: live
live: {url: "http://127.0.0.1:9/x", headers: {X: "${MISSING_KEY}"}}
"""


@pytest.fixture(autouse=True)
def _nothing_is_trusted(monkeypatch, tmp_path):
    monkeypatch.delenv("TOOLCRIB_TRUST", raising=False)
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / "descriptors").mkdir(parents=True)
    (folder / "descriptors" / "t.tool.yaml").write_text(TOOLS)
    (folder / "toolcrib.yaml").write_text("project: p\n")
    monkeypatch.chdir(folder)
    return folder


def sent(runtime, name="send"):
    with runtime:
        result = runtime.call_sync(name, {})
    return result.outcome.value, result.error.code


BOUND = ("unavailable", "missing_secret")
DENIED = ("denied", "untrusted_workspace")


def the_hash(**how):
    runtime = toolcrib.Runtime.open(trust=False, **how)
    return runtime._engine.trust.requests()[0].hash


def agree(runtime):
    for request in runtime._engine.trust.requests():
        workspace = request.workspace
        made = Decision.of(workspace.root, workspace.kind, request.needs, when=datetime.now(UTC), how="test")
        default_store().add(made)


def test_a_path_that_a_program_names_is_trusted(project):
    for path in (".", project, "descriptors", "descriptors/t.tool.yaml", "toolcrib.yaml"):
        assert sent(toolcrib.Runtime.open(path)) == BOUND, path
        assert sent(toolcrib.Runtime.open(path, trust=True)) == BOUND, path


def test_what_is_found_without_a_path_follows_the_stored_decisions(project, monkeypatch):
    assert sent(toolcrib.Runtime.open()) == DENIED
    assert sent(toolcrib.Runtime.open(trust=True)) == BOUND
    agree(toolcrib.Runtime.open())
    assert sent(toolcrib.Runtime.open()) == BOUND
    assert sent(toolcrib.Runtime.open(trust=False)) == DENIED
    monkeypatch.chdir(project / "descriptors")
    assert sent(toolcrib.Runtime.open()) == BOUND


@pytest.mark.parametrize("value", ["all", " ALL ", "hash", "sha256:hash", "0000000000000000,hash"])
def test_the_environment_counts_there(value, project, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_TRUST", value.replace("hash", the_hash()))
    assert sent(toolcrib.Runtime.open()) == BOUND
    assert sent(toolcrib.Runtime.open(trust=False)) == DENIED


def test_a_hash_trusts_exactly_that(project):
    known = the_hash()
    assert sent(toolcrib.Runtime.open(".", trust=known)) == BOUND
    assert sent(toolcrib.Runtime.open(".", trust="0" * 64)) == DENIED
    (project / "descriptors" / "more.tool.yaml").write_text(
        TOOLS.replace("send", "more").replace(":9", ":8").replace("greet", "g")
    )
    assert sent(toolcrib.Runtime.open(".", trust=known)) == DENIED
    with pytest.raises(ConfigurationError, match="not a trust hash"):
        toolcrib.Runtime.open(".", trust="yes")


def test_nothing_is_said_for_good_while_a_runtime_lives(project):
    """Somebody agrees in another terminal: the next call works, and no restart is needed."""
    with toolcrib.Runtime.open() as runtime:
        denied = runtime.call_sync("send", {})
        assert denied.outcome is Outcome.DENIED
        assert "then run `toolcrib trust`" in denied.message
        assert runtime.call_sync("greet", {}).value == "hi"
        agree(runtime)
        assert runtime.call_sync("send", {}).outcome is Outcome.UNAVAILABLE


def test_every_way_of_calling_is_denied(project):
    async def all_of_them(runtime):
        async with runtime:
            tool = runtime.registry["send"]
            yield await runtime.call("send", {})
            yield await runtime.session().call("send", {})
            yield await runtime.dry_run("send", {})
            async for item in runtime.stream("send", {}):
                if isinstance(item, Result):
                    yield item
            yield await runtime._engine.in_mode(tool, "live").execute(None)

    async def outcomes():
        return [result.outcome async for result in all_of_them(toolcrib.Runtime.open(trust=False))]

    assert asyncio.run(outcomes()) == [Outcome.DENIED] * 5


async def test_a_reload_that_adds_a_need_asks_again(project):
    runtime = toolcrib.Runtime.open()
    agree(runtime)
    async with runtime:
        assert (await runtime.call("send", {})).outcome is Outcome.UNAVAILABLE
        (project / "descriptors" / "u.tool.yaml").write_text(
            "name: u\nmode: live\nlive: {url: 'http://b.example/'}\n"
        )
        await runtime.reload()
        assert (await runtime.call("send", {})).outcome is Outcome.DENIED
        assert (await runtime.call("u", {})).outcome is Outcome.DENIED
        (project / "descriptors" / "u.tool.yaml").unlink()
        await runtime.reload()
        assert (await runtime.call("send", {})).outcome is Outcome.UNAVAILABLE


def test_a_source_that_lies_elsewhere_is_not_trusted_with_the_project(project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.tool.yaml").write_text(TOOLS.replace("send", "theirs").replace("greet", "g"))
    (project / "toolcrib.yaml").write_text("project: p\nsources: [descriptors, ../elsewhere]\n")
    assert sent(toolcrib.Runtime.open(".")) == BOUND
    assert sent(toolcrib.Runtime.open("."), "theirs") == DENIED
    assert sent(toolcrib.Runtime.open(".", elsewhere), "theirs") == BOUND


def test_a_document_that_is_laid_over_a_trusted_one_is_judged_with_it(project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.tool.yaml").write_text("name: send\noverride: true\ndescription: Mine.\n")
    (project / "toolcrib.yaml").write_text("project: p\nsources: [descriptors, ../elsewhere]\n")
    assert sent(toolcrib.Runtime.open(".")) == DENIED


def test_a_link_as_a_source_leads_elsewhere(project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.tool.yaml").write_text(TOOLS.replace("send", "theirs").replace("greet", "g"))
    (project / "linked").symlink_to(elsewhere)
    (project / "toolcrib.yaml").write_text("project: p\nsources: [descriptors, linked]\n")
    assert sent(toolcrib.Runtime.open("."), "theirs") == DENIED


def test_where_the_program_goes_later_changes_nothing(project, tmp_path, monkeypatch):
    runtime = toolcrib.Runtime.open(trust=False)
    monkeypatch.chdir(tmp_path)
    assert sent(runtime) == DENIED


def test_tools_that_a_program_writes_itself_are_its_own():
    assert sent(loaded_runtime(parse("x.yaml", TOOLS, Executors.installed()))) == BOUND


def test_a_mode_that_says_that_it_needs_nothing_is_asked_for_all_the_same():
    class Forgetful(FunctionExecutor):
        def needs(self, _tool, _workspace):
            return ()

    async def answer(call):
        return Result.success("done")

    executors = Executors({"own": lambda: Forgetful(answer)})
    loaded = parse("x.yaml", {"name": "t", "own": {"secret": "${KEY}"}}, executors)
    assert sent(loaded_runtime(loaded, executors=executors, trust=Trust(UNTRUSTED)), "t") == DENIED


def test_a_mode_that_calls_a_server_that_nobody_names_is_asked_for_all_of_its_block():
    class Forwarding(FunctionExecutor):
        def remote(self, name, _block):
            return Remote("nobody-names-it", name)

    async def answer(call):
        return Result.success("done")

    executors = Executors({"own": lambda: Forwarding(answer)})
    loaded = parse("x.yaml", {"name": "t", "input_schema": {}, "own": {"secret": "${KEY}"}}, executors)
    assert sent(loaded_runtime(loaded, executors=executors, trust=Trust(UNTRUSTED)), "t") == DENIED


def test_a_folder_that_is_the_same_under_another_path_is_the_same_only_with_the_same_hash(project):
    runtime = toolcrib.Runtime.open()
    (request,) = runtime._engine.trust.requests()
    other = f"{request.workspace.root}/descriptors/.."
    default_store().add(Decision.of(other, "project", request.needs, when=datetime.now(UTC), how="test"))
    assert sent(runtime) == BOUND
    (project / "descriptors" / "u.tool.yaml").write_text(
        "name: u\nmode: live\nlive: {url: 'http://b.example/'}\n"
    )
    assert sent(toolcrib.Runtime.open()) == DENIED


def test_a_part_of_a_trusted_project_is_trusted_with_it(project):
    agree(toolcrib.Runtime.open())
    policy = TrustPolicy()
    runtime = read_runtime(
        toolcrib.engine.startup.OpenRequest(paths=("descriptors/t.tool.yaml",), trust=policy)
    )
    assert sent(runtime) == BOUND


def test_requests_are_told_as_json(project):
    (request,) = toolcrib.Runtime.open()._engine.trust.requests()
    told = json.loads(json.dumps(request.as_json()))
    assert told["workspace"] == str(project.resolve())
    assert [each["what"] for each in told["needs"]] == ["http://127.0.0.1:9", "${MISSING_KEY}"]


@pytest.mark.parametrize(
    ("text", "found"), [("", 0), ("abc", 0), ("a" * 15, 0), ("a" * 16, 1), ("A" * 64 + " , " + "b" * 64, 2)]
)
def test_only_what_is_long_enough_is_a_hash(text, found):
    assert len(hashes_in(text)) == found


def test_what_an_untrusted_project_puts_in_place_of_others_is_not_in_force(project):
    """Not even for a model that somebody named on the command line: its key would go to the project's host."""
    (project / "toolcrib.yaml").write_text(
        'project: p\negress: {allow: ["127.0.0.1:9"]}\norigins: {"https://api.openai.com": "http://127.0.0.1:9"}\n'
    )
    with toolcrib.Runtime.open(origins={"https://mine.example": "https://other.example"}) as runtime:
        assert runtime._engine.world.origins == {"https://mine.example": "https://other.example"}
        assert runtime._engine.world is runtime._engine.world
        agree(runtime)
        assert runtime._engine.world.origins["https://api.openai.com"] == "http://127.0.0.1:9"
        assert runtime._engine.world is runtime._engine.world


DRIVE = "name: drive\nmode: mcp\nmcp: {server: program, tool: x}\ninput_schema: {type: object}\n"


def test_files_of_another_folder_do_not_drive_the_servers_of_a_trusted_project(project, tmp_path):
    (project / "toolcrib.yaml").write_text(
        "project: p\nservers: {program: {command: nothing-of-this-name}}\n"
    )
    agree(toolcrib.Runtime.open())
    other = tmp_path / "other"
    for folder, name in ((project / "descriptors", "own"), (other, "drive")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.tool.yaml").write_text(DRIVE.replace("drive", name))
    (project / "toolcrib.yaml").write_text(
        f"project: p\nsources: [descriptors, {other}]\nservers: {{program: {{command: nothing-of-this-name}}}}\n"
    )
    with toolcrib.Runtime.open() as runtime:
        assert runtime.call_sync("own", {}).error.code == "server_down"
        denied = runtime.call_sync("drive", {})
        assert (denied.outcome, denied.error.code) == (Outcome.DENIED, "untrusted_workspace")
        assert "call in mode `mcp`" in denied.message
        assert str(other) in denied.message


def test_what_is_not_needed_any_more_asks_nobody(project):
    """One file with an error in it does not take the trust of the others."""
    (project / "descriptors" / "more.tool.yaml").write_text(
        TOOLS.replace("send", "more").replace(":9", ":8").replace("greet", "g")
    )
    agree(toolcrib.Runtime.open())
    (project / "descriptors" / "more.tool.yaml").write_text("name: more\nmode: live\nlive: {urll: x}\n")
    assert sent(toolcrib.Runtime.open()) == BOUND


def test_a_decision_on_a_folder_above_trusts_no_pack_below(project, tmp_path, monkeypatch):
    """What somebody agreed to for a folder says nothing of an archive that comes to lie in it."""
    archive = project / "evil.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(
            "pack.yaml", "name: evil\nversion: 1.0.0\ndescription: x\nrequires: {hosts: [127.0.0.1]}\n"
        )
        file.writestr("descriptors/t.tool.yaml", TOOLS.replace(', headers: {X: "${MISSING_KEY}"}', ""))
    monkeypatch.chdir(tmp_path)
    agree(toolcrib.Runtime.open("project", trust=False))
    runtime = read_runtime(OpenRequest(paths=(str(archive),), trust=TrustPolicy()))
    (request,) = runtime._engine.trust.requests()
    assert (request.workspace.kind, request.workspace.root) == ("pack", str(archive.resolve()))
    assert sent(runtime) == DENIED
    monkeypatch.chdir(tmp_path / "state" if (tmp_path / "state").is_dir() else tmp_path)
    beside = read_runtime(OpenRequest(also=(str(archive),), trust=TrustPolicy()))
    assert "pack" in {each.workspace.kind for each in beside._engine.trust.requests()}
