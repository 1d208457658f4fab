"""The one table of exit codes."""

from __future__ import annotations

import re
from pathlib import Path

from toolcrib.cli import exit_codes
from toolcrib.core.model import Outcome

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_every_outcome_has_an_exit_code_of_its_own():
    assert set(exit_codes.OF_OUTCOME) == set(Outcome)
    assert len(set(exit_codes.OF_OUTCOME.values())) == len(Outcome)


def test_only_ok_ends_with_zero_and_no_outcome_is_taken_for_a_fault_of_the_command_line_or_a_signal():
    failures = {outcome: code for outcome, code in exit_codes.OF_OUTCOME.items() if outcome is not Outcome.OK}
    assert exit_codes.OF_OUTCOME[Outcome.OK] == exit_codes.OK == 0
    assert all(10 <= code <= 127 for code in failures.values())


def test_the_reference_page_shows_the_same_table():
    rows = re.findall(r"^\| (\d+) \| `([a-z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {word: int(code) for code, word in rows}
    assert told == {outcome.value: code for outcome, code in exit_codes.OF_OUTCOME.items()} | {
        "problems": exit_codes.PROBLEMS,
        "usage": exit_codes.USAGE,
        "nothing_selected": exit_codes.NOTHING_SELECTED,
        "output_failed": exit_codes.OUTPUT_FAILED,
        "interrupted": exit_codes.INTERRUPTED,
    }
