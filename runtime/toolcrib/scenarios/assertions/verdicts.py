"""What comes of an assertion."""

from __future__ import annotations

from typing import NamedTuple


class AssertionVerdict(NamedTuple):
    """What comes of an assertion.

    Attributes:
        applies: Whether it could be judged; one that does not apply neither holds nor fails.
        passed: Whether it holds; False where it does not apply.
        score: How far it holds, from 0 to 1.
        message: What was asked for and what was there; why it does not apply. On one line, without secrets.
        unmet: Whether it does not apply because what its own `when` asks for did not happen.
    """

    applies: bool
    passed: bool
    score: float
    message: str
    unmet: bool = False


def held(message: str, score: float = 1.0) -> AssertionVerdict:
    """The assertion holds."""
    return AssertionVerdict(applies=True, passed=True, score=score, message=message)


def failed(message: str, score: float = 0.0) -> AssertionVerdict:
    """It does not hold."""
    return AssertionVerdict(applies=True, passed=False, score=score, message=message)


def skipped(reason: str) -> AssertionVerdict:
    """It does not apply."""
    return AssertionVerdict(applies=False, passed=False, score=0.0, message=reason)


def verdict(passed: bool, message: str, score: float | None = None) -> AssertionVerdict:
    """It holds or not; the score is 1 or 0 unless given."""
    return AssertionVerdict(
        applies=True, passed=passed, score=float(passed) if score is None else score, message=message
    )
