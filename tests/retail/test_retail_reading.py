"""The reading of the English rules, against the recorded calls, and what random worlds reach of it."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retail import reading
from retail.playing import read
from retail.reading import COLLECTIONS, REASONS, Retail
from retail.texts import texts_of, without_id
from retail.worlds import NEEDED, TOOLS, session, world
from sampling import sample

WORLDS = [world(seed) for seed in range(12)]
SOURCE = Path(reading.__file__).read_text(encoding="utf-8")


@pytest.fixture
def store(shared_data):
    folder = shared_data / "tau-retail"
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in COLLECTIONS}


@pytest.fixture
def tasks(shared_data):
    text = (shared_data / "tau-retail" / "tasks-train.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def begin_again(retail: Retail, changed: dict[str, Any]) -> None:
    """Undo what one task has changed, which is cheaper than a copy of the whole store for each."""
    fresh = Retail(
        {name: {key: retail.given[name][key] for key in changed.get(name, {})} for name in COLLECTIONS}
    )
    for name in COLLECTIONS:
        getattr(retail, name).update(getattr(fresh, name))


def test_it_answers_and_changes_what_was_recorded(store, tasks):
    """Results as JSON values, texts exactly, and the rows that each task has changed."""
    retail = Retail(store)
    for task in sample(tasks, one_in=4):
        for call in task["calls"]:
            answer = retail.answer(call["tool"], call["arguments"])
            recorded = call["result"] if isinstance(answer, str) else json.loads(call["result"])
            assert answer == recorded, call
        changed = retail.changed_rows()
        assert changed == task["changed_rows"], task["task"]
        begin_again(retail, changed)
    assert sum(len(task["calls"]) for task in tasks) == 768


@pytest.mark.exhaustive
def test_random_sessions_reach_every_text_and_every_tool():
    reached: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for number, store in enumerate(WORLDS):
        for turn in range(60):
            calls = session(f"{number}.{turn}", store, reasons=(*REASONS, "too late"))
            for call, answer in zip(calls, read(store, calls).answers, strict=True):
                text = json.loads(answer)
                if isinstance(text, str) and text.startswith("Error: "):
                    reached[without_id(text, call.tool)] += 1
                else:
                    answered[call.tool] += 1
    assert {text for text in texts_of(ast.parse(SOURCE)) if reached[text] < 3} == set()
    assert {tool for tool in TOOLS if answered[tool] < 10} == set()


class Knocked(NamedTuple):
    """One rule of the reading, to be left out."""

    method: str
    line: int
    text: str

    @property
    def tools(self) -> tuple[str | None, ...]:
        """Whose calls may notice it."""
        if self.method in TOOLS:
            return (self.method,)
        return tuple(NEEDED)


def is_rule(node: ast.AST) -> bool:
    """Whether a statement refuses a call or changes a row."""
    if isinstance(node, ast.If):
        return isinstance(node.body[0], ast.Raise)
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Subscript)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).endswith((".append", "._move_balance"))
    return False


def rules() -> Iterator[Knocked]:
    (retail,) = [
        node for node in ast.parse(SOURCE).body if isinstance(node, ast.ClassDef) and node.name == "Retail"
    ]
    for method in retail.body:
        if isinstance(method, ast.FunctionDef) and method.name != "changed_rows":
            for node in ast.walk(method):
                if is_rule(node) and "variants.append" not in ast.unparse(node):
                    yield Knocked(method.name, node.lineno, ast.unparse(node).splitlines()[0])


class Without(ast.NodeTransformer):
    """Replaces the statement of one line by `pass`."""

    def __init__(self, line: int) -> None:
        self.line = line

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.stmt) and node.lineno == self.line and is_rule(node):
            return ast.Pass()
        return self.generic_visit(node)


def reading_without(knocked: Knocked) -> dict[str, Any]:
    """The names of the module without that rule."""
    tree = ast.fix_missing_locations(Without(knocked.line).visit(ast.parse(SOURCE)))
    names: dict[str, Any] = {"__name__": "reading_without_a_rule"}
    exec(compile(tree, "reading", "exec"), names)
    return names


def sessions_until_noticed(knocked: Knocked, most: int) -> int:
    """How many sessions it takes; 0 if none of them notices it."""
    without = reading_without(knocked)
    for turn in range(most):
        store = WORLDS[turn % len(WORLDS)]
        tool = knocked.tools[turn % len(knocked.tools)]
        calls = session(f"knocked {turn}", store, tool, (*REASONS, "too late"))
        told = read(store, calls)
        try:
            if read(store, calls, without["Retail"]) != told:
                return turn + 1
        except (
            LookupError,
            TypeError,
            ValueError,
            StopIteration,
            without["Unsaid"],
        ):  # a rule also guards the ones below it
            return turn + 1
    return 0


@pytest.mark.parametrize(
    "knocked", sample(list(rules()), one_in=4), ids=lambda knocked: f"{knocked.method}-{knocked.line}"
)
def test_random_sessions_notice_every_rule_that_is_left_out(knocked):
    assert sessions_until_noticed(knocked, 800) > 0, knocked.text
