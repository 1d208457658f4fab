"""Every combination of a matrix is a run of its own, and so is every repetition."""

from __future__ import annotations

import asyncio
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_memory import MOCKS, loaded, problems_of
from toolcrib.core.errors import ConfigurationError
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.loading.scenarios.scenario import combinations
from toolcrib.scenarios import run_scenario, runs_of, select

ECHO = """
name: echo
input_schema: {}
output_schema: {type: object}
mock: {result: {args: "{{ args }}", seed: "{{ seed }}"}}
---
name: grown
output_schema: {type: object, required: [n], properties: {n: {type: integer, minimum: 0, maximum: 1000000}}, additionalProperties: false}
mock: {generate: true}
"""


def scenario_of(text):
    runtime = loaded_runtime(loaded(f"{ECHO}---\n{dedent(text)}"), executors=MOCKS)
    assert [str(each) for each in runtime.problems if each.code != "hidden_character"] == []
    return runtime, runtime.scenarios[0]


def names(text, **options):
    return [run.name for run in runs_of(scenario_of(text)[1], **options)]


def reports(text, **options):
    runtime, scenario = scenario_of(text)
    return [asyncio.run(run_scenario(runtime, run)) for run in runs_of(scenario, **options)]


TRIP = """
scenario: trip
seed: 7
matrix: {city: [Oslo, New York], days: [1, 2]}
steps:
  - call: echo
    args: {city: "{{ matrix.city }}", days: "{{ matrix.days }}", run: "{{ run }}"}
    as: said
    expect: {result: {args: {city: "{{ matrix.city }}", days: "{{ matrix['days'] }}"}}}
verify: {calls: [{tool: echo, args: {days: "{{ matrix.days }}"}}]}
"""


def test_every_combination_is_a_run_that_reads_its_values():
    made = reports(TRIP)
    assert [report.scenario.name for report in made] == [
        "trip[city=Oslo,days=1]",
        "trip[city=Oslo,days=2]",
        "trip[city=New York,days=1]",
        "trip[city=New York,days=2]",
    ]
    assert all(report.passed for report in made)
    assert [report.steps[0].args for report in made] == [
        {"city": city, "days": days, "run": 1} for city in ("Oslo", "New York") for days in (1, 2)
    ]
    assert made[2].as_json()["matrix"] == {"city": "New York", "days": 1}
    assert str(made[0]) == "passed trip[city=Oslo,days=1]"


def test_repetitions_have_the_next_seeds_and_numbers():
    made = reports("scenario: s\nseed: 7\nrepeat: 3\nsteps: [{call: echo, args: {run: '{{ run }}'}}]\n")
    assert [(report.scenario.name, report.seed, report.steps[0].args["run"]) for report in made] == [
        ("s[1/3]", 7, 1),
        ("s[2/3]", 8, 2),
        ("s[3/3]", 9, 3),
    ]
    assert [report.steps[0].result.value["seed"] for report in made] == [7, 8, 9]


def test_a_repetition_that_fails_can_be_had_again_by_its_seed_alone():
    text = "scenario: s\nsteps: [{call: grown}]\n"
    third = reports(text, repeat=3)[2]
    (again,) = reports(text, seed=2)
    assert again.steps[0].result.value == third.steps[0].result.value
    assert reports(text)[0].steps[0].result.value != third.steps[0].result.value


def test_the_command_line_may_ask_for_other_repetitions_and_seeds():
    assert names(TRIP, repeat=2)[:3] == [
        "trip[city=Oslo,days=1][1/2]",
        "trip[city=Oslo,days=1][2/2]",
        "trip[city=Oslo,days=2][1/2]",
    ]
    runs = runs_of(scenario_of("scenario: s\nrepeat: 5\nsteps: [{call: echo}]\n")[1], repeat=2, seed=40)
    assert [(run.name, run.seed) for run in runs] == [("s[1/2]", 40), ("s[2/2]", 41)]


def test_one_run_is_the_scenario_itself():
    scenario = scenario_of("scenario: s\nsteps: [{call: echo}]\n")[1]
    assert runs_of(scenario) == [scenario]
    assert runs_of(scenario)[0] is scenario


def test_words_choose_among_the_names_of_runs():
    runs = runs_of(scenario_of(TRIP)[1])
    assert [run.name for run in select(runs, keyword="city=oslo and not days=2")] == [
        "trip[city=Oslo,days=1]"
    ]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ("[a, b]", ["k=a", "k=b"]),
        ("[1, 2.5, true, null]", ["k=1", "k=2.5", "k=true", "k=null"]),
        ("['1', 1]", ["k=#1", "k=#2"]),
        ("[{id: 1}, [2]]", ['k={"id":1}', "k=[2]"]),
        (f"[{'x' * 41}, '']", ["k=#1", "k=#2"]),
        ('["a\\nb", "\\e[31m"]', ["k=#1", "k=#2"]),
        ("[\"{{ 'a' ~ 'b' }}\", c]", ["k=ab", "k=c"]),
    ],
)
def test_values_are_shown_as_they_are_or_by_their_place(values, labels):
    assert names(f"scenario: s\nmatrix: {{k: {values}}}\nsteps: [{{call: echo}}]\n") == [
        f"s[{label}]" for label in labels
    ]


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=50))


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.lists(SCALARS, min_size=1, max_size=4, unique_by=repr),
        max_size=3,
    )
)
def test_no_two_runs_have_one_name(matrix):
    found = list(combinations(matrix))
    assert len({label for label, _values in found}) == len(found)
    assert all(values.keys() == matrix.keys() for _label, values in found)


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("matrix: {city: [Oslo]}", ("unknown_argument", "/steps/0/args/a")),
        ("repeat: 2", ("unknown_name", "/steps/0/args/a")),
        ("matrix: {cty: []}", ("wrong_value", "/matrix/cty")),
        ("matrix: {cty: [1, 1]}", ("wrong_value", "/matrix/cty")),
        ("matrix: {cty: Oslo}", ("wrong_type", "/matrix/cty")),
        ("matrix: {}", ("unknown_name", "/steps/0/args/a")),
        ("matrix: {c-t: [1], cty: [1]}", ("wrong_value", "/matrix/c-t")),
        ("matrix: {cty: ['{{ seed }}']}", ("unknown_name", "/matrix/cty/0")),
        ("repeat: 0\nmatrix: {cty: [1]}", ("wrong_value", "/repeat")),
        ("repeat: 334\nmatrix: {cty: [1, 2, 3]}", ("too_many_runs", "/matrix")),
        ("matrix: {cty: [1]}\nrepeat: 1001", ("too_many_runs", "/matrix")),
    ],
)
def test_what_is_written_wrong_is_told_with_its_place(head, problem):
    text = f"{ECHO}---\nscenario: s\n{head}\nsteps: [{{call: echo, args: {{a: '{{{{ matrix.cty }}}}'}}}}]\n"
    assert problems_of(text) == [problem]


@pytest.mark.parametrize("name", ["now", "seed", "run", "matrix"])
def test_no_step_may_take_a_name_that_means_something_else(name):
    text = f"{ECHO}---\nscenario: s\nsteps: [{{call: echo, as: {name}}}]\n"
    assert problems_of(text) == [("duplicate_name", "/steps/0/as")]


def test_too_many_runs_asked_for_are_an_error_that_says_how_many():
    with pytest.raises(ConfigurationError, match=r"scenario `trip` .*2,000 runs \(2 x 2, 500 times each\)"):
        names(TRIP, repeat=500)


def test_a_scenario_with_a_matrix_is_run_by_its_runs():
    runtime, scenario = scenario_of(TRIP)
    with pytest.raises(ConfigurationError, match="has a matrix"):
        asyncio.run(run_scenario(runtime, scenario))


def test_too_many_repetitions_are_told_where_they_are_written():
    assert problems_of(f"{ECHO}---\nscenario: s\nrepeat: 1001\nsteps: [{{call: echo}}]\n") == [
        ("too_many_runs", "/repeat")
    ]
