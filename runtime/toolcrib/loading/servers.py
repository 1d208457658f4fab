"""Parse and check MCP servers and A2A agents: `servers`, `servers_from` and `agents` of a project, and files of other programs.

Problems never show values of headers and variables, because they may be secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import NOTHING
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.server_config import AGENT_MODE, LONGEST_NAME, SEPARATOR, Server
from toolcrib.core.text import decode_json
from toolcrib.http.headers import fault_of_name, header_fault
from toolcrib.http.messages import parse_origin
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.format_contract import Formats, ServerFile, ServerFiles
from toolcrib.security.redaction import is_secret_name
from toolcrib.security.secrets import SecretVariable, check_variables, split_variables


class _PositionOf(Protocol):
    def __call__(self, key: str = "", *steps: str | int) -> ConfigPosition: ...


_OF_THE_PROTOCOL: Final = frozenset(
    {
        "accept",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
    }
)
"""Headers that the transport sets (MCP, "Streamable HTTP"), in addition to the connection headers of HTTP."""

_COOKIES: Final = "write `auth: {type: apiKey, in: cookie, name: ..., value: ...}`"


def check_texts(said: Mapping[str, Any], where: _PositionOf) -> Iterator[Problem]:
    """The problems of strings that are passed to a process."""
    for key in ("command", "cwd"):
        if key in said:
            yield from _check_text(said[key], where(key))
    for index, text in enumerate(said.get("args", ())):
        yield from _check_text(text, where("args", index))
    for name, text in said.get("env", {}).items():
        spot = where("env", name)
        if not name or "=" in name or "\0" in name:
            message = f"`{excerpt(name)}` is not a valid environment variable name"
            yield spot.problem("wrong_form", message, "use a non-empty name without `=`")
        yield from _check_text(text, spot)
        yield from _check_literal(name, text, spot)
    if "command" in said and not said.get("args"):
        yield from _check_program(said["command"], where("command"))


def _check_text(text: str, spot: ConfigPosition) -> Iterator[Problem]:
    for problem in check_variables(text, ""):
        yield spot.problem(problem.code, problem.message, problem.hint)
    if "\0" in text:
        yield spot.problem(
            "wrong_form", "the text contains a NUL character, which cannot be passed to a process"
        )


def _check_program(command: str, spot: ConfigPosition) -> Iterator[Problem]:
    """The problem of a whole command line in place of the program, a common mistake."""
    # No shell is involved, so `npx -y server` would be looked up as one file name. Paths may contain spaces.
    first, _, rest = command.strip().partition(" ")
    if rest and not re.search(r"[/\\]|\$\{", first):
        message = f"`{excerpt(command)}` is a command line; `command` must be the program alone"
        yield spot.problem(
            "wrong_form",
            message,
            f"write `command: {excerpt(first)}` and put the rest in `args`, one item for each argument",
        )


def check_headers(headers: Mapping[str, str], where: _PositionOf) -> Iterator[Problem]:
    """The problems of a server's headers."""
    known: dict[str, str] = {}
    for name, text in headers.items():
        spot = where("headers", name)
        # Header names are case-insensitive (RFC 9110, section 5.1); YAML sees two different keys.
        other = known.setdefault(name.lower(), name)
        fault = fault_of_name(name)
        if fault is not None:
            hint = _COOKIES if name.lower() == "cookie" else fault.hint
            yield spot.problem(fault.code, fault.message, hint)
        elif name.lower() in _OF_THE_PROTOCOL or name.lower().startswith("mcp-param-"):
            message = f"the header `{name}` is set by MCP and cannot be configured"
            yield spot.problem("reserved_header", message, "remove it")
        elif other != name:
            message = f"duplicate header `{name}`, also written as `{other}`"
            yield spot.problem("duplicate_header", message, "remove one of them")
        unsendable = header_fault(text)
        if unsendable:
            yield spot.problem("unusable_credential", f"the header `{excerpt(name)}` {unsendable}")
        for problem in check_variables(text, ""):
            yield spot.problem(problem.code, problem.message, problem.hint)
        yield from _check_literal(name, text, spot)


def _check_literal(name: str, text: str, spot: ConfigPosition) -> Iterator[Problem]:
    if text and is_secret_name(name) and "${" not in text:
        message = f"the secret `{excerpt(name)}` is in plain text in the document"
        variable = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        yield spot.problem(
            "literal_secret",
            message,
            f"put it in the environment and write `${{{variable}}}`",
            "warning",
        )


def check_url(url: str, spot: ConfigPosition) -> Iterator[Problem]:
    """The problems of a server's URL; the values of its variables are not known yet."""
    faults = check_variables(url, "")
    for problem in faults:
        yield spot.problem(problem.code, problem.message, problem.hint)
    fault = None if faults else _fault_of_url(url)
    if fault is not None:
        message, hint = fault
        yield spot.problem("invalid_url", message, hint)


_ADDRESS: Final = "write `https://host/mcp`"
_LOOKED_UP: Final = "x"  # stands for the value of a variable


def _fault_of_url(url: str) -> tuple[str, str] | None:
    pieces = split_variables(url)
    known = "".join(_LOOKED_UP if isinstance(piece, SecretVariable) else piece for piece in pieces)
    if "{{" in known:
        return (
            "the URL contains an expression `{{`, which is not evaluated here",
            "write a literal URL, or use `${VAR}` in it",
        )
    if re.search(r"[\x00-\x20\x7f]", known):
        return "the URL contains a space or control character", "write a space as `%20`"
    # A variable at the start may contain the scheme and the host; the URL is checked again when it is resolved.
    if isinstance(pieces[0], SecretVariable):
        return None
    scheme, _, rest = known.partition("://")
    if scheme.lower() not in {"http", "https"} or not rest:
        seen = f", got `{excerpt(scheme)}:`" if "://" in known else ""
        return f"the URL of a server must start with `https://` or `http://`{seen}", _ADDRESS
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in authority:
        return "the URL contains credentials", "put them in `auth` or `headers`"
    if "#" in rest:
        return "the URL has a fragment (`#`), which is never sent", "remove it"
    try:
        parse_origin(f"{scheme}://{_with_a_port(authority)}")
    except ValueError:
        return f"`{excerpt(authority)}` is not a valid host or `host:port`", _ADDRESS
    return None


def _with_a_port(authority: str) -> str:
    """The authority with a number in place of a port that contains a variable."""
    return re.sub(rf":[0-9]*{_LOOKED_UP}[0-9]*$", ":80", authority)


class Locate(Protocol):
    """Maps JSON Pointers to lines and columns of values or keys; 0 if unknown."""

    def __call__(self, pointer: str, /, *, key: bool = False) -> tuple[int, int]:
        """Line and column of a pointer."""
        ...


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_BY_NAME: Final = ("env", "headers", "timeouts")
"""Keys that are merged entry by entry."""

_OF_PROCESSES: Final = ("command", "args", "env", "cwd")
_OF_ADDRESSES: Final = ("url", "headers", "auth")
_OF_KEYS: Final = frozenset(
    {"client_key", "duplicate_name", "missing_key", "needless_key", "server_left_out", "server_name"}
)
"""Codes of problems that are positioned at a key, not at its value."""


class ConfigPosition(NamedTuple):
    """The position of a part of a configuration file.

    Attributes:
        source: The file, as the user named it.
        pointer: JSON Pointer within its document.
        locate: Finds lines in that document.
    """

    source: str
    pointer: str
    locate: Locate

    def below(self, *steps: str | int) -> ConfigPosition:
        """The position of a part of it."""
        return self._replace(pointer=self.pointer + "".join(f"/{pointer_step(step)}" for step in steps))

    def place(self) -> str:
        """`file:line`."""
        line, _column = self.locate(self.pointer, key=True)
        return f"{self.source}:{line or 1}"

    def problem(self, code: str, message: str, hint: str = "", severity: Severity = "error") -> Problem:
        """A problem at this position."""
        line, column = self.locate(self.pointer, key=code in _OF_KEYS)
        return Problem(code, message, self.pointer, hint, severity, self.source, line or 1, column or 1)


class ServerBlock(NamedTuple):
    """The configuration of a server, as written.

    Attributes:
        name: Name of the server.
        said: Its keys, in the form of `servers`; the schema has accepted them.
        spots: `""` (the server), each key, and `env.NAME` -> position.
        root: The folder that its paths are relative to.
    """

    name: str
    said: Mapping[str, Any]
    spots: Mapping[str, ConfigPosition]
    root: str

    def spot(self, key: str = "", *steps: str | int) -> ConfigPosition:
        """The position of a part; that of the server if the part is not written."""
        if steps and f"{key}.{steps[0]}" in self.spots:
            return self.spots[f"{key}.{steps[0]}"].below(*steps[1:])
        if key in self.spots:
            return self.spots[key].below(*steps)
        return self.spots[""]


def server_block_at(name: str, said: Mapping[str, Any], spot: ConfigPosition, root: str) -> ServerBlock:
    """A server whose keys are all at one position."""
    spots = {"": spot, **{key: spot.below(key) for key in said}}
    for key in _BY_NAME:
        spots |= {f"{key}.{each}": spot.below(key, each) for each in said.get(key, ())}
    return ServerBlock(name, said, spots, root)


def overlay_server(lower: ServerBlock, upper: ServerBlock) -> ServerBlock:
    """Apply an override to a server, key by key; `env`, `headers` and `timeouts` entry by entry.

    An override with `url` removes all keys that start a process, and one with `command` removes those of a URL.
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
    # Relative paths belong to the file that contains them, which need not be in the folder of the project.
    root = upper.root if {"command", "cwd"} & upper.said.keys() else lower.root
    return ServerBlock(upper.name, said, {**below, **upper.spots}, root)


def server_from_block(written: ServerBlock) -> Server:
    """Build the server of a block without errors."""
    said = written.said
    imports = said.get("import", False)
    chosen: Mapping[str, Any] = imports if isinstance(imports, dict) else {}
    timeouts = {key: parse_duration(text) for key, text in said.get("timeouts", {}).items()}
    # `transport` is optional: `url` implies HTTP, `command` implies stdio.
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
        tags=tuple(chosen.get("tags", ())),
        output_modes=tuple(chosen.get("modes", ())),
        tools=tuple(said.get("tools", ())),
        hosts=tuple(said.get("hosts", ())),
        lenient=said.get("lenient", False),
        jwks=_beside(written.root, said.get("jwks", "")),
        lists=said.get("lists", False),
        card_file=said.get("card_file", ""),
        # Absolute, because the process may change its working directory before the server starts.
        root=whole_path(written.root),
        places={key: spot.place() for key, spot in written.spots.items()},
    )


def _beside(root: str, path: str) -> str:
    """The absolute path of a file that a document names; empty for none."""
    return whole_path(os.path.join(root, os.path.expanduser(path))) if path else ""


def whole_path(folder: str) -> str:
    """The absolute path of a folder; the path as named if the working directory was deleted."""
    try:
        return os.path.abspath(folder)
    except FileNotFoundError:
        return folder


def check_name(spot: ConfigPosition, name: str) -> Iterator[Problem]:
    """The problem of a server name that tool names cannot contain unchanged."""
    if _NAME.fullmatch(name):
        return
    message = f"`{excerpt(name)}` is not a valid server name"
    fit = prefix_of(name)[:64]
    hint = "use at most 64 letters, digits, `_` or `-`, starting with a letter or `_`"
    yield spot.problem("wrong_form", message, f"{hint}: `{fit}`" if _NAME.fullmatch(fit) else hint)


def prefix_of(name: str) -> str:
    """The prefix of the names of a server's tools."""
    fit = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return fit if fit[:1].isalpha() or fit.startswith("_") else f"_{fit}"


def check_prefixes(written: Mapping[str, ServerBlock]) -> Iterator[Problem]:
    """Warnings for server names that other programs accept but tool names cannot contain."""
    # Names in client files are not ours to reject: they are adapted, and the result is reported.
    first: dict[str, str] = {}
    for name, each in written.items():
        prefix = prefix_of(name)
        other = first.setdefault(prefix, name)
        if other != name:
            message = f"the tools of `{excerpt(name)}` and `{excerpt(other)}` would have the same names"
            hint = f"rename one of the servers; otherwise a second tool named `{prefix}{SEPARATOR}...` gets the suffix `_2`"
            yield each.spot().problem("server_name", message, hint, "warning")
        elif prefix != name or len(name) > LONGEST_NAME // 2:
            message = f"the tools of `{excerpt(name)}` are called `{excerpt(prefix)}{SEPARATOR}...` here"
            yield each.spot().problem("server_name", message, severity="notice")


def check_server(written: ServerBlock) -> Iterator[Problem]:
    """The problems of a server that the schema cannot find."""
    yield from _check_kind(written)
    yield from check_texts(written.said, written.spot)
    if "url" in written.said:
        yield from check_url(written.said["url"], written.spot("url"))
        yield from _check_auth(written)
    yield from check_headers(written.said.get("headers", {}), written.spot)
    if written.said.get("transport") == "sse" and written.said.get("era") == "modern":
        message = "`transport: sse` does not exist in the `modern` era"
        yield written.spot("era").problem("contradiction", message, "remove one of the two")
    start = written.said.get("timeouts", {}).get("start")
    if start is not None and not 0 < parse_duration(start) <= _LONGEST_START:
        message = f"a start timeout must be longer than 0s and at most 10m, got `{start}`"
        yield written.spot("timeouts", "start").problem(
            "out_of_range", message, "write at most 10m, or omit it for the default of 30s"
        )


_LONGEST_START: Final = 600.0


def _check_auth(written: ServerBlock) -> Iterator[Problem]:
    """The problems of `auth` that the schema cannot find. Secrets are looked up on connecting, not here."""
    if "auth" not in written.said:
        return
    # Deferred: few servers have `auth`.
    from toolcrib.http.auth import compile_auth  # noqa: PLC0415

    problems: list[Problem] = []
    block = {key: written.said[key] for key in _OF_ADDRESSES if key in written.said}
    compile_auth(block, "", lambda pointer: written.spot(*keys_of(pointer)).place(), problems, None)
    for problem in problems:
        spot = written.spot(*keys_of(problem.pointer))
        yield spot.problem(problem.code, problem.message, problem.hint, problem.severity)


def _check_kind(written: ServerBlock) -> Iterator[Problem]:
    """Check that a server has either `command` or `url`, and no keys of the other kind."""
    said, transport = written.said, written.said.get("transport")
    if "command" in said and "url" in said:
        message = "`command` and `url` cannot be combined: `command` starts a server, `url` connects to a running one"
        yield written.spot("url").problem("wrong_combination", message, "remove one of them")
        return
    if "command" not in said and "url" not in said:
        message = "a server needs `command` to start it or `url` to connect to it"
        hint = "add one of them"
        if not said.keys() & {*_OF_PROCESSES, *_OF_ADDRESSES}:
            hint += f", or name a file of `{excerpt(written.name)}` in `servers_from`"
        yield written.spot().problem("missing_key", message, hint)
        return
    starts = "command" in said
    kind, needless = ("with a `command`", _OF_ADDRESSES) if starts else ("with a `url`", _OF_PROCESSES)
    for key in needless:
        if key in said:
            message = f"`{key}` has no effect on a server {kind}"
            hint = _INSTEAD.get(key, "remove it")
            yield written.spot(key).problem("needless_key", message, hint)
    if transport is not None and starts != (transport == "stdio"):
        message = f"`transport: {transport}` cannot be combined with `{'command' if starts else 'url'}`"
        hint = "remove it" if starts else "write `http` or `sse`"
        yield written.spot("transport").problem("contradiction", message, hint)


_INSTEAD: Final[Mapping[str, str]] = {
    "args": "pass it in the server's `url` or `headers`",
    "env": "pass it in the server's `url` or `headers`",
    "headers": "pass it in the server's `args` or `env`",
    "auth": "pass credentials in the server's `env`",
}


def merge_servers(
    several: Iterable[Mapping[str, ServerBlock]],
) -> tuple[dict[str, ServerBlock], list[Problem]]:
    """Merge the servers of several files. A later file replaces servers of the same name, with a warning."""
    # Equal blocks are no conflict: several clients on one machine often configure the same server.
    found: dict[str, ServerBlock] = {}
    problems = []
    for servers in several:
        for name, written in servers.items():
            if name in found and found[name].said != written.said:
                message = f"duplicate server `{excerpt(name)}`, also in {found[name].spot().place()}; this one is used"
                problems.append(
                    written.spot().problem("duplicate_name", message, "remove one of them", "warning")
                )
            found[name] = written
    return found, problems


def _no_line(_pointer: str, *, key: bool = False) -> tuple[int, int]:  # noqa: ARG001 -- a `Locate`
    return 0, 0


def parse_servers(
    said: Mapping[str, Any],
    source: str = "<memory>",
    *,
    root: str = ".",
    locate: Locate = _no_line,
    pointer: str = "/servers",
    below: Mapping[str, ServerBlock] = NOTHING,
    told: Callable[[str], bool] = lambda _name: False,
) -> tuple[dict[str, Server], list[Problem]]:
    """Parse the servers of a document.

    Args:
        said: Name -> block of the server; the schema has accepted it.
        source: The document, as the user named it.
        root: The folder that paths are relative to.
        locate: Finds lines in the document.
        pointer: JSON Pointer of `said`.
        below: Servers of other files by name; they come first, and blocks here override them.
        told: Whether the absence of a server in the other files was reported already, so that its override is skipped.

    Returns:
        The valid servers in document order; and all problems with their positions.
    """
    written, problems = dict(below), list[Problem]()
    top = ConfigPosition(source, pointer, locate)
    for name, entry in said.items():
        upper = server_block_at(name, entry, top.below(name), root)
        if name in written:
            written[name] = overlay_server(written[name], upper)
            continue
        # An override of a server that is missing for a reported reason would only add a misleading "missing
        # key".
        if told(name) and not {"command", "url"} & entry.keys():
            continue
        faults = list(check_name(upper.spot(), name))
        if not faults:
            written[name] = upper
        problems += [*faults, *check_server(upper)] if faults else []
    servers, faults = _sound(written)
    return servers, [*problems, *faults]


def parse_agents(
    said: Mapping[str, Any],
    source: str,
    *,
    root: str,
    locate: Locate,
    taken: Mapping[str, Server],
    note: Callable[[str], None],
) -> tuple[dict[str, Server], list[Problem]]:
    """Parse the `agents` of a project, as servers with the transport `a2a`.

    Args:
        said: Name -> block of the agent or the directory; the schema has accepted it.
        source: The document, as the user named it.
        root: The folder of the document.
        locate: Finds lines in the document.
        taken: The servers of the project, whose names agents cannot have.
        note: Called with each folder and file before it is read.

    Returns:
        The valid agents in document order; and all problems with their positions.
    """
    top = ConfigPosition(source, "/agents", locate)
    blocks, problems = dict[str, ServerBlock](), list[Problem]()
    for name, entry in said.items():
        written = server_block_at(name, entry, top.below(name), root)
        written = written._replace(said={**entry, "transport": AGENT_MODE})
        faults = [*check_name(written.spot(), name), *_check_hosts(written), *_check_keys(written, note)]
        if name in taken:
            message = f"the name `{excerpt(name)}` is already used by a server ({taken[name].place()})"
            faults.append(written.spot().problem("duplicate_name", message, "rename one of them"))
        problems += faults
        if faults:
            continue
        directory = entry.get("directory", "")
        if directory and not _IS_URL.match(directory):
            found, wrong = _agents_of_folder(written, note)
            blocks |= found
            problems += wrong
            continue
        for key in ("card", "directory"):
            if key in entry:
                spots = {**written.spots, "url": written.spots[key]}
                url = {"url": entry[key], "lists": key == "directory"}
                written = written._replace(said={**written.said, **url}, spots=spots)
        problems += _check_encryption(written) if directory else ()
        blocks[name] = written
    agents, others = _sound(blocks)
    return agents, [*problems, *others]


_IS_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|\$\{")
"""The beginning of a directory that is a URL and no folder."""


def _check_encryption(written: ServerBlock) -> Iterator[Problem]:
    """The problem of a directory that would be read without encryption: whoever changes it decides which agents are called."""
    # Deferred: few projects have directories.
    from toolcrib.security.egress import is_loopback  # noqa: PLC0415

    scheme, _, rest = written.said["url"].partition("://")
    if scheme.lower() != "http" or "${" in rest:
        return
    try:
        host = parse_origin(f"http://{re.split(r'[/?#]', rest, maxsplit=1)[0]}")[1]
    except ValueError:
        return  # reported with the URL
    if not is_loopback(host):
        message = "a directory of agents is read over HTTPS only"
        yield written.spot("url").problem("invalid_url", message, "write `https://`")


def _check_keys(written: ServerBlock, note: Callable[[str], None]) -> Iterator[Problem]:
    """The problem of a key set that cannot be read."""
    if "jwks" not in written.said:
        return
    fault = _fault_of_path(written.said["jwks"])
    if fault is not None:
        yield written.spot("jwks").problem(*fault)
        return
    path = _beside(written.root, written.said["jwks"])
    note(path)
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = decode_json(file.read())
        sound = bool(found["keys"]) and all(key["kty"] in ("EC", "OKP", "RSA") for key in found["keys"])
    except OSError as error:
        message = f"the key set `{excerpt(written.said['jwks'])}` cannot be read: {error.strerror}"
        yield written.spot("jwks").problem("file_unreadable", message, "the path is relative to this file")
        return
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        message = f"`{excerpt(written.said['jwks'])}` is not a JSON Web Key Set with public keys"
        yield written.spot("jwks").problem(
            "wrong_form", message, 'write `{"keys": [...]}` with keys of the types EC, OKP or RSA'
        )


def _agents_of_folder(
    written: ServerBlock, note: Callable[[str], None]
) -> tuple[dict[str, ServerBlock], list[Problem]]:
    """The agents whose cards are in the folder of a directory, and the problems of cards."""
    # Deferred: few projects have directories.
    from toolcrib.servers.a2a.cards import LARGEST_CARD, decode_card, interfaces_of_card  # noqa: PLC0415
    from toolcrib.servers.a2a.directories import name_in_directory  # noqa: PLC0415
    from toolcrib.servers.mcp.failures import InvalidAnswer  # noqa: PLC0415

    fault = _fault_of_path(written.said["directory"])
    if fault is not None:
        return {}, [written.spot("directory").problem(*fault)]
    folder = _beside(written.root, written.said["directory"])
    note(folder)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError as error:
        message = f"the folder `{excerpt(written.said['directory'])}` cannot be read: {error.strerror}"
        spot = written.spot("directory")
        return {}, [spot.problem("file_unreadable", message, "the path is relative to this file")]
    found, problems = dict[str, ServerBlock](), list[Problem]()
    for name in names:
        path = os.path.join(folder, name)
        note(path)
        spot = ConfigPosition(os.path.join(written.said["directory"], name), "", _no_line)
        agent = name_in_directory(written.name, name.removesuffix(".json"))
        body, why = b"", ""
        try:
            with open(path, "rb") as file:
                body = file.read(LARGEST_CARD + 1)
            interface = next(interfaces_of_card(decode_card(body), ""), None)
        except OSError as error:
            problems.append(
                spot.problem(
                    "file_unreadable", f"the card of the agent `{agent}` cannot be read: {error.strerror}"
                )
            )
            continue
        except InvalidAnswer as invalid:
            interface, why = None, invalid.message
        if len(body) > LARGEST_CARD:
            why = "its card is larger than 4 MiB"
        if why or interface is None:
            why = why or "its card has no JSON-RPC or HTTP+JSON endpoint"
            problems.append(spot.problem("invalid_card", f"the agent `{agent}` cannot be used: {why}"))
            continue
        if agent in found:
            message = f"the name `{agent}` is already used by another card of the folder"
            problems.append(spot.problem("duplicate_name", message, "rename one of the files"))
            continue
        said = {**written.said, "url": interface.url, "card_file": path}
        spots = {**written.spots, "url": spot}
        found[agent] = ServerBlock(agent, said, spots, written.root)
    return found, problems


def _check_hosts(written: ServerBlock) -> Iterator[Problem]:
    for index, host in enumerate(written.said.get("hosts", ())):
        try:
            parse_origin(f"https://{host}")
        except ValueError:
            message = f"`{excerpt(host)}` is not a valid host or `host:port`"
            yield written.spot("hosts", index).problem(
                "wrong_form", message, "write `api.example.com` or `api.example.com:8443`"
            )


def is_servers_file(path: str, formats: Formats) -> bool:
    """Whether a path is a file of another program that configures MCP servers."""
    return any(files.is_servers_file(path) for files in formats.server_files())


def read_servers_file(path: str, formats: Formats) -> tuple[dict[str, Server], list[Problem]]:
    """Read the servers of a client's configuration file, and its problems. All tools are imported.

    Settings without a meaning here are reported as notices. Servers that are disabled in the file are omitted.
    """
    file = _read_file(path, None, formats)
    servers, faults = _sound(file.servers)
    return servers, [*file.problems, *faults]


def _read_file(path: str, named: ConfigPosition | None, formats: Formats) -> ServerFile:
    """Read a file with the format that recognises it, else with the first format that has such files."""
    several = [*formats.server_files()]
    if not several:
        spot = named or ConfigPosition(path, "", _no_line)
        message = f"no installed format reads `{excerpt(path)}`, a file of another program"
        return ServerFile([spot.problem("no_servers", message)], unread=True)
    # The first format reads any file, so the more specific ones are asked before it.
    recognised = (files for files in several[1:] if files.is_servers_file(path))
    reader: ServerFiles = next(recognised, several[0]) if len(several) > 1 else several[0]
    return reader.read_servers_file(path, named)


def _sound(written: Mapping[str, ServerBlock]) -> tuple[dict[str, Server], list[Problem]]:
    """The servers without errors, and all problems."""
    servers, problems = {}, []
    for name, each in written.items():
        faults = list(check_server(each))
        problems += faults
        if not any(fault.severity == "error" for fault in faults):
            servers[name] = server_from_block(each)
    return servers, [*problems, *check_prefixes(written)]


def servers_of_project(
    said: Mapping[str, Any], document: Document, folder: str, note: Callable[[str], None], formats: Formats
) -> tuple[Mapping[str, Server], tuple[str, ...], list[Problem]]:
    """The servers and agents of a project, the files that it reads servers from, and the problems of both.

    Args:
        said: The valid parts of the project.
        document: The project file.
        folder: The folder of the project, as the user named it.
        note: Called with each file and folder before it is read.
        formats: The foreign formats, whose files may configure servers.
    """
    named = said.get("servers_from", ())
    spot = ConfigPosition(document.source, "/servers_from", document.position)
    spots = (
        {named: spot} if isinstance(named, str) else {name: spot.below(at) for at, name in enumerate(named)}
    )
    files, problems = dict[str, ServerFile](), list[Problem]()
    for name, place in spots.items():
        fault = _fault_of_path(name)
        if fault is not None:
            problems.append(place.problem(*fault))
            continue
        path = os.path.normpath(os.path.join(folder, os.path.expanduser(name)))
        note(path)
        files[path] = _read_file(path, place, formats)
        problems += files[path].problems
    # The project's own `servers` come last and override the files of other programs.
    below, faults = merge_servers(file.servers for file in files.values())
    servers, others = parse_servers(
        said.get("servers", {}),
        document.source,
        root=folder,
        locate=document.position,
        below=below,
        told=lambda name: any(file.tells_of(name) for file in files.values()),
    )
    agents, wrong = parse_agents(
        said.get("agents", {}),
        document.source,
        root=folder,
        locate=document.position,
        taken=servers,
        note=note,
    )
    return MappingProxyType({**servers, **agents}), tuple(files), [*problems, *faults, *others, *wrong]


def _fault_of_path(path: str) -> tuple[str, str, str] | None:
    if not path.isprintable():
        return "wrong_form", f"`{excerpt(path)}` is not a valid path: it contains a control character", ""
    if "${" in path:
        message = f"`{excerpt(path)}` contains `${{`, but variables are not substituted here"
        return "variable_not_allowed", message, "write the path itself; `~/` is the home folder"
    return None
