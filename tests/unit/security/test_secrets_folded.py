"""Secrets that are written in other letters: in capitals, spaced, wrapped, in hexadecimal, with characters nobody sees."""

from __future__ import annotations

import base64
import json
import random
import string
import sys
import unicodedata

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sampling import examples, sample
from toolcrib.security.secret_encodings import FoldedText, fold
from toolcrib.security.secrets import SecretResolver

UNSEEN = [
    *range(0x200B, 0x2010),
    *range(0x2060, 0x2065),
    0xFEFF,
    0xAD,
    0x180E,
    0xFE0F,
    0xE0100,
    0xE0041,
    0x2800,
]


def masking(*secrets):
    vault = SecretResolver({})
    for secret in secrets:
        vault.register(secret)
    return vault


def wrapped(text, width, end):
    return end.join(text[start : start + width] for start in range(0, len(text), width))


def full_width(text):
    return "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in text)


def hexadecimal(secret):
    """The ways in which programs print bytes."""
    raw = secret.encode()
    digits = raw.hex()
    yield from [digits, digits.upper()]
    for sign in (":", "-", " ", ".", ", ", "\n"):
        yield sign.join(f"{byte:02x}" for byte in raw)
        yield sign.join(f"{byte:02X}" for byte in raw)
    yield wrapped(digits, 4, " ")
    yield wrapped(digits, 32, "\r\n  ")
    for sign in ("", " ", ", ", ",\n"):
        yield sign.join(f"0x{byte:02x}" for byte in raw)
    yield " ".join(f"0x{byte:02X}" for byte in raw)
    yield "".join(f"\\x{byte:02X}" for byte in raw)
    if secret.isascii():  # else the bytes of one character, taken apart, are read as several
        yield " ".join(f"\\x{byte:02x}" for byte in raw)


def loosened(text):
    """The ways in which people and programs take the characters of a text apart."""
    for sign in (" ", ".", "-", "_", "\n", "\t", " - ", "\u00a0", "\u2011"):
        yield sign.join(text)
    for code in UNSEEN:
        yield chr(code).join(text)
    yield wrapped(text, 5, "\n")
    yield wrapped(text, 7, "\r\n    ")


def forms(secret):
    """A secret in every form in which its letters or their order in the text are not what they were."""
    capitals = [secret.upper(), secret.lower(), secret.title(), secret.swapcase(), full_width(secret)]
    yield from capitals
    yield from hexadecimal(secret)
    for text in (secret, *capitals):
        yield from loosened(text)
    encoded = base64.b64encode(f"u:{secret}".encode() * 3).decode()
    yield from [
        wrapped(encoded, 76, "\n"),
        wrapped(encoded, 19, "\r\n"),
        " ".join(encoded),
        "\u200b".join(encoded),
    ]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        alone = encode(secret.encode()).decode()
        yield from [
            wrapped(alone, 8, "\n"),
            " ".join(alone),
            "\u200b".join(alone),
            " ".join(alone.rstrip("=")),
        ]


SECRETS = [
    "sk-live_4eC39HqLyj",
    "hunter2-and-more",
    "p@$$w0rd!#9zQ",
    "correct horse battery",
    "pässwört-Straße",
    "пароль и секрет",
]


@pytest.mark.parametrize("secret", sample(SECRETS, one_in=3))
def test_no_form_of_a_secret_is_missed_and_what_stands_around_it_stays(secret):
    vault = masking(secret, "another-one-77")
    for form in forms(secret):
        for before, after in (("", ""), ("({", "})"), ("it is «", "» ¿?\n"), ('{"a": "', '"}')):
            text = before + form + after
            hidden = vault.hide_in_text(text)
            assert hidden.startswith(before), form
            assert hidden.endswith(after), form
            middle = hidden[len(before) : len(hidden) - len(after)]
            assert "***" in middle
            assert len(fold(middle).replace("*", "")) <= 12, form  # of `u:` in base64 something is left
            assert vault.knows(text.encode())
            assert vault.is_in(text.encode())
            assert vault.knows(json.dumps({"a": text}).encode())
            assert vault.knows(json.dumps({"a": text}, ensure_ascii=False).encode())
            assert vault.hide_in({text: [text]}) == {hidden: [hidden]}


LETTERS = st.characters(exclude_categories=["Cs"])
AROUND = st.text("«»¿中文…\n\t ", max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.one_of(st.text(string.printable, min_size=8, max_size=64), st.text(LETTERS, min_size=8, max_size=64)),
    AROUND,
    AROUND,
    st.randoms(use_true_random=False),
)
def test_each_form_of_any_secret_is_hidden_and_the_text_around_it_stays(secret, before, after, chance):
    assume(len(fold(secret)) >= 8)
    assume(not set(fold(before + after)) & set(fold(secret)))
    assume(fold(secret[0]) and fold(secret[-1]))
    vault = masking(secret)
    for form in chance.sample(
        [*hexadecimal(secret), secret.upper(), *loosened(secret), *loosened(secret.upper())], 12
    ):
        text = before + form + after
        assert vault.hide_in_text(text) == before + "***" + after
        assert vault.knows(text.encode())


@settings(max_examples=examples(500))
@given(st.text(), st.sampled_from(["sk-live_4eC39HqLyj", "pässwört-Straße", "12345678"]))
@example("SK LIVE 4EC39HQLY", "sk-live_4eC39HqLyj")
@example("1234-5678-".replace("8", "9"), "12345678")
def test_a_text_without_the_secret_stays_as_it_is(text, secret):
    assume(fold(secret) not in fold(text))
    assert masking(secret).hide_in_text(text) == text


PROSE = (
    "A B C D and a.b.c.d, a-b-c-d: open sesame. The pass word is past; hunt er 2 of them.\n"
    "61 62 63 0x61 0x62 SESAME Abcd HUNTER"
)


def test_short_secrets_are_not_looked_for_in_other_letters():
    vault = masking("abcd", "sesame", "us-east-1", "pass-77", "a1-b2-c3")
    assert vault.hide_in_text(PROSE) == PROSE.replace("sesame", "***")
    assert vault.hide_in_text("US EAST 1, A1-B2-C3, a 1 b 2 c 3") == "US EAST 1, A1-B2-C3, a 1 b 2 c 3"
    assert vault.hide_in_text("PASS-77, us-east-1, abcdefg") == "PASS-77, ***, ***efg"


def test_the_bytes_of_a_short_secret_are_known_in_hexadecimal():
    vault = masking("abcd")
    assert vault.hide_in_text("61626364, 61:62:63:64 and 61 62 63") == "***, *** and 61 62 63"


def test_forms_are_seen_behind_escapes():
    vault = masking("hunter2-and-more")
    spaced, unseen = "h u n t e r 2 - a n d - m o r e", "\u200b".join("HUNTER2-AND-MORE")
    for text in (spaced, unseen, "hunter2-an\nd-more"):
        for written in (
            json.dumps(text),
            "".join(f"&#{ord(each)};" for each in text),
            json.dumps(json.dumps(text)),
        ):
            assert vault.knows(written.encode())
            hidden = vault.hide_in_text(f"<{written}>")
            assert "***" in hidden
            assert len(fold(hidden)) < 12


def test_a_backslash_before_a_secret_is_no_line_break():
    for secret in (
        "nice-secret-99",
        "top-secret-99",
        "r4nd0m-letters",
        r"C:\new\temp\r77",
        "n\\n\\nnnn-nnn-n",
    ):
        vault = masking(secret)
        for text in (
            f"CORP\\{secret}",
            json.dumps(f"a\n{secret}"),
            json.dumps(f"CORP\\{secret}"),
            f"\\n{secret}\\n",
        ):
            assert vault.knows(text.encode())
            hidden = vault.hide_in_text(text)
            assert "***" in hidden
            assert secret[2:] not in hidden


def test_secrets_in_utf8_are_found_in_bytes_of_any_kind():
    vault = masking("pässwörd-geheim")
    for text in ("PÄSSWÖRD-GEHEIM", "\u200b".join("pässwörd-geheim"), full_width("pässwörd-geheim")):
        assert vault.is_in(f"a {text} b".encode())
        assert not vault.is_in(f"a {text[:-1]} b".encode())


def test_of_forms_of_secrets_that_overlap_nothing_is_left():
    vault = masking("ABCDEFGHIJKL", "cdef", "klmnopqrst")
    assert vault.hide_in_text("(abcdefGHIJKLMNOPQRST)") == "(***)"


@given(st.text(LETTERS))
def test_a_text_is_folded_as_its_characters_are(text):
    folded = fold(text)
    assert folded == "".join(map(fold, text)) == fold(folded)
    assert fold(text.upper()) == fold(text.lower()) == fold(text.swapcase()) == folded


@pytest.mark.exhaustive
def test_case_and_width_of_no_character_matter():
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        others = {character.upper(), character.lower(), character.title(), character.casefold()}
        if others != {character}:
            assert {fold(other) for other in others} == {fold(character)}
    assert fold(full_width("Hunter2")) == fold("𝐇𝐮𝐧𝐭𝐞𝐫𝟐") == "hunter2"
    assert all(fold(chr(code)) == "" for code in UNSEEN)
    assert fold(" \t\r\n.,:-_+\\–\u00a0\u2028\x1b") == ""
    assert unicodedata.category(fold("é")) == "Ll"


@given(
    st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from("ab \u200bﬁﬀ㎏"), min_size=1, max_size=900
    ),
    st.data(),
)
def test_a_folded_text_knows_where_its_characters_stood(text, data):
    folded = FoldedText(text)
    assume(folded.text)
    start = data.draw(st.integers(0, len(folded.text) - 1))
    end = data.draw(st.integers(start + 1, len(folded.text)))
    first, last = folded.before(start, end)
    assert folded.text[start:end] in fold(text[first:last])
    assert fold(text[first]) != "" != fold(text[last - 1])
    assert len(fold(text[:first])) <= start < len(fold(text[: first + 1]))
    assert len(fold(text[: last - 1])) < end <= len(fold(text[:last]))


def test_long_texts_and_secrets_are_looked_through_in_linear_time():
    chance = random.Random(7)
    secrets = ["".join(chance.choices(string.ascii_letters, k=size)) for size in (8, 60, 60_000)]
    vault = masking(*secrets, "aaaaaaaaaaaaaaaaaaaab", "a b" * 9)
    hostile = "a " * 200_000 + "A\u200b" * 100_000 + "0x61, " * 50_000 + "61:" * 100_000
    assert "***" in vault.hide_in_text(hostile + " ".join(secrets[2]))
