"""Export tools and prompts as one PromptPack, and list what it cannot express."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.expressions import compile_value
from toolcrib.expressions.expression import split
from toolcrib.formats.promptpack.pack_reader import SYNTAX
from toolcrib.loading.packs import Pack
from toolcrib.loading.prompts import Prompt, PromptVariable
from toolcrib.loading.tool_requirements import CAPABILITY_KEYS
from toolcrib.security.tool_policy import NO_POLICY

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE: Final = re.compile(r"\{\{\s*(?:fragment:\s*)?[A-Za-z_][\w.-]*\s*\}\}", re.ASCII)

_SETTINGS: Final = ("temperature", "max_tokens", "top_p", "top_k", "frequency_penalty", "presence_penalty")
_CHOICES: Final = ("auto", "required", "none")
_KEPT: Final = ("evals", "media", "model_overrides", "pipeline", "tested_models")
"""Keys of a prompt that an import stores under `metadata`, and an export restores."""


def names_by_globs(globs: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """The exported names of the tools that match some globs; a glob without a match is kept as it is."""
    found: dict[str, None] = {}
    for glob in globs:
        fitting = [own for tool, own in names.items() if fnmatchcase(tool, glob)]
        # The glob may be for tools that are not part of this export. `*` alone means all tools, here none.
        found |= dict.fromkeys(fitting or ([] if glob == "*" else [glob]))
    return list(found)


class PromptExport:
    """Writes one prompt.

    Attributes:
        losses: What could not be written, one line each; complete after `document`.
    """

    def __init__(self, prompt: Prompt, names: Mapping[str, str]) -> None:
        """Prepare to write a prompt.

        Args:
            prompt: The prompt; its tools are named as in `names`.
            names: Name of a tool -> its name in the PromptPack.
        """
        self._prompt = prompt
        self._names = names
        self.losses: list[str] = []
        kept = prompt.metadata.get("promptpack")
        self._kept: dict[str, Any] = dict(kept) if isinstance(kept, dict) else {}

    def document(self, *, id_: str, version: str) -> dict[str, JSON]:
        """The prompt, with the keys in the order of the specification."""
        prompt = self._prompt
        own: dict[str, JSON] = {
            "id": self._kept.get("id", id_),
            "name": prompt.title or prompt.name,
            **({"description": prompt.description} if prompt.description else {}),
            "version": version,
            "system_template": self._template(),
        }
        if prompt.variables:
            own["variables"] = [self._variable(each) for each in prompt.variables.values()]
        if self._names or prompt.tools != ("*",):
            own["tools"] = list(names_by_globs(prompt.tools, self._names))
        own |= self._policy() | self._settings() | self._validators()
        own |= {key: self._kept[key] for key in _KEPT if key in self._kept}
        lost = [key for key in prompt.metadata if key != "promptpack"]
        lost += [key for key in self._kept if key not in {*_KEPT, "id", "validators", "variables"}]
        if lost:
            self.losses.append(f"its metadata {', '.join(f'`{key}`' for key in lost)} is dropped")
        return own

    # Text.

    def _template(self) -> str:
        """The text with placeholders for variables; other expressions stay as they are."""
        written: list[str] = []
        places = 0
        for piece in split(self._prompt.system):
            if isinstance(piece, str):
                # `$${` is our escape for `${`, which means nothing in a PromptPack.
                written.append(piece.replace("$${", "${"))
                continue
            source = piece.source.strip()
            if _NAME.fullmatch(source) and source in self._prompt.variables:
                places += 1
                written.append(f"{{{{{source}}}}}")
            else:
                written.append(self._constant(piece.source))
        text = "".join(written)
        # PromptPacks have no escape for braces, so literal text can look like a placeholder.
        if len(_PLACE.findall(text)) > places:
            self.losses.append("its text contains a literal `{{ ... }}`, which will be read as a variable")
        return text

    def _constant(self, source: str) -> str:
        """The result of a constant expression; any other expression unchanged, which is a loss."""
        whole = f"{{{{{source}}}}}"
        rendering = compile_value(whole, frozenset(self._prompt.variables), [])
        if rendering.constant:
            try:
                return str(rendering.render({}))
            except ExpressionError:
                pass  # reported below
        self.losses.append(
            f"its text contains the expression `{whole}`, but PromptPacks support only variables"
        )
        return whole

    def _variable(self, variable: PromptVariable) -> dict[str, JSON]:
        # An import stores the parts of a variable that have no counterpart here.
        kept = self._kept.get("variables", {}).get(variable.name, {})
        own: dict[str, JSON] = {"name": variable.name, "type": variable.type, "required": variable.required}
        if not variable.required:
            own["default"] = variable.default
        if variable.description:
            own["description"] = variable.description
        own |= {key: kept[key] for key in ("type", "example", "binding") if key in kept}
        bounds: dict[str, JSON] = dict(kept.get("validation", {}))
        if variable.values:
            bounds["enum"] = list(variable.values)
        return own | ({"validation": bounds} if bounds else {})

    # Policy, settings, validators.

    def _policy(self) -> dict[str, JSON]:
        policy = self._prompt.policy
        own: dict[str, JSON] = {}
        if policy.tool_choice in _CHOICES:
            own |= {"tool_choice": policy.tool_choice} if policy.tool_choice != "auto" else {}
        else:
            self.losses.append(f"`tool_choice: {policy.tool_choice}` is dropped")
        if policy.max_rounds != NO_POLICY.max_rounds:
            own["max_rounds"] = policy.max_rounds
        if policy.max_calls_per_turn:
            own["max_tool_calls_per_turn"] = policy.max_calls_per_turn
        if policy.deny:
            own["blocklist"] = list(names_by_globs(policy.deny, self._names))
        told = {"allow", "deny", "max_rounds", "tool_choice"} | (
            {"max_calls_per_turn"} if policy.max_calls_per_turn else set()
        )
        lost = [each.name for each in fields(policy) if each.name not in told]
        lost = [name for name in lost if getattr(policy, name) != getattr(NO_POLICY, name)]
        # `allow` is no loss if it equals the tools of the prompt.
        if policy.allow not in (self._prompt.tools, NO_POLICY.allow):
            lost.append("allow")
        if lost:
            self.losses.append(f"its policy loses {', '.join(f'`{name}`' for name in lost)}")
        return {"tool_policy": own} if own else {}

    def _settings(self) -> dict[str, JSON]:
        said = self._prompt.settings
        lost = [key for key in said if key not in _SETTINGS]
        if lost:
            self.losses.append(f"its settings lose {', '.join(f'`{key}`' for key in lost)}")
        own = {key: item for key, item in said.items() if key in _SETTINGS}
        return {"parameters": own} if own else {}

    def _validators(self) -> dict[str, JSON]:
        """The validators as they were imported, or else those of the guardrails."""
        if "validators" in self._kept:
            return {"validators": self._kept["validators"]}
        own: list[JSON] = [
            {
                "type": each.type,
                **({"params": dict(each.params)} if each.params else {}),
                **({"message": each.message} if each.message else {}),
            }
            for each in self._prompt.guardrails
        ]
        return {"validators": own} if own else {}


SCHEMA: Final = "https://promptpack.org/schema/latest/promptpack.schema.json"
"""URL of the PromptPack schema, for editors."""

# The pattern of the PromptPack schema: Semantic Versioning 2.0.0 with an optional `v`.
_SEMVER: Final = re.compile(
    r"v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_TOOL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_ID: Final = 100
_PACK_NAME: Final = 200
_DESCRIPTION: Final = 5000
"""Maximum lengths in characters, from the PromptPack schema."""

_PACK_KEPT: Final = ("metadata", "evals", "workflow", "agents", "skills", "compositions")
"""Keys of a PromptPack that an import stores under `metadata`, and an export restores."""

_OF_PACK: Final = ("author", "licence", "toolsets", "defaults", "requires", "fixture")
_TITLES: Final = {"fixture": "store, state, let and define"}

_SAID: Final = frozenset(
    {"bindings", "description", "faults", "fixture", "input_schema", "metadata", "mode", "name", "origin"}
)
"""Fields of a tool that a contract contains, that a file never has, or whose loss is reported separately."""


class PackExport(NamedTuple):
    """An exported PromptPack.

    Attributes:
        document: The content of its file.
        losses: What it cannot express, one line each.
    """

    document: dict[str, JSON]
    losses: tuple[str, ...]


def export_promptpack(
    tools: Iterable[Descriptor], packs: Sequence[Pack] = (), *, name: str = ""
) -> PackExport:
    """Export tools, and the prompts of their packs, as one PromptPack.

    Args:
        tools: The tools.
        packs: The packs that they belong to. A single pack gives the PromptPack its name and version.
        name: Name of the PromptPack if there is no pack, or several.
    """
    return _Export(sorted(tools, key=lambda tool: tool.name), packs, name).exported()


class _Export:
    def __init__(self, tools: Sequence[Descriptor], packs: Sequence[Pack], name: str) -> None:
        self._tools = tools
        self._packs = packs
        self._only = packs[0] if len(packs) == 1 else None
        self._name = self._only.name if self._only is not None else name
        self._losses: list[str] = []

    def exported(self) -> PackExport:
        """The PromptPack, with the keys in the order of the specification."""
        kept = self._kept_of_pack()
        version = self._version()
        names = self._names()
        document: dict[str, JSON] = {
            "$schema": SCHEMA,
            "id": self._id(),
            "name": str(kept.pop("name", "") or self._name or "Tools")[:_PACK_NAME],
            "version": version,
            **self._description(),
            "template_engine": {"version": "v1", "syntax": SYNTAX, **kept.pop("template_engine", {})},
            "prompts": self._prompts(names, version),
        }
        if names:
            document["tools"] = {
                names[tool.name]: self._contract(tool, names[tool.name]) for tool in self._tools
            }
        document |= {key: kept[key] for key in _PACK_KEPT if key in kept}
        self._tell_packs(kept.keys() - set(_PACK_KEPT))
        return PackExport(document, tuple(self._losses))

    def _kept_of_pack(self) -> dict[str, Any]:
        kept = self._only.metadata.get("promptpack") if self._only is not None else None
        return dict(kept) if isinstance(kept, dict) else {}

    def _id(self) -> str:
        return _slug(self._name, "-")[:_ID].rstrip("-") or "tools"

    def _version(self) -> str:
        version = self._only.version if self._only is not None else "1.0.0"
        if _SEMVER.fullmatch(version):
            return version
        self._losses.append(f"the version `{version}` is not a semantic version (2.0.0); replaced by `0.0.0`")
        return "0.0.0"

    def _description(self) -> dict[str, JSON]:
        text = self._only.description if self._only is not None else ""
        if len(text) > _DESCRIPTION:
            self._losses.append(f"the description exceeds {_DESCRIPTION:,} characters and is truncated")
        return {"description": text[:_DESCRIPTION]} if text else {}

    # Tools.

    def _names(self) -> dict[str, str]:
        """Name of a tool -> its name in the PromptPack, which consists of letters, digits and `_`."""
        # Valid names are reserved first, so that an alias never takes the name of another tool.
        names = {tool.name: tool.name for tool in self._tools if _TOOL_NAME.fullmatch(tool.name)}
        taken = set(names)
        for tool in self._tools:
            if tool.name in names:
                continue
            base = re.sub(r"[^a-zA-Z0-9_]", "_", tool.name)
            alias, number = base, 1
            while alias in taken:
                number += 1
                alias = f"{base}_{number}"
            taken.add(alias)
            names[tool.name] = alias
            self._losses.append(
                f"the tool `{tool.name}` is renamed to `{alias}`: names consist of letters, digits and `_`"
            )
        return names

    def _contract(self, tool: Descriptor, name: str) -> dict[str, JSON]:
        lost = [*_lost(tool)]
        description = tool.description or tool.title
        if not description:
            description = tool.name
            self._losses.append(
                f"`{tool.name}` has no description, which a contract requires; its name is used instead"
            )
        if lost:
            self._losses.append(f"`{tool.name}` loses {', '.join(lost)}")
        return {"name": name, "description": description, "parameters": _parameters(tool.input_schema)}

    # Prompts.

    def _prompts(self, names: Mapping[str, str], version: str) -> dict[str, JSON]:
        """The prompts of all packs; a minimal one if there are none, since a PromptPack requires one."""
        prompts: dict[str, JSON] = {}
        for pack in self._packs:
            for prompt in pack.prompts.values():
                key = prompt.name if prompt.name not in prompts else f"{pack.name}-{prompt.name}"
                if key != prompt.name:
                    self._losses.append(f"the prompt `{pack.name}/{prompt.name}` is renamed to `{key}`")
                prompts[key] = self._prompt(prompt.within(pack.namespace), key, names, version)
        if not prompts:
            self._losses.append("missing prompt, which a PromptPack requires; `assistant` was added")
            made_up = Prompt(name="assistant", title="Assistant", system=_MADE_UP)
            prompts["assistant"] = self._prompt(made_up, "assistant", names, version)
        return prompts

    def _prompt(self, prompt: Prompt, key: str, names: Mapping[str, str], version: str) -> dict[str, JSON]:
        own = prompt.version if _SEMVER.fullmatch(prompt.version) else version
        if prompt.version not in ("", own):
            self._losses.append(
                f"prompt `{key}`: the version `{prompt.version}` is not a semantic version (2.0.0)"
            )
        export = PromptExport(prompt, names)
        document = export.document(id_=_slug(key, "_") or "prompt", version=own)
        self._losses += [f"prompt `{key}`: {loss}" for loss in export.losses]
        return document

    def _tell_packs(self, left: Iterable[str]) -> None:
        for pack in self._packs:
            lost = [_TITLES.get(key, key) for key in _OF_PACK if any(_parts(getattr(pack, key)))]
            lost += [
                f"metadata.{key}" for key in pack.metadata if key != "promptpack" or pack is not self._only
            ]
            if lost:
                self._losses.append(f"the pack `{pack.name}` loses {', '.join(lost)}")
        for key in sorted(left):
            self._losses.append(f"`{key}` of the original PromptPack is dropped")


_MADE_UP: Final = "You are a helpful assistant with access to tools. Use them to answer accurately."


def _parts(value: Any) -> Iterator[Any]:
    # A tuple counts if any part of it does.
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _slug(text: str, between: str) -> str:
    """Convert a text to an id of lower-case letters, digits and separators that begins with a letter."""
    allowed = "a-z0-9_-" if between == "_" else "a-z0-9-"
    return re.sub(rf"[^{allowed}]+", between, text.casefold()).lstrip("-_0123456789").rstrip("-_")


def _lost(tool: Descriptor) -> Iterator[str]:
    """Parts of a tool that a contract cannot express."""
    for mode in tool.bindings:
        yield f"its `{mode}` block" + (
            " (the active mode)" if mode == tool.mode and len(tool.bindings) > 1 else ""
        )
    defaults = Descriptor._field_defaults
    # Derived capabilities follow from the blocks, which are listed above.
    derived = {"capabilities"} if tool.origin.written.isdisjoint(CAPABILITY_KEYS) else set()
    for field in Descriptor._fields:
        if field not in _SAID | derived and getattr(tool, field) != defaults.get(field):
            yield f"`{field}`"
    if tool.metadata:
        yield "`metadata`"


def _parameters(schema: Schema) -> dict[str, JSON]:
    """A schema of arguments as PromptPacks require it: `type: object`, and `properties` that are objects."""
    said: dict[str, Any] = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
    properties = said.get("properties", {})
    objects = {
        name: part if isinstance(part, dict) else ({} if part else {"not": {}})
        for name, part in properties.items()
    }
    return {**said, "type": "object", "properties": objects}
