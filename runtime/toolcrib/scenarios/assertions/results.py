"""Assertions about what calls answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.core.model import Content
from toolcrib.scenarios.assertions.calls import answered, listed, made, near, of_tools, times
from toolcrib.scenarios.assertions.patterns import finds, stands_in
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, failed, held
from toolcrib.schema.validation.violations import shorten

Params = Mapping[str, Any]

_SHOWN: Final = 200
"""Characters of a result that a message shows."""


def tool_result_includes(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls answered some texts."""
    parts = params["patterns"]
    words = " and ".join(f'"{shorten(part)}"' for part in parts)
    return _counted(params, trajectory, lambda text: all(stands_in(part, text) for part in parts), words)


def tool_result_matches(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Calls answered something that a regular expression is found in."""
    return _counted(params, trajectory, finds(params["pattern"]), f"a match of {params['pattern']}")


def _counted(
    params: Params, trajectory: Trajectory, fits: Callable[[str], bool], words: str
) -> AssertionVerdict:
    tool, wanted = params.get("tool"), params.get("occurrence", 1)
    calls = of_tools(made(trajectory.calls), tool and [tool])
    texts = [answered(call) for call in calls]
    number = sum(map(fits, texts))
    whose = f"of `{tool}` " if tool else ""
    if number >= wanted:
        return held(f"results {whose}had {words} {times(number)}")
    if not calls:
        hint = near(tool, trajectory.calls) if tool else ""
        return failed(f"no call {whose}was made, wanted {words}{hint}; {listed(trajectory.calls)}")
    others = [text for text in texts if not fits(text)]
    shown = f"; another one was {shorten(others[-1], _SHOWN) or 'empty'}" if others else ""
    return failed(f"results {whose}had {words} {times(number)}, wanted {wanted}{shown}")


def tool_result_has_media(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A call answered with media of a kind."""
    wanted = params["media_type"]
    return _media(params, trajectory, lambda part: _kind(part) == wanted, wanted)


def tool_result_media_type(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A call answered with a part of a media type."""
    wanted = params["mime_type"].lower()
    return _media(params, trajectory, lambda part: fnmatchcase(_media_type(part), wanted), wanted)


def _media(
    params: Params, trajectory: Trajectory, fits: Callable[[Content], bool], wanted: str
) -> AssertionVerdict:
    tool = params.get("tool")
    calls = of_tools(made(trajectory.calls), tool and [tool])
    parts = [part for call in calls for part in call.content]
    whose = f"of `{tool}`" if tool else "of any tool"
    if any(map(fits, parts)):
        return held(f"a result {whose} has {wanted}")
    hint = near(tool, trajectory.calls) if tool and not calls else ""
    there = _listed(parts) if parts else "no parts beside the value"
    return failed(f"no result {whose} has {wanted}{hint}; there were {there}; {listed(calls)}")


def _media_type(part: Content) -> str:
    return (part.mime_type or "").partition(";")[0].strip().lower()


def _kind(part: Content) -> str:
    """The kind of a part: by its media type, else by its own type; what is read as a file is a document."""
    kind = _media_type(part).partition("/")[0]
    if kind in {"image", "audio", "video"}:
        return kind
    return "document" if part.type == "resource" else part.type


def _listed(parts: Iterable[Content]) -> str:
    return ", ".join(_media_type(part) or part.type for part in parts)
