"""Results without the secrets that the other side has put into them."""

from __future__ import annotations

from toolcrib.http import Response
from toolcrib.model import Result
from toolcrib.vault import Vault


def may_tell(vault: Vault, response: Response) -> bool:
    """Whether an answer may hold a secret: a quick look, which may spare a long one."""
    if vault.knows(response.body):
        return True
    return any(vault.knows(value.encode("latin-1")) for _name, value in response.headers)


def masked(result: Result, vault: Vault) -> Result:
    """The result without secrets, wherever the other side has put them."""
    parts = tuple(
        part if part.text is None else part._replace(text=vault.hide_in_text(part.text))
        for part in result.content
    )
    meta = vault.hide_in(dict(result.meta))
    error = result.error
    if error is not None:
        details = vault.hide_in(dict(error.details))
        error = error._replace(
            message=vault.hide_in_text(error.message),
            details=details if isinstance(details, dict) else {},
        )
    return result._replace(
        value=vault.hide_in(result.value),
        content=parts,
        message=vault.hide_in_text(result.message),
        error=error,
        meta=meta if isinstance(meta, dict) else {},
    )
