"""What is refused, with which words and where; and that no text crashes, hangs or swells."""

import json
import subprocess
import sys
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sampling import THOROUGH
from toolcrib.loading.documents import document as documents
from toolcrib.loading.documents.document import parse_documents, parse_json, read_documents
from toolcrib.loading.documents.positions import PROBLEMS, Problems
from toolcrib.loading.documents.yaml_text import read_yaml

MEBIBYTE = 1 << 20


def told(source, text):
    """The problems of a text as `code line:column pointer`."""
    _, problems = parse_documents(source, text)
    return [f"{problem.code} {problem.line}:{problem.column} {problem.pointer}" for problem in problems]


def codes(source, text):
    return {problem.code for problem in parse_documents(source, text)[1]}


def nested_references(levels, width, opener="*"):
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'{opener}a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


LISTED = [
    ("D01 alias used once", "a: &x 1\nb: *x\n", ["alias_refused 1:4 /a", "alias_refused 2:4 /b"]),
    ("D03 brackets", "a: " + "[" * 900 + "]" * 900, ["too_deep 1:67 /a" + "/0" * 63]),
    ("D04 duplicate at the top", "a: 1\nb: 2\na: 3\n", ["duplicate_key 3:1 /a"]),
    (
        "D05 duplicate inside",
        "s:\n  properties:\n    x: 1\n    x: 2\n",
        ["duplicate_key 4:5 /s/properties/x"],
    ),
    ("D06 tag that runs code", "a: !!python/object/apply:os.system [ls]\n", ["tag_refused 1:4 /a"]),
    ("D08 no UTF-8", b"a: 1\nb: x\xff\n", ["invalid_utf8 2:5 "]),
    ("D09 NUL", "a: 1\nb: x\0\n", ["control_character 2:5 "]),
    ("D09 escape", "a: \x1b[31m\n", ["control_character 1:4 "]),
    ("D10 empty", "", ["empty_document 1:1 "]),
    ("D10 only comments", "# a\n\n# b\n", ["empty_document 1:1 "]),
    ("D10 only a divider", "---\n", ["empty_document 1:1 "]),
    ("D11 too large", b"a: " + b"x" * MEBIBYTE, ["too_large 1:1 "]),
    ("D11 too large in UTF-8", "é" * (MEBIBYTE // 2 + 1), ["too_large 1:1 "]),
    ("D12 tab", "a:\n\tb: 1\n", ["invalid_yaml 2:1 "]),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in LISTED], ids=[row[0] for row in LISTED])
def test_a_hostile_text_is_refused_where_it_is_wrong(text, expected):
    assert told("a.yaml", text) == expected


def test_d03_the_limit_of_libyaml_is_reported_as_ours():
    (problem,) = parse_documents("a.yaml", "a: " + "[" * 30_000)[1]
    assert (problem.code, problem.line) == ("too_deep", 1)  # where it is noticed depends on the version
    assert problem.message == "objects and lists are nested deeper than 64 levels"


def test_d02_a_bomb_of_aliases_is_refused_at_once():
    started = time.process_time()
    assert codes("a.yaml", nested_references(9, 9)) == {"alias_refused"}
    assert time.process_time() - started < 10


def test_d07_words_numbers_and_dates_stay_what_was_written():
    (document,), problems = parse_documents(
        "a.yaml", "enabled: no\ncode: 0777\nat: 22:22\nday: 2024-01-01\nenum: [on, off, 2024-02-30]\n"
    )
    assert problems == []
    assert document.value == {
        "enabled": "no",
        "code": "0777",
        "at": "22:22",
        "day": "2024-01-01",
        "enum": ["on", "off", "2024-02-30"],
    }


def test_d10_a_list_a_text_and_null_are_documents_for_others_to_judge():
    for text, value in (("- a\n", ["a"]), ("just text\n", "just text"), ("null\n", None)):
        (document,), problems = parse_documents("a.yaml", text)
        assert (document.value, problems) == (value, [])


def test_d11_a_large_file_is_not_read_whole(tmp_path):
    path = tmp_path / "a.yaml"
    with path.open("wb") as file:
        file.truncate(20 * MEBIBYTE)
    _, (problem,) = read_documents(path, "a.yaml")
    assert (problem.code, problem.source) == ("too_large", "a.yaml")
    assert f"{MEBIBYTE:,}" in problem.message


JSON_LISTED = [
    ("D13 NaN", '{"a": NaN}', ["non_finite_number 1:7 /a"]),
    (
        "D13 Infinity",
        '{"a": [-Infinity, Infinity]}',
        ["non_finite_number 1:8 /a/0", "non_finite_number 1:19 /a/1"],
    ),
    ("D13 beyond all numbers", '{"a": 1e999}', ["non_finite_number 1:7 /a"]),
    ("D14 5,000 digits", '{"a": -' + "9" * 5000 + "}", ["number_too_long 1:7 /a"]),
    ("brackets", "[" * 25_000 + "]" * 25_000, ["too_deep 1:65 "]),
    ("brackets of objects", '{"a":' * 25_000, ["too_deep 1:321 "]),
    ("nodes", "[" + "0," * 60_000 + "0]", ["too_many_nodes 1:100000 "]),
    ("duplicate", '{"a": {"b": 1,\n "b": 2}}', ["duplicate_key 2:2 /a/b"]),
    ("lone surrogate", '["\\ud83d\\ude00", {"a": "\\ud800"}]', ["lone_surrogate 1:24 /a"]),
    ("lone surrogate in a key", '{"\\udc00": 1}', ["lone_surrogate 1:2 /\udc00"]),
    ("control character", '{"a": "x\x01"}', ["control_character 1:9 "]),
    ("newline in a text", '{"a": "x\n"}', ["invalid_json 1:9 "]),
    ("empty", " \n", ["empty_document 1:1 "]),
    ("empty list", "[ ]", ["empty_document 1:1 "]),
    ("trailing comma", '{"a": 1,}', ["invalid_json 1:9 "]),
    ("comma missing", "[{} {}]", ["invalid_json 1:5 "]),
    ("not closed", "[{}", ["invalid_json 1:4 "]),
    ("rest behind", "{} {}", ["invalid_json 1:4 "]),
    ("comment", "{} // x", ["invalid_json 1:4 "]),
    ("no UTF-8", b'{"a": "\xed\xa0\x80"}', ["invalid_utf8 1:8 "]),
    ("UTF-16", '{"a": 1}'.encode("utf-16"), ["invalid_utf8 1:1 "]),
]


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in JSON_LISTED], ids=[row[0] for row in JSON_LISTED]
)
def test_hostile_json_is_refused_where_it_is_wrong(text, expected):
    assert told("a.json", text) == expected


def test_d16_a_file_that_is_gone_gets_a_notice(tmp_path):
    assert [(problem.code, problem.severity) for problem in read_documents(tmp_path / "a.yaml", "a")[1]] == [
        ("file_vanished", "notice")
    ]


YAML_FAULTS = [
    ("merge key", "a: {<<: 1, b: 2}\n", ["merge_key_refused 1:5 /a/<<"]),
    (
        "tags of texts, lists, keys",
        "!!str a: !x [1]\nb: ! 1\n",
        ["tag_refused 1:1 ", "tag_refused 1:10 /a", "tag_refused 2:4 /b"],
    ),
    ("tag directive", "# x\n%TAG ! tag:x\n---\na: 1\n", ["tag_refused 2:1 "]),
    (
        "keys that are no texts",
        "1: a\n1.5: b\ntrue: c\n~: d\n? \n: e\n",
        [f"non_string_key {n}" for n in ("1:1 /1", "2:1 /1.5", "3:1 /true", "4:1 /~0", "5:2 /")],
    ),
    (
        "keys that are objects or lists",
        "? [a, {b: 1}]\n: 2\n? {c: d}\n: [3]\n",
        ["non_string_key 1:3 ", "non_string_key 3:3 "],
    ),
    ("anchors and aliases as keys", "&a b: 1\n? *a\n: 2\n", ["alias_refused 1:1 ", "alias_refused 2:3 "]),
    ("aliases in a list", "- [*a, 1]\n", ["alias_refused 1:4 /0/0"]),
    ("number without end", "a: [1e999]\n", ["non_finite_number 1:5 /a/0"]),
    ("5,000 digits", "a: -" + "9" * 5000, ["number_too_long 1:4 /a"]),
    ("5,000 digits as a key", "9" * 5000 + ": 1", ["number_too_long 1:1 ", "invalid_yaml 1:5001 "]),
    ("surrogate by escape", 'a: "x\\ud83d\\ude00"\n', ["lone_surrogate 1:8 "]),
    ("characters that some take for line ends", "a: x\u2028y\n", ["control_character 1:5 "]),
    ("not closed", 'a: "x\n', ["invalid_yaml 2:1 "]),
    ("colon in a text", "a: b: c\n", ["invalid_yaml 1:5 "]),
    ("character that begins no text", "a: @b\n", ["invalid_yaml 1:4 "]),
    ("nodes", "[" + "0," * 60_000 + "0]", ["too_many_nodes 1:100000 /49999"]),
    (
        "faults inside what a refused key holds",
        "1: {2: *x}\n",
        ["non_string_key 1:1 /1", "non_string_key 1:5 ", "alias_refused 1:8 "],
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in YAML_FAULTS], ids=[row[0] for row in YAML_FAULTS]
)
def test_faults_of_yaml_are_all_told_with_their_places(text, expected):
    assert told("a.yaml", text) == expected


@pytest.mark.parametrize(
    ("text", "line_and_column", "shown"),
    [
        ("a: {{ args.x }}\n", "1:4", "{{ args.x }}"),
        ("a:\n  - {{ args.x | default(3) }}\n", "2:5", "{{ args.x | default(3) }}"),
        ("{{ x }}\n", "1:1", "{{ x }}"),
        ("a: {b: {{ x }}}\n", "1:8", "{{ x }}"),
        ("a: {{ find(x, y) }}\nb: 1\n", "1:4", "{{ find(x, y) }}"),
        ("a: {{ x }} y\n", "1:4", "{{ x }}"),
        ("a: {{ x['y'] }} {{ z }}\n", "1:4", "{{ x['y'] }}"),
        ('a: {{ "x" y }}\n', "1:4", '{{ "x" y }}'),
        ("a: {{ x\n", "1:4", "{{ ... }}"),
        ("a: {{ @x }}\n", "1:4", "{{ @x }}"),
        ("a: {{ 'it }}\n", "1:4", "{{ 'it }}"),
    ],
)
def test_an_expression_without_quotes_gets_its_own_diagnosis(text, line_and_column, shown):
    _, (problem,) = parse_documents("a.yaml", text)
    assert (problem.code, f"{problem.line}:{problem.column}") == ("unquoted_expression", line_and_column)
    assert shown in problem.message
    assert problem.hint.startswith("write ")


def test_the_hint_for_an_expression_is_yaml_that_can_be_read():
    _, (problem,) = parse_documents("a.yaml", 'a: {{ args.x ~ "y" }}\n')
    written = problem.hint.removeprefix("write `").removesuffix("`")
    (document,), problems = parse_documents("a.yaml", f"a: {written}\n")
    assert (document.value, problems) == ({"a": '{{ args.x ~ "y" }}'}, [])


def test_messages_name_both_lines_of_a_key_and_the_way_out():
    for source, text in (("a.yaml", "x:\n  a: 1\n  a: 2\n"), ("a.json", '{"x": {\n "a": 1,\n "a": 2}}')):
        _, (problem,) = parse_documents(source, text)
        assert problem.message == "duplicate key `a` on lines 2 and 3"
        assert problem.hint == "keep one of them"


def test_the_hint_for_a_key_that_is_no_text_quotes_it():
    _, (problem,) = parse_documents("a.yaml", "errors:\n  404: x\n")
    assert (problem.code, problem.line) == ("non_string_key", 2)
    assert problem.hint == 'put it in quotes: `"404":`'


def test_an_expression_in_quotes_is_not_blamed_for_an_error_beside_it():
    assert told("a.yaml", 'a: "b: {{ x }}" c\n') == ["invalid_yaml 1:17 "]


def test_a_key_is_found_again_behind_keys_that_are_no_texts():
    text = "? {a: [1, {b: 2}], c: 3}\n: {d: [4]}\nx: 1\nx: 2\n"
    _, (_key, repeated) = parse_documents("a.yaml", text)
    assert repeated.message == "duplicate key `x` on lines 3 and 4"


@pytest.mark.parametrize("rest", ["[" * 100, "["])
def test_the_first_of_two_keys_is_found_in_a_text_that_is_wrong_further_on(rest):
    _, (repeated, _other) = parse_documents("a.yaml", f"x: 1\nx: 2\ny: {rest}\n")
    assert repeated.message == "duplicate key `x` on lines 1 and 2"


def test_commas_and_brackets_in_texts_count_for_nothing():
    for text in ("," * 60_000, "[" * 100, "[{" * 40_000, "\\" + '"' + "]" * 100):
        value, problems = parse_json("x", json.dumps([text, [[], {}]]))
        assert (value, problems) == ([text, [[], {}]], [])


@pytest.mark.exhaustive
def test_a_text_that_is_no_json_is_still_bounded():
    assert told("a.json", '["\\q", ' * 30 + '"\\q",' * 60_000) == ["too_many_nodes 1:249911 "]


def test_other_documents_of_a_file_are_read_beside_one_with_faults():
    found, problems = parse_documents("a.yaml", "a: 1\n---\nb: 1\nb: 2\n---\n---\nc: *x\n---\nd: 4\n")
    assert [(document.index, document.value) for document in found] == [(0, {"a": 1}), (4, {"d": 4})]
    assert [problem.code for problem in problems] == ["duplicate_key", "empty_document", "alias_refused"]
    assert found[1].position("/d") == (9, 4)
    found, problems = parse_documents("a.json", '[{"a": 1}, {"b": NaN}, {"c": 3}]')
    assert [(document.index, document.value) for document in found] == [(0, {"a": 1}), (2, {"c": 3})]
    assert [problem.code for problem in problems] == ["non_finite_number"]


def test_documents_before_a_syntax_error_are_read():
    found, problems = parse_documents("a.yaml", "a: 1\n---\nb: [\n")
    assert [document.value for document in found] == [{"a": 1}]
    assert [problem.code for problem in problems] == ["invalid_yaml"]


def test_a_text_with_very_many_faults_is_given_up():
    for source, text in (("a.yaml", "[" + "*a, " * 500 + "]"), ("a.json", "[" + "NaN, " * 500 + "0]")):
        found, problems = parse_documents(source, text)
        assert found == []
        assert len(problems) == PROBLEMS + 1
        assert problems[-1].code == "too_many_problems"


def test_half_a_surrogate_pair_in_a_text_from_memory_is_refused():
    assert told("a.yaml", "a: 1\nb: \ud800") == ["lone_surrogate 2:4 "]
    assert parse_json("x", '"\ud800"')[1][0].code == "lone_surrogate"


PYTHON_SCANNER = [
    ("a: *x\n", "alias_refused"),
    ("a: !x 1\n", "tag_refused"),
    ("a: ! 1\n", "tag_refused"),
    ("a: 1\na: 2\n", "duplicate_key"),
    ("<<: 1\n", "merge_key_refused"),
    ("[" * 100, "too_deep"),
    ("a: \0\n", "control_character"),
    ("a:\n\tb: 1\n", "invalid_yaml"),
    ('a: "\\ud800"\n', "lone_surrogate"),
    ('a: "\\uD83D\\uDE00"\n', "lone_surrogate"),
    ('"\\U0000dc00": 1\n', "lone_surrogate"),
    ('a: "\\UFFFFFFFF"\n', "invalid_yaml"),
    ("{{ x }}", "unquoted_expression"),
]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader], ids=["python", "libyaml"])
@pytest.mark.parametrize(("text", "code"), PYTHON_SCANNER)
def test_both_scanners_refuse_alike(text, code, loader):
    problems = Problems()
    assert read_yaml(text, problems, loader) == []
    assert [problem.code for problem in problems] == [code]


@given(st.binary() | st.text() | st.text("[]{}:,-?&*!|>'\"%@`#~<\\ \n\tabu0189{}.eEdD"))
def test_no_text_raises(text):
    for source in ("a.yaml", "a.json"):
        found, problems = parse_documents(source, text)
        assert found or problems
        for document in found:
            document.position("/a/0")
            documents.restore_text(document, ("a",))
        for problem in problems:
            assert problem.line > 0
            assert problem.column > 0
            str(problem)


@given(st.text("[]{}:,-?&*!'\"#~<\\ \nabu018.", max_size=60))
def test_both_scanners_read_alike(text):
    fast, slow = Problems(), Problems()
    found = read_yaml(text, fast, yaml.CSafeLoader)
    also = read_yaml(text, slow, yaml.SafeLoader)
    if not fast and not slow:
        assert found == also


BOMBS = """
import faulthandler, os, sys, time
from toolcrib.loading.documents.document import parse_documents, restore_text
faulthandler.dump_traceback_later(60, exit=True)
M = (1 << 20) - 64
bombs = {
    "lists": "[" * M, "objects": "{" * M, "named": "{a: " * 200_000, "dashes": "- " * 500_000, "keys": "? " * 500_000,
    "zeros": "[" + "0," * (M // 2), "aliases": "[" + "*a," * 300_000, "anchors": "- &a x\\n" * 140_000,
    "tags": "- !a x\\n" * 140_000, "directives": "".join(f"%TAG !a{i}! x\\n" for i in range(50_000)),
    "dividers": "---\\n" * 250_000, "repeated": "a: 1\\n" * 200_000, "expressions": "- {{ x }}\\n" * 100_000,
    "braces": "a: " + "{{ " * 300_000, "digits": "a: " + "9" * M, "rows of digits": ("- " + "9" * 1000 + "\\n") * 1000,
    "sexagesimal": "a: " + "1:59:" * 200_000, "exponents": "- 1e999\\n" * 120_000, "float": "- 1." + "1" * M,
    "quotes": '"' * M, "apostrophes": "'" * M, "not closed": '"' + '\\\\"' * 500_000, "escapes": '"' + "\\\\ud800" * 170_000 + '"',
    "returns": "\\r" * M, "tabs": "\\t" * M, "blanks": " " * M, "lines": "\\n" * M, "colons": ": " * 500_000,
    "text": "a\\n" * 500_000, "NUL at the end": "a" * M + "\\0", "brackets": "[" * 400_000 + "[" * 64 + "]" * 64,
    "pairs": "[]" * 500_000, "wide": "[" * 64 + "[]," * 300_000, "spread": "[" + '{"b":1},' * 12_000 + '{"a":NaN}]',
    "long key": '? "' + "k" * 500_000 + '"\\n: {' + "a: 1.10," * 20_000 + "}\\n",
    "long JSON key": '{"' + "k" * 500_000 + '":[' + "1e999," * 40_000 + "1]}",
    "collisions": "".join(f"{i * (2**61 - 1)}: 1\\n" for i in range(24_000)),
}
for name, text in list(bombs.items())[:: int(sys.argv[1])]:
    for source in ("a.yaml", "a.json"):
        started = time.perf_counter()
        documents, problems = parse_documents(source, text)
        for document in documents[:1]:
            document.position("/a/b")
            restore_text(document, ("a",))
        print(f"{time.perf_counter() - started:.3f}", len(documents) + len(problems), source, name)
# Not `ru_maxrss`: a process inherits that of the one that started it.
status = open("/proc/self/status").read() if os.path.exists("/proc/self/status") else "VmHWM: 0"
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024, "MiB")
"""


def test_no_text_of_a_mebibyte_crashes_hangs_or_swells():
    """In a process of its own: the scanner of YAML is C, and what kills it kills the process."""
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, "1" if THOROUGH else "4"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *rows, memory = done.stdout.splitlines()
    slow = [row for row in rows if float(row.split()[0]) > 10]
    silent = [row for row in rows if row.split()[1] == "0"]
    assert (slow, silent) == ([], [])
    assert int(memory.split()[0]) <= 256
