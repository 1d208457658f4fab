"""What `toolcrib doctor` learns of MCP servers, by asking each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcrib.cli.doctor_findings import Findings
from toolcrib.cli.value_output import plural
from toolcrib.core.errors import NotReady
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.engine.runtime import Runtime
from toolcrib.security.server_display import address_of
from toolcrib.security.trust import Untrusted


class Asked(NamedTuple):
    """What came of asking.

    Attributes:
        offered: Name of a server -> what it offers.
        rows: What is told of each server, as JSON.
    """

    offered: Mapping[str, Catalogue]
    rows: list[dict[str, Any]]


def ask_servers(runtime: Runtime, findings: Findings) -> Asked:
    """Start or reach every server, hear what it offers, and end it again. What is wrong is a finding."""
    if not runtime.servers:
        return Asked({}, [])
    answers = asyncio.run(_answers(runtime))
    rows = [_row(runtime, server, answers[server.name], findings) for server in runtime.servers.values()]
    return Asked({name: each for name, each in answers.items() if isinstance(each, Catalogue)}, rows)


async def _answers(runtime: Runtime) -> dict[str, Catalogue | NotReady]:
    async def one(name: str) -> Catalogue | NotReady:
        try:
            return await runtime.catalogue(name)
        except NotReady as error:
            return error

    try:
        answers = await asyncio.gather(*map(one, runtime.servers))
        return dict(zip(runtime.servers, answers, strict=True))
    finally:
        await runtime.engine.executors.aclose()


def _row(
    runtime: Runtime, server: Server, answer: Catalogue | NotReady, findings: Findings
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": server.name,
        "transport": server.transport,
        "address": address_of(server),
        "place": server.place(),
        "imports": server.imports,
        "tools": None,
        "protocol": None,
        "fault": None,
        "lock": [],
    }
    if isinstance(answer, NotReady) and answer.denied and answer.code == Untrusted.code:
        return row | {"fault": "not queried: not trusted"}
    if isinstance(answer, NotReady):
        findings.error(f"the server `{server.name}` can't be used: {answer.message}", answer.hint)
        return row | {"fault": answer.message}
    verdict = runtime.engine.world.judge(server, answer)
    told = [*dict.fromkeys(verdict.refused.values()), *verdict.warnings]
    for text in (*told, *answer.remarks, *(f"`{name}`: {why}" for name, why in answer.refused.items())):
        findings.warning(f"the server `{server.name}`: {text}")
    protocol = answer.info.get("protocol")
    return row | {"tools": len(answer.tools), "protocol": protocol, "lock": told}


def server_line(row: Mapping[str, Any]) -> list[str]:
    """A server as cells of a table."""
    if row["fault"] is not None:
        state = "not queried" if row["fault"].startswith("not queried") else "can't be used"
    else:
        state = plural(row["tools"], "tool") + (f", MCP {row['protocol']}" if row["protocol"] else "")
    return [row["name"], row["transport"], row["address"], state, f"({row['place']})"]
