"""Arguments that fit their schema, and that a mode can do nothing with."""

from __future__ import annotations

from toolcrib.core.model import JSON, Call, Outcome, Result


class Misfit(Exception):
    """Arguments that fit the schema, and that nothing can be asked with. Its texts hold no values.

    Attributes:
        message: What is wrong.
        pointer: JSON Pointer of the argument; empty where it is not one alone.
        hint: The way out, where there is one.
        at: JSON Pointer of the place in the descriptor, where one of them is meant.
    """

    def __init__(self, message: str, *, pointer: str = "", hint: str = "", at: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.hint = hint
        self.at = at

    def refused(self, call: Call, mode: str) -> Result:
        """The result of a call that had them."""
        violation: dict[str, JSON] = {
            "pointer": self.pointer,
            "keyword": mode,
            "expected": self.hint,
            "got": None,
            "hint": self.hint,
        }
        line = f"{self.pointer}: {self.message}" + (f"; {self.hint}" if self.hint else "")
        return Result.failed(
            Outcome.INVALID_ARGUMENTS,
            f"invalid arguments for `{call.tool.name}`:\n{line}",
            details={"violations": [violation]},
        )
