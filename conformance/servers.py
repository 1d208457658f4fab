"""Servers from the package registries, as conformance/servers.toml names them: `make servers`.

Each server is installed into its own environment below build/conformance/servers, once. One project with all of them is
then used through toolcrib's client: every server is listed, its definitions pass the checks of the loader, and one tool is
called with valid and with invalid arguments. The table is printed and written to build/conformance/servers.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import environments
from environments import BUILD, HERE, SetupFailed
from processes import run
from sections import Section

FILE = HERE / "servers.toml"
FOLDER = BUILD / "servers"
TABLE = BUILD / "servers.md"

HEAD = ("server", "version", "registry", "protocol", "tools", "problems", "calls", "result")

PATIENCE = 120.0
"""Seconds for everything that one server is asked. A server that takes longer fails; the others go on."""

INSTALLS = 2
"""Concurrent installations."""


def main() -> int:
    """Run, print the table, and return 1 if a server failed."""
    reader = argparse.ArgumentParser(prog="make servers", description=(__doc__ or "").partition("\n")[0])
    reader.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only this server; repeatable"
    )
    reader.add_argument(
        "--show", action="store_true", help="print the tools of each server with their parameters"
    )
    asked = reader.parse_args()
    wanted: dict[str, dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    unknown = [name for name in asked.only if name not in wanted]
    if unknown:
        reader.error(f"unknown server {', '.join(unknown)}; {FILE.name} has {', '.join(wanted)}")
    if asked.only:
        wanted = {name: wanted[name] for name in asked.only}
    began = time.monotonic()
    environments.set_up_client()
    section = compared(wanted, show=asked.show)
    print(section.as_text(time.monotonic() - began))
    TABLE.write_text(f"# Servers\n\n{section.as_markdown()}", encoding="utf-8")
    return 1 if section.faults else 0


def compared(wanted: Mapping[str, Mapping[str, Any]], *, show: bool) -> Section:
    """Install the servers, use them, and compare the results with the file."""
    used = {name: server for name, server in wanted.items() if "skipped" not in server}
    faults = {name: [f"cannot be installed: {error}"] for name, error in installed(used)}
    used = {name: server for name, server in used.items() if name not in faults}
    found = results(used) if used else {}
    rows = []
    for name, server in wanted.items():
        its = found.get(name, {})
        faults.setdefault(name, []).extend(
            its.get("faults", [] if "skipped" in server or name in faults else ["no result"])
        )
        result = (
            f"skipped: {server['skipped']}" if "skipped" in server else "failed" if faults[name] else "passed"
        )
        calls = ", ".join(its.get("calls", [])) or (
            f"none: {server['no_call']}" if "no_call" in server else ""
        )
        numbers = [str(its.get("tools", "")), str(len(its.get("problems", ())) if its else "")]
        rows.append(
            (name, version(server), server["registry"], its.get("protocol", ""), *numbers, calls, result)
        )
        if show:
            print(f"{name}\n" + "".join(f"    {line}\n" for line in its.get("shown", [])), flush=True)
        # A problem is the server's own: a definition that no client can use.
        for problem in its.get("problems", ()):
            print(f"{name}: {problem}", flush=True)
    ran = sum(row[-1] == "passed" for row in rows)
    note = f"{ran} passed, {sum(row[-1] == 'failed' for row in rows)} failed, {len(wanted) - len(used)} not started"
    return Section("Servers of the registries", HEAD, rows, [f"{name}: {fault}" for name in faults for fault in faults[name]], note)  # fmt: skip


def installed(servers: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, SetupFailed]]:
    """Install servers, and return those that cannot be installed."""
    with ThreadPoolExecutor(INSTALLS) as pool:
        made = {
            name: pool.submit(
                environments.add_packages, f"servers/{name}", server["registry"], server["packages"]
            )
            for name, server in servers.items()
        }
        for name, one in made.items():
            try:
                one.result()
            except SetupFailed as error:
                yield name, error


def version(server: Mapping[str, Any]) -> str:
    """The version of a server: that of its first package."""
    name, _, number = server["packages"][0].rpartition("@" if server["registry"] == "npm" else "==")
    return f"{name} {number}"


def results(servers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Use all servers through one project: name -> what was found."""
    folder = BUILD / "servers-project"
    prepare(folder)
    text = json.dumps({name: configured(name, server, folder) for name, server in servers.items()})
    project = {"project": "servers", "servers": json.loads(text)}
    (folder / "toolcrib.yaml").write_text(json.dumps(project, indent=2), encoding="utf-8")
    keys = ("tool", "good", "contains", "bad", "bad_outcome", "refused")
    asked = {name: {key: server[key] for key in keys if key in server} for name, server in servers.items()}
    (folder / "asked.json").write_text(json.dumps(asked).replace("{folder}", str(folder)), encoding="utf-8")
    command = [environments.python("toolcrib"), str(HERE / "server_calls.py"), str(folder), str(PATIENCE)]
    env = environments.bare_environment(PYTHONPATH=str(HERE))
    ran = run(command, env=env, cwd=folder, timeout=PATIENCE * (len(servers) + 1))
    found = {}
    for line in ran.out.splitlines():
        answer = json.loads(line)
        found[answer.pop("server")] = answer
    if ran.code:
        print(f"the client ended with {ran.code}: {ran.err[-4000:]}", flush=True)
    return found


def prepare(folder: Path) -> None:
    """A folder with what the servers work on: small files, a git repository, and room for their own files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("files", "notes", "repository"):
        (folder / name).mkdir(parents=True)
    texts = {
        "hello.txt": "hello\n",
        "hello.js": "let hello;\n",
        "eslint.config.mjs": "export default [];\n",
        "hello.drawio": '<mxfile><diagram id="1" name="Page-1"><mxGraphModel><root/></mxGraphModel></diagram></mxfile>\n',
    }
    for name, text in texts.items():
        (folder / "files" / name).write_text(text, encoding="utf-8")
    git = ["git", "-C", str(folder / "repository"), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "first commit"]):
        subprocess.run([*git, *words], check=True)


def configured(name: str, server: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A server as the project configures it."""
    home = BUILD / "servers" / name
    args: Sequence[str] = server.get("args", ())
    if server["registry"] == "npm":
        package = server["packages"][0].rpartition("@")[0]
        command, args = environments.node(), [environments.entry(package, home), *args]
    else:
        command = str(home / "bin" / server["command"])
    env = environments.bare_environment(**server.get("env", {}))
    place = str(folder)
    return {
        "command": command,
        "args": [arg.replace("{folder}", place) for arg in args],
        "env": {key: value.replace("{folder}", place) for key, value in env.items()},
        "timeouts": {"start": f"{PATIENCE:g}s"},
        "import": True,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupFailed as failed:
        sys.exit(f"servers: {failed}")
