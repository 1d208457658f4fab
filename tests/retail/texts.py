"""The texts with which tools of the retail world refuse a call."""

from __future__ import annotations

import ast
import re


def texts_of(tree: ast.AST) -> set[str]:
    """The texts of all refusals, with `*` where a value stands."""
    texts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).startswith("Error: "):
            texts.add(str(node.value))
        if isinstance(node, ast.JoinedStr):
            texts.add(
                "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
            )
    return {text for text in texts if text.startswith("Error: ")} - {"Error: ", "Error: new item "}


def without_id(text: str, tool: str) -> str:
    """A text with `*` for the id in it."""
    if tool in {"modify_pending_order_items", "exchange_delivered_order_items"}:
        text = re.sub(
            r"^Error: new item .* not found or available$", "Error: new item * not found or available", text
        )
        return re.sub(r"^Error: (?!order |payment method )\S* not found$", "Error: * not found", text)
    return text
