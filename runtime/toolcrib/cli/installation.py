"""What is installed: toolcrib, what it depends on, its extras, and the modes and layers that distributions offer."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import toolcrib
from toolcrib.cli.doctor_findings import Findings
from toolcrib.core.errors import Problem
from toolcrib.engine.middleware import GROUP as LAYERS
from toolcrib.executors import GROUP as MODES
from toolcrib.executors import Executors
from toolcrib.schema.validation import check_schema


def installation(findings: Findings) -> dict[str, Any]:
    """Versions of toolcrib, Python and the packages; what is missing is a finding."""
    return {
        "version": toolcrib.__version__,
        "folder": str(Path(toolcrib.__file__).parent),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "packages": dict(_packages(findings)),
        "extras": _extras(),
    }


def _requirements() -> list[Requirement]:
    try:
        return [Requirement(text) for text in distribution("toolcrib").requires or ()]
    except PackageNotFoundError:  # run from a folder, where nothing says what is needed
        return []


def _packages(findings: Findings) -> Iterator[tuple[str, str | None]]:
    """Package -> installed version, of what the core needs."""
    for needed in _requirements():
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        version = _version(needed.name)
        if version is None:
            findings.error(f"`{needed.name}` is not installed", f"`pip install '{needed}'`")
        elif not needed.specifier.contains(version, prereleases=True):
            message = f"`{needed.name}` has version {version}, and toolcrib needs {needed.specifier}"
            findings.error(message, f"`pip install '{needed}'`")
        yield needed.name, version


def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def _extras() -> dict[str, dict[str, str | None]]:
    """Extra -> package -> installed version."""
    extras: dict[str, dict[str, str | None]] = {}
    try:
        names = distribution("toolcrib").metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        names = []
    for name in sorted(names):
        extras[name] = {
            needed.name: _version(needed.name)
            for needed in _requirements()
            if needed.marker is not None
            and needed.marker.evaluate({"extra": name})
            and not needed.marker.evaluate({"extra": ""})
        }
    return extras


def modes(executors: Executors, findings: Findings) -> dict[str, dict[str, Any]]:
    """Mode -> the distribution that it comes from, and why it can't be used."""
    found: dict[str, dict[str, Any]] = {}
    for name, entries in _offered(MODES).items():
        *others, entry = entries  # the last one counts, as in `Executors.installed`
        why = _fault_of_mode(executors, name)
        if why:
            findings.error(
                f"mode `{name}` of {_named(entry)} {why}", "update that distribution, or remove it"
            )
        for other in others:
            message = (
                f"mode `{name}` is offered by {_named(other)} and by {_named(entry)}; the second one counts"
            )
            findings.warning(message, "remove one of the distributions")
        found[name] = {"distribution": _named(entry), "object": entry.value, "fault": why or None}
    return found


def _fault_of_mode(executors: Executors, mode: str) -> str:
    schema = executors.schema_for(mode)
    if schema is None:
        return executors.missing(mode)
    problems: list[Problem] = check_schema(schema)
    return f"has a schema of its block that is none: {problems[0].message}" if problems else ""


def usable(executors: Executors, found: dict[str, dict[str, Any]]) -> Executors:
    """The modes without those that are broken, so that documents can be read all the same."""
    return Executors.named(
        {mode: target for mode, target in executors.targets.items() if found[mode]["fault"] is None}
    )


def layers(findings: Findings) -> dict[str, dict[str, Any]]:
    """Middleware that can be named -> the distribution that it comes from, and why it can't be used."""
    found = {}
    for name, entries in _offered(LAYERS).items():
        why = ""
        try:
            entries[-1].load()
        except Exception as error:  # noqa: BLE001 -- what a third party's distribution does when it is imported is its own
            why = f"can't be used: {type(error).__name__}: {error}"
            findings.warning(
                f"middleware `{name}` of {_named(entries[-1])} {why}", "it is used only where it is named"
            )
        found[name] = {"distribution": _named(entries[-1]), "object": entries[-1].value, "fault": why or None}
    return found


def _offered(group: str) -> dict[str, list[EntryPoint]]:
    """Name -> the entry points of that name, by name."""
    offered: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        offered.setdefault(entry.name, []).append(entry)
    return dict(sorted(offered.items()))


def _named(entry: EntryPoint) -> str:
    dist: Distribution | None = entry.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"
