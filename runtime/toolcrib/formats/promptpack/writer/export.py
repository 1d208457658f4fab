"""Our tools and prompts as one PromptPack, and what it can't say of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.formats.promptpack.reader.templates import SYNTAX
from toolcrib.formats.promptpack.writer.prompt_writer import PromptExport
from toolcrib.loading.packs import Pack
from toolcrib.loading.prompts import Prompt

SCHEMA: Final = "https://promptpack.org/schema/latest/promptpack.schema.json"
"""Where editors find the schema of PromptPacks."""

_SEMVER: Final = re.compile(
    r"v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_TOOL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_ID: Final = 100
_NAME: Final = 200
_DESCRIPTION: Final = 5000
"""Characters that a PromptPack allows."""

_KEPT: Final = ("metadata", "evals", "workflow", "agents", "skills", "compositions")
"""Keys of a PromptPack that an import keeps under `metadata`, and an export writes again."""

_OF_PACK: Final = ("author", "licence", "toolsets", "defaults", "requires", "fixture")
_TITLES: Final = {"fixture": "store and state"}

_SAID: Final = frozenset(
    {"bindings", "description", "faults", "fixture", "input_schema", "metadata", "mode", "name", "origin"}
)
"""Fields of a tool that a contract says, that it never has in a file, or that are told in words of their own."""


class Exported(NamedTuple):
    """A PromptPack.

    Attributes:
        document: What stands in its file.
        losses: What it can't say, one line each.
    """

    document: dict[str, JSON]
    losses: tuple[str, ...]


def export_promptpack(tools: Iterable[Descriptor], packs: Sequence[Pack] = (), *, name: str = "") -> Exported:
    """One PromptPack of some tools, and of the prompts of their packs.

    Args:
        tools: The tools.
        packs: Those that they came in. Of one, the PromptPack has name and version.
        name: What it is called where there is none, or several.
    """
    return _Export(sorted(tools, key=lambda tool: tool.name), packs, name).exported()


class _Export:
    def __init__(self, tools: Sequence[Descriptor], packs: Sequence[Pack], name: str) -> None:
        self._tools = tools
        self._packs = packs
        self._only = packs[0] if len(packs) == 1 else None
        self._name = self._only.name if self._only is not None else name
        self._losses: list[str] = []

    def exported(self) -> Exported:
        """The PromptPack, its keys in the order of the specification."""
        kept = self._kept_of_pack()
        version = self._version()
        names = self._names()
        document: dict[str, JSON] = {
            "$schema": SCHEMA,
            "id": self._id(),
            "name": str(kept.pop("name", "") or self._name or "Tools")[:_NAME],
            "version": version,
            **self._description(),
            "template_engine": {"version": "v1", "syntax": SYNTAX, **kept.pop("template_engine", {})},
            "prompts": self._prompts(names, version),
        }
        if names:
            document["tools"] = {
                names[tool.name]: self._contract(tool, names[tool.name]) for tool in self._tools
            }
        document |= {key: kept[key] for key in _KEPT if key in kept}
        self._tell_packs(kept.keys() - set(_KEPT))
        return Exported(document, tuple(self._losses))

    def _kept_of_pack(self) -> dict[str, Any]:
        kept = self._only.metadata.get("promptpack") if self._only is not None else None
        return dict(kept) if isinstance(kept, dict) else {}

    def _id(self) -> str:
        return _slug(self._name, "-")[:_ID].rstrip("-") or "tools"

    def _version(self) -> str:
        version = self._only.version if self._only is not None else "1.0.0"
        if _SEMVER.fullmatch(version):
            return version
        self._losses.append(f"the version `{version}` is no semantic version (2.0.0); `0.0.0` is written")
        return "0.0.0"

    def _description(self) -> dict[str, JSON]:
        text = self._only.description if self._only is not None else ""
        if len(text) > _DESCRIPTION:
            self._losses.append(f"of the description the first {_DESCRIPTION:,} characters are written")
        return {"description": text[:_DESCRIPTION]} if text else {}

    # Tools.

    def _names(self) -> dict[str, str]:
        """Name of a tool -> its name in the PromptPack, where names have letters, digits and `_`."""
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
                f"the tool `{tool.name}` is called `{alias}`: names have letters, digits and `_`"
            )
        return names

    def _contract(self, tool: Descriptor, name: str) -> dict[str, JSON]:
        lost = [*_lost(tool)]
        description = tool.description or tool.title
        if not description:
            description = tool.name
            self._losses.append(
                f"`{tool.name}` has no description, and a contract needs one; its name is written"
            )
        if lost:
            self._losses.append(f"`{tool.name}` without {', '.join(lost)}")
        return {"name": name, "description": description, "parameters": _parameters(tool.input_schema)}

    # Prompts.

    def _prompts(self, names: Mapping[str, str], version: str) -> dict[str, JSON]:
        """The prompts of all packs; one that says little where there is none, since a PromptPack needs one."""
        prompts: dict[str, JSON] = {}
        for pack in self._packs:
            for prompt in pack.prompts.values():
                key = prompt.name if prompt.name not in prompts else f"{pack.name}-{prompt.name}"
                if key != prompt.name:
                    self._losses.append(f"the prompt `{pack.name}/{prompt.name}` is called `{key}`")
                prompts[key] = self._prompt(prompt.within(pack.namespace), key, names, version)
        if not prompts:
            self._losses.append("there is no prompt, and a PromptPack needs one: `assistant` was made up")
            made_up = Prompt(name="assistant", title="Assistant", system=_MADE_UP)
            prompts["assistant"] = self._prompt(made_up, "assistant", names, version)
        return prompts

    def _prompt(self, prompt: Prompt, key: str, names: Mapping[str, str], version: str) -> dict[str, JSON]:
        own = prompt.version if _SEMVER.fullmatch(prompt.version) else version
        if prompt.version not in ("", own):
            self._losses.append(
                f"prompt `{key}`: the version `{prompt.version}` is no semantic version (2.0.0)"
            )
        export = PromptExport(prompt, names)
        written = export.written(id_=_slug(key, "_") or "prompt", version=own)
        self._losses += [f"prompt `{key}`: {loss}" for loss in export.losses]
        return written

    def _tell_packs(self, left: Iterable[str]) -> None:
        for pack in self._packs:
            lost = [_TITLES.get(key, key) for key in _OF_PACK if any(_parts(getattr(pack, key)))]
            lost += [
                f"metadata.{key}" for key in pack.metadata if key != "promptpack" or pack is not self._only
            ]
            if lost:
                self._losses.append(f"the pack `{pack.name}` without {', '.join(lost)}")
        for key in sorted(left):
            self._losses.append(f"`{key}` of the PromptPack that this was made of is not written")


_MADE_UP: Final = "You are a helpful assistant with access to tools. Use them to answer accurately."


def _parts(value: Any) -> Iterator[Any]:
    """What makes a value say anything: itself, or of a store and states one of them."""
    yield from value if isinstance(value, tuple) else (value,)


def _slug(text: str, between: str) -> str:
    """A text as an id: lower case letters and digits, of which a letter is first, and something between them."""
    allowed = "a-z0-9_-" if between == "_" else "a-z0-9-"
    return re.sub(rf"[^{allowed}]+", between, text.casefold()).lstrip("-_0123456789").rstrip("-_")


def _lost(tool: Descriptor) -> Iterator[str]:
    """What a contract can't say of a tool."""
    for mode in tool.bindings:
        yield f"its `{mode}` block" + (
            " (the mode in force)" if mode == tool.mode and len(tool.bindings) > 1 else ""
        )
    defaults = Descriptor._field_defaults
    for field in Descriptor._fields:
        if field not in _SAID and getattr(tool, field) != defaults.get(field):
            yield f"`{field}`"
    if tool.metadata:
        yield "`metadata`"


def _parameters(schema: Schema) -> dict[str, JSON]:
    """A schema of arguments as PromptPacks have it: of type `object`, with `properties` that are objects."""
    said: dict[str, Any] = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
    properties = said.get("properties", {})
    objects = {
        name: part if isinstance(part, dict) else ({} if part else {"not": {}})
        for name, part in properties.items()
    }
    return {**said, "type": "object", "properties": objects}
