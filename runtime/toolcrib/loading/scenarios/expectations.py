"""Compile the expectations of a scenario: results of calls, golden files, and the final verification."""

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
"""Names that expressions can read, each with its possible keys, or None if they are unknown."""


def expression_texts(value: JSON, pointer: str) -> Iterator[tuple[str, str]]:
    """The texts with expressions in a value, with their pointers."""
    if isinstance(value, str) and is_expression(value):
        yield pointer, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from expression_texts(item, f"{pointer}/{pointer_step(key)}")


KEPT = ("store", "changed", "state")
"""Parts of the mocks' state that `verify` can match."""

PARTS = ("result", "error", "content", "attempts", "elapsed")
"""Parts of a result that `expect` can match."""


def parse_expectation(
    entry: Mapping[str, Any], pointer: str, names: Names, run_names: Names, problems: list[Problem]
) -> Expectation:
    """Compile the `expect:` of a step.

    Args:
        entry: The block, as written.
        pointer: JSON Pointer of the block.
        names: Names that its matchers can read.
        run_names: Names that the name of a golden file can read.
        problems: Receives the problems of the block.
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
    """The accepted outcomes; empty if none are given."""
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
    "changed": {"type": "object"},
    "elapsed": {"type": "number", "minimum": 0},
    "final_text": {"type": "string"},
    "state": {"type": "object"},
    "store": {"type": "object"},
    "times": {"type": "integer", "minimum": 0},
}
"""JSON Schemas of the parts whose type is known."""

_WORDS = {
    "attempts": "`attempts` is a whole number of at least 0",
    "calls": "`calls` is a whole number of at least 0",
    "changed": "`changed` is an object of collections",
    "elapsed": "`elapsed` is a number of seconds from 0 up",
    "final_text": "`final_text` is the last text of the agent",
    "state": "`state` is an object of named states",
    "store": "`store` is an object of collections",
    "times": "`times` is a whole number of at least 0",
}


def _matcher(part: str, pattern: JSON, pointer: str, names: Names, problems: list[Problem]) -> Matcher:
    """Compile the matcher of one part, and report it if it can never match."""
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
    """The hint for a duration in place of a number of seconds."""
    if isinstance(pattern, str):
        with suppress(ValueError):
            return f"write `{parse_duration(pattern):g}`"
    return "such as `2` or `{$lt: 2}`"


def parse_verification(entry: Mapping[str, Any], names: Names, problems: list[Problem]) -> Verification:
    """Compile `verify:`; `names` are those available after all steps."""
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
    """A problem for each forbidden call that includes a required one."""
    for never in forbidden:
        for made in required:
            # `times` with an expression, or one that accepts 0, may be compatible with "never".
            if made.times.constant and not made.times.matches(0) and _covers(never, made):
                message = f"calls of `{made.tool}` are required (`{made.pointer}`) and forbidden here"
                hint = "remove one of them, or narrow one with `args` or `outcome`"
                yield Problem(code="contradiction", message=message, pointer=never.pointer, hint=hint)


def _covers(never: CallRule, made: CallRule) -> bool:
    """Whether every call that matches `made` surely matches `never` as well."""
    # Only obvious cases: a false alarm would reject a correct scenario.
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
    """The content of a golden file.

    Attributes:
        name: Path of the file, as the scenario names it.
        value: The result in the file.
        missing: Whether the file does not exist.
        fault: Why it does not contain a result; empty if it does or is missing.
    """

    name: str
    value: JSON = None
    missing: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Golden:
    """The golden file of a step.

    Attributes:
        name: Path of the file; its expressions can read `matrix` and `run`.
    """

    name: Rendering

    def path(self, scope: Mapping[str, JSON]) -> str:
        """The path in one run of the scenario.

        Raises:
            ExpressionError: The path cannot be rendered, or is not text.
        """
        path = self.name.render(scope)
        if isinstance(path, str) and path.strip():
            return path
        raise ExpressionError("the name of a golden file must be non-empty text")

    def read(self, files: Files | None, scope: Mapping[str, JSON]) -> GoldenFile:
        """Read the file of one run; a missing file is not an error.

        Raises:
            ExpressionError: The path cannot be rendered, or is not text.
            OSError: The file cannot be read, or is outside the scenario's folder or pack.
        """
        return _read(files, self.path(scope))


def _read(files: Files | None, name: str) -> GoldenFile:
    try:
        # A missing file is not an error here: `--update` creates it.
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
    """The path of a golden file on disk, existing or not.

    Raises:
        OSError: The scenario is not in a folder (but in an archive or in memory), or the path leaves its folder or pack.
    """
    if not isinstance(files, DiskFiles):
        raise PermissionError(f"cannot write `{name}`: its scenario is not in a folder")
    path = Path(os.path.realpath(files.folder / name))
    if not path.is_relative_to(os.path.realpath(files.root)):
        raise PermissionError(f"cannot write `{name}`: it is outside {files.root}")
    return path


def golden_text(value: JSON) -> str:
    """The text of a golden file: indented JSON with keys in the order of the result."""
    # Not sorted and not escaped: a golden file is read in reviews, and its diff should show only what changed.
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def check_golden(
    golden: Golden, pointer: str, scopes: Iterable[Mapping[str, JSON]], files: Files | None
) -> Iterable[Problem]:
    """The problems of the golden files of one step. Missing or different files are reported by the run.

    Args:
        golden: The golden file.
        pointer: JSON Pointer of its name.
        scopes: The values that the name can read, for each run.
        files: The files that the scenario may name.
    """
    # A dict, because most names do not depend on the run: 1,000 runs then check one file.
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
