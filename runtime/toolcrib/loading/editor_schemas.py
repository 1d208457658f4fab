"""JSON Schemas for editors: the loader's schemas, plus rules that the loader checks in code.

In a schema, `x-form` names the form of a text: `{"type": "string", "x-form": "condition"}`. The loader ignores the key
and compiles the text. For editors, each form is expanded to JSON Schema.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from toolcrib.core.model import Schema
from toolcrib.core.schemas import Kind, with_blocks, with_mode_references
from toolcrib.expressions.expression import RESERVED
from toolcrib.expressions.jmespath_queries import functions as functions_of_jmespath
from toolcrib.expressions.loops import FORM, MOST_LOOPS
from toolcrib.http.headers import FORBIDDEN
from toolcrib.loading import editor_patterns
from toolcrib.loading.scenarios.assertions import (
    ALIASES,
    GUARDING,
    SPELLINGS,
    KindAlias,
    assertion_kinds,
    takes_text_list,
)
from toolcrib.loading.scenarios.model import WRAPPER
from toolcrib.loading.stores import READERS

_FORM: Final = "x-form"


def editor_schema(kind: Kind, blocks: Mapping[str, Schema]) -> dict[str, Any]:
    """The published schema of a kind of document. It accepts everything that the loader accepts.

    Args:
        kind: The kind of document.
        blocks: Mode -> schema of its block, for every installed mode.
    """
    schema = with_blocks(kind, blocks)
    forms = _forms()
    # Only the forms that are used: forms refer to other forms, so definitions are added until none is missing.
    waiting = _written_out(schema)
    while waiting:
        name = waiting.pop()
        if f"{_FORM}.{name}" not in schema["$defs"]:
            schema["$defs"][f"{_FORM}.{name}"] = forms[name]
            waiting |= _written_out(forms[name])
    return schema


def _written_out(schema: dict[str, Any]) -> set[str]:
    """Add a reference for each `x-form` in a schema, and return the names of all referenced forms."""
    names: set[str] = set()
    for site in [*_objects(schema)]:
        name, reference = site.get(_FORM), site.get("$ref")
        # `allOf`, because a schema can have only one `$ref`, and editors for draft 7 ignore all keywords next to it.
        if isinstance(name, str):
            site["allOf"] = [*site.get("allOf", ()), _refer(name)]
            names.add(name)
        if isinstance(reference, str) and reference.startswith(_place("")):
            names.add(reference.removeprefix(_place("")))
    return names


def _place(name: str) -> str:
    return f"#/$defs/{_FORM}.{name}"


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a schema."""
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _objects(item)


def _text(pattern: str, message: str) -> dict[str, Any]:
    return {"pattern": pattern, "errorMessage": message}


_CLOSED: Final = _text(
    editor_patterns.BALANCED, "close the expression with `}}`, and close its quotes and brackets"
)
_READABLE: Final = _text(
    editor_patterns.READABLE,
    "an expression joins operands with operators: `{{ args.name | upper }}`",
)
_READABLE_REQUEST: Final = _text(
    editor_patterns.READABLE_REQUEST,
    "an expression joins operands with operators and calls only known functions: `{{ args.name | upper }}`",
)
_WITHOUT_VARIABLES: Final = _text(
    editor_patterns.WITHOUT_VARIABLES, "`${` is not substituted here; write `$${` for a literal `${`"
)
_NOT_COMPUTED: Final = _text(editor_patterns.KEY, "expressions are not evaluated here")

_VARIABLE: Final = (
    r"\$\{(?:(?:env:)?[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?|file:~?/[^{}]*|keyring:[^{}]+/[^{}]+)\}"
)
_LOOKED_UP: Final = _text(
    rf"^(?:[^$]|\$+[^${{]|\$\$+\{{|{_VARIABLE})*\$*$",
    "use `${VAR}`, `${VAR:-default}`, `${file:/path}` or `${keyring:service/user}`; write `$${` for a literal `${`",
)

_HOST: Final = r"(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\])"
_PORT: Final = (
    r"(?::(?:0*(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)?"
)
_PARTLY: Final = rf"[A-Za-z0-9_.:\[\]-]*{_VARIABLE}(?:[A-Za-z0-9_.:\[\]-]|{_VARIABLE})*"
_ORIGIN: Final = (
    rf"(?:[hH][tT][tT][pP][sS]?://(?:{_HOST}{_PORT}|{_PARTLY})"
    rf"|{_VARIABLE}(?:://)?(?:[A-Za-z0-9_.:\[\]-]|{_VARIABLE})*)"
)
_PLAIN: Final = r"[^\x00-\x20\x7f-\xa0\\{}#"
_COMPUTED: Final = rf"|{_VARIABLE}|{editor_patterns.BODY}"
_PARAMETER: Final = rf"{_PLAIN}=&]*(?:=(?:{_PLAIN}&]{_COMPUTED})*)?"
_URL: Final = _text(
    rf"^{_ORIGIN}(?:/(?:{_PLAIN}?]{_COMPUTED})*)?(?:\?{_PARAMETER}(?:&{_PARAMETER})*)?$|{editor_patterns.MANY}",
    "a URL starts with `https://host`, `http://host` or `${VAR}`; expressions may follow in the path or in query values, and a space is written `%20`",
)
_ADDRESS: Final = _text(
    rf"^(?:[hH][tT][tT][pP][sS]?://(?:[^\x00-\x20\x7f@/?#\\{{}}$]|{_VARIABLE})+(?:[/?\\][^\x00-\x20\x7f#]*)?|{_VARIABLE}[^\x00-\x20\x7f]*)$",
    "a URL starts with `https://host`, `http://host` or `${VAR}`, and has no user info or fragment",
)


_GROUPS: Final = 6
"""Maximum nesting depth of groups that is checked in a regular expression."""


def _regex(escapes: str, groups: str) -> str:
    """A pattern for regular expressions: groups, classes and escapes are closed, and quantifiers follow an atom.

    Args:
        escapes: Pattern of characters allowed after a backslash.
        groups: Pattern of text allowed after `(?`.
    """
    atom = rf"[^\\()\[*+?|]|\\{escapes}|\[\^?(?:[^\]\\]|\\[\s\S])*\]"
    inner = rf"(?:(?:{atom})[*+?]*|\|)*"
    for _ in range(_GROUPS):
        inner = rf"(?:(?:{atom}|\((?:\?{groups})?{inner}\))[*+?]*|\|)*"
    return rf"^{inner}$|^(?:[^(]*\(){{{_GROUPS + 1}}}|\[\^?\]"


_QUOTED: Final = r"""(?:'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*"|`(?:[^`\\]|\\[\s\S])*`)"""
_UNQUOTED: Final = r"""[^'"`()\[\]{}]"""
_JMESPATH_CLOSED: Final = rf"^{editor_patterns.nested(_QUOTED, _UNQUOTED)}$|{editor_patterns.MANY}"


def _jmespath() -> str:
    """A pattern for JMESPath: quotes are closed, and functions are known."""
    known = "|".join(sorted(functions_of_jmespath()))
    name = rf"[A-Za-z_][A-Za-z0-9_]*\s*(?:[\[\]{{}}).,:*@&|!<>=?-]|{_QUOTED}|$)"
    return rf"^\s*(?:(?:{_QUOTED}|(?:{known})\s*\(|{name}|-?[0-9]|[\[\]{{}}().,:*@&|!<>=?])\s*)+$"


_STEP: Final = r"""(?:"(?:[^"\\]|\\[\s\S])+"|[^".\\]+)"""

_HEADER: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"

_RANGE: Final = (
    r"^ *(~=|==|!=|>=|<=|>|<) *[0-9][0-9A-Za-z.*+-]*( *, *(~=|==|!=|>=|<=|>|<) *[0-9][0-9A-Za-z.*+-]*)* *$"
)


def _whatever_its_case(name: str) -> str:
    # JSON Schema patterns follow ECMA-262 without flags, so there is no case-insensitive matching.
    return "".join(f"[{mark.upper()}{mark}]" if mark.isalpha() else mark for mark in name)


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": _place(name)}


_LISTS: Final[dict[str, Any]] = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": _refer("name"),
    "additionalProperties": _refer("list"),
}
"""The lists of one loop: name -> list."""


def _within(name: str, text: str, *keys: dict[str, Any]) -> dict[str, Any]:
    """The form of values whose texts have a given form at any depth."""
    return {
        "allOf": [_refer(text)],
        "items": _refer(name),
        "propertyNames": {"allOf": [*keys]},
        "additionalProperties": _refer(name),
    }


def _forms() -> Mapping[str, Any]:
    """Name of a form -> JSON Schema."""
    forbidden = "|".join(_whatever_its_case(name) for name in sorted(FORBIDDEN))
    # The loader compares extensions in lower case, so the pattern must accept any case.
    endings = "|".join(_whatever_its_case(ending.removeprefix(".")) for ending in READERS)
    forms: dict[str, Any] = {
        "closed": _CLOSED,
        "readable": _READABLE,
        "readable_request": _READABLE_REQUEST,
        "text": {"allOf": [_refer("closed"), _refer("readable"), _WITHOUT_VARIABLES]},
        "rendered": _within("rendered", "text", _NOT_COMPUTED),
        "computed": {
            "allOf": [_refer("text")],
            "items": _refer("computed"),
            "if": {"type": "object", "required": ["for_each"], "propertyNames": {"enum": sorted(FORM)}},
            "then": _refer("loop"),
            "else": {"propertyNames": _NOT_COMPUTED, "additionalProperties": _refer("computed")},
        },
        "loop": {
            "properties": {
                "for_each": {
                    "if": {"type": "array"},
                    "then": {"minItems": 1, "maxItems": MOST_LOOPS, "items": _LISTS},
                    "else": _LISTS,
                },
                "let": {
                    "type": "object",
                    "propertyNames": _refer("name"),
                    "additionalProperties": _refer("computed"),
                },
                "where": {"type": "string", "allOf": [_refer("condition")]},
                **dict.fromkeys(("value", "sum", "key"), _refer("computed")),
            },
            "dependentRequired": {"key": ["value"]},
            "dependentSchemas": {"sum": {"properties": {"value": False, "key": False}}},
        },
        "list": {
            "if": {"type": "string"},
            "then": {"allOf": [_refer("text"), {"pattern": r"\{\{"}]},
            "else": {"type": "array", "items": _refer("rendered")},
        },
        "place": _text(
            editor_patterns.PLACE, "write a path such as `order.payments[0].amount`, without braces"
        ),
        "condition": {
            "allOf": [
                _text(
                    editor_patterns.WHOLE, "a condition must be a single expression: `{{ args.days > 3 }}`"
                ),
                _refer("readable"),
            ]
        },
        "template": _text(editor_patterns.TEMPLATE, "close every expression and statement"),
        "request_text": {"allOf": [_refer("closed"), _refer("readable_request"), _LOOKED_UP]},
        "request": _within("request", "request_text", {"not": {"pattern": r"\{\{|\$\{"}}),
        "url": {
            "allOf": [_URL, _refer("request_text")],
            "not": {"pattern": r"^[^?#{]*://[^/?#{]*/(?:[^?{]*/)?\.\.?(?:[/?]|$)"},
        },
        "address": {"allOf": [_ADDRESS, _LOOKED_UP], "not": {"pattern": r"\{\{"}},
        "directory": {
            "if": {"pattern": r"^(?:[A-Za-z][A-Za-z0-9+.-]*://|\$\{)"},
            "then": _refer("address"),
            "else": _refer("path"),
        },
        "look_up": _LOOKED_UP,
        "program": {"allOf": [_LOOKED_UP], "not": {"pattern": r"^\s*[^\s/\\$]+ +\S"}},
        "header": {
            "allOf": [_LOOKED_UP, _text(r"^[\t\x20-\x7e\x80-\xff]*$", "a header cannot contain a line break")]
        },
        "range": {"allOf": [{"pattern": _RANGE}, {"not": {"pattern": r"~= *[0-9]+ *(?:,|$)"}}]},
        "secret": {"allOf": [_LOOKED_UP, _NOT_COMPUTED]},
        "header_secret": {"allOf": [_refer("secret"), {"pattern": r"^[\t\x20-\x7e]*$"}]},
        "user_name": {
            "allOf": [
                _refer("secret"),
                _text(
                    rf"^(?:[^:$]|\$+[^:${{]|\$\$+\{{|{_VARIABLE})*\$*$", "a user name cannot contain a colon"
                ),
            ]
        },
        "media_type": _text(
            rf"^{_HEADER}/{_HEADER}\s*(?:;[\t\x20-\x7e]*)?$", "a media type has the form `image/png`"
        ),
        "token": _text(f"^{_HEADER}$", "use letters, digits and `-`"),
        "header_name": {
            "allOf": [
                _refer("token"),
                {"not": {"pattern": f"^(?:{forbidden})$"}},
            ]
        },
        "regex": _text(
            _regex("[^1-9]", "(?:[A-Za-z:-]|<[A-Za-z_])"),
            "a regular expression must run in linear time: close its groups and classes, and use no look-around or back-references",
        ),
        "pattern": _text(
            _regex(r"[\s\S]", "(?:[A-Za-z:>-]|<[A-Za-z_]|<?[=!])"),
            "close the groups and classes of the regular expression",
        ),
        "jmespath": {
            "allOf": [
                {"pattern": _JMESPATH_CLOSED},
                {"pattern": r"""[A-Za-z0-9_)\]}*@'"`]\s*$"""},
                _text(
                    _jmespath(),
                    "write JMESPath, such as `body.results[*].{name: name}`, with JMESPath functions only",
                ),
            ]
        },
        "time": {
            "not": {"pattern": r"(?:^|/)0+(?:\.0+)?[a-z]+$"},
            "errorMessage": "a duration must be longer than 0s",
        },
        "name": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": {"enum": sorted(RESERVED)}},
        "base64": _text(
            r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
            "the data must be base64",
        ),
        "path": _text(r"^(?:[^$\x00-\x1f\x7f]|\$+[^${\x00-\x1f\x7f])*\$*$", "`${` is not substituted here"),
        "row_file": {
            "allOf": [
                _text(
                    r"^(?:[^$]|\$+[^${]|\$\$+\{|\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?\})*\$*$",
                    "use `${VAR}` or `${VAR:-default}`",
                ),
                _text(
                    rf"(?:\.(?:{endings})|\}})$", f"the file name must end with one of {', '.join(READERS)}"
                ),
            ]
        },
        "hidden_path": {
            **_text(
                rf"^{_STEP}(?:\.{_STEP})*$",
                "separate the names of a path with `.`: `user.email`, `items.*.card`, `**.ssn`",
            ),
            "not": {"pattern": r"(?:^|\.)\*\*$"},
        },
    }
    # `_written_out` modifies the forms in place, and several of them share parts.
    return copy.deepcopy({**forms, **_JSON_SCHEMA, **_assertions()})


_TYPE: Final = {"enum": ["null", "boolean", "integer", "number", "string", "array", "object"]}
_INNER: Final = {"$ref": _place("json_schema_part")}
_JSON_SCHEMA: Final[Mapping[str, Any]] = {
    "json_schema": {
        "allOf": [
            _INNER,
            {"if": {"$ref": _place("without_ids")}, "then": {"$ref": _place("local_references")}},
        ]
    },
    "json_schema_part": {
        "type": ["object", "boolean"],
        "patternProperties": {
            "^type$": {
                "anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1, "uniqueItems": True}]
            },
            r"^(properties|\$defs|definitions)$": {"type": "object", "additionalProperties": _INNER},
            "^patternProperties$": {
                "type": "object",
                "propertyNames": {"$ref": _place("pattern")},
                "additionalProperties": _INNER,
            },
            "^(allOf|anyOf|oneOf)$": {"type": "array", "minItems": 1, "items": _INNER},
            "^(not|additionalProperties|additionalItems)$": _INNER,
            "^items$": {"if": {"type": "array"}, "then": {"items": _INNER}, "else": _INNER},
            "^required$": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "^enum$": {"type": "array"},
            "^(min|max)(Length|Items|Properties)$": {"type": "integer", "minimum": 0},
            "^(minimum|maximum)$": {"type": "number"},
            "^multipleOf$": {"type": "number", "exclusiveMinimum": 0},
            "^uniqueItems$": {"type": "boolean"},
            r"^\$schema$": {
                "pattern": r"^https?://json-schema\.org/(?:draft/20(?:20-12|19-09)|draft-0[467])/schema#?$"
            },
            r"^(title|description|\$ref)$": {"type": "string"},
            "^pattern$": {"type": "string", "allOf": [{"$ref": _place("pattern")}]},
        },
    },
    "without_ids": {
        "properties": {"$id": False, "id": {"not": {"type": "string"}}},
        "additionalProperties": {"$ref": _place("without_ids")},
        "items": {"$ref": _place("without_ids")},
    },
    "local_references": {
        "properties": {
            "$ref": {
                "if": {"type": "string"},
                "then": _text(
                    r"^(?:#|https?://json-schema\.org/|$)",
                    "references are not fetched; point to a place in this schema: `#/$defs/NAME`",
                ),
                "else": {"$ref": _place("local_references")},
            },
            **dict.fromkeys(("const", "default", "enum", "example", "examples"), True),
        },
        "additionalProperties": {"$ref": _place("local_references")},
        "items": {"$ref": _place("local_references")},
    },
}


def _assertions() -> dict[str, Any]:
    """The forms of assertions and guardrails: the parameters of each type."""
    definitions: Mapping[str, Any] = next(iter(assertion_kinds().values()))["$defs"]
    settled = {name: alias for name, alias in ALIASES.items() if alias.params}
    every, guarding = _names(assertion_kinds()), _names(GUARDING)
    return {
        "assertion": _unless_unsupported(_by_type(every, "type", "params")),
        "guardrail": _unless_unsupported(_by_type(_names({*GUARDING, WRAPPER}), "type", "params")),
        "wrapped": _by_type(every, "eval_type", "eval_params"),
        "guarding": {"enum": [name for those in guarding.values() for name in those]},
        **{f"params.{name}": _params(KindAlias(name)) for name in assertion_kinds()},
        **{f"params.{name}": _params(alias) for name, alias in settled.items()},
        **{
            f"{_PARAMS}.{name}": with_mode_references(part, f"{_FORM}.{_PARAMS}")
            for name, part in definitions.items()
        },
    }


def _unless_unsupported(form: dict[str, Any]) -> dict[str, Any]:
    """A form that does not apply to entries with `unsupported`, whose type belongs to another format."""
    return {"if": {"required": ["unsupported"]}, "else": form}


_PARAMS: Final = "params_"


def _names(known: Collection[str]) -> dict[str, list[str]]:
    """Name of a `params` form -> the types with these parameters."""
    names = {name: [name] for name in sorted(known)}
    for name, alias in ALIASES.items():
        if alias.kind in known:
            names.setdefault(name if alias.params else alias.kind, []).append(name)
    return names


def _by_type(names: Mapping[str, list[str]], key: str, holder: str) -> dict[str, Any]:
    """An object with a known type at one key and its parameters at another."""
    # `if`/`then` for each type instead of `oneOf`: editors then complete and report only the keys of the chosen type.
    return {
        "properties": {key: {"enum": [name for those in names.values() for name in those]}},
        "allOf": [
            {
                "if": {"properties": {key: {"enum": those}}, "required": [key]},
                "then": {
                    "properties": {holder: _refer(f"params.{name}")},
                    **({"required": [holder]} if _needs_params(ALIASES.get(name, KindAlias(name))) else {}),
                },
            }
            for name, those in names.items()
        ],
    }


def _needs_params(alias: KindAlias) -> bool:
    return not alias.params.keys() >= {*assertion_kinds()[alias.kind].get("required", ())}


def _params(alias: KindAlias) -> dict[str, Any]:
    """The parameters of an assertion with all aliases; a list of texts may also be a single text."""
    schema = assertion_kinds()[alias.kind]
    own = {
        key: {"anyOf": [{"type": "string"}, entry]} if takes_text_list(schema, key) else entry
        for key, entry in with_mode_references(schema["properties"], f"{_FORM}.{_PARAMS}").items()
    }
    others = {written: key for written, key in SPELLINGS.get(alias.kind, {}).items() if written not in own}

    def present(key: str) -> dict[str, Any]:
        names = [key, *(written for written, meant in others.items() if meant == key)]
        return {"anyOf": [{"required": [name]} for name in names]}

    given = {*alias.params}
    needed = [present(key) for key in schema.get("required", ()) if key not in given]
    any_of = [key for each in schema.get("anyOf", ()) for key in each["required"]]
    if any_of and given.isdisjoint(any_of):
        needed.append({"anyOf": [present(key) for key in any_of]})
    beside = {"message": {"type": "string"}, "scope": True}
    properties = {**own, **{written: own[key] for written, key in others.items()}, **beside}
    if alias.kind == WRAPPER:
        needed.append(_refer("wrapped"))
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "allOf": needed} if needed else closed
