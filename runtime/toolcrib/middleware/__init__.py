"""The layers around every call, outermost first.

    events > (the user's) > arguments > deadline > results > Executor.execute

Each layer is one file with one function `layer(...)` that returns a middleware, or None where the
tool does not need it. The chain is built once, when a tool is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

from toolcrib.errors import ConfigurationError, did_you_mean
from toolcrib.middleware import arguments, deadline, events, results
from toolcrib.middleware.events import Observer
from toolcrib.middleware.users import checked
from toolcrib.model import Call, Descriptor
from toolcrib.protocols import BoundTool, CallNext, Middleware

__all__ = ["Observer", "build_chain", "layers_of", "middleware_named"]

GROUP = "toolcrib.middleware"


def middleware_named(name: str) -> Middleware:
    """A middleware that an installed distribution offers in the entry-point group `toolcrib.middleware`.

    Raises:
        ConfigurationError: None is called so.
    """
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
        ("events", events.layer(observer)),  # outermost: it reports what the caller gets
        *(
            ("user", checked(middleware)) for middleware in user
        ),  # outside `arguments`: what they change is still checked
        ("arguments", arguments.layer(tool)),  # bad arguments cost no attempt
        ("deadline", deadline.layer(tool, bound)),  # covers all attempts
        ("results", results.layer(tool)),  # judges whatever answered
    ]
    return [(name, layer) for name, layer in layers if layer is not None]


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
