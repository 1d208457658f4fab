"""Output that can't be written: one line on stderr, an exit code of its own, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chatting import install
from commands import toolcrib_command
from mcp_listing import listing
from sampling import sample
from toolcrib.cli import exit_codes
from toolcrib.cli.chat import OF_STOP
from toolcrib.cli.entry import VERBS
from toolcrib.provider import Stop

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")

NO_SPACE = "cannot write the output: No space left on device\n"
MAIN = "from toolcrib.cli import main; main()"

FILES = {
    "toolcrib.yaml": "project: shop\nsources: [tools, pack]\n",
    "tools/echo.tool.yaml": "name: echo\ndescription: Repeats.\nexamples: [{args: {}, result: hi}]\nmock: {result: hi}\n",
    "pack/pack.yaml": "name: desk\nversion: 1.0.0\n",
    "pack/wave.tool.yaml": "name: wave\ndescription: Waves.\nmock: {result: hi}\n",
    "pack/talk.scenario.yaml": (
        "scenario: talk\nagent:\n  turns:\n    - user: Hello\n      script: [{call: wave}, {say: Hi.}]\n"
    ),
    "day.jsonl": json.dumps(
        {"task": "one", "calls": [{"tool": "echo", "arguments": {}, "result": "bye"}], "changed_rows": {}}
    ),
}

COMMANDS = (
    "--help",
    "--version",
    "init fresh",
    "new tool fresh",
    "new scenario fresh",
    "new pack fresh",
    "validate",
    "validate --json",
    "validate --deep",
    "validate --format github",
    "lint",
    "lint --format sarif",
    "list",
    "list --json",
    "list --no-index",
    "search echo",
    "search echo --json",
    "show echo",
    "show echo --json",
    "call echo",
    "call echo --json",
    "call echo --dry-run",
    "shell --help",
    "cost",
    "cost --json",
    "run",
    "run --json",
    "run -v",
    "run -j 2",
    "run --format github",
    "run --junit report.xml",
    "chat --provider scripted --script talk Hello",
    "replay --tasks day.jsonl",
    "replay --tasks day.jsonl --json",
    "lock --mcp servers.json",
    "lock --mcp servers.json --json",
    "diff .",
    "diff . --json",
    "import mcp calc --mcp servers.json --out imported",
    "export openapi pack",
    "export promptpack pack --out exported.json",
    "stubs",
    "stubs --out tools.py",
    "serve mcp --help",
    "serve a2a --help",
    "serve acp --help",
    "approvals list",
    "approvals list --json",
    "journal list",
    "journal list --json",
    "stats --help",
    "top --help",
    "cancel --help",
    "remote list --json",
    "agent run --help",
    "trust --dry-run",
    "trust --yes",
    "trust list",
    "trust list --json",
    "doctor",
    "doctor --json",
    "doctor echo",
    "pack build pack",
    "pack inspect pack",
    "pack verify pack",
    "pack verify pack --json",
    "pack diff pack",
    "pack diff pack --json",
    "schema",
    "schema pack",
    "completion bash",
    "completion zsh",
    "completion fish",
)


@pytest.fixture
def shop(write, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))
    folder = write(
        {**FILES, "offered.json": json.dumps([{"name": "add", "inputSchema": {"type": "object"}}])}
    )
    return write({"servers.json": json.dumps({"mcpServers": {"calc": listing(folder / "offered.json")}})})


def ended(*words, **options):
    """A real process that has ended, with its stderr as text; its stdin is empty."""
    given = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "timeout": 60, **options}
    more = given.pop("env", {})
    command = [sys.executable, "-c", MAIN, *words] if "PYTHONUNBUFFERED" in more else toolcrib_command(*words)
    return subprocess.run(command, env={**os.environ, **more}, check=False, **given)


def on_full_disk(*words, **options):
    with Path("/dev/full").open("wb") as full:
        return ended(*words, stdout=full, **options)


def test_every_verb_is_asked():
    assert {command.split()[0] for command in COMMANDS} - {"--help", "--version"} == set(VERBS)


@pytest.mark.parametrize("command", sample(COMMANDS, 12))
def test_a_full_disk_is_reported_in_one_line(command, shop):
    done = on_full_disk(*command.split())
    *remarks, last = done.stderr.splitlines(keepends=True)
    assert (done.returncode, last) == (exit_codes.OUTPUT_FAILED, NO_SPACE)
    assert len(remarks) == 2 * command.startswith("export promptpack"), "what a PromptPack has no place for"


@pytest.mark.parametrize(
    "options",
    sample([{"env": {"PYTHONUNBUFFERED": "1"}}, {"env": {"_TOOLCRIB_COMPLETE": "bash_source"}}], one_in=2),
)
def test_a_full_disk_is_reported_whatever_the_environment_says(options, shop):
    done = on_full_disk("list", **options)
    assert (done.returncode, done.stderr) == (exit_codes.OUTPUT_FAILED, NO_SPACE)


@pytest.fixture
def plugin(shop):
    """A provider of models that prints when it is closed; the answer is its file."""
    return install(shop / "plugins") / "echo_provider.py"


def test_what_a_plugin_prints_does_not_depend_on_stdout(plugin):
    text = plugin.read_text()
    text = text.replace("aclose(self):\n        pass", "aclose(self):\n        print('closed')")
    plugin.write_text(f"print('imported')\n{text}")
    # The turn fails, so that nothing but what the plugin prints could go to stdout.
    with Path("/dev/full").open("wb") as full:
        done = ended(
            "chat", "--provider", "echo", "fail", env={"PYTHONPATH": str(plugin.parent)}, stdout=full
        )
    assert done.returncode == OF_STOP[Stop.PROVIDER_FAILED]
    assert done.stderr.startswith("imported\n")
    assert done.stderr.endswith("not well\nclosed\n")


@pytest.mark.parametrize("command", sample(["list", "run", "call echo", "--help"], one_in=4))
def test_a_stdout_that_is_closed_is_reported(command, shop):
    words = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", MAIN, *command.split()]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        exit_codes.OUTPUT_FAILED,
        "cannot write the output: Bad file descriptor\n",
    )


@pytest.mark.parametrize(
    ("command", "code"), sample([("validate", 0), ("no_such_verb", 2), ("call no_such_tool", 13)])
)
def test_messages_that_can_not_be_written_change_nothing(command, code, shop):
    with Path("/dev/full").open("wb") as full:
        done = ended(*command.split(), stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == code
    assert ("no problems" in done.stdout) == (command == "validate")


@pytest.mark.parametrize(
    ("command", "said", "code"),
    [
        ("run --junit", "Could not open file 'full': No space left on device", exit_codes.PROBLEMS),
        ("pack build pack -o", "full cannot be written: No space left on device", exit_codes.PROBLEMS),
        (
            "export promptpack pack --force --out",
            "full cannot be written: No space left on device",
            exit_codes.PROBLEMS,
        ),
    ],
)
def test_a_file_that_can_not_be_written_is_named(command, said, code, shop):
    Path("full").symlink_to("/dev/full")
    done = ended(*command.split(), "full", stdout=subprocess.DEVNULL)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert Path("full").is_symlink()


def test_init_names_the_file_that_does_not_fit_on_the_disk(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "toolcrib.yaml").symlink_to("/dev/full")
    done = ended("init", str(tmp_path / "new"), "--force", stdout=subprocess.DEVNULL)
    said = f"Error: {tmp_path}/new/toolcrib.yaml cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (exit_codes.PROBLEMS, said)


def test_over_stdio_a_full_disk_ends_the_server_though_its_client_waits(shop):
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            toolcrib_command("serve", "mcp"),
            stdin=subprocess.PIPE,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        server.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdin.flush()
        assert server.wait(timeout=60) == exit_codes.OUTPUT_FAILED
        opening, *rest = server.stderr.readlines()
    assert "over stdio" in opening
    assert rest == [NO_SPACE]
