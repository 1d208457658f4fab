"""A tool called by item: `tools["name"](key=value)`."""

from __future__ import annotations

import pytest

from toolcrib import Outcome, Runtime

TOOLS = """
name: greet
input_schema: {type: object, properties: {name: {type: string}, "last-name": {type: string}}, additionalProperties: false}
mock: {result: "{{ args }}"}
---
name: bye
mock: {result: bye}
"""


@pytest.fixture
def tools(tmp_path):
    (tmp_path / "t.tool.yaml").write_text(TOOLS, encoding="utf-8")
    return Runtime.open(tmp_path)


@pytest.mark.parametrize("of_session", [False, True])
async def test_a_tool_is_called_by_item(tools, of_session):
    async with tools:
        given = tools.session() if of_session else tools
        assert (await given["bye"]()).value == "bye"
        assert (await given["greet"](name="Ada")).value == {"name": "Ada"}
        assert (await given["greet"]({"last-name": "L"}, name="A")).value == {"last-name": "L", "name": "A"}
        # The name of the parameter of the function itself is free.
        assert (await given["greet"](arguments=1)).outcome is Outcome.INVALID_ARGUMENTS
        unknown = await given["gret"](name="Ada")
        assert unknown.outcome is Outcome.NOT_FOUND
        assert "did you mean `greet`?" in unknown.message
        assert "greet" in given
        assert "gret" not in given
        assert [*given] == ["bye", "greet"]
