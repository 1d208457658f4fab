"""Layer `cache`: answers that are given again, asked about, or forgotten."""

from __future__ import annotations

import asyncio

import pytest

from reaching import Script, failed, reaching
from toolcrib import CallFinished, Result, VirtualClock
from toolcrib.core.model import Content, StaleAnswer
from toolcrib.engine.middleware import cache

READS = "annotations: {read_only: true}\n"


def fresh(value=1, lifetime=60.0, age=0.0, **validators):
    validators = {name.replace("_", "-"): tag for name, tag in validators.items()}
    return Result.success(value).with_meta(
        freshness={"lifetime": lifetime, "age": age, "validators": validators}, served="x"
    )


class Held:
    """A session on a virtual clock."""

    def __init__(self, script, more=READS, **options):
        self.clock = VirtualClock()
        self.runtime = reaching(script, more, clock=self.clock, **options)

    def calls(self, *steps, session=None):
        async def run():
            results = []
            for pause, arguments in steps:
                await self.clock.advance(pause)
                results.append(await (session or self.runtime).call("tool", arguments))
            return results

        return asyncio.run(run())


def test_an_answer_that_holds_is_given_again():
    script = Script(fresh({"a": 1}))
    first, second = Held(script).calls((0, {"x": 1}), (59.5, {"x": 1}))
    assert len(script.calls) == 1
    assert (first.value, first.meta, first.usage.attempts) == ({"a": 1}, {"served": "x"}, 1)
    assert (second.value, second.usage.attempts) == ({"a": 1}, 0)
    assert second.meta == {"served": "x", "cache": {"age": 59.5}}


def test_it_needs_neither_a_place_nor_a_rate():
    script = Script(fresh())
    held = Held(script, READS + "limits: {rate: 1/1h, queue: 0}\ntimeout: 1s")
    assert [each.outcome.value for each in held.calls((0, {}), (0, {}), (0, {"x": 1}))] == [
        "ok",
        "ok",
        "limit_exceeded",
    ]


def test_when_its_time_is_over_it_is_asked_for_again():
    script = Script(fresh(1), fresh(2))
    assert [each.value for each in Held(script).calls((0, {}), (60, {}))] == [1, 2]
    assert script.calls[1].kept is not None


def test_the_age_with_which_it_came_counts():
    script = Script(fresh(age=50.0))
    results = Held(script).calls((0, {}), (9, {}), (1, {}))
    assert [each.meta.get("cache") for each in results] == [None, {"age": 59.0}, None]


def test_other_arguments_are_another_answer():
    script = Script(fresh())
    Held(script).calls((0, {"x": 1}), (0, {"x": 2}), (0, {"x": 1, "y": None}))
    assert len(script.calls) == 3


def test_the_order_of_arguments_makes_no_difference():
    script = Script(fresh())
    Held(script).calls((0, {"x": 1, "y": 2}), (0, {"y": 2, "x": 1}))
    assert len(script.calls) == 1


def test_sessions_share_nothing():
    script = Script(fresh())
    held = Held(script)
    held.calls((0, {}))
    held.calls((0, {}), session=held.runtime.session(clock=held.clock))
    assert len(script.calls) == 2


def test_users_share_nothing():
    script = Script(fresh())
    held = Held(script)
    session = held.runtime.session(clock=held.clock, user="ada")
    held.calls((0, {}), session=session)
    session._context = session._context._replace(user="bob")
    held.calls((0, {}), session=session)
    assert len(script.calls) == 2


def test_what_a_caller_does_with_an_answer_changes_nothing():
    async def answer(_call):
        value = {"list": [1]}
        answer.given.append(value)
        return fresh(value)

    answer.given = []
    held = Held(answer)
    (first,) = held.calls((0, {}))
    first.value["list"].append(2)
    (second,) = held.calls((0, {}))
    second.value["list"].clear()
    (third,) = held.calls((0, {}))
    assert third.value == {"list": [1]}
    assert len(answer.given) == 1


def test_content_is_kept_too():
    parts = (Content("image", data="AAAA", mime_type="image/png"),)
    script = Script(fresh(None)._replace(content=parts))
    _first, second = Held(script).calls((0, {}), (0, {}))
    assert second.content == parts


# Asking again


def test_a_stale_answer_goes_along_with_what_asks_about_it():
    script = Script(fresh(1, 10.0, If_None_Match='"a"'), fresh(2))
    first, second = Held(script).calls((0, {}), (10, {}))
    assert script.calls[1].kept == StaleAnswer(
        first._replace(usage=Result.success().usage, tool=""), {"If-None-Match": '"a"'}
    )
    assert second.value == 2
    assert "cache" not in second.meta


def still(lifetime=None, **validators):
    """A tool whose origin says that the kept answer still holds."""

    async def answer(call):
        answer.calls.append(call)
        if call.kept is None:
            return fresh({"n": 1}, 10.0, If_None_Match='"a"')
        meta = fresh(lifetime=lifetime, If_None_Match='"a"').meta
        return call.kept.result._replace(meta=meta)

    answer.calls = []
    return answer


def test_an_answer_that_still_holds_is_kept_on_as_long_as_before():
    answer = still()
    results = Held(answer).calls((0, {}), (10, {}), (9, {}), (1, {}))
    assert [each.value for each in results] == [{"n": 1}] * 4
    assert len(answer.calls) == 3


def test_an_answer_that_still_holds_may_get_another_lifetime():
    answer = still(lifetime=100.0)
    Held(answer).calls((0, {}), (10, {}), (99, {}), (1, {}))
    assert len(answer.calls) == 3


def test_a_lifetime_as_before_of_nothing_that_was_there_is_none():
    answer = Script(fresh(1, None, If_None_Match='"a"'))
    Held(answer).calls((0, {}), (0, {}))
    assert len(answer.calls) == 2


def test_an_answer_without_a_lifetime_is_asked_about_each_time():
    script = Script(fresh(1, 0.0, If_Modified_Since="Sat, 01 Jan 2030 00:00:00 GMT"))
    Held(script).calls((0, {}), (0, {}))
    assert script.calls[1].kept.validators == {"If-Modified-Since": "Sat, 01 Jan 2030 00:00:00 GMT"}


def test_without_anything_to_ask_with_it_is_not_even_kept():
    script = Script(fresh(1, 0.0), fresh(2, 5.0, 5.0))
    Held(script).calls((0, {}), (0, {}), (0, {}))
    assert [call.kept for call in script.calls] == [None, None, None]


def test_a_failure_is_not_kept_and_leaves_what_is():
    script = Script(fresh(1, 10.0, If_None_Match='"a"'), failed(404, retryable=False), fresh(3))
    results = Held(script).calls((0, {}), (10, {}), (0, {}))
    assert [each.outcome.value for each in results] == ["ok", "tool_error", "ok"]
    assert script.calls[2].kept.validators == {"If-None-Match": '"a"'}


def test_a_failure_that_says_how_long_it_holds_is_not_kept_either():
    script = Script(failed(404, retryable=False)._replace(meta=fresh().meta))
    first, _second = Held(script).calls((0, {}), (0, {}))
    assert (first.meta, len(script.calls)) == ({"served": "x"}, 2)


def test_an_answer_that_must_not_be_kept_drives_out_the_one_before():
    script = Script(fresh(1, 10.0, If_None_Match='"a"'), Result.success(2), fresh(3))
    Held(script).calls((0, {}), (10, {}), (0, {}))
    assert [call.kept is not None for call in script.calls] == [False, True, False]


# What is not kept, and when it is forgotten


@pytest.mark.parametrize("more", ["", READS + "limits: {cache: 0}"])
def test_only_what_reads_is_kept_and_only_if_wanted(more):
    script = Script(fresh())
    Held(script, more).calls((0, {}), (0, {}))
    assert len(script.calls) == 2


def test_what_was_used_longest_ago_goes_first():
    script = Script(fresh())
    held = Held(script, READS + "limits: {cache: 2}")
    held.calls((0, {"x": 1}), (0, {"x": 2}), (0, {"x": 1}), (0, {"x": 3}))
    assert len(script.calls) == 3
    held.calls((0, {"x": 1}), (0, {"x": 3}))
    assert len(script.calls) == 3
    held.calls((0, {"x": 2}))
    assert len(script.calls) == 4


def test_large_answers_drive_out_others_and_very_large_ones_are_not_kept():
    part = cache.MOST_BYTES // 9
    answers = cache.AnswerCache()
    packed = cache.CachedAnswer(b"x" * part, 1.0, 0.0, 0.0, {})
    for number in range(10):
        answers.put(("", str(number)), packed, 1000)
    kept = [number for number in range(10) if answers.find(("", str(number)))]
    assert kept == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    script = Script(fresh("x" * (cache.MOST_BYTES // 8)))
    Held(script).calls((0, {}), (0, {}))
    assert len(script.calls) == 2


def test_an_answer_that_can_not_be_packed_is_not_kept():
    raw = fresh()._replace(raw_value=object())
    script = Script(raw)
    Held(script).calls((0, {}), (0, {}))
    assert len(script.calls) == 2


def test_what_the_result_check_let_pass_is_told_again():
    script = Script(fresh("no integer"))
    more = READS + "output_schema: {type: integer}\non_invalid_result: warn\n"
    first, second = Held(script, more).calls((0, {}), (0, {}))
    assert len(script.calls) == 1
    assert first.meta["warnings"] == second.meta["warnings"]
    assert (first.raw_value, second.raw_value) == ("no integer", "no integer")


def test_another_binding_begins_without_answers():
    script = Script(fresh())
    held = Held(script)
    held.calls((0, {}))
    held.runtime._engine._table.chains.clear()
    held.calls((0, {}), (0, {}))
    assert len(script.calls) == 2


def test_observers_are_told_that_nothing_was_tried():
    seen = []

    def observer(event):
        if isinstance(event, CallFinished):
            seen.append(event.result.usage.attempts)

    results = Held(Script(fresh()), observer=observer).calls((0, {}), (0, {}))
    assert seen == [1, 0]
    assert [each.usage.attempts for each in results] == [1, 0]
