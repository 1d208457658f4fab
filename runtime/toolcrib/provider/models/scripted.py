"""A model that plays a script: its answers depend on what it sees (`ModelView`), never on how often it was asked."""

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
    """A tool by its name."""
    return tool


class ModelView(NamedTuple):
    """A conversation, as a script reads it.

    Attributes:
        user: The last text of the user.
        turn: How often the user has spoken.
        reply: The number of the next reply among those since then, from 1.
        replies: How often the model has replied.
        results: Tool -> the last value that it answered.
        last: What was told last of a call: `{tool, outcome, code, value, text}`; None before the first.
    """

    user: str = ""
    turn: int = 0
    reply: int = 1
    replies: int = 0
    results: dict[str, JSON] = {}  # noqa: RUF012 -- never changed
    last: dict[str, JSON] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message], named: Named = same_name) -> ModelView:
        """What there is to see in some messages; `named` says what the script calls a tool."""
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
        """Names that expressions read, with what scripts see among them."""
        names.update(user=self.user, results=self.results, turn=self.turn)
        return names


def results_in(message: Message) -> list[ToolResult]:
    """What a message tells of calls."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def result_view(result: ToolResult, named: Named = same_name) -> dict[str, JSON]:
    """What a model is told of a call: `{tool, outcome, code, value, text}`."""
    return {
        "tool": named(result.name),
        "outcome": result.outcome.value,
        "code": result.code,
        "value": value_of(result.text),
        "text": result.text,
    }


def decision_note(arguments: JSON) -> str:
    """The line that tells a model with which arguments a call was made, where they are not its own."""
    return f"{_CALLED_WITH}{compact(arguments)}{_AS_DECIDED}\n"


_CALLED_WITH, _AS_DECIDED = "[called with ", ", as was decided]"


def value_of(text: str) -> JSON:
    """The value that a text is JSON of, or begins with; the text itself where it is none.

    What is told beside an object or a list, on lines of its own, is left out.
    """
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
"""JSON Pointer -> `file:line`."""

ANY = float("inf")

SHOWN = 10
"""Replies of which it is told why they don't fit."""

_SHORT = 200
"""Bytes of a text that is shown."""


_UNSAID = ReasoningDelta("", {"unsaid": True})
"""Stands where something would be said, so that replies are counted alike."""


class ScriptedReply(NamedTuple):
    """A reply, and where in a conversation it may stand.

    Attributes:
        reply: The reply.
        turn: The number of the user's message that it follows; 0 for any.
        first: The first place among the replies to that message that it may have, from 1; 0 for any place.
        last: The last one.
    """

    reply: AgentReply
    turn: int = 0
    first: int = 0
    last: float = ANY


def scripted_replies(
    turns: Iterable[AgentTurn], script: Iterable[AgentReply] = ()
) -> tuple[ScriptedReply, ...]:
    """The script of a whole conversation.

    A reply in the script of a turn belongs to this turn. Without a `when` of its own it stands behind those before
    it, where those that are optional, may be used several times, or have a `when` may be there or not. What follows
    a turn of `answers` goes on with the turn before.

    Args:
        turns: With their scripts.
        script: Replies for any turn; those of the turn itself come first.
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
    """A model was told otherwise of a call than its script expects.

    Attributes:
        call: The call, as scripted.
        id: The id of the call.
        lines: What was expected and what was told.
    """

    call: ScriptedCall
    id: str
    lines: tuple[str, ...]


class _Awaited(NamedTuple):
    """A call that was asked for: the number of the reply among all of the conversation, from 0, and its place there."""

    reply: int
    slot: int
    call: ScriptedCall


class Scripted:
    """A provider that plays replies.

    The first reply that is not used up and that fits what the request shows is given. Where none fits, the request
    fails (`unscripted`), and so it does when a call that was asked for was answered otherwise than its
    `expect_result` says (`unexpected_result`).

    Attributes:
        unexpected: What was told otherwise than expected, so far.
        failed: The error of the last request; None where it was answered.

    Args:
        script: What it may answer; `scripted_replies` makes it.
        names: What expressions may read besides `user`, `results` and `turn`: a new mapping each time.
        place: Where a reply stands, for errors.
        named: What the script calls a tool.
        speaks: Whether it says what the script says. One that does not makes its calls alone, and ends its turn
            where nothing fits.
    """

    dialect = "plain"

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
        """A model for a conversation in Python: for each message of the user a list of replies, as documents have them.

        `Scripted.of([{"call": "get_order", "args": {"order_id": "ORD-1"}}, {"say": "It is paid."}])`

        Raises:
            DocumentError: Something is wrong with a reply.
        """
        from toolcrib.loading.scenarios.agents import parse_turns  # noqa: PLC0415 -- documents are read another way

        return cls(scripted_replies(parse_turns(turns)))

    async def respond(self, request: Request, /) -> AsyncGenerator[Delta, None]:
        """Give the reply that fits.

        Raises:
            ProviderError: `unscripted`: none fits. `unexpected_result`: a call was answered otherwise than expected.
                `script_failed`: an expression of the reply can't be worked out.
        """
        self.failed = None
        try:
            for delta in self._answer(request):
                yield delta
        except ProviderError as error:
            self.failed = error
            raise

    def settle(self, messages: Sequence[Message]) -> list[UnexpectedResult]:
        """Judge what was told of the calls that were asked for, as far as that is known and was not judged before."""
        told = {part.id: part for message in messages for part in results_in(message)}
        asked = [message.calls for message in messages if message.role == "assistant"]
        names: Mapping[str, JSON] | None = None
        found, left = [], []
        for awaited in self._awaited:
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
        """The calls that were asked for, of which something is expected, and nothing was told."""
        return [awaited.call for awaited in self._awaited]

    def unused(self) -> list[AgentReply]:
        """The replies that were never given, and had to be."""
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
        """What the reply comes to; all of it is worked out before any of it is said."""
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
        """The first reason why a reply does not fit, in words; empty if it does."""
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
        """The error that says of each reply why it does not fit, and what to write."""
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
    """Why what was told of a call is not as expected; nothing if it is.

    Of a call that did not end `ok`, that is the text; where the pattern names the outcome, what is said of its end.
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
    """Whether a pattern is about how a call ends."""
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
    """What the model saw last."""
    last = sight.last
    if last is None or sight.reply == 1:
        return f"the user says {compact(truncate(sight.user, _SHORT))}"
    code = f" ({last['code']})" if last["code"] not in {"", last["outcome"]} else ""
    return f"`{last['tool']}` ended {last['outcome']}{code}"


def _paste(sight: ModelView, *, own: bool) -> str:
    """YAML of a reply that fits this request."""
    when: dict[str, JSON] = {} if own else {"turn": sight.turn}
    when["reply"] = sight.reply
    shown = ", ".join(f"{key}: {value}" for key, value in when.items())
    return f"- when: {{{shown}}}\n  say: what the model says here"
