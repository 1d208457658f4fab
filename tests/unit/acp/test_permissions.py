"""Who decides about a call of an agent: the policy, the roots, the rules of access, what was approved, or a person."""

from __future__ import annotations

import pytest

from toolcrib import Registry, Runtime, ToolPolicy
from toolcrib.acp.permissions import Permissions, ReportedCall, parse_options
from toolcrib.engine import engine_of

RULES = {
    "rules": [
        {"deny": {"tool": "Bash", "args": {"command": {"$contains": "rm "}}}, "reason": "no deletions"},
        {"ask": {"tool": "Fetch"}},
        {"allow": {"tool": "Search"}},
        {"allow": {"tool": "read", "caller": "trusted-agent"}},
        {"allow": {"annotation": "read_only", "tool": "Look"}},
    ]
}


def decide(call, *, policy=(), approved=(), access=None, caller="agent", outside=()):
    runtime = None if access is None else Runtime(Registry(), access=access)
    permissions = Permissions(
        ToolPolicy(**dict(policy)),
        approved,
        None if runtime is None else (lambda: engine_of(runtime).access),
        caller,
        lambda path, _writes: "it is outside" if path in outside else "",
    )
    return permissions.decide(call)


def call(tool="", kind="other", **more):
    return ReportedCall("1", tool=tool, kind=kind, **more)


@pytest.mark.parametrize(
    ("asked", "options", "effect", "told"),
    [
        (call(kind="read"), {}, "ask", ""),
        (call(kind="read"), {"approved": ["read"]}, "allow", "approved in advance"),
        (call("Read", "read"), {"approved": ["R*"]}, "allow", "approved in advance"),
        (call("Read", "read"), {"approved": ["read"]}, "allow", "approved in advance"),
        (call("Read", "read"), {"approved": ["write"]}, "ask", ""),
        (call("mcp__toolcrib__get_order"), {"approved": ["get_*"]}, "allow", "approved in advance"),
        (call("mcp__toolcrib__refund"), {"policy": {"deny": ("refund",)}}, "deny", "matches `refund`"),
        (call("mcp__other__get_order"), {"approved": ["get_*"]}, "ask", ""),
        # The policy is stronger than what was approved.
        (
            call(kind="edit"),
            {"approved": ["*"], "policy": {"deny": ("edit",)}},
            "deny",
            "`deny` of the policy",
        ),
        (
            call("Bash", "execute"),
            {"approved": ["*"], "policy": {"deny": ("execute",)}},
            "deny",
            "matches `execute`",
        ),
        (call("Bash"), {"approved": ["*"], "policy": {"allow": ("Read",)}}, "deny", "`allow` of the policy"),
        (call("Bash"), {"approved": ["*"], "policy": {"ask": ("B*",)}}, "ask", "`ask` of the policy"),
        # And so are the roots.
        (
            call(kind="read", paths=("/x",)),
            {"approved": ["*"], "outside": ["/x"]},
            "deny",
            "`/x`: it is outside",
        ),
        # The rules of access see the tool, its arguments and the agent.
        (
            call("Bash", arguments={"command": "rm -rf /"}),
            {"approved": ["*"], "access": RULES},
            "deny",
            "no deletions",
        ),
        (
            call("Bash", arguments={"command": "ls"}),
            {"approved": ["*"], "access": RULES},
            "allow",
            "in advance",
        ),
        (
            call("Fetch"),
            {"approved": ["*"], "access": RULES},
            "ask",
            "needs approval by the rule `ask tool Fetch`",
        ),
        (call("Search"), {"access": RULES}, "allow", "allowed by the rule"),
        (call(kind="read"), {"access": RULES}, "ask", ""),
        (call(kind="read"), {"access": RULES, "caller": "trusted-agent"}, "allow", "allowed by the rule"),
        (call("Look", "search"), {"access": RULES}, "allow", "allowed by the rule"),
        (call("Look", "edit"), {"access": RULES}, "ask", ""),
        # The default of the project is about its own tools, unless it is stricter.
        (call("Anything"), {"access": {"default": "allow"}}, "ask", ""),
        (call("Anything"), {"access": {"default": "deny"}, "approved": ["*"]}, "deny", "denied by default"),
    ],
)
def test_who_decides(asked, options, effect, told):
    decision = decide(asked, **options)
    assert (decision.effect, told in decision.reason) == (effect, True), decision


def test_commands_are_those_of_the_project():
    runtime = Runtime(Registry(), access={"commands": ["git", "ls"]})
    permissions = Permissions(
        ToolPolicy(), (), lambda: engine_of(runtime).access, "agent", lambda _path, _writes: ""
    )
    assert permissions.why_command_denied("git status") == ""
    assert "it starts `rm`, which `commands` does not list" in permissions.why_command_denied("rm -rf /")


def test_a_call_collects_what_its_updates_say():
    known = ReportedCall("1")
    for update in (
        {
            "title": "Read",
            "kind": "read",
            "locations": [{"path": "/a"}, {"line": 1}, 7],
            "rawInput": {"n": 1},
        },
        {"title": None, "kind": 5, "rawInput": "text", "locations": "none"},
        {"_meta": {"claudeCode": {"toolName": "Read"}, "other": 3}},
    ):
        known = known.updated(update)
    assert known == ReportedCall("1", "Read", "read", "Read", {"n": 1}, ("/a",))
    assert known.name == "Read"


def test_options_of_unknown_kinds_are_told_apart():
    known, unknown = parse_options(
        [
            {"optionId": "a", "name": "Yes", "kind": "allow_once"},
            {"optionId": "b", "name": "Maybe", "kind": "allow_sometimes"},
            {"name": "No ID", "kind": "allow_once"},
            "text",
        ]
    )
    assert [(option.id, option.allows) for option in known] == [("a", True)]
    assert unknown[0] == "allow_sometimes"
    assert len(unknown) == 3
    assert parse_options(None) == ([], [])
