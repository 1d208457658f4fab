"""How conversations are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib.core.model import JSON, NOTHING, Client
from toolcrib.core.text import MODEL_LIMIT
from toolcrib.provider.loop.resume_lock import Claim
from toolcrib.provider.loop.transcripts import Sink
from toolcrib.provider.models.prices import Prices

CONTENT_LIMIT = 5 * 1024 * 1024
"""Bytes of base64 of one result's parts that a model is shown unless somebody says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a conversation is held.

    Attributes:
        system: What instructs the model, where the messages don't begin with it themselves.
        settings: The provider's own: `temperature`, `max_tokens` ...
        prices: What answers cost; `max_cost` of a policy needs it.
        toolset: Name of the toolset that is offered; None for that of the session.
        client: Fulfils the tools in mode `client`; None for the session's own.
        sink: Gets the messages after every round.
        claim: Says who goes on with calls that wait, where several may try (`FolderClaims` is built in); None where
            the caller sees to it that each suspended conversation is resumed once.
        result_limit: Bytes that the model is shown of one result; at least 256. The rest it can read on demand.
        content_limit: Bytes of base64 that the parts of one result may have together: images, audio, files. A part
            that does not fit is described in the text.
        streaming: Whether the provider is asked for its answer as it is made; None: where it is streamed on.
    """

    system: str = ""
    settings: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    prices: Prices | None = None
    toolset: str | None = None
    client: Client | None = None
    sink: Sink | None = None
    claim: Claim | None = None
    result_limit: int = MODEL_LIMIT
    content_limit: int = CONTENT_LIMIT
    streaming: bool | None = None
