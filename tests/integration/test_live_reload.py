"""Reloads of live tools: connections outlive them, and what the project lets tools reach follows its file."""

from __future__ import annotations

from http_servers import answering_json, serving
from live_tools import API, live_executors
from toolcrib import Outcome, Runtime

TOOL = "name: tool\ninput_schema: {{}}\ndescription: Version {version}.\nlive: {{url: '{api}/x'}}\n"


async def test_a_reload_follows_the_project_and_keeps_connections(tmp_path):
    def write(version, server, *, allowed=True):
        allow = f"egress: {{allow: ['127.0.0.1:{server.port}']}}\n" if allowed else ""
        project = f"project: p\n{allow}origins: {{'{API}': '{server.origin}'}}\n"
        (tmp_path / "toolcrib.yaml").write_text(project, encoding="utf-8")
        (tmp_path / "descriptors").mkdir(exist_ok=True)
        file = tmp_path / "descriptors" / "tool.tool.yaml"
        file.write_text(TOOL.format(version=version, api=API), encoding="utf-8")

    async with serving(answering_json({"n": 1})) as first, serving(answering_json({"n": 2})) as second:
        write(1, first)
        async with Runtime.open(tmp_path, executors=live_executors()) as tools:
            assert (await tools.call("tool")).value == {"n": 1}
            write(2, first)
            await tools.reload()
            assert tools.registry["tool"].description == "Version 2."
            assert (await tools.call("tool")).value == {"n": 1}
            assert first.accepted == 1
            write(3, second)
            await tools.reload()
            assert (await tools.call("tool")).value == {"n": 2}
            write(4, second, allowed=False)
            await tools.reload()
            refused = await tools.call("tool")
            assert (refused.outcome, refused.error.code) == (Outcome.DENIED, "address_refused")
            assert (first.accepted, second.accepted) == (1, 1)
        await first.all_closed()
        await second.all_closed()
