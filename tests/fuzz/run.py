"""Try the readers of toolcrib with what nobody would write, for some minutes; `make fuzz` runs it.

    python tests/fuzz/run.py --minutes 10
    python tests/fuzz/run.py --minutes 1 --only yaml --only json --seed 7

Inputs are put together of pieces, and made of what is in the corpus by small changes. An input on which a target fails is
made as small as Hypothesis can, told, and kept in `tests/fuzz/corpus/TARGET/failed-...`; the tests try it from then on. One that makes a
target say something new is kept as well, if it is short.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"

MOST_KEPT, LARGEST_KEPT = 25, 400
"""Inputs of one target, and bytes of one, that are kept because they make it say something new."""

PATIENCE = 20
"""Seconds after which an input is said to hang."""

ROUND = 300
"""Inputs of one target in a row."""


def main() -> int:
    """Run; the exit code is 1 where a target failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    said = parser.parse_args()
    targets = [target for target in TARGETS if not said.only or target.name in said.only]
    print(f"fuzzing {len(targets)} targets for {said.minutes:g} minutes, --seed {said.seed}", flush=True)
    signal.signal(signal.SIGALRM, _hangs)
    runs = [Run(target) for target in targets]
    end, number = time.monotonic() + said.minutes * 60, said.seed
    while time.monotonic() < end:
        for run in runs:
            if not run.failed and time.monotonic() < end:
                number += 1
                run.go(number, end)
    for run in runs:
        print(
            f"{run.target.name:18}{run.count:>9,} inputs, {len(run.heard):>4} ways{', FAILED' * run.failed}"
        )
    print(f"{sum(run.count for run in runs):,} inputs, {sum(run.failed for run in runs)} failures")
    return int(any(run.failed for run in runs))


class Hang(Exception):
    """An input is read without end."""


class Run:
    """One target, and what came of it so far.

    Attributes:
        target: The target.
        count: How many inputs were tried.
        heard: What it has said.
        failed: Whether it failed.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.count = 0
        self.failed = False
        self._folder = CORPUS / target.name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._seeds = [path.read_bytes() for path in sorted(self._folder.iterdir())]
        self.heard = {target.check(data) for data in self._seeds}
        self._last = b""
        self._end = 0.0

    def go(self, number: int, end: float) -> None:
        """Try some inputs."""
        self._end = end
        examples = int(ROUND * self.target.share)
        inputs = st.one_of(_composed(self.target.pieces), _changed(self._seeds or [b""], self.target.pieces))
        test = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )(seed(number)(given(inputs)(self._try)))
        try:
            test()
        except Exception:  # noqa: BLE001 -- whatever a target raises is a failure, and the next one is tried
            path = self._keep(self._last, "failed")
            print(f"\n{self.target.name} fails on {self._last!r}, kept as {path}", flush=True)
            traceback.print_exc(limit=-6)

    def _try(self, data: bytes) -> None:
        if time.monotonic() > self._end and not self.failed:
            return  # but what fails is made smaller first
        self.count += 1
        self._last = data
        signal.alarm(PATIENCE)
        try:
            said = self.target.check(data)
        except BaseException:
            self.failed = True
            raise
        finally:
            signal.alarm(0)
        if said not in self.heard:
            self.heard.add(said)
            if len(data) <= LARGEST_KEPT and len(self._seeds) < MOST_KEPT:
                self._keep(data, "new")

    def _keep(self, data: bytes, why: str) -> Path:
        path = self._folder / f"{why}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        self._seeds.append(data)
        return path


def _composed(pieces: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    piece = st.one_of(st.sampled_from(pieces), st.text(max_size=4).map(_encoded), st.binary(max_size=3))
    return st.lists(piece, max_size=30).map(b"".join)


def _changed(seeds: list[bytes], pieces: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """What is known, with some bytes left out, put in, doubled or taken from another."""

    def change(data: bytes, changes: list[tuple[int, int, int, bytes]]) -> bytes:
        for kind, at, length, piece in changes:
            begin = at % (len(data) + 1)
            middle = data[begin : begin + length]
            data = data[:begin] + _CHANGES[kind](middle, piece) + data[begin + length :]
        return data

    piece = st.one_of(st.sampled_from(pieces), st.binary(max_size=2), st.sampled_from(seeds))
    step = st.tuples(st.sampled_from(range(len(_CHANGES))), st.integers(0, 2000), st.integers(0, 12), piece)
    return st.builds(change, st.sampled_from(seeds), st.lists(step, min_size=1, max_size=6))


_CHANGES: tuple[Callable[[bytes, bytes], bytes], ...] = (
    lambda _middle, _piece: b"",
    lambda middle, piece: piece + middle,
    lambda _middle, piece: piece,
    lambda middle, _piece: middle * 3,
    lambda middle, _piece: bytes(each ^ 1 << each % 8 for each in middle),
)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hangs(_signal: int, _frame: object) -> None:
    raise Hang(f"the input was read for {PATIENCE} seconds")


if __name__ == "__main__":
    sys.exit(main())
