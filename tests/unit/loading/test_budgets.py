"""`budgets` and `approvals` of projects and profiles: problems, places, and what a profile changes."""

from __future__ import annotations

import pytest

from toolcrib import Descriptor, Executors
from toolcrib.core.errors import DocumentError
from toolcrib.loading.budgets import compile_budgets
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.projects import Project, settings_of

KINDS = Executors({})


def parse(budget, *, profile=""):
    line = f"budgets: {{spending: {budget}}}"
    text = f"project: p\n{line}\n" if not profile else f"project: p\nprofiles: {{ci: {{{line}}}}}\n"
    return Project.parse("toolcrib.yaml", text, kinds=KINDS)


def problems(budget, **options):
    with pytest.raises(DocumentError) as error:
        parse(budget, **options)
    return [(each.code, each.pointer, each.message) for each in error.value.problems]


def test_a_budget_is_compiled():
    text = """project: p
budgets:
  spending: {tools: [pay_*, "*__purchase"], amount: "{{ args.amount }}", actual: "{{ result.total }}", per: session, most: 200, on_reach: ask}
  calls: {tools: ["*"], amount: 1, per: 90m, most: 10.5}
"""
    settings = settings_of(Project.parse("toolcrib.yaml", text, kinds=KINDS))
    spending, calls = compile_budgets(settings.budgets)
    assert (spending.tools, spending.per, spending.asks) == (("pay_*", "*__purchase"), "session", True)
    assert spending.place == "toolcrib.yaml:3"
    assert spending.counts(Descriptor("shop__purchase"))
    assert not spending.counts(Descriptor("refund"))
    assert (calls.per, calls.seconds, calls.most, calls.asks, calls.actual) == (
        "time",
        5400,
        10.5,
        False,
        None,
    )
    assert decode_value(encode_value(settings)) == settings


@pytest.mark.parametrize(
    ("budget", "code", "pointer", "words"),
    [
        ("{tools: [pay], most: 1}", "missing_key", "/budgets/spending/amount", "amount"),
        ("{tools: [pay], amount: 1}", "missing_key", "/budgets/spending/most", "most"),
        ("{amount: 1, most: 1}", "missing_key", "/budgets/spending/tools", "tools"),
        ("{tools: [], amount: 1, most: 1}", "wrong_value", "/budgets/spending/tools", ""),
        ('{tools: ["pay["], amount: 1, most: 1}', "bad_glob", "/budgets/spending/tools/0", ""),
        (
            '{tools: [pay], amount: "{{ arg.amount }}", most: 1}',
            "unknown_name",
            "/budgets/spending/amount",
            "arg",
        ),
        (
            '{tools: [pay], amount: "{{ result.x }}", most: 1}',
            "unknown_name",
            "/budgets/spending/amount",
            "result",
        ),
        ("{tools: [pay], amount: -1, most: 1}", "wrong_amount", "/budgets/spending/amount", "at least 0"),
        ("{tools: [pay], amount: much, most: 1}", "wrong_amount", "/budgets/spending/amount", "got a text"),
        ('{tools: [pay], amount: "{{ args.", most: 1}', "expression_syntax", "/budgets/spending/amount", ""),
        ("{tools: [pay], amount: 1, most: -1}", "wrong_value", "/budgets/spending/most", ""),
        ("{tools: [pay], amount: 1, most: 1, per: week}", "wrong_form", "/budgets/spending/per", "`1d`"),
        (
            "{tools: [pay], amount: 1, most: 1, per: 0s}",
            "out_of_range",
            "/budgets/spending/per",
            "longer than 0s",
        ),
        (
            "{tools: [pay], amount: 1, most: 1, on_reach: stop}",
            "not_allowed",
            "/budgets/spending/on_reach",
            "",
        ),
        ("{tools: [pay], amount: 1, most: 1, actual: -3}", "wrong_amount", "/budgets/spending/actual", ""),
        ("{tools: [pay], amuont: 1, most: 1, amount: 1}", "unknown_key", "/budgets/spending/amuont", ""),
    ],
)
def test_problems_of_a_budget(budget, code, pointer, words):
    found = problems(budget)
    assert [(each[0], each[1]) for each in found] == [(code, pointer)], found
    assert words in found[0][2] or words in str(found)


def test_problems_of_a_budget_in_a_profile():
    found = problems("{tools: [pay], amount: -1, most: 1}", profile="ci")
    assert [(each[0], each[1]) for each in found] == [
        ("wrong_amount", "/profiles/ci/budgets/spending/amount")
    ]


def test_only_a_profile_switches_a_budget_off():
    text = """project: p
approvals: {expire_after: 4h}
budgets:
  a: {tools: [x], amount: 1, most: 1}
  b: {tools: [x], amount: 1, most: 1}
profiles:
  base: {budgets: {a: off}}
  ci: {extends: base, approvals: {expire_after: 5m}, budgets: {c: {tools: [x], amount: 2, most: 3}}}
"""
    project = Project.parse("toolcrib.yaml", text, kinds=KINDS)
    assert [*settings_of(project).budgets] == ["a", "b"]
    settings = settings_of(project, "ci", "--profile")
    assert {name: each["at"] for name, each in settings.budgets.items()} == {
        "b": "toolcrib.yaml:5",
        "c": "toolcrib.yaml:8 (profile ci)",
    }
    assert (settings_of(project).approvals, settings.approvals) == (
        {"expire_after": "4h"},
        {"expire_after": "5m"},
    )
    with pytest.raises(DocumentError):
        Project.parse("toolcrib.yaml", "project: p\nbudgets: {a: off}\n", kinds=KINDS)
    with pytest.raises(DocumentError):
        Project.parse("toolcrib.yaml", "project: p\napprovals: {expire_after: soon}\n", kinds=KINDS)
