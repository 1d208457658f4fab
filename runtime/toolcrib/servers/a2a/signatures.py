"""Signatures of agent cards (A2A 1.0, section 8.4): the text that is signed, and their verification.

The SDK removes every empty value from a card before it signs it, also in schemas and in members that are required, which the
specification does not allow. Signatures over both texts are accepted.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final

from a2a.types import AgentCard
from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

from toolcrib.core.dependencies import installed_version
from toolcrib.core.model import Outcome
from toolcrib.core.server_config import Server
from toolcrib.core.text import decode_json
from toolcrib.servers.a2a.numbers import whole_numbers
from toolcrib.servers.mcp.failures import InvalidAnswer, ServerUnavailable

ALGORITHMS: Final = ("ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
"""The algorithms of accepted signatures (RFC 7518, RFC 8037): those with public keys."""


def canonical_card(card: AgentCard) -> bytes:
    """The text of a card that its signatures cover (A2A 1.0, sections 8.4.1 and 5.7; RFC 8785).

    Raises:
        ValueError: The card has a number or a text without a canonical form.
    """
    from rfc8785 import dumps  # noqa: PLC0415 -- few cards are signed

    told = MessageToDict(card)
    told.pop("signatures", None)
    _add_required(card, told)
    return dumps(told)


def _add_required(message: Message, told: dict[str, Any]) -> None:
    """Add the required members of a message that have the default value, which its JSON lacks."""
    for field in message.DESCRIPTOR.fields:
        name, value = field.json_name, getattr(message, field.name)
        nested = field.message_type
        if name not in told:
            required = REQUIRED in field.GetOptions().Extensions[field_behavior]
            if required and (field.is_repeated or nested is None):
                told[name] = [] if field.is_repeated else value
        elif nested is not None and nested.GetOptions().map_entry:
            for key, each in value.items():
                if isinstance(each, Message):
                    _add_required(each, told[name][key])
        elif nested is not None and nested.file.package == message.DESCRIPTOR.file.package:
            both = zip(value, told[name], strict=True) if field.is_repeated else ((value, told[name]),)
            for each, member in both:
                _add_required(each, member)


def verified_card(raw: dict[str, Any], agent: Server) -> dict[str, Any]:
    """The signed part of a card, after one of its signatures was verified.

    The SDK signs only the members that A2A defines, so that all others are dropped: nobody vouches for them.

    Args:
        raw: The card.
        agent: The agent, with the file of its keys.

    Raises:
        InvalidAnswer: The card does not have the form of A2A 1.0.
        ServerUnavailable: No signature is valid, or what verifies them is missing.
    """
    place = agent.place("jwks")
    if not (installed_version("pyjwt") and installed_version("cryptography")):
        message = f"the card of the agent `{agent.name}` must be signed, and the packages that verify signatures are not installed"
        hint = "pip install 'toolcrib[a2a,signing]'"
        raise ServerUnavailable(message, code="missing_extra", hint=hint, retryable=False)
    from a2a.utils import signing  # noqa: PLC0415 -- few cards are signed
    from jwt import PyJWK  # noqa: PLC0415 -- as above
    from jwt.exceptions import InvalidKeyError, PyJWTError  # noqa: PLC0415 -- as above

    keys: list[tuple[str | None, Any]] = []
    for key in keys_of_file(agent.jwks, place):
        try:
            read = PyJWK.from_dict(key)
            # PyJWT would give a key without `alg` one of the algorithms of its type, and refuse the others.
            keys.append((read.key_id, read if "alg" in key else read.key))
        except PyJWTError as error:
            message = f"a key in {agent.jwks} cannot be used ({place}): {error}"
            raise ServerUnavailable(message, code="invalid_card_signature", retryable=False) from None

    def provide(kid: str | None, _url: str | None) -> Any:
        # Keys come from the file alone: the card may be forged, and with it the URL of its keys.
        named = [key for name, key in keys if name == kid] or ([keys[0][1]] if len(keys) == 1 else [])
        if not named:
            raise InvalidKeyError("unknown key")
        return named[0]

    try:
        card = ParseDict(raw, AgentCard(), ignore_unknown_fields=True)
    except ParseError:
        raise InvalidAnswer("its card must be signed, and does not have the form of A2A 1.0") from None
    verify = signing.create_signature_verifier(provide, [*ALGORITHMS])
    try:
        if not _fits(card, provide):
            verify(card)
    except signing.SignatureVerificationError as error:
        fault = (
            "has no signature"
            if isinstance(error, signing.NoSignatureError)
            else "has no signature that a key of `jwks` verifies"
        )
        raise ServerUnavailable(
            f"the card of the agent `{agent.name}` {fault} ({place})",
            code="invalid_card_signature",
            hint=f"ask the agent's operator for its current keys, and put them into {agent.jwks}",
            outcome=Outcome.DENIED,
        ) from None
    signed: dict[str, Any] = whole_numbers(MessageToDict(card))
    return signed


def _fits(card: AgentCard, key_of: Callable[[str | None, str | None], Any]) -> bool:
    """Whether one of the signatures covers the card in the form of the specification."""
    from jwt import PyJWS  # noqa: PLC0415 -- few cards are signed
    from jwt.exceptions import PyJWTError  # noqa: PLC0415 -- as above

    try:
        payload = urlsafe_b64encode(canonical_card(card)).rstrip(b"=").decode()
    except (ValueError, RecursionError):
        return False
    jws = PyJWS()
    for signature in card.signatures:
        token = f"{signature.protected}.{payload}.{signature.signature}"
        try:
            key = key_of(jws.get_unverified_header(token).get("kid"), None)
            jws.decode(token, key, [*ALGORITHMS])
        except PyJWTError:
            continue
        return True
    return False


def keys_of_file(path: str, place: str) -> list[dict[str, Any]]:
    """The keys of a JSON Web Key Set (RFC 7517, section 5).

    Raises:
        ServerUnavailable: The file cannot be read, or is not a key set.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = decode_json(file.read())
        keys: list[dict[str, Any]] = [dict(key) for key in found["keys"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        keys = []
    if keys:
        return keys
    message = f"{path} is not a readable JSON Web Key Set ({place})"
    hint = 'write `{"keys": [...]}` with the public keys of the agent'
    raise ServerUnavailable(message, code="invalid_card_signature", hint=hint, retryable=False)
