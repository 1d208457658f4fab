"""A stock that was kept is the stock that was read: tools, packs, project, scenarios, problems, places."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kept import Shelf, assert_same, write_project
from sampling import sample
from toolcrib import Runtime
from toolcrib.loading.cache.document_codec import NotCacheable
from toolcrib.loading.cache.index import encode_value, project_profiles
from toolcrib.loading.projects import settings_of
from toolcrib.loading.settings import PROFILE_VARIABLE


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A project in the working directory, and an index elsewhere."""
    monkeypatch.chdir(write_project(tmp_path / "project"))
    return Shelf(tmp_path / "index")


def test_everything_is_recalled_as_it_was_read(shelf):
    cold = shelf.keep()
    assert set(cold.registry) == {
        "get_forecast",
        "legacy_forecast",
        "flat",
        "with_data",
        "team__ask",
        "tr__book",
        "look",
    }
    assert [scenario.name for scenario in cold.scenarios] == ["plays", "asks"]
    assert [problem.code for problem in cold.problems] == ["wrong_combination", "unknown_key"]
    assert_same(shelf.recall(), cold)


@pytest.mark.parametrize("folder", sample(["descriptors", "packs"], one_in=2))
def test_the_examples_of_the_repository_are_recalled_as_they_were_read(root, tmp_path, folder):
    shelf = Shelf(tmp_path / "index", str(root / folder))
    cold = shelf.keep()
    assert len(cold.registry) > 3
    assert_same(shelf.recall(), cold)


def test_places_are_relative_to_the_texts_that_hold_them(shelf):
    shelf.keep()
    warm = shelf.recall()
    assert warm.registry["get_forecast"].origin.place("/description").endswith("override.yaml:3")
    assert warm.registry["flat"].origin.locate("/input_schema")[1] > 1
    assert (
        warm.registry["look"].origin.place("/description") == "packs/zipped.zip/zipped/tools/look.tool.yaml:3"
    )
    assert warm.scenarios[0].steps[0].number == 1


def test_a_text_that_is_gone_leaves_the_line_of_the_document(shelf):
    shelf.keep()
    warm = shelf.recall()
    tool, scenario = warm.registry["tr__book"], warm.scenarios[1]
    Path("packs/travel/book.tool.yaml").unlink()
    Path("team/asks.yaml").unlink()
    Path("packs/zipped.zip").write_bytes(b"no archive")
    assert tool.origin.place("/mock") == "packs/travel/book.tool.yaml:2"
    assert warm.registry["look"].origin.place("/mock") == "packs/zipped.zip/zipped/tools/look.tool.yaml:1"
    assert scenario.origin.locate("/steps/0") == (1, 1)


def test_files_beside_documents_are_read_again(shelf):
    cold = shelf.keep()
    warm = shelf.recall()
    assert warm.registry["with_data"].origin.files.read("data/answer.json") == b'{"answer": 42}'
    assert warm.registry["look"].origin.files.read("../data/seen.json") == b'"much"'
    for stock in (cold, warm):
        for name in ("../../outside.json", "nothing.json"):
            with pytest.raises(OSError, match=r"outside|no file"):
                stock.registry["with_data"].origin.files.read(name)
    Path("packs/zipped.zip").write_bytes(b"no archive")
    files = warm.registry["look"].origin.files
    with pytest.raises(OSError, match=r"zipped\.zip` was changed"):
        files.read("../pack.yaml")


def test_values_that_are_no_plain_data_are_not_kept():
    with pytest.raises(NotCacheable, match="`object` cannot be encoded"):
        encode_value((1, [2], object()))


def test_recalled_tools_can_be_called(shelf):
    shelf.keep()
    runtime = Runtime(shelf.recall().registry)
    for name, arguments, value in (
        ("get_forecast", {"city": "Oslo"}, {"city": "Oslo"}),
        ("with_data", {}, {"answer": 42}),
        ("look", {}, "much"),
    ):
        assert asyncio.run(runtime.call(name, arguments)).value == value


def test_every_profile_is_recalled(shelf, monkeypatch):
    cold = shelf.keep()
    profiles = shelf.index.recall(shelf.key).profiles
    assert profiles == project_profiles(cold)
    assert profiles.chosen(None, "") == settings_of(cold.project)
    for by in ("--profile", PROFILE_VARIABLE):
        assert profiles.chosen("ci", by) == settings_of(cold.project, "ci", by)
    assert profiles.chosen("nobody", "--profile") is None


def test_outside_a_project_only_the_environment_may_ask_for_a_profile(shelf):
    shelf = shelf.of("team")
    cold = shelf.keep()
    profiles = shelf.index.recall(shelf.key).profiles
    assert profiles.chosen("ci", PROFILE_VARIABLE) == settings_of(cold.project, "ci", PROFILE_VARIABLE)
    assert profiles.chosen("ci", "--profile") is None


def test_a_broken_project_is_recalled_as_broken(shelf):
    text = Path("toolcrib.yaml").read_text()
    Path("toolcrib.yaml").write_text(text + "profile: nobody\n")
    cold = shelf.keep()
    assert cold.project_error
    assert_same(shelf.recall(), cold)


def test_what_can_not_be_followed_is_not_kept(shelf):
    stock = shelf.read()
    shelf.index.keep(shelf.key, stock._replace(seen=None), {}, project_profiles(stock))
    assert shelf.recall() is None


def test_what_was_withheld_is_not_kept(shelf):
    stock = shelf.read()._replace(withheld=(("pack.yaml", "${HOME}/rows.json", "HOME"),))
    shelf.index.keep(shelf.key, stock, {}, project_profiles(stock))
    assert shelf.recall() is None


def test_a_stale_tool_is_not_kept(shelf):
    runtime = Runtime.open(index=False)
    Path("descriptors/forecast.tool.yaml").write_text("name: [")
    report = asyncio.run(runtime.reload())
    assert "get_forecast" in report.stale
    shelf.index.keep(shelf.key, runtime._engine.stock, {}, project_profiles(runtime._engine.stock))
    assert shelf.recall() is None


def test_what_came_from_memory_is_not_kept(shelf, caplog):
    stock = shelf.read()
    registry = Runtime.open("team", index=False).registry.with_tool(stock.registry["look"])
    tool = next(iter(registry.values()))
    registry = registry.with_tool(type(tool)(name="made_by_hand"))
    with caplog.at_level("DEBUG", "toolcrib"):
        shelf.index.keep(shelf.key, stock._replace(registry=registry), {}, project_profiles(stock))
    assert shelf.recall() is None
    assert "no index was written" in caplog.text


def test_one_index_for_each_place_and_each_choice_of_paths(shelf):
    shelf.keep()
    assert shelf.of("team").recall() is None
    os.chdir("descriptors")
    assert shelf.recall() is None


def test_what_could_not_be_read_may_be_readable_next_time(shelf):
    Path("team/tool.yaml").unlink()
    os.mkfifo("team/tool.yaml")
    cold = shelf.keep()
    assert "file_unreadable" in {problem.code for problem in cold.problems}
    assert shelf.recall() is None
