"""What the schema of a project can't say: whether names lead somewhere, and globs can fit anything."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.clock import format_duration, parse_duration
from toolcrib.errors import Problem, did_you_mean
from toolcrib.loading.descriptors import LONGEST_TIMEOUT
from toolcrib.loading.marks import clipped
from toolcrib.pointers import pointer_step

_TOOL_GLOB = re.compile(r"(?:[A-Za-z0-9_.*?-]|\[!?[A-Za-z0-9_.-]+\])+")
"""Globs that can fit the name of a tool."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names of profiles and toolsets."""


def check_project(said: Mapping[str, Any], written: Mapping[str, Any]) -> list[Problem]:
    """All that is wrong with the parts of a project whose shape is right.

    Args:
        said: Those parts.
        written: The whole document: a name that is written there, however wrongly, is known.
    """
    profiles, toolsets = _names(written, "profiles"), _names(written, "toolsets")
    problems = [
        *_check_names(said),
        *_check_sources(said.get("sources", ())),
        *_check_ignore(said.get("ignore", ())),
        *_check_defaults(said, ""),
        *_check_globs(said.get("disable", ()), "/disable"),
        *_check_toolsets(said.get("toolsets", {})),
    ]
    if "profile" in said and said["profile"] not in profiles:
        problems.append(_unknown("unknown_profile", said["profile"], profiles, "/profile"))
    for name, profile in said.get("profiles", {}).items():
        problems += _check_profile(profile, f"/profiles/{pointer_step(name)}", profiles, toolsets)
    return problems + list(_circles(said.get("profiles", {})))


def _check_names(said: Mapping[str, Any]) -> Iterator[Problem]:
    for key in ("toolsets", "profiles"):
        for name in said.get(key, {}):
            if not _NAME.fullmatch(name):
                message = f"`{clipped(name)}` is no name of a {key[:-1]}"
                hint = "a name begins with a letter or `_` and goes on with letters, digits, `_`, `-`, at most 64 in all"
                pointer = f"/{key}/{pointer_step(name)}"
                yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)


def _names(written: Mapping[str, Any], key: str) -> list[str]:
    entries = written.get(key)
    return list(entries) if isinstance(entries, dict) else []


def _check_profile(
    said: Mapping[str, Any], pointer: str, profiles: list[str], toolsets: list[str]
) -> Iterator[Problem]:
    if "extends" in said and said["extends"] not in profiles:
        yield _unknown("unknown_profile", said["extends"], profiles, f"{pointer}/extends")
    if "toolset" in said and said["toolset"] not in toolsets:
        yield _unknown("unknown_toolset", said["toolset"], toolsets, f"{pointer}/toolset")
    yield from _check_defaults(said, pointer)
    for glob in said.get("modes", {}):
        yield from _check_glob(glob, f"{pointer}/modes/{pointer_step(glob)}")
    for key in ("disable", "enable"):
        yield from _check_globs(said.get(key, ()), f"{pointer}/{key}")


def _unknown(code: str, name: str, known: list[str], pointer: str) -> Problem:
    kind = code.removeprefix("unknown_")
    there = ", ".join(f"`{each}`" for each in known)
    listed = f"the {kind}s are: {there}" if there else f"write it under `{kind}s:`"
    near = did_you_mean(name, known)
    return Problem(
        code=code,
        message=f"there is no {kind} `{clipped(name)}`",
        pointer=pointer,
        hint=f"{near} {listed}" if near else listed,
    )


def _circles(profiles: Mapping[str, Any]) -> Iterator[Problem]:
    """A problem for each circle of profiles that extend each other, at one of them."""
    seen: set[str] = set()
    for name in profiles:
        path: dict[str, None] = {}
        at = name
        while at in profiles and at not in seen:
            path[at] = None
            seen.add(at)
            at = profiles[at].get("extends", "")
        if at in path:
            circle = " extends ".join(f"`{each}`" for each in (*list(path)[list(path).index(at) :], at))
            message = f"the profile extends itself: {circle}"
            pointer = f"/profiles/{pointer_step(at)}/extends"
            hint = "take out one `extends` of the circle"
            yield Problem(code="endless_extends", message=message, pointer=pointer, hint=hint)


def _check_defaults(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    timeout = said.get("defaults", {}).get("timeout")
    if timeout is None or 0 < parse_duration(timeout) <= LONGEST_TIMEOUT:
        return
    longest = format_duration(LONGEST_TIMEOUT)
    message = f"a timeout is longer than 0s and at most {longest}, and this one is `{timeout}`"
    hint = f"write at most {longest}, or leave it out for 30s"
    yield Problem(code="out_of_range", message=message, pointer=f"{pointer}/defaults/timeout", hint=hint)


def _check_toolsets(toolsets: Mapping[str, Any]) -> Iterator[Problem]:
    for name, entry in toolsets.items():
        pointer = f"/toolsets/{pointer_step(name)}"
        if isinstance(entry, list):
            yield from _check_globs(entry, pointer)
        else:
            yield from _check_globs(entry["tools"], f"{pointer}/tools")


def _check_globs(globs: Any, pointer: str) -> Iterator[Problem]:
    for index, glob in enumerate(globs):
        yield from _check_glob(glob, f"{pointer}/{index}")


def _check_glob(glob: str, pointer: str) -> Iterator[Problem]:
    """A glob that no name of a tool can fit is misspelt."""
    if _TOOL_GLOB.fullmatch(glob):
        return
    message = f"`{clipped(glob)}` is no glob over names of tools, which have letters, digits, `_`, `.`, `-`"
    hint = "`*` stands for any text, `?` for one character, `[ab]` for one of these; write several in a list"
    yield Problem(code="bad_glob", message=message, pointer=pointer, hint=hint)


def _check_ignore(globs: Any) -> Iterator[Problem]:
    for index, glob in enumerate(globs):
        fault = _fault_of_file_glob(glob)
        if fault:
            message = f"`{clipped(glob)}` fits no file: {fault}"
            hint = "globs are relative to this file: `fixtures/**`, `**/*.data.yaml`"
            yield Problem(code="bad_glob", message=message, pointer=f"/ignore/{index}", hint=hint)


def _fault_of_file_glob(glob: str) -> str:
    steps = glob.split("/")
    if glob.startswith("/"):
        return "it begins with `/`"
    if glob.endswith("/"):
        return "it ends with `/`, and only files are passed over"
    if not {"", ".", ".."}.isdisjoint(steps):
        return "it has an empty step, `.` or `..`"
    return "folders are divided by `/`" if "\\" in glob else ""


def _check_sources(sources: Any) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, entry in enumerate(sources):
        written = {"path": entry} if isinstance(entry, str) else entry
        pointer = f"/sources/{index}"
        path = written.get("path", "")
        if path:
            yield from _check_path(path, pointer if isinstance(entry, str) else f"{pointer}/path")
        name = posixpath.normpath(path) if path else f"pack {written['pack']}"
        if name in first:
            message = f"`{clipped(path or written['pack'])}` is a source already, number {first[name] + 1} of the list"
            yield Problem(
                code="duplicate_name", message=message, pointer=pointer, hint="a source is read once"
            )
        first.setdefault(name, index)


def _check_path(path: str, pointer: str) -> Iterator[Problem]:
    if not path.isprintable():
        message = f"`{clipped(path)}` is no path: it holds a control character"
        yield Problem(code="wrong_form", message=message, pointer=pointer)
    elif "${" in path:
        message = f"`{clipped(path)}` holds `${{`, and nothing is looked up here"
        hint = "write the path itself"
        yield Problem(code="variable_not_allowed", message=message, pointer=pointer, hint=hint)
