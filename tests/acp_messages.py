"""Messages of ACP as they are on the wire, for tests that need no SDK."""

from __future__ import annotations

from typing import Any

NEW = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
ALL = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


def request(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def told(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def answer(id_: Any, result: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": {} if result is None else result}


def error(id_: Any, code: int, message: str = "no") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def update(session: str = "s", **update: Any) -> dict[str, Any]:
    return told("session/update", sessionId=session, update=update)


def chunk(text: str, session: str = "s", kind: str = "agent_message_chunk") -> dict[str, Any]:
    return update(session, sessionUpdate=kind, content={"type": "text", "text": text})


PROMPT = request(2, "session/prompt", sessionId="s", prompt=[{"type": "text", "text": "go"}])
CALL = update(sessionUpdate="tool_call", toolCallId="c", title="Edit")
ASK = request(
    1,
    "session/request_permission",
    sessionId="s",
    toolCall={"toolCallId": "c"},
    options=[
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
)
