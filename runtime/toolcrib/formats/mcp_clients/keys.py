"""The keys that MCP clients write in their files of servers, and what they are here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SPELLINGS: Final[Mapping[str, str]] = {
    "command": "command",
    "args": "args",
    "env": "env",
    "environment": "env",
    "cwd": "cwd",
    "url": "url",
    "serverUrl": "url",
    "httpUrl": "url",
    "headers": "headers",
    "type": "transport",
    "transport": "transport",
    "transportType": "transport",
    "tools": "only",
    "includeTools": "only",
    "excludeTools": "except",
    "disabledTools": "except",
    "disabled": "disabled",
    "enabled": "enabled",
}
"""Key of a client -> what it says here. `serverUrl` is Windsurf's, `httpUrl`, `includeTools` and `excludeTools` are
Gemini CLI's, `tools` is Copilot's, `disabledTools` is that of several."""

TRANSPORTS: Final[Mapping[str, str]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
"""Name of a transport, in lower case, without `-` and `_` -> the same here."""

_APPROVAL: Final = "which calls need approval is not said here"
_TIME: Final = "clients count it in seconds or in milliseconds; the `timeout` of a tool is its deadline here"
_SHOWN: Final = "it is for people"
_EDITOR: Final = "it is the editor's own"

MEANINGLESS: Final[Mapping[str, str]] = {
    "$schema": _SHOWN,
    "alwaysAllow": _APPROVAL,
    "alwaysLoad": _EDITOR,
    "autoApprove": _APPROVAL,
    "autoStart": "a server is started when it is needed",
    "description": _SHOWN,
    "dev": _EDITOR,
    "extensionName": _EDITOR,
    "fromGalleryId": _EDITOR,
    "gallery": _EDITOR,
    "icon": _SHOWN,
    "iconPath": _SHOWN,
    "initTimeout": _TIME,
    "metadata": _SHOWN,
    "name": _SHOWN,
    "sandbox": _EDITOR,
    "sandboxEnabled": _EDITOR,
    "source": _EDITOR,
    "startupTimeout": _TIME,
    "timeout": _TIME,
    "title": _SHOWN,
    "trust": _APPROVAL,
    "version": _SHOWN,
    "watchPaths": _EDITOR,
}
"""Keys without which a server is the same -> why they have no meaning here."""

MISSED: Final[Mapping[str, str]] = {
    "auth": "write `auth` of this server under `servers` in `toolcrib.yaml`",
    "authProviderType": "write `auth` of this server under `servers` in `toolcrib.yaml`",
    "envFile": "put what the file says into the environment, and name it in `env`: `${NAME}`",
    "headersHelper": "write `auth` of this server under `servers` in `toolcrib.yaml`",
    "oauth": "write `auth` of this server under `servers` in `toolcrib.yaml`",
}
"""Keys that a server may not work without -> what to write instead."""

FOLDERS: Final = frozenset(
    {
        ".amazonq",
        ".claude",
        ".copilot",
        ".cursor",
        ".gemini",
        ".github",
        ".kiro",
        ".roo",
        ".vscode",
        ".windsurf",
        ".zed",
    }
)
"""Folders that a client keeps for itself in a workspace: paths in its files are relative to the folder above."""
