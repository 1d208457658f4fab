"""Encrypt what is stored at rest, with a key that belongs to the user and lies outside of projects.

The key is a Fernet key (32 bytes in URL-safe base64). `TOOLCRIB_KEY` names its place in the form of a look-up:
`file:/path`, `keyring:service/user` or `env:VAR`. By default it is the file `encryption.key` in the user's state folder.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from toolcrib.core.errors import ExpressionError, ToolcribError
from toolcrib.core.model import JSON
from toolcrib.core.text import canonical, decode_json
from toolcrib.core.user_folders import STATE_VARIABLE, state_folder
from toolcrib.security.secrets import MissingSecret, SecretResolver, SecretVariable, split_variables

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

KEY_VARIABLE: Final = "TOOLCRIB_KEY"
"""The environment variable that names the place of the key."""

_NEEDED: Final = "run `toolcrib approvals key` to create one"


class NoKey(ToolcribError):
    """There is no usable key, so secrets cannot be stored."""

    code = "no_key"


class CannotDecrypt(ToolcribError):
    """A stored text was encrypted with another key, or was changed."""

    code = "cannot_decrypt"


class Cipher:
    """Encrypts and authenticates JSON values.

    Args:
        key: The Fernet key.

    Raises:
        NoKey: The key is not a Fernet key, or the package `cryptography` is missing.
    """

    def __init__(self, key: bytes) -> None:
        self._fernet = _fernet(key)
        self._key = key

    def encrypt(self, value: JSON) -> str:
        """Encrypt a JSON value."""
        return self._fernet.encrypt(canonical(value).encode("utf-8", "surrogatepass")).decode()

    def decrypt(self, text: str) -> JSON:
        """Decrypt a text of `encrypt`.

        Raises:
            CannotDecrypt: It was encrypted with another key, or was changed.
        """
        try:
            return decode_json(self._fernet.decrypt(text.encode()))
        # `InvalidToken` of the library is an Exception of its own, and the others are for a text that is no token.
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with a stored text means the same
            raise CannotDecrypt(
                f"a stored secret cannot be decrypted ({type(error).__name__})",
                hint=f"the key has changed; set {KEY_VARIABLE} to the place of the earlier key",
            ) from None

    def digest(self, text: str) -> str:
        """A digest that reveals nothing to a reader without the key, in hex: short secrets could be guessed from a hash."""
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _library() -> type[Fernet]:
    try:
        from cryptography.fernet import Fernet  # noqa: PLC0415 -- an extra
    except ImportError:
        raise NoKey(
            "encryption needs the package `cryptography`, which is not installed",
            hint="pip install 'toolcrib[encryption]'",
        ) from None
    return Fernet


def _fernet(key: bytes) -> Fernet:
    fernet = _library()
    try:
        return fernet(key)
    except ValueError:
        raise NoKey("the encryption key is not 32 bytes in URL-safe base64", hint=_NEEDED) from None


def load_cipher(outside: str = "", environment: Mapping[str, str] = os.environ) -> Cipher:
    """Load the key of the user.

    Args:
        outside: A folder that must not contain the key file, such as the project's; empty for none.
        environment: The environment variables.

    Raises:
        NoKey: There is no key, others can read it, or it lies in the folder `outside`.
    """
    written = environment.get(KEY_VARIABLE, "")
    variable = (
        _place_of(written) if written else SecretVariable("file", default_key_file(), None, "the key file")
    )
    if variable.source == "file":
        _check_file(variable.name, outside)
    try:
        # `secret=False`: the key is never part of an argument, and registering it would slow down all masking.
        key = SecretResolver(environment).look_up(variable, secret=False)
    except MissingSecret as error:
        raise NoKey(f"no encryption key: {error.message}", hint=_NEEDED) from None
    return Cipher(key.encode())


def _place_of(written: str) -> SecretVariable:
    try:
        pieces = split_variables(f"${{{written}}}")
    except ExpressionError:
        pieces = []
    # A bare name would be a variable of the environment, which is more likely the key itself, pasted here.
    if len(pieces) != 1 or isinstance(pieces[0], str) or ":" not in written or pieces[0].default is not None:
        raise NoKey(
            f"{KEY_VARIABLE} does not name the place of a key",
            hint="write `file:/path`, `keyring:service/user` or `env:VAR`",
        )
    return pieces[0]


def default_key_file() -> str:
    """Path of the key file in the user's state folder.

    Raises:
        NoKey: The system defines no such folder.
    """
    folder = state_folder()
    if folder is None:
        raise NoKey(
            "there is no folder for an encryption key", hint=f"set {STATE_VARIABLE} or {KEY_VARIABLE}"
        )
    return os.path.join(folder, "encryption.key")


def _check_file(path: str, outside: str) -> None:
    path = os.path.realpath(os.path.expanduser(path))
    if outside and os.path.commonpath([path, os.path.realpath(outside)]) == os.path.realpath(outside):
        raise NoKey(f"the key file {path} is inside the project", hint="move it outside of the project")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise NoKey(f"no encryption key: the file {path} does not exist", hint=_NEEDED) from None
    except OSError as error:
        raise NoKey(f"the key file {path} cannot be read: {error.strerror}", hint=_NEEDED) from None
    # Windows has no permission bits; access control lists protect a user's folders there.
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)):
        raise NoKey(f"others can read the key file {path}", hint=f"run `chmod 600 {path}` as its owner")


def create_key(path: str = "") -> str:
    """Create a key file that only the user can read, and return its path.

    Args:
        path: The file; by default the one in the user's state folder.

    Raises:
        NoKey: The package `cryptography` is missing, or the system defines no state folder.
        FileExistsError: There is a key already.
        OSError: The file cannot be written.
    """
    fernet = _library()
    path = os.path.abspath(path or default_key_file())
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    # O_EXCL: a second key would make everything that the first one has encrypted unreadable.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:
        file.write(fernet.generate_key())
    return path
