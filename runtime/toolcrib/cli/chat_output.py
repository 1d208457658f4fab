"""Display of a conversation at a terminal or as JSON Lines, its approval prompts, and its `/` commands.

Text of models and tools is escaped, so that it cannot send control sequences to the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol, TextIO

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
"""Columns of arguments and results if the width of the terminal is unknown."""


class ChatDisplay(Protocol):
    """Shows a conversation to the user."""

    def event(self, event: Event) -> None:
        """Something happened."""
        ...

    def said(self, line: str) -> None:
        """The user's message was read from a pipe."""
        ...

    def stopped(self, conversation: Conversation) -> None:
        """A turn ended."""
        ...

    def broken_off(self) -> None:
        """The user cancelled a turn."""
        ...

    def error(self, error: ToolcribError) -> None:
        """A turn failed."""
        ...

    def note(self, text: str) -> None:
        """A remark for the user."""
        ...

    def warning(self, text: str) -> None:
        """A warning for the user."""
        ...

    def ended(self, conversation: Conversation) -> None:
        """The conversation ended."""
        ...


class JsonLines:
    """One JSON object per line: the events, then the conversation as `{"type": "conversation", ...}`."""

    def __init__(self, registry: Registry, out: TextIO) -> None:
        """Print on `out`."""
        self._registry = registry
        self._out = out

    def event(self, event: Event) -> None:
        """Something happened."""
        self._line(event.as_json())

    def said(self, line: str) -> None:
        """Print nothing: the event has been written."""

    def stopped(self, conversation: Conversation) -> None:
        """Print the reason on stderr; the event has been written to stdout."""
        print_stop(conversation)

    def broken_off(self) -> None:
        """Print nothing: the event has been written."""

    def error(self, error: ToolcribError) -> None:
        """Print the error on stderr."""
        print_error(error.message, error.code, error.hint)

    def note(self, text: str) -> None:
        """Print the remark on stderr."""
        click.echo(escape_terminal(text), err=True)

    def warning(self, text: str) -> None:
        """Print the warning on stderr."""
        print_warning(text)

    def ended(self, conversation: Conversation) -> None:
        """Print the whole conversation, from which another process can resume, with the secrets of its calls masked."""
        whole = CallRedactor(self._registry.get, conversation.calls).value(conversation.as_json())
        self._line({"type": "conversation", **whole} if isinstance(whole, dict) else {})

    def _line(self, value: Mapping[str, JSON]) -> None:
        click.echo(compact(dict(value)), file=self._out)


class Terminal:
    """Prints text as it streams, and each call on its own line; everything but the model's text is dimmed."""

    def __init__(self, out: TextIO, *, echoes: bool) -> None:
        """Start at the beginning of a line.

        Args:
            out: The output.
            echoes: Print the user's messages, because a pipe does not echo them.
        """
        self._echoes = echoes
        self._out = out
        self._within = ""
        self._calls: dict[str, dict[str, Any]] = {}
        self._at_once: dict[str, list[str]] = {}
        self._over: set[str] = set()

    def event(self, event: Event) -> None:
        """Show an event, if its type is visible."""
        tell = _TELLS.get(event.type)
        if tell is not None:
            tell(self, event)

    def said(self, line: str) -> None:
        """Show the user's message if the terminal has not echoed it."""
        if self._echoes:
            click.echo(click.style(f"> {escape_terminal(line)}", bold=True), file=self._out)

    def stopped(self, conversation: Conversation) -> None:
        """Print why the turn ended, unless it ended with an answer."""
        self._end_line()
        print_stop(conversation)

    def broken_off(self) -> None:
        """Print that the turn was cancelled."""
        self._end_line()
        print_warning("the turn was cancelled; the conversation so far is kept")

    def error(self, error: ToolcribError) -> None:
        """Print the error."""
        self._end_line()
        print_error(error.message, error.code, error.hint)

    def note(self, text: str) -> None:
        """Print the remark."""
        self._end_line()
        click.echo(escape_terminal(text), file=self._out)

    def warning(self, text: str) -> None:
        """Print the warning."""
        self._end_line()
        print_warning(text)

    def ended(self, _conversation: Conversation) -> None:
        """End the line, so that the shell prompt starts on a new one."""
        self._end_line()

    def _text(self, event: Event) -> None:
        self._piece("text", escape_terminal(event.text))

    def _reasoning(self, event: Event) -> None:
        self._piece("reasoning", click.style(escape_terminal(event.text), dim=True))

    def _piece(self, kind: str, shown: str) -> None:
        if self._within != kind:
            self._end_line()
        self._within = kind
        click.echo(shown, file=self._out, nl=False)

    def _closed(self, _event: Event) -> None:
        self._end_line()

    def _call(self, event: Event) -> None:
        """Collect what the events report about a call; show it when it begins and when it ends."""
        call = self._calls.setdefault(event.id, {"tool": "", "arguments": None})
        call["tool"] = event.tool or call["tool"]
        # Later events of a call omit its arguments.
        call["arguments"] = call["arguments"] if event.arguments is None else event.arguments
        if event.status in {"running", "waiting", "completed", "failed"}:
            self._tell_call(event.id, call)
        name = self._name(event.id, call["tool"])
        if event.status in {"completed", "failed"}:
            self._over.add(event.id)
            colour = "green" if event.outcome == "ok" else "red"
            self._line(
                f"  {name}: ", click.style(event.outcome, fg=colour), f" {_short(event.text, self._out)}"
            )
        elif event.text:
            self._line(f"  {name}: {_short(event.text, self._out)}")

    def _tell_call(self, id_: str, call: Mapping[str, Any]) -> None:
        at_once = self._at_once.setdefault(call["tool"], [])
        if id_ in at_once or id_ in self._over:
            return
        # All earlier calls of the tool have ended, so numbering starts again: `#1` names one call of a
        # parallel batch only.
        if self._over.issuperset(at_once):
            at_once.clear()
        at_once.append(id_)
        arguments = "" if call["arguments"] is None else _short(compact(call["arguments"]), self._out)
        self._line(f"* {self._name(id_, call['tool'])} {arguments}")

    def _name(self, id_: str, tool: str) -> str:
        """Name of the tool, with a number if several calls of it run in parallel."""
        at_once = self._at_once.get(tool, [])
        number = f" #{at_once.index(id_) + 1}" if len(at_once) > 1 and id_ in at_once else ""
        return f"{escape_terminal(tool)}{number}"

    def _line(self, *parts: str) -> None:
        self._end_line()
        # Nested styles would reset each other, so parts with a colour of their own are left alone.
        dim = [part if "\x1b" in part else click.style(part, dim=True) for part in parts]
        click.echo("".join(dim), file=self._out)

    def _end_line(self) -> None:
        if self._within:
            click.echo(file=self._out)
        self._within = ""


_TELLS: Mapping[str, Callable[[Terminal, Event], None]] = {
    "text": Terminal._text,  # noqa: SLF001 -- the class's own table
    "reasoning": Terminal._reasoning,  # noqa: SLF001
    "closed": Terminal._closed,  # noqa: SLF001
    "call": Terminal._call,  # noqa: SLF001
    "call_updated": Terminal._call,  # noqa: SLF001
}


def _short(text: str, out: TextIO) -> str:
    """Fit a text on one line."""
    width = terminal_width(out)
    return truncate(escape_terminal(" ".join(text.split())), _SHORT if width is None else max(width - 20, 20))


def print_stop(conversation: Conversation) -> None:
    """Print on stderr why a turn ended, unless it ended with an answer or with pending calls."""
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
    """Print a warning on stderr."""
    click.echo(click.style(escape_terminal(text), fg="yellow"), err=True)


def print_error(message: str, code: str, hint: str) -> None:
    """Print an error on stderr: code, message and hint."""
    first, *rest = escape_terminal(message).splitlines() or [""]
    click.echo(f"{click.style(code, fg='red', bold=True)}: {first}", err=True)
    for line in [*rest, *(f"hint: {escape_terminal(hint)}".splitlines() if hint else [])]:
        click.echo(f"    {line}", err=True)


NOBODY = "no user was available to ask"
"""Why a call that needs approval is refused without a terminal."""


class ApprovalPrompt:
    """Asks the user about pending calls.

    Attributes:
        asks: Whether a user can be asked.
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
        """Set up the prompts.

        Args:
            runtime: Binds the mocks of granted tools.
            approved: Globs of tools whose calls are approved without asking.
            asks: Whether a user can be asked.
            show: Prints the questions.
            before: Client of a script, which fulfils its tools before the user is asked.
        """
        self.asks = asks
        self._runtime = runtime
        self._approved = approved
        self._show = show
        self._before = before
        self._granted: set[str] = set()

    async def client(self, call: ClientCall) -> JSON | Result:
        """Fulfil a granted call with the mock of its tool; defer any other call until the user answers."""
        # A granted call skips the script, which has deferred it before.
        if self._before is not None and call.tool not in self._granted:
            answer: JSON | Result = await self._before(call)
            return answer
        if call.tool not in self._granted:
            return call.defer()
        bound = engine_of(self._runtime).in_mode(call.call.tool, "mock")
        return await bound.execute(call.call._replace(tool=call.call.tool._replace(mode="mock")))

    def answers(self, pending: Iterable[Pending]) -> dict[str, Answer]:
        """Return the answers to pending calls."""
        return {each.id: self._answer(each) for each in pending}

    def _answer(self, pending: Pending) -> Answer:
        fulfilled = pending.code == DEFERRED
        mocked = fulfilled and self._has_mock(pending.tool)
        # A deferred call needs a result, not only consent: `--approve` covers it only if a mock can produce
        # the result.
        if any(fnmatchcase(pending.tool, glob) for glob in self._approved) and (mocked or not fulfilled):
            return self._approve(pending, fulfilled=fulfilled)
        if not self.asks:
            return Answer.reject(NOBODY)
        told = pending.details.get("message") or pending.message
        self._show.note(f"\n{pending.tool} {compact(pending.arguments)}\n{told}")
        try:
            return self._asked(pending, fulfilled=fulfilled, mocked=mocked)
        # Ctrl-C at the prompt refuses this call only; the conversation continues.
        except (EOFError, KeyboardInterrupt, click.Abort):
            return Answer.reject("the user did not answer")

    def _asked(self, pending: Pending, *, fulfilled: bool, mocked: bool) -> Answer:
        ways = [*(["y"] if mocked or not fulfilled else []), "N", "result" if fulfilled else "edit"]
        ways[1:1] = [] if fulfilled else ["session", "always"]
        what = "give its result" if fulfilled else "make the call"
        said = input(f"{what}? [{'/'.join(ways)}] ").strip().casefold()
        if said in {"y", "yes"} and "y" in ways:
            return self._approve(pending, fulfilled=fulfilled)
        if said and not fulfilled and "session".startswith(said):
            return Answer.approve(scope="session")
        if said and not fulfilled and "always".startswith(said):
            return Answer.approve(scope="always")
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
            self._show.note("not a JSON object; the call is refused")
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
        """Forget the granted calls, which have been made; the next ones are asked about again."""
        self._granted.clear()


class ChatCommands:
    """The commands that begin with `/`."""

    def __init__(self, registry: Registry, policy: ToolPolicy, show: ChatDisplay, *, priced: bool) -> None:
        self._registry = registry
        self._policy = policy
        self._show = show
        self._priced = priced

    def run(self, line: str, conversation: Conversation) -> bool:
        """Run the command on a line and return whether it ends the conversation."""
        name = line.split(maxsplit=1)[0].removeprefix("/")
        if name not in COMMANDS:
            near = did_you_mean(f"/{name}", [f"/{each}" for each in COMMANDS])
            self._show.note(f"unknown command `/{name}`; {near or 'run `/help` to list them'}")
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
    "tools": ("list the tools that the model may use", ChatCommands._tools),  # noqa: SLF001 -- the class's own table
    "policy": ("show the tool policy", ChatCommands._of_policy),  # noqa: SLF001
    "cost": ("show the tokens and the cost so far", ChatCommands._cost),  # noqa: SLF001
    "help": ("list the commands", ChatCommands._help),  # noqa: SLF001
    "quit": ("end the conversation, like Ctrl-D", ChatCommands._quit),  # noqa: SLF001
}


def tools_lines(registry: Registry, policy: ToolPolicy) -> list[str]:
    """A table of the tools that the model may use, with their modes and whether their calls need approval."""
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
    """A table of the tool policy; values that differ from the default are marked with `*`."""
    rows = []
    for key in ToolPolicy.__dataclass_fields__:
        value = getattr(policy, key)
        plain = (
            list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        )
        rows.append(("*" if value != getattr(NO_POLICY, key) else " ", key, compact(plain)))
    return [*table(rows, terminal_width())]


def cost_lines(conversation: Conversation, *, priced: bool) -> list[str]:
    """A table of the requests, calls, tokens and cost so far."""
    tokens = conversation.tokens
    facts = [
        ("requests", f"{conversation.rounds:,}"),
        ("calls", f"{len(conversation.calls):,}"),
        (
            "tokens sent",
            f"{tokens.input:,}" + (f", {tokens.cached:,} of them cached" if tokens.cached else ""),
        ),
        ("tokens received", f"{tokens.output:,}"),
        (
            "cost",
            f"{conversation.cost:.4f} USD"
            if priced
            else "unknown; add `--price input=... --price output=...`",
        ),
    ]
    return [*table(facts)]
