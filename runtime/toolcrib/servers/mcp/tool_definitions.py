"""Definitions of a server's tools without the secrets that it was given, as they are listed, locked and shown.

What a mask would make wrong is left out: a default, which would be sent to the server, a pattern, a bound.
"""

from __future__ import annotations

from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import MANY, NAMED, ONE
from toolcrib.core.text import compact
from toolcrib.security.redaction import HIDDEN
from toolcrib.security.secrets import Vault

_TELLING: Final = 4
"""Characters that a secret has at least: `1` and `on`, which variables hold, too, stand in most schemas."""

_SCHEMAS: Final = ("inputSchema", "outputSchema")

_TYPES: Final = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))

_FIXED: Final = frozenset(
    (
        *("$dynamicAnchor", "$schema", "const", "contentEncoding", "contentMediaType", "default", "format"),
        *("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf", "pattern"),
        *("maxContains", "maxItems", "maxLength", "maxProperties"),
        *("minContains", "minItems", "minLength", "minProperties"),
    )
)
"""Keywords that mean something else, or nothing, with a mask in their value."""

_WORDS: Final = frozenset(
    (
        *("name", "title", "description", *_SCHEMAS, "annotations", "icons", "execution", "_meta"),
        *("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "taskSupport"),
        *("src", "mimeType", "sizes", "theme"),
        *(ONE | MANY | NAMED | _FIXED),
        *("$anchor", "$comment", "$dynamicRef", "$id", "$ref", "dependentRequired", "deprecated"),
        *("enum", "examples", "readOnly", "required", "type", "uniqueItems", "writeOnly"),
    )
)
"""Keys of definitions and keywords of schemas: a variable whose value is `default` does not make them secret."""


def without_secrets(definition: dict[str, Any], vault: Vault) -> dict[str, Any]:
    """A definition without secrets; the same one where it holds none.

    Args:
        definition: As it came. It is JSON, and its name holds no secret.
        vault: Knows the secrets.
    """
    if not vault.knows(compact(definition).encode()):
        return definition
    return {
        _key(key, vault): _schema(value, vault) if key in _SCHEMAS else _hidden(value, vault)
        for key, value in definition.items()
    }


def _schema(schema: JSON, vault: Vault) -> JSON:
    if not isinstance(schema, dict):
        return _hidden(schema, vault)
    shown: dict[str, JSON] = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, dict):
            names = {name: _key(name, vault) for name in value}
            kept = (name for name in value if key != "patternProperties" or names[name] == name)
            shown[key] = {names[name]: _schema(value[name], vault) for name in kept}
        elif key in MANY and isinstance(value, list):
            shown[key] = [_schema(each, vault) for each in value]
        elif key in ONE:
            shown[key] = _schema(value, vault)
        elif key == "required" and isinstance(value, list):
            shown[key] = _once([_key(name, vault) if isinstance(name, str) else name for name in value])
        elif key == "enum" and isinstance(value, list):
            shown[key] = _once([_hidden(item, vault) for item in value])
        elif key == "type":
            shown[key] = value if _is_type(value) else _hidden(value, vault)
        elif key not in _FIXED or _hidden(value, vault) == value:
            shown[_key(key, vault)] = _hidden(value, vault)
    return shown


def _hidden(value: JSON, vault: Vault) -> JSON:
    if isinstance(value, dict):
        return {_key(key, vault): _hidden(item, vault) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, vault) for item in value]
    if isinstance(value, str):
        return vault.hide_in_text(value) if len(value) >= _TELLING else value
    if isinstance(value, bool) or value is None:
        return value
    text = str(value)
    return HIDDEN if len(text) >= _TELLING and vault.hide_in_text(text) == HIDDEN else value


def _key(key: str, vault: Vault) -> str:
    return key if key in _WORDS else vault.hide_in_name(key)


def _is_type(value: JSON) -> bool:
    return value in _TYPES if isinstance(value, str) else isinstance(value, list) and _TYPES.issuperset(value)


def _once(items: list[JSON]) -> list[JSON]:
    """Items of a list in which all must differ: several masks are one."""
    return [item for place, item in enumerate(items) if item != HIDDEN or HIDDEN not in items[:place]]
