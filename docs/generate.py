"""Write the reference pages that follow from the schemas, the table of outcomes and the command line.

Run `python docs/generate.py` after a change of one of them; a test compares the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

from toolcrib.cli.exit_codes import OF_OUTCOME
from toolcrib.cli.group import cli
from toolcrib.core.errors import error_for
from toolcrib.core.model import Outcome
from toolcrib.core.schemas import envelope
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.expressions.functions import FUNCTIONS, Function
from toolcrib.loading.sources import parse

FOLDER = Path(__file__).parent / "reference"

Schema = dict[str, Any]

Row = tuple[str, ...]

GENERATED = "<!-- Written by docs/generate.py. -->\n"

TYPES = {
    "string": "text",
    "number": "number",
    "array": "list",
    "object": "object",
    "null": "null",
    "boolean": "true or false",
}
"""Names of JSON types for readers."""


FUNCTION_NOTE = (
    "Call a function as `value | name(...)` or `name(value, ...)`. The column *arguments* counts the arguments after "
    "the value. Fields are named arguments: `find(id=1)`."
)

BEYOND = (
    "The JSON Schema for editors (`toolcrib schema`) contains every rule that a schema can express, including the syntax of "
    "expressions, URLs, durations and regular expressions. The loader also compares parts of a document with each other and "
    "with other files. It reports duplicate names, unknown references, examples and results that do not match the schemas, and "
    "rules that no call reaches. [What an editor sees](problems.md#what-an-editor-sees) lists both."
)

LIVE_NOTE = (
    "Guides: [call a REST API](../how-to/call-a-rest-api.md), [authentication](../how-to/authenticate.md) and "
    "[pagination](../how-to/paginate.md).\n\n"
    "- Size limits, rate limits, retries and the cache are configured next to the block, in [`limits`](descriptor.md#limits).\n"
    "- Requests are sent, secrets are read and functions of `auth` are imported only in a "
    "[trusted](../how-to/trust-a-project.md) project. A function is imported from an installed distribution, from "
    "`PYTHONPATH` or from that project.\n"
    "- [What toolcrib refuses](../explanation/what-toolcrib-refuses.md) lists what a request cannot do."
)

MCP_NOTE = (
    "Guides: [use a server's tools](../how-to/use-a-servers-tools.md), "
    "[lock a server](../how-to/freeze-a-server.md). Servers are configured under `servers` in [the project](project.md#server). "
    "A server starts only if the project is [trusted](../how-to/trust-a-project.md). "
    "Mode `mcp` requires the extra `mcp`: `pip install 'toolcrib[mcp]'`."
)

A2A_NOTE = (
    "Guide: [call an agent's tools](../how-to/call-an-agents-tools.md). Agents are configured under `agents` in "
    "[the project](project.md#agent). An agent is contacted only if the project is "
    "[trusted](../how-to/trust-a-project.md). Mode `a2a` requires the extra `a2a`: `pip install 'toolcrib[a2a]'`."
)

CLIENT_NOTE = """\
Pass a coroutine function, the *client*, to `Session.call(client=...)`, `Runtime.session(client=...)` or
`Runtime(client=...)`. The first of these that is set is used.

```python
from toolcrib import JSON, ClientCall, Result


async def client(call: ClientCall) -> JSON | Result:
    if call.consent and input(f"{call.message} [y/N] ") != "y":
        return call.decline("not now")
    return {"lat": 59.91, "lon": 10.75}
```

A `ClientCall` has the attributes `tool`, `arguments`, `id`, `consent`, `message`, `categories` and `timeout`. The function
returns one of these:

| return value | effect |
|---|---|
| a JSON value or a `Result` | The result of the call. It is validated against the output schema. |
| `call.decline(reason)` | The person declined. `decline_strategy` determines the result. |
| `call.defer()` | The result is provided later. The call ends `needs_approval` with the code `client_tool_deferred`. |

Without a client, every call is deferred. In a conversation with a model, a deferred call is listed in
`Conversation.pending` under the same `id`, with `consent`, `message`, `categories` and `timeout` in its `details`. The caller
that continues the conversation provides a result, an error or a refusal.

A tool with `requires` exists only in sessions whose client has announced all the capabilities in the list: other sessions do
not list it, and a call ends `unavailable` with the code `capability_missing`. `replaces` and `pre_approved` are independent of
each other: the first hides another tool where this one exists, the second lets an agent call it without asking a person.
A Python program names the capabilities of its client with `Registry.for_client`. `replaced` also contains names of tools that do
not exist here, because another agent may have a tool of that name.

```python
from toolcrib import Client, Runtime


async def session_of(runtime: Runtime, client: Client) -> None:
    tools = runtime.registry.for_client(["client.fs.read_text_file", "client.terminal"])
    print([card.name for card in tools.query()])
    print(tools.replaced)  # name -> the tool that replaces it
    print(tools.pre_approved)  # called without asking
    session = runtime.session(registry=tools, client=client)
    await session.call("read_in_editor", {"path": "/home/ada/notes.txt"})
```"""

PYTHON_NOTE = (
    "Guide: [from a function to a server](../how-to/from-a-function-to-a-server.md). How annotations, docstrings and classes "
    "become tools: [Python tools](python-tools.md). The code is imported only if the project is "
    "[trusted](../how-to/trust-a-project.md). Mode `python` requires the extra `typed`: `pip install 'toolcrib[typed]'`.\n\n"
    "A descriptor without `input_schema` takes the schemas and the description of its function. They are known once the "
    "runtime is open; commands that only list do not import the code, and say so. An `input_schema` of the descriptor must "
    "have the arguments that the function takes."
)

EXEC_NOTE = (
    "Guide: [run a program as a tool](../how-to/run-a-program.md). The program is started only if the project is "
    "[trusted](../how-to/trust-a-project.md). [Outcomes](outcomes.md) lists how its end becomes the outcome of a call. The "
    "key `limits` of the [descriptor](descriptor.md#limits) limits its memory, processor time, open files, written bytes and "
    "processes; `sandbox` of the [project](project.md) decides whether it runs in a sandbox."
)

PACK_NOTE = (
    "The file is named `pack.yaml`, `pack.yml` or `pack.json`. To build, install, rename and require packs, see "
    "[packs](../how-to/packs.md). For the effect of `requires` on trust, see "
    "[packs from elsewhere](../how-to/trust-a-project.md#packs-from-elsewhere)."
)

PROJECT_NOTE = (
    "The file is named `toolcrib.yaml`, `toolcrib.yml` or `toolcrib.json`. toolcrib searches the working directory "
    "and its parent folders. The search ends at a folder that contains `.git`, at the home folder, and below a "
    "world-writable folder such as `/tmp`. For different settings per environment, see [profiles](../how-to/profiles.md). "
    "Programs, hosts and secrets in the file are used only if the project is [trusted](../how-to/trust-a-project.md)."
)

OUTCOMES = (
    "Every call ends with one of these outcomes. `Runtime.call` returns a `Result` for each of them; `raise_for_outcome()` "
    "raises the error class, and `toolcrib call` exits with the exit code."
)


def pages() -> dict[str, str]:
    """File name -> the whole page."""
    blocks = Executors.installed().blocks()
    mock, live, mcp, agent, client, python, program = (
        blocks[mode] for mode in ("mock", "live", "mcp", "a2a", "client", "python", "exec")
    )
    assert isinstance(mock, dict)
    assert isinstance(live, dict)
    assert isinstance(mcp, dict)
    assert isinstance(agent, dict)
    assert isinstance(client, dict)
    assert isinstance(python, dict)
    assert isinstance(program, dict)
    return {
        "descriptor.md": schema_page(
            "Descriptor",
            envelope("descriptor"),
            f"Each mode has its own block: [mock](mock.md), [live](live.md), [mcp](mcp.md), [a2a](a2a.md), [client](client.md), [exec](exec.md) and [python](python-mode.md).\n\n{BEYOND}",
        ),
        "mock.md": schema_page(
            "Mock mode",
            mock,
            "[The mock language](mock-language.md) explains these keys with examples. [Expressions](expressions.md) lists the "
            "names and functions that expressions can use.",
        ),
        "live.md": schema_page("Live mode", live, LIVE_NOTE),
        "mcp.md": schema_page("MCP mode", mcp, MCP_NOTE) + "\n" + written("mcp"),
        "a2a.md": schema_page("A2A mode", agent, A2A_NOTE) + "\n" + written("a2a"),
        "client.md": schema_page("Client mode", client, CLIENT_NOTE),
        "exec.md": schema_page("Exec mode", program, EXEC_NOTE),
        "python-mode.md": schema_page("Python mode", python, PYTHON_NOTE),
        "pack.md": schema_page("Pack", envelope("pack"), PACK_NOTE),
        "project.md": schema_page("Project", envelope("project"), PROJECT_NOTE),
        **scenario_pages(),
        **assertion_pages(),
        "lint.md": lint_page(),
        "diff-verdicts.md": verdict_page(),
        "functions.md": function_page(),
        "outcomes.md": outcome_page(),
        **cli_pages(),
        **message_pages(),
    }


def split_page(name: str, text: str, parts: Mapping[str, Part]) -> dict[str, str]:
    """An overview page and its parts: the sections of one long page, each on the page that its heading belongs to.

    Args:
        name: Name of the overview, such as `scenario.md`. Sections that no part lists stay on it.
        text: The whole page.
        parts: Name of a page -> its title, its first paragraph, and the headings that it takes.
    """
    opening, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    by_heading = {section[3:].partition("\n")[0]: section for section in sections}
    missing = [heading for part in parts.values() for heading in part.headings if heading not in by_heading]
    assert not missing, f"{name} has no section {', '.join(missing)}"
    home = {heading: page for page, part in parts.items() for heading in part.headings}
    written = {
        name: opening + "".join(section for heading, section in by_heading.items() if heading not in home)
    }
    for page, part in parts.items():
        sections = [by_heading[heading] for heading in by_heading if home.get(heading) == page]
        written[page] = f"# {part.title}\n\n{GENERATED}\n{part.opening}\n\n{''.join(sections)}"
    anchors = {heading.lower().replace(".", ""): home.get(heading, name) for heading in by_heading}

    def elsewhere(page: str, anchor: str) -> str:
        target = anchors.get(anchor, page)
        return f"](#{anchor})" if target == page else f"]({target}#{anchor})"

    return {
        page: re.sub(
            r"\]\(#([\w.-]+)\)", lambda link, page=page: elsewhere(page, link[1]), each.rstrip() + "\n"
        )
        for page, each in written.items()
    }


class Part(NamedTuple):
    """One page of a subject that is too long for one page."""

    title: str
    opening: str
    headings: tuple[str, ...]


SCENARIO_PARTS = {
    "scenario-steps.md": Part(
        "Scenario steps and checks",
        "The `steps` and `verify` of a [scenario](scenario.md): calls, parallel calls and time, and the checks after each step and at the end.",
        (
            "clock",
            "step",
            "parallel",
            "advance",
            "repeated",
            "expect",
            "verify",
            "verify.order",
            "verify.budget",
            "made",
            "forbidden",
            "collection",
        ),
    ),
    "scenario-faults.md": Part(
        "Scenario fault injection",
        "The `faults` of a [scenario](scenario.md): timeouts, lost replies, rate limits and corrupted results, and the conditions for injecting them.",
        (
            "fault",
            "trigger",
            "injected_kind",
            "planted",
            "rate_limit",
            "error_object",
            "latency_range",
            "latency_curve",
        ),
    ),
    "scenario-agents.md": Part(
        "Scenario agents",
        "The `agent` of a [scenario](scenario.md): model or script, turns of the conversation, tool policy, assertions and judge.",
        (
            "agent",
            "turn",
            "scripted_reply",
            "scripted_reply.when",
            "scripted_call",
            "assertion",
            "assertion.when",
            "agent_guardrail",
            "client_error",
            "pending_answer",
            "content_part",
            "agent.prices",
            "agent.judge",
            "policy",
        ),
    ),
}


def scenario_pages() -> dict[str, str]:
    """The overview of scenarios, and a page each for steps, faults and agents."""
    page = schema_page("Scenario", envelope("scenario"), written("scenario"))
    return split_page("scenario.md", page, SCENARIO_PARTS)


def lint_page() -> str:
    """The rules of `toolcrib lint`, each with an example, and how they are configured."""
    described = docs_module("lint_page")
    rules = described.RULES.values()
    listed = table(
        ("rule", "severity", "finds", "`--fix`"),
        (
            (f"[`{rule.name}`](#{rule.name})", rule.severity, cell(rule.summary), "yes" if rule.fix else "")
            for rule in rules
        ),
    )
    told = written("lint").replace("{rules}", listed)
    sections = [line for rule in rules for line in described.section(rule)]
    return "\n".join([f"# Lint rules\n\n{GENERATED}\n{told}", *sections])


def verdict_page() -> str:
    """What each verdict of `toolcrib diff` means, by examples."""
    described = docs_module("verdicts_page")
    sections = [line for change in described.CHANGES for line in described.section(change)]
    return "\n".join([f"# Verdicts of toolcrib diff\n\n{GENERATED}\n{written('diff-verdicts')}", *sections])


def docs_module(name: str) -> ModuleType:
    """A module beside this one."""
    spec = spec_from_file_location(name, FOLDER.parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(page: str) -> str:
    """What of a page is written by hand."""
    return (FOLDER / f"{page}.template").read_text(encoding="utf-8")


def schema_page(title: str, schema: Schema, more: str = "") -> str:
    """A page with one table for every object that a schema describes."""
    parts = [f"# {title}\n", GENERATED, f"{schema['description']}\n", *([f"{more}\n"] if more else [])]
    for heading, described in objects(schema, schema):
        parts += [f"## {heading}\n"] if heading else []
        if heading in schema.get("$defs", {}) and "description" in described:
            parts.append(f"{described['description']}\n")
        parts.append(table(COLUMNS, keys(described, schema)) + "\n")
    return "\n".join(parts)


def objects(schema: Schema, root: Schema, place: str = "") -> Iterator[tuple[str, Schema]]:
    """Every object with keys of its own: where it stands, and its schema."""
    if schema.get("properties"):
        yield place, schema
    for name, entry in schema.get("properties", {}).items():
        inner = f"{place}.{name}" if place else name
        yield from objects(entry, root, inner)
        if isinstance(entry.get("items"), dict):
            yield from objects(entry["items"], root, f"{inner}[]")
        for described in entry.get("patternProperties", {}).values():
            yield from objects(described, root, f"{inner}.STATUS" if inner == "errors" else f"{inner}.NAME")
    for name, entry in schema.get("$defs", {}).items():
        yield from objects(entry, root, name)


COLUMNS = ("key", "value", "meaning", "default", "example")


def keys(schema: Schema, root: Schema) -> Iterator[Row]:
    """The keys of one object."""
    for name, entry in schema["properties"].items():
        told = resolved(entry, root)
        default = "required" if name in schema.get("required", ()) else shown(told.get("default"))
        example = shown(next(iter(told.get("examples", ())), None))
        yield f"`{name}`", kind(entry, root), told.get("description", ""), default, example


def table(columns: Row, rows: Iterable[Row]) -> str:
    """A table; its cells are Markdown already."""
    head, *lines = ["| " + " | ".join(cells) + " |" for cells in (columns, *rows)]
    return "\n".join([head, "|" + "---|" * len(columns), *lines])


def resolved(schema: Schema, root: Schema) -> Schema:
    """What a schema says, with what it refers to underneath."""
    if "$ref" not in schema:
        return schema
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {**resolved(target(schema["$ref"], root), root), **own}


def target(reference: str, root: Schema) -> Schema:
    """The schema that a local reference means."""
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        found = found[key]
    return dict(found)


def kind(schema: Schema, root: Schema) -> str:
    """What a value may be, in a few words; an object with keys of its own is a link to its table."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name == "duration":
        return "duration"
    if name == "matcher":
        return "[matcher](matchers.md)"
    if root.get("$defs", {}).get(name, {}).get("properties"):
        return f"[{name}](#{name})"
    if name:
        return kind(target(schema["$ref"], root), root)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "if" in schema:
        first, *others = alternatives(schema, root)
        if others and first in {f"list of {others[0]}", f"list of ({others[0]})"}:
            return f"{others[0]}; or a list of them"
        return " or ".join([first, *others])
    types = schema.get("type", "any value")
    words = [TYPES.get(word, word) for word in ([types] if isinstance(types, str) else types)]
    items = schema.get("items")
    if not isinstance(items, dict) or words != ["list"]:
        return " or ".join(words)
    each = kind(items, root)
    return f"list of ({each})" if " or " in each else f"list of {each}"


def alternatives(schema: Schema, root: Schema) -> Iterator[str]:
    """What a value may be where the schema tells two cases apart."""
    condition = schema["if"]
    yield kind(schema["then"] if "$ref" in schema["then"] else {**condition, **schema["then"]}, root)
    if "else" in schema:
        yield kind(schema["else"], root)
    else:
        yield from (TYPES[word] for word in schema.get("type", ()) if word != condition.get("type"))


def shown(value: Any) -> str:
    """A value as one cell."""
    if value is None:
        return ""
    return f"`{cell(json.dumps(value, ensure_ascii=False))}`"


def function_page() -> str:
    """The functions of expressions, each with an example from another trade."""
    examples = json.loads((FOLDER.parent / "function_examples.json").read_text(encoding="utf-8"))
    rows = [
        (
            f"`{name}`",
            arguments(function),
            cell(function.summary),
            cell(f"`{examples[name]}`"),
            cell(shown(value_of(examples[name]))),
        )
        for name, function in sorted(FUNCTIONS.items())
    ]
    functions = table(("function", "arguments", "returns", "example", "value"), rows)
    return f"# Functions of expressions\n\n{GENERATED}\n{FUNCTION_NOTE}\n\n{functions}\n"


def value_of(example: str) -> Any:
    """What an example gives in a mock's answer, with seed 0."""
    text = json.dumps({"name": "example", "mock": {"result": f"{{{{ {example} }}}}"}})
    executors = Executors.installed()
    with loaded_runtime(parse("example.json", text, executors), executors=executors) as runtime:
        return runtime.call_sync("example").raise_for_outcome().value


ASSERTION_PARTS = {
    "assertions-calls.md": Part(
        "Assertions about tool calls",
        "Types of [assertions](assertions.md) about the tools that an agent called: how often, in which order and with which arguments.",
        (
            "tools_called",
            "tools_not_called",
            "tool_args",
            "tool_args_excluded",
            "tool_calls_with_args",
            "tool_call_count",
            "tool_call_sequence",
            "tool_call_chain",
            "tool_anti_pattern",
            "tool_no_repeat",
            "tool_efficiency",
            "step",
            "anti_pattern",
            "rule",
        ),
    ),
    "assertions-results.md": Part(
        "Assertions about tool results",
        "Types of [assertions](assertions.md) about the results of tools.",
        (
            "no_tool_errors",
            "tool_result_includes",
            "tool_result_matches",
            "tool_result_has_media",
            "tool_result_media_type",
            "tool_exec",
        ),
    ),
    "assertions-text.md": Part(
        "Assertions about text and JSON",
        "Types of [assertions](assertions.md) about the text of the model.",
        (
            "content_includes",
            "content_includes_any",
            "content_excludes",
            "content_matches",
            "min_length",
            "max_length",
            "sentence_count",
            "field_presence",
            "is_valid_json",
            "json_schema",
            "json_path",
        ),
    ),
    "assertions-conversation.md": Part(
        "LLM judge, guardrail and cost assertions",
        "Types of [assertions](assertions.md) that ask a model to judge, compare with expected runs, or check states, guardrails and cost.",
        (
            "llm_judge",
            "llm_judge_session",
            "llm_judge_tool_calls",
            "workflow_tool_access",
            "invariant_fields_preserved",
            "outcome_equivalent",
            "directional",
            "guardrail_triggered",
            "cost_budget",
            "assertion",
        ),
    ),
}


def assertion_pages() -> dict[str, str]:
    """The overview of assertions, and the kinds, each with its parameters and an example, on a page for each group."""
    described = docs_module("assertions_page")
    kinds = described.assertion_kinds()
    listed = table(
        ("type", "passes if", "aliases"),
        (
            (f"[`{name}`](#{name})", cell(schema["description"]), ", ".join(described.other_names(name)))
            for name, schema in kinds.items()
        ),
    )
    sections = [
        described.section(name, table(COLUMNS, keys(schema, schema))) for name, schema in kinds.items()
    ]
    parts = {name: part for schema in kinds.values() for name, part in schema["$defs"].items()}
    objects = [
        f"## {name}\n\n{part['description']}\n\n{table(COLUMNS, keys(part, {'$defs': parts}))}\n"
        for name, part in parts.items()
        if part.get("properties")
    ]
    told = written("assertions").replace("{types}", listed)
    page = "\n".join([f"# Assertions\n\n{GENERATED}\n{told}", *sections, *objects])
    return split_page("assertions.md", page, ASSERTION_PARTS)


FINER = (
    "`error.code` is the outcome or a more specific code: one of the tool, one of the descriptor's `errors`, or one of the following. "
    "If a failed call may have had an effect, `details.may_have_acted` is true."
)

FINER_CODES = (
    ("disabled", "unavailable", "The tool is disabled or hidden in the project or by a profile."),
    ("not_in_toolset", "unavailable", "The tool is not in the active toolset."),
    (
        "capability_missing",
        "unavailable",
        "The client of the session has not announced a capability that the tool needs (`client.requires`).",
    ),
    (
        "client_refused",
        "tool_error",
        "The editor refused what a tool of it needs; the message has its reason.",
    ),
    ("client_gone", "transport_error", "The editor disconnected during the call."),
    ("file_not_found", "tool_error", "The editor has no such file."),
    ("file_changed", "tool_error", "The file has changed since the session read it; nothing was edited."),
    ("no_match", "tool_error", "The text to replace does not occur in the file."),
    ("not_unique", "tool_error", "The text to replace occurs several times in the file."),
    ("nothing_to_edit", "tool_error", "The text to replace is empty, or equal to the new one."),
    (
        "command_failed",
        "tool_error",
        "A command in a terminal of the editor exited with another code than 0.",
    ),
    (
        "command_timeout",
        "tool_error",
        "A command in a terminal of the editor was killed after its `timeout`.",
    ),
    ("unknown_shell", "tool_error", "The session has no command in the background with this ID."),
    ("no_client_method", "unavailable", "The editor of `serve acp` has no method that fulfils the tool."),
    ("replaced", "unavailable", "A tool of the client replaces this one in the session (`client.replaces`)."),
    ("closed", "unavailable", "No tool is offered because the project file has errors."),
    ("not_bound", "unavailable", "The tool cannot be bound in its mode."),
    ("access_rule", "denied", "A rule of `access` refuses the call, or asks a person (`needs_approval`)."),
    ("access_default", "denied", "No rule of `access` decides the call, and `default` is `deny` or `ask`."),
    (
        "missing_grant",
        "denied",
        "The tool needs a capability that neither `access.grants` nor the caller has.",
    ),
    ("host_not_allowed", "denied", "`access.hosts` does not list a host that the tool contacts."),
    (
        "path_not_allowed",
        "denied",
        "An argument, or a file that the code of a tool opens, leads out of the folders of `access.paths`.",
    ),
    ("command_not_allowed", "denied", "`access.commands` does not list a program that the tool starts."),
    (
        "environment_not_allowed",
        "denied",
        "`access.environment` does not list a variable that the tool reads.",
    ),
    ("requires_confirmation", "needs_approval", "Each call of the tool needs approval."),
    (
        "unmet_requirement",
        "unavailable",
        "The platform, a package, a program, another tool or a variable that the tool needs is missing.",
    ),
    (
        "estimate_exceeds_limit",
        "limit_exceeded",
        "The declared estimate of the tool, or all of at least 20 observed calls, exceed a limit of the call. Nothing was called.",
    ),
    ("mock_failed", "internal", "The mock failed; with file and line."),
    (
        "passthrough_not_allowed",
        "denied",
        "The mock forwards the call to another mode, which this run does not allow.",
    ),
    (
        "http_404",
        "tool_error",
        "The API returned this status, and neither `errors` nor the response defines a code.",
    ),
    ("redirected", "tool_error", "The API redirects, and `redirects` does not allow following it."),
    ("auth_failed", "tool_error", "No access token could be obtained."),
    ("not_json", "invalid_result", "The response should be JSON, but is not valid JSON."),
    ("duplicate_key", "invalid_result", "An object in the response contains a key twice."),
    ("bad_text", "invalid_result", "The response is not valid in its charset."),
    ("unsupported_charset", "invalid_result", "The charset of the response is not supported."),
    ("no_items", "invalid_result", "`pagination.items` found no list on a page."),
    ("bad_cursor", "invalid_result", "The next page cannot be requested with the cursor of the response."),
    ("select_failed", "invalid_result", "`select` cannot be evaluated for the response."),
    (
        "untrusted_workspace",
        "denied",
        "The files are not trusted yet, or a pack from elsewhere does not declare the need. Nothing was started or read.",
    ),
    (
        "network_refused",
        "denied",
        "A scenario of `toolcrib run` does not permit the call to reach the network.",
    ),
    ("missing_secret", "unavailable", "A secret or variable `${...}` does not exist."),
    ("unusable_secret", "unavailable", "A secret cannot be sent because it contains a line break."),
    (
        "missing_hook",
        "unavailable",
        "A Python hook of `auth`, `elicitation` or `sampling` cannot be imported.",
    ),
    (
        "client_tool_deferred",
        "needs_approval",
        "The client fulfils the tool (mode `client`), but there is no client, or it deferred the call.",
    ),
    ("consent_declined", "denied", "The person who was asked by a `client` tool declined."),
    ("not_json", "invalid_arguments", "The arguments written by the model are not a JSON object."),
    (
        "tool_not_allowed",
        "denied",
        "The policy of the conversation does not allow the model to call the tool, or not in this round.",
    ),
    (
        "call_required_before",
        "denied",
        "The policy requires a successful call of another tool first (`requires_before`).",
    ),
    ("exclusive_tools", "denied", "A tool that excludes this one was called (`exclusive`)."),
    ("cooldown", "denied", "The tool was called too recently (`cooldown`)."),
    ("rejected", "denied", "The person who was asked to approve the call rejected it."),
    ("approval_expired", "denied", "The call was not approved in time (`approvals.expire_after`)."),
    ("already_answered", "denied", "The approved call was made already."),
    ("tool_changed", "denied", "The tool has changed since the approval was requested."),
    (
        "arguments_unknown",
        "unavailable",
        "The arguments of the approved call hold secrets that this process does not know.",
    ),
    ("approvals_unusable", "unavailable", "The stored approvals are corrupt, newer or not private."),
    (
        "journal_unusable",
        "unavailable",
        "The call must be recorded before it acts, and the journal is corrupt, newer, or cannot be written.",
    ),
    (
        "idempotency_conflict",
        "invalid_arguments",
        "The idempotency key was used for another tool or other arguments.",
    ),
    (
        "result_not_kept",
        "unavailable",
        "The earlier call with the same idempotency key acted, but its result was not kept.",
    ),
    (
        "tool_policy",
        "needs_approval",
        "`ask` of the policy holds the call; in `details.approval` of a pending call.",
    ),
    (
        "budget_reached",
        "limit_exceeded",
        "The call would exceed a budget; `needs_approval` with `on_reach: ask`.",
    ),
    ("invalid_amount", "denied", "The amount of the call for a budget is not a finite number of at least 0."),
    ("answer_refused", "denied", "The provider refused the response that requests the call."),
    ("answer_cut_off", "limit_exceeded", "The response that requests the call was cut off."),
    (
        "max_calls",
        "limit_exceeded",
        "The call exceeds this limit of the policy, or follows a call that does.",
    ),
    ("max_calls_per_minute", "limit_exceeded", "As `max_calls`."),
    ("max_calls_per_tool", "limit_exceeded", "As `max_calls`."),
    ("max_calls_per_turn", "limit_exceeded", "As `max_calls`."),
    ("max_cost", "limit_exceeded", "The conversation has reached this limit of the policy."),
    (
        "max_identical",
        "limit_exceeded",
        "The same call was requested more than this number of times in a row.",
    ),
    ("max_failures", "limit_exceeded", "The tool failed this number of times with the same outcome."),
    ("unknown_handle", "tool_error", "`read_result` refers to a result that was not truncated."),
    ("offset_too_large", "tool_error", "`read_result` refers to an offset beyond the end of a result."),
    ("missing_extra", "unavailable", "A required extra is not installed."),
    (
        "bad_signature",
        "unavailable",
        "The Python function cannot be a tool; the message names the parameter.",
    ),
    ("no_schema", "unavailable", "A type of the Python function has no JSON Schema."),
    ("initialise_failed", "unavailable", "`initialise` of the Python tool raised an exception."),
    (
        "SystemExit",
        "tool_error",
        "A Python tool called `sys.exit`. Every exception of a Python tool has the name of its class as the code.",
    ),
    ("import_failed", "unavailable", "The tool may be in a Python source that cannot be imported."),
    (
        "worker_failed",
        "unavailable",
        "The worker process of the Python tool cannot be started, or ended while it imported the code.",
    ),
    ("worker_died", "unknown_outcome", "The worker process of the Python tool ended during the call."),
    (
        "memory_exceeded",
        "limit_exceeded",
        "The process of the tool, with those that it started, used more than `limits.memory`.",
    ),
    (
        "cpu_time_exceeded",
        "limit_exceeded",
        "The process of the tool, with those that it started, used more than `limits.cpu_time`.",
    ),
    (
        "open_files_exceeded",
        "limit_exceeded",
        "A process of the tool had more files open than `limits.open_files`.",
    ),
    (
        "written_bytes_exceeded",
        "limit_exceeded",
        "The process of the tool, with those that it started, wrote more than `limits.written_bytes`.",
    ),
    ("processes_exceeded", "limit_exceeded", "The tool had more processes than `limits.processes`."),
    ("unsupported_limit", "unavailable", "A limit of processes cannot be measured on this system."),
    (
        "no_program",
        "unavailable",
        "The program of a tool in mode `exec`, or its working directory, does not exist.",
    ),
    (
        "no_sandbox",
        "unavailable",
        "Bubblewrap is not installed, and the project does not have `sandbox: none`.",
    ),
    (
        "path_not_granted",
        "unavailable",
        "The tool declares a path that `access.paths` of the project does not grant.",
    ),
    ("no_such_path", "unavailable", "A path that the tool declares does not exist."),
    (
        "not_started",
        "unavailable",
        "The system did not start the program, or the program ended before it was asked.",
    ),
    ("sandbox_failed", "unavailable", "The sandbox did not start the program."),
    (
        "exit_code",
        "tool_error",
        "The program ended with an exit code that is not one of `ok_exit_codes`; `details` has it, and the end of stderr.",
    ),
    ("terminated_by_signal", "tool_error", "A signal ended the program."),
    (
        "json_rpc_error",
        "tool_error",
        "The program that stays running answered with an error; `details.code` is its code.",
    ),
    (
        "pending",
        "needs_approval",
        "The program reports that the call is pending, in PromptKit's wire format; `details.pending` is what it wrote.",
    ),
    ("invalid_output", "invalid_result", "The program did not write what its wire format requires."),
    ("program_ended", "unknown_outcome", "The program that stays running ended before it answered the call."),
    (
        "missing_dependency",
        "unavailable",
        "The Python tool or its factory needs something that the program does not provide (`provide`).",
    ),
    (
        "unsupported_version",
        "unavailable",
        "The installed version of a package lacks something that toolcrib uses.",
    ),
    ("unknown_server", "unavailable", "No MCP server or A2A agent has this name."),
    (
        "server_down",
        "unavailable",
        "The MCP server cannot be started, or exited before it received the call; or the A2A agent cannot be reached or used.",
    ),
    (
        "unknown_fixed_argument",
        "unavailable",
        "`args` of the block sets an argument that the tool of the server or agent does not accept.",
    ),
    ("unknown_remote_tool", "unavailable", "The MCP server or A2A agent has no such tool."),
    ("ambiguous_server", "unavailable", "Several MCP servers offer the tool, and its descriptor names none."),
    ("task_required", "unavailable", "The MCP server runs this tool only as a task."),
    ("filtered", "denied", "`only` or `except` of the MCP server or A2A agent excludes the tool."),
    ("definition_changed", "denied", "The tool or its MCP server or A2A agent differs from the lock."),
    ("unauthorized", "tool_error", "The MCP server or A2A agent rejected the credentials."),
    ("mcp_invalid_params", "tool_error", "The MCP server rejected the parameters (-32602)."),
    ("mcp_internal_error", "tool_error", "The MCP server failed (-32603)."),
    ("mcp_method_not_found", "tool_error", "The MCP server does not support the method (-32601)."),
    ("mcp_invalid_request", "tool_error", "The MCP server rejected the request (-32600)."),
    ("mcp_parse_error", "tool_error", "The MCP server could not parse the message (-32700)."),
    ("mcp_error", "tool_error", "Another protocol error; `details.number` contains its number."),
    (
        "protocol_violation",
        "invalid_result",
        "The response of the MCP server or A2A agent violates the protocol.",
    ),
    ("missing_result", "invalid_result", "The A2A agent completed its task without a result."),
    (
        "invalid_card_signature",
        "denied",
        "The card of the A2A agent has no signature that a key of `jwks` verifies.",
    ),
    ("task_failed", "tool_error", "The task of the A2A agent failed, without an error code of its own."),
    ("task_rejected", "denied", "The A2A agent rejected the call."),
    ("cancelled_by_agent", "cancelled", "The A2A agent cancelled the task."),
    ("input_required", "needs_approval", "The task of the A2A agent waits for an answer."),
    ("auth_required", "needs_approval", "The task of the A2A agent waits for an authentication."),
    ("task_not_ended", "unavailable", "The A2A agent still works on the task."),
    ("task_not_found", "unknown_outcome", "The A2A agent no longer knows the task."),
    ("number_too_large", "invalid_arguments", "An argument is too large a number for A2A."),
    ("a2a_parse_error", "tool_error", "The A2A agent could not parse the message (-32700)."),
    ("a2a_invalid_request", "tool_error", "The A2A agent rejected the request (-32600)."),
    ("a2a_method_not_found", "tool_error", "The A2A agent does not support the method (-32601)."),
    ("a2a_invalid_params", "tool_error", "The A2A agent rejected the parameters (-32602)."),
    ("a2a_internal_error", "tool_error", "The A2A agent failed (-32603)."),
    ("a2a_task_not_cancelable", "tool_error", "The task of the A2A agent cannot be cancelled (-32002)."),
    ("a2a_push_not_supported", "tool_error", "The A2A agent sends no push notifications (-32003)."),
    ("a2a_unsupported_operation", "tool_error", "The A2A agent does not support the operation (-32004)."),
    (
        "a2a_content_type_not_supported",
        "tool_error",
        "The A2A agent does not support the media type (-32005).",
    ),
    (
        "a2a_invalid_agent_response",
        "invalid_result",
        "The A2A agent reports a response that is not valid (-32006).",
    ),
    ("a2a_extended_card_not_configured", "tool_error", "The A2A agent has no extended card (-32007)."),
    (
        "a2a_extension_required",
        "unavailable",
        "The A2A agent requires an extension that toolcrib does not support (-32008).",
    ),
    (
        "a2a_version_not_supported",
        "unavailable",
        "The A2A agent does not support the version of the protocol (-32009).",
    ),
    ("a2a_error", "tool_error", "Another error of the A2A protocol."),
    (
        "idle_timeout",
        "timeout",
        "The MCP server sent nothing about the call for longer than `timeouts.idle`.",
    ),
    ("too_large", "limit_exceeded", "The response of the MCP server is larger than `limits.output_size`."),
    (
        "unidentified_response",
        "unknown_outcome",
        "A response of the MCP server is larger than `limits.output_size`, and which of the waiting calls it answers is unknown.",
    ),
    ("session_over", "unknown_outcome", "The MCP server no longer knows the session."),
    (
        "http_status",
        "unknown_outcome",
        "The MCP server or A2A agent returned a status that the protocol does not define.",
    ),
    ("host_not_named", "denied", "Neither `url` nor `hosts` contains the host."),
    ("address_refused", "denied", "The address is not public, and `egress.allow` does not list it."),
    ("bad_address", "denied", "The target is not a valid host and port."),
    ("link_refused", "denied", "The link to the next page leads to another origin."),
    ("read_timeout", "timeout", "The server sent nothing for longer than `timeouts.read`."),
    ("rate_limited", "limit_exceeded", "The rate limit does not allow a call before the deadline."),
    ("too_many_items", "limit_exceeded", "The result has more items than `limits.output_items`."),
    ("response_too_large", "limit_exceeded", "The response is larger than `limits.output_size`."),
    ("headers_too_large", "limit_exceeded", "The headers of the response exceed 64 KiB."),
    (
        "result_too_large",
        "limit_exceeded",
        "The result is larger than `limits.output_size`, or exceeds `response.budget` and cannot be shortened.",
    ),
    (
        "arguments_too_large",
        "limit_exceeded",
        "The arguments are larger than `limits.input_size`. Nothing was called.",
    ),
    ("result_too_deep", "limit_exceeded", "The result is nested too deep to be sent by `serve mcp`."),
    ("server_ending", "unavailable", "`serve mcp` is shutting down; nothing was called."),
    (
        "runtime_closed",
        "cancelled",
        "The runtime was closed, and the call did not end in time (`Runtime.aclose(drain=...)`).",
    ),
    ("cancelled_by_operator", "cancelled", "`Runtime.cancel` ended the call."),
    ("server_ended", "cancelled", "`serve mcp` shut down before the call finished."),
    ("session_needed", "invalid_arguments", "With `serve mcp --sessions handle`, the call names no session."),
    (
        "unknown_session",
        "invalid_arguments",
        "The session of the call does not exist, has ended, or belongs to the client of another token.",
    ),
    (
        "two_sessions",
        "invalid_arguments",
        "The argument `session` and `_meta` of the call name different sessions.",
    ),
    (
        "too_many_sessions",
        "overloaded",
        "The client of `serve mcp`, or all clients together, have too many open sessions.",
    ),
    ("queue_full", "overloaded", "Too many calls are waiting."),
    ("circuit_open", "overloaded", "The origin failed too often in a row."),
    ("connect_failed", "transport_error", "No connection could be established."),
    ("connect_timeout", "transport_error", "No connection was established within `timeouts.connect`."),
    ("tls_failed", "transport_error", "The certificate is not valid, or the TLS handshake failed."),
    ("write_failed", "transport_error", "The request could not be sent completely."),
    ("connection_broken", "transport_error", "The connection closed before the response was complete."),
    ("bad_response", "transport_error", "The response is not valid HTTP."),
    ("unsupported_coding", "transport_error", "The response uses an unsupported content coding."),
    ("bad_request", "transport_error", "The request cannot be written as HTTP; nothing was sent."),
)
"""The codes of calls that reach out, the outcome that they come under, and when."""

FAULTS = "Faults injected by scenarios and mocks result in these codes. `meta.fault` contains the kind of the fault and its name in the scenario."

FAULT_CODES = (
    ("disconnected", "`transport_error`", "The connection closed before the call arrived."),
    (
        "reply_lost",
        "`transport_error`; `unknown_outcome` of a call that can't be repeated",
        "The tool acted, but its reply was lost.",
    ),
    ("truncated", "as `reply_lost`", "The tool acted, but its reply was cut off."),
    (
        "rate_limited",
        "`tool_error`",
        "The rate limit allows no more attempts; `details` contains `status` 429 and `retry_after` in seconds.",
    ),
    (
        "fault_failed",
        "`internal`",
        "The fault could not be applied to this result, or one of its expressions failed; with file and line.",
    ),
)
"""The codes of calls to which a fault happened, as `FINER_CODES`."""


def arguments(function: Function) -> str:
    """How many arguments a function takes after the value, and whether they are named fields."""
    if function.most == 0:
        return "none; no value"
    least, most = function.least - 1, None if function.most is None else function.most - 1
    if function.fields == "must":
        return "fields"
    count = f"{least} or more" if most is None else f"{least}" if least == most else f"{least} to {most}"
    return f"{count}, or fields" if function.fields == "either" else count


def outcome_page() -> str:
    """The closed set of outcomes, and the finer codes."""
    outcomes = table(("outcome", "when", "error class", "exit code"), map(outcome_row, Outcome))
    finer = [(f"`{code}`", f"`{outcome}`", when) for code, outcome, when in FINER_CODES]
    codes = table(("code", "outcome", "when"), finer)
    injected = [(f"`{code}`", outcome, when) for code, outcome, when in FAULT_CODES]
    faults = table(("code", "outcome", "when"), injected)
    told = f"{OUTCOMES}\n\n{outcomes}\n\n{FINER}\n\n{codes}\n\n{FAULTS}\n\n{faults}"
    return f"# Outcomes\n\n{GENERATED}\n{told}\n"


def outcome_row(outcome: Outcome) -> Row:
    """One outcome: when a call has it, and what it becomes."""
    cls = None if outcome is Outcome.OK else error_for(outcome)
    when = "The tool returned a result that matches its schema." if cls is None else first_line(cls)
    name = "" if cls is None else f"`{cls.__name__}`"
    return f"`{outcome}`", when, name, str(OF_OUTCOME[outcome])


def first_line(cls: type) -> str:
    """The first line of a class's docstring."""
    return cell(re.sub(r"\s+", " ", (cls.__doc__ or "").partition("\n\n")[0]))


MESSAGES = """\
Every problem, failed call and error has a stable code. The pages below list the messages of each code as they are in the
source, with fields in braces, and an example that a test has produced. Hints are listed with the messages. Use the search to find
a message that you have seen; compare codes in programs, since [texts may change](../explanation/versioning.md#not-stable).

| page | lists | meaning of the codes |
|---|---|---|
| [Messages of problems](messages-problems.md) | what `toolcrib validate` reports about documents | [problems](problems.md) |
| [Messages of calls](messages-calls.md) | `error.message` of a result that is not `ok` | [outcomes](outcomes.md) |
| [Messages of errors](messages-errors.md) | exceptions of the Python API, and errors of the command line | [errors](python-calls.md#errors) |
"""

MESSAGE_PAGES = {
    "messages-problems.md": ("Messages of problems", ("problem",)),
    "messages-calls.md": ("Messages of calls", ("outcome",)),
    "messages-errors.md": ("Messages of errors", ("error", "command line")),
}


def message_pages() -> dict[str, str]:
    """The inventory of messages: an overview, and a page for each kind of code."""
    listed = docs_module("messages").inventory()
    written_pages = {"messages.md": f"# Messages\n\n{GENERATED}\n{MESSAGES}"}
    for name, (title, kinds) in MESSAGE_PAGES.items():
        sections = [
            f"## `{code}`\n\n{table(('message', 'example'), ((literal(m.template), literal(m.example)) for m in group))}\n"
            for code, group in groupby((m for m in listed if m.kind in kinds), key=lambda m: m.code)
        ]
        written_pages[name] = "\n".join([f"# {title}\n\n{GENERATED}", *sections])
    return written_pages


def literal(text: str) -> str:
    """A text as code in one cell, with the backticks that it holds."""
    fence = "``" if "`" in text else "`"
    shown = cell(re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", text)).strip()
    return f"{fence} {shown} {fence}" if "`" in text else f"{fence}{shown}{fence}" if shown else ""


def cli_pages() -> dict[str, str]:
    """The overview of the command line, and a page for each verb: what click knows, then what `cli.template` adds."""
    opening, *sections = re.split(r"^# toolcrib ", written("cli"), flags=re.MULTILINE)
    notes = {name: text for name, _, text in (section.partition("\n\n") for section in sections)}
    with click.Context(cli, info_name="toolcrib", **cli.context_settings) as ctx:
        verbs = {name: verb for name in cli.list_commands(ctx) if (verb := cli.get_command(ctx, name))}
        title, _, rest = opening.format(
            verbs=table(("command", "what it does"), map(verb_row, verbs.items())),
            options=option_table(cli, ctx),
        ).partition("\n")
        written_pages = {"cli.md": f"{title}\n\n{GENERATED}{rest.rstrip()}\n"}
        for name, verb in verbs.items():
            title, _, rest = "".join(verb_section(verb, ctx, name, notes.pop(name, ""))).partition("\n")
            written_pages[f"cli-{name}.md"] = f"{title}\n\n{GENERATED}{rest.rstrip()}\n"
    assert not notes, f"`cli.template` has sections for unknown commands: {', '.join(notes)}"
    return written_pages


def verb_row(named: tuple[str, click.Command]) -> Row:
    """One verb, with a link to its page."""
    name, verb = named
    return f"[`{name}`](cli-{name}.md)", cell((verb.help or "").partition("\n")[0])


def verb_section(verb: click.Command, parent: click.Context, name: str, note: str = "") -> Iterator[str]:
    """One verb: how it is written, its help, its options, the note; then the verbs below it."""
    with click.Context(verb, info_name=name, parent=parent) as ctx:
        below = commands_below(verb, ctx)
        default = next((command for command in below.values() if command.hidden), None)
        own = verb if default is None else default
        forms = [f"{ctx.command_path} COMMAND ..."] if below else []
        if own is default or not below:
            forms.insert(0, " ".join([ctx.command_path, *usages(own, ctx)]))
        yield f"{'#' * (len(ctx.command_path.split()) - 1)} {ctx.command_path}\n\n"
        yield "\n".join(["```text", *forms, f"```\n\n{told(verb)}\n\n"])
        options = option_table(own, ctx)
        yield f"{options}\n\n" if options else ""
        yield f"{note.strip()}\n\n" if note else ""
        for inner, command in below.items():
            if command is not default:
                yield from verb_section(command, ctx, inner)


def commands_below(verb: click.Command, ctx: click.Context) -> dict[str, click.Command]:
    """The verbs below a verb, by name. A hidden one is what runs where none is named."""
    if not isinstance(verb, click.Group):
        return {}
    return {name: found for name in verb.list_commands(ctx) if (found := verb.get_command(ctx, name))}


def told(verb: click.Command) -> str:
    """The help of a verb, as paragraphs."""
    return cleandoc(verb.help or "").replace("\b\n", "")


MANY = 6
"""More options than this are left to the table."""


def usages(verb: click.Command, ctx: click.Context) -> Iterator[str]:
    """What stands behind a verb: its arguments, and its options unless they are many."""
    yield from (param.make_metavar(ctx) for param in verb.params if isinstance(param, click.Argument))
    options = own_options(verb, ctx)
    if len(options) > MANY:
        yield "[OPTION]..."
    else:
        yield from (f"[{spelt(option, ctx, '|')}]{'...' * option.multiple}" for option in options)


def own_options(verb: click.Command, ctx: click.Context) -> list[click.Option]:
    """The options of a verb but for those that may stand before it as well, and `--help`."""
    said_before = {param.name for param in ctx.find_root().command.params} if ctx.parent else set()
    return [
        param
        for param in verb.params
        if isinstance(param, click.Option) and not param.hidden and param.name not in said_before
    ]


def spelt(option: click.Option, ctx: click.Context, between: str) -> str:
    """An option with what it takes: `--tag TAG`."""
    names = between.join([*option.opts, *option.secondary_opts])
    return names if option.is_flag or option.count else f"{names} {option.make_metavar(ctx)}"


def option_table(verb: click.Command, ctx: click.Context) -> str:
    """The options of a verb with their help; empty where it has none of its own."""
    rows = [
        (f"`{cell(spelt(option, ctx, ' / '))}`", f"{cell(option.help or '')}{default_of(option)}")
        for option in own_options(verb, ctx)
    ]
    return table(("option", "meaning"), rows) if rows else ""


def default_of(option: click.Option) -> str:
    """What an option is taken for that is not given, where its help shows that."""
    return f" Default: `{option.default}`." if option.show_default else ""


def cell(text: str) -> str:
    """A text that can stand in a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
