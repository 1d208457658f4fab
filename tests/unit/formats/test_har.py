"""Tools of HAR files: operations, schemas, mocks, and what is left out."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonschema
import pytest

from in_memory import runtime_of
from live_tools import live_executors
from toolcrib.formats.har import tools_of_har

API = "https://api.shop.example"


def entry(
    method: str = "GET",
    path: str = "/orders",
    *,
    status: int = 200,
    answer: Any = None,
    kind: str = "application/json",
    posted: Any = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An entry as Chromium writes it."""
    content = {"mimeType": kind, "size": 1}
    if answer is not None:
        content["text"] = answer if isinstance(answer, str) else json.dumps(answer)
    request: dict[str, Any] = {
        "method": method,
        "url": path if "://" in path else API + path,
        "httpVersion": "h2",
        "headers": [{"name": name, "value": value} for name, value in (headers or {}).items()],
        "queryString": [],
        "cookies": [],
    }
    if posted is not None:
        request["postData"] = {"mimeType": "application/json", "text": json.dumps(posted)}
    response = {"status": status, "headers": [], "content": content}
    return {"request": request, "response": response, "_resourceType": "fetch", **more}


def har(*entries: Any) -> dict[str, Any]:
    return {"log": {"version": "1.2", "creator": {"name": "test", "version": "1"}, "entries": [*entries]}}


def tools(*entries: Any) -> dict[str, dict[str, Any]]:
    imported = tools_of_har(har(*entries))
    assert imported.refused == []
    return {each.key: dict(each.descriptor) for each in imported.tools}


def test_requests_of_an_operation_are_one_tool():
    found = tools(
        entry(path="/orders/17?expand=lines", answer={"id": 17, "total": 9.5, "note": None}),
        entry(path="/orders/18", answer={"id": 18, "total": 3, "note": "late", "gift": True}),
        entry(path="/orders/99", status=404, answer={"error": {"message": "no such order"}}),
        entry("DELETE", "/orders/17", status=204),
    )
    assert [*found] == [f"GET {API}/orders/{{order_id}}", f"DELETE {API}/orders/{{order_id}}"]
    made = found[f"GET {API}/orders/{{order_id}}"]
    assert made["name"] == "get_orders_by_order_id"
    assert made["input_schema"] == {
        "type": "object",
        "properties": {
            "order_id": {"type": "integer", "examples": [17, 18, 99]},
            "expand": {"type": "string", "examples": ["lines"]},
        },
        "required": ["order_id"],
        "additionalProperties": False,
    }
    assert made["output_schema"] == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "total": {"type": "number"},
            "note": {"type": ["string", "null"]},
            "gift": {"type": "boolean"},
        },
        "required": ["id", "total", "note"],
    }
    assert made["on_invalid_result"] == "warn"
    assert made["live"] == {
        "url": f"{API}/orders/{{{{ args.order_id }}}}",
        "query": {"expand": "{{ args.expand }}"},
    }


async def test_the_mock_replies_as_the_recording():
    found = tools(
        entry(path="/orders/17", answer={"id": 17, "text": "{{ x }} ${y}"}),
        entry(path="/orders/18", answer={"id": 18, "text": ""}),
        entry(path="/orders/99", status=404, answer={"error": {"message": "no such order"}}),
    )
    (made,) = found.values()
    async with runtime_of(json.dumps(made, ensure_ascii=False), executors=live_executors()) as runtime:
        first = await runtime.call(made["name"], {"order_id": 17})
        assert first.value == {"id": 17, "text": "{{ x }} ${y}"}
        assert (await runtime.call(made["name"], {"order_id": 18})).value == {"id": 18, "text": ""}
        missing = await runtime.call(made["name"], {"order_id": 99})
        assert missing.error.code == "http_404"
        assert missing.error.message == "no such order"
        assert (await runtime.call(made["name"], {"order_id": 5})).value == first.value


def test_members_of_bodies_are_required_if_all_requests_have_them():
    (made,) = tools(
        entry("POST", posted={"sku": "a", "count": 1}, answer={"id": 1}, status=201),
        entry("POST", posted={"sku": "b", "count": 2, "gift": True}, answer={"id": 2}, status=201),
    ).values()
    assert made["input_schema"]["required"] == ["sku", "count"]
    assert made["live"]["body"]["json"] == {
        "sku": "{{ args.sku }}",
        "count": "{{ args.count }}",
        "gift": "{{ args.gift }}",
    }
    for example in made["examples"]:
        jsonschema.validate(example["args"], made["input_schema"])
        jsonschema.validate(example["result"], made["output_schema"])


def test_operations_of_graphql_are_apart():
    orders = {"query": "query Orders($n: Int) { orders(n: $n) { id } }", "variables": {"n": 5}}
    cancel = {
        "operationName": "CancelOrder",
        "query": "mutation CancelOrder($id: ID!) { cancel(id: $id) }",
        "variables": {"id": "o1"},
    }
    found = tools(
        entry("POST", "/graphql", posted=orders, answer={"data": {"orders": []}}),
        entry("POST", "/graphql", posted=cancel, answer={"data": {"cancel": True}}),
        entry("POST", "/graphql", posted={**orders, "variables": {"n": 6}}, answer={"data": {"orders": []}}),
    )
    assert {made["name"]: [*made["input_schema"]["properties"]] for made in found.values()} == {
        "orders": ["n"],
        "cancel_order": ["id"],
    }


def test_what_a_page_loads_is_left_out_and_counted():
    imported = tools_of_har(
        har(
            entry(),
            entry(path="/app.js", _resourceType="script"),
            entry(path="/a.png", _resourceType="image"),
            entry(path="/b.png", kind="image/png", _resourceType=None),
            entry(path="/b.css", kind="text/css", _resourceType=None),
            entry("OPTIONS", "/orders"),
            entry(path="data:text/plain,x://y"),
            entry(path="wss://shop.example/live"),
            entry(path="/page", kind="text/html", _resourceType="document"),
            entry(path="/data", _resourceType="document"),
        )
    )
    assert [each.key for each in imported.tools] == [f"GET {API}/orders", f"GET {API}/data"]
    (remark,) = imported.remarks
    assert remark.message.startswith("8 entries are no calls of an API: ")
    for each in (
        "1 script",
        "1 image",
        "1 image/png",
        "1 text/css",
        "1 preflight",
        "1 wss:",
        "1 document",
        "1 data:",
    ):
        assert each in remark.message


def test_headers_of_browsers_are_dropped_and_told():
    imported = tools_of_har(
        har(
            entry(
                headers={":authority": "x", "User-Agent": "Mozilla", "sec-fetch-mode": "cors", "X-Shop": "42"}
            )
        )
    )
    assert imported.tools[0].descriptor["live"]["headers"] == {"X-Shop": "42"}
    assert [each.message for each in imported.remarks] == [
        "headers that browsers add: sec-fetch-mode, user-agent"
    ]


def test_a_damaged_entry_is_refused_and_the_others_are_not():
    imported = tools_of_har(
        har({}, 5, entry(path="/a"), {"request": None}, entry("PURGE", "/b"), entry(path="http://"))
    )
    assert [each.key for each in imported.tools] == [f"GET {API}/a"]
    assert [each.reason for each in imported.refused] == [
        "damaged_entry",
        "damaged_entry",
        "damaged_entry",
        "invalid_url",
        "method",
    ]
    assert imported.refused[3].pointer == "/log/entries/5"


@pytest.mark.parametrize("document", [{}, {"log": []}, {"log": {"entries": {}}}])
def test_a_document_without_entries_has_no_tools(document):
    assert tools_of_har(document).tools == []


def test_texts_in_base64_are_decoded_and_binary_answers_are_none():
    (made,) = tools(
        {
            **entry(),
            "response": {
                "status": 200,
                "content": {
                    "mimeType": "application/json",
                    "encoding": "base64",
                    "text": base64.b64encode(b'{"a": 1}').decode(),
                },
            },
        }
    ).values()
    assert made["mock"] == {"result": {"a": 1}}
    (made,) = tools(entry(kind="application/zip", answer="PK")).values()
    assert "mock" not in made


def test_a_large_response_is_generated():
    imported = tools_of_har(har(entry(answer=[{"n": number} for number in range(10_000)])))
    assert imported.tools[0].descriptor["mock"] == {"generate": True}
    assert "examples" not in imported.tools[0].descriptor
    assert "more than 64 KiB" in imported.remarks[0].message


def test_many_recordings_of_an_operation_are_bounded():
    imported = tools_of_har(
        har(*(entry(path=f"/orders/{number}", answer={"id": number}) for number in range(1000)))
    )
    (made,) = imported.tools
    assert len(made.descriptor["mock"]["rules"]) == 21
    assert any("800 further recordings" in each.message for each in imported.remarks)


def test_secrets_of_one_request_are_nowhere():
    token, session, password = "c4n4ry.T0ken-1", "c4n4rySessi0n", "c4n4ryPassw0rd"
    login = entry(
        "POST",
        "/login",
        posted={"user": "ann", "password": password},
        answer={"value": token, "sid": session},
    )
    orders = entry(headers={"Authorization": f"Bearer {token}", "Cookie": f"sid={session}"}, answer=[token])
    echo = entry(path=f"/echo/x?q={token}", answer={"url": f"{API}/echo?t={token}", token: session})
    imported = tools_of_har(har(login, orders, echo))
    assert len(imported.tools) == 3
    shown = json.dumps(imported, default=str)
    for secret in (token, session, password):
        assert secret not in shown
    live = {each.descriptor["name"]: each.descriptor["live"] for each in imported.tools}
    assert live["get_orders"]["auth"]["token"] == "${SHOP_TOKEN}"
    assert live["get_orders"]["cookies"] == {"sid": "${SHOP_COOKIE_SID}"}
    assert live["post_login"]["body"]["json"]["password"] == "${SHOP_PASSWORD}"


def test_thousands_of_secrets_are_removed_in_bounded_time():
    tokens = [f"t0k3n-of-request-{number}" for number in range(500)]
    entries = [
        entry(
            path=f"/page-{chr(97 + number % 26)}{chr(97 + number // 26)}/x",
            headers={"Authorization": f"Bearer {token}"},
            answer={"next": f"{API}/go?t={tokens[number - 1]}"},
        )
        for number, token in enumerate(tokens)
    ]
    imported = tools_of_har(har(*entries))
    assert len(imported.tools) == 500
    shown = json.dumps(imported, default=str)
    assert not [token for token in tokens if f"{token}\\" in shown or f'{token}"' in shown]


def test_equal_names_are_numbered_in_linear_time():
    imported = tools_of_har(har(*(entry(path=f"https://h{number}.example/same") for number in range(3000))))
    assert imported.tools[-1].descriptor["name"] == "get_same_3000"
