"""Read a PromptPack: contracts of tools, prompts, and the bindings of the tools in a second file.

    name.pack.json          one PromptPack: contracts and prompts; any JSON or YAML file of this form is
    accepted name.bindings.yaml      bindings of its tools by name; or `bindings.yaml`, for all PromptPacks of
    the folder

Nothing is lost: parts without a counterpart are stored under `metadata` and reported as notices. Every part
keeps the position that it came from, so problems point into the original files. Placeholders of variables
become expressions, and fragments are inlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem, Severity, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files
from toolcrib.core.schemas import KNOWN_MODES, envelope
from toolcrib.core.text import compact
from toolcrib.expressions import escape_expressions
from toolcrib.formats.promptpack import is_promptpack
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.format_contract import Conversion, ForeignTool, OverrideFile

SYNTAX: Final = "{{variable}}"
"""Default syntax of placeholders."""

LONGEST: Final = 200_000
"""Maximum length of a text with its fragments, in characters."""

_PLACE: Final = r"\s*(?:(?:fragments\.|fragment:\s*)(?P<fragment>[\w.-]+)|(?P<name>[A-Za-z_]\w*))\s*"
"""Content of a placeholder: `fragments.name` (the specification), `fragment:name`, or only a name."""
_OPEN_END: Final = re.compile(r"[{$]+\Z")


class TemplateProblem(NamedTuple):
    """A fault of a template."""

    code: str
    message: str
    hint: str = ""


class TemplateText(NamedTuple):
    """A converted text.

    Attributes:
        text: The text with expressions for placeholders; empty if it is refused.
        names: The variables that it uses, in order.
        fault: Why it is refused; None if it is valid.
    """

    text: str
    names: tuple[str, ...]
    fault: TemplateProblem | None = None


class _InvalidTemplate(Exception):
    def __init__(self, *, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.fault = TemplateProblem(code, message, hint)


def placeholder_pattern(syntax: str) -> re.Pattern[str] | None:
    """The pattern of placeholders for a `syntax` that contains the word `variable`; None without that word."""
    before, word, behind = syntax.partition("variable")
    if not word or not before:
        return None
    return re.compile(re.escape(before) + _PLACE + re.escape(behind), re.ASCII)


_MOST_FRAGMENTS: Final = 1_000
"""Maximum number of fragments in one text. Fragments that each use another one twice grow exponentially."""


class Templates:
    """Converts the texts of one PromptPack.

    Attributes:
        used: Names of the fragments that were inlined.
    """

    def __init__(self, place: re.Pattern[str], fragments: Mapping[str, str]) -> None:
        """Prepare to convert texts.

        Args:
            place: Pattern of placeholders (`placeholder_pattern`).
            fragments: Name -> text.
        """
        self._place = place
        self._fragments = fragments
        self.used: set[str] = set()

    def convert(self, text: str, declared: Collection[str]) -> TemplateText:
        """Convert a text.

        Args:
            text: The original text.
            declared: Names of variables; they take precedence over fragments of the same name.
        """
        made = _TextBuilder()
        try:
            self._walk(text, declared, made, ())
        except _InvalidTemplate as refused:
            return TemplateText("", tuple(made.names), refused.fault)
        return TemplateText("".join(made.parts), tuple(made.names))

    def _walk(
        self, text: str, declared: Collection[str], made: _TextBuilder, within: tuple[str, ...]
    ) -> None:
        end = 0
        for match in self._place.finditer(text):
            made.add(text[end : match.start()])
            end = match.end()
            name = match["name"]
            if match["fragment"] is None and (name in declared or name not in self._fragments):
                made.add_place(name)
            else:
                fragment = match["fragment"] or name
                self._walk(self._fragment(fragment, within, made), declared, made, (*within, fragment))
        made.add(text[end:])

    def _fragment(self, name: str, within: tuple[str, ...], made: _TextBuilder) -> str:
        if name in within:
            circle = " -> ".join([*within[within.index(name) :], name])
            raise _InvalidTemplate(code="endless_fragment", message=f"circular fragments: {circle}")
        if name not in self._fragments:
            those = ", ".join(f"`{each}`" for each in self._fragments)
            known = f"use one of {those}" if those else "add it to `fragments`"
            hint = did_you_mean(name, self._fragments) or known
            raise _InvalidTemplate(
                code="unknown_fragment", message=f"unknown fragment `{excerpt(name)}`", hint=hint
            )
        made.fragments += 1
        if made.fragments > _MOST_FRAGMENTS:
            raise _InvalidTemplate(
                code="too_large", message=f"the text exceeds {_MOST_FRAGMENTS:,} fragments"
            )
        self.used.add(name)
        return self._fragments[name]


class _TextBuilder:
    """Assembles a text."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.names: dict[str, None] = {}
        self.fragments = 0
        self._length = 0

    def add(self, text: str) -> None:
        """Add literal text."""
        if not text:
            return
        # A piece that begins with such a character could form `{{`, `{%`, `{#` or `${` with the end of the
        # piece before.
        if text[0] in "{%#$":
            self._close()
        self.parts.append(str(escape_expressions(text)))
        self._length += len(self.parts[-1])
        if self._length > LONGEST:
            raise _InvalidTemplate(
                code="too_large", message=f"with its fragments, the text exceeds {LONGEST:,} characters"
            )

    def add_place(self, name: str) -> None:
        """Add an expression for a variable."""
        self._close()
        self.names[name] = None
        self.parts.append(f"{{{{ {name} }}}}")

    def _close(self) -> None:
        """Quote trailing characters that would open an expression together with the next piece."""
        end = _OPEN_END.search(self.parts[-1]) if self.parts else None
        if end is not None:
            self.parts[-1] = f"{self.parts[-1][: end.start()]}{{{{ '{end[0]}' }}}}"


NO_COUNTERPART = "no_counterpart"
"""Code of the notice about a part that has no meaning here."""

_KINDS: Mapping[type, str] = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}


class PackTranslation:
    """Collects the problems of a document.

    Attributes:
        document: The original document.
        moves: Pointer into the converted document -> pointer into the original.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.moves: dict[str, str] = {}
        self._problems: list[Problem] = []

    @property
    def tools(self) -> Collection[str]:
        """The names of its tools."""
        value = self.document.value
        tools = value.get("tools") if isinstance(value, dict) else None
        return tools if isinstance(tools, dict) else ()

    def placed(self) -> Iterator[Problem]:
        """All problems, with positions in the file."""
        return map(self.document.place, self._problems)

    def tell(
        self, code: str, message: str, pointer: str, *, hint: str = "", severity: Severity = "error"
    ) -> None:
        """Report a problem at a position of the document."""
        self._problems.append(
            Problem(code=code, message=message, pointer=pointer, hint=hint, severity=severity)
        )

    def take(self, holder: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
        """The value of a key; None if it is missing, or has another type, which is reported."""
        value = holder.get(key)
        if key not in holder or isinstance(value, kind):
            return value
        message = f"`{key}` must be {_KINDS[kind]}, got {excerpt(compact(value))}"
        self.tell("wrong_type", message, f"{place}/{pointer_step(key)}")
        return None

    def want(self, holder: Mapping[str, Any], keys: Collection[str], place: str, of: str) -> None:
        """Report missing or empty keys that PromptPacks require and we do not."""
        for key in keys:
            if holder.get(key, "") == "":
                message = f"`{key}` of {of} is {'empty' if key in holder else 'missing'}"
                self.tell("missing_key", message, f"{place}/{pointer_step(key)}", severity="warning")

    def unknown(self, key: str, known: Collection[str], place: str) -> None:
        """Report a key that PromptPacks do not have; it is kept."""
        near = did_you_mean(key, known)
        message = f"unknown key `{key}`; it is kept under `metadata` and has no effect"
        self.tell("unknown_key", message, f"{place}/{pointer_step(key)}", hint=near, severity="warning")

    def kept(self, key: str, place: str, means: str) -> None:
        """Report a key that has no counterpart here; it is kept."""
        message = f"`{key}` has no effect here ({means}); it is kept under `metadata`"
        self.tell(NO_COUNTERPART, message, f"{place}/{pointer_step(key)}", severity="notice")


def foreign_metadata(parts: Mapping[str, JSON]) -> dict[str, JSON]:
    """Metadata for the parts of a PromptPack that have no counterpart here."""
    return {"promptpack": dict(parts)} if parts else {}


_KEYS: Final = ("name", "description", "parameters")
"""Keys of a contract."""

_OF_SCHEMAS: Final = frozenset(
    (
        *("$defs", "additionalProperties", "const", "contains", "default", "definitions", "dependentSchemas"),
        *("else", "if", "items", "not", "patternProperties", "properties", "propertyNames", "then"),
        "unevaluatedProperties",
    )
)
"""Keywords of JSON Schema whose value may be an object."""


def contracts_of(document: Document, translation: PackTranslation) -> Iterator[ForeignTool]:
    """The contracts of a PromptPack with their problems; other problems go to `translation`."""
    value = document.value
    tools = translation.take(value, "tools", dict, "") if isinstance(value, dict) else None
    for key, said in (tools or {}).items():
        pointer = f"/tools/{pointer_step(key)}"
        if isinstance(said, dict):
            yield _contract(document, key, said, pointer)
        else:
            translation.tell("wrong_type", f"the tool `{excerpt(key)}` must be an object", pointer)


def _contract(document: Document, key: str, said: dict[str, Any], pointer: str) -> ForeignTool:
    translation = PackTranslation(document)
    translation.want(said, ("name", "description"), pointer, "a tool of a PromptPack")
    if said.get("name", key) != key:
        message = f"the tool has the key `{excerpt(key)}` and the name `{excerpt(str(said['name']))}`; the key is used"
        translation.tell("name_differs", message, f"{pointer}/name", severity="notice")
    own: dict[str, JSON] = {"name": key}
    # The name is the key of the contract, so its problems point to the contract.
    moves = {"": pointer, "/name": pointer}
    if "description" in said:
        own["description"] = said["description"]
    parameters = said.get("parameters")
    if parameters is not None:
        own["input_schema"] = parameters
        moves["/input_schema"] = f"{pointer}/parameters"
    if isinstance(parameters, dict) and _is_shorthand(parameters):
        own["input_schema"] = _schema_of(parameters)
        moves["/input_schema/properties"] = f"{pointer}/parameters"
        message = "`parameters` must be a JSON Schema, but maps names to schemas; it is read as `properties`"
        hint = 'use `{"type": "object", "properties": {...}, "required": [...]}`'
        translation.tell("wrong_form", message, f"{pointer}/parameters", hint=hint, severity="warning")
    rest = {each: item for each, item in said.items() if each not in _KEYS}
    for each in rest:
        _tell_unknown(translation, each, pointer)
    if rest:
        own["metadata"] = foreign_metadata(rest)
        moves["/metadata"] = pointer
    contract = replace(document.moved(own, moves), line=document.position(pointer, key=True)[0])
    return ForeignTool(contract, tuple(translation.placed()))


def _is_shorthand(parameters: Mapping[str, JSON]) -> bool:
    # Some generators write the properties without the schema around them.
    return (
        bool(parameters)
        # A parameter named like a keyword, such as `items`, is ambiguous; then it is a schema.
        and _OF_SCHEMAS.isdisjoint(parameters)
        and all(isinstance(each, dict) and "type" in each for each in parameters.values())
    )


def _schema_of(parameters: Mapping[str, Any]) -> dict[str, JSON]:
    properties: dict[str, JSON] = {
        name: {key: item for key, item in said.items() if key != "required" or not isinstance(item, bool)}
        for name, said in parameters.items()
    }
    required: list[JSON] = [name for name, said in parameters.items() if said.get("required") is True]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _tell_unknown(translation: PackTranslation, key: str, pointer: str) -> None:
    if key not in envelope("descriptor")["properties"] and key not in KNOWN_MODES:
        translation.unknown(key, _KEYS, pointer)
        return
    message = f"unknown key `{key}` in a contract; it is kept under `metadata` and has no effect"
    hint = "bind the tool in a `bindings.yaml` next to the PromptPack"
    translation.tell("unknown_key", message, f"{pointer}/{pointer_step(key)}", hint=hint, severity="warning")


_TYPES: Final[Mapping[str, str]] = {
    **{each: each for each in ("string", "number", "integer", "boolean", "object", "array")},
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "map": "object",
}
"""Type of a variable in a PromptPack -> type in JSON Schema."""

_POLICY: Final[Mapping[str, str]] = {
    "tool_choice": "tool_choice",
    "max_rounds": "max_rounds",
    "max_tool_calls_per_turn": "max_calls_per_turn",
    "blocklist": "deny",
    "max_total_tool_calls": "max_calls",
    "max_calls_per_minute": "max_calls_per_minute",
    "max_parallel_tool_calls": "max_parallel",
    "max_identical_tool_calls": "max_identical",
    "max_cost_usd": "max_cost",
    "stop_on_tool": "stop_on_tool",
}
"""Key of a tool policy -> our key; those after `blocklist` are extensions of PromptKit."""

_MEANS: Final[Mapping[str, str]] = {
    "evals": "use assertions in a scenario",
    "media": "all media that the provider accepts are sent",
    "model_overrides": "every model gets the same text and settings",
    "pipeline": "stages are not supported",
    "tested_models": "it is only informative",
}
"""Key without effect -> the reason."""

_CHOICES: Final = ("auto", "required", "none")
"""Values of `tool_choice` in a PromptPack; the name of one of its tools is accepted as well."""

_PARAMETERS: Final = ("temperature", "max_tokens", "top_p", "top_k", "frequency_penalty", "presence_penalty")
"""Settings in the PromptPack specification."""

_PLAIN: Final = ("description", "version")
_VERSION: Final = re.compile(r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?")

_ORDER: Final = (
    *("title", "description", "version", "system", "variables", "tools", "policy", "settings", "guardrails"),
    "metadata",
)
"""Our keys in their order."""


class PromptTranslation:
    """Converts one prompt."""

    def __init__(self, translation: PackTranslation, templates: Templates, pointer: str, key: str) -> None:
        self._translation = translation
        self._templates = templates
        self._at = pointer
        self._key = key
        self._own: dict[str, JSON] = {}
        self._kept: dict[str, JSON] = {}

    def document(self, said: Any) -> dict[str, JSON] | None:
        """The converted prompt; None if it is unusable, which is reported."""
        tell = self._translation.tell
        if not isinstance(said, dict):
            tell("wrong_type", f"the prompt `{excerpt(self._key)}` must be an object", self._at)
            return None
        self._translation.want(said, ("id", "name", "version"), self._at, "a prompt of a PromptPack")
        if "system_template" not in said:
            tell(
                "missing_key",
                "`system_template` of a prompt is missing",
                f"{self._at}/system_template",
            )
            return None
        text = self._translation.take(said, "system_template", str, self._at)
        self._check_version(said)
        self._put("title", "name", said)
        for key in _PLAIN:
            self._put(key, key, said)
        variables = self._variables(said)
        for key, item in said.items():
            self._turn(key, item, said)
        if text is None or not self._system(text, variables):
            return None
        if variables:
            self._own["variables"] = variables
        if self._kept:
            self._own["metadata"] = foreign_metadata(self._kept)
            self._translation.moves[f"{self._at}/metadata"] = self._at
        return {key: self._own[key] for key in _ORDER if key in self._own}

    def _check_version(self, said: Mapping[str, Any]) -> None:
        version = said.get("version")
        if isinstance(version, str) and version and not _VERSION.fullmatch(version):
            message = (
                f"the version of a prompt must have three numbers such as `1.0.0`, got `{excerpt(version)}`"
            )
            self._translation.tell("wrong_form", message, f"{self._at}/version", severity="warning")

    def _put(self, own: str, key: str, said: Mapping[str, Any]) -> None:
        if key in said:
            self._own[own] = said[key]
            self._note(own, key)

    def _note(self, own: str, place: str) -> None:
        """Record the origin of a part; both are pointers relative to the prompt, without the leading slash."""
        self._translation.moves[f"{self._at}/{own}"] = f"{self._at}/{place}"

    def _turn(self, key: str, item: Any, said: Mapping[str, Any]) -> None:
        """Convert a key of the prompt, except plain keys, its text and its variables."""
        turn = _TURNS.get(key)
        if turn is not None:
            kind, take = turn
            value = self._translation.take(said, key, kind, self._at)
            if value is not None:
                take(self, value)
        elif key == "id":
            if item != self._key:
                self._kept[key] = item
        elif key in _MEANS:
            self._kept[key] = item
            self._translation.kept(key, self._at, _MEANS[key])
        elif key not in _READ:
            self._kept[key] = item
            self._translation.unknown(key, [*_READ, *_MEANS], self._at)

    # Text.

    def _system(self, text: str, variables: dict[str, JSON]) -> bool:
        """Set the text, and declare the variables that it uses without a declaration. False if it is refused."""
        place = f"{self._at}/system_template"
        converted = self._templates.convert(text, variables)
        if converted.fault is not None:
            self._translation.tell(
                converted.fault.code, converted.fault.message, place, hint=converted.fault.hint
            )
            return False
        for name in converted.names:
            if name not in variables:
                message = f"the text uses the undeclared variable `{name}`; it is added as a required text"
                self._translation.tell("undeclared_variable", message, place, severity="notice")
                variables[name] = {"required": True}
                self._note(f"variables/{pointer_step(name)}", "system_template")
        self._own["system"] = converted.text
        self._note("system", "system_template")
        return True

    # Variables.

    def _variables(self, said: Mapping[str, Any]) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        rest: dict[str, JSON] = {}
        for index, entry in enumerate(self._translation.take(said, "variables", list, self._at) or ()):
            place = f"{self._at}/variables/{index}"
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                self._translation.tell("wrong_type", "a variable must be an object with a `name`", place)
            elif name in found:
                self._translation.tell("duplicate_name", f"duplicate variable `{excerpt(name)}`", place)
            else:
                found[name], left = self._variable(name, entry, place)
                self._note(f"variables/{pointer_step(name)}", f"variables/{index}")
                if left:
                    rest[name] = left
        if rest:
            self._kept["variables"] = rest
        return found

    def _variable(
        self, name: str, said: dict[str, Any], place: str
    ) -> tuple[dict[str, JSON], dict[str, JSON]]:
        """A variable in our form, and the parts of it that are stored in the metadata."""
        own: dict[str, JSON] = {"required": said.get("required", "default" not in said)}
        rest: dict[str, JSON] = {}
        kind = said.get("type", "string")
        own["type"] = _TYPES.get(kind, "string") if isinstance(kind, str) else "string"
        if own["type"] != kind:
            rest["type"] = kind
            if not isinstance(kind, str) or kind not in _TYPES:
                message = f"unknown type `{excerpt(str(kind))}`; `string` is used"
                self._translation.tell("wrong_value", message, f"{place}/type", severity="warning")
        for key, item in said.items():
            if key == "default" and own["required"] is True:
                rest[key] = item
                message = "a required variable has no `default`; it is ignored"
                self._translation.tell("contradiction", message, f"{place}/default", severity="warning")
            elif key in {"default", "description"}:
                own[key] = item
            elif key == "validation" and isinstance(item, dict):
                if "enum" in item:
                    own["values"] = item["enum"]
                    self._note(
                        f"variables/{pointer_step(name)}/values",
                        f"{place.removeprefix(self._at + '/')}/validation/enum",
                    )
                self._validation(item, rest, place)
            elif key not in {"name", "type", "required"}:
                rest[key] = item
                self._of_variable(key, place)
        return own, rest

    def _of_variable(self, key: str, place: str) -> None:
        if key == "binding":
            self._translation.kept(key, place, "the caller provides the value")
        elif key != "example":
            self._translation.unknown(
                key, ("name", "type", "required", "default", "description", "validation"), place
            )

    def _validation(self, said: dict[str, Any], rest: dict[str, JSON], place: str) -> None:
        # Only `enum` has a counterpart.
        left = {key: item for key, item in said.items() if key != "enum"}
        if left:
            rest["validation"] = left
            self._translation.kept("validation", place, f"not checked: {', '.join(left)}")

    # Tools, policy, settings, validators.

    def _tools(self, said: list[Any]) -> None:
        self._own["tools"] = said

    def _policy(self, said: dict[str, Any]) -> None:
        own: dict[str, JSON] = {}
        rest: dict[str, JSON] = {}
        for key, item in said.items():
            if key in _POLICY:
                own[_POLICY[key]] = item
                self._note(f"policy/{_POLICY[key]}", f"tool_policy/{pointer_step(key)}")
            else:
                rest[key] = item
                self._translation.unknown(key, _POLICY, f"{self._at}/tool_policy")
        self._check_choice(own.get("tool_choice"))
        self._own["policy"] = own
        self._note("policy", "tool_policy")
        if rest:
            self._kept["tool_policy"] = rest

    def _check_choice(self, choice: JSON) -> None:
        if not isinstance(choice, str) or choice in _CHOICES or choice in self._translation.tools:
            return
        message = f"`tool_choice` must be {', '.join(f'`{each}`' for each in _CHOICES)} or the name of a tool, got `{excerpt(choice)}`"
        near = did_you_mean(choice, [*_CHOICES, *self._translation.tools])
        self._translation.tell(
            "wrong_value", message, f"{self._at}/tool_policy/tool_choice", hint=near, severity="warning"
        )

    def _parameters(self, said: dict[str, Any]) -> None:
        # PromptPacks use null for "no limit", as if the key were missing.
        for key in (key for key in said if key not in _PARAMETERS):
            message = f"unknown parameter `{excerpt(key)}`; it is passed to the provider unchanged"
            place = f"{self._at}/parameters/{pointer_step(key)}"
            near = did_you_mean(key, _PARAMETERS)
            self._translation.tell("unknown_key", message, place, hint=near, severity="warning")
        self._own["settings"] = {key: item for key, item in said.items() if item is not None}
        self._note("settings", "parameters")

    def _validators(self, said: list[Any]) -> None:
        # Enabled validators with a counterpart become guardrails. Their strictness has none, and is stored
        # with the rest.
        own: list[dict[str, JSON]] = []
        lost: dict[str, None] = {}
        for index, each in enumerate(said):
            if not isinstance(each, dict) or each.get("enabled") is not False:
                self._note(f"guardrails/{len(own)}", f"validators/{index}")
                own.append(self._guardrail(each, f"{self._at}/validators/{index}"))
            lost |= dict.fromkeys(each.keys() - {*_OF_GUARDRAIL} if isinstance(each, dict) else ())
        self._own["guardrails"] = [*own]
        self._note("guardrails", "validators")
        if lost or len(own) < len(said) or any("unsupported" in each for each in own):
            self._kept["validators"] = said
        if lost:
            listed = ", ".join(f"`{key}`" for key in sorted(lost))
            message = f"{listed} of validators has no effect here: a violation of an enabled validator rewrites the reply"
            self._translation.tell(NO_COUNTERPART, message, f"{self._at}/validators", severity="notice")

    def _guardrail(self, said: JSON, place: str) -> dict[str, JSON]:
        """Convert a validator to a guardrail; one without a counterpart is reported and never checked."""
        from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415 -- most prompts have none

        given = said if isinstance(said, dict) else {}
        own: dict[str, JSON] = {key: given[key] for key in _OF_GUARDRAIL if key in given}
        problems: list[Problem] = []
        check_guardrails([own], "", problems)
        if not problems:
            return {**own, "rewrite": True}
        message = f"this validator is not checked; it is kept under `metadata`: {problems[0].message}"
        self._translation.tell(NO_COUNTERPART, message, place, hint=problems[0].hint, severity="warning")
        kind = own.get("type")
        named = kind if isinstance(kind, str) and kind else "validator"
        return {"type": named, "unsupported": problems[0].message}


_OF_GUARDRAIL: Final = ("type", "params", "message")

_TURNS: Final[Mapping[str, tuple[type, Callable[[PromptTranslation, Any], None]]]] = {
    "tools": (list, PromptTranslation._tools),  # noqa: SLF001 -- the class's own table
    "tool_policy": (dict, PromptTranslation._policy),  # noqa: SLF001
    "parameters": (dict, PromptTranslation._parameters),  # noqa: SLF001
    "validators": (list, PromptTranslation._validators),  # noqa: SLF001
}
"""Key -> its type, and the method that converts it."""

_READ: Final = frozenset({"id", "name", "system_template", "variables", *_PLAIN, *_TURNS})


_REQUIRED: Final = ("name", "template_engine", "prompts")
_PACK_READ: Final = frozenset(
    {"$schema", "description", "fragments", "id", "prompts", "template_engine", "tools", "version"}
)

_PACK_MEANS: Final[Mapping[str, str]] = {
    "agents": "agents are not supported",
    "compositions": "compositions are not supported",
    "evals": "use assertions in a scenario",
    "skills": "skills are not supported",
    "workflow": "workflows are not supported",
}
"""Key without effect -> the reason."""

_TOLD: Final = frozenset({"compilation", "metadata", "name"})
"""Keys that are only informative, in PromptPacks as well."""

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_LONGEST_NAME: Final = 64


def pack_of(translation: PackTranslation) -> Document:
    """Convert a PromptPack to the document of a `pack.yaml`; problems are reported to `translation`."""
    document = translation.document
    said: dict[str, Any] = document.value if isinstance(document.value, dict) else {}
    translation.want(said, _REQUIRED, "", "a PromptPack")
    translation.moves |= {"": "", "/name": "/id", "/metadata": ""}
    own: dict[str, JSON] = {"name": _name(said, translation), "version": _version(said, translation)}
    if "description" in said:
        own["description"] = said["description"]
    own["prompts"] = _prompts(said, translation)
    kept = {key: item for key, item in said.items() if key not in _PACK_READ}
    for key in kept:
        if key in _PACK_MEANS:
            translation.kept(key, "", _PACK_MEANS[key])
        elif key not in _TOLD:
            translation.unknown(key, [*_PACK_READ, *_PACK_MEANS, *_TOLD], "")
    own["metadata"] = foreign_metadata(kept | _engine(said))
    return document.moved(own, translation.moves)


def _name(said: Mapping[str, Any], translation: PackTranslation) -> str:
    name = said.get("id")
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    stem = re.split(r"[/\\]", translation.document.source)[-1].partition(".")[0]
    left = re.sub(r"[^a-z0-9]+", "-", (name if isinstance(name, str) else stem).casefold())
    own = left.lstrip("-0123456789")[:_LONGEST_NAME].rstrip("-") or "promptpack"
    if name is None:
        message, code = "`id` of a PromptPack is missing", "missing_key"
    else:
        message, code = f"`{excerpt(str(name))}` is not a valid id", "wrong_form"
    hint = (
        f"use lower-case letters, digits and `-`, beginning with a letter, at most {_LONGEST_NAME} characters"
    )
    translation.tell(code, f"{message}; the pack is named `{own}`", "/id", hint=hint, severity="warning")
    return own


def _version(said: Mapping[str, Any], translation: PackTranslation) -> JSON:
    # The specification allows a leading `v`, our packs do not.
    version = said.get("version")
    if version is None:
        translation.tell(
            "missing_key", "`version` of a PromptPack is missing", "/version", hint='add `"version": "1.0.0"`'
        )
        return "0.0.0"
    return version.removeprefix("v") if isinstance(version, str) else version


def _prompts(said: Mapping[str, Any], translation: PackTranslation) -> dict[str, JSON]:
    texts = translation.take(said, "fragments", dict, "") or {}
    for name, text in texts.items():
        if not isinstance(text, str):
            translation.tell(
                "wrong_type",
                f"the fragment `{excerpt(name)}` must be a text",
                f"/fragments/{pointer_step(name)}",
            )
    fragments = {name: text for name, text in texts.items() if isinstance(text, str)}
    templates = Templates(_places(said, translation), fragments)
    prompts: dict[str, JSON] = {}
    for key, entry in (translation.take(said, "prompts", dict, "") or {}).items():
        pointer = f"/prompts/{pointer_step(key)}"
        prompt = PromptTranslation(translation, templates, pointer, key).document(entry)
        if prompt is not None:
            prompts[key] = prompt
    for name in fragments:
        if name not in templates.used:
            message = f"unused fragment `{excerpt(name)}`; it is dropped"
            translation.tell("unused_name", message, f"/fragments/{pointer_step(name)}", severity="notice")
    return prompts


def _places(said: Mapping[str, Any], translation: PackTranslation) -> re.Pattern[str]:
    engine = translation.take(said, "template_engine", dict, "") or {}
    syntax = translation.take(engine, "syntax", str, "/template_engine")
    place = None if syntax is None else placeholder_pattern(syntax)
    if syntax is not None and place is None:
        message = f"invalid syntax `{excerpt(syntax)}`; `{SYNTAX}` is used"
        hint = "use a syntax with the word `variable`"
        translation.tell("wrong_form", message, "/template_engine/syntax", hint=hint, severity="warning")
    default = placeholder_pattern(SYNTAX)
    assert default is not None  # noqa: S101 -- the default contains the word
    return place or default


def _engine(said: Mapping[str, Any]) -> dict[str, JSON]:
    # The texts have been converted, so their syntax is not kept: an export would apply it to converted texts.
    engine = said.get("template_engine")
    if not isinstance(engine, dict):
        return {}
    rest = {key: item for key, item in engine.items() if key not in {"syntax", "version"}}
    return {"template_engine": rest} if rest else {}


_SUFFIXES: Final = (".yaml", ".yml", ".json")
_OWN_SUFFIX: Final = re.compile(r"(?i)(?:\.pack)?\.(?:json|yaml|yml)$")
_FILES: Final = re.compile(r"(?i)(?:.+\.)?bindings\.(?:yaml|yml|json)")

_OF_CONTRACT: Final = ("name", "description", "input_schema", "parameters")
"""Keys of the contract, which a binding cannot change."""


def is_bindings(source: str) -> bool:
    """Whether a file has the name of a bindings file."""
    return _FILES.fullmatch(_name_of(source)) is not None


def read_bindings(document: Document, tools: Collection[str], files: Files | None) -> OverrideFile:
    """Read the bindings of a PromptPack's tools.

    Args:
        document: The PromptPack.
        tools: The names of its tools.
        files: The files next to it.
    """
    source, content, problem = _found(document.source, files)
    if content is None:
        return OverrideFile(source, problems=() if problem is None else (problem,))
    documents, problems = parse_documents(source, content, whole=True)
    # A file of comments only is a good start for bindings.
    problems = [each for each in problems if each.code != "empty_document"]
    if len(documents) > 1:
        message = "a bindings file must contain a single document"
        problems.append(documents[1].place(Problem(code="several_documents", message=message)))
    if not documents:
        return OverrideFile(source, problems=tuple(problems))
    translation = PackTranslation(documents[0])
    own = [*_bound(documents[0], translation)]
    known = [each for each in own if _tool_of(each) in tools]
    strays = {_tool_of(each): _stray(each, tools) for each in own if _tool_of(each) not in tools}
    return OverrideFile(source, tuple(known), (*problems, *translation.placed()), strays)


def _bound(document: Document, translation: PackTranslation) -> Iterator[Document]:
    value = document.value
    if not isinstance(value, dict):
        translation.tell("wrong_type", "bindings must be an object: tool -> binding", "")
        return
    for tool, entry in value.items():
        pointer = f"/{pointer_step(tool)}"
        # For editors.
        if tool == "$schema" and isinstance(entry, str):
            continue
        if not isinstance(entry, dict):
            hint = "for example `{mock: {result: done}}`"
            translation.tell(
                "wrong_type", f"the binding of `{excerpt(tool)}` must be an object", pointer, hint=hint
            )
            continue
        for key in _OF_CONTRACT:
            if key in entry:
                message = f"`{key}` is defined by the PromptPack and cannot be overridden"
                translation.tell("not_allowed", message, f"{pointer}/{key}", hint="remove it here")
        own: dict[str, JSON] = {key: item for key, item in entry.items() if key not in _OF_CONTRACT}
        # A binding becomes an override of the tool that the contract defines.
        bound = document.moved({**own, "name": tool, "override": True}, {"": pointer, "/name": pointer})
        yield replace(bound, line=document.position(pointer, key=True)[0])


def _tool_of(document: Document) -> str:
    return str(document.value["name"]) if isinstance(document.value, dict) else ""


def _stray(document: Document, tools: Collection[str]) -> Problem:
    name = _tool_of(document)
    message = f"unknown tool `{excerpt(name)}`"
    those = (
        f"use one of {', '.join(f'`{each}`' for each in tools)}" if tools else "the PromptPack has no tools"
    )
    hint = did_you_mean(name, tools) or those
    return document.place(Problem(code="unknown_tool", message=message, pointer="", hint=hint))


def _found(source: str, files: Files | None) -> tuple[str, bytes | None, Problem | None]:
    """Find the bindings file of a PromptPack: its name for problems, its content, and a problem if it cannot be read."""
    if files is None:
        return "", None, None
    name = _name_of(source)
    folder = source[: len(source) - len(name)]
    for each in _names(name):
        try:
            return folder + each, files.read(each), None
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = str(error) if error.errno is None else error.strerror
            problem = Problem(code="file_unreadable", message=f"cannot read the file: {reason}")
            return folder + each, None, problem.at(folder + each, 1, 1)
    return "", None, None


def _names(name: str) -> Iterator[str]:
    """Possible names of a bindings file; the PromptPack's own come before that of the folder."""
    stem = _OWN_SUFFIX.sub("", name)
    own = [f"{stem}.bindings"] if stem and stem != name else []
    for each in (*own, "bindings"):
        yield from (f"{each}{suffix}" for suffix in _SUFFIXES)


def _name_of(source: str) -> str:
    return re.split(r"[/\\]", source)[-1]


def convert_promptpack(document: Document, files: Files | None) -> Conversion:
    """Convert a PromptPack and the bindings of its tools.

    Args:
        document: The original document; `is_promptpack` is true for it.
        files: The files next to it, in which bindings are searched.
    """
    translation = PackTranslation(document)
    pack = pack_of(translation)
    tools = [*contracts_of(document, translation)]
    bindings = read_bindings(document, [_tool_of(tool.document) for tool in tools], files)
    of_tools = [problem for tool in tools for problem in tool.problems]
    return Conversion(
        tools=tools,
        pack=pack,
        pack_problems=[*translation.placed()],
        overrides=bindings,
        problems=[*of_tools, *bindings.problems],
    )


def documents_in(document: Document) -> list[Document]:
    """The converted documents in a PromptPack or a bindings file; none for any other document."""
    if is_promptpack(document.value):
        read = convert_promptpack(document, None)
        pack = [] if read.pack is None else [read.pack]
        return [*pack, *(tool.document for tool in read.tools)]
    return [*_bound(document, PackTranslation(document))] if is_bindings(document.source) else []
