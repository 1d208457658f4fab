"""Sessions by handle against a model: each reads and changes its own rows, for its owner, until it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from in_memory import runtime_of
from mcp_calling import Calling
from mcp_scripts import scripted
from served_sessions import MovedClock
from toolcrib.core.clock import RealClock
from toolcrib.core.model import Descriptor, Result
from toolcrib.engine import engine_of
from toolcrib.serve.mcp.client_sessions import HANDLE_BYTES, ClientSessions, conflict_of, with_argument
from toolcrib.serve.mcp.options import Options

COUNTER = """
    name: count
    description: Counts its calls.
    mock: {result: "{{ seq('calls') }}"}
"""

PRINCIPALS = st.sampled_from(["", "token 1", "token 2"])
AGE, EACH, ALL = 50.0, 3, 5


class Handles(RuleBasedStateMachine):
    """Principals open sessions, call with their own and with each other's handles, and let time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.loop = self.runner.get_loop()
        self.clock = MovedClock()
        options = Options(sessions="handle", session_age=AGE, open_sessions_each=EACH, open_sessions=ALL)
        self.sessions = ClientSessions(runtime_of(COUNTER, clock=self.clock), options)
        self.known: dict[str, list] = {}

    def teardown(self) -> None:
        self.sessions.close()
        self.runner.close()

    def alive(self, owner: str | None = None) -> list[str]:
        now = self.clock.monotonic()
        return [
            handle
            for handle, (whose, ends, _count) in self.known.items()
            if ends > now and owner in {None, whose}
        ]

    @rule(principal=PRINCIPALS)
    def opens(self, principal: str) -> None:
        async def opened() -> Result:
            return self.sessions.open(principal)

        full = len(self.alive(principal)) >= EACH or len(self.alive()) >= ALL
        result = self.loop.run_until_complete(opened())
        if full:
            assert result.error is not None
            assert result.error.code == "too_many_sessions"
            wait = result.error.details["retry_after"]
            assert isinstance(wait, int)
            assert 0 < wait <= AGE
        else:
            handle = result.value["session"]
            assert len(handle) == HANDLE_BYTES * 4 // 3
            assert handle not in self.known
            self.known[handle] = [principal, self.clock.monotonic() + AGE, 0]

    @rule(principal=PRINCIPALS, choice=st.integers(0, 30))
    def calls(self, principal: str, choice: int) -> None:
        handles = [*self.known, "no such handle"]
        handle = handles[choice % len(handles)]
        found = self.sessions.of_call(principal, {"session": handle, "a": 1}, {}, keeps_state=True)
        if handle in self.alive(principal):
            session, arguments = found
            assert arguments == {"a": 1}
            self.known[handle][2] += 1
            assert session.call_at_once("count").value == self.known[handle][2]
        else:
            assert found.error.code == "unknown_session"

    @rule(seconds=st.sampled_from([1.0, 20.0, AGE]))
    def waits(self, seconds: float) -> None:
        self.loop.run_until_complete(self.clock.move(seconds))

    @rule(seconds=st.sampled_from([20.0, AGE]))
    def passes(self, seconds: float) -> None:
        # The task that ends sessions has not run yet.
        self.clock.time += seconds

    @invariant()
    def own_sessions_are_other_sessions(self) -> None:
        for principal in ("", "token 1"):
            own, _arguments = self.sessions.of_call(principal, {}, {}, keeps_state=False)
            assert own is self.sessions.own(principal)
        assert self.sessions.own("") is not self.sessions.own("token 1")


TestHandles = Handles.TestCase


@pytest.mark.parametrize(
    ("block", "keeps"),
    [
        ("{result: 1}", False),
        ("{result: '{{ args.a }}'}", False),
        ("{result: '{{ now }}'}", False),
        ("{result: 1, latency: 1s}", False),
        ("{error: no}", False),
        ("{rules: [{when: {args: {a: 1}}, reply: {result: 1}}, {reply: {result: 2}}]}", False),
        ("{fault: timeout}", False),
        ("{sequence: [{result: 1}, {result: 2}]}", True),
        ("{rules: [{reply: {result: 1, times: 2}, after_last: next_rule}, {reply: {result: 2}}]}", True),
        ("{rules: [{when: {call: 1}, reply: {result: 1}}, {reply: {result: 2}}]}", True),
        ("{result: '{{ call.number }}'}", True),
        ("{result: '{{ session.calls }}'}", True),
        ("{result: \"{{ seq('order') }}\"}", True),
        ("{result: 1, idempotent_by: '{{ args.a }}'}", True),
        ("{fault: {rate_limit: {limit: 1, per: 1m}}}", True),
    ],
)
def test_which_mocks_keep_state(block, keeps):
    tool = f"""
        name: tool
        input_schema: {{type: object, properties: {{a: {{}}}}}}
        mock: {block}
    """
    runtime = runtime_of(tool)
    assert engine_of(runtime).keeps_state(runtime.registry["tool"]) is keeps


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {}}}}},
        {
            "properties": {
                "a": {"type": "object", "properties": {"session": {}}, "additionalProperties": False}
            }
        },
    ],
)
def test_the_argument_is_added_to_a_schema_and_leaves_the_rest_alone(schema):
    tool = Descriptor("tool", input_schema=schema)
    assert conflict_of(tool, "tool", keeps_state=True) is None
    added = with_argument(schema)
    assert added["required"] == ["session", *schema.get("required", [])]
    assert {*added["properties"]} == {"session", *schema.get("properties", {})}
    assert {key: added[key] for key in schema if key not in {"properties", "required"}} == {
        key: schema[key] for key in schema if key not in {"properties", "required"}
    }


async def test_a_session_ends_in_time_though_it_is_cleaned_up_later():
    clock = MovedClock()
    sessions = ClientSessions(runtime_of(COUNTER, clock=clock), Options(sessions="handle", session_age=AGE))
    handle = sessions.open("").value["session"]
    clock.time = AGE
    assert sessions.of_call("", {"session": handle}, {}, keeps_state=True).error.code == "unknown_session"
    sessions.close()


async def test_the_server_of_a_session_ends_with_it():
    clock = MovedClock()
    server = scripted("child", scope="session", era="handshake", start_timeout=60.0)
    async with Calling(server, "kin", clock=clock) as calling:
        assert engine_of(calling.runtime).keeps_state(calling.runtime.registry["kin"])
        sessions = ClientSessions(calling.runtime, Options(sessions="handle", session_age=60))
        kin = []
        for _ in range(2):
            handle = sessions.open("").value["session"]
            session, _arguments = sessions.of_call("", {"session": handle}, {}, keeps_state=True)
            kin.append(json.loads((await session.call("kin")).value)[0])
            await clock.move(30)
        async with asyncio.timeout(60):
            while is_alive(kin[0]):
                await RealClock().sleep(0.01)
        assert is_alive(kin[1])
        sessions.close()


def is_alive(number: int) -> bool:
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
