"""Calls that wait for a person: the pending call, its answer, the rules that answers leave, and where all are stored.

A store keeps approvals, their resolutions and rules. `MemoryApprovals` lasts as long as the process.
`FolderApprovals` survives a restart, and several processes may share it: of two that answer one approval, or make
one approved call, exactly one succeeds. On disk, secrets in arguments are encrypted, or missing without a key.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.text import decode_json
from toolcrib.core.user_folders import (
    STATE_VARIABLE,
    find_work_tree,
    open_regular,
    why_not_own,
    why_writable_by_others,
)
from toolcrib.security.encryption import CannotDecrypt, Cipher, NoKey

Scope: TypeAlias = Literal["once", "session", "always"]
"""How far an approval reaches: this call, later calls of the session that the same rule holds, or all such calls."""

SCOPES: Final[tuple[Scope, ...]] = ("once", "session", "always")

PENDING: Final = "pending"
"""Code of a call for which the program that serves it asks: it continues once a person has approved the call."""

_FORMAT: Final = 1
_LARGEST: Final = 64 << 20
_KEPT: Final = 10_000
"""Number of approvals in memory from which those that have ended are forgotten."""


def approval_permission(tool: str) -> frozenset[str]:
    """The permission that approves all calls of a tool that carry it."""
    return frozenset({f"approve:{tool}"})


class Pending(NamedTuple):
    """A call that waits for a person or a client, with `***` in place of secrets.

    The call is made with the real secrets, even if edited arguments contain `***` in their place.

    Attributes:
        id: ID of the call in its conversation, or of its approval.
        tool: Name of the tool.
        arguments: Arguments of the call.
        code: `needs_approval`, `client_tool_deferred`, or the code of what asks for approval.
        message: Question for the person who decides.
        details: Facts about the code; `approval` describes the approval.
    """

    id: str
    tool: str
    arguments: dict[str, JSON]
    code: str
    message: str
    details: Mapping[str, JSON] = NOTHING


class Answer(NamedTuple):
    """The answer to a pending call.

    In JSON: `{approve: true}`, `{approve: {arguments: {...}, scope: session}}`,
    `{approve: {scope: always, for: 30d, same_arguments: true}}`, `{reject: reason}`, `{expire: true}`,
    `{result: value}` or `{error: {code, message}}`. The last two are for a call with the code
    `client_tool_deferred`: the client has fulfilled it, after asking for the consent that the tool requires (see
    `details` of the pending call). Rejecting such a call declines it; the `decline_strategy` of the tool defines
    the result.

    Example:
        ```python
        answers = {"call_1": Answer.reject("too expensive")}
        conversation = await loop.run(conversation, answers)
        ```

    Attributes:
        kind: `approve`, `reject`, `expire`, `result` or `error`.
        arguments: Arguments that replace those of the call, if any.
        value: The result of a tool that the client fulfils.
        code: Error code.
        message: Reason of the rejection, or error message.
        scope: How far an approval reaches: `once`, `session` or `always`.
        lifetime: Seconds for which `always` holds; None until it is revoked.
        same_arguments: Whether `session` and `always` cover only calls with the same arguments.
    """

    kind: str
    arguments: dict[str, JSON] | None = None
    value: JSON = None
    code: str = ""
    message: str = ""
    scope: Scope = "once"
    lifetime: float | None = None
    same_arguments: bool = False

    @classmethod
    def approve(
        cls,
        arguments: dict[str, JSON] | None = None,
        *,
        scope: Scope = "once",
        lifetime: float | None = None,
        same_arguments: bool = False,
    ) -> Answer:
        """Make the call, with these arguments or its own. Edited arguments are validated, too.

        Args:
            arguments: Arguments that replace those of the call.
            scope: `session` and `always` also approve later calls that the same rule holds.
            lifetime: Seconds for which `always` holds; None until it is revoked.
            same_arguments: Whether `session` and `always` cover only calls with the same arguments.
        """
        return cls("approve", arguments, scope=scope, lifetime=lifetime, same_arguments=same_arguments)

    @classmethod
    def reject(cls, reason: str = "") -> Answer:
        """Do not make the call."""
        return cls("reject", message=reason)

    @classmethod
    def expire(cls) -> Answer:
        """Do not make the call, because nobody has answered."""
        return cls("expire")

    @classmethod
    def result(cls, value: JSON) -> Answer:
        """The client made the call; this is its value."""
        return cls("result", value=value)

    @classmethod
    def error(cls, code: str, message: str = "") -> Answer:
        """The client made the call, and it failed."""
        return cls("error", code=code, message=message)

    @classmethod
    def parse(cls, value: Answer | Mapping[str, Any]) -> Answer:
        """Parse the JSON form of an answer.

        Raises:
            ConfigurationError: The value is not an answer.
        """
        # `rest` must be empty: two decisions about one call are ambiguous.
        match value:
            case Answer(kind="approve" | "reject" | "expire" | "result" | "error"):
                return value
            case {"approve": True, **rest} if not rest:
                return cls.approve()
            case {"approve": dict(said), **rest} if said and not rest:
                if (approved := _parse_approval(said)) is not None:
                    return approved
            case {"reject": str(reason), **rest} if not rest:
                return cls.reject(reason)
            case {"expire": True, **rest} if not rest:
                return cls.expire()
            case {"result": result, **rest} if not rest:
                return cls.result(result)
            case {"error": {"code": str(code), **more}, **rest} if code and not (rest or more.keys() - _WHY):
                if isinstance(why := more.get("message", ""), str):
                    return cls.error(code, why)
        raise ConfigurationError(
            "invalid answer to a pending call",
            code="invalid_answer",
            hint='write {"approve": true}, {"approve": {"arguments": {...}}}, {"approve": {"scope": "session"}}, '
            '{"approve": {"scope": "always", "for": "30d"}}, {"reject": "why"}, {"expire": true}, {"result": ...} '
            'or {"error": {"code": "..."}}',
        )

    def as_json(self) -> dict[str, JSON]:
        """Return the JSON form, which `parse` reads."""
        if self.kind == "reject":
            return {"reject": self.message}
        if self.kind == "result":
            return {"result": self.value}
        if self.kind == "error":
            return {"error": {"code": self.code, "message": self.message}}
        if self.kind == "expire":
            return {"expire": True}
        told: dict[str, JSON] = {}
        if self.arguments is not None:
            told["arguments"] = self.arguments
        if self.scope != "once":
            told["scope"] = self.scope
        if self.lifetime is not None:
            told["for"] = format_duration(self.lifetime)
        if self.same_arguments:
            told["same_arguments"] = True
        return {"approve": told or True}


_WHY = {"message"}


def _parse_approval(said: Mapping[Any, Any]) -> Answer | None:
    """Parse the object of `approve`; None if it is invalid."""
    if said.keys() - {"arguments", "scope", "for", "same_arguments"}:
        return None
    arguments, scope = said.get("arguments"), said.get("scope", "once")
    same, lifetime = said.get("same_arguments", False), said.get("for")
    if not isinstance(arguments, dict | None) or scope not in SCOPES or not isinstance(same, bool):
        return None
    if (lifetime is not None and scope != "always") or (same and scope == "once"):
        return None
    try:
        seconds = None if lifetime is None else parse_duration(lifetime)
    except (ValueError, TypeError):
        return None
    return Answer.approve(arguments, scope=scope, lifetime=seconds, same_arguments=same)


class Resolution(NamedTuple):
    """How an approval was answered.

    Attributes:
        answer: The answer.
        at: Time of the answer, in seconds since 1970.
        by: Name of the person or program that answered; may be empty.
        known: Whether this process knows the edited arguments; otherwise `***` is in place of secrets, and the call
            cannot be made here.
    """

    answer: Answer
    at: float
    by: str = ""
    known: bool = True


class Approval(NamedTuple):
    """A call that needs approval, and its resolution.

    Attributes:
        id: Unique ID.
        tool: Name of the tool.
        shown: Arguments with `***` in place of secrets.
        arguments: Arguments of the call; None if they hold secrets that this process does not know.
        decision: What asked for approval: `effect, code, rule, at, reason, severity`.
        message: Question for the person who decides.
        tool_digest: Digest of the tool's document.
        digest: Digest of the tool, its arguments, the caller and the user; equal for equal calls.
        created: Time of the call, in seconds since 1970.
        expires: Time after which it cannot be approved any more; None for never.
        session: ID of the session.
        caller: Caller of the call.
        user: User of the call.
        correlation: Correlation ID of the call.
        grants: Permissions that the call had.
        kept: Where the arguments are: `memory`, `file`, `encrypted`, or `process`: only in the memory of the process
            that made the call, because they hold secrets and there is no key.
        resolution: The answer; None while it is pending.
        made: Whether the approved call was made, or its caller was told that it was rejected.
    """

    id: str
    tool: str
    shown: dict[str, JSON]
    arguments: dict[str, JSON] | None
    decision: Mapping[str, JSON]
    message: str = ""
    tool_digest: str = ""
    digest: str = ""
    created: float = 0.0
    expires: float | None = None
    session: str = ""
    caller: str = ""
    user: str = ""
    correlation: str = ""
    grants: tuple[str, ...] = ()
    kept: str = "memory"
    resolution: Resolution | None = None
    made: bool = False

    @property
    def code(self) -> str:
        """Code of what asked for approval."""
        return str(self.decision["code"])

    @property
    def has_ended(self) -> bool:
        """Whether the call was made or will never be."""
        return self.made or (self.resolution is not None and self.resolution.answer.kind != "approve")

    def state(self, now: float) -> str:
        """The state at a time: `pending`, `approved`, `rejected`, `expired`, or `made` after the approved call."""
        if self.resolution is None:
            return "expired" if self.expires is not None and now >= self.expires else "pending"
        refused = {"reject": "rejected", "expire": "expired"}.get(self.resolution.answer.kind)
        return refused or ("made" if self.made else "approved")


class ApprovalRule(NamedTuple):
    """A standing approval that the answer `always` left.

    It covers calls of its tool that the same rule holds, by the same caller for the same user, as long as the
    document of the tool does not change.

    Attributes:
        id: Unique ID.
        tool: Name of the tool.
        code: Code of what asked for approval.
        rule: The rule that asked for approval, as text.
        tool_digest: Digest of the tool's document.
        caller: Caller that it covers.
        user: User that it covers.
        digest: Digest of the call, if only calls with the same arguments are covered; else empty.
        created: Time of the answer, in seconds since 1970.
        expires: Time at which it ends; None if it holds until it is revoked.
        by: Name of the person or program that answered; may be empty.
    """

    id: str
    tool: str
    code: str
    rule: str
    tool_digest: str = ""
    caller: str = ""
    user: str = ""
    digest: str = ""
    created: float = 0.0
    expires: float | None = None
    by: str = ""


class UnusableApprovals(ToolcribError):
    """A store of approvals is corrupt, newer than this program, or not private. Nothing is approved."""

    code = "approvals_unusable"


class ApprovalStore(Protocol):
    """Keeps approvals. All methods raise UnusableApprovals if they cannot trust what is stored."""

    def new_id(self) -> str:
        """Return an unused ID."""
        ...

    def digest(self, text: str, *, secret: bool) -> str:
        """Return a digest of a text; `secret` if it holds secrets, which the digest must not reveal."""
        ...

    def add(self, approval: Approval) -> Approval:
        """Keep an approval, and return it with `kept`."""
        ...

    def get(self, id_: str) -> Approval | None:
        """Return an approval; None if it is unknown."""
        ...

    def everything(self) -> list[Approval]:
        """Return all approvals, the oldest first."""
        ...

    def of_call(self, digest: str) -> list[Approval]:
        """Return the approvals of equal calls, the oldest first."""
        ...

    def resolve(
        self, id_: str, resolution: Resolution, shown: dict[str, JSON] | None, *, here: bool = False
    ) -> bool:
        """Answer an approval; False if it was answered before.

        Args:
            id_: The approval.
            resolution: The answer.
            shown: The arguments of the answer with `***` in place of secrets.
            here: Whether this process makes the call, so that the arguments may stay in its memory.

        Raises:
            NoKey: The arguments hold secrets that cannot be stored.
        """
        ...

    def take(self, id_: str) -> bool:
        """Claim an approved call, to make it, or a rejected one, to tell its caller; False if it was claimed before."""
        ...

    def rules(self) -> list[ApprovalRule]:
        """Return the standing approvals, the oldest first."""
        ...

    def add_rule(self, rule: ApprovalRule) -> None:
        """Keep a standing approval."""
        ...

    def remove_rule(self, id_: str) -> bool:
        """Remove a standing approval; False if it is unknown."""
        ...

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Claim the pending calls of a conversation; see `Claim`."""
        ...


class MemoryApprovals:
    """Approvals in memory, which end with the process."""

    def __init__(self) -> None:
        self._approvals: dict[str, Approval] = {}
        self._of_call: dict[str, list[str]] = {}
        self._rules: dict[str, ApprovalRule] = {}
        self._claimed: set[str] = set()
        self._lock = RLock()
        self._most = _KEPT

    def new_id(self) -> str:
        """Return an unused ID: 12 hexadecimal digits."""
        # Not numbers: a conversation may continue in another runtime, whose approvals are others.
        return os.urandom(6).hex()

    def digest(self, text: str, *, secret: bool) -> str:  # noqa: ARG002 -- the digest never leaves the process
        """Return the SHA-256 of a text, in hex."""
        return _sha256(text)

    def add(self, approval: Approval) -> Approval:
        """Keep an approval."""
        with self._lock:
            if len(self._approvals) >= self._most:
                self._forget_ended()
            self._approvals[approval.id] = approval
            self._of_call.setdefault(approval.digest, []).append(approval.id)
        return approval

    def _forget_ended(self) -> None:
        left = [each for each in self._approvals.values() if not each.has_ended]
        self._approvals = {each.id: each for each in left}
        self._of_call = {}
        for each in left:
            self._of_call.setdefault(each.digest, []).append(each.id)
        self._most = max(_KEPT, 2 * len(left))

    def get(self, id_: str) -> Approval | None:
        """Return an approval; None if it is unknown."""
        return self._approvals.get(id_)

    def everything(self) -> list[Approval]:
        """Return all approvals, the oldest first."""
        with self._lock:
            return [*self._approvals.values()]

    def of_call(self, digest: str) -> list[Approval]:
        """Return the approvals of equal calls, the oldest first."""
        with self._lock:
            return [self._approvals[each] for each in self._of_call.get(digest, ())]

    def resolve(
        self,
        id_: str,
        resolution: Resolution,
        shown: dict[str, JSON] | None,  # noqa: ARG002 -- only what is written to disk is masked
        *,
        here: bool = False,  # noqa: ARG002 -- everything stays in memory
    ) -> bool:
        """Answer an approval; False if it was answered before."""
        with self._lock:
            approval = self._approvals[id_]
            if approval.resolution is not None:
                return False
            self._approvals[id_] = approval._replace(resolution=resolution)
            return True

    def take(self, id_: str) -> bool:
        """Claim an answered call; False if it was claimed before."""
        with self._lock:
            approval = self._approvals[id_]
            if approval.made:
                return False
            self._approvals[id_] = approval._replace(made=True)
            return True

    def rules(self) -> list[ApprovalRule]:
        """Return the standing approvals, the oldest first."""
        with self._lock:
            return [*self._rules.values()]

    def add_rule(self, rule: ApprovalRule) -> None:
        """Keep a standing approval."""
        with self._lock:
            self._rules[rule.id] = rule

    def remove_rule(self, id_: str) -> bool:
        """Remove a standing approval; False if it is unknown."""
        with self._lock:
            return self._rules.pop(id_, None) is not None

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Claim the pending calls of a conversation; False if one of them was claimed before."""
        with self._lock:
            if not self._claimed.isdisjoint(ids):
                return False
            self._claimed.update(ids)
            return True


class FolderApprovals:
    """Approvals as files in a folder, which several processes of one user may share.

    The folder must belong to the user, and nobody else may be able to write to it.

    Args:
        folder: The folder; the first approval creates it.
        cipher: Returns the cipher of the user, or raises NoKey.
        in_work_tree: Whether the folder may lie in a work tree. A repository could then bring approvals of its own.
    """

    def __init__(
        self, folder: str | Path, cipher: Callable[[], Cipher], *, in_work_tree: bool = False
    ) -> None:
        self.folder = os.path.abspath(folder)
        self._cipher = cipher
        self._in_work_tree = in_work_tree
        self._secrets: dict[str, tuple[dict[str, JSON], str]] = {}
        self._edited: dict[str, dict[str, JSON]] = {}

    def new_id(self) -> str:
        """Return an unused ID: 12 hexadecimal digits."""
        return os.urandom(6).hex()

    def digest(self, text: str, *, secret: bool) -> str:
        """Return the SHA-256 of a text in hex; with secrets, one that only the key of the user can repeat."""
        if not secret:
            return _sha256(text)
        try:
            return self._cipher().digest(text)
        except NoKey:
            # This digest is kept in memory: see `add`.
            return _sha256(text)

    def add(self, approval: Approval) -> Approval:
        """Write an approval to its file; secrets without a key stay in memory."""
        written: dict[str, Any] = {**approval._asdict(), "arguments": None, "sealed": "", "kept": "file"}
        for key in ("resolution", "made"):
            del written[key]
        if approval.arguments != approval.shown:
            try:
                written |= {"sealed": self._cipher().encrypt(approval.arguments), "kept": "encrypted"}
            except NoKey:
                # Without the digest: a short secret could be guessed from it.
                written |= {"kept": "process", "digest": ""}
                self._secrets[approval.id] = approval.arguments or {}, approval.digest
        self._open()
        self._write(f"{_prefix(written['digest'])}-{approval.id}.json", written)
        return approval._replace(kept=written["kept"])

    def get(self, id_: str) -> Approval | None:
        """Return an approval; None if it is unknown."""
        if not _is_id(id_):
            return None
        name = next((each for each in self._names() if each.endswith(f"-{id_}.json")), None)
        return None if name is None else self._read(name)

    def everything(self) -> list[Approval]:
        """Return all approvals, the oldest first."""
        found = [self._read(name) for name in self._names() if name.endswith(".json") and "-" in name]
        return sorted((each for each in found if each is not None), key=lambda each: (each.created, each.id))

    def of_call(self, digest: str) -> list[Approval]:
        """Return the approvals of equal calls, the oldest first."""
        lead = f"{_prefix(digest)}-"
        known = [id_ for id_, (_arguments, each) in self._secrets.items() if each == digest]
        names = [name for name in self._names() if name.startswith(lead) and name.endswith(".json")]
        found = [*map(self._read, names), *map(self.get, known)]
        same = {each.id: each for each in found if each is not None and each.digest == digest}
        return sorted(same.values(), key=lambda each: (each.created, each.id))

    def resolve(
        self, id_: str, resolution: Resolution, shown: dict[str, JSON] | None, *, here: bool = False
    ) -> bool:
        """Answer an approval by creating its file of the answer; False if it was answered before."""
        answer, sealed, known = resolution.answer, "", True
        edited = answer.arguments
        if edited is not None and edited != shown:
            answer = answer._replace(arguments=shown)
            try:
                sealed = self._cipher().encrypt(edited)
            except NoKey:
                # Another process may have to make the call, so memory alone is not enough.
                if not here:
                    raise
                known = False
        written = {"answer": answer.as_json(), "at": resolution.at, "by": resolution.by}
        self._open()
        first = self._write(f"{id_}.answer", {**written, "sealed": sealed, "known": known})
        if first and not known and edited is not None:
            self._edited[id_] = edited
        return first

    def take(self, id_: str) -> bool:
        """Claim an answered call by creating a file; False if it was claimed before."""
        self._open()
        return self._write(f"{id_}.made", {})

    def rules(self) -> list[ApprovalRule]:
        """Return the standing approvals, the oldest first."""
        names = [name for name in self._names() if name.endswith(".rule")]
        found = [
            _parsed_rule(self._path(name), said) for name in names if (said := self._load(name)) is not None
        ]
        return sorted(found, key=lambda each: (each.created, each.id))

    def add_rule(self, rule: ApprovalRule) -> None:
        """Write a standing approval to its file."""
        self._open()
        self._write(f"{rule.id}.rule", rule._asdict())

    def remove_rule(self, id_: str) -> bool:
        """Remove a standing approval; False if it is unknown."""
        if not _is_id(id_):
            return False
        self._check()
        try:
            os.unlink(self._path(f"{id_}.rule"))
        except FileNotFoundError:
            return False
        return True

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Claim the pending calls of a conversation; False if one of them was claimed before."""
        return await FolderClaims(os.path.join(self.folder, "claims")).claim(ids)

    def prune(self, before: float) -> int:
        """Remove the approvals that ended before a time, and return their number.

        Args:
            before: Seconds since 1970.
        """
        ended = [
            each
            for each in self.everything()
            if (each.made or each.state(before) in {"rejected", "expired"})
            and max(each.created, each.resolution.at if each.resolution is not None else 0.0) < before
        ]
        for each in ended:
            # The approval first: without it, nobody looks for its answer.
            for name in (f"{_prefix(each.digest)}-{each.id}.json", f"{each.id}.answer", f"{each.id}.made"):
                Path(self._path(name)).unlink(missing_ok=True)
        return len(ended)

    # Files.

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _check(self) -> None:
        """Check that only the user controls the folder."""
        top = "" if self._in_work_tree else find_work_tree(self.folder)
        try:
            # A repository could bring approvals of its own calls in a folder of its work tree.
            why = f"it is inside the work tree {top}" if top else ""
            why = why or why_not_own(os.path.dirname(self.folder)) or why_not_own(self.folder, links=False)
        except OSError as error:
            why = f"it cannot be inspected: {error.strerror}"
        if why:
            raise UnusableApprovals(
                f"the approvals in {self.folder} are not used: {why}",
                hint=f"set {STATE_VARIABLE} to a folder of your own",
            )

    def _open(self) -> None:
        """Create the folder if it is missing, and check it."""
        self._check()
        try:
            # Two calls, because `makedirs` applies its mode only to the last folder.
            os.makedirs(os.path.dirname(self.folder), mode=0o700, exist_ok=True)
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        # Again: another user may have created the folder in the meantime.
        self._check()

    def _names(self) -> Iterator[str]:
        self._check()
        try:
            yield from sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return
        except OSError as error:
            raise UnusableApprovals(f"cannot read {self.folder}: {error.strerror}") from error

    def _write(self, name: str, said: Mapping[str, Any]) -> bool:
        """Write a file atomically; False if it exists already."""
        path = self._path(name)
        draft = f"{path}.{os.getpid()}.{os.urandom(6).hex()}.draft"
        text = json.dumps({"format": _FORMAT, **said})
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                # A link to a complete file: unlike opening with O_EXCL, no reader ever sees half of it.
                os.link(draft, path)
            finally:
                Path(draft).unlink(missing_ok=True)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._unwritable(error) from error
        return True

    def _unwritable(self, error: OSError) -> UnusableApprovals:
        return UnusableApprovals(
            f"cannot write to {self.folder}: {error.strerror}", hint=f"set {STATE_VARIABLE} to another folder"
        )

    def _load(self, name: str) -> dict[str, Any] | None:
        """Read a file; None if it does not exist."""
        path = self._path(name)
        try:
            with open(path, "rb", opener=open_regular) as file:
                # The open file, not the path: the path may be replaced between the check and the read.
                about = os.fstat(file.fileno())
                why = why_writable_by_others(about) if stat.S_ISREG(about.st_mode) else "it is not a file"
                raw = b"" if why else file.read(_LARGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            why, raw = f"it cannot be read: {error.strerror}", b""
        said: Any = None
        if not why:
            try:
                said = decode_json(raw)
            except (ValueError, RecursionError):
                why = "it is corrupt"
        number = said.pop("format", None) if isinstance(said, dict) else None
        if not why and isinstance(number, int) and number > _FORMAT:
            why = f"a newer version wrote it (format {number}, expected {_FORMAT})"
        elif not why and number != _FORMAT:
            why = "it is corrupt"
        if why:
            raise _unusable(path, why)
        loaded: dict[str, Any] = said
        return loaded

    def _read(self, name: str) -> Approval | None:
        """Read an approval and its resolution; None if it was removed meanwhile."""
        said = self._load(name)
        if said is None:
            return None
        path = self._path(name)
        sealed = said.pop("sealed", None)
        id_ = name.rpartition("-")[2].removesuffix(".json")
        try:
            approval = Approval(**{**said, "grants": tuple(said["grants"])})
            fits = approval.id == id_ and isinstance(sealed, str) and isinstance(approval.code, str)
        except (KeyError, TypeError):
            fits = False
        if not fits or not _is_sound(approval):
            raise _unusable(path, "it is corrupt")
        if approval.kept == "file":
            approval = approval._replace(arguments=approval.shown)
        elif sealed:
            approval = approval._replace(arguments=self._decrypted(sealed))
        elif id_ in self._secrets:
            arguments, digest = self._secrets[id_]
            approval = approval._replace(arguments=arguments, digest=digest)
        made = os.path.lexists(self._path(f"{id_}.made"))
        return approval._replace(resolution=self._resolution(id_), made=made)

    def _resolution(self, id_: str) -> Resolution | None:
        name = f"{id_}.answer"
        said = self._load(name)
        if said is None:
            return None
        try:
            known, sealed = said["known"], said["sealed"]
            resolution = Resolution(
                Answer.parse(said["answer"]), float(said["at"]), str(said["by"]), known is True
            )
        except (KeyError, TypeError, ValueError, ConfigurationError):
            raise _unusable(self._path(name), "it is corrupt") from None
        arguments = self._decrypted(sealed) if sealed else self._edited.get(id_)
        if arguments is not None:
            answer = resolution.answer._replace(arguments=arguments)
            return resolution._replace(answer=answer, known=True)
        return resolution._replace(known=resolution.known and not sealed)

    def _decrypted(self, sealed: str) -> dict[str, JSON] | None:
        try:
            value = self._cipher().decrypt(sealed)
        except (NoKey, CannotDecrypt):
            return None
        return value if isinstance(value, dict) else None


def _unusable(path: str, why: str) -> UnusableApprovals:
    return UnusableApprovals(
        f"the file {path} is not used: {why}; nothing is approved", hint="repair or remove the file"
    )


def _is_sound(approval: Approval) -> bool:
    """Whether the fields of an approval from a file have their types."""
    said: dict[str, Any] = approval._asdict()
    texts = ("tool", "message", "tool_digest", "digest", "session", "caller", "user", "correlation", "kept")
    return (
        all(isinstance(text, str) for text in (*(said[key] for key in texts), *said["grants"]))
        and isinstance(said["shown"], dict)
        and isinstance(said["decision"], dict)
        and isinstance(said["created"], int | float)
        and isinstance(said["expires"], int | float | None)
    )


def _parsed_rule(path: str, said: dict[str, Any]) -> ApprovalRule:
    try:
        rule = ApprovalRule(**said)
    except TypeError:
        raise _unusable(path, "it is corrupt") from None
    times = isinstance(said.get("created"), int | float) and isinstance(
        said.get("expires"), int | float | None
    )
    texts = [value for key, value in said.items() if key not in {"created", "expires"}]
    if (
        not times
        or not all(isinstance(text, str) for text in texts)
        or f"{rule.id}.rule" != os.path.basename(path)
    ):
        raise _unusable(path, "it is corrupt")
    return rule


def _is_id(id_: str) -> bool:
    # An ID becomes a part of a path.
    return id_.isascii() and id_.isalnum()


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_LEAD: Final = 24


def _prefix(digest: str) -> str:
    return digest[:_LEAD] or "0"


class Claim(Protocol):
    """Decides which process may resume a suspended conversation."""

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Claim the answered calls, permanently; False if any of them was claimed before.

        It is called after all other checks and before any call is made. An exception aborts the resumption
        without any effect.

        Args:
            ids: `<conversation>/<call>@<event>` of each answered call. The IDs are the same for everyone who
                resumes from the same point, and differ if the call becomes pending again.
        """
        ...


class FolderClaims:
    """Claims as files in a folder that threads, processes and machines may share.

    If a process dies between its claim and the calls, they are never made: at most once, not exactly once. If
    you know that they were not made, delete their files; each file contains the ID that it claims.

    Attributes:
        path: The folder; the first claim creates it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Create one file per ID; False if one of them exists already.

        Raises:
            OSError: A file cannot be created; those created so far are removed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        made: list[Path] = []
        try:
            # Sorted: two processes that claim the same calls collide at the first file.
            for id_ in sorted(ids):
                place = self.path / sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()
                _make(place, id_)
                made.append(place)
        except OSError as error:
            for place in made:
                place.unlink()
            if isinstance(error, FileExistsError):
                return False
            raise
        return True


def _make(place: Path, name: str) -> None:
    # Mode `x` creates the file exclusively, which is atomic on local file systems and NFSv3 or later.
    with place.open("x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{name}\n")
