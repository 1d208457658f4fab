"""What one mocked reply answers: each key of it, and what is refused when it is loaded."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from in_memory import loaded, mocked, problems_of, runtime_of
from sampling import examples
from toolcrib import Content, Outcome, VirtualClock

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=6,
)


def call(text, arguments=None, files=None, **options):
    return asyncio.run(runtime_of(text, files, **options).call("tool", arguments))


def value(text, arguments=None, files=None, **options):
    result = call(text, arguments, files, **options)
    assert result.outcome is Outcome.OK, result.message
    return result.value


# result


def test_a_result_is_answered_as_it_is_written():
    assert value(mocked("result: {a: [1, 2.5, null, true, 'x']}")) == {"a": [1, 2.5, None, True, "x"]}
    assert value(mocked("result: null")) is None


def test_a_whole_expression_keeps_its_type_and_others_become_text():
    block = 'result: {n: "{{ args.n }}", t: "n is {{ args.n }}", l: ["{{ args.l }}"]}'
    assert value(mocked(block), {"n": 3, "l": [1]}) == {"n": 3, "t": "n is 3", "l": [[1]]}


@cache
def echo():
    return runtime_of(mocked('result: "{{ args.x }}"'))


@settings(deadline=None, max_examples=examples(50))
@example("{{ 1 + 1 }}")
@given(JSON_VALUES)
def test_data_is_never_read_as_an_expression(data):
    assert asyncio.run(echo().call("tool", {"x": data})).value == data


def test_every_name_of_the_scope_can_be_read():
    block = 'result: ["{{ args }}", "{{ call }}", "{{ attempt }}", "{{ session.id }}", "{{ session.calls }}", "{{ now }}", "{{ seed }}"]'
    assert value(mocked(block), {"a": 1}, seed=5) == [{"a": 1}, 1, 1, "main", 1, "2030-01-01T00:00:00Z", 5]


@pytest.mark.parametrize(
    ("block", "pointer"),
    [
        ('result: {a: "{{ arg.x }}"}', "/mock/result/a"),
        ('result: ["{{ args.x"]', "/mock/result/0"),
        ('error: {code: a, message: "{{ nope }}"}', "/mock/error/message"),
        ('error: {code: a, details: {b: "{{ nope }}"}}', "/mock/error/details/b"),
        ('template: "{% if %}"', "/mock/template"),
        ('template: "{{ 1 / 0 }}"', "/mock/template"),
        ('template: "{% for n in [1, 0] %}{{ 1 / n }}{% endfor %}"', "/mock/template"),
        ('content: [{type: text, text: "{{ nope }}"}]', "/mock/content/0/text"),
        ('result: 1\nprogress: [{progress: 1, message: "{{ nope }}"}]', "/mock/progress/0/message"),
        ('rules: [{when: {if: "{{ nope }}"}, reply: {result: 1}}]', "/mock/rules/0/when/if"),
        ('rules: [{when: {args: {a: "{{ nope }}"}}, reply: {result: 1}}]', "/mock/rules/0/when/args/a"),
        ('rules: [{reply: [{result: 1}, {result: "{{ nope }}"}]}]', "/mock/rules/0/reply/1/result"),
        ('sequence: [{result: "{{ nope }}"}]', "/mock/sequence/0/result"),
        ('generate: {overlay: {a: "{{ nope }}"}}', "/mock/generate/overlay/a"),
    ],
)
def test_broken_expressions_are_found_when_the_tool_is_loaded(block, pointer):
    assert [found for _code, found in problems_of(mocked(block))] == [pointer]


def test_an_argument_that_the_schema_does_not_know_is_found_when_the_tool_is_loaded():
    closed = "{properties: {city: {}}, additionalProperties: false}"
    assert [
        pointer for _code, pointer in problems_of(mocked('result: "{{ args.ctiy }}"', inputs=closed))
    ] == ["/mock/result"]
    assert problems_of(mocked('result: "{{ args.city }}"', inputs=closed)) == []
    patterned = "{properties: {city: {}}, patternProperties: {c: {}}, additionalProperties: false}"
    assert problems_of(mocked('result: "{{ args.ctiy }}"', inputs=patterned)) == []
    assert problems_of(mocked('result: "{{ args.ctiy }}"', inputs="{properties: {city: {}}}")) == []


# What is not the same is not shared.


def spoil(answer):
    """Fill everything in an answer that can be filled."""
    if isinstance(answer, dict):
        for item in answer.values():
            spoil(item)
        answer["spoilt"] = True
    elif isinstance(answer, list):
        for item in answer:
            spoil(item)
        answer.append("spoilt")


@pytest.mark.parametrize(
    "text",
    [
        mocked("result: {a: {b: [1, {c: []}]}, d: [], e: [[{}]]}"),
        mocked('result: {a: "{{ args.x }}", fixed: {b: [[1]]}}'),
        mocked('result: "{{ args }}"'),
        mocked('result: ["{{ args.x }}", {a: {}}]'),
        mocked("result_file: data.json"),
        mocked('template: "{\\"a\\": [{{ 1 + 1 }}]}"'),
        mocked("generate: true", output="{examples: [{a: {b: []}}]}"),
        mocked("generate: true", output="{const: {a: {b: []}}}"),
        mocked('generate: {overlay: {a: {b: []}, c: "{{ args.x }}"}}', output="{type: object}"),
        mocked("rules: [{reply: {result: {a: [{}]}}}]"),
        mocked("sequence: [{result: {a: [{}]}}]\nafter_last: repeat"),
    ],
)
def test_what_a_caller_does_to_an_answer_stays_with_the_caller(text):
    runtime = runtime_of(text, {"data.json": '{"a": [{"b": {}}]}'})
    arguments = {"x": {"y": [1]}}

    async def thrice():
        answers = []
        for _ in range(3):
            answers.append((await runtime.session().call("tool", arguments)).value)
            kept = str(answers[-1])
            spoil(answers[-1])
            answers[-1] = kept
        return answers

    first, second, third = asyncio.run(thrice())
    assert first == second == third
    assert arguments == {"x": {"y": [1]}}


def test_the_details_of_an_error_are_not_shared_either():
    runtime = runtime_of(mocked("error: {code: a, details: {list: [1]}}"))

    async def twice():
        (await runtime.call("tool")).error.details["list"].append(2)
        return (await runtime.call("tool")).error.details

    assert asyncio.run(twice()) == {"list": [1]}


# result_file


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("a.json", '{"a": 1.50, "b": "{{ args.x }}"}', {"a": 1.5, "b": "{{ args.x }}"}),
        ("a.json", "[1, 2]", [1, 2]),
        ("a.yaml", "a: no\nb: $${x}\n", {"a": "no", "b": "$${x}"}),
        ("data/deep/a.yml", "- 1\n- {b: 2}\n", [1, {"b": 2}]),
    ],
)
def test_a_result_file_is_data_and_is_never_rendered(name, text, answer):
    assert value(mocked(f"result_file: {name}"), {"x": 1}, {name: text}) == answer


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({}, "file_unreadable"),
        ({"a.json": "{"}, None),
        ({"a.json": b"\xff"}, "invalid_utf8"),
    ],
)
def test_a_result_file_that_is_no_good_is_found_when_the_tool_is_loaded(files, code):
    ((found, pointer),) = problems_of(mocked("result_file: a.json"), files)
    assert pointer == "/mock/result_file"
    assert found == code or code is None


def test_a_result_file_of_two_documents_and_one_outside_are_refused():
    assert problems_of(mocked("result_file: a.yaml"), {"a.yaml": "1\n---\n2\n"}) == [
        ("several_documents", "/mock/result_file")
    ]
    assert problems_of(mocked("result_file: ../a.json"), {"a.json": "1"}) == [
        ("file_unreadable", "/mock/result_file")
    ]
    assert problems_of(mocked("result_file: a.json")) == [("file_unreadable", "/mock/result_file")]


# error


def test_an_error_may_be_one_text():
    result = call(mocked('error: "no city {{ args.city }}"'), {"city": "Oslø"})
    assert result.outcome is Outcome.TOOL_ERROR
    assert (result.message, result.error.code, result.error.retryable) == (
        "no city Oslø",
        "tool_error",
        False,
    )
    assert result.content == (Content("text", text="no city Oslø"),)
    assert result.usage.attempts == 1


def test_an_error_has_a_code_message_status_details_and_whether_to_try_again():
    block = """
        error:
          code: not_found
          message: "{{ args.n }}"
          status: 404
          retryable: true
          details: {n: "{{ args.n }}", fixed: [1]}
    """
    error = call(mocked(block), {"n": [1, "a"]}).error
    assert (error.code, error.message, error.retryable) == ("not_found", '[1,"a"]', True)
    assert error.details == {"status": 404, "n": [1, "a"], "fixed": [1]}


def test_the_message_of_an_error_is_its_code_unless_given():
    assert call(mocked("error: {code: rate_limited}")).message == "rate_limited"


def test_an_error_is_not_judged_by_the_output_schema():
    assert call(mocked("error: no", output="{type: integer}")).outcome is Outcome.TOOL_ERROR


# template and template_file


def test_a_template_that_is_json_text_becomes_its_value():
    block = 'template: "[{% for n in args.ns %}{{ n * 2 }}{% if not loop.last %},{% endif %}{% endfor %}]"'
    assert value(mocked(block), {"ns": [1, 2, 3]}) == [2, 4, 6]


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        ("{{ args.x }}", "plain"),
        ("two\n\nlines", "two\n\nlines"),
        ("42", 42),
        ("NaN", "NaN"),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("{broken", "{broken"),
        ("", ""),
    ],
)
def test_a_template_that_is_no_json_text_stays_text(template, answer):
    assert value(mocked("template_file: a.j2"), {"x": "plain"}, {"a.j2": template}) == answer


HARD = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\"\\\n\r\t{}%#'\u2028"), max_size=12
)


@cache
def quoting():
    return runtime_of(mocked("template: '{\"said\": {{ tojson(args.x) }}}'"))


@settings(deadline=None, max_examples=examples(50))
@given(HARD)
def test_any_argument_stays_itself_in_a_template_that_asks_for_json(text):
    assert asyncio.run(quoting().call("tool", {"x": text})).value == {"said": text}


@pytest.mark.parametrize("text", ['say "hi"', "two\nlines", "back\\slash", 'x", "admin": true, "y": "'])
def test_an_argument_within_the_quotes_of_a_json_template_stays_text(text):
    assert value(mocked('template: \'{"said": "{{ args.x }}"}\''), {"x": text}) == {"said": text}


def test_a_template_that_is_no_json_answers_text_that_the_result_check_refuses():
    block = "template: '{\"said\": {{ args.x }}}'"
    assert value(mocked(block), {"x": "hi"}) == '{"said": hi}'
    assert call(mocked(block, output="{type: object}"), {"x": "hi"}).outcome is Outcome.INVALID_RESULT


def test_a_template_file_is_read_once_and_may_hold_statements():
    text = "{% for name in args.names %}Hello {{ name }}.\n{% endfor %}"
    assert (
        value(mocked("template_file: t/a.txt"), {"names": ["A", "B"]}, {"t/a.txt": text})
        == "Hello A.\nHello B.\n"
    )


def test_a_template_that_cannot_be_read_is_found_when_the_tool_is_loaded():
    assert problems_of(mocked("template_file: a.txt"), {"a.txt": "{% for %}"}) == [
        ("expression_syntax", "/mock/template_file")
    ]
    assert problems_of(mocked("template_file: a.txt"), {}) == [("file_unreadable", "/mock/template_file")]


# generate


SCHEMA = "{type: object, properties: {n: {type: integer, minimum: 0, maximum: 1000000}, s: {type: string, examples: [told]}}, required: [n, s]}"


def test_what_is_generated_fits_the_schema_and_is_stable_for_arguments_and_seed():
    text = mocked("generate: true", output=SCHEMA)
    first = value(text, {"a": 1, "b": 2})
    assert value(text, {"b": 2, "a": 1}) == first
    assert first["s"] == "told"
    others = [value(text, {"a": 2}), value(text, {"a": 1, "b": 2}, seed=1)]
    assert first not in others


def test_what_is_generated_does_not_depend_on_the_calls_before():
    runtime = runtime_of(mocked("generate: true", output=SCHEMA))

    async def some():
        session = runtime.session(id="x")
        before = [await session.call("tool", {"a": number}) for number in range(3)]
        again = await runtime.session(id="y").call("tool", {"a": 2})
        return before[2].value, again.value

    one, other = asyncio.run(some())
    assert one == other


def test_an_overlay_is_put_over_what_is_generated():
    block = 'generate: {overlay: {s: "{{ args.s }}", more: {a: 1}}}'
    answer = value(mocked(block, output=SCHEMA), {"s": "mine"})
    assert (answer["s"], answer["more"]) == ("mine", {"a": 1})
    assert isinstance(answer["n"], int)


def test_examples_of_the_schema_may_be_ignored():
    assert value(mocked("generate: {examples: ignore}", output=SCHEMA))["s"] != "told"
    assert value(mocked("generate: {examples: prefer}", output=SCHEMA))["s"] == "told"


def test_generating_needs_a_schema_that_something_fits():
    assert problems_of("name: tool\nmock: {generate: true}\n") == [("no_output_schema", "/mock/generate")]
    ((_code, pointer),) = problems_of(
        mocked("generate: true", output="{allOf: [{type: string}, {type: integer}]}")
    )
    assert pointer == "/mock/generate"
    assert problems_of(mocked("generate: false"))


# Fixed answers are proved when they are loaded.


@pytest.mark.parametrize(
    ("block", "pointer"),
    [
        ("result: {n: x}", "/mock/result/n"),
        ("result_file: a.json", "/mock/result_file"),
        ('template: \'{"n": "x"}\'', "/mock/template"),
        ("template_file: a.json", "/mock/template_file"),
        ('content: [{type: text, text: "a"}]', "/mock"),
        ('result: {n: x}\ncontent: [{type: text, text: "{{ args }}"}]', "/mock/result/n"),
        ("sequence: [{result: {n: 1}}, {result: {n: x}}]", "/mock/sequence/1/result/n"),
        ("rules: [{when: {call: 1}, reply: {result: {n: x}}}]", "/mock/rules/0/reply/result/n"),
        ("rules: [{reply: [{result: {n: 1}}, {result: {n: x}}]}]", "/mock/rules/0/reply/1/result/n"),
    ],
)
@pytest.mark.parametrize("rule", ["error", "warn", "pass"])
def test_a_fixed_answer_that_breaks_the_schema_is_found_when_the_tool_is_loaded(block, pointer, rule):
    text = mocked(
        block, output="{type: object, properties: {n: {type: integer}}}", more=f"on_invalid_result: {rule}"
    )
    (problem,) = loaded(text, {"a.json": '{"n": "x"}'}).problems
    assert (problem.code, problem.pointer) == ("result_breaks_schema", pointer)
    assert problem.severity == ("error" if rule == "error" else "warning")
    assert "expected an" in problem.message


def test_answers_that_fit_and_computed_ones_are_no_problem():
    output = "{type: object, properties: {n: {type: integer}}}"
    for block in ("result: {n: 1}", 'result: {n: "{{ args.n }}"}', "error: no", 'template: "{{ args.n }}"'):
        assert problems_of(mocked(block, output=output)) == []
    assert (
        call(mocked('result: {n: "{{ args.n }}"}', output=output), {"n": "x"}).outcome
        is Outcome.INVALID_RESULT
    )


# A mock that is wrong itself.


def test_a_mock_that_fails_is_internal_with_file_and_line_and_tells_no_secret():
    text = mocked('result:\n  fine: 1\n  broken: "{{ args.password + 1 }}"')
    result = call(text, {"password": "hunter2"})
    assert result.outcome is Outcome.INTERNAL
    assert result.message.startswith("the mock of `tool` failed at tools.yaml:7: ")
    assert result.error.code == "mock_failed"
    assert (result.error.details["at"], result.error.details["pointer"]) == (
        "tools.yaml:7",
        "/mock/result/broken",
    )
    assert "hunter2" not in str(result)


@pytest.mark.parametrize(
    ("block", "pointer"),
    [
        ('template: "{{ args.x.y }}"', "/mock/template"),
        ('error: "{{ args.x }}"', "/mock/error/message"),
        ('result: 1\nprogress: [{progress: 1, message: "{{ args.x }}"}]', "/mock/progress/0/message"),
        ('content: [{type: text, text: "{{ args.x }}"}]', "/mock/content/0/text"),
        (
            'rules:\n- {when: {if: "{{ call > 1 }}"}, reply: {result: 1}}\n- {when: {if: "{{ args.x }}"}, reply: {result: 1}}',
            "/mock/rules/1/when/if",
        ),
        ('rules: [{when: {args: {y: "{{ args.x }}"}}, reply: {result: 1}}]', "/mock/rules/0/when/args/y"),
        ('rules: [{when: {call: {$gt: "{{ args.x }}"}}, reply: {result: 1}}]', "/mock/rules/0/when/call/$gt"),
    ],
)
def test_wherever_a_mock_fails_the_place_is_told(block, pointer):
    result = call(mocked(block))
    assert result.outcome is Outcome.INTERNAL
    assert result.error.details["pointer"] == pointer
    assert "`x`" in result.message


def test_an_error_in_a_template_names_its_line_or_the_reply():
    result = call(mocked("template_file: a.j2"), {}, {"a.j2": "fine\n{{ args.x }}\n"})
    assert result.outcome is Outcome.INTERNAL
    assert result.error.details["at"] == "tools.yaml:5"


# Which keys may stand together.


@pytest.mark.parametrize(
    "block",
    [
        "{}",
        "{result: 1, error: a}",
        "{latency: 1s}",
        "{result: 1, rules: [{reply: {result: 1}}]}",
        "{rules: []}",
        "{sequence: []}",
        "{rules: [{reply: []}]}",
        "{rules: [{when: {}, reply: {result: 1}}]}",
        "{rules: [{reply: {result: 1}}], latency: 1s}",
        "{sequence: [{result: 1}], content: [{type: text, text: a}]}",
        "{result: 1, after_last: repeat}",
        "{rules: [{reply: {result: 1}}], after_last: repeat}",
        "{sequence: [{result: 1}], after_last: next_rule}",
        "{sequence: [{rules: []}]}",
        "{result: 1, latency: 5}",
        "{result: 1, latency: 5 s}",
        "{result: 1, latency: {min: 1s}}",
        "{result: 1, latency: {median: 1s}}",
        "{error: {message: a}}",
        "{error: {code: a, status: 99}}",
        "{template_file: ''}",
    ],
)
def test_a_block_of_the_wrong_shape_is_refused_with_a_pointer_into_it(block):
    problems = [
        problem for problem in loaded(f"name: tool\nmock: {block}\n").problems if problem.severity == "error"
    ]
    assert problems
    assert all(problem.pointer.startswith("/mock") and problem.line == 2 for problem in problems)


def test_after_last_beside_one_reply_is_needless():
    assert problems_of(mocked("rules: [{reply: {result: 1}, after_last: repeat}]")) == [
        ("needless_key", "/mock/rules/0/after_last")
    ]


def test_time_is_that_of_the_session():
    clock = VirtualClock()
    runtime = runtime_of(mocked('result: "{{ now }}"'), clock=clock)

    async def later():
        await clock.advance(90)
        return await runtime.call("tool")

    assert asyncio.run(later()).value == "2030-01-01T00:01:30Z"
