"""From a document to a descriptor: every key has its effect, and every fault is named at its place."""

from __future__ import annotations

import pytest

from toolcrib.core.model import NOTHING, Annotations, Dependencies, Descriptor, Estimate, Example, Icon
from toolcrib.core.schemas import LATER_KEYS, envelope
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import parse

KINDS = Executors({"mock": MockExecutor})

PLAIN = "name: tool\ndescription: A tool.\nmock: {result: 1}\n"


def loaded(text, name="x.tool.yaml"):
    return parse(name, text, KINDS)


def tool_of(text, name="x.tool.yaml") -> Descriptor:
    """The one tool of a text that has no problem."""
    found = loaded(text, name)
    assert [str(problem) for problem in found.problems] == []
    (tool,) = found.tools
    return tool


def codes(text, name="x.tool.yaml"):
    """(code, pointer) of every problem, as they are told."""
    return [(problem.code, problem.pointer) for problem in loaded(text, name).problems]


def problem_of(text, name="x.tool.yaml"):
    """The one problem of a text."""
    (problem,) = loaded(text, name).problems
    return problem


EFFECTS = {
    "$schema": ("./descriptor.json", lambda tool: "$schema" not in tool.metadata),
    "name": ("other", lambda tool: tool.name == "other"),
    "override": ("false", lambda tool: not tool.origin.overrides),
    "title": ("Other", lambda tool: tool.title == "Other"),
    "description": ("Does it.", lambda tool: tool.description == "Does it."),
    "version": ("1.10", lambda tool: tool.version == "1.10"),
    "author": ("Ada", lambda tool: tool.author == "Ada"),
    "help_url": ("https://example.com/help", lambda tool: tool.help_url == "https://example.com/help"),
    "tags": ("[b, a]", lambda tool: tool.tags == ("b", "a")),
    "labels": ("{team: x}", lambda tool: tool.labels == {"team": "x"}),
    "category": ("maps", lambda tool: tool.category == "maps"),
    "annotations": (
        "{read_only: true, open_world: false}",
        lambda tool: tool.annotations == Annotations(read_only=True, open_world=False),
    ),
    "icons": (
        "[{src: 'https://example.com/i.png', sizes: [48x48]}]",
        lambda tool: tool.icons == (Icon("https://example.com/i.png", sizes=("48x48",)),),
    ),
    "input_schema": ("{type: object}", lambda tool: tool.input_schema == {"type": "object"}),
    "output_schema": ("{type: integer}", lambda tool: tool.output_schema == {"type": "integer"}),
    "mode": ("mock", lambda tool: tool.mode == "mock"),
    "timeout": ("1.5m", lambda tool: tool.timeout == 90.0),
    "limits": ("{concurrency: 4}", lambda tool: tool.limits.concurrency == 4),
    "coerce": ("lenient", lambda tool: tool.coerce == "lenient"),
    "on_invalid_result": ("warn", lambda tool: tool.on_invalid_result == "warn"),
    "examples": (
        "[{args: {}, result: 1}, {args: {}}]",
        lambda tool: tool.examples == (Example(args={}, result=1, has_result=True), Example(args={})),
    ),
    "capabilities": ("[network, 'crm:write']", lambda tool: tool.capabilities == ("network", "crm:write")),
    "permissions": ("[file_read]", lambda tool: tool.capabilities == ("file_read",)),
    "platforms": ("[linux]", lambda tool: tool.platforms == ("linux",)),
    "dependencies": (
        "{packages: [pandas>=2], commands: [git], tools: [other], environment: [HOME]}",
        lambda tool: tool.dependencies == Dependencies(("pandas>=2",), ("git",), ("other",), ("HOME",)),
    ),
    "requires_confirmation": ("Go on?", lambda tool: tool.requires_confirmation == "Go on?"),
    "estimate": (
        "{duration: 2s, cost: 0.5, output: 1KiB}",
        lambda tool: tool.estimate == Estimate(2.0, 0.5, 1024),
    ),
    "deprecated": ("Use other.", lambda tool: tool.deprecated == "Use other."),
    "experimental": ("true", lambda tool: tool.experimental is True),
    "metadata": ("{ticket: 12}", lambda tool: tool.metadata == {"ticket": 12}),
}


def test_every_published_key_is_tried_here():
    assert list(EFFECTS) == list(envelope("descriptor")["properties"])


@pytest.mark.parametrize("key", EFFECTS)
def test_a_published_key_has_its_effect(key):
    text, effect = EFFECTS[key]
    without = (f"{key}:", "mock:") if key == "limits" else (f"{key}:",)  # mocks have no use for limits
    lines = [line for line in PLAIN.splitlines() if not line.startswith(without)]
    assert effect(tool_of("\n".join([*lines, f"{key}: {text}"])))


@pytest.mark.parametrize("key", sorted(LATER_KEYS["descriptor"]))
def test_a_key_of_later_is_refused_rather_than_ignored(key):
    problem = problem_of(PLAIN + f"{key}: {{}}\n")
    assert (problem.code, problem.pointer, problem.line, problem.column) == (
        "not_supported_yet",
        f"/{key}",
        4,
        1,
    )


def test_what_is_left_out_has_the_default_of_the_model():
    tool = tool_of("name: tool\ndescription: A tool.\n")
    plain = Descriptor(name="tool", description="A tool.", origin=tool.origin)
    assert tool == plain
    assert tool.input_schema == {"type": "object", "additionalProperties": False}
    assert (tool.mode, tool.output_schema, tool.timeout, tool.bindings) == (None, None, 30.0, NOTHING)


@pytest.mark.parametrize("text", ["1.10", '"1.10"', "1.0", "2030"])
def test_a_version_stays_the_text_that_was_written(text):
    assert tool_of(PLAIN + f"version: {text}\n").version == text.strip('"')


def test_numbers_for_texts_in_a_schema_stay_what_was_written():
    tool = tool_of(
        PLAIN + "input_schema:\n  additionalProperties: false\n"
        "  properties: {version: {type: string, enum: [1.10, 1.20], default: 1.10}, day: {const: 2024-01-01}}\n"
    )
    assert tool.input_schema["properties"]["version"] == {
        "type": "string",
        "enum": ["1.10", "1.20"],
        "default": "1.10",
    }
    assert tool.input_schema["properties"]["day"] == {"const": "2024-01-01"}


def test_a_number_in_json_is_a_number_on_purpose():
    assert codes('{"name": "tool", "mock": {"result": 1}, "version": 1.1}', "x.tool.json") == [
        ("wrong_type", "/version")
    ]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("descripton", "description"),
        ("inputschema", "input_schema"),
        ("Title", "title"),
        ("mocks", "mock"),
        ("example", "examples"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key, near):
    problem = problem_of(PLAIN + f"{key}: x\n")
    assert (problem.code, problem.pointer) == ("unknown_key", f"/{key}")
    assert f"`{near}`" in problem.hint
    assert (problem.line, problem.column) == (4, 1)


WRONG_SHAPES = [
    ("name: a b\nmock: {result: 1}\n", [("wrong_form", "/name")]),
    ("name: a/b\nmock: {result: 1}\n", [("wrong_form", "/name")]),
    ("name: " + "a" * 129 + "\nmock: {result: 1}\n", [("wrong_form", "/name")]),
    ("name: 7\nmock: {result: 1}\n", [("wrong_form", "/name")]),
    ("name: [x]\nmock: {result: 1}\n", [("wrong_type", "/name")]),
    (PLAIN + "tags: weather\n", [("wrong_type", "/tags")]),
    (PLAIN + "tags: [a, a]\n", [("wrong_value", "/tags")]),
    (PLAIN + "tags: ['']\n", [("wrong_value", "/tags/0")]),
    (PLAIN + "labels: {team: true}\n", [("wrong_type", "/labels/team")]),
    (PLAIN + "help_url: example.com\n", [("wrong_form", "/help_url")]),
    (PLAIN + "coerce: strict\n", [("not_allowed", "/coerce")]),
    (PLAIN + "on_invalid_result: ignore\n", [("not_allowed", "/on_invalid_result")]),
    (PLAIN + "timeout: 30\n", [("wrong_form", "/timeout")]),
    (PLAIN + "timeout: 30 s\n", [("wrong_form", "/timeout")]),
    (PLAIN + "annotations: {readOnly: true}\n", [("unknown_key", "/annotations/readOnly")]),
    (PLAIN + "examples: [{result: 1}]\n", [("missing_key", "/examples/0/args")]),
    (PLAIN + "mode: ''\n", [("wrong_value", "/mode")]),
    (PLAIN + "experimental: maybe\n", [("wrong_type", "/experimental")]),
    ("name: tool\nmock: 3\n", [("wrong_type", "/mock")]),
]


@pytest.mark.parametrize(("text", "expected"), WRONG_SHAPES, ids=[case[1][0][1] for case in WRONG_SHAPES])
def test_a_wrong_shape_is_told_at_its_place(text, expected):
    assert codes(text) == expected


def test_all_problems_of_a_document_are_told_at_once():
    found = codes(
        "name: a b\ntags: weather\ntimeout: 3\nstuff: 1\npolicy: {}\nmock: {result: 1, latency: 5}\n"
    )
    assert sorted(found) == [
        ("not_supported_yet", "/policy"),
        ("unknown_key", "/stuff"),
        ("wrong_form", "/name"),
        ("wrong_form", "/timeout"),
        ("wrong_type", "/mock/latency"),
        ("wrong_type", "/tags"),
    ]


def test_a_problem_stands_at_its_line_and_column_in_yaml():
    problem = problem_of("# a tool\nname: tool\nmock:\n  result: 1\n  latency: soon\n")
    assert (problem.source, problem.line, problem.column) == ("x.tool.yaml", 5, 12)
    assert str(problem).startswith("x.tool.yaml:5:12: wrong_form: ")


def test_a_problem_stands_at_its_line_and_column_in_json():
    text = '{\n\t"name": "tool",\n\t"mock": {"result": 1},\n\t"coerce": "no",\n\t"stuff": 1\n}'
    found = [(problem.code, problem.line, problem.column) for problem in loaded(text, "x.json").problems]
    assert sorted(found) == [("not_allowed", 4, 12), ("unknown_key", 5, 2)]


def test_one_block_is_the_mode_in_force():
    assert tool_of(PLAIN).mode == "mock"


def test_no_block_is_an_unbound_tool():
    tool = tool_of("name: tool\ninput_schema: {type: object}\n")
    assert (tool.mode, dict(tool.bindings)) == (None, {})


def test_several_blocks_need_a_mode():
    problems = loaded("name: tool\nmock: {result: 1}\nlive: {url: x}\n").problems
    (error,) = (problem for problem in problems if problem.severity == "error")
    assert error.code == "mode_missing"
    assert "`mock`" in error.message
    assert "`live`" in error.message
    assert error.hint == "add `mode: mock` or `mode: live`; profiles and `--mode` select another"


def test_a_mode_without_its_block_names_the_blocks_that_are_there():
    problem = problem_of("name: tool\nmode: live\nmock: {result: 1}\n")
    assert (problem.code, problem.pointer, problem.line) == ("binding_missing", "/mode", 2)
    assert problem.hint == "add a `live:` block, or use one of the existing modes: mock"


def test_a_mode_without_any_block_says_what_to_write():
    assert problem_of("name: tool\nmode: mock\n").hint == "add a `mock:` block"


def test_the_block_of_a_mode_that_is_not_installed_is_a_warning():
    found = loaded("name: tool\nmode: mock\nmock: {result: 1}\nlive: {anything: [goes]}\n")
    (problem,) = found.problems
    assert (problem.code, problem.severity, problem.pointer) == ("mode_not_installed", "warning", "/live")
    (tool,) = found.tools
    assert (tool.mode, tool.bindings["live"]) == ("mock", {"anything": ["goes"]})


def test_a_mode_of_somebody_else_that_the_document_names_is_a_warning_too():
    found = loaded("name: tool\nmode: carrier_pigeon\ncarrier_pigeon: {coop: 3}\n")
    assert [(problem.code, problem.severity) for problem in found.problems] == [
        ("mode_not_installed", "warning")
    ]
    assert found.tools[0].mode == "carrier_pigeon"


def test_the_block_of_a_mode_that_is_not_installed_is_a_warning_also_where_another_is_in_force():
    found = loaded("name: tool\nmode: mock\nmock: {result: 1}\ncarrier_pigeon: {coop: 3}\n")
    assert [(problem.code, problem.severity, problem.pointer) for problem in found.problems] == [
        ("mode_not_installed", "warning", "/carrier_pigeon")
    ]
    assert sorted(found.tools[0].bindings) == ["carrier_pigeon", "mock"]


@pytest.mark.parametrize("line", ["metdata: {a: 1}", "colour: red", "Mock: {result: 1}", "x y: {a: 1}"])
def test_what_is_no_block_is_an_unknown_key(line):
    key = line.partition(":")[0]
    assert codes(f"name: tool\nmode: mock\nmock: {{result: 1}}\n{line}\n") == [("unknown_key", f"/{key}")]


def test_a_foreign_block_does_not_hide_the_other_faults():
    assert codes("name: tool\nmode: pigeon\npigeon: {coop: 3}\ntags: 3\n") == [
        ("wrong_type", "/tags"),
        ("mode_not_installed", "/pigeon"),
    ]


def test_the_block_of_a_mode_that_is_not_in_force_is_checked_too():
    text = "name: tool\nmode: live\nlive: {}\nmock: {result: '{{ nobody }}'}\n"
    errors = [problem for problem in loaded(text).problems if problem.severity == "error"]
    assert [problem.pointer for problem in errors] == ["/mock/result"]


@pytest.mark.parametrize("key", ["input_schema", "output_schema"])
@pytest.mark.parametrize(
    ("schema", "code", "place"),
    [
        ("{type: strng}", "invalid_schema", "/type"),
        ("{properties: {a: {pattern: '('}}}", "bad_pattern", "/properties/a/pattern"),
        ("{$ref: 'http://127.0.0.1:9/x.json'}", "remote_ref", "/$ref"),
        ("{$ref: '#/$defs/x'}", "dangling_ref", "/$ref"),
    ],
)
def test_a_schema_that_can_not_be_used_is_refused(key, schema, code, place):
    assert codes(PLAIN + f"{key}: {schema}\n") == [(code, f"/{key}{place}")]


@pytest.mark.parametrize(
    "dialect",
    [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ],
)
def test_five_dialects_are_understood(dialect):
    tool = tool_of(PLAIN + f"output_schema: {{$schema: '{dialect}', type: integer}}\n")
    assert tool.output_schema["$schema"] == dialect


def test_a_dialect_that_nobody_knows_is_refused():
    assert codes(PLAIN + "output_schema: {$schema: 'https://example.com/mine'}\n") == [
        ("unknown_dialect", "/output_schema/$schema")
    ]


@pytest.mark.parametrize("schema", ["{type: array}", "{type: string}", "{type: [string, object]}"])
def test_arguments_are_an_object(schema):
    problem = problem_of(PLAIN + f"input_schema: {schema}\n")
    assert (problem.code, problem.pointer) == ("arguments_not_object", "/input_schema/type")
    assert problem.hint == "write `type: object`"


@pytest.mark.parametrize("schema", ["true", "{}", "{type: object}"])
def test_an_open_input_schema_is_the_authors_choice(schema):
    assert tool_of(PLAIN + f"input_schema: {schema}\n").name == "tool"


@pytest.mark.parametrize("text", ["0s", "601s", "11m", "1h", "0ms", "9" * 18 + "s"])
def test_a_timeout_has_its_range(text):
    problem = problem_of(PLAIN + f"timeout: {text}\n")
    assert (problem.code, problem.pointer, problem.line) == ("out_of_range", "/timeout", 4)
    assert "at most 10m" in problem.message
    assert problem.hint


@pytest.mark.parametrize(("text", "seconds"), [("1ms", 0.001), ("10m", 600.0), ("2.5s", 2.5)])
def test_a_timeout_within_its_range(text, seconds):
    assert tool_of(PLAIN + f"timeout: {text}\n").timeout == seconds


EXAMPLES = """
name: tool
input_schema:
  type: object
  additionalProperties: false
  required: [city]
  properties: {city: {type: string}, password: {type: string, minLength: 9}}
output_schema: {type: integer}
mock: {result: 1}
examples:
"""


def test_examples_are_checked_against_both_schemas():
    text = (
        EXAMPLES + "  - args: {city: 3}\n  - {args: {}, result: many}\n  - {args: {city: Oslo}, result: 1}\n"
    )
    problems = loaded(text).problems
    assert [(problem.code, problem.pointer, problem.line) for problem in problems] == [
        ("example_breaks_schema", "/examples/0/args/city", 11),
        ("example_breaks_schema", "/examples/1/args/city", 12),
        ("example_breaks_schema", "/examples/1/result", 12),
    ]
    assert "`input_schema`" in problems[0].message
    assert "`output_schema`" in problems[2].message


def test_a_secret_of_an_example_is_not_told():
    problem = problem_of(EXAMPLES + "  - args: {city: Oslo, password: hunter2}\n")
    assert problem.pointer == "/examples/0/args/password"
    assert "hunter2" not in str(problem)


def test_an_example_without_a_result_promises_none():
    tool = tool_of(EXAMPLES + "  - args: {city: Oslo}\n")
    assert tool.examples == (Example(args={"city": "Oslo"}),)
    assert tool_of(PLAIN + "examples: [{args: {}, result: null}]\n").examples[0].has_result


def test_an_example_needs_no_output_schema():
    assert tool_of(PLAIN + "examples: [{args: {}, result: anything}]\n").examples[0].result == "anything"


def test_the_origin_tells_where_a_tool_came_from():
    tool = tool_of("---\n# first\n" + PLAIN, "dir/x.tool.yaml")
    assert (tool.origin.source, tool.origin.line) == ("dir/x.tool.yaml", 3)
    assert tool.origin.locate("/mock/result") == (5, 16)
    assert tool.origin.place("/mock/result") == "dir/x.tool.yaml:5"


def test_the_digest_is_that_of_the_content_not_of_the_writing():
    yaml = tool_of("description: A tool.\nmock:\n  result: 1   # one\nname: tool\n")
    json = tool_of('{"name": "tool", "description": "A tool.", "mock": {"result": 1}}', "x.json")
    other = tool_of(PLAIN + "title: Other\n")
    assert yaml.origin.digest == json.origin.digest == tool_of(PLAIN).origin.digest
    assert len(other.origin.digest) == 64
    assert other.origin.digest != yaml.origin.digest


def test_a_mapping_from_memory_is_a_document():
    found = parse("tool", {"name": "tool", "mock": {"result": 1}, "tags": 3}, KINDS)
    assert [(problem.code, problem.source, problem.line) for problem in found.problems] == [
        ("wrong_type", "tool", 1)
    ]


@pytest.mark.parametrize("bad", [float("nan"), "\ud800", {1: 2}, object()])
def test_a_mapping_that_is_no_json_is_refused(bad):
    found = parse("tool", {"name": "tool", "mock": {"result": bad}}, KINDS)
    assert [(problem.code, problem.line) for problem in found.problems] == [("not_json", 1)]
    assert found.tools == ()


def test_a_block_for_each_mode_keeps_its_order():
    tool = loaded("name: tool\nmode: mock\nlive: {}\nmock: {result: 1}\nexec: {}\n").tools[0]
    assert list(tool.bindings) == ["live", "mock", "exec"]


def test_a_manifest_with_a_key_that_is_a_mode_and_a_key_of_ours_is_not_confused():
    assert codes("name: tool\nmode: version\nversion: '1'\nmock: {result: 1}\n") == [
        ("binding_missing", "/mode")
    ]


def test_sound_parts_of_a_refused_document_are_checked_all_the_same():
    text = (
        "name: a b\ntimeout: 1h\ninput_schema: {type: strng}\noutput_schema: {type: integer}\n"
        "examples: [{args: {}, result: x}]\nmock: {result: many}\n"
    )
    assert codes(text) == [
        ("wrong_form", "/name"),
        ("out_of_range", "/timeout"),
        ("invalid_schema", "/input_schema/type"),
        ("example_breaks_schema", "/examples/0/result"),
        ("result_breaks_schema", "/mock/result"),
    ]


def test_a_warning_about_a_schema_does_not_stop_it_from_judging():
    text = (
        "name: tool\noutput_schema: {type: object, properties: {n: {type: integer, default: x}}}\n"
        "mock: {result: 3}\nexamples: [{args: {}, result: 4}]\n"
    )
    assert codes(text) == [
        ("default_mismatch", "/output_schema/properties/n/default"),
        ("example_breaks_schema", "/examples/0/result"),
        ("result_breaks_schema", "/mock/result"),
    ]


def test_more_faults_than_are_counted_are_no_further_trouble():
    problems = loaded(PLAIN + f"tags: [{', '.join(['3'] * 200)}]\ntimeout: 3\n").problems
    assert len(problems) == 101
    assert problems[-1].code == "too_many_problems"
