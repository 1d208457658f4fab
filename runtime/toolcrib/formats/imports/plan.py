"""What an import writes: new files, and files of an earlier import merged with what the source says now."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolcrib.core.protocols import Kinds
from toolcrib.core.text import json_equal
from toolcrib.formats.descriptor_files import DescriptorFile, DescriptorFiles, json_text, yaml_text
from toolcrib.formats.imports.merge import MergeConflict, merge
from toolcrib.formats.imports.records import ImportRecord, RecordedTool
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.descriptors import parse_descriptor
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.edits import change_object

_ENDINGS: Final = (".tool.yaml", ".tool.yml", ".tool.json")


class PlannedFile(NamedTuple):
    """What becomes of the file of a tool.

    Attributes:
        key: The key of the tool in its source.
        name: The name of the descriptor.
        path: Path of the file.
        status: `written` (new), `unchanged`, `updated` (the source changed), `conflict` (both sides changed; what only the
            source changed is written), `existing` (another file has this name; nothing is written), `deleted` (a person
            deleted it; nothing is written), `gone` (the source no longer has the tool; the file stays).
        text: What is written; None for nothing.
        moved_from: Path of the file at the last import, if it had another one.
        removes: Path of a file that `path` replaces, because the tool was renamed.
        changed: JSON Pointers of the parts that the source changed.
        edited: JSON Pointers of the parts that a person changed, and that stay.
        conflicts: Parts that both sides changed, and that stay.
        problem: Why the changes of the source were not written; empty if they were.
    """

    key: str
    name: str
    path: Path
    status: str
    text: str | None = None
    moved_from: Path | None = None
    removes: Path | None = None
    changed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    problem: str = ""


class ImportPlan(NamedTuple):
    """What an import does.

    Attributes:
        files: The files, in the order of the source; those of tools that are gone are the last.
        record: The record of this import.
        source_changed: Whether the source differs from what it was at the last import.
    """

    files: tuple[PlannedFile, ...]
    record: ImportRecord
    source_changed: bool


class ImportTarget(NamedTuple):
    """Where an import writes.

    Attributes:
        root: Root of the project.
        folder: Folder of the files.
        schema: Path of the schema for editors, relative to the folder; empty for none.
        force: Whether to write every file as it is generated, whatever a person changed.
    """

    root: Path
    folder: Path
    schema: str = ""
    force: bool = False


def plan_import(
    made: DescriptorFiles,
    before: ImportRecord | None,
    target: ImportTarget,
    kinds: Kinds,
    *,
    kind: str,
    source: str,
    skipped: Sequence[str] = (),
) -> ImportPlan:
    """Decide what an import writes. Nothing is written here.

    Args:
        made: The tools as files, and the tools that have none.
        before: The record of the last import; None for the first.
        target: Where it writes.
        kinds: Block schemas of the installed modes.
        kind: The kind of the source.
        source: The source, for the record.
        skipped: Keys of tools of the source that were not asked for.
    """
    files, refused = made.files, made.refused
    known = before.tools if before is not None else {}
    planner = _Planner(target, kinds, {tool.file for tool in known.values()})
    planned = [planner.planned(file, known.get(file.key)) for file in files]
    there = {file.key for file in files} | {each.key for each in refused} | set(skipped)
    gone = [plan for key, tool in known.items() if key not in there if (plan := planner.gone(key, tool))]
    recorded = {key: tool for key, tool in known.items() if key in there}
    recorded |= {plan.key: known[plan.key]._replace(gone=True) for plan in gone}
    for file, plan in zip(files, planned, strict=True):
        if plan.status != "existing":  # that file belongs to somebody else
            recorded[file.key] = RecordedTool(_relative(plan.path, target.root), file.document)
    reasons = {each.key: each.reason for each in refused}
    if before is not None:
        reasons |= {key: why for key, why in before.refused.items() if key in skipped}
    record = ImportRecord(kind, source, recorded, reasons)
    return ImportPlan((*planned, *gone), record, before is None or _content(before) != _content(record))


def _content(record: ImportRecord) -> str:
    """What the source said, whatever the files are."""
    tools = {key: [tool.descriptor, tool.gone] for key, tool in sorted(record.tools.items())}
    return json.dumps([tools, dict(sorted(record.refused.items()))])


class _Planner:
    def __init__(self, target: ImportTarget, kinds: Kinds, owned: set[str]) -> None:
        self._target = target
        self._kinds = kinds
        self._shape = DocumentChecker("descriptor", kinds)
        self._owned = owned
        self._found: Mapping[str, list[Path]] | None = None

    def planned(self, file: DescriptorFile, known: RecordedTool | None) -> PlannedFile:
        """What becomes of the file of a tool that the source has."""
        usual = self._target.folder / file.file
        if known is None:
            return self._new(file, usual)
        before = self._target.root / known.file
        path = before if os.path.lexists(before) else self._moved(known)
        if self._target.force:
            return self._written(file, path or usual)
        if path is None:
            return PlannedFile(file.key, file.name, before, "deleted")
        moved = None if path == before else before
        return self._merged(file, known, path, usual)._replace(moved_from=moved)

    def gone(self, key: str, known: RecordedTool) -> PlannedFile | None:
        """What becomes of the file of a tool that the source no longer has; None if the file is gone, too."""
        path = self._target.root / known.file
        if not os.path.lexists(path):
            return None
        return PlannedFile(key, str(known.descriptor.get("name", "")), path, "gone")

    def _new(self, file: DescriptorFile, path: Path) -> PlannedFile:
        if self._target.force or not os.path.lexists(path):
            return self._written(file, path)
        there = _one_object(path)
        # An equal file may be what an import wrote whose record was lost.
        same = there is not None and json_equal(_without_schema(there.value), dict(file.document))
        return PlannedFile(file.key, file.name, path, "unchanged" if same else "existing")

    def _written(self, file: DescriptorFile, path: Path) -> PlannedFile:
        same = _text_of(path) == file.text
        return PlannedFile(
            file.key, file.name, path, "unchanged" if same else "written", None if same else file.text
        )

    def _moved(self, known: RecordedTool) -> Path | None:
        """The file in the folder that describes a tool whose file is not where it was."""
        if self._found is None:
            self._found = _files_by_name(self._target.folder)
        places = self._found.get(str(known.descriptor.get("name")), [])
        free = [path for path in places if _relative(path, self._target.root) not in self._owned]
        return free[0] if len(free) == 1 else None

    def _merged(self, file: DescriptorFile, known: RecordedTool, path: Path, usual: Path) -> PlannedFile:
        plan = PlannedFile(file.key, file.name, path, "unchanged")
        text = _text_of(path)
        if text is None:
            return plan._replace(status="conflict", problem="it is not a readable UTF-8 file")
        source_changed = json.dumps(known.descriptor) != json.dumps(file.document)
        document = _object_named(path, text, known.descriptor.get("name"))
        if document is None:
            found = "contains no such tool" if _objects(path, text) else "has errors"
            why = f"the file {found}; run `toolcrib validate`" if source_changed else ""
            return plan._replace(status="conflict" if why else "unchanged", problem=why)
        if text in self._texts(known.descriptor, path):
            return self._unedited(file, plan, known, usual, source_changed)
        ours = _without_schema(document.value)
        merged = merge(known.descriptor, ours, file.document)
        plan = plan._replace(changed=merged.changed, edited=merged.edited, conflicts=merged.conflicts)
        if not merged.changed:
            return plan._replace(status="conflict" if merged.conflicts else "unchanged")
        new = self._edited(path, text, document, merged.value)
        if new is None:
            why = "its layout, or what was changed in it, does not allow the changes of the source"
            return plan._replace(status="conflict", problem=why)
        return plan._replace(status="conflict" if merged.conflicts else "updated", text=new)

    def _texts(self, descriptor: Mapping[str, Any], path: Path) -> Iterator[str]:
        """The texts that an import may have written for a descriptor."""
        write = json_text if path.suffix == ".json" else yaml_text
        yield from dict.fromkeys((write(descriptor, self._target.schema), write(descriptor)))

    def _unedited(
        self, file: DescriptorFile, plan: PlannedFile, known: RecordedTool, usual: Path, source_changed: bool
    ) -> PlannedFile:
        if not source_changed:
            return plan
        changed = merge(known.descriptor, known.descriptor, file.document).changed or ("",)
        plan = plan._replace(status="updated", text=file.text, changed=changed)
        # A renamed tool gets the file of its new name, if the old file is still where it was written.
        if plan.path.parent == usual.parent and plan.path != usual and not os.path.lexists(usual):
            return plan._replace(path=usual, removes=plan.path)
        return plan

    def _edited(self, path: Path, text: str, document: Document, value: Mapping[str, Any]) -> str | None:
        """The text of a file with another descriptor; None if that is not possible, or the descriptor is invalid."""
        was = document.value
        assert isinstance(was, dict)  # noqa: S101 -- `_object_named` returns objects
        head = {"$schema": was["$schema"]} if "$schema" in was else {}
        new = change_object(text, document.line, was, {**head, **value}, yaml_of)
        if new is None:
            return None
        read = _object_named(path, new, value.get("name"))
        if read is None:
            return None
        tool, _problems = parse_descriptor(read, self._kinds, self._shape)
        return new if tool is not None else None


def _text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _objects(path: Path, text: str) -> list[Document]:
    documents, _problems = parse_documents(str(path), text)
    return [document for document in documents if isinstance(document.value, dict)]


def _one_object(path: Path) -> Document | None:
    text = _text_of(path)
    found = [] if text is None else _objects(path, text)
    return found[0] if len(found) == 1 else None


def _object_named(path: Path, text: str, name: Any) -> Document | None:
    """The object of a file: the only one, whatever its name is now, or that with a name."""
    found = _objects(path, text)
    if len(found) == 1:
        return found[0]
    named = [each for each in found if isinstance(each.value, dict) and each.value.get("name") == name]
    return named[0] if len(named) == 1 else None


def _without_schema(value: Any) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "$schema"}


def _files_by_name(folder: Path) -> dict[str, list[Path]]:
    """Name of a tool -> the descriptor files below a folder that describe it."""
    found: dict[str, list[Path]] = {}
    for place, _folders, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith(_ENDINGS):
                path = Path(place, name)
                text = _text_of(path)
                for document in _objects(path, text) if text is not None else ():
                    value = document.value
                    told = value.get("name") if isinstance(value, dict) else None
                    if isinstance(told, str):
                        found.setdefault(told, []).append(path)
    return found


def _relative(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()
