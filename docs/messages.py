"""The inventory of messages: for every code, the templates in the source and an example of each.

`docs/message_examples.json` holds the inventory, and `docs/generate.py` writes the page from it. After messages have
changed, record them while the tests run, then update the inventory:

    make test TEST_OPTIONS="-p message_recorder"
    .venv/bin/python docs/messages.py
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
    found = set()
    for path in PACKAGE.rglob("*.py"):
        found |= {
            text
            for node in texts_in(ast.parse(path.read_text(encoding="utf-8")))
            if (text := template_of(node))
        }
    return frozenset(found)


def texts_in(tree: ast.AST) -> Iterator[ast.expr]:
    """The texts of a module, f-strings as a whole, without those that are documentation."""
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            yield node
            yield from (
                text
                for part in node.values
                if isinstance(part, ast.FormattedValue)
                for text in texts_in(part)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node
        else:
            yield from texts_in(node)


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


def inventory() -> list[Message]:
    """The messages of the inventory."""
    return [Message(*entry) for entry in json.loads(INVENTORY.read_text(encoding="utf-8"))]


def update() -> None:
    """Write the inventory: what the tests recorded, and the examples so far that are still true."""
    recorded = {
        tuple(entry)
        for path in RECORDED.glob("*.json")
        for entry in json.loads(path.read_text(encoding="utf-8"))
    }
    before = inventory() if INVENTORY.exists() else []
    kept = [message for message in before if message.template == template_for(message.example)]
    found = {(message.kind, message.code, message.template): message.example for message in kept}
    for kind, code, recorded_text in sorted(recorded):
        if kind == "outcome" and code[:1].isupper():
            continue  # the class of an exception that the code of a tool raised
        text = FOLDER.sub("/path/", recorded_text)
        if len(text) <= LONGEST and not PRIVATE.search(text):
            key = (kind, code, template_for(text))
            found[key] = min(found.get(key, text), text, key=lambda each: (abs(len(each) - 70), each))
    # Without a template, the text is not of the package: a server, an API or a test has written it.
    lines = [json.dumps([*key, text], ensure_ascii=False) for key, text in sorted(found.items()) if key[2]]
    INVENTORY.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    update()
