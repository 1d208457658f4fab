"""`access` of projects: what loading refuses, and the rules that have no effect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Descriptor, Registry, Runtime
from toolcrib.core.model import Annotations
from toolcrib.executors import Executors
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.access import check_rules, overlay_access, parse_access, rule_text
from toolcrib.loading.projects import Project, settings_of
from toolcrib.registry.catalog import fits_conditions
from toolcrib.security.access import EFFECTS, NO_ACCESS, AccessRule, read_access

KINDS = Executors.installed()


@pytest.fixture
def problems(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.yaml").write_text(
        "name: refund_order\ntags: [money]\n"
        "input_schema: {type: object, properties: {amount: {type: number}}, additionalProperties: false}\n"
        "mock: {result: 1}\n---\nname: get_order\ninput_schema: {type: object, properties: {id: {type: string}}}\nmock: {result: 1}\n"
    )

    def found(text):
        (tmp_path / "toolcrib.yaml").write_text(f"project: p\nsources: [t.yaml]\n{text}")
        runtime = Runtime.open("toolcrib.yaml", index=False)
        return [(each.code, each.line, each.message, each.hint) for each in runtime.problems]

    return found


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "grants: [netwrok]",
            ("unknown_capability", "unknown capability `netwrok`", "did you mean `network`?"),
        ),
        (
            "rules: [{deny: {capability: proces}}]",
            ("unknown_capability", "unknown capability `proces`", "did you mean `process`?"),
        ),
        (
            "rules: [{deny: {annotation: readonly}}]",
            ("unknown_annotation", "unknown annotation `readonly`", "did you mean `read_only`?"),
        ),
        (
            "paths: {read: [../other]}",
            (
                "path_leaves_root",
                "`../other` leaves the folder of the project",
                "write the absolute path if calls may use files elsewhere",
            ),
        ),
        (
            "paths: {write: ['${HOME}/x']}",
            (
                "wrong_form",
                "`${HOME}/x` is not a valid folder: variables are not substituted here",
                "write the path itself",
            ),
        ),
        (
            "hosts: ['https://a.example']",
            (
                "bad_host",
                "`https://a.example` is not a host",
                "write `api.example.com`, `*.example.com` or `api.example.com:443`",
            ),
        ),
        (
            "hosts: ['a.example:99999']",
            (
                "bad_host",
                "`a.example:99999` needs a port between 1 and 65535",
                "write `api.example.com`, `*.example.com` or `api.example.com:443`",
            ),
        ),
        (
            "rules: [{reason: none}]",
            ("wrong_combination", "a rule has one of `allow`, `ask` and `deny`, with its conditions", ""),
        ),
        (
            "rules: [{allow: {}, deny: {}}]",
            ("wrong_combination", "a rule has one of `allow`, `ask` and `deny`, with its conditions", ""),
        ),
        (
            "rules: [{deny: {args: {amount: {$gtt: 5}}}}]",
            ("unknown_operator", "unknown operator `$gtt`", "did you mean `$gt` or `$gte`?"),
        ),
    ],
)
def test_a_mistake_is_a_problem_at_its_line(problems, said, problem):
    assert problems(f"access:\n  {said}\n") == [(problem[0], 4, *problem[1:])]


def test_mistakes_in_profiles_are_found_while_they_are_inactive(problems):
    ((code, line, *_rest),) = problems("profiles:\n  ci:\n    access: {grants: [netwrok]}\n")
    assert (code, line) == ("unknown_capability", 5)


@pytest.mark.parametrize(
    ("rule", "message", "hint"),
    [
        (
            "deny: {tool: 'refnd_*'}",
            "the rule `deny tool refnd_*` matches no tool",
            "did you mean `refund_order`?",
        ),
        ("ask: {tag: mony}", "the rule `ask tag mony` matches no tool", "did you mean `money`?"),
        (
            "deny: {tool: get_order, tag: money}",
            "the rule `deny tool get_order, tag money` matches no tool",
            "all of its conditions must hold for one tool",
        ),
        (
            "deny: {tool: 'refund_*', args: {amuont: {$gt: 5}}}",
            (
                "the rule `deny tool refund_*, args` matches no call: "
                "the input schema has no `amuont` in `args/amuont` of `refund_order`"
            ),
            "write a matcher that valid arguments can meet",
        ),
    ],
)
def test_a_rule_that_fits_no_tool_is_reported(problems, rule, message, hint):
    assert problems(f"access:\n  rules:\n    - {rule}\n") == [("idle_rule", 5, message, hint)]


def test_a_glob_of_a_rule_or_a_budget_that_matches_no_tool_is_reported(problems):
    text = (
        "access:\n  rules:\n    - deny: {tool: [refund_order, 'get_ordr*']}\n    - ask: {tool: ['*_order', '!delte_*']}\n"
        "budgets:\n  spending:\n    amount: 1\n    most: 2\n    tools: [refund_order, 'refnd_*']\n"
        "profiles:\n  ci:\n    budgets:\n      calls:\n        amount: 1\n        most: 2\n        tools:\n          - pay_*\n"
    )
    near = "use a tool name, or a glob over tool names"
    assert problems(text) == [
        (
            "idle_glob",
            5,
            "`get_ordr*` of the rule `deny tool refund_order or get_ordr*` matches no tool",
            "did you mean `get_order` or `refund_order`?",
        ),
        ("idle_glob", 6, "`delte_*` of the rule `ask tool *_order or !delte_*` matches no tool", near),
        (
            "idle_glob",
            11,
            "`refnd_*` of the budget `spending` matches no tool",
            "did you mean `refund_order`?",
        ),
        ("idle_glob", 19, "`pay_*` of the budget `calls` matches no tool", near),
    ]


def test_an_amount_that_reads_an_argument_which_a_tool_has_not_is_reported(problems):
    text = (
        "budgets:\n"
        '  typo: {tools: [refund_order], amount: "{{ args.amuont }}", most: 1}\n'
        '  all: {tools: ["*"], amount: "{{ args.amount }}", most: 1}\n'
        '  optional: {tools: ["*"], amount: "{{ args[\'amount\'] | default(0) }}", most: 1}\n'
        "profiles:\n  ci:\n    budgets:\n      all: off\n"
        '      typo: {tools: [refund_order], amount: "{{ args.total }}", most: 1}\n'
    )
    found = problems(text)
    assert [(code, line) for code, line, *_ in found] == [("unknown_argument", line) for line in (4, 5, 11)]
    assert found[0][2:] == (
        "the budget `typo` denies calls of `refund_order`: unknown key `amuont` in `args`; its keys are `amount`",
        "did you mean `amount`?",
    )
    assert found[1][3] == "write `args['name'] | default(0)` for tools without the argument"


@pytest.mark.parametrize(
    ("rules", "line", "message"),
    [
        (
            ["deny: {tool: 'refund_*'}", "ask: {tool: refund_order}"],
            6,
            (
                "the rule `ask tool refund_order` never decides: "
                "`deny tool refund_*` (toolcrib.yaml:5) covers all of its calls"
            ),
        ),
        (["ask: {tag: money}", "deny: {}"], 5, "`deny everything` (toolcrib.yaml:6) covers"),
        (["deny: {caller: a}", "deny: {caller: a, user: b}"], 6, "`deny caller a` (toolcrib.yaml:5) covers"),
        (
            [
                "deny: {tool: refund_order, args: {amount: {$gt: 100}}}",
                "ask: {tool: refund_order, args: {amount: {$gt: 500}}}",
            ],
            6,
            "never decides",
        ),
        (
            [
                "deny: {tool: refund_order, args: {amount: {$gte: 5}}}",
                "deny: {tool: refund_order, args: {amount: 7}}",
            ],
            6,
            "never decides",
        ),
    ],
)
def test_a_rule_that_another_one_covers_is_reported(problems, rules, line, message):
    text = "access:\n  rules:\n" + "".join(f"    - {rule}\n" for rule in rules)
    ((code, found, said, hint),) = problems(text)
    assert (code, found, hint) == ("covered_rule", line, "remove one of them, or narrow the other one")
    assert message in said


@pytest.mark.parametrize(
    "rules",
    [
        ["ask: {tool: refund_order}"],
        ["deny: {tool: refund_order, args: {amount: {$gt: 500}}}", "ask: {tool: refund_order}"],
        ["deny: {tool: refund_order, caller: a}", "deny: {tool: refund_order}"],
        ["ask: {tool: '*_order'}", "deny: {tool: refund_order}"],
    ],
)
def test_a_rule_that_may_decide_is_not_reported(problems, rules):
    assert problems("access:\n  rules:\n" + "".join(f"    - {rule}\n" for rule in rules)) == []


def test_a_profile_reports_only_its_own_rules(problems):
    text = (
        "access: {rules: [{ask: {tag: money}}]}\n"
        "profiles:\n"
        "  strict: {access: {rules: [{deny: {}}]}}\n"
        "  vain: {access: {rules: [{allow: {tag: money}}]}}\n"
    )
    ((code, line, message, _hint),) = problems(text)
    assert (code, line) == ("covered_rule", 6)
    assert "`ask tag money` (toolcrib.yaml:3) covers" in message


def test_settings_survive_as_plain_data():
    text = {
        "project": "p",
        "access": {"default": "deny", "rules": [{"allow": {"tool": "a"}, "reason": "r", "severity": "low"}]},
        "profiles": {"ci": {"access": {"audit": True, "hosts": ["a.example"]}}},
    }
    project = Project.parse("toolcrib.yaml", text, kinds=KINDS)
    access = read_access(settings_of(project, "ci").access)
    assert (access.default, access.audit, access.hosts) == ("deny", True, ("a.example",))
    assert access.rules == (AccessRule("allow", {"tool": "a"}, "r", "low", "toolcrib.yaml:1"),)
    assert read_access(access.as_plain()) == access
    assert settings_of(project, None).access != ()
    assert overlay_access(NO_ACCESS, parse_access({}, str, ".")) is NO_ACCESS


TOOL_NAMES = st.sampled_from(["get_a", "get_b", "put_a"])
GLOBS = st.sampled_from(["*", "get_*", "*_a", "get_a", "put_a", "!get_a"])
ARGS = st.one_of(
    st.builds(lambda low: {"n": {"$gt": low}}, st.integers(0, 3)),
    st.builds(lambda low: {"n": {"$gte": low}}, st.integers(0, 3)),
    st.builds(lambda top: {"n": {"$lt": top}}, st.integers(0, 3)),
    st.builds(lambda value: {"n": value}, st.integers(0, 3)),
    st.just({"n": {"$gt": 0, "$lt": 3}}),
    st.just({}),
)
CONDITIONS = st.fixed_dictionaries(
    {}, optional={"tool": GLOBS, "caller": st.sampled_from(["*", "a*", "ab", "!ab"]), "args": ARGS}
)
RULES = st.lists(st.builds(AccessRule, st.sampled_from(EFFECTS), CONDITIONS), min_size=2, max_size=4)
REGISTRY = Registry(
    Descriptor(name=name, annotations=Annotations(), input_schema={"properties": {"n": {"type": "integer"}}})
    for name in ("get_a", "get_b", "put_a")
)


def _decides(rules, tool, caller, number):
    """The first rule of the strongest effect whose conditions hold, as the documentation says."""
    from toolcrib.engine.access_control import Principal, is_of_caller  # noqa: PLC0415 -- the definition

    card = REGISTRY.cards[tool]
    holding = [
        rule
        for rule in rules
        if fits_conditions(card, rule.conditions)
        and is_of_caller(rule.conditions, Principal(caller))
        and compile_matcher(rule.conditions.get("args", {}), []).matches({"n": number})
    ]
    return next((rule for effect in EFFECTS for rule in holding if rule.effect == effect), None)


@given(RULES)
def test_a_rule_that_is_called_covered_decides_no_call(rules):
    placed = [rule._replace(place=f"f.yaml:{line}") for line, rule in enumerate(rules, 1)]
    found = [each.line for each in check_rules((), placed, REGISTRY) if each.code == "covered_rule"]
    for line in found:
        for tool in REGISTRY:
            for caller in ("", "ab", "ac", "x"):
                for number in (0, 1, 2, 3, 4):
                    assert _decides(placed, tool, caller, number) is not placed[line - 1]


def test_the_text_of_a_rule_shows_no_matcher():
    rule = AccessRule("deny", {"tool": ["a", "b"], "args": {"token": "secret"}})
    assert rule_text(rule) == "deny tool a or b, args"
    assert rule_text(AccessRule("ask", {})) == "ask everything"
