"""AgentOptions of an A2A server. Nothing here needs the SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from toolcrib.serve.http_common.listen_address import DRAIN

TASK_AGE: Final = 3600.0
"""Seconds for which a task is kept after its last change."""

MOST_TASKS: Final = 1000
"""Maximum number of tasks that are kept, including those in progress."""


class CardKey(NamedTuple):
    """The key that signs cards (A2A 1.0, section 8.4).

    Attributes:
        file: PEM file of a private key: EC (ES256), RSA (RS256) or Ed25519 (EdDSA), not encrypted.
        key_id: `kid` in the signature; empty for the thumbprint of the public key (RFC 7638).
    """

    file: Path
    key_id: str = ""


class AgentOptions(NamedTuple):
    """Which tools are served, and how.

    Attributes:
        toolset: Name of the only toolset that is served; empty for all listed tools.
        inline_refs: Whether `$ref`s in schemas are inlined, for peers that cannot resolve them.
        watch: Whether files are watched.
        drain: Seconds that calls in flight get when the server stops.
        url: Origin in the URLs of cards; empty for that of the request for the card.
        legacy: Whether peers of A2A 0.3 are served, too.
        required: Whether peers must declare support of the extension for tool descriptors.
        task_age: Seconds for which a task is kept after its last change.
        most_tasks: Maximum number of tasks that are kept.
        signing_key: The key that signs cards; None for cards without a signature.
    """

    toolset: str = ""
    inline_refs: bool = False
    watch: bool = True
    drain: float = DRAIN
    url: str = ""
    legacy: bool = False
    required: bool = False
    task_age: float = TASK_AGE
    most_tasks: int = MOST_TASKS
    signing_key: CardKey | None = None
