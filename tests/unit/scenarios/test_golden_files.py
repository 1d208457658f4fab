"""A result is compared with a golden file as a whole, and says what the file should hold instead."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_memory import MOCKS, loaded, problems_of
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.loading.documents.files import DiskFiles, MemoryFiles
from toolcrib.loading.scenarios.expectations import golden_path, golden_text
from toolcrib.scenarios import run_scenario, runs_of
from toolcrib.scenarios.reports import GoldenChange

ECHO = """
name: echo
input_schema: {}
output_schema: {}
mock:
  rules:
    - {when: {args: {fail: true}}, reply: {error: broken}}
    - {reply: {result: "{{ args }}"}}
---
"""


def step(args, expect="golden: goldens/a.json"):
    return (
        f"scenario: s\nsteps:\n  - {{call: echo, args: {args}, expect: {{{expect}}}}}\n  - {{call: echo}}\n"
    )


def report_of(text, files=None, **options):
    found = loaded(ECHO + dedent(text), files)
    runtime = loaded_runtime(found, executors=MOCKS)
    (scenario,) = runtime.scenarios
    return asyncio.run(run_scenario(runtime, scenario, **options))


def golden(value):
    return {"goldens/a.json": value if isinstance(value, str) else json.dumps(value)}


def failures(report):
    return [(failure.what, failure.lines) for step in report.steps for failure in step.failures]


def test_a_result_that_is_as_the_file_says_passes():
    assert report_of(step("{b: 1, a: [x, null]}"), golden({"a": ["x", None], "b": 1.0})).passed


def test_every_difference_is_told_by_its_place_with_both_values():
    report = report_of(
        step("{days: [{t: 3}, {t: 4}], city: Oslo, new: 1}"),
        golden({"days": [{"t": 3}, {"t": 5}], "city": "Oslo", "old": True}),
    )
    assert failures(report) == [
        (
            "golden",
            (
                "differs from `goldens/a.json`:",
                "/days/1/t: expected 5, got 4",
                "/old: expected true, got nothing",
                "/new: expected nothing, got 1",
                "run `toolcrib run --update` to accept the new result",
            ),
        )
    ]
    (fault,) = report.faults
    assert fault.head == "differs from `goldens/a.json`:"
    assert report.steps[0].failures[0].pointer == "/steps/0/expect/golden"
    assert len(report.steps) == 1


def test_of_many_differences_the_first_are_told():
    report = report_of(step("{}"), golden({f"k{number}": number for number in range(30)}))
    ((_what, lines),) = failures(report)
    assert (len(lines), lines[-2]) == (23, "and more")


def test_a_file_that_is_not_there_says_how_to_write_it():
    assert failures(report_of(step("{a: 1}"))) == [
        ("golden", ("missing golden file `goldens/a.json`; run `toolcrib run --update` to write it",))
    ]


def test_a_file_that_holds_no_json_is_a_warning_and_fails_the_run():
    assert problems_of(ECHO + step("{a: 1}"), golden('{"a": 1')) == [
        ("invalid_golden", "/steps/0/expect/golden")
    ]
    ((what, lines),) = failures(report_of(step("{a: 1}"), golden('{"a": 1')))
    assert (what, lines[1]) == ("golden", "run `toolcrib run --update` to rewrite it")
    assert lines[0].startswith("`goldens/a.json` does not contain a result: line 1: ")


@pytest.mark.parametrize(
    ("files", "missing"), [({}, True), (golden({"a": 2}), False), (golden("oops"), False)]
)
def test_an_update_takes_the_result_for_right_and_says_what_to_write(files, missing):
    report = report_of(step("{a: 1}"), files, update=True)
    assert report.passed
    assert [step.golden for step in report.steps] == [
        GoldenChange("goldens/a.json", {"a": 1}, missing),
        None,
    ]


def test_an_update_changes_nothing_where_nothing_is_different():
    report = report_of(step("{a: 1}"), golden({"a": 1}), update=True)
    assert report.passed
    assert report.steps[0].golden is None


@pytest.mark.parametrize(
    ("args", "expect"),
    [
        ("{fail: true}", "golden: goldens/a.json"),
        ("{a: 1}", "golden: goldens/a.json, attempts: 2"),
        ("{a: 1}", "golden: goldens/a.json, result: {a: 2}"),
    ],
)
def test_an_update_writes_nothing_for_a_step_that_fails(args, expect):
    report = report_of(step(args, expect), golden({"a": 9}), update=True)
    assert not report.passed
    assert all(step.golden is None for step in report.steps)


def test_a_failing_step_tells_the_difference_too():
    report = report_of(
        step("{a: 1}", "golden: goldens/a.json, result: {a: 2}"), golden({"a": 9}), update=True
    )
    assert [what for what, _lines in failures(report)] == ["result", "golden"]


def test_secrets_are_masked_in_what_is_written_and_compared():
    text = step("{token: hunter2-is-secret, said: 'it is hunter2-is-secret'}")
    report = report_of(text, {}, update=True)
    assert report.steps[0].golden.value == {"token": "***", "said": "it is ***"}
    assert report_of(text, golden(report.steps[0].golden.value)).passed
    assert "hunter2" not in str(report_of(text, golden({"token": "x"})))


def test_each_run_of_a_matrix_has_a_file_of_its_own():
    text = dedent(
        """
        scenario: s
        matrix: {city: [Oslo, Paris]}
        repeat: 2
        steps: [{call: echo, args: {city: "{{ matrix.city }}", run: "{{ run }}"}, expect: {golden: "g/{{ matrix.city }}-{{ run }}.json"}}]
        """
    )
    files = {"g/Oslo-1.json": '{"city": "Oslo", "run": 1}', "g/Oslo-2.json": "[]", "g/Paris-1.json": "{"}
    found = loaded(ECHO + text, files)
    assert [(problem.code, problem.pointer) for problem in found.problems] == [
        ("invalid_golden", "/steps/0/expect/golden")
    ]
    runtime = loaded_runtime(found, executors=MOCKS)
    reports = [asyncio.run(run_scenario(runtime, run)) for run in runs_of(runtime.scenarios[0])]
    assert [report.passed for report in reports] == [True, False, False, False]
    assert "missing golden file `g/Paris-2.json`" in str(reports[3])


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ("golden: ../outside.json", ("file_unreadable", "/steps/0/expect/golden")),
        ("golden: '{{ matrix.city }}.json'", ("unknown_name", "/steps/0/expect/golden")),
        ("golden: '{{ now }}.json'", ("unknown_name", "/steps/0/expect/golden")),
        ("golden: '{{ run }}'", ("expression_failed", "/steps/0/expect/golden")),
        ("golden: ' '", ("expression_failed", "/steps/0/expect/golden")),
        ("golden: ''", ("wrong_value", "/steps/0/expect/golden")),
        ("golden: a.json, outcome: tool_error", ("contradiction", "/steps/0/expect/golden")),
        ("golden: a.json, error: {code: x}", ("contradiction", "/steps/0/expect/error")),
    ],
)
def test_what_is_written_wrong_is_told_with_its_place(expect, problem):
    assert problems_of(ECHO + step("{}", expect), {}) == [problem]


def test_a_name_that_can_not_be_worked_out_in_a_run_is_a_failure():
    text = "scenario: s\nsteps: [{call: echo, expect: {golden: \"{{ ['a', ' '][run - 1] }}\"}}]\n"
    found = loaded(ECHO + text, {})
    runtime = loaded_runtime(found, executors=MOCKS)
    _first, second = runs_of(runtime.scenarios[0], repeat=2)
    ((what, lines),) = failures(asyncio.run(run_scenario(runtime, second)))
    assert (what, lines) == ("golden", ("the name of a golden file must be non-empty text",))


def test_a_file_that_became_unreadable_is_a_failure(tmp_path):
    files = DiskFiles(tmp_path, tmp_path)
    (tmp_path / "goldens").mkdir()
    found = loaded(ECHO + step("{a: 1}"))
    runtime = loaded_runtime(found, executors=MOCKS)
    scenario = runtime.scenarios[0]
    scenario = replace(scenario, origin=scenario.origin._replace(files=files))
    (tmp_path / "goldens" / "a.json").symlink_to("/etc/hostname")
    ((what, lines),) = failures(asyncio.run(run_scenario(runtime, scenario)))
    assert what == "golden"
    assert lines[0].startswith("cannot read the golden file: `goldens/a.json` is outside")


def test_only_files_in_the_folder_of_a_scenario_are_written(tmp_path):
    (tmp_path / "pack" / "scenarios").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pack" / "linked").symlink_to(tmp_path / "elsewhere")
    files = DiskFiles(tmp_path / "pack" / "scenarios", tmp_path / "pack")
    assert golden_path(files, "new/a.json") == tmp_path / "pack" / "scenarios" / "new" / "a.json"
    assert golden_path(files, "../a.json") == tmp_path / "pack" / "a.json"
    for name in ("../../a.json", str(tmp_path / "a.json"), "../linked/a.json"):
        with pytest.raises(PermissionError, match="is outside"):
            golden_path(files, name)
    for elsewhere in (None, MemoryFiles({})):
        with pytest.raises(PermissionError, match="is not in a folder"):
            golden_path(elsewhere, "a.json")


JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aé\n"\\\u2028𝄞'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab{$", max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSONS)
def test_what_is_written_is_what_was_answered(value):
    text = golden_text(value)
    assert json.loads(text) == value
    assert text.endswith("\n")
    found = loaded(ECHO + step("{}"), golden(text))
    assert found.problems == ()
