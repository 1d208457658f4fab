"""Convert a PromptKit scenario: turns, faults, assertions, prompt, provider and mocks.

Assertions are nearly the same in both systems; the differences are reported.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of
from toolcrib.expressions import escape_expressions
from toolcrib.formats.promptkit.library import ArenaLibrary
from toolcrib.formats.promptkit.mock_responses import (
    ConversationCourse,
    ResponseSection,
    calls_of,
    reply_script,
    responses_for_persona,
    responses_for_scenario,
)
from toolcrib.formats.promptkit.model_providers import (
    AgentProvider,
    ArenaProvider,
    ProviderChooser,
    judge_keys,
    judge_name,
    prices,
    provider_keys,
    request_settings,
)
from toolcrib.formats.promptkit.prompts import (
    ArenaPrompt,
    guardrails,
    offered_tools,
    policy_keys,
    prompt_of_scenario,
    report_no_tools,
    report_unenforced_bounds,
    system_prompt,
)
from toolcrib.formats.promptkit.source_nodes import (
    ComposedDocument,
    PlacedValue,
    SourceNode,
    compose,
    place_list,
    place_object,
    place_value,
)
from toolcrib.loading.scenarios.assertions import ALIASES, check_assertions
from toolcrib.loading.scenarios.model import SPEAKING

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_CONSENT: Final = ("grant", "deny", "timeout")
_SLOW: Final = "2s"
_MEDIA: Final = {"image": "image", "audio": "audio", "video": "resource", "document": "resource"}


class UserTurn(NamedTuple):
    """A message of the user.

    Attributes:
        node: The original turn.
        text: Its content: a text or a list of parts.
    """

    node: SourceNode
    text: PlacedValue


def placeholder_variants(turns: SourceNode) -> dict[str, PlacedValue]:
    """Placeholder -> its variants in all turns."""
    found: dict[str, dict[str, SourceNode]] = {}
    homes: dict[str, SourceNode] = {}
    for turn in turns.each():
        for key, values in turn.part("perturbations").entries():
            if not _PLACE.fullmatch(f"{{{key}}}") or not values.value:
                continue
            homes.setdefault(key, values)
            found.setdefault(key, {}).update({node.text: node for node in values.each()})
    return {
        key: place_list(homes[key], [place_value(text, node) for text, node in values.items()])
        for key, values in found.items()
    }


def with_placeholders(text: str, names: Collection[str]) -> str:
    """A text with literal braces escaped, and placeholders as matrix expressions."""
    if not names:
        return str(escape_expressions(text))
    pieces = re.split(rf"\{{({'|'.join(map(re.escape, names))})\}}", text)
    return "".join(
        f"{{{{ matrix.{piece} }}}}" if index % 2 else _before(piece, last=index + 1 == len(pieces))
        for index, piece in enumerate(pieces)
    )


def _before(text: str, *, last: bool) -> str:
    # A piece that ends with `{` or `$` would open another expression together with the next one.
    if last or text[-1:] not in {"{", "$"}:
        return str(escape_expressions(text))
    return f"{escape_expressions(text[:-1])}{{{{ '{text[-1]}' }}}}"


def user_text(turn: SourceNode, names: Collection[str], library: ArenaLibrary) -> PlacedValue | None:
    """The user's message in a turn; None if it is empty, which is reported."""
    parts = turn.part("parts")
    if parts.value:
        items = [item for part in parts.each() if (item := _part(part, names, library)) is not None]
        return place_list(parts, items) if items else None
    content = turn.part("content")
    if not content.text:
        library.problems.append(
            turn.problem("missing_key", "missing `content`: the user says nothing", severity="warning")
        )
        return None
    return place_value(with_placeholders(content.text, names), content)


def _part(part: SourceNode, names: Collection[str], library: ArenaLibrary) -> PlacedValue | None:
    kind = part.part("type").text
    if kind == "text":
        return place_value(with_placeholders(part.part("text").text, names), part.part("text"))
    media = part.part("media")
    if kind not in _MEDIA or not media:
        message = f"a part of type `{kind}` is not supported"
        library.problems.append(part.problem("no_counterpart", message, severity="warning"))
        return None
    entry: dict[str, JSON] = {"type": _MEDIA[kind]}
    for theirs, ours in (("url", "uri"), ("data", "data"), ("mime_type", "mime_type"), ("caption", "title")):
        if media.part(theirs).text:
            entry[ours] = escape_expressions(media.part(theirs).text)
    file = media.part("file_path")
    if file.text:
        content = library.content(file.text, file)
        if content is None:
            return None
        entry["data"] = base64.b64encode(content).decode()
    if entry["type"] == "resource":
        entry.setdefault("uri", f"file:{file.text or 'data'}")
    return place_value(entry, part)


class Persona:
    """Returns the messages of a persona in a scenario, in order.

    Args:
        mocks: Its responses; None if there are none.
    """

    def __init__(self, mocks: ResponseSection | None) -> None:
        self._mocks = mocks
        self._number = 0

    def texts(self, turn: SourceNode) -> list[PlacedValue]:
        """Its messages in a turn: as many as the turn needs, or fewer if the responses end."""
        least = turn.part("turns").value or 1
        most = max(least, turn.part("max_turns").value or 0)
        found = []
        for _ in range(most):
            node = self._mocks.text(self._number + 1) if self._mocks is not None else None
            if node is None:
                break
            # The responses of a persona are numbered through all turns of the scenario.
            self._number += 1
            found.append(place_value(escape_expressions(node.text), node))
        return found


def client_answers(turn: SourceNode, problems: list[Problem]) -> PlacedValue | None:
    """The client's answers in a turn; None if the turn has none."""
    overrides = turn.part("consent_overrides")
    parts: dict[str, PlacedValue | None] = {}
    for tool, node in overrides.entries():
        if node.text in _CONSENT:
            parts[tool] = place_value(node.text, node)
        else:
            hint = did_you_mean(node.text, _CONSENT) or f"use one of {', '.join(_CONSENT)}"
            problems.append(
                node.problem("not_allowed", f"`{node.text}` is not a valid answer to a consent request", hint)
            )
    return place_object(overrides, parts) if parts else None


def turn_faults(
    turn: SourceNode, number: int, course: ConversationCourse | None, problems: list[Problem]
) -> Iterator[PlacedValue]:
    """The tool failures of a turn.

    Args:
        turn: The turn.
        number: Its index in the conversation, from 0.
        course: The course of the conversation; None if a model decides.
        problems: Receives problems with failures that have no counterpart.
    """
    for failure in turn.part("chaos", "tool_failures").each():
        tool, mode = failure.part("tool"), failure.part("mode")
        injected = _injected(mode.text, failure)
        if injected is None:
            hint = did_you_mean(mode.text, ("error", "timeout", "slow")) or "use `error`, `timeout` or `slow`"
            problems.append(mode.problem("not_allowed", f"unknown failure mode `{mode.text}`", hint))
            continue
        due = _due(failure, number, course, problems)
        if due is not None:
            likely = failure.part("probability")
            # PromptKit's zero value means "not set": the tool always fails.
            chance = likely.value if likely and 0 < likely.value < 1 else None
            when = due | ({"probability": chance} if chance is not None else {})
            # PromptKit does not require that a failure happens, and a random one may not.
            entry: dict[str, JSON] = {"tool": tool.text, "inject": injected, "must_fire": False}
            yield place_value(entry | ({"when": when} if when else {}), failure)


def _injected(mode: str, failure: SourceNode) -> JSON:
    message = failure.part("message").text or "the tool failed"
    known: Mapping[str, JSON] = {
        "error": {"error": {"code": "chaos", "message": escape_expressions(message)}},
        "timeout": "timeout",
        "slow": {"slow": _SLOW},
    }
    return known.get(mode)


def _due(
    failure: SourceNode, number: int, course: ConversationCourse | None, problems: list[Problem]
) -> dict[str, JSON] | None:
    # Our faults count calls in a conversation, PromptKit's apply to a turn. The mock responses tell which
    # calls a turn makes; with a model they are unknown.
    tool = failure.part("tool").text
    if course is None:
        message = f"`{tool}` fails in every turn, because the calls of a model in this turn are not known in advance"
        problems.append(failure.problem("no_counterpart", message, severity="warning"))
        return {}
    first, last = course.span(number, tool)
    if last < first:
        message = f"the failure has no effect: the mock responses do not call `{tool}` in this turn"
        problems.append(failure.problem("no_counterpart", message, severity="warning"))
        return None
    meant = f"call {first}" if first == last else f"calls {first} to {last}"
    message = (
        f"the failure applies to {meant} of `{tool}`, which are those of this turn in the mock responses"
    )
    hint = "with a real model (`toolcrib run --provider`), the failure may happen in another turn"
    problems.append(failure.problem("no_counterpart", message, hint, "notice"))
    return {"call": first if first == last else {"$gte": first, "$lte": last}}


_THEIRS_ALONE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("agent_invoked", "agent_not_invoked", "agent_response_contains", "a2a_eval", "a2a_eval_session"),
        "use `tools_called` and `tool_result_includes` with the tools of the agent",
    ),
    **dict.fromkeys(
        (
            "composition_branch_taken",
            "composition_output",
            "composition_parallel_complete",
            "composition_step_output",
            "spoke_in_state",
            "state_is",
            "transitioned_to",
            "workflow_complete",
            "workflow_state_is",
            "workflow_transition_order",
            "workflow_transitioned_to",
        ),
        "a scenario has one prompt, without states or steps",
    ),
    **dict.fromkeys(
        ("skill_activated", "skill_activation_order", "skill_not_activated"), "skills are not supported"
    ),
    **dict.fromkeys(
        (
            "audio_duration",
            "audio_emotion",
            "audio_format",
            "image_dimensions",
            "image_format",
            "image_moderation",
            "video_duration",
            "video_resolution",
        ),
        "replies of a model are text",
    ),
    **dict.fromkeys(
        (
            "answer_relevancy",
            "bias",
            "contextual_precision",
            "contextual_recall",
            "contextual_relevancy",
            "faithfulness",
            "hallucination",
            "pii_leakage",
            "role_violation",
            "text_sentiment",
            "text_toxicity",
            "toxicity",
        ),
        "use `llm_judge`",
    ),
    **dict.fromkeys(("rest_eval", "rest_eval_session"), "use `tool_exec`, which calls a tool to judge"),
    "cosine_similarity": "use `directional` to compare texts",
    "latency_budget": "time is virtual if replies are scripted",
}
"""Assertion types of PromptKit without a counterpart -> the reason, or an alternative."""


def convert_assertion(
    node: SourceNode, problems: list[Problem], *, of_turn: bool, judge: str | None = None
) -> PlacedValue:
    """Convert an assertion; an unsupported one is reported and never checked.

    An assertion of a turn that checks calls sees the whole conversation up to that turn, as in PromptKit.

    Args:
        node: The assertion.
        problems: Receives the reason why it is not checked.
        of_turn: Whether it belongs to a turn.
        judge: Name of the judge of the conversation; None if it has none.
    """
    kind, params = node.part("type"), node.part("params")
    message, given = _message(node)
    if judge is not None and given.get("judge") == judge and kind.text.startswith(_JUDGE):
        # There is one judge, so its name changes nothing.
        del given["judge"]
    when = {key: value for key, value in (node.part("when").value or {}).items() if value}
    threshold = node.part("pass_threshold")
    entry: dict[str, JSON] = {"type": kind.text or _NAMELESS}
    entry |= {"params": given} if given else {}
    entry |= {"message": message.text} if message.text else {}
    entry |= {"when": when} if when else {}
    entry |= {"pass_threshold": threshold.value} if threshold.value else {}
    gaps = _gaps(node, entry, judge)
    if gaps:
        problems += [problem for _why, problem in gaps]
        # One assertion that cannot be checked must not prevent the run, in which the others are checked.
        return place_object(
            node,
            {"type": place_value(entry["type"], kind), "unsupported": place_value(gaps[0][0], kind)},
        )
    scope = of_turn and "scope" not in given and _of_calls(kind.text, given)
    places = {"type": kind, "params": params, "message": message, "when": node.part("when")}
    parts: dict[str, PlacedValue | None] = {
        key: place_value(value, places.get(key, threshold)) for key, value in entry.items()
    }
    return place_object(node, {**parts, "scope": place_value("conversation", node) if scope else None})


_JUDGE: Final = "llm_judge"
_NAMELESS: Final = "unnamed"
"""Type of an assertion without one."""


def _gaps(node: SourceNode, entry: Mapping[str, JSON], judge: str | None) -> list[tuple[str, Problem]]:
    """The reasons why an assertion is not checked, each with its problem; empty if it is checked."""
    kind = node.part("type")
    why = _THEIRS_ALONE.get(kind.text)
    if why is not None:
        message = f"the assertion `{kind.text}` is not supported and not checked: {why}"
        return [(why, kind.problem("no_counterpart", message, severity="warning"))]
    if judge is None and _asks_judge(entry):
        why, hint = "the arena has no usable judge", "add a judge with a model to `judges` of the arena"
        message = f"the assertion `{kind.text}` is not checked: {why}"
        return [(why, kind.problem("no_counterpart", message, hint, "warning"))]
    faults: list[Problem] = []
    check_assertions([entry], "", faults)
    return [(fault.message, _unchecked(node, fault)) for fault in faults]


def _unchecked(node: SourceNode, fault: Problem) -> Problem:
    """The problem of an assertion that is not checked because of a fault."""
    at = node
    for key in keys_of(fault.pointer)[1:]:
        part = at.part(int(key) if isinstance(at.value, list) else key)
        # A missing parameter has no place of its own.
        at = part or at
    return at.problem(fault.code, f"{fault.message}; the assertion is not checked", fault.hint, "warning")


def _asks_judge(entry: Mapping[str, JSON]) -> bool:
    """Whether an assertion, or the one within a wrapper, needs a judge model."""
    params = entry.get("params")
    held = params.get("eval_type") if isinstance(params, dict) else None
    return any(isinstance(name, str) and name.startswith(_JUDGE) for name in (entry["type"], held))


def _message(node: SourceNode) -> tuple[SourceNode, dict[str, Any]]:
    """The message of an assertion, which may be one of its parameters, and the other parameters."""
    message, within = node.part("message"), node.part("params", "message")
    given = {key: value for key, value in (node.part("params").value or {}).items() if value is not None}
    given.pop("message", None)
    return (message if message.text or not within else within), given


def _of_calls(kind: str, params: Mapping[str, JSON]) -> bool:
    """Whether an assertion checks calls rather than messages."""
    alias = ALIASES.get(kind)
    own = alias.kind if alias is not None else kind
    # A wrapper is what it wraps: it looks at calls if the wrapped type does.
    held = params.get("eval_type")
    return _of_calls(held, {}) if isinstance(held, str) else own not in SPEAKING


_OFFERING: Final = ("tools", "tool_specs", "mcp_servers")
"""Keys of an arena that provide tools."""

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]")
_USER: Final = "user"
_SILENT: Final = ("assistant", "system", "tool")
"""Roles that PromptKit's engine refuses in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaContext:
    """Common data of the scenarios of an arena.

    Attributes:
        arena: The arena.
        library: Its files.
        prompts: Its prompts.
        providers: Its providers by id.
        roles: Role that simulates a user -> its provider.
        personas: Names of the personas.
        choice: Chooses the provider of a scenario.
        agents: Names of the tools of its mocked agents, which every prompt offers.
    """

    arena: SourceNode
    library: ArenaLibrary
    prompts: list[ArenaPrompt]
    providers: Mapping[str, ArenaProvider]
    roles: Mapping[str, SourceNode]
    personas: frozenset[str]
    choice: ProviderChooser
    agents: tuple[str, ...] = ()

    @property
    def spec(self) -> SourceNode:
        """The specification of the arena."""
        return self.arena.part("spec")


def scenario_of(
    name: str, scenario: SourceNode, labels: SourceNode, setting: ArenaContext
) -> ComposedDocument | None:
    """Convert a scenario; None if it cannot be run, which is reported.

    Args:
        name: Its name in mock responses.
        scenario: Its content.
        labels: The labels of its manifest.
        setting: Common data of the arena.
    """
    chosen = setting.choice.for_scenario(scenario)
    return _Conversation(name, scenario, setting, chosen).document(labels)


class _Conversation:
    """Converts one scenario."""

    def __init__(self, name: str, scenario: SourceNode, setting: ArenaContext, chosen: AgentProvider) -> None:
        self._name = name
        self._scenario = scenario
        self._setting = setting
        self._chosen = chosen
        self._library = setting.library
        self._problems = setting.library.problems
        self._variants = placeholder_variants(scenario.part("turns"))
        self._mocks = self._mocked()
        self._personas: dict[str, Persona] = {}
        self._readable = True
        self._judge = judge_keys(setting.spec, setting.providers, self._problems)

    def document(self, labels: SourceNode) -> ComposedDocument | None:
        """The whole scenario; None if it has no messages, or they cannot be read."""
        said = [each for turn in self._scenario.part("turns").each() for each in self._said(turn)]
        if not self._readable:
            return None
        if not said:
            message = "the scenario cannot be run: it has no user message"
            self._problems.append(self._scenario.part("turns").problem("no_turns", message))
            return None
        course = ConversationCourse(self._mocks, len(said)) if self._chosen.scripted else None
        self._tell_unanswered(course, said)
        scenario, defaults = self._scenario, self._setting.spec.part("defaults")
        described, seed, trials = scenario.part("description"), defaults.part("seed"), scenario.part("trials")
        threshold = scenario.part("pass_threshold")
        faults = [fault for index, each in enumerate(said) for fault in self._faults(index, each, course)]
        tags = [
            place_value(f"{key}={node.text}" if node.text else key, node) for key, node in labels.entries()
        ]
        parts: dict[str, PlacedValue | None] = {
            "scenario": place_value(self._own_name(), scenario),
            "description": place_value(described.text.strip(), described) if described.text else None,
            "tags": place_list(labels, tags) if tags else None,
            "seed": place_value(seed.value, seed) if seed else None,
            "faults": place_list(scenario.part("turns"), faults) if faults else None,
            "matrix": place_object(scenario.part("turns"), dict(self._variants)) if self._variants else None,
            "agent": self._agent(said),
            "trials": place_value(trials.value, trials) if trials and trials.value > 1 else None,
            "pass_threshold": place_value(threshold.value, threshold) if threshold.value else None,
        }
        return compose(scenario, place_object(scenario, parts))

    def _own_name(self) -> str:
        """The name, with `_` in place of characters that our names exclude."""
        name = _FOREIGN.sub("_", self._name)[:128]
        if not name or not (name[0].isalpha() or name[0] == "_"):
            name = f"_{name}"[:128]
        if name != self._name:
            message = f"the scenario `{self._name}` is renamed to `{name}`"
            self._problems.append(self._scenario.problem("renamed", message, severity="notice"))
        return name

    def _mocked(self) -> ResponseSection:
        whole = self._chosen.mocks
        if whole is not None:
            return responses_for_scenario(whole, self._name)
        nothing = SourceNode(self._scenario.document, self._scenario.pointer, None)
        return ResponseSection(nothing, nothing)

    def _agent(self, said: Sequence[UserTurn]) -> PlacedValue:
        scenario, spec = self._scenario, self._setting.spec
        prompt = prompt_of_scenario(self._setting.prompts, scenario, self._library)
        sources = [scenario.part("tool_policy"), *([prompt.spec.part("tool_policy")] if prompt else [])]
        self._problems += report_unenforced_bounds(sources)
        agents = self._setting.agents
        allowed = offered_tools(prompt, agents, spec.part("a2a_agents")) if prompt else None
        policy = policy_keys(sources, allowed)
        listed = self._whole()
        scripted = self._chosen.scripted
        if prompt is not None:
            made = (call for entry in self._mocks.entries.values() for call in calls_of(entry))
            calls = [call for call in made if call.part("name").text not in agents]
            offers = not agents and any(spec.part(key).value for key in _OFFERING)
            for problem in report_no_tools(prompt, calls if scripted else [], offers=offers):
                self._library.tell(problem)
        guards = guardrails(prompt, self._library) if prompt else []
        parts = {
            **provider_keys(self._chosen, scenario),
            "settings": request_settings(
                self._chosen, prompt.spec if prompt else None, spec.part("defaults")
            ),
            "prices": prices(self._chosen),
            "system": system_prompt(prompt, scenario, self._library) if prompt else None,
            "policy": place_object(sources[0], policy) if any(policy.values()) else None,
            "judge": self._judge,
            # Warnings, because PromptKit ignores unused responses and unknown tools.
            "unused_turns": place_value("warn", scenario) if scripted else None,
            "unknown_tools": place_value("warn", scenario),
            "script": reply_script(self._mocks, place_value(self._chosen.fallback, scenario))
            if scripted
            else None,
            "turns": place_list(scenario.part("turns"), [self._turn(each) for each in said]),
            "guardrails": place_list(scenario, guards) if guards else None,
            "assertions": place_list(scenario.part("conversation_assertions"), listed) if listed else None,
        }
        return place_object(scenario, parts)

    def _whole(self) -> list[PlacedValue]:
        """Assertions on the whole conversation: those of the scenario, then those of the arena."""
        own = self._scenario.part("conversation_assertions").each()
        common = self._setting.spec.part("globals", "conversation_assertions").each()
        return self._assertions([*own, *common], of_turn=False)

    def _turn(self, said: UserTurn) -> PlacedValue:
        node = said.node
        listed = self._assertions(node.part("assertions").each(), of_turn=True)
        client = client_answers(node, self._problems) if node.part("consent_overrides") else None
        parts = {
            "user": said.text,
            "client": client,
            "assertions": place_list(node.part("assertions"), listed) if listed else None,
        }
        return place_object(node, parts)

    def _assertions(self, nodes: Iterable[SourceNode], *, of_turn: bool) -> list[PlacedValue]:
        judge = None if self._judge is None else judge_name(self._judge)
        return [convert_assertion(node, self._problems, of_turn=of_turn, judge=judge) for node in nodes]

    def _faults(self, index: int, said: UserTurn, course: ConversationCourse | None) -> list[PlacedValue]:
        return list(turn_faults(said.node, index, course, self._problems))

    def _said(self, turn: SourceNode) -> list[UserTurn]:
        """The user's messages in a turn: one, or those of a persona."""
        role = turn.part("role").text
        if role == _USER and not turn.part("persona"):
            text = user_text(turn, self._variants, self._library)
            return [UserTurn(turn, text)] if text is not None else []
        if role in _SILENT:
            message = f"unsupported role `{role}`, which PromptKit refuses as well; the turn is dropped"
            self._problems.append(turn.part("role").problem("no_counterpart", message, severity="warning"))
            return []
        if not turn.part("persona"):
            self._tell_nobody(turn.part("role"))
            return []
        return [UserTurn(turn, text) for text in self._played(turn, role)]

    def _tell_nobody(self, role: SourceNode) -> None:
        """Report a turn without a persona, which has no message."""
        known = [_USER, *self._setting.roles]
        if role.text in known:
            message = f"this turn of the role `{role.text}` has no message: add a `persona`"
            hint = f"use one of {', '.join(sorted(filter(None, self._setting.personas))) or 'none'}"
        else:
            message = f"unknown role `{role.text}`; the turn is dropped"
            hint = did_you_mean(role.text, known) or f"use one of {', '.join(known)}"
        self._problems.append(role.problem("not_allowed", message, hint, "warning"))

    def _played(self, turn: SourceNode, role: str) -> list[PlacedValue]:
        """The messages of a persona."""
        name = turn.part("persona").text
        if name not in self._setting.personas:
            message = f"unknown persona `{name}`"
            hint = did_you_mean(name, self._setting.personas)
            self._problems.append(turn.part("persona").problem("missing_manifest", message, hint, "warning"))
        persona = self._personas.setdefault(name, Persona(self._mocks_of(name, role)))
        texts = persona.texts(turn)
        wanted = turn.part("turns").value or 1
        if len(texts) < wanted and self._readable:
            left = f"{wanted - len(texts)} of its {wanted} turns are dropped"
            message = f"the mock responses lack messages of the persona `{name}`: {left}"
            hint = f"add `selfplay: {{{name}: {{turns: {{1: ...}}}}}}` to the mock responses; simulating a user with a model is not supported"
            self._problems.append(turn.problem("no_counterpart", message, hint, "warning"))
        return texts

    def _mocks_of(self, persona: str, role: str) -> ResponseSection | None:
        """The responses of a persona: those of its role's mock provider, or those under its name in the agent's mock."""
        node = self._setting.roles.get(role)
        provider = self._setting.providers.get(node.text) if node is not None else None
        whole = self._setting.choice.responses_of(provider) if provider is not None else None
        if whole is not None:
            return responses_for_persona(whole, persona, self._name)
        # Unreadable responses have been reported. Further problems about missing messages would mislead.
        if provider is not None and provider.has_responses:
            self._readable = False
        whole = self._chosen.mocks
        if whole is None or not whole.part("selfplay", persona):
            return None
        return responses_for_persona(whole, persona, self._name)

    def _tell_unanswered(self, course: ConversationCourse | None, said: Sequence[UserTurn]) -> None:
        """Report requests that PromptKit's mock answers with its fallback."""
        if course is None or not course.unanswered or not self._mocks.is_whole:
            return
        numbers = ", ".join(map(str, course.unanswered))
        message = (
            f"the mock responses have neither a reply to request {numbers} of `{self._name}` nor a default"
        )
        hint = f"add `defaultResponse`; until then the reply is `{self._chosen.fallback}`, as in PromptKit"
        self._problems.append(said[0].node.problem("no_response", message, hint, "warning"))
