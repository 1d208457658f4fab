"""The tools of a conversation as its model knows them: what is declared, and which tool is meant by what it writes."""

from __future__ import annotations

from toolcrib.core.model import JSON
from toolcrib.formats.providers import Declaration, declare
from toolcrib.provider.loop.policy_enforcer import Rulebook
from toolcrib.provider.loop.result_paging import Reader
from toolcrib.registry.catalog import Hidden
from toolcrib.registry.registry import Registry
from toolcrib.security.tool_policy import CHOICES


class Offering:
    """What a registry and a policy offer to a model. Worked out once for each registry.

    Attributes:
        registry: The tools.
        reader: Reads on in long results.
    """

    def __init__(self, registry: Registry, rulebook: Rulebook, dialect: str, reader: Reader) -> None:
        """Declare the tools.

        Args:
            registry: The tools.
            rulebook: The policy; what it does not allow is not declared.
            dialect: The form of the declarations (`formats.providers.DIALECTS`).
            reader: Its tool is declared once there are long results.
        """
        self.registry = registry
        self.reader = reader
        tools = [tool for tool in registry.select() if rulebook.of(tool.name).allowed]
        names = {tool.name: registry.alias_of(tool.name) for tool in tools}
        self._declared = declare(tools, dialect, names)
        self._with_reader = (*self._declared, *declare([reader.tool], dialect, {}))
        self._by_name = {each.name: each for each in self._with_reader}
        self._by_tool = {each.tool: each for each in self._with_reader}

    def declared(self, *, reading: bool) -> tuple[Declaration, ...]:
        """What is declared, in the same order each time.

        Args:
            reading: Whether there are long results to read on in.
        """
        return self._with_reader if reading else self._declared

    def can_choose(self, tool_choice: str) -> bool:
        """Whether a choice of tools is possible: the tool that it names may be gone since the policy was checked."""
        return tool_choice in CHOICES or tool_choice in self._by_tool

    def choice(self, tool_choice: str) -> str:
        """A choice of tools as a request has it: the name of a tool is the declared one."""
        declaration = self._by_tool.get(tool_choice)
        return tool_choice if declaration is None else declaration.name

    def tool_of(self, written: str) -> str:
        """The name of the tool that is meant by what a model writes; the same text where none is."""
        declaration = self._by_name.get(written)
        if declaration is not None:
            return declaration.tool
        return written if written in self.registry else self.registry.named_by_alias(written) or written

    def knows(self, tool: str) -> bool:
        """Whether there is such a tool, offered or not."""
        return tool in self._by_tool or tool in self.registry

    def restored(self, tool: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
        """Arguments as a model gives them, as the tool takes them."""
        declaration = self._by_tool.get(tool)
        return arguments if declaration is None else declaration.restore(arguments)

    def hidden(self, tool: str) -> Hidden | None:
        """Why a tool that is there is not offered; None if it is, or is not there."""
        return self.registry.hidden(tool) if tool in self.registry else None
