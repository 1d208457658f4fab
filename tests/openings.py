"""What worker processes of the tests open: they import it by name, so it stands in a module of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import NamedTuple

from in_memory import loaded
from toolcrib import Call, Executors, Result, Runtime, Scenario
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.mock import MockExecutor
from toolcrib.scenarios import runs_of
from toolcrib.testing import FunctionExecutor

TOOLS = """
name: echo
input_schema: {}
mock: {result: {args: "{{ args }}", call: "{{ call }}", seed: "{{ seed }}"}, latency: 1s}
---
name: fatal
description: Ends the process that calls it, by a signal or with an exit code.
input_schema: {}
fatal: {}
---
"""


class Documents(NamedTuple):
    """Opens a runtime over a text of documents, with the tools `echo` and `fatal`.

    Attributes:
        text: The documents, most likely scenarios.
        parent: Id of the process that starts the workers.
        deadly: Whether to open it ends every other process.
        changed: Whether every other process reads something else.
    """

    text: str
    parent: int
    deadly: bool = False
    changed: bool = False

    def open(self) -> tuple[Runtime, Sequence[Scenario]]:
        """The runtime, and all runs of its scenarios."""
        elsewhere = os.getpid() != self.parent
        if self.deadly and elsewhere:
            os._exit(7)
        text = self.text.replace("scenario: ", "scenario: not_") if self.changed and elsewhere else self.text
        executors = Executors({"mock": MockExecutor, "fatal": lambda: FunctionExecutor(_end)})
        runtime = loaded_runtime(loaded(TOOLS + text, executors=executors), executors=executors)
        assert [str(problem) for problem in runtime.problems] == []
        return runtime, [run for scenario in runtime.scenarios for run in runs_of(scenario)]


class InterruptedStart(Documents):
    """Sends SIGINT to each process that reads it, which is before the worker's own code runs."""

    def __reduce__(self) -> tuple[object, ...]:
        return _interrupted, tuple(self)

    def open(self) -> tuple[Runtime, Sequence[Scenario]]:
        """As above, once programs that it starts can be interrupted."""
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return super().open()


def _interrupted(text: str, parent: int, deadly: bool, changed: bool) -> InterruptedStart:
    os.kill(os.getpid(), signal.SIGINT)
    return InterruptedStart(text, parent, deadly, changed)


async def _end(call: Call) -> Result:
    if "signal" in call.arguments:
        os.kill(os.getpid(), signal.Signals[str(call.arguments["signal"])])
    os._exit(int(str(call.arguments["code"])))
