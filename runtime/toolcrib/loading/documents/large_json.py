"""JSON of any length with rows at its top: an object or a list, whose members are told apart where one is at fault.

A text that is in order meets only the decoder. Lines are looked for among the members, and then within one of them, so
that a fault in a large file costs no more than reading the file a few times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.loading.documents.document import decoded_text
from toolcrib.loading.documents.json_text import (
    after_blanks,
    check_bounds,
    decode_at,
    marks,
    report_faults,
    report_syntax,
)
from toolcrib.loading.documents.positions import Mark, Problems, Stopped, clipped, is_encodable, roots

_KEYS: Final = json.JSONDecoder()


class _Member(NamedTuple):
    """A member of the object or list at the top.

    Attributes:
        step: Its key, or its index as text.
        key: Where its key begins; where it begins itself, in a list.
        start: Where it begins.
        end: Where it ends.
    """

    step: str
    key: int
    start: int
    end: int


class LargeJSON:
    """A JSON text of any length.

    Attributes:
        value: What it says; None where it has faults.
        problems: Its faults, placed.
    """

    def __init__(self, source: str, content: bytes) -> None:
        self._source = source
        self._text = ""
        self.value: JSON = None
        self._found = Problems()
        try:
            self._text = decoded_text(content, self._found)
            self._read()
        except json.JSONDecodeError as error:
            report_syntax(self._text, error, self._found)
        except Stopped:
            pass
        self.problems = [each.at(source, each.line, each.column) for each in self._found]

    def _read(self) -> None:
        check_bounds(self._text, self._found, None)
        sound, value, end = decode_at(self._text, after_blanks(self._text, 0))
        end = after_blanks(self._text, end)
        if end != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)
        if sound:
            self.value = value
        else:
            self._tell_faults()

    def _tell_faults(self) -> None:
        seen: dict[str, int] = {}
        members = list(self._members())
        for member in members:
            if seen.setdefault(member.step, member.key) != member.key:
                lines = f"on line {self._line(seen[member.step])} and on line {self._line(member.key)}"
                message = f"the key `{clipped(member.step)}` is written twice: {lines}"
                fault = Problem(code="duplicate_key", message=message, hint="keep one of them")
                self._found.report(self._at(fault, member, None))
            for problem in self._faults_in(member):
                mark = Mark(".", problem.line, problem.column) if problem.line else None
                self._found.report(self._at(problem, member, mark))
        if not members:
            report_faults(self._text, self._found)

    def _faults_in(self, member: _Member) -> Problems:
        """What is wrong with a member, placed as if its text stood alone; without a line what is with its key."""
        found = Problems()
        if not is_encodable(member.step):
            message = f"the text `{clipped(member.step)}` holds half of a surrogate pair"
            hint = "write the character itself, or both halves"
            found.append(Problem(code="lone_surrogate", message=message, hint=hint))
        if not decode_at(self._text, member.start)[0]:
            with suppress(Stopped):  # what was found until then is told
                report_faults(self._text[member.start : member.end], found)
        return found

    def place(self, problem: Problem) -> Problem:
        """A problem of a part of the value, with the line and column where that stands."""
        steps = keys_of(problem.pointer)
        member = self._by_step.get(steps[0]) if steps else None
        if member is None:
            return problem.at(self._source, 1, 1)
        found = roots(marks(self._text[member.start : member.end]))[0]
        inner = found.nearest("".join(f"/{pointer_step(step)}" for step in steps[1:]))
        placed = self._at(problem._replace(pointer=""), member, inner.mark)
        return placed._replace(pointer=problem.pointer, source=self._source)

    def _at(self, problem: Problem, member: _Member, mark: Mark | None) -> Problem:
        """A problem within a member, at a mark counted from where that begins; at its key without one."""
        start = member.key if mark is None else member.start
        line, column = self._line(start), start - self._text.rfind("\n", 0, start)
        if mark is not None:
            line, column = line + mark.line - 1, mark.column + (column - 1 if mark.line == 1 else 0)
        pointer = f"/{pointer_step(member.step)}{problem.pointer}"
        return problem._replace(line=line, column=column, pointer=pointer)

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    @cached_property
    def _by_step(self) -> dict[str, _Member]:
        return {member.step: member for member in self._members()}

    def _members(self) -> Iterator[_Member]:
        """The members of what is known to be JSON; none of what is neither object nor list."""
        text = self._text
        at = after_blanks(text, 0)
        keyed, index = text.startswith("{", at), 0
        if not keyed and not text.startswith("[", at):
            return
        at = after_blanks(text, at + 1)
        while not text.startswith(("}", "]"), at):
            key = at
            step = str(index)
            if keyed:
                step, at = _KEYS.raw_decode(text, at)
                at = after_blanks(text, after_blanks(text, at) + 1)
            end = decode_at(text, at)[2]
            yield _Member(step, key, at, end)
            index += 1
            at = after_blanks(text, end)
            if text.startswith(",", at):
                at = after_blanks(text, at + 1)
