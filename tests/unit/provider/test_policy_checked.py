"""What is wrong with a policy is told at once, all of it, before anything is asked of a model."""

from __future__ import annotations

import math

import pytest

from loop_models import Model, loop
from toolcrib import ConfigurationError, ProviderMiddleware, Registry, Runtime, Server
from toolcrib.provider import Prices, ToolPolicy
from toolcrib.provider.models.scripted import Scripted
from toolcrib.security.tool_policy import check_policy

NAMES = ("get_order", "refund_order", "slow")


def faults(names=NAMES, **fields) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in check_policy(ToolPolicy(**fields), names)]


def test_a_policy_of_nothing_is_fine():
    assert faults() == []
    assert faults((), allow=("*",)) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"deny": ("refund",)}, ("unknown_tool", "/deny/0")),
        ({"allow": ("get_*", "gte_*")}, ("idle_glob", "/allow/1")),
        ({"ask": ("slo?", "x?")}, ("idle_glob", "/ask/1")),
        ({"polling": ("fast",)}, ("unknown_tool", "/polling/0")),
        ({"stop_on_tool": ("end",)}, ("unknown_tool", "/stop_on_tool/0")),
        ({"max_calls_per_tool": {"gone": 1}}, ("unknown_tool", "/max_calls_per_tool/gone")),
        ({"cooldown": {"gone_*": 1.0}}, ("idle_glob", "/cooldown/gone_*")),
        ({"requires_before": {"gone": ("slow",)}}, ("unknown_tool", "/requires_before/gone")),
        ({"requires_before": {"slow": ("get_oder",)}}, ("unknown_tool", "/requires_before/slow/0")),
        ({"exclusive": (("slow", "gone"),)}, ("unknown_tool", "/exclusive/0/1")),
        ({"tool_choice": "get_oder"}, ("unknown_tool", "/tool_choice")),
        ({"tool_choice": "slow", "deny": ("slow",)}, ("wrong_value", "/tool_choice")),
        ({"deny": "slow"}, ("wrong_type", "/deny")),
        ({"allow": ("",)}, ("wrong_type", "/allow")),
        ({"requires_before": {"slow": "get_order"}}, ("wrong_type", "/requires_before/slow")),
        ({"exclusive": ("slow",)}, ("wrong_type", "/exclusive/0")),
        ({"max_rounds": 0}, ("out_of_range", "/max_rounds")),
        ({"max_rounds": None}, ("out_of_range", "/max_rounds")),
        ({"max_parallel": 0}, ("out_of_range", "/max_parallel")),
        ({"max_calls": -1}, ("out_of_range", "/max_calls")),
        ({"max_calls_per_turn": 1.5}, ("out_of_range", "/max_calls_per_turn")),
        ({"max_calls_per_minute": True}, ("out_of_range", "/max_calls_per_minute")),
        ({"max_identical": 0}, ("out_of_range", "/max_identical")),
        ({"max_failures": 0}, ("out_of_range", "/max_failures")),
        ({"max_calls_per_tool": {"slow": -1}}, ("out_of_range", "/max_calls_per_tool/slow")),
        ({"cooldown": {"slow": math.inf}}, ("out_of_range", "/cooldown/slow")),
        ({"max_cost": math.nan}, ("out_of_range", "/max_cost")),
        ({"requires_before": {"slow": ("slow",)}}, ("contradiction", "/requires_before/slow/0")),
        (
            {"requires_before": {"slow": ("get_order",)}, "deny": ("get_*",)},
            ("contradiction", "/requires_before/slow/0"),
        ),
        (
            {"requires_before": {"slow": ("get_order",)}, "max_calls_per_tool": {"get_*": 0}},
            ("contradiction", "/requires_before/slow/0"),
        ),
        (
            {"requires_before": {"slow": ("get_order",)}, "exclusive": (("slow", "get_*"),)},
            ("contradiction", "/requires_before/slow/0"),
        ),
        (
            {"tool_choice": "slow", "requires_before": {"slow": ("get_order",)}},
            ("contradiction", "/tool_choice"),
        ),
        ({"tool_choice": "slow", "max_calls_per_tool": {"slow": 0}}, ("contradiction", "/tool_choice")),
        ({"tool_choice": "slow", "max_calls": 0}, ("contradiction", "/tool_choice")),
        ({"exclusive": (("slow",),)}, ("contradiction", "/exclusive/0")),
        ({"exclusive": (("slow", "get_*", "slow"),)}, ("contradiction", "/exclusive/0/2")),
    ],
)
def test_what_is_wrong_is_told_with_its_place(fields, expected):
    assert faults(**fields) == [expected]


def test_tools_that_wait_for_each_other_are_told_of_each():
    circle = {"slow": ("get_order",), "get_order": ("refund_order",), "refund_order": ("slow",)}
    expected = [("contradiction", f"/requires_before/{name}/0") for name in circle]
    assert faults(requires_before=circle) == expected
    assert faults(None, requires_before=circle) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"requires_before": {"slow": ("*_order",)}, "deny": ("get_order",)},
        {"requires_before": {"slow": ("get_order",), "refund_order": ("slow",)}},
        {"requires_before": {"slow": ("slow",)}, "deny": ("slow",)},
        {"requires_before": {"*": ("slow",)}},
        {"requires_before": {"slow": ("get_order",)}, "max_calls": 0},
        {"tool_choice": "get_order", "max_calls_per_tool": {"get_*": 1, "*": 0}},
    ],
)
def test_what_can_hold_is_no_contradiction(fields):
    assert faults(**fields) == []


def test_globs_are_not_judged_where_nobody_knows_the_tools():
    assert faults(None, deny=("gone",), tool_choice="gone") == []


def test_all_problems_come_at_once_with_near_misses():
    policy = ToolPolicy(deny=("refund_oder",), requires_before={"slow": ("get_odrer",)}, tool_choice="slwo")
    with pytest.raises(ConfigurationError) as caught:
        loop(Model(), policy, result_limit=10)
    told = str(caught.value)
    assert caught.value.code == "invalid_policy"
    assert "policy/deny/0: unknown_tool: unknown tool `refund_oder`; did you mean `refund_order`" in told
    assert "did you mean `get_order`" in told
    assert "did you mean `slow`" in told
    assert "config/result_limit: out_of_range: expected at least 256, got 10" in told


class Reaching(Model):
    world = None


class Free(Model):
    free = True


@pytest.mark.parametrize("model", [Model, Reaching])
def test_a_bound_on_cost_needs_prices_unless_a_model_is_free(model):
    with pytest.raises(
        ConfigurationError, match=r"policy/max_cost: unknown_prices: `max_cost` requires prices"
    ):
        loop(model(), ToolPolicy(max_cost=1))
    loop(model(), ToolPolicy(max_cost=1), prices=Prices(input=1))
    loop(Free(), ToolPolicy(max_cost=1))
    loop(Scripted.of([{"say": "hi"}]), ToolPolicy(max_cost=1))


@pytest.mark.parametrize("price", [-1, math.inf, "1", True])
def test_prices_are_finite_numbers(price):
    with pytest.raises(ConfigurationError, match="invalid price `output`"):
        loop(Model(), prices=Prices(output=price))


async def test_tools_of_servers_that_were_not_asked_yet_are_looked_for_when_a_turn_begins():
    servers = {"far": Server("far", command="false", imports=True)}
    runtime = Runtime(Registry(), servers=servers)
    assert runtime._engine.undiscovered == ("far",)
    middleware = ProviderMiddleware(Model(), runtime, ToolPolicy(deny=("far__delete",)))
    with pytest.raises(ConfigurationError, match="unknown tool `far__delete`"):
        await middleware.run("hello")
    with pytest.raises(ConfigurationError, match="out_of_range"):
        ProviderMiddleware(Model(), runtime, ToolPolicy(max_rounds=0))


def test_a_glob_that_fits_no_tool_is_logged_and_stops_nobody(caplog):
    loop(Model(), ToolPolicy(deny=("delete_*",)))
    (record,) = caplog.records
    assert "policy/deny/0: idle_glob: `delete_*` matches no tool" in record.getMessage()
