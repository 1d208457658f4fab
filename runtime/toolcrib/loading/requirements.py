"""What packs need: other packs and toolcrib itself, in versions that will do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from toolcrib import __version__
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import NOTHING
from toolcrib.core.pointers import pointer_step
from toolcrib.loading.packs import Pack
from toolcrib.loading.versions import mismatch

Refused: TypeAlias = Mapping[str, tuple[str, Problem]]
"""Pack file that was refused -> name of the pack, empty where it could not be read, and its first problem."""


def check_requirements(
    packs: Sequence[Pack],
    refused: Refused = NOTHING,
    *,
    version: str = __version__,
) -> list[Problem]:
    """What the packs need and do not find among each other, each problem at the place of the need.

    The tools of a pack that misses something load all the same: what they lack shows where it is used.

    Args:
        packs: All packs that were read.
        refused: Pack file that was refused -> name of the pack, if it could be read, and the first problem of it.
        version: The version of toolcrib.
    """
    if not any(pack.requires for pack in packs):
        return []
    there = {pack.name: pack for pack in packs}
    problems = [problem for pack in packs for problem in _unmet(pack, there, refused, version)]
    return problems + list(_circles(there))


def _unmet(pack: Pack, there: Mapping[str, Pack], refused: Refused, version: str) -> Iterator[Problem]:
    wanted = pack.requires.get("toolcrib", "")
    if wanted and (why := mismatch(version, wanted)):
        message = f"pack `{pack.name}` needs toolcrib {wanted}, and this one {why}"
        hint = f"`pip install 'toolcrib{wanted}'`, or take a version of the pack that is for this toolcrib"
        yield _placed(pack, Problem(code="version_mismatch", message=message, pointer=_TOOLCRIB, hint=hint))
    for name, wanted in _needed(pack).items():
        found = there.get(name)
        if found is None:
            yield _placed(pack, _absent(pack, name, wanted, there, refused))
        elif why := mismatch(found.version, wanted):
            place = found.origin.place("/version")
            message = f"pack `{pack.name}` needs `{name}` {wanted}, and the one in {place} {why}"
            hint = f"put a version of `{name}` in its place that will do, or widen the range"
            yield _placed(
                pack, Problem(code="version_mismatch", message=message, pointer=_pointer(name), hint=hint)
            )


_TOOLCRIB = "/requires/toolcrib"


def _absent(pack: Pack, name: str, wanted: str, there: Mapping[str, Pack], refused: Refused) -> Problem:
    why = next((problem for known, problem in refused.values() if known == name), None)
    if why is not None:
        message = f"pack `{pack.name}` needs pack `{name}` {wanted}, which was refused: {why.code} in {why.source}:{why.line}"
        return Problem(
            code="refused_pack",
            message=message,
            pointer=_pointer(name),
            hint="mend the file of that pack first",
        )
    message = f"pack `{pack.name}` needs pack `{name}` {wanted}, which is not here"
    others = [known for known in there if known != pack.name]
    near = did_you_mean(name, others)
    listed = (
        f"; there is {', '.join(f'`{known}`' for known in others[:_LISTED])}" if others and not near else ""
    )
    unread = [file for file, (known, _problem) in refused.items() if not known]
    if unread and not near:
        near = f"no name could be read in {', '.join(unread[:_LISTED])}; mend that first if it is this pack"
    hint = f"{near or 'add it to `sources` in `toolcrib.yaml`, or read it with `--pack`'}{listed}"
    return Problem(code="unknown_pack", message=message, pointer=_pointer(name), hint=hint)


_LISTED = 10
"""Packs that a hint names."""


def _circles(there: Mapping[str, Pack]) -> Iterator[Problem]:
    """A problem for each circle of packs that need each other, at one need of it."""
    done: set[str] = set()
    for start in there:
        path: list[str] = []
        left = [iter([start])]
        while left:
            name = next(left[-1], None)
            if name is None:
                left.pop()
                done.update(path[-1:])
                del path[-1:]
            elif name in path:
                yield _circle(there, [*path[path.index(name) :], name])
            elif name in there and name not in done:
                path.append(name)
                left.append(iter(_needed(there[name])))


def _circle(there: Mapping[str, Pack], names: Sequence[str]) -> Problem:
    circle = " needs ".join(f"`{name}`" for name in names)
    last = there[names[-2]]
    message = (
        f"packs need each other in a circle: {circle}"
        if len(names) > 2
        else f"the pack needs itself: {circle}"
    )
    hint = "take one of the needs out, or move what several packs need into a pack of its own"
    problem = Problem(code="endless_requires", message=message, pointer=_pointer(names[-1]), hint=hint)
    return _placed(last, problem)


def _needed(pack: Pack) -> Mapping[str, str]:
    """Name of a needed pack -> versions that will do."""
    found: Mapping[str, str] = pack.requires.get("packs", {})
    return found


def _pointer(name: str) -> str:
    return f"/requires/packs/{pointer_step(name)}"


def _placed(pack: Pack, problem: Problem) -> Problem:
    return problem.at(pack.origin.source, *pack.origin.locate(problem.pointer))
