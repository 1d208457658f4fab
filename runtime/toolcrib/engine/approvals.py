"""Hold calls that need approval, ask people, and make the calls that they approve.

`Approvals.approve` is what a layer calls for a call that needs approval. The call continues if a person has
approved it: for the session, for always, or once, in a pending approval of an equal call. Otherwise a pending
approval is stored, and the approver of the call, if it has one, is asked in place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast
from weakref import WeakValueDictionary

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError, ExpressionError, did_you_mean
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Approver,
    Call,
    CallContext,
    Descriptor,
    Outcome,
    Result,
    as_result,
)
from toolcrib.core.protocols import CallSession, Clock
from toolcrib.core.subschemas import described_names
from toolcrib.core.text import canonical
from toolcrib.core.user_folders import state_folder
from toolcrib.security.access import AccessDecision
from toolcrib.security.approvals import (
    Answer,
    Approval,
    ApprovalRule,
    ApprovalStore,
    FolderApprovals,
    MemoryApprovals,
    Pending,
    Resolution,
    UnusableApprovals,
    approval_permission,
)
from toolcrib.security.encryption import Cipher, NoKey, load_cipher
from toolcrib.security.redaction import HIDDEN, Redactor, redact, restore_hidden

if TYPE_CHECKING:
    from toolcrib.core.protocols import CallNext
    from toolcrib.engine.middleware.layer import Answer as LayerAnswer
    from toolcrib.engine.session import Session

LIFETIME: Final = 86_400.0
"""Default time after which a pending approval expires, in seconds."""

HISTORY: Final = 30 * 86_400.0
"""Time for which ended approvals stay in a folder, in seconds."""

_MOST_ASKING: Final = 10_000
"""Number of approvals whose session is known; an equal call of any session may use older ones."""

_ABSENT: Final = "(not given)"
"""What a question shows in place of an argument that the call does not have."""

_BUDGET: Final = "budget_reached"

REJECTED: Final = "rejected"
EXPIRED: Final = "approval_expired"


def permission_of(approval: str) -> str:
    """The permission that a call gets from its approval."""
    return f"approval:{approval}"


class ApprovalRequested(NamedTuple):
    """A call was held until a person approves it."""

    pending: Pending


class ApprovalAnswered(NamedTuple):
    """A pending call was answered.

    Attributes:
        pending: The call.
        kind: `approve`, `reject` or `expire`.
        scope: How far an approval reaches: `once`, `session` or `always`.
        by: Name of the person or program that answered; may be empty.
    """

    pending: Pending
    kind: str
    scope: str = "once"
    by: str = ""


class ApprovalError(ConfigurationError):
    """An approval cannot be answered: it is unknown, was answered, has expired, or the edited arguments are invalid."""

    code = "unknown_approval"


class InvalidEdit(ApprovalError):
    """The edited arguments of an approval are invalid, or a rule forbids them. The approval stays pending.

    Attributes:
        details: Facts about the error, such as `violations`.
    """

    code = "invalid_edit"

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, JSON] = NOTHING) -> None:
        super().__init__(message, hint=hint)
        self.details = details


class ApprovalHost(Protocol):
    """The members of the engine that approvals use."""

    @property
    def default_session(self) -> Session:
        """The session of calls made on the runtime itself."""
        ...

    @property
    def approval_lifetime(self) -> float | None:
        """Seconds after which a pending approval expires; None for never."""
        ...

    @property
    def known_secrets(self) -> Redactor | None:
        """The secrets that were looked up so far, if any."""
        ...

    def decide(self, call: Call) -> AccessDecision | None:
        """What access decides about a call; None if it decides nothing about the tool, or only records."""
        ...

    def tell_observers(self, event: Any) -> None:
        """Tell the observers an event."""
        ...


class Approvals:
    """The approvals of a runtime: pending calls, their answers, and standing approvals. See `Runtime.approvals`.

    Example:
        ```python
        result = await runtime.call("refund_order", {"amount": 20})
        for pending in runtime.approvals.pending():
            runtime.approvals.answer(pending.id, Answer.approve())
            result = await runtime.resume(pending.id)
        ```
    """

    def __init__(self, host: ApprovalHost, store: ApprovalStore, approver: Approver | None = None) -> None:
        self._host = host
        self._store = store
        self._approver = approver
        # Virtual times must not be stored among real ones, and approvals of a simulation end with it.
        self._simulated: ApprovalStore = store if isinstance(store, MemoryApprovals) else MemoryApprovals()
        self._clocks: dict[str, Clock] = {}
        self._asking: WeakValueDictionary[str, CallSession] = WeakValueDictionary()
        self._pruned = False

    # For people and programs that answer.

    def pending(self) -> tuple[Pending, ...]:
        """The calls that wait for an answer, the oldest first.

        Raises:
            UnusableApprovals: The store is corrupt, newer than this program, or not private.
        """
        waiting = [each for each in self.everything() if each.state(self._now(each.id)) == "pending"]
        return tuple(map(as_pending, waiting))

    def everything(self) -> tuple[Approval, ...]:
        """All approvals, also those that were answered, the oldest first.

        Raises:
            UnusableApprovals: As `pending`.
        """
        stores = {id(store): store for store in (self._store, self._simulated)}.values()
        return tuple(approval for store in stores for approval in store.everything())

    def get(self, id: str) -> Approval:  # noqa: A002 -- matches `Approval.id`
        """An approval.

        Raises:
            ApprovalError: It is unknown; the message has the nearest IDs.
            UnusableApprovals: As `pending`.
        """
        approval = self.find(id)
        if approval is None:
            hint = did_you_mean(id, [each.id for each in self.everything()])
            hint = hint or "list them with `toolcrib approvals list` or `runtime.approvals.pending()`"
            raise ApprovalError(f"unknown approval `{id}`", hint=hint)
        return approval

    def state(self, approval: Approval) -> str:
        """The state of an approval now: `pending`, `approved`, `rejected`, `expired` or `made`."""
        return approval.state(self._now(approval.id))

    def answer(
        self,
        id: str,  # noqa: A002 -- as above
        answer: Answer | Mapping[str, Any],
        *,
        by: str = "",
        here: bool = False,
    ) -> Approval:
        """Answer a pending call. An approved call is made by `Session.resume`, or by the next equal call.

        Example:
            ```python
            for pending in runtime.approvals.pending():
                runtime.approvals.answer(pending.id, Answer.reject("too expensive"), by="ada")
            ```

        Args:
            id: The approval.
            answer: The answer, as a value or in its JSON form.
            by: Name of the person or program that answers.
            here: Whether this process makes the call, so that secrets in edited arguments may stay in its memory if
                there is no key to store them.

        Raises:
            ApprovalError: The approval is unknown, expired (`approval_expired`) or answered (`already_answered`).
            InvalidEdit: The edited arguments are invalid or forbidden; the approval stays pending.
            ConfigurationError: The answer is invalid.
            NoKey: The edited arguments hold a secret that cannot be stored.
            UnusableApprovals: As `pending`.
        """
        approval, answer = self.get(id), Answer.parse(answer)
        now = self._now(id)
        if answer.kind in {"result", "error"}:
            raise ConfigurationError(
                "invalid answer to an approval: `result` and `error` are for calls that a client fulfils",
                code="invalid_answer",
                hint="approve, reject or expire it",
            )
        if approval.resolution is not None:
            raise _already_answered(approval)
        store = self._store_of(id)
        if approval.state(now) == "expired" and answer.kind != "expire":
            store.resolve(id, Resolution(Answer.expire(), now), None)
            raise ApprovalError(
                f"the approval `{id}` has expired", code=EXPIRED, hint="make the call again to ask again"
            )
        if approval.kept == "process" and answer.scope == "always" and answer.same_arguments:
            raise NoKey(
                "cannot store `same_arguments`: the arguments contain secrets, and no encryption key is set",
                hint="run `toolcrib approvals key`, or approve once or for the session",
            )
        shown = None
        if answer.arguments is not None:
            edited = self._checked(approval, answer.arguments)
            answer, shown = answer._replace(arguments=edited), self._shown(approval.tool, edited)
        if not store.resolve(id, Resolution(answer, now, by), shown, here=here):
            raise _already_answered(self.get(id))
        if answer.kind == "approve" and answer.scope == "always":
            arguments = answer.arguments if answer.arguments is not None else approval.arguments or {}
            digest = self._digest(store, approval.tool, arguments, approval.caller, approval.user)
            store.add_rule(
                ApprovalRule(
                    id=store.new_id(),
                    tool=approval.tool,
                    code=approval.code,
                    rule=str(approval.decision["rule"]),
                    tool_digest=approval.tool_digest,
                    caller=approval.caller,
                    user=approval.user,
                    digest=digest if answer.same_arguments else "",
                    created=now,
                    expires=None if answer.lifetime is None else now + answer.lifetime,
                    by=by,
                )
            )
        self._host.tell_observers(ApprovalAnswered(as_pending(approval), answer.kind, answer.scope, by))
        return self.get(id)

    def shown(self, approval: Approval) -> dict[str, JSON]:
        """The arguments of a call as they were approved, with `***` in place of secrets."""
        edited = None if approval.resolution is None else approval.resolution.answer.arguments
        return approval.shown if edited is None else self._shown(approval.tool, edited)

    def check(self, id: str, answer: Answer | Mapping[str, Any]) -> None:  # noqa: A002 -- as above
        """Check the edited arguments of an answer without answering.

        Raises:
            InvalidEdit: They are invalid, or a rule forbids them.
            ApprovalError: The approval is unknown.
            ConfigurationError: The answer is invalid.
        """
        answer = Answer.parse(answer)
        if answer.arguments is not None:
            self._checked(self.get(id), answer.arguments)

    def rules(self) -> tuple[ApprovalRule, ...]:
        """The standing approvals that `always` left and that have not ended, the oldest first.

        Raises:
            UnusableApprovals: As `pending`.
        """
        stores = {id(store): store for store in (self._store, self._simulated)}.values()
        now = RealClock().now().timestamp()
        return tuple(
            rule
            for store in stores
            for rule in store.rules()
            if store is not self._store or rule.expires is None or now < rule.expires
        )

    def revoke(self, id: str) -> None:  # noqa: A002 -- matches `ApprovalRule.id`
        """Remove a standing approval.

        Raises:
            ApprovalError: It is unknown.
            UnusableApprovals: As `pending`.
        """
        if not (self._store.remove_rule(id) or self._simulated.remove_rule(id)):
            near = did_you_mean(id, [each.id for each in self.rules()])
            raise ApprovalError(
                f"unknown rule `{id}`",
                code="unknown_rule",
                hint=near or "list them with `toolcrib approvals list`",
            )

    # For layers.

    async def approve(self, call: Call, decision: AccessDecision, call_next: CallNext) -> LayerAnswer:
        """Continue a call that a person has approved; otherwise ask, or return `needs_approval`.

        Args:
            call: The call, with validated arguments.
            decision: What asks for approval.
            call_next: The rest of the chain.
        """
        try:
            passed: Call | Result | None = self.standing(call, decision)
            if passed is None:
                passed = self._rejection(call, decision)
            if passed is None:
                approval = self.hold(call, decision)
                approver = call.context.approver or self._approver
                if approver is None:
                    return needs_approval(approval)
                from toolcrib.core.running_calls import APPROVAL, in_stage  # noqa: PLC0415 -- imports asyncio

                with in_stage(call, APPROVAL):
                    wrong = await self._ask(approver, call.context.session.clock, approval)
                approval = self.get(approval.id)
                if approval.resolution is None:
                    return needs_approval(approval, wrong)
                passed = self._decided(call, approval)
        except UnusableApprovals as error:
            return Result.failure(
                Outcome.UNAVAILABLE,
                f"`{call.tool.name}` needs approval, which is not possible: {error.message}",
                code=error.code,
            )
        if isinstance(passed, Result):
            return passed
        answer = await call_next(passed)
        edited = passed.arguments if passed.arguments != call.arguments else None
        return answer if edited is None else self._with_edit(call.tool, edited, as_result(answer))

    def standing(self, call: Call, decision: AccessDecision) -> Call | None:
        """The call to make if it is approved already; None if a person must decide."""
        store = self._store_for(call.context.session.clock)
        for approval in self._covering(call, decision):
            if approval is None:
                return call
            if store.take(approval.id):
                return self._approved(call, approval)
        return None

    def _rejection(self, call: Call, decision: AccessDecision) -> Result | None:
        """The result of a call that a person has rejected while nobody waited; once, then the person is asked again."""
        store = self._store_for(call.context.session.clock)
        for approval in self._rejected(call, decision):
            if store.take(approval.id):
                return _refusal(approval, "rejected")
        return None

    def _rejected(self, call: Call, decision: AccessDecision) -> Iterator[Approval]:
        """The rejected approvals of equal calls that no caller knows of yet."""
        context = call.context
        store, now = self._store_for(context.session.clock), context.session.clock.now().timestamp()
        digest = self._digest(store, call.tool.name, call.arguments, context.caller, context.user)
        for approval in store.of_call(digest):
            if (
                approval.state(now) == "rejected"
                and not approval.made
                and (approval.expires is None or now < approval.expires)
                and (approval.code, approval.decision["rule"]) == (decision.code, decision.rule)
                and approval.correlation == context.correlation
            ):
                yield approval

    def would_hold(self, call: Call, decision: AccessDecision) -> bool:
        """Whether a call would wait for a person, who is not asked in place. No approval is requested or used."""
        if (call.context.approver or self._approver) is not None:
            return False
        try:
            return not any(
                True for _ in chain(self._covering(call, decision), self._rejected(call, decision))
            )
        except UnusableApprovals:
            return False  # the call itself reports it

    def settle(self, call: Call, answer: Answer) -> None:
        """Answer the pending approvals of a call that was decided elsewhere, so that nobody makes it once more.

        Args:
            call: The call. Its approvals have its correlation, and its arguments if it has no correlation.
            answer: The decision: approve, reject or expire.

        Raises:
            UnusableApprovals: As `pending`.
        """
        context = call.context
        store = self._store_for(context.session.clock)
        digest = self._digest(store, call.tool.name, call.arguments, context.caller, context.user)
        of_call = (call.tool.name, context.caller, context.user, context.correlation)
        for each in store.everything() if context.correlation else store.of_call(digest):
            if (each.tool, each.caller, each.user, each.correlation) != of_call:
                continue
            if each.state(context.session.clock.now().timestamp()) != "pending":
                continue
            # Somebody else may have answered in the meantime, or the edited arguments are invalid, as the call reports.
            with suppress(ApprovalError):
                self.answer(each.id, answer, here=True)
                self.take(each.id, context.session)

    def _covering(self, call: Call, decision: AccessDecision) -> Iterator[Approval | None]:
        """The approvals that cover a call. None represents an approval without a limit on the number of calls."""
        context, tool = call.context, call.tool
        if decision.code != _BUDGET and not approval_permission(tool.name).isdisjoint(context.grants):
            yield None
        if self._covers(context.grants, tool, decision):
            yield None
        store = self._store_for(context.session.clock)
        digest = self._digest(store, tool.name, call.arguments, context.caller, context.user)
        now = context.session.clock.now().timestamp()
        for approval in store.of_call(digest):
            if (
                approval.state(now) == "approved"
                and (approval.resolution is None or approval.resolution.known)
                and approval.correlation == context.correlation
                and self._is_free(approval, context.session)
                and self._covers({*approval.grants, permission_of(approval.id)}, tool, decision)
            ):
                yield approval
        if _SessionApprovals.of(context.session).hold(tool.name, decision, digest):
            yield None
        if any(_applies(rule, call, decision, digest, now) for rule in store.rules()):
            yield None

    def hold(self, call: Call, decision: AccessDecision) -> Approval:
        """Store a pending approval of a call, or return the one of an equal call of the same origin."""
        context = call.context
        store, clock = self._store_for(context.session.clock), context.session.clock
        now = clock.now().timestamp()
        digest = self._digest(store, call.tool.name, call.arguments, context.caller, context.user)
        # A caller that repeats the call must not fill the list of the person who decides.
        if context.approver is None and self._approver is None:
            for known in store.of_call(digest):
                # Not the whole decision: its reason may have numbers that change.
                same = (known.code, known.decision["rule"]) == (decision.code, decision.rule)
                same = same and known.correlation == context.correlation
                if same and known.state(now) == "pending":
                    if known.id not in self._asking:
                        self._ask_for(context.session, known)
                    return known
        if not self._pruned and isinstance(store, FolderApprovals):
            self._pruned = True
            store.prune(now - HISTORY)
        shown = self._shown(call.tool.name, call.arguments, call.tool)
        lifetime = self._host.approval_lifetime
        approval = store.add(
            Approval(
                id=store.new_id(),
                tool=call.tool.name,
                shown=shown,
                arguments=call.arguments,
                decision=decision.as_json(),
                message=_question(call.tool, decision, shown),
                tool_digest=call.tool.origin.digest,
                digest=digest,
                created=now,
                expires=None if lifetime is None else now + lifetime,
                session=context.session.id,
                caller=context.caller,
                user=context.user,
                correlation=context.correlation,
                grants=tuple(sorted(context.grants)),
            )
        )
        if store is self._simulated and not isinstance(clock, RealClock):
            self._clocks[approval.id] = clock
        self._ask_for(context.session, approval)
        if approval.kept == "process":
            _warn_without_key(approval)
        self._host.tell_observers(ApprovalRequested(as_pending(approval)))
        return approval

    def resumed(
        self, session: Session, id_: str
    ) -> Result | tuple[Approval, dict[str, JSON], frozenset[str]]:
        """Claim an approved call, for `Session.resume`.

        Returns:
            The approval, the arguments and the permissions of the call to make; or the result if it is not made.

        Raises:
            ApprovalError: The approval is unknown, or belongs to another caller or user.
            UnusableApprovals: As `pending`.
        """
        approval = self.get(id_)
        mine = session.principal
        if any(mine) and mine != (approval.caller, approval.user):
            raise ApprovalError(f"unknown approval `{id_}`", hint="it belongs to another caller or user")
        state = self.state(approval)
        if state == "pending":
            return needs_approval(approval)
        refused = _refusal(approval, state)
        if refused is not None:
            self._store_of(id_).take(id_)
            return refused
        tool = session.registry.get(approval.tool)
        if tool is not None and tool.origin.digest != approval.tool_digest:
            why = f"`{approval.tool}` was not called: it has changed since the approval was requested"
            return Result.failure(Outcome.DENIED, why, code="tool_changed", details={"approval": {"id": id_}})
        resolution = approval.resolution or Resolution(Answer.approve(), 0.0)
        answer = resolution.answer
        arguments = approval.arguments if answer.arguments is None else answer.arguments
        if arguments is None or not resolution.known:
            why = f"`{approval.tool}` was not called: its arguments hold secrets that this process does not know"
            return Result.failure(
                Outcome.UNAVAILABLE, why, code="arguments_unknown", details={"approval": {"id": id_}}
            )
        if not self._store_of(id_).take(id_):
            refused = _refusal(approval, "made")
            return needs_approval(approval) if refused is None else refused
        self._remember(session, approval, answer, arguments)
        return approval, arguments, frozenset({*approval.grants, *_permissions_of(approval)})

    def find(self, id_: str) -> Approval | None:
        """An approval; None if this runtime does not know it.

        Raises:
            UnusableApprovals: As `pending`.
        """
        return self._simulated.get(id_) or self._store.get(id_)

    def take(self, id_: str, session: CallSession) -> bool:
        """Claim an answered call that is made or refused by other means than `Session.resume`; False if it was claimed.

        An approval for the session counts from then on.

        Raises:
            UnusableApprovals: As `pending`.
        """
        if not self._store_of(id_).take(id_):
            return False
        approval = self.get(id_)
        if approval.resolution is not None:
            arguments = approval.resolution.answer.arguments or approval.arguments or approval.shown
            self._remember(session, approval, approval.resolution.answer, arguments)
        return True

    def release(self, session: CallSession) -> None:
        """Let equal calls of the same caller and user use the approvals that a session asked for; it has ended."""
        for id_ in [id_ for id_, asking in self._asking.items() if asking is session]:
            del self._asking[id_]

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Claim the pending calls of a conversation: the approvals are a `Claim`, for `Config.claim`."""
        return await self._store.claim(ids)

    # Parts.

    async def _ask(self, approver: Approver, clock: Clock, approval: Approval) -> InvalidEdit | None:
        """Ask the approver in place and store its answer; returns what is wrong with it."""
        left = None if approval.expires is None else approval.expires - clock.now().timestamp()
        try:
            if left is None:
                said = await approver(as_pending(approval))
            else:
                async with clock.timeout(left) as timer:
                    said = await approver(as_pending(approval))
        except TimeoutError:
            if left is None or not timer.expired():
                raise
            said = Answer.expire()
        if said is None:
            return None
        try:
            self.answer(approval.id, said, here=True)
        except InvalidEdit as error:
            return error
        except ApprovalError:
            # Somebody else answered first; that answer counts.
            return None
        return None

    def _decided(self, call: Call, approval: Approval) -> Call | Result:
        """The call of an answered approval, or the result if it is not made."""
        now = self._now(approval.id)
        refused = _refusal(approval, approval.state(now))
        if refused is not None:
            self._store_of(approval.id).take(approval.id)
            return refused
        if not self._store_of(approval.id).take(approval.id):
            refused = _refusal(approval, "made")
            return needs_approval(approval) if refused is None else refused
        return self._approved(call, approval)

    def _approved(self, call: Call, approval: Approval) -> Call:
        answer = approval.resolution.answer if approval.resolution is not None else Answer.approve()
        arguments = call.arguments if answer.arguments is None else answer.arguments
        # "For the session" means the session that asked, and not the next one with an equal call.
        if self._asking.get(approval.id) is call.context.session:
            self._remember(call.context.session, approval, answer, arguments)
        grants = call.context.grants.union(approval.grants, _permissions_of(approval))
        return call.with_arguments(arguments)._replace(context=call.context._replace(grants=grants))

    def _ask_for(self, session: CallSession, approval: Approval) -> None:
        if len(self._asking) >= _MOST_ASKING:
            self._asking.pop(next(iter(self._asking)), None)
        self._asking[approval.id] = session

    def _is_free(self, approval: Approval, session: CallSession) -> bool:
        """Whether a call of a session may use an approval: not one for another session that is still open."""
        asking = self._asking.get(approval.id)
        scope = "" if approval.resolution is None else approval.resolution.answer.scope
        return scope != "session" or asking is None or asking is session

    def _remember(
        self, session: CallSession, approval: Approval, answer: Answer, arguments: dict[str, JSON]
    ) -> None:
        """Remember an approval for the session."""
        if answer.scope == "session":
            store = self._store_of(approval.id)
            digest = self._digest(store, approval.tool, arguments, approval.caller, approval.user)
            _SessionApprovals.of(session).add(approval, digest if answer.same_arguments else "")

    def _covers(self, grants: Any, tool: Descriptor, decision: AccessDecision) -> bool:
        """Whether one of these permissions is an approval of this tool for this decision."""
        for grant in grants:
            if grant.startswith("approval:"):
                id_ = grant.removeprefix("approval:")
                known = self.find(id_)
                if (
                    known is not None
                    and known.tool == tool.name
                    # Whoever approved the call for another rule saw the same arguments, but not the budget.
                    and (
                        decision.code != _BUDGET
                        or (known.code, known.decision["rule"]) == (decision.code, decision.rule)
                    )
                    and known.resolution is not None
                    and known.resolution.answer.kind == "approve"
                ):
                    return True
        return False

    def _checked(self, approval: Approval, edited: dict[str, JSON]) -> dict[str, JSON]:
        """Validate and evaluate edited arguments; the result has their secrets, defaults and repairs."""
        whole = approval.arguments
        restored = restore_hidden(edited, approval.shown, approval.shown if whole is None else whole)
        if whole is None and _holds_mask(restored):
            raise InvalidEdit(
                f"the arguments of `{approval.id}` hold secrets that this process does not know",
                hint="answer without edits, or replace every `***`",
            )
        session = self._host.default_session
        checked = session.check_arguments(approval.tool, restored)
        if isinstance(checked, Result):
            details = NOTHING if checked.error is None else checked.error.details
            raise InvalidEdit(
                f"the edited arguments are invalid: {checked.message}",
                hint="the approval stays pending; answer it again",
                details=details,
            )
        context = CallContext(
            session, user=approval.user, caller=approval.caller, grants=frozenset(approval.grants)
        )
        decision = self._host.decide(Call(session.registry[approval.tool], checked, context))
        if decision is not None and decision.effect == "deny":
            raise InvalidEdit(
                f"the edited arguments are {decision}",
                hint="the approval stays pending; answer it again",
                details={"decision": decision.as_json()},
            )
        return checked

    def _shown(
        self, name: str, arguments: dict[str, JSON], tool: Descriptor | None = None
    ) -> dict[str, JSON]:
        known = tool or self._host.default_session.registry.get(name)
        shown = redact(arguments, None if known is None else known.input_schema)
        secrets = self._host.known_secrets
        return cast("dict[str, JSON]", shown if secrets is None else secrets.hide_in(shown))

    def _with_edit(self, tool: Descriptor, edited: dict[str, JSON], result: Result) -> Result:
        # A model would otherwise explain the result with its own arguments.
        return result.with_meta(approval={"edited": self._shown(tool.name, edited, tool)})

    def _digest(
        self, store: ApprovalStore, tool: str, arguments: dict[str, JSON], caller: str, user: str
    ) -> str:
        """The digest of a call, equal for equal calls of one caller for one user."""
        secret = self._shown(tool, arguments) != arguments
        return store.digest(canonical([tool, arguments, caller, user]), secret=secret)

    def _store_for(self, clock: Clock) -> ApprovalStore:
        return self._store if isinstance(clock, RealClock) else self._simulated

    def _store_of(self, id_: str) -> ApprovalStore:
        return self._simulated if self._simulated.get(id_) is not None else self._store

    def _now(self, id_: str) -> float:
        clock = self._clocks.get(id_)
        return (RealClock() if clock is None else clock).now().timestamp()


class _SessionApprovals:
    """The approvals that hold for the rest of a session."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str, str]] = set()

    @classmethod
    def of(cls, session: CallSession) -> _SessionApprovals:
        """The approvals of a session."""
        return session.slot("approvals", cls)

    def add(self, approval: Approval, digest: str) -> None:
        """Add an approval; `digest` if it covers only calls with the same arguments."""
        self._known.add((approval.tool, approval.code, str(approval.decision["rule"]), digest))

    def hold(self, tool: str, decision: AccessDecision, digest: str) -> bool:
        """Whether a call is approved."""
        lead = tool, decision.code, decision.rule
        return (*lead, "") in self._known or (*lead, digest) in self._known


def _applies(rule: ApprovalRule, call: Call, decision: AccessDecision, digest: str, now: float) -> bool:
    """Whether a standing approval covers a call."""
    tool, context = call.tool, call.context
    return (
        (rule.tool, rule.code, rule.rule, rule.tool_digest, rule.caller, rule.user)
        == (tool.name, decision.code, decision.rule, tool.origin.digest, context.caller, context.user)
        and rule.digest in {"", digest}
        and (rule.expires is None or now < rule.expires)
    )


def _permissions_of(approval: Approval) -> frozenset[str]:
    """The permissions that an approved call gets. Whoever let it exceed a budget did not approve the call itself."""
    own = frozenset({permission_of(approval.id)})
    return own if approval.code == _BUDGET else own | approval_permission(approval.tool)


def as_pending(approval: Approval) -> Pending:
    """The pending call of an approval, as people see it."""
    return Pending(
        approval.id,
        approval.tool,
        approval.shown,
        approval.code,
        approval.message,
        {"approval": approval_facts(approval)},
    )


def approval_facts(approval: Approval) -> dict[str, JSON]:
    """An approval as a JSON object without secrets: `details.approval` of a result."""
    told: dict[str, JSON] = {
        "id": approval.id,
        "tool": approval.tool,
        "arguments": approval.shown,
        **approval.decision,
        "created": _iso(approval.created),
        "kept": approval.kept,
    }
    if approval.expires is not None:
        told["expires"] = _iso(approval.expires)
    return told


def needs_approval(approval: Approval, wrong: InvalidEdit | None = None) -> Result:
    """The result of a call that waits for approval.

    Args:
        approval: The pending approval.
        wrong: Why the answer that was given in place is invalid, if one was.
    """
    details: dict[str, JSON] = {"approval": approval_facts(approval)}
    message = approval.message
    if wrong is not None:
        details |= {"problem": wrong.message, **wrong.details}
        message = f"{message}; {wrong.message}"
    return Result.failure(Outcome.NEEDS_APPROVAL, message, code=approval.code, details=details)


def _refusal(approval: Approval, state: str) -> Result | None:
    """The result of an answered call that is not made; None for an approved one."""
    details: dict[str, JSON] = {"approval": {"id": approval.id}}
    if state == "made":
        why = f"`{approval.tool}` was not called again: the approved call was made already"
        return Result.failure(Outcome.DENIED, why, code="already_answered", details=details)
    if state == "expired":
        why = f"`{approval.tool}` was not called: it was not approved in time"
        return Result.failure(Outcome.DENIED, why, code=EXPIRED, details=details)
    if state == "rejected":
        said = approval.resolution.answer.message if approval.resolution is not None else ""
        why = f"`{approval.tool}` was not called{f': {said}' if said else ''}"
        return Result.failure(Outcome.DENIED, why, code=REJECTED, details=details)
    return None


def _already_answered(approval: Approval) -> ApprovalError:
    resolution = approval.resolution
    said = "" if resolution is None else f": {resolution.answer.kind}"
    by = f" by {resolution.by}" if resolution is not None and resolution.by else ""
    return ApprovalError(
        f"the approval `{approval.id}` was already answered{by}{said}",
        code="already_answered",
        hint="make the call again to ask again",
    )


def _question(tool: Descriptor, decision: AccessDecision, shown: dict[str, JSON]) -> str:
    """The question for the person who decides, without secrets."""
    reason = decision.reason
    if reason and decision.code == "requires_confirmation":
        reason = _rendered(reason, {**dict.fromkeys(described_names(tool.input_schema), _ABSENT), **shown})
    rule = decision.rule.strip("`")
    by = f" (`{rule}`)" if rule and decision.code != "requires_confirmation" else ""
    return f"`{tool.name}` requires approval{by}{f': {reason}' if reason else ''}"


def _rendered(text: str, shown: dict[str, JSON]) -> str:
    """Render the expressions of a question with the masked arguments."""
    from toolcrib.expressions import compile_value  # noqa: PLC0415 -- few tools ask

    try:
        rendered = compile_value(text, {"args"}, []).render({"args": shown})
    except ExpressionError:
        # It computes with an argument that is absent: the person sees the arguments anyway.
        return text
    return rendered if isinstance(rendered, str) else str(rendered)


def _holds_mask(value: JSON) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_mask, value.values()))
    if isinstance(value, list):
        return any(map(_holds_mask, value))
    return value == HIDDEN


def _warn_without_key(approval: Approval) -> None:
    import logging  # noqa: PLC0415 -- few calls hold secrets

    logging.getLogger("toolcrib").warning(
        "the arguments of the pending call `%s` (%s) contain secrets, and no encryption key is set; they are kept in the "
        "memory of this process only; run `toolcrib approvals key`",
        approval.id,
        approval.tool,
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def default_store(workspace: str) -> ApprovalStore:
    """The approvals of a workspace in the user's state folder; in memory if the system defines no such folder.

    Args:
        workspace: The absolute path of the project, or the paths that were opened.
    """
    state = state_folder()
    if state is None:
        return MemoryApprovals()
    name = sha256(workspace.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return folder_store(os.path.join(state, "approvals", name), workspace)


def folder_store(folder: str | Path, workspace: str = "", *, in_work_tree: bool = False) -> FolderApprovals:
    """Approvals in a folder, encrypted with the key of the user, which must lie outside of the workspace."""
    known: list[Cipher] = []

    def cipher() -> Cipher:
        # Only a key that was found is remembered: a person may create one while the runtime is open.
        if not known:
            known.append(load_cipher(outside=workspace if os.path.isdir(workspace) else ""))
        return known[0]

    return FolderApprovals(folder, cipher, in_work_tree=in_work_tree)
