"""What somebody may say to `toolcrib chat` besides what goes to the model: lines that begin with `/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from toolcrib.cli.chat_output import Show
from toolcrib.cli.value_output import table, terminal_width
from toolcrib.core.errors import did_you_mean
from toolcrib.core.text import compact, first_sentence
from toolcrib.provider import Conversation, ToolPolicy
from toolcrib.registry.registry import Registry
from toolcrib.security.tool_policy import NO_POLICY


class Commands:
    """What a line may say that begins with `/`."""

    def __init__(self, registry: Registry, policy: ToolPolicy, show: Show, *, priced: bool) -> None:
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


COMMANDS: Mapping[str, tuple[str, Callable[[Commands, Conversation], list[str]]]] = {
    "tools": ("the tools that the model may use", Commands._tools),  # noqa: SLF001 -- the class's own table
    "policy": ("what holds it", Commands._of_policy),  # noqa: SLF001
    "cost": ("what the conversation took so far", Commands._cost),  # noqa: SLF001
    "help": ("these commands", Commands._help),  # noqa: SLF001
    "quit": ("end the conversation, as Ctrl-D does", Commands._quit),  # noqa: SLF001
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
