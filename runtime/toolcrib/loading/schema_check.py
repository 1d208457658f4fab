"""The shape of a document: its JSON Schema, compiled once, and its faults told as problems of a file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, near_misses
from toolcrib.core.model import JSON, Schema
from toolcrib.core.protocols import Kinds
from toolcrib.core.schemas import LATER_KEYS, Kind, with_blocks, without_told
from toolcrib.core.subschemas import Path, SchemaIndex, Site
from toolcrib.loading.documents.document import Document, restore_text
from toolcrib.loading.documents.positions import pointer_of
from toolcrib.schema.validation import Validator, Violation, check_schema

MOST = 100
"""Problems of the shape of one document that are reported."""

_TEXT = "a string"
"""What a fault says is expected where only a text will do."""

TOO_MANY = "too_many_problems"
"""Code of the problem that says that there may be more."""

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


class Shape:
    """The compiled schema of one kind of document."""

    def __init__(self, kind: Kind, kinds: Kinds) -> None:
        """Compile it.

        Raises:
            ConfigurationError: What a mode gives for the schema of its block is none.
        """
        blocks = {mode: schema for mode in kinds.modes if (schema := kinds.schema_for(mode)) is not None}
        self._kind = kind
        self._schema = without_told(with_blocks(kind, blocks))
        try:
            self._validator = Validator(self._schema)
        except DocumentError as error:
            raise _foreign_fault(blocks) or error from error

    @cached_property
    def _index(self) -> SchemaIndex:
        return SchemaIndex(self._schema)

    def judged(self, document: Document, keys: Collection[str] = ()) -> tuple[JSON, list[Problem]]:
        """What a document says, and all that is wrong with its shape.

        A number without quotes in YAML is the text that was written (`1.10`) at the top-level `keys`, and
        wherever the schema takes nothing but a text.
        """
        value = restore_text(document, keys)
        problems = self.problems(value)
        places = self._missed_texts(value) if problems else []
        if not places:
            return value, problems
        value = restore_text(document, keys, places)
        return value, self.problems(value)

    def _missed_texts(self, value: JSON) -> list[Path]:
        faults = self._validator.faults(value, most=MOST)
        missed = [fault.path for fault in faults if fault.keyword == "type" and fault.expected == _TEXT]
        return [path for path in missed if not self._wants_quotes(path)]

    def _wants_quotes(self, path: Path) -> bool:
        """Whether a number without quotes is refused at a place, since it would not be one where it is compared."""
        return any(site.get("x-quoted") is True for site in self._index.at(path))

    def problems(self, value: JSON) -> list[Problem]:
        """All that is wrong with the shape, with pointers into the document."""
        if self._validator.judge(value):
            return []
        known, problems = self._without_later_keys(value)
        if self._kind == "descriptor":
            known = _without_foreign_blocks(known, self._schema["properties"])
        faults = self._validator.faults(known, most=MOST)
        problems += _once([self._in_own_words(fault) or told(fault) for fault in faults])
        if len(faults) == MOST:
            message = f"{MOST} faults were found; what else is wrong was not looked at"
            problems.append(Problem(code=TOO_MANY, message=message, hint="mend these first"))
        return problems

    def _in_own_words(self, fault: Violation) -> Problem | None:
        """What the schema itself says (`errorMessage`) of a form, or of keys that do not go together; None if nothing.

        A key that is missing or too much in the nearest form of a `oneOf` comes with a hint.
        """
        if fault.keyword == "pattern":
            return self._form(fault)
        if fault.keyword == "additionalProperties":
            return self._name(fault)
        if fault.keyword == "type" and fault.expected == _TEXT and self._wants_quotes(fault.path):
            hint = "write it in quotes, as a text" if _BARE.fullmatch(fault.got) else ""
            return told(fault)._replace(hint=hint)
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

    def _name(self, fault: Violation) -> Problem | None:
        """A key that has none of the forms that keys have here, or that stands elsewhere now (`x-moved`)."""
        for site in self._index.at(fault.path[:-1]):
            moved = site.get("x-moved")
            if isinstance(moved, dict) and fault.path[-1] in moved:
                return told(fault)._replace(hint=f"write `{moved[str(fault.path[-1])]}` instead")
            message = site.get("errorMessage")
            if isinstance(message, str) and site.get("patternProperties") is not None:
                return told(fault)._replace(hint=message)
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
                hint="leave it out; a key without effect is refused rather than ignored",
            )
            for key in sorted(later)
        ]
        return {key: item for key, item in value.items() if key not in later}, problems


def _foreign_fault(blocks: Mapping[str, Schema]) -> ConfigurationError | None:
    """The error for the first mode whose schema is at fault; None where none is."""
    for mode, schema in blocks.items():
        problems = check_schema(schema)
        if problems:
            message = f"what mode `{mode}` gives for the schema of its block is none: {problems[0].message}"
            hint = "update the distribution that offers it, or remove it; `toolcrib doctor` names it"
            return ConfigurationError(message, hint=hint)
    return None


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Each problem once; of a place that has the wrong type nothing else is told."""
    types: dict[str, Problem] = {}
    for problem in problems:
        if problem.code == "wrong_type":
            types.setdefault(problem.pointer, problem)
    return list(dict.fromkeys(types.get(problem.pointer, problem) for problem in problems))


def _wants(site: Site, path: Path) -> bool:
    """Whether a schema wants the key at the end of a path in any case."""
    names = site.get("required")
    return isinstance(names, list) and bool(path) and path[-1] in names


def told(fault: Violation) -> Problem:
    """A fault as a problem of a document, with its pointer there."""
    code = _CODES.get(fault.keyword, "wrong_value")
    name = fault.path[-1] if fault.path else ""
    message = f"expected {fault.expected}, got {fault.got}"
    if code == "unknown_key":
        message = f"`{name}` is no key here"
    elif fault.keyword in {"falseSchema", "false"}:
        message = f"`{name}` does not go with what stands beside it"
    elif code == "missing_key":
        message = f"`{name}` is missing"
    return Problem(code=code, message=message, pointer=fault.pointer, hint=fault.hint)


def _without_foreign_blocks(value: JSON, properties: Mapping[str, Any]) -> JSON:
    """Leave out the blocks of modes that are not installed; the loader warns of each.

    An object under an unknown key is one, unless the key looks like a known one that is misspelt.
    """
    if not isinstance(value, dict):
        return value
    mode = value.get("mode")

    def foreign(key: str) -> bool:
        if key in properties or not isinstance(value[key], dict):
            return False
        return key == mode or (_MODE_NAME.fullmatch(key) is not None and not near_misses(key, properties))

    return {key: item for key, item in value.items() if not foreign(key)}
