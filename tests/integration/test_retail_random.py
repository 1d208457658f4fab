"""The retail pack against a plain Python reading of its English rules: random sessions over random worlds.

`TOOLCRIB_RETAIL_SESSIONS` says how many sessions are played; 1,500 unless given, a fifth of them in a sample.
"""

from __future__ import annotations

import json
import os

import pytest

from retail.playing import ask, opened, read, write
from retail.reading import COLLECTIONS, Retail
from retail.worlds import ToolCall, session, world
from sampling import examples, sample

WORLDS = 15
SESSIONS = int(os.environ.get("TOOLCRIB_RETAIL_SESSIONS", examples(1500)))
DETAILS = {
    "orders": ("get_order_details", "order_id"),
    "users": ("get_user_details", "user_id"),
    "products": ("get_product_details", "product_id"),
}


@pytest.mark.parametrize("seed", sample(range(WORLDS), one_in=4))
async def test_random_sessions_are_answered_as_the_rules_are_read(seed, tmp_path):
    """Every answer and every changed row, to the byte; a failed call changes nothing."""
    store = world(seed)
    write(tmp_path, store)
    with opened(tmp_path) as runtime:
        for turn in range(SESSIONS // WORLDS):
            calls = session(f"{seed}.{turn}", store)
            difference = (await ask(runtime, calls)).differs_from(read(store, calls), calls)
            assert difference == "", f"world {seed}, session {turn}"


async def test_sessions_at_once_do_not_see_each_other(tmp_path):
    store = world(0)
    write(tmp_path, store)
    played = [session(f"at once {turn}", store) for turn in range(20)]
    with opened(tmp_path) as runtime:
        sessions = [runtime.session() for _ in played]
        answers: list[list[str]] = [[] for _ in played]
        for number in range(max(map(len, played))):
            for calls, own, heard in zip(played, sessions, answers, strict=True):
                for call in calls[number : number + 1]:
                    result = await own.call(*call)
                    heard.append(json.dumps(result.content[0].text if result.content else result.value))
    assert [tuple(heard) for heard in answers] == [read(store, calls).answers for calls in played]


@pytest.fixture
def real(shared_data):
    folder = shared_data / "tau-retail"
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in COLLECTIONS}


@pytest.mark.exhaustive
async def test_every_row_of_the_real_store_is_looked_up(real, shared_data):
    """1,000 orders, 500 users, 50 products; and of each an id that is not there."""
    assert {name: len(rows) for name, rows in real.items()} == {"orders": 1000, "users": 500, "products": 50}
    retail = Retail({name: {} for name in COLLECTIONS})
    with opened(shared_data / "tau-retail") as runtime:
        for name, (tool, argument) in DETAILS.items():
            calls = [ToolCall(tool, {argument: key}) for key in real[name]]
            played = await ask(runtime, calls)
            assert played.answers == tuple(json.dumps(row) for row in real[name].values())
            assert played.changed == ()
            unknown = [
                ToolCall(tool, {argument: key}) for key in ("#W0000000", "", f"{next(iter(real[name]))} ")
            ]
            refused = tuple(json.dumps(retail.answer(*call)) for call in unknown)
            assert (await ask(runtime, unknown)).answers == refused


async def test_users_and_products_of_the_real_store_are_found(real, shared_data):
    retail = Retail({**real, "orders": {}})
    calls = [ToolCall("list_all_product_types", {})]
    for user in list(real["users"].values())[::20]:
        calls.append(ToolCall("find_user_id_by_email", {"email": user["email"]}))
        calls.append(ToolCall("find_user_id_by_email", {"email": f"x{user['email']}"}))
        name = {
            "first_name": user["name"]["first_name"].upper(),
            "last_name": user["name"]["last_name"].lower(),
        }
        calls.append(ToolCall("find_user_id_by_name_zip", {**name, "zip": user["address"]["zip"]}))
        calls.append(ToolCall("find_user_id_by_name_zip", {**name, "zip": "00000"}))
    with opened(shared_data / "tau-retail") as runtime:
        answers = (await ask(runtime, calls)).answers
    assert answers == tuple(json.dumps(retail.answer(*call)) for call in calls)
