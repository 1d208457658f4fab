"""Response bodies, read up to a limit on both compressed and decompressed bytes."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence

from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, bad_response

_INLINE = 1 << 20
"""Bytes up to which the parts of a body are joined in the event loop."""

_GZIP = 31  # zlib `wbits`: 15 (largest window) + 16 (gzip format only)
_MAGIC = b"\x1f\x8b"
_LENGTH = re.compile(r"[0-9]{1,18}")
_NO_BODY = frozenset({204, 304})


class ResponseBody:
    """Collects the body of one response and never holds more than the limit.

    Args:
        codings: The values of `Content-Encoding`.
        most: Maximum number of bytes, both compressed and decompressed.
        announced: The `Content-Length`, if any.

    Raises:
        HTTPError: `unsupported_coding`, or `response_too_large` if the announced length exceeds the limit.
    """

    def __init__(self, codings: Sequence[str], most: int, announced: int | None = None) -> None:
        self._most = most
        if announced is not None and announced > most:
            raise self._too_large(f"announces {announced} bytes", announced)
        self._taken = 0
        self._held = 0
        self._chunks: list[bytes] = []
        self._unzip = zlib.decompressobj(_GZIP) if _zipped(codings) else None

    def add(self, chunk: bytes) -> None:
        """Add received bytes.

        Raises:
            HTTPError: `response_too_large`, or the gzip data is corrupt.
        """
        self._taken += len(chunk)
        if self._taken > self._most:
            raise self._too_large("is too large", self._taken)
        if self._unzip is None:
            self._chunks.append(chunk)
        elif chunk:
            self._unfold(self._unzip, chunk)

    async def whole(self) -> bytes:
        """The complete body, after the last byte was added.

        Raises:
            HTTPError: `bad_response`: the gzip data is truncated.
        """
        # Servers send `Content-Encoding: gzip` with empty bodies, too; these count as complete.
        if self._unzip is not None and self._taken and not self._unzip.eof:
            raise HTTPError(HTTPFailure.BAD_RESPONSE, "the gzip data of the response is truncated", sent=True)
        chunks, self._chunks = self._chunks, []
        if max(self._taken, self._held) <= _INLINE:
            return b"".join(chunks)
        # Copying megabytes takes milliseconds. The thread computes without the GIL meanwhile.
        return await asyncio.to_thread(b"".join, chunks)

    def _unfold(self, unzip: zlib._Decompress, chunk: bytes) -> None:
        if unzip.eof:
            raise _surplus(chunk)
        try:
            # Decompress at most one byte beyond the limit: a gzip bomb of 1 MiB expands to a gigabyte.
            plain = unzip.decompress(chunk, self._most - self._held + 1)
        except zlib.error:
            raise HTTPError(
                HTTPFailure.BAD_RESPONSE, "the gzip data of the response is corrupt", sent=True
            ) from None
        self._held += len(plain)
        if self._held > self._most:
            raise self._too_large("is too large when decompressed", self._held)
        if unzip.unused_data:
            raise _surplus(unzip.unused_data)
        self._chunks.append(plain)

    def _too_large(self, what: str, measured: int) -> HTTPError:
        message = f"the response {what}; the limit is {self._most} bytes"
        return HTTPError(HTTPFailure.RESPONSE_TOO_LARGE, message, sent=True, measured=measured)


def _zipped(codings: Sequence[str]) -> bool:
    """Whether the only coding is gzip; `x-gzip` means the same (RFC 9110 section 8.4.1.3)."""
    named = [coding for value in codings for each in value.split(",") if (coding := each.strip().lower())]
    undone = [coding for coding in named if coding != "identity"]
    if not undone:
        return False
    if len(undone) > 1 or undone[0] not in ("gzip", "x-gzip"):
        message = "unsupported content coding; only gzip, applied once, is supported"
        raise HTTPError(HTTPFailure.UNSUPPORTED_CODING, message, sent=True)
    return True


def _surplus(rest: bytes) -> HTTPError:
    if rest.startswith(_MAGIC):
        message = "the response has several gzip members; only one is supported"
        return HTTPError(HTTPFailure.UNSUPPORTED_CODING, message, sent=True)
    return HTTPError(
        HTTPFailure.BAD_RESPONSE, "the response has data after the end of its gzip data", sent=True
    )


def body_reader(
    method: str, status: int, headers: Sequence[tuple[str, str]], bounds: ExchangeBounds
) -> ResponseBody | None:
    """The reader of the body of a response; None if the response cannot have a body.

    Raises:
        HTTPError: The headers contradict each other (RFC 9112 section 6.3), announce more than the limit, or name an
            unsupported content coding.
    """
    if not 200 <= status <= 599:
        raise bad_response(f"{status} is not a final status")
    values: dict[str, list[str]] = {}
    for name, value in headers:
        if name in ("content-length", "transfer-encoding", "content-encoding"):
            values.setdefault(name, []).append(value)
    # RFC 9110 section 8.6 allows repeated equal lengths. Different ones are a sign of response splitting.
    lengths = {length.strip() for each in values.get("content-length", ()) for length in each.split(",")}
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise bad_response("its Content-Length is not a number, or is set twice with different values")
    transfer = values.get("transfer-encoding")
    # Both framings at once are how requests and responses are smuggled (RFC 9112 section 6.3, item 3).
    if transfer is not None and (lengths or [each.lower() for each in transfer] != ["chunked"]):
        raise bad_response("its Transfer-Encoding must be `chunked`, without a Content-Length")
    if method == "HEAD" or status in _NO_BODY:
        return None
    length = int(lengths.pop()) if lengths else None
    return ResponseBody(values.get("content-encoding", ()), bounds.body, length)
