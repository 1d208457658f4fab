"""The arguments of a tool: what its schema says of them."""

from __future__ import annotations

from toolcrib.core.model import JSON


def property_schema(schema: JSON, name: str) -> JSON:
    """The schema of a property, where it stands there directly."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None
