"""How the test files of a whole run are distributed among the workers of xdist.

xdist has every worker collect every test, which takes ten seconds. Here each worker collects a part of the files, which it alone
runs, and half of the files of `COMMON`, which take longest: they are given one by one to whoever has nothing else left and has
collected them.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent

COMMON = ("docs", "integration")
"""The folders whose files half of the workers collect. Those of the first are run first: one takes longer than all others."""


SOURCE = (
    "architecture/test_modules.py",
    "architecture/test_one_check.py",
    "architecture/test_private_members.py",
    "docs/test_reference.py",
)
"""The files that read the source of the package through `source_trees.py`: they are of the first worker."""


def reads_source(path: Path) -> bool:
    return path.relative_to(TESTS).as_posix() in SOURCE


def is_common(path: Path) -> bool:
    return path.relative_to(TESTS).parts[0] in COMMON and not reads_source(path)


def files_of(worker: int, count: int) -> list[Path]:
    """The files that a worker collects.

    Each begins elsewhere: the first to read a module keeps it with its asserts rewritten, and in a fresh checkout all would
    rewrite the same ones side by side.
    """
    files = sorted(TESTS.rglob("test_*.py"))
    common = [path for path in files if is_common(path)]
    own = [path for path in files if not is_common(path) and not reads_source(path)][worker::count]
    if worker == 0:
        own = [*filter(reads_source, files), *own]
    if count > 3:  # with fewer, a half would be given to one worker alone
        common = common[worker % 2 :: 2]
    first = worker * len(common) // count
    return [*own, *common[first:], *common[:first]]


def choose_files(config: pytest.Config) -> None:
    """Let a worker of a whole run collect its files."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        config.args[:] = map(str, files_of(int(worker.removeprefix("gw")), count))


class FileScheduler:
    """Sends each worker the tests that it alone has collected, and then the files that all have, one after the other.

    It implements `xdist.scheduler.Scheduling`. The tests of a worker that died are lost: `--max-worker-restart=0` ends the run.
    """

    def __init__(self, config: pytest.Config, workers: int) -> None:
        self._config = config
        self._workers = workers
        self._tests: dict[Any, list[str]] = {}
        self._sent: dict[Any, deque[int]] = {}
        self._files: list[list[str]] | None = None
        self._indices: dict[Any, dict[str, int]] = {}

    @property
    def nodes(self) -> list[Any]:
        return [*self._sent]

    @property
    def collection_is_completed(self) -> bool:
        return len(self._tests) >= self._workers

    @property
    def tests_finished(self) -> bool:
        # A worker runs its last test only once it is told that no other follows.
        return (
            self._files is not None and not self._files and all(len(each) < 2 for each in self._sent.values())
        )

    @property
    def has_pending(self) -> bool:
        return bool(self._files) or any(self._sent.values())

    def add_node(self, node: Any) -> None:
        self._sent[node] = deque()

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker; returns the test in which it died, if it did."""
        left = self._sent.pop(node)
        return self._tests[node][left[0]] if left else None

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._tests[node] = list(collection)

    def schedule(self) -> None:
        """Begin, once all workers have collected their tests."""
        counted = Counter(test for tests in self._tests.values() for test in tests)
        common = {test: count for test, count in counted.items() if count > 1}
        every = sorted(
            common, key=lambda test: test.partition("::")[0]
        )  # those of a file stay in their order
        self._files = [[*group] for _, group in groupby(every, key=lambda test: test.partition("::")[0])]
        own = {
            node: [index for index, test in enumerate(tests) if test not in common]
            for node, tests in self._tests.items()
        }
        session = self._config.pluginmanager.get_plugin("session")
        session.testscollected = len(every) + sum(map(len, own.values()))
        for node, tests in self._tests.items():
            self._indices[node] = {test: index for index, test in enumerate(tests) if test in common}
            self._send(node, own[node])
            self._supply(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._sent[node].remove(item_index)  # the first one
        self._supply(node)

    def _send(self, node: Any, indices: Sequence[int]) -> None:
        if indices:
            self._sent[node].extend(indices)
            node.send_runtest_some(list(indices))

    def _supply(self, node: Any) -> None:
        """Send the next file to a worker that has hardly any tests left, or the end."""
        while len(self._sent[node]) <= 2 and not node.shutting_down:
            file = next((each for each in self._files if each[0] in self._indices[node]), None)
            if file is None:
                node.shutdown()
            else:
                self._files.remove(file)
                self._send(node, [self._indices[node][test] for test in file])

    def mark_test_pending(self, item: str) -> None:
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        raise NotImplementedError
