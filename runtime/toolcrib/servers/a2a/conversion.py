"""Convert between A2A artifacts and results. The SDK is imported when a function is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Outcome, Result, Schema

if TYPE_CHECKING:
    from a2a.types import Artifact


def result_from_artifact(
    artifact: Artifact, output_schema: Schema | None = None, *, lenient: bool = False
) -> Result:
    """Return the result of a tool that an A2A artifact carries. Needs the extra `a2a`.

    The value is that of the data part, or the text of an artifact without one; other parts are `content`. Metadata of the
    artifact is in `meta["remote"]`, and `execution_time_ms` in `usage.remote_time`. Whole numbers, which A2A carries as
    doubles, are integers again. The value is not validated.

    Args:
        artifact: The artifact, in the type of the A2A SDK.
        output_schema: JSON Schema of the value. Where it has `type: number`, 5.0 stays a float.
        lenient: Whether the artifact may be without the mark `_tool_result`.

    Returns:
        A result with the outcome `ok`; `invalid_result` with the code `missing_result` if the artifact is not marked, and
        with the code `protocol_violation` if a part of it is not valid.

    Raises:
        ConfigurationError: The extra is missing (`missing_extra`).
    """
    with imports_of_extra("a2a", cannot="read an A2A artifact", doing="reading an A2A artifact"):
        from toolcrib.servers.a2a import artifacts  # noqa: PLC0415 -- optional
    from toolcrib.servers.mcp.failures import InvalidAnswer  # noqa: PLC0415 -- as above

    try:
        read = artifacts.ArtifactParts(artifact)
        if not (read.marked or lenient):
            message = f"the artifact is not marked as the result of a tool: its metadata has no `{artifacts.RESULT}`"
            return Result.failure(Outcome.INVALID_RESULT, message, code="missing_result")
        return artifacts.result_of_parts(read.parts, output_schema, read.metadata)
    except InvalidAnswer as invalid:
        message = f"the artifact is not valid: {invalid.message}"
        return Result.failure(Outcome.INVALID_RESULT, message, code="protocol_violation")


def artifact_from_result(
    result: Result, *, artifact_id: str = "", metadata: Mapping[str, JSON] = NOTHING
) -> Artifact:
    """Return the A2A artifact of a result, marked with `_tool_result`. Needs the extra `a2a`.

    The value becomes a data part, with its exact text beside it if it contains integers above 2^53. The parts of
    `content` follow: texts, bytes with their media type and file name (`title`), and URLs. `result.meta` is not sent.

    Args:
        result: A result with the outcome `ok`.
        artifact_id: ID of the artifact (default: a random UUID).
        metadata: Metadata of the artifact besides `_tool_result`, `tool_name` and `execution_time_ms`.

    Returns:
        The artifact, in the type of the A2A SDK.

    Raises:
        ConfigurationError: The extra is missing (`missing_extra`); the outcome is not `ok`, so there is no artifact
            (`no_artifact`); a number in the value is larger than any double (`number_too_large`).
    """
    if result.outcome is not Outcome.OK:
        raise ConfigurationError(
            f"a result with the outcome `{result.outcome}` has no artifact",
            code="no_artifact",
            hint="send its error as a data part `{error: {code, message}}` in the message of the task's state",
        )
    with imports_of_extra("a2a", cannot="write an A2A artifact", doing="writing an A2A artifact"):
        from toolcrib.servers.a2a import artifacts  # noqa: PLC0415 -- optional
    try:
        return artifacts.artifact_of_result(result, artifact_id, metadata)
    except OverflowError:
        message = "the value contains a number that A2A cannot carry: it is larger than any double"
        raise ConfigurationError(message, code="number_too_large") from None
