"""The orphan reaper, which threads with event loops of their own share."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import leftovers
from toolcrib.core.process_tree import SEES_ALL, OrphanReaper


@pytest.fixture
def _eager_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.skipif(not SEES_ALL, reason="there is no reaper")
@pytest.mark.usefixtures("_eager_threads")
def test_threads_share_one_reaper_and_leave_none():
    reaper = OrphanReaper()

    def children(thread: int) -> None:
        for number in range(20):
            reaper.add(f"{thread}-{number}")
            reaper.remove(f"{thread}-{number}")

    before = leftovers.children()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(children, range(4)))
    assert leftovers.children() <= before
