"""The key `limits` of descriptors: what it says, and what of it is refused."""

from __future__ import annotations

import pytest

from in_memory import loaded, problems_of, runtime_of
from toolcrib.core.model import Backoff, Bounds, Breaker, Limits, Rate


def limits(text: str) -> Limits:
    return runtime_of(f"name: t\nmock: {{result: 1}}\nlimits: {text}\n").registry["t"].limits


def test_without_a_word_the_limits_are_the_built_in_ones():
    assert runtime_of("name: t\nmock: {result: 1}\n").registry["t"].limits == Limits()
    assert limits("{}") == Limits()


SAID = [
    ("{rate: 60/1m}", {"rate": Rate(60, 60.0)}),
    ("{rate: 5/250ms}", {"rate": Rate(5, 0.25)}),
    ("{concurrency: 4}", {"concurrency": 4}),
    ("{queue: 0}", {"queue": 0}),
    ("{attempts: 1}", {"attempts": 1}),
    ("{backoff: {first: 1s}}", {"backoff": Backoff(1.0)}),
    ("{backoff: {first: 1s, longest: 1m}}", {"backoff": Backoff(1.0, 60.0)}),
    ("{retry_budget: 12.5%}", {"retry_budget": 0.125}),
    ("{retry_budget: 0%}", {"retry_budget": 0.0}),
    ("{retry_budget: 100%}", {"retry_budget": 1.0}),
    ("{breaker: off}", {"breaker": None}),
    ("{breaker: {failures: 2, open_for: 1m}}", {"breaker": Breaker(2, 30.0, 60.0)}),
    ("{cache: 0}", {"cache": 0}),
    ("{input_size: 64KiB}", {"input_size": 65_536}),
    ("{output_size: 500}", {"output_size": 500}),
    ("{output_items: 0}", {"output_items": 0}),
    ("{origin: {concurrency: 20}}", {"origin": Bounds(None, 20)}),
    (
        "{origin: {rate: 600/1m, concurrency: 20, queue: 100}}",
        {"origin": Bounds(Rate(600, 60.0), 20, 100)},
    ),
]


@pytest.mark.parametrize(("text", "fields"), SAID)
def test_a_key_says_one_thing_and_leaves_the_others(text, fields):
    assert limits(text) == Limits()._replace(**fields)


WRONG = [
    ("{rate: 60}", "/limits/rate", "wrong_form"),
    ("{rate: 0/1m}", "/limits/rate", "wrong_form"),
    ("{rate: 60/m}", "/limits/rate", "wrong_form"),
    ("{rate: 60/0s}", "/limits/rate", "out_of_range"),
    ("{concurrency: 0}", "/limits/concurrency", "wrong_value"),
    ("{queue: -1}", "/limits/queue", "wrong_value"),
    ("{attempts: 0}", "/limits/attempts", "wrong_value"),
    ("{input_size: 0}", "/limits/input_size", "wrong_value"),
    ("{output_size: much}", "/limits/output_size", "wrong_form"),
    ("{output_items: -1}", "/limits/output_items", "wrong_value"),
    ("{attempts: 11}", "/limits/attempts", "wrong_value"),
    ("{attempts: many}", "/limits/attempts", "wrong_type"),
    ("{backoff: {first: 20s}}", "/limits/backoff", "out_of_range"),
    ("{backoff: {longest: 100ms}}", "/limits/backoff", "out_of_range"),
    ("{backoff: {firts: 1s}}", "/limits/backoff/firts", "unknown_key"),
    ("{retry_budget: 101%}", "/limits/retry_budget", "wrong_form"),
    ("{retry_budget: 0.2}", "/limits/retry_budget", "wrong_form"),
    ("{breaker: never}", "/limits/breaker", "not_allowed"),
    ("{breaker: {failures: 0}}", "/limits/breaker/failures", "wrong_value"),
    ("{breaker: {within: 0s}}", "/limits/breaker/within", "out_of_range"),
    ("{breaker: {open_for: 0ms}}", "/limits/breaker/open_for", "out_of_range"),
    ("{cache: -1}", "/limits/cache", "wrong_value"),
    ("{origin: {rate: 1/0m}}", "/limits/origin/rate", "out_of_range"),
    ("{origin: {attempts: 1}}", "/limits/origin/attempts", "unknown_key"),
    ("{burst: 3}", "/limits/burst", "unknown_key"),
]


@pytest.mark.parametrize(("text", "pointer", "code"), WRONG)
def test_what_is_wrong_is_told_with_its_place(text, pointer, code):
    assert problems_of(f"name: t\ndescription: No block.\nlimits: {text}\n") == [(code, pointer)]


def test_limits_of_a_tool_that_only_mocks_are_for_the_faults_of_scenarios():
    assert loaded("name: t\nlimits: {rate: 1/1s, cache: 3}\nmock: {result: 1}\n").problems == ()


def test_what_is_written_below_limits_is_known_by_name():
    text = "name: t\nmock: {result: 1}\nlimits: {rate: 1/1s, breaker: {failures: 2}}\n"
    written = runtime_of(text).registry["t"].origin.written
    assert {key for key in written if key.startswith("limits")} == {
        "limits",
        "limits.rate",
        "limits.breaker.failures",
    }
