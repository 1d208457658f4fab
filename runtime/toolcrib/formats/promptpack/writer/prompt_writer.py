"""One of our prompts as a PromptPack writes it, and what that can't say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions import compile_value
from toolcrib.expressions.delimiters import split
from toolcrib.loading.prompts import Prompt, PromptVariable
from toolcrib.security.tool_policy import NO_POLICY

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE: Final = re.compile(r"\{\{\s*(?:fragment:\s*)?[A-Za-z_][\w.-]*\s*\}\}", re.ASCII)

_SETTINGS: Final = ("temperature", "max_tokens", "top_p", "top_k", "frequency_penalty", "presence_penalty")
_CHOICES: Final = ("auto", "required", "none")
_KEPT: Final = ("evals", "media", "model_overrides", "pipeline", "tested_models")
"""Keys of a prompt that an import keeps under `metadata`, and an export writes again."""


def names_by_globs(globs: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """The exported names of the tools that fit some globs; a glob that none fits stays, for it may mean others."""
    found: dict[str, None] = {}
    for glob in globs:
        fitting = [own for tool, own in names.items() if fnmatchcase(tool, glob)]
        found |= dict.fromkeys(fitting or ([] if glob == "*" else [glob]))
    return list(found)


class PromptExport:
    """Writes one prompt.

    Attributes:
        losses: What could not be written, one line each; complete after `written`.
    """

    def __init__(self, prompt: Prompt, names: Mapping[str, str]) -> None:
        """Take a prompt.

        Args:
            prompt: With the names that its tools have among those of `names`.
            names: Name of a tool -> its name in the PromptPack.
        """
        self._prompt = prompt
        self._names = names
        self.losses: list[str] = []
        kept = prompt.metadata.get("promptpack")
        self._kept: dict[str, Any] = dict(kept) if isinstance(kept, dict) else {}

    def written(self, *, id_: str, version: str) -> dict[str, JSON]:
        """The prompt, its keys in the order of the specification."""
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
            self.losses.append(f"its metadata {', '.join(f'`{key}`' for key in lost)} is not written")
        return own

    # The text.

    def _template(self) -> str:
        """The text with places of variables; what is more than that is written as it stands."""
        written: list[str] = []
        places = 0
        for piece in split(self._prompt.system):
            if isinstance(piece, str):
                written.append(piece.replace("$${", "${"))
                continue
            source = piece.source.strip()
            if _NAME.fullmatch(source) and source in self._prompt.variables:
                places += 1
                written.append(f"{{{{{source}}}}}")
            else:
                written.append(self._constant(piece.source))
        text = "".join(written)
        if len(_PLACE.findall(text)) > places:
            self.losses.append("its text has `{{ ... }}` that stands for no variable, and reads as if it did")
        return text

    def _constant(self, source: str) -> str:
        """An expression that is always the same, as what it comes to; any other as it is written."""
        whole = f"{{{{{source}}}}}"
        rendering = compile_value(whole, frozenset(self._prompt.variables), [])
        if rendering.constant:
            try:
                return str(rendering.render({}))
            except ExpressionError:
                pass  # told below, as any that can't be written
        self.losses.append(f"its text computes `{whole}`, and a PromptPack only fills in variables")
        return whole

    def _variable(self, variable: PromptVariable) -> dict[str, JSON]:
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

    # What the model may do.

    def _policy(self) -> dict[str, JSON]:
        policy = self._prompt.policy
        own: dict[str, JSON] = {}
        if policy.tool_choice in _CHOICES:
            own |= {"tool_choice": policy.tool_choice} if policy.tool_choice != "auto" else {}
        else:
            self.losses.append(f"the choice of the tool `{policy.tool_choice}` is not written")
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
        if policy.allow not in (self._prompt.tools, NO_POLICY.allow):
            lost.append("allow")
        if lost:
            self.losses.append(f"its policy without {', '.join(f'`{name}`' for name in lost)}")
        return {"tool_policy": own} if own else {}

    def _settings(self) -> dict[str, JSON]:
        said = self._prompt.settings
        lost = [key for key in said if key not in _SETTINGS]
        if lost:
            self.losses.append(f"its settings without {', '.join(f'`{key}`' for key in lost)}")
        own = {key: item for key, item in said.items() if key in _SETTINGS}
        return {"parameters": own} if own else {}

    def _validators(self) -> dict[str, JSON]:
        """As they were imported, or else ours."""
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
