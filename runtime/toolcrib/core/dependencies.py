"""What is said where an installed package lacks a member that toolcrib uses.

A few features need members that a package does not document or calls private. Such a member is looked up once, before its
first use, so that a version without it loses the feature and says so, or is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from toolcrib.core.errors import ConfigurationError

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


@contextmanager
def imports_of_extra(extra: str, *, cannot: str, doing: str) -> Iterator[None]:
    """Report a failed import within the block: an extra is missing, or a package of it lacks a member.

    Args:
        extra: Name of the extra.
        cannot: What is not possible, as the end of a sentence: `serve over MCP`.
        doing: The same as a subject: `serving over MCP`.

    Raises:
        ConfigurationError: `missing_extra` or `unsupported_version`.
    """
    try:
        yield
    except ImportError as error:
        lack = missing_import(error)
        if lack is not None and lack.package == "toolcrib":
            raise
        if lack is not None:
            raise ConfigurationError(
                f"cannot {cannot}: {lack.message}", code=UNSUPPORTED_VERSION, hint=lack.hint
            ) from None
        raise ConfigurationError(
            f"{doing} needs the extra `{extra}`: {error}",
            code="missing_extra",
            hint=f"pip install 'toolcrib[{extra}]'",
        ) from None


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
