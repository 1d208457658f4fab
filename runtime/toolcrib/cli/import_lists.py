"""`toolcrib import openai`, `anthropic`, `gemini`, `functions`, and `mcp FILE`: lists of tools in files."""

from __future__ import annotations

from typing import Final, NoReturn

import click

from toolcrib.cli.imported_files import ImportOptions, import_options, write_import
from toolcrib.formats.imports.sources import kind_of, other_kind, source_value
from toolcrib.formats.loose_functions import tools_of_functions
from toolcrib.formats.tool_lists import TOOL_LISTS

_LABELS: Final = {
    "openai": "a list of OpenAI tools",
    "anthropic": "a list of Anthropic tools",
    "gemini": "a list of Gemini function declarations",
    "mcp": "a list of MCP tools",
    "functions": "a list of functions",
}

_ALSO: Final = {
    # The older `functions` of OpenAI, and flat definitions, are lists of functions, too.
    "openai": ("functions",),
    "functions": ("openai", "anthropic", "mcp"),
    "gemini": ("functions",),
}
"""Kind -> kinds of other lists that it reads."""


def import_list(ctx: click.Context, kind: str, path: str, options: ImportOptions) -> NoReturn:
    """Import the tools of a list in a file.

    Args:
        ctx: The context of the command.
        kind: The kind of the list: a provider, `mcp` or `functions`.
        path: The file.
        options: The options of the command.
    """
    value = source_value(path)
    found = kind_of(value)
    if found is None or found.kind not in (kind, *_ALSO.get(kind, ())):
        raise other_kind(path, value, _LABELS[kind])
    convert = tools_of_functions if kind == "functions" else TOOL_LISTS[kind]
    write_import(ctx, convert(value), options, kind=kind, source=path)


@click.command("openai")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_openai(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each function of a list for OpenAI.

    FILE is JSON or YAML: the `tools` of a request to the Responses or the Chat Completions API, the older `functions`, or a whole
    request. Tools that OpenAI runs itself are refused. Exits with 1 if a tool got no file.
    """
    import_list(ctx, "openai", path, options)


@click.command("anthropic")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_anthropic(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each tool of a list for Anthropic.

    FILE is JSON or YAML: the `tools` of a request to the Messages API, or a whole request. `input_examples` become examples.
    Tools that Anthropic defines itself are refused. Exits with 1 if a tool got no file.
    """
    import_list(ctx, "anthropic", path, options)


@click.command("gemini")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_gemini(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each function declaration of a list for Gemini.

    FILE is JSON or YAML: `functionDeclarations`, the `tools` of a request, or a whole request. Types in capitals, `nullable` and
    numbers as texts become JSON Schema. Tools that Google runs itself are refused. Exits with 1 if a tool got no file.
    """
    import_list(ctx, "gemini", path, options)


@click.command("functions")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_functions(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each function of a list in a loose dialect, such as those of benchmarks.

    FILE is JSON, JSON lines or YAML: functions, or entries that hold functions under `function` or `functions`. Types of Python, Java and
    JavaScript become types of JSON; misplaced or missing parts are repaired. Each repair is reported. Exits with 1 if a
    function got no file.
    """
    import_list(ctx, "functions", path, options)


COMMANDS: Final = (import_openai, import_anthropic, import_gemini, import_functions)
