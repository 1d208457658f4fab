"""Checks that involve several parts of a `live` block: contradictions, and keys that have no effect."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import described_names
from toolcrib.executors.live.uri import POINTER as URL
from toolcrib.executors.live.uri import Url
from toolcrib.executors.live.value_sources import ValueSources, child_pointer
from toolcrib.security.egress import is_loopback

_BODILESS: Final = ("GET", "HEAD")
_READS_ARGUMENTS: Final = ("auth", "errors", "pagination", "response")
_MENTION: Final = re.compile(r"\bargs(?:\.([A-Za-z_][A-Za-z0-9_]*)|\[\s*\\?['\"](.*?)\\?['\"]\s*\])")


def check_body(method: str, sources: ValueSources) -> None:
    """Report a body of GET or HEAD, which has no meaning (RFC 9110 sections 9.3.1, 9.3.2)."""
    if method in _BODILESS:
        hint = "use `method: POST`, or `query` instead of `body`"
        sources.tell("body_not_allowed", f"a {method} request has no body", "/live/body", hint)


def check_hosts(hosts: Collection[str], host: str, text: str, sources: ValueSources) -> None:
    """Report a list of `hosts` that does not include the host of `url`."""
    # While variables are not resolved, the host may be a placeholder.
    unknown = "${" in text and not sources.looks_up
    if hosts and not unknown and not any(fnmatchcase(host, pattern) for pattern in hosts):
        message = f"`hosts` does not include `{host}`, the host of `url`"
        sources.tell("host_not_named", message, "/live/hosts", f"add `{host}`")


def check_insecure(url: Url, block: dict[str, Any], sources: ValueSources) -> None:
    """Warn about secrets that are sent over unencrypted http. For `auth`, `compile_auth` warns."""
    if url.scheme == "http" and sources.has_secrets and "auth" not in block and not is_loopback(url.host):
        message = (
            f"secrets are sent to `{url.host}` without encryption, where anyone on the path can read them"
        )
        sources.tell("unencrypted_secret", message, URL, "use `https://`", severity="warning")


def check_unused_arguments(block: dict[str, Any], sources: ValueSources) -> None:
    """Warn about arguments that the request does not use."""
    if sources.whole:
        return
    elsewhere = set(_mentioned(block))
    for name in described_names(sources.tool.input_schema):
        if name not in sources.read and name not in elsewhere:
            message = f"unused argument `{name}`"
            hint = f"use it as `{{{{ args.{name} }}}}`, or remove it from the schema"
            place = pointer_to(("input_schema", "properties", name))
            sources.tell("unused_argument", message, place, hint, severity="warning")


def _mentioned(block: dict[str, Any]) -> Iterator[str]:
    """The arguments that other parts of the block may read, found by their text."""
    # `pagination.cursor_arg` and the parameters of pages are plain argument names, without `args.`.
    for key in _READS_ARGUMENTS:
        for attribute, item in _MENTION.findall(json.dumps(block.get(key), default=str)):
            yield attribute or item
    pages = block.get("pagination")
    if isinstance(pages, dict):
        yield from (value for value in pages.values() if isinstance(value, str))


def parameters_of_auth(block: dict[str, Any]) -> Iterator[str]:
    """The query parameters that authentication sets."""
    auth = block.get("auth", [])
    for scheme in auth if isinstance(auth, list) else [auth]:
        if scheme.get("in") == "query":
            yield scheme["name"]


def check_query_names(names: Collection[str], url: Url, at: str, sources: ValueSources) -> None:
    """Report parameters that are also set in the query of `url`."""
    written = {parameter.name for parameter in url.query}
    for name in names:
        if name in written:
            message = f"duplicate parameter `{name}`: also set in `url`"
            sources.tell("duplicate_parameter", message, child_pointer(at, name), "keep one of them")


_OF_REPETITIONS = ("attempts", "backoff", "retry_budget")
_OF_PAGES = re.compile(r"\s*(items|next_cursor)\s*(?=[.\[]|$)")


def is_repeatable(tool: Descriptor) -> bool:
    """Whether a call may be attempted again after an attempt that may have acted."""
    said = tool.annotations
    block: Any = tool.bindings["live"]
    return said.idempotent or said.read_only or bool(block.get("idempotency_key"))


def check_unused_keys(tool: Descriptor) -> Iterator[Problem]:
    """Warnings for keys of the descriptor that have no effect."""
    # Only keys that the descriptor itself sets: project defaults apply to many tools and need not fit each.
    block: Any = tool.bindings["live"]
    if not is_repeatable(tool):
        yield from _limits_of_repetitions(tool)
    if _writes(tool, "cache") and tool.limits.cache and not _is_kept(tool, block):
        why = "only complete responses to read-only GET or HEAD requests without `pagination` are cached"
        yield _needless(why, "/limits/cache", "remove it")
    yield from _timeouts(tool, block.get("timeouts", {}))
    if "pagination" not in block:
        yield from _selected(block.get("select", ""))


def _limits_of_repetitions(tool: Descriptor) -> Iterator[Problem]:
    for key in _OF_REPETITIONS:
        # `attempts: 1` states explicitly what applies anyway.
        if _writes(tool, key) and not (key == "attempts" and tool.limits.attempts == 1):
            hint = "remove it, set `idempotency_key`, or add `annotations: {idempotent: true}` if the call is idempotent"
            yield _needless("calls that could act twice are never retried", f"/limits/{key}", hint)


def _is_kept(tool: Descriptor, block: dict[str, Any]) -> bool:
    reads = tool.annotations.read_only and block.get("method", "GET") in {"GET", "HEAD"}
    return reads and "pagination" not in block


def _selected(select: str) -> Iterator[Problem]:
    """A warning for a `select` that starts with a field that only pagination provides, without an alternative."""
    found = _OF_PAGES.match(select)
    if found is not None and "||" not in select:
        name = found.group(1)
        message = f"`select` finds nothing: `{name}` exists only with `pagination`"
        hint = f"use `body.{name}` for a field of the response, or add `pagination`"
        yield Problem(
            code="needless_key", message=message, pointer="/live/select", hint=hint, severity="warning"
        )


def _timeouts(tool: Descriptor, written: dict[str, str]) -> Iterator[Problem]:
    """Warnings for timeouts that are longer than the deadline of the call."""
    # A deadline that the descriptor does not set may be changed by the project.
    if "timeout" not in tool.origin.written:
        return
    whole = format_duration(tool.timeout)
    for key, text in written.items():
        if parse_duration(text) > tool.timeout:
            message = f"`timeout` ends the call after {whole}, before `{key}` expires"
            yield _needless(message, f"/live/timeouts/{key}", f"remove it, or set `timeout: {text}`")


def _writes(tool: Descriptor, key: str) -> bool:
    """Whether the descriptor sets a limit or a part of it, such as `backoff.first` of `backoff`."""
    name = f"limits.{key}"
    return any(each == name or each.startswith(f"{name}.") for each in tool.origin.written)


def _needless(why: str, pointer: str, hint: str) -> Problem:
    key = pointer.rpartition("/")[2]
    message = f"`{key}` has no effect: {why}"
    return Problem(code="needless_key", message=message, pointer=pointer, hint=hint, severity="warning")
