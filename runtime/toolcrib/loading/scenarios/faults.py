"""Parse the faults of a scenario, check them against their tools, and resolve them for one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Descriptor, InjectedFault, Origin
from toolcrib.core.text import compact
from toolcrib.expressions import compile_value, is_expression
from toolcrib.loading.scenarios.expectations import Names, expression_texts
from toolcrib.simulation.fault_triggers import compile_trigger, fault_variables
from toolcrib.simulation.faults import compile_injection, kind_of, kind_problem

OF_A_RUN = ("matrix", "run")
"""Names that are constant for a whole run of the scenario."""


def parse_faults(
    entries: Sequence[Mapping[str, Any] | None],
    origin: Origin,
    problems: list[Problem],
    names: Names = NOTHING,
) -> tuple[InjectedFault, ...]:
    """Parse `faults:` of a scenario.

    Args:
        entries: The entries; None in place of one that the schema rejected, so that indexes stay right.
        origin: The document.
        problems: Receives the problems that can be found without the tools.
        names: Names of the whole run in addition to `run`: `matrix`, with its keys if they are known.
    """
    faults: list[InjectedFault] = []
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        # Unnamed faults are numbered by kind, because reports and random draws need a stable key.
        pointer = f"/faults/{index}"
        taken = {fault.name: fault for fault in faults}
        name = entry.get("name") or _unwritten_name(entry["inject"], taken)
        if name in taken:
            message = f"duplicate fault `{name}`, already declared at {origin.place(taken[name].pointer)}"
            hint = "use another name: reports and random draws are keyed by it"
            problem = Problem(code="duplicate_name", message=message, pointer=f"{pointer}/name", hint=hint)
            problems.append(problem)
        fault = InjectedFault(
            name=name,
            tool=entry["tool"],
            inject=entry["inject"],
            when=entry.get("when", NOTHING),
            must_fire=entry.get("must_fire", True),
            pointer=pointer,
            origin=origin,
        )
        problems.extend([*_of_the_run(fault, names), *_never_drawn(fault)])
        faults.append(fault)
    return tuple(faults)


def _never_drawn(fault: InjectedFault) -> Iterator[Problem]:
    if fault.must_fire and fault.when.get("probability") == 0:
        message = f"`{fault.name}` must fire, but its probability is 0"
        hint = "raise the probability, or set `must_fire: false` to switch the fault off"
        yield Problem("contradiction", message, f"{fault.pointer}/when/probability", hint)


def _unwritten_name(inject: JSON, taken: Collection[str]) -> str:
    kind = "fault" if isinstance(inject, str) and is_expression(inject) else kind_of(inject)[0]
    # The first fault of a kind has the plain name, so adding a second one does not change its random draws.
    numbered = (kind if number == 1 else f"{kind}_{number}" for number in range(1, len(taken) + 2))
    return next(name for name in numbered if name not in taken)


def _of_the_run(fault: InjectedFault, names: Names) -> Iterator[Problem]:
    """The problems of texts that read `matrix` or `run`."""
    known: Names = {**fault_variables(), "run": None, **names}
    for pointer, text in expression_texts(_written(fault), fault.pointer):
        found: list[Problem] = []
        read = compile_value(text, known, found, pointer).names
        if not read & {*OF_A_RUN}:
            continue  # compiled with the tools, which know more names
        yield from found
        # Run values are substituted before the run, call values in each call. One text cannot be rendered twice.
        mixed = sorted(read - {*OF_A_RUN})
        if mixed:
            message = (
                f"the same text reads `{mixed[0]}` of a call and `{min(read & {*OF_A_RUN})}` of the whole run"
            )
            hint = "move the run's value to a separate entry of `details` or a separate fault"
            yield Problem(code="mixed_names", message=message, pointer=pointer, hint=hint)


def _written(fault: InjectedFault) -> dict[str, JSON]:
    return {"inject": fault.inject, "when": dict(fault.when)}


def resolve_faults(faults: Iterable[InjectedFault], scope: Mapping[str, JSON]) -> tuple[InjectedFault, ...]:
    """The faults of one run, with texts that read `matrix` or `run` rendered.

    Args:
        faults: The faults of the scenario, without errors.
        scope: `{matrix, run}` of the run.
    """
    return tuple(_settled(fault, scope) for fault in faults)


def _settled(fault: InjectedFault, scope: Mapping[str, JSON]) -> InjectedFault:
    written: Any = _worked_out(_written(fault), scope)
    return fault._replace(inject=written["inject"], when=written["when"])


def _worked_out(value: JSON, scope: Mapping[str, JSON]) -> JSON:
    if isinstance(value, dict):
        return {key: _worked_out(item, scope) for key, item in value.items()}
    if isinstance(value, list):
        return [_worked_out(item, scope) for item in value]
    if not isinstance(value, str) or not is_expression(value):
        return value
    rendering = compile_value(value, {*fault_variables(), *OF_A_RUN}, [])
    return rendering.render(scope) if rendering.names & {*OF_A_RUN} else value


Tools: TypeAlias = "Mapping[str, Descriptor]"


def check_faults(
    faults: Sequence[InjectedFault],
    tools: Tools,
    refused: Collection[str] = (),
    runs: Iterable[Mapping[str, JSON]] = (),
    seen: Callable[[Descriptor], Descriptor] = lambda tool: tool,
) -> list[Problem]:
    """The problems of faults with regard to their tools, each once.

    Args:
        faults: The faults of one scenario.
        tools: The tools that are loaded together with it.
        refused: Names of tools whose documents were rejected; their faults are not checked.
        runs: `{matrix, run}` of each run of the scenario.
        seen: Returns a tool as the scenario sees it.
    """
    # A dict is an ordered set: a matrix of 100 runs would otherwise report each problem 100 times.
    found: dict[Problem, None] = {}
    scopes = [*runs] or [{}]
    for fault in faults:
        fitting = [seen(tool) for name, tool in tools.items() if fnmatchcase(name, fault.tool)]
        if not fitting and not any(fnmatchcase(name, fault.tool) for name in refused):
            found |= dict.fromkeys(_for_nobody(fault, tools))
        for settling in _different(fault, scopes, found):
            for tool in fitting:
                found |= dict.fromkeys(_misfits(settling, tool))
    return [*found]


def _for_nobody(fault: InjectedFault, tools: Tools) -> Iterator[Problem]:
    near = did_you_mean(fault.tool, tools)
    message = f"the fault `{fault.name}` applies to no tool: unknown tool `{fault.tool}`"
    hint = near or "load the tool together with the scenario"
    yield Problem(code="unknown_tool", message=message, pointer=f"{fault.pointer}/tool", hint=hint)
    wrong = kind_problem(fault.inject, f"{fault.pointer}/inject")
    if wrong is not None and not is_expression(str(fault.inject)):
        yield wrong


def _different(
    fault: InjectedFault, scopes: Sequence[Mapping[str, JSON]], found: dict[Problem, None]
) -> list[InjectedFault]:
    """The distinct forms of a fault in the runs."""
    if not any(_reads_run(text) for _pointer, text in expression_texts(_written(fault), "")):
        return [fault]
    ways: list[InjectedFault] = []
    for scope in scopes:
        try:
            settling = _settled(fault, scope)
        except ExpressionError as error:
            pointer = f"{fault.pointer}/inject"
            found[error.problem(pointer)] = None
            continue
        if isinstance(settling.inject, str) is not isinstance(fault.inject, str):
            message = f"the expression returns {compact(settling.inject)}, but only a kind without options can be computed"
            hint = "write `{kind: options}` directly, with expressions in its texts"
            found[
                Problem(code="wrong_type", message=message, pointer=f"{fault.pointer}/inject", hint=hint)
            ] = None
        elif settling not in ways:
            ways.append(settling)
    return ways


def _reads_run(text: str) -> bool:
    return bool(compile_value(text, {*fault_variables(), *OF_A_RUN}, []).names & {*OF_A_RUN})


def _misfits(fault: InjectedFault, tool: Descriptor) -> list[Problem]:
    problems: list[Problem] = []
    names = fault_variables(tool)
    compile_trigger(fault.when, f"{fault.pointer}/when", names, problems, key=fault.name, tool=tool)
    place = f"{fault.pointer}/inject"
    compile_injection(fault.inject, place, tool, names, problems, key=fault.name)
    return problems


def faults_of(tool: Descriptor, faults: Sequence[InjectedFault]) -> tuple[InjectedFault, ...]:
    """The faults that apply to a tool, in order."""
    return tuple(fault for fault in faults if fnmatchcase(tool.name, fault.tool))
