"""`limits.rules` of projects and profiles: problems, places, and what a profile changes."""

from __future__ import annotations

import pytest

from in_memory import problems_of
from toolcrib import Executors, Runtime
from toolcrib.core.errors import DocumentError
from toolcrib.core.model import Bounds, Rate
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.limit_rules import compile_limit_rules
from toolcrib.loading.projects import Project, settings_of

KINDS = Executors({})


def parse(rule, *, profile=""):
    line = f"limits: {{rules: {{crm: {rule}}}}}"
    text = f"project: p\n{line}\n" if not profile else f"project: p\nprofiles: {{ci: {{{line}}}}}\n"
    return Project.parse("toolcrib.yaml", text, kinds=KINDS)


def test_a_rule_is_compiled_and_kept_in_an_index():
    text = """project: p
limits:
  concurrency: 4
  rules:
    crm: {for: {tag: crm}, per: session, rate: 30/1m, concurrency: 2, output_size: 1MiB, timeout: 5s}
    batch: {for: {caller: "batch-*"}, output_items: 3}
"""
    settings = settings_of(Project.parse("toolcrib.yaml", text, kinds=KINDS))
    assert settings.limits == {"concurrency": 4}
    crm, batch = compile_limit_rules(settings.limit_rules)
    assert (crm.per, crm.bounds, crm.place) == ("session", Bounds(Rate(30, 60.0), 2, 100), "toolcrib.yaml:5")
    assert crm.limits == {"output_size": 1 << 20, "timeout": 5.0}
    assert (crm.is_personal, batch.is_personal, batch.bounds, batch.limits) == (
        False,
        True,
        None,
        {"output_items": 3},
    )
    assert decode_value(encode_value(settings)) == settings


WRONG = [
    ("{}", "", "missing_key", "limits nothing"),
    ("{for: {tag: crm}}", "", "missing_key", "limits nothing"),
    ("{rate: 1}", "/rate", "wrong_form", ""),
    ("{rate: 1/0s}", "/rate", "out_of_range", "longer than 0s"),
    ("{concurrency: 0}", "/concurrency", "wrong_value", ""),
    ("{per: session, output_size: 1KiB}", "/per", "needless_key", "without `rate` or `concurrency`"),
    ("{queue: 3, timeout: 1s}", "/queue", "needless_key", "without `rate` or `concurrency`"),
    ("{per: day, rate: 1/1s}", "/per", "not_allowed", ""),
    ("{timeout: 11m}", "/timeout", "out_of_range", "at most 10m"),
    ("{timeout: 0s}", "/timeout", "out_of_range", "longer than 0s"),
    ("{cpu_time: 0s}", "/cpu_time", "out_of_range", "longer than 0s"),
    ("{calls: 3, rate: 1/1s}", "/calls", "unknown_key", "write `budgets` instead"),
    ("{attempts: 3, rate: 1/1s}", "/attempts", "unknown_key", ""),
    ("{for: {tag: crm, args: {x: 1}}, rate: 1/1s}", "/for/args", "unknown_key", ""),
    ('{for: {tool: "a["}, rate: 1/1s}', "/for/tool", "bad_glob", ""),
    ("{for: {annotation: readonly}, rate: 1/1s}", "/for/annotation", "unknown_annotation", "read_only"),
    ("{for: {caller: a}, memory: 1MiB}", "/memory", "unsupported_limit", "cannot depend on `caller`"),
    ("{for: {user: a}, processes: 2}", "/processes", "unsupported_limit", "cannot depend on `user`"),
    ("off", "", "needless_key", "`off` in the project itself"),
]


@pytest.mark.parametrize(("rule", "pointer", "code", "words"), WRONG)
def test_problems_of_a_rule(rule, pointer, code, words):
    with pytest.raises(DocumentError) as error:
        parse(rule)
    found = error.value.problems
    assert [(each.code, each.pointer) for each in found] == [(code, f"/limits/rules/crm{pointer}")], found
    assert words in str(found[0])


def test_problems_of_a_rule_in_a_profile():
    with pytest.raises(DocumentError) as error:
        parse("{timeout: 0s}", profile="ci")
    assert [each.pointer for each in error.value.problems] == ["/profiles/ci/limits/rules/crm/timeout"]


def test_rules_are_for_projects():
    text = "name: t\nmock: {result: 1}\nlimits: {rules: {crm: {rate: 1/1s}}}\n"
    assert problems_of(text) == [("unknown_key", "/limits/rules")]


def test_a_profile_adds_replaces_and_removes_rules():
    text = """project: p
limits: {rules: {a: {rate: 1/1s}, b: {rate: 2/1s}}}
profiles:
  base: {limits: {attempts: 1, rules: {a: off}}}
  ci: {extends: base, limits: {rules: {b: {rate: 3/1s}, c: {rate: 4/1s}}}}
"""
    project = Project.parse("toolcrib.yaml", text, kinds=KINDS)
    assert [*settings_of(project).limit_rules] == ["a", "b"]
    settings = settings_of(project, "ci", "--profile")
    assert settings.limits == {"attempts": 1}
    assert {name: (rule["rate"], rule["at"]) for name, rule in settings.limit_rules.items()} == {
        "b": ("3/1s", "toolcrib.yaml:5 (profile ci)"),
        "c": ("4/1s", "toolcrib.yaml:5 (profile ci)"),
    }


def test_a_rule_that_limits_no_tool_is_a_warning(tmp_path):
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "a.tool.yaml").write_text("name: a\ntags: [crm]\nmock: {result: 1}\n")
    (tmp_path / "toolcrib.yaml").write_text(
        "project: p\nlimits:\n  rules:\n    typo: {for: {tag: cmr}, rate: 1/1s}\n    all: {rate: 1/1s}\n"
        "profiles: {ci: {limits: {rules: {gone: {for: {tool: b}, rate: 1/1s}}}}}\n"
    )
    with Runtime.open(tmp_path) as runtime:
        found = [(each.code, each.message, each.hint, each.line) for each in runtime.problems]
    assert found == [
        ("idle_rule", "the limit rule `typo` matches no tool", "did you mean `crm`?", 4),
        (
            "idle_rule",
            "the limit rule `gone` matches no tool",
            "all of its conditions must hold for one tool",
            6,
        ),
    ]
