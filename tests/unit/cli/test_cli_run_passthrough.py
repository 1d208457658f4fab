"""`toolcrib run --allow-passthrough`: only then mocks of a scenario hand calls on to another binding."""

from __future__ import annotations

import json

import pytest

from http_servers import answered_by, answering_json
from sampling import sample

PROJECT = """
project: weather
egress: {{allow: ["127.0.0.1:{port}"]}}
"""

TOOL = """
name: forecast
input_schema: {{type: object, required: [city], properties: {{city: {{type: string}}}}}}
mode: mock
mock: {{result: mocked}}
live: {{url: "http://127.0.0.1:{port}/{{{{ args.city }}}}"}}
examples: [{{args: {{city: Oslo}}, result: mocked}}]
"""

SCENARIOS = """
scenario: handed_on
mocks: {forecast: {rules: [{when: {args: {city: Rome}}, reply: {result: hot}}, {reply: {passthrough: live}}]}}
steps:
  - {call: forecast, args: {city: Rome}, expect: {result: hot}}
  - {call: forecast, args: {city: Oslo}, expect: {result: {sky: grey}}}
---
scenario: mocked
steps: [{call: forecast, args: {city: Oslo}, expect: {result: mocked}}]
"""


@pytest.fixture
def outside(write):
    """The server that the live binding asks."""
    with answered_by(answering_json({"sky": "grey"})) as server:
        write(
            {
                "toolcrib.yaml": PROJECT.format(port=server.port),
                "descriptors/forecast.tool.yaml": TOOL.format(port=server.port),
                "descriptors/handed_on.scenario.yaml": SCENARIOS,
            }
        )
        yield server


@pytest.mark.parametrize("jobs", sample(["1", "2"], one_in=2))
def test_calls_are_handed_on_where_the_run_allows_it_in_any_process(jobs, outside, toolcrib):
    done = toolcrib("run", "--allow-passthrough", "-j", jobs)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [request.target for request in outside.requests] == ["/Oslo"]


@pytest.mark.parametrize("jobs", sample(["1", "2"], one_in=2))
def test_calls_are_denied_where_it_does_not(jobs, outside, toolcrib):
    done = toolcrib("run", "--json", "-j", jobs)
    assert done.exit_code == 1
    _examples, handed_on, mocked = json.loads(done.stdout)["scenarios"]
    assert (handed_on["passed"], mocked["passed"]) == (False, True)
    answer = handed_on["steps"][1]["result"]
    assert (answer["outcome"], answer["error"]["code"]) == ("denied", "passthrough_not_allowed")
    assert "`--allow-passthrough`" in answer["error"]["message"]
    assert outside.requests == []
