"""Results without the secrets that the other side has put into them."""

from __future__ import annotations

from base64 import b64decode

from toolcrib.core.model import Content, Result
from toolcrib.security.secrets import Vault


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
        raw_value=vault.hide_in(result.raw_value),
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
    part = part._replace(
        text=_text(part.text, vault),
        mime_type=_text(part.mime_type, vault),
        uri=_text(part.uri, vault),
        title=_text(part.title, vault),
    )
    raw = b64decode(part.data) if part.data else b""
    if not vault.is_in(raw):
        return part
    what = part.mime_type or part.type
    return Content("text", text=f"the content ({what}, {len(raw):,} bytes) was withheld: it holds a secret")


def _text(text: str | None, vault: Vault) -> str | None:
    return None if text is None else vault.hide_in_text(text)
