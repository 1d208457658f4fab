"""The short way through many rules chooses what trying all of them chooses."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from in_memory import loaded, mocked
from keeping import calls, keeping
from sampling import examples
from toolcrib import Descriptor
from toolcrib.core.errors import ExpressionError
from toolcrib.executors.mock.rules import FEWEST, choose_rule, compile_rules, index_rules
from toolcrib.executors.mock.variables import MockState

PLAIN = st.sampled_from(
    [None, True, False, 0, 1, 1.0, 2, -0.0, "", "1", "true", "a", "b", "$${x}", 2**60, float(2**60)]
)
NESTED = st.sampled_from([[1], {"b": 1}, [], {}])
PATTERNS = st.sampled_from(
    ["{{ args.z }}", {"$exists": True}, {"$in": [1, "a"]}, {"$ne": 1}, {"$gt": 0}, [1], {"b": 1}]
)
WANTED = st.dictionaries(st.sampled_from(["x", "y"]), PLAIN | PATTERNS, max_size=2)
GIVEN = st.dictionaries(st.sampled_from(["x", "y", "z"]), PLAIN | NESTED, max_size=3)
RULES = st.lists(
    st.tuples(
        WANTED | st.sampled_from([{"$any": [{"x": 1}, {"y": 2}]}, {"$exact": {"x": 1}}]),
        st.sampled_from(["error", "repeat", "cycle", "next_rule"]),
    ),
    min_size=FEWEST,
    max_size=FEWEST + 6,
)


def compiled(rules):
    block = {
        "rules": [
            {"when": {"args": args}, "reply": [{"result": 1}], "after_last": after} for args, after in rules
        ]
    }
    problems: list = []
    made = compile_rules(Descriptor("tool", input_schema=True, bindings={"mock": block}), problems)
    assert [problem for problem in problems if problem.severity == "error"] == []
    return made


def chosen(rules, arguments, state):
    try:
        found = choose_rule(rules, {"args": arguments}, 1, state)
    except ExpressionError as error:
        return str(error)
    return None if found is None else found[0].label


@settings(deadline=None, max_examples=examples(60))
@example([({"x": 1}, "next_rule")] * FEWEST, [{"x": 1.0}, {"x": True}, {"x": [1]}, {}])
@example(
    [({"x": "{{ args.z }}", "y": 1}, "repeat"), *[({"y": n}, "repeat") for n in range(FEWEST)]],
    [{"x": 1, "y": 3}],
)
@given(RULES, st.lists(GIVEN, min_size=1, max_size=8))
def test_the_choice_is_that_of_trying_every_rule(written, given_arguments):
    rules = compiled(written)
    choice = index_rules(rules)
    state = MockState()
    for arguments in given_arguments:
        left = rules if choice is None else choice.left_for(arguments)
        answer = chosen(rules, arguments, state)
        assert chosen(left, arguments, state) == answer
        for rule in rules:  # what is chosen is used up, so that later calls go on to others
            if rule.label == answer:
                state.used[rule.pointer] = state.used.get(rule.pointer, 0) + 1


def test_few_rules_are_left_of_many_that_ask_for_one_value_each():
    rules = compiled(
        [
            *(({"unit": "c", "city": f"c{n}"}, "repeat") for n in range(1_000)),
            ({"city": {"$exists": True}}, "repeat"),
            ({}, "repeat"),
        ]
    )
    choice = index_rules(rules)
    assert [rule.label for rule in choice.left_for({"unit": "c", "city": "c7"})] == [
        "rule 8",
        "rule 1001",
        "rule 1002",
    ]
    assert [rule.label for rule in choice.left_for({"unit": "c", "city": "else"})] == [
        "rule 1001",
        "rule 1002",
    ]
    assert [rule.label for rule in choice.left_for({})] == ["rule 1001", "rule 1002"]


def test_lists_are_merged_when_asked_for_where_laying_them_out_would_take_much_room():
    rules = compiled([({"x": n} if n % 2 else {"y": {"$gt": n}}, "repeat") for n in range(800)])
    choice = index_rules(rules)
    assert [rule.label for rule in choice.left_for({"x": 3})][:4] == ["rule 1", "rule 3", "rule 4", "rule 5"]


def test_few_rules_or_rules_that_nothing_plain_tells_apart_have_no_short_way():
    assert index_rules(compiled([({"x": n}, "repeat") for n in range(FEWEST - 1)])) is None
    assert index_rules(compiled([({"x": {"$gt": n}}, "repeat") for n in range(FEWEST)])) is None


def test_a_mock_of_many_rules_answers_as_one_of_few():
    rules = "\n".join(f"- {{when: {{args: {{city: c{n}}}}}, reply: {{result: {n}}}}}" for n in range(50))
    text = mocked(f"rules:\n{rules}\n- {{reply: {{result: rest}}}}")
    assert loaded(text).problems == ()
    results = calls(keeping(text, ""), {"city": "c49"}, {"city": "c0"}, {"city": "x"}, {})
    assert [result.value for result in results] == [49, 0, "rest", "rest"]
