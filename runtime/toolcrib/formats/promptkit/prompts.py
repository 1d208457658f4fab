"""Convert a PromptKit prompt to the system prompt, the guardrails and the policy of an agent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import escape_expressions
from toolcrib.formats.promptkit.library import ArenaLibrary
from toolcrib.formats.promptkit.source_nodes import PlacedValue, SourceNode, place_list, place_value
from toolcrib.loading.scenarios.assertions import check_guardrails

_BOUNDS: Final[Mapping[str, str]] = {
    "max_rounds": "max_rounds",
    "max_tool_calls_per_turn": "max_calls_per_turn",
    "max_total_tool_calls": "max_calls",
    "max_calls_per_minute": "max_calls_per_minute",
    "max_parallel_tool_calls": "max_parallel",
    "max_identical_tool_calls": "max_identical",
    "max_cost_usd": "max_cost",
}
"""PromptKit's key -> ours. Zero, a negative number or null means no bound."""

_IDLE_THERE: Final = ("max_tool_calls_per_turn", "max_total_tool_calls", "max_calls_per_minute")
"""Bounds that PromptKit reads but never enforces."""


def policy_keys(sources: Sequence[SourceNode], allowed: PlacedValue | None) -> dict[str, PlacedValue | None]:
    """The policy of a conversation.

    Args:
        sources: PromptKit policies; the first one that sets a key applies.
        allowed: Globs of the offered tools; None for all.
    """
    parts: dict[str, PlacedValue | None] = {"allow": allowed}
    for theirs, ours in _BOUNDS.items():
        node = _first(sources, theirs, lambda node: node.value > 0)
        parts[ours] = None if node is None else place_value(node.value, node)
    choice = _first(sources, "tool_choice", lambda node: bool(node.text))
    parts["tool_choice"] = None if choice is None else place_value(choice.text, choice)
    for theirs, ours in (("blocklist", "deny"), ("stop_on_tool", "stop_on_tool")):
        node = _first(sources, theirs, lambda node: bool(node.value))
        parts[ours] = None if node is None else place_names(node)
    return parts


def _first(
    sources: Sequence[SourceNode], key: str, counts: Callable[[SourceNode], bool]
) -> SourceNode | None:
    found = (source.part(key) for source in sources)
    return next((node for node in found if node and counts(node)), None)


def place_names(node: SourceNode) -> PlacedValue:
    """A list of unique names from a list or a single name."""
    items = list(node.each()) if isinstance(node.value, list) else [node]
    texts = {item.text: item for item in items if item.text}
    return place_list(node, [place_value(text, item) for text, item in texts.items()])


def report_unenforced_bounds(sources: Sequence[SourceNode]) -> Iterator[Problem]:
    """A notice for each bound that PromptKit never enforces."""
    for source in sources:
        for key in _IDLE_THERE:
            node = source.part(key)
            if node and node.value > 0:
                message = f"PromptKit does not enforce `{key}`; toolcrib does: a call beyond it ends the turn"
                hint = f"it becomes `policy.{_BOUNDS[key]}` of the scenario"
                yield node.problem("enforced_here", message, hint, "notice")


_PLACE: Final = re.compile(r"\{\{\s*\.?([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
_PASSES: Final = 3
"""Number of passes that fill placeholders, including those in inserted values, as in PromptKit."""


_FRAGMENTS: Final = "fragments"
"""Prefix of placeholders for fragments."""

_WAY_TO_VALUES: Final = "set it in `vars` of the prompt or `variables` of the scenario"
_WAYS_TO_FRAGMENTS: Final = {_FRAGMENTS: "add it to `fragments` of the prompt, with its `path`"}


class ArenaPrompt(NamedTuple):
    """A prompt of an arena.

    Attributes:
        name: Its name in the arena.
        spec: Its content.
        given: The arena's values for its variables.
    """

    name: str
    spec: SourceNode
    given: SourceNode

    @property
    def task_type(self) -> str:
        """The task type by which scenarios choose it."""
        return self.spec.part("task_type").text or self.name

    @property
    def allowed(self) -> PlacedValue:
        """The globs of the offered tools; a prompt without globs offers no tools."""
        named = self.spec.part("allowed_tools") or self.spec.part("tools")
        return place_names(named) if named else place_list(self.spec, [])


def offered_tools(prompt: ArenaPrompt, agents: Sequence[str], node: SourceNode) -> PlacedValue:
    """The globs of the tools that a prompt offers: those that it allows, and the tools of agents.

    Args:
        prompt: The prompt.
        agents: Names of the tools of the arena's agents.
        node: The arena's agents.
    """
    values, places = prompt.allowed
    more = [name for name in agents if name not in values]
    at = {f"/{len(values) + index}": node for index in range(len(more))}
    return PlacedValue([*values, *more], {**places, **at})


def report_no_tools(prompt: ArenaPrompt, calls: Sequence[SourceNode], *, offers: bool) -> Iterator[Problem]:
    """A warning for a prompt that allows no tool, although its conversation needs some.

    Args:
        prompt: The prompt.
        calls: The calls in the mock responses of the conversation.
        offers: Whether the arena has tools.
    """
    if prompt.allowed.value:
        return
    listed = prompt.spec.part("allowed_tools") or prompt.spec.part("tools")
    # An empty list is deliberate, unless the mock responses call tools.
    if calls or (offers and not listed):
        missing = "an empty" if listed else "no"
        message = f"the prompt `{prompt.name}` has {missing} `allowed_tools`, so as in PromptKit the model is offered no tools; every call is denied"
        node = listed or prompt.spec
        yield node.problem("no_tools_allowed", message, "list the tools under `allowed_tools`", "warning")


def prompt_of_scenario(
    prompts: list[ArenaPrompt], scenario: SourceNode, library: ArenaLibrary
) -> ArenaPrompt | None:
    """The prompt of a scenario; None if there is none, which is reported."""
    asked = scenario.part("task_type")
    known = {prompt.name: prompt for prompt in prompts} | {prompt.task_type: prompt for prompt in prompts}
    if asked.text in known:
        return known[asked.text]
    if not asked.text and len(prompts) == 1:
        return prompts[0]
    if asked.text:
        message = f"unknown task type `{asked.text}`; the agent has no system prompt"
        hint = did_you_mean(asked.text, known) or f"use one of {', '.join(known) or 'none'}"
        library.problems.append(asked.problem("no_prompt", message, hint, "warning"))
    elif prompts:
        message = "missing `task_type`, and the arena has several prompts; the agent has no system prompt"
        hint = f"use one of {', '.join(known)}"
        library.problems.append(scenario.problem("no_prompt", message, hint, "warning"))
    return None


def system_prompt(prompt: ArenaPrompt, scenario: SourceNode, library: ArenaLibrary) -> PlacedValue | None:
    """The system prompt with its variables filled in; None if there is none."""
    template = prompt.spec.part("system_template")
    if not template.text:
        return None
    values = _variables(prompt, scenario) | _fragments(prompt, library)
    text = template.text
    for _ in range(_PASSES):
        text = _PLACE.sub(lambda place: values.get(place[1], place[0]), text)
    for name in dict.fromkeys(_PLACE.findall(text)):
        message = f"`{{{{{name}}}}}` in the prompt has no value and stays unchanged"
        hint = did_you_mean(name, values) or _WAYS_TO_FRAGMENTS.get(name.partition(".")[0], _WAY_TO_VALUES)
        library.tell(template.problem("unresolved_variable", message, hint, "warning"))
    return place_value(escape_expressions(text), template)


def guardrails(prompt: ArenaPrompt, library: ArenaLibrary) -> list[PlacedValue]:
    """The guardrails for each reply, which they rewrite; an unsupported validator is reported and never checked."""
    found = []
    for node in prompt.spec.part("validators").each():
        if node.part("enabled").value is False:
            continue
        entry = _guardrail(node)
        direction = node.part("params", "direction")
        if direction.text == "both":
            message = f"the validator `{entry['type']}` checks replies only, not what the user says"
            library.tell(direction.problem("no_counterpart", message, severity="warning"))
        if direction.text == "input":
            why = "it checks what the user says, and guardrails check replies"
            message = f"the validator `{entry['type']}` is not supported and not checked: {why}"
            library.tell(direction.problem("no_counterpart", message, severity="warning"))
            found.append(place_value({"type": entry["type"], "unsupported": why}, node))
            continue
        faults: list[Problem] = []
        check_guardrails([entry], "", faults)
        if faults:
            message = f"the validator `{entry['type']}` is not supported and not checked: {faults[0].message}"
            library.tell(node.problem("no_counterpart", message, faults[0].hint, "warning"))
            entry = {"type": entry["type"], "unsupported": faults[0].message}
        found.append(place_value(entry, node))
    return found


def _guardrail(node: SourceNode) -> dict[str, JSON]:
    params = {key: value for key, value in (node.part("params").value or {}).items() if value is not None}
    message = params.pop("message", None)
    # Without a direction, a guardrail checks what the model says.
    if params.get("direction") in ("output", "both", "input"):
        del params["direction"]
    entry: dict[str, JSON] = {"type": node.part("type").text, **({"params": params} if params else {})}
    said = node.part("message").text or message
    entry |= {"message": said} if said else {}
    watches = any(node.part(key).value is True for key in ("monitor", "monitor_only"))
    return entry if watches else entry | {"rewrite": True}


def _variables(prompt: ArenaPrompt, scenario: SourceNode) -> dict[str, str]:
    """Name -> value: those of the scenario override those of the arena, which override those of the prompt."""
    about = scenario.part("context_metadata")
    # PromptKit's built-in variables: templates use them without a declaration.
    values = {
        "context_slot": "",
        "domain": about.part("domain").text or "general",
        "domain_hint": about.part("domain").text or "general",
        "user_context": about.part("user_role").text or "user",
        "project_stage": about.part("project_stage").text,
    }
    for variable in prompt.spec.part("variables").each():
        if variable.part("default"):
            values[variable.part("name").text] = variable.part("default").text
    for holder in (prompt.spec.part("optional_vars"), prompt.given, scenario.part("variables")):
        values |= {name: node.text for name, node in holder.entries()}
    return values


def _fragments(prompt: ArenaPrompt, library: ArenaLibrary) -> dict[str, str]:
    """Name of a fragment, with and without the prefix `fragments.` -> its text."""
    texts = {}
    for fragment in prompt.spec.part("fragments").each():
        file = fragment.part("path") or fragment.part("file")
        name = fragment.part("name").text
        if file:
            texts[name] = _fragment(file, library)
        else:
            message = (
                f"the fragment `{name}` has no `path`; PromptKit's registry of fragments is not supported"
            )
            library.tell(fragment.problem("no_counterpart", message, severity="warning"))
    return texts | {f"{_FRAGMENTS}.{name}": text for name, text in texts.items()}


def _fragment(file: SourceNode, library: ArenaLibrary) -> str:
    """The text of a fragment: a key of a manifest, or the whole file."""
    from toolcrib.loading.documents.document import parse_documents  # noqa: PLC0415 -- few prompts have fragments

    text = (library.content(file.text, file) or b"").decode("utf-8", errors="replace")
    if not file.text.endswith((".yaml", ".yml", ".json")):
        return text
    documents, _problems = parse_documents(library.source(file.text), text)
    for document in documents:
        node = SourceNode(document, "", document.value)
        for place in (node.part("spec"), node):
            for key in ("content", "template", "text", "system_template"):
                if place.part(key).text:
                    return place.part(key).text
    return text
