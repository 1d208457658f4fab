"""What a runtime starts from: the index where that holds good, else the documents."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kept import assert_same, write_project
from toolcrib import ConfigurationError, Executors, Runtime
from toolcrib.engine.startup import OpenRequest, start
from toolcrib.loading.fingerprints import EnvironmentFingerprint, fingerprint_environment


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; the working directory is a project."""
    monkeypatch.chdir(write_project(tmp_path / "project"))
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def is_recalled(runtime: Runtime) -> bool:
    return not isinstance(runtime._engine.stock.scenarios, tuple)


def code_is_as_imported() -> bool:
    """Whether nobody has edited the code since these tests began: else there is no index, and that is right."""
    return fingerprint_environment(()) is not None


def test_the_second_start_is_from_the_index(cache):
    cold, warm = Runtime.open(), Runtime.open()
    assert not is_recalled(cold)
    assert is_recalled(warm) or not code_is_as_imported()
    assert_same(warm._engine.stock, cold._engine.stock)
    assert warm._engine.settings == cold._engine.settings
    assert dict(warm.registry) == dict(cold.registry)
    assert warm.registry.query() == cold.registry.query()
    assert warm.registry.why_hidden("legacy_forecast") == cold.registry.why_hidden("legacy_forecast") != ""
    assert warm.problems == cold.problems
    assert warm._engine.executors.modes == cold._engine.executors.modes
    assert asyncio.run(warm.call("get_forecast", {"city": "Oslo"})).value == {"city": "Oslo"}


@pytest.mark.parametrize("profile", ["dev", "ci"])
def test_every_profile_starts_from_the_same_index(cache, profile):
    Runtime.open()
    warm, cold = Runtime.open(profile=profile), Runtime.open(profile=profile, index=False)
    assert is_recalled(warm) or not code_is_as_imported()
    assert warm._engine.settings == cold._engine.settings
    assert warm.registry.query() == cold.registry.query()
    assert warm.problems == cold.problems


def test_a_profile_that_is_not_there_is_told_from_the_documents(cache):
    Runtime.open()
    with pytest.raises(ConfigurationError, match="unknown profile `nobody`"):
        Runtime.open(profile="nobody")


def test_modes_are_put_in_force_over_the_index(cache):
    Runtime.open()
    assert Runtime.open(modes={"flat": "live"}).registry["flat"].mode == "live"


@pytest.mark.parametrize(
    "options",
    [{"index": False}, {"executors": Executors.installed()}],
    ids=["turned off", "modes of one's own"],
)
def test_without_an_index_nothing_is_written(cache, options):
    Runtime.open(**options)
    assert not cache.exists()


def test_the_environment_turns_it_off(cache, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_INDEX", "off")
    Runtime.open()
    assert not cache.exists()


def test_a_working_directory_that_is_gone_can_be_read_from_all_the_same(cache, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    started = start(OpenRequest(paths=(str(tmp_path / "project" / "team"),)))
    assert list(started.registry) == ["ask"]
    assert not cache.exists()


def test_a_mode_that_can_not_be_imported_leaves_no_index(cache, tmp_path, monkeypatch):
    """Nothing would tell when it can be imported again."""
    site = tmp_path / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    points = "[toolcrib.executors]\nacme = no_such_module_of_acme:Acme\n"
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(site)
    started = start(OpenRequest())
    assert "acme" in started.executors.broken
    assert not cache.exists()


ACME = """
class Acme:
    block_schema = {"type": "object"}

    def check(self, descriptor):
        return []

    def bind(self, descriptor, *_world):
        raise NotImplementedError

    async def aclose(self):
        pass
"""


def test_a_mode_of_others_is_found_again_after_a_start_from_the_index(cache, tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "[toolcrib.executors]\nacme = acme_of_starting:Acme\n"
    )
    code = site / "acme_of_starting.py"
    code.write_text(ACME)
    monkeypatch.syspath_prepend(site)
    for look in (fingerprint_environment, EnvironmentFingerprint.refreshed):
        monkeypatch.setattr(look, "__defaults__", (2**63,))  # as if the code were older than this process
    Path("team/acme.yaml").write_text("name: acme\nmode: acme\nacme: {}\n")
    cold, warm = Runtime.open(), Runtime.open()
    assert "acme" in cold._engine.executors.modes == warm._engine.executors.modes
    assert type(warm._engine.executors.get("acme")) is type(cold._engine.executors.get("acme"))
    (file,) = (cache / "index").iterdir()
    assert b"acme_of_starting:" not in file.read_bytes()


def test_reloading_after_a_start_from_the_index(cache):
    Runtime.open()
    runtime = Runtime.open()
    Path("team/tool.yaml").write_text("name: ask\nmock: {result: later}\n")
    report = asyncio.run(runtime.reload())
    assert report.changed == ("team__ask",)
    assert asyncio.run(runtime.call("team__ask")).value == "later"


SECOND_START = """
import sys
import toolcrib
runtime = toolcrib.Runtime.open()
assert len(runtime.registry.query()) == 6
assert runtime.registry["get_forecast"].description == "Overridden\\n"
print(sorted({"yaml", "click", "jinja2", "importlib.metadata"} & set(sys.modules)))
"""


def test_a_start_from_the_index_imports_nothing_that_reads_documents(cache):
    told = []
    for _ in range(30):  # whoever edits the code while this runs has no index for a moment
        done = subprocess.run(
            [sys.executable, "-c", SECOND_START], capture_output=True, text=True, check=True, env=os.environ
        )
        told.append(done.stdout)
        if told[1:] and told[-1] == "[]\n":
            break
    assert told[-1] == "[]\n"
