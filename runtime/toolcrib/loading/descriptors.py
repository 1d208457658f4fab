"""Parse descriptors and overrides, and check toolsets and defaults.

An override (`override: true`) changes the descriptor of a tool from another file. Each top-level key of the override
replaces the whole key of the descriptor. Paths within that key are relative to the override; paths within other keys
are relative to the overridden document.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import (
    JSON,
    NO_FIXTURE,
    Annotations,
    Dependencies,
    Descriptor,
    Estimate,
    Example,
    Fixture,
    Icon,
    Origin,
    Schema,
    Toolset,
)
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.protocols import Files, Kinds
from toolcrib.core.schemas import KNOWN_MODES, envelope
from toolcrib.core.server_config import MODE
from toolcrib.core.text import canonical, compact, parse_size
from toolcrib.loading.document_checks import (
    TOO_MANY,
    DocumentChecker,
    hidden_problems,
    may_have_hidden_characters,
    valid_parts,
)
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.files import CachedFiles, files_at
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.settings import check_limits, flatten_limits, parse_limits
from toolcrib.loading.tool_requirements import (
    check_declared_capabilities,
    check_path_marks,
    check_plan_mark,
    check_tool_requirements,
    with_derived_capabilities,
)
from toolcrib.schema.validation import Validator, Violation, check_schema
from toolcrib.schema.validation.schema_check import SMALL, is_evident

LONGEST_TIMEOUT = 600.0
"""The longest timeout of a tool, in seconds."""

TEXT_KEYS = tuple(
    key for key, schema in envelope("descriptor")["properties"].items() if schema.get("type") == "string"
)
"""Keys whose value is text even if it looks like a number (`version: 1.10`)."""

MARKS = (
    "input_schema",
    "output_schema",
    "mock",
    "parameters",
    "mode",
    "examples",
    "annotations",
    *KNOWN_MODES,
)
"""A mapping with `name` and one of these keys is a descriptor."""


def is_descriptor(value: JSON, modes: Iterable[str]) -> bool:
    """Whether a document is meant as a descriptor: it has a name and a description, a schema or a mode."""
    return (
        isinstance(value, dict)
        and "name" in value
        and ("description" in value or any(key in value for key in (*MARKS, *modes)))
    )


class DescriptorSource(NamedTuple):
    """A document that describes a tool in our own form; foreign forms are converted before.

    Attributes:
        document: The document.
        files: The files that it may name.
        pack: The pack that contains it.
        fixture: The initial contents of its store.
    """

    document: Document
    files: Files | None = None
    pack: str = ""
    fixture: Fixture = NO_FIXTURE


Parsed: TypeAlias = tuple[Descriptor | None, list[Problem]]
"""The descriptor, or None if it is rejected, and all problems with their positions."""


def parse_descriptor(
    document: Document, kinds: Kinds, shape: DocumentChecker, *, files: Files | None = None, pack: str = ""
) -> Parsed:
    """Parse one descriptor; see `DescriptorSource` and `parse_descriptors`."""
    return parse_descriptors([DescriptorSource(document, files, pack)], kinds, shape)[0]


def parse_descriptors(
    given: Iterable[DescriptorSource], kinds: Kinds, shape: DocumentChecker
) -> list[Parsed]:
    """Parse descriptors.

    Args:
        given: The documents.
        kinds: The schemas and checks of the installed modes.
        shape: The descriptor schema, compiled with the blocks of the installed modes.
    """
    # Each check visits all descriptors before the next check begins: the data of one check stays in the processor's
    # cache, which is a fifth faster than one descriptor after the other.
    drafts = [_DescriptorParser(each) for each in given]
    for draft in drafts:
        draft.judge(shape)
    for draft in drafts:
        draft.build(kinds, shape)
    for draft in drafts:
        draft.check_schemas()
    for draft in drafts:
        draft.check_blocks(kinds)
    return [draft.parsed() for draft in drafts]


class _DescriptorParser:
    """Parses one descriptor step by step. If its shape is unusable there is no tool, and no later check runs.

    Attributes:
        given: The document and its context.
        problems: The problems found so far.
        tool: The tool, made of the valid parts.
        judged: The tool without invalid schemas.
    """

    def __init__(self, given: DescriptorSource) -> None:
        self.given = given
        self.problems: list[Problem] = []
        self.tool: Descriptor | None = None
        self.judged: Descriptor | None = None
        self._value: JSON = None
        self._size = 0
        self._whole = True

    def judge(self, shape: DocumentChecker) -> None:
        """Check the document against the descriptor schema."""
        self._value, self.problems = shape.check(self.given.document, TEXT_KEYS)

    def build(self, kinds: Kinds, shape: DocumentChecker) -> None:
        """Build the tool, and check its keys against each other."""
        value = self._value
        if not isinstance(value, dict) or any(problem.code == TOO_MANY for problem in self.problems):
            return
        kept = valid_parts(value, self.problems, shape)
        self._whole = kept is value
        text = canonical(value)
        if may_have_hidden_characters(text):
            self.problems += hidden_problems(value)
        content = text.encode("utf-8")
        self._size = len(content)
        origin = _origin(self.given, hashlib.sha256(content).hexdigest())
        # The placeholder keeps a descriptor without a valid name checkable; it is rejected in any case.
        tool = _build({"name": "unnamed", **kept}, origin, kinds)._replace(fixture=self.given.fixture)
        # If the block of a mode was dropped as faulty, `mode` would seem to name a missing block.
        if kept is value or all(key in kept or key in _PLAIN for key in value):
            self.problems += _check_mode(tool, kinds)
        self.problems += _check_timeout(tool)
        self.problems += check_limits(kept, "")
        tool = with_derived_capabilities(tool, kinds)
        if not _REQUIREMENT_KEYS.isdisjoint(kept):
            self.problems += check_tool_requirements(kept, tool)
        if '"x-path"' in text:
            self.problems += check_path_marks(tool)
        if '"x-plan"' in text:
            self.problems += check_plan_mark(tool)
        self.tool = self.judged = tool

    def check_schemas(self) -> None:
        """Check the schemas, and the examples against them."""
        tool = self.tool
        # Most schemas are small and plain. Recognising them saves compiling them: loading 300 files takes 569 ms instead
        # of 767 ms.
        if tool is None or (self._size <= SMALL and _is_evident(tool)):
            return
        self.problems += (found := _check_schemas(tool))
        self.judged = _without_broken_schemas(tool, found)
        self.problems += _check_examples(self.judged)

    def check_blocks(self, kinds: Kinds) -> None:
        """Check the blocks of all modes."""
        if self.judged is not None:
            self.problems += check_declared_capabilities(self.judged, kinds)
            for mode in self.judged.bindings:
                found = kinds.check_binding(mode, self.judged)
                # A dropped part may be the one that reads the name, so it cannot be called unused.
                self.problems += [each for each in found if self._whole or each.code != "unused_name"]

    def parsed(self) -> Parsed:
        """The result."""
        refused = any(problem.severity == "error" for problem in self.problems)
        return None if refused else self.tool, [self.given.document.place(each) for each in self.problems]


def _without_broken_schemas(tool: Descriptor, problems: Sequence[Problem]) -> Descriptor:
    """The tool with invalid schemas replaced by `true`, so that examples and blocks are not judged by them."""
    broken = {problem.pointer.split("/")[1] for problem in problems if problem.severity == "error"}
    return tool._replace(
        input_schema=True if "input_schema" in broken else tool.input_schema,
        output_schema=True if "output_schema" in broken else tool.output_schema,
    )


def _origin(given: DescriptorSource, digest: str) -> Origin:
    document = given.document
    return Origin(
        source=document.source,
        line=document.line,
        digest=digest,
        pack=given.pack,
        written=_written(document.value),
        files=given.files,
        locate=document.position,
    )


def _written(value: JSON) -> frozenset[str]:
    if not isinstance(value, dict):
        return frozenset()
    limits = value.get("limits")
    below = flatten_limits(limits) if isinstance(limits, dict) else {}
    return frozenset(value).union(f"limits.{key}" for key in below)


def _build(value: dict[str, Any], origin: Origin, kinds: Kinds) -> Descriptor:
    plain: dict[str, Any] = {}
    bindings: dict[str, JSON] = {}
    for key, item in value.items():
        if key not in _KEYS:
            bindings[key] = item
        elif key not in _NOT_OF_THE_TOOL:
            plain[_FIELDS.get(key, key)] = _READERS[key](item) if key in _READERS else item
    mode = plain.get("mode")
    # Without a block, the server and its tool follow from the name.
    if mode == MODE and mode not in bindings and kinds.schema_for(mode) is not None:
        bindings[mode] = {}
    # `mode` is only needed to choose between several blocks.
    if plain.get("mode") is None and len(bindings) == 1:
        plain["mode"] = next(iter(bindings))
    for mode, block in bindings.items():
        # A mode can derive annotations (a GET is read-only); those that the descriptor writes take
        # precedence.
        said = kinds.annotations_of(mode, block)
        if said:
            plain["annotations"] = Annotations(**{**said, **value.get("annotations", {})})
        if "input_schema" not in plain and kinds.remote_of(mode, plain["name"], block) is not None:
            plain["input_schema"] = True  # replaced by the server's schema when it is known
    return Descriptor(**plain, bindings=bindings, origin=origin)


_KEYS = frozenset(envelope("descriptor")["properties"])
"""Keys of a descriptor; any other key is a mode, with its block."""

_PLAIN = _KEYS - {"mode"}
"""Keys that do not depend on modes."""

_FIELDS = {"permissions": "capabilities"}
"""Field of a key that has another name."""

_REQUIREMENT_KEYS = frozenset(
    {"capabilities", "dependencies", "estimate", "permissions", "requires_confirmation"}
)
"""Keys that `check_tool_requirements` checks."""

_NOT_OF_THE_TOOL = frozenset({"$schema", "override"})
"""Keys that concern the document, not the tool."""


def _example(entry: Mapping[str, Any]) -> Example:
    return Example(args=entry["args"], result=entry.get("result"), has_result="result" in entry)


def _icon(entry: Mapping[str, Any]) -> Icon:
    return Icon(**{**entry, "sizes": tuple(entry.get("sizes", ()))})


_ESTIMATES: dict[str, Any] = {"duration": parse_duration, "cost": float, "output": parse_size}

_READERS: dict[str, Any] = {
    "annotations": lambda entry: Annotations(**entry),
    "icons": lambda entries: tuple(_icon(entry) for entry in entries),
    "examples": lambda entries: tuple(_example(entry) for entry in entries),
    "timeout": parse_duration,
    "limits": parse_limits,
    "tags": tuple,
    "capabilities": tuple,
    "permissions": tuple,
    "platforms": tuple,
    "dependencies": lambda entry: Dependencies(**{key: tuple(names) for key, names in entry.items()}),
    "estimate": lambda entry: Estimate(**{key: _ESTIMATES[key](item) for key, item in entry.items()}),
}


def _check_mode(tool: Descriptor, kinds: Kinds) -> list[Problem]:
    problems = []
    if tool.mode is None and tool.bindings:
        names = ", ".join(f"`{mode}`" for mode in tool.bindings)
        message = f"missing `mode`: the tool has the blocks {names}"
        lines = " or ".join(f"`mode: {mode}`" for mode in tool.bindings)
        hint = f"add {lines}; profiles and `--mode` select another"
        problems.append(Problem(code="mode_missing", message=message, hint=hint))
    elif tool.mode is not None and tool.mode not in tool.bindings:
        message = f"`mode` is `{tool.mode}`, but there is no `{tool.mode}:` block"
        hint = f"add a `{tool.mode}:` block" + (
            f", or use one of the existing modes: {', '.join(tool.bindings)}" if tool.bindings else ""
        )
        problems.append(Problem(code="binding_missing", message=message, pointer="/mode", hint=hint))
    for mode in tool.bindings:
        if kinds.schema_for(mode) is None:
            message = f"mode `{mode}` is not installed: its block is not checked, and the tool is unavailable in this mode"
            problems.append(
                Problem(code="mode_not_installed", message=message, pointer=f"/{mode}", severity="warning")
            )
    return problems


def _is_evident(tool: Descriptor) -> bool:
    """Whether the schemas are evidently valid and the examples match; if not, the full check finds the problems."""
    if _check_arguments_type(tool.input_schema):
        return False
    arguments = [dict(example.args) for example in tool.examples]
    cases: list[tuple[Schema, list[Any]]] = [(tool.input_schema, arguments)]
    if tool.output_schema is not None:
        cases.append((tool.output_schema, [each.result for each in tool.examples if each.has_result]))
    return is_evident(cases)


def _check_schemas(tool: Descriptor) -> list[Problem]:
    problems = check_schema(tool.input_schema, "/input_schema")
    if not any(problem.severity == "error" for problem in problems):
        problems += _check_arguments_type(tool.input_schema)
    if tool.output_schema is not None:
        problems += check_schema(tool.output_schema, "/output_schema")
    return problems


def _check_arguments_type(schema: Schema) -> list[Problem]:
    if not isinstance(schema, dict) or schema.get("type", "object") == "object":
        return []
    message = f"arguments are an object, but `input_schema` has type {compact(schema['type'])}"
    place = "/input_schema/type"
    return [Problem(code="arguments_not_object", message=message, pointer=place, hint="write `type: object`")]


def _check_timeout(tool: Descriptor) -> list[Problem]:
    if 0 < tool.timeout <= LONGEST_TIMEOUT:
        return []
    longest = format_duration(LONGEST_TIMEOUT)
    message = f"a timeout must be longer than 0s and at most {longest}, got {tool.timeout:g} seconds"
    hint = "omit it for the default of 30s" if tool.timeout == 0 else f"write at most {longest}"
    return [Problem(code="out_of_range", message=message, pointer="/timeout", hint=hint)]


def _check_examples(tool: Descriptor) -> list[Problem]:
    problems: list[Problem] = []
    if not tool.examples:
        return problems
    arguments = Validator(tool.input_schema)
    result = None if tool.output_schema is None else Validator(tool.output_schema)
    for index, example in enumerate(tool.examples):
        problems += [_example_problem("args", index, fault) for fault in arguments.faults(dict(example.args))]
        if example.has_result and result is not None:
            problems += [_example_problem("result", index, fault) for fault in result.faults(example.result)]
    return problems


def _example_problem(part: str, index: int, fault: Violation) -> Problem:
    schema = "input_schema" if part == "args" else "output_schema"
    return Problem(
        code="example_breaks_schema",
        message=f"the example's {part} {'do' if part == 'args' else 'does'} not match `{schema}`: {fault.for_model()}",
        pointer=f"/examples/{index}/{part}{fault.pointer}",
        hint=fault.hint,
    )


_TOOL_GLOB = re.compile(r"(?:[A-Za-z0-9_.*?-]|\[!?[A-Za-z0-9_.-]+\])+")
"""Globs that can match the name of a tool."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names of profiles and toolsets."""


def toolsets_of(said: Mapping[str, Any], origin: Origin) -> tuple[Toolset, ...]:
    """The toolsets under `toolsets` of a document that its schema has accepted, in document order."""
    return tuple(_toolset(name, entry, origin) for name, entry in said.get("toolsets", {}).items())


def _toolset(name: str, entry: Any, origin: Origin) -> Toolset:
    written = entry if isinstance(entry, dict) else {"tools": entry}
    return Toolset(
        name=name,
        description=written.get("description", ""),
        tools=tuple(written["tools"]),
        place=origin.place(f"/toolsets/{pointer_step(name)}"),
    )


def check_names(said: Mapping[str, Any], keys: Sequence[str]) -> Iterator[Problem]:
    """The problems of names under some keys, `toolsets` or `profiles`."""
    for key in keys:
        for name in said.get(key, {}):
            if not _NAME.fullmatch(name):
                message = f"`{excerpt(name)}` is not a valid {key[:-1]} name"
                hint = "use at most 64 letters, digits, `_` or `-`, starting with a letter or `_`"
                pointer = f"/{key}/{pointer_step(name)}"
                yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)


def check_toolsets(toolsets: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of the globs of toolsets."""
    for name, entry in toolsets.items():
        pointer = f"/toolsets/{pointer_step(name)}"
        if isinstance(entry, list):
            yield from check_tool_globs(entry, pointer)
        else:
            yield from check_tool_globs(entry["tools"], f"{pointer}/tools")


def check_tool_globs(globs: Sequence[str], pointer: str) -> Iterator[Problem]:
    """The problems of a list of globs over tool names."""
    for index, glob in enumerate(globs):
        yield from check_tool_glob(glob, f"{pointer}/{index}")


def check_tool_glob(glob: str, pointer: str) -> Iterator[Problem]:
    """The problem of a glob that cannot match any tool name."""
    if _TOOL_GLOB.fullmatch(glob):
        return
    message = f"`{excerpt(glob)}` is not a valid glob over tool names, which contain only letters, digits, `_`, `.` and `-`"
    hint = "`*` matches any text, `?` one character, `[ab]` one of these; use a list for several globs"
    yield Problem(code="bad_glob", message=message, pointer=pointer, hint=hint)


def check_defaults(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """The problems of `defaults` that the schema cannot find; `pointer` is that of the enclosing object."""
    timeout = said.get("defaults", {}).get("timeout")
    if timeout is None or 0 < parse_duration(timeout) <= LONGEST_TIMEOUT:
        return
    longest = format_duration(LONGEST_TIMEOUT)
    message = f"a timeout must be longer than 0s and at most {longest}, got `{timeout}`"
    hint = f"write at most {longest}, or omit it for the default of 30s"
    yield Problem(code="out_of_range", message=message, pointer=f"{pointer}/defaults/timeout", hint=hint)


def is_override(value: JSON) -> bool:
    """Whether a document is an override."""
    return isinstance(value, dict) and value.get("override") is True and isinstance(value.get("name"), str)


@dataclass(frozen=True, slots=True)
class OverlaidDocument(Document):
    """An override and the document it overrides, as one document. Problems point at the file of each part.

    Attributes:
        upper: The override; it provides the file and line of the whole.
        lower: The overridden document.
    """

    upper: Document | None = None
    lower: Document | None = None

    def _owner(self, pointer: str) -> Document:
        upper, lower = self.upper, self.lower
        assert upper is not None  # noqa: S101 -- both are always given; the fields only follow others with defaults
        assert lower is not None  # noqa: S101
        key = next(iter(keys_of(pointer)), None)
        within = isinstance(upper.value, dict) and (key is None or key in upper.value)
        return upper if within else lower

    def position(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """1-based line and column, in the file that contains the part."""
        return self._owner(pointer).position(pointer, key=key)

    def place(self, problem: Problem) -> Problem:
        """The problem with the position of its part; one in the overridden document names the override in its hint."""
        owner = self._owner(problem.pointer)
        if owner is self.upper:
            return owner.place(problem)
        # The overridden document was valid on its own: without the hint, users would not suspect the override.
        told = f"`{self.source}:{self.line}` overrides other keys of this tool"
        return owner.place(problem._replace(hint=f"{problem.hint}; {told}" if problem.hint else told))

    def written(self, pointer: str) -> str | None:
        """The source characters of an unquoted YAML scalar."""
        return self._owner(pointer).written(pointer)

    def below(self) -> dict[str, str]:
        """Top-level keys that the override does not change -> `file:line` of each."""
        keys = self.value.keys() if isinstance(self.value, dict) else ()
        owners = {key: self._owner(f"/{pointer_step(key)}") for key in keys}
        return {key: _place(owner, key) for key, owner in owners.items() if owner is self.lower}


def _place(document: Document, key: str) -> str:
    if isinstance(document, OverlaidDocument):
        known = document.below().get(key)
        if known is not None:
            return known
    return f"{document.source}:{document.position(f'/{pointer_step(key)}')[0]}"


def overlay_document(upper: Document, lower: Document) -> OverlaidDocument:
    """Apply an override to a document; the override provides the file and line."""
    below = lower.value if isinstance(lower.value, dict) else {}
    above = upper.value if isinstance(upper.value, dict) else {}
    value: JSON = {**below, **{key: item for key, item in above.items() if key != "override"}}
    return OverlaidDocument(
        source=upper.source, index=upper.index, line=upper.line, value=value, upper=upper, lower=lower
    )


@dataclass(frozen=True, slots=True)
class OverlaidFiles:
    """The files of an override and of the document it overrides.

    Attributes:
        upper: The files of the override.
        lower: The files of the overridden document.
        keys: The top-level keys of the override.
    """

    upper: Files
    lower: Files
    keys: frozenset[str]

    def of(self, pointer: str) -> Files:
        """The files of the document that contains a part."""
        key = next(iter(keys_of(pointer)), None)
        return self.upper if key in self.keys else files_at(self.lower, pointer)

    def read(self, name: str) -> bytes:
        """Read a file for a reader that does not know which part names it: from the override, else from the other.

        Raises:
            OSError: Neither has the file, or it cannot be read.
        """
        try:
            return self.upper.read(name)
        except (
            FileNotFoundError,
            PermissionError,
        ):  # a path that leaves the folder of the override may be inside that of the other document
            return self.lower.read(name)


def files_of(upper: Files | None, lower: Files | None, above: Document) -> Files | None:
    """The files that an overridden document may name; `above` is the override."""
    if upper is None or lower is None:
        return upper or lower
    keys = frozenset(above.value) if isinstance(above.value, dict) else frozenset()
    return OverlaidFiles(upper, lower, keys)


def with_cached_files(files: Files | None) -> tuple[Files | None, tuple[CachedFiles, ...]]:
    """The files wrapped in a cache, and the caches: one for each document, that of the override first."""
    if files is None:
        return None, ()
    if isinstance(files, OverlaidFiles):
        upper, above = with_cached_files(files.upper)
        lower, below = with_cached_files(files.lower)
        assert upper is not None  # noqa: S101 -- both are always given
        assert lower is not None  # noqa: S101
        return OverlaidFiles(upper, lower, files.keys), above + below
    kept = CachedFiles(files)
    return kept, (kept,)


def missing_override_target(
    document: Document, name: str, names: Iterable[str], refused: Mapping[str, Problem]
) -> Problem:
    """The problem of an override of an unknown tool.

    Args:
        document: The override.
        name: The name of the tool.
        names: The names of all tools.
        refused: Name of a tool whose document was rejected -> its problem.
    """
    message, cause = f"unknown tool `{name}` to override", ""
    hint = did_you_mean(name, [*names, *refused]) or "remove `override` to define a new tool"
    if name in refused:
        message += ": its document was rejected"
        cause = f"{refused[name].source}:{refused[name].line}"
        hint = f"fix {cause}"
    problem = Problem(code="nothing_to_override", message=message, pointer="/name", hint=hint, cause=cause)
    return document.place(problem)


def overrides_of(document: Document) -> tuple[str, ...]:
    """`file:line` of each document that a document overrides already, the nearest first."""
    lower = getattr(document, "lower", None)
    return () if lower is None else (f"{lower.source}:{lower.line}", *overrides_of(lower))


def replace_overridden(tools: Sequence[Descriptor], changed: Mapping[str, Descriptor]) -> list[Descriptor]:
    """The tools with overridden ones replaced."""
    # Only the first of a name: a second tool of that name stays, and is reported as a duplicate.
    left = dict(changed)
    return [left.pop(tool.name, tool) for tool in tools]
