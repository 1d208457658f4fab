"""What a rule is, and what it sees: the tools with their parameters, and the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from toolcrib.core.errors import Severity
from toolcrib.core.model import JSON, NOTHING, Descriptor
from toolcrib.core.pointers import keys_of, pointer_to
from toolcrib.loading.documents.document import Document

MOST_PARAMETERS: Final = 2000
"""Maximum number of parameters of a tool that are looked at, nested ones included."""

DEEPEST: Final = 16
"""Levels of nested parameters that are looked at."""


class LintBudget(NamedTuple):
    """How much the declarations of the tools may take of a model's context.

    Attributes:
        tool_tokens: Tokens of one tool.
        total_tokens: Tokens of all offered tools together.
        tools: Number of offered tools.
    """

    tool_tokens: int = 1000
    total_tokens: int = 30_000
    tools: int = 128


class LintSettings(NamedTuple):
    """`lint` of a project.

    Attributes:
        rules: LintRule -> severity, or `off`; the other rules have their own severities.
        ignore: Glob of tools -> rules that are not applied to them.
        budget: The budget.
        place: `file:line` of the settings; empty if there are none.
    """

    rules: Mapping[str, Severity | Literal["off"]] = NOTHING
    ignore: Mapping[str, tuple[str, ...]] = NOTHING
    budget: LintBudget = LintBudget()
    place: str = ""


class Edit(NamedTuple):
    """A correction of a document that changes no call.

    Attributes:
        old: The text that is corrected; empty for a value that is added.
        change: The old text, which may have had other corrections -> the new value.
        key: Key that is added to the object at the pointer of the finding; empty to replace the value there.
    """

    old: str
    change: Callable[[str], JSON]
    key: str = ""


class LintFinding(NamedTuple):
    """What a rule found.

    Attributes:
        message: What a model will misread, and why.
        tool: The tool; None for the tools together.
        pointer: JSON Pointer in the document of the tool.
        hint: What to do.
        edit: The correction that `--fix` makes; None if a person must decide.
    """

    message: str
    tool: Descriptor | None = None
    pointer: str = ""
    hint: str = ""
    edit: Edit | None = None


class LintedParameter(NamedTuple):
    """A property of the arguments, at any depth.

    Attributes:
        name: Its name.
        path: Its name below those of the objects that contain it: `address.city`, `items[].sku`.
        schema: Its schema, with the target of a reference merged in.
        pointer: JSON Pointer of the property in the document of the tool.
        required: Whether its object requires it.
        depth: Number of objects above it.
    """

    name: str
    path: str
    schema: dict[str, Any]
    pointer: str
    required: bool
    depth: int = 0

    @property
    def description(self) -> str:
        """Its description; empty if there is none."""
        said = self.schema.get("description")
        return said.strip() if isinstance(said, str) else ""

    @property
    def types(self) -> frozenset[str]:
        """The types that it may have, without null; empty if it may have any."""
        return frozenset(_types(self.schema)) - {"null"}

    @property
    def values(self) -> list[JSON]:
        """The values that it may have, if they are listed, without null."""
        listed = self.schema.get("enum")
        for branch in _branches(self.schema) if listed is None else ():
            listed = branch.get("enum") or listed
        return [value for value in listed if value is not None] if isinstance(listed, list) else []


class LintedTool:
    """A tool, with what several rules need of it."""

    def __init__(self, tool: Descriptor) -> None:
        self.tool = tool

    @property
    def name(self) -> str:
        """Its name, without the namespace of its source."""
        namespace = self.tool.origin.namespace
        return self.tool.name.removeprefix(f"{namespace}__") if namespace else self.tool.name

    @cached_property
    def parameters(self) -> list[LintedParameter]:
        """Its parameters, in the order of the document; those of a reused definition are listed once."""
        schema = self.tool.input_schema
        return [*_Parameters(schema)] if isinstance(schema, dict) else []

    @property
    def arguments(self) -> list[LintedParameter]:
        """Its parameters that are not within others."""
        return [each for each in self.parameters if not each.depth]

    def written(self, pointer: str) -> JSON:
        """What its document says at a pointer; None if nothing."""
        document = document_of(self.tool)
        value: Any = None if document is None else document.value
        for key in keys_of(pointer):
            value = value.get(key) if isinstance(value, dict) else None
        return value  # type: ignore[no-any-return]


def document_of(tool: Descriptor) -> Document | None:
    """The document that a tool was read from, if it is known."""
    document = getattr(tool.origin.locate, "__self__", None)
    return document if isinstance(document, Document) else None


class LintedTools(NamedTuple):
    """What the rules see.

    Attributes:
        tools: The tools, sorted by name.
        offered: Names of the tools that a model sees.
        count_tokens: Counts the tokens of a text.
        exact: Whether the count is exact.
        called: Names of the tools that a scenario calls.
        asks: Whether each call of a tool needs approval by the rules of the project.
        settings: The settings.
    """

    tools: Sequence[LintedTool]
    offered: frozenset[str] = frozenset()
    count_tokens: Callable[[str], int] = len
    exact: bool = False
    called: frozenset[str] = frozenset()
    asks: Callable[[Descriptor], bool] = lambda _tool: False
    settings: LintSettings = LintSettings()

    @property
    def seen(self) -> list[LintedTool]:
        """The tools that a model sees together."""
        return [each for each in self.tools if each.tool.name in self.offered]


class LintRule(NamedTuple):
    """A rule.

    Attributes:
        name: Its stable name.
        severity: How serious a finding is.
        summary: What it finds, in one sentence.
        why: What a model does wrong because of it, and what to do.
        check: Yields the findings.
        bad: Descriptors in which it finds something.
        good: The same ones, corrected.
        fix: What `--fix` does; empty if a person must decide.
    """

    name: str
    severity: Severity
    summary: str
    why: str
    check: Callable[[LintedTools], Iterator[LintFinding]]
    bad: str
    good: str
    fix: str = ""


def each_tool(
    check: Callable[[LintedTool], Iterator[LintFinding]],
) -> Callable[[LintedTools], Iterator[LintFinding]]:
    """A check of the tools together that looks at each of them alone."""

    def check_all(linted: LintedTools) -> Iterator[LintFinding]:
        for each in linted.tools:
            for finding in check(each):
                yield finding._replace(tool=each.tool)

    return check_all


def each_parameter(
    check: Callable[[LintedTool, LintedParameter], Iterator[LintFinding]],
) -> Callable[[LintedTools], Iterator[LintFinding]]:
    """A check of the tools together that looks at each parameter alone."""

    def check_tool(each: LintedTool) -> Iterator[LintFinding]:
        for parameter in each.parameters:
            for finding in check(each, parameter):
                yield finding if finding.pointer else finding._replace(pointer=parameter.pointer)

    return each_tool(check_tool)


_WITHIN: Final = ("allOf", "anyOf", "oneOf", "then", "else")
"""Keywords whose schemas describe the same object."""


class _Parameters:
    """Finds the parameters of a schema; each schema object is visited once."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._seen: set[int] = set()
        self._left = MOST_PARAMETERS

    def __iter__(self) -> Iterator[LintedParameter]:
        return self._within(self._root, ("input_schema",), "", 0, frozenset())

    def _within(
        self, schema: object, path: tuple[str | int, ...], prefix: str, depth: int, above: frozenset[str]
    ) -> Iterator[LintedParameter]:
        """Yield the parameters that a schema of an object or a list defines."""
        if not isinstance(schema, dict) or id(schema) in self._seen or depth > DEEPEST:
            return
        self._seen.add(id(schema))
        target, place = self._target(schema)
        if target is not schema:
            yield from self._within(target, place or path, prefix, depth, above)
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        for name, inner in known.items():
            # A branch that refines a property of the object around it does not define another one.
            if not isinstance(inner, dict) or name in above or not self._left:
                continue
            self._left -= 1
            at = (*path, "properties", name)
            target, place = self._target(inner)
            merged = {**target, **inner} if target is not inner else inner
            yield LintedParameter(name, f"{prefix}{name}", merged, pointer_to(at), name in needed, depth)
            yield from self._within(inner, at, f"{prefix}{name}.", depth + 1, frozenset())
        for keyword in _WITHIN:
            inner = schema.get(keyword)
            for index, branch in enumerate(inner if isinstance(inner, list) else [inner]):
                at = (*path, keyword, index) if isinstance(inner, list) else (*path, keyword)
                yield from self._within(branch, at, prefix, depth, above | known.keys())
        for keyword in ("items", "additionalProperties"):
            mark = "[]." if keyword == "items" else "*."
            yield from self._within(
                schema.get(keyword), (*path, keyword), f"{prefix.removesuffix('.')}{mark}", depth, frozenset()
            )

    def _target(self, schema: dict[str, Any]) -> tuple[dict[str, Any], tuple[str | int, ...] | None]:
        """The schema that a reference leads to, with its path in the document; the schema itself without one."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema, None
        found: Any = self._root
        keys = keys_of(reference[1:])
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return (found, ("input_schema", *keys)) if isinstance(found, dict) else (schema, None)


def _branches(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for keyword in ("anyOf", "oneOf", "allOf"):
        inner = schema.get(keyword)
        yield from (each for each in inner if isinstance(each, dict)) if isinstance(inner, list) else ()


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    said = schema.get("type")
    if said is not None:
        yield from [said] if isinstance(said, str) else [each for each in said if isinstance(each, str)]
        return
    for branch in _branches(schema):
        yield from _types(branch)
