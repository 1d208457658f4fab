"""The files of an OpenAPI description: from a folder, or from a server that the user named."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON
from toolcrib.core.text import format_size
from toolcrib.formats.imports.sources import MOST_BYTES, source_bytes
from toolcrib.formats.openapi_import import Refused
from toolcrib.http import open_client
from toolcrib.http.messages import DEFAULT_PORTS, ExchangeBounds, HTTPError, HTTPRequest
from toolcrib.loading.documents.foreign_text import UnreadableText, decode_foreign, read_foreign
from toolcrib.security.egress import EgressGuard, EgressRefused
from toolcrib.security.hosts import read_host_pattern

_FILES: Final = 2_000
"""Maximum number of files of a description."""

_ACCEPT: Final = "application/json, application/yaml, */*;q=0.5"


class Description(NamedTuple):
    """The main file of a description.

    Attributes:
        value: Its value.
        file: Its name, for references that name it.
        url: Its URL, if it was fetched.
        notes: What had to be assumed to read it.
        other: What its text looks like, if it is something else.
    """

    value: JSON
    file: str
    url: str
    notes: tuple[str, ...]
    other: str = ""


class DescriptionFiles:
    """Reads the files of one description.

    Args:
        source: The path or URL of its main file.
        hosts: Hosts whose files references may lead to.
    """

    def __init__(self, source: str, hosts: Sequence[str]) -> None:
        self._source = source
        self._is_url = urlsplit(source).scheme in DEFAULT_PORTS
        self._hosts = tuple(hosts)
        self._patterns = tuple(_host_of(host) for host in hosts)
        self._left = _FILES
        self._bytes = MOST_BYTES

    def main(self) -> Description:
        """The main file.

        Raises:
            ConfigurationError: It cannot be read, or is neither JSON nor YAML.
        """
        head = ""
        try:
            # The bytes are not kept beside the text, and it is read only once: it may have 64 MiB.
            text = decode_foreign(self._main_fetched() if self._is_url else source_bytes(self._source))
            head = text[:400]
            self._bytes -= len(text)
            value, notes = read_foreign(text)
        except UnreadableText as error:
            where = f"{self._source}:{error.line}" if error.line else self._source
            hint = _other_text(head)
            raise ConfigurationError(f"{where}: {error}", code="unreadable_source", hint=hint) from None
        url = self._source if self._is_url else ""
        return Description(value, Path(self._source).name, url, notes, _other_text(head))

    def _main_fetched(self) -> bytes:
        parts = urlsplit(self._source)
        try:
            port = parts.port or DEFAULT_PORTS[parts.scheme]
            # The user wrote this address, so it may also be one of this machine.
            return asyncio.run(_fetched(self._source, (parts.hostname or "",), [f"{parts.hostname}:{port}"]))
        except (_FetchError, ValueError) as error:
            raise ConfigurationError(
                f"{self._source} cannot be read: {error}", code="unreadable_source"
            ) from None

    def read(self, name: str) -> JSON:
        """Another file of the description.

        Args:
            name: Its path relative to the main file, or its URL.

        Raises:
            Refused: It may not be read, or cannot.
        """
        self._left -= 1
        if self._left < 0:
            raise Refused("external_reference", "", f"the description has more than {_FILES:,} files")
        content = self._fetched(name) if "://" in name or self._is_url else self._from_folder(name)
        self._bytes -= len(content)
        if self._bytes < 0:
            raise Refused("too_large", "", f"the files are larger than {format_size(MOST_BYTES)}")
        try:
            return read_foreign(decode_foreign(content)).value
        except UnreadableText as error:
            raise Refused("unresolved_reference", "", f"`{name}` cannot be read: {error}") from None

    def _from_folder(self, name: str) -> bytes:
        folder = Path(self._source).resolve().parent
        path = (folder / name).resolve()
        # A description from elsewhere must not pull files of this machine into tools.
        if not path.is_relative_to(folder):
            message = f"`{name}` is outside the folder of the description and is not read"
            raise Refused("external_reference", "", message)
        try:
            return source_bytes(path)
        except ConfigurationError as error:
            reason = "unresolved_reference"
            raise Refused(reason, "", f"`{name}` cannot be read: {error}") from None

    def _fetched(self, name: str) -> bytes:
        url = urljoin(self._source, name) if self._is_url else name
        parts = urlsplit(url)
        host = parts.hostname or ""
        own = urlsplit(self._source)
        same = self._is_url and (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
        if parts.scheme not in DEFAULT_PORTS or not (same or host):
            raise Refused("external_reference", "", f"`{name}` is not fetched")
        try:
            port = parts.port or DEFAULT_PORTS[parts.scheme]
            named = f"{host}:{port}"
            # An address that is not public needs its port: `--allow-ref localhost:8000`.
            allow = [named] if same or named in self._hosts else []
            hosts = [pattern for pattern, only in self._patterns if only in (None, port)]
            return asyncio.run(_fetched(url, (host,) if same else hosts, allow))
        except EgressRefused:
            message = f"`{name}` is on another host, which is not contacted; `--allow-ref {host}` allows it"
            raise Refused("external_reference", "", message) from None
        except (_FetchError, ValueError) as error:
            raise Refused("unresolved_reference", "", f"`{name}` cannot be read: {error}") from None


def _host_of(host: str) -> tuple[str, int | None]:
    """The host pattern and port of `--allow-ref`.

    Raises:
        ConfigurationError: It is not a host.
    """
    try:
        return read_host_pattern(host)
    except ValueError as error:
        fault, _semicolon, hint = str(error).rpartition("; ")
        raise ConfigurationError(f"--allow-ref: {fault}", hint=hint) from None


class _FetchError(Exception):
    """A file cannot be fetched; the text says why."""


async def _fetched(url: str, hosts: Sequence[str], allow: Sequence[str]) -> bytes:
    """The content of a URL.

    Raises:
        EgressRefused: The host is not among `hosts`.
        _FetchError: It could not be fetched.
    """
    parts = urlsplit(url)
    scheme, host = parts.scheme, parts.hostname or ""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = HTTPRequest(
        "GET", scheme, host, parts.port or DEFAULT_PORTS[scheme], target, (("Accept", _ACCEPT),)
    )
    guard = EgressGuard(allow)
    guard.check(host, request.port, hosts)
    client = open_client(guard)
    try:
        bounds = ExchangeBounds(read=60.0, body=MOST_BYTES)
        answer = await client.send(request, bounds, hosts=hosts, owner="import", repeatable=True)
    except EgressRefused as refused:
        raise _FetchError(f"{refused.message}; {refused.hint}") from None
    except HTTPError as error:
        raise _FetchError(str(error)) from None
    finally:
        await client.aclose()
    if answer.status != 200:
        place = answer.header("location")
        told = f"; use {urljoin(url, place)}" if place and 300 <= answer.status < 400 else ""
        raise _FetchError(f"the server answered with status {answer.status}{told}")
    return answer.body


def _other_text(head: str) -> str:
    """What a text that is neither JSON nor YAML looks like, by its beginning."""
    head = head.lstrip().lower()
    for start, what in (
        ("<!doctype html", "a web page; import the file that it shows"),
        ("<html", "a web page; import the file that it shows"),
        ("<", "XML, such as WSDL; only JSON and YAML descriptions can be imported"),
        ("#%raml", "RAML; convert it to OpenAPI first"),
        ("format: 1a", "API Blueprint; convert it to OpenAPI first"),
        ("pk", "a zip archive; unpack it first"),
        ("curl ", "a curl command; use `toolcrib import curl`"),
    ):
        if head.startswith(start):
            return f"it looks like {what}"
    return ""
