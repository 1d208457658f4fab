"""What a mock answers: one reply, compiled from its block.

A reply is exactly one of `result`, `result_file`, `error`, `generate`, `template`,
`template_file`, or `content` alone; `content`, `latency` and `progress` may stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from toolcrib.errors import ExpressionError, Problem
from toolcrib.executors.mock.content import compile_content
from toolcrib.executors.mock.failing import compile_error
from toolcrib.executors.mock.pacing import Latency, Report, compile_latency, compile_progress
from toolcrib.executors.mock.scope import Scope, names_for
from toolcrib.model import JSON, Content, Descriptor, Result
from toolcrib.rendering import Text, compile_text, compile_value, copied, copier
from toolcrib.text import canonical
from toolcrib.validation import NotJSONError, unshared

RESULT_DEPTH = 100
"""How deep an answer may be nested for the mock to vouch for it; the layers have the last word."""

Answer = Callable[[Scope], Result]

Working = Callable[[Any], JSON]
"""Works out a value of a scope or of the arguments alone."""


class Preparing(Protocol):
    """Compiles what works out a value."""

    def __call__(self, *, alone: bool) -> Working:
        """Of the arguments alone, or of a scope."""
        ...


class Reply(NamedTuple):
    """One compiled reply.

    Attributes:
        kind: The key that says what it answers: `result`, `error`, `generate` ...
        pointer: Where it stands in the descriptor.
        answer: Works the result out; raises ExpressionError where the mock is wrong.
        names: What the answer reads of the scope.
        latency: How long the answer takes.
        progress: What is reported before it.
        constant: The answer, where its value is the same for every call; parts beside it are left out.
        prepare: Compiles `sound`, for a reply that can have it; raises NotJSONError where an answer can't be sound.
        sound: Works out the value of a good answer that is JSON and nobody else's, of the scope or of the arguments
            alone; raises where it fails.
    """

    kind: str
    pointer: str
    answer: Answer
    names: frozenset[str] = frozenset()
    latency: Latency | None = None
    progress: tuple[Report, ...] = ()
    constant: Result | None = None
    prepare: Preparing | None = None
    sound: Working | None = None

    def made_ready(self, *, alone: bool) -> Reply:
        """The same reply, ready to be called; `alone` if `sound` is to get the arguments and no scope."""
        if self.prepare is None:
            return self
        try:
            return self._replace(sound=self.prepare(alone=alone))
        except NotJSONError:
            return self  # each call says what is wrong with it

    @property
    def waits(self) -> bool:
        """Whether answering takes time on the session's clock."""
        return self.latency is not None or any(report.after for report in self.progress)


def compile_reply(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Reply:
    """Compile a reply whose shape the block's schema has accepted; faults are added to `problems`."""
    kind = next(kind for kind in _COMPILERS if kind in block)
    names, answer, constant, prepare = _COMPILERS[kind](block[kind], f"{pointer}/{kind}", tool, problems)
    if "content" in block and kind != "content":
        part_names, parts, _fixed = compile_content(block["content"], f"{pointer}/content", tool, problems)
        names |= part_names
        answer, prepare = _with_content(answer, parts), None
    progress = compile_progress(block.get("progress", []), f"{pointer}/progress", tool, problems)
    return Reply(
        kind=kind,
        pointer=pointer,
        answer=answer,
        names=names.union(*(report.names for report in progress)),
        latency=compile_latency(block.get("latency"), f"{pointer}/latency", problems),
        progress=progress,
        constant=constant,
        prepare=prepare,
    )


class _Compiled(NamedTuple):
    """One kind of answer, compiled; the fields are those of `Reply`."""

    names: frozenset[str]
    answer: Answer
    constant: Result | None = None
    prepare: Preparing | None = None


def _with_content(answer: Answer, parts: Callable[[Scope], tuple[Content, ...]]) -> Answer:
    return lambda scope: answer(scope)._replace(content=parts(scope))


def _result(value: JSON, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    rendering = compile_value(value, names_for(tool), problems, pointer)

    def prepare(*, alone: bool) -> Working:
        return rendering.fresh("args", unshared, RESULT_DEPTH, alone=alone)

    if rendering.constant:
        return _fixed(rendering.render({}))
    render = rendering.run
    return _Compiled(rendering.names, lambda scope: Result.ok(copied(render(scope))), None, prepare)


def _fixed(value: JSON) -> _Compiled:
    """An answer that is the same for every call."""
    fresh = copier(value)

    def prepare(*, alone: bool) -> Working:  # noqa: ARG001 -- it reads neither
        make = copier(unshared(value, RESULT_DEPTH))
        return lambda _read: make()

    return _Compiled(frozenset(), lambda _scope: Result.ok(fresh()), Result.ok(value), prepare)


def _result_file(name: str, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    from toolcrib.loading.files import read_data  # noqa: PLC0415 -- most mocks read no file

    return _fixed(read_data(tool.origin, name, pointer, problems))


def _error(value: Any, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    return _Compiled(*compile_error(value, pointer, names_for(tool), problems))


def _generate(value: JSON, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    from toolcrib.generation import Draw, generate, overlay  # noqa: PLC0415 -- slow to import, and rarely used

    options: dict[str, Any] = value if isinstance(value, dict) else {}
    patch = compile_value(options.get("overlay", {}), names_for(tool), problems, f"{pointer}/overlay")
    examples = options.get("examples", "prefer")
    schema = tool.output_schema
    if schema is None:
        message = "`generate` needs an `output_schema` to make an answer from"
        problems.append(
            Problem(
                code="no_output_schema",
                message=message,
                pointer=pointer,
                hint="add `output_schema`, or write a `result`",
            )
        )
        return _Compiled(frozenset(), lambda _scope: Result.ok())

    def answer(scope: Scope) -> Result:
        draw = Draw(cast("int", scope["seed"]), tool.name, canonical(scope["args"]), "generate")
        made = generate(schema, draw, examples=examples)
        return Result.ok(copied(overlay(made, patch.render(scope)) if options.get("overlay") else made))

    try:
        generate(schema, Draw(0, tool.name, "check"), examples=examples)
    except ExpressionError as error:
        problems.append(
            Problem(
                code=error.code,
                message=error.message,
                pointer=pointer,
                hint=error.hint or "write a `result` instead",
            )
        )
    return _Compiled(patch.names | {"args", "seed"}, answer)


def _template(text: str, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    try:
        template = compile_text(text, names_for(tool))
    except ExpressionError as error:
        problems.append(Problem(code=error.code, message=error.message, pointer=pointer, hint=error.hint))
        return _Compiled(frozenset(), lambda _scope: Result.ok())
    constant = None if template.names else _fixed_text(template, pointer, problems)
    return _Compiled(template.names, lambda scope: Result.ok(value_of_text(template.render(scope))), constant)


def _fixed_text(template: Text, pointer: str, problems: list[Problem]) -> Result | None:
    try:
        return Result.ok(value_of_text(template.render({})))
    except ExpressionError as error:
        problems.append(Problem(code=error.code, message=error.message, pointer=pointer, hint=error.hint))
        return None


def _template_file(name: str, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    from toolcrib.loading.files import read_text  # noqa: PLC0415 -- as above

    return _template(read_text(tool.origin, name, pointer, problems), pointer, tool, problems)


def _content(value: Any, pointer: str, tool: Descriptor, problems: list[Problem]) -> _Compiled:
    names, parts, fixed = compile_content(value, pointer, tool, problems)
    constant = Result.ok(content=parts({})) if fixed else None
    return _Compiled(names, lambda scope: Result.ok(content=parts(scope)), constant)


_COMPILERS: dict[str, Callable[[Any, str, Descriptor, list[Problem]], _Compiled]] = {
    "result": _result,
    "result_file": _result_file,
    "error": _error,
    "generate": _generate,
    "template": _template,
    "template_file": _template_file,
    "content": _content,
}


def value_of_text(text: str) -> JSON:
    """What a rendered template answers: the value of a JSON text, any other text as it is.

    A text that begins like a JSON object or array and is none stays text, so the result check says so.
    """
    from toolcrib.loading.documents import parse_json  # noqa: PLC0415 -- as above

    value, problems = parse_json("template", text)
    return text if problems else value
