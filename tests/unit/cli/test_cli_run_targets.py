"""What the arguments of `toolcrib run` select."""

from __future__ import annotations

import pytest

from toolcrib.cli import exit_codes

SCENARIO = """
scenario: {name}
steps: [{{call: echo, args: {{text: a}}, expect: {{result: "{expected} 1"}}}}]
"""

GOOD = SCENARIO.format(name="good", expected="a")
BAD = SCENARIO.format(name="bad", expected="b")


@pytest.fixture
def project(tools, write):
    """A project with tools in one folder, and scenarios in another that is no source."""
    return write(
        {
            "toolcrib.yaml": "project: words\nsources: [descriptors, tests/smoke]\n",
            "tests/smoke/good.scenario.yaml": GOOD,
            "tests/smoke/bad.scenario.yaml": BAD,
            "tests/extra/extra.scenario.yaml": SCENARIO.format(name="extra", expected="a"),
        }
    )


@pytest.fixture
def ran(document):
    return lambda *words: [report["scenario"] for report in document("run", *words, "--json")["scenarios"]]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("tests/smoke/good.scenario.yaml", ["good"]),
        ("tests/smoke", ["bad", "good"]),
        ("tests/extra/extra.scenario.yaml", ["extra"]),
        ("tests", ["bad", "good"]),
        ("descriptors/echo.tool.yaml", ["echo examples"]),
        ("good", ["good"]),
        ("echo", ["echo examples"]),
        ("tests/smoke/good.scenario.yaml::good", ["good"]),
        ("tests/smoke::bad", ["bad"]),
        (".", ["bad", "echo examples", "good"]),
    ],
)
def test_a_target_in_a_project_has_the_tools_of_the_project(project, ran, target, names):
    assert sorted(ran(target)) == names


def test_a_path_from_a_folder_below_is_in_the_same_project(project, ran, monkeypatch):
    monkeypatch.chdir(project / "tests" / "extra")
    assert ran("extra.scenario.yaml") == ["extra"]
    assert ran("../smoke/good.scenario.yaml") == ["good"]


def test_a_path_from_elsewhere_finds_its_own_project(project, ran, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert ran(str(project / "tests" / "smoke" / "good.scenario.yaml")) == ["good"]


def test_without_a_project_a_file_has_the_tools_of_the_usual_folders(tools, write, ran):
    write(
        {"descriptors/good.scenario.yaml": GOOD, "elsewhere/more.scenario.yaml": GOOD.replace("good", "more")}
    )
    assert ran("descriptors/good.scenario.yaml") == ["good"]
    assert ran("elsewhere/more.scenario.yaml") == ["more"]


def test_several_targets_are_added_up(project, ran):
    assert sorted(ran("tests/smoke/bad.scenario.yaml", "extra", "tests/extra")) == ["bad", "extra"]


def test_a_run_of_a_matrix_has_a_name_of_its_own(tools, write, ran):
    text = (
        "scenario: many\nmatrix: {text: [a, b]}\nsteps: [{call: echo, args: {text: '{{ matrix.text }}'}}]\n"
    )
    write({"descriptors/many.scenario.yaml": text})
    assert ran("many") == ["many[text=a]", "many[text=b]"]
    assert ran("many[text=b]") == ["many[text=b]"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("god", "no scenario or example is called `god`, and there is no such file; did you mean `good`?"),
        ("zzz", "there are: `bad`, `echo`, `good`"),
        ("tests/smoke::god", "called `god` in `tests/smoke`; did you mean `good`?"),
        ("tests/smok", "`tests/smok` does not exist; did you mean `tests/smoke`?"),
        ("tests/smok::good", "`tests/smok` does not exist; did you mean `tests/smoke`?"),
        ("good.yaml", "`good.yaml` does not exist"),
    ],
)
def test_a_target_that_is_unknown_is_a_usage_error_with_what_there_is(project, toolcrib, target, told):
    result = toolcrib("run", target)
    assert result.exit_code == exit_codes.USAGE
    assert told in result.stderr


def test_errors_in_scenarios_that_are_not_selected_do_not_concern_the_run(project, write, toolcrib):
    write({"tests/smoke/broken.scenario.yaml": "scenario: broken\nsteps: [{cal: echo}]\n"})
    assert toolcrib("run", "good").exit_code == 0
    assert toolcrib("run", "tests/smoke/good.scenario.yaml").exit_code == 0
    named = toolcrib("run", "broken")
    assert named.exit_code == exit_codes.PROBLEMS
    assert "unknown_key" in named.stderr
    assert toolcrib("run", "tests/smoke").exit_code == exit_codes.PROBLEMS


def test_errors_in_tools_do(project, write, toolcrib):
    write({"descriptors/broken.tool.yaml": "name: broken\noops: 1\n"})
    assert toolcrib("run", "good").exit_code == exit_codes.PROBLEMS


def test_a_word_that_matches_nothing_lists_what_there_is(project, toolcrib):
    result = toolcrib("run", "-k", "god")
    assert result.exit_code == exit_codes.NOTHING_SELECTED
    assert "no scenario or example matches" in result.stderr
    assert "did you mean `good`?" in result.stderr
    assert "there are: `bad`, `echo`, `good`" in toolcrib("run", "-k", "zzz").stderr


def test_what_failed_the_last_time_runs_again_alone(project, write, ran, toolcrib):
    assert "no selected run is known to have failed" in toolcrib("run", "--last-failed", "good").stderr
    assert toolcrib("run").exit_code == exit_codes.PROBLEMS
    assert ran("--last-failed") == ["bad"]
    assert ran("good") == ["good"]
    assert ran("--lf") == ["bad"]
    write({"tests/smoke/bad.scenario.yaml": BAD.replace("b 1", "a 1")})
    assert ran("--last-failed") == ["bad"]
    result = toolcrib("run", "--last-failed")
    assert result.exit_code == 0
    assert "running all of them" in result.stderr


def test_a_damaged_record_of_failures_is_named(project, toolcrib, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))
    toolcrib("run")
    (record,) = (tmp_path / "cache" / "last-failed").iterdir()
    record.write_text('{"a": 1}')
    assert toolcrib("run").exit_code == exit_codes.PROBLEMS
    record.write_text('{"a"')
    result = toolcrib("run", "--last-failed")
    assert result.exit_code == exit_codes.PROBLEMS
    assert str(record) in result.stderr
    assert "delete it" in result.stderr


def test_q_prints_failures_and_the_verdict(project, toolcrib):
    assert len(toolcrib("run", "-q", "good").stdout.splitlines()) == 1
    result = toolcrib("run", "-q")
    assert "FAILED bad" in result.stdout
    assert "words" not in result.stdout
    assert toolcrib("run", "-q", "-v").exit_code == exit_codes.USAGE


def test_x_stops_at_the_first_failure(project, ran):
    assert ran("-x", "tests/smoke") == ["bad"]


def test_two_scenarios_of_one_name_are_a_warning(project, write, toolcrib):
    write({"tests/smoke/other.scenario.yaml": GOOD})
    result = toolcrib("validate")
    assert result.exit_code == 0
    assert (
        "tests/smoke/other.scenario.yaml:2:1: warning: duplicate_scenario: another scenario is called `good` too"
        " (tests/smoke/good.scenario.yaml:2)"
    ) in result.stdout + result.stderr


def test_scenarios_of_two_packs_may_have_the_same_name(tools, write, toolcrib):
    packs = {
        f"packs/{name}/{file}": text
        for name in ("a", "b")
        for file, text in {
            "pack.yaml": f"name: {name}\nversion: 1.0.0\n",
            "t.tool.yaml": f"name: tool_{name}\nmock: {{result: 1}}\n",
            "s.scenario.yaml": f"scenario: same\nsteps: [{{call: tool_{name}}}]\n",
        }.items()
    }
    write(packs)
    assert "duplicate_scenario" not in toolcrib("validate").stdout
