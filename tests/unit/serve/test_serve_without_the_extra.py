"""Without the extra of a protocol serving says what to install; and nothing of it is imported before somebody serves."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"a2a", "mcp", "mcp_types", "anyio", "uvicorn"}:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
from toolcrib.cli import main
sys.argv = ["toolcrib", *sys.argv[1:]]
main()
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("protocol", ["a2a", "mcp"])
def test_serving_says_what_to_install(protocol):
    done = run("serve", protocol)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"pip install 'toolcrib[{protocol}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_needs_no_extra():
    done = run("serve", "mcp", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--transport" in done.stdout
