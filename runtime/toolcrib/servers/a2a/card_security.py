"""The authentication that a card requires (A2A 1.0, section 4.5; 0.3, section 5.5.1), compared with `auth` of the agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.core.model import JSON
from toolcrib.core.server_config import Server
from toolcrib.core.text import escape_terminal


def missing_auth(raw: Mapping[str, Any], agent: Server) -> str:
    """What the card requires and `auth` of the agent does not provide, with what to write; empty if nothing is missing.

    Args:
        raw: The card.
        agent: The agent.
    """
    declared = raw.get("securitySchemes")
    schemes = declared if isinstance(declared, dict) else {}
    given = [*_given(agent)]
    wanted: list[str] = []
    for names in _requirements(raw):
        needed = {name: _block_of(schemes.get(name)) for name in names}
        if all(_satisfies(given, block) for block in needed.values()):
            return ""
        told = [_shown(name, block) for name, block in needed.items() if not _satisfies(given, block)]
        wanted.append(" and ".join(told))
    if not wanted:
        return ""
    return f"its card requires an authentication that `auth` of the agent does not provide: {', or '.join(wanted[:5])}"


def _requirements(raw: Mapping[str, Any]) -> Iterator[list[str]]:
    """The alternatives of a card: names of schemes that are required together."""
    listed = raw.get("securityRequirements", raw.get("security"))
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            named = each.get("schemes", each)
            yield [name for name in named if isinstance(name, str)] if isinstance(named, dict) else []


def _block_of(scheme: Any) -> dict[str, JSON] | None:
    """The keys of `auth` that a scheme asks for; None for a scheme that is not known."""
    if not isinstance(scheme, dict):
        return None
    kinds = {
        "apiKeySecurityScheme": "apiKey",
        "httpAuthSecurityScheme": "http",
        "oauth2SecurityScheme": "oauth2",
        "mtlsSecurityScheme": "mutualTLS",
        "openIdConnectSecurityScheme": "openIdConnect",
    }
    # 1.0 has one member for each kind, 0.3 has OpenAPI's `type`.
    found = [(kind, scheme[key]) for key, kind in kinds.items() if isinstance(scheme.get(key), dict)]
    kind, said = found[0] if found else (scheme.get("type"), scheme)
    if kind == "apiKey":
        place, name = said.get("location", said.get("in")), said.get("name")
        return {"type": "apiKey", "in": place, "name": name}
    if kind == "http":
        return {"type": "http", "scheme": str(said.get("scheme", "")).lower()}
    if kind in ("oauth2", "openIdConnect"):
        return {"type": "oauth2"}
    return None


def _given(agent: Server) -> Iterator[Mapping[str, Any]]:
    auth: Any = agent.auth
    for each in auth if isinstance(auth, list) else [auth]:
        if isinstance(each, dict):
            yield each
    # A header may carry any credential.
    for name in agent.headers:
        yield {"type": "apiKey", "in": "header", "name": name}


def _satisfies(given: list[Mapping[str, Any]], wanted: Mapping[str, JSON] | None) -> bool:
    if wanted is None:
        return False
    for each in given:
        kind, place, name = each.get("type"), each.get("in"), str(each.get("name", "")).lower()
        # A function may do anything. A token of OAuth is sent as a bearer token, and so is one that was fetched before.
        if kind not in ("apiKey", "http", "oauth2"):
            return True
        if (place, name) == ("header", "authorization") and wanted["type"] != "apiKey":
            return True
        bearer = kind == "oauth2" or (kind, each.get("scheme")) == ("http", "bearer")
        if bearer and (wanted["type"] == "oauth2" or wanted.get("scheme") == "bearer"):
            return True
        if kind != wanted["type"]:
            continue
        same_key = (place, name) == (wanted.get("in"), str(wanted.get("name", "")).lower())
        if same_key if kind == "apiKey" else each.get("scheme") == wanted.get("scheme"):
            return True
    return False


def _shown(name: str, block: Mapping[str, JSON] | None) -> str:
    known = f"`{escape_terminal(name[:80])}`"
    if block is None:
        return f"{known}, which toolcrib does not support"
    written = ", ".join(f"{key}: {escape_terminal(str(value)[:80])}" for key, value in block.items())
    return f"{known}, as `auth: {{{written}, ...}}`"
