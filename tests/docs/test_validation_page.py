"""The page on validation says what the judge, the faults and the repairs do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from toolcrib.core.model import INPUT_SIZE, OUTPUT_SIZE
from toolcrib.core.subschemas import STEPS
from toolcrib.engine.middleware import arguments
from toolcrib.schema.coercion import coerce
from toolcrib.schema.dereference import WAYS
from toolcrib.schema.validation import Validator, check_schema, json_values, json_violation, validate
from toolcrib.schema.validation import (
    validator as judging,
)
from toolcrib.schema.validation.json_values import DIGITS, MOST
from toolcrib.schema.validation.schema_check import DEPTH, SIZE

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "validation.md").read_text(encoding="utf-8")

THOUSANDS_OF_DIGITS = "`1e400` as an integer"


def table(heading: str) -> list[list[str]]:
    """The rows of the table with this heading, cell by cell, without the backticks around a cell."""
    (rest,) = PAGE.split(f"| {heading} |\n")[1:]
    rows = [line.strip("| ").split(" | ") for line in rest.split("\n\n")[0].splitlines()[1:]]
    return [
        [cell if cell == THOUSANDS_OF_DIGITS else cell.removeprefix("`").removesuffix("`") for cell in row]
        for row in rows
    ]


def value_of(cell: str) -> object:
    return 10**400 if cell == THOUSANDS_OF_DIGITS else json.loads(cell)


@pytest.mark.parametrize("row", table("schema | value | message"), ids=lambda row: row[2][:30])
def test_each_fault_is_told_as_the_page_says(row):
    schema, value, told = row
    assert [fault.for_model() for fault in validate(json.loads(schema), json.loads(value))] == [told]


@pytest.mark.parametrize(
    "row", table("level | kind | schema | given | becomes"), ids=lambda row: f"{row[1]} {row[3]}"
)
def test_each_repair_is_made_as_the_page_says(row):
    level, kind, schema, given, becomes = row
    schema, given = json.loads(schema), json.loads(given)
    validator = Validator(schema)
    repaired, repairs = coerce(schema, validator, given, level)
    assert json.dumps(repaired) == becomes
    assert [repair.kind for repair in repairs] == [kind]
    if level == "lenient":
        assert coerce(schema, validator, given, "safe") == (given, [])


@pytest.mark.parametrize("row", table("schema | given | why"), ids=lambda row: row[1])
@pytest.mark.parametrize("level", ["safe", "lenient"])
def test_what_the_page_says_is_never_repaired(row, level):
    schema, given = json.loads(row[0]), json.loads(row[1])
    assert coerce(schema, Validator(schema), given, level) == (given, [])


def our_verdict(schema: object, value: object) -> str:
    if check_schema(schema):
        return "refused"
    return "valid" if Validator(schema).is_valid(value) else "invalid"


def verdict_of_jsonschema(schema: object, value: object) -> str:
    judge = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        return "valid" if judge(schema).is_valid(value) else "invalid"
    except Exception:  # noqa: BLE001 -- what it raises is not one family
        return "error"


@pytest.mark.parametrize(
    "row",
    table("schema | value | toolcrib | jsonschema | why"),
    ids=lambda row: f"{row[0][:30]} {row[1][:10]}",
)
def test_each_difference_to_jsonschema_is_as_the_page_says(row):
    schema, value = json.loads(row[0]), value_of(row[1])
    assert [our_verdict(schema, value), verdict_of_jsonschema(schema, value)] == row[2:4]


def test_the_limits_are_as_the_page_says():
    told = {name: int(re.sub(r"\D", "", value)) for name, value in table("limit | value")}
    assert told == {
        "nesting of a schema": DEPTH,
        "size of a schema, as compact JSON": SIZE // 1024,
        "paths through references and combinators per value": WAYS,
        "compiled size of a pattern": 1,
        "steps of a pattern with look-around or back-references": STEPS,
        "nesting of arguments": arguments.DEPTH,
        "nesting of results": json_values.DEPTH,
        "members and items below the first level of a value; each object and list counts two more": MOST,
        "digits of an integer": DIGITS,
        "violations shown per value": judging.MOST,
        "violations computed per value": judging.COMPUTED,
        "size of arguments, as compact JSON": INPUT_SIZE // 1024**2,
        "size of results, as compact JSON": OUTPUT_SIZE // 1024**2,
    }


def test_the_longest_integer_is_json_and_a_longer_one_is_not():
    assert json_violation(10**DIGITS - 1) is None
    assert json_violation(10**DIGITS) is not None
