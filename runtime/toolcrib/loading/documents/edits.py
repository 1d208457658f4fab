"""Edit a document as text: comments, order and layout of what does not change stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import yaml

from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of
from toolcrib.core.text import json_equal
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

    def change(plain: str, node: yaml.MappingNode) -> str:
        return _with_item(plain, node, key, item, write)

    return _changed(text, line, change, lambda old: _with(old, key, item))


def set_value(text: str, line: int, pointer: str, value: JSON, write: YamlWriter) -> str | None:
    """Replace a value within an object of a document, or add it to the object that should contain it.

    Args:
        text: A YAML or JSON text that toolcrib reads without problems.
        line: First line of the object, from 1.
        pointer: JSON Pointer of the value within the object.
        value: The new value.
        write: Writes an object as lines of YAML in block style.

    Returns:
        The whole new text, which was read back: nothing but the value differs. None if the layout does not allow it.
    """
    if not pointer:
        return None
    *above, key = keys_of(pointer)

    def change(plain: str, node: yaml.MappingNode) -> str:
        found = _below(node, above)
        return plain if found is None else _with_value(plain, found, key, value, write)

    return _changed(text, line, change, lambda old: _with_value_at(old, above, key, value))


def _changed(
    text: str,
    line: int,
    change: Callable[[str, yaml.MappingNode], str],
    expect: Callable[[JSON], JSON],
) -> str | None:
    """The text with one object changed, if reading it back gives what is expected."""
    plain = text.replace("\r\n", "\n")
    node = _object_at(plain, line)
    if node is None:
        return None
    new = change(plain, node)
    before, after = _objects(plain), _objects(new)
    changed = [(old, now) for old, now in zip(before, after, strict=False) if _json(old) != _json(now)]
    # A layout that is not understood must not damage the file.
    if len(before) != len(after) or [_json(now) for _old, now in changed] != [
        _json(expect(old)) for old, _now in changed[:1]
    ]:
        return None
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def change_object(
    text: str, line: int, old: Mapping[str, JSON], new: Mapping[str, JSON], write: YamlWriter
) -> str | None:
    """Change the members of an object in a document, and leave the text of all others as it is.

    Args:
        text: A YAML or JSON text that toolcrib reads without problems.
        line: First line of the object, from 1.
        old: Its value.
        new: Its new value. A new key is written after the key that precedes it.
        write: Writes an object as lines of YAML in block style.

    Returns:
        The whole new text, which was read back: nothing else differs. None if no object begins in the line, or if its
        layout does not allow the change.
    """
    plain = text.replace("\r\n", "\n")
    node = _object_at(plain, line)
    if node is None:
        return None
    before = _objects(plain)
    places = [place for place, value in enumerate(before) if json_equal(value, old)]
    if node.flow_style:
        changed = _rewritten(plain, before, new)
    else:
        changed = _replaced(
            plain, sorted(_changes(plain, node, old, new, write), key=lambda change: change.start)
        )
    after = _objects(changed)
    # Equal objects in one file cannot be told apart, so that it is enough if one of them has changed.
    if not any(
        len(before) == len(after)
        and all(
            json_equal(now, new if at == place else was)
            for at, (was, now) in enumerate(zip(before, after, strict=True))
        )
        for place in places
    ):
        return None
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


class _TextChange(NamedTuple):
    """The text that replaces the text between two offsets."""

    start: int
    end: int
    text: str


def _rewritten(text: str, documents: Sequence[JSON], new: Mapping[str, JSON]) -> str:
    """A JSON text, which has no comments, with another value."""
    return json.dumps(new, indent=2, ensure_ascii=False) + "\n" if len(documents) == 1 else text


def _replaced(text: str, changes: Iterable[_TextChange]) -> str:
    parts, at = [], 0
    for change in changes:
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join(parts) + text[at:]


def _changes(
    text: str, node: yaml.MappingNode, old: Mapping[str, JSON], new: Mapping[str, JSON], write: YamlWriter
) -> Iterator[_TextChange]:
    """The changes of a mapping in block style of which at least one key stays."""
    nodes = {key.value: (key, value) for key, value in node.value}
    pad = " " * node.start_mark.column
    stays = [key for key in nodes if key in new]
    before = ""
    for key, value in new.items():
        if key not in nodes:
            lines = [*write({key: value})]
            if before:
                at = _end(text, nodes[before][1])
                yield _TextChange(at, at, "".join(f"\n{pad}{line}" if line else "\n" for line in lines))
            else:
                at = nodes[stays[0]][0].start_mark.index
                yield _TextChange(at, at, "".join(f"{line}\n{pad}" if line else "\n" for line in lines))
            continue
        before = key
        there, was = nodes[key][1], old.get(key)
        if json_equal(was, value):
            continue
        inner = _inner_changes(text, there, was, value, write)
        if inner is not None:
            yield from inner
        else:
            yield _entry_change(text, nodes[key], [*write({key: value})], pad)
    for key, (name, there) in nodes.items():
        if key not in new:
            start, end = text.rfind("\n", 0, name.start_mark.index) + 1, _end(text, there)
            yield _TextChange(start, min(end + 1, len(text)), "")


def _inner_changes(
    text: str, node: yaml.Node, old: JSON, new: JSON, write: YamlWriter
) -> Iterator[_TextChange] | None:
    """The changes within a value, so that the rest of it stays; None if it has to be written anew."""
    if node.flow_style if isinstance(node, yaml.CollectionNode) else True:
        return None
    if isinstance(node, yaml.MappingNode) and isinstance(old, dict) and isinstance(new, dict):
        return None if old.keys().isdisjoint(new) else _changes(text, node, old, new, write)
    if isinstance(node, yaml.SequenceNode) and isinstance(old, list) and isinstance(new, list):
        return _item_changes(text, node, old, new, write)
    return None


def _item_changes(
    text: str, node: yaml.SequenceNode, old: list[JSON], new: list[JSON], write: YamlWriter
) -> Iterator[_TextChange] | None:
    """The changes of a list to which items were added at its end, or in whose items members changed."""
    found: list[_TextChange] = []
    for item, was, value in zip(node.value, old, new, strict=False):
        if json_equal(was, value):
            continue
        # The first key of an item stands in the line of its dash, so it must stay there.
        first = next(iter(was), None) if isinstance(was, dict) else None
        stays = isinstance(value, dict) and first is not None and first in value
        inner = _inner_changes(text, item, was, value, write) if stays else None
        if inner is None:
            return None
        found += inner
    if len(new) < len(old):
        return None
    if len(new) > len(old):
        _key, *rest = write({"-": new[len(old) :]})
        lines = [line.removeprefix("  ") for line in rest] or [f"- {_flow(item)}" for item in new[len(old) :]]
        pad, at = " " * node.start_mark.column, _end(text, node)
        found.append(_TextChange(at, at, "".join(f"\n{pad}{line}" if line else "\n" for line in lines)))
    return iter(found)


_HEADS = (":", "|", "|-", ">", ">-")
"""Ends of a line that a comment may follow although the value follows below."""


def _entry_change(
    text: str, entry: tuple[yaml.Node, yaml.Node], lines: Sequence[str], pad: str
) -> _TextChange:
    """The change of a whole entry; a comment at the end of its line stays."""
    name, value = entry
    start, last = name.start_mark.index, _last(value).end_mark.index
    end = start + len(text[start:last].rstrip("\n "))
    line_end = text.find("\n", end)
    rest = text[end : len(text) if line_end < 0 else line_end]
    first, *others = lines
    if rest.lstrip().startswith("#") and others and first.endswith(_HEADS):
        first, end = f"{first}{rest}", end + len(rest)
    return _TextChange(start, end, "".join([first, *(f"\n{pad}{line}" if line else "\n" for line in others)]))


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


def _with_value_at(value: JSON, above: Sequence[str], key: str, new: JSON) -> JSON:
    """A copy of a value with another value below these keys."""
    there: Any = value
    if not above:
        return {**there, key: new}
    step: Any = int(above[0]) if isinstance(there, list) else above[0]
    inner = _with_value_at(there[step], above[1:], key, new)
    if isinstance(there, list):
        return [*there[:step], inner, *there[step + 1 :]]
    return {**there, step: inner}


def _below(node: yaml.Node, keys: Sequence[str]) -> yaml.MappingNode | None:
    """The object below these keys."""
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = [value for name, value in node.value if name.value == key]
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal():
            found = node.value[int(key) : int(key) + 1]
        else:
            return None
        if len(found) != 1:
            return None
        node = found[0]
    return node if isinstance(node, yaml.MappingNode) else None


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


def _with_value(text: str, node: yaml.MappingNode, key: str, value: JSON, write: YamlWriter) -> str:
    """The text with a member of an object replaced, or added at its end."""
    entry = {name.value: (name, inner) for name, inner in node.value}.get(key)
    if entry is not None and node.flow_style:
        old = entry[1]
        return f"{text[: old.start_mark.index]}{_flow(value)}{text[old.end_mark.index :]}"
    if entry is not None:
        pad = " " * node.start_mark.column
        return _replaced(text, [_entry_change(text, entry, [*write({key: value})], pad)])
    if node.value and not node.flow_style:
        return _after(text, node.value[-1][1], node.start_mark.column, write({key: value}))
    first = node.value[0][0].start_mark.index if node.value else node.start_mark.index
    is_json = text[first] == '"' or text.lstrip()[:1] in {"{", "["}
    more = _member(key, value, write, is_json=is_json)
    if not node.value:
        return f"{text[: node.start_mark.index]}{{{more}}}{text[node.end_mark.index :]}"
    gap = text[node.start_mark.index + 1 : first]
    return _inserted(text, node.value[-1][1].end_mark.index, f",{gap or ' '}{more}")


def _member(key: str, value: JSON, write: YamlWriter, *, is_json: bool) -> str:
    """A key and its value within `{}`: in YAML without quotes, if the value is one plain word."""
    if is_json or not key.isidentifier():
        return f"{json.dumps(key)}: {_flow(value)}"
    lines = [*write({key: value})]
    plain = lines[0].partition(": ")[2] if len(lines) == 1 else ""
    return f"{key}: {plain if plain.replace('_', '').isalnum() else _flow(value)}"


def _flow(item: JSON) -> str:
    # JSON is valid in both languages.
    return json.dumps(item, ensure_ascii=False)


def _inserted(text: str, at: int, more: str) -> str:
    return text[:at] + more + text[at:]


def _after(text: str, node: yaml.Node, indent: int, lines: Iterable[str]) -> str:
    """The text with lines after the last line of a node, without the comments and blank lines that follow it."""
    added = "".join(f"\n{' ' * indent}{line}" if line else "\n" for line in lines)
    return _inserted(text, _end(text, node), added)


def _end(text: str, node: yaml.Node) -> int:
    """The end of the last line of a node, without its line break."""
    last = _last(node)
    end: int = last.end_mark.index
    if last.end_mark.column == 0 and end:
        # The end of a block scalar is the beginning of the line after it.
        return end - 1
    rest = text.find("\n", end)
    return len(text) if rest < 0 else rest


def _last(node: yaml.Node) -> yaml.Node:
    """The last node within a node: a collection in block style ends where the next token begins."""
    while node.value and isinstance(node, yaml.MappingNode | yaml.SequenceNode) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node
