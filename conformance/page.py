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

What `make conformance` runs on every change: the official suite against our server and our client, servers that others
wrote through our client, and clients that others wrote against our server. It needs nothing but Python: Node comes from
PyPI, and everything is installed below `build/conformance`. This page is compared with what the run finds.

## The official suite

`@modelcontextprotocol/conformance` {suite} in both revisions of the protocol that it knows. The tools on the server are
descriptors with mocks, in [packs/mcp-conformance](../../packs/mcp-conformance); the client is a project that names the
suite's server, and calls its tools through the runtime.

Of the scenarios that a server with tools and a client that calls them can be asked, all pass:
"""

SETS = """\
Each revision also has a whole set of requirements. These checks of it fail. The run fails when another one does, when one
of these passes, and when fewer checks pass than are said here.
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
        yield f"### The {side} in {revision}\n"
        yield f"At least {known.floor} checks pass."
        by_reason = sorted(known.failing.items(), key=lambda item: (item[1], item[0]))
        for why, group in groupby(by_reason, key=lambda item: item[1]):
            yield f"\n{why}\n"
            yield from _scenarios(key for key, _why in group)
        yield ""


def _scenarios(keys: Iterable[str]) -> Iterator[str]:
    for scenario, group in groupby((key.split(": ") for key in keys), key=lambda parts: parts[0]):
        yield f"- `{scenario}`: " + ", ".join(f"`{check}`" for _scenario, check in group)
