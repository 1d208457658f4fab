"""Recorded tasks: how a recording is read, and what is compared."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_memory import MOCKS, runtime_of
from toolcrib import Executors, Problem, Result, Runtime
from toolcrib.scenarios.recorded_tasks import RecordedCall, RecordedTask, check_task, parse_tasks, replay
from toolcrib.testing import FunctionExecutor

TOOLS = """
name: locate_ship
input_schema: {type: object, properties: {ship: {type: string}}, required: [ship]}
mock:
  rules:
    - when: {args: {ship: Vega}}
      reply: {result: {ship: Vega, at: {lat: 59.5, lon: 10}, ports: [Oslo, Turku]}}
    - reply: {error: "Error: {{ args.ship }} is not at sea"}
---
name: log_line
input_schema: {type: object}
mock: {result: "4.0"}
---
name: knots
input_schema: {type: object}
mock: {result: 4}
---
name: fog
input_schema: {type: object}
mock: {result: null}
---
name: signal
input_schema: {type: object}
mock: {content: [{type: text, text: "dot"}, {type: text, text: "dash"}]}
---
name: turn
input_schema: {type: object}
mock: {result: "{{ call }}"}
"""

AT_SEA = {"ship": "Vega", "at": {"lat": 59.5, "lon": 10}, "ports": ["Oslo", "Turku"]}


def task(*calls, name="watch", rows=None):
    """A task of calls, each `(tool, arguments, result)`."""
    return RecordedTask(name, tuple(RecordedCall(*call) for call in calls), rows or {}, line=1)


def line(*calls, name="watch", **more):
    """The same as a line of a file."""
    recorded = [dict(zip(("tool", "arguments", "result"), call, strict=True)) for call in calls]
    return json.dumps({"task": name, "calls": recorded, "changed_rows": {}, **more}).encode()


async def replayed(*tasks, **options):
    """The report of tasks over the tools of this module."""
    async with runtime_of(TOOLS) as runtime:
        return await replay(runtime, tasks, **options)


async def told(tool, arguments, result):
    """What is told of one call: `(pointer, expected, got)` of each difference."""
    report = await replayed(task((tool, arguments, result)))
    return [
        (difference.pointer, difference.expected, difference.actual)
        for deviation in report.tasks[0].deviations
        for difference in deviation.differences
    ]


async def test_answers_as_recorded():
    report = await replayed(
        task(
            ("locate_ship", {"ship": "Vega"}, json.dumps(AT_SEA)),
            ("locate_ship", {"ship": "Argo"}, "Error: Argo is not at sea"),
            ("log_line", {}, "4.0"),
            ("knots", {}, "4"),
            ("fog", {}, "null"),
            ("signal", {}, "dot\ndash"),
        )
    )
    assert report.as_recorded
    assert str(report) == "6 of 6 results as recorded; changed rows equal in 1 of 1 tasks"


@pytest.mark.parametrize(
    ("tool", "recorded"),
    [
        ("knots", "4.0"),  # numbers by value
        ("log_line", '"4.0"'),  # a text as JSON
        (
            "locate_ship",
            json.dumps(dict(reversed(AT_SEA.items())), indent=2),
        ),  # keys in any order, any blanks
    ],
)
async def test_values_are_compared_as_json(tool, recorded):
    assert await told(tool, {"ship": "Vega"}, recorded) == []


async def test_a_text_is_compared_exactly():
    assert await told("log_line", {}, "4.00") == [("", '"4.00"', '"4.0"')]
    assert await told("log_line", {}, "4") == [("", '"4"', '"4.0"')]
    assert await told("locate_ship", {"ship": "Argo"}, "Error: argo is not at sea") != []
    assert await told("fog", {}, "") == [("", '""', "null")]


async def test_differences_are_told_leaf_by_leaf():
    wanted = {**AT_SEA, "at": {"lat": 60, "lon": 10}, "ports": ["Oslo", "Riga"], "crew": 12}
    assert await told("locate_ship", {"ship": "Vega"}, json.dumps(wanted)) == [
        ("/at/lat", "60", "59.5"),
        ("/ports/1", '"Riga"', '"Turku"'),
        ("/crew", "12", "nothing"),
    ]


async def test_many_differences_are_counted():
    wanted = {f"key_{number}": number for number in range(9)}
    report = await replayed(task(("locate_ship", {"ship": "Vega"}, json.dumps(wanted))))
    (deviation,) = report.tasks[0].deviations
    assert len(deviation.differences) == 5
    assert deviation.untold == 9 + len(AT_SEA) - 5
    assert str(deviation).endswith(f"... and {deviation.untold} more")


async def test_an_answer_in_place_of_an_error_and_the_reverse():
    assert await told("locate_ship", {"ship": "Vega"}, "Error: Vega is not at sea") == [
        ("", '"Error: Vega is not at sea"', json.dumps(AT_SEA)),
    ]
    assert await told("locate_ship", {"ship": "Argo"}, '{"ship": "Argo"}') == [
        ("", '{"ship": "Argo"}', '"Error: Argo is not at sea"'),
    ]


async def test_a_call_that_ends_in_another_way_is_never_as_recorded():
    ((pointer, expected, got),) = await told("locate_ship", {}, "invalid arguments for `locate_ship`")
    assert (pointer, expected) == ("", '"invalid arguments for `locate_ship`"')
    assert got.startswith("invalid_arguments: ")
    assert "ship" in got


async def test_every_task_has_a_session_of_its_own():
    report = await replayed(
        task(("turn", {}, "1"), ("turn", {}, "2"), name="first"), task(("turn", {}, "1"), name="second")
    )
    assert report.as_recorded


async def test_after_a_deviation_the_task_goes_on():
    report = await replayed(task(("turn", {}, "7"), ("turn", {}, "2"), ("turn", {}, "8")))
    assert [deviation.call for deviation in report.tasks[0].deviations] == [1, 3]
    assert str(report) == "1 of 3 results as recorded; changed rows equal in 1 of 1 tasks"


async def test_fail_fast_ends_with_the_first_task_that_deviates():
    tasks = [task(("turn", {}, text), name=text) for text in ("1", "2", "3")]
    report = await replayed(*tasks, fail_fast=True)
    assert [each.task.name for each in report.tasks] == ["1", "2"]


async def test_rows_that_were_to_change_and_did_not():
    report = await replayed(task(rows={"ships": {"vega": {"at": "Oslo"}}}), task(rows={"ships": {}}))
    (deviation,) = report.tasks[0].deviations
    assert (deviation.call, deviation.tool, deviation.arguments) == (0, "", None)
    assert [str(each) for each in deviation.differences] == [
        '/ships/vega: expected {"at": "Oslo"}, got nothing'
    ]
    assert report.tasks[1].as_recorded
    assert str(report) == "0 of 0 results as recorded; changed rows equal in 1 of 2 tasks"


YARD = """
name: yard
version: "1.0.0"
tools: [yard.yaml]
store:
  ships: {key: id, rows: [{id: vega, berth: 1}, {id: argo, berth: 2}]}
"""

YARD_TOOLS = """
name: move
input_schema: {type: object, properties: {id: {type: string}, berth: {type: integer}}, required: [id, berth]}
mock: {crud: {update: ships, key: "{{ args.id }}", missing: no such ship, set: {berth: "{{ args.berth }}"}}}
---
name: scrap
input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
mock:
  rows: {ship: {in: ships, key: "{{ args.id }}", missing: no such ship}}
  effects: [{delete: ship}]
  result: gone
---
name: launch
input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
mock:
  effects: [{insert: ships, key: "{{ args.id }}", value: {id: "{{ args.id }}", berth: 9}}]
  result: afloat
"""


@pytest.fixture
def yard(tmp_path):
    """A runtime whose tools change rows."""
    (tmp_path / "pack.yaml").write_text(YARD, encoding="utf-8")
    (tmp_path / "yard.yaml").write_text(YARD_TOOLS, encoding="utf-8")
    return Runtime.open(tmp_path, index=False, strict=True)


MOVE = ("move", {"id": "vega", "berth": 3}, '{"id": "vega", "berth": 3}')
BACK = ("move", {"id": "vega", "berth": 1}, '{"id": "vega", "berth": 1}')
SCRAP = ("scrap", {"id": "argo"}, "gone")
LAUNCH = ("launch", {"id": "lyra"}, "afloat")


async def test_rows_that_were_changed_inserted_and_deleted(yard):
    rows = {"ships": {"vega": {"id": "vega", "berth": 3.0}, "argo": None, "lyra": {"berth": 9, "id": "lyra"}}}
    async with yard:
        report = await replay(
            yard, [task(MOVE, SCRAP, LAUNCH, rows=rows), task(MOVE, BACK), task(SCRAP, SCRAP)]
        )
    assert [each.as_recorded for each in report.tasks] == [True, True, False]  # each began with a fresh store
    assert str(report.tasks[2].deviations[0]).splitlines()[1:] == ['  expected "gone", got "no such ship"']


async def test_rows_that_differ_are_told_with_their_pointers(yard):
    rows = {"ships": {"vega": {"id": "vega", "berth": 4}, "lyra": {"id": "lyra", "berth": 9}}}
    async with yard:
        report = await replay(yard, [task(MOVE, SCRAP, rows=rows)])
    (deviation,) = report.tasks[0].deviations
    assert [str(each) for each in deviation.differences] == [
        "/ships/vega/berth: expected 4, got 3",
        '/ships/lyra: expected {"id": "lyra", "berth": 9}, got nothing',
        "/ships/argo: expected nothing, got null",
    ]


async def test_no_secret_is_told():
    tools = """
        name: log_in
        input_schema: {type: object, properties: {pin: {type: string, x-secret: true}}}
        mock: {result: {said: "{{ args.pin }}", token: "{{ call }}-of-the-day"}}
    """
    async with runtime_of(tools) as runtime:
        report = await replay(
            runtime,
            [task(("log_in", {"pin": "48151623"}, '{"said": "none", "token": "another"}'))],
        )
    text = str(report.tasks[0]) + json.dumps(report.as_json())
    assert "48151623" not in text
    assert "of-the-day" not in text
    assert "another" not in text
    assert "/said" in text


async def test_a_deviation_that_only_a_secret_shows():
    tools = "name: log_in\ninput_schema: {}\nmock: {result: {token: of-the-day}}\n"
    async with runtime_of(tools) as runtime:
        report = await replay(runtime, [task(("log_in", {}, '{"token": "of-the-night"}'))])
    assert "another secret" in str(report.tasks[0])
    assert "of-the-" not in str(report.tasks[0])


async def test_the_report_as_json():
    report = await replayed(task(("knots", {}, "5"), ("knots", {}, "4"), name="watch"), task(name="rest"))
    assert report.as_json() == {
        "as_recorded": False,
        "calls": 2,
        "results": 1,
        "tasks": 2,
        "rows_equal": 2,
        "deviations": [
            {
                "task": "watch",
                "line": 1,
                "deviations": [
                    {
                        "call": 1,
                        "tool": "knots",
                        "arguments": {},
                        "differences": [{"pointer": "", "expected": "5", "got": "4", "hint": ""}],
                        "untold": 0,
                    }
                ],
            }
        ],
    }


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
)
def test_a_tool_that_says_what_it_was_told_is_as_recorded(value):
    tools = "name: echo\ninput_schema: {type: object}\nmock: {result: '{{ args.value }}'}\n"
    recorded = task(("echo", {"value": value}, json.dumps(value)))
    assert asyncio.run(replay(runtime_of(tools), [recorded])).as_recorded


def test_a_recording_is_read_line_by_line():
    lines = [
        line(("turn", {}, "1"), name="one"),
        b"\n",
        line(name="two", changed_rows={"ships": {"1": None}}),
    ]
    tasks, problems = parse_tasks("day.jsonl", lines)
    assert problems == []
    assert tasks == [
        RecordedTask("one", (RecordedCall("turn", {}, "1"),), {}, line=1),
        RecordedTask("two", (), {"ships": {"1": None}}, line=3),
    ]


def test_all_that_is_wrong_is_told_at_once_and_good_lines_are_kept():
    lines = [
        line(name="good"),
        b"{nothing}",
        b'{"task": "a", "calls": [{"tool": "turn", "args": {}, "result": 3}]}',
        b"[]",
        line(name="", changed_rows=[]),
        b'{"task": "twice", "task": "twice", "calls": [], "changed_rows": {}}',
        line(name="also good"),
    ]
    tasks, problems = parse_tasks("day.jsonl", lines)
    assert [each.name for each in tasks] == ["good", "also good"]
    assert {(problem.line, problem.code, problem.pointer) for problem in problems} == {
        (2, "invalid_json", ""),
        (3, "missing_key", "/changed_rows"),
        (3, "unknown_key", "/calls/0/args"),
        (3, "missing_key", "/calls/0/arguments"),
        (3, "wrong_type", "/calls/0/result"),
        (4, "wrong_type", ""),
        (5, "wrong_value", "/task"),
        (5, "wrong_type", "/changed_rows"),
        (6, "duplicate_key", "/task"),
    }
    assert all(problem.source == "day.jsonl" for problem in problems)
    assert "did you mean `arguments`?" in str(next(each for each in problems if each.code == "unknown_key"))


def test_a_tool_that_does_not_exist_is_told_with_its_near_miss():
    recorded = task(("turn", {}, "1"), ("tern", {}, "1"))
    problems = check_task("day.jsonl", recorded, runtime_of(TOOLS))
    assert problems == [
        Problem(
            code="unknown_tool",
            message="unknown tool `tern`",
            pointer="/calls/1/tool",
            hint="did you mean `turn`?",
            source="day.jsonl",
            line=1,
            column=1,
        )
    ]


def test_a_tool_that_reaches_out_is_not_replayed():
    async def answer(_call):
        return Result.success("sent")

    class Reaching(FunctionExecutor):
        world = None

    executors = Executors({"mock": MOCKS.get("mock").__class__, "radio": lambda: Reaching(answer)})
    runtime = runtime_of("name: send\ninput_schema: {}\nradio: {}\n", executors=executors)
    (problem,) = check_task("day.jsonl", task(("send", {}, "sent")), runtime)
    assert (problem.code, problem.pointer, problem.line) == ("reaches_out", "/calls/0/tool", 1)
    assert "`send` is in mode `radio`" in problem.message
