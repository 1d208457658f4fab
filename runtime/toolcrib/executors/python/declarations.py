"""How Python code declares tools: `tool`, `Tool` and `simple_tool`, and the descriptors that they become.

A declaration becomes a document, which is checked exactly as a descriptor file is. Types are read when the tool is added to
a runtime or first called, so that importing a module with tools does not import pydantic.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    overload,
)

from toolcrib.core.errors import ConfigurationError, DocumentError, NotReady, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Descriptor, Schema
from toolcrib.core.pointers import file_and_line
from toolcrib.core.protocols import Kinds
from toolcrib.executors.python.signatures import (
    Dependency,
    Signature,
    context_parameters,
    dependencies_of,
    docstring_of,
    hints_of,
    place_of,
    result_type,
    signature_of,
)
from toolcrib.schema.from_types import JsonType, UnreadableValue

C = TypeVar("C", bound=Callable[..., Any])
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

MODE = "python"
_DECLARED = "__toolcrib_tool__"
"""Attribute of a function or class that holds its declaration."""


class ToolKeys(TypedDict, total=False):
    """The keyword arguments of `tool`: the keys of a descriptor, and those of the block `python`.

    `schema` is the `input_schema`, which replaces the one of the annotations.
    """

    name: str
    title: str
    description: str
    version: str
    author: str
    help_url: str
    tags: list[str]
    labels: dict[str, str]
    category: str
    annotations: dict[str, bool]
    schema: dict[str, Any]
    output_schema: dict[str, Any]
    examples: list[dict[str, Any]]
    mode: str
    mock: dict[str, Any]
    timeout: str
    limits: dict[str, Any]
    coerce: Literal["off", "safe", "lenient"]
    on_invalid_result: Literal["error", "warn", "pass"]
    capabilities: list[str]
    platforms: list[Literal["linux", "macos", "windows"]]
    dependencies: dict[str, list[str]]
    requires_confirmation: bool | str
    estimate: dict[str, Any]
    deprecated: bool | str
    experimental: bool
    metadata: dict[str, Any]
    config: dict[str, Any]
    worker: Literal["inline", "thread", "process"]
    instances: Literal["shared", "pool", "call"]


class Tool(Generic[InputT, OutputT]):
    """Base class of tools with state, such as a connection. A subclass needs no decorator.

    A runtime creates one instance with the dependencies that the constructor names (`Runtime(provide=...)`), calls `initialise` once before the first call, `execute` for each
    call, also concurrently, and `close` once when the runtime is closed. Each method may be synchronous or asynchronous.
    A parameter of `execute` that is annotated `CallContext | None`, with the default None, receives the context of the call.

    Example:
        ```python
        from typing import TypedDict

        class City(TypedDict):
            city: str

        class GetWeather(toolcrib.Tool[City, str]):
            async def execute(self, input: City) -> str:
                return f"sunny in {input['city']}"
        ```
    """

    def initialise(self, config: Any, /) -> Awaitable[None] | None:  # noqa: ARG002 -- for subclasses
        """Prepare for calls.

        Args:
            config: The `config` of the block `python`, as the type that the subclass declares.
        """
        return None

    def execute(self, input: InputT, /) -> OutputT | Awaitable[OutputT]:  # noqa: A002 -- the name in the docs
        """Run one call.

        Args:
            input: The arguments as the input type.
        """
        raise NotImplementedError

    def close(self) -> Awaitable[None] | None:
        """Release what `initialise` acquired."""
        return None


Declared: TypeAlias = "Callable[..., Any] | type[Tool[Any, Any]] | Tool[Any, Any]"


class ToolDeclaration(NamedTuple):
    """What `tool` recorded about a function or class.

    Attributes:
        of: The function or class itself, because subclasses inherit its attributes.
        keys: Keys of the descriptor and of the block `python`.
        names: Local names that annotations may use, for a function that is defined within another.
    """

    of: object = None
    keys: Mapping[str, Any] = NOTHING
    names: Mapping[str, Any] = NOTHING


NOT_DECLARED = ToolDeclaration()


@overload
def tool(target: C, /) -> C: ...


@overload
def tool(**keys: Unpack[ToolKeys]) -> Callable[[C], C]: ...


def tool(target: Any = None, /, **keys: Any) -> Any:
    """Declare a function, or a subclass of `Tool`, as a tool. Returns the same object, which can be called as before.

    Annotations become the schemas, the docstring the descriptions, and the name the name of the tool. The function may be
    synchronous, asynchronous, or a generator that yields `Progress` and `Partial` before its result.

    Example:
        ```python
        @toolcrib.tool(annotations={"read_only": True}, timeout="5s")
        async def get_forecast(city: str, days: Annotated[int, Field(ge=1, le=7)] = 3) -> Forecast:
            \"\"\"Return the weather forecast of a city.\"\"\"
        ```

    Args:
        target: The function or class, if the decorator has no arguments.
        keys: Keys of the descriptor, such as `name`, `annotations`, `examples` and `timeout`; `schema` for a function
            without annotations; `config`, `worker` and `instances` of the block `python`. They are checked when the tool is added to a
            runtime.

    Raises:
        ConfigurationError: The object is neither a function nor a subclass of `Tool`.
    """
    frame = inspect.currentframe()
    names = frame.f_back.f_locals if frame is not None and frame.f_back is not None else NOTHING

    def declare(given: Any) -> Any:
        _check_kind(given)
        local = "<locals>" in getattr(given, "__qualname__", "")
        try:
            setattr(given, _DECLARED, ToolDeclaration(given, keys, dict(names) if local else NOTHING))
        except AttributeError:
            message = f"cannot declare `{given!r}` as a tool: it is not written in Python"
            raise ConfigurationError(message, hint="wrap it in a function") from None
        return given

    return declare if target is None else declare(target)


def simple_tool(
    name: str,
    description: str,
    input_schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    *,
    mock: Mapping[str, Any] = NOTHING,
    timeout: str = "3s",
) -> Descriptor:
    """Create the descriptor of a mocked tool, for `Runtime.add`.

    Args:
        name: Name of the tool.
        description: What it does.
        input_schema: JSON Schema of the arguments (default: no arguments).
        output_schema: JSON Schema of the result (default: any JSON value).
        mock: The block `mock` (default: values generated from the output schema, or null without one).
        timeout: Deadline of a call.

    Raises:
        DocumentError: A key is invalid.
    """
    from toolcrib.executors import Executors  # noqa: PLC0415 -- it lists this module

    block = dict(mock) or ({"result": None} if output_schema is None else {"generate": {}})
    document: dict[str, Any] = {"name": name, "description": description, "mock": block, "timeout": timeout}
    schemas = {"input_schema": input_schema, "output_schema": output_schema}
    document |= {key: schema for key, schema in schemas.items() if schema is not None}
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    place = "<memory>:1" if caller is None else f"{caller.f_code.co_filename}:{caller.f_lineno}"
    return parsed_document({**document, "mode": "mock"}, place, Executors.installed())


class Implementation(NamedTuple):
    """A function or class with everything that its types and docstring say.

    Attributes:
        target: The function, the class, or an instance of it.
        name: Name of the tool.
        call: `module:name`, as in the block `python`.
        place: `file:line`.
        description: The description in the docstring.
        signature: The signature of a function; None for a class.
        input: The input type of a class; None for a function.
        result: The type of the result; None if it is not declared.
        config: The type of the config; None if there is none.
        contexts: Names of the parameters that receive the `CallContext`.
        dependencies: Parameters of the constructor of a class, which the program provides.
        provided: Name of a dependency -> its value, for the constructor.
    """

    target: Any
    name: str
    call: str
    place: str
    description: str
    signature: Signature | None
    input: JsonType | None
    result: JsonType | None
    config: JsonType | None
    contexts: tuple[str, ...]
    dependencies: tuple[Dependency, ...] = ()
    provided: Mapping[str, Any] = NOTHING

    def with_provided(self, provided: Mapping[str, Any], name: str) -> Implementation:
        """The implementation of the tool `name`, with the dependencies of its constructor.

        Raises:
            MissingDependency: A required one is not provided.
        """
        if not self.dependencies:
            return self
        return self._replace(provided=chosen_dependencies(self.dependencies, provided, name, self.place))

    @property
    def input_schema(self) -> dict[str, JSON]:
        """JSON Schema of the arguments."""
        if self.signature is not None:
            return self.signature.input_schema
        assert self.input is not None  # noqa: S101 -- one of the two is set
        return self.input.input_schema

    @property
    def function(self) -> Callable[..., Any]:
        """The function that a call runs; the method of the class for a class."""
        found: Callable[..., Any] = self.target if self.signature is not None else self.target.execute
        return found

    def read(self, arguments: dict[str, JSON]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert the arguments of a call to the positional and the named arguments of the function.

        Raises:
            UnreadableValue: Arguments are missing, or their types refuse them.
        """
        if self.signature is not None:
            read = self.signature.joint or self.signature.read
            try:
                return (), read(arguments)
            except ValueError:
                return (), self.signature.read(arguments)  # finds out which argument is wrong
        assert self.input is not None  # noqa: S101 -- one of the two is set
        return (self.input.read(arguments),), {}

    def schema_problems(self, schema: Schema | None) -> Iterator[Problem]:
        """Yield the arguments of a descriptor's own schema that the function does not take, or lacks.

        Args:
            schema: The input schema of the descriptor; None if the function provides it.
        """
        if not isinstance(schema, Mapping):
            return
        taken: Any = self.input_schema
        own: Any = schema
        known = taken.get("properties", {})
        if taken.get("additionalProperties") is False:
            for name in own.get("properties", {}):
                if name not in known:
                    message = f"`{self.call}` has no parameter `{name}`"
                    hint = did_you_mean(name, known) or "remove the property, or add the parameter"
                    pointer = f"/input_schema/properties/{name}"
                    yield Problem(code="schema_mismatch", message=message, pointer=pointer, hint=hint)
        for name in taken.get("required", ()):
            if "properties" in own and name not in own.get("required", ()):
                message = f"`{self.call}` requires `{name}`, and `input_schema` does not"
                hint = f"add `{name}` to `required`, or give the parameter a default"
                yield Problem(code="schema_mismatch", message=message, pointer="/input_schema", hint=hint)

    def block_problems(self, block: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with the keys of the block for this function or class."""
        found: list[Problem] = []
        if block.get("worker") == "process":
            why = self._why_not_importable()
            if why:
                message = f"`worker: process` cannot import `{self.call}`: {why}"
                hint = "define it at the top level of a module, or remove `worker`"
                found.append(
                    Problem(code="not_importable", message=message, pointer=f"/{MODE}/worker", hint=hint)
                )
        if "instances" in block and not isinstance(self.target, type):
            what = "a function" if self.signature is not None else "an instance that the program created"
            message = f"`instances` has no effect: `{self.call}` is {what}"
            hint = "remove `instances`"
            found.append(
                Problem(code="needless_key", message=message, pointer=f"/{MODE}/instances", hint=hint)
            )
        if block.get("worker") == "thread" and is_asynchronous(self.function):
            message = f"`worker: thread` needs a synchronous function, and `{self.call}` is asynchronous"
            hint = "remove `worker`"
            found.append(Problem(code="needless_key", message=message, pointer=f"/{MODE}/worker", hint=hint))
        if self.config is None:
            if "config" in block:
                message = f"`config` has no effect: `{self.call}` has no `initialise(config)`"
                hint = "remove `config`"
                found.append(
                    Problem(code="needless_key", message=message, pointer=f"/{MODE}/config", hint=hint)
                )
            return found
        try:
            self.config.read(block.get("config", {}))
        except UnreadableValue as error:
            for each in error.violations:
                message = f"`config` does not match its type: {each.for_model()}"
                pointer = f"/{MODE}/config{each.pointer}"
                found.append(Problem(code="invalid_config", message=message, pointer=pointer, hint=each.hint))
        return found

    def _why_not_importable(self) -> str:
        """Why another process cannot import the function or class by its name; empty if it can."""
        module, _colon, path = self.call.partition(":")
        if isinstance(self.target, Tool):
            return "it is an instance, and only the class can be imported"
        if module == "__main__":
            return "it belongs to the program itself"
        if "<locals>" in getattr(self.target, "__qualname__", ""):
            return "it is defined within a function"
        if self.dependencies:
            needed = ", ".join(f"`{each.name}`" for each in self.dependencies)
            return f"its constructor needs {needed}, and a worker has none of the objects of the program"
        found: Any = sys.modules.get(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        return "" if found is self.target else f"`{path}` of `{module}` is another object"


class MissingDependency(NotReady):
    """A tool needs something that the program does not provide."""

    code = "missing_dependency"


def chosen_dependencies(
    needed: Sequence[Dependency], provided: Mapping[str, Any], name: str, place: str
) -> dict[str, Any]:
    """The values of those dependencies that are provided.

    Raises:
        MissingDependency: A required one is not; the message names all of them.
    """
    missing = [each.name for each in needed if each.required and each.name not in provided]
    if missing:
        listed = ", ".join(f"`{each}`" for each in missing)
        message = f"`{name}` needs {listed}, which the program does not provide ({place})"
        near = " ".join(filter(None, (did_you_mean(each, provided) for each in missing)))
        example = ", ".join(f'"{each}": ...' for each in missing)
        hint = f"pass `provide={{{example}}}` to `Runtime` or `Runtime.open`"
        raise MissingDependency(message, hint=f"{near} {hint}" if near else hint)
    return {each.name: provided[each.name] for each in needed if each.name in provided}


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether a function runs in the event loop by nature."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def implementation_of(target: Any, *, untyped: bool = False) -> Implementation:
    """Read the types and the docstring of a function, a subclass of `Tool` or an instance of one.

    Args:
        target: The function, class or instance. A factory must have been called before.
        untyped: Whether parameters may lack an annotation, because the schema of the arguments is given.

    Raises:
        ConfigurationError: It cannot be a tool; the message names file and line.
    """
    _check_kind(target)
    declared = declaration_of(target)
    if is_tool_class(target) or isinstance(target, Tool):
        return _class_implementation(target, declared)
    untyped = untyped or "schema" in declared.keys
    signature = signature_of(target, names=declared.names, untyped=untyped)
    return Implementation(
        target,
        signature.name,
        call_of(target),
        signature.place,
        signature.description,
        signature,
        None,
        signature.result,
        None,
        signature.contexts,
    )


def _class_implementation(target: Any, declared: ToolDeclaration) -> Implementation:
    kind: type[Tool[Any, Any]] = target if isinstance(target, type) else type(target)
    name, place = kind.__name__, place_of(kind.execute)
    if kind.execute is Tool.execute:
        place = place_of(kind)
        message = f"`{name}` does not define `execute` ({place})"
        raise ConfigurationError(
            message, code="bad_signature", hint="define `async def execute(self, input)`"
        )
    types = _generic_arguments(kind)
    if types is None:
        message = f"`{name}` does not name its input and output types ({place})"
        hint = f"write `class {name}(toolcrib.Tool[Input, Output])`"
        raise ConfigurationError(message, code="bad_signature", hint=hint)
    taken = JsonType(types[0], subject=f"the input of `{name}`", place=place)
    if taken.input_schema.get("type") != "object":
        message = f"the input of `{name}` is not an object ({place})"
        hint = "use a dataclass, a TypedDict or a pydantic model"
        raise ConfigurationError(message, code="bad_signature", hint=hint)
    contexts = context_parameters(hints_of(kind.execute, declared.names))
    return Implementation(
        target,
        _snake_case(name),
        call_of(kind),
        place,
        docstring_of(kind).description if kind.__doc__ else "",
        None,
        taken,
        result_type(types[1], f"the output of `{name}`", place),
        _config_of(kind, declared),
        contexts,
        dependencies_of(kind, name, place) if target is kind else (),
    )


def _generic_arguments(kind: type) -> tuple[Any, ...] | None:
    for base in kind.__mro__:
        for each in vars(base).get("__orig_bases__", ()):
            if get_origin(each) is Tool:
                return get_args(each)
    return None


def _config_of(kind: type[Tool[Any, Any]], declared: ToolDeclaration) -> JsonType | None:
    if kind.initialise is Tool.initialise:
        return None
    place, name = place_of(kind.initialise), kind.__name__
    hints = hints_of(kind.initialise, declared.names)
    parameters = [*inspect.signature(kind.initialise).parameters][1:]
    if len(parameters) != 1 or parameters[0] not in hints:
        message = f"`initialise` of `{name}` must have one annotated parameter, the config ({place})"
        hint = (
            "write `async def initialise(self, config: Config) -> None`; use `dict[str, Any]` for any config"
        )
        raise ConfigurationError(message, code="bad_signature", hint=hint)
    return JsonType(hints[parameters[0]], subject=f"the config of `{name}`", place=place)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def call_of(target: Any) -> str:
    """`module:name` of a function or class."""
    path = getattr(target, "__qualname__", type(target).__qualname__)
    return f"{target.__module__}:{path.replace('.<locals>', '').replace('<lambda>', 'lambda_')}"


def is_tool_class(target: Any) -> bool:
    """Whether an object is a subclass of `Tool`."""
    return isinstance(target, type) and issubclass(target, Tool)


def declaration_of(target: Any) -> ToolDeclaration:
    """What `tool` recorded about an object; its subclasses do not inherit it."""
    owner = type(target) if isinstance(target, Tool) else getattr(target, "__func__", target)
    found: ToolDeclaration | None = getattr(owner, _DECLARED, None)
    return found if found is not None and found.of is owner else NOT_DECLARED


def _check_kind(target: Any) -> None:
    if is_tool_class(target) or isinstance(target, Tool) or inspect.isroutine(target):
        return
    what = (
        f"the class `{target.__name__}`"
        if isinstance(target, type)
        else f"an object of type `{type(target).__name__}`"
    )
    raise ConfigurationError(
        f"cannot make a tool of {what}",
        code="bad_signature",
        hint="use a function, a subclass of `toolcrib.Tool`, or an instance of one",
    )


class DeclaredBlock(dict[str, Any]):
    """The block `python` of a tool whose function or class is in the program already.

    Attributes:
        implementation: The function or class; or why its factory cannot create it.
    """

    def __init__(self, block: Mapping[str, Any], implementation: Implementation | MissingDependency) -> None:
        super().__init__(block)
        self._implementation = implementation

    @property
    def implementation(self) -> Implementation:
        """The function or class.

        Raises:
            MissingDependency: Its factory needs something that the program does not provide.
        """
        if isinstance(self._implementation, MissingDependency):
            raise MissingDependency(self._implementation.message, hint=self._implementation.hint)
        return self._implementation


def descriptor_of(
    target: Declared, kinds: Kinds, keys: Mapping[str, Any] = NOTHING, *, call: str = ""
) -> Descriptor:
    """The descriptor of a function, a subclass of `Tool` or an instance of one.

    Args:
        target: The function, class or instance.
        kinds: The block schemas and checks of the modes.
        keys: Keys of the descriptor and of the block `python`, which replace those that were passed to `tool`.
        call: `module:name` of the factory that created it; empty for none.

    Raises:
        ConfigurationError: It cannot be a tool; the message names file and line.
        DocumentError: A key that was passed to `tool` is invalid.
    """
    keys = {**declaration_of(target).keys, **keys}
    return descriptor_of_implementation(
        implementation_of(target, untyped="schema" in keys), kinds, keys, call=call
    )


def descriptor_of_implementation(
    found: Implementation, kinds: Kinds, keys: Mapping[str, Any], *, call: str = ""
) -> Descriptor:
    """The descriptor of a function or class that was read; arguments and errors as for `descriptor_of`."""
    keys = dict(keys)
    block: dict[str, Any] = {"call": call or found.call}
    block |= {key: keys.pop(key) for key in ("config", "worker", "instances") if key in keys}
    schema = keys.pop("schema", None)
    document: dict[str, Any] = {
        "name": found.name,
        "description": found.description,
        "input_schema": schema or found.input_schema,
        "mode": MODE,
        MODE: block,
    }
    if found.result is not None:
        document["output_schema"] = found.result.output_schema
    document |= keys
    _check_keys(keys, found.name, found.place)
    made = parsed_document(document, found.place, kinds)
    wrong = [*found.block_problems(block), *found.schema_problems(schema)]
    if wrong:
        file, line = file_and_line(found.place)
        raise DocumentError([each.at(file, line, 1) for each in wrong])
    return made._replace(bindings={**made.bindings, MODE: DeclaredBlock(block, found)})


_WRITTEN_OTHERWISE = {
    "input_schema": "use `schema=`",
    "python": "use `config=` and `worker=`",
}
"""Keys of a descriptor that are no arguments of `tool`, and what to write instead."""


def _check_keys(keys: Mapping[str, Any], name: str, place: str) -> None:
    # They would silently replace what the function itself says.
    for key, hint in _WRITTEN_OTHERWISE.items():
        if key in keys:
            message = f"`{key}` is not an argument of `toolcrib.tool` (`{name}`, {place})"
            raise ConfigurationError(message, code="bad_signature", hint=hint)


def parsed_document(document: dict[str, Any], place: str, kinds: Kinds) -> Descriptor:
    """Check a descriptor that a program made as a file is checked.

    Raises:
        DocumentError: The document has errors.
    """
    # Deferred: importing a module that declares tools must stay fast.
    from toolcrib.loading.sources import parse  # noqa: PLC0415

    file, line = file_and_line(place)
    loaded = parse(file, {key: value for key, value in document.items() if value != ""}, kinds, line=line)
    errors = [each for each in loaded.problems if each.severity == "error"]
    if errors or not loaded.tools:
        raise DocumentError(errors or loaded.problems)
    return loaded.tools[0]


def unwritten_schema(descriptor: Descriptor) -> bool:
    """Whether a descriptor leaves its input schema to the function that it names."""
    plain: Schema = Descriptor._field_defaults["input_schema"]
    return "input_schema" not in descriptor.origin.written and descriptor.input_schema == plain
