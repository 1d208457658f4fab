"""The hand-derived cases of `tests/corpus/retail_rules.yaml`: calls, and what each must answer and change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from retail.reading import COLLECTIONS, Row
from retail.worlds import ToolCall
from toolcrib.loading.documents.document import parse_documents

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
STORE = CORPUS / "retail_store"


class Expected(NamedTuple):
    """One call of a case.

    Attributes:
        call: Tool and arguments.
        answer: What it answers: a text or a JSON value.
        changed: Collection -> key -> row, of all rows that are unequal to the first ones after the call.
        ordered: Whether the keys of the answer must come in this order.
    """

    call: ToolCall
    answer: Any
    changed: dict[str, dict[str, Row]]
    ordered: bool


class Case(NamedTuple):
    """One case.

    Attributes:
        name: Unique in the file.
        because: The rule that it shows.
        calls: In order, all in one session.
        beyond_schema: Whether the input schema refuses its arguments.
    """

    name: str
    because: str
    calls: tuple[Expected, ...]
    beyond_schema: bool


@cache
def first_store() -> dict[str, dict[str, Row]]:
    """The store that every case begins with."""
    return {name: json.loads((STORE / f"{name}.json").read_text(encoding="utf-8")) for name in COLLECTIONS}


@cache
def cases() -> tuple[Case, ...]:
    """All cases of the file."""
    name = "retail_rules.yaml"
    (document,), problems = parse_documents(name, (CORPUS / name).read_text(encoding="utf-8"))
    assert not problems, problems
    value: Any = document.value
    return tuple(_case(**written) for written in value["cases"])


def _case(*, case: str, because: str, calls: list[dict[str, Any]], beyond_schema: bool = False) -> Case:
    rows = {
        name: dict(keyed) for name, keyed in first_store().items()
    }  # a row that changes is another object
    return Case(case, because, tuple(_expected(rows, **written) for written in calls), beyond_schema)


def _expected(rows: dict[str, dict[str, Row]], **written: Any) -> Expected:
    call = ToolCall(written.pop("call"), written.pop("args"))
    for place, patch in written.pop("changes", {}).items():
        collection, key = place.split("/")
        assert _laid_over(rows[collection][key], patch) != rows[collection][key], f"{place} does not change"
        rows[collection][key] = _laid_over(rows[collection][key], patch)
    ((kind, answer),) = written.items()
    if kind == "row":
        collection, key = answer.split("/")
        answer = rows[collection][key]
    changed = {
        name: {key: row for key, row in keyed.items() if row != first_store()[name][key]}
        for name, keyed in rows.items()
    }
    return Expected(call, answer, {name: keyed for name, keyed in changed.items() if keyed}, kind == "value")


def _laid_over(value: Any, patch: Any) -> Any:
    """A value with a patch laid over it, as the head of the file says."""
    if not isinstance(patch, Mapping) or not isinstance(value, dict | list):
        return patch
    if isinstance(value, dict):
        return {**value, **{key: _laid_over(value.get(key), inner) for key, inner in patch.items()}}
    patched = [_laid_over(element, patch.get(str(place), {})) for place, element in enumerate(value)]
    return [*patched, *(_entry(text) for text in patch.get("append", ()))]


def _entry(text: str) -> Row:
    kind, amount, method_id = text.split()
    return {"transaction_type": kind, "amount": json.loads(amount), "payment_method_id": method_id}
