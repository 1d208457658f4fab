"""Tools as a table and as JSON, from their cards. `toolcrib list` prints one before anything heavy is imported."""

from __future__ import annotations

from toolcrib.cli.output import plural, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeAlias

    from toolcrib.loading.cache.header import ListedTool
    from toolcrib.registry.catalog import Card, HiddenReason

    Why: TypeAlias = Callable[[Card], str]


def tool_lines(
    cards: Sequence[Card],
    why_unable: Why,
    width: int | None,
    *,
    hidden: Callable[[str], HiddenReason | None] = lambda _name: None,
) -> list[str]:
    """The lines of the table: name, mode, flags, first sentence; of a hidden tool why it is not offered.

    Args:
        cards: The tools, in the order of the lines.
        why_unable: Why a tool can't run as things are; empty if it can (`registry.catalog.why_unable`).
        width: Columns of the terminal; None for no limit.
        hidden: From a name to why the tool is not offered; only asked where hidden tools may be among the cards.
    """
    from toolcrib.core.text import first_sentence  # noqa: PLC0415
    from toolcrib.registry.catalog import flags_of  # noqa: PLC0415 -- a list from the index needs neither

    rows = []
    for card in cards:
        why = hidden(card.name)
        flags = flags_of(card) if why is None else [why.code.replace("_", " "), *flags_of(card)]
        text = first_sentence(card.description) if why is None else why.message
        rows.append((card.name, mode_text(card.mode, why_unable(card)), ", ".join(flags), text))
    return table(rows, width)


def listed_lines(
    rows: Sequence[ListedTool], left: int, is_unable: Callable[[str], bool], width: int | None
) -> list[str]:
    """The whole of a list whose tools are told as plain data: the table, then the line that counts them.

    Args:
        rows: The tools, in the order of the lines.
        left: How many more there are that are not offered.
        is_unable: Whether a mode can't be used.
        width: Columns of the terminal; None for no limit.
    """
    texts = {
        (mode, has_block): mode_text(mode, mode is not None and (not has_block or is_unable(mode)))
        for mode, has_block in {(mode, has_block) for _name, mode, has_block, _flags, _sentence in rows}
    }
    cells = [
        (name, texts[mode, has_block], flags, sentence) for name, mode, has_block, flags, sentence in rows
    ]
    modes = [shown for _name, shown, _flags, _sentence in cells]
    return [*table(cells, width), _count(modes, exist=bool(rows), hidden=left)]


def mode_text(mode: str | None, unable: str | bool) -> str:
    """A mode as a person reads it: with `unbound` and `unavailable` where calls can't run."""
    if mode is None:
        return "unbound"
    return f"{mode} (unavailable)" if unable else mode


def modes_line(modes: Iterable[str]) -> str:
    """How many tools are in which mode: `12 mock, 1 unbound`. The modes are `mode_text` of each tool."""
    counts: dict[str, int] = {}
    for mode in modes:
        counts[mode] = counts.get(mode, 0) + 1
    return ", ".join(f"{count} {mode}" for mode, count in sorted(counts.items()))


def count_line(
    cards: Sequence[Card], why_unable: Why, *, exist: bool, hidden: int = 0, unasked: int = 0
) -> str:
    """The line below the table: `12 tools: 11 mock, 1 unbound`.

    Args:
        cards: The tools of the table.
        why_unable: As for `tool_lines`.
        exist: Whether any tool is offered at all.
        hidden: How many more fit that are not offered.
        unasked: Of how many servers the tools are not known.
    """
    modes = [mode_text(card.mode, why_unable(card)) for card in cards]
    return _count(modes, exist=exist, hidden=hidden, unasked=unasked)


def _count(modes: Sequence[str], *, exist: bool, hidden: int, unasked: int = 0) -> str:
    if modes:
        told = f"{plural(len(modes), 'tool')}: {modes_line(modes)}"
    elif exist:
        told = "no tool fits"
    else:
        told = "no tool is known" if unasked else "no tools"
    return told + (f"; {plural(unasked, 'server')} not queried" if unasked else "") + not_offered(hidden)


def not_offered(hidden: int) -> str:
    """The end of the last line, where tools that fit are left out because they are not offered."""
    return f"; {hidden} not offered, `--all` shows why" if hidden else ""


def entry_of(card: Card, *, alias: str, unable: str, hidden: HiddenReason | None) -> dict[str, Any]:
    """A tool as a JSON object: what its card says, its alias, and why it can't run or is not offered."""
    return {
        "name": card.name,
        "alias": alias,
        "title": card.title,
        "description": card.description,
        "version": card.version,
        "category": card.category,
        "mode": card.mode,
        "unavailable": unable or None,
        "hidden": None if hidden is None else hidden._asdict(),
        "modes": list(card.modes),
        "tags": list(card.tags),
        "labels": dict(card.labels),
        "annotations": list(card.annotations),
        "arguments": list(card.arguments),
        "deprecated": card.deprecated,
        "experimental": card.experimental,
        "stale": card.stale or None,
        "pack": card.pack or None,
        "namespace": card.namespace or None,
        "source": card.source,
        "line": card.line,
    }
