"""All tools that a server lists, page after page, as they came (MCP 2026-07-28, tools: listing, pagination).

An invalid definition never hides the others. Faults are reported, and a list that is too long is cut off. A server knows
the secrets that it was given, and may repeat them: they are masked here, before anybody sees a definition. Where a mask
would make a definition wrong, the member is left out: a default, which would be sent to the server, a pattern, a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_to
from toolcrib.core.server_config import Catalogue
from toolcrib.core.subschemas import MANY, NAMED, ONE
from toolcrib.core.text import compact, escape_terminal
from toolcrib.schema.validation import json_violation
from toolcrib.security.redaction import HIDDEN
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.mcp.failures import InvalidAnswer

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


def without_secrets(definition: dict[str, Any], secrets: SecretResolver) -> dict[str, Any]:
    """A definition without secrets; the same one where it holds none.

    Args:
        definition: As it came. It is JSON, and its name holds no secret.
        secrets: Knows the secrets.
    """
    if not secrets.knows(compact(definition).encode()):
        return definition
    return {
        _key(key, secrets): _schema(value, secrets) if key in _SCHEMAS else _hidden(value, secrets)
        for key, value in definition.items()
    }


def _schema(schema: JSON, secrets: SecretResolver) -> JSON:
    if not isinstance(schema, dict):
        return _hidden(schema, secrets)
    shown: dict[str, JSON] = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, dict):
            names = {name: _key(name, secrets) for name in value}
            kept = (name for name in value if key != "patternProperties" or names[name] == name)
            shown[key] = {names[name]: _schema(value[name], secrets) for name in kept}
        elif key in MANY and isinstance(value, list):
            shown[key] = [_schema(each, secrets) for each in value]
        elif key in ONE:
            shown[key] = _schema(value, secrets)
        elif key == "required" and isinstance(value, list):
            shown[key] = _once([_key(name, secrets) if isinstance(name, str) else name for name in value])
        elif key == "enum" and isinstance(value, list):
            shown[key] = _once([_hidden(item, secrets) for item in value])
        elif key == "type":
            shown[key] = value if _is_type(value) else _hidden(value, secrets)
        elif key not in _FIXED or _hidden(value, secrets) == value:
            shown[_key(key, secrets)] = _hidden(value, secrets)
    return shown


def _hidden(value: JSON, secrets: SecretResolver) -> JSON:
    if isinstance(value, dict):
        return {_key(key, secrets): _hidden(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, secrets) for item in value]
    if isinstance(value, str):
        return secrets.hide_in_text(value) if len(value) >= _TELLING else value
    if isinstance(value, bool) or value is None:
        return value
    text = str(value)
    return HIDDEN if len(text) >= _TELLING and secrets.hide_in_text(text) == HIDDEN else value


def _key(key: str, secrets: SecretResolver) -> str:
    return key if key in _WORDS else secrets.hide_in_name(key)


def _is_type(value: JSON) -> bool:
    return value in _TYPES if isinstance(value, str) else isinstance(value, list) and _TYPES.issuperset(value)


def _once(items: list[JSON]) -> list[JSON]:
    """Items of a list in which all must differ: several masks are one."""
    return [item for place, item in enumerate(items) if item != HIDDEN or HIDDEN not in items[:place]]


MOST_PAGES: Final = 100
MOST_TOOLS: Final = 1_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all definitions together, roughly."""

MOST_OF_ONE: Final = 1024 * 1024
"""Bytes of one definition, roughly: no model could read more of one."""

_DEPTH: Final = 100
_LONGEST_NAME: Final = 1024

Ask = Callable[[str | None], Awaitable[dict[str, Any]]]
"""Asks for the page behind a cursor; the first one for None."""

Check = Callable[[dict[str, Any]], str | None]
"""Says what else speaks against an input schema; None for nothing."""


async def list_tools(
    server: str,
    ask: Ask,
    *,
    info: Mapping[str, str],
    secrets: SecretResolver,
    check: Check = lambda _schema: None,
) -> Catalogue:
    """Every tool of a server.

    Args:
        server: Name of the server.
        ask: Asks for one page.
        info: What the server says of itself.
        secrets: Knows the secrets that the server was given.
        check: Judges input schemas beyond what is checked here.

    Raises:
        InvalidAnswer: A page is no list of tools.
    """
    reader = _Reader(check, secrets)
    cursor: str | None = None
    seen: set[str] = set()
    for _page in range(MOST_PAGES):
        page = await ask(cursor)
        tools = page.get("tools")
        if not isinstance(tools, list):
            raise InvalidAnswer("its list of tools has no `tools`")
        if not reader.take(tools):
            break
        cursor = page.get("nextCursor")
        if cursor is None:
            break
        if not isinstance(cursor, str) or cursor in seen:
            what = (
                f"sent the cursor `{_shown(secrets.hide_in_text(cursor))}` twice"
                if isinstance(cursor, str)
                else "sent a cursor that is not a text"
            )
            reader.remarks.append(f"it {what}; its list ends there")
            break
        seen.add(cursor)
    else:
        reader.remarks.append(f"it has more than {MOST_PAGES} pages of tools; the others were not requested")
    told = {key: secrets.hide_in_text(text) for key, text in info.items()}
    return Catalogue(server, reader.tools, reader.refused, tuple(reader.remarks), told)


class _Reader:
    """Takes the tools of one page after another."""

    def __init__(self, check: Check, secrets: SecretResolver) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.refused: dict[str, str] = {}
        self.remarks: list[str] = []
        self._check = check
        self._secrets = secrets
        self._count = 0
        self._left = MOST_BYTES

    def take(self, tools: list[Any]) -> bool:
        """Take a page; whether there is room for more."""
        for tool in tools:
            self._count += 1
            if self._count > MOST_TOOLS:
                self.remarks.append(f"it has more than {MOST_TOOLS:,} tools; the others are omitted")
                return False
            if not self._has_room(tool):
                self.remarks.append(
                    f"its tools exceed {MOST_BYTES >> 20} MiB; those after #{self._count} are omitted"
                )
                return False
            self._one(tool)
        return True

    def _has_room(self, tool: Any) -> bool:
        self._left -= approximate_size(tool, self._left)
        return self._left >= 0

    def _one(self, tool: Any) -> None:
        name = _name_of(tool)
        if self._secrets.hide_in_name(name) != name:
            self.refused[f"#{self._count}"] = _TELLING_NAME
            return
        known = name in self.tools or name in self.refused
        fault = self._fault(tool) if not known else f"duplicate tool `{_shown(name)}`"
        if fault is not None:
            self.refused[name if name and not known else f"#{self._count}"] = fault
            return
        kept = {key: value for key, value in tool.items() if value is not None}
        for key, kind in _SHAPES.items():
            if key in kept and not isinstance(kept[key], kind):
                del kept[key]
                self.remarks.append(f"`{_shown(name)}`: its malformed `{key}` is omitted")
        self.tools[name] = without_secrets(kept, self._secrets)

    def _fault(self, tool: Any) -> str | None:
        """Why a tool can't be offered; None where it can."""
        if not isinstance(tool, dict):
            return "it is not an object"
        if not _name_of(tool):
            return "its name is not valid text" if tool.get("name") else "it has no name"
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict):
            return "it has no `inputSchema`" if schema is None else "its `inputSchema` is not an object"
        if schema.get("type", "object") != "object":
            return "its `inputSchema` is not the schema of an object"
        if not isinstance(tool.get("outputSchema"), dict | None):
            return "its `outputSchema` is not an object"
        if approximate_size(tool, MOST_OF_ONE) > MOST_OF_ONE:
            return f"its definition is larger than {MOST_OF_ONE >> 20} MiB"
        fault = json_violation(tool, depth=_DEPTH)
        hide = self._secrets.hide_in_text
        if fault is not None:
            place = pointer_to([hide(key) if isinstance(key, str) else key for key in fault.path])
            return f"its definition cannot be passed on as JSON: `{_shown(place)}` is not {fault.expected}"
        told = self._check(schema)
        return None if told is None else hide(told)


_TELLING_NAME: Final = (
    "its name contains a secret of the server, and names cannot be masked; "
    "if it is not a secret, write the value itself or give it a default: `${NAME:-value}`"
)

_SHAPES: Final = {
    "title": str,
    "description": str,
    "annotations": dict,
    "icons": list,
    "execution": dict,
    "_meta": dict,
}
"""Members of a definition that may be left out, so that one that is malformed is."""


def _name_of(tool: Any) -> str:
    """The name of a tool; empty for one that has none that can be used."""
    name = tool.get("name") if isinstance(tool, dict) else None
    good = isinstance(name, str) and len(name) <= _LONGEST_NAME and json_violation(name) is None
    return name if good and isinstance(name, str) else ""


def _shown(text: str) -> str:
    return escape_terminal(text[:80])


def approximate_size(value: JSON, most: int) -> int:
    """How many bytes a value takes, roughly; counted no further than a little beyond `most`."""
    total = 0
    waiting: list[Any] = [value]
    while waiting and total <= most:
        item = waiting.pop()
        total += 4
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
            total += sum(map(len, item))
        elif isinstance(item, list):
            waiting.extend(item)
    return total
