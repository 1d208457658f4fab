"""Without the extra of a protocol serving says what to install; and nothing of it is imported before somebody serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PACK = Path(__file__).parents[3] / "packs" / "payments"

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"a2a", "acp", "mcp", "mcp_types", "anyio", "uvicorn"}:
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


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("a2a", []), ("mcp", []), ("acp", [str(PACK), "--provider", "scripted", "--script", "pays_by_chat"])],
)
def test_serving_says_what_to_install(protocol, options):
    done = run("serve", protocol, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"pip install 'toolcrib[{protocol}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_needs_no_extra():
    done = run("serve", "mcp", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--transport" in done.stdout
