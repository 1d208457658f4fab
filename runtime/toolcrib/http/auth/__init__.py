"""`auth`: authentication of the requests of a tool or to a server. Schemes are named as in OpenAPI."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from toolcrib.http.auth.compiler import AuthContext, RequestAuth, compile_auth, compile_server_auth
from toolcrib.http.auth.oauth import TokenCache
from toolcrib.http.auth.schemes import Auth, AuthFailure, Fetch, HookRequest

__all__ = [
    "Auth",
    "AuthContext",
    "AuthFailure",
    "Fetch",
    "HookRequest",
    "RequestAuth",
    "TokenCache",
    "auth_schema",
    "compile_auth",
    "compile_server_auth",
]


@cache
def auth_schema() -> dict[str, Any]:
    """The JSON Schema of `auth`; its `$defs` have the prefix `auth_`. Callers must not change the returned object."""
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    read: dict[str, Any] = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return read
