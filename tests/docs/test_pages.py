"""What the pages show is what happens: every block is run where nothing but the wheel is installed."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from docs.blocks import Block, Command, blocks_of, commands_of, compare, pattern_of, run_block, run_page

ROOT = Path(__file__).parents[2]

PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/tutorial-order-system.md",
    "docs/reference/mock-language.md",
    *(
        f"docs/{folder}/{page.name}"
        for folder in ("how-to", "explanation")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
        # `make frameworks` runs the pages of agent frameworks.
        if blocks_of(page.read_text(encoding="utf-8")) and not page.name.startswith("use-from-")
    ),
]


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_does_what_the_page_says(name, tmp_path, page_environment):
    folder = tmp_path / "empty"
    folder.mkdir()
    if '"packs/retail"' in (ROOT / name).read_text(encoding="utf-8"):  # no link: pages write packs
        shutil.copytree(ROOT / "packs" / "retail", folder / "packs" / "retail")
    assert run_page(ROOT / name, folder, page_environment)


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "runtime"
    there = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert held == {name for name in there if not re.search(r"__pycache__|(^|/)\.", name)}


def test_the_readme_shows_the_make_commands():
    shown = [
        block.text
        for block in blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
        if block.language == "sh"
    ]
    commands = re.findall(r"^make (\w+)", "".join(shown), re.MULTILINE)
    assert commands == ["run", "test", "lint", "conformance", "docs"]


PAGE = """
Text, then `a/b.txt`:

```text
hello
```

```console
$ cat a/b.txt
hello
$ printf 'one\\ntwo\\nthree\\n' && \\
  echo took 0.25 s
one
...
took ... s
```
"""


def test_blocks_are_found_with_their_files_and_lines():
    assert blocks_of(PAGE) == [
        Block("text", "hello\n", "a/b.txt", 4),
        Block("console", blocks_of(PAGE)[1].text, "", 8),
    ]


def test_commands_are_told_from_what_they_print():
    first, second = commands_of(blocks_of(PAGE)[1].text)
    assert first == Command("cat a/b.txt", "hello\n")
    assert second.text.endswith("echo took 0.25 s")
    assert second.output == "one\n...\ntook ... s\n"


def test_a_page_is_run_in_order(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert run_page(page, tmp_path, {"PATH": "/usr/bin:/bin"}) == 2


def test_an_output_that_differs_is_a_failure():
    with pytest.raises(AssertionError, match="the page says:\nhello\n"):
        compare(Command("echo hi", "hello\n"), "hi\n", "page.md:1")


@pytest.mark.parametrize(
    ("expected", "printed"),
    [("a\n...\n", "a\n"), ("a\n...\n", "a\nb\nc\n"), ("x ... z\n", "x yy z\n"), ("", "\n"), ("a", "a  \n")],
)
def test_three_dots_stand_for_anything(expected, printed):
    assert pattern_of(expected).fullmatch(printed)


@pytest.mark.parametrize(
    ("expected", "printed"), [("a\n", "b\n"), ("a\n", "a\nb\n"), ("x...\n", "y\n"), ("a\nb\n", "a\n")]
)
def test_without_three_dots_every_line_counts(expected, printed):
    assert not pattern_of(expected).fullmatch(printed)


@pytest.mark.parametrize(
    "block", [Block("yaml", "a: 1\n", "", 1), Block("sh", "rm -rf build\n", "", 1)], ids=["yaml", "sh"]
)
def test_a_block_that_nothing_checks_is_a_failure(block, tmp_path):
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        run_block(block, "page.md:1", tmp_path, {})


def test_a_command_that_fails_is_a_failure(tmp_path):
    with pytest.raises(AssertionError, match="ended with 3"):
        run_block(Block("console", "$ exit 3\n", "", 1), "page.md:1", tmp_path, {"PATH": "/usr/bin:/bin"})
