"""What binds the tools of a PromptPack: a file beside it, tool -> keys of a descriptor that are no part of the contract."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files
from toolcrib.formats.promptpack.reader.conversion import Turning
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.formats import OverrideFile

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_OWN_SUFFIX: Final = re.compile(r"(?i)(?:\.pack)?\.(?:json|yaml|yml)$")
_FILES: Final = re.compile(r"(?i)(?:.+\.)?bindings\.(?:yaml|yml|json)")

_OF_CONTRACT: Final = ("name", "description", "input_schema", "parameters")
"""What the contract says, and no binding changes."""


def is_bindings(source: str) -> bool:
    """Whether a file is called like one of bindings."""
    return _FILES.fullmatch(_name_of(source)) is not None


def read_bindings(document: Document, tools: Collection[str], files: Files | None) -> OverrideFile:
    """What lies beside a PromptPack and binds its tools.

    Args:
        document: The PromptPack.
        tools: The names of its tools.
        files: The files beside it.
    """
    source, content, problem = _found(document.source, files)
    if content is None:
        return OverrideFile(source, problems=() if problem is None else (problem,))
    documents, problems = parse_documents(source, content, whole=True)
    problems = [each for each in problems if each.code != "empty_document"]
    if len(documents) > 1:
        message = "the file holds several documents, and bindings are one"
        problems.append(documents[1].place(Problem(code="several_documents", message=message)))
    if not documents:
        return OverrideFile(source, problems=tuple(problems))
    turning = Turning(documents[0])
    own = [*_bound(documents[0], turning)]
    known = [each for each in own if _tool_of(each) in tools]
    strays = {_tool_of(each): _stray(each, tools) for each in own if _tool_of(each) not in tools}
    return OverrideFile(source, tuple(known), (*problems, *turning.placed()), strays)


def bound_parts(document: Document) -> list[Document]:
    """The documents that stand in a file of bindings."""
    return [*_bound(document, Turning(document))]


def _bound(document: Document, turning: Turning) -> Iterator[Document]:
    value = document.value
    if not isinstance(value, dict):
        turning.tell("wrong_type", "bindings are an object: tool -> how it is called", "")
        return
    for tool, entry in value.items():
        pointer = f"/{pointer_step(tool)}"
        if tool == "$schema" and isinstance(entry, str):
            continue
        if not isinstance(entry, dict):
            hint = "such as `{mock: {result: done}}`"
            turning.tell("wrong_type", f"what binds `{clipped(tool)}` is an object", pointer, hint=hint)
            continue
        for key in _OF_CONTRACT:
            if key in entry:
                message = f"`{key}` is said by the PromptPack, and no binding changes it"
                turning.tell("not_allowed", message, f"{pointer}/{key}", hint="leave it out here")
        own: dict[str, JSON] = {key: item for key, item in entry.items() if key not in _OF_CONTRACT}
        bound = document.moved({**own, "name": tool, "override": True}, {"": pointer, "/name": pointer})
        yield replace(bound, line=document.position(pointer, key=True)[0])


def _tool_of(document: Document) -> str:
    return str(document.value["name"]) if isinstance(document.value, dict) else ""


def _stray(document: Document, tools: Collection[str]) -> Problem:
    name = _tool_of(document)
    message = f"there is no tool `{clipped(name)}` that this could bind"
    those = (
        f"the tools are: {', '.join(f'`{each}`' for each in tools)}"
        if tools
        else "the PromptPack has no tools"
    )
    hint = did_you_mean(name, tools) or those
    return document.place(Problem(code="unknown_tool", message=message, pointer="", hint=hint))


def _found(source: str, files: Files | None) -> tuple[str, bytes | None, Problem | None]:
    """The file that binds the tools of a PromptPack: how it is called in problems, and what is in it."""
    if files is None:
        return "", None, None
    name = _name_of(source)
    folder = source[: len(source) - len(name)]
    for each in _names(name):
        try:
            return folder + each, files.read(each), None
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = str(error) if error.errno is None else error.strerror
            problem = Problem(code="file_unreadable", message=f"the file can't be read: {reason}")
            return folder + each, None, problem.at(folder + each, 1, 1)
    return "", None, None


def _names(name: str) -> Iterator[str]:
    """How a file may be called that binds the tools of one; its own before that of the folder."""
    stem = _OWN_SUFFIX.sub("", name)
    own = [f"{stem}.bindings"] if stem and stem != name else []
    for each in (*own, "bindings"):
        yield from (f"{each}{suffix}" for suffix in _SUFFIXES)


def _name_of(source: str) -> str:
    return re.split(r"[/\\]", source)[-1]
