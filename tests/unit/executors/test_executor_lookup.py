"""The executors that are at hand: found by entry point, made when first used, closed once."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tomllib
from importlib import metadata
from importlib.metadata import entry_points

import pytest

from in_memory import runtime_of
from toolcrib import ConfigurationError, Descriptor, Executors, Outcome
from toolcrib.executors import BUILT_IN
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import parse
from toolcrib.testing import FunctionExecutor


class Counting(FunctionExecutor):
    """Notes when it is made and closed."""

    made = 0
    closed = 0

    def __init__(self):
        async def answer(_call):
            raise AssertionError("nothing calls it")

        super().__init__(answer)
        type(self).made += 1

    def check(self, descriptor):
        return [descriptor.name]

    async def aclose(self):
        type(self).closed += 1


@pytest.fixture
def counting():
    return type("Fresh", (Counting,), {})


def test_the_mock_mode_is_installed():
    executors = Executors.installed()
    assert "mock" in executors.modes
    assert isinstance(executors.get("mock"), MockExecutor)


def test_modes_are_sorted_and_asking_for_them_makes_nothing(counting):
    executors = Executors({"b": counting, "a": counting})
    assert executors.modes == ("a", "b")
    assert counting.made == 0


def test_an_executor_is_made_once_at_its_first_use(counting):
    executors = Executors({"a": counting})
    assert executors.get("a") is executors.get("a")
    assert counting.made == 1


def test_a_mode_that_is_not_installed_has_nothing():
    executors = Executors({})
    assert executors.get("a") is None
    assert executors.schema_for("a") is None
    assert list(executors.check_binding("a", Descriptor(name="t"))) == []
    assert executors.blocks() == {}


def test_a_mode_is_asked_for_its_schema_and_its_check(counting):
    executors = Executors({"a": counting, "b": counting})
    assert executors.schema_for("a") == {"type": "object"}
    assert executors.blocks() == {"a": {"type": "object"}, "b": {"type": "object"}}
    assert list(executors.check_binding("a", Descriptor(name="t"))) == ["t"]


def test_only_what_was_made_is_closed_and_it_is_made_anew_afterwards(counting):
    executors = Executors({"a": counting, "b": counting})
    executors.get("a")

    async def close_twice():
        await executors.aclose()
        await executors.aclose()

    asyncio.run(close_twice())
    assert (counting.made, counting.closed) == (1, 1)
    executors.get("a")
    assert counting.made == 2


def test_one_executor_that_fails_to_close_keeps_no_other_open(counting):
    class Stubborn(counting):
        async def aclose(self):
            raise OSError("no")

    executors = Executors({"a": Stubborn, "b": counting})
    executors.blocks()
    with pytest.raises(ExceptionGroup, match="cannot close all executors") as raised:
        asyncio.run(executors.aclose())
    assert [type(error) for error in raised.value.exceptions] == [OSError]
    assert counting.closed == 1


def unimportable():
    raise ModuleNotFoundError("No module named `wanted`")


def test_a_mode_whose_package_cannot_be_imported_takes_no_other_down(caplog):
    executors = Executors({"broken": unimportable, "mock": MockExecutor})
    text = """
        name: good
        mock: {result: 1}
        ---
        name: bad
        mode: broken
        mock: {result: 1}
        broken: {any: thing}
    """
    runtime = runtime_of(text, executors=executors)
    assert [(problem.code, problem.severity) for problem in runtime.problems] == [
        ("mode_not_installed", "warning")
    ]

    async def both():
        return await runtime.call("good"), await runtime.call("bad")

    good, bad = asyncio.run(both())
    assert good.value == 1
    assert bad.outcome is Outcome.UNAVAILABLE
    assert bad.message == "mode `broken` of `bad` cannot be used: No module named `wanted`"
    assert len(caplog.records) == 1


def test_why_a_mode_cannot_be_used_is_told():
    assert Executors({"mock": MockExecutor}).missing("mock") == ""
    assert (
        Executors({"mock": MockExecutor}).missing("live")
        == "is not installed; the installed modes are: `mock`"
    )
    assert Executors({}).missing("live") == "is not installed; the installed modes are: none"


def test_executors_can_be_named_by_where_they_lie():
    found = Executors.installed()
    named = Executors.named(found.targets)
    assert named.modes == found.modes
    assert type(named.get("mock")) is type(found.get("mock"))


def test_the_table_of_built_in_modes_is_that_of_the_entry_points(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["toolcrib.executors"] == BUILT_IN
    found = Executors.installed()
    assert found.built_in == BUILT_IN.keys() <= {*found.modes}


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """A distribution that offers two modes, one of them under a name of toolcrib's own."""
    site = tmp_path / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    points = "[toolcrib.executors]\nacme = acme_executors:Acme\nlive = acme_executors:Acme\n"
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(points)
    (site / "acme_executors.py").write_text("class Acme:\n    block_schema = {}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    yield site
    sys.modules.pop("acme_executors", None)


def test_modes_that_are_known_by_name_are_looked_up_when_they_are_used(acme, monkeypatch):
    found = Executors.installed()
    assert found.built_in == BUILT_IN.keys() - {"live"}
    scans = []
    monkeypatch.setattr(
        metadata, "entry_points", lambda *, group: scans.append(group) or entry_points(group=group)
    )
    known = Executors.of_modes({mode: mode in found.built_in for mode in found.modes})
    assert known.modes == found.modes
    assert type(known.get("mock")) is MockExecutor
    assert (scans, "acme_executors" in sys.modules) == ([], False)
    assert type(known.get("acme")).__name__ == type(known.get("live")).__name__ == "Acme"
    assert scans == ["toolcrib.executors"]


def test_entry_points_are_read_again_only_after_the_distributions_have_changed(acme, monkeypatch):
    scans = []
    monkeypatch.setattr(
        metadata, "entry_points", lambda *, group: scans.append(group) or entry_points(group=group)
    )
    assert Executors.installed().modes == Executors.installed().modes
    assert len(scans) == 1
    points = acme / "acme-1.0.dist-info" / "entry_points.txt"
    points.write_text("[toolcrib.executors]\nzenith = acme_executors:Acme\n")
    assert "zenith" in Executors.installed().modes
    shutil.rmtree(points.parent)
    assert "zenith" not in Executors.installed().modes
    assert len(scans) == 3


def test_a_known_mode_that_nobody_offers_any_more_is_broken():
    known = Executors.of_modes({"gone": False, "renamed": True, "mock": True})
    assert known.modes == ("gone", "mock", "renamed")
    for mode in ("gone", "renamed"):
        assert known.missing(mode) == "cannot be used: no installed distribution provides it"
    assert known.missing("mock") == ""


def test_a_named_executor_that_can_not_be_imported_is_broken():
    named = Executors.named({"gone": "no_such_module_at_all:Executor"})
    assert not named.broken
    assert named.get("gone") is None
    assert "no_such_module_at_all" in named.broken["gone"]


@pytest.mark.parametrize("error", [AttributeError("no `Execuor`"), TypeError("abstract"), SyntaxError("bad")])
def test_whatever_a_third_party_raises_takes_no_other_mode_down(error, caplog):
    def unmakeable():
        raise error

    executors = Executors({"broken": unmakeable, "mock": MockExecutor})
    assert executors.schema_for("broken") is None
    assert executors.missing("broken") == f"cannot be used: {type(error).__name__}: {error}"
    assert executors.get("mock") is not None
    assert len(caplog.records) == 1


class Faulty(FunctionExecutor):
    """Its schema can be had; its check can't be done."""

    def __init__(self):
        super().__init__(None)

    def check(self, descriptor):
        raise KeyError("wanted")


class Shy(Faulty):
    """Its schema can't be had."""

    @property
    def block_schema(self):
        raise ValueError("no schema")


def test_a_check_that_fails_is_a_problem_of_the_block():
    executors = Executors({"faulty": Faulty, "mock": MockExecutor})
    text = "name: a\nmode: mock\nmock: {result: 1}\nfaulty: {}\n"
    (problem,) = parse("a.yaml", text, executors).problems
    assert (problem.code, problem.line, problem.severity) == ("check_failed", 4, "error")
    assert "KeyError: 'wanted'" in problem.message


def test_a_mode_that_has_no_schema_to_give_can_not_be_used(caplog):
    executors = Executors({"shy": Shy})
    assert executors.schema_for("shy") is None
    assert executors.missing("shy") == "cannot be used: `block_schema` failed: ValueError: no schema"
    assert executors.get("shy") is None
    assert len(caplog.records) == 1


class Shapeless(Faulty):
    """Its schema is none."""

    @property
    def block_schema(self):
        return {"type": "objct"}


def test_a_schema_that_is_none_is_an_error_that_names_the_mode():
    executors = Executors({"mock": MockExecutor, "shapeless": Shapeless})
    with pytest.raises(ConfigurationError, match="mode `shapeless` returned an invalid block schema"):
        parse("a.yaml", "name: a\nmock: {result: 1}\n", executors)
