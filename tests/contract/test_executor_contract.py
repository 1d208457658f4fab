"""The contract of executors, fed with the modes of toolcrib and with a mode of somebody else."""

from __future__ import annotations

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from a2a_agents import agent_in_a_thread, echoes
from exec_tools import NEEDS_BUBBLEWRAP
from mcp_scripts import scripted
from toolcrib import Executors
from toolcrib.core.server_config import Server
from toolcrib.executors.a2a import A2aExecutor
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.exec import ExecExecutor
from toolcrib.executors.live import LiveExecutor
from toolcrib.executors.mcp import McpExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.executors.python import PythonExecutor
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.testing import ExecutorCase, ExecutorContract

ANYTHING = {"city": "Oslo", "nested": {"list": [1, {"a": None}]}, "big": 2**70}

FORECAST = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "celsius": {"type": "integer"}},
    "required": ["city", "celsius"],
}


class MockContract(ExecutorContract):
    """The contract of mode `mock`."""

    def executor(self):
        return MockExecutor()


class TestMockThatAnswersAFixedResult(MockContract):
    case = ExecutorCase(
        mode="mock",
        block={"result": {"city": "Oslo", "celsius": 3}},
        arguments=ANYTHING,
        value={"city": "Oslo", "celsius": 3},
        output_schema=FORECAST,
        broken_blocks=[
            {},
            {"resutl": 1},
            {"result": {"city": 1, "celsius": 3}},
            {"result": {"city": "{{ nope }}", "celsius": 3}},
            {"result_file": "nowhere.json"},
        ],
    )


class TestMockThatEchoesItsArguments(MockContract):
    case = ExecutorCase(mode="mock", block={"result": "{{ args }}"}, arguments=ANYTHING, value=ANYTHING)


class TestMockWithRules(MockContract):
    case = ExecutorCase(
        mode="mock",
        block={
            "rules": [
                {"when": {"args": {"city": "Rome"}}, "reply": {"error": "no"}},
                {
                    "when": {"call": 1},
                    "reply": {"result": {"seen": ["{{ args.city }}", {"n": "{{ call }}"}]}},
                },
            ]
        },
        arguments=ANYTHING,
        value={"seen": ["Oslo", {"n": 1}]},
        broken_blocks=[
            {"rules": []},
            {"rules": [{"when": {"args": {"$nope": 1}}, "reply": {"result": 1}}]},
            {"rules": [{"when": {"if": "args.city"}, "reply": {"result": 1}}]},
            {"rules": [{"reply": {"result": 1}}, {"reply": {"result": 2}}]},
        ],
    )


class TestMockThatTakesItsTime(MockContract):
    case = ExecutorCase(
        mode="mock",
        block={
            "sequence": [{"result": [1], "latency": "5ms", "progress": [{"progress": 1}]}, {"error": "late"}]
        },
        arguments={},
        value=[1],
        broken_blocks=[
            {"result": 1, "latency": "soon"},
            {"sequence": [{"result": 1}], "after_last": "never"},
        ],
    )


class TestMockThatGenerates(MockContract):
    case = ExecutorCase(
        mode="mock",
        block={"generate": {"overlay": {"city": "{{ args.city }}", "celsius": 7}}},
        arguments=ANYTHING,
        value={"city": "Oslo", "celsius": 7},
        output_schema={**FORECAST, "additionalProperties": False},
        broken_blocks=[{"generate": False}, {"generate": {"overlay": []}}],
    )


class TestMockThatFillsATemplate(MockContract):
    case = ExecutorCase(
        mode="mock",
        block={"template": '{"city": {{ args.city | tojson }}}', "content": [{"type": "text", "text": "Hi"}]},
        arguments=ANYTHING,
        value={"city": "Oslo"},
        broken_blocks=[{"template": "{% include 'x' %}"}, {"template": "x", "content": [{"type": "text"}]}],
    )


LOCATED = {"city": "Oslo", "celsius": 3}


async def locate(_call):
    return LOCATED


async def echo(call):
    await call.context.session.clock.sleep(0)
    return call.arguments


class ExecContract(ExecutorContract):
    """The contract of mode `exec`."""

    def executor(self):
        return ExecExecutor()


class TestExecThatRunsAProgramForEachCall(ExecContract):
    case = ExecutorCase(
        mode="exec",
        block={"command": ["cat"], "wire": "json"},
        arguments=ANYTHING,
        value=ANYTHING,
        broken_blocks=[
            {},
            {"command": []},
            {"command": {"cat": []}},
            {"command": ["{{ args.program }}"]},
            {"command": ["cat"], "wire": "xml"},
            {"command": ["cat"], "environment": {}},
        ],
        options={"sandbox": "none"},
    )


class TestExecThatKeepsAProgramRunning(ExecContract):
    case = ExecutorCase(
        mode="exec",
        block={"command": ["cat"], "wire": "json", "lifetime": "runtime"},
        arguments=ANYTHING,
        value=ANYTHING,
        broken_blocks=[{"command": ["cat"], "lifetime": "runtime"}],
        options={"sandbox": "none"},
    )


@NEEDS_BUBBLEWRAP
class TestExecInASandbox(ExecContract):
    case = ExecutorCase(
        mode="exec",
        block={"command": ["cat"], "wire": "json", "lifetime": "runtime"},
        arguments=ANYTHING,
        value=ANYTHING,
    )


class TestClientThatAnswersTheSameEachTime(ExecutorContract):
    """The contract of mode `client`."""

    case = ExecutorCase(
        mode="client",
        block={"consent": {"required": True}, "timeout": "2m", "categories": ["location"]},
        arguments=ANYTHING,
        value=dict(LOCATED),
        output_schema=FORECAST,
        broken_blocks=[
            {"timeout": "25h"},
            {"consent": {"decline_strategy": "ask"}},
            {"fallback": LOCATED},
            {"consent": {"decline_strategy": "fallback"}, "fallback": {"city": 1}},
            {"catgories": []},
        ],
        options={"client": locate},
    )

    def executor(self):
        return ClientExecutor()


class TestClientThatEchoesItsArguments(TestClientThatAnswersTheSameEachTime):
    case = ExecutorCase(mode="client", block={}, arguments=ANYTHING, value=ANYTHING, options={"client": echo})


class TestPythonFunction(ExecutorContract):
    """The contract of mode `python`, over functions of the standard library."""

    case = ExecutorCase(
        mode="python",
        block={"call": "textwrap:shorten"},
        arguments={"text": "a long text", "width": 6},
        value="[...]",
        output_schema={"type": "string"},
        broken_blocks=[
            {},
            {"call": "textwrap"},
            {"call": "textwrap:shorten", "worker": "fork"},
            {"call": "textwrap:shorten", "confg": {}},
        ],
    )

    def executor(self):
        return PythonExecutor()


class TestPythonFunctionInTheLoop(TestPythonFunction):
    case = ExecutorCase(
        mode="python",
        block={"call": "copy:deepcopy", "worker": "inline"},
        arguments={"x": {"city": "Oslo", "list": [1, {"a": None}]}},
        value={"city": "Oslo", "list": [1, {"a": None}]},
        broken_blocks=[{"call": "copy:"}],
    )


class Echo(BaseHTTPRequestHandler):
    """Answers with the body that was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_said):
        pass


@pytest.fixture(scope="module")
def echo_server():
    """A server in a thread of its own, for calls from any event loop."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


class TestMcpOverStdio(ExecutorContract):
    """The contract of mode `mcp`, over a process."""

    case = ExecutorCase(
        mode="mcp",
        block={"server": "scripted", "tool": "echo", "args": {"city": "{{ args.city }}", "celsius": 3}},
        arguments={"city": "Oslo"},
        value={"city": "Oslo", "celsius": 3},
        input_schema={"type": "object", "properties": {"city": {}}, "additionalProperties": False},
        output_schema=FORECAST,
        broken_blocks=[
            {"server": 7},
            {"server": "scripted", "tol": "echo"},
            {"server": "scripted", "args": {"city": "{{ args.ctiy }}"}},
            {"server": "scripted", "args": {"city": "{{ args.city"}},
        ],
        options={"servers": {"scripted": scripted(era="handshake")}},
    )

    def executor(self):
        executor = McpExecutor()
        executor.world = NetworkEnvironment.ordinary()._replace(servers=self.case.options["servers"])
        return executor


class TestA2a(ExecutorContract):
    """The contract of mode `a2a`, with an agent of the official SDK."""

    case = ExecutorCase(
        mode="a2a",
        block={"agent": "echo", "tool": "note"},
        arguments=ANYTHING,
        value=ANYTHING,
        broken_blocks=[{}, {"agent": 7}, {"agent": "echo", "tol": "note"}],
    )

    @pytest.fixture(autouse=True)
    def _agent(self):
        with agent_in_a_thread(echoes) as agent:
            server = Server("echo", transport="a2a", url=agent.base, root=".")
            self.case = replace(self.case, options={"servers": {"echo": server}})
            yield

    def executor(self):
        executor = A2aExecutor()
        executor.world = NetworkEnvironment.ordinary()._replace(servers=self.case.options["servers"])
        return executor


class TestLive(ExecutorContract):
    """The contract of mode `live`."""

    case = ExecutorCase(
        mode="live",
        block={"method": "POST", "url": "https://api.example.com/echo", "body": {"from": "args"}},
        arguments={"city": "Oslo", "nested": {"list": [1, {"a": None}]}},
        value={"city": "Oslo", "nested": {"list": [1, {"a": None}]}},
        broken_blocks=[
            {},
            {"url": "https://{{ args.host }}/x"},
            {"url": "ftp://api.example.com/x"},
            {"url": "https://api.example.com/x", "headers": {"Host": "evil.example"}},
            {"url": "https://api.example.com/x", "body": {"json": {}}},
            {"url": "https://api.example.com/x", "select": "body["},
            {"url": "https://api.example.com/x", "auth": {"type": "apiKey"}},
            {"url": "https://api.example.com/x", "query": {"a": "${"}},
        ],
    )

    @pytest.fixture(autouse=True)
    def _server(self, echo_server):
        here = f"127.0.0.1:{echo_server}"
        reach = {"egress": [here], "origins": {"https://api.example.com": f"http://{here}"}}
        self.case = replace(self.case, options=reach)

    def executor(self):
        return LiveExecutor()


@pytest.mark.usefixtures("echo_installed")
class TestAModeOfSomebodyElse(ExecutorContract):
    case = ExecutorCase(
        mode="echo",
        block={"prefix": "> "},
        arguments={"text": "hi"},
        value="> hi",
        output_schema={"type": "string"},
        broken_blocks=[
            {},
            {"prefix": 1},
            {"prefix": "too long"},
            {"prefix": "> ", "suffix": ""},
            {"prefix": " "},
        ],
    )

    def executor(self):
        found = Executors.installed().get("echo")
        assert found is not None
        return found
