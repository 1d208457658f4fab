"""Agents that tests of the ACP client drive."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp_editors import check_message
from toolcrib.acp import Agent, TurnResult, WireLine
from toolcrib.provider import Segment, View

SDK_AGENT = Path(__file__).with_name("acp_sdk_agent.py")
FAULTY_AGENT = Path(__file__).with_name("acp_faulty_agent.py")


@asynccontextmanager
async def driving(*command: str, **options: Any) -> AsyncIterator[Any]:
    """A started agent, by default `acp_sdk_agent.py`. Every line that is sent to it is checked against the official schema."""
    asked: dict[Any, str] = {}
    faults: list[str] = []

    def check(line: WireLine) -> None:
        message = line.message
        if line.direction == "in":
            if isinstance(message, dict) and "method" in message and "id" in message:
                asked[message["id"]] = message["method"]
            return
        try:
            check_message(message, asked)
        except Exception as error:  # noqa: BLE001 -- shown by the test
            faults.append(f"{error}: {message}")

    words = command or (sys.executable, str(SDK_AGENT))
    env = {"PYTHONPATH": os.pathsep.join(sys.path), **options.pop("env", {})}
    async with Agent([*words], env=env, observers=[check, *options.pop("observers", ())], **options) as agent:
        yield agent
    assert faults == []


class Dialogue:
    """The turns of an agent, seen through one view.

    Attributes:
        view: The view.
        violations: What the agent did against the protocol.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.view = View()
        self.violations: list[str] = []

    async def say(self, *parts: Any, **options: Any) -> tuple[tuple[Segment, ...], TurnResult]:
        """Have a turn, and return its segments and its result."""
        before = len(self.view.segments)
        turn = self._agent.prompt(*parts, **options)
        async for event in turn:
            assert self.view.apply(event)
            assert self.view.missing is None
            if event.type == "violation":
                self.violations.append(event.text)
        assert turn.result is not None
        return self.view.segments[before:], turn.result


def text_of(segments: Sequence[Segment]) -> str:
    """The text of the agent."""
    return "".join(segment.text for segment in segments if segment.kind == "text")


def ends(segments: Sequence[Segment]) -> dict[str, tuple[str, str, str]]:
    """ID of each call -> its last status, its outcome and its text."""
    calls = [segment for segment in segments if segment.kind == "call"]
    return {segment.id: (segment.status, segment.outcome, segment.text) for segment in calls}
