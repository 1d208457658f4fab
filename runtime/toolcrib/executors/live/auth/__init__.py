"""`auth`: what proves who sends the requests of a tool. Named as OpenAPI's security schemes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

from toolcrib.errors import Problem
from toolcrib.executors.live.auth.addresses import address_of
from toolcrib.executors.live.auth.contract import Auth, AuthFailed, Fetch
from toolcrib.executors.live.auth.credentials import Fields
from toolcrib.executors.live.auth.fixed import Fixed, Spot, api_key, basic, bearer
from toolcrib.executors.live.auth.hook import HookAuth, Outgoing, python
from toolcrib.executors.live.auth.oauth import OAuth, oauth2, warn_of_plain_text
from toolcrib.executors.live.auth.tokens import Tokens
from toolcrib.executors.live.draft import Draft
from toolcrib.executors.live.headers import fault_of_name
from toolcrib.model import Descriptor
from toolcrib.protocols import Clock
from toolcrib.vault import Vault

__all__ = ["Auth", "AuthFailed", "Fetch", "Outgoing", "Tokens", "compile_auth"]


class Several:
    """Schemes that all apply, in their order: a hook sees what those before it have added."""

    def __init__(self, schemes: Sequence[Auth]) -> None:
        self.hosts: tuple[str, ...] = tuple(host for scheme in schemes for host in scheme.hosts)
        self._schemes = schemes

    async def apply(self, draft: Draft, clock: Clock, fetch: Fetch) -> None:
        """Add what each of them adds; see `Auth.apply`."""
        for scheme in self._schemes:
            await scheme.apply(draft, clock, fetch)

    def show(self, draft: Draft) -> None:
        """Add what each of them adds, masked."""
        for scheme in self._schemes:
            scheme.show(draft)

    async def renewed(self, clock: Clock, fetch: Fetch, used: Draft | None = None) -> bool:
        """Whether any of them has something new; each is asked. See `Auth.renewed`."""
        return any([await scheme.renewed(clock, fetch, used) for scheme in self._schemes])


def compile_auth(
    block: Mapping[str, Any],
    tool: Descriptor,
    problems: list[Problem],
    vault: Vault | None,
    pointer: str = "/live/auth",
    *,
    tokens: Tokens | None = None,
) -> Auth | None:
    """Compile the `auth` of a block.

    Args:
        block: The whole block of the mode; it fits its schema.
        tool: Whose block it is.
        problems: Receives every fault.
        vault: Where secrets are looked up; None to check only.
        pointer: Where `auth` stands in the descriptor.
        tokens: Shared by the tools of an executor, so that the same credentials get one token; its own unless given.

    Returns:
        None where the block has no `auth`, or is only checked.

    Raises:
        MissingSecret: A secret is not there, or can't be sent.
        NotReady: A hook is not there.
    """
    auth = block.get("auth")
    if auth is None:
        return None
    alone = isinstance(auth, Mapping)
    schemes: list[Auth] = []
    spots = dict(_spots_of(block))
    for index, scheme in enumerate([auth] if alone else auth):
        place = pointer if alone else f"{pointer}/{index}"
        fields = Fields(scheme, place, problems, vault)
        compiled = _compiled(fields, tool, tokens or Tokens())
        _check_spot(fields, spots)
        if compiled is not None:
            schemes.append(compiled)
    _check_url(block, Fields({}, pointer, problems, vault))
    if vault is None or not schemes:
        return None
    return schemes[0] if len(schemes) == 1 else Several(schemes)


def _compiled(fields: Fields, tool: Descriptor, tokens: Tokens) -> Fixed | OAuth | HookAuth | None:
    kind = fields.choice("type")
    if kind == "apiKey":
        return api_key(fields)
    if kind == "http":
        return basic(fields) if fields.choice("scheme") == "basic" else bearer(fields)
    return oauth2(fields, tokens) if kind == "oauth2" else python(fields, tool)


def _check_spot(fields: Fields, spots: dict[Spot, str]) -> None:
    """Whether a scheme's place is free, and one where a credential may stand."""
    kind, where, name = fields.choice("type"), fields.choice("in"), fields.choice("name")
    if kind == "python":
        return
    if kind != "apiKey":
        where, name = "header", "Authorization"
    spot = (where, name.lower() if where == "header" else name)
    if spot in spots:
        message = f"the {where} `{name}` is written twice: here and at {spots[spot]}"
        fields.tell("duplicate_credential", message, hint="leave one of them out; only one can be sent")
    fault = fault_of_name(name) if where != "query" else None
    if fault is not None and not (where == "cookie" and fault.code == "reserved_header"):
        fields.tell(fault.code, fault.message.replace("header", where), "name", hint=fault.hint)
    spots[spot] = fields.pointer


def _spots_of(block: Mapping[str, Any]) -> Iterator[tuple[Spot, str]]:
    """The places that the rest of the block fills, each with its pointer."""
    for key, where in (("headers", "header"), ("cookies", "cookie"), ("query", "query")):
        names = block.get(key, {})
        if key != "query" or "from" not in names:
            for name in names:
                yield (where, name.lower() if where == "header" else name), f"/live/{key}"
    _path, _mark, query = str(block.get("url", "")).partition("?")
    for piece in filter(None, query.split("&")):
        yield ("query", unquote_plus(piece.partition("=")[0])), "/live/url"


def _check_url(block: Mapping[str, Any], fields: Fields) -> None:
    origin = "/".join(str(block.get("url", "")).split("/", 3)[:3])
    address = None if "${" in origin else address_of(origin)
    if address is not None:
        warn_of_plain_text(address, fields)
