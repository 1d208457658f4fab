"""The turns of a scenario: what the user says, who plays them, what goes wrong, and what must be true."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import as_written
from toolcrib.formats.promptkit.library import Library
from toolcrib.formats.promptkit.mock_responses import Course, Mocked
from toolcrib.formats.promptkit.source_nodes import Made, Node, made, made_list, made_object

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_CONSENT: Final = ("grant", "deny", "timeout")
_SLOW: Final = "2s"
_MEDIA: Final = {"image": "image", "audio": "audio", "video": "resource", "document": "resource"}


class Said(NamedTuple):
    """Something that the user says.

    Attributes:
        node: The turn as written.
        text: What is said: a text or a list of parts.
    """

    node: Node
    text: Made


def variants(turns: Node) -> dict[str, Made]:
    """Placeholder -> all that is put in its place, of all turns."""
    found: dict[str, dict[str, Node]] = {}
    homes: dict[str, Node] = {}
    for turn in turns.each():
        for key, values in turn.part("perturbations").entries():
            if not _PLACE.fullmatch(f"{{{key}}}") or not values.value:
                continue
            homes.setdefault(key, values)
            found.setdefault(key, {}).update({node.text: node for node in values.each()})
    return {
        key: made_list(homes[key], [made(text, node) for text, node in values.items()])
        for key, values in found.items()
    }


def perturbed(text: str, names: Collection[str]) -> str:
    """A text for expressions: what looks like one is itself, and a placeholder is its variant."""
    if not names:
        return str(as_written(text))
    pieces = re.split(rf"\{{({'|'.join(map(re.escape, names))})\}}", text)
    return "".join(
        f"{{{{ matrix.{piece} }}}}" if index % 2 else _before(piece, last=index + 1 == len(pieces))
        for index, piece in enumerate(pieces)
    )


def _before(text: str, *, last: bool) -> str:
    """A piece as it is, also where its last sign would open another expression together with the one that follows."""
    if last or text[-1:] not in {"{", "$"}:
        return str(as_written(text))
    return f"{as_written(text[:-1])}{{{{ '{text[-1]}' }}}}"


def scripted(turn: Node, names: Collection[str], library: Library) -> Made | None:
    """What the user says in a turn; None where that is nothing, which is told."""
    parts = turn.part("parts")
    if parts.value:
        items = [item for part in parts.each() if (item := _part(part, names, library)) is not None]
        return made_list(parts, items) if items else None
    content = turn.part("content")
    if not content.text:
        library.problems.append(
            turn.problem("missing_key", "`content` is missing: the user says nothing", severity="warning")
        )
        return None
    return made(perturbed(content.text, names), content)


def _part(part: Node, names: Collection[str], library: Library) -> Made | None:
    kind = part.part("type").text
    if kind == "text":
        return made(perturbed(part.part("text").text, names), part.part("text"))
    media = part.part("media")
    if kind not in _MEDIA or not media:
        message = f"a part of type `{kind}` has no counterpart here"
        library.problems.append(part.problem("no_counterpart", message, severity="warning"))
        return None
    entry: dict[str, JSON] = {"type": _MEDIA[kind]}
    for theirs, ours in (("url", "uri"), ("data", "data"), ("mime_type", "mime_type"), ("caption", "title")):
        if media.part(theirs).text:
            entry[ours] = as_written(media.part(theirs).text)
    file = media.part("file_path")
    if file.text:
        content = library.content(file.text, file)
        if content is None:
            return None
        entry["data"] = base64.b64encode(content).decode()
    if entry["type"] == "resource":
        entry.setdefault("uri", f"file:{file.text or 'data'}")
    return made(entry, part)


class Persona:
    """Says what a persona says in a scenario, in order.

    Args:
        mocks: What there is of it; None for nothing.
    """

    def __init__(self, mocks: Mocked | None) -> None:
        self._mocks = mocks
        self._number = 0

    def texts(self, turn: Node) -> list[Made]:
        """What it says in a turn; as many texts as there are, and as the turn wants."""
        least = turn.part("turns").value or 1
        most = max(least, turn.part("max_turns").value or 0)
        found = []
        for _ in range(most):
            node = self._mocks.text(self._number + 1) if self._mocks is not None else None
            if node is None:
                break
            self._number += 1
            found.append(made(as_written(node.text), node))
        return found


def consent(turn: Node, problems: list[Problem]) -> Made | None:
    """How the caller fulfils tools in a turn; None where nothing is said of it."""
    overrides = turn.part("consent_overrides")
    parts: dict[str, Made | None] = {}
    for tool, node in overrides.entries():
        if node.text in _CONSENT:
            parts[tool] = made(node.text, node)
        else:
            hint = did_you_mean(node.text, _CONSENT) or f"write one of: {', '.join(_CONSENT)}"
            problems.append(node.problem("not_allowed", f"`{node.text}` is no answer to a consent", hint))
    return made_object(overrides, parts) if parts else None


def faults(turn: Node, number: int, course: Course | None, problems: list[Problem]) -> Iterator[Made]:
    """What goes wrong with tools in a turn.

    Args:
        turn: The turn.
        number: Its place among those of the conversation, from 0.
        course: How the conversation goes; None where a model says that.
        problems: Receives what can't be said here.
    """
    for failure in turn.part("chaos", "tool_failures").each():
        tool, mode = failure.part("tool"), failure.part("mode")
        injected = _injected(mode.text, failure)
        if injected is None:
            hint = (
                did_you_mean(mode.text, ("error", "timeout", "slow")) or "write `error`, `timeout` or `slow`"
            )
            problems.append(mode.problem("not_allowed", f"`{mode.text}` is no way to fail", hint))
            continue
        due = _due(failure, number, course, problems)
        if due is not None:
            likely = failure.part("probability")
            chance = likely.value if likely and 0 < likely.value < 1 else None
            when = due | ({"probability": chance} if chance is not None else {})
            entry: dict[str, JSON] = {"tool": tool.text, "inject": injected, "must_fire": False}
            yield made(entry | ({"when": when} if when else {}), failure)


def _injected(mode: str, failure: Node) -> JSON:
    message = failure.part("message").text or "the tool failed"
    known: Mapping[str, JSON] = {
        "error": {"error": {"code": "chaos", "message": as_written(message)}},
        "timeout": "timeout",
        "slow": {"slow": _SLOW},
    }
    return known.get(mode)


def _due(
    failure: Node, number: int, course: Course | None, problems: list[Problem]
) -> dict[str, JSON] | None:
    """Which calls of the tool are meant: those of the turn; None where there are none, which is told."""
    tool = failure.part("tool").text
    if course is None:
        message = f"`{tool}` fails in every turn: where a model calls, nobody knows beforehand which calls are of this one"
        problems.append(failure.problem("no_counterpart", message, severity="warning"))
        return {}
    first, last = course.span(number, tool)
    if last < first:
        message = f"nothing fails: by the mock responses `{tool}` is not called in this turn"
        problems.append(failure.problem("no_counterpart", message, severity="warning"))
        return None
    meant = f"call {first}" if first == last else f"calls {first} to {last}"
    message = f"what fails in this turn is {meant} of `{tool}`, as the mock responses have it"
    hint = "a model that calls otherwise (`toolcrib run --provider`) meets the failure in another turn"
    problems.append(failure.problem("no_counterpart", message, hint, "notice"))
    return {"call": first if first == last else {"$gte": first, "$lte": last}}
