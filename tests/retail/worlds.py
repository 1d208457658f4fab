"""Small retail worlds and odd sessions over them, made from seeds.

A world has the shape of the published one (orders, users, products, each keyed by id). Money is laid so that
edges are met: gift cards hold exactly what something costs, a cent less or a cent more. Some users have no more a
method that their payments name. A session visits few orders of few users again and again, and spoils some of its
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from retail.reading import ALLOWED, REASONS, Row, Store

PRODUCTS = ("Laptop", "LED Strip", "T-Shirt", "Tea Kettle", "mug", "E-Reader", "Electric Kettle")
FIRST = ("Mia", "Noah", "MIA", "Aarav", "Zoë")
LAST = ("Lee", "van Dyk", "Lee", "Ng", "McCoy")
ZIPS = ("10001", "02134", "10001", "94016")
CITIES = ("Oslo", "Austin", "Graz")
STATUSES = ("pending", "pending", "pending", "delivered", "delivered", "processed", "cancelled")
SOURCES = (
    ("gift_card",),
    ("credit_card", "gift_card"),
    ("gift_card", "paypal", "gift_card"),
    ("credit_card", "paypal", "gift_card"),
)
CENT = 0.01

NEEDED = {
    "cancel_pending_order": "pending",
    "modify_pending_order_address": "pending",
    "modify_pending_order_items": "pending",
    "modify_pending_order_payment": "pending",
    "exchange_delivered_order_items": "delivered",
    "return_delivered_order_items": "delivered",
}
"""Order tool -> the status that it asks for."""

OTHERS = (
    "calculate",
    "find_user_id_by_email",
    "find_user_id_by_name_zip",
    "get_order_details",
    "get_product_details",
    "get_user_details",
    "list_all_product_types",
    "modify_user_address",
    "think",
    "transfer_to_human_agents",
)
TOOLS = (*NEEDED, *OTHERS)


class ToolCall(NamedTuple):
    """One call of a session."""

    tool: str
    arguments: dict[str, Any]


def world(seed: int, size: int = 1) -> Store:
    """A world of about four products, and for each of its size six users and eighteen orders."""
    draw = Random(f"world {seed}")
    products = _products(draw)
    users = _users(draw, draw.randint(4, 7) * size)
    orders: dict[str, Row] = {}
    for user_id, user in users.items():
        for _ in range(draw.randint(2, 4)):
            order = _order(draw, f"#W{len(orders) + 1000}", user_id, user, products)
            orders[order["order_id"]] = order
            user["orders"].append(order["order_id"])
        _fill_gift_cards(draw, [orders[id] for id in user["orders"]], user, products)  # noqa: A001
        _drop_a_method(draw, user["payment_methods"])
    return {"orders": orders, "users": users, "products": products}


def _products(draw: Random) -> dict[str, Row]:
    products = {}
    for number, name in enumerate(draw.sample(PRODUCTS, draw.randint(3, 5))):
        product_id = str(7000 + 13 * number)
        lowest = draw.randint(5, 90) * 100
        variants = {}
        for item_id in _item_ids(draw, number):
            variants[item_id] = {
                "item_id": item_id,
                "options": {"color": draw.choice(("red", "blue")), "size": draw.choice("SML")},
                "available": draw.random() < 0.75,
                "price": _price(draw, lowest),
            }
        products[product_id] = {"name": name, "product_id": product_id, "variants": variants}
    return products


def _item_ids(draw: Random, number: int) -> list[str]:
    """Digits of unequal length, so that texts sort otherwise than numbers do; each belongs to one product."""
    lengths = draw.choices((3, 4, 5), k=draw.randint(3, 6))
    ids = (f"{draw.randint(1, 9)}{number}{draw.randrange(10 ** (length - 2))}" for length in lengths)
    return list(dict.fromkeys(ids))


def _price(draw: Random, lowest: int) -> float:
    cents = lowest + draw.choice((0, 0, 1, 10, 20, 30, 55, 70, 90, draw.randint(0, 3000)))
    return cents // 100 if draw.random() < 0.1 else cents / 100


def _users(draw: Random, many: int) -> dict[str, Row]:
    users = {}
    for number in range(many):
        name = {"first_name": draw.choice(FIRST), "last_name": draw.choice(LAST)}
        sources = draw.choice(SOURCES)
        methods = [_method(draw, source, f"{number}{place}") for place, source in enumerate(sources)]
        users[f"{name['first_name']}_{name['last_name']}_{number}".lower().replace(" ", "_")] = {
            "name": name,
            "address": _address(draw),
            "email": f"{name['first_name']}.{number}@example.com",
            "payment_methods": {method["id"]: method for method in methods},
            "orders": [],
        }
    return users


def _method(draw: Random, source: str, number: str) -> Row:
    method = {"source": source, "id": f"{source}_{number}"}
    if source == "credit_card":
        method |= {"brand": draw.choice(("visa", "mastercard")), "last_four": "0012"}
    if source == "gift_card":
        method |= {"balance": draw.choice((0, 7, draw.randint(0, 300), draw.randint(0, 30000) / 100))}
    return method


def _address(draw: Random) -> Row:
    return {
        "address1": f"{draw.randint(1, 99)} Elm Street",
        "address2": draw.choice(("", "Suite 2")),
        "city": draw.choice(CITIES),
        "country": "USA",
        "state": "TX",
        "zip": draw.choice(ZIPS),
    }


def _order(draw: Random, order_id: str, user_id: str, user: Row, products: Mapping[str, Row]) -> Row:
    items = [_bought(draw, products) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.4:
        items.insert(draw.randrange(len(items) + 1), dict(draw.choice(items)))
    prices = {item["item_id"]: item["price"] for item in items}
    for item in items:
        item["price"] = prices[item["item_id"]]  # one price for all of the same in one order
    item_ids = [item["item_id"] for item in items]
    return {
        "order_id": order_id,
        "user_id": user_id,
        "address": _address(draw),
        "items": items,
        "fulfillments": [{"tracking_id": [str(draw.randrange(10**9))], "item_ids": item_ids}],
        "status": draw.choice(STATUSES),
        "payment_history": _history(draw, items, list(user["payment_methods"])),
    }


def _bought(draw: Random, products: Mapping[str, Row]) -> Row:
    product = draw.choice(list(products.values()))
    variant = draw.choice(list(product["variants"].values()))
    price = (
        variant["price"] if draw.random() < 0.8 else round(variant["price"] + draw.randint(-30, 30) / 10, 2)
    )
    return {
        "name": product["name"],
        "product_id": product["product_id"],
        "item_id": variant["item_id"],
        "price": price,
        "options": dict(variant["options"]),
    }


def _history(draw: Random, items: Sequence[Row], methods: Sequence[str]) -> list[Row]:
    total = round(sum(item["price"] for item in items), 2)
    kinds = draw.choices(
        (["payment"], ["payment", "payment"], ["payment", "refund"], ["refund"], []), weights=(80, 7, 5, 5, 3)
    )[0]
    return [
        {
            "transaction_type": kind,
            "amount": total if number == 0 else round(total / 3, 2),
            "payment_method_id": draw.choice(methods),
        }
        for number, kind in enumerate(kinds)
    ]


def _fill_gift_cards(draw: Random, orders: Sequence[Row], user: Row, products: Mapping[str, Row]) -> None:
    """Lay balances upon edges: what something costs, a cent less, a cent more."""
    for method_id, method in user["payment_methods"].items():
        if method["source"] != "gift_card" or draw.random() < 0.25:
            continue
        edges = [found for found in (_dues(orders, method_id), _rises(orders, products)) if found]
        edge = draw.choice(draw.choice(edges or [[5]]))
        method["balance"] = max(round(edge + draw.choice((-CENT, 0, 0, CENT)), 2), 0)


def _drop_a_method(draw: Random, methods: dict[str, Row]) -> None:
    """Now and then a user has one method less than the payments name."""
    if len(methods) > 1 and draw.random() < 0.15:
        del methods[draw.choice(list(methods))]


def _dues(orders: Sequence[Row], method_id: str) -> list[float]:
    """What pending orders cost that are paid otherwise."""
    histories = [order["payment_history"] for order in orders if order["status"] == "pending"]
    return [
        history[0]["amount"]
        for history in histories
        if len(history) == 1 and history[0]["payment_method_id"] != method_id
    ]


def _rises(orders: Sequence[Row], products: Mapping[str, Row]) -> list[float]:
    """By how much items of pending and delivered orders could become dearer."""
    return [
        round(variant["price"] - item["price"], 2)
        for order in orders
        if order["status"] in {"pending", "delivered"}
        for item in order["items"]
        for variant in products[item["product_id"]]["variants"].values()
        if variant["available"] and variant["price"] > item["price"]
    ]


def session(
    seed: str, store: Store, tool: str | None = None, reasons: Sequence[str] = REASONS
) -> list[ToolCall]:
    """The calls of one session.

    Args:
        seed: Equal seeds give equal sessions over equal worlds.
        store: The world.
        tool: Four calls of five are of it; unless given, any.
        reasons: From which a cancellation chooses.
    """
    draw = Random(f"session {seed}")
    return _Shopper(draw, store, draw.choice((0.0, 0.08, 0.3)), reasons).session(tool)


class _Shopper:
    """Makes calls around one user of a world, and spoils an argument now and then."""

    def __init__(self, draw: Random, store: Store, spoil: float, reasons: Sequence[str]) -> None:
        self.draw = draw
        self.store = store
        self.spoil = spoil
        self.reasons = reasons
        self.user_id = draw.choice(list(store["users"]))
        self.variants = {
            item_id: variant
            for product in store["products"].values()
            for item_id, variant in product["variants"].items()
        }
        self.visited: dict[str, list[str]] = {}

    def session(self, tool: str | None) -> list[ToolCall]:
        return [self._call(tool) for _ in range(self.draw.randint(1, 6))]

    def _call(self, tool: str | None) -> ToolCall:
        draw = self.draw
        if tool is None or draw.random() < 0.2:
            tool = draw.choice(OTHERS) if draw.random() < 0.25 else draw.choice(list(NEEDED))
        makers: dict[str, Callable[[str], dict[str, Any]]] = {
            "cancel_pending_order": self._cancel,
            "modify_pending_order_payment": self._payment,
            "modify_pending_order_items": self._swap,
            "exchange_delivered_order_items": self._swap,
            "return_delivered_order_items": self._return,
            "modify_pending_order_address": self._order_address,
            "modify_user_address": self._user_address,
        }
        return ToolCall(tool, makers[tool](tool) if tool in makers else self._looked_up(tool))

    def _spoilt(self) -> bool:
        return self.draw.random() < self.spoil

    def _order_id(self, tool: str) -> str:
        """An order of the user in the status that the tool needs, most likely one that was visited before."""
        if self._spoilt():
            return self.draw.choice(("#W9", "W1000", "", *self.draw.sample(list(self.store["orders"]), 3)))
        status = NEEDED.get(tool, "pending")
        visited = self.visited.setdefault(status, [])
        if not visited or self.draw.random() < 0.3:
            orders = self.store["orders"]
            fit = [id for id, order in orders.items() if order["status"] == status]  # noqa: A001
            own = [id for id in fit if orders[id]["user_id"] == self.user_id]  # noqa: A001
            visited.append(self.draw.choice(own or fit or list(orders)))
        return self.draw.choice(visited)

    def _order(self, order_id: str) -> Row:
        orders = self.store["orders"]
        return orders[order_id] if order_id in orders else self.draw.choice(list(orders.values()))

    def _method_id(self, order: Row) -> str:
        users = self.store["users"]
        if self._spoilt():
            strange = [id for user in users.values() for id in user["payment_methods"]]  # noqa: A001
            return self.draw.choice((*strange, "gift_card_none", ""))
        own = list(users[order["user_id"]]["payment_methods"])
        cards = [id for id in own if id.startswith("gift_card")]  # noqa: A001
        return self.draw.choice(cards if cards and self.draw.random() < 0.5 else own)

    def _item_ids(self, order: Row) -> list[str]:
        ids = [item["item_id"] for item in order["items"]]
        chosen = self.draw.sample(ids, self.draw.randint(0 if self._spoilt() else 1, len(ids)))
        if self._spoilt():
            chosen.insert(self.draw.randint(0, len(chosen)), self.draw.choice((*ids, *self.variants, "5")))
        return chosen

    def _new_item_id(self, item_id: str) -> str:
        if self._spoilt() or item_id not in self.variants:
            return self.draw.choice((*self.variants, item_id, "5"))
        product = next(p for p in self.store["products"].values() if item_id in p["variants"])
        here = [id for id, variant in product["variants"].items() if variant["available"]]  # noqa: A001
        return self.draw.choice(here or list(product["variants"]))

    def _cancel(self, tool: str) -> dict[str, Any]:
        return {"order_id": self._order_id(tool), "reason": self.draw.choice(self.reasons)}

    def _payment(self, tool: str) -> dict[str, Any]:
        order_id = self._order_id(tool)
        order = self._order(order_id)
        current = [entry["payment_method_id"] for entry in order["payment_history"][:1]]
        method_id = self._method_id(order)
        if method_id in current:  # a second draw, since most methods would be the current one
            method_id = self._method_id(order)
        return {"order_id": order_id, "payment_method_id": method_id}

    def _return(self, tool: str) -> dict[str, Any]:
        order_id = self._order_id(tool)
        order = self._order(order_id)
        return {
            "order_id": order_id,
            "item_ids": self._item_ids(order),
            "payment_method_id": self._method_id(order),
        }

    def _swap(self, tool: str) -> dict[str, Any]:
        given = self._return(tool)
        new = [self._new_item_id(item_id) for item_id in given["item_ids"]]
        if self._spoilt():
            new = (
                new[1:] if new and self.draw.random() < 0.5 else [*new, self.draw.choice(list(self.variants))]
            )
        return {
            "order_id": given["order_id"],
            "item_ids": given["item_ids"],
            "new_item_ids": new,
            "payment_method_id": given["payment_method_id"],
        }

    def _order_address(self, tool: str) -> dict[str, Any]:
        return {"order_id": self._order_id(tool), **_address(self.draw)}

    def _user_address(self, tool: str) -> dict[str, Any]:
        user_id = "nobody_0" if self._spoilt() else self.user_id
        return {"user_id": user_id, **_address(self.draw)}

    def _looked_up(self, tool: str) -> dict[str, Any]:
        draw, users = self.draw, self.store["users"]
        user = users[self.user_id if draw.random() < 0.6 else draw.choice(list(users))]
        name = user["name"]
        case = draw.choice((str, str.upper, str.lower, str.title))
        makers: dict[str, Callable[[], dict[str, Any]]] = {
            "calculate": lambda: {"expression": self._expression()},
            "find_user_id_by_email": lambda: {
                "email": self._or_strange(user["email"], user["email"].upper())
            },
            "find_user_id_by_name_zip": lambda: {
                "first_name": self._or_strange(case(name["first_name"]), name["last_name"]),
                "last_name": self._or_strange(case(name["last_name"]), ""),
                "zip": self._or_strange(user["address"]["zip"], "94016"),
            },
            "get_order_details": lambda: {"order_id": self._order_id(tool)},
            "get_product_details": lambda: {
                "product_id": self._or_strange(draw.choice(list(self.store["products"])), "7001")
            },
            "get_user_details": lambda: {
                "user_id": self._or_strange(self.user_id, self.user_id.upper() + "_")
            },
            "list_all_product_types": dict,
            "think": lambda: {"thought": draw.choice(("", "so", "{{ args }}"))},
            "transfer_to_human_agents": lambda: {"summary": draw.choice(("", "help"))},
        }
        return makers[tool]()

    def _or_strange(self, good: str, strange: str) -> str:
        return strange if self._spoilt() else good

    def _expression(self) -> str:
        text = self._term(2)
        if self._spoilt():
            place = self.draw.randint(0, len(text))
            return text[:place] + self.draw.choice("a,^%_=\n\t٣e") + text[place:]
        assert all(character in ALLOWED for character in text)
        return text

    def _term(self, depth: int) -> str:
        draw = self.draw
        if depth == 0 or draw.random() < 0.2:
            return draw.choice(
                (str(draw.randint(1, 500)), f"{draw.randint(1, 99999) / 100}", "2.675", "0.125")
            )
        sign = draw.choice(("+", "-", "*", "/", " + ", " - ", " * ", " / "))
        right = self._term(0) if "/" in sign else self._term(depth - 1)  # a number is never 0
        left = self._term(depth - 1)
        text = f"{left}{sign}{right}"
        return f"({text})" if draw.random() < 0.4 else text
