"""`toolcrib replay`: what it prints, and how it ends."""

from __future__ import annotations

import json

import pytest

TOOLS = """
name: greet
input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
mock: {result: {text: "Hello {{ args.name }}"}}
---
name: complain
input_schema: {type: object}
mock: {error: "Error: too early"}
"""


def recorded(name, *calls, rows=None):
    """A line of a recording; a call is `(tool, arguments, result)`."""
    told = [dict(zip(("tool", "arguments", "result"), call, strict=True)) for call in calls]
    return json.dumps({"task": name, "calls": told, "changed_rows": rows or {}}) + "\n"


ANN = ("greet", {"name": "Ann"}, '{"text": "Hello Ann"}')
EARLY = ("complain", {}, "Error: too early")
LATE = ("complain", {}, "Error: too late")


@pytest.fixture
def replay(write, toolcrib):
    """Replay these lines against the tools of this module."""

    def run(*lines, options=()):
        write({"desk/tools.yaml": TOOLS, "day.jsonl": "".join(lines)})
        return toolcrib("replay", "desk", "--tasks", "day.jsonl", *options)

    return run


def test_everything_as_recorded(replay):
    run = replay(recorded("one", ANN, EARLY), recorded("two", ANN))
    assert run.stdout == "3 of 3 results as recorded; changed rows equal in 2 of 2 tasks\n"
    assert (run.stderr, run.exit_code) == ("", 0)


def test_what_deviates_is_told_with_its_place(replay):
    run = replay(recorded("one", ANN), recorded("two", ANN, LATE, rows={"guests": {"ann": {"here": True}}}))
    assert run.stdout.splitlines() == [
        "task two (line 2)",
        "  call 2: complain {}",
        '    expected "Error: too late", got "Error: too early"',
        "  changed rows",
        '    /guests/ann: expected {"here": true}, got nothing',
        "",
        "2 of 3 results as recorded; changed rows equal in 1 of 2 tasks",
    ]
    assert run.exit_code == 1


def test_lines_that_can_not_be_replayed_stop_no_other(replay):
    run = replay("nonsense\n", recorded("one", ANN), recorded("two", ("greed", {}, "")), '{"task": "x"}\n')
    assert run.stdout.splitlines() == [
        "3 lines of the recording could not be replayed",
        "1 of 1 results as recorded; changed rows equal in 1 of 1 tasks",
    ]
    told = [line.split(": ")[:2] for line in run.stderr.splitlines() if line.startswith("day.jsonl")]
    assert told == [
        ["day.jsonl:1:1", "invalid_json"],
        ["day.jsonl:3:1", "unknown_tool"],
        ["day.jsonl:4:1", "missing_key"],
        ["day.jsonl:4:1", "missing_key"],
    ]
    assert "did you mean `greet`?" in run.stderr
    assert run.exit_code == 1


def test_one_task_alone(replay):
    lines = (recorded("one", ANN), recorded("two", LATE), recorded("three", ANN, EARLY))
    run = replay(*lines, options=("--task", "one", "--task", "three"))
    assert run.stdout == "3 of 3 results as recorded; changed rows equal in 2 of 2 tasks\n"
    assert run.exit_code == 0


def test_a_task_that_is_not_there(replay):
    run = replay(recorded("morning", ANN), options=("--task", "mornin"))
    assert run.exit_code == 2
    assert "unknown task `mornin`; did you mean `morning`?" in run.stderr


def test_stopping_at_the_first(replay):
    run = replay(*(recorded(name, LATE) for name in "abc"), options=("--fail-fast",))
    assert run.stdout.splitlines()[-2:] == [
        "2 later tasks did not run",
        "0 of 1 results as recorded; changed rows equal in 1 of 1 tasks",
    ]
    assert run.exit_code == 1


def test_nothing_to_replay(replay):
    run = replay("\n")
    assert run.stdout == "0 of 0 results as recorded; changed rows equal in 0 of 0 tasks\n"
    assert run.exit_code == 3


def test_as_json(replay):
    run = replay(recorded("one", LATE), "nonsense\n", options=("--json",))
    document = json.loads(run.stdout)
    assert (document["as_recorded"], document["calls"], document["results"]) == (False, 1, 0)
    assert document["deviations"][0]["deviations"][0]["differences"] == [
        {"pointer": "", "expected": '"Error: too late"', "got": '"Error: too early"', "hint": ""}
    ]
    assert [(problem["code"], problem["line"]) for problem in document["problems"]] == [("invalid_json", 2)]
    assert run.exit_code == 1


def test_a_broken_descriptor_is_told_and_fails_the_replay(write, toolcrib):
    write(
        {
            "desk/tools.yaml": TOOLS,
            "desk/bad.tool.yaml": "name: bad\nmock: {reslt: 1}\n",
            "day.jsonl": recorded("one", ANN),
        }
    )
    run = toolcrib("replay", "desk", "--tasks", "day.jsonl")
    assert "unknown_key" in run.stderr
    assert run.stdout.splitlines()[-1] == "1 of 1 results as recorded; changed rows equal in 1 of 1 tasks"
    assert run.exit_code == 1


def test_from_the_standard_input(write, toolcrib):
    write({"desk/tools.yaml": TOOLS})
    run = toolcrib("replay", "desk", "--tasks", "-", given=recorded("one", ANN))
    assert run.exit_code == 0


def test_a_recording_can_not_steer_a_terminal(replay):
    run = replay(recorded("\x1b[2J", ("complain", {"\x1b": 1}, "\x1b[31m")))
    assert "\x1b" not in run.stdout
    assert run.exit_code == 1
