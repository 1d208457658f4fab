"""What newcomers write from memory of other tools is refused with the form to write."""

from __future__ import annotations

import pytest

from toolcrib import Runtime

HEAD = "name: a\ndescription: A tool.\ninput_schema: {type: object, properties: {city: {type: string}}}\n"


def problems(tmp_path, text, name="a.tool.yaml"):
    (tmp_path / name).write_text(text)
    with Runtime.open(tmp_path, index=False, trust=False) as tools:
        return tools.problems


@pytest.mark.parametrize(
    ("block", "pointer", "hint"),
    [
        ("http: {url: 'https://a.example'}", "/http", "write `live: ...` instead"),
        ("mode: http\nhttp: {url: 'https://a.example', method: GET}", "/http", "write `live: ...` instead"),
        ("mode: live\nhttp: {url: 'https://a.example', query: {a: 1}}", "/http", "write `live: ...` instead"),
        ("http: {url: 'https://a.example'}\nmock: {result: 1}", "/http", "write `live: ...` instead"),
        ("let: {a: 1}\nmock: {result: 1}", "/let", "write `mock: {let: ...}` instead"),
        ("guard: []\nmock: {result: 1}", "/guard", "write `mock: {guard: ...}` instead"),
        ("mock: {reply: {result: 1}}", "/mock/reply", "write `rules: [{reply: ...}]` instead"),
        ("mock: {response: {a: 1}}", "/mock/response", "write `result: ...` instead"),
        (
            "mock: {rules: [{when: {city: Oslo}, reply: {result: 1}}]}",
            "/mock/rules/0/when/city",
            "write `when: {args: {city: ...}}`",
        ),
        (
            "mock: {rules: [{when: {args: {city: Oslo}}, result: 1}]}",
            "/mock/rules/0/result",
            "write `reply: {result: ...}` instead",
        ),
        (
            "mode: live\nlive: {url: 'https://a.example', auth: {type: bearer, token: '${T}'}}",
            "/live/auth/type",
            "write `{type: http, scheme: bearer, token: ...}`",
        ),
        (
            "mode: live\nlive: {url: 'https://a.example', auth: bearer}",
            "/live/auth",
            "write `{type: http, scheme: bearer, token: ...}`",
        ),
    ],
)
def test_a_guess_gets_the_form_to_write(tmp_path, block, pointer, hint):
    found = {each.pointer: each for each in problems(tmp_path, HEAD + block)}
    assert found[pointer].hint == hint
    assert found[pointer].severity == "error"
    assert not any("PromptKit" in str(each) or "add a `http:` block" in each.hint for each in found.values())


def test_a_key_that_resembles_a_known_one_is_a_misspelling(tmp_path):
    text = HEAD + "mock: {rules: [{when: {agrs: {city: Oslo}}, reply: {result: 1}}]}"
    assert [each.hint for each in problems(tmp_path, text)] == ["did you mean `args`?"]


def test_a_part_of_the_result_in_expect_belongs_under_result(tmp_path):
    (tmp_path / "a.tool.yaml").write_text(HEAD + "mock: {result: {temperature: 1}}")
    text = "scenario: s\nsteps: [{call: a, expect: {temperature: 1}}]\n"
    (problem,) = problems(tmp_path, text, "s.scenario.yaml")
    assert problem.hint == "write `expect: {result: {temperature: ...}}`"


def test_a_missing_mode_lists_the_modes(tmp_path):
    text = HEAD + "mock: {result: 1}\nlive: {url: 'https://a.example'}\n"
    problem, *_unused_argument = problems(tmp_path, text)
    assert problem.code == "mode_missing"
    assert problem.hint == "add `mode: mock` or `mode: live`; profiles and `--mode` select another"


def test_a_block_of_promptkit_is_still_read(tmp_path):
    text = HEAD + "mode: live\nhttp: {url: 'https://a.example', method: GET}\n"
    assert problems(tmp_path, text) == ()
