"""An MCP server over stdio that repeats the secrets it was given, in everything it says. Standard library only.

    KEY=... python tests/echoing_server.py --token ...

Its secrets are the variables `KEY`, `API_TOKEN` and `PIN_CODE`, and what follows `--token`. It lists one good tool, `good`,
whose every part repeats them in every form; tools whose names hold one; and tools that are none. A call of `good` answers
as `how` says: `fit`, `misfit`, `garbage`, `part`, `image`, `link`, `failed`, `cut`, `error`, `deep` (see `answer`).
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any


def forms(secret: str) -> dict[str, str]:
    """A secret in every form in which a server may repeat it."""
    raw = secret.encode()
    encoded = base64.b64encode(b"user:" + raw * 2).decode()
    return {
        "plain": secret,
        "base64": base64.b64encode(raw).decode(),
        "wrapped": "\n".join(encoded[start : start + 20] for start in range(0, len(encoded), 20)),
        "hex": raw.hex(),
        "digits": ":".join(f"{byte:02X}" for byte in raw),
        "bytes": ", ".join(f"0x{byte:02x}" for byte in raw),
        "capitals": secret.upper(),
        "swapped": secret.swapcase(),
        "spaced": " ".join(secret),
        "dotted": ".".join(secret),
        "lines": "\n".join(secret[start : start + 6] for start in range(0, len(secret), 6)),
        "unseen": "\u200b".join(secret),
        "both": "\u2060".join(secret.upper()),
        "wide": "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in secret),
        "escaped": "".join(f"\\u{ord(each):04x}" for each in secret),
    }


def secrets() -> list[str]:
    """What this process was given."""
    after = sys.argv[sys.argv.index("--token") + 1 :][:1] if "--token" in sys.argv else []
    return [os.environ[name] for name in ("KEY", "API_TOKEN", "PIN_CODE") if name in os.environ] + after


def good(said: list[str]) -> dict[str, Any]:
    """A tool whose definition is made of these texts."""
    text = " | ".join(said)
    names = {f"{each} {place}": {"type": "string", "title": each} for place, each in enumerate(said)}
    inputs = {
        "$comment": text,
        "type": "object",
        "title": text,
        "required": ["how"],
        "properties": {
            "how": {"type": "string", "description": text, "examples": said, "enum": [*HOWS, *said]},
            "with_default": {"type": "string", "default": said[0]},
            "with_number": {
                "type": "integer",
                "default": int(PIN),
                "maximum": int(PIN),
                "examples": [int(PIN)],
            },
            "with_pattern": {
                "type": "string",
                "pattern": f"^{said[0]}$",
                "const": said[0],
                "format": said[0],
            },
            "nested": {
                "type": "object",
                "properties": names,
                "patternProperties": {said[0]: {"const": text}},
            },
            "referred": {"anyOf": [{"$ref": f"#/$defs/{each}"} for each in said[:1]]},
            **names,
        },
        "$defs": {each: {"type": "string", "description": each} for each in said},
        **{f"x-{each}": {each: [each]} for each in said},
    }
    outputs = {
        "type": "object",
        "description": text,
        "properties": {"sum": {"type": "integer", **inputs["$defs"]}},
    }
    return {
        "name": "good",
        "title": " | ".join(said[::5]),
        "description": f"Adds numbers. {text}",
        "inputSchema": inputs,
        "outputSchema": {**outputs, "required": ["sum"]},
        "annotations": {"title": text, "readOnlyHint": True, text: text},
        "icons": [{"src": f"https://icons.example.com/{each}", "mimeType": each} for each in said[::2]],
        "_meta": {each: {each: [each, {each: each}]} for each in said},
        **{each: each for each in said},
    }


PIN = os.environ.get("PIN_CODE", "84615273")
HOWS = ("fit", "misfit", "garbage", "part", "image", "link", "failed", "cut", "error", "deep")


def listed(said: list[str]) -> list[Any]:
    named = [{"name": each[:1000], "inputSchema": {"type": "object"}} for each in said]
    bad: list[Any] = [
        {"name": "no_schema", "inputSchema": said[0]},
        {"name": "odd_parts", "description": said, "annotations": said, "inputSchema": {"type": "object"}},
        {"name": "too_deep", "inputSchema": {"type": "object", said[0]: [[[[1e999]]]]}},
        {"name": said[0], "inputSchema": None},
        said[0],
        {said[0]: said[0]},
    ]
    return [good(said), *named, *bad]


def answer(how: str, at: int, said: list[str]) -> dict[str, Any]:
    """What a call is answered with: `result` or `error`. Of a message that is cut, a secret stands at this character."""
    long = "x " * (at // 2) + said[0] + " y" * 90
    text = {"type": "text", "text": " | ".join(said)}
    results: dict[str, Any] = {
        "fit": {"content": [text], "structuredContent": {"sum": 3, **{each: each for each in said}}},
        "misfit": {"content": [text], "structuredContent": {"sum": said, said[0]: {"pin": int(PIN)}}},
        "garbage": {"content": {each: each for each in said}, said[0]: [text]},
        "part": {"content": [text, {"type": said[0] * 3, "x": said}, {"type": said[0]}]},
        "image": {"content": [text, {"type": "image", "data": said[0], "mimeType": said[0]}]},
        "link": {
            "content": [
                {
                    "type": "resource_link",
                    "uri": f"https://x.example/?a={each}",
                    "name": each,
                    "mimeType": each,
                }
                for each in said
            ]
        },
        "failed": {"isError": True, "content": [text], "structuredContent": {"why": said}},
        "cut": {"isError": True, "content": [{"type": "text", "text": long}]},
        "deep": {"content": [text], "structuredContent": deep({"sum": said})},
    }
    if how == "error":
        return {"error": {"code": -32001, "message": long, "data": {"seen": said[0]}}}
    return {"result": results[how]}


def deep(value: Any) -> Any:
    for _ in range(150):
        value = {"a": value}
    return value


def serve() -> None:
    said = [form for secret in secrets() for form in forms(secret).values()]
    about = {"name": "echoing", "version": said[0], "title": " | ".join(said)}
    for line in sys.stdin:
        asked = json.loads(line)
        method, params = asked["method"], asked.get("params") or {}
        told: dict[str, Any] = {"error": {"code": -32601, "message": said[0]}}
        if method == "initialize":
            version = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            told = {"result": {**version, "serverInfo": about, "instructions": "\n".join(said)}}
        elif method == "tools/list":
            told = {
                "result": {"tools": listed(said) if "cursor" not in params else [], "nextCursor": said[0]}
            }
        elif method == "tools/call":
            told = answer(params["arguments"]["how"], params["arguments"].get("at", 0), said)
        if "id" in asked:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    serve()
