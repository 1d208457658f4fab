"""The OpenAPI description of GitHub: operations are called against a server that reads requests by the same description."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest

from http_servers import answering_by, raw_answer, serving
from live_tools import live_executors
from npm_packages import installed
from toolcrib import RealClock, Runtime
from toolcrib.core.errors import ExpressionError
from toolcrib.executors import Executors
from toolcrib.formats.descriptor_files import descriptor_files
from toolcrib.formats.openapi_import import tools_of_openapi
from toolcrib.schema.generation import arguments_for
from toolcrib.schema.keyed_random import KeyedRandom
from toolcrib.schema.validation.defaults import compile_defaults

GITHUB = ("@octokit/openapi", "23.0.2")
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def resolved(document: Any, node: Any) -> Any:
    while "$ref" in node:
        target: Any = document
        for step in node["$ref"].split("/")[1:]:
            target = target[step.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_by_description(document: Any, path: str, operation: Any, item: Any, head: Any) -> dict[str, Any]:
    """What a server that knows only the description reads from a request: the place and name of each value."""
    names = re.findall(r"\{([^}]*)\}", path)
    pattern = re.escape(path).replace("\\{", "{").replace("\\}", "}")
    match = re.fullmatch(re.sub(r"\{[^}]*\}", "([^/]*)", pattern), head.path)
    assert match is not None, (path, head.path)
    read: dict[str, Any] = {
        f"path {name}": unquote(value) for name, value in zip(names, match.groups(), strict=True)
    }
    known = {}
    for each in [*item.get("parameters", []), *operation.get("parameters", [])]:
        parameter = resolved(document, each)
        known[parameter["name"], parameter["in"]] = parameter
    for name, where in known:
        values = [value for key, value in head.query if key == name]
        if where == "query" and values:
            read[f"query {name}"] = values
        elif where == "header" and head.header(name) is not None:
            read[f"header {name}"] = head.header(name)
    assert {key for key, _value in head.query} <= {name for name, where in known if where == "query"}
    if head.body:
        kind = (head.header("Content-Type") or "").partition(";")[0]
        assert kind in resolved(document, operation["requestBody"])["content"]
        read["body"] = json.loads(head.body) if kind.endswith("json") else head.body
    return read


def expected(
    document: Any, operation: Any, item: Any, arguments: dict[str, Any], *, whole: bool
) -> dict[str, Any]:
    """Where the arguments of a call belong by the description; with `whole`, `body` is the body."""
    left, told = dict(arguments), {}
    for each in [*item.get("parameters", []), *operation.get("parameters", [])]:
        parameter = resolved(document, each)
        name, where = parameter["name"], parameter["in"]
        argument = next((each for each in (f"{name}_parameter", name.replace("-", "_")) if each in left), "")
        if not argument or left[argument] is None:
            left.pop(argument, None)
            continue
        value = left.pop(argument)
        if where == "query":
            values = [text(one) for one in value] if isinstance(value, list) else [text(value)]
            told |= {f"query {name}": values} if values else {}
        else:
            told[f"{where} {name}"] = text(value)
    if "requestBody" in operation and not whole:
        told["body"] = left
    elif "body" in left:
        told["body"] = left["body"]
    return told


@pytest.mark.exhaustive  # the package has 385 MB
async def test_requests_are_what_the_description_says(tmp_path):
    with installed(*GITHUB) as package:
        document = json.loads((package / "generated" / "api.github.com.json").read_bytes())
    found = tools_of_openapi(document)
    assert (len(found.tools), found.refused) == (1223, [])
    tools = found.tools
    made = descriptor_files(found, Executors.installed())
    assert not made.refused
    for file in made.files:
        (tmp_path / file.file).write_text(file.text, encoding="utf-8")
    compared = 0
    answer = raw_answer(200, {"Content-Type": "application/json"}, b"null")
    async with serving(answering_by(lambda _head: answer)) as server:
        origins = {"https://api.github.com": server.origin, "https://uploads.github.com": server.origin}
        async with Runtime.open(
            tmp_path,
            mode="live",
            index=False,
            executors=live_executors(),
            clock=RealClock(),
            egress=[f"127.0.0.1:{server.port}"],
            origins=origins,
        ) as runtime:
            for tool in tools:
                method, path = tool.key.split(" ", 1)
                item = document["paths"][path]
                live: Any = tool.descriptor["live"]
                body = live.get("body", {"json": None})
                if not body.keys() & {"json", "from"}:
                    continue
                whole = "json" in body
                operation = item[method.lower()]
                fill = compile_defaults(tool.descriptor["input_schema"])
                try:
                    calls = arguments_for(tool.descriptor["input_schema"], KeyedRandom(0, tool.key), 2)
                except ExpressionError:
                    continue
                for arguments in calls:
                    before = len(server.requests)
                    result = await runtime.call(str(tool.descriptor["name"]), arguments)
                    if len(server.requests) == before:
                        assert result.error.code == "invalid_arguments", (tool.key, result)
                        continue
                    read = read_by_description(document, path, operation, item, server.requests[-1])
                    if isinstance(read.get("body"), bytes):
                        continue
                    filled = fill(arguments) if fill is not None else arguments
                    assert read == expected(document, operation, item, filled, whole=whole), tool.key
                    compared += 1
    assert compared > 2_000
