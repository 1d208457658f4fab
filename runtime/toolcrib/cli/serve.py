"""`toolcrib serve`: offer the tools to other programs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from toolcrib.cli.entry import OutputError
from toolcrib.cli.options import (
    ReadOptions,
    open_runtime,
    passthrough_option,
    paths_argument,
    print_refusals,
    read_options,
)
from toolcrib.cli.trust import ask_for_consent
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import NOTHING
from toolcrib.core.text import escape_terminal
from toolcrib.serve.mcp import CertificateFiles, ListenAddress, Options, StdoutError, serve_http, serve_stdio
from toolcrib.serve.mcp.options import NEW_TOKEN


@click.group("serve")
def command() -> None:
    """Offer the tools to other programs."""


@command.command("mcp")
@paths_argument
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="Speak to the one client that started this, or to all that call at an address.",
)
@click.option(
    "--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Listen at this address."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8000,
    show_default=True,
    help="Listen at this port; 0 is any that is free.",
)
@click.option("--mode", metavar="MODE", help="Put every tool that has a block for it in this mode.")
@click.option("--toolset", metavar="NAME", default="", help="Serve only the tools of this toolset.")
@click.option(
    "--inline-refs", is_flag=True, help="Free schemas of references, for clients that do not follow them."
)
@click.option(
    "--no-watch", is_flag=True, help="Do not follow the files; what is read now is served to the end."
)
@click.option(
    "--page-size",
    type=click.IntRange(1),
    metavar="N",
    default=Options().page_tools,
    show_default=True,
    help="List so many tools on a page at most.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=Options().drain,
    show_default=True,
    help="Give calls in flight so long when a signal ends the server.",
)
@click.option(
    "--token-env", metavar="NAME", help="Clients must present the token in this environment variable."
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Clients must present the token in this file.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Serve https with the certificate in this PEM file, with its chain. Needs `--tls-key`.",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The key of the certificate, in a PEM file that is not encrypted.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Answer requests for this host too, as behind a proxy. May be given several times.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin call, such as https://app.example.com. May be given several times.",
)
@passthrough_option
@read_options
@click.pass_context
def serve_mcp(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    transport: str,
    host: str,
    port: int,
    mode: str | None,
    toolset: str,
    inline_refs: bool,
    no_watch: bool,
    page_size: int,
    drain: float,
    token_env: str | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    passthrough: bool,
    reading: ReadOptions,
) -> None:
    """Serve the tools as an MCP server.

    Over stdio it ends when its input does. Over HTTP, MCP is at /mcp, the tools of a toolset alone at /mcp/TOOLSET,
    and /healthz says whether it works; a server that other machines can reach needs a token of at least 16
    characters. SIGTERM and Ctrl-C end it once the calls in flight have ended. What is told to people goes to stderr.
    """
    if transport == "stdio":
        _refuse_options_of_http(context)
    options = Options(toolset, inline_refs, not no_watch, page_size, drain)
    tls = _certificate_files(tls_cert, tls_key)
    address = ListenAddress(host, port, _token(token_env, token_file), hosts, origins, tls=tls)
    modes: Mapping[str, str] = NOTHING if mode is None else {"*": mode}
    if transport == "http":
        address.checked()
    runtime = open_runtime(reading, paths, modes=modes, passthrough=passthrough)
    print_refusals(runtime)
    ask_for_consent(runtime)
    if transport == "http":
        asyncio.run(serve_http(runtime, options, address, _say))
    else:
        try:
            asyncio.run(serve_stdio(runtime, options, _say))
        except StdoutError as error:
            raise OutputError(error.strerror) from error


_OF_HTTP = frozenset({"host", "port", "token_env", "token_file", "tls_cert", "tls_key", "hosts", "origins"})


def _refuse_options_of_http(context: click.Context) -> None:
    """Raise where an option is given that has an effect only with HTTP."""
    given = [
        f"`{parameter.opts[0]}`"
        for parameter in context.command.params
        if parameter.name in _OF_HTTP
        and context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT
    ]
    if given:
        raise click.UsageError(
            f"without `--transport http` nothing is listened at, so {', '.join(given)} would do nothing; add the one "
            f"or leave the other{'s' if len(given) > 1 else ''} out"
        )


def _certificate_files(certificate: Path | None, key: Path | None) -> CertificateFiles | None:
    if certificate is not None and key is not None:
        return CertificateFiles(certificate, key)
    if certificate is None and key is None:
        return None
    given, missing = ("--tls-cert", "--tls-key") if key is None else ("--tls-key", "--tls-cert")
    raise click.UsageError(f"`{given}` needs `{missing}`")


def _say(text: str) -> None:
    """Tell people, not the client: stdout is the protocol's."""
    click.echo(f"toolcrib: {escape_terminal(text)}", err=True)


def _token(variable: str | None, file: Path | None) -> str:
    """The token that clients must present; empty for none.

    Raises:
        ConfigurationError: Two places are named for it, or there is none at the place that is named.
    """
    if variable is not None and file is not None:
        raise click.UsageError("`--token-env` and `--token-file` both name the token; leave one of them out")
    if variable is None and file is None:
        return ""
    place = f"`{variable}`" if file is None else f"`{file}`"
    try:
        token = os.environ.get(variable or "", "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the token in {place} can't be read: {error}") from None
    if not token.strip():
        raise ConfigurationError(
            f"there is no token in {place}",
            code="token_needed",
            hint=f"make one: {NEW_TOKEN}",
        )
    return token.strip()
