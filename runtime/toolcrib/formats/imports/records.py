"""The record of an import, `.toolcrib/imports/DIR/NAME.json`: what was generated last, which the next import merges against."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.text import decode_json

FOLDER: Final = ".toolcrib/imports"
"""Folder of the records, in the root of the project."""

FORMAT: Final = "toolcrib-import/1"

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class RecordedTool(NamedTuple):
    """A tool as it was generated last.

    Attributes:
        file: Path of its file, relative to the root of the project, with `/`.
        descriptor: The generated descriptor.
        gone: Whether the source no longer has the tool.
    """

    file: str
    descriptor: Mapping[str, Any]
    gone: bool = False


class ImportRecord(NamedTuple):
    """What an import generated.

    Attributes:
        kind: The kind of the source, such as `openapi`.
        source: The source as it was named: a path relative to the root of the project, a URL, or a name.
        tools: Key -> tool.
        refused: Key of a tool that has no descriptor -> the reason.
    """

    kind: str
    source: str
    tools: Mapping[str, RecordedTool]
    refused: Mapping[str, str]


def record_name(kind: str, source: str) -> str:
    """The usual name of an import: its kind, and the file name of its source without suffix."""
    last = source.rstrip("/").replace("\\", "/").rpartition("/")[2]
    stem = last.partition(".")[0] or last
    return _FOREIGN.sub("-", f"{kind}-{stem}").strip("-.")


def is_record_name(name: str) -> bool:
    """Whether a name can be the name of an import: it is a part of a file name."""
    return bool(_NAME.fullmatch(name))


def record_text(record: ImportRecord) -> str:
    """The text of a record; equal records have the same text."""
    value = {
        "format": FORMAT,
        "kind": record.kind,
        "source": record.source,
        # The order within a descriptor is kept: it is the order of the keys in its file.
        "tools": {key: _written(tool) for key, tool in sorted(record.tools.items())},
        "refused": dict(sorted(record.refused.items())),
    }
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def _written(tool: RecordedTool) -> dict[str, Any]:
    gone = {"gone": True} if tool.gone else {}
    return {"file": tool.file, **gone, "descriptor": tool.descriptor}


def parse_record(text: bytes, path: str) -> ImportRecord:
    """Parse a record.

    Raises:
        ConfigurationError: It is damaged, or a newer version of toolcrib has written it.
    """
    try:
        value = decode_json(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    form = value.get("format") if isinstance(value, dict) else None
    if isinstance(form, str) and form != FORMAT and form.startswith("toolcrib-import/"):
        message = f"{path} has the format `{form}`, and this version of toolcrib reads `{FORMAT}`"
        raise ConfigurationError(message, code="newer_import_record", hint="update toolcrib")
    why = "it has no `format`" if form != FORMAT else _fault(value)
    if why or not isinstance(value, dict):
        raise _damaged(path, why)
    content: dict[str, Any] = value
    return ImportRecord(
        content["kind"],
        content["source"],
        {
            key: RecordedTool(tool["file"], tool["descriptor"], tool.get("gone") is True)
            for key, tool in content["tools"].items()
        },
        content["refused"],
    )


def _fault(value: Any) -> str:
    expected = {"format": str, "kind": str, "source": str, "tools": dict, "refused": dict}
    for key, kind in expected.items():
        if not isinstance(value.get(key), kind):
            return f"`{key}` is missing or has the wrong type"
    for key, tool in value["tools"].items():
        if not isinstance(tool, dict) or not isinstance(tool.get("file"), str):
            return f"the tool `{key}` has no file"
        if not isinstance(tool.get("descriptor"), dict):
            return f"the tool `{key}` has no descriptor"
        # A record is data of the project: it must not direct writes to other places.
        if not _is_below(tool["file"]):
            return f"the file of the tool `{key}` is not a path in the project"
    if not all(isinstance(reason, str) for reason in value["refused"].values()):
        return "a reason in `refused` is not a text"
    return ""


def _is_below(file: str) -> bool:
    steps = file.split("/")
    return bool(file) and not any(step in ("", ".", "..") for step in steps) and not set("\\:\0") & set(file)


def _damaged(path: str, why: str) -> ConfigurationError:
    hint = "restore it from version control; or delete it, and the next import treats existing files as files of others"
    return ConfigurationError(
        f"{path} is not the record of an import: {why}", code="damaged_import_record", hint=hint
    )
