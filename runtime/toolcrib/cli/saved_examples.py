"""`toolcrib call --save-example`: add a call to the `examples` of the descriptor of its tool."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from toolcrib.cli.output import write_atomically
from toolcrib.core.model import JSON, Descriptor, Result
from toolcrib.core.text import escape_terminal
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.documents.edits import add_item
from toolcrib.registry.registry import Registry
from toolcrib.schema.coercion import coerce
from toolcrib.schema.validation import Validator
from toolcrib.security.redaction import redact


def save_example(
    tool: Descriptor, arguments: Mapping[str, JSON], result: Result, read: Callable[[], Registry]
) -> str:
    """Add a successful call to the descriptor file of its tool, and return what was done as a sentence.

    Args:
        tool: The tool.
        arguments: The arguments as the caller wrote them.
        result: The result of the call.
        read: Reads the tools again, to see that the changed file is read as it should.

    Raises:
        click.ClickException: The call cannot be saved; the file is unchanged.
    """
    args = _coerced(tool, dict(arguments))
    example: dict[str, JSON] = {"args": args}
    if result.value is not None or not result.content:
        example["result"] = result.value
    shown = {"args": redact(args, tool.input_schema)}
    if "result" in example:
        shown["result"] = redact(result.value, tool.output_schema)
    if shown != example:
        raise _refusal("its arguments or its result hold a secret, which must not be written to a file")
    place = tool.origin.place()
    for known in tool.examples:
        if dict(known.args) == args:
            if not known.has_result or known.result == result.value:
                return f"the call is an example of `{tool.name}` already ({place})"
            raise _refusal(
                f"{place} has an example with these arguments and another result; change it by hand"
            )
    _write(tool, example, read)
    return f"saved as example {len(tool.examples) + 1} of `{tool.name}` ({place})"


def _coerced(tool: Descriptor, arguments: dict[str, JSON]) -> JSON:
    """The arguments as the tool got them, without defaults: examples are not coerced."""
    if tool.coerce == "off" or not isinstance(tool.input_schema, dict):
        return arguments
    value, _repairs = coerce(tool.input_schema, Validator(tool.input_schema), arguments, tool.coerce)
    return value


def _write(tool: Descriptor, example: dict[str, JSON], read: Callable[[], Registry]) -> None:
    # Tools of servers and of Python modules have the place of what names them.
    if "name" not in tool.origin.written or not os.path.isfile(tool.origin.source):
        hint = "`toolcrib export descriptor` writes one"
        raise _refusal(
            f"`{tool.name}` ({tool.origin.source}) has no descriptor file that can be changed; {hint}"
        )
    path = Path(os.path.realpath(tool.origin.source))  # writing to a link would replace it by a file
    try:
        if not path.stat().st_mode & stat.S_IWUSR or not os.access(path, os.W_OK):
            raise _refusal(f"{tool.origin.source} is read-only")
        text = path.read_bytes().decode("utf-8")
        new = add_item(text, tool.origin.line, "examples", example, yaml_of)
        if new is not None:
            write_atomically(path, new)
            now = read().get(tool.name)
            if now is not None and len(now.examples) == len(tool.examples) + 1:
                return
            # Documents of other formats have no `examples`, and a changed file of a signed pack is refused.
            write_atomically(path, text)
        raise _refusal(f"the layout of {tool.origin.place()} does not allow it; add the example by hand")
    except OSError as error:
        raise _refusal(f"{tool.origin.source} cannot be written: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _refusal(f"{tool.origin.source} is not UTF-8") from error


def _refusal(why: str) -> click.ClickException:
    return click.ClickException(escape_terminal(f"the call was not saved: {why}"))
