"""What packs need of each other and of toolcrib."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from toolcrib import __version__
from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.schemas import envelope
from toolcrib.executors import Executors
from toolcrib.loading.packs import Pack, check_requirements
from toolcrib.loading.projects import Project

KINDS = Executors({})


def pack(name, version="1.0.0", packs=None, toolcrib=None):
    needs = {}
    if toolcrib is not None:
        needs["toolcrib"] = toolcrib
    if packs is not None:
        needs["packs"] = packs
    document = {"name": name, "version": version} | ({"requires": needs} if needs else {})
    return Pack.parse(f"{name}/pack.json", json.dumps(document, indent=1), kinds=KINDS)


def told(*packs, **options):
    return [
        (problem.code, problem.source, problem.pointer) for problem in check_requirements(packs, **options)
    ]


def test_packs_that_find_what_they_need_have_no_problem():
    assert (
        told(pack("a", packs={"b": ">=1,<2"}, toolcrib=">=0.1"), pack("b", packs={"c": "==1.0.0"}), pack("c"))
        == []
    )
    assert check_requirements([]) == []


def test_a_pack_that_is_absent_is_told_at_its_place():
    [problem] = check_requirements([pack("a", packs={"travel-desk": ">=1.0"}), pack("b")])
    assert (problem.code, problem.severity) == ("unknown_pack", "error")
    assert (problem.source, problem.line, problem.pointer) == (
        "a/pack.json",
        6,
        "/requires/packs/travel-desk",
    )
    assert "`travel-desk` >=1.0" in problem.message
    assert "`sources`" in problem.hint
    assert "`b`" in problem.hint


def test_a_misspelt_pack_is_told_with_the_near_one():
    [problem] = check_requirements([pack("a", packs={"travel-dask": ">=1.0"}), pack("travel-desk")])
    assert problem.hint == "did you mean `travel-desk`?"


def test_a_pack_of_another_version_is_told_with_its_place():
    [problem] = check_requirements([pack("a", packs={"b": ">=1.2,<2"}), pack("b", "2.1.0")])
    assert problem.code == "version_mismatch"
    assert problem.message == "pack `a` needs `b` >=1.2,<2, but the one in b/pack.json:3 has version 2.1.0"


def test_a_version_that_cant_be_compared_is_told():
    [problem] = check_requirements([pack("a", packs={"b": ">=1"}), pack("b", "1.0.0-SNAPSHOT")])
    assert "cannot be compared" in problem.message


def test_toolcrib_itself_has_a_version():
    assert told(pack("a", toolcrib=f"=={__version__}")) == []
    [problem] = check_requirements([pack("a", toolcrib=">=3")], version="2.5.0")
    assert (problem.code, problem.pointer) == ("version_mismatch", "/requires/toolcrib")
    assert "toolcrib >=3" in problem.message
    assert "has version 2.5.0" in problem.message
    assert "pip install 'toolcrib>=3'" in problem.hint


CIRCLES = [
    ({"a": ["a"]}, ["`a` needs `a`"]),
    ({"a": ["b"], "b": ["a"]}, ["`a` needs `b` needs `a`"]),
    ({"a": ["b"], "b": ["c"], "c": ["b"]}, ["`b` needs `c` needs `b`"]),
    ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, []),
    ({"a": ["b", "c"], "b": ["a"], "c": ["a"]}, ["`a` needs `b` needs `a`", "`a` needs `c` needs `a`"]),
    (
        {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]},
        ["`a` needs `b` needs `a`", "`c` needs `d` needs `c`"],
    ),
]


@pytest.mark.parametrize(("needs", "circles"), CIRCLES)
def test_each_circle_is_told_once(needs, circles):
    packs = [pack(name, packs=dict.fromkeys(others, ">=1")) for name, others in needs.items()]
    problems = check_requirements(packs)
    assert {problem.code for problem in problems} <= {"endless_requires"}
    assert [problem.message.partition(": ")[2] for problem in problems] == circles
    assert all(problem.line and problem.source for problem in problems)


@pytest.mark.exhaustive
def test_a_long_chain_costs_no_stack():
    chain = [pack(f"p{index}", packs={f"p{index + 1}": ">=1"}) for index in range(1500)]
    assert told(*chain, pack("p1500")) == []
    assert [code for code, _, _ in told(*chain, pack("p1500", packs={"p0": ">=1"}))] == ["endless_requires"]


def test_everything_that_is_unmet_is_told_at_once():
    assert told(
        pack("a", packs={"x": ">=1", "b": ">=2"}, toolcrib=">=99"),
        pack("b", packs={"a": ">=1"}),
        version="0.1.0",
    ) == [
        ("version_mismatch", "a/pack.json", "/requires/toolcrib"),
        ("unknown_pack", "a/pack.json", "/requires/packs/x"),
        ("version_mismatch", "a/pack.json", "/requires/packs/b"),
        ("endless_requires", "b/pack.json", "/requires/packs/a"),
    ]


def test_a_pack_without_needs_costs_no_library():
    script = (
        "import sys; from toolcrib.executors import Executors; from toolcrib.loading.packs import Pack;"
        "from toolcrib.loading.packs import check_requirements;"
        "p = Pack.parse('p', {'name': 'a', 'version': '1.0.0'}, kinds=Executors({}));"
        "assert check_requirements([p]) == [];"
        "print([name for name in sys.modules if name.startswith('packaging')])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_toolsets_within_a_namespace_name_the_tools_as_others_do():
    shop = Pack.parse(
        "pack.json",
        {"name": "shop", "version": "1.0.0", "toolsets": {"small": ["get_*", "buy"]}},
        kinds=KINDS,
    )
    assert shop.toolsets_within("") == shop.toolsets
    assert shop.toolsets_within("acme")[0].tools == ("acme__get_*", "acme__buy")


def test_projects_and_packs_write_the_same_alike():
    project, packs = envelope("project")["$defs"], envelope("pack")["$defs"]
    shared = project.keys() & packs.keys()
    assert shared >= {"toolset", "tool_globs", "defaults", "duration", "possible_timeout"}
    for name in shared:
        one, other = dict(project[name]), dict(packs[name])
        assert {**one, "description": ""} == {**other, "description": ""}, name


def test_a_project_says_which_versions_of_a_pack_will_do():
    sources = [{"pack": "a", "version": "^1"}, {"pack": "b", "version": ">=1,<2"}]
    with pytest.raises(DocumentError) as raised:
        Project.parse("toolcrib.json", {"project": "p", "sources": sources}, kinds=KINDS)
    told = [(problem.code, problem.pointer) for problem in raised.value.problems]
    assert told == [("wrong_form", "/sources/0/version")]


def test_a_pack_that_is_needed_and_was_refused_is_told_as_that():
    files = {"a/pack.yaml": "name: a\nversion: 1.0.0\nrequires: {packs: {b: '>=1', c: '>=1'}}\n"}
    needy = Pack.parse("a/pack.yaml", files["a/pack.yaml"], kinds=KINDS)
    why = Problem(code="unknown_key", message="x", source="b/pack.yaml", line=3)
    broken = {"b/pack.yaml": ("b", why), "d/pack.yaml": ("", why._replace(source="d/pack.yaml"))}
    refused, unknown = check_requirements([needy], broken)
    assert (refused.code, refused.pointer) == ("refused_pack", "/requires/packs/b")
    assert "which was rejected: unknown_key in b/pack.yaml:3" in refused.message
    assert (unknown.code, unknown.hint) == (
        "unknown_pack",
        "d/pack.yaml has no readable name; fix it first if it is this pack",
    )
