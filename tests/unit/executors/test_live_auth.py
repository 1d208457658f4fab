"""`auth` of the mode `live`: keys, basic and bearer, lists; what is refused and what is shown."""

from __future__ import annotations

import base64
import json

import pytest

from authentication import applied, draft, faults, no_exchange, ready, shown, tried
from in_memory import loaded
from toolcrib import Executors, VirtualClock
from toolcrib.executors.live import LiveExecutor
from toolcrib.security.secrets import MissingSecret, SecretResolver, UnusableSecret

BEARER = {"type": "http", "scheme": "bearer", "token": "${TOKEN}"}
BASIC = {"type": "http", "scheme": "basic", "username": "${USER_NAME}", "password": "${PASSWORD}"}
OAUTH = {
    "type": "oauth2",
    "flow": "client_credentials",
    "token_url": "https://auth.example.com/token",
    "client_id": "client-5e1",
    "client_secret": "${SECRET}",
}
REFRESH = {**OAUTH, "flow": "refresh_token", "refresh_token": "${REFRESH}"}
HOOK = {"type": "python", "call": "json:dumps"}


def key(where="header", name="X-Api-Key", value="${KEY}"):
    return {"type": "apiKey", "in": where, "name": name, "value": value}


# What is sent.


async def test_a_key_is_sent_where_it_belongs():
    clock, keys = VirtualClock(), {"KEY": "k&1=é"}
    made = await applied(ready(key(value="Token ${KEY}"), {"KEY": "k1"}), clock)
    assert made.headers == [("X-Api-Key", "Token k1")]
    made = await applied(ready(key("query", "api key"), keys), clock, query=["a=1"])
    assert made.finished().target == "/v1?a=1&api%20key=k%261%3D%C3%A9"
    made = await applied(ready(key("cookie", "sid"), {"KEY": "k1"}), clock, cookies=["a=1"])
    assert made.finished().headers == (("Cookie", "a=1; sid=k1"),)


async def test_what_has_the_same_name_is_replaced():
    clock, keys = VirtualClock(), {"KEY": "new"}
    made = await applied(ready(key(), keys), clock, headers=[("X-API-KEY", "old"), ("A", "b")])
    assert made.headers == [("A", "b"), ("X-Api-Key", "new")]
    made = await applied(ready(key("query", "k"), keys), clock, query=["k=old", "kk=1"])
    assert made.query == ["kk=1", "k=new"]
    made = await applied(ready(key("cookie", "k"), keys), clock, cookies=["k=old", "kk=1"])
    assert made.cookies == ["kk=1", "k=new"]


async def test_a_bearer_token_is_sent():
    made = await applied(ready(BEARER, {"TOKEN": "t0p"}), VirtualClock())
    assert made.headers == [("Authorization", "Bearer t0p")]


@pytest.mark.parametrize(("user", "password"), [("me", "open sesame"), ("mé", "p:ä"), ("key", "")])
async def test_basic_sends_user_and_password(user, password):
    scheme = {**BASIC, "password": "${PASSWORD:-}"}
    made = await applied(ready(scheme, {"USER_NAME": user, "PASSWORD": password}), VirtualClock())
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    assert made.headers == [("Authorization", f"Basic {encoded}")]


async def test_an_empty_password_may_be_written():
    scheme = {**BASIC, "password": ""}
    assert faults(scheme) == []
    made = await applied(ready(scheme, {"USER_NAME": "k"}), VirtualClock())
    assert made.headers == [("Authorization", "Basic azo=")]


async def test_of_a_list_all_apply():
    both = ready([BEARER, key()], {"TOKEN": "t", "KEY": "k"})
    made = await applied(both, VirtualClock())
    assert made.headers == [("Authorization", "Bearer t"), ("X-Api-Key", "k")]
    assert both.hosts == ()
    assert ready([OAUTH, key()], {"SECRET": "s", "KEY": "k"}).hosts == ("auth.example.com",)


async def test_what_is_fixed_is_not_renewed():
    clock = VirtualClock()
    for auth in (ready(BEARER, {"TOKEN": "t"}), ready([BEARER, key()], {"TOKEN": "t", "KEY": "k"})):
        assert await auth.renewed(clock, no_exchange, draft()) is False


def test_without_auth_there_is_none():
    assert tried(None, SecretResolver({})) == (None, [])


def test_nothing_is_looked_up_while_a_document_is_checked():
    for scheme in (BEARER, BASIC, key(), OAUTH, REFRESH, HOOK):
        assert tried([scheme]) == (None, [])


# What is shown.


def test_what_is_shown_has_no_secrets():
    keys = {
        "KEY": "hunter2",
        "TOKEN": "hunter2",
        "USER_NAME": "me",
        "PASSWORD": "hunter2",
        "SECRET": "hunter2",
    }
    assert shown(ready(key(), keys)).headers == (("X-Api-Key", "***"),)
    assert shown(ready(key("query", "k y"), keys), query=["k%20y=old", "a=1"]).target == "/v1?a=1&k%20y=***"
    assert shown(ready(key("cookie", "sid"), keys)).headers == (("Cookie", "sid=***"),)
    assert shown(ready(BEARER, keys)).headers == (("Authorization", "Bearer ***"),)
    assert shown(ready(BASIC, keys)).headers == (("Authorization", "Basic ***"),)
    assert shown(ready(OAUTH, keys)).headers == (("Authorization", "Bearer ***"),)
    assert shown(ready(HOOK, keys)).headers == ()
    assert shown(ready([OAUTH, key()], keys)).headers == (
        ("Authorization", "Bearer ***"),
        ("X-Api-Key", "***"),
    )


# What is missing or can't be sent.


@pytest.mark.parametrize(
    ("scheme", "at"),
    [
        (key(), "/live/auth/value"),
        (BEARER, "/live/auth/token"),
        (BASIC, "/live/auth/username"),
        (OAUTH, "/live/auth/client_secret"),
        ({**OAUTH, "token_url": "https://${TENANT}/token"}, "/live/auth/token_url"),
        ({**OAUTH, "audience": "${AUDIENCE}"}, "/live/auth/client_secret"),
    ],
)
def test_a_missing_secret_has_its_place(scheme, at):
    with pytest.raises(MissingSecret) as caught:
        tried(scheme, SecretResolver({}))
    assert (caught.value.pointer, caught.value.code) == (at, "missing_secret")
    with pytest.raises(MissingSecret) as caught:
        tried([HOOK, scheme], SecretResolver({}))
    assert caught.value.pointer == at.replace("auth/", "auth/1/")


def test_an_empty_secret_is_a_missing_one():
    for scheme in (
        key(value="${KEY:-}"),
        {**BEARER, "token": "${T:-}"},
        {**OAUTH, "client_secret": "${S:-}"},
    ):
        assert faults(scheme) == []
        with pytest.raises(MissingSecret, match="is empty"):
            tried(scheme, SecretResolver({}))


@pytest.mark.parametrize(
    ("scheme", "value", "told"),
    [
        (BEARER, "hun\nter2", "a line break at character 4"),
        (BEARER, "hunter2\r\nX: y", "a line break at character 8"),
        (BEARER, "hunter2\x00", "a control character at character 8"),
        (BEARER, "hunter2\x7f", "a control character"),
        (BEARER, " hunter2", "begins or ends with a space"),
        (BEARER, "hunter2\u00a0", "begins or ends with a space"),
        (BEARER, "hunt\u00e9r2", "non-ASCII character at character 5"),
        (key(), "hunter2\t", "a control character"),
        (key("query"), "hunter2\n", "a line break"),
        (key("cookie"), "hunter2; admin=1", "ends a cookie value"),
        (key("cookie"), "hunter2\n", "a line break"),
        (BASIC, "hunter2:me", "a `:` at character 8"),
        (OAUTH, "hunter2\n", "a line break"),
    ],
)
def test_a_credential_that_can_not_be_sent_is_refused_without_its_value(scheme, value, told):
    environment = dict.fromkeys(["TOKEN", "KEY", "USER_NAME", "PASSWORD", "SECRET"], value)
    with pytest.raises(UnusableSecret) as caught:
        tried(scheme, SecretResolver(environment))
    assert told in caught.value.message
    assert "${" in caught.value.message
    assert "hunt" not in str(caught.value)
    assert caught.value.code == "unusable_secret"
    assert caught.value.variable is not None


def test_a_written_credential_that_can_not_be_sent_is_a_problem():
    assert faults({**BEARER, "token": "hun\nter2"}) == [
        ("literal_secret", "/live/auth/token"),
        ("unusable_credential", "/live/auth/token"),
    ]
    assert faults({**BASIC, "username": "a:b"}) == [("unusable_credential", "/live/auth/username")]
    assert faults({**BEARER, "token": "${A:-x\ny}"}) == [("unusable_credential", "/live/auth/token")]
    with pytest.raises(UnusableSecret) as caught:
        tried({**BEARER, "token": "hun\nter2"}, SecretResolver({}))
    assert caught.value.variable is None
    assert "hun" not in str(caught.value)


async def test_a_key_file_with_a_newline_at_its_end_works(tmp_path):
    (tmp_path / "key").write_text("t0p\n", encoding="utf-8")
    made = await applied(ready({**BEARER, "token": f"${{file:{tmp_path}/key}}"}), VirtualClock())
    assert made.headers == [("Authorization", "Bearer t0p")]


# What is wrong with what is written.


def test_a_secret_in_the_document_is_a_warning_with_the_way_out():
    for scheme, name, variable in (
        (key(value="hunter2"), "value", "API_KEY"),
        ({**BEARER, "token": "hunter2"}, "token", "TOKEN"),
        ({**BASIC, "password": "hunter2"}, "password", "PASSWORD"),
        ({**OAUTH, "client_secret": "hunter2"}, "client_secret", "CLIENT_SECRET"),
        ({**REFRESH, "refresh_token": "hunter2"}, "refresh_token", "REFRESH_TOKEN"),
    ):
        (problem,) = tried(scheme)[1]
        assert (problem.code, problem.severity) == ("literal_secret", "warning")
        assert problem.pointer == f"/live/auth/{name}"
        assert f"`{name}: ${{{variable}}}`" in problem.hint
        assert "hunter2" not in str(problem)


async def test_a_written_secret_works_and_is_masked_and_a_default_is_not():
    secrets = SecretResolver({})
    made = await applied(ready({**BEARER, "token": "$${hunter2}"}, secrets), VirtualClock())
    assert made.headers == [("Authorization", "Bearer ${hunter2}")]
    assert secrets.hide_in_text("is ${hunter2}") == "is ***"
    ready(key(value="${KEY:-DEMO_KEY}"), secrets)
    assert secrets.hide_in_text("DEMO_KEY") == "DEMO_KEY"
    assert faults(key(value="${KEY:-DEMO_KEY}")) == []


def test_everything_that_is_looked_up_is_masked():
    secrets = SecretResolver(
        {"USER_NAME": "s0mebody-41", "PASSWORD": "hunter2", "TENANT": "acme", "Q": "in-the-query"}
    )
    url = "https://${TENANT}.example.com/token?key=${Q}"
    oauth = {**OAUTH, "token_url": url, "client_id": "${USER_NAME}", "client_secret": "${PASSWORD}"}
    assert ready([oauth], secrets).hosts == ("acme.example.com",)
    assert secrets.hide_in_text("s0mebody-41 | hunter2 | acme | in-the-query") == "*** | *** | acme | ***"
    encoded = base64.b64encode(b"s0mebody-41:hunter2").decode()
    assert secrets.hide_in_text(f"Basic {encoded}") == "Basic ***"


def test_expressions_are_refused():
    for text in ("{{ args.token }}", "{% if x %}", "a{# b #}"):
        (problem,) = tried({**BEARER, "token": text})[1]
        assert (problem.code, problem.pointer) == ("expression_not_allowed", "/live/auth/token")
        assert "type: python" in problem.hint
    assert faults({**BEARER, "token": "{{ args.t }}"}, {}) == [("expression_not_allowed", "/live/auth/token")]


def test_look_ups_that_are_written_wrong_are_told_all_at_once():
    auth = [{**BASIC, "username": "${", "password": "${a b}"}, key(value="${")]
    assert faults(auth) == [
        ("bad_variable", "/live/auth/0/username"),
        ("bad_variable", "/live/auth/0/password"),
        ("bad_variable", "/live/auth/1/value"),
    ]


@pytest.mark.parametrize(
    ("auth", "block", "expected"),
    [
        ([BEARER, BASIC], {}, ["/live/auth/1"]),
        ([OAUTH, BEARER], {}, ["/live/auth/1"]),
        ([key(), key(name="x-api-key")], {}, ["/live/auth/1"]),
        ([key("query", "k"), key("query", "K")], {}, []),
        ([key("query", "k"), key("cookie", "k")], {}, []),
        ([HOOK, HOOK, BEARER], {}, []),
        (BEARER, {"headers": {"authorization": "x"}}, ["/live/auth"]),
        (key("cookie", "sid"), {"cookies": {"sid": "1"}}, ["/live/auth"]),
        (key("query", "k"), {"query": {"k": "1"}}, ["/live/auth"]),
        (key("query", "k"), {"query": {"from": "args"}}, []),
        (key("query", "a b"), {"url": "https://h/x?y&a+b=1"}, ["/live/auth"]),
        (key("query", "k"), {"url": "https://h/x?kk=k"}, []),
    ],
)
def test_two_credentials_at_one_place_are_refused(auth, block, expected):
    assert faults(auth, **block) == [("duplicate_credential", at) for at in expected]


@pytest.mark.parametrize(
    ("where", "name", "codes"),
    [
        ("header", "Host", ["reserved_header"]),
        ("header", "content-LENGTH", ["reserved_header"]),
        ("header", "Cookie", ["reserved_header"]),
        ("header", "X-Key:", ["wrong_form"]),
        ("cookie", "a=b", ["wrong_form"]),
        ("cookie", "host", []),
        ("query", "a=b:c", []),
        ("header", "Authorization", []),
    ],
)
def test_names_that_can_not_be_sent_are_refused(where, name, codes):
    assert faults(key(where, name)) == [(code, "/live/auth/name") for code in codes]


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://api.example.com/x", True),
        ("http://api.example.com:8080/{{ args.a }}", True),
        ("http://127.evil.example/x", True),
        ("http://10.0.0.1", True),
        ("http://localhost:8080/x", False),
        ("http://api.localhost/x", False),
        ("http://127.0.0.1:8080/x", False),
        ("http://[::1]:8080/x", False),
        ("https://api.example.com", False),
        ("http://${HOST}/x", False),
        ("${BASE}/x", False),
    ],
)
def test_credentials_without_encryption_are_a_warning(url, warned):
    problems = tried(BEARER, url=url)[1]
    assert [(p.code, p.pointer, p.severity) for p in problems] == [
        ("unencrypted_secret", "/live/auth", "warning")
    ] * warned
    problems = tried({**OAUTH, "token_url": url.replace("{{ args.a }}", "t")})[1]
    assert [(p.code, p.pointer, p.severity) for p in problems] == [
        ("unencrypted_secret", "/live/auth/token_url", "warning")
    ] * warned


@pytest.mark.parametrize(
    "url",
    [
        "auth.example.com/token",
        "ftp://auth.example.com/token",
        "https:///token",
        "https://me:you@auth.example.com/token",
        "https://auth.example.com/token#part",
        "https://auth.example.com:99999/token",
        "https://auth.example.com:0/token",
        "https://auth.example.com/to ken",
        "https://aüth.example.com/token",
        "https://[::1/token",
    ],
)
def test_what_is_no_address_for_tokens_is_refused(url):
    assert faults({**OAUTH, "token_url": url}) == [("invalid_url", "/live/auth/token_url")]
    looked_up = {**OAUTH, "token_url": "${URL}", "client_secret": "${SECRET}"}
    assert faults(looked_up, {"URL": url, "SECRET": "s"}) == [("invalid_url", "/live/auth/token_url")]


# What its schema says.


def found(auth):
    """Code and pointer of all that loading finds wrong with a document of this `auth`."""
    text = json.dumps({"name": "tool", "input_schema": {}, "live": {"url": URL, "auth": auth}})
    problems = loaded(text, executors=Executors({"live": LiveExecutor})).problems
    return [(problem.code, problem.pointer) for problem in problems]


URL = "https://api.example.com/v1"


def without(scheme, name):
    return {key: value for key, value in scheme.items() if key != name}


@pytest.mark.parametrize(
    "auth",
    [
        key(),
        key("query"),
        key("cookie"),
        BEARER,
        BASIC,
        {**BASIC, "password": ""},
        OAUTH,
        {**OAUTH, "scopes": ["a", "b:c"], "audience": "x", "client_auth": "body"},
        REFRESH,
        without(REFRESH, "client_secret"),
        HOOK,
        {"type": "python", "call": "sign:Signer.sign"},
        [BEARER, key()],
    ],
)
def test_what_is_sound_is_taken(auth):
    assert found(auth) == []


@pytest.mark.parametrize(
    ("auth", "code", "at"),
    [
        ([], "wrong_value", ""),
        ("token", "wrong_type", ""),
        ({}, "missing_key", "/type"),
        ([{"token": "x"}], "missing_key", "/0/type"),
        ({"type": "digest"}, "not_allowed", "/type"),
        ({"type": "http", "token": "${T}"}, "missing_key", "/scheme"),
        ({**BEARER, "scheme": "digest"}, "not_allowed", "/scheme"),
        (without(BEARER, "token"), "missing_key", "/token"),
        ({**BEARER, "token": ""}, "wrong_value", "/token"),
        ({**BEARER, "token": 5}, "literal_secret", "/token"),
        ({**BEARER, "token": ["x"]}, "wrong_type", "/token"),
        ({**BEARER, "username": "x"}, "unknown_key", "/username"),
        ({**BASIC, "token": "x"}, "unknown_key", "/token"),
        (without(BASIC, "username"), "missing_key", "/username"),
        (without(BASIC, "password"), "missing_key", "/password"),
        (key("body"), "not_allowed", "/in"),
        (without(key(), "name"), "missing_key", "/name"),
        (key(name="a b"), "wrong_form", "/name"),
        ({**key(), "prefix": "x"}, "unknown_key", "/prefix"),
        (without(OAUTH, "token_url"), "missing_key", "/token_url"),
        (without(OAUTH, "client_secret"), "missing_key", "/client_secret"),
        ({**OAUTH, "flow": "password"}, "not_allowed", "/flow"),
        ({**OAUTH, "refresh_token": "${R}"}, "unknown_key", "/refresh_token"),
        ({**OAUTH, "scopes": "a b"}, "wrong_type", "/scopes"),
        ({**OAUTH, "scopes": ["a b"]}, "wrong_form", "/scopes/0"),
        ({**OAUTH, "scopes": ["a", "a"]}, "wrong_value", "/scopes"),
        ({**OAUTH, "client_auth": "jwt"}, "not_allowed", "/client_auth"),
        (without(REFRESH, "refresh_token"), "missing_key", "/refresh_token"),
        (without(REFRESH, "client_id"), "missing_key", "/client_id"),
        ({**without(REFRESH, "client_secret"), "client_auth": "body"}, "missing_key", "/client_secret"),
        (without(HOOK, "call"), "missing_key", "/call"),
        ({**HOOK, "call": "acme.signing.sign"}, "wrong_form", "/call"),
        ({**HOOK, "args": {}}, "unknown_key", "/args"),
    ],
)
def test_what_is_not_is_refused_at_its_place(auth, code, at):
    assert found(auth) == [(code, f"/live/auth{at}")]
