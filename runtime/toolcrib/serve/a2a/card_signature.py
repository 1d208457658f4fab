"""Sign the cards of the agent (A2A 1.0, section 8.4): a JSON Web Signature over the canonical JSON of a card."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.a2a.agent_options import CardKey
from toolcrib.servers.a2a.signatures import canonical_card

if TYPE_CHECKING:
    from a2a.types import AgentCard


def card_signer(key: CardKey) -> Callable[[AgentCard], list[dict[str, str]]]:
    """A function that returns the signatures of a card.

    One covers the card in the form of the specification. If the SDK, which removes empty values, cannot verify it, a second one covers
    the card in the form of the SDK.

    Raises:
        ConfigurationError: The extra `signing` is not installed, or the key cannot be used.
    """
    with imports_of_extra("signing", cannot="sign cards", doing="signing cards"):
        from a2a.utils import signing  # noqa: PLC0415 -- an extra
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            Encoding,
            PublicFormat,
            load_pem_private_key,
        )
        from jwt import PyJWS  # noqa: PLC0415
        from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm  # noqa: PLC0415
    try:
        pem = key.file.read_bytes()
        private = load_pem_private_key(pem, None)
    except OSError as error:
        raise _unusable(key, error.strerror or str(error)) from None
    except TypeError:
        raise _unusable(key, "it is encrypted", "decrypt it with `openssl pkey -in ... -out ...`") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _unusable(key, "it is not a PEM private key") from None
    jwk: Any
    if isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1):
        algorithm, jwk = "ES256", ECAlgorithm.to_jwk(private.public_key())
    elif isinstance(private, rsa.RSAPrivateKey):
        algorithm, jwk = "RS256", RSAAlgorithm.to_jwk(private.public_key())
    elif isinstance(private, ed25519.Ed25519PrivateKey):
        algorithm, jwk = "EdDSA", OKPAlgorithm.to_jwk(private.public_key())
    else:
        raise _unusable(
            key, "it is not a P-256, RSA or Ed25519 key", "openssl ecparam -name prime256v1 -genkey -noout"
        )
    # The SDK's type also requires `jku`, which may not be null in a header (RFC 7515, 4.1.2).
    header: Any = {"alg": algorithm, "kid": key.key_id or _thumbprint(json.loads(jwk)), "typ": "JOSE"}
    jws = PyJWS()
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    sign_for_sdk = signing.create_agent_card_signer(pem, header)
    verify = signing.create_signature_verifier(lambda _kid, _url: public, [algorithm])

    def signatures(card: AgentCard) -> list[dict[str, str]]:
        text = jws.encode(canonical_card(card), private, algorithm, headers=header)
        protected, _, signature = text.split(".")
        card.signatures.add(protected=protected, signature=signature)
        try:
            verify(card)
        except signing.InvalidSignaturesError:
            sign_for_sdk(card)
        return [{"protected": each.protected, "signature": each.signature} for each in card.signatures]

    return signatures


def _thumbprint(jwk: dict[str, Any]) -> str:
    """The thumbprint of a public key (RFC 7638)."""
    members = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
    required = {name: jwk[name] for name in members[jwk["kty"]]}
    text = json.dumps(required, sort_keys=True, separators=(",", ":"))
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _unusable(key: CardKey, why: str, hint: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"cannot sign cards with `{key.file}`: {why}", code="signing_key_unusable", hint=hint
    )
