"""The mocked A2A agents of a PromptKit arena, each skill as a tool with a mock.

PromptKit offers the skill `search` of the agent `Research Agent` as the tool `a2a__research_agent__search`, with the
input `query` and the output `response`. A mocked agent replies by its `responses`: the first one of the skill whose
`match` fits the query.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import escape_expressions
from toolcrib.formats.promptkit.source_nodes import SourceNode
from toolcrib.loading.documents.document import Document

_FOREIGN: Final = re.compile(r"[^a-z0-9]+")
_TEXT: Final[dict[str, JSON]] = {"type": "string"}


def tools_of_agents(spec: SourceNode) -> tuple[list[Document], list[Problem]]:
    """The tools of the mocked agents of an arena, in our form, and the problems of the agents."""
    tools: list[Document] = []
    problems: list[Problem] = []
    for agent in spec.part("a2a_agents").each():
        skills = {skill.part("id").text: skill for skill in agent.part("card", "skills").each()}
        if agent.part("url").text:
            message = f"the agent `{_name(agent)}` is ignored: agents at a `url` are not supported"
            hint = "describe it by a `card` and `responses`; it is then mocked"
            problems.append(agent.part("url").problem("no_counterpart", message, hint, "warning"))
            continue
        problems += _strays(agent, skills)
        tools += (_tool(agent, skill) for name, skill in skills.items() if _is_offered(agent, name))
    return tools, problems


def _name(agent: SourceNode) -> str:
    """The name of an agent on its card, by which PromptKit names its tools."""
    return agent.part("card", "name").text or agent.part("name").text


def _strays(agent: SourceNode, skills: Collection[str]) -> Iterator[Problem]:
    """A warning for each response of a skill that the card does not have."""
    for response in agent.part("responses").each():
        skill = response.part("skill")
        if skill.text and skill.text not in skills:
            message = (
                f"unknown skill `{skill.text}` of the agent `{_name(agent)}`; the response is never used"
            )
            hint = did_you_mean(skill.text, skills) or f"its skills are {', '.join(skills) or 'none'}"
            yield skill.problem("not_allowed", message, hint, "warning")


def _is_offered(agent: SourceNode, skill: str) -> bool:
    chosen = agent.part("skill_filter")
    allowed, blocked = ([node.text for node in chosen.part(key).each()] for key in ("allowlist", "blocklist"))
    if allowed:
        return any(fnmatchcase(skill, glob) for glob in allowed)
    return not any(fnmatchcase(skill, glob) for glob in blocked)


def _tool(agent: SourceNode, skill: SourceNode) -> Document:
    name = f"a2a__{_plain(_name(agent))}__{_plain(skill.part('id').text)}"
    described = skill.part("description") if skill.part("description").text else skill.part("name")
    moves = {"": skill.pointer, "/name": skill.part("id").pointer, "/mock": agent.part("responses").pointer}
    value: dict[str, Any] = {"name": name, "description": described.text or name}
    moves["/description"] = described.pointer
    value["input_schema"] = _input_schema(_modes(agent, skill, "input"))
    value["output_schema"] = _output_schema(_modes(agent, skill, "output"))
    value["mode"] = "mock"
    value["mock"] = {"rules": [*_rules(agent, skill.part("id").text, moves)]}
    return skill.document.moved(value, moves)


def _plain(text: str) -> str:
    return _FOREIGN.sub("_", text.lower()).strip("_")


def _modes(agent: SourceNode, skill: SourceNode, side: str) -> Sequence[str]:
    """The media types of one side: those of the skill, or else of the card."""
    own = skill.part(f"{side}Modes")
    return [node.text for node in (own or agent.part("card", f"default{side.title()}Modes")).each()]


def _input_schema(modes: Sequence[str]) -> JSON:
    properties: dict[str, JSON] = {"query": _TEXT}
    if any(mode.startswith("image/") for mode in modes):
        properties |= {"image_url": _TEXT, "image_data": _TEXT}
    if any(mode.startswith("audio/") for mode in modes):
        properties["audio_data"] = _TEXT
    return {"type": "object", "properties": properties, "required": ["query"]}


def _output_schema(modes: Sequence[str]) -> JSON:
    properties: dict[str, JSON] = {"response": _TEXT}
    if any(mode.startswith(("image/", "audio/")) for mode in modes):
        properties |= {"media_url": _TEXT, "media_type": _TEXT}
    return {"type": "object", "properties": properties}


def _rules(agent: SourceNode, skill: str, moves: dict[str, str]) -> Iterator[JSON]:
    """The rules of a skill, up to the first one that fits every query; the last one replies to all other queries."""
    count = 0
    for response in agent.part("responses").each():
        failure, parts = response.part("error"), response.part("response")
        if response.part("skill").text not in ("", skill) or not (failure.text or parts):
            continue
        match = _match(response.part("match"))
        if failure.text:
            reply: dict[str, JSON] = {
                "error": {"code": "agent_failed", "message": escape_expressions(failure.text)}
            }
        else:
            texts = [part.part("text").text for part in parts.part("parts").each()]
            reply = {"result": {"response": escape_expressions("\n".join(texts))}}
        moves[f"/mock/rules/{count}"] = response.pointer
        moves[f"/mock/rules/{count}/when"] = response.part("match").pointer
        moves[f"/mock/rules/{count}/reply"] = (failure if failure.text else parts).pointer
        count += 1
        yield {"when": {"args": {"query": match}}, "reply": reply} if match else {"reply": reply}
        if not match:
            return
    message = f"the mock of the agent `{_name(agent)}` has no response for this query"
    yield {"reply": {"error": {"code": "no_response", "message": escape_expressions(message)}}}


def _match(match: SourceNode) -> dict[str, JSON]:
    """The matcher of a query; empty if every query fits. As in PromptKit, only `contains` ignores case."""
    tests: list[JSON] = []
    if match.part("contains").text:
        tests.append({"$regex": f"(?i){re.escape(match.part('contains').text)}"})
    if match.part("regex").text:
        tests.append({"$regex": match.part("regex").text})
    return {"$all": tests} if tests else {}
