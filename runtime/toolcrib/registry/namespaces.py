"""Names within a namespace: the tools of a source that has one are called `ns__tool`."""

from __future__ import annotations

from toolcrib.core.server_config import SEPARATOR

__all__ = ["SEPARATOR", "full_name", "short_name"]


def full_name(namespace: str, name: str) -> str:
    """How a tool of a namespace is called by everybody else."""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def short_name(namespace: str, name: str) -> str:
    """What a tool of a namespace is called there; any other by the name that it has."""
    return name.removeprefix(f"{namespace}{SEPARATOR}") if namespace else name
