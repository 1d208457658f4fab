"""The arguments of `toolcrib run` and `validate`: what each of them selects, which sources that needs, and the runs that failed last."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import click

from toolcrib.cli.options import ReadOptions, open_offline, open_with_servers
from toolcrib.cli.output import write_atomically
from toolcrib.cli.trust import Consents
from toolcrib.core.errors import did_you_mean
from toolcrib.core.user_folders import CACHE_VARIABLE, cache_folder, why_unused
from toolcrib.engine import engine_of
from toolcrib.engine.open_project import DEFAULT_PATHS
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.project_discovery import find_project, project_file
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.sources import missing_path_hint, real_path
from toolcrib.scenarios import ScenarioReport

SEPARATOR = "::"
"""Between a path and a name, as in pytest."""

_OF_A_PROJECT = (".scenario.", ".tool.")
"""Parts of the names of files that are read together with their project."""


class Target(NamedTuple):
    """One argument: `PATH`, `NAME` or `PATH::NAME`.

    Attributes:
        path: An existing file or folder; empty for all that is read.
        name: Name of a scenario, of one of its runs, or of a tool with examples; empty for all.
    """

    path: str = ""
    name: str = ""

    @property
    def is_inner(self) -> bool:
        """Whether the path may be a part of a project, which has the tools and settings for it.

        Projects, archives and documents of other formats are complete: they are read alone.
        """
        if not os.path.isdir(self.path):
            return any(part in os.path.basename(self.path) for part in _OF_A_PROJECT)
        return project_file(self.path) is None

    def holds(self, scenario: Scenario) -> bool:
        """Whether the target selects a scenario, or a run of one."""
        names = {scenario.name, scenario.base, scenario.name.removesuffix(" examples")}
        return (not self.name or self.name in names) and (not self.path or self.has(scenario.origin.source))

    def has(self, source: str) -> bool:
        """Whether a file is the path of the target or lies in it; a part of a project that is read alone has everything."""
        return not self.is_inner or real_path(source).is_relative_to(real_path(self.path))

    def __str__(self) -> str:
        """The argument as it was written."""
        return SEPARATOR.join(filter(None, self))


def parse_targets(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[Target, ...]:
    """Parse all arguments.

    Raises:
        click.BadParameter: A path does not exist.
    """
    return tuple(map(_target, values))


def _target(text: str) -> Target:
    if os.path.exists(text):
        return Target(text)
    path, separator, name = text.partition(SEPARATOR)
    if separator and os.path.exists(path):
        return Target(path, name)
    # A scenario may have any name, but one that looks like a path is more likely a path.
    if separator or "/" in text or os.sep in text or Path(text).suffix in {".yaml", ".yml", ".json", ".zip"}:
        hint = missing_path_hint(path)
        raise click.BadParameter(f"`{path}` does not exist{hint and f'; {hint}'}", param_hint="TARGET")
    return Target(name=text)


def sources_of(targets: Iterable[Target]) -> tuple[str, ...]:
    """The paths to read; empty for the project, or the default folders, of the working directory.

    A file or folder of a project is read with its project, and a scenario outside projects with the default folders.
    """
    here = find_project()
    contexts: dict[str, None] = {}
    for target in targets:
        project = find_project(_folder_of(target.path)) if target.path and target.is_inner else None
        if not target.path or (project is not None and _same(project, here)):
            contexts[""] = None
        elif project is not None:
            contexts[project] = None
        elif (
            target.is_inner
            and ".scenario." in os.path.basename(target.path)
            and not os.path.isdir(target.path)
        ):
            contexts[""] = None
        else:
            contexts[target.path] = None
    if not contexts.keys() - {""}:
        return ()
    defaults = [here] if here else [path for path in DEFAULT_PATHS if os.path.isdir(path)]
    return tuple(path for context in contexts for path in ([context] if context else defaults))


def unread(targets: Iterable[Target], sources: Collection[str]) -> tuple[str, ...]:
    """The paths that must be read as well, because they neither lie in a source nor contain one."""
    read = [real_path(source) for source in sources]
    paths = dict.fromkeys(target.path for target in targets if target.path and target.is_inner)
    return tuple(path for path in paths if not any(_overlap(real_path(path), each) for each in read))


def open_targets(
    reading: ReadOptions,
    targets: Iterable[Target],
    *,
    passthrough: bool = False,
    everything: bool = False,
    consents: Consents | None = None,
) -> Runtime:
    """Open the sources of the targets, and those targets that they do not contain; see `open_with_servers`."""

    def opened(reading: ReadOptions, paths: Sequence[str]) -> Runtime:
        return open_with_servers(
            reading, paths, passthrough=passthrough, everything=everything, consents=consents
        )

    return _opened(reading, tuple(targets), opened)


def open_targets_offline(reading: ReadOptions, targets: Iterable[Target]) -> Runtime:
    """As `open_targets`, without a server, a host, a secret or code; see `open_offline`."""
    return _opened(reading, tuple(targets), open_offline)


def _opened(
    reading: ReadOptions,
    targets: Sequence[Target],
    open_: Callable[[ReadOptions, Sequence[str]], Runtime],
) -> Runtime:
    paths = sources_of(targets)
    runtime = open_(reading, paths)
    further = unread(targets, [*engine_of(runtime).stock.sources, *paths])
    if not further:
        return runtime
    runtime.close()
    return open_(reading._replace(packs=(*reading.packs, *further)), paths)


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _folder_of(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path) or "."


def _same(project: str, here: str | None) -> bool:
    return here is not None and real_path(project) == real_path(here)


def names_of(scenarios: Iterable[Scenario]) -> list[str]:
    """The names that a target may have: of the scenarios, and of the tools whose examples run."""
    return sorted({(each.base or each.name).removesuffix(" examples") for each in scenarios})


def check_names(targets: Iterable[Target], scenarios: Sequence[Scenario], refused: Collection[str]) -> None:
    """Check that each target with a name selects something.

    Args:
        targets: The targets.
        scenarios: What can be selected.
        refused: Names of scenarios and tools with errors, which are reported elsewhere.

    Raises:
        click.BadParameter: Some do not; the message has all of them, and similar names.
    """
    wrong = []
    for target in targets:
        if target.name and target.name not in refused and not any(map(target.holds, scenarios)):
            known = names_of(each for each in scenarios if not target.path or target.has(each.origin.source))
            where = f" in `{target.path}`" if target.path else ""
            what = "" if target.path else ", and there is no such file"
            if known:
                hint = did_you_mean(target.name, known) or some_names(known)
            else:
                hint = f"no scenarios or examples were found{where or ' here'}"
            wrong.append(f"no scenario or example is called `{target.name}`{where}{what}; {hint}")
    if wrong:
        raise click.BadParameter("\n".join(wrong), param_hint="TARGET")


MOST_NAMES = 10
"""Number of names that a message lists."""


def some_names(names: Sequence[str]) -> str:
    """`there are: a, b and 3 more`, for a message."""
    if not names:
        return "there are no scenarios or examples"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"there are: {', '.join(f'`{name}`' for name in names[:MOST_NAMES])}{more}"


RunKey = tuple[str, str]
"""A run in every process and from every working directory: the real path of its file, and its name."""


def run_key(scenario: Scenario) -> RunKey:
    """The key of a run."""
    return str(real_path(scenario.origin.source)), scenario.name


class LastFailures:
    """The runs of the project of the working directory that failed when they last ran, in the user's cache folder."""

    def __init__(self) -> None:
        folder = cache_folder()
        root = real_path(os.path.dirname(find_project() or "") or ".")
        name = sha256(os.fsencode(root)).hexdigest()[:32]
        self.path = None if folder is None else Path(folder, "last-failed", f"{name}.json")

    def read(self) -> frozenset[RunKey]:
        """The runs that failed; empty if none are known.

        Raises:
            click.ClickException: The file cannot be read.
        """
        if self.path is None:
            raise click.UsageError(f"`--last-failed` needs a cache folder; set {CACHE_VARIABLE}")
        try:
            read = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            why = why_unused(str(self.path.parent))
            if why:
                raise click.ClickException(f"failures are not recorded: {self.path.parent}: {why}") from None
            return frozenset()
        except (OSError, ValueError, RecursionError) as error:
            raise click.ClickException(f"cannot read {self.path}: {error}; delete it") from error
        if not isinstance(read, list) or not all(
            isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each)
            for each in read
        ):
            raise click.ClickException(f"{self.path} is not a list of runs; delete it")
        return frozenset((source, name) for source, name in read)

    def record(self, reports: Iterable[ScenarioReport], *, everything: bool) -> None:
        """Replace what is known of the runs that ran; of all runs if they were `everything`.

        Nothing is recorded where the cache folder cannot be used: `read` tells why.
        """
        if self.path is None:
            return
        ran = {run_key(report.scenario): report.failed for report in reports}
        try:
            before = frozenset() if everything else self.read()
            failed = sorted({*(before - ran.keys()), *(key for key, wrong in ran.items() if wrong)})
            if failed:
                write_atomically(self.path, json.dumps(failed))
            else:
                self.path.unlink(missing_ok=True)
        except (OSError, click.ClickException):
            # The verdict does not depend on it. `--last-failed` tells what is wrong with the folder or the file.
            return
