"""Programs are started in one place, which ends them and what they start."""

from __future__ import annotations

import re

STARTS = re.compile(
    r"subprocess_exec|subprocess\.(Popen\(|run|call|check_\w+|getoutput|getstatusoutput)|subprocess_shell|create_subprocess|\bos\.(system|popen|fork|forkpty|exec\w+|spawn\w+|posix_spawnp?|startfile)\b"
)


def test_programs_are_started_in_one_place(root):
    package = root / "runtime" / "toolcrib"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if STARTS.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"core/child_process.py", "core/measured_process.py", "core/process_tree.py"}
