"""Entry point of the command `toolcrib`: a table of commands, each imported when it is used.

Every command waits for the imports of this module, so it only imports modules that Python itself has loaded.
"""

from __future__ import annotations

import io
import os
import sys

# Type checkers know this name, so `typing`, which is slow to import, is not needed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn, TextIO

    from _typeshed import ReadableBuffer

COMPLETION = "_TOOLCRIB_COMPLETE"
"""Environment variable with which a shell asks click for completions."""

INTERRUPTED = 130
"""Exit code after Ctrl-C; equal to `exit_codes.INTERRUPTED`, whose module is slow to import."""

READER_GONE = 1
"""Equal to `exit_codes.PROBLEMS`, which is also the code of click for a closed output pipe."""

OUTPUT_FAILED = 4
"""Equal to `exit_codes.OUTPUT_FAILED`."""


class Verb:
    """Module and summary of a command, so that `--help` imports none of them.

    Attributes:
        module: Module in `toolcrib.cli`.
        summary: First line of the help.
        name: Name of the command object in the module.
        quick: `module:function` that may answer the command line before click is imported; empty for none.
            `function(words) -> int | None` returns the exit code if it did everything that the command would do; it
            returns None, with nothing printed, to leave everything to the command.
    """

    # A plain class, since importing `dataclasses` or `typing` for this table would delay every command.
    __slots__ = ("module", "name", "quick", "summary")

    def __init__(self, module: str, summary: str, *, name: str = "command", quick: str = "") -> None:
        self.module = module
        self.name = name
        self.summary = summary
        self.quick = quick


VERBS: Mapping[str, Verb] = {
    "init": Verb("init", "Create a starter project with a tool, a pack and a scenario."),
    "new": Verb("new", "Create a tool, a scenario or a pack to start from."),
    "validate": Verb("validate", "Check descriptors, packs and scenarios, and test what mocks return."),
    "lint": Verb(
        "lint",
        "Find what a model will misread: descriptions, parameters, names, costs, and tools that it cannot tell apart.",
    ),
    "list": Verb("list", "List the tools.", quick="fast_path:list_tools"),
    "search": Verb("list", "Search the tools by keyword.", name="search"),
    "show": Verb("show", "Show the details of one tool."),
    "call": Verb("call", "Call a tool.", quick="fast_path:call"),
    "shell": Verb("shell", "Call tools in one session, line by line."),
    "cost": Verb("cost", "Count the tokens that the tool declarations use."),
    "run": Verb("run", "Run the scenarios and the examples of descriptors."),
    "chat": Verb("chat", "Chat with a model that uses the tools."),
    "agent": Verb(
        "agent", "Run agents of other makers over ACP, with the tools and the rules of this project."
    ),
    "replay": Verb("replay", "Replay recorded tasks, and compare results and changed rows."),
    "lock": Verb("lock", "Lock what MCP servers offer, and show what changed since."),
    "diff": Verb("diff", "Compare two sets of tools, and say what each change means."),
    "import": Verb(
        "import_",
        "Import tools: of servers, requests, lists for model providers, benchmarks, and files of other tool systems.",
    ),
    "export": Verb(
        "export",
        "Export tools to other formats: model providers, MCP, OpenAPI, UTCP, documentation, descriptor files.",
    ),
    "stubs": Verb("stubs", "Write a typed Python module for the tools."),
    "serve": Verb("serve", "Serve the tools to other programs."),
    "stats": Verb("stats", "Show the calls that a served runtime has made: counts, failures, durations."),
    "top": Verb("top", "Show the running calls and the rates of a served runtime, live."),
    "cancel": Verb("stats", "Cancel running calls of a served runtime.", name="cancel"),
    "remote": Verb("remote", "Use the tools of A2A agents by the agents' own names."),
    "trust": Verb(
        "trust", "Trust a project or a pack: let it start programs, contact hosts and read secrets."
    ),
    "approvals": Verb(
        "approvals", "List and answer the calls that wait for approval, and revoke standing approvals."
    ),
    "journal": Verb("journal", "List, show, export and resolve the calls that left the process."),
    "doctor": Verb(
        "doctor", "Show what is installed and active, where each value comes from, and what is wrong."
    ),
    "pack": Verb("pack", "Build, inspect, sign, verify and install packs."),
    "schema": Verb("init", "Print the JSON Schema of a document kind.", name="schema"),
    "completion": Verb("group", "Print the shell completion script.", name="completion"),
}


class OutputError(Exception):
    """stdout cannot be written, as on a full disk.

    This is not an OSError, so that a command does not mistake it for a failure of one of its own files.
    """


class StandardOutput(io.FileIO):
    """stdout. Output after an error is dropped, so that no later flush fails again.

    Attributes:
        error: The first error, if any.
    """

    error: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the bytes.

        Raises:
            BrokenPipeError: The reader closed the pipe; click ends the command.
            OutputError: The output cannot be written for another reason.
        """
        if self.error is None:
            try:
                return super().write(data)
            except BrokenPipeError as error:
                self.error = error
                raise
            except OSError as error:
                self.error = error
                raise OutputError(error.strerror) from error
        return memoryview(data).nbytes


class StandardError(io.FileIO):
    """stderr. A message that cannot be written is dropped: it must not stop the work, and there is no place to report it."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the bytes, or drop them all."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def main() -> None:
    """The entry point of the command; ends the process with its exit code."""
    while None in {sys.__stdin__, sys.__stdout__, sys.__stderr__} and os.open(os.devnull, os.O_RDONLY) < 2:
        pass  # Otherwise the next file to be opened gets the descriptor of a closed stream, and receives its output.
    output = StandardOutput(1, "w", closefd=False)
    # Python itself reports a failed write to stdout only at exit, with code 120 and a message about an
    # ignored exception.
    sys.stdout = _over(output, sys.stdout)
    sys.stderr = _over(StandardError(2, "w", closefd=False), sys.stderr)
    code: str | int | None = None
    lost: str | None = None
    try:
        try:
            _answer(sys.argv[1:])
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
    except BrokenPipeError:
        if output.error is None:
            raise
    except OutputError as error:
        lost = str(error)
    if isinstance(output.error, BrokenPipeError):
        code = READER_GONE
    elif output.error is not None:  # also if a broad `except` swallowed the OutputError
        lost = output.error.strerror
    if lost is not None:
        sys.stderr.write(f"cannot write the output: {lost}\n")
        code = OUTPUT_FAILED
    sys.exit(code)


def _over(raw: io.FileIO, stream: TextIO | None) -> TextIO:
    """Rebuild a text stream over another raw file; characters outside its encoding are written as escapes.

    A stream over another descriptor keeps its file, such as that of a test or a Windows console.
    """
    errors = "backslashreplace"
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors)
    # A test or an embedding program has replaced the stream.
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    replaced = getattr(stream.buffer, "raw", stream.buffer)  # `python -u` has no buffer in between
    if type(replaced) is io.FileIO and replaced.fileno() == raw.fileno():
        return io.TextIOWrapper(
            raw if replaced is stream.buffer else io.BufferedWriter(raw),
            stream.encoding,
            errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
    stream.reconfigure(errors=errors)
    return stream


def _answer(words: list[str]) -> NoReturn:
    """Run a command line; always raises SystemExit."""
    try:
        code = _answered_quickly(words)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = INTERRUPTED
    if code is not None:
        sys.exit(code)
    from toolcrib.cli.group import cli  # noqa: PLC0415 -- click costs more than a quick answer

    cli(prog_name="toolcrib")
    raise AssertionError("click ends the process")


def _answered_quickly(words: list[str]) -> int | None:
    """Return the exit code of a command line that was answered without click; None for any other."""
    # Shells request completions with ordinary words and this variable; only click understands the request.
    if COMPLETION in os.environ:
        return None
    if words == ["--version"]:
        from toolcrib import __version__  # noqa: PLC0415

        return 0 if print_answer(f"toolcrib {__version__}\n") else None
    verb = VERBS.get(words[0]) if words else None
    if verb is None or not verb.quick:
        return None
    module, _, name = verb.quick.partition(":")
    # `importlib.import_module` would import `importlib`, which nothing else here needs.
    code: int | None = getattr(__import__(f"toolcrib.cli.{module}", fromlist=[name]), name)(words[1:])
    return code


def print_answer(text: str) -> bool:
    """Print an answer and return whether that worked. If not, click repeats it and reports the error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (AttributeError, OSError):
        return False
    return True
