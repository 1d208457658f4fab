"""Factories create tools from what the program provides; without it, only their own tools are unavailable."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

import toolcrib
from toolcrib import ConfigurationError, DocumentError, Outcome, Registry, Runtime


class Database:
    def __init__(self, name: str) -> None:
        self.name = name


@toolcrib.factory
def refund(database: Database, prefix: str = "refunded"):
    """Refund an order, in whatever database."""

    async def inner(order: str) -> str:
        """Refund an order."""
        return f"{prefix} {order} in {database.name}"

    return inner


@dataclass
class Query:
    text: str


class AskDatabase(toolcrib.Tool[Query, str]):
    """Ask the database."""

    def __init__(self, database: Database, *, limit: int = 10) -> None:
        self.database, self.limit = database, limit

    def execute(self, query: Query) -> str:
        return f"{query.text} in {self.database.name}, {self.limit}"


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield lambda **provide: stack.enter_context(Runtime(Registry(), provide=provide))


def test_a_factory_receives_its_dependencies_by_name(opened):
    runtime = opened(database=Database("main"), unrelated=1)
    added = runtime.add(refund)
    assert (added.name, added.description) == ("refund", "Refund an order.")
    assert added.input_schema["required"] == ["order"]
    assert added.bindings["python"] == {"call": f"{__name__}:refund"}
    assert runtime.call_sync("refund", {"order": "o1"}).value == "refunded o1 in main"


def test_an_optional_dependency_may_be_provided(opened):
    runtime = opened(database=Database("main"), prefix="paid")
    runtime.add(refund, name="pay", tags=["money"])
    assert runtime.registry["pay"].tags == ("money",)
    assert runtime.call_sync("pay", {"order": "o1"}).value == "paid o1 in main"


def test_the_constructor_of_a_class_receives_dependencies(opened):
    runtime = opened(database=Database("main"), limit=3)
    runtime.add(AskDatabase)
    assert runtime.call_sync("ask_database", {"text": "all"}).value == "all in main, 3"


@pytest.mark.parametrize(
    ("tool", "name", "arguments"),
    [
        (refund, "refund", {"order": "o1"}),
        (AskDatabase, "ask_database", {"text": "all"}),
    ],
)
def test_without_a_dependency_only_this_tool_is_unavailable(tool, name, arguments, opened):
    runtime = opened(databse=Database("main"))
    runtime.add(tool)
    runtime.add(toolcrib.simple_tool("ping", "Answers.", mock={"result": "pong"}))
    result = runtime.call_sync(name, arguments)
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_dependency")
    assert f"`{name}` needs `database`, which the program does not provide ({__file__}:" in result.message
    assert "did you mean `databse`?" in result.message
    assert 'pass `provide={"database": ...}`' in result.message
    assert [*runtime.registry] == [*sorted([name, "ping"])]
    assert runtime.call_sync("ping").value == "pong"


def test_a_tool_whose_dependency_is_missing_can_be_mocked(opened):
    runtime = opened()
    runtime.add(refund, schema={"type": "object"}, mock={"result": "mocked"}, mode="mock")
    assert runtime.call_sync("refund", {"order": "o1"}).value == "mocked"


def test_a_descriptor_may_name_a_factory_and_a_class(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ledger_factories.py").write_text(
        "import toolcrib\n\n\n"
        "@toolcrib.factory\n"
        "def pay(account):\n"
        "    def pay(amount: int) -> str:\n"
        "        '''Pay.'''\n"
        "        return f'{amount} from {account}'\n\n"
        "    return pay\n"
    )
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "pay.tool.yaml").write_text(
        'name: pay_now\nmode: python\npython: {call: "ledger_factories:pay"}\n'
    )
    with Runtime.open(str(tmp_path / "tools"), index=False, provide={"account": "a1"}) as runtime:
        assert runtime.registry["pay_now"].description == "Pay."
        assert runtime.call_sync("pay_now", {"amount": 3}).value == "3 from a1"
    with Runtime.open(str(tmp_path / "tools"), index=False) as runtime:
        result = runtime.call_sync("pay_now", {"amount": 3})
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_dependency")


def test_a_factory_that_raises_raises_when_it_is_added(opened):
    @toolcrib.factory
    def broken():
        raise ZeroDivisionError("no tool")

    with pytest.raises(ZeroDivisionError):
        opened().add(broken)


async def asynchronous():
    return refund


def generator():
    yield refund


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (asynchronous, "the factory `asynchronous` is asynchronous or a generator"),
        (generator, "the factory `generator` is asynchronous or a generator"),
        (AskDatabase, "cannot make a factory of an object of type `type`"),
        (3, "cannot make a factory of an object of type `int`"),
    ],
)
def test_what_is_no_factory_is_refused(made, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        toolcrib.factory(made)
    assert caught.value.code == "bad_signature"


def test_parameters_that_cannot_be_provided_are_refused(opened):
    @toolcrib.factory
    def anything(*everything): ...

    @toolcrib.factory
    def positional(database, /): ...

    with pytest.raises(ConfigurationError, match=r"`\*everything` of `anything` takes anything"):
        opened().add(anything)
    with pytest.raises(ConfigurationError, match="`database` of `positional` is positional-only"):
        opened().add(positional)


def test_a_factory_returns_a_tool_of_its_name(opened):
    @toolcrib.factory
    def make():
        @toolcrib.tool(name="made")
        def inner() -> None: ...

        return inner

    @toolcrib.factory
    def nothing(): ...

    with pytest.raises(
        ConfigurationError, match="returns the tool `made`, but is declared as `make`"
    ) as caught:
        opened().add(make)
    assert caught.value.hint == 'write `@toolcrib.factory(name="made")`'
    with pytest.raises(ConfigurationError, match=r"the factory `nothing` returns nothing \("):
        opened().add(nothing)


# Keys of `add`.


def legacy(order, amount=1):
    return f"{order}: {amount}"


def test_a_callable_is_added_with_its_schemas(opened):
    runtime = opened()
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    added = runtime.add(
        legacy, schema=schema, output_schema={"type": "string"}, description="Refund.", timeout="2s"
    )
    assert (added.input_schema, added.output_schema, added.timeout) == (schema, {"type": "string"}, 2.0)
    assert runtime.call_sync("legacy", {"order": "o1"}).value == "o1: 1"
    assert runtime.call_sync("legacy", {}).outcome is Outcome.INVALID_ARGUMENTS


def test_a_callable_without_annotations_needs_a_schema(opened):
    with pytest.raises(ConfigurationError, match="the parameter `order` of `legacy` has no annotation"):
        opened().add(legacy)


def test_the_keys_of_add_replace_those_of_the_decorator(opened):
    @toolcrib.tool(name="one", tags=["a"])
    def tool(x: int) -> int:
        return x

    assert opened().add(tool, name="two").name == "two"
    assert opened().add(tool, name="two").tags == ("a",)


def test_keys_that_are_written_otherwise_are_refused(opened):
    def tool(x: int) -> int:
        return x

    with pytest.raises(
        ConfigurationError, match=r"`input_schema` is not an argument of `toolcrib\.tool`"
    ) as caught:
        opened().add(tool, input_schema={"type": "object"})
    assert caught.value.hint == "use `schema=`"
    with pytest.raises(DocumentError, match="unknown key `timeut`"):
        opened().add(tool, timeut="2s")
    with pytest.raises(
        ConfigurationError, match="the descriptor `ping` has its own keys; `timeout` cannot be set here"
    ):
        opened().add(toolcrib.simple_tool("ping", "Answers."), timeout="2s")


def test_examples_of_a_function_are_checked_when_it_is_added(opened):
    @toolcrib.tool(
        examples=[{"args": {"city": "Oslo"}, "result": 1}, {"args": {"city": 7}, "result": "warm"}]
    )
    def get_warmth(city: str) -> int:
        return len(city)

    with pytest.raises(DocumentError) as caught:
        opened().add(get_warmth)
    assert [each.pointer for each in caught.value.problems] == ["/examples/1/args/city", "/examples/1/result"]
    assert caught.value.problems[0].source == __file__
