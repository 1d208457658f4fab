"""Ranges of versions (`>=1.2,<2`), and which versions are among them.

Ranges are PEP 440's; a semantic version is read as the same version of PEP 440, where there is one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolcrib.core.errors import Problem
from toolcrib.loading.documents.positions import clipped

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

_CONDITION = r"(~=|==|!=|>=|<=|>|<) *[0-9][0-9A-Za-z.*+-]*"
_FORM = re.compile(rf" *{_CONDITION}( *, *{_CONDITION})* *")
"""Less than PEP 440 allows: no `===`, which compares texts, no epochs, and at least one condition."""

_BARE = re.compile(r"\s*[\^~vV=]?\s*v?(\d+)((?:\.\d+)*)[\w.+-]*\s*")


def check_range(text: str, pointer: str = "") -> list[Problem]:
    """What is wrong with a range of versions.

    Args:
        text: Conditions with commas between them, all of which hold: `>=1.2,<2`, `==1.4.*`, `!=1.3.0`, `~=1.2`.
        pointer: JSON Pointer of the range in its document.
    """
    if _range(text) is not None:
        return []
    message = f"`{clipped(text)}` is no range of versions"
    return [Problem(code="wrong_form", message=message, pointer=pointer, hint=_instead(text))]


def mismatch(version: str, wanted: str) -> str:
    """Why a version is not among those of a range, as a sentence after its subject; empty if it is.

    A version before a release (`2.0.0-rc.1`) is not excluded for being one: somebody put it there.

    Raises:
        ValueError: `wanted` is no range; `check_range` says so in better words.
    """
    found = _version(version)
    if found is None:
        return f"has version `{clipped(version)}`, which can't be compared: `-a.1`, `-b.1`, `-rc.1` and `-dev.1` can"
    conditions = _range(wanted)
    if conditions is None:
        raise ValueError(f"`{clipped(wanted)}` is no range of versions")
    fits = conditions.contains(found, prereleases=True)
    return "" if fits else f"has version {version}"


def _range(text: str) -> SpecifierSet | None:
    if not _FORM.fullmatch(text):
        return None
    # Few packs need others, and reading ranges costs more time than a whole warm start.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def _version(text: str) -> Version | None:
    """A semantic version; None where PEP 440 has none that comes at the same place in the order."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 -- as above

    try:
        version = Version(text)
    except InvalidVersion:
        return None
    # `1.0.0-1` comes before 1.0.0 in semantic versioning, and after it in PEP 440.
    return version if version.is_prerelease is ("-" in text.partition("+")[0]) else None


def _instead(text: str) -> str:
    """How to write what was most likely meant."""
    bare = _BARE.fullmatch(text)
    if bare is None:
        return "write conditions with commas between them: `>=1.2,<2`"
    return (
        f"write `>={bare[1]}{bare[2]},<{int(bare[1]) + 1}`, or `=={bare[1]}{bare[2]}` for this version alone"
    )
