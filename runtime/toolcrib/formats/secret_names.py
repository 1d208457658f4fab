"""What holds a secret in recordings of requests, by its name."""

from __future__ import annotations

import re
from typing import Final

from toolcrib.core.model import JSON
from toolcrib.core.text import json_equal
from toolcrib.formats.imports.secrets import tells_secret
from toolcrib.formats.request_names import words_of

_OF_SESSIONS: Final = re.compile(
    r"(^|_)(sid|csrf|xsrf|session|session_?id|session_?key|sessionid|signature|sig|otp|pin|auth|access_?key_?id|app_?key)$"
)
"""Names in requests of browsers, besides those that are secrets everywhere."""


def is_secret_name(name: str) -> bool:
    """Whether a header, cookie, parameter or member of this name holds a secret."""
    return tells_secret(name) or _OF_SESSIONS.search("_".join(words_of(name))) is not None


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
