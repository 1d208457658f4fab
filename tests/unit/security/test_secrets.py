"""Secrets: how they are written, looked up, and masked wherever they turn up."""

from __future__ import annotations

import asyncio
import base64
import gc
import html
import json
import logging
import os
import subprocess
import sys
from urllib.parse import quote, quote_plus

import keyring.backend
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import THOROUGH, examples
from toolcrib.core.errors import ExpressionError
from toolcrib.security.redaction import one_call
from toolcrib.security.secrets import (
    MissingSecret,
    SecretResolver,
    SecretVariable,
    UnusableSecret,
    check_variables,
    split_variables,
    unescape_dollars,
    variables_of,
)

SECRET = "s3cr/et+w\"x y&z<'é\\q"


# What is written.


def test_a_text_is_split_where_something_is_looked_up():
    assert split_variables("https://${HOST}/v1?key=${KEY:-none}") == [
        "https://",
        SecretVariable("env", "HOST", None, "${HOST}"),
        "/v1?key=",
        SecretVariable("env", "KEY", "none", "${KEY:-none}"),
    ]


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("${env:HOME}", SecretVariable("env", "HOME", None, "${env:HOME}")),
        ("${A:-}", SecretVariable("env", "A", "", "${A:-}")),
        ("${A:-x:-y}", SecretVariable("env", "A", "x:-y", "${A:-x:-y}")),
        ("${file:/run/secrets/x}", SecretVariable("file", "/run/secrets/x", None, "${file:/run/secrets/x}")),
        ("${file:~/key:-none}", SecretVariable("file", "~/key", "none", "${file:~/key:-none}")),
        ("${keyring:api/me}", SecretVariable("keyring", "api/me", None, "${keyring:api/me}")),
        (
            "${keyring:https://a.b/c/me@x}",
            SecretVariable("keyring", "https://a.b/c/me@x", None, "${keyring:https://a.b/c/me@x}"),
        ),
    ],
)
def test_each_source_has_its_form(text, variable):
    assert split_variables(text) == [variable]


def test_an_escaped_opening_is_text():
    assert split_variables("a $${B} ${C}") == ["a $${B} ", SecretVariable("env", "C", None, "${C}")]
    assert unescape_dollars("a $${B} ") == "a ${B} "
    assert SecretResolver({"C": "c"}).fill("a $${B} ${C}") == "a ${B} c"
    assert split_variables("") == []
    assert split_variables("$ { } {{ args.x }} 5$") == ["$ { } {{ args.x }} 5$"]


@pytest.mark.parametrize(
    ("text", "told", "hint"),
    [
        ("a ${", "at character 3 is not closed", "close it"),
        ("${A", "is not closed", "close it"),
        ("${}", "has no valid variable name", "letters, digits"),
        ("${ A }", "has no valid variable name", "remove the spaces: `${A}`"),
        ("${A-b}", "has no valid variable name", "`${A:-text}`"),
        ("${A?b}", "has no valid variable name", "`${A:-text}`"),
        ("${A:=b}", "unknown source", "`${A:-text}`"),
        ("${1A}", "has no valid variable name", "letters, digits"),
        ("${A.b}", "has no valid variable name", "letters, digits"),
        ("${ÄB}", "has no valid variable name", "letters, digits"),
        ("${env:a b}", "has no valid variable name", "letters, digits"),
        ("${files:/x}", "unknown source", "did you mean `file`?"),
        ("${vault:x}", "unknown source", "`${vault:-text}`"),
        ("${file:x}", "needs an absolute file path", "/run/secrets"),
        ("${keyring:alone}", "needs a keyring entry", "service/user"),
        ("${keyring:/me}", "needs a keyring entry", "service/user"),
        ("${A:-${B}}", "contains a brace", "nested"),
        ("${{ args.x }}", "contains a brace", "nested"),
    ],
)
def test_what_is_written_wrong_is_a_problem_with_the_way_out(text, told, hint):
    (problem,) = check_variables(text, "/live/url")
    assert (problem.code, problem.pointer) == ("bad_variable", "/live/url")
    assert told in problem.message
    assert hint in problem.hint
    with pytest.raises(ExpressionError, match="character"):
        split_variables(text)


def test_a_sound_text_has_no_problems():
    assert check_variables("a ${A:-b} $${", "/x") == []


@given(
    st.lists(st.sampled_from(["${", "$${", "}", "A", ":-", "{", "$", "file:/", "é", " ", ":"]), max_size=8)
)
def test_pieces_give_the_text_again_or_a_problem(parts):
    text = "".join(parts)
    try:
        pieces = split_variables(text)
    except ExpressionError as error:
        assert error.code == "bad_variable"  # noqa: PT017 -- either may come
    else:
        assert "".join(piece if isinstance(piece, str) else piece.text for piece in pieces) == text


def test_the_look_ups_of_a_value_have_their_places():
    value = {"a/b": ["${A}", 1, {"c": "x ${B:-b} ${file:/c}"}], "d": None, "e": "plain $${E}"}
    assert [(pointer, variable.text) for pointer, variable in variables_of(value, "/live")] == [
        ("/live/a~1b/0", "${A}"),
        ("/live/a~1b/2/c", "${B:-b}"),
        ("/live/a~1b/2/c", "${file:/c}"),
    ]


# What is looked up.


def looked_up(text, environment=None, **options):
    return SecretResolver(environment or {}, **options).fill(text)


def missing(text, environment=None, **options):
    with pytest.raises(MissingSecret) as caught:
        looked_up(text, environment, **options)
    assert caught.value.code == "missing_secret"
    return caught.value


def test_the_environment_is_asked_and_a_default_stands_in():
    assert looked_up("${A}-${env:B}-${C:-c}", {"A": "a", "B": "b"}) == "a-b-c"
    assert looked_up("${A:-x}", {"A": ""}) == "x"
    assert looked_up("${A:-}") == ""
    assert SecretResolver().fill("${PATH}") == os.environ["PATH"]


def test_what_is_not_set_is_named_with_the_way_out():
    error = missing("${API_TOKEN}", {"API_TOKENS": "x"})
    assert "`API_TOKEN` is not set" in error.message
    assert "did you mean `API_TOKENS`?" in error.hint
    assert error.variable == SecretVariable("env", "API_TOKEN", None, "${API_TOKEN}")
    assert "set it, or write a default" in missing("${API_TOKEN}").hint
    assert "`A` is empty" in missing("${A}", {"A": ""}).message


def test_a_missing_one_has_its_place():
    with pytest.raises(MissingSecret) as caught:
        SecretResolver({}).fill("${A}", pointer="/live/auth/token")
    assert caught.value.pointer == "/live/auth/token"
    assert UnusableSecret(None, "m", hint="h").at("/x").code == "unusable_secret"


def test_what_is_no_text_is_refused():
    assert "not valid UTF-8" in missing("${A:-x}", {"A": "x\udcff"}).message


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"hunter2\n", "hunter2"),
        (b"hunter2\r\n", "hunter2"),
        (b"hunter2", "hunter2"),
        (b"\xef\xbb\xbfhunter2\n", "hunter2"),
        (b"one\ntwo\n\n", "one\ntwo\n"),
        (b" padded \n", " padded "),
    ],
)
def test_a_file_is_read_without_the_newline_at_its_end(tmp_path, raw, value):
    (tmp_path / "key").write_bytes(raw)
    assert looked_up(f"${{file:{tmp_path}/key}}") == value


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("at home", encoding="utf-8")
    assert looked_up("${file:~/key}") == "at home"


def test_a_file_that_is_not_there_is_missing(tmp_path):
    assert looked_up(f"${{file:{tmp_path}/key:-none}}") == "none"
    (tmp_path / "empty").write_bytes(b"\n")
    for name in ("key", "empty"):
        error = missing(f"${{file:{tmp_path}/{name}}}")
        assert str(tmp_path) in error.message
        assert "write only the secret into it" in error.hint


def test_a_file_that_can_not_be_read_is_refused_even_with_a_default(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 70000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    told = {
        "large": "exceeds 65536 bytes",
        "binary": "not valid UTF-8",
        "pipe": "not a file",
        ".": "not a file",
    }
    for name, words in told.items():
        error = missing(f"${{file:{tmp_path}/{name}:-x}}")
        assert words in error.message
        assert "that this process can read" in error.hint


def test_a_path_that_no_file_can_have_is_refused():
    assert "cannot be read" in missing(f"${{file:/{'x' * 300}:-d}}").message
    assert "cannot be read" in missing("${file:/a\0b:-d}").message
    assert "does not exist" in missing("${file:/no/such/file}").message
    assert "does not exist" in missing("${file:/dev/null/x}").message


class Keyring:
    """A keyring in memory."""

    def __init__(self, **entries):
        self.entries = entries

    def get_password(self, service_name, username):
        entry = self.entries.get(f"{service_name}/{username}".replace("/", "_"))
        if isinstance(entry, Exception):
            raise entry
        return entry


def test_a_keyring_is_asked_for_service_and_user():
    ring = Keyring(api_me="from the keyring", api_bad=OSError("locked, and here is a secret"))
    assert looked_up("${keyring:api/me}", keyring=ring) == "from the keyring"
    assert looked_up("${keyring:api/you:-nobody}", keyring=ring) == "nobody"
    error = missing("${keyring:api/you}", keyring=ring)
    assert "no entry `api/you`" in error.message
    assert "keyring set api you" in error.hint
    error = missing("${keyring:api/bad:-x}", keyring=ring)
    assert "OSError" in error.message
    assert "secret" not in str(error)


class Backend(keyring.backend.KeyringBackend):
    """A backend of the real package."""

    priority = 1

    def get_password(self, service, username):
        return f"{service} of {username}"

    def set_password(self, service, username, password):
        raise NotImplementedError


def test_the_systems_keyring_is_asked_where_no_other_is_given():
    before = keyring.get_keyring()
    keyring.set_keyring(Backend())
    try:
        assert looked_up("${keyring:api/me}") == "api of me"
    finally:
        keyring.set_keyring(before)


def test_without_the_extra_its_name_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    error = missing("${keyring:api/me:-x}")
    assert error.hint == "pip install 'toolcrib[keyring]'"


def test_what_is_looked_up_is_registered_and_what_is_written_is_not():
    vault = SecretResolver({"A": "from-the-environment", "HOST": "api.example.com"})
    (host,) = split_variables("${HOST}")
    vault.look_up(host, secret=False)
    vault.fill("${A} ${B:-a-default} and more")
    text = "from-the-environment a-default api.example.com and more"
    assert vault.hide_in_text(text) == "*** a-default api.example.com and more"


# What is masked.


def masking(*secrets):
    vault = SecretResolver({})
    for secret in secrets:
        vault.register(secret)
    return vault


def lower_hex(text):
    first, *rest = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def encodings(secret):
    """Every way that programs write a text; within base64 at each of the three places it may begin at."""
    quoted = [quote(secret), quote(secret, safe=""), quote_plus(secret), quote_plus(secret, safe="/")]
    yield from [secret, *quoted, *map(lower_hex, quoted)]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in ("", "u:", "ab:", "abc:"):
            encoded = encode(f"{before}{secret}".encode()).decode()
            yield encoded
            yield encoded.rstrip("=")
            yield encode(f"{before}{secret} and more".encode()).decode()
    written = json.dumps(secret)
    yield from [written, json.dumps(secret, ensure_ascii=False), written.replace("/", "\\/"), repr(secret)]
    yield from [html.escape(secret), html.escape(secret, quote=False)]


def gives_away(text, secret):
    """Whether anything that can be decoded from the text holds the secret."""
    if secret in text or quote(secret, safe="") in text:
        return True
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return encoded in text or encoded.replace("+", "-").replace("/", "_") in text


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        "hunter2-and-more",
        "abcd",
        "päss wörd",
        "a\nb\tc\x1bd",
        "😀 is it",
        "%41%42%43%44",
        "\\\\n\\x41",
    ],
)
def test_a_secret_is_hidden_however_it_is_written(secret):
    vault = masking(secret)
    for written in encodings(secret):
        for text in (written, f"before {written} after", f'{{"a": "{written}"}}'):
            hidden = vault.hide_in_text(text)
            assert "***" in hidden
            assert not gives_away(hidden, secret)
            assert len(hidden) <= len(text)
        assert vault.knows(f"before {written} after".encode())


@settings(max_examples=examples(150))
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=20),
    st.text(st.sampled_from("ab:%\\& \"'"), max_size=4),
    st.text(st.sampled_from("ab:%\\& \"'"), max_size=4),
)
def test_no_encoding_of_any_secret_is_missed(secret, before, after):
    vault = masking(secret)
    for written in encodings(secret):
        text = f"{before}{written}{after}"
        assert written not in vault.hide_in_text(text) or written == "***"
        assert vault.knows(text.encode())


def test_escapes_are_seen_through_when_mixed_and_nested():
    vault = masking(SECRET)
    for written in (
        json.dumps(json.dumps({"a": SECRET})),
        quote(quote(SECRET)),
        "".join(f"%{byte:02x}" for byte in SECRET.encode()),
        "".join(f"\\u{ord(each):04X}" for each in SECRET),
        "".join(f"&#{ord(each)};" for each in SECRET),
        "".join(f"&#x{ord(each):x};" for each in SECRET),
        repr(SECRET.encode()),
        json.dumps(quote(SECRET)),
        html.escape(json.dumps(SECRET)),
        base64.b64encode(SECRET.encode()).decode().replace("+", "%2B").replace("/", "\\/"),
    ):
        hidden = vault.hide_in_text(f"a {written} b")
        assert "***" in hidden
        assert "s3cr" not in hidden
        assert "czNjc" not in hidden


def test_masked_json_stays_json():
    vault = masking('"quoted" \\ and so on')
    text = json.dumps({"a": ['"quoted" \\ and so on', 1], "b": "\\ x"})
    assert json.loads(vault.hide_in_text(text)) == {"a": ["***", 1], "b": "\\ x"}


def test_text_without_secrets_stays_as_it_is():
    vault = masking(SECRET, "hunter2")
    for text in (
        "",
        "hello",
        "100% of \\n & more",
        "a%2Fb",
        "&amp;&#9999999;&#xFFFFFF;",
        "%ff%fe",
        "\\ud800",
    ):
        assert vault.hide_in_text(text) == text
    assert not vault.knows(b"hello & 100% \\n")


def test_secrets_within_secrets_leave_nothing():
    vault = masking("abcd", "abcd/efgh", "efgh-ijkl")
    assert vault.hide_in_text("abcd%2Fefgh-ijkl abcd") == "*** ***"
    assert vault.hide_in_text("abcdabcd") == "******"


def test_base64_of_a_user_and_a_secret_hides_the_secret():
    vault = masking("open sesame")
    for user in ("a", "ab", "abc", "abcd"):
        encoded = base64.b64encode(f"{user}:open sesame".encode()).decode()
        hidden = vault.hide_in_text(f"Basic {encoded}")
        kept = hidden.removeprefix("Basic ").partition("***")[0]
        assert base64.b64decode(kept[: len(kept) // 4 * 4]).decode("latin-1") in f"{user}:"


def test_short_secrets_are_known_as_whole_values():
    vault = masking("abc", "7")
    assert vault.hide_in({"abc": "abc", "x": ["abcabc", 7, 17, True]}) == {
        "***": "***",
        "x": ["abcabc", "***", 17, True],
    }
    assert vault.knows(b'{"a": "abc"}')
    assert not vault.knows(b"nothing of it")


def test_values_are_copied_with_keys_and_numbers_masked():
    vault = masking("12345", "hunter2", "1.5")
    value = {"hunter2": [12345, 12346, "is hunter2", None, True, 1.5], "a": {"b": "12345"}}
    assert vault.hide_in(value) == {"***": ["***", 12346, "is ***", None, True, "***"], "a": {"b": "***"}}
    assert value["a"] == {"b": "12345"}
    untouched = {"a": [1]}
    assert SecretResolver({}).hide_in(untouched) is untouched
    assert SecretResolver({}).hide_in_text("anything") == "anything"


def test_a_numbered_escape_may_be_a_secret():
    assert masking("hunter2").knows(b'{"a": "\\u0068unter2"}')
    assert masking("hunter2").knows(repr("\x1b").encode())
    assert not SecretResolver({}).knows(b"\\u0041")


@pytest.mark.parametrize(
    "raw",
    [
        b"100%41",
        b"&#104;&#117;nter2",
        b"\\x68unter2",
        "hunter2".encode("utf-16"),
        b'{"nested": "{\\"a\\": \\"hunter2\\"}"}',
        b"hunter2",
        b"aHVudGVyMg",
    ],
)
def test_the_quick_look_misses_nothing(raw):
    assert masking("hunter2").knows(raw)


def test_the_quick_look_spares_what_most_answers_have():
    vault = masking("hunter2", 'key-"7f/c+d')
    assert not vault.knows(b'{"name": "50% & more", "path": "a\\/b", "line": "a\\nb", "odd": "\\"%"}')


def test_escapes_of_another_text_do_not_hide_a_secret_with_signs():
    vault = masking('key-"7f"/3a')
    nested = json.dumps(json.dumps({"a": 'key-"7f"/3a'}))
    assert vault.knows(nested.encode())
    assert "7f" not in vault.hide_in_text(nested)


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-16-be", "latin-1"])
@pytest.mark.parametrize("secret", ["hunter2-and-more", "pässwörd-geheim"])
@pytest.mark.parametrize("around", [("", ""), ("GIF89a\x01\x02", "\x03"), ("a text ", "\n")])
def test_secrets_are_found_in_bytes_of_any_kind(secret, charset, around):
    vault = masking(secret)
    assert vault.is_in(secret.join(around).encode(charset))
    assert not vault.is_in("nothing of it".join(around).encode(charset))


@pytest.mark.parametrize("around", [b"%b", b"\x01\x02%b\xff\x00"])
def test_escaped_secrets_are_found_in_bytes_of_any_kind(around):
    vault = masking("hunter2-and-more")
    for escaped in (b"%68%75%6e", b"&#104;&#117;&#110;", b"\\u0068\\u0075\\u006e", b"\\x68\\x75\\x6e"):
        assert vault.is_in(around % (escaped + b"ter2-and-more"))
        assert not vault.is_in(around % (escaped + b"ter3-and-more"))
    assert vault.is_in(around % base64.b64encode(b"u:hunter2-and-more"))
    assert not SecretResolver({}).is_in(around % b"hunter2-and-more")


def test_a_large_image_is_looked_through_without_its_escapes_being_undone():
    image = bytes(range(256)) * (20_000 if THOROUGH else 4_000)
    assert not masking("hunter2", "pässwörd").is_in(image)
    assert masking("hunter2").is_in(image + b"hunter2" + image)


@pytest.mark.parametrize(
    "text",
    ["h\0u\0n\0t\0e\0r\0Ä", "hunterä", "hunterÃ\x84", "hunter\ufffd"],
    ids=["nul", "host", "utf8", "latin1"],
)
def test_a_secret_is_hidden_where_its_charset_or_case_was_lost(text):
    vault = masking("hunterÄ")
    assert vault.hide_in_text(f"at {text}.") == "at ***."


def test_nothing_and_the_mask_itself_are_no_secrets():
    vault = masking("", "***")
    assert vault.known == frozenset()
    assert vault.hide_in_text("***") == "***"


def test_registering_again_changes_nothing():
    vault = masking("hunter2", "hunter2")
    assert vault.known == {"hunter2"}


def test_of_what_passes_only_the_latest_is_remembered():
    vault = masking("for-good")
    for number in range(1000):
        vault.register(f"signature-{number:04}", passing=True)
        vault.register("a-token-in-use", passing=True)
        if number % 100 == 0:
            assert vault.hide_in_text(f"x signature-{number:04}") == "x ***"
    assert len(vault.known) < 200
    assert vault.hide_in_text("for-good a-token-in-use signature-0999") == "*** *** ***"
    assert vault.hide_in_text("signature-0001") == "signature-0001"


def test_what_passes_stays_once_it_is_registered_for_good():
    vault = SecretResolver({})
    vault.register("a-token", passing=True)
    vault.register("a-token")
    for number in range(500):
        vault.register(f"signature-{number:04}", passing=True)
    assert vault.hide_in_text("a-token") == "***"


def test_what_passes_is_masked_until_its_call_ends():
    vault = SecretResolver({})
    with one_call():
        for number in range(1000):
            vault.register(f"signature-{number:04}", passing=True)
        vault.register("for-good")
        assert vault.hide_in_text("x signature-0000 y") == "x *** y"
        assert vault.hide_in({"signature-0001": [5, "signature-0002"]}) == {"***": [5, "***"]}
        assert vault.knows(b"a signature-0003")
        with one_call():
            assert vault.hide_in_text("x signature-0004 y") == "x *** y"
    assert vault.hide_in_text("signature-0000 for-good") == "signature-0000 ***"
    assert vault.known == {"for-good"}


async def test_calls_at_once_do_not_forget_what_passes_in_each_other():
    vault = SecretResolver({})
    all_registered = asyncio.Barrier(300)

    async def call(number):
        with one_call():
            vault.register(f"12345{number:03}", passing=True)
            await all_registered.wait()
            return vault.hide_in([int(f"12345{number:03}"), f"12345{number:03}"]), len(vault._known())

    told = await asyncio.gather(*map(call, range(300)))
    assert told == [(["***", "***"], 1)] * 300


def test_values_are_copied_as_deep_as_results_may_be():
    vault = masking("hunter2")
    for depth in (100, 101, 900):
        value = "hunter2"
        for _ in range(depth):
            value = [value]
        copy = vault.hide_in(value)
        levels = 0
        while isinstance(copy, list):
            (copy,) = copy
            levels += 1
        assert (copy, levels) == ("***", min(depth, 101))


def test_long_texts_and_secrets_take_linear_time():
    vault = masking("\\" * 50, "%" * 50, "x" * 5000)
    hostile = ("\\" * 20000) + ("%25" * 20000) + ("&#" * 20000) + ("x" * 4999 + "y") * 10
    assert "***" in vault.hide_in_text(hostile)


def test_a_vault_tells_nothing_of_itself():
    vault = masking(SECRET, "hunter2")
    vault.hide_in_text("a % b")
    for text in (repr(vault), str(vault), f"{vault}"):
        assert "hunter2" not in text


# What is logged.


class Kept(logging.Handler):
    """A handler that keeps what others would write."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


@pytest.fixture
def lines():
    handler = Kept()
    loggers = [logging.getLogger(name) for name in ("toolcrib", "toolcrib.http", "httpcore.http11")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    logging.getLogger().addHandler(handler)
    yield handler.lines
    logging.getLogger().removeHandler(handler)
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


class Unprintable:
    """Something that can't be written, but says what it is."""

    def __str__(self):
        raise RuntimeError("hunter2-in-an-error")

    def __repr__(self):
        return "<holds hunter2-in-an-error>"


@pytest.mark.parametrize("name", ["toolcrib", "toolcrib.http", "httpcore.http11"])
def test_records_are_masked(lines, name):
    vault = masking("hunter2-in-an-error")
    log = logging.getLogger(name)
    log.info("with %s and %d", "hunter2-in-an-error", 5)
    log.info("plain %s", "words")
    try:
        int("hunter2-in-an-error")
    except ValueError:
        log.exception("failed", stack_info=True)
    try:
        int("harmless")
    except ValueError:
        log.exception("failed")
    log.info("%s", Unprintable())
    text = "\n".join(lines)
    assert "hunter2" not in text.replace("test_vault", "")
    assert lines[0] == "with *** and 5"
    assert lines[1] == "plain words"
    assert "literal for int() with base 10: '***'" in lines[2]
    assert "Stack (most recent call last)" in lines[2]
    assert "base 10: 'harmless'" in lines[3]
    assert lines[4] == "%s (<holds ***>,)"
    assert vault.known


def test_a_traceback_that_was_written_before_is_masked_too(lines):
    vault = masking("hunter2-in-an-error")
    log = logging.getLogger("toolcrib")
    record = log.makeRecord(log.name, logging.INFO, "f", 1, "m", (), None)
    record.exc_text = "Trace: hunter2-in-an-error"
    log.handle(record)
    assert lines == ["m\nTrace: ***"]
    assert vault.known


def test_logs_are_left_alone_when_no_vault_is_in_use(lines):
    vault = masking("hunter2-in-an-error")
    del vault
    gc.collect()
    logging.getLogger("toolcrib").info("hunter2-in-an-error")
    assert lines == ["hunter2-in-an-error"]


def test_a_thousand_vaults_are_masked_by_one_filter():
    for _ in range(1000):
        masking("hunter2-in-an-error")
    vault = masking("hunter2-in-an-error")
    vault.register("one more", passing=True)
    (ours,) = [each for each in logging.getLogger("toolcrib").filters if hasattr(each, "masks")]
    gc.collect()
    assert sum(each() is not None for each in ours.masks) <= 2


def test_a_vault_that_forgets_its_first_secret_is_listed_once():
    vault = SecretResolver({})
    vault.register("first-one", passing=True)
    vault._forget("first-one")
    vault.register("second-one", passing=True)
    (ours,) = [each for each in logging.getLogger("toolcrib").filters if hasattr(each, "masks")]
    assert sum(each() is vault for each in ours.masks) == 1


def test_importing_the_vault_imports_nothing_heavy():
    heavy = {"logging", "ssl", "asyncio", "keyring", "urllib.parse", "importlib.metadata", "http"}
    code = f"import sys, toolcrib.security.redaction; before = set(sys.modules); import toolcrib.security.secrets; print(sorted({heavy} & (sys.modules.keys() - before)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert out.stdout.strip() == "[]"
