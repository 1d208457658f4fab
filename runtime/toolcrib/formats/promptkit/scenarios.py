"""From a scenario of PromptKit to one of ours: put together of the scenario, its prompt, its provider, its mocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolcrib.core.errors import did_you_mean
from toolcrib.formats.promptkit import (
    assertions,
    mock_responses,
    policies,
    turns,
)
from toolcrib.formats.promptkit import (
    model_providers as providers,
)
from toolcrib.formats.promptkit import (
    system_prompts as prompts,
)
from toolcrib.formats.promptkit.library import Library
from toolcrib.formats.promptkit.mock_responses import Course, Mocked
from toolcrib.formats.promptkit.model_providers import Choice, Chosen, Provider
from toolcrib.formats.promptkit.source_nodes import (
    Composed,
    Made,
    Node,
    compose,
    made,
    made_list,
    made_object,
)

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]")
_USER: Final = "user"
_SILENT: Final = ("assistant", "system", "tool")
"""Roles that PromptKit's own engine refuses in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the scenarios of an arena have in common.

    Attributes:
        arena: The arena.
        library: Its files.
        prompts: Its prompts.
        providers: Its providers, by id.
        roles: Role that plays a user -> the provider that does.
        personas: The names of those that it may play.
        choice: Chooses who answers.
    """

    arena: Node
    library: Library
    prompts: list[prompts.Prompt]
    providers: Mapping[str, Provider]
    roles: Mapping[str, Node]
    personas: frozenset[str]
    choice: Choice

    @property
    def spec(self) -> Node:
        """What the arena says."""
        return self.arena.part("spec")


def scenario_of(name: str, scenario: Node, labels: Node, setting: Setting) -> Composed | None:
    """One scenario as a document of ours; None where there is nothing that could be run, which is told.

    Args:
        name: Its name, by which mock responses know it.
        scenario: What it says.
        labels: What its manifest is labelled with.
        setting: What it has in common with others.
    """
    chosen = setting.choice.for_scenario(scenario)
    if chosen is None or not chosen.readable:
        return None
    return _Conversation(name, scenario, setting, chosen).document(labels)


class _Conversation:
    """One scenario on its way."""

    def __init__(self, name: str, scenario: Node, setting: Setting, chosen: Chosen) -> None:
        self._name = name
        self._scenario = scenario
        self._setting = setting
        self._chosen = chosen
        self._library = setting.library
        self._problems = setting.library.problems
        self._variants = turns.variants(scenario.part("turns"))
        self._mocks = self._mocked()
        self._personas: dict[str, turns.Persona] = {}
        self._readable = True

    def document(self, labels: Node) -> Composed | None:
        """The whole scenario; None where nobody knows what is said in it, or nothing is."""
        said = [each for turn in self._scenario.part("turns").each() for each in self._said(turn)]
        if not self._readable:
            return None
        if not said:
            message = "nothing of this scenario can be run: the user says nothing in it"
            self._problems.append(self._scenario.part("turns").problem("no_turns", message))
            return None
        course = Course(self._mocks, len(said)) if self._chosen.scripted else None
        self._tell_unanswered(course, said)
        scenario, defaults = self._scenario, self._setting.spec.part("defaults")
        described, seed, trials = scenario.part("description"), defaults.part("seed"), scenario.part("trials")
        threshold = scenario.part("pass_threshold")
        faults = [fault for index, each in enumerate(said) for fault in self._faults(index, each, course)]
        tags = [made(f"{key}={node.text}" if node.text else key, node) for key, node in labels.entries()]
        parts: dict[str, Made | None] = {
            "scenario": made(self._own_name(), scenario),
            "description": made(described.text.strip(), described) if described.text else None,
            "tags": made_list(labels, tags) if tags else None,
            "seed": made(seed.value, seed) if seed else None,
            "faults": made_list(scenario.part("turns"), faults) if faults else None,
            "matrix": made_object(scenario.part("turns"), dict(self._variants)) if self._variants else None,
            "agent": self._agent(said),
            "trials": made(trials.value, trials) if trials and trials.value > 1 else None,
            "pass_threshold": made(threshold.value, threshold) if threshold.value else None,
        }
        return compose(scenario, made_object(scenario, parts))

    def _own_name(self) -> str:
        """The name; what a name of ours can't have becomes `_`."""
        name = _FOREIGN.sub("_", self._name)[:128]
        if not name or not (name[0].isalpha() or name[0] == "_"):
            name = f"_{name}"[:128]
        if name != self._name:
            message = f"the scenario `{self._name}` is called `{name}` here"
            self._problems.append(self._scenario.problem("renamed", message, severity="notice"))
        return name

    def _mocked(self) -> Mocked:
        whole = self._chosen.mocks
        if whole is not None:
            return mock_responses.mocked(whole, self._name)
        nothing = Node(self._scenario.document, self._scenario.pointer, None)
        return Mocked(nothing, nothing)

    def _agent(self, said: Sequence[turns.Said]) -> Made:
        scenario, spec = self._scenario, self._setting.spec
        prompt = prompts.chosen(self._setting.prompts, scenario, self._library)
        sources = [scenario.part("tool_policy"), *([prompt.spec.part("tool_policy")] if prompt else [])]
        self._problems += policies.enforced(sources)
        policy = policies.policy(sources, prompt.allowed if prompt else None)
        listed = self._whole()
        scripted = self._chosen.scripted
        guards = prompts.guardrails(prompt, self._library) if prompt else []
        parts = {
            **providers.of_model(self._chosen),
            "settings": providers.settings(
                self._chosen, prompt.spec if prompt else None, spec.part("defaults")
            ),
            "prices": providers.prices(self._chosen),
            "system": prompts.system(prompt, scenario, self._library) if prompt else None,
            "policy": made_object(sources[0], policy) if any(policy.values()) else None,
            "judge": providers.judge(spec, self._setting.providers, self._problems),
            "unused_turns": made("warn", scenario) if scripted else None,
            "unknown_tools": made("warn", scenario),
            "script": mock_responses.script(self._mocks, made(self._chosen.fallback, scenario))
            if scripted
            else None,
            "turns": made_list(scenario.part("turns"), [self._turn(each) for each in said]),
            "guardrails": made_list(scenario, guards) if guards else None,
            "assertions": made_list(scenario.part("conversation_assertions"), listed) if listed else None,
        }
        return made_object(scenario, parts)

    def _whole(self) -> list[Made]:
        """What must be true of the whole conversation: by the scenario, then by the arena."""
        own = self._scenario.part("conversation_assertions").each()
        common = self._setting.spec.part("globals", "conversation_assertions").each()
        return self._assertions([*own, *common], of_turn=False)

    def _turn(self, said: turns.Said) -> Made:
        node = said.node
        listed = self._assertions(node.part("assertions").each(), of_turn=True)
        client = turns.consent(node, self._problems) if node.part("consent_overrides") else None
        parts = {
            "user": said.text,
            "client": client,
            "assertions": made_list(node.part("assertions"), listed) if listed else None,
        }
        return made_object(node, parts)

    def _assertions(self, nodes: Iterable[Node], *, of_turn: bool) -> list[Made]:
        return [assertions.assertion(node, self._problems, of_turn=of_turn) for node in nodes]

    def _faults(self, index: int, said: turns.Said, course: Course | None) -> list[Made]:
        return list(turns.faults(said.node, index, course, self._problems))

    def _said(self, turn: Node) -> list[turns.Said]:
        """What the user says in a turn as written: once, or as often as a persona speaks."""
        role = turn.part("role").text
        if role == _USER and not turn.part("persona"):
            text = turns.scripted(turn, self._variants, self._library)
            return [turns.Said(turn, text)] if text is not None else []
        if role in _SILENT:
            message = f"a turn of the role `{role}` has no counterpart here, and PromptKit refuses it as well: it is left out"
            self._problems.append(turn.part("role").problem("no_counterpart", message, severity="warning"))
            return []
        if not turn.part("persona"):
            self._tell_nobody(turn.part("role"))
            return []
        return [turns.Said(turn, text) for text in self._played(turn, role)]

    def _tell_nobody(self, role: Node) -> None:
        """Say that nobody speaks in a turn that names no persona."""
        known = [_USER, *self._setting.roles]
        if role.text in known:
            message = f"nobody speaks in this turn of the role `{role.text}`: it names no `persona`"
            hint = f"the arena has: {', '.join(sorted(filter(None, self._setting.personas))) or 'none'}"
        else:
            message = f"there is no role `{role.text}`: the turn is left out"
            hint = did_you_mean(role.text, known) or f"the roles are: {', '.join(known)}"
        self._problems.append(role.problem("not_allowed", message, hint, "warning"))

    def _played(self, turn: Node, role: str) -> list[Made]:
        """What a persona says."""
        name = turn.part("persona").text
        if name not in self._setting.personas:
            message = f"the arena has no persona `{name}`"
            hint = did_you_mean(name, self._setting.personas)
            self._problems.append(turn.part("persona").problem("missing_manifest", message, hint, "warning"))
        persona = self._personas.setdefault(name, turns.Persona(self._mocks_of(name, role)))
        texts = persona.texts(turn)
        wanted = turn.part("turns").value or 1
        if len(texts) < wanted and self._readable:
            left = f"{wanted - len(texts)} of its {wanted} turns are left out"
            message = f"no mock responses say what the persona `{name}` says: {left}"
            hint = f"write them as `selfplay: {{{name}: {{turns: {{1: ...}}}}}}` in the mock responses; a model can't play a user here"
            self._problems.append(turn.problem("no_counterpart", message, hint, "warning"))
        return texts

    def _mocks_of(self, persona: str, role: str) -> Mocked | None:
        """What there is of a persona: of the mock that plays its role, else under its name in the mock of the agent."""
        node = self._setting.roles.get(role)
        provider = self._setting.providers.get(node.text) if node is not None else None
        whole = self._setting.choice.responses_of(provider) if provider is not None else None
        if whole is not None:
            return mock_responses.played(whole, persona, self._name)
        if provider is not None and provider.has_responses:
            self._readable = False
        whole = self._chosen.mocks
        if whole is None or not whole.part("selfplay", persona):
            return None
        return mock_responses.played(whole, persona, self._name)

    def _tell_unanswered(self, course: Course | None, said: Sequence[turns.Said]) -> None:
        """Say which requests PromptKit's mock answers with a text that nobody wrote."""
        if course is None or not course.unanswered or not self._mocks.is_whole:
            return
        numbers = ", ".join(map(str, course.unanswered))
        message = (
            f"the mock responses say nothing to request {numbers} of `{self._name}`, and have no default"
        )
        hint = f"write `defaultResponse`; as in PromptKit the answer is `{self._chosen.fallback}`"
        self._problems.append(said[0].node.problem("no_response", message, hint, "warning"))
