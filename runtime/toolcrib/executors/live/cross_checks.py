"""What the parts of a block ask of each other."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import described_names
from toolcrib.executors.live.templates import Sources, below
from toolcrib.executors.live.url import POINTER as URL
from toolcrib.executors.live.url import Url
from toolcrib.security.egress import is_loopback

_BODILESS: Final = ("GET", "HEAD")
_READS_ARGUMENTS: Final = ("auth", "errors", "pagination", "response")
_MENTION: Final = re.compile(r"\bargs(?:\.([A-Za-z_][A-Za-z0-9_]*)|\[\s*\\?['\"](.*?)\\?['\"]\s*\])")


def check_body(method: str, sources: Sources) -> None:
    """Refuse a body where it has no meaning (RFC 9110 sections 9.3.1, 9.3.2)."""
    if method in _BODILESS:
        hint = "write `method: POST`, or `query` in place of `body`"
        sources.tell("body_not_allowed", f"a {method} request has no body", "/live/body", hint)


def check_hosts(hosts: Collection[str], host: str, text: str, sources: Sources) -> None:
    """Refuse a list of hosts without that of the url."""
    unknown = "${" in text and not sources.looks_up
    if hosts and not unknown and not any(fnmatchcase(host, pattern) for pattern in hosts):
        message = f"`hosts` does not name `{host}`, the host of `url`"
        sources.tell("host_not_named", message, "/live/hosts", f"add `{host}`")


def check_insecure(url: Url, block: dict[str, Any], sources: Sources) -> None:
    """Warn of secrets that everybody on the way can read; those of `auth` are told where that is compiled."""
    if url.scheme == "http" and sources.secrets and "auth" not in block and not is_loopback(url.host):
        message = (
            f"what is looked up goes to `{url.host}` without encryption: everybody on the way can read it"
        )
        sources.tell("unencrypted_secret", message, URL, "write `https://`", severity="warning")


def check_unused(block: dict[str, Any], sources: Sources) -> None:
    """Warn of arguments that change nothing."""
    if sources.whole:
        return
    elsewhere = set(_mentioned(block))
    for name in described_names(sources.tool.input_schema):
        if name not in sources.read and name not in elsewhere:
            message = f"the argument `{name}` is used nowhere"
            hint = f"write `{{{{ args.{name} }}}}` where it belongs, or take it out of the schema"
            place = pointer_to(("input_schema", "properties", name))
            sources.tell("unused_argument", message, place, hint, severity="warning")


def _mentioned(block: dict[str, Any]) -> Iterator[str]:
    """The arguments that other parts of the block may read; pages are asked for by one of the same name."""
    for key in _READS_ARGUMENTS:
        for attribute, item in _MENTION.findall(json.dumps(block.get(key), default=str)):
            yield attribute or item
    pages = block.get("pagination")
    if isinstance(pages, dict):
        yield from (value for value in pages.values() if isinstance(value, str))


def parameters_of_auth(block: dict[str, Any]) -> Iterator[str]:
    """The parameters of the query that authentication writes."""
    auth = block.get("auth", [])
    for scheme in auth if isinstance(auth, list) else [auth]:
        if scheme.get("in") == "query":
            yield scheme["name"]


def check_query_names(names: Collection[str], url: Url, at: str, sources: Sources) -> None:
    """Refuse a parameter that stands in the url too."""
    written = {parameter.name for parameter in url.query}
    for name in names:
        if name in written:
            message = f"the parameter `{name}` stands in `url` and here"
            sources.tell("duplicate_parameter", message, below(at, name), "write it in one place")
