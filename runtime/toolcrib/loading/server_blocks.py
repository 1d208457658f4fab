"""What is written of an MCP server, where each part of it stands, what is wrong with it, and the server that it makes.

A server may be written in several places: a file of some client says most of it, and the project lays a few keys
over that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem, Severity
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.server_config import LONGEST_NAME, SEPARATOR, Server
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.server_texts import check_headers, check_texts, check_url


class Locate(Protocol):
    """From JSON Pointers to lines and columns, of a value or of its key; 0 where unknown."""

    def __call__(self, pointer: str, /, *, key: bool = False) -> tuple[int, int]:
        """Line and column."""
        ...


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_BY_NAME: Final = ("env", "headers", "timeouts")
"""Keys that are laid over each other entry by entry."""

_OF_PROCESSES: Final = ("command", "args", "env", "cwd")
_OF_ADDRESSES: Final = ("url", "headers", "auth")
_OF_KEYS: Final = frozenset(
    {"client_key", "duplicate_name", "missing_key", "needless_key", "server_left_out", "server_name"}
)
"""Codes of problems that stand at a key rather than at its value."""


class Spot(NamedTuple):
    """Where something is written.

    Attributes:
        source: The file, as it was named.
        pointer: JSON Pointer within its document.
        locate: Finds lines in that document.
    """

    source: str
    pointer: str
    locate: Locate

    def below(self, *steps: str | int) -> Spot:
        """A part of it."""
        return self._replace(pointer=self.pointer + "".join(f"/{pointer_step(step)}" for step in steps))

    def place(self) -> str:
        """`file:line`."""
        line, _column = self.locate(self.pointer, key=True)
        return f"{self.source}:{line or 1}"

    def problem(self, code: str, message: str, hint: str = "", severity: Severity = "error") -> Problem:
        """A problem of what is written here."""
        line, column = self.locate(self.pointer, key=code in _OF_KEYS)
        return Problem(code, message, self.pointer, hint, severity, self.source, line or 1, column or 1)


class Written(NamedTuple):
    """What is written of a server.

    Attributes:
        name: Names it.
        said: Its keys, as `servers` has them. Their shape is right.
        spots: `""`, the keys, and `env.NAME` -> where each stands.
        root: The folder that its paths are relative to.
    """

    name: str
    said: Mapping[str, Any]
    spots: Mapping[str, Spot]
    root: str

    def spot(self, key: str = "", *steps: str | int) -> Spot:
        """Where a part of it stands; the server itself where that one is not written."""
        if steps and f"{key}.{steps[0]}" in self.spots:
            return self.spots[f"{key}.{steps[0]}"].below(*steps[1:])
        if key in self.spots:
            return self.spots[key].below(*steps)
        return self.spots[""]


def written_at(name: str, said: Mapping[str, Any], spot: Spot, root: str) -> Written:
    """A server that stands at one place, with all of its keys."""
    spots = {"": spot, **{key: spot.below(key) for key in said}}
    for key in _BY_NAME:
        spots |= {f"{key}.{each}": spot.below(key, each) for each in said.get(key, ())}
    return Written(name, said, spots, root)


def laid_over(lower: Written, upper: Written) -> Written:
    """A server with another saying over it, key by key; `env`, `headers` and `timeouts` entry by entry.

    What says `url` takes the place of all that says how to start a process, and the other way round.
    """
    gone: Sequence[str] = ()
    if "url" in upper.said:
        gone = _OF_PROCESSES
    elif "command" in upper.said:
        gone = (*_OF_ADDRESSES, "transport")
    kept = {key: value for key, value in lower.said.items() if key not in gone}
    said = {**kept, **upper.said}
    for key in _BY_NAME:
        if key in kept and key in upper.said:
            said[key] = {**kept[key], **upper.said[key]}
    below = {key: spot for key, spot in lower.spots.items() if key.partition(".")[0] not in gone}
    root = upper.root if {"command", "cwd"} & upper.said.keys() else lower.root
    return Written(upper.name, said, {**below, **upper.spots}, root)


def server_of(written: Written) -> Server:
    """The server that is written; it has no faults."""
    said = written.said
    imports = said.get("import", False)
    chosen: Mapping[str, Any] = imports if isinstance(imports, dict) else {}
    timeouts = {key: parse_duration(text) for key, text in said.get("timeouts", {}).items()}
    usual: Literal["http", "stdio"] = "http" if "url" in said else "stdio"
    return Server(
        written.name,
        transport=said.get("transport", usual),
        command=said.get("command", ""),
        args=tuple(said.get("args", ())),
        env=dict(said.get("env", {})),
        cwd=said.get("cwd", ""),
        url=said.get("url", ""),
        headers=dict(said.get("headers", {})),
        auth=said.get("auth"),
        era=said.get("era", "auto"),
        start_timeout=timeouts.get("start", 30.0),
        idle_timeout=timeouts.get("idle", 0.0),
        scope=said.get("scope", "runtime"),
        elicitation=said.get("elicitation", ""),
        sampling=said.get("sampling", ""),
        imports=imports is not False,
        only=tuple(chosen.get("only", ("*",))),
        skipped=tuple(chosen.get("except", ())),
        root=whole_path(written.root),
        places={key: spot.place() for key, spot in written.spots.items()},
    )


def whole_path(folder: str) -> str:
    """A folder by its whole path; as it was named where the working directory is gone."""
    try:
        return os.path.abspath(folder)
    except FileNotFoundError:
        return folder


def check_name(spot: Spot, name: str) -> Iterator[Problem]:
    """A name that a project writes must be able to stand in names of tools as it is."""
    if _NAME.fullmatch(name):
        return
    message = f"`{clipped(name)}` is no name of a server"
    fit = prefix_of(name)[:64]
    hint = "a name begins with a letter or `_` and goes on with letters, digits, `_`, `-`, at most 64 in all"
    yield spot.problem("wrong_form", message, f"{hint}: `{fit}`" if _NAME.fullmatch(fit) else hint)


def prefix_of(name: str) -> str:
    """What the names of a server's tools begin with."""
    fit = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return fit if fit[:1].isalpha() or fit.startswith("_") else f"_{fit}"


def check_prefixes(written: Mapping[str, Written]) -> Iterator[Problem]:
    """What is to be told of names of servers that clients take, and that names of tools can't have."""
    first: dict[str, str] = {}
    for name, each in written.items():
        prefix = prefix_of(name)
        other = first.setdefault(prefix, name)
        if other != name:
            message = f"the tools of `{clipped(name)}` would have the names of those of `{clipped(other)}`"
            hint = f"rename one of the two servers; else the second tool of a name `{prefix}{SEPARATOR}...` gets `_2`"
            yield each.spot().problem("server_name", message, hint, "warning")
        elif prefix != name or len(name) > LONGEST_NAME // 2:
            message = f"the tools of `{clipped(name)}` are called `{clipped(prefix)}{SEPARATOR}...` here"
            yield each.spot().problem("server_name", message, severity="notice")


def check(written: Written) -> Iterator[Problem]:
    """Everything that is wrong with a server beyond its shape."""
    yield from _check_kind(written)
    yield from check_texts(written.said, written.spot)
    if "url" in written.said:
        yield from check_url(written.said["url"], written.spot("url"))
        yield from _check_auth(written)
    yield from check_headers(written.said.get("headers", {}), written.spot)
    if written.said.get("transport") == "sse" and written.said.get("era") == "modern":
        message = "`transport: sse` was gone before the `modern` era began"
        yield written.spot("era").problem("contradiction", message, "leave out one of the two")
    start = written.said.get("timeouts", {}).get("start")
    if start is not None and not 0 < parse_duration(start) <= _LONGEST_START:
        message = f"a start takes longer than 0s and at most 10m, and this one is `{start}`"
        yield written.spot("timeouts", "start").problem(
            "out_of_range", message, "write at most 10m, or leave it out for 30s"
        )


_LONGEST_START: Final = 600.0


def _check_auth(written: Written) -> Iterator[Problem]:
    """What is wrong with `auth` beyond its shape; secrets are looked up when the server is connected."""
    if "auth" not in written.said:
        return
    from toolcrib.http.auth import compile_auth  # noqa: PLC0415 -- few servers have it

    problems: list[Problem] = []
    block = {key: written.said[key] for key in _OF_ADDRESSES if key in written.said}
    compile_auth(block, "", lambda pointer: written.spot(*keys_of(pointer)).place(), problems, None)
    for problem in problems:
        spot = written.spot(*keys_of(problem.pointer))
        yield spot.problem(problem.code, problem.message, problem.hint, problem.severity)


def _check_kind(written: Written) -> Iterator[Problem]:
    """Whether it is one of the two kinds of servers, and all of its keys are of that kind."""
    said, transport = written.said, written.said.get("transport")
    if "command" in said and "url" in said:
        message = "`command` starts a server and `url` reaches one that runs, and both are written"
        yield written.spot("url").problem("wrong_combination", message, "leave out one of them")
        return
    if "command" not in said and "url" not in said:
        message = "a server has `command`, which is started, or `url`, where it is reached; there is neither"
        hint = "write one of them"
        if not said.keys() & {*_OF_PROCESSES, *_OF_ADDRESSES}:
            hint += f", or name a file of `{clipped(written.name)}` in `servers_from`"
        yield written.spot().problem("missing_key", message, hint)
        return
    starts = "command" in said
    kind, needless = ("that is started", _OF_ADDRESSES) if starts else ("with a `url`", _OF_PROCESSES)
    for key in needless:
        if key in said:
            message = f"`{key}` has no effect on a server {kind}"
            hint = _INSTEAD.get(key, "leave it out")
            yield written.spot(key).problem("needless_key", message, hint)
    if transport is not None and starts != (transport == "stdio"):
        message = f"`transport: {transport}` does not go with `{'command' if starts else 'url'}`"
        hint = "leave it out" if starts else "write `http` or `sse`"
        yield written.spot("transport").problem("contradiction", message, hint)


_INSTEAD: Final[Mapping[str, str]] = {
    "args": "what the server needs goes into its `url` or `headers`",
    "env": "what the server needs goes into its `url` or `headers`",
    "headers": "what the server needs goes into its `args` or `env`",
    "auth": "a credential goes into the `env` of a server that is started",
}


def merged(several: Iterable[Mapping[str, Written]]) -> tuple[dict[str, Written], list[Problem]]:
    """The servers of several files: of two of one name that of the later file counts, which is told."""
    found: dict[str, Written] = {}
    problems = []
    for servers in several:
        for name, written in servers.items():
            if name in found and found[name].said != written.said:
                message = f"`{clipped(name)}` is also in {found[name].spot().place()}; this one counts"
                problems.append(
                    written.spot().problem("duplicate_name", message, "remove one of them", "warning")
                )
            found[name] = written
    return found, problems
