"""The examples of lint rules and of diff verdicts are what the pages say."""

from __future__ import annotations

import pytest

from docs.scripts import script

LINT, VERDICTS = script("lint_page"), script("verdicts_page")


@pytest.mark.parametrize("name", LINT.RULES)
def test_a_rule_finds_its_bad_example_and_not_the_good_one(name):
    rule = LINT.RULES[name]
    assert name in {report.problem.code for report in LINT.reports_of(rule.bad)}
    left = [report.problem for report in LINT.reports_of(rule.good)]
    assert [str(each) for each in left if each.code == name or each.severity != "notice"] == []


@pytest.mark.parametrize("change", VERDICTS.CHANGES, ids=lambda change: change.title)
def test_a_change_has_the_verdicts_of_the_page(change):
    assert VERDICTS.verdicts_of(change) == change.verdicts
