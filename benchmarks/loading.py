"""Reading descriptors: all load-time checks and a YAML loader alone; a warm start and reading the files.

python benchmarks/loading.py
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import yaml
from jsonschema import Draft202012Validator
from rounds import Round, Row, interleaved, line

from corpus import descriptor_texts, write_descriptors
from toolcrib import Runtime

COLD = 1_000
WARM = 10_000
LONG_AGO = 1_700_000_000
"""Modification time of the files, in seconds since 1970: real files are older than a moment."""


def timed(work: object) -> Round:
    """A round of one piece of work. Its result is freed outside the round."""

    def round_() -> float:
        started = perf_counter()
        kept = work()  # type: ignore[operator]
        took = perf_counter() - started
        del kept
        gc.collect()
        return took

    return round_


def aged(folder: Path) -> None:
    """Set old modification times."""
    for path in (*folder.iterdir(), folder):
        os.utime(path, (LONG_AGO, LONG_AGO))


def cold(folder: Path, rounds: int = 9) -> Iterator[Row]:
    """Everything that `Runtime.open` does, and parsing the same texts with pyyaml's C loader."""
    texts = descriptor_texts(COLD)
    write_descriptors(folder, COLD)
    aged(folder)

    def ours() -> Runtime:
        runtime = Runtime.open(folder, index=False)
        assert len(runtime.registry) == COLD
        assert runtime.problems == ()
        return runtime

    def parsed() -> list[object]:
        return [yaml.load(text, Loader=yaml.CSafeLoader) for text in texts]

    def checked() -> list[object]:
        documents = [yaml.load(text, Loader=yaml.CSafeLoader) for text in texts]
        for document in documents:
            Draft202012Validator.check_schema(document["input_schema"])
            Draft202012Validator.check_schema(document["output_schema"])
        return documents

    times = interleaved({"ours": timed(ours), "parsed": timed(parsed), "checked": timed(checked)}, rounds)
    yield Row(
        f"cold load of {COLD:,} YAML descriptors, all checks",
        "yaml.load with CSafeLoader",
        times["ours"],
        times["parsed"],
        2,
    )
    yield Row(
        f"cold load of {COLD:,} YAML descriptors, all checks",
        "yaml.load with CSafeLoader + jsonschema check_schema",
        times["ours"],
        times["checked"],
        8,
        faster=True,
    )


def read_all(folder: str) -> int:
    """The floor: list the folder, read every file."""
    size = 0
    with os.scandir(folder) as entries:
        paths = sorted(entry.path for entry in entries)
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        size += len(os.read(opened, 1 << 20))
        os.close(opened)
    return size


def warm(folder: Path, rounds: int = 15) -> Row:
    """A start from the index, which detects every edit, and reading the files."""
    write_descriptors(folder, WARM)
    aged(folder)
    with Runtime.open(folder) as first:
        assert len(first.registry) == WARM

    def ours() -> Runtime:
        runtime = Runtime.open(folder)
        assert len(runtime.registry) == WARM
        return runtime

    times = interleaved({"ours": timed(ours), "read": timed(lambda: read_all(str(folder)))}, rounds)
    return Row(f"warm start of {WARM:,} descriptors", "reading the files", times["ours"], times["read"], 2)


def rows() -> Iterator[Row]:
    """All measures of this file."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as place:
        os.environ["TOOLCRIB_CACHE_DIR"] = str(Path(place, "cache"))
        for name in ("cold", "warm"):
            Path(place, name).mkdir()
        yield from cold(Path(place, "cold"))
        yield warm(Path(place, "warm"))


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
