"""`toolcrib serve`: serve the tools to other programs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, get_args
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from toolcrib.cli.call import logging_to
from toolcrib.cli.entry import OutputError
from toolcrib.cli.options import (
    ReadOptions,
    open_runtime,
    passthrough_option,
    paths_argument,
    policy_option,
    print_refusals,
    provider_options,
    read_options,
    settings_option,
)
from toolcrib.cli.trust import ask_for_consent
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import NOTHING
from toolcrib.core.text import escape_terminal
from toolcrib.engine.middleware.call_log import LOGGER, JSONFormatter
from toolcrib.engine.runtime import Runtime
from toolcrib.serve import a2a, acp
from toolcrib.serve.http_common.listen_address import NEW_TOKEN, CertificateFiles, ListenAddress, Say
from toolcrib.serve.http_common.stdio_pipes import StdoutError
from toolcrib.serve.inspection import inspectable
from toolcrib.serve.mcp import Options, serve_http, serve_stdio
from toolcrib.serve.mcp.options import Compat, SessionMode


@click.group("serve")
def command() -> None:
    """Serve the tools to other programs."""


F = TypeVar("F", bound=Callable[..., Any])

_SERVED = (
    click.option(
        "--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Listen on this address."
    ),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        metavar="N",
        default=8000,
        show_default=True,
        help="Listen on this port; 0 picks a free one.",
    ),
    click.option(
        "--name",
        metavar="NAME",
        default="",
        help="Name of the server for `toolcrib stats`, `top` and `cancel`. Default: that of the project, or of its folder.",
    ),
    click.option("--mode", metavar="MODE", help="Use this mode for every tool that has a block for it."),
    click.option("--toolset", metavar="NAME", default="", help="Serve only the tools of this toolset."),
    click.option(
        "--inline-refs", is_flag=True, help="Inline `$ref`s in schemas, for clients that cannot resolve them."
    ),
    click.option("--no-watch", is_flag=True, help="Do not reload when files change."),
    click.option(
        "--drain",
        type=click.FloatRange(0),
        metavar="SECONDS",
        default=Options().drain,
        show_default=True,
        help="Wait this long for calls in flight when a signal stops the server.",
    ),
    click.option(
        "--token-env",
        "token_variables",
        multiple=True,
        metavar="NAME",
        help="Clients must present the token in this environment variable. Can be repeated, for clients that do not share "
        "sessions. The name of the variable is the user of their calls, for access rules, approvals and budgets.",
    ),
    click.option(
        "--token-file",
        "token_files",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Clients must present the token in this file. Can be repeated. FILE is the user of their calls.",
    ),
    click.option(
        "--tls-cert",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Serve HTTPS with the certificate chain in this PEM file. Requires `--tls-key`.",
    ),
    click.option(
        "--tls-key",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Private key of the certificate, in an unencrypted PEM file.",
    ),
    click.option(
        "--allow-host",
        "hosts",
        multiple=True,
        metavar="HOST",
        help="Also accept requests for this host, such as behind a proxy. Can be repeated.",
    ),
    click.option(
        "--allow-origin",
        "origins",
        multiple=True,
        metavar="ORIGIN",
        help="Allow requests from pages of this origin, such as https://app.example.com. Can be repeated.",
    ),
)
"""The options of every server, in the order of the help."""


class ServerOptions(NamedTuple):
    """The options of every server, as they were given."""

    host: str
    port: int
    name: str
    mode: str | None
    toolset: str
    inline_refs: bool
    no_watch: bool
    drain: float
    token_variables: tuple[str, ...]
    token_files: tuple[Path, ...]
    tls_cert: Path | None
    tls_key: Path | None
    hosts: tuple[str, ...]
    origins: tuple[str, ...]

    def address(self) -> ListenAddress:
        """Where to listen.

        Raises:
            click.UsageError: Only one of the files for HTTPS is given.
            ConfigurationError: A token cannot be read.
        """
        tls = _certificate_files(self.tls_cert, self.tls_key)
        tokens = tokens_of(self.token_variables, self.token_files)
        return ListenAddress(
            self.host, self.port, tuple(tokens.values()), tuple(tokens), self.hosts, self.origins, tls=tls
        )


def _server_options(function: F) -> F:
    """Add the options of every server, as one parameter `server`."""

    @wraps(function)
    def command(*args: Any, **rest: Any) -> Any:
        server = ServerOptions(**{key: rest.pop(key) for key in ServerOptions._fields})
        return function(*args, server=server, **rest)

    for option in reversed(_SERVED):
        option(command)
    return cast(F, command)


@command.command("mcp")
@paths_argument
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="Serve the one client that started this process, or all clients that connect to an address.",
)
@_server_options
@click.option(
    "--page-size",
    type=click.IntRange(1),
    metavar="N",
    default=Options().page_tools,
    show_default=True,
    help="List at most N tools per page.",
)
@click.option(
    "--sessions",
    type=click.Choice(get_args(SessionMode)),
    default=Options().sessions,
    show_default=True,
    help="How clients of MCP 2026-07-28 get their session: one per token, or one per handle, which the added tool "
    "`open_session` returns and the tools that keep state take as the argument `session`.",
)
@click.option(
    "--session-age",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=Options().session_age,
    show_default=True,
    help="End a session that a client opened or named after this time.",
)
@click.option(
    "--compat",
    type=click.Choice(["andy"]),
    help="Serve clients of Andy.Acp, too: `parameters` of a call, filters of a list, `result` and `error` of an answer.",
)
@passthrough_option
@read_options
@click.pass_context
def serve_mcp(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    server: ServerOptions,
    transport: str,
    page_size: int,
    sessions: SessionMode,
    session_age: float,
    compat: Compat | None,
    passthrough: bool,
    reading: ReadOptions,
) -> None:
    """Serve the tools as an MCP server.

    Over stdio, the server stops at the end of its input. Over HTTP, MCP is at /mcp, a single toolset at /mcp/TOOLSET,
    and the health check at /healthz; a server that other machines can reach requires a token of at least 16 characters.
    SIGTERM and Ctrl-C stop the server after the calls in flight. Messages for people go to stderr.
    """
    if transport == "stdio":
        _refuse_options_of_http(context)
    options = Options(
        server.toolset,
        server.inline_refs,
        not server.no_watch,
        page_size,
        server.drain,
        sessions,
        session_age,
        compat=compat or "",
    )
    address = server.address()
    if transport == "http":
        # An address that needs a token or a certificate is refused before anything is opened.
        address.checked()
    runtime = _opened(paths, server.mode, passthrough=passthrough, reading=reading)
    with _logged_calls():
        if transport == "http":
            serve = partial(serve_http, runtime, options, address)
            asyncio.run(_served(runtime, server.name, transport, serve))
            return
        try:
            asyncio.run(_served(runtime, server.name, transport, partial(serve_stdio, runtime, options)))
        except StdoutError as error:
            # The entry point turns this into the message and the exit code for output that cannot be written.
            raise OutputError(error.strerror) from error


@command.command("a2a")
@paths_argument
@_server_options
@click.option(
    "--url",
    metavar="URL",
    default="",
    help="Origin in the URLs of the card, such as https://agent.example.com behind a proxy. Default: that of the request.",
)
@click.option("--legacy", is_flag=True, help="Also serve peers of A2A 0.3.")
@click.option(
    "--require-extension",
    is_flag=True,
    help="Refuse messages of peers that do not declare the extension for tool descriptors.",
)
@click.option(
    "--task-age",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=a2a.AgentOptions().task_age,
    show_default=True,
    help="Keep a task this long after its last change.",
)
@click.option(
    "--most-tasks",
    type=click.IntRange(1),
    metavar="N",
    default=a2a.AgentOptions().most_tasks,
    show_default=True,
    help="Keep at most N tasks. Those that ended first are dropped first.",
)
@click.option(
    "--sign-key",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Sign the card with the private key in this unencrypted PEM file: EC (P-256), RSA or Ed25519.",
)
@click.option(
    "--sign-key-id",
    metavar="ID",
    default="",
    help="Name of that key in the signature. Default: the thumbprint of the public key (RFC 7638).",
)
@passthrough_option
@read_options
def serve_a2a(
    *,
    paths: tuple[str, ...],
    server: ServerOptions,
    url: str,
    legacy: bool,
    require_extension: bool,
    task_age: float,
    most_tasks: int,
    sign_key: Path | None,
    sign_key_id: str,
    passthrough: bool,
    reading: ReadOptions,
) -> None:
    """Serve the tools as an A2A agent.

    The agent is at /a2a, an agent with a single toolset at /a2a/TOOLSET, and the health check at /healthz. Its card is
    at /.well-known/agent-card.json. A server that other machines can reach requires a token of at least 16 characters.
    SIGTERM and Ctrl-C stop the server after the calls in flight. Messages for people go to stderr.
    """
    if sign_key_id and sign_key is None:
        raise click.UsageError("`--sign-key-id` needs `--sign-key`")
    options = a2a.AgentOptions(
        server.toolset,
        server.inline_refs,
        not server.no_watch,
        server.drain,
        _origin(url),
        legacy,
        require_extension,
        task_age,
        most_tasks,
        None if sign_key is None else a2a.CardKey(sign_key, sign_key_id),
    )
    address = server.address()
    # An address that needs a token or a certificate is refused before anything is opened.
    address.checked()
    runtime = _opened(paths, server.mode, passthrough=passthrough, reading=reading)
    with _logged_calls():
        asyncio.run(_served(runtime, server.name, "a2a", partial(a2a.serve_http, runtime, options, address)))


@command.command("acp")
@paths_argument
@provider_options
@click.option("--system", metavar="TEXT", help="System prompt for the model.")
@policy_option
@settings_option
@click.option("--mode", metavar="MODE", help="Use this mode for every tool that has a block for it.")
@click.option(
    "--conversations",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the sessions in this folder, so that the editor can list and reopen them. Default: they end with the agent.",
)
@click.option(
    "--context-size",
    type=click.IntRange(0),
    metavar="TOKENS",
    default=0,
    help="Tokens that the model can read at once. The editor then shows how many of them are used.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record every message to this file, for `toolcrib doctor --acp` and `toolcrib agent replay`. Secrets are masked.",
)
@click.option(
    "--name",
    metavar="NAME",
    default="",
    help="Name of the server for `toolcrib stats`, `top` and `cancel`. Default: that of the project, or of its folder.",
)
@passthrough_option
@read_options
@click.pass_context
def serve_acp(
    ctx: click.Context,
    *,
    paths: tuple[str, ...],
    provider: str,
    model: str,
    base_url: str,
    script: str | None,
    system: str | None,
    policy_file: str | None,
    settings: tuple[str, ...],
    mode: str | None,
    conversations: Path | None,
    context_size: int,
    record: Path | None,
    name: str,
    passthrough: bool,
    reading: ReadOptions,
) -> None:
    """Serve a model that uses the tools as an agent of the Agent Client Protocol.

    An editor starts this command and speaks ACP with it over stdin and stdout. It shows the calls, and asks its user about
    those that need approval. Tools in mode `client` can use the files and terminals of the editor. The agent stops at the end
    of its input, at SIGTERM and at Ctrl-C; running calls are cancelled and reported. Messages for people go to stderr: also
    what waits for an answer for 30 s, and what the editor does against the protocol.
    """
    # Deferred: other servers hold no conversations.
    from toolcrib.cli.chat import ChatOptions, check_script, editor_agent, with_provider  # noqa: PLC0415
    from toolcrib.provider import FolderConversations  # noqa: PLC0415

    check_script(provider, script)
    # The scenario may be in a file outside the project, so the file is added to what is read.
    if script is not None and Path(script).is_file():
        reading = reading._replace(packs=(*reading.packs, script))
    runtime = _opened(paths, mode, passthrough=passthrough, reading=reading)
    asked = ChatOptions(
        provider, model, base_url, script, system=system, policy_file=policy_file, settings=settings
    )
    asked = with_provider(ctx, runtime, asked)
    options = editor_agent(runtime, asked)._replace(context_size=context_size, record=record)
    if conversations is not None:
        options = options._replace(store=FolderConversations(conversations))
    with _logged_calls():
        try:
            asyncio.run(_served(runtime, name, "acp", partial(acp.serve_stdio, runtime, options)))
        except StdoutError as error:
            raise OutputError(error.strerror) from error


def _origin(url: str) -> str:
    """An origin, or an empty text.

    Raises:
        click.UsageError: It is not an origin of HTTP.
    """
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.netloc or parts.path not in {"", "/"}):
        raise click.UsageError(
            f"`--url {url}` is not an origin; use scheme and host: https://agent.example.com"
        )
    return url.rstrip("/")


def _opened(paths: tuple[str, ...], mode: str | None, *, passthrough: bool, reading: ReadOptions) -> Runtime:
    """Open the tools that are served, after what the user has to know and to decide."""
    modes: Mapping[str, str] = NOTHING if mode is None else {"*": mode}
    runtime = open_runtime(reading, paths, modes=modes, passthrough=passthrough)
    print_refusals(runtime)
    ask_for_consent(runtime)
    return runtime


def _logged_calls() -> AbstractContextManager[None]:
    """Print the log records of calls on stderr as JSON lines; `telemetry` decides whether there are any."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter())
    return logging_to(handler, LOGGER, logging.INFO)


async def _served(
    runtime: Runtime, name: str, transport: str, serve: Callable[[Say], Coroutine[Any, Any, None]]
) -> None:
    """Serve a runtime that its user can inspect."""
    notes: list[str] = []

    def say(text: str) -> None:
        _say(text)
        # After the first line, since programs read the address from it.
        while notes:
            _say(notes.pop(0))

    async with inspectable(runtime, name, transport, notes.append):
        await serve(say)


_OF_HTTP = frozenset(
    {
        "host",
        "port",
        "token_variables",
        "token_files",
        "sessions",
        "session_age",
        "tls_cert",
        "tls_key",
        "hosts",
        "origins",
    }
)


def _refuse_options_of_http(context: click.Context) -> None:
    """Raise if an option is given that only has an effect with HTTP."""
    given = [
        f"`{parameter.opts[0]}`"
        for parameter in context.command.params
        if parameter.name in _OF_HTTP
        # Comparing values would miss an option that repeats its default, such as `--port 8000`.
        and context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} {'have' if len(given) > 1 else 'has'} no effect without `--transport http`; add it, "
            f"or remove {'these options' if len(given) > 1 else 'this option'}"
        )


def _certificate_files(certificate: Path | None, key: Path | None) -> CertificateFiles | None:
    if certificate is not None and key is not None:
        return CertificateFiles(certificate, key)
    if certificate is None and key is None:
        return None
    given, missing = ("--tls-cert", "--tls-key") if key is None else ("--tls-key", "--tls-cert")
    raise click.UsageError(f"`{given}` needs `{missing}`")


def _say(text: str) -> None:
    """Print a message on stderr; over stdio, stdout belongs to the protocol."""
    click.echo(f"toolcrib: {escape_terminal(text)}", err=True)


def tokens_of(variables: Iterable[str], files: Iterable[Path]) -> dict[str, str]:
    """Read the tokens, one of which clients must present: name of the variable or file -> token.

    Raises:
        ConfigurationError: A variable or a file is empty or cannot be read, or two of them have the same name.
    """
    read: list[tuple[str, Callable[[], str]]] = [
        *((variable, partial(_variable, variable)) for variable in variables),
        *((str(file), partial(file.read_text, encoding="utf-8")) for file in files),
    ]
    tokens: dict[str, str] = {}
    for name, text in read:
        if name in tokens:
            raise ConfigurationError(
                f"two tokens have the name `{name}`, which is the user of their calls",
                hint="name each variable and each file once",
            )
        tokens[name] = _token(f"`{name}`", text)
    return tokens


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def _token(place: str, read: Callable[[], str]) -> str:
    try:
        token = read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the token in {place}: {error}") from None
    if not token.strip():
        raise ConfigurationError(
            f"no token in {place}",
            code="token_needed",
            hint=f"generate one: {NEW_TOKEN}",
        )
    # A file usually ends with a newline, which is not part of the token.
    return token.strip()
