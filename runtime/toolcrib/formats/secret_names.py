"""What usually holds a secret in recordings of requests, by its name."""

from __future__ import annotations

import re
from typing import Final

from toolcrib.core.model import JSON
from toolcrib.core.text import json_equal
from toolcrib.formats.request_names import words_of

_SECRET_WORDS: Final = re.compile(
    r"password|passwd|passphrase|pwd|secret|api_?key|access_?key|private_?key|access_?token|refresh_?token|id_?token"
    r"|auth_?token|session_?(id|token|key)|authorization|credentials?|csrf|xsrf|jwt|signature|sid"
)
_SECRET_ENDS: Final = re.compile(r"(^|_)(token|auth|session|sessionid|key_id|otp|pin)$")
_NOT_SECRET: Final = re.compile(
    r"(page|next|prev|previous|continuation|cursor|sync|max|min|type|count|tokens|expires?)_?token|token_?(type|count|limit)|public_key|has_|is_"
)


def is_secret_name(name: str) -> bool:
    """Whether a header, parameter or member of this name usually holds a secret."""
    words = "_".join(words_of(name))
    if _NOT_SECRET.search(words):
        return False
    found = _SECRET_WORDS.search(words) is not None or _SECRET_ENDS.search(words) is not None
    return found or words.replace("_", "") in {"apikey", "appkey", "xapikey"}


HIDDEN: Final = "***"
"""What is written in place of a secret of a response."""


def without_secret_members(value: JSON) -> JSON:
    """A value in which the texts of members with the name of a secret are hidden."""
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if isinstance(item, str) and item and is_secret_name(key)
            else without_secret_members(item)
            for key, item in value.items()
        }
    return [without_secret_members(item) for item in value] if isinstance(value, list) else value


def has_secret_member(value: JSON) -> bool:
    """Whether a value contains a member with the name of a secret."""
    return not json_equal(without_secret_members(value), value)
