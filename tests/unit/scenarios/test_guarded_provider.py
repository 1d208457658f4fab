"""Replies that violate a guardrail with `rewrite` are rewritten before the conversation contains them."""

from __future__ import annotations

import pytest

from loop_models import Model, says
from toolcrib import Runtime
from toolcrib.loading.prompts import Guardrail
from toolcrib.loading.scenarios.assertions import compile_guardrails
from toolcrib.provider import CallDelta, Finish, ReasoningDelta, TextDelta
from toolcrib.provider.messages import user
from toolcrib.provider.models.protocol import ProviderError, Request
from toolcrib.scenarios import run_scenario
from toolcrib.scenarios.guarded_provider import GuardedProvider

SHORT = Guardrail("max_length", {"max": 5}, rewrite=True)
WATCHED = Guardrail("max_length", {"max": 1})


def guarded(model, *guards):
    return GuardedProvider(model, compile_guardrails(guards))


def asked(*texts):
    return Request(tuple(map(user, texts)))


async def answer(provider, *texts):
    return [delta async for delta in provider.respond(asked(*texts or ("Hi",)))]


async def test_the_new_text_is_where_the_old_one_began_and_everything_else_stays():
    call, thought, end = CallDelta(0, "", "look_up", "{}"), ReasoningDelta("hm"), Finish("tool_calls")
    pieces = [thought, TextDelta("abc"), call, TextDelta("defg"), end]
    provider = guarded(Model(pieces), WATCHED, SHORT)
    assert await answer(provider, "One", "Two") == [thought, TextDelta("abcde"), call, end]
    (firing,) = provider.firings
    assert (firing.turn, firing.guard) == (2, 1)
    assert firing.found == "the reply has 7 characters, expected at most 5"


@pytest.mark.parametrize("text", ["", "abc", "abcde"])
async def test_other_replies_stay_as_they_are(text):
    pieces = says(text)
    provider = guarded(Model(pieces), SHORT)
    assert await answer(provider) == pieces
    assert provider.firings == []


async def test_the_text_of_an_interrupted_reply_is_judged_too():
    class Broken:
        async def respond(self, request):
            yield TextDelta("abcdefg")
            raise ProviderError("the connection was lost")

    pieces = guarded(Broken(), SHORT).respond(asked("Hi"))
    assert await anext(pieces) == TextDelta("abcde")
    with pytest.raises(ProviderError, match="the connection was lost"):
        await anext(pieces)


async def test_nothing_is_read_after_the_end():
    class Endless:
        async def respond(self, request):
            yield Finish()
            while True:
                yield TextDelta("more")

    assert await answer(guarded(Endless(), SHORT)) == [Finish()]


def test_the_optional_members_of_the_provider_are_there():
    class Plain(Model):
        dialect = "anthropic"
        free = True

    provider = guarded(Plain(), SHORT)
    assert (provider.dialect, provider.free, hasattr(provider, "world")) == ("anthropic", True, False)


SCENARIO = """
scenario: polite
agent:
  guardrails:
    - {type: content_excludes, params: {patterns: [secret]}, message: I cannot say., rewrite: true}
    - {type: max_length, params: {max: 3}}
  turns:
    - user: Tell me.
      script: [{say: It is a SECRET.}]
      assertions:
        - {type: content_includes, params: {patterns: [cannot]}}
        - {type: guardrail_triggered, params: {validator_type: content_excludes}}
        - {type: guardrail_triggered, params: {validator_type: max_length}}
"""


async def test_a_scenario_may_rewrite_replies(tmp_path):
    path = tmp_path / "polite.scenario.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    async with Runtime.open(path) as runtime:
        assert runtime.problems == ()
        report = await run_scenario(runtime, runtime.scenarios[0])
    assert report.passed, str(report)
    (turn,) = report.agent.turns
    assert turn.entries[-1].text == "I cannot say."
