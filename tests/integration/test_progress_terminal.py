"""What commands show at a terminal while they work, and what they do although nobody reads on."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from commands import toolcrib_command

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk, install

SLOW = """
project: p
servers: {slow: {command: sleep, args: ["1000"], import: true}}
"""

LONG = """
name: echo
mock: {result: 1}
---
scenario: passes
steps: [{call: echo, expect: {result: 1}}]
---
scenario: fails
steps: [{call: echo, expect: {result: 2}}]
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("doctor",), "checking the project, its tools and its servers ..."),
        (("validate",), "querying `slow` ..."),
        (("call", "slow__x"), "waiting for `slow__x` ..."),
    ],
)
def test_a_slow_server_is_told_at_a_terminal(tmp_path, words, told):
    (tmp_path / "toolcrib.yaml").write_text(SLOW)
    verb, *rest = words
    variables = {"TOOLCRIB_TRUST": "all"}
    with Talk(install(tmp_path), tmp_path, *rest, verb=verb, variables=variables) as screen:
        assert told in screen.until(" ...")


def test_the_progress_bar_fits_a_narrow_terminal(tmp_path):
    (tmp_path / "tools.yaml").write_text(LONG)
    words = ("tools.yaml", "--repeat", "150", "-q")
    with Talk(install(tmp_path), tmp_path, *words, verb="run", variables={"COLUMNS": "80"}) as screen:
        screen.until("150 failed")
        screen.until("\n")
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.screen)
        frames = [frame for frame in re.split(r"[\r\n]", shown) if "running" in frame]
        assert len(frames) > 10
        assert [frame for frame in frames if len(frame) > 80] == []


def test_init_writes_all_files_if_its_output_is_closed(tmp_path):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        subprocess.run(
            toolcrib_command("init", "gone"), cwd=tmp_path, stdout=closed, check=False, timeout=120
        )
    subprocess.run(
        toolcrib_command("init", "kept"), cwd=tmp_path, stdout=subprocess.DEVNULL, check=True, timeout=120
    )
    written = [
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (tmp_path / "gone", tmp_path / "kept")
    ]
    assert written[0] == written[1]
    assert len(written[0]) >= 10
