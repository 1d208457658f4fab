"""Rules of a scenario's own mocks, and replies of their lists, that no call of a run used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from toolcrib.loading.scenarios import Scenario
from toolcrib.pointers import pointer_step
from toolcrib.scenarios.reports import Failure
from toolcrib.session import Session

WHAT = "unused_rules"
"""What such failures are about."""


def unused(session: Session, scenario: Scenario) -> Iterator[Failure]:
    """A failure for each of them. A mock that is one reply has none."""
    from toolcrib.executors.mock.scope import MockState, slot_of  # noqa: PLC0415 -- most runs have no own mocks

    for tool, block in scenario.mocks.items():
        if isinstance(block, dict) and ("rules" in block or "sequence" in block):
            used = session.slot(slot_of(tool), MockState).used
            for what, place in _unused_in(block, used):
                line = f"no call used {what} in the mock of `{tool}`"
                pointer = f"/mocks/{pointer_step(tool)}{place}"
                yield Failure(WHAT, (line,), pointer)


def _unused_in(block: Mapping[str, Any], used: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """What was not used, in words, and where it stands in the block."""
    if "sequence" in block:
        yield from _replies(block["sequence"], used.get("/mock/sequence", 0), "the sequence", "/sequence")
        return
    counts = [used.get(f"/mock/rules/{index}", 0) for index in range(len(block["rules"]))]
    if not any(counts) and len(counts) > 1:
        yield f"any of the {len(counts)} rules", "/rules"
        return
    for index, (rule, count) in enumerate(zip(block["rules"], counts, strict=True)):
        label = f"`{rule['name']}`" if "name" in rule else f"rule {index + 1}"
        place, reply = f"/rules/{index}", rule["reply"]
        if count and isinstance(reply, list):
            yield from _replies(reply, count, label, f"{place}/reply")
        elif not count:
            yield label, place


def _replies(replies: Sequence[Any], count: int, owner: str, place: str) -> Iterator[tuple[str, str]]:
    """The replies of a list that are left after so many calls: they answer in their order."""
    ends = accumulate(reply.get("times", 1) for reply in replies)
    given = 0 if not count else 1 + sum(end < count for end in ends)
    left = len(replies) - given
    if not given:
        yield owner, place
    elif left > 0:
        which = f"reply {given + 1}" if left == 1 else f"replies {given + 1} to {len(replies)}"
        yield f"{which} of {owner}", f"{place}/{given}"
