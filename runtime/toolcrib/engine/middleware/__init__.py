"""The layers around every call, outermost first.

    events > (the user's) > arguments > cache > deadline > limits > retry > breaker > results > faults
    > Executor.execute

`cache`, `limits`, `retry` and `breaker` stand around tools that reach out, `faults` around those that a scenario
lets fail. Each layer is one file with one function `layer(...)` that returns a middleware, or None where the tool does
not need it. The chain is built once, when a tool is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import Call, Descriptor, Result
from toolcrib.core.protocols import BoundTool, CallNext, Middleware, PromptTool, Reaching
from toolcrib.engine.middleware import arguments, deadline, events, results
from toolcrib.engine.middleware.events import Observer
from toolcrib.engine.middleware.fast_path import Direct, Plain, as_result, direct
from toolcrib.engine.middleware.user_middleware import checked

if TYPE_CHECKING:
    from toolcrib.engine.middleware.shared_state import Commons

__all__ = [
    "Direct",
    "Observer",
    "Plain",
    "build_chain",
    "chain_of",
    "layers_of",
    "middleware_named",
    "outer_layers",
    "reaches",
]

GROUP = "toolcrib.middleware"


def middleware_named(name: str) -> Middleware:
    """A middleware that an installed distribution offers in the entry-point group `toolcrib.middleware`.

    Raises:
        ConfigurationError: None is called so.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 -- slow to import, and most runtimes name none

    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        raise ConfigurationError(
            f"no installed distribution offers a middleware `{name}`", hint=did_you_mean(name, offered)
        )
    found: Middleware = offered[name].load()
    return found


Named: TypeAlias = "tuple[str, Middleware | None]"


def layers_of(
    tool: Descriptor,
    bound: BoundTool,
    *,
    user: Sequence[Middleware] = (),
    observer: Observer | None = None,
    commons: Commons | None = None,
) -> list[tuple[str, Middleware]]:
    """The layers of one tool by name, outermost first; what it does not use is not among them.

    Args:
        tool: The tool.
        bound: Its binding.
        user: Layers of the user, outermost first.
        observer: Receives the events of every call.
        commons: What the tools of a runtime share; None shares nothing.
    """
    keeping, sending = _around_reaching(tool, bound, commons) if reaches(bound) else ([], [])
    layers: list[Named] = [
        *outer_layers(user, observer),
        ("arguments", arguments.layer(tool)),  # bad arguments cost no attempt
        *keeping,
        ("deadline", deadline.layer(tool, bound)),  # covers queues and all attempts
        *sending,
        ("results", results.layer(tool)),  # judges whatever answered
        *(_failing(bound) if tool.faults else ()),
    ]
    return [(name, layer) for name, layer in layers if layer is not None]


def reaches(bound: BoundTool) -> TypeGuard[Reaching]:
    """Whether the calls of a bound tool reach out, so that they can fail, and take places, together with others."""
    return hasattr(bound, "origin") and hasattr(bound, "repeatable")


def _around_reaching(
    tool: Descriptor, bound: Reaching, commons: Commons | None
) -> tuple[list[Named], list[Named]]:
    """The layers around a tool that reaches out: those outside the deadline, and those inside."""
    from toolcrib.engine.middleware import cache, circuit_breaker, limits, retry  # noqa: PLC0415 -- mocked tools need none of them
    from toolcrib.engine.middleware.shared_state import Commons  # noqa: PLC0415 -- as above

    shared = Commons() if commons is None else commons
    return [("cache", cache.layer(tool))], [
        ("limits", limits.layer(tool, bound, shared)),  # one place for all attempts of a call
        ("retry", retry.layer(tool, bound, shared)),
        ("breaker", circuit_breaker.layer(tool, bound, shared)),  # sees each attempt
    ]


def _failing(bound: BoundTool) -> list[Named]:
    """The layer that lets a tool fail as the world does."""
    from toolcrib.engine.middleware import faults  # noqa: PLC0415 -- few tools are made to fail

    return [("faults", faults.layer(bound))]


def outer_layers(user: Sequence[Middleware], observer: Observer | None) -> list[tuple[str, Middleware]]:
    """The layers around every tool, also around one that can't be bound."""
    reporting = events.layer(observer)
    return [
        *(
            [("events", reporting)] if reporting is not None else []
        ),  # outermost: it reports what the caller gets
        # Outside `arguments`: what they change is still checked.
        *(("user", checked(middleware)) for middleware in user),
    ]


def chain_of(
    tool: Descriptor,
    bound: BoundTool,
    *,
    user: Sequence[Middleware] = (),
    observer: Observer | None = None,
    commons: Commons | None = None,
) -> tuple[CallNext, Direct | None, Plain | None]:
    """What the calls of a tool run through.

    Returns:
        The chain; and, where nothing in it ever waits, what does the same at once, and the shortest way.
    """
    at_once, plain = (None, None) if bound.waits or not _is_prompt(bound) else direct(tool, bound)
    if at_once is None:
        layers = layers_of(tool, bound, user=user, observer=observer, commons=commons)
        return build_chain([layer for _name, layer in layers], bound.execute), None, None
    run, around = at_once, [layer for _name, layer in outer_layers(user, observer)]

    async def innermost(call: Call) -> Result:
        answer = run(call)
        if answer is None:
            layers = [layer for _name, layer in layers_of(tool, bound, commons=commons)]
            return await build_chain(layers, bound.execute)(call)
        return as_result(answer)

    chain = build_chain(around, innermost)
    return (chain, None, None) if around else (chain, run, plain)


def _is_prompt(bound: BoundTool) -> TypeGuard[PromptTool]:
    return hasattr(bound, "answer_now") and hasattr(bound, "value_of")


def build_chain(layers: Sequence[Middleware], execute: CallNext) -> CallNext:
    """One callable that passes a call through the layers, the first one outermost, to `execute`."""
    chained = execute
    for layer in reversed(layers):
        chained = _around(layer, chained)
    return chained


def _around(layer: Middleware, call_next: CallNext) -> CallNext:
    def through(call: Call):  # type: ignore[no-untyped-def]  # noqa: ANN202 -- the layer's own awaitable, not wrapped once more
        return layer(call, call_next)

    return through
