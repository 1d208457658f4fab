"""From paths to what a runtime holds: what is read, what is in force, what a project says."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import pytest

from toolcrib import ConfigurationError, Outcome
from toolcrib.engine.runtime import OpenRequest, Runtime, read_runtime


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write files below an empty folder, which is then the working directory."""
    monkeypatch.chdir(tmp_path)

    def write_files(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write_files


def chosen_paths(paths=(), packs=()):
    return read_runtime(OpenRequest(paths=tuple(paths), also=tuple(packs)))._engine.stock.sources


class TestChosenPaths:
    """What is read for the paths that are given."""

    def test_without_paths_the_default_folders_that_exist(self, write):
        write({"packs/x.yaml": ""})
        assert chosen_paths() == ("packs",)
        assert chosen_paths(packs=["packs/x.yaml"]) == ("packs",)

    def test_without_any_folder_the_one_that_should_be_there(self, write):
        write({})
        assert chosen_paths() == ("descriptors",)

    def test_with_a_pack_and_no_default_folder_the_pack_alone(self, write):
        write({"mine/x.yaml": ""})
        assert chosen_paths(packs=["mine"]) == ("mine",)

    def test_paths_stand_in_for_the_default_folders_and_packs_are_added(self, write):
        write({"mine/x.yaml": "", "yours/y.yaml": ""})
        assert chosen_paths(["mine"], ["yours"]) == ("mine", "yours")

    def test_nothing_is_read_twice(self, write):
        folder = write({"mine/deep/x.yaml": ""})
        assert chosen_paths(["mine", "mine/deep", "./mine", str(folder / "mine")]) == ("mine",)

    def test_what_lies_in_a_hidden_folder_is_read_when_it_is_named(self, write):
        write({"mine/.hidden/x.yaml": ""})
        assert chosen_paths(["mine", "mine/.hidden"]) == ("mine", "mine/.hidden")

    def test_a_folder_besides_another_one_is_no_part_of_it(self, write):
        write({"mine/x.yaml": "", "mine2/x.yaml": ""})
        assert chosen_paths(["mine", "mine2"]) == ("mine", "mine2")


def tool(name: str, rest: str = "") -> str:
    return f"name: {name}\nmock: {{result: 1}}\n{rest}"


def read(*paths: str, **asked) -> Runtime:
    """A runtime over documents without a problem."""
    runtime = read_runtime(OpenRequest(paths=paths, indexed=False, **asked))
    assert [str(problem) for problem in runtime.problems] == []
    return runtime


EXEC = "robot: {command: x}\n"
"""A block of a mode that is not installed; `mode_not_installed` is told of it."""


class TestProjects:
    """What `toolcrib.yaml` puts in force."""

    def test_it_is_found_above_the_working_directory(self, write, monkeypatch):
        folder = write(
            {"toolcrib.yaml": "project: p\n", "descriptors/a.yaml": tool("a"), "deep/er/x.txt": ""}
        )
        monkeypatch.chdir(folder / "deep" / "er")
        runtime = read()
        assert list(runtime.registry) == ["a"]
        assert runtime.project.name == "p"
        assert runtime._engine.stock.sources == ("../../descriptors",)

    def test_its_folder_or_its_file_can_be_named(self, write, monkeypatch):
        folder = write({"p/toolcrib.yaml": "project: p\nsources: [tools]\n", "p/tools/a.yaml": tool("a")})
        assert list(read(str(folder / "p")).registry) == ["a"]
        assert list(read("p/toolcrib.yaml").registry) == ["a"]

    def test_paths_that_are_given_mean_just_these(self, write):
        write({"toolcrib.yaml": "project: p\n", "descriptors/a.yaml": tool("a"), "other/b.yaml": tool("b")})
        runtime = read("other")
        assert list(runtime.registry) == ["b"]
        assert runtime.project is None

    def test_sources_have_namespaces_and_ignored_files(self, write):
        write(
            {
                "toolcrib.yaml": "project: p\nsources: [mine, {path: theirs, namespace: them}]\nignore: ['mine/data/**']\n",
                "mine/a.yaml": tool("a"),
                "mine/data/x.yaml": "- 1\n",
                "theirs/a.yaml": tool("a"),
                "theirs/s.yaml": "scenario: s\nsteps: [{call: a}]\n",
            }
        )
        runtime = read()
        assert list(runtime.registry) == ["a", "them__a"]
        assert [step.call for step in runtime.scenarios[0].calls] == ["them__a"]
        assert runtime._engine.stock.ignored == ("mine/data/x.yaml",)

    def test_a_source_that_is_missing_is_told_where_it_is_written(self, write):
        write({"toolcrib.yaml": "project: p\nsources:\n  - mine\n  - missing\n", "mine/a.yaml": tool("a")})
        runtime = read_runtime(OpenRequest())
        (problem,) = runtime.problems
        assert (problem.code, problem.source, problem.line) == ("path_not_found", "toolcrib.yaml", 4)
        assert list(runtime.registry) == ["a"]

    def test_two_projects_can_not_be_in_force(self, write):
        write(
            {"p/toolcrib.yaml": "project: p\nsources: []\n", "q/toolcrib.yaml": "project: q\nsources: []\n"}
        )
        with pytest.raises(ConfigurationError, match="are both projects"):
            read("p", "q")

    def test_a_broken_project_offers_no_tool_and_says_why(self, write):
        write({"toolcrib.yaml": "project: p\nprofils: {}\n", "descriptors/a.yaml": tool("a")})
        runtime = read_runtime(OpenRequest())
        assert [problem.code for problem in runtime.problems] == ["unknown_key"]
        result = runtime.call_sync("a")
        assert result.outcome is Outcome.UNAVAILABLE
        assert result.message == "no tool is offered while toolcrib.yaml:2 has errors"
        assert result.error.code == "closed"
        runtime.close()

    def test_a_folder_with_a_project_in_it_is_read_without_it(self, write):
        write({"tools/a.yaml": tool("a"), "tools/inner/toolcrib.yaml": "project: p\n"})
        assert list(read("tools").registry) == ["a"]


PROFILES = """\
project: p
sources: [tools]
defaults: {timeout: 9s, coerce: "off"}
disable: [old]
toolsets: {small: [a, b]}
profile: dev
profiles:
  dev: {modes: {"*": mock}}
  robot: {modes: {a: robot}, defaults: {timeout: 1m}}
  small: {extends: robot, toolset: small, enable: [old]}
"""


class TestProfiles:
    """What is in force under a profile, and where it was written."""

    @pytest.fixture
    def project(self, write):
        both = "name: a\nmode: robot\ntimeout: 5s\nmock: {result: 1}\n" + EXEC
        write(
            {
                "toolcrib.yaml": PROFILES,
                "tools/a.yaml": both,
                "tools/b.yaml": tool("b"),
                "tools/old.yaml": tool("old"),
            }
        )

    def opened(self, profile=None, **asked) -> Runtime:
        return read_runtime(OpenRequest(profile=profile, indexed=False, **asked))

    def test_the_project_chooses_one_itself(self, project):
        tools = self.opened().registry
        assert (tools["a"].mode, tools.cards["a"].mode) == ("mock", "mock")
        assert tools["a"].origin.settings["mode"] == "toolcrib.yaml:8 (profile dev)"

    def test_another_one_can_be_chosen(self, project):
        tools = self.opened("robot").registry
        assert (tools["a"].mode, tools.cards["a"].mode) == ("robot", "robot")

    def test_the_environment_chooses_before_the_project_and_after_the_caller(self, project, monkeypatch):
        monkeypatch.setenv("TOOLCRIB_PROFILE", "robot")
        assert self.opened().registry["a"].mode == "robot"
        assert self.opened("dev").registry["a"].mode == "mock"

    def test_modes_of_the_caller_come_before_those_of_the_profile(self, project):
        assert self.opened("dev", modes={"a": "robot"}).registry["a"].mode == "robot"

    def test_defaults_are_for_tools_that_do_not_say_so_themselves(self, project):
        tools = self.opened("robot").registry
        assert (tools["a"].timeout, tools["b"].timeout) == (5.0, 60.0)
        assert (tools["a"].coerce, tools["b"].coerce) == ("off", "off")
        assert tools["b"].origin.settings == {
            "timeout": "toolcrib.yaml:9 (profile robot)",
            "coerce": "toolcrib.yaml:3",
        }

    def test_what_is_disabled_is_not_listed_not_found_and_not_called(self, project):
        runtime = self.opened()
        assert [tool.name for tool in runtime.registry.select()] == ["a", "b"]
        result = runtime.call_sync("old")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "disabled")
        assert "toolcrib.yaml:4" in result.message
        runtime.close()

    def test_a_toolset_is_all_that_is_offered(self, project):
        runtime = self.opened("small")
        assert [tool.name for tool in runtime.registry.select()] == ["a", "b"]
        result = runtime.call_sync("old")
        assert result.error.code == "not_in_toolset"
        runtime.close()

    def test_a_session_may_be_offered_a_toolset(self, project):
        runtime = self.opened()
        session = runtime.session(toolset="small")
        assert [tool.name for tool in session.registry.select()] == ["a", "b"]
        with pytest.raises(ConfigurationError, match="did you mean"):
            runtime.session(toolset="smal")

    def test_an_unknown_profile_names_the_near_ones(self, project):
        with pytest.raises(ConfigurationError, match="unknown profile `deb`") as caught:
            self.opened("deb")
        assert "`dev`" in caught.value.hint

    def test_a_profile_with_an_unknown_mode_offers_no_tool_and_says_why(self, write):
        write(
            {
                "toolcrib.yaml": "project: p\nsources: [tools]\nprofiles:\n  x:\n    modes:\n      '*': mok\n",
                "tools/a.yaml": tool("a"),
            }
        )
        runtime = self.opened("x")
        assert [problem.code for problem in runtime.problems] == ["unknown_mode"]
        hidden = runtime.registry.hidden("a")
        assert hidden.code == "closed"
        assert hidden.message == (
            "no tool is offered while toolcrib.yaml:6 (profile x) selects the unknown mode `mok`; "
            "did you mean `mock`?"
        )
        assert hidden.place == "toolcrib.yaml:6 (profile x)"
        assert self.opened().registry.hidden("a") is None
        runtime.close()

    def test_a_reload_to_an_unknown_mode_leaves_everything_as_it_was(self, write):
        text = "project: p\nsources: [tools]\nprofile: x\nprofiles: {x: {modes: {'*': mock}, toolset: t}}\ntoolsets: {t: ['*']}\n"
        write({"toolcrib.yaml": text, "tools/a.yaml": tool("a")})
        runtime = read_runtime(OpenRequest(indexed=False))
        for wrong in (text.replace("mock", "mok"), text.replace("toolset: t", "toolset: tt")):
            write({"toolcrib.yaml": wrong})
            with pytest.raises(ConfigurationError, match=r"toolcrib.yaml:4 \(profile x\) selects"):
                asyncio.run(runtime.reload())
            assert runtime.registry.hidden("a") is None
        runtime.close()

    def test_globs_that_fit_no_tool_are_warnings_at_their_place(self, write):
        text = "project: p\nsources: [tools]\ndisable: [aa]\nprofile: x\nprofiles: {x: {modes: {bb: mock}}}\ntoolsets: {t: [cc]}\n"
        write({"toolcrib.yaml": text, "tools/a.yaml": tool("a")})
        problems = self.opened().problems
        assert [(problem.code, problem.line, problem.severity) for problem in problems] == [
            ("idle_glob", 3, "warning"),
            ("idle_glob", 5, "warning"),
            ("idle_glob", 6, "warning"),
        ]


class TestEveryProfile:
    """What is wrong with a profile is told whether it is in force or not."""

    def problems(self, write, text: str, **more: str):
        write({"toolcrib.yaml": text, "tools/a.yaml": tool("a"), **more})
        runtime = read_runtime(OpenRequest(indexed=False))
        return runtime, [(found.code, found.severity, found.pointer) for found in runtime.problems]

    @pytest.mark.parametrize("glob", ["a", "*"])
    def test_an_unknown_mode(self, write, glob):
        text = f"project: p\nsources: [tools]\nprofiles: {{x: {{modes: {{'{glob}': mok}}}}}}\n"
        runtime, told = self.problems(write, text)
        pointer = f"/profiles/x/modes/{glob}"
        assert told == [("unknown_mode", "error", pointer)]
        assert "mock" in runtime.problems[0].hint
        assert runtime.problems[0].line == 3
        assert runtime.registry["a"].mode == "mock"

    def test_a_tool_without_a_block_of_the_mode(self, write):
        text = "project: p\nsources: [tools]\nprofiles: {x: {modes: {a: robot}}}\n"
        _runtime, told = self.problems(write, text, **{"tools/b.yaml": tool("b", f"mode: mock\n{EXEC}")})
        assert ("binding_missing", "warning", "/profiles/x/modes/a") in told

    def test_an_unknown_toolset_offers_nothing_and_is_told(self, write):
        text = "project: p\nsources: [tools]\ntoolsets: {small: [a]}\nprofile: x\nprofiles: {x: {toolset: smal}}\n"
        runtime, told = self.problems(write, text)
        assert told == [("unknown_toolset", "error", "/profiles/x/toolset")]
        assert "small" in runtime.problems[0].hint
        assert runtime.registry.query() == []

    def test_a_toolset_of_a_pack_can_be_put_in_force(self, write):
        text = "project: p\nsources: [tools, p]\nprofile: x\nprofiles: {x: {toolset: small}}\n"
        pack = {"p/pack.yaml": "name: q\nversion: 1.0.0\ntoolsets: {small: [b]}\n", "p/b.yaml": tool("b")}
        runtime, told = self.problems(write, text, **pack)
        assert told == []
        assert [card.name for card in runtime.registry.query()] == ["b"]


class TestPacks:
    """Packs in folders and archives, with what they need and what they give."""

    PACK = "name: p\nversion: 1.2.0\n"

    def test_defaults_of_a_pack_are_for_its_tools(self, write):
        write(
            {
                "p/pack.yaml": self.PACK + "defaults: {timeout: 9s, on_invalid_result: warn}\n",
                "p/a.yaml": "name: a\noutput_schema: {type: integer}\nmock: {result: no}\n",
                "p/b.yaml": tool("b", "timeout: 1s\n"),
            }
        )
        runtime = read_runtime(OpenRequest(paths=("p",), indexed=False))
        assert [problem.severity for problem in runtime.problems] == ["warning"]
        tools = runtime.registry
        assert (tools["a"].timeout, tools["b"].timeout) == (9.0, 1.0)
        assert tools["a"].origin.settings["timeout"] == "p/pack.yaml:3 (defaults of pack p)"
        assert "timeout" not in tools["b"].origin.settings

    def test_toolsets_of_a_pack_name_its_tools_as_it_does(self, write):
        write(
            {
                "p/pack.yaml": self.PACK + "namespace: ns\ntoolsets: {one: [a]}\n",
                "p/a.yaml": tool("a"),
                "p/b.yaml": tool("b"),
            }
        )
        session = read("p").session(toolset="one")
        assert [tool.name for tool in session.registry.select()] == ["ns__a"]

    def test_a_need_that_is_not_met_is_an_error_at_its_place(self, write):
        write({"p/pack.yaml": self.PACK + "requires: {packs: {q: '>=2'}}\n", "p/a.yaml": tool("a")})
        runtime = read_runtime(OpenRequest(paths=("p",), indexed=False))
        (problem,) = runtime.problems
        assert (problem.severity, problem.source, problem.line) == ("error", "p/pack.yaml", 3)
        assert list(runtime.registry) == ["a"]

    @pytest.mark.parametrize("named", ["packs", "packs/p.zip"])
    def test_an_archive_is_a_pack_wherever_it_lies(self, write, named):
        folder = write({"packs/none.txt": ""})
        with zipfile.ZipFile(folder / "packs" / "p.zip", "w") as archive:
            archive.writestr("pack.yaml", self.PACK)
            archive.writestr("tools/a.yaml", "name: a\nmock: {result_file: ../data/a.json}\n")
            archive.writestr("data/a.json", "[1]")
            archive.writestr("s.yaml", "scenario: s\nsteps: [{call: a}]\n")
        runtime = read(named)
        assert runtime.call_sync("a").value == [1]
        assert runtime.registry["a"].origin.place("/mock") == "packs/p.zip/tools/a.yaml:2"
        assert [(scenario.name, scenario.origin.pack) for scenario in runtime.scenarios] == [("s", "p")]
        runtime.close()

    def test_an_archive_of_something_else_is_a_notice_where_it_was_only_found(self, write):
        folder = write({"tools/a.yaml": tool("a")})
        with zipfile.ZipFile(folder / "tools" / "photos.zip", "w") as archive:
            archive.writestr("a.jpg", "x")
        for path, severity in (("tools", "notice"), ("tools/photos.zip", "error")):
            (problem,) = read_runtime(OpenRequest(paths=(path,), indexed=False)).problems
            assert (problem.code, problem.severity) == ("unrecognised_file", severity)
