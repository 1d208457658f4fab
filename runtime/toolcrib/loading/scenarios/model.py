"""The compiled scenario: steps, expectations, agent and verification.

The runner of scenarios depends only on these types, not on other parts of loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from toolcrib.core.clock import START
from toolcrib.core.model import (
    JSON,
    NO_FIXTURE,
    NOTHING,
    Collection,
    Descriptor,
    Fixture,
    InjectedFault,
    Machine,
    Origin,
    Outcome,
)
from toolcrib.core.pointers import pointer_step
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy, allows, renamed

if TYPE_CHECKING:
    from toolcrib.expressions import Rendering
    from toolcrib.expressions.matchers import Matcher
    from toolcrib.loading.scenarios.expectations import Golden


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected result of a call.

    Attributes:
        outcomes: Accepted outcomes; empty for any but `ok`.
        parts: Matchers for `result`, `error`, `content`, `attempts` and `elapsed`, if given. `result` applies to calls
            with outcome `ok`, `error` to all others.
        golden: The JSON file that the whole result is compared with, if any.
    """

    outcomes: tuple[Outcome, ...] = (Outcome.OK,)
    parts: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    golden: Golden | None = None


ANSWERED = Expectation()
"""Outcome `ok` with any result."""


def join_outcomes(outcomes: tuple[Outcome, ...], form: str = "{}") -> str:
    """Join outcomes, such as `ok or tool_error`, each formatted with `form`."""
    return " or ".join(form.format(outcome) for outcome in outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """One call of a scenario.

    Attributes:
        call: Name of the tool.
        args: The arguments, whose expressions can read the results of earlier steps.
        number: 1-based number of the step.
        branch: 1-based number among the calls of a parallel step; 0 for a single call.
        within: Name of the parallel step that contains it.
        name: Name of the step, for reports.
        save_as: Name under which later steps can read its result; empty for none.
        expect: The expected result.
        answers: Answers of the approver, in the order in which it is asked.
        pointer: JSON Pointer into the document.
        written: The arguments as written.
        repetition: 1-based number of the repetition; 0 for a step that is not repeated.
        repetitions: Number of repetitions.
    """

    call: str
    args: Rendering
    number: int = 0
    branch: int = 0
    within: str = ""
    name: str = ""
    save_as: str = ""
    expect: Expectation = ANSWERED
    answers: tuple[Rendering, ...] = ()
    pointer: str = ""
    written: JSON = None
    repetition: int = 0
    repetitions: int = 0

    @property
    def label(self) -> str:
        """`2`, or `2.1` for the first call of a parallel or repeated step."""
        return f"{self.number}.{self.branch}" if self.branch else str(self.number)

    @property
    def title(self) -> str:
        """`step 2`, or `step 2[3/5]` for a repetition, for reports."""
        often = f"[{self.repetition}/{self.repetitions}]" if self.repetition else ""
        return f"step {self.label}{often}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep:
    """Calls that start at the same time.

    Attributes:
        calls: The calls, in the order in which they start.
        number: 1-based number of the step.
        name: Name of the step, for reports.
        pointer: JSON Pointer into the document.
    """

    calls: tuple[CallStep, ...]
    number: int = 0
    name: str = ""
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceStep:
    """Time that passes between calls.

    Attributes:
        seconds: Seconds of virtual time.
        number: 1-based number of the step.
        name: Name of the step, for reports.
        pointer: JSON Pointer into the document.
    """

    seconds: float
    number: int = 0
    name: str = ""
    pointer: str = ""


REPETITION = "repetition"
"""Name under which expressions of repeated steps can read the number of the repetition, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatStep:
    """Steps that are repeated.

    Attributes:
        steps: The steps of all repetitions, in order.
        repetitions: Number of repetitions.
        number: 1-based number of the step.
        name: Name of the step, for reports.
        pointer: JSON Pointer into the document.
    """

    steps: tuple[CallStep | ParallelStep | AdvanceStep, ...]
    repetitions: int
    number: int = 0
    name: str = ""
    pointer: str = ""

    @property
    def once(self) -> tuple[CallStep | ParallelStep | AdvanceStep, ...]:
        """The steps of one repetition."""
        return self.steps[: len(self.steps) // self.repetitions]


AnyStep: TypeAlias = CallStep | ParallelStep | AdvanceStep | RepeatStep
"""Any entry of `steps`."""


def calls_of(steps: Iterable[AnyStep], *, once: bool = False) -> Iterator[CallStep]:
    """The calls of steps, in the order in which they start; with `once`, those of a repeated step once."""
    for step in steps:
        if isinstance(step, RepeatStep):
            yield from calls_of(step.once if once else step.steps)
        elif isinstance(step, ParallelStep):
            yield from step.calls
        elif isinstance(step, CallStep):
            yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRule:
    """A rule on the calls that were made.

    Attributes:
        tool: Name or glob of tools.
        args: Matcher for the arguments; None for any.
        times: Matcher for the number of calls.
        outcomes: Accepted outcomes; empty for any.
        pointer: JSON Pointer into the document.
    """

    tool: str
    args: Matcher | None
    times: Matcher
    outcomes: tuple[Outcome, ...]
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Conditions that must hold after all steps.

    Attributes:
        calls: Rules on calls; a forbidden call has `times` 0.
        order: `exact`, `subsequence` or `any`, and the tools' names; None for no rule.
        kept: Matchers for `store` (collection -> key -> row), `changed` (the same, for the rows that differ from the
            initial ones; None for a deleted row) and `state` (machine -> state), if given.
        budget: Matchers for the totals of all calls: `calls`, `attempts` and `elapsed`, if given.
        unused_rules: Severity if a rule in the scenario's own mocks is never used.
        final_text: Matcher for the last text of the agent; None for any.
        stops: Accepted reasons for the end of the agent's last turn; empty for any.
    """

    calls: tuple[CallRule, ...] = ()
    order: tuple[Literal["exact", "subsequence", "any"], tuple[str, ...]] | None = None
    kept: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    budget: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    unused_rules: Literal["error", "warn", "ignore"] = "warn"
    final_text: Matcher | None = None
    stops: tuple[str, ...] = ()


NO_RULES = Verification()
"""No conditions."""


WRAPPER: Final = "assertion"
"""The type that checks the score of another assertion."""


SPEAKING: Final = frozenset(
    {
        "content_excludes",
        "content_includes",
        "content_includes_any",
        "content_matches",
        "field_presence",
        "guardrail_triggered",
        "is_valid_json",
        "json_path",
        "json_schema",
        "llm_judge",
        "llm_judge_session",
        "max_length",
        "min_length",
        "sentence_count",
    }
)
"""Types that check texts of the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """An assertion on the behaviour of an agent.

    Attributes:
        type: Canonical name of its type; aliases are resolved.
        params: Parameters by their canonical names.
        message: Description for reports.
        when: Condition under which it applies.
        pass_threshold: Share of trials that must pass, 0 to 1; None for that of the scenario.
        scope: What it examines: its `turn`, or the whole `conversation` so far.
        unsupported: Why it cannot be evaluated; empty if it can.
        pointer: JSON Pointer into the document.
    """

    type: str
    params: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    message: str = ""
    when: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    pass_threshold: float | None = None
    scope: Literal["turn", "conversation"] = "turn"
    unsupported: str = ""
    pointer: str = ""


class GuardrailCheck(NamedTuple):
    """A guardrail, compiled.

    Attributes:
        type: Name of its type, as written.
        names: All names of its type, and of the type that it wraps.
        message: The message if it fails.
        unsupported: Why it cannot be evaluated; empty if it can.
        assertion: The assertion on texts; None if it is invalid or unsupported.
        fault: Why it is invalid; empty if it is valid.
        rewrite: Whether a reply that violates it is rewritten.
    """

    type: str
    names: frozenset[str] = frozenset()
    message: str = ""
    unsupported: str = ""
    assertion: Assertion | None = None
    fault: str = ""
    rewrite: bool = False

    @property
    def rewrites(self) -> bool:
        """Whether it can rewrite replies."""
        return self.rewrite and self.assertion is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A call of a scripted model.

    Attributes:
        tool: Name of the tool.
        args: The arguments; a text is sent as written, to simulate malformed arguments.
        id: Its ID; generated if empty.
        expect_result: Matcher for the result that the model receives; None for any.
        pointer: JSON Pointer into the document.
    """

    tool: str
    args: Rendering
    id: str = ""
    expect_result: Matcher | None = None
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReply:
    """One answer of a scripted model.

    Attributes:
        when: Part of the model's input -> matcher; all must match.
        reasoning: Reasoning text, if any.
        say: Text of the reply, if any.
        calls: Calls of the reply, in order.
        finish: Reason for an incomplete reply, `length` or `refused`; empty for a complete one.
        times: Number of times that it can be used; 0 for any number.
        optional: Whether it may stay unused.
        pointer: JSON Pointer into the document.
    """

    when: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    reasoning: Rendering | None = None
    say: Rendering | None = None
    calls: tuple[ScriptedCall, ...] = ()
    finish: str = ""
    times: int = 1
    optional: bool = False
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurn:
    """A turn of the conversation.

    Attributes:
        user: The user's message; None if a suspended turn continues.
        answers: Tool name or call ID -> answer to its pending call.
        script: Replies of a scripted model in this turn.
        client: Tool name -> the client's answer in this turn; takes precedence over `client` of the agent.
        assertions: Assertions on this turn.
        pointer: JSON Pointer into the document.
    """

    user: Rendering | None = None
    answers: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    script: tuple[AgentReply, ...] = ()
    client: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    assertions: tuple[Assertion, ...] = ()
    pointer: str = ""


GRANT = "grant"
"""The client's answer that stands for the answer of the tool's mock."""


NO_PROVIDER: Final = "none"
"""Provider of an agent that only runs with a provider from the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioAgent:
    """The agent of a scenario.

    Attributes:
        provider: `scripted`, `direct`, `none` (`NO_PROVIDER`), or the name of a provider of models.
        model: Name of the model; empty for the provider's default.
        base_url: URL of the service; empty for the provider's default.
        api_key: The provider's key, in which `${VAR}` is looked up; None for the provider's default variable.
        chosen: Whether it was chosen on the command line, so that no document names its service or key.
        permitted: Whether the URL comes from the operator, who may reach any address, not from a document.
        settings: Settings of the provider, such as `temperature`.
        prices: US dollars per million tokens: `input, output, cached, cache_writes`.
        prompt: Name of a prompt of the pack; empty for none.
        variables: Values of the prompt's variables, by name.
        system: The system message; None for that of the prompt, or none.
        policy: The tool policy.
        policy_keys: Keys of the policy that the document sets; the others come from the prompt, if any.
        client: Tool name -> the client's answer: `grant`, `deny`, `timeout`, `defer`, `{result: ...}`, `{error: ...}`.
        judge: The model that judges: `{provider, model, base_url, api_key, settings}`; empty for none.
        script: Replies that any turn can use.
        turns: The turns, in order.
        guardrails: Conditions on each reply, as written, in addition to the guardrails of the prompt.
        assertions: Assertions on the whole conversation.
        unused_turns: Severity if a reply is never used: `error`, `warn`, `ignore`.
        unknown_tools: Severity if an unknown tool is named: `error`, `warn`.
        pointer: JSON Pointer into the document.
    """

    provider: str = "scripted"
    model: str = ""
    base_url: str = ""
    api_key: str | None = None
    chosen: bool = False
    permitted: bool = False
    settings: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    prices: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    prompt: str = ""
    variables: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    system: Rendering | None = None
    policy: ToolPolicy = NO_POLICY
    policy_keys: frozenset[str] = frozenset()
    client: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    judge: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    script: tuple[AgentReply, ...] = ()
    turns: tuple[AgentTurn, ...]
    guardrails: tuple[Mapping[str, Any], ...] = ()
    assertions: tuple[Assertion, ...] = ()
    unused_turns: str = "error"
    unknown_tools: str = "error"
    pointer: str = "/agent"

    @property
    def replies(self) -> Iterator[AgentReply]:
        """The replies of all scripts, as written."""
        for turn in self.turns:
            yield from turn.script
        yield from self.script

    @property
    def all_assertions(self) -> Iterator[Assertion]:
        """The assertions of the turns, then those of the whole conversation."""
        for turn in self.turns:
            yield from turn.assertions
        yield from self.assertions

    @property
    def scripted_calls(self) -> Iterator[ScriptedCall]:
        """The calls of all scripts, as written."""
        for reply in self.replies:
            yield from reply.calls

    @property
    def _holders(self) -> tuple[ScenarioAgent | AgentTurn, ...]:
        return (self, *self.turns)

    @property
    def fulfilled(self) -> Iterator[tuple[str, str]]:
        """The tools that the client answers, with their pointers."""
        for holder in self._holders:
            for tool in holder.client:
                yield tool, f"{holder.pointer}/client/{pointer_step(tool)}"

    def grants(self, tool: str) -> bool:
        """Whether the client answers a tool with the answer of its mock."""
        answers = (holder.client.get(tool) for holder in self._holders)
        return any(answer is not None and answer.constant and answer.run({}) == GRANT for answer in answers)

    def named(self, full: Callable[[str], str]) -> ScenarioAgent:
        """The agent with renamed tools, wherever names are compared with those of real tools."""
        return replace(
            self,
            policy=renamed(self.policy, full),
            client={full(tool): answer for tool, answer in self.client.items()},
            script=_named(self.script, full),
            turns=tuple(
                replace(
                    turn,
                    answers={full(tool): answer for tool, answer in turn.answers.items()},
                    client={full(tool): answer for tool, answer in turn.client.items()},
                    script=_named(turn.script, full),
                )
                for turn in self.turns
            ),
        )


def _named(script: Iterable[AgentReply], full: Callable[[str], str]) -> tuple[AgentReply, ...]:
    return tuple(
        replace(reply, calls=tuple(replace(call, tool=full(call.tool)) for call in reply.calls))
        for reply in script
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scripted run.

    Attributes:
        name: Name of the scenario; for a run, with the values that identify the run.
        description: Its purpose.
        tags: Tags for selecting it.
        seed: Seed of all generated values.
        start: Time at the first step.
        real: Whether it runs in real time instead of virtual time.
        modes: Tool glob -> mode; the first match applies.
        mocks: Tool name -> mock block that replaces the tool's own binding.
        fixture: The collections and machines that it declares.
        store: Its collections as written.
        faults: The faults that it injects.
        matrix: Key -> values; every combination is a separate run.
        repeat: Number of runs of each combination, with increasing seeds.
        steps: The steps, in order.
        verify: Conditions that must hold at the end.
        agent: The agent that runs after the steps; None for none.
        trials: Number of trials of one run.
        pass_threshold: Share of trials that must pass, 0 to 1.
        origin: Its source.
        values: The matrix of one run: key -> value.
        run: 1-based number of a run within its combination.
        order: 1-based number of the order in which the calls of parallel steps start (1 is the written order); 0 if
            there is only one order.
        base: The name as written, if this is one of several runs.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    seed: int = 0
    start: datetime = START
    real: bool = False
    modes: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    mocks: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    fixture: Fixture = NO_FIXTURE
    store: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    faults: tuple[InjectedFault, ...] = ()
    matrix: Mapping[str, tuple[JSON, ...]] = field(default_factory=lambda: NOTHING)
    repeat: int = 1
    steps: tuple[AnyStep, ...]
    verify: Verification = NO_RULES
    agent: ScenarioAgent | None = None
    trials: int = 1
    pass_threshold: float = 1.0
    origin: Origin = field(default_factory=Origin)
    values: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    run: int = 1
    order: int = 0
    base: str = ""

    @property
    def calls(self) -> Iterator[CallStep]:
        """The calls of all steps, in the order in which they start."""
        return calls_of(self.steps)

    @property
    def written_calls(self) -> Iterator[CallStep]:
        """The calls of all steps as written: those of a repeated step once."""
        return calls_of(self.steps, once=True)


T = TypeVar("T", Collection, Machine)


class VisibleState(NamedTuple):
    """The `store` and `state` of a scenario.

    Attributes:
        fixture: Its own fixture, merged with those of the tools that it or its agent's script calls or mocks.
        unclear: Names with different meanings in the packs of these tools, which are not in `fixture`.
    """

    fixture: Fixture
    unclear: frozenset[str] = frozenset()


def visible_state(scenario: Scenario, tools: Mapping[str, Descriptor]) -> VisibleState:
    """The state that a scenario can see.

    Args:
        scenario: The scenario.
        tools: The tools as the scenario sees them.
    """
    # The scenario's own fixture comes last and has the same IDs where it replaced others, so it is never ambiguous.
    fixtures = [*fixtures_of(scenario, tools), scenario.fixture]
    collections, unclear = _merged(fixture.collections for fixture in fixtures)
    machines, others = _merged(fixture.machines for fixture in fixtures)
    return VisibleState(Fixture(collections, machines), unclear | others)


def fixtures_of(scenario: Scenario, tools: Mapping[str, Descriptor]) -> list[Fixture]:
    """The fixtures of the tools that a scenario uses."""
    return [tools[name].fixture for name in tool_names(scenario, tools) if name in tools]


def tool_names(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterable[str]:
    """The tools that a scenario uses; all tools that its policy allows if the agent has no script."""
    # A real model may call any tool, so nothing can be excluded in advance.
    named, agent = _named_tools(scenario), scenario.agent
    if named or agent is None:
        return named
    return (name for name in tools if allows(agent.policy, name))


def _named_tools(scenario: Scenario) -> dict[str, None]:
    scripted = () if scenario.agent is None else (call.tool for call in scenario.agent.scripted_calls)
    return dict.fromkeys([*(step.call for step in scenario.written_calls), *scenario.mocks, *scripted])


def _merged(named: Iterable[Mapping[str, T]]) -> tuple[dict[str, T], frozenset[str]]:
    found: dict[str, T] = {}
    unclear = set()
    for each in named:
        for name, kept in each.items():
            # The ID contains the pack, so equal names of two packs differ, and one pack seen through two
            # tools does not.
            if found.setdefault(name, kept).id != kept.id:
                unclear.add(name)
    return {name: kept for name, kept in found.items() if name not in unclear}, frozenset(unclear)
