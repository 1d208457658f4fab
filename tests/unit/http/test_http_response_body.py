"""Bodies: bounded, whatever coding unfolds to, however it is cut into pieces."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling import THOROUGH
from toolcrib import RealClock
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure
from toolcrib.http.headers import response_headers
from toolcrib.http.response_body import ResponseBody, body_reader


def taken(raw: bytes, cuts: list[int], codings: list[str], most: int) -> bytes | HTTPFailure:
    """What becomes of a body that comes in pieces."""
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    try:
        body = ResponseBody(codings, most)
        for start, end in pairwise(edges):
            body.add(raw[start:end])
        return asyncio.run(body.whole())
    except HTTPError as error:
        return error.fault


CUTS = st.lists(st.integers(0, 300), max_size=8)


@given(st.binary(max_size=300), CUTS)
def test_a_body_is_what_was_sent(raw, cuts):
    assert taken(raw, cuts, [], 300) == raw
    assert taken(raw, cuts, ["identity"], 300) == raw


@given(st.binary(max_size=300), CUTS, st.integers(0, 9))
def test_a_zipped_body_is_what_was_zipped(raw, cuts, level):
    assert taken(gzip.compress(raw, level), cuts, ["gzip"], 400) == raw


@given(st.binary(max_size=60), CUTS, st.integers(0, 60), st.booleans())
def test_no_more_than_the_bound_is_taken(raw, cuts, most, zipped):
    sent = gzip.compress(raw) if zipped else raw
    whole = len(raw) <= most and len(sent) <= most
    assert taken(sent, cuts, ["gzip"] * zipped, most) == (raw if whole else HTTPFailure.RESPONSE_TOO_LARGE)


@given(st.binary(min_size=1, max_size=60), CUTS, st.integers(1, 80))
def test_a_zipped_body_that_is_cut_off_is_never_taken_for_whole(raw, cuts, missing):
    sent = gzip.compress(raw)
    assert taken(sent[: max(len(sent) - missing, 1)], cuts, ["gzip"], 1000) is HTTPFailure.BAD_RESPONSE


@given(st.binary(min_size=1, max_size=20), CUTS)
def test_nothing_may_stand_behind_a_zipped_body(surplus, cuts):
    got = taken(gzip.compress(b"plain") + surplus, cuts, ["gzip"], 1000)
    assert got in {HTTPFailure.BAD_RESPONSE, HTTPFailure.UNSUPPORTED_CODING}


@given(st.binary(max_size=300), CUTS)
def test_whatever_calls_itself_zipped_is_a_fault_or_is_zipped(raw, cuts):
    got = taken(raw, cuts, ["gzip"], 1000)
    assert isinstance(got, HTTPFailure) or got == (gzip.decompress(raw) if raw else b"")


@pytest.mark.parametrize(
    "codings", [["gzip"], ["x-gzip"], ["GZIP"], [" gzip "], ["identity, gzip"], ["", "gzip"]]
)
def test_ways_to_name_gzip(codings):
    assert taken(gzip.compress(b"plain"), [], codings, 100) == b"plain"


@pytest.mark.parametrize("codings", [[], [""], ["identity"], [","], ["identity", "identity"]])
def test_ways_to_name_no_coding(codings):
    assert taken(b"plain", [], codings, 100) == b"plain"


@pytest.mark.parametrize(
    "codings",
    [["gzip, gzip"], ["gzip", "gzip"], ["deflate"], ["br"], ["zstd"], ["compress"], ["gzip;q=1"], ["*"]],
)
def test_other_codings_are_refused(codings):
    with pytest.raises(HTTPError) as caught:
        ResponseBody(codings, 100)
    assert caught.value.fault is HTTPFailure.UNSUPPORTED_CODING


def test_a_bomb_is_stopped_without_being_unfolded():
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    sent = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(300 if THOROUGH else 50)) + bomb.flush()
    tracemalloc.start()
    try:
        assert taken(sent, [], ["gzip"], 8 << 20) is HTTPFailure.RESPONSE_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_what_is_announced_is_refused_before_it_comes():
    with pytest.raises(HTTPError, match="announces 101 bytes; the limit is 100 bytes"):
        ResponseBody([], 100, 101)
    assert asyncio.run(ResponseBody([], 100, 100).whole()) == b""


async def test_megabytes_are_joined_while_other_tasks_run():
    body, parts = ResponseBody([], 4 << 20), [bytes([number]) * (1 << 16) for number in range(64)]
    for part in parts:
        body.add(part)
    turns, joining = 0, asyncio.create_task(body.whole())
    while not joining.done():
        turns += 1
        await RealClock().sleep(0)
    assert turns > 1
    assert joining.result() == b"".join(parts)


@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=3))
def test_headers_of_an_answer_hold_no_control_characters(raw):
    try:
        lines = response_headers(raw)
    except HTTPError:
        return
    for name, value in lines:
        assert name == name.lower()
        assert name.isascii()
        assert not [character for character in value if character < " " and character != "\t"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["content-length", "transfer-encoding", "content-encoding", "x"]),
            st.sampled_from(
                ["", "0", "7", "8", "-1", "+7", "07", "7,7", "7, 8", "chunked", "Chunked", "gzip", "x"]
            ),
        ),
        max_size=3,
    ),
    st.sampled_from(["GET", "HEAD"]),
    st.sampled_from([200, 204, 304, 404, 599]),
)
def test_an_answers_headers_are_judged_alike_in_any_order(headers, method, status):
    def judged(lines):
        try:
            return body_reader(method, status, lines, ExchangeBounds(body=10)) is None
        except HTTPError as error:
            return error.fault

    assert judged(headers) == judged(headers[::-1])
