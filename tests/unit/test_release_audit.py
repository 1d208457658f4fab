"""The audit of a release: a vulnerability is told apart from advisories that could not be asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sampling import sample

SCRIPT = Path(__file__).parents[2] / ".ci" / "audit.py"

GOOD = {"name": "click", "version": "8.3.1", "vulns": []}
OWN = {
    "name": "toolcrib",
    "skip_reason": "Dependency not found on PyPI and could not be audited: toolcrib (0.1.0)",
}
UNKNOWN = {"name": "idna", "skip_reason": "Dependency not found on PyPI and could not be audited: idna (3.7)"}
BAD = {
    "name": "jinja2",
    "version": "3.1.5",
    "vulns": [{"id": "PYSEC-2025-1", "fix_versions": ["3.1.6"], "aliases": [], "description": ""}],
}
TRACE = """\
Traceback (most recent call last):
  File "adapters.py", line 729, in send
    raise ConnectionError(e, request=request)
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded
"""
CRASH = 'Traceback (most recent call last):\n  File "cli.py", line 1\nKeyError: "dependencies"\n'


def found(*packages: dict) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


@pytest.mark.parametrize(
    ("out", "errors", "ended", "code", "told"),
    sample(
        [
            (
                found(GOOD, OWN),
                "No known vulnerabilities found\n",
                0,
                0,
                "audit: 1 packages, no known vulnerability",
            ),
            (
                found(GOOD, BAD, OWN),
                "Found 1 known vulnerability\n",
                1,
                1,
                "jinja2 3.1.5: PYSEC-2025-1, mended in 3.1.6",
            ),
            (found(BAD, UNKNOWN), "Found 1 known vulnerability\n", 1, 1, "jinja2 3.1.5: PYSEC-2025-1"),
            (
                found(UNKNOWN, OWN),
                "No known vulnerabilities found\n",
                0,
                3,
                "audit SKIPPED for 1 of 1 packages",
            ),
            (
                found(GOOD, UNKNOWN),
                "No known vulnerabilities found\n",
                0,
                3,
                "do not know idna; 1 have no known",
            ),
            (found(OWN), "No known vulnerabilities found\n", 0, 3, "audit SKIPPED for 0 of 0 packages"),
            (
                "",
                TRACE,
                1,
                3,
                "audit SKIPPED: the advisories can't be reached: requests.exceptions.ConnectionError",
            ),
            ("", CRASH, 1, 2, "audit FAILED: Traceback"),
            ("", "", 1, 2, "audit FAILED: pip-audit gave no answer"),
            ("[]", "", 0, 2, "audit FAILED"),
        ],
        one_in=3,
    ),
)
def test_what_pip_audit_says_is_told_as_what_it_is(out, errors, ended, code, told, tmp_path):
    package = tmp_path / "pip_audit"
    package.mkdir()
    said = f"import sys\nprint({out!r})\nprint({errors!r}, file=sys.stderr)\nsys.exit({ended})\n"
    (package / "__main__.py").write_text(said, encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SCRIPT, "toolcrib", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr


def test_a_release_goes_on_without_an_audit_and_not_with_a_vulnerability():
    """What the recipe does with the exit code, as make's shell does it."""
    makefile = SCRIPT.parents[1].joinpath("Makefile").read_text(encoding="utf-8")
    (line,) = [line.strip() for line in makefile.splitlines() if ".ci/audit.py" in line]
    _, _, rest = line.replace("$$", "$").partition("site-packages ")
    ends = [
        subprocess.run(["sh", "-c", f"(exit {code}) {rest}"], check=False).returncode for code in range(4)
    ]
    assert [end == 0 for end in ends] == [True, False, False, True]
