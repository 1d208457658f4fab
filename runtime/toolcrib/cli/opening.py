"""From paths of the command line to a runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from toolcrib.cli.options import Reading
from toolcrib.cli.printing import plural
from toolcrib.engine import DEFAULT_PATHS, Runtime, default_paths
from toolcrib.executors import Executors
from toolcrib.loading.sources import load
from toolcrib.model import NOTHING
from toolcrib.text import escape_terminal


def chosen_paths(paths: Iterable[str] = (), packs: Iterable[str] = ()) -> tuple[str, ...]:
    """What to read: the paths, else the default folders that exist; then the packs; nothing twice."""
    paths, packs = tuple(paths), tuple(packs)
    if not paths:
        paths = tuple(path for path in DEFAULT_PATHS if Path(path).is_dir()) if packs else default_paths()
    kept: dict[Path, str] = {}
    for path in (*paths, *packs):
        kept.setdefault(Path(path).resolve(), path)
    return tuple(path for place, path in kept.items() if not any(_holds(other, place) for other in kept))


def _holds(folder: Path, place: Path) -> bool:
    """Whether reading the folder reads the place as well; hidden folders are passed over."""
    if folder == place or not place.is_relative_to(folder):
        return False
    return not any(part.startswith(".") for part in place.relative_to(folder).parts)


def open_runtime(
    reading: Reading, paths: Iterable[str] = (), *, modes: Mapping[str, str] = NOTHING, seed: int = 0
) -> Runtime:
    """The runtime over what the command line names. Its problems are the verb's to tell."""
    executors = Executors.installed()
    return Runtime.of(
        load(chosen_paths(paths, reading.packs), executors), modes=modes, executors=executors, seed=seed
    )


def tell_refusals(runtime: Runtime) -> None:
    """Say briefly on stderr that documents were refused, for verbs that go on without them."""
    errors = [problem for problem in runtime.problems if problem.severity == "error"]
    for problem in errors:
        if problem.code == "path_not_found":
            click.echo(escape_terminal(str(problem)), err=True)
    files = {problem.source for problem in errors if problem.code != "path_not_found"}
    if files:
        refused = f"{plural(len(files), 'file')} {'was' if len(files) == 1 else 'were'} refused"
        click.echo(f"{refused}, wholly or in part; run `toolcrib validate`", err=True)
