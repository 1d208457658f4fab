"""The inventory of messages: for every code, the templates in the source and an example of each.

`docs/message_examples.json` holds the inventory, and `docs/generate.py` writes the page from it. After messages have
changed, record them while the tests run, then update the inventory:

    make test TEST_OPTIONS="-p message_recorder"
    .venv/bin/python docs/messages.py

A part of the tests is enough for messages that are new: what is not recorded stays while its text is in the source, and what goes
is printed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

PACKAGE = ROOT / "runtime" / "toolcrib"

INVENTORY = Path(__file__).parent / "message_examples.json"

RECORDED = ROOT / "build" / "messages"

MIN_LITERAL = 6
"""Characters of fixed text in a template. With fewer, it would match unrelated messages."""

LONGEST = 300
"""Characters of an example. A longer one is not shown."""

FOLDER = re.compile(r"/(tmp|root|home|work)/[^\s`'\":;,)]*/")
"""A folder of the machine on which the tests ran."""

PRIVATE = re.compile(r"\\x1b|\x1b|127\.0\.0\.1:\d+|0x[0-9a-f]{6}")
"""What else differs from run to run."""


class Message(NamedTuple):
    """One template under one code.

    Attributes:
        kind: `problem`, `outcome`, `error` or `command line`.
        code: The code; for the last two kinds the class of the exception if it has no code of its own.
        template: The text in the source, with the fields in braces.
        example: A text that a test has seen.
    """

    kind: str
    code: str
    template: str
    example: str


@cache
def templates() -> frozenset[str]:
    """Every text in the source of the package that may be a message or a part of one."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    return frozenset(text for tree in trees for node in texts_in(tree) if (text := template_of(node)))


def texts_in(tree: ast.AST) -> Iterator[ast.expr]:
    """The texts of a module, f-strings as a whole, without those that are documentation."""
    waiting = [tree]  # no generator for each node: half of the time
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):
            yield node
            waiting += [part for part in node.values if isinstance(part, ast.FormattedValue)]
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            waiting += ast.iter_child_nodes(node)


def template_of(node: ast.expr) -> str:
    """A text with its fields in braces: `unknown key {name}`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"{{{field_of(part)}}}" for part in node.values
    )


def field_of(part: ast.expr) -> str:
    """The name of a field: the last name of its expression that is no function."""
    assert isinstance(part, ast.FormattedValue)
    called = {id(node.func) for node in ast.walk(part) if isinstance(node, ast.Call)}
    names = [
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(part.value)
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in called
    ]
    return names[0].strip("_") if names else "..."


@cache
def pattern_of(template: str) -> re.Pattern[str]:
    """What the messages of a template match."""
    return re.compile("(.+?)".join(re.escape(part) for part in re.split(r"\{[\w.]+\}", template)), re.DOTALL)


def literal_length(template: str) -> int:
    """How much of a template is fixed text."""
    return len(re.sub(r"\{[\w.]+\}", "", template))


def template_for(message: str) -> str:
    """The template that a message was made from, the one with the most fixed text; empty if it was put together."""
    fitting = [
        template
        for template, part in by_longest_part()
        if part in message and pattern_of(template).fullmatch(message)
    ]
    return max(fitting, key=lambda template: (literal_length(template), template), default="")


@cache
def by_longest_part() -> tuple[tuple[str, str], ...]:
    """Templates with words of their own, and the longest fixed part of each."""
    return tuple(
        (template, max(re.split(r"\{[\w.]+\}", template), key=len))
        for template in templates()
        if " " in template and re.search(r"[a-z]{2,}", template) and literal_length(template) >= MIN_LITERAL
    )


def inventory(file: Path = INVENTORY) -> list[Message]:
    """The messages of the inventory."""
    return [Message(*entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def update(file: Path = INVENTORY, folder: Path = RECORDED) -> list[Message]:
    """Write the inventory: what the tests recorded, and the examples so far that are still true.

    Args:
        file: The inventory.
        folder: What the tests recorded.

    Returns:
        The messages that are no longer in it, since nothing in the source writes their examples.
    """
    recorded = {
        tuple(entry)
        for path in folder.glob("*.json")
        for entry in json.loads(path.read_text(encoding="utf-8"))
    }
    before = inventory(file) if file.exists() else []
    written = {message: template_for(message.example) for message in before}
    # Another template may have come to fit an example better: it is an example of that one, recorded or not.
    found = {
        (message.kind, message.code, template): message.example
        for message, template in sorted(written.items(), key=lambda each: each[0].template == each[1])
        if template
    }
    for kind, code, recorded_text in sorted(recorded):
        if kind == "outcome" and code[:1].isupper():
            continue  # the class of an exception that the code of a tool raised
        text = FOLDER.sub("/path/", recorded_text)
        if len(text) <= LONGEST and not PRIVATE.search(text):
            key = (kind, code, template_for(text))
            found[key] = min(found.get(key, text), text, key=lambda each: (abs(len(each) - 70), each))
    # Without a template, the text is not of the package: a server, an API or a test has written it.
    lines = [json.dumps([*key, text], ensure_ascii=False) for key, text in sorted(found.items()) if key[2]]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    return [message for message in before if not written[message]]


if __name__ == "__main__":
    for gone in update():
        print(f"no longer written: {gone.kind} {gone.code}: {gone.example}")  # noqa: T201
