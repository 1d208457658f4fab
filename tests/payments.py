"""A tool that changes something, for tests of the journal."""

from __future__ import annotations

import asyncio
from typing import Any

from toolcrib import Result, Runtime


class Payments:
    """A tool that counts its calls, and can be held."""

    def __init__(self) -> None:
        self.made = 0
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.fails = ""

    async def pay(self, amount: int, password: str = "") -> dict[str, Any]:
        self.made += 1
        self.entered.set()
        await self.go_on.wait()
        if self.fails:
            raise ValueError(self.fails)
        return {"number": self.made, "amount": amount, "echo": password}

    async def begin(self, runtime: Runtime, **options: Any) -> asyncio.Task[Result]:
        """Add the tool, and start a call that ends once `go_on` is set."""
        self.go_on.clear()
        runtime.add(self.pay)
        call = asyncio.create_task(runtime.call("pay", {"amount": 3}, **options))
        await self.entered.wait()
        return call
