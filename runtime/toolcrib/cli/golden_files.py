"""`toolcrib run --update`: writes what calls answered into the golden files of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from toolcrib.cli.file_output import write_whole
from toolcrib.loading.documents.document import BYTES
from toolcrib.loading.scenarios.expectations import golden_text, place_of
from toolcrib.scenarios import ScenarioReport
from toolcrib.scenarios.reports import GoldenChange


class Updated(NamedTuple):
    """What became of one golden file.

    Attributes:
        place: The file.
        what: `wrote`, `updated`, or why neither could be.
        failed: Whether it is not as the runs want it.
    """

    place: str
    what: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.failed else f"{self.what} {self.place}"


class _Wish(NamedTuple):
    """What one run wants a golden file to hold."""

    report: ScenarioReport
    change: GoldenChange

    @property
    def place(self) -> str:
        folder = PurePath(self.report.scenario.origin.source).parent
        return (folder / self.change.name).as_posix()


def update_goldens(reports: Sequence[ScenarioReport]) -> list[Updated]:
    """Write the golden files that are missing or differ, in order of the runs."""
    wanted: dict[Path, list[_Wish]] = {}
    told = []
    for wish in _wishes(reports):
        try:
            path = place_of(wish.report.scenario.origin.files, wish.change.name)
        except OSError as error:
            told.append(Updated(wish.place, str(error), failed=True))
        else:
            wanted.setdefault(path, []).append(wish)
    return [*told, *(_updated(path, wishes) for path, wishes in wanted.items())]


def _wishes(reports: Sequence[ScenarioReport]) -> Iterator[_Wish]:
    for report in reports:
        for step in report.steps:
            if step.golden is not None:
                yield _Wish(report, step.golden)


def _updated(path: Path, wishes: Sequence[_Wish]) -> Updated:
    texts = {golden_text(wish.change.value): wish for wish in wishes}
    (text, first), *others = texts.items()
    if others:
        names = f"`{first.report.scenario.name}` and `{others[0][1].report.scenario.name}`"
        hint = "name the file after what is different, such as `{{ matrix.city }}` or `{{ run }}`"
        return Updated(first.place, f"not written: {names} answer differently; {hint}", failed=True)
    if len(text.encode()) > BYTES:
        return Updated(first.place, f"not written: a golden file has at most {BYTES:,} bytes", failed=True)
    try:
        write_whole(path, text)
    except OSError as error:
        return Updated(first.place, f"not written: {error.strerror or error}", failed=True)
    return Updated(first.place, "wrote" if first.change.missing else "updated")
