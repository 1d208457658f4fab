"""Pages that link to the next one: the header, the guard of origins, the credentials."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_paging import collect, draft_of
from toolcrib import Outcome
from toolcrib.executors.live.pagination import LinkError, follow_link, next_link
from toolcrib.http import HTTPResponse
from toolcrib.http.messages import RequestDraft


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ('<https://a.test/?page=2>; rel="next"', "https://a.test/?page=2"),
        ("</b>; rel=next", "/b"),
        ('<a>; rel="prev", <b>; rel="next", <c>; rel="last"', "b"),
        ('<a>; rel="prev next"', "a"),
        ('<a>; REL="Next"', "a"),
        ('<a?x=1,2;3>; title="one, two; rel=\\"next\\""; rel="last", <b>;rel=next', "b"),
        ("<a>;rel=next;title", "a"),
        ("<a> ; rel = next ; title = x", "a"),
        ('<a>; rel="last"; rel="next"', None),
        ('<a>; rel="next"; anchor="/other", <b>; rel=next', "b"),
        ("<a>", None),
        ('<a>; rel="nextish"', None),
        ('<a>; rel="next', None),
        ("<a; rel=next", None),
        ("a; rel=next", None),
        ('<a>; rel=last <b>; rel="next"', None),
        ("<>; rel=next", ""),
        ("", None),
        ('<a>; title="\u00e9"; rel=next', "a"),
    ],
)
def test_the_next_link_of_a_header(header, target):
    assert next_link(header) == target


@given(st.text(alphabet='<>;,="\\ relnxta1', max_size=200))
def test_no_header_breaks_the_reading_of_links(header):
    target = next_link(header)
    assert target is None or f"<{target}>" in header


def test_a_long_header_is_read_once():
    assert next_link('<a>; rel="last", ' * 20_000 + "<b>; rel=next") == "b"
    assert next_link('<a>; title="' + "\\" * 500_000) is None
    assert next_link("<" * 500_000) is None


DRAFT = RequestDraft(
    "GET", "https", "api.test", 443, "/v1/things", ["q=a"], [("X-Key", "k"), ("Accept", "a"), ("Authorization", "b")],
    ["session=1"], b"",
)  # fmt: skip


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("https://api.test/v2/x?page=2", "/v2/x?page=2"),
        ("https://API.test:443/v2", "/v2"),
        ("//api.test/v2", "/v2"),
        ("/v2?page=2#top", "/v2?page=2"),
        ("?page=2", "/v1/things?page=2"),
        ("other", "/v1/other"),
        ("../up", "/up"),
        ("https://api.test", "/"),
        ("https://api.test?page=2", "/?page=2"),
        ("/a b/ø?page[x]=ø&y=%20%C3%B8", "/a%20b/%C3%B8?page%5Bx%5D=%C3%B8&y=%20%C3%B8"),
        ('/a"\r\nX-Evil: 1?b=\x00', "/a%22X-Evil:%201?b=%00"),
        ("  /v2  ", "/v2"),
        ("https:///v2", "/v2"),
        ("/v2?a=1&&b=2", "/v2?a=1&b=2"),
    ],
)
def test_links_to_the_same_origin_are_followed_with_everything(target, sent):
    following = follow_link(DRAFT, target, foreign=False)
    assert (following.origin, following.finished().target) == ("https://api.test", sent)
    assert (following.headers, following.cookies) == (DRAFT.headers, DRAFT.cookies)
    assert DRAFT.query == ["q=a"]


@pytest.mark.parametrize(
    "target",
    ["https://evil.test/", "//evil.test/", "http://api.test/", "https://api.test:8443/", "https://api.test.evil.test/", "https://127.0.0.1/", "https://[::1]/"],
)  # fmt: skip
def test_other_origins_are_refused_unless_hosts_are_named(target):
    with pytest.raises(LinkError, match="leads to another origin"):
        follow_link(DRAFT, target, foreign=False)


@pytest.mark.parametrize(
    "target",
    ["javascript:alert(1)", "file:///etc/passwd", "ftp://api.test/", "https://api.test@evil.test/", "https://u:p@api.test/", "https://api.test\\@evil.test/", "https://api.test:99999/", "https://[::1/", "https://\u00e9vil.test/", "https://api test/", "data:,x", "http:evil", "/" + "x" * 9000, "/\ud800"],
)  # fmt: skip
def test_what_is_no_address_is_refused_everywhere(target):
    for foreign in (False, True):
        with pytest.raises(LinkError) as caught:
            follow_link(DRAFT, target, foreign=foreign)
        assert "passwd" not in str(caught.value)
        assert "u:p" not in str(caught.value)


def test_credentials_do_not_cross_to_another_origin():
    following = follow_link(DRAFT, "https://cdn.test/x?page=2", foreign=True)
    assert (following.origin, following.finished().target) == ("https://cdn.test", "/x?page=2")
    assert following.headers == [("Accept", "a")]
    assert following.cookies == []
    back = follow_link(following, "https://api.test/secrets", foreign=True)
    assert (back.headers, back.cookies) == ([("Accept", "a")], [])


def test_nothing_leads_from_https_to_http():
    with pytest.raises(LinkError, match=r"leads from https to http://cdn\.test"):
        follow_link(DRAFT, "http://cdn.test/", foreign=True)


def linked(links, header=True):
    """An API whose pages are named by their targets, and link to each other."""

    def serve(_query, draft):
        target = draft.finished().target
        items, following = links[target]
        headers = (("content-type", "application/json"),)
        if header and following is not None:
            headers += (("link", f'<{following}>; rel="next"'),)
        body = items if header else {"rows": items, "next": following}
        return HTTPResponse(200, headers, json.dumps(body).encode())

    return serve


LINKS = {
    "/things": ([1, 2], "/things?page=2&x=y"),
    "/things?page=2&x=y": ([3], "https://api.test/things?page=3"),
    "/things?page=3": ([4], None),
}


def test_links_of_the_header_are_followed():
    done = collect({"style": "link"}, linked(LINKS), draft=draft_of(headers=[("X-A", "1")]))
    assert done.value == {"items": [1, 2, 3, 4], "next_cursor": None}
    assert done.result.meta == {"pages": {"count": 3, "items": 4, "stopped": "end"}}
    assert [len(draft.headers) for draft in done.requests] == [2, 2, 2]


def test_links_of_the_body_are_followed():
    done = collect({"style": "link", "items": "body.rows", "next": "body.next"}, linked(LINKS, header=False))
    assert done.value["items"] == [1, 2, 3, 4]


def test_links_that_lead_back_stop():
    links = {"/things": ([1], "/b"), "/b": ([2], "https://api.test/things")}
    assert collect({"style": "link"}, linked(links)).result.meta["pages"] == {
        "count": 2,
        "items": 2,
        "stopped": "repeated_cursor",
    }


def test_what_is_left_is_told_as_path_and_query():
    done = collect({"style": "link", "max_pages": 2}, linked(LINKS))
    assert done.value == {"items": [1, 2, 3], "next_cursor": "/things?page=3"}
    done = collect(
        {"style": "link", "max_items": 3, "param": "page"},
        linked({**LINKS, "/things?page=2&x=y": ([3, 4, 5], None)}),
    )
    assert done.value == {"items": [1, 2, 3], "next_cursor": "2"}


def test_a_cursor_of_links_is_one_parameter():
    pagination = {"style": "link", "param": "page", "collect": False, "cursor_arg": "after"}
    done = collect(pagination, linked(LINKS))
    assert done.value == {"items": [1, 2], "next_cursor": "2"}
    done = collect(pagination, lambda query, _draft: [query], {"after": "2&admin=1/../x"})
    assert done.value == {"items": [{"page": "2&admin=1/../x"}], "next_cursor": None}
    missing = collect(pagination, linked({"/things": ([1], "/things?p=2")})).result
    assert (missing.error.code, missing.message) == ("bad_cursor", "cannot request the next page: the link to the next page has no parameter `page`")  # fmt: skip


def test_a_link_that_is_no_text_is_refused():
    pagination = {"style": "link", "items": "body.rows", "next": "body.next"}
    result = collect(pagination, lambda _query, _draft: {"rows": [1], "next": {"href": "/x"}}).result
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "bad_cursor")


def test_a_link_elsewhere_denies_the_call():
    links = {"/things": ([1], "/b"), "/b": ([2], "https://evil.test/?token=hunter2")}
    done = collect({"style": "link"}, linked(links))
    assert (done.result.outcome, done.result.error.code) == (Outcome.DENIED, "link_refused")
    assert done.result.error.details == {"pages": {"count": 1, "items": 1}}
    assert (
        "leads to another origin, https://evil.test; only hosts in `hosts` may be reached"
        in done.result.message
    )
    assert "hunter2" not in str(done.result)
    assert len(done.requests) == 2


@pytest.mark.parametrize("link", ["https://api.test:x/b", "https://cdn.test:99999/b", "http://cdn.test/b"])
@pytest.mark.parametrize("block", [{"hosts": ["api.test", "cdn.test"]}])
def test_hosts_are_not_named_where_no_host_is_the_cause(link, block):
    result = collect({"style": "link"}, linked({"/things": ([1], link)}), block=block).result
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "link_refused")
    assert "`hosts`" not in result.message


def test_named_hosts_may_be_reached_without_credentials():
    links = {"/things": ([1], "https://cdn.test/b"), "/b": ([2], "https://api.test/c"), "/c": ([3], None)}
    draft = draft_of(headers=[("X-Key", "k"), ("Accept", "a")])
    done = collect({"style": "link"}, linked(links), block={"hosts": ["api.test", "cdn.test"]}, draft=draft)
    assert done.value["items"] == [1, 2, 3]
    assert [each.origin for each in done.requests] == [
        "https://api.test",
        "https://cdn.test",
        "https://api.test",
    ]
    assert [("X-Key", "k") in each.headers for each in done.requests] == [True, False, False]


def test_origins_that_stand_for_the_own_one_count_as_it():
    links = {"/things": ([1], "http://127.0.0.1:8080/b"), "/b": ([2], None)}
    done = collect({"style": "link"}, linked(links), own=["http://127.0.0.1:8080"])
    assert done.value["items"] == [1, 2]
    assert [each.origin for each in done.requests] == ["https://api.test"] * 2
    elsewhere = {"/things": ([1], "https://cdn.test/b"), "/b": ([2], "https://api.test/c"), "/c": ([3], None)}
    done = collect({"style": "link"}, linked(elsewhere), block={"hosts": ["*"]}, own=["https://x.test"])
    assert [each.origin for each in done.requests] == [
        "https://api.test",
        "https://cdn.test",
        "https://api.test",
    ]


@given(st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=9))
def test_linked_pages_are_the_whole(pages):
    targets = ["/things", *(f"/things?page={number}" for number in range(2, len(pages) + 1))]
    links = {
        target: (page, following)
        for target, page, following in zip(targets, pages, [*targets[1:], None], strict=True)
    }
    done = collect({"style": "link"}, linked(links))
    whole = []
    for page in pages:
        whole += page
        if not page:
            break
    assert done.value["items"] == whole
