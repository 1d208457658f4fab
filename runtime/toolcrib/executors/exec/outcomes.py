"""How the end of a program becomes the outcome of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toolcrib.core.child_process import ChildProcess, signal_name
from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import JSON, Descriptor, Outcome, Result, Usage
from toolcrib.core.process_limits import ExceededLimit, ProcessUsage
from toolcrib.core.text import format_size

_SHOWN = 1000
"""Characters of stderr in a message."""


class ProgramText(NamedTuple):
    """What messages say about a program.

    Attributes:
        tool: Name of the tool.
        name: The program as written.
        hide: Masks secrets in a text.
    """

    tool: str
    name: str
    hide: Callable[[str], str]

    def stderr_of(self, child: ChildProcess) -> str:
        """The end of its stderr, masked; empty if it wrote nothing."""
        text = child.last_words(self.hide).strip()
        return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"


def is_repeatable(tool: Descriptor) -> bool:
    """Whether a call may be attempted again after an attempt that may have acted."""
    return tool.annotations.read_only or tool.annotations.idempotent


def with_use(result: Result, used: ProcessUsage) -> Result:
    """The result with what the process used."""
    return result._replace(usage=used.of_call(Usage(attempts=1)))


def ended_result(text: ProgramText, child: ChildProcess, *, sandboxed: bool, output: bytes) -> Result:
    """The result of a call whose program ended with another exit code than the successful ones.

    Args:
        text: What messages say about the program.
        child: The process, which has ended.
        sandboxed: Whether it ran in a sandbox, which turns signals into exit codes.
        output: What it wrote to its stdout.
    """
    code = child.code or 0
    stderr = text.stderr_of(child)
    details: dict[str, JSON] = {}
    if code < 0:
        kind = "terminated_by_signal"
        details["signal"] = signal_name(-code)
    else:
        kind = "exit_code"
        details["exit_code"] = code
    how = child.describe_end()
    if sandboxed and code in _NOT_FOUND_CODES:
        how += " (its sandbox shows only the system, `cwd` and the granted `paths`)"
    if sandboxed and code > _SIGNAL_CODES:
        how += f", as after signal {signal_name(code - _SIGNAL_CODES)}"
    # Many programs report errors on stdout.
    said = stderr or text.hide(output[-_SHOWN:].decode("utf-8", "replace")).strip()
    if stderr:
        details["stderr"] = stderr
    message = f"`{text.name}` {how}"
    return Result.failure(
        Outcome.TOOL_ERROR, f"{message}: {said}" if said else message, code=kind, details=details
    )


_NOT_FOUND_CODES = (126, 127)
"""Exit codes of shells that cannot run a program: often one in the user's home folder, such as those of pyenv."""

_SIGNAL_CODES = 128
"""A shell and a sandbox report signal N as exit code 128 + N."""


def exceeded_result(text: ProgramText, tool: Descriptor, limit: ExceededLimit) -> Result:
    """The result of a call whose program exceeded a limit of its process."""
    return Result.failure(
        Outcome.LIMIT_EXCEEDED,
        f"`{text.name}` {limit.describe(tool)}; it was terminated",
        code=limit.code,
        details={**limit.details(tool), **acted(tool)},
    )


def too_large_result(text: ProgramText, tool: Descriptor, size: int) -> Result:
    """The result of a call whose program wrote more than a result may have."""
    most = tool.limits.output_size
    limit = limit_phrase(tool, "output_size", format_size(most))
    return Result.failure(
        Outcome.LIMIT_EXCEEDED,
        f"`{text.name}` wrote {size:,} bytes to its stdout, and {limit}; it was terminated",
        code="result_too_large",
        details={**limit_details(tool, "output_size", most, size), **acted(tool)},
    )


def acted(tool: Descriptor) -> dict[str, JSON]:
    """The details that say that a call may have had an effect."""
    return {} if is_repeatable(tool) else {"may_have_acted": True}


def sandbox_result(text: ProgramText, child: ChildProcess) -> Result:
    """The result of a call whose program was not started by its sandbox."""
    lines = text.stderr_of(child).splitlines() or [child.describe_end()]
    why = lines[-1].removeprefix("bwrap: ")
    return Result.failure(
        Outcome.UNAVAILABLE,
        f"the sandbox of `{text.tool}` cannot start `{text.name}`: {why}",
        code="sandbox_failed",
    )


def start_result(text: ProgramText, error: OSError | ValueError) -> Result:
    """The result of a call whose program was not started by the system."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return Result.failure(
        Outcome.UNAVAILABLE, f"`{text.name}` cannot be started for `{text.tool}`: {why}", code="not_started"
    )
