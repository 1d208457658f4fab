"""Processes that tests start obey signals, and one that outlives its test is reported by that test."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import leftovers

ASKING = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, signal.getsignal(signal.SIGHUP).name)"

WAITING = [sys.executable, "-S", "-c", "input()"]


@pytest.fixture
def ignoring():
    """What a shell does to its background jobs, and `nohup` to its command."""
    before = {
        number: signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_children_begin_with_default_signals_where_this_process_ignores_them(ignoring):
    command = [sys.executable, "-S", "-c", ASKING]
    assert subprocess.check_output(command, text=True) == "True SIG_IGN\n"
    with leftovers.default_signals():
        assert subprocess.check_output(command, text=True) == "False SIG_DFL\n"
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


LEAVING = f"""
    import subprocess
    import pytest

    def start():
        return subprocess.Popen({WAITING}, stdin=subprocess.PIPE)

    @pytest.fixture(scope="module")
    def server():
        yield
        kept.kill()
        kept.wait()

    @pytest.fixture(scope="module")
    def started(server):
        global kept
        kept = start()

    def test_that_uses_what_the_module_started(started):
        pass

    @pytest.mark.filterwarnings("ignore")
    def test_that_leaves_one():
        start()

    def test_that_comes_after():
        with start() as process:
            process.kill()

    @pytest.mark.filterwarnings("ignore")
    def test_that_leaves_a_grandchild():
        subprocess.run(["sh", "-c", "exec 3<&0; sleep 600 >/dev/null 2>&1 &"], check=True)
"""


def test_the_test_that_leaves_a_process_is_the_one_that_fails(pytester, request):
    for name in ("conftest.py", "distribution.py", "leftovers.py"):
        text = (request.config.rootpath / "tests" / name).read_text()
        # Nothing in here ends by itself, so there is nothing to wait for.
        pytester.path.joinpath(name).write_text(text.replace("GRACE = 3.0", "GRACE = 0.1"))
    pytester.makeini(
        "[pytest]\npythonpath = .\nmarkers =\n    exhaustive: everything\n    shared_data: needs data\n"
    )
    pytester.makepyfile(LEAVING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*test_that_leaves_one left process * behind: *input()*",
            "*test_that_leaves_a_grandchild left process * behind: *sleep 600*",
        ]
    )
