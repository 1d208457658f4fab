"""Links: what a scanned folder holds is read, and nothing that it merely points to."""

from __future__ import annotations

import pytest

from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.sources import SourcePath, load

KINDS = Executors({"mock": MockExecutor})

GOOD = "name: good\ndescription: A good tool.\nmock: {result: 1}\n"
PACK = "name: shop\nversion: 1.0.0\n"


def names(found):
    return [tool.name for tool in found.tools]


def codes(found):
    return [problem.code for problem in found.problems]


@pytest.mark.parametrize("name", ["z.json", "z.yaml", "z.tool.yaml"])
def test_a_link_that_leads_outside_the_folder_is_refused_and_nothing_of_it_is_told(folder, name):
    root = folder({"secret": "root:x:0\n", "t/a.yaml": GOOD})
    link = root / "t" / name
    link.symlink_to(root / "secret")
    found = load([root / "t"], KINDS)
    (problem,) = found.problems
    assert names(found) == ["good"]
    assert (problem.code, problem.severity, problem.source) == ("link_leads_outside", "error", str(link))
    assert "root:x" not in str(problem)


def test_a_good_tool_outside_is_not_read_through_a_link_either(folder):
    root = folder({"good.yaml": GOOD, "t/a.txt": ""})
    (root / "t" / "x.yaml").symlink_to("../good.yaml")
    found = load([root / "t"], KINDS)
    assert (names(found), codes(found)) == ([], ["link_leads_outside"])


def test_a_link_out_of_a_pack_is_refused_although_it_stays_in_the_scanned_folder(folder):
    root = folder({"shop/pack.yaml": PACK, "other/good.yaml": GOOD})
    (root / "shop" / "x.yaml").symlink_to(root / "other" / "good.yaml")
    found = load([root], KINDS)
    assert (names(found), codes(found)) == (["good"], ["link_leads_outside"])


def test_a_link_within_a_folder_is_read_once_also_within_its_pack(folder):
    root = folder({"shop/pack.yaml": PACK, "shop/a/x.yaml": GOOD})
    (root / "shop" / "b.yaml").symlink_to("a/x.yaml")
    assert (names(load([root], KINDS)), codes(load([root], KINDS))) == (["good"], [])
    assert names(load([root / "shop" / "a"], KINDS)) == ["good"]


def test_a_link_that_a_pack_does_not_hold_is_nothing(folder):
    root = folder(
        {"shop/pack.yaml": PACK + "tools: [t/*]\nscenarios: [t/*]\n", "shop/t/x.yaml": GOOD, "secret": "x"}
    )
    (root / "shop" / "z.yaml").symlink_to(root / "secret")
    found = load([root / "shop"], KINDS)
    assert (names(found), codes(found)) == (["good"], [])


def test_a_pack_file_that_is_a_link_outside_is_refused_with_the_tools(folder):
    root = folder({"secret": "root:x:0\n", "shop/x.yaml": GOOD})
    (root / "shop" / "pack.json").symlink_to(root / "secret")
    found = load([root / "shop"], KINDS)
    assert (names(found), found.packs, codes(found)) == ([], (), ["link_leads_outside"])
    assert found.refused["good"].source == found.problems[0].source
    assert "root:x" not in str(found.problems[0])


def test_a_link_that_was_asked_for_by_its_name_is_read(folder):
    root = folder({"good.yaml": GOOD, "t/a.txt": ""})
    link = root / "t" / "x.yaml"
    link.symlink_to(root / "good.yaml")
    assert names(load([link], KINDS)) == ["good"]


def test_a_folder_that_is_itself_a_link_is_read(folder):
    root = folder({"t/x.yaml": GOOD})
    (root / "again").symlink_to(root / "t")
    assert (names(load([root / "again"], KINDS)), codes(load([root / "again"], KINDS))) == (["good"], [])


def test_a_link_to_nowhere_is_told_and_stops_nothing(folder):
    root = folder({"x.yaml": GOOD})
    (root / "a.yaml").symlink_to(root / "absent.yaml")
    (root / "b.yaml").symlink_to(root / "b.yaml")
    found = load([root], KINDS)
    assert (names(found), codes(found)) == (["good"], ["file_vanished", "file_unreadable"])


def test_a_linked_folder_is_not_entered_and_a_notice_says_so(folder):
    root = folder({"sym/a.txt": "", "gp/good.yaml": GOOD})
    (root / "sym" / "gp").symlink_to(root / "gp")
    found = load([root / "sym"], KINDS)
    (problem,) = found.problems
    assert (names(found), problem.code, problem.severity) == ([], "link_not_followed", "notice")
    assert problem.source == str(root / "sym" / "gp")
    assert "as a source" in problem.hint
    for sources in (
        [root],
        [root / "sym", root / "gp"],
        [SourcePath(str(root / "sym"), "", ("sym/gp",), str(root))],
    ):
        assert codes(load(sources, KINDS)) == []


def test_a_link_that_becomes_a_folder_is_noticed(folder):
    root = folder({"t/a.yaml": GOOD, "gp/good.yaml": GOOD})
    trail = FileTracker()
    load([root / "t"], KINDS, trail)
    (root / "t" / "gp").symlink_to(root / "gp")
    assert trail.closed().changed() == [str(root / "t" / "gp")]
