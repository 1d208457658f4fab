"""The url of a live tool: a fixed origin, encoded segments, and nothing that leads elsewhere."""

from __future__ import annotations

import pytest

from drafting import URL, closed, compiled, drafted, faults, misfit, sent, tried
from toolcrib.executors.live.uri import check_path_shape
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.secrets import SecretResolver

CITY = f"{URL}/cities/{{{{ args.city }}}}/days"


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("Oslo", "Oslo"),
        ("New York", "New%20York"),
        ("a/b", "a%2Fb"),
        ("a\\b", "a%5Cb"),
        ("a?b#c;d=e&f", "a%3Fb%23c%3Bd%3De%26f"),
        ("%2e%2e%2f", "%252e%252e%252f"),
        ("%00", "%2500"),
        ("...", "..."),
        (".git", ".git"),
        ("a..", "a.."),
        ("-1", "-1"),
        ("Åå", "%C3%85%C3%A5"),
        (5, "5"),
        (5.0, "5"),
        (True, "true"),
        (["a", 1], "a,1"),
        (["..", "a"], "..,a"),
    ],
)
def test_a_value_stays_one_segment(value, segment):
    draft = drafted({"url": CITY}, {"city": value})
    assert draft.path == f"/v1/cities/{segment}/days"
    assert draft.origin == "https://api.example.com"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "is null, but this call needs a value"),
        ("", "is empty, but a path segment needs a value"),
        ([""], "is empty, but a path segment needs a value"),
        ([], "is an empty list, but the URL path needs a value"),
        ([[1]], "is or contains a list, which is not allowed in a URL path"),
        ([None], "is or contains null, which is not allowed in a URL path"),
        ({"a": 1}, "is or contains an object, which is not allowed in a URL path"),
        ("a\r\nb", "contains a control character, which is not allowed in a URL path"),
        ("\x00", "contains a control character, which is not allowed in a URL path"),
        ("\x85", "contains a control character, which is not allowed in a URL path"),
        ("\ud800", "contains a lone surrogate, which cannot be sent"),
        *(
            (value, "contains a `.` or `..` segment, which would change the path")
            for value in (".", "..", "../admin", "..\\admin", "a/../b", "a/.", "..;x", "x/..;y/z", [".."])
        ),
    ],
)
def test_a_value_that_is_no_segment_is_refused(value, message):
    error = misfit({"url": CITY}, {"city": value})
    assert (error.pointer, error.message, error.at) == ("/city", f"`city` {message}", "/live/url")


def test_an_absent_argument_is_refused():
    assert misfit({"url": CITY}, {}).message == "`city` is required by this call"


def test_a_segment_may_hold_several_values():
    url = f"{URL}/{{{{ args.width }}}}x{{{{ args.height }}}}.png"
    assert drafted({"url": url}, {"width": 300, "height": "a/b"}).path == "/v1/300xa%2Fb.png"


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        ("{{ args.a }}{{ args.b }}", {"a": ".", "b": "."}),
        (".{{ args.a }}", {"a": "."}),
        ("%2e{{ args.a }}", {"a": "."}),
        ("{{ args.a }}{{ args.b }}", {"a": "x/.", "b": "./y"}),
        ("{{ args.a }}{{ args.b }}", {"a": "", "b": ""}),
    ],
)
def test_values_can_not_lead_elsewhere_together(template, arguments):
    assert misfit({"url": f"{URL}/{template}/x"}, arguments).pointer == "/a"


def test_an_expression_may_hold_what_divides_urls():
    url = URL + "/{{ args.a / 2 }}/{{ 'x?#&' if args.a else '/' }}/{{ 'fixed' }}"
    assert drafted({"url": url}, {"a": 4}).path == "/v1/2/x%3F%23%26/fixed"


def test_literal_parts_stay_as_they_are_written():
    url = "https://example.com/a%20b/100%/ü/;v=1/(x)//{{ args.x }}/?q=a%20b+c&r=ü&flag&&s=100%"
    assert (
        sent({"url": url}, {"x": 1}).target
        == "/a%20b/100%25/%C3%BC/;v=1/(x)//1/?q=a%20b+c&r=%C3%BC&flag&s=100%25"
    )


def test_values_of_a_query_in_the_url_are_encoded():
    url = URL + "?a={{ args.a }}&b=x-{{ args.b }}:${KEY}&a%20c={{ args.c }}&k=${KEY}&gone={{ args.gone }}"
    draft = drafted({"url": url}, {"a": "1&x=2", "b": "&", "c": [1, 2]}, environment={"KEY": "s&x=1"})
    assert draft.query == ["a=1%26x%3D2", "b=x-%26:s%26x%3D1", "a%20c=1", "a%20c=2", "k=s%26x%3D1"]


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("HTTPS://Example.COM", "https://example.com", "/"),
        ("https://example.com:443/", "https://example.com", "/"),
        ("http://example.com:80", "http://example.com", "/"),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080", "/x"),
        ("http://[::1]:8080/x", "http://[::1]:8080", "/x"),
        ("http://[0:0:0:0:0:0:0:1]/x", "http://[::1]", "/x"),
        ("http://[2001:DB8::1]", "http://[2001:db8::1]", "/"),
        ("https://example.com.", "https://example.com.", "/"),
        ("https://my_host/x", "https://my_host", "/x"),
        ("https://example.com?a=1", "https://example.com", "/"),
        ("https://example.com:/x", "https://example.com", "/x"),
    ],
)
def test_the_origin_is_what_is_written(url, origin, path):
    request = compiled({"url": url})
    assert (request.origin, request.draft({}).path) == (origin, path)
    assert request.hosts == (request.draft({}).host,)


@pytest.mark.parametrize(
    ("url", "environment", "origin", "target"),
    [
        ("${BASE}/v1", {"BASE": "https://a.example"}, "https://a.example", "/v1"),
        ("${BASE}/v1", {"BASE": "https://a.example/api/"}, "https://a.example", "/api/v1"),
        ("${BASE}v1", {"BASE": "https://a.example/api/"}, "https://a.example", "/api/v1"),
        ("${BASE}", {"BASE": "https://a.example/"}, "https://a.example", "/"),
        (
            "${SCHEME}://${HOST}:${PORT}/x",
            {"SCHEME": "http", "HOST": "b.example", "PORT": "81"},
            "http://b.example:81",
            "/x",
        ),
        ("https://a.example/${TENANT}/{{ args.x }}", {"TENANT": "t/u"}, "https://a.example", "/t/u/1"),
        ("${BASE:-https://d.example}/v1", {}, "https://d.example", "/v1"),
    ],
)
def test_parts_of_the_address_may_be_looked_up(url, environment, origin, target):
    request = compiled({"url": url}, environment=environment)
    assert request.origin == origin
    assert request.draft({"x": 1}).finished().target == target
    assert [problem.code for problem in tried({"url": url})[1] if problem.severity == "error"] == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("{{ args.base }}/x", "expression_in_origin"),
        ("{{ args.scheme }}://example.com/x", "expression_in_origin"),
        ("https://{{ args.host }}/x", "expression_in_origin"),
        ("https://{{ args.tenant }}.example.com/x", "expression_in_origin"),
        ("https://example.com:{{ args.port }}/x", "expression_in_origin"),
        ("https://{{ args.user }}@example.com/x", "expression_in_origin"),
        ("https://example.com{{ args.x }}", "expression_in_origin"),
        ("https://example.com/x?{{ args.name }}=1", "expression_in_origin"),
        ("https://example.com/x?a{{ args.name }}", "expression_in_origin"),
        ("https://user:password@example.com/x", "invalid_url"),
        ("https://example.com/x#part", "invalid_url"),
        ("https://example.com/x?a#", "invalid_url"),
        ("/x", "invalid_url"),
        ("example.com/x", "invalid_url"),
        ("x" * 300, "invalid_url"),
        ("https:/example.com", "invalid_url"),
        ("ftp://example.com/x", "invalid_url"),
        ("file:///etc/passwd", "invalid_url"),
        ("https:///x", "invalid_url"),
        ("https://exämple.com/x", "invalid_url"),
        ("https://a..b/x", "invalid_url"),
        ("https://-:x/x", "invalid_url"),
        ("https://example.com:99999/x", "invalid_url"),
        ("https://example.com:0/x", "invalid_url"),
        ("https://[::1/x", "invalid_url"),
        ("https://[::1]x/x", "invalid_url"),
        ("https://[fe80::1%25eth0]/x", "invalid_url"),
        ("https://[1.2.3.4]/x", "invalid_url"),
        ("https://good.example\\@evil.example/x", "invalid_url"),
        ("https://example.com/a b", "invalid_url"),
        ("https://example.com/a\nb", "invalid_url"),
        ("https://example.com/{city}", "invalid_url"),
        ("https://example.com/a/../b", "invalid_url"),
        ("https://example.com/./b", "invalid_url"),
        ("https://example.com/%2e%2E/b", "invalid_url"),
        ("https://example.com/{{ args.", "expression_syntax"),
        ("https://example.com/{{ args.x | nope }}", "unknown_function"),
        ("https://example.com/${A", "bad_variable"),
    ],
)
def test_what_is_no_url_is_found_when_the_tool_is_loaded(url, code):
    assert faults({"url": url}) == [(code, "/live/url")]


@pytest.mark.parametrize(
    ("url", "value", "hidden"),
    [
        ("https://a.example/${PART}/x", "hunter2", "hunter2"),
        ("https://a.example/bot${PART}/x", "hunter2/3333", "hunter2/3333"),
        ("https://a.example${PART}", "/hunter2/", "hunter2"),
        ("${BASE:-https://a.example/}${PART}", "hunter2", "hunter2"),
        ("${PART}/v1", "https://a.example/team", None),
        ("${PART}", "https://a.example/", None),
        ("https://${PART}/v1", "hunter2.example/team", None),
        ("https://hunter2:${PART}/v1", "8080", None),
        ("${PART}://hunter2/v1", "http", None),
        ("${PART_SECRET}", "https://a.example/hunter2/3333", "hunter2/3333"),
        ("https://${PART_SECRET}/x", "hunter2.example", None),
        ("${keyring:a/b}", "https://a.example/hunter2", "hunter2"),
        ("https://a.example/${PART:-hunter2}", "", None),
    ],
)
def test_what_is_looked_up_behind_the_host_is_masked(url, value, hidden):
    class Keyring:
        def get_password(self, _service, _user):
            return value

    secrets = SecretResolver({"PART": value, "PART_SECRET": value}, keyring=Keyring())
    assert tried({"url": url}, secrets=secrets)[1] == []
    assert secrets.known == ({hidden} if hidden else frozenset())


def test_a_value_that_makes_no_url_is_not_shown():
    (problem,) = tried({"url": "${BASE}/x"}, secrets=SecretResolver({"BASE": "hunter2"}))[1]
    assert "hunter2" not in str(problem)
    assert "`${BASE}/x` is not an absolute URL" in problem.message


def test_a_password_in_a_url_is_not_shown():
    (problem,) = tried({"url": "https://user:hunter2@example.com/x"})[1]
    assert "hunter2" not in str(problem)
    assert "auth" in problem.hint


@pytest.mark.parametrize(
    "value", ["secret b", "https://x/?q", "https://x/#f", "{{ args.x }}", "a\\b", "a\nb"]
)
def test_a_value_that_is_no_part_of_an_address_is_told_without_itself(value):
    _request, problems = tried({"url": "https://h.example/${PART}"}, secrets=SecretResolver({"PART": value}))
    assert [problem.code for problem in problems] == ["invalid_url"]
    assert value not in str(problems[0])
    assert "${PART}" in problems[0].message


def test_several_faults_are_told_at_once():
    url = "https://user@example.com/../{{ args.x }}?{{ args.y }}=1#f"
    assert faults({"url": url}, closed("x")) == [
        ("unknown_argument", "/live/url"),
    ]
    assert [code for code, _place in faults({"url": url}, closed("x", "y"))] == [
        "invalid_url",
        "invalid_url",
        "invalid_url",
        "expression_in_origin",
    ]


def test_an_optional_argument_in_the_path_is_a_warning():
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "a": {},
            "b": {},
            "c": {"default": 1},
            "d": {"properties": {"e": {}, "f": {}}, "required": ["f"]},
            "g": True,
        },
        "required": ["b", "d"],
    }
    url = URL + "".join(
        f"/{{{{ {path} }}}}" for path in ("args.a", "args.b", "args.c", "args.d.e", "args.d.f", "args.g")
    )
    _request, problems = tried({"url": url, "headers": {"X": "x {{ args.a }}", "Y": "{{ args.a }}"}}, schema)
    assert [(problem.message.split("`")[1], problem.pointer) for problem in problems] == [
        ("a", "/live/url"),
        ("d.e", "/live/url"),
        ("g", "/live/url"),
        ("a", "/live/headers/X"),
    ]
    assert {problem.severity for problem in problems} == {"warning"}
    assert {problem.code for problem in problems} == {"optional_in_path"}


def test_schemas_that_say_nothing_directly_warn_too():
    for schema in (True, {"properties": {"a": True}}, {"allOf": [{"required": ["a"]}]}):
        assert faults({"url": f"{URL}/{{{{ args.a.b }}}}"}, schema) == [("optional_in_path", "/live/url")]


@pytest.mark.parametrize(("path", "slashes"), [("/a/b", 1), ("/a?b", 1), ("/a#b", 1)])
def test_the_last_door_lets_no_other_shape_through(path, slashes):
    with pytest.raises(UnusableArguments):
        check_path_shape(path, slashes)
    assert check_path_shape("/a/b", 2) == "/a/b"
