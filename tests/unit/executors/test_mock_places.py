"""Places: how they are written, and what they say where nothing is there."""

from __future__ import annotations

import pytest

from library import LIBRARY, failed, played, refused
from toolcrib.core.errors import ExpressionError
from toolcrib.executors.mock.store_rows import compile_path, key_text

ROWS = ("ann", "books")
COLLECTIONS = ("books", "readers")


def steps(text):
    """The root of a place, and its steps with what is in brackets worked out."""
    place = compile_path(text, {"args": None, "i": None}, ROWS, COLLECTIONS, "/at")
    scope = {"args": {"k": "key", "o": {"a": ["x"]}}, "i": 2}
    return [place.root, *(step.name or step.run(scope) for step in place.steps)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann", ["ann"]),
        (" ann.loans ", ["ann", "loans"]),
        ("ann.items.keys", ["ann", "items", "keys"]),
        ("ann[0]", ["ann", 0]),
        ("ann[-1].x", ["ann", -1, "x"]),
        ("ann['a b'].c", ["ann", "a b", "c"]),
        ('ann["]"][i]', ["ann", "]", 2]),
        ("ann[args.o['a'][0]]", ["ann", "x"]),
        ("ann[args.k ~ '[']", ["ann", "key["]),
        ("readers[args.k]", ["readers", "key"]),
    ],
)
def test_a_place_is_a_name_and_steps(text, expected):
    assert steps(text) == expected


def test_a_row_comes_before_a_collection_of_the_same_name():
    assert not compile_path("books", {}, ROWS, COLLECTIONS, "").in_store
    assert compile_path("readers", {}, ROWS, COLLECTIONS, "").in_store


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_place"),
        ("[0]", "invalid_place"),
        ("1a", "invalid_place"),
        ("{{ ann }}", "invalid_place"),
        ("ann.", "invalid_place"),
        ("ann.1", "invalid_place"),
        ("ann..a", "invalid_place"),
        ("ann a", "invalid_place"),
        ("ann .a", "invalid_place"),
        ("ann[0", "invalid_place"),
        ("ann[']", "expression_syntax"),
        ("ann]", "invalid_place"),
        ("ann[]", "expression_syntax"),
        ("ann[1 2]", "expression_syntax"),
        ("ann[0:1]", "expression_syntax"),
        ("ann[nope]", "unknown_name"),
        ("ann[nope()]", "unknown_function"),
        ("args.x", "not_a_row"),
        ("bob", "not_a_row"),
    ],
)
def test_what_is_no_place_is_refused(text, code):
    with pytest.raises(ExpressionError) as caught:
        steps(text)
    assert caught.value.code == code
    assert code != "invalid_place" or "without braces" in caught.value.hint


def test_a_name_that_is_no_row_says_what_there_is():
    with pytest.raises(ExpressionError, match=r"`args` is not a row.*available: `ann`, `books`"):
        steps("args.x")
    with pytest.raises(ExpressionError) as caught:
        steps("an.x")
    assert caught.value.hint == "did you mean `ann`?"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("ann.lones", "`readers['ann']` has no `lones`: it has `name`, `email`, `balance`, `loans`, `cards`"),
        ("ann.loans[3]", "`readers['ann']['loans']` has 3 elements, so index 3 is out of range"),
        ("ann.loans[-4]", "so index -4 is out of range"),
        ("ann.loans['0']", "needs a number in brackets, not a string"),
        ("ann.loans[true]", "needs a number in brackets, not `true`"),
        ("ann.cards[1]", "needs a string, not a number"),
        ("ann.name.x", "is a string, which has no members"),
        ("ann.cards[args.none]", "needs a string, not none"),
        ("readers['x'].name", "`readers` has no row `x`"),
        ("nobody.name", "row `nobody` does not exist: nothing at `readers['x']`"),
        ("nowhere.name", "row `nowhere` does not exist"),
    ],
)
def test_where_nothing_is_says_what_is_there(place, words):
    block = f"""
        rows:
          ann: {{in: readers, key: ann}}
          nobody: {{in: readers, key: x}}
          nowhere: {{in: readers, where: {{name: x}}}}
        effects: [{{delete: "{place}"}}]
        result: "{{{{ [ann, nobody, nowhere] }}}}"
    """
    result = failed(block, {"none": None})
    assert words in result.message
    assert "tools.yaml:8" in result.message
    assert result.error.details["cause"] == "absent_place"


def test_near_misses_are_told():
    result = failed(
        'rows: {ann: {in: readers, key: ann}}\neffects: [{delete: ann.lones}]\nresult: "{{ ann }}"'
    )
    assert result.error.details["hint"] == "did you mean `loans`?"


def test_a_number_as_key_of_a_row_means_its_text():
    block = 'effects: [{increment: "readers[args.n].balance", by: 1}]\nresult: "{{ store.readers[\'7\'].balance }}"'
    assert played(block, {"n": 7}).value == 2


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), (1, "1"), (-2.0, "-2"), (1.5, "1.5"), ("", ""), (10**20, "1" + "0" * 20)]
)
def test_keys_are_texts(value, text):
    assert key_text(value) == text


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_nothing_else_is_a_key(value):
    with pytest.raises(ExpressionError, match="a row key must be text or a number"):
        key_text(value)


def test_a_collection_may_have_the_name_of_a_row():
    block = """
        rows: {log: {in: readers, key: ann}}
        effects: [{insert: log, value: {n: 1}}, {update: log, set: {name: X}}, {upsert: log, key: z, value: {}}]
        result: ["{{ log.name }}", "{{ store.log | keys }}"]
    """
    assert played(block).value == ["X", ["1", "z"]]


def test_places_draw_other_values_at_each_bracket():
    block = (
        "effects: [{delete: \"readers[pick(['ann', 'bob', '7'])]\"}]\nresult: \"{{ store.readers | keys }}\""
    )
    assert len(played(block, store=LIBRARY).value) == 2


def test_without_a_store_there_is_nothing_to_change():
    assert refused("effects: [{delete: x}]\nresult: 1") == [("not_a_row", "/mock/effects/0/delete")]
