"""Golden files: a result compared with the file that a step names, and what the file should say instead."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Files
from toolcrib.expressions import Rendering
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.documents.files import DiskFiles
from toolcrib.loading.scenarios.goldens import GoldenFile, golden_name, read_golden

MOST = 20
"""Differences that are told."""

UPDATE = "`toolcrib run --update`"


@dataclass(frozen=True, slots=True)
class GoldenChange:
    """A golden file that is to be written.

    Attributes:
        name: Its path, as the scenario names it.
        value: What it should hold; secrets masked.
        missing: Whether there is none yet.
    """

    name: str
    value: JSON
    missing: bool


class GoldenComparison(NamedTuple):
    """How a result compares with a golden file.

    Attributes:
        lines: What is to be told; none if they are equal.
        change: What would make them equal; None if nothing would, or nothing has to.
    """

    lines: tuple[str, ...] = ()
    change: GoldenChange | None = None


def compare_golden(
    golden: Rendering, value: JSON, files: Files | None, scope: Mapping[str, JSON]
) -> GoldenComparison:
    """Compare a result with the golden file that a step names.

    Args:
        golden: The name of the file.
        value: The result, secrets masked.
        files: Those that the scenario may name.
        scope: What the name may read.
    """
    try:
        held = read_golden(files, golden_name(golden, scope))
    except ExpressionError as error:
        return GoldenComparison((error.message,))
    except OSError as error:
        return GoldenComparison((f"the golden file can't be read: {error.strerror or error}",))
    lines = _lines(held, value)
    return GoldenComparison(lines, GoldenChange(held.name, value, held.missing) if lines else None)


def _lines(held: GoldenFile, value: JSON) -> tuple[str, ...]:
    if held.missing:
        return (f"there is no `{held.name}`; {UPDATE} writes it",)
    if held.fault:
        return (held.fault, f"{UPDATE} writes it anew")
    differences = compile_matcher({"$exact": held.value}, []).differences(value, most=MOST + 1)
    if not differences:
        return ()
    told = [str(difference) for difference in differences[:MOST]]
    more = ["and more"] if len(differences) > MOST else []
    return (f"not as in `{held.name}`:", *told, *more, f"{UPDATE} writes what was answered")


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
