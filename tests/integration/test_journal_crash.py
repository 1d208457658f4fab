"""A process that is killed with calls in flight: nothing acknowledged is lost, nothing is made twice."""

from __future__ import annotations

from journal_soak import soak
from sampling import THOROUGH


def test_a_killed_process_loses_and_repeats_nothing(tmp_path):
    report = soak(tmp_path, rounds=5 if THOROUGH else 3, seed=1)
    assert report.sound, report
    assert report.acknowledged >= 3
    assert report.repetitions
