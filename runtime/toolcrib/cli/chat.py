"""`toolcrib chat`: a conversation with a model that uses the tools, at a terminal or in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.chat_output import ApprovalPrompt, ChatCommands, ChatDisplay, JsonLines, Terminal
from toolcrib.cli.group import ENDING_SIGNAL, EndingSignal
from toolcrib.cli.options import (
    ReadOptions,
    json_option,
    open_runtime,
    passthrough_option,
    policy_option,
    print_refusals,
    provider_options,
    read_options,
    settings_option,
)
from toolcrib.cli.redirected_stdout import duplicated_stdout, redirected_stdout
from toolcrib.cli.trust import ask_for_consent, print_denied
from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, ToolcribError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Outcome
from toolcrib.core.text import DuplicateKey, decode_json, escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.engine.workspaces import subject_of_chat
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.prompts import Guardrail, Prompt, find_prompt, parse_policy
from toolcrib.loading.scenarios.agent_checks import prompt_of
from toolcrib.loading.scenarios.model import Scenario, ScenarioAgent
from toolcrib.provider import (
    Answer,
    Config,
    Conversation,
    Event,
    JSONLSink,
    Prices,
    Provider,
    ProviderMiddleware,
    Stop,
    ToolPolicy,
)
from toolcrib.provider.conversations import SinkFailed
from toolcrib.provider.models.installed_providers import allow_base_url, open_provider, provider_names
from toolcrib.provider.models.scripted import Scripted, scripted_replies
from toolcrib.registry.names import short_name
from toolcrib.scenarios.run_setup import tools_for
from toolcrib.scenarios.runs import runs_of
from toolcrib.scenarios.user_simulator import ClientStub
from toolcrib.security.tool_policy import NO_POLICY
from toolcrib.security.trust import Untrusted
from toolcrib.serve.acp import EditorAgent

T = TypeVar("T")

SCRIPTED = "scripted"
"""Name of the provider that replays the agent script of a scenario."""

_LIMIT = exit_codes.OF_OUTCOME[Outcome.LIMIT_EXCEEDED]

OF_STOP: Mapping[Stop, int] = {
    **dict.fromkeys(Stop, _LIMIT),
    # A stop reason without an entry below is a limit that was reached.
    Stop.ANSWERED: exit_codes.OK,
    Stop.STOP_ON_TOOL: exit_codes.OK,
    Stop.PENDING: exit_codes.OF_OUTCOME[Outcome.NEEDS_APPROVAL],
    Stop.REFUSED: exit_codes.OF_OUTCOME[Outcome.DENIED],
    Stop.PROVIDER_FAILED: exit_codes.OF_OUTCOME[Outcome.TRANSPORT_ERROR],
    Stop.CANCELLED: exit_codes.OF_OUTCOME[Outcome.CANCELLED],
}
"""Exit code by the reason why a turn ended; a limit that was reached is `limit_exceeded`."""


class ChatOptions(NamedTuple):
    """The command-line options of the conversation."""

    provider: str
    model: str
    base_url: str
    script: str | None
    prompt: str | None = None
    variables: tuple[str, ...] = ()
    system: str | None = None
    policy_file: str | None = None
    settings: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    transcript: Path | None = None
    as_json: bool = False


@click.command("chat")
@click.argument("words", nargs=-1, metavar="[PATH]... [MESSAGE]")
@provider_options
@click.option(
    "--prompt",
    metavar="NAME",
    help="Use the text, tools, policy and settings of this pack prompt: NAME or PACK/NAME.",
)
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable of the prompt. Can be repeated.",
)
@click.option("--system", metavar="TEXT", help="System prompt for the model.")
@policy_option
@click.option("--mode", metavar="MODE", help="Use this mode for every tool that has a block for it.")
@settings_option
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="KIND=USD",
    help="Price in USD of a million tokens: input, output, cached or cache_writes. Can be repeated.",
)
@click.option(
    "--approve",
    "approved",
    multiple=True,
    metavar="GLOB",
    help="Approve calls of matching tools without asking. Can be repeated.",
)
@click.option(
    "--transcript",
    metavar="FILE.jsonl",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append each message to this file, one JSON object per line. Those with secrets are encrypted with the key of "
    "`toolcrib approvals key`; without a key, they have `***` in place of secrets.",
)
@passthrough_option
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    mode: str | None,
    passthrough: bool,
    reading: ReadOptions,
    **rest: Any,
) -> None:
    """Chat with a model that uses the tools.

    With a MESSAGE, one turn runs; without one, each line of standard input is a turn. PATHs are packs, folders and
    files to read tools from; a last word that is not an existing path is the MESSAGE. Calls are shown as they happen,
    with the secrets in their arguments and results masked; the text of the model is shown unchanged. A call that needs
    an answer asks at a terminal; without a terminal it is refused, unless `--approve` names its tool. Ctrl-C cancels
    the current turn and keeps the conversation, Ctrl-D ends the conversation, `/help` lists the commands.

    The exit code reports the first turn that did not end with an answer: 15 the model refused, 18 the turn was
    cancelled, 20 a limit of the policy or of the answer was reached, 21 the provider failed.
    """
    options = ChatOptions(**rest)
    _check(options)
    paths, message = _divided(words)
    # The scenario may be in a file outside the project, so the file is added to what is read.
    if options.script is not None and Path(options.script).is_file():
        reading = reading._replace(packs=(*reading.packs, options.script))
    modes: Mapping[str, str] = NOTHING if mode is None else {"*": mode}
    runtime = open_runtime(reading, paths, modes=modes, passthrough=passthrough)
    print_refusals(runtime)
    options = with_provider(ctx, runtime, options)
    # Ask before the first turn: later, the terminal belongs to the conversation.
    ask_for_consent(runtime)
    with asyncio.Runner() as runner:
        try:
            _run(runner, _entered(runtime))
            # One runner for all turns: Ctrl-C cancels the coroutine of a turn and leaves the connections of
            # the loop open.
            with duplicated_stdout() as out:
                stops = _held(runner, runtime, options, message, out)
        except SinkFailed as error:
            raise click.ClickException(escape_terminal(error.message)) from error
        finally:
            _run(runner, runtime.aclose())
    ctx.exit(next((code for stop in stops if (code := OF_STOP[stop])), exit_codes.OK))


def _run(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. What tools and their programs print goes to stderr; displays print on a duplicate of stdout."""
    with redirected_stdout():
        return runner.run(work)


async def _entered(runtime: Runtime) -> None:
    # `aclose` in the `finally` of the command is the counterpart: the block spans several `runner.run` calls.
    await runtime.__aenter__()


def _held(
    runner: asyncio.Runner, runtime: Runtime, options: ChatOptions, message: str | None, out: TextIO
) -> list[Stop]:
    """Run the conversation, print it on `out`, and return why each turn ended."""
    # A script runs in the session of its scenario, whose mocks may differ from those of the project: commands
    # list that session's tools.
    script = load_script(runtime, options.script) if options.script is not None else None
    registry = runtime.registry if script is None else script.session.registry
    piped = is_piped()
    show: ChatDisplay = (
        JsonLines(registry, out) if options.as_json else Terminal(out, echoes=piped and message is None)
    )
    before = None if script is None else script.client
    asking = ApprovalPrompt(
        runtime, options.approved, asks=not (piped or options.as_json), show=show, before=before
    )
    prompt = None if options.prompt is None else find_prompt(runtime.packs, options.prompt)
    policy = policy_of(options, prompt, script)
    config = _config(options, prompt, asking)
    provider = provider_of(runtime, options) if script is None else script.provider
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
        return chat.all(lines, ChatCommands(registry, policy, show, priced=config.prices is not None))
    finally:
        # Also after an error: with `--json`, the conversation so far is the last line.
        show.ended(chat.conversation)
        _run(runner, close_provider(provider))


async def close_provider(provider: Provider) -> None:
    """Release the connections of a provider."""
    close = getattr(provider, "aclose", None)
    if close is not None:
        await close()


def _piped() -> Iterable[str]:
    return (line.strip() for line in sys.stdin)


# Command-line options.


def check_script(provider: str, script: str | None) -> None:
    """Raise UsageError unless a script is given exactly for the provider that replays it; a script alone chooses it."""
    if provider and (script is not None) != (provider == SCRIPTED):
        raise click.UsageError("`--script` and `--provider scripted` need each other; use both or neither")


def with_provider(ctx: click.Context, runtime: Runtime, options: ChatOptions) -> ChatOptions:
    """The options with a provider: that of the script, or `chat` of a trusted project, if the command line names none.

    Ends the command with the code of `denied` if the project is not trusted.

    Raises:
        click.UsageError: Nothing names a provider; the message lists them.
    """
    if options.script is not None:
        return options._replace(provider=SCRIPTED)
    project = runtime.project
    chat = project.chat if project is not None else NOTHING
    if options.provider:
        # The model of the project is not for another provider.
        same = options.provider == chat.get("provider")
        return options._replace(model=options.model or (chat.get("model", "") if same else ""))
    if project is None or not chat:
        names = ", ".join(f"`{name}`" for name in provider_names())
        raise click.UsageError(
            f"no provider is chosen; use `--provider` and `--model`. The providers are: {names}, and `scripted` with "
            "`--script`. A project can name its own in toolcrib.yaml: `chat: {provider: NAME, model: NAME}`"
        )
    try:
        engine_of(runtime).trust.check(subject_of_chat(project))
    except Untrusted:
        print_denied(runtime)
        ctx.exit(exit_codes.OF_OUTCOME[Outcome.DENIED])
    check_script(chat["provider"], None)
    return options._replace(provider=chat["provider"], model=options.model or chat.get("model", ""))


def _check(options: ChatOptions) -> None:
    check_script(options.provider, options.script)
    if options.system is not None and options.prompt is not None:
        raise click.UsageError("`--system` and `--prompt` both set the system prompt; use only one of them")
    if options.variables and options.prompt is None:
        raise click.UsageError("`--var` sets a variable of a prompt; add `--prompt`")


def _divided(words: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Split the words into paths and a message; the last word is the message if no such path exists."""
    *before, last = words or ("",)
    # A misspelt path must not reach the model as part of a message.
    for word in before:
        if not Path(word).exists():
            raise click.UsageError(
                escape_terminal(f"path `{word}` does not exist; put a message of several words in quotes")
            )
    if not words or _is_there(last):
        return words, None
    return tuple(before), last


def _is_there(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):
        # A message may be longer than a file name, or contain a NUL byte.
        return False


def provider_of(runtime: Runtime, options: ChatOptions) -> Provider:
    """Open the provider of the options."""
    world = (
        # A URL on the command line comes from the operator, so it may be private, unlike a URL in a document.
        allow_base_url(engine_of(runtime).world, options.base_url)
        if options.base_url
        else engine_of(runtime).world
    )
    # A provider of another distribution is imported, and may print.
    with redirected_stdout():
        return open_provider(options.provider, model=options.model, base_url=options.base_url, world=world)


def editor_agent(runtime: Runtime, options: ChatOptions) -> EditorAgent:
    """The model and the tools of an agent that is served.

    Raises:
        ConfigurationError: The provider cannot be opened, or the scenario does not exist.
    """
    system, settings = options.system or "", settings_of(options.settings)
    if options.script is not None:
        name, script = options.script, load_script(runtime, options.script)
        return EditorAgent(
            # A provider of its own for each session, because it counts which replies were used.
            lambda: load_script(runtime, name).provider,
            script.session.registry,
            policy_of(options, None, script),
            system,
            settings,
            script.session.seed,
            script.client,
        )
    # Opened once for its errors, which the user must see before the editor does.
    with asyncio.Runner() as runner:
        _run(runner, close_provider(provider_of(runtime, options)))
    policy = policy_of(options, None, None)
    return EditorAgent(
        partial(provider_of, runtime, options), policy=policy, system=system, settings=settings
    )


def _config(options: ChatOptions, prompt: Prompt | None, asking: ApprovalPrompt) -> Config:
    system = options.system or ""
    if prompt is not None:
        system = prompt.render(dict(_value_of(prompt, *_pair(text, "--var")) for text in options.variables))
    settings = {**(prompt.settings if prompt is not None else {}), **settings_of(options.settings)}
    sink = None if options.transcript is None else JSONLSink(options.transcript)
    return Config(system=system, settings=settings, prices=_prices(options), client=asking.client, sink=sink)


def settings_of(written: Iterable[str]) -> dict[str, JSON]:
    """The provider settings of `--set`."""
    return {key: _json(text) for key, text in (_pair(each, "--set") for each in written)}


def _pair(text: str, option: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise click.UsageError(escape_terminal(f"`{option} {text}` is not KEY=VALUE"))
    return key, value


def _json(text: str) -> JSON:
    """Parse a value as JSON; return the text itself if it is not JSON."""
    try:
        # A duplicate key is reported: the text looks like JSON, and taking it as a string would hide the
        # mistake.
        return decode_json(text)
    except DuplicateKey as error:
        raise click.UsageError(f"invalid JSON value: {error}") from None
    except ValueError:
        return text


def _value_of(prompt: Prompt, name: str, text: str) -> tuple[str, JSON]:
    """Convert the value of a variable: text for type `string`, otherwise JSON if possible."""
    variable = prompt.variables.get(name)
    return name, text if variable is None or variable.type == "string" else _json(text)


def _prices(options: ChatOptions) -> Prices | None:
    prices: dict[str, Any] = {}
    for kind, text in (_pair(each, "--price") for each in options.prices):
        try:
            prices[kind] = float(text)
        except ValueError:
            raise click.UsageError(escape_terminal(f"`--price {kind}={text}`: not a number")) from None
    unknown = prices.keys() - set(Prices._fields)
    if unknown:
        listed = ", ".join(Prices._fields)
        raise click.UsageError(
            escape_terminal(f"unknown `--price` kind `{min(unknown)}`; the kinds are: {listed}")
        )
    return Prices(**prices) if prices else None


def policy_of(options: ChatOptions, prompt: Prompt | None, script: Script | None) -> ToolPolicy:
    """The policy of the file; without `allow` in the file, the allowed tools are those of the prompt or script."""
    own = prompt.policy if prompt is not None else script.policy if script is not None else NO_POLICY
    if options.policy_file is None:
        return own
    policy, keys = _read_policy(options.policy_file)
    # A missing `allow` means "all tools". In a file that only adds limits, this would widen what the prompt
    # allows.
    return policy if "allow" in keys else replace(policy, allow=own.allow)


def read_policy(file: str) -> ToolPolicy:
    """The policy in a file.

    Raises:
        DocumentError: The file is not a policy.
    """
    return _read_policy(file)[0]


def _read_policy(file: str) -> tuple[ToolPolicy, frozenset[str]]:
    """The policy in a file, and its keys."""
    documents, problems = read_documents(file, file)
    found: list[Problem] = []
    policy = parse_policy(documents[0].value, "", found) if documents else NO_POLICY
    problems = [*problems, *(documents[0].place(each) for each in found)]
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    written = documents[0].value if documents else None
    return policy, frozenset(written if isinstance(written, dict) else ())


def is_piped() -> bool:
    """Whether the user's messages come from a pipe or a file."""
    return not sys.stdin.isatty()


async def violated_guardrails(guardrails: Sequence[Guardrail], conversation: Conversation) -> list[str]:
    """Check the texts of the last turn against the guardrails; one line for each violated one."""
    if not guardrails:
        return []
    from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415 -- most conversations have no guardrails
    from toolcrib.scenarios.assertions import Trajectory, evaluate_assertion  # noqa: PLC0415 -- as above

    lines = []
    texts = Trajectory.of(conversation, conversation.turns).texts
    for each in guardrails:
        for settled in check_guardrails([{"type": each.type, "params": {**each.params}}], "", []):
            # Each text gets a trajectory of its own, since most assertions only look at the last text.
            verdicts = [await evaluate_assertion(settled, Trajectory(texts=(text,))) for text in texts]
            found = next((verdict for verdict in verdicts if verdict.applies and not verdict.passed), None)
            if found is not None:
                lines.append(f"guardrail `{each.type}`: {each.message or found.message}")
    return lines


class Chat:
    """Runs the turns of a conversation.

    Attributes:
        conversation: The conversation so far.
    """

    def __init__(
        self,
        runner: asyncio.Runner,
        middleware: ProviderMiddleware,
        show: ChatDisplay,
        asking: ApprovalPrompt,
        *,
        guardrails: Sequence[Guardrail] = (),
    ) -> None:
        """Set up a conversation without turns.

        Args:
            runner: Event loop for all turns.
            middleware: The tool loop.
            show: Displays events.
            asking: Answers pending calls.
            guardrails: Checked against the model's texts after each turn.
        """
        self.conversation = Conversation()
        self._guardrails = guardrails
        self._runner = runner
        self._middleware = middleware
        self._show = show
        self._asking = asking
        self._signal: EndingSignal = click.get_current_context().meta[ENDING_SIGNAL]

    def one(self, message: str) -> Stop:
        """Run one turn and return why it ended."""
        return self._turn(message)

    def all(self, lines: Iterable[str], commands: ChatCommands) -> list[Stop]:
        """Run a turn for each line; lines that begin with `/` are commands. Returns why each turn ended."""
        stops = []
        for line in lines:
            if not line.strip():
                continue
            self._show.said(line)
            if not line.startswith("/"):
                stops.append(self._turn(line))
            elif commands.run(line, self.conversation):
                break
        return stops

    def typed(self, suggested: Sequence[str] = ()) -> Iterator[str]:
        """Yield the lines that are typed, up to Ctrl-D.

        Args:
            suggested: The user's messages in a script; an empty line sends the next one.
        """
        with suppress(ImportError):
            # Importing readline gives `input` line editing and history. Windows has no such module.
            import readline  # noqa: F401, PLC0415
        broken_off = False
        while True:
            # The whole body is in the `try`: a second Ctrl-C may arrive while the first one is reported.
            try:
                if broken_off:
                    click.echo("\nCtrl-D or /quit ends the conversation")
                broken_off = False
                line = self._typed_line(suggested)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                if self._signal.ends:
                    raise
                broken_off = True
            else:
                yield line

    def _typed_line(self, suggested: Sequence[str]) -> str:
        turn = self.conversation.turns
        next_line = suggested[turn] if turn < len(suggested) else ""
        if next_line:
            self._show.note(f"(press Enter to send: {next_line})")
        return input("> ").strip() or next_line

    def _turn(self, text: str) -> Stop:
        stop = self._hold(self.conversation, self.conversation.saying(text), NOTHING)
        while stop is Stop.PENDING:
            answers = self._asking.answers(self.conversation.pending)
            # Answering may make further calls that are pending, so this repeats until the turn ends.
            stop = self._hold(self.conversation, self.conversation, answers)
            self._asking.settled()
        for line in _run(self._runner, violated_guardrails(self._guardrails, self.conversation)):
            self._show.warning(line)
        return stop

    def _hold(self, before: Conversation, now: Conversation, answers: Mapping[str, Answer]) -> Stop:
        """Run the model on a conversation; the messages and calls so far are kept however the turn ends."""
        # This is what remains if the loop raises before it returns a conversation.
        self.conversation = before._replace(stop=None, detail="", pending=())
        try:
            self.conversation = _run(self._runner, self._followed(now, answers))
        except KeyboardInterrupt:
            if self._signal.ends:
                raise
            self._ended_by(Stop.CANCELLED)
            self._show.broken_off()
        except SinkFailed:
            raise
        except ToolcribError as error:
            self._ended_by(Stop.PROVIDER_FAILED)
            self._show.error(error)
        else:
            self._show.stopped(self.conversation)
        assert self.conversation.stop is not None  # noqa: S101 -- each branch has set it
        return self.conversation.stop

    async def _followed(self, now: Conversation, answers: Mapping[str, Answer]) -> Conversation:
        async with aclosing(self._middleware.stream(now, answers, broken_off=self._broken_off)) as items:
            async for item in items:
                if isinstance(item, Conversation):
                    return item
                self._show.event(item)
        raise AssertionError("a turn ends with its conversation")

    def _broken_off(self, events: Sequence[Event], conversation: Conversation) -> None:
        """Keep the state of a cancelled turn and show its last calls."""
        self.conversation = conversation
        for event in events:
            self._show.event(event)

    def _ended_by(self, stop: Stop) -> None:
        self.conversation = self.conversation._replace(stop=stop)


class Script(NamedTuple):
    """The agent script of a scenario, ready to run.

    Attributes:
        provider: Replays the script.
        session: Makes the calls, with the modes, mocks, store and faults of the scenario.
        policy: The tool policy of the scenario.
        client: Fulfils the `client` tools that the scenario has answers for.
        lines: The user's messages by turn; empty where a message needs values that are known only later.
    """

    provider: Scripted
    session: Session
    policy: ToolPolicy
    client: ClientStub
    lines: tuple[str, ...]


def load_script(runtime: Runtime, named: str) -> Script:
    """Load the agent script of a scenario.

    Args:
        runtime: The runtime with the scenarios.
        named: Name of the scenario, or its file.

    Raises:
        ConfigurationError: No scenario with an agent has this name or file.
    """
    # A scenario with a matrix or repetitions is replayed as its first run.
    scenario = runs_of(_found(runtime, named))[0]
    agent = scenario.agent
    assert agent is not None  # noqa: S101 -- `_found` returns scenarios with an agent
    told: dict[str, JSON] = {"seed": scenario.seed, "run": scenario.run, "matrix": dict(scenario.values)}
    namespace = scenario.origin.namespace
    provider = Scripted(
        scripted_replies(agent.turns, agent.script),
        names=told.copy,
        place=scenario.origin.place,
        named=lambda tool: short_name(namespace, tool),
    )
    session = runtime.session(id="chat", seed=scenario.seed, registry=tools_for(runtime, scenario))
    client = ClientStub(runtime, agent, told.copy)
    return Script(provider, session, _script_policy(runtime, scenario, agent), client, _lines(agent, told))


def _found(runtime: Runtime, named: str) -> Scenario:
    with_agent = [scenario for scenario in runtime.scenarios if scenario.agent is not None]
    file = Path(named).is_file()
    for scenario in with_agent:
        same = (
            Path(scenario.origin.source).resolve() == Path(named).resolve()
            if file
            else scenario.name == named
        )
        if same:
            return scenario
    names = [scenario.name for scenario in with_agent]
    what = (
        f"`{named}` contains no scenario with an agent"
        if file
        else f"no scenario with an agent is named `{named}`"
    )
    known = (
        f"use one of {', '.join(f'`{name}`' for name in names)}" if names else "pass a path that contains one"
    )
    raise ConfigurationError(what, code="unknown_scenario", hint=did_you_mean(named, names) or known)


def _script_policy(runtime: Runtime, scenario: Scenario, agent: ScenarioAgent) -> ToolPolicy:
    """The policy of the agent, whose keys override those of its prompt."""
    if not agent.prompt:
        return agent.policy
    prompt = prompt_of(agent.prompt, runtime.packs, scenario.origin)
    said: dict[str, Any] = {key: getattr(agent.policy, key) for key in agent.policy_keys}
    return replace(prompt.policy, **said)


def _lines(agent: ScenarioAgent, names: dict[str, JSON]) -> tuple[str, ...]:
    texts = [turn.user for turn in agent.turns if turn.user is not None]
    return tuple(str(text.render(names.copy())) if text.names <= names.keys() else "" for text in texts)
