"""Follows the files while tools are served, and tells clients when the list changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from toolcrib.errors import ConfigurationError
from toolcrib.serve.mcp.face import Face
from toolcrib.serve.mcp.options import Options, Say

if TYPE_CHECKING:
    from toolcrib.engine import Runtime


@asynccontextmanager
async def announcing(runtime: Runtime, face: Face, options: Options, say: Say) -> AsyncIterator[None]:
    """Within the block changes of files are followed, if that is wanted."""
    if not options.watch:
        yield
        return
    task = asyncio.create_task(_followed(runtime, face, say))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _followed(runtime: Runtime, face: Face, say: Say) -> None:
    """One notice for each reload, however many tools it changes."""
    try:
        async with aclosing(runtime.watch()) as reports:
            async for report in reports:
                say(f"reloaded: {report}")
                if report.appeared or report.changed or report.gone:
                    await face.announce()
    except ConfigurationError as error:
        say(f"files are not followed: {error.message}")
