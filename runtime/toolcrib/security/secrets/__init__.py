"""The one way to a secret: looks up what `${...}` names, and knows what must be masked."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.security.secrets.redactor import Masks
from toolcrib.security.secrets.variables import Variable, check_variables, pieces_of, plain, variables_of

__all__ = [
    "MissingSecret",
    "UnusableSecret",
    "Variable",
    "Vault",
    "check_variables",
    "pieces_of",
    "plain",
    "variables_of",
]

_LARGEST: Final = 64 * 1024
"""Bytes of a file that holds one secret."""


class Keyring(Protocol):
    """What the vault asks for entries of the system's keyring; the module `keyring` is one."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """The secret, or None where there is no such entry."""
        ...


class MissingSecret(ToolcribError):
    """Something that a document names in `${...}` is not there, or can't be read.

    Attributes:
        variable: What was looked for; None where the fault is in what is written in the document.
        pointer: JSON Pointer of the text that names it, where that is known.
    """

    code = "missing_secret"

    def __init__(self, variable: Variable | None, message: str, *, hint: str, pointer: str = "") -> None:
        super().__init__(message, hint=hint)
        self.variable = variable
        self.pointer = pointer

    def at(self, pointer: str) -> MissingSecret:
        """The same error, with its place in the descriptor."""
        return type(self)(self.variable, self.message, hint=self.hint, pointer=pointer)


class UnusableSecret(MissingSecret):
    """A secret is there and can't be sent where it belongs, e.g. for a line break within it."""

    code = "unusable_secret"


class Vault(Masks):
    """Looks up secrets and masks them.

    Args:
        environment: Where `${VAR}` is looked up.
        keyring: Where `${keyring:service/user}` is looked up; the system's keyring unless given.
    """

    def __init__(
        self, environment: Mapping[str, str] = os.environ, *, keyring: Keyring | None = None
    ) -> None:
        super().__init__()
        self._environment = environment
        self._keyring = keyring

    def look_up(self, variable: Variable, *, secret: bool = True) -> str:
        """The value that a variable stands for; registered unless it is no secret or written in the document.

        An empty value counts as none. One newline at the end of a file does not belong to its value.

        Raises:
            MissingSecret: There is none and no default, or it can't be read.
        """
        if variable.source == "env":
            value = self._from_environment(variable)
        elif variable.source == "file":
            value = self._from_file(variable)
        else:
            value = self._from_keyring(variable)
        if not value and variable.default is not None:
            return variable.default
        if not value:
            raise self._missing(variable)
        if secret:
            self.register(value)
        return value

    def fill(self, text: str, *, secret: bool = True, pointer: str = "") -> str:
        """A text without expressions, with everything looked up in place.

        Raises:
            ExpressionError: A look-up is written wrong.
            MissingSecret: As `look_up` does, with `pointer`.
        """
        try:
            return "".join(
                plain(piece) if isinstance(piece, str) else self.look_up(piece, secret=secret)
                for piece in pieces_of(text)
            )
        except MissingSecret as error:
            raise error.at(pointer) from None

    def _from_environment(self, variable: Variable) -> str:
        value = self._environment.get(variable.name, "")
        if any("\ud800" <= character <= "\udfff" for character in value):
            message = f"`{variable.name}` in the environment is not UTF-8"
            raise MissingSecret(variable, message, hint="set it to text")
        return value

    def _from_file(self, variable: Variable) -> str:
        try:
            path = Path(variable.name).expanduser()
            if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe may wait for ever
                raise _unreadable(variable, "is not a file")
            with path.open("rb") as file:
                raw = file.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, ValueError, RuntimeError):  # a path with a NUL; a `~` without a home
            raise _unreadable(variable, "can't be read") from None
        if len(raw) > _LARGEST:
            raise _unreadable(variable, f"has more than {_LARGEST} bytes")
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _unreadable(variable, "is not UTF-8") from None
        return text.removesuffix("\n").removesuffix("\r")

    def _from_keyring(self, variable: Variable) -> str:
        service, _slash, user = variable.name.rpartition("/")
        keyring = self._keyring or _system_keyring(variable)
        try:
            return keyring.get_password(service, user) or ""
        except Exception as error:  # noqa: BLE001 -- backends of keyrings raise what they like
            message = f"the keyring failed to look up `{variable.name}` ({type(error).__name__})"
            hint = "try `python -m keyring get SERVICE USER`; it may be locked, or there may be no backend"
            raise MissingSecret(variable, message, hint=hint) from None

    def _missing(self, variable: Variable) -> MissingSecret:
        name = variable.name
        if variable.source == "env":
            known = name in self._environment
            message = f"`{name}` is {'empty' if known else 'not set'} in the environment"
            near = "" if known else did_you_mean(name, self._environment)
            hint = f"{near or 'set it'}, or write a default: `${{{name}:-...}}`".replace("?,", "? Set it,")
        elif variable.source == "file":
            message = f"the file `{name}` is empty or does not exist"
            hint = "write the secret into it, and nothing else"
        else:
            service, _slash, user = name.rpartition("/")
            message = f"the keyring has no entry `{name}`"
            hint = f"add it with `keyring set {service} {user}`"
        return MissingSecret(variable, message, hint=hint)


def _unreadable(variable: Variable, why: str) -> MissingSecret:
    hint = "it holds the secret and nothing else, as UTF-8 text, readable by this process"
    return MissingSecret(variable, f"`{variable.name}` {why}", hint=hint)


def _system_keyring(variable: Variable) -> Keyring:
    try:
        import keyring  # noqa: PLC0415 -- an extra
    except ImportError:
        message = f"`{variable.text}` needs the package `keyring`, which is not installed"
        raise MissingSecret(variable, message, hint="pip install 'toolcrib[keyring]'") from None
    return keyring
