"""Capabilities, platforms, dependencies, questions and estimates: what loading refuses, and what an environment lacks."""

from __future__ import annotations

import sys

import pytest

from toolcrib import Descriptor, Registry
from toolcrib.core.model import Dependencies
from toolcrib.executors import Executors
from toolcrib.loading.projects import Project
from toolcrib.loading.sources import parse
from toolcrib.loading.tool_requirements import EnvironmentCheck, current_platform, settle_capabilities
from toolcrib.registry.catalog import card_of

KINDS = Executors.installed()
MOCK = "name: tool\ndescription: d\nmock: {result: 1}\n"
LIVE = "name: tool\ndescription: d\nlive: {url: 'https://api.example.com/v1'}\n"


def loaded(text):
    return parse("a.tool.yaml", text, KINDS)


def tool_of(text):
    found = loaded(text)
    assert [str(each) for each in found.problems] == []
    return found.tools[0]


def problems_of(text):
    return [(each.code, each.pointer, each.line, each.message, each.hint) for each in loaded(text).problems]


def test_a_near_miss_of_a_capability_is_suggested():
    assert problems_of(MOCK + "capabilities: [network, netwrok]\n") == [
        (
            "unknown_capability",
            "/capabilities/1",
            4,
            "unknown capability `netwrok`",
            "did you mean `network`?",
        )
    ]


def test_a_name_of_your_own_needs_a_colon():
    assert tool_of(MOCK + "permissions: ['crm:write']\n").capabilities == ("crm:write",)
    ((code, pointer, _line, message, hint),) = problems_of(MOCK + "permissions: [crm]\n")
    assert (code, pointer, message) == ("unknown_capability", "/permissions/0", "unknown capability `crm`")
    assert hint.endswith("a custom name has a colon: `crm:write`")


def test_the_two_names_of_the_key_exclude_each_other():
    ((code, pointer, line, _message, hint),) = problems_of(
        MOCK + "capabilities: []\npermissions: [network]\n"
    )
    assert (code, pointer, line, hint) == (
        "duplicate_key",
        "/permissions",
        5,
        "move its entries to `capabilities`",
    )


def test_a_tool_that_declares_less_than_its_block_needs_is_refused():
    assert problems_of(LIVE + "capabilities: ['crm:write']\n") == [
        (
            "undeclared_capability",
            "/capabilities",
            4,
            "the block `live` needs `network`, which `capabilities` does not declare",
            "write `capabilities: [crm:write, network]`, or remove the key to derive it from the blocks",
        )
    ]
    assert tool_of(LIVE + "capabilities: [network, 'crm:write']\n").capabilities == ("network", "crm:write")


def test_a_tool_that_declares_nothing_has_what_its_blocks_need():
    assert tool_of(LIVE).capabilities == ("network",)
    assert tool_of(MOCK).capabilities == ()
    assert tool_of("name: tool\npython: {call: 'a.b:c'}\n").capabilities == ()


@pytest.mark.parametrize(
    ("server", "needed"), [("command: uvx", "process"), ("url: 'https://mcp.example.com/mcp'", "network")]
)
def test_what_an_mcp_block_needs_depends_on_its_server(server, needed):
    text = "name: tool\ndescription: d\ninput_schema: {type: object}\nmcp: {server: s, tool: t}\n"
    project = f"project: p\nservers: {{s: {{{server}}}}}\n"
    servers = _servers_of(project)
    tools, problems = settle_capabilities([tool_of(text)], KINDS, servers)
    assert (tools[0].capabilities, problems) == ((needed,), [])
    declared = tool_of(text + "capabilities: [file_read]\n")
    tools, problems = settle_capabilities([declared], KINDS, servers)
    assert tools == []
    assert [(each.code, each.source, each.line) for each in problems] == [
        ("undeclared_capability", "a.tool.yaml", 5)
    ]
    assert f"needs `{needed}`" in problems[0].message


def _servers_of(text):
    return Project.parse("toolcrib.yaml", text, kinds=KINDS).servers


@pytest.mark.parametrize("text", ["pandas >>= 2", "pandas @ https://example.com/p.whl", "-r x"])
def test_a_package_is_a_name_with_versions(text):
    ((code, pointer, line, _message, hint),) = problems_of(MOCK + f"dependencies: {{packages: ['{text}']}}\n")
    assert (code, pointer, line) == ("wrong_form", "/dependencies/packages/0", 4)
    assert hint == "write `pandas`, `pandas>=2.1` or `pandas>=2.1,<3`"


def test_a_tool_cannot_depend_on_itself():
    ((code, pointer, *_rest),) = problems_of(MOCK + "dependencies: {tools: [tool]}\n")
    assert (code, pointer) == ("endless_dependency", "/dependencies/tools/0")


def test_an_estimate_over_a_limit_of_the_same_document_is_refused():
    text = MOCK + "timeout: 5s\nlimits: {output_size: 1KiB}\nestimate: {duration: 6s, output: 2KiB}\n"
    assert [(code, pointer, line) for code, pointer, line, *_rest in problems_of(text)] == [
        ("estimate_exceeds_limit", "/estimate/duration", 6),
        ("estimate_exceeds_limit", "/estimate/output", 6),
    ]
    # A project may still raise the default timeout of 30s.
    assert tool_of(MOCK + "estimate: {duration: 1m}\n").estimate.duration == 60.0


def test_a_question_reads_arguments_that_exist():
    text = "name: tool\ninput_schema: {type: object, properties: {amount: {type: number}}, additionalProperties: false}\n"
    good = "mock: {result: 1}\nrequires_confirmation: 'Pay {{ args.amount }}?'\n"
    assert tool_of(text + good).requires_confirmation == "Pay {{ args.amount }}?"
    ((_code, pointer, line, message, _hint),) = problems_of(text + good.replace("args.amount", "args.amuont"))
    assert (pointer, line) == ("/requires_confirmation", 4)
    assert "amuont" in message


def test_metadata_of_a_parameter_is_kept_in_its_schema():
    text = "name: tool\nparameters: [{name: a, type: string, metadata: {unit: kg}}]\nmock: {result: 1}\n"
    assert tool_of(text).input_schema["properties"]["a"] == {"type": "string", "x-metadata": {"unit": "kg"}}


def test_platforms_have_the_names_of_descriptors():
    assert [current_platform(name) for name in ("linux", "darwin", "win32", "freebsd14")] == [
        "linux",
        "macos",
        "windows",
        "freebsd14",
    ]


def check(tool, why=lambda _name: "", **environment):
    return EnvironmentCheck(why, platform="linux", environment=environment).unmet(card_of(tool))


def needing(**named):
    return Descriptor(
        name="t", dependencies=Dependencies(**{key: tuple(item) for key, item in named.items()})
    )


def test_another_platform_is_the_reason():
    tool = Descriptor(name="t", platforms=("windows", "macos"))
    assert check(tool) == "`t` runs on windows and macos only, and this is linux (<memory>:1)"
    assert check(tool._replace(platforms=("linux", "macos"))) == ""


def test_a_missing_package_or_another_version_is_the_reason():
    assert check(needing(packages=["pytest>=1"])) == ""
    assert check(needing(packages=["no-such-package-x>=1"])) == (
        "`t` needs the Python package `no-such-package-x>=1`, which is not installed; "
        "run `pip install 'no-such-package-x>=1'` (<memory>:1)"
    )
    assert "`pytest>=9999`, but version " in check(needing(packages=["pytest>=9999"]))
    assert check(needing(packages=["no-such-package-x; python_version < '3'"])) == ""


def test_a_missing_program_is_the_reason(tmp_path):
    program = tmp_path / "there"
    program.write_text("")
    program.chmod(0o755)
    assert check(needing(commands=["there"]), PATH=str(tmp_path)) == ""
    assert check(needing(commands=["absent"]), PATH=str(tmp_path)) == (
        "`t` needs the program `absent`, which is not in the search path; install it (<memory>:1)"
    )


def test_a_missing_variable_is_the_reason():
    assert check(needing(environment=["KEY"]), KEY="") == ""
    assert check(needing(environment=["KEY"])) == (
        "`t` needs the environment variable `KEY`, which is not set; set it (<memory>:1)"
    )


def test_another_tool_that_is_unavailable_is_the_reason():
    assert check(needing(tools=["other"])) == ""
    assert check(needing(tools=["other"]), why=lambda name: f"`{name}` is down") == (
        "`t` needs the tool `other`: `other` is down (<memory>:1)"
    )


def test_tools_that_need_each_other_are_available():
    cards = Registry([_pair("a", "b"), _pair("b", "a")]).cards
    look = EnvironmentCheck(lambda name: look.unmet(cards[name]), platform=sys.platform, environment={})
    assert look.unmet(cards["a"]) == ""


def _pair(name, other):
    return Descriptor(name=name, dependencies=Dependencies(tools=(other,)))


def test_the_mark_of_a_path_says_what_the_tool_does_with_it():
    text = (
        "name: tool\nmock: {result: 1}\n"
        "input_schema: {type: object, properties: {files: {type: array, items: {x-path: open}}}}\n"
    )
    ((code, pointer, line, message, _hint),) = problems_of(text)
    assert (code, pointer, line) == ("not_allowed", "/input_schema/properties/files/items/x-path", 3)
    assert message == '`x-path` must be `read` or `write`, got "open"'


@pytest.mark.parametrize(
    ("entries", "pointer", "message"),
    [
        ("{type: array, x-plan: yes}", "/input_schema/properties/e/x-plan", '`x-plan` must be true, got "yes"'),
        ("{type: array, x-plan: true}", "/input_schema/properties/e", "`e` is marked `x-plan` and is not a list of objects that require `content`"),
        (
            "{type: array, x-plan: true, items: {required: [content], properties: {content: {type: string}, status: {type: string}}}}",
            "/input_schema/properties/e/items/properties/status",
            "`status` of the entries of a plan has other values than pending, in_progress, completed",
        ),
        (
            "{type: array, x-plan: true, items: {required: [content], properties: {content: {type: string}, priority: {enum: [top]}}}}",
            "/input_schema/properties/e/items/properties/priority",
            "`priority` of the entries of a plan has other values than high, medium, low",
        ),
    ],
)  # fmt: skip
def test_the_argument_that_is_a_plan_has_the_form_that_front_ends_understand(entries, pointer, message):
    found = problems_of(
        f"name: tool\nmock: {{result: 1}}\ninput_schema: {{type: object, properties: {{e: {entries}}}}}\n"
    )
    assert ("not_allowed", pointer, 3, message) in [each[:4] for each in found]
