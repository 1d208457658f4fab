"""PromptPacks as packs: their tools, what binds them, and what has no counterpart."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib import Executors, Outcome, Runtime
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.prompts import Guardrail, PromptVariable
from toolcrib.loading.sources import load, parse
from toolcrib.security.tool_policy import ToolPolicy

KINDS = Executors.installed()

WEATHER = {
    "name": "get_weather",
    "description": "Current weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
PING = {"name": "ping", "description": "Whether anybody is there."}


def promptpack(**changes):
    """A PromptPack; a part that is None is left out."""
    whole = {
        "$schema": "https://promptpack.org/schema/latest/promptpack.schema.json",
        "id": "weather-desk",
        "name": "Weather Desk",
        "version": "v1.2.0",
        "description": "Tells the weather.",
        "template_engine": {"version": "v1", "syntax": "{{variable}}"},
        "prompts": {
            "assistant": {
                "id": "assistant",
                "name": "Assistant",
                "version": "1.0.0",
                "system_template": "You are {{role}}.",
                "variables": [{"name": "role", "type": "string", "required": False, "default": "kind"}],
                "tools": ["get_weather"],
            }
        },
        "tools": {"get_weather": WEATHER, "ping": PING},
    }
    return {key: item for key, item in {**whole, **changes}.items() if item is not None}


def prompt(**changes):
    """A PromptPack whose only prompt has other keys."""
    own = promptpack()["prompts"]["assistant"]
    changed = {key: item for key, item in {**own, **changes}.items() if item is not None}
    return promptpack(prompts={"assistant": changed})


def read(value):
    return parse("x.pack.json", json.dumps(value), KINDS)


def told(loaded, severity=None):
    """Code and pointer of what is wrong."""
    return [
        (problem.code, problem.pointer)
        for problem in loaded.problems
        if severity is None or problem.severity == severity
    ]


def put(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return folder


def answer(runtime, name, arguments=None):
    return asyncio.run(runtime.call(name, arguments))


# As a pack.


def test_a_promptpack_is_a_pack_with_prompts():
    loaded = read(promptpack())
    assert loaded.problems == ()
    (pack,) = loaded.packs
    assert (pack.name, pack.version, pack.description) == ("weather-desk", "1.2.0", "Tells the weather.")
    own = pack.prompts["assistant"]
    assert (own.title, own.system, own.tools) == ("Assistant", "You are {{ role }}.", ("get_weather",))
    assert own.render({"role": "brief"}) == "You are brief."
    assert (own.place, pack.origin.place("/name")) == ("x.pack.json:1", "x.pack.json:1")


def test_its_tools_are_contracts_that_nothing_binds():
    loaded = read(promptpack())
    weather, ping = loaded.tools
    assert (weather.name, weather.description) == ("get_weather", "Current weather.")
    assert (weather.input_schema, weather.output_schema) == (WEATHER["parameters"], None)
    assert (weather.mode, weather.bindings, weather.origin.pack) == (None, {}, "weather-desk")
    assert ping.input_schema == {"type": "object", "additionalProperties": False}
    assert answer(loaded_runtime(loaded), "ping").outcome is Outcome.UNAVAILABLE


def test_content_decides_and_yaml_will_do():
    text = "template_engine: {version: v1, syntax: '{{variable}}'}\nid: a\nname: A\nversion: 1.10.0\nprompts: {}\n"
    (pack,) = parse("any.yaml", text, KINDS).packs
    assert (pack.name, pack.version) == ("a", "1.10.0")
    text = '{"$schema": "https://promptpack.org/schema/v1.4/promptpack.schema.json", "id": "b", "version": "1.0.0", "tools": {}}'
    assert [pack.name for pack in parse("any.json", text, KINDS).packs] == ["b"]
    nearly = parse("any.yaml", "prompts: {}\nname: x\n", KINDS)
    assert (nearly.packs, nearly.problems[0].message) == (
        (),
        "not a descriptor, scenario or pack; a PromptPack has `template_engine` next to `prompts`",
    )


@pytest.mark.parametrize("path", [".", "in/a/folder", "weather.pack.json"])
def test_it_is_read_where_packs_are(tmp_path, monkeypatch, path):
    name = "weather.pack.json" if path.endswith(".json") else f"{path}/weather.pack.json"
    put(tmp_path, {name: promptpack()})
    monkeypatch.chdir(tmp_path)
    with Runtime.open(path, index=False) as runtime:
        assert [*runtime.registry] == ["get_weather", "ping"]
        assert [pack.name for pack in runtime.packs] == ["weather-desk"]
        assert runtime.problems == ()


def test_a_project_and_a_namespace_hold_it(tmp_path, monkeypatch):
    files = {
        "toolcrib.yaml": "project: p\nsources: [{path: a, namespace: desk}]\n",
        "a/x.pack.json": promptpack(),
    }
    monkeypatch.chdir(put(tmp_path, files))
    with Runtime.open(index=False) as runtime:
        assert [*runtime.registry] == ["desk__get_weather", "desk__ping"]
        assert runtime.problems == ()


def test_in_the_folder_of_another_pack_it_is_one_of_its_own(tmp_path):
    put(tmp_path, {"pack.yaml": "name: outer\nversion: 1.0.0\n", "x.pack.json": promptpack()})
    loaded = load([tmp_path], KINDS)
    assert [pack.name for pack in loaded.packs] == ["outer", "weather-desk"]
    assert {tool.origin.pack for tool in loaded.tools} == {"weather-desk"}
    put(tmp_path, {"pack.yaml": "name: outer\nversion: 1.0.0\ntools: [tools/*]\nscenarios: ['*']\n"})
    assert [pack.name for pack in load([tmp_path], KINDS).packs] == ["outer"]


def test_the_second_of_one_id_is_left_out_with_its_tools(tmp_path):
    put(tmp_path, {"a.pack.json": promptpack(), "b.pack.json": promptpack(tools={"other": PING})})
    loaded = load([tmp_path], KINDS)
    assert [tool.name for tool in loaded.tools] == ["get_weather", "ping"]
    assert told(loaded, "error") == [("duplicate_pack", "/id")]
    assert loaded.problems[-1].source.endswith("b.pack.json")
    assert "other" in loaded.refused


# What is wrong.


def test_problems_stand_in_the_file_as_it_is_written(tmp_path):
    broken = {**WEATHER, "parameters": {"type": "object", "properties": {"city": {"type": "text"}}}}
    put(tmp_path, {"x.pack.json": promptpack(tools={"get_weather": broken, "ping": PING, "no name": PING})})
    loaded = load([tmp_path], KINDS)
    assert [tool.name for tool in loaded.tools] == ["ping"]
    lines = (tmp_path / "x.pack.json").read_text().splitlines()
    (wrong_type,) = [problem for problem in loaded.problems if problem.code == "invalid_schema"]
    assert wrong_type.pointer == "/tools/get_weather/parameters/properties/city/type"
    assert '"type": "text"' in lines[wrong_type.line - 1]
    (wrong_name,) = [
        problem for problem in loaded.problems if problem.severity == "error" and problem.code == "wrong_form"
    ]
    assert wrong_name.pointer == "/tools/no name"
    assert '"no name"' in lines[wrong_name.line - 1]


def test_the_key_of_a_tool_counts():
    loaded = read(promptpack(tools={"weather.now": WEATHER, "get-it": {**PING, "name": "get-it"}}))
    assert [tool.name for tool in loaded.tools] == ["weather.now", "get-it"]
    assert told(loaded, "notice") == [("name_differs", "/tools/weather.now/name")]


def test_what_a_contract_can_not_say_is_kept_and_told():
    loaded = read(promptpack(tools={"ping": {**PING, "mock": {"result": 1}, "colour": "red"}}))
    (ping,) = loaded.tools
    assert (ping.bindings, ping.metadata) == ({}, {"promptpack": {"mock": {"result": 1}, "colour": "red"}})
    problems = [problem for problem in loaded.problems if problem.code == "unknown_key"]
    assert [problem.pointer for problem in problems] == ["/tools/ping/mock", "/tools/ping/colour"]
    assert "bindings.yaml" in problems[0].hint


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"id": None}, [("missing_key", "/id")]),
        ({"id": "Weather Desk"}, [("wrong_form", "/id")]),
        ({"version": None}, [("missing_key", "/version")]),
        ({"version": "1"}, [("wrong_form", "/version")]),
        ({"name": None}, [("missing_key", "/name")]),
        ({"name": ""}, [("missing_key", "/name")]),
        ({"template_engine": None}, [("missing_key", "/template_engine")]),
        ({"template_engine": []}, [("wrong_type", "/template_engine")]),
        ({"template_engine": {"syntax": "$x"}}, [("wrong_form", "/template_engine/syntax")]),
        ({"prompts": None}, [("missing_key", "/prompts")]),
        ({"prompts": []}, [("wrong_type", "/prompts")]),
        ({"prompts": {"a": 1}}, [("wrong_type", "/prompts/a")]),
        (
            {"prompts": {"a": {"id": "a", "name": "A", "version": "1.0.0"}}},
            [("missing_key", "/prompts/a/system_template")],
        ),
        ({"tools": []}, [("wrong_type", "/tools")]),
        ({"fragments": {"a": 1}}, [("wrong_type", "/fragments/a")]),
        ({"evals": [], "workflow": {}}, [("no_counterpart", "/evals"), ("no_counterpart", "/workflow")]),
        ({"toolz": {}}, [("unknown_key", "/toolz")]),
        ({"metadata": {"domain": "x"}, "compilation": {}}, []),
    ],
)
def test_whatever_is_wrong_the_good_tools_load(changes, expected):
    loaded = read(promptpack(**changes))
    assert told(loaded) == expected
    assert len(loaded.packs) == 1
    assert {tool.name for tool in loaded.tools} == (set() if "tools" in changes else {"get_weather", "ping"})


def test_a_bad_prompt_takes_no_other_with_it():
    bad = {"id": "b", "name": "B", "version": "1.0.0", "system_template": "{{fragment:nope}}"}
    worse = {
        **bad,
        "system_template": "Hi.",
        "variables": [{"name": "n", "type": "integer", "required": False, "default": "x"}],
    }
    good = promptpack()["prompts"]["assistant"]
    loaded = read(promptpack(prompts={"b": bad, "w": worse, "assistant": good}))
    assert told(loaded, "error") == [
        ("unknown_fragment", "/prompts/b/system_template"),
        ("wrong_value", "/prompts/w/variables/0/default"),
    ]
    assert [*loaded.packs[0].prompts] == ["assistant"]


def test_what_means_nothing_here_is_kept():
    extra = {
        "evals": [{"id": "e"}],
        "metadata": {"domain": "x"},
        "compilation": {"schema": "v1"},
        "compositions": {},
    }
    (pack,) = read(promptpack(**extra)).packs
    assert pack.metadata == {"promptpack": {"name": "Weather Desk", **extra}}
    loaded = read(
        prompt(evals=[1], media={"enabled": False}, pipeline={}, tested_models=[], model_overrides={}, kind=1)
    )
    assert loaded.packs[0].prompts["assistant"].metadata["promptpack"].keys() == {
        *("evals", "media", "pipeline", "tested_models", "model_overrides", "kind")
    }
    assert {code for code, _pointer in told(loaded)} == {"no_counterpart", "unknown_key"}


# Prompts.


def test_a_tool_policy_and_parameters_are_ours():
    policy = {"tool_choice": "required", "max_rounds": 3, "max_tool_calls_per_turn": 4, "blocklist": ["ping"]}
    loaded = read(prompt(tool_policy=policy, parameters={"temperature": 0.5, "top_k": None}))
    own = loaded.packs[0].prompts["assistant"]
    assert own.policy == ToolPolicy(
        tool_choice="required", max_rounds=3, max_calls_per_turn=4, deny=("ping",), allow=("get_weather",)
    )
    assert own.settings == {"temperature": 0.5}
    assert loaded.problems == ()


def test_what_is_wrong_with_a_policy_stands_at_its_own_key():
    loaded = read(prompt(tool_policy={"max_tool_calls_per_turn": "many", "max_round": 1}))
    assert told(loaded) == [
        ("unknown_key", "/prompts/assistant/tool_policy/max_round"),
        ("wrong_type", "/prompts/assistant/tool_policy/max_tool_calls_per_turn"),
    ]


def test_what_is_no_choice_no_parameter_and_no_version_is_told():
    loaded = read(
        prompt(
            tool_policy={"tool_choice": "maybe"},
            parameters={"temp": 1, "top_p": 1},
            version="x",
            name="",
        )
    )
    at = "/prompts/assistant"
    assert sorted(told(loaded)) == [
        ("missing_key", f"{at}/name"),
        ("unknown_key", f"{at}/parameters/temp"),
        ("wrong_form", f"{at}/version"),
        ("wrong_value", f"{at}/tool_policy/tool_choice"),
    ]
    assert loaded.packs[0].prompts["assistant"].settings == {"temp": 1, "top_p": 1}
    assert read(prompt(tool_policy={"tool_choice": "get_weather"})).problems == ()


def test_parameters_by_name_are_the_properties_of_a_schema():
    parameters = {"type": {"type": "string", "required": True}, "city": {"type": "txt", "required": False}}
    loaded = read(promptpack(tools={"ping": {**PING, "parameters": parameters}}))
    assert told(loaded) == [
        ("wrong_form", "/tools/ping/parameters"),
        ("invalid_schema", "/tools/ping/parameters/city/type"),
    ]
    del parameters["city"]
    (ping,) = read(promptpack(tools={"ping": {**PING, "parameters": parameters}})).tools
    assert ping.input_schema == {
        "type": "object",
        "properties": {"type": {"type": "string"}},
        "required": ["type"],
    }


def test_validators_that_are_enabled_are_guardrails():
    validators = [
        {"type": "banned_words", "params": {"words": ["x"]}, "enabled": False},
        {"type": "banned_words", "params": {"words": ["y"]}, "message": "No."},
        {"type": "max_length", "params": {"max": 9}, "enabled": True, "fail_on_violation": True},
        {"type": "sentiment", "params": {"least": 0.5}},
    ]
    loaded = read(prompt(validators=validators))
    own = loaded.packs[0].prompts["assistant"]
    assert own.guardrails == (
        Guardrail("banned_words", {"words": ["y"]}, "No.", rewrite=True),
        Guardrail("max_length", {"max": 9}, rewrite=True),
        Guardrail("sentiment", unsupported="unknown assertion type `sentiment`"),
    )
    assert own.metadata["promptpack"]["validators"] == validators
    at = "/prompts/assistant/validators"
    assert told(loaded) == [("no_counterpart", f"{at}/3"), ("no_counterpart", at)]
    assert "sentiment" in loaded.problems[0].message


def test_variables_have_types_values_and_what_is_kept_apart():
    variables = [
        {"name": "role", "type": "string", "required": True, "default": "x", "example": "agent"},
        {
            "name": "city",
            "type": "string",
            "required": False,
            "validation": {"enum": ["Oslo"], "max_length": 4},
        },
        {"name": "n", "type": "int", "required": False, "default": 3, "binding": {"kind": "env"}},
        {"name": "d", "type": "date", "required": False},
        {"name": "role", "type": "string", "required": False},
        {"type": "string"},
    ]
    loaded = read(prompt(variables=variables))
    own = loaded.packs[0].prompts["assistant"]
    assert list(own.variables.values()) == [
        PromptVariable("role", required=True),
        PromptVariable("city", values=("Oslo",)),
        PromptVariable("n", "integer", default=3),
        PromptVariable("d"),
    ]
    assert own.metadata["promptpack"]["variables"] == {
        "role": {"default": "x", "example": "agent"},
        "city": {"validation": {"max_length": 4}},
        "n": {"type": "int", "binding": {"kind": "env"}},
        "d": {"type": "date"},
    }
    at = "/prompts/assistant/variables"
    assert told(loaded) == [
        ("contradiction", f"{at}/0/default"),
        ("no_counterpart", f"{at}/1/validation"),
        ("no_counterpart", f"{at}/2/binding"),
        ("wrong_value", f"{at}/3/type"),
        ("duplicate_name", f"{at}/4"),
        ("wrong_type", f"{at}/5"),
    ]


def test_a_variable_that_nobody_declared_has_to_be_given():
    loaded = read(prompt(system_template="{{role}} {{ where }}"))
    assert told(loaded) == [("undeclared_variable", "/prompts/assistant/system_template")]
    assert loaded.packs[0].prompts["assistant"].render({"where": "here"}) == "kind here"


def test_tools_that_are_not_there_and_wildcards_stop_nothing(tmp_path):
    put(
        tmp_path,
        {
            "x.pack.json": prompt(
                tools=["get_weather", "mcp__srv__*", "other"], tool_policy={"blocklist": ["zap"]}
            )
        },
    )
    with Runtime.open(tmp_path, index=False) as runtime:
        assert {each.severity for each in runtime.problems} == {"warning"}
        at = "/prompts/assistant"
        assert [(each.code, each.pointer) for each in runtime.problems] == [
            ("idle_glob", f"{at}/tools/1"),
            ("idle_glob", f"{at}/tools/2"),
            ("idle_glob", f"{at}/tool_policy/blocklist/0"),
        ]
        assert runtime.packs[0].prompts["assistant"].tools == ("get_weather", "mcp__srv__*", "other")


# Bindings.

BOUND = (
    "get_weather: {mock: {result: {city: '{{ args.city }}'}}, output_schema: {type: object}, timeout: 5s}\n"
)


@pytest.mark.parametrize("name", ["x.bindings.yaml", "x.bindings.yml", "bindings.yaml", "x.bindings.json"])
def test_a_file_beside_it_binds_its_tools(tmp_path, name):
    bound = (
        BOUND
        if not name.endswith("json")
        else {"get_weather": {"mock": {"result": {"city": "{{ args.city }}"}}, "timeout": "5s"}}
    )
    put(tmp_path, {"x.pack.json": promptpack(), name: bound})
    with Runtime.open(tmp_path, index=False) as runtime:
        assert runtime.problems == ()
        assert answer(runtime, "get_weather", {"city": "Oslo"}).value == {"city": "Oslo"}
        assert answer(runtime, "get_weather", {}).outcome is Outcome.INVALID_ARGUMENTS
        tool = runtime.registry["get_weather"]
        assert (tool.mode, tool.timeout, tool.description) == ("mock", 5.0, "Current weather.")
        assert runtime.registry["ping"].mode is None


def test_its_own_file_counts_before_that_of_the_folder(tmp_path):
    files = {
        "x.pack.json": promptpack(),
        "x.bindings.yaml": BOUND,
        "bindings.yaml": "ping: {mock: {result: 1}}\n",
    }
    with Runtime.open(put(tmp_path, files), index=False) as runtime:
        assert (runtime.registry["get_weather"].mode, runtime.registry["ping"].mode) == ("mock", None)


def test_paths_in_bindings_are_relative_to_them(tmp_path):
    files = {"x.pack.json": promptpack(), "bindings.yaml": "ping: {mock: {result_file: data/pong.json}}\n"}
    with Runtime.open(put(tmp_path, {**files, "data/pong.json": '"pong"'}), index=False) as runtime:
        assert answer(runtime, "ping").value == "pong"


def test_one_file_binds_the_tools_of_several(tmp_path):
    files = {
        "a.pack.json": promptpack(tools={"one": PING}),
        "b.pack.json": promptpack(id="b", tools={"two": PING}),
        "bindings.yaml": "one: {mock: {result: 1}}\ntwo: {mock: {result: 2}}\ntow: {mock: {result: 3}}\n",
    }
    loaded = load([put(tmp_path, files)], KINDS)
    assert [(tool.name, tool.mode) for tool in loaded.tools] == [("one", "mock"), ("two", "mock")]
    (problem,) = [problem for problem in loaded.problems if problem.severity == "error"]
    assert (problem.code, problem.line) == ("unknown_tool", 3)


@pytest.mark.parametrize(
    ("bindings", "code", "line", "hint"),
    [
        ("get_wether: {mock: {result: 1}}\n", "unknown_tool", 1, "did you mean `get_weather`?"),
        ("ping:\n  mock: {result: 1}\n  description: x\n", "not_allowed", 3, "remove it here"),
        (
            "ping: {mock: {result: 1}}\nget_weather: 3\n",
            "wrong_type",
            2,
            "for example `{mock: {result: done}}`",
        ),
        ("- ping\n", "wrong_type", 1, ""),
        ("ping:\n  mode: live\n  mock: {result: 1}\n", "binding_missing", 2, None),
        ("ping:\n  timeot: 1s\n  mock: {result: 1}\n", "unknown_key", 2, "did you mean `timeout`?"),
        ("ping: {\n", "invalid_yaml", 2, None),
    ],
)
def test_what_is_wrong_with_bindings_stands_in_their_file(tmp_path, bindings, code, line, hint):
    put(tmp_path, {"x.pack.json": promptpack(), "x.bindings.yaml": bindings})
    loaded = load([tmp_path], KINDS)
    (problem,) = [problem for problem in loaded.problems if problem.severity == "error"]
    assert (problem.code, problem.line) == (code, line)
    assert problem.source.endswith("x.bindings.yaml")
    assert hint is None or problem.hint == hint
    assert {tool.name for tool in loaded.tools} == {"get_weather", "ping"}


def test_bindings_that_bind_nothing_are_a_strange_file(tmp_path):
    loaded = load([put(tmp_path, {"bindings.yaml": "ping: {mock: {result: 1}}\n"})], KINDS)
    assert [(problem.code, problem.severity) for problem in loaded.problems] == [
        ("unrecognised_file", "notice")
    ]


# Reading again.


def test_what_an_index_keeps_is_the_same(tmp_path):
    named_alike = promptpack(id="ping", tools={"get_weather": WEATHER, "ping": PING})
    put(tmp_path, {"x.pack.json": named_alike, "x.bindings.yaml": BOUND})
    loaded = load([tmp_path], KINDS)
    for value, pointer in (
        (loaded.tools[0], "/mock"),
        (loaded.tools[1], "/description"),
        (loaded.packs[0], "/prompts/assistant/system"),
    ):
        back = decode_value(encode_value(value), KINDS)
        assert back == value
        assert back.origin.place(pointer) == value.origin.place(pointer)
    lines = (tmp_path / "x.pack.json").read_text().splitlines()
    at = int(loaded.packs[0].origin.place("/prompts/assistant/system").rpartition(":")[2])
    assert "system_template" in lines[at - 1]
    assert loaded.tools[0].origin.place("/mock").endswith("x.bindings.yaml:1")
    assert loaded.tools[0].origin.place("/description").rpartition(":")[0].endswith("x.pack.json")


def test_bindings_that_appear_are_read(tmp_path):
    put(tmp_path, {"x.pack.json": promptpack()})
    modes = []
    for files in ({}, {"bindings.yaml": "ping: {mock: {result: 1}}\n"}, {"x.bindings.yaml": BOUND}):
        with Runtime.open(put(tmp_path, files)) as runtime:
            modes.append([tool.mode for tool in runtime.registry.values()])
    assert modes == [[None, None], [None, "mock"], ["mock", None]]


def test_a_reload_keeps_the_tools_of_one_that_breaks(tmp_path):
    put(tmp_path, {"x.pack.json": promptpack(), "x.bindings.yaml": BOUND})
    runtime = Runtime.open(tmp_path, index=False)
    (tmp_path / "x.pack.json").write_text("{")
    report = asyncio.run(runtime.reload())
    assert sorted(report.stale) == ["get_weather", "ping"]
    assert [pack.name for pack in runtime.packs] == ["weather-desk"]
    broken = {**WEATHER, "parameters": {"type": "text"}}
    put(tmp_path, {"x.pack.json": promptpack(tools={"get_weather": broken, "ping": PING})})
    report = asyncio.run(runtime.reload())
    assert answer(runtime, "get_weather", {"city": "Oslo"}).value == {"city": "Oslo"}
    assert [pack.name for pack in runtime.packs] == ["weather-desk"]


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "x", "{{x}}", "{{fragment:a}}", "a.b c"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "type", "name"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def paths(value, path=()):
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in parts:
        yield from paths(item, (*path, key))


def put_in(value, path, item):
    if not path:
        return item
    copied = value.copy()
    copied[path[0]] = put_in(value[path[0]], path[1:], item)
    return copied


EVERYTHING = prompt(
    tool_policy={"tool_choice": "auto", "blocklist": ["ping"]},
    parameters={"temperature": 1},
    validators=[{"type": "max_length", "params": {"max": 3}, "enabled": True}],
    variables=[
        {"name": "role", "type": "string", "required": False, "default": "a", "validation": {"enum": ["a"]}}
    ],
    evals=[],
) | {"fragments": {"a": "{{role}}"}, "metadata": {}}


@settings(max_examples=examples(60))
@given(st.data())
def test_whatever_stands_anywhere_nothing_breaks(data):
    """Any part may be anything: the pack and its good tools are read, and each problem has a place."""
    place = data.draw(st.sampled_from([*paths(EVERYTHING)][1:]))
    loaded = read(put_in(EVERYTHING, place, data.draw(JUNK)))
    assert all(problem.line for problem in loaded.problems)
    if place[0] not in {"prompts", "tools", "template_engine"}:
        assert len(loaded.packs) == 1
    if place[0] != "tools":
        assert {tool.name for tool in loaded.tools} == {"get_weather", "ping"}
    for pack in loaded.packs:
        assert decode_value(encode_value(pack.prompts)) == pack.prompts
