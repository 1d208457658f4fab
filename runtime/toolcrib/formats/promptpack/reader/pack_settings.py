"""What a PromptPack says as a whole, as `pack.yaml` would say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.formats.promptpack.reader.conversion import Turning, kept_apart
from toolcrib.formats.promptpack.reader.prompt_reader import PromptTurning
from toolcrib.formats.promptpack.reader.templates import SYNTAX, Templates, place_of
from toolcrib.loading.documents.document import Document
from toolcrib.loading.documents.positions import clipped

_REQUIRED: Final = ("name", "template_engine", "prompts")
_READ: Final = frozenset(
    {"$schema", "description", "fragments", "id", "prompts", "template_engine", "tools", "version"}
)

_MEANS: Final[Mapping[str, str]] = {
    "agents": "no prompt is called as an agent",
    "compositions": "no composition is run",
    "evals": "write assertions in a scenario",
    "skills": "no skills are loaded",
    "workflow": "no state leads to another",
}
"""Key that does nothing here -> what that means."""

_TOLD: Final = frozenset({"compilation", "metadata", "name"})
"""Keys that do nothing anywhere but tell."""

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_LONGEST_NAME: Final = 64


def pack_of(turning: Turning) -> Document:
    """The document that says of a PromptPack what `pack.yaml` says of a pack; what is wrong is told to `turning`."""
    document = turning.document
    said: dict[str, Any] = document.value if isinstance(document.value, dict) else {}
    turning.want(said, _REQUIRED, "", "a PromptPack")
    turning.moves |= {"": "", "/name": "/id", "/metadata": ""}
    own: dict[str, JSON] = {"name": _name(said, turning), "version": _version(said, turning)}
    if "description" in said:
        own["description"] = said["description"]
    own["prompts"] = _prompts(said, turning)
    kept = {key: item for key, item in said.items() if key not in _READ}
    for key in kept:
        if key in _MEANS:
            turning.kept(key, "", _MEANS[key])
        elif key not in _TOLD:
            turning.unknown(key, [*_READ, *_MEANS, *_TOLD], "")
    own["metadata"] = kept_apart(kept | _engine(said))
    return document.moved(own, turning.moves)


def _name(said: Mapping[str, Any], turning: Turning) -> str:
    name = said.get("id")
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    stem = re.split(r"[/\\]", turning.document.source)[-1].partition(".")[0]
    left = re.sub(r"[^a-z0-9]+", "-", (name if isinstance(name, str) else stem).casefold())
    own = left.lstrip("-0123456789")[:_LONGEST_NAME].rstrip("-") or "promptpack"
    if name is None:
        message, code = "a PromptPack has an `id`", "missing_key"
    else:
        message, code = f"`{clipped(str(name))}` is no id", "wrong_form"
    hint = f"an id begins with a lower case letter and goes on with these, digits and `-`, at most {_LONGEST_NAME} in all"
    turning.tell(code, f"{message}; the pack is called `{own}` here", "/id", hint=hint, severity="warning")
    return own


def _version(said: Mapping[str, Any], turning: Turning) -> JSON:
    """The version without the `v` that may stand before it."""
    version = said.get("version")
    if version is None:
        turning.tell(
            "missing_key", "a PromptPack has a `version`", "/version", hint='write `"version": "1.0.0"`'
        )
        return "0.0.0"
    return version.removeprefix("v") if isinstance(version, str) else version


def _prompts(said: Mapping[str, Any], turning: Turning) -> dict[str, JSON]:
    texts = turning.take(said, "fragments", dict, "") or {}
    for name, text in texts.items():
        if not isinstance(text, str):
            turning.tell(
                "wrong_type", f"the fragment `{clipped(name)}` is a text", f"/fragments/{pointer_step(name)}"
            )
    fragments = {name: text for name, text in texts.items() if isinstance(text, str)}
    templates = Templates(_places(said, turning), fragments)
    prompts: dict[str, JSON] = {}
    for key, entry in (turning.take(said, "prompts", dict, "") or {}).items():
        pointer = f"/prompts/{pointer_step(key)}"
        turned = PromptTurning(turning, templates, pointer, key).turned(entry)
        if turned is not None:
            prompts[key] = turned
    for name in fragments:
        if name not in templates.used:
            message = f"no prompt uses the fragment `{clipped(name)}`, which is left out"
            turning.tell("unused_name", message, f"/fragments/{pointer_step(name)}", severity="notice")
    return prompts


def _places(said: Mapping[str, Any], turning: Turning) -> re.Pattern[str]:
    engine = turning.take(said, "template_engine", dict, "") or {}
    syntax = turning.take(engine, "syntax", str, "/template_engine")
    place = None if syntax is None else place_of(syntax)
    if syntax is not None and place is None:
        message = f"`{clipped(syntax)}` does not say how a variable is written; `{SYNTAX}` is read"
        hint = "write it with the word `variable`"
        turning.tell("wrong_form", message, "/template_engine/syntax", hint=hint, severity="warning")
    default = place_of(SYNTAX)
    assert default is not None  # noqa: S101 -- it has the word
    return place or default


def _engine(said: Mapping[str, Any]) -> dict[str, JSON]:
    """What of the template engine is kept: its texts were turned, so only what else it says."""
    engine = said.get("template_engine")
    if not isinstance(engine, dict):
        return {}
    rest = {key: item for key, item in engine.items() if key not in {"syntax", "version"}}
    return {"template_engine": rest} if rest else {}
