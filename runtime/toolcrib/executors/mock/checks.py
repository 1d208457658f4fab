"""Checks of a mock that its JSON Schema cannot express. They run when a descriptor is loaded."""

from __future__ import annotations

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import Descriptor
from toolcrib.core.text import canonical
from toolcrib.executors.mock.rules import MockRule, compile_rules
from toolcrib.schema.validation import Validator


def check_mock_block(descriptor: Descriptor) -> list[Problem]:
    """All problems of the `mock` block of a descriptor."""
    problems: list[Problem] = []
    rules = compile_rules(descriptor, problems)
    if len(rules) > 1:
        problems += _unreachable(rules)
        problems += _same_names(rules)
    # A block with errors has placeholder replies, whose results say nothing about the document.
    if not any(problem.severity == "error" for problem in problems):
        problems += _wrong_answers(rules, descriptor)
    return problems


def _unreachable(rules: tuple[MockRule, ...]) -> list[Problem]:
    """Rules that no call reaches, because a rule above them matches every call or all of theirs."""
    problems = []
    taken: dict[str, MockRule] = {}
    for index, rule in enumerate(rules):
        when = canonical(dict(rule.when))
        if rule.when and when in taken:
            message = f"{rule.label} is unreachable: {taken[when].label} has the same `when`"
            hint = "change or remove one of them, or merge them into one rule with a list of replies"
            problems.append(
                Problem(code="unreachable_rule", message=message, pointer=rule.pointer, hint=hint)
            )
        # With `next_rule` the same `when` may follow: it takes over when the replies are used up.
        if rule.after_last != "next_rule":
            taken.setdefault(when, rule)
        if rule.always and index + 1 < len(rules):
            message = f"the rules below {rule.label} are unreachable: it matches every call"
            hint = "move it to the end, or add a `when` to it"
            below = rules[index + 1].pointer
            return [
                *problems,
                Problem(code="unreachable_rule", message=message, pointer=below, hint=hint),
            ]
    return problems


def _same_names(rules: tuple[MockRule, ...]) -> list[Problem]:
    """Rules with the same name, which reports could not tell apart."""
    first: dict[str, MockRule] = {}
    problems = []
    for rule in rules:
        if rule is not first.setdefault(rule.label, rule):
            message = f"duplicate rule name `{rule.label}`"
            place = f"{rule.pointer}/name"
            problems.append(
                Problem(code="duplicate_name", message=message, pointer=place, hint="choose another name")
            )
    return problems


def _wrong_answers(rules: tuple[MockRule, ...], tool: Descriptor) -> list[Problem]:
    """Constant results that the output schema rejects."""
    replies = [reply for rule in rules for reply in rule.replies]
    fixed = [(reply, reply.constant.value) for reply in replies if reply.constant is not None]
    if tool.output_schema is None or not fixed:
        return []
    severity: Severity = "error" if tool.on_invalid_result == "error" else "warning"
    validator = Validator(tool.output_schema)
    problems = []
    for reply, answer in fixed:
        place = reply.pointer if reply.kind == "content" else f"{reply.pointer}/{reply.kind}"
        problems += [
            Problem(
                code="result_breaks_schema",
                message=f"the mock's result does not match `output_schema`: {fault.for_model()}",
                pointer=place + (fault.pointer if reply.kind == "result" else ""),
                hint=fault.hint or "change the result or the schema",
                severity=severity,
            )
            for fault in validator.faults(answer)
        ]
    return problems
