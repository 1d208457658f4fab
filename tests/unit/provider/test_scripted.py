"""A scripted model answers by what it sees."""

from __future__ import annotations

import pytest

from in_memory import runtime_of
from toolcrib.core.errors import DocumentError
from toolcrib.core.model import Outcome
from toolcrib.provider import (
    CallDelta,
    Conversation,
    Finish,
    Message,
    ProviderError,
    ReasoningDelta,
    Request,
    Stop,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    user,
)
from toolcrib.provider.middleware import ProviderMiddleware
from toolcrib.provider.models.scripted import ModelView, Scripted, decision_note, value_of

ORDER = """
name: get_order
input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
mock:
  rules:
    - {when: {args: {id: none}}, reply: {error: {code: gone, message: It is gone.}}}
    - {reply: {result: {status: paid, id: "{{ args.id }}"}}}
"""


async def asked(model, *messages):
    return [delta async for delta in model.respond(Request(messages))]


def said(*texts):
    return Message("assistant", tuple(Text(text) for text in texts))


def called(text, *, outcome=Outcome.OK, code="", name="c1"):
    return (
        Message("assistant", (ToolCall(name, "get_order", {}),)),
        Message("tool", (ToolResult(name, "get_order", outcome, text, code=code),)),
    )


async def test_a_reply_thinks_says_and_calls_in_this_order():
    model = Scripted.of(
        [
            {
                "reasoning": "Hm.",
                "say": "Now.",
                "calls": [{"call": "a", "args": {"x": 1}}, {"call": "b", "args": "{", "id": "z"}],
            }
        ]
    )
    assert await asked(model, user("hi")) == [
        ReasoningDelta("Hm."),
        TextDelta("Now."),
        CallDelta(0, "", "a", {"x": 1}),
        CallDelta(1, "z", "b", "{"),
        Finish("tool_calls"),
    ]


async def test_it_matches_on_what_it_sees_and_not_on_how_often_it_was_asked():
    model = Scripted.of([{"say": "one", "times": 0}], [{"say": "two", "times": 0}])
    second = (user("a"), said("one"), user("b"))
    assert (await asked(model, *second))[0] == TextDelta("two")
    assert (await asked(model, user("a")))[0] == TextDelta("one")
    assert (await asked(model, *second))[0] == TextDelta("two")


WHEN = [
    ({"user": {"$regex": "(?i)refund"}}, True),
    ({"user": "no"}, False),
    ({"turn": 2}, True),
    ({"reply": 2}, True),
    ({"replies": {"$gte": 2}}, True),
    ({"replies": 1}, False),
    ({"results": {"get_order": {"status": "paid"}}}, True),
    ({"results": {"other": {"$exists": True}}}, False),
    ({"last": {"tool": "get_order", "outcome": "tool_error", "code": "gone"}}, True),
    ({"last": {"text": {"$contains": "gone"}}, "turn": 2}, True),
    ({"last": {"outcome": "ok"}, "turn": 2}, False),
]


@pytest.mark.parametrize(("when", "fits"), WHEN)
async def test_what_a_reply_can_look_at(when, fits):
    messages = (
        user("hello"),
        *called('{"status":"paid"}'),
        user("Refund it"),
        *called("It is gone.", outcome=Outcome.TOOL_ERROR, code="gone", name="c2"),
    )
    model = Scripted.of([], [{"when": when, "say": "yes"}])
    if fits:
        assert (await asked(model, *messages))[0] == TextDelta("yes")
    else:
        with pytest.raises(ProviderError):
            await asked(model, *messages)


async def test_texts_and_arguments_are_worked_out_of_what_is_seen():
    model = Scripted.of(
        [
            {
                "say": "{{ turn }} {{ user }} {{ results.get_order.status }}",
                "call": "a",
                "args": {"o": "{{ results.get_order }}"},
                "when": {"turn": 1},
            }
        ]
    )
    text, call, _finish = await asked(model, user("hi"), *called('{"status":"paid"}'))
    assert text == TextDelta("1 hi paid")
    assert call.arguments == {"o": {"status": "paid"}}


async def test_nothing_that_fits_is_told_reply_by_reply_with_what_to_write():
    model = Scripted.of([{"say": "one"}, {"say": "two", "when": {"user": "x"}}], [{"say": "later"}])
    await asked(model, user("a"))
    with pytest.raises(ProviderError) as caught:
        await asked(model, user("a"))
    error = caught.value
    assert error.code == "unscripted"
    assert model.failed is error
    assert error.message == 'no reply of the script matches request 1 of turn 1, where the user says "a"'
    assert error.details["lines"] == [
        "reply at /0/0: it is used up after one use",
        'reply at /0/1: user: expected "x", got "a"',
        "1 reply belongs to other turns",
    ]
    assert error.details["paste"] == "- when: {reply: 1}\n  say: what the model says here"
    assert [reply.pointer for reply in model.unused()] == ["/0/1", "/1/0"]


async def test_a_place_that_is_another_one_is_told():
    model = Scripted.of([{"call": "a", "optional": True}, {"say": "b"}])
    with pytest.raises(ProviderError) as caught:
        await asked(model, user("a"), said("x"), said("y"))
    assert caught.value.details["lines"] == [
        "reply at /0/0: it must be reply 1, but this is reply 3 of the turn",
        "reply at /0/1: it must be one of replies 1 to 2, but this is reply 3 of the turn",
    ]


async def test_an_expression_that_fails_is_told_at_its_place():
    model = Scripted.of([{"say": "{{ results.nobody }}"}])
    with pytest.raises(ProviderError) as caught:
        await asked(model, user("a"))
    assert (caught.value.code, caught.value.details["pointer"]) == ("script_failed", "/0/0/say")
    assert len(model.unused()) == 1


def test_a_script_in_python_is_checked_like_one_of_a_document():
    with pytest.raises(DocumentError) as caught:
        Scripted.of([{"sya": "a"}], [{"say": 3}])
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [
        ("unknown_key", "/0/0/sya"),
        ("wrong_type", "/1/0/say"),
    ]
    with pytest.raises(DocumentError) as caught:
        Scripted.of([{"say": "{{ nobody }}"}])
    assert caught.value.problems[0].code == "unknown_name"


EXPECTED = [
    ({"status": "paid"}, "a", None),
    ({"status": "open"}, "a", '/status: expected "open", got "paid"'),
    ({"$regex": "gone"}, "none", None),
    ({"outcome": "tool_error", "code": "gone"}, "none", None),
    ({"outcome": "denied"}, "none", '/outcome: expected "denied", got "tool_error"'),
    ({"status": "paid"}, "none", 'expected an object, got "It is gone."'),
]


@pytest.mark.parametrize(("pattern", "order", "told"), EXPECTED)
async def test_what_the_model_is_told_is_compared_with_what_is_expected(pattern, order, told):
    call = {"call": "get_order", "args": {"id": order}, "expect_result": pattern}
    model = Scripted.of([call, {"say": "Done."}])
    async with runtime_of(ORDER) as runtime:
        conversation = await ProviderMiddleware(model, runtime).run("hi")
    if told is None:
        assert (conversation.stop, conversation.text, model.unexpected) == (Stop.ANSWERED, "Done.", [])
        return
    assert (conversation.stop, model.failed.code) == (Stop.PROVIDER_FAILED, "unexpected_result")
    (unexpected,) = model.unexpected
    assert (unexpected.call.pointer, unexpected.lines[0]) == ("/0/0", told)


async def test_each_of_several_calls_is_judged_once_when_it_is_answered():
    model = Scripted.of(
        [{"calls": [{"call": "get_order", "expect_result": 1}, {"call": "get_order", "expect_result": 2}]}]
    )
    await asked(model, user("hi"))
    asking = Message("assistant", (ToolCall("a", "get_order", {}), ToolCall("b", "get_order", {})))
    first = Message("tool", (ToolResult("a", "get_order", Outcome.OK, "1"),))
    second = Message("tool", (ToolResult("b", "get_order", Outcome.OK, "3"),))
    assert model.settle([user("hi"), asking]) == []
    assert model.settle([user("hi"), asking, first]) == []
    assert [each.id for each in model.settle([user("hi"), asking, first, second])] == ["b"]
    assert model.settle([user("hi"), asking, first, second]) == []


async def test_it_drives_the_loop_like_any_model():
    model = Scripted.of(
        [
            {"call": "get_order", "args": {"id": "1"}},
            {"call": "get_order", "args": "nonsense", "expect_result": {"code": "not_json"}},
            {"say": "{{ results.get_order.id }}"},
        ],
        [{"say": "Bye."}],
    )
    async with runtime_of(ORDER) as runtime:
        loop = ProviderMiddleware(model, runtime)
        conversation = await loop.run("hi")
        assert (conversation.text, [call.outcome.value for call in conversation.calls]) == (
            "1",
            ["ok", "invalid_arguments"],
        )
        again = await loop.run(Conversation.parse(conversation.as_json()).saying("bye"))
    assert (again.text, model.unused()) == ("Bye.", [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1}', {"a": 1}),
        ("[1]\n[image/png, 3 bytes]", [1]),
        ("12\nmore", "12\nmore"),
        ("12345678901234567890", 12345678901234567890),
        ("plain", "plain"),
        ("NaN", "NaN"),
        ("", ""),
        ('{"a":1} and so on', '{"a":1} and so on'),
        (decision_note({"x": "\n"}) + '{"a":1}', {"a": 1}),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_the_value_of_what_is_told(text, value):
    assert value_of(text) == value


def test_nothing_is_seen_of_nothing():
    assert ModelView.of([]) == ModelView("", 0, 1, 0, {}, None)
