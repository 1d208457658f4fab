"""Ask `pip-audit` for known vulnerabilities of installed packages, and tell what it found apart from what it could not ask.

    python .ci/audit.py OWN PATH      # OWN: our own package, which nobody else has audited; PATH: a site-packages

`pip-audit` ends with 1 both where a package is vulnerable and where its advisories can't be reached, and with 0 where they
know none of the packages. So its answer is read here, and the exit code says:

    0  every package was audited, and none is vulnerable
    1  a package is vulnerable
    2  the audit itself failed, for a reason that is not the network's
    3  the audit was skipped, wholly or in part: its advisories can't be reached, or do not know a package
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any, Final

CLEAN, VULNERABLE, FAILED, SKIPPED = range(4)

_UNREACHABLE: Final = re.compile(
    r"^(?:requests\.exceptions|urllib3\.exceptions)\.\w+: .*|^.*pip_audit\S*\.(?:ServiceError|ConnectionError)\b.*|^.*Could not connect to .*",
    re.MULTILINE,
)
"""What `pip-audit` says, at the end of a trace, of a service that gives no answer."""

_SHOWN: Final = 2000


def verdict(out: str, errors: str, own: str) -> tuple[int, str]:
    """The exit code, and what to tell.

    Args:
        out: What `pip-audit --format json` wrote to stdout.
        errors: What it wrote to stderr.
        own: The package that is not asked about.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        found = _UNREACHABLE.findall(errors)
        if found:
            return SKIPPED, f"audit SKIPPED: the advisories can't be reached: {found[-1][:300]}"
        return FAILED, f"audit FAILED: {errors[-_SHOWN:].strip() or 'pip-audit gave no answer'}"
    asked = [package for package in packages if package["name"].lower() != own.lower()]
    vulnerable = [
        f"{each['name']} {each['version']}: {fault['id']}{_mended(fault)}"
        for each in asked
        for fault in each.get("vulns", ())
    ]
    if vulnerable:
        return VULNERABLE, "\n".join(["audit: known vulnerabilities", *vulnerable])
    unknown = [package["name"] for package in asked if "skip_reason" in package]
    if unknown or not asked:
        known = len(asked) - len(unknown)
        names = ", ".join(unknown) or "there is none"
        return (
            SKIPPED,
            f"audit SKIPPED for {len(unknown)} of {len(asked)} packages: the advisories do not know {names}; {known} have no known vulnerability",
        )
    return CLEAN, f"audit: {len(asked)} packages, no known vulnerability"


def _mended(fault: dict[str, Any]) -> str:
    versions = fault.get("fix_versions") or ()
    return f", mended in {', '.join(versions)}" if versions else ""


def main(own: str, path: str) -> int:
    """Audit what is installed in a folder."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--path",
        path,
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    code, told = verdict(done.stdout, done.stderr, own)
    print(told, file=sys.stdout if code == CLEAN else sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
