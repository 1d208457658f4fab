"""Golden files: the whole result of a call as JSON, in a file that a scenario names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Files
from toolcrib.expressions import Rendering
from toolcrib.loading.documents.document import parse_json
from toolcrib.loading.documents.files import DiskFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """What a golden file says.

    Attributes:
        name: Path of the file, as the scenario names it.
        value: The result that it holds.
        missing: Whether there is no such file.
        fault: Why it holds no result; empty if it holds one or is missing.
    """

    name: str
    value: JSON = None
    missing: bool = False
    fault: str = ""


def read_golden(files: Files | None, name: str) -> GoldenFile:
    """Read a golden file; that there is none is no error.

    Raises:
        OSError: It can't be read, or lies outside what the scenario may read.
    """
    try:
        content = None if files is None else files.read(name)
    except FileNotFoundError:
        content = None
    if content is None:
        return GoldenFile(name=name, missing=True)
    value, problems = parse_json(name, content)
    if problems:
        first = problems[0]
        return GoldenFile(name=name, fault=f"`{name}` holds no result: line {first.line}: {first.message}")
    return GoldenFile(name=name, value=value)


def golden_name(golden: Rendering, scope: Mapping[str, JSON]) -> str:
    """The path that a scenario names in one of its runs.

    Raises:
        ExpressionError: It can't be worked out, or is no text.
    """
    name = golden.render(scope)
    if isinstance(name, str) and name.strip():
        return name
    raise ExpressionError("the name of a golden file is a text that is not empty")


def place_of(files: Files | None, name: str) -> Path:
    """Where a golden file lies on disk, whether it is there or not.

    Raises:
        OSError: It lies in no folder (but in an archive, or in memory), or outside what the scenario may read.
    """
    if not isinstance(files, DiskFiles):
        raise PermissionError(f"`{name}` can't be written: its scenario does not lie in a folder")
    path = Path(os.path.realpath(files.folder / name))
    if not path.is_relative_to(os.path.realpath(files.root)):
        raise PermissionError(f"`{name}` can't be written: it lies outside {files.root}")
    return path


def golden_text(value: JSON) -> str:
    """What a golden file says of a result: indented JSON, keys in the order of the result."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def check_golden(
    golden: Rendering, pointer: str, scopes: Iterable[Mapping[str, JSON]], files: Files | None
) -> Iterable[Problem]:
    """What is wrong with the golden files of one step; that one is missing, or differs, is for the run to say.

    Args:
        golden: The name.
        pointer: Where it stands.
        scopes: What the name may read, for each run.
        files: The files that the scenario may name.
    """
    names: dict[str, None] = {}
    for scope in scopes:
        try:
            names[golden_name(golden, scope)] = None
        except ExpressionError as error:
            yield error.problem(pointer)
            return
    for name in names:
        try:
            fault = read_golden(files, name).fault
        except OSError as error:
            text = str(error) if error.errno is None else f"`{name}` can't be read: {error.strerror}"
            yield Problem(code="file_unreadable", message=text, pointer=pointer, hint=_WHERE)
        else:
            if fault:
                yield Problem(
                    code="invalid_golden", message=fault, pointer=pointer, hint=_ANEW, severity="warning"
                )


_WHERE = "paths are relative to the scenario and may not leave its folder or pack"
_ANEW = "`toolcrib run --update` writes it anew"
