"""The layers around every call. `LAYERS` lists them, outermost first; `build_chain` builds a chain.

To add a layer, write one file and add one line to `LAYERS`. A chain is built once, when its tool is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.protocols import Middleware
from toolcrib.engine.middleware.layer import (
    BuildLayer,
    LayerContext,
    Link,
    has_own_limits,
    is_limited,
    may_wait,
    reaches_out,
    results_of,
    user_layer,
)

GROUP = "toolcrib.middleware"


class LayerEntry(NamedTuple):
    """The module of a layer and the tools that may need it.

    Attributes:
        name: Name of the module in this package.
        around: Whether a tool may need the layer. The module is imported only for these tools, and its
            `layer` decides.
        outer: Whether the layer also wraps tools that cannot run.
        trusts: Whether the layer accepts every answer of the layers inside: an awaitable or not, and a
            `TrustedAnswer`. Other layers await a `Result`.
        keeps: Whether the layer may keep arguments and results, as a journal does, so that no one may modify
            them.
    """

    name: str
    around: Callable[[LayerContext], bool] = lambda _context: True
    outer: bool = False
    trusts: bool = False
    keeps: bool = False


def _observed(context: LayerContext) -> bool:
    return bool(context.observers)


def _wrapped(context: LayerContext) -> bool:
    return bool(context.user)


def _reaching(context: LayerContext) -> bool:
    return reaches_out(context.bound)


def _waiting(context: LayerContext) -> bool:
    # A mock does not wait, but its calls may wait for a place.
    return context.bound.waits or is_limited(context)


def _observable(context: LayerContext) -> bool:
    return context.bound.waits


def _decided(context: LayerContext) -> bool:
    return context.access is not None


def _budgeted(context: LayerContext) -> bool:
    return bool(context.budgets)


def _asking(context: LayerContext) -> bool:
    return any(budget.asks for budget in context.budgets) or getattr(context.bound, "asks", False)


def _keyed(context: LayerContext) -> bool:
    return context.keyed


def _journalled(context: LayerContext) -> bool:
    return context.journal is not None


def _failing(context: LayerContext) -> bool:
    return bool(context.tool.faults)


def _traced(context: LayerContext) -> bool:
    return context.telemetry.trace != "off" and not context.telemetry.lacks_extra


def _recorded(context: LayerContext) -> bool:
    return context.telemetry.trace == "calls"


def _logged(context: LayerContext) -> bool:
    return context.telemetry.logs


USER: Final = "user"
"""Placeholder for the user's middleware, outside `arguments`, so that changed arguments are checked."""

LAYERS: Final = (
    LayerEntry("spans", _traced, outer=True),  # outermost: everything that a call does is within its span
    LayerEntry("call_log", _logged, outer=True),  # inside `spans`: a record has the IDs of the span
    LayerEntry(
        "events", _observed, outer=True, keeps=True
    ),  # outside all that decides: reports what the caller gets
    LayerEntry(USER, _wrapped, outer=True, keeps=True),
    LayerEntry("arguments", trusts=True),  # before `limits`: invalid arguments cost no attempt
    LayerEntry("access", _decided, trusts=True),  # after `arguments`: rules see valid arguments with defaults
    LayerEntry("approval", _asking),  # outside `deadline`: a person may take longer than the tool
    LayerEntry("cache", _reaching),  # outside `limits`: a cached result needs no slot
    LayerEntry(
        "estimate", _observable
    ),  # outside `limits`: a refused call takes no slot, and a cached one tells nothing
    LayerEntry("deadline", _waiting, trusts=True),  # one deadline for the queue and all attempts
    LayerEntry("idempotency", _keyed),  # outside `limits`: a stored result spends nothing
    LayerEntry("limits", is_limited),  # outside `retry`: all attempts of a call share one slot
    LayerEntry(
        "budget", _budgeted
    ),  # inside `limits`: a refused call reserves nothing; all attempts are one call
    LayerEntry(
        "journal", _journalled, trusts=True, keeps=True
    ),  # inside `budget`: records only calls that are made
    LayerEntry("retry", _reaching),
    LayerEntry("circuit_breaker", has_own_limits),  # inside `retry`: counts each attempt
    LayerEntry("attempts", _recorded),  # inside `circuit_breaker`: a refused call is not an attempt
    LayerEntry("results", trusts=True),  # checks every answer, injected ones too
    LayerEntry("faults", _failing),  # innermost: replaces the tool's own answer, in every mode
)


class Chain(NamedTuple):
    """The layers of one tool around its binding.

    Attributes:
        run: Runs a call through the layers.
        layers: Names of the layers, outermost first.
        at_once: Whether calls never wait, except with large arguments, so that they need no event loop.
        kept: Whether a layer may keep the arguments and results of calls.
    """

    run: Link
    layers: tuple[str, ...]
    at_once: bool
    kept: bool


def build_chain(context: LayerContext, *, outer: bool = False) -> Chain:
    """Build the chain of a tool, with the layers that it needs.

    Args:
        context: The tool and the inputs of its layers.
        outer: Use only the layers that also wrap tools that cannot run.
    """
    begin = context.begin
    link: Link = context.bound.execute if begin is None else begin
    names: list[str] = []
    trusted, at_once = begin is not None, context.answer_now is not None
    kept = False
    # From the inside out: each layer receives the chain that it wraps.
    for entry in reversed(LAYERS):
        if (outer and not entry.outer) or not entry.around(context):
            continue
        for build in _built_by(entry, context):
            layer = build(context, link if entry.trusts or not trusted else results_of(link))
            if layer is not None:
                link, trusted = layer, trusted and entry.trusts
                at_once = at_once and not may_wait(layer)
                kept = kept or entry.keeps
                names.append(entry.name)
    return Chain(link, tuple(reversed(names)), at_once, kept)


def _built_by(entry: LayerEntry, context: LayerContext) -> Iterable[BuildLayer]:
    """The functions that build an entry: one, or one per user middleware, innermost first."""
    if entry.name != USER:
        return (import_module(f"{__name__}.{entry.name}").layer,)
    return [user_layer(middleware) for middleware in reversed(context.user)]


def middleware_named(name: str) -> Middleware:
    """Load a middleware that an installed distribution offers (entry-point group `toolcrib.middleware`).

    Raises:
        ConfigurationError: The name is unknown.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 -- slow to import, and most runtimes name none

    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        raise ConfigurationError(
            f"unknown middleware `{name}`: no installed distribution offers it",
            hint=did_you_mean(name, offered),
        )
    found: Middleware = offered[name].load()
    return found
