"""The layers around every call, outermost first.

    events > (the user's) > arguments > deadline > results > Executor.execute

Each layer is one file with one function `layer(...)` that returns a middleware, or None where the
tool does not need it. The chain is built once, when a tool is bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib.errors import ConfigurationError, did_you_mean
from toolcrib.middleware import arguments, deadline, events, results
from toolcrib.middleware.direct import Direct, direct
from toolcrib.middleware.events import Observer
from toolcrib.middleware.users import checked
from toolcrib.model import Call, Descriptor, Result
from toolcrib.protocols import BoundTool, CallNext, Middleware

__all__ = ["Direct", "Observer", "build_chain", "chain_of", "layers_of", "middleware_named", "outer_layers"]

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


def layers_of(
    tool: Descriptor, bound: BoundTool, *, user: Sequence[Middleware] = (), observer: Observer | None = None
) -> list[tuple[str, Middleware]]:
    """The layers of one tool by name, outermost first; what it does not use is not among them."""
    layers: list[tuple[str, Middleware | None]] = [
        *outer_layers(user, observer),
        ("arguments", arguments.layer(tool)),  # bad arguments cost no attempt
        ("deadline", deadline.layer(tool, bound)),  # covers all attempts
        ("results", results.layer(tool)),  # judges whatever answered
    ]
    return [(name, layer) for name, layer in layers if layer is not None]


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
    tool: Descriptor, bound: BoundTool, *, user: Sequence[Middleware] = (), observer: Observer | None = None
) -> tuple[CallNext, Direct | None]:
    """What the calls of a tool run through.

    Returns:
        The chain; and, where nothing in it ever waits, a function that does the same at once.
    """
    answer_now = None if bound.waits else getattr(bound, "answer_now", None)
    if answer_now is None:
        layers = layers_of(tool, bound, user=user, observer=observer)
        return build_chain([layer for _name, layer in layers], bound.execute), None
    run = direct(tool, answer_now)
    around = [layer for _name, layer in outer_layers(user, observer)]

    async def at_once(call: Call) -> Result:
        return run(call)

    return build_chain(around, at_once), None if around else run


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
