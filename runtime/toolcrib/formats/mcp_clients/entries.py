"""The entries of a client's file of servers, one by one, in the language of `servers`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from toolcrib.core.errors import Problem, Severity, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.formats.mcp_clients.keys import MEANINGLESS, MISSED, SPELLINGS, TRANSPORTS
from toolcrib.formats.mcp_clients.lookups import LookUps
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.server_blocks import Spot, Written


class _Foreign(NamedTuple):
    """Keys of one name that have no meaning here: where the first of them is, and whose they are."""

    spot: Spot
    servers: list[str]


_FLAGS: Final = ("disabled", "enabled")
_NONE: Final = object()


class Entries:
    """Reads the servers of one file.

    Attributes:
        left_out: The names of servers that are switched off or can't be used, which is told.
    """

    def __init__(self, root: str, inputs: JSON, spot: Spot) -> None:
        """Begin.

        Args:
            root: The folder that paths in the file are relative to.
            inputs: What the file asks its user for, as VS Code writes it.
            spot: Where that stands.
        """
        self._root = root
        self._look_ups = LookUps(inputs, spot)
        self._foreign: dict[str, _Foreign] = {}
        self._problems: list[Problem] = []
        self.left_out: set[str] = set()

    def problems(self) -> list[Problem]:
        """Everything that was wrong, and one notice for each key that has no meaning here."""
        told = [_of_foreign(key, spot, servers) for key, (spot, servers) in self._foreign.items()]
        return [*self._problems, *told, *self._look_ups.notices()]

    def read(self, entries: JSON, spot: Spot) -> Iterator[tuple[str, Written]]:
        """The servers under one key, by name, without those that are switched off or can't be used."""
        if isinstance(entries, dict):
            named = [(name, spot.below(name), entry) for name, entry in entries.items()]
        elif isinstance(entries, list):
            named = [(_name_in(entry), spot.below(at), entry) for at, entry in enumerate(entries)]
        else:
            self._unfit(spot, "an object of servers", entries)
            return
        for name, place, entry in named:
            self.left_out.add(name)
            if not name.strip():
                self._complain(place, "missing_key", "a server needs a name", "write it before the server")
            elif not isinstance(entry, dict):
                self._unfit(place, "an object", entry)
            elif entry.get("disabled") is True or entry.get("enabled") is False:
                message = f"`{clipped(name)}` is switched off in this file, and left out"
                self._complain(place, "server_left_out", message, severity="notice")
            else:
                written = self._server(name, entry, place)
                if written is not None:
                    self.left_out.discard(name)
                    yield name, written

    def _server(self, name: str, entry: Mapping[str, JSON], spot: Spot) -> Written | None:
        """One server; None where it can't be used, which is told."""
        told = len(self._problems)
        said: dict[str, Any] = {}
        spots = {"": spot}
        for key, value in entry.items():
            meaning, place = SPELLINGS.get(key), spot.below(key)
            if meaning is None:
                self._foreign.setdefault(key, _Foreign(place, [])).servers.append(name)
                continue
            found: Any = self._value(meaning, value, place) if value is not None else _NONE
            if found is _NONE:
                continue
            if said.setdefault(meaning, found) != found:
                other = spots[meaning].pointer.rpartition("/")[2]
                self._complain(
                    place,
                    "contradiction",
                    f"`{key}` says something else than `{other}`",
                    "leave out one of them",
                )
            spots.setdefault(meaning, place)
            if meaning in {"env", "headers"}:
                spots |= {f"{meaning}.{each}": place.below(each) for each in found}
        if len(self._problems) > told:
            return None
        _settle(said, spots)
        self._drop_needless(said, spots)
        return Written(name, said, spots, self._root)

    def _drop_needless(self, said: dict[str, Any], spots: dict[str, Spot]) -> None:
        """Leave out what such a server has no use for; clients write it and pass over it."""
        if ("url" in said) == ("command" in said):
            return
        for key in ("args", "env", "cwd") if "url" in said else ("headers",):
            if key not in said:
                continue
            if said.pop(key):
                kind = "with a `url`" if "url" in said else "that is started"
                message = f"`{key}` has no effect on a server {kind}, and is left out"
                self._complain(spots[key], "client_key", message, severity="notice")
            for each in [each for each in spots if each.partition(".")[0] == key]:
                del spots[each]

    def _value(self, meaning: str, value: JSON, spot: Spot) -> Any:
        """What a key says, as we write it; `_NONE` where that is told to be wrong."""
        if meaning in _FLAGS:
            return _NONE if isinstance(value, bool) else self._unfit(spot, "true or false", value)
        if meaning in {"env", "headers"}:
            return self._texts_by_name(value, spot)
        if meaning == "transport":
            return self._transport(value, spot)
        if meaning in {"args", "only", "except"} or (meaning == "command" and isinstance(value, list)):
            return self._texts(value, spot)
        return self._text(value, spot)

    def _texts(self, value: JSON, spot: Spot) -> Any:
        if not isinstance(value, list):
            return self._unfit(spot, "a list of texts", value)
        texts = [self._text(item, spot.below(at)) for at, item in enumerate(value)]
        return _NONE if _NONE in texts else texts

    def _texts_by_name(self, value: JSON, spot: Spot) -> Any:
        """Names and texts; what is null is not there."""
        if not isinstance(value, dict):
            return self._unfit(spot, "an object of texts", value)
        texts = {
            name: self._text(item, spot.below(name), bare=True)
            for name, item in value.items()
            if item is not None
        }
        return _NONE if _NONE in texts.values() else texts

    def _text(self, value: JSON, spot: Spot, *, bare: bool = False) -> Any:
        if isinstance(value, str):
            return self._look_ups.ours(value, spot, bare=bare)
        return (
            json.dumps(value) if isinstance(value, bool | int | float) else self._unfit(spot, "a text", value)
        )

    def _transport(self, value: JSON, spot: Spot) -> Any:
        if not isinstance(value, str):
            return self._unfit(spot, "a text", value)
        known = TRANSPORTS.get(value.lower().replace("-", "").replace("_", ""))
        if known is not None:
            return known
        message = f"there is no transport `{clipped(value)}` here, so this server is left out"
        hint = did_you_mean(value, TRANSPORTS) or "the transports are: `stdio`, `http`, `sse`"
        self._complain(spot, "server_left_out", message, hint, severity="warning")
        return _NONE

    def _unfit(self, spot: Spot, expected: str, value: JSON) -> Any:
        """Tell that a value is of another kind than its key has. What it is may be secret, so it is not shown."""
        self._complain(spot, "wrong_type", f"expected {expected}, got {_kind_of(value)}")
        return _NONE

    def _complain(
        self, spot: Spot, code: str, message: str, hint: str = "", severity: Severity = "error"
    ) -> None:
        self._problems.append(spot.problem(code, message, hint, severity))


def _name_in(entry: JSON) -> str:
    """The name of a server that stands in a list."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _settle(said: dict[str, Any], spots: dict[str, Spot]) -> None:
    """Make of what clients say apart what `servers` says in one, and the other way round."""
    if isinstance(said.get("command"), list):
        first, *others = said["command"] or [""]
        said["command"], said["args"] = first, [*others, *said.get("args", ())]
    if "url" in said and "transport" not in said and urlsplit(said["url"]).path.endswith("/sse"):
        said["transport"] = "sse"  # so they were called, and clients found out by asking
    for key in ("command", "url", "cwd"):
        if not said.get(key):
            said.pop(key, None)
    if not said.get("args"):
        said.pop("args", None)
    chosen = {key: said.pop(key) for key in ("only", "except") if key in said}
    said["import"] = chosen or True
    if chosen:
        spots["import"] = spots[next(iter(chosen))]


def _kind_of(value: JSON) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return {bool: "true or false", type(None): "null", str: "a text"}.get(type(value), "a number")


def _of_foreign(key: str, spot: Spot, servers: list[str]) -> Problem:
    """What is told of a key that has no meaning here, once for a file."""
    whose = ", ".join(f"`{clipped(name)}`" for name in servers[:3]) + (" ..." if len(servers) > 3 else "")
    message = f"`{clipped(key)}` of {whose} has no meaning here"
    if key in MISSED:
        return spot.problem(
            "client_key", f"{message}, and without it the server may refuse", MISSED[key], "warning"
        )
    if key in MEANINGLESS:
        return spot.problem("client_key", f"{message}: {MEANINGLESS[key]}", severity="notice")
    return spot.problem("client_key", message, did_you_mean(key, SPELLINGS), "notice")
