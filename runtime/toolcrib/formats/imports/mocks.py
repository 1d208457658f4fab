"""Examples and mocks of imported tools, so that the tools can be called at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from toolcrib.core.errors import DocumentError
from toolcrib.core.model import JSON
from toolcrib.expressions import escape_expressions
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRemark
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.schema.validation import Validator, Violation, check_schema

NOT_MOCKED: Final = {
    "error": {
        "code": "not_mocked",
        "message": "the source of this tool contains no example of a result; write one here: `mock: {result: ...}`",
    }
}
"""The mock of a tool of whose results nothing is known."""


def with_valid_examples(imported: ImportedTools) -> ImportedTools:
    """The tools without the examples that their schemas refuse; each one is listed in the remarks."""
    tools, remarks = [], []
    for tool in imported.tools:
        if not tool.descriptor.get("examples"):
            tools.append(tool)
            continue
        faults = dict(_faults(tool.descriptor))
        examples = [each for place, each in enumerate(tool.descriptor["examples"]) if place not in faults]
        rest = {key: value for key, value in tool.descriptor.items() if key != "examples"}
        tools.append(ImportedTool(tool.key, {**rest, **({"examples": examples} if examples else {})}))
        remarks += [ImportRemark("repaired", tool.key, "", message) for message in faults.values()]
    return imported._replace(tools=tools, remarks=[*imported.remarks, *remarks])


def _faults(descriptor: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Position of an invalid example -> what is wrong."""
    judges = {
        "args": _judge(descriptor.get("input_schema")),
        "result": _judge(descriptor.get("output_schema")),
    }
    for place, example in enumerate(descriptor["examples"]):
        for part, judge in judges.items():
            found = judge(example[part]) if part in example else ()
            if found:
                where = f" at {pointer_of(found[0].path)}" if found[0].path else ""
                message = f"example {place + 1} was left out: its {part}{where} does not match the schema"
                yield place, message
                break


def _judge(schema: Any) -> Callable[[JSON], tuple[Violation, ...]]:
    if schema is None or any(problem.severity == "error" for problem in check_schema(schema)):
        return lambda _value: ()  # the tool is refused for it
    try:
        validator = Validator(schema)
    except DocumentError:
        return lambda _value: ()
    return lambda value: tuple(validator.faults(value, most=1))


def with_mock(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    """A descriptor with a mock: of its examples, else of its output schema.

    Where neither is known, the mock is an error: a result would be invented. A descriptor that has a mock keeps it.
    """
    if "mock" in descriptor:
        return dict(descriptor)
    mode = {} if descriptor.get("mode") else {"mode": "mock"}
    return {**descriptor, **mode, "mock": _mock(descriptor)}


def _mock(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    known = [each for each in descriptor.get("examples", ()) if "result" in each]
    if not known:
        schema = descriptor.get("output_schema")
        return {"generate": True} if schema is not None and schema is not True else dict(NOT_MOCKED)
    first = {"result": escape_expressions(known[0]["result"])}
    if len(known) == 1:
        return first
    rules = [
        {"when": {"args": _matcher(each["args"])}, "reply": {"result": escape_expressions(each["result"])}}
        for each in known
        if each.get("args")
    ]
    return {"rules": [*rules, {"reply": first}]}


def _matcher(arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    # Keys of an object could be operators of a matcher, and an object matches every larger one.
    return {
        name: {"$eq": escape_expressions(value)}
        if isinstance(value, dict | list)
        else escape_expressions(value)
        for name, value in arguments.items()
    }
