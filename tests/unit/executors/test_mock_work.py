"""Work: what one call makes of the store, seen by others only when it is committed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keeping import calls, keeping, loaded_with
from library import LIBRARY, failed, played, tool
from sampling import examples
from toolcrib import Runtime
from toolcrib.core.errors import ExpressionError
from toolcrib.executors.mock.unit_of_work import MOST_ROWS, UnitOfWork
from toolcrib.simulation.store import Store

FIXTURE = loaded_with(tool("result: 1"), LIBRARY).tools[0].fixture


def begun():
    store = Store()
    return store, UnitOfWork(store, FIXTURE)


def test_nothing_is_seen_before_it_is_committed():
    store, work = begun()
    work.put("log", "1", {"n": 1}, "/e")
    work.go("door", "open")
    assert (work.count("x", 5), work.changed) == (5, True)
    assert (
        store.changed(),
        UnitOfWork(store, FIXTURE).states()["door"],
        UnitOfWork(store, FIXTURE).count("x", 5),
    ) == (
        {},
        "closed",
        5,
    )
    work.commit()
    assert store.changed() == {"log": {"1": {"n": 1}}}
    after = UnitOfWork(store, FIXTURE)
    assert (after.rows("log"), after.states()["door"], after.count("x", 5)) == ({"1": {"n": 1}}, "open", 6)


def test_what_changes_nothing_commits_nothing():
    store, work = begun()
    before = store.version
    work.rows("books")
    work.store()
    work.commit()
    assert store.version is before


def test_what_was_handed_out_does_not_move():
    _store, work = begun()
    work.put("log", "1", {}, "/e")
    seen = work.store()["log"]
    work.put("log", "2", {}, "/e")
    work.remove("log", "1")
    assert (list(seen), list(work.store()["log"])) == (["1"], ["2"])


def test_a_committed_version_does_not_move_with_the_work_that_made_it():
    store, work = begun()
    work.put("log", "1", {}, "/e")
    work.commit()
    work.put("log", "2", {}, "/e")
    assert list(store.changed()["log"]) == ["1"]


def test_an_earlier_version_can_be_looked_at():
    store, work = begun()
    work.put("log", "1", {}, "/e")
    work.commit()
    assert UnitOfWork(store, FIXTURE, store.before(FIXTURE)).rows("log") == {}


def test_a_sequence_of_the_name_of_a_collection_belongs_to_it():
    store, work = begun()
    other = FIXTURE._replace(collections={"books": FIXTURE.collections["books"]._replace(id="other/books")})
    assert (work.count("books", 1), work.count("books", 1), work.count("free", 1)) == (1, 2, 1)
    work.commit()
    elsewhere = UnitOfWork(store, other)
    assert (elsewhere.count("books", 1), elsewhere.count("free", 1)) == (1, 2)


def test_a_sequence_of_another_name_belongs_to_the_pack():
    store, work = begun()
    work.count("free", 1)
    work.commit()
    numbers = [UnitOfWork(store, FIXTURE, pack=pack).count("free", 5) for pack in ("", "shop", "bank")]
    assert numbers == [2, 5, 5]


async def test_packs_count_apart(tmp_path):
    for pack in ("shop", "bank"):
        (tmp_path / pack).mkdir()
        (tmp_path / pack / "pack.yaml").write_text(f"name: {pack}\nversion: 1.0.0\n")
        block = "{result: \"{{ seq('tickets') }}\"}"
        (tmp_path / pack / "all.tool.yaml").write_text(f"name: of_{pack}\nmock: {block}\n")
    async with Runtime.open(str(tmp_path / "shop"), str(tmp_path / "bank")) as runtime:
        session = runtime.session()
        results = [await session.call(name) for name in ("of_shop", "of_bank", "of_shop")]
    assert [result.value for result in results] == [1, 1, 2]


def test_rows_are_judged_as_they_are_in_the_end():
    _store, work = begun()
    row = {"isbn": "b1", "title": "x", "copies": 1}
    work.put("books", "b1", {**row, "copies": -1}, "/one")
    with pytest.raises(ExpressionError, match="row `b1` of `books` would not match its schema") as caught:
        work.check()
    assert (caught.value.code, caught.value.pointer) == ("row_breaks_schema", "/one")
    work.put("books", "b1", row, "/two")
    work.check()
    work.put("books", "b1", {**row, "isbn": "b2"}, "/three")
    with pytest.raises(ExpressionError, match="`isbn` of row `b1` in `books` does not equal its key: b2"):
        work.check()
    work.remove("books", "b1")
    work.check()


def test_a_collection_has_so_many_rows():
    full = FIXTURE.collections["log"]._replace(rows={str(number): {} for number in range(MOST_ROWS)})
    work = UnitOfWork(Store(), FIXTURE._replace(collections={"log": full}))
    work.put("log", "5", {"new": 1}, "/e")
    with pytest.raises(ExpressionError, match="exceed 100,000 rows"):
        work.put("log", "new", {}, "/e")


def test_one_call_makes_so_many_changes():
    effects = '[{for_each: {n: "{{ range(5001) }}"}, do: [{increment: readers.ann.balance}, {decrement: readers.ann.balance}]}]'
    result = failed(f"effects: {effects}\nresult: 1")
    assert "one call exceeds 10,000 changes" in result.message
    assert result.error.details["pointer"] == "/mock/effects/0/do/0/increment"


def test_rows_that_can_not_be_had_are_a_bug_only_of_those_who_want_them():
    lost = FIXTURE.collections["log"]._replace(rows=None, fault="log.json:3: invalid_json: no")
    work = UnitOfWork(Store(), FIXTURE._replace(collections={**FIXTURE.collections, "log": lost}))
    store = work.store()
    assert store["books"]["b1"]["title"] == "Emma"
    assert (store.get("readers") is store["readers"], store.get("nothing", 1)) == (True, 1)
    for read in (lambda: store["log"], lambda: store.get("log"), lambda: work.rows("log")):
        with pytest.raises(ExpressionError, match=r"log\.json:3"):
            read()
    with pytest.raises(KeyError):
        store["nothing"]


CHANGES = st.lists(st.tuples(st.sampled_from("puts"), st.sampled_from("abcdef"), st.integers()), max_size=30)


@settings(max_examples=examples(100), deadline=None)
@given(CHANGES)
def test_rows_are_those_of_a_plain_mapping_in_its_order_and_nothing_seen_moves(changes):
    store, work = begun()
    plain, seen = {}, []
    for do, key, number in changes:
        if do == "p":
            work.put("log", key, {"n": number}, "/e")
            plain[key] = {"n": number}
        elif do == "u" and key in plain:
            work.remove("log", key)
            del plain[key]
        elif do == "t":
            seen.append((work.store()["log"], dict(plain)))
        elif do == "s":
            work.commit()
            work = UnitOfWork(store, FIXTURE)
    assert list(work.rows("log").items()) == list(plain.items())
    assert all(list(rows.items()) == list(was.items()) for rows, was in seen)
    assert FIXTURE.collections["log"].rows == {}


def test_the_same_block_in_two_sessions_knows_nothing_of_the_other():
    block = 'effects: [{insert: log, value: {n: "{{ seq(\'x\') }}"}}]\nresult: "{{ store.log }}"'
    assert played(block).value == played(block).value == {"1": {"n": 1}}


def test_a_result_shows_the_row_as_it_is_now_and_shares_nothing_with_it():
    reading = """
    rows: {reader: {in: readers, key: ann}}
    effects: [{if: "{{ args.days }}", append: reader.loans, value: {isbn: b9, days: "{{ args.days }}"}}]
    result: {whole: "{{ reader }}", loans: "{{ reader.loans }}", mail: "{{ reader.email }}"}
    """
    session = keeping(tool(reading, "input_schema: {properties: {days: {default: 0}}}"), LIBRARY).session()
    for days, lent in ((0, [3, 9, 4]), (0, [3, 9, 4]), (5, [3, 9, 4, 5]), (0, [3, 9, 4, 5])):
        (result,) = calls(session, {"days": days})
        whole, loans = result.value["whole"], result.value["loans"]
        assert ([loan["days"] for loan in loans], whole["loans"], result.value["mail"]) == (
            lent,
            loans,
            "ann@x.org",
        )
        loans.clear()
        whole["loans"][0]["days"] = -1
