"""What `toolcrib.yaml` says, and everything that can be wrong with it."""

from __future__ import annotations

import jsonschema
import pytest

from toolcrib.core.errors import DocumentError
from toolcrib.core.model import Toolset
from toolcrib.core.schemas import LATER_KEYS, with_blocks
from toolcrib.executors import Executors
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.projects import (
    DEFAULT_SOURCES,
    Profile,
    Project,
    SourceEntry,
    parse_project,
    parse_project_file,
    second_project_file,
    settings_of,
)

KINDS = Executors({})
SHAPE = DocumentChecker("project", KINDS)

WHOLE = """
$schema: .toolcrib/project.schema.json
project: weather-agent
description: The tools of our weather agent.
sources:
  - descriptors
  - packs/travel.zip
  - {path: ../team, namespace: team}
  - {pack: acme-tools, version: ">=1.2,<2", namespace: acme}
ignore: ["fixtures/**", "**/*.data.yaml"]
defaults: {timeout: 10s, coerce: off, on_invalid_result: warn}
disable: ["legacy_*"]
toolsets:
  booking: {description: What a customer may ask for., tools: [search_*, "book_[ab]"]}
  small: [get_forecast]
chat: {provider: openai, model: gpt-5-mini}
profile: dev
profiles:
  dev: {modes: {"*": mock}}
  ci:
    description: On every push.
    extends: dev
    modes: {get_forecast: live, "search_*": live}
    defaults: {timeout: 1.5m}
    disable: [delete_*]
    enable: [legacy_search]
    toolset: booking
"""


def parsed(text, name="toolcrib.yaml") -> Project:
    return Project.parse(name, text, kinds=KINDS)


def told(text, name="toolcrib.yaml"):
    """(code, pointer, line) of everything that is wrong."""
    with pytest.raises(DocumentError) as raised:
        parsed(text, name)
    return [(problem.code, problem.pointer, problem.line) for problem in raised.value.problems]


def hints(text):
    with pytest.raises(DocumentError) as raised:
        parsed(text)
    return [problem.hint for problem in raised.value.problems]


def faults(text):
    """Everything that is wrong."""
    try:
        parsed(text)
    except DocumentError as error:
        return error.problems
    return ()


def test_every_key_of_a_project_arrives():
    project = parsed(WHOLE, "agent/toolcrib.yaml")
    assert (project.name, project.description) == ("weather-agent", "The tools of our weather agent.")
    assert project.root == "agent"
    assert project.sources == (
        SourceEntry(path="descriptors", place="agent/toolcrib.yaml:6"),
        SourceEntry(path="packs/travel.zip", place="agent/toolcrib.yaml:7"),
        SourceEntry(path="../team", namespace="team", place="agent/toolcrib.yaml:8"),
        SourceEntry(pack="acme-tools", version=">=1.2,<2", namespace="acme", place="agent/toolcrib.yaml:9"),
    )
    assert project.ignore == ("fixtures/**", "**/*.data.yaml")
    assert project.defaults == {"timeout": 10.0, "coerce": "off", "on_invalid_result": "warn"}
    assert project.disable == ("legacy_*",)
    assert project.chat == {"provider": "openai", "model": "gpt-5-mini"}
    assert project.toolsets == (
        Toolset(
            name="booking",
            description="What a customer may ask for.",
            tools=("search_*", "book_[ab]"),
            place="agent/toolcrib.yaml:14",
        ),
        Toolset(name="small", tools=("get_forecast",), place="agent/toolcrib.yaml:15"),
    )
    assert project.profile == "dev"
    assert project.profiles == {
        "dev": Profile(name="dev", modes={"*": "mock"}),
        "ci": Profile(
            name="ci",
            description="On every push.",
            extends="dev",
            modes={"get_forecast": "live", "search_*": "live"},
            defaults={"timeout": 90.0},
            disable=("delete_*",),
            enable=("legacy_search",),
            toolset="booking",
        ),
    }
    assert project.origin.place("/profiles/ci/modes/search_*") == "agent/toolcrib.yaml:23"
    assert len(project.origin.digest) == 64


def test_profiles_add_to_what_the_project_lets_tools_reach():
    project = parsed("""
project: p
egress: {allow: ["127.0.0.1:8080"]}
origins: {"https://a.example": "http://127.0.0.1:1", "https://b.example": "http://127.0.0.1:2"}
profiles:
  dev: {egress: {allow: ["[::1]:9"]}, origins: {"https://a.example": "http://127.0.0.1:3"}}
  ci: {extends: dev, egress: {allow: ["*.corp.example:443"]}}
""")
    assert settings_of(project).egress == ("127.0.0.1:8080",)
    settings = settings_of(project, "ci")
    assert settings.egress == ("127.0.0.1:8080", "[::1]:9", "*.corp.example:443")
    assert settings.origins == {
        "https://a.example": "http://127.0.0.1:3",
        "https://b.example": "http://127.0.0.1:2",
    }
    assert settings.places["origins.https://a.example"] == "toolcrib.yaml:6 (profile dev)"
    assert settings.places["origins.https://b.example"] == "toolcrib.yaml:4"


def test_what_is_no_host_with_its_port_or_no_origin_is_told_with_its_place():
    text = """
project: p
egress: {allow: ["127.0.0.1", "ok.example:80", "*"]}
origins: {"ftp://a.example": "http://b.example"}
profiles: {dev: {egress: {allow: [":80"]}, origins: {"https://a.example": "http://b.example:99999"}}}
"""
    assert told(text) == [
        ("bad_egress", "/egress/allow/0", 3),
        ("bad_egress", "/egress/allow/2", 3),
        ("bad_origin", "/origins/ftp:~1~1a.example", 4),
        ("bad_egress", "/profiles/dev/egress/allow/0", 5),
        ("bad_origin", "/profiles/dev/origins/https:~1~1a.example", 5),
    ]


@pytest.mark.parametrize(
    ("origins", "reasons"),
    [
        ('{"https://a.example/": "http://127.0.0.1:1/"}', []),
        ('{"HTTPS://A.example:443": "http://[0:0:0:0:0:0:0:1]:1"}', []),
        ('{"https://a.example": "http://127.0.0.1/v1"}', ["an origin has no path"]),
        (
            '{"https://a.example/v1": "http://127.0.0.1?x"}',
            ["an origin has no path", "an origin has no query"],
        ),
        ('{"https://a.example": "http://u:hunter2@b.example"}', ["an origin cannot contain a user name"]),
        ('{"https://a.example": "http://[::1"}', ["`http://[::1` is not a valid origin"]),
        ('{"https://a.example": "http://a_b..example"}', ["`http://a_b..example` is not a valid origin"]),
    ],
)
def test_origins_are_written_in_many_ways_and_refused_with_the_reason(origins, reasons):
    found = faults(f"project: p\norigins: {origins}\n")
    assert {each.code for each in found} <= {"bad_origin"}
    assert len(found) == len(reasons)
    assert all(each.message.endswith(reason) for each, reason in zip(found, reasons, strict=True))
    assert all(each.hint.startswith("write an origin as") and "hunter2" not in str(each) for each in found)


def test_an_entry_of_egress_is_told_once_whatever_it_holds():
    (problem,) = faults('project: p\negress: {allow: ["a; b:80"]}\n')
    assert problem.message == "`a; b` is not a valid host"
    assert problem.hint.count("write") == 1


def test_a_project_needs_a_name_and_nothing_else():
    project = parsed('{"project": "p"}', "toolcrib.json")
    assert project.sources == DEFAULT_SOURCES
    assert [(source.path, source.optional) for source in project.sources] == [
        ("descriptors", True),
        ("packs", True),
    ]
    assert (project.root, project.profile, dict(project.profiles)) == (".", "", {})


def test_an_empty_list_of_sources_is_none():
    assert parsed("project: p\nsources: []\n").sources == ()


def test_a_project_may_be_given_as_a_mapping():
    assert Project.parse("memory", {"project": "p", "ignore": ["a/*"]}, kinds=KINDS).ignore == ("a/*",)


def test_numbers_without_quotes_are_the_texts_that_were_written():
    project = parsed('project: 1.10\nprofile: _2\nprofiles: {_2: {description: 1.0, modes: {"*": mock}}}\n')
    assert (project.name, project.profiles["_2"].description) == ("1.10", "1.0")


def test_a_profile_is_listed_after_those_that_it_extends():
    project = parsed("project: p\nprofiles: {c: {extends: b}, a: {}, b: {extends: a}}\n")
    assert [profile.name for profile in project.lineage("c")] == ["a", "b", "c"]
    assert project.lineage("nobody") == []


P = "project: p\n"

WRONG = {
    "no name": ("description: d\n", [("missing_key", "/project", 1)]),
    "bad name": ("project: a b\n", [("wrong_form", "/project", 1)]),
    "no mapping": ("[1]", [("wrong_type", "", 1)]),
    "empty": ("# nothing\n", [("empty_document", "", 1)]),
    "two documents": (P + "---\nproject: q\n", [("several_documents", "", 3)]),
    "no yaml": ("project: *a\n", [("alias_refused", "/project", 1)]),
    "unknown key": (P + "sorces: []\n", [("unknown_key", "/sorces", 2)]),
    "unknown inner key": (
        P + "profiles:\n  dev:\n    mode: mock\n",
        [("unknown_key", "/profiles/dev/mode", 4)],
    ),
    "path and pack": (P + "sources: [{path: a, pack: b}]\n", [("wrong_combination", "/sources/0", 2)]),
    "version of a path": (
        P + 'sources: [{path: a, version: "1"}]\n',
        [("wrong_combination", "/sources/0", 2)],
    ),
    "neither path nor pack": (P + "sources: [{namespace: a}]\n", [("wrong_combination", "/sources/0", 2)]),
    "bad namespace": (
        P + "sources: [{path: a, namespace: a__b}]\n",
        [("wrong_form", "/sources/0/namespace", 2)],
    ),
    "source twice": (P + "sources:\n- a\n- path: ./a/\n", [("duplicate_name", "/sources/1", 4)]),
    "variable in a path": (P + 'sources: ["${HOME}/a"]\n', [("variable_not_allowed", "/sources/0", 2)]),
    "NUL in a path": (
        P + 'sources: [{path: "a\\0b"}]\n',
        [("wrong_form", "/sources/0/path", 2), ("hidden_character", "/sources/0/path", 2)],
    ),
    "ignored folder": (P + "ignore: [fixtures/]\n", [("bad_glob", "/ignore/0", 2)]),
    "ignored from above": (P + "ignore: [ok, ../x]\n", [("bad_glob", "/ignore/1", 2)]),
    "absolute glob": (P + "ignore: [/x]\n", [("bad_glob", "/ignore/0", 2)]),
    "glob with a backslash": (P + "ignore: ['a\\b']\n", [("bad_glob", "/ignore/0", 2)]),
    "empty glob": (P + 'disable: [""]\n', [("wrong_value", "/disable/0", 2)]),
    "tool glob with a comma": (P + 'disable: ["a*,b*"]\n', [("bad_glob", "/disable/0", 2)]),
    "tool glob that is open": (P + 'disable: ["a["]\n', [("bad_glob", "/disable/0", 2)]),
    "tool glob of a toolset": (P + "toolsets:\n  a: [a b]\n", [("bad_glob", "/toolsets/a/0", 3)]),
    "tool glob of a described toolset": (
        P + "toolsets:\n  a: {tools: [a/b]}\n",
        [("bad_glob", "/toolsets/a/tools/0", 3)],
    ),
    "tool glob of modes": (
        P + "profiles: {a: {modes: {a b: mock}}}\n",
        [("bad_glob", "/profiles/a/modes/a b", 2)],
    ),
    "tool glob of enable": (
        P + "profiles: {a: {enable: [a b]}}\n",
        [("bad_glob", "/profiles/a/enable/0", 2)],
    ),
    "name of a toolset": (P + "toolsets: {a b: [a]}\n", [("wrong_form", "/toolsets/a b", 2)]),
    "name of a profile": (P + "profiles: {a.b: {}}\n", [("wrong_form", "/profiles/a.b", 2)]),
    "no duration": (P + "defaults: {timeout: 10}\n", [("wrong_form", "/defaults/timeout", 2)]),
    "no time": (P + "defaults: {timeout: 0s}\n", [("out_of_range", "/defaults/timeout", 2)]),
    "too much time": (
        P + "profiles: {a: {defaults: {timeout: 11m}}}\n",
        [("out_of_range", "/profiles/a/defaults/timeout", 2)],
    ),
    "unknown default": (P + "defaults: {title: a}\n", [("unknown_key", "/defaults/title", 2)]),
    "bad default": (P + "defaults: {coerce: on}\n", [("not_allowed", "/defaults/coerce", 2)]),
    "unknown profile": (P + "profile: a\n", [("unknown_profile", "/profile", 2)]),
    "unknown base": (
        P + "profiles: {dev: {extends: dav}}\n",
        [("unknown_profile", "/profiles/dev/extends", 2)],
    ),
    "extends itself": (
        P + "profiles: {a: {extends: a}}\n",
        [("endless_extends", "/profiles/a/extends", 2)],
    ),
    "circle": (
        P + "profiles:\n  z: {extends: a}\n  a: {extends: b}\n  b: {extends: c}\n  c: {extends: a}\n",
        [("endless_extends", "/profiles/a/extends", 4)],
    ),
    "two circles": (
        P + "profiles:\n  a: {extends: b}\n  b: {extends: a}\n  c: {extends: c}\n",
        [("endless_extends", "/profiles/a/extends", 3), ("endless_extends", "/profiles/c/extends", 5)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_project_is_refused_with_all_that_is_wrong(text, expected):
    assert told(text) == expected


EDITORS_CAN_NOT = {
    *("two documents", "no yaml", "empty", "source twice", "variable in a path", "NUL in a path"),
    *("unknown profile", "unknown base", "extends itself", "circle", "two circles"),
}


@pytest.mark.parametrize("name", sorted(WRONG.keys() - EDITORS_CAN_NOT))
def test_an_editor_refuses_it_too(name):
    validator = jsonschema.Draft202012Validator(with_blocks("project", {}))
    (document,), _problems = parse_documents("toolcrib.yaml", WRONG[name][0])
    assert not validator.is_valid(document.value)


def test_an_editor_accepts_what_is_right():
    validator = jsonschema.Draft202012Validator(with_blocks("project", {}))
    (document,), _problems = parse_documents("toolcrib.yaml", WHOLE)
    assert [error.message for error in validator.iter_errors(document.value)] == []


def test_all_problems_are_told_at_once():
    text = "project: a b\nprofile: x\ndisable: [a b]\nsorces: []\nprofiles: {y: {extends: z}}\n"
    assert sorted(told(text)) == sorted(
        [
            ("wrong_form", "/project", 1),
            ("unknown_profile", "/profile", 2),
            ("bad_glob", "/disable/0", 3),
            ("unknown_key", "/sorces", 4),
            ("unknown_profile", "/profiles/y/extends", 5),
        ]
    )


def test_a_fault_within_a_profile_makes_nobody_miss_the_profile():
    text = P + "profile: ci\nprofiles: {ci: {modes: [mock]}, dev: {extends: ci}}\n"
    assert told(text) == [("wrong_type", "/profiles/ci/modes", 3)]


def test_what_is_no_mapping_makes_nobody_miss_the_names_in_it():
    text = P + "profile: ci\nprofiles: 3\ntoolsets: 4\n"
    assert told(text) == [("wrong_type", "/profiles", 3), ("wrong_type", "/toolsets", 4)]


def test_a_misspelt_name_gets_the_near_ones_and_all_others():
    text = P + "profile: produktion\nprofiles: {dev: {}, production: {}}\ntoolsets: {a: []}\n"
    assert hints(text) == ["did you mean `production`? known profiles: `dev`, `production`"]
    assert hints(P + "profile: a\n") == ["define it under `profiles:`"]


def test_a_circle_is_told_as_a_person_walks_it():
    with pytest.raises(DocumentError, match="`a` extends `b` extends `a`"):
        parsed(P + "profiles: {a: {extends: b}, b: {extends: a}}\n")


@pytest.mark.parametrize("key", sorted(LATER_KEYS["project"]))
def test_a_key_of_later_is_refused_in_a_project(key):
    assert told(P + f"{key}: {{}}\n") == [("not_supported_yet", f"/{key}", 2)]


def test_what_is_sound_of_a_broken_project_is_kept_for_a_report():
    (document,), _problems = parse_documents("toolcrib.yaml", P + "sources: [a]\nprofiles: 3\nx: 1\n")
    project, problems = parse_project(document, SHAPE)
    assert sorted(problem.code for problem in problems) == ["unknown_key", "wrong_type"]
    assert [source.path for source in project.sources] == ["a"]
    assert project.profiles == {}


BROKEN = {
    "no yaml": "project: [\n",
    "no mapping": "- 1\n",
    "faulty profile": P + "profile: ci\nprofiles: {ci: {modes: 3}}\n",
    "faulty profiles": P + "profile: ci\nprofiles: 3\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_project_misses_no_profile_since_its_own_faults_are_told(text):
    project, problems = parse_project_file(
        "a/toolcrib.yaml", *parse_documents("a/toolcrib.yaml", text), SHAPE
    )
    assert problems
    assert (project.broken, project.root) == (True, "a")
    for profile in (None, "ci", "other"):
        assert settings_of(project, profile, "--profile").modes == {}


def test_of_broken_sources_those_that_are_clear_are_kept():
    text = P + 'sources: [a, 3, {pat: b}, "x\\0y", c]\n'
    project, _problems = parse_project_file("toolcrib.yaml", *parse_documents("toolcrib.yaml", text), SHAPE)
    assert [source.path for source in project.sources] == ["a", "3", "c"]


def test_a_second_project_file_is_a_warning_that_names_both():
    problem = second_project_file("a/toolcrib.json", "a/toolcrib.yaml")
    assert (problem.severity, problem.source, problem.line) == ("warning", "a/toolcrib.json", 1)
    assert "`toolcrib.yaml` is used" in problem.message


HOSTILE = {
    "many profiles": "profiles: {" + ", ".join(f"p{i}: {{}}" for i in range(1001)) + "}",
    "long chain": "profiles: {"
    + ", ".join(f"p{i}: {{extends: p{(i + 1) % 1000}}}" for i in range(1000))
    + "}",
    "many sources": f"sources: [{', '.join(f's{i}' for i in range(1001))}]",
    "long path": f"sources: [{'a' * 5000}]",
    "long glob": f"disable: [{'*a' * 200}]",
    "terminal escape": 'profile: "\\e[2J"',
    "merge": "profiles: {<<: {}}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_project_is_refused(text):
    assert told(P + text + "\n")


def test_a_chain_as_long_as_it_may_be_is_followed():
    chain = ", ".join(f"p{i}: {{extends: p{i + 1}}}" for i in range(999))
    project = parsed(P + f"profiles: {{{chain}, p999: {{}}}}\n")
    assert len(project.lineage("p0")) == 1000
