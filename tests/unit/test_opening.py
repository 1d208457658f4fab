"""From paths to what a runtime holds: what is read, what is in force, what a project says."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.engine import Asked, Runtime


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
    return Runtime.reading(Asked(paths=tuple(paths), also=tuple(packs))).stock.sources


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
