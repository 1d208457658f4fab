"""The question at a terminal: `toolcrib call` asks in place, and what each answer does."""

from __future__ import annotations

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk
from holding import HELD, PAY, project

QUESTION = "Approve it? [y]es, [a]lways, [e]dit, [n]o, [l]ater: "


@pytest.fixture
def ask(tmp_path):
    folder = project(tmp_path / "project", HELD, PAY)
    variables = {"TOOLCRIB_STATE_DIR": str(tmp_path / "state"), "TOOLCRIB_TRUST": "all"}
    return lambda *words: Talk(tmp_path, folder, *words, verb="call", variables=variables)


def test_the_user_approves_rejects_edits_or_waits(ask):
    with ask("pay", "amount=5", "password=canary-4711") as shown:
        shown.until(QUESTION)
        assert "password: ***" in shown.screen
        shown.type("y")
        shown.until('"known": true')
        assert shown.ended() == 0
    with ask("pay", "amount=5") as shown:
        shown.until(QUESTION)
        shown.type("e")
        shown.until("as a JSON object")
        shown.type('{"amount": "much"}')
        assert "expected a number" in shown.until(QUESTION)
        shown.type("e")
        shown.until("as a JSON object")
        shown.type('{"amount": 3}')
        shown.until('"paid": 3')
        assert shown.ended() == 0
    with ask("pay", "amount=5") as shown:
        shown.until(QUESTION)
        shown.type("")  # Enter approves nothing
        shown.until("Reason: ")
        shown.type("too expensive")
        shown.until("was not called: too expensive")
        assert shown.ended() == 15
    with ask("pay", "amount=5") as shown:
        shown.until(QUESTION)
        shown.type("l")
        shown.until("toolcrib approvals approve ")
        assert shown.ended() == 16
    with ask("pay", "amount=6") as shown:
        shown.until(QUESTION)
        shown.type("a")
        shown.until('"paid": 6')
        assert shown.ended() == 0
    with ask("pay", "amount=7") as shown:
        shown.until('"paid": 7')
        assert shown.ended() == 0
        assert "Approve it?" not in shown.screen
