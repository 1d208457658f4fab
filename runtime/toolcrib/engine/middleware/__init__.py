"""The layers around every call: `LAYERS` lists them, outermost first; `build_chain` puts those of one tool together.

A new layer takes one file, and one line in `LAYERS`. The chain is built once, when a tool is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import Call, Result, as_result
from toolcrib.core.protocols import CallNext, Middleware
from toolcrib.engine.middleware.layer import (
    Answer,
    BuildLayer,
    LayerContext,
    Link,
    may_wait,
    reaches_out,
    user_layer,
)

GROUP = "toolcrib.middleware"


class LayerEntry(NamedTuple):
    """Where a layer is written, and which tools may need it.

    Attributes:
        name: The module in this package.
        around: Which tools may need it: the module is imported for these alone. Its `layer` has the last word.
        outer: Whether it stands also around a tool that can't run.
        trusts: Whether it takes a `TrustedAnswer` as well from what is inside; other layers get a `Result`.
        keeps: Whether it may keep the arguments and results of calls, such as a journal does: then nobody else changes them.
    """

    name: str
    around: Callable[[LayerContext], bool] = lambda _context: True
    outer: bool = False
    trusts: bool = False
    keeps: bool = False


def _observed(context: LayerContext) -> bool:
    return context.observer is not None


def _wrapped(context: LayerContext) -> bool:
    return bool(context.user)


def _reaching(context: LayerContext) -> bool:
    return reaches_out(context.bound)


def _waiting(context: LayerContext) -> bool:
    return context.bound.waits


def _failing(context: LayerContext) -> bool:
    return bool(context.tool.faults)


USER: Final = "user"
"""Stands for the layers of the user. They are outside `arguments`: what they change is still checked."""

LAYERS: Final = (
    LayerEntry("events", _observed, outer=True, keeps=True),  # outermost: it reports what the caller gets
    LayerEntry(USER, _wrapped, outer=True, keeps=True),
    LayerEntry("arguments", trusts=True),  # bad arguments cost no attempt
    LayerEntry("cache", _reaching),
    LayerEntry("deadline", _waiting),  # covers queues and all attempts
    LayerEntry("limits", _reaching),  # one place for all attempts of a call
    LayerEntry("retry", _reaching),
    LayerEntry("circuit_breaker", _reaching),  # sees each attempt
    LayerEntry("results", trusts=True),  # judges whatever answered
    LayerEntry("faults", _failing),  # those that a scenario lets happen, in every mode
)


class Chain(NamedTuple):
    """The layers of one tool around its binding.

    Attributes:
        run: What a call runs through.
        layers: The names of the layers, outermost first.
        at_once: Whether no call waits, unless its arguments are large: then no event loop is needed.
        kept: Whether a layer may keep the arguments and results of calls.
    """

    run: Link
    layers: tuple[str, ...]
    at_once: bool
    kept: bool


def build_chain(context: LayerContext, *, outer: bool = False) -> Chain:
    """The chain of a tool; a layer that the tool does not use is not in it.

    Args:
        context: The tool, and what its layers are built from.
        outer: Only with the layers that stand also around a tool that can't run.
    """
    answer_now = context.answer_now
    link: Link = context.bound.execute if answer_now is None else _link_to(answer_now)
    names: list[str] = []
    at_once = trusted = answer_now is not None
    kept = False
    for entry in reversed(LAYERS):
        if (outer and not entry.outer) or not entry.around(context):
            continue
        if trusted and not entry.trusts:
            link, trusted = _results_of(link), False
        for build in _built_by(entry, context):
            layer = build(context, link)
            if layer is not None:
                link = layer
                at_once = at_once and not may_wait(layer)
                kept = kept or entry.keeps
                names.append(entry.name)
    return Chain(link, tuple(reversed(names)), at_once, kept)


def _link_to(answer_now: Callable[[Call], Answer]) -> Link:
    """A tool that never waits, as the chain calls it."""

    async def answer(call: Call) -> Answer:
        return answer_now(call)

    answer.answer_now = answer_now  # type: ignore[attr-defined]
    return answer


def _results_of(link: Link) -> CallNext:
    """A link whose answers are results, for a layer that knows nothing else."""

    async def result(call: Call) -> Result:
        return as_result(await link(call))

    return result


def _built_by(entry: LayerEntry, context: LayerContext) -> Iterable[BuildLayer]:
    """What builds a layer; for the layers of the user one each, innermost first."""
    if entry.name != USER:
        return (import_module(f"{__name__}.{entry.name}").layer,)
    return [user_layer(middleware) for middleware in reversed(context.user)]


def middleware_named(name: str) -> Middleware:
    """A middleware that an installed distribution offers in the entry-point group `toolcrib.middleware`.

    Raises:
        ConfigurationError: None is called so.
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
