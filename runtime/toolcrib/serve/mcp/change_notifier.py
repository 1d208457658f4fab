"""Follows the files while tools are served, and tells clients when the list changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.mcp.options import Options, Say
from toolcrib.serve.mcp.server import Face

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime


@asynccontextmanager
async def announcing(runtime: Runtime, face: Face, options: Options, say: Say) -> AsyncIterator[None]:
    """Within the block clients are told of changes, and files are followed, if that is wanted."""
    changed = asyncio.Event()
    unfollow = runtime.engine.follow(changed.set)
    tasks = [asyncio.create_task(_announced(changed, face))]
    if options.watch:
        tasks.append(asyncio.create_task(_followed(runtime, say)))
    try:
        yield
    finally:
        unfollow()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _announced(changed: asyncio.Event, face: Face) -> None:
    """One notice for however many tools that change together."""
    while await changed.wait():
        changed.clear()
        await face.announce()


async def _followed(runtime: Runtime, say: Say) -> None:
    try:
        async with aclosing(runtime.watch()) as reports:
            async for report in reports:
                say(f"reloaded: {report}")
    except ConfigurationError as error:
        say(f"files are not followed: {error.message}")
