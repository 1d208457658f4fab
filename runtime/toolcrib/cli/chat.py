"""`toolcrib chat`: a conversation with a model and tools, turn by turn, at a terminal or in a pipe."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.chat_output import ApprovalPrompt, ChatCommands, ChatDisplay, JsonLines, Terminal
from toolcrib.cli.options import (
    ReadOptions,
    json_option,
    open_runtime,
    passthrough_option,
    print_refusals,
    read_options,
)
from toolcrib.cli.trust import ask_for_consent
from toolcrib.core.errors import ConfigurationError, DocumentError, Problem, ToolcribError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Outcome
from toolcrib.core.text import DuplicateKey, decode_json, escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.prompts import Guardrail, Prompt, find_prompt, parse_policy
from toolcrib.loading.scenarios.agent_checks import prompt_of
from toolcrib.loading.scenarios.model import Agent, Scenario
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
from toolcrib.provider.models.installed_providers import allow_base_url, open_provider
from toolcrib.provider.models.scripted import Scripted, scripted_replies
from toolcrib.registry.names import short_name
from toolcrib.scenarios.run_setup import tools_for
from toolcrib.scenarios.runs import runs_of
from toolcrib.scenarios.user_simulator import ClientStub
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


class ChatOptions(NamedTuple):
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
    """Hold a conversation with a model that uses the tools.

    With a MESSAGE one turn is held; without, each line of the standard input is one. PATHs are packs, folders and
    files to read tools from; a last word that is none of these is the MESSAGE. Calls are shown as they happen, without
    the secrets of their arguments and results; what the model says of these is shown as it says it. Those that wait
    for somebody are asked for at a terminal, and refused where there is none, unless `--approve` names them.
    Ctrl-C ends the turn that runs and keeps the conversation, Ctrl-D ends it, `/help` lists commands.

    The exit code tells of the first turn that ended otherwise than with an answer: 15 the model refused, 18 it was
    cancelled, 20 a bound of the policy or of the answer was reached, 21 the provider failed.
    """
    options = ChatOptions(**rest)
    _check(options)
    paths, message = _divided(words)
    if options.script is not None and Path(options.script).is_file():
        reading = reading._replace(packs=(*reading.packs, options.script))
    modes: Mapping[str, str] = NOTHING if mode is None else {"*": mode}
    runtime = open_runtime(reading, paths, modes=modes, passthrough=passthrough)
    print_refusals(runtime)
    ask_for_consent(runtime)
    with asyncio.Runner() as runner:
        try:
            runner.run(_entered(runtime))
            stops = _held(runner, runtime, options, message)
        except SinkFailed as error:
            raise click.ClickException(escape_terminal(error.message)) from error
        finally:
            runner.run(runtime.aclose())
    ctx.exit(next((code for stop in stops if (code := OF_STOP[stop])), exit_codes.OK))


async def _entered(runtime: Runtime) -> None:
    await runtime.__aenter__()  # left in the end, whatever happens between


def _held(runner: asyncio.Runner, runtime: Runtime, options: ChatOptions, message: str | None) -> list[Stop]:
    """Hold the conversation, and return why its turns ended."""
    script = load_script(runtime, options.script) if options.script is not None else None
    registry = runtime.registry if script is None else script.session.registry
    piped = is_piped()
    show: ChatDisplay = JsonLines(registry) if options.as_json else Terminal(echoes=piped and message is None)
    before = None if script is None else script.client
    asking = ApprovalPrompt(
        runtime, options.approved, asks=not (piped or options.as_json), show=show, before=before
    )
    prompt = None if options.prompt is None else find_prompt(runtime.packs, options.prompt)
    policy = _policy(options, prompt, script)
    config = _config(options, prompt, asking)
    provider = _provider(runtime, options) if script is None else script.provider
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
        show.ended(chat.conversation)
        runner.run(_closed(provider))


async def _closed(provider: Provider) -> None:
    close = getattr(provider, "aclose", None)
    if close is not None:
        await close()


def _piped() -> Iterable[str]:
    return (line.strip() for line in sys.stdin)


# What the command line says.


def _check(options: ChatOptions) -> None:
    if (options.script is not None) != (options.name == SCRIPTED):
        raise click.UsageError("`--script` names what `--provider scripted` plays: give both, or neither")
    if options.system is not None and options.prompt is not None:
        raise click.UsageError("`--system` and `--prompt` both instruct the model; leave one of them out")
    if options.variables and options.prompt is None:
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


def _provider(runtime: Runtime, options: ChatOptions) -> Provider:
    world = (
        allow_base_url(engine_of(runtime).world, options.base_url)
        if options.base_url
        else engine_of(runtime).world
    )
    return open_provider(options.name, model=options.model, base_url=options.base_url, world=world)


def _config(options: ChatOptions, prompt: Prompt | None, asking: ApprovalPrompt) -> Config:
    system = options.system or ""
    if prompt is not None:
        system = prompt.render(dict(_value_of(prompt, *_pair(text, "--var")) for text in options.variables))
    settings = {**(prompt.settings if prompt is not None else {})}
    settings |= {key: _json(text) for key, text in (_pair(each, "--set") for each in options.settings)}
    sink = None if options.transcript is None else JSONLSink(options.transcript)
    return Config(system=system, settings=settings, prices=_prices(options), client=asking.client, sink=sink)


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


def _prices(options: ChatOptions) -> Prices | None:
    prices: dict[str, Any] = {}
    for kind, text in (_pair(each, "--price") for each in options.prices):
        try:
            prices[kind] = float(text)
        except ValueError:
            raise click.UsageError(escape_terminal(f"`--price {kind}={text}`: that is no number")) from None
    unknown = prices.keys() - set(Prices._fields)
    if unknown:
        listed = ", ".join(Prices._fields)
        raise click.UsageError(escape_terminal(f"`--price` knows no `{min(unknown)}`; there are {listed}"))
    return Prices(**prices) if prices else None


def _policy(options: ChatOptions, prompt: Prompt | None, script: Script | None) -> ToolPolicy:
    """The policy of the file; what that does not say of the tools, the prompt does."""
    own = prompt.policy if prompt is not None else script.policy if script is not None else NO_POLICY
    if options.policy_file is None:
        return own
    documents, problems = read_documents(options.policy_file, options.policy_file)
    found: list[Problem] = []
    policy = parse_policy(documents[0].value, "", found) if documents else NO_POLICY
    problems = [*problems, *(documents[0].place(each) for each in found)]
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    written = documents[0].value if documents else None
    keeps = isinstance(written, dict) and "allow" not in written
    return replace(policy, allow=own.allow) if keeps else policy


_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def is_piped() -> bool:
    """Whether what the user says comes out of a pipe or a file."""
    return not sys.stdin.isatty()


async def violated_guardrails(guardrails: Sequence[Guardrail], conversation: Conversation) -> list[str]:
    """What the last turn said that a guardrail forbids, one line for each of these."""
    if not guardrails:
        return []
    from toolcrib.loading.scenarios.assertions import check_guardrails  # noqa: PLC0415 -- most conversations have none
    from toolcrib.scenarios.assertions import Trajectory, evaluate_assertion  # noqa: PLC0415 -- as above

    lines = []
    texts = Trajectory.of(conversation, conversation.turns).texts
    for each in guardrails:
        for settled in check_guardrails([{"type": each.type, "params": {**each.params}}], "", []):
            verdicts = [await evaluate_assertion(settled, Trajectory(texts=(text,))) for text in texts]
            found = next((verdict for verdict in verdicts if verdict.applies and not verdict.passed), None)
            if found is not None:
                lines.append(f"guardrail `{each.type}`: {each.message or found.message}")
    return lines


class Chat:
    """Holds the turns.

    Attributes:
        conversation: As far as it came.
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
        """Put together what turns need.

        Args:
            runner: Runs them.
            middleware: The loop.
            show: Tells what happens.
            asking: Answers for calls that wait.
            guardrails: What must be true of what the model says.
        """
        self.conversation = Conversation()
        self._guardrails = guardrails
        self._runner = runner
        self._middleware = middleware
        self._show = show
        self._asking = asking
        self._ended = False

    def one(self, message: str) -> Stop:
        """Hold one turn, and return why it ended."""
        with self._hearing_the_end():
            return self._turn(message)

    def all(self, lines: Iterable[str], commands: ChatCommands) -> list[Stop]:
        """Hold a turn for each line; those that begin with `/` are commands. Returns why they ended."""
        stops = []
        with self._hearing_the_end():
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
        """The lines that somebody types, up to Ctrl-D.

        Args:
            suggested: What the user of a script says, turn by turn; an empty line stands for the next one.
        """
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415 -- editing and history, where there is any
        broken_off = False
        while True:
            try:  # all of it: whoever is impatient presses Ctrl-C more than once
                if broken_off:
                    click.echo("\nCtrl-D or /quit ends the conversation")
                broken_off = False
                line = self._typed_line(suggested)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                if self._ended:
                    raise
                broken_off = True
            else:
                yield line

    def _typed_line(self, suggested: Sequence[str]) -> str:
        turn = self.conversation.turns
        next_line = suggested[turn] if turn < len(suggested) else ""
        if next_line:
            self._show.note(f"(Enter says: {next_line})")
        return input("> ").strip() or next_line

    def _turn(self, text: str) -> Stop:
        stop = self._hold(self.conversation, self.conversation.saying(text), NOTHING)
        while stop is Stop.PENDING:
            answers = self._asking.answers(self.conversation.pending)
            stop = self._hold(self.conversation, self.conversation, answers)
            self._asking.settled()
        for line in self._runner.run(violated_guardrails(self._guardrails, self.conversation)):
            self._show.warning(line)
        return stop

    def _hold(self, before: Conversation, now: Conversation, answers: Mapping[str, Answer]) -> Stop:
        """Let the model go on; whatever ends that, what was said and called is kept."""
        self.conversation = before._replace(stop=None, detail="", pending=())
        try:
            self.conversation = self._runner.run(self._followed(now, answers))
        except KeyboardInterrupt:
            if self._ended:
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
        assert self.conversation.stop is not None  # noqa: S101 -- each way out has set it
        return self.conversation.stop

    async def _followed(self, now: Conversation, answers: Mapping[str, Answer]) -> Conversation:
        async with aclosing(self._middleware.stream(now, answers, broken_off=self._broken_off)) as items:
            async for item in items:
                if isinstance(item, Conversation):
                    return item
                self._show.event(item)
        raise AssertionError("a turn ends with its conversation")

    def _broken_off(self, events: Sequence[Event], conversation: Conversation) -> None:
        """What the turn came to is kept, and its last calls are shown."""
        self.conversation = conversation
        for event in events:
            self._show.event(event)

    def _ended_by(self, stop: Stop) -> None:
        self.conversation = self.conversation._replace(stop=stop)

    @contextmanager
    def _hearing_the_end(self) -> Iterator[None]:
        """Tell Ctrl-C, which ends a turn, from the signals that end the command as Ctrl-C does elsewhere."""
        main = threading.current_thread() is threading.main_thread()
        before = {number: signal.getsignal(number) for number in _ENDING if main}

        def end(number: int, frame: FrameType | None) -> None:
            self._ended = True
            handler: Any = before[number]
            if callable(handler):
                handler(number, frame)
            raise KeyboardInterrupt

        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Script(NamedTuple):
    """A script that is ready to be played.

    Attributes:
        provider: Plays it.
        session: Where its calls are made: with the scenario's modes, mocks, store and faults.
        policy: What the scenario says of the tools.
        client: Fulfils those tools of mode `client` of which the scenario says how.
        lines: What its user says, turn by turn, as far as that is plain text.
    """

    provider: Scripted
    session: Session
    policy: ToolPolicy
    client: ClientStub
    lines: tuple[str, ...]


def load_script(runtime: Runtime, named: str) -> Script:
    """The script of a scenario.

    Args:
        runtime: Has the scenarios.
        named: Name of the scenario, or its file.

    Raises:
        ConfigurationError: There is none of that name, or it has no agent.
    """
    scenario = runs_of(_found(runtime, named))[0]
    agent = scenario.agent
    assert agent is not None  # noqa: S101 -- it was looked for
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
        f"`{named}` holds no scenario with an agent"
        if file
        else f"no scenario with an agent is called `{named}`"
    )
    known = f"there are {', '.join(f'`{name}`' for name in names)}" if names else "name a path that has one"
    raise ConfigurationError(what, code="unknown_scenario", hint=did_you_mean(named, names) or known)


def _script_policy(runtime: Runtime, scenario: Scenario, agent: Agent) -> ToolPolicy:
    """What the agent says, over what its prompt says."""
    if not agent.prompt:
        return agent.policy
    prompt = prompt_of(agent.prompt, runtime.packs, scenario.origin)
    said: dict[str, Any] = {key: getattr(agent.policy, key) for key in agent.policy_keys}
    return replace(prompt.policy, **said)


def _lines(agent: Agent, names: dict[str, JSON]) -> tuple[str, ...]:
    texts = [turn.user for turn in agent.turns if turn.user is not None]
    return tuple(str(text.render(names.copy())) if text.names <= names.keys() else "" for text in texts)
