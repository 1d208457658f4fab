"""The floor of a server: it repeats the responses of another server, byte by byte but for the ID of the request.

Usage: python serving_recorded.py PORT ORIGIN_PORT

A request that was not seen before is passed on to the other server, and its response is kept. Requests are the same if
they differ in their ID and `_meta` alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import NamedTuple

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Response(NamedTuple):
    """A response without the ID of its request: head without its length, body before and after the ID."""

    head: bytes
    before: bytes
    after: bytes

    def to(self, number: bytes) -> bytes:
        """The bytes of the response to a request with this ID."""
        size = len(self.before) + len(number) + len(self.after)
        return b"%s\r\ncontent-length: %d\r\n\r\n%s%s%s" % (self.head, size, self.before, number, self.after)


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of a request or response with a known length."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    length = LENGTH.search(head)
    return head, await reader.readexactly(int(length[1])) if length else b""


async def answer_of_origin(port: int, head: bytes, body: bytes) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(head + b"\r\n\r\n" + body)
    answer = await message(reader)
    writer.close()
    return answer


async def main(port: int, origin: int) -> None:
    kept: dict[str, Response] = {}

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, body = await message(reader)
                request = json.loads(body) if body else {}
                number = json.dumps(request.get("id")).encode()
                params = {name: item for name, item in request.get("params", {}).items() if name != "_meta"}
                key = json.dumps([request.get("method"), params])
                if key not in kept:
                    told, answer = await answer_of_origin(origin, head, body)
                    before, found, after = answer.partition(b'"id":' + number)
                    if not found:
                        writer.write(told + b"\r\n\r\n" + answer)
                        continue
                    kept[key] = Response(LENGTH.sub(b"", told), before + b'"id":', after)
                writer.write(kept[key].to(number))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", port, limit=1 << 24)
    await server.serve_forever()


asyncio.run(main(*map(int, sys.argv[1:])))
