"""Tools that exist only for clients that have announced what they need."""

from __future__ import annotations

from itertools import product

import pytest

from toolcrib import Descriptor, Executors, Outcome, Registry, Runtime
from toolcrib.core.errors import ConfigurationError
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor

READ, WRITE, TERMINAL = "client.fs.read_text_file", "client.fs.write_text_file", "client.terminal"
EXECUTORS = {"client": ClientExecutor, "mock": MockExecutor}


def of_client(name, requires, mode="client", **keys):
    bindings = {"client": {"requires": requires, **keys}, "mock": {"result": "mocked"}}
    return Descriptor(name, mode=mode, bindings=bindings)


def built_in(name):
    return Descriptor(name, mode="mock", bindings={"mock": {"result": "built in"}})


TOOLS = Registry(
    [
        built_in("read"),
        built_in("edit"),
        built_in("shell"),
        built_in("other"),
        of_client("client_read", [READ], replaces="read", pre_approved=True),
        of_client("client_edit", [READ, WRITE], replaces="edit"),
        of_client("client_write", [WRITE], replaces="Write"),
        of_client("client_shell", [TERMINAL], replaces="shell"),
    ]
)


def offered(registry):
    return {card.name for card in registry.query()}


@pytest.mark.parametrize("has", [*product([False, True], repeat=3)])
def test_each_combination_of_capabilities_offers_exactly_its_tools(has):
    reads, writes, runs = has
    announced = [name for name, there in zip((READ, WRITE, TERMINAL), has, strict=True) if there]
    seen = TOOLS.for_client(announced)
    expected = {"other"}
    expected |= {"client_read"} if reads else {"read"}
    expected |= {"client_edit"} if reads and writes else {"edit"}
    expected |= {"client_write"} if writes else set()
    expected |= {"client_shell"} if runs else {"shell"}
    assert offered(seen) == expected
    assert {tool.name for tool in seen.select()} == expected
    replaced = {"read": "client_read"} if reads else {}
    replaced |= {"edit": "client_edit"} if reads and writes else {}
    # No tool of the registry has this name: it is one of a foreign agent.
    replaced |= {"Write": "client_write"} if writes else {}
    replaced |= {"shell": "client_shell"} if runs else {}
    assert seen.replaced == replaced
    assert seen.pre_approved == (("client_read",) if reads else ())


def test_without_a_client_no_conditional_tool_exists():
    assert offered(TOOLS) == {"read", "edit", "shell", "other"}
    hidden = TOOLS.hidden("client_edit")
    assert hidden.code == "capability_missing"
    assert (
        hidden.message
        == f"`client_edit` needs `{READ}` and `{WRITE}`, which the client has not announced (<memory>:1)"
    )
    assert TOOLS.replaced == {}


def test_the_capabilities_of_the_next_client_replace_those_of_the_last():
    seen = TOOLS.for_client([READ]).for_client([TERMINAL])
    assert offered(seen) == {"read", "edit", "other", "client_shell"}
    assert seen.replaced == {"shell": "client_shell"}


def test_a_disabled_tool_replaces_nothing():
    seen = TOOLS.disabled("client_read").for_client([READ])
    assert offered(seen) == {"read", "edit", "shell", "other"}


def test_the_condition_belongs_to_the_mode():
    registry = Registry([of_client("client_read", [READ], mode="mock")])
    assert offered(registry) == {"client_read"}


def test_a_replaced_tool_says_what_replaces_it():
    hidden = TOOLS.for_client([READ]).hidden("read")
    assert hidden.code == "replaced"
    assert hidden.message == "`read` is replaced by `client_read` in this session (<memory>:1)"


def test_a_misspelt_capability_is_refused_with_the_right_one():
    with pytest.raises(ConfigurationError, match=r"unknown capability `client\.terminals`") as caught:
        TOOLS.for_client(["client.terminals"])
    assert caught.value.code == "unknown_capability"
    assert "client.terminal" in caught.value.hint


async def test_calls_follow_what_the_session_offers():
    async def client(call):
        return f"client of {call.tool}"

    async with Runtime(TOOLS, executors=Executors(EXECUTORS), client=client) as runtime:
        without = await runtime.call("client_read")
        assert (without.outcome, without.error.code) == (Outcome.UNAVAILABLE, "capability_missing")
        session = runtime.session(registry=runtime.registry.for_client([READ]))
        assert (await session.call("client_read")).value == "client of client_read"
        shadowed = await session.call("read")
        assert (shadowed.outcome, shadowed.error.code) == (Outcome.UNAVAILABLE, "replaced")
        assert (await runtime.call("read")).value == "built in"
