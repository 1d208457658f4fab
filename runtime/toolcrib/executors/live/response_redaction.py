"""`response.redact`: what stands at certain paths of an answer is hidden before anything else sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.executors.live.media_types import json_in
from toolcrib.security.redaction import HIDDEN

Steps: TypeAlias = tuple[str, ...]

_ANY, _DEEP = "*", "**"
_STEP = re.compile(r'"((?:[^"\\]|\\.)+)"|([^".\\]+)')
_ESCAPED = re.compile(r"\\(.)")
_LIKE_JSON = re.compile(r"\s*(\{|\[\s*[\[{\"])")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def compile_paths(paths: Iterable[str], pointer: str, problems: list[Problem]) -> tuple[Steps, ...]:
    """The steps of paths: `user.email`, `items.*.card`, `**.ssn`, `"a.b".c`.

    `*` is every member of an object or list, `**` any number of levels. A name that meets a list means
    the name in each of its items; a number is the index of one item.

    Args:
        paths: As they are written.
        pointer: Where the list of them stands.
        problems: Receives what is wrong with them: code `bad_path`.
    """
    compiled = []
    for index, path in enumerate(paths):
        steps = _steps(path)
        if steps and steps[-1] != _DEEP:
            compiled.append(steps)
            continue
        hint = "write names with `.` between them: `user.email`, `items.*.card`, `**.ssn`"
        if steps:
            hint = "for everything below, end it with `*`"
        message = f"this is no path of what is to be hidden: `{path[:80]}`"
        problems.append(Problem(code="bad_path", message=message, pointer=f"{pointer}/{index}", hint=hint))
    return tuple(compiled)


def _steps(path: str) -> Steps:
    """The steps of one path; none where it is not written as one."""
    steps: list[str] = []
    at = 0
    while (found := _STEP.match(path, at)) is not None:
        steps.append(_ESCAPED.sub(r"\1", found[1]) if found[1] is not None else found[2])
        at = found.end()
        if at == len(path):
            return tuple(steps)
        if path[at] != ".":
            break
        at += 1
    return ()


def redacted(value: JSON, paths: Iterable[Steps]) -> JSON:
    """The value with `***` at the paths, changed in place.

    A text is read as JSON, whole or line by line, and written anew. One that only begins like JSON is hidden
    altogether: nobody knows what is where in it.
    """
    if isinstance(value, str):
        return _redacted_text(value, paths)
    for steps in paths:
        places: list[JSON] = [value]
        for step in steps[:-1]:
            places = _everything(places) if step == _DEEP else _through(places, step)
        for place in _flat(places, steps[-1]):
            for key in _keys(place, steps[-1]):
                place[key] = HIDDEN
    return value


def redacted_body(text: str, paths: Iterable[Steps]) -> str:
    """A body as it was sent, with `***` at the paths; JSON is written anew."""
    text = text.removeprefix("\ufeff")
    try:
        value = json_in(text)
        return _redacted_text(text, paths) if value is None else _ENCODER.encode(redacted(value, paths))
    except RecursionError:
        return HIDDEN


def _redacted_text(text: str, paths: Iterable[Steps]) -> str:
    if _LIKE_JSON.match(text) is None:
        return text
    try:
        values = [json_in(text)]
        if values == [None]:
            values = [json_in(line) for line in text.split("\n") if line.strip()]
        if None in values:
            return HIDDEN
        return "\n".join(_ENCODER.encode(redacted(each, paths)) for each in values)
    except RecursionError:
        return HIDDEN


def _flat(places: Iterable[JSON], step: str) -> list[Any]:
    """The containers at which a step is to be looked up: for a name, the items of lists instead of the lists."""
    found: list[Any] = []
    queue = list(places)
    for place in queue:
        if isinstance(place, list) and step != _ANY and not step.isdecimal():
            queue += place
        elif isinstance(place, dict | list):
            found.append(place)
    return found


def _through(places: Iterable[JSON], step: str) -> list[JSON]:
    return [place[key] for place in _flat(places, step) for key in _keys(place, step)]


def _keys(container: Any, step: str) -> list[Any]:
    if isinstance(container, dict):
        return list(container) if step == _ANY else [step] * (step in container)
    size = len(container)
    if step == _ANY:
        return list(range(size))
    return [int(step)] if len(step) < 10 and int(step) < size else []


def _everything(places: Iterable[JSON]) -> list[JSON]:
    """The containers at and below some places, each once."""
    seen: dict[int, JSON] = {}
    queue = list(places)
    for place in queue:
        if isinstance(place, dict | list) and id(place) not in seen:
            seen[id(place)] = place
            queue += place.values() if isinstance(place, dict) else place
    return list(seen.values())
