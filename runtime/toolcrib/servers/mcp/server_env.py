"""The texts of a server, with what `${...}` names in them looked up, and all that is missing for that."""

from __future__ import annotations

from collections.abc import Callable

from toolcrib.core.server_config import Server
from toolcrib.security.redaction import is_secret_name, secret_part
from toolcrib.security.secrets import MissingSecret, Variable, Vault, pieces_of, plain
from toolcrib.security.server_display import written_secrets

Secret = Callable[[Variable], bool]
"""Whether what a variable stands for is masked."""


def never(_variable: Variable) -> bool:
    """What everybody may see: commands, folders."""
    return False


def telling(variable: Variable) -> bool:
    """A value with a default that anybody can read, such as a time zone, is none, unless its name says otherwise."""
    return not variable.default or is_secret_name(variable.name)


class Texts:
    """Texts of a server with everything looked up; what is missing is told at the end, all of it.

    Secrets that are written out in its arguments or its url are masked from now on.

    Args:
        server: Whose they are: its folders (`${workspaceFolder}`) are known, and are no secrets.
        vault: Where the rest is looked up.
    """

    def __init__(self, server: Server, vault: Vault) -> None:
        self._known = server.folders()
        self._vault = vault
        self._missing: list[MissingSecret] = []
        for secret in written_secrets(server):
            vault.register(secret)

    def filled(self, text: str, pointer: str, *, secret: Secret = telling) -> str:
        """A text as it is meant."""
        return "".join(
            plain(piece) if isinstance(piece, str) else self._value(piece, pointer, secret(piece))
            for piece in pieces_of(text)
        )

    def named(self, name: str, text: str, pointer: str) -> str:
        """The text of a header or variable; what has the name of a secret is one, however it is written."""
        value = self.filled(text, pointer)
        if is_secret_name(name):
            self._vault.register(value)
        return value

    def address(self, text: str, pointer: str) -> str:
        """An address; what is looked up for it is masked where it stands behind the host."""
        whole = ""
        for piece in pieces_of(text):
            if isinstance(piece, str):
                whole += plain(piece)
                continue
            value = self._value(piece, pointer, False)
            self._vault.register(secret_part(whole, value))
            whole += value
        return whole

    def check(self) -> None:
        """Raise what is missing.

        Raises:
            MissingSecret: With the pointer of the first place, and the words of all.
        """
        if not self._missing:
            return
        first = self._missing[0]
        message = "; ".join(dict.fromkeys(f"{each.message} (at {each.pointer})" for each in self._missing))
        hint = "; ".join(dict.fromkeys(each.hint for each in self._missing if each.hint))
        raise type(first)(first.variable, message, hint=hint, pointer=first.pointer)

    def _value(self, variable: Variable, pointer: str, secret: bool) -> str:
        if variable.text == f"${{{variable.name}}}" and variable.name in self._known:
            return self._known[variable.name]
        try:
            return self._vault.look_up(variable, secret=secret)
        except MissingSecret as error:
            self._missing.append(error.at(pointer))
            return ""
