"""How far a call was when it was given up: what an error tells the layers that it passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolcrib.core.model import JSON, NOTHING


class GivenUp(NamedTuple):
    """How far a call was when it was given up.

    Attributes:
        attempts: How often the runtime had tried.
        queue: The tool or origin in whose queue it was; empty for none.
        reached: Whether the tool may have been reached.
        meta: What is to be told beside the result.
    """

    attempts: int = 1
    queue: str = ""
    reached: bool = True
    meta: Mapping[str, JSON] = NOTHING


def gave_up(
    error: BaseException,
    *,
    attempts: int,
    queue: str = "",
    reached: bool = True,
    meta: Mapping[str, JSON] = NOTHING,
) -> None:
    """Let the layers outside know how far the call was that an error ends.

    Who says nothing of `meta` leaves what was said before.
    """
    error.__dict__["toolcrib_given_up"] = GivenUp(attempts, queue, reached, meta or given_up(error).meta)


def given_up(error: BaseException | None) -> GivenUp:
    """How far the call was that an error ended."""
    told = None if error is None else error.__dict__.get("toolcrib_given_up")
    return told if isinstance(told, GivenUp) else GivenUp()
