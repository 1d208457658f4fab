"""The public conversions between A2A artifacts and results, over the bytes of the SDK's messages."""

from __future__ import annotations

import pytest
from a2a.helpers import new_data_part, new_text_part
from a2a.types import Artifact, Part
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import ConfigurationError, Content, Outcome, Result, artifact_from_result, result_from_artifact

EXTENSION = "urn:toolcrib:a2a:tool-descriptors:v1"

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def sent(artifact):
    """What a peer receives."""
    return Artifact.FromString(artifact.SerializeToString())


@given(value=VALUES)
def test_a_value_survives_the_way_to_a_peer_and_back(value):
    result = result_from_artifact(sent(artifact_from_result(Result.success(value))))
    assert (result.outcome, result.value, result.content) == (Outcome.OK, value, ())
    assert "warnings" not in result.meta


def test_content_becomes_parts_and_parts_become_content():
    content = (
        Content("text", text="as text"),
        Content("image", data="AAEC", mime_type="image/png", title="plot"),
        Content("audio", data="AAEC", mime_type="audio/wav"),
        Content("resource", uri="https://a.example/x", mime_type="text/csv", title="x.csv"),
        Content("resource", data="AAEC", mime_type="application/pdf", title="a.pdf", uri="attachment:a.pdf"),
    )
    artifact = sent(artifact_from_result(Result.success({"n": 1}, content=content)))
    assert [part.WhichOneof("content") for part in artifact.parts] == [
        "data",
        "text",
        "raw",
        "raw",
        "url",
        "raw",
    ]
    assert result_from_artifact(artifact).content == content


def test_an_artifact_is_marked_and_carries_metadata():
    result = Result.success(1).with_usage(1, 0.25, "add").with_meta(mock="not sent")
    artifact = sent(artifact_from_result(result, artifact_id="a-1", metadata={"version": "1.2"}))
    assert (artifact.artifact_id, artifact.name, [*artifact.extensions]) == ("a-1", "add", [EXTENSION])
    assert MessageToDict(artifact.metadata) == {
        "_tool_result": True,
        "tool_name": "add",
        "execution_time_ms": 250.0,
        "version": "1.2",
    }
    back = result_from_artifact(artifact)
    assert back.meta["remote"] == {"execution_time_ms": 250, "version": "1.2"}
    assert back.usage.remote_time == 0.25


def test_two_artifacts_have_two_ids():
    assert (
        artifact_from_result(Result.success(1)).artifact_id
        != artifact_from_result(Result.success(1)).artifact_id
    )


def test_a_number_stays_a_float_where_the_schema_wants_one():
    artifact = artifact_from_result(Result.success({"a": 5.0, "b": 5}))
    value = result_from_artifact(artifact, {"properties": {"a": {"type": "number"}}}).value
    assert (type(value["a"]), type(value["b"])) == (float, int)


def test_an_unmarked_artifact_is_a_result_only_for_lenient_readers():
    artifact = Artifact(artifact_id="a", parts=[new_text_part("done")])
    strict, lenient = result_from_artifact(artifact), result_from_artifact(artifact, lenient=True)
    assert (strict.outcome, strict.error.code) == (Outcome.INVALID_RESULT, "missing_result")
    assert (lenient.outcome, lenient.value) == (Outcome.OK, "done")


def test_an_artifact_with_an_empty_part_is_not_valid():
    artifact = Artifact(artifact_id="a", parts=[new_data_part({}), Part()])
    result = result_from_artifact(artifact, lenient=True)
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "protocol_violation")
    assert "part 2" in result.message


@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_a_number_that_json_does_not_have_is_not_valid(number):
    artifact = Artifact(artifact_id="a", parts=[Part(data=Value(number_value=number))])
    result = result_from_artifact(artifact, lenient=True)
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "protocol_violation")
    artifact = Artifact(artifact_id="a", parts=[new_data_part(1)], metadata={"n": number})
    assert result_from_artifact(artifact, lenient=True).error.code == "protocol_violation"


def test_a_failure_has_no_artifact():
    with pytest.raises(ConfigurationError, match="`tool_error` has no artifact") as caught:
        artifact_from_result(Result.failure(Outcome.TOOL_ERROR, "no such customer"))
    assert caught.value.code == "no_artifact"


def test_a_number_beyond_any_double_is_refused():
    with pytest.raises(ConfigurationError, match="larger than any double"):
        artifact_from_result(Result.success({"n": 10**400}))
