"""Read all tools that a server lists, page by page (MCP 2026-07-28, tools: listing, pagination).

An invalid definition never hides the others: faults are reported, and a list that is too long is cut off. A
server may repeat the secrets that it was given, so they are masked here, before a definition is shown or
stored. A member that would be wrong with a mask is omitted: a default, which would be sent to the server, a
pattern, a bound.
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

# Variables also contain values such as `1` and `on`, which occur in most schemas.
_TELLING: Final = 4
"""Minimum length of a value that is masked as a secret, in characters."""

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
"""Keywords whose meaning changes, or is lost, with a mask in the value."""

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
"""Keys of definitions and keywords of schemas; never masked, even if a variable has the value `default`."""


def without_secrets(definition: dict[str, Any], secrets: SecretResolver) -> dict[str, Any]:
    """Mask the secrets in a definition; the same object is returned if it contains none.

    Args:
        definition: The definition from the server. It is valid JSON, and its name contains no secret.
        secrets: The known secrets.
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
            # `$defs` keys get the same mask as the `$ref`s to them, so references stay valid. A masked
            # pattern would be invalid or match other properties, so it is omitted.
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
            # A secret with the value `string` must not make every schema invalid.
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
    # A secret can be a number, such as a PIN. A mask cannot replace only some digits of a number.
    text = str(value)
    return HIDDEN if len(text) >= _TELLING and secrets.hide_in_text(text) == HIDDEN else value


def _key(key: str, secrets: SecretResolver) -> str:
    return key if key in _WORDS else secrets.hide_in_name(key)


def _is_type(value: JSON) -> bool:
    return value in _TYPES if isinstance(value, str) else isinstance(value, list) and _TYPES.issuperset(value)


def _once(items: list[JSON]) -> list[JSON]:
    # Items of `required` and `enum` must be unique (JSON Schema 2020-12, validation 6.5.3 and 6.1.2), and
    # several secrets have the same mask.
    return [item for place, item in enumerate(items) if item != HIDDEN or HIDDEN not in items[:place]]


# A server can list tools without end: with the SDK's client, 20,000 tools (20 MB) took over 3 s and 217 MB.
MOST_PAGES: Final = 100
MOST_TOOLS: Final = 1_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Maximum approximate size of all definitions together, in bytes."""

MOST_OF_ONE: Final = 1024 * 1024
"""Maximum approximate size of one definition, in bytes."""

_DEPTH: Final = 100
_LONGEST_NAME: Final = 1024

Ask = Callable[[str | None], Awaitable[dict[str, Any]]]
"""Requests the page at a cursor; None for the first page."""

Check = Callable[[dict[str, Any]], str | None]
"""Returns a fault of an input schema; None for a valid one."""


async def list_tools(
    server: str,
    ask: Ask,
    *,
    info: Mapping[str, str],
    secrets: SecretResolver,
    check: Check = lambda _schema: None,
) -> Catalogue:
    """Read all tools of a server.

    Args:
        server: Name of the server.
        ask: Requests one page.
        info: The server's information about itself, such as its name and version.
        secrets: The secrets that the server was given.
        check: An additional check of input schemas.

    Raises:
        InvalidAnswer: A page has no list of tools.
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
        # A repeated cursor would make the list endless.
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
    """Collects the valid tools of all pages, and the faults of the others."""

    def __init__(self, check: Check, secrets: SecretResolver) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.refused: dict[str, str] = {}
        self.remarks: list[str] = []
        self._check = check
        self._secrets = secrets
        self._count = 0
        self._left = MOST_BYTES

    def take(self, tools: list[Any]) -> bool:
        """Add the tools of a page; whether there is room for more."""
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
        # A call must send the exact name, so a name cannot be masked; the fault is stored without it.
        if self._secrets.hide_in_name(name) != name:
            self.refused[f"#{self._count}"] = _TELLING_NAME
            return
        # The first definition applies, even if it is invalid: a second one must not replace it.
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
        """The fault of a tool that cannot be offered; None for a valid tool."""
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
        # Keys of the path come from the server, and may contain secrets like the rest of the definition.
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
"""Optional members of a definition and their types. A member of another type is omitted."""


def _name_of(tool: Any) -> str:
    """The name of a tool; empty if it is missing or invalid."""
    name = tool.get("name") if isinstance(tool, dict) else None
    good = isinstance(name, str) and len(name) <= _LONGEST_NAME and json_violation(name) is None
    return name if good and isinstance(name, str) else ""


def _shown(text: str) -> str:
    return escape_terminal(text[:80])


def approximate_size(value: JSON, most: int) -> int:
    """Estimate the size of a value as JSON, in bytes. Counting stops soon after `most`."""
    # Not recursive, and without encoding: the value may be nested too deeply, or be huge.
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
