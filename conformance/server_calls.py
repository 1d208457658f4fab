"""Use every server of a project, and print what was found, one line of JSON per server. Runs where toolcrib is installed.

Usage: python server_calls.py FOLDER SECONDS     # SECONDS is the limit for one server
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib import Result, Runtime, ToolcribError
from toolcrib.core.server_config import tool_names_of


async def main(folder: str, seconds: float) -> None:
    """Use the servers one after the other: thirty programs that start at once would time each other out."""
    asked = json.loads(Path(folder, "asked.json").read_text(encoding="utf-8"))
    tools = Runtime.open(folder)
    try:
        for server in asked:
            try:
                async with asyncio.timeout(seconds):
                    found = await used(tools, server, asked[server])
            except TimeoutError:
                found = {"faults": [f"took more than {seconds:g} s"]}
            except Exception as error:  # noqa: BLE001 -- the other servers go on, and the table reports it
                found = {"faults": [f"{type(error).__name__}: {error}"]}
            print(json.dumps({"server": server, **found}), flush=True)
    finally:
        async with asyncio.timeout(seconds):
            await tools.aclose()


async def used(tools: Runtime, server: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """List a server, check its definitions, and make its calls."""
    try:
        await tools.discover(server)
        catalogue = await tools.catalogue(server)
    except ToolcribError as error:
        return {"faults": [str(error)]}
    listed = [name for name in tools.registry if name.startswith(f"{server}__")]
    problems = [f"`{name}` is refused: {reason}" for name, reason in catalogue.refused.items()]
    problems += [*catalogue.remarks, *(str(each) for each in tools.problems if f"{server}__" in str(each))]
    faults = [] if listed else ["no tool was listed"]
    refused = sorted(catalogue.refused)
    if refused != sorted(asked.get("refused", [])):
        faults.append(f"refused tools: {', '.join(refused)}")
    names, _remarks = tool_names_of(tools.servers[server], catalogue.tools)
    absent = [tool for tool, name in names.items() if name not in tools.registry]
    if absent:
        faults.append(f"listed but not offered: {', '.join(absent)}")
    calls = []
    if "tool" in asked:
        for what, key, outcome, contains in (
            ("valid arguments", "good", "ok", asked.get("contains", "")),
            ("invalid arguments", "bad", asked.get("bad_outcome", "invalid_arguments"), ""),
        ):
            if key not in asked:
                continue
            arguments = asked[key]
            result = await tools.call(f"{server}__{asked['tool']}", arguments)
            calls.append(what)
            faults += [f"{what}: {fault}" for fault in wrong(result, outcome, contains)]
    shown = [f"{name}: {json.dumps(its['inputSchema'])[:400]}" for name, its in catalogue.tools.items()]
    info = catalogue.info
    return {
        "protocol": info.get("protocol", "?"),
        "tools": len(listed),
        "problems": problems,
        "calls": calls,
        "faults": faults,
        "shown": shown,
    }


def wrong(result: Result, outcome: str, contains: str) -> list[str]:
    """Why a result is not the expected one."""
    text = json.dumps(result.as_json(), ensure_ascii=False)
    if result.outcome.value != outcome:
        return [f"`{result.outcome.value}` instead of `{outcome}`: {text[:1500]}"]
    return [] if contains in text else [f"the result lacks {contains!r}: {text[:1500]}"]


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
