"""Fast paths of `toolcrib list` and `toolcrib call`, which run before click is imported.

Their output is that of the commands. Anything unusual (an unknown option, a document with errors, a stream in another
encoding) falls back to the command; until then nothing is printed and no tool is called.
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

    from toolcrib.core.model import JSON, Result
    from toolcrib.engine.session import Session

    ParsedWords: TypeAlias = tuple[list[str], set[str], dict[str, list[str]]]


PROFILE_VARIABLE = "TOOLCRIB_PROFILE"
"""Equal to `loading.settings.PROFILE_VARIABLE`, whose module is slow to import."""

ONCE = ("--profile", "--mode", "--seed", "--state")
"""Options that fall back to the command if they are given twice."""


def list_tools(words: Sequence[str]) -> int | None:
    """Answer `toolcrib list` from the index."""
    parsed = _parse_words(words, (), ("--pack", "--profile"))
    if parsed is None or parsed[0]:
        return None
    options = parsed[2]
    from toolcrib.cli.output import listed_lines, terminal_width  # noqa: PLC0415 -- `toolcrib call` needs neither
    from toolcrib.loading.cache.header import GarbageCollectionPause, find_listing  # noqa: PLC0415

    profile = _only(options, "--profile")
    asked = profile if profile is not None else os.environ.get(PROFILE_VARIABLE) or None
    # Decoding a listing creates many objects and no garbage, so collections would only cost time.
    with GarbageCollectionPause():
        found = find_listing(options.get("--pack", []), asked, insists=profile is not None)
        if found is None:
            return None
        (rows, left, variables), installed = found
        if not all(map(os.environ.get, variables)):
            return None  # Only their descriptors show which tools are unavailable.
        if not all(installed.get(mode, True) for _name, mode, *_rest in rows if mode is not None):
            return None  # Only importing the code of a third-party mode shows whether it works.
        lines = listed_lines(rows, left, lambda mode: mode not in installed, terminal_width())
        return 0 if print_answer("".join(f"{line}\n" for line in lines)) else None


def call(words: Sequence[str]) -> int | None:
    """Answer `toolcrib call NAME [KEY=TEXT | KEY:=JSON]...` for a tool that never waits, such as a mock."""
    parsed = _parse_words(
        words, ("--json", "--no-index"), ("--pack", "--profile", "--mode", "--seed", "--state")
    )
    if parsed is None or not parsed[0]:
        return None
    (name, *rest), flags, options = parsed
    seed, mode = options.get("--seed", ["0"])[0], _only(options, "--mode")
    # `int` accepts more than click does here (`1_000`, other digits), and refuses more than 4,300 digits with
    # an error of its own.
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
    # The command repeats the error, with its hint and its exit code.
    except ToolcribError:
        return None
    # The command prints on stderr which documents were refused.
    if any(problem.severity == "error" for problem in runtime.problems):
        return None
    tool = runtime.registry.get(name)
    if (
        tool is not None
        and tool.mode is not None
        and not engine_of(runtime).executors.is_contained(tool.mode)
    ):
        return None  # The tool may wait, and binding it may ask for trust, which must not happen twice.
    session = engine_of(runtime).default_session
    state = _only(options, "--state")
    result = (
        session.call_at_once(name, arguments)
        if state is None
        else _kept_call(session, name, arguments, state)
    )
    if result is None or result.outcome.value == "not_found":
        return None  # The command looks for the tool in files that are not read.
    runtime.close()
    return _print_result(result, as_json="--json" in flags, worded=bool(rest))


def _kept_call(session: Session, name: str, arguments: dict[str, JSON], path: str) -> Result | None:
    """Call a tool with the store of a state file; None if nothing was called."""
    from toolcrib.engine.session_state import (  # noqa: PLC0415 -- few calls keep their store
        UnusableState,
        open_state,
        restore_state,
        saved_state,
        unsaved_effects,
    )

    # The command waits for another process, and reports errors.
    try:
        with open_state(path, patience=0) as file:
            restore_state(session, file.state)
            result = session.call_at_once(name, arguments)
            if result is not None:
                file.write(saved_state(session))
                warning = unsaved_effects(session)
                if warning:
                    sys.stderr.write(f"{warning}\n")
            return result
    except UnusableState:
        return None


def _parse_words(words: Sequence[str], flags: Collection[str], valued: Collection[str]) -> ParsedWords | None:
    """Split words into positional words, flags, and options with values; None if click might parse them differently."""
    # The text is written directly; click replaces characters that another encoding lacks.
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
    # Click reports an unreadable path in its own words.
    if not all(os.access(path, os.R_OK) for path in options.get("--pack", ())):
        return None
    return plain, given, options


def _only(options: dict[str, list[str]], name: str) -> str | None:
    return options[name][0] if name in options else None


def _print_result(result: Result, *, as_json: bool, worded: bool) -> int:
    """Print the result of a call and return its exit code; a failure is printed through click, which has colours."""
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
