"""`toolcrib journal`: list, show, export, resolve; and `toolcrib call --idempotency-key`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from sampling import sample
from toolcrib import Runtime

PROJECT = "project: shop\nsandbox: none\n"

PAY = """\
name: pay
input_schema: {type: object, properties: {amount: {type: integer}, password: {type: string}}}
exec: {command: [sh, -c, "echo >> made; echo paid $1", sh, "{{ args.amount }}"]}
"""

HANG = """\
name: hang
timeout: 300ms
input_schema: {type: object, properties: {amount: {type: integer}}}
exec: {command: [tail, -f, /dev/null]}
"""


@pytest.fixture
def shop(write, toolcrib, monkeypatch, tmp_path):
    """A trusted project."""
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)
    write(
        {
            "shop/toolcrib.yaml": PROJECT,
            "shop/descriptors/pay.tool.yaml": PAY,
            "shop/descriptors/hang.tool.yaml": HANG,
        }
    )
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


def made(shop) -> int:
    return len((shop / "descriptors" / "made").read_text(encoding="utf-8").splitlines())


def test_a_project_has_a_journal_in_the_state_folder(shop, toolcrib, document):
    assert toolcrib("journal", "list").stdout == "no calls are recorded\n"
    assert toolcrib("call", "pay", "amount=3", "password=hush").exit_code == 0
    (call,) = document("journal", "list", "--json")["calls"]
    assert (call["id"], call["tool"], call["mode"], call["state"], call["outcome"]) == (
        1,
        "pay",
        "exec",
        "ended",
        "ok",
    )
    assert call["arguments"] == {"amount": 3, "password": "***"}
    assert "1   pay   ended  ok       0s ago" in toolcrib("journal", "list").stdout.replace(
        "1s ago", "0s ago"
    )
    assert document("journal", "show", "1", "--json") == call
    shown = toolcrib("journal", "show", "1").stdout
    assert "tool: pay" in shown
    assert "hush" not in shown


def test_a_repeated_key_prints_the_stored_result(shop, toolcrib):
    for _ in range(2):
        done = toolcrib("call", "pay", "amount=3", "--idempotency-key", "k")
        assert (done.exit_code, done.stdout.strip()) == (0, "paid 3")
    assert made(shop) == 1
    other = toolcrib("call", "pay", "amount=4", "--idempotency-key", "k")
    assert other.exit_code != 0
    assert "idempotency_conflict" in other.stderr


def test_an_unknown_call_is_listed_and_resolved(shop, toolcrib, document):
    assert toolcrib("call", "hang", "amount=3", "--idempotency-key", "k").exit_code != 0
    listed = toolcrib("journal", "list", "--state", "unknown")
    assert "unknown" in listed.stdout
    assert listed.stderr == "1 call may have acted; resolve with `toolcrib journal resolve ID`\n"
    again = document("call", "hang", "amount=3", "--idempotency-key", "k", "--json")
    assert (again["outcome"], again["usage"]["attempts"]) == ("timeout", 0)
    done = toolcrib(
        "journal", "resolve", "1", "--acted", "--result", '{"paid": 3}', "--note", "seen at the bank"
    )
    assert done.stdout == "resolved 1 hang: it acted\n"
    entry = document("journal", "show", "1", "--json")
    assert (entry["state"], entry["resolution"]["acted"], entry["resolution"]["note"]) == (
        "resolved",
        True,
        "seen at the bank",
    )
    again = document("call", "hang", "amount=3", "--idempotency-key", "k", "--json")
    assert (again["outcome"], again["result"]) == ("ok", {"paid": 3})


def test_export_writes_json_lines(shop, toolcrib):
    for amount in range(3):
        toolcrib("call", "pay", f"amount={amount}")
    lines = toolcrib("journal", "export").stdout.splitlines()
    assert [json.loads(line)["arguments"]["amount"] for line in lines] == [2, 1, 0]
    written = toolcrib("journal", "export", "-o", "calls.jsonl", "--tool", "pay", "--since", "1h")
    assert written.stderr == "wrote 3 calls to calls.jsonl\n"
    assert (shop / "calls.jsonl").read_text(encoding="utf-8").splitlines() == lines
    assert toolcrib("journal", "export", "--tool", "hang").stdout == ""


@pytest.mark.parametrize(
    ("words", "why"),
    sample(
        [
            (("show", "7"), "unknown entry `7`"),
            (("resolve", "1"), "say whether the call acted: --acted or --not-acted"),
            (("resolve", "1", "--not-acted", "--result", "1"), "--result needs --acted"),
            (("resolve", "1", "--acted", "--result", "{"), "--result is not valid JSON"),
            (("resolve", "1", "--acted"), "its state is `ended`"),
            (("list", "--since", "soon"), "--since:"),
        ],
        one_in=2,
    ),
)
def test_mistakes_are_explained(shop, toolcrib, words, why):
    toolcrib("call", "pay", "amount=3")
    done = toolcrib("journal", *words)
    assert done.exit_code != 0
    assert why in done.stderr


@pytest.mark.parametrize("project", ["", "project: shop\njournal: off\n"])
def test_without_a_journal_nothing_is_recorded(shop, toolcrib, project, monkeypatch):
    if project:
        (shop / "toolcrib.yaml").write_text(f"{project}sandbox: none\n", encoding="utf-8")
    else:
        (shop / "toolcrib.yaml").unlink()
    done = toolcrib("journal", "list")
    assert done.exit_code != 0
    assert "calls are not recorded here" in done.stderr


def test_mocks_are_recorded_on_request(shop, toolcrib, document, write):
    write({"shop/descriptors/fake.tool.yaml": "name: fake\nmock: {result: 1}\n"})
    toolcrib("call", "fake")
    assert document("journal", "list", "--json")["calls"] == []
    (shop / "toolcrib.yaml").write_text(f"{PROJECT}journal: {{mocks: true}}\n", encoding="utf-8")
    toolcrib("call", "fake")
    assert [call["tool"] for call in document("journal", "list", "--json")["calls"]] == ["fake"]


def test_keep_is_the_retention(shop, toolcrib, document):
    (shop / "toolcrib.yaml").write_text(f"{PROJECT}journal: {{keep: 1h}}\n", encoding="utf-8")
    toolcrib("call", "pay", "amount=3")
    toolcrib("call", "pay", "amount=4")
    (database,) = (shop.parent / "state").glob("journal/*/journal.sqlite")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE toolcrib_calls SET started = started - 3700 WHERE id = 1")
    assert [call["id"] for call in document("journal", "list", "--json")["calls"]] == [2]


def test_a_corrupt_journal_is_explained_and_refuses_calls(shop, toolcrib, write):
    write({"shop/descriptors/fake.tool.yaml": "name: fake\nmock: {result: 1}\n"})
    toolcrib("call", "pay", "amount=3")
    (database,) = (shop.parent / "state").glob("journal/*/journal.sqlite")
    database.write_bytes(b"this is not a database" * 100)
    listed = toolcrib("journal", "list")
    assert listed.exit_code != 0
    assert f"the journal {database} is not used: it is corrupt" in listed.stderr
    refused = toolcrib("call", "pay", "amount=3")
    assert refused.exit_code == 14, refused.stderr
    assert "unavailable (journal_unusable)" in refused.stderr
    assert made(shop) == 1
    assert toolcrib("call", "fake").exit_code == 0


def test_a_profile_switches_the_journal_off(shop, toolcrib, document):
    (shop / "toolcrib.yaml").write_text(f"{PROJECT}profiles: {{ci: {{journal: off}}}}\n", encoding="utf-8")
    toolcrib("call", "pay", "amount=3", "--profile", "ci")
    assert document("journal", "list", "--json")["calls"] == []


@pytest.mark.parametrize(
    ("written", "why"),
    [("sometimes", "`journal` is `off`, the address of a server"), ("{kep: 1d}", "did you mean `keep`")],
)
def test_an_invalid_journal_is_refused(shop, toolcrib, written, why):
    (shop / "toolcrib.yaml").write_text(f"{PROJECT}journal: {written}\n", encoding="utf-8")
    done = toolcrib("validate")
    assert why in done.stdout + done.stderr


def test_a_server_is_contacted_only_by_a_trusted_project(shop, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST")
    monkeypatch.setenv("DB_PASSWORD", "canary-5e1f8a")
    (shop / "toolcrib.yaml").write_text(
        f"{PROJECT}journal: postgresql://shop:${{DB_PASSWORD}}@127.0.0.1:1/journal\n", encoding="utf-8"
    )
    refused = toolcrib("journal", "list")
    assert refused.exit_code != 0
    assert "the server of the journal is not contacted: the project is not trusted" in refused.stderr
    asked = toolcrib("trust", "--dry-run").stdout
    assert "contact  postgresql://127.0.0.1:1" in asked
    assert "read     ${DB_PASSWORD}" in asked
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    down = toolcrib("journal", "list")
    assert "the journal in PostgreSQL cannot be used" in down.stderr
    assert "canary-5e1f8a" not in down.stderr


def test_the_address_of_a_server_needs_its_variables(shop, toolcrib, monkeypatch):
    monkeypatch.delenv("DB_PASSWORD", raising=False)
    (shop / "toolcrib.yaml").write_text(
        f"{PROJECT}journal: postgresql://shop:${{DB_PASSWORD}}@127.0.0.1:1/journal\n", encoding="utf-8"
    )
    done = toolcrib("call", "pay", "amount=3")
    assert "DB_PASSWORD" in done.stderr
    assert done.exit_code == 14
    with Runtime.open(shop) as runtime:
        assert runtime.call_sync("pay", {"amount": 3}).error.code == "journal_unusable"
