"""Rules about tools as a whole: names, effects, results, and what they cost a model together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcrib.core.text import compact
from toolcrib.formats.providers import DIALECTS, declare
from toolcrib.lint.rule import LintedTool, LintedTools, LintFinding, LintRule, each_tool
from toolcrib.lint.words import name_words, word_set

_DESTROYING: Final = word_set("delete destroy drop purge wipe erase truncate terminate uninstall kill")
_CHANGING: Final = _DESTROYING | word_set(
    "create update insert remove add set write send post put patch cancel book buy pay edit rename move upload publish "
    "approve reject register transfer refund"
)
_READING: Final = word_set(
    "get list search find read show count describe lookup fetch retrieve query browse view"
)
_GENERIC: Final = word_set(
    "action api call do exec execute fn func function go handle handler helper invoke main perform process run task "
    "tool test util utils work"
)


def _names(each: LintedTool) -> Iterator[LintFinding]:
    name = each.tool.name
    refusing = [dialect.name for dialect in DIALECTS.values() if dialect.names.fullmatch(name) is None]
    if refusing:
        every = len(refusing) == len(DIALECTS)
        listed = "every provider refuses" if every else f"{', '.join(refusing)} refuses"
        yield LintFinding(
            f"{listed} the name `{name}`; a model there sees another one",
            pointer="/name",
            hint="use at most 64 letters, digits, `_` and `-`, and begin with a letter",
        )


def _generic(each: LintedTool) -> Iterator[LintFinding]:
    words = [word for word in name_words(each.name) if not word.isdigit()]
    if words and _GENERIC.issuperset(words):
        yield LintFinding(
            f"the name `{each.name}` does not say what the tool does",
            pointer="/name",
            hint="name it with a verb and what it is about, such as `run_report`",
        )


def _unconfirmed(linted: LintedTools) -> Iterator[LintFinding]:
    for each in linted.tools:
        tool, says = each.tool, each.tool.annotations
        verb = _verb(each)
        declared = each.written("/annotations/destructive") is True
        # Who writes `requires_confirmation: false` has decided.
        decided = tool.requires_confirmation or "requires_confirmation" in tool.origin.written
        destroys = not says.read_only and says.destructive and (verb in _DESTROYING or declared)
        if destroys and not decided and not _asks_itself(tool.bindings) and not linted.asks(tool):
            why = "is declared as destructive" if declared else f"destroys something, as `{verb}` says"
            yield LintFinding(
                f"`{tool.name}` {why}, and no call of it needs approval",
                tool=tool,
                hint="add `requires_confirmation`, also `false` if somebody else asks, or a rule `ask` of the project",
            )


def _asks_itself(bindings: Mapping[str, Any]) -> bool:
    """Whether the program that fulfils the calls asks a person."""
    block = bindings.get("client")
    return isinstance(block, dict) and not block.get("pre_approved")


def _verb(each: LintedTool) -> str:
    return next(iter(name_words(each.name)), "")


def _method(each: LintedTool) -> str:
    """The method of the request that a call makes; empty if it makes none."""
    block = each.tool.bindings.get("live")
    return str(block.get("method", "GET")).upper() if isinstance(block, dict) else ""


def _effects(each: LintedTool) -> Iterator[LintFinding]:
    verb, method = _verb(each), _method(each)
    if each.tool.annotations.read_only and (verb in _CHANGING or method in {"PUT", "PATCH", "DELETE"}):
        why = f"its name says `{verb}`" if verb in _CHANGING else f"its request is a {method}"
        yield LintFinding(
            f"`{each.tool.name}` is declared as read-only, but {why}",
            pointer="/annotations",
            hint="remove `read_only`: such calls are repeated, cached and made without asking",
        )


def _reading(each: LintedTool) -> Iterator[LintFinding]:
    if (
        not each.tool.annotations.read_only
        and _verb(each) in _READING
        and _method(each) in {"", "GET", "HEAD"}
    ):
        yield LintFinding(
            f"`{each.tool.name}` seems to only read, but is not declared as `read_only`",
            hint="add `annotations: {read_only: true}`, so that calls can be repeated, cached and made without asking",
        )


def _results(each: LintedTool) -> Iterator[LintFinding]:
    # Results of content parts, such as images, have no schema.
    if each.tool.output_schema is None and not ({*_keys(each.tool.bindings)} & {"content"}):
        yield LintFinding(
            f"`{each.tool.name}` has no `output_schema`; neither a program nor a mock is checked against one",
            hint="describe the result",
        )


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def _examples(linted: LintedTools) -> Iterator[LintFinding]:
    for each in linted.tools:
        if not each.tool.examples and each.tool.name not in linted.called:
            yield LintFinding(
                f"`{each.tool.name}` has no `examples`, and no scenario calls it; nothing shows a call that works",
                tool=each.tool,
                hint=f"`toolcrib call {each.tool.name} ... --save-example` adds one",
            )


def _deprecated(each: LintedTool) -> Iterator[LintFinding]:
    if each.tool.deprecated is True:
        yield LintFinding(
            f"`{each.tool.name}` is deprecated, and nothing says what to use instead",
            pointer="/deprecated",
            hint="write the name of the other tool: `deprecated: use find_order`",
        )


def _tokens(linted: LintedTools) -> Iterator[LintFinding]:
    budget = linted.settings.budget
    declared = declare([each.tool for each in linted.tools], "openai")
    tokens = {one.tool: linted.count_tokens(compact(dict(one.definition))) for one in declared}
    about = "" if linted.exact else "about "
    for each in linted.tools:
        cost = tokens[each.tool.name]
        if cost > budget.tool_tokens:
            yield LintFinding(
                f"the declaration of `{each.tool.name}` takes {about}{cost:,} tokens of each request; "
                f"the budget of a tool is {budget.tool_tokens:,}",
                tool=each.tool,
                hint="shorten descriptions, or divide the tool; `lint.budget.tool_tokens` changes the budget",
            )
    total = sum(cost for name, cost in tokens.items() if name in linted.offered)
    if total > budget.total_tokens:
        yield LintFinding(
            f"the declarations of all {len(linted.offered)} tools take {about}{total:,} tokens of each request; "
            f"the budget is {budget.total_tokens:,}",
            hint="offer a toolset; `toolcrib cost` shows what costs most; `lint.budget.total_tokens` changes the budget",
        )


def _too_many(linted: LintedTools) -> Iterator[LintFinding]:
    most = linted.settings.budget.tools
    if len(linted.offered) > most:
        yield LintFinding(
            f"{len(linted.offered)} tools are offered together; the most are {most}",
            hint="offer a toolset; `lint.budget.tools` changes the number",
        )


RULES: Final = (
    LintRule(
        "name-refused",
        "warning",
        "A provider refuses the name of a tool.",
        "toolcrib gives the tool an alias there, which no description knows, and which logs of the provider show.",
        each_tool(_names),
        bad="""\
name: orders.find
description: Find an order by its number.
annotations: {read_only: true}
""",
        good="""\
name: find_order
description: Look up what was ordered, by number.
annotations: {read_only: true}
""",
    ),
    LintRule(
        "generic-name",
        "warning",
        "The name of a tool could be that of any tool.",
        "A model calls it for what other tools are meant for.",
        each_tool(_generic),
        bad="""\
name: execute
description: Rebuild the sales report of last month.
""",
        good="""\
name: rebuild_sales_report
description: Compute the report of last month again, after corrections.
""",
    ),
    LintRule(
        "unconfirmed-destruction",
        "warning",
        "A tool destroys something, and no call of it needs approval.",
        "A model that misunderstood deletes data, and nobody was asked.",
        _unconfirmed,
        bad="""\
name: delete_account
description: Delete the account of a customer with all orders.
""",
        good="""\
name: delete_account
description: Delete the account of a customer with all orders.
requires_confirmation: "Delete the account?"
""",
    ),
    LintRule(
        "contradicting-effects",
        "warning",
        "A tool is declared as read-only, and its name or its request says that it changes something.",
        "Calls of a read-only tool are repeated, cached and made without asking.",
        each_tool(_effects),
        bad="""\
name: send_reminder
description: Remind a customer of an invoice by email.
annotations: {read_only: true}
""",
        good="""\
name: send_reminder
description: Remind a customer of an invoice by email.
""",
    ),
    LintRule(
        "undeclared-read-only",
        "notice",
        "A tool seems to only read, and is not declared as read-only.",
        "Its calls are neither repeated nor cached, and clients ask a person before each.",
        each_tool(_reading),
        bad="""\
name: list_reminders
description: What customers were reminded of this year.
""",
        good="""\
name: list_reminders
description: What customers were reminded of this year.
annotations: {read_only: true}
""",
    ),
    LintRule(
        "missing-output-schema",
        "notice",
        "A tool has no `output_schema`.",
        "Neither its results nor its mocks are checked, and a program that reads results has no types.",
        each_tool(_results),
        bad="""\
name: count_visitors
description: Visitors of the museum today.
annotations: {read_only: true}
mock: {result: 12}
""",
        good="""\
name: count_visitors
description: Visitors of the museum today.
annotations: {read_only: true}
output_schema: {type: integer}
mock: {result: 12}
""",
    ),
    LintRule(
        "missing-examples",
        "notice",
        "A tool has no `examples`, and no scenario calls it.",
        "`toolcrib run` does not try it, and a reader sees no call of it.",
        _examples,
        bad="""\
name: open_gate
description: Open the gate of the car park for a minute.
mock: {result: open}
""",
        good="""\
name: open_gate
description: Open the gate of the car park for a minute.
examples: [{args: {}, result: open}]
mock: {result: open}
""",
    ),
    LintRule(
        "deprecated-without-replacement",
        "notice",
        "A tool is deprecated, and nothing says what to use instead.",
        "Who calls it reads the text of `deprecated` in each result.",
        each_tool(_deprecated),
        bad="""\
name: find_user
description: Look up a customer.
annotations: {read_only: true}
deprecated: true
""",
        good="""\
name: find_user
description: Look up a customer.
annotations: {read_only: true}
deprecated: use find_customer
""",
    ),
    LintRule(
        "token-budget",
        "warning",
        "The declaration of a tool, or of all of them, takes more tokens than the budget.",
        "Each request pays for all declarations, and models choose worse among long ones. Tokens are counted as `toolcrib cost` does.",
        _tokens,
        bad=f"""\
name: find_recipe
description: Recipes by what is in the kitchen.
annotations: {{read_only: true}}
input_schema:
  type: object
  properties: {{taste: {{type: string, description: "{"Anything that was ever said about taste. " * 150}"}}}}
""",
        good="""\
name: find_recipe
description: Recipes by what is in the kitchen.
annotations: {read_only: true}
input_schema: {type: object, properties: {taste: {type: string, description: Such as sweet or hot.}}}
""",
    ),
    LintRule(
        "many-tools",
        "warning",
        "More tools are offered together than the budget allows.",
        "OpenAI refuses more than 128 tools in a request, and models choose worse among many. A toolset offers some of them.",
        _too_many,
        bad="\n---\n".join(
            f"name: read_sensor_{number}\ndescription: Temperature in room {number} in degrees Celsius.\nannotations: {{read_only: true}}"
            for number in range(129)
        )
        + "\n",
        good="""\
name: read_sensor
description: Temperature in a room in degrees Celsius.
annotations: {read_only: true}
input_schema: {type: object, properties: {room: {type: integer, description: From 1 to 129.}}}
""",
    ),
)
"""The rules."""
