"""A program that uses a generated stub. In a line with `# wrong`, type checkers find an error; in all others, none."""

from __future__ import annotations

from typing import assert_type

from shop_tools import GetForecastResult, Tools

from toolcrib import JSON, Runtime, ToolStub


async def main() -> None:
    async with Runtime.open("descriptors") as runtime:
        tools = Tools(runtime)
        stub: ToolStub = tools
        print(stub)
        forecast = await tools.get_forecast(city="Oslo", days=3, unit="celsius")
        assert_type(forecast, GetForecastResult)
        assert_type(forecast["city"], str)
        assert_type(forecast["daily"][0]["high"], float)
        assert_type(forecast["daily"][0].get("note"), str | None)
        assert_type(await tools.shop_get_order(**{"order-id": "W1"}), dict[str, int] | None)
        assert_type(await tools.ping(), JSON)
        assert_type(await Tools(runtime.session()).ping(), JSON)

        await tools.get_forcast(city="Oslo")  # wrong: the name of the tool
        await tools.get_forecast(city="Oslo", day=3)  # wrong: the name of an argument
        await tools.get_forecast()  # wrong: an argument is missing
        await tools.get_forecast(city=7)  # wrong: the type of an argument
        await tools.get_forecast(city="Oslo", unit="kelvin")  # wrong: a value of an enum
        await tools.get_forecast("Oslo")  # wrong: arguments have names
        print(forecast["daily"][0]["low"])  # wrong: a key of the result
        print(forecast["city"] + 1)  # wrong: the type of a member
        Tools("descriptors")  # wrong: a stub calls a runtime or a session
