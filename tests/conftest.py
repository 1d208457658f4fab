"""What all tests share: the data beside the checkout, and the rule that CI skips nothing."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import inspect
import os
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from itertools import count, groupby
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic, time_ns
from typing import Any

import certifi
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.runner import runtestprotocol
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import distribution  # type: ignore[import-not-found] # in pythonpath
import leftovers  # type: ignore[import-not-found] # in pythonpath

ROOT = Path(__file__).resolve().parents[1]

# A process that imports the package within two seconds of a change, such as a checkout, uses no index (`RACY` in
# `toolcrib.loading.fingerprints`). Other conftest modules import it, so this one waits before they are read.
NEWEST = max((path.stat().st_ctime_ns for path in (ROOT / "runtime").rglob("*.py")), default=0)
Event().wait(max(0, NEWEST + 2_000_000_000 - time_ns()) / 1e9)

RUNNING = pytest.StashKey[set[int]]()
"""The child processes that ran when a test began: those that ran when the one before it had ended."""

SEARCHED = pytest.StashKey[list[str]]()
"""`sys.path` when the first test began."""

# No deadline: a busy machine must not fail a property. Hypothesis keeps failed examples in the checkout, and warns, which is
# an error here, where it cannot.
KEPT: dict[str, Any] = {} if os.access(ROOT, os.W_OK) else {"database": None}
settings.register_profile("all", settings(), deadline=None, **KEPT)
settings.register_profile("sample", settings(), deadline=None, max_examples=5, stateful_step_count=30, **KEPT)

# Read once: tests of the command line run without variables of toolcrib.
SHARED_DATA = Path(os.environ.get("TOOLCRIB_SHARED_DATA") or ROOT.parent / "shared" / "data")
"""The real data that lies beside the checkout, or where TOOLCRIB_SHARED_DATA says."""

# Not TOOLCRIB_...: `toolcrib doctor` warns of such a variable if it has no effect.
EXHAUSTIVE = "EXHAUSTIVE_TESTS"

MEMORY = "/dev/shm"
"""Where Linux keeps files in memory: a folder for a test costs a fifth of what it costs on a disk, and no file waits for one."""


def keeps_files(folder: str) -> bool:
    """Whether tests can have their temporary files in a folder: they run programs there, and write some 100 MB."""
    if not os.access(folder, os.W_OK):
        return False
    room = os.statvfs(folder)
    return not room.f_flag & os.ST_NOEXEC and room.f_bavail * room.f_frsize > 1 << 30


# pytest looks there for its folders of temporary files, and does not remove those of the last three runs.
if keeps_files(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--exhaustive` and `hang_timeout`."""
    parser.addini(
        "hang_timeout", "seconds after which a test that hangs ends its worker; 0 for never", default="0"
    )
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="run all examples of properties and the tests marked `exhaustive`, instead of a sample",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose between everything and a sample, before test modules ask `sampling`."""
    # Through the environment: a pytest that a test runs in this process must not change the choice.
    if config.getoption("--exhaustive"):
        os.environ[EXHAUSTIVE] = "1"
    settings.load_profile("all" if EXHAUSTIVE in os.environ else "sample")
    if EXHAUSTIVE not in os.environ:
        # Hypothesis reads the source of every module of the checkout for constants to try, and sorts them out for each kind
        # of value: more work than that of the few examples of a sample.
        providers._get_local_constants = Constants  # there is no setting for it
    distribution.choose_files(config)
    whole = (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS and "PYTEST_XDIST_WORKER" not in os.environ
    )
    if whole and EXHAUSTIVE not in os.environ and hasattr(os, "pidfd_open"):
        config.pluginmanager.register(ForkedCommands())
    if "PYTEST_XDIST_WORKER" in os.environ and not (
        config.getoption("xmlpath") or config.getoption("durations")
    ):
        config.pluginmanager.register(FewReports())


class FewReports:
    """Of the setup and the teardown of a test, a worker of xdist reports only what did not pass.

    Two thirds of the reports say that they passed, which nobody reads; together they take half a minute of processor time.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test as pytest does, without a word before it or after it, which nobody reads either."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:
                report.keywords = {}  # a dozen words that only a plugin would read
                item.ihook.pytest_runtest_logreport(report=report)
        return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> Any:
    """Distribute a whole run by files, of which each worker collects a part."""
    if config.getoption("dist") != "loadfile" or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return None
    return distribution.FileScheduler(config, len(config.getoption("tx")))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(autouse=True, scope="session")
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What all tests find around them. One fixture, since each one costs every test a tenth of a millisecond.

    - No test reads or writes the folders for caches and state of whoever runs it.
    - One root certificate stands for all: each client of httpx reads them anew, which takes longer than most tests.
    - What tests write, they trust; those of trust itself take this away.
    - Processes that tests start obey Ctrl-C and a hang-up, whatever started the tests; at the end none runs any more.
    """
    roots = Path(certifi.where()).read_text(encoding="ascii")
    one = tmp_path_factory.mktemp("roots") / "one.pem"
    one.write_text(roots[: roots.index("-----END CERTIFICATE-----\n") + 26], encoding="ascii")
    with pytest.MonkeyPatch.context() as patch, leftovers.default_signals(), leftovers.marked() as mark:
        patch.setattr(certifi, "where", lambda: str(one))
        patch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.setenv("TOOLCRIB_TRUST", "all")
        yield
        left = leftovers.left_by_session(mark)
    leftovers.end(left)
    assert not left, "\n".join(map(str, left))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Note which processes run before a test: it leaves no others. End the worker if the test hangs.

    After the last test of a file, remove what runtimes have added to `sys.path`: other files do not find it.
    """
    watch_for_hang(item.config)
    if RUNNING not in item.config.stash:
        item.config.stash[RUNNING] = leftovers.children()
    searched = item.config.stash.setdefault(SEARCHED, [*sys.path])
    result = yield
    if nextitem is None or nextitem.path != item.path:
        sys.path[:] = searched
    return result


ARMED = pytest.StashKey[float]()
"""When the watch for a test that hangs began."""


def watch_for_hang(config: pytest.Config) -> None:
    """Let this process print where its threads are, and end, `hang_timeout` seconds from now, or up to ten earlier.

    pytest can do this (`faulthandler_timeout`), but starts a thread for each test and waits for its end, which on busy cores
    takes longer than most of the tests.
    """
    seconds, now = float(config.getini("hang_timeout")), monotonic()
    if seconds and now - config.stash.get(ARMED, -inf) > 10:
        config.stash[ARMED] = now
        file = config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)


def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest has just ended the watch."""
    node.config.stash[ARMED] = -inf


def pytest_unconfigure(config: pytest.Config) -> None:
    """No test can hang any more."""
    if ARMED in config.stash:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that leaves a process behind fails, instead of the tests after it."""
    result = yield
    before = item.config.stash[RUNNING]
    running = item.config.stash[RUNNING] = leftovers.children() if leftovers.has_children() else set()
    left = leftovers.left_by(item.nodeid, running - before)
    leftovers.end(left)
    assert not left, "\n".join(map(str, left))
    return result


FOLDERS = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, as pytest gives it, but without a link to the last one with its name, which costs as much again."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}{next(FOLDERS)}", numbered=False)


@pytest.fixture(scope="session")
def aimock() -> Iterator[Any]:
    """A server that speaks like OpenAI and Anthropic (`aimock.py`): one for all tests of a process."""
    from aimock import running  # type: ignore[import-not-found] # noqa: PLC0415 -- most tests need no Node

    with running() as server:
        yield server


FORKING = "forking"
"""What tells a worker of xdist the folder of the forked commands."""


class ForkedCommands:
    """One process forks the commands of all workers of a whole run, since it takes 2 s to start."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._place = Path()
        self._mark = ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Start it before the first worker, and tell each worker where it is."""
        if not self._mark:
            from forking import forked_command  # type: ignore[import-not-found] # noqa: PLC0415 -- not for a few tests

            folder = Path(self._stack.enter_context(TemporaryDirectory()))
            with leftovers.default_signals(), leftovers.marked() as self._mark:
                self._place = self._stack.enter_context(
                    forked_command(Path(sys.executable), folder, wait=False)
                )
        node.workerinput[FORKING] = str(self._place)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End it, once the workers have ended; nothing that it forked is left."""
        self._stack.close()
        left = leftovers.left_by_session(self._mark) if self._mark else []
        leftovers.end(left)
        if left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(*left, sep="\n", file=sys.stderr)  # noqa: T201


@pytest.fixture(scope="session")
def forked_servers(
    request: pytest.FixtureRequest, _surroundings: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Let `commands` and `mcp_sdk_server` start programs by forking one process."""
    import commands  # type: ignore[import-not-found] # noqa: PLC0415 -- most tests start no program
    import mcp_sdk_server  # type: ignore[import-not-found] # noqa: PLC0415 -- as above
    from forking import forked_command  # noqa: PLC0415 -- as above

    told = getattr(request.config, "workerinput", {}).get(FORKING)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        place = (
            Path(told)
            if told
            else stack.enter_context(forked_command(Path(sys.executable), tmp_path_factory.mktemp("forking")))
        )
        patch.setattr(commands, "TOOLCRIB", [str(place / "toolcrib")])
        patch.setattr(commands, "PYTHON", [str(place / "python")])
        patch.setattr(mcp_sdk_server, "PYTHON", str(place / "python"))
        yield


STARTING = {"chatting", "commands", "mcp_calling", "mcp_sdk_server", "opening_again", "serving_mcp"}
"""The modules that start programs for tests."""


def fork_programs(items: list[Any]) -> None:
    """Let the tests of modules that use one of `STARTING` have `forked_servers`.

    An `autouse` fixture would cost all other tests time.
    """
    for module, tests in groupby(items, key=lambda item: getattr(item, "module", None)):
        if not STARTING.isdisjoint(
            getattr(each, "__module__", "") for each in vars(module or object).values()
        ):
            for item in tests:
                if "forked_servers" not in item.fixturenames:  # instances of a test share the list
                    item.fixturenames.insert(0, "forked_servers")


@pytest.fixture
def shared_data() -> Path:
    """The real data beside the checkout; a test that asks for it is skipped only where there is none."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"there is no {SHARED_DATA}")
    return SHARED_DATA


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the garbage collector away from the tests that were collected, which live until the end."""
    # It would walk through all of them again and again: a fifth of the time of a collection.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Servers ask whether anything is frozen. Python walks through all of it for the answer: tens of milliseconds each time.
        count = gc.get_freeze_count()
        gc.get_freeze_count = lambda: count
        gc.set_threshold(
            50_000, 20, 20
        )  # the tests make little garbage in cycles; looking for it took 8 % of their time
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses `shared_data`, fork where programs are started, and deselect what is `exhaustive`.

    If everything is run, nothing is forked or deselected.
    """
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        items.sort(key=lambda item: str(item.path))  # the same for all workers, wherever they began
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_data)
    if EXHAUSTIVE in os.environ:
        return
    if hasattr(os, "pidfd_open"):
        fork_programs(items)
    chosen = [item for item in items if item.get_closest_marker("exhaustive") is None]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("exhaustive") is not None]
        )
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function has an event loop of its own.

    One that waits for ever fails where it waits, somewhat before `hang_timeout` would end the whole worker.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    most = 2 / 3 * float(pyfuncitem.config.getini("hang_timeout"))

    async def run() -> None:
        async with asyncio.timeout(most or None):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})

    asyncio.run(run())
    return True


def may_skip(item: pytest.Item) -> bool:
    """Whether a test may be skipped here: anywhere by hand, in CI only for want of the shared data."""
    if os.environ.get("CI") != "true":
        return True
    return item.get_closest_marker("shared_data") is not None and not SHARED_DATA.is_dir()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """In CI a skipped test is a failed one."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and not may_skip(item):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips nothing: {call_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """In CI a skipped module is a failed one."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped as a whole, and CI skips nothing: {call_reason(report)}"
        )
    return report


def call_reason(report: Any) -> str:
    """Why a test was skipped, as its author wrote it."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were skipped, also when it is none."""
    terminalreporter.write_line(f"{len(terminalreporter.stats.get('skipped', ()))} tests skipped")
