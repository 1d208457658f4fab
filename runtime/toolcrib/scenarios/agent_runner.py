"""The agent of a scenario: its turns, one after the other, the calls that wait in them, and the assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import ConfigurationError, ExpressionError, ToolcribError
from toolcrib.core.model import JSON, Content, Outcome, Result
from toolcrib.core.text import compact
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.executors.client import DEFERRED
from toolcrib.provider import (
    CallRecord,
    Conversation,
    Message,
    ProviderError,
    Reasoning,
    Stop,
    Text,
    ToolCall,
    ToolResult,
)
from toolcrib.provider.loop.approvals import REFUSED_ANSWER
from toolcrib.provider.models.scripted import ModelView
from toolcrib.registry.names import short_name
from toolcrib.scenarios.assertions import Trajectory, evaluate_assertion
from toolcrib.scenarios.reports import (
    AgentCall,
    AgentReport,
    AssertionReport,
    ScenarioFailure,
    TranscriptEntry,
    TurnReport,
    constant,
)
from toolcrib.scenarios.run_log import RunLog, StepEvent
from toolcrib.scenarios.user_simulator import DIRECT, SCRIPTED, ConversationSetup, open_conversation
from toolcrib.scenarios.verification import FinalReply
from toolcrib.security.trust import Untrusted

if TYPE_CHECKING:
    from toolcrib.loading.scenarios.model import Agent, AgentTurn, Assertion, Scenario
    from toolcrib.scenarios.run_setup import AgentSetup


_APPROVED, _FULFILLED = "{approve: true}", "{result: ...}"


class PendingCalls:
    """The calls of a conversation that wait.

    Attributes:
        calls: The name of the tool of each, and the YAML of an answer to it.

    Args:
        conversation: As far as it came.
        named: What the document calls a tool.
    """

    def __init__(self, conversation: Conversation, named: Callable[[str], str]) -> None:
        self.calls = {
            each.id: (named(each.tool), _FULFILLED if each.code == DEFERRED else _APPROVED)
            for each in conversation.pending
        }

    def unanswered_lines(self) -> tuple[str, ...]:
        """The lines that tell of the last turn that it waits."""
        return (
            f"the last turn waits for {self._tools()}",
            f"add `- {self._answers()}` below, or `verify: {{stop: pending}}`",
            *self._fulfilling(),
        )

    def blocked_user_lines(self) -> tuple[str, ...]:
        """The lines that tell of a turn that the user can't speak in it."""
        return (
            f"{self._tools()} waits for an answer, so the user can't speak yet",
            f"add `- {self._answers()}` before this turn",
            *self._fulfilling(),
        )

    def wrong_answer_lines(self, error: ConfigurationError, written: Iterable[str]) -> tuple[str, ...]:
        """The lines that tell of a turn that it answers what does not wait, or not all that does.

        Args:
            error: What the loop says of it.
            written: By which names the turn answers.
        """
        way = f"write `{self._answers(written)}`" if self.calls else "no call waits here: leave this turn out"
        return (*error.message.splitlines(), way)

    def _tools(self) -> str:
        return ", ".join(dict.fromkeys(f"`{tool}`" for tool, _answer in self.calls.values()))

    def _answers(self, written: Iterable[str] = ()) -> str:
        """The answers to all calls: by the ids that somebody uses, else by tool."""
        by_id = not self.calls.keys().isdisjoint(written)
        told = {id_ if by_id else tool: answer for id_, (tool, answer) in self.calls.items()}
        return f"answers: {{{', '.join(f'{name}: {answer}' for name, answer in told.items())}}}"

    def _fulfilling(self) -> Iterator[str]:
        tools = dict.fromkeys(tool for tool, answer in self.calls.values() if answer == _FULFILLED)
        if tools:
            told = ", ".join(f"{tool}: grant" for tool in tools)
            yield f"or have the caller fulfil it: `client: {{{told}}}` in the agent or the turn"


_ENDED_WELL = frozenset({Stop.ANSWERED, Stop.PENDING, Stop.STOP_ON_TOOL})


class AgentRun(NamedTuple):
    """A run that has an agent.

    Attributes:
        runtime: Has the prompts, and binds what callers are granted.
        session: Where the calls are made.
        scenario: The run.
        setup: What its agent needs.
        log: Is told of the calls.
        names: What expressions of the run read: a new mapping each time.
    """

    runtime: Runtime
    session: Session
    scenario: Scenario
    setup: AgentSetup
    log: RunLog
    names: Callable[[], dict[str, JSON]]

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self.setup.agent


class AgentRunner:
    """The conversation of a run.

    Attributes:
        conversation: As far as it came.
        failures: Failures of the conversation as a whole.
        warnings: What does not fail the run.
        broken: Whether it could not be held to its end as written.
    """

    def __init__(self, run: AgentRun) -> None:
        self.conversation = Conversation()
        self.failures: list[ScenarioFailure] = []
        self.warnings: list[ScenarioFailure] = []
        self.broken = False
        self._run = run
        self._read = self.conversation
        self._turns: list[TurnReport] = []
        self._judged: tuple[AssertionReport, ...] = ()
        self._guardrails: tuple[AssertionReport, ...] = ()
        self._args: dict[str, JSON] = {}

    @property
    def all_failures(self) -> list[ScenarioFailure]:
        """Failures of the conversation as a whole, assertions included."""
        return [*self.failures, *(judged.failure for judged in self._judged if judged.failed)]

    @property
    def failed(self) -> bool:
        """Whether a turn failed."""
        return any(turn.all_failures for turn in self._turns)

    def last(self) -> FinalReply:
        """How it ended."""
        conversation = self.conversation
        return FinalReply(
            text=conversation.text if self._run.agent.provider != DIRECT else None,
            shown=self._run.log.mask_text(conversation.text),
            stop="" if conversation.stop is None else conversation.stop.value,
        )

    def report(self) -> AgentReport:
        """The report of the conversation so far."""
        conversation = self.conversation
        return AgentReport(
            provider=self._run.agent.provider,
            model=conversation.model,
            turns=tuple(self._turns),
            judged=self._judged,
            guardrails=self._guardrails,
            rounds=conversation.rounds,
            tokens=conversation.tokens,
            cost=conversation.cost,
        )

    async def hold(self) -> None:
        """Hold the conversation up to the first turn that can't be held as written, and judge it."""
        run = self._run
        try:
            setup = open_conversation(run.runtime, run.session, run.scenario, run.setup, self._names)
        except (ConfigurationError, ExpressionError, Untrusted) as error:
            pointer = f"{run.agent.pointer}{_PLACES.get(error.code, '')}"
            self.failures.append(
                ScenarioFailure("agent", tuple(_lines_of(error)), getattr(error, "pointer", "") or pointer)
            )
            self.broken = True
            return
        self._guardrails = tuple(
            AssertionReport(
                type=each.type,
                pointer=f"{run.agent.pointer}/guardrails",
                message=each.message,
                threshold=0.0,
                applies=False,
                passed=False,
                score=0.0,
                found=each.unsupported,
            )
            for each in setup.guardrails
            if each.unsupported
        )
        try:
            for number, turn in enumerate(run.agent.turns, start=1):
                await self._run_turn(number, turn, setup)
                if self.broken:
                    return
            self._judged = await self._judge(run.agent.assertions, setup, None)
        finally:
            await setup.aclose()
        self._report_unused(setup)

    async def _run_turn(self, number: int, turn: AgentTurn, setup: ConversationSetup) -> None:
        """Hold a turn, log its calls, and judge it."""
        before = len(self.conversation.messages)
        setup.client.turn = turn
        failures = [*await self._send(turn, setup)]
        self._log_calls(number, turn)
        failures += self._check_stop(number, turn, setup) if not failures else []
        self.broken = bool(failures)
        judged: tuple[AssertionReport, ...] = ()
        if not self.broken:
            judged = await self._judge(turn.assertions, setup, self.conversation.turns)
        hide = self._run.log.mask_text
        conversation = self.conversation
        began = len(conversation.messages) > before
        self._turns.append(
            TurnReport(
                number=number,
                pointer=turn.pointer,
                entries=tuple(_transcript(conversation.messages[before:], self._args, hide)),
                stop=conversation.stop.value if conversation.stop is not None and began else "",
                detail=hide(conversation.detail) if began else "",
                failures=self._run.log.mask_failures(failures),
                judged=judged,
            )
        )

    async def _send(self, turn: AgentTurn, setup: ConversationSetup) -> list[ScenarioFailure]:
        """Send the message of the user, or the answers to pending calls, and let the agent respond."""
        waiting = self._pending()
        if turn.user is not None and waiting.calls:
            return [ScenarioFailure("answers", waiting.blocked_user_lines(), turn.pointer)]
        try:
            self._read, answers = self._next_conversation(turn)
            self.conversation = await setup.middleware.run(self._read, answers)
        except ExpressionError as error:
            pointer = error.pointer or turn.pointer
            return [ScenarioFailure("user", tuple(_lines_of(error)), pointer)]
        except ConfigurationError as error:
            wrong = error.code == "invalid_answers"
            lines = waiting.wrong_answer_lines(error, turn.answers) if wrong else tuple(_lines_of(error))
            return [ScenarioFailure("answers", lines, turn.pointer)]
        self._read = self.conversation
        return []

    def _pending(self) -> PendingCalls:
        """The calls that wait now, as the document calls them."""
        return PendingCalls(self.conversation, self._short)

    def _short(self, tool: str) -> str:
        return short_name(self._run.scenario.origin.namespace, tool)

    def _next_conversation(self, turn: AgentTurn) -> tuple[Conversation, dict[str, Any]]:
        """The conversation, ready to go on, and the answers to the calls that wait in it."""
        conversation, names = self.conversation, self._names()
        if turn.user is not None:
            said: Any = turn.user.render(names)
            parts = said if isinstance(said, list) else [said]
            return conversation.saying(*map(_part, parts)), {}
        answers: dict[str, Any] = {}
        for named, answer in turn.answers.items():
            fitting = [each.id for each in conversation.pending if named in {each.id, each.tool}]
            answers |= dict.fromkeys(fitting or [named], answer.render(names))
        return conversation, answers

    def _names(self) -> dict[str, JSON]:
        """What expressions read at this point of the conversation."""
        sight = ModelView.of(self._read.messages, self._short)
        return sight.put_into(self._run.names())

    def _log_calls(self, number: int, turn: AgentTurn) -> None:
        """Log the calls that ended in this turn."""
        ended = [each for each in self.conversation.calls if each.outcome is not None]
        new = [record for record in ended if record.id not in self._args]
        log = self._run.log
        for place, record in enumerate(new, start=1):
            step = _agent_call(record, number, place, turn.pointer)
            log.add((StepEvent(step, record.arguments, _result_of(record)),))
        reports = log.reports()[-len(new) :] if new else ()
        self._args |= {record.id: report.args for record, report in zip(new, reports, strict=True)}

    def _check_stop(self, number: int, turn: AgentTurn, setup: ConversationSetup) -> list[ScenarioFailure]:
        """Failures of how a turn ended, and of the results that the script received."""
        wrong = self._check_script(turn, setup)
        if wrong:
            return wrong
        stop, detail = self.conversation.stop, self.conversation.detail
        last = number == len(self._run.agent.turns)
        expected = self._run.scenario.verify.stops if last else ()
        if stop is Stop.PROVIDER_FAILED and stop not in expected:
            return [ScenarioFailure("provider", tuple((detail or stop.value).splitlines()), turn.pointer)]
        line = f"turn {number} was ended by `{stop}`" + (f": {detail}" if detail else "")
        if self._is_cut_off() and stop not in expected:
            return [ScenarioFailure("stop", (line,), turn.pointer)]
        if stop is Stop.ANSWERED and detail and setup.has_text:
            self.warnings.append(ScenarioFailure("stop", (f"turn {number}: {detail}",), turn.pointer))
        elif stop not in _ENDED_WELL and stop not in expected:
            self.warnings.append(ScenarioFailure("stop", (line,), turn.pointer))
        if not last:
            return []
        waiting = stop is Stop.PENDING and stop not in expected
        return [
            *(
                [ScenarioFailure("pending", self._pending().unanswered_lines(), turn.pointer)]
                if waiting
                else ()
            ),
            *_unjudged_calls(setup),
        ]

    def _is_cut_off(self) -> bool:
        """Whether the last answer is not whole, or the provider refused it with the calls that it asks for."""
        conversation = self.conversation
        of_turn = [record for record in conversation.calls if record.turn == conversation.turns]
        refused = any(record.code == REFUSED_ANSWER for record in of_turn)
        return conversation.stop is Stop.LENGTH or refused

    def _check_script(self, turn: AgentTurn, setup: ConversationSetup) -> list[ScenarioFailure]:
        """Results that differ from what the script expects, and why it had no answer."""
        script = setup.script
        if script is None:
            return []
        script.settle(self.conversation.messages)
        if not script.unexpected:
            return [] if script.failed is None else [_failed(script.failed, turn)]
        return [
            ScenarioFailure("expect_result", each.lines, f"{each.call.pointer}/expect_result")
            for each in script.unexpected
        ]

    async def _judge(
        self, assertions: Sequence[Assertion], setup: ConversationSetup, turn: int | None
    ) -> tuple[AssertionReport, ...]:
        """Judge some assertions, of a turn or of all of it."""
        if not assertions:
            return ()
        run = self._run
        calls = tuple(each._replace(tool=self._short(each.tool)) for each in self.conversation.calls)
        states: Any = run.names()["state"]
        trajectory = Trajectory.of(
            self.conversation._replace(calls=calls),
            turn,
            setup.guardrails,
            has_text=setup.has_text,
            states=states,
            hide=run.log.mask_text,
        )
        return tuple([await self._judge_one(each, trajectory, setup) for each in assertions])

    async def _judge_one(
        self, assertion: Assertion, trajectory: Trajectory, setup: ConversationSetup
    ) -> AssertionReport:
        verdict = await evaluate_assertion(assertion, trajectory, setup.context)
        threshold = assertion.pass_threshold
        return AssertionReport(
            type=assertion.type,
            pointer=assertion.pointer,
            message=assertion.message,
            threshold=self._run.scenario.pass_threshold if threshold is None else threshold,
            applies=verdict.applies,
            passed=verdict.passed,
            score=verdict.score,
            found=verdict.message,
            unmet=verdict.unmet,
        )

    def _report_unused(self, setup: ConversationSetup) -> None:
        """Report the scripted replies that were never used."""
        agent = self._run.agent
        if setup.script is None or agent.unused_turns == "ignore":
            return
        told = self.failures if agent.unused_turns == "error" else self.warnings
        for reply in setup.script.unused():
            if agent.provider == SCRIPTED or reply.calls:
                told.append(
                    ScenarioFailure(
                        "unused_turns", ("no request was answered with this reply",), reply.pointer
                    )
                )


_PLACES = {
    "invalid_base_url": "/base_url",
    "invalid_variables": "/variables",
    "missing_model": "/model",
    "unclear_name": "/prompt",
    "unknown_prompt": "/prompt",
    "unknown_provider": "/provider",
}
"""Code of an error -> what of the agent it is about."""


def _unjudged_calls(setup: ConversationSetup) -> list[ScenarioFailure]:
    """Expectations of a script for calls whose results it never received."""
    left = () if setup.script is None else setup.script.unjudged()
    return [
        ScenarioFailure(
            "expect_result",
            (f"never judged: nothing was told of the call of `{call.tool}`",),
            f"{call.pointer}/expect_result",
        )
        for call in left
    ]


def _part(said: Any) -> str | Content:
    return said if isinstance(said, str) else Content(**said)


def _lines_of(error: ToolcribError) -> Iterator[str]:
    yield from error.message.splitlines()
    if error.hint:
        yield from error.hint.splitlines()


def _failed(error: ProviderError, turn: AgentTurn) -> ScenarioFailure:
    """What a script could not answer."""
    lines = [error.message, *error.details.get("lines", ()), *error.hint.splitlines()]
    return ScenarioFailure(error.code, tuple(lines), error.details.get("pointer") or turn.pointer)


def _agent_call(record: CallRecord, turn: int, place: int, pointer: str) -> AgentCall:
    """The call of a record as a step."""
    arguments: JSON = record.arguments
    return AgentCall(
        call=record.tool,
        args=constant(arguments),
        turn=turn,
        place=place,
        id=record.id,
        reached=record.reached,
        pointer=pointer,
        written=arguments,
    )


def _result_of(record: CallRecord) -> Result:
    """The result that a record tells of."""
    outcome = record.outcome or Outcome.INTERNAL
    if outcome is Outcome.OK:
        result = Result.ok(record.value, content=record.content)
    else:
        result = Result.failed(outcome, record.message, code=record.code or None, content=record.content)
    return result.with_usage(record.attempts, record.duration)


def _transcript(
    messages: Sequence[Message], args: Mapping[str, JSON], hide: Callable[[str], str]
) -> Iterator[TranscriptEntry]:
    """What happened in some messages.

    Args:
        messages: Of one turn; what instructs the model is left out.
        args: Id of a call -> its arguments with secrets masked.
        hide: Masks secrets in a text.
    """
    for message in messages:
        for part in message.parts if message.role != "system" else ():
            match part:
                case Text(text):
                    yield TranscriptEntry("user" if message.role == "user" else "says", hide(text))
                case Reasoning(text) if text:
                    yield TranscriptEntry("thinks", hide(text))
                case ToolCall():
                    known = part.id in args and part.arguments is not None
                    shown = args[part.id] if known else hide(part.written or compact(part.arguments))
                    yield TranscriptEntry("call", tool=part.name, args=shown)
                case ToolResult():
                    yield TranscriptEntry(
                        "told", hide(part.text), part.name, None, part.outcome.value, part.code
                    )
