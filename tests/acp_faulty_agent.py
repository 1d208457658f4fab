"""An agent that breaks the protocol, written without an SDK: the words of a prompt select what it does.

Options: `--silent` answers nothing, `--version N` answers with this version, `--refuse-session` refuses sessions.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ASKED: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def update(told: dict[str, Any], session: str = "one") -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": told}})


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request, and return its answer."""
    send({"id": "q", "method": method, "params": params})
    while True:
        answer: dict[str, Any] = json.loads(sys.stdin.readline())
        if answer.get("id") == "q":
            return answer


def permission(kinds: list[str], **call: Any) -> dict[str, Any]:
    options = [{"optionId": f"o{number}", "name": kind, "kind": kind} for number, kind in enumerate(kinds)]
    told = {"toolCallId": "c", "title": "Work", "kind": "execute", **call}
    update({"sessionUpdate": "tool_call", "status": "pending", **told})
    return request(
        "session/request_permission",
        {"sessionId": "one", "toolCall": {"toolCallId": "c"}, "options": options},
    )


def do_garbage(_rest: str) -> None:
    sys.stdout.write('a banner\n\n[1, 2]\n{"jsonrpc": "2.0", "a": 1, "a": 2}\n\xff\n')


def do_long(rest: str) -> None:
    sys.stdout.write("x" * int(rest) + "\n")


def do_strays(_rest: str) -> None:
    send({"id": 99, "result": {"outcome": {"outcome": "cancelled"}}})
    send({"id": None, "result": {}})
    send({"method": "session/update", "params": None})
    send({"method": "session/update", "params": {"sessionId": "one", "update": {}}})
    send({"method": "unknown/notification", "params": {}})
    update({"sessionUpdate": "tool_call_update", "toolCallId": "ghost", "status": "completed"})
    update(
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "lost"}}, session="two"
    )


def do_ask(rest: str) -> None:
    answer = permission(rest.split())
    update({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"})
    say(json.dumps(answer))


def do_request(rest: str) -> None:
    method, _, params = rest.partition(" ")
    say(json.dumps(request(method, json.loads(params))))


def do_stop(rest: str) -> str:
    return rest


def do_deaf(_rest: str) -> str:
    """Never answer, whatever comes."""
    update({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Deaf", "status": "in_progress"})
    while sys.stdin.readline():
        pass
    return "end_turn"


def do_error(rest: str) -> str:
    raise ValueError(rest)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if "--silent" in sys.argv or method is None:
            continue
        if method == "initialize":
            version = int(sys.argv[sys.argv.index("--version") + 1]) if "--version" in sys.argv else 1
            send({"id": id_, "result": {"protocolVersion": version, "agentCapabilities": {}}})
        elif method == "session/new" and "--refuse-session" in sys.argv:
            send({"id": id_, "error": {"code": -32000, "message": "Authentication required"}})
        elif method == "session/new":
            # Before the answer: some agents are that fast.
            update({"sessionUpdate": "available_commands_update", "availableCommands": []})
            send({"id": id_, "result": {"sessionId": "one"}})
        elif method == "session/prompt":
            word, _, rest = message["params"]["prompt"][0]["text"].partition(" ")
            try:
                stop = globals()[f"do_{word}"](rest)
            except ValueError as error:
                send({"id": id_, "error": {"code": -32603, "message": str(error)}})
            else:
                send({"id": id_, "result": {"stopReason": stop or "end_turn"}})


if __name__ == "__main__":
    main()
