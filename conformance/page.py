"""The reference page on conformance: made from what is expected to fail, and from the tables of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import groupby

import real_clients
import real_servers
from environments import PROJECT
from official import REVISIONS, TOOLS_PROFILE, Side, expected
from sections import Section, table

PAGE = PROJECT / "docs" / "reference" / "mcp-conformance.md"

HEAD = """\
# Conformance over MCP

<!-- Written by conformance/run.py --write. -->

What `make conformance` runs on every change: the official suite against our server and our client, servers that others
wrote through our client, and clients that others wrote against our server. It needs nothing but Python: Node comes from
PyPI, and everything is installed below `build/conformance`. This page is compared with what the run finds.

## The official suite

`@modelcontextprotocol/conformance` in both revisions of the protocol that it knows. The tools on the server are
descriptors with mocks, in [packs/mcp-conformance](../../packs/mcp-conformance); the client is a project that names the
suite's server, and calls its tools through the runtime.

Of the scenarios that a server with tools and a client that calls them can be asked, all pass:
"""

SETS = """\
Each revision also has a whole set of requirements, with what toolcrib has no use for. The run fails when other checks
fail than these, when one of these passes, and when fewer pass than are named here.
"""

SERVERS = """\
## Real servers

Each is listed, called with good and with bad arguments, and every answer is judged. Bad arguments are refused by us;
the same ones through a descriptor that takes anything are refused by the server, in whatever way it does that.
"""

CLIENTS = """\
## Real clients

Each lists and calls what `toolcrib serve mcp` serves, over both transports and in each era of the protocol that it
speaks; where it hears of changes, a file is added while it listens.
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
    parts = [HEAD, *_profiles(), SETS, *_sets(), SERVERS, _of(by_head[real_servers.HEAD])]
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
        yield f"### The {side} in {revision}\n"
        yield f"At least {known.floor} checks pass.\n"
        yield from table(("scenario", "check", "why it fails"), list(_failing(side, revision)))
        yield ""


def _failing(side: Side, revision: str) -> Iterator[tuple[str, str, str]]:
    keys = sorted(expected()[side, revision].failing.items())
    for (scenario, why), group in groupby(keys, key=lambda item: (item[0].split(": ")[0], item[1])):
        yield f"`{scenario}`", ", ".join(f"`{key.split(': ')[1]}`" for key, _why in group), why
