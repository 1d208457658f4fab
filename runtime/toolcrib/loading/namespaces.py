"""Names within a namespace: the tools of a source that has one are called `ns__tool`."""

from __future__ import annotations

from collections.abc import Container

SEPARATOR = "__"
"""Stands between a namespace and the name of a tool; providers of models accept it in names."""


def full_name(namespace: str, name: str) -> str:
    """How a tool of a namespace is called by everybody else."""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def resolve(name: str, namespace: str, tools: Container[str]) -> str:
    """The tool that a scenario within a namespace means: one of the namespace before any other."""
    full = full_name(namespace, name)
    return full if full in tools else name
