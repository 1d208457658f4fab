"""What people see at a terminal, and programs do not."""

from __future__ import annotations

import json

import click
import pytest

from toolcrib.cli import exit_codes
from toolcrib.cli.output import MOST_CHARACTERS, MOST_LINES, columns_of

VALUE = '{"name": "a \\"b\\": 1", "items": [1, -2.5e3, true, null], "none": {}, "text": "12 true"}'


LONG = {"rows": [*range(500)], "line": "é" * 20_000, "lines": "a\n" * 150}


@pytest.fixture
def values(write):
    tools = {name: f"name: {name}\nmock: {{result: {json.dumps(value)}}}\n" for name, value in LONG.items()}
    tools["value"] = f"name: value\nmock: {{result: {VALUE}}}\n"
    return write({f"descriptors/{name}.tool.yaml": text for name, text in tools.items()})


def shown(run, *words):
    """What a terminal shows, without colours."""
    return click.unstyle(run(*words)[0])


@pytest.mark.parametrize("name", ["rows", "line", "lines"])
def test_a_long_result_is_cut_and_the_way_to_all_of_it_told(name, values, on_terminal, toolcrib):
    whole = toolcrib("call", name).stdout.removesuffix("\n")
    *kept, told = shown(on_terminal, "call", name).splitlines()
    text = "\n".join(kept)
    assert whole.startswith(text)
    assert len(text) <= MOST_CHARACTERS
    assert len(kept) <= MOST_LINES
    left = f"... {len(whole) - len(text):,} of {len(whole):,} characters are not shown"
    assert told == f"{left}; a pipe (`| less`), a file or `--json` gets all of it"


def test_a_program_gets_all_of_it(values, toolcrib, on_terminal, document):
    assert json.loads(toolcrib("call", "rows").stdout) == [*range(500)]
    assert json.loads(on_terminal("call", "rows", "--json")[0])["result"] == [*range(500)]


def test_a_short_result_is_whole(values, on_terminal):
    assert json.loads(shown(on_terminal, "call", "value")) == json.loads(VALUE)


def test_names_texts_and_other_values_have_colours_of_their_own(values, on_terminal):
    out = on_terminal("call", "value")[0]
    assert '\x1b[34m"name"\x1b[0m: \x1b[32m"a \\"b\\": 1"\x1b[0m,' in out
    assert "\x1b[33m-2500.0\x1b[0m" in out
    assert "\x1b[33mtrue\x1b[0m" in out
    assert '\x1b[32m"12 true"\x1b[0m' in out


def test_json_for_a_program_has_no_colours_even_if_they_are_forced(values, toolcrib, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert json.loads(toolcrib("call", "value").stdout) == json.loads(VALUE)
    assert json.loads(toolcrib("call", "value", "--json").stdout)["result"] == json.loads(VALUE)


def test_without_colours_there_are_none(values, tools, on_terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (("call", "value"), ("list",), ("search", "echo"), ("validate",)):
        assert "\x1b" not in "".join(on_terminal(*words)), words


def test_the_list_has_a_header_and_the_arguments(tools, on_terminal, toolcrib):
    assert shown(on_terminal, "list").splitlines() == [
        "TOOL     MODE     FLAGS                     ARGUMENTS    DESCRIPTION",
        "echo     mock                               text, times  Says it again.",
        "failing  mock                                            Never works.",
        "later    unbound  deprecated, experimental               Nobody wrote it yet.",
        "3 tools: 2 mock, 1 unbound",
    ]
    assert shown(on_terminal, "search", "echo").startswith("TOOL ")
    assert not toolcrib("list").stdout.startswith("TOOL")


def test_columns_without_content_are_left_out(write, on_terminal):
    write({"descriptors/a.tool.yaml": "name: a\ndescription: The letter.\nmock: {result: 1}\n"})
    assert shown(on_terminal, "list").splitlines()[0] == "TOOL  MODE  DESCRIPTION"


def test_an_empty_list_has_no_header(write, on_terminal):
    write({"toolcrib.yaml": "project: p\nsources: []\n"})
    assert shown(on_terminal, "list") == "no tools\n"


def test_a_tool_that_can_not_be_called_is_marked(tools, on_terminal, toolcrib, monkeypatch):
    out = on_terminal("list")[0]
    assert "\x1b[1mecho\x1b[0m" in out
    assert "\x1b[33munbound\x1b[0m" in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1mecho\x1b[0m  " in toolcrib("list").stdout


BAD = {
    "name: a\nmod: mock\nmock: {result: 1}\n": (2, "    2 | mod: mock", "      | ^^^"),
    "name: a\nmock: {result: 1}\ntimeout:\t5\n": (3, "    3 | timeout: 5", "      |          ^"),
    "name: a\nmock: {result: 日本, reslt: 1}\n": (
        2,
        "    2 | mock: {result: 日本, reslt: 1}",
        "      |                      ^^^^^",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD.items(), ids=range(len(BAD)))
def test_a_problem_is_shown_in_its_line(text, expected, write, on_terminal, toolcrib):
    write({"descriptors/a.tool.yaml": text})
    line, source, caret = expected
    out = shown(on_terminal, "validate").splitlines()
    at = next(
        number for number, each in enumerate(out) if each.startswith(f"descriptors/a.tool.yaml:{line}:")
    )
    assert out[at + 1 : at + 3] == [source, caret]
    assert "      |" not in toolcrib("validate").stdout


def test_a_long_line_is_shown_around_its_problem(write, on_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    many = ", ".join(f"a{number}: {{type: string}}" for number in range(40))
    write(
        {
            "descriptors/a.tool.yaml": f"name: a\ninput_schema: {{properties: {{{many}, b: {{type: strng}}}}}}\nmock: {{result: 1}}\n"
        }
    )
    source, caret = (line for line in shown(on_terminal, "validate").splitlines() if " | " in line)
    assert max(map(columns_of, (source, caret))) <= 60
    column = caret.index("^")
    assert source[column : caret.rindex("^") + 1] == "strng"


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nlive: {url: 'https://a.example/', auth: {type: bearer, token: zq-4471-kfw}}\n",
        "name: a\nlive: {url: 'https://a.example/', auth: {type: http, scheme: bearer, token: {a: zq-4471-kfw}}}\n",
    ],
    ids=["beside", "there"],
)
def test_a_line_that_may_hold_a_secret_is_not_shown(text, write, on_terminal):
    write({"descriptors/a.tool.yaml": text})
    out, err = on_terminal("validate")
    assert "descriptors/a.tool.yaml:2:" in out
    assert "zq-4471-kfw" not in out + err


def test_a_line_can_not_steer_the_terminal(write, on_terminal):
    write({"descriptors/a.tool.yaml": "name: a\nmock: {result: 1}\nmod\u202e: 1\n"})
    out = on_terminal("validate")[0]
    assert "\u202e" not in out
    assert "mod\\u202e" in out


def test_a_problem_in_an_archive_has_no_excerpt(write, on_terminal, toolcrib):
    write(
        {
            "p/pack.yaml": 'name: p\nversion: "1.0.0"\ntools: ["*.yaml"]\n',
            "p/t.yaml": "name: t\nmock: {result: 1}\n",
        }
    )
    assert toolcrib("pack", "build", "p", "-o", "p.zip").exit_code == exit_codes.OK
    assert " | " not in shown(on_terminal, "validate", "p.zip")


def test_no_bar_counts_nothing(write, on_terminal):
    write({"descriptors/a.tool.yaml": "name: a\nmock: {result: 1}\n"})
    assert on_terminal("run") == ("", "nothing to run: no scenarios or examples in descriptors\n")
