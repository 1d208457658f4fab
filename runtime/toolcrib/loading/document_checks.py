"""Check documents against their schema, find the parts that stay valid, and warn of hidden characters."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, near_misses
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import keys_of
from toolcrib.core.protocols import Kinds
from toolcrib.core.schemas import LATER_KEYS, Kind, with_blocks, without_loader_checks
from toolcrib.core.subschemas import Path, SchemaIndex, Site
from toolcrib.loading.documents.document import Document, restore_text
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.schema.validation import Validator, Violation, check_schema
from toolcrib.security.hidden_characters import (
    HiddenCharacter,
    decode_tag_characters,
    each_hidden,
    spell_out_hidden,
    texts_in,
)

MAX_PROBLEMS = 100
"""Maximum number of schema problems reported for one document."""

_TEXT = "a string"
"""The `expected` of a violation where only text is valid."""

TOO_MANY = "too_many_problems"
"""Code of the problem that reports that checking stopped early."""

_CODES = {
    "additionalProperties": "unknown_key",
    "required": "missing_key",
    "type": "wrong_type",
    "enum": "not_allowed",
    "const": "not_allowed",
    "pattern": "wrong_form",
    "oneOf": "wrong_combination",
    "dependentSchemas": "wrong_combination",
    "falseSchema": "wrong_combination",
    "false": "wrong_combination",
}


_MODE_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_BARE = re.compile(r"-?[0-9.]+|true|false")
_OF_FORMS = frozenset({"missing_key", "wrong_combination"})


_WITH_BLOCKS: Final = frozenset({"descriptor", "scenario"})


# Compiling takes about 10 ms, more than reading a small project: a process that opens many (a test suite, a server that
# reloads) does it once per set of modes. Keyed by the text of the blocks, since a mode may compute its schema.
@lru_cache(maxsize=16)
def _compiled(kind: Kind, blocks: str) -> Validator:
    return Validator(without_loader_checks(with_blocks(kind, json.loads(blocks))))


def _text_of(blocks: Mapping[str, Schema]) -> str:
    """The blocks as JSON, written only if one of them is another object than the last time: that takes 2 ms for our modes."""
    known, text = _LAST_BLOCKS[0]
    if known.keys() != blocks.keys() or any(known[mode] is not schema for mode, schema in blocks.items()):
        text = json.dumps(blocks)
        _LAST_BLOCKS[0] = blocks, text
    return text


_LAST_BLOCKS: list[tuple[Mapping[str, Schema], str]] = [({}, "{}")]


class DocumentChecker:
    """The compiled schema of one kind of document."""

    def __init__(self, kind: Kind, kinds: Kinds) -> None:
        """Compile the schema.

        Raises:
            ConfigurationError: A mode returned an invalid block schema.
        """
        blocks = {mode: schema for mode in kinds.modes if (schema := kinds.schema_for(mode)) is not None}
        self._kind = kind
        try:
            # Packs and projects hold no blocks, and a mode whose schema is not JSON must not fail them.
            self._validator = _compiled(kind, _text_of(blocks) if kind in _WITH_BLOCKS else "{}")
        except DocumentError as error:
            raise _foreign_fault(blocks) or error from error
        self._schema: Any = self._validator.schema

    @property
    def _index(self) -> SchemaIndex:
        return self._validator.index

    def check(self, document: Document, keys: Collection[str] = ()) -> tuple[JSON, list[Problem]]:
        """The value of a document, and its schema problems.

        An unquoted number in YAML is read as the text that was written (`1.10`) at the top-level `keys`, and
        wherever the schema accepts only text.
        """
        value = restore_text(document, keys)
        problems = self.problems(value)
        places = self._missed_texts(value) if problems else []
        if not places:
            return value, problems
        value = restore_text(document, keys, places)
        return value, self.problems(value)

    def _missed_texts(self, value: JSON) -> list[Path]:
        faults = self._validator.faults(value, most=MAX_PROBLEMS)
        missed = [fault.path for fault in faults if fault.keyword == "type" and fault.expected == _TEXT]
        return [path for path in missed if not self._wants_quotes(path)]

    def _wants_quotes(self, path: Path) -> bool:
        """Whether a number must be quoted at a place (`x-quoted`): elsewhere it is compared with a quoted text."""
        return any(site.get("x-quoted") is True for site in self._index.at(path))

    def problems(self, value: JSON) -> list[Problem]:
        """All schema problems, with pointers into the document."""
        # Most documents are valid, and a verdict is faster than a list of faults.
        if self._validator.judge(value):
            return []
        known, problems = self._without_later_keys(value)
        if self._kind == "descriptor":
            known = _without_foreign_blocks(known, self._schema["properties"], self._schema["x-moved"])
        faults = self._validator.faults(known, most=MAX_PROBLEMS)
        problems += _once([self._in_own_words(fault) or problem_of(fault) for fault in faults])
        if len(faults) == MAX_PROBLEMS:
            message = f"stopped after {MAX_PROBLEMS} problems; the rest was not checked"
            problems.append(Problem(code=TOO_MANY, message=message, hint="fix these first"))
        return problems

    def _in_own_words(self, fault: Violation) -> Problem | None:
        """A problem with the schema's own message (`errorMessage`) for a form or combination of keys; None without one.

        A key that is missing or superfluous in the nearest branch of a `oneOf` has a hint and keeps its own problem.
        """
        if fault.keyword == "pattern":
            return self._form(fault)
        if fault.keyword == "enum" or (fault.keyword == "type" and fault.got != "null"):
            meant = self._meant(fault)
            if meant is not None or fault.keyword == "enum":
                return meant
        if fault.keyword == "additionalProperties":
            return self._name(fault)
        if fault.keyword == "type" and fault.expected == _TEXT and self._wants_quotes(fault.path):
            # Only numbers and booleans become text by quotes; an object needs another correction.
            hint = "put it in quotes to make it text" if _BARE.fullmatch(fault.got) else ""
            return problem_of(fault)._replace(hint=hint)
        alone = fault.keyword == "oneOf"
        if not alone and (_CODES.get(fault.keyword) not in _OF_FORMS or not fault.hint):
            return None
        path = fault.path if alone else fault.path[:-1]
        for site in self._index.at(path):
            message = site.get("errorMessage")
            if isinstance(message, str) and not _wants(site, fault.path):
                return Problem(code="wrong_combination", message=message, pointer=pointer_of(path))
        return None

    def _form(self, fault: Violation) -> Problem | None:
        for site in self._index.at(fault.path):
            message = site.get("errorMessage")
            if isinstance(message, str):
                return Problem(
                    code="wrong_form", message=f"{message}; got {fault.got}", pointer=fault.pointer
                )
        return None

    def _meant(self, fault: Violation) -> Problem | None:
        """The problem of a value that other systems have for something that is written in another way here (`x-meant`).

        `*` in it stands for any other value: one that may be a secret is not shown.
        """
        for site in self._index.at(fault.path):
            meant = site.get("x-meant")
            given = fault.got.strip('"')
            if isinstance(meant, dict) and (given in meant or "*" in meant):
                return problem_of(fault)._replace(hint=f"write `{meant.get(given, meant.get('*'))}`")
        return None

    def _name(self, fault: Violation) -> Problem | None:
        """The problem of a key that matches no pattern of keys, or that belongs elsewhere.

        `x-moved` says where single keys belong, `x-holder` under which key all unknown ones do.
        """
        for site in self._index.at(fault.path[:-1]):
            moved, key = site.get("x-moved"), str(fault.path[-1])
            if isinstance(moved, dict) and key in moved:
                return problem_of(fault)._replace(hint=f"write `{moved[key]}` instead")
            holder = site.get("x-holder")
            if isinstance(holder, str) and not fault.hint.startswith("did you mean"):
                name = str(fault.path[-2])
                return problem_of(fault)._replace(hint=f"write `{name}: {{{holder}: {{{key}: ...}}}}`")
            message = site.get("errorMessage")
            if isinstance(message, str) and site.get("patternProperties") is not None:
                return problem_of(fault)._replace(hint=message)
        return None

    def _without_later_keys(self, value: JSON) -> tuple[JSON, list[Problem]]:
        if not isinstance(value, dict):
            return value, []
        later = LATER_KEYS[self._kind] & value.keys()
        problems = [
            Problem(
                code="not_supported_yet",
                message=f"`{key}` is not supported yet",
                pointer=f"/{key}",
                hint="remove it; a key without effect is refused rather than ignored",
            )
            for key in sorted(later)
        ]
        return {key: item for key, item in value.items() if key not in later}, problems


def _foreign_fault(blocks: Mapping[str, Schema]) -> ConfigurationError | None:
    """The error for the first mode with an invalid block schema; None if all are valid."""
    for mode, schema in blocks.items():
        problems = check_schema(schema)
        if problems:
            message = f"mode `{mode}` returned an invalid block schema: {problems[0].message}"
            hint = "update or uninstall the distribution that provides it; `toolcrib doctor` shows its name"
            return ConfigurationError(message, hint=hint)
    return None


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """The problems without duplicates; a value of the wrong type has no other problem."""
    # `oneOf` and `allOf` report the same wrong type once for each branch.
    types: dict[str, Problem] = {}
    for problem in problems:
        if problem.code == "wrong_type":
            types.setdefault(problem.pointer, problem)
    return list(dict.fromkeys(types.get(problem.pointer, problem) for problem in problems))


def _wants(site: Site, path: Path) -> bool:
    """Whether a schema requires the key at the end of a path."""
    names = site.get("required")
    return isinstance(names, list) and bool(path) and path[-1] in names


def problem_of(fault: Violation) -> Problem:
    """Convert a violation into a problem of a document."""
    code = _CODES.get(fault.keyword, "wrong_value")
    name = fault.path[-1] if fault.path else ""
    message = f"expected {fault.expected}, got {fault.got}"
    if code == "unknown_key":
        message = f"unknown key `{name}`"
    elif fault.keyword in {"falseSchema", "false"}:
        message = f"`{name}` cannot be combined with the keys next to it"
    elif code == "missing_key":
        message = f"missing `{name}`"
    return Problem(code=code, message=message, pointer=fault.pointer, hint=fault.hint)


def _without_foreign_blocks(value: JSON, properties: Mapping[str, Any], moved: Collection[str]) -> JSON:
    """Remove the blocks of modes that are not installed; the loader warns of each.

    An object under an unknown key is such a block, unless the key looks like a misspelt known key, or like another word for one.
    """
    if not isinstance(value, dict):
        return value
    mode = value.get("mode")

    def foreign(key: str) -> bool:
        if key in properties or key in moved or not isinstance(value[key], dict):
            return False
        return key == mode or (_MODE_NAME.fullmatch(key) is not None and not near_misses(key, properties))

    return {key: item for key, item in value.items() if not foreign(key)}


def valid_parts(value: dict[str, Any], problems: Sequence[Problem], shape: DocumentChecker) -> dict[str, Any]:
    """The parts of a document that are valid by its schema.

    An unknown key is removed alone, at any depth. For any other problem, the smallest part on which nothing else
    depends is removed: a collection, a named state, a key of an agent or of one of its turns, the guards or effects of
    a reply from the faulty one on; otherwise the whole top-level key.

    Args:
        value: The document.
        problems: Its schema problems.
        shape: The checker that found them.
    """
    # One fault must not hide others: `validate` reports all problems in one go, so the rest is still checked.
    if not problems:
        return value
    # Unknown keys come second: removing a whole part may already have removed them.
    left = _without_parts(value, [problem for problem in problems if problem.code != "unknown_key"])
    for problem in problems:
        if problem.code == "unknown_key":
            left = _pruned(left, keys_of(problem.pointer))
    # Without its misspelt key an object may lack a required one, so the rest is checked again.
    left = _without_parts(left, shape.problems(left))
    wrong = [problem.pointer for problem in shape.problems(left) if problem.pointer]
    return _without(left, [keys_of(pointer)[0] for pointer in wrong if pointer not in _MISSED_BY_NOBODY])


_MISSED_BY_NOBODY: Final = frozenset({"/agent/turns"})
"""Parts that are removed alone; their siblings are still checked."""


_NAMED: Final = frozenset({"define", "let", "prompts", "state", "store"})
"""Keys with named parts, each of which is independent of the others."""

_IN_ORDER: Final = frozenset({"effects", "guard"})
"""Keys of a reply with a list in which only later parts can depend on a part."""


def _without_parts(value: dict[str, Any], problems: Iterable[Problem]) -> dict[str, Any]:
    """The value without the smallest independent parts that contain the problems."""
    left = value
    for path in {tuple(_part_of(keys_of(problem.pointer))) for problem in problems if problem.pointer}:
        left = _pruned(left, path)
    return left


def _part_of(path: Sequence[str]) -> Sequence[str]:
    if path[0] in _NAMED:
        return path[:2]
    if path[0] == "agent":
        return path[: 4 if path[1:2] == ["turns"] else 2]
    if path[0] in _BLOCKS:
        for depth, key in enumerate(path):
            if key in _IN_ORDER and depth:
                return path[: depth + 1 + (path[depth + 1 : depth + 2] not in ([], ["0"]))]
    return path[:1]


_BLOCKS: Final = frozenset({"mock", "mocks"})


def _without(value: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    gone = set(keys)
    return {key: item for key, item in value.items() if key not in gone}


def _pruned(holder: Any, path: Sequence[str]) -> Any:
    """A copy of the value without the part at a path; in a list, also without the items after it.

    Only the containers on the path are copied.
    """
    step, *rest = path
    if isinstance(holder, dict) and step in holder:
        if not rest:
            return _without(holder, [step])
        return {**holder, step: _pruned(holder[step], rest)}
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder):
        index = int(step)
        if not rest:
            return holder[:index]
        return [*holder[:index], _pruned(holder[index], rest), *holder[index + 1 :]]
    return holder


MAX_HIDDEN_PROBLEMS: Final = 20
"""Maximum number of texts with hidden characters reported for one document."""

MAX_HIDDEN_CHARACTERS: Final = 100
"""Maximum number of hidden characters counted in one text."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPED: Final = re.compile(r"\\[bfru]")


def may_have_hidden_characters(text: str) -> bool:
    """A quick check whether a document, as canonical JSON, may contain a hidden character."""
    # Canonical JSON escapes control characters only, so plain ASCII without these escapes has nothing to hide.
    return not text.isascii() or "\x7f" in text or _ESCAPED.search(text) is not None


def hidden_problems(value: JSON) -> list[Problem]:
    """A warning, `hidden_character`, for each text or key of a document that contains hidden characters."""
    # A model reads what a reviewer cannot see: Unicode tags and zero-width characters carry hidden instructions.
    problems: list[Problem] = []
    for path, text, in_key in texts_in(value) if isinstance(value, dict) else ():
        in_pattern = path[-2:-1] == ("patternProperties",) if in_key else path[-1] == "pattern"
        # A regular expression may legitimately contain control characters.
        looked_at = _CONTROLS.sub(" ", text) if in_pattern else text
        found = [*islice(each_hidden(looked_at), MAX_HIDDEN_CHARACTERS + 1)]
        if found and len(problems) == MAX_HIDDEN_PROBLEMS:
            problems[-1] = problems[-1]._replace(
                hint="the rest of the document contains more hidden characters"
            )
            break
        if found:
            problems.append(_problem(found, pointer_of(path), "the key" if in_key else "the text"))
    return problems


def _problem(found: list[HiddenCharacter], pointer: str, what: str) -> Problem:
    first = found[0]
    count = f"{len(found) - 1}" if len(found) <= MAX_HIDDEN_CHARACTERS else "many"
    more = f", and {count} more" if len(found) > 1 else ""
    message = f"{what} contains {first} ({first.why}){more}"
    said = decode_tag_characters("".join(chr(each.code) for each in found))
    if said:
        message += f"; the tag characters spell `{spell_out_hidden(said)}`"
    hint = "remove it unless it is intended"
    return Problem(code="hidden_character", message=message, pointer=pointer, hint=hint, severity="warning")
