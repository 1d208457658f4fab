"""`toolcrib run`: warnings of scenarios, digests, and failures of what is kept, in every form."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from toolcrib.cli import exit_codes

SHOP = """
name: pay
input_schema: {type: object, properties: {id: {type: string}}}
mock: {result: 1}
---
scenario: careful
matrix: {id: [a, b]}
store: {orders: {rows: {a: {paid: false}, b: {paid: false}}}}
mocks:
  pay:
    rules:
      - {name: first, when: {args: {id: a}}, reply: {rows: {o: {in: orders, key: a}}, effects: [{update: o, set: {paid: true}}], result: 1}}
      - {name: never, when: {args: {id: c}}, reply: {result: 2}}
      - {reply: {rows: {o: {in: orders, key: b}}, effects: [{update: o, set: {paid: true}}], result: 1}}
steps: [{call: pay, args: {id: "{{ matrix.id }}"}}]
verify: {store: {orders: {"a": {paid: true}}}}
"""


@pytest.fixture
def shop(tools, write):
    write({"descriptors/shop/shop.scenario.yaml": SHOP})
    return tools


WARNING = "no call used `never` in the mock of `pay`"


def test_a_warning_is_told_once_where_it_is_so_in_every_run(shop, toolcrib):
    result = toolcrib("run", "-k", "careful")
    assert result.exit_code == exit_codes.PROBLEMS
    lines = result.stdout.splitlines()
    assert f"warning: careful: {WARNING} (descriptors/shop/shop.scenario.yaml:13)" in lines
    assert "  store/orders/a/paid: expected true, got false" in lines
    told = [line for line in lines if line.startswith("warning: ")]
    assert len(told) == 1  # what only one combination leaves is not odd


def test_warnings_do_not_fail_a_run(shop, toolcrib):
    result = toolcrib("run", "-k", "id=a")
    assert result.exit_code == exit_codes.OK
    assert "warning: careful: " in result.stdout


def test_the_other_forms_have_them_too(shop, toolcrib, document, tmp_path):
    run = document("run", "-k", "id=a", "--json")["scenarios"][0]
    assert [warning["lines"] for warning in run["warnings"]] == [
        [WARNING],
        ["no call used rule 3 in the mock of `pay`"],
    ]
    assert [warning["line"] for warning in run["warnings"]] == [13, 14]
    annotated = toolcrib("run", "-k", "id=a", "--format", "github").stdout.splitlines()
    assert any(line.startswith("::warning file=") and "line=13,title=careful::" in line for line in annotated)
    toolcrib("run", "-k", "id=a", "--junit", str(tmp_path / "out.xml"))
    case = ET.parse(tmp_path / "out.xml").find(".//testcase")
    assert case is not None
    assert WARNING in case.findtext("system-out", "")


@pytest.mark.exhaustive
def test_v_tells_each_run_in_a_line_with_the_beginning_of_its_digest(shop, toolcrib, document):
    digests = [report["digest"] for report in document("run", "-k", "careful", "--json")["scenarios"]]
    assert len(set(digests)) == 2
    for jobs in ("1", "2"):
        lines = toolcrib("run", "-k", "careful", "-v", "-j", jobs).stdout.splitlines()
        told = [line for line in lines if line.startswith(("passed  ", "failed  "))]
        assert [line.split() for line in told] == [
            ["passed", "careful[id=a]", "1", "call", "0", "s", digests[0][:16]],
            ["failed", "careful[id=b]", "1", "call", "0", "s", digests[1][:16]],
        ]
