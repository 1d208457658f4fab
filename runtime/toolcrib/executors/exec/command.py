"""Compile the block `exec`: the arguments, the environment and the input of a program, its folder and its sandbox."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.child_process import inherited_environment
from toolcrib.core.errors import ExpressionError, NotReady, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import pointer_step, pointer_to
from toolcrib.core.process_limits import ProcessLimits, check_measurable
from toolcrib.core.sandbox import Sandbox
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.compiler import ArgumentReads
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.secrets import (
    MissingSecret,
    SecretResolver,
    SecretVariable,
    missing_variables,
    not_ready,
    split_variables,
)
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.sandbox_grants import (
    declared_paths,
    folder_of,
    literal_paths,
    resolved_path,
    sandbox_of,
)

MODE: Final = "exec"

Arguments: TypeAlias = "dict[str, JSON]"
ReadValue: TypeAlias = Callable[[Arguments], JSON]

_END_OF_OPTIONS: Final = "--"


class Element(NamedTuple):
    """One element of `command`.

    Attributes:
        read: Computes its value: a scalar, a list with one item for each argument, or None for no argument.
        constant: Whether it does not depend on the call.
        guarded: Whether a value of the call may not make it an option: it starts with an expression, before any `--`.
        pointer: Its place in the descriptor.
        arguments: The arguments of the call that it reads.
    """

    read: ReadValue
    constant: bool
    guarded: bool
    pointer: str
    arguments: tuple[str, ...]

    def texts(self, given: Arguments) -> Iterator[str]:
        """The arguments of the program.

        Raises:
            UnusableArguments: A value cannot be one.
        """
        value = self.read(given)
        for item in value if isinstance(value, list) else [value]:
            if item is None:
                continue
            text = text_of(item)
            self._check(text, given)
            yield text

    def _check(self, text: str, given: Arguments) -> None:
        if "\0" in text:
            raise self._refusal("contains a null character, which no program can be given", "remove it")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._refusal("contains half of a surrogate pair", "correct the text") from None
        if self.guarded and text.startswith("-") and self._comes_from(text, given):
            raise self._refusal(
                "begins with `-`, and the program would read it as an option",
                "give a value that does not begin with `-`",
            )

    def _comes_from(self, text: str, given: Arguments) -> bool:
        """Whether the start of a text is a value of the call; `{{ '--all' if args.all else none }}` is not."""
        values = (value for name in self.arguments or given for value in _scalars(given.get(name)))
        return any(value.startswith("-") and text.startswith(value) for value in values)

    def _refusal(self, message: str, hint: str) -> UnusableArguments:
        pointer = pointer_to((self.arguments[0],)) if len(self.arguments) == 1 else ""
        what = f"`{self.arguments[0]}`" if pointer else "an argument of the program"
        return UnusableArguments(f"{what} {message}", pointer=pointer, hint=hint, at=self.pointer)


class LaunchPlan(NamedTuple):
    """What is started for a call.

    Attributes:
        name: The program as written.
        program: Its path.
        elements: Its arguments.
        env: Its environment, apart from `computed`.
        computed: Variables whose values depend on the call.
        cwd: Its working directory, absolute.
        stdin: Computes its input; None for the default of the wire format.
        sandbox: Its sandbox; None for none.
        limits: The limits of its process.
        result: Computes the value of the call from `args`, `output` and `exit_code`; None for `output`.
    """

    name: str
    program: str
    elements: tuple[Element, ...]
    env: Mapping[str, str]
    computed: Mapping[str, ReadValue]
    cwd: str
    stdin: ReadValue | None
    sandbox: Sandbox | None
    limits: ProcessLimits
    result: Callable[[Mapping[str, JSON]], JSON] | None

    def arguments(self, given: Arguments) -> list[str]:
        """The arguments of the program for a call.

        Raises:
            UnusableArguments: They cannot be computed.
        """
        return [text for element in self.elements for text in element.texts(given)]

    def environment(self, given: Arguments) -> dict[str, str]:
        """The environment for a call, without the mark of `ChildProcess`.

        Raises:
            UnusableArguments: A value cannot be computed.
        """
        return {**self.env, **{name: self._value(name, read(given)) for name, read in self.computed.items()}}

    @staticmethod
    def _value(name: str, value: JSON) -> str:
        text = "" if value is None else text_of(value)
        if "\0" in text:
            raise UnusableArguments(f"the variable `{name}` contains a null character", hint="remove it")
        return text


def text_of(value: JSON) -> str:
    """A value as an argument: a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else compact(value)


def _scalars(value: JSON) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _scalars(item)
    elif value is not None:
        yield text_of(value)


def check_block(descriptor: Descriptor) -> list[Problem]:
    """The problems that the schema of the block cannot express."""
    block: Any = descriptor.bindings[MODE]
    problems: list[Problem] = []
    _Compiler(descriptor, problems, None).elements(block)
    compiler = _Compiler(descriptor, problems, None)
    for name, text in block.get("env", {}).items():
        compiler.text(text, f"/{MODE}/env/{pointer_step(name)}")
    if "stdin" in block:
        compile_value(block["stdin"], compiler.names, problems, f"/{MODE}/stdin")
    if "result" in block:
        compile_value(block["result"], _RESULT_NAMES, problems, f"/{MODE}/result")
    return [*problems, *_combinations(block)]


_RESULT_NAMES: Final = ("args", "output", "exit_code")


def _combinations(block: Mapping[str, Any]) -> Iterator[Problem]:
    stays = block.get("lifetime") == "runtime"
    promptkit = block.get("wire") == "promptkit"
    if "{{" in block["command"][0]:
        message = "the program itself cannot be computed"
        hint = "write its name or path; only its arguments can contain expressions"
        pointer = f"/{MODE}/command/0"
        yield Problem(code="expression_not_allowed", message=message, pointer=pointer, hint=hint)
    if promptkit and "stdin" in block:
        yield _wrong("stdin", "with `wire: promptkit`, the input is given", "remove `stdin`")
    if "concurrency" in block and not (stays and promptkit):
        hint = "remove it; `limits.concurrency` limits the programs that run at the same time"
        yield _wrong("concurrency", "it needs `lifetime: runtime` and `wire: promptkit`", hint)
    if stays:
        yield from _combinations_of_running(block)


def _combinations_of_running(block: Mapping[str, Any]) -> Iterator[Problem]:
    for key, what in (("ok_exit_codes", "exit code"), ("result", "exit code and no output of its own")):
        if key in block:
            yield _wrong(key, f"a program that stays running has no {what} of a call", f"remove `{key}`")
    texts = {f"command/{index}": text for index, text in enumerate(block["command"][1:], 1)}
    texts |= {f"env/{pointer_step(name)}": text for name, text in block.get("env", {}).items()}
    for key, text in texts.items():
        if "{{" in text:
            message = "a program that stays running is started before the call is known"
            yield _wrong(key, message, "pass the argument in `stdin`, or use `lifetime: call`")
    if block.get("wire", "text") == "text" and "stdin" not in block:
        message = "a program that stays running needs a line of input for each call"
        yield _wrong("lifetime", message, "add `stdin`, or use `wire: json`")


def _wrong(key: str, message: str, hint: str) -> Problem:
    return Problem(code="wrong_combination", message=message, pointer=f"/{MODE}/{key}", hint=hint)


def compile_command(descriptor: Descriptor, world: NetworkEnvironment) -> LaunchPlan:
    """Compile a block without errors, resolve its variables, and find what it names.

    Raises:
        NotReady: A variable, the program, a folder or the sandbox is missing, or a limit cannot be measured.
    """
    block: Any = descriptor.bindings[MODE]
    check_measurable(descriptor.limits)
    compiler = _Compiler(descriptor, [], world.secrets)
    elements = compiler.elements(block)
    env = inherited_environment(os.environ)
    computed: dict[str, ReadValue] = {}
    for name, text in block.get("env", {}).items():
        read, constant = compiler.text(text, f"/{MODE}/env/{pointer_step(name)}")
        if constant:
            env[name] = text_of(read({}))
        else:
            computed[name] = read
    base = world.trust.contents.base
    cwd = resolved_path(descriptor, block.get("cwd", "."), f"/{MODE}/cwd", base, world.secrets)
    paths = declared_paths(descriptor, block.get("paths", {}), MODE, base, world.secrets)
    program = find_program(block["command"][0], cwd, env.get("PATH", os.defpath), descriptor.name)
    sandbox = sandbox_of(
        descriptor.name, world, read=paths["read"], write=paths["write"], network=block.get("network", False)
    )
    return LaunchPlan(
        name=block["command"][0],
        program=program,
        elements=elements[1:],
        env=env,
        computed=computed,
        cwd=cwd,
        stdin=_stdin(block),
        sandbox=sandbox,
        limits=ProcessLimits.of(descriptor.limits),
        result=compile_value(block["result"], _RESULT_NAMES, []).render if "result" in block else None,
    )


def _stdin(block: Mapping[str, Any]) -> ReadValue | None:
    if "stdin" not in block:
        return None
    return _reader(compile_value(block["stdin"], ("args",), [], f"/{MODE}/stdin"), f"/{MODE}/stdin")


def _reader(rendering: Rendering, pointer: str) -> ReadValue:
    """A function whose failures name what the caller can change."""

    def compute(given: Arguments) -> JSON:
        try:
            return rendering.render({"args": given})
        except ExpressionError as error:
            message = f"`{pointer.removeprefix('/')}` cannot be computed: {error.message}"
            raise UnusableArguments(message, hint=error.hint, at=pointer) from None

    return compute


class _Compiler:
    """Compiles the texts of a block: variables are resolved now, expressions with each call.

    Args:
        descriptor: The descriptor.
        problems: Receives every problem.
        secrets: Resolves variables; None while the block is only checked.
    """

    def __init__(
        self, descriptor: Descriptor, problems: list[Problem], secrets: SecretResolver | None
    ) -> None:
        self._descriptor = descriptor
        self._problems = problems
        self._secrets = secrets
        written = "input_schema" in descriptor.origin.written
        self._known = closed_names(descriptor.input_schema) if written else None
        self.names = ArgumentReads(self._known).names

    def elements(self, block: Mapping[str, Any]) -> tuple[Element, ...]:
        """The elements of `command`."""
        found: list[Element] = []
        options = True
        for index, text in enumerate(block["command"]):
            pointer = f"/{MODE}/command/{index}"
            watch = ArgumentReads(self._known)
            read, constant = self.text(text, pointer, watch)
            reads = () if watch.whole else tuple(watch.keys)
            guarded = options and not constant and text.lstrip().startswith("{{")
            found.append(Element(read, constant, guarded, pointer, reads))
            options = options and text != _END_OF_OPTIONS
        return tuple(found)

    def text(self, text: str, pointer: str, watch: ArgumentReads | None = None) -> tuple[ReadValue, bool]:
        """The function that computes a text, and whether it is constant."""
        names = self.names if watch is None else watch.names
        whole = _whole_argument(text)
        try:
            pieces = split_variables(text)
        except ExpressionError as error:
            self._problems.append(error.problem(pointer))
            return (lambda _given: ""), True
        parts: list[tuple[ReadValue, bool]] = []
        for piece in pieces:
            if isinstance(piece, SecretVariable):
                parts.append((_constant(self._value_of(piece, pointer)), True))
                continue
            rendering = compile_value(piece, names, self._problems, pointer)
            parts.append((_reader(rendering, pointer), rendering.constant))
        constant = all(fixed for _read, fixed in parts)
        if whole is not None:
            # An optional argument that is absent is no argument of the program.
            return (lambda given: given.get(whole)), False
        if len(parts) == 1:
            return parts[0][0], constant
        return (lambda given: "".join(text_of(read(given)) for read, _fixed in parts)), constant

    def _value_of(self, variable: SecretVariable, pointer: str) -> str:
        if self._secrets is None:
            return variable.default or ""
        try:
            return self._secrets.look_up(variable)
        except MissingSecret as error:
            place = self._descriptor.origin.place(pointer)
            raise NotReady(f"{error.message} ({place})", code=error.code, hint=error.hint) from None


def _constant(value: JSON) -> ReadValue:
    return lambda _given: value


def _whole_argument(text: str) -> str | None:
    """The argument that a text consists of: `city` for `{{ args.city }}`."""
    inner = text.strip()
    if inner != text or not (inner.startswith("{{") and inner.endswith("}}")):
        return None
    name = inner[2:-2].strip().removeprefix("args.")
    return name if inner[2:-2].strip() == f"args.{name}" and name.isidentifier() else None


def find_program(name: str, cwd: str, path: str, tool: str) -> str:
    """The path of a program.

    Args:
        name: Its name, or its path relative to `cwd`.
        cwd: The working directory.
        path: The folders in which a name is looked up, as in `PATH`.
        tool: Name of the tool, for messages.

    Raises:
        NotReady: The program or the working directory does not exist.
    """
    # Checked first: a failed start reports a missing folder and a missing program in the same way.
    if not os.path.isdir(cwd):
        message = f"the working directory of `{tool}`, `{cwd}`, does not exist"
        raise NotReady(message, code="no_program", hint="create it, or correct `exec.cwd`")
    if os.sep in name:
        found = os.path.join(cwd, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return os.path.normpath(found)
        state = "is not executable" if os.path.isfile(found) else "does not exist"
        hint = f"chmod +x {found}" if os.path.isfile(found) else "correct `exec.command`"
        raise NotReady(f"the program of `{tool}`, `{found}`, {state}", code="no_program", hint=hint)
    program = shutil.which(name, path=path)
    if program is None:
        message = f"the program of `{tool}`, `{name}`, was not found in PATH ({path})"
        if " " in name.strip():
            hint = (
                "the first element of `command` is only the program; each argument is an element of its own"
            )
        else:
            hint = did_you_mean(name, _programs_in(path)) or "install it, or write its full path"
        raise NotReady(message, code="no_program", hint=hint)
    return os.path.abspath(program)


def missing_part(descriptor: Descriptor, world: NetworkEnvironment) -> str:
    """What a program lacks on this machine, with a hint: variables, the program, its folder, the sandbox, granted paths.

    Values of variables are not looked at, so a program or path that one decides is not checked.
    """
    block: Any = descriptor.bindings[MODE]
    written = {key: block[key] for key in ("command", "env", "cwd", "paths") if key in block}
    missing = missing_variables(written, f"/{MODE}", world.secrets)
    if missing:
        return str(not_ready(descriptor, missing))
    cwd = block.get("cwd", ".")
    path = block.get("env", {}).get("PATH", inherited_environment(os.environ).get("PATH", os.defpath))
    program = block["command"][0]
    base = world.trust.contents.base
    try:
        if not any("$" in text or "{{" in text for text in (program, cwd, path)):
            folder = os.path.join(folder_of(descriptor, MODE, base), cwd)
            find_program(program, folder, path, descriptor.name)
        # Whether the project wants a sandbox is known only if its settings are trusted.
        if world.trust.trusts_settings():
            paths = declared_paths(
                descriptor, literal_paths(block.get("paths", {})), MODE, base, world.secrets
            )
            sandbox_of(descriptor.name, world, read=paths["read"], write=paths["write"])
    except NotReady as error:
        return str(error)
    return ""


def _programs_in(path: str) -> Sequence[str]:
    found: set[str] = set()
    for folder in path.split(os.pathsep):
        if os.path.isdir(folder):
            found.update(os.listdir(folder))
    return sorted(found)
