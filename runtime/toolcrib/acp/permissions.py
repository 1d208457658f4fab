"""The answers to an agent that asks for permission: by the policy and the rules of access, else by a person.

An agent reports a call before it asks. The rules see it as a call of a tool with the name that the agent gives it, and with the
kind of the call as its category. toolcrib selects only options whose kind it knows, and none that reaches further than
what was decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Annotations, Descriptor
from toolcrib.engine.access_control import AccessControl, Principal
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.requirements import Requirements
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy, allows

KINDS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
"""The kinds of options that toolcrib understands."""

OWN_TOOLS: Final = "mcp__toolcrib__"
"""What Claude Code puts before the names of the tools that toolcrib offers as the MCP server `toolcrib`."""

_READING: Final = frozenset({"read", "search", "think", "fetch"})
"""Kinds of calls that change nothing."""

_APPLIED: Final = frozenset({"allow", "deny", "ask"})
"""The keys of a policy that apply to the calls of an agent, which runs its own model."""


class ReportedCall(NamedTuple):
    """A call that an agent reports.

    Attributes:
        id: Its ID.
        tool: Name of the tool; empty if the agent gives none.
        kind: What it does: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switch_mode` or `other`.
        title: Description for people.
        arguments: Its arguments, as far as the agent reports them.
        paths: The files that it uses, absolute.
    """

    id: str
    tool: str = ""
    kind: str = "other"
    title: str = ""
    arguments: Mapping[str, JSON] = NOTHING
    paths: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that rules match: that of the tool, else the kind."""
        return self.tool or self.kind

    def updated(self, told: Mapping[str, Any]) -> ReportedCall:
        """The call after an update, as it is on the wire. Values that do not have the form of the protocol are ignored."""
        news: dict[str, Any] = {}
        for key, name in (("kind", "kind"), ("title", "title")):
            if isinstance(told.get(key), str):
                news[name] = told[key]
        if isinstance(told.get("rawInput"), dict):
            news["arguments"] = told["rawInput"]
        if isinstance(told.get("locations"), list):
            found = (each.get("path") for each in told["locations"] if isinstance(each, dict))
            news["paths"] = tuple(path for path in found if isinstance(path, str))
        tool = tool_name(told)
        if tool:
            news["tool"] = tool
        return self._replace(**news)


def tool_name(update: Mapping[str, Any]) -> str:
    """The name of a call's tool; empty if the agent does not give it.

    The protocol has a title for people and, so far, no name. Agents add one to the metadata.
    """
    if isinstance(update.get("name"), str):
        return str(update["name"])
    meta = update.get("_meta")
    for part in meta.values() if isinstance(meta, dict) else ():
        for key in ("toolName", "tool_name", "tool"):
            if isinstance(part, dict) and isinstance(part.get(key), str):
                return str(part[key])
    return ""


class PermissionOption(NamedTuple):
    """One of the answers that an agent offers.

    Attributes:
        id: Its ID.
        name: What it means, for people.
        kind: `allow_once`, `allow_always`, `reject_once` or `reject_always`; any other kind is never selected.
    """

    id: str
    name: str
    kind: str

    @property
    def allows(self) -> bool:
        """Whether it permits the call."""
        return self.kind.startswith("allow_")


class PermissionQuestion(NamedTuple):
    """A question for a person: may an agent make a call?

    Attributes:
        call: The call.
        options: The possible answers. Those of a kind that toolcrib does not know are left out.
        reason: Which rule asks; empty if none decides.
    """

    call: ReportedCall
    options: tuple[PermissionOption, ...]
    reason: str = ""


Ask: TypeAlias = Callable[[PermissionQuestion], Awaitable[PermissionOption | None]]
"""A coroutine function that asks a person, and returns the selected option; None rejects the call."""


class PermissionDecision(NamedTuple):
    """What is decided about a call.

    Attributes:
        effect: `allow`, `ask` or `deny`.
        reason: What decided it.
    """

    effect: str
    reason: str = ""


def check_agent_policy(policy: ToolPolicy) -> None:
    """Check that a policy can be applied to an agent, which runs a tool loop of its own.

    Raises:
        ConfigurationError: `unsupported_policy`: it limits something that only a tool loop of toolcrib can limit.
    """
    vain = [
        field.name
        for field in fields(policy)
        if field.name not in _APPLIED and getattr(policy, field.name) != getattr(NO_POLICY, field.name)
    ]
    if vain:
        named = ", ".join(f"`{name}`" for name in vain)
        raise ConfigurationError(
            f"{named} of the policy cannot be applied to an agent, which runs its own model",
            code="unsupported_policy",
            hint=f"remove {named}; `allow`, `deny` and `ask` apply",
        )


class Permissions:
    """Decides about the calls of an agent.

    Args:
        policy: The policy, of which `allow`, `deny` and `ask` apply.
        approved: Globs of the calls that are allowed without a question.
        access: The rules of the project; None without a runtime.
        caller: Name of the agent, which rules match as the caller.
        why_outside: Why a path may not be used, as the end of a sentence; empty if it may.
    """

    def __init__(
        self,
        policy: ToolPolicy,
        approved: Sequence[str],
        access: Callable[[], AccessControl] | None,
        caller: str,
        why_outside: Callable[[str, bool], str],
    ) -> None:
        self._policy = policy
        self._approved = tuple(approved)
        self._access = access
        self._caller = caller
        self._why_outside = why_outside

    def decide(self, call: ReportedCall) -> PermissionDecision:
        """Decide about a call that the agent asks about. Without a rule, a person decides."""
        denied = self.why_denied(call)
        if denied:
            return PermissionDecision("deny", denied)
        for name in _names(call):
            if any(fnmatchcase(name, glob) for glob in self._policy.ask):
                return PermissionDecision("ask", f"`ask` of the policy matches `{name}`")
        effect, reason = self._by_access(call)
        if effect != "default":
            return PermissionDecision(effect, reason)
        if any(fnmatchcase(name, glob) for name in _names(call) for glob in self._approved):
            return PermissionDecision("allow", "it was approved in advance")
        return PermissionDecision("ask")

    def why_denied(self, call: ReportedCall) -> str:
        """Why a call is denied, as a sentence; empty if it is not."""
        for name in _names(call):
            if any(fnmatchcase(name, glob) for glob in self._policy.deny):
                return f"`deny` of the policy matches `{name}`"
        if not any(allows(self._policy, name) for name in _names(call)):
            return f"`allow` of the policy does not match `{call.name}`"
        for path in call.paths:
            why = self._why_outside(path, call.kind not in _READING)
            if why:
                return f"it uses `{shorten(path)}`: {why}"
        effect, reason = self._by_access(call)
        return reason if effect == "deny" else ""

    def why_command_denied(self, line: str) -> str:
        """Why a command is denied, as a sentence; empty if it is not.

        Args:
            line: The program and its arguments, or a line for a shell.
        """
        why = self.why_denied(ReportedCall("", kind="execute", arguments={"command": line}))
        access = None if self._access is None else self._access()
        if why or access is None or access.settings.audit or not line.split():
            return why
        refusal = next(access.refusals(Requirements(commands=(line.split(maxsplit=1)[0],))), None)
        return "" if refusal is None else f"the command is {refusal}"

    def _by_access(self, call: ReportedCall) -> PermissionDecision:
        """What the rules of access say; `default` if no rule concerns the call."""
        access = None if self._access is None else self._access()
        if access is None or access.settings.audit:
            return PermissionDecision("default")
        tool = Descriptor(
            call.name, category=call.kind, annotations=Annotations(read_only=call.kind in _READING)
        )
        gate = access.gate(tool)
        if gate is None:
            return PermissionDecision("default")
        decision = gate.decide_request(Principal(self._caller), dict(call.arguments))
        # The default of a project is about its own tools, which say what they do.
        if decision.code == "access_default" and decision.effect == "allow":
            return PermissionDecision("default")
        return PermissionDecision(decision.effect, f"the call is {decision}")


def _names(call: ReportedCall) -> tuple[str, ...]:
    """The names that globs match: that of the tool, for a tool of the runtime also its own name, and the kind."""
    if not call.tool:
        return (call.kind,)
    own = call.tool.removeprefix(OWN_TOOLS)
    return (call.tool, call.kind) if own == call.tool else (call.tool, own, call.kind)


def parse_options(written: Any) -> tuple[list[PermissionOption], list[str]]:
    """Read the options of a request, as it is on the wire.

    Returns:
        The options whose kind toolcrib knows, and the kinds that it does not know.
    """
    known: list[PermissionOption] = []
    unknown: list[str] = []
    for each in written if isinstance(written, list) else ():
        if not isinstance(each, dict) or not isinstance(each.get("optionId"), str):
            unknown.append(shorten(str(each)))
        elif each.get("kind") not in KINDS:
            unknown.append(shorten(str(each.get("kind"))))
        else:
            known.append(PermissionOption(each["optionId"], str(each.get("name", "")), each["kind"]))
    return known, unknown


def option_for(effect: str, options: Sequence[PermissionOption]) -> PermissionOption | None:
    """The option that says what was decided, and nothing beyond this call; None if there is none."""
    wanted = "allow_once" if effect == "allow" else "reject_once"
    found = next((option for option in options if option.kind == wanted), None)
    if found is None and effect == "deny":
        # A rule that denies this call denies the next one like it.
        found = next((option for option in options if option.kind == "reject_always"), None)
    return found
