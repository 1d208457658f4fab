"""Command lines that are answered before click is imported, exactly as their commands would answer them.

Whatever is not clear at first sight (an option that is not known here, a document with errors, a stream of
another encoding) is left to the command: then nothing has been printed and no tool was called.
"""

from __future__ import annotations

import os
import sys

from toolcrib.cli.entry import print_answer
from toolcrib.engine import engine_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import TypeAlias

    from toolcrib.core.model import Result

    ParsedWords: TypeAlias = tuple[list[str], set[str], dict[str, list[str]]]


PROFILE_VARIABLE = "TOOLCRIB_PROFILE"
"""As `loading.settings.PROFILE_VARIABLE`, whose module is slow to import."""

ONCE = ("--profile", "--mode", "--seed")
"""Options that are left to the command when they are given twice."""


def list_tools(words: Sequence[str]) -> int | None:
    """Answer `toolcrib list`, from the index alone."""
    parsed = _parse_words(words, (), ("--pack", "--profile"))
    if parsed is None or parsed[0]:
        return None
    options = parsed[2]
    from toolcrib.cli.output import listed_lines, terminal_width  # noqa: PLC0415 -- `toolcrib call` needs neither
    from toolcrib.loading.cache.header import GarbageCollectionPause, find_listing  # noqa: PLC0415

    profile = _only(options, "--profile")
    asked = profile if profile is not None else os.environ.get(PROFILE_VARIABLE) or None
    with GarbageCollectionPause():
        found = find_listing(options.get("--pack", []), asked, insists=profile is not None)
        if found is None:
            return None
        (rows, left), installed = found
        if not all(installed.get(mode, True) for _name, mode, *_rest in rows if mode is not None):
            return None  # whether a mode of others can be used is known when it is imported
        lines = listed_lines(rows, left, lambda mode: mode not in installed, terminal_width())
        return 0 if print_answer("".join(f"{line}\n" for line in lines)) else None


def call(words: Sequence[str]) -> int | None:
    """Answer `toolcrib call NAME [KEY=TEXT | KEY:=JSON]...`, for a call that never waits."""
    parsed = _parse_words(words, ("--json", "--no-index"), ("--pack", "--profile", "--mode", "--seed"))
    if parsed is None or not parsed[0]:
        return None
    (name, *rest), flags, options = parsed
    seed, mode = options.get("--seed", ["0"])[0], _only(options, "--mode")
    if not (seed.isascii() and seed.isdecimal() and len(seed) < 20):
        return None
    from toolcrib.cli.arguments import plain_arguments  # noqa: PLC0415 -- `toolcrib list` needs none of these
    from toolcrib.core.errors import ToolcribError  # noqa: PLC0415
    from toolcrib.engine.runtime import read_runtime  # noqa: PLC0415
    from toolcrib.engine.startup import OpenRequest  # noqa: PLC0415
    from toolcrib.security.trust import TrustPolicy  # noqa: PLC0415

    arguments = plain_arguments(rest)
    if arguments is None:
        return None
    asked = OpenRequest(
        also=tuple(options.get("--pack", ())),
        profile=_only(options, "--profile"),
        modes={} if mode is None else {name: mode},
        indexed="--no-index" not in flags,
        trust=TrustPolicy().with_environment(),
    )
    try:
        runtime = read_runtime(asked, seed=int(seed))
    except ToolcribError:
        return None
    if any(problem.severity == "error" for problem in runtime.problems):
        return None
    tool = runtime.registry.get(name)
    if (
        tool is not None
        and tool.mode is not None
        and not engine_of(runtime).executors.is_contained(tool.mode)
    ):
        return None  # it waits, and whether it may be bound is asked once, by the command
    result = engine_of(runtime).default_session.call_at_once(name, arguments)
    if result is None:
        return None
    runtime.close()
    return _print_result(result, as_json="--json" in flags, worded=bool(rest))


def _parse_words(words: Sequence[str], flags: Collection[str], valued: Collection[str]) -> ParsedWords | None:
    """The words that are no options, the flags, and the options with their values; None where click may see otherwise."""
    if (getattr(sys.stdout, "encoding", None) or "").lower() != "utf-8":
        return None
    plain: list[str] = []
    given: set[str] = set()
    options: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            plain.append(word)
        elif word in flags:
            given.add(word)
        else:
            value = next(rest, None)
            if word not in valued or value is None or (word in ONCE and word in options):
                return None
            options.setdefault(word, []).append(value)
    if not all(os.access(path, os.R_OK) for path in options.get("--pack", ())):
        return None
    return plain, given, options


def _only(options: dict[str, list[str]], name: str) -> str | None:
    return options[name][0] if name in options else None


def _print_result(result: Result, *, as_json: bool, worded: bool) -> int:
    """Print what came of a call that was made: by click's means where there is more to it than to print texts."""
    from toolcrib.cli.exit_codes import OF_OUTCOME  # noqa: PLC0415
    from toolcrib.cli.output import answer_lines  # noqa: PLC0415 -- as above

    code = OF_OUTCOME[result.outcome]
    if (as_json or not code) and print_answer(
        "".join(f"{line}\n" for line in answer_lines(result, as_json=as_json))
    ):
        return code
    from toolcrib.cli.call import print_result  # noqa: PLC0415 -- only failures need click
    from toolcrib.cli.group import exit_through_click  # noqa: PLC0415

    return exit_through_click(lambda: print_result(result, as_json=as_json, worded=worded))
