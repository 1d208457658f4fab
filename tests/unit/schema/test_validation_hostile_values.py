"""Python values that are no JSON, or only look like it, as arguments and as answers: none hangs a call, or is a bug of ours."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from itertools import repeat
from types import MappingProxyType

import pytest

from in_memory import fake, runtime_of
from sampling import sample
from toolcrib import Outcome, Result
from toolcrib.loading.documents.document import parse_content
from toolcrib.provider.models.assembler import Assembler
from toolcrib.provider.models.protocol import CallDelta
from toolcrib.schema.validation import Validator, check_schema

TOOL = """
    name: tool
    input_schema: {type: object, properties: {b: {}, size: {type: integer, default: 1}}}
    mock: {result: {args: "{{ args }}"}}
"""


def endless(*_given, **_named):
    return repeat("x")


def failing(*_given, **_named):
    raise RuntimeError("a hostile method was called")


METHODS = (
    "items", "keys", "values", "copy", "get", "pop", "setdefault", "__iter__", "__len__", "__getitem__", "__contains__",
    "__eq__", "__bool__", "__reversed__", "__or__", "__repr__", "__str__", "__reduce_ex__", "__deepcopy__",
)  # fmt: skip
CONTAINERS = [
    pytest.param(
        type("Hostile", (kind,), {name: method})(content), id=f"{kind.__name__}.{name}-{method.__name__}"
    )
    for kind, content in ((dict, {"b": 1}), (list, [1]))
    for name in METHODS
    for method in (endless, failing)
]
SCALARS = [
    pytest.param(type("Hostile", (kind,), {"__hash__": kind.__hash__, name: failing})(content), id=f"{kind.__name__}.{name}")
    for kind, content in ((str, "x"), (int, 1), (float, 1.5))
    for name in ("__eq__", "__hash__", "__str__", "__repr__", "__len__", "__lt__", "__abs__", "__getitem__", "lstrip", "encode", "__bool__")
]  # fmt: skip


class Liar:
    """Says that it is a dict."""

    @property
    def __class__(self):
        return dict


def doubled():
    value = []
    for _ in range(60):
        value = [value, value]
    return value


def in_itself():
    value = {"b": []}
    value["b"].append(value)
    return value


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


OTHERS = [pytest.param(make(), id=make.__name__) for make in (Liar, in_itself, deep, object)]


async def called(arguments):
    async with runtime_of(TOOL) as runtime:
        result = await runtime.call("tool", arguments)
    json.dumps(result.as_json())
    return result


@pytest.mark.parametrize("value", sample(CONTAINERS, one_in=3))
async def test_an_argument_of_a_hostile_class_is_what_it_holds(value):
    result = await called({"b": value, "size": 1})
    plain = {"b": 1} if isinstance(value, dict) else [1]
    assert (result.outcome, result.value) == (Outcome.OK, {"args": {"b": plain, "size": 1}})
    assert type(result.value["args"]["b"]) is type(plain)


@pytest.mark.parametrize("value", sample([each for each in CONTAINERS if "dict" in each.id], one_in=5))
async def test_arguments_of_a_hostile_class_are_what_they_hold(value):
    result = await called(value)
    assert (result.outcome, result.value) == (Outcome.OK, {"args": {"b": 1, "size": 1}})


@pytest.mark.parametrize("value", sample([*SCALARS, *OTHERS], one_in=3))
async def test_what_is_no_json_is_refused(value):
    for given in (value, {"b": value}, {"b": [value]}):
        result = await called(given)
        assert result.outcome is Outcome.INVALID_ARGUMENTS
        assert "expected" in result.message or "must be an object" in result.message


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (OrderedDict(b=1), {"b": 1}),
        (defaultdict(list, b=[1]), {"b": [1]}),
        (Counter("bb"), {"b": 2}),
        (MappingProxyType({"b": 1}), {"b": 1}),
    ],
)
async def test_ordinary_mappings_are_arguments(given, plain):
    result = await called(given)
    assert result.value == {"args": {**plain, "size": 1}}
    assert "repairs" not in result.meta


async def test_a_name_of_a_hostile_class_is_a_name():
    name = type("Hostile", (str,), {"__hash__": failing, "__eq__": failing})("tool")
    async with runtime_of(TOOL) as runtime:
        assert (await runtime.call(name, {})).outcome is Outcome.OK


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("value", sample(CONTAINERS, one_in=5))
async def test_an_answer_of_a_hostile_class_is_what_it_holds(value, waits):
    async def answer(_call):
        return Result.success({"b": value}, meta={"told": value})

    async with fake(answer, "output_schema: {type: object}", waits=waits) as runtime:
        result = await runtime.call("tool", {})
    plain = {"b": 1} if isinstance(value, dict) else [1]
    assert (result.outcome, result.value, result.meta) == (Outcome.OK, {"b": plain}, {"told": plain})
    json.dumps(result.as_json())


@pytest.mark.parametrize("value", sample([*SCALARS, *OTHERS], one_in=3))
async def test_an_answer_that_is_no_json_is_refused(value):
    async def answer(_call):
        return Result.success({"b": value})

    async with fake(answer, "output_schema: {type: object}") as runtime:
        result = await runtime.call("tool", {})
    assert result.outcome is Outcome.INVALID_RESULT
    assert "expected" in result.message


@pytest.mark.exhaustive
async def test_a_value_that_holds_itself_many_times_is_too_large():
    async def answer(_call):
        return Result.success({"b": doubled()})

    result = await called({"b": doubled()})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "arguments_too_large")
    # Measuring the value takes long where every line is traced.
    async with fake(answer, "output_schema: {type: object}\ntimeout: 10m") as runtime:
        result = await runtime.call("tool", {})
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "result_too_large")


@pytest.mark.parametrize("value", sample(CONTAINERS, one_in=5))
async def test_a_layer_of_a_user_may_give_and_return_what_it_likes(value):
    async def answer(_call):
        return Result.success({})

    async def layer(call, call_next):
        result = await call_next(call._replace(arguments={"b": value}))
        return result._replace(value={"b": value}, meta={"told": value})

    async with fake(answer, middleware=[layer]) as runtime:
        result = await runtime.call("tool", {})
    plain = {"b": 1} if isinstance(value, dict) else [1]
    assert (result.outcome, result.value) == (Outcome.OK, {"b": plain})
    json.dumps(result.as_json())


@pytest.mark.parametrize("value", sample(CONTAINERS, one_in=5))
def test_everything_else_that_takes_values_reads_them_so(value):
    plain = {"b": 1} if isinstance(value, dict) else [1]
    assert Validator({"const": plain}).is_valid(value)
    assert Validator({"const": plain}).faults(value) == []
    assert check_schema({"const": value}) == []
    (document,), problems = parse_content("memory", {"b": value})
    assert (document.value, problems) == ({"b": plain}, [])
    assembler = Assembler()
    list(assembler.add(CallDelta(0, "1", "tool", {"b": value})))
    (call,) = assembler.parts()
    assert call.arguments == {"b": plain}
