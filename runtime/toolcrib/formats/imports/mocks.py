"""A mock for an imported tool, so that it can be called at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.expressions import escape_expressions

_UNKNOWN: Final = {
    "error": {
        "code": "not_mocked",
        "message": "the source of this tool contains no example of a result; write one here: `mock: {result: ...}`",
    }
}


def with_mock(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    """A descriptor with a mock: of its examples, else of its output schema.

    Where neither is known, the mock is an error: a result would be invented. A descriptor that has a mock or
    another mode keeps it.
    """
    if "mock" in descriptor:
        return dict(descriptor)
    mode = {} if descriptor.get("mode") else {"mode": "mock"}
    return {**descriptor, **mode, "mock": _mock(descriptor)}


def _mock(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    known = [each for each in descriptor.get("examples", ()) if "result" in each]
    if not known:
        schema = descriptor.get("output_schema")
        return {"generate": True} if schema is not None and schema is not True else dict(_UNKNOWN)
    rest = {"result": escape_expressions(known[0]["result"])}
    if len(known) == 1:
        return rest
    rules = [
        {"when": {"args": each["args"]}, "reply": {"result": escape_expressions(each["result"])}}
        for each in known
        if each.get("args")
    ]
    return {"rules": [*rules, {"reply": rest}]}
