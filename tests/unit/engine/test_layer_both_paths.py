"""One layer, written once: it acts on calls that run in an event loop and on those that run without one."""

from __future__ import annotations

import asyncio
from types import ModuleType

import pytest

from in_memory import mocked, runtime_of
from toolcrib import CallFinished, CallStarted, ConfigurationError, Outcome, Result
from toolcrib.core.model import NO_USAGE
from toolcrib.engine import middleware
from toolcrib.engine.middleware import LayerEntry
from toolcrib.engine.middleware.layer import never_waits

INPUTS = "{properties: {n: {type: integer, default: 1}}, additionalProperties: false}"
BLOCKS = {
    "alone": 'result: {n: "{{ args.n }}"}',
    "counted": 'result: {n: "{{ args.n }}", call: "{{ call }}"}',
    "broken": 'result: {n: "{{ args.n // 0 }}"}',
    "error": 'error: {code: no, message: "not {{ args.n }}"}',
    "unmatched": "rules: [{when: {args: {n: 0}}, reply: {result: {}}}]",
    "refused": 'result: "{{ args.n }}"',
    "kept": 'result: {n: "{{ args.n }}"}\nidempotent_by: "{{ args.n }}"',
}
WAITING = "\nlatency: 1ms"
"""What makes a mock wait, so that its calls need an event loop."""

ARGUMENTS = [{}, {"n": 2}, {"n": "3"}, {"n": "x"}, {"m": 1}, {"n": [1]}, {"n": {1}}]


def added(monkeypatch, place, layer, **options):
    """Add a layer as a new one is added: a module, and a line in the table."""
    module = ModuleType(f"{middleware.__name__}.added")
    module.layer = layer
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    names = [entry.name for entry in middleware.LAYERS]
    at = names.index(place)
    layers = (*middleware.LAYERS[:at], LayerEntry("added", **options), *middleware.LAYERS[at:])
    monkeypatch.setattr(middleware, "LAYERS", layers)


@pytest.mark.parametrize("place", ["events", "arguments", "results", "faults"])
@pytest.mark.parametrize("waiting", ["", WAITING], ids=["at once", "in time"])
def test_a_layer_that_never_waits_acts_on_both_paths(monkeypatch, place, waiting):
    seen = []

    def layer(_context, call_next):
        @never_waits
        async def noting(call):
            if call.arguments.get("n") == 13:
                return Result.failure(Outcome.DENIED, "not 13")
            result = await call_next(call)
            seen.append(result.value)
            return result.with_meta(noted=True)

        return noting

    added(monkeypatch, place, layer)
    runtime = runtime_of(mocked(BLOCKS["alone"] + waiting, inputs=INPUTS))
    session = runtime.session()
    if waiting:
        assert session.call_at_once("tool", {"n": 1}) is None
        result = asyncio.run(session.call("tool", {"n": 1}))
        denied = asyncio.run(session.call("tool", {"n": 13}))
    else:
        result = session.call_at_once("tool", {"n": 1})
        denied = session.call_at_once("tool", {"n": 13})
        assert session.answers_at_once("tool")
    assert (result.value, result.meta["noted"], seen) == ({"n": 1}, True, [{"n": 1}])
    assert (denied.outcome, denied.message) == (Outcome.DENIED, "not 13")


@pytest.mark.parametrize("keeps", [False, True])
def test_arguments_that_a_layer_keeps_are_nobody_elses(monkeypatch, keeps):
    """Whoever asks `answers_at_once` hands out its own arguments, and changes the answer."""

    def layer(_context, call_next):
        return never_waits(call_next)

    added(monkeypatch, "arguments", layer, keeps=keeps)
    session = runtime_of(mocked(BLOCKS["alone"], inputs=INPUTS)).session()
    assert session.call_at_once("tool").outcome is Outcome.OK
    assert session.answers_at_once("tool") is not keeps


def test_a_layer_that_may_wait_puts_the_tool_on_the_event_loop(monkeypatch):
    def layer(context, call_next):
        async def waiting(call):
            await call.context.session.clock.sleep(0.001)
            return (await call_next(call)).with_meta(waited=context.tool.name)

        return waiting

    added(monkeypatch, "arguments", layer)
    session = runtime_of(mocked(BLOCKS["alone"], inputs=INPUTS)).session()
    assert session.call_at_once("tool") is None
    assert asyncio.run(session.call("tool")).meta == {"waited": "tool"}


def test_middleware_of_a_user_that_says_that_it_never_waits_needs_no_event_loop():
    class Marking:
        waits = False

        async def __call__(self, call, call_next):
            return (await call_next(call)).with_meta(marked=True)

    async def silent(call, call_next):
        return await call_next(call)

    marked = runtime_of(mocked(BLOCKS["alone"], inputs=INPUTS), middleware=[Marking()]).session()
    assert marked.call_at_once("tool").meta == {"marked": True}
    assert not marked.answers_at_once("tool")
    both = runtime_of(mocked(BLOCKS["alone"], inputs=INPUTS), middleware=[Marking(), silent]).session()
    assert both.call_at_once("tool") is None
    assert asyncio.run(both.call("tool")).meta == {"marked": True}


async def passing(call, call_next):
    """Middleware that does nothing; it does not say that it never waits, so its calls need an event loop."""
    return await call_next(call)


def called(block, observed, *, in_a_loop):
    """The results of some calls, and the events of an observer."""
    events = []
    options = {"observer": events.append} if observed else {}
    options |= {"middleware": [passing]} if in_a_loop else {}
    session = runtime_of(mocked(block, inputs=INPUTS, output="{type: object}"), **options).session(id="one")
    results = []
    for arguments in ARGUMENTS:
        result = session.call_at_once("tool", arguments)
        assert (result is None) == in_a_loop
        results.append(asyncio.run(session.call("tool", arguments)) if result is None else result)
    told = [(type(event), event.call.id.partition("-")[0], event[1:]) for event in events]
    return [result._replace(usage=NO_USAGE) for result in results], [
        (kind, id_, [result._replace(usage=NO_USAGE) for result in rest]) for kind, id_, rest in told
    ]


def test_middleware_that_waits_although_it_says_no_is_a_mistake():
    class Waiting:
        waits = False

        async def __call__(self, call, call_next):
            await asyncio.get_running_loop().create_future()

    async def call():
        runtime_of(mocked(BLOCKS["alone"], inputs=INPUTS), middleware=[Waiting()]).session().call_at_once(
            "tool"
        )

    with pytest.raises(ConfigurationError, match="the call of `tool` waited"):
        asyncio.run(call())


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("observed", [False, True])
def test_both_paths_give_equal_results_and_events(block, observed):
    results, events = called(block, observed, in_a_loop=False)
    assert repr((results, events)) == repr(called(block, observed, in_a_loop=True))
    assert [kind for kind, *_ in events] == [CallStarted, CallFinished] * (len(ARGUMENTS) if observed else 0)
