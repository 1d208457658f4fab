"""What a layer may tell of a value that is no JSON: nothing of it where the place is secret."""

from __future__ import annotations

from dataclasses import replace

from toolcrib.secrets import HIDDEN
from toolcrib.validation import Fault, Validator


def masked(fault: Fault, validator: Validator) -> Fault:
    """The fault of a value that is no JSON, without what stands there if the place is secret."""
    return replace(fault, got=HIDDEN) if validator.secrets.hides(fault.path, ...) else fault
