"""Laying what an author fixed over what was made up."""

from __future__ import annotations

from toolcrib.core.model import JSON


def overlay(value: JSON, patch: JSON) -> JSON:
    """The value with a patch laid over it: objects key by key, anything else replaced.

    Neither argument is changed; parts of both may be shared with the result.
    """
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return patch
    laid = dict(value)
    for key, item in patch.items():
        laid[key] = overlay(value[key], item) if key in value else item
    return laid
