"""The messages between the runtime and a worker process: JSON arrays, one per line, whose first item is the kind.

| from the runtime | meaning |
|---|---|
| `start, order` | Import the tool; `order` has the fields of `WorkerOrder`. |
| `call, arguments, context` | Run a call. |
| `secret, value, code, message` | The secret that a call asked for; null and why not if there is none. |

| from the worker | meaning |
|---|---|
| `ready, description` | The tool is imported; `description` has the fields of `ToolDescription`. With problems, the worker ends. |
| `refused, code, message` | The tool cannot be a tool. |
| `progress ...`, `partial, content` | The call reports progress. |
| `refusal, list, message` | `access` refuses a file that the call opens; see `report_refusal`. |
| `secret, name` | The call asks for a secret. |
| `value, value`, `result, fields`, `invalid, violations`, `unwritable, message`, `too_large, bytes` | The call ended. |
| `cancelled`, `missing_secret, message`, `path_refused, message` | The call cancelled itself, or it failed since there is no such secret, or a file is refused. |
| `raised, class, text, traceback`, `uninitialised, class, text, traceback` | An exception ended it. |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Content, Failure, Outcome, Result, Schema
from toolcrib.security.path_access import EVERYWHERE

_ENCODE: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


def _as_line(message: Any) -> bytes:
    return f"{_ENCODE(message)}\n".encode()


_to_line: Callable[[Any], bytes] = _as_line
_from_line: Callable[[bytes], Any] = json.loads
try:
    # The extra `typed`, which typed functions need anyway. A warm call takes a fifth longer without it.
    import pydantic_core
except ImportError:
    pass
else:
    _from_line = pydantic_core.from_json

    def _to_line(message: Any) -> bytes:
        return pydantic_core.to_json(message) + b"\n"


def encode(*message: Any) -> bytes:
    """The line of a message.

    Raises:
        TypeError: An object has no JSON form.
    """
    return _as_line(message)


def encode_plain(*message: Any) -> bytes:
    """The line of a message of JSON values and tuples only: the same as `encode`, but faster."""
    try:
        return _to_line(message)
    except ValueError:  # pydantic refuses lone surrogates and deep nesting
        return _as_line(message)


def decode(line: bytes) -> list[Any]:
    """The message of a line."""
    try:
        message: list[Any] = _from_line(line)
    except ValueError:  # as above
        message = json.loads(line)
    return message


class WorkerOrder(NamedTuple):
    """What a worker runs.

    Attributes:
        call: `module:name` of the function or class.
        block: The block `python`.
        schema: The input schema of the descriptor; None if the function provides it.
        output_size: Maximum size of a result in bytes.
        paths: The files that `session.paths` opens; see `PathAccess.fields`.
    """

    call: str
    block: Mapping[str, JSON]
    schema: Schema | None
    output_size: int
    paths: tuple[str, Sequence[str] | None, Sequence[str] | None, bool] = EVERYWHERE.fields


class ToolDescription(NamedTuple):
    """What a worker finds out about its tool.

    Attributes:
        text: The description in the docstring.
        input_schema: JSON Schema of the arguments.
        output_schema: JSON Schema of the result; None if it is not declared.
        context: Whether calls receive the context.
        problem_fields: The fields of each problem.
    """

    text: str
    input_schema: dict[str, JSON]
    output_schema: dict[str, JSON] | None
    context: bool
    problem_fields: list[tuple[Any, ...]]

    @property
    def problems(self) -> list[Problem]:
        """What does not fit the descriptor."""
        return [Problem(*fields) for fields in self.problem_fields]


def result_as_json(result: Result) -> list[JSON]:
    """A complete result as JSON, for `result_from_json`."""
    error = None if result.error is None else result.error.as_json()
    content: list[JSON] = [part.as_json() for part in result.content]
    return [
        result.outcome.value,
        result.value,
        content,
        result.message,
        error,
        dict(result.meta),
        result.raw_value,
    ]


def result_from_json(fields: list[Any]) -> Result:
    """The result that `result_as_json` wrote."""
    outcome, value, content, message, error, meta, raw_value = fields
    return Result(
        Outcome(outcome),
        value,
        tuple(Content(**part) for part in content),
        message,
        None if error is None else Failure(**error),
        meta=meta or NOTHING,
        raw_value=raw_value,
    )
