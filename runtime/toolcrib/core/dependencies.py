"""What is said where an installed package lacks a member that toolcrib uses.

A few features need members that a package does not document or calls private. Such a member is looked up once, before its
first use, so that a version without it loses the feature and says so, or is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

UNSUPPORTED_VERSION = "unsupported_version"
"""Code of the errors about a version that lacks a member."""

_NAMED = re.compile(r"cannot import name '([^']+)'")


class MissingMember(NamedTuple):
    """A member that the installed version of a package lacks.

    Attributes:
        package: Name of the package.
        member: Name of the member within it.
    """

    package: str
    member: str

    @property
    def message(self) -> str:
        """What is missing where."""
        return f"{self.package} {installed_version(self.package)} has no `{self.member}`"

    @property
    def hint(self) -> str:
        """How to install a version that has it."""
        return f"pip install '{_requirement(self.package)}'"


def missing_import(error: ImportError) -> MissingMember | None:
    """The member that an import did not find in an installed package; None if the whole package is missing."""
    module = error.name or ""
    package, _dot, rest = module.partition(".")
    if not installed_version(package):
        return None
    name = _NAMED.match(error.msg or "")
    member = ".".join(filter(None, (rest, name[1] if name else "")))
    return MissingMember(package, member) if member else None


def installed_version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 -- slow to import, rarely needed

    try:
        return version(package)
    except (PackageNotFoundError, ValueError):  # ValueError: the name is empty
        return ""


def _requirement(package: str) -> str:
    """The versions of a package that toolcrib requires, such as `mcp>=2.3,<3`; the name alone if it sets no bounds."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 -- as above

    try:
        required = requires("toolcrib") or []
    except PackageNotFoundError:  # toolcrib itself runs from its source, without being installed
        required = []
    for each in required:
        text = each.partition(";")[0].strip()
        bounds = text.removeprefix(package)
        if bounds != text and bounds[:1] in set("<>=!~"):
            return package + ",".join(sorted(bounds.split(","), reverse=True))
    return package
