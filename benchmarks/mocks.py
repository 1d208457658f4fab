"""Stateful mocks and rules: a new session, rule selection, the start of a scenario, calls that read and change rows.

The store is the retail data set of the shared data; if that is absent, one of its size is generated. It is compared with
hand-written functions over a copy of the store.

    python benchmarks/mocks.py
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import jsonschema_rs
from airline import PACK, Airline, write_store
from airline import made_store as made_airline
from calls import ARGUMENTS, a_round, runtime_of, weather
from rounds import Round, Row, interleaved, line

from toolcrib import Executors, Runtime, run_scenario
from toolcrib.executors.mock.rules import RuleIndex, choose_rule, compile_rules, index_rules
from toolcrib.executors.mock.variables import MockState
from toolcrib.loading.sources import parse

ROOT = Path(__file__).resolve().parents[1]

TASKS = 5
"""Tasks in one round, each in a fresh session."""

RULES = 1_000

CALLS = 2_000
"""Calls in one round, and choices among rules."""

SCENARIOS = 200
"""Scenarios in one round."""

Store = dict[str, dict[str, Any]]

Table = dict[str, tuple[dict[str, Any], int]]
"""One argument -> what all of them must be, and the answer."""


class ByHand:
    """Three tools of the shop, hand-written on a copy of the store, without validation."""

    def __init__(self, store: Store) -> None:
        copied = deepcopy(store)
        self.orders, self.users = copied["orders"], copied["users"]

    def get_user_details(self, user_id: str) -> Any:
        return self.users.get(user_id, "Error: user not found")

    def get_order_details(self, order_id: str) -> Any:
        return self.orders.get(order_id, "Error: order not found")

    def cancel_pending_order(self, order_id: str, reason: str) -> Any:
        order = self.orders.get(order_id)
        if order is None:
            return "Error: order not found"
        if order["status"] != "pending":
            return "Error: non-pending order cannot be cancelled"
        if reason not in {"no longer needed", "ordered by mistake"}:
            return "Error: invalid reason"
        methods = self.users[order["user_id"]]["payment_methods"]
        refunds = []
        for paid in order["payment_history"]:
            method = methods[paid["payment_method_id"]]
            refunds.append({**paid, "transaction_type": "refund"})
            if method["source"] == "gift_card":
                method["balance"] = round(method["balance"] + paid["amount"], 2)
        order["payment_history"] += refunds
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        return order


def made_store() -> Store:
    """A store of 1,000 orders, 500 users and 50 products."""
    address = {
        "address1": "1 Elm Street",
        "address2": "",
        "city": "Salem",
        "country": "USA",
        "state": "OR",
        "zip": "97301",
    }
    options = {"colour": "grey", "size": "M"}
    products = {
        str(number): {
            "name": f"Product {number}",
            "product_id": str(number),
            "variants": {
                f"{number}-{each}": {
                    "item_id": f"{number}-{each}",
                    "options": options,
                    "available": True,
                    "price": 10.5,
                }
                for each in range(12)
            },
        }
        for number in range(50)
    }
    users = {
        f"user_{number}": {
            "name": {"first_name": "Kim", "last_name": f"No{number}"},
            "address": address,
            "email": f"kim{number}@example.com",
            "payment_methods": {
                f"gift_card_{number}": {"source": "gift_card", "balance": 50, "id": f"gift_card_{number}"}
            },
            "orders": [f"#{number}", f"#{number + 500}"],
        }
        for number in range(500)
    }
    orders = {
        f"#{number}": {
            "order_id": f"#{number}",
            "user_id": f"user_{number % 500}",
            "address": address,
            "items": [
                {
                    "name": "Product 1",
                    "product_id": "1",
                    "item_id": f"1-{each}",
                    "price": 10.5,
                    "options": options,
                }
                for each in range(3)
            ],
            "fulfillments": [],
            "status": "pending",
            "payment_history": [
                {
                    "transaction_type": "payment",
                    "amount": 31.5,
                    "payment_method_id": f"gift_card_{number % 500}",
                }
            ],
        }
        for number in range(1_000)
    }
    return {"orders": orders, "users": users, "products": products}


@contextmanager
def world() -> Iterator[tuple[Store, Runtime]]:
    """The store, and the pack of the shop over it."""
    shared = Path(os.environ.get("TOOLCRIB_SHARED_DATA") or ROOT.parent / "shared" / "data") / "tau-retail"
    with TemporaryDirectory() as made:
        folder = shared if shared.is_dir() else Path(made)
        if folder is not shared:
            for name, rows in made_store().items():
                (folder / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
        names = ("orders", "users", "products")
        store = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
        before = os.environ.get("TAU_RETAIL_DATA")
        os.environ["TAU_RETAIL_DATA"] = str(folder)
        try:
            yield store, Runtime.open(ROOT / "packs" / "retail", index=False, strict=True)
        finally:
            if before is None:
                del os.environ["TAU_RETAIL_DATA"]
            else:
                os.environ["TAU_RETAIL_DATA"] = before


def tasks_of(store: Store) -> list[list[tuple[str, dict[str, Any]]]]:
    """Look up a customer and a pending order of theirs, and cancel it."""
    pending = [order for order in store["orders"].values() if order["status"] == "pending"]
    return [
        [
            ("get_user_details", {"user_id": order["user_id"]}),
            ("get_order_details", {"order_id": order["order_id"]}),
            ("cancel_pending_order", {"order_id": order["order_id"], "reason": "no longer needed"}),
        ]
        for order in pending[:TASKS]
    ]


def fresh_stores(loop: asyncio.AbstractEventLoop, rounds: int = 30) -> Row:
    """A new session and the calls of a task, and the same with functions on a copy of the store."""
    with world() as (store, tools):
        tasks = tasks_of(store)

        async def ours() -> list[list[Any]]:
            answers = []
            for task in tasks:
                session = tools.session()
                answers.append([(await session.call(name, arguments)).value for name, arguments in task])
            return answers

        def by_hand() -> list[list[Any]]:
            answers = []
            for task in tasks:
                shop = ByHand(store)
                answers.append([getattr(shop, name)(**arguments) for name, arguments in task])
            return answers

        assert [task[-1] for task in loop.run_until_complete(ours())] == [task[-1] for task in by_hand()]
        times = interleaved(
            {"ours": timed(lambda: loop.run_until_complete(ours()), TASKS), "by hand": timed(by_hand, TASKS)},
            rounds,
        )
    return Row(
        "new session over 1,550 rows, three calls",
        "hand-written, on copy.deepcopy of the store",
        times["ours"],
        times["by hand"],
        20,
        faster=True,
    )


def timed(work: Callable[[], object], count: int) -> Round:
    """A round of repeated work; its time is that of one repetition."""

    def round_() -> float:
        started = perf_counter()
        work()
        return (perf_counter() - started) / count

    return round_


def ruled(rules: int) -> dict[str, Any]:
    """A tool whose rules differ in one argument; each also requires a second one."""
    return {
        "name": f"of_{rules}",
        "input_schema": {"type": "object"},
        "mock": {
            "rules": [
                {"when": {"args": {"lot": f"lot-{number}", "kind": "auction"}}, "reply": {"result": number}}
                for number in range(rules)
            ]
        },
    }


def chosen_by_hand(table: Table, arguments: dict[str, Any]) -> int | None:
    """The result in a table under one argument, if the other argument matches."""
    found = table.get(arguments["lot"])
    if found is None:
        return None
    for key, value in found[0].items():
        if arguments.get(key) != value:
            return None
    return found[1]


def choosing(rounds: int = 40) -> Iterator[Row]:
    """Rule selection among 1,000 rules without the call around it, and a dictionary with a comparison.

    A hundred calls again and again stay in the processor's caches, as the other measures do; where each call is
    for another rule, what is measured is mostly memory.
    """
    tools = runtime_of(ruled(RULES))
    rules = compile_rules(tools.registry[f"of_{RULES}"], [])
    choice = index_rules(rules)
    assert choice is not None
    state = MockState()
    table = {
        f"lot-{number}": ({"lot": f"lot-{number}", "kind": "auction"}, number) for number in range(RULES)
    }
    for calls, times, what in (
        (100, 5, "100 repeated calls"),
        (RULES, None, "a different rule per call"),
    ):
        wanted = [{"lot": f"lot-{number % calls * 7 % RULES}", "kind": "auction"} for number in range(CALLS)]
        scopes: list[dict[str, Any]] = [{"args": arguments} for arguments in wanted]
        ours = partial(_chosen, choice, scopes, state)
        by_hand = partial(_chosen_by_hand, table, wanted)
        assert [rules.index(chosen[0]) for chosen in ours()[:20]] == by_hand()[:20]
        measured = interleaved({"ours": timed(ours, CALLS), "by hand": timed(by_hand, CALLS)}, rounds)
        yield Row(
            f"rule selection among {RULES:,} rules that differ in one argument, {what}",
            "dictionary look-up and comparison",
            measured["ours"],
            measured["by hand"],
            times,
        )


def _chosen(choice: RuleIndex, scopes: list[dict[str, Any]], state: MockState) -> list[Any]:
    return [choose_rule(choice.left_for(scope["args"]), scope, 1, state) for scope in scopes]


def _chosen_by_hand(table: Table, calls: list[dict[str, Any]]) -> list[Any]:
    return [chosen_by_hand(table, arguments) for arguments in calls]


def calls_of_rules(loop: asyncio.AbstractEventLoop, rounds: int = 15) -> Row:
    """A call that matches the last of 1,000 rules, and one that matches the last of two."""
    tools = runtime_of(ruled(RULES), ruled(2))
    last = {"lot": f"lot-{RULES - 1}", "kind": "auction"}
    times = interleaved(
        {
            "many": a_round(loop, partial(tools.call, f"of_{RULES}", last), CALLS),
            "few": a_round(loop, partial(tools.call, "of_2", {"lot": "lot-1", "kind": "auction"}), CALLS),
        },
        rounds,
    )
    return Row(f"mocked call, {RULES:,} rules", "2 rules", times["many"], times["few"], None)


def starts(loop: asyncio.AbstractEventLoop, rounds: int = 15) -> Row:
    """A scenario with one call over the large store, and one with a stateless mock."""
    kinds = Executors.installed()
    with world() as (store, tools):
        order = next(iter(store["orders"]))
        look_up: dict[str, Any] = {
            "scenario": "look_up",
            "steps": [{"call": "get_order_details", "args": {"order_id": order}}],
        }
        ask: dict[str, Any] = {"scenario": "ask", "steps": [{"call": "weather", "args": ARGUMENTS}]}
        (keeping,) = parse("benchmark.json", [look_up], kinds).scenarios
        (plain,) = parse("benchmark.json", [ask], kinds).scenarios
        others = runtime_of(weather())

        def run(runtime: Runtime, scenario: Any) -> Callable[[], Awaitable[object]]:
            return lambda: run_scenario(runtime, scenario)

        assert loop.run_until_complete(run_scenario(tools, keeping)).passed
        times = interleaved(
            {
                "keeping": a_round(loop, run(tools, keeping), SCENARIOS),
                "plain": a_round(loop, run(others, plain), SCENARIOS),
            },
            rounds,
        )
    return Row(
        "scenario with one look-up in 1,550 rows",
        "scenario with one stateless call",
        times["keeping"],
        times["plain"],
        None,
    )


def calls_of_stores(loop: asyncio.AbstractEventLoop, rounds: int = 30) -> Iterator[Row]:
    """Calls that read and change a row, and calls with the same fixed result."""
    with world() as (store, tools):
        order, user = next(iter(store["orders"])), next(iter(store["users"]))
        moved = {**store["users"][user]["address"], "zip": "00000"}
        for name, arguments, answer, what in (
            ("get_order_details", {"order_id": order}, store["orders"][order], "reads a row"),
            (
                "modify_user_address",
                {"user_id": user, **moved},
                {**store["users"][user], "address": moved},
                "changes a row",
            ),
        ):
            tool = tools.registry[name]
            schemas = {"input_schema": tool.input_schema, "output_schema": tool.output_schema}
            static = runtime_of({"name": name, **schemas, "mock": {"result": answer}})
            assert loop.run_until_complete(tools.call(name, arguments)).value == answer
            assert loop.run_until_complete(static.call(name, arguments)).value == answer
            times = interleaved(
                {
                    "stored": a_round(loop, partial(tools.call, name, arguments), CALLS),
                    "static": a_round(loop, partial(static.call, name, arguments), CALLS),
                },
                rounds,
            )
            yield Row(
                f"mocked call that {what} of 1,550",
                "the same result, fixed",
                times["stored"],
                times["static"],
                None,
            )


class CheckedByHand:
    """Two tools of the shop as a program that validates arguments, rows and results, with the shop's own schemas."""

    def __init__(self, store: Store, tools: Runtime) -> None:
        copied = deepcopy(store)
        self._orders, self._users = copied["orders"], copied["users"]
        self._judges = {
            name: (judge_of(tool.input_schema), judge_of(tool.output_schema))
            for name, tool in tools.registry.items()
            if name in {"get_order_details", "modify_user_address"}
        }
        users = tools.registry["modify_user_address"].fixture.collections["users"]
        self._judge_user = judge_of(users.schema)

    async def get_order_details(self, arguments: dict[str, Any]) -> Any:
        valid_arguments, valid_result = self._judges["get_order_details"]
        if not valid_arguments(arguments):
            raise ValueError("invalid arguments")
        order = self._orders.get(arguments["order_id"])
        if order is None:
            return "Error: order not found"
        if not valid_result(order):
            raise ValueError("invalid result")
        return copied(order)

    async def modify_user_address(self, arguments: dict[str, Any]) -> Any:
        valid_arguments, valid_result = self._judges["modify_user_address"]
        if not valid_arguments(arguments):
            raise ValueError("invalid arguments")
        user_id = arguments["user_id"]
        user = self._users.get(user_id)
        if user is None:
            return "Error: user not found"
        moved = {
            **user,
            "address": {
                "address1": arguments["address1"],
                "address2": arguments["address2"],
                "city": arguments["city"],
                "state": arguments["state"],
                "country": arguments["country"],
                "zip": arguments["zip"],
            },
        }
        if not self._judge_user(moved) or not valid_result(moved):
            raise ValueError("invalid result")
        self._users[user_id] = moved
        return copied(moved)


def copied(value: Any) -> Any:
    """A copy of a result, which the caller may change: the fastest one in plain Python."""
    if type(value) is dict:
        return {key: copied(item) if type(item) in CONTAINERS else item for key, item in value.items()}
    return [copied(item) if type(item) in CONTAINERS else item for item in value]


CONTAINERS = (dict, list)


def judge_of(schema: Any) -> Callable[[Any], bool]:
    """The validation of a schema."""
    return jsonschema_rs.validator_for(True if schema is None else schema).is_valid


def calls_by_hand(loop: asyncio.AbstractEventLoop, rounds: int = 40) -> Iterator[Row]:
    """Calls of the shop that read and change a row, and the same by hand, with the same validations."""
    with world() as (store, tools):
        order, user = next(iter(store["orders"])), next(iter(store["users"]))
        moved = {**store["users"][user]["address"], "zip": "00000"}
        by_hand = CheckedByHand(store, tools)
        for name, arguments, what in (
            ("get_order_details", {"order_id": order}, "reads"),
            ("modify_user_address", {"user_id": user, **moved}, "changes"),
        ):
            function = getattr(by_hand, name)
            answer = loop.run_until_complete(tools.call(name, arguments)).value
            assert answer == loop.run_until_complete(function(arguments)), answer
            times = interleaved(
                {
                    "ours": a_round(loop, partial(tools.call, name, arguments), CALLS),
                    # Rounds of about the same time: a shorter one would be affected less by other load.
                    "by hand": a_round(loop, partial(function, arguments), 4 * CALLS),
                },
                rounds,
            )
            yield Row(
                f"mocked call of packs/retail that {what} a row",
                "hand-written, with the same validations and a copy of the result",
                times["ours"],
                times["by hand"],
                4,
            )


class CheckedAirline(Airline):
    """Three tools of the airline, with the validations of the pack and a copy of each result."""

    def __init__(self, store: Store, tools: Runtime) -> None:
        super().__init__(store)
        self._valid_arguments = {name: judge_of(tool.input_schema) for name, tool in tools.registry.items()}
        fixture = tools.registry["get_reservation_details"].fixture
        self._valid_row = judge_of(fixture.collections["reservations"].schema)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        if not self._valid_arguments[name](arguments):
            raise ValueError("invalid arguments")
        answer = getattr(self, name)(**arguments)
        return answer if type(answer) is str else copied(answer)

    def update_reservation_passengers(self, reservation_id: str, passengers: list[Any]) -> Any:
        reservation = self.reservations.get(reservation_id)
        if reservation is None:
            return "Error: reservation not found"
        if len(passengers) != len(reservation["passengers"]):
            return "Error: number of passengers does not match"
        changed = {**reservation, "passengers": copied(passengers)}
        if not self._valid_row(changed):
            raise ValueError("invalid row")
        self.reservations[reservation_id] = changed
        return changed


@contextmanager
def airline() -> Iterator[tuple[Store, Runtime]]:
    """The store of the airline, and the pack over it."""
    store, before = made_airline(), os.environ.get("AIRLINE_DATA")
    with TemporaryDirectory() as folder:
        write_store(store, Path(folder))
        os.environ["AIRLINE_DATA"] = folder
        try:
            yield store, Runtime.open(PACK, index=False, strict=True)
        finally:
            del os.environ["AIRLINE_DATA"]
            if before is not None:
                os.environ["AIRLINE_DATA"] = before


def calls_of_airline(loop: asyncio.AbstractEventLoop, rounds: int = 40) -> Iterator[Row]:
    """Calls of a pack as large as an airline's, and the same by hand, with the same validations."""
    with airline() as (store, tools):
        key = next(iter(store["reservations"]))
        people = [
            {"first_name": "Ida", "last_name": "Quill", "dob": "1990-02-03"}
            for _ in store["reservations"][key]["passengers"]
        ]
        by_hand = CheckedAirline(store, tools)
        calls: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("get_reservation_details", {"reservation_id": key}, "reads a row"),
            ("update_reservation_passengers", {"reservation_id": key, "passengers": people}, "changes a row"),
            (
                "search_direct_flight",
                {"origin": "ATL", "destination": "BOS", "date": "2024-05-15"},
                "searches 60 rows",
            ),
        )
        for name, arguments, what in calls:
            answer = loop.run_until_complete(tools.call(name, arguments)).value
            assert answer == loop.run_until_complete(by_hand.call(name, arguments)), answer
            many = CALLS // 10 if name.startswith("search") else CALLS
            times = interleaved(
                {
                    "ours": a_round(loop, partial(tools.call, name, arguments), many),
                    "by hand": a_round(loop, partial(by_hand.call, name, arguments), 4 * many),
                },
                rounds,
            )
            yield Row(
                f"mocked call of a pack as large as an airline's that {what}",
                "hand-written, with the same validations and a copy of the result",
                times["ours"],
                times["by hand"],
                4,
            )


def rows() -> Iterator[Row]:
    """All measures of this file."""
    loop = asyncio.new_event_loop()
    try:
        yield fresh_stores(loop)
        yield from choosing()
        yield calls_of_rules(loop)
        yield starts(loop)
        yield from calls_of_stores(loop)
        yield from calls_by_hand(loop)
        yield from calls_of_airline(loop)
    finally:
        loop.close()


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
