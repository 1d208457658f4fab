"""Calls that wait for a person: hold, answer, resume, standing approvals, and stores that cannot be used."""

from __future__ import annotations

import asyncio
import json
import sys
from subprocess import PIPE, Popen
from threading import Barrier, Thread

import pytest

from holding import HELD, PAY, opened, project
from sampling import THOROUGH
from toolcrib import Outcome, Runtime, VirtualClock
from toolcrib.engine.approvals import ApprovalAnswered, ApprovalError, ApprovalRequested, InvalidEdit
from toolcrib.security.approvals import Answer, FolderApprovals, MemoryApprovals, UnusableApprovals
from toolcrib.security.encryption import NoKey, create_key


def run(coroutine):
    return asyncio.run(coroutine)


def called(runtime, **arguments):
    return run(runtime.call("pay", {"amount": 5, **arguments}))


def id_of(result):
    assert result.outcome is Outcome.NEEDS_APPROVAL, result
    return result.error.details["approval"]["id"]


def test_a_held_call_names_its_approval_and_is_made_once_it_is_approved(tmp_path):
    runtime = opened(tmp_path)
    held = called(runtime, to="bank")
    facts = held.error.details["approval"]
    assert (facts["tool"], facts["arguments"]) == ("pay", {"amount": 5, "to": "bank"})
    assert (facts["code"], facts["rule"], facts["kept"]) == ("budget_reached", "budget nothing", "file")
    (pending,) = runtime.approvals.pending()
    assert (pending.id, pending.tool, pending.arguments) == (facts["id"], "pay", facts["arguments"])
    assert called(runtime, to="bank").error.details["approval"]["id"] == facts["id"]  # asked once
    assert run(runtime.resume(pending.id)).outcome is Outcome.NEEDS_APPROVAL

    runtime.approvals.answer(pending.id, Answer.approve(), by="ada")
    assert runtime.approvals.pending() == ()
    assert run(runtime.resume(pending.id)).value == {"paid": 5, "to": "bank", "known": False}
    again = run(runtime.resume(pending.id))
    assert (again.outcome, again.error.code) == (Outcome.DENIED, "already_answered")
    assert id_of(called(runtime, to="bank")) != facts["id"]


def test_the_caller_that_repeats_the_call_makes_it(tmp_path):
    runtime = opened(tmp_path)
    runtime.approvals.answer(id_of(called(runtime)), {"approve": True})
    assert id_of(called(runtime, amount=6))  # other arguments
    assert run(runtime.session(user="eve").call("pay", {"amount": 5})).outcome is Outcome.NEEDS_APPROVAL
    assert called(runtime).value["paid"] == 5
    assert called(runtime).outcome is Outcome.NEEDS_APPROVAL


def test_invalid_arguments_are_not_held(tmp_path):
    runtime = opened(tmp_path)
    assert called(runtime, amount="much").outcome is Outcome.INVALID_ARGUMENTS
    assert runtime.approvals.pending() == ()


def test_an_approval_survives_a_restart(tmp_path):
    id_ = id_of(called(opened(tmp_path)))
    opened(tmp_path).approvals.answer(id_, Answer.approve({"amount": 7}))
    assert run(opened(tmp_path).resume(id_)).value["paid"] == 7
    assert opened(tmp_path).approvals.get(id_).made


def test_a_rejection_tells_its_reason(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    runtime.approvals.answer(id_, Answer.reject("too expensive"))
    result = run(runtime.resume(id_))
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "rejected")
    assert result.message == "`pay` was not called: too expensive"


def test_a_repeated_call_learns_once_that_it_was_rejected(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    opened(tmp_path).approvals.answer(id_, Answer.reject("too expensive"))
    assert called(runtime, amount=6).outcome is Outcome.NEEDS_APPROVAL
    told = called(opened(tmp_path))
    assert (told.outcome, told.error.code) == (Outcome.DENIED, "rejected")
    assert "too expensive" in told.message
    # Then a person is asked again.
    again = called(runtime)
    assert again.outcome is Outcome.NEEDS_APPROVAL
    assert id_of(again) != id_
    assert runtime.approvals.state(runtime.approvals.get(id_)) == "rejected"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_rejection_that_its_caller_knows_is_not_told_again(tmp_path, in_place):
    async def rejects(_pending):
        return Answer.reject("no")

    runtime = opened(tmp_path)
    if in_place:
        refused = called(opened(tmp_path, approver=rejects))
    else:
        id_ = id_of(called(runtime))
        runtime.approvals.answer(id_, Answer.reject("no"))
        refused = run(runtime.resume(id_))
    assert refused.error.code == "rejected"
    assert called(runtime).outcome is Outcome.NEEDS_APPROVAL


def test_a_rejection_is_not_told_after_the_approval_would_have_expired(tmp_path):
    clock = VirtualClock()
    runtime = Runtime.open(project(tmp_path, f"approvals: {{expire_after: 1h}}\n{HELD}"), clock=clock)
    early, late = id_of(called(runtime, amount=1)), id_of(called(runtime, amount=2))
    for id_ in (early, late):
        runtime.approvals.answer(id_, Answer.reject("no"))
    run(clock.advance(3599))
    assert called(runtime, amount=1).error.code == "rejected"
    run(clock.advance(1))
    assert called(runtime, amount=2).outcome is Outcome.NEEDS_APPROVAL


def test_edited_arguments_are_validated_and_the_approval_stays_pending(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    with pytest.raises(InvalidEdit, match="expected at most 1000, got 2000") as wrong:
        runtime.approvals.answer(id_, Answer.approve({"amount": 2000}))
    assert wrong.value.details["violations"][0]["pointer"] == "/amount"
    with pytest.raises(InvalidEdit, match="amuont"):
        runtime.approvals.answer(id_, Answer.approve({"amount": 1, "amuont": 2}))
    assert [each.id for each in runtime.approvals.pending()] == [id_]
    runtime.approvals.answer(id_, Answer.approve({"amount": "8"}))  # coerced like every call
    assert run(runtime.resume(id_)).value == {"paid": 8, "to": "shop", "known": False}


LIMITED = f"""{HELD}
access:
  audit: false
  rules:
    - deny: {{tool: pay, args: {{to: bank, amount: {{$gt: 100}}}}}}
      reason: Too much for the bank.
"""


def test_edited_arguments_that_a_rule_denies_are_refused_and_the_approval_stays_pending(tmp_path):
    runtime = opened(tmp_path, LIMITED)
    id_ = id_of(called(runtime))
    message = r"the edited arguments are denied by the rule `deny tool pay, args` \(.*toolcrib.yaml:6\): Too much for the bank\."
    with pytest.raises(InvalidEdit, match=message) as wrong:
        runtime.approvals.answer(id_, Answer.approve({"amount": 101, "to": "bank"}, scope="always"))
    assert wrong.value.details["decision"]["code"] == "access_rule"
    assert [each.id for each in runtime.approvals.pending()] == [id_]
    assert (runtime.approvals.rules(), runtime.violations.total) == ((), 0)
    runtime.approvals.answer(id_, Answer.approve({"amount": 100, "to": "bank"}))
    assert run(runtime.resume(id_)).value["paid"] == 100


def test_an_approver_in_place_cannot_edit_a_call_into_a_denied_one(tmp_path):
    async def approver(_pending):
        return Answer.approve({"amount": 101, "to": "bank"})

    runtime = opened(tmp_path, LIMITED, approver=approver)
    result = called(runtime)
    assert result.outcome is Outcome.NEEDS_APPROVAL
    assert "denied by the rule `deny tool pay, args`" in result.error.details["problem"]
    assert len(runtime.approvals.pending()) == 1


def test_a_rule_that_was_added_after_the_approval_denies_the_edited_call(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    runtime.approvals.answer(id_, Answer.approve({"amount": 101, "to": "bank"}))
    strict = opened(tmp_path, LIMITED)
    result = run(strict.resume(id_))
    assert (result.outcome, result.error.code, strict.violations.total) == (Outcome.DENIED, "access_rule", 1)


def test_in_audit_mode_an_edit_that_would_be_denied_is_recorded_and_made(tmp_path):
    runtime = opened(tmp_path, LIMITED.replace("audit: false", "audit: true"))
    id_ = id_of(called(runtime))
    runtime.approvals.answer(id_, Answer.approve({"amount": 101, "to": "bank"}))
    assert run(runtime.resume(id_)).value["paid"] == 101
    (violation,) = runtime.violations
    assert (violation.decision.code, violation.audit) == ("access_rule", True)


def test_the_result_tells_the_arguments_of_the_approver(tmp_path):
    async def approver(_pending):
        return Answer.approve({"amount": 2, "password": "canary-4711"})

    runtime = opened(tmp_path, approver=approver)
    result = called(runtime)
    assert result.value == {"paid": 2, "to": "shop", "known": True}
    assert result.meta["approval"] == {"edited": {"amount": 2, "to": "shop", "password": "***"}}


def test_an_answer_counts_once(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    runtime.approvals.answer(id_, Answer.reject("no"), by="ada")
    with pytest.raises(ApprovalError, match="already answered by ada: reject") as error:
        runtime.approvals.answer(id_, Answer.approve())
    assert error.value.code == "already_answered"


def test_unknown_approvals_and_answers_of_clients_are_refused(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    with pytest.raises(ApprovalError, match="unknown approval"):
        runtime.approvals.answer("../../etc", Answer.approve())
    with pytest.raises(ApprovalError, match=f"did you mean `{id_}`"):
        runtime.approvals.get(id_[:-1] + "x")
    with pytest.raises(Exception, match="invalid answer to an approval"):
        runtime.approvals.answer(id_, Answer.result(1))
    with pytest.raises(Exception, match="invalid answer to a pending call"):
        runtime.approvals.answer(id_, {"approve": {"arguments": {}, "scope": "forever"}})
    with pytest.raises(ApprovalError, match="unknown rule"):
        runtime.approvals.revoke("nothing")


def test_a_call_of_another_caller_or_user_cannot_be_resumed(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(run(runtime.session(user="ann").call("pay", {"amount": 5})))
    runtime.approvals.answer(id_, Answer.approve())
    with pytest.raises(ApprovalError, match="belongs to another caller or user"):
        run(runtime.session(user="eve").resume(id_))
    assert run(runtime.session(user="ann").resume(id_)).value["paid"] == 5


# Scopes


def test_an_approval_for_the_session_ends_with_it(tmp_path):
    runtime = opened(tmp_path)
    one, other = runtime.session(), runtime.session()
    runtime.approvals.answer(id_of(run(one.call("pay", {"amount": 1}))), {"approve": {"scope": "session"}})
    assert run(one.call("pay", {"amount": 1})).outcome is Outcome.OK
    assert run(one.call("pay", {"amount": 2})).outcome is Outcome.OK
    assert run(other.call("pay", {"amount": 2})).outcome is Outcome.NEEDS_APPROVAL


def test_an_approval_for_always_is_listed_and_can_be_revoked(tmp_path):
    runtime = opened(tmp_path)
    answer = Answer.approve(scope="always", lifetime=3600.0)
    runtime.approvals.answer(id_of(called(runtime)), answer, by="ada")
    (rule,) = opened(tmp_path).approvals.rules()
    assert (rule.tool, rule.code, rule.rule, rule.by) == ("pay", "budget_reached", "budget nothing", "ada")
    assert rule.expires - rule.created == 3600.0
    assert called(opened(tmp_path), amount=9).outcome is Outcome.OK
    elsewhere = opened(tmp_path)
    elsewhere.approvals.revoke(rule.id)
    assert called(runtime, amount=10).outcome is Outcome.NEEDS_APPROVAL


def test_always_covers_only_the_same_arguments_if_it_says_so(tmp_path):
    runtime = opened(tmp_path)
    held = id_of(called(runtime))
    runtime.approvals.answer(held, {"approve": {"scope": "always", "same_arguments": True}})
    assert [called(runtime).outcome, called(runtime).outcome] == [Outcome.OK, Outcome.OK]
    assert called(runtime, amount=6).outcome is Outcome.NEEDS_APPROVAL


def test_a_standing_approval_ends_when_the_tool_changes_or_its_time_is_over(tmp_path):
    runtime = opened(tmp_path)
    runtime.approvals.answer(id_of(called(runtime)), Answer.approve(scope="always"))
    changed = opened(tmp_path, tools=PAY.replace("Pays an amount.", "Pays any amount."))
    assert called(changed, amount=6).outcome is Outcome.NEEDS_APPROVAL

    clock = VirtualClock()
    simulated = Runtime.open(tmp_path / "project", clock=clock)
    answer = {"approve": {"scope": "always", "for": "1h"}}
    simulated.approvals.answer(id_of(called(simulated)), answer)
    assert called(simulated).outcome is Outcome.OK
    run(clock.advance(3600))
    assert called(simulated).outcome is Outcome.NEEDS_APPROVAL


def test_an_approved_call_of_a_tool_that_has_changed_is_not_made(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    runtime.approvals.answer(id_, Answer.approve())
    changed = opened(tmp_path, tools=PAY.replace("Pays an amount.", "Pays any amount."))
    result = run(changed.resume(id_))
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "tool_changed")


# Expiry


def test_an_approval_expires(tmp_path):
    clock = VirtualClock()
    runtime = Runtime.open(project(tmp_path, f"approvals: {{expire_after: 1h}}\n{HELD}"), clock=clock)
    late, early = id_of(called(runtime, amount=1)), id_of(called(runtime, amount=2))
    run(clock.advance(3599))
    runtime.approvals.answer(early, Answer.approve())
    run(clock.advance(1))
    assert runtime.approvals.pending() == ()
    with pytest.raises(ApprovalError, match="has expired") as error:
        runtime.approvals.answer(late, Answer.approve())
    assert error.value.code == "approval_expired"
    result = run(runtime.resume(late))
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "approval_expired")
    assert result.message == "`pay` was not called: it was not approved in time"
    assert run(runtime.resume(early)).outcome is Outcome.OK
    assert id_of(called(runtime, amount=1)) != late


def test_an_approver_that_never_answers_is_given_up_when_the_approval_expires(tmp_path):
    clock = VirtualClock()

    async def silent(_pending):
        await clock.sleep(1e9)

    runtime = Runtime.open(project(tmp_path), clock=clock, approver=silent)
    result = called(runtime)
    assert (result.error.code, clock.monotonic()) == ("approval_expired", 86_400.0)


# Approvers


def test_an_approver_is_asked_in_place(tmp_path):
    asked = []

    async def approver(pending):
        asked.append((pending.tool, pending.arguments))
        return {"approve": True} if pending.arguments["amount"] < 10 else {"reject": "too much"}

    runtime = opened(tmp_path, approver=approver)
    assert called(runtime, password="canary-4711").value["known"] is True
    assert called(runtime, amount=10).message == "`pay` was not called: too much"
    assert asked == [
        ("pay", {"amount": 5, "to": "shop", "password": "***"}),
        ("pay", {"amount": 10, "to": "shop"}),
    ]
    assert runtime.approvals.pending() == ()


def test_an_approver_may_leave_the_call_pending_or_give_a_wrong_answer(tmp_path):
    async def nobody(_pending):
        return None

    async def wrong(_pending):
        return Answer.approve({"amount": "much"})

    runtime = opened(tmp_path, approver=nobody)
    id_of(called(runtime))
    result = run(runtime.session(approver=wrong).call("pay", {"amount": 3}))
    assert 'expected a number, got "much"' in result.error.details["problem"]
    assert len(runtime.approvals.pending()) == 2


def test_of_two_who_answer_the_first_counts(tmp_path):
    runtime = opened(tmp_path)

    async def slow(pending):
        opened(tmp_path).approvals.answer(pending.id, Answer.reject("by somebody else"))
        return Answer.approve()

    result = run(runtime.session(approver=slow).call("pay", {"amount": 3}))
    assert result.message == "`pay` was not called: by somebody else"


def test_permissions_approve_in_advance(tmp_path):
    runtime = opened(tmp_path)
    session = runtime.session()
    assert run(session.call("pay", {"amount": 1}, grants={"budget:nothing"})).outcome is Outcome.OK
    assert run(session.call("pay", {"amount": 1}, grants={"budget:other"})).outcome is Outcome.NEEDS_APPROVAL
    assert (
        run(session.call("pay", {"amount": 1}, grants={"approval:unknown"})).outcome is Outcome.NEEDS_APPROVAL
    )


def test_observers_hear_of_approvals_without_their_secrets(tmp_path):
    events = []
    runtime = opened(tmp_path, observer=events.append)
    id_ = id_of(called(runtime, password="canary-4711"))
    runtime.approvals.answer(id_, Answer.reject("no"), by="ada")
    requested, answered = [each for each in events if isinstance(each, ApprovalRequested | ApprovalAnswered)]
    assert requested.pending.arguments["password"] == "***"
    assert (answered.pending.id, answered.kind, answered.by) == (id_, "reject", "ada")
    assert "canary" not in repr(events)
    assert "Call(pay(amount, password), id=" in repr(events)


# Secrets


def test_secrets_are_in_no_file_and_in_no_log(tmp_path, caplog):
    runtime = opened(tmp_path)
    held = called(runtime, password="canary-4711", card={"number": "canary-0815"}, note="x")
    assert held.error.details["approval"]["arguments"] == {
        "amount": 5,
        "password": "***",
        "card": {"number": "***"},
        "note": "x",
        "to": "shop",
    }
    assert held.error.details["approval"]["kept"] == "process"
    assert "run `toolcrib approvals key`" in caplog.text
    id_ = id_of(held)
    elsewhere = opened(tmp_path)
    assert elsewhere.approvals.get(id_).arguments is None
    with pytest.raises(InvalidEdit, match="hold secrets that this process does not know"):
        elsewhere.approvals.answer(id_, Answer.approve({"amount": 1, "password": "***"}))
    with pytest.raises(NoKey):
        elsewhere.approvals.answer(id_, Answer.approve({"amount": 1, "password": "canary-4711"}))
    elsewhere.approvals.answer(id_, Answer.approve())
    result = run(opened(tmp_path).resume(id_))
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "arguments_unknown")
    assert run(runtime.resume(id_)).value["known"] is True  # the process that knows them
    files = [file.read_bytes() for file in (tmp_path / "approvals").rglob("*") if file.is_file()]
    assert len(files) == 3
    assert b"canary" not in b"".join(files)
    assert "canary" not in caplog.text
    assert "canary" not in repr([held, result])


def test_with_a_key_secrets_survive_a_restart(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_KEY", f"file:{create_key(str(tmp_path / 'key'))}")
    held = called(opened(tmp_path), password="canary-4711")
    assert held.error.details["approval"]["kept"] == "encrypted"
    id_ = id_of(held)
    runtime = opened(tmp_path)
    assert id_of(called(runtime, password="canary-4711")) == id_  # equal calls are known by a keyed digest
    assert id_of(called(runtime, password="other")) != id_
    runtime.approvals.answer(id_, Answer.approve({"amount": 2, "password": "***"}))
    assert run(opened(tmp_path).resume(id_)).value == {"paid": 2, "to": "shop", "known": True}
    files = b"".join(file.read_bytes() for file in (tmp_path / "approvals").rglob("*") if file.is_file())
    assert b"canary" not in files
    monkeypatch.setenv("TOOLCRIB_KEY", f"file:{create_key(str(tmp_path / 'other'))}")
    assert (
        opened(tmp_path).approvals.find(id_of(called(opened(tmp_path), password="canary-4711"))).kept
        == "encrypted"
    )


def test_a_standing_approval_stores_no_digest_of_secrets_without_a_key(tmp_path):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime, password="canary-4711"))
    with pytest.raises(NoKey, match="cannot store `same_arguments`"):
        runtime.approvals.answer(id_, {"approve": {"scope": "always", "same_arguments": True}})


# Stores that cannot be used


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "it is corrupt"),
        ('{"format": 2, "id": "x"}', "a newer version wrote it"),
        ('{"format": 1}', "it is corrupt"),
        ("[]", "it is corrupt"),
        ('{"format": 1, "tool": 7, "grants": []}', "it is corrupt"),
    ],
)
def test_a_corrupt_or_newer_approval_approves_nothing_and_mocks_continue(tmp_path, content, why):
    tools = PAY + "---\nname: look\ndescription: Looks.\nmock: {result: 1}\n"
    runtime = opened(tmp_path, tools=tools)
    id_ = id_of(called(runtime))
    (file,) = (tmp_path / "approvals").glob(f"*-{id_}.json")
    file.write_text(content)
    with pytest.raises(UnusableApprovals, match=why) as error:
        runtime.approvals.answer(id_, Answer.approve())
    assert str(file) in str(error.value)
    with pytest.raises(UnusableApprovals, match=why):
        runtime.approvals.pending()
    held = called(runtime)
    assert (held.outcome, held.error.code) == (Outcome.UNAVAILABLE, "approvals_unusable")
    assert run(runtime.call("look")).value == 1


@pytest.mark.parametrize("name", ["x.rule", "answer"])
def test_a_corrupt_rule_or_answer_approves_nothing(tmp_path, name):
    runtime = opened(tmp_path)
    id_ = id_of(called(runtime))
    path = tmp_path / "approvals" / (f"{id_}.answer" if name == "answer" else name)
    path.write_text(json.dumps({"format": 1, "answer": {"approve": 1}, "at": 0, "by": "", "sealed": ""}))
    held = called(runtime)
    assert (held.outcome, held.error.code) == (Outcome.UNAVAILABLE, "approvals_unusable")
    assert "nothing is approved" in held.message


def test_a_folder_that_others_control_is_not_used(tmp_path):
    runtime = opened(tmp_path)
    called(runtime)
    (tmp_path / "approvals").chmod(0o777)
    assert "others can write to it" in called(runtime).message
    (tmp_path / "approvals").chmod(0o700)
    moved = (tmp_path / "approvals").rename(tmp_path / "elsewhere")
    (tmp_path / "approvals").symlink_to(moved)
    assert "it is a symbolic link" in called(runtime).message


def test_approvals_that_a_repository_brings_are_not_used(tmp_path):
    (tmp_path / ".git").mkdir()
    store = FolderApprovals(tmp_path / "approvals", lambda: None)
    with pytest.raises(UnusableApprovals, match="inside the work tree"):
        store.everything()


# Races


@pytest.mark.exhaustive
def test_each_of_two_threads_that_answer_and_resume_wins_alone(tmp_path):
    for store in (None, MemoryApprovals()):
        runtime = opened(tmp_path, **({} if store is None else {"approvals": store}))
        ids = [id_of(called(runtime, amount=number)) for number in range(1, 41)]
        start, won, lost, paid = Barrier(2), [], [], []

        def answer(runtime=runtime, ids=ids, start=start, won=won, lost=lost, paid=paid):
            for id_ in ids:
                start.wait(30)
                try:
                    runtime.approvals.answer(id_, Answer.approve())
                    won.append(id_)
                except ApprovalError as error:
                    lost.append(error.code)
                paid.append(run(runtime.session().resume(id_)).outcome)

        threads = [Thread(target=answer) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == sorted(ids)
        assert lost == ["already_answered"] * 40
        assert (paid.count(Outcome.OK), paid.count(Outcome.DENIED)) == (40, 40)


RACER = """
import asyncio, sys
from toolcrib import Runtime
from toolcrib.engine.approvals import ApprovalError
from toolcrib.security.approvals import Answer
runtime = Runtime.open(sys.argv[1], approvals=sys.argv[2])
ids = sys.argv[3:]
print("ready", flush=True)
sys.stdin.readline()
async def race():
    counts = {"answered": 0, "already_answered": 0, "ok": 0, "denied": 0}
    for id_ in ids:
        try:
            runtime.approvals.answer(id_, Answer.approve())
            counts["answered"] += 1
        except ApprovalError as error:
            counts[error.code] += 1
        counts[(await runtime.resume(id_)).outcome.value] += 1
    return counts
print(asyncio.run(race()))
"""


def test_two_processes_that_race_for_an_approval_have_one_winner(tmp_path):
    races = 1000 if THOROUGH else 40
    runtime = opened(tmp_path)
    ids = [id_of(called(runtime, amount=number / 2)) for number in range(2, races + 2)]
    words = [sys.executable, "-c", RACER, str(tmp_path / "project"), str(tmp_path / "approvals"), *ids]
    racers = [Popen(words, stdin=PIPE, stdout=PIPE, text=True) for _ in range(2)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ends = [eval(racer.communicate(timeout=120)[0]) for racer in racers]
    total = {key: sum(end[key] for end in ends) for key in ends[0]}
    assert total == {"answered": races, "already_answered": races, "ok": races, "denied": races}


async def test_two_calls_at_once_use_one_approval_once(tmp_path):
    runtime = opened(tmp_path)
    held = await runtime.call("pay", {"amount": 5})
    runtime.approvals.answer(id_of(held), Answer.approve())
    both = await asyncio.gather(runtime.call("pay", {"amount": 5}), runtime.call("pay", {"amount": 5}))
    assert sorted(each.outcome.value for each in both) == ["needs_approval", "ok"]


# Stores


def test_ended_approvals_are_forgotten(tmp_path):
    runtime = opened(tmp_path)
    ids = [id_of(called(runtime, amount=number)) for number in range(1, 4)]
    runtime.approvals.answer(ids[0], Answer.reject())
    runtime.approvals.answer(ids[1], Answer.approve())
    store = FolderApprovals(tmp_path / "approvals", lambda: None, in_work_tree=True)
    later = store.get(ids[0]).resolution.at + 1
    assert store.prune(later - 2) == 0
    assert store.prune(later) == 1
    assert [each.id for each in store.everything()] == ids[1:]


def test_memory_forgets_what_has_ended_when_it_is_full(tmp_path, monkeypatch):
    store = MemoryApprovals()
    monkeypatch.setattr(store, "_most", 3)
    runtime = opened(tmp_path, approvals=store)
    ids = [id_of(called(runtime, amount=number)) for number in range(1, 4)]
    runtime.approvals.answer(ids[0], Answer.reject())
    called(runtime, amount=4)
    assert ids[0] not in [each.id for each in store.everything()]
    assert len(store.everything()) == 3


async def test_a_store_is_a_claim(tmp_path):
    for runtime in (opened(tmp_path), opened(tmp_path, approvals=MemoryApprovals())):
        assert await runtime.approvals.claim(["c/1@2", "c/2@2"])
        assert not await runtime.approvals.claim(["c/2@2"])


def test_answers_have_a_json_form():
    for written in (
        {"approve": True},
        {"approve": {"arguments": {"a": 1}}},
        {"approve": {"scope": "session", "same_arguments": True}},
        {"approve": {"scope": "always", "for": "1h"}},
        {"reject": "no"},
        {"expire": True},
        {"result": [1]},
        {"error": {"code": "x", "message": "y"}},
    ):
        assert Answer.parse(written).as_json() == written
        assert Answer.parse(Answer.parse(written)) == Answer.parse(written)


@pytest.mark.parametrize(
    "written",
    [
        {"approve": {}},
        {"approve": {"scope": "ever"}},
        {"approve": {"for": "1h"}},
        {"approve": {"same_arguments": True}},
        {"approve": {"scope": "always", "for": "soon"}},
        {"approve": {"scope": "always", "for": 3}},
        {"approve": {"arguments": []}},
        {"expire": False},
        {"approve": True, "reject": "no"},
    ],
)
def test_other_answers_are_refused(written):
    with pytest.raises(Exception, match="invalid answer to a pending call"):
        Answer.parse(written)


def test_a_question_says_that_an_argument_was_not_given(tmp_path):
    asking = PAY + 'requires_confirmation: "Pay {{ args.amount }}, note: {{ args.note }}?"\n'
    held = called(opened(tmp_path, "", asking))
    assert held.message == "`pay` requires approval: Pay 5, note: (not given)?"
    assert held.error.details["approval"]["arguments"] == {"amount": 5, "to": "shop"}
