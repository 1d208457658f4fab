"""Prompts of packs: instructions for a model with variables, guardrails and a tool policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ConfigurationError, ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Origin
from toolcrib.core.pointers import pointer_step
from toolcrib.core.schemas import part_schema
from toolcrib.core.text import compact
from toolcrib.expressions.expression import RESERVED
from toolcrib.loading.descriptors import check_tool_globs
from toolcrib.loading.documents.positions import excerpt
from toolcrib.registry.names import full_name
from toolcrib.schema.validation import Validator, Violation
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy

if TYPE_CHECKING:
    from toolcrib.expressions import Rendering
    from toolcrib.loading.packs import Pack


def parse_policy(value: JSON, pointer: str, problems: list[Problem]) -> ToolPolicy:
    """Parse a tool policy from its valid parts.

    Args:
        value: The policy, as written.
        pointer: JSON Pointer of the policy.
        problems: Receives its problems.
    """
    faults = _validator().faults(value, most=_MOST)
    problems += [_problem(fault, pointer) for fault in faults]
    if not isinstance(value, dict):
        return ToolPolicy()
    wrong = {fault.path[0] for fault in faults if fault.path}
    return ToolPolicy(**{key: _READ.get(key, _same)(item) for key, item in value.items() if key not in wrong})


_MOST = 100
"""Maximum number of problems reported for one policy."""


@cache
def _validator() -> Validator:
    return Validator(part_schema("policy"))


@cache
def _forms() -> Mapping[str, str]:
    """Key -> the schema's message for values of the wrong form."""
    keys = part_schema("policy")["properties"]
    return {
        key: told
        for key, entry in keys.items()
        if (told := entry.get("additionalProperties", {}).get("errorMessage"))
    }


def _problem(fault: Violation, pointer: str) -> Problem:
    place = pointer + fault.pointer
    name = str(fault.path[-1]) if fault.path else ""
    if fault.keyword == "additionalProperties":
        hint = did_you_mean(name, part_schema("policy")["properties"])
        return Problem(code="unknown_key", message=f"unknown policy key `{name}`", pointer=place, hint=hint)
    form = _forms().get(str(fault.path[0]), "") if fault.path else ""
    if fault.keyword == "pattern" and form:
        return Problem(code="wrong_form", message=f"{form}; got {fault.got}", pointer=place)
    code = "wrong_type" if fault.keyword == "type" else "wrong_value"
    message = f"expected {fault.expected}, got {fault.got}"
    return Problem(code=code, message=message, pointer=place, hint=fault.hint)


def _same(value: Any) -> Any:
    return value


def _lists(value: Mapping[str, Any]) -> Any:
    return {glob: tuple(names) for glob, names in value.items()}


def _seconds(value: Mapping[str, str]) -> Any:
    return {glob: parse_duration(text) for glob, text in value.items()}


_READ: Mapping[str, Callable[[Any], Any]] = {
    "allow": tuple,
    "deny": tuple,
    "ask": tuple,
    "polling": tuple,
    "stop_on_tool": tuple,
    "requires_before": _lists,
    "exclusive": lambda groups: tuple(tuple(group) for group in groups),
    "cooldown": _seconds,
}
"""Key -> conversion of its value; other values are used as written."""


class PromptVariable(NamedTuple):
    """A variable of a prompt.

    Attributes:
        name: Its name in the prompt.
        type: A JSON type: `string`, `number`, `integer`, `boolean`, `object`, `array`.
        required: Whether it must be given.
        default: Its default value. Default: the empty string.
        description: Its purpose.
        values: The allowed values; empty for any value of its type.
    """

    name: str
    type: str = "string"
    required: bool = False
    default: JSON = ""
    description: str = ""
    values: tuple[JSON, ...] = ()

    def fault(self, value: JSON) -> str:
        """Why a value is invalid for the variable; empty if it is valid."""
        if not _IS[self.type](value):
            return f"`{self.name}` must be of type {self.type}, got {excerpt(compact(value))}"
        # Compared as JSON text, because `1 == True` in Python.
        if self.values and all(compact(value) != compact(each) for each in self.values):
            listed = ", ".join(compact(each) for each in self.values)
            return f"`{self.name}` must be one of {listed}, got {excerpt(compact(value))}"
        return ""


class Guardrail(NamedTuple):
    """A condition on each text of the model.

    Attributes:
        type: Type of an assertion.
        params: Its parameters, as written.
        message: The message if it fails, which also replaces a rewritten reply.
        unsupported: Why it cannot be evaluated; empty if it can.
        rewrite: Whether a text that violates it is rewritten.
    """

    type: str
    params: Mapping[str, JSON] = NOTHING
    message: str = ""
    unsupported: str = ""
    rewrite: bool = False


def guardrail_of(entry: Mapping[str, Any]) -> Guardrail:
    """The guardrail of a valid entry."""
    return Guardrail(
        entry["type"],
        entry.get("params", {}),
        entry.get("message", ""),
        entry.get("unsupported", ""),
        entry.get("rewrite", False),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Instructions for a model.

    Attributes:
        name: Its name in the pack.
        title: Its title for people.
        description: Its purpose.
        version: Its own version.
        system: The text, with variables as `{{ name }}`.
        variables: Name -> variable, in document order.
        tools: Globs of the tools that the model is offered.
        policy: The tool policy; `allow` defaults to `tools`.
        settings: Settings of the provider, such as `temperature`.
        guardrails: Conditions on the texts of the model.
        metadata: Additional information.
        pack: Name of its pack.
        place: `file:line` of the prompt.
    """

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    system: str = ""
    variables: Mapping[str, PromptVariable] = field(default_factory=lambda: NOTHING)
    tools: tuple[str, ...] = ("*",)
    policy: ToolPolicy = NO_POLICY
    settings: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    guardrails: tuple[Guardrail, ...] = ()
    metadata: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    pack: str = ""
    place: str = ""

    def render(self, values: Mapping[str, JSON] = NOTHING) -> str:
        """Render the text of the system message.

        Args:
            values: Name of a variable -> its value.

        Raises:
            ConfigurationError: Variables are missing, unknown or invalid (the message lists all of them), or the text
                cannot be rendered with these values.
        """
        faults = [*self._faults(values)]
        if faults:
            hint = "; ".join(dict.fromkeys(hint for _fault, hint in faults if hint))
            told = "; ".join(fault for fault, _hint in faults)
            raise ConfigurationError(
                f"the prompt `{self.name}`: {told}", code="invalid_variables", hint=hint or self._asks_for()
            )
        scope = {name: values.get(name, variable.default) for name, variable in self.variables.items()}
        try:
            text = _compiled(self.system, self.variables, []).render(scope)
        except ExpressionError as error:
            message = f"cannot render the prompt `{self.name}`: {error.message}"
            raise ConfigurationError(message, code="invalid_variables", hint=error.hint) from None
        # A prompt that consists of one expression may render to a number or an object.
        return text if isinstance(text, str) else compact(text)

    def _faults(self, values: Mapping[str, JSON]) -> Iterator[tuple[str, str]]:
        """The problems of values, each with its hint."""
        missing = [name for name, each in self.variables.items() if each.required and name not in values]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            yield f"missing value for {listed}", ""
        for name, value in values.items():
            if name not in self.variables:
                yield f"unknown variable `{excerpt(name)}`", did_you_mean(name, self.variables)
            elif fault := self.variables[name].fault(value):
                yield fault, ""

    def _asks_for(self) -> str:
        told = (f"{name} ({each.description or each.type})" for name, each in self.variables.items())
        return f"its variables are: {', '.join(told)}" if self.variables else "it has no variables"

    @property
    def named_globs(self) -> Iterator[tuple[str, str, str]]:
        """The globs of `tools`, `deny` and `ask`: the pointer in the pack, a label, and the glob."""
        of, policy = f"the prompt `{self.name}`", self.policy
        base = f"/prompts/{pointer_step(self.name)}"
        is_for = f"{base}/tools" if policy.allow == self.tools else f"{base}/policy/allow"
        holders = [(is_for, of, policy.allow)]
        holders += [
            (f"{base}/policy/{key}", f"`{key}` of {of}", getattr(policy, key)) for key in ("deny", "ask")
        ]
        for place, what, globs in holders:
            yield from ((f"{place}/{index}", what, glob) for index, glob in enumerate(globs))

    def within(self, namespace: str) -> Prompt:
        """The prompt with globs over the full names of its pack's tools within a namespace."""
        if not namespace:
            return self

        def full(globs: Iterable[str]) -> tuple[str, ...]:
            return tuple(_full(namespace, glob) for glob in globs)

        policy = self.policy
        changes: dict[str, Any] = {key: full(getattr(policy, key)) for key in _GLOBS}
        changes["exclusive"] = tuple(full(group) for group in policy.exclusive)
        changes |= {
            key: {_full(namespace, glob): item for glob, item in getattr(policy, key).items()}
            for key in _BY_GLOB
        }
        changes["requires_before"] = {
            _full(namespace, glob): full(names) for glob, names in policy.requires_before.items()
        }
        # Any other value is the name of a tool.
        if policy.tool_choice not in _CHOICES:
            changes["tool_choice"] = full_name(namespace, policy.tool_choice)
        return replace(self, tools=full(self.tools), policy=replace(policy, **changes))


_GLOBS = ("allow", "deny", "ask", "polling", "stop_on_tool")
_BY_GLOB = ("max_calls_per_tool", "cooldown")
_CHOICES = frozenset({"auto", "required", "none"})


def _full(namespace: str, glob: str) -> str:
    """Add a namespace to a glob over the tools of a pack; `*` keeps matching all tools."""
    return glob if glob == "*" else full_name(namespace, glob)


def find_prompt(packs: Sequence[Pack], name: str) -> Prompt:
    """Find a prompt by name, with the full names of its pack's tools.

    Args:
        packs: The packs (`Runtime.packs`).
        name: `pack/prompt`, or the name of the prompt alone if only one pack has it.

    Raises:
        ConfigurationError: The prompt is unknown, or several packs have it.
    """
    found = [(pack, pack.prompts[prompt]) for pack, prompt in _meant(packs, name)]
    if len(found) == 1:
        pack, prompt = found[0]
        return prompt.within(pack.namespace)
    known = [f"{pack.name}/{each}" for pack in packs for each in pack.prompts]
    if found:
        listed = ", ".join(f"`{pack.name}/{prompt.name}`" for pack, prompt in found)
        message, hint = f"several packs have a prompt `{name}`", f"use one of: {listed}"
        raise ConfigurationError(message, code="unclear_name", hint=hint)
    near = did_you_mean(name, [*known, *(each for pack in packs for each in pack.prompts)])
    those = f"known prompts: {', '.join(f'`{each}`' for each in known)}" if known else _NO_PROMPTS
    raise ConfigurationError(f"unknown prompt `{excerpt(name)}`", code="unknown_prompt", hint=near or those)


_NO_PROMPTS = "no pack has prompts; add them under `prompts` in `pack.yaml`"


def _meant(packs: Iterable[Pack], name: str) -> Iterator[tuple[Pack, str]]:
    """The packs and prompts that a name can refer to."""
    for pack in packs:
        own = name.removeprefix(f"{pack.name}/")
        for each in dict.fromkeys((own, name)):
            if each in pack.prompts:
                yield pack, each
                break


def _string(value: JSON) -> bool:
    return isinstance(value, str)


def _number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(value: JSON) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool)


_IS: Mapping[str, Callable[[JSON], bool]] = {
    "string": _string,
    "number": _number,
    "integer": _integer,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}


# From documents.


def prompts_of(said: Mapping[str, Any], origin: Origin) -> Mapping[str, Prompt]:
    """The prompts of a pack by name; the schema has accepted them."""
    written = said.get("prompts", {})
    return MappingProxyType({name: _prompt(name, entry, origin) for name, entry in written.items()})


def _prompt(name: str, entry: Mapping[str, Any], origin: Origin) -> Prompt:
    plain = {
        key: entry[key]
        for key in ("title", "description", "version", "system", "settings", "metadata")
        if key in entry
    }
    tools = tuple(entry.get("tools", ("*",)))
    policy = parse_policy(entry.get("policy", {}), "", [])
    if "allow" not in entry.get("policy", {}):
        policy = replace(policy, allow=tools)
    return Prompt(
        name=name,
        **plain,
        variables=MappingProxyType(
            {key: _variable(key, each) for key, each in entry.get("variables", {}).items()}
        ),
        tools=tools,
        policy=policy,
        guardrails=tuple(map(guardrail_of, entry.get("guardrails", ()))),
        pack=origin.pack,
        place=origin.place(f"/prompts/{pointer_step(name)}"),
    )


def _variable(name: str, entry: Mapping[str, Any]) -> PromptVariable:
    said = {key: entry[key] for key in ("type", "default", "description") if key in entry}
    return PromptVariable(
        name,
        # A variable without a default has no sensible value, so it must be given.
        required=entry.get("required", "default" not in entry),
        values=tuple(entry.get("values", ())),
        **said,
    )


_PROMPT_NAME = re.compile(r"[^\s/\x00-\x1f\x7f]([^/\x00-\x1f\x7f]{0,98}[^\s/\x00-\x1f\x7f])?")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def check_prompts(prompts: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of prompts that the schema cannot find."""
    for name, entry in prompts.items():
        pointer = f"/prompts/{pointer_step(name)}"
        if not _PROMPT_NAME.fullmatch(name):
            message = f"`{excerpt(name)}` is not a valid prompt name"
            hint = "use at most 100 characters, no `/`, and no spaces at either end"
            yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)
        yield from check_tool_globs(entry.get("tools", ()), f"{pointer}/tools")
        yield from _check_policy(entry, pointer)
        for key, variable in entry.get("variables", {}).items():
            yield from _check_variable(key, variable, f"{pointer}/variables/{pointer_step(key)}")
        problems = _check_guardrails(entry, pointer)
        _compiled(entry["system"], entry.get("variables", {}), problems, f"{pointer}/system")
        yield from problems


def _check_guardrails(entry: Mapping[str, Any], pointer: str) -> list[Problem]:
    problems: list[Problem] = []
    if "guardrails" in entry:
        # Deferred: most prompts have no guardrails.
        from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415

        check_guardrails(entry["guardrails"], f"{pointer}/guardrails", problems)
    return problems


def _check_policy(entry: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    said = entry.get("policy", {})
    for key in _GLOBS:
        yield from check_tool_globs(said.get(key, ()), f"{pointer}/policy/{key}")
    if "tools" in entry and "allow" in said:
        message = "`tools` and `policy.allow` cannot be combined: both list the tools of the prompt"
        hint = "keep `tools` and remove `allow`"
        yield Problem(code="contradiction", message=message, pointer=f"{pointer}/policy/allow", hint=hint)


def _check_variable(name: str, entry: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    if not _VARIABLE_NAME.fullmatch(name) or name in RESERVED:
        message = f"`{excerpt(name)}` is not a valid variable name"
        hint = "use letters, digits and `_`, starting with a letter or `_`, and no keyword of expressions"
        yield Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)
    if entry.get("required") and "default" in entry:
        message = "a required variable cannot have a `default`"
        yield Problem(
            code="contradiction", message=message, pointer=f"{pointer}/default", hint="remove one of them"
        )
    variable = _variable(name, entry)
    if "default" in entry and (fault := variable.fault(variable.default)):
        yield Problem(code="wrong_value", message=fault, pointer=f"{pointer}/default")
    for index, value in enumerate(variable.values):
        if fault := variable._replace(values=()).fault(value):
            yield Problem(code="wrong_value", message=fault, pointer=f"{pointer}/values/{index}")


def _compiled(text: str, names: Iterable[str], problems: list[Problem], pointer: str = "") -> Rendering:
    # Deferred: most packs have no prompts.
    from toolcrib.expressions import compile_value  # noqa: PLC0415

    return compile_value(text, frozenset(names), problems, pointer)
