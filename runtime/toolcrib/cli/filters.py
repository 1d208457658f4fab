"""The options that choose tools, for the verbs that list them, and what to say where they choose none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolcrib.core.errors import did_you_mean
from toolcrib.core.text import escape_terminal
from toolcrib.registry.catalog import ANNOTATIONS, Card
from toolcrib.registry.registry import Registry

if TYPE_CHECKING:
    from toolcrib.registry.catalog import Filters

F = TypeVar("F", bound=Callable[..., Any])


def _several(name: str, metavar: str, help_text: str, parameter: str | None = None) -> Callable[[F], F]:
    return click.option(name, parameter or name[2:], multiple=True, metavar=metavar, help=help_text)


_OPTIONS = (
    _several("--name", "GLOB", "Only tools whose name fits."),
    _several("--tag", "TAG", "Only tools with this tag."),
    _several("--label", "KEY[=VALUE]", "Only tools with this label."),
    _several("--category", "CATEGORY", "Only tools of this category."),
    _several("--mode", "MODE", "Only tools that are in this mode."),
    _several("--source", "GLOB", "Only tools from files that fit."),
    _several("--pack-name", "NAME", "Only tools of this pack.", "pack"),
    _several(
        "--annotation", "NAME", f"Only tools that are {', '.join(ANNOTATIONS[:-1])} or {ANNOTATIONS[-1]}."
    ),
    _several("--toolset", "NAME", "Only tools of this toolset."),
    click.option(
        "--deprecated/--no-deprecated", default=None, help="Only tools that are deprecated, or not."
    ),
    click.option(
        "--experimental/--no-experimental", default=None, help="Only tools that are experimental, or not."
    ),
    click.option(
        "--any", "match_any", is_flag=True, help="Tools that fit one of the options, not all of them."
    ),
    click.option("--all", "hidden", is_flag=True, help="Also tools that are not offered, with the reason."),
)


def filter_options(function: F) -> F:
    """The options that choose tools, as parameters that `filters_of` takes, and `--all` as parameter `hidden`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def filters_of(options: Mapping[str, Any]) -> Filters:
    """What the options ask, as `Registry.query` takes it."""
    filters: Any = {key: value for key, value in options.items() if key != "match_any"}
    filters["match"] = "any" if options["match_any"] else "all"
    asked: Filters = filters
    return asked


def tell_strangers(registry: Registry, filters: Filters) -> None:
    """Say on stderr which values of the filters no tool has, with near misses."""
    for sentence in _strangers(registry, filters):
        click.echo(escape_terminal(sentence), err=True)


def _strangers(registry: Registry, filters: Mapping[str, Any]) -> Iterator[str]:
    for key, known in _known(registry.cards.values(), registry.toolsets).items():
        for value in filters.get(key) or ():
            if value.startswith("!") or _is_known(value, known, key):
                continue
            hint = did_you_mean(value.strip("*?") if key in _GLOBS else value, known) or _all_of(known)
            yield f"{_PHRASES[key]} `{value}`; {hint}"


def _is_known(value: str, known: set[str], key: str) -> bool:
    return any(fnmatchcase(one, value) for one in known) if key in _GLOBS else value in known


_GLOBS = {"name", "source"}

_PHRASES = {
    "name": "no tool has a name like",
    "tag": "no tool has the tag",
    "label": "no tool has the label",
    "category": "no tool is of the category",
    "mode": "no tool is in the mode",
    "source": "no tool is from a file like",
    "pack": "no tool is of the pack",
    "annotation": "there is no annotation",
    "toolset": "there is no toolset",
}


def _known(cards: Iterable[Card], toolsets: Iterable[str]) -> dict[str, set[str]]:
    """Filter -> all values that some tool has."""
    cards = list(cards)
    return {
        "name": {card.name for card in cards},
        "tag": {tag for card in cards for tag in card.tags},
        "label": {text for card in cards for key, value in card.labels for text in (key, f"{key}={value}")},
        "category": {card.category for card in cards} - {""},
        "mode": {card.mode for card in cards if card.mode is not None},
        "source": {card.source for card in cards},
        "pack": {card.pack for card in cards} - {""},
        "annotation": set(ANNOTATIONS),
        "toolset": set(toolsets),
    }


def _all_of(known: set[str], most: int = 8) -> str:
    shown = [f"`{value}`" for value in sorted(known)[:most]]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"there are: {', '.join(shown)}{more}" if shown else "there are none"
