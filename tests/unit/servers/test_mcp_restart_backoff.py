"""When a server may be started again."""

from __future__ import annotations

import pytest

from toolcrib import RealClock, VirtualClock
from toolcrib.servers.mcp.supervisor import FIRST, LONGEST, MOST, WINDOW, RestartBackoff, RestartBackoffs


def test_the_first_start_waits_for_nothing():
    assert (RestartBackoff().wait(0.0), RestartBackoff().resting(0.0)) == (0.0, 0.0)


def test_the_pause_doubles_and_is_counted_from_the_end():
    starts, now, pauses = RestartBackoff(), 0.0, []
    for _turn in range(MOST):
        starts.began(now)
        starts.ended(now)
        pauses.append(starts.wait(now))
        now += pauses[-1]
    assert pauses == pytest.approx([FIRST * 2**turn for turn in range(MOST)])
    assert max(pauses) <= LONGEST


def test_what_is_left_of_a_pause_by_rounding_is_no_pause():
    starts = RestartBackoff()
    starts.began(0.1)
    starts.ended(0.1)
    assert starts.wait(0.1 + FIRST - 1e-12) == 0.0


def test_after_five_starts_in_a_minute_it_is_left_alone_until_the_first_is_past():
    starts = RestartBackoff()
    for now in range(MOST):
        starts.began(float(now))
        starts.ended(float(now))
    assert starts.resting(10.0) == WINDOW - 10.0
    assert starts.resting(WINDOW) == 0.0
    assert starts.wait(WINDOW) == 0.0


def test_what_ran_for_long_starts_again_at_once():
    starts = RestartBackoff()
    starts.began(0.0)
    starts.ended(WINDOW)
    assert starts.wait(WINDOW) == 0.0


def test_an_end_that_was_wanted_does_not_count():
    starts = RestartBackoff()
    starts.began(0.0)
    starts.ended(1.0)
    starts.forgiven()
    assert starts.wait(1.0) == 0.0


def test_clocks_of_virtual_time_count_for_themselves():
    starts, virtual = RestartBackoffs(), VirtualClock()
    assert starts.on(RealClock()) is starts.on(RealClock())
    assert starts.on(virtual) is starts.on(virtual)
    assert starts.on(virtual) is not starts.on(VirtualClock())
    assert starts.on(virtual) is not starts.on(RealClock())
