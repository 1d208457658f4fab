"""What every agent framework is given: which tools, under which names and schemas, and what its calls return."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import anyio._backends._asyncio  # noqa: F401 -- pytest cannot rewrite it where it is imported first, deep in a call
import pytest

import holding
from in_memory import MOCKS, mocked, runtime_of
from toolcrib import (
    ConfigurationError,
    Content,
    Executors,
    InternalError,
    Outcome,
    Partial,
    Progress,
    Registry,
    Result,
    Runtime,
    parse_registry,
    simple_tool,
    tool,
)
from toolcrib.core.server_config import Server
from toolcrib.frameworks import to_inspect, to_langchain, to_openai_agents, to_pydantic_ai
from toolcrib.frameworks.tool_adapter import RAISED, ToolSelection, event_as_json, text_and_media
from toolcrib.provider import Answer

TESTS = Path(__file__).parents[2]

SHOP = """
name: get_order
input_schema: {type: object, properties: {id: {type: integer}}, required: [id]}
mock: {result: "{{ args.id }}"}
---
name: find.items
mock: {result: []}
---
name: pay
input_schema: {type: object, properties: {card: {type: string, x-secret: true}, amount: {type: number}}}
mock: {result: "{{ args.amount }}"}
"""


OPEN = []


@pytest.fixture(autouse=True)
def _closed():
    yield
    while OPEN:
        OPEN.pop().close()


def opened(*arguments, **options):
    """A runtime that is closed after the test: `call_sync` starts an event loop."""
    OPEN.append(runtime_of(*arguments, **options))
    return OPEN[-1]


def adapters(runtime, *names, **options):
    return ToolSelection(runtime, names, **options).adapters("to_langchain")


def adapter(runtime, name="tool", **options):
    (found,) = adapters(runtime, name, **options)
    return found


def names(found):
    return [each.name for each in found]


def test_all_offered_tools_are_chosen_under_names_that_every_provider_accepts():
    runtime = opened(SHOP)
    assert names(adapters(runtime)) == ["find_items", "get_order", "pay"]
    assert names(adapters(runtime.session())) == ["find_items", "get_order", "pay"]


def test_tools_are_chosen_by_name_and_glob():
    runtime = opened(SHOP)
    assert names(adapters(runtime, "pay", "get_*")) == ["get_order", "pay"]


@pytest.mark.parametrize("option", ["names", "ask"])
def test_a_name_that_matches_nothing_is_an_error_with_the_nearest_name(option):
    runtime = opened(SHOP)
    with pytest.raises(ConfigurationError, match="`get_oder` matches no tool") as caught:
        adapters(runtime, *(["get_oder"] if option == "names" else []), ask=["get_oder"])
    assert (caught.value.code, caught.value.hint) == ("unknown_tool", "did you mean `get_order`?")


def test_a_toolset_limits_the_tools(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "project: shop\nsources: [shop.yaml]\ntoolsets: {reading: ['get_*', find.items]}\n"
    )
    (tmp_path / "shop.yaml").write_text(SHOP)
    with Runtime.open(tmp_path, index=False) as runtime:
        assert names(adapters(runtime, toolset="reading")) == ["find_items", "get_order"]
        assert names(adapters(runtime.session(toolset="reading"))) == ["find_items", "get_order"]
        with pytest.raises(ConfigurationError) as caught:
            adapters(runtime.session(toolset="reading"), "pay")
    assert (
        caught.value.hint == "`pay` is not in the active toolset `reading` (" + f"{tmp_path}/toolcrib.yaml:3)"
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"toolset": "smal"}, "unknown_toolset"),
        ({"dialect": "opena"}, "no_such_dialect"),
    ],
)
def test_an_unknown_toolset_or_dialect_is_an_error(arguments, code):
    with pytest.raises(ConfigurationError) as caught:
        ToolSelection(opened(SHOP), **arguments)
    assert caught.value.code == code


def test_something_else_than_a_runtime_is_an_error():
    with pytest.raises(ConfigurationError, match="expected a `Runtime` or a `Session`, got a `Registry`"):
        ToolSelection(Registry())


def test_a_list_in_place_of_names_is_an_error():
    with pytest.raises(ConfigurationError, match="expected the name of a tool, got a `list`"):
        ToolSelection(opened(SHOP), (["pay"],))


def test_a_reload_gives_other_tools_and_the_same_registry_the_same():
    runtime = Runtime(Registry())
    selection = ToolSelection(runtime)
    runtime.add(simple_tool("ping", "Ping."))
    first = selection.adapters("to_langchain")
    assert selection.adapters("to_langchain") is first
    runtime.add(simple_tool("pong", "Pong."))
    assert names(selection.adapters("to_langchain")) == ["ping", "pong"]


def call(one, arguments, **options):
    return asyncio.run(one.call(arguments, **options))


@pytest.mark.parametrize("arguments", [{"id": 7}, '{"id": 7}'])
def test_a_call_passes_all_layers(arguments):
    one = adapter(opened(SHOP), "get_order")
    assert call(one, arguments).value == 7
    assert one.call_sync(arguments).value == 7


@pytest.mark.parametrize(
    "written", ['{"id": ', "[7]", "7", '"7"', "null", '{"id": 1, "id": 2}', '{"id": NaN}']
)
def test_arguments_that_are_no_object_are_refused(written):
    one = adapter(opened(SHOP), "get_order")
    assert (call(one, written).outcome, one.call_sync(written).error.code) == (
        Outcome.INVALID_ARGUMENTS,
        "not_json",
    )


def test_no_text_means_no_arguments():
    assert call(adapter(opened(SHOP), "find.items"), "").value == []


def test_the_call_has_the_id_of_the_framework():
    seen = []

    async def note(made, call_next):
        seen.append(made.context.correlation)
        return await call_next(made)

    call(adapter(opened(SHOP, middleware=[note]), "find.items"), {}, id="call_7")
    assert seen == ["call_7"]


def outcome_of(outcome):
    async def answer(_call, _call_next):
        return Result.success(1) if outcome is Outcome.OK else Result.failure(outcome, "why")

    return adapter(opened(mocked("result: 1"), middleware=[answer]))


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_a_result_or_raises(outcome):
    one = outcome_of(outcome)
    if outcome in RAISED:
        with pytest.raises(Exception, match="why"):
            call(one, {})
        with pytest.raises(Exception, match="why"):
            one.call_sync({})
    else:
        assert call(one, {}).outcome is outcome
        assert one.call_sync({}).outcome is outcome


def test_a_bug_raises():
    with pytest.raises(InternalError):
        call(outcome_of(Outcome.INTERNAL), {})


@tool
async def counting():
    """Count."""
    yield Progress(1, 2, "one")
    yield Partial(Content("text", text="half"))
    yield "done"


@pytest.mark.parametrize("synchronous", [True, False])
def test_progress_and_content_are_heard_in_order(synchronous):
    runtime = Runtime(Registry())
    OPEN.append(runtime)
    runtime.add(counting)
    heard = []

    async def hear(event):
        heard.append(event_as_json(event))

    one = adapter(runtime, "counting")
    result = one.call_sync({}, hear=hear) if synchronous else call(one, {}, hear=hear)
    assert result.value == "done"
    assert heard == [
        {"progress": 1, "total": 2, "message": "one"},
        {"content": {"type": "text", "text": "half"}},
    ]


def test_a_tool_to_ask_about_is_not_called_without_an_answer():
    one = adapter(opened(SHOP), "pay", ask=["pay"])
    waiting = call(one, {"card": "4242", "amount": 3})
    assert (waiting.outcome, waiting.message) == (Outcome.NEEDS_APPROVAL, "`pay` requires approval")
    assert one.call_sync({"amount": 3}).outcome is Outcome.NEEDS_APPROVAL
    assert call(one, {"card": "4242", "amount": 3}, answer=Answer.approve()).value == 3
    assert call(one, {"amount": 3}, answer=Answer.approve({"amount": 4})).value == 4
    refused = one.call_sync({"amount": 3}, answer=Answer.reject("too much"))
    assert (refused.outcome, refused.error.code) == (Outcome.DENIED, "rejected")


def test_nobody_is_asked_about_invalid_arguments():
    one = adapter(opened(SHOP), "pay", ask="p*")
    assert call(one, {"amount": "much"}).outcome is Outcome.INVALID_ARGUMENTS
    assert (one.needs_approval({"amount": "much"}), one.needs_approval({"amount": 3})) == (False, True)
    assert adapter(opened(SHOP), "pay").needs_approval({}) is False


ASKED = """
access:
  rules:
  - ask: {tool: pay, args: {amount: {$gt: 100}}}
  - deny: {tool: pay, args: {amount: {$gt: 900}}}
"""


def asked(tmp_path, settings=ASKED, **options):
    OPEN.append(holding.opened(tmp_path, settings, **options))
    return OPEN[-1]


def test_access_tells_before_a_call_whether_it_would_wait_for_a_person(tmp_path):
    runtime = asked(tmp_path)
    one = adapter(runtime, "pay")
    assert one.may_need_approval
    assert not adapter(opened(SHOP), "pay").may_need_approval
    amounts = (100, 101, 901, "much")  # of which the last two calls fail anyway
    assert [one.needs_approval({"amount": each}) for each in amounts] == [False, True, False, False]
    assert (one.needs_approval('{"amount": 101}'), one.needs_approval("nonsense")) == (True, False)
    assert runtime.approvals.pending() == ()
    assert call(one, {"amount": 101}).outcome is Outcome.NEEDS_APPROVAL
    assert call(one, {"amount": 101}, answer=Answer.approve()).value["paid"] == 101


def test_a_call_that_is_approved_already_does_not_wait(tmp_path):
    runtime = asked(tmp_path)
    one = adapter(runtime, "pay")
    call(one, {"amount": 101}, id="c1")
    (pending,) = runtime.approvals.pending()
    runtime.approvals.answer(pending.id, Answer.approve())
    # Asking does not use the approval up, which is for the call of the same origin.
    assert [one.needs_approval({"amount": 101}, each) for each in ("c1", "c1", "c2")] == [False, False, True]
    assert call(one, {"amount": 101}, id="c1").value["paid"] == 101
    assert one.needs_approval({"amount": 101}, "c1")


@pytest.mark.parametrize("id_", ["c1", ""])
def test_a_call_that_the_framework_approved_is_not_made_again(tmp_path, id_):
    runtime = asked(tmp_path)
    one = adapter(runtime, "pay")
    assert call(one, {"amount": 101}, id=id_).outcome is Outcome.NEEDS_APPROVAL
    (pending,) = runtime.approvals.pending()
    assert call(one, {"amount": 101}, id=id_, answer=Answer.approve()).value["paid"] == 101
    assert runtime.approvals.pending() == ()
    again = asyncio.run(runtime.resume(pending.id))
    assert (again.outcome, again.error.code) == (Outcome.DENIED, "already_answered")


def test_a_decision_of_the_framework_answers_only_its_own_call(tmp_path):
    runtime = asked(tmp_path)
    one = adapter(runtime, "pay")
    for each in ("c1", "c2", "c3"):
        call(one, {"amount": 101}, id=each)
    refused = call(one, {"amount": 101}, id="c1", answer=Answer.reject("too much"))
    assert (refused.outcome, refused.error.code) == (Outcome.DENIED, "rejected")
    assert call(one, {"amount": 102}, id="c2", answer=Answer.approve()).value["paid"] == 102
    states = [runtime.approvals.state(each) for each in runtime.approvals.everything()]
    assert sorted(states) == ["made", "pending", "rejected"]


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        (ASKED.replace("rules:", "audit: true\n  rules:"), False),
        ("access: {default: ask}", True),
    ],
    ids=["audit", "default"],
)
def test_a_call_waits_if_the_settings_of_access_ask(tmp_path, settings, waits):
    assert adapter(asked(tmp_path, settings), "pay").needs_approval({"amount": 101}) is waits


def test_a_call_does_not_wait_if_the_runtime_asks_in_place(tmp_path):
    async def approve(pending):
        return Answer.approve()

    one = adapter(asked(tmp_path, approver=approve), "pay")
    assert one.needs_approval({"amount": 101}) is False
    assert call(one, {"amount": 101}).value["paid"] == 101


def test_edited_arguments_are_validated():
    one = adapter(opened(SHOP), "pay", ask="pay")
    edited = call(one, {"amount": 3}, answer=Answer.approve({"amount": "much"}))
    assert edited.outcome is Outcome.INVALID_ARGUMENTS


def test_a_pending_call_hides_secrets():
    one = adapter(opened(SHOP), "pay", ask="pay")
    arguments = {"card": "4242424242", "amount": 3}
    pending = one.pending(arguments, call(one, arguments), "call_1")
    assert (pending.id, pending.tool, pending.code) == ("call_1", "pay", "needs_approval")
    assert pending.arguments == {"card": "***", "amount": 3}


def test_an_approval_is_a_grant_of_the_call():
    async def only_with_grant(made, call_next):
        if "approve:pay" in made.context.grants:
            return await call_next(made)
        return Result.failure(Outcome.NEEDS_APPROVAL, "pay?")

    one = adapter(opened(SHOP, middleware=[only_with_grant]), "pay")
    assert call(one, {"amount": 3}).outcome is Outcome.NEEDS_APPROVAL
    assert call(one, {"amount": 3}, answer=Answer.approve()).value == 3


def test_media_are_separated_from_the_text():
    image = Content("image", data="aGk=", mime_type="image/png")
    result = Result.success("drawn", content=(Content("text", text="note"), image))
    assert text_and_media(result, lambda part: part.data) == ("drawn\nnote", ["aGk="])
    assert text_and_media(result, lambda _part: None) == ("drawn\nnote\n[image image/png]", [])


def with_server(tmp_path, text, *, command=sys.executable):
    tools = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools.write_text(json.dumps([{"name": "echo", "inputSchema": schema}]), encoding="utf-8")
    server = Server(
        "docs", command=command, args=(str(TESTS / "listing_server.py"), str(tools), "1"), imports=True
    )
    kinds = Executors.installed()
    return Runtime(parse_registry("say.yaml", text, kinds=kinds), executors=kinds, servers={"docs": server})


SAY = "name: say\nmcp: {server: docs, tool: echo}\n---\nname: plain\nmock: {result: 1}\n"


def test_the_tools_of_a_server_are_not_passed_on_before_they_are_known(tmp_path):
    runtime = with_server(tmp_path, SAY)
    selection = ToolSelection(runtime)
    with pytest.raises(ConfigurationError, match="the tools of `docs` are not known yet") as caught:
        selection.adapters("to_langchain")
    assert caught.value.code == "not_discovered"
    assert "call `to_langchain` inside `async with Runtime.open(...)`" in caught.value.hint

    async def discovered():
        try:
            return {each.name: each.schema for each in await selection.discovered()}
        finally:
            await runtime.aclose()

    found = asyncio.run(discovered())
    assert (
        found["say"] == found["docs__echo"] == {"type": "object", "properties": {"text": {"type": "string"}}}
    )


def test_python_sources_are_imported_before_their_tools_are_passed_on(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: [{python: framework_sources}]\n")
    (tmp_path / "framework_sources.py").write_text(
        "import toolcrib\n\n@toolcrib.tool\ndef ping(text: str) -> str:\n    return text\n"
    )
    runtime = Runtime.open(tmp_path, index=False)
    OPEN.append(runtime)
    selection = ToolSelection(runtime)
    with pytest.raises(ConfigurationError, match="are not known yet"):
        selection.adapters("to_langchain")
    (found,) = asyncio.run(selection.discovered())
    assert (found.name, list(found.schema["properties"])) == ("ping", ["text"])


def test_a_tool_whose_server_cannot_be_listed_is_left_out(tmp_path, caplog):
    async def run():
        async with with_server(tmp_path, SAY, command="no-such-program") as runtime:
            return names(adapters(runtime)), runtime

    found, runtime = asyncio.run(run())
    assert found == ["plain"]
    assert "the schema of `say` is not known: its server `docs` cannot be listed" in caplog.text
    with pytest.raises(ConfigurationError, match="the schema of `say` is not known") as caught:
        adapters(runtime, "say")
    assert caught.value.code == "unknown_schema"


def test_a_mock_of_a_tool_of_a_server_has_no_schema_before_the_server_is_asked(tmp_path, caplog):
    text = "name: say\nmode: mock\nmock: {result: 1}\nmcp: {server: docs, tool: echo}\n"
    kinds = Executors.installed()
    runtime = Runtime(parse_registry("say.yaml", text, kinds=kinds), executors=kinds)
    assert adapters(runtime) == []
    assert "its server `docs` has not listed its tools; it is not offered" in caplog.text


def test_a_schema_that_is_written_as_true_is_an_object():
    runtime = opened("name: tool\ninput_schema: true\nmock: {result: 1}\n", executors=MOCKS)
    assert adapter(runtime).schema == {"type": "object"}


FUNCTIONS = {
    "langchain": (to_langchain, "langchain", "LangChain"),
    "pydantic-ai": (to_pydantic_ai, "pydantic-ai", "Pydantic AI"),
    "openai-agents": (to_openai_agents, "openai-agents", "the OpenAI Agents SDK"),
    "inspect": (to_inspect, "inspect", "Inspect"),
}


@pytest.mark.parametrize(("function", "extra", "framework"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_without_the_framework_the_error_names_the_extra(function, extra, framework):
    with pytest.raises(
        ConfigurationError, match=f"passing tools to {framework} needs the extra `{extra}`"
    ) as caught:
        function(opened(SHOP))
    assert (caught.value.code, caught.value.hint) == ("missing_extra", f"pip install 'toolcrib[{extra}]'")
