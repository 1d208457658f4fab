"""A canary for every secret of `auth`: looked for, in every encoding, in everything that vault and schemes put out."""

from __future__ import annotations

import base64
import gc
import json
import logging
import traceback
from urllib.parse import quote, quote_plus

import pytest

from authentication import applied, failed, fetching, ready, shown, tried
from http_servers import answering_each, answering_json, serving
from toolcrib import VirtualClock
from toolcrib.http.auth import TokenCache
from toolcrib.security.secrets import MissingSecret, SecretResolver

CANARY = 'c4n/ry+"{}\\é&=='
NAMES = ["KEY", "TOKEN", "PASSWORD", "SECRET", "REFRESH", "ACCESS"]
SECRETS = {name: CANARY.replace("{}", name.lower()) for name in NAMES}
ASCII = {
    name: secret.replace("é", "e").replace("\\", "|").replace('"', "!") for name, secret in SECRETS.items()
}


def encodings(secret):
    quoted = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    encoded = [
        encode(before + secret.encode()).decode().rstrip("=")
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
        for before in (b"", b"user:")
    ]
    return [
        secret,
        *quoted,
        *(each.lower() for each in quoted),
        *encoded,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    ]


def hits(text, secrets):
    return [
        (name, written)
        for name, secret in secrets.items()
        for written in encodings(secret)
        if written in text
    ]


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


@pytest.fixture
def lines():
    handler, log = Lines(), logging.getLogger("toolcrib")
    log.addHandler(handler)
    yield handler.lines
    log.removeHandler(handler)


def schemes(server):
    oauth = {
        "type": "oauth2",
        "token_url": f"{server.origin}/token",
        "client_id": "client-5e1",
        "client_secret": "${SECRET}",
    }
    return [
        {"type": "apiKey", "in": "header", "name": "X-Key", "value": "${KEY}"},
        {"type": "apiKey", "in": "query", "name": "key", "value": "${KEY}"},
        {"type": "apiKey", "in": "cookie", "name": "key", "value": "${KEY}"},
        {"type": "http", "scheme": "bearer", "token": "${TOKEN}"},
        {"type": "http", "scheme": "basic", "username": "user", "password": "${PASSWORD}"},
        {**oauth, "flow": "client_credentials"},
        {**oauth, "flow": "client_credentials", "client_auth": "body"},
        {**oauth, "flow": "refresh_token", "refresh_token": "${REFRESH}"},
    ]


def inside(auth):
    """Everything that a compiled scheme holds, as `repr` writes it."""
    seen, waiting, texts = set(), [auth], []
    while waiting:
        each = waiting.pop()
        if id(each) in seen or not type(each).__module__.startswith("toolcrib.http.auth"):
            continue
        seen.add(id(each))
        texts.append(f"{each!r} {each}")
        waiting += [
            item
            for held in gc.get_referents(each)
            for item in (held.values() if isinstance(held, dict) else [held])
        ]
    return "\n".join(texts)


async def test_nothing_that_is_told_holds_a_secret(lines):
    clock, told = VirtualClock(), []
    echo = " ".join(written for secret in ASCII.values() for written in encodings(secret))
    answers = [
        answering_json({"error": "invalid_client", "error_description": secret}, 400)
        for secret in (echo, *encodings(ASCII["SECRET"]))
    ]
    for index in range(8):
        async with serving(answering_each(*answers)) as server, fetching(server) as fetch:
            vault = SecretResolver(ASCII)
            auth = ready(schemes(server)[index], vault, tokens=TokenCache())
            told += [repr(vault), inside(auth), str(shown(auth)), repr(shown(auth).headers)]
            if index < 5:
                made = await applied(auth, clock, fetch)
                told.append(vault.hide_in_text(f"{made.finished()!r} {made.finished().url}"))
            else:
                for _ in answers:
                    error = await failed(auth, clock, fetch)
                    told += [
                        f"{error!r} {error}",
                        json.dumps(dict(error.details)),
                        "".join(traceback.format_exception(error)),
                    ]
                request = [*server.requests[0].headers, server.requests[0].body.decode()]
                told.append(vault.hide_in_text(f"{request}"))
            every = {name: ASCII[name] for name in NAMES if name in json.dumps(schemes(server)[index])}
            log = logging.getLogger("toolcrib")
            for secret in every.values():
                for written in encodings(secret):
                    log.warning("echo %s", written)
            assert hits("\n".join([*map(str, told), *lines]), every) == []


async def test_a_token_that_was_given_is_nowhere_to_be_read(lines):
    given = {"access_token": ASCII["ACCESS"], "refresh_token": ASCII["REFRESH"], "expires_in": 60}
    clock, vault = VirtualClock(), SecretResolver({**ASCII, "REFRESH": "an0ther-r3fresh"})
    async with serving(answering_json(given)) as server, fetching(server) as fetch:
        auth = ready(schemes(server)[7], vault)
        made = await applied(auth, clock, fetch)
        told = [inside(auth), repr(vault), repr(made), repr(made.finished())]
        assert ASCII["ACCESS"] in str(made.headers)
        for written in (*encodings(ASCII["ACCESS"]), *encodings(ASCII["REFRESH"])):
            logging.getLogger("toolcrib").warning("echo %s", written)
            told.append(json.dumps(vault.hide_in({"a": [written]})))
            assert vault.knows(written.encode())
    assert hits("\n".join([*told, *lines]), {"ACCESS": ASCII["ACCESS"], "REFRESH": ASCII["REFRESH"]}) == []


def test_what_is_wrong_with_a_document_is_told_without_its_secrets():
    """Written, looked up, or defaults; well or wrong."""

    class Nowhere:
        origin = "http://auth.example.com"

    told = []
    for scheme in schemes(Nowhere):
        for secret in (
            *SECRETS.values(),
            *(f"{each}\n" for each in ASCII.values()),
            "${" + SECRETS["KEY"],
            "{{" + SECRETS["KEY"],
        ):
            written = {
                key: secret if isinstance(value, str) and "${" in value else value
                for key, value in scheme.items()
            }
            told += [str(problem) for problem in tried(written)[1]]
            for vault in (
                SecretResolver({}),
                SecretResolver({name: f"{value}\n" for name, value in SECRETS.items()}),
            ):
                for each in (written, scheme):
                    try:
                        told += [str(problem) for problem in tried(each, vault)[1]]
                    except MissingSecret as error:
                        told.append(
                            f"{error!r} {error} {error.variable} {''.join(traceback.format_exception(error))}"
                        )
    assert len(told) > 100
    assert (
        hits("\n".join(told), {**SECRETS, **{f"{name} in ASCII": value for name, value in ASCII.items()}})
        == []
    )


@pytest.mark.parametrize(
    ("url", "value", "hidden"),
    [
        ("https://a.example/${PART}/token", "hunter2", {"hunter2"}),
        ("${PART}", "https://a.example/token", set()),
        ("${PART}", "https://a.example/token?key=hunter2", {"key=hunter2"}),
        ("https://a.example/token?key=${PART}", "hunter2", {"hunter2"}),
    ],
)
def test_what_is_looked_up_behind_the_host_of_the_tokens_is_masked(url, value, hidden):
    vault = SecretResolver({"PART": value})
    scheme = {"type": "oauth2", "flow": "client_credentials", "token_url": url, "client_id": "client-5e1"}
    ready({**scheme, "client_secret": "${S:-none}"}, vault)
    assert vault.known - {"client-5e1:none"} == hidden
