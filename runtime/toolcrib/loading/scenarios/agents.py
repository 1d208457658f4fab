"""The agent of a scenario: a model, scripted or real, what the user says to it, and how its way is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.pointers import pointer_step
from toolcrib.core.text import compact
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.matchers import Matcher, compile_matcher, impossible
from toolcrib.loading.scenarios.expectations import Names
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy, renamed

SEEN = ("user", "results", "turn")
"""What the expressions of a script may read besides those of the scenario: the last text of the user, tool -> the last
value that the model was told, and how often the user has spoken."""


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
        pointer: Where it stands in the document.
    """

    type: str
    params: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    message: str = ""
    when: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    pass_threshold: float | None = None
    scope: Literal["turn", "conversation"] = "turn"
    unsupported: str = ""
    pointer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A call that a scripted model asks for.

    Attributes:
        tool: Name of the tool.
        args: The arguments; a text is what the model writes in their place.
        id: Its id; one is made unless given.
        expect_result: Matcher for what the model must be told of it; None for anything.
        pointer: Where it stands in the document.
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
        pointer: Where it stands in the document.
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
        pointer: Where it stands in the document.
    """

    user: Rendering | None = None
    answers: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    script: tuple[AgentReply, ...] = ()
    client: Mapping[str, Rendering] = field(default_factory=lambda: NOTHING)
    assertions: tuple[Assertion, ...] = ()
    pointer: str = ""


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
        pointer: Where it stands in the document.
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


GRANT = "grant"
"""How the caller fulfils a tool that answers as its mock does."""


def _named(script: Iterable[AgentReply], full: Callable[[str], str]) -> tuple[AgentReply, ...]:
    return tuple(
        replace(reply, calls=tuple(replace(call, tool=full(call.tool)) for call in reply.calls))
        for reply in script
    )


def parse_agent(entry: Mapping[str, Any], names: Names, problems: list[Problem]) -> Agent:
    """Compile what a scenario says of its agent.

    Args:
        entry: As the document has it; its shape is right.
        names: What its expressions may read: what all steps can, and what they have saved.
        problems: Receives what is wrong with it.
    """
    reader = _Reader({**names, **dict.fromkeys(SEEN)}, problems)
    place = "/agent"
    problems += _idle_variables(entry)
    problems += _keys(entry)
    told = {key: entry[key] for key in _AS_WRITTEN if key in entry}
    return Agent(
        **told,
        variables=reader.renderings(entry, "variables", place),
        system=reader.rendering(entry, "system", place),
        policy=_policy(entry, problems),
        policy_keys=frozenset(entry.get("policy", {})),
        client=reader.client(entry, place),
        script=reader.script(entry, place),
        turns=tuple(
            reader.turn(turn, f"{place}/turns/{index}") for index, turn in enumerate(entry.get("turns", ()))
        ),
        guardrails=_guardrails(entry, problems),
        assertions=reader.assertions(entry, place, whole=True),
    )


_AS_WRITTEN = frozenset(
    (
        *("provider", "model", "base_url", "api_key", "settings", "prices", "prompt", "judge"),
        *("unused_turns", "unknown_tools"),
    )
)
"""Keys of an agent whose values are those of the document."""


def parse_script(
    entries: Sequence[Mapping[str, Any]], pointer: str, names: Names, problems: list[Problem]
) -> tuple[AgentReply, ...]:
    """Compile the replies of a scripted model; their shape is right.

    Args:
        entries: As the document has them.
        pointer: Where they stand.
        names: What their expressions may read besides `user`, `results` and `turn`.
        problems: Receives what is wrong with them.
    """
    reader = _Reader({**names, **dict.fromkeys(SEEN)}, problems)
    return tuple(reader.reply(entry, f"{pointer}/{index}") for index, entry in enumerate(entries))


def _idle_variables(entry: Mapping[str, Any]) -> Iterator[Problem]:
    """That there is a prompt whose text is filled in, where something is said to fill it in with."""
    if "variables" not in entry or ("prompt" in entry and "system" not in entry):
        return
    message = "nothing is filled in with these: " + (
        "`system` stands in place of the prompt's text" if "system" in entry else "there is no `prompt`"
    )
    hint = "leave them out, or let a `prompt` instruct the model"
    yield Problem(code="contradiction", message=message, pointer="/agent/variables", hint=hint)


def _keys(entry: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the keys of providers."""
    for holder, pointer in ((entry, "/agent/api_key"), (entry.get("judge", {}), "/agent/judge/api_key")):
        if "api_key" not in holder:
            continue
        from toolcrib.security.secrets import check_variables  # noqa: PLC0415 -- most agents need no key

        yield from check_variables(holder["api_key"], pointer)
        if "${" not in holder["api_key"]:
            message = "the key is written in the document, where everybody who reads it knows it"
            hint = "put it into the environment and write `api_key: ${MY_KEY}`"
            yield Problem(
                code="literal_secret", message=message, pointer=pointer, hint=hint, severity="warning"
            )


def _policy(entry: Mapping[str, Any], problems: list[Problem]) -> ToolPolicy:
    if "policy" not in entry:
        return NO_POLICY
    from toolcrib.loading.prompts import parse_policy  # noqa: PLC0415 -- most agents may do what they like

    return parse_policy(entry["policy"], "/agent/policy", problems)


def _guardrails(entry: Mapping[str, Any], problems: list[Problem]) -> tuple[Mapping[str, Any], ...]:
    """Those that can be asked."""
    if "guardrails" not in entry:
        return ()
    from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415 -- most agents have none

    check_guardrails(entry["guardrails"], "/agent/guardrails", problems)
    return tuple(entry["guardrails"])


class _Reader:
    """Compiles the parts of an agent.

    Args:
        names: What their expressions may read.
        problems: Receives what is wrong with them.
    """

    def __init__(self, names: Names, problems: list[Problem]) -> None:
        self._names = names
        self._problems = problems

    def turn(self, entry: Mapping[str, Any], pointer: str) -> AgentTurn:
        """A turn, with its script."""
        return AgentTurn(
            user=self.rendering(entry, "user", pointer),
            answers=self.renderings(entry, "answers", pointer),
            script=self.script(entry, pointer),
            client=self.client(entry, pointer),
            assertions=self.assertions(entry, pointer),
            pointer=pointer,
        )

    def script(self, entry: Mapping[str, Any], pointer: str) -> tuple[AgentReply, ...]:
        """The replies under `script`."""
        replies = entry.get("script", ())
        return tuple(self.reply(reply, f"{pointer}/script/{index}") for index, reply in enumerate(replies))

    def reply(self, entry: Mapping[str, Any], pointer: str) -> AgentReply:
        """A reply; one that says nothing and calls nothing, or calls in two ways, is told."""
        self._problems += _contradictions(entry, pointer)
        alone = [(entry, pointer)] if "call" in entry else []
        several = [(call, f"{pointer}/calls/{index}") for index, call in enumerate(entry.get("calls", ()))]
        return AgentReply(
            when={key: self._when(key, pattern, pointer) for key, pattern in entry.get("when", {}).items()},
            reasoning=self.rendering(entry, "reasoning", pointer),
            say=self.rendering(entry, "say", pointer),
            calls=tuple(self._call(call, place) for call, place in alone + several),
            finish=entry.get("finish", ""),
            times=entry.get("times", 1),
            optional=entry.get("optional", False),
            pointer=pointer,
        )

    def _call(self, entry: Mapping[str, Any], pointer: str) -> ScriptedCall:
        expected = None
        if "expect_result" in entry:
            place = f"{pointer}/expect_result"
            expected = compile_matcher(entry["expect_result"], self._problems, place, names=self._names)
        return ScriptedCall(
            tool=entry["call"],
            args=compile_value(entry.get("args", {}), self._names, self._problems, f"{pointer}/args"),
            id=entry.get("id", ""),
            expect_result=expected,
            pointer=pointer,
        )

    def _when(self, key: str, pattern: JSON, pointer: str) -> Matcher:
        place = f"{pointer}/when/{key}"
        faults: list[Problem] = []
        matcher = compile_matcher(pattern, faults, place, names=self._names)
        schema, words = _SEEN[key]
        if not faults and impossible(pattern, schema):
            message = f"{words}, so it is never {compact(pattern)}"
            faults.append(Problem(code="never_matches", message=message, pointer=place))
        self._problems += faults
        return matcher

    def rendering(self, entry: Mapping[str, Any], key: str, pointer: str) -> Rendering | None:
        """The value of a key, compiled; None where the key is not there."""
        if key not in entry:
            return None
        return compile_value(entry[key], self._names, self._problems, f"{pointer}/{key}")

    def renderings(
        self, entry: Mapping[str, Any], key: str, pointer: str, names: Names = NOTHING
    ) -> dict[str, Rendering]:
        """The values within an object, compiled; they may read more `names`."""
        known = {**self._names, **names}
        return {
            name: compile_value(value, known, self._problems, f"{pointer}/{key}/{pointer_step(name)}")
            for name, value in entry.get(key, {}).items()
        }

    def client(self, entry: Mapping[str, Any], pointer: str) -> dict[str, Rendering]:
        """How the caller fulfils tools; what it answers may read the arguments of the call."""
        return self.renderings(entry, "client", pointer, {"args": None})

    def assertions(
        self, entry: Mapping[str, Any], pointer: str, *, whole: bool = False
    ) -> tuple[Assertion, ...]:
        """What must be true, of a turn or of the whole conversation."""
        if not entry.get("assertions"):
            return ()
        from toolcrib.loading.scenarios.assertions import check_assertions  # noqa: PLC0415 -- many kinds, seldom used

        return check_assertions(entry["assertions"], f"{pointer}/assertions", self._problems, whole=whole)


def check_reserved_names(steps: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """A problem for each step that saves under a name which scripts have for something else."""
    for index, entry in enumerate(steps):
        inner = [
            (f"/steps/{index}/parallel/{place}", call) for place, call in enumerate(entry.get("parallel", ()))
        ]
        for pointer, call in [(f"/steps/{index}", entry), *inner]:
            if call.get("as") in SEEN:
                message = f"`{call['as']}` is already the name of what the scripts of the agent see"
                place = f"{pointer}/as"
                yield Problem(code="duplicate_name", message=message, pointer=place, hint="take another name")


_SEEN: Mapping[str, tuple[dict[str, JSON], str]] = {
    "user": ({"type": "string"}, "`user` is a text"),
    "turn": ({"type": "integer", "minimum": 1}, "`turn` is a whole number from 1 up"),
    "reply": ({"type": "integer", "minimum": 1}, "`reply` is a whole number from 1 up"),
    "replies": ({"type": "integer", "minimum": 0}, "`replies` is a whole number from 0 up"),
    "results": ({"type": "object"}, "`results` is an object of tools and their values"),
    "last": ({"type": "object"}, "`last` is an object `{tool, outcome, code, value, text}`"),
}
"""What a reply's `when` may look at: its JSON Schema, and what that is in words."""


def _contradictions(entry: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    if not entry.keys() & {"say", "reasoning", "call", "calls"}:
        message = "a reply says something or calls something, and this one does neither"
        hint = "write `say`, `call` or `calls`; a model that says nothing is `say: ''`"
        yield Problem(code="missing_key", message=message, pointer=pointer, hint=hint)
    if {"call", "calls"} <= entry.keys():
        message = "a reply makes one call (`call`) or several (`calls`)"
        hint = "move the one into the list"
        yield Problem(code="wrong_combination", message=message, pointer=f"{pointer}/calls", hint=hint)
    for key in ("args", "id", "expect_result"):
        if key in entry and "call" not in entry:
            message = f"`{key}` belongs to a `call`, and there is none beside it"
            hint = "move it into the call it is about"
            yield Problem(code="wrong_combination", message=message, pointer=f"{pointer}/{key}", hint=hint)
