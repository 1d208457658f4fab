"""`toolcrib call` of tools that reach out: dry runs, explanations, exchanges, and that no secret is in any of it."""

from __future__ import annotations

import json
import logging

import pytest

from http_servers import answered_by, answering, answering_json
from toolcrib.cli import exit_codes
from toolcrib.cli.call import LOGGER

TOKEN = "canary-7f3e/9a+b="

PROJECT = """
project: weather
egress: {{allow: ["127.0.0.1:{port}"]}}
origins: {{"https://api.example.com": "http://127.0.0.1:{port}"}}
profiles:
  careful: {{limits: {{rate: 60/1m}}, defaults: {{timeout: 2s}}, modes: {{"*": live}}}}
"""

TOOL = """
name: forecast
input_schema:
  type: object
  additionalProperties: false
  required: [city]
  properties:
    city: {type: string}
    days: {type: integer}
    pin: {type: string, x-secret: true}
mode: mock
mock: {result: sunny}
live:
  url: "https://api.example.com/v1/{{ args.city }}"
  query: {days: "{{ args.days }}", pin: "{{ args.pin }}"}
  auth: {type: http, scheme: bearer, token: "${API_TOKEN}"}
limits: {output_size: 1MiB}
"""

SEND = """
name: send
input_schema: {type: object, required: [text], properties: {text: {type: string}, password: {type: string}}}
live:
  method: POST
  url: "https://api.example.com/send"
  headers: {X-Kind: note}
  body: {from: args, as: json}
  idempotency_key: Idempotency-Key
"""


@pytest.fixture
def project(write, monkeypatch):
    """A project whose tools call port 1, where nothing listens, or the given one."""
    monkeypatch.setenv("API_TOKEN", TOKEN)

    def put(port=1):
        files = {"toolcrib.yaml": PROJECT.format(port=port)}
        return write({**files, "descriptors/forecast.tool.yaml": TOOL, "descriptors/send.tool.yaml": SEND})

    return put


def test_a_dry_run_prints_the_request_and_the_command_that_sends_it(project, toolcrib):
    project()
    result = toolcrib("call", "forecast", "city=New York/USA", "days=3", "--mode", "live", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "GET http://127.0.0.1:1/v1/New%20York%2FUSA?days=3"
    assert "Authorization: Bearer ***" in lines
    start = lines.index("")
    assert lines[start + 1] == "curl \\"
    assert lines[start + 2] == "  'http://127.0.0.1:1/v1/New%20York%2FUSA?days=3' \\"
    assert lines[-1] == "  --header 'Authorization: Bearer ***'"


def test_a_dry_run_shows_the_body(project, toolcrib):
    project()
    lines = toolcrib("call", "send", "text=it's\nme", "password=hunter2", "--dry-run").stdout.splitlines()
    body = '{"text":"it\'s\\nme","password":"***"}'
    assert lines[0] == "POST http://127.0.0.1:1/send"
    assert lines[lines.index("") + 1] == body
    assert lines[-1] == "  --data-raw '" + body.replace("'", "'\"'\"'") + "'"
    assert any(line.startswith("Idempotency-Key: ") for line in lines)


def test_a_dry_run_as_json_holds_everything(project, document):
    project()
    told = document("call", "forecast", "city=Oslo", "--mode", "live", "--dry-run", "--json")
    plan = told["result"]["plan"]
    assert plan["request"]["url"] == "http://127.0.0.1:1/v1/Oslo"
    assert plan["curl"].startswith("curl ")
    assert plan["hosts"] == ["api.example.com"]
    assert plan["timeouts"] == {"connect": "5s", "read": "15s", "total": "30s"}
    assert plan["limits"]["output_size"] == "1MiB"
    assert plan["auth"] == "http bearer"
    assert told["result"]["mode"] == "live"


def test_a_dry_run_of_a_mock_is_what_it_was(project, document):
    project()
    told = document("call", "forecast", "city=Oslo", "--dry-run")
    assert (told["mode"], told["plan"]["mode"]) == ("mock", "mock")


def test_a_dry_run_of_what_can_not_be_sent_says_why(project, toolcrib, monkeypatch):
    project()
    refused = toolcrib("call", "forecast", "city=..", "--mode", "live", "--dry-run")
    assert (refused.exit_code, refused.stdout) == (11, "")
    assert "/city: `city` contains a `.` or `..` segment" in refused.stderr
    monkeypatch.delenv("API_TOKEN")
    missing = toolcrib("call", "forecast", "city=Oslo", "--mode", "live", "--dry-run")
    assert "API_TOKEN" in missing.stdout + missing.stderr
    assert "curl" not in missing.stdout


def line_of(path, text):
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


def test_an_explanation_names_the_file_and_line_of_every_part(project, toolcrib):
    folder = project()
    words = ("call", "forecast", "city=Oslo", "--profile", "careful", "--explain", "--dry-run")
    result = toolcrib(*words)
    rows, facts = (part.splitlines() for part in result.stderr.split("\n\n")[1:])
    rows = {tuple(line.split()[:2]): line for line in rows}
    facts = {line.split()[0]: line for line in facts}
    tool = folder / "descriptors" / "forecast.tool.yaml"
    for key, text in {
        ("url", "https://api.example.com"): "url:",
        ("path", "{{"): "url:",
        ("query", "days"): "query:",
        ("auth", "http"): "auth:",
    }.items():
        assert f"descriptors/forecast.tool.yaml:{line_of(tool, text)}" in rows[key]
    assert "built in" in rows["header", "User-Agent"]
    assert rows["query", "days"].endswith("days (not given)")
    profile = f"toolcrib.yaml:{line_of(folder / 'toolcrib.yaml', 'careful:')}"
    for key in (("mode", "live"), ("limits", "rate"), ("timeout", "timeout")):
        assert profile in rows[key]
    assert "`origins`" in rows["origin", "http://127.0.0.1:1"]
    assert facts["timeouts"].endswith("connect 5s, read 15s, total 2s")
    assert "rate 60/1m" in facts["limits"]
    assert result.stdout.startswith("GET http://127.0.0.1:1/v1/Oslo\n")


PAGED = """
name: events
input_schema: {type: object, additionalProperties: false, properties: {after: {type: string}}}
live:
  url: "https://api.example.com/events"
  pagination: {style: page, param: page, size_param: per_page, size: 50, cursor_arg: after}
"""


def test_a_dry_run_of_pages_shows_the_first_one_that_is_asked_for(write, project, toolcrib):
    write({"descriptors/events.tool.yaml": PAGED, "toolcrib.yaml": PROJECT.format(port=1)})
    first = toolcrib("call", "events", "--explain", "--dry-run")
    assert first.stdout.startswith("GET http://127.0.0.1:1/events?per_page=50&page=1\n")
    rows = {tuple(line.split()[:2]): line for line in first.stderr.splitlines() if line}
    assert "descriptors/events.tool.yaml:6" in rows["query", "per_page"]
    assert rows["query", "page"].endswith("after (not given)")
    later = toolcrib("call", "events", "after=7", "--dry-run")
    assert later.stdout.startswith("GET http://127.0.0.1:1/events?per_page=50&page=7\n")
    refused = toolcrib("call", "events", "after=x", "--dry-run")
    assert (refused.exit_code, refused.stdout) == (11, "")
    assert "/after: not a valid page number" in refused.stderr


def test_an_explanation_comes_before_the_call(project, toolcrib):
    with answered_by(answering_json({"temp": 3})) as server:
        project(server.port)
        result = toolcrib("call", "forecast", "city=Oslo", "--mode", "live", "--explain")
        assert json.loads(result.stdout) == {"temp": 3}
        assert result.stderr.startswith(f"GET http://127.0.0.1:{server.port}/v1/Oslo\n")
        assert len(server.requests) == 1


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_what_is_sent_and_received_is_shown_on_stderr(flag, project, toolcrib):
    with answered_by(answering_json({"temp": 3}, headers={"X-Rest": "9"})) as server:
        project(server.port)
        words = ("city=Oslo", "days=2", "pin=47/11")
        result = toolcrib("call", "forecast", *words, "--mode", "live", flag)
    assert json.loads(result.stdout) == {"temp": 3}
    lines = result.stderr.splitlines()
    assert lines[:2] == ["> GET /v1/Oslo?days=2&pin=*** HTTP/1.1", f"> Host: 127.0.0.1:{server.port}"]
    assert "> Authorization: Bearer ***" in lines
    assert lines.index("< 200") > lines.index("> Authorization: Bearer ***")
    assert "< x-rest: 9" in lines
    assert lines[-2:] == ["<", '< {"temp": 3}']
    assert logging.getLogger(LOGGER).handlers == []


def test_without_the_flag_nothing_is_shown(project, toolcrib):
    with answered_by(answering_json({})) as server:
        project(server.port)
        assert toolcrib("call", "forecast", "city=Oslo", "--mode", "live").stderr == ""


def test_a_request_that_gets_no_answer_is_shown_all_the_same(project, toolcrib):
    project()
    result = toolcrib("call", "send", "text=x", "-v")
    assert result.exit_code == exit_codes.OF_OUTCOME["transport_error"]
    assert "> POST /send HTTP/1.1" in result.stderr
    assert "\n< " not in result.stderr


def test_an_answer_can_not_steer_the_terminal(project, toolcrib, on_terminal):
    answer = answering(200, {"Content-Type": "text/plain", "X-A": "\x85b"}, b"\x1b[31mred\nok")
    with answered_by(answer) as server:
        project(server.port)
        result = toolcrib("call", "forecast", "city=Oslo", "--mode", "live", "-v")
    assert "\x1b" not in result.stderr
    assert "\x85" not in result.stderr


def test_the_mock_of_a_tool_has_nothing_to_show(project, toolcrib):
    project()
    result = toolcrib("call", "forecast", "city=Oslo", "-v")
    assert (result.stdout, result.stderr) == ("sunny\n", "")


@pytest.mark.parametrize(
    "words", [["--dry-run"], ["--dry-run", "--json"], ["--explain"], ["-v"], ["-v", "--json"]]
)
def test_no_secret_is_in_anything_that_is_printed(words, project, toolcrib):
    echo = json.dumps({"told": TOKEN}).encode()
    answer = answering(401, {"Content-Type": "application/json", "Set-Cookie": f"s={TOKEN}"}, echo)
    with answered_by(answer) as server:
        project(server.port)
        result = toolcrib("call", "forecast", "city=Oslo", "pin=4711-0815", "--mode", "live", *words)
        assert all(head.header("authorization") == f"Bearer {TOKEN}" for head in server.requests)
    for secret in (TOKEN, TOKEN.replace("/", "%2F"), "4711-0815"):
        assert secret not in result.stdout + result.stderr
