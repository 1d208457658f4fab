"""`auth`: what proves who sends the requests of a tool or to a server. Named as OpenAPI's security schemes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from toolcrib.http.auth.compiler import compile_auth
from toolcrib.http.auth.oauth import TokenCache
from toolcrib.http.auth.schemes import Auth, AuthFailed, Fetch, HookRequest
from toolcrib.http.auth.server_auth import AuthContext, RequestAuth, server_auth

__all__ = [
    "Auth",
    "AuthContext",
    "AuthFailed",
    "Fetch",
    "HookRequest",
    "RequestAuth",
    "TokenCache",
    "compile_auth",
    "schema",
    "server_auth",
]


@cache
def schema() -> dict[str, Any]:
    """JSON Schema of what an `auth` may be, with its `$defs`; their names begin with `auth_`. Not to be changed."""
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    read: dict[str, Any] = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return read
