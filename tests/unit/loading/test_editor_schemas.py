"""The schemas of editors: they refuse what a schema can refuse, accept all that loads, and the reference says the rest."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from sampling import sample
from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.schemas import KINDS
from toolcrib.executors import Executors
from toolcrib.formats.promptkit.foreign_descriptors import has_foreign_keys
from toolcrib.loading.documents.document import parse_content, read_documents
from toolcrib.loading.editor_schemas import editor_schema
from toolcrib.loading.projects import Project
from toolcrib.loading.scenarios.assertions import ALIASES, assertion_kinds
from toolcrib.loading.sources import parse, parse_files
from toolcrib.schema.validation import check_schema

ROOT = Path(__file__).resolve().parents[3]
MODES = Executors.installed()


@cache
def judges(kind) -> tuple[Any, Any]:
    """What two libraries make of the schema of a kind of document."""
    schema = editor_schema(kind, MODES.blocks())
    return jsonschema.Draft202012Validator(schema), jsonschema_rs.Draft202012Validator(schema)


def accepted(kind, value: Any) -> bool:
    """Whether an editor accepts a value, on which both libraries agree."""
    python, rust = (judge.is_valid(value) for judge in judges(kind))
    assert python == rust, value
    return python


def value_of(text: str) -> Any:
    """The one document of a text."""
    ((document,), _problems) = parse_content("x.yaml", text)
    return document.value


def problems_of(kind, text: str) -> tuple[Problem, ...]:
    """What the loader says of a document."""
    if kind == "pack":
        return parse_files({"pack.yaml": text}, MODES).problems
    if kind != "project":
        return parse("x.yaml", text, MODES).problems
    try:
        Project.parse("toolcrib.yaml", text, kinds=MODES)
    except DocumentError as error:
        return tuple(error.problems)
    return ()


def errors(kind, text: str) -> list[str]:
    return [problem.code for problem in problems_of(kind, text) if problem.severity == "error"]


def tool(keys: str) -> tuple[str, str]:
    return "descriptor", f"{{name: x, {keys}}}"


def mock(keys: str) -> tuple[str, str]:
    return tool(f"input_schema: true, mock: {{{keys}}}")


def live(keys: str, url: str = "https://h.example/a") -> tuple[str, str]:
    return tool(f'input_schema: true, live: {{url: "{url}", {keys}}}')


def scenario(keys: str, steps: str = "{call: a}") -> tuple[str, str]:
    return "scenario", f"{{scenario: s, steps: [{steps}], {keys}}}"


def agent(keys: str, turn: str = "user: hi") -> tuple[str, str]:
    return "scenario", f"{{scenario: s, agent: {{turns: [{{{turn}}}], {keys}}}}}"


def pack(keys: str) -> tuple[str, str]:
    return "pack", f"{{name: p, version: 1.0.0, {keys}}}"


def prompt(keys: str) -> tuple[str, str]:
    return pack(f"prompts: {{a: {{{keys}}}}}")


def project(keys: str) -> tuple[str, str]:
    return "project", f"{{project: p, {keys}}}"


def server(keys: str) -> tuple[str, str]:
    return project(f"servers: {{a: {{{keys}}}}}")


EXPRESSIONS = [
    "{{ args.city",
    "{{ args. }}",
    "{{ 1 + }}",
    "{{ a b }}",
    "{{ }}",
    "{{ (args.a }}",
    "{{ args.a) }}",
    "{{ 'a }}",
    "{{ args.a | }}",
    "{{ * 2 }}",
    "{{ a, b }}",
    "{{ a ! b }}",
    "{{ a = 1 }}",
]

SEEN = [
    *(("expression_syntax", mock(f"result: {json.dumps(text)}")) for text in EXPRESSIONS),
    *(("expression_syntax", live(f"query: {{q: {json.dumps(text)}}}")) for text in EXPRESSIONS[:4]),
    ("expression_syntax", scenario("", '{call: a, args: {x: "{{ 1 + }}"}}')),
    ("expression_syntax", mock('rules: [{when: {if: "args.a"}, reply: {result: 1}}]')),
    ("expression_syntax", mock('rules: [{when: {if: "{{ a }} {{ b }}"}, reply: {result: 1}}]')),
    ("expression_syntax", mock('template: "{{ 1 + }}"')),
    ("expression_syntax", agent("", 'user: hi, script: [{say: "{{ user + }}"}]')),
    ("expression_syntax", agent("", "user: '{{ run + }}'")),
    ("expression_syntax", prompt('system: "Hello {{ name"')),
    ("expression_syntax", tool('mcp: {server: s, args: {a: "{{ args. }}"}}')),
    ("unknown_function", mock('result: "{{ args.x is defined }}"')),
    ("unknown_function", live('headers: {X: "{{ uper(args.x) }}"}')),
    ("expression_not_allowed", mock('result: "{% if args.x %}"')),
    ("expression_not_allowed", mock('result: "{{-x}}"')),
    ("expression_not_allowed", mock('result: {"{{ args.x }}": 1}')),
    ("expression_not_allowed", live('auth: {type: http, scheme: bearer, token: "{{ args.t }}"}')),
    ("variable_not_allowed", mock('result: "${HOME}"')),
    ("variable_not_allowed", project('sources: ["${HOME}/a"]')),
    ("bad_variable", live('headers: {X: "${1}"}')),
    ("bad_variable", live('auth: {type: http, scheme: bearer, token: "${A"}')),
    ("bad_variable", server('command: x, args: ["${A:-{}}"]')),
    ("invalid_pattern", mock('rules: [{when: {args: {a: {$regex: "("}}}, reply: {result: 1}}]')),
    ("invalid_pattern", mock('rules: [{when: {args: {a: {$regex: "[a"}}}, reply: {result: 1}}]')),
    ("invalid_pattern", mock('rules: [{when: {args: {a: {$regex: "(?=a)"}}}, reply: {result: 1}}]')),
    ("invalid_pattern", scenario("", '{call: a, expect: {result: {$regex: "*a"}}}')),
    ("invalid_pattern", agent('assertions: [{type: content_matches, params: {pattern: "a)"}}]')),
    ("bad_pattern", tool('input_schema: {properties: {a: {type: string, pattern: "["}}}')),
    ("remote_ref", tool("input_schema: {$ref: 'https://example.com/s.json'}")),
    ("remote_ref", tool("output_schema: {properties: {a: {$ref: other.json}}}")),
    ("remote_ref", pack("store: {a: {rows: [], schema: {$ref: 'https://example.com/s'}}}")),
    ("unknown_dialect", tool("output_schema: {$schema: 'https://example.com/mine'}")),
    ("invalid_schema", tool("output_schema: {type: strng}")),
    ("invalid_schema", tool("output_schema: {properties: {a: {items: 1}}}")),
    ("invalid_schema", tool("output_schema: {multipleOf: 0}")),
    ("arguments_not_object", tool("input_schema: {type: array}")),
    ("invalid_url", live("", "/x")),
    ("invalid_url", live("", "ftp://h.example/")),
    ("invalid_url", live("", "https:///x")),
    ("invalid_url", live("", "https://h.example/a b")),
    ("invalid_url", live("", "https://h.example/#a")),
    ("invalid_url", live("", "https://user@h.example/")),
    ("invalid_url", live("", "https://h.example:99999/")),
    ("invalid_url", live("", "https://h.example/../a")),
    ("invalid_url", server('url: "/x"')),
    ("invalid_url", server('url: "https://user:word@h.example/mcp"')),
    ("expression_in_origin", live("", "https://{{ args.host }}/a")),
    ("expression_in_origin", live("", "{{ args.url }}")),
    ("expression_in_origin", live("", "https://h.example/?{{ args.a }}=1")),
    ("body_not_allowed", live("body: {json: 1}")),
    ("reserved_header", live("headers: {Content-Length: 1}")),
    ("wrong_form", live('headers: {"a b": 1}')),
    ("wrong_form", live("method: POST, body: {text: a, content_type: text}")),
    ("wrong_form", tool("description: d, timeout: 5")),
    ("wrong_form", project('servers: {"a b": {command: x}}')),
    ("wrong_form", server("command: npx -y server")),
    ("wrong_form", pack('requires: {packs: {a: "^1.0"}}')),
    ("wrong_style", live("query: {a: {value: [1], style: spaceDelimited, explode: true}}")),
    ("wrong_combination", live("method: POST, query: {from: args}, body: {from: args}")),
    ("wrong_combination", server("command: x, url: 'https://h.example/mcp'")),
    ("wrong_combination", mock("result: 1, template: x")),
    ("unusable_credential", live('auth: {type: http, scheme: bearer, token: "a\\nb"}')),
    ("unusable_credential", live('auth: {type: http, scheme: basic, username: "a:b", password: "${P}"}')),
    ("bad_path", live("response: {redact: [a..b]}")),
    ("bad_path", live('response: {redact: ["a.**"]}')),
    ("bad_pointer", live("response: {budget: {size: 1, items: a}}")),
    ("bad_select", live('select: "body["')),
    ("bad_select", live('select: "uper(body)"')),
    ("unfit_pagination", live("method: HEAD, pagination: {style: link}")),
    ("unfit_pagination", live("response: {as: text}, pagination: {style: link}")),
    ("missing_key", live("pagination: {style: page}")),
    ("missing_key", server("args: [a]")),
    ("missing_key", agent("assertions: [{type: tools_called}]")),
    ("missing_key", agent("assertions: [{type: content_matches, params: {}}]")),
    ("needless_key", live("pagination: {style: link, start: 1}")),
    ("needless_key", live("response: {as: binary, redact: [a]}")),
    ("needless_key", tool("client: {fallback: 1}")),
    ("needless_key", server("command: x, headers: {A: b}")),
    ("needless_key", mock("result: 1, after_last: repeat")),
    ("needless_key", mock("fault: timeout, content: [{type: text, text: a}]")),
    ("needless_key", mock('fault: {error: a}, let: {a: "{{ args.a }}"}')),
    ("fault_not_possible", mock("fault: stale")),
    ("unknown_fault", mock("fault: tiemout")),
    ("missing_options", mock("fault: rate_limit")),
    ("unknown_operator", mock("rules: [{when: {args: {a: {$gtt: 1}}}, reply: {result: 1}}]")),
    ("mixed_matcher", mock("rules: [{when: {args: {a: {$gt: 1, b: 2}}}, reply: {result: 1}}]")),
    ("wrong_operand", scenario("", "{call: a, expect: {result: {$gt: []}}}")),
    ("invalid_base64", mock("content: [{type: image, mime_type: image/png, data: a}]")),
    ("invalid_place", mock('result: 1, effects: [{update: "{{ ann }}", set: {a: 1}}]')),
    ("invalid_name", mock('result: "{{ a }}", let: {"a b": 1}')),
    ("invalid_name", mock('result: {for_each: {"x y": [1]}, value: 1}')),
    ("invalid_for_each", mock("result: {for_each: {}, value: 1}")),
    ("invalid_for_each", mock("result: {for_each: {x: y}, value: 1}")),
    ("invalid_for_each", mock("result: {for_each: {x: [1]}, value: '{{ x }}', sum: '{{ x }}'}")),
    ("no_output_schema", mock("generate: true")),
    ("out_of_range", tool("description: d, timeout: 11m")),
    ("out_of_range", tool("description: d, limits: {rate: 5/0s}")),
    ("out_of_range", tool("client: {timeout: 0s}")),
    ("binding_missing", tool("mode: mock")),
    ("mode_missing", tool("mock: {result: 1}, client: {}")),
    ("unknown_key", tool("descripton: d, description: d")),
    ("unknown_key", agent("assertions: [{type: tools_called, params: {tols: [a]}}]")),
    ("wrong_type", tool("description: [d]")),
    ("wrong_type", prompt("system: a, policy: {max_rounds: many}")),
    ("not_allowed", tool("description: d, coerce: maybe")),
    ("not_supported_yet", tool("description: d, policy: {}")),
    ("unknown_capability", tool("description: d, capabilities: [netwrok]")),
    ("wrong_value", tool("description: d, limits: {attempts: 0}")),
    ("wrong_value", prompt("system: '{{ a }}', variables: {a: {type: integer, default: x}}")),
    ("wrong_value", agent("policy: {max_rounds: 0}")),
    ("contradiction", scenario("", "{call: a, expect: {outcome: timeout, result: 1}}")),
    ("contradiction", scenario("verify: {final_text: a}")),
    ("contradiction", scenario("clock: {mode: real, start: '2030-01-01T00:00:00Z'}")),
    ("contradiction", prompt("system: '{{ a }}', variables: {a: {required: true, default: x}}")),
    ("contradiction", server("command: x, transport: http")),
    ("duplicate_name", scenario("", "{call: a, as: now}")),
    ("unknown_assertion", agent("assertions: [{type: tools_caled}]")),
    ("unknown_assertion", prompt("system: a, guardrails: [{type: tools_called, params: {tool_names: [a]}}]")),
    (
        "unknown_assertion",
        agent("assertions: [{type: assertion, params: {min_score: 1, eval_type: tols, eval_params: {}}}]"),
    ),
    ("unknown_assertion", agent("assertions: [{type: guardrail_triggered, params: {validator_type: tols}}]")),
    (
        "unknown_key",
        agent(
            "assertions: [{type: assertion, params: {min_score: 1, eval_type: is_valid_json, eval_params: {a: 1}}}]"
        ),
    ),
    ("unknown_dialect", tool("output_schema: {properties: {a: {$schema: 'https://example.com/mine'}}}")),
    ("bad_glob", project("disable: ['a b']")),
    ("bad_glob", prompt("system: a, policy: {deny: ['a b']}")),
    ("bad_egress", project("egress: {allow: [h.example]}")),
    ("bad_origin", project("origins: {h.example: 'https://h.example'}")),
    ("row_not_object", pack("store: {a: [1]}")),
    ("unknown_row_format", pack("store: {a: rows.txt}")),
]
"""Documents that an editor refuses as the loader does: the loader's code, and the document."""

INPUT = "input_schema: {properties: {a: {type: integer}}, additionalProperties: false}"

UNSEEN = [
    ("expression_syntax", mock('result: "{{ (] }}"')),
    # A mock may call functions that its pack or project defines.
    ("unknown_function", mock('result: "{{ args.x | uper }}"')),
    ("unknown_function", mock('result: "{{ shout(args.x) }}"')),
    ("unknown_function", tool('input_schema: true, live: {url: "https://h.example/{{ uuid() }}"}')),
    ("expression_not_allowed", mock('result: "{{ args.a is matching args.b }}"')),
    ("missing_key", agent("assertions: [{type: directional, params: {check: same_tool_calls}}]")),
    ("wrong_type", mock("result: 1, effects: [{increment: a.b, by: '{{ [1] }}'}]")),
    ("reserved_header", server("url: 'https://h.example/mcp', headers: {Mcp-Session-Id: a}")),
    ("bad_variable", live('headers: {X: "${keyring:a/:-x}"}')),
    ("bad_egress", project("egress: {allow: ['[::1:80']}")),
    ("wrong_operand", scenario("", "{call: a, expect: {result: {$in: [{$gt: 1}]}}}")),
    ("remote_ref", tool("output_schema: {$id: 'https://x.example/a', $ref: 'https://y.example/b'}")),
    ("unknown_row_format", pack("store: {a: '${TOOLCRIB_TEST_UNSET:-rows.txt}'}")),
    ("expression_failed", mock('result: "{{ 1 / 0 }}"')),
    ("unknown_name", mock('result: "{{ agrs.a }}"')),
    ("unknown_argument", tool(f'{INPUT}, mock: {{result: "{{{{ args.b }}}}"}}')),
    (
        "never_matches",
        tool(f"{INPUT}, mock: {{rules: [{{when: {{args: {{a: x}}}}, reply: {{result: 1}}}}]}}"),
    ),
    ("unused_name", mock("result: 1, let: {a: 1}")),
    ("name_taken", mock('result: "{{ args }}", let: {args: 1}')),
    ("unequal_lists", mock("result: {for_each: {x: [1], y: [1, 2]}, value: '{{ x + y }}'}")),
    ("invalid_pattern", mock('rules: [{when: {args: {a: {$regex: "b{3,1}"}}}, reply: {result: 1}}]')),
    ("bad_pattern", tool('input_schema: {properties: {a: {pattern: "b{3,1}"}}}')),
    ("dangling_ref", tool("input_schema: {$ref: '#/$defs/a'}")),
    ("endless_ref", tool("output_schema: {$ref: '#'}")),
    ("invalid_schema", tool("output_schema: {exclusiveMinimum: a}")),
    ("example_breaks_schema", tool(f"{INPUT}, examples: [{{args: {{a: x}}}}]")),
    ("result_breaks_schema", tool("output_schema: {type: string}, mock: {result: 1}")),
    ("unreachable_rule", mock("rules: [{reply: {result: 1}}, {reply: {result: 2}}]")),
    (
        "unreachable_guard",
        mock("guard: [{if: '{{ true }}', error: a}, {if: '{{ args.a }}', error: b}], result: 1"),
    ),
    ("constant_condition", mock("guard: [{if: '{{ 1 > 2 }}', error: a}], result: 1")),
    ("unknown_collection", mock("crud: {get: books, key: a}")),
    ("unknown_machine", mock("result: 1, effects: [{goto: {door: open}}]")),
    ("not_a_row", mock("result: 1, effects: [{delete: book}]")),
    ("no_such_block", mock("passthrough: live")),
    ("no_output_schema", mock("fault: {violate_schema: any}")),
    ("file_unreadable", mock("result_file: a.json")),
    ("out_of_range", tool("description: d, limits: {backoff: {first: 20s}}")),
    (
        "duplicate_name",
        mock("rules: [{name: a, when: {call: 1}, reply: {result: 1}}, {name: a, reply: {result: 1}}]"),
    ),
    ("host_not_named", live("hosts: [b.example]")),
    ("duplicate_header", live("headers: {A: 1, a: 2}")),
    ("duplicate_parameter", live("query: {a: 1}", "https://h.example/?a=1")),
    (
        "duplicate_credential",
        live("auth: {type: http, scheme: bearer, token: '${T}'}, headers: {Authorization: a}"),
    ),
    ("invalid_url", live("", "https://h.example/%2e%2e/a")),
    ("unusable_credential", live('auth: {type: apiKey, in: query, name: k, value: "a\\nb"}')),
    ("bad_select", live('select: "length(body, body)"')),
    ("wrong_form", live('headers: {X: "a\\nb"}')),
    (
        "wrong_style",
        tool(
            "input_schema: {properties: {a: {type: string}}}, live: {url: 'https://h.example/', query: {a: {value: '{{ args.a }}', style: deepObject}}}"
        ),
    ),
    ("wrong_value", scenario("clock: {start: '2030-02-30T00:00:00Z'}")),
    ("contradiction", scenario("verify: {calls: [{tool: a}], never: [{tool: a}]}")),
    ("too_many_runs", scenario("repeat: 1001")),
    (
        "reads_sibling",
        scenario("", "{parallel: [{call: a, as: one}, {call: b, args: {x: '{{ one.result }}'}}]}"),
    ),
    ("mixed_names", scenario("faults: [{tool: a, inject: {error: '{{ args.a }} {{ run }}'}}]")),
    ("unknown_profile", project("profile: dev")),
    ("endless_extends", project("profiles: {a: {extends: a}}")),
    ("bad_origin", project("origins: {'http://[::1': 'https://h.example'}")),
    ("row_breaks_schema", pack("store: {a: {rows: [{n: x}], schema: {properties: {n: {type: integer}}}}}")),
    ("row_without_key", pack("store: {a: {key: id, rows: [{n: x}]}}")),
    ("row_key_differs", pack("store: {a: {key: id, rows: {x: {id: y}}}}")),
    ("duplicate_row", pack("store: {a: {key: id, rows: [{id: 1}, {id: 1}]}}")),
    ("rows_unreadable", pack("store: {a: rows.json}")),
    ("missing_variable", pack("store: {a: '${TOOLCRIB_TEST_UNSET}/rows.json'}")),
]
"""Documents of which only the loader knows what is wrong with them."""


def marks() -> dict[str, str]:
    """Code -> how far an editor sees it, as the reference says."""
    text = (ROOT / "docs" / "reference" / "problems.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `([^`]+)` \| (yes|partly|no) \|", text, re.MULTILINE))


def named(made: tuple[str, tuple[str, str]]) -> str:
    code, (_kind, text) = made
    return f"{code}-{text[:60]}"


@pytest.mark.parametrize(("code", "document"), sample(SEEN, one_in=3), ids=sample(map(named, SEEN), one_in=3))
def test_an_editor_refuses_what_the_loader_refuses(code, document):
    kind, text = document
    assert code in errors(kind, text)
    assert not accepted(kind, value_of(text))


@pytest.mark.parametrize(
    ("code", "document"), sample(UNSEEN, one_in=2), ids=sample(map(named, UNSEEN), one_in=2)
)
def test_some_rules_only_the_loader_knows(code, document):
    kind, text = document
    assert code in errors(kind, text)
    assert accepted(kind, value_of(text))


def test_the_reference_says_how_far_an_editor_sees_each_problem():
    seen, unseen = ({code for code, _document in table} for table in (SEEN, UNSEEN))
    told = {code: "no" if code not in seen else "partly" if code in unseen else "yes" for code in marks()}
    assert seen | unseen <= told.keys()
    assert marks() == told


def blocks(page: Path) -> list[str]:
    """The examples of a page that look like documents."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```yaml[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for block in found if re.search(r"^(name|scenario|project):", block, re.MULTILINE)]


@cache
def documents(path: Path) -> list[tuple[str, Any]]:
    """(kind, value) of every document of a file that loads."""
    if path.suffix == ".yaml":
        read = [document.value for document in read_documents(path, str(path))[0]]
        return [(kind, value) for value in read if (kind := kind_of(path.name, value))]
    found = []
    for block in blocks(path):
        kind = "project" if re.search(r"^project:", block, re.MULTILINE) else ""
        kind = kind or ("pack" if re.search(r"^version: \d+\.\d+\.\d+$", block, re.MULTILINE) else "")
        kind = kind or ("scenario" if re.search(r"^scenario:", block, re.MULTILINE) else "descriptor")
        if not problems_of(kind, block):
            read = [document.value for document in parse_content("x.yaml", block)[0]]
            # The schemas are those of our own documents.
            found += [(kind, value) for value in read if not has_foreign_keys(value)]
    return found


def kind_of(name: str, value: Any) -> str:
    if name == "pack.yaml":
        return "pack"
    if name == "toolcrib.yaml":
        return "project"
    if ".tool." in name and isinstance(value, dict) and "name" in value:
        return "descriptor"
    return "scenario" if ".scenario." in name else ""


# Read by the tests: at collection, every worker would parse the documents of the whole repository.
FILES = [
    path
    for folder in ("descriptors", "packs", "tests", "runtime", "docs")
    for path in sorted((ROOT / folder).rglob("*.yaml"))
    if kind_of(path.name, {"name": ""})
] + [path for path in sorted((ROOT / "docs").rglob("*.md")) if blocks(path)]


@pytest.mark.exhaustive
def test_there_are_good_documents_of_every_kind():
    good = [each for path in FILES for each in documents(path)]
    assert {kind for kind, _value in good} == {*KINDS}
    assert len(good) > 60


@pytest.mark.parametrize("path", sample(FILES, one_in=4), ids=lambda path: str(path.relative_to(ROOT)))
def test_an_editor_accepts_what_loads(path):
    for kind, value in documents(path):
        assert accepted(kind, value), value


ACCEPTED = [
    mock("result: \"{{ args.a if args.b else [1, 2][0] }} and {{ args['a b'] | upper | default(none) }}\""),
    mock("result: \"{{ {'a': {'b': 1}}.a.b + -args.n ** 2 }} }} {\""),
    mock('result: "{{ args.a is not none and not (args.b in [1, 2,]) }}$${HOME}"'),
    mock('result: "{{ args.a | where(x=1) | length }}{{ args.l[1:2] }}"'),
    mock('result: {for_each: {x: "{{ args.l }}"}, where: "{{ x > 1 }}", value: "{{ x }}"}'),
    mock(
        "rules: [{when: {if: \" {{ args.a is matching '[(]' }} \"}, reply: {result: 1}}, {reply: {result: 2}}]"
    ),
    mock(
        'rules: [{when: {args: {a: {$regex: "^(?i)[^)(]*\\\\($|a{2,}"}}}, reply: {result: 1}}, {reply: {result: 2}}]'
    ),
    mock('template: "{% raw %}{{ {% endraw %}{# {{ #}{% if args.a %}{{- args.a -}}{% endif %}"'),
    live("", "${BASE}/{{ args.a }}/b?q={{ args.q }}&r=1"),
    live("", "${SCHEME:-https}://h.example/a"),
    live("", "HTTPS://[::1]:8080"),
    live("", "https://h.example:443/{{ {'a': {'b': args.c}}.a.b }}.json?a"),
    live('select: "body[?a == `1`].{n: name, l: length(tags)} | [0]"'),
    live("method: POST, body: {json: {a: '$${A} ${A}'}}, headers: {X-A: '${A:-b}'}"),
    tool(
        "output_schema: {$id: 'https://x.example/b', $defs: {c: {$id: c, type: string}}, $ref: 'https://x.example/c'}"
    ),
    tool("output_schema: {properties: {a: {pattern: '(?=a)(b)\\1'}}, default: {$ref: 'https://x.example'}}"),
    agent(
        "assertions: [{type: tool_called, params: {tool: a, message: b}}, {type: banned_words, params: {words: a}}]"
    ),
    agent(
        "assertions: [{type: assertion, params: {min_score: 1, eval_type: tools_called, eval_params: {tool: a}}}]"
    ),
    agent("assertions: [{type: guardrail_triggered, params: {validator: banned_words}}]"),
    agent(
        "assertions: [{type: toxicity, unsupported: no counterpart}], guardrails: [{type: pii, unsupported: a}]"
    ),
    project("servers_from: a.json, servers: {'My Server': {import: false}}"),
    server("command: './a b.sh', env: {A: '${A}'}"),
    prompt("system: '{{ a | upper }}', variables: {a: {default: b}}"),
]
"""Documents that load, at the edge of what a form can say."""


@pytest.mark.parametrize("document", ACCEPTED, ids=[text[:70] for _kind, text in ACCEPTED])
def test_an_editor_accepts_what_is_rarely_written(document):
    kind, text = document
    assert [
        problem
        for problem in problems_of(kind, text)
        if problem.severity == "error" and problem.code != "path_not_found"
    ] == []
    assert accepted(kind, value_of(text))


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_of_an_editor_is_a_schema_by_itself(kind):
    schema = editor_schema(kind, MODES.blocks())
    assert check_schema(schema) == []
    references = set(re.findall(r'"\$ref": "#/\$defs/([^"/]+)', json.dumps(schema)))
    assert references - {"NAME"} <= schema["$defs"].keys()
    named = set(re.findall(r'"x-form": "([^"]+)"', json.dumps(schema)))
    assert {f"x-form.{name}" for name in named} <= schema["$defs"].keys()


def test_a_form_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError, match="haiku"):
        editor_schema("descriptor", {"poem": {"type": "string", "x-form": "haiku"}})


def test_every_assertion_is_known_under_all_its_names():
    form = editor_schema("scenario", MODES.blocks())["$defs"]["x-form.assertion"]
    assert sorted(form["else"]["properties"]["type"]["enum"]) == sorted({*assertion_kinds(), *ALIASES})
