"""Mode `python` in packs: the code lies in the folder or archive of the pack, and trust covers it."""

from __future__ import annotations

import sys
from zipfile import ZipFile

import pytest

from toolcrib import Outcome, Runtime

CODE = "def say(text: str) -> str:\n    return f'{word} {{text}}'\n"
TOOL = """
name: say
mode: python
python: {{call: "{module}:say"}}
"""
PACK = "name: talking\nversion: 1.0.0\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder without a project file; modules that its packs import are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("TOOLCRIB_TRUST")
    (tmp_path / "packs").mkdir()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("code_of_")]:
        del sys.modules[name]


def contents(module, word="hello", inner=""):
    return {
        f"{inner}pack.yaml": PACK,
        f"{inner}tools/say.tool.yaml": TOOL.format(module=module),
        f"{inner}{module}.py": CODE.format(word=word),
    }


def write_folder(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def write_archive(path, files):
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


@pytest.mark.parametrize(
    ("kind", "inner"),
    [("folder", ""), ("archive", ""), ("archive", "talking/")],
    ids=["folder", "zip", "inner"],
)
def test_a_pack_names_its_own_module_and_every_change_of_it_needs_trust(kind, inner, project, toolcrib):
    module = f"code_of_{kind}_{bool(inner)}"
    path = project / "packs" / ("talking.zip" if kind == "archive" else "talking")

    def write(word):
        (write_archive if kind == "archive" else write_folder)(path, contents(module, word, inner))

    write("hello")
    assert toolcrib("call", "say", "text=you").exit_code == 15
    agreed = toolcrib("trust", "--yes").stdout
    assert "packs/talking.zip" in agreed if kind == "archive" else f"file packs/talking/{module}.py" in agreed
    assert toolcrib("call", "say", "text=you").stdout == "hello you\n"
    write("goodbye")
    refused = toolcrib("call", "say", "text=you")
    assert (refused.exit_code, "its needs have changed" in refused.stderr) == (15, True)


async def test_a_tool_that_overrides_one_of_a_pack_finds_the_module_of_the_pack(project):
    write_folder(project / "packs" / "talking", contents("code_of_overridden"))
    (project / "toolcrib.yaml").write_text("project: p\nsources: [packs/talking, own]\n", encoding="utf-8")
    override = {
        "own/say.tool.yaml": TOOL.format(module="code_of_overridden") + "override: true\ntimeout: 3s\n"
    }
    write_folder(project, override)
    async with Runtime.open(project, trust=True) as tools:
        assert tools.registry["say"].timeout == 3
        assert (await tools.call("say", {"text": "you"})).value == "hello you"


async def test_two_packs_with_modules_of_one_name_do_not_run_each_others_code(project):
    write_folder(project / "packs" / "one", contents("code_of_both", "one"))
    other = contents("code_of_both", "two")
    other["pack.yaml"] = PACK.replace("talking", "other") + "namespace: other\n"
    write_folder(project / "packs" / "two", other)
    async with Runtime.open(project / "packs", trust=True) as tools:
        answers = [await tools.call(name, {"text": "x"}) for name in ("say", "other__say")]
    # The one that is imported first has the name.
    ran, refused = sorted(answers, key=lambda answer: answer.outcome != Outcome.OK)
    assert ran.value == ("one x" if ran is answers[0] else "two x")
    assert (refused.outcome, refused.error.code) == (Outcome.UNAVAILABLE, "missing_hook")
    assert "has a module `code_of_both`, and " in refused.message


def test_a_built_pack_contains_the_modules_that_its_tools_name_and_import(project, toolcrib):
    files = contents("code_of_built")
    files["code_of_built.py"] = (
        "from code_of_part import word\n\ndef say(text: str) -> str:\n    return f'{word} {text}'\n"
    )
    files |= {"code_of_part/__init__.py": "word = 'part'\n", "unused.py": "", "code_of_part/unused.py": ""}
    write_folder(project / "source", files)
    built = toolcrib("pack", "build", "source", "--output", "packs/talking.zip")
    assert built.exit_code == 0, built.stderr
    with ZipFile(project / "packs" / "talking.zip") as archive:
        assert archive.namelist() == [
            "code_of_built.py",
            "code_of_part/__init__.py",
            "pack.yaml",
            "tools/say.tool.yaml",
        ]
    toolcrib("trust", "--yes")
    assert toolcrib("call", "say", "text=you", "--pack", "packs/talking.zip").stdout == "part you\n"
