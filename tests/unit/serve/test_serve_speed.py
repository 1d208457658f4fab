"""What keeps short calls fast: garbage collections without the tools."""

from __future__ import annotations

import gc
import weakref

import pytest

from toolcrib.serve.http_common.lifecycle import YOUNG, frozen_heap


class Tool:
    pass


def forgotten_tool():
    tool = Tool()
    tool.itself = tool
    return tool, weakref.ref(tool)


@pytest.fixture
def thawed():
    """No object is frozen: a plugin of the test run may have frozen some."""
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_collections_leave_out_the_tools_until_they_are_replaced():
    before = gc.get_threshold()
    tool, seen = forgotten_tool()
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


def test_a_program_that_freezes_its_own_heap_keeps_it():
    before = gc.get_threshold()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with frozen_heap() as renew:
            renew()
            assert gc.get_threshold() == before
        assert gc.get_freeze_count() >= frozen
    finally:
        gc.unfreeze()
