"""An index is data: no code is in it, and nothing in it says what is imported."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import marshal
import math
import os
import sys
import types
import typing
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept import Shelf, write_project
from sampling import examples, sample
from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor, Example, Origin, Toolset
from toolcrib.core.server_config import Server
from toolcrib.loading.cache import header, index
from toolcrib.loading.cache.document_codec import NotCacheable
from toolcrib.loading.cache.header import (
    INTEGER_BITS,
    MAX_DEPTH,
    parse_header,
    read_json,
    with_lists,
    write_json,
)
from toolcrib.loading.cache.index import (
    CLASSES,
    SettingsByProfile,
    decode_value,
    encode_value,
    project_profiles,
)
from toolcrib.loading.cache.store import IndexFolder
from toolcrib.loading.packs import Pack
from toolcrib.loading.projects import Project
from toolcrib.loading.snapshot import PendingDescriptor

CODE = compile("1", "<test>", "eval")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda values: st.lists(values) | st.dictionaries(st.text(st.characters()), values),
    max_leaves=30,
)


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types, and NaN like NaN."""
    return repr(left) == repr(right)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A project in the working directory, and an index elsewhere."""
    monkeypatch.chdir(write_project(tmp_path / "project"))
    return Shelf(tmp_path / "index")


# The JSON.


@settings(max_examples=examples(200), deadline=None)
@given(JSON)
def test_what_is_written_as_json_is_read_as_it_was(value):
    assert same(read_json(write_json(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        "\ud83d\ude00",
        ["\ud800", "\udfff\x00\n\u2028"],
        [-0.0, 0.0, 1e300, 5e-324, 0.1],
        [math.nan, math.inf, -math.inf],
        [1, 1.0, True, None],
        2**INTEGER_BITS - 1,
        {"": {"": []}},
    ],
    ids=repr,
)
def test_values_at_the_edges_are_read_as_they_were(value):
    assert same(read_json(write_json(value)), value)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=60) | st.text(st.characters(codec="ascii")).map(str.encode))
def test_other_bytes_are_read_as_json_reads_them_or_refused(text):
    try:
        value = read_json(text)
    except ValueError:
        return
    assert same(value, json.loads(text.decode("utf-8", "surrogatepass")))


def test_without_the_code_in_c_the_same_is_written_and_read(monkeypatch):
    value = {"a": [1, 2.5, "\ud800\u00e9\n", None, True, {"": []}], "b": -0.0}
    expected = write_json(value)
    monkeypatch.setattr(header, "_ENCODERS", [])
    monkeypatch.setattr(header, "_SCANNERS", [])
    monkeypatch.setitem(sys.modules, "_json", None)
    assert write_json(value) == expected
    assert same(read_json(expected), value)
    assert read_json(b'{"a":[1,NaN]}')["a"][0] == 1
    for text in (b"", b"[", b"1 2"):
        with pytest.raises(ValueError):
            read_json(text)


def test_json_that_is_nested_deeper_than_anything_written_is_no_traceback():
    with pytest.raises(ValueError, match="invalid JSON"):
        read_json(b"[" * 1_000_000)


class Text(str):
    __slots__ = ()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED = {
    "code": CODE,
    "function": len,
    "class": object,
    "module": os,
    "bytes": b"x",
    "tuple": (1,),
    "set": {1},
    "ellipsis": ...,
    "complex": 1j,
    "a text of another class": Text("x"),
    "a named tuple": Example(args={}),
    "a key that is a number": {1: 2},
    "a key that is code": {CODE: 1},
    "a key of another class": {Text("x"): 1},
    "a long integer": 2**INTEGER_BITS,
    "deep": nested(MAX_DEPTH + 1),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_all_else_is_refused_wherever_it_is(value):
    for around in (value, [value], {"a": value}, [1, {"a": [None, {"b": [value]}]}]):
        with pytest.raises(ValueError, match=r"cannot be encoded|not a string|longer|deeper"):
            write_json(around)


def test_the_deepest_nesting_is_read_again():
    assert read_json(write_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


# Code objects.

POSITIONS = {
    "alone": lambda value: value,
    "in a tuple": lambda value: (1, (value,)),
    "in a list": lambda value: [1, [value]],
    "in a dictionary": lambda value: {"a": {"b": value}},
    "in a list of a block": lambda value: {"mock": [{"result": [value]}]},
    "in a mapping": lambda value: types.MappingProxyType({"a": value}),
    "in a set": lambda value: {value},
    "in a frozen set": lambda value: frozenset({value}),
    "in a named tuple": lambda value: Descriptor(name="x", input_schema={"const": value}),
    "in a tuple in a named tuple": lambda value: Descriptor(name="x", examples=(Example(args=value),)),
    "as the value of a class": lambda value: Problem(code="x", message=value),
}


@pytest.mark.parametrize("position", sample(POSITIONS.values(), one_in=3), ids=sample(POSITIONS, one_in=3))
@pytest.mark.parametrize("value", [CODE, len, object, os], ids=["code", "function", "class", "module"])
def test_code_is_refused_wherever_it_is(position, value):
    with pytest.raises(NotCacheable, match="cannot be encoded"):
        encode_value(position(value))


def test_code_as_a_key_is_refused():
    with pytest.raises(ValueError, match="a key is not a string"):
        write_json(encode_value({CODE: 1}))


PLACES = {
    "a tool": lambda stock: stock._replace(
        registry=stock.registry.with_tool(
            stock.registry["flat"]._replace(bindings={"mock": {"result": CODE}})
        )
    ),
    "a description": lambda stock: stock._replace(
        registry=stock.registry.with_tool(stock.registry["flat"]._replace(version=CODE))
    ),
    "a problem": lambda stock: stock._replace(problems=(*stock.problems, Problem(code="x", message=CODE))),
    "a source": lambda stock: stock._replace(sources=(CODE,)),
    "a file": lambda stock: stock._replace(ignored=(CODE,)),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_stock_with_code_is_not_kept(shelf, caplog, place):
    stock = place(shelf.read())
    with caplog.at_level("DEBUG", "toolcrib"):
        shelf.index.keep(shelf.key, stock, shelf.executors.targets, project_profiles(shelf.read()))
    assert "no index was written: `code` cannot be encoded" in caplog.text
    assert shelf.recall() is None


FOREIGN = {
    "a code object": marshal.dumps(CODE),
    "a code object behind a length": (8).to_bytes(8, "big") + marshal.dumps((CODE, {"key": CODE})),
    "nothing": b"",
    "random": os.urandom(300),
    "JSON of another form": (4).to_bytes(8, "big") + b'["a"]',
    "a list": (2).to_bytes(8, "big") + b"[]",
    "an object": (2).to_bytes(8, "big") + b"{}",
    "a number": (1).to_bytes(8, "big") + b"1",
    "other members": (13).to_bytes(8, "big") + b'{"tables":[]}',
    "tables of another form": (14).to_bytes(8, "big") + b'{"tables":[""]}',
    "a length beyond the end": (2**64 - 1).to_bytes(8, "big") + b"{}",
}


@pytest.mark.parametrize("body", FOREIGN.values(), ids=FOREIGN)
def test_an_authentic_file_that_is_no_index_is_not_used(shelf, body):
    cabinet = IndexFolder(str(shelf.folder))
    cabinet.write(shelf.key, body)
    assert bytes(cabinet.read(shelf.key)) == body
    assert shelf.recall() is None


def test_a_part_that_is_no_json_makes_no_index(shelf):
    shelf.keep()
    cabinet = IndexFolder(str(shelf.folder))
    head, parts = parse_header(cabinet.read(shelf.key))
    for name in ("rest", "tools"):
        start, end = head.parts[name]
        for content in (marshal.dumps(CODE), b"[]", b"3"):
            changed = bytes(parts[:start]) + content.ljust(end - start) + bytes(parts[end:])
            cabinet.write(shelf.key, head.encoded(changed))
            assert shelf.index.recall(shelf.key) is None, (name, content)


# Classes.


@cache
def imported_for_annotations(module: types.ModuleType) -> dict[str, str]:
    """Name -> the module from which a module imports it, anywhere in its source."""
    imports = [
        node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)
    ]
    # The first import of a name counts.
    return {alias.name: node.module for node in reversed(imports) if node.module for alias in node.names}


def resolved(module: types.ModuleType, name: str) -> tuple[Any, types.ModuleType]:
    """What a name in an annotation stands for, also where it is imported for annotations alone."""
    if hasattr(module, name):
        return getattr(module, name), module
    if name in imported_for_annotations(module):
        home = importlib.import_module(imported_for_annotations(module)[name])
        return getattr(home, name), home
    return None, module


def classes_in(hint: Any, module: types.ModuleType, met: tuple[Any, ...] = ()) -> Iterator[type]:
    """All classes in an annotation."""
    hint = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
    if isinstance(hint, str):
        for node in ast.walk(ast.parse(hint, mode="eval")):
            if isinstance(node, ast.Name) and node.id not in met:
                yield from classes_in(*resolved(module, node.id), (*met, node.id))
    elif typing.get_args(hint):
        for argument in typing.get_args(hint):
            if not isinstance(argument, str):
                yield from classes_in(argument, module, met)
    elif isinstance(hint, type):
        yield hint


def is_record(cls: type) -> bool:
    return hasattr(cls, "__dataclass_fields__") or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def records_from(*starts: type) -> set[type]:
    """The named tuples and dataclasses that values of these classes may hold, by their annotations."""
    met: set[type] = set()
    left = deque(starts)
    while left:
        cls = left.popleft()
        if cls not in met:
            met.add(cls)
            module = sys.modules[cls.__module__]
            found = {found for hint in cls.__annotations__.values() for found in classes_in(hint, module)}
            left += filter(is_record, found)
    return met


def test_the_table_has_every_class_that_an_index_may_hold():
    records = records_from(
        Descriptor, Pack, Problem, SettingsByProfile, Project, Server, Toolset, PendingDescriptor
    ) - {Origin}
    assert {cls.__name__: cls.__module__ for cls in records} == dict(CLASSES)
    assert len({cls.__name__ for cls in records}) == len(records)


@pytest.mark.parametrize("folder", sample(["descriptors", "packs"], one_in=2))
def test_every_class_in_the_examples_of_the_repository_is_in_the_table(root, tmp_path, monkeypatch, folder):
    met: set[str] = set()

    class Spy(dict):
        def get(self, tag: str, default: Any = None) -> Any:
            met.add(tag)
            return super().get(tag, default)

    monkeypatch.setattr(index, "CLASSES", Spy(CLASSES))
    shelf = Shelf(tmp_path / "index", str(root / folder))
    shelf.keep()
    assert shelf.file().exists()
    assert {"Annotations", "Descriptor", "Settings", "SettingsByProfile"} <= met <= CLASSES.keys()


def test_an_index_with_an_unknown_class_is_not_used(shelf, monkeypatch):
    shelf.keep()
    assert shelf.recall() is not None
    known = {tag: module for tag, module in CLASSES.items() if tag != "Toolset"}
    monkeypatch.setattr(index, "CLASSES", known)
    assert shelf.recall() is None


def test_a_tag_names_no_module():
    for tag in ("os:system", "toolcrib.core.model:Descriptor", "subprocess", "builtins", ""):
        with pytest.raises(KeyError):
            decode_value([tag, "echo"])


def test_lists_take_the_place_of_tuples():
    assert with_lists({"a": (1, [(2,), "b"])}) == {"a": [1, [[2], "b"]]}


VALUES = [
    (1, "a", None),
    [1, [2]],
    [(1, 2), [3]],
    {"a": [1, {"b": 2}]},
    {"a": (1, 2)},
    types.MappingProxyType({"a": (1,), "b": {"c": 1}}),
    {"a", "b"},
    frozenset({"a", "b"}),
    b"\x00\xff",
    (),
    [],
    {},
    ["()", 1],
    Example(args={"a": [1]}),
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_comes_back_with_its_types(value):
    back = decode_value(read_json(write_json(encode_value(value))))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, set | frozenset)
