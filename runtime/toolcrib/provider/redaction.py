"""What people may see of calls: no secrets. The tool and the model get them as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from toolcrib.core.model import JSON, Content, Descriptor, Result
from toolcrib.core.text import DuplicateKey, compact, unique_members
from toolcrib.provider.conversations import CallRecord, Pending
from toolcrib.security.redaction import HIDDEN, Redactor


class Discretion:
    """Hides the secrets of calls: what stands at secret places by the schemas of the tools, and by names.

    What was hidden once is hidden wherever it turns up again, also within texts where it has 4 characters or more.

    Args:
        tool_of: Name of a tool -> the tool; None for one that is not there.
        before: Calls whose secrets are known already.
    """

    def __init__(
        self, tool_of: Callable[[str], Descriptor | None], before: Iterable[CallRecord] = ()
    ) -> None:
        self._tool_of = tool_of
        self._seen = Redactor()
        for record in before:
            self.arguments(record.tool, record.arguments)
            self._output(self._tool_of(record.tool), record.value)

    def arguments(self, tool: str, arguments: dict[str, JSON] | None) -> dict[str, JSON] | None:
        """The arguments of a call, without secrets."""
        known = self._tool_of(tool)
        masked = self._seen.add(arguments, None if known is None else known.input_schema)
        shown = self._seen.hide_in(masked)
        return shown if isinstance(shown, dict) else None

    def result(self, tool: str, result: Result) -> Result:
        """The result of a call, without secrets."""
        known = self._tool_of(tool)
        shown = result._replace(value=self._output(known, result.value))
        parts = tuple(
            self._part(known, part) for part in result.content
        )  # before the rest: they may tell secrets
        message = self._seen.hide_in_text(result.message)
        return shown._replace(value=self._seen.hide_in(shown.value), content=parts, message=message)

    def pending(self, pending: Pending) -> Pending:
        """A call that waits, without secrets."""
        details: Any = self._seen.hide_in(dict(pending.details))
        return pending._replace(
            arguments=self.arguments(pending.tool, pending.arguments) or {},
            message=self._seen.hide_in_text(pending.message),
            details=details,
        )

    def text(self, text: str) -> str:
        """A text without secrets that were seen."""
        return self._seen.hide_in_text(text)

    def value(self, value: JSON) -> JSON:
        """A value without secrets that were seen."""
        return self._seen.hide_in(value)

    def _part(self, tool: Descriptor | None, part: Content) -> Content:
        text = part.text
        if text is not None and _is_json(text):
            text = str(self._output(tool, text))
        hide = self._seen.hide_in_text
        return part._replace(
            text=None if text is None else hide(text),
            uri=None if part.uri is None else hide(part.uri),
            title=None if part.title is None else hide(part.title),
        )

    def _output(self, tool: Descriptor | None, value: JSON) -> JSON:
        """An answer without what stands at its secret places; one that is the text of such an answer as well."""
        schema = None if tool is None else tool.output_schema
        try:
            written = _written_in(value) if isinstance(value, str) else None
        except DuplicateKey:  # a secret may stand in the member that a reader leaves out
            return HIDDEN
        if written is None:
            return self._seen.add(value, schema)
        masked = self._seen.add(written, schema)
        return value if masked == written else compact(masked)


def _is_json(text: str) -> bool:
    try:
        return _written_in(text) is not None
    except DuplicateKey:
        return True


def _written_in(text: str) -> JSON:
    """The object or list that a text is JSON of; None where it is none. DuplicateKey where a key is there twice."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value: JSON = json.loads(text, object_pairs_hook=unique_members)  # `NaN` hides no secret
    except DuplicateKey:
        raise
    except (ValueError, RecursionError):
        return None
    return value


def unhidden(edited: Any, shown: Any, whole: Any) -> Any:
    """Arguments that somebody has edited who saw no secrets: `***` that was left in its place is the secret again.

    Args:
        edited: What came back.
        shown: What the person saw.
        whole: The same with its secrets.
    """
    if edited == HIDDEN == shown:
        return whole
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(whole, dict):
        return {key: unhidden(item, shown.get(key), whole.get(key, item)) for key, item in edited.items()}
    if isinstance(edited, list) and isinstance(shown, list) and isinstance(whole, list):
        same = len(edited) == len(shown) == len(whole)  # else nobody knows which place is which
        return [unhidden(*each) for each in zip(edited, shown, whole, strict=True)] if same else edited
    return edited
