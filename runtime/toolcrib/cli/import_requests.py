"""`toolcrib import curl`, `har` and `postman`, of recorded requests; `utcp`, `higress` and `mci`, of files of other tool systems."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from toolcrib.cli.imported_files import ImportOptions, import_options, write_import
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.text import decode_json, format_size
from toolcrib.formats.curl import tools_of_curl
from toolcrib.formats.har import tools_of_har
from toolcrib.formats.higress import tools_of_higress
from toolcrib.formats.imported_tools import ImportedTools
from toolcrib.formats.imports.sources import MOST_BYTES, kind_of, other_kind, source_bytes, source_value
from toolcrib.formats.mci import tools_of_mci
from toolcrib.formats.postman import tools_of_postman
from toolcrib.formats.utcp import tools_of_utcp

_STDIN: Final = "-"
_OTHER_COMMANDS: Final = (
    (re.compile(r"\bInvoke-(WebRequest|RestMethod)\b"), "PowerShell; use `Copy as cURL` of the browser"),
    (re.compile(r"\b(await\s+)?fetch\s*\("), "JavaScript; use `Copy as cURL` of the browser"),
    (re.compile(r"(?m)^(GET|POST|PUT|PATCH|DELETE) \S+ HTTP/"), "a raw request of HTTP"),
    (re.compile(r"(?m)^\s*(\$\s*)?(wget|http|https|xh)\s"), "commands of another HTTP client"),
)
"""What a text without curl commands is instead."""


@click.command("curl")
@click.argument("path", metavar="FILE", type=click.Path(allow_dash=True))
@import_options
@click.pass_context
def import_curl(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each curl command of a file.

    FILE contains commands as documentation and `Copy as cURL` of browsers write them, for a POSIX shell or cmd.exe; `-` is stdin.
    Nothing is executed. Query parameters, form fields and the members of a JSON body become arguments with their values as
    defaults; credentials and cookies become `${NAME}`. Options without a counterpart are reported. Exits with 1 if a command
    got no file.
    """
    text = _text(path)
    imported = tools_of_curl(text)
    if not imported.tools and not imported.refused:
        raise _no_commands("stdin" if path == _STDIN else path, text)
    write_import(ctx, imported, options, kind="curl", source="stdin" if path == _STDIN else path)


def _text(path: str) -> str:
    if path == _STDIN:
        content = sys.stdin.buffer.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigurationError(
                f"stdin is larger than {format_size(MOST_BYTES)}", code="unreadable_source"
            )
    else:
        content = source_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text in UTF-8", code="unreadable_source") from error


def _no_commands(path: str, text: str) -> ConfigurationError:
    try:
        return other_kind(path, decode_json(text), "a text with curl commands")
    except (ValueError, RecursionError):
        pass
    found = next((label for pattern, label in _OTHER_COMMANDS if pattern.search(text)), "")
    looks = f"; it looks like {found}" if found else ""
    return ConfigurationError(f"{path} contains no curl command{looks}", code="other_source_kind")


def _import_value(
    ctx: click.Context,
    path: str,
    options: ImportOptions,
    *,
    kind: str,
    label: str,
    convert: Callable[[Any], ImportedTools],
) -> NoReturn:
    """Import the tools of a file in JSON or YAML, if it is of a kind."""
    value = source_value(path)
    found = kind_of(value)
    if found is None or found.kind != kind:
        raise other_kind(path, value, label)
    write_import(ctx, convert(value), options, kind=kind, source=path)


@click.command("har")
@click.argument("path", metavar="FILE", type=click.Path())
@click.option(
    "--as",
    "form",
    type=click.Choice(["descriptors"]),
    default="descriptors",
    show_default=True,
    help="What the recording becomes.",
)
@import_options
@click.pass_context
def import_har(ctx: click.Context, *, path: str, form: str, options: ImportOptions) -> None:  # noqa: ARG001 -- one value so far
    """Write one descriptor file for each operation that a browser or proxy recorded.

    FILE is a HAR file. Requests with the same method, host and path, apart from ids in the path, are one tool, and so are
    requests of one GraphQL operation. Its schemas describe all of its recordings, and its mock replies as they did. What a page
    loads for its looks is left out and counted. Credentials and cookies become `${NAME}`. Exits with 1 if an operation got
    no file.
    """
    _import_value(ctx, path, options, kind="har", label="a browser recording (HAR)", convert=tools_of_har)


@click.command("postman")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_postman(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each request of a Postman collection.

    FILE is a collection in format 2.0 or 2.1. Values of requests are defaults of arguments, saved responses are the mock, and
    folders are tags. Variables of the collection are replaced; others become `${NAME}` or arguments. Scripts are reported. Exits
    with 1 if a request got no file.
    """
    _import_value(ctx, path, options, kind="postman", label="a Postman collection", convert=tools_of_postman)


@click.command("utcp")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_utcp(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each tool of a UTCP manual.

    FILE is JSON or YAML. Call templates of HTTP become `live` blocks, programs `exec`, texts a mock, and MCP servers `mcp`. Exits
    with 1 if a tool got no file.
    """
    _import_value(ctx, path, options, kind="utcp", label="a UTCP manual", convert=tools_of_utcp)


@click.command("higress")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_higress(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each tool of a Higress REST-to-MCP configuration.

    FILE is YAML or JSON: `server` and `tools`, or a plugin object of Kubernetes. Request templates become `live` blocks; parts of Go
    templates without a counterpart are reported. Exits with 1 if a tool got no file.
    """
    _import_value(
        ctx, path, options, kind="higress", label="a Higress configuration", convert=tools_of_higress
    )


@click.command("mci")
@click.argument("path", metavar="FILE", type=click.Path())
@import_options
@click.pass_context
def import_mci(ctx: click.Context, *, path: str, options: ImportOptions) -> None:
    """Write one descriptor file for each tool of an MCI file (Model Context Interface).

    FILE is JSON or YAML. Executions of HTTP become `live` blocks, programs and files `exec`, texts a mock, and MCP servers `mcp`.
    Exits with 1 if a tool got no file.
    """
    _import_value(ctx, path, options, kind="mci", label="an MCI file", convert=tools_of_mci)


COMMANDS: Final = (import_curl, import_har, import_postman, import_utcp, import_higress, import_mci)
