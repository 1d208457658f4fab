"""The prompts of a PromptPack, as `pack.yaml` would write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.formats.promptpack.reader.conversion import NO_COUNTERPART, Turning, kept_apart
from toolcrib.formats.promptpack.reader.templates import Templates
from toolcrib.loading.documents.positions import clipped

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
"""How a PromptPack may call the type of a variable -> how JSON does."""

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
"""Key of a tool policy -> ours; those after `blocklist` are PromptKit's own."""

_MEANS: Final[Mapping[str, str]] = {
    "evals": "write assertions in a scenario",
    "media": "whatever the provider takes is sent",
    "model_overrides": "the same text and settings go to every model",
    "pipeline": "there are no stages to choose",
    "tested_models": "it tells what was tried elsewhere",
}
"""Key that does nothing here -> what that means."""

_CHOICES: Final = ("auto", "required", "none")
"""What `tool_choice` of a PromptPack may be; the name of one of its tools is understood as well."""

_PARAMETERS: Final = ("temperature", "max_tokens", "top_p", "top_k", "frequency_penalty", "presence_penalty")
"""Settings that a PromptPack knows."""

_PLAIN: Final = ("description", "version")
_VERSION: Final = re.compile(r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?")

_ORDER: Final = (
    *("title", "description", "version", "system", "variables", "tools", "policy", "settings", "guardrails"),
    "metadata",
)
"""Our keys, as a reader wants them."""


class PromptTurning:
    """Turns one prompt."""

    def __init__(self, turning: Turning, templates: Templates, pointer: str, key: str) -> None:
        self._turning = turning
        self._templates = templates
        self._at = pointer
        self._key = key
        self._own: dict[str, JSON] = {}
        self._kept: dict[str, JSON] = {}

    def turned(self, said: Any) -> dict[str, JSON] | None:
        """The prompt in our form; None where there is none, which is told."""
        tell = self._turning.tell
        if not isinstance(said, dict):
            tell("wrong_type", f"the prompt `{clipped(self._key)}` is an object", self._at)
            return None
        self._turning.want(said, ("id", "name", "version"), self._at, "a prompt of a PromptPack")
        if "system_template" not in said:
            tell(
                "missing_key",
                "a prompt has a `system_template`, and here it is missing",
                f"{self._at}/system_template",
            )
            return None
        text = self._turning.take(said, "system_template", str, self._at)
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
            self._own["metadata"] = kept_apart(self._kept)
            self._turning.moves[f"{self._at}/metadata"] = self._at
        return {key: self._own[key] for key in _ORDER if key in self._own}

    def _check_version(self, said: Mapping[str, Any]) -> None:
        version = said.get("version")
        if isinstance(version, str) and version and not _VERSION.fullmatch(version):
            message = f"the version of a prompt is three numbers: `1.0.0`; got `{clipped(version)}`"
            self._turning.tell("wrong_form", message, f"{self._at}/version", severity="warning")

    def _put(self, own: str, key: str, said: Mapping[str, Any]) -> None:
        if key in said:
            self._own[own] = said[key]
            self._note(own, key)

    def _note(self, own: str, place: str) -> None:
        """Note where a part came from; both are pointers below the prompt, without their first slash."""
        self._turning.moves[f"{self._at}/{own}"] = f"{self._at}/{place}"

    def _turn(self, key: str, item: Any, said: Mapping[str, Any]) -> None:
        """One key of the prompt that is neither plain, nor its text or its variables."""
        turn = _TURNS.get(key)
        if turn is not None:
            kind, take = turn
            value = self._turning.take(said, key, kind, self._at)
            if value is not None:
                take(self, value)
        elif key == "id":
            if item != self._key:
                self._kept[key] = item
        elif key in _MEANS:
            self._kept[key] = item
            self._turning.kept(key, self._at, _MEANS[key])
        elif key not in _READ:
            self._kept[key] = item
            self._turning.unknown(key, [*_READ, *_MEANS], self._at)

    # The text.

    def _system(self, text: str, variables: dict[str, JSON]) -> bool:
        """The text, and the variables that it reads and nobody declared. False where it is refused."""
        place = f"{self._at}/system_template"
        turned = self._templates.turned(text, variables)
        if turned.fault is not None:
            self._turning.tell(turned.fault.code, turned.fault.message, place, hint=turned.fault.hint)
            return False
        for name in turned.names:
            if name not in variables:
                message = f"the text reads `{name}`, which `variables` does not declare; it is a text that must be given"
                self._turning.tell("undeclared_variable", message, place, severity="notice")
                variables[name] = {"required": True}
                self._note(f"variables/{pointer_step(name)}", "system_template")
        self._own["system"] = turned.text
        self._note("system", "system_template")
        return True

    # The variables.

    def _variables(self, said: Mapping[str, Any]) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        rest: dict[str, JSON] = {}
        for index, entry in enumerate(self._turning.take(said, "variables", list, self._at) or ()):
            place = f"{self._at}/variables/{index}"
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                self._turning.tell("wrong_type", "a variable is an object with a `name`", place)
            elif name in found:
                self._turning.tell(
                    "duplicate_name", f"the variable `{clipped(name)}` is declared twice", place
                )
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
        """A variable in our form, and what of it is kept apart."""
        own: dict[str, JSON] = {"required": said.get("required", "default" not in said)}
        rest: dict[str, JSON] = {}
        kind = said.get("type", "string")
        own["type"] = _TYPES.get(kind, "string") if isinstance(kind, str) else "string"
        if own["type"] != kind:
            rest["type"] = kind
            if not isinstance(kind, str) or kind not in _TYPES:
                message = f"`{clipped(str(kind))}` is no type of JSON; `string` is read"
                self._turning.tell("wrong_value", message, f"{place}/type", severity="warning")
        for key, item in said.items():
            if key == "default" and own["required"] is True:
                rest[key] = item
                message = "a variable that must be given needs no `default`, and this one is not used"
                self._turning.tell("contradiction", message, f"{place}/default", severity="warning")
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
            self._turning.kept(key, place, "a value is given by whoever asks for the prompt")
        elif key != "example":
            self._turning.unknown(
                key, ("name", "type", "required", "default", "description", "validation"), place
            )

    def _validation(self, said: dict[str, Any], rest: dict[str, JSON], place: str) -> None:
        """Bounds of a variable; its values alone have a counterpart."""
        left = {key: item for key, item in said.items() if key != "enum"}
        if left:
            rest["validation"] = left
            self._turning.kept("validation", place, f"of {', '.join(left)} nothing is checked")

    # What else has a counterpart.

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
                self._turning.unknown(key, _POLICY, f"{self._at}/tool_policy")
        self._check_choice(own.get("tool_choice"))
        self._own["policy"] = own
        self._note("policy", "tool_policy")
        if rest:
            self._kept["tool_policy"] = rest

    def _check_choice(self, choice: JSON) -> None:
        if not isinstance(choice, str) or choice in _CHOICES or choice in self._turning.tools:
            return
        message = f"`tool_choice` is {', '.join(f'`{each}`' for each in _CHOICES)} or the name of a tool, and not `{clipped(choice)}`"
        near = did_you_mean(choice, [*_CHOICES, *self._turning.tools])
        self._turning.tell(
            "wrong_value", message, f"{self._at}/tool_policy/tool_choice", hint=near, severity="warning"
        )

    def _parameters(self, said: dict[str, Any]) -> None:
        """Settings of the provider; null says that there is no bound, as nothing does."""
        for key in (key for key in said if key not in _PARAMETERS):
            message = (
                f"`{clipped(key)}` is no parameter of a PromptPack; it is given to the provider as it is"
            )
            place = f"{self._at}/parameters/{pointer_step(key)}"
            near = did_you_mean(key, _PARAMETERS)
            self._turning.tell("unknown_key", message, place, hint=near, severity="warning")
        self._own["settings"] = {key: item for key, item in said.items() if item is not None}
        self._note("settings", "parameters")

    def _validators(self, said: list[Any]) -> None:
        """Those that are switched on and known here. How strictly they are meant is kept apart, as the others are."""
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
            message = f"{listed} of validators has no counterpart here: one that is enabled is told where it is broken"
            self._turning.tell(NO_COUNTERPART, message, f"{self._at}/validators", severity="notice")

    def _guardrail(self, said: JSON, place: str) -> dict[str, JSON]:
        """A validator as a guardrail; one that has no counterpart is told, and is never judged."""
        from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415 -- most prompts have none

        given = said if isinstance(said, dict) else {}
        own: dict[str, JSON] = {key: given[key] for key in _OF_GUARDRAIL if key in given}
        problems: list[Problem] = []
        check_guardrails([own], "", problems)
        if not problems:
            return own
        message = f"this validator is never judged, and is kept under `metadata`: {problems[0].message}"
        self._turning.tell(NO_COUNTERPART, message, place, hint=problems[0].hint, severity="warning")
        kind = own.get("type")
        named = kind if isinstance(kind, str) and kind else "validator"
        return {"type": named, "unsupported": problems[0].message}


_OF_GUARDRAIL: Final = ("type", "params", "message")

_TURNS: Final[Mapping[str, tuple[type, Callable[[PromptTurning, Any], None]]]] = {
    "tools": (list, PromptTurning._tools),  # noqa: SLF001 -- the class's own table
    "tool_policy": (dict, PromptTurning._policy),  # noqa: SLF001
    "parameters": (dict, PromptTurning._parameters),  # noqa: SLF001
    "validators": (list, PromptTurning._validators),  # noqa: SLF001
}
"""Key -> what it has to be, and what makes our own of it."""

_READ: Final = frozenset({"id", "name", "system_template", "variables", *_PLAIN, *_TURNS})
