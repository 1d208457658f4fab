"""From paths of the command line to a runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from toolcrib.cli.options import Reading
from toolcrib.cli.printing import plural
from toolcrib.engine import Asked, Runtime
from toolcrib.model import NOTHING
from toolcrib.text import escape_terminal


def open_runtime(
    reading: Reading, paths: Iterable[str] = (), *, modes: Mapping[str, str] = NOTHING, seed: int = 0
) -> Runtime:
    """The runtime over what the command line names. Its problems are the verb's to tell."""
    asked = Asked(
        paths=tuple(paths),
        also=tuple(reading.packs),
        profile=reading.profile,
        modes=modes,
        indexed=reading.indexed,
    )
    return Runtime.reading(asked, seed=seed)


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
