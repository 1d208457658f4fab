"""`toolcrib doctor NAME`: the source of each value of a tool, or why the tool is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from toolcrib.cli.doctor_checks import Checkup
from toolcrib.cli.excluded_files import excluded_tools
from toolcrib.cli.output import table
from toolcrib.core.clock import format_duration
from toolcrib.core.model import Descriptor, Origin
from toolcrib.core.pointers import pointer_step
from toolcrib.core.server_config import SEPARATOR
from toolcrib.core.text import compact, escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.access_control import Principal
from toolcrib.loading.settings import tool_limits
from toolcrib.loading.tool_requirements import CAPABILITY_KEYS

_SHOWN = (
    "mode",
    "timeout",
    "coerce",
    "on_invalid_result",
    "input_schema",
    "output_schema",
    "annotations",
)
"""Keys that are always shown; other keys are shown only if a document or a setting sets them."""


def explain_tool(name: str, checkup: Checkup, principal: Principal) -> dict[str, Any]:
    """Explain one tool name as a JSON object; `principal` is who would call it."""
    registry = checkup.registry
    known = registry.named_by_alias(name) if name not in registry else name
    if known is None:
        return _absent(name, checkup)
    tool = registry[known]
    engine = engine_of(checkup.runtime)
    hidden = engine.seen_by(registry, principal).hidden(known)
    reason = engine.unavailable(tool, principal) or checkup.blocked or engine.not_ready(tool)
    standing = engine.access.standing(tool, principal)
    return {
        "healthy": not reason,
        "name": known,
        "alias": registry.alias_of(known),
        "state": hidden.code if hidden is not None else "unavailable" if reason else "ready",
        "reason": reason or None,
        "access": {
            "caller": principal.caller,
            "user": principal.user,
            **standing.as_json(),
            "lines": [*standing.lines()],
        },
        "place": tool.origin.place(),
        "pack": tool.origin.pack or None,
        "namespace": tool.origin.namespace or None,
        "overrides": list(tool.origin.overrides),
        "stale": tool.origin.stale or None,
        "values": list(_values(tool)),
        "modes": {mode: _why_not(checkup, tool._replace(mode=mode), mode) for mode in tool.bindings},
        # Problems have no field for a tool, but their messages contain its name in backticks.
        "problems": [str(problem) for problem in checkup.stock.problems if f"`{known}`" in problem.message],
    }


def _why_not(checkup: Checkup, tool: Descriptor, mode: str) -> str | None:
    return checkup.executors.missing(mode) or engine_of(checkup.runtime).not_ready(tool) or None


def _values(tool: Descriptor) -> Iterator[dict[str, str]]:
    """Yield each key with its short value and its source."""
    origin = tool.origin
    plain = [
        key
        for key in _ORDER
        if key in origin.written
        or key in origin.settings
        or key in _SHOWN
        or (key == "capabilities" and tool.capabilities)
    ]
    for key in plain:
        yield {"key": key, "value": _short(tool, key), "from": _from(tool, key)}
    for name, limit in tool_limits(tool).items():
        yield {"key": f"limits.{name}", "value": str(limit), "from": _from_limits(origin, name)}
    for key in tool.bindings:
        yield {"key": key, "value": _short(tool, key), "from": _from(tool, key)}


_ORDER = (
    "name",
    "title",
    "description",
    "version",
    "author",
    "help_url",
    "tags",
    "labels",
    "category",
    "annotations",
    "icons",
    "input_schema",
    "output_schema",
    "mode",
    "timeout",
    "coerce",
    "on_invalid_result",
    "examples",
    "capabilities",
    "platforms",
    "dependencies",
    "requires_confirmation",
    "estimate",
    "deprecated",
    "experimental",
    "metadata",
)


def _from(tool: Descriptor, key: str) -> str:
    origin = tool.origin
    if key == "capabilities":
        key = next((each for each in CAPABILITY_KEYS if each in origin.written), key)
        if key not in origin.written:
            return "its blocks"
    if key in origin.settings:
        return origin.settings[key]
    if key in origin.written:
        return origin.place(f"/{pointer_step(key)}")
    if key == "mode" and len(tool.bindings) == 1:
        (block,) = tool.bindings
        return f"the only block, {_from(tool, block)}"
    return "built in"


def _from_limits(origin: Origin, name: str) -> str:
    place = origin.settings.get(f"limits.{name}")
    return origin.place(f"/limits/{name.replace('.', '/')}") if place is None else place


def _short(tool: Descriptor, key: str) -> str:
    """Shorten a value; schemas and blocks are only described."""
    if key in tool.bindings:
        return "a block"
    value = getattr(tool, key)
    if key == "timeout":
        return format_duration(value)
    if key in {"dependencies", "estimate"}:
        held = {name: [*item] if isinstance(item, tuple) else item for name, item in value._asdict().items()}
        value = {name: item for name, item in held.items() if item not in (None, [])}
    if key == "annotations":
        holds = [name for name, is_so in value._asdict().items() if is_so]
        return ", ".join(name for name in holds if not (value.read_only and name == "destructive")) or "none"
    if key in {"input_schema", "output_schema"}:
        return _schema_in_short(value)
    if key in {"examples", "icons"}:
        return str(len(value))
    if isinstance(value, tuple):
        return ", ".join(value)
    if value is None:
        return "none"
    text = value if isinstance(value, str) else compact(dict(value) if hasattr(value, "keys") else value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _schema_in_short(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "nothing" if schema is False else "any JSON value"
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        return f"{{{', '.join(properties)}}}" if len(properties) <= 4 else f"{len(properties)} properties"
    if schema == {"type": "object", "additionalProperties": False}:
        return "{}"
    return schema["type"] if isinstance(schema.get("type"), str) else "a schema"


# Unknown names.


def _absent(name: str, checkup: Checkup) -> dict[str, Any]:
    registry = checkup.registry
    refused = checkup.stock.refused.get(name)
    namespaced = sorted(known for known in registry if known.endswith(f"{SEPARATOR}{name}"))
    found = [] if refused is not None or namespaced else list(_places_of(name, checkup))
    near = namespaced or registry.near(name)
    if refused is not None:
        state, reason = "refused", f"the document of `{name}` was refused: {refused}"
    elif namespaced:
        state, reason = "unknown", f"`{name}` is the short name of a tool in a namespace"
    elif found:
        state, reason = found[0]["state"], found[0]["reason"]
    elif checkup.project is not None and checkup.project.broken:
        file = checkup.stock.project_file
        state, reason = "unknown", f"no loaded document is named `{name}`, and {file} has errors"
    else:
        state, reason = "unknown", f"no loaded document is named `{name}`"
    return {
        "healthy": False,
        "name": name,
        "state": state,
        "reason": reason,
        "found": found,
        "near": near,
        "searched": list(checkup.stock.sources),
    }


def _places_of(name: str, checkup: Checkup) -> Iterator[dict[str, str]]:
    """Documents with this name that were not loaded, and why."""
    for tool in excluded_tools(checkup.stock, tuple(checkup.executors.modes), name):
        reason = f"{tool.place} has `name: {name}`, {tool.reason}"
        yield {"state": tool.state, "place": tool.place, "reason": reason}


# Output for people.


def explanation_lines(told: dict[str, Any]) -> Iterator[str]:
    """Format the explanation for people."""
    return _lines_of_absent(told) if "values" not in told else _lines_of_tool(told)


def _lines_of_tool(told: dict[str, Any]) -> Iterator[str]:
    state = {"ready": click.style("ready", fg="green")}.get(
        told["state"], click.style(told["state"].replace("_", " "), fg="red")
    )
    yield f"{click.style(escape_terminal(told['name']), bold=True)}  {state}"
    if told["reason"]:
        yield f"  {escape_terminal(told['reason'])}"
    facts = [(key, told[key]) for key in ("place", "pack", "namespace", "stale") if told[key]]
    facts += [("overrides", place) for place in told["overrides"]]
    facts += [("alias", told["alias"])] if told["alias"] != told["name"] else []
    facts += [(_access_label(told["access"]), line) for line in told["access"]["lines"]]
    yield from (f"  {line}" for line in table(facts))
    yield ""
    rows = [(value["key"], value["value"], value["from"]) for value in told["values"]]
    head, *lines = table([("key", "value", "from"), *rows])
    yield click.style(f"  {head}", dim=True)
    yield from (f"  {line}" for line in lines)
    unusable = {mode: why for mode, why in told["modes"].items() if why}
    if unusable:
        yield ""
        yield from (escape_terminal(f"  mode {mode} {why}") for mode, why in unusable.items())
    if told["problems"]:
        yield ""
        for problem in told["problems"]:
            yield from (f"  {line}" for line in escape_terminal(problem).splitlines())


def _access_label(access: dict[str, Any]) -> str:
    who = " for ".join(filter(None, (access["caller"], access["user"])))
    return f"access of {who}" if who else "access"


def _lines_of_absent(told: dict[str, Any]) -> Iterator[str]:
    yield f"{click.style(escape_terminal(told['name']), bold=True)}  {click.style('unknown tool', fg='red')}"
    yield from (f"  {line}" for line in escape_terminal(told["reason"]).splitlines())
    for place in told["found"][1:]:
        yield f"  {escape_terminal(place['reason'])}"
    if told["near"]:
        yield f"  did you mean {escape_terminal(' or '.join(f'`{name}`' for name in told['near']))}?"
    elif told["state"] == "unknown":
        yield f"  looked in: {escape_terminal(', '.join(told['searched']) or 'no source')}"
