"""What others build on: the metadata of the package, the image, the GitHub action, the hooks of pre-commit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling import build

from toolcrib.loading.documents.document import parse_documents

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FRAMEWORKS = {"inspect", "langchain", "openai-agents", "pydantic-ai"}

TOOL = "name: t\ndescription: Count the visitors of a museum.\nmock: {result: 1}\n"
PASSING = "scenario: s\nsteps: [{call: t, expect: {result: 1}}]\n"
FAILING = "scenario: s\nsteps: [{call: t, expect: {result: 2}}]\n"


def read(name):
    documents, problems = parse_documents(name, (ROOT / name).read_bytes())
    assert problems == []
    return documents[0].value


def instructions():
    """The lines of the Dockerfile: instruction and arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_the_extra_all_has_every_other_one_but_the_frameworks():
    (together,) = PROJECT["optional-dependencies"]["all"]
    names = re.fullmatch(r"toolcrib\[(.*)\]", together)[1].split(",")
    assert {*names} == PROJECT["optional-dependencies"].keys() - FRAMEWORKS - {"all", "fast"}


def test_what_the_dockerfile_copies_builds_the_package(tmp_path, monkeypatch):
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for instruction, rest in instructions():
        if instruction == "COPY":
            *sources, target = rest.split()
            for source in sources:
                assert f"!{source}" in ignored
                place = tmp_path / target.strip("/")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, place)
    monkeypatch.chdir(tmp_path / "src")
    with zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith("/METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
        scripts = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    said = dict(instructions())
    extras = re.search(r'"/src\[(.*)\]"', said["RUN"])[1].split(",")
    assert {*extras} <= {*metadata.get_all("Provides-Extra")}
    assert said["ENTRYPOINT"] == '["toolcrib"]'
    assert "toolcrib = toolcrib.cli:main" in scripts
    assert metadata["Author"] == "the toolcrib authors"
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= urls.keys()


def test_each_page_that_the_metadata_names_is_there():
    pages = [url.partition("/blob/main/")[2] for url in PROJECT["urls"].values()]
    assert [page for page in pages if page and not (ROOT / page).is_file()] == []
    assert {"docs/SECURITY.md", "CHANGELOG.md"} <= {*pages}


def test_the_oldest_python_of_the_metadata_is_the_first_of_the_classifiers():
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    assert versions[-1] == "3.14"
    assert [*PROJECT["classifiers"]] == sorted(
        PROJECT["classifiers"], key=lambda line: line.partition(" ::")[0]
    )


def test_contributing_names_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)", (ROOT / "docs/CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert {"test", "lint", "docs"} <= named
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("hook", read(".pre-commit-hooks.yaml"), ids=lambda hook: hook["id"])
@pytest.mark.parametrize(("scenario", "passes"), [(PASSING, True), (FAILING, False)])
def test_a_hook_of_pre_commit_runs_its_command(hook, scenario, passes, write, toolcrib):
    write({"descriptors/t.tool.yaml": TOOL, "descriptors/s.scenario.yaml": scenario})
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    program, *words = shlex.split(hook["entry"])
    assert program in PROJECT["scripts"]
    # What a scenario expects is found out by running it.
    expected = 0 if passes or words[0] in {"validate", "lint"} else 1
    assert toolcrib(*words).exit_code == expected
    write({"descriptors/t.tool.yaml": "name: t\noops: 1\n"})
    assert toolcrib(*words).exit_code == 1


class Job:
    """Runs the steps of the action as a runner does, with a `pip` that only tells its arguments."""

    def __init__(self, folder, **inputs):
        self.folder = folder
        action = read("action.yml")
        assert action["runs"]["using"] == "composite"
        assert inputs.keys() <= action["inputs"].keys()
        self.inputs = {name: said["default"] for name, said in action["inputs"].items()} | inputs
        self.steps = [step for step in action["runs"]["steps"] if "run" in step]
        programs = folder / "programs"
        programs.mkdir()
        (programs / "pip").write_text('#!/bin/sh\necho "pip $*"\n')
        (programs / "toolcrib").write_text(f'#!/bin/sh\nexec {sys.executable} -m toolcrib "$@"\n')
        for program in programs.iterdir():
            program.chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"

    def filled(self, text):
        return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda match: self.inputs[match[1]], text)

    def run(self):
        """The output of each step up to the first that fails, and its exit code."""
        told = []
        for step in self.steps:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], "an input in a script could contain commands"
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.folder / self.filled(step.get("working-directory", ".")),
                env={**os.environ, "PATH": self.path}
                | {key: self.filled(text) for key, text in step["env"].items()},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            told.append(done.stdout)
            if done.returncode:
                return told, done.returncode
        return told, 0


def test_the_action_validates_and_runs_a_project(write, tmp_path):
    write({"shop/toolcrib.yaml": "project: p\nsources: [tools]\nprofiles: {ci: {}}\n"})
    write({"shop/tools/t.tool.yaml": TOOL, "shop/tools/s.scenario.yaml": PASSING})
    inputs = {
        "path": "shop",
        "profile": "ci",
        "junit": "report.xml",
        "extras": "mcp,typed",
        "version": "==0.1.0",
        "lint": "error",
    }
    (installed, validated, linted, ran), code = Job(tmp_path, **inputs).run()
    assert (code, installed) == (0, "pip install toolcrib[mcp,typed]==0.1.0\n")
    assert validated == "1 tool, 0 packs, 1 scenario: no problems\n"
    assert linted.splitlines()[-1].startswith("1 tool: ")
    assert "1 scenario passed" in ran
    assert (tmp_path / "shop/report.xml").is_file()


def test_a_failure_fails_the_job_at_the_line_of_its_step(write, tmp_path):
    write({"descriptors/t.tool.yaml": TOOL, "descriptors/s.scenario.yaml": FAILING})
    (installed, _validated, _linted, ran), code = Job(tmp_path).run()
    assert (code, installed) == (1, "pip install toolcrib\n")
    assert "::error file=descriptors/s.scenario.yaml,line=2" in ran


def test_an_input_is_never_read_as_a_command(write, tmp_path):
    write({"descriptors/t.tool.yaml": TOOL})
    (installed, validated), code = Job(tmp_path, extras="$(touch stolen)", profile="; touch stolen").run()
    assert installed == "pip install toolcrib[$(touch stolen)]\n"
    assert (code, validated, (tmp_path / "stolen").exists()) == (2, "", False)
