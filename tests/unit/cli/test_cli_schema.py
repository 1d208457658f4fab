"""`toolcrib schema` and `toolcrib completion`."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from toolcrib.cli import exit_codes
from toolcrib.cli.group import cli
from toolcrib.core.schemas import KINDS
from toolcrib.executors import Executors
from toolcrib.loading.editor_schemas import editor_schema


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_is_the_schema_of_editors(kind, document):
    assert document("schema", kind) == editor_schema(kind, Executors.installed().blocks())


def test_the_schema_of_descriptors_is_printed_unless_told_otherwise(document):
    assert document("schema")["title"] == "toolcrib tool descriptor"


def test_an_unknown_kind_is_answered_with_the_kinds(toolcrib):
    result = toolcrib("schema", "recipe")
    assert result.exit_code == exit_codes.USAGE
    assert "descriptor" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_toolcrib_itself(shell, toolcrib):
    assert "_TOOLCRIB_COMPLETE" in toolcrib("completion", shell).stdout


def test_tools_complete_for_show_and_call(tools):
    class Shell(ShellComplete):
        name = "test"

    def completions(args, incomplete):
        return [item.value for item in Shell(cli, {}, "toolcrib", "_X").get_completions(args, incomplete)]

    assert completions(["show"], "e") == ["echo"]
    assert completions(["--pack", "descriptors", "call"], "") == ["echo", "failing", "later"]
    assert completions([], "va") == ["validate"]
