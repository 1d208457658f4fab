"""What is answered before click is imported is what the command answers, byte by byte."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from sampling import sample
from toolcrib.cli import entry, fast_path
from toolcrib.cli.group import cli
from toolcrib.engine.open_project import open_project
from toolcrib.engine.startup import listings_of
from toolcrib.executors import Executors
from toolcrib.loading.cache.header import IndexHeader, index_folder, index_key, parse_header
from toolcrib.loading.cache.index import Index, project_profiles
from toolcrib.loading.cache.store import IndexFolder
from toolcrib.loading.fingerprints import FileFingerprints, FileTracker
from toolcrib.loading.settings import PROFILE_VARIABLE

TOOLS = {
    "descriptors/echo.tool.yaml": """
name: echo
description: Says it again. And that is all.
annotations: {read_only: true}
input_schema:
  required: [text]
  properties: {text: {type: string}, times: {type: integer, minimum: 1, default: 1}}
mock: {result: "{{ args.text ~ ' ' ~ args.times }}"}
---
name: parts
deprecated: true
mock:
  result: {made: true, more: [1, 2.5, null, "\\e[31mé日"]}
  content:
    - {type: text, text: See here.}
    - {type: image, data: aGVsbG8=, mime_type: image/png, title: "A \\e[31mmap"}
---
name: failing
mock: {error: {code: broken, message: "It is \\e[31mbroken."}}
---
name: slow
mock: {result: 1, latency: 1ms}
---
name: drawn
output_schema: {type: integer}
mock: {generate: true}
---
name: later
description: Nobody wrote it yet.
experimental: true
""",
    "other/far.tool.yaml": "name: far\nmode: mock\nmock: {result: Far away.}\nrobot: {command: x}\n",
    "bad/bad.tool.yaml": "name: bad\nmock: {result: 1}\noops: 1\n",
}

LISTS = [
    [],
    ["--json"],
    ["echo"],
    ["--pack", "other"],
    ["--pack", "nowhere"],
    ["--pack", "bad"],
    ["--no-index"],
    ["--profile", "nobody"],
    ["--mode", "mock"],
    ["-h"],
    ["--oops"],
]

CALLS = [
    [],
    ["echo", "text=hi"],
    ["echo", "text=\x1b[31mhi é日"],
    ["echo", "text=hi", "times:=3"],
    ["echo", "text=hi", "times=3", "--json"],
    ["echo", "text:=3"],
    ["echo", "times:=0"],
    ["echo", "times:=0", "--json"],
    ["echo", "text"],
    ["echo", "text:=oops"],
    ["echo", "text=a", "text=b"],
    ["--json", "echo", "--", "text=a"],
    ["parts"],
    ["parts", "--json"],
    ["failing"],
    ["failing", "--json"],
    ["slow"],
    ["drawn"],
    ["drawn", "--seed", "7"],
    ["drawn", "--seed", "7", "--seed", "8"],
    ["drawn", "--seed", ""],
    ["drawn", "--seed", "-1"],
    ["drawn", "--seed"],
    ["later"],
    ["ecko", "text=hi"],
    ["echo", "text=hi", "--dry-run"],
    ["echo", "text=hi", "--explain"],
    ["echo", "text=hi", "--mode", "robot"],
    ["echo", "text=hi", "--mode", "oops"],
    ["far", "--pack", "other"],
    ["far", "--pack", "other", "--mode", "robot"],
    ["far", "--pack", "nowhere"],
    ["bad", "--pack", "bad"],
    ["echo", "--pack", "bad", "text=hi"],
    ["echo", "text=hi", "--profile", "nobody"],
    ["echo", "text=hi", "--no-index"],
    ["echo", "text=hi", "--oops"],
    ["-h"],
]

LINES = [
    ["--version"],
    ["--version", "list"],
    *(["list", *words] for words in LISTS),
    *(["call", *words] for words in CALLS),
]


class Told(NamedTuple):
    """What a command line came to."""

    code: int | str | None
    out: bytes
    err: bytes


class Stream(io.TextIOWrapper):
    """A stream of the process, kept in memory."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def told(self) -> bytes:
        """What was written, without the time that a call took."""
        return re.sub(rb'"duration": [0-9.e-]+', b'"duration": 0', self.buffer.getvalue())


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Run something with a command line and streams of its own."""

    def run(
        main: Callable[[], object], words: list[str], *, terminal: bool = False, encoding: str = "utf-8"
    ) -> Told:
        out, err = Stream(terminal=terminal, encoding=encoding), Stream(terminal=terminal)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["toolcrib", *words])
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                main()
        return Told(ended.value.code, out.told(), err.told())

    return run


@pytest.fixture(autouse=True)
def own_index(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cache folder of the test's own."""
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(params=["fresh", "indexed"])
def project(request: pytest.FixtureRequest, write: Callable[..., Path], told: Callable[..., Told]) -> Path:
    """A folder with tools, before and after an index of them was written."""
    folder = write(TOOLS)
    if request.param == "indexed":
        told(by_click, ["list"])
    return folder


def by_click() -> None:
    """The long way."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    cli(prog_name="toolcrib")


# Every third has each command line at least once, and all four circumstances.
CIRCUMSTANCES = sample(product(LINES, [False, True], ["fresh", "indexed"]), 3)


@pytest.mark.parametrize(
    ("words", "terminal", "project"),
    sample(CIRCUMSTANCES, one_in=2),
    ids=sample(
        [
            f"{' '.join(words)}-{'terminal' * terminal or 'file'}-{state}"
            for words, terminal, state in CIRCUMSTANCES
        ],
        one_in=2,
    ),
    indirect=["project"],
)
def test_a_command_line_says_the_same_by_both_ways(words, terminal, project, told, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    long = told(by_click, words, terminal=terminal)
    assert told(entry.main, words, terminal=terminal) == long


@pytest.mark.parametrize(
    "words", [["list"], ["call", "echo", "text=hé日"], ["call", "failing"]], ids=" ".join
)
@pytest.mark.parametrize(
    ("name", "value"),
    sample(
        [("NO_COLOR", "1"), ("COLUMNS", "20"), ("TOOLCRIB_PROFILE", "nobody"), ("TOOLCRIB_INDEX", "off")],
        one_in=2,
    ),
)
def test_variables_count_by_both_ways(words, name, value, project, told, monkeypatch):
    monkeypatch.setenv(name, value)
    long = told(by_click, words, terminal=True)
    assert told(entry.main, words, terminal=True) == long


@pytest.mark.parametrize("encoding", sample(["ascii", "latin-1", "utf-16"], one_in=3))
def test_streams_of_another_encoding_are_left_to_click(encoding, project, told):
    words = ["call", "echo", "text=é日"]
    assert told(entry.main, words, encoding=encoding) == told(by_click, words, encoding=encoding)


def answered(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The exit code of a command line, if it is answered quickly."""
    monkeypatch.setattr(sys, "stdout", Stream(terminal=False))
    function = entry.VERBS[words[0]].quick.partition(":")[2]
    return getattr(fast_path, function)(words[1:])


@pytest.mark.parametrize(
    "words",
    sample(
        [
            ["call", "echo", "text=hi"],
            ["call", "echo", "text=hi", "times=3", "--json"],
            ["call", "parts"],
            ["call", "failing", "--json"],
            ["call", "far", "--pack", "other", "--no-index"],
            ["call", "drawn", "--seed", "7"],
        ],
        one_in=3,
    ),
    ids=" ".join,
)
def test_ordinary_command_lines_are_answered_quickly(words, project, monkeypatch):
    assert answered(words, monkeypatch) is not None


PROJECT = {
    **TOOLS,
    "toolcrib.yaml": """
project: talk
sources: [descriptors]
disable: ["fail*"]
toolsets: {small: {tools: [echo, later]}}
profile: dev
profiles:
  dev: {defaults: {timeout: 5s}}
  ci: {modes: {echo: mock}, enable: [failing]}
  small: {toolset: small}
  none: {disable: ["*"]}
""",
}

WITH_AN_ERROR = {**PROJECT, "toolcrib.yaml": PROJECT["toolcrib.yaml"] + '  wrong: {modes: {"*": oops}}\n'}

PROFILES = [None, "ci", "small", "none", "wrong", "nobody"]


ASKED = [["list"], ["call", "echo", "text=hi"], ["call", "failing", "--json"]]


@pytest.mark.parametrize(
    ("name", "words", "files"), sample(product(PROFILES, ASKED, [PROJECT, WITH_AN_ERROR]), 9)
)
def test_profiles_count_by_both_ways(words, name, files, write, told, monkeypatch):
    write(files)
    asked = [*words, *(["--profile", name] if name is not None else [])]
    long = told(by_click, asked)
    assert told(entry.main, asked) == long
    monkeypatch.setenv("TOOLCRIB_PROFILE", name or "")
    assert told(entry.main, words) == told(by_click, words)
    assert told(entry.main, [*words, "--profile", "small"]) == told(by_click, [*words, "--profile", "small"])


@pytest.mark.parametrize(
    "words", [[], ["--profile", "ci"], ["--profile", "none"], ["--pack", "other"]], ids=" ".join
)
def test_lists_are_answered_from_the_index(words, write, told, monkeypatch):
    write(PROJECT)
    assert answered(["list", *words], monkeypatch) is None
    told(by_click, ["list", *words])
    assert answered(["list", *words], monkeypatch) == 0


def test_a_list_after_an_edit_is_left_to_the_command(project, write, told, monkeypatch):
    told(by_click, ["list"])
    assert answered(["list"], monkeypatch) == 0
    write({"descriptors/new.tool.yaml": "name: new\nmock: {result: 1}\n"})
    assert answered(["list"], monkeypatch) is None
    assert b"new " in told(entry.main, ["list"]).out


@pytest.mark.parametrize(
    "harm",
    sample(
        [
            lambda _data: b"",
            lambda data: data[:20],
            lambda data: data[:90],
            lambda data: data[:24] + bytes([data[24] ^ 1]) + data[25:],
            lambda data: data[:90] + bytes([data[90] ^ 1]) + data[91:],
            lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
            lambda data: os.urandom(len(data)),
            lambda data: data[:17] + os.urandom(len(data)),
            lambda data: data[:17] + b"\xff" * 16 + data[33:],
        ],
        one_in=3,
    ),
)
def test_an_index_that_is_harmed_is_left_to_the_command(harm, project, told, monkeypatch):
    told(by_click, ["list"])
    for file in Path(index_folder()).iterdir():
        file.write_bytes(harm(file.read_bytes()))
    assert answered(["list"], monkeypatch) is None


@pytest.mark.parametrize(
    "body",
    sample([b"", b"\x80" * 40, (2).to_bytes(8, "big") + b"[]", (2).to_bytes(8, "big") + b"{}"], one_in=3),
)
def test_an_authentic_file_that_is_no_index_is_left_to_the_command(body, project, told, monkeypatch):
    told(by_click, ["list"])
    IndexFolder(index_folder()).write(index_key(()), body)
    assert answered(["list"], monkeypatch) is None


def test_a_list_settles_an_index_of_what_has_rested_since(project, told, monkeypatch):
    told(by_click, ["list"])
    key, cabinet = index_key(()), IndexFolder(index_folder())
    head, parts = parse_header(cabinet.read(key))
    rested = str(Path(os.__file__).parent)
    folders = {**head.seen.folders, rested: ((), FileTracker().folder(rested))}
    doubtful = IndexHeader(
        head.around, FileFingerprints(head.seen.files, head.seen.contents, folders), head.parts, head.tags
    )
    cabinet.write(key, doubtful.encoded(parts))
    assert answered(["list"], monkeypatch) == 0
    settled, _parts = parse_header(cabinet.read(key))
    assert settled.doubts < doubtful.doubts


def test_a_list_with_a_mode_of_others_is_left_to_the_command(project, monkeypatch):
    executors = Executors.installed()
    stock = open_project((), (), executors)
    listings = listings_of(stock, project_profiles(stock), executors)
    index, profiles = Index(index_folder()), project_profiles(stock)
    for built_in, code in ((["mock"], 0), ([], None)):
        index.keep(index_key(()), stock, executors.targets, profiles, built_in=built_in, listings=listings)
        assert answered(["list"], monkeypatch) == code


def test_the_table_of_a_list_knows_the_variable_of_profiles():
    assert fast_path.PROFILE_VARIABLE == PROFILE_VARIABLE


def test_a_shell_that_asks_for_completions_is_answered_by_click(project, told, monkeypatch):
    monkeypatch.setenv("_TOOLCRIB_COMPLETE", "bash_source")
    assert b"complete" in told(entry.main, ["--version"]).out


class Gone(Stream):
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "gone")


@pytest.mark.parametrize("words", [["--version"], ["call", "echo", "text=hi"], ["list"]], ids=" ".join)
def test_a_reader_that_goes_away_ends_a_quick_answer_as_any_other(words, project, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["toolcrib", *words])
    monkeypatch.setattr(sys, "stdout", Gone(terminal=False))
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 1


def test_an_interrupt_ends_a_quick_answer_quietly(project, monkeypatch, capsys):
    def interrupted(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(entry.VERBS, "call", entry.Verb("call", "", quick="interrupting:call"))
    monkeypatch.setitem(sys.modules, "toolcrib.cli.interrupting", type("Module", (), {"call": interrupted}))
    monkeypatch.setattr(sys, "argv", ["toolcrib", "call"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_a_failed_call_is_made_once(write, told):
    write(
        {
            "descriptors/counting.tool.yaml": "name: counting\nmock: {error: {code: no, message: 'call {{ call }}'}}\n"
        }
    )
    shown = told(entry.main, ["call", "counting", "--json"])
    assert json.loads(shown.out)["message"] == "call 1"
    assert b"call 1" in told(entry.main, ["call", "counting"]).err
