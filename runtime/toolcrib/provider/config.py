"""How conversations are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib.model import JSON, NOTHING, Client
from toolcrib.provider.pricing import Prices
from toolcrib.provider.transcripts import Sink
from toolcrib.text import MODEL_LIMIT


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
        result_limit: Bytes that the model is shown of one result; at least 256. The rest it can read on demand.
        streaming: Whether the provider is asked for its answer as it is made; None: where it is streamed on.
    """

    system: str = ""
    settings: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    prices: Prices | None = None
    toolset: str | None = None
    client: Client | None = None
    sink: Sink | None = None
    result_limit: int = MODEL_LIMIT
    streaming: bool | None = None
