"""The SDK's client answers approvals, in both eras; a client that cannot is told how."""

from __future__ import annotations

import pytest
from mcp.types import ElicitResult

from holding import PAY, project
from sampling import sample
from served_sessions import TOKENS, serving
from serving_mcp import connected, each_era, each_way_and_era, quiet_sdk, texts
from toolcrib import Runtime
from toolcrib.security.approvals import Answer

pytestmark = [quiet_sdk]

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


@pytest.mark.parametrize("era", sample(["legacy", "2026-07-28"], one_in=2))
async def test_the_user_of_a_client_is_asked_over_stdio(era, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    await check_forms("stdio", era, tmp_path / "project")


@pytest.mark.parametrize("era", sample(["legacy", "2026-07-28"], one_in=2))
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


# Clients are kept apart.

ADA, BOB = TOKENS
USERS = ("ada", "bob")


def id_of(held):
    assert held.is_error
    return held.meta["dev.toolcrib/outcome"]["details"]["approval"]["id"]


async def pay(client, amount=5):
    return await client.call_tool("pay", {"amount": amount})


async def test_an_approval_for_the_session_of_one_connection_serves_no_other(tmp_path):
    async with serving(project(tmp_path)) as server, server.client("legacy") as one:
        async with server.client("legacy") as other:
            id_ = id_of(await pay(one))
            server.runtime.approvals.answer(id_, Answer.approve(scope="session"))
            # Not even the approved call, which is equal to that of the first client.
            assert id_of(await pay(other)) != id_
            assert (await pay(one)).structured_content["paid"] == 5
            assert (await pay(one, 6)).structured_content["paid"] == 6
            assert id_of(await pay(other, 6))
            once = id_of(await pay(other, 7))
            server.runtime.approvals.answer(once, Answer.approve(scope="session"))
            left = id_of(await pay(other, 8))
            server.runtime.approvals.answer(left, Answer.approve(scope="session"))
        # A client that opens a connection for each call gets its approved call, and no more.
        async with server.client("legacy") as third:
            assert (await pay(third, 8)).structured_content["paid"] == 8
            assert id_of(await pay(third, 8)) != left


@each_era
async def test_an_approval_of_one_token_serves_no_other(era, tmp_path):
    async with (
        serving(project(tmp_path), tokens=TOKENS, users=USERS) as server,
        server.client(era, ADA) as ada,
        server.client(era, BOB) as bob,
    ):
        approvals = server.runtime.approvals
        id_ = id_of(await pay(ada))
        assert (approvals.get(id_).caller, approvals.get(id_).user) == ("mcp", "ada")
        approvals.answer(id_, Answer.approve(scope="always"))
        assert id_of(await pay(bob))
        assert (await pay(ada)).structured_content["paid"] == 5
        assert (await pay(ada, 6)).structured_content["paid"] == 6
        assert id_of(await pay(bob, 6))
        assert approvals.rules()[0].user == "ada"


BY_USER = """
budgets: {spending: {tools: [pay], amount: "{{ args.amount }}", per: PER, most: 10}}
access:
  rules:
    - deny: {tool: report, user: "!ada"}
"""
REPORT = f"{PAY}---\nname: report\nmock: {{result: all}}\n"


@each_era
async def test_rules_lists_and_budgets_tell_users_apart(era, tmp_path):
    folder = project(tmp_path, BY_USER.replace("PER", "user"), REPORT)
    async with (
        serving(folder, tokens=TOKENS, users=USERS) as server,
        server.client(era, ADA) as ada,
        server.client(era, ADA) as again,
        server.client(era, BOB) as bob,
    ):
        listed = [[tool.name for tool in (await one.list_tools()).tools] for one in (ada, bob, again)]
        assert listed == [["pay", "report"], ["pay"], ["pay", "report"]]
        assert texts(await ada.call_tool("report", {})) == ["all"]
        assert texts(await bob.call_tool("report", {})) == ["the call was denied (access_rule)"]
        assert [each.user for each in server.runtime.violations] == ["bob"]
        spent = [(await pay(one, 6)).is_error for one in (ada, again, bob)]
        assert spent == [False, True, False]


async def test_a_budget_per_session_is_that_of_a_connection(tmp_path):
    folder = project(tmp_path, BY_USER.replace("PER", "session"), REPORT)
    async with (
        serving(folder) as server,
        server.client("legacy") as one,
        server.client("legacy") as other,
    ):
        assert [(await pay(each, 6)).is_error for each in (one, one, other)] == [False, True, False]


@pytest.mark.parametrize(("tokens", "offered"), [((), False), (TOKENS, True)])
async def test_only_a_client_with_a_session_of_its_own_may_approve_for_it(tokens, offered, tmp_path):
    asked = []

    async def user(_context, params):
        asked.append(params)
        decision = "approve for this session" if len(asked) == 1 else "approve"
        return ElicitResult(action="accept", content={"decision": decision})

    async with (
        serving(project(tmp_path), tokens=tokens) as server,
        server.client("2026-07-28", *tokens[:1], elicitation_callback=user) as one,
    ):
        assert (await pay(one)).structured_content["paid"] == 5
        decisions = asked[0].requested_schema["properties"]["decision"]["enum"]
        assert ("approve for this session" in decisions) is offered
        assert len(asked) == (1 if offered else 2)
        if not offered:
            assert "`decision` must be one of: `approve`, `reject`" in asked[1].message
        assert (await pay(one, 6)).structured_content["paid"] == 6
        assert len(asked) == (1 if offered else 3)
