"""What is in force under a profile, and where it was written."""

from __future__ import annotations

import marshal
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import Descriptor, Origin, Toolset
from toolcrib.executors import Executors
from toolcrib.loading.projects import Project, settings_of
from toolcrib.loading.settings import (
    NO_SETTINGS,
    PROFILE_VARIABLE,
    Settings,
    apply_settings,
    chosen_profile,
)
from toolcrib.registry.catalog import Rule, VisibilityFilter

KINDS = Executors({})

TEXT = """project: p
profile: dev
defaults: {timeout: 10s, coerce: off}
disable: [old_*]
toolsets:
  small: [get_*]
profiles:
  dev:
    modes: {"*": mock, get_live: live}
    defaults: {timeout: 1s}
  ci:
    extends: dev
    modes: {get_live: live, "get_*": tape}
    defaults: {on_invalid_result: pass}
    enable: [old_friend]
    toolset: small
  strict:
    extends: ci
    disable: [old_friend]
"""


@pytest.fixture(scope="module")
def project() -> Project:
    return Project.parse("toolcrib.yaml", TEXT, kinds=KINDS)


def tool(name="get_x", *, written=(), settings=None, mode="live", modes=("live", "mock", "tape"), **keys):
    origin = Origin(written=frozenset(written), settings=settings or {})
    return Descriptor(name=name, mode=mode, bindings={key: {} for key in modes}, origin=origin, **keys)


def test_the_project_chooses_where_nobody_else_does(project):
    settings = settings_of(project)
    assert (settings.profile, settings.chosen_by) == ("dev", "`profile` in toolcrib.yaml:2")


def test_whoever_asks_is_named(project):
    settings = settings_of(project, "ci", "--profile")
    assert (settings.profile, settings.chosen_by) == ("ci", "--profile")


def test_a_profile_goes_before_what_it_extends_and_that_before_the_project(project):
    settings = settings_of(project, "ci", "--profile")
    assert settings.defaults == {"timeout": 1.0, "coerce": "off", "on_invalid_result": "pass"}
    assert list(settings.modes.items()) == [("get_live", "live"), ("get_*", "tape"), ("*", "mock")]
    assert settings.tools == ("get_*",)
    assert settings.places == {
        "defaults.timeout": "toolcrib.yaml:10 (profile dev)",
        "defaults.coerce": "toolcrib.yaml:3",
        "defaults.on_invalid_result": "toolcrib.yaml:14 (profile ci)",
        "modes.get_live": "toolcrib.yaml:13 (profile ci)",
        "modes.get_*": "toolcrib.yaml:13 (profile ci)",
        "modes.*": "toolcrib.yaml:9 (profile dev)",
        "toolset": "toolcrib.yaml:16 (profile ci)",
    }


def test_without_a_profile_only_the_project_is_in_force():
    project = Project.parse("toolcrib.yaml", TEXT.replace("profile: dev\n", ""), kinds=KINDS)
    settings = settings_of(project)
    assert (settings.profile, settings.chosen_by, dict(settings.modes)) == ("", "", {})
    assert settings.defaults == {"timeout": 10.0, "coerce": "off"}


def test_settings_are_plain_data(project):
    for settings in (settings_of(project, "strict", "x"), NO_SETTINGS):
        assert Settings(*marshal.loads(marshal.dumps(tuple(settings)))) == settings


def hidden(settings: Settings, name: str) -> tuple[str, str] | None:
    """(code, place) of why a tool is not offered; None if it is."""
    toolset = Toolset(settings.toolset, tools=settings.tools, place=settings.places["toolset"])
    offer = VisibilityFilter(
        tuple(Rule(*switch) for switch in settings.switches), toolset if settings.toolset else None
    )
    found = offer.hidden(name)
    return None if found is None else (found.code, found.place)


def test_the_last_profile_that_speaks_of_a_tool_switches_it(project):
    names = {name: settings_of(project, name, "x").switches for name in ("dev", "ci", "strict")}
    assert names["dev"] == ((("old_*",), False, "toolcrib.yaml:4", ""),)
    assert names["ci"] == (*names["dev"], (("old_friend",), True, "toolcrib.yaml:15 (profile ci)", ""))
    assert names["strict"] == (
        *names["ci"],
        (("old_friend",), False, "toolcrib.yaml:19 (profile strict)", ""),
    )


def test_switches_and_the_toolset_are_what_queries_take(project):
    settings = settings_of(project, "strict", "x")
    assert hidden(settings, "get_forecast") is None
    assert hidden(settings, "put") == ("not_in_toolset", "toolcrib.yaml:16 (profile ci)")
    assert hidden(settings, "old_friend") == ("disabled", "toolcrib.yaml:19 (profile strict)")


def test_an_unknown_profile_is_refused_with_the_known_ones(project):
    with pytest.raises(ConfigurationError) as raised:
        settings_of(project, "strikt", "TOOLCRIB_PROFILE")
    assert raised.value.code == "unknown_profile"
    assert str(raised.value) == (
        "unknown profile `strikt`, requested by TOOLCRIB_PROFILE\n"
        "    hint: did you mean `strict`? known profiles: `dev`, `ci`, `strict`"
    )


def test_a_project_without_profiles_says_so():
    project = Project.parse("toolcrib.yaml", "project: p\n", kinds=KINDS)
    with pytest.raises(ConfigurationError, match=r"toolcrib\.yaml:1 has no profiles"):
        settings_of(project, "ci", "--profile")


def test_outside_projects_there_is_no_profile():
    assert settings_of(None) is NO_SETTINGS
    assert settings_of(None, "ci", PROFILE_VARIABLE) is NO_SETTINGS
    with pytest.raises(ConfigurationError, match="there is no project here"):
        settings_of(None, "ci", "--profile")


def test_an_argument_goes_before_the_environment():
    environment = {"TOOLCRIB_PROFILE": "ci"}
    assert chosen_profile("dev", environment) == ("dev", "--profile")
    assert chosen_profile(None, environment) == ("ci", "TOOLCRIB_PROFILE")
    assert chosen_profile(None, {"TOOLCRIB_PROFILE": ""}) == (None, "")
    assert chosen_profile("", {}) == ("", "--profile")


def test_the_environment_of_the_process_is_asked(monkeypatch):
    monkeypatch.setenv("TOOLCRIB_PROFILE", "ci")
    assert chosen_profile(None) == ("ci", "TOOLCRIB_PROFILE")


def test_a_default_is_for_what_neither_the_document_nor_its_pack_says(project):
    settings = settings_of(project, "dev", "x")
    given = tool(written={"timeout"}, timeout=5.0, settings={"coerce": "pack.yaml:3"}, coerce="lenient")
    changed = apply_settings(given, settings)
    assert (changed.timeout, changed.coerce) == (5.0, "lenient")
    plain = apply_settings(tool(), settings)
    assert (plain.timeout, plain.coerce) == (1.0, "off")
    assert plain.origin.settings == {
        "timeout": "toolcrib.yaml:10 (profile dev)",
        "coerce": "toolcrib.yaml:3",
        "mode": "toolcrib.yaml:9 (profile dev)",
    }


def test_what_a_pack_gave_is_still_told(project):
    changed = apply_settings(tool(settings={"coerce": "pack.yaml:3"}), settings_of(project, "dev", "x"))
    assert changed.origin.settings["coerce"] == "pack.yaml:3"


MODES = [
    ("get_live", ("live", "mock", "tape"), "live"),
    ("get_x", ("live", "mock", "tape"), "tape"),
    ("get_x", ("live", "mock"), "live"),
    ("put", ("live", "mock"), "mock"),
    ("put", ("live",), "live"),
    ("get_live", ("mock",), "live"),
]


@pytest.mark.parametrize(("name", "modes", "expected"), MODES)
def test_the_first_glob_that_fits_gives_the_mode(project, name, modes, expected):
    settings = settings_of(project, "ci", "x")
    assert apply_settings(tool(name, modes=modes, mode=modes[0]), settings).mode == expected


def test_a_tool_that_nothing_changes_is_the_same():
    given = tool()
    assert apply_settings(given, NO_SETTINGS) is given


def test_a_mode_that_is_the_documents_own_came_from_there(project):
    changed = apply_settings(tool("put", mode="mock"), settings_of(project, "dev", "x"))
    assert "mode" not in changed.origin.settings


NAMES = st.sampled_from(["a", "ab", "b", "ba"])
GLOBS = st.lists(st.sampled_from(["a", "a*", "*b", "b?", "*"]), max_size=3)


@given(NAMES, GLOBS, st.lists(st.tuples(GLOBS, GLOBS), max_size=3))
def test_switches_mean_what_their_definition_says(name, disable, layers):
    """Project first, then each profile: what `disable` fits goes, then what `enable` fits comes back."""
    offered = not any(fnmatchcase(name, glob) for glob in disable)
    profiles = {}
    for number, (off, on) in enumerate(layers):
        offered = offered and not any(fnmatchcase(name, glob) for glob in off)
        offered = offered or any(fnmatchcase(name, glob) for glob in on)
        base = {"extends": f"p{number - 1}"} if number else {}
        profiles[f"p{number}"] = {"disable": off, "enable": on, **base}
    said = {"project": "p", "disable": disable, "profiles": profiles}
    project = Project.parse("memory", said, kinds=KINDS)
    settings = settings_of(project, f"p{len(layers) - 1}" if layers else None)
    offer = VisibilityFilter(tuple(Rule(*switch) for switch in settings.switches))
    assert (offer.hidden(name) is None) is offered
