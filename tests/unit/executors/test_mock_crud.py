"""`crud`: the reply that it stands for, and where its faults are told."""

from __future__ import annotations

import pytest

from library import failed, played, refused
from toolcrib.executors.mock.crud import expand_crud


def told(ended):
    return [result.error.code if result.error else result.value for result in ended.results]


def whole(reply):
    """The reply that one with `crud` stands for."""
    return expand_crud(reply, "/mock")[0]


def test_get_answers_a_row_or_its_error():
    crud = (
        'crud: {get: books, key: "{{ args.isbn }}", missing: {code: no_book, message: "no {{ args.isbn }}"}}'
    )
    ended = played(crud, {"isbn": "b1"}, {"isbn": "x"})
    assert ended.results[0].value["title"] == "Emma"
    assert (ended.results[1].error.code, ended.results[1].message) == ("no_book", "no x")


def test_a_row_that_is_not_there_has_an_error_of_its_own():
    (result,) = played('crud: {get: books, key: "{{ args.isbn }}"}', {"isbn": "x"}).results
    assert (result.error.code, result.message) == ("not_found", "no row of `books` has the key `x`")
    (result,) = played("crud: {get: books, where: {title: x}}").results
    assert (result.error.code, result.message) == ("not_found", "no row of `books` matches")


def test_get_may_look_for_fields_and_be_guarded():
    crud = 'crud: {get: books, where: {title: "{{ args.t }}"}, guard: [{if: "{{ row.copies == 0 }}", error: {code: none_left}}]}'
    assert [
        answer if isinstance(answer, str) else answer["isbn"]
        for answer in told(played(crud, {"t": "Emma"}, {"t": "Ulysses"}, {"t": "x"}))
    ] == ["b1", "none_left", "not_found"]


def test_create_takes_the_key_from_the_call():
    crud = 'crud: {create: books, key: "{{ args.isbn }}", value: {title: "{{ args.title }}", copies: 1}}'
    ended = played(
        crud, {"isbn": "n", "title": "A"}, {"isbn": "n", "title": "B"}, {"isbn": "b1", "title": "C"}
    )
    row = {"isbn": "n", "title": "A", "copies": 1}
    assert told(ended) == [row, "already_exists", "already_exists"]
    assert ended.results[1].message == "`books` already has a row `n`"
    assert ended.changed == {"books": {"n": row}}


def test_create_makes_a_key_up_by_a_rule_and_the_row_is_the_arguments():
    crud = "crud: {create: readers, id: \"{{ 'R-' ~ seq('readers', 2) }}\"}"
    ended = played(crud, {"name": "D"}, {"name": "E"})
    assert told(ended) == [{"name": "D"}, {"name": "E"}]
    assert ended.changed == {"readers": {"R-2": {"name": "D"}, "R-3": {"name": "E"}}}


def test_the_new_key_can_be_read():
    crud = 'crud: {create: log, id: "{{ \'L\' ~ seq(\'log\') }}", value: {id: "{{ key_of.row }}"}, guard: [{if: "{{ args.no }}", error: {code: no}}]}'
    assert told(played(crud, {"no": False}, {"no": True}, {"no": False})) == [
        {"id": "L1"},
        "no",
        {"id": "L2"},
    ]


def test_update_sets_keys_or_replaces_the_row():
    crud = 'crud: {update: readers, key: "{{ args.k }}", set: {name: "{{ args.n }}"}, guard: [{if: "{{ row.balance > 2 }}", error: {code: rich}}]}'
    ended = played(crud, {"k": "bob", "n": "B"}, {"k": "ann", "n": "A"}, {"k": "x", "n": "A"})
    assert [answer if isinstance(answer, str) else answer["name"] for answer in told(ended)] == [
        "B",
        "rich",
        "not_found",
    ]
    assert list(ended.changed["readers"]) == ["bob"]
    whole_row = 'crud: {update: readers, where: {name: Bob}, value: {name: "{{ row.name }}by"}}'
    assert played(whole_row).changed == {"readers": {"bob": {"name": "Bobby"}}}


def test_delete_answers_the_row_as_it_was():
    crud = 'crud: {delete: readers, key: "{{ args.k }}", guard: [{if: "{{ row.loans }}", error: {code: has_books}}]}'
    ended = played(crud, {"k": "bob"}, {"k": "bob"}, {"k": "ann"})
    assert [answer if isinstance(answer, str) else answer["name"] for answer in told(ended)] == [
        "Bob",
        "not_found",
        "has_books",
    ]
    assert ended.changed == {"readers": {"bob": None}}


MANY = "store: {pens: {rows: {a: {ink: red, n: 1}, b: {ink: blue, n: 2}, c: {ink: red, n: 3}, d: {ink: red}, e: {ink: blue, n: 5}}}}"


def listed(crud, *arguments):
    def short(rows):
        return "".join(str(row.get("n", "-")) for row in rows)

    def answer(value):
        return (short(value["items"]), value["next_cursor"]) if isinstance(value, dict) else short(value)

    results = played(f"crud: {crud}", *arguments, store=MANY).results
    return [result.error.code if result.error else answer(result.value) for result in results]


def test_list_answers_all_rows_in_their_order():
    assert listed("{list: pens}") == ["123-5"]


def test_list_keeps_the_rows_whose_fields_equal_the_arguments_that_are_given():
    given = [{}, {"ink": "red"}, {"ink": "red", "n": 3}, {"n": 2}, {"ink": "green"}, {"n": None}, {"n": "2"}]
    assert listed("{list: pens, where: [ink, n]}", *given) == ["123-5", "13-", "3", "2", "", "123-5", ""]
    fields = "{list: pens, where: {ink: \"{{ args['colour'] }}\", n: \"{{ args['n'] }}\"}}"
    assert listed(fields, {"colour": "blue"}, {"colour": "blue", "n": 5}, {}) == ["25", "5", "123-5"]


def test_list_may_ask_a_condition():
    assert listed("{list: pens, where: \"{{ row['n'] and row.n > args.n }}\"}", {"n": 2}) == ["35"]


def test_list_ends_at_a_limit():
    crud = "{list: pens, limit: \"{{ args['most'] }}\"}"
    assert listed(crud, {"most": 2}, {}, {"most": 9}, {"most": 0}, {"most": "2"}, {"most": 1.5}) == [
        "12",
        "123-5",
        "123-5",
        "invalid_limit",
        "invalid_limit",
        "invalid_limit",
    ]
    assert listed("{list: pens, limit: 3}") == ["123"]


def test_list_goes_on_from_a_cursor():
    crud = "{list: pens, where: [ink], limit: \"{{ args['most'] }}\", cursor: \"{{ args['from'] }}\"}"
    given = [
        {"most": 2},
        {"most": 2, "from": "2"},
        {"most": 2, "from": "4"},
        {"ink": "red", "most": 2},
        {"ink": "red", "most": 2, "from": "2"},
        {"most": 5},
        {"from": "3"},
        {"most": 2, "from": "99"},
        {"most": 2, "from": "x"},
        {"most": 2, "from": "-1"},
        {"most": 2, "from": 2},
    ]
    assert listed(crud, *given) == [
        ("12", "2"),
        ("3-", "4"),
        ("5", None),
        ("13", "2"),
        ("-", None),
        ("123-5", None),
        ("-5", None),
        ("", None),
        "invalid_cursor",
        "invalid_cursor",
        "invalid_cursor",
    ]


def test_what_stands_beside_crud_comes_after_what_it_stands_for():
    block = """
        rows: {book: {in: books, key: "{{ args.isbn }}", missing: {code: no_book}}}
        let: {days: 14}
        crud:
          create: log
          key: "{{ args.id }}"
          value: {isbn: "{{ args.isbn }}", days: "{{ days }}"}
        guard: [{if: "{{ book.copies == 0 }}", error: {code: none_left}}]
        effects: [{decrement: book.copies}]
        content: [{type: text, text: "{{ row.isbn }} until {{ row.days }}"}]
    """
    given = [
        {"id": "1", "isbn": "b1"},
        {"id": "1", "isbn": "b1"},
        {"id": "2", "isbn": "b2"},
        {"id": "3", "isbn": "x"},
    ]
    ended = played(block, *given)
    assert told(ended) == [{"isbn": "b1", "days": 14}, "already_exists", "none_left", "no_book"]
    assert ended.results[0].content[0].text == "b1 until 14"
    assert ended.changed["books"]["b1"]["copies"] == 1


def test_names_that_crud_makes_up_give_way():
    block = 'let: {found: 1, found_: 2}\ncrud: {list: books}\ncontent: [{type: text, text: "{{ found }}{{ found_ }}"}]'
    assert len(played(block).value) == 2


@pytest.mark.parametrize(
    ("reply", "meaning"),
    [
        (
            {"crud": {"get": "books", "key": "k", "missing": "gone"}},
            {"rows": {"row": {"in": "books", "key": "k", "missing": "gone"}}, "result": "{{ row }}"},
        ),
        (
            {
                "crud": {
                    "update": "books",
                    "key": "k",
                    "missing": "gone",
                    "set": {"a": 1},
                    "guard": [{"if": "x", "error": "y"}],
                }
            },
            {
                "rows": {"row": {"in": "books", "key": "k", "missing": "gone"}},
                "guard": [{"if": "x", "error": "y"}],
                "effects": [{"update": "row", "set": {"a": 1}}],
                "result": "{{ row }}",
            },
        ),
        (
            {"crud": {"delete": "books", "key": "k", "missing": "gone"}, "latency": "1s"},
            {
                "latency": "1s",
                "rows": {"row": {"in": "books", "key": "k", "missing": "gone"}},
                "let": {"deleted": "{{ row }}"},
                "effects": [{"delete": "row"}],
                "result": "{{ deleted }}",
            },
        ),
        (
            {"crud": {"create": "books", "id": "i"}},
            {
                "rows": {"row": {"in": "books", "key": "i"}},
                "effects": [{"insert": "books", "key": "{{ key_of.row }}", "value": "{{ args }}"}],
                "result": "{{ row }}",
            },
        ),
        (
            {"crud": {"list": "books"}},
            {"let": {"found": "{{ store.books | values }}"}, "result": "{{ found }}"},
        ),
    ],
)
def test_crud_stands_for_a_reply(reply, meaning):
    before = repr(reply)
    assert whole(reply) == meaning
    assert repr(reply) == before


@pytest.mark.parametrize(
    ("block", "faults"),
    [
        ("crud: {get: boks, key: x}", [("unknown_collection", "/mock/crud/get")]),
        ('crud: {get: books, key: "{{ nope }}", missing: a}', [("unknown_name", "/mock/crud/key")]),
        ('crud: {get: books, key: x, missing: "{{ nope }}"}', [("unknown_name", "/mock/crud/missing")]),
        ('crud: {get: books, where: {title: "{{ nope }}"}}', [("unknown_name", "/mock/crud/where/title")]),
        (
            'crud: {get: books, key: x, guard: [{if: "{{ row.titel }}", error: a}]}',
            [("unknown_row_key", "/mock/crud/guard/0/if")],
        ),
        ("crud: {update: books, key: x, set: {titel: 1}}", [("unknown_row_key", "/mock/crud/set/titel")]),
        ('crud: {update: log, key: x, value: {a: "{{ nope }}"}}', [("unknown_name", "/mock/crud/value/a")]),
        ('crud: {create: log, id: "{{ nope }}"}', [("unknown_name", "/mock/crud/id")]),
        ('crud: {create: log, key: x, value: "{{ nope }}"}', [("unknown_name", "/mock/crud/value")]),
        ("crud: {list: boks}", [("unknown_argument", "/mock/crud/list")]),
        ("crud: {list: boks, where: [a]}", [("unknown_argument", "/mock/crud/list")]),
        ('crud: {list: books, where: {title: "{{ nope }}"}}', [("unknown_name", "/mock/crud/where/title")]),
        ('crud: {list: books, where: "{{ nope }}"}', [("unknown_name", "/mock/crud/where")]),
        ('crud: {list: books, limit: "{{ nope }}"}', [("unknown_name", "/mock/crud/limit")]),
        ('crud: {list: books, limit: 1, cursor: "{{ nope }}"}', [("unknown_name", "/mock/crud/cursor")]),
        (
            'crud: {get: books, key: x}\nguard: [{if: "{{ nope }}", error: a}]',
            [("unknown_name", "/mock/guard/0/if")],
        ),
        ("crud: {delete: log, key: x}\neffects: [{delete: nope}]", [("not_a_row", "/mock/effects/0/delete")]),
        ("crud: {get: books, key: x}\nlet: {a: 1}", [("unused_name", "/mock/let/a")]),
    ],
)
def test_faults_are_told_where_they_are_written(block, faults):
    assert refused(block) == faults


def test_a_bug_is_told_where_it_is_written():
    result = failed('crud: {update: books, key: b1, set: {copies: "{{ args.n }}"}}', {"n": -1})
    assert result.error.details["pointer"] == "/mock/crud"
    result = failed('crud: {get: books, key: "{{ args.n.m }}"}', {"n": 1})
    assert result.error.details["pointer"] == "/mock/crud/key"


@pytest.mark.parametrize(
    "crud",
    [
        "{}",
        "{key: x}",
        "{get: books}",
        "{get: books, key: x, where: {a: 1}}",
        "{get: books, key: x, list: books}",
        "{get: books, where: [a]}",
        "{get: books, key: x, set: {a: 1}}",
        "{get: books, key: x, id: y}",
        "{get: books, key: x, limit: 1}",
        "{list: books, key: x}",
        "{list: books, missing: x}",
        "{list: books, guard: [{if: '{{ 1 }}', error: a}]}",
        "{list: books, limit: 0}",
        "{list: books, cursor: x}",
        "{list: books, where: []}",
        "{list: books, where: {}}",
        "{create: log}",
        "{create: log, key: x, id: y}",
        "{create: log, key: x, missing: y}",
        "{create: log, where: {a: 1}}",
        "{create: log, key: x, set: {a: 1}}",
        "{update: log, key: x}",
        "{update: log, key: x, set: {a: 1}, value: {}}",
        "{update: log, set: {a: 1}}",
        "{update: log, key: x, set: {}}",
        "{delete: log}",
        "{delete: log, key: x, value: 1}",
    ],
)
def test_keys_that_mean_nothing_together_are_refused(crud):
    assert refused(f"crud: {crud}") != []


@pytest.mark.parametrize(
    ("crud", "code", "place"),
    [
        ("{delete: log}", "missing_key", "/key"),
        ("{get: books}", "missing_key", "/key"),
        ("{create: log}", "missing_key", "/key"),
        ("{update: log, key: x}", "missing_key", "/set"),
        ("{list: books, cursor: x}", "missing_key", "/limit"),
        ("{get: books, key: x, set: {a: 1}}", "wrong_combination", "/set"),
        ("{key: x}", "wrong_combination", ""),
    ],
)
def test_what_is_missing_of_a_crud_is_told_by_its_name(crud, code, place):
    assert refused(f"crud: {crud}") == [(code, f"/mock/crud{place}")]
    assert refused(f"rules: [{{reply: {{crud: {crud}}}}}]") == [(code, f"/mock/rules/0/reply/crud{place}")]


@pytest.mark.parametrize("where", ["mock", "rule", "sequence"])
def test_no_row_beside_crud_is_called_row(where):
    reply = "{crud: {get: books, key: b1}, rows: {row: {in: books, key: b2}}, content: [{type: text, text: '{{ row }}'}]}"
    block = {
        "mock": reply[1:-1].replace("}, ", "}\n"),
        "rule": f"rules: [{{reply: {reply}}}]",
        "sequence": f"sequence: [{reply}]",
    }[where]
    assert refused(block) != []
