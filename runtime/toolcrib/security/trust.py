"""Workspace trust: files alone cannot start programs, contact hosts or read secrets.

A workspace is trusted as a unit: a project, or a pack or folder outside of it. The needs of its files are
collected before anything runs (`trust_needs`), and the user agrees to exactly these needs
(`trust_decisions`). All code that starts a program, contacts a host or looks up a secret calls one function
first:

Trust.check(subject)
-> the workspaces of the subject's files        Trust.workspaces_of
-> the needs of the subject in each of them     Trust._needs_in
-> granted by a named path, an earlier decision or a prompt; else Untrusted
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.errors import NotReady
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.server_config import SEPARATOR, Server, place_of_server
from toolcrib.core.text import in_one_line
from toolcrib.core.user_folders import working_folder

if TYPE_CHECKING:
    from toolcrib.security.trust_decisions import Decision, DecisionStore
    from toolcrib.security.trust_needs import Need

VARIABLE: Final = "TOOLCRIB_TRUST"
"""The environment variable that grants trust: `all`, or hashes of needs, separated by commas."""

Consent: TypeAlias = Literal["always", "once", "no"]
"""The answer to a trust prompt: from now on, only in this process, or not."""

_HASH_LENGTH: Final = 16
"""Minimum length of a hash prefix: 64 bits, which no two workspaces share by chance."""


class TrustPolicy(NamedTuple):
    """What a runtime trusts without a stored decision.

    Attributes:
        everything: Whether all workspaces are trusted without a prompt.
        nothing: Whether to ignore stored decisions and the environment, so that only `hashes` and `paths`
            grant trust.
        hashes: Hashes of trusted needs, at least 16 characters of each.
        paths: Files and folders that are trusted because the user named them, as written.
    """

    everything: bool = False
    nothing: bool = False
    hashes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def with_environment(self, environment: Mapping[str, str] = os.environ) -> TrustPolicy:
        """Return the policy with the grants of `TOOLCRIB_TRUST` added."""
        said = environment.get(VARIABLE, "").strip()
        if self.nothing or not said:
            return self
        if said.lower() == "all":
            return self._replace(everything=True)
        return self._replace(hashes=(*self.hashes, *hashes_in(said)))


ALL: Final = TrustPolicy(everything=True)
"""Trust everything: the author of a program trusts the tools that it loads."""

UNTRUSTED: Final = TrustPolicy(nothing=True)
"""Trust nothing: only mocks run."""


def hashes_in(text: str) -> tuple[str, ...]:
    """Parse the hashes in a text; items shorter than 16 characters are ignored."""
    found = (part.strip().lower().removeprefix("sha256:") for part in text.replace(",", " ").split())
    return tuple(part for part in found if len(part) >= _HASH_LENGTH)


class Workspace(NamedTuple):
    """The unit of trust.

    Attributes:
        root: Path of the folder or file, absolute, with links resolved.
        kind: `project` (a folder with a project file), `folder`, `pack` (outside of a project, so its
            `pack.yaml` must declare its needs), `servers` (a file that configures MCP servers), or `file`
            (outside of all of these).
        name: The path as written by the user or in a document.
        partial: Whether only a part of the workspace was loaded, because the user named that part.
        base: The working directory at loading time, where needs are asked; empty for the current one.
    """

    root: str
    kind: str
    name: str
    partial: bool = False
    base: str = ""

    @property
    def folder(self) -> str:
        """The root, or its parent folder if the root is a file."""
        return self.root if os.path.isdir(self.root) else os.path.dirname(self.root)

    def holds(self, path: str) -> bool:
        """Whether a path, absolute and with links resolved, is inside the workspace."""
        return path == self.root or path.startswith(self.root.rstrip(os.sep) + os.sep)


class TrustSubject(NamedTuple):
    """A tool, server or scenario that is about to start, contact or read something.

    Attributes:
        user: Kind and name: `tool get_forecast`, `server time`, `scenario refunds`.
        files: The files that define it, as written. A tool that overrides another one has several.
        needs: Returns its needs in a workspace.
        settings: Whether the network access that the project grants to all tools is one of its needs.
    """

    user: str
    files: tuple[str, ...]
    needs: Callable[[Workspace], Iterable[Need]]
    settings: bool = False


class WorkspaceContents(NamedTuple):
    """The parts of the loaded files that trust depends on.

    Attributes:
        base: The working directory at loading time. Relative file names start here; empty if it was deleted.
        workspaces: The workspaces of the files.
        subjects: Returns everything that has needs.
        settings: The network access that the project and its profiles grant to all tools.
        settings_file: The project file; empty without a project.
        packs: Returns the content of a pack outside of a project, given the root of the pack.
        servers: Name of a configured server -> the file that it belongs to, and its source.
        own: Names of the servers that the program passed itself.
        modules: Name of a tool of a Python source -> the source.
    """

    base: str = ""
    workspaces: tuple[Workspace, ...] = ()
    subjects: Callable[[], Iterable[TrustSubject]] = tuple
    settings: tuple[Need, ...] = ()
    settings_file: str = ""
    packs: Callable[[str], PackContent] | None = None
    servers: Mapping[str, ServerHome] = NOTHING
    own: Collection[str] = ()
    modules: Mapping[str, ModuleHome] = NOTHING


class ModuleHome(NamedTuple):
    """A Python source, whose module is imported once it is trusted.

    Attributes:
        name: Name of the source.
        module: The module.
        file: The project file that names it.
        place: `file:line` of its entry.
    """

    name: str
    module: str
    file: str
    place: str


class ServerHome(NamedTuple):
    """The file that an MCP server belongs to.

    Attributes:
        file: The project file if the project names the server, else the file that configures it; empty if the
            program passed the server itself.
        source: The `origin.source` of tools that are imported from the server.
    """

    file: str
    source: str


class PackContent(NamedTuple):
    """The content of a pack outside of a project.

    Attributes:
        name: Name and version of the pack.
        requires: The `requires` block of its `pack.yaml`.
        digests: The digests of all of its loaded documents.
        place: `file:line` of its `pack.yaml`.
    """

    name: str
    requires: Mapping[str, Any]
    digests: tuple[str, ...]
    place: str = ""


NO_CONTENTS: Final = WorkspaceContents()


class TrustRequest(NamedTuple):
    """The needs of a workspace that the user is asked to agree to.

    Attributes:
        workspace: The workspace.
        needs: All needs of its files.
        hash: Hash of the needs.
        before: The last decision on the workspace; None for a new one.
        user: The subject that is waiting, such as `server time`; empty for none.
        undeclared: Needs of a pack that its `pack.yaml` does not declare. They cannot be granted.
        requires: The `requires` block of the pack.
    """

    workspace: Workspace
    needs: tuple[Need, ...]
    hash: str
    before: Decision | None = None
    user: str = ""
    undeclared: tuple[Need, ...] = ()
    requires: Mapping[str, Any] = NOTHING

    @property
    def hint(self) -> str:
        """The commands that review and trust the workspace."""
        here = working_folder()
        root = self.workspace.root
        path = "" if here and root == os.path.realpath(here) else f" {_as_argument(self.workspace, here)}"
        return f"review its needs with `toolcrib trust{path} --dry-run`, then run `toolcrib trust{path}`"

    @property
    def added(self) -> tuple[Need, ...]:
        """The needs that the last decision does not include."""
        known = {each.digest for each in self.before.needs} if self.before is not None else set()
        return tuple(each for each in self.needs if each.digest not in known)

    @property
    def removed(self) -> tuple[Need, ...]:
        """The needs of the last decision that the files do not have."""
        now = {each.digest for each in self.needs}
        return tuple(each for each in (self.before.needs if self.before else ()) if each.digest not in now)

    def as_json(self) -> dict[str, JSON]:
        """The request as a JSON object."""
        return {
            "workspace": self.workspace.root,
            "kind": self.workspace.kind,
            "hash": self.hash,
            "needs": [each.as_json() for each in self.needs],
            "undeclared": [each.as_json() for each in self.undeclared],
            "added": [each.as_json() for each in self.added] if self.before else None,
            "removed": [each.as_json() for each in self.removed] if self.before else None,
        }


class Untrusted(NotReady):
    """Files need something that is not trusted yet. Nothing was started, contacted or read.

    Attributes:
        request: The needs that require a decision.
    """

    code = "untrusted_workspace"
    denied = True

    def __init__(self, message: str, request: TrustRequest, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.request = request


class Trust:
    """Decides on trust for one runtime. Grants stay for the process, even if the files are loaded again.

    Args:
        policy: What is trusted without a stored decision.
        store: The stored decisions. Default: those of the user.
        ask: Prompts the user, once for each state of a workspace. None: untrusted needs are refused without a
            prompt.

    Attributes:
        told: Whether the untrusted needs were already reported.
    """

    def __init__(
        self,
        policy: TrustPolicy = ALL,
        *,
        store: DecisionStore | None = None,
        ask: Callable[[TrustRequest], Consent] | None = None,
    ) -> None:
        self.policy = policy
        self.ask = ask
        self.told = False
        self._look: Callable[[], WorkspaceContents] | None = None
        self._contents: WorkspaceContents | None = None
        self._store = store
        self._refused: dict[str, TrustRequest] = {}
        self._homes: dict[str, Workspace] = {}
        self._requests: dict[str, TrustRequest] = {}
        self._settled: set[str] = set()
        self._granted: dict[str, TrustRequest] = {}
        self._asked: set[str] = set()

    @property
    def store(self) -> DecisionStore:
        """The stored decisions."""
        if self._store is None:
            from toolcrib.security.trust_decisions import default_store  # noqa: PLC0415 -- mocks need no trust

            self._store = default_store()
        return self._store

    @property
    def contents(self) -> WorkspaceContents:
        """The contents of the loaded files, computed when they are first needed."""
        if self._contents is None:
            self._contents = NO_CONTENTS if self._look is None else self._look()
        return self._contents

    @property
    def refused(self) -> list[TrustRequest]:
        """The requests of the refused checks that are still not granted."""
        return [each for each in self._refused.values() if not self.grants(each)]

    @property
    def granted(self) -> tuple[str, ...]:
        """The hashes of the needs that were granted in this process."""
        return tuple(self._granted)

    def show(self, look: Callable[[], WorkspaceContents]) -> None:
        """Replace the contents after files were loaded. `look` is called when they are first needed."""
        self._look, self._contents = look, None
        # These are derived from the previous contents. Grants stay: their hashes identify the needs.
        self._homes.clear()
        self._requests.clear()
        self._settled.clear()

    def check(self, subject: TrustSubject, *, fresh: bool = False) -> None:
        """Check that all needs of a subject and of its workspaces are trusted.

        Args:
            subject: The tool, server or scenario that is about to act.
            fresh: Whether to read the files again, because they run next.

        Raises:
            Untrusted: A need is not trusted; the message names the needs.
        """
        if self.policy.everything:
            return
        for workspace in self.workspaces_of(subject):
            needs = self._needs_in(workspace, subject)
            if needs and not self._is_named(workspace, subject):
                self._check_in(workspace, subject, needs, fresh=fresh)

    def is_trusted(self, subject: TrustSubject) -> bool:
        """Whether `check` would succeed. Does not prompt."""
        # A question must have no effects: no prompt, and no entry in the reported `refused` requests.
        ask, self.ask = self.ask, None
        refused = dict(self._refused)
        try:
            self.check(subject)
        except Untrusted:
            return False
        finally:
            self.ask, self._refused = ask, refused
        return True

    def check_server(self, server: Server) -> None:
        """Run `check` for an MCP server that is about to be started or contacted; its files are read again.

        A server that the program passed itself is always trusted.

        Raises:
            Untrusted: As `check` does.
        """
        if self.policy.everything or server.name in self.contents.own:
            return
        self.check(subject_of_server(server, self.contents.servers.get(server.name)), fresh=True)

    def is_home(self, server: str, workspace: Workspace) -> bool:
        """Whether a server belongs to a workspace, so that trust in the workspace covers the server."""
        homes = self.contents.servers
        # What a directory lists belongs to its workspace, also before the directory was read.
        home = homes.get(server) or homes.get(server.rpartition(SEPARATOR)[0])
        return home is not None and bool(home.file) and self.workspace_of(home.file) == workspace

    def trusts_settings(self) -> bool:
        """Whether the network access that the project grants to all tools is trusted. Does not prompt."""
        contents = self.contents if not self.policy.everything else NO_CONTENTS
        if not contents.settings:
            return True
        return self.is_trusted(TrustSubject("project", (), lambda _workspace: (), settings=True))

    def permits_data(self, source: str, path: str, name: str) -> bool:
        """Whether the path of a data file may contain the value of an environment variable. Does not prompt.

        A decision covers the needs of all files. During the first loading these are unknown, so only a named
        path grants the permission.

        Args:
            source: The document that names the data file.
            path: Path of the data file, as written.
            name: Name of the variable.
        """
        return self.is_trusted(subject_of_data(source, path, name))

    def agrees_to_data(self, source: str, path: str, name: str) -> bool:
        """Like `permits_data`, after all files have been loaded; prompts if necessary."""
        try:
            self.check(subject_of_data(source, path, name))
        except Untrusted:
            return False
        return True

    def folder_of(self, file: str) -> str:
        """The folder of the workspace that contains a file; empty if no files were loaded."""
        return self.workspace_of(file).folder if self._look is not None else ""

    def workspaces_of(self, subject: TrustSubject) -> list[Workspace]:
        """The workspaces of a subject's files, and of the project file if its settings count."""
        found = {self.workspace_of(file) for file in subject.files}
        if subject.settings and self.contents.settings and self.contents.settings_file:
            found.add(self.workspace_of(self.contents.settings_file))
        return sorted(found)

    def request(self, workspace: Workspace, user: str = "") -> TrustRequest:
        """Build the request for a workspace from its current files.

        Args:
            workspace: The workspace.
            user: The subject that is waiting; empty for none.
        """
        from toolcrib.security.trust_needs import hash_of, merge_needs, undeclared_entries  # noqa: PLC0415 -- as above

        needs = merge_needs(self._all_needs(workspace))
        before = next(iter(self.store.agreed([workspace.root])), None)
        undeclared: tuple[Need, ...] = ()
        requires: Mapping[str, Any] = NOTHING
        if workspace.kind == "pack":
            requires = self._pack(workspace).requires
            undeclared = tuple(each for each in needs if undeclared_entries(each, requires))
            needs = tuple(each for each in needs if each not in undeclared)
        found = TrustRequest(workspace, needs, hash_of(needs), before, user, undeclared, requires)
        self._requests[workspace.root] = found
        return found

    def requests(self) -> list[TrustRequest]:
        """Build the requests for all workspaces, including the trusted ones."""
        return [self.request(workspace) for workspace in self.contents.workspaces]

    def grants(self, request: TrustRequest) -> bool:
        """Whether all needs of a request are trusted."""
        named = self.policy.everything or self._is_named(request.workspace, None)
        return named or self._is_agreed(request)

    def grant(self, request: TrustRequest) -> None:
        """Trust the needs of a request, in this process only."""
        self._granted[request.hash] = request

    # Find needs, and decide whether they are trusted.

    def _needs_in(self, workspace: Workspace, subject: TrustSubject) -> tuple[Need, ...]:
        from toolcrib.security.trust_needs import merge_needs  # noqa: PLC0415 -- as above

        own = any(self.workspace_of(file) == workspace for file in subject.files)
        needs = [*subject.needs(workspace)] if own else []
        if subject.settings and self._holds_settings(workspace):
            needs += self.contents.settings
        return merge_needs(needs)

    def _holds_settings(self, workspace: Workspace) -> bool:
        file = self.contents.settings_file
        return bool(file) and self.workspace_of(file) == workspace

    def _all_needs(self, workspace: Workspace) -> Iterator[Need]:
        found = False
        for subject in self.contents.subjects():
            for each in subject.needs(workspace) if workspace in self.workspaces_of(subject) else ():
                found = True
                yield each
        if self._holds_settings(workspace):
            yield from self.contents.settings
        # A decision on a pack covers exactly its current content: any change requires a new one.
        if found and workspace.kind == "pack":
            yield self._content_of(workspace)

    def workspace_of(self, file: str) -> Workspace:
        """The innermost workspace that contains a file; outside of all workspaces, the file itself."""
        found = self._homes.get(file)
        if found is None:
            path = self._resolved(file)
            holding = [each for each in self.contents.workspaces if each.holds(path)]
            alone = Workspace(path, "file", file)
            found = self._homes[file] = max(holding, key=lambda each: len(each.root), default=alone)
        return found

    def _is_named(self, workspace: Workspace, subject: TrustSubject | None) -> bool:
        """Whether the user named the workspace, or all files of a subject in it."""
        named = [self._resolved(path) for path in self.policy.paths]
        # Naming the project file names the project.
        named += [
            os.path.dirname(path) for path in named if path == self._resolved(self.contents.settings_file)
        ]
        if any(_inside(workspace.root, path) for path in named):
            return True
        files = (
            []
            if subject is None
            else [each for each in subject.files if self.workspace_of(each) == workspace]
        )
        # All files: naming a file does not cover one that overrides it.
        return bool(files) and all(
            any(_inside(self._resolved(file), path) for path in named) for file in files
        )

    def _resolved(self, path: str) -> str:
        whole = os.path.join(self.contents.base, path)
        # `realpath` of a relative path would raise if the working directory was deleted.
        return os.path.realpath(whole) if os.path.isabs(whole) else whole

    def _check_in(
        self, workspace: Workspace, subject: TrustSubject, needs: Sequence[Need], *, fresh: bool
    ) -> None:
        """`check` in one workspace.

        Raises:
            Untrusted: As `check` does.
        """
        request = None if fresh else self._requests.get(workspace.root)
        if request is None or request.hash not in self._settled:
            request = self.request(workspace, subject.user)
        left = _beyond(request, needs)
        if left and not fresh:
            # A file that is run may have changed since the request was built; a new request includes it.
            request = self.request(workspace, subject.user)
            left = _beyond(request, needs)
        if not left and (request.hash in self._settled or self._is_agreed(request)):
            self._settled.add(request.hash)
            return
        request = request._replace(user=subject.user)
        if self.ask is not None and not left and request.hash not in self._asked:
            self._asked.add(request.hash)
            if self.ask(request) != "no":
                self.grant(request)
                return
        # Kept for `refused`, which lists all workspaces: the error names only this one.
        self._refused[workspace.root] = request
        error = untrusted_error(request, needs, left)
        if self.policy.nothing:
            error.hint = (
                "the program that opened it does not trust it: it passes `trust=False` or a different hash"
            )
        raise error

    def _is_agreed(self, request: TrustRequest) -> bool:
        """Whether one decision covers all current needs of a workspace."""
        # A decision may cover more: a file with an error has no needs, and the others must stay trusted.
        workspace = request.workspace
        if request.hash in self._granted or any(map(request.hash.startswith, self.policy.hashes)):
            return True
        if any(
            each.workspace == workspace and not _beyond(each, request.needs)
            for each in self._granted.values()
        ):
            return True
        if self.policy.nothing or not workspace.root:
            return False
        if _inside(os.path.realpath(self.store.folder or os.devnull), workspace.root):
            return False  # a workspace that contains the store could approve itself
        decisions = self.store.agreed([workspace.root])
        if any(not _beyond(decision, request.needs) for decision in decisions):
            return True
        # The same folder may have another path: a second mount, or different case on macOS and Windows.
        return any(_is_same(each.root, workspace.root) for each in self.store.with_hash(request.hash))

    def _pack(self, workspace: Workspace) -> PackContent:
        found = self.contents.packs
        return found(workspace.root) if found is not None else PackContent(workspace.name, NOTHING, ())

    def _content_of(self, workspace: Workspace) -> Need:
        from toolcrib.security.trust_needs import need_of_content  # noqa: PLC0415 -- as above

        pack = self._pack(workspace)
        return need_of_content(f"pack {pack.name}", pack.digests, place=pack.place)


def untrusted_error(
    request: TrustRequest, needs: Sequence[Need], undeclared: Sequence[Need] = ()
) -> Untrusted:
    """Build the error for untrusted needs."""
    workspace, who = request.workspace, request.user or "it"
    what = ", ".join(dict.fromkeys(map(describe_need, needs)))
    if undeclared and workspace.kind == "pack":
        listed = ", ".join(dict.fromkeys(map(describe_need, undeclared)))
        message = f"{who} of the pack {workspace.name} needs to {what}, but its pack.yaml does not declare: {listed}"
        hint = declaration_hint(undeclared, request.requires)
        return Untrusted(message, request, hint=hint)
    changed = request.before is not None
    state = "is no longer trusted because its needs have changed" if changed else "is not trusted yet"
    message = f"the {workspace.kind} {workspace.root} {state}; {who} needs to {what}"
    return Untrusted(message, request, hint=request.hint)


def declaration_hint(needs: Iterable[Need], requires: Mapping[str, Any]) -> str:
    """How a pack declares needs that its `requires` block lacks.

    Args:
        needs: The needs.
        requires: The `requires` block of `pack.yaml`.
    """
    from toolcrib.security.trust_needs import NOT_DECLARABLE, undeclared_entries  # noqa: PLC0415 -- as above

    entries = [*dict.fromkeys(entry for each in needs for entry in undeclared_entries(each, requires))]
    if NOT_DECLARABLE in entries:
        return "a pack cannot declare this; only the files of a project can have such needs"
    return f"add to `requires` in pack.yaml: {', '.join(f'`{entry}`' for entry in entries)}"


_VERBS: Final[Mapping[str, str]] = {
    "start": "start",
    "contact": "contact",
    "read": "read",
    "import": "import",
    "mode": "call in mode",
    "content": "use",
}


def describe_need(each: Need) -> str:
    """A need as a part of a sentence: ``start `python server.py` ``."""
    to = f" for {each.to}" if each.kind == "read" and each.to else f" {each.to}" if each.to else ""
    return in_one_line(f"{_VERBS[each.kind]} `{each.what}`{to}")


def subject_of_server(server: Server, home: ServerHome | None = None) -> TrustSubject:
    """An MCP server as a trust subject.

    A server that the project names belongs to the project, even if another file configures it.

    Args:
        server: The server.
        home: The file that it belongs to. Default: the file that configures it.
    """
    from toolcrib.core.pointers import file_and_line  # noqa: PLC0415 -- few runtimes have servers
    from toolcrib.security.trust_needs import needs_of_server  # noqa: PLC0415 -- as above

    file = home.file if home is not None else file_and_line(server.place())[0] or server.root
    return TrustSubject(
        place_of_server(server),
        (file,),
        lambda workspace: needs_of_server(server, workspace.folder),
        settings=bool(server.url),
    )


def subject_of_module(home: ModuleHome, user: str = "") -> TrustSubject:
    """A Python source, or a tool of it, as a trust subject.

    Args:
        home: The source.
        user: The tool; empty for the source.
    """
    from toolcrib.security.trust_needs import need_of_import  # noqa: PLC0415 -- as above

    # Only the import counts: code that may run can do whatever the blocks of its tools say.
    return TrustSubject(
        user or f"source {home.name}",
        (home.file,),
        lambda workspace: [
            need_of_import(
                home.module, "source of tools", workspace.folder, f"source {home.name}", home.place
            )
        ],
        settings=bool(user),
    )


def subject_of_data(source: str, path: str, name: str) -> TrustSubject:
    """A data file whose path contains a variable, as a trust subject; see `Trust.permits_data`."""
    from toolcrib.security.trust_needs import need_of_data  # noqa: PLC0415 -- as above

    return TrustSubject(
        f"the store of {source}", (source,), lambda _workspace: [need_of_data(path, name, place=source)]
    )


def _beyond(agreed: TrustRequest | Decision, needs: Sequence[Need]) -> list[Need]:
    # Digests, not needs: the users and places of a need may change without a new decision.
    known = {each.digest for each in agreed.needs}
    return [each for each in needs if each.digest not in known]


def _as_argument(workspace: Workspace, here: str) -> str:
    """The workspace as a command-line argument: its name if that leads there from `here`, else its root."""
    name = workspace.name
    if not here or os.path.realpath(os.path.join(here, name)) != workspace.root:
        name = workspace.root
    # Without `./`, the command line would read the path as an option or a subcommand.
    if name.startswith("-") or name in _COMMANDS:
        name = f"./{name}"
    return shlex.quote(name)


_COMMANDS: Final = frozenset(("grant", "list", "revoke"))
"""Words that `toolcrib trust` reads as a subcommand instead of a path."""


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
