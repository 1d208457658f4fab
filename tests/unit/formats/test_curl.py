"""Tools of curl commands: shells, options, and that the tool sends what the command would send."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from http_servers import answering, serving
from in_memory import runtime_of
from live_tools import live_executors
from toolcrib import RealClock
from toolcrib.formats.curl import tools_of_curl


def tool(text: str) -> dict[str, Any]:
    """The descriptor of the one command of a text."""
    imported = tools_of_curl(text)
    assert imported.refused == []
    (found,) = imported.tools
    return dict(found.descriptor)


def told(text: str) -> list[str]:
    return [each.message for each in tools_of_curl(text).remarks]


def defaults(descriptor: dict[str, Any]) -> dict[str, Any]:
    properties = descriptor["input_schema"].get("properties", {})
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def test_a_command_becomes_a_tool_with_the_recorded_values_as_defaults():
    made = tool(
        """curl -X POST "https://api.github.com/repos/octo/hello/issues/42/comments?per_page=30" \\
          -H "Authorization: Bearer $GITHUB_TOKEN" -H 'Accept: application/vnd.github+json' \\
          -H 'Content-Type: application/json' --data-raw $'{"body":"It\\'s {{x}} ${y}","labels":["a"],"n":3}'"""
    )
    assert made == {
        "name": "post_repos_octo_hello_issues_comments",
        "description": "POST https://api.github.com/repos/octo/hello/issues/{issue_id}/comments",
        "input_schema": {
            "type": "object",
            "properties": {
                "issue_id": {"type": "integer", "default": 42},
                "per_page": {"type": "integer", "default": 30},
                "body": {"type": "string", "default": "It's {{x}} ${y}"},
                "labels": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
                "n": {"type": "integer", "default": 3},
            },
            "additionalProperties": False,
        },
        "live": {
            "method": "POST",
            "url": "https://api.github.com/repos/octo/hello/issues/{{ args.issue_id }}/comments",
            "query": {"per_page": "{{ args.per_page }}"},
            "accept": "application/vnd.github+json",
            "body": {"json": {"body": "{{ args.body }}", "labels": "{{ args.labels }}", "n": "{{ args.n }}"}},
            "auth": {"type": "http", "scheme": "bearer", "token": "${GITHUB_TOKEN}"},
        },
    }


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (r"""curl 'https://x.example/?q=it'"'"'s'""", {"q": "it's"}),
        (r"""curl "https://x.example/?q=a\"b\$c\\d" """, {"q": 'a"b$c\\d'}),
        (r"""curl https://x.example/?q=a\ b""", {"q": "a b"}),
        (r"""curl $'https://x.example/?q=\u00e9\x41\101\n\ud83d\ude00'""", {"q": "\u00e9AA\n\U0001f600"}),
        ("curl \\\n  https://x.example/ \\\n  -G -d q=1 # the end", {"q": 1}),
        ("$ curl -G --data-urlencode 'q=a&b c' https://x.example/", {"q": "a&b c"}),
        ('curl ^"https://x.example/?q=a^&r=^%^41^" ^\n  -H ^"accept: */*^"', {"q": "a", "r": "A"}),
        ('curl "https://x.example/?q=a&r=%41" ^\r\n  -H "accept: */*"', {"q": "a", "r": "A"}),
        ('curl.exe ^"https://x.example/^" ^\n --json ^"^{^\\^"q^\\^":^\\^"a b^\\^"^}^"', {"q": "a b"}),
        ("curl -sSLGdq=1 https://x.example/", {"q": 1}),
        ("curl --url=x https://x.example/?q=1", {"q": 1}),
        ("TOKEN=1 curl https://x.example/?q=1 2>/dev/null >out.txt", {"q": 1}),
    ],
)
def test_words_are_read_as_the_shell_reads_them(command, found):
    assert defaults(tool(command)) == found


def test_several_commands_and_urls_become_tools_with_names_of_their_own():
    text = """
    # two requests
    curl https://x.example/users/1 && curl https://x.example/users/2 -X DELETE
    curl https://x.example/users/1 https://x.example/orders --next -d a=b https://x.example/orders
    echo done; cd /tmp
    """
    imported = tools_of_curl(text)
    assert [each.descriptor["name"] for each in imported.tools] == [
        "get_users_by_user_id",
        "delete_users_by_user_id",
        "get_users_by_user_id_2",
        "get_orders",
        "post_orders",
    ]
    assert len({each.key for each in imported.tools}) == 5
    assert [each.message for each in imported.remarks] == [
        "line 5: `echo` is not curl",
        "line 5: `cd` is not curl",
    ]


def test_options_decide_the_request():
    made = tool(
        "curl -u user:pa55word -A agent/1 -e https://ref.example/ -b 'sid=abcdef123; theme=dark' -m 2.5"
        " --connect-timeout 3 -L --max-redirs 9 -r 0-99 -I https://x.example/a"
    )
    assert made["timeout"] == "2500ms"
    assert made["live"] == {
        "method": "HEAD",
        "url": "https://x.example/a",
        "headers": {"User-Agent": "agent/1", "Referer": "https://ref.example/", "Range": "bytes=0-99"},
        "cookies": {"sid": "${X_COOKIE_SID}", "theme": "${X_COOKIE_THEME}"},
        "auth": {"type": "http", "scheme": "basic", "username": "${X_USER}", "password": "${X_PASSWORD}"},
        "redirects": 5,
        "timeouts": {"connect": "3s"},
    }


def test_forms_keep_their_fields_and_files():
    made = tool(
        "curl -F 'title=My photo;type=text/plain' -F photo=@pics/a.png;type=image/png -F 'note=<note.txt'"
        " https://x.example/photos".replace(";type=image", r"\;type=image")
    )
    assert made["live"]["body"] == {
        "multipart": {
            "title": "{{ args.title }}",
            "photo": {"file": "{{ args.photo }}", "name": "a.png", "content_type": "image/png"},
            "note": "{{ args.note }}",
        }
    }
    assert made["input_schema"]["required"] == ["photo", "note"]
    assert tool("curl -d a=1 -d b=2 --data-urlencode 'c=x y' https://x.example/")["live"]["body"] == {
        "form": {"a": "{{ args.a }}", "b": "{{ args.b }}", "c": "{{ args.c }}"}
    }
    assert tool("curl -d @body.json -H 'Content-Type: application/json' https://x.example/")["live"][
        "body"
    ] == {
        "text": "{{ args.body }}",
        "content_type": "application/json",
    }


def test_a_graphql_document_is_fixed_and_its_variables_are_arguments():
    body = {"query": "query Orders($n: Int) { orders(first: $n) { id } }", "variables": {"n": 5}}
    made = tool(f"curl --json {shlex.quote(json.dumps(body))} https://x.example/graphql")
    assert made["live"]["body"]["json"] == {"query": body["query"], "variables": {"n": "{{ args.n }}"}}
    assert defaults(made) == {"n": 5}


def test_placeholders_of_documentation_are_arguments():
    made = tool("curl 'https://x.example/users/{userId}/orders/:order/<item>/v{version}.json'")
    assert made["live"]["url"] == (
        "https://x.example/users/{{ args.userId }}/orders/{{ args.order }}/{{ args.item }}/v{{ args.version }}.json"
    )
    assert made["input_schema"]["required"] == ["userId", "order", "item", "version"]


def test_what_is_lost_or_assumed_is_told():
    messages = told(
        "curl -k --frobnicate -x proxy:1 --cert a.pem x.example/a -H 'Host: other.example' --digest | jq -r .token"
    )
    assert any("certificates of servers are always checked" in each for each in messages)
    assert "`--frobnicate` is not an option of curl 8" in messages
    assert any("proxy" in each for each in messages)
    assert any("`x.example/a` has no scheme" in each for each in messages)
    assert "what follows the command: `jq`" in messages
    assert any("header `Host`" in each for each in messages)
    assert told("""curl -d '{"a": 1}' https://x.example/""") == [
        "no `Content-Type` was given for JSON, and curl sends it as a form; it is sent as `application/json`"
    ]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("curl -X GET -d a=1 https://x.example/", "body_of_get"),
        ("curl ftp://x.example/file", "scheme"),
        ("curl -X TRACE https://x.example/", "method"),
        ("curl -H 'A: b'", "no_url"),
    ],
)
def test_a_command_without_a_counterpart_is_refused_and_the_others_are_not(command, reason):
    imported = tools_of_curl(f"{command}\ncurl https://x.example/ok\n")
    assert [each.reason for each in imported.refused] == [reason]
    assert imported.refused[0].message.startswith("line 1: ")
    assert [each.descriptor["name"] for each in imported.tools] == ["get_ok"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("curl 'https://x.example/", "unclosed_quote"),
        ("curl https://x.example/$(cat id)", "command_substitution"),
    ],
)
def test_a_text_that_the_shell_would_not_read_is_refused(text, reason):
    assert [each.reason for each in tools_of_curl(text).refused] == [reason]


CURL = shutil.which("curl")
SECRETS = [
    "c4n4ry-T0ken/+=\u00e9",
    "c4n4ryPassw0rd",
    "c4n4ryC00kie",
    "c4n4ryKey",
    "c4n4ryBody",
    "c4n4ryInner",
]


def test_secrets_are_not_in_the_output():
    token, password, cookie, key, member, inner = SECRETS
    body = json.dumps({"client_secret": member, "auth": {"password": inner}, "note": f"my key is {key}"})
    text = "\n".join(
        [
            f"curl -H 'Authorization: Bearer {token}' -H 'X-Api-Key: {key}' -b 'sid={cookie}' https://x.example/a?b={token}",
            f"curl https://bob:{password}@x.example/a -d password={password} -d a=1",
            f"curl -u bob:{password} --json {shlex.quote(body)} -H 'X-Api-Key: {key}' https://x.example/a",
            f"curl 'https://x.example/a?access_token={quote(token, safe='')}&q=1' -F secret={member} -F a=@b",
            f"curl -H 'Authorization: Digest nonce={token}' https://x.example/a",
        ]
    )
    imported = tools_of_curl(text)
    assert len(imported.tools) == 5
    shown = json.dumps(imported, ensure_ascii=False, default=str) + json.dumps(imported, default=str)
    for secret in SECRETS:
        assert secret not in shown
        assert quote(secret, safe="") not in shown
    assert sum(each.kind == "secret" for each in imported.remarks) >= 9


# -- Round trip: a request, as a curl command, as a tool, sent to a server ------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=("Cc", "Cn", "Co", "Cs")) | st.just("\n"), max_size=12)
_NAME = st.sampled_from(["q", "page", "filter[name]", "x-y", "sort.by", "\u00e9t\u00e9", "a b"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAME, inner, max_size=3),
    max_leaves=5,
)
_HEADER = (
    st.text(st.sampled_from("abcXYZ019 -_/;,='\"{}$!"), min_size=1, max_size=12).map(str.strip).filter(bool)
)
_REQUESTS = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
        "path": st.lists(
            st.sampled_from(["users", "42", "a b", "\u00e9", "{{x}}", "100%", "$y"]), max_size=3
        ),
        "query": st.dictionaries(_NAME, _TEXT, max_size=3),
        "headers": st.dictionaries(
            st.sampled_from(["X-One", "X-Two", "Accept-Language"]), _HEADER, max_size=2
        ),
        "body": st.none()
        | st.tuples(st.just("json"), st.dictionaries(_NAME, _JSON, max_size=4) | st.lists(_JSON, max_size=3))
        | st.tuples(st.just("form"), st.dictionaries(_NAME, _TEXT, min_size=1, max_size=3))
        | st.tuples(st.just("text"), _TEXT.filter(lambda text: text and not text.startswith("@"))),
    }
)


def command_of(request: dict[str, Any], origin: str) -> str:
    path = "/".join(quote(segment, safe="") for segment in request["path"])
    query = urlencode(request["query"])
    words = ["curl", "-X", request["method"], f"{origin}/{path}" + (f"?{query}" if query else "")]
    for name, value in request["headers"].items():
        words += ["-H", f"{name}: {value}"]
    if request["body"] is not None:
        kind, value = request["body"]
        if kind == "json":
            words += ["-H", "Content-Type: application/json", "--data-raw", json.dumps(value)]
        elif kind == "form":
            words += ["--data-raw", urlencode(value)]
        else:
            words += ["-H", "Content-Type: text/plain", "--data-raw", value]
    return " ".join(shlex.quote(word) for word in words)


@settings(deadline=None, max_examples=40)
@given(request=_REQUESTS)
def test_a_tool_sends_what_its_command_says(request):
    asyncio.run(_sends_what_its_command_says(request))


async def _sends_what_its_command_says(request: dict[str, Any]) -> None:
    async with serving(answering(200, {"Content-Type": "application/json"}, b"{}")) as server:
        made = tool(command_of(request, server.origin))
        options = {"clock": RealClock(), "egress": [f"127.0.0.1:{server.port}"]}
        async with runtime_of(
            json.dumps(made, ensure_ascii=False), executors=live_executors(), **options
        ) as runtime:
            result = await runtime.call(made["name"], {})
        assert result.ok, result.error
        (sent,) = server.requests
        if CURL is not None:
            # The foreign side: curl itself, run by the shell.
            process = await asyncio.create_subprocess_shell(
                f"{command_of(request, server.origin)} --silent --disable --noproxy '*'",
                stdout=asyncio.subprocess.DEVNULL,
            )
            assert await process.wait() == 0
            real = server.requests[1]
            assert (sent.method, sent.path, Counter(sent.query)) == (
                real.method,
                real.path,
                Counter(real.query),
            )
            is_json = request["body"] is not None and request["body"][0] == "json"
            assert (sent.json if is_json else parse_qsl(sent.body.decode())) == (
                real.json if is_json else parse_qsl(real.body.decode())
            )
    assert sent.method == request["method"]
    expected = "/" + "/".join(quote(segment, safe="") for segment in request["path"])
    assert sent.path == expected
    assert Counter(sent.query) == Counter(parse_qsl(urlencode(request["query"]), keep_blank_values=True))
    for name, value in request["headers"].items():
        assert sent.header(name) == value
    if request["body"] is not None:
        kind, value = request["body"]
        if kind == "json":
            assert sent.json == value
        elif kind == "form":
            found = parse_qsl(sent.body.decode(), keep_blank_values=True)
            assert Counter(found) == Counter(value.items())
        else:
            assert sent.body.decode() == value


def test_a_large_text_is_read_in_linear_time():
    long = "a" * (8 * 2**20)
    imported = tools_of_curl(f"curl https://x.example/ -H 'Content-Type: text/plain' -d '{long}'\n")
    (made,) = imported.tools
    assert made.descriptor["input_schema"]["required"] == ["body"]
    assert "too long for a default" in imported.remarks[0].message
    assert len(tools_of_curl("curl https://x.example/a\n" * 3000).tools) == 3000


def test_an_address_without_quotes_ends_where_the_shell_ends_it():
    imported = tools_of_curl("curl https://x.example/?a=1&b=2")
    assert defaults(dict(imported.tools[0].descriptor)) == {"a": 1}
    assert [each.message for each in imported.remarks] == ["what follows the command: `&`"]
