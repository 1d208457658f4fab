"""What the pages say that clients write is JSON and TOML of the right shape, and starts what there is."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from docs.blocks import blocks_of
from toolcrib.cli.group import cli
from toolcrib.formats.known_formats import FORMATS
from toolcrib.loading.servers import read_servers_file

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "serve-my-tools.md").read_text(encoding="utf-8")

BLOCKS = {block.file: block for block in blocks_of(PAGE)}

CLIENTS = [block for block in BLOCKS.values() if block.language == "json"]


def parsed(words: list[str]) -> click.Context:
    """A command line of ours, read as far as its options; nothing is done. Folders of others stand for one that is there."""
    words = ["." if word.startswith(("/", "$")) else word for word in words]
    name, command, parent = "toolcrib", cli, None
    while isinstance(command, click.Group):
        # A command keeps the names of its help that it has seen first.
        parent = click.Context(command, info_name=name, parent=parent, **command.context_settings)
        name, *words = words
        command = command.get_command(parent, name)
        assert command is not None, name
    return command.make_context(name, words, parent=parent)


def test_the_files_of_the_clients_are_there():
    names = [".mcp.json", "claude_desktop_config.json", ".cursor/mcp.json", ".vscode/mcp.json"]
    names += ["mcp_config.json", ".gemini/settings.json"]
    assert [block.file for block in CLIENTS] == names


@pytest.mark.parametrize("block", CLIENTS, ids=lambda block: block.file)
def test_a_client_s_file_is_read_as_it_is(block, tmp_path):
    path = tmp_path / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    servers, problems = read_servers_file(str(path), FORMATS)
    assert [str(problem) for problem in problems if problem.severity != "notice"] == []
    assert "shop" in servers
    for server in servers.values():
        if server.transport == "http":
            assert (server.name, server.url) == ("shop_http", "http://127.0.0.1:8000/mcp")
            assert re.fullmatch(r"Bearer \$\{.*SHOP_MCP_TOKEN.*\}", server.headers["Authorization"])
        else:
            assert Path(server.command).name == "toolcrib"
            assert parsed(list(server.args)).command_path == "toolcrib serve mcp"


def test_the_keys_are_those_that_the_clients_know():
    keys = {
        block.file: {key for entry in servers_of(json.loads(block.text)).values() for key in entry}
        for block in CLIENTS
    }
    assert keys == {
        ".mcp.json": {"command", "args", "env"},
        "claude_desktop_config.json": {"command", "args"},
        ".cursor/mcp.json": {"command", "args", "url", "headers"},
        ".vscode/mcp.json": {"type", "command", "args", "url", "headers"},
        "mcp_config.json": {"command", "args", "serverUrl", "headers"},
        ".gemini/settings.json": {"command", "args", "cwd", "httpUrl", "headers"},
    }


def servers_of(value: dict) -> dict:
    return value.get("mcpServers") or value["servers"]


def test_the_table_of_codex_starts_what_there_is():
    servers = tomllib.loads(BLOCKS["config.toml"].text)["mcp_servers"]
    assert servers["shop"]["command"] == "toolcrib"
    assert parsed(servers["shop"]["args"]).command_path == "toolcrib serve mcp"
    http = {"url": "http://127.0.0.1:8000/mcp", "bearer_token_env_var": "SHOP_MCP_TOKEN"}
    assert servers["shop_http"] == http


def test_the_commands_in_the_text_are_taken():
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL).replace("\n", " ")
    commands = [found for found in re.findall(r"`([^`]+)`", text) if "toolcrib serve" in found]
    assert len(commands) >= 5
    for command in commands:
        words = shlex.split(command)
        assert parsed(words[words.index("serve") :]).command_path == "toolcrib serve mcp"


def test_the_options_in_the_text_are_there():
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    known = {option for parameter in parsed(["serve", "mcp"]).command.params for option in parameter.opts}
    known |= {"--transport", "--header"}  # those of `claude mcp add`
    assert set(re.findall(r"--[a-z-]+[a-z]", text)) <= known


@pytest.mark.parametrize("file", ["with_fastmcp.py", "with_sdk.py", "try_http.py"])
def test_the_programs_are_python(file):
    compile(BLOCKS[file].text, file, "exec")
