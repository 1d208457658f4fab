"""What people are told when serving begins."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from toolcrib.serve.mcp.options import Options

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime


def opening_line(runtime: Runtime, options: Options, where: str) -> str:
    """`serving 12 tools (10 mock, 2 live) at http://127.0.0.1:8000/mcp; profile ci; 1 problem`."""
    cards = runtime.registry.query(toolset=options.toolset or None)
    modes = Counter(card.mode or "unbound" for card in cards)
    told = ", ".join(f"{many} {name}" for name, many in modes.most_common())
    parts = [f"serving {_many(len(cards), 'tool')}{f' ({told})' if told else ''} {where}"]
    if options.toolset:
        parts.append(f"toolset {options.toolset}")
    if runtime.engine.settings is not None and runtime.engine.settings.profile:
        parts.append(f"profile {runtime.engine.settings.profile}")
    if runtime.problems:
        parts.append(f"{_many(len(runtime.problems), 'problem')}: run `toolcrib validate`")
    return "; ".join(parts)


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
