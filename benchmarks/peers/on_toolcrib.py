"""A mocked call, every layer on: arguments and result are checked against their schemas."""

from __future__ import annotations

import worker

from toolcrib import Executors, Runtime, parse_registry


def tool(name: str) -> dict[str, object]:
    return {
        "name": name,
        "description": "The weather in a city.",
        "input_schema": worker.INPUT,
        "output_schema": worker.OUTPUT,
        "mock": {"result": {"city": "{{ args.city }}", "days": "{{ args.days }}", "temp": 18.5}},
    }


async def prepared() -> None:
    kinds = Executors.installed()
    tools = Runtime(parse_registry("peers.json", tool("weather"), kinds=kinds), executors=kinds)
    many = parse_registry("many.json", [tool(f"tool_{number}") for number in range(worker.MANY)], kinds=kinds)

    async def call() -> None:
        result = await tools.call("weather", worker.ARGUMENTS)
        assert result.value["temp"] == 18.5

    async def listing() -> None:
        listed = [
            {
                "name": found.name,
                "description": found.description,
                "inputSchema": found.input_schema,
                "outputSchema": found.output_schema,
            }
            for found in many.select()
        ]
        assert len(listed) == worker.MANY

    await worker.serve(("toolcrib", "jsonschema-rs"), {"call": call, "list": listing})


worker.main(prepared)
