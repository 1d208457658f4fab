"""What a scenario expects: of the answer of each call, of golden files, and of all calls together."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files
from toolcrib.core.text import compact
from toolcrib.expressions import Rendering, compile_value, is_expression
from toolcrib.expressions.matchers import Matcher, compile_matcher, find_impossible
from toolcrib.loading.documents.document import parse_json
from toolcrib.loading.documents.files import DiskFiles
from toolcrib.loading.scenarios.model import NO_RULES, CallRule, Expectation, Verification, join_outcomes

Names: TypeAlias = Mapping[str, Collection[str] | None]
"""What expressions may read, each with the keys that it may have, or None where they are not known."""


def expression_texts(value: JSON, pointer: str) -> Iterator[tuple[str, str]]:
    """The texts with expressions, and where they stand."""
    if isinstance(value, str) and is_expression(value):
        yield pointer, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from expression_texts(item, f"{pointer}/{pointer_step(key)}")


KEPT = ("store", "state")
"""What of the mocks' memory a verification may hold a matcher for."""

PARTS = ("result", "error", "content", "attempts", "elapsed")
"""What an expectation may hold a matcher for."""


def parse_expectation(
    entry: Mapping[str, Any], pointer: str, names: Names, run_names: Names, problems: list[Problem]
) -> Expectation:
    """Compile what a step expects.

    Args:
        entry: As the document has it.
        pointer: JSON Pointer into the document.
        names: What its matchers may read.
        run_names: What the name of a golden file may read.
        problems: Receives what is wrong with it.
    """
    parts = {part: _matcher(part, entry[part], pointer, names, problems) for part in PARTS if part in entry}
    golden = None
    if "golden" in entry:
        golden = Golden(compile_value(entry["golden"], run_names, problems, f"{pointer}/golden"))
    problems += _contradictions(entry, pointer)
    outcomes = _outcomes(entry)
    if outcomes or "error" in entry:
        return Expectation(outcomes=outcomes, parts=parts, golden=golden)
    return Expectation(parts=parts, golden=golden)


def _outcomes(entry: Mapping[str, Any]) -> tuple[Outcome, ...]:
    """The outcomes that are named: one, or any of several; none where nothing is said of them."""
    named = entry.get("outcome", [])
    return tuple(Outcome(name) for name in ([named] if isinstance(named, str) else named))


def _contradictions(entry: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    outcomes = _outcomes(entry)
    answers = [key for key in ("result", "golden") if key in entry]
    if "error" in entry and outcomes == (Outcome.OK,):
        message, hint = "a call with the outcome `ok` has no error", "remove `outcome` or `error`"
        yield Problem(code="contradiction", message=message, pointer=f"{pointer}/outcome", hint=hint)
    if "error" in entry and answers and not (Outcome.OK in outcomes and len(outcomes) > 1):
        message = "a call returns a result or an error, but both are expected"
        hint = "remove one of them, or list all accepted outcomes: `outcome: [ok, tool_error]`"
        yield Problem(code="contradiction", message=message, pointer=f"{pointer}/error", hint=hint)
    elif outcomes and Outcome.OK not in outcomes:
        for key in answers:
            message = f"a call with the outcome {join_outcomes(outcomes, '`{}`')} has no result"
            hint = f"remove `outcome` or `{key}`"
            yield Problem(code="contradiction", message=message, pointer=f"{pointer}/{key}", hint=hint)


_OF_PART: dict[str, dict[str, JSON]] = {
    "attempts": {"type": "integer", "minimum": 0},
    "calls": {"type": "integer", "minimum": 0},
    "elapsed": {"type": "number", "minimum": 0},
    "final_text": {"type": "string"},
    "state": {"type": "object"},
    "store": {"type": "object"},
    "times": {"type": "integer", "minimum": 0},
}
"""What the parts of an expectation can be, where it is known."""

_WORDS = {
    "attempts": "`attempts` is a whole number of at least 0",
    "calls": "`calls` is a whole number of at least 0",
    "elapsed": "`elapsed` is a number of seconds from 0 up",
    "final_text": "`final_text` is the last text of the agent",
    "state": "`state` is an object of named states",
    "store": "`store` is an object of collections",
    "times": "`times` is a whole number of at least 0",
}


def _matcher(part: str, pattern: JSON, pointer: str, names: Names, problems: list[Problem]) -> Matcher:
    """The matcher of one part of an expectation, that something can fit."""
    place = f"{pointer}/{part}"
    faults: list[Problem] = []
    matcher = compile_matcher(pattern, faults, place, names=names)
    if not faults:
        found = find_impossible(pattern, _OF_PART.get(part, {}))
        faults = [problem._replace(pointer=place + problem.pointer) for problem in found]
        if faults and part in _WORDS and (part not in KEPT or faults[0].pointer == place):
            message = f"{_WORDS[part]}, so it is never {compact(pattern)}"
            hint = _EXAMPLES.get(part) or _number_for(pattern)
            faults = [faults[0]._replace(message=message, hint=hint)]
    problems += faults
    return matcher


_EXAMPLES = {**dict.fromkeys(KEPT, "such as `{NAME: WANTED}`"), "final_text": "such as `{$contains: ORD-1}`"}


def _number_for(pattern: JSON) -> str:
    """The way out where a duration was written for a number of seconds."""
    if isinstance(pattern, str):
        with suppress(ValueError):
            return f"write `{parse_duration(pattern):g}`"
    return "such as `2` or `{$lt: 2}`"


def parse_verification(entry: Mapping[str, Any], names: Names, problems: list[Problem]) -> Verification:
    """Compile what must be true at the end; `names` is what came of all steps."""
    if not entry:
        return NO_RULES
    required = [
        _made(made, f"/verify/calls/{index}", made.get("times", {"$gte": 1}), names, problems)
        for index, made in enumerate(entry.get("calls", ()))
    ]
    forbidden = [
        _made(made, f"/verify/never/{index}", 0, names, problems)
        for index, made in enumerate(entry.get("never", ()))
    ]
    problems += _both_made_and_not(required, forbidden)
    order = next(((kind, tuple(tools)) for kind, tools in entry.get("order", {}).items()), None)
    kept = {part: _matcher(part, entry[part], "/verify", names, problems) for part in KEPT if part in entry}
    budget = {
        part: _matcher(part, pattern, "/verify/budget", names, problems)
        for part, pattern in entry.get("budget", {}).items()
    }
    stop = entry.get("stop", [])
    return Verification(
        calls=(*required, *forbidden),
        order=order,
        kept=kept,
        budget=budget,
        unused_rules=entry.get("unused_rules", "warn"),
        final_text=_matcher("final_text", entry["final_text"], "/verify", names, problems)
        if "final_text" in entry
        else None,
        stops=(stop,) if isinstance(stop, str) else tuple(stop),
    )


def _both_made_and_not(required: Sequence[CallRule], forbidden: Sequence[CallRule]) -> Iterator[Problem]:
    """Calls that must not have been made, and without which others that must have been made can't have been."""
    for never in forbidden:
        for made in required:
            if made.times.constant and not made.times.matches(0) and _covers(never, made):
                message = f"calls of `{made.tool}` are required (`{made.pointer}`) and forbidden here"
                hint = "remove one of them, or narrow one with `args` or `outcome`"
                yield Problem(code="contradiction", message=message, pointer=never.pointer, hint=hint)


def _covers(never: CallRule, made: CallRule) -> bool:
    """Whether each call that is counted by one is surely counted by the other too."""
    same = made.tool == never.tool or (not set(made.tool) & set("*?[") and fnmatchcase(made.tool, never.tool))
    ended = not never.outcomes or (made.outcomes and {*made.outcomes} <= {*never.outcomes})
    equal = made.args is not None and never.args is not None and made.args.expected() == never.args.expected()
    return bool(same and ended and (never.args is None or equal))


def _made(
    entry: Mapping[str, Any], pointer: str, times: JSON, names: Names, problems: list[Problem]
) -> CallRule:
    args = _matcher("args", entry["args"], pointer, names, problems) if "args" in entry else None
    return CallRule(
        tool=entry["tool"],
        args=args,
        times=_matcher("times", times, pointer, names, problems),
        outcomes=_outcomes(entry),
        pointer=pointer,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """What a golden file says.

    Attributes:
        name: Path of the file, as the scenario names it.
        value: The result that it holds.
        missing: Whether no such file.
        fault: Why it holds no result; empty if it holds one or is missing.
    """

    name: str
    value: JSON = None
    missing: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Golden:
    """The golden file that a step names.

    Attributes:
        name: Path of the file; may read `matrix` and `run`.
    """

    name: Rendering

    def path(self, scope: Mapping[str, JSON]) -> str:
        """The path in one run of the scenario.

        Raises:
            ExpressionError: It can't be worked out, or is no text.
        """
        path = self.name.render(scope)
        if isinstance(path, str) and path.strip():
            return path
        raise ExpressionError("the name of a golden file must be non-empty text")

    def read(self, files: Files | None, scope: Mapping[str, JSON]) -> GoldenFile:
        """Read the file of one run; that there is none is no error.

        Raises:
            ExpressionError: The path can't be worked out, or is no text.
            OSError: The file can't be read, or lies outside what the scenario may read.
        """
        return _read(files, self.path(scope))


def _read(files: Files | None, name: str) -> GoldenFile:
    try:
        content = None if files is None else files.read(name)
    except FileNotFoundError:
        content = None
    if content is None:
        return GoldenFile(name=name, missing=True)
    value, problems = parse_json(name, content)
    if problems:
        first = problems[0]
        return GoldenFile(
            name=name, fault=f"`{name}` does not contain a result: line {first.line}: {first.message}"
        )
    return GoldenFile(name=name, value=value)


def golden_path(files: Files | None, name: str) -> Path:
    """Where a golden file lies on disk, whether it is there or not.

    Raises:
        OSError: It lies in no folder (but in an archive, or in memory), or outside what the scenario may read.
    """
    if not isinstance(files, DiskFiles):
        raise PermissionError(f"cannot write `{name}`: its scenario is not in a folder")
    path = Path(os.path.realpath(files.folder / name))
    if not path.is_relative_to(os.path.realpath(files.root)):
        raise PermissionError(f"cannot write `{name}`: it is outside {files.root}")
    return path


def golden_text(value: JSON) -> str:
    """What a golden file says of a result: indented JSON, keys in the order of the result."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def check_golden(
    golden: Golden, pointer: str, scopes: Iterable[Mapping[str, JSON]], files: Files | None
) -> Iterable[Problem]:
    """What is wrong with the golden files of one step; that one is missing, or differs, is for the run to say.

    Args:
        golden: The file.
        pointer: JSON Pointer into the document.
        scopes: What the name may read, for each run.
        files: The files that the scenario may name.
    """
    names: dict[str, None] = {}
    for scope in scopes:
        try:
            names[golden.path(scope)] = None
        except ExpressionError as error:
            yield error.problem(pointer)
            return
    for name in names:
        try:
            fault = _read(files, name).fault
        except OSError as error:
            text = str(error) if error.errno is None else f"cannot read `{name}`: {error.strerror}"
            yield Problem(code="file_unreadable", message=text, pointer=pointer, hint=_WHERE)
        else:
            if fault:
                yield Problem(
                    code="invalid_golden", message=fault, pointer=pointer, hint=_ANEW, severity="warning"
                )


_WHERE = "paths are relative to the scenario and may not leave its folder or pack"
_ANEW = "run `toolcrib run --update` to rewrite it"
