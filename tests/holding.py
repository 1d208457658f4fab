"""Projects whose calls wait for a person."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

from toolcrib import Runtime

PAY = """
name: pay
description: Pays an amount.
input_schema:
  type: object
  additionalProperties: false
  properties:
    amount: {type: number, maximum: 1000}
    to: {type: string, default: shop}
    password: {type: string}
    note: {type: string}
    card: {type: object, properties: {number: {type: string, x-secret: true}}}
  required: [amount]
mock: {result: {paid: "{{ args.amount }}", to: "{{ args.to }}", known: "{{ args['password'] == 'canary-4711' }}"}}
"""

HELD = "budgets: {nothing: {tools: [pay], amount: 1, most: 0, on_reach: ask}}"
"""Every call of `pay` needs approval."""


def project(folder: Path, settings: str = HELD, tools: str = PAY) -> Path:
    """Write a project with the tool `pay` and return its folder."""
    (folder / "descriptors").mkdir(parents=True, exist_ok=True)
    (folder / "toolcrib.yaml").write_text(f"project: shop\n{dedent(settings)}\n", encoding="utf-8")
    (folder / "descriptors" / "pay.tool.yaml").write_text(dedent(tools), encoding="utf-8")
    return folder


def opened(folder: Path, settings: str = HELD, tools: str = PAY, **options: Any) -> Runtime:
    """A runtime over such a project, whose approvals are beside it."""
    return Runtime.open(
        project(folder / "project", settings, tools), **{"approvals": folder / "approvals", **options}
    )
