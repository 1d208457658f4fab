"""`toolcrib pack sign`, `verify`, `diff` and `install`, and what loading does with packs in the lock."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sampling import sample
from toolcrib.cli import exit_codes
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.loading.documents.archives import open_archive
from toolcrib.loading.pack_integrity import files_in
from toolcrib.scenarios.pack_builder import zip_bytes
from toolcrib.security.pack_signatures import (
    SIGNATURE_FILE,
    create_signing_key,
    hash_of_files,
    load_signing_key,
)
from toolcrib.servers.lock import LockedServer, read_lock, render_lock

MOCK = "name: get_weather\ndescription: The weather.\nmode: mock\nmock: {result: sunny}\n"
LIVE = MOCK + 'live: {url: "https://api.example.com/w"}\n'
HOSTS = "requires: {hosts: [api.example.com]}\n"
OTHER = {
    "descriptors/hello.tool.yaml": "name: hello\ndescription: Greets.\nmock: {result: hi}\n",
    "toolcrib.yaml": "project: shop\n",
}


@pytest.fixture(autouse=True)
def _state(monkeypatch, tmp_path):
    monkeypatch.delenv("TOOLCRIB_TRUST", raising=False)
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path.parent / f"{tmp_path.name}-state"))


@pytest.fixture
def keys(tmp_path):
    """The private keys of two publishers, by name."""
    folder = tmp_path.parent / f"{tmp_path.name}-keys"
    paths = {name: str(folder / f"{name}.pem") for name in ("ann", "bob")}
    for path in paths.values():
        create_signing_key(path)
    return paths


@pytest.fixture
def project(write):
    return write(OTHER)


def archive(folder, key="", version="1.0.0", tool=LIVE, requires=HOSTS, name="weather", **files):
    """An archive of a pack, signed with a key if one is given."""
    contents = {
        "pack.yaml": f"name: {name}\nversion: {version}\n{requires}".encode(),
        "get.tool.yaml": tool.encode(),
        **{path.replace("__", "/"): text.encode() for path, text in files.items()},
    }
    if key:
        signature = load_signing_key(key).sign(name, version, contents)
        contents[SIGNATURE_FILE] = signature.render()
    path = folder / f"{name}-{version}.zip"
    path.write_bytes(zip_bytes(contents))
    return str(path)


def public(key):
    return load_signing_key(key).public


def test_a_signed_pack_is_installed_and_locked(project, keys, toolcrib, document):
    path = archive(project, keys["ann"])
    refused = toolcrib("pack", "install", path, "--yes")
    assert refused.exit_code == exit_codes.USAGE
    assert "you do not trust the key of the pack `weather` yet" in refused.stderr
    assert not (project / "packs").exists()

    done = toolcrib("pack", "install", path, "--yes", "--trust-key", public(keys["ann"]))
    assert done.exit_code == exit_codes.OK, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "weather 1.0.0",
        "+ wants to contact api.example.com",
        "+ wants to use the capability network",
    ]
    assert "installed packs/weather, locked in toolcrib.lock" in lines
    lock = json.loads((project / "toolcrib.lock").read_text())
    assert lock["packs"]["weather"]["key"] == public(keys["ann"])
    assert toolcrib("call", "get_weather").stdout == "sunny\n"

    (report,) = document("pack", "verify", "--json")["packs"]
    assert (report["name"], report["version"], report["locked"], report["problems"]) == (
        "weather",
        "1.0.0",
        True,
        [],
    )
    assert report["trusted"]
    assert "pack:weather  publisher  ed25519:" in toolcrib("trust", "list").stdout


def test_the_command_line_signs(project, keys, toolcrib, document):
    path = archive(project)
    missing = toolcrib("pack", "sign", path)
    assert missing.exit_code == exit_codes.USAGE
    assert "signing.pem does not exist\n    hint: create one with `--create-key`" in missing.stderr
    folder = Path(path).parent
    refused = toolcrib("pack", "sign", str(folder))
    assert f"only archives are signed; build one with `toolcrib pack build {folder}`" in refused.stderr
    done = toolcrib("pack", "sign", path, "--create-key")
    assert done.exit_code == exit_codes.OK, done.stderr
    assert "created the signing key" in done.stdout
    signed = document("pack", "sign", path, "--key", keys["ann"], "--json")
    assert (signed["name"], signed["version"], signed["key"]) == ("weather", "1.0.0", public(keys["ann"]))
    (report,) = document("pack", "verify", path, "--json")["packs"]
    assert (report["key"], report["trusted"], report["problems"]) == (public(keys["ann"]), "", [])
    before = (project / "weather-1.0.0.zip").read_bytes()
    assert toolcrib("pack", "sign", path, "--key", keys["ann"]).exit_code == exit_codes.OK
    assert (project / "weather-1.0.0.zip").read_bytes() == before
    assert toolcrib("pack", "sign", "toolcrib.yaml").exit_code == exit_codes.USAGE


def install(toolcrib, path, key):
    done = toolcrib("pack", "install", path, "--yes", "--trust-key", public(key))
    assert done.exit_code == exit_codes.OK, done.stderr


def changed_lock(project, **entry):
    path = project / "toolcrib.lock"
    lock = json.loads(path.read_text())
    lock["packs"]["weather"] |= entry
    path.write_text(json.dumps(lock))


def edited(project, _keys):
    with (project / "packs/weather/get.tool.yaml").open("a") as file:
        file.write("# one more line\n")


def added(project, _keys):
    (project / "packs/weather/more.txt").write_text("x")


def removed(project, _keys):
    (project / "packs/weather/README.md").unlink()


def without_signature(project, _keys):
    (project / "packs/weather" / SIGNATURE_FILE).unlink()


def wrong_hash(project, _keys):
    changed_lock(project, hash="sha256:" + "0" * 64)


def signed_by(project, private, **changes):
    """Another version of the same files in the place of the installed one."""
    shutil.rmtree(project / "packs/weather")
    (project / "packs/weather").mkdir()
    pack, tool = f"name: weather\nversion: 1.0.0\n{HOSTS}", LIVE
    contents = {"pack.yaml": pack.encode(), "get.tool.yaml": tool.encode(), "README.md": b"Read me."}
    signature = load_signing_key(private).sign("weather", "1.0.0", contents)._replace(**changes)
    for name, data in {**contents, SIGNATURE_FILE: signature.render()}.items():
        (project / "packs/weather" / name).write_bytes(data)


def unknown_key(project, keys):
    signed_by(project, keys["bob"])


def forged(project, keys):
    signed_by(project, keys["bob"], key=public(keys["ann"]))


def changed_publisher(project, keys):
    """A commit that replaces the key in the lock, too."""
    signed_by(project, keys["bob"])
    changed_lock(project, key=public(keys["bob"]))


@pytest.mark.parametrize(
    ("change", "code"),
    sample(
        [
            (edited, "pack_changed"),
            (added, "pack_changed"),
            (removed, "pack_changed"),
            (wrong_hash, "pack_changed"),
            (without_signature, "unknown_signer"),
            (unknown_key, "unknown_signer"),
            (forged, "invalid_signature"),
            (changed_publisher, "publisher_changed"),
        ],
        one_in=3,
    ),
)
def test_a_changed_pack_is_refused_and_the_others_load(project, keys, toolcrib, change, code):
    install(toolcrib, archive(project, keys["ann"], **{"README.md": "Read me."}), keys["ann"])
    assert toolcrib("list").stdout.splitlines()[-1] == "2 tools: 2 mock"
    change(project, keys)
    done = toolcrib("call", "get_weather")
    assert done.exit_code == exit_codes.OF_OUTCOME["not_found"]
    assert f"its pack was rejected: {code}: " in done.stderr
    assert toolcrib("call", "hello").stdout == "hi\n"
    assert f"packs/weather/pack.yaml:1:7: {code}: " in toolcrib("validate").stdout
    verified = toolcrib("pack", "verify")
    assert verified.exit_code == exit_codes.PROBLEMS
    assert code in verified.stderr


def test_a_pack_that_is_restored_loads_again(project, keys, toolcrib):
    install(toolcrib, archive(project, keys["ann"]), keys["ann"])
    path = project / "packs/weather/get.tool.yaml"
    text = path.read_text()
    path.write_text(text + "# more\n")
    assert toolcrib("call", "get_weather").exit_code == exit_codes.OF_OUTCOME["not_found"]
    path.write_text(text)
    assert toolcrib("call", "get_weather").stdout == "sunny\n"


def test_whoever_trusts_no_key_loads_what_the_lock_expects(
    project, keys, toolcrib, document, monkeypatch, tmp_path
):
    install(toolcrib, archive(project, keys["ann"]), keys["ann"])
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path.parent / f"{tmp_path.name}-colleague"))
    assert toolcrib("call", "get_weather").stdout == "sunny\n"
    (report,) = document("pack", "verify", "--json")["packs"]
    assert (report["trusted"], report["problems"]) == ("", [])
    assert "you trust no key for this pack yet" in toolcrib("pack", "verify").stdout


def test_an_upgrade_says_what_else_it_wants(project, keys, toolcrib, document):
    install(toolcrib, archive(project, keys["ann"]), keys["ann"])
    more = "requires: {hosts: [api.example.com], environment: [KEY], commands: [git], network: true, paths: {write: [../out]}, python: [acme], files: [/run/k], packs: {rates: '>=1'}}\n"
    tools = LIVE + "---\nname: log\ndescription: d\nexec: {command: [git, log]}\n"
    path = archive(project, keys["ann"], "1.1.0", tools, more)
    wanted = [
        "read the variable KEY",
        "read the file /run/k",
        "start git",
        "run the Python code of acme",
        "use the network from its programs",
        "write ../out with its programs",
        "use the pack rates >=1",
        "use the capability process",
    ]
    told = document("pack", "diff", path, "--json")
    assert told["versions"] == {"before": "1.0.0", "now": "1.1.0"}
    assert told["wants"] == wanted
    assert told["keeps"] == ["contact api.example.com", "use the capability network"]
    assert told["tools"] == {"log": "added"}
    assert told["files"] == {"get.tool.yaml": "changed", "pack.yaml": "changed"}

    asked = toolcrib("pack", "install", path)
    assert asked.exit_code == exit_codes.USAGE
    lines = asked.stdout.splitlines()
    assert lines[0] == "weather 1.0.0 -> 1.1.0"
    assert [line for line in lines if line.startswith("+")] == [f"+ wants to {each}" for each in wanted]
    assert "  wants to contact api.example.com" in lines
    assert json.loads((project / "toolcrib.lock").read_text())["packs"]["weather"]["version"] == "1.0.0"

    assert toolcrib("pack", "install", path, "--yes").exit_code == exit_codes.OK
    assert json.loads((project / "toolcrib.lock").read_text())["packs"]["weather"]["version"] == "1.1.0"
    assert "log" in toolcrib("list").stdout

    back = toolcrib("pack", "diff", path, archive(project, keys["ann"]))
    assert "- wants to start git" in back.stdout.splitlines()
    assert "  tool log: removed" in back.stdout.splitlines()
    assert "  it wants nothing else than before" in back.stdout.splitlines()


def test_a_changed_publisher_is_an_alarm(project, keys, toolcrib):
    install(toolcrib, archive(project, keys["ann"]), keys["ann"])
    for key in ("", keys["bob"]):
        path = archive(project, key, "1.1.0")
        refused = toolcrib("pack", "install", path, "--yes")
        assert refused.exit_code == exit_codes.PROBLEMS
        assert "publisher_changed: the publisher of the pack `weather` has changed" in refused.stderr
        assert "! its publisher has changed: ed25519:" in refused.stdout
        assert refused.stderr.endswith("nothing was installed\n")
        assert toolcrib("pack", "verify", path).exit_code == exit_codes.PROBLEMS
    wrong = toolcrib("pack", "install", path, "--yes", "--trust-key", public(keys["ann"]))
    assert (wrong.exit_code, "not with ed25519:" in wrong.stderr) == (exit_codes.USAGE, True)
    install(toolcrib, path, keys["bob"])
    assert toolcrib("call", "get_weather").stdout == "sunny\n"


def test_a_revoked_publisher_is_asked_about_again(project, keys, toolcrib):
    install(toolcrib, archive(project, keys["ann"]), keys["ann"])
    assert toolcrib("trust", "revoke", "pack:weather").stdout == "1 decision revoked\n"
    refused = toolcrib("pack", "install", archive(project, keys["ann"], "1.1.0"), "--yes")
    assert "you do not trust the key of the pack `weather` yet" in refused.stderr


def test_a_wrong_signature_is_never_installed(project, keys, toolcrib):
    path = archive(project, keys["ann"])
    archive(project, keys["ann"], "1.1.0")
    stolen = {"pack.yaml": b"name: weather\nversion: 1.0.0\n", "get.tool.yaml": MOCK.encode()}
    found, _problems = open_archive(project / "weather-1.1.0.zip")
    (project / "weather-1.0.0.zip").write_bytes(
        zip_bytes({**stolen, SIGNATURE_FILE: found.contents[SIGNATURE_FILE]})
    )
    refused = toolcrib("pack", "install", path, "--yes", "--trust-key", public(keys["ann"]))
    assert refused.exit_code == exit_codes.PROBLEMS
    assert (
        "invalid_signature: the signature of the pack `weather` is not valid: it signs `weather` 1.1.0"
        in refused.stderr
    )
    assert not (project / "packs").exists()


def test_a_pack_without_a_signature_says_so(project, toolcrib):
    done = toolcrib("pack", "install", archive(project), "--yes")
    assert "  it is not signed: nobody vouches for its files" in done.stdout.splitlines()
    assert toolcrib("call", "get_weather").stdout == "sunny\n"
    assert "unchanged, not signed" in toolcrib("pack", "verify").stdout
    edited(project, {})
    assert toolcrib("call", "get_weather").exit_code == exit_codes.OF_OUTCOME["not_found"]


def test_tools_that_use_what_is_not_declared_are_not_installed(project, toolcrib):
    refused = toolcrib("pack", "install", archive(project, requires=""), "--yes")
    assert refused.exit_code == exit_codes.PROBLEMS
    assert "undeclared_need: `get_weather` would contact `https://api.example.com`" in refused.stderr
    assert "nothing was installed: 1 tool would use what the pack does not declare" in refused.stderr
    # Nor are they loaded, should an entry of the lock be written by hand.
    toolcrib("pack", "install", archive(project, tool=MOCK, requires=""), "--yes")
    (project / "packs/weather/get.tool.yaml").write_text(LIVE)
    changed_lock(project, hash=hash_of_files(files_in(project / "packs/weather")))
    assert "undeclared_need" in toolcrib("call", "get_weather").stderr


def test_files_that_were_not_installed_are_kept(project, keys, toolcrib):
    (project / "packs/weather").mkdir(parents=True)
    (project / "packs/weather/pack.yaml").write_text("name: weather\nversion: 0.1.0\n")
    refused = toolcrib("pack", "install", archive(project), "--yes")
    assert (refused.exit_code, "exists, and was not installed" in refused.stderr) == (exit_codes.USAGE, True)
    shutil.rmtree(project / "packs/weather")
    toolcrib("pack", "install", archive(project), "--yes")
    edited(project, keys)
    refused = toolcrib("pack", "install", archive(project, version="1.1.0"), "--yes")
    assert "were changed since they were installed" in refused.stderr


def test_installed_packs_that_are_gone_or_not_read_are_told(project, toolcrib):
    (project / "toolcrib.yaml").write_text("project: shop\nsources: [descriptors]\n")
    done = toolcrib("pack", "install", archive(project), "--yes")
    assert "the project does not read it: add `packs/weather` to `sources`" in done.stderr
    shutil.rmtree(project / "packs")
    gone = toolcrib("pack", "verify")
    assert (gone.exit_code, "locks the pack `weather`, which does not exist" in gone.stderr) == (
        exit_codes.PROBLEMS,
        True,
    )


def test_nothing_to_verify_is_told(project, toolcrib):
    done = toolcrib("pack", "verify")
    assert (done.exit_code, done.stdout) == (exit_codes.NOTHING_SELECTED, "no installed packs\n")


def test_a_broken_lock_is_told_and_kept(project, toolcrib):
    (project / "toolcrib.lock").write_text("{")
    done = toolcrib("pack", "install", archive(project), "--yes")
    assert (done.exit_code, "invalid_lock" in done.stderr) == (exit_codes.PROBLEMS, True)
    assert (project / "toolcrib.lock").read_text() == "{"
    assert "invalid_lock" in toolcrib("validate").stdout


def test_what_is_no_pack_is_told(project, toolcrib):
    (project / "empty").mkdir()
    done = toolcrib("pack", "verify", "empty")
    assert (done.exit_code, "missing `pack.yaml`" in done.stderr) == (exit_codes.PROBLEMS, True)
    (project / "x.zip").write_bytes(b"no archive")
    for command in (("verify",), ("diff",), ("install",), ("sign", "--create-key")):
        done = toolcrib("pack", *command, "x.zip")
        assert done.exit_code in {exit_codes.PROBLEMS, exit_codes.USAGE}, command
        assert "archive_" in done.stderr, command
    assert toolcrib("pack", "install", "toolcrib.yaml").exit_code == exit_codes.USAGE


def test_servers_of_the_lock_are_kept(project, keys, toolcrib):
    locked = LockedServer.of(Server("time", command="uvx"), Catalogue("time", {"now": {"name": "now"}}))
    (project / "toolcrib.lock").write_text(render_lock({"time": locked}))
    install(toolcrib, archive(project, keys["ann"]), keys["ann"])
    lock, problems = read_lock(project / "toolcrib.lock")
    assert (problems, [*lock.servers], [*lock.packs]) == ([], ["time"], ["weather"])
