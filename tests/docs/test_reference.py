"""The reference pages say what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs import problem_codes
from docs.scripts import script
from toolcrib.core.errors import ExpressionError
from toolcrib.executors.mock.variables import NAMES
from toolcrib.expressions import compile_value
from toolcrib.expressions.matchers import OPERATORS, compile_matcher
from toolcrib.expressions.parser import TESTS
from toolcrib.http import HTTPFailure

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def first_cells(page: str) -> list[str]:
    """What stands in backticks in the first column of a page's tables."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


@pytest.fixture(scope="module")
def generated():
    return script("generate").pages()


# They are known by their marks: to generate them takes long, and every worker reads this module.
GENERATED = [
    path.relative_to(REFERENCE).as_posix()
    for path in sorted(REFERENCE.rglob("*.md"))
    if "\n<!-- Written by docs/generate.py. -->\n" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_current(name, generated):
    assert (REFERENCE / name).read_text(encoding="utf-8") == generated[name], "run `python docs/generate.py`"


def test_the_generated_pages_are_all_there(generated):
    assert sorted(generated) == GENERATED, "run `python docs/generate.py`"


@pytest.fixture(scope="module")
def codes():
    return problem_codes.codes() | {ExpressionError.code}


def test_every_problem_code_is_on_its_page_once(codes):
    assert sorted(first_cells("problems.md")) == sorted(codes)


def test_every_problem_code_has_a_message_in_the_inventory(codes):
    listed = {entry.code for entry in script("messages").inventory()}
    assert codes - listed == set(), "see docs/messages.py for how to update the inventory"


def test_every_code_of_an_outcome_with_a_message_is_on_its_page(codes):
    found = {entry.code for entry in script("messages").inventory() if entry.kind == "outcome"}
    assert found - {*first_cells("outcomes.md")} - codes == {"other"}  # of a descriptor's `errors`


def test_every_matcher_operator_is_on_its_page_once():
    assert sorted(first_cells("matchers.md")) == sorted(OPERATORS)


def rows(page: str, cells: int) -> list[list[str]]:
    """The rows of a page's tables that have so many cells, without backticks."""
    lines = [
        line for line in (REFERENCE / page).read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [[cell.replace("\\|", "|").strip("`") for cell in row] for row in split if len(row) == cells]


@pytest.mark.parametrize("row", rows("matchers.md", 5), ids=lambda row: row[0])
def test_the_examples_of_a_matcher_operator_are_true(row):
    problems = []
    matcher = compile_matcher(json.loads(row[2]), problems)
    assert problems == []
    assert row[0] in row[2]
    assert matcher.matches(json.loads(row[3]))
    assert not matcher.matches(json.loads(row[4]))


ARGS = {"city": "Oslo", "days": 3, "rows": [{"id": 1, "n": 2}, {"id": 2, "n": 5}]}


@pytest.mark.parametrize("row", rows("expressions.md", 2), ids=lambda row: row[0])
def test_the_examples_of_expressions_are_true(row):
    problems = []
    rendering = compile_value(row[0], ["args"], problems)
    assert problems == []
    assert rendering.render({"args": ARGS}) == json.loads(row[1])


def test_the_arguments_of_the_examples_are_those_on_the_page():
    assert f"`{json.dumps(ARGS)}`" in (REFERENCE / "expressions.md").read_text(encoding="utf-8")


def test_the_names_of_mocks_and_the_tests_are_on_the_page():
    page = (REFERENCE / "expressions.md").read_text(encoding="utf-8")
    assert set(NAMES) == {row[0] for row in rows("expressions.md", 3)}
    told = re.search(r"with the tests `([^`]+)`", page)[1].split()
    assert told == sorted([*TESTS, "in", "matching"])


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_outcomes_has_every_way_in_which_an_exchange_fails(root):
    page = (root / "docs/reference/outcomes.md").read_text(encoding="utf-8")
    assert [fault for fault in HTTPFailure if f"| `{fault}` |" not in page] == []
