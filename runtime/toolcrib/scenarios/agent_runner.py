"""Run the agent of a scenario: its turns in order, the pending calls in them, and its assertions."""

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
    from toolcrib.loading.scenarios.model import AgentTurn, Assertion, Scenario, ScenarioAgent
    from toolcrib.scenarios.run_setup import AgentSetup


_APPROVED, _FULFILLED = "{approve: true}", "{result: ...}"


class PendingCalls:
    """The pending calls of a conversation, described in the terms of the document.

    Attributes:
        calls: Id of a call -> short name of its tool, and the YAML of an answer to it.

    Args:
        conversation: The conversation so far.
        named: Returns the name of a tool in the document.
    """

    def __init__(self, conversation: Conversation, named: Callable[[str], str]) -> None:
        self.calls = {
            each.id: (named(each.tool), _FULFILLED if each.code == DEFERRED else _APPROVED)
            for each in conversation.pending
        }

    def unanswered_lines(self) -> tuple[str, ...]:
        """Report that the last turn is still waiting."""
        return (
            f"the last turn is waiting for {self._tools()}",
            f"add `- {self._answers()}` below, or `verify: {{stop: pending}}`",
            *self._fulfilling(),
        )

    def blocked_user_lines(self) -> tuple[str, ...]:
        """Report a turn of the user while calls are pending."""
        return (
            f"{self._tools()} is waiting for an answer, so the user cannot speak yet",
            f"add `- {self._answers()}` before this turn",
            *self._fulfilling(),
        )

    def wrong_answer_lines(self, error: ConfigurationError, written: Iterable[str]) -> tuple[str, ...]:
        """Report a turn whose answers do not fit the pending calls.

        Args:
            error: The error of the tool loop.
            written: The names or ids that the turn answers.
        """
        way = (
            f"write `{self._answers(written)}`" if self.calls else "no call is pending here; remove this turn"
        )
        return (*error.message.splitlines(), way)

    def _tools(self) -> str:
        return ", ".join(dict.fromkeys(f"`{tool}`" for tool, _answer in self.calls.values()))

    def _answers(self, written: Iterable[str] = ()) -> str:
        """The YAML of answers to all calls, by id if the turn uses ids, otherwise by tool."""
        by_id = not self.calls.keys().isdisjoint(written)
        told = {id_ if by_id else tool: answer for id_, (tool, answer) in self.calls.items()}
        return f"answers: {{{', '.join(f'{name}: {answer}' for name, answer in told.items())}}}"

    def _fulfilling(self) -> Iterator[str]:
        tools = dict.fromkeys(tool for tool, answer in self.calls.values() if answer == _FULFILLED)
        if tools:
            told = ", ".join(f"{tool}: grant" for tool in tools)
            yield f"or let the client fulfil it: add `client: {{{told}}}` to the agent or the turn"


# `stop_on_tool` is what the policy asks for, and `_check_stop` reports `pending` with the answers to add.
_ENDED_WELL = frozenset({Stop.ANSWERED, Stop.PENDING, Stop.STOP_ON_TOOL})


class AgentRun(NamedTuple):
    """A run of a scenario with an agent.

    Attributes:
        runtime: The runtime, which binds the mocks of granted tools.
        session: Makes the calls.
        scenario: The run.
        setup: The agent with its prompt and guardrails.
        log: Receives the calls.
        names: Returns a new mapping of what expressions of the run read.
    """

    runtime: Runtime
    session: Session
    scenario: Scenario
    setup: AgentSetup
    log: RunLog
    names: Callable[[], dict[str, JSON]]

    @property
    def agent(self) -> ScenarioAgent:
        """The agent."""
        return self.setup.agent


class AgentRunner:
    """Runs the conversation of a scenario.

    Attributes:
        conversation: The conversation so far.
        failures: Failures of the conversation as a whole.
        warnings: Findings that do not fail the run.
        broken: Whether the conversation ended before its last written turn.
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
        """How the conversation ended."""
        conversation = self.conversation
        return FinalReply(
            # The provider `direct` makes the calls without a model, so there is no text to check.
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
        """Run the turns up to the first that cannot run as written, then judge the assertions."""
        run = self._run
        try:
            setup = open_conversation(run.runtime, run.session, run.scenario, run.setup, self._names)
        # A conversation that cannot start fails this scenario; the other scenarios still run.
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
        # Only for a complete conversation: a broken one leaves replies unused anyway.
        self._report_unused(setup)

    async def _run_turn(self, number: int, turn: AgentTurn, setup: ConversationSetup) -> None:
        """Run a turn, log its calls, and judge its assertions."""
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
        # Otherwise a turn that did not begin would show how the previous one stopped.
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
        # A provider refuses a conversation in which a call has no result.
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
        """The calls that are pending now."""
        return PendingCalls(self.conversation, self._short)

    def _short(self, tool: str) -> str:
        return short_name(self._run.scenario.origin.namespace, tool)

    def _next_conversation(self, turn: AgentTurn) -> tuple[Conversation, dict[str, Any]]:
        """The conversation with the next message of the user, or with answers to its pending calls."""
        conversation, names = self.conversation, self._names()
        if turn.user is not None:
            said: Any = turn.user.render(names)
            parts = said if isinstance(said, list) else [said]
            return conversation.saying(*map(_part, parts)), {}
        answers: dict[str, Any] = {}
        for named, answer in turn.answers.items():
            # An answer names the id of a call, or a tool for all its pending calls. An unknown name is passed
            # on, and the loop reports it.
            fitting = [each.id for each in conversation.pending if named in {each.id, each.tool}]
            answers |= dict.fromkeys(fitting or [named], answer.render(names))
        return conversation, answers

    def _names(self) -> dict[str, JSON]:
        """What expressions can read at this point of the conversation."""
        sight = ModelView.of(self._read.messages, self._short)
        return sight.put_into(self._run.names())

    def _log_calls(self, number: int, turn: AgentTurn) -> None:
        """Log the calls that ended in this turn."""
        ended = [each for each in self.conversation.calls if each.outcome is not None]
        # A pending call is logged in the turn in which it ends.
        new = [record for record in ended if record.id not in self._args]
        log = self._run.log
        for place, record in enumerate(new, start=1):
            step = _agent_call(record, number, place, turn.pointer)
            log.add((StepEvent(step, record.arguments, _result_of(record)),))
        # The log has masked the arguments by the schemas of the tools; the transcript shows these.
        reports = log.reports()[-len(new) :] if new else ()
        self._args |= {record.id: report.args for record, report in zip(new, reports, strict=True)}

    def _check_stop(self, number: int, turn: AgentTurn, setup: ConversationSetup) -> list[ScenarioFailure]:
        """Check how a turn ended, and the results that the script received."""
        wrong = self._check_script(turn, setup)
        if wrong:
            return wrong
        stop, detail = self.conversation.stop, self.conversation.detail
        last = number == len(self._run.agent.turns)
        # `verify: {stop: ...}` is about the end of the conversation, so it does not excuse earlier turns.
        expected = self._run.scenario.verify.stops if last else ()
        if stop is Stop.PROVIDER_FAILED and stop not in expected:
            return [ScenarioFailure("provider", tuple((detail or stop.value).splitlines()), turn.pointer)]
        line = f"turn {number} ended with `{stop}`" + (f": {detail}" if detail else "")
        # A truncated text may look like a complete answer.
        if self._is_cut_off() and stop not in expected:
            return [ScenarioFailure("stop", (line,), turn.pointer)]
        if stop is Stop.ANSWERED and detail and setup.has_text:
            self.warnings.append(ScenarioFailure("stop", (f"turn {number}: {detail}",), turn.pointer))
        elif stop not in _ENDED_WELL and stop not in expected:
            self.warnings.append(ScenarioFailure("stop", (line,), turn.pointer))
        if not last:
            return []
        # Forgotten answers would otherwise pass: a pending turn has no failure of its own.
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
        """Whether the last answer is incomplete, or the tool loop refused the calls in it."""
        conversation = self.conversation
        of_turn = [record for record in conversation.calls if record.turn == conversation.turns]
        refused = any(record.code == REFUSED_ANSWER for record in of_turn)
        return conversation.stop is Stop.LENGTH or refused

    def _check_script(self, turn: AgentTurn, setup: ConversationSetup) -> list[ScenarioFailure]:
        """Results that differ from what the script expects, or why the script had no reply."""
        script = setup.script
        if script is None:
            return []
        # The script has seen results only up to its last request; the results after it are still to be
        # compared.
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
        """Judge the assertions of a turn, or of the whole conversation if `turn` is None."""
        if not assertions:
            return ()
        run = self._run
        # Assertions name tools as the document does: without the namespace of its pack.
        calls = tuple(each._replace(tool=self._short(each.tool)) for each in self.conversation.calls)
        states: Any = run.names()["state"]
        trajectory = Trajectory.of(
            self.conversation._replace(calls=calls),
            turn,
            setup.guardrails,
            firings=setup.firings,
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
                told.append(ScenarioFailure("unused_turns", ("no request used this reply",), reply.pointer))


_PLACES = {
    "invalid_base_url": "/base_url",
    "invalid_variables": "/variables",
    "missing_model": "/model",
    "unclear_name": "/prompt",
    "unknown_prompt": "/prompt",
    "unknown_provider": "/provider",
}
"""Error code -> pointer within the agent."""


def _unjudged_calls(setup: ConversationSetup) -> list[ScenarioFailure]:
    """Failures for results that a script expects but never received."""
    left = () if setup.script is None else setup.script.unjudged()
    return [
        ScenarioFailure(
            "expect_result",
            (f"never judged: the script received no result of the call of `{call.tool}`",),
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
    """The failure of a script without a reply."""
    lines = [error.message, *error.details.get("lines", ()), *error.hint.splitlines()]
    return ScenarioFailure(error.code, tuple(lines), error.details.get("pointer") or turn.pointer)


def _agent_call(record: CallRecord, turn: int, place: int, pointer: str) -> AgentCall:
    """Convert the record of a call to a step."""
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
    """Rebuild the result of a recorded call."""
    outcome = record.outcome or Outcome.INTERNAL
    if outcome is Outcome.OK:
        result = Result.success(record.value, content=record.content)
    else:
        result = Result.failure(outcome, record.message, code=record.code or None, content=record.content)
    return result.with_usage(record.attempts, record.duration)


def _transcript(
    messages: Sequence[Message], args: Mapping[str, JSON], hide: Callable[[str], str]
) -> Iterator[TranscriptEntry]:
    """Convert messages to entries of the transcript.

    Args:
        messages: Messages of one turn; system messages are skipped.
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
