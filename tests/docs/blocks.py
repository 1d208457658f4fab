"""Runs the fenced blocks of a page, in order, in one folder.

- A block whose line before it names a file (`` `descriptors/weather.tool.yaml`: ``) is written there.
- A `console` block holds commands (`$ ...`, continued while a line ends in a backslash) and what they print.
  `...` stands for any text within a line, and alone on a line for any lines. A command that fails must say so:
  `$ command; echo "exit code $?"`.
- Any other `python` block is run.
- A `sh` block sets up a checkout (make, git, pip) and is not run here: the CI run executes its make commands.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from forking import run_forked

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

FILE_NAME = re.compile(r"`([^`\s]+)`:\n+$")

SET_UP = re.compile(r"^(make|git|cd|pip|#|$)")

SECONDS = 120
"""A command that takes longer hangs."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the file that it is written to (or empty), its line in the page."""

    language: str
    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command and what it prints."""

    text: str
    output: str


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in FENCE.finditer(page):
        before = page[: match.start()]
        named = FILE_NAME.search(before)
        found.append(Block(match[1], match[2], named[1] if named else "", before.count("\n") + 1))
    return found


def commands_of(text: str) -> Iterator[Command]:
    """The commands of a `console` block, each with the lines that follow it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, rest = re.match(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", part, re.DOTALL).groups()
        yield Command(command.strip(), rest)


def pattern_of(output: str) -> re.Pattern[str]:
    """What an expected output matches."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else line_pattern(line)
        for line in output.rstrip().splitlines()
    ]
    return re.compile("".join(lines) + r"\s*")


def line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ ]*\n"


def run_page(page: Path, folder: Path, environment: Mapping[str, str], warnings: str = "error") -> int:
    """Write and run all blocks of a page in a folder. Returns how many there were.

    `warnings` is the option `-W` of Python.

    Raises:
        AssertionError: A block of a kind that can't be run, a command that failed, an output that differs.
    """
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    for block in blocks:
        run_block(block, f"{page.name}:{block.line}", folder, environment, warnings)
    return len(blocks)


def run_block(
    block: Block, place: str, folder: Path, environment: Mapping[str, str], warnings: str = "error"
) -> None:
    if block.file:
        assert block.language != "console", (
            f"{place}: a colon behind `{block.file}` makes a file of this block"
        )
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
    elif block.language == "console":
        for command in commands_of(block.text):
            compare(command, ran(["bash", "-c", command.text], folder, environment, place), place)
    elif block.language == "python":
        ran(["python", "-W", warnings, "-c", block.text], folder, environment, place)
    elif block.language == "sh":
        strangers = [line for line in block.text.splitlines() if not SET_UP.match(line)]
        assert not strangers, f"{place}: a `sh` block only sets up a checkout, but: {strangers}"
    else:
        raise AssertionError(f"{place}: a `{block.language}` block that names no file can't be checked")


QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")

SPECIAL = re.compile(r"[$`|&;<>()*?\[\]~#{}!\"'\\\n]")

EXIT_CODE = '; echo "exit code $?"'
"""What a command that fails ends with."""


def forked_words(command: list[str], folder: Path) -> list[str] | None:
    """The words of a `toolcrib` or `python` command that needs no shell, without `EXIT_CODE`; None for all others."""
    if command[0] == "python":
        return command
    text = command[-1].removesuffix(EXIT_CODE)
    if SPECIAL.search(QUOTED.sub("", text)):
        return None
    words = shlex.split(text)
    script = words[0] == "python" and words[1].endswith(".py") and (folder / words[1]).is_file()
    return words if script or words[0] == "toolcrib" else None


def ran(command: list[str], folder: Path, environment: Mapping[str, str], place: str) -> str:
    """What a command prints, on both streams in the order of writing."""
    commands = Path(environment["PATH"].partition(os.pathsep)[0])
    if (commands.parent / "socket").is_socket() and (words := forked_words(command, folder)) is not None:
        code, output = run_forked(commands, words, environment, folder, SECONDS)
        if command[-1].endswith(EXIT_CODE):
            return f"{output}exit code {code}\n"
        assert code == 0, f"{place}: {command[-1]}\nended with {code}:\n{output}"
        return output
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{place}: {command[-1]}\nended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def compare(command: Command, output: str, place: str) -> None:
    told = f"{place}: $ {command.text}\nthe page says:\n{command.output}\nit prints:\n{output}"
    assert pattern_of(command.output).fullmatch(output if output.endswith("\n") else output + "\n"), told
