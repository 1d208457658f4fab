"""The way back: a value as a document writes it, so that nothing in it is read as an expression."""

from __future__ import annotations

import re

from toolcrib.core.model import JSON

_SIGNS = re.compile(r"[{%#$]{2,}")
_OPENERS = ("{{", "{%", "{#", "${")


def as_written(value: JSON) -> JSON:
    """A value whose texts mean only themselves: what looks like an expression is quoted."""
    if isinstance(value, str):
        return _SIGNS.sub(_quoted, value)
    if isinstance(value, list):
        return [as_written(item) for item in value]
    if isinstance(value, dict):
        return {key: as_written(item) for key, item in value.items()}
    return value


def _quoted(signs: re.Match[str]) -> str:
    """A run of signs as a literal where it would open something; whole, so that no rest of it opens either."""
    run = signs[0]
    parts = run.replace("${", "$' ~ '{")
    return f"{{{{ '{parts}' }}}}" if any(opener in run for opener in _OPENERS) else run
