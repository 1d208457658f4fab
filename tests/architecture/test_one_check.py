"""Everything that starts, contacts, looks up or imports for files has asked for trust: there is one way to each of these."""

from __future__ import annotations

import ast
from functools import cache

import pytest

import source_trees


@cache
def calls(name: str) -> dict[str, list[ast.Call]]:
    """Module -> its calls of a function or method."""
    found: dict[str, list[ast.Call]] = {}
    for module, nodes in source_trees.nodes().items():
        for node in nodes:
            if isinstance(node, ast.Call) and name in (
                getattr(node.func, "id", ""),
                getattr(node.func, "attr", ""),
            ):
                found.setdefault(module, []).append(node)
    return found


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("bind", {"engine/binder.py", "testing.py"}),  # the binder asks before; the contract suite binds its own tool
        ("open_link", {"servers/mcp/supervisor.py"}),
        ("load_hook", {"executors/python/__init__.py", "http/auth/schemes.py", "servers/mcp/server_requests.py"}),  # of tools that are bound, of servers whose link was opened
        ("open_conversation", {"scenarios/agent_runner.py"}),  # asks for the models that scenarios name
        ("read_operator_file", {"loading/stores.py"}),  # of paths that the trail permits
        ("look_up", {
            "executors/exec/command.py",  # of tools that are bound
            "servers/sandbox_grants.py",  # of tools that are bound
            "executors/live/value_sources.py",  # of tools that are bound
            "executors/python/services.py",  # of tools that are bound: their code was imported, which needs trust
            "http/auth/credentials.py", "servers/mcp/transports.py",  # of servers that were checked
            "provider/models/http_client.py",  # of models: of the command line, or of scenarios, which were checked
            "security/encryption.py",  # of the user's own key, which no document names
            "security/secrets.py",
        }),
        ("missing_variables", {
            "executors/live/__init__.py", "servers/mcp/supervisor.py", "servers/a2a/agents.py",  # of tools that are bound, of servers that were checked
            "executors/a2a/__init__.py", "executors/exec/command.py", "executors/mcp/__init__.py", "executors/python/__init__.py",  # only whether they exist
        }),
    ],
)  # fmt: skip
def test_there_is_one_way(name, where):
    assert calls(name).keys() == where, f"`{name}` is called elsewhere: does that ask for trust?"


def test_a_runtime_over_files_is_given_what_decides():
    """One that is made without `trust` trusts everything."""
    own_tools = {
        "provider/loop/calls.py",
        "engine/runtime.py",
    }  # a tool that toolcrib itself wrote; those of a program
    made = [*calls("Engine").items(), *calls("Runtime").items()]
    assert len(made) > len(own_tools)
    for module, found in made:
        for node in found:
            given = {keyword.arg for keyword in node.keywords}
            assert "trust" in given or module in own_tools, f"{module}:{node.lineno}"


def test_every_reading_of_files_says_what_may_be_looked_up_in_their_paths():
    assert calls("FileTracker")
    for module, found in calls("FileTracker").items():
        for node in found:
            looks_at_documents = module not in {
                "loading/fingerprints.py",
                "loading/sources.py",
                "loading/reload.py",
            }
            assert not looks_at_documents or any(each.arg == "permits" for each in node.keywords), (
                f"{module}:{node.lineno}"
            )
