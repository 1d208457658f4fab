"""The hand-derived cases against the reading of the same English rules; and that the cases leave nothing out."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from retail import reading
from retail.cases import Case, cases, first_store
from retail.reading import Retail
from retail.texts import texts_of, without_id
from retail.worlds import TOOLS
from sampling import sample

WRITTEN = [pytest.param(case, id=case.name) for case in cases()]


@pytest.mark.parametrize("case", sample(WRITTEN, one_in=3))
def test_the_reading_answers_and_changes_what_was_derived_by_hand(case):
    retail = Retail(first_store())
    for call, answer, changed, ordered in case.calls:
        found = retail.answer(*call)
        assert found == answer
        assert isinstance(found, str) == isinstance(answer, str)
        if ordered:
            assert json.dumps(found) == json.dumps(answer)
        assert retail.changed_rows() == changed


def test_no_name_is_used_twice():
    names = [case.name for case in cases()]
    assert sorted(names) == sorted(set(names))


def test_every_case_says_which_rule_it_shows():
    assert [case.name for case in cases() if len(case.because) < 12] == []


def refusals(case: Case) -> set[tuple[str, str]]:
    """Tool and text, of the calls of a case that are refused."""
    return {
        (call.tool, without_id(answer, call.tool))
        for call, answer, _changed, _ordered in case.calls
        if str(answer).startswith("Error: ")
    }


def test_every_tool_succeeds_and_every_text_is_answered():
    succeeded = {
        call.tool
        for case in cases()
        for call, answer, _changed, _ordered in case.calls
        if not str(answer).startswith("Error: ")
    }
    assert succeeded == set(TOOLS)
    source = Path(reading.__file__).read_text(encoding="utf-8")
    assert {text for case in cases() for _tool, text in refusals(case)} == texts_of(ast.parse(source))


def test_every_text_of_a_tool_is_answered_by_it():
    order, lists = (
        "Error: order not found",
        ("Error: * not found", "Error: new item * not found or available"),
    )
    poor, method = "Error: insufficient gift card balance to pay for the", "Error: payment method not found"
    match = "Error: the number of items to be exchanged should match"
    expected = {
        "calculate": {"Error: invalid characters in expression"},
        "cancel_pending_order": {
            order,
            "Error: non-pending order cannot be cancelled",
            "Error: invalid reason",
        },
        "exchange_delivered_order_items": {
            *(order, "Error: non-delivered order cannot be exchanged", match, method, *lists),
            f"{poor} price difference",
        },
        "find_user_id_by_email": {"Error: user not found"},
        "find_user_id_by_name_zip": {"Error: user not found"},
        "get_order_details": {order},
        "get_product_details": {"Error: product not found"},
        "get_user_details": {"Error: user not found"},
        "modify_pending_order_address": {order, "Error: non-pending order cannot be modified"},
        "modify_pending_order_items": {
            *(order, "Error: non-pending order cannot be modified", match, method, *lists),
            f"{poor} new item",
        },
        "modify_pending_order_payment": {
            *(order, "Error: non-pending order cannot be modified", method, f"{poor} order"),
            "Error: there should be exactly one payment for a pending order",
            "Error: the new payment method should be different from the current one",
        },
        "modify_user_address": {"Error: user not found"},
        "return_delivered_order_items": {
            *(order, "Error: non-delivered order cannot be returned", method),
            "Error: payment method should be either the original payment method or a gift card",
            "Error: some item not found",
        },
    }
    found = {refusal for case in cases() for refusal in refusals(case)}
    assert found == {(tool, text) for tool, texts in expected.items() for text in texts}
