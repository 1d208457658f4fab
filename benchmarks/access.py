"""Access: calls with and without rules, and decisions among many rules.

.venv/bin/python benchmarks/access.py [--rounds 60]
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from calls import CALLS, a_round
from rounds import STRICT, Row, interleaved, print_rows

from toolcrib import Runtime

MANY, FEW = 1_000, 10

TOOL = """\
name: pay
input_schema:
  type: object
  properties: {amount: {type: number}, to: {type: string}}
  required: [amount]
  additionalProperties: false
output_schema: {type: object, properties: {paid: {type: number}}, required: [paid]}
mock: {result: {paid: "{{ args.amount }}"}}
"""
ARGUMENTS: dict[str, Any] = {"amount": 20, "to": "ann"}

OTHERS = "---\n".join(f"name: tool_{number}\nmock: {{result: 1}}\n" for number in range(MANY))

ELSEWHERE = "rules: [{deny: {tool: tool_0}}]"
BY_ARGUMENTS = 'rules: [{deny: {tool: pay, args: {amount: {$gt: 500}}}}, {ask: {tool: "p*", args: {to: {$regex: "^x"}}}}]'


def rules(number: int) -> str:
    """Access with as many rules, of which two concern the tool."""
    listed = [f"{{deny: {{tool: tool_{each}}}}}" for each in range(number - 2)]
    return f"rules: [{', '.join(listed)}, {BY_ARGUMENTS.removeprefix('rules: [')}"


class Projects:
    """Runtimes over one tool, each with its own access settings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "tools.yaml").write_text(f"{TOOL}---\n{OTHERS}", encoding="utf-8")

    def opened(self, access: str) -> Runtime:
        """A runtime with these access settings, as the block of a project."""
        file = self._folder / "toolcrib.yaml"
        block = f"access: {{{access}}}\n" if access else ""
        file.write_text(f"project: p\nsources: [tools.yaml]\n{block}", encoding="utf-8")
        runtime = Runtime.open(file, index=False)
        assert not [problem for problem in runtime.problems if problem.severity == "error"]
        return runtime


def rows(rounds: int = 60) -> Iterator[Row]:
    """The rows of access."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        projects = Projects(Path(folder))
        none, elsewhere = projects.opened(""), projects.opened(ELSEWHERE)
        ours, many, few = (
            projects.opened(BY_ARGUMENTS),
            projects.opened(rules(MANY)),
            projects.opened(rules(FEW)),
        )
        for runtime in (none, elsewhere, ours, many, few):
            result = loop.run_until_complete(runtime.call("pay", ARGUMENTS))
            assert result.value == {"paid": 20}, result
        for measure, base, one, other, goal in (
            ("mocked call, access decides nothing about the tool", "without access", elsewhere, none, 1.02),
            ("mocked call, rules over arguments", "without access", ours, none, 2),
            (f"mocked call, decided among {MANY:,} rules", f"among {FEW} rules", many, few, 1.5),
        ):
            # A goal of a few per cent is less than what other load does to a round, so it takes many short ones.
            calls, many_rounds = (CALLS // 20, rounds * 200) if goal < STRICT else (CALLS, rounds)
            times = interleaved(
                {
                    "ours": a_round(loop, partial(one.call, "pay", ARGUMENTS), calls),
                    "base": a_round(loop, partial(other.call, "pay", ARGUMENTS), calls),
                },
                many_rounds,
                collect_every=many_rounds // rounds,
            )
            yield Row(measure, base, times["ours"], times["base"], goal)
    loop.close()


if __name__ == "__main__":
    print_rows(rows, __doc__)
