"""Sizes as documents write them: `32KiB`, `8 MiB`, `500 kB`, `1024`."""

from __future__ import annotations

import re

SIZE_PATTERN = r"^[1-9][0-9]{0,8} ?(B|kB|KB|MB|KiB|MiB)?$"
"""How a size is written; the schema of a block says the same."""

_UNITS = {"": 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "KiB": 1024, "MiB": 1024**2}
_PARTS = re.compile(r"(\d+) ?(\D*)")


def parse_size(written: str | int) -> int:
    """The bytes of a size that fits `SIZE_PATTERN`, or is a number of bytes already."""
    number, unit = _PARTS.findall(str(written))[0]
    return int(number) * _UNITS[unit]
