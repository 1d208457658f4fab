"""`toolcrib serve acp` as a process, driven by the client of the official TypeScript SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from acp_editors import TYPESCRIPT_SDK
from commands import toolcrib_command
from npm_packages import NODE, installed
from toolcrib.serve.acp.recordings import Recording

EDITOR = Path(__file__).parents[1] / "acp_editor.mjs"
PACK = Path(__file__).parents[2] / "packs" / "acp-client"

REFUND = """
name: refund_order
title: Refund an order
input_schema: {type: object, properties: {id: {type: string}}}
requires_confirmation: true
mock: {result: refunded}
"""

SCRIPT = """
scenario: refunds
agent:
  turns:
    - user: Refund it.
      script:
        - {call: mcp__acp__Read, args: {file_path: notes.txt}}
        - {call: refund_order, args: {id: "7"}}
        - {say: "I read {{ results.mcp__acp__Read }}; it is {{ results.refund_order }}."}
"""


def test_the_typescript_client_has_a_turn_with_files_and_questions(tmp_path):
    (tmp_path / "refund.tool.yaml").write_text(REFUND)
    (tmp_path / "refunds.scenario.yaml").write_text(SCRIPT)
    agent = [
        "serve",
        "acp",
        str(tmp_path),
        "--pack",
        str(PACK),
        "--provider",
        "scripted",
        "--script",
        "refunds",
        "--record",
        str(tmp_path / "recording.jsonl"),
    ]
    with installed(*TYPESCRIPT_SDK) as sdk:
        done = subprocess.run(
            [
                NODE / "bin" / "node",
                EDITOR,
                sdk / "dist" / "v1" / "stable" / "acp.js",
                "Refund it.",
                *(sys.executable, "-m", "toolcrib", *agent, "--no-index"),
            ],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=tmp_path,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["initialized"]["protocolVersion"] == 1
    assert seen["session"]["_meta"]["toolcrib"]["replaced"] == {"Read": "mcp__acp__Read"}
    assert seen["ended"]["stopReason"] == "end_turn"
    assert seen["refused"] == -32002
    assert [kinds for _call, kinds in seen["questions"]] == [
        ["allow_once", "allow_always", "allow_always", "reject_once", "reject_always"]
    ]
    text = [
        each["content"]["text"] for each in seen["updates"] if each["sessionUpdate"] == "agent_message_chunk"
    ]
    assert "".join(text) == "I read text of /project/notes.txt; it is refunded."
    assert [each["status"] for each in seen["updates"] if "status" in each] == [
        *("pending", "in_progress", "completed"),
        *("pending", "in_progress", "completed"),
    ]
    # The recording has the updates that the client has seen, and the doctor finds nothing wrong but the refused prompt.
    recording = Recording(tmp_path / "recording.jsonl")
    sent = [each.message for each in recording if each.sender == "agent"]
    assert [each["params"]["update"] for each in sent if each.get("method") == "session/update"] == seen[
        "updates"
    ]
    done = subprocess.run(
        toolcrib_command("doctor", "--acp", tmp_path / "recording.jsonl", "--json"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    told = json.loads(done.stdout)
    assert [(each["code"], each.get("session", "")) for each in told["findings"]] == [
        ("unknown_session", ""),
        ("prompt_failed", "nobody"),
    ]
    (session, _nobody) = told["sessions"]
    assert session["tools"] == ["mcp__acp__Read", "refund_order"]
    assert session["missing"]["mcp__acp__Bash"].startswith("`mcp__acp__Bash` needs `client.terminal`")
    assert session["calls"] == {"completed": 2}
    assert (session["turns"], told["ended"]) == (["end_turn"], "the editor disconnected")
