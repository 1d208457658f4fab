"""The page on providers and conversations has the names, settings, codes and forms that the code has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from toolcrib import provider
from toolcrib.core.errors import ConfigurationError
from toolcrib.http import HTTPFailure
from toolcrib.provider import Message
from toolcrib.provider.conversations import Stop
from toolcrib.provider.loop import timeline
from toolcrib.provider.models import anthropic, openai
from toolcrib.provider.models.http_client import BY_KIND, BY_STATUS
from toolcrib.provider.models.installed_providers import _options_of, open_provider
from toolcrib.security import egress

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "provider.md").read_text(encoding="utf-8")
PROVIDERS = {
    "anthropic": anthropic._RESERVED,
    "azure_openai": openai._CHAT_RESERVED,
    "openai": openai._CHAT_RESERVED,
    "openai_responses": openai._RESPONSES_RESERVED,
}
"""Provider -> the settings that it refuses."""


def rows(heading: str) -> list[list[str]]:
    """The rows of the table with this heading."""
    (rest,) = PAGE.split(f"| {heading} |\n")[1:]
    return [line.strip("| ").split(" | ") for line in rest.split("\n\n")[0].splitlines()[1:]]


def named(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def first(found: list[list[str]]) -> set[str]:
    names = [name for row in found for name in named(row[0])]
    assert len(names) == len(set(names))
    return set(names)


def section(title: str) -> list[list[str]]:
    """The rows of the table of a section with codes."""
    (rest,) = PAGE.split(f"## {title}\n")[1:]
    lines = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("| `")]
    return [line.strip("| ").split(" | ") for line in lines]


def codes(*makers: str) -> set[str]:
    """The fixed codes that the package gives to what one of these makes."""
    folder = Path(provider.__file__).parent
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    constants = {
        target.id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    found = set()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        maker = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if maker in makers:
            values = [each.value for each in node.keywords if each.arg == "code"]
            values += node.args[:1] if maker == "_denied" else []
            found |= {
                each.value if isinstance(each, ast.Constant) else constants.get(getattr(each, "id", ""))
                for each in values
            }
    return {code for code in found if code}


def opened(name: str) -> provider.Provider:
    return open_provider(name, model="m", base_url="https://models.example")


def test_providers_and_their_options():
    assert [named(row[0])[0] for row in rows("provider | API | default URL | key variable")] == [*PROVIDERS]
    for name, _, address, key in rows("provider | API | default URL | key variable"):
        service = type(opened(*named(name))).SERVICE
        assert named(address + key) == [each for each in (service.base_url, service.variable) if each]
    told = {
        (option, name)
        for cell, of, _ in rows("option | providers | meaning")
        for option in named(cell)
        for name in named(of)
    }
    assert told == {(option, name) for name in PROVIDERS for option in _options_of(type(opened(name)))[0]}


def test_settings_that_are_refused():
    told = {
        (setting, name)
        for cell, by, _ in rows("setting | rejected by | use instead")
        for setting in named(cell)
        for name in named(by)
    }
    assert told == {(setting, name) for name, settings in PROVIDERS.items() for setting in settings}


def test_why_turns_end():
    assert [named(row[0])[0] for row in rows("stop | when")] == [stop.value for stop in Stop]


def test_codes_of_calls():
    assert first(section("Call error codes")) == codes("failure", "_denied") | {"not_found"}


def test_codes_of_providers():
    guarded = set(re.findall("`(\\w+)`", egress.EgressRefused.__doc__.partition("code:")[2]))
    fixed = codes("ProviderError", "error") | {fault.value for fault in HTTPFailure} | guarded
    answered = {code for code, _ in (*BY_STATUS.values(), *BY_KIND.values())}
    assert first(section("Provider errors")) == fixed | answered | {"missing_secret"}


def test_codes_of_configuration():
    elsewhere = {
        ConfigurationError.code,
        "invalid_answer",
        "reserved_header",
        "unknown_toolset",
        "wrong_form",
    }
    assert first(section("Configuration errors")) == codes("ConfigurationError") | elsewhere


def test_parts_of_messages_and_events():
    parts = {named(kind)[0]: tuple(named(has)) for kind, has in rows("part | fields")}
    assert parts.pop("content") == ("content",)
    forms = {"text": "Text", "reasoning": "Reasoning", "tool_call": "ToolCall", "tool_result": "ToolResult"}
    assert parts == {kind: getattr(provider, name)._fields for kind, name in forms.items()}
    assert Message("user", (provider.Text("hi"),)).as_json() == {
        "role": "user",
        "parts": [{"type": "text", "text": "hi"}],
    }
    told = {named(kind)[0]: {*named(has)} for kind, has, _ in rows("event | fields | when")}
    assert told == {kind: {*has} for kind, has in timeline.TYPES.items()}
