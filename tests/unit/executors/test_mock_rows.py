"""Rows: found once, live ever after; where one is missing its error is answered."""

from __future__ import annotations

import pytest

from library import failed, hints, played, refused
from toolcrib import Outcome


def shown(rows, result, *arguments):
    return played(f"rows: {rows}\nresult: {result}", *arguments).value


def test_a_row_is_found_by_its_key():
    assert (
        shown('{book: {in: books, key: "{{ args.isbn }}"}}', '"{{ book.title }}"', {"isbn": "b2"})
        == "Ulysses"
    )


@pytest.mark.parametrize(
    ("key", "name"), [(7, "Cy"), (7.0, "Cy"), ("ann", "Ann"), ("no", None), (None, None)]
)
def test_a_number_as_key_means_its_text_and_none_means_no_row(key, name):
    assert (
        shown('{reader: {in: readers, key: "{{ args.k }}"}}', '"{{ reader and reader.name }}"', {"k": key})
        == name
    )


@pytest.mark.parametrize("key", [True, [1], {"a": 1}])
def test_no_row_has_anything_else_as_key(key):
    rows = '{reader: {in: readers, key: "{{ args.k }}"}, ann: {in: readers, key: ann}, card: {in: ann.cards, key: "{{ args.k }}"}}'
    assert shown(rows, '"{{ [reader, card] }}"', {"k": key}) == [None, None]


@pytest.mark.parametrize("key", [True, [1], None])
def test_no_row_is_put_under_anything_else(key):
    result = failed('effects: [{insert: readers, key: "{{ args.k }}", value: {}}]\nresult: 1', {"k": key})
    assert "a row key must be text or a number" in result.message


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ('{email: "{{ args.e }}"}', "bob"),
        ("{balance: 0, name: Bob}", "bob"),
        ("{balance: 2.5}", "ann"),
        ("{loans: []}", "bob"),
        ("{email: null}", "7"),
        ("{nothing: null}", None),
        ("\"{{ row.name | lower == 'ann' }}\"", "ann"),
        ("\"{{ row.balance < args.most and row.name != 'Bob' }}\"", "7"),
    ],
)
def test_the_first_row_that_fits_is_found(where, found):
    assert (
        shown(
            f"{{reader: {{in: readers, where: {where}}}}}",
            '"{{ key_of.reader }}"',
            {"e": "bob@x.org", "most": 2},
        )
        == found
    )


def test_true_is_no_one_in_where():
    assert shown("{reader: {in: readers, where: {balance: true}}}", '"{{ reader }}"') is None


def test_a_row_may_lie_in_an_object_or_list_of_an_earlier_row():
    rows = """
        {reader: {in: readers, key: ann},
         card: {in: reader.cards, key: "{{ args.card }}"},
         gold: {in: reader.cards, where: {kind: gold}},
         loan: {in: reader.loans, where: {isbn: b2}},
         last: {in: "reader['loans']", key: -1},
         beyond: {in: reader.loans, key: 3}}
    """
    result = '["{{ card.points }}", "{{ key_of.gold }}", "{{ loan.days }}", "{{ key_of.loan }}", "{{ last.days }}", "{{ beyond }}"]'
    assert shown(" ".join(rows.split()), result, {"card": "c1"}) == [5, "c1", 9, 1, 4, None]


def test_elements_that_are_no_objects_have_no_fields():
    tags = "{book: {in: books, key: b1}, tag: {in: book.tags, where: {a: 1, b: 2}}, word: {in: book.tags, where: \"{{ row == 'novel' }}\"}}"
    assert shown(tags, '["{{ tag }}", "{{ word }}", "{{ key_of.word }}"]') == [None, "novel", 0]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{in: ann.name, key: a}", "looked up in an object or a list, not in a string"),
        ("{in: ann.nothing, key: a}", "has no `nothing`"),
        ("{in: ann.loans, key: a}", "by number, but `key` is a string"),
        ("{in: ann.loans, key: 0.0}", "by number, but `key` is a number"),
        ("{in: nobody.loans, key: 0}", "row `nobody` does not exist"),
    ],
)
def test_a_row_is_looked_up_where_there_are_some(row, words):
    rows = f"{{ann: {{in: readers, key: ann}}, nobody: {{in: readers, key: x}}, it: {row}}}"
    result = failed(f"rows: {rows}\nresult: '{{{{ [ann, nobody, it] }}}}'")
    assert words in result.message
    assert result.error.details["pointer"] == "/mock/rows/it"


def test_a_missing_row_answers_its_error_in_written_order_before_any_guard():
    block = """
        rows:
          one: {in: books, key: "{{ args.one }}", missing: "no {{ args.one }}"}
          two: {in: books, key: "{{ args.two }}", missing: {code: gone, message: "no second for {{ one.title }}"}}
        guard: [{if: "{{ one.copies == 0 or two.copies == 0 }}", error: none left}]
        result: fine
    """
    given = [
        {"one": "x", "two": "y"},
        {"one": "b1", "two": "y"},
        {"one": "b1", "two": "b2"},
        {"one": "b1", "two": "b1"},
    ]
    results = played(block, *given).results
    told = [(result.outcome.value, result.message, result.error and result.error.code) for result in results]
    assert told == [
        ("tool_error", "no x", "tool_error"),
        ("tool_error", "no second for Emma", "gone"),
        ("tool_error", "none left", "tool_error"),
        ("ok", "", None),
    ]


def test_a_row_without_missing_is_looked_up_when_it_is_first_used():
    block = """
        rows:
          reader: {in: readers, key: "{{ args.reader }}", missing: no reader}
          card: {in: reader.cards, key: "{{ reader.loans[0].isbn }}"}
        guard:
        - {if: "{{ reader.loans == [] }}", error: no loans}
        - {if: "{{ not card }}", error: no card}
        result: "{{ card }}"
    """
    assert [result.message for result in played(block, {"reader": "bob"}, {"reader": "ann"}).results] == [
        "no loans",
        "no card",
    ]


def test_a_row_that_only_the_answer_reads_is_looked_up_before_the_first_effect():
    block = """
        rows:
          book: {in: books, key: "{{ args.isbn }}"}
          reader: {in: readers, key: "{{ book.title }}"}
        effects: [{insert: log, value: {}}]
        result: "{{ reader }}"
    """
    result = failed(block, {"isbn": "b9"})
    assert result.error.details["pointer"] == "/mock/rows/reader/key"


def test_a_row_is_always_as_it_is_now_and_its_key_stays():
    block = """
        rows:
          loan: {in: readers, where: {balance: 0}}
        let: {before: "{{ loan.balance }}"}
        effects:
        - {increment: loan.balance, by: 5}
        - {increment: loan.balance}
        result: ["{{ loan.name }}", "{{ loan.balance }}", "{{ before }}", "{{ key_of.loan }}"]
    """
    assert played(block).value == ["Bob", 6, 0, "bob"]


def test_a_row_that_is_inserted_under_its_key_is_there_then():
    block = """
        rows: {book: {in: books, key: "{{ args.isbn }}"}}
        let: {known: "{{ book is not none }}"}
        effects: [{upsert: books, key: "{{ key_of.book }}", value: {title: "{{ args.title }}", copies: 1}}]
        result: ["{{ known }}", "{{ book.title }}"]
    """
    results = played(block, {"isbn": "n", "title": "A"}, {"isbn": "n", "title": "B"}).results
    assert [result.value for result in results] == [[False, "A"], [True, "B"]]


def test_the_key_of_a_row_by_where_is_none_where_there_is_no_row():
    block = 'rows: {book: {in: books, where: {title: x}}}\nresult: ["{{ key_of.book }}", "{{ key_of[\'book\'] }}"]'
    assert played(block).value == [None, None]


def test_what_was_answered_earlier_does_not_move():
    block = """
        rows: {reader: {in: readers, key: ann}}
        effects: [{append: reader.loans, value: {isbn: b9, days: 0}}]
        result: "{{ reader }}"
    """
    ended = played(block, {}, {})
    assert [len(result.value["loans"]) for result in ended.results] == [4, 5]
    ended.results[0].value["loans"].clear()
    assert len(ended.changed["readers"]["ann"]["loans"]) == 5


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("{a: {in: boks, key: x}}", ("unknown_collection", "/mock/rows/a/in")),
        ("{a: {in: args, key: x}}", ("unknown_collection", "/mock/rows/a/in")),
        ("{a: {in: b.c, key: x}, b: {in: books, key: x}}", ("unknown_collection", "/mock/rows/a/in")),
        ("{a: {in: 'books[', key: x}}", ("unknown_collection", "/mock/rows/a/in")),
        ("{b: {in: books, key: x}, a: {in: 'b[', key: x}}", ("invalid_place", "/mock/rows/a/in")),
        ("{b: {in: books, key: x}, a: {in: 'b[nope]', key: x}}", ("unknown_name", "/mock/rows/a/in")),
        ('{a: {in: books, key: "{{ nope }}"}}', ("unknown_name", "/mock/rows/a/key")),
        ('{a: {in: books, where: "{{ row.isbn == nope }}"}}', ("unknown_name", "/mock/rows/a/where")),
        ("{a: {in: books, where: title}}", ("expression_syntax", "/mock/rows/a/where")),
        ('{a: {in: books, key: x, missing: "{{ a }}"}}', ("unknown_name", "/mock/rows/a/missing")),
        ("{args: {in: books, key: x}}", ("name_taken", "/mock/rows/args")),
        ("{key_of: {in: books, key: x}}", ("name_taken", "/mock/rows/key_of")),
        ("{not: {in: books, key: x}}", ("invalid_name", "/mock/rows/not")),
        ("{a-b: {in: books, key: x}}", ("invalid_name", "/mock/rows/a-b")),
        ("{a: {in: books, key: x}}", ("unused_name", "/mock/rows/a")),
    ],
)
def test_what_can_never_work_is_found_when_the_tool_is_loaded(rows, fault):
    assert fault in refused(f"rows: {rows}\nresult: 1")


def test_a_name_that_is_nearly_right_is_told():
    assert "did you mean `books`?" in hints("rows: {a: {in: boks, key: x}}\nresult: '{{ a }}'")


def test_a_key_that_a_closed_schema_does_not_have_is_found():
    found = refused('rows: {book: {in: books, key: b1}}\nresult: "{{ book.titel }}"')
    assert found == [("unknown_row_key", "/mock/result")]


@pytest.mark.parametrize(
    "reads",
    [
        'rows: {book: {in: books, key: b1}}\nresult: "{{ book.shelf.rom }}"',
        "rows: {book: {in: books, key: b1}}\nresult: \"{{ book.fees[0]['du'] }}\"",
        'rows: {book: {in: books, key: b1}, shelf: {in: book.fees, key: 0}}\nresult: "{{ shelf.du }}"',
        "rows: {book: {in: books, key: b1}, fee: {in: book.fees, key: 0}}\neffects: [{increment: fee.du}]\nresult: 1",
        'result: "{{ store.books.b1.titel }}"',
        'result: "{{ (store.books | values | first).titel }}"',
        'let: {shelf: "{{ store.books[args.x].shelf }}"}\nresult: "{{ shelf.rom }}"',
        'result: {for_each: {book: "{{ store.books | values }}"}, value: "{{ book.titel }}"}',
        'result: {for_each: {no: [1]}, let: {b: "{{ store.books[args.x] }}"}, value: "{{ b.titel }}"}',
    ],
)
def test_a_key_within_a_row_that_a_closed_schema_does_not_have_is_found(reads):
    assert "unknown_row_key" in [code for code, _pointer in refused(reads)]


@pytest.mark.parametrize(
    "reads",
    [
        'rows: {book: {in: books, key: b1}}\nresult: "{{ book.shelf.room }} {{ book.fees[0].due }} {{ book.tags[0] }}"',
        'result: "{{ store.books.b1.title }} {{ store.readers.ann.anything.at.all }}"',
        'result: {for_each: {book: "{{ store.books | values | sort(\'title\') }}"}, value: "{{ book.shelf.no }}"}',
    ],
)
def test_keys_that_rows_may_have_are_read(reads):
    assert refused(reads) == []


@pytest.mark.parametrize(
    "use",
    [
        'result: "{{ a.title }}"',
        'result: "{{ key_of.a }}"',
        'template: "{% if a %}x{% endif %}"',
        "content: [{type: text, text: '{{ a }}'}]",
    ],
)
def test_a_row_is_used_where_the_answer_reads_it(use):
    assert refused(f"rows: {{a: {{in: books, key: x}}}}\n{use}") == []


def test_a_row_that_only_must_be_there_is_used():
    block = "rows: {book: {in: books, key: '{{ args.isbn }}', missing: no such book}}\nresult: yes"
    assert [result.outcome for result in played(block, {"isbn": "b1"}, {"isbn": "x"}).results] == [
        Outcome.OK,
        Outcome.TOOL_ERROR,
    ]


@pytest.mark.parametrize(
    "row", ["{in: books}", "{in: books, key: a, where: {b: c}}", "{key: a}", "{in: books, key: a, if: x}"]
)
def test_a_row_has_in_and_one_of_key_and_where(row):
    assert refused(f"rows: {{a: {row}}}\nresult: '{{{{ a }}}}'") != []
