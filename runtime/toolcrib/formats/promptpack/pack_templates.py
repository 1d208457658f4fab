"""The texts of PromptPacks as texts of our own: places of variables as expressions, fragments in their place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from toolcrib.core.errors import did_you_mean
from toolcrib.expressions import as_written
from toolcrib.loading.documents.positions import clipped

SYNTAX: Final = "{{variable}}"
"""How places are written unless a PromptPack says otherwise."""

LONGEST: Final = 200_000
"""Characters that a text has at most with its fragments in place."""

_PLACE: Final = r"\s*(?:(?:fragments\.|fragment:\s*)(?P<fragment>[\w.-]+)|(?P<name>[A-Za-z_]\w*))\s*"
"""What stands in a place: `fragments.name`, as the specification writes it, `fragment:name`, or a name alone."""
_OPEN_END: Final = re.compile(r"[{$]+\Z")


class TemplateProblem(NamedTuple):
    """What is wrong with a text."""

    code: str
    message: str
    hint: str = ""


class TemplateText(NamedTuple):
    """A text in our form.

    Attributes:
        text: With expressions in its places; empty where it is refused.
        names: The variables that it reads, in order.
        fault: Why it can't be put together; None where it can.
    """

    text: str
    names: tuple[str, ...]
    fault: TemplateProblem | None = None


class _InvalidTemplate(Exception):
    """A text that can't be put together."""

    def __init__(self, *, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.fault = TemplateProblem(code, message, hint)


def place_of(syntax: str) -> re.Pattern[str] | None:
    """The pattern of the places in a text, from `syntax` with the word `variable`; None without that word."""
    before, word, behind = syntax.partition("variable")
    if not word or not before:
        return None
    return re.compile(re.escape(before) + _PLACE + re.escape(behind), re.ASCII)


_MOST_FRAGMENTS: Final = 1_000
"""So often fragments are put into one text."""


class Templates:
    """Turns texts of one PromptPack.

    Attributes:
        used: Names of the fragments that were put in place.
    """

    def __init__(self, place: re.Pattern[str], fragments: Mapping[str, str]) -> None:
        """Take what all its texts share.

        Args:
            place: What finds the places (`place_of`).
            fragments: Name -> text for a place of that name.
        """
        self._place = place
        self._fragments = fragments
        self.used: set[str] = set()

    def convert(self, text: str, declared: Collection[str]) -> TemplateText:
        """A text in our form.

        Args:
            text: As it is written.
            declared: Names of variables, which are no fragments.
        """
        made = _TextBuilder()
        try:
            self._walk(text, declared, made, ())
        except _InvalidTemplate as refused:
            return TemplateText("", tuple(made.names), refused.fault)
        return TemplateText("".join(made.parts), tuple(made.names))

    def _walk(
        self, text: str, declared: Collection[str], made: _TextBuilder, within: tuple[str, ...]
    ) -> None:
        end = 0
        for match in self._place.finditer(text):
            made.add(text[end : match.start()])
            end = match.end()
            name = match["name"]
            if match["fragment"] is None and (name in declared or name not in self._fragments):
                made.add_place(name)
            else:
                fragment = match["fragment"] or name
                self._walk(self._fragment(fragment, within, made), declared, made, (*within, fragment))
        made.add(text[end:])

    def _fragment(self, name: str, within: tuple[str, ...], made: _TextBuilder) -> str:
        if name in within:
            circle = " -> ".join([*within[within.index(name) :], name])
            raise _InvalidTemplate(
                code="endless_fragment", message=f"fragments lead back to themselves: {circle}"
            )
        if name not in self._fragments:
            those = ", ".join(f"`{each}`" for each in self._fragments)
            known = f"the fragments are: {those}" if those else "write it under `fragments`"
            hint = did_you_mean(name, self._fragments) or known
            raise _InvalidTemplate(
                code="unknown_fragment", message=f"there is no fragment `{clipped(name)}`", hint=hint
            )
        made.fragments += 1
        if made.fragments > _MOST_FRAGMENTS:
            raise _InvalidTemplate(
                code="too_large", message=f"more than {_MOST_FRAGMENTS:,} fragments come together in one text"
            )
        self.used.add(name)
        return self._fragments[name]


class _TextBuilder:
    """A text that comes together."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.names: dict[str, None] = {}
        self.fragments = 0
        self._length = 0

    def add(self, text: str) -> None:
        """Add literal characters, so that they open nothing together with the ones before."""
        if not text:
            return
        if text[0] in "{%#$":
            self._close()
        self.parts.append(str(as_written(text)))
        self._length += len(self.parts[-1])
        if self._length > LONGEST:
            raise _InvalidTemplate(
                code="too_large", message=f"with its fragments the text has more than {LONGEST:,} characters"
            )

    def add_place(self, name: str) -> None:
        """Add the place of a variable."""
        self._close()
        self.names[name] = None
        self.parts.append(f"{{{{ {name} }}}}")

    def _close(self) -> None:
        """Quote an end that would open something together with what follows."""
        end = _OPEN_END.search(self.parts[-1]) if self.parts else None
        if end is not None:
            self.parts[-1] = f"{self.parts[-1][: end.start()]}{{{{ '{end[0]}' }}}}"
