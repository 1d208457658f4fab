"""The reference page on conformance: made from what is expected to fail, and from the tables of the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import groupby

import real_clients
import real_servers
from environments import HERE, PROJECT
from official import REVISIONS, SUITE, TOOLS_PROFILE, expected
from sections import Section, table

PAGE = PROJECT / "docs" / "reference" / "mcp-conformance.md"

HEAD = """\
# Conformance over MCP

<!-- Written by conformance/run.py --write. -->

`make conformance` tests MCP support on every change. It runs the official conformance suite against the toolcrib server and
client, third-party servers through the client, and third-party clients against the server. It requires only Python: Node is
installed from PyPI, and all files are below `build/conformance`. The run fails if its results differ from this page.

## Official conformance suite

The suite is `@modelcontextprotocol/conformance` {suite}, in both revisions of the protocol that it supports. The server offers
the descriptors with mocks in packs/mcp-conformance. The client is a project that configures the server of the suite and
calls its tools through the runtime.

All scenarios for a server with tools and for a client that calls tools pass:
"""

SETS = """\
Each revision also has a full set of requirements. The checks below fail, with the reason above each list. The run fails if
another check fails, if one of these passes, or if a check that conformance/passing.json lists does not pass, and names it.
"""

SERVERS = """\
## Third-party servers

For each server, the run lists the tools, calls them with valid and invalid arguments, and verifies every result. toolcrib
rejects invalid arguments; the same arguments are also sent through a descriptor without a schema, and the server rejects them.
"""

CLIENTS = """\
## Third-party clients

Each client lists and calls the tools of `toolcrib serve mcp`, over both transports and with each generation of the protocol
that it supports. If the client supports change notifications, the run adds a file while the client listens. A client that shows
forms approves, edits and rejects a call; for the Inspector CLI, which shows none, the operator approves the call.
"""


def compared(sections: Sequence[Section], *, write: bool) -> list[str]:
    """Hold the page against what was found, or write it anew; the faults."""
    text = as_text({section.head: section for section in sections})
    if write:
        PAGE.write_text(text, encoding="utf-8")
        return []
    kept = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if kept == text:
        return []
    lines = unified_diff(kept.splitlines(), text.splitlines(), "the page", "the run", lineterm="", n=0)
    return [
        "\n".join(
            [f"{PAGE.relative_to(PROJECT)} says something else; `python conformance/run.py --write`", *lines]
        )
    ]


def as_text(by_head: Mapping[Sequence[str], Section]) -> str:
    """The whole page."""
    suite = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"][SUITE]
    parts = [HEAD.format(suite=suite), *_profiles(), SETS, *_sets(), SERVERS, _of(by_head[real_servers.HEAD])]
    return "\n".join([*parts, CLIENTS, _of(by_head[real_clients.HEAD])])


def _of(section: Section) -> str:
    return "\n".join([*table(section.head, section.rows), ""])


def _profiles() -> Iterator[str]:
    for side in ("server", "client"):
        for revision in REVISIONS:
            names = ", ".join(f"`{name}`" for name in TOOLS_PROFILE[side, revision])
            yield f"- {side}, {revision}: {names}"
    yield ""


def _sets() -> Iterator[str]:
    for (side, revision), known in expected().items():
        yield f"### {side.capitalize()}, revision {revision}\n"
        yield f"{sum(known.passing.values())} checks pass."
        by_reason = sorted(known.failing.items(), key=lambda item: (item[1], item[0]))
        for why, group in groupby(by_reason, key=lambda item: item[1]):
            yield f"\n{why}\n"
            yield from _scenarios(key for key, _why in group)
        yield ""


def _scenarios(keys: Iterable[str]) -> Iterator[str]:
    for scenario, group in groupby((key.split(": ") for key in keys), key=lambda parts: parts[0]):
        yield f"- `{scenario}`: " + ", ".join(f"`{check}`" for _scenario, check in group)
