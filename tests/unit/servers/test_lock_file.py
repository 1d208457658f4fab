"""The file of a lock: the same bytes for the same contents, and strictly read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.server_config import Catalogue, Server
from toolcrib.servers.lock import Lock, LockedPack, LockedServer, parse_lock, read_lock

NOW = {"name": "now", "description": "The time: ü.", "inputSchema": {"type": "object"}}
SET = {
    "name": "set",
    "title": "Set it",
    "annotations": {"destructiveHint": False},
    "inputSchema": {"type": "object"},
}
TIME = LockedServer.of(
    Server("time", command="uvx", args=("x",)),
    Catalogue("time", {"set": SET, "now": NOW}, info={"version": "1"}),
)


def lock_text(**servers):
    return Lock(servers=servers or {"time": TIME}).text


@pytest.fixture
def read(tmp_path):
    """The lock and the problems of a text."""

    def reading(text):
        path = tmp_path / "toolcrib.lock"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        lock, problems = read_lock(path)
        return lock, [(each.code, each.line, each.column, each.pointer) for each in problems]

    return reading


def test_what_was_written_is_read_again(read):
    lock, problems = read(lock_text())
    assert problems == []
    assert lock.servers == {"time": TIME}
    assert lock.there
    assert lock.text == lock_text()


def test_the_text_is_readable_sorted_and_ends_with_one_newline():
    text = lock_text(b=TIME, a=TIME)
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    assert "ü" in text
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert lock_text(a=TIME, b=TIME) == text


def test_the_order_of_listing_makes_no_difference():
    again = LockedServer.of(
        Server("time", command="uvx", args=("x",)),
        Catalogue("time", {"now": NOW, "set": SET}, info={"version": "1"}),
    )
    assert lock_text(time=again) == lock_text()


def test_no_file_is_no_lock_and_no_problem(tmp_path):
    lock, problems = read_lock(tmp_path / "toolcrib.lock")
    assert (lock.there, lock.servers, problems) == (False, {}, [])


def test_what_was_offered_can_be_had_without_the_server():
    catalogue = Lock(servers={"time": TIME}).catalogues["time"]
    assert catalogue.tools == {"now": NOW, "set": SET}
    assert catalogue.says() == Catalogue("time", {"now": NOW, "set": SET}).says()


FAULTS = {
    "an edited description": (
        lambda text: text.replace('"The time: ü."', '"The time."'),
        "edited_lock",
        '"hash"',
    ),
    "an edited endpoint": (lambda text: text.replace('"uvx"', '"sh"'), "edited_lock", '"hash"'),
    "another version": (
        lambda text: text.replace('"version": 1\n', '"version": 2\n'),
        "unknown_lock_version",
        '"version"',
    ),
    "no number": (
        lambda text: text.replace('"version": 1\n', '"version": true\n'),
        "unknown_lock_version",
        '"version"',
    ),
    "no version": (
        lambda text: text.replace('"version": 1\n', '"verzion": 1\n'),
        "unknown_lock_version",
        "{",
    ),
    "an unknown key": (lambda text: text.replace('"title"', '"titel"'), "invalid_lock", '"titel"'),
    "another name": (lambda text: text.replace('"name": "now"', '"name": "later"'), "invalid_lock", '"name"'),
    "an unknown part": (lambda text: text.replace('"info": {', '"inf": {'), "invalid_lock", '"inf"'),
    "a missing part": (lambda text: text.replace('"info": {', '"inf": {'), "invalid_lock", '"time"'),
    "cut off": (lambda text: text[:100], "invalid_lock", ""),
    "a merge that went wrong": (lambda text: "<<<<<<< HEAD\n" + text, "invalid_lock", "<<<<"),
    "nothing": (lambda _: "", "invalid_lock", ""),
    "a list": (lambda _: "[]", "invalid_lock", "[]"),
    "a key twice": (lambda _: '{"version": 1, "servers": {"a": {}, "a": {}}}', "invalid_lock", "{"),
    "not a number": (lambda _: '{"version": NaN}', "invalid_lock", "{"),
    "deep": (lambda _: "[" * 100_000, "invalid_lock", "["),
    "a long number": (lambda _: '{"version": ' + "1" * 5000 + "}", "invalid_lock", "{"),
    "a server that is none": (lambda _: '{"version": 1, "servers": {"a": 3}}', "invalid_lock", '"a"'),
    "servers that are none": (lambda _: '{"version": 1, "servers": []}', "invalid_lock", '"servers"'),
    "a tool that is none": (
        lambda _: '{"version": 1, "servers": {"a": {"endpoint": {}, "info": {}, "tools": {"t": 1}}}}',
        "invalid_lock",
        '"t"',
    ),
    "info that is none": (
        lambda text: text.replace('"version": "1"', '"version": 1'),
        "invalid_lock",
        '"version": 1\n      }',
    ),
}


@pytest.mark.parametrize(("change", "code", "there"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_its_place_and_nothing_of_the_lock_counts(change, code, there, read):
    text = change(lock_text())
    lock, problems = read(text)
    lines = text.split("\n")
    told = [(each[0], "\n".join([lines[each[1] - 1][each[2] - 1 :], *lines[each[1] :]])) for each in problems]
    assert any(one == code and rest.startswith(there) for one, rest in told), told
    assert lock.servers == {}
    assert lock.there
    assert lock.problems


def test_bytes_that_are_no_text_are_told(read):
    lock, problems = read(b'{"version": "\xff"}')
    assert [each[0] for each in problems] == ["invalid_utf8"]
    assert lock.problems


def test_every_fault_is_told_at_once_with_a_way_out(tmp_path):
    path = tmp_path / "toolcrib.lock"
    text = (
        lock_text()
        .replace('"The time: ü."', '"The time."')
        .replace('"uvx"', '"sh"')
        .replace('"title"', '"titel"')
    )
    path.write_text(text, encoding="utf-8")
    _, problems = read_lock(path)
    assert sorted(each.code for each in problems) == ["edited_lock", "edited_lock", "invalid_lock"]
    assert all(each.hint and each.source == str(path) for each in problems)
    assert [each.hint for each in problems if each.code == "invalid_lock"] == ["did you mean `title`?"]


def test_a_file_that_cant_be_read_or_is_too_large_is_told(tmp_path):
    (tmp_path / "folder").mkdir()
    assert [each.code for each in read_lock(tmp_path / "folder")[1]] == ["file_unreadable"]
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    assert [each.code for each in read_lock(large)[1]] == ["too_large"]


def test_another_layout_of_the_same_is_the_same(read):
    lock, problems = read(json.dumps(json.loads(lock_text())).replace(", ", " ,\r\n\t"))
    assert (problems, lock.servers) == ([], {"time": TIME})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aü\u200b"\\'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.dictionaries(
            st.sampled_from(["title", "description", "inputSchema", "annotations", "icons"]), json_values
        ),
        max_size=3,
    )
)
def test_any_definition_that_is_json_comes_back_as_it_was(definitions):
    tools = {name: {**definition, "name": name} for name, definition in definitions.items()}
    locked = LockedServer.of(Server("s"), Catalogue("s", tools))
    lock = Lock(servers={"s": locked})
    assert parse_lock(lock.text, "x") == (({"s": locked}, {}), [])


PACK = LockedPack("1.0.0", "sha256:aa", "ed25519:k")


def test_packs_are_written_and_read_again(read):
    unsigned = PACK._replace(key="")
    lock, problems = read(Lock(servers={"time": TIME}, packs={"weather": PACK, "rates": unsigned}).text)
    assert problems == []
    assert lock.packs == {"weather": PACK, "rates": unsigned}
    assert lock.there


def test_a_lock_of_packs_alone_locks_no_servers(read):
    lock, problems = read(Lock(packs={"weather": PACK}).text)
    assert (lock.there, lock.packs, problems) == (False, {"weather": PACK}, [])


@pytest.mark.parametrize(
    "pack",
    [
        "1",
        "{}",
        '{"version": 1, "hash": "a"}',
        '{"version": "1", "hash": "a", "keys": "b"}',
        '{"version": "1", "hash": "a", "key": 1}',
    ],
)
def test_a_wrong_entry_of_a_pack_voids_the_lock(read, pack):
    lock, problems = read('{"version": 1, "servers": {}, "packs": {"weather": ' + pack + "}}")
    assert {each[0] for each in problems} == {"invalid_lock"}
    assert (lock.packs, lock.there) == ({}, True)
