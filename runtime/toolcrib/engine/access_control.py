"""Decide who may call what: the access settings, compiled for each tool.

A tool that access decides nothing about has no gate, and so no layer. The gate of another tool holds only the rules that
concern the tool; for each caller it keeps the rules that concern this caller, of which a call evaluates only the
matchers of arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, NOTHING, Call, Descriptor
from toolcrib.core.server_config import LockVerdict
from toolcrib.registry.catalog import DENIED, Card, HiddenReason, Look, accepts, card_of, fits_conditions
from toolcrib.security.access import (
    EFFECTS,
    HOST_NOT_ALLOWED,
    PATH_NOT_ALLOWED,
    AccessDecision,
    AccessRule,
    AccessSettings,
    Severity,
)
from toolcrib.security.path_access import PathAccess, PathArgument, path_arguments

if TYPE_CHECKING:
    from toolcrib.core.model import CallContext
    from toolcrib.core.protocols import Kinds
    from toolcrib.core.server_config import Catalogue, Server
    from toolcrib.security.requirements import Requirements
    from toolcrib.servers.environment import LockJudge

Test: TypeAlias = Callable[[Mapping[str, JSON]], "AccessDecision | None"]
"""Decides a call by its arguments; None if it does not concern them."""

Matches: TypeAlias = Callable[[object, Mapping[str, JSON]], bool]
"""The test of a matcher of arguments; its second argument is the scope, which is empty."""

ALLOWED: Final = AccessDecision("allow", "access_default", "default")
"""The decision about a call that nothing concerns."""

_MOST_CALLERS: Final = 256
"""Maximum number of callers whose rules a gate remembers."""


class Principal(NamedTuple):
    """Who makes a call.

    Attributes:
        caller: Agent, interface or program.
        user: User on whose behalf it is made.
        grants: Capabilities that the call was granted.
    """

    caller: str = ""
    user: str = ""
    grants: frozenset[str] = frozenset()


ANYONE: Final = Principal()
"""A caller who gave no name."""


class _Plan(NamedTuple):
    """The rules for one caller: the decision without arguments, and the tests that may overrule it."""

    fixed: AccessDecision
    tests: tuple[Test, ...]


class ToolGate:
    """Decides the calls of one tool.

    Args:
        settings: The access settings.
        rules: Those of the rules that concern the tool, with their compiled matchers of arguments.
        fixed: Decisions that depend neither on the caller nor on the arguments.
        capabilities: What the tool needs to be granted.
        paths: Decides by the paths in the arguments, if the tool has any.
        confirmation: The decision of `requires_confirmation`, if the tool has it. It also applies in audit mode.
        reaches: Whether connections and files are checked when the tool opens them, so that a call may still be
            refused.

    Attributes:
        confirmation: As the parameter.
        reaches: As the parameter.
    """

    __slots__ = (
        "_capabilities",
        "_fixed",
        "_paths",
        "_plans",
        "_rules",
        "_settings",
        "confirmation",
        "reaches",
    )

    def __init__(
        self,
        settings: AccessSettings,
        rules: Sequence[tuple[AccessRule, Matches | None]],
        fixed: Sequence[AccessDecision],
        capabilities: Sequence[str],
        *,
        paths: Test | None,
        confirmation: AccessDecision | None,
        reaches: bool,
    ) -> None:
        self.confirmation = confirmation
        self.reaches = reaches
        self._settings = settings
        self._rules = rules
        self._fixed = fixed
        self._capabilities = capabilities
        self._paths = paths
        self._plans: dict[tuple[str, str, frozenset[str]], _Plan] = {}

    @property
    def audit(self) -> bool:
        """Whether decisions are only recorded."""
        return self._settings.audit

    @property
    def asks(self) -> bool:
        """Whether a call may need the approval of a person."""
        rules = any(rule.effect == "ask" for rule, _matches in self._rules)
        return rules or self.confirmation is not None or self._settings.default == "ask"

    def decide(self, call: Call) -> AccessDecision:
        """Decide a call by its caller and its arguments, which must be valid."""
        context = call.context
        key = (context.caller, context.user, context.grants)
        fixed, tests = self._plans.get(key) or self._plan(key)
        for test in tests:
            decision = test(call.arguments)
            if decision is not None:
                return decision
        return fixed

    def decide_request(self, principal: Principal, arguments: Mapping[str, JSON]) -> AccessDecision:
        """Decide a call of another program, which asks before it makes the call itself."""
        fixed, tests = self._plans.get(principal) or self._plan(principal)
        found = (test(arguments) for test in tests)
        return next((decision for decision in found if decision is not None), fixed)

    def decide_for(self, principal: Principal) -> AccessDecision | None:
        """Decide about a caller without arguments; None if the arguments decide."""
        fixed, tests = self._plans.get(principal) or self._plan(principal)
        return None if tests else fixed

    def standing(self, principal: Principal) -> Standing:
        """What is decided about the calls of someone, for a person who asks why."""
        fixed, tests = self._planned(principal)
        matching = [
            decision_of(rule)
            for rule, matches in self._rules
            if matches is not None and is_of_caller(rule.conditions, principal)
        ]
        if self._paths is not None:
            matching.append(AccessDecision("deny", PATH_NOT_ALLOWED, "`paths`"))
        return Standing(fixed, tuple(matching) if tests else (), self.audit)

    def _plan(self, key: tuple[str, str, frozenset[str]]) -> _Plan:
        if len(self._plans) >= _MOST_CALLERS:
            self._plans.clear()
        plan = self._plans[key] = self._planned(Principal(*key))
        return plan

    def _planned(self, principal: Principal) -> _Plan:
        concerned = [
            (rule, matches) for rule, matches in self._rules if is_of_caller(rule.conditions, principal)
        ]
        plain = [*self._fixed, *self._ungranted(principal)]
        plain += [decision_of(rule) for rule, matches in concerned if matches is None]
        plain += [] if self.confirmation is None else [self.confirmation]
        fixed = next((found for effect in EFFECTS for found in plain if found.effect == effect), None)
        # Only tests with a stronger effect can overrule a decision; any test overrules the default.
        stronger = EFFECTS if fixed is None else EFFECTS[: EFFECTS.index(fixed.effect)]
        tests: list[Test] = []
        for effect in stronger:
            if effect == "deny" and self._paths is not None:
                tests.append(self._paths)
            tests += [
                _test(matches, decision_of(rule))
                for rule, matches in concerned
                if matches is not None and rule.effect == effect
            ]
        return _Plan(_default(self._settings) if fixed is None else fixed, tuple(tests))

    def refused(self, key: str, message: str) -> AccessDecision:
        """The decision about a call that was refused when it opened a connection or a file.

        Args:
            key: The list that refused it, as in `report_refusal`.
            message: What was refused.
        """
        code = HOST_NOT_ALLOWED if key == "hosts" else PATH_NOT_ALLOWED
        return self._refused(code, key, message, "high")

    def _ungranted(self, principal: Principal) -> Iterator[AccessDecision]:
        granted = self._settings.grants
        if granted is None:
            return
        lacking = [
            name for name in self._capabilities if name not in granted and name not in principal.grants
        ]
        if lacking:
            names = " and ".join(f"`{name}`" for name in lacking)
            yield self._refused("missing_grant", "grants", f"it needs {names}, which no grant covers")

    def _refused(self, cause: str, key: str, reason: str, severity: Severity = "medium") -> AccessDecision:
        place = self._settings.places.get(key, "")
        return AccessDecision("deny", cause, f"`{key}`", place, reason, severity)


def is_of_caller(conditions: Mapping[str, Any], principal: Principal | CallContext) -> bool:
    """Whether a caller and its user meet the conditions of a rule that concern them."""
    return all(
        accepts(conditions[key], lambda glob, name=name: fnmatchcase(name, glob))  # type: ignore[misc]
        for key, name in (("caller", principal.caller), ("user", principal.user))
        if key in conditions
    )


def decision_of(rule: AccessRule) -> AccessDecision:
    """The decision of a rule."""
    # Rules are few, and their text is compiled once for each caller.
    from toolcrib.loading.access import rule_text  # noqa: PLC0415 -- a project without rules needs none of it

    return AccessDecision(
        rule.effect, "access_rule", f"`{rule_text(rule)}`", rule.place, rule.reason, rule.severity
    )


def _default(settings: AccessSettings) -> AccessDecision:
    if settings.default == "allow":
        return ALLOWED._replace(place=settings.places.get("default", ""))
    return AccessDecision(settings.default, "access_default", "default", settings.places.get("default", ""))


def _test(matches: Matches, decision: AccessDecision) -> Test:
    return lambda arguments: decision if matches(arguments, NOTHING) else None


def principal_of(context: CallContext | Principal) -> Principal:
    """Who makes the calls of a context."""
    return Principal(context.caller, context.user, context.grants)


class Standing(NamedTuple):
    """What access decides about the calls of one tool by one caller.

    Attributes:
        fixed: The decision if no rule about arguments decides.
        by_arguments: The decisions that arguments may lead to; empty if they have no influence.
        audit: Whether decisions are only recorded.
    """

    fixed: AccessDecision = ALLOWED
    by_arguments: tuple[AccessDecision, ...] = ()
    audit: bool = False

    def as_json(self) -> dict[str, JSON]:
        """Return the standing as a JSON object."""
        return {
            "decision": self.fixed.as_json(),
            "by_arguments": [each.as_json() for each in self.by_arguments],
            "audit": self.audit,
        }

    def lines(self) -> Iterator[str]:
        """Describe the standing, one line for each decision."""
        yield from (f"{each}, depending on the arguments" for each in self.by_arguments)
        yield f"otherwise {self.fixed}" if self.by_arguments else str(self.fixed)
        if self.audit:
            yield "audit mode: decisions are recorded and block nothing"


def access_control(
    settings: AccessSettings,
    kinds: Kinds,
    servers: Mapping[str, Server],
    origins: Mapping[str, str],
) -> AccessControl:
    """Compile access settings for the tools of a project.

    Args:
        settings: The settings.
        kinds: The modes.
        servers: The servers that blocks may name.
        origins: Origin in a block -> the origin that is called instead.
    """

    def requirements(tool: Descriptor) -> Iterator[Requirements]:
        for mode in tool.bindings:
            found = kinds.requirements_of(mode, tool, servers)
            if found is not None:
                yield found._replace(hosts=tuple(_contacted(host, origins) for host in found.hosts))

    return AccessControl(settings, requirements)


def _contacted(host: str, origins: Mapping[str, str]) -> str:
    """The origin that is contacted for one that a block names."""
    if not origins or "://" not in host or "${" in host:
        return host
    from toolcrib.servers.environment import normal_origin  # noqa: PLC0415 -- few projects replace origins

    written = normal_origin(host)
    return next((instead for origin, instead in origins.items() if normal_origin(origin) == written), host)


class AccessControl:
    """Compiles access settings for the tools of a runtime.

    Args:
        settings: The settings.
        requirements: Returns what calls of a tool use outside the program, in all of its modes.

    Attributes:
        settings: The settings.
        decides_nothing: Whether the settings allow every call.
        paths: The folders in which calls may open files; in audit mode, other files are only reported.
    """

    def __init__(
        self, settings: AccessSettings, requirements: Callable[[Descriptor], Iterable[Requirements]]
    ) -> None:
        self.settings = settings
        self.decides_nothing = settings.decides_nothing
        self.paths = PathAccess(settings.root, settings.read, settings.write, settings.audit)
        self._requirements = requirements
        self._by_name: dict[str, list[tuple[int, AccessRule]]] = {}
        self._others: list[tuple[int, AccessRule]] = []
        for number, rule in enumerate(settings.rules):
            names = _exact_names(rule.conditions)
            for name in names or ():
                self._by_name.setdefault(name, []).append((number, rule))
            if names is None:
                self._others.append((number, rule))
        self._names_users = any("user" in rule.conditions for rule in settings.rules)
        self._matchers: dict[int, Matches] = {}
        self._looks: dict[Principal, Look] = {}
        self._gates: dict[str, tuple[Descriptor, ToolGate | None]] = {}

    def gate(self, tool: Descriptor) -> ToolGate | None:
        """Compile the gate of a tool; None if access decides nothing about it."""
        if self.decides_nothing and not tool.requires_confirmation:
            return None
        known = self._gates.get(tool.name)
        if known is None or known[0] is not tool:
            gate = self._gate(card_of(tool), lambda: tool, confirms=bool(tool.requires_confirmation))
            known = self._gates[tool.name] = (tool, gate)
        return known[1]

    def _gate(self, card: Card, tool: Callable[[], Descriptor], *, confirms: bool) -> ToolGate | None:
        settings = self.settings
        rules = [rule for rule in self._rules_of(card.name) if fits_conditions(card, rule.conditions)]
        limited = settings.read is not None or settings.write is not None
        lists = (settings.hosts, settings.commands, settings.environment)
        needs = limited or any(each is not None for each in lists)
        found = [*self._requirements(tool())] if needs else []
        fixed = [refusal for each in found for refusal in self.refusals(each)]
        guarded = settings.hosts is not None
        reaches = any(each.opens or (guarded and each.hosts) for each in found) and (limited or guarded)
        confirmation = _confirmation(tool()) if confirms else None
        capabilities = card.capabilities if settings.grants is not None else ()
        marked = path_arguments(tool().input_schema) if limited else ()
        paths = self._path_test(marked) if marked else None
        decides = rules or fixed or capabilities or paths or confirmation or reaches
        if not decides and settings.default == "allow":
            return None
        compiled = [(rule, self._matches(rule)) for rule in rules]
        return ToolGate(
            settings,
            compiled,
            fixed,
            capabilities,
            paths=paths,
            confirmation=confirmation,
            reaches=reaches,
        )

    def _rules_of(self, name: str) -> Iterator[AccessRule]:
        """The rules that may concern a tool, in their order."""
        own = self._by_name.get(name)
        found = self._others if own is None else sorted([*own, *self._others], key=lambda pair: pair[0])
        return (rule for _number, rule in found)

    def _matches(self, rule: AccessRule) -> Matches | None:
        if "args" not in rule.conditions:
            return None
        key = id(rule)
        if key not in self._matchers:
            from toolcrib.expressions.matchers import compile_matcher  # noqa: PLC0415 -- few rules match arguments

            self._matchers[key] = compile_matcher(rule.conditions["args"], []).test
        return self._matchers[key]

    def refusals(self, requirements: Requirements) -> Iterator[AccessDecision]:
        """Denials of hosts, programs and variables that no list allows."""
        settings = self.settings
        if settings.hosts is not None:
            for host in requirements.hosts:
                if not _is_listed_host(host, settings.hosts):
                    yield self._refused(
                        HOST_NOT_ALLOWED, "hosts", f"it contacts `{host}`, which `hosts` does not list"
                    )
        for key, cause, names in (
            ("commands", "command_not_allowed", requirements.commands),
            ("environment", "environment_not_allowed", requirements.environment),
        ):
            listed: tuple[str, ...] | None = getattr(settings, key)
            for name in names if listed is not None else ():
                if not any(_fits_program(name, glob) for glob in listed or ()):
                    verb = "starts" if key == "commands" else "reads"
                    yield self._refused(cause, key, f"it {verb} `{name}`, which `{key}` does not list")

    def _refused(self, cause: str, key: str, reason: str) -> AccessDecision:
        return AccessDecision("deny", cause, f"`{key}`", self.settings.places.get(key, ""), reason, "high")

    def _path_test(self, marked: Sequence[PathArgument]) -> Test | None:
        limited = [argument for argument in marked if self.paths.limits(argument.purpose)]
        if not limited:
            return None

        def test(arguments: Mapping[str, JSON]) -> AccessDecision | None:
            for argument in limited:
                for path in argument.texts(arguments):
                    why = self.paths.why_refused(path, argument.purpose)
                    if why:
                        key = f"paths.{argument.purpose}"
                        return self._refused(PATH_NOT_ALLOWED, key, f"`{argument.name}` is refused: {why}")
            return None

        return test

    def look(self, principal: Principal) -> Look | None:
        """What a caller may see; None if that is everything."""
        if self.decides_nothing:
            return None
        if not self._names_users:
            # All users of a caller then see the same tools, so that their lists are made once.
            principal = principal._replace(user="")
        if principal not in self._looks:
            if len(self._looks) >= _MOST_CALLERS:
                self._looks.clear()
            self._looks[principal] = self._look(principal)
        return self._looks[principal]

    def standing(self, tool: Descriptor, principal: Principal) -> Standing:
        """What is decided about the calls of a tool by someone."""
        gate = self.gate(tool)
        return Standing(audit=self.settings.audit) if gate is None else gate.standing(principal)

    def judge(self, judge: LockJudge) -> LockJudge:
        """A judge of servers that also refuses those whose program, host or variables no list allows."""
        settings = self.settings
        if settings.audit or (
            settings.hosts is None and settings.commands is None and settings.environment is None
        ):
            return judge

        def judged(server: Server, catalogue: Catalogue | None) -> LockVerdict:
            from toolcrib.security.requirements import requirements_of_server  # noqa: PLC0415 -- few projects limit servers

            refused = next(self.refusals(requirements_of_server(server)), None)
            if refused is None:
                return judge(server, catalogue)
            why = f"access refuses the {server.kind} `{server.name}`, which is {refused}"
            return LockVerdict({"*": why}, code=refused.code)

        return judged

    def _look(self, principal: Principal) -> Look:
        def look(card: Card, tool: Callable[[], Descriptor]) -> HiddenReason | None:
            gate = None if self.settings.audit else self._gate(card, tool, confirms=False)
            decision = None if gate is None else gate.decide_for(principal)
            if decision is None or decision.effect != "deny":
                return None
            return HiddenReason(DENIED, f"a call of `{card.name}` is {decision}", decision.place)

        return look


def _confirmation(tool: Descriptor) -> AccessDecision:
    said = tool.requires_confirmation
    place = tool.origin.place("/requires_confirmation")
    return AccessDecision(
        "ask",
        "requires_confirmation",
        "`requires_confirmation`",
        place,
        said if isinstance(said, str) else "",
    )


def _exact_names(conditions: Mapping[str, Any]) -> list[str] | None:
    """The tools that a rule names without wildcards; None if it may concern others."""
    said = conditions.get("tool")
    entries = [said] if isinstance(said, str) else said
    if not entries or any(set(entry) & set("*?[!") for entry in entries):
        return None
    return list(entries)


def _fits_program(name: str, glob: str) -> bool:
    """Whether a glob matches a program as written, or its name if the glob has no folder."""
    return fnmatchcase(name, glob) or (os.sep not in glob and fnmatchcase(os.path.basename(name), glob))


def _is_listed_host(written: str, patterns: Sequence[str]) -> bool:
    """Whether a list has a host, as a block writes it. A host that is looked up later is checked when it is contacted."""
    from toolcrib.security.hosts import (  # noqa: PLC0415 -- few projects list hosts
        matches_any_host,
        read_host,
        read_host_pattern,
    )
    from toolcrib.security.trust_needs import host_of  # noqa: PLC0415 -- as above

    # A host of the key `hosts` may be contacted, and need not be: the guard checks it when it is.
    if "${" in written or "://" not in written:
        return True
    name = host_of(written)
    scheme, _, rest = written.rpartition("://")
    port = rest.rpartition(":")[2]
    number = int(port) if port.isdecimal() else 80 if scheme == "http" else 443
    return matches_any_host(read_host(name), number, [read_host_pattern(pattern) for pattern in patterns])
