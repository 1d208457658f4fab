"""Effects: in order, each sees those before it; all of them happen, or nothing."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keeping import calls, keeping
from library import LIBRARY, failed, hints, played, refused, tool
from sampling import examples

ANN = "rows: {ann: {in: readers, key: ann}}\n"


def ann_after(effects, *arguments, more=""):
    """The row of Ann after the effects."""
    return played(f'{ANN}{more}effects: {effects}\nresult: "{{{{ ann }}}}"', *arguments).value


def test_update_replaces_the_keys_of_set_and_leaves_others_where_they_are():
    row = ann_after("[{update: ann, set: {extra: 1, name: Anna, new: {a: '{{ ann.name }}'}}}]")
    assert list(row) == ["name", "email", "balance", "loans", "cards", "extra", "new"]
    assert (row["name"], row["new"], row["email"]) == ("Anna", {"a": "Ann"}, "ann@x.org")


def test_set_may_be_an_expression():
    assert ann_after('[{update: ann, set: "{{ args.changes }}"}]', {"changes": {"name": "A"}})["name"] == "A"


def test_append_puts_a_value_at_the_end():
    assert ann_after('[{append: ann.loans, value: "{{ args.v }}"}]', {"v": {"isbn": "z"}})["loans"][-1] == {
        "isbn": "z"
    }


@pytest.mark.parametrize(
    ("effect", "balance"),
    [
        ("{increment: ann.balance}", 3.5),
        ("{decrement: ann.balance}", 1.5),
        ("{increment: ann.balance, by: 2}", 4.5),
        ('{decrement: ann.balance, by: "{{ args.by }}"}', 2.4),
        ("{increment: ann.balance, by: 0.175, round: 2}", 2.67),
        ("{increment: ann.balance, by: 0, round: 0}", 2.0),
        ("{increment: ann.balance, by: 12.6, round: -1}", 20.0),
    ],
)
def test_numbers_are_raised_and_lowered_and_rounded_as_python_rounds(effect, balance):
    assert ann_after(f"[{effect}]", {"by": 0.1})["balance"] == balance


def test_whole_numbers_stay_whole():
    effects = "[{increment: 'ann.cards.c1.points', by: 2, round: 2}, {decrement: 'ann.loans[0].days', by: 5}]"
    row = ann_after(effects)
    assert json.dumps([row["cards"]["c1"]["points"], row["loans"][0]["days"]]) == "[7, -2]"


def test_first_means_the_first_element_that_now_fits():
    effects = """
        - for_each: {new: [x, y]}
          update: ann.loans
          first: {isbn: b1}
          set: {isbn: "{{ new }}"}
    """
    loans = played(f'{ANN}effects: {effects}\nresult: "{{{{ ann.loans }}}}"').value
    assert [loan["isbn"] for loan in loans] == ["x", "b2", "y"]


@pytest.mark.parametrize(
    ("choice", "days"),
    [
        ("where: {isbn: b1}", [0, 9, 0]),
        ("where: {isbn: b9}", [3, 9, 4]),
        ('where: "{{ row.days < args.most }}"', [0, 9, 4]),
        ('first: "{{ row.days > args.most }}"', [3, 0, 4]),
    ],
)
def test_where_means_all_elements_that_fit(choice, days):
    loans = played(
        f"{ANN}effects: [{{update: ann.loans, {choice}, set: {{days: 0}}}}]\nresult: '{{{{ ann.loans }}}}'",
        {"most": 4},
    ).value
    assert [loan["days"] for loan in loans] == days


def test_where_on_an_object_means_its_values_and_on_a_collection_its_rows():
    effects = '[{update: ann.cards, where: {kind: gold}, set: {points: 0}}, {update: readers, where: "{{ row.balance < 2 }}", set: {poor: true}}]'
    ended = played(f"{ANN}effects: {effects}\nresult: 1")
    rows = ended.changed["readers"]
    assert rows["ann"]["cards"] == {"c1": {"kind": "gold", "points": 0}}
    assert [rows[key].get("poor") for key in ("ann", "bob", "7")] == [None, True, True]


def test_expressions_of_one_effect_see_what_was_before_it():
    assert [
        loan["days"]
        for loan in ann_after(
            '[{update: ann.loans, where: {isbn: b1}, set: {days: "{{ ann.loans[0].days + 1 }}"}}]'
        )["loans"]
    ] == [4, 9, 4]


def test_insert_puts_a_row_under_its_key():
    block = 'effects: [{insert: readers, key: "{{ args.k }}", value: {name: "{{ args.n }}"}}]\nresult: "{{ store.readers | keys }}"'
    assert played(block, {"k": 12, "n": "D"}).value == ["ann", "bob", "7", "12"]


def test_insert_may_take_the_key_from_the_row_or_put_it_into_it():
    block = """
        effects:
        - {insert: books, value: {isbn: n1, title: A, copies: 1}}
        - {insert: books, key: n2, value: {title: B, copies: 1}}
        result: "{{ [store.books.n1, store.books.n2] }}"
    """
    first, second = played(block).value
    assert (first["isbn"], list(second)) == ("n1", ["isbn", "title", "copies"])


def test_rows_without_a_key_are_numbered_and_a_number_is_never_given_twice():
    block = """
        effects:
        - {if: "{{ args.gone }}", delete: "log[args.gone]"}
        - {insert: log, value: {n: "{{ call }}"}}
        result: "{{ store.log | keys }}"
    """
    given = [{"gone": None}, {"gone": None}, {"gone": "2"}, {"gone": None}]
    assert [result.value for result in played(block, *given).results] == [
        ["1"],
        ["1", "2"],
        ["1", "3"],
        ["1", "3", "4"],
    ]


def test_a_number_that_a_row_has_is_left_out():
    pens = "store: {pens: {rows: {'2': {}, '3': {}}}}"
    block = (
        "effects: [{insert: pens, value: {}}, {insert: pens, value: {}}]\nresult: '{{ store.pens | keys }}'"
    )
    assert played(block, store=pens).value == ["2", "3", "4", "5"]


def test_insert_and_upsert_put_into_an_object_within_a_row():
    row = ann_after(
        "[{insert: ann.cards, key: c2, value: {kind: tin}}, {upsert: ann.cards, key: c1, value: {kind: zinc}}]"
    )
    assert row["cards"] == {"c1": {"kind": "zinc"}, "c2": {"kind": "tin"}}


def test_upsert_replaces_or_adds_a_row():
    block = 'effects: [{upsert: books, value: {isbn: "{{ args.i }}", title: T, copies: 1}}]\nresult: "{{ store.books | values | pluck(\'title\') }}"'
    assert [result.value for result in played(block, {"i": "b1"}, {"i": "b3"}).results] == [
        ["T", "Ulysses"],
        ["T", "Ulysses", "T"],
    ]


def test_delete_takes_out_a_row_a_key_an_element():
    row = ann_after(
        "[{delete: ann.email}, {delete: 'ann.loans[1]'}, {delete: 'readers[args.who]'}]", {"who": "bob"}
    )
    assert "email" not in row
    assert [loan["days"] for loan in row["loans"]] == [3, 4]


def test_delete_takes_out_elements_that_fit():
    block = f"{ANN}effects: [{{delete: ann.loans, where: {{isbn: b1}}}}, {{delete: ann.cards, first: {{kind: gold}}}}, {{delete: readers, where: {{loans: []}}}}]\nresult: '{{{{ ann }}}}'"
    ended = played(block)
    assert (ended.value["loans"], ended.value["cards"]) == ([{"isbn": "b2", "days": 9}], {})
    assert ended.changed["readers"] == {"ann": ended.value, "bob": None, "7": None}


def test_a_deleted_row_is_none():
    block = 'rows: {bob: {in: readers, key: bob}}\nlet: {was: "{{ bob }}"}\neffects: [{delete: bob}]\nresult: ["{{ bob }}", "{{ was.name }}"]'
    assert played(block).value == [None, "Bob"]


def test_a_row_in_a_list_is_followed_when_one_before_it_is_taken_out():
    block = """
        rows:
          ann: {in: readers, key: ann}
          first: {in: ann.loans, key: 0}
          last: {in: ann.loans, key: 2}
        effects: [{delete: first}, {increment: last.days}]
        result: ["{{ first }}", "{{ last.days }}", "{{ ann.loans | pluck('days') }}", "{{ key_of.last }}"]
    """
    assert played(block).value == [None, 5, [9, 5], 1]


def test_goto_moves_named_states():
    block = 'effects: [{goto: {door: "{{ args.to }}", mood: "{{ state.door }}"}}]\nresult: "{{ state }}"'
    results = played(block, {"to": "open"}, {"to": "closed"}).results
    assert [result.value for result in results] == [
        {"door": "open", "mood": "closed"},
        {"door": "closed", "mood": "open"},
    ]


def test_an_effect_may_have_a_condition_and_each_sees_those_before_it():
    effects = """
        - {if: "{{ ann.balance > 3 }}", update: ann, set: {seen: early}}
        - {increment: ann.balance, by: 1}
        - {if: "{{ ann.balance > 3 }}", update: ann, set: {seen: late}}
    """
    assert played(f'{ANN}effects: {effects}\nresult: "{{{{ ann.seen }}}}"').value == "late"


def test_do_happens_under_one_loop_and_condition():
    effects = """
        - for_each: {loan: "{{ ann.loans }}", n: [1, 2, 3]}
          let: {more: "{{ loan.days + n }}"}
          if: "{{ loan.isbn == 'b1' }}"
          do:
          - append: ann.loans
            value: {isbn: new, days: "{{ more }}"}
          - for_each: {m: [10, 20]}
            increment: ann.balance
            by: "{{ m * n }}"
    """
    row = played(f'{ANN}effects: {effects}\nresult: "{{{{ ann }}}}"').value
    assert [loan["days"] for loan in row["loans"]] == [3, 9, 4, 4, 7]
    assert row["balance"] == 2.5 + 30 + 90


def test_a_loop_reads_its_list_before_it_begins():
    effects = '[{for_each: {loan: "{{ ann.loans }}"}, append: ann.loans, value: "{{ loan }}"}]'
    assert len(ann_after(effects)["loans"]) == 6


def test_stock_of_each_line_may_be_lowered_by_its_key():
    block = """
        effects:
        - for_each: {line: "{{ args.lines }}"}
          decrement: books[line.isbn].copies
          by: "{{ line.n }}"
        result: "{{ store.books | values | pluck('copies') }}"
    """
    assert played(block, {"lines": [{"isbn": "b1", "n": 1}, {"isbn": "b1", "n": 1}]}).value == [0, 0]


def test_what_is_written_belongs_to_the_store_alone():
    arguments = {"v": {"isbn": "z", "more": [1]}}
    ended = played(
        f"{ANN}effects: [{{append: ann.loans, value: '{{{{ args.v }}}}'}}]\nresult: '{{{{ ann }}}}'",
        arguments,
    )
    arguments["v"]["more"].append(2)
    ended.value["loans"][-1]["more"].append(3)
    assert ended.changed["readers"]["ann"]["loans"][-1] == {"isbn": "z", "more": [1]}


BUGS = [
    ("{update: ann.nothing, set: {a: 1}}", "absent_place", "/mock/effects/0/update"),
    ("{update: ann.name, set: {a: 1}}", "expression_failed", "/mock/effects/0/update"),
    ('{update: ann, set: "{{ args.x }}"}', "expression_failed", "/mock/effects/0/set"),
    ("{update: ann.loans, first: {isbn: b9}, set: {a: 1}}", "absent_place", "/mock/effects/0/update"),
    ("{update: ann.name, where: {isbn: b9}, set: {a: 1}}", "expression_failed", "/mock/effects/0/update"),
    ("{append: ann.nothing, value: 1}", "absent_place", "/mock/effects/0/append"),
    ("{append: ann.name, value: 1}", "expression_failed", "/mock/effects/0/append"),
    ("{increment: ann.name}", "expression_failed", "/mock/effects/0/increment"),
    ("{increment: ann.balance, by: '{{ ann.name }}'}", "expression_failed", "/mock/effects/0/increment"),
    ("{increment: ann.balance, by: '{{ ann.nome }}'}", "missing_key", "/mock/effects/0/by"),
    ("{decrement: 'ann.loans[9].days'}", "absent_place", "/mock/effects/0/decrement"),
    ("{decrement: 'ann.loans.days'}", "absent_place", "/mock/effects/0/decrement"),
    ("{decrement: 'ann.name.days'}", "absent_place", "/mock/effects/0/decrement"),
    ("{decrement: 'ann[1]'}", "absent_place", "/mock/effects/0/decrement"),
    ("{decrement: 'books[args.x].copies'}", "absent_place", "/mock/effects/0/decrement"),
    ("{delete: ann.nothing}", "absent_place", "/mock/effects/0/delete"),
    ("{delete: nobody}", "absent_place", "/mock/effects/0/delete"),
    ("{insert: readers, key: ann, value: {}}", "existing_key", "/mock/effects/0/insert"),
    ("{insert: ann.cards, key: c1, value: {}}", "existing_key", "/mock/effects/0/insert"),
    ("{insert: ann.loans, key: c1, value: {}}", "expression_failed", "/mock/effects/0/insert"),
    ("{insert: readers, key: '{{ none }}', value: {}}", "expression_failed", "/mock/effects/0/insert"),
    ("{insert: books, value: {title: x}}", "expression_failed", "/mock/effects/0/insert"),
    (
        "{insert: books, key: a, value: {isbn: b, title: x, copies: 1}}",
        "row_breaks_schema",
        "/mock/effects/0/insert",
    ),
    (
        "{insert: books, key: a, value: {title: x, copies: '{{ -1 * args.x }}'}}",
        "row_breaks_schema",
        "/mock/effects/0/insert",
    ),
    ("{insert: log, value: 1}", "row_breaks_schema", "/mock/effects/0/insert"),
    ("{decrement: 'books.b2.copies'}", "row_breaks_schema", "/mock/effects/0/decrement"),
    ("{update: books.b1, set: {isbn: '{{ args.k }}'}}", "row_breaks_schema", "/mock/effects/0/update"),
    ("{update: books.b1, set: '{{ {args.k: 1} }}'}", "row_breaks_schema", "/mock/effects/0/update"),
    ("{goto: {door: '{{ args.k }}'}}", "unknown_state", "/mock/effects/0/goto"),
    ("{goto: {mood: '{{ args.x }}'}}", "unknown_state", "/mock/effects/0/goto"),
    (
        "{for_each: {a: '{{ [1] }}', b: '{{ [] }}'}, increment: ann.balance}",
        "unequal_lists",
        "/mock/effects/0",
    ),
    (
        "{for_each: {a: '{{ range(101) }}'}, do: [{for_each: {b: '{{ range(100) }}'}, increment: ann.balance}]}",
        "expression_failed",
        "/mock/effects/0/do/0",
    ),
    (
        "{append: ann.loans, value: '{{ range(10000) }}'}, {append: ann.loans, value: {a: '{{ ann.loans[3] }}', b: 1}}",
        "expression_failed",
        "/mock/effects/1/append",
    ),
]


@pytest.mark.parametrize(("effects", "cause", "pointer"), BUGS)
def test_what_can_not_be_done_is_a_bug_of_the_mock_and_changes_nothing(effects, cause, pointer):
    rows = "{ann: {in: readers, key: ann}, nobody: {in: readers, key: nobody}}"
    block = f"rows: {rows}\neffects: [{effects}]\nresult: '{{{{ [ann, nobody] }}}}'"
    details = failed(block, {"x": 1, "k": "wrong"}).error.details
    assert (details["cause"], details["pointer"]) == (cause, pointer)


def test_an_effect_that_fails_undoes_those_before_it():
    failed(
        f"{ANN}effects: [{{insert: log, value: {{}}}}, {{goto: {{door: open}}}}, {{update: ann, set: {{name: X}}}}, {{delete: ann.nothing}}]\nresult: 1"
    )


def test_rows_may_break_their_schema_on_the_way():
    block = "rows: {book: {in: books, key: b2}}\neffects: [{decrement: book.copies}, {increment: book.copies, by: 3}]\nresult: '{{ book.copies }}'"
    assert played(block).value == 2


def test_a_value_that_grows_by_holding_itself_comes_to_an_end():
    block = f"{ANN}effects: [{{update: ann, set: {{a: '{{{{ ann }}}}', b: '{{{{ ann }}}}'}}}}]\nresult: 1"
    outcomes = [result.outcome.value for result in played(block, *[{}] * 16).results]
    assert outcomes == ["ok"] * outcomes.index("internal") + ["internal"] * (16 - outcomes.index("internal"))


@pytest.mark.parametrize(
    ("effect", "fault"),
    [
        ("{update: anna, set: {a: 1}}", ("not_a_row", "/mock/effects/0/update")),
        ("{update: args, set: {a: 1}}", ("not_a_row", "/mock/effects/0/update")),
        ("{update: books, set: {copies: 1}}", ("not_a_row", "/mock/effects/0/update")),
        ("{delete: books}", ("not_a_row", "/mock/effects/0/delete")),
        ('{update: "{{ ann }}", set: {a: 1}}', ("invalid_place", "/mock/effects/0/update")),
        ("{update: ann., set: {a: 1}}", ("invalid_place", "/mock/effects/0/update")),
        ("{update: 'ann[', set: {a: 1}}", ("invalid_place", "/mock/effects/0/update")),
        ("{update: 'ann[nope]', set: {a: 1}}", ("unknown_name", "/mock/effects/0/update")),
        ("{update: book, set: {titel: 1}}", ("unknown_row_key", "/mock/effects/0/set/titel")),
        ("{update: book.shelf, set: {roof: 1}}", ("unknown_row_key", "/mock/effects/0/set/roof")),
        (
            "{update: book.fees, where: {id: 1}, set: {dew: 1}}",
            ("unknown_row_key", "/mock/effects/0/set/dew"),
        ),
        ("{update: 'book.fees[0]', set: {dew: 1}}", ("unknown_row_key", "/mock/effects/0/set/dew")),
        ("{update: 'books[args.x]', set: {titel: 1}}", ("unknown_row_key", "/mock/effects/0/set/titel")),
        (
            "{update: books, where: {copies: 0}, set: {titel: 1}}",
            ("unknown_row_key", "/mock/effects/0/set/titel"),
        ),
        ("{append: nope.x, value: 1}", ("not_a_row", "/mock/effects/0/append")),
        ("{append: ann.x, value: '{{ nope }}'}", ("unknown_name", "/mock/effects/0/value")),
        ("{increment: ann.x, by: '{{ nope }}'}", ("unknown_name", "/mock/effects/0/by")),
        ("{increment: nope.x}", ("not_a_row", "/mock/effects/0/increment")),
        ("{insert: boks, value: 1}", ("not_a_row", "/mock/effects/0/insert")),
        ("{insert: ann.cards, value: 1}", ("missing_key", "/mock/effects/0")),
        ("{upsert: log, value: {}}", ("missing_key", "/mock/effects/0")),
        ("{goto: {dor: open}}", ("unknown_machine", "/mock/effects/0/goto/dor")),
        ("{goto: {door: opened}}", ("unknown_state", "/mock/effects/0/goto/door")),
        ("{if: ann, delete: ann}", ("expression_syntax", "/mock/effects/0/if")),
        (
            "{for_each: {a: [1], b: []}, increment: ann.balance}",
            ("unequal_lists", "/mock/effects/0/for_each"),
        ),
        ("{for_each: {ann: [1]}, increment: ann.balance}", ("name_taken", "/mock/effects/0/for_each/ann")),
        (
            "{for_each: {a: [1]}, let: {b: 1}, increment: ann.balance}",
            ("unused_name", "/mock/effects/0/let/b"),
        ),
        ("{do: [{delete: nope}]}", ("not_a_row", "/mock/effects/0/do/0/delete")),
    ],
)
def test_what_can_never_work_is_found_when_the_tool_is_loaded(effect, fault):
    rows = "{ann: {in: readers, key: ann, missing: a}, book: {in: books, key: b1, missing: a}}"
    assert fault in refused(f"rows: {rows}\neffects: [{effect}]\nresult: 1")


def test_keys_that_the_schema_knows_may_be_set():
    block = "rows: {book: {in: books, key: b1}}\neffects: [{update: book, set: {lent: true}}, {update: book.shelf, set: {no: 2}}]\nresult: 1"
    assert refused(block) == []


def test_a_name_that_is_nearly_right_is_told():
    assert "did you mean `ann`?" in hints(f"{ANN}effects: [{{delete: anm}}]\nresult: '{{{{ ann }}}}'")
    assert "did you mean `door`?" in hints("effects: [{goto: {dor: open}}]\nresult: 1")


@pytest.mark.parametrize(
    "effect",
    [
        "{}",
        "{set: {a: 1}}",
        "{update: ann}",
        "{append: ann.loans}",
        "{insert: log}",
        "{update: ann, set: {a: 1}, delete: ann}",
        "{delete: ann, value: 1}",
        "{append: ann.loans, value: 1, key: a}",
        "{append: ann.loans, value: 1, by: 1}",
        "{delete: ann, round: 1}",
        "{append: ann.loans, value: 1, where: {a: 1}}",
        "{update: ann.loans, first: {a: 1}, where: {a: 1}, set: {a: 1}}",
        "{delete: ann, let: {a: 1}}",
        "{increment: ann.balance, round: 0.5}",
        "{update: ann, set: {}}",
        "{update: ann, set: text}",
        "{goto: {}}",
        "{do: []}",
        "{for_each: {}, delete: ann}",
        "{for_each: {a: 1}, delete: ann}",
    ],
)
def test_keys_that_mean_nothing_together_are_refused(effect):
    assert refused(f"{ANN}effects: [{effect}]\nresult: '{{{{ ann }}}}'") != []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(-5, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("raise"), st.integers(0, 5)),
    ),
    max_size=8,
)


@cache
def changing():
    """A runtime that appends to, deletes from and raises what is in a list, as it is asked."""
    return keeping(
        tool(f"""
{ANN}
effects:
- {{if: "{{{{ args.do == 'append' }}}}", append: ann.loans, value: {{days: "{{{{ args.n }}}}"}}}}
- {{if: "{{{{ args.do == 'delete' and args.n < (ann.loans | length) }}}}", delete: "ann.loans[args.n]"}}
- {{if: "{{{{ args.do == 'raise' and args.n < (ann.loans | length) }}}}", increment: "ann.loans[args.n].days"}}
result: "{{{{ ann.loans | pluck('days') }}}}"
"""),
        LIBRARY,
    )


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_changes_are_those_of_a_plain_list_and_no_earlier_answer_moves(steps):
    expected, days = [], [3, 9, 4]
    for do, n in steps:
        days = days.copy()
        if do == "append":
            days.append(n)
        elif n < len(days) and do == "delete":
            del days[n]
        elif n < len(days):
            days[n] += 1
        expected.append(days)
    results = calls(changing().session(), *({"do": do, "n": n} for do, n in steps))
    assert [result.value for result in results] == expected


@pytest.mark.parametrize("condition", ["true", "1 > 2", "none"])
def test_the_if_of_an_effect_that_says_the_same_for_every_call_is_told(condition):
    block = f"effects: [{{if: '{{{{ {condition} }}}}', goto: {{door: open}}}}]\nresult: 1"
    assert refused(block) == [("constant_condition", "/mock/effects/0/if")]


def test_by_needs_a_number_or_an_expression():
    block = f"{ANN}effects: [{{increment: ann.balance, by: args.n}}]\nresult: 1"
    assert refused(block) == [("expression_syntax", "/mock/effects/0/by")]
    assert hints(block) == ['write `"{{ args.n }}"`, or a number']
    assert refused(block.replace("args.n", "'{{ [1] }}'")) == [("wrong_type", "/mock/effects/0/by")]
