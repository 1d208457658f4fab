"""Parse `${...}` look-ups in the texts of documents, look up their values, and mask these values.

`${VAR}` and `${env:VAR}` read the environment, `${file:/path}` a file, and `${keyring:service/user}` the
system's keyring. `:-` sets a default: `${VAR:-text}`. `$${` is a literal `${`. Look-ups are not expressions:
their values are read when a tool is bound.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from toolcrib.core.errors import ExpressionError, NotReady, Problem, ToolcribError, did_you_mean
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import pointer_step
from toolcrib.security.redaction import Redactor

__all__ = [
    "MissingSecret",
    "SecretResolver",
    "SecretVariable",
    "Source",
    "UnusableSecret",
    "check_variables",
    "missing_variables",
    "not_ready",
    "required_names",
    "split_variables",
    "unescape_dollars",
    "variables_of",
]

Source = Literal["env", "file", "keyring"]

_OPENING: Final = re.compile(r"\$\$\{|\$\{")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SOURCES: Final = ("env", "file", "keyring")
_FORMS: Final = (
    "write `${VAR}`, `${VAR:-default}`, `${file:/path}` or `${keyring:service/user}`; "
    "for a literal `${` write `$${`"
)


class SecretVariable(NamedTuple):
    """A look-up.

    Attributes:
        source: Where the value is looked up.
        name: Name of the environment variable, path of the file, or `service/user` of the keyring entry.
        default: The value to use if the source has none; None if the source must have one.
        text: The look-up as written.
    """

    source: Source
    name: str
    default: str | None
    text: str


def split_variables(text: str) -> list[str | SecretVariable]:
    """Split a text at its look-ups. The text pieces keep `$${`; see `unescape_dollars`.

    Raises:
        ExpressionError: The syntax of a look-up is invalid (code `bad_variable`). The message does not quote
            the text, which may be a secret that happens to contain `${`.
    """
    pieces: list[str | SecretVariable] = []
    start = position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        position = opening.end()
        if opening[0] == "$${":
            continue
        end = text.find("}", position)
        if end < 0:
            raise _bad(opening.start(), "is not closed", f"close it with `}}`; {_FORMS}")
        if start < opening.start():
            pieces.append(text[start : opening.start()])
        pieces.append(_variable(text[position:end], text[opening.start() : end + 1], opening.start()))
        start = position = end + 1
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def unescape_dollars(piece: str) -> str:
    """Replace `$${` by `${` in a text piece."""
    return piece.replace("$${", "${")


def variables_of(value: JSON, pointer: str = "") -> Iterator[tuple[str, SecretVariable]]:
    """Yield all look-ups in the texts of a valid value, each with the pointer of its text.

    Raises:
        ExpressionError: As `split_variables` does.
    """
    if isinstance(value, str):
        yield from ((pointer, piece) for piece in split_variables(value) if isinstance(piece, SecretVariable))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from variables_of(item, f"{pointer}/{pointer_step(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from variables_of(item, f"{pointer}/{index}")


def check_variables(text: str, pointer: str) -> list[Problem]:
    """Return the problems of the look-ups in a text at `pointer`."""
    try:
        split_variables(text)
    except ExpressionError as error:
        return [error.problem(pointer)]
    return []


def _variable(inner: str, written: str, start: int) -> SecretVariable:
    if "{" in inner:
        raise _bad(
            start,
            "contains a brace",
            "remove the brace: look-ups cannot be nested, and defaults cannot contain braces",
        )
    name, given, default = inner.partition(":-")
    source, _colon, rest = name.partition(":") if ":" in name else ("env", "", name)
    if source == "env":
        if _NAME.fullmatch(rest) is None:
            raise _bad(start, "has no valid variable name", _hint_for(rest))
        return SecretVariable("env", rest, default if given else None, written)
    if source == "file":
        if not rest.startswith(("/", "~/")):
            raise _bad(start, "needs an absolute file path", "write `${file:/run/secrets/name}`")
        return SecretVariable("file", rest, default if given else None, written)
    if source == "keyring":
        if not all(rest.rpartition("/")):
            raise _bad(start, "needs a keyring entry", "write `${keyring:service/user}`")
        return SecretVariable("keyring", rest, default if given else None, written)
    raise _bad(start, "has an unknown source", did_you_mean(source, _SOURCES) or _hint_for(inner))


def _hint_for(name: str) -> str:
    """The hint for an invalid name. Unsupported shell forms, such as `${VAR:?}`, have their own hint."""
    match = _NAME.match(name.strip())
    rest = name.strip()[match.end() :] if match is not None else ""
    if match is not None and not rest:
        return f"remove the spaces: `${{{match[0]}}}`"
    if match is not None and rest.startswith(("-", "=", ":", "?")):
        return f"write a default as `${{{match[0]}:-text}}`; without a default, `${{{match[0]}}}` must be set"
    return f"use only letters, digits and `_` in a name; {_FORMS}"


def _bad(start: int, what: str, hint: str) -> ExpressionError:
    return ExpressionError(f"the `${{` at character {start + 1} {what}", code="bad_variable", hint=hint)


_LARGEST: Final = 64 * 1024
"""Maximum size in bytes of a file that contains a secret."""


class Keyring(Protocol):
    """Reads entries of the system's keyring. The module `keyring` implements this protocol."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """Return the secret; None if the entry does not exist."""
        ...


class MissingSecret(ToolcribError):
    """A secret that a document names in `${...}` is missing or cannot be read.

    Attributes:
        variable: The look-up; None if the document contains the value itself.
        pointer: JSON Pointer of the text that contains it, if known.
    """

    code = "missing_secret"

    def __init__(
        self, variable: SecretVariable | None, message: str, *, hint: str, pointer: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.variable = variable
        self.pointer = pointer

    def at(self, pointer: str) -> MissingSecret:
        """Return the same error with its location in the descriptor."""
        return type(self)(self.variable, self.message, hint=self.hint, pointer=pointer)


class UnusableSecret(MissingSecret):
    """A secret exists but cannot be sent, for example because it contains a line break."""

    code = "unusable_secret"


class SecretResolver(Redactor):
    """Looks up secrets and masks them.

    Args:
        environment: The variables for `${VAR}`.
        keyring: The keyring for `${keyring:service/user}`. Default: the system's keyring.
    """

    def __init__(
        self, environment: Mapping[str, str] = os.environ, *, keyring: Keyring | None = None
    ) -> None:
        super().__init__(encodings=True)
        self._environment = environment
        self._keyring = keyring
        self._similar: dict[str, str] = {}

    def look_up(self, variable: SecretVariable, *, secret: bool = True) -> str:
        """Look up a variable and register its value as a secret.

        Defaults are not registered. An empty value counts as missing. One newline at the end of a file is
        removed.

        Args:
            variable: The variable.
            secret: Whether to register the value for masking.

        Raises:
            MissingSecret: The variable has no value and no default, or cannot be read.
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

    def check_present(self, variable: SecretVariable) -> None:
        """Check that a variable is there, as far as can be known without reading it.

        Raises:
            MissingSecret: The environment variable is not set, or the file does not exist, and there is no default.
        """
        if variable.default is not None:
            return
        if variable.source == "env" and variable.name not in self._environment:
            raise self._missing(variable)
        if variable.source == "file":
            try:
                Path(variable.name).expanduser().stat()
            except (FileNotFoundError, NotADirectoryError):
                raise self._missing(variable) from None
            except (OSError, ValueError, RuntimeError):  # as in `_from_file`, which says why
                return

    def fill(self, text: str, *, secret: bool = True, pointer: str = "") -> str:
        """Replace all look-ups of a text without expressions by their values.

        Raises:
            ExpressionError: The syntax of a look-up is invalid.
            MissingSecret: A variable has no value; the error has `pointer`.
        """
        try:
            return "".join(
                unescape_dollars(piece) if isinstance(piece, str) else self.look_up(piece, secret=secret)
                for piece in split_variables(text)
            )
        except MissingSecret as error:
            raise error.at(pointer) from None

    def _from_environment(self, variable: SecretVariable) -> str:
        value = self._environment.get(variable.name, "")
        # Python decodes undecodable bytes of the environment to lone surrogates (PEP 383).
        if any("\ud800" <= character <= "\udfff" for character in value):
            message = f"the environment variable `{variable.name}` is not valid UTF-8"
            raise MissingSecret(variable, message, hint="set it to UTF-8 text")
        return value

    def _from_file(self, variable: SecretVariable) -> str:
        try:
            path = Path(variable.name).expanduser()
            # Opening a FIFO waits for a writer.
            if not stat.S_ISREG(path.stat().st_mode):
                raise _unreadable(variable, "is not a file")
            with path.open("rb") as file:
                raw = file.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, ValueError, RuntimeError):  # a path with a NUL; a `~` without a home
            raise _unreadable(variable, "cannot be read") from None
        if len(raw) > _LARGEST:
            raise _unreadable(variable, f"exceeds {_LARGEST} bytes")
        try:
            # Editors on Windows begin a file with a byte order mark, which is not a part of the secret.
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _unreadable(variable, "is not valid UTF-8") from None
        return text.removesuffix("\n").removesuffix("\r")

    def _from_keyring(self, variable: SecretVariable) -> str:
        service, _slash, user = variable.name.rpartition("/")
        keyring = self._keyring or _system_keyring(variable)
        try:
            return keyring.get_password(service, user) or ""
        except Exception as error:  # noqa: BLE001 -- keyring backends raise arbitrary exceptions
            message = f"cannot look up `{variable.name}` in the keyring ({type(error).__name__})"
            hint = "try `python -m keyring get SERVICE USER`; the keyring may be locked or have no backend"
            raise MissingSecret(variable, message, hint=hint) from None

    def _missing(self, variable: SecretVariable) -> MissingSecret:
        name = variable.name
        if variable.source == "env":
            known = name in self._environment
            message = f"`{name}` is {'empty' if known else 'not set'} in the environment"
            # A list of many tools may lack one variable in all of them, and the search takes 1 ms.
            if not known and name not in self._similar:
                self._similar[name] = did_you_mean(name, self._environment)
            near = "" if known else self._similar[name]
            hint = f"{near or 'set it'}, or write a default: `${{{name}:-...}}`".replace("?,", "? Set it,")
        elif variable.source == "file":
            message = f"the file `{name}` is empty or does not exist"
            hint = "write only the secret into it"
        else:
            service, _slash, user = name.rpartition("/")
            message = f"the keyring has no entry `{name}`"
            hint = f"add it with `keyring set {service} {user}`"
        return MissingSecret(variable, message, hint=hint)


def missing_variables(
    value: JSON, pointer: str, secrets: SecretResolver, *, reads: bool = False, known: Collection[str] = ()
) -> list[MissingSecret]:
    """The errors of the look-ups in the texts of a valid value at `pointer`, each with its place.

    Args:
        value: The value.
        pointer: Its place.
        secrets: Looks the variables up.
        reads: Whether values are read, and not only found to exist.
        known: Names that always have a value in the plain form `${NAME}`.
    """
    missing: list[MissingSecret] = []
    for place, variable in variables_of(value, pointer):
        try:
            if reads and not _is_known(variable, known):
                secrets.look_up(variable, secret=False)
            elif not _is_known(variable, known):
                secrets.check_present(variable)
        except MissingSecret as error:
            missing.append(error.at(place))
    return missing


def required_names(value: JSON, *, known: Collection[str] = ()) -> tuple[str, ...] | None:
    """The environment variables that must be set for the texts of a valid value; None if files must exist, too.

    Args:
        value: The value.
        known: As for `missing_variables`.
    """
    required = [
        variable
        for _place, variable in variables_of(value)
        if not (variable.default is not None or _is_known(variable, known))
    ]
    if any(variable.source == "file" for variable in required):
        return None
    return tuple(dict.fromkeys(variable.name for variable in required if variable.source == "env"))


def _is_known(variable: SecretVariable, known: Collection[str]) -> bool:
    return variable.name in known and variable.text == f"${{{variable.name}}}"


def not_ready(tool: Descriptor, missing: Sequence[MissingSecret]) -> NotReady:
    """The error of a tool for all of its missing variables, each with its place."""
    placed = dict.fromkeys(
        f"{each.message} ({tool.origin.place(each.pointer)})" for each in missing if each.pointer
    )
    hints = dict.fromkeys(each.hint for each in missing if each.hint)
    return NotReady("; ".join(placed) or missing[0].message, code=missing[0].code, hint="; ".join(hints))


def _unreadable(variable: SecretVariable, why: str) -> MissingSecret:
    hint = "the file must contain only the secret, as UTF-8 text that this process can read"
    return MissingSecret(variable, f"`{variable.name}` {why}", hint=hint)


def _system_keyring(variable: SecretVariable) -> Keyring:
    try:
        import keyring  # noqa: PLC0415 -- an extra
    except ImportError:
        message = f"`{variable.text}` needs the package `keyring`, which is not installed"
        raise MissingSecret(variable, message, hint="pip install 'toolcrib[keyring]'") from None
    return keyring
