"""Parameters of a query or form, as a block writes them: name -> text, list, or `{value, style, explode}`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import described_names
from toolcrib.executors.live.argument_schema import property_schema
from toolcrib.executors.live.templates import (
    ABSENT,
    Arguments,
    Part,
    Source,
    Sources,
    below,
)
from toolcrib.executors.live.uri_encoding import Style, Write, quoted, write_parameter, write_value

Step: TypeAlias = "tuple[str, ...] | Write"
"""Pieces that are the same for every call, or what adds those of one parameter."""

Kind: TypeAlias = Literal["query", "body"]

_OBJECT: Final = frozenset({"object"})

_EXPLODED: Final = {"form": True, "deepObject": True, "spaceDelimited": False, "pipeDelimited": False}


class Entry(NamedTuple):
    """A compiled parameter: its step, and where it is written."""

    step: Step
    part: Part


def compile_entries(
    block: dict[str, JSON], at: str, sources: Sources, *, kind: Kind, taken: Collection[str]
) -> list[Entry]:
    """Compile the parameters of a block.

    Args:
        block: Name -> value.
        at: JSON Pointer of the block.
        sources: Compiles texts.
        kind: `query` or `body`.
        taken: All names that the descriptor writes there.
    """
    return [
        _entry(name, value, below(at, name), sources, kind=kind, taken=taken) for name, value in block.items()
    ]


def _entry(name: str, value: Any, at: str, sources: Sources, *, kind: Kind, taken: Collection[str]) -> Entry:
    if "{{" in name or "${" in name:
        hint = "write the name; for all arguments that are left: `from: args`"
        sources.tell("expression_not_allowed", "a name is literal text and can't be computed", at, hint)
    styled: dict[str, Any] = value if isinstance(value, dict) else {"value": value}
    inner = below(at, "value") if isinstance(value, dict) else at
    source = sources.structure(styled["value"], inner)
    style = Style(
        styled.get("style", "form"),
        styled.get("explode", _EXPLODED[styled.get("style", "form")]),
        objects="style" in styled or "explode" in styled,
        taken=frozenset(taken),
    )
    _check_style(source, style, at, sources)
    if style.name == "deepObject":
        _check_deep_names(name, taken, at, sources)
    write = write_parameter(name, source, style)
    return Entry(_fixed(write) if source.constant else write, Part(kind, name, at, source.reads))


def _fixed(write: Write) -> tuple[str, ...]:
    pieces: list[str] = []
    write({}, pieces)
    return tuple(pieces)


def _check_deep_names(name: str, taken: Collection[str], at: str, sources: Sources) -> None:
    for other in taken:
        if other.startswith(f"{name}["):
            message = f"`{other}` could be written by `{name}` too, which has style `deepObject`"
            sources.tell("duplicate_parameter", message, at, "write one of them")


def _check_style(source: Source, style: Style, at: str, sources: Sources) -> None:
    fixed_by_style = {"deepObject": True, "spaceDelimited": False, "pipeDelimited": False}
    expected = fixed_by_style.get(style.name, style.explode)
    if style.explode is not expected:
        message = f"style `{style.name}` has no form with `explode: {'true' if style.explode else 'false'}`"
        sources.tell(
            "wrong_style", message, below(at, "explode"), "leave `explode` out, or write `style: form`"
        )
    types = types_of(source, sources)
    if types is not None:
        _check_types(types, style, at, sources)


def _check_types(types: frozenset[str], style: Style, at: str, sources: Sources) -> None:
    scalar = types.isdisjoint({"array", "object"})
    if types == _OBJECT and not style.objects:
        message = "an object has no form here unless a style is chosen"
        hint = "write `{value: ..., style: deepObject}`, or `style: form` to make parameters of its keys"
    elif style.name == "deepObject" and "object" not in types:
        message, hint = "style `deepObject` writes objects", "leave `style` out"
    elif style.name in ("spaceDelimited", "pipeDelimited") and scalar:
        message, hint = f"style `{style.name}` writes lists", "leave `style` out"
    else:
        return
    sources.tell("wrong_style", f"{message}; the value is of type {_listed(types)}", at, hint)


def _listed(types: Collection[str]) -> str:
    return " or ".join(f"`{name}`" for name in sorted(types))


def types_of(source: Source, sources: Sources) -> frozenset[str] | None:
    """The types that a value may have besides null, where the schema says so directly; None if not known."""
    schema: JSON = sources.tool.input_schema
    for name in source.path:
        schema = property_schema(schema, name)
    said = schema.get("type") if isinstance(schema, dict) and source.path else None
    if isinstance(said, list):
        return frozenset(map(str, said)) - {"null"} or None
    return frozenset({said}) - {"null"} or None if isinstance(said, str) else None


T = TypeVar("T")


def steps_of(
    steps: Iterable[tuple[T, ...] | Callable[[Arguments, list[T]], None]],
) -> tuple[tuple[T, ...] | Callable[[Arguments, list[T]], None], ...]:
    """The same steps, with fixed ones next to each other made one."""
    merged: list[tuple[T, ...] | Callable[[Arguments, list[T]], None]] = []
    for step in steps:
        last = merged[-1] if merged else None
        if isinstance(step, tuple) and isinstance(last, tuple):
            merged[-1] = last + step
        else:
            merged.append(step)
    return tuple(merged)


def filled(
    steps: tuple[tuple[T, ...] | Callable[[Arguments, list[T]], None], ...], arguments: Arguments
) -> list[T]:
    """What the steps add in one call.

    Raises:
        Misfit: A value can't be written.
    """
    out: list[T] = []
    for step in steps:
        if isinstance(step, tuple):
            out += step
        else:
            step(arguments, out)
    return out


class Left(NamedTuple):
    """The arguments that are used nowhere else: what `from: args` sends.

    Attributes:
        at: JSON Pointer of `from`.
        sources: Knows which arguments are read elsewhere, once all is compiled.
        taken: Names that the descriptor writes itself.
        named: Whether each becomes a parameter of its name.
    """

    at: str
    sources: Sources
    taken: frozenset[str] = frozenset()
    named: bool = False

    def of(self, arguments: Arguments) -> Arguments:
        """Those of one call."""
        used = self.sources.read
        return {name: value for name, value in arguments.items() if name not in used}

    @property
    def described(self) -> tuple[str, ...]:
        """The names of those that the schema describes."""
        return tuple(
            name for name in described_names(self.sources.tool.input_schema) if name not in self.sources.read
        )

    def check(self) -> None:
        """Report those that can't be parameters; asked when all else is compiled."""
        for name in self.described if self.named else ():
            if name in self.taken:
                message = (
                    f"the argument `{name}` and the `{name}` that is written here would be one parameter"
                )
                hint = f'use it: `{name}: "{{{{ args.{name} }}}}"`, or give one of them another name'
                self.sources.tell("duplicate_parameter", message, self.at, hint)
            elif types_of(self.source(name), self.sources) == _OBJECT:
                message = f"the argument `{name}` is an object, and has no form here unless a style is chosen"
                hint = f'write `{name}: {{value: "{{{{ args.{name} }}}}", style: deepObject}}`'
                self.sources.tell("wrong_style", message, self.at, hint)

    def writer(self) -> Write:
        """What adds them as parameters."""
        known = {name: self.source(name) for name in described_names(self.sources.tool.input_schema)}

        def write(arguments: Arguments, out: list[str]) -> None:
            for name, value in self.of(arguments).items():
                source = known.get(name) or self.source(name)
                if name in self.taken:
                    raise source.misfit("is set by the descriptor", "leave it out")
                write_one(name, value, source, out)

        return write

    def source(self, name: str) -> Source:
        """The source of one of them."""
        return Source(self.at, lambda arguments: arguments.get(name, ABSENT), reads=(name,), path=(name,))


def write_one(name: str, value: JSON, source: Source, out: list[str]) -> None:
    """Write a parameter whose name comes with the arguments; null leaves it out.

    Raises:
        Misfit: It has no form, or its name holds a lone surrogate.
    """
    if value is not None:
        write_value(f"{quoted(name, source)}=", value, source, Style(), out)
