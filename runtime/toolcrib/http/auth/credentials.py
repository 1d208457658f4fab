"""Values of an `auth` block: checked when a document is loaded, resolved when a tool is bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, Severity
from toolcrib.http.headers import cookie_fault
from toolcrib.security.redaction import secret_part
from toolcrib.security.secrets import (
    MissingSecret,
    SecretResolver,
    SecretVariable,
    UnusableSecret,
    split_variables,
    unescape_dollars,
)

CredentialPlace: TypeAlias = Literal["header", "query", "cookie", "basic", "form", "address"]
"""Where a value is sent, which determines the characters it may contain."""

STAND_IN: Final = "x"
"""Placeholder for a value that is not resolved yet or is invalid."""

_EXPRESSION: Final = re.compile(r"\{\{|\{%|\{#")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


class AuthFields:
    """The keys of one scheme.

    Attributes:
        block: The scheme as written.
        pointer: Its pointer in the document.
        secrets: Resolves secrets; None while a document is only checked.
    """

    def __init__(
        self, block: Mapping[str, Any], pointer: str, problems: list[Problem], secrets: SecretResolver | None
    ) -> None:
        self.block = block
        self.pointer = pointer
        self.secrets = secrets
        self._problems = problems

    def __contains__(self, key: str) -> bool:
        return key in self.block

    def choice(self, key: str, default: str = "") -> str:
        """The value of a key without variables."""
        return str(self.block.get(key, default))

    def tell(
        self, code: str, message: str, key: str = "", *, hint: str = "", severity: Severity = "error"
    ) -> None:
        """Report a problem of a key or of the whole scheme."""
        place = f"{self.pointer}/{key}" if key else self.pointer
        self._problems.append(
            Problem(code=code, message=message, pointer=place, hint=hint, severity=severity)
        )

    def secret(self, key: str, place: CredentialPlace, *, blank: bool = False) -> str:
        """A value that is secret even if it is written in the document. It is registered unless it is a default.

        Raises:
            MissingSecret: It is missing, empty (unless `blank`) or cannot be sent.
        """
        pieces = self._pieces(key)
        looked_up = any(isinstance(piece, SecretVariable) for piece in pieces)
        if pieces and not looked_up:
            message = f"the secret `{key}` is in the document, readable by anyone who can open it"
            hint = f"put it in the environment and write `{key}: ${{{self._suggested(key)}}}`"
            self.tell("literal_secret", message, key, hint=hint, severity="warning")
        text = self._filled(key, place, pieces)
        if not text and not blank:
            raise MissingSecret(
                _first(pieces),
                f"the secret `{key}` is empty",
                hint="set a value; without it no call is sent",
                pointer=f"{self.pointer}/{key}",
            )
        # A default is public in the document; masking a common word such as `test` would garble every output.
        if self.secrets is not None and text != _written(pieces):
            self.secrets.register(text)
        return text

    def text(self, key: str, place: CredentialPlace) -> str:
        """A value of which only resolved variables are secret; in an address only the part after the host.

        Raises:
            MissingSecret: A variable is missing or cannot be sent.
        """
        return self._filled(key, place, self._pieces(key))

    def _pieces(self, key: str) -> list[str | SecretVariable]:
        text = str(self.block[key])
        try:
            pieces = split_variables(text)
        except ExpressionError as error:
            self.tell(error.code, error.message, key, hint=error.hint)
            return [_UNREAD]
        if any(isinstance(piece, str) and _EXPRESSION.search(piece) for piece in pieces):
            message = "`auth` cannot contain expressions: it is the same for every call"
            hint = "use a variable, `${VAR}`; for values that differ from call to call use `type: python`"
            self.tell("expression_not_allowed", message, key, hint=hint)
            return [_UNREAD]
        return pieces

    def _filled(self, key: str, place: CredentialPlace, pieces: list[str | SecretVariable]) -> str:
        if self.secrets is None:
            known = [
                piece.default if isinstance(piece, SecretVariable) else unescape_dollars(piece)
                for piece in pieces
            ]
            text = STAND_IN if None in known else "".join(map(str, known))
            fault = credential_fault(text, place)
            if fault:
                self.tell("unusable_credential", f"`{key}` {fault}", key, hint="fix it or remove it")
            return text or STAND_IN
        at = f"{self.pointer}/{key}"
        text = ""
        try:
            for piece in pieces:
                if isinstance(piece, str):
                    text += unescape_dollars(piece)
                    continue
                value = self.secrets.look_up(piece, secret=place != "address")
                # Scheme, host and port stay visible: errors and egress rules name them.
                if place == "address" and value != piece.default:
                    self.secrets.register(secret_part(text, value))
                text += value
        except MissingSecret as error:
            raise error.at(at) from None
        fault = credential_fault(text, place)
        if fault:
            name = next((f" (`{piece.text}`)" for piece in pieces if isinstance(piece, SecretVariable)), "")
            hint = "the value is used unchanged; only one newline at the end of a file is removed"
            raise UnusableSecret(_first(pieces), f"`{key}`{name} {fault}", hint=hint, pointer=at)
        return text

    def _suggested(self, key: str) -> str:
        return "API_KEY" if key == "value" else key.upper()


_UNREAD: Final = SecretVariable("env", "", STAND_IN, "")
"""Placeholder for an invalid value."""


def _first(pieces: list[str | SecretVariable]) -> SecretVariable | None:
    return next((piece for piece in pieces if isinstance(piece, SecretVariable)), None)


def _written(pieces: list[str | SecretVariable]) -> str | None:
    """The value that the defaults in the document yield; None if a variable has no default or there is no variable."""
    texts = [
        piece.default if isinstance(piece, SecretVariable) else unescape_dollars(piece) for piece in pieces
    ]
    return None if None in texts or _first(pieces) is None else "".join(map(str, texts))


def credential_fault(text: str, place: CredentialPlace) -> str:
    """Why a value cannot be sent at a place, as a verb phrase that does not quote the value; empty if it can."""
    control = _CONTROL.search(text)
    if control is not None:
        kind = "a line break" if control[0] in "\r\n" else "a control character"
        return f"contains {kind} at character {control.start() + 1}"
    if place in {"header", "cookie"}:
        if text != text.strip():
            return "begins or ends with a space, which would be lost in transit"
        other = _NOT_ASCII.search(text)
        if other is not None:
            return f"contains a non-ASCII character at character {other.start() + 1}"
        if place == "cookie":
            return cookie_fault(text)
    if place == "basic" and ":" in text:
        return f"contains a `:` at character {text.index(':') + 1}, which would end the user name (RFC 7617 section 2)"
    return ""
