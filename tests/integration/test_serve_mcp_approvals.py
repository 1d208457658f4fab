"""The SDK's client answers approvals, in both eras; a client that cannot is told how."""

from __future__ import annotations

import pytest
from mcp.types import ElicitResult

from holding import PAY, project
from serving_mcp import connected, each_way_and_era, texts
from toolcrib import Runtime
from toolcrib.security.approvals import Answer

CONFIRMED = PAY.replace(
    "description: Pays an amount.", 'description: Pays.\nrequires_confirmation: "Pay {{ args.amount }}?"'
)


class User:
    """The user of a client, who fills in the forms in order."""

    def __init__(self, *filled):
        self.asked = []
        self._filled = iter(filled)

    async def __call__(self, _context, params):
        self.asked.append(params.message)
        assert params.requested_schema["required"] == ["decision"]
        filled = next(self._filled)
        return filled if isinstance(filled, ElicitResult) else ElicitResult(action="accept", content=filled)


APPROVE = {"decision": "approve"}
FILLED = (
    APPROVE,
    {"decision": "approve", "arguments": '{"amount": 2, "password": "***"}'},
    {"decision": "reject", "reason": "too expensive"},
    ElicitResult(action="decline"),
    ElicitResult(action="cancel"),
)


async def check_forms(way, era, folder):
    user = User(*FILLED)
    async with connected(way, era, project(folder, "", CONFIRMED), elicitation_callback=user) as client:
        secret = {"amount": 5, "password": "canary-4711"}
        assert (await client.call_tool("pay", secret)).structured_content == {
            "paid": 5,
            "to": "shop",
            "known": True,
        }
        edited = await client.call_tool("pay", secret)
        assert edited.structured_content == {"paid": 2, "to": "shop", "known": True}
        rejected = await client.call_tool("pay", {"amount": 5})
        assert rejected.is_error
        assert "the call was denied (rejected)" in texts(rejected)[0]
        assert (await client.call_tool("pay", {"amount": 5})).is_error
        closed = await client.call_tool("pay", {"amount": 6})
        assert closed.is_error
        assert "toolcrib approvals approve " in texts(closed)[0]
    assert user.asked[0] == '`pay` requires approval: Pay 5?\npay {"amount":5,"password":"***","to":"shop"}'
    assert len(user.asked) == 5
    assert "canary" not in repr(user.asked)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_user_of_a_client_is_asked_over_stdio(era, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    await check_forms("stdio", era, tmp_path / "project")


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_user_of_a_client_is_asked_over_http(era, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    await check_forms("http", era, tmp_path / "project")


@each_way_and_era
async def test_an_invalid_form_is_shown_again_or_leaves_the_call_pending(way, era, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    user = User({"decision": "approve", "arguments": '{"amount": "much"}'}, APPROVE)
    folder = project(tmp_path / "project", "", CONFIRMED)
    async with connected(way, era, folder, elicitation_callback=user) as client:
        result = await client.call_tool("pay", {"amount": 5})
        if era == "legacy":
            assert result.is_error
            assert Runtime.open(folder).approvals.pending()[0].arguments == {"amount": 5, "to": "shop"}
        else:
            assert result.structured_content == {"paid": 5, "to": "shop", "known": False}
            assert 'expected a number, got "much"' in user.asked[1]


@each_way_and_era
async def test_a_client_without_forms_is_told_how_its_call_is_approved(way, era, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    folder = project(tmp_path / "project", "", CONFIRMED)
    async with connected(way, era, folder) as client:
        held = await client.call_tool("pay", {"amount": 5})
        assert held.is_error
        facts = held.meta["dev.toolcrib/outcome"]
        assert (facts["outcome"], facts["code"]) == ("needs_approval", "requires_confirmation")
        id_ = facts["details"]["approval"]["id"]
        (text,) = texts(held)
        assert text == (
            f"the call needs human approval (requires_confirmation): the approval is `{id_}`; the operator of the server "
            f"can run `toolcrib approvals approve {id_}` in the project folder; then call again with the same arguments"
        )
        # The operator is another process, with the store in common.
        Runtime.open(folder).approvals.answer(id_, Answer.approve(), by="operator")
        assert (await client.call_tool("pay", {"amount": 5})).structured_content["paid"] == 5
        assert (await client.call_tool("pay", {"amount": 5})).is_error


async def test_a_client_cannot_answer_what_it_was_not_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    folder = project(tmp_path / "project", "", CONFIRMED)
    user = User()
    async with connected("stdio", "2026-07-28", folder, elicitation_callback=user) as client:
        first = await client.session.call_tool("pay", {"amount": 5}, allow_input_required=True)
        assert (first.result_type, list(first.input_requests)) == ("input_required", ["approval"])
        answer = {"approval": ElicitResult(action="accept", content=APPROVE)}
        for state in ("unknown", first.request_state + "0"):
            again = await client.session.call_tool(
                "pay", {"amount": 5}, input_responses=answer, request_state=state, allow_input_required=True
            )
            assert again.result_type == "input_required"
        done = await client.session.call_tool(
            "pay", {"amount": 5}, input_responses=answer, request_state=first.request_state
        )
        assert done.structured_content["paid"] == 5
        # The same answer once more makes no second call.
        twice = await client.session.call_tool(
            "pay",
            {"amount": 5},
            input_responses=answer,
            request_state=first.request_state,
            allow_input_required=True,
        )
        assert twice.result_type == "input_required"
