"""The questions of `toolcrib pack install` at a terminal: what they show, and what each answer does."""

from __future__ import annotations

import json
import sys

import pytest

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk
from toolcrib.scenarios.pack_builder import zip_bytes
from toolcrib.security.pack_signatures import SIGNATURE_FILE, create_signing_key, load_signing_key

LIVE = 'name: get_weather\ndescription: The weather.\nlive: {url: "https://api.example.com/w"}\n'
GIT = "---\nname: log\ndescription: The log.\nexec: {command: [git, log]}\n"

KEY_QUESTION = "Trust this key for the pack weather? [y/N]: "


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "toolcrib.yaml").write_text("project: shop\n")
    return folder


@pytest.fixture
def install(project, tmp_path):
    key = str(tmp_path / "keys" / "ann.pem")
    create_signing_key(key)

    def ask(version, requires, tools):
        contents = {
            "pack.yaml": f"name: weather\nversion: {version}\nrequires: {json.dumps(requires)}\n".encode(),
            "tools.yaml": tools.encode(),
        }
        contents[SIGNATURE_FILE] = load_signing_key(key).sign("weather", version, contents).render()
        path = tmp_path / f"weather-{version}.zip"
        path.write_bytes(zip_bytes(contents))
        variables = {"TOOLCRIB_TRUST": "", "TOOLCRIB_STATE_DIR": str(tmp_path / "state")}
        return Talk(tmp_path, project, "install", str(path), verb="pack", variables=variables)

    return ask


def locked(project):
    return json.loads((project / "toolcrib.lock").read_text())["packs"]["weather"]["version"]


def test_an_upgrade_asks_again_and_says_for_what(install, project):
    hosts = {"hosts": ["api.example.com"]}
    with install("1.0.0", hosts, LIVE) as shown:
        assert "+ wants to contact api.example.com" in shown.until(KEY_QUESTION)
        shown.type("y")
        shown.until("Install weather 1.0.0? [y/N]: ")
        shown.type("y")
        shown.until("locked in toolcrib.lock")
        assert shown.ended() == 0

    more = {**hosts, "commands": ["git"]}
    for answer, code, version in (("n", 1, "1.0.0"), ("y", 0, "1.1.0")):
        with install("1.1.0", more, LIVE + GIT) as shown:
            asked = shown.until("Install weather 1.1.0? [y/N]: ")
            assert "weather 1.0.0 -> 1.1.0" in asked
            assert "+ wants to start git" in asked
            assert "+ wants to contact" not in asked
            assert "Trust this key" not in asked
            shown.type(answer)
            shown.until("locked in toolcrib.lock" if code == 0 else "nothing was installed")
            assert shown.ended() == code
        assert locked(project) == version
        assert ("git" in (project / "packs" / "weather" / "tools.yaml").read_text()) is (code == 0)


def test_a_key_that_is_not_trusted_installs_nothing(install, project):
    with install("1.0.0", {"hosts": ["api.example.com"]}, LIVE) as shown:
        shown.until(KEY_QUESTION)
        shown.type("n")
        shown.until("nothing was installed")
        assert shown.ended() == 1
    assert not (project / "packs").exists()
