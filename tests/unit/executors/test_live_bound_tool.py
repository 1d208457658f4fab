"""Results of live tools without the secrets that the other side has put into them."""

from __future__ import annotations

import base64

import pytest

from live_answers import answer
from toolcrib import Content, Outcome, Result
from toolcrib.executors.live.bound_tool import may_hold_secret
from toolcrib.security.redaction import redact_result
from toolcrib.security.secrets import SecretResolver


@pytest.fixture
def secrets():
    known = SecretResolver({})
    known.register("hunter2-pässwörd")
    return known


def test_texts_values_and_failures_are_masked(secrets):
    told = "it was hunter2-pässwörd"
    result = Result.failure(
        Outcome.TOOL_ERROR, told, details={"seen": told}, content=(Content("text", text=told),)
    ).with_meta(seen=told)
    hidden = redact_result(result, secrets)
    assert hidden.message == hidden.error.message == hidden.content[0].text == "it was ***"
    assert hidden.error.details == hidden.meta == {"seen": "it was ***"}


def test_bytes_that_hold_a_secret_are_withheld(secrets):
    good = Content("image", data=base64.b64encode(b"GIF89a\x00\x01").decode(), mime_type="image/gif")
    bad = Content(
        "image", data=base64.b64encode("GIF \x01hunter2-pässwörd".encode()).decode(), mime_type="image/gif"
    )
    result = Result.success({"size": 3}, content=(good, bad)).with_meta(warnings=["another"])
    hidden = redact_result(result, secrets)
    told = "the content (image/gif, 23 bytes) was withheld because it contains a secret"
    assert hidden.content == (good, Content("text", text=told))
    assert hidden.meta["warnings"] == ["another", told]
    assert redact_result(result._replace(content=(good,)), secrets).meta == {"warnings": ["another"]}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("hunter2-pässwörd".encode("utf-16"), "text/plain; charset=utf-16"),
        ("hunter2-pässwörd".encode("utf-16-le"), "text/plain; charset=utf-16le"),
        ("hunter2-pässwörd".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        (b"%68unter2", "text/plain"),
        (b"&#104;unter2", "text/html; charset=utf-8"),
        ("plain hunter2-pässwörd".encode(), "application/json"),
    ],
)
def test_the_quick_look_knows_charsets_and_escapes(secrets, raw, kind):
    assert may_hold_secret(secrets, answer(raw, kind))
    assert not may_hold_secret(secrets, answer(b'{"a": "50% \\n"}', "application/json; charset=utf-8"))


def test_the_quick_look_sees_headers(secrets):
    assert may_hold_secret(secrets, answer(b"{}", headers=(("x-seen", "a hunter2-p\xe4ssw\xf6rd"),)))
    assert not may_hold_secret(secrets, answer(b"{}", headers=(("x-seen", "a"), ("x-more", "b"))))
