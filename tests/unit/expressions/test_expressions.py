"""Expressions: what they mean, what is refused, and that nothing but an ExpressionError ever comes out."""

import math
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import (
    compile_condition,
    compile_expression,
    compile_text,
    compile_value,
    is_expression,
)

NAMES = ("args", "order", "store", "none_here", "n")
SCOPE = {
    "args": {
        "city": "Oslo",
        "days": 3,
        "flag": True,
        "ids": ["a", "b", "a"],
        "nothing": None,
        "email": "x@y",
    },
    "order": {"status": "pending", "items": [{"id": 1, "price": 2.5}, {"id": 2, "price": 4}], "keys": "data"},
    "store": {"users": {"u1": {"name": "Ann", "tags": []}}},
    "n": 5,
}


def evaluate(source, scope=SCOPE):
    return compile_expression(source, NAMES).evaluate(scope)


def error_of(source, scope=SCOPE):
    with pytest.raises(ExpressionError) as caught:
        evaluate(source, scope)
    return caught.value


def same(left, right):
    """Equal in value and in type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(value, right[key]) for key, value in left.items())
    return left == right


MEANINGS = [
    ("n", 5),
    ("args.city", "Oslo"),
    ("store.users.u1.name", "Ann"),
    ("order.items", [{"id": 1, "price": 2.5}, {"id": 2, "price": 4}]),
    ("order.keys", "data"),
    ("order['status']", "pending"),
    ("order['absent']", None),
    ("order.items[0].id", 1),
    ("order.items[-1].id", 2),
    ("order.items[7]", None),
    ("order.items[-7]", None),
    ("order.items.0.id", 1),
    ("store.users['u1'].tags", []),
    ("args.ids[1:]", ["b", "a"]),
    ("args.city[1:3]", "sl"),
    ("args.city[::-1]", "olsO"),
    ("args.ids[:n - 4]", ["a"]),
    ("'a' 'b'", "ab"),
    ("'\\u00e9\\n\\x41'", "é\nA"),
    ("[1, 'x', none, true]", [1, "x", None, True]),
    ("(1, n)", [1, 5]),
    ("{'a': n, args.city: 2}", {"a": 5, "Oslo": 2}),
    ("[]", []),
    ("{}", {}),
    ("0x10 + 1_000", 1016),
    ("n + 1", 6),
    ("n / 2", 2.5),
    ("n // 2", 2),
    ("-n // 2", -3),
    ("n % 3", 2),
    ("2 ** n", 32),
    ("2 ** -1", 0.5),
    ("2 ** 3 ** 2", 64),
    ("-2 ** 2", 4),
    ("+n", 5),
    ("-args.days", -3),
    ("1 - 3 | abs", -2),
    ("-3 | abs", 3),
    ("'a' + 'b'", "ab"),
    ("args.ids + [1]", ["a", "b", "a", 1]),
    ("args.city ~ ' ' ~ n ~ true ~ none ~ [1, {'a': 1.5}]", 'Oslo 5truenull[1,{"a":1.5}]'),
    ("1 == 1.0", True),
    ("true == 1", False),
    ("0 != false", True),
    ("[1, {'a': [true]}] == [1.0, {'a': [true]}]", True),
    ("[true] == [1]", False),
    ("{'a': 1} == {'a': 1, 'b': 2}", False),
    ("{'a': 1} == [1]", False),
    ("[1] == [1, 2]", False),
    ("[1] == {'a': 1}", False),
    ("order.status == 'pending'", True),
    ("order.status != 'pending'", False),
    ("args.days == 'pending'", False),
    ("1 in [true]", False),
    ("n in [4, 5]", True),
    ("n not in [4, 5]", False),
    ("args.city in ['Oslo', 'Rome']", True),
    ("args.days in ['Oslo', 'Rome']", False),
    ("args.days not in ['Oslo', 'Rome']", True),
    ("'status' in order", True),
    ("1 in order", False),
    ("'sl' in args.city", True),
    ("1 < n < 9", True),
    ("1 < n < 3 < 9", False),
    ("'a' < 'b' <= 'b' > 'a' >= 'a'", True),
    ("n > 4.5", True),
    ("args.flag and args.city", "Oslo"),
    ("none or args.city", "Oslo"),
    ("args.nothing or 0", 0),
    ("not args.nothing", True),
    ("args.flag and none_here", None),
    ("'yes' if args.flag else 'no'", "yes"),
    ("none_here.x if not args.flag else 1", 1),
    ("args.nothing is none", True),
    ("args.city is not none", True),
    ("args.city is string", True),
    ("args.flag is boolean", True),
    ("args.flag is number", False),
    ("n is number", True),
    ("2.5 is integer", False),
    ("n is integer", True),
    ("args is mapping and args is object", True),
    ("args.ids is sequence and args.ids is list", True),
    ("args.city is list or args.city is object", False),
    ("n is odd", True),
    ("n is even", False),
    ("args.flag is true", True),
    ("args.flag is false", False),
    ("n is in [5]", True),
    ("args.city is matching('[A-Z][a-z]+')", True),
    ("args.city is matching('[A-Z]')", False),
    ("n is matching('5')", False),
    ("'a\\n' is matching('a')", False),
    ("'(1 + 2) * -3.5 ** 2' is arithmetic", True),
    ("'10 ** 999' is arithmetic", True),
    ("'10 ** 1000' is arithmetic", False),
    ("'2 ** 99999' is arithmetic", False),
    ("'02' is arithmetic or '1 + 007' is arithmetic", False),
    ("'00 + 0.5 + 02.5 + 01e1' is arithmetic", True),
    ("'2 +' is arithmetic or '1/0' is arithmetic or '' is arithmetic", False),
    ("args.city is arithmetic or n is arithmetic or none is arithmetic", False),
    ("'1' is not arithmetic", False),
    ("'{{' ~ '}}'", "{{}}"),
    ("'words'[1.0:3.0] ~ [1, 2, 3][2.0] ~ (range(2.0) | length)", "or32"),
    ("4.0 is even and 3.0 is odd", True),
]


@pytest.mark.parametrize(("source", "value"), MEANINGS, ids=[source for source, _ in MEANINGS])
def test_an_expression_means(source, value):
    assert same(evaluate(source, {**SCOPE, "none_here": None}), value)


FAULTS = [
    ("foo", "unknown_name", "unknown name `foo`; the names here are `args`"),
    ("arg.city", "unknown_name", "did you mean `args`?"),
    ("length", "unknown_name", "`length` is a function"),
    ("args.citty", "missing_key", "did you mean `city`? if it may be missing, use `args['citty']`"),
    ("store.users.u1.tgas", "missing_key", "`store.users.u1` has no `tgas`: it has `name`, `tags`"),
    ("store.users['u1'].x", "missing_key", "`store.users['u1']` has no `x`"),
    ("{}.x", "missing_key", "it is empty"),
    ("order.items[n - 5].x", "missing_key", "`order.items[...]` has no `x`"),
    ("[{}][0].x", "missing_key", "the value at `[0]` has no `x`"),
    ("args.nothing.x", "expression_failed", "`args.nothing` is none and has no `x`"),
    ("args.ids.x", "expression_failed", "`args.ids` is a list"),
    ("args.city.x", "expression_failed", "`args.city` is a string"),
    ("n.x", "expression_failed", "`n` is a number"),
    ("args.flag.x.y", "expression_failed", "`args.flag` is `true`"),
    ("args.nothing['x']", "expression_failed", "`args.nothing` is none: `[]` needs"),
    ("args.city[0]", "expression_failed", "use `[0:1]` for a part of a string"),
    ("order[0]", "expression_failed", "`[... | string]`"),
    ("order[none]", "expression_failed", "`order` is an object: `[]` needs a string, not none"),
    ("args.ids['a']", "expression_failed", "is a list: `[]` needs a whole number"),
    ("args.ids[true]", "expression_failed", "is a list: `[]` needs a whole number"),
    ("args.ids['a':]", "expression_failed", "bounds of a slice must be whole numbers, not a string"),
    ("args.ids[::0]", "expression_failed", "step"),
    ("n[1:]", "expression_failed", "needs a list or a string"),
    ("args.ids[1, 2]", "expression_failed", "`[]` needs a whole number, not a list"),
    ("args.ids[1:2, 0]", "expression_not_allowed", "`Slice` is not supported in expressions"),
    ("none_here", "unknown_name", "has no value here"),
    ("none_here.x", "unknown_name", "has no value here"),
    ("none_here.x.y", "unknown_name", "has no value here"),
    ("args.city if n", "expression_syntax", "`else none`"),
    ("true + 1", "expression_failed", "not `true` and a number"),
    ("n - 'x'", "expression_failed", "| float"),
    ("'a' * 3", "expression_failed", "`*` needs two numbers"),
    ("[1] * 3", "expression_failed", "`*` needs two numbers"),
    ("'%s' % 3", "expression_failed", "`%` needs two numbers"),
    ("'a' + 1", "expression_failed", "two numbers, two strings or two lists"),
    ("-args.city", "expression_failed", "`-` needs a number, not a string"),
    ("+args.flag", "expression_failed", "`+` needs a number, not `true`"),
    ("n < 'a'", "expression_failed", "two numbers or two strings"),
    ("none < 1", "expression_failed", "not none and a number"),
    ("n / 0", "expression_failed", "`/` divides by zero"),
    ("n // 0", "expression_failed", "`//` divides by zero"),
    ("n % 0", "expression_failed", "`%` divides by zero"),
    ("0 ** -1", "expression_failed", "divides by zero"),
    ("(-8) ** 0.5", "expression_failed", "whole exponent"),
    ("1e308 * 10", "expression_failed", "too large for JSON"),
    ("10 ** 900 / 1e-300", "expression_failed", "too large for a JSON number"),
    ("10 ** 999 * 100", "expression_failed", "1,000 digits"),
    ("9 ** n ** 999", "expression_failed", "1,000 digits"),
    ("3 ** 3000", "expression_failed", "1,000 digits"),
    ("1e999", "expression_failed", "too large for JSON"),
    ("1 in 2", "expression_failed", "a list, an object or a string on its right"),
    ("1 in 'a'", "expression_failed", "needs a string on its left"),
    ("{n: 1}", "expression_failed", "key of an object must be a string"),
    ("n is even(2)", "expression_syntax", "accepts no arguments"),
    ("2.5 is even", "expression_failed", "needs a whole number"),
    ("true is odd", "expression_failed", "needs a whole number"),
    ("n is in", "expression_syntax", "accepts 1 argument, got 0"),
    ("args.city is arithmetic(1)", "expression_syntax", "accepts no arguments, got 1"),
    ("n is defined", "unknown_function", "`a['key'] is not none`"),
    ("n is numbr", "unknown_function", "did you mean `number`?"),
    ("n is zzzzz", "unknown_function", "the tests are `arithmetic`"),
    ("n is in(x=1)", "expression_not_allowed", "no named arguments"),
    ("args.city is matching(args.city)", "expression_not_allowed", "constant string"),
    ("args.city is matching('a)|(b')", "expression_syntax", "is not a pattern"),
    ("args.city is matching('(?=a)')", "expression_syntax", "look-around"),
    ("args.city is matching('(?x)a#')", "expression_syntax", "is not a pattern"),
    ("args.city.upper()", "expression_not_allowed", "write `value | upper`"),
    ("args.city.lowr()", "expression_not_allowed", "did you mean `lower`?"),
    ("args['x']()", "expression_not_allowed", "only built-in functions"),
    ("n | count", "unknown_function", "write `length`"),
    ("n | lowr", "unknown_function", "did you mean `lower`?"),
    ("n | zzzzz", "unknown_function", "the functions are `abs`"),
    ("args(1)", "unknown_function", "unknown function `args`"),
    ("length(*args.ids)", "expression_not_allowed", "`*` and `**`"),
    ("find(args.ids, **args)", "expression_not_allowed", "`*` and `**`"),
    ("args.ids | find", "expression_syntax", "`list | find(field=value)`"),
    ("args.ids | find(1)", "expression_syntax", "needs a field"),
    ("args.ids | find(1, a=1)", "expression_syntax", "accepts 1 values"),
    ("args.ids | find(a=1, a=2)", "expression_syntax", "duplicate named argument"),
    ("args.ids | sort(attribute='x')", "expression_syntax", "no named arguments, got `attribute`"),
    ("args.ids | count_of", "expression_syntax", "accepts 2 values"),
    ("args.ids | count_of(1, a=1)", "expression_syntax", "accepts 1 values"),
    ("args.ids | sort(1, 2)", "expression_syntax", "accepts 1 to 2 values"),
    ("zip(args.ids)", "expression_syntax", "accepts 2 or more values"),
    ("n n", "expression_syntax", "unexpected `n`"),
    ("n +", "expression_syntax", "in `n +`"),
    ("", "expression_syntax", "the expression between the braces is empty"),
    ("n }} {{ n", "expression_syntax", "unexpected"),
    ("'\\d'", "expression_syntax", "literal backslash as `\\\\`"),
    ("'\\ud800'", "expression_failed", "half a surrogate pair"),
    ("'\ud800'", "expression_syntax", "half a surrogate pair"),
    ("9" * 5000, "expression_syntax", "invalid number in"),
    ("9" * 1001, "expression_failed", "1,000 digits"),
    ("n" * 20_000, "expression_too_large", "at most 16,384"),
    ("(" * 8000, "expression_too_large", "nested too deeply"),
    ("not " * 100 + "n", "expression_too_large", "64 levels"),
    ("[" + "n," * 2001 + "]", "expression_too_large", "2,000 operations"),
]


@pytest.mark.parametrize(("source", "code", "words"), FAULTS, ids=[source[:40] for source, _, _ in FAULTS])
def test_an_expression_is_refused(source, code, words):
    error = error_of(source)
    assert error.code == code
    assert words in str(error)


HOSTILE = [
    ("D41", "{{ ''.__class__ }}"),
    ("D42", "{{ ''|attr('__class__') }}"),
    ("D43", "{{ '{0.__class__}'.format(1) }}"),
    ("D44", "{% for i in range(10**9) %}{% endfor %}"),
    ("D46", "{{ 'a'*10**9 }}"),
    ("D47", "{{ 10**(10**9) }}"),
    ("D48", "{{ undefined_thing }}"),
    ("D51", "one\n{{ args.city"),
    ("D52-include", "{% include 'x' %}"),
    ("D52-import", "{% import 'x' as y %}"),
    ("D52-from", "{% from 'x' import y %}"),
    ("D52-extends", "{% extends 'x' %}"),
    ("D53", "{{ lipsum(n=100000) }}"),
    ("D54-env", "{{ env.TOKEN }}"),
    ("D54-secret", "{{ secret('TOKEN') }}"),
    ("D54-secrets", "{{ secrets['TOKEN'] }}"),
]


@pytest.mark.parametrize(("case", "source"), HOSTILE, ids=[case for case, _ in HOSTILE])
def test_a_hostile_template_is_refused_when_it_is_compiled(case, source):
    began = time.process_time()
    problems = []
    compile_value({"x": [source]}, NAMES, problems)
    with pytest.raises(ExpressionError) as caught:
        compile_text(source, NAMES)
    assert time.process_time() - began < 10
    assert [problem.pointer for problem in problems] == ["/x/0"]
    assert caught.value.message.startswith("line 2" if case == "D51" else "line 1")


def test_d45_two_long_loops_end_with_a_typed_error():
    text = compile_text("{% for a in args.x %}{% for b in args.x %}{% endfor %}{% endfor %}", ["args"])
    began = time.process_time()
    with pytest.raises(ExpressionError, match="10,000 turns"):
        text.render({"args": {"x": list(range(99_999))}})
    assert time.process_time() - began < 10


def test_d48_an_undefined_name_is_named():
    assert "`undefined_thing`" in error_of("undefined_thing").message


@pytest.mark.parametrize(
    "data", ["{{ 7*7 }}", "{% if x %}", "${HOME}", "$${HOME}"], ids=["D49", "statement", "env", "$$"]
)
def test_d49_data_is_never_read_as_an_expression(data):
    scope = {"args": {"x": data}}
    rendering = compile_value({"whole": "{{ args.x }}", "part": "<{{ args.x }}>"}, ["args"], [])
    assert rendering.render(scope) == {"whole": data, "part": f"<{data}>"}
    assert compile_text("<{{ args.x }}>", ["args"]).render(scope) == f"<{data}>"


def test_a_name_is_looked_up_only_when_the_expression_reads_it():
    looked = []

    class Lazy(dict):
        def __missing__(self, name):
            looked.append(name)
            return 0

    expression = compile_expression("n and args.city or 1 if n else 2", NAMES)
    assert expression.names == {"n", "args"}
    assert expression.evaluate(Lazy()) == 2
    assert looked == ["n"]


def test_a_constant_list_is_new_at_each_evaluation():
    expression = compile_expression("[[]]", ())
    first = expression.evaluate({})
    first[0].append(1)
    assert expression.evaluate({}) == [[]]


def test_values_that_are_too_deep_give_a_typed_error():
    deep = []
    for _ in range(5000):
        deep = [deep]
    scope = {"n": deep, "args": [deep]}
    assert "nested too deeply" in error_of("[n] == args", scope).message
    assert "nested too deeply" in error_of("n | string", scope).message


def test_whether_a_text_holds_an_expression():
    assert is_expression("a {{ b }}")
    assert not is_expression("a { b }")


@pytest.mark.parametrize("source", ["{{ n > 4 }}", "  {{n > 4}}\n", "{{ {'a': {}} }}", "{{ '}}' }}"])
def test_a_condition_is_one_whole_expression(source):
    assert compile_condition(source, NAMES).evaluate(SCOPE)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("n > 4", 'write `"{{ n > 4 }}"`'),
        ("", 'write `"{{ ... }}"`'),
        ("{{ n }} > 4", "is not a single expression"),
        ("{{ n }}{{ n }}", "is not a single expression"),
        ("{{ n", "unclosed `{{`"),
        ("{{- n }}", "not a minus sign"),
        ("{{ nn }}", "did you mean `n`?"),
    ],
)
def test_a_condition_that_is_anything_else_is_refused(source, words):
    with pytest.raises(ExpressionError) as caught:
        compile_condition(source, NAMES)
    assert words in str(caught.value)


# Laws.

NUMBERS = st.one_of(
    st.integers(-50, 50), st.floats(-50, 50, allow_nan=False).map(lambda number: round(number, 3))
)
LITERALS = NUMBERS.map(lambda number: f"({number!r})")


def flat(operators, operands):
    """Operands with operators between them, without parentheses: precedence decides."""
    return st.lists(st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=5).flatmap(
        lambda rest: operands.map(
            lambda first: first + "".join(f" {sign} {operand}" for sign, operand in rest)
        )
    )


ARITHMETIC = flat(["+", "-", "*", "/", "//", "%"], LITERALS)
COMPARISON = flat(["<", "<=", ">", ">=", "==", "!="], st.one_of(LITERALS, ARITHMETIC))
LOGIC = flat(["and", "or", "and not", "or not"], st.one_of(COMPARISON, LITERALS))
CHOICE = st.tuples(LOGIC, LOGIC, LOGIC).map(lambda three: f"{three[0]} if {three[1]} else {three[2]}")


@settings(max_examples=examples(120), deadline=None)
@given(st.one_of(ARITHMETIC, COMPARISON, LOGIC, CHOICE))
@example("1 - 2 - 3")
@example("7 // 2 * 2 % 3")
@example("1 < 2 == 2")
def test_arithmetic_comparison_and_precedence_are_pythons(source):
    try:
        expected = eval(source, {"__builtins__": {}})  # noqa: S307, RUF100 -- our own literals
    except ZeroDivisionError:
        expected = None
    try:
        ours = compile_expression(source, ()).evaluate({})
    except ExpressionError as error:
        # Python skips what `and` and `or` decide; a constant part that fails is refused all the same.
        assert "divides by zero" in error.message or "too large for" in error.message  # noqa: PT017
        return
    assert expected is not None
    assert ours == expected or (isinstance(expected, bool) and ours is expected)
    assert isinstance(ours, bool) == isinstance(expected, bool)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(80), deadline=None)
@given(JSON_VALUES, JSON_VALUES)
def test_equality_is_reflexive_symmetric_and_agrees_with_membership_and_unique(one, two):
    scope = {"n": one, "args": two}
    assert evaluate("n == n", scope) is True
    assert evaluate("n == args", scope) is evaluate("args == n", scope) is not evaluate("n != args", scope)
    assert evaluate("n == args", scope) is evaluate("n in [args]", scope)
    assert evaluate("[n, args] | unique | length == 1", scope) is evaluate("n == args", scope)


@settings(max_examples=examples(80), deadline=None)
@given(JSON_VALUES)
def test_a_value_comes_through_unchanged_or_as_json_text(value):
    assert evaluate("n", {"n": value}) is value
    text = evaluate("n | string", {"n": value})
    if isinstance(value, list | dict):
        assert compile_value("{{ n }}!", NAMES, []).render({"n": value}) == f"{text}!"


WORDS = st.sampled_from(
    [
        "args",
        "order",
        "n",
        "none",
        "true",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        "..",
        ",",
        ":",
        "|",
        "~",
        "+",
        "-",
        "*",
        "**",
        "/",
        "//",
        "%",
        "<",
        "<=",
        "==",
        "!=",
        "in",
        "not",
        "and",
        "or",
        "if",
        "else",
        "is",
        "'a'",
        "'b\\n'",
        '"',
        "'",
        "\\",
        "0",
        "1",
        "2.5",
        "1e9",
        "99",
        "length",
        "sort",
        "find(id=1)",
        "count_of(1)",
        "matching('a')",
        "join",
        "split",
        "range",
        "zip",
        "round",
        "items",
        "city",
        "keys",
        "sum",
        "abs",
        "arith",
        "default(1)",
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-}}",
        "{{-",
        "for",
        "endfor",
        "endif",
        "loop",
        "é",
        "٣",
        "�",
    ]
)
SOUP = st.lists(WORDS, max_size=14).flatmap(
    lambda words: st.sampled_from(["", " "]).map(lambda between: between.join(words))
)


@settings(max_examples=examples(400), deadline=None)
@given(st.one_of(SOUP, st.text(max_size=30)))
@example("0x")
@example("٣.٥")
@example("1__0")
@example("'\\N{DASH}'")
@example("a" * 300 + "'")
def test_whatever_is_written_only_an_expression_error_comes_out(source):
    try:
        value = evaluate(source)
    except ExpressionError as error:
        assert error.message  # noqa: PT017
    else:
        assert not isinstance(value, float) or math.isfinite(value)
    problems = []
    compile_value(source, NAMES, problems)
    compile_value("{{" + source + "}}", NAMES, problems)
    for template in (source, f"{{{{ {source} }}}}", f"{{% if {source} %}}x{{% endif %}}"):
        try:
            compile_text(template, NAMES).render(SCOPE)
        except ExpressionError as error:
            assert error.message  # noqa: PT017


def test_a_method_that_people_bring_from_elsewhere_is_told_with_what_to_write():
    with pytest.raises(ExpressionError) as caught:
        compile_expression("'{}'.format(1)", [])
    assert caught.value.hint == "write `~`, which joins strings"
