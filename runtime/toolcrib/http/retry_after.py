"""`Retry-After`: when an answer asks to be asked again (RFC 9110 section 10.2.3)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from toolcrib.core.model import JSON

LONGEST = 365 * 24 * 3600
"""Seconds; what asks for longer asks for this long."""

_SECONDS = re.compile(r"[0-9]+")


def seconds_to_wait(headers: Mapping[str, JSON], now: datetime | None) -> int | None:
    """The seconds that `retry-after` asks for, from 0 to `LONGEST`; None where it does not ask, or for garbage.

    Args:
        headers: The headers of the answer, their names in lower case.
        now: What a date is compared with; where it is None, the `date` of the answer itself.
    """
    told = str(headers.get("retry-after", "")).strip()
    if _SECONDS.fullmatch(told):
        return LONGEST if len(told) > 9 else min(int(told), LONGEST)
    until = _date(told)
    since = now or _date(str(headers.get("date", "")))
    if until is None or since is None:
        return None
    return min(max(math.ceil((until - since).total_seconds()), 0), LONGEST)


def _date(text: str) -> datetime | None:
    """An HTTP-date (RFC 9110 section 5.6.7), in any of its three forms; None for anything else."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 -- slow to import, and dates are rare

    if not text[:1].isalpha():
        return None
    try:
        date = parsedate_to_datetime(text[:64])
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
