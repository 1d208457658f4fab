"""Every code that the package gives to a problem, found in its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import source_trees
from toolcrib.core.errors import ExpressionError
from toolcrib.security.secrets import MissingSecret, UnusableSecret

OUTSIDE = (
    "acp/",
    "cli/",
    "security/egress.py",
    "core/errors.py",
    "servers/mcp/failures.py",
    "servers/a2a/outcomes.py",
    "servers/a2a/conversion.py",
    "serve/a2a/task_messages.py",
    "serve/acp/",
    "core/hooks.py",
    "formats/openapi_import/",
    "formats/providers/",
    "frameworks/",
    "engine/approvals.py",
    "engine/call_journal.py",
    "engine/idempotency_keys.py",
    "engine/session_state.py",
    "security/approvals.py",
    "security/journal",
    "security/encryption.py",
    "security/pack_signatures.py",
    "core/model.py",
    "provider/",
)
"""No problems are made here; some of them name the codes of exceptions."""


def codes() -> set[str]:
    """The problem codes of the package: whatever its source calls `code`, as far as it is a fixed text."""
    nodes = [
        node
        for module, each in source_trees.nodes().items()
        if not module.startswith(OUTSIDE)
        for node in each
    ]
    constants = dict(constants_of(nodes))
    positions = dict(takers_of(nodes))
    found = {text(value, constants) for value in given_codes(nodes, positions)}
    exceptions = {MissingSecret.code, UnusableSecret.code}
    return {code for code in found - exceptions if code} | {
        ExpressionError.code
    }  # what an expression's failure is called unless it says so


def constants_of(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Named texts: `NOT_ALLOWED = "expression_not_allowed"`."""
    for node in nodes:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            for name in targets(node):
                if isinstance(name, ast.Name) and name.id.isupper():
                    yield name.id, value.value


def takers_of(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Functions with a parameter `code`, and which argument that is."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            if "code" in names:
                yield node.name, names.index("code")


def given_codes(nodes: list[ast.AST], positions: dict[str, int]) -> Iterator[ast.expr]:
    """What stands where a code is expected."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from codes_of_call(node, positions)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in targets(node):
                yield from codes_of_assignment(target, node.value)


def codes_of_call(call: ast.Call, positions: dict[str, int]) -> Iterator[ast.expr]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "failure":  # `Result.failure`: the code of an error, not of a problem
        return
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "code")
    if len(call.args) > positions.get(name, len(call.args)):
        yield call.args[positions[name]]


def codes_of_assignment(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, item in zip(target.elts, value.elts, strict=False):
            yield from codes_of_assignment(part, item)
    elif isinstance(target, ast.Name) and target.id == "code":
        yield value
    elif isinstance(target, ast.Name) and target.id == "_CODES" and isinstance(value, ast.Dict):
        yield from value.values


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def text(node: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return constants.get(node.id, "")
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
