"""What keeps short calls fast: garbage collections without the tools.

Each test is a program of its own: the objects of the tests are many, and are frozen.
"""

from __future__ import annotations

import subprocess

from commands import python_command

BEGINNING = """
import gc, weakref
from toolcrib.serve.http_common.lifecycle import YOUNG, frozen_heap

gc.unfreeze()
before = gc.get_threshold()

class Tool:
    pass
"""


def run(program: str) -> None:
    command = python_command("-W", "error", "-c", BEGINNING + program)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_collections_leave_out_the_tools_until_they_are_replaced():
    run("""
tool = Tool()
tool.itself = tool
seen = weakref.ref(tool)
with frozen_heap() as renew:
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == (max(YOUNG, before[0]), *before[1:])
    del tool
    gc.collect()
    assert seen() is not None
    renew()
    assert seen() is None
    assert gc.get_freeze_count() > 1000
assert gc.get_freeze_count() == 0
assert gc.get_threshold() == before
""")


def test_a_program_that_freezes_its_own_heap_keeps_it():
    run("""
gc.freeze()
frozen = gc.get_freeze_count()
with frozen_heap() as renew:
    renew()
    assert gc.get_threshold() == before
assert gc.get_freeze_count() >= frozen
""")
