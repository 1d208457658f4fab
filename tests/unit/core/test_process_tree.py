"""The search for descendants, and the process that ends them if ours is killed."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leftovers
from toolcrib.core import process_tree
from toolcrib.core.process_tree import SEES_ALL, MarkList, OrphanReaper, younger_processes

FIRST = 300


def next_id(last: int, used: set[int], largest: int) -> int:
    """The ID that Linux gives after another one."""
    free = [*range(last + 1, largest), *range(FIRST, largest)]
    return next(pid for pid in free if pid not in used)


@given(st.data())
def test_no_process_that_started_later_is_left_out(data):
    largest = data.draw(st.integers(1200, 2400), "pid_max")
    used = data.draw(st.sets(st.integers(1, largest - 1), max_size=largest // 8), "running")
    leader = next_id(data.draw(st.integers(FIRST, largest - 1), "last"), used, largest)
    older, last, later = set(used), leader, [leader]
    used.add(leader)
    count = data.draw(st.integers(0, largest), "started")
    for _ in range(count):
        last = next_id(last, used, largest)
        later.append(last)
        # Most processes end at once, and their IDs are free again.
        if data.draw(st.integers(0, 9)) == 0 and len(used) < largest // 4:
            used.add(last)
        if len(later) > 60:
            break
    found = younger_processes(sorted({*older, *later}), leader, len(later), largest)
    assert set(later) <= set(found)


def test_older_processes_are_left_out():
    assert younger_processes([1, 700, 5000, 5001, 9000], 5000, 3, 32768) == [5000, 5001, 9000]


def test_after_the_largest_id_those_that_begin_anew_are_looked_at():
    assert younger_processes([1, 310, 9000, 20000, 32767], 32767, 2, 32768) == [1, 310, 32767]


@pytest.mark.parametrize("started", [0, -5, 8192, 100000])
def test_all_are_looked_at_where_nothing_is_certain(started):
    assert younger_processes([1, 310, 5000], 5000, started, 32768) == [1, 310, 5000]
    assert younger_processes([1, 310, 5000], 5000, 3, 0) == [1, 310, 5000]


@given(st.lists(st.tuples(st.sampled_from("+-"), st.sampled_from(["a", "bc", "exec-1-2"]))), st.data())
def test_marks_arrive_in_any_pieces(lines, data):
    written = "".join(f"{change}{mark}\n" for change, mark in lines).encode()
    marks = MarkList()
    while written:
        size = data.draw(st.integers(1, len(written)))
        marks.feed(written[:size])
        written = written[size:]
    last = {mark: change for change, mark in lines}
    assert marks.active == {mark for mark, change in last.items() if change == "+"}


@pytest.mark.skipif(not SEES_ALL or not sys.executable, reason="orphans are found on Linux alone")
class TestOrphanReaper:
    def test_one_reaper_runs_until_the_last_mark_is_removed(self):
        before, reaper = leftovers.children(), OrphanReaper()
        reaper.add("kept")
        [own] = leftovers.children() - before
        for number in range(3):
            reaper.add(f"child{number}")
            reaper.remove(f"child{number}")
            reaper.add("kept")
            assert leftovers.children() - before == {own}
        reaper.remove("kept")
        assert leftovers.children() - before == set()
        assert not reaper.has("kept")

    @pytest.mark.parametrize("mark", ["first", "second"])
    def test_a_reaper_that_was_killed_is_replaced(self, mark):
        before, reaper = leftovers.children(), OrphanReaper()
        reaper.add("first")
        [killed] = leftovers.children() - before
        handle = os.pidfd_open(killed)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOWAIT)
        os.close(handle)
        reaper.add(mark)
        assert len(leftovers.children() - before) == 1
        reaper.end()
        assert leftovers.children() - before == set()

    def test_a_mark_that_is_not_registered_ends_nothing(self):
        before, reaper = leftovers.children(), OrphanReaper()
        reaper.add("kept")
        reaper.remove("another")
        assert len(leftovers.children() - before) == 1
        reaper.end()


@pytest.mark.skipif(not SEES_ALL, reason="orphans are found on Linux alone")
def test_a_reaper_whose_parent_has_ended_before_it_started_ends_the_orphans():
    mark = os.urandom(12).hex()
    with subprocess.Popen(["true"]) as parent:
        pass
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "TOOLCRIB_CHILD": f"{mark}.1"}) as orphan:
        reaper = [sys.executable, "-I", "-S", process_tree.__file__, str(parent.pid)]
        ended = subprocess.run(reaper, input=f"+{mark}\n".encode(), check=True, capture_output=True)
        assert (orphan.wait(60), ended.stderr) == (-signal.SIGKILL, b"")


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
