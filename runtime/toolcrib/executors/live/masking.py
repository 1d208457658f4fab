"""Results without the secrets that the other side has put into them."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from toolcrib.executors.live.media import media_type
from toolcrib.executors.live.reading import Read
from toolcrib.http import Response
from toolcrib.model import Content, Result
from toolcrib.vault import Vault

_UTF8: Final = frozenset({"", "utf-8", "utf8", "ascii", "us-ascii"})


def may_tell(vault: Vault, response: Response) -> bool:
    """Whether an answer may hold a secret: a quick look, which may spare a long one."""
    charset = media_type(response.header("content-type") or "").charset
    if charset not in _UTF8 or vault.knows(response.body):
        return True
    return vault.knows("\n".join([value for _name, value in response.headers]).encode("latin-1"))


def masked_read(read: Read, vault: Vault) -> Read:
    """What was read of an answer, without secrets: half a secret would not be known for one."""
    envelope = read.envelope
    hidden = {key: vault.hide_in(envelope[key]) for key in ("headers", "body")}
    return read._replace(envelope={**envelope, **hidden})


def masked(result: Result, vault: Vault) -> Result:
    """The result without secrets, wherever the other side has put them.

    A part of bytes that hold one is withheld: a text stands in its place and says so, as does `meta.warnings`.
    """
    meta = vault.hide_in(dict(result.meta))
    error = result.error
    if error is not None:
        details = vault.hide_in(dict(error.details))
        error = error._replace(
            message=vault.hide_in_text(error.message),
            details=details if isinstance(details, dict) else {},
        )
    parts = tuple(_part(part, vault) for part in result.content)
    changed = result._replace(
        value=vault.hide_in(result.value),
        content=parts,
        message=vault.hide_in_text(result.message),
        error=error,
        meta=meta if isinstance(meta, dict) else {},
    )
    withheld = [
        after.text
        for before, after in zip(result.content, parts, strict=True)
        if before.data and not after.data
    ]
    if not withheld:
        return changed
    told = changed.meta.get("warnings")
    return changed.with_meta(warnings=[*(told if isinstance(told, list) else []), *withheld])


def _part(part: Content, vault: Vault) -> Content:
    if part.text is not None:
        part = part._replace(text=vault.hide_in_text(part.text))
    raw = b64decode(part.data) if part.data else b""
    if not vault.is_in(raw):
        return part
    what = vault.hide_in_text(part.mime_type or part.type)
    return Content("text", text=f"the content ({what}, {len(raw):,} bytes) was withheld: it holds a secret")
