"""Definitions of a server's tools without the secrets that it was given, as they are listed, locked and shown.

What a mask would make wrong is left out: a default, which would be sent to the server, a pattern, a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from toolcrib.model import JSON
from toolcrib.secrets import HIDDEN
from toolcrib.subschemas import MANY, NAMED, ONE
from toolcrib.text import compact
from toolcrib.vault import Vault

Hide = Callable[[str], str]
"""Gives a text with `***` in place of every secret."""

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
    hide = vault.hide_in_text
    return {
        _key(key, hide): _schema(value, hide) if key in _SCHEMAS else _hidden(value, hide)
        for key, value in definition.items()
    }


def _schema(schema: JSON, hide: Hide) -> JSON:
    if not isinstance(schema, dict):
        return _hidden(schema, hide)
    shown: dict[str, JSON] = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, dict):
            names = {name: _key(name, hide) for name in value}
            kept = (name for name in value if key != "patternProperties" or names[name] == name)
            shown[key] = {names[name]: _schema(value[name], hide) for name in kept}
        elif key in MANY and isinstance(value, list):
            shown[key] = [_schema(each, hide) for each in value]
        elif key in ONE:
            shown[key] = _schema(value, hide)
        elif key == "required" and isinstance(value, list):
            shown[key] = _once([_key(name, hide) if isinstance(name, str) else name for name in value])
        elif key == "enum" and isinstance(value, list):
            shown[key] = _once([_hidden(item, hide) for item in value])
        elif key == "type":
            shown[key] = _hidden(value, lambda text: text if text in _TYPES else hide(text))
        elif key not in _FIXED or _hidden(value, hide) == value:
            shown[_key(key, hide)] = _hidden(value, hide)
    return shown


def _hidden(value: JSON, hide: Hide) -> JSON:
    if isinstance(value, dict):
        return {_key(key, hide): _hidden(item, hide) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, hide) for item in value]
    if isinstance(value, str):
        return hide(value) if len(value) >= _TELLING else value
    if isinstance(value, bool) or value is None:
        return value
    text = str(value)
    return HIDDEN if len(text) >= _TELLING and hide(text) == HIDDEN else value


def _key(key: str, hide: Hide) -> str:
    return key if key in _WORDS or len(key) < _TELLING else hide(key)


def _once(items: list[JSON]) -> list[JSON]:
    """Items of a list in which all must differ: several masks are one."""
    return [item for place, item in enumerate(items) if item != HIDDEN or HIDDEN not in items[:place]]
