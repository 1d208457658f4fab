"""Whether a schema is one that toolcrib will use: every fault of it, at the place where it is written."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator
from functools import cache
from typing import Final

import jsonschema_rs

from toolcrib.errors import Problem, did_you_mean
from toolcrib.model import JSON, Schema
from toolcrib.subschemas import (
    NAMED,
    Path,
    SchemaIndex,
    Site,
    children,
    is_schema,
    pattern_validator,
    pointer_to,
)
from toolcrib.validation.explaining import Explanation
from toolcrib.validation.faults import shorten, show
from toolcrib.validation.json_values import json_fault
from toolcrib.validation.judging import compile_schema, refusal

DEPTH: Final = 64
"""Levels of nesting that a schema may have."""

SIZE: Final = 256 * 1024
"""Bytes of a schema as compact JSON in UTF-8."""

PATHS: Final = 100_000
"""Ways through references and combinators that a schema may offer for judging one value."""

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft-07/schema": "draft 7",
    "http://json-schema.org/draft-06/schema": "draft 6",
    "http://json-schema.org/draft-04/schema": "draft 4",
}
"""The dialects by the URI of their meta-schema; 2020-12 where a schema names none."""

_DEFAULT: Final = "https://json-schema.org/draft/2020-12/schema"
_BUNDLED: Final = tuple(uri.removesuffix("schema") for uri in DIALECTS)
_MOST: Final = 100


def check_schema(schema: JSON, pointer: str = "") -> list[Problem]:
    """Everything that is wrong with a schema; empty where it can be used.

    Codes: `not_json`, `schema_too_deep` (64 levels), `schema_too_large` (256 KiB), `unknown_dialect`,
    `invalid_schema` (the meta-schema says no), `bad_pattern`, `remote_ref` (nothing is ever
    fetched), `dangling_ref`, `endless_ref` (references that come back to where they began without
    going into the value), `schema_too_branchy`, and the warning `default_mismatch`.
    Unknown keywords are legal. `pointer` is put before the pointers of all problems.
    """
    problems = [*_form(schema)]
    if not problems and is_schema(schema):
        problems = [*_Check(schema).problems()]
    return [_under(pointer, problem) for problem in problems]


def _under(pointer: str, problem: Problem) -> Problem:
    return Problem(
        code=problem.code,
        message=problem.message,
        pointer=pointer + problem.pointer,
        hint=problem.hint,
        severity=problem.severity,
    )


def _form(schema: JSON) -> Iterator[Problem]:
    found = json_fault(schema, depth=DEPTH)
    if found is not None and found.expected == "fewer levels of nesting":
        hint = "move inner schemas to `$defs` and refer to them"
        yield Problem(code="schema_too_deep", message=f"the schema has more than {DEPTH} levels", hint=hint)
    elif found is not None:
        message = f"expected {found.expected}, got {found.got}"
        yield Problem(code="not_json", message=message, pointer=found.pointer, hint=found.hint)
    elif not is_schema(schema):
        message = f"a schema is an object, true or false, not {show(schema)}"
        yield Problem(code="invalid_schema", message=message, hint="e.g. `{type: object}`")
    else:
        size = len(json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode())
        if size > SIZE:
            message = f"the schema has {size:,} bytes; at most {SIZE:,} are allowed"
            yield Problem(code="schema_too_large", message=message)


@cache
def _meta_schema(dialect: str) -> jsonschema_rs.Validator:
    return compile_schema({"$ref": dialect})


class _Check:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.index = SchemaIndex(schema)
        self.sites: dict[tuple[str, Path], Site] = {}

    def problems(self) -> Iterator[Problem]:
        dialect = self._dialect()
        if dialect not in DIALECTS:
            yield self._unknown(dialect)
            return
        found = [*self._meta_problems(self.index.root, dialect)]
        self._collect()
        found += [problem for site in self.sites.values() for problem in self._problems_at(site)]
        found += self._endless()
        yield from sorted(dict.fromkeys(found), key=lambda problem: problem.pointer)
        if not found:
            yield from self._compiled()

    def _dialect(self) -> str:
        named = self.schema.get("$schema", _DEFAULT) if isinstance(self.schema, dict) else _DEFAULT
        return named.removesuffix("#") if isinstance(named, str) else show(named)

    def _unknown(self, dialect: str) -> Problem:
        hint = did_you_mean(dialect[:200], DIALECTS) or f"known: {', '.join(DIALECTS)}"
        message = f"the dialect {show(dialect)} is not known"
        return Problem(code="unknown_dialect", message=message, pointer="/$schema", hint=hint)

    def _meta_problems(self, site: Site, dialect: str) -> Iterator[Problem]:
        errors = _meta_schema(dialect).iter_errors(site.schema)
        told = Explanation(site.schema, SchemaIndex(True), lambda _path, _value: False).of(errors, _MOST)
        for fault in told:
            message = f"expected {fault.expected}, got {fault.got}"
            if isinstance(fault.path[-1:], tuple) and fault.path:
                message = f"`{shorten(str(fault.path[-1]))}`: {message}"
            place = pointer_to((*site.path, *fault.path))
            yield Problem(code="invalid_schema", message=message, pointer=place, hint=fault.hint)

    def _collect(self) -> None:
        """Find all subschemas, also those that only a reference finds."""
        pending = deque([self.index.root])
        while pending:
            for site in self.index.walk(pending.popleft()):
                if site.key not in self.sites:
                    self.sites[site.key] = site
                    pending.extend(target for _, _, target in self.index.targets(site) if target)

    def _problems_at(self, site: Site) -> Iterator[Problem]:
        if isinstance(site.schema, bool):
            return
        pattern = site.schema.get("pattern")
        if isinstance(pattern, str):
            yield from _bad_pattern(pattern, (*site.path, "pattern"))
        patterns = site.schema.get("patternProperties")
        for each in patterns if isinstance(patterns, dict) else ():
            yield from _bad_pattern(each, (*site.path, "patternProperties", each))
        for keyword, reference, target in self.index.targets(site):
            if target is None and not _bundled(reference, site.base):
                yield self._unresolved(reference, site, (*site.path, keyword))

    def _unresolved(self, reference: str, site: Site, path: Path) -> Problem:
        shown = f"`{shorten(reference)}`"
        if not self.index.knows(reference, site.base):
            message = f"{shown} lies outside the schema, and nothing is fetched"
            hint = "copy it under `$defs` and refer to it as `#/$defs/NAME`"
            return Problem(code="remote_ref", message=message, pointer=pointer_to(path), hint=hint)
        names = [pointer for pointer in self._definitions() if pointer != reference]
        hint = did_you_mean(reference[:200], names) or (
            f"there are: {', '.join(names[:10])}" if names else ""
        )
        message = f"{shown} leads nowhere"
        return Problem(code="dangling_ref", message=message, pointer=pointer_to(path), hint=hint)

    def _definitions(self) -> list[str]:
        if isinstance(self.schema, bool):
            return []
        tables = {keyword: self.schema.get(keyword) for keyword in ("$defs", "definitions")}
        return [
            f"#{pointer_to((keyword, name))}"
            for keyword, table in tables.items()
            if isinstance(table, dict)
            for name in table
        ]

    def _endless(self) -> Iterator[Problem]:
        """References that come back without going into the value, and combinators that multiply."""
        edges = {key: [other.key for other in self._judges(site)] for key, site in self.sites.items()}
        into: dict[tuple[str, Path], list[tuple[str, Path]]] = {key: [] for key in edges}
        for key, others in edges.items():
            for other in others:
                into[other].append(key)
        waiting = Counter({key: len(others) for key, others in edges.items()})
        ready = deque(key for key, number in waiting.items() if number == 0)
        ways: dict[tuple[str, Path], int] = {}
        while ready:
            key = ready.popleft()
            ways[key] = 1 + sum(ways[other] for other in edges[key])
            for other in into[key]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    ready.append(other)
        yield from self._cycles(edges.keys() - ways.keys(), edges)
        if any(number > PATHS for number in ways.values()):
            message = f"references and combinators multiply to more than {PATHS:,} ways to judge one value"
            hint = "combinators that refer to one another twice double with each step"
            yield Problem(code="schema_too_branchy", message=message, hint=hint)

    def _cycles(
        self, left: set[tuple[str, Path]], edges: dict[tuple[str, Path], list[tuple[str, Path]]]
    ) -> Iterator[Problem]:
        left = set(left)
        while True:
            entered = {other for key in left for other in edges[key]} & left
            if entered == left:
                break
            left = entered
        for key in left:
            for keyword, reference, target in self.index.targets(self.sites[key]):
                if target is not None and target.key in left:
                    message = f"`{shorten(reference)}` comes back to itself without going into the value"
                    hint = "a schema may refer to itself under `properties` or `items`"
                    place = pointer_to((*key[1], keyword))
                    yield Problem(code="endless_ref", message=message, pointer=place, hint=hint)

    def _judges(self, site: Site) -> Iterator[Site]:
        yield from self.index.in_place(site)
        if not isinstance(site.schema, bool) and not (self.index.legacy and "$ref" in site.schema):
            yield from (
                site.child(path, inner) for path, inner in children(site.schema) if path[0] in ("not", "if")
            )

    def _compiled(self) -> Iterator[Problem]:
        """What only compiling finds, and defaults that their own schema refuses."""
        try:
            compiled = compile_schema(self.schema)
        except ValueError as error:
            place = pointer_to(tuple(getattr(error, "instance_path", ())))
            yield Problem(code="invalid_schema", message=refusal(error), pointer=place)
            return
        del compiled
        yield from self._default_problems()

    def _default_problems(self) -> Iterator[Problem]:
        return iter(())


def _bundled(reference: str, base: str) -> bool:
    return any((reference if "://" in reference else base).startswith(prefix) for prefix in _BUNDLED)


def _bad_pattern(pattern: str, path: Path) -> Iterator[Problem]:
    try:
        pattern_validator(pattern)
    except ValueError:
        message = f"{show(pattern)} is no regular expression that can be used"
        hint = "ECMA-262 syntax; a `\\` and unpaired brackets need a `\\` before them; repetitions multiply to 1 MiB at most"
        yield Problem(code="bad_pattern", message=message, pointer=pointer_to(path), hint=hint)


_ = NAMED
