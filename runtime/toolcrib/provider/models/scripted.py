"""A scripted model.

Its answers depend on the conversation that it sees (`ModelView`), not on the number of requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.text import JSON_DECODER, compact, truncate
from toolcrib.loading.scenarios.model import AgentReply, AgentTurn, ScriptedCall
from toolcrib.provider.messages import Message, ToolResult
from toolcrib.provider.models.protocol import (
    CallDelta,
    Delta,
    Finish,
    ProviderError,
    ReasoningDelta,
    Request,
    TextDelta,
)

Named: TypeAlias = Callable[[str], str]


def same_name(tool: str) -> str:
    """Return the name unchanged."""
    return tool


class ModelView(NamedTuple):
    """A conversation as a script reads it.

    Attributes:
        user: The last text of the user.
        turn: Number of user messages.
        reply: Number of the next reply in this turn, from 1.
        replies: Number of replies in the whole conversation.
        results: Maps a tool to the last value that it returned.
        last: The last result of a call, `{tool, outcome, code, value, text}`; None before the first one.
    """

    user: str = ""
    turn: int = 0
    reply: int = 1
    replies: int = 0
    results: dict[str, JSON] = {}  # noqa: RUF012 -- never modified
    last: dict[str, JSON] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message], named: Named = same_name) -> ModelView:
        """Build the view of some messages; `named` maps a tool to its name in the script."""
        user, turn, reply, replies = "", 0, 1, 0
        results: dict[str, JSON] = {}
        last: dict[str, JSON] | None = None
        for message in messages:
            if message.role == "user":
                user, turn, reply = message.text, turn + 1, 1
            elif message.role == "assistant":
                reply, replies = reply + 1, replies + 1
            for result in results_in(message):
                last = result_view(result, named)
                if result.outcome is Outcome.OK:
                    results[named(result.name)] = last["value"]
        return cls(user, turn, reply, replies, results, last)

    def put_into(self, names: dict[str, JSON]) -> dict[str, JSON]:
        """Add the view to the names that expressions read."""
        names.update(user=self.user, results=self.results, turn=self.turn)
        return names


def results_in(message: Message) -> list[ToolResult]:
    """The results of calls in a message."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def result_view(result: ToolResult, named: Named = same_name) -> dict[str, JSON]:
    """A result as scripts read it: `{tool, outcome, code, value, text}`."""
    return {
        "tool": named(result.name),
        "outcome": result.outcome.value,
        "code": result.code,
        "value": value_of(result.text),
        "text": result.text,
    }


def decision_note(arguments: JSON) -> str:
    """The line that reports the arguments of a call to the model, if they differ from its own."""
    return f"{_CALLED_WITH}{compact(arguments)}{_AS_DECIDED}\n"


_CALLED_WITH, _AS_DECIDED = "[called with ", ", as was decided]"


def value_of(text: str) -> JSON:
    """Parse the JSON value at the start of a text; the text itself if there is none.

    Notes after an object or a list, on lines of their own, are ignored.
    """
    # The note about edited arguments comes before the value.
    first, line, rest = text.partition("\n")
    if line and first.startswith(_CALLED_WITH) and first.endswith(_AS_DECIDED):
        text = rest
    try:
        value, end = JSON_DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return text
    whole = end == len(text) or (isinstance(value, dict | list) and text[end] == "\n")
    return value if whole else text


Place: TypeAlias = Callable[[str], str]
"""Maps a JSON Pointer to `file:line`."""

ANY = float("inf")

SHOWN = 10
"""Maximum number of replies in an error, each with the reason why it does not match."""

_SHORT = 200
"""Maximum bytes of a text in an error."""


# Without any part, an answer would add no message, and the replies after it would be counted differently.
_UNSAID = ReasoningDelta("", {"unsaid": True})
"""Placeholder for the text of a scripted model that does not speak."""


class ScriptedReply(NamedTuple):
    """A reply and its possible positions in a conversation.

    Attributes:
        reply: The reply.
        turn: Number of its turn; 0 for any turn.
        first: First possible position in the turn, from 1; 0 for any position.
        last: Last possible position in the turn.
    """

    reply: AgentReply
    turn: int = 0
    first: int = 0
    last: float = ANY


def scripted_replies(
    turns: Iterable[AgentTurn], script: Iterable[AgentReply] = ()
) -> tuple[ScriptedReply, ...]:
    """Build the script of a whole conversation.

    A reply in the script of a turn belongs to that turn. Without `when`, it comes after the replies before
    it; those that are optional, have a `when` or may be used several times can be absent or repeated. A turn
    with `answers` continues the turn before it.

    Args:
        turns: The turns with their scripts.
        script: Replies for any turn, tried after those of the turn itself.
    """
    lines: list[ScriptedReply] = []
    number, least, most = 0, 0, 0.0
    for turn in turns:
        if turn.user is not None:
            number, least, most = number + 1, 0, 0.0
        for reply in turn.script:
            times = reply.times or ANY
            lines.append(
                ScriptedReply(reply, number)
                if reply.when
                else ScriptedReply(reply, number, least + 1, most + times)
            )
            least += not (reply.when or reply.optional)
            most += times
    return (*lines, *(ScriptedReply(reply) for reply in script))


class UnexpectedResult(NamedTuple):
    """A result that differs from the `expect_result` of its scripted call.

    Attributes:
        call: The scripted call.
        id: ID of the call.
        lines: The differences.
    """

    call: ScriptedCall
    id: str
    lines: tuple[str, ...]


class _Awaited(NamedTuple):
    """A call whose result is awaited: the number of its reply, from 0, and its position there."""

    reply: int
    slot: int
    call: ScriptedCall


class Scripted:
    """A provider that answers from a script, to test a loop, its tools and its policy offline.

    It uses the first reply that is not used up and that matches the conversation. A request fails if no reply
    matches (`unscripted`), or if the result of an earlier call differs from its `expect_result`
    (`unexpected_result`).

    Attributes:
        unexpected: The unexpected results so far.
        failed: The error of the last request; None if it was answered.

    Args:
        script: The replies, built by `scripted_replies`.
        names: Returns the names that expressions may read in addition to `user`, `results` and `turn`.
        place: Returns the place of a reply, for errors.
        named: Maps a tool to its name in the script.
        speaks: Whether to return the text of replies. If False, only the calls are made, and a turn ends
            where no reply matches.
    """

    dialect = "plain"
    free = True

    def __init__(
        self,
        script: Sequence[ScriptedReply],
        *,
        names: Callable[[], dict[str, JSON]] = dict,
        place: Place = lambda pointer: pointer,
        named: Named = same_name,
        speaks: bool = True,
    ) -> None:
        self.unexpected: list[UnexpectedResult] = []
        self.failed: ProviderError | None = None
        self._script = tuple(script)
        self._names = names
        self._place = place
        self._named = named
        self._speaks = speaks
        self._used = [0] * len(self._script)
        self._awaited: list[_Awaited] = []

    @classmethod
    def of(cls, *turns: Sequence[Mapping[str, Any]]) -> Scripted:
        """Create a scripted model: one list of replies per user message, in the format of scenarios.

        Example:
            ```python
            Scripted.of([{"call": "get_order", "args": {"order_id": "ORD-1"}}, {"say": "It is paid."}])
            ```

        Raises:
            DocumentError: A reply is invalid.
        """
        from toolcrib.loading.scenarios.agents import parse_turns  # noqa: PLC0415 -- scenarios are parsed by the loader

        return cls(scripted_replies(parse_turns(turns)))

    async def respond(self, request: Request, /) -> AsyncGenerator[Delta, None]:
        """Answer with the first matching reply.

        Raises:
            ProviderError: `unscripted`: no reply matches. `unexpected_result`: a result differs from its
                `expect_result`. `script_failed`: an expression of the reply failed.
        """
        self.failed = None
        try:
            for delta in self._answer(request):
                yield delta
        except ProviderError as error:
            self.failed = error
            raise

    def settle(self, messages: Sequence[Message]) -> list[UnexpectedResult]:
        """Compare new results with the `expect_result` of their calls, and return those that differ."""
        told = {part.id: part for message in messages for part in results_in(message)}
        asked = [message.calls for message in messages if message.role == "assistant"]
        names: Mapping[str, JSON] | None = None
        found, left = [], []
        for awaited in self._awaited:
            # By position, because the loop may have assigned another ID to the call.
            calls = asked[awaited.reply] if awaited.reply < len(asked) else ()
            result = told.get(calls[awaited.slot].id) if awaited.slot < len(calls) else None
            if result is None:
                left.append(awaited)
                continue
            names = names or ModelView.of(messages, self._named).put_into(self._names())
            if lines := _differences(awaited.call, result, names):
                found.append(UnexpectedResult(awaited.call, result.id, lines))
        self._awaited = left
        self.unexpected += found
        return found

    def unjudged(self) -> list[ScriptedCall]:
        """The calls with `expect_result` that have no result yet."""
        return [awaited.call for awaited in self._awaited]

    def unused(self) -> list[AgentReply]:
        """The replies that are not optional and were never used."""
        pairs = zip(self._script, self._used, strict=True)
        return [line.reply for line, times in pairs if not times and not line.reply.optional]

    def _answer(self, request: Request) -> Iterator[Delta]:
        unexpected = self.settle(request.messages)
        if unexpected:
            raise _as_error(unexpected, self._place)
        sight = ModelView.of(request.messages, self._named)
        names = sight.put_into(self._names())
        number = self._choose(sight, names)
        if number is None:
            if self._speaks:
                raise self._unscripted(sight, names)
            yield from (_UNSAID, Finish())
            return
        reply = self._script[number].reply
        # Evaluated before it is counted: a reply that fails is not used up.
        deltas = self._deltas(reply, request, names)
        self._used[number] += 1
        self._awaited += [
            _Awaited(sight.replies, slot, call)
            for slot, call in enumerate(reply.calls)
            if call.expect_result is not None
        ]
        yield from deltas

    def _choose(self, sight: ModelView, names: Mapping[str, JSON]) -> int | None:
        for number, line in enumerate(self._script):
            if not self._why_not(number, line, sight, names):
                return number
        return None

    def _deltas(self, reply: AgentReply, request: Request, names: Mapping[str, JSON]) -> list[Delta]:
        """Evaluate a reply to pieces, completely, so that an error leaves no half answer."""
        declared = {declaration.tool: declaration.name for declaration in request.tools}
        deltas: list[Delta] = [] if self._speaks else [_UNSAID]
        try:
            if reply.reasoning is not None and self._speaks:
                deltas.append(ReasoningDelta(_text(reply.reasoning.render(names))))
            if reply.say is not None and self._speaks:
                deltas.append(TextDelta(_text(reply.say.render(names))))
            for slot, call in enumerate(reply.calls):
                arguments: Any = call.args.render(names)
                written = arguments if isinstance(arguments, dict | str) else compact(arguments)
                deltas.append(CallDelta(slot, call.id, declared.get(call.tool, call.tool), written))
        except ExpressionError as error:
            place = self._place(error.pointer or reply.pointer)
            message = f"cannot evaluate the reply: {error.message} ({place})"
            details = {"pointer": error.pointer or reply.pointer}
            raise ProviderError(message, code="script_failed", hint=error.hint, details=details) from None
        return [*deltas, Finish(reply.finish or ("tool_calls" if reply.calls else "stop"))]

    def _why_not(self, number: int, line: ScriptedReply, sight: ModelView, names: Mapping[str, JSON]) -> str:
        """The first reason why a reply does not match; empty if it does."""
        reply = line.reply
        if line.turn and line.turn != sight.turn:
            return f"it belongs to turn {line.turn}, but this is turn {sight.turn}"
        if reply.times and self._used[number] >= reply.times:
            return f"it is used up after {_times(reply.times)}"
        if line.first and not line.first <= sight.reply <= line.last:
            return f"it must be {_placed(line)}, but this is reply {sight.reply} of the turn"
        seen: Mapping[str, JSON] = sight._asdict()
        for key, matcher in reply.when.items():
            try:
                differences = matcher.differences(seen[key], names, 1)
            except ExpressionError as error:
                return f"cannot evaluate its `when`: {error.message}"
            if differences:
                told = str(differences[0])
                return f"{key}{told}" if told.startswith("/") else f"{key}: {told}"
        return ""

    def _unscripted(self, sight: ModelView, names: Mapping[str, JSON]) -> ProviderError:
        """Build the error that gives the reason for each reply, and a reply to paste."""
        reasons = [
            f"reply at {self._place(line.reply.pointer)}: {self._why_not(number, line, sight, names)}"
            for number, line in enumerate(self._script)
            if line.turn in {0, sight.turn}
        ]
        elsewhere = len(self._script) - len(reasons)
        lines = reasons[:SHOWN]
        if len(reasons) > SHOWN:
            lines.append(f"and {len(reasons) - SHOWN} more that do not match")
        if elsewhere:
            lines.append(f"{elsewhere} repl{'y belongs' if elsewhere == 1 else 'ies belong'} to other turns")
        own = any(line.turn == sight.turn for line in self._script)
        paste = _paste(sight, own=own)
        below = f"`script` of turn {sight.turn}" if own else "`script` of the agent"
        hint = f"add a matching reply at the end of the {below}:"
        details = {"lines": lines, "paste": paste, "turn": sight.turn, "reply": sight.reply}
        message = (
            f"no reply of the script matches request {sight.reply} of turn {sight.turn}, where {_seen(sight)}"
        )
        return ProviderError(message, code="unscripted", hint=f"{hint}\n{paste}", details=details)


def _differences(call: ScriptedCall, result: ToolResult, names: Mapping[str, JSON]) -> tuple[str, ...]:
    """The differences between a result and the `expect_result` of its call.

    The pattern is compared with the value of an `ok` result, else with its text. A pattern with `outcome` or
    `code` is compared with the whole view of a failed result.
    """
    matcher = call.expect_result
    if matcher is None:
        return ()
    told = result_view(result)
    if result.outcome is Outcome.OK:
        value, ended = told["value"], ""
    else:
        value = told if _names_outcome(matcher.expected()) else told["text"]
        ended = f"the call of `{result.name}` ended {_ending(result)}"
    try:
        lines = [str(difference) for difference in matcher.differences(value, names)]
    except ExpressionError as error:
        lines = [error.message]
    return tuple([*lines, ended] if lines and ended else lines)


def _as_error(unexpected: Sequence[UnexpectedResult], place: Place) -> ProviderError:
    first = unexpected[0]
    message = (
        f"`{first.call.tool}` returned an unexpected result: {first.lines[0]} ({place(first.call.pointer)})"
    )
    return ProviderError(message, code="unexpected_result", details={"pointer": first.call.pointer})


def _names_outcome(pattern: JSON) -> bool:
    """Whether a pattern has `outcome` or `code`."""
    return isinstance(pattern, dict) and bool(pattern.keys() & {"outcome", "code"})


def _ending(result: ToolResult) -> str:
    code = f" ({result.code})" if result.code not in {"", result.outcome.value} else ""
    text = result.text.removeprefix(f"{result.code}: ")
    return f"{result.outcome.value}{code}: {truncate(text, _SHORT)}"


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else compact(value)


def _times(times: int) -> str:
    return "one use" if times == 1 else f"{times} uses"


def _placed(line: ScriptedReply) -> str:
    if line.last == line.first:
        return f"reply {line.first}"
    return (
        f"reply {line.first} or later"
        if line.last == ANY
        else f"one of replies {line.first} to {line.last:g}"
    )


def _seen(sight: ModelView) -> str:
    """Describe the last thing that the model saw."""
    last = sight.last
    if last is None or sight.reply == 1:
        return f"the user says {compact(truncate(sight.user, _SHORT))}"
    code = f" ({last['code']})" if last["code"] not in {"", last["outcome"]} else ""
    return f"`{last['tool']}` ended {last['outcome']}{code}"


def _paste(sight: ModelView, *, own: bool) -> str:
    """YAML of a reply that matches this request."""
    when: dict[str, JSON] = {} if own else {"turn": sight.turn}
    when["reply"] = sight.reply
    shown = ", ".join(f"{key}: {value}" for key, value in when.items())
    return f"- when: {{{shown}}}\n  say: what the model says here"
