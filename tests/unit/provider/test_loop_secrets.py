"""Secrets of calls: the tool and the model get them, whoever watches or decides does not."""

from __future__ import annotations

import json

from in_memory import runtime_of
from loop_models import Model, asks, loop, says, watched
from toolcrib import Content, Outcome, Result
from toolcrib.provider import Answer, Conversation, ToolPolicy, View

TOOLS = """
name: log_in
input_schema:
  type: object
  properties:
    password: {type: string}
    pin: {type: string, writeOnly: true}
    answer: {type: string, format: password}
    deep: {type: array, items: {type: object, properties: {word: {type: string, x-secret: true}}}}
    amount: {type: integer}
    note: {type: string}
output_schema:
  type: object
  properties: {session: {type: string, x-secret: true}, api_key: {type: string}, user: {type: string}}
mock: {result: {session: canary-6, api_key: canary-7, user: ada, echo: "{{ args }}"}}
---
name: failing
input_schema: {type: object, properties: {token: {type: string}}}
mock: {error: {code: broken, message: "{{ args['token'] }} is no good"}}
---
name: telling
input_schema: {type: object}
mock: {result: '{"api_key": "canary-8", "user": "ada"}'}
"""
ARGUMENTS = {
    "password": "canary-1",
    "pin": "x9",
    "answer": "canary-3",
    "deep": [{"word": "canary-4"}],
    "amount": 5,
    "note": "with canary-1 in it",
}
SHOWN = {
    "password": "***",
    "pin": "***",
    "answer": "***",
    "deep": [{"word": "***"}],
    "amount": 5,
    "note": "with *** in it",
}
LOG_IN, FAILING = ("log_in", ARGUMENTS), ("failing", {"token": "canary-5"})
ASKING = ToolPolicy(ask=("log_in",))


def text_of(events) -> str:
    return json.dumps([event.as_json() for event in events])


async def test_events_have_no_secrets_and_the_model_has_them():
    model = Model(asks(LOG_IN, FAILING, "telling"), says("done"))
    events, conversation = await watched(loop(model, tools=TOOLS), "hello")
    assert "canary" not in text_of(events)
    assert "x9" not in text_of(events)
    view = View()
    for event in events:
        view.apply(event)
    calls = [segment for segment in view.segments if segment.kind == "call"]
    assert [call.arguments for call in calls] == [SHOWN, {"token": "***"}, {}]
    assert json.loads(calls[0].text)["user"] == "ada"
    assert [call.text for call in calls[1:]] == ["broken: *** is no good", '{"api_key":"***","user":"ada"}']
    told = json.dumps([message.as_json() for message in model.requests[-1].messages])
    for canary in (f"canary-{number}" for number in (1, 3, 4, 5, 6, 7, 8)):
        assert canary in told
    assert conversation.calls[0].arguments == ARGUMENTS


async def test_what_waits_is_shown_without_secrets_and_called_with_them():
    suspended_events, suspended = await watched(loop(Model(asks(LOG_IN)), ASKING, TOOLS), "hello")
    (pending,) = suspended.pending
    assert pending.arguments == SHOWN
    assert "canary" not in text_of(suspended_events)

    later = Conversation.parse(json.loads(json.dumps(suspended.as_json())))
    for answer, expected in [
        (Answer.approve(), ARGUMENTS),
        (
            Answer.approve(dict(pending.arguments) | {"amount": 3, "note": "-"}),
            {**ARGUMENTS, "amount": 3, "note": "-"},
        ),
        (Answer.approve({"password": "canary-9", "deep": []}), {"password": "canary-9", "deep": []}),
    ]:
        events, ended = await watched(loop(Model(), ASKING, TOOLS), later, {pending.id: answer})
        assert ended.calls[0].arguments == expected
        assert ended.calls[0].value["echo"] == expected
        assert "canary" not in text_of(events)


async def test_what_a_layer_asks_has_no_secrets_either():
    async def guard(call, call_next):
        details = {"password": call.arguments["password"], "why": ["canary-1", 5]}
        return Result.failure(Outcome.NEEDS_APPROVAL, "may canary-1 be used?", code="mine", details=details)

    runtime = runtime_of(TOOLS, middleware=[guard])
    events, suspended = await watched(loop(Model(asks(LOG_IN)), tools=runtime), "hello")
    (pending,) = suspended.pending
    assert (pending.message, pending.details) == (
        "may *** be used?",
        {"password": "***", "why": ["***", 5]},
    )
    assert "canary" not in text_of(events)


async def test_secrets_of_earlier_turns_stay_secret_and_so_do_parts():
    async def parted(call, call_next):
        result = await call_next(call)
        if call.tool.name != "telling":
            return result
        parts = (Content("text", text="x: canary-1"), Content("text", text='{"api_key": "k8"}'))
        return Result.success(None, content=parts)

    runtime = runtime_of(TOOLS, middleware=[parted])
    before = await loop(Model(asks(LOG_IN), says("done")), tools=runtime).run("hello")
    middleware = loop(Model(asks("telling"), says("done")), tools=runtime)
    events, _ended = await watched(middleware, before.saying("again"))
    (text,) = [event.text for event in events if event.outcome == "ok"]
    assert text == 'x: ***\n{"api_key":"***"}'


async def test_a_long_result_is_cut_where_no_secret_is_seen():
    tools = f"name: t\ninput_schema: {{type: object}}\nmock: {{result: {{a: {'x' * 60}, token: canary-1{'y' * 300}}}}}"
    events, conversation = await watched(loop(Model(asks("t")), tools=tools, result_limit=300), "hello")
    assert "canary" not in text_of(events)
    assert "canary" in conversation.messages[2].results[0].text


async def test_a_model_is_not_told_the_secrets_that_somebody_else_gives():
    suspended = await loop(Model(asks(LOG_IN)), ASKING, TOOLS).run("hello")
    theirs = {"password": "canary-9", "pin": "z8", "amount": 7}
    ended = await loop(Model(), ASKING, TOOLS).run(suspended, {"call_1": Answer.approve(theirs)})
    told = ended.messages[2].results[0].text.split("\n")[0]
    assert told == '[called with {"password":"***","pin":"***","amount":7}, as was decided]'
    assert ended.calls[0].arguments == theirs


async def test_a_turn_that_nobody_watches_asks_without_the_secrets_of_its_earlier_calls():
    noted = {"amount": 1, "note": "as with canary-1, canary-5 and canary-6"}

    def rounds() -> list[object]:
        return [asks(LOG_IN, FAILING), asks(("asking", noted))]

    tools = TOOLS + "---\n{name: asking, input_schema: {type: object}, mock: {result: 1}}\n"
    policy = ToolPolicy(ask=("asking",))
    unwatched = await loop(Model(*rounds()), policy, tools=tools).run("hello")
    _events, watched_one = await watched(loop(Model(*rounds()), policy, tools=tools), "hello")
    (pending,) = unwatched.pending
    assert pending.arguments == {"amount": 1, "note": "as with ***, *** and ***"}
    # Each call has an approval of its own.
    assert [pending._replace(details={})] == [each._replace(details={}) for each in watched_one.pending]
    assert unwatched.place == watched_one.place
    assert unwatched.messages == watched_one.messages
