"""What clients look up in the texts of their files, in the language of `servers`.

`${VAR}`, `${VAR:-default}` and `${env:VAR}` mean the same here. What an editor asks its user for (`${input:id}`) is
looked up in the environment, and what names the workspace is the folder that paths are relative to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.server_blocks import Spot

_LOOK_UP: Final = re.compile(r"\$\{([^{}]*)\}")
_BARE: Final = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
"""A whole text by which Gemini CLI and Copilot mean a variable."""

_FOLDER: Final = re.compile(r"workspace(?:Folder|Root)(?::.*)?")
_SEPARATORS: Final = frozenset({"pathSeparator", "/"})


class LookUps:
    """Translates the texts of one file, and knows what its user is asked for."""

    def __init__(self, inputs: JSON, spot: Spot) -> None:
        """Begin.

        Args:
            inputs: What the file asks for, as VS Code writes it: `[{"id": ..., "default": ...}]`.
            spot: Where that stands.
        """
        self._inputs = dict(_inputs_of(inputs))
        self._spot = spot
        self._met: dict[str, Problem] = {}

    def ours(self, text: str, spot: Spot, *, bare: bool = False) -> str:
        """A text as we write it.

        Args:
            text: As the client has it.
            spot: Where it stands.
            bare: Whether `$VAR` as the whole text means a variable.
        """
        match = _BARE.fullmatch(text) if bare else None
        if match is not None:
            message = f"`{text}` is taken for the environment variable `{match[1]}`"
            self._note(text, spot.problem("looked_up", message, f"`${{{match[1]}}}` says so", "notice"))
            return f"${{{match[1]}}}"
        return _LOOK_UP.sub(lambda match: self._one(match, spot), text)

    def _one(self, match: re.Match[str], spot: Spot) -> str:
        inner = match[1]
        if inner.startswith("input:"):
            return self._input(inner.removeprefix("input:"), spot)
        if _FOLDER.fullmatch(inner):
            return "${workspaceFolder}"
        return "/" if inner in _SEPARATORS else match[0]

    def _input(self, name: str, spot: Spot) -> str:
        variable = re.sub(r"\W", "_", name.strip(), flags=re.ASCII).upper()
        variable = f"_{variable}" if not variable or variable[0].isdigit() else variable
        default = self._inputs.get(name)
        usable = isinstance(default, str) and default and not {"{", "}"} & {*default}
        message = f"`${{input:{clipped(name)}}}` is asked of the user by an editor; here it is looked up in the environment as `{variable}`"
        hint = f"set `{variable}`" + (", or leave it to its default" if usable else "")
        self._note(f"input:{name}", spot.problem("looked_up", message, hint, "notice"))
        return f"${{{variable}:-{default}}}" if usable else f"${{{variable}}}"

    def _note(self, what: str, problem: Problem) -> None:
        self._met.setdefault(what, problem)

    def notices(self) -> list[Problem]:
        """What is told of look-ups, each once."""
        return list(self._met.values())


def _inputs_of(inputs: JSON) -> Iterator[tuple[str, JSON]]:
    for entry in inputs if isinstance(inputs, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str):
            yield str(entry["id"]), entry.get("default")
