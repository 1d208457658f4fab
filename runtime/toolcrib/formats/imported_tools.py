"""The result of converting a document of another system to tools: what every importer returns.

An importer is a function from a parsed document to `ImportedTools`. It neither writes files nor prints. Names of
files, the check that a file reads back as its descriptor, the merge with earlier imports and the report are the same
for all of them (`cli/import_.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ImportedTool(NamedTuple):
    """A tool as the descriptor that will be written.

    Attributes:
        key: What identifies the tool in its source, such as `GET /pets/{id}`. It is unique in the source and stays
            the same across imports, also when the tool's name changes.
        descriptor: The members of the descriptor, `name` included. Values are JSON.
    """

    key: str
    descriptor: Mapping[str, Any]


class ImportRemark(NamedTuple):
    """A part of the source that was lost, repaired or replaced.

    Attributes:
        kind: `lost` (has no counterpart), `repaired` (was invalid, and this was assumed) or `secret` (was replaced by
            `${NAME}`).
        key: The tool that it belongs to; empty for the whole source.
        pointer: JSON Pointer into the source; empty for the whole tool.
        message: What happened to it, on one line. Secrets do not appear in it.
    """

    kind: str
    key: str
    pointer: str
    message: str


class ImportRefusal(NamedTuple):
    """A tool of the source that has no descriptor.

    Attributes:
        key: As in `ImportedTool`.
        reason: A word that stays the same across versions, to count by: `cycle`, `invalid_schema`, ...
        pointer: JSON Pointer into the source.
        message: Why, on one line.
    """

    key: str
    reason: str
    pointer: str
    message: str


class ImportedTools(NamedTuple):
    """The tools of a source.

    Attributes:
        tools: In the order of the source. Names are unique.
        refused: Tools without a descriptor.
        remarks: Losses, repairs and replaced secrets.
        skipped: Keys of tools of the source that were not asked for. They are not reported as gone.
    """

    tools: Sequence[ImportedTool]
    refused: Sequence[ImportRefusal] = ()
    remarks: Sequence[ImportRemark] = ()
    skipped: Sequence[str] = ()
