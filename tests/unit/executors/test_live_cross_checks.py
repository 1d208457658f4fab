"""Keys of live tools that have no effect: they are told."""

from __future__ import annotations

import pytest

from in_memory import loaded
from live_tools import live_executors, live_tool

GET = "url: https://api.example.com/v1"
POST = f"method: POST\n{GET}"
PAGES = f"{GET}\npagination: {{style: page, param: p, items: body}}"


def told(block, more=""):
    found = loaded(live_tool(block, more=more), executors=live_executors()).problems
    assert all((each.code, each.severity) == ("needless_key", "warning") and each.hint for each in found)
    return [each.pointer for each in found]


@pytest.mark.parametrize(
    ("block", "more", "pointers"),
    [
        (POST, "limits: {attempts: 2}", ["/limits/attempts"]),
        (POST, "limits: {backoff: {first: 1s}, retry_budget: 10%}", ["/limits/backoff", "/limits/retry_budget"]),
        (POST, "limits: {attempts: 1, rate: 1/1s, breaker: off}", []),
        (POST, "annotations: {idempotent: true}\nlimits: {attempts: 2}", []),
        (f"{POST}\nidempotency_key: Idempotency-Key", "limits: {attempts: 2}", []),
        (GET, "annotations: {idempotent: false, read_only: false}\nlimits: {attempts: 2}", ["/limits/attempts"]),
        (GET, "limits: {attempts: 2, backoff: {first: 1s}, retry_budget: 10%}", []),
        (POST, "limits: {cache: 10}", ["/limits/cache"]),
        (POST, "limits: {cache: 0}", []),
        (POST, "annotations: {read_only: true}\nlimits: {cache: 10}", ["/limits/cache"]),
        (GET, "limits: {cache: 10}", []),
        (PAGES, "limits: {cache: 10}", ["/limits/cache"]),
        (f"{GET}\ntimeouts: {{connect: 9s, read: 6s}}", "timeout: 8s", ["/live/timeouts/connect"]),
        (f"{GET}\ntimeouts: {{connect: 8s, read: 8s}}", "timeout: 8s", []),
        (f"{GET}\ntimeouts: {{read: 60s}}", "", []),
        (f"{GET}\nselect: items", "", ["/live/select"]),
        (f"{GET}\nselect: 'items[*].name'", "", ["/live/select"]),
        (f"{GET}\nselect: next_cursor", "", ["/live/select"]),
        (f"{GET}\nselect: items.a || body", "", []),
        (f"{GET}\nselect: itemsize", "", []),
        (f"{GET}\nselect: body.items", "", []),
        (f"{PAGES}\nselect: items", "", []),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_told_where_it_is_written(block, more, pointers):
    assert told(block, more) == pointers


def test_a_status_that_is_no_failure_is_refused_with_those_that_are():
    text = live_tool(f"{GET}\nerrors: {{'200': x, 4x: y, '404': z}}")
    found = loaded(text, executors=live_executors()).problems
    assert [(each.code, each.pointer) for each in found] == [
        ("unknown_key", "/live/errors/200"),
        ("unknown_key", "/live/errors/4x"),
    ]
    assert {each.hint for each in found} == {
        "`errors` is for statuses of failure: `404`, `4xx`, `5xx`, `3xx`, or `default` for all others"
    }
