"""`toolcrib import curl | har | postman | utcp | higress | mci`, and `export utcp`."""

from __future__ import annotations

import json

import pytest

from toolcrib.cli import exit_codes

CURL = "curl https://api.shop.example/orders/17?expand=lines -H 'Authorization: Bearer c4n4ry-t0ken'\n"
HAR = {
    "log": {
        "version": "1.2",
        "entries": [
            {
                "request": {"method": "GET", "url": "https://api.shop.example/orders", "headers": []},
                "response": {"status": 200, "content": {"mimeType": "application/json", "text": "[1]"}},
            }
        ],
    }
}
POSTMAN = {
    "info": {"name": "Shop"},
    "item": [{"name": "List orders", "request": "https://api.shop.example/orders"}],
}
UTCP = {
    "utcp_version": "1.0.1",
    "tools": [
        {
            "name": "orders",
            "tool_call_template": {"call_template_type": "http", "url": "https://api.shop.example/o"},
        }
    ],
}
HIGRESS = {
    "server": {"name": "s"},
    "tools": [{"name": "orders", "requestTemplate": {"url": "https://api.shop.example/o"}}],
}
MCI = {
    "schemaVersion": "1.0",
    "tools": [{"name": "orders", "execution": {"type": "http", "url": "https://api.shop.example/o"}}],
}
SOURCES = {
    "curl": ("a.sh", CURL, "get_orders_by_order_id"),
    "har": ("a.har", json.dumps(HAR), "get_orders"),
    "postman": ("a.json", json.dumps(POSTMAN), "list_orders"),
    "utcp": ("a.json", json.dumps(UTCP), "orders"),
    "higress": ("a.yaml", json.dumps(HIGRESS), "orders"),
    "mci": ("a.json", json.dumps(MCI), "orders"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_each_kind_is_written_read_and_unchanged_the_second_time(kind, write, toolcrib):
    file, text, name = SOURCES[kind]
    folder = write({file: text})
    first = toolcrib("import", kind, file)
    assert first.exit_code == exit_codes.OK, first.stderr
    assert first.stdout.splitlines() == [f"wrote descriptors/{name}.tool.yaml"]
    assert toolcrib("validate").exit_code == exit_codes.OK
    assert toolcrib("import", kind, file, "--check").exit_code == exit_codes.OK
    assert "c4n4ry" not in "".join(
        path.read_text() for path in folder.rglob("*.yaml") if path.name != "a.yaml"
    )
    assert "c4n4ry" not in first.output


@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_of_another_kind_says_what_it_looks_like(kind, write, toolcrib):
    other = "har" if kind != "har" else "postman"
    file, text, _ = SOURCES[other]
    write({file: text})
    refused = toolcrib("import", kind, file)
    assert refused.exit_code == exit_codes.USAGE
    assert f"toolcrib import {other} {file}" in refused.stderr
    assert "it looks like a" in refused.stderr


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("Invoke-WebRequest -Uri https://x.example", "PowerShell"),
        ("await fetch('https://x.example')", "JavaScript"),
        ("GET /a HTTP/1.1\nHost: x.example", "a raw request of HTTP"),
        ("wget https://x.example", "commands of another HTTP client"),
        ("hello", "contains no curl command"),
        ("", "contains no curl command"),
    ],
)
def test_a_text_without_curl_says_what_it_looks_like(text, looks, write, toolcrib):
    write({"a.txt": text})
    refused = toolcrib("import", "curl", "a.txt")
    assert refused.exit_code == exit_codes.USAGE
    assert looks in refused.stderr


def test_commands_are_read_from_stdin(write, toolcrib):
    folder = write({})
    done = toolcrib("import", "curl", "-", given=CURL)
    assert done.exit_code == exit_codes.OK
    assert (folder / "descriptors/get_orders_by_order_id.tool.yaml").is_file()


def test_a_file_that_is_no_text_is_refused(write, toolcrib):
    folder = write({})
    (folder / "a.bin").write_bytes(b"\xff\xfe\x00c")
    refused = toolcrib("import", "curl", "a.bin")
    assert refused.exit_code == exit_codes.USAGE
    assert "is not text in UTF-8" in refused.stderr


def test_edits_stay_and_changes_of_the_recording_are_applied(write, toolcrib):
    folder = write({"a.sh": CURL})
    toolcrib("import", "curl", "a.sh")
    file = folder / "descriptors/get_orders_by_order_id.tool.yaml"
    file.write_text(
        file.read_text().replace("https://api.shop.example/orders/{order_id}", "Get an order.", 1)
    )
    write({"a.sh": CURL.replace("lines", "items")})
    assert toolcrib("import", "curl", "a.sh", "--check").exit_code == exit_codes.PROBLEMS
    assert toolcrib("import", "curl", "a.sh").exit_code == exit_codes.OK
    assert "Get an order." in file.read_text()
    assert "default: items" in file.read_text()


def test_a_manual_is_exported_and_its_losses_are_told(write, toolcrib, document):
    live = {"name": "a", "live": {"url": "https://api.shop.example/a", "select": "body.b"}}
    write(
        {
            "descriptors/a.tool.json": json.dumps(live),
            "descriptors/b.tool.json": '{"name": "b", "client": {}}',
        }
    )
    done = toolcrib("export", "utcp")
    assert done.exit_code == exit_codes.OK
    assert [each["name"] for each in json.loads(done.stdout)["tools"]] == ["a"]
    assert done.stderr.splitlines() == [
        "lost: a /live/select: `select`",
        "lost: b /client: the tool is not written: UTCP has no counterpart of the mode `client`",
    ]
    assert document("export", "utcp", "--json")["losses"][0] == {
        "tool": "a",
        "pointer": "/live/select",
        "message": "`select`",
    }
