"""Versions of other packages that lack what serving needs: what is lost is said, and what would not be safe is refused.

`sitecustomize` of each server takes a member away before toolcrib is imported.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

import commands
from sampling import sample
from serving_mcp import BASICS, ERAS, client, command, process, quiet_sdk, serve, stdio, texts, write
from toolcrib.core.dependencies import MissingMember, missing_import
from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.http_common.http_server import check_uvicorn
from toolcrib.serve.mcp.sdk_connection import check_connections, missing_connection

pytestmark = [quiet_sdk]

UVICORN = importlib.metadata.version("uvicorn")
MCP = importlib.metadata.version("mcp")

NO_TIMER = """
import uvicorn.protocols.http.httptools_impl as module

made = module.HttpToolsProtocol.__init__

def renamed(self, *given, **named):
    made(self, *given, **named)
    del self.timeout_keep_alive_task

module.HttpToolsProtocol.__init__ = renamed
module.HttpToolsProtocol._unset_keepalive_if_required = lambda self: None
"""

NO_CONNECTION = """
import mcp.server.session as module

made = module.ServerSession.__init__

def renamed(self, request_outbound, connection, **named):
    made(self, request_outbound, connection, **named)
    self.connected = self.__dict__.pop("_connection")

module.ServerSession.__init__ = renamed
module.ServerSession.client_capabilities = property(lambda self: self.connected.client_capabilities)
"""


@pytest.fixture(autouse=True)
def _begins_by_itself(monkeypatch):
    """A command that is forked has imported everything, and reads no `sitecustomize`."""
    monkeypatch.setattr(commands, "TOOLCRIB", [sys.executable, "-m", "toolcrib"])


def without(folder, text):
    """The environment in which a program begins with this code."""
    site = write(folder / "site", text, "sitecustomize.py")
    return {"PYTHONPATH": str(site)}


def refused(folder, env, *words):
    """What a server says that does not start."""
    done = subprocess.run(
        command(write(folder / "tools", BASICS), *words),
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


async def test_where_the_time_of_clients_can_not_be_limited_loopback_is_served_and_it_is_said(tmp_path):
    env = without(tmp_path, NO_TIMER)
    async with serve(write(tmp_path / "tools", BASICS), env=env) as served:
        line = await served.until_said("warning")
        assert line.startswith(
            "toolcrib: warning: the time that clients take for a request is not limited, because "
            f"uvicorn {UVICORN} has no `HttpToolsProtocol.timeout_keep_alive_task`; run `pip install 'uvicorn"
        )
        for era in ERAS:
            async with client(served.url, era) as one:
                assert texts(await one.call_tool("echo", {"text": era})) == [era]
        assert await served.end() == 0
        assert not any("Traceback" in each for each in served.said)


def test_where_the_time_of_clients_can_not_be_limited_other_machines_are_not_served(tmp_path):
    env = without(tmp_path, NO_TIMER) | {"TOKEN": "a-token-of-more-than-sixteen-characters"}
    options = ["--transport", "http", "--host", "0.0.0.0", "--port", "0", "--token-env", "TOKEN"]
    said = refused(tmp_path, env, *options)
    assert (
        "cannot limit the time of clients, and other machines can reach this address: "
        f"uvicorn {UVICORN} has no `HttpToolsProtocol.timeout_keep_alive_task`"
    ) in said
    assert ", or serve on 127.0.0.1" in said


TRIED = """
import asyncio
import sys
from contextlib import contextmanager
from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.http_common import http_server
from toolcrib.serve.http_common.http_server import check_uvicorn
from uvicorn import Server


@contextmanager
def instead(owner, name, *value):
    kept = getattr(owner, name)
    setattr(owner, name, *value) if value else delattr(owner, name)
    yield
    setattr(owner, name, kept)


async def startup(self):
    pass


class Protocol(http_server.HttpToolsProtocol):
    def __init__(self, config, state):
        pass


class Untimed(http_server.HttpToolsProtocol):
    def __init__(self, config, server_state, app_state):
        super().__init__(config, server_state, app_state)
        del self.pipeline


def stateless(self, config):
    self.config = config


for change in (
    (Server, "startup"),
    (Server, "startup", startup),
    (Server, "capture_signals"),
    (Server, "__init__", stateless),
    (http_server, "HttpToolsProtocol", Protocol),
    (http_server.HttpToolsProtocol, "on_response_complete"),
    (http_server, "HttpToolsProtocol", Untimed),
):
    with instead(*change):
        try:
            print(asyncio.run(check_uvicorn()).member, "without limits")
        except ConfigurationError as error:
            print(error.code, error.message, error.hint, sep="; ")
"""


def test_a_uvicorn_that_can_not_be_used_is_refused_with_what_it_lacks(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TRIED], capture_output=True, text=True, timeout=120, check=True
    )
    *refusals, degraded = done.stdout.splitlines()
    assert degraded == "HttpToolsProtocol.pipeline without limits"
    lacking = f"unsupported_version; cannot serve over HTTP: uvicorn {UVICORN} has no"
    assert [said.rpartition("; ")[0] for said in refusals] == [
        f"{lacking} `Server.startup`",
        f"{lacking} `Server.startup(sockets=...)`",
        f"{lacking} `Server.capture_signals`",
        f"{lacking} `Server.server_state`",
        f"{lacking} `HttpToolsProtocol(server_state=...)`",
        f"{lacking} `HttpToolsProtocol.on_response_complete`",
    ]


@pytest.mark.parametrize(
    ("text", "member"),
    sample(
        [
            (
                "import uvicorn.protocols.http.httptools_impl as module\ndel module.HttpToolsProtocol",
                "cannot serve over MCP: uvicorn {} has no `protocols.http.httptools_impl.HttpToolsProtocol`",
            ),
            (
                "import sys\nsys.modules['uvicorn.protocols.http.httptools_impl'] = None",
                "cannot serve over MCP: uvicorn {} has no `protocols.http.httptools_impl`",
            ),
        ],
        one_in=2,
    ),
)
def test_a_uvicorn_without_its_protocol_is_refused(tmp_path, text, member):
    said = refused(tmp_path, without(tmp_path, text), "--transport", "http", "--port", "0")
    assert member.format(UVICORN) in said
    assert "pip install 'uvicorn" in said


def test_where_the_sdk_hides_connections_no_two_clients_are_served_over_http(tmp_path):
    said = refused(tmp_path, without(tmp_path, NO_CONNECTION), "--transport", "http", "--port", "0")
    assert (
        f"cannot keep the sessions of clients apart over HTTP: mcp {MCP} has no `ServerSession._connection`"
    ) in said
    assert "pip install 'mcp>=" in said


@pytest.mark.exhaustive
async def test_where_the_sdk_hides_connections_the_client_of_stdio_is_served_and_what_it_misses_is_said(
    tmp_path,
):
    env = without(tmp_path, NO_CONNECTION)
    tools = write(tmp_path / "tools", BASICS)
    async with client(stdio(tools, env=env), "legacy") as one:
        assert texts(await one.call_tool("echo", {"text": "a"})) == ["a"]
    async with process(tools, env=env) as served:
        line = await served.until_said("warning")
        assert line.startswith(
            "toolcrib: warning: clients with a revision before 2026-07-28 are not notified when the list of tools "
            f"changes, because mcp {MCP} has no `ServerSession._connection`; run `pip install 'mcp>="
        )


@pytest.mark.exhaustive
async def test_an_sdk_that_chooses_the_form_of_answers_once_is_served_by_event_streams(tmp_path):
    text = """
import mcp.server.streamable_http_manager as module

made = module.StreamableHTTPSessionManager.__init__

def once(self, *given, json_response=False, **named):
    made(self, *given, json_response=bool(json_response), **named)

module.StreamableHTTPSessionManager.__init__ = once
"""
    async with serve(write(tmp_path / "tools", BASICS), env=without(tmp_path, text)) as served:
        line = await served.until_said("warning")
        assert line == (
            "toolcrib: warning: all calls are answered by event streams, which are slower, because "
            f"mcp {MCP} has no `StreamableHTTPSessionManager.json_response`\n"
        )
        async with client(served.url, "legacy") as one:
            for _ in range(2):
                assert texts(await one.call_tool("echo", {"text": "a"})) == ["a"]


@pytest.mark.exhaustive
async def test_an_sdk_whose_runner_is_made_differently_answers_through_its_transport(tmp_path):
    text = """
import mcp.server.runner as module

made = module.ServerRunner.__init__

def renamed(self, server, connection, state, **named):
    made(self, server, connection, state, **named)

module.ServerRunner.__init__ = renamed
"""
    async with serve(write(tmp_path / "tools", BASICS), env=without(tmp_path, text)) as served:
        line = await served.until_said("warning")
        assert line == (
            "toolcrib: warning: calls in sessions with a handshake are slower, because "
            f"mcp {MCP} has no `ServerRunner(server=, connection=, lifespan_state=)`\n"
        )
        async with client(served.url, "legacy") as one:
            for _ in range(2):
                assert texts(await one.call_tool("echo", {"text": "a"})) == ["a"]


@pytest.mark.exhaustive
def test_an_sdk_without_a_name_that_is_imported_is_refused_with_that_name(tmp_path):
    text = "import mcp.server.subscriptions as module\ndel module.ListenHandler"
    said = refused(tmp_path, without(tmp_path, text))
    assert f"cannot serve over MCP: mcp {MCP} has no `server.subscriptions.ListenHandler`" in said
    assert "pip install 'mcp>=" in said


def test_the_hint_names_the_versions_that_toolcrib_requires():
    lack = MissingMember("mcp", "x")
    required = next(each for each in importlib.metadata.requires("toolcrib") if each.startswith("mcp"))
    bounds = required.partition(";")[0].removeprefix("mcp").split(",")
    assert lack.hint == f"pip install 'mcp{','.join(sorted(bounds, reverse=True))}'"
    assert MissingMember("anyio", "x").hint == "pip install 'anyio'"


@pytest.mark.parametrize("name", [None, "", "no_such_package", "no_such_package.part", "mcp"])
def test_a_whole_package_that_is_missing_lacks_no_member(name):
    assert missing_import(ImportError("why", name=name)) is None


async def test_the_installed_versions_lack_nothing():
    assert await check_uvicorn() is None
    assert missing_connection() is None


def test_what_is_refused_has_a_code():
    lack = MissingMember("mcp", "x")
    with pytest.raises(ConfigurationError) as caught:
        check_connections(lack)
    assert caught.value.code == "unsupported_version"
    assert str(caught.value).startswith(
        f"cannot keep the sessions of clients apart over HTTP: mcp {MCP} has no `x`\n    hint: pip install 'mcp>="
    )
    check_connections(None)
