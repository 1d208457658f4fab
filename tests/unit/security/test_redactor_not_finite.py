"""Numbers that are not finite are told as what they are, whatever secrets are known."""

from __future__ import annotations

import math

import pytest

from toolcrib.engine.middleware.call_failures import hide_secrets
from toolcrib.schema.validation import json_violation
from toolcrib.security.redaction import Redactor


@pytest.mark.parametrize(
    ("value", "told"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_it_is_no_secret(value, told):
    seen = Redactor({"password": "CANARY"})
    fault = json_violation({"x": value})
    assert fault is not None
    (shown,) = hide_secrets(seen, [fault], {"x": value})
    assert (shown.pointer, shown.expected, shown.got) == ("/x", "a finite number", told)
