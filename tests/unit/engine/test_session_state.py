"""The store of mocks between processes: a session continued from a file answers as one that never ended."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib import Result, Runtime
from toolcrib.engine import engine_of
from toolcrib.engine.idempotency_keys import result_as_json
from toolcrib.engine.session_state import UnusableState, open_state, restore_state, saved_state
from toolcrib.expressions.values import frozen, thawed

WAITS = 60.0

PACK = """
name: desk
version: 1.0.0
store:
  tickets:
    key: id
    rows: [{id: T1, title: one}, {id: T2, title: two}, {id: T3, title: three}]
state: {door: [open, shut]}
"""

TEXT = "input_schema: {type: object, properties: {text: {type: string}}, required: [text]}"

TOOLS = f"""
name: add
{TEXT}
mock:
  effects: [{{insert: tickets, value: {{id: "{{{{ 'N' ~ seq('made', 1) }}}}", title: "{{{{ uuid() }}}}"}}}}]
  result: "{{{{ store.tickets }}}}"
---
name: drop
{TEXT}
mock:
  rows: {{row: {{in: tickets, key: "{{{{ args.text }}}}", missing: Unknown ticket.}}}}
  effects: [{{delete: row}}]
  result: gone
---
name: put
{TEXT}
mock:
  effects: [{{upsert: tickets, value: {{id: "{{{{ args.text }}}}", title: again}}}}]
  result: done
---
name: tickets
{TEXT}
mock: {{result: {{rows: "{{{{ store.tickets }}}}", order: "{{{{ store.tickets | list }}}}"}}}}
---
name: shut
{TEXT}
mock:
  rules:
    - when: {{state: {{door: open}}}}
      reply: {{effects: [{{goto: {{door: shut}}}}], result: shut}}
    - reply: {{error: "The door is {{{{ state.door }}}}."}}
---
name: turns
{TEXT}
mock: {{sequence: [{{result: first, times: 2}}, {{result: second}}]}}
---
name: once
{TEXT}
mock: {{idempotent_by: {{by: ["{{{{ args.text }}}}", true, 1.0]}}, result: "{{{{ uuid() }}}}"}}
"""

ODD = {
    "calls": 1,
    "numbered": 0,
    "replies": {},
    "answers": [{"by": 1, "result": {**result_as_json(Result.success(1)), "outcome": "odd"}}],
}

calls = st.tuples(
    st.sampled_from(["add", "drop", "put", "tickets", "shut", "turns", "once"]),
    st.sampled_from(["T1", "T2", "T3", "N1"]),
)


@pytest.fixture
def desk(folder):
    return folder({"desk/pack.yaml": PACK, "desk/tools.tool.yaml": TOOLS}) / "desk"


def outcome(result):
    return result.outcome, result.value, result.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.lists(calls, max_size=12))
def test_a_session_that_was_saved_after_every_call_answers_as_one_that_never_ended(desk, made):
    runtime = Runtime.open(desk)
    whole = runtime.session(id="shop")
    state = {"format": 1}
    path = str(desk / "state.json")
    Path(path).unlink(missing_ok=True)
    for name, text in made:
        session = runtime.session(id="shop")
        with open_state(path, patience=0) as file:
            restore_state(session, file.state)
            told = outcome(session.call_at_once(name, {"text": text}))
            state = saved_state(session)
            file.write(state)
        assert told == outcome(whole.call_at_once(name, {"text": text})), name
    assert state.get("rows", {}) == saved_state(whole)["rows"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    )
)
def test_the_value_of_a_key_has_this_key(value):
    assert frozen(thawed(frozen(value))) == frozen(value)


def test_python_code_that_reads_the_store_sees_the_saved_rows(desk):
    session = engine_of(Runtime.open(desk)).default_session
    session.call_at_once("put", {"text": "T9"})
    session.call_at_once("drop", {"text": "T1"})
    later = engine_of(Runtime.open(desk)).default_session
    restore_state(later, saved_state(session))
    assert [*later.store.rows("tickets")] == ["T2", "T3", "T9"]
    assert later.store.changed() == {"tickets": {"T9": {"id": "T9", "title": "again"}, "T1": None}}


def test_rows_of_other_projects_stay_in_the_file(desk):
    state = {"format": 1, "rows": {"shop/orders": {"written": {"1": {"id": "1"}}, "deleted": ["2"]}}}
    session = engine_of(Runtime.open(desk)).default_session
    restore_state(session, state)
    session.call_at_once("put", {"text": "T9"})
    assert saved_state(session)["rows"].keys() == {"shop/orders", "desk/tickets"}
    assert saved_state(session)["rows"]["shop/orders"] == state["rows"]["shop/orders"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not a valid state file: "),
        ("\xff", "is not a valid state file: "),
        ("[" * 100_000, "is not a valid state file: nested too deeply"),
        ("[]", "is not a valid state file: (root): expected an object, got an empty array"),
        ('{"calls": 1}', "is not a valid state file: /format: expected"),
        ('{"format": 1, "format": 1}', "is not a valid state file: duplicate key `format`"),
        ('{"format": 1, "row": {}}', "is not a valid state file: /row: "),
        (
            '{"format": 1, "rows": {"a": {"written": [], "deleted": []}}}',
            "/rows/a/written: expected an object",
        ),
        (
            json.dumps({"format": 1, "tools": {"a": ODD}}),
            "a stored result is invalid: 'odd' is not a valid Outcome",
        ),
        (
            '{"format": 2, "anything": 1}',
            "was written by a newer toolcrib: its format is 2, and this version reads 1",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_and_left_as_it_is(tmp_path, content, told):
    path = tmp_path / "state.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UnusableState) as raised, open_state(str(path), patience=0):
        pass
    assert told in raised.value.message
    assert str(path) in raised.value.message
    assert path.read_text(encoding="latin-1") == content
    assert [*tmp_path.iterdir()] == [path]


def test_a_missing_folder_and_a_folder_in_place_of_the_file_are_reported(tmp_path):
    for path, told in (
        (tmp_path / "none" / "state.json", "cannot be created: its folder does not exist"),
        (tmp_path, "cannot be opened: Is a directory"),
        ("/dev/null", "cannot be opened: it is not a regular file"),
    ):
        with pytest.raises(UnusableState) as raised, open_state(str(path), patience=0):
            pass
        assert told in raised.value.message


def test_a_file_that_another_process_uses_is_refused_after_a_while_and_left_as_it_is(tmp_path):
    path = tmp_path / "state.json"
    path.write_text('{"format": 1}')
    with path.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            pytest.raises(UnusableState, match="is in use by another process"),
            open_state(str(path), patience=0.05),
        ):
            pass
    assert path.read_text() == '{"format": 1}'


def test_writers_at_once_lose_nothing_and_leave_nothing_behind(tmp_path):
    path = tmp_path / "state.json"

    # Locks of `flock` belong to the open file, so threads exclude each other as processes do.
    def count():
        for _ in range(10):
            with open_state(str(path), patience=WAITS) as file:
                file.write({"format": 1, "calls": file.state.get("calls", 0) + 1})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAITS)
    assert json.loads(path.read_text()) == {"format": 1, "calls": 40}
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_stays_a_link_and_the_mode_of_the_file_stays(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("\n")
    real.chmod(0o640)
    link.symlink_to(real)
    with open_state(str(link), patience=0) as file:
        file.write({"format": 1, "calls": 3})
    assert link.is_symlink()
    assert json.loads(real.read_text())["calls"] == 3
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_new_file_is_private_and_a_dry_run_creates_none(tmp_path):
    path = tmp_path / "state.json"
    with open_state(str(path), patience=0, writes=False) as file:
        assert file.state == {"format": 1}
    assert not path.exists()
    with open_state(str(path), patience=0) as file:
        file.write({"format": 1})
    assert path.stat().st_mode & 0o777 == 0o600
