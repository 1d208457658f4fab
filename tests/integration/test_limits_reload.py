"""What calls share outlives a reload; what a tool says of its limits does not."""

from __future__ import annotations

import asyncio

from reaching import ReachingExecutor, Script, failed
from toolcrib import Executors, Runtime, VirtualClock

TOOL = """name: tool
input_schema: {{}}
description: Version {version}.
limits: {limits}
fake: {{}}
"""


def opened(tmp_path, script, limits):
    file = tmp_path / "tool.tool.yaml"

    def write(version, limits):
        file.write_text(TOOL.format(version=version, limits=limits), encoding="utf-8")

    write(1, limits)
    executors = Executors({"fake": lambda: ReachingExecutor(script)})
    return write, Runtime.open(tmp_path, executors=executors, clock=VirtualClock())


def test_a_reload_forgets_neither_rates_nor_breakers(tmp_path):
    script = Script(failed(503))
    limits = "{rate: 4/1h, attempts: 1, breaker: {failures: 2}}"
    write, runtime = opened(tmp_path, script, limits)

    async def run():
        codes = [(await runtime.call("tool")).error.code for _ in range(3)]
        write(2, limits)
        await runtime.reload()
        assert runtime.registry["tool"].description == "Version 2."
        return codes + [(await runtime.call("tool")).error.code for _ in range(2)]

    assert asyncio.run(run()) == ["http_503"] * 2 + ["circuit_open"] * 2 + ["rate_limited"]


def test_a_reload_puts_other_limits_in_force(tmp_path):
    script = Script(takes=1)
    write, runtime = opened(tmp_path, script, "{concurrency: 1, origin: {concurrency: 3}}")

    async def most():
        script.most_inside = 0
        await asyncio.gather(*(runtime.call("tool") for _ in range(8)))
        return script.most_inside

    async def run():
        found = [await most()]
        for version, limits in enumerate(("{concurrency: 2}", "{origin: {concurrency: 5}}"), 2):
            write(version, limits)
            await runtime.reload()
            found.append(await most())
        return found

    assert asyncio.run(run()) == [1, 2, 5]


def test_limits_of_a_project_are_in_force(tmp_path):
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "toolcrib.yaml").write_text(
        "project: p\nlimits: {concurrency: 2}\nprofiles: {ci: {limits: {concurrency: 3}}}\n", encoding="utf-8"
    )
    (tmp_path / "descriptors" / "t.tool.yaml").write_text(
        TOOL.format(version=1, limits="{}"), encoding="utf-8"
    )

    def most(profile):
        script = Script(takes=1)
        executors = Executors({"fake": lambda: ReachingExecutor(script)})
        runtime = Runtime.open(tmp_path, profile=profile, executors=executors, clock=VirtualClock())

        async def run():
            await asyncio.gather(*(runtime.call("tool") for _ in range(8)))

        asyncio.run(run())
        return script.most_inside

    assert [most(None), most("ci")] == [2, 3]


def test_a_relaxed_limit_of_an_origin_is_in_force_once_the_old_calls_are_over(tmp_path):
    script = Script(takes=1)
    write, runtime = opened(tmp_path, script, "{origin: {concurrency: 1}}")

    async def run():
        old = asyncio.ensure_future(runtime.call("tool"))
        await script.begun.wait()
        write(2, "{origin: {concurrency: 4}}")
        await runtime.reload()
        await asyncio.gather(old, runtime.call("tool"))
        script.most_inside = 0
        await asyncio.gather(*(runtime.call("tool") for _ in range(8)))

    asyncio.run(run())
    assert script.most_inside == 4
