"""Every secret of a live tool is looked for, in every encoding, in everything that its calls put out."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
from urllib.parse import quote, quote_plus, unquote

import pytest

from http_servers import answering_by, answering_json, raw_answer, serving
from live_tools import API, calling, live_tool
from sampling import sample
from toolcrib import Outcome

SECRETS = {
    "CRIB_KEY": 'CANARY-key-"7f"/3a+b&c=d',
    "CRIB_TOKEN": "CANARY-token-5e1f2d3c4b",
    "CRIB_USER": "CANARY-user-9a8b7c",
    "CRIB_PASS": "CANARY-pass-word-ü-0",
    "CRIB_CLIENT": "CANARY-client-secret-77",
    "CRIB_PATH": "CANARY-in-the-path-Üx3",
}
FETCHED = "CANARY-access-token-from-the-server"

AUTHS = {
    "header": "{type: apiKey, in: header, name: X-Api-Key, value: '${CRIB_TOKEN}'}",
    "query": "{type: apiKey, in: query, name: key, value: '${CRIB_KEY}'}",
    "cookie": "{type: apiKey, in: cookie, name: session, value: '${CRIB_TOKEN}'}",
    "bearer": "{type: http, scheme: bearer, token: '${CRIB_TOKEN}'}",
    "basic": "{type: http, scheme: basic, username: '${CRIB_USER}', password: '${CRIB_PASS}'}",
    "oauth2": f"{{type: oauth2, flow: client_credentials, token_url: '{API}/token', client_id: crib, "
    "client_secret: '${CRIB_CLIENT}'}",
    "several": "[{type: http, scheme: bearer, token: '${CRIB_TOKEN}'},"
    " {type: apiKey, in: query, name: key, value: '${CRIB_KEY}'}]",
}
BLOCK = """
method: POST
url: {api}/{{{{ args.way }}}}/${{CRIB_PATH}}
query: {{team: "${{CRIB_USER}}"}}
headers: {{X-Sign: "${{CRIB_CLIENT}}"}}
body: {{json: {{way: "{{{{ args.way }}}}", key: "${{CRIB_KEY}}"}}}}
auth: {auth}
"""
WAYS = [
    *("json", "text", "error", "problem", "html", "moved", "broken", "binary", "cut", "odd"),
    *("utf16", "latin", "percent", "entities", "bytes", "image", "deep"),
    *("capitals", "hex", "dump", "spaced", "unseen", "wrapped", "wrapped-json", "file"),
]


def written(secret: str) -> set[str]:
    """A secret in the ways in which it is met: plain, for URLs, as JSON writes it, in base64, escaped altogether."""
    raw = secret.encode()
    forms = {secret, quote(secret, safe=""), quote_plus(secret), quote(secret)}
    forms |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    forms |= {base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    forms |= {percent(secret), entities(secret), raw.decode("latin-1"), "\0".join(secret), secret.lower()}
    forms |= {secret.upper(), raw.hex(), raw.hex(" "), " ".join(secret), "\u200b".join(secret)}
    return forms


def percent(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def entities(text: str) -> str:
    return "".join(f"&#{ord(character)};" for character in text)


CANARIES = {form for secret in (*SECRETS.values(), FETCHED) for form in written(secret)} | {
    base64.b64encode(f"{SECRETS['CRIB_USER']}:{SECRETS['CRIB_PASS']}".encode()).decode(),
    "CANARY",
}


def hits(text: str) -> list[str]:
    return sorted(form for form in CANARIES if form in text)


def echo(head) -> bytes:
    """An answer that repeats all of the request, in as many ways as there are paths."""
    way = head.path.split("/")[1]
    if way == "token":
        token = {"access_token": FETCHED, "token_type": "Bearer", "expires_in": 3600}
        return raw_answer(200, {"Content-Type": "application/json"}, json.dumps(token).encode())
    seen = {"headers": dict(head.headers), "target": head.target, "body": head.body.decode("latin-1")}
    text = json.dumps(seen)
    line = f"{head.target} {head.header('authorization') or ''}"
    plain = f"{unquote(line)} {seen}"
    kinds = {
        "json": (200, "application/json", text.encode()),
        "text": (200, "text/plain", text.encode()),
        "error": (400, "application/json", json.dumps({"error": {"message": text, "code": line}}).encode()),
        "problem": (422, "application/problem+json", json.dumps({"title": line, "detail": text}).encode()),
        "html": (500, "text/html", f"<pre>{text}</pre>".encode()),
        "moved": (302, "text/plain", b""),
        "broken": (200, "application/json", text.encode() + b"{"),
        "binary": (200, "application/json; charset=zlib", text.encode()),
        "utf16": (200, "application/json; charset=utf-16", text.encode("utf-16")),
        "latin": (200, "text/plain; charset=iso-8859-1", plain.encode("latin-1")),
        "percent": (200, "text/plain", percent(plain).encode()),
        "entities": (200, "text/html", entities(plain).encode()),
        "bytes": (200, "application/octet-stream", plain.encode("utf-16")),
        "image": (200, "image/gif", b"GIF89a\x00\x01" + plain.encode() + b"\xff\x00"),
        "deep": (200, "application/json", b"[" * 900 + json.dumps(plain).encode() + b"]" * 900),
        "odd": (200, f"application/{quote(line)}", text.encode()),
    }
    encoded = base64.encodebytes(plain.encode()).decode()  # in lines of 76 characters
    kinds |= {
        "capitals": (200, "text/plain; charset=utf-8", plain.upper().encode()),
        "hex": (200, "text/plain", plain.encode().hex().encode()),
        "dump": (200, "application/json", json.dumps({"dump": plain.encode().hex(" ")}).encode()),
        "spaced": (200, "text/plain", " ".join(plain).encode()),
        "unseen": (200, "text/plain; charset=utf-8", "\u200b".join(plain).encode()),
        "wrapped": (200, "text/plain", encoded.encode()),
        "wrapped-json": (200, "application/json", json.dumps([encoded, encoded]).encode()),
        "file": (200, "application/octet-stream", b"\x00\x01" + "\u200b".join(plain).encode()),
    }
    if way == "cut":
        return (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\nX-Seen: "
            + line.encode()
            + b"\r\n\r\n"
        )
    status, kind, body = kinds[way]
    return raw_answer(
        status, {"Content-Type": kind, "X-Seen": line, "Location": line.split(maxsplit=1)[0]}, body
    )


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)


@pytest.mark.parametrize("kind", sample(AUTHS, one_in=3))
async def test_no_secret_is_in_anything_that_calls_put_out(kind, caplog):
    text = live_tool(
        BLOCK.format(api=API, auth=AUTHS[kind]), inputs="{type: object, properties: {way: {type: string}}}"
    )
    told: list[str] = []
    with caplog.at_level(logging.DEBUG):
        async with calling(text, answering_by(echo), observer=lambda event: told.append(repr(event))) as (
            tools,
            server,
        ):
            for way in WAYS:
                result = await tools.call("tool", {"way": way})
                planned = await tools.dry_run("tool", {"way": way})
                assert result.outcome is not Outcome.INTERNAL
                told += [json.dumps(result.as_json()), repr(result), json.dumps(planned.as_json())]
                told += [repr(planned), str(result.raw_value)]
                told += [
                    base64.b64decode(part.data).decode("latin-1") for part in result.content if part.data
                ]
                if result.outcome is not Outcome.OK:
                    with pytest.raises(Exception) as raised:
                        result.raise_for_outcome()
                    told.append(str(raised.value) + repr(raised.value))
            told += [
                repr(tools._engine.world),
                repr(tools._engine.world.secrets),
                repr(tools.registry["tool"]),
            ]
            sent = "\n".join(f"{head.target} {head.headers} {head.body!r}" for head in server.requests)
    assert hits(sent)  # the server has had them
    assert hits("\n".join(told)) == []
    assert hits(caplog.text) == []


@pytest.mark.parametrize("rule", sample(["error", "warn", "pass"], one_in=3))
async def test_no_secret_is_in_a_result_that_does_not_fit_the_output_schema(rule):
    text = live_tool(
        BLOCK.format(api=API, auth=AUTHS["several"]),
        inputs="{type: object, properties: {way: {type: string}}}",
        output="{type: object, required: [none], properties: {headers: {type: string}, target: {maxLength: 3}}}",
        more=f"on_invalid_result: {rule}",
    )
    async with calling(text, answering_by(echo)) as (tools, _server):
        for way in WAYS:
            result = await tools.call("tool", {"way": way})
            told = [result.as_json(), repr(result), result.raw_value, dict(result.meta)]
            told += [base64.b64decode(part.data).decode("latin-1") for part in result.content if part.data]
            assert hits(json.dumps(told, ensure_ascii=False)) == [], way
            if way in ("json", "text", "capitals"):
                assert "***" in json.dumps(result.raw_value)


CALLS = """
import contextlib, sys
from toolcrib.cli import main

words = sys.argv[1:]
for way in ("json", "error", "broken", "utf16", "percent", "image"):
    sys.argv = ["toolcrib", "call", "tool", f"way={way}", *words]
    with contextlib.suppress(SystemExit):
        main()
"""


@pytest.mark.parametrize("words", sample([["--json", "-v"], ["-v"], ["--dry-run"], ["--dry-run", "--json"], ["--explain"]], one_in=5), ids=" ".join)  # fmt: skip
async def test_no_secret_is_in_what_the_command_line_prints_or_keeps(words, tmp_path):
    text = live_tool(
        BLOCK.format(api=API, auth=AUTHS["several"]),
        inputs="{type: object, properties: {way: {type: string}}}",
    )
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "tool.tool.yaml").write_text(text, encoding="utf-8")
    printed = ""
    async with serving(answering_by(echo)) as server:
        project = f"project: p\negress: {{allow: ['127.0.0.1:{server.port}']}}\norigins: {{'{API}': '{server.origin}'}}\n"
        (tmp_path / "toolcrib.yaml").write_text(project, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-X", "dev", "-c", CALLS, *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "TOOLCRIB_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0
        printed += out.decode()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert "***" in printed
    assert hits(printed) == []
    assert hits(kept.decode("latin-1")) == []


@pytest.mark.parametrize(
    "more", ["", "pagination: {style: cursor, items: body.data, next: body.next, param: after}"]
)
async def test_of_a_secret_at_the_end_of_a_message_that_is_cut_nothing_is_told(more):
    text = live_tool(f"url: {API}/x\nauth: {AUTHS['bearer']}\n{more}")
    for before in range(4020, 4056, 4):
        body = {"message": "a " * (before // 2) + SECRETS["CRIB_TOKEN"] + " b" * 100}
        async with calling(text, answering_json(body, 400)) as (tools, _server):
            result = await tools.call("tool")
        assert "truncated" in result.message
        assert "CAN" not in json.dumps(result.as_json())
