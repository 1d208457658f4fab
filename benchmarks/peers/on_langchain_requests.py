"""RequestsGetTool of LangChain: it takes a URL and answers text. Nothing is checked.

As its documentation makes it, every call opens a connection; it can also be given a session.
"""

from __future__ import annotations

import aiohttp
import worker
from langchain_community.tools.requests.tool import RequestsGetTool
from langchain_community.utilities.requests import TextRequestsWrapper


async def prepared() -> None:
    url = f"{worker.origin()}/v1/forecast?city=Lisbon&days=3"

    async with aiohttp.ClientSession() as session:
        given = TextRequestsWrapper(headers=worker.HEADERS, aiosession=session)
        plain = RequestsGetTool(
            requests_wrapper=TextRequestsWrapper(headers=worker.HEADERS), allow_dangerous_requests=True
        )
        pooled = RequestsGetTool(requests_wrapper=given, allow_dangerous_requests=True)

        async def call() -> None:
            assert "18.5" in await plain.ainvoke({"url": url})

        async def call_with_session() -> None:
            assert "18.5" in await pooled.ainvoke({"url": url})

        await worker.serve(
            ("langchain-community", "langchain-core", "aiohttp"),
            {"call": call, "session": call_with_session},
        )


worker.main(prepared)
