"""What `toolcrib doctor` finds wrong, collected while it looks."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple


class Finding(NamedTuple):
    """One thing that is not as it should be.

    Attributes:
        severity: `error` where something does not work, `warning` where it works otherwise than one may think.
        message: What is wrong.
        hint: The way out; empty where there is none.
        code: Names the kind, for programs; empty where there is no name for it.
    """

    severity: Literal["error", "warning"]
    message: str
    hint: str = ""
    code: str = ""


class Findings(list[Finding]):
    """Everything that was found, in order of looking, each once."""

    def error(self, message: str, hint: str = "", code: str = "") -> None:
        """Something does not work."""
        self._add(Finding("error", message, hint, code))

    def warning(self, message: str, hint: str = "", code: str = "") -> None:
        """Something works otherwise than one may think."""
        self._add(Finding("warning", message, hint, code))

    def _add(self, finding: Finding) -> None:
        if finding not in self:
            self.append(finding)

    @property
    def errors(self) -> int:
        """How many are errors."""
        return sum(finding.severity == "error" for finding in self)

    def as_json(self) -> list[dict[str, Any]]:
        """As JSON objects."""
        return [finding._asdict() for finding in self]
