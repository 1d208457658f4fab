"""Descriptors of other systems become ours, and problems point into the file as it was written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib import Executors, Runtime
from toolcrib.core.model import Annotations, Icon
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.expressions import compile_value, escape_expressions
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.sources import load, parse, parse_files

MANIFEST = """
apiVersion: promptkit.altairalabs.ai/v1alpha1
kind: Tool
metadata:
  name: lookup
  namespace: shop
  labels: {team: orders}
  annotations: {owner: ada}
spec:
  name: lookup
  description: Look an order up.
  mode: mock
  timeout_ms: 1500
  input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
  output_schema: {type: object}
  mock_result: {id: "{{ not ours }}", note: "$${x} {% y"}
"""


def read(text, name="tools.yaml"):
    return parse(name, text if isinstance(text, str) else json.dumps(text), Executors.installed())


def only(text, name="tools.yaml"):
    loaded = read(text, name)
    assert [str(problem) for problem in loaded.problems] == []
    (tool,) = loaded.tools
    return tool


def codes(loaded):
    return [(problem.code, problem.line, problem.pointer) for problem in loaded.problems]


def call(text, arguments=None, name="tools.json"):
    loaded = read(text, name)
    assert [problem for problem in loaded.problems if problem.severity == "error"] == []
    with loaded_runtime(loaded) as runtime:
        return runtime.call_sync(loaded.tools[0].name, arguments)


def test_a_promptkit_manifest_keeps_everything():
    tool = only(MANIFEST)
    assert (tool.name, tool.mode, tool.timeout, dict(tool.labels)) == (
        "lookup",
        "mock",
        1.5,
        {"team": "orders"},
    )
    assert tool.metadata == {"namespace": "shop", "annotations": {"owner": "ada"}}


def test_a_mock_result_is_data_and_never_an_expression():
    result = call(MANIFEST, {"id": "1"}, "tool.yaml")
    assert result.value == {"id": "{{ not ours }}", "note": "$${x} {% y"}


@settings(max_examples=examples(500))
@given(st.text(alphabet="{}$%#' x") | st.text())
def test_every_text_of_a_mock_result_means_itself(text):
    problems = []
    rendering = compile_value(escape_expressions({"a": [text]}), ["args"], problems)
    assert (problems, rendering.render({"args": {}})) == ([], {"a": [text]})


def test_labels_of_the_envelope_and_of_the_specification_go_together():
    tool = only(MANIFEST.replace("  mode: mock", "  labels: {tier: gold}\n  mode: mock"))
    assert dict(tool.labels) == {"team": "orders", "tier": "gold"}
    loaded = read(MANIFEST.replace("  mode: mock", "  labels: {team: gold}\n  mode: mock"))
    assert codes(loaded) == [("duplicate_key", 12, "/spec/labels/team")]


def test_metadata_name_beats_spec_name_with_a_warning():
    loaded = read(MANIFEST.replace("  name: lookup\n  description", "  name: other\n  description"))
    assert [tool.name for tool in loaded.tools] == ["lookup"]
    assert [(problem.code, problem.severity, problem.line) for problem in loaded.problems] == [
        ("name_differs", "warning", 10)
    ]


def test_problems_of_a_manifest_point_into_it():
    loaded = read(MANIFEST.replace("required: [id]", "required: id").replace("description:", "descripton:"))
    assert [(code, line) for code, line, _pointer in codes(loaded)] == [
        ("unknown_key", 11),
        ("invalid_schema", 14),
    ]


def test_other_kinds_get_a_notice():
    loaded = read("apiVersion: v1\nkind: PromptConfig\nspec: {}\n")
    assert [(problem.code, problem.severity) for problem in loaded.problems] == [("other_kind", "notice")]
    assert loaded.tools == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nkind: Tool\nmetadata: {name: a}\n", "/spec"),
        ("apiVersion: v1\nkind: Tool\nspec: {}\n", "/metadata"),
    ],
)
def test_a_manifest_without_its_halves_is_refused(text, expected):
    assert [(code, pointer) for code, _line, pointer in codes(read(text))] == [("missing_key", expected)]


def test_unknown_keys_of_a_manifest_are_refused_everywhere():
    text = MANIFEST.replace("kind: Tool\n", "kind: Tool\nextra: 1\n").replace("  namespace:", "  namespce:")
    text = text.replace("  timeout_ms:", "  timeoutms:")
    found = codes(read(text))
    assert [(code, pointer) for code, _line, pointer in found] == [
        ("unknown_key", "/extra"),
        ("unknown_key", "/metadata/namespce"),
        ("unknown_key", "/spec/timeoutms"),
    ]


def test_mock_parts_become_content(tmp_path):
    (tmp_path / "config.yaml").write_text("apiVersion: v1\nkind: Arena\nspec: {}\n")
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "x.png").write_bytes(b"png")
    (tmp_path / "tools").mkdir()
    parts = """  mock_parts:
    - {type: text, text: "{{ plain }}"}
    - {type: image, media: {file_path: media/x.png, mime_type: image/png, width: 6, height: 8, caption: A}}
    - {type: document, media: {file_path: media/x.png, mime_type: application/pdf}}
    - {type: image, media: {url: "https://example.com/a.png", mime_type: image/png}}
"""
    text = MANIFEST + parts.replace(', mime_type: image/png}}\n"""', "}}")
    (tmp_path / "tools" / "a.tool.yaml").write_text(text.replace('a.png", mime_type: image/png}', 'a.png"}'))
    with loaded_runtime(load([tmp_path], Executors.installed())) as runtime:
        assert [str(problem) for problem in runtime.problems if problem.severity != "notice"] == []
        result = runtime.call_sync("lookup", {"id": "1"})
    assert [(part.type, part.text, part.data, part.title) for part in result.content] == [
        ("text", "{{ plain }}", None, None),
        ("image", None, "cG5n", "A"),
        ("resource", None, "cG5n", None),
        ("image", None, None, None),
    ]
    assert runtime.registry["lookup"].metadata["mock_parts"][1]["media"]["width"] == 6


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ("no list", "/spec/mock_parts"),
        (["no object"], "/spec/mock_parts/0"),
        ([{"type": "text", "text": "a", "colour": 1}], "/spec/mock_parts/0/colour"),
        ([{"type": "image", "media": 1}], "/spec/mock_parts/0/media"),
    ],
)
def test_wrong_mock_parts_are_refused_where_they_stand(parts, expected):
    loaded = read(MANIFEST + f"  mock_parts: {json.dumps(parts)}\n")
    assert expected in [pointer for _code, _line, pointer in codes(loaded)]


FLAT = {
    "name": "weather",
    "description": "x",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "outputSchema": {},
    "timeoutMs": 0,
    "mockTemplate": '{"city": {{ .city | toJson }}}',
}


def test_the_flat_form_answers_by_its_go_template():
    assert call(FLAT, {"city": 'A"B'}).value == {"city": 'A"B'}


def test_a_go_template_answers_a_call_that_leaves_an_argument_out():
    assert call(
        {**FLAT, "mockTemplate": "It is {{.city}} {{if .city}}here{{else}}nowhere{{end}}."}, {}
    ).value == ("It is <no value> nowhere.")


@pytest.mark.parametrize(
    ("schema", "severity", "tools"),
    [({"additionalProperties": False}, "error", 0), ({}, "notice", 1)],
)
def test_an_argument_of_a_go_template_that_the_input_schema_does_not_know_is_found(schema, severity, tools):
    flat = {
        "mockTemplate": "{{.city}}\n{{if .ctiy}}{{.zzz}}{{end}}",  # before the schema, as written
        **{key: value for key, value in FLAT.items() if key != "mockTemplate"},
        "inputSchema": {**FLAT["inputSchema"], **schema},
    }
    loaded = read(flat, "a.json")
    assert [
        (problem.code, problem.pointer, problem.severity, problem.message, problem.hint)
        for problem in loaded.problems
    ] == [
        (
            "unknown_argument",
            "/mockTemplate",
            severity,
            "line 2 of the Go template: unknown argument `.ctiy`; the input schema declares `.city`",
            "did you mean `.city`?",
        ),
        (
            "unknown_argument",
            "/mockTemplate",
            severity,
            "line 2 of the Go template: unknown argument `.zzz`; the input schema declares `.city`",
            "add it to the input schema",
        ),
    ]
    assert len(loaded.tools) == tools


@pytest.mark.parametrize(
    ("city", "template"),
    [({"type": "string"}, "{{ args.city }}"), ({"type": ["string", "null"]}, None), ({}, None)],
)
def test_an_argument_that_is_always_there_is_read_without_more_ado(city, template):
    schema = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    (tool,) = read({**FLAT, "inputSchema": schema, "mockTemplate": "{{.city}}"}, "a.json").tools
    written = tool.bindings["mock"]["template"]
    assert written == (template or "{{ (args['city']) | default('<no value>') }}")


def test_a_go_template_may_read_anything_where_the_input_schema_names_nothing():
    assert read({**FLAT, "inputSchema": {"type": "object"}}, "a.json").problems == ()


def test_a_go_template_outside_the_subset_is_refused():
    loaded = read({**FLAT, "mockTemplate": '{{ template "x" }}'}, "a.json")
    assert [(code, pointer) for code, _line, pointer in codes(loaded)] == [("go_template", "/mockTemplate")]


@pytest.mark.parametrize(
    ("flat", "expected"),
    [
        ({"mockTemplate": 3}, ("wrong_type", "/mockTemplate")),
        ({"mock_template_file": ["a"]}, ("wrong_type", "/mock_template_file")),
        ({"mock_template_file": "gone.tmpl"}, ("file_unreadable", "/mock_template_file")),
    ],
)
def test_a_template_that_is_no_text_or_not_there_is_refused(flat, expected):
    loaded = read({"name": "a", **flat}, "a.json")
    assert [(code, pointer) for code, _line, pointer in codes(loaded)][:1] == [expected]


def test_a_go_template_file_is_translated():
    flat = {"name": "a", "mock_template_file": "a.tmpl", "inputSchema": {"type": "object"}}
    loaded = parse_files({"a.json": json.dumps(flat), "a.tmpl": "Hi {{ .who }}"}, Executors.installed())
    with loaded_runtime(loaded) as runtime:
        assert runtime.call_sync("a", {"who": "Ada"}).value == "Hi Ada"


def test_an_endpoint_and_a_mock_response_live_side_by_side():
    loaded = read({"name": "a", "mockResponse": {"x": 1}, "endpoint": "https://example.com"}, "a.json")
    (tool,) = loaded.tools
    assert (tool.mode, sorted(tool.bindings)) == ("mock", ["live", "mock"])
    assert tool.bindings["live"]["url"] == "https://example.com"
    assert [problem for problem in loaded.problems if problem.severity == "error"] == []


def test_a_mode_without_a_block_is_unavailable():
    result = call({"name": "a", "mode": "local", "timeout_ms": 10})
    assert result.outcome == "unavailable"


def test_an_empty_mode_means_the_mock():
    assert (
        call({"name": "a", "mode": "", "mock_result": 1, "http": {"url": "https://example.com"}}).value == 1
    )


def test_a_result_file_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "a", "mock_result_file": "r.json"}')
    (tmp_path / "r.json").write_text("[1, 2]")
    with Runtime.open(tmp_path / "a.json") as runtime:
        assert runtime.call_sync("a").value == [1, 2]


@pytest.mark.parametrize("timeout", ["5s", 1.5, True])
def test_milliseconds_are_whole_numbers(timeout):
    loaded = read({"name": "a", "mock_result": 1, "timeout_ms": timeout}, "a.json")
    assert [(code, pointer) for code, _line, pointer in codes(loaded)] == [("wrong_type", "/timeout_ms")]


def test_what_is_gathered_from_several_keys_does_not_depend_on_their_order():
    parts = {
        "name": "a",
        "metadata": {"b": 1},
        "_meta": {"c": 2},
        "mock": {"latency": "1ms"},
        "mock_result": 3,
    }
    expected = {"b": 1, "_meta": {"c": 2}}
    for document in (parts, dict(reversed(parts.items()))):
        tool = only(document, "a.json")
        assert (tool.metadata, tool.bindings["mock"]) == (expected, {"latency": "1ms", "result": 3})
    assert parts["metadata"] == {"b": 1}


def test_one_thing_said_in_two_forms_is_refused():
    loaded = read({"name": "a", "mock_result": 1, "input_schema": True, "inputSchema": {}}, "a.json")
    assert [(code, pointer) for code, _line, pointer in codes(loaded)] == [("duplicate_key", "/inputSchema")]


def test_a_foreign_key_under_something_that_is_no_object_is_refused():
    loaded = read({"name": "a", "mock": 1, "mock_result": 1}, "a.json")
    assert "wrong_type" in [code for code, _line, _pointer in codes(loaded)]


PARAMETERS = {
    "name": "search",
    "parameters": [
        {
            "name": "q",
            "type": "string",
            "required": True,
            "min_length": 2,
            "max_length": 9,
            "pattern": "^[a-z]+$",
            "description": "Words",
        },
        {"name": "n", "type": "int", "default": 3, "min_value": 1, "max_value": 5},
        {"name": "tags", "type": "list", "item_type": "str", "max_length": 2, "examples": [["a"]]},
        {"name": "kind", "type": "string", "allowed_values": ["a", "b"], "format": "word"},
        {"name": "extra", "type": "any", "schema": {"multipleOf": 2}},
    ],
}


def test_a_parameter_list_becomes_a_closed_schema():
    schema = only(PARAMETERS, "a.json").input_schema
    assert schema == {
        "type": "object",
        "properties": {
            "q": {
                "type": "string",
                "pattern": "^[a-z]+$",
                "description": "Words",
                "minLength": 2,
                "maxLength": 9,
            },
            "n": {"type": "integer", "default": 3, "minimum": 1, "maximum": 5},
            "tags": {"type": "array", "examples": [["a"]], "maxItems": 2, "items": {"type": "string"}},
            "kind": {"type": "string", "enum": ["a", "b"], "format": "word"},
            "extra": {"multipleOf": 2},
        },
        "additionalProperties": False,
        "required": ["q"],
    }


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("enum", "write `allowed_values`"),
        ("maxItems", "write `max_length`"),
        ("properties", "write other keywords of JSON Schema under `schema`"),
        ("patern", "did you mean `pattern`?"),
    ],
)
def test_a_keyword_of_json_schema_in_a_parameter_is_refused_with_its_place(key, hint):
    for parameter in ({key: 1}, {"type": "array", "item_type": {key: 1}}):
        (problem,) = read({"name": "a", "parameters": [{"name": "p", **parameter}]}, "a.json").problems
        assert (problem.code, problem.hint) == ("unknown_key", hint)


@pytest.mark.parametrize(
    ("item_type", "items"),
    [
        ({"type": "string", "description": "A pattern."}, {"type": "string", "description": "A pattern."}),
        # As Andy.Tools writes a parameter, with all its keys.
        ({"name": "", "required": False, "type": "int", "min_value": 1}, {"type": "integer", "minimum": 1}),
        (
            {"type": "list", "max_length": 2, "item_type": {"type": "str", "allowed_values": ["a"]}},
            {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a"]}},
        ),
        (
            {"type": "object", "schema": {"required": ["id"], "properties": {"id": {"type": "string"}}}},
            {"required": ["id"], "properties": {"id": {"type": "string"}}, "type": "object"},
        ),
        ({}, {}),
        ({"type": "any"}, {}),
    ],
)
def test_the_type_of_items_may_be_a_parameter_again(item_type, items):
    parameter = {"name": "tags", "type": "array", "item_type": item_type}
    schema = only({"name": "s", "parameters": [parameter]}, "a.json").input_schema
    assert schema["properties"]["tags"] == {"type": "array", "items": items}


@pytest.mark.parametrize(
    ("parameter", "code", "pointer"),
    [
        ({"name": "a", "typ": "string"}, "unknown_key", "/parameters/0/typ"),
        ({"name": "a", "type": "strng"}, "invalid_schema", "/parameters/0/type"),
        ({"name": "a", "min_value": "x"}, "invalid_schema", "/parameters/0/min_value"),
        ({"name": "a", "required": "yes"}, "wrong_type", "/parameters/0/required"),
        ({"name": "a", "schema": 1}, "wrong_type", "/parameters/0/schema"),
        (
            {"name": "a", "type": "array", "item_type": ["x"]},
            "invalid_schema",
            "/parameters/0/item_type",
        ),
        (
            {"name": "a", "type": "array", "item_type": {"type": "strng"}},
            "invalid_schema",
            "/parameters/0/item_type/type",
        ),
        (
            {"name": "a", "type": "array", "item_type": {"properties": {}}},
            "unknown_key",
            "/parameters/0/item_type/properties",
        ),
        (
            {"name": "a", "type": "array", "item_type": {"type": "array", "item_type": {"typ": "int"}}},
            "unknown_key",
            "/parameters/0/item_type/item_type/typ",
        ),
        ({"name": "a", "type": {}}, "invalid_schema", "/parameters/0/type"),
        ({"type": "string"}, "missing_key", "/parameters/0"),
        ("a", "missing_key", "/parameters/0"),
    ],
)
def test_a_wrong_parameter_is_refused_where_it_stands(parameter, code, pointer):
    loaded = read({"name": "s", "parameters": [parameter]}, "a.json")
    assert (code, pointer) in [(problem.code, problem.pointer) for problem in loaded.problems]


def test_a_wrong_parameter_is_placed_on_its_own_line():
    text = "name: s\nparameters:\n  - name: a\n    type: string\n    min_value: x\n"
    assert [(problem.code, problem.line, problem.column) for problem in read(text).problems] == [
        ("invalid_schema", 5, 16)
    ]


def test_two_parameters_of_one_name_are_refused():
    loaded = read({"name": "s", "parameters": [{"name": "a"}, {"name": "a"}]}, "a.json")
    assert [(code, pointer) for code, _line, pointer in codes(loaded)] == [
        ("duplicate_name", "/parameters/1/name")
    ]


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


@pytest.mark.parametrize(
    "document",
    [
        {"name": "f", "description": "x", "parameters": SCHEMA},
        {
            "type": "function",
            "function": {"name": "f", "description": "x", "parameters": SCHEMA, "strict": True},
        },
        {"type": "function", "name": "f", "parameters": SCHEMA, "strict": True},
    ],
)
def test_a_function_definition_is_a_tool(document):
    tool = only(document, "a.json")
    assert (tool.name, tool.input_schema) == ("f", SCHEMA)
    assert tool.metadata == ({"strict": True} if "type" in document else {})


def test_what_stands_beside_a_wrapped_function_is_not_dropped():
    loaded = read(
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA}, "functon": 1}, "a.json"
    )
    assert [(code, pointer) for code, _line, pointer in codes(loaded)] == [("unknown_key", "/functon")]


@pytest.mark.parametrize("first", ["title", "annotations"])
def test_a_title_of_its_own_counts_more_than_one_among_the_hints(first):
    both = {"title": "Own", "annotations": {"title": "Other", "readOnlyHint": True}}
    tool = only({"name": "t", "inputSchema": SCHEMA, first: both[first], **both}, "a.json")
    assert tool.title == "Own"


def test_a_bare_mcp_tool_keeps_its_hints():
    tool = only(
        {
            "name": "t",
            "title": "T",
            "inputSchema": SCHEMA,
            "outputSchema": {"type": "object"},
            "annotations": {"title": "Other", "readOnlyHint": True, "openWorldHint": False},
            "_meta": {"a": 1},
            "execution": {"taskSupport": "optional"},
            "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
        },
        "a.json",
    )
    assert (tool.title, tool.annotations.read_only, tool.annotations.open_world) == ("T", True, False)
    assert tool.icons == (Icon("https://x.example/i.png", "image/png", ("48x48",)),)
    assert tool.metadata == {
        "_meta": {"a": 1},
        "execution": {"taskSupport": "optional"},
        "annotations": {"title": "Other"},
    }


@pytest.mark.parametrize(
    ("icons", "ours"),
    [
        ([{"src": "javascript:alert(1)"}], ()),
        ([{"src": "x"}, {"src": "data:image/png;base64,AA=="}], (Icon("data:image/png;base64,AA=="),)),
        ([{"src": "https://x.example/i", "sizes": "48x48"}], (Icon("https://x.example/i"),)),
        ([{"src": "https://x.example/i", "alt": "a picture"}], (Icon("https://x.example/i"),)),
        ([{"src": "https://x.example/i", "theme": "blue"}, 7], (Icon("https://x.example/i"),)),
    ],
)
def test_icons_that_say_more_than_ours_can_are_kept_as_they_are_besides(icons, ours):
    tool = only({"name": "t", "inputSchema": SCHEMA, "icons": icons}, "a.json")
    assert (tool.icons, tool.metadata) == (ours, {"icons": icons})


@pytest.mark.parametrize("icons", [[], [{"src": "https://x.example/i", "theme": "dark"}]])
def test_icons_that_ours_can_say_leave_nothing_in_the_metadata(icons):
    tool = only({"name": "t", "inputSchema": SCHEMA, "icons": icons}, "a.json")
    assert ([icon.as_json() for icon in tool.icons], tool.metadata) == (icons, {})


def test_a_title_among_annotations_is_the_title_without_any_hint():
    tool = only({"name": "t", "inputSchema": SCHEMA, "annotations": {"title": "T"}}, "a.json")
    assert (tool.title, tool.metadata) == ("T", {})


def test_what_annotations_say_beside_hints_is_kept_in_the_metadata():
    said = {"title": None, "readOnlyHint": True, "idempotentHint": None, "audience": ["user"], "priority": 1}
    tool = only({"name": "t", "inputSchema": SCHEMA, "annotations": said}, "a.json")
    assert (tool.title, tool.annotations) == ("", Annotations(read_only=True))
    assert tool.metadata == {"annotations": {"audience": ["user"], "priority": 1}}


def test_annotations_without_hints_are_read_as_well():
    tool = only({"name": "t", "inputSchema": SCHEMA, "annotations": {"audience": ["user"]}}, "a.json")
    assert (tool.annotations, tool.metadata) == (Annotations(), {"annotations": {"audience": ["user"]}})


def test_hints_alone_make_a_document_foreign():
    tool = only(
        {"name": "t", "input_schema": SCHEMA, "annotations": {"title": "T", "idempotentHint": True}}, "a.json"
    )
    assert (tool.title, tool.annotations.idempotent) == ("T", True)


@pytest.mark.parametrize("document", [["name"], "text", {"apiVersion": 1, "kind": ["Tool"], "x": 1}])
def test_what_has_no_foreign_form_is_left_to_others(document):
    (found,), _ = parse_documents("a.yaml", json.dumps(document))
    assert normalise(found) is None


def test_hints_without_any_hint_are_our_own_annotations():
    tool = only({"name": "t", "inputSchema": SCHEMA, "annotations": {"read_only": True}}, "a.json")
    assert tool.annotations.read_only


def test_an_unknown_hint_is_refused():
    loaded = read(
        {"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": True, "readOnlyHnt": 1}}, "a.json"
    )
    assert ("unknown_key", "/annotations/readOnlyHnt") in [
        (problem.code, problem.pointer) for problem in loaded.problems
    ]


WRITTEN = """apiVersion: promptkit.altairalabs.ai/v1alpha1
kind: Tool
metadata: {name: x}
spec:
  description: d
  foo: 1
  mock_resul: 3
  mode: mock
  mock_template: "{{ .a | nothing }}"
  input_schema: {type: object, properties: {a: {type: strng}}}
"""


def test_problems_of_a_manifest_point_into_it_as_written_in_its_own_words_and_have_no_followers():
    loaded = read(WRITTEN, "a.yaml")
    found = {problem.pointer: problem for problem in loaded.problems}
    assert {pointer: problem.code for pointer, problem in found.items()} == {
        "/spec/foo": "unknown_key",
        "/spec/mock_resul": "unknown_key",
        "/spec/mock_template": "go_template",
        "/spec/input_schema/properties/a/type": "invalid_schema",
    }
    assert "`mock_result`" in found["/spec/mock_resul"].hint
    assert "`timeout_ms`" in found["/spec/foo"].hint
    assert "labels" not in found["/spec/foo"].hint


def test_a_mode_without_its_block_points_at_the_mode():
    text = WRITTEN.split("  foo", maxsplit=1)[0] + "  mode: live\n"
    assert {problem.pointer for problem in read(text, "a.yaml").problems} == {"/spec/mode"}


def test_near_misses_of_other_forms_are_their_keys():
    loaded = read({"name": "x", "inputSchema": {"type": "object"}, "outputSchem": {}}, "a.json")
    (hint,) = (problem.hint for problem in loaded.problems if problem.code == "unknown_key")
    assert "`outputSchema`" in hint
