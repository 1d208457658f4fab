"""Limits that depend on the caller: one chain of layers for each set of rules that applies to some callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from toolcrib.core.model import Call, CallContext, Descriptor
from toolcrib.engine.access_control import is_of_caller
from toolcrib.engine.binder import over_estimate
from toolcrib.engine.middleware import build_chain
from toolcrib.engine.middleware.layer import Answer, LayerContext
from toolcrib.engine.session import BoundChain, Unavailable
from toolcrib.loading.limit_rules import LimitRule, with_rules

_MOST_CALLERS = 1024
"""Maximum number of callers whose chain is remembered."""


class CallerChains:
    """The chains of one tool whose callers have different limits.

    Args:
        base: The chain of callers that no rule names.
        context: What its layers were built from.
        rules: All rules that may limit calls of the tool.
        unable: Builds the chain of a caller whose limits the estimate of the tool exceeds.

    Attributes:
        chain: The chain for all callers, which chooses among the others.
    """

    def __init__(
        self,
        base: BoundChain,
        context: LayerContext,
        rules: Sequence[LimitRule],
        unable: Callable[[Descriptor, Unavailable], BoundChain],
    ) -> None:
        self._unable = unable
        self._base = base
        self._context = context
        self._rules = rules
        self._chains: dict[tuple[int, ...], BoundChain] = {}
        self._of_callers: dict[tuple[str, str], BoundChain] = {}
        waits = any(rule.bounds is not None for rule in rules)
        self.chain = base._replace(run=self._run, at_once=base.at_once and not waits, chain_of=self._chain_of)

    def _run(self, call: Call) -> Answer | Awaitable[Answer]:
        chain = self._chain_of(call.context)
        return chain.run(call if chain.tool is call.tool else call._replace(tool=chain.tool))

    def _chain_of(self, context: CallContext) -> BoundChain:
        key = (context.caller, context.user)
        chain = self._of_callers.get(key)
        if chain is None:
            if len(self._of_callers) >= _MOST_CALLERS:
                self._of_callers.clear()
            chain = self._of_callers[key] = self._made(context)
        return chain

    def _made(self, context: CallContext) -> BoundChain:
        numbers = tuple(
            number for number, rule in enumerate(self._rules) if is_of_caller(rule.conditions, context)
        )
        if numbers not in self._chains:
            rules = [self._rules[number] for number in numbers]
            tool = with_rules(self._base.tool, rules)
            personal = self._context._replace(
                tool=tool, limit_rules=rules, personal=tool is not self._base.tool
            )
            bound = self._base.bound
            refused = over_estimate(tool, bound, rules)
            self._chains[numbers] = (
                BoundChain(tool, bound, *build_chain(personal), access=personal.access, context=personal)
                if refused is None
                else self._unable(tool, refused)
            )
        return self._chains[numbers]
