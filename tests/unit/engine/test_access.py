"""Access: what rules decide, in which order, for whom, and what a denial leaves behind."""

from __future__ import annotations

import hashlib
import logging

import pytest

from in_memory import runtime_of
from toolcrib import AccessViolation, CallFinished, CallStarted, Descriptor, DocumentError, Outcome, Runtime
from toolcrib.engine import engine_of
from toolcrib.engine.access_control import Principal

TOOLS = """
name: refund
tags: [money]
labels: {team: payments}
annotations: {destructive: true}
capabilities: ["pay:write"]
input_schema:
  type: object
  properties: {amount: {type: number, default: 700}, to: {type: string}}
  additionalProperties: false
mock: {result: done}
---
name: balance
annotations: {read_only: true}
mock: {result: 5}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.yaml").write_text(TOOLS)

    def write(access, profiles="{}", **files):
        text = f"project: p\nsources: [tools.yaml]\nprofiles: {profiles}\naccess:\n{access}"
        (tmp_path / "toolcrib.yaml").write_text(text)
        for name, content in files.items():
            (tmp_path / name).write_text(content)

        def opened(**options):
            return Runtime.open("toolcrib.yaml", index=False, strict=True, **options)

        return opened

    return write


def rules(*lines):
    return "  rules:\n" + "".join(f"    - {line}\n" for line in lines)


async def outcome_of(runtime, tool="refund", arguments=None, grants=frozenset(), **who):
    async with runtime.session(**who) as session:
        result = await session.call(tool, arguments, grants=grants)
        return (result.outcome, None if result.error is None else result.error.details.get("at"))


DENIED, OK, ASKED = Outcome.DENIED, Outcome.OK, Outcome.NEEDS_APPROVAL


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("tool: 'ref*'", DENIED),
        ("tool: [balance, refund]", DENIED),
        ("tool: '!balance'", DENIED),
        ("tag: money", DENIED),
        ("label: team", DENIED),
        ("label: team=payments", DENIED),
        ("annotation: destructive", DENIED),
        ("capability: 'pay:*'", DENIED),
        ("caller: ops", DENIED),
        ("user: 'a*'", DENIED),
        ("args: {amount: {$gt: 500}}", DENIED),
        ("tag: money, caller: [x, ops], args: {to: {$exists: false}}", DENIED),
        ("annotation: read_only", OK),
        ("caller: '!ops'", OK),
        ("user: bob", OK),
        ("args: {amount: {$gt: 800}}", OK),
        ("tag: money, caller: x", OK),
    ],
)
async def test_a_rule_decides_the_calls_that_meet_all_of_its_conditions(project, condition, outcome):
    # The default of `amount` counts: rules see the arguments that the tool gets.
    async with project(rules(f"deny: {{{condition}}}"))() as runtime:
        found, _at = await outcome_of(runtime, caller="ops", user="ann")
        assert found is outcome


@pytest.mark.parametrize(
    ("said", "outcome", "line"),
    [
        (["allow: {}", "ask: {}", "deny: {}"], DENIED, 8),
        (["deny: {}", "ask: {}", "allow: {}"], DENIED, 6),
        (["allow: {}", "ask: {}"], ASKED, 7),
        (["allow: {args: {amount: 700}}", "ask: {args: {amount: 700}}"], ASKED, 7),
        (["ask: {}", "deny: {args: {amount: 700}}"], DENIED, 7),
        (["deny: {args: {amount: 1}}", "ask: {}"], ASKED, 7),
        (["deny: {caller: x}", "deny: {args: {amount: 1}}"], OK, None),
    ],
)
async def test_deny_precedes_ask_and_ask_precedes_allow(project, said, outcome, line):
    opened = project(rules(*said))
    async with Runtime.open("toolcrib.yaml", index=False) as runtime:
        result = await runtime.call("refund")
        assert result.outcome is outcome
        details = {} if result.error is None else result.error.details
        at = details.get("approval", details).get("at")
        assert at == (None if line is None else f"toolcrib.yaml:{line}")
    assert opened


@pytest.mark.parametrize(("default", "outcome"), [("allow", OK), ("ask", ASKED), ("deny", DENIED)])
async def test_a_call_that_no_rule_decides_gets_the_default(project, default, outcome):
    opened = project(f"  default: {default}\n" + rules("allow: {tool: balance}"))
    async with opened() as runtime:
        assert (await runtime.call("refund")).outcome is outcome
        assert (await runtime.call("balance")).outcome is OK


async def test_a_denial_names_the_rule_its_place_and_its_reason(project):
    opened = project(
        rules("{deny: {tool: refund, args: {amount: {$gt: 500}}}, reason: Too much., severity: high}")
    )
    async with opened() as runtime:
        result = await runtime.call("refund")
        assert result.message == (
            "a call of `refund` is denied by the rule `deny tool refund, args` (toolcrib.yaml:6): Too much."
        )
        assert result.error.code == "access_rule"
        assert result.error.details == {
            "effect": "deny",
            "code": "access_rule",
            "rule": "`deny tool refund, args`",
            "at": "toolcrib.yaml:6",
            "reason": "Too much.",
            "severity": "high",
        }
        assert result.usage.attempts == 0


async def test_a_profile_adds_rules_and_replaces_the_other_keys(project):
    profiles = "{strict: {access: {default: deny, rules: [{allow: {tool: balance}}]}}}"
    opened = project("  default: ask\n" + rules("allow: {tool: refund, caller: ops}"), profiles)
    async with opened() as runtime:
        assert (await outcome_of(runtime))[0] is ASKED
    async with opened(profile="strict") as runtime:
        result = await runtime.call("refund")
        assert result.message == "a call of `refund` is denied by default (toolcrib.yaml:3 (profile strict))"
        assert await outcome_of(runtime, caller="ops") == (OK, None)
        assert (await runtime.call("balance")).outcome is OK


async def test_a_tool_needs_a_grant_for_each_capability(project):
    async with project("  grants: [network]\n")() as runtime:
        assert (await runtime.call("balance")).outcome is OK
        result = await runtime.call("refund")
        assert (result.outcome, result.error.code) == (DENIED, "missing_grant")
        assert result.message == (
            "a call of `refund` is denied by `grants` (toolcrib.yaml:5): it needs `pay:write`, which no grant covers"
        )
        assert (await outcome_of(runtime, grants={"pay:write"}))[0] is OK


async def test_invalid_arguments_are_reported_before_access_decides(project):
    async with project(rules("deny: {}"))() as runtime:
        assert (await runtime.call("refund", {"amount": "x"})).outcome is Outcome.INVALID_ARGUMENTS
        assert len(runtime.violations) == 0


async def test_a_denial_is_counted_recorded_and_reported_and_runs_nothing(project):
    events = []
    opened = project(rules("{deny: {caller: ops, args: {amount: {$gt: 5}}}, severity: critical}"))
    async with opened(observer=events.append) as runtime:
        async with runtime.session(caller="ops", user="ann", correlation="c1", id="s") as session:
            assert (await session.call("refund", {"amount": 6})).outcome is DENIED
            assert (await session.call("refund", {"amount": 5})).outcome is OK
        (violation,) = runtime.violations
        assert violation._replace(time=None, call="", decision=None) == AccessViolation(
            "refund",
            None,
            "",
            "ops",
            "ann",
            "s",
            "c1",
            hashlib.sha256(b'{"amount":6}').hexdigest(),
            None,
            False,
        )
        assert (violation.decision.place, violation.decision.severity) == ("toolcrib.yaml:6", "critical")
        log = runtime.violations
        assert (log.total, dict(log.by_severity)) == (1, {"critical": 1})
        assert dict(log.by_rule) == {("toolcrib.yaml:6", "`deny caller ops, args`"): 1}
        kinds = [type(event) for event in events]
        assert kinds == [CallStarted, AccessViolation, CallFinished, CallStarted, CallFinished]
        assert events[1] is violation


async def test_audit_records_and_blocks_nothing(project):
    opened = project("  audit: true\n" + rules("deny: {tool: refund}", "ask: {tool: balance}"))
    async with opened() as runtime:
        assert (await runtime.call("refund")).outcome is OK
        assert (await runtime.call("balance")).outcome is OK
        assert [(each.tool, each.decision.effect, each.audit) for each in runtime.violations] == [
            ("refund", "deny", True),
            ("balance", "ask", True),
        ]
        assert [card.name for card in runtime.registry.query()] == ["balance", "refund"]


async def test_what_is_denied_to_a_caller_is_neither_listed_nor_found(project):
    opened = project(rules("deny: {tool: refund, caller: '!ops'}", "deny: {tool: balance, args: {}}"))
    async with opened() as runtime:
        assert [card.name for card in runtime.registry.query()] == ["balance"]
        assert runtime.registry.search("refund") == []
        hidden = runtime.registry.hidden("refund")
        assert hidden.code == "denied"
        assert "toolcrib.yaml:6" in hidden.message
        async with runtime.session(caller="ops") as session:
            assert [card.name for card in session.registry.query()] == ["balance", "refund"]
            assert (await session.call("refund")).outcome is OK
        # The call is evaluated again: the chain that a permitted caller uses refuses others.
        assert (await runtime.call("refund")).outcome is DENIED
        assert runtime.violations.total == 1


def test_the_index_hides_what_the_documents_hide(project, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    project(rules("deny: {tool: refund}"))
    for _ in range(2):
        with Runtime.open("toolcrib.yaml") as runtime:
            assert [card.name for card in runtime.registry.query()] == ["balance"]
            assert runtime.call_sync("refund").error.details["at"] == "toolcrib.yaml:6"


CODE = """
print("imported")
open("imported", "w").close()


def run() -> int:
    return 1
"""


async def test_a_denial_imports_no_code_of_the_tool(project, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    tool = "name: coded\ninput_schema: {type: object}\npython: {call: 'denied_code:run'}\n"
    opened = project(
        rules("deny: {tool: coded, caller: '!ops'}"), **{"tools.yaml": tool, "denied_code.py": CODE}
    )
    async with opened() as runtime:
        assert (await runtime.call("coded")).outcome is DENIED
        assert not (tmp_path / "imported").exists()
        assert (await outcome_of(runtime, "coded", caller="ops"))[0] is OK
        assert (tmp_path / "imported").exists()


async def test_a_tool_that_access_decides_nothing_about_has_no_layer(project):
    opened = project("  grants: ['pay:write']\n" + rules("deny: {tool: refund, caller: x}"))
    async with opened() as runtime:
        engine = engine_of(runtime)
        assert "access" not in engine.chain_for(runtime.registry["balance"]).layers
        assert "access" in engine.chain_for(runtime.registry["refund"]).layers
        assert engine.chain_for(runtime.registry["refund"]).at_once


def test_rules_apply_without_an_event_loop(project):
    with project(rules("deny: {args: {amount: 1}}"))() as runtime:
        assert runtime.call_sync("refund", {"amount": 1}).outcome is DENIED
        assert runtime.call_sync("refund", {"amount": 2}).outcome is OK


async def test_confirmation_asks_also_in_audit_mode(project):
    tool = "name: pay\nrequires_confirmation: Pay?\nmock: {result: 1}\n"
    opened = project("  audit: true\n" + rules("deny: {tool: pay}"), **{"tools.yaml": tool})
    async with opened() as runtime:
        result = await runtime.call("pay")
        assert (result.outcome, result.error.code) == (ASKED, "requires_confirmation")
        planned = await runtime.dry_run("pay")
        assert (planned.outcome, planned.error.code) == (ASKED, "requires_confirmation")
        assert result.error.details["approval"]["at"] == "tools.yaml:2"
        assert runtime.violations.total == 1


async def test_the_gate_says_what_arguments_may_decide(project):
    opened = project(rules("deny: {args: {amount: 1}}", "ask: {caller: ops}"))
    async with opened() as runtime:
        access = engine_of(runtime).access
        standing = access.standing(runtime.registry["refund"], Principal("ops"))
        assert [*standing.lines()] == [
            "denied by the rule `deny args` (toolcrib.yaml:6), depending on the arguments",
            "otherwise needs approval by the rule `ask caller ops` (toolcrib.yaml:7)",
        ]
        assert access.gate(runtime.registry["refund"]).decide_for(Principal("ops")) is None


async def test_a_dry_run_explains_the_decision(project):
    opened = project("  default: allow\n" + rules("deny: {args: {amount: 1}}"))
    async with opened() as runtime:
        assert (await runtime.dry_run("refund", {"amount": 1})).outcome is DENIED
        assert (await runtime.dry_run("refund")).value["access"]["code"] == "access_default"
        assert runtime.violations.total == 0


async def test_a_secret_appears_neither_in_the_record_nor_in_the_log(project, caplog):
    tool = "name: pay\ninput_schema: {properties: {token: {type: string}}}\nmock: {result: 1}\n"
    opened = project(rules("deny: {args: {token: {$exists: true}}}"), **{"tools.yaml": tool})
    events = []
    with caplog.at_level(logging.DEBUG):
        async with opened(observer=events.append) as runtime:
            result = await runtime.call("pay", {"token": "canary-4711"})
            shown = [str(each.as_json()) for each in runtime.violations]
    assert result.outcome is DENIED
    assert "canary-4711" not in f"{result.as_json()} {shown} {caplog.text}"
    assert [event for event in events if isinstance(event, AccessViolation)]


async def test_a_denial_comes_before_the_cache_and_the_limits(project):
    tool = "name: far\ninput_schema: {}\nlive: {url: 'https://api.example.com/a'}\nlimits: {rate: 1/1m}\n"
    opened = project(rules("deny: {tool: far, args: {a: 1}}"), **{"tools.yaml": tool})
    async with opened() as runtime:
        layers = engine_of(runtime).chain_for(runtime.registry["far"]).layers
        assert layers[:5] == ("arguments", "access", "cache", "deadline", "limits")
        # More calls than the rate allows, none of which waits or spends from it.
        results = [await runtime.call("far", {"a": 1}) for _ in range(3)]
        assert [(each.outcome, each.usage.attempts) for each in results] == [(DENIED, 0)] * 3


# The settings of a program.


TWO = """
name: get_order
mock: {result: 1}
---
name: refund
input_schema: {type: object, properties: {amount: {type: number}}}
mock: {result: done}
"""
LIMIT = {"rules": [{"deny": {"tool": "refund", "args": {"amount": {"$gt": 500}}}, "reason": "Too much."}]}


async def test_a_program_gives_rules_without_a_project():
    async with Runtime(runtime_of(TWO).registry, access={**LIMIT, "default": "allow"}) as runtime:
        assert (await runtime.call("refund", {"amount": 500})).value == "done"
        denied = await runtime.call("refund", {"amount": 501})
        assert (denied.outcome, denied.error.details["at"]) == (Outcome.DENIED, "Runtime(access=...)/rules/0")
        assert runtime.violations.total == 1


async def test_a_tool_that_the_rules_of_a_program_deny_is_not_listed():
    rules = {"rules": [{"deny": {"tool": ["refund", "later"]}}]}
    async with Runtime(runtime_of(TWO).registry, access=rules) as runtime:
        assert [card.name for card in runtime.registry.query()] == ["get_order"]
        runtime.add(Descriptor("later", bindings={"mock": {"result": 1}}, mode="mock"))
        assert [card.name for card in runtime.registry.query()] == ["get_order"]
        assert (await runtime.call("later")).outcome is Outcome.DENIED


async def test_the_rules_of_a_program_are_added_to_those_of_the_project(tmp_path, caplog):
    (tmp_path / "tools.yaml").write_text(TWO)
    project = tmp_path / "toolcrib.yaml"
    project.write_text(
        "project: p\nsources: [tools.yaml]\naccess: {default: deny, rules: [{deny: {tool: get_order}}]}\n"
    )
    more = {"default": "allow", "rules": [*LIMIT["rules"], {"deny": {"tool": "refnd"}}]}
    for _warm in range(2):  # read, and from the index
        async with Runtime.open(project, access=more) as runtime:
            assert (await runtime.call("get_order")).error.code == "access_rule"
            assert (await runtime.call("refund", {"amount": 501})).error.code == "access_rule"
            assert (await runtime.call("refund", {"amount": 5})).outcome is Outcome.OK
            await runtime.reload()
            assert (await runtime.call("refund", {"amount": 501})).error.code == "access_rule"
    assert "the rule `deny tool refnd` matches no tool" in caplog.text
    assert "did you mean `refund`?" in caplog.text


def test_mistakes_in_the_rules_of_a_program_are_all_reported():
    wrong = {"defalt": "deny", "grants": ["netwrok"], "rules": [{"dny": {}}]}
    with pytest.raises(DocumentError) as error:
        Runtime(runtime_of(TWO).registry, access=wrong)
    assert {each.source for each in error.value.problems} == {"Runtime(access=...)"}
    assert {(each.code, each.pointer) for each in error.value.problems} >= {
        ("unknown_key", "/access/defalt"),
        ("unknown_key", "/access/rules/0/dny"),
    }
    assert "did you mean `default`?" in str(error.value)
