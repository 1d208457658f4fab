"""Hash and sign the files of packs, and remember whose signatures a user trusts.

A publisher signs the hash of all files of a pack with an Ed25519 key. The signature is one more file, `pack.sig`, which the
hash leaves out, so a pack is signed after it was built, and stays signed when it is unpacked. Trusted keys are stored beside
the trust decisions of the user, one for each name of a pack: another key for the same name needs the user's agreement.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import JSON
from toolcrib.core.text import canonical, compact, decode_json
from toolcrib.core.user_folders import STATE_VARIABLE, open_regular, state_folder, why_writable_by_others
from toolcrib.security.trust_decisions import Decision, DecisionStore
from toolcrib.security.trust_needs import make_need

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE_FILE: Final = "pack.sig"
"""Name of the file with the signature, at the top of a pack."""

PUBLISHER: Final = "publisher"
"""Kind of the decision that trusts the key of a publisher."""

_FORMAT: Final = 1
_KEY_LEAD: Final = "ed25519:"
_CONTEXT: Final = b"toolcrib pack signature 1\n"
"""Precedes what is signed, so that a signature for another purpose is never one of a pack."""

_LARGEST: Final = 64 * 1024


class SigningError(ToolcribError):
    """A pack cannot be signed, or its signature cannot be checked."""

    code = "signing_failed"


def hash_of_files(contents: Mapping[str, bytes]) -> str:
    """`sha256:` and the hash of all files of a pack: their paths and contents, without the signature.

    Args:
        contents: Path within the pack, with `/` -> content.
    """
    files: dict[str, JSON] = {
        name: hashlib.sha256(data).hexdigest() for name, data in contents.items() if name != SIGNATURE_FILE
    }
    return f"sha256:{hashlib.sha256(canonical(files).encode()).hexdigest()}"


class PackSignature(NamedTuple):
    """The content of `pack.sig`.

    Attributes:
        name: Name of the pack.
        version: Version of the pack.
        hash: `hash_of_files` when it was signed.
        key: The public key of the publisher: `ed25519:` and 32 bytes in base64.
        signature: 64 bytes in base64.
    """

    name: str
    version: str
    hash: str
    key: str
    signature: str

    @classmethod
    def parse(cls, data: bytes) -> PackSignature | None:
        """Parse a signature; None if it is not one. Whether it is genuine is not checked."""
        try:
            value: Any = decode_json(data[:_LARGEST])
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or value.pop("format", None) != _FORMAT:
            return None
        texts = all(isinstance(item, str) for item in value.values())
        return cls(**value) if texts and value.keys() == {*cls._fields} else None

    def render(self) -> bytes:
        """The content of its file."""
        return f"{compact({'format': _FORMAT, **self._asdict()})}\n".encode()

    @property
    def signed(self) -> bytes:
        """The bytes that are signed."""
        return _CONTEXT + canonical([self.name, self.version, self.hash]).encode()

    def is_genuine(self) -> bool:
        """Whether the owner of the key signed this name, version and hash.

        Raises:
            SigningError: The package `cryptography` is missing.
        """
        ed25519, _serialization = _library()
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 -- an extra

        if not self.key.startswith(_KEY_LEAD):
            return False
        try:
            raw = base64.b64decode(self.key.removeprefix(_KEY_LEAD), validate=True)
            signature = base64.b64decode(self.signature, validate=True)
            ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(signature, self.signed)
        except (ValueError, InvalidSignature):
            return False
        return True


def signature_of(contents: Mapping[str, bytes]) -> PackSignature | None:
    """The signature in the files of a pack; None if there is none, or if it cannot be read."""
    data = contents.get(SIGNATURE_FILE)
    return None if data is None else PackSignature.parse(data)


def signature_fault(name: str, version: str, contents: Mapping[str, bytes]) -> str:
    """Why the signature in the files of a pack is not valid; empty if it is, or if the pack is not signed.

    Args:
        name: Name of the pack.
        version: Its version.
        contents: Path within the pack -> content.

    Raises:
        SigningError: The package `cryptography` is missing.
    """
    if SIGNATURE_FILE not in contents:
        return ""
    found = signature_of(contents)
    if found is None:
        return f"`{SIGNATURE_FILE}` is not a signature"
    if (found.name, found.version) != (name, version):
        return f"it signs `{found.name}` {found.version}, not `{name}` {version}"
    if found.hash != hash_of_files(contents):
        return "the files were changed after they were signed"
    return "" if found.is_genuine() else f"it was not made with the key {found.key}"


class SigningKey:
    """The private key of a publisher.

    Args:
        private: The key.
    """

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @property
    def public(self) -> str:
        """The public key, as `PackSignature.key`."""
        return _KEY_LEAD + base64.b64encode(self._private.public_key().public_bytes_raw()).decode()

    def sign(self, name: str, version: str, contents: Mapping[str, bytes]) -> PackSignature:
        """Sign the files of a pack."""
        unsigned = PackSignature(name, version, hash_of_files(contents), self.public, "")
        return unsigned._replace(signature=base64.b64encode(self._private.sign(unsigned.signed)).decode())


def default_key_file() -> str:
    """Path of the signing key in the user's state folder.

    Raises:
        SigningError: The system defines no such folder.
    """
    folder = state_folder()
    if folder is None:
        raise SigningError(
            "this system defines no folder for the signing key", hint=f"set {STATE_VARIABLE}, or use --key"
        )
    return os.path.join(folder, "signing.pem")


def create_signing_key(path: str) -> SigningKey:
    """Create a key in a file that only the user can read.

    Raises:
        SigningError: The package `cryptography` is missing, or the file exists or cannot be written.
    """
    ed25519, serialization = _library()
    private = ed25519.Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        # O_EXCL: users of the packs that an overwritten key has signed would be alarmed by the new one.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(pem)
    except FileExistsError:
        raise SigningError(f"the signing key {path} exists already", hint="remove `--create-key`") from None
    except OSError as error:
        raise SigningError(f"the signing key {path} cannot be written: {error.strerror}") from None
    return SigningKey(private)


def load_signing_key(path: str) -> SigningKey:
    """Load a private key: Ed25519 in PEM, not encrypted, as `openssl genpkey -algorithm ed25519` writes it.

    Raises:
        SigningError: There is none, others can read or write it, or the package `cryptography` is missing.
    """
    ed25519, serialization = _library()
    try:
        with open(path, "rb", opener=open_regular) as file:
            about = os.fstat(file.fileno())
            data = file.read(_LARGEST)
    except FileNotFoundError:
        raise SigningError(
            f"the signing key {path} does not exist",
            code="no_key",
            hint="create one with `--create-key`",
        ) from None
    except OSError as error:
        raise SigningError(f"the signing key {path} cannot be read: {error.strerror}") from None
    why = why_writable_by_others(about) or (
        "others can read it" if os.name == "posix" and about.st_mode & 0o077 else ""
    )
    if why:
        raise SigningError(
            f"the signing key {path} is not used: {why}", hint=f"run `chmod 600 {path}` as its owner"
        )
    try:
        private = serialization.load_pem_private_key(data, None)
    # `UnsupportedAlgorithm` of the library is an Exception of its own; TypeError: the key is encrypted.
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with the file means the same
        raise SigningError(
            f"{path} is not an unencrypted private key in PEM ({type(error).__name__})"
        ) from None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise SigningError(f"{path} is not an Ed25519 key", hint="create one with `--create-key`")
    return SigningKey(private)


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 -- an extra
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 -- as above
    except ImportError:
        raise SigningError(
            "signatures need the package `cryptography`, which is not installed",
            code="missing_extra",
            hint="pip install 'toolcrib[signing]'",
        ) from None
    return ed25519, serialization


# The keys that a user trusts.


def publisher_root(pack: str) -> str:
    """What a decision on the publisher of a pack is about, in place of a folder."""
    return f"pack:{pack}"


def trusted_key(store: DecisionStore, pack: str) -> Decision | None:
    """The decision of the user on the publisher of a pack; None if there is none."""
    return next((each for each in store.agreed([publisher_root(pack)]) if each.kind == PUBLISHER), None)


def key_of(decision: Decision) -> str:
    """The key that a decision on a publisher trusts."""
    return decision.needs[0].what if decision.needs else ""


def trust_key(store: DecisionStore, pack: str, key: str, *, when: datetime) -> None:
    """Trust a key for the packs of one name, instead of an earlier one.

    Raises:
        OSError: The decision cannot be stored.
    """
    root = publisher_root(pack)
    needs = (make_need("content", key, user=f"pack {pack}"),)
    decision = Decision.of(root, PUBLISHER, needs, when=when, how="toolcrib pack install")
    store.remove(root)
    store.add(decision)
