"""How a conversation looks: at a terminal, and as lines of JSON. Nothing that is said can steer the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import click

from toolcrib.cli.value_output import cut, terminal_width
from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import JSON
from toolcrib.core.text import compact, escape_terminal
from toolcrib.provider import Conversation, Event, Stop
from toolcrib.provider.redaction import Discretion
from toolcrib.registry.registry import Registry

_SHORT = 200
"""Columns of arguments and results where nobody knows how wide a line may be."""


class Show(Protocol):
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
        """It is an event as well."""

    def stopped(self, conversation: Conversation) -> None:
        """It is an event as well; why is told to people."""
        tell_stop(conversation)

    def broken_off(self) -> None:
        """It is an event as well."""

    def error(self, error: ToolcribError) -> None:
        """A turn could not be held; told to people."""
        tell_error(error.message, error.code, error.hint)

    def note(self, text: str) -> None:
        """Told to people."""
        click.echo(escape_terminal(text), err=True)

    def warning(self, text: str) -> None:
        """Told to people."""
        tell_warning(text)

    def ended(self, conversation: Conversation) -> None:
        """The whole conversation, as another process can go on with it, without the secrets of its calls."""
        whole = Discretion(self._registry.get, conversation.calls).value(conversation.as_json())
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
        tell_stop(conversation)

    def broken_off(self) -> None:
        """Say that the turn was cancelled."""
        self._end_line()
        tell_warning("the turn was cancelled; what was said is kept")

    def error(self, error: ToolcribError) -> None:
        """Say what went wrong."""
        self._end_line()
        tell_error(error.message, error.code, error.hint)

    def note(self, text: str) -> None:
        """Say something else."""
        self._end_line()
        click.echo(escape_terminal(text))

    def warning(self, text: str) -> None:
        """Say what is not as it must be."""
        self._end_line()
        tell_warning(text)

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
    return cut(escape_terminal(" ".join(text.split())), _SHORT if width is None else max(width - 20, 20))


def tell_stop(conversation: Conversation) -> None:
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
        tell_error(message, said["code"] or stop.value, said["hint"])
        return
    tell_warning(f"the turn ended: {stop}" + (f": {conversation.detail}" if conversation.detail else ""))


def tell_warning(text: str) -> None:
    """Say on stderr what is not as it must be."""
    click.echo(click.style(escape_terminal(text), fg="yellow"), err=True)


def tell_error(message: str, code: str, hint: str) -> None:
    """Say on stderr what went wrong: code, message, the way out."""
    first, *rest = escape_terminal(message).splitlines() or [""]
    click.echo(f"{click.style(code, fg='red', bold=True)}: {first}", err=True)
    for line in [*rest, *(f"hint: {escape_terminal(hint)}".splitlines() if hint else [])]:
        click.echo(f"    {line}", err=True)
