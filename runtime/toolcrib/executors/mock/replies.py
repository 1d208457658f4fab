"""Compile the replies of a mock.

A reply has exactly one of `result`, `result_file`, `error`, `generate`, `template`, `template_file`, `fault`,
`passthrough`, `crud`, or `content` alone. It may also have `content`, `latency`, `progress`, `times`,
`idempotent_by`, and the keys that use the store: `rows`, `let`, `guard`, `effects`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, Content, Descriptor, Progress, Result
from toolcrib.core.pointers import keys_of
from toolcrib.core.text import canonical
from toolcrib.executors.mock.variables import Scope, as_text, is_stateful, names_for
from toolcrib.expressions import (
    Expression,
    Rendering,
    TextTemplate,
    UnchangingRoots,
    compile_condition,
    compile_copier,
    compile_text,
    compile_value,
    copy_value,
)
from toolcrib.expressions.compiler import SHARED
from toolcrib.schema.validation import NotJSONError, unshared_copy
from toolcrib.schema.validation.json_values import (
    SMALL,
    WITHIN,
    bounded_copy,
    budget_for_bytes,
    measure_excess,
    remaining_budget,
)
from toolcrib.simulation.error_reply import compile_error
from toolcrib.simulation.latency import Latency, compile_latency
from toolcrib.simulation.store import ROW_DEPTH, is_small_row

if TYPE_CHECKING:
    from toolcrib.executors.mock.effects import ReplyBody
    from toolcrib.simulation.faults import Injection

Parts = Callable[[Scope], tuple[Content, ...]]


def compile_content(
    block: list[dict[str, Any]],
    pointer: str,
    tool: Descriptor,
    names: Collection[str],
    problems: list[Problem],
) -> tuple[frozenset[str], Parts, bool]:
    """Compile a `content` list.

    Returns:
        The names of the scope that the parts read, the function that creates the parts of one call, and
        whether they are the same for every call.
    """
    parts = [_part(entry, f"{pointer}/{index}", tool, names, problems) for index, entry in enumerate(block)]
    read = frozenset[str]().union(*(part.names for part, _make in parts))
    fixed = all(part.constant for part, _make in parts)
    return read, lambda scope: tuple(make(scope) for _part, make in parts), fixed


def _part(
    entry: dict[str, Any], pointer: str, tool: Descriptor, names: Collection[str], problems: list[Problem]
) -> tuple[Rendering, Callable[[Scope], Content]]:
    written = {key: entry.get(key) for key in ("text", "uri", "title")}
    texts = compile_value(written, names, problems, pointer)
    data = _data(entry, pointer, tool, problems)
    kind, mime_type = entry["type"], entry.get("mime_type")

    def make(scope: Scope) -> Content:
        shown: Any = texts.render(scope)
        text, uri, title = (
            None if shown[key] is None else as_text(shown[key]) for key in ("text", "uri", "title")
        )
        return Content(kind, text, data, mime_type, uri, title)

    return texts, make


def _data(entry: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> str | None:
    if "file" in entry:
        # Deferred, as everywhere in this module: most mocks read no file.
        from toolcrib.loading.documents.files import read_bytes  # noqa: PLC0415

        return base64.b64encode(read_bytes(tool.origin, entry["file"], f"{pointer}/file", problems)).decode(
            "ascii"
        )
    data: str | None = entry.get("data")
    if data is not None:
        try:
            base64.b64decode(data, validate=True)
        except ValueError as error:
            problems.append(
                Problem(
                    code="invalid_base64",
                    message=f"`data` is not valid base64: {error}",
                    pointer=f"{pointer}/data",
                    hint="encode the bytes in base64, or use `file`",
                )
            )
    return data


class ProgressReport(NamedTuple):
    """A progress report that a mock emits before it replies.

    Attributes:
        progress: The progress so far.
        total: The progress at the end; None if unknown.
        message: A text for people.
        after: Seconds to wait before the report.
    """

    progress: float
    total: float | None
    message: Rendering
    after: float

    @property
    def names(self) -> frozenset[str]:
        """The names of the scope that the message reads."""
        return self.message.names

    def at(self, scope: Scope) -> Progress:
        """The event for one call."""
        return Progress(self.progress, self.total, as_text(self.message.render(scope)))


def compile_progress(
    block: list[dict[str, Any]], pointer: str, names: Collection[str], problems: list[Problem]
) -> tuple[ProgressReport, ...]:
    """The progress reports of a reply, in order."""
    return tuple(
        ProgressReport(
            progress=entry["progress"],
            total=entry.get("total"),
            message=compile_value(entry.get("message", ""), names, problems, f"{pointer}/{index}/message"),
            after=parse_duration(entry.get("after", "0s")),
        )
        for index, entry in enumerate(block)
    )


RESULT_DEPTH = 100
"""The deepest nesting of a result that the mock itself vouches for. The result layer decides about deeper ones."""

STATEFUL = ("rows", "let", "guard", "effects")
"""The keys of a reply that read or change the store."""

Answer = Callable[[Scope], Result]

Names = Mapping[str, Collection[str] | None]
"""The names that expressions may read, with their keys if known."""

ValueFunction = Callable[[Any], JSON]
"""Computes a value from a scope, or from the arguments alone."""


class ValueCompiler(Protocol):
    """Compiles a `ValueFunction`."""

    def __call__(self, *, alone: bool, rows: Collection[str]) -> ValueFunction:
        """A function of the arguments if `alone`, otherwise of a scope that has rows with these names."""
        ...


class Reply(NamedTuple):
    """One compiled reply.

    Attributes:
        kind: The key that defines the result: `result`, `error`, `generate` ...
        pointer: JSON Pointer of the reply in the descriptor.
        answer: Computes the result; raises ExpressionError if the mock is wrong.
        names: The names of the scope that it reads.
        latency: How long the reply takes; None for no time.
        progress: The progress reports before the result.
        constant: The result, if its value is the same for every call; without `content`.
        prepare: Compiles `trusted_value`, if the reply can have one; raises NotJSONError if its results
            cannot be trusted.
        trusted_value: Computes the value of a successful result that is valid JSON and shared with nothing
            else. It reads a scope or the arguments alone, and raises one of `NOT_TRUSTED` if it fails.
        times: How many attempts it answers before the next reply of its list takes over.
        body: What it does with the store; None for nothing.
        same: The expression `idempotent_by`: of calls with the same value only the first acts. None for none.
        injection: The fault that it injects; None for a reply without `fault`.
        elsewhere: The mode that it forwards calls to; empty for a reply without `passthrough`.
        locate: Maps a pointer into the compiled reply to the descriptor; None if they are the same.
    """

    kind: str
    pointer: str
    answer: Answer
    names: frozenset[str] = frozenset()
    latency: Latency | None = None
    progress: tuple[ProgressReport, ...] = ()
    constant: Result | None = None
    prepare: ValueCompiler | None = None
    trusted_value: ValueFunction | None = None
    times: int = 1
    body: ReplyBody | None = None
    same: Expression | None = None
    injection: Injection | None = None
    elsewhere: str = ""
    locate: Callable[[str], str] | None = None

    def made_ready(self, *, alone: bool) -> Reply:
        """The same reply with `trusted_value` compiled, which receives only the arguments if `alone`."""
        if self.prepare is None:
            return self
        rows = () if self.body is None else self.body.parts.rows
        try:
            return self._replace(trusted_value=self.prepare(alone=alone, rows=rows))
        # Not an error here: the result layer reports what is wrong with the result of each call.
        except NotJSONError:
            return self

    @property
    def waits(self) -> bool:
        """Whether the reply takes time on the session's clock, or may take time in another mode."""
        return self.reaches or self.latency is not None or any(report.after for report in self.progress)

    @property
    def reaches(self) -> bool:
        """Whether it acts like a tool that leaves the process: by `fault` or `passthrough`."""
        return self.injection is not None or bool(self.elsewhere)

    @property
    def keeps(self) -> bool:
        """Whether it reads or changes the state of the session."""
        return self.body is not None or self.same is not None or is_stateful(self.names)

    def place_of(self, error: ExpressionError) -> str:
        """The pointer, in the descriptor, of an error in the reply."""
        pointer = error.pointer or f"{self.pointer}/{self.kind}"
        return pointer if self.locate is None else self.locate(pointer)


def compile_reply(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Reply:
    """Compile a reply that its schema has accepted; problems are added to `problems`."""
    if "crud" not in block:
        return _compiled(block, pointer, tool, problems)
    from toolcrib.executors.mock.crud import expand_crud  # noqa: PLC0415

    written, locate = expand_crud(block, pointer)
    # Problems of the expansion must point at what the author wrote.
    found: list[Problem] = []
    reply = _compiled(written, pointer, tool, found)
    problems += [problem._replace(pointer=locate(problem.pointer)) for problem in found]
    return reply._replace(kind="crud", locate=locate)


def _compiled(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Reply:
    kind = next(kind for kind in _COMPILERS if kind in block)
    names = names_for(tool)
    body = _body(block, pointer, tool, problems)
    inner: Names = names if body is None else {**names, **body.own}
    made = _COMPILERS[kind](block[kind], f"{pointer}/{kind}", tool, inner, problems)
    used, answer, prepare = made.names, made.answer, made.prepare
    if "content" in block and kind != "content":
        part_names, parts, _fixed = compile_content(
            block["content"], f"{pointer}/content", tool, inner, problems
        )
        used |= part_names
        # A trusted answer is a bare value, without content parts.
        answer, prepare = _with_content(answer, parts), None
    progress = compile_progress(block.get("progress", []), f"{pointer}/progress", inner, problems)
    used = used.union(*(report.names for report in progress))
    # `idempotent_by` reads `names` and not `inner`: it is evaluated before rows and lets.
    same = _same(block, pointer, names, problems)
    if body is not None and body.acts and SHARED in used | body.names:
        from toolcrib.expressions.definitions import shared_values  # noqa: PLC0415 -- most packs define nothing

        body = body._replace(shared=tuple(shared_values(names, used | body.names)))
    reply = Reply(
        kind=kind,
        pointer=pointer,
        answer=answer,
        names=_outer(used, body) | (frozenset() if same is None else same.names),
        latency=compile_latency(block.get("latency"), f"{pointer}/latency", problems),
        progress=progress,
        constant=made.constant,
        prepare=prepare,
        times=block.get("times", 1),
        body=body,
        same=same,
        injection=made.injection,
        elsewhere=made.elsewhere,
    )
    if reply.reaches:
        from toolcrib.executors.mock.passthrough import unused_keys  # noqa: PLC0415

        problems += unused_keys(block, reply)
    return reply


def _body(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> ReplyBody | None:
    if not any(key in block for key in STATEFUL):
        return None
    from toolcrib.executors.mock.effects import compile_body  # noqa: PLC0415

    return compile_body(block, pointer, tool, problems)


def _outer(names: frozenset[str], body: ReplyBody | None) -> frozenset[str]:
    """The names read of the call's scope, without those that the reply defines itself."""
    return names if body is None else (names - body.own.keys()) | body.names


def _same(block: dict[str, Any], pointer: str, names: Names, problems: list[Problem]) -> Expression | None:
    if "idempotent_by" not in block:
        return None
    place = f"{pointer}/idempotent_by"
    try:
        return compile_condition(block["idempotent_by"], names, place)
    except ExpressionError as error:
        problems.append(error.problem(place))
        return None


class _Compiled(NamedTuple):
    """A compiled result, error or other kind of reply. The fields are those of `Reply`."""

    names: frozenset[str]
    answer: Answer
    constant: Result | None = None
    prepare: ValueCompiler | None = None
    injection: Injection | None = None
    elsewhere: str = ""


def _with_content(answer: Answer, parts: Callable[[Scope], tuple[Content, ...]]) -> Answer:
    return lambda scope: answer(scope)._replace(content=parts(scope))


def _result(value: JSON, pointer: str, tool: Descriptor, names: Names, problems: list[Problem]) -> _Compiled:
    rendering = compile_value(value, names, problems, pointer, forms=True)

    def prepare(*, alone: bool, rows: Collection[str]) -> ValueFunction:
        _check_size(value, tool.limits.output_size)
        unchanging = UnchangingRoots(rows, _row_copy)
        return rendering.fresh("args", _small, RESULT_DEPTH, alone=alone, unchanging=unchanging)

    if rendering.constant:
        return _fixed(rendering.render({}), tool)
    render = rendering.run
    return _Compiled(rendering.names, lambda scope: Result.success(copy_value(render(scope))), None, prepare)


_EXACT: Final = 1 << 53


def _check_size(value: JSON, limit: int) -> None:
    """Raise NotJSONError if a result may exceed the output size of its tool.

    `_small` bounds what each expression adds; a result with a larger value takes the ordinary path.
    """
    # Every `{{` or `$` in the text may start an expression, each of which adds at most `SMALL` bytes.
    text = repr(value)
    room = budget_for_bytes(limit, most=limit) - SMALL * (text.count("{{") + text.count("$"))
    if room < 0 or remaining_budget(value, RESULT_DEPTH, room) < 0:
        raise NotJSONError


def _small(value: Any, depth: int) -> Any:
    """A deep copy of a value so small that it needs no separate size check; NotJSONError for others."""
    kind = type(value)
    # The common cases, decided without counting: short ASCII text, and integers that need few digits.
    if (kind is str and len(value) < SMALL and value.isascii()) or (kind is int and -_EXACT < value < _EXACT):
        return value
    if kind is dict or kind is list:
        return bounded_copy(value, depth, [SMALL])
    if remaining_budget(value, depth, SMALL) < 0:
        raise NotJSONError
    return value


def _row_copy(value: Any, depth: int) -> Any:
    """`_small` for a part of the store, which is checked only once: that takes five times as long as a copy."""
    return copy_value(value) if depth >= ROW_DEPTH and is_small_row(value) else _small(value, depth)


def _fixed(value: JSON, tool: Descriptor) -> _Compiled:
    """A result that is the same for every call."""
    fresh = compile_copier(value)

    def prepare(*, alone: bool, rows: Collection[str]) -> ValueFunction:  # noqa: ARG001 -- it reads neither
        if measure_excess(value, RESULT_DEPTH, tool.limits.output_size) != WITHIN:
            raise NotJSONError
        make = compile_copier(unshared_copy(value, RESULT_DEPTH))
        return lambda _read: make()

    return _Compiled(frozenset(), lambda _scope: Result.success(fresh()), Result.success(value), prepare)


def _result_file(
    name: str, pointer: str, tool: Descriptor, _names: Names, problems: list[Problem]
) -> _Compiled:
    from toolcrib.loading.documents.files import read_data  # noqa: PLC0415

    return _fixed(read_data(tool.origin, name, pointer, problems), tool)


def _error(value: Any, pointer: str, _tool: Descriptor, names: Names, problems: list[Problem]) -> _Compiled:
    return _Compiled(*compile_error(value, pointer, names, problems))


def _generate(
    value: JSON, pointer: str, tool: Descriptor, names: Names, problems: list[Problem]
) -> _Compiled:
    # Deferred: slow to import, and rarely used.
    from toolcrib.schema.generation import KeyedRandom, generate, overlay  # noqa: PLC0415

    options: dict[str, Any] = value if isinstance(value, dict) else {}
    patch = compile_value(options.get("overlay", {}), names, problems, f"{pointer}/overlay")
    examples = options.get("examples", "prefer")
    schema = tool.output_schema
    if schema is None:
        message = "`generate` requires an `output_schema`"
        problems.append(
            Problem(
                code="no_output_schema",
                message=message,
                pointer=pointer,
                hint="add `output_schema`, or use `result`",
            )
        )
        return _Compiled(frozenset(), lambda _scope: Result.success())

    def answer(scope: Scope) -> Result:
        # Keyed by the arguments, not by the call's number: the same question always gets the same answer.
        draw = KeyedRandom(cast("int", scope["seed"]), tool.name, canonical(scope["args"]), "generate")
        made = generate(schema, draw, examples=examples)
        return Result.success(
            copy_value(overlay(made, patch.render(scope)) if options.get("overlay") else made)
        )

    # Generated once now, so that a schema that no value satisfies is a load error and not a failing call.
    try:
        generate(schema, KeyedRandom(0, tool.name, "check"), examples=examples)
    except ExpressionError as error:
        problems.append(error.problem(pointer, hint="use `result` instead"))
    return _Compiled(patch.names | {"args", "seed"}, answer)


def _template(text: str, pointer: str, _tool: Descriptor, names: Names, problems: list[Problem]) -> _Compiled:
    try:
        template = compile_text(text, names)
    except ExpressionError as error:
        problems.append(error.problem(pointer))
        return _Compiled(frozenset(), lambda _scope: Result.success())
    constant = None if template.names else _fixed_text(template, pointer, problems)
    return _Compiled(
        template.names, lambda scope: Result.success(value_of_text(template.render(scope))), constant
    )


def _fixed_text(template: TextTemplate, pointer: str, problems: list[Problem]) -> Result | None:
    try:
        return Result.success(value_of_text(template.render({})))
    except ExpressionError as error:
        problems.append(error.problem(pointer))
        return None


def _template_file(
    name: str, pointer: str, tool: Descriptor, names: Names, problems: list[Problem]
) -> _Compiled:
    from toolcrib.loading.documents.files import read_text  # noqa: PLC0415

    return _template(read_text(tool.origin, name, pointer, problems), pointer, tool, names, problems)


def _content(value: Any, pointer: str, tool: Descriptor, names: Names, problems: list[Problem]) -> _Compiled:
    read, parts, fixed = compile_content(value, pointer, tool, names, problems)
    constant = Result.success(content=parts({})) if fixed else None
    return _Compiled(read, lambda scope: Result.success(content=parts(scope)), constant)


def _fault(value: JSON, pointer: str, tool: Descriptor, names: Names, problems: list[Problem]) -> _Compiled:
    from toolcrib.simulation.faults import compile_injection  # noqa: PLC0415

    injection = compile_injection(value, pointer, tool, names, problems)
    return _answer_of_nobody(tool)._replace(injection=injection)


def _answer_of_nobody(tool: Descriptor) -> _Compiled:
    """The result of a tool whose reply defines only a fault: any value that its output schema accepts."""
    ignored: list[Problem] = []
    made = _generate(True, "", tool, {}, ignored) if tool.output_schema is not None else None
    if made is None or ignored:
        return _Compiled(frozenset(), lambda _scope: Result.success())
    return made


def _passthrough(
    value: JSON, pointer: str, tool: Descriptor, _names: Names, problems: list[Problem]
) -> _Compiled:
    mode = "live" if value is True else str(value)
    own = keys_of(pointer)[0]
    others = sorted(tool.bindings.keys() - {own})
    if mode not in others:
        there = ", ".join(f"`{name}:`" for name in others) or "none"
        message = f"`passthrough` forwards calls to another block, but `{tool.name}` has no `{mode}:` block"
        hint = did_you_mean(mode, others) or f"blocks other than `{own}:`: {there}"
        problems.append(Problem(code="no_such_block", message=message, pointer=pointer, hint=hint))
    return _Compiled(frozenset(), lambda _scope: Result.success(), elsewhere=mode)


_COMPILERS: dict[str, Callable[[Any, str, Descriptor, Names, list[Problem]], _Compiled]] = {
    "result": _result,
    "result_file": _result_file,
    "error": _error,
    "generate": _generate,
    "template": _template,
    "template_file": _template_file,
    "fault": _fault,
    "passthrough": _passthrough,
    "content": _content,
}


def value_of_text(text: str) -> JSON:
    """The result of a rendered template: the value of a JSON text, or any other text itself."""
    from toolcrib.loading.documents.document import parse_json  # noqa: PLC0415

    # Malformed JSON stays text: the output schema then rejects it with a message about the value.
    value, problems = parse_json("template", text)
    return text if problems else value
