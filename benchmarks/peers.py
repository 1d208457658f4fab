"""Mocked calls and typed functions of toolcrib and of other tool runtimes, each in its own virtual environment and process.

Rounds alternate over the processes. The overhead is compared: the time of a call minus the time of the tool's own work
in the same process.

    python benchmarks/peers.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from rounds import STRICT_ROUNDS, Round, Row, interleaved, line

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "peers"


class Peer(NamedTuple):
    """Another tool runtime.

    Attributes:
        name: Name of its script and its environment.
        title: Name in the results.
        calls: Calls per round: some tens of milliseconds.
        times: Goal: how many times smaller the overhead of toolcrib is.
    """

    name: str
    title: str
    calls: int
    times: float


PACKAGES = {
    "langchain": ("langchain-core", "langchain-community", "aiohttp"),
    "mcp": ("mcp", "jsonschema-rs"),
    "fastmcp": ("fastmcp",),
    "openai_agents": ("openai-agents",),
    "utcp": ("utcp", "utcp-http"),
    "server": ("uvloop",),
}
"""Environment -> packages that pip installs there."""

PEERS = (
    Peer("langchain", "LangChain StructuredTool", 200, 50),
    Peer("mcp", "MCP SDK in memory (MCPServer tool)", 100, 100),
    Peer("fastmcp", "FastMCP in memory", 50, 300),
    Peer("utcp", "UTCP client", 500, 30),
)

FUNCTIONS = (
    Peer("langchain", "LangChain StructuredTool", 200, 0.05),
    Peer("fastmcp", "FastMCP in memory", 50, 0.02),
    Peer("openai_agents", "OpenAI Agents SDK FunctionTool", 100, 0.8),
)
"""Peers whose tools are typed functions, each with the largest allowed ratio of whole calls."""

ROUNDS = 15
OUR_CALLS = 5_000

CLOSE = 0.5
"""The goals above this are judged by many short rounds."""

COLLECT_EVERY = 200
"""Number of short rounds between two garbage collections of a worker."""

LISTS = 40


class PeerMissing(Exception):
    """A peer cannot be installed."""


class Worker:
    """A running script of `benchmarks/peers`; `arguments` are those of its command line."""

    def __init__(self, python: Path | str, name: str, *arguments: str) -> None:
        script = HERE / "peers" / f"on_{name}.py"
        self._process = subprocess.Popen(
            [str(python), str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._name = name
        self.about = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the peer {self._name} ended with {self._process.wait()}; see above")
        return answer

    def time(self, contender: str, count: int, callers: int = 1, *, collect: bool = True) -> float:
        """Mean seconds per call of concurrent callers; the garbage is collected before, if `collect`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{contender} {count} {callers} {int(collect)}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def overhead(self, count: int) -> float:
        """Mean seconds that one call takes beyond the tool's own work."""
        return self.time("call", count) - self.time("bare", count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


@contextmanager
def program(name: str) -> Iterator[str]:
    """The first line that a program of `peers/` prints; its end is that of its standard input."""
    command = [sys.executable, str(HERE / "peers" / name)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def python_of(environment: str) -> Path:
    """The interpreter of an environment, which is created once and again when its packages change.

    Raises:
        PeerMissing: The packages cannot be installed.
    """
    folder = ENVIRONMENTS / environment
    python, ready = folder / "bin" / "python", folder / "ready"
    packages = PACKAGES[environment]
    if not ready.exists() or ready.read_text(encoding="utf-8").split() != [*packages]:
        print(f"setting up {folder} (once)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *packages]
        if subprocess.run(pip, check=False).returncode:
            raise PeerMissing(f"`pip install {' '.join(packages)}` failed")
        ready.write_text("\n".join(packages), encoding="utf-8")
    return python


def rows(versions: dict[str, str] | None = None) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker(sys.executable, "toolcrib"))
        theirs = {peer.name: stack.enter_context(Worker(python_of(peer.name), peer.name)) for peer in PEERS}
        for worker in (ours, *theirs.values()):
            (versions if versions is not None else {}).update(worker.about["versions"])
        contenders = {peer.name: (lambda peer=peer: theirs[peer.name].overhead(peer.calls)) for peer in PEERS}
        times = interleaved({"toolcrib": lambda: ours.overhead(OUR_CALLS), **contenders}, ROUNDS)
        for peer in PEERS:
            yield Row(
                "overhead of a mocked call",
                peer.title,
                times["toolcrib"],
                times[peer.name],
                peer.times,
                faster=True,
            )
        lists = interleaved(
            {
                "toolcrib": lambda: ours.time("list", LISTS),
                "fastmcp": lambda: theirs["fastmcp"].time("list", 1),
            },
            5,
        )
        yield Row(
            "listing 2,000 tools in process", "FastMCP", lists["toolcrib"], lists["fastmcp"], 100, faster=True
        )


def function_rows(versions: dict[str, str] | None = None) -> Iterator[Row]:
    """Calls of a typed asynchronous function; adds the measured versions to `versions`."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker(sys.executable, "toolcrib_typed"))
        theirs = {
            peer.name: stack.enter_context(Worker(python_of(peer.name), peer.name)) for peer in FUNCTIONS
        }
        for worker in (ours, *theirs.values()):
            (versions if versions is not None else {}).update(worker.about["versions"])
        for peer in FUNCTIONS:
            # A goal close to 1 is less than what other load does to a round, so it takes many short ones.
            many = peer.times > CLOSE
            every = COLLECT_EVERY if many else 1
            times = interleaved(
                {
                    "ours": a_round(ours, peer.calls if many else OUR_CALLS, every),
                    "theirs": a_round(theirs[peer.name], peer.calls, every),
                },
                STRICT_ROUNDS * every,
                collect_every=every,
            )
            yield Row(
                "call of a typed async function", peer.title, times["ours"], times["theirs"], peer.times
            )


def a_round(worker: Worker, calls: int, collect_every: int) -> Round:
    """A round of calls in a worker, which collects its garbage before every so many rounds."""
    rounds = count()
    return lambda: worker.time("call", calls, collect=next(rounds) % collect_every == 0)


if __name__ == "__main__":
    known: dict[str, str] = {}
    found = [*rows(known), *function_rows(known)]
    print(", ".join(f"{name} {version}" for name, version in sorted(known.items())))
    for row in found:
        print(line(row))
