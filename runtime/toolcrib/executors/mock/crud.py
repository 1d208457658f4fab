"""Expand `crud`, the short form for common operations on rows, to the reply keys that it stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

KINDS = ("get", "list", "create", "update", "delete")
"""The operations. The value of each is the name of the collection."""

Block = dict[str, Any]


class _Whole(NamedTuple):
    """A part of the expanded reply.

    Attributes:
        path: Its path in the reply, such as `("rows", "row")`; without the index for an entry of a list.
        value: The part.
        origin: Its pointer in the `crud` block, such as `/guard/0`; empty for the whole block.
        places: Pointer within the part -> pointer within the block, if they differ.
    """

    path: tuple[str, ...]
    value: Any
    origin: str = ""
    places: Mapping[str, str] = {}


def expand_crud(block: Block, pointer: str) -> tuple[Block, Callable[[str], str]]:
    """Expand a reply with `crud` to one with `rows`, `let`, `guard`, `effects` and `result`.

    The row is named `row`. Keys of the reply itself are added after those of the expansion.

    Args:
        block: The reply, which its schema has accepted.
        pointer: JSON Pointer of the reply.

    Returns:
        The expanded reply, and the function that maps a pointer into it to the document.
    """
    crud = block["crud"]
    kind = next(kind for kind in KINDS if kind in crud)
    # Names of the author's own rows and lets, which the names of the expansion must not hide.
    taken = {*block.get("rows", {}), *block.get("let", {})}
    written = {key: value for key, value in block.items() if key not in {*_MAPPINGS, *_LISTS, "crud"}}
    places: dict[str, str] = {}
    for part in _WAYS[kind](crud, crud[kind], taken):
        place = _enter(written, part)
        places[f"{pointer}{place}"] = f"{pointer}/crud{part.origin}"
        places |= {
            f"{pointer}{place}{inner}": f"{pointer}/crud{outer}" for inner, outer in part.places.items()
        }
    for key in _MAPPINGS:
        if key in block:
            written[key] = {**written.get(key, {}), **block[key]}
    for key in _LISTS:
        if key in block:
            first = len(written.get(key, ()))
            written[key] = [*written.get(key, ()), *block[key]]
            places |= {
                f"{pointer}/{key}/{first + index}": f"{pointer}/{key}/{index}"
                for index in range(len(block[key]))
            }
    return written, lambda inner: _located(inner, places)


_MAPPINGS = ("rows", "let")
_LISTS = ("guard", "effects")


def _enter(written: Block, part: _Whole) -> str:
    """Add a part to a reply; returns its pointer."""
    *above, last = part.path
    if not above and last in _LISTS:
        entries = written.setdefault(last, [])
        entries.append(part.value)
        return f"/{last}/{len(entries) - 1}"
    target = written
    for step in above:
        target = target.setdefault(step, {})
    target[last] = part.value
    return "".join(f"/{step}" for step in part.path)


def _located(pointer: str, places: Mapping[str, str]) -> str:
    """The pointer in the document for a pointer into the expanded reply; the closest known one."""
    head, rest = pointer, ""
    while head:
        if head in places:
            whole = places[head]
            # A part that only the expansion contains has no more precise pointer in the document.
            return whole if whole.endswith("/crud") else whole + rest
        head, slash, step = head.rpartition("/")
        rest = f"{slash}{step}{rest}"
    return pointer


def _row(crud: Block, name: str, *, needed: bool = True) -> _Whole:
    by = "key" if "key" in crud else "id" if "id" in crud else "where"
    row: Block = {"in": name, ("where" if by == "where" else "key"): crud[by]}
    if needed:
        row["missing"] = crud.get("missing", _missing(crud, name))
    return _Whole(
        ("rows", "row"),
        row,
        places={
            "/in": f"/{next(kind for kind in KINDS if kind in crud)}",
            "/key": f"/{by}",
            "/where": "/where",
            **({"/missing": "/missing"} if "missing" in crud else {}),
        },
    )


def _missing(crud: Block, name: str) -> Block:
    which = f"has the key `{crud['key']}`" if isinstance(crud.get("key"), str) else "matches"
    return {"code": "not_found", "message": f"no row of `{name}` {which}"}


def _guards(crud: Block) -> Iterator[_Whole]:
    for index, guard in enumerate(crud.get("guard", ())):
        yield _Whole(("guard",), guard, f"/guard/{index}")


def _get(crud: Block, name: str, _taken: set[str]) -> Iterator[_Whole]:
    yield _row(crud, name)
    yield from _guards(crud)
    yield _Whole(("result",), "{{ row }}")


def _create(crud: Block, name: str, _taken: set[str]) -> Iterator[_Whole]:
    yield _row(crud, name, needed=False)
    yield from _guards(crud)
    message = f"`{name}` already has a row `{{{{ key_of.row }}}}`"
    error = {"code": "already_exists", "message": message}
    # Without a key the store chooses a free one, so the row cannot exist.
    if "key" in crud:
        yield _Whole(("guard",), {"if": "{{ row is not none }}", "error": error})
    value = crud.get("value", "{{ args }}")
    insert = {"insert": name, "key": "{{ key_of.row }}", "value": value}
    places = {"/insert": "/create", **({"/value": "/value"} if "value" in crud else {})}
    yield _Whole(("effects",), insert, places=places)
    yield _Whole(("result",), "{{ row }}")


def _update(crud: Block, name: str, _taken: set[str]) -> Iterator[_Whole]:
    yield _row(crud, name)
    yield from _guards(crud)
    if "value" in crud:
        upsert = {"upsert": name, "key": "{{ key_of.row }}", "value": crud["value"]}
        yield _Whole(("effects",), upsert, places={"/upsert": "/update", "/value": "/value"})
    else:
        yield _Whole(("effects",), {"update": "row", "set": crud["set"]}, places={"/set": "/set"})
    yield _Whole(("result",), "{{ row }}")


def _delete(crud: Block, name: str, taken: set[str]) -> Iterator[_Whole]:
    deleted = _free("deleted", taken)
    yield _row(crud, name)
    # Read before the effect: the result shows the row that was deleted.
    yield _Whole(("let", deleted), "{{ row }}")
    yield from _guards(crud)
    yield _Whole(("effects",), {"delete": "row"})
    yield _Whole(("result",), f"{{{{ {deleted} }}}}")


def _list(crud: Block, name: str, taken: set[str]) -> Iterator[_Whole]:
    found = _free("found", taken)
    yield from _filter(crud, name, found, taken)
    if "limit" not in crud:
        yield _Whole(("result",), f"{{{{ {found} }}}}")
        return
    limit = _free("limit", taken)
    yield _Whole(("let", limit), crud["limit"], "/limit")
    bad = f"{limit} is not none and ({limit} is not integer or {limit} < 1)"
    error = {
        "code": "invalid_limit",
        "message": f"limit must be an integer of at least 1, not {{{{ {limit} }}}}",
    }
    yield _Whole(("guard",), {"if": f"{{{{ {bad} }}}}", "error": error})
    if "cursor" not in crud:
        yield _Whole(("result",), f"{{{{ {found}[:{limit}] }}}}")
        return
    yield from _page(crud, found, limit, taken)


def _filter(crud: Block, name: str, found: str, taken: set[str]) -> Iterator[_Whole]:
    """The rows whose fields equal the given values. A value of null matches every row."""
    where = crud.get("where")
    rows = f"{{{{ store.{name} | values }}}}"
    if where is None:
        yield _Whole(("let", found), rows, places={"": "/list"})
        return
    if isinstance(where, str):
        made: Block = {"for_each": {"row": rows}, "where": where, "value": "{{ row }}"}
        yield _Whole(("let", found), made, places={"/for_each/row": "/list", "/where": "/where"})
        return
    fields = (
        where if isinstance(where, dict) else {field: f"{{{{ args[{_quoted(field)}] }}}}" for field in where}
    )
    wanted = _free("wanted", taken)
    yield _Whole(("let", wanted), fields, "/where")
    tests = [
        f"({wanted}[{_quoted(field)}] is none or row[{_quoted(field)}] == {wanted}[{_quoted(field)}])"
        for field in fields
    ]
    made = {"for_each": {"row": rows}, "where": f"{{{{ {' and '.join(tests)} }}}}", "value": "{{ row }}"}
    yield _Whole(("let", found), made, places={"/for_each/row": "/list"})


def _page(crud: Block, found: str, limit: str, taken: set[str]) -> Iterator[_Whole]:
    """One page of rows and the cursor of the next page. A cursor is the number of rows before the page."""
    cursor, start, stop = (_free(name, taken) for name in ("cursor", "start", "stop"))
    yield _Whole(("let", cursor), crud["cursor"], "/cursor")
    yield _Whole(("let", start), f"{{{{ 0 if {cursor} is none else {cursor} | int }}}}")
    yield _Whole(("let", stop), f"{{{{ {found} | length if {limit} is none else {start} + {limit} }}}}")
    # Cursors come back from a model, which may have invented them.
    bad = f"{cursor} is not none and {cursor} is not matching('[0-9]{{1,9}}')"
    error = {"code": "invalid_cursor", "message": f"invalid cursor `{{{{ {cursor} }}}}`"}
    yield _Whole(("guard",), {"if": f"{{{{ {bad} }}}}", "error": error})
    page = {
        "items": f"{{{{ {found}[{start}:{stop}] }}}}",
        "next_cursor": f"{{{{ {stop} | string if {stop} < ({found} | length) else none }}}}",
    }
    yield _Whole(("result",), page)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _free(name: str, taken: set[str]) -> str:
    """A name that the reply does not use yet."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


_WAYS: Mapping[str, Callable[[Block, str, set[str]], Iterator[_Whole]]] = {
    "get": _get,
    "list": _list,
    "create": _create,
    "update": _update,
    "delete": _delete,
}
