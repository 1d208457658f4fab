"""What `pack.yaml` says, and which files its globs hold."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import DocumentError
from toolcrib.core.model import Toolset
from toolcrib.executors import Executors
from toolcrib.loading.packs import Pack, matches_glob
from toolcrib.loading.sources import parse_files

KINDS = Executors({})

PLAIN = "name: shop\nversion: 1.0.0\n"

WHOLE = """
$schema: ./pack.json
name: shop
version: 2.1.0-rc.1
description: Things to buy.
author: Ada
licence: MIT
tools: [tools/*.tool.yaml]
scenarios: [scenarios/*, more/**]
namespace: shop
toolsets:
  small: [get_*]
  large: {description: All., tools: ["*"]}
defaults: {timeout: 5s, coerce: off, on_invalid_result: warn}
requires:
  toolcrib: ">=0.1"
  packs: {travel-desk: ">=1.0,<2"}
"""


def refused(text, name="pack.yaml"):
    with pytest.raises(DocumentError) as raised:
        Pack.parse(name, text, kinds=KINDS)
    return [(problem.code, problem.pointer, problem.line) for problem in raised.value.problems]


def test_every_key_of_a_pack_arrives():
    pack = Pack.parse("pack.yaml", WHOLE, kinds=KINDS)
    assert (pack.name, pack.version, pack.description) == ("shop", "2.1.0-rc.1", "Things to buy.")
    assert (pack.author, pack.licence) == ("Ada", "MIT")
    assert (pack.tools, pack.scenarios) == (("tools/*.tool.yaml",), ("scenarios/*", "more/**"))
    assert pack.namespace == "shop"
    assert pack.toolsets == (
        Toolset(name="small", tools=("get_*",), place="pack.yaml:12"),
        Toolset(name="large", description="All.", tools=("*",), place="pack.yaml:13"),
    )
    assert pack.defaults == {"timeout": "5s", "coerce": "off", "on_invalid_result": "warn"}
    assert pack.requires == {"toolcrib": ">=0.1", "packs": {"travel-desk": ">=1.0,<2"}}
    assert (pack.origin.source, pack.origin.line, pack.origin.pack) == ("pack.yaml", 2, "shop")
    assert pack.origin.locate("/licence") == (7, 10)


def test_a_pack_holds_everything_unless_it_says_otherwise():
    pack = Pack.parse("pack.json", '{"name": "shop", "version": "1.0.0"}', kinds=KINDS)
    assert (pack.tools, pack.scenarios) == (("**",), ("**",))
    assert pack.holds_tools("a/b/c.yaml")
    assert pack.holds_scenarios("c.yaml")


def test_globs_hold_tools_and_scenarios_apart():
    pack = Pack.parse("pack.yaml", PLAIN + "tools: [tools/*.tool.yaml]\n", kinds=KINDS)
    assert [
        pack.holds_tools(path) for path in ("tools/a.tool.yaml", "tools/sub/a.tool.yaml", "a.tool.yaml")
    ] == [
        True,
        False,
        False,
    ]
    assert pack.holds_scenarios("anything.yaml")


WRONG = [
    ("version: 1.0.0\n", [("missing_key", "/name", 1)]),
    ("name: shop\n", [("missing_key", "/version", 1)]),
    ("name: My Shop\nversion: 1.0.0\n", [("wrong_form", "/name", 1)]),
    ("name: shop\nversion: '1'\n", [("wrong_form", "/version", 2)]),
    (PLAIN + "tools: tools/*\n", [("wrong_type", "/tools", 3)]),
    (PLAIN + "tools: []\n", [("wrong_value", "/tools", 3)]),
    (PLAIN + "license: MIT\n", [("unknown_key", "/license", 3)]),
    (PLAIN + "namespace: a__b\n", [("wrong_form", "/namespace", 3)]),
    (PLAIN + "toolsets: {a b: []}\n", [("wrong_form", "/toolsets/a b", 3)]),
    (PLAIN + "toolsets: {a: [b c]}\n", [("bad_glob", "/toolsets/a/0", 3)]),
    (PLAIN + "toolsets: {a: {tools: [b c]}}\n", [("bad_glob", "/toolsets/a/tools/0", 3)]),
    (PLAIN + "toolsets: {a: {}}\n", [("missing_key", "/toolsets/a/tools", 3)]),
    (PLAIN + "defaults: {timeout: 11m}\n", [("out_of_range", "/defaults/timeout", 3)]),
    (PLAIN + "defaults: {mode: mock}\n", [("unknown_key", "/defaults/mode", 3)]),
    (PLAIN + "defaults: {coerce: true}\n", [("not_allowed", "/defaults/coerce", 3)]),
    (PLAIN + "requires: {pack: {}}\n", [("unknown_key", "/requires/pack", 3)]),
    (PLAIN + "requires: {toolcrib: ^0.1}\n", [("wrong_form", "/requires/toolcrib", 3)]),
    (PLAIN + "requires: {toolcrib: 0.1}\n", [("wrong_form", "/requires/toolcrib", 3)]),
    (PLAIN + "requires: {packs: {a: ~=1}}\n", [("wrong_form", "/requires/packs/a", 3)]),
    (PLAIN + "requires: {packs: {A b: ==1.0}}\n", [("wrong_form", "/requires/packs/A b", 3)]),
    (
        PLAIN + "defaults: {timeout: 0s, x: 1}\nrequires: {packs: [a], extras: []}\n",
        [
            ("unknown_key", "/defaults/x", 3),
            ("not_supported_yet", "/requires/extras", 4),
            ("wrong_type", "/requires/packs", 4),
            ("out_of_range", "/defaults/timeout", 3),
        ],
    ),
    ("[1]", [("wrong_type", "", 1)]),
    ("a: *b", [("alias_refused", "/a", 1)]),
    ("", [("empty_document", "", 1)]),
    ("# nothing\n", [("empty_document", "", 1)]),
    (PLAIN + "---\nname: other\nversion: 1.0.0\n", [("several_documents", "", 4)]),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_pack_is_refused_with_all_that_is_wrong(text, expected):
    assert refused(text) == expected


def test_an_empty_list_is_no_pack():
    assert refused("[]", "pack.json") == [("empty_document", "", 1)]


def test_an_empty_document_after_the_pack_is_nothing():
    assert Pack.parse("pack.yaml", PLAIN + "---\n", kinds=KINDS).name == "shop"


@pytest.mark.parametrize("key", ["extras"])
def test_a_need_of_later_is_refused(key):
    assert refused(PLAIN + f"requires:\n  {key}: []\n") == [("not_supported_yet", f"/requires/{key}", 4)]


GLOBS = [
    ("x.yaml", "**", True),
    ("a/b/x.yaml", "**", True),
    ("x.yaml", "*", True),
    ("a/x.yaml", "*", False),
    ("a/x.yaml", "*/*.yaml", True),
    ("a/x.yaml", "a/**", True),
    ("a", "a/**", True),
    ("b/x.yaml", "a/**", False),
    ("a/b/c/x.yaml", "a/**/x.yaml", True),
    ("a/x.yaml", "a/**/x.yaml", True),
    ("x.yaml", "**/x.yaml", True),
    ("a/y.yaml", "**/x.yaml", False),
    ("a/b/c", "**/b/**", True),
    ("a/X.yaml", "a/x.yaml", False),
    ("a/x1.yaml", "a/x[0-9].yaml", True),
    ("a/x.yaml", "a/x.yaml/b", False),
    ("a/x.yaml", "a", False),
]


@pytest.mark.parametrize(("path", "glob", "expected"), GLOBS)
def test_a_star_stays_within_a_folder_and_two_cross_folders(path, glob, expected):
    assert matches_glob(path, glob) is expected


def fits_by_definition(parts, globs):
    """`**` stands for any number of folders: try every number."""
    if not globs:
        return not parts
    if globs[0] == "**":
        return any(fits_by_definition(parts[skip:], globs[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and fits_by_definition(parts[1:], globs[1:])


@given(
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "*", "**", "b", "a*"]), min_size=1, max_size=5),
)
def test_globs_mean_what_their_definition_says(parts, globs):
    assert matches_glob("/".join(parts), "/".join(globs)) is fits_by_definition(parts, globs)


def test_a_hostile_glob_costs_no_more_than_its_length():
    path = "/".join("a" * 200)
    assert not matches_glob(path, "/".join([*itertools.chain(*itertools.repeat(["**", "a"], 60)), "b"]))


def test_a_glob_that_fits_no_file_is_a_warning_at_its_place():
    contents = {
        "pack.yaml": 'name: p\nversion: 1.0.0\ntools: ["tools/*.yaml", "tols/*.yaml"]\nscenarios: ["s/*.yaml"]\n',
        "tools/a.yaml": "name: a\nmock: {result: 1}\n",
    }
    loaded = parse_files(contents, Executors.installed())
    assert [
        (problem.code, problem.severity, problem.line, problem.pointer) for problem in loaded.problems
    ] == [
        ("idle_glob", "warning", 3, "/tools/1"),
        ("idle_glob", "warning", 4, "/scenarios/0"),
    ]


def test_a_pack_may_be_given_as_a_mapping():
    pack = Pack.parse("memory", {"name": "shop", "version": "1.0.0", "tools": ["a/*"]}, kinds=KINDS)
    assert (pack.name, pack.tools, pack.origin.source) == ("shop", ("a/*",), "memory")


def test_a_pack_has_a_digest_of_its_content_whatever_its_form():
    text = Pack.parse("pack.yaml", "version: 1.0.0\nname: shop\n", kinds=KINDS)
    mapping = Pack.parse("memory", {"name": "shop", "version": "1.0.0"}, kinds=KINDS)
    other = Pack.parse("memory", {"name": "shop", "version": "1.0.1"}, kinds=KINDS)
    assert len(text.origin.digest) == 64
    assert text.origin.digest == mapping.origin.digest != other.origin.digest


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ([], "empty_document"),
        ([{"name": "a", "version": "1.0.0"}, {"name": "b", "version": "1.0.0"}], "several_documents"),
        ([3], "wrong_type"),
        (None, "not_json"),
        ({"name": {1}}, "not_json"),
    ],
)
def test_what_is_no_pack_is_a_document_error(content, code):
    with pytest.raises(DocumentError, match=code):
        Pack.parse("memory", content, kinds=KINDS)
