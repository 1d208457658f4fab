"""The command `toolcrib`: a table of verbs, each loaded when it is used.

What this module imports, every command waits for: it imports nothing that Python has not imported already.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn, TextIO

    from _typeshed import ReadableBuffer

COMPLETION = "_TOOLCRIB_COMPLETE"
"""The environment variable by which a shell asks click for completions, whatever the words are."""

INTERRUPTED = 130
"""How a shell tells an end by Ctrl-C; as `exit_codes.INTERRUPTED`."""

READER_GONE = 1
"""As `exit_codes.PROBLEMS`, and as click ends where whoever read the output went away."""

OUTPUT_FAILED = 4
"""As `exit_codes.OUTPUT_FAILED`."""


class Verb:
    """Where a verb lives and what it does, so that the list of verbs loads none of them.

    Attributes:
        module: The module of the package.
        summary: The first line of its help.
        name: What the command is called in the module.
        quick: `module:function` of what may answer the words after the verb before click is imported; empty for
            none. `function(words) -> int | None`: the exit code of a command line that it has answered whole,
            exactly as the command would; None, with nothing printed, leaves everything to the command.
    """

    __slots__ = ("module", "name", "quick", "summary")

    def __init__(self, module: str, summary: str, *, name: str = "command", quick: str = "") -> None:
        self.module = module
        self.name = name
        self.summary = summary
        self.quick = quick


VERBS: Mapping[str, Verb] = {
    "init": Verb("init", "Write a first project to start from: a tool, a pack, a scenario."),
    "validate": Verb("validate", "Check descriptors, packs and scenarios, and prove what mocks answer."),
    "list": Verb("list", "List the tools.", quick="fast_path:list_tools"),
    "search": Verb("list", "Search the tools for words.", name="search"),
    "show": Verb("show", "Show everything about one tool."),
    "call": Verb("call", "Call a tool.", quick="fast_path:call"),
    "cost": Verb("cost", "Tell how many tokens the declarations of the tools take."),
    "run": Verb("run", "Run the scenarios, and the examples of descriptors."),
    "chat": Verb("chat", "Hold a conversation with a model that uses the tools."),
    "replay": Verb(
        "replay", "Replay recorded tasks against the tools, and compare answers and changed rows."
    ),
    "lock": Verb("lock", "Freeze what MCP servers offer, and show what changed since."),
    "import": Verb(
        "import_",
        "Write files of what others have: tools of an MCP server, an arena of PromptKit.",
    ),
    "export": Verb("export", "Write files of other systems: a PromptPack of tools and prompts."),
    "serve": Verb("serve", "Offer the tools to other programs."),
    "trust": Verb(
        "trust", "Trust a project or a pack: let it start programs, contact hosts and read secrets."
    ),
    "doctor": Verb(
        "doctor", "Say what is installed, what is in force, where it came from, and what is wrong."
    ),
    "pack": Verb("pack", "Build a pack into an archive, or look into one."),
    "schema": Verb("init", "Print the JSON Schema of a kind of document.", name="schema"),
    "completion": Verb("group", "Print the script that completes `toolcrib` in a shell.", name="completion"),
}


class OutputError(Exception):
    """stdout can't be written to, as on a full disk.

    This is not an OSError, so that no command takes it for the failure of one of its own files.
    """


class StandardOutput(io.FileIO):
    """stdout. What is written after an error is dropped, so that no later flush fails again.

    Attributes:
        error: The first error; None while all is well.
    """

    error: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the bytes.

        Raises:
            BrokenPipeError: Nobody reads the output; click ends the command.
            OutputError: The output can't be written for another reason.
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
    """stderr. A message that can't be written is dropped: it must not stop the work, and could be reported nowhere."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the bytes, or drop them all."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def main() -> None:
    """The entry point of the command; ends the process with its exit code."""
    while None in {sys.__stdin__, sys.__stdout__, sys.__stderr__} and os.open(os.devnull, os.O_RDONLY) < 2:
        pass  # a file that is opened later must not get the number of a stream that is closed
    output = StandardOutput(1, "w", closefd=False)
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
    elif output.error is not None:  # also where code that expects any exception went on after it
        lost = output.error.strerror
    if lost is not None:
        sys.stderr.write(f"can't write the output: {lost}\n")
        code = OUTPUT_FAILED
    sys.exit(code)


def _over(raw: io.FileIO, stream: TextIO | None) -> TextIO:
    """A stream as it was, over another raw file; a character that its encoding lacks is shown as an escape.

    A stream that is not over the same descriptor keeps its file: that of a test, a console of Windows.
    """
    errors = "backslashreplace"
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    replaced = getattr(stream.buffer, "raw", stream.buffer)  # `python -u` has no buffer between
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
    """Answer a command line; ends by SystemExit."""
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
    """The exit code of a command line that needs no click; None for any other."""
    if COMPLETION in os.environ:
        return None
    if words == ["--version"]:
        from toolcrib import __version__  # noqa: PLC0415

        return 0 if print_answer(f"toolcrib {__version__}\n") else None
    verb = VERBS.get(words[0]) if words else None
    if verb is None or not verb.quick:
        return None
    module, _, name = verb.quick.partition(":")
    # `importlib` would have to be imported for the same.
    code: int | None = getattr(__import__(f"toolcrib.cli.{module}", fromlist=[name]), name)(words[1:])
    return code


def print_answer(text: str) -> bool:
    """Print the whole of a quick answer, and return whether that worked. Click knows what to do where it did not."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (AttributeError, OSError):
        return False
    return True
