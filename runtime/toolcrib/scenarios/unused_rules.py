"""Rules of a scenario's own mocks, and replies of their lists, that no call of a run used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import once_for_each
from toolcrib.engine.session import Session
from toolcrib.executors.mock.variables import MockState, slot_of
from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.scenarios.reports import ScenarioFailure

WHAT = "unused_rules"
"""What such failures are about."""


def unused_rules(session: Session, scenario: Scenario) -> list[ScenarioFailure]:
    """A failure for each of them. A mock that is one reply has none."""
    found: list[ScenarioFailure] = []
    blocks: Mapping[str, Any] = scenario.mocks
    for tool, block in blocks.items():
        wanted = _wanted(block)
        if not wanted:
            continue
        used = session.slot(slot_of(tool), MockState).used
        for place, calls in wanted:
            if used.get(place, 0) < calls:
                found += _told(tool, block, used)
                break
    return found


@once_for_each
def _wanted(block: Any) -> tuple[tuple[str, int], ...]:
    """Where the calls of a mock are counted, and how many use all that is there: most runs make so many."""
    if not isinstance(block, dict):
        return ()
    if "sequence" in block:
        return (("/mock/sequence", _begins_last(block["sequence"])),)
    return tuple(
        (f"/mock/rules/{index}", _begins_last(rule["reply"]) if isinstance(rule["reply"], list) else 1)
        for index, rule in enumerate(block.get("rules", ()))
    )


def _begins_last(replies: Sequence[Any]) -> int:
    """The first call that the last of some replies answers."""
    times: Iterable[int] = (reply.get("times", 1) for reply in replies[:-1])
    return 1 + sum(times)


def _told(tool: str, block: Mapping[str, Any], used: Mapping[str, int]) -> Iterator[ScenarioFailure]:
    for what, place in _unused_in(block, used):
        line = f"no call used {what} in the mock of `{tool}`"
        yield ScenarioFailure(WHAT, (line,), f"/mocks/{pointer_step(tool)}{place}")


def _unused_in(block: Mapping[str, Any], used: Mapping[str, int]) -> list[tuple[str, str]]:
    """What was not used, in words, and where it stands in the block."""
    if "sequence" in block:
        return _replies(block["sequence"], used.get("/mock/sequence", 0), "the sequence", "/sequence")
    rules, found = block["rules"], []
    for index, rule in enumerate(rules):
        count, reply = used.get(f"/mock/rules/{index}", 0), rule["reply"]
        if not count:
            found.append((_label(rule, index), f"/rules/{index}"))
        elif isinstance(reply, list):
            found += _replies(reply, count, _label(rule, index), f"/rules/{index}/reply")
    if len(found) == len(rules) > 1 and not any(key.startswith("/mock/rules/") for key in used):
        return [(f"any of the {len(rules)} rules", "/rules")]
    return found


def _label(rule: Mapping[str, Any], index: int) -> str:
    return f"`{rule['name']}`" if "name" in rule else f"rule {index + 1}"


def _replies(replies: Sequence[Any], count: int, owner: str, place: str) -> list[tuple[str, str]]:
    """The replies of a list that are left after so many calls: they answer in their order."""
    if not count:
        return [(owner, place)]
    ends = accumulate(reply.get("times", 1) for reply in replies)
    given = 1 + sum(end < count for end in ends)
    left = len(replies) - given
    if left <= 0:
        return []
    which = f"reply {given + 1}" if left == 1 else f"replies {given + 1} to {len(replies)}"
    return [(f"{which} of {owner}", f"{place}/{given}")]
