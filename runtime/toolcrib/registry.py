"""The registry: an immutable mapping from names to descriptors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from toolcrib.errors import DocumentError, Problem, near_misses
from toolcrib.loading.contents import Content, log_problems
from toolcrib.loading.sources import parse
from toolcrib.model import Descriptor
from toolcrib.protocols import Kinds


class Registry(Mapping[str, Descriptor]):
    """Tools by name, in the order of their names. Changing one gives a new registry."""

    __slots__ = ("_revision", "_tools")

    def __init__(self, tools: Iterable[Descriptor] = (), *, revision: int = 1) -> None:
        """Hold the tools.

        Raises:
            DocumentError: Two tools have the same name; both places are named.
        """
        kept, problems = without_duplicates(tools)
        if problems:
            raise DocumentError(problems)
        self._tools: Mapping[str, Descriptor] = MappingProxyType(
            {tool.name: tool for tool in sorted(kept, key=_name)}
        )
        self._revision = revision

    @classmethod
    def parse(
        cls,
        name: str,
        content: Content,
        *,
        kinds: Kinds,
        problems: list[Problem] | None = None,
    ) -> Registry:
        """A registry of the descriptors in a text, or of those that are already mappings.

        Args:
            name: What the text is called in problems; read as JSON if it ends in `.json`.
            content: YAML or JSON, one document as a mapping, or several in a list.
            kinds: What the modes say of their blocks (`toolcrib.Executors.installed()`).
            problems: Receives all that is wrong; the good tools are kept.

        Raises:
            DocumentError: Nobody gave a list, and there is an error, or no descriptor at all. Without a list
                warnings and notices beside good tools are logged.
        """
        loaded = parse(name, content, kinds)
        tools, found = without_duplicates(loaded.tools)
        found = [*loaded.problems, *found]
        if problems is not None:
            problems += found
        elif not tools or any(problem.severity == "error" for problem in found):
            raise DocumentError(found or [_nothing(name)])
        else:
            log_problems(found)
        return cls(tools)

    @property
    def revision(self) -> int:
        """1 for a new registry, one more for each one derived from it."""
        return self._revision

    def __getitem__(self, name: str) -> Descriptor:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Registry({len(self)} tools, revision {self.revision})"

    def with_tool(self, tool: Descriptor) -> Registry:
        """A new registry with this tool, in place of one of the same name."""
        return self.with_tools([tool])

    def with_tools(self, tools: Iterable[Descriptor]) -> Registry:
        """A new registry with these tools, each in place of one of the same name."""
        return Registry(
            {**self._tools, **{tool.name: tool for tool in tools}}.values(), revision=self.revision + 1
        )

    def without(self, *names: str) -> Registry:
        """A new registry without these tools.

        Raises:
            KeyError: No tool has one of the names.
        """
        for name in names:
            self._tools[name]
        return Registry(
            (tool for tool in self.values() if tool.name not in names), revision=self.revision + 1
        )

    def select(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        mode: str | None = None,
        source: str | None = None,
        pack: str | None = None,
        label: str | None = None,
    ) -> list[Descriptor]:
        """The tools that fit all that is given, in the order of their names.

        Args:
            name: Glob over the name, case-sensitive.
            tag: One of the tags.
            mode: The mode in force.
            source: Glob over the file that the tool came from.
            pack: Name of its pack.
            label: `key` or `key=value`.
        """
        tests: list[Callable[[Descriptor], bool]] = []
        if name is not None:
            tests.append(lambda tool: fnmatchcase(tool.name, name))
        if tag is not None:
            tests.append(lambda tool: tag in tool.tags)
        if mode is not None:
            tests.append(lambda tool: tool.mode == mode)
        if source is not None:
            tests.append(lambda tool: fnmatchcase(tool.origin.source, source))
        if pack is not None:
            tests.append(lambda tool: tool.origin.pack == pack)
        if label is not None:
            key, equals, value = label.partition("=")
            tests.append(lambda tool: key in tool.labels and (not equals or tool.labels[key] == value))
        return [tool for tool in self.values() if all(test(tool) for test in tests)]

    def near(self, name: str) -> list[str]:
        """The names that a name which is not here may have meant."""
        return near_misses(name, self)


def _name(tool: Descriptor) -> str:
    return tool.name


def _nothing(name: str) -> Problem:
    message = "this holds no descriptor"
    hint = "scenarios are read by `Runtime.open`"
    return Problem(code="unrecognised_file", message=message, hint=hint, source=name, line=1, column=1)


def without_duplicates(tools: Iterable[Descriptor]) -> tuple[list[Descriptor], list[Problem]]:
    """The tools, the first of each name, and a problem for every other one."""
    first: dict[str, Descriptor] = {}
    problems = []
    for tool in tools:
        if tool.name in first:
            problems.append(_duplicate(first[tool.name], tool))
        else:
            first[tool.name] = tool
    return list(first.values()), problems


def _duplicate(first: Descriptor, second: Descriptor) -> Problem:
    """The problem of two tools of one name; it stands at the second and names the first."""
    line, column = second.origin.locate("/name")
    return Problem(
        code="duplicate_tool",
        message=f"`{second.name}` is already the name of a tool in {first.origin.place('/name')}",
        pointer="/name",
        hint="rename one of them, or remove one of the files",
        source=second.origin.source,
        line=line or second.origin.line,
        column=column or 1,
    )
