"""`toolcrib chat`: a conversation with a model and tools, at a terminal or in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.chat_approvals import Asking
from toolcrib.cli.chat_commands import Commands
from toolcrib.cli.chat_loop import Chat, is_piped
from toolcrib.cli.chat_output import JsonLines, Show, Terminal
from toolcrib.cli.chat_script import Script, script_of
from toolcrib.cli.options import Reading, json_option, passthrough_option, reading_options
from toolcrib.cli.runtime_options import agree_to_all, open_runtime, tell_refusals
from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, NOTHING, Outcome
from toolcrib.core.text import DuplicateKey, decode_json, escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.prompts import Prompt, find_prompt, parse_policy
from toolcrib.provider import Config, JSONLSink, Prices, Provider, ProviderMiddleware, Stop, ToolPolicy
from toolcrib.provider.conversations import SinkFailed
from toolcrib.provider.models.installed_providers import open_provider, reaching
from toolcrib.security.tool_policy import NO_POLICY

SCRIPTED = "scripted"
"""The provider that plays the script of a scenario."""

_LIMIT = exit_codes.OF_OUTCOME[Outcome.LIMIT_EXCEEDED]

OF_STOP: Mapping[Stop, int] = {
    **dict.fromkeys(Stop, _LIMIT),
    Stop.ANSWERED: exit_codes.OK,
    Stop.STOP_ON_TOOL: exit_codes.OK,
    Stop.PENDING: exit_codes.OF_OUTCOME[Outcome.NEEDS_APPROVAL],
    Stop.REFUSED: exit_codes.OF_OUTCOME[Outcome.DENIED],
    Stop.PROVIDER_FAILED: exit_codes.OF_OUTCOME[Outcome.TRANSPORT_ERROR],
    Stop.CANCELLED: exit_codes.OF_OUTCOME[Outcome.CANCELLED],
}
"""What the command ends with, by why a turn ended; a bound that was reached is `limit_exceeded`."""


class Said(NamedTuple):
    """What the command line says of the conversation."""

    name: str
    model: str
    base_url: str
    script: str | None
    prompt: str | None
    variables: tuple[str, ...]
    system: str | None
    policy_file: str | None
    settings: tuple[str, ...]
    prices: tuple[str, ...]
    approved: tuple[str, ...]
    transcript: Path | None
    as_json: bool


@click.command("chat")
@click.argument("words", nargs=-1, metavar="[PATH]... [MESSAGE]")
@click.option(
    "--provider",
    "name",
    required=True,
    metavar="NAME",
    help="Speak to `openai`, `openai_responses`, `azure_openai`, `anthropic`, a provider that is installed, or `scripted`.",
)
@click.option("--model", metavar="NAME", default="", help="Ask this model of the provider.")
@click.option(
    "--base-url",
    metavar="URL",
    default="",
    help="Find the provider here. An address of this machine, or one in numbers, may be reached then.",
)
@click.option(
    "--script",
    metavar="NAME|FILE",
    help="With `--provider scripted`: play what the agent of this scenario answers, with its mocks.",
)
@click.option(
    "--prompt",
    metavar="NAME",
    help="Take text, tools, policy and settings of this prompt of a pack: NAME or PACK/NAME.",
)
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Fill in a variable of the prompt. May be given several times.",
)
@click.option("--system", metavar="TEXT", help="Instruct the model so.")
@click.option(
    "--policy",
    "policy_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Hold the model to the policy in this file, YAML or JSON.",
)
@click.option("--mode", metavar="MODE", help="Put every tool that has a block for it in this mode.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the provider, such as temperature=0. May be given several times.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="KIND=USD",
    help="What a million tokens cost: input, output, cached, cache_writes. May be given several times.",
)
@click.option(
    "--approve",
    "approved",
    multiple=True,
    metavar="GLOB",
    help="Approve the calls of these tools without asking. May be given several times.",
)
@click.option(
    "--transcript",
    metavar="FILE.jsonl",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add each message to this file, one JSON object a line.",
)
@passthrough_option
@json_option
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    mode: str | None,
    passthrough: bool,
    reading: Reading,
    **rest: Any,
) -> None:
    """Hold a conversation with a model that uses the tools.

    With a MESSAGE one turn is held; without, each line of the standard input is one. PATHs are packs, folders and
    files to read tools from; a last word that is none of these is the MESSAGE. Calls are shown as they happen, without
    the secrets of their arguments and results; what the model says of these is shown as it says it. Those that wait
    for somebody are asked for at a terminal, and refused where there is none, unless `--approve` names them.
    Ctrl-C ends the turn that runs and keeps the conversation, Ctrl-D ends it, `/help` lists commands.

    The exit code tells of the first turn that ended otherwise than with an answer: 15 the model refused, 18 it was
    cancelled, 20 a bound of the policy or of the answer was reached, 21 the provider failed.
    """
    said = Said(**rest)
    _check(said)
    paths, message = _divided(words)
    if said.script is not None and Path(said.script).is_file():
        reading = reading._replace(packs=(*reading.packs, said.script))
    modes: Mapping[str, str] = NOTHING if mode is None else {"*": mode}
    runtime = open_runtime(reading, paths, modes=modes, passthrough=passthrough)
    tell_refusals(runtime)
    agree_to_all(runtime)
    with asyncio.Runner() as runner:
        try:
            runner.run(_entered(runtime))
            stops = _held(runner, runtime, said, message)
        except SinkFailed as error:
            raise click.ClickException(escape_terminal(error.message)) from error
        finally:
            runner.run(runtime.aclose())
    ctx.exit(next((code for stop in stops if (code := OF_STOP[stop])), exit_codes.OK))


async def _entered(runtime: Runtime) -> None:
    await runtime.__aenter__()  # left in the end, whatever happens between


def _held(runner: asyncio.Runner, runtime: Runtime, said: Said, message: str | None) -> list[Stop]:
    """Hold the conversation, and return why its turns ended."""
    script = script_of(runtime, said.script) if said.script is not None else None
    registry = runtime.registry if script is None else script.session.registry
    piped = is_piped()
    show: Show = JsonLines(registry) if said.as_json else Terminal(echoes=piped and message is None)
    before = None if script is None else script.client
    asking = Asking(runtime, said.approved, asks=not (piped or said.as_json), show=show, before=before)
    prompt = None if said.prompt is None else find_prompt(runtime.packs, said.prompt)
    policy = _policy(said, prompt, script)
    config = _config(said, prompt, asking)
    provider = _provider(runtime, said) if script is None else script.provider
    where = runtime if script is None else script.session
    middleware = ProviderMiddleware(provider, where, policy, config)
    guardrails = () if prompt is None else prompt.guardrails
    for each in guardrails:
        if each.unsupported:
            told = escape_terminal(f"the guardrail `{each.type}` is never judged: {each.unsupported}")
            click.echo(f"{click.style('warning', fg='yellow')}: {told}", err=True)
    chat = Chat(runner, middleware, show, asking, guardrails=guardrails)
    try:
        if message is not None:
            return [chat.one(message)]
        lines = _piped() if piped else chat.typed(script.lines if script is not None else ())
        return chat.all(lines, Commands(registry, policy, show, priced=config.prices is not None))
    finally:
        show.ended(chat.conversation)
        runner.run(_closed(provider))


async def _closed(provider: Provider) -> None:
    close = getattr(provider, "aclose", None)
    if close is not None:
        await close()


def _piped() -> Iterable[str]:
    return (line.strip() for line in sys.stdin)


# What the command line says.


def _check(said: Said) -> None:
    if (said.script is not None) != (said.name == SCRIPTED):
        raise click.UsageError("`--script` names what `--provider scripted` plays: give both, or neither")
    if said.system is not None and said.prompt is not None:
        raise click.UsageError("`--system` and `--prompt` both instruct the model; leave one of them out")
    if said.variables and said.prompt is None:
        raise click.UsageError("`--var` fills in a prompt, and none is named; add `--prompt`")


def _divided(words: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """The paths, and the message if the last word is no path."""
    *before, last = words or ("",)
    for word in before:
        if not Path(word).exists():
            raise click.UsageError(
                escape_terminal(f"there is no path `{word}`; write a message of several words in quotes")
            )
    if not words or _is_there(last):
        return words, None
    return tuple(before), last


def _is_there(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # no file could be called so
        return False


def _provider(runtime: Runtime, said: Said) -> Provider:
    world = reaching(runtime.engine.world, said.base_url) if said.base_url else runtime.engine.world
    return open_provider(said.name, model=said.model, base_url=said.base_url, world=world)


def _config(said: Said, prompt: Prompt | None, asking: Asking) -> Config:
    system = said.system or ""
    if prompt is not None:
        system = prompt.render(dict(_value_of(prompt, *_pair(text, "--var")) for text in said.variables))
    settings = {**(prompt.settings if prompt is not None else {})}
    settings |= {key: _json(text) for key, text in (_pair(each, "--set") for each in said.settings)}
    sink = None if said.transcript is None else JSONLSink(said.transcript)
    return Config(system=system, settings=settings, prices=_prices(said), client=asking.client, sink=sink)


def _pair(text: str, option: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise click.UsageError(escape_terminal(f"`{option} {text}` is not KEY=VALUE"))
    return key, value


def _json(text: str) -> JSON:
    """The value that a text stands for: JSON where it is some, else the text."""
    try:
        return decode_json(text)
    except DuplicateKey as error:
        raise click.UsageError(f"a value can't be read as JSON: {error}") from None
    except ValueError:
        return text


def _value_of(prompt: Prompt, name: str, text: str) -> tuple[str, JSON]:
    """A variable's value as its type has it."""
    variable = prompt.variables.get(name)
    return name, text if variable is None or variable.type == "string" else _json(text)


def _prices(said: Said) -> Prices | None:
    prices: dict[str, Any] = {}
    for kind, text in (_pair(each, "--price") for each in said.prices):
        try:
            prices[kind] = float(text)
        except ValueError:
            raise click.UsageError(escape_terminal(f"`--price {kind}={text}`: that is no number")) from None
    unknown = prices.keys() - set(Prices._fields)
    if unknown:
        listed = ", ".join(Prices._fields)
        raise click.UsageError(escape_terminal(f"`--price` knows no `{min(unknown)}`; there are {listed}"))
    return Prices(**prices) if prices else None


def _policy(said: Said, prompt: Prompt | None, script: Script | None) -> ToolPolicy:
    """The policy of the file; what that does not say of the tools, the prompt does."""
    own = prompt.policy if prompt is not None else script.policy if script is not None else NO_POLICY
    if said.policy_file is None:
        return own
    documents, problems = read_documents(said.policy_file, said.policy_file)
    found: list[Problem] = []
    policy = parse_policy(documents[0].value, "", found) if documents else NO_POLICY
    problems = [*problems, *(documents[0].place(each) for each in found)]
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    written = documents[0].value if documents else None
    keeps = isinstance(written, dict) and "allow" not in written
    return replace(policy, allow=own.allow) if keeps else policy
