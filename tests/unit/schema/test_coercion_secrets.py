"""What a repair or a fault tells of a secret that stands in the wrong place: nothing."""

from __future__ import annotations

import json

import pytest

from toolcrib.schema.coercion import coerce
from toolcrib.schema.validation import Validator
from toolcrib.security.redaction import redact


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


SECRET_TEXT = {"type": "string", "format": "password"}

REPAIRED = {
    "by name": (closed(password={"type": "integer"}), {"password": "7357"}),
    "by mark": (closed(pin={"type": "integer", "writeOnly": True}), {"pin": "7357"}),
    "a marked number": (closed(pin={"type": "string", "x-secret": True}), {"pin": 7357}),
    "as JSON text": (closed(password={"type": "integer"}), '{"password": 7357}'),
    "instead of a list of secrets": (closed(pins={"type": "array", "items": SECRET_TEXT}), {"pins": "7357"}),
    "under another spelling": (closed(api_key={}), {"apiKey": "7357"}),
    "under another spelling of a marked one": (closed(pin_code=SECRET_TEXT), {"pinCode": "7357"}),
    "an option": (closed(token={"enum": ["7357"]}), {"token": " 7357 "}),
}


@pytest.mark.parametrize(("schema", "value"), REPAIRED.values(), ids=REPAIRED)
def test_a_repair_does_not_tell_a_secret(schema, value):
    result, repairs = coerce(schema, Validator(schema), value, "lenient")
    assert "7357" in json.dumps(result)
    assert repairs
    assert not any("7357" in repair.before + repair.after for repair in repairs)


CREDENTIALS = closed(user={"type": "string"}, password={"type": "string"})

INSTEAD = {
    "an object with a secret by name": (closed(login=CREDENTIALS), {"login": "ann:CANARY"}),
    "an object with a marked member": (closed(login=closed(pin=SECRET_TEXT)), {"login": "CANARY"}),
    "a list of secrets": (closed(pins={"type": "array", "items": SECRET_TEXT}), {"pins": "CANARY"}),
    "a map of secrets": (
        closed(pins={"type": "object", "additionalProperties": SECRET_TEXT}),
        {"pins": "CANARY"},
    ),
    "behind a reference": (
        {**closed(login={"$ref": "#/$defs/login"}), "$defs": {"login": CREDENTIALS}},
        {"login": "ann:CANARY"},
    ),
    "the whole value": (CREDENTIALS, "ann:CANARY"),
}


@pytest.mark.parametrize(("schema", "value"), INSTEAD.values(), ids=INSTEAD)
def test_what_stands_instead_of_a_container_with_secrets_is_not_told(schema, value):
    (fault,) = Validator(schema).faults(value)
    assert fault.got == "***"
    assert "CANARY" not in json.dumps(redact(value, schema))


def test_what_stands_instead_of_another_container_is_told():
    schema = closed(login=CREDENTIALS, place=closed(city={"type": "string"}))
    (fault,) = Validator(schema).faults({"place": "Oslo"})
    assert fault.got == '"Oslo"'
    assert redact({"place": "Oslo"}, schema) == {"place": "Oslo"}
