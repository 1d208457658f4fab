"""What projects and packs write alike: toolsets, globs over names of tools, defaults for descriptors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import Origin, Toolset
from toolcrib.core.pointers import pointer_step
from toolcrib.loading.descriptors import LONGEST_TIMEOUT
from toolcrib.loading.documents.positions import clipped

_TOOL_GLOB = re.compile(r"(?:[A-Za-z0-9_.*?-]|\[!?[A-Za-z0-9_.-]+\])+")
"""Globs that can fit the name of a tool."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names of profiles and toolsets."""


def toolsets_of(said: Mapping[str, Any], origin: Origin) -> tuple[Toolset, ...]:
    """The toolsets that a document writes under `toolsets`, in order of writing. Their shape is right."""
    return tuple(_toolset(name, entry, origin) for name, entry in said.get("toolsets", {}).items())


def _toolset(name: str, entry: Any, origin: Origin) -> Toolset:
    written = entry if isinstance(entry, dict) else {"tools": entry}
    return Toolset(
        name=name,
        description=written.get("description", ""),
        tools=tuple(written["tools"]),
        place=origin.place(f"/toolsets/{pointer_step(name)}"),
    )


def check_names(said: Mapping[str, Any], keys: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the names of the entries under some keys, `toolsets` or `profiles`."""
    for key in keys:
        for name in said.get(key, {}):
            if not _NAME.fullmatch(name):
                message = f"`{clipped(name)}` is no name of a {key[:-1]}"
                hint = "a name begins with a letter or `_` and goes on with letters, digits, `_`, `-`, at most 64 in all"
                pointer = f"/{key}/{pointer_step(name)}"
                yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)


def check_toolsets(toolsets: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the globs of toolsets."""
    for name, entry in toolsets.items():
        pointer = f"/toolsets/{pointer_step(name)}"
        if isinstance(entry, list):
            yield from check_tool_globs(entry, pointer)
        else:
            yield from check_tool_globs(entry["tools"], f"{pointer}/tools")


def check_tool_globs(globs: Sequence[str], pointer: str) -> Iterator[Problem]:
    """What is wrong with a list of globs over names of tools."""
    for index, glob in enumerate(globs):
        yield from check_tool_glob(glob, f"{pointer}/{index}")


def check_tool_glob(glob: str, pointer: str) -> Iterator[Problem]:
    """A glob that no name of a tool can fit is misspelt."""
    if _TOOL_GLOB.fullmatch(glob):
        return
    message = f"`{clipped(glob)}` is no glob over names of tools, which have letters, digits, `_`, `.`, `-`"
    hint = "`*` stands for any text, `?` for one character, `[ab]` for one of these; write several in a list"
    yield Problem(code="bad_glob", message=message, pointer=pointer, hint=hint)


def check_defaults(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """What is wrong with `defaults` beyond their shape; `pointer` leads to what holds them."""
    timeout = said.get("defaults", {}).get("timeout")
    if timeout is None or 0 < parse_duration(timeout) <= LONGEST_TIMEOUT:
        return
    longest = format_duration(LONGEST_TIMEOUT)
    message = f"a timeout is longer than 0s and at most {longest}, and this one is `{timeout}`"
    hint = f"write at most {longest}, or leave it out for 30s"
    yield Problem(code="out_of_range", message=message, pointer=f"{pointer}/defaults/timeout", hint=hint)
