"""Allow-lists of `access`: hosts, programs, variables and paths, also where a connection or a file is opened."""

from __future__ import annotations

import sys

import pytest

from http_servers import answering, answering_json, serving
from sampling import sample
from toolcrib import Outcome, Runtime
from toolcrib.security.access import AccessViolation

DENIED = Outcome.DENIED


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(project, tools, **files):
        (tmp_path / "toolcrib.yaml").write_text(f"project: p\nsources: [tools.yaml]\n{project}")
        for name, text in {"tools.yaml": tools, **files}.items():
            (tmp_path / name).write_text(text)
        return Runtime.open("toolcrib.yaml", index=False)

    return write


def live(url, more=""):
    return f"name: tool\nmode: live\nlive:\n  url: {url}\n{more}"


async def test_a_host_that_is_not_listed_is_denied_before_anything_is_sent(folder):
    async with serving(answering_json(1)) as server:
        egress = f"egress: {{allow: ['127.0.0.1:{server.port}']}}\n"
        tools = live(f"{server.origin}/a")
        async with folder(f"{egress}access: {{hosts: [api.example.com]}}\n", tools) as runtime:
            result = await runtime.call("tool")
            assert (result.outcome, result.error.code) == (DENIED, "host_not_allowed")
            assert f"it contacts `{server.origin}`, which `hosts` does not list" in result.message
            assert (server.accepted, runtime.violations.total) == (0, 1)
            assert runtime.registry.hidden("tool").code == "denied"
        async with folder(f"{egress}access: {{hosts: ['127.0.0.1:{server.port}']}}\n", tools) as runtime:
            assert (await runtime.call("tool")).value == 1


async def test_the_origin_that_is_called_instead_counts(folder):
    async with serving(answering_json(1)) as server:
        project = (
            f"egress: {{allow: ['127.0.0.1:{server.port}']}}\n"
            f"origins: {{'https://api.example.com': '{server.origin}'}}\n"
        )
        tools = live("https://api.example.com/a")
        async with folder(f"{project}access: {{hosts: [api.example.com]}}\n", tools) as runtime:
            assert (await runtime.call("tool")).error.code == "host_not_allowed"
        async with folder(f"{project}access: {{hosts: [127.0.0.1]}}\n", tools) as runtime:
            assert (await runtime.call("tool")).value == 1


async def test_a_redirect_does_not_leave_the_listed_hosts(folder):
    async with serving(answering_json(1)) as target:
        moved = answering(302, {"Location": f"http://localhost:{target.port}/b"})
        async with serving(moved) as server:
            allow = f"['127.0.0.1:{server.port}', '127.0.0.1:{target.port}', 'localhost:{target.port}']"
            project = f"egress: {{allow: {allow}}}\naccess: {{hosts: [127.0.0.1]}}\n"
            more = "  redirects: 1\n  hosts: [127.0.0.1, localhost]\n"
            async with folder(project, live(f"{server.origin}/a", more)) as runtime:
                result = await runtime.call("tool")
                assert (result.outcome, result.error.code) == (DENIED, "host_not_allowed")
                assert (server.accepted, target.accepted) == (1, 0)
                (violation,) = runtime.violations
                assert (violation.decision.code, violation.decision.place) == (
                    "host_not_allowed",
                    "toolcrib.yaml:4",
                )
            async with folder(
                project.replace("{hosts", "{audit: true, hosts"), live(f"{server.origin}/a", more)
            ) as runtime:
                assert [(await runtime.call("tool")).value for _ in range(2)] == [1, 1]
                # The second call uses the open connection of the first one, and is recorded, too.
                assert [(each.audit, each.decision) for each in runtime.violations] == [
                    (True, violation.decision)
                ] * 2


async def test_audit_mode_records_a_call_once_that_its_address_and_its_connection_refuse(folder):
    async with serving(answering_json(1)) as server:
        project = (
            f"egress: {{allow: ['127.0.0.1:{server.port}']}}\naccess: {{audit: true, hosts: [example.com]}}\n"
        )
        async with folder(project, live(f"{server.origin}/a")) as runtime:
            assert (await runtime.call("tool")).value == 1
            assert [each.audit for each in runtime.violations] == [True]


FETCHER = """
from toolcrib import CallContext
from toolcrib.security.egress import EgressRefused


async def fetch(url: str, context: CallContext) -> str:
    try:
        for _ in range(2):
            text = (await context.http.get(url)).text
        return text
    except EgressRefused:
        return "refused"


def fetch_sync(url: str, context: CallContext) -> str:
    try:
        return context.http_sync.get(url).text
    except EgressRefused:
        return "refused"
"""


@pytest.mark.parametrize("function", ["fetch", "fetch_sync"])
@pytest.mark.parametrize("audit", [False, True])
async def test_a_host_that_the_code_of_a_tool_contacts_is_decided_and_recorded(
    folder, tmp_path, monkeypatch, function, audit
):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"access_fetcher_{function}_{audit}"
    tools = f"name: tool\npython: {{call: '{module}:{function}'}}\n"
    async with serving(answering_json(1)) as server:
        project = (
            f"egress: {{allow: ['127.0.0.1:{server.port}']}}\n"
            f"access: {{audit: {str(audit).lower()}, hosts: [api.example.com]}}\n"
        )
        async with folder(project, tools, **{f"{module}.py": FETCHER}) as runtime:
            result = await runtime.call("tool", {"url": f"{server.origin}/a"})
            assert result.value == ("1" if audit else "refused")
            (violation,) = runtime.violations
            assert (violation.decision.rule, violation.audit) == ("`hosts`", audit)
            assert f"`127.0.0.1:{server.port}` is not among the hosts" in violation.decision.reason


SERVER = """
import pathlib
pathlib.Path("started").touch()
"""


async def test_a_program_that_is_not_listed_is_not_started(folder, tmp_path):
    project = (
        f"servers: {{s: {{command: {sys.executable}, args: [server.py], import: true}}}}\n"
        "access: {commands: [uvx]}\n"
    )
    tools = "name: tool\ninput_schema: {type: object}\nmcp: {server: s, tool: t}\n"
    async with folder(project, tools, **{"server.py": SERVER}) as runtime:
        problems = await runtime.discover("s")
        assert (problems[0].code, "which `commands` does not list" in str(problems[0])) == (
            "command_not_allowed",
            True,
        )
        result = await runtime.call("tool")
        assert result.outcome is DENIED
        assert not (tmp_path / "started").exists()


async def test_a_variable_that_is_not_listed_is_not_read(folder, monkeypatch):
    monkeypatch.setenv("CRM_TOKEN", "canary-token")
    tools = live("https://api.example.com/a", "  headers: {X-Token: '${CRM_TOKEN}'}\n")
    async with folder("access: {environment: ['SHOP_*']}\n", tools) as runtime:
        result = await runtime.call("tool")
        assert (result.outcome, result.error.code) == (DENIED, "environment_not_allowed")
        assert "it reads `CRM_TOKEN`, which `environment` does not list" in result.message
        assert "canary-token" not in str(result.as_json())


PATHS = """
name: tool
input_schema:
  type: object
  properties: {source: {type: string, x-path: read}, targets: {type: array, items: {type: string, x-path: write}}}
mock: {result: 1}
"""


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"source": "data/a.txt"}, ""),
        (
            {"source": "data/../secret.txt"},
            "`source` is refused: it is in none of the folders of `paths.read`",
        ),
        ({"source": "data/link"}, "`source` is refused: it leads to "),
        ({"source": "data-2/a.txt"}, "`source` is refused: "),
        ({"targets": ["out/a", "data/a.txt"]}, "`targets[]` is refused: "),
        ({"targets": ["out/a"]}, ""),
    ],
)
async def test_an_argument_that_leads_out_of_its_folders_is_denied(folder, tmp_path, arguments, refused):
    for name in ("data", "data-2", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "secret.txt")
    async with folder("access: {paths: {read: [data], write: [out]}}\n", PATHS) as runtime:
        result = await runtime.call("tool", arguments)
        assert result.outcome is (DENIED if refused else Outcome.OK)
        assert refused in result.message
        assert [card.name for card in runtime.registry.query()] == ["tool"]


READER = """
import os
from toolcrib import CallContext


def read(source: str, context: CallContext) -> str:
    os.replace("swapped", "data/a.txt")  # a link, put in place after the check
    with os.fdopen(context.session.paths.open(source, "read")) as file:
        return file.read()
"""


async def test_a_file_is_checked_again_when_a_tool_opens_it(folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("canary-secret")
    (tmp_path / "swapped").symlink_to(tmp_path / "secret.txt")
    tools = (
        "name: tool\ninput_schema: {type: object, properties: {source: {type: string, x-path: read}}, required: [source]}\n"
        "python: {call: 'access_reader:read'}\n"
    )
    project = "access: {paths: {read: [data]}}\n"
    async with folder(project, tools, **{"access_reader.py": READER}) as runtime:
        result = await runtime.call("tool", {"source": "data/a.txt"})
        assert (result.outcome, result.error.code) == (DENIED, "path_not_allowed")
        assert "canary-secret" not in str(result.as_json())


OPENER = """
import os
from toolcrib import CallContext


def opened(name: str, handled: bool, context: CallContext) -> str:
    try:
        with os.fdopen(context.session.paths.open(name, "read")) as file:
            return file.read()
    except PermissionError:
        if handled:
            return "nothing"
        raise


async def opened_async(name: str, handled: bool, context: CallContext) -> str:
    return opened(name, handled, context)
"""


@pytest.mark.parametrize(
    "block",
    sample(["", "worker: process"], one_in=3),
    ids=sample(["in this process", "in a worker"], one_in=3),
)
@pytest.mark.parametrize("function", ["opened", "opened_async"])
@pytest.mark.parametrize("audit", [False, True])
async def test_a_file_that_the_code_of_a_tool_opens_is_decided_and_recorded(
    folder, tmp_path, monkeypatch, function, audit, block
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    # The name of the file is no argument with `x-path`, so only the code knows that it is a file.
    module = f"access_opener_{function}_{audit}"
    tools = f"name: tool\npython: {{call: '{module}:{function}', {block}}}\n"
    # What a sandbox hides is refused, too, but only its own program knows what it looked for.
    project = f"sandbox: none\naccess: {{audit: {str(audit).lower()}, paths: {{read: [data]}}}}\n"
    seen = []
    async with folder(project, tools, **{f"{module}.py": OPENER}) as runtime:
        runtime.observe(seen.append)
        assert (await runtime.call("tool", {"name": "data/a.txt", "handled": False})).value == "inside"
        assert runtime.violations.total == 0
        refused = await runtime.call("tool", {"name": "b.txt", "handled": False})
        handled = await runtime.call("tool", {"name": "b.txt", "handled": True})
        if audit:
            assert (refused.value, handled.value) == ("outside", "outside")
        else:
            assert (refused.outcome, refused.error.code) == (DENIED, "path_not_allowed")
            assert "`b.txt` may not be opened to read: it is in none of the folders" in refused.message
            assert handled.value == "nothing"
        first, second = runtime.violations
        assert (first.decision.rule, first.decision.place) == ("`paths.read`", "toolcrib.yaml:4")
        assert (first.decision.code, first.audit) == ("path_not_allowed", audit)
        assert first.arguments_sha256 != second.arguments_sha256
        assert [each for each in seen if isinstance(each, AccessViolation)] == [first, second]
