"""A scenario, compiled: its steps and expectations, its agent, and what must be true at the end.

What runs scenarios knows these types, and nothing else of loading.
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
    """What a step's call must answer.

    Attributes:
        outcomes: How it may end; none for any but `ok` (an error is expected, whichever).
        parts: Matchers for `result`, `error`, `content`, `attempts`, `elapsed`, as far as given. `result` is about a
            call that ended `ok`, `error` about any other.
        golden: The JSON file that the whole result is compared with; None for none.
    """

    outcomes: tuple[Outcome, ...] = (Outcome.OK,)
    parts: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    golden: Golden | None = None


ANSWERED = Expectation()
"""Outcome `ok`, whatever the answer."""


def join_outcomes(outcomes: tuple[Outcome, ...], form: str = "{}") -> str:
    """`ok or tool_error`, each written in a form."""
    return " or ".join(form.format(outcome) for outcome in outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """One call of a scenario.

    Attributes:
        call: Name of the tool.
        args: The arguments; may read the results of earlier steps.
        number: Of the scenario's steps, from 1.
        branch: Its number among the calls of a parallel step, from 1; 0 for a step of its own.
        within: What the parallel step shows that it belongs to.
        name: What the step shows.
        save_as: Name under which later steps find what came of it; empty for none.
        expect: What it must answer.
        pointer: JSON Pointer into the document.
        written: The arguments as the document has them.
    """

    call: str
    args: Rendering
    number: int = 0
    branch: int = 0
    within: str = ""
    name: str = ""
    save_as: str = ""
    expect: Expectation = ANSWERED
    pointer: str = ""
    written: JSON = None

    @property
    def label(self) -> str:
        """`2`, or `2.1` for the first call of a parallel step."""
        return f"{self.number}.{self.branch}" if self.branch else str(self.number)

    @property
    def title(self) -> str:
        """`step 2`, for reports."""
        return f"step {self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep:
    """Calls that begin at the same moment.

    Attributes:
        calls: The calls, in the order in which they begin.
        number: Of the scenario's steps, from 1.
        name: What the step shows.
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
        seconds: How much, on virtual time.
        number: Of the scenario's steps, from 1.
        name: What the step shows.
        pointer: JSON Pointer into the document.
    """

    seconds: float
    number: int = 0
    name: str = ""
    pointer: str = ""


AnyStep: TypeAlias = CallStep | ParallelStep | AdvanceStep
"""Whatever may stand under `steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRule:
    """Calls that must or must not have been made.

    Attributes:
        tool: Name or glob.
        args: What their arguments are; None for anything.
        times: How many there are.
        outcomes: How they ended; none for however.
        pointer: JSON Pointer into the document.
    """

    tool: str
    args: Matcher | None
    times: Matcher
    outcomes: tuple[Outcome, ...]
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What must be true when all steps are done.

    Attributes:
        calls: Calls with how many there must be; a forbidden call is one with 0.
        order: `exact`, `subsequence` or `any`, and the tools' names; None for no rule.
        kept: Matchers for `store` (collection -> key -> row) and `state` (machine -> state), as far as given.
        budget: Matchers for what all calls took: `calls`, `attempts`, `elapsed`, as far as given.
        unused_rules: What it means that no call used a rule of the scenario's own mocks.
        final_text: Matcher for what the agent said last; None for anything.
        stops: Why the agent's last turn ended: any of these; none for whatever reason.
    """

    calls: tuple[CallRule, ...] = ()
    order: tuple[Literal["exact", "subsequence", "any"], tuple[str, ...]] | None = None
    kept: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    budget: Mapping[str, Matcher] = field(default_factory=lambda: NOTHING)
    unused_rules: Literal["error", "warn", "ignore"] = "warn"
    final_text: Matcher | None = None
    stops: tuple[str, ...] = ()


NO_RULES = Verification()
"""Anything may have happened."""


WRAPPER: Final = "assertion"
"""The kind that judges the score of another one."""


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
"""Kinds that judge what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """Something that must be true of the way that an agent took.

    Attributes:
        type: Which kind, by its own name; aliases are settled.
        params: What it asks for, each parameter by its own name.
        message: What it shows, for reports.
        when: What must have happened for it to apply.
        pass_threshold: The share of trials in which it must hold, 0 to 1; None for that of the scenario.
        scope: What one of a turn sees: `turn`, or `conversation`, which is all as far as it came.
        unsupported: Why it can't be judged at all; empty if it can.
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
        type: Name of its kind, as written.
        names: All names of its kind, and of the kind that it wraps.
        message: What is reported where it does not hold.
        unsupported: Why it can't be judged at all; empty if it can.
        assertion: What judges a text; None where that can't be.
        fault: What is wrong with it; empty if nothing is.
    """

    type: str
    names: frozenset[str] = frozenset()
    message: str = ""
    unsupported: str = ""
    assertion: Assertion | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A call that a scripted model asks for.

    Attributes:
        tool: Name of the tool.
        args: The arguments; a text is what the model writes in their place.
        id: Its id; one is made unless given.
        expect_result: Matcher for what the model must be told of it; None for anything.
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
        when: Part of what the model sees -> matcher for it; all must fit.
        reasoning: What it thinks; None for nothing.
        say: What it says; None for nothing.
        calls: What it asks for, in order.
        finish: How it breaks off, `length` or `refused`; empty for an answer that is complete.
        times: How often it may be used; 0 for any number of times.
        optional: Whether nobody minds that it was never used.
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
    """What happens between two moments at which the agent is waited for.

    Attributes:
        user: What the user says; None where a suspended turn goes on.
        answers: Tool name or call id -> what is said of its pending call.
        script: What a scripted model answers in this turn.
        client: Tool name -> how the caller fulfils it in this turn, before the agent's own.
        assertions: What must be true of this turn.
        pointer: JSON Pointer into the document.
    """

    user: Rendering | None = None
    answers: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    script: tuple[AgentReply, ...] = ()
    client: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    assertions: tuple[Assertion, ...] = ()
    pointer: str = ""


GRANT = "grant"
"""How the caller fulfils a tool that answers as its mock does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent of a scenario.

    Attributes:
        provider: `scripted`, `direct`, or the name of a provider of models.
        model: Which model; empty for the provider's choice.
        base_url: Where it is; empty for the provider's own address.
        api_key: The provider's key, in which `${VAR}` is looked up; None for the one that goes without saying.
        chosen: Whether somebody at the command line chose it, and no document named its service or its key.
        permitted: Whether the address is the operator's, who may reach it, and not that of a document.
        settings: The provider's own: `temperature` ...
        prices: US dollars per million tokens: `input, output, cached, cache_writes`.
        prompt: Name of a prompt of the pack; empty for none.
        variables: What the prompt is filled in with, by name.
        system: What instructs it; None where nothing does.
        policy: What it may do with tools.
        policy_keys: What of it the document says; the rest is that of the prompt, where there is one.
        client: Tool name -> how the caller fulfils it: `grant`, `deny`, `timeout`, `defer`, `{result: ...}`, `{error: ...}`.
        judge: Who judges where a model must: `{provider, model, base_url, api_key, settings}`; empty for nobody.
        script: Replies that any turn may use.
        turns: What is said to it, in order.
        guardrails: What must be true of each answer, as written, besides the guardrails of the prompt.
        assertions: What must be true of the whole conversation.
        unused_turns: What it means that a reply was never used: `error`, `warn`, `ignore`.
        unknown_tools: What it means that a tool is named which is not there: `error`, `warn`.
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
    def _holders(self) -> tuple[Agent | AgentTurn, ...]:
        return (self, *self.turns)

    @property
    def fulfilled(self) -> Iterator[tuple[str, str]]:
        """The tools that the caller fulfils, and where it is said."""
        for holder in self._holders:
            for tool in holder.client:
                yield tool, f"{holder.pointer}/client/{pointer_step(tool)}"

    def grants(self, tool: str) -> bool:
        """Whether the caller answers for a tool what its mock does."""
        answers = (holder.client.get(tool) for holder in self._holders)
        return any(answer is not None and answer.constant and answer.run({}) == GRANT for answer in answers)

    def named(self, full: Callable[[str], str]) -> Agent:
        """The agent with other names of tools, wherever they are compared with those of real ones."""
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
        name: Name of the scenario; of one of its runs with what tells that from the others.
        description: What it shows.
        tags: Words to choose it by.
        seed: Seeds every generated value.
        start: Time of day at the first step.
        real: Whether it runs on the machine's time, and not on virtual time.
        modes: Tool glob -> mode, the first that fits counts.
        mocks: Tool name -> mock block that stands in for the tool's own binding.
        fixture: The collections and machines that it declares.
        store: Its collections as they are written.
        faults: What goes wrong with the tools.
        matrix: Key -> values; every combination of them is a run of its own.
        repeat: How often each combination runs, each time with the next seed.
        steps: The calls, in order.
        verify: What must be true at the end.
        agent: Who goes on when the steps are done; None for nobody.
        trials: How often one run is tried.
        pass_threshold: The share of trials that must be good, 0 to 1.
        origin: Where it came from.
        values: The matrix of one run: key -> its value.
        run: The number of one run among those of its combination, from 1.
        order: The number of the order in which the calls of parallel steps begin, from 1, the written one; 0 where
            there is no other.
        base: The name as it is written, where this is one of several runs.
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
    agent: Agent | None = None
    trials: int = 1
    pass_threshold: float = 1.0
    origin: Origin = field(default_factory=Origin)
    values: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    run: int = 1
    order: int = 0
    base: str = ""

    @property
    def calls(self) -> Iterator[CallStep]:
        """The calls of all steps, in order of their beginning."""
        for step in self.steps:
            if isinstance(step, ParallelStep):
                yield from step.calls
            elif isinstance(step, CallStep):
                yield step


T = TypeVar("T", Collection, Machine)


class VisibleState(NamedTuple):
    """What a scenario calls `store` and `state`.

    Attributes:
        fixture: Its own, and that of the tools which it or its agent's script calls, or mocks.
        unclear: Names that mean different things in the packs of these tools; they are not in `fixture`.
    """

    fixture: Fixture
    unclear: frozenset[str] = frozenset()


def visible_state(scenario: Scenario, tools: Mapping[str, Descriptor]) -> VisibleState:
    """What a scenario can see.

    Args:
        scenario: The scenario.
        tools: The tools as it sees them.
    """
    fixtures = [*fixtures_of(scenario, tools), scenario.fixture]
    collections, unclear = _merged(fixture.collections for fixture in fixtures)
    machines, others = _merged(fixture.machines for fixture in fixtures)
    return VisibleState(Fixture(collections, machines), unclear | others)


def fixtures_of(scenario: Scenario, tools: Mapping[str, Descriptor]) -> list[Fixture]:
    """What the mocks of the tools keep that a scenario is about."""
    return [tools[name].fixture for name in tool_names(scenario, tools) if name in tools]


def tool_names(scenario: Scenario, tools: Mapping[str, Descriptor]) -> Iterable[str]:
    """The tools that a scenario is about; with an agent that no script ties down, all that it may call."""
    named, agent = _named_tools(scenario), scenario.agent
    if named or agent is None:
        return named
    return (name for name in tools if allows(agent.policy, name))


def _named_tools(scenario: Scenario) -> dict[str, None]:
    scripted = () if scenario.agent is None else (call.tool for call in scenario.agent.scripted_calls)
    return dict.fromkeys([*(step.call for step in scenario.calls), *scenario.mocks, *scripted])


def _merged(named: Iterable[Mapping[str, T]]) -> tuple[dict[str, T], frozenset[str]]:
    found: dict[str, T] = {}
    unclear = set()
    for each in named:
        for name, kept in each.items():
            if found.setdefault(name, kept).id != kept.id:
                unclear.add(name)
    return {name: kept for name, kept in found.items() if name not in unclear}, frozenset(unclear)
