"""Other people's data in a scanned folder: one notice, and never an error."""

from __future__ import annotations

import pytest

from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.formats.known_formats import FORMATS
from toolcrib.loading.reader import unrelated_file_notice
from toolcrib.loading.sources import load

KINDS = Executors({"mock": MockExecutor})

FOREIGN = {
    "data.yaml": ("a: 1\n1: 2\n&x b: 3\n", 2, "non_string_key"),
    "responses.yaml": (
        "kind: MockResponses\nmetadata:\n  name: x\nresponses:\n  1: a\n  2: b\n",
        5,
        "non_string_key",
    ),
    "tsconfig.json": ('{\n  // strict\n  "a": 1}', 2, "invalid_json"),
    "closes.json": ("}\n]", 1, "invalid_json"),
    "list.yaml": ("- &x name\n- *x\n", 1, "alias_refused"),
    "nested.yaml": ("a:\n  name: *x\n", 2, "alias_refused"),
    "bytes.yaml": (b"a: \xff\n", 1, "invalid_utf8"),
    "config.yaml": ("a: 1\n\tb: 2\n", 2, "invalid_yaml"),
    "tool.yaml": ("a: *x\n", 1, "alias_refused"),
}


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_wrong_with_a_text_of_others_is_one_notice_that_names_the_first_fault(tmp_path, name):
    text, line, code = FOREIGN[name]
    path = write(tmp_path, name, text)
    (problem,) = load([tmp_path], KINDS).problems
    assert (problem.code, problem.severity, problem.source) == ("unrecognised_file", "notice", str(path))
    assert problem.line == line
    assert code in problem.message


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_was_asked_for_by_its_name_tells_its_errors(tmp_path, name):
    text, _line, code = FOREIGN[name]
    problems = load([write(tmp_path, name, text)], KINDS).problems
    assert code in {problem.code for problem in problems if problem.severity == "error"}


OURS = {
    "x.tool.yaml": "a: *x\n",
    "x.scenario.yml": "a: *x\n",
    "x.tool.json": "{",
    "named.yaml": "name: a\nb: *x\n",
    "quoted.yaml": '"name": a\nb: *x\n',
    "second.yaml": "a: *x\n---\nscenario: b\n",
    "behind.yaml": "a: 1\n\tb: 2\nname: x\n",
    "flow.yaml": "{a: *x, name: b}\n",
    "manifest.yaml": "kind: Tool\nspec: *x\n",
    "flow_manifest.yaml": "{spec: *x, kind: Tool}\n",
    "function.yaml": "type: function\nfunction: *x\n",
    "x.json": '{"a": 1,,\n"name": "b"}',
    "twice.json": '[{"name": "a", "name": "b"}]',
}


@pytest.mark.parametrize("name", OURS)
def test_what_is_called_like_ours_or_looks_like_it_tells_its_errors(tmp_path, name):
    write(tmp_path, name, OURS[name])
    problems = load([tmp_path], KINDS).problems
    assert "error" in {problem.severity for problem in problems}
    assert "unrecognised_file" not in {problem.code for problem in problems if problem.severity == "notice"}


def test_a_broken_pack_file_tells_its_errors(tmp_path):
    write(tmp_path, "pack.yaml", "a: *x\n")
    assert "alias_refused" in {problem.code for problem in load([tmp_path], KINDS).problems}


def test_a_text_that_is_too_large_is_an_error_whatever_it_holds(tmp_path):
    write(tmp_path, "data.yaml", "# " + "x" * (1 << 20))
    (problem,) = load([tmp_path], KINDS).problems
    assert (problem.code, problem.severity) == ("too_large", "error")


def test_a_file_that_is_gone_by_then_keeps_its_errors(tmp_path):
    path = write(tmp_path, "data.yaml", "a: *x\n")
    problems = load([path], KINDS).problems
    path.unlink()
    assert unrelated_file_notice(path, str(path), problems, FORMATS) is None
