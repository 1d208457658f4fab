"""A pack as large as an airline's service desk against the same tools in plain Python, in random calls."""

from __future__ import annotations

import asyncio
import random
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Outcome, Runtime

ROOT = Path(__file__).parents[2]


@pytest.fixture
def airline(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("airline", None)
    import airline  # noqa: PLC0415 -- the benchmarks are not a package

    return airline


def drawn(draw: random.Random, world: Any, airline: Any) -> tuple[str, dict[str, Any]]:
    """A call: mostly of rows that exist, sometimes of others."""
    user = draw.choice([*world.users, "nobody"])
    key = draw.choice([*world.reservations, "R-none"])
    owner = world.users.get(world.reservations.get(key, {}).get("user_id", ""), {"payment_methods": {}})
    method = draw.choice([*owner["payment_methods"], "credit_card_none"])
    origin, destination = draw.choice([*airline.AIRPORTS]), draw.choice([*airline.AIRPORTS])
    day = draw.choice([*airline.DAYS, "2024-06-30"])
    flights = [
        {"flight_number": draw.choice([*world.flights, "HAT999"]), "date": draw.choice(airline.DAYS)}
        for _ in range(draw.randrange(1, 3))
    ]
    held = world.reservations.get(key, {}).get("flights", [])
    if held and draw.random() < 0.4:
        flights = [{"flight_number": held[0]["flight_number"], "date": held[0]["date"]}]
    people = [
        {"first_name": "A", "last_name": str(n), "dob": "2000-01-01"} for n in range(draw.randrange(1, 3))
    ]
    bags = draw.randrange(0, 4)
    cabin = draw.choice(airline.CABINS)
    calls: dict[str, dict[str, Any]] = {
        "get_user_details": {"user_id": user},
        "get_reservation_details": {"reservation_id": key},
        "list_all_airports": {},
        "search_direct_flight": {"origin": origin, "destination": destination, "date": day},
        "search_onestop_flight": {"origin": origin, "destination": destination, "date": day},
        "cancel_reservation": {"reservation_id": key},
        "send_certificate": {"user_id": user, "amount": draw.randrange(0, 300)},
        "update_reservation_baggages": {
            "reservation_id": key,
            "total_baggages": bags + 1,
            "nonfree_baggages": bags,
            "payment_id": method,
        },
        "update_reservation_flights": {
            "reservation_id": key,
            "cabin": cabin,
            "flights": flights,
            "payment_id": method,
        },
        "update_reservation_passengers": {"reservation_id": key, "passengers": people},
        "book_reservation": booking(draw, world, user, flights, people, bags, cabin),
    }
    name = draw.choice([*calls, "book_reservation", "update_reservation_flights"])
    return name, calls[name]


def booking(
    draw: random.Random, world: Any, user: str, flights: Any, people: Any, bags: int, cabin: str
) -> dict[str, Any]:
    """A booking that is often paid in full, with one or two methods."""
    days = [
        world.flights.get(each["flight_number"], {"dates": {}})["dates"].get(each["date"], {})
        for each in flights
    ]
    total = sum(day.get("prices", {}).get(cabin, 0) for day in days) * len(people) + 50 * bags
    methods = draw.sample([*world.users.get(user, {"payment_methods": {"x": 0}})["payment_methods"]], 1)
    part = draw.randrange(0, 100)
    payments = [{"payment_id": methods[0], "amount": total}]
    if draw.random() < 0.3:
        other = draw.choice(["credit_card_none", methods[0]])
        payments = [{"payment_id": methods[0], "amount": total - part}, {"payment_id": other, "amount": part}]
    if min(payment["amount"] for payment in payments) < 0:
        payments = [{"payment_id": methods[0], "amount": total}]
    return {
        "user_id": user,
        "origin": "ATL",
        "destination": "BOS",
        "flight_type": "one_way",
        "cabin": cabin,
        "flights": flights,
        "passengers": people,
        "payment_methods": payments,
        "total_baggages": bags,
        "nonfree_baggages": bags,
        "insurance": draw.choice(["no", "no", "yes"]),
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_pack_answers_and_changes_what_the_python_does(airline, tmp_path, monkeypatch, seed):
    store = airline.made_store(users=6, reservations=8, seed=seed)
    airline.write_store(store, tmp_path)
    monkeypatch.setenv("AIRLINE_DATA", str(tmp_path))
    world, draw = airline.Airline(store), random.Random(seed)
    errors = set()

    async def compare(session: Any) -> None:
        for _ in range(200):
            name, arguments = drawn(draw, world, airline)
            ours = await session.call(name, deepcopy(arguments))
            theirs = getattr(world, name)(**deepcopy(arguments))
            assert ours.outcome in {Outcome.OK, Outcome.TOOL_ERROR}, (name, arguments, ours.message)
            assert (ours.value if ours.outcome is Outcome.OK else ours.message) == theirs, (name, arguments)
            if ours.outcome is Outcome.TOOL_ERROR:
                errors.add(theirs.split(":")[1][:20])

    with Runtime.open(airline.PACK, index=False, strict=True) as tools:
        session = tools.session()
        asyncio.run(compare(session))
        rows = {name: session.store.rows(f"airline/{name}") for name in store}
    assert rows == {"flights": world.flights, "users": world.users, "reservations": world.reservations}
    assert len(errors) > 6


def test_it_has_no_problems_and_is_about_as_large_as_an_airline(airline, tmp_path, monkeypatch):
    airline.write_store(airline.made_store(users=6, reservations=8), tmp_path)
    monkeypatch.setenv("AIRLINE_DATA", str(tmp_path))
    with Runtime.open(airline.PACK, index=False, strict=True) as tools:
        assert [*tools.problems] == []
        assert len(tools) == 14
