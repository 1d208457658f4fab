"""Rules about parameters whose name or schema leaves a model to guess."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from toolcrib.formats.providers.generic import ANTHROPIC
from toolcrib.lint.rule import (
    Edit,
    LintedParameter,
    LintedTool,
    LintedTools,
    LintFinding,
    LintRule,
    each_parameter,
    each_tool,
)
from toolcrib.lint.words import FILLERS, name_words, stems, text_words, word_set
from toolcrib.security.redaction import is_secret_name

MOST_PARAMETERS: Final = 25
"""Arguments of a tool above which models omit some."""

DEEPEST: Final = 5
"""Levels of nested objects above which models make mistakes, and which OpenAI's strict mode once refused."""

_VAGUE: Final = word_set(
    "arg args argument arguments blob config configuration content contents data details extra extras field fields info "
    "information input inputs item items json kwargs meta misc obj object opts options other param parameter parameters "
    "params payload props settings stuff thing things value values var x y"
)
"""Names that say nothing without a description."""

_VAGUE_MEANING: Final = 2
"""Words of a description that explain such a name."""

_DATE_WORDS: Final = word_set("date dates datetime timestamp deadline birthday dob")
_TIME_ENDINGS: Final = frozenset(("time", "at"))
_NO_DATES: Final = word_set(
    "format zone range type field column label name count per run real one all over by style pattern id mode any key "
    "order direction offset update validate candidate mandate"
)
_FORMATS: Final = re.compile(
    r"\b(?:iso|rfc)[ -]?(?:\d{4}|8601|date)|\biso\b|yyyy|yy-mm|mm/dd|dd[./]mm|hh:?mm|\bunix\b|\bepoch\b|\d{4}-\d{2}|\d{1,2}:\d{2}|"
    r"\d{1,2}/\d{1,2}/\d{2,4}|\bmilliseconds?\b|\bseconds? since\b|\btoday\b|\byesterday\b|\b\d+[dhms]\b|\bcron\b",
    re.IGNORECASE,
)

_QUANTITIES: Final = {
    **dict.fromkeys(
        ("timeout", "duration", "interval", "delay", "ttl", "wait", "period", "latency"), "of time"
    ),
    **dict.fromkeys(
        ("distance", "radius", "width", "height", "depth", "length", "altitude", "elevation"), "of length"
    ),
    **dict.fromkeys(("weight", "mass"), "of weight"),
    **dict.fromkeys(("temperature",), "of temperature"),
    **dict.fromkeys(("speed", "velocity"), "of speed"),
    **dict.fromkeys(("filesize", "bytes", "memory"), "of data"),
    **dict.fromkeys(("price", "amount", "cost", "fee", "salary", "fare"), "of money"),
}
"""Last word of a name -> what it measures."""

_UNITS: Final = re.compile(
    r"(?:^|[^a-z])(?:(?:milli|micro|nano)?sec(?:ond)?s?|ms|s|min(?:ute)?s?|h(?:ou)?rs?|days?|weeks?|months?|years?|nights?|"
    r"(?:kilo|centi|milli)?met(?:re|er)s?|k?m|cm|mm|miles?|mi|feet|foot|ft|inch(?:es)?|in|px|pixels?|(?:browser )?window|viewport|image|screenshot|screen|canvas|pt|em|percent(?:age)?|%|"
    r"k?g|(?:kilo)?grams?|lbs?|pounds?|ounces?|oz|tons?|tonnes?|celsius|fahrenheit|kelvin|°[cf]|degrees?|knots?|kph|mph|km/h|"
    r"(?:kilo|mega|giga|kibi|mebi|gibi)?bytes?|[kmg]i?b|(?:k|m|g)?bits?|eur|euros?|usd|dollars?|gbp|cents?|pence|yen|currency|"
    r"currencies|smallest unit|minor unit|characters?|words?|lines?|tokens?|items?|rows?|pages?|levels?|steps?|points?|"
    r"samples?|frames?|beats?|bars?|iso 4217|\$|€|£|credits?|wei|gwei|sat(?:oshi)?s?|shares?|units?)(?:[^a-z]|$)",
    re.IGNORECASE,
)

_ID: Final = re.compile(
    r"(?:[a-z0-9]_|^)(?:id|ids|uuid|guid)$|[a-z0-9](?:Id|ID|Ids|IDs|Uuid|UUID|Guid|GUID)$"
)

_KNOWN_CODES: Final = word_set(
    "asc desc get put post head yes no on off true false am pm and or not in eq ne gt lt ge le gte lte all any none new old up down "
    "left right top low mid high max min sum avg day week month year hour minute second days hours mon tue wed thu fri sat sun "
    "jan feb mar apr may jun jul aug sep oct nov dec xs s m l xl xxl n e w nw ne sw se ms sec min km mi kg lb cm mm ft c f k si "
    "metric imperial usd eur gbp jpy chf cad aud sek nok dkk cny inr en de fr es it nl pt ja zh ko ru sv no da fi pl png jpg jpeg gif svg "
    "webp pdf csv tsv json yaml yml xml html md txt mp3 mp4 wav zip tar gz docx xlsx sql js ts py go rs java http https ftp ssh tcp udp ip "
    "dns api url uri id add del set run end red green blue bar box car bus bike walk air sea rail hot cold dry wet big raw auto plain "
    "open full half text bold lib app web ios win mac linux us uk eu ok bad good fast slow buy sell long short call put debit card cash "
    "user admin root team org repo file dir link line page head body sha md5 sha1 sha256 utf8 utc gmt"
)
"""Short values that models know."""


def _vague(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    name = "_".join(name_words(parameter.name))
    schema = parameter.schema
    constrained = schema.get("properties") or schema.get("additionalProperties") or parameter.values
    if name not in _VAGUE or constrained or schema.get("pattern") or schema.get("format"):
        return
    if name in {"content", "contents", "text"} and parameter.types == {"string"}:
        return
    inner = schema.get("items")
    if isinstance(inner, dict) and (inner.get("properties") or inner.get("enum") or inner.get("$ref")):
        return
    said = stems(word for word in text_words(parameter.description) if word not in FILLERS | _VAGUE)
    if len(said) < _VAGUE_MEANING:
        yield LintFinding(
            f"`{parameter.path}` may be anything: neither its name nor its description says what it is",
            hint="name it after what it holds, or describe its properties",
        )


def _untyped(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    schema = parameter.schema
    telling = (
        "type",
        "const",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "properties",
        "items",
        "if",
        "$dynamicRef",
    )
    if any(key in schema for key in telling):
        return
    listed = schema.get("enum")
    if isinstance(listed, list):
        type_ = _type_of(listed)
        # A schema of an MCP server or of a reused definition is written elsewhere.
        if type_:
            yield LintFinding(
                f"`{parameter.path}` has values but no type, which some providers require",
                hint=f"`--fix` adds `type: {type_}`",
                edit=Edit("", lambda _old: type_, key="type"),
            )
        return
    yield LintFinding(
        f"`{parameter.path}` has no type, so that a model may send text, a number or an object",
        hint="add `type`; for any JSON value, say so in the description and list the types",
    )


def _type_of(values: list[Any]) -> str:
    types = {bool: "boolean", str: "string", int: "integer"}
    found = {types.get(type(value), "") for value in values}
    return found.pop() if len(found) == 1 else ""


def _dates(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    words = name_words(parameter.name)
    schema = parameter.schema
    is_date = bool(words) and (
        words[-1] in _DATE_WORDS
        or (len(words) > 1 and words[-1] in _TIME_ENDINGS)
        or (
            words[0] in _DATE_WORDS
            and len(words) > 1
            and words[1] in {"from", "to", "min", "max", "start", "end", "of"}
        )
    )
    if not is_date or not _NO_DATES.isdisjoint(words) or parameter.types - {"string"} or not parameter.types:
        return
    if any(key in schema for key in ("format", "pattern", "enum", "const")) or _branch_has(schema, "format"):
        return
    examples = " ".join(str(each) for each in (schema.get("examples") or [schema.get("example", "")]))
    told = f"{parameter.description} {examples} {schema.get('default', '')}"
    if not _FORMATS.search(told):
        yield LintFinding(
            f"`{parameter.path}` is a date or a time, but its format is not said",
            hint="add `format: date` or `format: date-time`, or describe the format with an example",
        )


def _branch_has(schema: dict[str, Any], key: str) -> bool:
    branches = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    return any(isinstance(branch, dict) and key in branch for branch in branches)


def _units(each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    words = name_words(parameter.name)
    measured = _QUANTITIES.get(words[-1]) if words else None
    if measured is None or not parameter.types or parameter.types - {"integer", "number"}:
        return
    # A sibling may choose it: `amount` beside `currency`, `distance` beside `unit`.
    within = parameter.pointer.rpartition("/properties/")[0]
    beside = {
        word
        for other in each.parameters
        if other.pointer.rpartition("/properties/")[0] == within
        for word in name_words(other.name)
    }
    told = f"{parameter.name} {parameter.description} {each.tool.description}".replace("_", " ")
    if beside & {"unit", "units", "currency"} or _UNITS.search(re.sub(r"([a-z])([A-Z])", r"\1 \2", told)):
        return
    yield LintFinding(
        f"`{parameter.path}` is an amount {measured}, but its unit is not said",
        hint=f"name it with its unit, such as `{parameter.name}_{_example_unit(measured)}`, or say it in the description",
    )


def _example_unit(measured: str) -> str:
    return {
        "of time": "seconds",
        "of length": "meters",
        "of weight": "kg",
        "of temperature": "celsius",
        "of speed": "km_per_hour",
        "of data": "bytes",
        "of money": "cents",
    }[measured]


def _ids(linted: LintedTools) -> Iterator[LintFinding]:
    groups: dict[str, dict[frozenset[str], tuple[LintedTool, LintedParameter]]] = defaultdict(dict)
    for each in linted.tools:
        # Packs and folders that have nothing to do with each other use the word for themselves.
        meanings = groups[each.tool.origin.pack or os.path.dirname(each.tool.origin.source)]
        for parameter in each.arguments:
            if parameter.name.lower() not in {"id", "ids", "uuid", "guid"}:
                continue
            others = [one.name for one in each.arguments if _ID.search(one.name) and one is not parameter]
            said = stems(word for word in text_words(parameter.description) if word not in FILLERS)
            if others:
                yield LintFinding(
                    f"`{parameter.name}` stands beside `{others[0]}`; a model exchanges them",
                    tool=each.tool,
                    pointer=parameter.pointer,
                    hint="name it after what it identifies",
                )
            elif each.tool.name in linted.offered and said - {"id"}:
                yield from _other_meaning(each, parameter, meanings, said)


def _other_meaning(
    each: LintedTool,
    parameter: LintedParameter,
    meanings: dict[frozenset[str], tuple[LintedTool, LintedParameter]],
    said: frozenset[str],
) -> Iterator[LintFinding]:
    """Remember what an `id` identifies, and yield a finding if it is something else than in other tools."""
    # What a description adds, such as an example, does not make it another thing.
    if any(said <= known or known <= said for known in meanings):
        return
    first = next(iter(meanings.values()), None)
    meanings[said] = (each, parameter)
    if first is not None:
        yield LintFinding(
            f"`{parameter.name}` of `{each.tool.name}` identifies something else than `{first[1].name}` of `{first[0].tool.name}`",
            tool=each.tool,
            pointer=parameter.pointer,
            hint="name each after what it identifies, such as `order_id`",
        )


def _types_of_ids(linted: LintedTools) -> Iterator[LintFinding]:
    first: dict[str, tuple[LintedTool, LintedParameter]] = {}
    for each in linted.seen:
        for parameter in each.arguments:
            if not _ID.search(parameter.name) or parameter.name == "id" or len(parameter.types) != 1:
                continue
            tool, known = first.setdefault("_".join(name_words(parameter.name)), (each, parameter))
            if known.types != parameter.types:
                yield LintFinding(
                    f"`{parameter.name}` is {_one(parameter)} here, and {_one(known)} in `{tool.tool.name}`",
                    tool=each.tool,
                    pointer=parameter.pointer,
                    hint="use one type, so that a model can pass on what another tool returned",
                )


def _one(parameter: LintedParameter) -> str:
    type_ = next(iter(parameter.types))
    return {"string": "text", "integer": "an integer", "array": "a list", "object": "an object"}.get(
        type_, f"a {type_}"
    )


def _enums(each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    values = parameter.values
    if len(values) < 2:
        return
    inner = f"{parameter.description} {each.tool.description}"
    titles = [
        branch.get("description") or branch.get("title")
        for branch in parameter.schema.get("oneOf") or ()
        if isinstance(branch, dict)
    ]
    if all(titles) and titles:
        return
    obscure = [value for value in values if _is_obscure(value) and not _is_explained(value, inner)]
    # Most values explain the others: `small, medium, l`.
    if len(obscure) * 2 > len(values):
        shown = ", ".join(f"`{value}`" for value in obscure[:4])
        yield LintFinding(
            f"the values of `{parameter.path}` are codes that nothing explains: {shown}{'…' if len(obscure) > 4 else ''}",
            hint="use words, or say in the description what each value means",
        )


def _is_obscure(value: object) -> bool:
    """Whether a value is a code rather than a word."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value < 10
    if not isinstance(value, str) or value.lower() in _KNOWN_CODES:
        return False
    words = name_words(value)
    if len(words) > 1 and any(len(word) > 3 for word in words):
        return False
    letters = re.sub(r"[^A-Za-z]", "", value)
    vowels = re.search("[aeiouyAEIOUY]", letters)
    return bool(value) and (len(letters) <= 2 or vowels is None or (len(letters) <= 3 and value.isupper()))


def _is_explained(value: object, text: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(str(value))}(?![\w])", text) is not None


def _required_default(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    if parameter.required and "default" in parameter.schema:
        yield LintFinding(
            f"`{parameter.path}` has a default but is required, so that the default is never used",
            pointer=f"{parameter.pointer}/default",
            hint="remove the name from `required`, or remove `default`",
        )


def _boolean_texts(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    values = {value.lower() if isinstance(value, str) else "" for value in parameter.values}
    if values in ({"true", "false"}, {"yes", "no"}, {"on", "off"}) and not isinstance(
        parameter.values[0], bool
    ):
        yield LintFinding(
            f"`{parameter.path}` is a truth value as text",
            hint='use `type: boolean`; models send `true` and not `"true"`',
        )


def _names(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    refused = ANTHROPIC.names is not None and ANTHROPIC.names.fullmatch(parameter.name) is None
    if refused and not parameter.depth:
        yield LintFinding(
            f"Anthropic refuses the parameter name `{parameter.name}`; a model there sees another one",
            hint="use at most 64 letters, digits, `_`, `.` and `-`",
        )


def _secrets(_each: LintedTool, parameter: LintedParameter) -> Iterator[LintFinding]:
    words = name_words(parameter.name)
    # Tokens of pages, and tokens that a tool returned, are no secrets of a person.
    harmless = {
        "page",
        "next",
        "continuation",
        "cursor",
        "sync",
        "previous",
        "public",
        "count",
        "max",
        "idempotency",
        "primary",
        "foreign",
    }
    if is_secret_name(parameter.name) and harmless.isdisjoint(words) and "string" in parameter.types:
        yield LintFinding(
            f"a model would have to know the secret `{parameter.path}`, and pass it through the conversation",
            hint="let the tool look it up: `${NAME}` in its block, or `context.secret` of a Python tool",
        )


def _many(each: LintedTool) -> Iterator[LintFinding]:
    count = len(each.arguments)
    if count > MOST_PARAMETERS:
        yield LintFinding(
            f"`{each.tool.name}` has {count} arguments; models omit some of more than {MOST_PARAMETERS}",
            pointer="/input_schema",
            hint="divide the tool, or group what belongs together in objects",
        )


def _deep(each: LintedTool) -> Iterator[LintFinding]:
    deepest = max(each.parameters, key=lambda parameter: parameter.depth, default=None)
    if deepest is not None and deepest.depth + 1 > DEEPEST:
        yield LintFinding(
            f"`{deepest.path}` is nested {deepest.depth + 1} levels deep; models make mistakes below {DEEPEST}",
            pointer=deepest.pointer,
            hint="take inner values as arguments of their own",
        )


def _spellings(each: LintedTool) -> Iterator[LintFinding]:
    snake = [one for one in each.arguments if "_" in one.name.strip("_")]
    camel = [one for one in each.arguments if re.search(r"[a-z][A-Z]", one.name)]
    if snake and camel:
        rare = min(camel, snake, key=len)
        yield LintFinding(
            f"`{snake[0].name}` and `{camel[0].name}` are spelt in two ways; a model mixes them up",
            pointer=rare[0].pointer,
            hint="spell all parameters in the same way",
        )


RULES: Final = (
    LintRule(
        "vague-parameter",
        "warning",
        "A parameter such as `data` or `options` may be anything, and its description does not say what it is.",
        "A model invents its content.",
        each_parameter(_vague),
        bad="""\
name: create_invoice
description: Write an invoice and send it to the customer by email.
input_schema: {type: object, properties: {data: {type: object, description: The data object.}}}
""",
        good="""\
name: create_invoice
description: Write an invoice and send it to the customer by email.
input_schema:
  type: object
  properties:
    order_id: {type: string, description: "The order to pay for, such as W1000."}
""",
    ),
    LintRule(
        "untyped-parameter",
        "warning",
        "A parameter has no type.",
        "A model sends text where the tool expects a number, or an object. Gemini requires a type.",
        each_parameter(_untyped),
        bad="""\
name: set_volume
description: Set the volume of the speakers in the living room.
input_schema: {type: object, properties: {level: {enum: [silent, quiet, loud], description: How loud.}}}
""",
        good="""\
name: set_volume
description: Set the volume of the speakers in the living room.
input_schema: {type: object, properties: {level: {type: string, enum: [silent, quiet, loud], description: How loud.}}}
""",
        fix="adds the type of the values of `enum`",
    ),
    LintRule(
        "date-without-format",
        "warning",
        "A text is a date or a time, and nothing says how it is written.",
        "A model writes `3/4/2030`, `tomorrow` or a time without a time zone.",
        each_parameter(_dates),
        bad="""\
name: book_room
description: Reserve a room for one night.
input_schema: {type: object, properties: {arrival_date: {type: string, description: When the guest arrives.}}}
""",
        good="""\
name: book_room
description: Reserve a room for one night.
input_schema:
  type: object
  properties: {arrival_date: {type: string, format: date, description: When the guest arrives.}}
""",
    ),
    LintRule(
        "number-without-unit",
        "warning",
        "A number is a duration, a length, a weight, a price or the like, and nothing says in which unit.",
        "A model sends 30 for 30 seconds, and the tool waits 30 milliseconds.",
        each_parameter(_units),
        bad="""\
name: wait_for_payment
description: Wait until a customer has paid.
input_schema: {type: object, properties: {timeout: {type: integer, description: How long to wait at most.}}}
""",
        good="""\
name: wait_for_payment
description: Wait until a customer has paid.
input_schema: {type: object, properties: {timeout: {type: integer, description: How many seconds to wait at most.}}}
""",
    ),
    LintRule(
        "ambiguous-id",
        "warning",
        "A parameter `id` is used next to another id, or identifies different things in different tools.",
        "A model passes the id of a customer where that of an order is expected. Only the first other meaning is reported of each.",
        _ids,
        bad="""\
name: get_order
description: What was ordered, and where it goes.
annotations: {read_only: true}
input_schema: {type: object, properties: {id: {type: string, description: The id of the order.}}}
---
name: get_customer
description: Name and address of a customer.
annotations: {read_only: true}
input_schema: {type: object, properties: {id: {type: string, description: The id of the customer.}}}
""",
        good="""\
name: get_order
description: What was ordered, and where it goes.
annotations: {read_only: true}
input_schema: {type: object, properties: {order_id: {type: string, description: "Such as W1000."}}}
---
name: get_customer
description: Name and address of a customer.
annotations: {read_only: true}
input_schema: {type: object, properties: {customer_id: {type: string, description: "Such as sara_doe_496."}}}
""",
    ),
    LintRule(
        "different-id-types",
        "warning",
        "An id is text in one tool and a number in another.",
        "A model passes on what it got from the other tool, and the call is refused.",
        _types_of_ids,
        bad="""\
name: find_parcel
description: Where a parcel is now.
annotations: {read_only: true}
input_schema: {type: object, properties: {parcel_id: {type: string, description: "As printed on it, such as 00370."}}}
---
name: return_parcel
description: Send a parcel back to its sender.
input_schema: {type: object, properties: {parcel_id: {type: integer, description: "As printed on it, such as 370."}}}
""",
        good="""\
name: find_parcel
description: Where a parcel is now.
annotations: {read_only: true}
input_schema: {type: object, properties: {parcel_id: {type: string, description: "As printed on it, such as 00370."}}}
---
name: return_parcel
description: Send a parcel back to its sender.
input_schema: {type: object, properties: {parcel_id: {type: string, description: "As printed on it, such as 00370."}}}
""",
    ),
    LintRule(
        "unexplained-enum",
        "warning",
        "The values of a parameter are codes that no description explains.",
        "A model guesses what `A` or `2` means. Words and codes that everybody knows, such as `asc`, need no explanation.",
        each_parameter(_enums),
        bad="""\
name: set_priority
description: Move a ticket in the queue of the service desk.
input_schema: {type: object, properties: {priority: {type: string, enum: [P1, P2, P3], description: Its new place.}}}
""",
        good="""\
name: set_priority
description: Move a ticket in the queue of the service desk.
input_schema:
  type: object
  properties:
    priority: {type: string, enum: [P1, P2, P3], description: "P1: nobody can work. P2: somebody cannot. P3: a wish."}
""",
    ),
    LintRule(
        "required-with-default",
        "warning",
        "A required parameter has a default.",
        "The default promises that the parameter may be omitted, and then the call is refused.",
        each_parameter(_required_default),
        bad="""\
name: list_invoices
description: Invoices of this year, newest first.
annotations: {read_only: true}
input_schema:
  type: object
  properties: {limit: {type: integer, default: 20, description: How many to return.}}
  required: [limit]
""",
        good="""\
name: list_invoices
description: Invoices of this year, newest first.
annotations: {read_only: true}
input_schema:
  type: object
  properties: {limit: {type: integer, default: 20, description: How many to return.}}
""",
    ),
    LintRule(
        "boolean-as-text",
        "notice",
        "A parameter has the values `true` and `false`, or `yes` and `no`, as text.",
        "A model sends a boolean, and the call is refused or repaired.",
        each_parameter(_boolean_texts),
        bad="""\
name: subscribe
description: Send the newsletter to an address.
input_schema: {type: object, properties: {weekly: {type: string, enum: ["yes", "no"], description: Or once a month.}}}
""",
        good="""\
name: subscribe
description: Send the newsletter to an address.
input_schema: {type: object, properties: {weekly: {type: boolean, description: Or once a month.}}}
""",
    ),
    LintRule(
        "parameter-name-refused",
        "warning",
        "A provider refuses the name of a parameter.",
        "toolcrib gives it another name there, which the description does not know.",
        each_parameter(_names),
        bad="""\
name: filter_products
description: Products of the shop that match.
input_schema: {type: object, properties: {"price[max]": {type: number, description: In euros.}}}
""",
        good="""\
name: filter_products
description: Products of the shop that match.
input_schema: {type: object, properties: {price_max: {type: number, description: In euros.}}}
""",
    ),
    LintRule(
        "secret-parameter",
        "warning",
        "A parameter is a secret: a password, a key, a token.",
        "Who talks to the model must tell it the secret, and it stays in the conversation and its logs.",
        each_parameter(_secrets),
        bad="""\
name: send_sms
description: Send a short message to a customer.
input_schema: {type: object, properties: {api_key: {type: string, description: The key of the account.}}}
""",
        good="""\
name: send_sms
description: Send a short message to a customer.
input_schema: {type: object, properties: {text: {type: string, description: At most 160 characters.}}}
""",
    ),
    LintRule(
        "many-parameters",
        "notice",
        f"A tool has more than {MOST_PARAMETERS} arguments.",
        "A model omits some of them, and each request pays for all of them.",
        each_tool(_many),
        bad=f"""\
name: search_houses
description: Houses for sale.
annotations: {{read_only: true}}
input_schema:
  type: object
  properties: {{{", ".join(f"w{number}: {{type: string, description: Wish {number}.}}" for number in range(1, 28))}}}
""",
        good="""\
name: search_houses
description: Houses for sale.
annotations: {read_only: true}
input_schema:
  type: object
  properties: {wishes: {type: array, items: {type: string}, description: "Words such as garden, lake or new."}}
""",
    ),
    LintRule(
        "deep-nesting",
        "notice",
        f"A parameter is nested more than {DEEPEST} levels deep.",
        "Models lose brackets, and put values into the wrong object.",
        each_tool(_deep),
        bad="""\
name: plan_menu
description: Plan the meals of a week.
input_schema:
  type: object
  properties:
    week: {type: object, description: The week., properties: {day: {type: object, description: The day., properties: {
      meal: {type: object, description: The meal., properties: {dish: {type: object, description: The dish., properties: {
      part: {type: object, description: A part., properties: {spice: {type: string, description: Such as salt.}}}}}}}}}}}
""",
        good="""\
name: plan_menu
description: Plan the meals of a week.
input_schema:
  type: object
  properties: {spice: {type: string, description: "What all dishes have, such as salt."}}
""",
    ),
    LintRule(
        "mixed-spelling",
        "notice",
        "Some parameters of a tool are spelt with underscores and others in camel case.",
        "A model uses the wrong spelling for one of them.",
        each_tool(_spellings),
        bad="""\
name: rent_car
description: Rent a car at an airport.
input_schema:
  type: object
  properties:
    pick_up: {type: string, description: IATA code of the airport.}
    dropOff: {type: string, description: The airport where it is returned.}
""",
        good="""\
name: rent_car
description: Rent a car at an airport.
input_schema:
  type: object
  properties:
    pick_up: {type: string, description: IATA code of the airport.}
    drop_off: {type: string, description: The airport where it is returned.}
""",
    ),
)
"""The rules."""
