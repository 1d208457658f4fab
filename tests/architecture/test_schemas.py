"""The published schemas are the single contract: they explain themselves, and the values have their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest

from toolcrib.core.clock import parse_duration
from toolcrib.core.model import (
    Annotations,
    Bounds,
    Dependencies,
    Descriptor,
    Estimate,
    Example,
    Limits,
    Outcome,
    Toolset,
)
from toolcrib.core.schemas import KINDS, KNOWN_MODES, LATER_KEYS, envelope, with_blocks
from toolcrib.executors import Executors
from toolcrib.loading.packs import Pack
from toolcrib.loading.projects import DEFAULT_SOURCES, Profile, Project, SourceEntry
from toolcrib.loading.scenarios.expectations import KEPT, PARTS
from toolcrib.loading.scenarios.model import (
    AdvanceStep,
    AgentReply,
    AgentTurn,
    CallRule,
    CallStep,
    Expectation,
    ParallelStep,
    RepeatStep,
    Scenario,
    ScenarioAgent,
    ScriptedCall,
    Verification,
)
from toolcrib.loading.settings import parse_limits
from toolcrib.provider import Stop
from toolcrib.schema.validation import check_schema, validate
from toolcrib.security.tool_policy import ToolPolicy

EDITORS_ONLY = {"$schema"}


def whole(kind) -> dict[str, Any]:
    return with_blocks(kind, Executors.installed().blocks())


def properties(kind, *path: str) -> set[str]:
    """The property names of a place in the envelope of a kind of document."""
    schema: Any = envelope(kind)
    for key in path:
        schema = schema[key]
    return set(schema["properties"]) - EDITORS_ONLY


def field_names(cls, **spelt: str) -> set[str]:
    """The fields of a value, each as documents spell it."""
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else cls._fields
    return {spelt.get(name, name) for name in names}


def test_a_descriptor_has_the_fields_of_its_schema():
    blocks = {"bindings"}  # one key for each mode in the document
    of_the_document = {
        "override",
        "permissions",
    }  # `origin.overrides` and `capabilities` are what comes of them
    of_others = {"fixture", "faults", "offline"}  # what its pack, project and scenario say
    assert (
        field_names(Descriptor) - blocks - of_others - {"origin"}
        == properties("descriptor") - of_the_document
    )
    assert field_names(Annotations) == properties("descriptor", "properties", "annotations")
    assert field_names(Example) - {"has_result"} == properties(
        "descriptor", "properties", "examples", "items"
    )


def with_store(names: set[str]) -> set[str]:
    """The fields, with the keys of documents that make one fixture; what is wrong with that is no key."""
    assert {"fixture", "faults"} <= names
    return names - {"fixture", "faults"} | {"store", "state", "let", "define"}


def test_a_pack_has_the_fields_of_its_schema():
    assert with_store(field_names(Pack)) - {"origin"} == properties("pack")


def test_a_project_has_the_fields_of_its_schema():
    of_the_file = {"root", "broken", "origin", "limit_rules"}  # the last is `limits.rules`
    written = {"agents"}  # servers, once they are read
    assert with_store(field_names(Project, name="project")) - of_the_file | written == properties("project")
    assert field_names(Profile) - {"name", "limit_rules"} == properties("project", "$defs", "profile")
    assert field_names(SourceEntry) - {"optional", "place"} == properties("project", "$defs", "source")
    assert field_names(Toolset) - {"name", "place"} == properties("project", "$defs", "toolset")


def test_what_a_project_may_give_tools_is_what_descriptors_may_say():
    told = envelope("project")["$defs"]["defaults"]["properties"]
    own = envelope("descriptor")["properties"]
    for key in told:
        assert told[key].get("enum") == own[key].get("enum"), key
        assert told[key]["default"] == own[key]["default"], key
    for name in ("duration", "possible_timeout"):
        assert envelope("project")["$defs"][name] == envelope("descriptor")["$defs"][name]


def test_a_scenario_has_the_fields_of_its_schema():
    of_one_run = {"values", "run", "order", "base"}
    kept = {"store", "state"}  # one fixture
    told = field_names(Scenario, name="scenario", start="clock", real="clock") - {"origin"} - of_one_run
    assert told - {"fixture"} | kept == properties("scenario")
    assert properties("scenario", "properties", "clock") == {"start", "mode"}
    places = {"pointer", "number", "branch", "within", "repetition"}
    assert field_names(CallStep, save_as="as", repetitions="repeat") - places - {"written"} == properties(
        "scenario", "$defs", "step"
    )
    # A repeated step of another kind becomes a `RepeatStep`, with the steps of all its repetitions.
    parallel = field_names(ParallelStep, calls="parallel") - places
    assert parallel | {"repeat"} == properties("scenario", "$defs", "parallel")
    advance = field_names(AdvanceStep, seconds="advance") - places
    assert advance | {"repeat"} == properties("scenario", "$defs", "advance")
    repeated = field_names(RepeatStep, repetitions="repeat") - places
    assert repeated == properties("scenario", "$defs", "repeated")
    assert {"outcome", "golden", *PARTS} == properties("scenario", "$defs", "expect")
    assert field_names(Expectation, outcomes="outcome") == {"outcome", "golden", "parts"}


def test_a_verification_has_the_fields_of_its_schema():
    forbidden = {"never"}  # calls with 0 times
    told = field_names(Verification, stops="stop") - {"kept"} | forbidden | {*KEPT}
    assert told == properties("scenario", "properties", "verify")
    made = field_names(CallRule, outcomes="outcome") - {"pointer"}
    assert made == properties("scenario", "$defs", "made")
    assert made - {"times"} == properties("scenario", "$defs", "forbidden")


def test_an_agent_has_the_fields_of_its_schema():
    told = field_names(ScenarioAgent) - {"chosen", "permitted", "policy_keys", "pointer"}
    assert told == properties("scenario", "$defs", "agent")
    assert field_names(AgentTurn) - {"pointer"} == properties("scenario", "$defs", "turn")
    call = field_names(ScriptedCall, tool="call") - {"pointer"}
    assert call == properties("scenario", "$defs", "scripted_call")
    assert field_names(AgentReply) - {"pointer"} | call == properties("scenario", "$defs", "scripted_reply")
    assert field_names(ToolPolicy) == properties("scenario", "$defs", "policy")


def test_a_conversation_may_stop_for_every_reason():
    assert envelope("scenario")["$defs"]["stop"]["enum"] == [stop.value for stop in Stop]


def test_a_scenario_may_expect_every_outcome():
    assert envelope("scenario")["$defs"]["outcome"]["enum"] == [outcome.value for outcome in Outcome]


def plain(value: Any) -> Any:
    """A field's default as documents write it."""
    if type(value) is tuple:
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def defaults_of(cls) -> dict[str, Any]:
    if not is_dataclass(cls):
        return {name: plain(default) for name, default in cls._field_defaults.items()}
    found = {}
    for field in fields(cls):
        if field.default is not MISSING:
            found[field.name] = plain(field.default)
        elif field.default_factory is not MISSING:
            found[field.name] = plain(field.default_factory())
    return found


SAID_OTHERWISE = {
    ("descriptor", "annotations"): (Annotations(), {}),
    ("project", "sources"): ([*DEFAULT_SOURCES], [source.path for source in DEFAULT_SOURCES]),
    ("project", "toolsets"): ([], {}),
    ("project", "egress"): ([], {}),
    ("descriptor", "output_schema"): (None, True),
    ("descriptor", "dependencies"): (Dependencies(), {}),
    ("descriptor", "estimate"): (Estimate(), {}),
    ("descriptor", "limits"): (Limits(), {}),
    ("descriptor", "timeout"): (parse_duration("30s"), "30s"),
    ("pack", "toolsets"): ([], {}),
    ("scenario", "verify"): (Verification(), {}),
}


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("descriptor", Descriptor),
        ("pack", Pack),
        ("scenario", Scenario),
        ("project", Project),
        ("project", Profile),
    ],
)
def test_a_default_of_the_schema_is_that_of_the_value(kind, cls):
    told = {
        key: schema["default"] for key, schema in envelope(kind)["properties"].items() if "default" in schema
    }
    real = defaults_of(cls)
    for key in told.keys() & real.keys():
        in_value, in_schema = SAID_OTHERWISE.get((kind, key), (told[key], told[key]))
        assert (real[key], told[key]) == (in_value, in_schema), key


def test_the_defaults_of_annotations_are_those_of_the_value():
    schema = envelope("descriptor")["properties"]["annotations"]["properties"]
    assert {key: entry["default"] for key, entry in schema.items()} == defaults_of(Annotations)


def test_the_limits_of_schema_and_value_are_the_same_with_the_same_defaults():
    for kind in ("descriptor", "project"):
        defs = envelope(kind)["$defs"]
        written = {
            key: entry["default"] for key, entry in defs["limits"]["properties"].items() if "default" in entry
        }
        for name in ("backoff", "breaker"):
            written[name] = {key: entry["default"] for key, entry in defs[name]["properties"].items()}
        assert parse_limits(written) == Limits()
        assert parse_limits({}) == Limits()
        # The rules of a project limit groups of calls, not each tool.
        assert set(defs["limits"]["properties"]) - {"rules"} == field_names(Limits)
        assert set(defs["origin_limits"]["properties"]) == field_names(Bounds)


def test_the_virtual_clock_starts_when_the_schema_says():
    told = envelope("scenario")["properties"]["clock"]["properties"]["start"]["default"]
    assert defaults_of(Scenario)["start"].isoformat().replace("+00:00", "Z") == told


def resolved(schema: Any, root: Any) -> dict[str, Any]:
    """A property's schema with what its reference says under what it says itself."""
    merged = dict(schema)
    while "$ref" in merged:
        target: Any = root
        for key in merged.pop("$ref").removeprefix("#/").split("/"):
            target = target[key]
        merged = {**target, **merged}
    return merged


def walk(schema: Any, root: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every property of a schema that is a key of documents: (pointer, its schema, whether it is required)."""
    if not isinstance(schema, dict):
        return
    for name, entry in schema.get("properties", {}).items():
        if isinstance(entry, dict):
            yield f"{place}/{name}", resolved(entry, root), name in schema.get("required", ())
            yield from walk(entry, root, f"{place}/{name}")
    for key in ("items", "additionalProperties", "then", "else"):
        yield from walk(schema.get(key), root, f"{place}/{key}")
    for name, entry in schema.get("$defs", {}).items():
        yield from walk(entry, root, f"{place}/$defs/{name}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_property_explains_itself(kind):
    schema = whole(kind)
    silent = [
        place
        for place, entry, required in walk(schema, schema)
        if not (entry.get("title") and entry.get("description"))
        or not (required or "default" in entry or "examples" in entry)
    ]
    uninstalled = {f"/{mode}" for mode in KNOWN_MODES} - {f"/{mode}" for mode in Executors.installed().modes}
    assert [place for place in silent if place not in uninstalled | {"/$schema"}] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_example_and_default_fits_its_own_schema(kind):
    schema = whole(kind)
    wrong = []
    for place, entry, _required in walk(schema, schema):
        shown = [*entry.get("examples", ()), *([entry["default"]] if "default" in entry else [])]
        inner = {**entry, "$defs": schema.get("$defs", {})}
        wrong += [(place, value) for value in shown if validate(inner, value)]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_itself_is_right_and_closed(kind):
    schema = whole(kind)
    assert check_schema(schema) == []
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_later_is_no_key_of_now(kind):
    assert not LATER_KEYS[kind] & set(whole(kind)["properties"])
