"""A hostile repository and a hostile pack try every verb: before somebody agrees nothing happens outside of the process."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import toolcrib_command
from forking import forked_command
from hostile_workspace import ALONE, WATCHED, Hostile, hostile, put
from sampling import THOROUGH, sample
from toolcrib.cli.entry import VERBS

OPENAI = ("--provider", "openai", "--model", "m")

COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "init": [("init", "new")],
    "new": [
        ("new", "tool", "fresh"),
        ("new", "scenario", "fresh"),
        ("new", "scenario", "fresh", "--tool", "send"),
        ("new", "pack", "fresh"),
    ],
    "validate": [
        ("validate",),
        ("validate", "--strict"),
        ("validate", "descriptors"),
        ("validate", "--json"),
    ],
    "lint": [("lint",), ("lint", "--json"), ("lint", "descriptors", "--diff")],
    "list": [("list",), ("list", "--all", "--json"), ("list", "--no-index")],
    "search": [("search", "secrets")],
    "show": [("show", "send"), ("show", "ask_program", "--json"), ("show", "program__x")],
    "call": [
        ("call", "greet"),
        ("call", "send"),
        ("call", "send", "--dry-run"),
        ("call", "send", "--explain", "-v"),
        ("call", "greet", "--mode", "live"),
        ("call", "sign"),
        ("call", "run_code"),
        ("call", "run_code", "--dry-run"),
        ("call", "tool_of_a_source"),
        ("call", "token"),
        ("call", "ask_program"),
        ("call", "program__anything"),
        ("call", "handed_on", "--allow-passthrough"),
        ("call", "look"),
    ],
    "shell": [("shell",)],
    "cost": [("cost",)],
    "run": [
        ("run",),
        ("run", "-j", "2"),
        ("run", "--allow-passthrough", "--json"),
        ("run", "--profile", "real"),
    ],
    "chat": [("chat", "--provider", "scripted", "--script", "is_judged_by_a_model", "hello")],
    "replay": [("replay", "--tasks", "tasks.jsonl")],
    "lock": [("lock",), ("lock", "--check"), ("lock", "--update"), ("lock", "program")],
    "diff": [("diff", "."), ("diff", "HEAD")],
    "import": [
        ("import", "mcp", "program"),
        ("import", "mcp", "web"),
        ("import", "promptkit", "."),
        ("import", "promptpack", "x.pack.json"),
    ],
    "export": [
        ("export", "promptpack"),
        ("export", "descriptor"),
        ("export", "descriptor", "evil_hooks"),
        ("export", "openapi"),
    ],
    "stubs": [("stubs",), ("stubs", "--out", "written.py")],
    "agent": [("agent", "run", "no-such-program", "hello")],
    "remote": [("remote", "list"), ("remote", "call", "agent", "tool"), ("remote", "result", "agent", "1")],
    "serve": [
        ("serve", "mcp"),
        ("serve", "mcp", "--mode", "live"),
        ("serve", "a2a", "--mode", "live", "--toolset", "none"),  # which ends it
        ("serve", "acp", "--provider", "scripted", "--script", "is_judged_by_a_model"),
    ],
    "approvals": [
        ("approvals", "list"),
        ("approvals", "show", "a"),
        ("approvals", "approve", "a"),
        ("approvals", "run", "a"),
        ("approvals", "revoke", "a"),
    ],
    "journal": [
        ("journal", "list"),
        ("journal", "show", "1"),
        ("journal", "export"),
        ("journal", "resolve", "1", "--acted"),
    ],
    "stats": [("stats",), ("stats", "--list")],
    "top": [("top",)],
    "cancel": [("cancel", "--all")],
    "trust": [
        ("trust", "--dry-run"),
        ("trust", "--dry-run", "--json"),
        ("trust",),
        ("trust", "list"),
        ("trust", "revoke"),
    ],
    "doctor": [("doctor",), ("doctor", "send"), ("doctor", "--json")],
    "pack": [
        ("pack", "build", "{pack}"),
        ("pack", "inspect", "{archive}"),
        ("pack", "verify", "{archive}"),
        ("pack", "verify"),
        ("pack", "diff", "{pack}", "{archive}"),
        ("pack", "install", "{archive}", "--yes"),
        ("pack", "sign", "{archive}"),
    ],
    "schema": [("schema", "project")],
    "completion": [("completion", "bash")],
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The command that writes down what it does; forked, unless everything is run."""
    if THOROUGH or not hasattr(os, "pidfd_open"):
        yield ALONE
        return
    with forked_command(Path(sys.executable), tmp_path_factory.mktemp("forking"), WATCHED) as place:
        yield [str(place / "toolcrib")]


@pytest.fixture
def canaries(tmp_path, watched):
    with hostile(tmp_path, watched) as found:
        put(
            found.top,
            {"tasks.jsonl": '{"task": "t", "calls": [{"tool": "send", "arguments": {}, "result": "x"}]}\n'},
        )
        yield found


def named(words: tuple[str, ...], canaries: Hostile) -> list[str]:
    return [word.format(pack=canaries.pack, archive=canaries.archive) for word in words]


def test_every_verb_is_tried():
    assert COMMANDS.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", sample(COMMANDS, one_in=2))
def test_a_cloned_repository_does_nothing_before_somebody_agrees(verb, canaries):
    for words in sample(COMMANDS[verb], one_in=4):
        done, events = canaries.run(*named(words, canaries))
        # Click asks the shell that it writes a script for which version it is.
        deeds = [deed for deed in canaries.deeds(done, events) if "BASH_VERSION" not in deed]
        assert deeds == [], words
        assert "Traceback" not in done.stderr, words


@pytest.mark.parametrize("verb", sample(["list", "validate", "run", "call", "doctor", "serve"], one_in=6))
def test_nor_from_a_folder_within_it(verb, canaries):
    for words in sample(COMMANDS[verb], one_in=4):
        if not {"descriptors"} & {*words}:
            done, events = canaries.run(*words, folder=canaries.top / "sub" / "folder")
            assert canaries.deeds(done, events) == [], words


@pytest.mark.parametrize(
    ("verb", "kind"),
    sample(
        [
            (verb, kind)
            for verb in (
                *("list", "validate", "run", "call", "cost", "export", "doctor", "serve", "chat", "replay"),
            )
            for kind in ("folder", "archive")
        ],
        one_in=10,
    ),
)
def test_a_pack_from_elsewhere_answers_from_its_mocks_alone(verb, kind, canaries, tmp_path):
    pack = str(canaries.pack if kind == "folder" else canaries.archive)
    empty = tmp_path / "elsewhere"
    put(empty, {"tasks.jsonl": (canaries.top / "tasks.jsonl").read_text()})
    for words in sample(COMMANDS[verb], one_in=4):
        given = [*words, "--pack", pack]
        done, events = canaries.run(*given, folder=empty)
        assert canaries.deeds(done, events) == [], given
        assert "Traceback" not in done.stderr, given
    done, events = canaries.run("run", pack, folder=empty)
    assert canaries.deeds(done, events) == []
    assert "untrusted_workspace" in done.stderr
    assert done.returncode == 15


def test_the_hole_that_was_there(canaries):
    """`list` once started the servers of a cloned repository, with the secrets that it named."""
    done, events = canaries.run("list")
    assert done.returncode == 0
    assert canaries.deeds(done, events) == []
    assert "server `program`: not queried" in done.stderr
    assert "greet" in done.stdout


def test_mocks_still_work_and_one_message_says_what_would_happen(canaries):
    done, _events = canaries.run("run", "-k", "only_mocks")
    assert "1 scenario passed" in done.stdout
    done, _events = canaries.run("call", "greet")
    assert (done.returncode, done.stdout.strip()) == (0, "hi")
    done, _events = canaries.run("run")
    assert done.returncode == 15
    assert done.stderr.count("denied (untrusted_workspace)") == 1
    for told in (
        f"start    {shlex.join([sys.executable, 'server.py'])}",
        "env A=${CANARY_SECRET}",
        "env B=${file:~/.ssh/id_rsa}",
        f"contact  http://127.0.0.1:{canaries.port}",
        "${file:~/.ssh/id_rsa} for server program",
        "import   evil_hooks:sign",
        "import   evil_hooks as source of tools",
        "then run `toolcrib trust`",
    ):
        assert told in done.stderr


def test_what_is_agreed_to_happens(canaries):
    """Else the tests above would prove nothing."""
    done, _events = canaries.run("trust", "--yes")
    assert done.returncode == 0, done.stderr
    done, events = canaries.run("doctor")
    deeds = canaries.deeds(done, events)
    assert any(deed.startswith("start ") and "server.py" in deed for deed in deeds)
    assert any(deed.startswith("contact ") for deed in deeds)
    assert "variable CANARY_SECRET" in deeds
    assert any(deed.startswith("open ") and ".ssh/id_rsa" in deed for deed in deeds)
    assert canaries.connections
    assert "code of the repository ran" in deeds
    assert "a secret was shown" not in deeds
    done, _events = canaries.run("call", "look")
    assert json.loads(done.stdout) == {"from": "outside"}


@pytest.mark.parametrize("granted", sample(["all", "hash"], one_in=2))
def test_the_environment_may_grant_it(granted, canaries):
    told = json.loads(canaries.run("trust", "--dry-run", "--json")[0].stdout)["workspaces"][0]
    assert not told["trusted"]
    value = "all" if granted == "all" else told["hash"]
    done, events = canaries.run("call", "send", TOOLCRIB_TRUST=value)
    assert "variable CANARY_SECRET" in canaries.deeds(done, events)
    done, events = canaries.run("call", "look", TOOLCRIB_TRUST=value)
    assert json.loads(done.stdout) == {"from": "outside"}


@pytest.mark.parametrize("value", sample(["yes", "0" * 64, "a", "ALL!", ""], one_in=5))
def test_another_value_grants_nothing(value, canaries):
    done, events = canaries.run("call", "send", TOOLCRIB_TRUST=value)
    assert done.returncode == 15
    assert canaries.deeds(done, events) == []


def changed(top: Path, name: str, before: str, after: str) -> None:
    path = top / name
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


def rewritten(top: Path, pattern: str, text: str) -> None:
    path = top / "descriptors" / "tools.tool.yaml"
    path.write_text(re.sub(pattern, text, path.read_text(encoding="utf-8"), count=1), encoding="utf-8")


PROGRAM, SEND = ("call", "program__x"), ("call", "send")

CHANGES = {
    "a program's file": (PROGRAM, lambda top: changed(top, "server.py", "open(", "# more\nopen(")),
    "a file that it imports": (PROGRAM, lambda top: (top / "beside.py").write_text("2")),
    "a package that it imports": (PROGRAM, lambda top: (top / "package" / "part.py").write_text("2")),
    "an argument": (PROGRAM, lambda top: changed(top, "toolcrib.yaml", "[server.py]", "[server.py, more]")),
    "the command": (PROGRAM, lambda top: changed(top, "toolcrib.yaml", f"command: {sys.executable}", "command: sh")),
    "a variable's value": (PROGRAM, lambda top: changed(top, "toolcrib.yaml", 'A: "${CANARY_SECRET}"', 'A: "${OPENAI_API_KEY}"')),
    "one more variable": (PROGRAM, lambda top: changed(top, "toolcrib.yaml", 'A: "$', 'LD_PRELOAD: x.so, A: "$')),
    "the working directory": (PROGRAM, lambda top: changed(top, "toolcrib.yaml", "args: [server.py]", "args: [server.py]\n    cwd: sub")),
    "a hook": (PROGRAM, lambda top: changed(top, "evil_hooks.py", "return None", "return {}")),
    "which hook": (PROGRAM, lambda top: changed(top, "toolcrib.yaml", "evil_hooks:hear", "evil_hooks:sign")),
    "the file of a client": (("call", "shell__x"), lambda top: changed(top, ".mcp.json", "touch", "cp")),
    "an address": (("call", "web__x"), lambda top: changed(top, "toolcrib.yaml", "/mcp", "/mcp") or changed(top, "toolcrib.yaml", 'web: {url: "http://127', 'web: {url: "http://localhost.127')),
    "a header": (("call", "web__x"), lambda top: changed(top, "toolcrib.yaml", '/mcp", headers: {X: "${CANARY_SECRET}"}', '/mcp", headers: {X: "${OPENAI_API_KEY}"}')),
    "the host of a tool": (SEND, lambda top: rewritten(top, r"http://127.0.0.1:[0-9]+(/take.\n  headers)", r"http://evil.example\1")),
    "the secret of a tool": (SEND, lambda top: changed(top, "descriptors/tools.tool.yaml", 'X: "${CANARY_SECRET}", Y', 'X: "${OPENAI_API_KEY}", Y')),
    "one more host": (SEND, lambda top: changed(top, "descriptors/tools.tool.yaml", '  headers: {X: "${CANARY_SECRET}", Y', '  hosts: [127.0.0.1, evil.example]\n  headers: {X: "${CANARY_SECRET}", Y')),
    "code that signs": (("call", "sign"), lambda top: changed(top, "evil_hooks.py", "return {}", "return {'headers': {}}")),
    "code of a tool": (("call", "run_code", "request=x"), lambda top: changed(top, "evil_hooks.py", "return {}", "return {'headers': {}}")),
    "which code a tool runs": (("call", "run_code", "request=x"), lambda top: changed(top, "descriptors/tools.tool.yaml", 'python: {call: "evil_hooks:sign"}', 'python: {call: "evil_hooks:hear"}')),
    "where tokens are asked for": (("call", "token"), lambda top: rewritten(top, r"http://127.0.0.1:[0-9]+/token", "https://evil.example/token")),
    "an origin in place of another": (SEND, lambda top: changed(top, "toolcrib.yaml", "origins: {", 'origins: {"https://a.example": "https://b.example", ')),
    "an address that may be reached": (SEND, lambda top: changed(top, "toolcrib.yaml", "egress: {allow: [", 'egress: {allow: ["10.0.0.1:80", ')),
    "an origin in a profile": (SEND, lambda top: changed(top, "toolcrib.yaml", "real: {", 'real: {origins: {"https://a.example": "https://b.example"}, ')),
    "the path of rows": (("call", "look"), lambda top: changed(top, "toolcrib.yaml", "/rows.json", "/../data/rows.json")),
    "a model's address": (("run", "-k", "speaks"), lambda top: changed(top, "descriptors/s.scenario.yaml", '/v1"\n  api_key', '.evil.example/v1"\n  api_key')),
    "a model's key": (("run", "-k", "speaks"), lambda top: changed(top, "descriptors/s.scenario.yaml", '  api_key: "${CANARY_SECRET}"\n  turns', '  api_key: "${OPENAI_API_KEY}"\n  turns')),
    "a judge": (("run", "-k", "judged"), lambda top: changed(top, "descriptors/s.scenario.yaml", '/v1", api_key', '.evil.example/v1", api_key')),
}  # fmt: skip


@pytest.mark.parametrize("change", sample(CHANGES, one_in=8))
def test_a_change_of_a_trusted_project_asks_again(change, canaries):
    put(canaries.top, {"beside.py": "1", "package/__init__.py": "", "package/part.py": "1"})
    changed(canaries.top, "server.py", "open(", "import beside\nfrom package import part\nopen(")
    words, make = CHANGES[change]
    assert canaries.run("trust", "--yes")[0].returncode == 0
    make(canaries.top)
    done, events = canaries.run(*words)
    deeds = canaries.deeds(done, events)
    told = canaries.run("trust", "--dry-run")[0].stdout
    assert deeds == []
    assert any(line[:1] in {"+", "-", "~"} for line in told.splitlines()), told
    if words != ("call", "look"):
        assert done.returncode == 15, done.stdout + done.stderr
        assert "no longer trusted" in done.stdout + done.stderr or "has changed" in done.stderr


@pytest.mark.exhaustive
def test_what_is_not_needed_any_more_asks_nobody(canaries):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    (canaries.top / "descriptors" / "s.scenario.yaml").unlink()
    done, events = canaries.run("call", "send")
    assert "variable CANARY_SECRET" in canaries.deeds(done, events)


@pytest.mark.exhaustive
def test_going_back_to_what_was_agreed_to_asks_nobody(canaries):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    text = (canaries.top / "server.py").read_text()
    (canaries.top / "server.py").write_text("other")
    assert canaries.run("call", "program__x")[0].returncode == 15
    (canaries.top / "server.py").write_text(text)
    done, events = canaries.run("call", "program__x")
    assert "code of the repository ran" in canaries.deeds(done, events)


def test_a_project_that_was_moved_asks_again(canaries):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    moved = canaries.top.rename(canaries.top.with_name("moved"))
    done, events = canaries.run("call", "send", folder=moved)
    assert done.returncode == 15
    assert canaries.deeds(done, events) == []


@pytest.mark.exhaustive
def test_a_copy_is_another_project(canaries, tmp_path):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    copy = tmp_path / "copy"
    shutil.copytree(canaries.top, copy)
    done, events = canaries.run("call", "send", folder=copy)
    assert canaries.deeds(done, events) == []


@pytest.mark.exhaustive
def test_a_link_to_a_trusted_project_is_the_project(canaries, tmp_path):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    link = tmp_path / "link"
    link.symlink_to(canaries.top)
    done, events = canaries.run("call", "send", folder=link)
    assert "variable CANARY_SECRET" in canaries.deeds(done, events)


def test_a_trusted_project_lends_nothing_to_a_pack_from_elsewhere(canaries, tmp_path):
    """The pack's scenarios call no live tool of the project, and its tools none of the project's servers."""
    project, pack = tmp_path / "project", tmp_path / "borrower"
    live = f'{{url: "http://127.0.0.1:{canaries.port}/take", headers: {{X: "${{CANARY_SECRET}}"}}}}'
    put(
        project,
        {
            "toolcrib.yaml": f"project: p\negress: {{allow: ['127.0.0.1:{canaries.port}']}}\n"
            f"servers: {{program: {{command: touch, args: ['{canaries.mark}']}}}}\n",
            "descriptors/t.tool.yaml": f"name: only_here\ndescription: Live.\nmode: live\nlive: {live}\n",
        },
    )
    put(
        pack,
        {
            "pack.yaml": "name: borrower\nversion: 1.0.0\n",
            "t.tool.yaml": "name: borrows\ndescription: B.\nmode: mcp\nmcp: {server: program, tool: x}\n",
            "s.scenario.yaml": "scenario: crosses\nmodes: {only_here: live}\nsteps: [{call: only_here}]\n",
        },
    )
    assert canaries.run("trust", "--yes", folder=project)[0].returncode == 0
    done, events = canaries.run("call", "only_here", folder=project)
    assert canaries.connections
    canaries.connections.clear()
    for words in (("run", "-k", "crosses"), ("call", "borrows")):
        done, events = canaries.run(*words, "--pack", str(pack), folder=project)
        assert canaries.deeds(done, events) == []
        assert "untrusted_workspace" in done.stdout + done.stderr
        assert done.returncode == 15


def test_a_pack_gets_what_it_declares_and_somebody_grants(canaries, tmp_path):
    host = f"127.0.0.1:{canaries.port}"
    pack = tmp_path / "honest"
    put(
        pack,
        {
            "pack.yaml": "name: honest\nversion: 1.0.0\nrequires: {hosts: [127.0.0.1], environment: [CANARY_SECRET]}\n",
            "t.tool.yaml": f'name: t\ndescription: T.\nmode: live\nlive: {{url: "http://{host}/x", headers: {{X: "${{CANARY_SECRET}}"}}}}\n',
        },
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ("call", "t", "--pack", str(pack))
    done, events = canaries.run(*words, folder=empty)
    assert canaries.deeds(done, events) == []
    assert canaries.run("trust", str(pack), "--yes", folder=empty)[0].returncode == 0
    done, events = canaries.run(*words, folder=empty)
    assert "variable CANARY_SECRET" in canaries.deeds(done, events)
    assert "address_refused" in done.stderr  # no pack opens the egress guard
    # A pack is granted as it is: any change of it asks again.
    changed(pack, "t.tool.yaml", "description: T.", "description: Another.")
    done, events = canaries.run(*words, folder=empty)
    assert done.returncode == 15
    assert canaries.deeds(done, events) == []
    # What it does not declare can't be granted.
    changed(pack, "pack.yaml", "environment: [CANARY_SECRET]", "environment: [OTHER]")
    assert canaries.run("trust", str(pack), "--yes", folder=empty)[0].returncode == 0
    done, events = canaries.run(*words, folder=empty)
    assert done.returncode == 13
    assert "does not declare" in done.stderr
    assert canaries.deeds(done, events) == []


def test_a_file_that_is_named_with_mcp_is_consent_for_that_run_and_for_that_file(canaries):
    done, events = canaries.run("doctor", "--mcp", ".mcp.json")
    assert any(deed.startswith("start ") and "touch" in deed for deed in canaries.deeds(done, events))
    done, events = canaries.run("call", "send", "--mcp", ".mcp.json", "--pack", "descriptors")
    assert not any(event.startswith("contact ") for event in events)
    assert done.returncode == 15
    canaries.mark.unlink()
    done, events = canaries.run("doctor")
    assert canaries.deeds(done, events) == []


@pytest.mark.parametrize(
    "harm",
    sample(
        [
            "others may write to the folder",
            "others may write to the file",
            "damaged",
            "another hash",
            "a link",
        ],
        one_in=5,
    ),
)
def test_a_trust_store_that_is_not_to_be_believed_starts_nothing(harm, canaries, tmp_path):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    folder = tmp_path / "state" / "trust"
    (decision,) = folder.glob("*.json")
    if harm == "others may write to the folder":
        folder.chmod(0o777)
    elif harm == "others may write to the file":
        decision.chmod(0o666)
    elif harm == "damaged":
        decision.write_text(decision.read_text()[:100])
    elif harm == "another hash":
        decision.write_text(
            decision.read_text().replace('"env A=', '"env Z=').replace('"digest": "', '"digest": "0')
        )
    else:
        decision.rename(tmp_path / "kept.json")
        decision.symlink_to(tmp_path / "kept.json")
    done, events = canaries.run("call", "program__x")
    assert canaries.deeds(done, events) == []
    assert done.returncode == 15
    told = canaries.run("doctor")[0]
    assert "is ignored" in told.stdout
    assert told.returncode == 1


def test_decisions_that_lie_in_the_repository_are_not_believed(canaries, tmp_path):
    assert canaries.run("trust", "--yes")[0].returncode == 0
    (tmp_path / "state").rename(canaries.top / "state")
    done, events = canaries.run("call", "send", TOOLCRIB_STATE_DIR=str(canaries.top / "state"))
    assert canaries.deeds(done, events) == []
    assert done.returncode == 15


@pytest.mark.exhaustive
def test_two_processes_that_decide_at_once_are_both_heard(canaries, tmp_path):
    folders = [canaries.top, *(tmp_path / f"other{number}" for number in range(5))]
    for folder in folders[1:]:
        put(folder, {"toolcrib.yaml": "project: p\nservers: {s: {command: 'true'}}\n"})
    running = [
        subprocess.Popen(
            toolcrib_command("trust", "--yes"),
            cwd=folder,
            env=canaries.environment(),
            stdout=subprocess.DEVNULL,
        )
        for folder in [*folders, *folders]
    ]
    assert [each.wait(60) for each in running] == [0] * len(running)
    told = json.loads(canaries.run("trust", "list", "--json")[0].stdout)
    assert {each["root"] for each in told["decisions"]} == {str(folder) for folder in folders}
    assert told["problems"] == []
