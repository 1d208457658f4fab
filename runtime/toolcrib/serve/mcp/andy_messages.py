"""The messages of Andy.Acp, whose `tools/list` and `tools/call` are nearly those of MCP (`serve mcp --compat andy`).

Its clients send `parameters` instead of `arguments`, may filter the list, and read `result`, `isError` and `error` of an
answer. Requests are translated to MCP before the SDK validates them. An answer has its members in addition to those of
MCP, so that one server serves clients of both kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.errors import near_misses
from toolcrib.core.model import JSON, Result
from toolcrib.serve.http_common.asgi import InvalidMessage

if TYPE_CHECKING:
    from toolcrib.registry.catalog import Card

ANSWER: Final = "dev.toolcrib/andy"
"""Key in `_meta` of the members that `with_answer` adds: the SDK removes members that MCP does not have."""

INVALID_PARAMS: Final = -32602
"""Code of JSON-RPC 2.0, section 5.1."""

FILTERS: Final = ("category", "tags", "capabilities", "enabledOnly")
"""The filters of `tools/list`, as `IToolRegistry.GetTools` of Andy.Tools has them."""

_PARAMETERS: Final = "parameters"
_IN_LIST: Final = frozenset({*FILTERS, "cursor", "_meta"})


def as_mcp(message: JSON) -> JSON:
    """A message of a client as MCP has it; unchanged if it is one already.

    Raises:
        InvalidMessage: A call without the name of a tool, or with both `arguments` and `parameters`.
    """
    if not isinstance(message, dict):
        return message
    params = message.get("params")
    given: dict[str, Any] = {**params} if isinstance(params, dict) else {}
    request = message.get("id")
    number = request if isinstance(request, str | int) else None
    match message.get("method"):
        case "initialized":
            return {**message, "method": "notifications/initialized"}
        case "initialize":
            # Its clients send a version of their own, and neither capabilities nor always a name.
            given["protocolVersion"] = str(given.get("protocolVersion", "1.0"))
            given.setdefault("capabilities", {})
            given.setdefault("clientInfo", {"name": "unknown", "version": ""})
            return {**message, "params": given}
        case "tools/call":
            name = given.get("name")
            if not isinstance(name, str) or not name:
                raise InvalidMessage(INVALID_PARAMS, "Tool name is required", number)
            if _PARAMETERS not in given:
                return message
            if "arguments" in given:
                text = "`arguments` and `parameters` are both given; send one of them"
                raise InvalidMessage(INVALID_PARAMS, text, number)
            parameters = given.pop(_PARAMETERS)
            given["arguments"] = {} if parameters is None else parameters
            return {**message, "params": given}
        case _:
            return message


def selected(cards: Iterable[Card], params: Mapping[str, Any]) -> list[str]:
    """The names of the tools that the filters of `tools/list` select.

    `category` compares without case, one of `tags` suffices, and all `capabilities` must be used.

    Args:
        cards: The tools that are listed without filters.
        params: The parameters of the request.

    Raises:
        ValueError: An unknown filter or an invalid value; the message is for the client.
    """
    for key in params:
        if key not in _IN_LIST:
            near = near_misses(key, FILTERS)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(FILTERS)}"
            raise ValueError(f"Unknown filter `{key[:100]}`: {hint}")
    if params.get("enabledOnly", True) not in (True, None):
        raise ValueError("`enabledOnly` can only be true: disabled tools are not served")
    category, tags, capabilities = (_texts(params, key) for key in FILTERS[:3])
    return [
        card.name
        for card in cards
        if (not category or (card.category or "").lower() in category)
        and (not tags or not tags.isdisjoint(tag.lower() for tag in card.tags))
        and capabilities <= {capability.lower() for capability in card.capabilities}
    ]


def _texts(params: Mapping[str, Any], key: str) -> set[str]:
    # Flags of C# are written as one text: `FileRead, Network`.
    value = params.get(key)
    values = [] if value is None else value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError(f"`{key}` must be a text or a list of texts")
    return {each.strip().lower() for each in values} - {""}


def with_answer(rendered: dict[str, Any], result: Result) -> dict[str, Any]:
    """A result of `tools/call` with the answer of Andy.Acp in its `_meta`, where the SDK keeps it."""
    failed = bool(rendered.get("isError"))
    answer: dict[str, JSON] = {"result": None if failed else _value_of(result), "isError": failed}
    if failed:
        answer["error"] = rendered["content"][0]["text"]
    answer["usage"] = result.usage.as_json()
    return {**rendered, "_meta": {**rendered.get("_meta", {}), ANSWER: answer}}


def _value_of(result: Result) -> JSON:
    value: JSON = result.value
    return [part.as_json() for part in result.content] if value is None and result.content else value


def with_members(answered: Any) -> Any:
    """A result of `tools/call` with the members of the answer that `with_answer` kept."""
    if not isinstance(answered, dict) or ANSWER not in (answered.get("_meta") or {}):
        return answered
    meta = {**answered["_meta"]}
    members = meta.pop(ANSWER)
    rest = {key: value for key, value in answered.items() if key != "_meta"}
    return {**rest, **({"_meta": meta} if meta else {}), **members}
