"""References of a description: follow `$ref`s within a file and to other files, and name places for a report.

Nothing is read here. A function of the caller returns the other files, and decides which it may read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote, urljoin

from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.text import escape_terminal

ReadFile = Callable[[str], JSON]
"""Returns the parsed content of a file by its path relative to the description, or its URL; raises `Refused`."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_LONGEST: Final = 200


class Refused(Exception):
    """A part of the description cannot be converted.

    Attributes:
        reason: As in `ImportRefusal`.
        pointer: JSON Pointer of the part, after the file if it is another one.
        message: Why, on one line.
    """

    def __init__(self, reason: str, pointer: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.pointer = pointer
        self.message = message


@dataclass(slots=True)
class Node:
    """A part of the description.

    Attributes:
        value: Its value.
        file: The file that contains it; empty for the description itself.
        pointer: JSON Pointer in that file.
    """

    value: Any
    file: str = ""
    pointer: str = ""

    @property
    def place(self) -> str:
        """Where it is, for a report."""
        return place_of(self.file, self.pointer)

    def __getitem__(self, key: str | int) -> Node:
        """A member or item, None as its value if it does not exist."""
        value: Any = None
        if isinstance(self.value, dict):
            value = self.value.get(key)
        elif isinstance(self.value, list) and isinstance(key, int) and key < len(self.value):
            value = self.value[key]
        return Node(value, self.file, f"{self.pointer}/{pointer_step(key)}")

    def members(self) -> list[tuple[str, Node]]:
        """The members of an object; empty for any other value."""
        if not isinstance(self.value, dict):
            return []
        return [
            (key, Node(value, self.file, f"{self.pointer}/{pointer_step(key)}"))
            for key, value in self.value.items()
        ]

    def items(self) -> list[Node]:
        """The items of a list; empty for any other value."""
        return [self[index] for index in range(len(self.value))] if isinstance(self.value, list) else []

    def text(self, key: str) -> str:
        """A member that is a text, stripped; empty if it is absent or has another type."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return value.strip() if isinstance(value, str) else ""


def place_of(file: str, pointer: str) -> str:
    """Where a part is, for a report: its pointer, after the file if it is another one."""
    return f"{file}#{pointer}" if file else pointer


def shown(text: object) -> str:
    """A text of the description on one line of a report."""
    line = escape_terminal(" ".join(str(text).split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


class References:
    """Follows the references of one description.

    Args:
        document: The description.
        read: Returns other files; None to refuse every reference to one.
        own: The name of the description's file, so that references to it by name lead back to it.
    """

    def __init__(self, document: JSON, read: ReadFile | None = None, own: str = "") -> None:
        self._documents: dict[str, JSON | Refused] = {"": document}
        self._read = read
        self._own = own
        self._anchors: dict[str, dict[str, tuple[str, str]]] = {}
        self._targets: dict[tuple[str, str], Node] = {}

    def resolve(self, node: Node) -> Node:
        """A part after following its `$ref`, and those that this leads to.

        Raises:
            Refused: A reference has no target, or they lead in a circle.
        """
        seen = {(node.file, node.pointer)}
        while isinstance(node.value, dict) and isinstance(node.value.get("$ref"), str):
            node = self.target(node.value["$ref"], node)
            if (node.file, node.pointer) in seen:
                raise Refused("cycle", node.place, "the references lead in a circle")
            seen.add((node.file, node.pointer))
        return node

    def target(self, reference: str, node: Node) -> Node:
        """The part that a reference in `node` leads to.

        Raises:
            Refused: There is none.
        """
        known = self._targets.get((node.file, reference))
        if known is None:
            known = self._targets[node.file, reference] = self._found(reference, node)
        return known

    def _found(self, reference: str, node: Node) -> Node:
        uri, _hash, fragment = reference.partition("#")
        fragment = unquote(fragment)
        file = self._file(uri, node.file) if uri else node.file
        try:
            document = self._document(file)
        except Refused as refused:
            anchored = self._identified(uri, fragment, node)
            if anchored is not None:
                return anchored
            raise Refused(refused.reason, node.place, refused.message) from None
        if fragment and not fragment.startswith("/"):
            anchored = self._identified("", fragment, replace(node, file=file))
            if anchored is None:
                raise self._dangling(reference, node)
            return anchored
        value: Any = document
        for key in keys_of(fragment):
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
                value = value[int(key)]
            else:
                raise self._dangling(reference, node)
        return Node(value, file, fragment)

    @staticmethod
    def _dangling(reference: str, node: Node) -> Refused:
        message = f"`{shown(reference)}` leads to nothing"
        return Refused("unresolved_reference", node.place, message)

    def _file(self, uri: str, base: str) -> str:
        if _SCHEME.match(uri) or _SCHEME.match(base):
            try:
                return urljoin(base, uri)
            except ValueError:
                return uri
        name = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(uri)))
        return "" if name == self._own else name

    def _document(self, file: str) -> JSON:
        if file not in self._documents:
            self._documents[file] = self._loaded(file)
        document = self._documents[file]
        if isinstance(document, Refused):
            raise document
        return document

    def _loaded(self, file: str) -> JSON | Refused:
        if self._read is None:
            return Refused("external_reference", "", f"`{shown(file)}` is another file, which is not read")
        try:
            return self._read(file)
        except Refused as refused:
            return refused

    def _identified(self, uri: str, fragment: str, node: Node) -> Node | None:
        """The schema with this `$id` or `$anchor`, in the file of the reference."""
        known = self._anchors.get(node.file)
        if known is None:
            known = self._anchors[node.file] = _anchors(self._document(node.file))
        place = known.get(f"{uri}#{fragment}" if fragment else uri) or known.get(f"#{fragment}")
        if place is None or (not uri and not fragment):
            return None
        return self.target(f"#{place[0]}", node)


def _anchors(document: JSON) -> dict[str, tuple[str, str]]:
    """`$id`s and anchors of a document -> their pointers."""
    found: dict[str, tuple[str, str]] = {}
    waiting: list[tuple[JSON, str]] = [(document, "")]
    while waiting:
        value, pointer = waiting.pop()
        if isinstance(value, dict):
            name = value.get("$id")
            if isinstance(name, str):
                found.setdefault(name.removesuffix("#"), (pointer, name))
            for keyword in ("$anchor", "$dynamicAnchor"):
                anchor = value.get(keyword)
                if isinstance(anchor, str):
                    found.setdefault(f"#{anchor}", (pointer, anchor))
            waiting += ((inner, f"{pointer}/{pointer_step(key)}") for key, inner in value.items())
        elif isinstance(value, list):
            waiting += ((inner, f"{pointer}/{index}") for index, inner in enumerate(value))
    return found
