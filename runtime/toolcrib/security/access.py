"""Access: who may call what. The settings, the decisions, and the record of refused calls."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from toolcrib.core.model import JSON, NOTHING

Effect = Literal["allow", "ask", "deny"]
"""What access decides about a call: let it run, ask a person, or refuse it."""

EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
"""The effects by precedence: the first one that a rule decides wins."""

Severity = Literal["low", "medium", "high", "critical"]

HOST_NOT_ALLOWED: Final = "host_not_allowed"
"""Code of a call whose host no list allows, also if the egress guard finds it."""

PATH_NOT_ALLOWED: Final = "path_not_allowed"
"""Code of a call whose path no list allows, also if its code opens the file."""

report_refusal: Final[ContextVar[Callable[[str, str], None] | None]] = ContextVar(
    "report_refusal", default=None
)
"""Called where a host or a file is refused that the current call opens, or would be refused without audit mode.

It receives the list that refuses, `hosts`, `paths.read` or `paths.write`, and a sentence that names the host or file.
"""


class AccessRule(NamedTuple):
    """A rule about calls.

    Attributes:
        effect: What it decides.
        conditions: `tool`, `tag`, `label`, `annotation`, `capability`, `pack`, `caller`, `user` -> texts, of which any
            must match; `args` -> a matcher. All of them must hold.
        reason: Text for the person or model whose call it decides.
        severity: How serious a violation is.
        place: Where it was written: `toolcrib.yaml:12 (profile ci)`.
    """

    effect: Effect
    conditions: Mapping[str, JSON]
    reason: str = ""
    severity: Severity = "medium"
    place: str = ""


class AccessSettings(NamedTuple):
    """The access settings of a project and its profile; plain data. None means that a list was not written.

    Attributes:
        default: AccessDecision about calls that no rule decides.
        audit: Whether decisions are only recorded.
        grants: Capabilities that every call has.
        hosts: Patterns of hosts that tools may contact: `api.example.com`, `*.example.com:443`.
        read: Folders that arguments marked `x-path: read` may lead into, absolute.
        write: Folders that arguments marked `x-path: write` may lead into, absolute.
        commands: Globs of programs that may be started.
        environment: Globs of environment variables that may be looked up.
        rules: The rules, in order.
        places: Key, such as `default` or `paths.read` -> where it was written.
        root: Folder against which relative paths in arguments resolve, absolute.
    """

    default: Effect = "allow"
    audit: bool = False
    grants: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None
    environment: tuple[str, ...] | None = None
    rules: tuple[AccessRule, ...] = ()
    places: Mapping[str, str] = NOTHING
    root: str = ""

    @property
    def decides_nothing(self) -> bool:
        """Whether every call is allowed without a look at it."""
        return self[0] == "allow" and not any(item is not None for item in self[2:8]) and not self.rules

    def as_plain(self) -> tuple[Any, ...]:
        """Return the settings as tuples, dictionaries and scalars, which `read_access` reads; empty for `NO_ACCESS`."""
        if self is NO_ACCESS:
            return ()
        rules = tuple((rule[0], dict(rule[1]), *rule[2:]) for rule in self.rules)
        return tuple(self._replace(rules=rules, places=dict(self.places)))  # type: ignore[arg-type]


def read_access(plain: tuple[Any, ...]) -> AccessSettings:
    """Return the settings that `AccessSettings.as_plain` wrote."""
    if not plain:
        return NO_ACCESS
    settings = AccessSettings(*plain)
    return settings._replace(rules=tuple(AccessRule(*rule) for rule in settings.rules))


NO_ACCESS = AccessSettings()
"""The settings of a project without `access`: every call is allowed."""


class AccessDecision(NamedTuple):
    """What access decided about a call, and what decided it.

    Attributes:
        effect: The decision.
        code: What decided it: `access_rule`, `access_default`, `missing_grant`, `host_not_allowed`,
            `path_not_allowed`, `command_not_allowed`, `environment_not_allowed` or `requires_confirmation`.
        rule: The deciding rule or setting, in short: `deny tool refund_*`.
        place: `file:line` of the rule or setting, with its profile; empty if nothing was written.
        reason: Why, for the person or model whose call it is.
        severity: How serious a violation is.
    """

    effect: Effect
    code: str
    rule: str
    place: str = ""
    reason: str = ""
    severity: Severity = "medium"

    def as_json(self) -> dict[str, JSON]:
        """Return the decision as a JSON object."""
        return {
            "effect": self.effect,
            "code": self.code,
            "rule": self.rule,
            "at": self.place,
            "reason": self.reason,
            "severity": self.severity,
        }

    def __str__(self) -> str:
        """What decided, in one line: ``denied by the rule `deny tool refund_*` (toolcrib.yaml:12): too large``."""
        verb = {"allow": "allowed", "ask": "needs approval", "deny": "denied"}[self.effect]
        at = f" ({self.place})" if self.place else ""
        because = f": {self.reason}" if self.reason else ""
        return f"{verb} by {_WHAT.get(self.code, '')}{self.rule}{at}{because}"


def decision_from(written: Mapping[str, Any]) -> AccessDecision:
    """Return the decision that `AccessDecision.as_json` wrote."""
    keys = ("effect", "code", "rule", "at", "reason", "severity")
    return AccessDecision(*(written[key] for key in keys))


_WHAT: Final = {"access_rule": "the rule "}


class AccessViolation(NamedTuple):
    """A call that access refused; in audit mode, one that it would have refused or asked about.

    Attributes:
        tool: Name of the tool.
        decision: What was decided, by which rule.
        call: ID of the call.
        caller: Agent, interface or program that made it.
        user: User on whose behalf it was made.
        session: Name of its session.
        correlation: Its ID in another system.
        arguments_sha256: SHA-256 of its arguments in canonical JSON, in hex. The arguments are not kept.
        time: When it happened, on the clock of the session.
        audit: Whether the call was made nevertheless.
    """

    tool: str
    decision: AccessDecision
    call: str
    caller: str
    user: str
    session: str
    correlation: str
    arguments_sha256: str
    time: datetime
    audit: bool

    def as_json(self) -> dict[str, JSON]:
        """Return the violation as a JSON object."""
        return {
            **self.decision.as_json(),
            "tool": self.tool,
            "call": self.call,
            "caller": self.caller,
            "user": self.user,
            "session": self.session,
            "correlation": self.correlation,
            "arguments_sha256": self.arguments_sha256,
            "time": self.time.isoformat(),
            "audit": self.audit,
        }


MOST_VIOLATIONS: Final = 1000
"""Number of violations that a runtime keeps; older ones are only counted."""


class ViolationLog:
    """The violations of a runtime: the latest of them, and counts of all. Iterating yields the oldest kept one first.

    Attributes:
        total: Number of all violations.
        by_rule: (place, rule) -> number of violations.
        by_severity: Severity -> number of violations.
    """

    def __init__(self, most: int = MOST_VIOLATIONS) -> None:
        self._kept: deque[AccessViolation] = deque(maxlen=most)
        self.total = 0
        self.by_rule: Counter[tuple[str, str]] = Counter()
        self.by_severity: Counter[str] = Counter()

    def add(self, violation: AccessViolation) -> None:
        """Record a violation."""
        decision = violation.decision
        self._kept.append(violation)
        self.total += 1
        self.by_rule[decision.place, decision.rule] += 1
        self.by_severity[decision.severity] += 1

    def __iter__(self) -> Iterator[AccessViolation]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)
