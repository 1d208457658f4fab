"""A process that opens a folder whenever it is told, and says what it found: with the index, as everybody does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from commands import python_command
from toolcrib import Runtime
from toolcrib.loading.cache.header import index_key
from toolcrib.loading.cache.index import default_index


def findings(folder: Path, *, index: bool) -> dict[str, Any]:
    """Everything that an opening tells: answers, cards, packs, scenarios, problems."""
    with Runtime.open(folder, index=index) as runtime:
        answers = {}
        for name in runtime.registry:
            result = runtime.call_sync(name)
            answers[name] = [result.outcome.value, result.value]
        stock = runtime._engine.stock
        found = {
            "answers": answers,
            "cards": [list(card) for card in runtime.registry.cards.values()],
            "places": {name: tool.origin.place("/mock") for name, tool in runtime.registry.items()},
            "digests": {name: tool.origin.digest for name, tool in runtime.registry.items()},
            "packs": [[pack.name, pack.version] for pack in runtime.packs],
            "scenarios": [scenario.name for scenario in runtime.scenarios],
            "problems": [str(problem) for problem in runtime.problems],
            "refused": {name: str(problem) for name, problem in stock.refused.items()},
            "ignored": list(stock.ignored),
        }
    return json.loads(json.dumps(found))


def recalls(folder: Path) -> bool:
    """Whether the next opening is answered by the index."""
    return default_index().recall(index_key((str(folder),))) is not None


class Opener:
    """A process that opens a folder over and over."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._process = subprocess.Popen(
            [*([sys.executable] if options else python_command()), "-W", "error", __file__, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def go_on(self, times: int) -> None:
        """Let it open so many times, while whoever calls this goes on as well."""
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()

    def found(self) -> Any:
        """Waits for what it found each time."""
        return json.loads(self._process.stdout.readline())

    def recalls(self) -> bool:
        """Whether its next opening is answered by the index."""
        self.go_on(0)
        return self.found()

    def opened(self) -> dict[str, Any]:
        """What it finds now."""
        self.go_on(1)
        return self.found()[0]


def main(folder: Path) -> None:
    """Open as many times as each line of standard input says; for 0, tell whether an index answers."""
    for line in sys.stdin:
        found = [findings(folder, index=True) for _ in range(int(line))]
        print(json.dumps(found or recalls(folder)), flush=True)  # noqa: T201 -- tells its parent


if __name__ == "__main__":
    main(Path(sys.argv[1]))
