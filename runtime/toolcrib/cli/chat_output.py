"""What a conversation shows at a terminal or as lines of JSON, what it asks, and the commands that begin with `/`.

Nothing that a model or a tool says can steer the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

import click

from toolcrib.cli.output import table, terminal_width, truncate
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.model import JSON, Client, Result
from toolcrib.core.text import DuplicateKey, compact, decode_json, escape_terminal, first_sentence
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.executors.client import DEFERRED, ClientCall
from toolcrib.provider import Answer, Conversation, Event, Pending, Stop, ToolPolicy
from toolcrib.registry.registry import Registry
from toolcrib.security.redaction import CallRedactor
from toolcrib.security.tool_policy import NO_POLICY

_SHORT = 200
"""Columns of arguments and results where nobody knows how wide a line may be."""


class ChatDisplay(Protocol):
    """Tells what happens."""

    def event(self, event: Event) -> None:
        """Something happened."""
        ...

    def said(self, line: str) -> None:
        """The user's line was taken from a pipe."""
        ...

    def stopped(self, conversation: Conversation) -> None:
        """A turn is over."""
        ...

    def broken_off(self) -> None:
        """A turn was cancelled by whoever watches."""
        ...

    def error(self, error: ToolcribError) -> None:
        """A turn could not be held."""
        ...

    def note(self, text: str) -> None:
        """Something else there is to say."""
        ...

    def warning(self, text: str) -> None:
        """Something is not as it must be."""
        ...

    def ended(self, conversation: Conversation) -> None:
        """There is nothing more to come."""
        ...


class JsonLines:
    """One JSON object a line: the events, at the end the conversation, as `{"type": "conversation", ...}`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def event(self, event: Event) -> None:
        """Something happened."""
        self._line(event.as_json())

    def said(self, line: str) -> None:
        """Print nothing: the event has been written."""

    def stopped(self, conversation: Conversation) -> None:
        """Print the reason for people; the event has been written."""
        print_stop(conversation)

    def broken_off(self) -> None:
        """Print nothing: the event has been written."""

    def error(self, error: ToolcribError) -> None:
        """Print why a turn could not run."""
        print_error(error.message, error.code, error.hint)

    def note(self, text: str) -> None:
        """Told to people."""
        click.echo(escape_terminal(text), err=True)

    def warning(self, text: str) -> None:
        """Told to people."""
        print_warning(text)

    def ended(self, conversation: Conversation) -> None:
        """The whole conversation, as another process can go on with it, without the secrets of its calls."""
        whole = CallRedactor(self._registry.get, conversation.calls).value(conversation.as_json())
        self._line({"type": "conversation", **whole} if isinstance(whole, dict) else {})

    def _line(self, value: Mapping[str, JSON]) -> None:
        click.echo(compact(dict(value)))


class Terminal:
    """Text as it comes, calls in lines of their own, what is not said to the user dimmed."""

    def __init__(self, *, echoes: bool) -> None:
        """Begin at the left of a line.

        Args:
            echoes: Whether the user's lines are not on the screen already.
        """
        self._echoes = echoes
        self._within = ""
        self._calls: dict[str, dict[str, Any]] = {}
        self._at_once: dict[str, list[str]] = {}
        self._over: set[str] = set()

    def event(self, event: Event) -> None:
        """Show what happened, as far as it is to be seen."""
        tell = _TELLS.get(event.type)
        if tell is not None:
            tell(self, event)

    def said(self, line: str) -> None:
        """Show the user's line, where it is not on the screen already."""
        if self._echoes:
            click.echo(click.style(f"> {escape_terminal(line)}", bold=True))

    def stopped(self, conversation: Conversation) -> None:
        """Say why the turn ended, where that is not plain to see."""
        self._end_line()
        print_stop(conversation)

    def broken_off(self) -> None:
        """Say that the turn was cancelled."""
        self._end_line()
        print_warning("the turn was cancelled; what was said is kept")

    def error(self, error: ToolcribError) -> None:
        """Say what went wrong."""
        self._end_line()
        print_error(error.message, error.code, error.hint)

    def note(self, text: str) -> None:
        """Say something else."""
        self._end_line()
        click.echo(escape_terminal(text))

    def warning(self, text: str) -> None:
        """Say what is not as it must be."""
        self._end_line()
        print_warning(text)

    def ended(self, _conversation: Conversation) -> None:
        """Leave the cursor at the left."""
        self._end_line()

    def _text(self, event: Event) -> None:
        self._piece("text", escape_terminal(event.text))

    def _reasoning(self, event: Event) -> None:
        self._piece("reasoning", click.style(escape_terminal(event.text), dim=True))

    def _piece(self, kind: str, shown: str) -> None:
        if self._within != kind:
            self._end_line()
        self._within = kind
        click.echo(shown, nl=False)

    def _closed(self, _event: Event) -> None:
        self._end_line()

    def _call(self, event: Event) -> None:
        """What is known of a call; it is shown when it begins, and when it is over."""
        call = self._calls.setdefault(event.id, {"tool": "", "arguments": None})
        call["tool"] = event.tool or call["tool"]
        call["arguments"] = call["arguments"] if event.arguments is None else event.arguments
        if event.status in {"running", "waiting", "completed", "failed"}:
            self._tell_call(event.id, call)
        name = self._name(event.id, call["tool"])
        if event.status in {"completed", "failed"}:
            self._over.add(event.id)
            colour = "green" if event.outcome == "ok" else "red"
            self._line(f"  {name}: ", click.style(event.outcome, fg=colour), f" {_short(event.text)}")
        elif event.text:
            self._line(f"  {name}: {_short(event.text)}")

    def _tell_call(self, id_: str, call: Mapping[str, Any]) -> None:
        at_once = self._at_once.setdefault(call["tool"], [])
        if id_ in at_once or id_ in self._over:
            return
        if self._over.issuperset(at_once):
            at_once.clear()
        at_once.append(id_)
        arguments = "" if call["arguments"] is None else _short(compact(call["arguments"]))
        self._line(f"* {self._name(id_, call['tool'])} {arguments}")

    def _name(self, id_: str, tool: str) -> str:
        """The tool that is called; with a number where several calls of it are made at once."""
        at_once = self._at_once.get(tool, [])
        number = f" #{at_once.index(id_) + 1}" if len(at_once) > 1 and id_ in at_once else ""
        return f"{escape_terminal(tool)}{number}"

    def _line(self, *parts: str) -> None:
        self._end_line()
        dim = [part if "\x1b" in part else click.style(part, dim=True) for part in parts]
        click.echo("".join(dim))

    def _end_line(self) -> None:
        if self._within:
            click.echo()
        self._within = ""


_TELLS: Mapping[str, Callable[[Terminal, Event], None]] = {
    "text": Terminal._text,  # noqa: SLF001 -- the class's own table
    "reasoning": Terminal._reasoning,  # noqa: SLF001
    "closed": Terminal._closed,  # noqa: SLF001
    "call": Terminal._call,  # noqa: SLF001
    "call_updated": Terminal._call,  # noqa: SLF001
}


def _short(text: str) -> str:
    """A text on one line that is not too long."""
    width = terminal_width()
    return truncate(escape_terminal(" ".join(text.split())), _SHORT if width is None else max(width - 20, 20))


def print_stop(conversation: Conversation) -> None:
    """Say on stderr why a turn ended otherwise than with an answer."""
    stop = conversation.stop
    if stop in {None, Stop.ANSWERED, Stop.PENDING}:
        return
    if stop is Stop.PROVIDER_FAILED:
        said = {key: str(conversation.failure.get(key) or "") for key in ("message", "code", "hint")}
        details = conversation.failure.get("details")
        lines = details.get("lines") if isinstance(details, Mapping) else None
        message = "\n".join(
            [said["message"] or conversation.detail, *map(str, lines if isinstance(lines, list) else ())]
        )
        print_error(message, said["code"] or stop.value, said["hint"])
        return
    print_warning(f"the turn ended: {stop}" + (f": {conversation.detail}" if conversation.detail else ""))


def print_warning(text: str) -> None:
    """Say on stderr what is not as it must be."""
    click.echo(click.style(escape_terminal(text), fg="yellow"), err=True)


def print_error(message: str, code: str, hint: str) -> None:
    """Say on stderr what went wrong: code, message, the way out."""
    first, *rest = escape_terminal(message).splitlines() or [""]
    click.echo(f"{click.style(code, fg='red', bold=True)}: {first}", err=True)
    for line in [*rest, *(f"hint: {escape_terminal(hint)}".splitlines() if hint else [])]:
        click.echo(f"    {line}", err=True)


NOBODY = "nobody was there to ask"
"""Why a call is refused that somebody would have to approve."""


class ApprovalPrompt:
    """Asks for calls that wait.

    Attributes:
        asks: Whether there is somebody to ask.
    """

    def __init__(
        self,
        runtime: Runtime,
        approved: Sequence[str],
        *,
        asks: bool,
        show: ChatDisplay,
        before: Client | None = None,
    ) -> None:
        """Take what all questions need.

        Args:
            runtime: Binds the mocks of tools that are granted.
            approved: Globs of the tools whose calls are approved without asking.
            asks: Whether there is somebody to ask.
            show: Says what is asked.
            before: Fulfils some tools before anybody is asked.
        """
        self.asks = asks
        self._runtime = runtime
        self._approved = approved
        self._show = show
        self._before = before
        self._granted: set[str] = set()

    async def client(self, call: ClientCall) -> JSON | Result:
        """Fulfil a call as its mock does, if that was granted; else it waits until somebody says so."""
        if self._before is not None and call.tool not in self._granted:
            answer: JSON | Result = await self._before(call)
            return answer
        if call.tool not in self._granted:
            return call.defer()
        bound = engine_of(self._runtime).in_mode(call.call.tool, "mock")
        return await bound.execute(call.call._replace(tool=call.call.tool._replace(mode="mock")))

    def answers(self, pending: Iterable[Pending]) -> dict[str, Answer]:
        """What is said of calls that wait."""
        return {each.id: self._answer(each) for each in pending}

    def _answer(self, pending: Pending) -> Answer:
        fulfilled = pending.code == DEFERRED
        mocked = fulfilled and self._has_mock(pending.tool)
        if any(fnmatchcase(pending.tool, glob) for glob in self._approved) and (mocked or not fulfilled):
            return self._approve(pending, fulfilled=fulfilled)
        if not self.asks:
            return Answer.reject(NOBODY)
        told = pending.details.get("message") or pending.message
        self._show.note(f"\n{pending.tool} {compact(pending.arguments)}\n{told}")
        try:
            return self._asked(pending, fulfilled=fulfilled, mocked=mocked)
        except (EOFError, KeyboardInterrupt, click.Abort):
            return Answer.reject("the question was left unanswered")

    def _asked(self, pending: Pending, *, fulfilled: bool, mocked: bool) -> Answer:
        ways = [*(["y"] if mocked or not fulfilled else []), "N", "result" if fulfilled else "edit"]
        what = "give its result" if fulfilled else "make the call"
        said = input(f"{what}? [{'/'.join(ways)}] ").strip().casefold()
        if said in {"y", "yes"} and "y" in ways:
            return self._approve(pending, fulfilled=fulfilled)
        if said and ways[-1].startswith(said):
            question = "the result, as JSON or text: " if fulfilled else "the arguments, as a JSON object: "
            try:
                value = self._value(question)
            except DuplicateKey as error:
                self._show.note(f"{error}; the call is refused")
                return Answer.reject()
            if fulfilled:
                return Answer.result(value)
            if isinstance(value, dict):
                return Answer.approve(value)
            self._show.note("that is no JSON object; the call is refused")
        return Answer.reject()

    def _approve(self, pending: Pending, *, fulfilled: bool) -> Answer:
        if fulfilled:
            self._granted.add(pending.tool)
        return Answer.approve()

    def _value(self, question: str) -> JSON:
        written = input(question)
        try:
            return decode_json(written)
        except DuplicateKey:
            raise
        except ValueError:
            return written

    def _has_mock(self, tool: str) -> bool:
        known = self._runtime.registry.get(tool)
        return known is not None and "mock" in known.bindings

    def settled(self) -> None:
        """The calls that were granted have been made; the next ones are asked for again."""
        self._granted.clear()


class ChatCommands:
    """What a line may say that begins with `/`."""

    def __init__(self, registry: Registry, policy: ToolPolicy, show: ChatDisplay, *, priced: bool) -> None:
        self._registry = registry
        self._policy = policy
        self._show = show
        self._priced = priced

    def run(self, line: str, conversation: Conversation) -> bool:
        """Do what a line says, and return whether it ends the conversation."""
        name = line.split(maxsplit=1)[0].removeprefix("/")
        if name not in COMMANDS:
            near = did_you_mean(f"/{name}", [f"/{each}" for each in COMMANDS])
            self._show.note(f"there is no command `/{name}`; {near or '`/help` lists them'}")
            return False
        _summary, lines = COMMANDS[name]
        for told in lines(self, conversation):
            self._show.note(told)
        return name == "quit"

    def _help(self, _conversation: Conversation) -> list[str]:
        return [f"/{name:<8}{summary}" for name, (summary, _lines) in COMMANDS.items()]

    def _tools(self, _conversation: Conversation) -> list[str]:
        return tools_lines(self._registry, self._policy)

    def _of_policy(self, _conversation: Conversation) -> list[str]:
        return policy_lines(self._policy)

    def _cost(self, conversation: Conversation) -> list[str]:
        return cost_lines(conversation, priced=self._priced)

    def _quit(self, _conversation: Conversation) -> list[str]:
        return []


COMMANDS: Mapping[str, tuple[str, Callable[[ChatCommands, Conversation], list[str]]]] = {
    "tools": ("the tools that the model may use", ChatCommands._tools),  # noqa: SLF001 -- the class's own table
    "policy": ("what holds it", ChatCommands._of_policy),  # noqa: SLF001
    "cost": ("what the conversation took so far", ChatCommands._cost),  # noqa: SLF001
    "help": ("these commands", ChatCommands._help),  # noqa: SLF001
    "quit": ("end the conversation, as Ctrl-D does", ChatCommands._quit),  # noqa: SLF001
}


def tools_lines(registry: Registry, policy: ToolPolicy) -> list[str]:
    """The tools that the model may use, with their modes, and which of them somebody is asked for."""
    rows = [
        (
            name,
            tool.mode or "unbound",
            "asks" if _fits(name, policy.ask) else "",
            first_sentence(tool.description),
        )
        for name, tool in sorted(registry.items())
        if _fits(name, policy.allow) and not _fits(name, policy.deny)
    ]
    return [*table(rows, terminal_width())] if rows else ["no tools"]


def _fits(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def policy_lines(policy: ToolPolicy) -> list[str]:
    """What holds the model, what is not as it is where nobody says anything marked with `*`."""
    rows = []
    for key in ToolPolicy.__dataclass_fields__:
        value = getattr(policy, key)
        plain = (
            list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        )
        rows.append(("*" if value != getattr(NO_POLICY, key) else " ", key, compact(plain)))
    return [*table(rows, terminal_width())]


def cost_lines(conversation: Conversation, *, priced: bool) -> list[str]:
    """What the conversation took so far."""
    tokens = conversation.tokens
    facts = [
        ("requests", f"{conversation.rounds:,}"),
        ("calls", f"{len(conversation.calls):,}"),
        (
            "tokens sent",
            f"{tokens.input:,}" + (f", {tokens.cached:,} of them cached" if tokens.cached else ""),
        ),
        ("tokens answered", f"{tokens.output:,}"),
        (
            "cost",
            f"{conversation.cost:.4f} USD"
            if priced
            else "unknown: say `--price input=... --price output=...`",
        ),
    ]
    return [*table(facts)]
