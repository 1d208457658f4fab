"""Agents that tests of the ACP client drive."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp_editors import check_message
from toolcrib.acp import Agent, WireLine

SDK_AGENT = Path(__file__).with_name("acp_sdk_agent.py")


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
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    async with Agent([*words], env=env, observers=[check, *options.pop("observers", ())], **options) as agent:
        yield agent
    assert faults == []


def texts(updates: list[Mapping[str, Any]]) -> list[str]:
    """The texts of messages and of the content of calls, in order."""
    found = []
    for update in updates:
        content = update.get("content")
        for each in content if isinstance(content, list) else [content]:
            inner = each.get("content", each) if isinstance(each, dict) else {}
            if isinstance(inner.get("text"), str):
                found.append(inner["text"])
    return found


def ends(updates: list[Mapping[str, Any]]) -> dict[str, str]:
    """The last status of each call."""
    return {
        each["toolCallId"]: each["status"] for each in updates if "toolCallId" in each and "status" in each
    }
