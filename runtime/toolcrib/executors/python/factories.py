"""Factories: functions that create a tool from what the program provides, such as a database."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, Unpack, overload

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.protocols import Kinds, ToolProvider
from toolcrib.executors.python.declarations import (
    MODE,
    Declared,
    DeclaredBlock,
    MissingDependency,
    ToolKeys,
    call_of,
    chosen_dependencies,
    declaration_of,
    descriptor_of,
    descriptor_of_implementation,
    implementation_of,
    parsed_document,
)
from toolcrib.executors.python.signatures import dependencies_of, docstring_of, is_generator, place_of
from toolcrib.schema.validation.violations import shorten

C = TypeVar("C", bound=Callable[..., Any])

_FACTORY = "__toolcrib_factory__"
"""Attribute of a function that holds the keys of the tool that it creates."""


@overload
def factory(target: C, /) -> C: ...


@overload
def factory(**keys: Unpack[ToolKeys]) -> Callable[[C], C]: ...


def factory(target: Any = None, /, **keys: Any) -> Any:
    """Declare a function that creates a tool. Returns the same function.

    The parameters of the function are the names of its dependencies, which `Runtime(provide=...)` and
    `Runtime.open(provide=...)` provide. A parameter with a default is optional. The function returns what
    `toolcrib.tool` accepts: a function, or a subclass or an instance of `Tool`. The tool has the name of the factory.

    If a dependency is not provided, the tool is listed, and calls of it end `unavailable`.

    Example:
        ```python
        @toolcrib.factory
        def refund(database):
            async def refund(order: str) -> str:
                \"\"\"Refund an order.\"\"\"
                return await database.refund(order)

            return refund

        Runtime.open("descriptors", provide={"database": database}).add(refund)
        ```

    Args:
        target: The function, if the decorator has no arguments.
        keys: As for `toolcrib.tool`; they replace those of the tool that is returned.

    Raises:
        ConfigurationError: The object is not a function, or it is asynchronous or a generator.
    """

    def declare(given: Any) -> Any:
        if not inspect.isfunction(given):
            message = f"cannot make a factory of an object of type `{type(given).__name__}`"
            hint = "decorate a function that returns the tool"
            raise ConfigurationError(message, code="bad_signature", hint=hint)
        if inspect.iscoroutinefunction(given) or is_generator(given):
            message = f"the factory `{given.__name__}` is asynchronous or a generator ({place_of(given)})"
            hint = "return the tool; `initialise` and `close` of a `toolcrib.Tool` may wait"
            raise ConfigurationError(message, code="bad_signature", hint=hint)
        setattr(given, _FACTORY, keys)
        return given

    return declare if target is None else declare(target)


def is_factory(target: object) -> bool:
    """Whether `factory` has declared a function."""
    return inspect.isfunction(target) and _FACTORY in vars(target)


def created_tool(target: Callable[..., Any], provided: Mapping[str, Any]) -> Declared:
    """Call a factory.

    Args:
        target: The factory.
        provided: Name of a dependency -> its value.

    Raises:
        MissingDependency: A required dependency is not provided.
        ConfigurationError: A parameter cannot receive a dependency, or the tool that is returned has another name.
    """
    name, place = target.__name__, place_of(target)
    needed = dependencies_of(target, name, place)
    made: Declared | None = target(**chosen_dependencies(needed, provided, name, place))
    if made is None:
        message = f"the factory `{name}` returns nothing ({place})"
        raise ConfigurationError(message, code="bad_signature", hint="return the tool")
    own, expected = declaration_of(made).keys.get("name"), _name_of(target)
    if own not in {None, expected}:
        message = f"the factory `{name}` returns the tool `{own}`, but is declared as `{expected}` ({place})"
        hint = f'write `@toolcrib.factory(name="{own}")`'
        raise ConfigurationError(message, code="bad_signature", hint=hint)
    return made


def _name_of(target: Callable[..., Any]) -> str:
    return str(getattr(target, _FACTORY).get("name") or target.__name__)


def declared_tool(
    target: Declared, kinds: Kinds, keys: Mapping[str, Any] = NOTHING, provided: Mapping[str, Any] = NOTHING
) -> Descriptor:
    """The descriptor of a function, a class, an instance or a factory; the arguments are those of `descriptor_of_factory`.

    Raises:
        ConfigurationError: As `descriptor_of_factory`.
        DocumentError: As `descriptor_of`.
    """
    if is_factory(target):
        return descriptor_of_factory(target, kinds, keys, provided)  # type: ignore[arg-type]  # a factory is a function
    return descriptor_of(target, kinds, keys)


def descriptor_of_factory(
    target: Callable[..., Any],
    kinds: Kinds,
    keys: Mapping[str, Any] = NOTHING,
    provided: Mapping[str, Any] = NOTHING,
) -> Descriptor:
    """The descriptor of the tool that a factory creates; without its dependencies, of one that is unavailable.

    Args:
        target: The factory.
        kinds: The block schemas and checks of the modes.
        keys: Keys of the descriptor, which replace those of the factory.
        provided: Name of a dependency -> its value.

    Raises:
        ConfigurationError: As `created_tool` and `descriptor_of`.
        DocumentError: As `descriptor_of`.
    """
    keys = {"name": _name_of(target), **getattr(target, _FACTORY), **keys}
    try:
        made = created_tool(target, provided)
    except MissingDependency as error:
        return _unavailable(target, kinds, keys, error)
    return descriptor_of(made, kinds, keys, call=call_of(target))


_KEYS_OF_MCP: Final = {"inputSchema": "schema", "input_schema": "schema", "outputSchema": "output_schema"}
_HINTS_OF_MCP: Final = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


def descriptors_of_provider(
    provider: ToolProvider, kinds: Kinds, keys: Mapping[str, Any] = NOTHING
) -> list[Descriptor]:
    """The descriptors of the tools that a provider lists.

    Args:
        provider: The provider.
        kinds: The block schemas and checks of the modes.
        keys: Keys of every descriptor, which replace those of the definitions.

    Raises:
        ConfigurationError: The list is not one of definitions, or two of them have one name.
        DocumentError: Definitions are invalid; it has the problems of all of them.
    """
    kind = type(provider)
    place, what = place_of(kind.call), f"of the provider `{kind.__name__}`"
    listed: object = provider.list()
    if not isinstance(listed, Iterable):
        if inspect.iscoroutine(listed):
            listed.close()
        message = f"`list` {what} returned an object of type `{type(listed).__name__}` ({place})"
        hint = "return a list of definitions; the method is not `async`"
        raise ConfigurationError(message, code="bad_signature", hint=hint)
    found: dict[str, Descriptor] = {}
    problems: list[Problem] = []
    for index, definition in enumerate(listed):
        given: dict[str, Any] = dict(definition) if isinstance(definition, Mapping) else {}
        name = given.get("name")
        if not isinstance(name, str):
            message = f"definition {index} {what} has no `name` ({place})"
            hint = 'write `{"name": "echo", "description": "...", "inputSchema": {...}}`'
            raise ConfigurationError(message, code="bad_signature", hint=hint)
        if name in found:
            message = f"two definitions {what} have the name `{shorten(name)}` ({place})"
            raise ConfigurationError(message, code="duplicate_tool", hint="rename one of them")
        given = {_KEYS_OF_MCP.get(key, key): value for key, value in given.items()}
        hints = given.get("annotations")
        if isinstance(hints, Mapping):
            given["annotations"] = {_HINTS_OF_MCP.get(key, key): value for key, value in hints.items()}
        implementation = implementation_of(_call_of_provider(provider, name), untyped=True)
        implementation = implementation._replace(name=name, call=call_of(kind.call), place=place)
        try:
            found[name] = descriptor_of_implementation(
                implementation, kinds, {"schema": _NO_ARGUMENTS, **given, **keys}
            )
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    return list(found.values())


_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def _call_of_provider(provider: ToolProvider, name: str) -> Callable[..., Any]:
    # Functions of any arguments: the schema of the definition says which there are.
    async def wait(**arguments: Any) -> Any:
        return await provider.call(name, arguments)

    def call(**arguments: Any) -> Any:
        return provider.call(name, arguments)

    return wait if inspect.iscoroutinefunction(provider.call) else call


def _unavailable(
    target: Callable[..., Any], kinds: Kinds, keys: Mapping[str, Any], error: MissingDependency
) -> Descriptor:
    left = dict(keys)
    block = {"call": call_of(target)}
    block |= {key: left.pop(key) for key in ("config", "worker", "instances") if key in left}
    schema = left.pop("schema", None)
    document = {
        "description": docstring_of(target).description,
        "mode": MODE,
        MODE: block,
        **left,
        **({} if schema is None else {"input_schema": schema}),
    }
    made = parsed_document(document, place_of(target), kinds)
    return made._replace(bindings={**made.bindings, MODE: DeclaredBlock(block, error)})
