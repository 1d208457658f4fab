"""Collect what files need from outside: programs to start, hosts to contact, secrets to read, code to import."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.core.text import canonical
from toolcrib.security.program_files import FollowedFiles, files_of_command, files_of_module
from toolcrib.security.redaction import redact
from toolcrib.security.secrets import SecretVariable, split_variables, unescape_dollars
from toolcrib.security.server_display import exact_command, exact_variable, shown_url

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server

Kind = Literal["start", "contact", "read", "import", "mode", "content"]
KINDS: Final[Sequence[Kind]] = ("start", "contact", "read", "import", "mode", "content")
"""In the order in which they are shown."""


class Need(NamedTuple):
    """One action that requires the user's agreement.

    Attributes:
        kind: `start` (a program), `contact` (a host), `read` (a variable, file or keyring entry), `import` (Python code),
            `mode` (a call in a mode of which it is not known what it touches), `content` (a pack, as it is).
        what: The command line, origin, look-up (`${NAME}`), function, mode or pack. Secrets are masked.
        to: Where what is read goes; what an origin stands in for; what a function is used as.
        details: What else counts, a line each: `in ./server`, `env TOKEN=${TOKEN}`, `file server.py 1f2e3d4c5b6a`.
        digest: SHA-256 of all that counts, in hex; who asks for it does not.
        users: Who asks for it: `server time`, `tool get_forecast`, `profile ci`.
        place: `file:line` of the first of these.
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
        """What tells a need that has changed from another one."""
        return self.kind, self.what, self.to

    def as_json(self) -> dict[str, JSON]:
        """The need as a JSON object."""
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
    """A need with its digest.

    Args:
        kind: As `Need.kind`.
        what: As `Need.what`.
        to: As `Need.to`.
        details: As `Need.details`.
        counts: What counts besides, which may be secret: it goes into the digest and nowhere else.
        user: Who asks for it.
        place: `file:line` of where.
    """
    shown = tuple(details)
    # Canonical JSON, so that the order of keys in a file does not change the digest.
    told = canonical([kind, what, to, list(shown), counts])
    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
    return Need(kind, what, to, shown, digest, (user,) if user else (), place)


def merge_needs(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Each need once, with all who ask for it, in the order in which they are shown."""
    found: dict[str, Need] = {}
    for each in needs:
        before = found.get(each.digest)
        users = (*before.users, *each.users) if before is not None else each.users
        found[each.digest] = (before or each)._replace(users=tuple(dict.fromkeys(users)))
    return tuple(sorted(found.values(), key=lambda each: (KINDS.index(each.kind), each.what, each.to)))


def hash_of(needs: Iterable[Need]) -> str:
    """What tells needs from others, in hex: SHA-256 of their digests, in order of these."""
    # Sorted and unique, so that the order of files and the number of users do not change the hash.
    digests = sorted({each.digest for each in needs})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


# What servers need.


def needs_of_server(server: Server, root: str) -> Iterator[Need]:
    """What starting or reaching an MCP server takes.

    Args:
        server: The server.
        root: The workspace that names it, absolute, with links resolved.
    """
    user, place = f"server {server.name}", server.place()
    if server.transport == "stdio":
        yield _start(server, root, user, place)
        target = user
    else:
        block = {"url": server.url, "headers": dict(server.headers), "auth": server.auth}
        yield from needs_of_http(block, user=user, place=place, root=root)
        target = ""
    folders = server.folders()
    written: JSON = {
        "command": server.command,
        "args": list(server.args),
        "cwd": server.cwd,
        "env": dict(server.env),
    }
    for variable in look_ups(written) if target else ():
        if variable.name not in folders:
            yield make_need("read", variable.text, to=target, user=user, place=place)
    for role, hook in (("elicitation", server.elicitation), ("sampling", server.sampling)):
        if hook:
            yield _import(hook, role, root, user, place)


def _start(server: Server, root: str, user: str, place: str) -> Need:
    folders = server.folders()
    argv = [_known(text, folders) for text in (server.command, *server.args)]
    environment = {name: _known(text, folders) for name, text in server.env.items()}
    folder = _joined(server.root, _known(server.cwd, folders))
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


def _known(text: str, folders: Mapping[str, str]) -> str:
    """A text with the folders of editors in place; what is looked up elsewhere stays as it is written."""
    for name, folder in folders.items():
        text = text.replace(f"${{{name}}}", folder)
    return text


def _joined(root: str, folder: str) -> str:
    import os  # noqa: PLC0415 -- links stay as they are, which a Path would resolve

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


def _import(function: str, role: str, root: str, user: str, place: str) -> Need:
    files = files_of_module(function.partition(":")[0], root)
    return make_need(
        "import",
        function,
        to=f"as {role}",
        details=_files_shown(files),
        counts=dict(files.digests),
        user=user,
        place=place,
    )


# What requests need.


def needs_of_http(block: Mapping[str, Any], *, user: str, place: str = "", root: str = "") -> Iterator[Need]:
    """What requests take that a block describes: `url, hosts, headers, auth ...` as `live` and servers write them.

    What is looked up goes with every host that the block names, so a secret and its hosts are agreed to together.

    Args:
        block: The block, as it is written.
        user: Who asks: `tool get_forecast`.
        place: `file:line` of where.
        root: The workspace, absolute, with links resolved; for the files of hooks.
    """
    auth = block.get("auth")
    schemes = [each for each in (auth if isinstance(auth, list) else [auth]) if isinstance(each, Mapping)]
    targets = [origin_text(block["url"])] if isinstance(block.get("url"), str) else []
    targets += [
        f"`{host}`" if "*" in host else host for host in block.get("hosts", ()) if isinstance(host, str)
    ]
    for scheme in schemes:
        if isinstance(scheme.get("token_url"), str):
            targets.append(origin_text(scheme["token_url"]))
    targets = [*dict.fromkeys(targets)]
    for target in targets:
        yield make_need("contact", target, user=user, place=place)
    written: Any = {key: value for key, value in block.items() if key != "hosts"}
    for variable in look_ups(written):
        yield make_need("read", variable.text, to=", ".join(sorted(targets)), user=user, place=place)
    for scheme in schemes:
        if isinstance(scheme.get("call"), str):
            yield _import(scheme["call"], "auth", root, user, place)


def look_ups(value: JSON) -> Iterator[SecretVariable]:
    """The look-ups in the texts of a value; a text that is written wrong has none, since it is not looked up either."""
    if isinstance(value, str):
        try:
            yield from (piece for piece in split_variables(value) if isinstance(piece, SecretVariable))
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
    """Scheme, host and port of a URL as they are written, with look-ups in them; no user and no password."""
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
            # A private-use character stands for the look-up, whose own `:`, `/` or `@` must not split the URL.
            text += chr(0xE000 + len(known))
            known.append(piece.text)
    found = _ORIGIN.match(text)
    origin = found[0] if found is not None else text
    scheme, sign, rest = origin.rpartition("://")
    origin = (scheme + sign + rest.rpartition("@")[2]).lower()
    for index, written in enumerate(known):
        origin = origin.replace(chr(0xE000 + index), written)
    return origin


# What modes, settings, agents and packs need.


def needs_of_other_mode(mode: str, block: JSON, *, user: str, place: str) -> Iterator[Need]:
    """What a call takes in a mode that does not say what it needs: everything in its block counts."""
    yield make_need("mode", mode, details=[canonical(redact(block))], counts=block, user=user, place=place)
    for variable in look_ups(block):
        yield make_need("read", variable.text, to=f"mode {mode}", user=user, place=place)


def needs_of_settings(
    egress: Iterable[str], origins: Mapping[str, str], *, user: str, place: str = ""
) -> Iterator[Need]:
    """What a project or profile lets all tools reach: addresses that are not public, and origins in place of others."""
    for entry in egress:
        yield make_need("contact", entry, details=["although it is not public"], user=user, place=place)
    for written, instead in origins.items():
        yield make_need("contact", instead, to=f"in place of {written}", user=user, place=place)


_NO_MODEL: Final = frozenset({"scripted", "direct"})


def needs_of_agent(agent: Mapping[str, Any], *, user: str, place: str) -> Iterator[Need]:
    """What a model takes that a scenario names: its service, and its key.

    Args:
        agent: `provider, base_url, api_key`; the key is None where the one of the environment goes with it.
        user: Who asks: `scenario refunds`.
        place: `file:line` of where.
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
    """The need of a file of rows.

    Args:
        path: Its path, as it is written.
        name: A variable of the environment in it.
        place: The file that names it.
    """
    return make_need("read", f"${{{name}}}", to=f"data {path}", place=place)


def need_of_content(what: str, digests: Iterable[str], *, place: str = "") -> Need:
    """The need of a pack from elsewhere: what was agreed to is this pack, as it is."""
    return make_need("content", what, counts=[*sorted(digests)], user=what, place=place)


_DECLARED: Final = {"env": "environment", "file": "files"}


def is_declared(each: Need, requires: Mapping[str, Any]) -> bool:
    """Whether `requires` of a pack declares a need; what has no key there can't be declared.

    Args:
        each: The need.
        requires: What `pack.yaml` says under `requires`.
    """
    if each.kind == "contact" and not each.to:
        host = host_of(each.what)
        return any(fnmatchcase(host, str(glob).lower()) for glob in requires.get("hosts", ()))
    if each.kind == "read":
        found = [*look_ups(each.what)]
        return bool(found) and all(
            variable.name in requires.get(_DECLARED.get(variable.source, ""), ()) for variable in found
        )
    return each.kind == "content"


def host_of(origin: str) -> str:
    """The host of an origin, or of an entry of `hosts`, in lower case and without its port."""
    rest = origin.strip("`").rpartition("://")[2].lower()
    if rest.startswith("["):
        return rest.partition("]")[0].strip("[")
    return rest.rpartition(":")[0] if rest.rpartition(":")[2].isdecimal() and ":" in rest else rest
