"""The sixteen tools of tau-retail, read from the English rules of their data folder and from nothing else.

Each rule is quoted beside the code that reads it. Rules are checked in the order in which they are written
("in the order in which they are checked (each failure answers its text and changes nothing)"), so every method
asks everything first and changes rows only after its last question.

Where the English leaves something open, a remark "Read as" says what is taken. What it does not answer at all
(`2 +` as an expression) is `Unsaid`: nothing may be compared with it.
"""

# ruff: noqa: ERA001 -- quoted rules look like code

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
Store: TypeAlias = Mapping[str, Mapping[str, Row]]

COLLECTIONS = ("orders", "users", "products")
REASONS = ("no longer needed", "ordered by mistake")
ALLOWED = "0123456789+-*/(). "


class Refusal(Exception):
    """A tool answers `Error: ...`, and nothing was changed."""


class Unsaid(Exception):
    """The English rules do not say what such a call answers."""


class Retail:
    """The tools over a deep copy of a store: one method per tool, taking the tool's arguments.

    A method returns the tool's answer, a text or a JSON value, or raises `Refusal` with the answer's text.

    Attributes:
        given: The store as it was given: orders, users and products, each keyed by id. Never changed.
    """

    def __init__(self, store: Store) -> None:
        self.given = store
        self.orders: dict[str, Row] = deepcopy(dict(store["orders"]))
        self.users: dict[str, Row] = deepcopy(dict(store["users"]))
        self.products: dict[str, Row] = deepcopy(dict(store["products"]))

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """What a tool answers, a refusal as its text. The answer is a copy that later calls do not move."""
        try:
            return deepcopy(getattr(self, tool)(**arguments))
        except Refusal as refusal:
            return str(refusal)

    def changed_rows(self) -> dict[str, dict[str, Row]]:
        """Collection -> id -> row now, of all rows that are unequal to what they were."""
        found = {}
        for name in COLLECTIONS:
            given = self.given[name]
            rows = {id: row for id, row in getattr(self, name).items() if row != given[id]}  # noqa: A001
            if rows:
                found[name] = deepcopy(rows)
        return found

    # -- look-ups ----------------------------------------------------------------------------------------

    def get_order_details(self, order_id: str) -> Row:
        # "`get_*_details` answer the row or `Error: order|user|product not found`"
        if order_id not in self.orders:
            raise Refusal("Error: order not found")
        return self.orders[order_id]

    def get_user_details(self, user_id: str) -> Row:
        # "`get_*_details` answer the row or `Error: order|user|product not found`"
        if user_id not in self.users:
            raise Refusal("Error: user not found")
        return self.users[user_id]

    def get_product_details(self, product_id: str) -> Row:
        # "`get_*_details` answer the row or `Error: order|user|product not found`"
        if product_id not in self.products:
            raise Refusal("Error: product not found")
        return self.products[product_id]

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:  # noqa: A002
        # "`find_user_id_by_name_zip` (names compared without case) and `find_user_id_by_email` answer the id
        # or `Error: user not found`". Read as: the zip is compared exactly; of several the first of the store.
        for user_id, user in self.users.items():
            name = user["name"]
            if (
                name["first_name"].lower() == first_name.lower()
                and name["last_name"].lower() == last_name.lower()
                and user["address"]["zip"] == zip
            ):
                return user_id
        raise Refusal("Error: user not found")

    def find_user_id_by_email(self, email: str) -> str:
        # As above. The benchmark compares addresses without case, too.
        for user_id, user in self.users.items():
            if user["email"].lower() == email.lower():
                return user_id
        raise Refusal("Error: user not found")

    def list_all_product_types(self) -> dict[str, str]:
        # "`list_all_product_types` answers a JSON object name -> product id, sorted by name". Read as: in the
        # order of characters, capital letters before small ones.
        named = {product["name"]: product["product_id"] for product in self.products.values()}
        return dict(sorted(named.items()))

    # -- what touches no row -----------------------------------------------------------------------------

    def calculate(self, expression: str) -> str:
        # "only the characters `0-9 + - * / ( ) .` and space, else `Error: invalid characters in expression`"
        if not all(character in ALLOWED for character in expression):
            raise Refusal("Error: invalid characters in expression")
        # "answers the value rounded to 2 places, as text". Read as: of a decimal number, so 2 + 2 is `4.0`.
        return str(round(_value(expression), 2))

    def think(self, thought: str) -> str:
        # "`think` answers an empty text"
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        # "`transfer_to_human_agents` answers `Transfer successful`"
        return "Transfer successful"

    # -- addresses ---------------------------------------------------------------------------------------

    def modify_pending_order_address(self, order_id: str, **address: str) -> Row:
        order = self._pending_order(order_id, "Error: non-pending order cannot be modified")
        # "`modify_pending_order_address`, `modify_user_address` (...): replace the address"
        order["address"] = _address(**address)
        return order

    def modify_user_address(self, user_id: str, **address: str) -> Row:
        # "`modify_user_address` (`Error: user not found`)"
        if user_id not in self.users:
            raise Refusal("Error: user not found")
        # "replace the address"
        user = self.users[user_id]
        user["address"] = _address(**address)
        return user

    # -- pending orders ----------------------------------------------------------------------------------

    def cancel_pending_order(self, order_id: str, reason: str) -> Row:
        order = self._pending_order(order_id, "Error: non-pending order cannot be cancelled")
        # "reason must be `no longer needed` or `ordered by mistake`, else `Error: invalid reason`"
        if reason not in REASONS:
            raise Refusal("Error: invalid reason")

        # "One refund entry per payment in the history is appended". Read as: for each entry of the list
        # `payment_history` as it is before, also where an entry is itself a refund of an earlier change.
        for paid in list(order["payment_history"]):
            order["payment_history"].append(_entry("refund", paid["amount"], paid["payment_method_id"]))
            # "a refund to a gift card raises its balance at once (rounded to 2 places)"
            self._move_balance(order, paid["payment_method_id"], paid["amount"])
        # "Status `cancelled`, `cancel_reason` set"
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        return order

    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Row:
        order = self._pending_order(order_id, "Error: non-pending order cannot be modified")
        variants = self._variants(order, item_ids, new_item_ids)
        method = self._method(order, payment_method_id)
        # "The difference is the sum of new minus old prices"; only the exchange rounds it.
        difference = _difference(order, item_ids, variants)
        # "a gift card with less than the price difference: `Error: insufficient gift card balance to pay for
        # the new item` (modify)"
        if method["source"] == "gift_card" and method["balance"] < difference:
            raise Refusal("Error: insufficient gift card balance to pay for the new item")

        # "Modify appends one entry (`payment` when the difference is above zero, else `refund`; the amount is
        # its absolute value, not rounded)"
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(_entry(kind, abs(difference), payment_method_id))
        # "takes it from a gift card's balance (rounded)". Read as: it is the difference, so a refund is added.
        self._move_balance(order, payment_method_id, -difference)
        # "replaces `item_id`, `price` and `options` of each item". Read as: one after the other, each time in
        # the first item of the order that has the id by then.
        for item_id, variant in zip(item_ids, variants, strict=True):
            item = _item(order, item_id)
            item["item_id"] = variant["item_id"]
            item["price"] = variant["price"]
            item["options"] = deepcopy(variant["options"])
        # "status `pending (item modified)`"
        order["status"] = "pending (item modified)"
        return order

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Row:
        order = self._pending_order(order_id, "Error: non-pending order cannot be modified")
        # "unknown method: `Error: payment method not found`"
        method = self._method(order, payment_method_id)
        # "more than one entry or a first entry that is no payment: `Error: there should be exactly one payment
        # for a pending order`". Read as: where there is no entry, the first one is no payment either.
        history = order["payment_history"]
        if len(history) > 1 or not history or history[0]["transaction_type"] != "payment":
            raise Refusal("Error: there should be exactly one payment for a pending order")
        amount, old_id = history[0]["amount"], history[0]["payment_method_id"]
        # "same method: `Error: the new payment method should be different from the current one`"
        if payment_method_id == old_id:
            raise Refusal("Error: the new payment method should be different from the current one")
        # "gift card too low: `Error: insufficient gift card balance to pay for the order`"
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise Refusal("Error: insufficient gift card balance to pay for the order")

        # "Appends a payment with the new method and a refund to the old one"
        history.append(_entry("payment", amount, payment_method_id))
        history.append(_entry("refund", amount, old_id))
        # "and moves gift card balances (rounded)"
        self._move_balance(order, payment_method_id, -amount)
        self._move_balance(order, old_id, amount)
        return order

    # -- delivered orders --------------------------------------------------------------------------------

    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Row:
        order = self._delivered_order(order_id, "Error: non-delivered order cannot be exchanged")
        variants = self._variants(order, item_ids, new_item_ids)
        method = self._method(order, payment_method_id)
        # "The difference is the sum of new minus old prices; exchange rounds it to 2 places before the gift
        # card check"
        difference = round(_difference(order, item_ids, variants), 2)
        # "a gift card with less than the price difference: `Error: insufficient gift card balance to pay for
        # the new item` (modify) or `... for the price difference` (exchange)"
        if method["source"] == "gift_card" and method["balance"] < difference:
            raise Refusal("Error: insufficient gift card balance to pay for the price difference")

        # "stores `exchange_items` and `exchange_new_items` (both sorted), `exchange_payment_method_id`,
        # `exchange_price_difference`, status `exchange requested`"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = payment_method_id
        order["exchange_price_difference"] = difference
        order["status"] = "exchange requested"
        return order

    def return_delivered_order_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> Row:
        order = self._delivered_order(order_id, "Error: non-delivered order cannot be returned")
        # "unknown method: `Error: payment method not found`"
        method = self._method(order, payment_method_id)
        # "neither a gift card nor the original method: `Error: payment method should be either the original
        # payment method or a gift card`". Read as: the original method is that of the first entry.
        original = [entry["payment_method_id"] for entry in order["payment_history"][:1]]
        if method["source"] != "gift_card" and payment_method_id not in original:
            raise Refusal("Error: payment method should be either the original payment method or a gift card")
        # "item asked more often than present: `Error: some item not found`"
        if any(item_ids.count(item_id) > _present(order, item_id) for item_id in item_ids):
            raise Refusal("Error: some item not found")

        # "Status `return requested`, `return_items` sorted, `return_payment_method_id`"
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = payment_method_id
        return order

    # -- rules that several tools share ------------------------------------------------------------------

    def _pending_order(self, order_id: str, refusal: str) -> Row:
        # "every order tool: unknown order `Error: order not found`; wrong status: `Error: non-pending order
        # cannot be cancelled` (cancel), `Error: non-pending order cannot be modified` (the three modify tools)"
        if order_id not in self.orders:
            raise Refusal("Error: order not found")
        order = self.orders[order_id]
        if order["status"] != "pending":
            raise Refusal(refusal)
        return order

    def _delivered_order(self, order_id: str, refusal: str) -> Row:
        # "every order tool: unknown order `Error: order not found`; wrong status: [...] `Error: non-delivered
        # order cannot be exchanged`, `Error: non-delivered order cannot be returned`"
        if order_id not in self.orders:
            raise Refusal("Error: order not found")
        order = self.orders[order_id]
        if order["status"] != "delivered":
            raise Refusal(refusal)
        return order

    def _variants(self, order: Row, item_ids: list[str], new_item_ids: list[str]) -> list[Row]:
        """The variants to come, side by side with the items to go."""
        # "an item id asked for more often than the order has it: `Error: {id} not found`". Read as: the first
        # of the list that is asked for too often in the whole list.
        for item_id in item_ids:
            if item_ids.count(item_id) > _present(order, item_id):
                raise Refusal(f"Error: {item_id} not found")
        # "unequal list lengths: `Error: the number of items to be exchanged should match`"
        if len(item_ids) != len(new_item_ids):
            raise Refusal("Error: the number of items to be exchanged should match")
        # "a new item must be an available variant of the same product, else `Error: new item {id} not found or
        # available`"
        variants = []
        for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
            product = self.products[_item(order, item_id)["product_id"]]
            variant = product["variants"].get(new_item_id)
            if variant is None or not variant["available"]:
                raise Refusal(f"Error: new item {new_item_id} not found or available")
            variants.append(variant)
        return variants

    def _method(self, order: Row, payment_method_id: str) -> Row:
        # "unknown payment method of the order's user: `Error: payment method not found`"
        methods: dict[str, Row] = self.users[order["user_id"]]["payment_methods"]
        if payment_method_id not in methods:
            raise Refusal("Error: payment method not found")
        return methods[payment_method_id]

    def _move_balance(self, order: Row, payment_method_id: str, amount: float) -> None:
        """Raise the balance of a gift card, "rounded to 2 places"; no other method has one.

        Read as: a method that the user has no more is no gift card.
        """
        method = self.users[order["user_id"]]["payment_methods"].get(payment_method_id, {})
        if method.get("source") == "gift_card":
            method["balance"] = round(method["balance"] + amount, 2)


def _entry(kind: str, amount: float, payment_method_id: str) -> Row:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}


def _address(*, address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Row:  # noqa: A002
    return {
        "address1": address1,
        "address2": address2,
        "city": city,
        "state": state,
        "country": country,
        "zip": zip,
    }


def _present(order: Row, item_id: str) -> int:
    """How often an order has an item."""
    return sum(item["item_id"] == item_id for item in order["items"])


def _item(order: Row, item_id: str) -> Row:
    """The first item of an order that has an id."""
    return next(item for item in order["items"] if item["item_id"] == item_id)


def _difference(order: Row, item_ids: list[str], variants: list[Row]) -> float:
    """ "The difference is the sum of new minus old prices": of each pair, from left to right.

    The old price is what stands in the order, which need not be today's price of that variant.
    """
    difference: float = 0
    for item_id, variant in zip(item_ids, variants, strict=True):
        difference += variant["price"] - _item(order, item_id)["price"]
    return difference


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _value(expression: str) -> float:
    """The value of numbers, `+ - * /` and parentheses, with the precedence that everybody has learnt."""
    try:
        return float(_value_of(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, ArithmeticError) as error:
        raise Unsaid(expression) from error


def _value_of(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp):
        value = _value_of(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result: float = _OPERATORS[type(node.op)](_value_of(node.left), _value_of(node.right))
        return result
    raise Unsaid(ast.unparse(node))
