"""Secrets that their form gives away: keys of well-known services, tokens, private keys, and credentials in URLs."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple


class SecretForm(NamedTuple):
    """A form of secrets.

    Attributes:
        name: Name of the environment variable that usually holds one.
        pattern: Matches the secret: its group `secret`, or all of the match.
        marks: Texts of which the text contains one if the pattern matches: to look for them takes a hundredth of the time.
    """

    name: str
    pattern: re.Pattern[str]
    marks: tuple[str, ...]


def _form(name: str, pattern: str, *marks: str) -> SecretForm:
    return SecretForm(name, re.compile(pattern), marks)


_BASIC: Final = "CREDENTIALS"

FORMS: Final = (
    _form(
        "PRIVATE_KEY",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]{0,20000}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----",
        "PRIVATE KEY-----",
    ),
    _form("ANTHROPIC_API_KEY", r"\bsk-ant-[A-Za-z0-9_-]{20,}", "sk-ant-"),
    _form("OPENROUTER_API_KEY", r"\bsk-or-[A-Za-z0-9_-]{20,}", "sk-or-"),
    _form("OPENAI_API_KEY", r"\bsk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}", "sk-"),
    _form("STRIPE_API_KEY", r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{10,}", "k_live_", "k_test_"),
    _form("STRIPE_WEBHOOK_SECRET", r"\bwhsec_[A-Za-z0-9+/=]{16,}", "whsec_"),
    _form(
        "GITHUB_TOKEN",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
        *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    _form(
        "GITLAB_TOKEN",
        r"\bgl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt)-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}",
        *("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "glagent-", "glimt-"),
    ),
    _form("SLACK_TOKEN", r"\bxox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-[0-9]-[A-Za-z0-9-]{10,}", "xox", "xapp-"),
    _form(
        "SLACK_WEBHOOK",
        r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}",
        "hooks.slack.com/",
    ),
    _form("AWS_ACCESS_KEY_ID", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b", "AKIA", "ASIA", "ABIA", "ACCA"),
    _form("GOOGLE_API_KEY", r"\bAIza[A-Za-z0-9_-]{35}", "AIza"),
    _form("GOOGLE_TOKEN", r"\bya29\.[A-Za-z0-9_-]{20,}", "ya29."),
    _form("GOOGLE_CLIENT_SECRET", r"\bGOCSPX-[A-Za-z0-9_-]{20,}", "GOCSPX-"),
    _form("NPM_TOKEN", r"\bnpm_[A-Za-z0-9]{36}\b", "npm_"),
    _form("PYPI_TOKEN", r"\bpypi-[A-Za-z0-9_-]{40,}", "pypi-"),
    _form("HF_TOKEN", r"\bhf_[A-Za-z0-9]{20,}", "hf_"),
    _form("SENDGRID_API_KEY", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", "SG."),
    _form("TWILIO_API_KEY", r"\bSK[0-9a-f]{32}\b", "SK"),
    _form("MAILGUN_API_KEY", r"\bkey-[0-9a-f]{32}\b", "key-"),
    _form("DIGITALOCEAN_TOKEN", r"\bdo[opr]_v1_[0-9a-f]{40,}", "_v1_"),
    _form("SHOPIFY_TOKEN", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", "shp"),
    _form("LINEAR_API_KEY", r"\blin_api_[A-Za-z0-9]{30,}", "lin_api_"),
    _form("NOTION_TOKEN", r"\b(?:secret_|ntn_)[A-Za-z0-9]{40,}", "secret_", "ntn_"),
    _form("TELEGRAM_TOKEN", r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b", ":AA"),
    _form("VAULT_TOKEN", r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}", "hvs.", "hvb.", "hvr."),
    _form("TOKEN", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "eyJ"),
    # A word of prose, as in "bearer authentication", has no digit.
    _form(
        "TOKEN",
        r"(?i:\bbearer)[ \t]{1,8}(?=[A-Za-z._~+/-]{0,64}[0-9])(?P<secret>[A-Za-z0-9._~+/-]{16,}=*)",
        *("earer", "EARER"),
    ),
    _form(
        _BASIC,
        r"(?i:\bbasic)[ \t]{1,8}(?P<secret>[A-Za-z0-9+/]{8,}={0,2})(?![A-Za-z0-9+/=])",
        *("asic", "ASIC"),
    ),
    # The user info of a URL: `https://user:secret@host`.
    _form(
        "PASSWORD",
        r"\b[a-z][a-z0-9+.-]{1,30}://[^\s/@:?#'\"]{0,256}:(?P<secret>[^\s/@'\"{}$]{1,256})@",
        "://",
    ),
)
"""The forms, in the order in which they are tried."""


class FoundSecret(NamedTuple):
    """A secret in a text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        name: Name of the environment variable that usually holds one.
    """

    start: int
    end: int
    name: str


def secrets_in(text: str) -> Iterator[FoundSecret]:
    """The secrets in a text that their form gives away, from left to right, without overlaps."""
    # Every form is longer, and most texts are short.
    if len(text) < _SHORTEST:
        return
    found = [
        FoundSecret(*match.span("secret" if "secret" in form.pattern.groupindex else 0), form.name)
        for form in FORMS
        if any(mark in text for mark in form.marks)
        for match in form.pattern.finditer(text)
        if form.name != _BASIC or _is_user_and_password(match["secret"])
    ]
    end = 0
    for each in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if each.start >= end:
            yield each
            end = each.end


_SHORTEST: Final = 8


def _is_user_and_password(text: str) -> bool:
    """Whether a text is base64 of `user:password`; a word of prose after "basic" is not."""
    try:
        return b":" in b64decode(text, validate=True)
    except ValueError:
        return False


_TOKEN: Final = re.compile(r"[A-Za-z0-9_+/=.~-]{20,512}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_LEAST_ENTROPY: Final = 3.0
"""Bits per character: those of random hexadecimal digits, of which 20 characters have about 3.3."""


def is_random(text: str) -> bool:
    """Whether a text looks like a random key: one long word with letters and digits and high entropy, and no UUID."""
    if not _TOKEN.fullmatch(text) or _UUID.fullmatch(text):
        return False
    mixed = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    return mixed and _entropy(text) >= _LEAST_ENTROPY


def _entropy(text: str) -> float:
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
