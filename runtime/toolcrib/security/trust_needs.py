"""Collect the needs of files: programs to start, hosts to contact, secrets to read, code to import."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.core.server_config import place_of_server
from toolcrib.core.text import canonical
from toolcrib.security.program_files import FollowedFiles, files_of_command, files_of_module
from toolcrib.security.redaction import redact
from toolcrib.security.secrets import SecretVariable, split_variables, unescape_dollars
from toolcrib.security.server_display import exact_command, exact_variable, shown_url

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server

Kind = Literal["start", "contact", "read", "import", "mode", "content"]
KINDS: Final[Sequence[Kind]] = ("start", "contact", "read", "import", "mode", "content")
"""All kinds, in display order."""


class Need(NamedTuple):
    """One action that requires the user's agreement.

    Attributes:
        kind: `start` (a program), `contact` (a host), `read` (a variable, file or keyring entry), `import`
            (Python code), `mode` (a call in a mode that does not declare its needs), `content` (a pack,
            unchanged).
        what: The command line, origin, look-up (`${NAME}`), function, mode or pack. Secrets are masked.
        to: Destination of a value that is read, origin that a host replaces (`in place of ...`), or role of a
            function.
        details: Everything else that counts, one line each: `in ./server`, `env TOKEN=${TOKEN}`,
            `file server.py 1f2e3d4c5b6a`.
        digest: SHA-256 in hex of everything that requires a new decision if it changes. Users and place are
            not included.
        users: The subjects that have this need: `server time`, `tool get_forecast`, `profile ci`.
        place: `file:line` of the first user.
    """

    kind: Kind
    what: str
    to: str = ""
    details: tuple[str, ...] = ()
    digest: str = ""
    users: tuple[str, ...] = ()
    place: str = ""

    @property
    def subject(self) -> tuple[str, str, str]:
        """The fields that identify a need, even if its details have changed."""
        return self.kind, self.what, self.to

    def as_json(self) -> dict[str, JSON]:
        """Return the need as a JSON object."""
        return {
            "kind": self.kind,
            "what": self.what,
            "to": self.to,
            "details": list(self.details),
            "digest": self.digest,
            "users": list(self.users),
            "place": self.place,
        }


def make_need(
    kind: Kind,
    what: str,
    *,
    to: str = "",
    details: Iterable[str] = (),
    counts: JSON = None,
    user: str = "",
    place: str = "",
) -> Need:
    """Create a need and compute its digest.

    Args:
        kind: As `Need.kind`.
        what: As `Need.what`.
        to: As `Need.to`.
        details: As `Need.details`.
        counts: Further values that count, possibly secret: only the digest includes them.
        user: The subject that has the need.
        place: `file:line` of the subject.
    """
    shown = tuple(details)
    # Canonical JSON, so that the order of keys in a file does not change the digest.
    told = canonical([kind, what, to, list(shown), counts])
    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
    return Need(kind, what, to, shown, digest, (user,) if user else (), place)


def merge_needs(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Merge equal needs and their users, and sort them in display order."""
    found: dict[str, Need] = {}
    for each in needs:
        before = found.get(each.digest)
        users = (*before.users, *each.users) if before is not None else each.users
        found[each.digest] = (before or each)._replace(users=tuple(dict.fromkeys(users)))
    return tuple(sorted(found.values(), key=lambda each: (KINDS.index(each.kind), each.what, each.to)))


def hash_of(needs: Iterable[Need]) -> str:
    """Return the hash that identifies a set of needs: SHA-256 of their sorted digests, in hex."""
    # Sorted and unique, so that the order of files and the number of users do not change the hash.
    digests = sorted({each.digest for each in needs})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


# Needs of servers.


def needs_of_server(server: Server, root: str) -> Iterator[Need]:
    """Yield the needs of starting or contacting an MCP server or an A2A agent.

    Args:
        server: The server.
        root: Folder of the workspace that configures it, absolute, with links resolved.
    """
    user, place = place_of_server(server), server.place()
    if server.transport == "stdio":
        yield _start(server, root, user, place)
        target = user
    else:
        block = {
            # An agent of a directory is covered by trust in the directory, at whose hosts alone it can be.
            "url": server.directory or server.url,
            "hosts": server.hosts,
            "headers": dict(server.headers),
            "auth": server.auth,
        }
        yield from needs_of_http(block, user=user, place=place, root=root)
        target = ""
    known = server.known_variables()
    written: JSON = {
        "command": server.command,
        "args": list(server.args),
        "cwd": server.cwd,
        "env": dict(server.env),
    }
    for variable in look_ups(written) if target else ():
        if variable.name not in known:
            yield make_need("read", variable.text, to=target, user=user, place=place)
    for role, hook in (("elicitation", server.elicitation), ("sampling", server.sampling)):
        if hook:
            yield need_of_import(hook, role, root, user, place)


def _start(server: Server, root: str, user: str, place: str) -> Need:
    known = server.known_variables()
    argv = [_known(text, known) for text in (server.command, *server.args)]
    environment = {name: _known(text, known) for name, text in server.env.items()}
    folder = _joined(server.root, _known(server.cwd, known))
    files = files_of_command(argv, environment, folder, root)
    details = [f"in {server.cwd}"] if server.cwd else []
    details += [f"env {name}={exact_variable(server, name)}" for name in sorted(server.env)]
    written: JSON = [server.command, list(server.args), dict(server.env), server.cwd]
    return make_need(
        "start",
        exact_command(server),
        details=[*details, *_files_shown(files)],
        counts=[written, dict(files.digests)],
        user=user,
        place=place,
    )


def needs_of_program(
    program: Server, root: str, *, user: str, place: str, details: Iterable[str] = ()
) -> Iterator[Need]:
    """Yield the needs of running a program for the calls of a tool.

    Args:
        program: Its command, environment and working directory, as written; `root` is the folder of the document.
        root: Folder of the workspace, absolute, with links resolved.
        user: The subject that has the needs: `tool get_forecast`.
        place: `file:line` of the subject.
        details: What else the program may use, one line each.
    """
    argv = [program.command, *program.args]
    files = files_of_command(argv, program.env, _joined(program.root, program.cwd), root)
    shown = [f"in {program.cwd}"] if program.cwd else []
    shown += [f"env {name}={exact_variable(program, name)}" for name in sorted(program.env)]
    written: JSON = [*argv, dict(program.env), program.cwd]
    yield make_need(
        "start",
        exact_command(program),
        details=[*shown, *details, *_files_shown(files)],
        counts=[written, dict(files.digests)],
        user=user,
        place=place,
    )
    for variable in look_ups(written):
        yield make_need("read", variable.text, to=user, user=user, place=place)


def _known(text: str, known: Mapping[str, str]) -> str:
    """Replace the known variables of a server. Other look-ups stay as written."""
    for name, value in known.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _joined(root: str, folder: str) -> str:
    import os  # noqa: PLC0415 -- only servers need it

    return os.path.abspath(os.path.join(root, folder))


def _files_shown(files: FollowedFiles) -> Iterator[str]:
    for name, digest in files.digests.items():
        if not name.endswith("/"):
            yield f"file {name} {digest[:12]}"
    for name, digest in files.digests.items():
        if name.endswith("/"):
            yield f"names in {name} {digest[:12]}"
    for name in files.left:
        yield f"data {name}, whose content may change"
    if not files.complete:
        yield "more files than are followed"


def need_of_import(
    function: str, role: str, root: str, user: str, place: str, *, packs: Sequence[str] = ()
) -> Need:
    """The need of importing a function and everything that its module imports.

    Args:
        function: The function, as `module:name`.
        role: What it is used as: `auth`, `tool`.
        root: Folder of the workspace, absolute, with links resolved.
        user: The subject that has the need.
        place: `file:line` of the subject.
        packs: Folders and zip archives whose modules are found before those of the workspace.
    """
    files = files_of_module(function.partition(":")[0], root, packs)
    return make_need(
        "import",
        function,
        to=f"as {role}",
        details=_files_shown(files),
        counts=dict(files.digests),
        user=user,
        place=place,
    )


# Needs of requests.


def needs_of_http(block: Mapping[str, Any], *, user: str, place: str = "", root: str = "") -> Iterator[Need]:
    """Yield the needs of requests that a block describes (`url, hosts, headers, auth ...`).

    Mode `live` and servers have such blocks.
    Each look-up names all hosts of the block as its destination, so a decision covers a secret together with
    its hosts.

    Args:
        block: The block, as written.
        user: The subject that has the needs: `tool get_forecast`.
        place: `file:line` of the subject.
        root: Folder of the workspace, absolute, with links resolved; for the files of hooks.
    """
    targets = [f"`{host}`" if "*" in host else host for host in contacted(block)]
    for target in targets:
        yield make_need("contact", target, user=user, place=place)
    written: Any = {key: value for key, value in block.items() if key != "hosts"}
    for variable in look_ups(written):
        yield make_need("read", variable.text, to=", ".join(sorted(targets)), user=user, place=place)
    for scheme in _auth_schemes(block):
        if isinstance(scheme.get("call"), str):
            yield need_of_import(scheme["call"], "auth", root, user, place)


def contacted(block: Mapping[str, Any]) -> list[str]:
    """The origins and host patterns that the requests of a block contact, as written, without duplicates."""
    targets = [origin_text(block["url"])] if isinstance(block.get("url"), str) else []
    targets += [host for host in block.get("hosts", ()) if isinstance(host, str)]
    for scheme in _auth_schemes(block):
        if isinstance(scheme.get("token_url"), str):
            targets.append(origin_text(scheme["token_url"]))
    return [*dict.fromkeys(targets)]


def _auth_schemes(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    auth = block.get("auth")
    return [each for each in (auth if isinstance(auth, list) else [auth]) if isinstance(each, Mapping)]


def look_ups(value: JSON) -> Iterator[SecretVariable]:
    """Yield the look-ups in the texts of a value."""
    if isinstance(value, str):
        try:
            yield from (piece for piece in split_variables(value) if isinstance(piece, SecretVariable))
        # A text with invalid syntax is never looked up, so it needs nothing.
        except ExpressionError:
            return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from look_ups(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from look_ups(item)


_ORIGIN: Final = re.compile(r"(?:[^:/?#]*://)?[^/?#]*")


def origin_text(url: str) -> str:
    """Scheme, host and port of a URL as written, including look-ups, but without user and password."""
    try:
        pieces = split_variables(url)
    except ExpressionError:
        return shown_url(url)
    known: list[str] = []
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += unescape_dollars(piece)
        else:
            # A private-use character replaces the look-up, whose own `:`, `/` or `@` must not split the URL.
            text += chr(0xE000 + len(known))
            known.append(piece.text)
    found = _ORIGIN.match(text)
    origin = found[0] if found is not None else text
    scheme, sign, rest = origin.rpartition("://")
    # The last `@` counts, as in `urlsplit`: `https://example.com@evil.test` contacts `evil.test`.
    origin = (scheme + sign + rest.rpartition("@")[2]).lower()
    for index, written in enumerate(known):
        origin = origin.replace(chr(0xE000 + index), written)
    return origin


# Needs of modes, settings, agents and packs.


def needs_of_other_mode(mode: str, block: JSON, *, user: str, place: str) -> Iterator[Need]:
    """Yield the needs of a call in a mode that does not declare its needs: everything in its block counts."""
    yield make_need("mode", mode, details=[canonical(redact(block))], counts=block, user=user, place=place)
    for variable in look_ups(block):
        yield make_need("read", variable.text, to=f"mode {mode}", user=user, place=place)


def needs_of_settings(
    egress: Iterable[str],
    origins: Mapping[str, str],
    *,
    sandbox: str = "",
    journal: str = "",
    user: str,
    place: str = "",
) -> Iterator[Need]:
    """Yield the network access and the missing sandbox that a project or profile grants to all tools, and its journal.

    Args:
        egress: Hosts and addresses that are permitted although they are not public.
        origins: Origin as written -> the origin that replaces it.
        sandbox: Where programs run: `none` lets them run as ordinary processes.
        journal: Where calls are recorded: the address of a server gets the arguments of all calls.
        user: `project`, or the profile: `profile ci`.
        place: `file:line` of the project or profile.
    """
    for entry in egress:
        yield make_need("contact", entry, details=["although it is not public"], user=user, place=place)
    for written, instead in origins.items():
        yield make_need("contact", instead, to=f"in place of {written}", user=user, place=place)
    if sandbox == "none":
        yield make_need("start", "every program", details=[WITHOUT_SANDBOX], user=user, place=place)
    if "://" in journal:
        server = origin_text(journal)
        yield make_need("contact", server, details=["records all calls"], user=user, place=place)
        for variable in look_ups(journal):
            yield make_need("read", variable.text, to=server, user=user, place=place)


_NO_MODEL: Final = frozenset({"scripted", "direct", "none"})


def needs_of_agent(agent: Mapping[str, Any], *, user: str, place: str) -> Iterator[Need]:
    """Yield the needs of a model that a scenario names: its service and its API key.

    Args:
        agent: `provider, base_url, api_key`. If `api_key` is None, the provider's key of the environment is
            used.
        user: The subject that has the needs: `scenario refunds`.
        place: `file:line` of the model.
    """
    provider = str(agent.get("provider", ""))
    if not provider or provider in _NO_MODEL:
        return
    base_url, key = agent.get("base_url"), agent.get("api_key")
    target = origin_text(base_url) if isinstance(base_url, str) and base_url else f"provider {provider}"
    yield make_need("contact", target, user=user, place=place)
    if key is None:
        yield make_need("read", f"the key of provider {provider}", to=target, user=user, place=place)
    for variable in look_ups([key, base_url]):
        yield make_need("read", variable.text, to=target, user=user, place=place)


def need_of_data(path: str, name: str, *, place: str = "") -> Need:
    """The need of a data file whose path contains an environment variable.

    Args:
        path: Path of the data file, as written.
        name: Name of the variable.
        place: The file that names the data file.
    """
    return make_need("read", f"${{{name}}}", to=f"data {path}", place=place)


def need_of_content(what: str, digests: Iterable[str], *, place: str = "") -> Need:
    """The need of a pack outside of a project: a decision covers exactly this content."""
    return make_need("content", what, counts=[*sorted(digests)], user=what, place=place)


NOT_DECLARABLE: Final = ""
"""Stands for a need that no key of `requires` declares, so that only a project can have it."""

_LOOK_UP_KEYS: Final[Mapping[str, str]] = {"env": "environment", "file": "files", "keyring": "keyring"}


def undeclared_entries(each: Need, requires: Mapping[str, Any]) -> tuple[str, ...]:
    """What the `requires` block of a pack lacks to declare a need.

    Args:
        each: The need.
        requires: The `requires` block of `pack.yaml`.

    Returns:
        The entries that would declare it, such as `hosts: [api.example.com]`, or `NOT_DECLARABLE`; empty if it is
        declared.
    """
    match each.kind:
        case "content":
            return ()
        case "contact" if not (each.to or each.details):
            host = host_of(each.what)
            globs = requires.get("hosts", ())
            known = any(fnmatchcase(host, str(glob).lower()) for glob in globs)
            # A pattern cannot name the value of a variable.
            return () if known else (NOT_DECLARABLE if "${" in host else f"hosts: [{host}]",)
        case "read":
            entries = [
                f"{key}: [{variable.name}]"
                for variable in look_ups(each.what)
                if variable.name not in requires.get(key := _LOOK_UP_KEYS[variable.source], ())
            ]
            return tuple(entries) if [*look_ups(each.what)] else (NOT_DECLARABLE,)
        case "import":
            module = each.what.partition(":")[0]
            known = any(
                module == name or module.startswith(f"{name}.") for name in requires.get("python", ())
            )
            return () if known else (f"python: [{module}]",)
        case "start":
            return tuple(_undeclared_of_program(each, requires))
    return (NOT_DECLARABLE,)


def _undeclared_of_program(each: Need, requires: Mapping[str, Any]) -> Iterator[str]:
    """As `undeclared_entries`, for the start of a program; each of its details begins with a word of ours."""
    import shlex  # noqa: PLC0415 -- few packs start programs

    try:
        program = shlex.split(each.what)[0]
    except ValueError:
        program = each.what
    if program not in requires.get("commands", ()):
        yield f"commands: [{program}]"
    paths = requires.get("paths", {})
    readable = (*paths.get("read", ()), *paths.get("write", ()))
    for detail in each.details:
        word, _, what = detail.partition(" ")
        if detail == USES_NETWORK and not requires.get("network", False):
            yield "network: true"
        elif word == "writes" and what not in paths.get("write", ()):
            yield f"paths: {{write: [{what}]}}"
        # A program can read the folder that it starts in.
        elif word in {"reads", "in"} and what not in readable and (word == "reads" or not _is_below(what)):
            yield f"paths: {{read: [{what}]}}"
        elif detail == WITHOUT_SANDBOX:
            yield NOT_DECLARABLE


def _is_below(folder: str) -> bool:
    import posixpath  # noqa: PLC0415 -- as above

    path = posixpath.normpath(folder)
    return not path.startswith(("/", "..", "~")) and "${" not in path


USES_NETWORK: Final = "uses the network"
"""Detail of the start of a program that may use the network."""

WITHOUT_SANDBOX: Final = "without a sandbox"
"""Detail of the start of programs that are not confined."""


def host_of(origin: str) -> str:
    """The host of an origin or of an entry of `hosts`, in lower case, without the port."""
    rest = origin.strip("`").rpartition("://")[2].lower()
    if rest.startswith("["):
        return rest.partition("]")[0].strip("[")
    return rest.rpartition(":")[0] if rest.rpartition(":")[2].isdecimal() and ":" in rest else rest
