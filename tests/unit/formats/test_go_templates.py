"""Go templates become ours with the same output."""

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_text
from toolcrib.formats.promptkit.go_templates import translate


def rendered(template, **args):
    return compile_text(translate(template, lenient=True).text, ["args"]).render({"args": args})


@pytest.mark.parametrize(
    ("template", "args", "expected"),
    [
        ("Hi {{.name}}!", {"name": "Ada"}, "Hi Ada!"),
        ("{{ .a.b }}", {"a": {"b": 3}}, "3"),
        ("{{ $.a }}", {"a": 1}, "1"),
        (
            '{"q": {{ .q | toJson }}, "n": {{ len .items }}}',
            {"q": 'a"b', "items": [1, 2]},
            '{"q": "a\\"b", "n": 2}',
        ),
        ('{{ toJson (index .m "k") }}', {"m": {"k": [1]}}, "[1]"),
        ('{{ index .rows 0 "id" }}', {"rows": [{"id": 7}]}, "7"),
        ('{{if eq .unit "c"}}C{{else}}F{{end}}', {"unit": "c"}, "C"),
        ('{{if eq .unit "c" "k"}}metric{{else}}other{{end}}', {"unit": "k"}, "metric"),
        ("{{if .a}}1{{else if gt .n 3}}2{{else}}3{{end}}", {"n": 5}, "2"),
        ("{{if and .a (not .b)}}yes{{end}}", {"a": 1}, "yes"),
        ("{{if or .a .b}}yes{{else}}no{{end}}", {}, "no"),
        ("{{if ne .a nil}}there{{end}}{{if .deep.er}}deep{{end}}", {"a": False}, "there"),
        ("{{if lt .n 2}}a{{end}}{{if le .n 2}}b{{end}}{{if ge .n 2}}c{{end}}", {"n": 2}, "bc"),
        ("{{ not .missing }} {{ true }}", {}, "true true"),
        ("{{range .items}}<{{.}}>{{end}}", {"items": [1, "b"]}, "<1><b>"),
        ("{{range .items}}<{{.id}}{{$.x}}>{{end}}", {"items": [{"id": 1}], "x": "!"}, "<1!>"),
        ("{{range $i, $e := .items}}{{$i}}={{$e.a}};{{end}}", {"items": [{"a": 1}, {"a": 2}]}, "0=1;1=2;"),
        ("{{range $e := .rows}}{{range .}}{{.}},{{end}}{{end}}", {"rows": [[1], [2, 3]]}, "1,2,3,"),
        ("{{range .missing}}x{{end}}none", {}, "none"),
        ("a  {{- .b -}}  c", {"b": 1}, "a1c"),
        ("a{{/* nothing\n to say */}}b", {}, "ab"),
        (
            '{{printf "%s has %d of %v, 100%%" .who 3 .what}}',
            {"who": "Ada", "what": True},
            "Ada has 3 of true, 100%",
        ),
        ('{{printf ""}}|', {}, "|"),
        ('{{ `raw \\n` }}{{ "a\\tb\\"" }}', {}, 'raw \\na\tb"'),
        ("{% not ours %} {# nor this #}", {}, "{% not ours %} {# nor this #}"),
        ("{{if(eq .a 1)}}x{{end}}{{if\n.a}}y{{end}}", {"a": 1}, "xy"),
        ("{{/* a }} in a comment */}}z{{- /* * and / */ -}} .", {}, "z."),
        ('{{ "}} in a text" }}{{ `"}}` }}', {}, '}} in a text"}}'),
        ("{{.if}}{{.not}} }}", {"if": 1, "not": 2}, "12 }}"),
        ("{{-3}}{{- 4 -}}", {}, "-34"),
        ('{{len .x | printf "%d"}}', {"x": [1]}, "1"),
        ("one newline at the end is left out\n\n", {}, "one newline at the end is left out\n"),
    ],
)
def test_the_subset_gives_what_go_gives(template, args, expected):
    assert rendered(template, **args) == expected


@pytest.mark.parametrize(
    ("template", "line", "says"),
    [
        ('a\n{{ template "x" }}', 2, "template"),
        ("{{ .x }", 1, "not closed"),
        ("{{end}}", 1, "without"),
        ("{{else}}", 1, "without"),
        ("{{range .a}}\n", 2, "missing `end`"),
        ("{{range .a}}{{else}}{{end}}", 1, "not supported"),
        ("{{if .a}}{{else with .b}}{{end}}", 1, "not supported"),
        ("{{range $a, $b, $c := .x}}{{end}}", 1, "not supported"),
        ("{{range $i, $e := .x}}{{range .y}}{{$i}}{{end}}{{end}}", 1, "outer"),
        ("{{ $nobody }}", 1, "unknown variable"),
        ("{{ printf .form 1 }}", 1, "string literal"),
        ('{{ printf "%.2f" .x }}', 1, "not supported"),
        ('{{ printf "%s" }}', 1, "no value"),
        ('{{ printf "x" 1 }}', 1, "more values"),
        ("{{ .a | .b }}", 1, "piped"),
        ("{{ (.a }}", 1, "missing `)`"),
        ("{{ .a ) }}", 1, "unexpected"),
        ("{{ len .a .b }}", 1, "2 arguments"),
        ("{{ eq (, }}", 1, "unexpected"),
        ("{{ }}", 1, "missing"),
        ("{{ .a ; }}", 1, "not supported"),
        ('{{ "\\q" }}', 1, "escape"),
        ("{{ len len }}", 1, "unexpected"),
        ('{{ printf "100%" }}', 1, "`%` of `printf`"),
        ("{{if .a}}\n{{else}}{{else}}{{end}}", 2, "duplicate `else`"),
        ("{{if .a}}\n{{else}}{{else if .b}}{{end}}", 2, "duplicate `else`"),
        ("{{if .a}}{{end if}}", 1, "`end if`"),
        ("{{if}}{{end}}", 1, "missing"),
        ("{{/* a", 1, "not closed"),
        ("{{/* a */ b}}", 1, "not supported"),
        ('{{\n .a }}\n\n{{ "}} }}', 4, "not closed"),
        ("\n{{ " + "(" * 60, 2, "not closed"),
        ("{{ " + "(" * 60 + "}}", 1, "exceeds 50"),
        ("{{if .a}}\n" * 51, 51, "exceeds 50"),
        ("x" * 20_000, 1, "20,000 characters"),
    ],
)
def test_everything_else_is_refused_with_its_line(template, line, says):
    with pytest.raises(ExpressionError) as refused:
        translate(template)
    assert refused.value.code == "go_template"
    assert f"line {line} " in refused.value.message
    assert says in refused.value.message


@pytest.mark.parametrize(
    "piece", ["{{", "{{ ", "{{- ", "{{/*", '{{ "', "{{ `", "{{ (", "{{ .a.", "{{ if ", "{{.x}}", "}} "]
)
def test_no_text_takes_long(piece):
    started = time.process_time()
    with contextlib.suppress(ExpressionError):
        translate(piece * (16 * 1024 // len(piece)))
    assert time.process_time() - started < 10


@pytest.mark.parametrize("args", [{}, {"x": None}])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{.x}}", "<no value>"),
        ("{{$.x}} {{ .x.y }}", "<no value> <no value>"),
        ('{"x": "{{.x}}"}', '{"x": "<no value>"}'),
        ("{{if .x}}yes{{else}}no{{end}}{{if not .x}}!{{end}}", "no!"),
        ("{{range .x}}x{{end}}|{{range .x.y}}x{{end}}", "|"),
        ("{{toJson .x}} {{.x | toJson}}", "null null"),
        ('{{printf "%s %d %v" .x .x .x}}', "%!s(<nil>) %!d(<nil>) <nil>"),
        ('{{eq .x "a"}} {{eq .x "a" "b"}} {{ne .x "a"}} {{eq .x nil}}', "false false true true"),
        ('{{or .x "other"}} {{and .x "other"}}', "other <no value>"),
        ("{{range .rows}}<{{.id}}>{{end}}", "<1><<no value>><<no value>>"),
        ("{{range .rows}}{{$.x}}{{end}}", "<no value>" * 3),
    ],
)
def test_an_absent_argument_of_a_mock_is_what_it_is_to_promptkit(template, expected, args):
    assert rendered(template, rows=[{"id": 1}, {}, None], **args) == expected


@pytest.mark.parametrize("args", [{}, {"x": None}])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{len .x}}", "0"),
        (
            '{{index .x 0}} {{index .x "a" "b"}} {{index .x .x}} {{index .rows .x}}',
            " ".join(["<no value>"] * 4),
        ),
        ("{{index .rows 9}}", "<no value>"),
        ("{{lt .x 1}} {{le .x 1}} {{gt 1 .x}} {{ge .x .x}}", "false false false false"),
        ("{{if gt (len .x) 2}}many{{else}}few{{end}}", "few"),
    ],
)
def test_where_go_fails_for_an_absent_argument_a_mock_goes_on(template, expected, args):
    assert rendered(template, rows=[1], **args) == expected


def test_an_absent_key_that_is_printed_elsewhere_is_an_error():
    with pytest.raises(ExpressionError, match="missing"):
        compile_text(translate("{{ .missing }}").text, ["args"]).render({"args": {}})


def test_the_arguments_that_a_template_reads_are_known_with_their_lines():
    template = (
        '{{.a}}\n{{if eq .b.c "x"}}{{range .rows}}{{.id}}{{$.d}}{{end}}{{end}}\n{{index . "e-f" 0}}{{.a}}'
    )
    assert translate(template, lenient=True).arguments == {"a": 1, "b": 2, "rows": 2, "d": 2, "e-f": 3}


@pytest.mark.parametrize("nested", ["(eq ", "(lt ", "(index .x "])
def test_what_is_computed_stays_short_however_it_is_nested(nested):
    template = "{{if " + nested * 40 + ".x" + " 1 2)" * 40 + "}}{{end}}"
    with contextlib.suppress(ExpressionError):
        assert len(translate(template, lenient=True).text) < 64 * 1024


@given(st.text())
def test_a_text_as_json_survives(text):
    assert json.loads(rendered("{{ toJson .text }}", text=text)) == text


@given(st.text().filter(lambda text: "{{" not in text and "\r" not in text and not text.endswith("\n")))
def test_a_text_without_actions_stays_as_it_is(text):
    assert rendered(text) == text


@given(st.text(alphabet='{}.$|() "abend-ifrg:=,/*\n'))
def test_no_text_raises_anything_else(template):
    code = "go_template"
    try:
        translate(template)
    except ExpressionError as refused:
        code = refused.code
    assert code == "go_template"
