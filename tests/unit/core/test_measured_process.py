"""A process that is killed when its event loop is about to close."""

import asyncio
import gc
import os
import sys
import warnings

import pytest

from toolcrib.core.measured_process import AVAILABLE, MeasuredProcess

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="processes are measured on Linux alone")


async def killed():
    protocol = asyncio.SubprocessProtocol()
    argv = [sys.executable, "-c", "input()"]
    process = await MeasuredProcess.start(protocol, argv, env={**os.environ}, cwd=None, stdin=True)
    process.close()


def test_a_loop_that_closes_before_it_notices_the_end_leaves_no_warning():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(killed())
        loop.close()
        del loop
        gc.collect()
    assert [str(each.message) for each in seen if "still running" in str(each.message)] == []
