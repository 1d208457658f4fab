"""`toolcrib new`: write a tool, a scenario or a pack to start from."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli.init import schema_text
from toolcrib.cli.options import ReadOptions, all_tool_names, open_offline, open_runtime, read_options
from toolcrib.cli.output import write_new
from toolcrib.cli.show import example_arguments
from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, Descriptor, Result
from toolcrib.core.schemas import Kind, envelope
from toolcrib.core.text import compact, escape_terminal
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.engine import engine_of
from toolcrib.engine.open_project import DEFAULT_PATHS
from toolcrib.engine.runtime import Runtime
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.documents.files import PACK_FILES
from toolcrib.loading.project_discovery import candidate_folders, find_project
from toolcrib.loading.sources import real_path

TOOL = """\
name: {name}
description: Say what the tool does, for the model that chooses it.
annotations: {{read_only: true}}

input_schema:
  type: object
  additionalProperties: false
  required: [text]
  properties:
    text: {{type: string, minLength: 1, description: Say what the argument means.}}

output_schema:
  type: object
  required: [answer]
  properties:
    answer: {{type: string}}

# What the tool answers while it is mocked; {{{{ }}}} holds an expression.
mock:
  result: {{answer: "{{{{ args.text }}}}"}}

# Checked when the file is read, and run by `toolcrib run`.
examples:
  - args: {{text: hello}}
    result: {{answer: hello}}
"""

SCENARIO = """\
scenario: {name}
description: Say what the scenario shows.

"""

PACK = """\
name: {name}
version: "0.1.0"
description: Say what the tools of the pack are for.
tools: ["tools/*.tool.yaml"]
scenarios: ["scenarios/*.scenario.yaml"]
"""


class _NewGroup(click.Group):
    """A group that explains what to write for `toolcrib new NAME`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is probably the name of what is to be created."""
        if args and not ctx.resilient_parsing and args[0] not in self.commands:
            word = escape_terminal(args[0])
            near = did_you_mean(args[0], self.commands)
            forms = ", ".join(f"`toolcrib new {kind} {word}`" for kind in self.commands)
            ctx.fail(f"`{word}` is not a kind of file; {near or f'write one of {forms}'}")
        return super().resolve_command(ctx, args)


@click.group("new", cls=_NewGroup)
def command() -> None:
    """Create a tool, a scenario or a pack to start from.

    The files are valid and run. They are written where the project reads them, and nothing is overwritten.
    `toolcrib init` creates a project.
    """


_folder_option = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write into this folder. Default: the pack of the working directory, or the project's `descriptors` or `packs`.",
)


@command.command("tool")
@click.argument("name")
@_folder_option
@read_options
def tool(*, name: str, folder: str | None, reading: ReadOptions) -> None:
    """Create a descriptor with a mock and an example.

    Replace the schemas, the mock and the example; add a block such as `live:` for what the tool does in production.
    """
    _check_name("descriptor", name)
    project = _Project.found(reading)
    _refuse_known("tool", name, project.runtime.registry.get(name))
    path = project.folder(folder, "tools", DEFAULT_PATHS[0]) / f"{name}.tool.yaml"
    project.write({path: ("descriptor", TOOL.format(name=name))})
    project.finish(reading, name, path, f"toolcrib call {name} text=hello", f"toolcrib run {name}")


@command.command("scenario")
@click.argument("name")
@click.option(
    "--tool",
    "called",
    metavar="NAME",
    shell_complete=all_tool_names,
    help="The tool that the scenario calls. Default: the first one.",
)
@_folder_option
@read_options
def scenario(*, name: str, called: str | None, folder: str | None, reading: ReadOptions) -> None:
    """Create a scenario with one step, which calls a tool.

    The arguments are those of the first example of the tool, or are generated from its schema.
    """
    _check_name("scenario", name)
    project = _Project.found(reading)
    _refuse_known(
        "scenario", name, next((one for one in project.runtime.scenarios if one.name == name), None)
    )
    document = _scenario_of(reading, _called(project.runtime, called))
    path = project.folder(folder, "scenarios", DEFAULT_PATHS[0]) / f"{name}.scenario.yaml"
    text = SCENARIO.format(name=name) + "".join(f"{line}\n" for line in yaml_of(document))
    project.write({path: ("scenario", text)})
    project.finish(reading, name, path, f"toolcrib run {name}")


@command.command("pack")
@click.argument("name")
@_folder_option
@read_options
def pack(*, name: str, folder: str | None, reading: ReadOptions) -> None:
    """Create a pack with a tool and a scenario.

    It is written to a folder of its name.
    """
    _check_name("pack", name)
    project = _Project.found(reading)
    _refuse_known("pack", name, next((one for one in project.runtime.packs if one.name == name), None))
    first = f"{name.replace('-', '_')}_hello"
    _refuse_known("tool", first, project.runtime.registry.get(first))
    top = project.folder(folder, "", DEFAULT_PATHS[1]) / name
    steps: dict[str, JSON] = {
        "steps": [{"call": first, "args": {"text": "hello"}, "expect": {"result": {"answer": "hello"}}}]
    }
    text = SCENARIO.format(name=f"{first}_answers") + "".join(f"{line}\n" for line in yaml_of(steps))
    project.write(
        {
            top / "pack.yaml": ("pack", PACK.format(name=name)),
            top / "tools" / f"{first}.tool.yaml": ("descriptor", TOOL.format(name=first)),
            top / "scenarios" / f"{first}_answers.scenario.yaml": ("scenario", text),
        }
    )
    project.finish(reading, first, top, f"toolcrib call {first} text=hello", f"toolcrib run {first}_answers")


def _check_name(kind: Kind, name: str) -> None:
    """Check a name against the schema of its document.

    Raises:
        click.BadParameter: With the rule, and a similar name that obeys it.
    """
    schema = envelope(kind)
    rule: Any = schema["$defs"]["name"] if kind == "scenario" else schema["properties"]["name"]
    if re.fullmatch(rule["pattern"].removesuffix("$"), name):
        return
    between = "-" if kind == "pack" else "_"
    similar = re.sub(r"[^A-Za-z0-9]+", between, name).strip(between)
    similar = similar.lower() if kind == "pack" else similar
    fits = re.fullmatch(rule["pattern"].removesuffix("$"), similar)
    hint = f"; for example `{similar}`" if fits else ""
    shown = escape_terminal(name)
    raise click.BadParameter(f"`{shown}`: {rule['errorMessage']}{hint}", param_hint="NAME")


def _refuse_known(kind: str, name: str, known: Any) -> None:
    """Refuse the name of something that exists: a second one would be an error, or a warning in each run."""
    if known is not None:
        place = escape_terminal(known.origin.place())
        raise click.ClickException(f"the {kind} `{name}` exists ({place}); nothing was written")


def _called(runtime: Runtime, name: str | None) -> Descriptor:
    known = runtime.registry
    if name is None:
        # One whose examples pass, rather than one that may refuse the generated arguments.
        tools = sorted(known.values(), key=lambda tool: (not tool.examples, "mock" not in tool.bindings))
        if not tools:
            raise click.ClickException(
                "there is no tool that a scenario could call; `toolcrib new tool NAME` writes one"
            )
        return tools[0]
    found = known.get(known.named_by_alias(name) or name)
    if found is None:
        hint = did_you_mean(name, known) or "`toolcrib list` lists the tools"
        raise click.BadParameter(f"no tool is called `{escape_terminal(name)}`; {hint}", param_hint="--tool")
    return found


def _scenario_of(reading: ReadOptions, tool: Descriptor) -> dict[str, JSON]:
    """The keys of a scenario that calls a tool and passes, if the tool has a mock."""
    arguments = example_arguments(tool)
    step: dict[str, JSON] = {"call": tool.name, "args": _literal(arguments)}
    document: dict[str, JSON] = {}
    if "mock" in tool.bindings:
        if len(tool.bindings) > 1:
            document["modes"] = {tool.name: "mock"}
        result = asyncio.run(_answer(reading, tool, arguments))
        known = tool.examples[0].result if tool.examples and tool.examples[0].has_result else None
        if not result.ok:
            step["expect"] = {"outcome": result.outcome.value}
        elif known is not None and not any(sign in compact(known) for sign in _SIGNS):
            step["expect"] = {"result": known}
    return {**document, "steps": [step]}


async def _answer(reading: ReadOptions, tool: Descriptor, arguments: Mapping[str, JSON]) -> Result:
    """What the mock of a tool answers, in virtual time."""
    runtime = open_runtime(reading, modes={tool.name: "mock"})
    async with aclosing(runtime), runtime.session(clock=VirtualClock()) as session:
        return await session.call(tool.name, arguments)


_SIGNS = ("{{", "{%", "${", '"$')
"""Parts of a text or a key that have a meaning of their own in a scenario."""


def _literal(value: JSON) -> JSON:
    """The arguments of a step that are not read as expressions."""
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value.replace("{{", "{{ '{{' }}") if isinstance(value, str) else value


class _Project(NamedTuple):
    """What the files are written into.

    Attributes:
        root: Folder of the project file; the working directory without a project.
        runtime: What is read there.
    """

    root: Path
    runtime: Runtime

    @classmethod
    def found(cls, reading: ReadOptions) -> _Project:
        """The project of the working directory."""
        return cls(Path(find_project() or "").parent, open_offline(reading))

    def folder(self, named: str | None, inside: str, default: str) -> Path:
        """The folder for a new file.

        Args:
            named: The folder that the user named, if any.
            inside: Folder in a pack, if the working directory belongs to one; empty for what is never in a pack.
            default: Folder in the project; another source of it is used if the project does not read this one.
        """
        if named is not None:
            return Path(named)
        for place in candidate_folders() if inside else ():
            if any(Path(place, name).is_file() for name in PACK_FILES):
                return Path(os.path.relpath(os.path.join(place, inside)))
            if self.runtime.project is not None and real_path(place) == real_path(self.root):
                break
        wanted = self.root / default
        project = self.runtime.project
        if project is None:
            return wanted
        sources = [self.root / source.path for source in project.sources if source.path]
        if any(real_path(wanted).is_relative_to(real_path(source)) for source in sources):
            return wanted
        folders = [
            each
            for each in sources
            if each.is_dir() and not any((each / name).is_file() for name in PACK_FILES)
        ]
        if not folders:
            raise click.UsageError(
                "the project reads no folder that a file could be written to; name one with `--dir`"
            )
        return folders[0]

    def write(self, contents: Mapping[Path, tuple[Kind, str]]) -> None:
        """Write files with their kind and text, below the line that names their schema for editors; nothing if one exists.

        Raises:
            click.ClickException: A file exists, or cannot be written.
        """
        existing = [path for path in contents if os.path.lexists(path)]
        if existing:
            names = escape_terminal(", ".join(map(str, existing)))
            raise click.ClickException(f"{names} exists; nothing was written")
        texts: dict[Path, str | bytes] = {}
        for path, (kind, text) in contents.items():
            schema = self.root / ".toolcrib" / f"{kind}.schema.json"
            texts[schema] = schema_text(kind)
            reference = Path(os.path.relpath(schema, path.parent)).as_posix()
            texts[path] = f"# yaml-language-server: $schema={reference}\n{text}"
        written = write_new(texts, force=False)
        for path in texts:
            if path in written:
                click.echo(f"wrote {escape_terminal(str(path))}")

    def finish(self, reading: ReadOptions, name: str, path: Path, *commands: str) -> None:
        """Print the next commands, or why the new files are not read."""
        runtime = open_offline(reading)
        if name in runtime.registry or any(one.name == name for one in runtime.scenarios):
            click.echo("\nNext:" + "".join(f"\n  {each}" for each in commands))
            return
        sources = escape_terminal(", ".join(engine_of(runtime).stock.sources))
        folder = escape_terminal(str(path.parent))
        click.echo(f"{escape_terminal(str(path))} is not read here: the sources are {sources}", err=True)
        click.echo(
            f"    hint: add `{folder}` to `sources` in toolcrib.yaml, or use `--pack {folder}`", err=True
        )
