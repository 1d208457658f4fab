"""What the schema of a project can't say: whether names lead somewhere, and globs can fit anything."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.pointers import pointer_step
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.egress_settings import check_reach
from toolcrib.loading.limits import check_limits
from toolcrib.loading.toolsets import (
    check_defaults,
    check_names,
    check_tool_glob,
    check_tool_globs,
    check_toolsets,
)
from toolcrib.loading.versions import check_range


def check_project(said: Mapping[str, Any], written: Mapping[str, Any]) -> list[Problem]:
    """All that is wrong with the parts of a project whose shape is right.

    Args:
        said: Those parts.
        written: The whole document: a name that is written there, however wrongly, is known.
    """
    profiles = _names(written, "profiles")
    problems = [
        *check_names(said, ("toolsets", "profiles")),
        *_check_sources(said.get("sources", ())),
        *_check_ignore(said.get("ignore", ())),
        *check_defaults(said, ""),
        *check_tool_globs(said.get("disable", ()), "/disable"),
        *check_toolsets(said.get("toolsets", {})),
        *check_limits(said, ""),
        *check_reach(said, ""),
    ]
    if "profile" in said and profiles is not None and said["profile"] not in profiles:
        problems.append(not_known("profile", said["profile"], profiles, "/profile"))
    for name, profile in said.get("profiles", {}).items():
        problems += _check_profile(profile, f"/profiles/{pointer_step(name)}", profiles)
    return problems + list(_circles(said.get("profiles", {})))


def _names(written: Mapping[str, Any], key: str) -> list[str] | None:
    """The names that are written under a key; None where what stands there is told already to be no mapping."""
    entries = written.get(key, {})
    return list(entries) if isinstance(entries, dict) else None


def _check_profile(said: Mapping[str, Any], pointer: str, profiles: list[str] | None) -> Iterator[Problem]:
    if "extends" in said and profiles is not None and said["extends"] not in profiles:
        yield not_known("profile", said["extends"], profiles, f"{pointer}/extends")
    yield from check_defaults(said, pointer)
    yield from check_limits(said, pointer)
    yield from check_reach(said, pointer)
    for glob in said.get("modes", {}):
        yield from check_tool_glob(glob, f"{pointer}/modes/{pointer_step(glob)}")
    for key in ("disable", "enable"):
        yield from check_tool_globs(said.get(key, ()), f"{pointer}/{key}")


_CODES = {"profile": "unknown_profile", "toolset": "unknown_toolset"}


def not_known(kind: str, name: str, known: Collection[str], pointer: str) -> Problem:
    """The problem of a name under which no profile or toolset is written; `kind` says which of the two."""
    there = ", ".join(f"`{each}`" for each in known)
    listed = f"the {kind}s are: {there}" if there else f"write it under `{kind}s:`"
    near = did_you_mean(name, known)
    return Problem(
        code=_CODES[kind],
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
        if "version" in written:
            yield from check_range(written["version"], f"{pointer}/version")
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


def second_project_file(source: str, first: str) -> Problem:
    """The warning for a project file beside the one that counts."""
    message = (
        f"the folder has two project files; `{os.path.basename(first)}` counts, and this one is not read"
    )
    hint = "remove one of them"
    return Problem(
        code="second_project_file",
        message=message,
        hint=hint,
        severity="warning",
        source=source,
        line=1,
        column=1,
    )
