"""`pagination`: what is collected, where it stops, how it goes on."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_answers import TOOL
from live_paging import collect, draft_of
from toolcrib import Outcome, Result
from toolcrib.executors.live.pagination import compile_pages
from toolcrib.http import HTTPResponse
from toolcrib.schema.validation import Validator


def by_cursor(items, size, param="cursor"):
    """An API that gives `size` items at a time, and a cursor."""

    def serve(query, _draft):
        at = int(query.get(param, "c0")[1:])
        more = at + size < len(items)
        return {"data": items[at : at + size], "meta": {"next": f"c{at + size}" if more else None}}

    return serve


CURSOR = {"style": "cursor", "items": "body.data", "next": "body.meta.next", "param": "cursor"}
ITEMS = [{"id": number} for number in range(25)]


def test_cursors_are_followed_to_the_end():
    done = collect(CURSOR, by_cursor(ITEMS, 10), draft=draft_of(["q=a%20b"]))
    assert done.value == {"items": ITEMS, "next_cursor": None}
    assert done.result.meta == {"pages": {"count": 3, "items": 25, "stopped": "end"}}
    assert [dict(query) for query in done.queries] == [{"q": "a b"}, {"q": "a b", "cursor": "c10"}, {"q": "a b", "cursor": "c20"}]  # fmt: skip


def test_each_request_is_one_of_its_own():
    done = collect(CURSOR, by_cursor(ITEMS, 10), draft=draft_of(["q=x"], headers=[("X-A", "1")]))
    assert [draft.query for draft in done.requests] == [["q=x"], ["q=x", "cursor=c10"], ["q=x", "cursor=c20"]]
    assert [len(draft.headers) for draft in done.requests] == [2, 2, 2]


def test_numbers_are_cursors_too_and_odd_texts_stay_one_parameter():
    answers = {None: {"data": [1], "meta": {"next": 7}}, "7": {"data": [2], "meta": {"next": "a&b=ø c"}}}
    answers["a&b=ø c"] = {"data": [3], "meta": {"next": ""}}
    done = collect(CURSOR, lambda query, _draft: answers[query.get("cursor")])
    assert done.value["items"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "code", "why"),
    [
        ({"data": [1], "meta": {"next": {"a": "hunter2"}}}, "bad_cursor", "must be text or a number"),
        ({"data": [1], "meta": {"next": True}}, "bad_cursor", "must be text or a number"),
        ({"data": [1], "meta": {"next": "hunter2" * 1000}}, "bad_cursor", "exceeds 4,096 characters"),
        ({"data": [1], "meta": {"next": "hunter2\ud800"}}, "bad_cursor", "cannot be encoded as UTF-8"),
        ({"data": {"hunter2": 1}}, "no_items", "found no list"),
        ({"data": None}, "no_items", "body.data || `[]`"),
        ({}, "no_items", "found no list"),
    ],
)
def test_what_can_not_be_used_is_told_without_its_text(answer, code, why):
    result = collect(CURSOR, lambda _query, _draft: answer).result
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, code)
    assert why in result.message
    assert "hunter2" not in str(result)
    assert result.error.details == {}


@pytest.mark.parametrize(("key", "code"), [("items", "no_items"), ("next", "bad_cursor")])
def test_an_expression_that_fails_is_told(key, code):
    result = collect({**CURSOR, key: "length(status)"}, by_cursor(ITEMS, 10)).result
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, code)


def test_a_list_that_may_be_missing_is_written_so():
    assert (
        collect({**CURSOR, "items": "body.data || `[]`"}, lambda _query, _draft: {"data": None}).value[
            "items"
        ]
        == []
    )


def test_an_empty_answer_is_an_empty_page():
    done = collect({"style": "page", "param": "page"}, lambda _query, _draft: HTTPResponse(204, (), b""))
    assert done.value == {"items": [], "next_cursor": None}
    assert done.result.meta["pages"] == {"count": 1, "items": 0, "stopped": "end"}


def test_a_cursor_that_comes_again_stops():
    def serve(query, _draft):
        return {
            "data": [query.get("cursor", "")],
            "meta": {"next": {"": "a", "a": "b", "b": "a"}[query.get("cursor", "")]},
        }

    done = collect(CURSOR, serve)
    assert done.value == {"items": ["", "a", "b"], "next_cursor": None}
    assert done.result.meta["pages"] == {"count": 3, "items": 3, "stopped": "repeated_cursor"}


def test_an_empty_page_stops_and_gives_the_cursor_that_the_api_gave():
    def serve(query, _draft):
        return {"data": [] if "cursor" in query else [1], "meta": {"next": query.get("cursor", "") + "x"}}

    done = collect(CURSOR, serve)
    assert done.value == {"items": [1], "next_cursor": "xx"}
    assert done.result.meta == {"pages": {"count": 2, "items": 1, "stopped": "end"}, "next_cursor": "xx"}


def test_the_most_pages():
    done = collect({**CURSOR, "max_pages": 2}, by_cursor(ITEMS, 10))
    assert done.value == {"items": ITEMS[:20], "next_cursor": "c20"}
    assert done.result.meta == {
        "pages": {"count": 2, "items": 20, "stopped": "max_pages"},
        "next_cursor": "c20",
    }
    assert collect({**CURSOR, "max_pages": 3}, by_cursor(ITEMS, 10)).result.meta["pages"]["stopped"] == "end"


def test_ten_pages_and_a_thousand_items_unless_said_otherwise():
    assert collect(CURSOR, by_cursor([0] * 500, 10)).result.meta["pages"] == {"count": 10, "items": 100, "stopped": "max_pages"}  # fmt: skip
    assert collect(CURSOR, by_cursor([0] * 5000, 400)).result.meta["pages"] == {"count": 3, "items": 1000, "stopped": "max_items"}  # fmt: skip


def test_the_most_items_cut_a_page_which_then_comes_again():
    done = collect({**CURSOR, "max_items": 12}, by_cursor(ITEMS, 10))
    assert done.value == {"items": ITEMS[:12], "next_cursor": "c10"}
    assert done.result.meta == {
        "pages": {"count": 2, "items": 12, "stopped": "max_items"},
        "next_cursor": "c10",
    }


def test_a_first_page_with_too_many_items_is_gone_past_and_what_is_lost_is_told():
    done = collect({**CURSOR, "max_items": 4}, by_cursor(ITEMS, 10))
    assert done.value == {"items": ITEMS[:4], "next_cursor": "c10"}
    assert done.result.meta["pages"] == {"count": 1, "items": 4, "stopped": "max_items", "dropped": 6}
    done = collect({**CURSOR, "max_items": 4}, by_cursor(ITEMS[:6], 10))
    assert done.value == {"items": ITEMS[:4], "next_cursor": None}


def test_as_many_items_as_may_be_and_no_more_to_come():
    assert collect({**CURSOR, "max_items": 25}, by_cursor(ITEMS, 10)).result.meta["pages"]["stopped"] == "end"
    assert collect({**CURSOR, "max_items": 20}, by_cursor(ITEMS, 10)).result.meta["pages"] == {"count": 2, "items": 20, "stopped": "max_items"}  # fmt: skip


ONE_PAGE = {**CURSOR, "collect": False, "cursor_arg": "after"}


def test_one_page_at_a_time():
    serve = by_cursor(ITEMS, 10)
    done = collect(ONE_PAGE, serve)
    assert done.value == {"items": ITEMS[:10], "next_cursor": "c10"}
    assert done.result.meta == {
        "pages": {"count": 1, "items": 10, "stopped": "max_pages"},
        "next_cursor": "c10",
    }
    done = collect(ONE_PAGE, serve, {"after": "c20"})
    assert done.value == {"items": ITEMS[20:], "next_cursor": None}
    assert done.result.meta == {"pages": {"count": 1, "items": 5, "stopped": "end"}}
    for nothing in ({"after": None}, {"after": ""}, {}):
        assert collect(ONE_PAGE, serve, nothing).queries == [[]]


def test_a_page_that_leads_to_itself_does_not_lead_on():
    done = collect(ONE_PAGE, lambda _query, _draft: {"data": [1], "meta": {"next": "x"}}, {"after": "x"})
    assert done.value == {"items": [1], "next_cursor": None}


def test_collecting_may_begin_at_a_cursor():
    done = collect({**CURSOR, "cursor_arg": "after", "max_pages": 1}, by_cursor(ITEMS, 10), {"after": "c10"})
    assert done.value == {"items": ITEMS[10:20], "next_cursor": "c20"}


def test_select_sees_items_and_next_cursor():
    block = {"select": "{ids: items[*].id, next: next_cursor, last: body.meta, status: status}"}
    done = collect({**CURSOR, "max_pages": 1}, by_cursor(ITEMS, 3), block=block)
    assert done.value == {"ids": [0, 1, 2], "next": "c3", "last": {"next": "c3"}, "status": 200}
    failed = collect(CURSOR, by_cursor(ITEMS, 30), block={"select": "length(status)"}).result
    assert (failed.error.code, failed.meta["pages"]["count"]) == ("select_failed", 1)


def test_items_are_hidden_in_and_shortened():
    block = {"response": {"redact": ["data.*.id"], "budget": {"size": 80, "items": "/items"}}}
    done = collect(CURSOR, by_cursor(ITEMS, 10), block=block)
    assert done.value == {"items": [{"id": "***"}] * 3, "next_cursor": None}
    assert done.result.meta["truncated"] == [{"pointer": "/items", "kept": 3, "of": 25}]
    assert done.result.meta["pages"]["items"] == 25


def failing(answer, at):
    """The API of `by_cursor`, with another answer at one of its cursors."""
    serve = by_cursor(ITEMS, 10)
    return lambda query, draft: answer if query.get("cursor", "c0") == at else serve(query, draft)


@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_page_that_fails_ends_the_call(good):
    failures = [
        (Result.failure(Outcome.TRANSPORT_ERROR, "broken", code="connection_broken", details={"a": 1}), "connection_broken"),
        (HTTPResponse(503, (("retry-after", "7"),), b""), "http_503"),
        (HTTPResponse(302, (("location", "/x"),), b""), "redirected"),
        (HTTPResponse(200, (("content-type", "application/json"),), b"{"), "not_json"),
        ({"data": 7}, "no_items"),
        ({"data": [7], "meta": {"next": []}}, "bad_cursor"),
    ]  # fmt: skip
    for answer, code in failures:
        result = collect(CURSOR, failing(answer, at=f"c{good * 10}")).result
        assert result.outcome is not Outcome.OK
        assert result.error.code == code
        assert result.error.details.get("pages") == ({"count": good, "items": good * 10} if good else None)
        assert result.message == result.error.message
        assert result.message.endswith(
            {0: "", 1: " (after 1 successful page)", 2: " (after 2 successful pages)"}[good]
        )
        if code == "http_503":
            assert result.error.details["retry_after"] == 7


def test_errors_of_pages_are_those_of_the_block():
    block = {"errors": {"404": {"code": "gone", "message": "No {{ args.what }}"}}}
    result = collect(
        CURSOR, lambda _query, _draft: HTTPResponse(404, (), b""), {"what": "cats"}, block=block
    ).result
    assert (result.error.code, result.message) == ("gone", "No cats")


def by_page(items, size, param="page", start=1, size_param=None):
    def serve(query, _draft):
        given = int(query[size_param]) if size_param else size
        at = (int(query[param]) - start) * given
        return items[at : at + given]

    return serve


def test_pages_are_counted_until_one_is_empty():
    done = collect({"style": "page", "param": "page"}, by_page(ITEMS[:20], 10))
    assert done.value == {"items": ITEMS[:20], "next_cursor": None}
    assert [query["page"] for query in map(dict, done.queries)] == ["1", "2", "3"]
    assert done.result.meta["pages"] == {"count": 3, "items": 20, "stopped": "end"}


def test_a_short_page_is_the_last_where_the_size_is_known():
    pagination = {"style": "page", "param": "p", "start": 0, "size": 10, "size_param": "per_page"}
    done = collect(pagination, by_page(ITEMS, 0, "p", 0, "per_page"), draft=draft_of(["per_page=3", "q=1"]))
    assert done.value["items"] == ITEMS
    assert [draft.query for draft in done.requests] == [
        ["q=1", "per_page=10", f"p={number}"] for number in (0, 1, 2)
    ]


def test_the_answer_may_say_whether_there_is_more():
    pagination = {"style": "page", "param": "page", "items": "body.rows", "next": "body.more"}
    serve = by_page(ITEMS, 10)
    done = collect(
        pagination, lambda query, draft: {"rows": serve(query, draft), "more": query["page"] == "1"}
    )
    assert (len(done.requests), done.value["items"]) == (2, ITEMS[:20])


def test_an_api_that_takes_no_notice_of_the_number_is_noticed():
    done = collect({"style": "page", "param": "page"}, lambda _query, _draft: ITEMS[:5])
    assert done.value == {"items": ITEMS[:5], "next_cursor": None}
    assert done.result.meta["pages"] == {"count": 1, "items": 5, "stopped": "repeated_cursor"}
    done = collect({"style": "page", "param": "page", "max_pages": 3}, lambda _query, _draft: [0, 0])
    assert done.value["items"] == [0] * 6


OFFSET = {"style": "offset", "param": "offset", "limit_param": "limit", "limit": 10}


def by_offset(items, most=10**9):
    def serve(query, _draft):
        at = int(query["offset"])
        return items[at : at + min(int(query.get("limit", most)), most)]

    return serve


def test_items_are_counted():
    done = collect(OFFSET, by_offset(ITEMS))
    assert done.value == {"items": ITEMS, "next_cursor": None}
    assert [query["offset"] for query in map(dict, done.queries)] == ["0", "10", "20"]
    done = collect({"style": "offset", "param": "offset"}, by_offset(ITEMS, 7))
    assert done.value["items"] == ITEMS
    assert [query["offset"] for query in map(dict, done.queries)] == ["0", "7", "14", "21", "25"]


def test_a_cut_page_goes_on_behind_the_last_item_where_items_are_counted():
    pagination = {**OFFSET, "max_items": 12, "cursor_arg": "after"}
    done = collect(pagination, by_offset(ITEMS))
    assert done.value == {"items": ITEMS[:12], "next_cursor": "12"}
    assert collect(pagination, by_offset(ITEMS), {"after": "12"}).value == {
        "items": ITEMS[12:24],
        "next_cursor": "24",
    }
    assert collect({**OFFSET, "max_items": 4}, by_offset(ITEMS)).value == {
        "items": ITEMS[:4],
        "next_cursor": "4",
    }


@pytest.mark.parametrize("cursor", ["c10", "-1", "1.5", "9" * 16, "1 2", "\u0663", True])
def test_a_cursor_that_is_no_number_is_refused_before_anything_is_sent(cursor):
    done = collect({**OFFSET, "collect": False, "cursor_arg": "a/b"}, by_offset(ITEMS), {"a/b": cursor})
    assert done.requests == []
    assert (done.result.outcome, done.result.error.code) == (Outcome.INVALID_ARGUMENTS, "invalid_arguments")
    assert done.result.error.details["violations"][0]["pointer"] == "/a~1b"
    assert done.result.message.endswith("use a `next_cursor` returned by an earlier call, or omit it")


def test_a_number_is_taken_for_a_cursor():
    assert collect({**OFFSET, "collect": False, "cursor_arg": "after"}, by_offset(ITEMS), {"after": 20}).value["items"] == ITEMS[20:]  # fmt: skip


@given(st.lists(st.integers(), unique=True, max_size=60), st.integers(1, 12), st.sampled_from(["cursor", "page", "offset", "sized"]))  # fmt: skip
def test_collected_pages_are_the_whole(items, size, style):
    caps = {"max_pages": 1000, "max_items": 100_000}
    pagination, serve = {
        "cursor": (CURSOR, by_cursor(items, size)),
        "page": ({"style": "page", "param": "page"}, by_page(items, size)),
        "offset": ({"style": "offset", "param": "offset"}, by_offset(items, size)),
        "sized": ({**OFFSET, "limit": size}, by_offset(items)),
    }[style]
    done = collect({**pagination, **caps}, serve)
    assert done.value == {"items": items, "next_cursor": None}
    assert done.result.meta["pages"] == {"count": len(done.requests), "items": len(items), "stopped": "end"}


@given(st.lists(st.integers(), unique=True, max_size=40), st.integers(1, 9), st.integers(1, 4), st.integers(9, 30), st.sampled_from(["cursor", "page", "offset"]))  # fmt: skip
def test_going_on_from_where_a_call_stopped_loses_nothing(items, size, max_pages, max_items, style):
    pagination, serve = {
        "cursor": (CURSOR, by_cursor(items, size)),
        "page": ({"style": "page", "param": "page"}, by_page(items, size)),
        "offset": ({"style": "offset", "param": "offset"}, by_offset(items, size)),
    }[style]
    pagination = {**pagination, "max_pages": max_pages, "max_items": max_items, "cursor_arg": "after"}
    found, cursor, calls = [], None, 0
    while calls == 0 or cursor is not None:
        value = collect(pagination, serve, {"after": cursor}).value
        assert len(value["items"]) <= max_items
        found += value["items"]
        cursor = value["next_cursor"]
        calls += 1
        assert calls < 100
    assert list(dict.fromkeys(found)) == items


def problems_with(pagination, block=None, schema=None):
    problems = []
    tool = TOOL._replace(
        input_schema={"type": "object", "properties": {"after": {}}} if schema is None else schema
    )
    assert compile_pages({"pagination": pagination, **(block or {})}, tool, problems) is None or not problems
    return [(problem.code, problem.pointer) for problem in problems]


@pytest.mark.parametrize(
    ("pagination", "block", "found"),
    [
        (CURSOR, {}, []),
        (CURSOR, {"method": "POST"}, []),
        ({"style": "link"}, {}, []),
        ({"style": "cursor"}, {}, [("missing_key", ""), ("missing_key", "")]),
        ({"style": "page"}, {}, [("missing_key", "")]),
        ({**CURSOR, "start": 1, "size": 2}, {}, [("needless_key", "/start"), ("needless_key", "/size")]),
        ({"style": "page", "param": "p", "limit": 1}, {}, [("needless_key", "/limit")]),
        ({"style": "offset", "param": "p", "size_param": "s"}, {}, [("missing_key", ""), ("needless_key", "/size_param")]),
        ({"style": "page", "param": "p", "size_param": "s"}, {}, [("missing_key", "")]),
        ({"style": "offset", "param": "p", "limit_param": "s"}, {}, [("missing_key", "")]),
        ({**CURSOR, "collect": False}, {}, [("missing_key", "")]),
        ({**ONE_PAGE, "max_pages": 1, "max_items": 1}, {}, [("needless_key", "/max_pages"), ("needless_key", "/max_items")]),
        ({"style": "link", "cursor_arg": "after"}, {}, [("missing_key", "")]),
        ({"style": "link", "size": 3}, {}, [("needless_key", "/size")]),
        ({**CURSOR, "cursor_arg": "befor"}, {}, [("unknown_argument", "/cursor_arg")]),
        ({**CURSOR, "items": "body[", "next": "foo(@)"}, {}, [("bad_select", "/items"), ("bad_select", "/next")]),
        ({"style": "link"}, {"method": "POST"}, [("unfit_pagination", "/style")]),
        (CURSOR, {"method": "HEAD"}, [("unfit_pagination", "/style")]),
        (CURSOR, {"response": {"as": "text"}}, [("unfit_pagination", "/live/response/as")]),
        (CURSOR, {"response": {"as": "json"}}, []),
    ],
)  # fmt: skip
def test_wrong_combinations_are_refused_with_pointers(pagination, block, found):
    found = [
        (code, place if place.startswith("/live") else f"/live/pagination{place}") for code, place in found
    ]
    assert problems_with(pagination, block) == found


@pytest.mark.parametrize("schema", [True, {}, {"properties": 7}])
def test_a_cursor_argument_must_be_described(schema):
    assert problems_with({**CURSOR, "cursor_arg": "after"}, schema=schema) == [
        ("unknown_argument", "/live/pagination/cursor_arg")
    ]


def test_no_pagination_no_pages():
    assert compile_pages({}, TOOL, []) is None


SCHEMA = json.loads(
    files("toolcrib.executors.live").joinpath("schema/pagination.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    ("good", "pagination"),
    [
        (True, CURSOR), (True, ONE_PAGE), (True, OFFSET), (True, {"style": "link", "max_pages": 1000, "max_items": 100_000}),
        (False, {}), (False, {"style": "pages"}), (False, {**CURSOR, "param": ""}), (False, {**CURSOR, "items": 1}),
        (False, {**CURSOR, "max_pages": 0}), (False, {**CURSOR, "max_pages": 1001}), (False, {**CURSOR, "max_items": 100_001}),
        (False, {**CURSOR, "collect": "yes"}), (False, {**OFFSET, "start": -1}), (False, {**OFFSET, "limit": 0}), (False, {**CURSOR, "cap": 1}),
    ],
)  # fmt: skip
def test_what_the_schema_of_pagination_takes(good, pagination):
    assert Validator(SCHEMA).is_valid({"pagination": pagination}) is good


def test_an_expression_that_is_none_is_told_by_its_key():
    problems = []
    compile_pages({"pagination": {**CURSOR, "items": "body["}}, TOOL, problems)
    assert problems[0].message.startswith("`items` is not a valid JMESPath expression")
