"""The compiled validator of one schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import jsonschema_rs

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, NOTHING, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import BACKTRACKING, LINEAR, Key, Path, SchemaIndex, Site
from toolcrib.schema.validation.json_values import as_json, count_elements
from toolcrib.schema.validation.violations import Violation, describe_value, make_violation
from toolcrib.security.redaction import HIDDEN, SecretPlaces

if TYPE_CHECKING:
    from toolcrib.schema.validation.violation_search import ErrorBudget, ViolationSearch

MOST: Final = 20
"""Default maximum number of violations that are returned."""

COMPUTED: Final = 50
"""Maximum number of violations that are computed for one value."""


_ITSELF: Final = "toolcrib:///schema"
_ANYTHING: Final = SchemaIndex({})


def compile_schema(schema: Schema, documents: Mapping[str, JSON] = NOTHING) -> jsonschema_rs.Validator:
    """Compile a schema. Patterns run in linear time if all of them allow it, otherwise with a limit on steps.

    Args:
        schema: The schema.
        documents: Other documents for its references, by URI. Nothing is fetched.

    Raises:
        ValueError: jsonschema-rs refuses the schema.
    """
    # Look-around and back-references cannot be matched in linear time, but real schemas use them, so the
    # backtracking engine is the fallback; its limit on steps is the protection against ReDoS.
    try:
        return _compile(schema, documents, LINEAR)
    except jsonschema_rs.ValidationError as error:
        if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Format):
            raise
        return _compile(schema, documents, BACKTRACKING)


def _compile(
    schema: Schema,
    documents: Mapping[str, JSON],
    patterns: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions,
) -> jsonschema_rs.Validator:
    source: dict[str, Any] = {"retriever": documents.__getitem__} if documents else {"offline": True}
    # `format` is an annotation by default in 2020-12 (validation, section 7.2.1).
    return jsonschema_rs.validator_for(schema, validate_formats=False, pattern_options=patterns, **source)


def compile_parts(
    root: Site, parts: Mapping[str, Site], remotes: Mapping[str, JSON] = NOTHING
) -> jsonschema_rs.Validator:
    """Compile subschemas of a schema into a validator of an object, whose properties they validate by name.

    Raises:
        ValueError: jsonschema-rs refuses the schema.
    """
    properties: dict[str, JSON] = {name: _reference(root, site) for name, site in parts.items()}
    return compile_schema({**_dialect(root), "properties": properties}, {**remotes, _uri(root): root.schema})


def compile_part(
    root: Site, part: Site, remotes: Mapping[str, JSON] = NOTHING
) -> jsonschema_rs.Validator | None:
    """Compile one subschema of a schema; None if an `$id` above it changes the meaning of references."""
    schema = {**_dialect(root), **_reference(root, part)}
    try:
        return compile_schema(schema, {**remotes, _uri(root): root.schema})
    except ValueError:
        return None


def _reference(root: Site, site: Site) -> dict[str, JSON]:
    return {"$ref": f"{site.document or _uri(root)}#{quote(pointer_to(site.path))}"}


def _uri(root: Site) -> str:
    """The URI of a schema among the documents: its own base URI, against which its references resolve."""
    return root.base if urlsplit(root.base).scheme else _ITSELF


def _dialect(root: Site) -> dict[str, JSON]:
    named = root.get("$schema")
    return {} if named is None else {"$schema": named}


class ViolationReport(NamedTuple):
    """The violations of a value.

    Attributes:
        faults: The violations, outermost places first; empty if the value is valid.
        more: Whether there may be more, which were not computed.
        judged: Number of elements of a large value that were validated to find them.
    """

    faults: list[Violation]
    more: bool = False
    judged: int = 0

    def unshown(self, shown: int = MOST) -> list[str]:
        """A line that counts the violations beyond the first `shown`; empty if all are shown."""
        left = len(self.faults) - shown
        least = "at least " if self.more else ""
        return [f"... and {least}{left} more"] if left > 0 else []

    def counts(self, shown: int = MOST) -> dict[str, JSON]:
        """The number of violations if not all are shown, as `total` or `at_least`."""
        if len(self.faults) <= shown:
            return {}
        return {"at_least" if self.more else "total": len(self.faults)}


class Validator:
    """A schema, compiled once with jsonschema-rs. Nothing is fetched.

    `format` is an annotation and never refuses a value, the default of 2020-12; use `pattern`, `minimum` or `enum` to
    enforce a form. Patterns run in linear time. If one of them has look-around or back-references, they run with a limit
    on steps, and a value that needs more is refused.

    Attributes:
        schema: The schema as given.
        judge: `is_valid` of jsonschema-rs, for values that `json_violation` accepted. It stops at the first error, and
            may raise ValueError for a value that is not JSON.

    Args:
        schema: A schema that passed `check_schema`.
        remotes: Other documents by URI, for remote references.

    Raises:
        DocumentError: The schema cannot be compiled; `check_schema` gives more details.
    """

    def __init__(self, schema: Schema, *, remotes: Mapping[str, JSON] | None = None) -> None:
        self.schema = schema
        self._remotes: Mapping[str, JSON] = remotes or NOTHING
        self._parts: dict[Key, jsonschema_rs.Validator | None] = {}
        try:
            self._compiled = compile_schema(schema, self._remotes)
        except ValueError as error:
            raise DocumentError([Problem(code="invalid_schema", message=refusal_text(error))]) from None
        self.judge: Callable[[JSON], bool] = self._compiled.is_valid

    @cached_property
    def index(self) -> SchemaIndex:
        """The subschemas of the schema."""
        return SchemaIndex(self.schema, self._remotes)

    @cached_property
    def _effort(self) -> ErrorBudget:
        from toolcrib.schema.validation.violation_search import ErrorBudget  # noqa: PLC0415 -- not needed for valid values

        return ErrorBudget(self.index)

    @cached_property
    def secrets(self) -> SecretPlaces:
        """The places of secret values."""
        return SecretPlaces(self.index)

    def is_valid(self, value: JSON) -> bool:
        """Whether a value is valid; False if it is not JSON or is nested too deeply (see `json_violation`)."""
        value, alien = as_json(value)
        return alien is None and self.judge(value)

    def faults(self, value: JSON, *, most: int = MOST) -> list[Violation]:
        """The violations of a value, outermost places first, at most `most`; empty if it is valid.

        A missing or stray property is a violation at its own pointer. For `anyOf` and `oneOf`, the violations of the
        closest branch are returned. If a full explanation would take too much work, which doubles with each level under
        some schemas, a single violation names the innermost invalid place. Values at secret places are never shown. A
        value that is not JSON has only the violation of `json_violation`.
        """
        return self.report(value, most).faults

    def report(self, value: JSON, most: int = COMPUTED) -> ViolationReport:
        """The violations of a value, as in `faults`, and whether there may be more than these.

        The errors of a large value are found one by one, so the cost for a list of any length is that of validating it
        once and of explaining `most` violations.
        """
        value, alien = as_json(value)
        if alien is not None:
            # An object of an unknown type counts as text: Ellipsis makes every place with a secret name
            # secret.
            hidden = self.secrets.hides(alien.path, ...)
            return ViolationReport([alien._replace(got=HIDDEN) if hidden else alien])
        return ViolationReport([]) if self.judge(value) else self.explain(value, most)

    def explain(self, value: JSON, most: int = COMPUTED) -> ViolationReport:
        """The report on a JSON value that `judge` refused."""
        from toolcrib.schema.validation.explanation import Explanation  # noqa: PLC0415 -- not needed for valid values
        from toolcrib.schema.validation.violation_search import (  # noqa: PLC0415 -- as above
            LocatedError,
            SearchExhausted,
            UnexplainedError,
            whole_for,
        )

        explanation = Explanation(value, self.index, self.secrets.hides)
        whole = whole_for(self._effort)
        if count_elements(value, whole) < whole:
            if self._effort.too_much(self.index.root, value):
                return ViolationReport([self._innermost(value)], more=True)
            faults = explanation.of(self._compiled.iter_errors(value), most)
            return ViolationReport(faults, more=len(faults) >= most)
        search = self._search()
        try:
            errors = [*islice(search.errors(self.index.root, value), most)]
        except SearchExhausted:
            return ViolationReport([self._innermost(value)], more=True)
        unknown = LocatedError((), UnexplainedError("schema", "a value that matches its schema"))
        faults = explanation.of(errors or [unknown], most)
        return ViolationReport(faults, more=max(len(errors), len(faults)) >= most, judged=search.judged)

    def _search(self) -> ViolationSearch:
        from toolcrib.schema.validation.violation_search import ViolationSearch, whole_for  # noqa: PLC0415 -- as above

        whole = whole_for(self._effort)
        return ViolationSearch(self.index, self._effort, self._compile_beside, self._reference, whole)

    def _compile_beside(self, schema: dict[str, JSON]) -> jsonschema_rs.Validator:
        """Compile a schema that contains references into this one."""
        root = self.index.root
        return compile_schema({**_dialect(root), **schema}, {**self._remotes, _uri(root): root.schema})

    def _reference(self, site: Site) -> dict[str, JSON]:
        return _reference(self.index.root, site)

    def complains(self, site: Site, value: JSON) -> bool:
        """Whether a subschema refuses a value itself, not only its members."""
        part = self._part(site)
        if part is None or part.is_valid(value):
            return False
        from toolcrib.schema.validation.explanation import Explanation  # noqa: PLC0415 -- as above
        from toolcrib.schema.validation.violation_search import SearchExhausted  # noqa: PLC0415 -- as above

        try:
            errors = [*islice(self._search().errors(site, value), COMPUTED)]
        except SearchExhausted:
            return True
        told = Explanation(value, _ANYTHING, lambda _path, _value: True).of(errors, COMPUTED)
        return any(not fault.path for fault in told)

    def _part(self, site: Site) -> jsonschema_rs.Validator | None:
        """A subschema, compiled at first use."""
        if site.key not in self._parts:
            self._parts[site.key] = compile_part(self.index.root, site, self._remotes)
        return self._parts[site.key]

    def _innermost(self, value: JSON) -> Violation:
        from toolcrib.schema.validation.explanation import nouns, types_named  # noqa: PLC0415 -- as above

        path: Path = ()
        heads = [self.index.root]
        here: JSON = value
        while (inner := self._unfit_member(heads, here)) is not None:
            key, here, heads = inner
            path = (*path, key)
        types = nouns(types_named(self.index.together(heads)))
        got = describe_value(here, hidden=self.secrets.hides(path, here))
        hint = "there may be more: the schema is too complex to list all violations"
        return make_violation(path, "schema", types or "a value that matches its schema", got, hint)

    def _unfit_member(self, heads: list[Site], value: JSON) -> tuple[str | int, JSON, list[Site]] | None:
        from toolcrib.schema.validation.violation_search import members_of  # noqa: PLC0415 -- as above

        sites = self.index.together(heads)
        for key, item in members_of(value):
            inner = self.index.below(sites, key)
            parts = [part for site in inner if (part := self._part(site)) is not None]
            if parts and not any(part.is_valid(item) for part in parts):
                return key, item, inner
        return None


def validate(schema: Schema, value: JSON, remotes: Mapping[str, JSON] | None = None) -> list[Violation]:
    """The violations of a value under a schema that is used only once; see `Validator`.

    Raises:
        DocumentError: The schema cannot be compiled.
    """
    return Validator(schema, remotes=remotes).faults(value)


def refusal_text(error: ValueError) -> str:
    """The reason why jsonschema-rs refused a schema, in one line."""
    return (getattr(error, "message", "") or str(error)).splitlines()[0][:300]
