"""Functions that answer what MCP servers ask: hooks of tests, named as `mcp_hooks:answer`."""

from __future__ import annotations

import logging
from typing import Any

from toolcrib import RealClock

asked: list[Any] = []
"""What they were asked, the last at the end."""


def answer(question: Any) -> dict[str, Any]:
    asked.append(question)
    return {"size": "large"}


async def answer_later(question: Any) -> dict[str, Any]:
    return answer(question)


def log_and_answer(question: Any) -> dict[str, Any]:
    logging.getLogger("client").warning("of the project")
    return answer(question)


async def log_and_answer_later(question: Any) -> dict[str, Any]:
    return log_and_answer(question)


def decline(_question: Any) -> None:
    return None


def fail(_question: Any) -> None:
    raise LookupError("s3cret")


def wrong(_question: Any) -> int:
    return 7


def nested(_question: Any) -> dict[str, Any]:
    return {"size": {"a": 1}}


def model(question: Any) -> str:
    asked.append(question)
    return f"{len(question.request['messages'])} message, {question.request['maxTokens']} tokens"


async def whole_model(_question: Any) -> dict[str, Any]:
    return {
        "model": "m1",
        "role": "assistant",
        "content": {"type": "text", "text": "hello"},
        "stopReason": "endTurn",
    }


not_a_function = 7


async def answer_slowly(question: Any) -> dict[str, Any]:
    await RealClock().sleep(3.0)
    return answer(question)
