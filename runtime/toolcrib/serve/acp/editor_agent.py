"""What an ACP agent consists of. Nothing here needs the SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.core.model import JSON, NOTHING, Client
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy

if TYPE_CHECKING:
    from toolcrib.provider import ConversationStore, Provider
    from toolcrib.registry.registry import Registry


class EditorAgent(NamedTuple):
    """The model and the tools of an agent.

    Attributes:
        provider: Returns the model of a session. It is closed with the session.
        registry: The tools; None for those of the runtime.
        policy: Which calls the model may make.
        system: Instructions for the model.
        settings: Provider settings such as `temperature`.
        seed: Seed of the values that mocks generate.
        client: Fulfils the calls of tools in mode `client` that the editor cannot fulfil.
        store: Keeps the sessions, so that editors can list and reopen them; None if they end with the process.
        context_size: Tokens that the model can read at once, reported to the editor with their use; 0 if unknown.
        name: Name of the agent, for the editor.
        record: File for a recording of the connection; None for none.
        patience: Seconds after which a request that the editor or the agent has not answered is reported.
    """

    provider: Callable[[], Provider]
    registry: Registry | None = None
    policy: ToolPolicy = NO_POLICY
    system: str = ""
    settings: Mapping[str, JSON] = NOTHING
    seed: int = 0
    client: Client | None = None
    store: ConversationStore | None = None
    context_size: int = 0
    name: str = "toolcrib"
    record: Path | None = None
    patience: float = 30.0
