"""Answers without the secrets that the other side has put into them."""

from __future__ import annotations

from typing import Final

from toolcrib.executors.live.media_types import media_type
from toolcrib.executors.live.response import Read
from toolcrib.http import HTTPResponse
from toolcrib.security.secrets import SecretResolver

_UTF8: Final = frozenset({"", "utf-8", "utf8", "ascii", "us-ascii"})


def may_tell(vault: SecretResolver, response: HTTPResponse) -> bool:
    """Whether an answer may hold a secret: a quick look, which may spare a long one."""
    charset = media_type(response.header("content-type") or "").charset
    if charset not in _UTF8 or vault.knows(response.body):
        return True
    return vault.knows("\n".join([value for _name, value in response.headers]).encode("latin-1"))


def masked_read(read: Read, vault: SecretResolver) -> Read:
    """What was read of an answer, without secrets: half a secret would not be known for one."""
    envelope = read.envelope
    hidden = {key: vault.hide_in(envelope[key]) for key in ("headers", "body")}
    return read._replace(envelope={**envelope, **hidden})
