"""Tools that are made to fail: what tests of faults are made of."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

from in_memory import MOCKS, loaded
from toolcrib import Executors, Problem, Runtime, Scenario, VirtualClock
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.engine.session import Session
from toolcrib.loading.scenarios.scenario_links import check_links
from toolcrib.registry.registry import Registry
from toolcrib.scenarios.run_setup import registry_for
from toolcrib.simulation.store import store_of

ORDER = "{type: object, required: [id, n], properties: {id: {type: string}, n: {type: integer, minimum: 0}}}"
"""The output schema of `ordered`."""

REPEATABLE = "annotations: {idempotent: true}"


def ordered(*, more: str = "", name: str = "tool") -> str:
    """A mocked tool that answers with the number of times that it acted."""
    return dedent(f"""
        name: {name}
        input_schema: {{}}
        output_schema: {ORDER}
        timeout: 10s
        {more}
        mock:
          result: {{id: A, n: "{{{{ seq('acted') }}}}"}}
        ---
    """)


def scenario_text(faults: str, more: str = "") -> str:
    """A scenario that says what goes wrong; its steps are not played."""
    steps = "steps: [{call: nobody, expect: {outcome: not_found}}]"
    return f"scenario: failing\nfaults:\n{indent(dedent(faults), '  ')}\n{dedent(more)}\n{steps}\n"


def read(text: str, faults: str, *, executors: Executors = MOCKS, more: str = "") -> tuple[Any, Scenario]:
    """Tools and a scenario that are without error."""
    found = loaded(
        f"{text.rstrip().removesuffix('---')}\n---\n{scenario_text(faults, more)}", None, executors
    )
    assert [str(problem) for problem in found.problems if problem.severity == "error"] == []
    return found, found.scenarios[0]


def wrong(text: str, faults: str, more: str = "") -> list[tuple[str, str]]:
    """Code and pointer of all that is wrong with faults."""
    return [(problem.code, problem.pointer) for problem in problems(text, faults, more)]


def problems(text: str, faults: str, more: str = "") -> list[Problem]:
    """All that is wrong with faults."""
    found = loaded(f"{text.rstrip().removesuffix('---')}\n---\n{scenario_text(faults, more)}")
    tools = {tool.name: tool for tool in found.tools}
    linked = [problem for scenario in found.scenarios for problem in check_links(scenario, tools, MOCKS, {})]
    return [*found.problems, *linked]


def failing(
    text: str,
    faults: str,
    *,
    executors: Executors = MOCKS,
    more: str = "",
    session: dict[str, Any] | None = None,
    **options: Any,
) -> Session:
    """A session in which tools fail, on virtual time unless told otherwise; `more` are other keys of the scenario."""
    found, scenario = read(text, faults, executors=executors, more=more)
    runtime = loaded_runtime(found, executors=executors, **options)
    return runtime.session(
        **{"clock": VirtualClock(), "registry": faulty(runtime, scenario), **(session or {})}
    )


def faulty(runtime: Runtime, scenario: Scenario) -> Registry:
    """The tools of a runtime as a scenario sees them."""
    return registry_for(runtime.registry, scenario)


def acted(session: Session) -> int:
    """How often the tools of a session acted that are made of `ordered`, outside packs."""
    return store_of(session).version.numbers.get("/acted", 0)
