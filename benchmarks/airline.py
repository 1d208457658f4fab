"""The fourteen tools of `benchmarks/airline` as plain Python, and a store for both.

The Python is what somebody would write who has no mock language: a class over the rows, in the order of the same rules.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from datetime import date, timedelta
from pathlib import Path
from typing import Any

PACK = Path(__file__).parent / "airline"

Store = dict[str, dict[str, Any]]

AIRPORTS = {
    "ATL": "Atlanta",
    "BOS": "Boston",
    "DEN": "Denver",
    "JFK": "New York",
    "LAX": "Los Angeles",
    "SEA": "Seattle",
}

CABINS = ("basic_economy", "economy", "business")

DAYS = ("2024-05-15", "2024-05-16", "2024-05-17")


def made_store(users: int = 500, reservations: int = 1_000, seed: int = 0) -> Store:
    """Flights between all airports, users with payment methods, and their reservations."""
    draw = random.Random(seed)
    flights: dict[str, Any] = {}
    pairs = [
        (origin, destination) for origin in AIRPORTS for destination in AIRPORTS if origin != destination
    ]
    for number, (origin, destination) in enumerate(pairs * 2):
        hour = draw.randrange(5, 22)
        end = hour + draw.randrange(2, 6)
        flights[f"HAT{number:03}"] = {
            "flight_number": f"HAT{number:03}",
            "origin": origin,
            "destination": destination,
            "scheduled_departure_time_est": f"{hour:02}:00:00",
            "scheduled_arrival_time_est": f"{end % 24:02}:00:00{'+1' if end > 23 else ''}",
            "dates": {day: _day(draw) for day in DAYS if draw.random() < 0.9},
        }
    people = {f"user_{number}": _user(draw, number) for number in range(users)}
    booked: dict[str, Any] = {}
    for number in range(reservations):
        owner = f"user_{number % users}"
        key = f"R{number:05}"
        booked[key] = _reservation(draw, key, owner, people[owner], flights)
        people[owner]["reservations"].append(key)
    return {"flights": flights, "users": people, "reservations": booked}


def _day(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.15:
        return {"status": "cancelled"}
    return {
        "status": "available",
        "available_seats": {cabin: draw.randrange(0, 9) for cabin in CABINS},
        "prices": {cabin: draw.randrange(50, 90) * (place + 1) for place, cabin in enumerate(CABINS)},
    }


def _user(draw: random.Random, number: int) -> dict[str, Any]:
    methods: list[dict[str, Any]] = [
        {"source": "credit_card", "id": f"credit_card_{number}"},
        {"source": "gift_card", "id": f"gift_card_{number}", "amount": draw.randrange(0, 900)},
        {"source": "certificate", "id": f"certificate_{number}", "amount": draw.randrange(100, 500)},
    ]
    return {
        "name": {"first_name": f"First{number}", "last_name": f"Last{number}"},
        "email": f"user{number}@example.com",
        "membership": draw.choice(["regular", "silver", "gold"]),
        "payment_methods": {method["id"]: method for method in methods},
        "reservations": [],
    }


def _reservation(
    draw: random.Random, key: str, owner: str, user: dict[str, Any], flights: dict[str, Any]
) -> dict[str, Any]:
    flight, day, cabin = draw.choice([*flights.values()]), draw.choice(DAYS), draw.choice(CABINS)
    price = draw.randrange(50, 300)
    return {
        "reservation_id": key,
        "user_id": owner,
        "origin": flight["origin"],
        "destination": flight["destination"],
        "flight_type": "one_way",
        "cabin": cabin,
        "flights": [
            {
                "flight_number": flight["flight_number"],
                "date": day,
                "price": price,
                "origin": flight["origin"],
                "destination": flight["destination"],
            }
        ],
        "passengers": [{**user["name"], "dob": "1990-01-01"} for _ in range(draw.randrange(1, 3))],
        "payment_history": [{"payment_id": next(iter(user["payment_methods"])), "amount": price}],
        "created_at": "2024-05-01T10:00:00",
        "total_baggages": 1,
        "nonfree_baggages": 0,
        "insurance": draw.choice(["yes", "no"]),
    }


def write_store(store: Store, folder: Path) -> None:
    """Write the files that the pack reads from the folder of `AIRLINE_DATA`."""
    for name, rows in store.items():
        (folder / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")


class Airline:
    """The tools over a copy of a store, without validation. An error is a text that begins with `Error: `."""

    def __init__(self, store: Store) -> None:
        copied = deepcopy(store)
        self.flights, self.users, self.reservations = (
            copied[name] for name in ("flights", "users", "reservations")
        )

    def get_user_details(self, user_id: str) -> Any:
        return self.users.get(user_id, "Error: user not found")

    def get_reservation_details(self, reservation_id: str) -> Any:
        return self.reservations.get(reservation_id, "Error: reservation not found")

    def list_all_airports(self) -> Any:
        return AIRPORTS

    def search_direct_flight(self, origin: str, destination: str, date: str) -> Any:
        return [
            _offer(flight, date)
            for flight in self.flights.values()
            if flight["origin"] == origin
            and flight["destination"] == destination
            and _available(flight, date)
        ]

    def search_onestop_flight(self, origin: str, destination: str, date: str) -> Any:
        found = []
        for first in self.flights.values():
            if first["origin"] != origin:
                continue
            late = "+1" in first["scheduled_arrival_time_est"]
            onward = _next_day(date) if late else date
            found += [
                [_offer(first, date), _offer(second, onward)]
                for second in self.flights.values()
                if second["origin"] == first["destination"]
                and second["destination"] == destination
                and first["scheduled_arrival_time_est"] <= second["scheduled_departure_time_est"]
                and _available(first, date)
                and _available(second, onward)
            ]
        return found

    def book_reservation(self, **args: Any) -> Any:
        user = self.users.get(args["user_id"])
        if user is None:
            return "Error: user not found"
        key = next((each for each in ("HATHAT", "HATHAU", "HATHAV") if each not in self.reservations), None)
        if key is None:
            return "Error: too many reservations"
        people, cabin, legs = len(args["passengers"]), args["cabin"], []
        for chosen in args["flights"]:
            error, leg = self._leg(chosen, cabin, people)
            if error:
                return error
            legs.append(leg)
        total = sum(leg["price"] for leg in legs) * people
        total += 30 * people if args["insurance"] == "yes" else 0
        total += 50 * args["nonfree_baggages"]
        methods = user["payment_methods"]
        error = _unpaid(methods, args["payment_methods"], total)
        if error:
            return error
        _charge(methods, args["payment_methods"])
        kept = {name: value for name, value in args.items() if name != "payment_methods"}
        self.reservations[key] = {
            **kept,
            "reservation_id": key,
            "flights": legs,
            "payment_history": args["payment_methods"],
            "created_at": "2024-05-15T15:00:00",
        }
        user["reservations"].append(key)
        return self.reservations[key]

    def _leg(self, chosen: dict[str, Any], cabin: str, people: int) -> tuple[str, Any]:
        number, day = chosen["flight_number"], chosen["date"]
        flight = self.flights.get(number)
        if flight is None:
            return f"Error: flight {number} not found", None
        if day not in flight["dates"]:
            return f"Error: flight {number} not found on date {day}", None
        there = flight["dates"][day]
        if there["status"] != "available":
            return f"Error: flight {number} not available on date {day}", None
        if there["available_seats"][cabin] < people:
            return f"Error: not enough seats on flight {number}", None
        places = {"origin": flight["origin"], "destination": flight["destination"]}
        return "", {"flight_number": number, "date": day, "price": there["prices"][cabin], **places}

    def cancel_reservation(self, reservation_id: str) -> Any:
        reservation = self.reservations.get(reservation_id)
        if reservation is None:
            return "Error: reservation not found"
        history = reservation["payment_history"]
        history += [{"payment_id": each["payment_id"], "amount": -each["amount"]} for each in history]
        reservation["status"] = "cancelled"
        return reservation

    def send_certificate(self, user_id: str, amount: float) -> Any:
        user = self.users.get(user_id)
        if user is None:
            return "Error: user not found"
        for number in (3221322, 3221323, 3221324):
            key = f"certificate_{number}"
            if key not in user["payment_methods"]:
                user["payment_methods"][key] = {"source": "certificate", "id": key, "amount": amount}
                return f"Certificate {key} added to user {user_id} with amount {amount}."
        return "Error: too many certificates"

    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Any:
        reservation = self.reservations.get(reservation_id)
        if reservation is None:
            return "Error: reservation not found"
        total = 50 * max(0, nonfree_baggages - reservation["nonfree_baggages"])
        method = self.users[reservation["user_id"]]["payment_methods"].get(payment_id)
        error = "Error: payment method not found" if method is None else _unfit(method, total)
        if error:
            return error
        reservation["total_baggages"], reservation["nonfree_baggages"] = total_baggages, nonfree_baggages
        _pay(reservation, method, payment_id, total)
        return reservation

    def update_reservation_flights(
        self, reservation_id: str, cabin: str, flights: list[Any], payment_id: str
    ) -> Any:
        reservation = self.reservations.get(reservation_id)
        if reservation is None:
            return "Error: reservation not found"
        method = self.users[reservation["user_id"]]["payment_methods"].get(payment_id)
        if method is None:
            return "Error: payment method not found"
        people, legs = len(reservation["passengers"]), []
        for chosen in flights:
            same = (
                each
                for each in reservation["flights"]
                if (each["flight_number"], each["date"]) == (chosen["flight_number"], chosen["date"])
            )
            kept = next(same, None) if cabin == reservation["cabin"] else None
            if kept is None:
                error, kept = self._leg(chosen, cabin, people)
                if error:
                    return error
            legs.append(kept)
        total = (
            sum(leg["price"] for leg in legs) - sum(leg["price"] for leg in reservation["flights"])
        ) * people
        error = _unfit(method, total)
        if error:
            return error
        _pay(reservation, method, payment_id, total)
        reservation["flights"], reservation["cabin"] = legs, cabin
        return reservation

    def update_reservation_passengers(self, reservation_id: str, passengers: list[Any]) -> Any:
        reservation = self.reservations.get(reservation_id)
        if reservation is None:
            return "Error: reservation not found"
        if len(passengers) != len(reservation["passengers"]):
            return "Error: number of passengers does not match"
        reservation["passengers"] = passengers
        return reservation


def _available(flight: dict[str, Any], day: str) -> bool:
    return bool(flight["dates"].get(day, {}).get("status") == "available")


def _next_day(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def _offer(flight: dict[str, Any], day: str) -> dict[str, Any]:
    there = flight["dates"][day]
    shown = {name: value for name, value in flight.items() if name != "dates"}
    seats, prices = there["available_seats"], there["prices"]
    return {**shown, "date": day, "status": "available", "available_seats": seats, "prices": prices}


def _unpaid(methods: dict[str, Any], payments: list[Any], total: float) -> str:
    """The error of payments that do not pay a booking; empty if they do."""
    for payment in payments:
        method = methods.get(payment["payment_id"])
        if method is None:
            return f"Error: payment method {payment['payment_id']} not found"
        if method["source"] != "credit_card" and method["amount"] < payment["amount"]:
            return f"Error: not enough balance in payment method {payment['payment_id']}"
    paid = sum(payment["amount"] for payment in payments)
    if paid != total:
        return f"Error: payment amount does not add up, total price is {total}, but paid {paid}"
    return ""


def _charge(methods: dict[str, Any], payments: list[Any]) -> None:
    for payment in payments:
        method = methods.get(payment["payment_id"])
        if method is not None and method["source"] == "gift_card":
            method["amount"] -= payment["amount"]
        elif method is not None and method["source"] == "certificate":
            del methods[payment["payment_id"]]


def _unfit(method: dict[str, Any], total: float) -> str:
    if method["source"] == "certificate":
        return "Error: certificate cannot be used to update reservation"
    if method["source"] == "gift_card" and method["amount"] < total:
        return "Error: gift card balance is not enough"
    return ""


def _pay(reservation: dict[str, Any], method: dict[str, Any], payment_id: str, total: float) -> None:
    if method["source"] == "gift_card":
        method["amount"] -= total
    if total != 0:
        reservation["payment_history"].append({"payment_id": payment_id, "amount": total})
