"""`toolcrib approvals`: list, show, approve, run, reject, revoke, key; and what `toolcrib call` says."""

from __future__ import annotations

import json

import pytest

from holding import HELD, PAY


@pytest.fixture
def held(write, toolcrib, monkeypatch, tmp_path):
    """The ID of a held call."""
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)
    write({"project/toolcrib.yaml": f"project: shop\n{HELD}\n", "project/descriptors/pay.tool.yaml": PAY})
    monkeypatch.chdir(tmp_path / "project")
    result = toolcrib("call", "pay", "amount=5", "note=hello")
    assert result.exit_code == 16, result.stderr
    id_ = result.stderr.split("toolcrib approvals approve ")[1].split("`")[0]
    assert result.stderr == (
        "needs_approval (budget_reached): `pay` requires approval (`budget nothing`): "
        "it spends 1, and 0 of 0 is left (per run)\n"
        f"    hint: run `toolcrib approvals approve {id_}`, then repeat the call\n"
    )
    return id_


def test_list_and_show(held, toolcrib):
    listed = toolcrib("approvals", "list")
    assert held in listed.stdout
    assert "pending" in listed.stdout
    told = json.loads(toolcrib("approvals", "list", "--json").stdout)
    (approval,) = told["approvals"]
    assert (approval["id"], approval["tool"], approval["state"], told["rules"]) == (
        held,
        "pay",
        "pending",
        [],
    )
    assert json.loads(toolcrib("approvals", "show", held, "--json").stdout) == approval
    shown = toolcrib("approvals", "show", held).stdout
    assert "amount: 5" in shown
    assert "rule: budget nothing" in shown


def test_an_approved_call_is_made_when_it_is_repeated(held, toolcrib):
    approved = toolcrib("approvals", "approve", held)
    assert approved.stdout == 'approved pay {"amount":5,"note":"hello","to":"shop"}\n'
    assert f"toolcrib approvals run {held}" in approved.stderr
    assert toolcrib("approvals", "list").stdout == "no call waits for approval\n"
    assert "approved" in toolcrib("approvals", "list", "--all").stdout
    assert json.loads(toolcrib("call", "pay", "amount=5", "note=hello").stdout)["paid"] == 5
    assert toolcrib("call", "pay", "amount=5", "note=hello").exit_code == 16


def test_an_approved_call_is_made_at_once(held, toolcrib):
    made = toolcrib("approvals", "approve", held, "--run", "amount=7", "to=bank")
    assert json.loads(made.stdout) == {"paid": 7, "to": "bank", "known": False}
    again = toolcrib("approvals", "run", held)
    assert (again.exit_code, "the approved call was made already" in again.stderr) == (15, True)


def test_an_approved_call_is_made_later(held, toolcrib):
    assert toolcrib("approvals", "run", held).exit_code == 16
    toolcrib("approvals", "approve", held, "--json")
    assert json.loads(toolcrib("approvals", "run", held, "--json").stdout)["outcome"] == "ok"


def test_invalid_edits_leave_it_pending(held, toolcrib):
    wrong = toolcrib("approvals", "approve", held, "amount=much")
    assert wrong.exit_code == 2
    assert 'expected a number, got "much"' in wrong.stderr
    assert "the approval stays pending" in wrong.stderr
    assert toolcrib("approvals", "approve", held).exit_code == 0
    late = toolcrib("approvals", "reject", held, "no")
    assert (late.exit_code, "was already answered by" in late.stderr) == (2, True)


def test_reject(held, toolcrib):
    assert toolcrib("approvals", "reject", held, "too expensive").stdout.startswith("rejected pay ")
    made = toolcrib("approvals", "run", held)
    assert (made.exit_code, made.stderr) == (15, "denied (rejected): `pay` was not called: too expensive\n")


def test_always_and_revoke(held, toolcrib):
    toolcrib("approvals", "approve", held, "--always", "--for", "30d")
    told = json.loads(toolcrib("approvals", "list", "--json").stdout)
    (rule,) = told["rules"]
    assert (rule["tool"], rule["rule"], rule["same_arguments"]) == ("pay", "budget nothing", False)
    assert "standing approvals:" in toolcrib("approvals", "list").stdout
    assert toolcrib("call", "pay", "amount=9").exit_code == 0
    assert toolcrib("approvals", "revoke", rule["id"]).stdout == f"revoked {rule['id']}\n"
    assert toolcrib("call", "pay", "amount=10").exit_code == 16
    assert toolcrib("approvals", "revoke", rule["id"]).exit_code == 2


@pytest.mark.parametrize(
    "words", [["--session", "--always"], ["--for", "1d"], ["--same-arguments"], ["--always", "--for", "soon"]]
)
def test_options_that_do_not_fit_are_refused(held, toolcrib, words):
    assert toolcrib("approvals", "approve", held, *words).exit_code == 2
    assert held in toolcrib("approvals", "list").stdout


def test_an_unknown_approval(held, toolcrib):
    for verb in ("show", "approve", "reject", "run"):
        wrong = toolcrib("approvals", verb, held[:-1] + "z")
        assert (wrong.exit_code, f"did you mean `{held}`?" in wrong.stderr) == (2, True)


def test_secrets_need_a_key(held, toolcrib, tmp_path):
    first = toolcrib("call", "pay", "amount=5", "password=canary-4711")
    assert "no encryption key is set; the approval" in first.stderr
    wrote = toolcrib("approvals", "key")
    assert wrote.stdout == f"wrote {tmp_path / 'state' / 'encryption.key'}\n"
    assert "exists already" in toolcrib("approvals", "key").stderr
    second = toolcrib("call", "pay", "amount=5", "password=canary-4711")
    id_ = second.stderr.split("toolcrib approvals approve ")[1].split("`")[0]
    assert "password: ***" in toolcrib("approvals", "show", id_).stdout
    made = toolcrib("approvals", "approve", id_, "--run")
    assert json.loads(made.stdout)["known"] is True
    files = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert b"canary" not in files
    assert "canary" not in first.stderr + second.stderr + made.stderr


def test_approvals_belong_to_their_project(held, toolcrib, write, monkeypatch, tmp_path):
    write({"other/toolcrib.yaml": f"project: other\n{HELD}\n", "other/descriptors/pay.tool.yaml": PAY})
    monkeypatch.chdir(tmp_path / "other")
    assert toolcrib("approvals", "list").stdout == "no call waits for approval\n"


def test_a_call_whose_secrets_only_its_process_knows_cannot_be_made_by_another_one(held, toolcrib, tmp_path):
    tool = PAY.replace("note: {type: string}", "note: {type: string, x-secret: true}")
    assert tool != PAY
    (tmp_path / "project" / "descriptors" / "pay.tool.yaml").write_text(tool)
    refused = toolcrib("call", "pay", "amount=6", "note=canary-secret")
    id_ = refused.stderr.split("the approval `")[1].split("`")[0]
    approved = toolcrib("approvals", "approve", id_)
    assert approved.stderr == (
        "its arguments contain secrets that only the process of its caller knows; "
        "it is made when the caller repeats it there\n"
    )
    assert "arguments_unknown" in toolcrib("approvals", "run", id_).stderr
