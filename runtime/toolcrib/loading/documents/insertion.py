"""Add an item to a list of a document, as text: comments, order and layout of the rest stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import yaml

from toolcrib.core.model import JSON
from toolcrib.loading.documents.document import parse_documents

YamlWriter: TypeAlias = Callable[[Mapping[str, JSON]], Iterable[str]]


def add_item(text: str, line: int, key: str, item: JSON, write: YamlWriter) -> str | None:
    """Add an item at the end of the list `key` of an object in a document; the list is added if there is none.

    Args:
        text: A YAML or JSON text that toolcrib reads without problems.
        line: First line of the object, from 1.
        key: Key of the list.
        item: The item.
        write: Writes an object as lines of YAML in block style.

    Returns:
        The whole new text, which was read back: nothing but the item differs. None if no object begins in the line, or
        if its layout does not allow the item to be added.
    """
    plain = text.replace("\r\n", "\n")
    node = _object_at(plain, line)
    if node is None:
        return None
    new = _with_item(plain, node, key, item, write)
    before, after = _objects(plain), _objects(new)
    changed = [(old, now) for old, now in zip(before, after, strict=False) if _json(old) != _json(now)]
    # A layout that is not understood must not damage the file.
    if len(before) != len(after) or [_json(now) for _old, now in changed] != [
        _json(_with(old, key, item)) for old, _now in changed[:1]
    ]:
        return None
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def _objects(text: str) -> list[JSON]:
    documents, problems = parse_documents("", text)
    if problems:
        return []
    values = [document.value for document in documents]
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _json(value: JSON) -> str:
    return json.dumps(value)


def _with(value: JSON, key: str, item: JSON) -> JSON:
    there: Any = value
    return {**there, key: [*(there.get(key) or []), item]}


def _object_at(text: str, line: int) -> yaml.MappingNode | None:
    """The object that begins in a line: a document, or an element of a document that is a list."""
    try:
        roots = [*yaml.compose_all(text, yaml.SafeLoader)]
    except yaml.YAMLError:
        return None
    places = [
        item for root in roots for item in (root.value if isinstance(root, yaml.SequenceNode) else [root])
    ]
    found = [
        each for each in places if each.start_mark.line + 1 == line and isinstance(each, yaml.MappingNode)
    ]
    return found[0] if len(found) == 1 else None


def _with_item(text: str, node: yaml.MappingNode, key: str, item: JSON, write: YamlWriter) -> str:
    values = {name.value: value for name, value in node.value}
    there = values.get(key)
    if there is None and node.flow_style:
        gap = text[node.start_mark.index + 1 : node.value[0][0].start_mark.index]
        more = f",{gap or ' '}{json.dumps(key)}: [{_flow(item)}]"
        return _inserted(text, node.value[-1][1].end_mark.index, more)
    if there is None:
        return _after(text, node.value[-1][1], node.start_mark.column, write({key: [item]}))
    items: Sequence[yaml.Node] = there.value if isinstance(there, yaml.SequenceNode) else ()
    if not items:
        # `[]` or null; the text is not accepted if it was another value.
        start, end = there.start_mark.index, there.end_mark.index
        return f"{text[:start]}{' ' * (start == end)}[{_flow(item)}]{text[end:]}"
    if there.flow_style:
        gap = text[there.start_mark.index + 1 : items[0].start_mark.index]
        return _inserted(text, items[-1].end_mark.index, f",{gap or ' '}{_flow(item)}")
    _key, *rest = write({key: [item]})
    lines = [line.removeprefix("  ") for line in rest] or [f"- {_flow(item)}"]
    return _after(text, items[-1], there.start_mark.column, lines)


def _flow(item: JSON) -> str:
    # JSON is valid in both languages.
    return json.dumps(item, ensure_ascii=False)


def _inserted(text: str, at: int, more: str) -> str:
    return text[:at] + more + text[at:]


def _after(text: str, node: yaml.Node, indent: int, lines: Iterable[str]) -> str:
    """The text with lines after the last line of a node, without the comments and blank lines that follow it."""
    while node.value and isinstance(node, yaml.MappingNode | yaml.SequenceNode) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end = node.end_mark.index
    if node.end_mark.column == 0 and end:
        # The end of a block scalar is the beginning of the line after it.
        end -= 1
    else:
        rest = text.find("\n", end)
        end = len(text) if rest < 0 else rest
    return _inserted(text, end, "".join(f"\n{' ' * indent}{line}" if line else "\n" for line in lines))
