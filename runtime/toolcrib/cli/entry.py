"""The command `toolcrib`: a table of verbs, each loaded when it is used.

What this module imports, every command waits for: it imports nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

COMPLETION = "_TOOLCRIB_COMPLETE"
"""The environment variable by which a shell asks click for completions, whatever the words are."""

INTERRUPTED = 130
"""How a shell tells an end by Ctrl-C; as `exit_codes.INTERRUPTED`."""


class Verb:
    """Where a verb lives and what it does, so that the list of verbs loads none of them.

    Attributes:
        module: The module of the package; the command in it is called `command`.
        summary: The first line of its help.
        quick: `module:function` of what may answer the words after the verb before click is imported; empty for
            none. `function(words) -> int | None`: the exit code of a command line that it has answered whole,
            exactly as the command would; None, with nothing printed, leaves everything to the command.
    """

    __slots__ = ("module", "quick", "summary")

    def __init__(self, module: str, summary: str, quick: str = "") -> None:
        self.module = module
        self.summary = summary
        self.quick = quick


VERBS: Mapping[str, Verb] = {
    "init": Verb("init", "Write a first project to start from: a tool, a pack, a scenario."),
    "validate": Verb("validate", "Check descriptors, packs and scenarios, and prove what mocks answer."),
    "list": Verb("list", "List the tools.", quick="quick:list_tools"),
    "search": Verb("search", "Search the tools for words."),
    "show": Verb("show", "Show everything about one tool."),
    "call": Verb("call", "Call a tool.", quick="quick:call"),
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
    "schema": Verb("schema", "Print the JSON Schema of a kind of document."),
    "completion": Verb("completion", "Print the script that completes `toolcrib` in a shell."),
}


def main() -> None:
    """The entry point of the command; ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _never_fails_to_encode(stream)
    try:
        code = _answered_quickly(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = INTERRUPTED
    if code is not None:
        sys.exit(code)
    from toolcrib.cli.group import cli  # noqa: PLC0415 -- click costs more than a quick answer

    cli(prog_name="toolcrib")


def _never_fails_to_encode(stream: IO[str]) -> None:
    """A character that the terminal's encoding lacks is shown as an escape."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _answered_quickly(words: list[str]) -> int | None:
    """The exit code of a command line that needs no click; None for any other."""
    if COMPLETION in os.environ:
        return None
    if words == ["--version"]:
        from toolcrib import __version__  # noqa: PLC0415

        return 0 if say(f"toolcrib {__version__}\n") else None
    verb = VERBS.get(words[0]) if words else None
    if verb is None or not verb.quick:
        return None
    module, _, name = verb.quick.partition(":")
    # `importlib` would have to be imported for the same.
    code: int | None = getattr(__import__(f"toolcrib.cli.{module}", fromlist=[name]), name)(words[1:])
    return code


def say(text: str) -> bool:
    """Print the whole of a quick answer, and return whether that worked. Click knows what to do where it did not."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (AttributeError, OSError):
        return False
    return True
