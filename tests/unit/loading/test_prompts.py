"""Prompts of packs: what is read of them, how they are found, and how their text is filled in."""

from __future__ import annotations

from textwrap import dedent

import pytest

from toolcrib import Pack
from toolcrib.core.errors import ConfigurationError, DocumentError
from toolcrib.executors import Executors
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.prompts import Guardrail, PromptVariable, find_prompt
from toolcrib.security.tool_policy import ToolPolicy

KINDS = Executors.installed()

HEAD = "name: shop\nversion: 1.0.0\n"


def pack(prompts: str, head: str = HEAD) -> Pack:
    return Pack.parse("pack.yaml", head + "prompts:\n" + _indented(prompts), kinds=KINDS)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in dedent(text).strip().splitlines())


def problems(prompts: str) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        pack(prompts)
    return [(problem.code, problem.pointer) for problem in caught.value.problems]


WHOLE = """
    assistant:
      title: Shop assistant
      description: Answers questions.
      version: 2.0.0
      system: "You help customers of {{ shop | upper }} in {{ city }}."
      variables:
        shop: {default: the shop, description: What it is called.}
        city: {values: [Oslo, Bergen]}
        limit: {type: integer, required: false}
      tools: [get_*, find_order]
      policy: {deny: [get_secret], max_rounds: 5, cooldown: {get_job: 5s}}
      settings: {temperature: 0}
      guardrails: [{type: content_excludes, params: {patterns: [password]}, message: Hush.}, {type: is_valid_json}]
      metadata: {team: support}
"""


def test_every_key_of_a_prompt_is_read():
    prompt = pack(WHOLE).prompts["assistant"]
    told = (prompt.name, prompt.title, prompt.description, prompt.version, prompt.pack, prompt.place)
    assert told == ("assistant", "Shop assistant", "Answers questions.", "2.0.0", "shop", "pack.yaml:5")
    assert list(prompt.variables.values()) == [
        PromptVariable("shop", default="the shop", description="What it is called."),
        PromptVariable("city", required=True, values=("Oslo", "Bergen")),
        PromptVariable("limit", "integer"),
    ]
    assert prompt.tools == ("get_*", "find_order")
    assert prompt.policy == ToolPolicy(
        allow=("get_*", "find_order"), deny=("get_secret",), max_rounds=5, cooldown={"get_job": 5.0}
    )
    assert prompt.settings == {"temperature": 0}
    assert prompt.guardrails == (
        Guardrail("content_excludes", {"patterns": ["password"]}, "Hush."),
        Guardrail("is_valid_json"),
    )
    assert prompt.metadata == {"team": "support"}


def test_a_prompt_that_says_little_is_for_all_tools():
    prompt = pack("a: {system: Hi.}").prompts["a"]
    assert (prompt.tools, prompt.policy, prompt.render()) == (("*",), ToolPolicy(), "Hi.")


def test_a_policy_may_say_which_tools_are_meant():
    assert pack("a: {system: Hi., policy: {allow: [get_*]}}").prompts["a"].policy.allow == ("get_*",)


def test_the_text_is_filled_in_with_values_and_defaults():
    prompt = pack(WHOLE).prompts["assistant"]
    assert prompt.render({"city": "Oslo"}) == "You help customers of THE SHOP in Oslo."
    assert prompt.render({"city": "Bergen", "shop": "Kiosk"}) == "You help customers of KIOSK in Bergen."


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("{{ x }}", {"x": "{{ y }} ${z}"}, "{{ y }} ${z}"),
        ("{{ x }}", {"x": [1, 2.5]}, "[1,2.5]"),
        ("{{ x }}", {}, ""),
        ("<{{ x }}>", {}, "<>"),
        ("$${HOME} {{ '{{' }} {{ x }}", {"x": True}, "${HOME} {{ true"),
    ],
)
def test_values_are_no_templates_and_anything_is_a_text(text, values, expected):
    kind = {list: "array", bool: "boolean"}.get(type(values.get("x")), "string")
    read = Pack.parse(
        "pack.yaml",
        {
            "name": "p",
            "version": "1.0.0",
            "prompts": {"a": {"system": text, "variables": {"x": {"type": kind, "required": False}}}},
        },
        kinds=KINDS,
    )
    assert read.prompts["a"].render(values) == expected


def test_all_that_is_wrong_with_values_is_told_at_once():
    prompt = pack(WHOLE).prompts["assistant"]
    with pytest.raises(ConfigurationError) as caught:
        prompt.render({"shopp": "x", "limit": 1.5, "shop": 3})
    assert caught.value.code == "invalid_variables"
    assert caught.value.message == (
        "the prompt `assistant`: missing value for `city`; unknown variable `shopp`; "
        "`limit` must be of type integer, got 1.5; `shop` must be of type string, got 3"
    )
    assert caught.value.hint == "did you mean `shop`?"
    with pytest.raises(ConfigurationError, match="one of"):
        prompt.render({"city": "Rome"})


def test_a_whole_number_may_have_any_size():
    prompt = pack("a: {system: 'At most {{ limit }}.', variables: {limit: {type: integer}}}").prompts["a"]
    assert prompt.render({"limit": 10**400}) == f"At most {10**400}."


def test_all_that_is_missing_is_named():
    prompt = pack(
        """a: {system: "{{ x }}{{ y }}", variables: {x: {}, y: {description: the year}}}"""
    ).prompts["a"]
    with pytest.raises(ConfigurationError) as caught:
        prompt.render()
    assert "missing value for `x`, `y`" in caught.value.message
    assert caught.value.hint == "its variables are: x (string), y (the year)"


def test_an_expression_that_fails_tells_of_the_prompt():
    prompt = pack("""a: {system: "{{ x.name }}", variables: {x: {type: object}}}""").prompts["a"]
    with pytest.raises(ConfigurationError, match="cannot render the prompt `a`"):
        prompt.render({"x": {}})


def test_a_prompt_is_found_by_its_name_or_with_its_pack():
    shop, desk = (
        pack(WHOLE),
        pack("desk: {system: Hi.}\nother: {system: Ho.}", "name: travel\nversion: 1.0.0\n"),
    )
    assert find_prompt([shop, desk], "assistant").title == "Shop assistant"
    assert find_prompt([shop, desk], "travel/desk").system == "Hi."
    for name, near in (("assistent", "`assistant`"), ("travel/dask", "`travel/desk`")):
        with pytest.raises(ConfigurationError) as caught:
            find_prompt([shop, desk], name)
        assert (caught.value.code, near in caught.value.hint) == ("unknown_prompt", True)
    with pytest.raises(ConfigurationError) as caught:
        find_prompt([], "x")
    assert "pack.yaml" in caught.value.hint


def test_a_name_that_two_packs_have_is_not_clear():
    both = [pack("a: {system: Hi.}"), pack("a: {system: Ho.}", "name: other\nversion: 1.0.0\n")]
    with pytest.raises(ConfigurationError) as caught:
        find_prompt(both, "a")
    assert (caught.value.code, caught.value.hint) == (
        "unclear_name",
        "use one of: `shop/a`, `other/a`",
    )
    assert find_prompt(both, "other/a").system == "Ho."


def test_in_a_namespace_the_globs_are_over_the_full_names():
    text = """
        a:
          system: Hi.
          tools: [get_*]
          policy:
            tool_choice: get_order
            deny: [x]
            ask: ["*"]
            exclusive: [[a, b]]
            requires_before: {refund: [get_order]}
            max_calls_per_tool: {refund: 1}
    """
    prompt = find_prompt([pack(text, HEAD + "namespace: s\n")], "a")
    assert prompt.tools == ("s__get_*",)
    assert prompt.policy == ToolPolicy(
        tool_choice="s__get_order",
        allow=("s__get_*",),
        deny=("s__x",),
        ask=("*",),
        exclusive=(("s__a", "s__b"),),
        requires_before={"s__refund": ("s__get_order",)},
        max_calls_per_tool={"s__refund": 1},
    )


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("a: {}", ("missing_key", "/prompts/a/system")),
        ("a: {system: x, sistem: y}", ("unknown_key", "/prompts/a/sistem")),
        ("a/b: {system: x}", ("wrong_form", "/prompts/a~1b")),
        ('a: {system: "{{ nope }}"}', ("unknown_name", "/prompts/a/system")),
        ('a: {system: "{% if x %}"}', ("expression_not_allowed", "/prompts/a/system")),
        ('a: {system: "${HOME}"}', ("variable_not_allowed", "/prompts/a/system")),
        ("a: {system: x, tools: [a b]}", ("bad_glob", "/prompts/a/tools/0")),
        ("a: {system: x, tools: [a], policy: {allow: [b]}}", ("contradiction", "/prompts/a/policy/allow")),
        ("a: {system: x, policy: {deny: [a b]}}", ("bad_glob", "/prompts/a/policy/deny/0")),
        ("a: {system: x, policy: {max_round: 1}}", ("unknown_key", "/prompts/a/policy/max_round")),
        ("a: {system: x, policy: {cooldown: {a: 5}}}", ("wrong_form", "/prompts/a/policy/cooldown/a")),
        ("a: {system: x, variables: {in: {}}}", ("wrong_form", "/prompts/a/variables/in")),
        ("a: {system: x, variables: {b: {type: date}}}", ("not_allowed", "/prompts/a/variables/b/type")),
        (
            "a: {system: x, variables: {b: {type: integer, default: c}}}",
            ("wrong_value", "/prompts/a/variables/b/default"),
        ),
        (
            "a: {system: x, variables: {b: {type: integer, values: [1, c]}}}",
            ("wrong_value", "/prompts/a/variables/b/values/1"),
        ),
        (
            "a: {system: x, variables: {b: {required: true, default: c}}}",
            ("contradiction", "/prompts/a/variables/b/default"),
        ),
        (
            "a: {system: x, guardrails: [{type: tools_called}]}",
            ("unknown_assertion", "/prompts/a/guardrails/0/type"),
        ),
        (
            "a: {system: x, guardrails: [{type: max_lenght}]}",
            ("unknown_assertion", "/prompts/a/guardrails/0/type"),
        ),
        ("a: {system: x, guardrails: [{params: {}}]}", ("missing_key", "/prompts/a/guardrails/0/type")),
    ],
)
def test_what_is_wrong_with_a_prompt_is_told_in_its_place(prompts, expected):
    assert problems(prompts) == [expected]


def test_a_pack_with_prompts_comes_back_from_an_index(tmp_path):
    (tmp_path / "pack.yaml").write_text(HEAD + "prompts:\n" + _indented(WHOLE))
    from toolcrib.loading.sources import load  # noqa: PLC0415 -- used once

    (read,) = load([tmp_path], KINDS).packs
    back = decode_value(encode_value(read))
    assert back == read
    assert back.prompts["assistant"].render({"city": "Oslo"}).endswith("in Oslo.")
